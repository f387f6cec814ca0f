//! Studies as the command line runs them, without processes of their own.

mod rdma;
mod schema_1;
mod support;
