//! `weft target`.

mod announce;
mod announced;
mod check;
mod control;
mod flags;
mod metrics;
mod operate;
mod pair;
mod registered;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, Args};
use sd_notify::NotifyState;
use weft_backend::{OwnFile, ResizeCallback, files};
use weft_rpc::{ParseListeningError, Token};
use weft_target::config::{
    Config, IDLE_POLL_DEFAULT, IDLE_POLL_FOREVER, Limits, Listen, State, Transport, socket_address,
};
use weft_target::{IoMetricsConfig, Target};

use self::announce::ServiceAddresses;
use self::announced::Announcement;
use self::control::Control;
pub(crate) use self::operate::error::sentence;
use self::operate::operator::Operator;
use self::pair::Pair;
use self::registered::RegistrationThreads;
use crate::ctl::session;
use crate::failure::Failure;
use crate::mdns;
use crate::output::Format;
use crate::service_manager::tell_manager;
use crate::signals::{self, ServerRequest};
use crate::values::{Cpus, Driver, PollingMode, cpus, size, size32, time};

/// Options of `weft target`.
///
/// Namespaces get their NSIDs in the order in which --memory, --file, --block, --rbd, --null and
/// --device are given. SIGINT and SIGTERM stop the target in good order, SIGHUP reads the file of
/// the configuration, and the sizes of files and devices, again.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Read the configuration from a TOML file (see docs/config.toml; weft convert makes one of the
    /// JSON that nvmetcli writes).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["served", "listening", "subsystem"])]
    config: Option<PathBuf>,
    /// Say what would be served, with every NSID and UUID, or what the start would be refused with,
    /// and end. No file is made, no device is written to, and nobody is served.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    listening: Listening,
    #[command(flatten)]
    subsystem: SubsystemFlags,
    #[command(flatten)]
    engine: Engine,
    /// Format in which the served subsystems are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
    /// Stop when standard input ends: for programs that start a target.
    #[arg(long)]
    stop_with_stdin: bool,
    /// Keep what is served in this file, after each change. Once the file exists, it says what is
    /// served; --config and flags only say how (processors, driver, limits).
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Answer JSON-RPC 2.0 here: unix:PATH or tcp://ADDRESS:PORT. SPDK's tools change the target
    /// through it (docs/control.md); one without namespaces starts and waits. Only the target's
    /// user may call at a Unix socket, or with unix:PATH,mode=0660,group=GROUP a group as well. On
    /// 127.0.0.1 every user of this machine may call; other addresses need --control-token-file.
    #[arg(long, value_name = "URL", value_parser = control_address)]
    control: Option<weft_rpc::Listening>,
    /// Over TCP answer only callers that have the same file: one line of at least 16 characters.
    #[arg(long, value_name = "FILE", requires = "control")]
    control_token_file: Option<PathBuf>,
    /// Let who may call at --control run loads inside this process, on the devices of all
    /// namespaces and past all hosts: for the local side of studies.
    #[arg(long, requires = "control")]
    loads: bool,
    /// Announce the discovery controllers on the local network by multicast DNS (TP8009): nvme-stas
    /// and `weft discover --mdns` find them.
    #[arg(long)]
    mdns: bool,
    /// Be a Centralized Discovery controller (TP8010): other targets register their subsystems
    /// here, and hosts find all of them in one log.
    #[arg(long)]
    centralized_discovery: bool,
    /// Register with a Centralized Discovery controller, like tcp://192.0.2.8:8009; may be
    /// repeated.
    #[arg(long, value_name = "URL", value_parser = listen)]
    register: Vec<Listen>,
    #[command(flatten)]
    metrics: Metrics,
}

/// What Prometheus scrapes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
struct Metrics {
    /// Serve metrics by HTTP at /metrics, of each host's commands by latency as well; /healthz is
    /// answered as long as the process is alive, and /readyz while a port is open. A port
    /// without an address is on 127.0.0.1. Anyone who can reach the port may read.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Upper bounds of the buckets of latency, ascending, like 50us,200us,1ms; at most 20.
    #[arg(long, value_name = "TIMES", value_parser = span, value_delimiter = ',')]
    metrics_buckets: Vec<Duration>,
    /// Pairs of a host and a namespace that have series of their own at a time: the first ones that
    /// have I/O. All others are counted together, as host "overflow". 0: latencies are not
    /// measured, neither for --metrics nor for --control.
    #[arg(long, value_name = "PAIRS", default_value_t = IoMetricsConfig::default().pairs)]
    metrics_pairs: usize,
}

/// What is served.
#[derive(Debug, Args)]
#[group(id = "served", multiple = true, required = false)]
#[command(next_help_heading = "Namespaces")]
struct Devices {
    /// Serve memory of this size: SIZE[,block=512].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Vec<String>,
    /// Serve a file: PATH[,size=SIZE][,block=512][,direct=on|off][,read-only][,shared].
    #[arg(long, value_name = "PATH")]
    file: Vec<String>,
    /// Serve a block device: PATH[,read-only][,shared].
    #[arg(long, value_name = "PATH")]
    block: Vec<String>,
    /// Serve an image of a Ceph cluster:
    /// POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][,conf=PATH][,user=NAME][,cluster=NAME][,size=SIZE]
    /// [,block=512][,read-only][,exclusive][,timeout=20s][,config.OPTION=VALUE] (docs/ceph.md).
    #[arg(long, value_name = "IMAGE")]
    rbd: Vec<String>,
    /// Serve a device that forgets what is written: SIZE[,block=512].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    null: Vec<String>,
    /// Serve any device: memory:SIZE, rbd:IMAGE, …, delay:…:DEVICE or fault:…:DEVICE.
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Block size of devices that do not say theirs (memory, null, file and rbd).
    #[arg(long, value_name = "BYTES", value_parser = size)]
    block_size: Option<u64>,
    /// Delay all reads, as a slow device would.
    #[arg(long, value_name = "TIME", value_parser = span)]
    delay_read: Option<Duration>,
    /// Delay everything but reads.
    #[arg(long, value_name = "TIME", value_parser = span)]
    delay_write: Option<Duration>,
    /// Delay everything.
    #[arg(long, value_name = "TIME", value_parser = span)]
    #[arg(conflicts_with_all = ["delay_read", "delay_write"])]
    delay: Option<Duration>,
}

/// Where it is served.
#[derive(Debug, Args)]
#[group(id = "listening", multiple = true, required = false)]
#[command(next_help_heading = "Ports")]
struct Listening {
    /// Address to listen on, like tcp://0.0.0.0:4420 or tcp://[::]:4420; may be repeated. By
    /// default tcp://127.0.0.1:4420.
    #[arg(long, value_name = "URL", value_parser = listen)]
    listen: Vec<Listen>,
    /// Address to listen on for discovery alone, usually port 8009; may be repeated.
    #[arg(long, value_name = "URL", value_parser = listen)]
    discovery: Vec<Listen>,
    /// Address that discovery gives to hosts instead of that of each --listen, in the same order,
    /// for NAT and containers.
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address)]
    advertise: Vec<std::net::SocketAddr>,
}

/// The subsystem.
#[derive(Debug, Args)]
#[group(id = "subsystem", multiple = true, required = false)]
#[command(next_help_heading = "Subsystem")]
struct SubsystemFlags {
    /// Its NQN; by default one made from this machine's identity and the first port.
    #[arg(long, value_parser = nqn)]
    nqn: Option<String>,
    /// Its serial number; by default derived from the NQN.
    #[arg(long)]
    serial: Option<String>,
    /// Its model number.
    #[arg(long)]
    model: Option<String>,
    /// NQN of a host that may connect; may be repeated. By default every host may.
    #[arg(long, value_name = "NQN", value_parser = nqn)]
    allow_host: Vec<String>,
}

/// How it is served.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
struct Engine {
    /// Processors, like 0-3: one thread on each. By default one thread, not pinned.
    #[arg(long, value_parser = cpus, value_name = "CPUS")]
    cpus: Option<Cpus>,
    /// Processors of --cpus that serve only queues to which a qos rule gives the class latency.
    #[arg(long, value_parser = cpus, value_name = "CPUS")]
    express_cpus: Option<Cpus>,
    /// Threads that run wherever the scheduler puts them, in place of --cpus.
    #[arg(long, value_name = "THREADS", conflicts_with = "cpus")]
    threads: Option<usize>,
    /// Which of the kernel's interfaces to use.
    #[arg(long, value_enum)]
    driver: Option<Driver>,
    /// How to wait for commands.
    #[arg(long, value_enum)]
    polling: Option<PollingMode>,
    /// With adaptive polling: how long to look for new commands before sleeping.
    #[arg(long, value_parser = span, value_name = "TIME")]
    idle_poll: Option<Duration>,
    /// Whether commands of queues with few and small ones are served between those of others:
    /// true, which is the default, or false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    express: Option<bool>,
    /// Entries of an I/O queue.
    #[arg(long, value_name = "ENTRIES", value_parser = clap::value_parser!(u16).range(2..=1024))]
    queue_size: Option<u16>,
    /// I/O queues of one controller.
    #[arg(long, value_name = "QUEUES")]
    io_queues: Option<u16>,
    /// Largest transfer of one command, a power of two.
    #[arg(long, value_parser = size32, value_name = "SIZE")]
    mdts: Option<u32>,
    /// Data that may come within a command capsule.
    #[arg(long, value_parser = size32, value_name = "SIZE")]
    in_capsule: Option<u32>,
    /// Connections of all hosts.
    #[arg(long, value_name = "CONNECTIONS")]
    max_connections: Option<usize>,
    /// Time from accept to the end of Connect.
    #[arg(long, value_parser = time, value_name = "TIME")]
    connect_timeout: Option<Duration>,
    /// Memory for payloads of one thread.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pool_size: Option<u64>,
}

/// A target, which says when fewer connections fit than it is configured for.
fn started(config: Config) -> Result<Target, Failure> {
    let target = Target::start(config).map_err(Failure::because)?;
    target.exit_on_failure();
    let configured = target.config().limits.connections;
    let most = target.watch().connections_max();
    if most < configured {
        let limit = weft_reactor::descriptor_limit();
        log::warn!(
            "the limit of {limit} open files leaves room for {most} of the {configured} \
             connections that are configured: raise it (LimitNOFILE= of a unit, ulimit -n of a \
             shell), or configure fewer (--max-connections)"
        );
    }
    Ok(target)
}

pub(crate) fn run(options: &Options, matches: &ArgMatches) -> Result<(), Failure> {
    let nqn = flags::nqn(options)?;
    let _own = options.own_files();
    let configuration = || configuration(options, matches, &nqn);
    let config = configuration()?;
    if options.check {
        return options.check_start(config);
    }
    let _lock = options.lock_state(files::lock_beside)?;
    let token = options.control_token()?;
    let fault = |error| Failure::io("listen to", &"signals", &error);
    let (wish, wishes) = signals::wishes().map_err(fault)?;
    if options.stop_with_stdin {
        signals::stop_with_stdin(wish.clone()).map_err(fault)?;
    }
    let (config, applied) = match options.saved(&config)? {
        Some(State { config, applied }) => (config, Some(applied)),
        None => (config, None),
    };
    let config = Config { io_metrics: options.metrics.config(options.is_watched())?, ..config };
    let (pair, register) = (config.pair.clone(), config.register.clone());
    let config =
        Config { is_standby: pair.is_some(), events_file: options.events_file(), ..config };
    pair.iter().for_each(Pair::prepare);
    let mut target = started(config)?;
    let rescan = wish.clone();
    target.when_resized(ResizeCallback::new(move || {
        let _ = rescan.send(ServerRequest::Rescan);
    }));
    let applied = applied.unwrap_or_else(|| target.config().clone());
    let operator = Operator::new(target, applied, options.state.clone());
    let operator = operator.map_err(Failure::because)?;
    operator.serve_hosts()?;
    if let Some(pair) = &pair {
        operator.set_pair(Pair::start(pair, &operator)?);
    }
    let start = |at| Control::start(at, token, &operator, wish, options.loads);
    let control = options.control.as_ref().map(start).transpose()?;
    let metrics = |at| metrics::start(at, Arc::clone(&operator));
    let at = ServiceAddresses {
        is_of_flags: options.config.is_none(),
        control: control.as_ref().map(Control::address),
        metrics: options.metrics.metrics.map(metrics).transpose()?,
    };
    let announced = operator.with(|target| announce::announce(target, at, options.output_format));
    announced.map_err(Failure::because)?.map_err(Failure::before_serving)?;
    let announced = Announcement::start(&operator)?;
    let registered = RegistrationThreads::start(&register, &operator)?;
    tell_manager(NotifyState::Ready);
    while let Ok(wish) = wishes.recv() {
        match wish {
            ServerRequest::Stop(who) => {
                log::info!("{who}: stopping");
                break;
            }
            ServerRequest::Rescan => operator.rescan(),
            ServerRequest::Reload(who) => {
                let outcome = reload(&operator, options.read_again(configuration), &who);
                control.iter().for_each(|control| control.reloaded(&outcome));
            }
        }
    }
    operator.begin_stop();
    tell_manager(NotifyState::Stopping);
    announced.stop();
    registered.stop();
    operator.pair().into_iter().for_each(Pair::stop);
    operator.stop()
}

/// Logs who made which changes, or the error of a configuration that cannot be served: the old one
/// stays. Sizes of devices are read again in either case.
fn reload(
    operator: &Operator,
    config: Result<Config, Failure>,
    who: &str,
) -> Result<Vec<String>, String> {
    let outcome = match config {
        Ok(config) => operator.reload(config),
        Err(Failure::Because(what)) => Err(what),
        Err(Failure::Told | Failure::Exit(_) | Failure::ReaderGone) => {
            Err("it cannot be read".to_owned())
        }
    };
    match &outcome {
        Ok(changes) if changes.is_empty() => {
            log::info!("{who}: the configuration was read again: nothing has changed");
        }
        Ok(changes) => {
            log::info!("{who}: the configuration was read again");
            changes.iter().for_each(|change| log::info!("{who}: {change}"));
        }
        Err(what) => log::error!("{who}: the configuration stays as it was: {what}"),
    }
    operator.read_sizes();
    operator.rescan();
    outcome
}

fn control_address(text: &str) -> Result<weft_rpc::Listening, String> {
    text.parse().map_err(|error: ParseListeningError| error.to_string())
}

/// The configuration, read again at each reload. `nqn` is the name of the subsystem that the flags
/// define; it must not change at a reload, which would replace the subsystem.
fn configuration(options: &Options, matches: &ArgMatches, nqn: &str) -> Result<Config, Failure> {
    let mut config = match &options.config {
        Some(path) => Config::load(path).map_err(Failure::because)?,
        None => flags::configuration(options, matches, nqn)?,
    };
    options.engine.amend(&mut config);
    config.mdns |= options.mdns;
    if config.mdns {
        mdns::check().map_err(Failure::because)?;
    }
    config.centralized_discovery |= options.centralized_discovery;
    config.register.extend(&options.register);
    if config.ports.iter().any(|port| port.listen.transport == Transport::Loopback) {
        return Err(Failure::because(
            "nobody but this process could come to a loopback address; `weft bench --loopback` \
             and studies have such targets within their own",
        ));
    }
    // What there is nothing of yet can be made while it runs.
    let may_wait = options.control.is_some() || options.state.is_some();
    let check = match may_wait {
        true => Config::check_consistent,
        false => Config::validate,
    };
    check(&config).map_err(|error| match Engine::flag(error.key()) {
        Some(flag) if options.config.is_none() => Failure::because(error.at_flag(flag)),
        _ => Failure::because(error),
    })?;
    Ok(config)
}

impl Options {
    /// What the file of the configuration says now, if there is one.
    fn read_again(
        &self,
        configuration: impl Fn() -> Result<Config, Failure>,
    ) -> Result<Config, Failure> {
        match &self.config {
            Some(_) => configuration(),
            None => Err(Failure::because(
                "it was given by flags; --config FILE at the start makes one that is read again",
            )),
        }
    }

    /// Whether someone can see what is measured.
    const fn is_watched(&self) -> bool {
        self.control.is_some() || self.metrics.metrics.is_some()
    }

    /// What callers over TCP must show.
    fn control_token(&self) -> Result<Option<Token>, Failure> {
        let token = self.control_token_file.as_deref().map(session::token).transpose()?;
        match self.control.as_ref().map(weft_rpc::Listening::address) {
            Some(address) if address.is_remote() && token.is_none() => {
                Err(Failure::Because(format!(
                    "--control {address} would let everyone who reaches this port change the \
                     target: add --control-token-file FILE here and on the callers' side, or \
                     listen on 127.0.0.1"
                )))
            }
            _ => Ok(token),
        }
    }

    /// Where the Persistent Event Logs are kept: beside the state.
    fn events_file(&self) -> Option<PathBuf> {
        let mut name = self.state.clone()?.into_os_string();
        name.push(".events");
        Some(name.into())
    }

    /// The files that this process itself reads and writes, which are for no device.
    fn own_files(&self) -> Vec<OwnFile> {
        let beside = |end: &str| {
            let mut name = files::canonical(self.state.as_ref()?).into_os_string();
            name.push(end);
            Some(PathBuf::from(name))
        };
        let of_state = ["", ".new", ".lock", ".events", ".events.new"].map(beside);
        let named = [&self.config, &self.control_token_file].map(Clone::clone);
        of_state.into_iter().chain(named).flatten().map(|path| OwnFile::of(&path)).collect()
    }

    /// Keeps other processes from the state for as long as the result lives.
    fn lock_state<T>(&self, lock: fn(&Path) -> io::Result<T>) -> Result<Option<T>, Failure> {
        let Some(path) = &self.state else { return Ok(None) };
        lock(path).map(Some).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Failure::Because(format!(
                "--state {}: another process keeps what it serves there; give each target a file \
                 of its own",
                path.display()
            )),
            _ => Failure::io("lock", &path.display(), &error),
        })
    }

    /// What an earlier process has kept.
    fn saved(&self, settings: &Config) -> Result<Option<State>, Failure> {
        let Some(path) = &self.state else { return Ok(None) };
        let text = match weft_backend::files::read_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("read", &path.display(), &error)),
        };
        let mut state =
            State::parse(&text, settings).map_err(|error| Failure::because(error.in_file(path)))?;
        state.config.is_restored = true;
        Ok(Some(state))
    }
}

impl Metrics {
    /// What is measured for them, if anyone can read it.
    fn config(&self, is_read: bool) -> Result<Option<IoMetricsConfig>, Failure> {
        let (bounds, most) = (&self.metrics_buckets, IoMetricsConfig::BOUNDS_MAX);
        let ascend = bounds.first().is_none_or(|first| !first.is_zero())
            && bounds.is_sorted_by(|one, two| one < two);
        if !ascend || bounds.len() > most {
            return Err(Failure::Because(format!(
                "--metrics-buckets takes at most {most} times above 0 that ascend, like \
                 50us,200us,1ms"
            )));
        }
        let default = IoMetricsConfig { pairs: self.metrics_pairs, ..IoMetricsConfig::default() };
        let config = match bounds.is_empty() {
            true => default,
            false => IoMetricsConfig { bounds: bounds.clone(), ..default },
        };
        Ok((is_read && config.pairs > 0).then_some(config))
    }
}

impl Engine {
    /// The flag that sets a key of the configuration.
    fn flag(key: &str) -> Option<&'static str> {
        Some(match key {
            "threads" => "--threads",
            "cpus" => "--cpus",
            "express-cpus" => "--express-cpus",
            "limits.queue-entries" => "--queue-size",
            "limits.io-queues" => "--io-queues",
            "limits.transfer-size" => "--mdts",
            "limits.in-capsule-size" => "--in-capsule",
            "limits.connections" => "--max-connections",
            "limits.connect-timeout" => "--connect-timeout",
            "limits.pool-size" => "--pool-size",
            _ => return None,
        })
    }

    /// What was said on the command line wins over the file.
    fn amend(&self, config: &mut Config) {
        if let Some(Cpus(cpus)) = &self.cpus {
            config.cpus.clone_from(cpus);
        }
        if let Some(Cpus(cpus)) = &self.express_cpus {
            config.express_cpus.clone_from(cpus);
        }
        if let Some(threads) = self.threads {
            config.threads = threads;
            config.cpus.clear();
        }
        if let Some(driver) = self.driver {
            config.driver = driver.into();
        }
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut config.idle_poll, self.idle_poll);
        set(&mut config.express, self.express);
        match self.polling {
            Some(PollingMode::Spin) => config.idle_poll = IDLE_POLL_FOREVER,
            Some(PollingMode::Sleep) => config.idle_poll = Duration::ZERO,
            // Whatever a file says of always or never.
            Some(PollingMode::Adaptive)
                if [IDLE_POLL_FOREVER, Duration::ZERO].contains(&config.idle_poll) =>
            {
                config.idle_poll = IDLE_POLL_DEFAULT;
            }
            Some(PollingMode::Adaptive) | None => {}
        }
        let limits: &mut Limits = &mut config.limits;
        set(&mut limits.queue_entries, self.queue_size);
        set(&mut limits.io_queues, self.io_queues);
        set(&mut limits.transfer_bytes, self.mdts);
        set(&mut limits.in_capsule_bytes, self.in_capsule);
        set(&mut limits.connections, self.max_connections);
        set(&mut limits.connect_timeout, self.connect_timeout);
        let pool = self.pool_size.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        set(&mut limits.pool_bytes, pool);
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    text.parse().map_err(|error: weft_target::config::ParseListenError| error.to_string())
}

/// A time with its unit, or 0: a bare number could be meant as seconds or as microseconds.
fn span(text: &str) -> Result<Duration, String> {
    weft_backend::duration::parse(text).map_err(|error| error.to_string())
}

/// The NQN of a host or subsystem.
fn nqn(text: &str) -> Result<String, String> {
    match weft_target::config::nqn_fault(text) {
        None => Ok(text.to_owned()),
        Some(what) => Err(format!("{what}, like nqn.2014-08.org.example:disk1")),
    }
}
