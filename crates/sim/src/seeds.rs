//! The seeds that a test runs.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// What of all seeds is run unless `WEFT_SEEDS` says others.
const USUAL: &str = "0..1000";

/// One of so many parts, which run at the same time, of the seeds to be run: a thousand, or those
/// of `WEFT_SEEDS=FROM..TO`.
///
/// # Panics
/// `WEFT_SEEDS` is not a range of numbers.
#[must_use]
pub fn seeds(part: u64, parts: u64) -> Range<u64> {
    let of = std::env::var("WEFT_SEEDS").unwrap_or_else(|_| USUAL.to_owned());
    let (from, to) = of.split_once("..").expect("WEFT_SEEDS=FROM..TO");
    let number_of = |text: &str| text.parse::<u64>().expect("WEFT_SEEDS has numbers");
    let (from, to) = (number_of(from), number_of(to));
    let at = |part: u64| from + to.saturating_sub(from) * part / parts;
    at(part)..at(part + 1)
}

/// Of the seeds one of so many parts for each of the two threads that run them at the same time: a
/// tenth of all, for scenes that take longer than others.
const PARTS_OF_LONG: u64 = 20;

/// Runs a tenth of the seeds.
///
/// # Panics
/// Some of them have failed; the message says which, and how many.
pub fn run_a_tenth(run: impl Fn(u64) + Sync) {
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed))).is_err();
    let part = |number| seeds(number, PARTS_OF_LONG).filter(fails).collect::<Vec<_>>();
    let failed = thread::scope(|threads| {
        let first = threads.spawn(|| part(0));
        let second = part(1);
        [first.join().expect("it counts"), second].concat()
    });
    let some = &failed[..failed.len().min(20)];
    assert!(failed.is_empty(), "{} seeds fail, among them {some:?}", failed.len());
}

/// Says which seed it was, if its run panics.
#[derive(Debug)]
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The output of a test, which shows it if the test fails.
            println!("the seed of this run is {}", self.0);
        }
    }
}
