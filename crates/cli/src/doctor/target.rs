//! What is to be found at a running target, by two looks through its control socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use weft_backend::{DeviceSpec, StorageId, bytes};
use weft_rpc::Client;
use weft_statistics::{GetStatistics, Statistics};

use super::finding::{Finding, Severity};
use crate::ctl::session::{self, ControlledTarget, list, text};
use crate::failure::Failure;
use crate::limits::CONTROL_TIMEOUT;

/// Time between the two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A poll group with less idle time than this share is full.
const IDLE_MIN: f64 = 0.1;

/// A share of the time that is worth a word: of a machine's, taken by its hypervisor.
const STOLEN_MAX: f64 = 0.05;

/// What a command waits in the mean before it is worth a word.
const WAIT_NS: u64 = 50_000;

/// How many hosts and namespaces are named with what they wait for.
const WAITS_SHOWN: usize = 5;

/// More connections than this a minute since the start, and ten times as many as there are.
const CAME_PER_MINUTE: u64 = 2;

/// A look at a target.
#[derive(Clone, Default)]
pub(super) struct Observation {
    statistics: Statistics,
    /// Host, subsystem and CNTLID.
    controllers: BTreeSet<(String, String, u64)>,
    /// Admin queues that have come since the start.
    came: u64,
}

/// What was seen of a target.
#[derive(Default)]
pub(super) struct Observations {
    before: Observation,
    after: Observation,
    /// Where `/proc` and `/dev` are.
    root: PathBuf,
    /// The namespaces and the files or nodes that they stand on.
    devices: Vec<(String, String)>,
    /// The sizes of these namespaces, by name.
    bytes: BTreeMap<String, u64>,
    /// What devices of memory have together.
    memory: u64,
    /// Where hosts may connect.
    addresses: BTreeSet<String>,
}

/// Where a descriptor of the target leads, and which file or device that is.
type Descriptor = (PathBuf, Option<StorageId>);

impl Observation {
    fn of(client: &mut Client, subsystems: &[Value]) -> Result<Self, Failure> {
        let statistics = client.call::<GetStatistics>(&()).map_err(Failure::because)?;
        let mut call = |method, params| client.call_named(method, params).map_err(Failure::because);
        let mut controllers = BTreeSet::new();
        for subsystem in subsystems {
            let nqn = json!({ "nqn": subsystem["nqn"] });
            for one in list(&call("nvmf_subsystem_get_controllers", nqn)?) {
                let cntlid = one["cntlid"].as_u64().unwrap_or(0);
                controllers.insert((text(&one["hostnqn"]), text(&subsystem["nqn"]), cntlid));
            }
        }
        let groups = call("nvmf_get_stats", Value::Null)?;
        let came = list(&groups["poll_groups"]).iter().filter_map(|g| g["admin_qpairs"].as_u64());
        Ok(Self { statistics, controllers, came: came.sum() })
    }
}

impl Observations {
    pub(super) fn collect(target: &ControlledTarget) -> Result<Self, Failure> {
        let mut client = target.connect(CONTROL_TIMEOUT)?;
        let mut call = |method| client.call_named(method, Value::Null).map_err(Failure::because);
        let subsystems = call("nvmf_get_subsystems")?;
        let bdevs = call("bdev_get_bdevs")?;
        let before = Observation::of(&mut client, list(&subsystems))?;
        std::thread::sleep(INTERVAL);
        let after = Observation::of(&mut client, list(&subsystems))?;
        let folder = format!("/proc/{}/cwd", after.statistics.process_id);
        let folder = fs::read_link(folder).ok();
        let (mut devices, mut sizes) = (Vec::new(), BTreeMap::new());
        for subsystem in list(&subsystems) {
            for namespace in list(&subsystem["namespaces"]) {
                let is_its = |one: &&Value| one["name"] == namespace["bdev_name"];
                let bdev = list(&bdevs).iter().find(is_its);
                let path = bdev.filter(|one| session::is_stored(one)).and_then(session::path_of);
                let path = path.map(|path| match &folder {
                    // A path that is absolute stays as it is.
                    Some(folder) => folder.join(path).display().to_string(),
                    None => path,
                });
                let name = format!("{} of {}", text(&namespace["nsid"]), text(&subsystem["nqn"]));
                sizes.insert(name.clone(), bdev.map_or(0, bytes_of));
                devices.extend(path.map(|path| (name, path)));
            }
        }
        let memory = list(&bdevs).iter().filter(|one| is_memory(one)).map(bytes_of).sum();
        let addresses = list(&subsystems).iter().flat_map(session::addresses).collect();
        let root = PathBuf::from("/");
        Ok(Self { before, after, root, devices, bytes: sizes, memory, addresses })
    }

    /// Its process, if it runs on this machine and can be seen.
    pub(super) fn process(&self) -> Option<u32> {
        let id = self.after.statistics.process_id;
        let name = fs::read_to_string(self.root.join(format!("proc/{id}/comm"))).ok()?;
        name.starts_with("weft").then_some(id)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let between = self.after.statistics.since(&self.before.statistics);
        let mut findings = Vec::new();
        if self.process().is_some() {
            findings.extend(self.devices_twice());
            findings.extend(self.devices_in_use());
            let descriptors = self.descriptors();
            let files = self.devices.iter();
            findings.extend(files.filter_map(|device| self.file_of(device, &descriptors)));
            findings.extend(self.files_used_up());
            findings.extend(self.memory_used_up());
        } else {
            let why = "its limits and devices were not looked at";
            let what = "the target runs on another machine, or in a container";
            findings.push(Finding::new(Severity::Note, what, why, "run weft doctor where it runs"));
        }
        findings.extend(self.here_alone());
        findings.extend(self.reconnecting());
        findings.extend(busy(&between));
        findings.extend(stolen(&between));
        findings.extend(waits(&between));
        findings
    }

    /// The descriptors of the target; none where they cannot be seen.
    fn descriptors(&self) -> Vec<Descriptor> {
        let folder = self.process().map(|id| self.root.join(format!("proc/{id}/fd")));
        let found = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
        let of = |entry: fs::DirEntry| {
            let link = fs::read_link(entry.path()).ok()?;
            Some((link, StorageId::of(&entry.path())))
        };
        found.flatten().filter_map(of).collect()
    }

    /// What may become of a file that is served: it is gone or another one, or its file system is
    /// too full for it.
    fn file_of(
        &self,
        (name, path): &(String, String),
        descriptors: &[Descriptor],
    ) -> Option<Finding> {
        let at = self.root.join(path.strip_prefix('/')?);
        let fd = format!("/proc/{}/fd", self.process()?);
        let fault = |what: &str, why: &str, remedy: &str| {
            let what = format!("{path}, namespace {name}, was {what} while it is served");
            Some(Finding::new(Severity::Fault, what, why, remedy))
        };
        let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let found = match fs::metadata(&at) {
            Ok(found) => found,
            Err(error) if gone(&error) && !path.starts_with("/dev/") => {
                let deleted = PathBuf::from(format!("{path} (deleted)"));
                let is_deleted =
                    descriptors.is_empty() || descriptors.iter().any(|(link, _)| *link == deleted);
                return match is_deleted {
                    true => fault(
                        "removed",
                        "its data is gone when the target stops",
                        &format!(
                            "stop the hosts that write, then cp the one of {fd} that leads to it \
                             to another place (ls -l {fd})"
                        ),
                    ),
                    false => fault(
                        "moved away",
                        "the next start would not find it",
                        &format!("move it back; ls -l {fd} shows where it is"),
                    ),
                };
            }
            Err(_) => return None,
        };
        let own = StorageId::of(&at);
        if found.is_file()
            && !path.starts_with("/dev/")
            && !descriptors.is_empty()
            && descriptors.iter().all(|(_, storage)| *storage != own)
        {
            return fault(
                "replaced",
                "what is served is another file than the one at its path, which the next start \
                 would serve",
                &format!(
                    "move the other file away and this one back; ls -l {fd} shows where it is"
                ),
            );
        }
        let served = self.bytes.get(name).copied().unwrap_or(0);
        if let Some(cut) = cut(name, path, found.len(), served).filter(|_| found.is_file()) {
            return Some(cut);
        }
        let free = rustix::fs::statvfs(&at).ok().filter(|_| found.is_file())?;
        let missing = found.len().saturating_sub(found.blocks() * 512);
        space(name, path, found.len(), missing, free.f_bavail.saturating_mul(free.f_frsize))
    }

    fn storage(&self, path: &str) -> Option<StorageId> {
        let below = Path::new(path).strip_prefix("/").ok()?;
        StorageId::of(&self.root.join(below))
    }

    /// Each device and the namespaces that stand on it.
    fn storages(&self) -> BTreeMap<StorageId, Vec<&(String, String)>> {
        let mut all = BTreeMap::<StorageId, Vec<_>>::new();
        for device in &self.devices {
            if let Some(storage) = self.storage(&device.1) {
                all.entry(storage).or_default().push(device);
            }
        }
        all
    }

    fn devices_twice(&self) -> Vec<Finding> {
        let several = self.storages().into_values().filter(|users| users.len() > 1);
        let finding = |users: Vec<&(String, String)>| {
            let names: Vec<&str> = users.iter().map(|(name, _)| name.as_str()).collect();
            let what = format!("namespaces {} are one device, {}", names.join(" and "), users[0].1);
            let why = "hosts take them for two disks, and each destroys the other's data";
            let remedy = "weft ctl namespace remove NQN NSID, of all but one";
            Finding::new(Severity::Fault, what, why, remedy)
        };
        several.map(finding).collect()
    }

    /// Served devices whose file systems or swap this machine uses, by themselves or by a part.
    fn devices_in_use(&self) -> Vec<Finding> {
        let read = |path| fs::read_to_string(self.root.join(path)).unwrap_or_default();
        let (mounts, swaps) = (read("proc/self/mounts"), read("proc/swaps"));
        let storages = self.storages();
        let mut findings = Vec::new();
        for line in mounts.lines().chain(swaps.lines()) {
            let mut words = line.split_whitespace();
            let (Some(source), Some(place)) = (words.next(), words.next()) else { continue };
            let Some(storage) = self.storage(source) else { continue };
            let wholes = storage.wholes();
            let uses = |served: &&StorageId| **served == storage || wholes.contains(*served);
            let Some((_, users)) = storages.iter().find(|(served, _)| uses(served)) else {
                continue;
            };
            let (name, path) = users[0];
            let what = format!("{source} is in use here ({place}), and {path} is namespace {name}");
            let why = "this machine and the hosts write to it without knowing of each other";
            let remedy = format!("umount {source} (swapoff {source}), or serve another device");
            findings.push(Finding::new(Severity::Fault, what, why, &remedy));
        }
        findings
    }

    fn files_used_up(&self) -> Option<Finding> {
        let limits = self.root.join(format!("proc/{}/limits", self.process()?));
        let limits = fs::read_to_string(limits).ok()?;
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
        let there: u64 = self.after.statistics.groups.iter().map(|group| group.connections).sum();
        let what = format!("the target has {there} connections, and may open {limit} files");
        let why = "soon no further host can connect";
        let remedy = "LimitNOFILE=65536 in `systemctl edit weft`, and restart it";
        if there.saturating_mul(10) > limit.saturating_mul(8) {
            return Some(Finding::new(Severity::Fault, what, why, remedy));
        }
        let Statistics { connections_max: most, connections_configured: all, .. } =
            self.after.statistics;
        let what = format!("{limit} open files leave room for {most} of {all} connections");
        let why = "hosts beyond that are refused, although the configuration allows them";
        (most < all).then(|| Finding::new(Severity::Warning, what, why, remedy))
    }

    /// Devices of memory take what hosts write to them.
    fn memory_used_up(&self) -> Option<Finding> {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let total: u64 = total.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        let (has, total) = (self.memory, total.saturating_mul(1024));
        let what = format!(
            "devices of memory have {}, and this machine has {}",
            bytes::human(has),
            bytes::human(total)
        );
        let why = "once hosts have written as much, the kernel ends the target";
        let remedy = "smaller devices, or a file on a disk (--file) in place of --memory";
        (has > total).then(|| Finding::new(Severity::Warning, what, why, remedy))
    }

    /// Addresses that no other machine reaches.
    fn here_alone(&self) -> Option<Finding> {
        let is_here = |address: &String| {
            ["://127.", "://[::1]"].iter().any(|loopback| address.contains(loopback))
        };
        let all: Vec<&str> = self.addresses.iter().map(String::as_str).collect();
        let what = format!("the target listens on this machine alone ({})", all.join(", "));
        let why = "hosts of other machines cannot connect";
        let remedy = "another `listen` in its configuration, or weft ctl listener add NQN URL";
        (!all.is_empty() && self.addresses.iter().all(is_here))
            .then(|| Finding::new(Severity::Note, what, why, remedy))
    }

    /// Hosts that came again between the looks, or connections that come and go all the time.
    fn reconnecting(&self) -> Vec<Finding> {
        let why = "the host loses its controller, or a program connects for each request";
        let remedy = "journalctl -u weft says why they end; dmesg of the host; keep-alive-tmo";
        let gone = self.before.controllers.difference(&self.after.controllers);
        let is_back = |(host, subsystem, _): &&(String, String, u64)| {
            let new = self.after.controllers.difference(&self.before.controllers);
            new.into_iter().any(|(of, at, _)| (of, at) == (host, subsystem))
        };
        let name = |(host, subsystem, _): &(String, String, u64)| {
            let what = format!("{host} connects to {subsystem} again and again");
            Finding::new(Severity::Warning, what, why, remedy)
        };
        let mut findings: Vec<Finding> = gone.filter(is_back).map(name).collect();
        let minutes = self.after.statistics.whole().time_ns / 60_000_000_000;
        let there = self.after.controllers.len() as u64;
        let most = (there.max(1) * 10).max(minutes * CAME_PER_MINUTE);
        if findings.is_empty() && self.after.came > most {
            let came = self.after.came;
            let what = format!("{came} controllers were connected in {minutes} min, {there} are");
            findings.push(Finding::new(Severity::Note, what, why, remedy));
        }
        findings
    }
}

/// The size of a block device.
fn bytes_of(bdev: &Value) -> u64 {
    let number = |key: &str| bdev[key].as_u64().unwrap_or(0);
    number("block_size").saturating_mul(number("num_blocks"))
}

/// Whether a block device is memory of the target.
fn is_memory(bdev: &Value) -> bool {
    let device = bdev["driver_specific"]["device"]["device"].as_str();
    let device = device.and_then(|device| device.parse::<DeviceSpec>().ok());
    let is_memory = |device: DeviceSpec| matches!(device.innermost(), DeviceSpec::Memory { .. });
    bdev["product_name"] == "Malloc disk" || device.is_some_and(is_memory)
}

/// A file that has become shorter than its namespace.
fn cut(name: &str, path: &str, length: u64, served: u64) -> Option<Finding> {
    let (has, all) = (bytes::exact(length), bytes::exact(served));
    let what = format!("{path} has {has}, and namespace {name} has {all}");
    let why = "it was cut while it is served: what was beyond is lost, and reads there fail";
    let remedy = format!(
        "stop the hosts, truncate -s {all} {path}, and restore what is missing from a copy"
    );
    (length < served).then(|| Finding::new(Severity::Fault, what, why, &remedy))
}

/// What a file of this length lacks that has `missing` bytes to be allocated yet.
fn space(name: &str, path: &str, length: u64, missing: u64, free: u64) -> Option<Finding> {
    let severity = if free == 0 { Severity::Fault } else { Severity::Warning };
    let (length, shown) = (bytes::exact(length), bytes::exact(free & !0xfff));
    let (what, why) = match severity {
        Severity::Fault => (
            format!("the file system of {path} (namespace {name}) has 0 bytes left"),
            "writes fail with Capacity Exceeded",
        ),
        _ => (
            format!(
                "{path} (namespace {name}) may grow to {length} and its file system has {shown} \
                 left"
            ),
            "writes fail with Capacity Exceeded then",
        ),
    };
    let remedy = "free space, or weft ctl namespace remove NQN NSID";
    (missing > free).then(|| Finding::new(severity, what, why, remedy))
}

fn busy(between: &Statistics) -> Vec<Finding> {
    let period = between.time_ns.max(1) as f64;
    let full = between.groups.iter().filter(|group| {
        let idle = group.idle_ns as f64 / period;
        idle < IDLE_MIN
    });
    let finding = |group: &weft_statistics::Group| {
        let what = format!("poll group {} has no idle time", group.group);
        let why = "its processor limits its hosts";
        Finding::new(Severity::Warning, what, why, "more poll groups: --threads, or --cpus")
    };
    full.map(finding).collect()
}

fn stolen(between: &Statistics) -> Option<Finding> {
    let taken: u64 = between.machine.cores.iter().map(|core| core.steal_ns).sum();
    let all = between.time_ns.saturating_mul(between.machine.cores.len() as u64).max(1);
    let share = taken as f64 / all as f64;
    let what = format!("the hypervisor takes {:.0} % of the processors", share * 100.0);
    let remedy = "reserve processors for the virtual machine";
    let why = "requests wait while the machine does not run";
    (share > STOLEN_MAX).then(|| Finding::new(Severity::Warning, what, why, remedy))
}

/// What limits whom: the cause of most of the time of a host's commands to a namespace.
fn waits(of: &Statistics) -> Vec<Finding> {
    let mut sums = BTreeMap::<(&str, &str, u32), (u64, u64, [u64; 5])>::new();
    for one in of.hosts.iter().flat_map(|hosts| &hosts.commands) {
        let sum = sums.entry((one.host_name(), &one.subsystem, one.nsid)).or_default();
        sum.0 += one.count();
        sum.1 += one.total_ns;
        for (sum, (_, more)) in sum.2.iter_mut().zip(one.waits.by_cause()) {
            *sum += more;
        }
    }
    let mut found: Vec<(u64, Finding)> = sums.into_iter().filter_map(limits_whom).collect();
    found.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    found.into_iter().take(WAITS_SHOWN).map(|(_, finding)| finding).collect()
}

type WaitEntry<'a> = ((&'a str, &'a str, u32), (u64, u64, [u64; 5]));

fn limits_whom(
    ((host, subsystem, nsid), (count, total, by_cause)): WaitEntry,
) -> Option<(u64, Finding)> {
    let words = [
        (Severity::Note, "a rate limit", "it is what was configured", "weft ctl rate-limit list"),
        (
            Severity::Warning,
            "memory of the target",
            "the pool of its poll group is too small for what is in flight",
            "a larger pool-size in [limits], or fewer requests in flight at the hosts",
        ),
        (
            Severity::Note,
            "data that the host sends",
            "the network or the host is what is slow",
            "weft floor --help, between the two machines",
        ),
        (Severity::Note, "the device", "the disk is what is slow", "iostat -x 1, at the target"),
        (
            Severity::Note,
            "its turn",
            "other hosts, or its own other commands, use the time of its poll group",
            "weft top, GROUP; more --threads, or a [[qos]] rule",
        ),
    ];
    let (ns, words) = by_cause.into_iter().zip(words).max_by_key(|(ns, _)| *ns)?;
    let (severity, cause, why, remedy) = words;
    let mean = ns / count.max(1);
    let what = format!(
        "{host} waits for {cause} at namespace {nsid} of {subsystem}, {} µs a command",
        mean / 1000
    );
    let is_most = ns.saturating_mul(2) > total && mean >= WAIT_NS;
    is_most.then(|| (ns, Finding::new(severity, what, why, remedy)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_rpc::machine::{Core, Machine};
    use weft_statistics::{Group, HostCommands, Hosts, Waits};

    const SECOND: u64 = 1_000_000_000;

    /// A target at work with nothing wrong, on a machine in a folder of its own.
    fn sound(folder: &Path) -> Observations {
        for (path, text) in [
            ("proc/7/comm", "weft\n"),
            ("proc/meminfo", "MemTotal:        2097152 kB\nMemFree:   1 kB\n"),
            ("proc/7/limits", "Max open files            4         4         files\n"),
            ("proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n"),
            ("dev/sda1", "root"),
            ("dev/sdb", "one"),
            ("dev/sdc", "other"),
            ("srv/a.img", "third"),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let controllers = [("host", "nqn.a", 1)].map(|(h, s, id)| (h.to_owned(), s.to_owned(), id));
        let controllers = BTreeSet::from(controllers);
        let before = Statistics { process_id: 7, time_ns: 60 * SECOND, ..Statistics::default() };
        let commands = HostCommands {
            host: Some("host".to_owned()),
            subsystem: "nqn.a".to_owned(),
            nsid: 1,
            buckets: vec![10],
            total_ns: 2_000_000,
            ..HostCommands::default()
        };
        let after = Statistics {
            time_ns: 61 * SECOND,
            groups: vec![Group { idle_ns: SECOND / 2, ..Group::default() }],
            hosts: Some(Hosts { commands: vec![commands], ..Hosts::default() }),
            machine: Machine { cores: vec![Core::default()], ..Machine::default() },
            ..before.clone()
        };
        let look =
            |statistics| Observation { statistics, controllers: controllers.clone(), came: 3 };
        let devices =
            [("1 of nqn.a", "/dev/sdb"), ("1 of nqn.b", "/dev/sdc"), ("2 of nqn.a", "/srv/a.img")];
        let devices = devices.map(|(name, path)| (name.to_owned(), path.to_owned())).to_vec();
        let addresses = ["tcp://127.0.0.1:4420", "tcp://192.0.2.1:4420"].map(str::to_owned).into();
        // The group and the machine of the first look are those of the second at rest.
        let mut first = look(before);
        first.statistics.groups = vec![Group::default()];
        first.statistics.machine = after.machine.clone();
        Observations {
            before: first,
            after: look(after),
            root: folder.to_owned(),
            devices,
            bytes: BTreeMap::from([("2 of nqn.a".to_owned(), 5)]),
            memory: 1 << 30,
            addresses,
        }
    }

    /// The target has this file open.
    fn opened(seen: &Observations, file: &Path) {
        let folder = seen.root.join("proc/7/fd");
        fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::symlink(file, folder.join("5")).expect("a link");
    }

    fn waits_for(seen: &mut Observations, waits: Waits) {
        let hosts = seen.after.statistics.hosts.as_mut().expect("hosts");
        hosts.commands[0].waits = waits;
    }

    /// A fault, and what is said of it: severity, a part of what it is, a part of what to do.
    type Case = (fn(&mut Observations), Severity, &'static str, &'static str);

    const BROKEN: [Case; 21] = [
        (
            |seen| _ = seen.bytes.insert("2 of nqn.a".to_owned(), 1 << 20),
            Severity::Fault,
            "/srv/a.img has 5, and namespace 2 of nqn.a has 1MiB",
            "truncate -s 1MiB /srv/a.img",
        ),
        (
            |seen| {
                let statistics = &mut seen.after.statistics;
                (statistics.connections_max, statistics.connections_configured) = (3, 9);
            },
            Severity::Warning,
            "4 open files leave room for 3 of 9 connections",
            "LimitNOFILE=65536",
        ),
        (
            |seen| seen.memory = 3 << 30,
            Severity::Warning,
            "devices of memory have 3 GiB, and this machine has 2 GiB",
            "smaller devices",
        ),
        (
            |seen| fs::remove_file(seen.root.join("srv/a.img")).expect("it is there"),
            Severity::Fault,
            "/srv/a.img, namespace 2 of nqn.a, was removed while it is served",
            "cp the one of /proc/7/fd",
        ),
        (
            |seen| {
                let moved = seen.root.join("srv/b.img");
                fs::rename(seen.root.join("srv/a.img"), &moved).expect("it is there");
                opened(seen, &moved);
            },
            Severity::Fault,
            "/srv/a.img, namespace 2 of nqn.a, was moved away while it is served",
            "move it back; ls -l /proc/7/fd",
        ),
        (
            |seen| {
                let moved = seen.root.join("srv/b.img");
                fs::rename(seen.root.join("srv/a.img"), &moved).expect("it is there");
                fs::write(seen.root.join("srv/a.img"), "another").expect("a file");
                opened(seen, &moved);
            },
            Severity::Fault,
            "/srv/a.img, namespace 2 of nqn.a, was replaced while it is served",
            "move the other file away and this one back",
        ),
        (
            |seen| {
                let file = fs::File::options().write(true).open(seen.root.join("srv/a.img"));
                file.expect("a file").set_len(1 << 43).expect("a sparse file");
            },
            Severity::Warning,
            "/srv/a.img (namespace 2 of nqn.a) may grow to 8TiB and its file system has",
            "free space",
        ),
        (
            |seen| seen.devices[1].1 = "/dev/../dev/sdb".to_owned(),
            Severity::Fault,
            "1 of nqn.a and 1 of nqn.b are one device",
            "namespace remove",
        ),
        (
            |seen| {
                fs::write(seen.root.join("proc/self/mounts"), "/dev/sdc /mnt ext4 rw 0 0\n")
                    .expect("a file")
            },
            Severity::Fault,
            "/dev/sdc is in use here (/mnt), and /dev/sdc is namespace 1 of nqn.b",
            "umount /dev/sdc",
        ),
        (
            |seen| {
                fs::write(seen.root.join("proc/swaps"), "Filename Type\n/dev/sdb partition 9\n")
                    .expect("a file")
            },
            Severity::Fault,
            "/dev/sdb is in use here (partition)",
            "swapoff /dev/sdb",
        ),
        (
            |seen| seen.after.statistics.groups[0].connections = 4,
            Severity::Fault,
            "4 connections, and may open 4 files",
            "LimitNOFILE=65536",
        ),
        (
            |seen| {
                let first = ("host".to_owned(), "nqn.a".to_owned(), 1);
                seen.after.controllers = BTreeSet::from([(first.0, first.1, 2)]);
            },
            Severity::Warning,
            "host connects to nqn.a again and again",
            "journalctl -u weft",
        ),
        (
            |seen| seen.addresses.retain(|address| address.contains("127.")),
            Severity::Note,
            "listens on this machine alone (tcp://127.0.0.1:4420)",
            "listener add",
        ),
        (|seen| seen.after.came = 900, Severity::Note, "900 controllers", "journalctl -u weft"),
        (
            |seen| seen.after.statistics.groups[0].idle_ns = SECOND / 20,
            Severity::Warning,
            "poll group 0 has no idle time",
            "--threads",
        ),
        (
            |seen| seen.after.statistics.machine.cores[0].steal_ns = SECOND / 5,
            Severity::Warning,
            "takes 20 % of the processors",
            "reserve processors",
        ),
        (
            |seen| waits_for(seen, Waits { memory_ns: 1_500_000, ..Waits::default() }),
            Severity::Warning,
            "host waits for memory of the target at namespace 1 of nqn.a, 150 µs",
            "pool-size",
        ),
        (
            |seen| waits_for(seen, Waits { turn_ns: 1_500_000, ..Waits::default() }),
            Severity::Note,
            "waits for its turn at namespace 1",
            "[[qos]]",
        ),
        (
            |seen| waits_for(seen, Waits { limit_ns: 1_500_000, ..Waits::default() }),
            Severity::Note,
            "waits for a rate limit",
            "weft ctl rate-limit list",
        ),
        (
            |seen| waits_for(seen, Waits { device_ns: 1_500_000, ..Waits::default() }),
            Severity::Note,
            "waits for the device",
            "iostat",
        ),
        (
            |seen| fs::write(seen.root.join("proc/7/comm"), "sshd\n").expect("a file"),
            Severity::Note,
            "runs on another machine",
            "where it runs",
        ),
    ];

    #[test]
    fn a_full_file_system_is_a_fault() {
        let of = |missing, free| space("1 of nqn.a", "/srv/a.img", 1 << 30, missing, free);
        let found = of(4096, 0).expect("nothing is left");
        assert!(found.severity == Severity::Fault && found.what.contains("0 bytes"), "{found:?}");
        assert!(of(1 << 20, 1 << 19).is_some_and(|found| found.severity == Severity::Warning));
        assert_eq!((of(0, 0), of(4096, 4096)), (None, None));
    }

    #[test]
    fn a_target_at_rest_is_not_judged_by_what_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut seen = sound(folder.path());
        waits_for(&mut seen, Waits { device_ns: 1_500_000, ..Waits::default() });
        seen.before.statistics.hosts = seen.after.statistics.hosts.clone();
        assert_eq!(seen.findings(), []);
    }

    #[test]
    fn a_sound_target_has_nothing_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(sound(folder.path()).findings(), []);
    }

    #[test]
    fn each_broken_target_has_its_finding_and_no_other() {
        for (fault, severity, what, remedy) in BROKEN {
            let folder = tempfile::tempdir().expect("a folder");
            let mut seen = sound(folder.path());
            fault(&mut seen);
            let findings = seen.findings();
            let [found] = findings.as_slice() else { panic!("{what}: {findings:?}") };
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.what.contains(what) && found.remedy.contains(remedy), "{found:?}");
            assert!(!found.why.is_empty(), "{found:?}");
        }
    }
}
