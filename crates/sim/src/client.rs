//! One host's requests, and the possible contents of each of its blocks.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_backend::{Failure, Operation, Request, RequestCompletion};
use weft_reactor::Buffer;
use weft_reactor::simulation::Random;

use crate::Testbed;

/// Bytes of a block of the devices that clients use.
pub const BLOCK_BYTES: usize = 4096;

/// Most pending requests.
const DEPTH: usize = 24;

/// One host's requests to blocks that no other client uses.
#[derive(Debug)]
pub struct Client {
    host: usize,
    first: u64,
    random: Random,
    pending: BTreeMap<u64, Pending>,
    /// The possible contents of each block: the stamp of the last acknowledged write, or of one of
    /// the writes since then whose outcome is unknown.
    contents: Vec<Vec<u64>>,
    /// The possible contents of each block after a crash: what was durable last, or anything since.
    survives: Vec<Vec<u64>>,
    /// Number of changes of each block, submitted and completed.
    changes: Vec<u64>,
    next: u64,
    ended: u64,
    lost: u64,
    /// Its requests are few and small.
    is_small: bool,
    durability: Durability,
}

/// What becomes of data that is acknowledged as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// It survives.
    Kept,
    /// A sync may fail.
    Doubtful,
    /// One has: nothing is acknowledged as durable any more.
    Lost,
}

/// A pending request.
#[derive(Debug)]
struct Pending {
    kind: Kind,
    block: u64,
    blocks: u32,
    stamp: u64,
    /// Whether it has to survive a crash as soon as it is acknowledged.
    durable: bool,
    /// Of a flush: the number of changes of each block at its submission, if no change was pending.
    seen: Vec<Option<u64>>,
    /// It was submitted after a sync had failed.
    after_loss: bool,
}

impl Pending {
    /// Whether its success says that something is durable.
    fn says_durable(&self) -> bool {
        self.kind == Kind::Flush || (self.kind.changes() && self.durable)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Zeroes,
    CompareAndWrite,
    Flush,
}

impl Kind {
    fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Zeroes | Self::CompareAndWrite)
    }
}

impl Client {
    /// A client of a host, on `blocks` blocks from `first` on, which contain zeroes.
    #[must_use]
    pub fn new(seed: u64, host: usize, first: u64, blocks: usize) -> Self {
        Self {
            host,
            first,
            random: Random::new(seed),
            pending: BTreeMap::new(),
            contents: vec![vec![0]; blocks],
            survives: vec![vec![0]; blocks],
            changes: vec![0; blocks],
            next: 1,
            ended: 0,
            lost: 0,
            is_small: false,
            durability: Durability::Kept,
        }
    }

    /// A client of each host, on `blocks` blocks of its own.
    #[must_use]
    pub fn of_each_host(testbed: &Testbed, seed: u64, blocks: usize) -> Vec<Self> {
        let of = |host| {
            let seed = seed ^ ((host as u64 + 1) << 32);
            Self::new(seed, host, (host * blocks) as u64, blocks)
        };
        (0..testbed.hosts()).map(of).collect()
    }

    /// The same with one request at a time, of four blocks at most.
    #[must_use]
    pub fn small(self) -> Self {
        Self { is_small: true, ..self }
    }

    /// The number of completed requests.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The number of requests whose outcome is unknown.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether no request is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Starts a request, if a slot is free.
    pub fn begin(&mut self, testbed: &mut Testbed) {
        let kind = match self.random.below(16) {
            0..=4 => Kind::Write,
            5 => Kind::Zeroes,
            6..=8 => Kind::CompareAndWrite,
            9 => Kind::Flush,
            _ => Kind::Read,
        };
        let most = match kind {
            // Of more than one block it would not be atomic.
            Kind::CompareAndWrite => 1,
            _ if self.random.chance(0.2) && !self.is_small => 40,
            _ => 4,
        };
        let blocks = self.random.below(most) + 1;
        let block = self.random.below(self.contents.len() as u64 - blocks);
        let touches = |other: &Pending| {
            block < other.block + u64::from(other.blocks) && other.block < block + blocks
        };
        let depth = if self.is_small { 1 } else { DEPTH };
        if self.pending.len() >= depth || self.pending.values().any(touches) {
            return;
        }
        self.submit(kind, block, u32::try_from(blocks).expect("few"), testbed);
    }

    /// Takes the completed requests.
    pub fn collect(&mut self, testbed: &mut Testbed) {
        for completion in testbed.finished(self.host) {
            self.end(completion);
        }
    }

    /// Lets time pass until the requests of all of `clients` are complete.
    ///
    /// # Panics
    /// If one is not, after `bound`.
    pub fn finish(clients: &mut [Self], testbed: &mut Testbed, bound: Duration) {
        let end = testbed.world.now() + bound;
        while !clients.iter().all(Self::is_idle) {
            testbed.step();
            clients.iter_mut().for_each(|client| client.collect(testbed));
            assert!(testbed.world.now() < end, "a request hangs: {clients:?}");
        }
    }

    /// From now on a sync may fail: with it what is to be durable, and then all of that.
    pub fn may_lose_writes(&mut self) {
        self.durability = Durability::Doubtful;
    }

    /// Whether a sync has failed.
    #[must_use]
    pub fn has_lost_writes(&self) -> bool {
        self.durability == Durability::Lost
    }

    /// The storage has lost what was not durable. No request may be pending.
    ///
    /// # Panics
    /// If one is.
    pub fn crashed(&mut self) {
        assert!(self.is_idle(), "the outcome of pending requests is unknown");
        self.contents.clone_from(&self.survives);
    }

    /// The process of its host has died: the outcome of what was pending is unknown.
    pub fn died(&mut self) {
        while let Some((&tag, _)) = self.pending.first_key_value() {
            self.end(RequestCompletion { tag, result: Err(Failure::Gone), buffer: None });
        }
    }

    /// Another host goes on with its blocks, once this one has died.
    ///
    /// # Panics
    /// If requests are pending.
    pub fn move_to(&mut self, host: usize) {
        assert!(self.is_idle());
        self.host = host;
    }

    /// Reads every block and checks its contents.
    pub fn begin_check(&mut self, testbed: &mut Testbed) {
        assert!(self.is_idle());
        for block in (0..self.contents.len() as u64).step_by(4) {
            let blocks = (self.contents.len() as u64 - block).min(4);
            self.submit(Kind::Read, block, u32::try_from(blocks).expect("few"), testbed);
        }
    }

    fn submit(&mut self, kind: Kind, block: u64, blocks: u32, testbed: &mut Testbed) {
        let tag = self.next;
        let stamp = if kind == Kind::Zeroes { 0 } else { tag };
        let queue = usize::try_from(self.random.below(8)).expect("small");
        let durable = self.random.chance(0.2);
        let after_loss = self.has_lost_writes();
        let known = self.known(block, blocks);
        let at = self.first + block;
        let (reactor, device) = testbed.device(self.host, queue);
        let stamped = |stamps: &[u64]| {
            let mut buffer = reactor.pool().take(stamps.len() * BLOCK_BYTES).expect("a large pool");
            write_stamps(&mut buffer, stamps);
            buffer
        };
        let written = vec![stamp; blocks as usize];
        let operation = match (kind, known) {
            (Kind::Write, _) => {
                Operation::Write { slba: at, nlb: blocks, from: stamped(&written), durable }
            }
            (Kind::Zeroes, _) => {
                let deallocate = self.random.chance(0.5);
                Operation::WriteZeroes { slba: at, nlb: blocks, deallocate, durable }
            }
            (Kind::CompareAndWrite, Some(known)) => Operation::CompareAndWrite {
                slba: at,
                nlb: blocks,
                compare: stamped(&known),
                write: stamped(&written),
                durable,
            },
            (Kind::Flush, _) => Operation::Flush,
            // A compare needs the current contents.
            (Kind::Read | Kind::CompareAndWrite, _) => {
                let seen = Vec::new();
                let kind = Kind::Read;
                let pending = Pending { kind, block, blocks, stamp, durable, seen, after_loss };
                self.pending.insert(tag, pending);
                let into = stamped(&vec![u64::MAX; blocks as usize]);
                let operation = Operation::Read { slba: at, nlb: blocks, into };
                device.submit(reactor, Request { tag, operation });
                self.next += 1;
                return;
            }
        };
        device.submit(reactor, Request { tag, operation });
        let seen = if kind == Kind::Flush { self.seen() } else { Vec::new() };
        if kind != Kind::Flush {
            self.count_change(block, blocks);
        }
        let pending = Pending { kind, block, blocks, stamp, durable, seen, after_loss };
        self.pending.insert(tag, pending);
        self.next += 1;
    }

    fn count_change(&mut self, block: u64, blocks: u32) {
        let changes = &mut self.changes[index(block)..];
        changes.iter_mut().take(blocks as usize).for_each(|count| *count += 1);
    }

    /// What a flush that starts now makes durable: blocks without a pending change.
    fn seen(&self) -> Vec<Option<u64>> {
        let mut seen: Vec<_> = self.changes.iter().copied().map(Some).collect();
        for other in self.pending.values().filter(|other| other.kind.changes()) {
            seen[index(other.block)..]
                .iter_mut()
                .take(other.blocks as usize)
                .for_each(|it| *it = None);
        }
        seen
    }

    /// The contents of blocks, if known.
    fn known(&self, block: u64, blocks: u32) -> Option<Vec<u64>> {
        let contents = self.contents.iter().skip(index(block)).take(blocks as usize);
        contents.map(|may| if let [one] = may[..] { Some(one) } else { None }).collect()
    }

    fn end(&mut self, completion: RequestCompletion) {
        let tag = completion.tag;
        let pending = self.pending.remove(&tag).unwrap_or_else(|| panic!("{tag} completed twice"));
        self.ended += 1;
        let first = index(pending.block);
        let contents = &mut self.contents[first..first + pending.blocks as usize];
        let is_acknowledged = completion.result.is_ok() && pending.says_durable();
        assert!(!is_acknowledged || !pending.after_loss, "{tag} {pending:?} is not durable");
        match (completion.result, pending.kind) {
            (Ok(()), Kind::Read) => {
                let buffer = completion.buffer.expect("a read has a buffer");
                for (may, block) in contents.iter_mut().zip(buffer.chunks(BLOCK_BYTES)) {
                    let found = stamp_of(block);
                    assert!(may.contains(&found), "{tag}: {found} is none of {may:?}");
                    *may = vec![found];
                }
            }
            (Ok(()), Kind::Flush) => {
                let now = self.changes.iter().zip(&self.contents);
                for ((seen, (changes, contents)), survives) in
                    pending.seen.iter().zip(now).zip(&mut self.survives)
                {
                    if *seen == Some(*changes) {
                        survives.clone_from(contents);
                    }
                }
            }
            (Ok(()), _) => {
                contents.fill(vec![pending.stamp]);
                for survives in &mut self.survives[first..first + pending.blocks as usize] {
                    if pending.durable {
                        survives.clear();
                    }
                    survives.push(pending.stamp);
                }
                self.count_change(pending.block, pending.blocks);
            }
            // Its host has given up, perhaps after the request was executed.
            (Err(Failure::Gone), Kind::Read | Kind::Flush) => self.lost += 1,
            (Err(Failure::Gone), _) | (Err(Failure::PathLost), Kind::CompareAndWrite) => {
                self.is_unknown(&pending);
            }
            (Err(Failure::MediaWrite | Failure::Device(_)), kind)
                if self.durability != Durability::Kept && pending.says_durable() =>
            {
                self.durability = Durability::Lost;
                if kind.changes() {
                    self.is_unknown(&pending);
                }
            }
            (Err(failure), _) => panic!("{tag} {pending:?} failed: {failure}"),
        }
    }

    /// Perhaps a request was executed.
    fn is_unknown(&mut self, pending: &Pending) {
        self.lost += 1;
        let first = index(pending.block);
        let blocks = first..first + pending.blocks as usize;
        for may in self.contents[blocks.clone()].iter_mut().chain(&mut self.survives[blocks]) {
            may.push(pending.stamp);
        }
        self.count_change(pending.block, pending.blocks);
    }
}

fn write_stamps(buffer: &mut Buffer, stamps: &[u64]) {
    for (block, stamp) in buffer.bytes_mut().chunks_mut(BLOCK_BYTES).zip(stamps) {
        block.chunks_mut(8).for_each(|place| place.copy_from_slice(&stamp.to_le_bytes()));
    }
}

fn stamp_of(block: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
    assert!(block.chunks(8).all(|piece| piece == stamp.to_le_bytes()), "a torn block");
    stamp
}

fn index(block: u64) -> usize {
    usize::try_from(block).expect("small")
}
