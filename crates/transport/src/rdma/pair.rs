//! A queue pair and the record of the work posted on it.
//!
//! Work requests are queued and posted as one chain at the end of a turn, receives first. Of a
//! chain only the last request, and those with a mark, are signalled: the send queue completes its
//! work in order, so one completion ends all earlier requests. READs are the exception: each is
//! signalled, because soft-iWARP completes later work before them.
//!
//! A buffer that a work request uses is kept until that has ended, or until the queue pair is
//! destroyed, after which the device does not access it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use weft_reactor::{Buffer, Reactor};

use super::arena::{Arena, Slot};
use super::engine::{Engine, Lease, ReactorDevice, number, short};
use super::verbs::{
    Access, Endpoint, Parameters, Piece, Pieces, PostError, QueuePairOptions, ReceiveWork,
    SOFT_IWARP_SHORT_BYTES, SendOperation, SendWork, WindowRange, WorkCompletion, WorkStatus,
};
use crate::CloseReason;
use crate::subscriptions::Subscription;

/// Marks work request identifiers of the receive queue; the other bits are the receive's index.
const RECEIVE: u32 = 1 << 31;

/// The sizes of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Work requests of the send queue; the device may have fewer.
    pub(crate) sends: u32,
    /// Receives.
    pub(crate) receives: u32,
    /// Bytes of each outgoing message without its data.
    pub(crate) message_bytes: usize,
    /// Bytes of each incoming message without its data.
    pub(crate) received_bytes: usize,
    /// Memory windows: 0, or one for each command.
    pub(crate) windows: u16,
    /// Give the peer access to all registered memory.
    pub(crate) wide: bool,
    /// The peer's rights to leased memory, if memory is leased; it has no others then.
    pub(crate) leased: Option<Access>,
}

/// A send queue work request that has not ended.
#[derive(Debug)]
struct PostedRequest {
    sequence: u32,
    what: Option<u16>,
    kept: Option<Slot>,
    is_read: bool,
    ended: bool,
}

/// The end of a work request.
#[derive(Debug)]
pub(crate) enum PairEvent {
    /// A message was received.
    Received {
        /// The receive's index.
        index: u32,
        /// Its length.
        bytes: u32,
        /// The key that the peer has invalidated with it.
        invalidated: Option<u32>,
    },
    /// The work request with this mark has ended.
    Sent {
        /// The mark.
        what: u16,
    },
}

#[derive(Debug)]
pub(crate) struct RdmaQueuePair {
    // Dropped first: then the device does not use the memory below any more.
    endpoint: Option<Endpoint>,
    posted: VecDeque<PostedRequest>,
    /// Bytes of data that it uses.
    posted_bytes: usize,
    /// Outgoing messages, one slot for each entry of the send queue.
    messages: Slot,
    /// Incoming messages.
    received: Slot,
    /// The connection's own memory, if no other is open to the peer.
    arena: Option<Arena>,
    sizes: Sizes,
    inline_bytes: usize,
    soft_iwarp: bool,
    sequence: u32,
    chain: Vec<SendWork>,
    receives: Vec<ReceiveWork>,
    lease: Lease,
    hold: Rc<RefCell<ReactorDevice>>,
    subscription: Subscription,
    engine: Engine,
}

impl RdmaQueuePair {
    /// Creates the queue pair of an endpoint.
    pub(crate) fn new(
        reactor: &mut Reactor,
        engine: Engine,
        subscription: Subscription,
        mut endpoint: Endpoint,
        mut sizes: Sizes,
    ) -> io::Result<Self> {
        let hold = engine.hold(&endpoint, reactor, sizes.wide)?;
        let most = hold.borrow().attributes().queue_depth_max;
        sizes.sends = sizes.sends.min(most);
        let depth = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let bytes = |each: usize, count: u32| each.saturating_mul(depth(count));
        let pool = reactor.pool();
        let room = |bytes| pool.take_reserved(bytes).ok_or(io::ErrorKind::OutOfMemory);
        let mut messages = room(bytes(sizes.message_bytes, sizes.sends))?;
        let mut received = room(bytes(sizes.received_bytes, sizes.receives))?;
        messages.bytes_mut().fill(0);
        received.bytes_mut().fill(0);
        let mut held = hold.borrow_mut();
        let arena = match sizes.leased {
            Some(access) => Some(Arena::new(held.create_domain()?, access, pool.clone())),
            None => None,
        };
        let name = |buffer| match &arena {
            Some(arena) => arena.name(buffer),
            None => Ok(Slot::of_pool(buffer)),
        };
        let (messages, received) = (name(messages)?, name(received)?);
        let soft_iwarp = held.attributes().soft_iwarp;
        let lease = held.lease(sizes.sends.saturating_add(sizes.receives).saturating_add(1))?;
        let options = QueuePairOptions {
            send_depth: sizes.sends,
            receive_depth: sizes.receives,
            inline_bytes: u32::try_from(sizes.message_bytes).unwrap_or(0),
            windows: sizes.windows,
        };
        let made = match held.parts(lease) {
            Some((shared, queue)) => {
                let domain = arena.as_ref().map_or(shared, Arena::domain);
                endpoint.create_queue_pair(domain, queue, options)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let limits = made.inspect_err(|_| held.release(lease))?;
        held.add_pair(limits.number, lease, subscription);
        drop(held);
        Ok(Self {
            endpoint: Some(endpoint),
            posted: VecDeque::with_capacity(depth(sizes.sends)),
            posted_bytes: 0,
            messages,
            received,
            arena,
            sizes,
            inline_bytes: usize::try_from(limits.inline_bytes).unwrap_or(0),
            soft_iwarp,
            sequence: 0,
            chain: Vec::with_capacity(depth(sizes.sends)),
            receives: Vec::with_capacity(depth(sizes.receives)),
            lease,
            hold,
            subscription,
            engine,
        })
    }

    pub(crate) fn hold(&self) -> &RefCell<ReactorDevice> {
        &self.hold
    }

    /// Free entries of the send queue.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.sizes.sends).unwrap_or(usize::MAX).saturating_sub(self.posted.len())
    }

    /// Whether nothing is posted to the send queue.
    pub(crate) fn is_quiet(&self) -> bool {
        self.posted.is_empty()
    }

    /// Bytes of data that posted work uses.
    pub(crate) const fn posted_bytes(&self) -> usize {
        self.posted_bytes
    }

    /// Whether so much data more may be posted, if all connections that are not express are to post
    /// so much at a time beside those that are. Each may post that of one command.
    pub(crate) fn may_post(&self, bytes: usize, at_a_time: usize) -> bool {
        self.posted_bytes == 0 || self.engine.may_post(bytes, at_a_time)
    }

    /// Posted work uses so many bytes of data more, or less.
    fn note_posted(&mut self, more: usize, less: usize) {
        if more != less {
            self.posted_bytes = self.posted_bytes + more - less;
            self.engine.note_posted(more, less);
        }
    }

    /// The fixed part of a received message.
    pub(crate) fn received(&self, index: u32) -> &[u8] {
        let start = usize::try_from(index).unwrap_or(0) * self.sizes.received_bytes;
        self.received.buffer().get(start..start + self.sizes.received_bytes).unwrap_or_default()
    }

    /// The connection's own memory, if any.
    pub(crate) fn arena(&mut self) -> Option<&mut Arena> {
        self.arena.as_mut()
    }

    /// Registers a buffer for local access.
    pub(crate) fn name(&self, buffer: Buffer) -> io::Result<Slot> {
        match &self.arena {
            Some(arena) => arena.name(buffer),
            None => Ok(Slot::of_pool(buffer)),
        }
    }

    /// A scatter/gather element for local access. The caller keeps the memory until the work
    /// request that uses it, or a later one, has ended.
    pub(crate) fn piece(&self, slot: &Slot, start: usize, length: usize) -> io::Result<Piece> {
        if slot.is_own() {
            return slot.piece(start, length);
        }
        self.piece_of(slot.buffer(), start, length)
    }

    /// The same for a buffer of the pool, without an arena.
    pub(crate) fn piece_of(
        &self,
        buffer: &Buffer,
        start: usize,
        length: usize,
    ) -> io::Result<Piece> {
        self.hold.borrow_mut().piece(buffer, start, length)
    }

    /// The remote key of a buffer, valid once the window of this number has been bound or, without
    /// windows, at any time.
    pub(crate) fn remote_key(
        &mut self,
        buffer: &Buffer,
        window: u16,
        written: bool,
    ) -> io::Result<u32> {
        let mut hold = self.hold.borrow_mut();
        let region = hold.region(buffer)?;
        if self.sizes.windows == 0 {
            return Ok(region.remote_key());
        }
        let (address, bytes) = (number(buffer.address())?, short(buffer.len())?);
        let endpoint = self.endpoint.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        endpoint.prepare_window(window, region, WindowRange { address, bytes, written })
    }

    /// Whether commands have memory windows.
    pub(crate) fn has_windows(&self) -> bool {
        self.sizes.windows > 0
    }

    /// Queues the binding of a window, before the message that carries its key.
    pub(crate) fn push_bind(&mut self, window: u16) {
        self.push(SendWork::of(SendOperation::Bind { window }), None);
    }

    /// Queues the invalidation of a window's key, with `what` as its mark ([`PairEvent::Sent`]).
    pub(crate) fn push_invalidate(&mut self, key: u32, what: u16) {
        let work = SendWork::of(SendOperation::Invalidate { key });
        self.push(SendWork { signalled: true, ..work }, Some(what));
    }

    /// Queues a receive, with room for data where the peer sends in-capsule data.
    pub(crate) fn push_receive(&mut self, index: u32, data: Option<&Slot>) -> io::Result<()> {
        let start = usize::try_from(index).unwrap_or(0) * self.sizes.received_bytes;
        let message = self.piece(&self.received, start, self.sizes.received_bytes)?;
        let data = match data {
            Some(slot) => self.piece(slot, 0, slot.buffer().len())?,
            None => Piece::default(),
        };
        let work = self.subscription.work(RECEIVE | index);
        self.receives.push(ReceiveWork { work, pieces: [message, data] });
        Ok(())
    }

    /// Queues a SEND of these bytes and of a piece that follows them, with `what` as its mark (see
    /// [`PairEvent::Sent`]).
    pub(crate) fn push_message(
        &mut self,
        operation: SendOperation,
        bytes: &[u8],
        data: Option<Piece>,
        what: Option<u16>,
    ) -> io::Result<()> {
        let place = self.sequence % self.sizes.sends.max(1);
        let start = usize::try_from(place).unwrap_or(0) * self.sizes.message_bytes;
        let messages = self.messages.buffer_mut().bytes_mut();
        if let Some(room) = messages.get_mut(start..start + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        let message = self.piece(&self.messages, start, bytes.len())?;
        let fits = data.is_none() && bytes.len() <= self.inline_bytes;
        let inline = fits && may_be_inline(operation, self.soft_iwarp);
        let pieces = [message, data.unwrap_or_default()];
        self.push(SendWork { pieces, inline, ..SendWork::of(operation) }, what);
        Ok(())
    }

    /// Queues a READ or WRITE between a piece and the peer's memory.
    pub(crate) fn push_transfer(
        &mut self,
        operation: SendOperation,
        piece: Piece,
        what: Option<u16>,
    ) {
        let signalled = what.is_some() || self.soft_iwarp;
        let pieces = [piece, Piece::default()];
        self.push(SendWork { pieces, signalled, ..SendWork::of(operation) }, what);
    }

    /// Queues a READ or WRITE of no data. The response to a READ makes this side notice earlier
    /// messages; a WRITE makes the peer do so.
    pub(crate) fn push_wake_up_read(&mut self, operation: SendOperation) {
        self.push(SendWork { signalled: true, ..SendWork::of(operation) }, None);
    }

    /// Keeps a buffer until all work queued so far has ended.
    pub(crate) fn keep(&mut self, slot: Slot) {
        if let Some(last) = self.posted.back_mut() {
            let bytes = slot.buffer().len();
            last.kept = Some(slot);
            self.note_posted(bytes, 0);
        }
    }

    fn push(&mut self, mut work: SendWork, what: Option<u16>) {
        if self.soft_iwarp && !work.inline {
            work.pieces = without_short_piece(work.operation, work.pieces);
        }
        let sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1) & !RECEIVE;
        self.chain.push(SendWork { work: self.subscription.work(sequence), ..work });
        let is_read = matches!(work.operation, SendOperation::Read { .. });
        self.posted.push_back(PostedRequest { sequence, what, kept: None, is_read, ended: false });
    }

    /// Posts what is queued.
    pub(crate) fn post(&mut self) -> io::Result<()> {
        let Some(endpoint) = &mut self.endpoint else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if !self.receives.is_empty() {
            let posted = endpoint.post_receive(&self.receives);
            self.receives.clear();
            posted.map_err(post_error)?;
        }
        if let Some(last) = self.chain.last_mut() {
            last.signalled = true;
            let posted = endpoint.post_send(&self.chain);
            self.chain.clear();
            posted.map_err(post_error)?;
        }
        Ok(())
    }

    /// Handles a completion and reports what has ended with it, in order.
    pub(crate) fn handle(
        &mut self,
        completion: &WorkCompletion,
        mut tell: impl FnMut(PairEvent),
    ) -> Result<(), CloseReason> {
        if completion.status != WorkStatus::SUCCESS {
            return Err(match completion.status {
                // Posted work is flushed when the peer has disconnected, or when the device reports
                // a fault.
                WorkStatus::FLUSHED => {
                    self.engine.fault(self.subscription).unwrap_or(CloseReason::PeerClosed)
                }
                status => CloseReason::Work(status),
            });
        }
        let number = u32::try_from(completion.work & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        if number & RECEIVE != 0 {
            let (index, bytes) = (number & !RECEIVE, completion.bytes);
            tell(PairEvent::Received { index, bytes, invalidated: completion.invalidated });
            return Ok(());
        }
        self.end_sends(number, tell);
        Ok(())
    }

    /// Ends the work with this number and all earlier work except READs.
    fn end_sends(&mut self, number: u32, mut tell: impl FnMut(PairEvent)) {
        let Some(front) = self.posted.front() else { return };
        let distance = number.wrapping_sub(front.sequence) & !RECEIVE;
        let index = usize::try_from(distance).unwrap_or(usize::MAX);
        if index >= self.posted.len() {
            return;
        }
        let mut ended_bytes = 0;
        for (at, posted) in self.posted.iter_mut().take(index + 1).enumerate() {
            if posted.is_read && at < index || std::mem::replace(&mut posted.ended, true) {
                continue;
            }
            if let Some(kept) = posted.kept.take() {
                ended_bytes += kept.buffer().len();
                if let Some(arena) = &mut self.arena {
                    arena.give(kept);
                }
            }
            if let Some(what) = posted.what {
                tell(PairEvent::Sent { what });
            }
        }
        while self.posted.front().is_some_and(|posted| posted.ended) {
            self.posted.pop_front();
        }
        self.note_posted(0, ended_bytes);
    }

    pub(crate) fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.endpoint()?.connect(parameters)
    }

    pub(crate) fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.endpoint()?.accept(parameters)
    }

    pub(crate) fn reject(&mut self, private_data: &[u8]) {
        if let Some(endpoint) = &mut self.endpoint {
            let _ = endpoint.reject(private_data);
        }
    }

    /// Disconnects and destroys the queue pair, after which the device uses none of its memory.
    pub(crate) fn end(mut self) {
        if let Some(mut endpoint) = self.endpoint.take() {
            // An error means that it had ended already.
            let _ = endpoint.disconnect();
        }
    }

    fn endpoint(&mut self) -> io::Result<&mut Endpoint> {
        self.endpoint.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for RdmaQueuePair {
    fn drop(&mut self) {
        // Completions of this queue pair are ignored from now on.
        self.endpoint = None;
        self.engine.unsubscribe(self.subscription);
        self.engine.note_posted(0, self.posted_bytes);
        let mut hold = self.hold.borrow_mut();
        hold.remove_pair(self.subscription);
        hold.release(self.lease);
    }
}

fn may_be_inline(operation: SendOperation, soft_iwarp: bool) -> bool {
    !(soft_iwarp && matches!(operation, SendOperation::SendInvalidate { .. }))
}

/// Soft-iWARP copies a message of one short piece from its user address. If its kernel thread does
/// so before the posting system call returns, it has no user address space, and the queue pair
/// fails. The pages of a message of two pieces are mapped instead.
pub(super) fn without_short_piece(operation: SendOperation, pieces: Pieces) -> Pieces {
    let [first, second] = pieces;
    let is_read = matches!(operation, SendOperation::Read { .. });
    if is_read || second.bytes > 0 || !(2..=SOFT_IWARP_SHORT_BYTES).contains(&first.bytes) {
        return pieces;
    }
    let half = first.bytes / 2;
    let address = first.address.saturating_add(half.into());
    [Piece { bytes: half, ..first }, Piece { address, bytes: first.bytes - half, ..first }]
}

fn post_error(failed: PostError) -> io::Error {
    log::debug!("the device took {} work requests and refused the next", failed.posted);
    failed.error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_iwarp_invalidates_nothing_inline() {
        let invalidate = SendOperation::SendInvalidate { key: 1 };
        for soft_iwarp in [false, true] {
            assert!(may_be_inline(SendOperation::Send, soft_iwarp));
            assert_eq!(may_be_inline(invalidate, soft_iwarp), !soft_iwarp);
        }
    }

    #[test]
    fn a_short_piece_is_divided() {
        let piece = |address, bytes| Piece { address, bytes, key: 7 };
        let nothing = Piece::default();
        let write = SendOperation::Write { address: 0, key: 1 };
        let divided = without_short_piece(write, [piece(100, 17), nothing]);
        assert_eq!(divided, [piece(100, 8), piece(108, 9)]);
        let read = SendOperation::Read { address: 0, key: 1 };
        for (operation, pieces) in [
            (read, [piece(100, 16), nothing]),
            (write, [piece(100, 512), nothing]),
            (write, [piece(100, 16), piece(200, 16)]),
            (write, [piece(100, 1), nothing]),
            (write, [nothing; 2]),
        ] {
            assert_eq!(without_short_piece(operation, pieces), pieces);
        }
    }
}
