//! fio's words: what each does here, or why it does nothing.
//!
//! One table for job files and for the command line, so that the two cannot differ.

use std::time::Duration;

use super::values::{
    bytes, bytes32, count, cpus, directions, extent, flag, percent, range, real, size_range,
    size_split, spread, time, verify_pattern,
};
use super::{Draft, Engine, Exit, Verification};
use crate::job::Polling;
use crate::pacer::Process;
use crate::pattern::sizes::Sizes;

/// A word.
#[derive(Debug)]
pub struct Word {
    /// fio's name.
    pub name: &'static str,
    /// Other names that fio has for it.
    pub aliases: &'static [&'static str],
    /// Whether it stands without a value, too.
    pub is_flag: bool,
    /// The same in a job file.
    pub(super) may_be_bare: bool,
    /// What the command line's help says; empty: nothing.
    pub help: &'static str,
    pub(super) effect: Effect,
}

/// What a word does.
pub(super) enum Effect {
    /// It sets something.
    Set(fn(&mut Draft, &str) -> Result<(), String>),
    /// It is taken, and makes no difference.
    Nothing,
    /// It is taken, and this is said.
    Note(&'static str),
    /// It is refused unless it has this value, which is what is done anyway.
    Only(&'static str, &'static str),
    /// It is refused with this sentence, unless it is switched off (`0`), as it is by default.
    Refused(&'static str),
    /// It is refused with this sentence, whatever its value: 0 is one that has an effect.
    Never(&'static str),
}

impl std::fmt::Debug for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Set(_) => "Set",
            Self::Nothing => "Nothing",
            Self::Note(_) => "Note",
            Self::Only(..) => "Only",
            Self::Refused(_) => "Refused",
            Self::Never(_) => "Never",
        })
    }
}

/// The word of this name; dashes and underscores are the same.
#[must_use]
pub fn find(name: &str) -> Option<&'static Word> {
    let name = name.replace('-', "_");
    WORDS.iter().find(|word| word.name == name || word.aliases.contains(&name.as_str()))
}

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);

const fn word(
    name: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
    set: fn(&mut Draft, &str) -> Result<(), String>,
) -> Word {
    Word { name, aliases, is_flag: false, may_be_bare: false, help, effect: Effect::Set(set) }
}

const fn flag_word(
    name: &'static str,
    help: &'static str,
    set: fn(&mut Draft, &str) -> Result<(), String>,
) -> Word {
    Word { name, aliases: &[], is_flag: true, may_be_bare: true, help, effect: Effect::Set(set) }
}

/// A word that stands without a value for the job's own name.
const fn log_word(
    name: &'static str,
    help: &'static str,
    set: fn(&mut Draft, &str) -> Result<(), String>,
) -> Word {
    Word { is_flag: false, ..flag_word(name, help, set) }
}

const fn nothing(name: &'static str, aliases: &'static [&'static str]) -> Word {
    Word { name, aliases, is_flag: true, may_be_bare: true, help: "", effect: Effect::Nothing }
}

const fn note(name: &'static str, sentence: &'static str) -> Word {
    Word {
        name,
        aliases: &[],
        is_flag: true,
        may_be_bare: true,
        help: "",
        effect: Effect::Note(sentence),
    }
}

const fn only(name: &'static str, value: &'static str, sentence: &'static str) -> Word {
    Word {
        name,
        aliases: &[],
        is_flag: true,
        may_be_bare: true,
        help: "",
        effect: Effect::Only(value, sentence),
    }
}

const fn refused(
    name: &'static str,
    aliases: &'static [&'static str],
    sentence: &'static str,
) -> Word {
    Word {
        name,
        aliases,
        is_flag: true,
        may_be_bare: true,
        help: "",
        effect: Effect::Refused(sentence),
    }
}

const fn never(name: &'static str, sentence: &'static str) -> Word {
    Word { effect: Effect::Never(sentence), ..refused(name, &[], sentence) }
}

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *place = value)
}

fn whole32(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?).map_err(|_| format!("{text} is too large"))
}

const CONTENTS: &str = "blocks hold random bytes that do not compress; their contents are not set";
const ZONES: &str = "zoned devices are not driven";
const ONE_FILE: &str = "a job drives one device: give each its own job";
const PRIORITY: &str =
    "priorities of the kernel's block layer do not reach a namespace: leave it out";
const BATCH: &str =
    "requests go out together as there is room; the report says how many (iodepth_submit)";
const BATCH_COMPLETE: &str =
    "completions are taken as they come; iodepth_complete of the report says how many together";
const STEADY: &str = "`weft study run` waits for steady state";
const REMAINS: &str = "every percentile that is resolved is there: leave it out";

/// Every word that is known.
pub static WORDS: &[Word] = &[
    // The load.
    word("name", &[], "Name of the job in reports", |d, v| {
        d.name = Some(v.to_owned());
        Ok(())
    }),
    word(
        "rw",
        &["readwrite"],
        "read, write, trim, randread, randwrite, randtrim, rw, randrw, trimwrite or \
        randtrimwrite; \
        rw=read:8k leaves holes, rw=randread:8 goes on for 8 requests",
        |d, v| d.pattern(v),
    ),
    word(
        "rw_sequencer",
        &[],
        "What the number after a random rw does: sequential or identical",
        |d, v| match v {
            "sequential" => set(&mut d.is_identical, Ok(false)),
            "identical" => set(&mut d.is_identical, Ok(true)),
            _ => Err(format!("{v:?} is neither sequential nor identical")),
        },
    ),
    word("rwmixread", &[], "Share of reads in a mix, in percent", |d, v| {
        set(&mut d.read_percent, percent(v).map(f64::from))
    }),
    word("rwmixwrite", &[], "Share of writes in a mix, in percent", |d, v| {
        set(&mut d.read_percent, percent(v).map(|percent| f64::from(100 - percent)))
    }),
    word(
        "bs",
        &["blocksize"],
        "Bytes of a request; of reads, writes and trims: 4k,8k,16k",
        |d, v| {
            let kilo = d.kilo;
            let sizes = directions(v, ',', |text| bytes32(text, kilo).map(Sizes::Fixed))?;
            d.merge_sizes(sizes);
            Ok(())
        },
    ),
    word("bsrange", &["blocksize_range"], "Bytes of a request, from and to: 1k-4k", |d, v| {
        let kilo = d.kilo;
        let sizes = directions(v, ',', |text| size_range(text, kilo))?;
        d.merge_sizes(sizes);
        Ok(())
    }),
    word("bssplit", &[], "Bytes of requests and of how many in a hundred: 4k/60:64k/40", |d, v| {
        let kilo = d.kilo;
        set(&mut d.split, directions(v, ',', |text| size_split(text, kilo)))
    }),
    word("blockalign", &["ba"], "Where random requests may begin", |d, v| {
        set(&mut d.align, bytes32(v, d.kilo).map(Some))
    }),
    word(
        "random_distribution",
        &[],
        "random, zipf:THETA, pareto:H, normal:PERCENT, \
        zoned:ACCESSES/LENGTH:…, zoned_abs:…",
        |d, v| set(&mut d.spread, spread(v, d.kilo)),
    ),
    flag_word("norandommap", "Random requests may go where others went before", |d, v| {
        set(&mut d.no_map, flag(v))
    }),
    nothing("softrandommap", &[]),
    nothing("random_generator", &[]),
    word(
        "percentage_random",
        &[],
        "How many of 100 requests of a random pattern are random; the others are sequential",
        |d, v| {
            let percents = directions(v, ',', percent)?;
            match percents {
                [one, two, _] if one == two => set(&mut d.random_percent, Ok(one.unwrap_or(100))),
                _ => Err("one percentage is for all directions".to_owned()),
            }
        },
    ),
    word("iodepth", &[], "Requests in flight", |d, v| set(&mut d.depth, whole32(v))),
    word(
        "numjobs",
        &[],
        "Copies of the job, each with its own connection. They share threads: at \
        most one for each processor of --cpus, or of the machine",
        |d, v| set(&mut d.copies, whole32(v)),
    ),
    word(
        "size",
        &[],
        "Length of the region, in bytes or percent, which is also how much is done; \
        to the end of the device if left out",
        |d, v| set(&mut d.size, extent(v, d.kilo).map(Some)),
    ),
    word("filesize", &[], "", |d, v| set(&mut d.file_size, extent(v, d.kilo).map(Some))),
    word("io_size", &["io_limit"], "End after so many bytes", |d, v| {
        set(&mut d.io_size, extent(v, d.kilo).map(Some))
    }),
    word("offset", &[], "Where the region begins, in bytes or percent", |d, v| {
        set(&mut d.offset, extent(v, d.kilo))
    }),
    word(
        "offset_increment",
        &[],
        "How much later the region of each further copy begins",
        |d, v| set(&mut d.offset_increment, extent(v, d.kilo)),
    ),
    word("number_ios", &[], "End after so many requests", |d, v| {
        set(&mut d.number_ios, count(v).map(Some))
    }),
    word("loops", &[], "Run the job this many times", |d, v| set(&mut d.loops, whole32(v))),
    word(
        "runtime",
        &["timeout"],
        "End after this time: seconds, or a time such as 500ms",
        |d, v| set(&mut d.runtime, time(v, SECOND).map(Some)),
    ),
    flag_word("time_based", "Only the runtime ends the job; what it does is begun anew", |d, v| {
        set(&mut d.time_based, flag(v))
    }),
    word("ramp_time", &[], "How long to run before anything counts", |d, v| {
        set(&mut d.ramp, time(v, SECOND))
    }),
    word(
        "startdelay",
        &[],
        "Begin so much later, or somewhere between two times: 1s-5s",
        |d, v| set(&mut d.start_delay, range(v, |text| time(text, SECOND))),
    ),
    // Rates and pauses.
    word(
        "rate",
        &[],
        "Start this many bytes a second in each copy, whether or not earlier requests have \
        completed (open loop); latency then counts from when each was due",
        |d, v| {
            let kilo = d.kilo;
            set(&mut d.rate, directions(v, ',', |text| bytes(text, kilo)))
        },
    ),
    word(
        "rate_iops",
        &[],
        "Start so many requests a second, in each copy, whatever becomes of \
        them (open loop)",
        |d, v| set(&mut d.rate_iops, directions(v, ',', real)),
    ),
    word("rate_min", &["ratemin"], "A copy that does fewer bytes a second has failed", |d, v| {
        let kilo = d.kilo;
        set(&mut d.rate_min, directions(v, ',', |text| bytes(text, kilo)))
    }),
    word("rate_iops_min", &[], "A copy that does fewer requests a second has failed", |d, v| {
        set(&mut d.rate_iops_min, directions(v, ',', real))
    }),
    word("rate_cycle", &["ratecycle"], "Over which time rate_min is an average, in ms", |d, v| {
        set(&mut d.rate_cycle, time(v, MILLISECOND))
    }),
    word(
        "rate_process",
        &[],
        "How the requests of a rate follow each other: linear or poisson",
        |d, v| match v {
            "linear" | "fixed" => set(&mut d.process, Ok(Process::Fixed)),
            "poisson" => set(&mut d.process, Ok(Process::Poisson)),
            _ => Err(format!("{v:?} is neither linear nor poisson")),
        },
    ),
    word("thinktime", &[], "Pause so many µs, from when nothing is in flight", |d, v| {
        set(&mut d.think_time, time(v, MICROSECOND))
    }),
    word("thinktime_blocks", &[], "After how many requests there is a pause", |d, v| {
        set(&mut d.think_blocks, whole32(v))
    }),
    refused("thinktime_spin", &[], "a pause leaves the processor to others: leave it out"),
    only("thinktime_blocks_type", "issue", "pauses are counted by requests that were issued"),
    refused("thinktime_iotime", &[], "pauses are counted by requests: see thinktime_blocks"),
    note("io_submit_mode", "latency at a rate always counts from when a request was due"),
    refused("rate_ignore_thinktime", &[], "a pause and a rate are kept independently"),
    // Durability.
    word("fsync", &[], "A flush after so many writes", |d, v| set(&mut d.flush_every, whole32(v))),
    word("fdatasync", &[], "As fsync: a flush knows no metadata", |d, v| {
        set(&mut d.flush_every, whole32(v))
    }),
    flag_word("end_fsync", "A flush at the end", |d, v| set(&mut d.flush_at_end, flag(v))),
    flag_word("fsync_on_close", "", |d, v| set(&mut d.flush_at_end, flag(v))),
    flag_word(
        "sync",
        "Writes survive a loss of power before they complete (force unit access)",
        |d, v| match v {
            "none" | "0" | "false" => set(&mut d.durable, Ok(false)),
            "sync" | "dsync" | "1" | "true" | "" => set(&mut d.durable, Ok(true)),
            _ => Err(format!("{v:?} is none of none, sync, dsync")),
        },
    ),
    flag_word("fua", "Write through to the medium, as sync", |d, v| set(&mut d.durable, flag(v))),
    refused("sync_file_range", &[], "a namespace has no ranges to be synced: see fsync"),
    refused("write_barrier", &[], "see fsync"),
    // Verification.
    word(
        "verify",
        &[],
        "Write blocks that can be recognised, and read them back during and after \
        the job. A job that only reads checks what an earlier one wrote",
        |d, v| set(&mut d.verify.what, Verification::named(v)),
    ),
    word(
        "verify_pattern",
        &[],
        "With verify=pattern: what blocks hold, like 0xdeadbeef",
        |d, v| set(&mut d.verify.pattern, verify_pattern(v).map(Some)),
    ),
    flag_word("do_verify", "Whether a job of writes reads them back", |d, v| {
        set(&mut d.verify.read_back, flag(v))
    }),
    nothing("verify_fatal", &[]),
    nothing("verify_dump", &[]),
    nothing("verifysort", &[]),
    word(
        "verify_backlog",
        &[],
        "Verify what is written after so many blocks, and only the rest at the end",
        |d, v| set(&mut d.verify.backlog, whole32(v)),
    ),
    word("verify_backlog_batch", &[], "How many blocks of the backlog are verified", |d, v| {
        set(&mut d.verify.backlog_batch, whole32(v).map(Some))
    }),
    refused("verify_interval", &[], "a block is verified as a whole: give it as bs"),
    refused("verify_offset", &[], "a block is verified as a whole"),
    refused("verify_async", &[], "what is read is verified where it is read"),
    never("verify_async_cpus", "see verify_async"),
    refused("verify_only", &[], "a job of reads with verify checks what an earlier one wrote"),
    refused("verify_state_save", &[], "a later job of reads with verify needs no state"),
    refused("verify_state_load", &[], "a later job of reads with verify needs no state"),
    refused("experimental_verify", &[], "leave it out"),
    refused("trim_percentage", &[], "see rw=trim"),
    refused("trim_verify_zero", &[], "what is trimmed cannot be verified"),
    refused("trim_backlog", &[], "see rw=trim"),
    refused("trim_backlog_batch", &[], "see rw=trim"),
    // Randomness.
    word("randseed", &["seed"], "Seed of everything random", |d, v| {
        set(&mut d.seed, count(v).map(Some))
    }),
    flag_word("randrepeat", "Whether a run repeats the last one's random numbers", |d, v| {
        set(&mut d.repeats, flag(v))
    }),
    flag_word("allrandrepeat", "", |d, v| set(&mut d.repeats, flag(v))),
    // What is driven, and how.
    word("filename", &[], "", |d, v| {
        // fio separates several by colons and has one with a colon written with a backslash.
        let is_path = v.starts_with(['/', '.']) || !v.contains(':');
        if is_path && v.replace("\\:", "").contains(':') {
            return Err(ONE_FILE.to_owned());
        }
        d.filename = Some(v.replace("\\:", ":"));
        Ok(())
    }),
    word("directory", &[], "", |d, v| {
        d.directory = Some(v.to_owned());
        Ok(())
    }),
    word("ioengine", &["engine"], "", |d, v| set(&mut d.engine, Engine::named(v).map(Some))),
    flag_word("direct", "", |d, v| set(&mut d.direct, flag(v).map(Some))),
    flag_word("buffered", "", |d, v| set(&mut d.direct, flag(v).map(|flag| Some(!flag)))),
    word(
        "cpus_allowed",
        &["cpus"],
        "Processors to run on, like 0-3; jobs are spread over them",
        |d, v| set(&mut d.cpus, cpus(v)),
    ),
    word(
        "prioclass",
        &[],
        "1 (real time): the job comes before others that share its threads, between any two pieces \
        of work for these; 0, 2 or 3: in its turn",
        |d, v| match v {
            "0" | "2" | "3" => set(&mut d.express, Ok(false)),
            "1" => set(&mut d.express, Ok(true)),
            _ => Err(format!("{v:?} is no class from 0 to 3")),
        },
    ),
    only("cpus_allowed_policy", "split", "the copies of a job are spread over its processors"),
    never("cpumask", "see cpus_allowed"),
    never("numa_cpu_nodes", "give the node's processors as cpus_allowed"),
    never("numa_mem_policy", "memory is where the processors of cpus_allowed are"),
    word(
        "polling",
        &[],
        "How to wait for completions: adaptive, spin or sleep; files and block devices sleep by \
        default, all else adaptive",
        |d, v| {
            d.says_polling = true;
            match v {
                "adaptive" => set(&mut d.polling, Ok(None)),
                "spin" => set(&mut d.polling, Ok(Some(Polling::Spin))),
                "sleep" => set(&mut d.polling, Ok(Some(Polling::Sleep))),
                _ => Err(format!("{v:?} is none of adaptive, spin, sleep")),
            }
        },
    ),
    flag_word("hipri", "Poll the completions of a block device (IORING_SETUP_IOPOLL)", |d, v| {
        set(&mut d.hipri, flag(v))
    }),
    word(
        "grace",
        &[],
        "With adaptive polling: how long to poll before sleeping (not after a long wait)",
        |d, v| {
            d.says_polling = true;
            set(&mut d.grace, time(v, SECOND))
        },
    ),
    word("driver", &[], "Which of the kernel's interfaces to use: auto, uring or epoll", |d, v| {
        d.driver(v)
    }),
    // The order of jobs, and their reports.
    flag_word("stonewall", "", |d, v| set(&mut d.stonewall, flag(v))),
    flag_word("wait_for_previous", "", |d, v| set(&mut d.stonewall, flag(v))),
    flag_word("new_group", "", |d, v| set(&mut d.new_group, flag(v))),
    flag_word("group_reporting", "", |d, v| set(&mut d.group_reporting, flag(v))),
    word("wait_for", &[], "", |d, v| {
        d.wait_for = Some(v.to_owned());
        Ok(())
    }),
    flag_word("exitall", "", |d, v| set(&mut d.exit_all, flag(v))),
    word("exit_what", &[], "", |d, v| match v {
        "group" => set(&mut d.exit_what, Ok(Exit::Group)),
        "stonewall" => set(&mut d.exit_what, Ok(Exit::Stonewall)),
        "all" => set(&mut d.exit_what, Ok(Exit::All)),
        _ => Err(format!("{v:?} is none of group, stonewall, all")),
    }),
    word("description", &[], "", |_, _| Ok(())),
    word("kb_base", &[], "", |d, v| match v {
        "1000" => set(&mut d.kilo, Ok(1000)),
        "1024" => set(&mut d.kilo, Ok(1024)),
        _ => Err(format!("{v:?} is neither 1000 nor 1024")),
    }),
    word("percentile_list", &[], "Percentiles of the report, like 50:99:99.9", |d, v| {
        if v.contains(',') {
            return Err(format!("{v:?}: separate them by colons: {}", v.replace(',', ":")));
        }
        let list = v.split(':').map(real).collect::<Result<Vec<f64>, String>>()?;
        if list.iter().any(|percentile| !(*percentile > 0.0 && *percentile <= 100.0)) {
            return Err(format!("{v:?}: percentiles are above 0 and at most 100"));
        }
        d.percentiles = Some(list);
        Ok(())
    }),
    // A depth that keeps a latency.
    word(
        "latency_target",
        &[],
        "Look for the greatest depth up to iodepth at which requests take no more than so many µs",
        |d, v| set(&mut d.target.latency, time(v, MICROSECOND)),
    ),
    word("latency_window", &[], "How many µs each depth is tried", |d, v| {
        set(&mut d.target.window, time(v, MICROSECOND))
    }),
    word(
        "latency_percentile",
        &[],
        "Percentage of requests that must stay within latency_target",
        |d, v| set(&mut d.target.percentile, real(v)),
    ),
    flag_word("latency_run", "After the depth is found, keep running and adjust it", |d, v| {
        set(&mut d.target.goes_on, flag(v))
    }),
    // Logs.
    log_word("write_lat_log", "Write NAME_lat.1.log, …_clat… and …_slat…", |d, v| {
        d.logs.latency = Some(v.to_owned());
        Ok(())
    }),
    log_word("write_iops_log", "Write NAME_iops.1.log, as fio-plot reads it", |d, v| {
        d.logs.iops = Some(v.to_owned());
        Ok(())
    }),
    log_word("write_bw_log", "Write NAME_bw.1.log, as fio-plot reads it", |d, v| {
        d.logs.bandwidth = Some(v.to_owned());
        Ok(())
    }),
    word("log_avg_msec", &[], "A line of a log for so many ms, not for each request", |d, v| {
        set(&mut d.logs.average, time(v, MILLISECOND))
    }),
    flag_word("log_max_value", "Logs have the longest latency, not the mean", |d, v| {
        set(&mut d.logs.maximum, flag(v))
    }),
    flag_word("log_offset", "Logs have each request's offset", |d, v| {
        set(&mut d.logs.offsets, flag(v))
    }),
    log_word("write_hist_log", "Write NAME_clat_hist.1.log, for log_hist_msec each", |d, v| {
        d.logs.histogram = Some(v.to_owned());
        Ok(())
    }),
    word("log_hist_msec", &[], "A line of write_hist_log for so many ms", |d, v| {
        set(&mut d.logs.histogram_every, time(v, MILLISECOND))
    }),
    word("log_hist_coarseness", &[], "Sum up 2^N bins of write_hist_log, N up to 6", |d, v| {
        let most = whole32(v).and_then(|power| match power {
            0..=6 => Ok(power),
            _ => Err("it is 0 to 6".to_owned()),
        });
        set(&mut d.logs.coarseness, most)
    }),
    word("write_iolog", &[], "Write the requests to this file", |d, v| {
        d.logs.requests = Some(v.to_owned());
        Ok(())
    }),
    word("read_iolog", &[], "Replay the requests of this file, of version 2 or 3", |d, v| {
        d.replay = Some(v.to_owned());
        Ok(())
    }),
    flag_word("replay_no_stall", "Replay as fast as there is room", |d, v| {
        set(&mut d.replay_timing.is_kept, flag(v).map(|flag| !flag))
    }),
    word("replay_time_scale", &[], "Replay at so many hundredths of the speed", |d, v| {
        set(&mut d.replay_timing.percent, real(v))
    }),
    word("replay_redirect", &[], "", |d, v| {
        d.replay_redirect = Some(v.to_owned());
        Ok(())
    }),
    flag_word(
        "lat_percentiles",
        "In a terse report, measure percentiles from the time at which each request was due",
        |d, v| set(&mut d.percentiles_of_lat, flag(v)),
    ),
    nothing("clat_percentiles", &[]),
    nothing("slat_percentiles", &[]),
    // What makes no difference here.
    nothing("thread", &["threads"]),
    nothing("invalidate", &[]),
    nothing("create_serialize", &[]),
    nothing("create_fsync", &[]),
    nothing("create_on_open", &[]),
    nothing("fallocate", &[]),
    nothing("fadvise_hint", &["fadvise"]),
    nothing("overwrite", &[]),
    nothing("openfiles", &[]),
    nothing("file_service_type", &[]),
    nothing("disable_lat", &[]),
    nothing("disable_clat", &[]),
    nothing("disable_slat", &[]),
    nothing("disable_bw_measurement", &["disable_bw"]),
    nothing("gtod_reduce", &[]),
    nothing("gtod_cpu", &[]),
    nothing("clocksource", &[]),
    nothing("refill_buffers", &[]),
    nothing("scramble_buffers", &[]),
    nothing("iomem_align", &["mem_align"]),
    nothing("unit_base", &[]),
    nothing("allow_file_create", &[]),
    note("mem", "buffers are those of the reactor's pool"),
    note("sqthread_poll", "see --polling for how completions are waited for"),
    note("registerfiles", "the driver decides what is registered"),
    note("fixedbufs", "the driver decides what is registered"),
    note("nonvectored", "the driver decides how a request reaches the kernel"),
    // What cannot be had.
    only("nrfiles", "1", ONE_FILE),
    only("nr_files", "1", ONE_FILE),
    word(
        "zonemode",
        &[],
        "strided: zonesize bytes in each zone, then the next one",
        |d, v| match v {
            "none" => set(&mut d.is_strided, Ok(Some(false))),
            "strided" => set(&mut d.is_strided, Ok(Some(true))),
            _ => Err(format!("{v:?} is neither none nor strided: {ZONES}")),
        },
    ),
    word("zonesize", &[], "With zonemode=strided: bytes transferred in a zone", |d, v| {
        set(&mut d.zones.size, bytes(v, d.kilo))
    }),
    word("zonerange", &[], "With zonemode=strided: the length of a zone", |d, v| {
        set(&mut d.zones.range, bytes(v, d.kilo))
    }),
    word("zoneskip", &[], "With zonemode=strided: bytes between two zones", |d, v| {
        set(&mut d.zones.skip, bytes(v, d.kilo))
    }),
    refused("zonecapacity", &[], ZONES),
    refused("max_open_zones", &[], ZONES),
    refused("read_beyond_wp", &[], ZONES),
    never("filename_format", "name what is driven as filename"),
    never("opendir", ONE_FILE),
    refused("unlink", &[], "files are kept: remove them afterwards"),
    refused("pre_read", &[], "read it by a job of its own before"),
    refused("fill_device", &["fill_fs"], "size=100% writes all of a device"),
    refused("bs_unaligned", &["blocksize_unaligned"], "requests are whole blocks of the device"),
    refused("bs_is_seq_rand", &[], "give the sizes of reads and writes: bs=4k,8k"),
    only("zero_buffers", "0", CONTENTS),
    never("buffer_pattern", CONTENTS),
    refused("buffer_compress_percentage", &[], CONTENTS),
    refused("buffer_compress_chunk", &[], CONTENTS),
    refused("dedupe_percentage", &[], CONTENTS),
    never("dedupe_mode", CONTENTS),
    refused("dedupe_global", &[], CONTENTS),
    refused("dedupe_working_set_percentage", &[], CONTENTS),
    never("prio", "within a class jobs are equal: see prioclass"),
    refused("cmdprio_percentage", &[], PRIORITY),
    never("cmdprio_class", PRIORITY),
    never("cmdprio", PRIORITY),
    never("cmdprio_bssplit", PRIORITY),
    refused("log_prio", &[], PRIORITY),
    refused("nice", &[], "start weft with nice"),
    note("iodepth_batch", BATCH),
    note("iodepth_batch_submit", BATCH),
    note("iodepth_batch_complete", BATCH_COMPLETE),
    note("iodepth_batch_complete_min", BATCH_COMPLETE),
    note("iodepth_batch_complete_max", BATCH_COMPLETE),
    refused("iodepth_low", &[], "requests go out as soon as there is room: leave it out"),
    only("serialize_overlap", "0", "requests that overlap are in flight together"),
    refused("flow", &[], "give each job its rate_iops"),
    never("flow_id", "give each job its rate_iops"),
    refused("flow_sleep", &[], "give each job its rate_iops"),
    refused("steadystate", &["ss"], STEADY),
    refused("steadystate_duration", &["ss_dur"], STEADY),
    refused("steadystate_ramp_time", &["ss_ramp"], STEADY),
    refused("continue_on_error", &[], "the first error ends a job"),
    refused("ignore_error", &[], "the first error ends a job"),
    refused("error_dump", &[], "the first error ends a job"),
    refused("max_latency", &[], "the report has the latency's maximum"),
    refused("log_unix_epoch", &[], "times of logs begin with the job"),
    refused("log_alternate_epoch", &[], "times of logs begin with the job"),
    only("per_job_logs", "1", "each copy of a job writes its own logs"),
    nothing("log_entries", &[]),
    nothing("log_compression", &[]),
    nothing("log_compression_cpus", &[]),
    only("log_store_compressed", "0", "logs are written as text"),
    nothing("read_iolog_chunked", &[]),
    refused("replay_align", &[], "requests are replayed as they were recorded"),
    refused("replay_scale", &[], "requests are replayed as they were recorded"),
    refused("merge_blktrace_file", &[], "recordings of blktrace are not read"),
    refused("merge_blktrace_scalars", &[], "recordings of blktrace are not read"),
    refused("merge_blktrace_iters", &[], "recordings of blktrace are not read"),
    refused("block_error_percentiles", &[], "the first error ends a job"),
    never("significant_figures", "numbers have the digits that they carry"),
    refused("unified_rw_reporting", &[], "reads, writes and trims are reported apart"),
    never("stats", REMAINS),
    never("exec_prerun", "run it before weft"),
    never("exec_postrun", "run it after weft"),
    never("uid", "start weft as that user"),
    never("gid", "start weft as that user"),
    never("profile", "give the job itself"),
    refused("lockmem", &[], "leave it out"),
];
