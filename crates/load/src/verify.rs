//! Blocks that can be recognised.
//!
//! Every block that is written begins with the header that fio gives it (before fio 3.41, which
//! changed it), so that each can verify what the other one wrote: type of the checksum, length, a
//! seed, the place, a CRC32C of the header, and the checksum of what follows. fio puts a time into
//! 8 bytes that it does not compare; here they say which write of that place it was. What follows
//! is computed from seed, place and write. So each byte of a block that is read back is known, and
//! a fault is not only noticed but told: a flipped byte with its offset, an older write, a block
//! that belongs elsewhere, nothing at all.

pub mod checksum;

use std::fmt;

use self::checksum::{Checksum, crc32c, fio_crc32c};
use crate::limits::FAULTS_DESCRIBED;
use crate::random::split_mix;

/// The first two bytes of fio's header.
const MAGIC: [u8; 2] = 0xacca_u16.to_le_bytes();

/// Magic and type of 2 bytes each, length of 4, seed and offset of 8, seconds and nanoseconds of
/// 4 (here: the generation), thread and number of the request of 2 (here: 0), CRC32C of these.
const HEADER_BYTES: usize = 40;

/// Where the header's own checksum lies.
const HEADER_CRC_AT: usize = 36;

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
pub fn fill(block: &mut [u8], identity: Identity, checksum: Checksum) {
    let payload_at = HEADER_BYTES + checksum.bytes();
    if block.len() < payload_at {
        return;
    }
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let (head, payload) = block.split_at_mut(payload_at);
    let start = split_mix(identity.seed ^ split_mix(identity.offset ^ identity.generation << 48));
    let mut counter = start ^ identity.generation;
    for word in payload.chunks_mut(8) {
        let bytes = split_mix(counter).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
        counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    head[0..2].copy_from_slice(&MAGIC);
    head[2..4].copy_from_slice(&checksum.number().to_le_bytes());
    head[4..8].copy_from_slice(&length.to_le_bytes());
    head[8..16].copy_from_slice(&identity.seed.to_le_bytes());
    head[16..24].copy_from_slice(&identity.offset.to_le_bytes());
    head[24..32].copy_from_slice(&identity.generation.to_le_bytes());
    head[32..36].fill(0);
    let crc = fio_crc32c(&head[..HEADER_CRC_AT]);
    head[HEADER_CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    head[HEADER_BYTES..].copy_from_slice(&checksum.of(payload)[..checksum.bytes()]);
}

/// Checks a block against what was written last, or, where that is not known (`generation` 0),
/// against its own header, which may be fio's. `scratch` is room for a block.
///
/// # Errors
/// What is wrong with it.
pub fn check(
    block: &[u8],
    expected: Identity,
    checksum: Checksum,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    let found = header_of(block, checksum);
    let identity = match (expected.generation, found) {
        (0, Some(found)) => Identity { offset: expected.offset, ..found },
        (0, None) => return Err(Fault::unknown(block, expected, FaultKind::NoHeader)),
        _ => expected,
    };
    let is_sound = holds_its_checksum(block, checksum);
    if found == Some(identity) && is_sound {
        return Ok(());
    }
    scratch.clear();
    scratch.resize(block.len(), 0);
    fill(scratch, identity, checksum);
    let sum = HEADER_BYTES..HEADER_BYTES + checksum.bytes();
    if expected.generation == 0 && !is_sound && scratch.get(sum.clone()) != block.get(sum) {
        // What it held cannot be computed: fio wrote it.
        return Err(Fault::unknown(block, expected, FaultKind::Checksum));
    }
    Err(Fault::between(scratch, block, identity, found.filter(|_| is_sound)))
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
    /// CRC32C of the whole block as it should be, if that can be known, and as it is.
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
    /// No sound header to begin with.
    NoHeader,
    /// The header is sound, and its checksum is not that of what follows.
    Checksum,
}

impl Fault {
    /// `found` is the identity of a block that is sound.
    fn between(expected: &[u8], got: &[u8], identity: Identity, found: Option<Identity>) -> Self {
        let differing = || expected.iter().zip(got).enumerate().filter(|(_, (a, b))| a != b);
        let (at, bytes) =
            differing().next().map_or((0, (0, 0)), |(at, (expected, got))| (at, (*expected, *got)));
        let kind = match found {
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
            checksums: (Some(crc32c(expected)), crc32c(got)),
            kind,
        }
    }

    fn unknown(block: &[u8], expected: Identity, kind: FaultKind) -> Self {
        let zero = block.iter().all(|byte| *byte == 0);
        let at = match kind {
            FaultKind::Checksum => HEADER_BYTES,
            _ => MAGIC.iter().zip(block).position(|(a, b)| a != b).unwrap_or(0),
        };
        Self {
            block_offset: expected.offset,
            byte_offset: expected.offset + at as u64,
            expected: MAGIC.get(at).copied(),
            got: block.get(at).copied().unwrap_or(0),
            wrong_bytes: 0,
            checksums: (None, crc32c(block)),
            kind: if zero { FaultKind::Zeroes } else { kind },
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
            FaultKind::NoHeader => f.write_str("has no header of this verify")?,
            FaultKind::Checksum => f.write_str("does not have the checksum of its header")?,
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
pub struct Generations {
    generations: Vec<u32>,
    busy: Vec<bool>,
}

impl Generations {
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

/// The identity in a block's header, if it has a sound one with this checksum.
fn header_of(block: &[u8], checksum: Checksum) -> Option<Identity> {
    let word = |at: usize| block.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let half = |at: usize| block.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let is_sound = block.starts_with(&MAGIC)
        && block.get(2..4)? == checksum.number().to_le_bytes()
        && half(4)? as usize == block.len()
        && half(HEADER_CRC_AT)? == fio_crc32c(block.get(..HEADER_CRC_AT)?);
    is_sound.then_some(Identity { seed: word(8)?, offset: word(16)?, generation: word(24)? })
}

/// Whether the checksum in a block's header is that of what follows.
fn holds_its_checksum(block: &[u8], checksum: Checksum) -> bool {
    let Some((head, payload)) = block.split_at_checked(HEADER_BYTES + checksum.bytes()) else {
        return false;
    };
    head[HEADER_BYTES..] == checksum.of(payload)[..checksum.bytes()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CRC: Checksum = Checksum::Crc32c;
    const IDENTITY: Identity = Identity { seed: 7, offset: 8192, generation: 3 };

    fn block(identity: Identity) -> Vec<u8> {
        let mut block = vec![0; 4096];
        fill(&mut block, identity, CRC);
        block
    }

    fn fault(block: &[u8], expected: Identity) -> Fault {
        check(block, expected, CRC, &mut Vec::new()).expect_err("a fault")
    }

    #[test]
    fn a_block_is_recognised() {
        let block = block(IDENTITY);
        assert_eq!(check(&block, IDENTITY, CRC, &mut Vec::new()), Ok(()));
        let unknown = Identity { seed: 0, generation: 0, ..IDENTITY };
        assert_eq!(check(&block, unknown, CRC, &mut Vec::new()), Ok(()));
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
    fn generations_know_what_is_written_and_in_flight() {
        let mut generations = Generations::new(4);
        assert_eq!(generations.written_from(0), None);
        assert_eq!(generations.begin_write(2), 1);
        assert_eq!(generations.free_from(2), Some(3));
        generations.begin(3);
        assert_eq!(generations.free_from(2), Some(0), "it goes round");
        generations.begin(0);
        generations.begin(1);
        assert_eq!(generations.free_from(2), None);
        generations.end(2);
        assert_eq!(generations.free_from(0), Some(2));
        assert_eq!(generations.begin_write(2), 2);
        assert_eq!(
            (generations.generation(2), generations.generation(3), generations.generation(9)),
            (2, 0, 0)
        );
        assert_eq!((generations.written_from(0), generations.written_from(3)), (Some(2), None));
    }

    proptest! {
        #[test]
        fn no_change_goes_unnoticed(
            seed in any::<u64>(), offset in 0u64..1 << 40, generation in 1u64..1 << 32,
            units in 1usize..9, at in any::<prop::sample::Index>(), flip in 1u8..=255,
        ) {
            let identity = Identity { seed, offset: offset & !511, generation };
            let mut block = vec![0; units * 512];
            fill(&mut block, identity, CRC);
            let at = at.index(block.len());
            block[at] ^= flip;
            let fault = check(&block, identity, CRC, &mut Vec::new()).expect_err("a fault");
            prop_assert_eq!(fault.byte_offset, identity.offset + at as u64);
        }

        #[test]
        fn no_contents_panic(block in prop::collection::vec(any::<u8>(), 0..600)) {
            for generation in [0, 1] {
                let _ = check(&block, Identity { generation, ..IDENTITY }, CRC, &mut Vec::new());
            }
        }
    }
}
