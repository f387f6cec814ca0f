//! `weft trace`: what each command of a target goes through, as a file for ui.perfetto.dev.
//!
//! The file is Chrome's JSON trace format, which Perfetto reads: a process is a queue, a thread one
//! of the commands that it has at a time, and a command is a slice with its parts as slices in it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_nvme::{NvmOpcode, Status};
use weft_rpc::Client;
use weft_statistics::trace::{ReadTrace, StartTrace, TraceOptions, TracedCommand, TracedQueue};

use crate::ctl::session;
use crate::failure::Failure;
use crate::limits::{CONTROL_TIMEOUT, TRACE_PATIENCE};
use crate::output;

/// How often a trace is asked for that should be over: its groups end one by one.
const RETRY: Duration = Duration::from_millis(20);

/// Default name of the file.
const TRACE: &str = "trace.json";

/// Options of `weft trace`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: session::ControlledTarget,
    /// For how long it records, at most 600 s.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: Duration,
    /// The last commands of each poll group that are kept, at most 1048576; the target needs about
    /// 100 bytes for each.
    #[arg(long, value_name = "COUNT", default_value_t = 1 << 18)]
    commands: usize,
    /// The file, which is overwritten. Default: trace.json, where there is none.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let is_long = |time: &Duration| *time >= Duration::from_millis(1);
    seconds.filter(is_long).ok_or_else(|| "give seconds, like 2 or 0.5".to_owned())
}

/// What a poll group has recorded.
#[derive(Debug, Default)]
struct Group {
    queues: Vec<TracedQueue>,
    commands: Vec<TracedCommand>,
    replaced: u64,
    beyond: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let path = options.output.as_deref().unwrap_or(Path::new(TRACE));
    if options.output.is_none() {
        output::check_free(path, "--output")?;
    }
    let mut client = options.target.connect(CONTROL_TIMEOUT)?;
    // A file that cannot be written is told before the trace.
    let failure = |error| Failure::io("write", &path.display(), &error);
    let file = File::create(path).map_err(failure)?;
    let time_ms = u64::try_from(options.seconds.as_millis()).unwrap_or(u64::MAX);
    let asked = TraceOptions { time_ms, commands: options.commands };
    client.call::<StartTrace>(&asked).map_err(Failure::because)?;
    std::thread::sleep(options.seconds);
    let groups = read(&mut client)?;
    let mut out = BufWriter::new(file);
    write(&mut out, &groups).and_then(|()| out.flush()).map_err(failure)?;
    output::print(&summary(&groups, path))
}

fn read(client: &mut Client) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    let mut waited = Duration::ZERO;
    loop {
        let Some(part) = client.call::<ReadTrace>(&()).map_err(Failure::because)? else {
            if waited >= TRACE_PATIENCE {
                return Err(Failure::because("a poll group has not ended its trace"));
            }
            waited += RETRY;
            std::thread::sleep(RETRY);
            continue;
        };
        if groups.len() <= part.group {
            groups.resize_with(part.group + 1, Group::default);
        }
        let group = &mut groups[part.group];
        group.queues.extend(part.queues);
        group.commands.extend(part.commands);
        (group.replaced, group.beyond) = (part.replaced, part.beyond);
        if part.is_last {
            return Ok(groups);
        }
    }
}

fn summary(groups: &[Group], path: &Path) -> String {
    let sum = |count: fn(&Group) -> u64| groups.iter().map(count).sum::<u64>();
    let (commands, queues) =
        (sum(|one| one.commands.len() as u64), sum(|one| one.queues.len() as u64));
    let path = path.display();
    let mut text =
        format!("{path}: {commands} commands of {queues} queues; open it at ui.perfetto.dev\n");
    let (replaced, beyond) = (sum(|one| one.replaced), sum(|one| one.beyond));
    if replaced > 0 {
        text += &format!(
            "{replaced} earlier commands are missing, which later ones have replaced: give more \
             --commands, or fewer --seconds\n"
        );
    }
    if beyond > 0 {
        text += &format!("{beyond} commands are missing: a trace has room for 4096 queues\n");
    }
    text
}

/// Writes the events one by one: there may be millions.
fn write(out: &mut impl Write, groups: &[Group]) -> io::Result<()> {
    let times = |one: &TracedCommand| one.received_ns;
    let zero = groups.iter().flat_map(|one| one.commands.iter().map(times)).min().unwrap_or(0);
    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\n\"traceEvents\":[",
        about(groups)
    )?;
    let mut events = Events { out, zero, is_first: true };
    let mut process = 0;
    for (number, group) in groups.iter().enumerate() {
        let mut of_queues: Vec<Vec<&TracedCommand>> = vec![Vec::new(); group.queues.len()];
        for command in &group.commands {
            if let Some(queue) = of_queues.get_mut(command.queue as usize) {
                queue.push(command);
            }
        }
        for (queue, commands) in group.queues.iter().zip(&mut of_queues) {
            process += 1;
            events.queue(process, number, queue)?;
            if group.replaced > 0 {
                events.replaced(process, group.replaced, commands)?;
            }
            events.commands(process, commands)?;
        }
    }
    writeln!(out, "\n]}}")
}

/// What is not an event.
fn about(groups: &[Group]) -> Value {
    let group = |(number, one): (usize, &Group)| {
        json!({
            "group": number,
            "commands": one.commands.len(),
            "replaced": one.replaced,
            "beyond": one.beyond,
        })
    };
    let groups: Vec<_> = groups.iter().enumerate().map(group).collect();
    json!({ "weft": env!("CARGO_PKG_VERSION"), "groups": groups })
}

/// The list of events.
struct Events<'a, W> {
    out: &'a mut W,
    /// The time that counts as zero, in ns.
    zero: u64,
    is_first: bool,
}

impl<W: Write> Events<'_, W> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        write!(self.out, "{comma}\n{event}")
    }

    /// In µs, as the format has it.
    fn us(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.zero) as f64 / 1e3
    }

    fn queue(&mut self, process: usize, group: usize, of: &TracedQueue) -> io::Result<()> {
        let name = format!("{} queue {} of {}", of.host, of.queue_id, of.subsystem);
        let labels = format!("poll group {group}");
        self.event(&json!({
            "ph": "M", "name": "process_name", "pid": process, "args": { "name": name },
        }))?;
        self.event(&json!({
            "ph": "M", "name": "process_labels", "pid": process, "args": { "labels": labels },
        }))
    }

    /// Marks where the commands begin of which none is missing.
    fn replaced(
        &mut self,
        process: usize,
        replaced: u64,
        commands: &[&TracedCommand],
    ) -> io::Result<()> {
        let Some(first) = commands.first() else { return Ok(()) };
        let name = format!("{replaced} commands of this poll group are missing before");
        self.event(&json!({
            "ph": "i", "s": "p", "name": name, "pid": process, "tid": 1,
            "ts": self.us(first.completed_ns),
        }))
    }

    /// Each command goes to the first row that is free.
    fn commands(&mut self, process: usize, commands: &mut [&TracedCommand]) -> io::Result<()> {
        commands.sort_by_key(|command| command.received_ns);
        let mut busy = BinaryHeap::new();
        let mut free = BTreeSet::new();
        let mut rows = 0;
        for command in commands.iter() {
            while let Some(Reverse((end, row))) = busy.peek().copied()
                && end <= command.received_ns
            {
                busy.pop();
                free.insert(row);
            }
            let row = free.pop_first().unwrap_or_else(|| {
                rows += 1;
                rows
            });
            busy.push(Reverse((end_of(command), row)));
            self.command(process, row, command)?;
        }
        (1..=rows).try_for_each(|row| {
            self.event(&json!({
                "ph": "M", "name": "thread_name", "pid": process, "tid": row,
                "args": { "name": format!("command {row}") },
            }))
        })
    }

    fn command(&mut self, process: usize, row: u32, of: &TracedCommand) -> io::Result<()> {
        let (received, completed) = (of.received_ns, of.completed_ns);
        let name = NvmOpcode(of.opcode).to_string();
        let status = Status(of.status).to_string();
        let args = json!({ "nsid": of.nsid, "bytes": of.bytes, "status": status });
        self.slice(process, row, &name, received, end_of(of), args)?;
        let begun = of.begun_ns.unwrap_or(completed);
        let submitted = of.submitted_ns.unwrap_or(completed);
        // "turn": of its tenant or connection; "wait": for memory and rate limits; "fetch": the
        // data of a write from its host.
        for (name, from, to) in [
            ("turn", received, of.taken_ns),
            ("wait", of.taken_ns, begun),
            ("fetch", begun, submitted),
            ("device", submitted, completed),
            ("send", completed, end_of(of)),
        ] {
            if from < to {
                self.slice(process, row, name, from, to, Value::Null)?;
            }
        }
        Ok(())
    }

    fn slice(
        &mut self,
        process: usize,
        row: u32,
        name: &str,
        from: u64,
        to: u64,
        args: Value,
    ) -> io::Result<()> {
        let mut event = json!({
            "ph": "X", "name": name, "pid": process, "tid": row,
            "ts": self.us(from), "dur": to.saturating_sub(from) as f64 / 1e3,
        });
        if !args.is_null() {
            event["args"] = args;
        }
        self.event(&event)
    }
}

fn end_of(command: &TracedCommand) -> u64 {
    command.sent_ns.unwrap_or(command.completed_ns)
}
