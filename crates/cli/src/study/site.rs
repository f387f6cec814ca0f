//! `weft site`: looks at the machines and links of a site file.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use weft_lab::study::agent::{Findings, FoundEnd, FoundWay, Survey};
use weft_load::units;

use super::agents;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;

/// Options of `weft site`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

/// A subcommand of `weft site`.
#[derive(Debug, Subcommand)]
enum Action {
    /// Reach each machine, describe each end of each link, and probe each link between each two
    /// machines. It fails if a machine or a link cannot be used.
    Check(Check),
    /// Put back what agents that were killed have left changed on these machines.
    Restore(Restore),
}

/// Options of `weft site check`.
#[derive(Debug, Args)]
struct Check {
    #[command(flatten)]
    which: SiteOptions,
    /// Write what was found into this file as well, as JSON.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// Options of `weft site restore`.
#[derive(Debug, Args)]
struct Restore {
    #[command(flatten)]
    which: SiteOptions,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// Which site.
#[derive(Debug, Args)]
struct SiteOptions {
    /// The site file; by default weft-site.toml in this folder, in the user's configuration folder
    /// or in /etc/weft.
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::Check(options) => check(options),
        Action::Restore(options) => restore(options),
    }
}

fn survey(which: &SiteOptions) -> Result<Survey, Failure> {
    agents::survey(which.site.as_ref())
}

fn restore(options: &Restore) -> Result<(), Failure> {
    let (restored, unreached) = survey(&options.which)?.restored();
    let text = match restored.is_empty() && unreached.is_empty() {
        true => "nothing is left changed\n".to_owned(),
        false => restored.iter().map(|what| format!("{what}\n")).collect(),
    };
    options.output_format.print(&text, &json!({ "restored": restored, "unreached": unreached }))?;
    match unreached.is_empty() {
        true => Ok(()),
        false => Err(Failure::Because(unreached.join("; "))),
    }
}

fn check(options: &Check) -> Result<(), Failure> {
    let survey = survey(&options.which)?;
    let found = survey.check(&mut |what| output::print_error(&format!("probing {what}")));
    let json = serde_json::to_value(&found).map_err(Failure::because)?;
    if let Some(path) = &options.output {
        fs::write(path, format!("{json:#}\n"))
            .map_err(|error| Failure::io("write", &path.display(), &error))?;
    }
    match options.output_format {
        Format::Json => output::print_json(&json)?,
        Format::Human => output::print(&text(&found))?,
    }
    let unusable = found.machines.iter().any(|machine| !machine.fault.is_empty())
        || found.ends.iter().any(|end| end.end.is_none())
        || found.ways.iter().any(|way| !way.fault.is_empty());
    if unusable { Err(Failure::Told) } else { Ok(()) }
}

/// Tables of machines, ends and ways, and the remarks.
fn text(found: &Findings) -> String {
    let mut machines = Table::new(&["machine", "place", "kernel", ">processors", "governor"]);
    for machine in &found.machines {
        let kernel = machine.kernel.split(' ').next().unwrap_or_default();
        machines.row(vec![
            machine.name.clone(),
            machine.place.clone(),
            if machine.fault.is_empty() { kernel.to_owned() } else { "no agent".to_owned() },
            machine.cpus.to_string(),
            dash(&machine.governor),
        ]);
    }
    let mut ends = Table::new(&[
        "link",
        "machine",
        "address",
        "interface",
        "driver",
        ">Mb/s",
        ">MTU",
        ">NUMA",
        "queues",
        "RDMA",
        "offloads",
    ]);
    found.ends.iter().for_each(|end| ends.row(row_of_end(end)));
    let mut ways = Table::new(&["link", "from", "to", ">round trip", ">shortest", ">TCP"]);
    for way in &found.ways {
        let FoundWay { link, from, to, .. } = way;
        let numbers = match way.fault.is_empty() {
            true => [
                units::time(way.round_trip_ns),
                units::time(way.round_trip_min_ns as f64),
                units::decimal_byte_rate(way.bytes_per_s),
            ],
            false => ["-", "-", "-"].map(str::to_owned),
        };
        let names = [link, from, to].map(Clone::clone);
        ways.row(names.into_iter().chain(numbers).collect());
    }
    let mut text = [machines.text(), ends.text(), ways.text()].join("\n");
    if !found.remarks.is_empty() {
        text += &format!("\nto be looked at:\n  {}\n", found.remarks.join("\n  "));
    }
    text
}

fn row_of_end(found: &FoundEnd) -> Vec<String> {
    let mut row = vec![found.link.clone(), found.machine.clone(), found.address.to_string()];
    let Some(end) = &found.end else {
        row.push("none".to_owned());
        return row;
    };
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
    let rdma = end.rdma.as_ref().map(|rdma| {
        format!("{}/{} GID {} ({})", rdma.device, rdma.port, rdma.gid_index, rdma.gid_kind)
    });
    let on = |name: &str| found.ethtool.get(name).is_some_and(|value| value.starts_with("on"));
    let offloads = [
        ("TSO", "tcp-segmentation-offload"),
        ("GRO", "generic-receive-offload"),
        ("LRO", "large-receive-offload"),
        ("checksums", "rx-checksumming"),
    ];
    let offloads: Vec<&str> =
        offloads.iter().filter(|(_, name)| on(name)).map(|(word, _)| *word).collect();
    row.extend([
        end.interface.clone(),
        dash(&end.driver),
        number(end.speed_mbit_per_s),
        end.mtu.to_string(),
        number(end.numa_node.map(u64::from)),
        format!("{} + {}", end.queues.0, end.queues.1),
        rdma.unwrap_or_else(|| "-".to_owned()),
        if found.ethtool.is_empty() { "unknown".to_owned() } else { offloads.join(" ") },
    ]);
    row
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
