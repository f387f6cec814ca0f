//! A wrapper that can mark blocks as unreadable: reads of them fail until they are written again.
//!
//! The marks are kept beside the device, in memory or in a file. While there are none, a request
//! costs one load more; while there are some, a lock and a look at the marks. A write to marked
//! blocks is made durable, and they are readable when it has completed. Marks in a file outlast the
//! process: each change of them is written aside, synced and renamed by a thread before the request
//! that makes it completes. A deallocated block stays marked.
//!
//! The ranges are bounded. A write to a part of a range leaves two of it; where there would be too
//! many then, the write fails with [`Failure::NoSpace`] and its blocks stay marked, whatever the
//! device has of them.

use crate::limits::{LAYERS_MAX, RANGES_MAX};
use crate::wrapper::Wrapper;
use crate::{
    BlockDevice, Capabilities, DEVICE_TAGS, DeviceFactory, Failure, Geometry, OpenError, Operation,
    OwnFile, Request, RequestCompletion, files,
};
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};
use weft_reactor::{Owner, Reactor, Token};

/// Tags of writes to marked blocks; submitters use none of them ([`Request::tag`]).
const CLEARING: u64 = 1 << 62;

/// How often a handle looks whether its changes are in the file.
const LOOK: Duration = Duration::from_micros(500);

/// A device whose blocks can be marked.
#[derive(Debug)]
pub struct UncorrectableFactory {
    inner: Arc<dyn DeviceFactory>,
    shared: Arc<Shared>,
    /// Has the file written; the thread ends with it.
    saver: Option<Sender<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    marks: Mutex<Marks>,
    /// Marked ranges.
    count: AtomicUsize,
    /// The last change that is in the file.
    saved: AtomicU64,
    /// The last change that was to be put into the file: it is there, or that has failed.
    tried: AtomicU64,
}

/// Which blocks are marked.
#[derive(Debug, Default)]
struct Marks {
    /// First block and the one behind the last, of ranges that do not touch.
    ranges: BTreeMap<u64, u64>,
    /// How often they were changed.
    changes: u64,
}

impl Marks {
    fn overlap(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..end).next_back();
        start < end && before.is_some_and(|(_, last)| *last > start)
    }

    /// Takes what there is of `start..end` out of the ranges. `false`: that would make too many of
    /// them, and nothing has changed.
    fn clear(&mut self, start: u64, end: u64) -> bool {
        if self.ranges.len() >= RANGES_MAX && self.splits(start, end) {
            return false;
        }
        self.take_out(start, end);
        true
    }

    /// Whether `start..end` is within a range of which something is left on both sides.
    fn splits(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..start).next_back();
        start < end && before.is_some_and(|(_, last)| *last > end)
    }

    fn take_out(&mut self, start: u64, end: u64) {
        while let Some((&first, &last)) = self.ranges.range(..end).next_back() {
            if last <= start {
                break;
            }
            self.ranges.remove(&first);
            if last > end {
                self.ranges.insert(end, last);
            }
            if first < start {
                self.ranges.insert(first, start);
            }
        }
        self.changes += 1;
    }

    /// Marks `start..end`. `false`: there are too many ranges.
    fn mark(&mut self, mut start: u64, mut end: u64) -> bool {
        let (before, after) = (start, end);
        if let Some((&first, &last)) = self.ranges.range(..=start).next_back()
            && last >= start
        {
            start = first;
        }
        if let Some((_, &last)) = self.ranges.range(..=end).next_back() {
            end = end.max(last);
        }
        let joined = self.ranges.range(start..=end).count();
        if self.ranges.len() - joined >= RANGES_MAX {
            return false;
        }
        self.take_out(before, after);
        self.ranges.retain(|first, _| !(start..=end).contains(first));
        self.ranges.insert(start, end);
        true
    }

    fn parse(text: &str, block_bytes: u32) -> Option<Self> {
        let mut marks = Self::default();
        for line in text.strip_prefix(&text_of(&[], block_bytes))?.lines() {
            let (first, count) = line.split_once(' ')?;
            let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
            let end = first.checked_add(count).filter(|end| *end > first)?;
            if !marks.mark(first, end) {
                return None;
            }
        }
        marks.changes = 0;
        text.ends_with('\n').then_some(marks)
    }
}

/// The contents of a file with these ranges.
fn text_of(ranges: &[(u64, u64)], block_bytes: u32) -> String {
    let mut text = format!("uncorrectable blocks of {block_bytes} bytes: first, count\n");
    for (first, last) in ranges {
        // A String takes all that is written to it.
        let _ = writeln!(text, "{first} {}", last - first);
    }
    text
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the marks. The number of the change.
    fn change<T>(&self, change: impl FnOnce(&mut Marks) -> T) -> (T, u64) {
        let mut marks = self.lock();
        let result = change(&mut marks);
        self.count.store(marks.ranges.len(), Release);
        (result, marks.changes)
    }

    /// Whether one of these blocks is marked.
    fn overlap(&self, ranges: impl Iterator<Item = (u64, u32)>) -> bool {
        let marks = self.lock();
        ranges
            .into_iter()
            .any(|(block, blocks)| marks.overlap(block, block.saturating_add(u64::from(blocks))))
    }

    /// Writes the marks into the file whenever that is asked for.
    fn save(&self, path: &Path, block_bytes: u32, asked: &Receiver<()>) {
        while asked.recv().is_ok() {
            while asked.try_recv().is_ok() {}
            // Requests wait for the lock: the text is made without it.
            let (ranges, changes) = {
                let marks = self.lock();
                let ranges = marks.ranges.iter().map(|(first, last)| (*first, *last));
                (ranges.collect::<Vec<_>>(), marks.changes)
            };
            match files::replace_file(path, text_of(&ranges, block_bytes).as_bytes()) {
                Ok(()) => self.saved.store(changes, Release),
                Err(error) => {
                    log::error!("{}: the marked blocks cannot be kept: {error}", path.display());
                }
            }
            self.tried.store(changes, Release);
        }
    }
}

impl UncorrectableFactory {
    /// Wraps a device. Without a file the marks are gone when the process ends.
    pub fn new(inner: Arc<dyn DeviceFactory>, file: Option<PathBuf>) -> Result<Self, OpenError> {
        if inner.layers() >= LAYERS_MAX {
            return Err(OpenError::Invalid(format!("more than {LAYERS_MAX} wrappers")));
        }
        if inner.survives_restart() && file.is_none() {
            return Err(OpenError::Invalid(format!(
                "{} keeps its data when the process ends, so say where the marks are kept \
                 (uncorrectable:file=PATH:DEVICE)",
                inner.identity()
            )));
        }
        let block_bytes = inner.geometry().block_bytes;
        let shared = Arc::new(Shared::default());
        let saver = file.map(|path| start_saver(path, block_bytes, &shared)).transpose()?;
        Ok(Self { inner, shared, saver })
    }
}

/// Reads the marks, and starts the thread that writes them.
fn start_saver(
    path: PathBuf,
    block_bytes: u32,
    shared: &Arc<Shared>,
) -> Result<Sender<()>, OpenError> {
    // A device that stood there would be written over.
    files::check_not_served(&path).map_err(|error| OpenError::system("use", &path, error))?;
    match files::read_text(&path) {
        Ok(text) => {
            let marks = Marks::parse(&text, block_bytes).ok_or_else(|| {
                let path = path.display();
                OpenError::Invalid(format!(
                    "{path} has no marks of blocks of {block_bytes} bytes; move it away to begin \
                     without"
                ))
            })?;
            shared.change(|own| *own = marks);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::system("read", &path, error)),
    }
    let keep = |error| OpenError::system("keep marked blocks in", &path, error);
    files::can_replace(&path).map_err(keep)?;
    let (ask, asked) = mpsc::channel();
    let shared = Arc::clone(shared);
    let path = OwnFile::of(&path);
    let run = move || shared.save(&path, block_bytes, &asked);
    let started = thread::Builder::new().name("weft-marks".to_owned()).spawn(run);
    started.map(|_| ask).map_err(|error| OpenError::System {
        doing: "start a thread",
        path: None,
        error,
    })
}

impl Wrapper for UncorrectableFactory {
    fn inner(&self) -> &dyn DeviceFactory {
        &*self.inner
    }

    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        Ok(Box::new(UncorrectableDevice {
            inner: self.inner.open(reactor, owner)?,
            factory: Arc::clone(&self.inner),
            geometry: self.geometry(),
            shared: Arc::clone(&self.shared),
            saver: self.saver.clone(),
            timer: Token::new(owner, u32::from(self.layers()) * DEVICE_TAGS),
            clearing: InFlight::default(),
            saving: VecDeque::new(),
            done: VecDeque::new(),
            closed: false,
        }))
    }

    fn geometry_of(&self, inner: Geometry) -> Geometry {
        with_capability(inner)
    }
}

fn with_capability(geometry: Geometry) -> Geometry {
    let capabilities = Capabilities { write_uncorrectable: true, ..geometry.capabilities };
    Geometry { capabilities, ..geometry }
}

#[derive(Debug)]
struct UncorrectableDevice {
    inner: Box<dyn BlockDevice>,
    factory: Arc<dyn DeviceFactory>,
    geometry: Geometry,
    shared: Arc<Shared>,
    saver: Option<Sender<()>>,
    timer: Token,
    /// Writes to marked blocks that the device has.
    clearing: InFlight,
    /// What completes when a change is in the file, by the number of the change.
    saving: VecDeque<(u64, RequestCompletion)>,
    done: VecDeque<RequestCompletion>,
    closed: bool,
}

/// A write to marked blocks.
#[derive(Debug)]
struct Clearing {
    tag: u64,
    slba: u64,
    nlb: u32,
}

/// Writes to marked blocks, each at the place that its tag names. The last place is taken, so that
/// there are no places without writes.
#[derive(Debug, Default)]
struct InFlight(Vec<Option<Clearing>>);

impl InFlight {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one. The tag under which the device has it.
    fn add(&mut self, clearing: Clearing) -> u64 {
        let free = self.0.iter().position(Option::is_none);
        let place = free.unwrap_or(self.0.len());
        match self.0.get_mut(place) {
            Some(one) => *one = Some(clearing),
            None => self.0.push(Some(clearing)),
        }
        CLEARING | place as u64
    }

    /// Takes the one that the device has under this tag, if it is one.
    fn take(&mut self, tag: u64) -> Option<Clearing> {
        if tag >> 62 != CLEARING >> 62 {
            return None;
        }
        let place = usize::try_from(tag & !CLEARING).ok()?;
        let taken = self.0.get_mut(place)?.take();
        let last = self.0.iter().rposition(Option::is_some);
        self.0.truncate(last.map_or(0, |last| last + 1));
        taken
    }
}

impl UncorrectableDevice {
    /// A request while blocks are marked, or one that marks some.
    fn submit_marked(&mut self, reactor: &mut Reactor, mut request: Request) {
        self.geometry = with_capability(self.factory.geometry());
        let checked = match self.closed {
            true => Err(Failure::Gone),
            false => request.operation.check(&self.geometry),
        };
        if let Err(failure) = checked {
            return self.done.push_back(request.refuse(failure));
        }
        if let Operation::WriteUncorrectable { slba, nlb } = request.operation {
            return self.mark(reactor, request.tag, slba, nlb);
        }
        if !self.shared.overlap(request.operation.ranges()) {
            return self.inner.submit(reactor, request);
        }
        match &mut request.operation {
            Operation::Write { slba, nlb, durable, .. }
            | Operation::WriteZeroes { slba, nlb, durable, .. } => {
                *durable = true;
                let clearing = Clearing { tag: request.tag, slba: *slba, nlb: *nlb };
                request.tag = self.clearing.add(clearing);
                self.inner.submit(reactor, request);
            }
            // Marked blocks stay so, whatever is below them.
            Operation::Discard { .. } | Operation::Flush => self.inner.submit(reactor, request),
            _ => self.done.push_back(request.refuse(Failure::MediaRead)),
        }
    }

    fn mark(&mut self, reactor: &mut Reactor, tag: u64, slba: u64, nlb: u32) {
        let (start, end) = (slba, slba.saturating_add(u64::from(nlb)));
        let (fits, change) = self.shared.change(|marks| start >= end || marks.mark(start, end));
        let result = fits.then_some(()).ok_or(Failure::NoSpace);
        self.changed(reactor, change, RequestCompletion { tag, result, buffer: None });
    }

    /// A request is done, as far as the device and the marks in memory are concerned.
    fn changed(&mut self, reactor: &mut Reactor, change: u64, done: RequestCompletion) {
        match &self.saver {
            Some(saver) if done.result.is_ok() => {
                // The thread ends with the last sender.
                let _ = saver.send(());
                self.saving.push_back((change, done));
                reactor.set_timer(self.timer, reactor.now() + LOOK);
            }
            _ => self.done.push_back(done),
        }
    }

    /// Completes what is in the file.
    fn complete_saved(&mut self, reactor: &mut Reactor) {
        let tried = self.shared.tried.load(Acquire);
        let saved = self.shared.saved.load(Acquire);
        while self.saving.front().is_some_and(|(change, _)| *change <= tried)
            && let Some((change, mut done)) = self.saving.pop_front()
        {
            if change > saved {
                done.result = Err(Failure::MediaWrite);
            }
            self.done.push_back(done);
        }
        if !self.saving.is_empty() {
            reactor.set_timer(self.timer, reactor.now() + LOOK);
        }
    }

    /// Takes what the device has completed.
    fn collect(&mut self, reactor: &mut Reactor) {
        if self.clearing.is_empty() {
            return;
        }
        while let Some(mut done) = self.inner.poll_completion() {
            let Some(Clearing { tag, slba, nlb }) = self.clearing.take(done.tag) else {
                self.done.push_back(done);
                continue;
            };
            done.tag = tag;
            match done.result {
                Ok(()) => {
                    let end = slba.saturating_add(u64::from(nlb));
                    let (fits, change) = self.shared.change(|marks| marks.clear(slba, end));
                    done.result = fits.then_some(()).ok_or(Failure::NoSpace);
                    self.changed(reactor, change, done);
                }
                Err(_) => self.done.push_back(done),
            }
        }
    }
}

impl BlockDevice for UncorrectableDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, reactor: &mut Reactor, request: Request) {
        let marks = matches!(request.operation, Operation::WriteUncorrectable { .. });
        match marks || self.shared.count.load(Acquire) != 0 {
            true => self.submit_marked(reactor, request),
            false => self.inner.submit(reactor, request),
        }
    }

    fn prefetch_hint(&mut self, block: u64, blocks: u32) {
        self.inner.prefetch_hint(block, blocks);
    }

    fn handle(&mut self, reactor: &mut Reactor, completion: weft_reactor::ReactorCompletion) {
        match completion.token == self.timer {
            true => self.complete_saved(reactor),
            false => self.inner.handle(reactor, completion),
        }
        self.collect(reactor);
    }

    fn flush(&mut self, reactor: &mut Reactor) {
        self.inner.flush(reactor);
        self.collect(reactor);
        self.geometry = with_capability(*self.inner.geometry());
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop_front().or_else(|| {
            // Those of writes to marked blocks are taken where the reactor is at hand.
            if self.clearing.is_empty() { self.inner.poll_completion() } else { None }
        })
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.saving.len() + self.done.len()
    }

    fn close(&mut self, reactor: &mut Reactor) {
        self.closed = true;
        self.inner.close(reactor);
        self.collect(reactor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(marks: &Marks) -> String {
        let ranges: Vec<_> = marks.ranges.iter().map(|(first, last)| (*first, *last)).collect();
        text_of(&ranges, 512)
    }

    proptest! {
        /// Ranges are what a bit for each block would be, however they are marked and cleared.
        #[test]
        fn ranges_are_sets_of_blocks(
            steps in proptest::collection::vec((any::<bool>(), 0..64_usize, 1..20_usize), 1..60)
        ) {
            let (mut marks, mut blocks) = (Marks::default(), [false; 100]);
            for (mark, start, count) in steps {
                let end = start + count;
                match mark {
                    true => prop_assert!(marks.mark(start as u64, end as u64)),
                    false => prop_assert!(marks.clear(start as u64, end as u64)),
                }
                blocks[start..end].fill(mark);
                for (block, is_marked) in (0..).zip(blocks) {
                    prop_assert_eq!(marks.overlap(block, block + 1), is_marked, "{}", block);
                }
                let touching = marks.ranges.values().any(|end| marks.ranges.contains_key(end));
                prop_assert!(!touching, "{:?}", marks.ranges);
                let read = Marks::parse(&text(&marks), 512).expect("what was written");
                prop_assert_eq!(&read.ranges, &marks.ranges);
            }
        }
    }

    #[test]
    fn there_is_a_limit() {
        let mut marks = Marks::default();
        for range in 0..RANGES_MAX as u64 {
            assert!(marks.mark(range * 2, range * 2 + 1));
        }
        let before = marks.ranges.clone();
        assert!(!marks.mark(u64::MAX - 1, u64::MAX));
        assert_eq!(marks.ranges, before);
        assert!(marks.mark(1, 2), "it joins two");
        assert!(marks.mark(u64::MAX - 1, u64::MAX));
    }

    /// What is kept can be read again, however many writes go to the middle of ranges.
    #[test]
    fn ranges_that_writes_split_are_limited_too() {
        let mut marks = Marks::default();
        assert!(marks.mark(0, 4 * RANGES_MAX as u64));
        let cleared = (0..2 * RANGES_MAX as u64).filter(|at| marks.clear(at * 2 + 1, at * 2 + 2));
        assert_eq!(
            cleared.count(),
            RANGES_MAX,
            "until it is full, and the last block, which splits none"
        );
        assert!(Marks::parse(&text(&marks), 512).is_some(), "{} ranges", marks.ranges.len());
        let (before, end) = (marks.ranges.clone(), 4 * RANGES_MAX as u64);
        assert!(!marks.clear(end - 8, end - 7));
        assert_eq!(marks.ranges, before);
        assert!(marks.clear(end - 8, end), "it only becomes shorter");
        assert!(marks.clear(0, 1) && marks.clear(end - 16, end - 15), "there is one fewer");
    }

    #[test]
    fn places_of_writes_are_there_as_long_as_the_writes() {
        let mut writes = InFlight::default();
        let add = |writes: &mut InFlight, tag| writes.add(Clearing { tag, slba: 0, nlb: 1 });
        let tags: Vec<_> = (0..64).map(|tag| add(&mut writes, tag)).collect();
        assert!(writes.take(5).is_none(), "the tag of another request");
        for (tag, own) in (0..63).zip(&tags) {
            assert_eq!(writes.take(*own).map(|write| write.tag), Some(tag));
            assert!(writes.take(*own).is_none(), "once");
        }
        assert_eq!(add(&mut writes, 99), tags[0], "the first free one");
        assert!(writes.take(tags[63]).is_some());
        assert_eq!(writes.0.len(), 1, "only what is in flight");
        assert!(writes.take(tags[0]).is_some() && writes.is_empty());
    }

    #[test]
    fn what_is_no_list_of_marks_is_refused() {
        let good = text(&Marks::default());
        assert!(Marks::parse(&good, 512).is_some());
        assert!(Marks::parse(&good, 4096).is_none(), "of other blocks");
        for line in ["1", "1 0\n", "1 x\n", "18446744073709551615 2\n", "1 2"] {
            assert!(Marks::parse(&format!("{good}{line}"), 512).is_none(), "{line:?}");
        }
        assert!(Marks::parse("", 512).is_none());
    }
}
