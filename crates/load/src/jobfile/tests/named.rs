//! Every word of fio's that users of weft were promised: each runs, or is refused with a sentence.

use super::*;
use crate::run;
use std::sync::atomic::AtomicBool;
use weft_backend::DeviceSpec;

/// What becomes of a word.
enum Fate {
    /// The job is another one with it, and runs.
    Runs,
    /// The job is the same with it, and runs: it makes no difference here.
    Same,
    /// It is refused, and this is in the sentence.
    Refused(&'static str),
}

use Fate::{Refused, Runs, Same};

/// A job that each word is added to, and that ends soon.
const BASE: &str = "rw=randrw\nsize=64k\nioengine=libaio\niodepth=4\n";

/// Words, where they say something together one below the other, and what becomes of the last.
#[rustfmt::skip]
const NAMED: &[(&str, Fate)] = &[
    // Requests.
    ("rw=trim", Runs), ("rw=randtrim", Runs), ("rw=trimwrite", Runs), ("rw=randtrimwrite", Runs),
    ("bs=8k", Runs), ("bs=4k,8k", Runs), ("bsrange=4k-16k", Runs), ("bssplit=4k/60:8k/40", Runs),
    ("bssplit=4k/60:8k/50", Refused("add up to 110")),
    ("rwmixread=70", Runs), ("rwmixwrite=70", Runs), ("percentage_random=50", Runs),
    ("random_distribution=zipf:1.2", Runs), ("random_distribution=pareto:0.2", Runs),
    ("random_distribution=normal:20", Runs), ("random_distribution=zoned:60/10:40/90", Runs),
    ("random_distribution=zoned_abs:60/16k:40/48k", Runs),
    ("random_distribution=lumpy", Refused("none of random, zipf, pareto, normal, zoned")),
    ("norandommap", Runs), ("randseed=7", Runs),
    // How much, how long, where.
    ("size=50%", Runs), ("io_size=32k", Runs), ("number_ios=5", Runs), ("loops=2", Runs),
    ("runtime=5", Runs), ("runtime=100ms\ntime_based", Runs), ("time_based", Refused("a runtime")),
    ("startdelay=20ms", Runs), ("ramp_time=10ms", Runs),
    ("offset=64k", Runs), ("offset=50%", Runs), ("numjobs=2\noffset_increment=64k", Runs),
    // Rates and pauses.
    ("rate_iops=1000", Runs), ("rate=4m", Runs), ("rate_min=1k", Runs), ("rate_iops_min=1", Runs),
    ("rate_iops=1000\nrate_process=poisson", Runs), ("thinktime=10", Runs),
    ("thinktime=10\nthinktime_blocks=4", Runs), ("thinktime_spin=5", Refused("leave it out")),
    // Durability and verification.
    ("fsync=4", Runs), ("fdatasync=4", Runs), ("end_fsync=1", Runs),
    ("verify=crc32c", Runs), ("verify=md5", Runs), ("verify=sha256", Runs),
    ("verify=xxhash", Runs), ("verify=pattern\nverify_pattern=0xab", Runs),
    ("verify=pattern", Refused("verify_pattern")), ("verify=null", Refused("checks nothing")),
    ("verify=crc32c\ndo_verify=0", Runs), ("verify=crc32c\nverify_backlog=4", Runs),
    ("verify=crc32c\nverify_backlog=4\nverify_backlog_batch=2", Runs),
    // Reports and logs.
    ("percentile_list=50:99.9", Runs), ("lat_percentiles=1", Runs), ("group_reporting", Runs),
    ("latency_target=1s\nlatency_window=5ms", Runs),
    ("latency_target=1s\nlatency_window=5ms\nlatency_percentile=99", Runs),
    ("latency_target=1s", Refused("latency_window")),
    ("write_lat_log=x", Runs), ("write_iops_log=x", Runs), ("write_bw_log=x", Runs),
    ("write_bw_log=x\nlog_avg_msec=10", Runs), ("write_iolog=x", Runs),
    ("read_iolog=RECORDING", Runs), ("read_iolog=RECORDING\nreplay_no_stall=1", Runs),
    ("read_iolog=/no/such/file", Refused("cannot read /no/such/file")),
    // The order of jobs, and what is driven.
    ("stonewall", Runs), ("new_group", Runs), ("wait_for=b", Runs), ("exitall", Runs),
    ("exitall\nexit_what=all", Runs), ("filename=/dev/x", Runs),
    ("filename=/dev/x:/dev/y", Refused("one device")), ("direct=0", Runs), ("direct=1", Runs),
    ("ioengine=sync", Runs), ("ioengine=psync", Runs), ("ioengine=vsync", Runs),
    ("ioengine=pvsync", Runs), ("ioengine=pvsync2", Runs), ("ioengine=mmap", Runs),
    ("ioengine=io_uring", Same), ("ioengine=posixaio", Same), ("ioengine=libaio", Same),
    ("ioengine=null", Refused("null:SIZE")), ("ioengine=net", Refused("no block device")),
    ("ioengine=cpuio", Refused("no block device")), ("ioengine=rados", Refused("no block device")),
    ("ioengine=io_uring_cmd", Refused("io_uring drives the same device")),
    // Parts of a device.
    ("zonemode=strided\nzonesize=8k", Runs), ("zonesize=8k", Runs), ("zonemode=none", Same),
    ("zonesize=8k\nzonerange=16k", Runs), ("zonesize=8k\nzonerange=16k\nzoneskip=8k", Runs),
    // What comes to the same, and what is switched off.
    ("iodepth_batch=8", Runs), ("iodepth_batch_submit=8", Runs),
    ("iodepth_batch_complete_min=2", Runs), ("iodepth_batch_complete_max=8", Runs),
    ("unlink=0", Same), ("unlink=1", Refused("remove them afterwards")), ("pre_read=0", Same),
    ("stats=0", Refused("leave it out")), ("uid=0", Refused("as that user")),
    // Beside those that were promised, what would be misread if it were taken.
    ("zonemode=zbd", Refused("zoned")), ("buffer_pattern=0", Refused("random bytes")),
    ("nrfiles=4", Refused("one device")), ("no_such_word=1", Refused("does not know this word")),
];

#[test]
fn every_word_that_is_named_runs_or_is_refused_with_a_sentence() {
    let memory = "memory:1MiB".parse::<DeviceSpec>().expect("a device").build().expect("memory");
    let recording = tempfile::NamedTempFile::new().expect("a file");
    let requests = "fio version 2 iolog\n/d add\n/d open\n/d read 0 4096\n/d wait 20 0\n\
                    /d write 8192 4096\n/d close\n";
    std::fs::write(&recording, requests).expect("a recording");
    for (words, fate) in NAMED {
        let words = &words.replace("RECORDING", &recording.path().display().to_string());
        let read = |words: &str| {
            let mut sections = file(&format!("[a]\n{BASE}{words}\n"))?;
            sections.pop().ok_or_else(|| "no section".to_owned())
        };
        let (before, _) = words.rsplit_once('\n').unwrap_or_default();
        let found = match (read(words), fate) {
            (Err(error), Refused(part)) => {
                let (word, _) = words.split_once('=').unwrap_or((words, ""));
                assert!(error.contains(part) && error.contains(word), "{words}: {error}");
                assert!(error.len() > 40, "{words}: {error}");
                continue;
            }
            (found, _) => found.unwrap_or_else(|error| panic!("{words}: {error}")),
        };
        assert!(!matches!(fate, Refused(_)), "{words} is taken");
        // A word that goes with another one says something of its own.
        let is_same = read(before).is_ok_and(|before| before == found);
        assert_eq!(is_same, matches!(fate, Same), "{words}");
        let result = run(&found.job, &memory, &AtomicBool::new(false), &mut |_| {});
        let result = result.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(!result.failed(), "{words}: {:?}", result.total().error);
    }
}
