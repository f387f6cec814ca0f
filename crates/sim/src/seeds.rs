//! The seeds that a test runs.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// The seeds that are run unless `WEFT_SEEDS` says others.
const USUAL: Range<u64> = 0..400;
/// Those of scenes that take longer than others.
const USUAL_OF_LONG: Range<u64> = 0..40;

/// The seeds of `WEFT_SEEDS=FROM..TO`, if it is there.
fn chosen() -> Option<Range<u64>> {
    let of = std::env::var("WEFT_SEEDS").ok()?;
    let (from, to) = of.split_once("..").expect("WEFT_SEEDS=FROM..TO");
    let number_of = |text: &str| text.parse::<u64>().expect("WEFT_SEEDS has numbers");
    Some(number_of(from)..number_of(to))
}

/// One of so many parts, which run at the same time, of the seeds to be run: 400, or those of
/// `WEFT_SEEDS=FROM..TO`.
///
/// # Panics
/// `WEFT_SEEDS` is not a range of numbers.
#[must_use]
pub fn seeds(part: u64, parts: u64) -> Range<u64> {
    part_of(&chosen().unwrap_or(USUAL), part, parts)
}

fn part_of(all: &Range<u64>, part: u64, parts: u64) -> Range<u64> {
    let at = |part: u64| all.start + all.end.saturating_sub(all.start) * part / parts;
    at(part)..at(part + 1)
}

/// Runs a tenth of the usual seeds, or all of `WEFT_SEEDS`, in two halves at the same time.
///
/// # Panics
/// Some of them have failed; the message says which, and how many. `WEFT_SEEDS` is not a range of
/// numbers.
pub fn run_a_tenth(run: impl Fn(u64) + Sync) {
    let all = chosen().unwrap_or(USUAL_OF_LONG);
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed))).is_err();
    let half = |number| part_of(&all, number, 2).filter(fails).collect::<Vec<_>>();
    let failed = thread::scope(|threads| {
        let first = threads.spawn(|| half(0));
        let second = half(1);
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
