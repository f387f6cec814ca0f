//! The bars, row by row.

use super::experiment::{
    Action, Bar, BenchStep, Device, Experiment, Figure, Flood, Floor, Load, Metric, PathEnd,
    TargetSpec,
};

/// A command capsule: header and submission queue entry.
const CAPSULE_BYTES: u32 = 72;

/// A header of C2HData or H2CData, or a response capsule.
const HEADER_BYTES: u32 = 24;

/// In-capsule data that a target takes by default; what is longer travels in H2CData, of which
/// there is one for a transfer of this size.
const IN_CAPSULE_BYTES: u32 = 16 << 10;

const MEMORY: Device = Device::Memory(4096);
const RAW: &str = "raw";
/// Raw sockets with the congestion control that weft takes between two ends on one machine.
const RENO: &str = "raw with reno";
const ON: &str = "flow control on";
const OFF: &str = "flow control off";

/// Both sides never sleep.
const SPIN: &[&str] = &["--polling", "spin"];

/// Both sides always do.
const SLEEP: &[&str] = &["--polling", "sleep"];

/// As many queues as the largest crowd needs.
pub(crate) const MANY_QUEUES: &[&str] = &["--io-queues", "1024"];

const MANY_QUEUES_SPIN: &[&str] = &["--io-queues", "1024", "--polling", "spin"];

/// All rows, those that share a target beside each other.
pub(crate) fn all() -> Vec<Experiment> {
    let mut rows = throughput();
    rows.extend(latency());
    rows.push(thousand());
    rows.extend(digests());
    rows.extend(crowds());
    rows.extend(independent());
    rows.push(fairness());
    rows.push(reactors());
    rows.extend(paths());
    rows.push(two_cores());
    rows.extend(standing());
    rows.extend(floods());
    rows
}

/// Deep queues: commands a second as a share of the raw socket's messages.
fn throughput() -> Vec<Experiment> {
    let reads = [
        (
            "randread-4k-128-memory",
            "4 KiB random reads, depth 128, memory",
            4096,
            128,
            MEMORY,
            0.55,
        ),
        ("randread-4k-32-memory", "4 KiB random reads, depth 32, memory", 4096, 32, MEMORY, 0.55),
        ("read-128k-32-memory", "128 KiB reads, depth 32, memory", 131_072, 32, MEMORY, 0.75),
        (
            "randread-512-128-memory",
            "512 B random reads, depth 128, memory",
            512,
            128,
            Device::Memory(512),
            0.35,
        ),
        (
            "randread-4k-128-null",
            "4 KiB random reads, depth 128, null",
            4096,
            128,
            Device::Null,
            0.65,
        ),
        ("read-128k-32-null", "128 KiB reads, depth 32, null", 131_072, 32, Device::Null, 0.93),
    ];
    let writes = [
        ("randwrite-4k-128-memory", "4 KiB random writes, depth 128, memory", 4096, 128, 0.55),
        ("randwrite-4k-32-memory", "4 KiB random writes, depth 32, memory", 4096, 32, 0.55),
        ("write-128k-32-memory", "128 KiB writes, depth 32, memory", 131_072, 32, 0.75),
    ];
    let mut rows = Vec::new();
    for (name, about, block_bytes, depth, device, bar) in reads {
        let load = Load { depth, ..load("randread", block_bytes) };
        let mut steps = beside_raw(&load, None, true);
        let mut figures: Vec<_> =
            [ON, OFF].map(|label| per_raw(label, label, Metric::Iops, Bar::AtLeast(bar))).into();
        add_equal_terms(&load, &mut steps, &mut figures);
        rows.push(experiment(name, about, vec![target(device, &[])], steps, figures));
    }
    for (name, about, block_bytes, depth, bar) in writes {
        let load = Load { depth, ..load("randwrite", block_bytes) };
        let mut steps = vec![
            raw(&load, None, true),
            BenchStep { label: OFF, action: Action::Load(load.clone()) },
        ];
        let mut figures = vec![per_raw("", OFF, Metric::Iops, Bar::AtLeast(bar))];
        add_equal_terms(&load, &mut steps, &mut figures);
        rows.push(experiment(name, about, vec![target(MEMORY, &[])], steps, figures));
    }
    // Those of one target beside each other: memory has to be written before it is read.
    rows.sort_by_key(|row| match row.targets.first().map(|target| target.device) {
        Some(Device::Memory(bytes)) => u32::MAX - bytes,
        _ => u32::MAX,
    });
    rows
}

/// One command at a time.
fn latency() -> Vec<Experiment> {
    let spinning = || vec![target(MEMORY, SPIN)];
    let read = Load { arguments: SPIN, ..load("randread", 4096) };
    let write = Load { arguments: SPIN, ..load("randwrite", 4096) };
    let asleep = Load { arguments: SLEEP, ..load("randread", 4096) };
    let mean = |label, of| per_raw(label, of, Metric::MeanUs, Bar::AtMost(1.2));
    let p99 = |label, of| per_raw(label, of, Metric::P99Us, Bar::AtMost(1.3));
    let woken = |label| per_raw(label, label, Metric::MeanUs, Bar::AtMost(1.25));
    vec![
        experiment(
            "randread-4k-1-polling",
            "4 KiB random reads, depth 1, both ends polling, memory",
            spinning(),
            beside_raw(&read, None, true),
            vec![
                mean("mean, flow control on", ON),
                mean("mean, flow control off", OFF),
                p99("p99, flow control on", ON),
                p99("p99, flow control off", OFF),
            ],
        ),
        experiment(
            "randwrite-4k-1-polling",
            "4 KiB random writes, depth 1, both ends polling, memory",
            spinning(),
            vec![raw(&write, None, true), BenchStep { label: OFF, action: Action::Load(write) }],
            vec![mean("mean", OFF), per_raw("p99", OFF, Metric::P99Us, Bar::None)],
        ),
        experiment(
            "randread-4k-1-sleeping",
            "4 KiB random reads, depth 1, both ends woken by interrupts, memory",
            vec![target(MEMORY, SLEEP)],
            beside_raw(&asleep, None, false),
            vec![woken(ON), woken(OFF)],
        ),
    ]
}

/// As much on one connection as most queues hold.
fn thousand() -> Experiment {
    let load = Load { depth: 1000, ..load("randread", 4096) };
    let steps = beside_raw(&load, None, true);
    let figures = [ON, OFF].map(|label| per_raw(label, label, Metric::Iops, Bar::None));
    let about = "4 KiB random reads, depth 1000, memory";
    let targets = vec![target(MEMORY, &["--queue-size", "1024"])];
    experiment("randread-4k-1000-memory", about, targets, steps, figures.into())
}

/// Data digests: what they leave of the rate.
fn digests() -> Vec<Experiment> {
    let rows = [
        ("digest-read-4k", "data digests on 4 KiB random reads, depth 128", "randread", 4096, 0.90),
        (
            "digest-write-4k",
            "data digests on 4 KiB random writes, depth 128",
            "randwrite",
            4096,
            0.90,
        ),
        ("digest-read-128k", "data digests on 128 KiB reads, depth 32", "randread", 131_072, 0.85),
        (
            "digest-write-128k",
            "data digests on 128 KiB writes, depth 32",
            "randwrite",
            131_072,
            0.85,
        ),
    ];
    let row = |(name, about, pattern, block_bytes, bar)| {
        let depth = if block_bytes > 4096 { 32 } else { 128 };
        let ways: &[_] = if pattern == "randread" { &[true, false] } else { &[false] };
        let (mut steps, mut figures) = (Vec::new(), Vec::new());
        for flow_control in ways.iter().copied() {
            let without = Load { depth, flow_control, ..load(pattern, block_bytes) };
            let with = Load { arguments: &["--data-digest"], ..without.clone() };
            let [bare, digests, label] = if flow_control {
                [
                    "without, flow control on",
                    "with, flow control on",
                    "with ÷ without, flow control on",
                ]
            } else {
                ["without", "with", "with ÷ without"]
            };
            steps.push(BenchStep { label: bare, action: Action::Load(without) });
            steps.push(BenchStep { label: digests, action: Action::Load(with) });
            let (of, per) = ((digests, Metric::Iops), Some((bare, Metric::Iops)));
            figures.push(Figure { label, of, per, bar: Bar::AtLeast(bar) });
        }
        experiment(name, about, vec![target(MEMORY, &[])], steps, figures)
    };
    rows.map(row).into()
}

/// Many connections beside as many raw sockets.
fn crowds() -> Vec<Experiment> {
    let rows = [
        ("connections-1", "1 connection of depth 256", 1, 256),
        ("connections-4", "4 connections of depth 64", 4, 64),
        ("connections-16", "16 connections of depth 16", 16, 16),
        ("connections-64", "64 connections of depth 4", 64, 4),
        ("connections-256", "256 connections of depth 1", 256, 1),
        ("connections-1000", "1000 connections of depth 1", 1000, 1),
    ];
    let row = |(name, about, copies, depth)| {
        let load = Load { depth, copies, ..load("randread", 4096) };
        // One connection is waited for by itself, which is faster than epoll.
        let crowd = (copies > 1).then_some(copies);
        let steps = beside_raw(&load, crowd, true);
        let figures = [ON, OFF].map(|label| per_raw(label, label, Metric::Iops, Bar::AtLeast(0.5)));
        experiment(name, about, vec![target(MEMORY, MANY_QUEUES)], steps, figures.into())
    };
    rows.map(row).into()
}

/// Many connections whose requests have times of their own (a Poisson process for each). A closed
/// loop of many connections falls into step: both ends handle all that came meanwhile, and so each
/// sends in bursts, which hides what a single request on one of many connections costs.
fn independent() -> Vec<Experiment> {
    const IOPS_250: &[&str] =
        &["--polling", "spin", "--rate-process", "poisson", "--rate-iops", "250"];
    const IOPS_1000: &[&str] =
        &["--polling", "spin", "--rate-process", "poisson", "--rate-iops", "1000"];
    let rows = [
        (
            "independent-16-read-4k",
            "16 connections of depth 1, 1000 independent 4 KiB reads a second on each",
            Load { copies: 16, arguments: IOPS_1000, ..load("randread", 4096) },
        ),
        (
            "independent-16-write-4k",
            "16 connections of depth 1, 1000 independent 4 KiB writes a second on each",
            Load { copies: 16, arguments: IOPS_1000, ..load("randwrite", 4096) },
        ),
        (
            "independent-64-read-4k",
            "64 connections of depth 1, 250 independent 4 KiB reads a second on each",
            Load { copies: 64, arguments: IOPS_250, ..load("randread", 4096) },
        ),
        (
            "independent-64-write-4k",
            "64 connections of depth 1, 250 independent 4 KiB writes a second on each",
            Load { copies: 64, arguments: IOPS_250, ..load("randwrite", 4096) },
        ),
        (
            "independent-16-read-128k",
            "16 connections of depth 4, 250 independent 128 KiB reads a second on each",
            Load { copies: 16, depth: 4, arguments: IOPS_250, ..load("randread", 131_072) },
        ),
    ];
    let row = |(name, about, load): (_, _, Load)| {
        let alone = Load { depth: 1, ..load.clone() };
        let load = Load { flow_control: true, ..load };
        let steps =
            vec![raw(&alone, None, true), BenchStep { label: ON, action: Action::Load(load) }];
        let figures = vec![
            per_raw(
                "median latency, beside one raw message at a time",
                ON,
                Metric::P50Us,
                Bar::None,
            ),
            per_raw("p99, beside one raw message at a time", ON, Metric::P99Us, Bar::None),
        ];
        experiment(name, about, vec![target(MEMORY, MANY_QUEUES_SPIN)], steps, figures)
    };
    rows.map(row).into()
}

/// Shallow connections beside a deep one.
fn fairness() -> Experiment {
    const PACED: &[&str] = &["--rate-iops", "500", "--rate-process", "poisson"];
    const BOTH: &[&str] =
        &["--rate-iops", "500", "--rate-process", "poisson", "--beside", "iodepth=256"];
    let names = [
        (
            true,
            ["shallow alone, on", "deep alone, on", "both, on"],
            [
                "p99 of the shallow ones, beside ÷ alone, flow control on",
                "IOPS of the deep one, beside ÷ alone, flow control on",
            ],
        ),
        (
            false,
            ["shallow alone", "deep alone", "both"],
            ["p99 of the shallow ones, beside ÷ alone", "IOPS of the deep one, beside ÷ alone"],
        ),
    ];
    let (mut steps, mut figures) = (Vec::new(), Vec::new());
    for (flow_control, [alone, deep_alone, beside], [tail, rate]) in names {
        let one = Load { flow_control, ..load("randread", 4096) };
        let shallow = Load { copies: 16, arguments: PACED, ..one.clone() };
        let both = Load { arguments: BOTH, ..shallow.clone() };
        let deep = Load { depth: 256, ..one };
        // What is not paced comes first and last: it tells whether the machine was steady.
        let mut three = vec![
            BenchStep { label: deep_alone, action: Action::Load(deep) },
            BenchStep { label: alone, action: Action::Load(shallow) },
            BenchStep { label: beside, action: Action::Load(both) },
        ];
        three.rotate_left(usize::from(!flow_control));
        steps.extend(three);
        figures.push(Figure {
            label: tail,
            of: (beside, Metric::P99Us),
            per: Some((alone, Metric::P99Us)),
            bar: Bar::AtMost(3.0),
        });
        figures.push(Figure {
            label: rate,
            of: (beside, Metric::BesideIops),
            per: Some((deep_alone, Metric::Iops)),
            bar: Bar::AtLeast(0.9),
        });
    }
    let about = "16 connections of depth 1 at 500 IOPS each beside one of depth 256";
    experiment("shallow-beside-deep", about, vec![target(MEMORY, MANY_QUEUES)], steps, figures)
}

/// What a second reactor on the same processor costs. Both sleep when they have nothing to do, or
/// each would be charged for looking while the other works.
fn reactors() -> Experiment {
    const ONE: &[&str] = &["--polling", "sleep", "--threads", "1"];
    const TWO: &[&str] = &["--polling", "sleep", "--threads", "2"];
    let confined = |arguments| TargetSpec { confined: true, ..target(Device::Null, arguments) };
    let load =
        |target| Load { target, depth: 64, copies: 2, no_ramp: true, ..load("randread", 4096) };
    let steps = vec![
        BenchStep { label: "one", action: Action::Load(load(0)) },
        BenchStep { label: "two", action: Action::Load(load(1)) },
    ];
    let figure = Figure {
        label: "CPU time for a command, 2 reactors ÷ 1",
        of: ("two", Metric::CpuUsPerIo),
        per: Some(("one", Metric::CpuUsPerIo)),
        bar: Bar::Within(0.1),
    };
    let about = "one reactor against two, on one processor, null";
    let targets = vec![confined(ONE), confined(TWO)];
    Experiment { rounds_min: 10, ..experiment("reactors-1-2", about, targets, steps, vec![figure]) }
}

const TWO_PORTS: &[&str] = &["--listen", "tcp://127.0.0.1:0"];
const IN_TURN: &[&str] = &["--iopolicy", "round-robin"];

/// What a second path costs, over a second port of the same target.
fn paths() -> Vec<Experiment> {
    const TWO_PORTS_SPIN: &[&str] = &["--listen", "tcp://127.0.0.1:0", "--polling", "spin"];
    const IN_TURN_SPIN: &[&str] = &["--iopolicy", "round-robin", "--polling", "spin"];
    let [one, two, in_turn] = ["one path", "two paths", "in turn"];
    let row = |name, about, load: Load, arguments, in_turns, metric, bar| {
        let all = Load { all_paths: true, ..load.clone() };
        let turns = Load { arguments: in_turns, ..all.clone() };
        let step = |label, load| BenchStep { label, action: Action::Load(load) };
        let steps = vec![step(one, load), step(two, all), step(in_turn, turns)];
        let figure =
            |label, of, bar| Figure { label, of: (of, metric), per: Some((one, metric)), bar };
        let figures =
            vec![figure("the best of two", two, bar), figure("round robin", in_turn, Bar::None)];
        experiment(name, about, vec![target(MEMORY, arguments)], steps, figures)
    };
    let deep = Load { depth: 32, ..load("randread", 4096) };
    let shallow = Load { arguments: SPIN, ..load("randread", 4096) };
    vec![
        row(
            "paths-randread-4k-32",
            "4 KiB random reads, depth 32, over one port and over two: IOPS",
            deep,
            TWO_PORTS,
            IN_TURN,
            Metric::Iops,
            Bar::AtLeast(0.97),
        ),
        row(
            "paths-randread-4k-1",
            "the same at depth 1, both ends polling: mean latency in us",
            shallow,
            TWO_PORTS_SPIN,
            IN_TURN_SPIN,
            Metric::MeanUs,
            Bar::AtMostMore(1.0),
        ),
    ]
}

/// What a second path gives where the target has a second processor for it.
fn two_cores() -> Experiment {
    let one = Load { depth: 32, copies: 2, cores: 2, ..load("randread", 4096) };
    let two = Load { target: 1, all_paths: true, arguments: IN_TURN, ..one.clone() };
    let figure = Figure {
        label: "round robin over two cores",
        of: ("two cores", Metric::Iops),
        per: Some(("one core", Metric::Iops)),
        bar: Bar::AtLeast(1.6),
    };
    let steps = vec![
        BenchStep { label: "one core", action: Action::Load(one) },
        BenchStep { label: "two cores", action: Action::Load(two) },
    ];
    let targets = vec![target(MEMORY, &[]), TargetSpec { cores: 2, ..target(MEMORY, TWO_PORTS) }];
    let about =
        "4 KiB random reads, two jobs of depth 32, two paths to two cores of a target: IOPS";
    experiment("paths-two-cores", about, targets, steps, vec![figure])
}

/// What a target takes while it does little.
fn standing() -> Vec<Experiment> {
    let absolute = |label, step, metric, most| Figure {
        label,
        of: (step, metric),
        per: None,
        bar: Bar::AtMost(most),
    };
    let one = |label, action| vec![BenchStep { label, action }];
    vec![
        experiment(
            "idle",
            "CPU time of a target with 100 idle connections",
            vec![target(Device::Null, MANY_QUEUES)],
            one("idle", Action::Idle { target: 0, connections: 100 }),
            vec![absolute("% of a processor", "idle", Metric::CpuPercent, 1.0)],
        ),
        experiment(
            "memory",
            "memory of a target, and of 100 idle connections of depth 128",
            Vec::new(),
            one("memory", Action::Memory { connections: 100 }),
            vec![
                absolute("MiB without connections", "memory", Metric::ProcessMib, 30.0),
                absolute(
                    "KiB a connection, never used",
                    "memory",
                    Metric::IdleConnectionKib,
                    300.0,
                ),
                absolute("KiB a connection, once busy", "memory", Metric::UsedConnectionKib, 300.0),
            ],
        ),
        experiment(
            "growth",
            "growth of a target under load after a tenth of the time (--soak 4000 for an hour)",
            Vec::new(),
            one("growth", Action::Growth),
            vec![absolute("KiB", "growth", Metric::GrowthKib, 256.0)],
        ),
        experiment(
            "start-up",
            "start of the binary to the first block read from it, null",
            Vec::new(),
            one("start", Action::StartUp),
            vec![absolute("ms", "start", Metric::Milliseconds, 50.0)],
        ),
        experiment(
            "failover",
            "the longest request of a host, of whose two paths the first one ends under load",
            Vec::new(),
            vec![
                BenchStep { label: "death", action: Action::Failover(PathEnd::Death) },
                BenchStep { label: "command", action: Action::Failover(PathEnd::Command) },
            ],
            vec![
                absolute("ms, its target is killed", "death", Metric::Milliseconds, 1000.0),
                absolute("ms, by command", "command", Metric::Milliseconds, 50.0),
            ],
        ),
    ]
}

/// What the authentication of others costs a load, with a target that sleeps when it has nothing to
/// do for a moment, and with one that does not, so that no processor is woken for a request.
fn floods() -> Vec<Experiment> {
    let [without, with] = ["without", "with"];
    let row = |name, about, idle_poll| {
        let step = |label, authenticates| {
            let action = Action::Flood(Flood { authenticates, idle_poll });
            BenchStep { label, action }
        };
        let rate = Figure {
            label: "of these a second",
            of: (with, Metric::ConnectsPerSecond),
            per: None,
            bar: Bar::AtLeast(190.0),
        };
        let figures = [(Metric::P99Us, Bar::AtMost(1.2)), (Metric::P50Us, Bar::None)];
        let mut figures: Vec<_> = figures
            .map(|(metric, bar)| Figure {
                label: if metric == Metric::P99Us { "p99" } else { "median" },
                of: (with, metric),
                per: Some((without, metric)),
                bar,
            })
            .into();
        figures.push(rate);
        experiment(name, about, Vec::new(), vec![step(without, false), step(with, true)], figures)
    };
    vec![
        row(
            "authentication-flood",
            "a load beside 200 hosts a second that authenticate themselves ÷ that do not",
            "50us",
        ),
        row(
            "authentication-flood-polling",
            "the same, at a target that polls between two requests",
            "1ms",
        ),
    ]
}

fn experiment(
    name: &'static str,
    about: &'static str,
    targets: Vec<TargetSpec>,
    steps: Vec<BenchStep>,
    figures: Vec<Figure>,
) -> Experiment {
    Experiment { name, about, targets, steps, figures, rounds_min: 1 }
}

fn target(device: Device, arguments: &'static [&'static str]) -> TargetSpec {
    TargetSpec { device, arguments, confined: false, cores: 1 }
}

fn load(pattern: &'static str, block_bytes: u32) -> Load {
    Load {
        target: 0,
        pattern,
        block_bytes,
        depth: 1,
        copies: 1,
        cores: 1,
        flow_control: false,
        arguments: &[],
        all_paths: false,
        no_ramp: false,
    }
}

/// The raw socket, and a load with flow control and without.
fn beside_raw(load: &Load, connections: Option<u32>, spin: bool) -> Vec<BenchStep> {
    let of_load = |label, flow_control| {
        let action = Action::Load(Load { flow_control, ..load.clone() });
        BenchStep { label, action }
    };
    vec![raw(load, connections, spin), of_load(ON, true), of_load(OFF, false)]
}

/// The raw socket with the messages of this load.
fn raw(load: &Load, connections: Option<u32>, spin: bool) -> BenchStep {
    BenchStep { label: RAW, action: Action::Floor(floor(load, connections, spin)) }
}

fn floor(load: &Load, connections: Option<u32>, spin: bool) -> Floor {
    let data = load.block_bytes;
    let (request_bytes, response_bytes) = if load.pattern.ends_with("read") {
        (CAPSULE_BYTES, HEADER_BYTES + data)
    } else if data <= IN_CAPSULE_BYTES {
        (CAPSULE_BYTES + data, HEADER_BYTES)
    } else {
        (CAPSULE_BYTES + HEADER_BYTES + data, HEADER_BYTES)
    };
    let depth = load.depth;
    Floor { request_bytes, response_bytes, depth, connections, spin, congestion: None }
}

/// Messages so large that the system's congestion control may pace them are set beside `reno`, too;
/// the bars are beside what the system has chosen.
fn add_equal_terms(load: &Load, steps: &mut Vec<BenchStep>, figures: &mut Vec<Figure>) {
    if load.block_bytes <= 4096 {
        return;
    }
    let floor = Floor { congestion: Some("reno"), ..floor(load, None, true) };
    steps.push(BenchStep { label: RENO, action: Action::Floor(floor) });
    figures.push(Figure {
        label: "flow control off, beside raw with reno",
        of: (OFF, Metric::Iops),
        per: Some((RENO, Metric::Iops)),
        bar: Bar::None,
    });
}

fn per_raw(label: &'static str, step: &'static str, metric: Metric, bar: Bar) -> Figure {
    Figure { label, of: (step, metric), per: Some((RAW, metric)), bar }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_figure_is_made_of_steps_that_there_are() {
        let mut names = HashSet::new();
        for row in all() {
            assert!(names.insert(row.name), "{} twice", row.name);
            let labels: Vec<&str> = row.steps.iter().map(|step| step.label).collect();
            assert!(!row.figures.is_empty(), "{}", row.name);
            for figure in &row.figures {
                let parts = std::iter::once(figure.of).chain(figure.per);
                for (label, _) in parts {
                    assert!(labels.contains(&label), "{}: {label}", row.name);
                }
            }
            for step in &row.steps {
                if let Action::Load(load) = &step.action {
                    assert!(load.target < row.targets.len(), "{}", row.name);
                }
            }
        }
    }

    #[test]
    fn the_raw_messages_are_those_of_the_protocol() {
        let sizes = |pattern, block_bytes| {
            let floor = floor(&load(pattern, block_bytes), None, true);
            (floor.request_bytes, floor.response_bytes)
        };
        assert_eq!(sizes("randread", 4096), (72, 4120));
        assert_eq!(sizes("randread", 131_072), (72, 131_096));
        assert_eq!(sizes("randwrite", 4096), (4168, 24));
        assert_eq!(sizes("randwrite", 131_072), (131_168, 24));
    }

    #[test]
    fn another_target_is_asked_for_nothing_that_only_ours_can_show() {
        let any: Vec<&str> =
            all().iter().filter(|row| row.suits_any_target()).map(|row| row.name).collect();
        assert!(any.contains(&"randread-4k-128-memory") && any.contains(&"connections-1000"));
        for ours in ["randread-4k-128-null", "reactors-1-2", "idle", "memory", "start-up"] {
            assert!(!any.contains(&ours), "{ours}");
        }
    }
}
