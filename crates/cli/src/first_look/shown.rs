//! The table and the file of a first look.

use std::fs;

use serde_json::{Value, json};
use weft_lab::{
    Latency,
    report::{fio, human},
};

use super::{Cell, FloorCell, Look, Options};
use crate::{bench::time_of_day, table::Table};

/// Version of the file's form.
const SCHEMA: u32 = 1;

const MIB: f64 = 1_048_576.0;

pub(super) fn human(options: &Options, look: &Look) -> String {
    let size = weft_backend::bytes::humane(options.size);
    let driver = look.cells.first().map_or("none", |cell| cell.remote.driver);
    let mut text = format!(
        "A memory device of {size}, in this process (local) and over NVMe/TCP on the loopback \
         interface (tcp), {driver} driver.\n"
    );
    text += if look.apart {
        "Target on processor 0, host on processor 1; neither sleeps while it is busy.\n\n"
    } else {
        "Target and host share one processor: read these numbers as a test that it works.\n\n"
    };
    text += &table(look).text();
    text += "\nshare: IOPS over TCP as a part of local IOPS; raw: as a part of what TCP alone does \
             with messages\nof the same sizes. One run a cell: how far runs lie apart is not known \
             from this.\n";
    if look.interrupted {
        text += "Interrupted: cells are missing.\n";
    }
    text += &format!("Results with raw histograms: {}\n", options.output.display());
    text
}

fn table(look: &Look) -> Table {
    let mut table = Table::new(&[
        "pattern",
        ">size",
        ">depth",
        ">local IOPS",
        ">mean",
        ">p99",
        ">tcp IOPS",
        ">MiB/s",
        ">mean",
        ">p99",
        ">share",
        ">raw",
    ]);
    for cell in &look.cells {
        let (local, remote) = (Numbers::of(cell, false), Numbers::of(cell, true));
        let floor = floor_of(look, cell).map(|floor| floor.result.messages_per_second());
        table.row(vec![
            cell.job.pattern.to_string(),
            weft_backend::bytes::exact(u64::from(cell.job.block_bytes)),
            cell.job.depth.to_string(),
            human::count(local.iops),
            human::time(local.latency.mean_ns()),
            local.p99(),
            human::count(remote.iops),
            format!("{:.1}", remote.bytes_per_second / MIB),
            human::time(remote.latency.mean_ns()),
            remote.p99(),
            share(remote.iops, Some(local.iops)),
            share(remote.iops, floor),
        ]);
    }
    table
}

/// The numbers of one side of a cell; a first look's patterns go one way only.
struct Numbers {
    iops: f64,
    bytes_per_second: f64,
    latency: Latency,
}

impl Numbers {
    fn of(cell: &Cell, remote: bool) -> Self {
        let total = if remote { cell.remote.total() } else { cell.local.total() };
        let direction = if cell.job.pattern.writes() { total.write } else { total.read };
        Self {
            iops: direction.iops(),
            bytes_per_second: direction.bytes_per_second(),
            latency: direction.latency,
        }
    }

    fn p99(&self) -> String {
        self.latency.percentile_ns(99.0).map_or("–".to_owned(), |ns| human::time(ns as f64))
    }
}

fn floor_of<'a>(look: &'a Look, cell: &Cell) -> Option<&'a FloorCell> {
    look.floors.iter().find(|floor| {
        floor.writes == cell.job.pattern.writes()
            && floor.block_bytes == cell.job.block_bytes
            && floor.depth == cell.job.depth
    })
}

fn share(part: f64, whole: Option<f64>) -> String {
    match whole {
        Some(whole) if whole > 0.0 => {
            let percent = 100.0 * part / whole;
            if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
        }
        _ => "–".to_owned(),
    }
}

pub(super) fn as_json(options: &Options, look: &Look) -> Value {
    let ended = time_of_day();
    let cells = look.cells.iter().map(|cell| {
        let side = |remote: bool, name: &str| {
            let result = if remote { &cell.remote } else { &cell.local };
            let mut report = fio::report(&cell.job, name, result, ended);
            report["weft_histogram_ns"] = histogram(&Numbers::of(cell, remote).latency);
            report
        };
        json!({
            "pattern": cell.job.pattern.name(),
            "block_bytes": cell.job.block_bytes,
            "depth": cell.job.depth,
            "local": side(false, "memory"),
            "tcp": side(true, "nvme-tcp memory"),
        })
    });
    let floors = look.floors.iter().map(|floor| {
        json!({
            "writes": floor.writes,
            "block_bytes": floor.block_bytes,
            "depth": floor.depth,
            "messages_per_second": floor.result.messages_per_second(),
            "mean_ns": floor.result.latency.mean_ns(),
            "p99_ns": floor.result.latency.percentile_ns(99.0),
        })
    });
    json!({
        "schema": SCHEMA,
        "weft": env!("CARGO_PKG_VERSION"),
        "command": std::env::args().collect::<Vec<String>>().join(" "),
        "timestamp": ended.as_secs(),
        "interrupted": look.interrupted,
        "processors_apart": look.apart,
        "device_bytes": options.size,
        "environment": environment(),
        "cells": cells.collect::<Vec<Value>>(),
        "tcp_alone": floors.collect::<Vec<Value>>(),
    })
}

fn histogram(latency: &Latency) -> Value {
    Value::Array(latency.raw().map(|(ns, count)| json!([ns, count])).collect())
}

/// What numbers depend on, as far as the kernel tells.
fn environment() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map_or("", |(_, model)| model.trim());
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "processor": model,
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "loopback_mtu": read("/sys/class/net/lo/mtu"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_short() {
        assert_eq!(share(1.0, Some(300.0)), "0.3 %");
        assert_eq!(share(50.0, Some(100.0)), "50 %");
        assert_eq!(share(50.0, Some(0.0)), "–");
        assert_eq!(share(50.0, None), "–");
    }
}
