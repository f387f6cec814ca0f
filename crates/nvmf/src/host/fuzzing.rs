//! Action sequences against the host core, for property tests and fuzzers alike.
//!
//! Each harness reads its actions from bytes, so that any input is a run, and panics where an
//! invariant does not hold. All of them are deterministic.

mod association;
pub(crate) mod peer;
mod request_table;

pub use association::run_association;
#[cfg(test)]
pub(crate) use association::{AssociationRun, config};
pub use request_table::run_request_table;

use super::discovery::{DiscoveryReader, transport_id};
use weft_nvme::{Completion, Status};

/// Reads choices from fuzz input; zeros at its end.
#[derive(Debug)]
pub(crate) struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }
}

/// Reads a discovery log from arbitrary answers. Checks that the reader comes to an end.
pub fn run_discovery(answers: &[u8]) {
    let mut fuzz_input = FuzzInput::new(answers);
    let mut reader = DiscoveryReader::new();
    let mut commands = 0;
    while reader.poll_command().is_some() {
        commands += 1;
        assert!(commands < 100_000, "the reader never ends");
        let status = match fuzz_input.below(16) {
            0 => Status::INTERNAL_ERROR,
            _ => Status::SUCCESS,
        };
        let mut data = vec![0; [1024, 4096, 1023, 0][fuzz_input.below(4)]];
        // Generation, records and the first bytes of an entry are where the input matters.
        for place in data.iter_mut().take(10) {
            *place = if fuzz_input.below(4) == 0 { fuzz_input.byte() } else { 0 };
        }
        if reader.handle_completion(&Completion::new(0, status), &data).is_err() {
            return;
        }
    }
    let log = reader.finish().expect("the reader has no further command");
    for entry in &log.entries {
        if let Ok(id) = transport_id(entry) {
            assert!(!id.to_string().is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_discovery_log_ends(answers in proptest::collection::vec(any::<u8>(), 0..600)) {
            run_discovery(&answers);
        }
    }
}
