//! The server.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;

use crate::address::Address;
use crate::caller::Caller;
use crate::codec::{ReadError, read_value};
use crate::limits::{
    ANSWER_TIMEOUT, AUTHENTICATE_READS, AUTHENTICATE_TIMEOUT, BATCH_MAX, CONNECTIONS_MAX,
    REQUEST_BYTES_MAX, SEND_TIMEOUT, SILENCE_MAX,
};
use crate::listening::Listening;
use crate::message::{Code, ErrorObject, Id, Request, Response, VERSION};
use crate::method::{Method, Methods};
use crate::token::{Authenticate, AuthenticateParams, Token};

/// A server; it runs until the process ends. Its Unix socket, if it has one, is removed when this
/// value is dropped.
#[derive(Debug)]
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
}

/// How often a server that ends looks whether all calls are answered.
const ANSWER_CHECK: Duration = Duration::from_millis(1);

/// State shared by a server's connections.
#[derive(Debug)]
struct Shared {
    methods: Methods,
    /// What a caller over TCP must show.
    token: Option<Token>,
    places: Places,
    /// Calls that are not answered yet.
    calls: AtomicUsize,
}

/// The connections of a server, of which there is a bounded number. Where that is reached, a new
/// one takes the place of the oldest whose caller has said nothing so far: who says nothing keeps
/// nobody out.
#[derive(Debug, Default)]
struct Places {
    taken: Mutex<Taken>,
    /// A connection has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    /// Those whose first request has not come as a whole, the oldest one first.
    silent: VecDeque<Arc<Stream>>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a connection; `false`: all are those of callers that have called.
    fn enter(&self, stream: &Arc<Stream>) -> bool {
        let mut taken = self.lock();
        while taken.count >= CONNECTIONS_MAX {
            let Some(oldest) = taken.silent.pop_front() else { return false };
            oldest.shut_down();
            taken = self.ended.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.count += 1;
        taken.silent.push_back(Arc::clone(stream));
        true
    }

    /// Its caller has said something.
    fn heard(&self, stream: &Arc<Stream>) {
        self.lock().silent.retain(|silent| !Arc::ptr_eq(silent, stream));
    }

    fn leave(&self, stream: &Arc<Stream>) {
        self.heard(stream);
        self.lock().count -= 1;
        self.ended.notify_one();
    }
}

impl Server {
    /// Listens and serves on threads of its own. The socket of an ended process is replaced; one on
    /// which a process listens is not. Over TCP a caller must show the token, if there is one.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn start(
        at: impl Into<Listening>,
        methods: Methods,
        token: Option<Token>,
    ) -> io::Result<Self> {
        let listening = at.into();
        let (places, calls) = (Places::default(), AtomicUsize::new(0));
        let served = Arc::new(Shared { methods, token, places, calls });
        let shared = Arc::clone(&served);
        let address = match listening.address() {
            Address::Unix(path) => {
                let listener = listen_unix(&listening, path)?;
                spawn("weft-control", move || {
                    accept(&shared, || listener.accept().map(|(stream, _)| stream), Stream::Unix);
                })?;
                listening.address
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
        Ok(Self { address, shared: served })
    }

    /// Whether a server can listen there: for a moment one does, which answers nobody.
    ///
    /// # Errors
    /// As of [`Self::start`].
    pub fn can_listen(at: &Listening) -> io::Result<()> {
        match at.address() {
            Address::Unix(path) => listen_unix(at, path).and_then(|_| fs::remove_file(path)),
            Address::Tcp(wanted) => TcpListener::bind(wanted).map(drop),
        }
    }

    /// The address it listens on, with the port that the kernel chose for port 0.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }
}

/// Serves one caller over a pair of streams until the first one ends.
pub fn serve(methods: Methods, from: impl Read, to: impl Write) {
    let (places, calls) = (Places::default(), AtomicUsize::new(0));
    let shared = Shared { methods, token: None, places, calls };
    let (caller, trust) = (Caller::Parent, Box::new(|| Ok(())));
    let reader = BufReader::new(from);
    Connection { caller, reader, writer: to, trust }.serve(&shared, || ());
}

impl Drop for Server {
    fn drop(&mut self) {
        // A call that has ended the process is answered as well.
        let mut waited = Duration::ZERO;
        while self.shared.calls.load(Ordering::Acquire) > 0 && waited < ANSWER_TIMEOUT {
            thread::sleep(ANSWER_CHECK);
            waited += ANSWER_CHECK;
        }
        if let Address::Unix(path) = &self.address {
            // It may be removed already.
            let _ = fs::remove_file(path);
        }
    }
}

fn listen_unix(listening: &Listening, path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    listening.listen_unix(path).map(Into::into)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// A connection over either kind of socket.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A reader that fails after a number of reads: each byte on its own would renew the time-out.
struct BoundedReader<R> {
    inner: R,
    /// None: as many as there are.
    left: Rc<Cell<Option<u32>>>,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.left.get() {
            Some(0) => return Err(io::ErrorKind::TimedOut.into()),
            left => self.left.set(left.map(|left| left - 1)),
        }
        self.inner.read(into)
    }
}

/// A connection that is served.
struct Connection<R, W> {
    caller: Caller,
    reader: BufReader<R>,
    writer: W,
    /// Called once the caller has shown the token.
    trust: Box<dyn Fn() -> io::Result<()>>,
}

impl Stream {
    /// Ends it; who reads it finds its end.
    fn shut_down(&self) {
        // It fails if the peer has closed it.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn open(&self) -> io::Result<Connection<Box<dyn Read>, Box<dyn Write>>> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(Connection {
                    caller: Caller::of_unix(stream),
                    reader: BufReader::new(Box::new(stream.try_clone()?)),
                    writer: Box::new(stream.try_clone()?),
                    trust: Box::new(|| Ok(())),
                })
            }
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(AUTHENTICATE_TIMEOUT))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                let trusted = stream.try_clone()?;
                let reads = Rc::new(Cell::new(Some(AUTHENTICATE_READS)));
                let reader = BoundedReader { inner: stream.try_clone()?, left: Rc::clone(&reads) };
                Ok(Connection {
                    caller: stream.peer_addr().map_or(Caller::Unknown, Caller::Address),
                    reader: BufReader::new(Box::new(reader)),
                    writer: Box::new(stream.try_clone()?),
                    trust: Box::new(move || {
                        reads.set(None);
                        trusted.set_read_timeout(Some(SILENCE_MAX))
                    }),
                })
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
            Ok(stream) => Arc::new(wrap(stream)),
            Err(error) => {
                log::warn!("the control socket does not accept: {error}");
                // The causes (no file descriptors left) persist for a while.
                thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
        };
        if !shared.places.enter(&stream) {
            log::warn!("a control connection was refused: the limit is {CONNECTIONS_MAX}");
            continue;
        }
        let (served, own) = (Arc::clone(shared), Arc::clone(&stream));
        let spawned = spawn("weft-control-c", move || {
            let token = served.token.as_ref().filter(|_| matches!(*own, Stream::Tcp(_)));
            if let Ok(mut connection) = own.open()
                && connection.admit(token)
            {
                token.iter().for_each(|_| served.places.heard(&own));
                connection.serve(&served, || served.places.heard(&own));
            }
            served.places.leave(&own);
        });
        if let Err(error) = spawned {
            shared.places.leave(&stream);
            log::warn!("a control connection was refused: {error}");
        }
    }
}

impl<R: Read, W: Write> Connection<R, W> {
    /// Whether the caller may call: it has shown the token, if it must.
    fn admit(&mut self, token: Option<&Token>) -> bool {
        if let Some(token) = token {
            let request = read_value::<Request>(&mut self.reader, REQUEST_BYTES_MAX);
            let request = match request {
                Ok(request) => request,
                Err(ReadError::Closed | ReadError::Io(_)) => return false,
                // What it is makes no difference to someone without the token.
                Err(ReadError::Invalid(_) | ReadError::TooLong) => Request::default(),
            };
            let shown = (request.method == Authenticate::NAME)
                .then(|| serde_json::from_value::<AuthenticateParams>(request.params).ok())
                .flatten();
            let is_known = shown.is_some_and(|shown| shown.token == *token);
            let outcome = match is_known {
                true => Ok(Value::Bool(true)),
                false => Err(ErrorObject::new(
                    Code(-13),
                    "Permission denied: show the token of the target's --control-token-file \
                     first, as --control-token-file does",
                )),
            };
            if !is_known {
                log::warn!("control: {} is refused: it has not shown the token", self.caller);
            }
            let response = to_value(&Response::new(request.id.unwrap_or(Id::Null), outcome));
            if response.is_none_or(|response| self.send(&response).is_err()) || !is_known {
                return false;
            }
        }
        log::info!("control: {} is connected", self.caller);
        (self.trust)().is_ok()
    }

    /// Serves until the peer closes the connection, or until the start of its next request is
    /// unknown. Each request that has come is told.
    fn serve(&mut self, shared: &Shared, heard: impl Fn()) {
        loop {
            let request = read_value(&mut self.reader, REQUEST_BYTES_MAX);
            heard();
            let _call = Call::begin(&shared.calls);
            let is_broken = request.is_err();
            let response = match request {
                Ok(request) => respond((&shared.methods, &self.caller), request),
                Err(ReadError::Invalid(error)) => refuse(Code::PARSE_ERROR, error),
                Err(ReadError::TooLong) => refuse(Code::INVALID_REQUEST, "the request is too long"),
                Err(ReadError::Closed | ReadError::Io(_)) => return,
            };
            let Some(response) = response else { continue };
            if self.send(&response).is_err() || is_broken {
                return;
            }
        }
    }

    fn send(&mut self, response: &Value) -> io::Result<()> {
        // One write: separate writes are sent as separate segments.
        self.writer.write_all(format!("{response}\n").as_bytes())?;
        self.writer.flush()
    }
}

/// A call, counted until it is answered.
struct Call<'a>(&'a AtomicUsize);

impl<'a> Call<'a> {
    fn begin(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::AcqRel);
        Self(calls)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The methods, and who calls them.
type CallContext<'a> = (&'a Methods, &'a Caller);

/// The response to one message; `None` to a notification.
fn respond(called: CallContext<'_>, message: Value) -> Option<Value> {
    match message {
        Value::Array(batch) if batch.is_empty() => {
            refuse(Code::INVALID_REQUEST, "the batch is empty")
        }
        Value::Array(batch) if batch.len() > BATCH_MAX => {
            refuse(Code::INVALID_REQUEST, "the batch is too long")
        }
        Value::Array(batch) => {
            let responses: Vec<Value> =
                batch.into_iter().filter_map(|request| respond_to_one(called, request)).collect();
            // An empty array is not a response.
            if responses.is_empty() { None } else { Some(Value::Array(responses)) }
        }
        request => respond_to_one(called, request),
    }
}

fn respond_to_one((methods, caller): CallContext<'_>, request: Value) -> Option<Value> {
    let request: Request = match serde_json::from_value(request) {
        Ok(request) => request,
        Err(error) => return refuse(Code::INVALID_REQUEST, error),
    };
    let outcome = match request.jsonrpc.as_deref() {
        None | Some(VERSION) => methods.call(caller, &request.method, request.params),
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
