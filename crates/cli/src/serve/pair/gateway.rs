//! The gateway of etcd, which takes and gives JSON over HTTP.

#[cfg_attr(not(feature = "tls"), path = "gateway/without_tls.rs")]
mod tls;

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};
use weft_target::config::EtcdTls;

use crate::limits::GATEWAY_LINE_BYTES_MAX;

/// How etcd is reached: with TLS, or without.
#[derive(Debug)]
pub(super) struct Gateway(Option<EtcdTls>);

impl Gateway {
    /// Reads the files of TLS once, so that a wrong one is told at the start.
    pub(super) fn new(tls: Option<EtcdTls>) -> io::Result<Self> {
        if let Some(files) = &tls {
            tls::add(Agent::config_builder(), files)?;
        }
        Ok(Self(tls))
    }

    /// Posts an object to `SCHEME://HOST:PORT/PATH` and returns the object that answers it. Each
    /// step may take the time.
    pub(super) fn call(&self, url: &str, body: &Value, timeout: Duration) -> io::Result<Value> {
        let mut response = self.post(url, body, timeout)?;
        response.body_mut().read_json().map_err(io_error)
    }

    /// The same with a stream of objects as the answer.
    pub(super) fn stream(&self, url: &str, body: &Value, timeout: Duration) -> io::Result<Objects> {
        let response = self.post(url, body, timeout)?;
        Ok(Objects(BufReader::new(Box::new(response.into_body().into_reader()))))
    }

    fn post(&self, url: &str, body: &Value, timeout: Duration) -> io::Result<Response<Body>> {
        let timeout = Some(timeout);
        // A connection that is used again may have died since, and a proxy of the environment is
        // not meant for what decides who writes.
        let config = Agent::config_builder().proxy(None).max_idle_connections(0);
        let config = config.timeout_resolve(timeout).timeout_connect(timeout);
        let config = config.timeout_send_request(timeout).timeout_send_body(timeout);
        let config = config.timeout_recv_response(timeout).timeout_recv_body(timeout);
        let mut config = config.http_status_as_error(false);
        // Certificates are renewed from time to time.
        if let Some(files) = &self.0 {
            config = tls::add(config, files)?;
        }
        let agent = Agent::new_with_config(config.build());
        let mut response = agent.post(url).send_json(body).map_err(io_error)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let told = response.body_mut().read_to_string().unwrap_or_default();
        Err(io::Error::other(format!("{status}: {}", told.trim())))
    }
}

/// Objects, a line each.
pub(super) struct Objects(BufReader<Box<dyn Read>>);

impl Iterator for Objects {
    type Item = io::Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        match self.0.by_ref().take(GATEWAY_LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).map_err(io::Error::from)),
            Err(error) => Some(Err(error)),
        }
    }
}

fn io_error(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => error,
        ureq::Error::Timeout(_) => io::Error::new(io::ErrorKind::TimedOut, error),
        other => io::Error::other(other),
    }
}
