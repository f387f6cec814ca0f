//! A peer that sends raw NVMe/TCP PDUs, valid or not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use weft_nvme::tcp::{DigestOptions, InitializeConnectionRequest, InitializeConnectionResponse};
use weft_nvme::{Command, Completion, FabricsType, Wire};
use weft_nvmf::tcp::encode::Encoder;

use crate::rig::Rig;

/// A socket of its own, outside the reactor.
pub struct RawPeer(pub TcpStream);

impl RawPeer {
    pub fn new(rig: &Rig) -> Self {
        let stream = TcpStream::connect(rig.target.address).expect("connect");
        stream.set_nonblocking(true).expect("non-blocking");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    pub fn shaken_hands(rig: &mut Rig, digests: DigestOptions) -> Self {
        let mut peer = Self::new(rig);
        let request = InitializeConnectionRequest::new(0, digests, 0);
        peer.send(request.bytes());
        let response = peer.receive(rig, 128);
        let response = InitializeConnectionResponse::read(&response).expect("ICResp");
        assert_eq!(response.digests, digests);
        peer
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("room in the socket");
    }

    /// Reads `length` bytes, or up to the end of the stream.
    pub fn receive(&mut self, rig: &mut Rig, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        rig.run("a response to the raw peer", |_| {
            match self.0.read(&mut bytes[done..]) {
                Ok(0) => return true,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Who does not close in time is disconnected by a reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{error}"),
            }
            done == length
        });
        bytes.truncate(done);
        bytes
    }

    /// Connects, up to an accepted Connect.
    pub fn connected(rig: &mut Rig, digests: DigestOptions) -> (Self, Encoder) {
        let mut peer = Self::shaken_hands(rig, digests);
        let encoder = Encoder::new(digests.header(), digests.data(), 4);
        let mut bytes = Vec::new();
        let connect = Command::fabrics(FabricsType::CONNECT).with_command_id(9);
        encoder.put_command(&connect, 0, &mut bytes);
        peer.send(&bytes);
        assert!(peer.completion(rig, digests).status().is_success());
        (peer, encoder)
    }

    /// The next PDU, which is a CapsuleResp.
    pub fn completion(&mut self, rig: &mut Rig, digests: DigestOptions) -> Completion {
        let response = self.receive(rig, if digests.header() { 28 } else { 24 });
        assert_eq!(response[0], 5, "CapsuleResp");
        Completion::read(&response[8..]).expect("a completion")
    }

    /// As a controller: the next command, without in-capsule data.
    pub fn command(&mut self, rig: &mut Rig) -> Command {
        let capsule = self.receive(rig, 72);
        assert_eq!((capsule[0], capsule[4]), (4, 72), "CapsuleCmd");
        Command::read(&capsule[8..]).expect("a command")
    }

    /// As a controller: CapsuleResp.
    pub fn respond(&mut self, completion: &Completion) {
        let mut bytes = Vec::new();
        Encoder::new(false, false, 4).put_response(completion, &mut bytes);
        self.send(&bytes);
    }
}
