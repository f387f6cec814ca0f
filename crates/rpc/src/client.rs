//! The calling end.

use std::{
    fmt,
    io::{self, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::Value;

use crate::{
    address::Address,
    codec::{ReadError, read_value},
    limits::{RESPONSE_BYTES_MAX, SEND_TIMEOUT},
    message::{Fault, Id, Request, Response, VERSION},
    method::Method,
};

/// A connection to a server.
pub struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    next: u64,
    broken: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The connection failed, or nothing came in time.
    Io(io::Error),
    /// What came was no answer to what was asked.
    Peer(String),
    /// The server says why.
    Fault(Fault),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the control connection failed: {error}"),
            Self::Peer(what) => write!(f, "the answer on the control connection {what}"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

impl Client {
    /// Connects. `timeout` is for connecting and for each answer.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: &Address, timeout: Duration) -> io::Result<Self> {
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
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(Self::over(Box::new(stream.try_clone()?), Box::new(stream)))
            }
        }
    }

    fn over(reader: Box<dyn Read + Send>, writer: Box<dyn Write + Send>) -> Self {
        let reader = BufReader::new(reader);
        Self { reader, writer, next: 1, broken: false }
    }

    /// Calls a method.
    ///
    /// # Errors
    /// There is no answer, or it is an error. After anything but a [`CallError::Fault`] the
    /// connection is of no more use: a late answer would be taken for the next one's.
    pub fn call<M: Method>(&mut self, params: &M::Params) -> Result<M::Answer, CallError> {
        if self.broken {
            return Err(CallError::Io(io::ErrorKind::NotConnected.into()));
        }
        let params =
            serde_json::to_value(params).map_err(|error| CallError::Io(io::Error::other(error)))?;
        self.broken = true;
        let outcome = self.exchange(M::NAME, params)?;
        self.broken = false;
        let answer = outcome.map_err(CallError::Fault)?;
        serde_json::from_value(answer)
            .map_err(|error| CallError::Peer(format!("is not of its form: {error}")))
    }

    fn exchange(&mut self, method: &str, params: Value) -> Result<Result<Value, Fault>, CallError> {
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
                ReadError::Invalid(error) => {
                    CallError::Peer(format!("is no JSON-RPC response: {error}"))
                }
            })?;
        if response.id != id {
            return Err(CallError::Peer("is to something else".to_owned()));
        }
        match (response.result, response.error) {
            (_, Some(fault)) => Ok(Err(fault)),
            (result, None) => Ok(Ok(result.unwrap_or(Value::Null))),
        }
    }
}
