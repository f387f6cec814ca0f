//! `weft target --metrics`: what Prometheus scrapes, and what orchestrators probe.
//!
//! It reads counters only, on threads of its own; the data path does not know of it.

mod exposition;
mod families;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::exposition::Format;
use super::operate::operator::Operator;
use crate::failure::Failure;
use crate::limits::{
    METRICS_CONNECTIONS_MAX, METRICS_HEADERS_MAX, METRICS_REQUEST_BYTES_MAX,
    METRICS_REQUEST_TIMEOUT,
};

const PIECE_BYTES: usize = 64 << 10;
/// After an error of accept, which may come at once again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a target's metrics by HTTP until the process ends. Returns where it listens.
pub(super) fn start(address: SocketAddr, operator: Arc<Operator>) -> Result<SocketAddr, Failure> {
    let fault = |error| Failure::io("listen for --metrics on", &address, &error);
    let listener = listen(address)?;
    let address = listener.local_addr().map_err(fault)?;
    let serve = move || serve(&listener, &operator);
    let thread = std::thread::Builder::new().name("weft-metrics".to_owned());
    thread.spawn(serve).map_err(fault)?;
    Ok(address)
}

/// Nobody is answered there yet.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address)
        .map_err(|error| Failure::io("listen for --metrics on", &address, &error))
}

/// `PORT` on the loopback address, or `ADDRESS:PORT`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    let address = port.or_else(|_| text.parse());
    address.map_err(|_| "write a PORT, for 127.0.0.1, or ADDRESS:PORT".to_owned())
}

/// The connections that are open, the oldest one first.
#[derive(Debug, Default)]
struct Open {
    streams: Mutex<VecDeque<Arc<TcpStream>>>,
    ended: Condvar,
}

/// One of them, until its thread is over.
#[derive(Debug)]
struct ConnectionGuard {
    open: Arc<Open>,
    stream: Arc<TcpStream>,
}

impl Open {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place, which the oldest connection has to leave if there is none.
    fn enter(self: &Arc<Self>, stream: TcpStream) -> ConnectionGuard {
        let stream = Arc::new(stream);
        let mut streams = self.streams();
        while streams.len() >= METRICS_CONNECTIONS_MAX {
            // It fails if the peer has closed it.
            let _ = streams.front().map(|oldest| oldest.shutdown(Shutdown::Both));
            streams = self.ended.wait(streams).unwrap_or_else(PoisonError::into_inner);
        }
        streams.push_back(Arc::clone(&stream));
        drop(streams);
        ConnectionGuard { open: Arc::clone(self), stream }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.streams().retain(|stream| !Arc::ptr_eq(stream, &self.stream));
        self.open.ended.notify_one();
    }
}

fn serve(listener: &TcpListener, operator: &Arc<Operator>) {
    let open = Arc::new(Open::default());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let (operator, place) = (Arc::clone(operator), open.enter(stream));
        let answer = move || {
            if let Err(error) = answer(&place.stream, &operator) {
                log::debug!("metrics: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("weft-metrics".to_owned());
        if let Err(error) = thread.spawn(answer) {
            log::warn!("metrics: a request cannot be answered: {error}");
        }
    }
}

/// Answers one request.
fn answer(mut stream: &TcpStream, operator: &Arc<Operator>) -> io::Result<()> {
    let deadline = Instant::now() + METRICS_REQUEST_TIMEOUT;
    let request = read_request(stream, deadline)?;
    let (status, content_type, body) = match request {
        None => ("400 Bad Request", "text/plain", "this is no HTTP request\n".to_owned()),
        Some(Request { ref method, .. }) if !matches!(&**method, "GET" | "HEAD") => {
            ("405 Method Not Allowed", "text/plain", "use GET\n".to_owned())
        }
        Some(Request { ref path, format, .. }) if path == "/metrics" => {
            ("200 OK", format.content_type(), families::text(operator, format))
        }
        Some(Request { ref path, .. }) if path == "/healthz" => {
            ("200 OK", "text/plain", "alive\n".to_owned())
        }
        Some(Request { ref path, .. }) if path == "/readyz" => match operator.readiness() {
            Ok(()) => ("200 OK", "text/plain", "ready\n".to_owned()),
            Err(why) => ("503 Service Unavailable", "text/plain", format!("{why}\n")),
        },
        Some(_) => {
            let there = "metrics are at /metrics, states at /healthz and /readyz\n";
            ("404 Not Found", "text/plain", there.to_owned())
        }
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    let mut pieces = vec![head.as_bytes()];
    if request.is_none_or(|request| request.method != "HEAD") {
        pieces.extend(body.as_bytes().chunks(PIECE_BYTES));
    }
    for piece in pieces {
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(piece)?;
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    format: Format,
}

/// Reads a request; `None` if it is none.
fn read_request(mut stream: &TcpStream, deadline: Instant) -> io::Result<Option<Request>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while bytes.len() < METRICS_REQUEST_BYTES_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece[..count]);
        let mut headers = [httparse::EMPTY_HEADER; METRICS_HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let accept = request.headers.iter().filter(|header| {
                    header.name.eq_ignore_ascii_case("accept")
                        && Format::is_open_metrics(&String::from_utf8_lossy(header.value))
                });
                let format = if accept.count() > 0 { Format::OpenMetrics } else { Format::Text };
                let path = request.path.unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default().to_owned();
                let method = request.method.unwrap_or_default().to_owned();
                return Ok(Some(Request { method, path, format }));
            }
            Ok(httparse::Status::Partial) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
