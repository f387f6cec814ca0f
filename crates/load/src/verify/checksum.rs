//! The checksums that fio's verify headers carry, as fio computes them on x86-64 and arm64.

use crc_fast::{CrcAlgorithm, Digest as CrcDigest};
use md5::{Digest, Md5};

/// Which checksum a block's header carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC32C.
    #[default]
    Crc32c,
    /// MD5.
    Md5,
    /// What fio calls SHA-256: it counts the length in another byte order, and stores the lowest
    /// byte of each word and then the rest of the last padded block.
    Sha256,
    /// XXH32 with seed 1.
    Xxhash,
}

/// Bytes of the longest checksum.
const BYTES_MAX: usize = 64;

/// A block of SHA-256.
const SHA_BLOCK: usize = 64;

impl Checksum {
    /// fio's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Xxhash => "xxhash",
        }
    }

    /// fio's number in a header.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Md5 => 2,
            Self::Crc32c => 5,
            Self::Sha256 => 9,
            Self::Xxhash => 15,
        }
    }

    /// How long it is in a header.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Crc32c | Self::Xxhash => 4,
            Self::Md5 => 16,
            Self::Sha256 => BYTES_MAX,
        }
    }

    /// The checksum of a payload; as many bytes as it has count.
    pub(super) fn of(self, payload: &[u8]) -> [u8; BYTES_MAX] {
        let mut sum = [0; BYTES_MAX];
        match self {
            Self::Crc32c => sum[..4].copy_from_slice(&fio_crc32c(payload).to_le_bytes()),
            Self::Xxhash => sum[..4].copy_from_slice(&xxh32(payload, 1).to_le_bytes()),
            Self::Md5 => sum[..16].copy_from_slice(&Md5::digest(payload)),
            Self::Sha256 => sum = fio_sha256(payload),
        }
        sum
    }
}

/// CRC32C as everybody computes it.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut digest = CrcDigest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(bytes);
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// CRC32C as fio computes it: without the final inversion.
pub(super) fn fio_crc32c(bytes: &[u8]) -> u32 {
    !crc32c(bytes)
}

fn fio_sha256(payload: &[u8]) -> [u8; SHA_BLOCK] {
    // The initial state of SHA-256.
    let mut state = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let (whole, rest) = payload.as_chunks::<SHA_BLOCK>();
    for block in whole {
        sha2::compress256(&mut state, &[(*block).into()]);
    }
    let mut last = [0; SHA_BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    if rest.len() >= SHA_BLOCK - 8 {
        sha2::compress256(&mut state, &[last.into()]);
        last = [0; SHA_BLOCK];
    }
    last[SHA_BLOCK - 8..].copy_from_slice(&(payload.len() as u64 * 8).to_le_bytes());
    sha2::compress256(&mut state, &[last.into()]);
    for (byte, word) in last.iter_mut().zip(state) {
        *byte = word.to_le_bytes()[0];
    }
    last
}

/// XXH32, of the specification of xxHash.
fn xxh32(bytes: &[u8], seed: u32) -> u32 {
    const P1: u32 = 0x9e37_79b1;
    const P2: u32 = 0x85eb_ca77;
    const P3: u32 = 0xc2b2_ae3d;
    const P4: u32 = 0x27d4_eb2f;
    const P5: u32 = 0x1656_67b1;
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut hash = seed.wrapping_add(P5);
    if !stripes.is_empty() {
        let mut lanes = [
            seed.wrapping_add(P1).wrapping_add(P2),
            seed.wrapping_add(P2),
            seed,
            seed.wrapping_sub(P1),
        ];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
                let input = u32::from_le_bytes(*word).wrapping_mul(P2);
                *lane = lane.wrapping_add(input).rotate_left(13).wrapping_mul(P1);
            }
        }
        let rotated = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        hash = rotated.fold(0, u32::wrapping_add);
    }
    let [a, b, c, d, ..] = (bytes.len() as u64).to_le_bytes();
    hash = hash.wrapping_add(u32::from_le_bytes([a, b, c, d]));
    let (words, bytes) = rest.as_chunks::<4>();
    for word in words {
        let input = u32::from_le_bytes(*word).wrapping_mul(P3);
        hash = hash.wrapping_add(input).rotate_left(17).wrapping_mul(P4);
    }
    for byte in bytes {
        let input = u32::from(*byte).wrapping_mul(P5);
        hash = hash.wrapping_add(input).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(P3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of xxHash's own description, and of RFC 3720 for CRC32C.
    #[test]
    fn known_inputs_have_known_sums() {
        assert_eq!(xxh32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxh32(b"a", 0), 0x550d_7456);
        assert_eq!(xxh32(b"abc", 0), 0x32d1_53ff);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition", 0), 0xe229_3b2f);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(Checksum::Md5.of(b"abc")[..4], [0x90, 0x01, 0x50, 0x98]);
    }

    /// Lengths at which the padding takes another block, or none.
    #[test]
    fn every_length_has_a_sum_of_its_own() {
        let bytes: Vec<u8> = (0..200).collect();
        for checksum in [Checksum::Crc32c, Checksum::Md5, Checksum::Sha256, Checksum::Xxhash] {
            let mut sums: Vec<[u8; BYTES_MAX]> =
                (0..bytes.len()).map(|length| checksum.of(&bytes[..length])).collect();
            assert!(sums.iter().all(|sum| sum[checksum.bytes()..].iter().all(|byte| *byte == 0)));
            sums.sort_unstable();
            sums.dedup();
            assert_eq!(sums.len(), bytes.len(), "{}", checksum.name());
        }
    }
}
