//! In place of TLS to etcd, in builds without it.

use std::io;

use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;
use weft_target::config::EtcdTls;
use weft_transport::tls::TlsFault;

pub(super) fn add(
    _: ConfigBuilder<AgentScope>,
    _: &EtcdTls,
) -> io::Result<ConfigBuilder<AgentScope>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, TlsFault::NotBuilt.to_string()))
}
