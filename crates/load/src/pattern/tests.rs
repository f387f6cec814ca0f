use super::*;
use crate::job::Job;
use crate::pattern::sizes::Sizes;
use crate::pattern::spread::{Spread, Zone, ZoneLength};
use crate::random::Random;
use std::collections::BTreeMap;

fn sequence(job: &Job, region: u64) -> Sequence {
    Sequence::new(job, region, u64::MAX, &|purpose| Random::new(purpose, 7))
}

fn of(pattern: Pattern) -> Job {
    Job { pattern, random_map: false, ..Job::default() }
}

fn offsets(job: &Job, region: u64, count: usize) -> Vec<u64> {
    let mut sequence = sequence(job, region);
    (0..count).map(|_| sequence.draw().offset).collect()
}

#[test]
fn names_read_back() {
    for pattern in Pattern::ALL {
        assert_eq!(pattern.name().parse(), Ok(pattern));
        assert!(pattern.directions().count() > 0);
    }
    assert_eq!("readwrite".parse(), Ok(Pattern::ReadWrite));
    let error = "sideways".parse::<Pattern>().expect_err("not a pattern").to_string();
    assert!(
        error.starts_with("\"sideways\" is not a pattern: use one of read, write, trim"),
        "{error}"
    );
}

#[test]
fn sequential_requests_go_round() {
    let mut sequence = sequence(&of(Pattern::Write), 3 * 4096);
    for unit in [0, 1, 2, 0, 1, 2, 0] {
        let expected =
            DrawnRequest { direction: Direction::Write, offset: unit * 4096, bytes: 4096 };
        assert_eq!(sequence.draw(), expected);
    }
}

#[test]
fn holes_are_left_forwards_and_backwards() {
    let hole = |bytes| Job { modifier: Modifier::Hole(bytes), ..of(Pattern::Read) };
    assert_eq!(offsets(&hole(4096), 32_768, 5), [0, 8192, 16_384, 24_576, 0]);
    // As fio does with rw=read:-8k and bs=4k: from the end, each before the last.
    assert_eq!(offsets(&hole(-8192), 16_384, 6), [8192, 4096, 0, 8192, 4096, 0]);
}

#[test]
fn strided_zones_are_gone_through_in_turn() {
    const K4: u64 = 4096;
    // As fio does with zonemode=strided: half of each zone, then the next but one.
    let zones = Zones { size: 2 * K4, range: 4 * K4, skip: 4 * K4 };
    let job = |pattern| Job { zones: Some(zones), ..of(pattern) };
    let places = |job: &Job, count| {
        offsets(job, 20 * K4, count).into_iter().map(|offset| offset / K4).collect::<Vec<u64>>()
    };
    assert_eq!(places(&job(Pattern::Read), 8), [0, 1, 8, 9, 16, 17, 0, 1]);
    let random = places(&job(Pattern::RandRead), 3_000);
    for (request, place) in random.iter().enumerate() {
        let zone = (request as u64 / 2 % 3) * 8;
        assert!((zone..zone + 4).contains(place), "{request}: {place}");
    }
    // More than a zone has goes over it again.
    let zones = Zones { size: 4 * K4, range: 2 * K4, skip: 0 };
    let job = Job { zones: Some(zones), ..of(Pattern::Write) };
    assert_eq!(places(&job, 9), [0, 1, 0, 1, 2, 3, 2, 3, 4]);
    let job = Job { zones: Some(Zones { range: 1024, ..zones }), ..job };
    assert!(job.plan(&weft_backend::Geometry::new(1 << 20, 4096)).is_err());
}

#[test]
fn runs_follow_a_random_place_and_repeats_stay_there() {
    let job = Job { modifier: Modifier::Run(4), ..of(Pattern::RandRead) };
    for run in offsets(&job, 4096 << 20, 400).chunks(4) {
        assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 4096), "{run:?}");
    }
    let job = Job { modifier: Modifier::Repeat(3), ..of(Pattern::RandRead) };
    for run in offsets(&job, 4096 << 20, 300).chunks(3) {
        assert!(run.iter().all(|offset| *offset == run[0]), "{run:?}");
    }
}

#[test]
fn the_map_reaches_every_block_once_before_any_again() {
    let job = Job { random_map: true, ..of(Pattern::RandWrite) };
    let all = offsets(&job, 100 * 4096, 200);
    for pass in all.chunks(100) {
        let mut sorted = pass.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq((0..100).map(|unit| unit * 4096)));
    }
    let without = offsets(&of(Pattern::RandWrite), 100 * 4096, 100);
    let mut unique = without.clone();
    unique.sort_unstable();
    unique.dedup();
    // 63 of 100 are expected.
    assert!((45..85).contains(&unique.len()), "{}", unique.len());
}

#[test]
fn the_mix_is_the_one_asked_for() {
    for (pattern, percent) in
        [(Pattern::RandRw, 70.0), (Pattern::ReadWrite, 0.0), (Pattern::ReadWrite, 100.0)]
    {
        let job = Job { read_percent: percent, ..of(pattern) };
        let mut sequence = sequence(&job, 1_000 * 4096);
        let reads = (0..100_000).filter(|_| sequence.draw().direction == Direction::Read).count();
        assert!((reads as f64 - percent * 1_000.0).abs() < 600.0, "{pattern} {percent}: {reads}");
    }
    let job = Job { random_percent: 30, ..of(Pattern::RandRead) };
    let all = offsets(&job, 4096 << 20, 100_000);
    let next = all.windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
    assert!((69_000..71_000).contains(&next), "{next}");
}

#[test]
fn nothing_goes_beyond_the_region_and_a_pass_begins_anew() {
    let split = Sizes::Split(vec![(4096, 50), (65_536, 50)]);
    let job = Job {
        sizes: [Some(split.clone()), Some(split), None],
        align_bytes: Some(4096),
        ..of(Pattern::RandRw)
    };
    let region = 40 * 4096;
    let mut drawn = sequence(&job, region);
    for _ in 0..10_000 {
        let DrawnRequest { offset, bytes, .. } = drawn.draw();
        assert!(offset % 4096 == 0 && bytes % 4096 == 0 && bytes > 0);
        assert!(offset + u64::from(bytes) <= region, "{offset} {bytes}");
    }
    let mut passes = Sequence::new(&of(Pattern::Read), region, 2 * 4096, &|p| Random::new(p, 0));
    let four: Vec<u64> = (0..4).map(|_| passes.draw().offset).collect();
    assert_eq!(four, [0, 4096, 0, 4096]);
}

/// How often the places were drawn, most often first, as shares.
fn ranked(job: &Job, places: u64) -> Vec<f64> {
    let mut sequence = sequence(job, places * 4096);
    ranked_of((0..1_000_000).map(|_| sequence.draw().offset))
}

/// Half the sum of the differences: the total variation.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    let places = found.len().max(expected.len());
    let share = |of: &[f64], rank: usize| of.get(rank).copied().unwrap_or(0.0);
    (0..places).map(|rank| (share(found, rank) - share(expected, rank)).abs()).sum::<f64>() / 2.0
}

/// The laws as such. 256 places are a power of two, so that none fall together when they are
/// scattered, and are few enough for a million requests to tell their shares.
#[test]
fn places_are_as_hot_as_the_laws_say() {
    let places = 256;
    let job = |spread| Job { spread, ..of(Pattern::RandRead) };
    for theta in [0.5, 0.8, 1.2] {
        let weights = (1..=places).map(|rank| f64::from(rank).powf(-theta)).collect::<Vec<f64>>();
        let sum: f64 = weights.iter().sum();
        let expected: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        let found = ranked(&job(Spread::Zipf(theta, None)), 256);
        // The usual generator is exact for the first two places and near for the others.
        assert!(distance(&found, &expected) < 0.05, "{theta}: {}", distance(&found, &expected));
        assert!((found[0] / expected[0] - 1.0).abs() < 0.02, "{theta}: {}", found[0]);
    }
    let h: f64 = 0.2;
    let inverse = (1.0 - h).ln() / h.ln();
    let reach = |rank: u32| (f64::from(rank) / 255.0).min(1.0).powf(inverse);
    let mut expected: Vec<f64> = (0..places as u32).map(|r| reach(r + 1) - reach(r)).collect();
    expected.sort_by(|one, other| other.total_cmp(one));
    let found = ranked(&job(Spread::Pareto(h, Some(0.0))), 256);
    assert!(distance(&found, &expected) < 0.01, "{}", distance(&found, &expected));
    let zone = |accesses, length| Zone { accesses, length: ZoneLength::Percent(length) };
    let zones = vec![zone(50, 5), zone(30, 15), zone(20, 80)];
    let found = ranked(&job(Spread::Zoned(zones)), 100);
    let mut expected = vec![0.5 / 5.0; 5];
    expected.extend([0.3 / 15.0; 15]);
    expected.extend([0.2 / 80.0; 80]);
    assert!(distance(&found, &expected) < 0.01, "{}", distance(&found, &expected));
}

#[test]
fn a_normal_spread_has_its_middle_and_its_width() {
    let job = Job { spread: Spread::Normal(0.0, None), ..of(Pattern::RandRead) };
    let found = ranked(&job, 4096);
    // The mean of twelve uniform numbers has a twelfth of the range as its deviation.
    let sigma = 4096.0 / 12.0;
    let highest = 1.0 / (sigma * (2.0 * std::f64::consts::PI).sqrt());
    assert!((found[..50].iter().sum::<f64>() / 50.0 / highest - 1.0).abs() < 0.1);
    let wide = ranked(&Job { spread: Spread::Normal(40.0, None), ..job }, 4096);
    assert!(wide[0] < found[0], "{} {}", wide[0], found[0]);
}

#[test]
fn a_single_block_is_enough() {
    for pattern in Pattern::ALL {
        for random_map in [true, false] {
            let job = Job { pattern, random_map, ..Job::default() };
            assert!(offsets(&job, 4096, 10).iter().all(|offset| *offset == 0));
        }
    }
}

/// What fio itself requests, as it logs it: the offset and the length of each of a million.
fn of_fio(words: &[&str], places: u64) -> Option<Vec<(u64, u32)>> {
    let folder = tempfile::tempdir().expect("a folder");
    let size = format!("--size={}", places * 4096);
    let all = ["--name=x", "--ioengine=null", "--rw=randread", "--norandommap", "--randrepeat=0"];
    let logged = ["--log_offset=1", "--disable_clat=1", "--disable_slat=1", "--write_lat_log=log"];
    let ends = [&size, "--number_ios=1000000", "--io_size=100g"];
    let words = [&all[..], &logged, &ends, words].concat();
    let (said, is_well) = crate::beside_fio::fio(folder.path(), &words)?;
    assert!(is_well, "{said}");
    let text = std::fs::read_to_string(folder.path().join("log_lat.1.log")).expect("fio's log");
    let line = |line: &str| {
        let mut numbers = line.split(", ").skip(3);
        let bytes = numbers.next()?.parse().ok()?;
        Some((numbers.next()?.parse().ok()?, bytes))
    };
    Some(text.lines().map(|text| line(text).expect(text)).collect())
}

fn ranked_of<T: Ord>(all: impl Iterator<Item = T>) -> Vec<f64> {
    let mut counts: BTreeMap<T, u32> = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    let sum: u32 = counts.values().sum();
    let share = |count: &u32| f64::from(*count) / f64::from(sum);
    let mut ranked: Vec<f64> = counts.values().map(share).collect();
    ranked.sort_by(|one, other| other.total_cmp(one));
    ranked
}

/// The ranked frequencies of a million requests are those of fio itself, whatever the seeds. 200
/// places are no power of two, so that some fall together when they are scattered, here and there.
#[test]
fn a_million_requests_are_spread_as_fio_spreads_them() {
    let places = 200;
    for law in ["zipf:0.7", "zipf:1.2", "pareto:0.2", "normal:20", "zoned:50/5:30/15:20/80"] {
        let words = format!("random_distribution={law}");
        let Some(fios) = of_fio(&["--bs=4k", &format!("--{words}")], places) else { return };
        assert_eq!(fios.len(), 1_000_000, "{law}");
        let words = [("rw", "randread"), ("random_distribution", law)];
        let words = words.map(|(word, value)| (word, Some(value)));
        let job = crate::jobfile::of_command_line(words).expect(law).job;
        let fios = ranked_of(fios.into_iter().map(|(offset, _)| offset));
        let distance = distance(&ranked(&job, places), &fios);
        assert!(distance <= 0.01, "{law}: {distance}");
    }
}

#[test]
fn a_million_requests_are_as_long_as_fios() {
    let places = 1 << 20;
    for split in ["4k/60:8k/30:64k/10", "4k/10:8k:16k", "512/4:1024/1:4k/67:8k/28"] {
        let Some(fios) = of_fio(&[&format!("--bssplit={split}")], places) else { return };
        let words = [("rw", "randread"), ("bssplit", split)].map(|(word, v)| (word, Some(v)));
        let job = crate::jobfile::of_command_line(words).expect(split).job;
        let mut ours = sequence(&Job { random_map: false, ..job }, places * 4096);
        let ours: Vec<u32> = (0..1_000_000).map(|_| ours.draw().bytes).collect();
        let share = |all: &mut dyn Iterator<Item = u32>| {
            let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
            all.for_each(|bytes| *counts.entry(bytes).or_default() += 1e-6);
            counts
        };
        let (ours, fios) =
            (share(&mut ours.into_iter()), share(&mut fios.into_iter().map(|(_, bytes)| bytes)));
        assert!(ours.keys().eq(fios.keys()), "{split}: {ours:?} {fios:?}");
        let distance: f64 = ours.iter().map(|(bytes, share)| (share - fios[bytes]).abs()).sum();
        assert!(distance / 2.0 <= 0.01, "{split}: {ours:?} {fios:?}");
    }
}
