//! TLS to etcd, with the certificates of the configured files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;
use weft_backend::files::read_text;
use weft_reactor::read_private_file;
use weft_target::config::EtcdTls;

/// Adds what the files say to the settings of a client: whom it trusts, and who it is.
pub(super) fn add(
    config: ConfigBuilder<AgentScope>,
    files: &EtcdTls,
) -> io::Result<ConfigBuilder<AgentScope>> {
    let roots = certificates(&files.cacert)?;
    let identity = files.identity.as_ref().map(|(certificate, key)| {
        let chain = certificates(certificate)?;
        let pem = read_private_file(key).map_err(|error| of_file(key, &error))?;
        let key = PrivateKey::from_pem(&pem).map_err(|error| wrong(key, &error))?;
        Ok::<_, io::Error>(ClientCert::new_with_certs(&chain, key))
    });
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(identity.transpose()?);
    Ok(config.tls_config(tls.build()))
}

fn certificates(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let mut certificates = Vec::new();
    for item in parse_pem(read_text(path).map_err(|error| of_file(path, &error))?.as_bytes()) {
        if let PemItem::Certificate(one) = item.map_err(|error| wrong(path, &error))? {
            certificates.push(one);
        }
    }
    match certificates.is_empty() {
        true => Err(wrong(path, &"it has no certificate in PEM")),
        false => Ok(certificates),
    }
}

fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn wrong(path: &Path, what: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}
