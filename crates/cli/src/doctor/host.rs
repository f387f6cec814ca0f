//! What is to be found at a host: the controllers of Linux, and what `weft attach` serves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use weft_host::{Transport, TransportId};

use super::finding::{Finding, Severity};
use super::machine::Machine;

/// A controller that is given up earlier does not outlast the restart of its target.
const LOSS_MIN_S: u64 = 60;

/// A processor more has its own queue up to this number of queues.
const QUEUES_ENOUGH: u64 = 8;

/// So many losses of a controller in the kernel's log are more than a restart.
const LOSSES_MAX: usize = 3;

/// A controller of Linux' host over a fabric, whose values are as the kernel shows them.
struct Controller {
    name: String,
    subsystem: String,
    state: String,
    traddr: String,
    port: String,
    values: BTreeMap<&'static str, String>,
}

impl Controller {
    /// All of the machine's, but those of discovery.
    fn all(machine: &Machine) -> Vec<Self> {
        let mut all: Vec<Self> =
            machine.names("sys/class/nvme").iter().filter_map(|at| Self::at(at)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn at(folder: &Path) -> Option<Self> {
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        let is_fabric = ["tcp", "rdma"].contains(&read("transport").as_str());
        if !is_fabric || read("cntrltype") == "discovery" {
            return None;
        }
        let address = read("address");
        let part = |key: &str| {
            let value = address.split(',').find_map(|part| part.trim().strip_prefix(key));
            value.unwrap_or_default().to_owned()
        };
        let names = ["ctrl_loss_tmo", "fast_io_fail_tmo", "kato", "queue_count"];
        Some(Self {
            name: folder.file_name()?.to_string_lossy().into_owned(),
            subsystem: read("subsysnqn"),
            state: read("state"),
            traddr: part("traddr="),
            port: part("trsvcid="),
            values: names.map(|name| (name, read(name))).into(),
        })
    }

    fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name).parse().ok()
    }

    fn is_live(&self) -> bool {
        self.state == "live"
    }
}

type Check = fn(&Machine, &[Controller]) -> Vec<Finding>;

const CHECKS: [Check; 9] =
    [not_live, losses, given_up, without_keep_alive, few_queues, multipath, policy, mtu, attached];

pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    let controllers = Controller::all(machine);
    CHECKS.iter().flat_map(|check| check(machine, &controllers)).collect()
}

/// Paths that are not live, and subsystems that have no other.
fn not_live(_: &Machine, all: &[Controller]) -> Vec<Finding> {
    let finding = |one: &Controller| {
        let is_other = |other: &&Controller| other.subsystem == one.subsystem && other.is_live();
        let (severity, why) = match all.iter().any(|other| is_other(&other)) {
            true => (Severity::Warning, "the namespaces have one path less"),
            false => (Severity::Fault, "no path of it is live, and requests wait or fail"),
        };
        let Controller { name, state, subsystem, traddr, port, .. } = one;
        let what = format!("{name} ({traddr}:{port}) of {subsystem} is {state}");
        let remedy = format!("weft doctor tcp://{traddr}:{port}; journalctl -k -g {name}:");
        Finding::new(severity, what, why, &remedy)
    };
    all.iter().filter(|one| !one.is_live()).map(finding).collect()
}

/// Controllers that the kernel has lost again and again, by its log.
fn losses(machine: &Machine, all: &[Controller]) -> Vec<Finding> {
    let log = kernel_log(&machine.root.join("dev/kmsg")).unwrap_or_default();
    let finding = |one: &Controller| {
        let of = format!("{}: ", one.name);
        let is_loss = |line: &&str| line.contains(&of) && line.contains("error recovery");
        let count = log.lines().filter(is_loss).count();
        let what = format!("the kernel's log has {count} losses of {} ({})", one.name, one.traddr);
        let why = "each one holds requests up for reconnect-delay at least";
        let remedy = format!(
            "journalctl -k -g {} says why: a keep-alive that was late, or requests that took 30 s; \
             weft doctor --control … at the target; loss of packets",
            one.name
        );
        (count >= LOSSES_MAX).then(|| Finding::new(Severity::Warning, what, why, &remedy))
    };
    all.iter().filter_map(finding).collect()
}

/// What the kernel's log has now, which is read without waiting for more.
fn kernel_log(path: &Path) -> Option<String> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let mut log = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let (mut text, mut record) = (Vec::new(), [0; 8192]);
    // A read is one record, and a record that was overwritten is an error once.
    for _ in 0..1 << 20 {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(record.get(..count).unwrap_or_default()),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
            Err(_) => break,
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Controllers that do not outlast a restart of their target, and those whose requests wait for
/// ever.
fn given_up(_: &Machine, all: &[Controller]) -> Vec<Finding> {
    let finding = |one: &Controller| {
        let name = &one.name;
        let has_other = all.iter().filter(|other| other.subsystem == one.subsystem).count() > 1;
        if let Some(seconds) = one.number("ctrl_loss_tmo").filter(|seconds| *seconds < LOSS_MIN_S) {
            let what = format!("{name} is given up after {seconds} s without its target");
            let why = "a restart of the target's machine takes longer, and nobody connects again";
            let remedy = format!("echo 600 > /sys/class/nvme/{name}/ctrl_loss_tmo; -l of connect");
            return Some(Finding::new(Severity::Warning, what, why, &remedy));
        }
        let is_endless = ["ctrl_loss_tmo", "fast_io_fail_tmo"].map(|of| one.value(of) == "off");
        let what = format!("requests of {name} wait for ever while its target is away");
        let why = "ctrl_loss_tmo and fast_io_fail_tmo are off, and there is no other path";
        let remedy =
            format!("echo SECONDS > /sys/class/nvme/{name}/fast_io_fail_tmo, if they may fail");
        (is_endless == [true, true] && !has_other)
            .then(|| Finding::new(Severity::Note, what, why, &remedy))
    };
    all.iter().filter_map(finding).collect()
}

fn without_keep_alive(_: &Machine, all: &[Controller]) -> Vec<Finding> {
    let finding = |one: &Controller| {
        let what = format!("{} has no keep-alive", one.name);
        let why = "a target that is gone is noticed by a request that takes 30 s";
        let remedy = "nvme disconnect, and connect without --keep-alive-tmo=0";
        Finding::new(Severity::Warning, what, why, remedy)
    };
    all.iter().filter(|one| one.number("kato") == Some(0)).map(finding).collect()
}

fn few_queues(machine: &Machine, all: &[Controller]) -> Vec<Finding> {
    let stat = machine.text("proc/stat");
    let is_core = |line: &&str| {
        let rest = line.strip_prefix("cpu");
        rest.is_some_and(|rest| rest.starts_with(|one: char| one.is_ascii_digit()))
    };
    let cores = stat.lines().filter(is_core).count() as u64;
    let finding = |one: &Controller| {
        // One is the admin queue.
        let queues = one.number("queue_count")?.checked_sub(1)?;
        let what = format!("{} has {queues} I/O queues for {cores} processors", one.name);
        let why = "processors share a queue, and wait for each other";
        let remedy = "connect with --nr-io-queues, and io-queues in [limits] of the target";
        let is_few = queues < cores.min(QUEUES_ENOUGH);
        is_few.then(|| Finding::new(Severity::Note, what, why, remedy))
    };
    all.iter().filter_map(finding).collect()
}

/// The subsystems with more than one controller.
fn several(all: &[Controller]) -> BTreeMap<&str, Vec<&Controller>> {
    let mut by_name = BTreeMap::<&str, Vec<&Controller>>::new();
    all.iter().for_each(|one| by_name.entry(&one.subsystem).or_default().push(one));
    by_name.retain(|_, controllers| controllers.len() > 1);
    by_name
}

fn multipath(machine: &Machine, all: &[Controller]) -> Vec<Finding> {
    if machine.text("sys/module/nvme_core/parameters/multipath") != "N" {
        return Vec::new();
    }
    let finding = |(name, controllers): (&str, Vec<&Controller>)| {
        let count = controllers.len();
        let what = format!("each of the {count} paths to {name} is a disk of its own");
        let why = "native multipath is off, and whoever uses one of the disks has no failover";
        let remedy = "nvme_core.multipath=Y on the kernel's command line, or dm-multipath";
        Finding::new(Severity::Warning, what, why, remedy)
    };
    several(all).into_iter().map(finding).collect()
}

/// Policies that leave paths idle which are as good.
fn policy(machine: &Machine, all: &[Controller]) -> Vec<Finding> {
    let several = several(all);
    let finding = |folder: &std::path::PathBuf| {
        let read = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let (nqn, policy) = (read("subsysnqn"), read("iopolicy"));
        let count = several.get(nqn.trim())?.iter().filter(|one| one.is_live()).count();
        let name = folder.file_name()?.to_string_lossy();
        let what = format!("{name} ({}) uses one of its {count} paths at a time", nqn.trim());
        let why = "iopolicy is numa, which takes the nearest path alone";
        let remedy = format!(
            "echo queue-depth > /sys/class/nvme-subsystem/{name}/iopolicy (or round-robin), where \
             the paths are alike"
        );
        (policy.trim() == "numa" && count > 1)
            .then(|| Finding::new(Severity::Note, what, why, &remedy))
    };
    machine.names("sys/class/nvme-subsystem").iter().filter_map(finding).collect()
}

/// Interfaces of one subsystem's paths with packets of different sizes.
fn mtu(machine: &Machine, all: &[Controller]) -> Vec<Finding> {
    let routes = machine.text("proc/net/route");
    let finding = |(name, controllers): (&str, Vec<&Controller>)| {
        let interfaces: BTreeSet<&str> =
            controllers.iter().filter_map(|one| interface(&routes, &one.traddr)).collect();
        let size = |name: &&str| machine.text(format!("sys/class/net/{name}/mtu"));
        let sizes: BTreeSet<String> = interfaces.iter().map(size).collect();
        let each: Vec<String> =
            interfaces.iter().map(|name| format!("{name} {}", size(name))).collect();
        let what = format!("paths to {name} have different MTUs: {}", each.join(", "));
        let why = "one of the networks is not set up as the others";
        let remedy = "ip link set INTERFACE mtu 9000, at both ends and at the switch; ping -M do \
                      -s 8972 TARGET says whether it holds";
        (sizes.len() > 1).then(|| Finding::new(Severity::Warning, what, why, remedy))
    };
    several(all).into_iter().filter_map(finding).collect()
}

/// The interface to an address, by the kernel's table of routes.
fn interface<'a>(routes: &'a str, address: &str) -> Option<&'a str> {
    // The table has the bytes of an address as a number of this machine.
    let address = u32::from_ne_bytes(address.parse::<Ipv4Addr>().ok()?.octets());
    let route = |line: &'a str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (to, mask) = (number(1)?, number(7)?);
        (address & mask == to).then_some((mask.count_ones(), *words.first()?))
    };
    routes.lines().filter_map(route).max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

/// Devices of `weft attach` whose paths have no connection, or that nothing serves.
fn attached(machine: &Machine, _: &[Controller]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut served, mut is_blind) = (BTreeSet::new(), false);
    for process in machine.names("proc") {
        let id = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !id.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(files) = fs::read_dir(process.join("fd")) else {
            is_blind = true;
            continue;
        };
        let links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        let links: BTreeSet<String> =
            links.map(|link| link.to_string_lossy().into_owned()).collect();
        let device = |link: &String| link.strip_prefix("/dev/ublkc").map(str::to_owned);
        served.extend(links.iter().filter_map(device));
        let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        if words.get(1) == Some(&"attach") {
            findings.extend(paths_of(&id, &words, &connected(&process, &links)));
        }
    }
    // Without the files of all processes nobody knows who serves a device.
    for device in machine.names("sys/block").iter().filter(|_| !is_blind) {
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        let Some(number) = name.strip_prefix("ublkb").filter(|of| !served.contains(*of)) else {
            continue;
        };
        // Of another container's device the server is not seen either.
        if !machine.root.join(format!("dev/ublkc{number}")).exists() {
            continue;
        }
        let what = format!("nothing serves /dev/{name}");
        let why = "its process has ended, and its requests wait";
        let remedy = format!("weft attach ADDRESS --recover {number}");
        findings.push(Finding::new(Severity::Fault, what, why, &remedy));
    }
    findings
}

/// The addresses to which sockets of a process are connected.
fn connected(process: &Path, links: &BTreeSet<String>) -> BTreeSet<SocketAddr> {
    let mut found = BTreeSet::new();
    for table in ["net/tcp", "net/tcp6"] {
        let text = fs::read_to_string(process.join(table)).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, _, remote, "01", _, _, _, _, _, inode, ..] = words.as_slice() else { continue };
            if links.contains(&format!("socket:[{inode}]")) {
                found.extend(remote_address(remote));
            }
        }
    }
    found
}

/// An address of the kernel's tables: words of 32 bits as this machine has them, and the port.
fn remote_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = ip.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    match bytes.len() {
        4 => Some((<[u8; 4]>::try_from(bytes).ok()?, port).into()),
        _ => Some((<[u8; 16]>::try_from(bytes).ok()?, port).into()),
    }
}

/// The paths of a `weft attach` that are not among the connections of its process.
fn paths_of(id: &str, words: &[&str], connected: &BTreeSet<SocketAddr>) -> Option<Finding> {
    // Behind --discovery an address is not that of a path.
    if words.contains(&"--discovery") {
        return None;
    }
    let address = words.iter().find(|word| word.starts_with("nvme-"))?;
    let address: TransportId = address.parse().ok()?;
    // A name may be any address, and queue pairs of RDMA are no sockets.
    let socket = |at: TransportId| {
        let is_tcp = at.transport == Transport::Tcp;
        is_tcp.then_some(SocketAddr::new(at.traddr.parse().ok()?, at.port()))
    };
    let is_lost = |path: &SocketAddr| !connected.contains(path);
    let lost: Vec<SocketAddr> = address.endpoints().filter_map(socket).filter(is_lost).collect();
    let names = lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let what = format!("weft attach (process {id}) has no connection to {names}");
    let (severity, why) = match lost.len() == address.endpoints().count() {
        true => (Severity::Fault, "no path is left, and requests of its device wait"),
        false => (Severity::Warning, "the device has fewer paths than it was given"),
    };
    let remedy = format!("weft doctor tcp://{}; the log of that process", lost.first()?);
    Some(Finding::new(severity, what, why, &remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machine::tests::MachineFixture;

    const NQN: &str = "nqn.2024-01.io.example:disk";

    /// A host with two live paths to a subsystem, and a `weft attach` with two.
    fn sound() -> MachineFixture {
        let made = MachineFixture::sound();
        for (name, traddr) in [("nvme0", "192.0.2.1"), ("nvme1", "198.51.100.1")] {
            let address = format!("traddr={traddr},trsvcid=4420,src_addr=192.0.2.9");
            for (file, text) in [
                ("transport", "tcp"),
                ("cntrltype", "io"),
                ("state", "live"),
                ("subsysnqn", NQN),
                ("address", &address),
                ("ctrl_loss_tmo", "600"),
                ("fast_io_fail_tmo", "off"),
                ("kato", "5"),
                ("queue_count", "3"),
            ] {
                made.write(&format!("sys/class/nvme/{name}/{file}"), &format!("{text}\n"));
            }
        }
        for (path, text) in [
            ("sys/class/nvme/nvme2/transport", "pcie\n"),
            ("sys/class/nvme-subsystem/nvme-subsys0/subsysnqn", NQN),
            ("sys/class/nvme-subsystem/nvme-subsys0/iopolicy", "queue-depth\n"),
            ("sys/module/nvme_core/parameters/multipath", "Y\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
            ("sys/class/net/eth1/mtu", "9000\n"),
            ("sys/block/ublkb0/size", "8\n"),
            ("sys/block/ublkb9/size", "8\n"),
            ("dev/ublkc0", ""),
            ("proc/stat", "cpu 1\ncpu0 1\ncpu1 1\nintr 1\n"),
            ("dev/kmsg", "6,1,1,-;nvme nvme0: starting error recovery\n"),
            (
                "proc/7/cmdline",
                "weft\0attach\0nvme-tcp://192.0.2.1:4420,198.51.100.1:4420/nqn.2024-01.org:d\0",
            ),
        ] {
            made.write(path, text);
        }
        let hex = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let route = |name: &str, net: [u8; 4], mask: [u8; 4]| {
            format!("{name} {} 0 0 0 0 0 {} 0 0 0\n", hex(net), hex(mask))
        };
        let routes =
            route("eth1", [0; 4], [0; 4]) + &route("eth0", [192, 0, 2, 0], [255, 255, 255, 0]);
        made.write("proc/net/route", &routes);
        let socket = |address, inode: u32| {
            format!("0: 0100007F:1 {}:1144 01 0:0 00:0 0 0 0 {inode} 1\n", hex(address))
        };
        let sockets = socket([192, 0, 2, 1], 11) + &socket([198, 51, 100, 1], 12);
        made.write("proc/7/net/tcp", &sockets);
        made.write("proc/7/fd/.keep", "");
        for (number, to) in [("3", "socket:[11]"), ("4", "socket:[12]"), ("5", "/dev/ublkc0")] {
            std::os::unix::fs::symlink(to, made.path(&format!("proc/7/fd/{number}")))
                .expect("a link");
        }
        made
    }

    fn all(made: &MachineFixture, file: &str, text: &str) {
        for name in ["nvme0", "nvme1"] {
            made.write(&format!("sys/class/nvme/{name}/{file}"), text);
        }
    }

    /// What was made of a host, and what is said of it: how many findings, the severity, a part of
    /// what the first is, and of what to do.
    type Case = (fn(&MachineFixture), usize, Severity, &'static str, &'static str);

    const BROKEN: [Case; 14] = [
        (
            |made| made.write("sys/class/nvme/nvme1/state", "connecting\n"),
            1,
            Severity::Warning,
            "nvme1 (198.51.100.1:4420) of nqn.2024-01.io.example:disk is connecting",
            "weft doctor tcp://198.51.100.1:4420",
        ),
        (
            |made| all(made, "state", "connecting\n"),
            2,
            Severity::Fault,
            "nvme0 (192.0.2.1:4420) of nqn.2024-01.io.example:disk is connecting",
            "journalctl -k -g nvme0:",
        ),
        (
            |made| {
                let line = "6,1,1,-;nvme nvme0: starting error recovery\n";
                made.write("dev/kmsg", &line.repeat(3));
            },
            1,
            Severity::Warning,
            "3 losses of nvme0 (192.0.2.1)",
            "keep-alive",
        ),
        (
            |made| made.write("sys/class/nvme/nvme0/ctrl_loss_tmo", "5\n"),
            1,
            Severity::Warning,
            "nvme0 is given up after 5 s",
            "ctrl_loss_tmo",
        ),
        (
            |made| {
                made.write("sys/class/nvme/nvme1/subsysnqn", "nqn.2024-01.io.example:other");
                made.write("sys/class/nvme/nvme1/ctrl_loss_tmo", "off\n");
            },
            1,
            Severity::Note,
            "requests of nvme1 wait for ever",
            "fast_io_fail_tmo",
        ),
        (
            |made| made.write("sys/class/nvme/nvme0/kato", "0\n"),
            1,
            Severity::Warning,
            "nvme0 has no keep-alive",
            "--keep-alive-tmo",
        ),
        (
            |made| made.write("sys/class/nvme/nvme0/queue_count", "2\n"),
            1,
            Severity::Note,
            "nvme0 has 1 I/O queues for 2 processors",
            "--nr-io-queues",
        ),
        (
            |made| made.write("sys/module/nvme_core/parameters/multipath", "N\n"),
            1,
            Severity::Warning,
            "each of the 2 paths",
            "nvme_core.multipath=Y",
        ),
        (
            |made| made.write("sys/class/nvme-subsystem/nvme-subsys0/iopolicy", "numa\n"),
            1,
            Severity::Note,
            "uses one of its 2 paths",
            "queue-depth",
        ),
        (
            |made| made.write("sys/class/net/eth1/mtu", "1500\n"),
            1,
            Severity::Warning,
            "eth0 9000, eth1 1500",
            "ping -M do",
        ),
        (
            |made| fs::remove_file(made.path("proc/7/fd/4")).expect("a link"),
            1,
            Severity::Warning,
            "weft attach (process 7) has no connection to 198.51.100.1:4420",
            "weft doctor tcp://198.51.100.1:4420",
        ),
        (
            |made| made.write("proc/7/net/tcp", ""),
            1,
            Severity::Fault,
            "no connection to 192.0.2.1:4420 and 198.51.100.1:4420",
            "weft doctor",
        ),
        (
            |made| fs::remove_file(made.path("proc/7/fd/5")).expect("a link"),
            1,
            Severity::Fault,
            "nothing serves /dev/ublkb0",
            "--recover 0",
        ),
        (
            |made| fs::remove_dir_all(made.path("proc/7")).expect("a process"),
            1,
            Severity::Fault,
            "nothing serves /dev/ublkb0",
            "weft attach",
        ),
    ];

    #[test]
    fn a_sound_host_has_nothing_to_do() {
        assert_eq!(findings(&sound().machine), []);
        assert_eq!(findings(&MachineFixture::sound().machine), []);
    }

    #[test]
    fn each_broken_host_has_its_finding_and_no_other() {
        for (fault, count, severity, what, remedy) in BROKEN {
            let made = sound();
            fault(&made);
            let findings = findings(&made.machine);
            let first = findings.first().unwrap_or_else(|| panic!("{what}: nothing"));
            assert_eq!((findings.len(), first.severity), (count, severity), "{findings:?}");
            assert!(first.what.contains(what) && first.remedy.contains(remedy), "{first:?}");
            assert!(!first.why.is_empty(), "{first:?}");
        }
    }

    #[test]
    fn paths_that_are_no_sockets_are_not_missed() {
        let paths = |address: &str, connected: &[&str]| {
            let connected = connected.iter().map(|one| one.parse().expect("an address")).collect();
            paths_of("7", &["weft", "attach", &format!("{address}/nqn.2024-01.org:d")], &connected)
        };
        assert_eq!(paths("nvme-rdma://192.0.2.1", &[]), None);
        assert_eq!(paths("nvme-tcp://a.example:4420", &[]), None);
        assert_eq!(paths("nvme-tcp://[2001:db8::1]:4420", &["[2001:db8::1]:4420"]), None);
        let mixed = paths("nvme-tcp://192.0.2.1:4420,nvme-rdma://192.0.2.2", &[]);
        assert_eq!(mixed.expect("one is lost").severity, Severity::Warning);
    }

    #[test]
    fn addresses_of_the_kernels_tables_are_read() {
        let v4 = format!("{:08X}:1144", u32::from_ne_bytes([192, 0, 2, 1]));
        assert_eq!(remote_address(&v4), Some("192.0.2.1:4420".parse().expect("an address")));
        let words = [[0x20, 1, 0xd, 0xb8], [0; 4], [0; 4], [0, 0, 0, 1]].map(u32::from_ne_bytes);
        let v6: String = words.iter().map(|word| format!("{word:08X}")).collect();
        let expected = "[2001:db8::1]:4420".parse().expect("an address");
        assert_eq!(remote_address(&format!("{v6}:1144")), Some(expected));
        assert_eq!(remote_address("nonsense"), None);
    }

    #[test]
    fn this_host_is_looked_at() {
        let found = findings(&Machine::own(None));
        assert!(found.iter().all(|finding| !finding.remedy.is_empty()), "{found:?}");
    }
}
