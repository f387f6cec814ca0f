//! How fast the TLS library's AES-GCM alone is on one processor: it seals records of 16 KiB, as TLS
//! does of data that is sent, without a socket and without a copy.
//!
//! ```text
//! taskset -c 1 cargo run --release -p weft-transport --features aead --example seal [PLAIN]
//! ```
//!
//! With PLAIN, what a load moves without TLS in GB/s, it says as well what is to be expected with
//! TLS if its one processor at each end does nothing else at the same time: 1 ÷ (1 ÷ plain + 1 ÷
//! alone), of which docs/security.md has 0.70 as the bar.

use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use weft_reactor::monotonic_time;

const RECORD_BYTES: usize = 16 * 1024;

/// The suites take turns, so many times, this long each.
const ROUNDS: usize = 15;
const TIME: Duration = Duration::from_millis(200);

fn main() {
    let plain =
        std::env::args().nth(1).map(|plain| plain.parse().expect("PLAIN in GB/s, like 8.0"));
    let suites = [("AES-128-GCM", &AES_128_GCM), ("AES-256-GCM", &AES_256_GCM)];
    let mut samples = suites.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (samples, (_, algorithm)) in samples.iter_mut().zip(suites) {
            samples.push(gigabytes(algorithm));
        }
    }
    for (mut samples, (name, _)) in samples.into_iter().zip(suites) {
        samples.sort_by(f64::total_cmp);
        let median = samples[ROUNDS / 2];
        let (least, most) = (samples[0], samples[ROUNDS - 1]);
        print!("{name}: {median:.2} GB/s [{least:.2} to {most:.2}]");
        match plain {
            Some(plain) => println!(", expected {:.2} GB/s", expected(plain, median)),
            None => println!(),
        }
    }
}

fn expected(plain: f64, alone: f64) -> f64 {
    (plain.recip() + alone.recip()).recip()
}

/// What is sealed in a second.
fn gigabytes(algorithm: &'static Algorithm) -> f64 {
    let key = UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).expect("a key");
    let key = LessSafeKey::new(key);
    let mut record = vec![1; RECORD_BYTES];
    // A record's header.
    let header = [0x17, 3, 3, 0x40, 0x11];
    let (start, mut records) = (monotonic_time(), 0u64);
    while monotonic_time() - start < TIME {
        for _ in 0..16 {
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&records.to_be_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut record);
            let _ = std::hint::black_box(tag.expect("sealed"));
            records += 1;
        }
    }
    let bytes = records * RECORD_BYTES as u64;
    bytes as f64 / (monotonic_time() - start).as_secs_f64() / 1e9
}
