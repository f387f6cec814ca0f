//! `weft top`: what a target does now, read over its control socket.

mod keys;
mod view;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weft_load::units;
use weft_rpc::Client;
use weft_statistics::{
    GetStatistics, HostCommands, NamespaceStatistics, RateLimit, Statistics, Waits,
};

use self::keys::Keyboard;
use self::view::{Reading, View, no_keyboard, pause};
use crate::ctl::session;
use crate::failure::Failure;
use crate::limits::CONTROL_TIMEOUT;
use crate::output::{self, Format};
use crate::table::Table;

/// Columns of an output that is no terminal.
const COLUMNS: usize = 80;

/// How many of the slowest are shown.
const SLOWEST: usize = 3;

/// A name has at least as many, whatever the terminal's width.
const NAME_COLUMNS_MIN: usize = 8;

/// Options of `weft top`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: session::ControlledTarget,
    /// Time over which rates and latencies are shown.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Show it once and end.
    #[arg(long)]
    once: bool,
    /// Show what was done since the target's start, in place of the last interval.
    #[arg(long)]
    since_start: bool,
    /// Show the queues that hosts have connected as well.
    #[arg(long)]
    queues: bool,
    /// Output format: JSON is one object a line, with what was done since the target's start as
    /// well.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
    /// What comes first.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Show only hosts and subsystems whose name has this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

impl Options {
    fn is_json(&self) -> bool {
        self.output_format == Format::Json
    }
}

/// By what hosts are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Commands in a second.
    #[default]
    Iops,
    /// Bytes in a second.
    Bandwidth,
    /// The 99th percentile of latency.
    P99,
    /// Errors.
    Errors,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = weft_backend::duration::parse(text).map_err(|error| error.to_string())?;
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    range.contains(&interval).then_some(interval).ok_or_else(|| "it is 100ms to 1h".to_owned())
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut client = options.target.connect(CONTROL_TIMEOUT)?;
    let read = |client: &mut Client| client.call::<GetStatistics>(&()).map_err(Failure::because);
    let mut before = read(&mut client)?;
    let is_live = !options.once && !options.is_json() && output::columns().is_some();
    let keyboard = if is_live { Keyboard::open().map_err(no_keyboard)? } else { None };
    let mut view =
        View { options: options.clone(), has_keys: keyboard.is_some(), shows_keys: false };
    let mut last = None;
    while pause(keyboard.as_ref(), &mut view, last.as_ref())? {
        let now = read(&mut client)?;
        if now.process_id != before.process_id {
            // Another target serves there: its counters began anew.
            before = now;
            continue;
        }
        let between = now.since(&before);
        let queues = if view.options.queues { queues(&mut client)? } else { Vec::new() };
        if options.is_json() {
            output::print(&format!("{}\n", as_json(&between, &now, &queues, options)))?;
        } else {
            let reading = Reading { between, whole: now.whole(), queues };
            view.show(&reading, is_live)?;
            last = Some(reading);
        }
        if options.once {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

/// Rates and latencies of a period.
struct Period<'a> {
    of: &'a Statistics,
    seconds: f64,
    columns: usize,
}

/// A queue that a host has connected.
struct Queue {
    host: String,
    subsystem: String,
    cntlid: String,
    qid: String,
    group: String,
    peer: String,
    /// The target's end: by which of its ports the host comes.
    local: String,
    /// Who has the records of TLS, if the connection has that.
    tls_records: Option<String>,
    /// How an I/O queue is served.
    class: Option<Class>,
}

/// The class of a queue.
struct Class {
    class: String,
    /// Who decides it.
    reason: String,
    is_express: bool,
}

/// The queues of all subsystems.
fn queues(client: &mut Client) -> Result<Vec<Queue>, Failure> {
    let mut call = |method, params| client.call_named(method, params).map_err(Failure::because);
    let mut queues = Vec::new();
    for subsystem in session::list(&call("nvmf_get_subsystems", Value::Null)?) {
        let nqn = json!({ "nqn": subsystem["nqn"] });
        for queue in session::list(&call("nvmf_subsystem_get_qpairs", nqn)?) {
            let peer = &queue["peer_address"];
            let peer =
                format!("{}:{}", session::text(&peer["traddr"]), session::text(&peer["trsvcid"]));
            let at = &queue["listen_address"];
            let group = session::text(&queue["thread"]);
            let group = group.rsplit('-').next().unwrap_or_default().to_owned();
            let class = queue["qos"].as_object().map(|of| Class {
                class: session::text(&of["class"]),
                reason: session::text(&of["reason"]),
                is_express: of["express"] == true,
            });
            queues.push(Queue {
                host: session::text(&queue["hostnqn"]),
                subsystem: session::text(&subsystem["nqn"]),
                cntlid: session::text(&queue["cntlid"]),
                qid: session::text(&queue["qid"]),
                group,
                peer,
                local: format!(
                    "{}:{}",
                    session::text(&at["traddr"]),
                    session::text(&at["trsvcid"])
                ),
                tls_records: queue["tls"]["records"].as_str().map(str::to_owned),
                class,
            });
        }
    }
    Ok(queues)
}

fn screen(of: &Statistics, queues: &[Queue], options: &Options, columns: usize) -> String {
    let seconds = (of.time_ns as f64 / 1e9).max(1e-9);
    let period = Period { of, seconds, columns };
    let mut parts = vec![period.groups(), period.namespaces(options), period.hosts(options)];
    parts.extend(period.slowest(options));
    parts.extend(period.limits());
    parts.extend(period.throttled(options));
    parts.extend(period.express());
    if options.queues {
        parts.push(period.paths(queues, options));
        parts.extend([period.queues(queues, options), period.classes(queues, options)]);
    }
    format!("weft {}, process {}\n\n", of.version, of.process_id) + &parts.join("\n")
}

impl Period<'_> {
    fn rate(&self, count: u64) -> String {
        narrow(&units::count(count as f64 / self.seconds))
    }

    fn megabytes(&self, bytes: u64) -> String {
        format!("{:.1}", bytes as f64 / self.seconds / 1e6)
    }

    fn groups(&self) -> String {
        let columns = ["GROUP", ">CPU", ">WORK", ">CPU TIME", ">CONNECTIONS", ">QUEUES", ">IOPS"];
        let mut table = Table::new(&columns);
        for group in &self.of.groups {
            let percent = |ns: u64| 100.0 * ns as f64 / 1e9 / self.seconds;
            let commands = group.served.iter().map(NamespaceStatistics::commands).sum();
            table.row(vec![
                group.group.to_string(),
                group.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
                format!("{:.0} %", (100.0 - percent(group.idle_ns)).clamp(0.0, 100.0)),
                format!("{:.0} %", percent(group.thread.user_ns + group.thread.system_ns)),
                group.connections.to_string(),
                group.queues.to_string(),
                self.rate(commands),
            ]);
        }
        table.text()
    }

    fn namespaces(&self, options: &Options) -> String {
        let mut sums = BTreeMap::<(&str, u32), NamespaceStatistics>::new();
        for one in self.of.groups.iter().flat_map(|group| &group.served) {
            let sum = sums.entry((&one.subsystem, one.nsid)).or_default();
            sum.add(one);
        }
        sums.retain(|(subsystem, _), _| options.shows(&[subsystem]));
        let rows = sums.into_iter().map(|((subsystem, nsid), sum)| {
            let counts = [sum.reads, sum.writes, sum.others].map(|count| self.rate(count));
            let bytes = [sum.read_bytes, sum.written_bytes].map(|bytes| self.megabytes(bytes));
            let cells = [&[nsid.to_string()], &counts[..], &bytes[..]].concat();
            (subsystem.to_owned(), cells)
        });
        let columns = [">NSID", ">READ/S", ">WRITE/S", ">OTHER/S", ">READ MB/S", ">WRITE MB/S"];
        self.named("SUBSYSTEM", &columns, rows.collect())
    }

    fn hosts(&self, options: &Options) -> String {
        let Some(hosts) = &self.of.hosts else {
            return "Hosts are not measured: the target has --metrics-pairs 0.\n".to_owned();
        };
        let mut shown: Vec<&HostCommands> = hosts.commands.iter().collect();
        shown.retain(|one| one.count() > 0 && options.shows(&[one.host_name(), &one.subsystem]));
        let p99 = |one: &HostCommands| one.quantile_ns(&hosts.bounds_ns, 0.99).unwrap_or(0.0);
        shown.sort_by_key(|one| match options.sort {
            Sort::Iops => Reverse(one.count()),
            Sort::Bandwidth => Reverse(one.bytes),
            // Latencies are not negative: their bits are in their order.
            Sort::P99 => Reverse(p99(one).to_bits()),
            Sort::Errors => Reverse(one.errors),
        });
        let rows = shown.into_iter().map(|one| {
            let quantile = |share| {
                let ns = one.quantile_ns(&hosts.bounds_ns, share).unwrap_or(0.0);
                let beyond = hosts.bounds_ns.last().is_some_and(|last| ns >= *last as f64);
                format!("{}{}", if beyond { ">" } else { "" }, short(ns))
            };
            let mut cells = vec![
                if one.host.is_some() { one.nsid.to_string() } else { "-".to_owned() },
                one.command.clone(),
                self.rate(one.count()),
                self.megabytes(one.bytes),
                short(one.total_ns as f64 / one.count() as f64),
            ];
            cells.extend([0.5, 0.99, 0.999].map(quantile));
            cells.push(one.errors.to_string());
            (one.host_name().to_owned(), cells)
        });
        let columns = [">NS", "CMD", ">IOPS", ">MB/S", ">MEAN", ">P50", ">P99", ">P99.9", ">ERR"];
        self.named("HOST", &columns, rows.collect())
    }

    /// Who is slow, and what its commands wait for.
    fn slowest(&self, options: &Options) -> Option<String> {
        let hosts = self.of.hosts.as_ref()?;
        let p99 = |one: &HostCommands| one.quantile_ns(&hosts.bounds_ns, 0.99).unwrap_or(0.0);
        let mut shown: Vec<&HostCommands> = hosts.commands.iter().collect();
        shown.retain(|one| one.count() > 0 && options.shows(&[one.host_name(), &one.subsystem]));
        // Latencies are not negative: their bits are in their order.
        shown.sort_by_key(|one| Reverse(p99(one).to_bits()));
        let rows: Vec<_> = shown
            .into_iter()
            .take(SLOWEST)
            .map(|one| {
                let nsid = if one.host.is_some() { one.nsid.to_string() } else { "-".to_owned() };
                // Little's law.
                let depth = format!("{:.1}", one.total_ns as f64 / 1e9 / self.seconds);
                let cells = vec![nsid, one.command.clone(), depth, short(p99(one)), waits(one)];
                (one.host_name().to_owned(), cells)
            })
            .collect();
        let columns = [">NS", "CMD", ">DEPTH", ">P99", "WAITS FOR"];
        (!rows.is_empty()).then(|| self.named("SLOWEST", &columns, rows))
    }

    fn queues(&self, queues: &[Queue], options: &Options) -> String {
        let shown = queues.iter().filter(|one| options.shows(&[&one.host, &one.subsystem]));
        let rows = shown.map(|one| {
            let cells = [&one.cntlid, &one.qid, &one.group, &one.peer];
            (one.host.clone(), cells.map(String::clone).to_vec())
        });
        let columns = [">CNTLID", ">QID", ">GROUP", "PEER"];
        self.named("QUEUE OF", &columns, rows.collect())
    }

    /// By which ports hosts come, and who has the records of TLS: a host has a controller for each
    /// of its paths.
    fn paths(&self, queues: &[Queue], options: &Options) -> String {
        let shown = queues.iter().filter(|one| options.shows(&[&one.host, &one.subsystem]));
        let rows = shown.filter(|one| one.qid == "0").map(|one| {
            let tls = one.tls_records.clone().unwrap_or_else(|| "-".to_owned());
            let cells = [one.cntlid.clone(), one.local.clone(), tls];
            (one.host.clone(), cells.to_vec())
        });
        self.named("PATH OF", &[">CNTLID", "BY", "TLS"], rows.collect())
    }

    /// How the I/O queues are served, and who decides that.
    fn classes(&self, queues: &[Queue], options: &Options) -> String {
        let shown = queues.iter().filter(|one| options.shows(&[&one.host, &one.subsystem]));
        let rows = shown.filter_map(|one| {
            let Class { class, reason, is_express } = one.class.as_ref()?;
            let express = if *is_express { "yes" } else { "no" }.to_owned();
            let cells =
                [one.cntlid.clone(), one.qid.clone(), class.clone(), reason.clone(), express];
            Some((one.host.clone(), cells.to_vec()))
        });
        let columns = [">CNTLID", ">QID", "CLASS", "DECIDED BY", "EXPRESS"];
        self.named("CLASS OF", &columns, rows.collect())
    }

    /// What express queues had, by group.
    fn express(&self) -> Option<String> {
        let groups = self.of.groups.iter().map(|group| (group.group, group.express));
        let used = groups.filter(|(_, of)| of.queues + of.served + of.refused > 0);
        let rows: Vec<_> = used
            .map(|(group, of)| {
                let percent = of.time_ns as f64 / 1e7 / self.seconds;
                let cells = vec![
                    of.queues.to_string(),
                    self.rate(of.served),
                    self.rate(of.commands),
                    format!("{percent:.1} %"),
                    self.rate(of.refused),
                ];
                (format!("group {group}"), cells)
            })
            .collect();
        let columns = [">QUEUES", ">SERVED/S", ">COMMANDS/S", ">TIME", ">REFUSED/S"];
        (!rows.is_empty()).then(|| self.named("EXPRESS", &columns, rows))
    }

    /// The limits that held something up.
    fn limits(&self) -> Option<String> {
        let waits = |limit: &&RateLimit| limit.throttled_ns > 0;
        let rows: Vec<_> = self.of.rate_limits.iter().filter(waits).map(limit_row).collect();
        let rows = rows
            .into_iter()
            .map(|(name, rate, throttled_ns)| (name, vec![rate, self.waited(throttled_ns)]));
        let rows: Vec<_> = rows.collect();
        let columns = [">RATE", ">WAITED IN A SECOND"];
        (!rows.is_empty()).then(|| self.named("LIMIT", &columns, rows))
    }

    /// Whom a limit held up, and which one binds: that which it has waited for longest.
    fn throttled(&self, options: &Options) -> Option<String> {
        let mut tenants = BTreeMap::<(&str, &str, u32), Vec<(u64, &RateLimit)>>::new();
        for limit in &self.of.rate_limits {
            for one in limit.tenants.iter().filter(|one| one.throttled_ns > 0) {
                let key = (one.host_name(), &*one.subsystem, one.nsid);
                tenants.entry(key).or_default().push((one.throttled_ns, limit));
            }
        }
        tenants.retain(|(host, subsystem, _), _| options.shows(&[host, subsystem]));
        let rows: Vec<_> = tenants
            .into_iter()
            .filter_map(|((host, _, nsid), waited)| {
                let (_, binding) = waited.iter().max_by_key(|(throttled_ns, _)| *throttled_ns)?;
                let all: u64 = waited.iter().map(|(throttled_ns, _)| throttled_ns).sum();
                let (scope, rate, _) = limit_row(binding);
                let scope = end_of(&scope, self.columns / 3);
                let nsid = if nsid == 0 { "-".to_owned() } else { nsid.to_string() };
                let cells = vec![nsid, self.waited(all), format!("{rate}, {scope}")];
                Some((host.to_owned(), cells))
            })
            .collect();
        let columns = [">NS", ">WAITED IN A SECOND", "BOUND BY"];
        (!rows.is_empty()).then(|| self.named("HELD UP", &columns, rows))
    }

    fn waited(&self, throttled_ns: u64) -> String {
        format!("{:.2} s", throttled_ns as f64 / 1e9 / self.seconds)
    }

    /// A table whose first column has names, of which the end is shown that fits.
    fn named(&self, name: &str, columns: &[&str], rows: Vec<(String, Vec<String>)>) -> String {
        let width = |index: usize, title: &str| {
            let cells = rows.iter().filter_map(|(_, cells)| cells.get(index));
            let title = title.trim_start_matches('>').chars().count();
            2 + cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(title)
        };
        let taken: usize =
            columns.iter().enumerate().map(|(index, title)| width(index, title)).sum();
        let room = self.columns.saturating_sub(taken).max(NAME_COLUMNS_MIN);
        let mut table = Table::new(&[&[name], columns].concat());
        for (name, cells) in &rows {
            table.row([&[end_of(name, room)], &cells[..]].concat());
        }
        table.text()
    }
}

impl Options {
    fn shows(&self, names: &[&str]) -> bool {
        let has = |text: &String| names.iter().any(|name| name.contains(text.as_str()));
        self.filter.as_ref().is_none_or(has)
    }
}

/// The end of a name, in which NQNs differ.
fn end_of(name: &str, room: usize) -> String {
    let count = name.chars().count();
    match count > room {
        true => "…".chars().chain(name.chars().skip(count + 1 - room)).collect(),
        false => name.to_owned(),
    }
}

/// A time in few columns.
fn short(ns: f64) -> String {
    narrow(&units::time(ns))
}

/// A number without the space before its unit: the columns are many.
fn narrow(text: &str) -> String {
    text.replace(' ', "")
}

/// The two things that commands wait for longest, with their share of the commands' time.
fn waits(of: &HostCommands) -> String {
    let Waits { limit_ns, memory_ns, data_ns, device_ns, turn_ns } = of.waits;
    let named = [
        ("rate limit", limit_ns),
        ("memory", memory_ns),
        ("its own socket", data_ns),
        ("device", device_ns),
        ("its turn", turn_ns),
    ];
    let percent = |ns: u64| (100.0 * ns as f64 / of.total_ns.max(1) as f64).round();
    let mut parts: Vec<_> = named.into_iter().filter(|(_, ns)| percent(*ns) >= 1.0).collect();
    parts.sort_by_key(|(_, ns)| Reverse(*ns));
    let parts = parts.into_iter().take(2).map(|(name, ns)| format!("{name} {} %", percent(ns)));
    let text = parts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// The limit's commands, its rate, and how long they waited for it.
fn limit_row(limit: &RateLimit) -> (String, String, u64) {
    let nsid = limit.nsid.map(|nsid| format!("namespace {nsid}"));
    let scope = [limit.host.clone(), limit.subsystem.clone(), nsid, limit.bdev.clone()];
    let scope: Vec<String> = scope.into_iter().flatten().chain([limit.rw.clone()]).collect();
    let rate = match limit.counts_bytes {
        true => format!("{}/s", weft_backend::bytes::human(limit.rate)),
        false => format!("{}/s", limit.rate),
    };
    (scope.join(" "), rate, limit.throttled_ns)
}

/// The last interval, everything since the start, and the queues if they are asked for.
fn as_json(between: &Statistics, now: &Statistics, queues: &[Queue], options: &Options) -> Value {
    let hosts = |of: &Statistics| -> Value {
        let Some(hosts) = &of.hosts else { return Value::Null };
        let shown = hosts
            .commands
            .iter()
            .filter(|one| one.count() > 0 && options.shows(&[one.host_name(), &one.subsystem]));
        shown
            .map(|one| {
                let quantile = |share| one.quantile_ns(&hosts.bounds_ns, share);
                json!({
                    "host": one.host,
                    "subsystem": one.subsystem,
                    "nsid": one.nsid,
                    "command": one.command,
                    "commands": one.count(),
                    "bytes": one.bytes,
                    "errors": one.errors,
                    "mean_ns": one.total_ns as f64 / one.count() as f64,
                    "p50_ns": quantile(0.5),
                    "p99_ns": quantile(0.99),
                    "p99_9_ns": quantile(0.999),
                    "depth": one.total_ns as f64 / (of.time_ns as f64).max(1.0),
                    "waits": one.waits,
                })
            })
            .collect()
    };
    let whole = now.whole();
    let mut value = json!({
        "seconds": between.time_ns as f64 / 1e9,
        "groups": between.groups,
        "hosts": hosts(between),
        "rate_limits": between.rate_limits,
        "since_start": {
            "seconds": whole.time_ns as f64 / 1e9,
            "groups": now.groups,
            "hosts": hosts(&whole),
            "rate_limits": now.rate_limits,
        },
    });
    if options.queues {
        let shown = queues.iter().filter(|one| options.shows(&[&one.host, &one.subsystem]));
        value["queues"] = shown
            .map(|one| {
                json!({
                    "host": one.host,
                    "subsystem": one.subsystem,
                    "cntlid": one.cntlid.parse::<u16>().ok(),
                    "qid": one.qid.parse::<u16>().ok(),
                    "group": one.group.parse::<usize>().ok(),
                    "peer": one.peer,
                    "local": one.local,
                    "tls_records": one.tls_records,
                    "class": one.class.as_ref().map(|of| &of.class),
                    "class_reason": one.class.as_ref().map(|of| &of.reason),
                    "express": one.class.as_ref().map(|of| of.is_express),
                })
            })
            .collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use weft_statistics::{ExpressStatistics, Group, Hosts, ThrottledTenant};

    use super::*;

    pub(super) fn options(sort: Sort, filter: Option<&str>) -> Options {
        Options {
            target: session::ControlledTarget::default(),
            interval: Duration::from_secs(1),
            once: true,
            since_start: false,
            queues: true,
            output_format: Format::Human,
            sort,
            filter: filter.map(str::to_owned),
        }
    }

    fn held_up(throttled_ns: u64) -> ThrottledTenant {
        let host = Some("nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-4968-slow".to_owned());
        ThrottledTenant { host, subsystem: "nqn.2024-01.a:b".to_owned(), nsid: 3, throttled_ns }
    }

    fn between() -> Statistics {
        let commands = |host: &str, buckets: [u64; 3], bytes| HostCommands {
            host: Some(format!("nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-4968-{host}")),
            subsystem: "nqn.2024-01.org.example:disks".to_owned(),
            nsid: 1,
            command: "read".to_owned(),
            total_ns: 60_000 * buckets.iter().sum::<u64>(),
            buckets: buckets.to_vec(),
            bytes,
            waits: Waits {
                memory_ns: 6_000 * buckets.iter().sum::<u64>(),
                device_ns: 45_000 * buckets.iter().sum::<u64>(),
                ..Waits::default()
            },
            ..HostCommands::default()
        };
        let served = NamespaceStatistics {
            subsystem: "nqn.2024-01.org.example:disks".to_owned(),
            nsid: 1,
            reads: 4_400,
            read_bytes: 18_022_400,
            ..NamespaceStatistics::default()
        };
        let express = ExpressStatistics {
            queues: 3,
            served: 2_000,
            commands: 3_000,
            time_ns: 500_000_000,
            refused: 10,
        };
        let served = vec![served];
        let group = Group { idle_ns: 500_000_000, express, served, ..Group::default() };
        let limit = RateLimit { rw: "rw".to_owned(), rate: 2_000, ..RateLimit::default() };
        Statistics {
            time_ns: 2_000_000_000,
            groups: vec![group],
            hosts: Some(Hosts {
                bounds_ns: vec![50_000, 100_000],
                commands: vec![
                    commands("slow", [100, 200, 100], 400 * 4096),
                    commands("fast", [4_000, 0, 0], 4_000 * 4096),
                ],
                ..Hosts::default()
            }),
            rate_limits: vec![
                RateLimit {
                    throttled_ns: 1_000_000_000,
                    tenants: vec![held_up(800_000_000)],
                    ..limit.clone()
                },
                RateLimit {
                    subsystem: Some("nqn.2024-01.org.example:disks".to_owned()),
                    throttled_ns: 400_000_000,
                    tenants: vec![held_up(400_000_000)],
                    ..limit.clone()
                },
                RateLimit { host: Some("unlimited".to_owned()), ..limit },
            ],
            ..Statistics::default()
        }
    }

    fn queue() -> Queue {
        let long = "nqn.2014-08.org.nvmexpress:uuid:0f1e2d3c-4b5a-4968-8778-695a4b3c2d1e";
        Queue {
            host: long.to_owned(),
            subsystem: long.to_owned(),
            cntlid: "65535".to_owned(),
            qid: "128".to_owned(),
            group: "10".to_owned(),
            peer: "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535".to_owned(),
            local: "[2001:db8::1]:4420".to_owned(),
            tls_records: Some("kernel".to_owned()),
            class: Some(Class {
                class: "throughput".to_owned(),
                reason: "automatic".to_owned(),
                is_express: false,
            }),
        }
    }

    /// Of 60 µs, 45 are at the device and 6 are for memory; 4,000 commands in 2 s are 0.12 at a
    /// time.
    #[test]
    fn a_screen_says_who_is_slow_and_what_it_waits_for() {
        let text = screen(&between(), &[queue()], &options(Sort::Iops, None), 80);
        let slowest: Vec<_> =
            text.lines().skip_while(|line| !line.starts_with("SLOWEST")).collect();
        assert!(slowest[1].contains("-slow") && slowest[2].contains("-fast"), "{text}");
        assert!(slowest[1].ends_with("device 75 %, memory 10 %"), "{text}");
        assert!(slowest[2].contains("   0.1  "), "{text}");
        let slow = between().hosts.expect("hosts").commands[0].clone();
        let turn_ns = slow.total_ns / 2;
        let rest = HostCommands { waits: Waits { turn_ns, ..Waits::default() }, ..slow };
        assert_eq!(waits(&rest), "its turn 50 %");
    }

    /// Half a second of two, and who decides the class of each queue.
    #[test]
    fn a_screen_says_what_express_queues_had() {
        let text = screen(&between(), &[queue()], &options(Sort::Iops, None), 80);
        let row = |name: &str| {
            let mut lines = text.lines().skip_while(|line| !line.starts_with(name)).skip(1);
            lines.next().unwrap_or_else(|| panic!("{name}: {text}")).split_whitespace()
        };
        let cells: Vec<_> = row("EXPRESS").collect();
        assert_eq!(cells, ["group", "0", "3", "1.00K", "1.50K", "25.0", "%", "5.00"], "{text}");
        let cells: Vec<_> = row("CLASS OF").skip(1).collect();
        assert_eq!(cells, ["65535", "128", "throughput", "automatic", "no"], "{text}");
    }

    /// 1.2 s of two, 0.8 of them for a limit of all hosts together.
    #[test]
    fn a_screen_says_which_limit_binds() {
        let text = screen(&between(), &[], &options(Sort::Iops, None), 80);
        let mut lines = text.lines().skip_while(|line| !line.starts_with("HELD UP"));
        let row = lines.nth(1).unwrap_or_else(|| panic!("{text}"));
        let cells: Vec<_> = row.split_whitespace().skip(1).collect();
        assert!(row.contains("-slow") && cells.join(" ") == "3 0.60 s 2000/s, rw", "{text}");
    }

    #[test]
    fn a_screen_fits_80_columns_and_has_rates_of_a_second() {
        let admin = Queue { qid: "0".to_owned(), local: queue().peer, ..queue() };
        let text = screen(&between(), &[queue(), admin], &options(Sort::Iops, None), 80);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
        let row = |end: &str| {
            let line = text.lines().find(|line| line.contains(end));
            line.unwrap_or_else(|| panic!("{end}: {text}")).split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("-fast")[3], "2.00K");
        assert_eq!(row("example:disks")[2], "2.20K");
        assert!(row("-slow").contains(&">100.0µs"), "beyond the last bound: {text}");
        assert!(text.contains("75 %"), "{text}");
        assert!(text.contains("0.50 s") && !text.contains("unlimited"), "{text}");
    }

    #[test]
    fn hosts_are_sorted_and_filtered() {
        let first = |sort, filter| {
            let text = screen(&between(), &[], &options(sort, filter), 120);
            let lines = text.lines().skip_while(|line| !line.starts_with("HOST"));
            let host = lines.skip(1).map(|line| line.split("  ").next().unwrap_or_default());
            host.map(|host| host.rsplit('-').next().unwrap_or_default().to_owned())
                .next()
                .unwrap_or_default()
        };
        assert_eq!(first(Sort::Iops, None), "fast");
        assert_eq!(first(Sort::P99, None), "slow");
        assert_eq!(first(Sort::Iops, Some("-slow")), "slow");
    }

    #[test]
    fn without_measuring_it_says_how_to_measure() {
        let unmeasured = Statistics { hosts: None, ..between() };
        let text = screen(&unmeasured, &[], &options(Sort::Iops, None), 80);
        assert!(text.contains("--metrics-pairs 0"), "{text}");
    }

    #[test]
    fn json_has_the_period_and_everything_since_the_start() {
        let value = as_json(&between(), &between(), &[queue()], &options(Sort::Iops, None));
        assert_eq!(
            (&value["queues"][0]["qid"], &value["queues"][0]["group"]),
            (&128.into(), &10.into())
        );
        assert_eq!(value["seconds"], 2.0);
        assert_eq!(value["hosts"][0]["commands"], 400);
        assert_eq!(value["hosts"][1]["depth"], 0.12);
        assert_eq!(value["hosts"][1]["waits"]["device_ns"], 180_000_000);
        assert_eq!(value["since_start"]["hosts"][1]["p99_ns"], 49_500.0);
    }
}
