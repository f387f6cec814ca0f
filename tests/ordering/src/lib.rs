//! Modules of the crates with loom's atomics in place of the standard library's, and models of
//! threads that use them. Loom runs a model once for every order in which its threads can run and
//! for every value that a load may return by the memory model of C11, those of Arm among them,
//! except that it has no order of all sequentially consistent accesses.
//!
//! The modules are the files of the crates: whatever changes there is checked here.

// The tests of the modules would run outside loom's models.
#![cfg(not(test))]

use std::sync::Arc;
use std::time::Duration;

use loom::thread::{self, JoinHandle};

use bucket::{Bucket, BucketShare};
use exclusion::{DrainState, Exclusion, Stripes};
use mailbox::Waker;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU32, AtomicU64};

/// What the modules take from here, as from `sync` in their crates.
mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use loom::{hint, thread};
}

#[path = "../../../crates/subsystem/src/shared/bucket.rs"]
#[expect(dead_code, reason = "a model uses a part of it")]
mod bucket;
#[path = "../../../crates/backend/src/exclusion.rs"]
#[expect(dead_code, reason = "a model uses a part of it")]
mod exclusion;
#[path = "../../../crates/reactor/src/mailbox.rs"]
#[expect(unreachable_pub, reason = "the crate has it in its interface")]
#[expect(dead_code, reason = "a model uses a part of it")]
mod mailbox;
#[path = "../../../crates/nvmf/src/queue/record.rs"]
mod record;
#[path = "../../../crates/reactor/src/region/version.rs"]
mod version;

/// Explores all orders with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("a thread of the model has panicked");
}

/// A reactor that sleeps is woken for every message that it has not taken.
pub fn a_reactor_that_sleeps_is_woken() {
    explore(3, || {
        let waker = Waker::new().expect("an eventfd");
        let (sender, mailbox) = mailbox::mailbox(waker.clone());
        let senders = [1, 2].map(|message| {
            let sender = sender.clone();
            thread::spawn(move || sender.post(message))
        });
        let mut taken = 0;
        let mut sleeps = false;
        // Each turn without a sleep takes a message at least.
        for _ in 0..3 {
            waker.take_pending();
            taken += std::iter::from_fn(|| mailbox.take()).count();
            sleeps = waker.begin_sleep();
            if sleeps {
                break;
            }
        }
        assert!(sleeps, "the reactor is awake without messages");
        senders.into_iter().for_each(join);
        let mut counter = [0; 8];
        let is_woken = rustix::io::read(waker.descriptor().expect("an eventfd"), &mut counter);
        assert!(taken == 2 || is_woken.is_ok(), "the reactor sleeps, {taken} messages are taken");
        waker.end_sleep();
        taken += std::iter::from_fn(|| mailbox.take()).count();
        assert_eq!(taken, 2);
    });
}

/// Two words of a device, each written by itself.
#[derive(Debug, Default)]
struct Blocks([AtomicU32; 2]);

impl Blocks {
    fn write(&self, value: u32) {
        self.0.iter().for_each(|word| word.store(value, Relaxed));
    }

    fn read(&self) -> u32 {
        let [one, two] = [&self.0[0], &self.0[1]].map(|word| word.load(Relaxed));
        assert_eq!(one, two, "a write overlaps");
        one
    }
}

/// A write and a compare-and-write of the same blocks do not overlap, and the later one finds what
/// the earlier one has written.
pub fn writes_do_not_overlap_a_compare_and_write() {
    explore(3, || {
        let blocks = Arc::new(Blocks::default());
        let exclusion = Arc::new(Exclusion::new());
        let [writer, excluder] = [0, 1].map(|_| exclusion.open().expect("a handle"));
        let stripes = Stripes::of(0, 4096);
        let written = Arc::clone(&blocks);
        let thread = thread::spawn(move || {
            if let Some(write) = writer.begin_write(stripes) {
                written.read();
                written.write(1);
                writer.end_write(write);
            }
        });
        if let Some(excluded) = excluder.exclude(stripes) {
            if excluder.drain_state(&excluded) == DrainState::Drained {
                let before = blocks.read();
                blocks.write(before + 2);
                assert_eq!(blocks.read(), before + 2);
            }
            excluder.release(excluded);
        }
        join(thread);
        blocks.read();
    });
}

/// Of two compare-and-writes one excludes the other.
pub fn compare_and_writes_exclude_each_other() {
    explore(3, || {
        let blocks = Arc::new(Blocks::default());
        let exclusion = Arc::new(Exclusion::new());
        // Loom does not know that a handle's counts are initialized once.
        let [one, two] = [0, 1].map(|_| exclusion.open().expect("a handle"));
        let stripes = Stripes::of(0, 4096);
        let add = move |blocks: &Blocks, handle: &exclusion::Handle| {
            let Some(excluded) = handle.exclude(stripes) else { return };
            blocks.write(blocks.read() + 1);
            handle.release(excluded);
        };
        let theirs = Arc::clone(&blocks);
        let thread = thread::spawn(move || add(&theirs, &one));
        add(&blocks, &two);
        join(thread);
        assert!(blocks.read() > 0, "nobody has written");
    });
}

/// A reader of a region has a block as before or as after a write.
pub fn a_block_is_read_whole() {
    explore(3, || {
        let block = Arc::new((AtomicU32::new(0), Blocks::default()));
        let theirs = Arc::clone(&block);
        let thread = thread::spawn(move || {
            let before = version::lock(&theirs.0);
            theirs.1.write(1);
            version::unlock(&theirs.0, before.wrapping_add(2));
        });
        let mut words = [0; 2];
        version::read(&block.0, || {
            words = [&block.1.0[0], &block.1.0[1]].map(|word| word.load(Relaxed));
        });
        assert_eq!(words[0], words[1], "the block is mixed");
        join(thread);
    });
}

/// Two writers of a block of a region exclude each other.
pub fn writers_of_a_block_exclude_each_other() {
    explore(3, || {
        let block = Arc::new((AtomicU32::new(0), Blocks::default()));
        let add = |(number, data): &(AtomicU32, Blocks)| {
            let before = version::lock(number);
            data.write(data.read() + 1);
            version::unlock(number, before.wrapping_add(2));
        };
        let theirs = Arc::clone(&block);
        let thread = thread::spawn(move || add(&theirs));
        add(&block);
        join(thread);
        assert_eq!((block.1.read(), block.0.load(Relaxed)), (2, 4));
    });
}

/// A record of the error log is that of one writer.
pub fn a_record_is_of_one_writer() {
    explore(3, || {
        let record = Arc::new(record::Record::<2>::default());
        let writers = [1, 2].map(|value| {
            let record = Arc::clone(&record);
            thread::spawn(move || record.write([value; 2]))
        });
        if let Some([one, two]) = record.read() {
            assert_eq!(one, two, "the record is mixed");
        }
        writers.into_iter().for_each(join);
        assert!(record.read().is_some_and(|[one, two]| one == two && one != 0));
    });
}

/// Groups that take from one bucket at the same time are admitted no more than its burst.
pub fn groups_share_a_rate() {
    explore(3, || {
        let now = Duration::from_secs(10);
        let bucket = Arc::new(Bucket::new(1000, Duration::from_millis(1), 2));
        let admitted = Arc::new(AtomicU64::new(0));
        let take = move |group, bucket: &Bucket, admitted: &AtomicU64| {
            let mut lease = BucketShare::new(group);
            for _ in 0..2 {
                if bucket.take(&mut lease, 1, now).is_ok() {
                    admitted.fetch_add(1, Relaxed);
                }
            }
        };
        let (theirs, count) = (Arc::clone(&bucket), Arc::clone(&admitted));
        let thread = thread::spawn(move || take(1, &theirs, &count));
        take(0, &bucket, &admitted);
        join(thread);
        // The burst is one command, two groups may be late by three quarters of 1 ms, and one
        // command is admitted that begins within that.
        assert_eq!(admitted.load(Relaxed), 3);
    });
}
