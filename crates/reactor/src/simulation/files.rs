//! Files in memory, with what would survive a loss of power.

use super::random::Random;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

const PAGE: u64 = PAGE_BYTES as u64;
const PAGE_BYTES: usize = 4096;
/// The unit that survives a crash or is lost.
const SECTOR: u64 = 512;

type Page = Box<[u8; PAGE_BYTES]>;

/// A sparse file. `pages` is what a reader sees; `undo` says how a crash would change it.
#[derive(Debug)]
pub(super) struct FileState {
    len: u64,
    pages: BTreeMap<u64, Page>,
    undo: BTreeMap<u64, Undo>,
    /// Operations that began before the last crash have an older number.
    pub(super) crashes: u64,
    /// Until when each of its channels works on what it has.
    busy_until: Vec<Duration>,
    /// The next sync fails.
    fails_sync: bool,
}

/// A page with sectors that are not durable.
#[derive(Debug)]
struct Undo {
    /// What the sectors held when they were last durable.
    durable: Page,
    /// A bit for each sector that differs from that.
    dirty: u8,
    /// The same of those that a sync has failed to write: the kernel takes them as clean.
    lost: u8,
}

impl FileState {
    pub(super) fn new(len: u64) -> Self {
        Self {
            len,
            pages: BTreeMap::new(),
            undo: BTreeMap::new(),
            crashes: 0,
            busy_until: Vec::new(),
            fails_sync: false,
        }
    }

    /// When the channel that is free first has worked on an operation for so long.
    pub(super) fn serve(&mut self, channels: usize, time: Duration, now: Duration) -> Duration {
        self.busy_until.resize(channels.max(1), Duration::ZERO);
        let Some(first) = self.busy_until.iter_mut().min() else { return now };
        *first = now.max(*first) + time;
        *first
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Reads; what was never written is zero.
    pub(super) fn peek(&self, offset: u64, into: &mut [u8]) {
        for (page, start, at, len) in pieces(offset, into.len()) {
            let part = &mut into[at..at + len];
            match self.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[start..start + len]),
                None => part.fill(0),
            }
        }
    }

    /// Writes, and makes the sectors it touches durable if asked to.
    pub(super) fn write(&mut self, offset: u64, from: &[u8], durable: bool) {
        self.len = self.len.max(offset + from.len() as u64);
        for (page, start, at, len) in pieces(offset, from.len()) {
            self.change(page, start..start + len, durable, |bytes| {
                bytes.copy_from_slice(&from[at..at + len]);
            });
        }
    }

    /// Makes bytes zero; whole pages give their space back.
    pub(super) fn erase(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.len);
        // Only pages that exist can hold something else than zeroes.
        let pages = offset / PAGE..end.div_ceil(PAGE).max(offset / PAGE);
        let existing: Vec<u64> = self.pages.range(pages).map(|(page, _)| *page).collect();
        for page in existing {
            let start = offset.saturating_sub(page * PAGE);
            let len = (end - page * PAGE).min(PAGE) - start;
            let range = to_usize(start)..to_usize(start + len);
            self.change(page, range, false, |bytes| bytes.fill(0));
            if len == PAGE {
                self.pages.remove(&page);
            }
        }
    }

    /// All that was written is durable, unless it fails. Then only what is written anew will be.
    pub(super) fn sync(&mut self) -> Result<(), Errno> {
        if std::mem::take(&mut self.fails_sync) {
            self.undo.values_mut().for_each(|undo| undo.lost |= std::mem::take(&mut undo.dirty));
            return Err(Errno::IO);
        }
        self.undo.retain(|page, undo| {
            let bytes = self.pages.get(page).map_or(&[0; PAGE_BYTES], |bytes| &**bytes);
            for sector in sectors(std::mem::take(&mut undo.dirty)) {
                undo.durable[sector.clone()].copy_from_slice(&bytes[sector]);
            }
            undo.lost != 0
        });
        Ok(())
    }

    /// The next sync fails.
    pub(super) fn fail_sync(&mut self) {
        self.fails_sync = true;
    }

    /// Loses what is not durable, except for sectors that survive by chance.
    pub(super) fn crash(&mut self, survival_probability: f64, random: &mut Random) {
        self.crashes += 1;
        for (page, undo) in std::mem::take(&mut self.undo) {
            for sector in sectors(undo.dirty | undo.lost) {
                if !random.chance(survival_probability) {
                    let bytes = self.pages.entry(page).or_insert_with(zero_page);
                    bytes[sector.clone()].copy_from_slice(&undo.durable[sector]);
                }
            }
        }
    }

    fn change(
        &mut self,
        page: u64,
        range: Range<usize>,
        durable: bool,
        act: impl FnOnce(&mut [u8]),
    ) {
        let bytes = self.pages.entry(page).or_insert_with(zero_page);
        let touched = touched_sectors(&range);
        if !durable {
            let clean = || Undo { durable: bytes.clone(), dirty: 0, lost: 0 };
            let undo = self.undo.entry(page).or_insert_with(clean);
            undo.dirty |= touched;
            undo.lost &= !touched;
        }
        act(&mut bytes[range]);
        if durable && let Some(undo) = self.undo.get_mut(&page) {
            undo.dirty &= !touched;
            undo.lost &= !touched;
            for sector in sectors(touched) {
                undo.durable[sector.clone()].copy_from_slice(&bytes[sector]);
            }
        }
    }
}

fn zero_page() -> Page {
    Box::new([0; PAGE_BYTES])
}

/// The pages of a range: (page, start in it, start in the range, length).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let position = offset + at as u64;
        let start = to_usize(position % PAGE);
        let piece = (to_usize(PAGE) - start).min(len - at);
        let result = (position / PAGE, start, at, piece);
        at += piece;
        Some(result)
    })
}

/// The bits of the sectors that a range of a page touches.
fn touched_sectors(range: &Range<usize>) -> u8 {
    let sector = to_usize(SECTOR);
    (range.start / sector..range.end.div_ceil(sector)).fold(0, |bits, sector| bits | 1 << sector)
}

/// The ranges of the sectors in these bits.
fn sectors(bits: u8) -> impl Iterator<Item = std::ops::Range<usize>> {
    let sector = to_usize(SECTOR);
    (0..to_usize(PAGE / SECTOR))
        .filter(move |index| bits >> index & 1 == 1)
        .map(move |index| index * sector..(index + 1) * sector)
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("numbers within a page")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(file: &FileState, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        file.peek(offset, &mut bytes);
        bytes
    }

    #[test]
    fn a_crash_loses_what_was_not_synced() {
        let mut file = FileState::new(1 << 40);
        file.write(4000, &[1; 200], false);
        file.sync().unwrap();
        file.write(4000, &[2; 200], false);
        file.write(1 << 39, &[3; 600], false);
        file.crash(0.0, &mut Random::new(1));
        assert_eq!(contents(&file, 4000, 200), [1; 200]);
        assert_eq!(contents(&file, 1 << 39, 600), [0; 600]);
    }

    #[test]
    fn a_durable_write_keeps_its_sectors_only() {
        let mut file = FileState::new(8192);
        file.write(0, &[1; 2048], false);
        file.write(512, &[2; 512], true);
        file.crash(0.0, &mut Random::new(1));
        assert_eq!(contents(&file, 0, 512), [0; 512]);
        assert_eq!(contents(&file, 512, 512), [2; 512]);
        assert_eq!(contents(&file, 1024, 1024), [0; 1024]);
    }

    #[test]
    fn what_a_sync_failed_to_write_is_lost_until_it_is_written_anew() {
        let mut file = FileState::new(8192);
        file.write(0, &[1; 1024], false);
        file.fail_sync();
        assert_eq!(file.sync(), Err(Errno::IO));
        file.write(512, &[2; 512], false);
        file.sync().unwrap();
        assert_eq!(contents(&file, 0, 512), [1; 512]);
        file.crash(0.0, &mut Random::new(1));
        assert_eq!(contents(&file, 0, 512), [0; 512]);
        assert_eq!(contents(&file, 512, 512), [2; 512]);
    }

    #[test]
    fn erasing_frees_whole_pages_and_can_be_lost() {
        let mut file = FileState::new(1 << 20);
        file.write(0, &[7; 16_384], true);
        file.erase(100, 10_000);
        assert_eq!(file.allocated_bytes(), 3 * 4096);
        assert_eq!(contents(&file, 99, 10_002)[1..10_001], [0; 10_000]);
        file.crash(0.0, &mut Random::new(1));
        assert_eq!(contents(&file, 0, 16_384), [7; 16_384]);
        file.erase(0, u64::MAX);
        file.sync().unwrap();
        file.crash(0.0, &mut Random::new(1));
        assert_eq!(contents(&file, 0, 16_384), [0; 16_384]);
    }

    #[test]
    fn luck_keeps_whole_sectors() {
        let mut file = FileState::new(1 << 20);
        file.write(0, &[7; 65_536], false);
        file.crash(0.5, &mut Random::new(1));
        let after = contents(&file, 0, 65_536);
        let kept = after.chunks(512).filter(|sector| sector.iter().all(|it| *it == 7)).count();
        let lost = after.chunks(512).filter(|sector| sector.iter().all(|it| *it == 0)).count();
        assert_eq!(kept + lost, 128);
        assert!(kept > 32 && lost > 32, "{kept} kept, {lost} lost");
    }
}
