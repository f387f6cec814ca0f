//! How exact rate limits are, in virtual time.

use std::time::Duration;

use weft_target::config::RateLimit;

use crate::turns::Scene;

/// Commands of a limit that were answered in a time, from one queue of each group: all together.
/// Equal queues have equal shares, whatever groups they are in.
fn answered(limit: RateLimit, groups: usize, depth: usize, blocks: u32, time: Duration) -> u64 {
    let queues = u16::try_from(groups).expect("few");
    let what = format!("{limit:?}, {groups}, {depth}");
    let mut scene = Scene::with(queues, |config| {
        config.threads = groups;
        config.rate_limits = vec![RateLimit { force: true, ..limit }];
    });
    let of_groups = scene.queues_of_groups();
    assert!(of_groups.iter().all(|queues| *queues > 0), "{of_groups:?}");
    // What had accrued before is used up, and every queue waits.
    scene.keep_busy(depth, blocks, Duration::from_millis(50));
    let answered = scene.keep_busy(depth, blocks, time);
    // The first is the admin queue.
    let of_queues = || answered[1..].iter().copied();
    if of_groups.iter().all(|queues| *queues == of_groups[0]) {
        let (least, most) = (of_queues().min().expect("some"), of_queues().max().expect("some"));
        assert!(most * 10 <= least * 11 + 10, "{what}: {answered:?}");
    }
    of_queues().map(|count| u64::try_from(count).expect("64 bits")).sum()
}

/// Within 2 % and one command of each rate, whatever the groups and the depth.
#[test]
fn a_limit_admits_its_rate() {
    let (kib, mib, gib) = (1_u64 << 10, 1_u64 << 20, 1_u64 << 30);
    for groups in [1, 2, 4] {
        // A queue of depth 1 has at most 10,000 answers in a second: twice 50 µs are one.
        for (rate_iops, depth, ms) in [
            (100, 1, 10_000),
            (100, 127, 10_000),
            (5_000, 1, 1_000),
            (12_345, 127, 1_000),
            (1_000_000, 127, 100),
        ] {
            let limit = RateLimit { rate_iops: Some(rate_iops), ..RateLimit::default() };
            // What is not limited must have more: 127 at a time take 100 µs and their turns.
            if rate_iops == 1_000_000 && groups < 4 {
                continue;
            }
            let count = answered(limit, groups, depth, 1, Duration::from_millis(ms));
            is_near(count, rate_iops * ms / 1000, &format!("{rate_iops} IOPS, {groups}, {depth}"));
        }
        // The host has 16 MiB for what it reads.
        for (rate, depth, blocks, ms) in [
            (mib, 1, 1, 10_000),
            (mib, 24, 32, 10_000),
            (100 * mib, 64, 4, 500),
            (5 * gib, 24, 32, 50),
        ] {
            // A turn begins four commands of 128 KiB.
            if rate == 5 * gib && groups < 4 {
                continue;
            }
            let limit = RateLimit { rate: Some(rate), ..RateLimit::default() };
            let count = answered(limit, groups, depth, blocks, Duration::from_millis(ms));
            let expected = rate * ms / 1000 / (u64::from(blocks) * 4 * kib);
            is_near(count, expected, &format!("{rate} B/s, {groups}, {depth}, {blocks}"));
        }
    }
}

fn is_near(count: u64, expected: u64, what: &str) {
    assert!(count.abs_diff(expected) <= expected / 50 + 1, "{what}: {count}, not {expected}");
}
