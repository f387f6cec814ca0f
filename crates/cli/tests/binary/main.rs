//! Tests of the binary.

mod agents;
mod checks;
mod compatibility;
#[cfg(feature = "tls")]
mod concat;
mod control;
mod copy;
mod ctl;
mod doctor;
mod documents;
mod dumps;
mod faults;
mod first_day;
mod key;
mod look;
mod metrics;
mod operate;
mod own_files;
mod pair;
mod paths;
mod reports;
mod safety;
#[cfg(feature = "tls")]
mod secrets;
mod serve;
mod spdk;
mod storages;
mod study;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_control;
mod trace;
mod verbs;
mod weft;
#[cfg(not(feature = "mdns"))]
mod without_mdns;
#[cfg(not(feature = "tls"))]
mod without_tls;
