//! The metrics of a target.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_rpc::machine::{self, Process};
use weft_statistics::{Group, HostCommands, Hosts, NamespaceStatistics, RateLimit};
use weft_target::{ErrorClass, NamespaceState, StatisticsReader};

use super::exposition::{Exposition, Format, Kind};
use crate::serve::operate::operator::Operator;

/// Its host where a host was gone for so long that it gave its counters back.
const GONE: &str = "gone";

/// All of them, as they are now.
pub(super) fn text(operator: &Operator, format: Format) -> String {
    let watch = operator.watch();
    let mut text = Exposition::new(format);
    text.family("weft_build_info", Kind::Gauge, "The version that runs.");
    text.sample("weft_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let now = weft_reactor::monotonic_time();
    hosts(&mut text, watch, now);
    connected(&mut text, watch);
    authentications(&mut text, watch);
    let groups = watch.read(now);
    namespaces(&mut text, groups.iter().flat_map(|group| &group.served));
    namespace_states(&mut text, watch);
    poll_groups(&mut text, &groups);
    classes(&mut text, watch);
    processor_time(&mut text);
    rate_limits(&mut text, watch);
    pair(&mut text, operator);
    process(&mut text);
    text.finish()
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// What each host meets at each namespace.
fn hosts(text: &mut Exposition, watch: &StatisticsReader, now: Duration) {
    let Some(measured) = watch.io_metrics(now) else { return };
    let bounds: Vec<f64> = measured.bounds_ns.iter().copied().map(seconds).collect();
    let name = "weft_host_command_duration_seconds";
    text.family(
        name,
        Kind::Histogram,
        "Time from a command's capsule to its completion, within the target.",
    );
    each_kind(&measured, |labels, of| {
        text.histogram(name, labels, &bounds, &of.buckets, seconds(of.total_ns));
    });
    let name = "weft_host_bytes_total";
    text.family(name, Kind::Counter, "Bytes of the Read and Write commands that succeeded.");
    each_kind(&measured, |labels, of| {
        if of.command != "other" {
            text.sample(name, labels, of.bytes);
        }
    });
    let name = "weft_host_errors_total";
    text.family(name, Kind::Counter, "Commands that completed with an error, by its class.");
    each_kind(&measured, |labels, of| {
        for (class, count) in ErrorClass::ALL.iter().zip(of.errors_by_class) {
            let labels = [labels, &[("status", class.name())]].concat();
            text.sample(name, &labels, count);
        }
    });
    let name = "weft_host_wait_seconds_total";
    text.family(name, Kind::Counter, "Parts of the commands' time, by what they waited for.");
    each_kind(&measured, |labels, of| {
        for (cause, waited_ns) in of.waits.by_cause() {
            let labels = [labels, &[("cause", cause)]].concat();
            text.sample(name, &labels, seconds(waited_ns));
        }
    });
}

/// Each kind of command that a host had at a namespace, with its labels.
fn each_kind(measured: &Hosts, mut action: impl FnMut(&[(&str, &str)], &HostCommands)) {
    let mut each = |[host, subsystem, nsid]: [&str; 3], of: &HostCommands| {
        let labels =
            [("host", host), ("subsystem", subsystem), ("nsid", nsid), ("command", &of.command)];
        action(&labels, of);
    };
    for one in &measured.commands {
        match &one.host {
            Some(host) => each([host, &one.subsystem, &one.nsid.to_string()], one),
            None => each([one.host_name(); 3], one),
        }
    }
    for one in &measured.gone {
        each([GONE; 3], one);
    }
}

/// Who is connected.
fn connected(text: &mut Exposition, watch: &StatisticsReader) {
    let mut controllers = BTreeMap::<(String, String), usize>::new();
    for controller in watch.controllers() {
        *controllers.entry((controller.host, controller.subsystem)).or_default() += 1;
    }
    text.family("weft_host_controllers", Kind::Gauge, "Controllers that a host has connected.");
    for ((host, subsystem), count) in &controllers {
        let labels = [("host", &**host), ("subsystem", subsystem)];
        text.sample("weft_host_controllers", &labels, count);
    }
    let help = "Connections that the target serves at most.";
    text.family("weft_connections_limit", Kind::Gauge, help);
    text.sample("weft_connections_limit", &[], watch.connections_max());
    let name = "weft_queues_connected_total";
    text.family(name, Kind::Counter, "Queues that hosts have connected since the start.");
    for (group, (admin, io)) in watch.queues_that_came().into_iter().enumerate() {
        for (queue, count) in [("admin", admin), ("io", io)] {
            text.sample(name, &[("group", &group.to_string()), ("queue", queue)], count);
        }
    }
}

/// What has become of queues whose hosts have to authenticate themselves.
fn authentications(text: &mut Exposition, watch: &StatisticsReader) {
    let of = watch.authentications();
    let name = "weft_authentications_total";
    let help = "Authentications of queues since the start, and handshakes with TLS that failed.";
    text.family(name, Kind::Counter, help);
    for (outcome, count) in
        [("succeeded", of.succeeded), ("failed", of.failed), ("refused", of.refused)]
    {
        text.sample(name, &[("outcome", outcome)], count);
    }
    let name = "weft_unauthenticated_queues";
    let help = "Queues whose hosts have not authenticated themselves yet, and handshakes with TLS \
                at ports that require it.";
    text.family(name, Kind::Gauge, help);
    text.sample(name, &[], of.waiting);
}

/// What devices did.
fn namespaces<'a>(text: &mut Exposition, served: impl Iterator<Item = &'a NamespaceStatistics>) {
    let mut sums = BTreeMap::<(&str, u32), NamespaceStatistics>::new();
    for one in served {
        let sum = sums.entry((&one.subsystem, one.nsid)).or_default();
        sum.add(one);
    }
    let mut family = |name: &str, help: &str, of: fn(&NamespaceStatistics) -> [u64; 3]| {
        text.family(name, Kind::Counter, help);
        for ((subsystem, nsid), sum) in &sums {
            let nsid = nsid.to_string();
            for (command, count) in ["read", "write", "other"].into_iter().zip(of(sum)) {
                let labels = [("subsystem", *subsystem), ("nsid", &nsid), ("command", command)];
                text.sample(name, &labels, count);
            }
        }
    };
    family(
        "weft_namespace_commands_total",
        "Commands that went to a namespace's device; Compare counts as read.",
        |sum| [sum.reads, sum.writes, sum.others],
    );
    family("weft_namespace_bytes_total", "Bytes of these commands.", |sum| {
        [sum.read_bytes, sum.written_bytes, 0]
    });
}

/// The namespaces: whose data may be lost, and their sizes.
fn namespace_states(text: &mut Exposition, watch: &StatisticsReader) {
    let help = "1 if writes were lost, or the namespace's file was removed or moved while it is \
                served.";
    let states = watch.namespaces();
    let mut family = |name: &str, help: &str, of: fn(&NamespaceState) -> u64| {
        text.family(name, Kind::Gauge, help);
        for one in &states {
            let labels = [("subsystem", one.subsystem.as_str()), ("nsid", &one.nsid.to_string())];
            text.sample(name, &labels, of(one));
        }
    };
    family("weft_namespace_degraded", help, |one| u64::from(one.is_degraded));
    family("weft_namespace_size_bytes", "The size of a namespace.", |one| one.bytes);
}

/// A member of a pair: its role, and its claim to be primary.
fn pair(text: &mut Exposition, operator: &Operator) {
    let Some(pair) = operator.pair() else { return };
    let (of, standing) = (pair.config(), pair.standing());
    let labels = [("member", &*of.member.to_string()), ("arbiter", &of.arbiter.to_string())];
    let mut one = |name: &str, kind, help: &str, value: &dyn std::fmt::Display| {
        text.family(name, kind, help);
        text.sample(name, &labels, value);
    };
    let help = "1 if this member of a pair is primary, 0 if it stands by.";
    one("weft_pair_primary", Kind::Gauge, help, &u8::from(standing.is_primary()));
    let help = "How often this member has become primary.";
    one("weft_pair_terms_total", Kind::Counter, help, &standing.terms);
    let help = "How often this member could not make or renew its claim to be primary.";
    one("weft_pair_failures_total", Kind::Counter, help, &standing.failures);
    if let Some(left) = standing.lease_left() {
        let help = "Time until the claim of a primary ends, unless it is renewed.";
        one("weft_pair_lease_seconds", Kind::Gauge, help, &left.as_secs_f64());
    }
}

/// The process, by the names that Prometheus' own clients use.
fn process(text: &mut Exposition) {
    let of = Process::read();
    let mut one = |name: &str, kind, help: &str, value: &dyn std::fmt::Display| {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    };
    let help = "Total user and system CPU time spent in seconds.";
    one("process_cpu_seconds_total", Kind::Counter, help, &seconds(of.cpu_ns));
    let help = "Start time of the process since unix epoch in seconds.";
    one("process_start_time_seconds", Kind::Gauge, help, &seconds(of.started_ns));
    let help = "Resident memory size in bytes.";
    one("process_resident_memory_bytes", Kind::Gauge, help, &of.resident_bytes);
    let help = "Virtual memory size in bytes.";
    one("process_virtual_memory_bytes", Kind::Gauge, help, &of.virtual_bytes);
    one("process_open_fds", Kind::Gauge, "Number of open file descriptors.", &of.open_fds);
    let help = "Maximum number of open file descriptors.";
    one("process_max_fds", Kind::Gauge, help, &of.max_fds);
}

/// Each poll group, and what its express queues had.
fn poll_groups(text: &mut Exposition, groups: &[Group]) {
    let mut family = |name: &str, kind: Kind, help: &str, of: fn(&Group) -> f64| {
        text.family(name, kind, help);
        for group in groups {
            text.sample(name, &[("group", &group.group.to_string())], of(group));
        }
    };
    let connections = "Connections that a poll group holds.";
    family("weft_group_connections", Kind::Gauge, connections, |group| group.connections as f64);
    family("weft_group_pool_bytes", Kind::Gauge, "Memory of a poll group's pool.", |group| {
        group.pool_bytes as f64
    });
    let used = "Memory of the pool in use.";
    family("weft_group_pool_used_bytes", Kind::Gauge, used, |group| group.pool_used_bytes as f64);
    let queues = "Queues that a poll group serves.";
    family("weft_group_queues", Kind::Gauge, queues, |group| group.queues as f64);
    let idle = "Time that a poll group found nothing to do.";
    family("weft_group_idle_seconds_total", Kind::Counter, idle, |group| seconds(group.idle_ns));
    family("weft_express_queues", Kind::Gauge, "Queues that are express now.", |group| {
        group.express.queues as f64
    });
    family(
        "weft_express_served_total",
        Kind::Counter,
        "How often an express queue was served between the commands of others.",
        |group| group.express.served as f64,
    );
    family(
        "weft_express_commands_total",
        Kind::Counter,
        "Commands that went to a device while an express queue was served.",
        |group| group.express.commands as f64,
    );
    family(
        "weft_express_seconds_total",
        Kind::Counter,
        "Time in which express queues were served between the commands of others.",
        |group| seconds(group.express.time_ns),
    );
    family(
        "weft_express_refused_total",
        Kind::Counter,
        "How often an express queue was served in its turn, as its time was used up.",
        |group| group.express.refused as f64,
    );
}

/// The I/O queues of each host by class, and who decides it.
fn classes(text: &mut Exposition, watch: &StatisticsReader) {
    let mut queues = BTreeMap::<_, u64>::new();
    for queue in watch.queues() {
        let Some(class) = queue.class else { continue };
        let key = (queue.host, queue.subsystem, class.class.word(), class.reason.word());
        *queues.entry(key).or_default() += 1;
    }
    let name = "weft_host_queues";
    let help = "I/O queues that a host has connected, by class and by who decides it.";
    text.family(name, Kind::Gauge, help);
    for ((host, subsystem, class, reason), count) in &queues {
        let labels: [(&str, &str); 4] =
            [("host", host), ("subsystem", subsystem), ("class", class), ("reason", reason)];
        text.sample(name, &labels, *count);
    }
}

/// The processor time of the poll groups' threads.
fn processor_time(text: &mut Exposition) {
    let name = "weft_group_cpu_seconds_total";
    text.family(name, Kind::Counter, "Processor time of a poll group's thread.");
    for thread in machine::threads("weft-group-") {
        let group = thread.name.trim_start_matches("weft-group-");
        for (mode, ns) in [("user", thread.user_ns), ("system", thread.system_ns)] {
            text.sample(name, &[("group", group), ("mode", mode)], seconds(ns));
        }
    }
}

/// What waited for rate limits.
fn rate_limits(text: &mut Exposition, watch: &StatisticsReader) {
    let limits = watch.rate_limits();
    let mut family = |name: &str, help: &str, of: &dyn Fn(&RateLimit) -> f64| {
        text.family(name, Kind::Counter, help);
        for limit in &limits {
            let nsid = limit.nsid.map(|nsid| nsid.to_string()).unwrap_or_default();
            let labels = [
                ("host", limit.host.as_deref().unwrap_or_default()),
                ("subsystem", limit.subsystem.as_deref().unwrap_or_default()),
                ("nsid", &nsid),
                ("command", &limit.rw),
                ("unit", if limit.counts_bytes { "bytes" } else { "commands" }),
            ];
            text.sample(name, &labels, of(limit));
        }
    };
    family(
        "weft_rate_limit_throttled_commands_total",
        "Commands that were the first of their queue to the namespace to wait for a rate limit.",
        &|limit| limit.throttled as f64,
    );
    family(
        "weft_rate_limit_throttled_seconds_total",
        "Time that queues waited for this rate limit, counted at the one limit that held them \
         back.",
        &|limit| seconds(limit.throttled_ns),
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The names of metrics in a text, each behind one of these characters.
    fn named<'a>(text: &'a str, behind: &str) -> BTreeSet<&'a str> {
        let found = text
            .match_indices("weft_")
            .filter(|(at, _)| text[..*at].ends_with(|one| behind.contains(one)));
        found
            .map(|(at, _)| {
                let name = &text[at..];
                name.split(|one: char| !one.is_ascii_lowercase() && one != '_')
                    .next()
                    .unwrap_or(name)
            })
            .collect()
    }

    #[test]
    fn the_reference_has_every_metric_and_what_is_watched_exists() {
        let file = |name: &str| {
            let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).expect(name)
        };
        let code = include_str!("families.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let there = named(code, "\"");
        assert_eq!(named(&file("docs/metrics.md"), "`"), there);
        for watches in ["monitoring/alerts.yml", "monitoring/dashboard.json"] {
            let text = file(watches);
            let watched = named(&text, " (\"");
            assert!(watched.len() > 5, "{watches}: {watched:?}");
            for name in watched {
                let family = ["_bucket", "_count", "_sum"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .unwrap_or(name);
                assert!(there.contains(family), "{watches}: {name}");
            }
        }
    }
}
