//! SPDK's methods for the process: its version and methods, its start, notifications and log.

use std::sync::Arc;

use log::LevelFilter;
use serde_json::{Value, json};
use weft_rpc::{ErrorObject, Methods};
use weft_statistics::ns;

use super::bdev::TICK_RATE;
use super::config;
use super::error::invalid;
use super::method::{method, thread_name};
use super::operator::Operator;
use super::parameters::Params;

type Answer = Result<Value, ErrorObject>;

/// The levels of SPDK's log, and ours.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("DISABLED", LevelFilter::Off),
    ("ERROR", LevelFilter::Error),
    ("WARNING", LevelFilter::Warn),
    ("NOTICE", LevelFilter::Info),
    ("INFO", LevelFilter::Debug),
    ("DEBUG", LevelFilter::Trace),
];

/// Methods that divide SPDK's own memory and threads, or tune modules that are not here, which its
/// `save_config` writes of every process: nothing that a host gets depends on them.
const TUNINGS: [&str; 13] = [
    "accel_set_options",
    "bdev_iscsi_set_options",
    "bdev_nvme_set_options",
    "bdev_raid_set_options",
    "bdev_set_options",
    "framework_set_scheduler",
    "fsdev_set_opts",
    "iobuf_set_options",
    "iscsi_set_options",
    "keyring_linux_set_options",
    "scheduler_set_options",
    "sock_impl_set_options",
    "sock_set_default_impl",
];

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    type Handler = fn(&Operator, Value) -> Answer;
    let all: [(&'static str, Handler); 14] = [
        ("spdk_get_version", |_, params| {
            Params::of(params)?.end()?;
            Ok(version())
        }),
        ("framework_start_init", |_, params| started(params)),
        ("framework_wait_init", |_, params| started(params)),
        ("thread_get_stats", thread_stats),
        ("notify_get_types", |_, params| {
            Params::of(params)?.end()?;
            Ok(json!(["bdev_register", "bdev_unregister", "bdev_resize"]))
        }),
        ("notify_get_notifications", notifications),
        ("log_get_level", |_, params| level(params)),
        ("log_get_print_level", |_, params| level(params)),
        ("log_set_level", |_, params| set_level(params)),
        ("log_set_print_level", |_, params| set_level(params)),
        ("log_get_flags", |_, params| {
            Params::of(params)?.end()?;
            // The log has levels alone.
            Ok(json!({}))
        }),
        ("bdev_nvme_set_hotplug", |_, params| {
            // No device that is plugged in is found here.
            Params::of(params)?.refuse(&["enable"])?;
            Ok(true.into())
        }),
        ("log_set_flag", |_, params| no_flag(params)),
        ("log_clear_flag", |_, params| no_flag(params)),
    ];
    let tunings = TUNINGS.map(|name| (name, tuning as Handler));
    let methods = all
        .into_iter()
        .chain(tunings)
        .fold(methods, |methods, (name, handler)| method(methods, operator, name, handler));
    config::methods(methods, operator)
}

/// Adds the method that lists them all.
pub(super) fn with_names(methods: Methods) -> Methods {
    let mut names: Vec<&str> = methods.names().chain(["rpc_get_methods"]).collect();
    names.sort_unstable();
    methods.with_named("rpc_get_methods", move |_, params| {
        let mut params = Params::of(params)?;
        let current = params.take("current")?.unwrap_or(false);
        params.ignore(&["include_aliases"]);
        params.end()?;
        // It has started, and is not to be asked to.
        let now = |name: &&&str| !current || **name != "framework_start_init";
        Ok(names.iter().filter(now).copied().collect())
    })
}

fn version() -> Value {
    let text = env!("CARGO_PKG_VERSION");
    let mut numbers = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0u64));
    let mut next = || numbers.next().unwrap_or(0);
    json!({
        "version": format!("weft {text}"),
        "fields": { "major": next(), "minor": next(), "patch": next(), "suffix": "" },
    })
}

/// Accepts what changes nothing.
fn tuning(_: &Operator, params: Value) -> Answer {
    Params::of(params)?;
    Ok(true.into())
}

/// The target has started before it listens for control.
fn started(params: Value) -> Answer {
    Params::of(params)?.end()?;
    Ok(true.into())
}

/// How long the poll groups were busy and idle since the start.
fn thread_stats(operator: &Operator, params: Value) -> Answer {
    Params::of(params)?.end()?;
    let now = weft_reactor::monotonic_time();
    let running = now.saturating_sub(operator.watch().started());
    let threads = operator.watch().read(now).into_iter().map(|group| {
        let mask = group.cpu.filter(|cpu| *cpu < 128).map(|cpu| format!("{:x}", 1u128 << cpu));
        json!({
            "name": thread_name(group.group),
            "id": group.group + 1,
            "cpumask": mask.unwrap_or_default(),
            "busy": ns(running).saturating_sub(group.idle_ns),
            "idle": group.idle_ns,
        })
    });
    Ok(json!({ "tick_rate": TICK_RATE, "threads": threads.collect::<Vec<Value>>() }))
}

fn notifications(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of(params)?;
    let first: u64 = params.take("id")?.unwrap_or(0);
    let most = params.take("max")?.unwrap_or(usize::MAX);
    params.end()?;
    let state = operator.lock();
    let since = state.notifications.iter().filter(|one| one.id >= first).take(most);
    Ok(since.map(|one| json!({ "type": one.kind, "ctx": one.context, "id": one.id })).collect())
}

fn no_flag(params: Value) -> Answer {
    let mut params = Params::of(params)?;
    let flag: String = params.need("flag")?;
    params.end()?;
    Err(invalid(format_args!("there is no flag {flag:?}: the log has levels, see log_set_level")))
}

fn level(params: Value) -> Answer {
    Params::of(params)?.end()?;
    let is = log::max_level();
    let word = LEVELS.iter().find(|(_, level)| *level == is).map_or("DISABLED", |(word, _)| *word);
    Ok(word.into())
}

fn set_level(params: Value) -> Answer {
    let mut params = Params::of(params)?;
    let word: String = params.need("level")?;
    params.end()?;
    let known = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&word));
    let Some((_, level)) = known else {
        return Err(invalid(format_args!("level {word:?} is none; give ERROR to DEBUG")));
    };
    if !crate::logging::set_level(*level) {
        return Err(invalid("WEFT_LOG of the target leaves that out; start it without"));
    }
    Ok(true.into())
}
