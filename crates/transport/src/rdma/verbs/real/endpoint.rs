//! One connection: an identifier and its queue pair.

use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use super::super::types::{PIECES, Pieces};
use super::super::{
    Parameters, PostError, QueuePairLimits, QueuePairOptions, ReceiveWork, SendOperation, SendWork,
    WindowRange,
};
use super::abi::{self, Scatter, access, flag, opcode};
use super::device::{CompletionQueue, Device, Domain, Queue, RawDomain, RawRegion, Region};
use super::identifier::Identifier;
use super::library::{done, made, number};

#[derive(Debug)]
pub(crate) struct Endpoint {
    // Dropped in this order: windows before the queue pair that they are bound to (with soft-RoCE
    // they reference it), and that before the identifier.
    windows: Vec<MemoryWindow>,
    pair: Option<QueuePair>,
    identifier: Identifier,
    sends: Vec<abi::Send>,
    receives: Vec<abi::Receive>,
    pieces: Vec<[Scatter; PIECES]>,
}

impl Endpoint {
    pub(super) fn new(identifier: Identifier) -> Self {
        let (sends, receives, pieces) = (Vec::new(), Vec::new(), Vec::new());
        Self { windows: Vec::new(), pair: None, identifier, sends, receives, pieces }
    }

    pub(in super::super) fn key(&self) -> u64 {
        self.identifier.key()
    }

    pub(in super::super) fn device_key(&self) -> Option<u64> {
        self.identifier.context().map(|context| context.addr().get() as u64)
    }

    pub(in super::super) fn open_device(&self) -> io::Result<Device> {
        let context = self.identifier.context().ok_or(io::ErrorKind::NotConnected)?;
        Device::open(self.identifier.functions(), context, self.identifier.port())
    }

    pub(in super::super) fn create_queue_pair(
        &mut self,
        domain: &Domain,
        completions: &CompletionQueue,
        options: QueuePairOptions,
    ) -> io::Result<QueuePairLimits> {
        if self.pair.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let create = self.identifier.functions().rdma_create_qp;
        let mut result = Ok(());
        for inline_bytes in [options.inline_bytes, 0] {
            let mut wanted = wanted(completions, options, inline_bytes);
            // SAFETY: identifier, domain and queue are alive and are kept so by the pair; the
            // options are written back to.
            result = done(unsafe { create(self.identifier.raw(), domain.raw(), &raw mut wanted) });
            if result.is_ok() {
                // SAFETY: the identifier is alive and has a queue pair now.
                let raw = made(unsafe { (*self.identifier.raw()).pair })?;
                self.pair = Some(QueuePair {
                    raw,
                    identifier: self.identifier.raw(),
                    destroy: self.identifier.functions().rdma_destroy_qp,
                    _completions: Rc::clone(completions.queue()),
                    _domain: Rc::clone(domain.inner()),
                });
                for _ in 0..options.windows {
                    self.windows.push(MemoryWindow::new(domain)?);
                }
                // SAFETY: the queue pair is alive; its number never changes.
                let number = unsafe { (*raw.as_ptr()).number };
                return Ok(QueuePairLimits { number, inline_bytes: wanted.inline_bytes });
            }
        }
        result.and(Err(io::ErrorKind::Unsupported.into()))
    }

    pub(in super::super) fn prepare_window(
        &mut self,
        window: u16,
        region: &Region,
        opening: WindowRange,
    ) -> io::Result<u32> {
        let window = self.windows.get_mut(usize::from(window)).ok_or(io::ErrorKind::NotFound)?;
        Ok(window.prepare(region, opening))
    }

    pub(in super::super) fn connect(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.identifier.connect(parameters)
    }

    pub(in super::super) fn accept(&mut self, parameters: &Parameters) -> io::Result<()> {
        self.identifier.accept(parameters)
    }

    pub(in super::super) fn reject(&mut self, private_data: &[u8]) -> io::Result<()> {
        self.identifier.reject(private_data)
    }

    pub(in super::super) fn disconnect(&mut self) -> io::Result<()> {
        self.identifier.disconnect()
    }

    pub(in super::super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.identifier.local_address()
    }

    pub(in super::super) fn post_send(&mut self, chain: &[SendWork]) -> Result<(), PostError> {
        let pair = raw_pair(self.pair.as_ref())?;
        self.pieces.clear();
        self.pieces.extend(chain.iter().map(|work| scatter(&work.pieces)));
        self.sends.clear();
        self.sends
            .extend(chain.iter().zip(&mut self.pieces).map(|(work, pieces)| send(work, pieces)));
        for (raw, work) in self.sends.iter_mut().zip(chain) {
            if let SendOperation::Bind { window } = work.operation {
                let window = self.windows.get(usize::from(window));
                window.and_then(|window| window.bind(raw)).ok_or_else(not_there)?;
            }
        }
        link(&mut self.sends, |work, next| work.next = next);
        let Some(first) = self.sends.first_mut() else { return Ok(()) };
        let first: *mut abi::Send = first;
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is alive; the chain and its lists are in vectors that do not
        // change before this returns. The caller keeps the memory of the elements.
        let result = unsafe { ((*(*pair).context).post_send)(pair, first, &raw mut bad) };
        for work in chain {
            if let SendOperation::Bind { window } = work.operation
                && let Some(window) = self.windows.get_mut(usize::from(window))
            {
                window.posted();
            }
        }
        posted(result, &self.sends, bad)
    }

    pub(in super::super) fn post_receive(
        &mut self,
        chain: &[ReceiveWork],
    ) -> Result<(), PostError> {
        let pair = raw_pair(self.pair.as_ref())?;
        self.pieces.clear();
        self.pieces.extend(chain.iter().map(|work| scatter(&work.pieces)));
        self.receives.clear();
        self.receives.extend(chain.iter().zip(&mut self.pieces).map(|(work, pieces)| {
            let pieces_used = used(&work.pieces);
            let list = pieces.as_mut_ptr();
            abi::Receive { work: work.work, next: ptr::null_mut(), list, pieces: pieces_used }
        }));
        link(&mut self.receives, |work, next| work.next = next);
        let Some(first) = self.receives.first_mut() else { return Ok(()) };
        let first: *mut abi::Receive = first;
        let mut bad = ptr::null_mut();
        // SAFETY: as for sends.
        let result = unsafe { ((*(*pair).context).post_recv)(pair, first, &raw mut bad) };
        posted(result, &self.receives, bad)
    }
}

/// A queue pair, destroyed before its identifier, completion queue and domain.
#[derive(Debug)]
struct QueuePair {
    raw: NonNull<abi::RawQueuePair>,
    identifier: *mut abi::Identifier,
    destroy: unsafe extern "C" fn(*mut abi::Identifier),
    _completions: Rc<Queue>,
    _domain: Rc<RawDomain>,
}

/// A memory window of type 2, with the region that it was last bound to.
#[derive(Debug)]
struct MemoryWindow {
    raw: NonNull<abi::RawWindow>,
    opened: Option<(Rc<RawRegion>, WindowRange)>,
    /// The key of the next binding.
    key: u32,
    _domain: Rc<RawDomain>,
}

impl MemoryWindow {
    fn new(domain: &Domain) -> io::Result<Self> {
        // SAFETY: the domain is alive, and with it its context, which has its operations.
        let create = unsafe { (*(*domain.raw()).context).alloc_mw };
        let create = create.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the domain is alive and is kept so by the window.
        let raw = made(unsafe { create(domain.raw(), abi::WINDOW_TYPE_2) })?;
        // SAFETY: the window was just made.
        let key = unsafe { (*raw.as_ptr()).key };
        Ok(Self { raw, opened: None, key, _domain: Rc::clone(domain.inner()) })
    }

    fn prepare(&mut self, region: &Region, opening: WindowRange) -> u32 {
        self.opened = Some((Rc::clone(region.inner()), opening));
        // The low 8 bits of a key are chosen by the user, and must change each time.
        self.key = self.key & !0xff | self.key.wrapping_add(1) & 0xff;
        self.key
    }

    /// Sets the window's fields in a bind request.
    fn bind(&self, raw: &mut abi::Send) -> Option<()> {
        let (region, opening) = self.opened.as_ref()?;
        raw.window = self.raw.as_ptr();
        raw.window_key = self.key;
        raw.region = region.raw();
        raw.address = opening.address;
        raw.length = opening.bytes.into();
        let access = if opening.written { access::REMOTE_WRITE } else { access::REMOTE_READ };
        raw.access = access.unsigned_abs();
        Some(())
    }

    /// Stores the new key after the post, where providers expect it.
    fn posted(&mut self) {
        // SAFETY: the window is alive, and nobody else has it.
        unsafe { (*self.raw.as_ptr()).key = self.key }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: the window is alive, and with it the context that has made it.
        let remove = unsafe { (*(*self.raw.as_ptr()).context).dealloc_mw };
        // SAFETY: it is given back once.
        let result = remove.map_or(0, |remove| unsafe { remove(self.raw.as_ptr()) });
        if let Err(error) = number(result) {
            log::warn!("an RDMA memory window cannot be deallocated: {error}");
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the endpoint drops this before the identifier, which is therefore alive.
        unsafe { (self.destroy)(self.identifier) };
    }
}

fn wanted(
    completions: &CompletionQueue,
    options: QueuePairOptions,
    inline_bytes: u32,
) -> abi::PairOptions {
    let pieces = u32::try_from(PIECES).unwrap_or(1);
    abi::PairOptions {
        context: ptr::null_mut(),
        send_queue: completions.queue().raw(),
        receive_queue: completions.queue().raw(),
        shared_receives: ptr::null_mut(),
        send_depth: options.send_depth,
        receive_depth: options.receive_depth,
        send_pieces: pieces,
        receive_pieces: pieces,
        inline_bytes,
        kind: abi::RELIABLE_CONNECTION,
        all_signalled: 0,
    }
}

fn raw_pair(pair: Option<&QueuePair>) -> Result<*mut abi::RawQueuePair, PostError> {
    pair.map(|pair| pair.raw.as_ptr()).ok_or_else(not_there)
}

fn not_there() -> PostError {
    PostError { posted: 0, error: io::ErrorKind::NotConnected.into() }
}

fn scatter(pieces: &Pieces) -> [Scatter; PIECES] {
    pieces.map(|piece| Scatter { address: piece.address, length: piece.bytes, key: piece.key })
}

/// The number of elements before the empty one.
fn used(pieces: &Pieces) -> i32 {
    let used = pieces.iter().take_while(|piece| piece.bytes > 0).count();
    i32::try_from(used).unwrap_or(0)
}

fn send(work: &SendWork, pieces: &mut [Scatter; PIECES]) -> abi::Send {
    let (opcode, invalidate, remote_address, remote_key) = match work.operation {
        SendOperation::Send => (opcode::SEND, 0, 0, 0),
        // The key has its own field; libsiw reads it from the field of READ and WRITE.
        SendOperation::SendInvalidate { key } => (opcode::SEND_WITH_INVALIDATE, key, 0, key),
        SendOperation::Read { address, key } => (opcode::READ, 0, address, key),
        SendOperation::Write { address, key } => (opcode::WRITE, 0, address, key),
        SendOperation::Bind { .. } => (opcode::BIND_WINDOW, 0, 0, 0),
        SendOperation::Invalidate { key } => (opcode::LOCAL_INVALIDATE, key, 0, 0),
    };
    let signalled = if work.signalled { flag::SIGNALED } else { 0 };
    let inline = if work.inline { flag::INLINE } else { 0 };
    abi::Send {
        work: work.work,
        next: ptr::null_mut(),
        list: pieces.as_mut_ptr(),
        pieces: used(&work.pieces),
        opcode,
        flags: signalled | inline,
        invalidate,
        remote_address,
        remote_key,
        behind: [0; 3],
        window: ptr::null_mut(),
        window_key: 0,
        region: ptr::null_mut(),
        address: 0,
        length: 0,
        access: 0,
    }
}

/// Links each request to the next.
fn link<T>(works: &mut [T], set: impl Fn(&mut T, *mut T)) {
    let mut next = ptr::null_mut();
    for work in works.iter_mut().rev() {
        set(work, next);
        next = work;
    }
}

/// The result of a post; `bad` is the first request that was refused, if any.
fn posted<T>(result: i32, works: &[T], bad: *mut T) -> Result<(), PostError> {
    if result == 0 {
        return Ok(());
    }
    let posted = works.iter().position(|work| ptr::eq(work, bad)).unwrap_or(0);
    Err(PostError { posted, error: io::Error::from_raw_os_error(result.abs()) })
}

#[cfg(test)]
mod tests {
    use super::super::super::Piece;
    use super::*;

    fn work(operation: SendOperation) -> SendWork {
        let pieces = [Piece { address: 64, bytes: 8, key: 3 }, Piece::default()];
        SendWork { work: 5, operation, pieces, signalled: true, inline: false }
    }

    #[test]
    fn work_requests_are_converted() {
        let mut pieces = scatter(&work(SendOperation::Send).pieces);
        assert_eq!((pieces[0].address, pieces[0].length, pieces[0].key), (64, 8, 3));
        let read = send(&work(SendOperation::Read { address: 9, key: 7 }), &mut pieces);
        assert_eq!((read.opcode, read.remote_address, read.remote_key), (4, 9, 7));
        assert_eq!((read.pieces, read.flags, read.work), (1, 2, 5));
        let write = send(&work(SendOperation::Write { address: 9, key: 7 }), &mut pieces);
        assert_eq!((write.opcode, write.remote_key), (0, 7));
        let last = send(&work(SendOperation::SendInvalidate { key: 6 }), &mut pieces);
        assert_eq!((last.opcode, last.invalidate, last.remote_key), (9, 6, 6));
        let inline = SendWork { inline: true, signalled: false, ..work(SendOperation::Send) };
        assert_eq!(send(&inline, &mut pieces).flags, 8);
    }

    #[test]
    fn a_chain_ends_and_what_was_posted_is_counted() {
        let mut pieces = [scatter(&work(SendOperation::Send).pieces); 3];
        let mut sends: Vec<_> =
            pieces.iter_mut().map(|pieces| send(&work(SendOperation::Send), pieces)).collect();
        link(&mut sends, |work, next| work.next = next);
        assert!(ptr::eq(sends[0].next, &raw const sends[1]));
        assert!(ptr::eq(sends[1].next, &raw const sends[2]));
        assert!(sends[2].next.is_null());
        let bad = &raw mut sends[2];
        let error = posted(12, &sends, bad).expect_err("one was not taken");
        assert_eq!((error.posted, error.error.raw_os_error()), (2, Some(12)));
        assert!(posted(0, &sends, ptr::null_mut()).is_ok());
    }
}
