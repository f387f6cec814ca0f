//! Results of a machine that does not exist, for pages that are tested and looked at.
//!
//! Plans are the real ones, and so are the cells that they come to on a machine of four processors;
//! what was measured there follows from a few lines of queueing and from a seed. The same study
//! always gives the same files.

use std::path::Path;
use std::{fs, io};

use weft_lab::results::{
    Configuration, Connection, Core, Direction, Environment, IdleRate, Interface, LatencyRecord,
    LinkProbe, Mark, Processor, Record, Role, Side, SideMachine, Status, Store, TestedTarget,
    Thread, Value, Window, key, number,
};
use weft_lab::study::builtin;
use weft_lab::study::capabilities::Capabilities;
use weft_lab::study::matrix::{self, Cell, Step};
use weft_lab::study::plan::{Plan, Run};
use weft_load::Latency;

/// Seconds that every repeat is said to have counted.
const SECONDS: f64 = 10.0;

/// When the first of them is said to have begun.
const STARTED_AT_MS: u64 = 1_750_000_000_000;

/// How the machine is made: how much slower than itself it is.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// All times are so many times as long.
    pub slowness: f64,
    /// Standard deviation of what repeats differ by.
    pub noise: f64,
    /// What chance there is comes from this.
    pub seed: u64,
    /// Repeats of each cell, if not the plan's.
    pub repeats: Option<u32>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { slowness: 1.0, noise: 0.015, seed: 1, repeats: None }
    }
}

/// Numbers that look like chance.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn of(text: &str, seed: u64) -> Self {
        // FNV-1a, so that neighbours have nothing to do with each other.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About 1, with this deviation.
    fn about_one(&mut self, deviation: f64) -> f64 {
        let sum: f64 = (0..12).map(|_| self.share()).sum();
        1.0 + deviation * (sum - 6.0)
    }
}

/// What a load comes to.
#[derive(Clone, Copy, Debug)]
struct Load {
    iops: f64,
    /// Of the middle request.
    latency_us: f64,
    /// How far the tail goes.
    tail: f64,
}

fn integer(configuration: &Configuration, key: &str, otherwise: u64) -> f64 {
    let value = configuration.get(key).and_then(Value::as_integer).unwrap_or(otherwise);
    value as f64
}

fn text<'a>(configuration: &'a Configuration, key: &str) -> &'a str {
    configuration.get(key).and_then(Value::as_text).unwrap_or_default()
}

/// Little's law over a path with a fixed cost, a cost for each byte, and a limit for each core.
fn load(cell: &Cell, machine: &Machine, chance: &mut Chance) -> Load {
    let c = &cell.configuration;
    let bytes = integer(c, key::BLOCK_BYTES, 4096);
    let in_flight = integer(c, key::DEPTH, 1) * integer(c, key::JOBS, 1);
    let cores = integer(c, key::HOST_CORES, 1).max(1.0);
    let local = text(c, key::TRANSPORT) == "local";
    let write = text(c, key::PATTERN).ends_with("write");
    let sleeps = text(c, key::HOST_POLLING) == "sleep";
    let same_core = text(c, key::PLACEMENT) == "same-core";
    let (mut base_us, bytes_per_us, core_iops, link_per_us) = if local {
        (0.9, 11_000.0, 2_400_000.0, 24_000.0)
    } else {
        (14.0, 5_200.0, 235_000.0, 6_400.0)
    };
    if write {
        base_us *= 1.15;
    }
    if !local {
        base_us += if sleeps { 6.0 } else { 0.0 } + if same_core { 9.0 } else { 0.0 };
        let idle = c.get(key::TARGET_IDLE_POLL_US).and_then(Value::as_integer);
        base_us += idle.map_or(0.0, |idle| (5.0 - idle as f64 / 8.0).max(0.0));
    }
    let request_us = (base_us + bytes / bytes_per_us) * machine.slowness;
    let limit = (core_iops * cores.powf(0.85) / machine.slowness)
        .min(link_per_us * 1e6 / bytes / machine.slowness);
    let noise = chance.about_one(machine.noise);
    let free = in_flight / request_us * 1e6;
    // A smooth knee between the two.
    let iops = noise / (free.powi(-3) + limit.powi(-3)).cbrt();
    let latency_us = in_flight / iops * 1e6;
    Load { iops, latency_us, tail: if local { 0.16 } else { 0.22 } }
}

/// What a neighbour on the same processor does to a load.
fn disturbed(load: Load, cell: &Cell) -> Load {
    // Half of it is the network's.
    let part = if text(&cell.configuration, key::BACKGROUND) == "network" { 0.5 } else { 1.0 };
    let share = part * integer(&cell.configuration, key::LOAD_PERCENT, 0) / 100.0;
    if text(&cell.configuration, key::FOREGROUND) == "l-app" {
        let latency_us = load.latency_us * (1.0 + 0.5 * share / (1.02 - share));
        return Load { iops: 1e6 / latency_us, latency_us, tail: load.tail * (1.0 + 1.6 * share) };
    }
    let kept = 1.0 - 0.55 * share * share;
    Load {
        iops: load.iops * kept,
        latency_us: load.latency_us / kept,
        tail: load.tail + share / 4.0,
    }
}

/// An open loop at a share of the capacity: the queue in front of it is that of one server.
fn offered(capacity: Load, cell: &Cell) -> Load {
    let share = integer(&cell.configuration, key::LOAD_PERCENT, 0) / 100.0;
    let latency_us = 1e6 / capacity.iops * 20.0 * (1.0 + 0.05 * share / (1.0 - share));
    Load { iops: capacity.iops * share, latency_us, tail: 0.1 + 0.2 * share }
}

/// A distribution with a long tail whose mean is that of the load.
fn latency(load: &Load, requests: u64, chance: &mut Chance) -> Latency {
    let mut latency = Latency::new();
    const STEPS: u64 = 1500;
    let sigma = load.tail * chance.about_one(0.05);
    for step in 0..STEPS {
        let times = requests / STEPS + u64::from(step < requests % STEPS);
        let mut left = times;
        // The last step is the tail: halves of halves.
        let mut share = (step as f64 + 0.5) / STEPS as f64;
        loop {
            let now = if step + 1 == STEPS && left > 2 { left / 2 } else { left };
            let odds: f64 = share / (1.0 - share);
            let us = load.latency_us * 0.96 * (sigma * odds.ln()).exp();
            let us = us.max(load.latency_us * 0.45);
            latency.record_times(nanoseconds(us), now);
            left -= now;
            if left == 0 {
                break;
            }
            share = 1.0 - (1.0 - share) / 2.0;
        }
    }
    latency
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of this world")]
fn nanoseconds(us: f64) -> u64 {
    (us * 1e3) as u64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn count(number: f64) -> u64 {
    number as u64
}

/// What both sides have in common.
struct SideLoad {
    seconds: f64,
    iops: f64,
    /// The share of softirqs in busy time.
    network: f64,
}

/// A side whose processors `cpus` were busy for `busy` of the time.
fn side(name: &str, cpus: &[usize], busy: f64, load: &SideLoad) -> Side {
    let SideLoad { seconds, iops, network } = *load;
    let busy = busy.min(0.995);
    let cores = (0..4)
        .map(|cpu| {
            let busy = if cpus.contains(&cpu) { busy } else { 0.02 };
            let softirq = network * busy;
            Core {
                cpu,
                user_s: seconds * busy * 0.35,
                system_s: seconds * (busy * 0.65 - softirq).max(0.0),
                softirq_s: seconds * softirq,
                irq_s: 0.0,
                iowait_s: seconds * 0.002,
                idle_s: seconds * (0.998 - busy).max(0.0),
                steal_s: 0.0,
            }
        })
        .collect();
    let each = |cpu: &usize| Thread {
        name: format!("{name}-{cpu}"),
        user_s: seconds * busy * 0.35,
        system_s: seconds * busy * 0.6,
        context_switches: count(iops * seconds * (1.0 - busy) / cpus.len().max(1) as f64),
        ..Thread::default()
    };
    let softirqs = [("NET_RX", 0.8), ("NET_TX", 0.1), ("TIMER", 0.01)];
    let softirqs = softirqs.map(|(name, share)| (name.to_owned(), count(iops * seconds * share)));
    Side {
        seconds,
        threads: cpus.iter().map(each).collect(),
        machine: SideMachine {
            cores,
            interrupts: count(2_000.0 * seconds + iops * 0.05 * seconds),
            context_switches: count(iops * seconds * 0.4),
            softirqs: if network > 0.0 { softirqs.into() } else { Default::default() },
        },
        cpus: cpus.to_vec(),
        ..Side::default()
    }
}

fn measured(cell: &Cell, repeat: u32, study: &str, seconds: f64, machine: &Machine) -> Record {
    let mut chance = Chance::of(&format!("{study} {} {repeat}", cell.id), machine.seed);
    let mut load = load(cell, machine, &mut chance);
    if cell.role == Role::Foreground {
        load = disturbed(load, cell);
    }
    let mut record = record(cell, repeat, study);
    if cell.role == Role::Plain && cell.configuration.contains_key(key::LOAD_PERCENT) {
        load = offered(load, cell);
        record.values.insert(number::OFFERED_IOPS.to_owned(), load.iops);
        record.mark(Mark::OpenLoop);
    }
    if cell.role == Role::Background {
        let share = integer(&cell.configuration, key::LOAD_PERCENT, 0) / 100.0;
        let offered = share * load.iops;
        let reached = offered.min(load.iops * 0.82);
        record.values.insert(number::OFFERED_IOPS.to_owned(), offered);
        record.mark(Mark::OpenLoop);
        if reached < offered * 0.97 {
            record.mark(Mark::BackgroundShort);
        }
        load.iops = reached;
    }
    let requests = count(load.iops * seconds);
    let bytes = integer(&cell.configuration, key::BLOCK_BYTES, 4096);
    let direction = Direction {
        requests,
        bytes: count(requests as f64 * bytes),
        seconds,
        latency: LatencyRecord::of(&latency(&load, requests, &mut chance)),
        completion: None,
        window_iops: (0..count(seconds * 2.0))
            .map(|_| load.iops * chance.about_one(machine.noise * 2.0))
            .collect(),
    };
    if text(&cell.configuration, key::PATTERN).ends_with("write") {
        record.write = Some(direction);
    } else {
        record.read = Some(direction);
    }
    record.windows = windows(&load, seconds, machine, &mut chance);
    let local = text(&cell.configuration, key::TRANSPORT) == "local";
    let full = (load.iops / if local { 2_400_000.0 } else { 250_000.0 }).max(0.25);
    let sleeps = text(&cell.configuration, key::HOST_POLLING) == "sleep";
    let busy = if sleeps { full.min(0.9) } else { 0.98 };
    let network = if local { 0.0 } else { 0.3 };
    let both = SideLoad { seconds, iops: load.iops, network };
    record.host = Some(side("load", &[2, 3], busy, &both));
    if !local {
        record.target = Some(side("group", &[0, 1], full.min(0.97), &both));
        record.mark(Mark::Loopback);
        let transport = text(&cell.configuration, key::TRANSPORT);
        record.connection = Some(Connection::over_loopback(transport));
    }
    if cell.role == Role::Saturation {
        record.values.insert(number::SATURATION_IOPS.to_owned(), load.iops * 1.01);
        if text(&cell.configuration, key::SHARED) == "target" {
            record.mark(Mark::LoadLimited);
        }
    }
    record
}

/// The windows of a ramp of two seconds and of the measured time.
fn windows(load: &Load, seconds: f64, machine: &Machine, chance: &mut Chance) -> Vec<Window> {
    let of = |number: u64| {
        let ramp = number < 4;
        let share = if ramp { 0.6 + 0.1 * number as f64 } else { 1.0 };
        let noise = chance.about_one(machine.noise * 2.0);
        let p99_ns = Some(count(load.latency_us * 1e3 * 1.8 / share));
        Window { at_s: 0.5 * (number + 1) as f64, iops: load.iops * share * noise, p99_ns, ramp }
    };
    (0..4 + count(seconds * 2.0)).map(of).collect()
}

fn record(cell: &Cell, repeat: u32, study: &str) -> Record {
    let mut record = Record::new(study, &cell.id, cell.role, cell.configuration.clone());
    record.repeat = repeat;
    record.started_at_ms = STARTED_AT_MS + u64::from(repeat) * 60_000;
    let only: Vec<String> = cell.id.split(' ').map(|word| format!("--only {word}")).collect();
    record.command = format!("weft study run {study} {}", only.join(" "));
    record
}

fn environment(plan: &Plan, machine: &Machine) -> Environment {
    let probe = |spinning: bool, us: f64| {
        let us = us * machine.slowness;
        let load = Load { iops: 1e6 / us, latency_us: us, tail: 0.12 };
        let latency = latency(&load, 80_000, &mut Chance::of("link", machine.seed));
        LinkProbe {
            between: "127.0.0.1 and itself".to_owned(),
            connection: Some(Connection::over_loopback("tcp")),
            congestion: "reno".to_owned(),
            spinning,
            spoilt: false,
            request_bytes: 72,
            response_bytes: 4120,
            round_trip: LatencyRecord::of(&latency),
            round_trips_per_s: 1e6 / us,
            messages_per_s: 410_000.0 / machine.slowness,
            stream_bytes_per_s: 6.8e9 / machine.slowness,
        }
    };
    Environment {
        schema: weft_lab::results::SCHEMA,
        study: plan.name.clone(),
        command_line: ["weft", "study", "run", &plan.name, "--seed", "7"]
            .map(str::to_owned)
            .to_vec(),
        weft_version: "0.1.0".to_owned(),
        builds: vec!["made up".to_owned()],
        seed: 7,
        started_at_ms: STARTED_AT_MS,
        ended_at_ms: STARTED_AT_MS + 900_000,
        interrupted: false,
        kernel: "6.12.1".to_owned(),
        machine: "made-up".to_owned(),
        processor: Processor {
            model: "Made-up CPU @ 3.0 GHz".to_owned(),
            cores: 4,
            governor: "performance".to_owned(),
            hypervisor: false,
        },
        memory_bytes: 16 << 30,
        interfaces: vec![Interface {
            name: "lo".to_owned(),
            driver: String::new(),
            mtu: 65_536,
            ..Interface::default()
        }],
        sysctls: [("net.core.busy_poll".to_owned(), "0".to_owned())].into(),
        driver: "io_uring".to_owned(),
        local: "memory, 256 MiB".to_owned(),
        local_inside: false,
        targets: vec![TestedTarget {
            address: "nvme-tcp://127.0.0.1:4420".to_owned(),
            device: "memory, 256 MiB".to_owned(),
            started_here: true,
            identity: "weft 0.1.0".to_owned(),
            statistics: true,
        }],
        irq_time_accounting: Some(false),
        idle: Some(IdleRate {
            seconds: 2.0,
            processors: 2,
            cpu_s: 0.02,
            interrupts: 400.0,
            network_softirqs: 30.0,
        }),
        target_idle: Default::default(),
        link: vec![probe(true, 9.5), probe(false, 15.0)],
        notes: vec!["These results are made up: no machine was measured.".to_owned()],
        ..Environment::default()
    }
}

/// Writes the results of a built-in study to a directory.
///
/// One cell is void, one has failed once and one is short of samples, so that a page has to say so;
/// cells that need what the machine does not have are skipped for the reason that the study gives.
///
/// # Errors
/// There is no such study, or the directory cannot be written.
pub fn write(study: &str, machine: &Machine, directory: &Path) -> io::Result<()> {
    let plan = builtin::find(study).map(builtin::Builtin::plan);
    let Some(Ok(mut plan)) = plan else {
        return Err(io::Error::other(format!("no study {study}")));
    };
    plan.run = Some(Run { seed: 7, ..Run::default() });
    let capabilities = Capabilities {
        cpus: (0..4).collect(),
        own_target: true,
        targets: Vec::new(),
        rdma: false,
        tls: true,
        ..Capabilities::default()
    };
    let cells = matrix::expand(&plan, &capabilities, &Configuration::new());
    let seconds = SECONDS.min(plan.measure.runtime.as_secs_f64());
    let _ = fs::remove_dir_all(directory);
    let mut store = Store::open(directory)?;
    let mut records = Vec::new();
    let mut run = 0;
    for cell in cells.steps().flat_map(Step::cells) {
        if let Some(reason) = &cell.missing {
            let mut skipped = record(cell, 1, study);
            skipped.status = Status::Skipped { reason: reason.clone() };
            records.push(skipped);
            continue;
        }
        run += 1;
        for repeat in 1..=machine.repeats.unwrap_or(plan.measure.repeats) {
            let mut one = measured(cell, repeat, study, seconds, machine);
            if study == "first-look" {
                one.mark(Mark::NotAwaited);
            } else if run == 5 {
                one.status = Status::Void {
                    reason: "the target served 12 commands on another poll group".to_owned(),
                };
            } else if run == 7 && repeat == 2 {
                one.status = Status::Failed { reason: "the peer closed the connection".to_owned() };
            } else if run == 8 {
                one.mark(Mark::NotSettled);
            }
            records.push(one);
        }
    }
    let mut environment = environment(&plan, machine);
    environment.cells = cells.steps().flat_map(Step::cells).map(|cell| cell.id.clone()).collect();
    store.set_environment(&environment)?;
    store.set_plan(&plan.to_text().map_err(io::Error::other)?)?;
    for record in &records {
        store.add(record)?;
    }
    let results = weft_lab::results::load(directory).map_err(io::Error::other)?;
    if let Some(answer) = weft_lab::claims::answer(&results) {
        store.set_answer(&answer)?;
    }
    store.set_table(&records)?;
    store.set_environment(&environment)
}
