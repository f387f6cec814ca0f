//! The host's end, as a device that is driven like any other.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

use weft_backend::{
    BlockDevice, Capabilities, DeviceFactory, Direction, Failure, Geometry, OpenError, Operation,
    Request, RequestCompletion, ResizeError,
};
use weft_reactor::{
    Buffer, Message, Operation as Submitted, Outcome, Owner, Reactor, ReactorCompletion, SocketId,
    Token,
};

use super::{COMMAND_BYTES, DATA_HEADER_BYTES};

/// Tags of this end's operations.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;

/// A device without content at the other end of a connection; each handle has a connection.
#[derive(Debug)]
pub struct NetworkFactory {
    address: SocketAddr,
    geometry: Geometry,
}

impl NetworkFactory {
    pub(super) fn new(address: SocketAddr, bytes: u64, block_bytes: u32) -> Self {
        let capabilities = Capabilities { read_only: true, ..Capabilities::default() };
        let geometry = Geometry { capabilities, ..Geometry::new(bytes, block_bytes) };
        Self { address, geometry }
    }
}

impl DeviceFactory for NetworkFactory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let system = |doing| move |error| OpenError::System { doing, path: None, error };
        let stream = TcpStream::connect(self.address).map_err(system("connect"))?;
        let socket = reactor.add_stream(stream.into()).map_err(system("drive a connection"))?;
        reactor.submit(Token::new(owner, RECEIVE), Submitted::Receive { socket });
        Ok(Box::new(NetworkDevice {
            geometry: self.geometry,
            socket,
            owner,
            waiting: VecDeque::new(),
            received: 0,
            unsent: Message::new(),
            spare: Some(Message::new()),
            done: VecDeque::new(),
            ended: None,
        }))
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn survives_restart(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        format!("tcp {}", self.address)
    }

    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}

#[derive(Debug)]
struct NetworkDevice {
    geometry: Geometry,
    socket: SocketId,
    owner: Owner,
    /// Requests without a response, in the order in which responses come.
    waiting: VecDeque<(u64, Buffer)>,
    /// How much of the first one's response has come.
    received: usize,
    unsent: Message,
    /// The memory of the message before it, unless that is being sent.
    spare: Option<Message>,
    done: VecDeque<RequestCompletion>,
    /// Why nothing is sent any more.
    ended: Option<Failure>,
}

impl NetworkDevice {
    /// Takes responses out of what came.
    fn take(&mut self, mut bytes: &[u8]) {
        while let Some((_, into)) = self.waiting.front_mut() {
            let header = DATA_HEADER_BYTES.saturating_sub(self.received).min(bytes.len());
            let (_, data) = bytes.split_at(header);
            self.received += header;
            let at = self.received.saturating_sub(DATA_HEADER_BYTES);
            let length = data.len().min(into.len() - at);
            if let Some(place) = into.bytes_mut().get_mut(at..at + length) {
                place.copy_from_slice(&data[..length]);
            }
            self.received += length;
            bytes = &data[length..];
            if self.received < DATA_HEADER_BYTES + into.len() {
                return;
            }
            self.received = 0;
            if let Some((tag, buffer)) = self.waiting.pop_front() {
                self.done.push_back(RequestCompletion {
                    tag,
                    result: Ok(()),
                    buffer: Some(buffer),
                });
            }
        }
    }

    fn end(&mut self, reactor: &mut Reactor, failure: Failure) {
        if self.ended.replace(failure).is_none() {
            reactor.close(self.socket);
        }
        let failed = self.waiting.drain(..).map(|(tag, buffer)| RequestCompletion {
            tag,
            result: Err(failure),
            buffer: Some(buffer),
        });
        self.done.extend(failed);
    }
}

impl BlockDevice for NetworkDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, _: &mut Reactor, request: Request) {
        let checked = match self.ended {
            Some(failure) => Err(failure),
            None => request.operation.check(&self.geometry),
        };
        let (result, operation) = match (checked, request.operation) {
            (Ok(()), Operation::Read { nlb, into, .. }) => {
                let bytes = u32::try_from(self.geometry.bytes_of(nlb)).unwrap_or(u32::MAX);
                let head = bytes.to_le_bytes();
                self.unsent.extend(COMMAND_BYTES)[..head.len()].copy_from_slice(&head);
                return self.waiting.push_back((request.tag, into));
            }
            (checked, operation) => (checked.and(Err(Failure::Unsupported)), operation),
        };
        let buffer = operation.into_buffer();
        self.done.push_back(RequestCompletion { tag: request.tag, result, buffer });
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: ReactorCompletion) {
        match completion.outcome {
            Outcome::Received { buffer, len } if len > 0 => {
                self.take(buffer.get(..len).unwrap_or_default());
                drop(buffer);
                let receive = Submitted::Receive { socket: self.socket };
                reactor.submit(Token::new(self.owner, RECEIVE), receive);
            }
            Outcome::Sent { mut message } => {
                message.clear();
                self.spare = Some(message);
            }
            Outcome::Failed { error, .. } => {
                self.end(reactor, Failure::from_io(&error, Direction::Read));
            }
            Outcome::Received { .. } => self.end(reactor, Failure::PathLost),
            _ => {}
        }
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        if self.ended.is_some() || self.unsent.is_empty() {
            return;
        }
        if let Some(spare) = self.spare.take() {
            let message = std::mem::replace(&mut self.unsent, spare);
            let send = Submitted::Send { socket: self.socket, message };
            reactor.submit(Token::new(self.owner, SEND), send);
        }
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front()
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        if self.ended.is_none() {
            self.end(reactor, Failure::Gone);
        }
    }
}
