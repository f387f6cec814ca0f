//! RDMA: capsules as messages, data by RDMA READ and WRITE.

pub mod verbs;
