//! A namespace for blocking users: reads and writes bytes at offsets that are multiples of blocks.

mod copy;
mod reservation;

use std::sync::{Arc, mpsc};

use weft_backend::{DeviceFactory, Geometry};
use weft_nvmf::host::NamespaceInfo;

use crate::device::NamespaceFactory;
use crate::error::Error;
use crate::limits;
use crate::shared::Shared;
use crate::worker::{Call, Calls, Io, IoKind, IoResult};
pub use copy::CopySource;

/// A namespace of a connected controller. All calls block until the controller has answered;
/// during an outage they wait or fail as [`crate::Options`] say.
///
/// Offsets and lengths are in bytes and have to be whole blocks; anything else is
/// [`Error::Unaligned`], which says the block size. A call that is longer than one command may be
/// is cut into several, so only what fits in one is atomic.
#[derive(Debug, Clone)]
pub struct Namespace {
    shared: Arc<Shared>,
    calls: Calls,
    factory: NamespaceFactory,
}

impl Namespace {
    pub(crate) const fn new(shared: Arc<Shared>, calls: Calls, factory: NamespaceFactory) -> Self {
        Self { shared, calls, factory }
    }

    /// What was known of the namespace when it was asked for.
    #[must_use]
    pub const fn info(&self) -> &Arc<NamespaceInfo> {
        self.factory.namespace()
    }

    /// Namespace Identifier.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.info().nsid
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.info().block_bytes
    }

    /// What the namespace is like now: its size follows a resize.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.factory.geometry()
    }

    /// Size in bytes, now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.geometry().bytes()
    }

    /// The namespace as a block device, to be opened on the caller's own reactors.
    #[must_use]
    pub const fn factory(&self) -> &NamespaceFactory {
        &self.factory
    }

    /// Reads at `offset` into `into`.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.check(offset, into.len() as u64)?;
        let mut at = offset;
        for piece in into.chunks_mut(self.piece_bytes()) {
            let (slba, nlb) = self.lba_range(at, piece.len() as u64);
            let data = self.call(IoKind::Read, slba, nlb, Vec::new())?;
            match data.get(..piece.len()) {
                Some(data) => piece.copy_from_slice(data),
                None => return Err(Error::Stopped),
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes `from` at `offset`. Without a flush a loss of power may undo it if the controller
    /// has a volatile write cache.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.write_pieces(offset, from, false)
    }

    /// Writes `from` at `offset`, durably (FUA).
    pub fn write_durable(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.write_pieces(offset, from, true)
    }

    /// Makes all writes durable that were completed before.
    pub fn flush(&self) -> Result<(), Error> {
        self.call(IoKind::Flush, 0, 0, Vec::new()).map(drop)
    }

    /// Makes the range read as zeroes; its space may be given back where `deallocate` says so.
    pub fn write_zeroes(&self, offset: u64, length: u64, deallocate: bool) -> Result<(), Error> {
        self.check(offset, length)?;
        self.each(offset, length, IoKind::WriteZeroes { deallocate })
    }

    /// Deallocates these ranges (offset and length), where the controller can.
    pub fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let mut lba_ranges = Vec::with_capacity(ranges.len());
        for (offset, length) in ranges {
            self.check(*offset, *length)?;
            let size = u64::from(self.block_bytes());
            let (mut slba, mut rest) = (offset / size, length / size);
            while rest > 0 {
                let now = u32::try_from(rest).unwrap_or(u32::MAX);
                lba_ranges.push((slba, now));
                slba += u64::from(now);
                rest -= u64::from(now);
            }
        }
        if lba_ranges.is_empty() {
            return Ok(());
        }
        let kind = IoKind::Deallocate { ranges: lba_ranges.into_boxed_slice() };
        self.call(kind, 0, 0, Vec::new()).map(drop)
    }

    /// Whether the blocks at `offset` hold `expected`; if not, the error's failure is
    /// [`weft_backend::Failure::Mismatch`].
    pub fn compare(&self, offset: u64, expected: &[u8]) -> Result<(), Error> {
        self.check(offset, expected.len() as u64)?;
        let mut at = offset;
        for piece in expected.chunks(self.piece_bytes()) {
            let (slba, nlb) = self.lba_range(at, piece.len() as u64);
            self.call(IoKind::Compare, slba, nlb, piece.to_vec())?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes `write` at `offset` if the blocks there hold `expected`, atomically for all hosts.
    /// Both are of the same length, and no longer than the controller's atomic unit
    /// ([`Geometry::compare_and_write_blocks`]).
    pub fn compare_and_write(
        &self,
        offset: u64,
        expected: &[u8],
        write: &[u8],
    ) -> Result<(), Error> {
        if expected.len() != write.len() {
            return Err(Error::Invalid(format!(
                "{} bytes to compare with and {} bytes to write are not of one length",
                expected.len(),
                write.len()
            )));
        }
        self.check(offset, write.len() as u64)?;
        let most = self.geometry().compare_and_write_blocks;
        let (slba, nlb) = self.lba_range(offset, write.len() as u64);
        if nlb > most {
            return Err(Error::Invalid(format!(
                "the controller compares and writes at most {most} blocks in one step, \
                 not {nlb}"
            )));
        }
        let kind = IoKind::CompareAndWrite { expected: expected.to_vec() };
        self.call(kind, slba, nlb, write.to_vec()).map(drop)
    }

    /// Has the controller verify that the range can be read.
    pub fn verify(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.check(offset, length)?;
        self.each(offset, length, IoKind::Verify)
    }

    fn write_pieces(&self, offset: u64, from: &[u8], durable: bool) -> Result<(), Error> {
        self.check(offset, from.len() as u64)?;
        let mut at = offset;
        for piece in from.chunks(self.piece_bytes()) {
            let (slba, nlb) = self.lba_range(at, piece.len() as u64);
            self.call(IoKind::Write { durable }, slba, nlb, piece.to_vec())?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// A call without data for a range of any length.
    fn each(&self, offset: u64, length: u64, kind: IoKind) -> Result<(), Error> {
        let size = u64::from(self.block_bytes());
        let (mut slba, mut rest) = (offset / size, length / size);
        while rest > 0 {
            let now = u32::try_from(rest).unwrap_or(u32::MAX);
            self.call(kind.clone(), slba, now, Vec::new())?;
            slba += u64::from(now);
            rest -= u64::from(now);
        }
        Ok(())
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), Error> {
        let block_bytes = self.block_bytes();
        let size = u64::from(block_bytes);
        if offset.is_multiple_of(size) && length.is_multiple_of(size) {
            return Ok(());
        }
        Err(Error::Unaligned { offset, length, block_bytes })
    }

    /// The blocks of a checked range that is no longer than a piece.
    fn lba_range(&self, offset: u64, length: u64) -> (u64, u32) {
        let size = u64::from(self.block_bytes());
        (offset / size, u32::try_from(length / size).unwrap_or(u32::MAX))
    }

    fn piece_bytes(&self) -> usize {
        let size = self.block_bytes() as usize;
        (limits::BLOCKING_PIECE_BYTES / size).max(1) * size
    }

    fn call(&self, kind: IoKind, slba: u64, nlb: u32, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        let doing = kind.words();
        let nsid = self.nsid();
        self.wait_for(kind, slba, nlb, data)?.map_err(|failure| match failure {
            Ok((failure, _)) => Error::Request { doing, nsid, failure },
            Err(words) => Error::Invalid(words),
        })
    }

    fn wait_for(
        &self,
        kind: IoKind,
        slba: u64,
        nlb: u32,
        data: Vec<u8>,
    ) -> Result<IoResult, Error> {
        let (reply, answer) = mpsc::channel();
        let namespace = Arc::clone(self.info());
        let io = Io { namespace, kind, slba, nlb, data, reply };
        self.calls.post(Call::Io(io))?;
        answer.recv().map_err(|_| Error::Stopped)
    }

    /// The controller that the namespace belongs to, as its transport id.
    #[must_use]
    pub fn address(&self) -> &weft_nvmf::host::TransportId {
        &self.shared.options.address
    }
}
