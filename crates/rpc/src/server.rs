//! The server.

use std::{
    fs,
    io::{self, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

use crate::{
    address::Address,
    codec::{ReadError, read_value},
    limits::{BATCH_MAX, CONNECTIONS_MAX, REQUEST_BYTES_MAX, SEND_TIMEOUT, SILENCE_MAX},
    message::{Code, ErrorObject, Id, Request, Response, VERSION},
    method::Methods,
};

/// A server; it runs until the process ends. Its Unix socket, if it has one, is removed when this
/// value is dropped.
#[derive(Debug)]
pub struct Server {
    address: Address,
}

/// State shared by a server's connections.
#[derive(Debug)]
struct Shared {
    methods: Methods,
    connections: AtomicUsize,
}

impl Server {
    /// Listens and serves on threads of its own. The socket of an ended process is replaced; one on
    /// which a process listens is not.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(address: &Address, methods: Methods) -> io::Result<Self> {
        let shared = Arc::new(Shared { methods, connections: AtomicUsize::new(0) });
        let address = match address {
            Address::Unix(path) => {
                let listener = listen_unix(path)?;
                spawn("weft-control", move || {
                    accept(&shared, || listener.accept().map(|(stream, _)| stream), Stream::Unix);
                })?;
                address.clone()
            }
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted)?;
                let address = Address::Tcp(listener.local_addr()?);
                spawn("weft-control", move || {
                    accept(&shared, || listener.accept().map(|(stream, _)| stream), Stream::Tcp);
                })?;
                address
            }
        };
        Ok(Self { address })
    }

    /// The address it listens on, with the port that the kernel chose for port 0.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // It may be removed already.
            let _ = fs::remove_file(path);
        }
    }
}

fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // Only this process's user may control it.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// A connection over either kind of socket.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn split(self) -> io::Result<(Box<dyn Read>, Box<dyn Write>)> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok((Box::new(stream.try_clone()?), Box::new(stream)))
            }
        }
    }
}

fn accept<S>(
    shared: &Arc<Shared>,
    mut next: impl FnMut() -> io::Result<S>,
    wrap: impl Fn(S) -> Stream,
) {
    loop {
        let stream = match next() {
            Ok(stream) => wrap(stream),
            Err(error) => {
                log::warn!("the control socket does not accept: {error}");
                // The causes (no file descriptors left) persist for a while.
                thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            log::warn!("a control connection was refused: the limit is {CONNECTIONS_MAX}");
            continue;
        }
        let served = Arc::clone(shared);
        let spawned = spawn("weft-control-c", move || {
            if let Ok((reader, writer)) = stream.split() {
                serve(&served.methods, reader, writer);
            }
            served.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = spawned {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            log::warn!("a control connection was refused: {error}");
        }
    }
}

/// Serves until the peer closes the connection, or until the start of its next request is unknown.
fn serve(methods: &Methods, reader: impl Read, mut writer: impl Write) {
    let mut reader = BufReader::new(reader);
    loop {
        let request = read_value(&mut reader, REQUEST_BYTES_MAX);
        let is_broken = request.is_err();
        let response = match request {
            Ok(request) => respond(methods, request),
            Err(ReadError::Invalid(error)) => refuse(Code::PARSE_ERROR, error),
            Err(ReadError::TooLong) => refuse(Code::INVALID_REQUEST, "the request is too long"),
            Err(ReadError::Closed | ReadError::Io(_)) => return,
        };
        let Some(response) = response else { continue };
        // One write: separate writes are sent as separate segments.
        let sent = writer.write_all(format!("{response}\n").as_bytes());
        if sent.and_then(|()| writer.flush()).is_err() || is_broken {
            return;
        }
    }
}

/// The response to one message; `None` to a notification.
fn respond(methods: &Methods, message: Value) -> Option<Value> {
    match message {
        Value::Array(batch) if batch.is_empty() => {
            refuse(Code::INVALID_REQUEST, "the batch is empty")
        }
        Value::Array(batch) if batch.len() > BATCH_MAX => {
            refuse(Code::INVALID_REQUEST, "the batch is too long")
        }
        Value::Array(batch) => {
            let responses: Vec<Value> =
                batch.into_iter().filter_map(|request| respond_to_one(methods, request)).collect();
            // An empty array is not a response.
            if responses.is_empty() { None } else { Some(Value::Array(responses)) }
        }
        request => respond_to_one(methods, request),
    }
}

fn respond_to_one(methods: &Methods, request: Value) -> Option<Value> {
    let request: Request = match serde_json::from_value(request) {
        Ok(request) => request,
        Err(error) => return refuse(Code::INVALID_REQUEST, error),
    };
    let outcome = match request.jsonrpc.as_deref() {
        None | Some(VERSION) => methods.call(&request.method, request.params),
        Some(_) => Err(ErrorObject::new(Code::INVALID_REQUEST, "jsonrpc is not \"2.0\"")),
    };
    match (request.id, outcome) {
        (None, Ok(_)) => None,
        (id, outcome) => to_value(&Response::new(id.unwrap_or(Id::Null), outcome)),
    }
}

/// An error response without a known request.
fn refuse(code: Code, what: impl std::fmt::Display) -> Option<Value> {
    to_value(&Response::new(Id::Null, Err(ErrorObject::new(code, what))))
}

fn to_value(response: &Response) -> Option<Value> {
    serde_json::to_value(response).ok()
}

#[cfg(test)]
mod tests;
