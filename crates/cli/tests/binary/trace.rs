//! `weft trace`.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weft_rpc::{Address, Client};
use weft_statistics::GetStatistics;
use weft_statistics::trace::{ReadTrace, StartTrace, TraceOptions};

use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, text, weft};

/// Two poll groups with memory, which measure what hosts meet.
fn start(driver: &'static str, folder: &Folder) -> Target {
    let control = format!("unix:{}", text(&folder.path("control")));
    let words = ["--memory", "8MiB", "--threads", "2", "--metrics", "0", "--control", &control];
    Target::start(driver, &words)
}

fn client(target: &Target) -> Client {
    let address: Address = target.said["control"].as_str().expect("said").parse().expect("one");
    Client::connect(&address, None, Duration::from_secs(20)).expect("a control connection")
}

/// Traces with these options while `load` runs; returns what it says, and the file.
fn trace(
    target: &Target,
    folder: &Folder,
    more: &[&str],
    load: impl FnOnce(),
) -> (CommandOutput, Value) {
    let (driver, file) = (target.driver, folder.path("trace.json"));
    let control = target.said["control"].as_str().expect("said");
    let words = ["trace", "--control", control, "--output", text(&file)];
    let words: Vec<String> = words.iter().chain(more).map(|word| (*word).to_owned()).collect();
    let tracing = thread::spawn(move || weft(driver, words));
    let mut client = client(target);
    // There is no trace, and then one that is being recorded.
    while !matches!(client.call::<ReadTrace>(&()), Ok(None)) {
        thread::sleep(Duration::from_millis(5));
    }
    load();
    assert!(matches!(client.call::<ReadTrace>(&()), Ok(None)), "the load was in the trace's time");
    let said = tracing.join().expect("no panic");
    let file = std::fs::read_to_string(&file).expect("the file");
    (said, serde_json::from_str(&file).expect("JSON"))
}

/// A slice of a row: its name, begin and end in ns.
type Slice<'a> = (&'a str, u64, u64);

/// The slices of each row, in the order of their begin, longer ones first.
fn rows(file: &Value) -> BTreeMap<(u64, u64), Vec<Slice<'_>>> {
    let mut rows = BTreeMap::<_, Vec<Slice<'_>>>::new();
    for event in file["traceEvents"].as_array().expect("events") {
        if event["ph"] != "X" {
            continue;
        }
        let number = |key: &str| event[key].as_u64().expect("a number");
        let ns = |key: &str| {
            let us = event[key].as_f64().expect("a number");
            u64::try_from(Duration::from_secs_f64(us / 1e6).as_nanos()).expect("a time")
        };
        let slice = (event["name"].as_str().expect("a name"), ns("ts"), ns("ts") + ns("dur"));
        rows.entry((number("pid"), number("tid"))).or_default().push(slice);
    }
    for row in rows.values_mut() {
        row.sort_by_key(|(_, from, to)| (*from, u64::MAX - *to));
    }
    rows
}

const PARTS: [&str; 5] = ["turn", "wait", "fetch", "device", "send"];

/// Counts and times in ns by name, where slices nest: a part lies within its command, and no two
/// commands or parts of a row overlap.
fn nested(file: &Value) -> BTreeMap<&str, (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for row in rows(file).values() {
        let mut command = (0, 0);
        let mut part_end = 0;
        for (name, from, to) in row {
            if PARTS.contains(name) {
                assert!(command.0 <= *from && *to <= command.1, "{name} within its command");
                assert!(part_end <= *from, "{name} after the part before");
                part_end = *to;
            } else {
                assert!(command.1 <= *from, "{name} after the command before");
                (command, part_end) = ((*from, *to), *from);
            }
            let sum = sums.entry(*name).or_default();
            *sum = (sum.0 + 1, sum.1 + (to - from));
        }
    }
    sums
}

#[test]
fn a_trace_has_every_command_and_its_parts_sum_to_the_histograms() {
    for driver in DRIVERS {
        let folder = Folder::new("trace");
        let target = start(driver, &folder);
        let url = target.url(1);
        let mut control = client(&target);
        let mut read = || control.call::<GetStatistics>(&()).expect("statistics");
        let before = read();
        let mut after = None;
        let (said, file) = trace(&target, &folder, &["--seconds", "3"], || {
            let load = ["bench", &url, "--rw", "randrw", "--bs", "32k", "--iodepth", "8"];
            weft(driver, [&load[..], &["--number-ios", "400", "--nr-io-queues", "2"]].concat())
                .text();
            after = Some(read());
        });
        let hosts = after.expect("read").since(&before).hosts.expect("they are measured");
        let count_of = |name: &str| {
            let of = hosts.commands.iter().filter(|one| one.command == name);
            of.map(|one| one.buckets.iter().sum::<u64>()).sum::<u64>()
        };
        let total_ns: u64 = hosts.commands.iter().map(|one| one.total_ns).sum();
        let sums = nested(&file);
        let sum = |name: &str| sums.get(name).copied().unwrap_or_default();
        let (reads, writes) = (count_of("read"), count_of("write"));
        assert!(reads > 100 && writes > 100, "{reads} reads, {writes} writes");
        assert_eq!((sum("Read").0, sum("Write").0), (reads, writes));
        assert_eq!(sum("fetch").0, writes, "32 KiB do not come in a capsule");
        // The histogram's latency ends where the response begins to be sent.
        let traced_ns = sum("Read").1 + sum("Write").1 - sum("send").1;
        assert_eq!(traced_ns, total_ns, "in ns, of {} commands", reads + writes);
        let parts = ["turn", "wait", "fetch", "device"].map(|name| sum(name).1);
        assert_eq!(parts.iter().sum::<u64>(), total_ns, "{parts:?}");
        assert!(said.text().contains(&format!("{} commands", reads + writes)), "{}", said.text());
        assert!(!said.text().contains("missing"), "{}", said.text());
        let events = file["traceEvents"].as_array().expect("events");
        let named = events.iter().filter(|event| event["name"] == "process_name");
        let names: Vec<_> = named.filter_map(|event| event["args"]["name"].as_str()).collect();
        assert!(!names.is_empty() && names.iter().all(|name| name.ends_with(NQN)), "{names:?}");
        target.stop();
    }
}

#[test]
fn a_trace_is_bounded_and_says_what_is_missing() {
    let folder = Folder::new("trace-bounded");
    let target = start("epoll", &folder);
    let url = target.url(1);
    let (said, file) = trace(&target, &folder, &["--seconds", "2", "--commands", "50"], || {
        weft("epoll", ["bench", &url, "--rw", "randread", "--number-ios", "300"]).text();
    });
    let sums = nested(&file);
    let groups = file["otherData"]["groups"].as_array().expect("groups");
    let count = |key: &str| groups.iter().filter_map(|group| group[key].as_u64()).sum::<u64>();
    assert_eq!((sums["Read"].0, count("commands")), (50, 50));
    // A load begins with one read of the first block.
    assert_eq!(count("replaced"), 301 - 50);
    assert!(said.text().contains("251 earlier commands are missing"), "{}", said.text());
    let events = file["traceEvents"].as_array().expect("events");
    let marked = |event: &&Value| event["ph"] == "i" && event["name"].to_string().contains("251");
    assert_eq!(events.iter().filter(marked).count(), 1, "the file says it, too");
    target.stop();
}

#[test]
fn what_cannot_be_traced_is_said() {
    let folder = Folder::new("trace-refused");
    let target = start("epoll", &folder);
    let control = target.said["control"].as_str().expect("said");
    let trace = |more: &[&str]| weft("epoll", [&["trace", "--control", control], more].concat());
    let nowhere = text(&folder.path("nowhere/trace.json")).to_owned();
    let file = text(&folder.path("trace.json")).to_owned();
    assert!(trace(&["-o", &nowhere]).fault().contains("cannot write"));
    let too_long = trace(&["-o", &file, "--seconds", "601"]).fault();
    assert!(too_long.contains("a trace takes 1 ms to 600 s"), "{too_long}");
    let none = trace(&["-o", &file, "--commands", "0"]).fault();
    assert!(none.contains("a trace keeps 1 to 1048576 commands"), "{none}");
    assert_eq!(trace(&["--seconds", "soon"]).code, Some(2));
    let mut client = client(&target);
    assert!(client.call::<ReadTrace>(&()).is_err(), "there is none");
    let options = TraceOptions { time_ms: 60_000, commands: 1 };
    assert!(client.call::<StartTrace>(&options).expect("it starts"));
    let second = trace(&["-o", &file]).fault();
    assert!(second.contains("a trace is being recorded already"), "{second}");
    target.stop();
}
