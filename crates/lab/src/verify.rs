//! Blocks that can be recognised.
//!
//! Every block that is written begins with a header (which run, which place, which write of that
//! place, CRC32C of the whole) and goes on with bytes that follow from the same three. So each byte
//! of a block that is read back can be computed, and a fault is not only noticed but told: a
//! flipped byte with its offset, an older write, a block that belongs elsewhere, nothing at all.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

use crate::{limits::FAULTS_DESCRIBED, random::split_mix};

/// "weftlab1", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"weftlab1");

/// Magic, seed, offset and generation of 8 bytes each, length and checksum of 4.
const HEADER_BYTES: usize = 40;

/// Where the checksum lies in the header.
const CHECKSUM_AT: usize = 36;

/// What determines a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The run's seed.
    pub seed: u64,
    /// The block's place on the device, in bytes.
    pub offset: u64,
    /// Which write of that place, counted from 1.
    pub generation: u64,
}

/// Fills a block (of at least 512 bytes) with what an identity says.
pub fn fill(block: &mut [u8], identity: Identity) {
    if block.len() < HEADER_BYTES {
        return;
    }
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    header[8..16].copy_from_slice(&identity.seed.to_le_bytes());
    header[16..24].copy_from_slice(&identity.offset.to_le_bytes());
    header[24..32].copy_from_slice(&identity.generation.to_le_bytes());
    header[32..36].copy_from_slice(&length.to_le_bytes());
    let (head, payload) = block.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header);
    let start = split_mix(identity.seed ^ split_mix(identity.offset ^ identity.generation << 48));
    let mut counter = start ^ identity.generation;
    for word in payload.chunks_mut(8) {
        let bytes = split_mix(counter).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
        counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    let checksum = checksum(block);
    block[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks a block against what was written last, or, where that is not known (`generation` 0),
/// against its own header. `scratch` is room for a block.
///
/// # Errors
/// What is wrong with it.
pub fn check(block: &[u8], expected: Identity, scratch: &mut Vec<u8>) -> Result<(), Fault> {
    let found = header_of(block);
    let identity = match (expected.generation, found) {
        (0, Some(found)) => Identity { offset: expected.offset, ..found },
        (0, None) => return Err(Fault::unknown(block, expected)),
        _ => expected,
    };
    if found == Some(identity) && stored_checksum(block) == Some(checksum(block)) {
        return Ok(());
    }
    scratch.clear();
    scratch.resize(block.len(), 0);
    fill(scratch, identity);
    Err(Fault::between(scratch, block, identity, found))
}

/// Fills a block with the same bytes again and again.
pub fn fill_pattern(block: &mut [u8], pattern: &[u8]) {
    for (byte, pattern) in block.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *pattern;
    }
}

/// Checks a block at this offset of the device that [`fill_pattern`] has filled.
///
/// # Errors
/// What is wrong with it.
pub fn check_pattern(
    block: &[u8],
    offset: u64,
    pattern: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    scratch.clear();
    scratch.resize(block.len(), 0);
    fill_pattern(scratch, pattern);
    if scratch == block {
        return Ok(());
    }
    let identity = Identity { seed: 0, offset, generation: 0 };
    Err(Fault::between(scratch, block, identity, None))
}

/// What is wrong with a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Offset on the device of the block.
    pub block_offset: u64,
    /// Offset on the device of the first wrong byte.
    pub byte_offset: u64,
    /// What should be there, if that can be known, and what is.
    pub expected: Option<u8>,
    /// What is there.
    pub got: u8,
    /// How many bytes of the block are wrong.
    pub wrong_bytes: u64,
    /// The checksum that the block should have (of its expected contents) and has.
    pub checksums: (Option<u32>, u32),
    /// What it looks like.
    pub kind: FaultKind,
}

/// What a fault looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Some bytes differ.
    Corrupt,
    /// A sound block of an earlier (or later) write of this place.
    Generation(u64),
    /// A sound block that belongs elsewhere.
    Misplaced(u64),
    /// A sound block of another run.
    Foreign(u64),
    /// Nothing but zeroes.
    Zeroes,
    /// No header to begin with.
    NoHeader,
}

impl Fault {
    fn between(expected: &[u8], got: &[u8], identity: Identity, found: Option<Identity>) -> Self {
        let differing = || expected.iter().zip(got).enumerate().filter(|(_, (a, b))| a != b);
        let (at, bytes) =
            differing().next().map_or((0, (0, 0)), |(at, (expected, got))| (at, (*expected, *got)));
        let sound = found.filter(|_| stored_checksum(got) == Some(checksum(got)));
        let kind = match sound {
            Some(found) if found.seed != identity.seed => FaultKind::Foreign(found.seed),
            Some(found) if found.offset != identity.offset => FaultKind::Misplaced(found.offset),
            Some(found) if found.generation != identity.generation => {
                FaultKind::Generation(found.generation)
            }
            _ if got.iter().all(|byte| *byte == 0) => FaultKind::Zeroes,
            _ => FaultKind::Corrupt,
        };
        Self {
            block_offset: identity.offset,
            byte_offset: identity.offset + at as u64,
            expected: Some(bytes.0),
            got: bytes.1,
            wrong_bytes: differing().count() as u64,
            checksums: (Some(checksum(expected)), checksum(got)),
            kind,
        }
    }

    fn unknown(block: &[u8], expected: Identity) -> Self {
        let zero = block.iter().all(|byte| *byte == 0);
        let magic = MAGIC.to_le_bytes();
        let at = magic.iter().zip(block).position(|(a, b)| a != b).unwrap_or(0);
        Self {
            block_offset: expected.offset,
            byte_offset: expected.offset + at as u64,
            expected: magic.get(at).copied(),
            got: block.get(at).copied().unwrap_or(0),
            wrong_bytes: 0,
            checksums: (None, checksum(block)),
            kind: if zero { FaultKind::Zeroes } else { FaultKind::NoHeader },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block_offset, byte_offset, got, wrong_bytes, .. } = self;
        write!(f, "block at offset {block_offset}: ")?;
        match self.kind {
            FaultKind::Corrupt => write!(f, "{wrong_bytes} wrong bytes")?,
            FaultKind::Generation(found) => write!(f, "holds write {found} of this place")?,
            FaultKind::Misplaced(offset) => write!(f, "holds the block of offset {offset}")?,
            FaultKind::Foreign(seed) => write!(f, "holds a block of another run (seed {seed})")?,
            FaultKind::Zeroes => f.write_str("holds nothing but zeroes")?,
            FaultKind::NoHeader => f.write_str("was never written by a verified job")?,
        }
        match self.expected {
            Some(expected) => {
                write!(f, ", byte at {byte_offset} expected {expected:#04x} got {got:#04x}")?;
            }
            None => write!(f, ", byte at {byte_offset} is {got:#04x}")?,
        }
        match self.checksums {
            (Some(expected), got) => {
                write!(f, ", crc32c expected {expected:#010x} got {got:#010x}")
            }
            (None, got) => write!(f, ", crc32c {got:#010x}"),
        }
    }
}

/// What verification found in a lane or a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyResult {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Blocks that were wrong.
    pub faults: u64,
    /// The first of them, described.
    pub described: Vec<Fault>,
}

impl VerifyResult {
    /// Counts one comparison.
    pub fn note(&mut self, outcome: Result<(), Fault>) {
        self.blocks += 1;
        if let Err(fault) = outcome {
            self.faults += 1;
            if self.described.len() < FAULTS_DESCRIBED {
                self.described.push(fault);
            }
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.faults += other.faults;
        let room = FAULTS_DESCRIBED.saturating_sub(self.described.len());
        self.described.extend(other.described.iter().take(room).cloned());
    }
}

/// What one lane wrote where: the last generation of each block, and which are in flight.
#[derive(Debug)]
pub struct Ledger {
    generations: Vec<u32>,
    busy: Vec<bool>,
}

impl Ledger {
    /// Nothing written yet, over so many blocks.
    #[must_use]
    pub fn new(units: u64) -> Self {
        let units = usize::try_from(units).unwrap_or(usize::MAX);
        Self { generations: vec![0; units], busy: vec![false; units] }
    }

    /// The generation of the last write of a block, 0 if there was none.
    #[must_use]
    pub fn generation(&self, unit: u64) -> u64 {
        let found = usize::try_from(unit).ok().and_then(|unit| self.generations.get(unit));
        found.copied().map_or(0, u64::from)
    }

    /// The first block from `unit` on (going round, not far) that nothing is in flight on.
    #[must_use]
    pub fn free_from(&self, unit: u64) -> Option<u64> {
        let units = self.busy.len() as u64;
        (0..units.min(64))
            .map(|step| (unit + step) % units)
            .find(|unit| self.busy.get(usize::try_from(*unit).unwrap_or(0)) == Some(&false))
    }

    /// The first block from `unit` on that was written, without going round.
    #[must_use]
    pub fn written_from(&self, unit: u64) -> Option<u64> {
        let start = usize::try_from(unit).ok()?;
        let found = self.generations.get(start..)?.iter().position(|generation| *generation > 0)?;
        Some(unit + found as u64)
    }

    /// Begins a read of a block.
    pub fn begin(&mut self, unit: u64) {
        self.set_busy(unit, true);
    }

    /// Begins a write of a block: its new generation.
    pub fn begin_write(&mut self, unit: u64) -> u64 {
        self.set_busy(unit, true);
        let place = usize::try_from(unit).ok().and_then(|unit| self.generations.get_mut(unit));
        place.map_or(0, |generation| {
            *generation = generation.wrapping_add(1).max(1);
            u64::from(*generation)
        })
    }

    /// Ends whatever was in flight on a block.
    pub fn end(&mut self, unit: u64) {
        self.set_busy(unit, false);
    }

    fn set_busy(&mut self, unit: u64, busy: bool) {
        if let Some(place) = usize::try_from(unit).ok().and_then(|unit| self.busy.get_mut(unit)) {
            *place = busy;
        }
    }
}

fn checksum(block: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(block.get(..CHECKSUM_AT).unwrap_or(block));
    digest.update(block.get(HEADER_BYTES..).unwrap_or(&[]));
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn stored_checksum(block: &[u8]) -> Option<u32> {
    block.get(CHECKSUM_AT..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The identity in a block's header, if there is a header.
fn header_of(block: &[u8]) -> Option<Identity> {
    let word = |at: usize| block.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    (word(0)? == MAGIC).then_some(Identity {
        seed: word(8)?,
        offset: word(16)?,
        generation: word(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDENTITY: Identity = Identity { seed: 7, offset: 8192, generation: 3 };

    fn block(identity: Identity) -> Vec<u8> {
        let mut block = vec![0; 4096];
        fill(&mut block, identity);
        block
    }

    fn fault(block: &[u8], expected: Identity) -> Fault {
        check(block, expected, &mut Vec::new()).expect_err("a fault")
    }

    #[test]
    fn a_block_is_recognised() {
        let block = block(IDENTITY);
        assert_eq!(check(&block, IDENTITY, &mut Vec::new()), Ok(()));
        let unknown = Identity { seed: 0, generation: 0, ..IDENTITY };
        assert_eq!(check(&block, unknown, &mut Vec::new()), Ok(()));
    }

    #[test]
    fn places_writes_and_runs_differ() {
        let others = [
            Identity { seed: 8, ..IDENTITY },
            Identity { offset: 0, ..IDENTITY },
            Identity { generation: 4, ..IDENTITY },
        ];
        for other in others {
            let (a, b) = (block(IDENTITY), block(other));
            let equal = a[HEADER_BYTES..].iter().zip(&b[HEADER_BYTES..]).filter(|(a, b)| a == b);
            assert!(equal.count() < 64, "{other:?}");
        }
    }

    #[test]
    fn a_flipped_byte_is_told_with_its_offset() {
        for at in [0, 9, 17, 30, 34, 37, 40, 2000, 4095] {
            let good = block(IDENTITY);
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let fault = fault(&bad, IDENTITY);
            assert_eq!(fault.byte_offset, 8192 + at as u64);
            assert_eq!((fault.expected, fault.got), (Some(good[at]), bad[at]));
            assert_eq!((fault.wrong_bytes, fault.kind), (1, FaultKind::Corrupt), "{at}");
            let text = fault.to_string();
            assert!(text.starts_with("block at offset 8192: 1 wrong bytes, byte at "), "{text}");
        }
    }

    #[test]
    fn sound_blocks_in_the_wrong_place_or_time_are_told() {
        let kind = |identity| fault(&block(identity), IDENTITY).kind;
        assert_eq!(kind(Identity { generation: 2, ..IDENTITY }), FaultKind::Generation(2));
        assert_eq!(kind(Identity { offset: 4096, ..IDENTITY }), FaultKind::Misplaced(4096));
        assert_eq!(kind(Identity { seed: 9, ..IDENTITY }), FaultKind::Foreign(9));
        assert_eq!(fault(&[0; 4096], IDENTITY).kind, FaultKind::Zeroes);
    }

    #[test]
    fn where_the_last_write_is_not_known_the_header_is_believed() {
        let unknown = Identity { seed: 0, generation: 0, ..IDENTITY };
        let mut bad = block(IDENTITY);
        bad[100] ^= 1;
        assert_eq!(fault(&bad, unknown).byte_offset, 8292);
        assert_eq!(fault(&[0; 4096], unknown).kind, FaultKind::Zeroes);
        assert_eq!(fault(&[5; 4096], unknown).kind, FaultKind::NoHeader);
        let elsewhere = block(Identity { offset: 0, ..IDENTITY });
        assert_eq!(fault(&elsewhere, unknown).kind, FaultKind::Misplaced(0));
    }

    #[test]
    fn a_result_describes_the_first_faults_and_counts_the_rest() {
        let mut result = VerifyResult::default();
        for _ in 0..100 {
            result.note(Err(fault(&[0; 4096], IDENTITY)));
            result.note(Ok(()));
        }
        assert_eq!((result.blocks, result.faults), (200, 100));
        assert_eq!(result.described.len(), FAULTS_DESCRIBED);
        let mut both = result.clone();
        both.add(&result);
        assert_eq!((both.faults, both.described.len()), (200, FAULTS_DESCRIBED));
    }

    #[test]
    fn the_ledger_knows_what_is_written_and_in_flight() {
        let mut ledger = Ledger::new(4);
        assert_eq!(ledger.written_from(0), None);
        assert_eq!(ledger.begin_write(2), 1);
        assert_eq!(ledger.free_from(2), Some(3));
        ledger.begin(3);
        assert_eq!(ledger.free_from(2), Some(0), "it goes round");
        ledger.begin(0);
        ledger.begin(1);
        assert_eq!(ledger.free_from(2), None);
        ledger.end(2);
        assert_eq!(ledger.free_from(0), Some(2));
        assert_eq!(ledger.begin_write(2), 2);
        assert_eq!((ledger.generation(2), ledger.generation(3), ledger.generation(9)), (2, 0, 0));
        assert_eq!((ledger.written_from(0), ledger.written_from(3)), (Some(2), None));
    }

    proptest! {
        #[test]
        fn no_change_goes_unnoticed(
            seed in any::<u64>(), offset in 0u64..1 << 40, generation in 1u64..1 << 32,
            units in 1usize..9, at in any::<prop::sample::Index>(), flip in 1u8..=255,
        ) {
            let identity = Identity { seed, offset: offset & !511, generation };
            let mut block = vec![0; units * 512];
            fill(&mut block, identity);
            let at = at.index(block.len());
            block[at] ^= flip;
            let fault = check(&block, identity, &mut Vec::new()).expect_err("a fault");
            prop_assert_eq!(fault.byte_offset, identity.offset + at as u64);
        }

        #[test]
        fn no_contents_panic(block in prop::collection::vec(any::<u8>(), 0..600)) {
            for generation in [0, 1] {
                let _ = check(&block, Identity { generation, ..IDENTITY }, &mut Vec::new());
            }
        }
    }
}
