//! What the fuzz targets of `fuzz/` run, on a stable compiler and for a moment: the committed
//! corpus, changed in small ways from a seed, and bytes from the same seed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_reactor::monotonic_time;

/// Inputs that are made up for each target, half of them from its corpus.
const INPUTS: usize = 10_000;

/// A target that has used up this much time has been run long enough.
const TIME_MAX: Duration = Duration::from_secs(4);

/// Longest input that is made up.
const LENGTH_MAX: usize = 2048;

/// Takes any input, and panics if an invariant is broken.
type Harness = fn(&[u8]);

/// Every fuzz target, by the name of its file.
const TARGETS: [(&str, Harness); 17] = [
    ("auth_concatenation", weft_nvmf::auth::fuzzing::strange_concatenation),
    ("auth_controller", weft_nvmf::auth::fuzzing::strange_host),
    ("auth_host", weft_nvmf::auth::fuzzing::strange_controller),
    ("auth_message", weft_nvmf::auth::fuzzing::message),
    ("client_hello", weft_transport::tls::fuzzing::client_hello),
    ("config", weft_target::config::fuzzing::config),
    ("controller", weft_nvmf::controller::fuzzing::actions),
    ("framing", weft_nvmf::tcp::fuzzing::framing),
    ("host_association", weft_nvmf::host::fuzzing::run_association),
    ("host_discovery", weft_nvmf::host::fuzzing::run_discovery),
    ("host_request_table", weft_nvmf::host::fuzzing::run_request_table),
    ("host_session", weft_nvmf::tcp::fuzzing::host_session),
    ("key", weft_nvmf::keys::fuzzing::key),
    ("queue", weft_nvmf::queue::fuzzing::actions),
    ("target_session", weft_nvmf::tcp::fuzzing::target_session),
    ("tls_identity", weft_nvmf::keys::fuzzing::identity),
    ("tls_key_update", weft_transport::tls::fuzzing::key_update),
];

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits")
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        // Small numbers are what counts and lengths are.
        let [low, high, ..] = self.next().to_le_bytes();
        if high < 128 { low } else { low % 8 }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = if self.below(4) == 0 { self.below(LENGTH_MAX) } else { self.below(64) };
        (0..length).map(|_| self.byte()).collect()
    }

    /// Something like `input`, and perhaps like `other`.
    fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(changed.len() + 1);
            match self.below(5) {
                0 => changed.truncate(at),
                1 => changed.insert(at, self.byte()),
                2 => changed.extend_from_slice(other.get(self.below(other.len())..).unwrap_or(&[])),
                3 => drop(changed.drain(at..(at + self.below(8)).min(changed.len()))),
                _ => {
                    if let Some(byte) = changed.get_mut(at) {
                        *byte = self.byte();
                    }
                }
            }
        }
        changed.truncate(LENGTH_MAX);
        changed
    }
}

/// Says which input it was, if that is the last one.
struct Suspect<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: the input was {:02x?}", self.target, self.input);
        }
    }
}

fn run(target: &str, harness: Harness, input: &[u8]) {
    let _suspect = Suspect { target, input };
    harness(input);
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(name)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder("corpus").join(target))
        .expect("a corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    // In an order that is the same everywhere.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("an input")).collect()
}

fn smoke(target: &str, harness: Harness, seed: u64) {
    let inputs = corpus(target);
    assert!(!inputs.is_empty(), "{target} has no corpus");
    for input in &inputs {
        run(target, harness, input);
    }
    let mut random = Random(seed);
    let began = monotonic_time();
    let mut made_up = 0;
    while made_up < INPUTS && monotonic_time() - began < TIME_MAX {
        let input = match made_up % 2 {
            0 => random.bytes(),
            _ => {
                let [one, other] = [(); 2].map(|()| &inputs[random.below(inputs.len())]);
                random.change(one, other)
            }
        };
        run(target, harness, &input);
        made_up += 1;
    }
    assert!(made_up > 0);
    println!("{target}: {} inputs of the corpus and {made_up} others", inputs.len());
}

#[test]
fn every_fuzz_harness_passes_a_short_run() {
    std::thread::scope(|scope| {
        let halves = TARGETS.split_at(TARGETS.len() / 2);
        for half in [halves.0, halves.1] {
            scope.spawn(move || {
                for ((target, harness), seed) in half.iter().zip(0x5eed_u64..) {
                    smoke(target, *harness, seed);
                }
            });
        }
    });
}

/// The list above and the folder say the same.
#[test]
fn every_fuzz_target_is_here() {
    let mut there: Vec<_> = std::fs::read_dir(folder("fuzz_targets"))
        .expect("fuzz targets")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    there.sort();
    assert_eq!(there, TARGETS.map(|(name, _)| name));
}
