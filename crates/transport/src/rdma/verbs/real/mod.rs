//! The devices of this machine.
//!
//! The types have no values yet: nothing can be opened, and so nothing can be done with it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weft_reactor::Pool;

use super::{
    Access, Attributes, ManagerEvent, Parameters, PostError, QueuePairLimits, QueuePairOptions,
    ReceiveWork, SendWork, WorkCompletion,
};

#[derive(Debug)]
pub(crate) enum Manager {}

impl Manager {
    pub(super) fn open() -> io::Result<Self> {
        let what = "this machine's RDMA devices are not used yet";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn listen(&mut self, _: SocketAddr, _: u32) -> io::Result<Listener> {
        match *self {}
    }

    pub(super) fn resolve(
        &mut self,
        _: SocketAddr,
        _: Option<SocketAddr>,
        _: Duration,
    ) -> io::Result<Endpoint> {
        match *self {}
    }

    pub(super) fn adopt(&mut self, _: Incoming) -> io::Result<Endpoint> {
        match *self {}
    }

    pub(super) fn poll(&mut self) -> io::Result<Option<ManagerEvent>> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Listener {}

impl Listener {
    pub(super) fn key(&self) -> u64 {
        match *self {}
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Incoming {}

impl Incoming {
    pub(super) fn reject(self, _: &[u8]) {
        match self {}
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        match *self {}
    }

    pub(super) fn peer_address(&self) -> io::Result<SocketAddr> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Endpoint {}

impl Endpoint {
    pub(super) fn key(&self) -> u64 {
        match *self {}
    }

    pub(super) fn device_key(&self) -> Option<u64> {
        match *self {}
    }

    pub(super) fn open_device(&self) -> io::Result<Device> {
        match *self {}
    }

    pub(super) fn create_queue_pair(
        &mut self,
        _: &Device,
        _: &CompletionQueue,
        _: QueuePairOptions,
    ) -> io::Result<QueuePairLimits> {
        match *self {}
    }

    pub(super) fn connect(&mut self, _: &Parameters) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn accept(&mut self, _: &Parameters) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn reject(&mut self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn disconnect(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn post_send(&mut self, _: &[SendWork]) -> Result<(), PostError> {
        match *self {}
    }

    pub(super) fn post_receive(&mut self, _: &[ReceiveWork]) -> Result<(), PostError> {
        match *self {}
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Device {}

impl Device {
    pub(super) fn attributes(&self) -> &Attributes {
        match *self {}
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    pub(super) fn take_events(&mut self) {
        match *self {}
    }

    pub(super) fn register(&self, _: &Pool, _: usize, _: usize, _: Access) -> io::Result<Region> {
        match *self {}
    }

    pub(super) fn create_completion_queue(&self, _: u32) -> io::Result<CompletionQueue> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Region {}

impl Region {
    pub(super) fn local_key(&self) -> u32 {
        match *self {}
    }

    pub(super) fn remote_key(&self) -> u32 {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum CompletionQueue {}

impl CompletionQueue {
    pub(super) fn poll(&mut self, _: usize, _: &mut Vec<WorkCompletion>) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn arm(&mut self) -> io::Result<()> {
        match *self {}
    }
}
