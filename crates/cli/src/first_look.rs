//! `weft first-look`: a memory device, driven over TCP and beside that locally.
//!
//! The target is another process (this same program), so that what it costs shows as in earnest;
//! host and load generator are one process, as in any host. Each point is measured locally and
//! remotely one right after the other, and read beside what TCP does alone with messages of the
//! same sizes.

mod child;
mod shown;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clap::Args;
use weft_lab::{
    Job, Pattern, Polling, RunResult,
    floor::{Floor, FloorResult},
};

use self::child::TargetProcess;
use crate::{
    bench::{self, Driven, Driver, size, time},
    failure::Failure,
    output::{self, Format, LiveLine},
    signals,
};

/// Patterns, sizes and depths of the points.
const PATTERNS: [Pattern; 4] =
    [Pattern::Read, Pattern::Write, Pattern::RandRead, Pattern::RandWrite];
const BLOCK_BYTES: [u32; 2] = [4096, 131_072];
const DEPTHS: [u32; 2] = [1, 32];

/// Share of a cell's time that goes before anything counts.
const RAMP_SHARE: f64 = 0.2;

/// Bytes of a command capsule and its PDU header, and of a response: what frames the data of a
/// read or write on the wire.
const COMMAND_BYTES: usize = 72;
const RESPONSE_BYTES: usize = 24;

/// Options of `weft first-look`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Size of the memory device.
    #[arg(long, default_value = "256MiB", value_parser = size, value_name = "SIZE")]
    size: u64,
    /// Time for each measurement, of which a fifth does not count. There are 40 of them.
    #[arg(long, default_value = "1500ms", value_parser = time, value_name = "TIME")]
    cell_time: Duration,
    /// Which of the kernel's interfaces to use.
    #[arg(long, value_enum, default_value_t)]
    driver: Driver,
    /// Where to keep the results.
    #[arg(long, default_value = "first-look.json", value_name = "FILE")]
    output: PathBuf,
    /// How to write the result.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// One point of the table.
struct Cell {
    job: Job,
    local: RunResult,
    remote: RunResult,
}

/// What TCP alone does with the messages of some cells.
struct FloorCell {
    writes: bool,
    block_bytes: u32,
    depth: u32,
    result: FloorResult,
}

/// Everything that was measured.
struct Look {
    cells: Vec<Cell>,
    floors: Vec<FloorCell>,
    /// Target and host each have a processor.
    apart: bool,
    interrupted: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
    let apart = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    let target = TargetProcess::start(options, apart.then_some(0))?;
    let remote = Driven::remote(&target.options(options.driver)?, Some(1))?;
    let local = Driven::local(&target.device)?;
    let mut look = Look { cells: Vec::new(), floors: Vec::new(), apart, interrupted: false };
    let mut live = LiveLine::new();
    let measured = fill(&local, &stop).and_then(|()| fill(&remote, &stop)).and_then(|()| {
        measure(options, &local, &remote, &stop, &mut look, &mut live)
    });
    live.clear();
    measured?;
    // The host's farewell and the target's good end are part of what is looked at.
    remote.close()?;
    local.close()?;
    target.stop()?;
    look.interrupted = stop.load(Ordering::Relaxed);
    let json = shown::as_json(options, &look);
    std::fs::write(&options.output, format!("{json}\n"))
        .map_err(|error| Failure::io("write", &options.output.display(), &error))?;
    match options.output_format {
        Format::Human => output::print(&shown::human(options, &look)),
        Format::Json => output::print_json(&json),
    }
}

/// Writes a device once from end to end: memory that was never written is not there yet, and
/// reading it costs something else.
fn fill(device: &Driven, stop: &AtomicBool) -> Result<(), Failure> {
    let job = Job {
        name: "fill".to_owned(),
        pattern: Pattern::Write,
        block_bytes: BLOCK_BYTES[1],
        depth: DEPTHS[1],
        io_bytes: Some(device.factory.geometry().bytes()),
        ..Job::default()
    };
    drive(&job, device, stop).map(drop)
}

fn measure(
    options: &Options,
    local: &Driven,
    remote: &Driven,
    stop: &AtomicBool,
    look: &mut Look,
    live: &mut LiveLine,
) -> Result<(), Failure> {
    let mut done = 0;
    let all = 2 * DEPTHS.len() * BLOCK_BYTES.len() * (PATTERNS.len() + 1);
    let mut note = |what: &str| {
        done += 1;
        live.show(&format!("{done}/{all} {what}"));
    };
    for block_bytes in BLOCK_BYTES {
        for depth in DEPTHS {
            for writes in [false, true] {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                note("tcp alone");
                look.floors.push(floor(options, look.apart, writes, block_bytes, depth)?);
            }
            for pattern in PATTERNS {
                let job = job(options, look.apart, pattern, block_bytes, depth);
                let mut driven = |device: &Driven, name: &str| {
                    let bytes = weft_backend::bytes::exact(u64::from(block_bytes));
                    note(&format!("{name}: {pattern} {bytes} at depth {depth}"));
                    drive(&job, device, stop)
                };
                let local = driven(local, "local")?;
                let remote = driven(remote, "tcp")?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                look.cells.push(Cell { job, local, remote });
            }
        }
    }
    Ok(())
}

fn drive(job: &Job, device: &Driven, stop: &AtomicBool) -> Result<RunResult, Failure> {
    let result = weft_lab::run(job, &device.factory, stop, &mut |_| {})
        .map_err(|error| Failure::Because(format!("{}: {error}", device.name)))?;
    if result.failed() {
        return Err(Failure::Because(format!("{}: {}", device.name, bench::fault(&result))));
    }
    Ok(result)
}

fn job(options: &Options, apart: bool, pattern: Pattern, block_bytes: u32, depth: u32) -> Job {
    Job {
        name: format!("{pattern}-{block_bytes}-{depth}"),
        pattern,
        block_bytes,
        depth,
        runtime: Some(options.cell_time.mul_f64(1.0 - RAMP_SHARE)),
        ramp: options.cell_time.mul_f64(RAMP_SHARE),
        // On one processor whoever looks keeps the other from working.
        cpus: if apart { vec![1] } else { Vec::new() },
        polling: if apart { Polling::Spin } else { Polling::Sleep },
        driver: options.driver.into(),
        ..Job::default()
    }
}

fn floor(
    options: &Options,
    apart: bool,
    writes: bool,
    block_bytes: u32,
    depth: u32,
) -> Result<FloorCell, Failure> {
    let data = block_bytes as usize;
    let floor = Floor {
        request_bytes: COMMAND_BYTES + if writes { data } else { 0 },
        response_bytes: RESPONSE_BYTES + if writes { 0 } else { data },
        depth: depth as usize,
        spin: apart,
        runtime: options.cell_time.mul_f64(1.0 - RAMP_SHARE),
        ramp: options.cell_time.mul_f64(RAMP_SHARE),
        cpus: apart.then_some((0, 1)),
    };
    let result =
        floor.measure().map_err(|error| Failure::Because(format!("tcp alone: {error}")))?;
    Ok(FloorCell { writes, block_bytes, depth, result })
}
