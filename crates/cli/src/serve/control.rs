//! The target's control socket: its statistics, reloading, and SPDK's methods.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use serde_json::Value;
use weft_lab::study::inside;
use weft_rpc::{
    Address, Caller, Code, ErrorObject, Method, Methods, Server, Token,
    machine::{self, Machine},
};
use weft_statistics::{
    Express, GetStatistics, Group, HostCommands, Hosts, RateLimit, Reload, Served, Statistics,
    ThrottledTenant, Waits,
};
use weft_target::config::RateLimitedCommands;
use weft_target::{
    GroupStatistics, IoKind, IoMetricsReading, RateLimitStatistics, StatisticsReader,
};

use super::operate::{self, Operator, Params};
use crate::{failure::Failure, signals::Wish};

/// The callers of `reload` that wait for its outcome.
type Waiting = Arc<Mutex<Vec<Sender<Result<Vec<String>, String>>>>>;

/// How long a caller of `reload` waits for its outcome.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A control socket.
#[derive(Debug)]
pub(super) struct Control {
    server: Server,
    waiting: Waiting,
}

impl Control {
    /// Listens at an address, answers for the target, and sends reloads to `wish`. With `loads`
    /// callers may run loads inside the target.
    pub(super) fn start(
        address: &Address,
        token: Option<Token>,
        operator: &Arc<Operator>,
        wish: Sender<Wish>,
        loads: bool,
    ) -> Result<Self, Failure> {
        let waiting: Waiting = Arc::default();
        let asked = Arc::clone(&waiting);
        let watch = operator.watch().clone();
        let methods = if loads { with_loads(operator) } else { Methods::new() };
        let methods = methods
            .with::<GetStatistics>(move |()| Ok(statistics(&watch)))
            .with_named("spdk_kill_instance", kill(wish.clone()))
            .with_named(Reload::NAME, move |caller, _| {
                let who = format!("control: {caller}");
                let outcome = wait_for_reload(Wish::Reload(who), &wish, &asked);
                let lines = outcome.map_err(|what| ErrorObject::new(Code::FAILED, what))?;
                Ok(lines.into())
            });
        let server = Server::start(address, operate::methods(methods, operator), token)
            .map_err(|error| Failure::io("listen for control on", address, &error))?;
        Ok(Self { server, waiting })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> &Address {
        self.server.address()
    }

    /// Sends the outcome of a reload to its callers.
    pub(super) fn reloaded(&self, outcome: &Result<Vec<String>, String>) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for caller in waiting {
            // A caller whose wait has timed out has dropped its receiver.
            let _ = caller.send(outcome.clone());
        }
    }
}

/// SPDK's method that sends a signal to the process: those that it has a meaning for here.
fn kill(
    wish: Sender<Wish>,
) -> impl Fn(&Caller, Value) -> Result<Value, ErrorObject> + Send + Sync + 'static {
    move |caller, params| {
        let mut params = Params::of(params)?;
        let signal: Value = params.need("sig_name")?;
        params.end()?;
        let who = format!("control: {caller}");
        let name = signal.as_str().map_or_else(|| signal.to_string(), str::to_uppercase);
        let wanted = match name.trim_start_matches("SIG") {
            "INT" | "2" | "TERM" | "15" => Wish::Stop(who),
            "HUP" | "1" => Wish::Reload(who),
            _ => return Err(operate::invalid("sig_name: give SIGINT, SIGTERM or SIGHUP")),
        };
        wish.send(wanted).map_err(|_| ErrorObject::new(Code(-1), "the target stops"))?;
        Ok(true.into())
    }
}

/// Has the configuration read again, and waits for the outcome.
fn wait_for_reload(
    wanted: Wish,
    wish: &Sender<Wish>,
    waiting: &Waiting,
) -> Result<Vec<String>, String> {
    let (answer, answered) = channel();
    waiting.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    wish.send(wanted).map_err(|_| "the target stops".to_owned())?;
    let outcome = answered.recv_timeout(RELOAD_TIMEOUT);
    outcome.unwrap_or_else(|_| Err("it takes long, or the target stops".to_owned()))
}

/// The methods by which a study runs loads inside the target.
fn with_loads(operator: &Arc<Operator>) -> Methods {
    let operator = Arc::clone(operator);
    inside::methods(Methods::new(), move |nqn, nsid| {
        operator.with(|target| target.device(nqn, nsid)).ok().flatten()
    })
}

/// A target's counters as the control connection reports them.
pub(crate) fn statistics(watch: &StatisticsReader) -> Statistics {
    let threads = machine::threads("weft-group-");
    let group = |of: GroupStatistics| {
        let name = format!("weft-group-{}", of.group);
        let thread = threads.iter().find(|thread| thread.name == name).cloned();
        Group {
            group: of.group,
            cpu: of.cpu,
            thread: thread.unwrap_or_default(),
            idle_ns: ns(of.idle),
            connections: of.connections,
            queues: of.queues as u64,
            express: Express {
                queues: of.express_queues,
                served: of.express_served,
                commands: of.express_commands,
                time_ns: ns(of.express_time),
                refused: of.express_refused,
            },
            served: of.served.into_iter().map(served).collect(),
        }
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = weft_reactor::monotonic_time();
    Statistics {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel.trim().to_owned(),
        process_id: std::process::id(),
        time_ns: ns(now),
        started_ns: ns(watch.started()),
        groups: watch.read(now).into_iter().map(group).collect(),
        hosts: watch.io_metrics(now).map(hosts),
        rate_limits: watch.rate_limits().into_iter().map(rate_limit).collect(),
        machine: Machine::read(),
    }
}

pub(super) fn rate_limit(of: RateLimitStatistics) -> RateLimit {
    let rw = match of.limit.rw {
        RateLimitedCommands::Read => "read",
        RateLimitedCommands::Write => "write",
        RateLimitedCommands::Rw => "rw",
    };
    RateLimit {
        host: of.limit.host.map(|hosts| hosts.to_string()),
        subsystem: of.limit.subsystem,
        nsid: of.limit.nsid,
        bdev: of.limit.bdev,
        rw: rw.to_owned(),
        counts_bytes: of.counts_bytes,
        rate: of.rate,
        throttled: of.throttled,
        throttled_ns: ns(of.throttled_time),
        tenants: of.tenants.into_iter().map(tenant).collect(),
    }
}

fn tenant(of: weft_target::ThrottledTenant) -> ThrottledTenant {
    let weft_target::ThrottledTenant { host, subsystem, nsid, throttled_time } = of;
    ThrottledTenant { host, subsystem, nsid, throttled_ns: ns(throttled_time) }
}

/// What was measured of hosts, without the kinds of command that they did not send.
fn hosts(of: IoMetricsReading) -> Hosts {
    let mut commands = Vec::new();
    for pair in of.pairs {
        let kinds = IoKind::ALL.into_iter().zip(pair.kinds);
        commands.extend(kinds.filter(|(_, of)| of.commands() > 0).map(|(kind, of)| {
            let [limit_ns, memory_ns, data_ns, device_ns] = of.waits.map(ns);
            HostCommands {
                host: pair.host.clone(),
                subsystem: pair.subsystem.clone(),
                nsid: pair.nsid,
                command: kind.name().to_owned(),
                buckets: of.buckets,
                total_ns: ns(of.total),
                bytes: of.bytes,
                errors: of.errors.iter().sum(),
                waits: Waits { limit_ns, memory_ns, data_ns, device_ns },
            }
        }));
    }
    Hosts { bounds_ns: of.bounds.into_iter().map(ns).collect(), commands }
}

/// A time as it is told: in ns, which are SPDK's ticks here as well.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn served(of: weft_target::NamespaceStatistics) -> Served {
    Served {
        subsystem: of.subsystem,
        nsid: of.nsid,
        reads: of.reads,
        writes: of.writes,
        others: of.others,
        read_bytes: of.read_bytes,
        written_bytes: of.written_bytes,
    }
}
