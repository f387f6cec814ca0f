//! The client.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::address::Address;
use crate::codec::{ReadError, read_value};
use crate::limits::{RESPONSE_BYTES_MAX, SEND_TIMEOUT};
use crate::message::{ErrorObject, Id, Request, Response, VERSION};
use crate::method::Method;
use crate::token::{Authenticate, AuthenticateParams, Token};

/// A connection to a server.
pub struct Client {
    link: Link,
    broken: bool,
}

/// How a server is reached.
enum Link {
    Stream(Stream),
    /// By somebody who passes calls on.
    Relay(Relay),
}

/// A connection of its own.
struct Stream {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    next: u64,
}

/// Passes a call on.
type Relay = Box<dyn FnMut(&str, Value) -> Result<Value, CallError> + Send>;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("broken", &self.broken).finish_non_exhaustive()
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum CallError {
    /// The connection failed, or the reply did not come in time.
    Io(io::Error),
    /// The reply is not a response to the request.
    Peer(String),
    /// The server returned an error.
    Error(ErrorObject),
    /// Whoever passes calls on did not: a sentence.
    Relay(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the control connection failed: {error}"),
            Self::Peer(what) => write!(f, "the reply on the control connection {what}"),
            Self::Error(error) => error.fmt(f),
            Self::Relay(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for CallError {}

impl Client {
    /// Connects. `timeout` limits connecting and each reply. Over TCP the token, if there is one,
    /// is shown first; what a Unix socket's caller may is decided by the mode of its file.
    ///
    /// # Errors
    /// The connection is refused or times out, or the server has another token.
    pub fn connect(
        address: &Address,
        token: Option<&Token>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let mut client = Self::open(address, timeout)?;
        if let (Address::Tcp(_), Some(token)) = (address, token) {
            let params = AuthenticateParams { token: token.clone() };
            client.call::<Authenticate>(&params).map_err(io::Error::other)?;
        }
        Ok(client)
    }

    fn open(address: &Address, timeout: Duration) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(Self::over(Box::new(stream.try_clone()?), Box::new(stream)))
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nodelay(true)?;
                // A request of a process that has ended is not executed later.
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(Self::over(Box::new(stream.try_clone()?), Box::new(stream)))
            }
        }
    }

    fn over(reader: Box<dyn Read + Send>, writer: Box<dyn Write + Send>) -> Self {
        let reader = BufReader::new(reader);
        Self { link: Link::Stream(Stream { reader, writer, next: 1 }), broken: false }
    }

    /// A client of a server that only `relay` reaches.
    #[must_use]
    pub fn relayed(
        relay: impl FnMut(&str, Value) -> Result<Value, CallError> + Send + 'static,
    ) -> Self {
        Self { link: Link::Relay(Box::new(relay)), broken: false }
    }

    /// Calls a method.
    ///
    /// # Errors
    /// There is no reply, or it is an error. After any error but [`CallError::Error`] the
    /// connection cannot be used again: a late reply would be taken for the next one.
    pub fn call<M: Method>(&mut self, params: &M::Params) -> Result<M::Answer, CallError> {
        let params =
            serde_json::to_value(params).map_err(|error| CallError::Io(io::Error::other(error)))?;
        let answer = self.call_named(M::NAME, params)?;
        serde_json::from_value(answer)
            .map_err(|error| CallError::Peer(format!("is malformed: {error}")))
    }

    /// Calls a method by its name.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_named(&mut self, name: &str, params: Value) -> Result<Value, CallError> {
        if self.broken {
            return Err(CallError::Io(io::ErrorKind::NotConnected.into()));
        }
        let stream = match &mut self.link {
            Link::Stream(stream) => stream,
            // It knows itself whether it still reaches anybody.
            Link::Relay(relay) => return relay(name, params),
        };
        self.broken = true;
        let outcome = stream.exchange(name, params)?;
        self.broken = false;
        outcome.map_err(CallError::Error)
    }
}

impl Stream {
    fn exchange(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, ErrorObject>, CallError> {
        let id = Id::Number(self.next.into());
        self.next += 1;
        let request = Request {
            jsonrpc: Some(VERSION.to_owned()),
            method: method.to_owned(),
            params,
            id: Some(id.clone()),
        };
        let mut text =
            serde_json::to_vec(&request).map_err(|error| CallError::Io(io::Error::other(error)))?;
        text.push(b'\n');
        self.writer.write_all(&text).and_then(|()| self.writer.flush()).map_err(CallError::Io)?;
        let response: Response =
            read_value(&mut self.reader, RESPONSE_BYTES_MAX).map_err(|error| match error {
                ReadError::Io(error) => CallError::Io(error),
                ReadError::Closed => CallError::Io(io::ErrorKind::UnexpectedEof.into()),
                ReadError::TooLong => CallError::Peer("is too long".to_owned()),
                ReadError::Invalid(error) if error.is_eof() => {
                    CallError::Io(io::ErrorKind::UnexpectedEof.into())
                }
                ReadError::Invalid(error) => CallError::Peer(format!(
                    "is not a JSON-RPC response: is this the --control of a weft target? \
                         ({error})"
                )),
            })?;
        if response.id != id {
            return Err(CallError::Peer("belongs to another request".to_owned()));
        }
        match (response.result, response.error) {
            (_, Some(error)) => Ok(Err(error)),
            (result, None) => Ok(Ok(result.unwrap_or(Value::Null))),
        }
    }
}
