//! The targets that run, and samples taken of them.

use super::experiment::{
    Action, BenchStep, Device, Experiment, Floor, Load, Metric, Sample, TargetSpec,
};
use super::options::Options;
use super::process::{Program, RunningProcess, Target, signal, words};
use super::rows::MANY_QUEUES;
use super::{failover, flood, machine};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Size of a memory device, and of the region of any other that is read and written.
const REGION_BYTES: u64 = 512 << 20;

/// A region that every host's null device is larger than.
const NULL_SIZE: &str = "1TiB";

/// What a target needs to notice that nothing happens any more: messages that have grown are given
/// up after a second.
const SETTLE: Duration = Duration::from_millis(2500);

/// Connections of the soak, each as deep as [`SOAK_DEPTH`].
const SOAK_CONNECTIONS: u32 = 16;
const SOAK_DEPTH: u32 = 16;

/// Before the soak counts, the target is stopped for so long, again and again.
const STALL: Duration = Duration::from_millis(50);
const BETWEEN_STALLS: Duration = Duration::from_millis(200);

/// A target whose own needs are measured.
const STANDING: TargetSpec =
    TargetSpec { device: Device::Null, arguments: MANY_QUEUES, confined: false, cores: 1 };

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    program: Program,
    options: &'a Options,
    targets: Vec<(TargetSpec, Target)>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(program: Program, options: &'a Options) -> Self {
        Self { program, options, targets: Vec::new() }
    }

    /// Starts the targets of an experiment and stops all others.
    pub(crate) fn prepare(&mut self, experiment: &Experiment) -> Result<()> {
        if let Some(address) = self.options.target.clone() {
            return self.fill(&address);
        }
        self.targets.retain(|(spec, _)| experiment.targets.contains(spec));
        for spec in &experiment.targets {
            if self.targets.iter().any(|(running, _)| running == spec) {
                continue;
            }
            let target = self.start(spec)?;
            if matches!(spec.device, Device::Memory(_)) {
                self.fill(&target.address)?;
            }
            self.targets.push((spec.clone(), target));
        }
        Ok(())
    }

    /// Stops all targets.
    pub(crate) fn clear(&mut self) {
        self.targets.clear();
    }

    /// Takes one sample.
    pub(crate) fn take(&self, experiment: &Experiment, step: &BenchStep) -> Result<Sample> {
        let before = machine::stolen_ticks();
        let mut sample = match &step.action {
            Action::Floor(floor) => {
                self.let_run(None)?;
                let sample = self.floor(floor);
                self.let_all_run(true)?;
                sample?
            }
            Action::Load(load) => {
                self.let_run(experiment.targets.get(load.target))?;
                let sample = self.load(experiment, load);
                self.let_all_run(true)?;
                sample?
            }
            Action::Idle { target, connections } => {
                self.idle(self.target(experiment, *target)?, *connections)?
            }
            Action::Memory { connections } => self.memory(&self.start(&STANDING)?, *connections)?,
            Action::Growth => self.growth(&self.start(&STANDING)?)?,
            Action::StartUp => self.start_up()?,
            Action::Failover(end) => failover::sample(&self.program, *end)?,
            Action::Flood(flood) => flood::sample(&self.program, self.options, *flood)?,
        };
        let after = machine::stolen_ticks();
        let all = after.1.saturating_sub(before.1);
        if all > 0 {
            let stolen = after.0.saturating_sub(before.0);
            sample.insert(Metric::StolenPercent, 100.0 * stolen as f64 / all as f64);
        }
        Ok(sample)
    }

    /// Only this target may run: one that never sleeps would take half of the processor from
    /// whatever else is measured on it.
    fn let_run(&self, only: Option<&TargetSpec>) -> Result<()> {
        if let Some(process) = self.options.target_pid {
            signal(process, if only.is_some() { Signal::CONT } else { Signal::STOP })?;
        }
        self.targets.iter().try_for_each(|(spec, target)| target.let_run(Some(spec) == only))
    }

    pub(crate) fn let_all_run(&self, may_run: bool) -> Result<()> {
        if let Some(process) = self.options.target_pid {
            signal(process, if may_run { Signal::CONT } else { Signal::STOP })?;
        }
        self.targets.iter().try_for_each(|(_, target)| target.let_run(may_run))
    }

    fn start(&self, spec: &TargetSpec) -> Result<Target> {
        let mut arguments = words(&["target", "--listen", "tcp://127.0.0.1:0"]);
        arguments.extend(words(&["--output-format", "json", "--stop-with-stdin"]));
        arguments.extend(match spec.device {
            Device::Memory(block) => {
                let device = format!("{REGION_BYTES},block={block}");
                words(&["--memory", &device])
            }
            Device::Null => words(&["--null", NULL_SIZE]),
        });
        arguments.extend(words(spec.arguments));
        if spec.confined {
            return Target::start(&self.program, &arguments, Some(self.options.cpus.0));
        }
        arguments.extend(words(&["--cpus", &self.options.target_cpus(spec.cores)]));
        Target::start(&self.program, &arguments, None)
    }

    /// Memory that was never written is not there yet, and reading it costs something else.
    fn fill(&self, address: &str) -> Result<()> {
        let mut arguments = words(&["bench", address, "--rw", "write", "--bs", "128k"]);
        arguments.extend(words(&["--iodepth", "32", "--output-format", "json", "--quiet"]));
        let bytes = REGION_BYTES.to_string();
        arguments.extend(words(&["--size", &bytes, "--io-size", &bytes]));
        arguments.extend(words(&["--cpus", &self.options.cpus.1.to_string()]));
        self.program.json(&arguments).context("writing the device once").map(drop)
    }

    fn target(&self, experiment: &Experiment, number: usize) -> Result<&Target> {
        let spec = experiment.targets.get(number).context("no such target")?;
        let found = self.targets.iter().find(|(running, _)| running == spec);
        found.map(|(_, target)| target).context("the target does not run")
    }

    fn floor(&self, floor: &Floor) -> Result<Sample> {
        let (server, client) = self.options.cpus;
        let mut arguments = words(&["floor", "--output-format", "json"]);
        let mut push = |key: &str, value: String| arguments.extend([key.to_owned(), value]);
        push("--request", floor.request_bytes.to_string());
        push("--response", floor.response_bytes.to_string());
        push("--iodepth", floor.depth.to_string());
        push("--runtime", time(self.options.runtime()));
        push("--ramp-time", time(self.options.ramp()));
        push("--cpus", format!("{server},{client}"));
        if let Some(connections) = floor.connections {
            push("--connections", connections.to_string());
        }
        if let Some(name) = floor.congestion {
            push("--congestion", name.to_owned());
        }
        if floor.spin {
            arguments.push("--spin".to_owned());
        }
        let said = self.program.json(&arguments)?;
        let mut sample = Sample::new();
        put(&mut sample, Metric::Iops, &said["messages_per_second"], 1.0);
        put(&mut sample, Metric::MeanUs, &said["latency_ns"]["mean"], 1e-3);
        put(&mut sample, Metric::P50Us, &said["latency_ns"]["p50"], 1e-3);
        put(&mut sample, Metric::P99Us, &said["latency_ns"]["p99"], 1e-3);
        let (runtime, ramp) = (self.options.runtime(), self.options.ramp());
        let messages = said["messages"].as_f64().unwrap_or(0.0);
        // The server's time counts from the first message on, the messages only after the ramp.
        let messages = messages * (runtime + ramp).as_secs_f64() / runtime.as_secs_f64();
        if messages > 0.0 {
            put(&mut sample, Metric::CpuUsPerIo, &said["server_cpu_seconds"], 1e6 / messages);
        }
        Ok(sample)
    }

    fn load(&self, experiment: &Experiment, load: &Load) -> Result<Sample> {
        let (address, process) = match &self.options.target {
            Some(address) => (address.clone(), None),
            None => {
                let target = self.target(experiment, load.target)?;
                let address = if load.all_paths { &target.all_paths } else { &target.address };
                (address.clone(), Some(target.id()))
            }
        };
        let mut arguments = self.load_words(&address, load);
        arguments.extend(words(&["--runtime", &time(self.options.runtime())]));
        if !load.no_ramp {
            arguments.extend(words(&["--ramp-time", &time(self.options.ramp())]));
        }
        let before = process.map(machine::cpu_time).transpose()?;
        let said = self.program.json(&arguments)?;
        let mut sample = Sample::new();
        let jobs = [(0, Metric::Iops, Metric::P99Us), (1, Metric::BesideIops, Metric::BesideP99Us)];
        for (job, iops, p99) in jobs {
            let job = &said["jobs"][job];
            let side = if load.pattern.ends_with("read") { &job["read"] } else { &job["write"] };
            put(&mut sample, iops, &side["iops"], 1.0);
            put(&mut sample, p99, &side["lat_ns"]["percentile"]["99.000000"], 1e-3);
            if iops == Metric::Iops {
                put(&mut sample, Metric::MeanUs, &side["lat_ns"]["mean"], 1e-3);
                put(&mut sample, Metric::P50Us, &side["lat_ns"]["percentile"]["50.000000"], 1e-3);
                let requests = side["total_ios"].as_f64().unwrap_or(0.0);
                if let (Some(process), Some(before), true) = (process, before, requests > 0.0) {
                    let used = machine::cpu_time(process)?.saturating_sub(before);
                    // What the ramp brought is not among the requests.
                    let ramp = if load.no_ramp { Duration::ZERO } else { self.options.ramp() };
                    let runtime = self.options.runtime().as_secs_f64();
                    let requests = requests * (runtime + ramp.as_secs_f64()) / runtime;
                    sample.insert(Metric::CpuUsPerIo, used.as_secs_f64() * 1e6 / requests);
                }
            }
        }
        Ok(sample)
    }

    fn load_words(&self, address: &str, load: &Load) -> Vec<String> {
        let mut arguments = words(&["bench", address, "--output-format", "json", "--quiet"]);
        let mut push = |key: &str, value: String| arguments.extend([key.to_owned(), value]);
        push("--rw", load.pattern.to_owned());
        push("--bs", load.block_bytes.to_string());
        push("--iodepth", load.depth.to_string());
        push("--numjobs", load.copies.to_string());
        push("--size", REGION_BYTES.to_string());
        push("--cpus", self.options.load_cpus(load.cores));
        if self.program.has_random_map() {
            arguments.extend(words(&["--time_based", "--norandommap"]));
        }
        arguments.push(format!("--disable-sqflow={}", !load.flow_control));
        arguments.extend(words(load.arguments));
        arguments
    }

    /// Load with connections that say nothing: the first of their requests is their last.
    fn idle_load(&self, target: &Target, connections: usize) -> Vec<String> {
        let copies = u32::try_from(connections).unwrap_or(u32::MAX);
        let load = Load {
            target: 0,
            pattern: "randread",
            block_bytes: 4096,
            depth: 128,
            copies,
            cores: 1,
            flow_control: true,
            arguments: &["--polling", "sleep", "--runtime", "1000000"],
            all_paths: false,
            no_ramp: true,
        };
        self.load_words(&target.address, &load)
    }

    fn idle(&self, target: &Target, connections: usize) -> Result<Sample> {
        let before = machine::sockets(target.id())?;
        let mut arguments = self.idle_load(target, connections);
        arguments.extend(words(&["--rate-iops", "0.001"]));
        let load = RunningProcess::start(&self.program, &arguments)?;
        target.wait_for_connections(before + connections)?;
        std::thread::sleep(SETTLE);
        let (start, used) = (Instant::now(), machine::cpu_time(target.id())?);
        std::thread::sleep(self.options.runtime().max(Duration::from_secs(1)));
        let used = machine::cpu_time(target.id())?.saturating_sub(used);
        let percent = 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
        load.kill()?;
        target.wait_for_quiet(before)?;
        Ok(Sample::from([(Metric::CpuPercent, percent)]))
    }

    fn memory(&self, target: &Target, connections: usize) -> Result<Sample> {
        let sockets = machine::sockets(target.id())?;
        let empty = machine::resident_bytes(target.id())?;
        let mut rest = self.idle_load(target, connections);
        let mut work = rest.clone();
        rest.extend(words(&["--rate-iops", "0.001"]));
        let load = RunningProcess::start(&self.program, &rest)?;
        target.wait_for_connections(sockets + connections)?;
        std::thread::sleep(SETTLE);
        let idle = machine::resident_bytes(target.id())?;
        load.kill()?;
        target.wait_for_quiet(sockets)?;
        // A host that is stopped under load keeps its connections and sends nothing; without a
        // keep-alive timeout the target does not end them.
        work.extend(words(&["--keep-alive-tmo", "0"]));
        let load = RunningProcess::start(&self.program, &work)?;
        target.wait_for_connections(sockets + connections)?;
        std::thread::sleep(Duration::from_secs(1));
        load.freeze()?;
        std::thread::sleep(SETTLE);
        let used = machine::resident_bytes(target.id())?;
        load.kill()?;
        target.wait_for_quiet(sockets)?;
        let each = |bytes: u64| bytes.saturating_sub(empty) as f64 / 1024.0 / connections as f64;
        Ok(Sample::from([
            (Metric::ProcessMib, empty as f64 / f64::from(1 << 20)),
            (Metric::IdleConnectionKib, each(idle)),
            (Metric::UsedConnectionKib, each(used)),
        ]))
    }

    /// From the first tenth of the time to its end. In that tenth the target is kept from running
    /// again and again and finds more waiting than it ever will later, so that memory which it
    /// touches for the first time because of that is not taken for growth.
    fn growth(&self, target: &Target) -> Result<Sample> {
        let soak = Duration::from_secs_f64(self.options.soak);
        let load = Load {
            target: 0,
            pattern: "randrw",
            block_bytes: 4096,
            depth: SOAK_DEPTH,
            copies: SOAK_CONNECTIONS,
            cores: 1,
            flow_control: true,
            arguments: &["--runtime", "1000000"],
            all_paths: false,
            no_ramp: true,
        };
        let sockets = machine::sockets(target.id())?;
        let running =
            RunningProcess::start(&self.program, &self.load_words(&target.address, &load))?;
        target.wait_for_connections(sockets + SOAK_CONNECTIONS as usize)?;
        let start = Instant::now();
        while start.elapsed() < soak / 10 {
            target.let_run(false)?;
            std::thread::sleep(STALL);
            target.let_run(true)?;
            std::thread::sleep(BETWEEN_STALLS);
        }
        let before = machine::resident_bytes(target.id())?;
        std::thread::sleep(soak - soak / 10);
        let after = machine::resident_bytes(target.id())?;
        // A load that has ended meanwhile has left no connections.
        target.wait_for_connections(sockets + SOAK_CONNECTIONS as usize)?;
        running.kill()?;
        let growth = (after as f64 - before as f64) / 1024.0;
        Ok(Sample::from([(Metric::GrowthKib, growth)]))
    }

    /// A target's start and, the moment it says that it listens, the start of a host that reads
    /// a block: the host's own start counts, too.
    fn start_up(&self) -> Result<Sample> {
        let start = Instant::now();
        let target = self.start(&TargetSpec { arguments: &[], ..STANDING })?;
        let arguments = words(&["read", &target.address, "--block-count", "1"]);
        let mut host = self.program.command(&arguments, None);
        let status = host.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        let took = start.elapsed();
        if !status.success() {
            bail!("`weft {}`: {status}", arguments.join(" "));
        }
        Ok(Sample::from([(Metric::Milliseconds, took.as_secs_f64() * 1e3)]))
    }
}

fn time(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

/// A number, if there is one: a percentile of too few samples is not.
fn put(sample: &mut Sample, metric: Metric, value: &Value, factor: f64) {
    if let Some(value) = value.as_f64() {
        sample.insert(metric, value * factor);
    }
}
