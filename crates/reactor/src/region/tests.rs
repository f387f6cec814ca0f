use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;

/// How many of the region's pages are in memory.
fn resident_pages(region: &SharedRegion) -> usize {
    use std::os::unix::fs::FileExt;
    let page_bytes = rustix::param::page_size();
    let mut entries = vec![0; to_usize(region.bytes()) / page_bytes * 8];
    let first = region.data.base().as_ptr().addr() / page_bytes;
    let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
    pages.read_exact_at(&mut entries, first as u64 * 8).unwrap();
    // The top bits of an entry: present, swapped.
    entries.chunks(8).filter(|entry| entry[7] & 0xc0 != 0).count()
}

#[test]
fn a_new_region_is_zero_and_costs_nothing() {
    let region = SharedRegion::new(1 << 30, 512).unwrap();
    let mut bytes = [1; 5000];
    region.read((1 << 30) - 5000, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    region.discard(0, 1 << 30);
    region.zero(0, 1 << 30);
    assert!(region.versions_are_untouched());
}

impl SharedRegion {
    fn versions_are_untouched(&self) -> bool {
        (0..self.bytes() / self.block_bytes)
            .step_by(1000)
            .all(|block| self.version(block).load(Ordering::Relaxed) == 0)
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    assert!(SharedRegion::new(1024, 0).is_err());
    assert!(SharedRegion::new(1024, 256).is_err());
    assert!(SharedRegion::new(1024, 1000).is_err());
    assert!(SharedRegion::new(1000, 512).is_err());
    assert!(SharedRegion::new(u64::MAX - 511, 512).is_err());
}

#[test]
fn compare_and_write_is_all_or_nothing() {
    let region = SharedRegion::new(8192, 512).unwrap();
    region.write(512, &[1; 1536]);
    let mut expected = vec![1; 1536];
    expected[1535] = 2;
    assert!(!region.compare_and_write(512, &expected, &[9; 1536]));
    assert!(region.compare(512, &[1; 1536]));
    assert!(region.compare_and_write(512, &[1; 1536], &[9; 1536]));
    assert!(region.compare(512, &[9; 1536]));
    assert!(region.compare(0, &[0; 512]));
    // Nothing stays locked.
    region.write(0, &[3; 8192]);
    assert!(region.compare(0, &[3; 8192]));
}

#[test]
fn discard_gives_memory_back() {
    let region = SharedRegion::new(16 << 20, 4096).unwrap();
    region.write(0, &vec![7; 16 << 20]);
    let before = resident_pages(&region);
    region.discard(100, (12 << 20) - 100);
    let pages_per_mebibyte = (1 << 20) / rustix::param::page_size();
    assert_eq!(before, 16 * pages_per_mebibyte);
    assert_eq!(resident_pages(&region), 4 * pages_per_mebibyte + 1);
    assert!(region.compare(0, &[7; 100]));
    assert!(region.compare(100, &vec![0; (12 << 20) - 100]));
    assert!(region.compare(12 << 20, &vec![7; 4 << 20]));
}

#[test]
fn what_is_cut_off_does_not_come_back() {
    let region = SharedRegion::new(1 << 20, 512).unwrap();
    region.write(0, &vec![5; 1 << 20]);
    region.resize(4096).unwrap();
    assert_eq!(region.bytes(), 4096);
    let mut bytes = [1; 1024];
    region.read(4096 - 512, &mut bytes);
    assert!(bytes[..512].iter().all(|byte| *byte == 5));
    assert!(bytes[512..].iter().all(|byte| *byte == 0));
    region.write(4096 - 512, &[6; 1024]);
    region.resize(8 << 20).unwrap();
    assert!(region.compare(4096 - 512, &[6; 512]));
    assert!(region.compare(4096, &vec![0; (8 << 20) - 4096]));
    assert!(region.resize(region.capacity() + 512).is_err());
    assert!(region.resize(100).is_err());
    assert!(region.resize(region.capacity()).is_ok());
}

#[test]
fn nothing_beyond_the_end_panics() {
    let region = SharedRegion::new(4096, 512).unwrap();
    let mut bytes = [1; 600];
    for offset in [4096, 4000, u64::MAX, u64::MAX - 300] {
        bytes.fill(1);
        region.read(offset, &mut bytes);
        assert_eq!(bytes[599], 0);
        region.write(offset, &[0; 600]);
        region.zero(offset, u64::MAX);
        region.discard(offset, u64::MAX);
        assert!(region.compare(offset, &[0; 600]));
        assert!(!region.compare_and_write(offset, &[1; 600], &[2; 600]));
    }
}

/// Each block is filled with one byte by each write; a reader that sees two has seen a mixture.
#[test]
fn readers_never_see_a_mixture() {
    let region = SharedRegion::new(16 * 4096, 4096).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..=3u8 {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut mark = seed;
                while !stop.load(Ordering::Relaxed) {
                    match mark % 8 {
                        0 => region.discard(4096, 9 * 4096),
                        1 => region.zero(0, 4 * 4096),
                        2 => {
                            let mut now = vec![0; 2 * 4096];
                            region.read(5 * 4096, &mut now);
                            region.compare_and_write(5 * 4096, &now, &[mark; 2 * 4096]);
                        }
                        _ => region.write(2 * 4096, &[mark; 8 * 4096]),
                    }
                    mark = mark.wrapping_add(3);
                }
            });
        }
        let mut seen = vec![0; 16 * 4096];
        let (mut changes, mut torn) = (0, 0);
        let mut last = Vec::new();
        let mut reads = 0;
        // The writers may begin late, or wait for a processor.
        let begin = std::time::Instant::now();
        while reads < 3000 || (changes <= 10 && begin.elapsed().as_secs() < 20) {
            reads += 1;
            region.read(0, &mut seen);
            torn += seen.chunks(4096).filter(|block| **block != [block[0]; 4096]).count();
            let marks: Vec<u8> = seen.chunks(4096).map(|block| block[0]).collect();
            changes += usize::from(marks != last);
            last = marks;
        }
        // Before anything fails: the writers are waited for.
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn, 0, "torn blocks");
        assert!(changes > 10, "the writers did nothing that the reader saw");
    });
}

/// A counter in two blocks that only compare-and-write changes counts every success.
#[test]
fn compare_and_write_excludes_itself() {
    let region = SharedRegion::new(4096, 512).unwrap();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut successes = 0;
                    let mut now = [0; 1024];
                    while successes < 2000 {
                        region.read(512, &mut now);
                        let mut next = now;
                        let count = u64::from_le_bytes(now[508..516].try_into().unwrap()) + 1;
                        next[508..516].copy_from_slice(&count.to_le_bytes());
                        successes += u64::from(region.compare_and_write(512, &now, &next));
                    }
                    successes
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let mut count = [0; 8];
    region.read(512 + 508, &mut count);
    assert_eq!(u64::from_le_bytes(count), total);
}

#[derive(Clone, Debug)]
enum RegionOperation {
    Write(u64, Vec<u8>),
    Zero(u64, u64),
    Discard(u64, u64),
    CompareAndWrite(u64, usize, u8, bool),
}

fn step() -> impl Strategy<Value = RegionOperation> {
    let offset = 0..40_000u64;
    prop_oneof![
        (offset.clone(), proptest::collection::vec(any::<u8>(), 0..9000))
            .prop_map(|(offset, bytes)| RegionOperation::Write(offset, bytes)),
        (offset.clone(), 0..20_000u64).prop_map(|(offset, len)| RegionOperation::Zero(offset, len)),
        (offset.clone(), 0..20_000u64)
            .prop_map(|(offset, len)| RegionOperation::Discard(offset, len)),
        (offset, 0..3000usize, any::<u8>(), any::<bool>()).prop_map(
            |(offset, len, mark, spoil)| RegionOperation::CompareAndWrite(offset, len, mark, spoil)
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn behaves_as_plain_memory(steps in proptest::collection::vec(step(), 1..40)) {
        let len = 40_960;
        let region = SharedRegion::new(len as u64, 512).unwrap();
        let mut model = vec![0u8; len];
        let cut = |offset: u64, count: usize| {
            let start = usize::try_from(offset).unwrap().min(len);
            start..(start + count).min(len)
        };
        for step in steps {
            match step {
                RegionOperation::Write(offset, bytes) => {
                    region.write(offset, &bytes);
                    let range = cut(offset, bytes.len());
                    model[range.clone()].copy_from_slice(&bytes[..range.len()]);
                }
                RegionOperation::Zero(offset, count) => {
                    region.zero(offset, count);
                    model[cut(offset, usize::try_from(count).unwrap())].fill(0);
                }
                RegionOperation::Discard(offset, count) => {
                    region.discard(offset, count);
                    model[cut(offset, usize::try_from(count).unwrap())].fill(0);
                }
                RegionOperation::CompareAndWrite(offset, count, mark, spoil) => {
                    let range = cut(offset, count);
                    let mut compare = model[range.clone()].to_vec();
                    if spoil && let Some(byte) = compare.last_mut() {
                        *byte ^= 1;
                    }
                    let write = vec![mark; compare.len()];
                    let expected = compare == model[range.clone()];
                    prop_assert_eq!(region.compare_and_write(offset, &compare, &write), expected);
                    if expected {
                        model[range].fill(mark);
                    }
                }
            }
            let mut now = vec![0; len];
            region.read(0, &mut now);
            prop_assert!(now == model);
            prop_assert!(region.compare(0, &model));
        }
    }
}
