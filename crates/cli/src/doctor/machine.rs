//! What is to be found at a machine, in its `/proc` and `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use weft_lab::environment;
use weft_lab::results::Environment;
use weft_reactor::{Config, DriverKind, Reactor};

use super::finding::{Finding, Severity};

/// Fewer open files than this are soon used up; with as many as this no default limit is.
const FILES: (u64, u64) = (256, 16_384);

/// The rings of a target have room in this.
const RINGS_BYTES: u64 = 64 << 20;

/// An idle state that a processor needs longer to leave than this is seen in latencies.
const DEEP_US: u64 = 50;

/// Of fewer segments nothing is said, and of more a share of this is too much in a machine room.
const SEGMENTS_MIN: u64 = 100_000;
const SENT_AGAIN_PERCENT: f64 = 0.5;

/// Clock sources that are read without a system call.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];

/// A machine, as it is seen below a folder, and what only a system call says.
pub(super) struct Machine {
    pub(super) root: PathBuf,
    /// The folder in `/proc` of the process whose limits count.
    pub(super) process: String,
    /// Why there is no io_uring.
    pub(super) no_io_uring: Option<String>,
    pub(super) is_clock_synchronized: Option<bool>,
}

type Check = fn(&Machine, &Environment) -> Option<Finding>;

const CHECKS: [Check; 11] = [
    files,
    locked_memory,
    io_uring,
    congestion_control,
    idle_states,
    governor,
    clock_source,
    clock,
    sent_again,
    soft_roce,
    modules,
];

impl Machine {
    /// This machine, and the limits of this target on it, or else of this process.
    pub(super) fn own(process: Option<u32>) -> Self {
        let driver = Config { driver: DriverKind::Uring, pool_bytes: 1 << 20, ..Config::default() };
        Self {
            root: PathBuf::from("/"),
            process: process.map_or_else(|| "self".to_owned(), |id| id.to_string()),
            no_io_uring: Reactor::new(driver).err().map(|error| error.to_string()),
            is_clock_synchronized: weft_reactor::is_clock_synchronized(),
        }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let environment = environment::machine_at(&self.root);
        CHECKS.iter().filter_map(|check| check(self, &environment)).collect()
    }

    pub(super) fn text(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned()
    }

    pub(super) fn names(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// A limit that holds now; none: unlimited, or not told.
    fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.text(format!("proc/{}/limits", self.process));
        let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    }

    fn has_rdma(&self) -> bool {
        !self.names("sys/class/infiniband").is_empty()
    }
}

fn files(machine: &Machine, _: &Environment) -> Option<Finding> {
    let limit = machine.limit("Max open files").filter(|limit| *limit < FILES.1)?;
    let severity = if limit < FILES.0 { Severity::Warning } else { Severity::Note };
    let what = format!("{limit} files may be open");
    let why = "a target needs one for each connection, and refuses hosts beyond that";
    Some(Finding::new(
        severity,
        what,
        why,
        "LimitNOFILE=65536 in `systemctl edit weft`, or ulimit -n 65536",
    ))
}

fn locked_memory(machine: &Machine, environment: &Environment) -> Option<Finding> {
    let limit = machine.limit("Max locked memory")?;
    let pool = weft_target::config::Limits::default().pool_bytes as u64;
    let (needed, why) = if machine.has_rdma() {
        (pool, "RDMA registers the memory of each poll group, by default 256 MiB")
    } else if environment.kernel.starts_with("6.18.") {
        (RINGS_BYTES, "this kernel counts the rings of io_uring as locked memory of the user")
    } else {
        return None;
    };
    let what = format!("{} of memory may be locked", weft_backend::bytes::human(limit));
    let remedy = "LimitMEMLOCK=infinity in `systemctl edit weft`, or ulimit -l unlimited";
    (limit < needed).then(|| Finding::new(Severity::Warning, what, why, remedy))
}

fn io_uring(machine: &Machine, environment: &Environment) -> Option<Finding> {
    let setting = environment.sysctls.get("kernel.io_uring_disabled").map(String::as_str);
    let (what, remedy) = match (setting, &machine.no_io_uring) {
        (Some(setting @ ("1" | "2")), _) => (
            format!("kernel.io_uring_disabled is {setting}"),
            "sysctl -w kernel.io_uring_disabled=0, and a line in /etc/sysctl.d",
        ),
        (_, Some(error)) => (
            error.clone(),
            "in a container, allow io_uring_setup, io_uring_enter and io_uring_register in its \
             seccomp profile; elsewhere Linux 5.15 or later",
        ),
        _ => return None,
    };
    let why = "weft takes epoll and threads for files instead, which is slower";
    Some(Finding::new(Severity::Warning, what, why, remedy))
}

fn congestion_control(_: &Machine, environment: &Environment) -> Option<Finding> {
    let name = environment.sysctls.get("net.ipv4.tcp_congestion_control")?;
    let why = "it paces: a timer for each segment took a third of a target's processor, and a \
               storage network of short paths gains nothing";
    let remedy = "sysctl -w net.ipv4.tcp_congestion_control=cubic, and connect again: a connection \
                  that began with BBR goes on pacing";
    let what = format!("the congestion control is {name}");
    name.starts_with("bbr").then(|| Finding::new(Severity::Warning, what, why, remedy))
}

fn idle_states(machine: &Machine, _: &Environment) -> Option<Finding> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let states = machine.names("sys/devices/system/cpu/cpu0/cpuidle");
    let enabled = states.iter().filter(|state| number(&state.join("disable")) == Some(0));
    let deepest = enabled.filter_map(|state| number(&state.join("latency"))).max()?;
    let what = format!("idle processors sleep so deep that they need {deepest} µs to wake up");
    let why = "each request that comes after a pause waits for it";
    let remedy = format!("cpupower idle-set -D {DEEP_US}, or tuned-adm profile network-latency");
    (deepest >= DEEP_US).then(|| Finding::new(Severity::Warning, what, why, &remedy))
}

fn governor(_: &Machine, environment: &Environment) -> Option<Finding> {
    let name = &environment.processor.governor;
    let what = format!("the frequency governor is {name}");
    let why = "a processor that is not always busy runs at a low frequency";
    let remedy = "cpupower frequency-set -g performance";
    let is_fast = name.is_empty() || name == "performance";
    (!is_fast).then(|| Finding::new(Severity::Warning, what, why, remedy))
}

fn clock_source(machine: &Machine, _: &Environment) -> Option<Finding> {
    let name = environment::clock_source(&machine.root)?;
    let what = format!("the kernel's clock source is {name}");
    let why = "each reading of the clock is a system call";
    let remedy = "journalctl -k -g clocksource says why; `tsc=reliable` on the kernel's command \
                  line keeps it";
    let is_fast = FAST_CLOCKS.contains(&name.as_str());
    (!is_fast).then(|| Finding::new(Severity::Warning, what, why, remedy))
}

fn clock(machine: &Machine, _: &Environment) -> Option<Finding> {
    let why = "logs of host and target cannot be compared, and certificates may not be valid yet";
    let remedy = "timedatectl set-ntp true";
    let what = "nothing keeps the clock right";
    let is_wrong = machine.is_clock_synchronized == Some(false);
    is_wrong.then(|| Finding::new(Severity::Warning, what, why, remedy))
}

/// What the networks of this machine have lost since it was started.
fn sent_again(machine: &Machine, _: &Environment) -> Option<Finding> {
    let table = machine.text("proc/net/snmp");
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let at = names.split(' ').position(|one| one == name)?;
        values.split(' ').nth(at)?.parse::<u64>().ok()
    };
    let (sent, again) = (value("OutSegs")?, value("RetransSegs")?);
    let percent = again as f64 / sent.max(1) as f64 * 100.0;
    let what = format!("{percent:.1} % of the TCP segments were sent again since the start");
    let why = "each loss holds a connection up, for 200 ms if nothing comes after it";
    let remedy = "ip -s link and ethtool -S INTERFACE (dropped, discarded), flow control and \
                  buffers of the switch, one MTU at all ends; nstat shows whether it goes on";
    let is_lossy = sent >= SEGMENTS_MIN && percent >= SENT_AGAIN_PERCENT;
    is_lossy.then(|| Finding::new(Severity::Warning, what, why, remedy))
}

/// The kernel whose memory windows of soft-RoCE crash.
fn soft_roce(_: &Machine, environment: &Environment) -> Option<Finding> {
    let is_soft = environment.notes.iter().any(|note| note.contains("is software"));
    let is_affected = is_soft && environment.kernel.starts_with("6.12.");
    let why = "memory windows of soft-RoCE have crashed Linux 6.12";
    let remedy = "do not use --rdma-access window; weft takes leases by itself";
    let what = "an RDMA device is soft-RoCE of Linux 6.12";
    is_affected.then(|| Finding::new(Severity::Note, what, why, remedy))
}

/// Modules of Linux' own host.
fn modules(machine: &Machine, environment: &Environment) -> Option<Finding> {
    let release = environment.kernel.split(' ').next().unwrap_or_default();
    let lists = ["dep", "builtin"].map(|of| format!("lib/modules/{release}/modules.{of}"));
    let lists = lists.map(|list| machine.text(list)).concat();
    let is_there = |module: &&&str| {
        let loaded = machine.root.join("sys/module").join(module.replace('-', "_"));
        loaded.exists() || lists.contains(&format!("/{module}.ko"))
    };
    let wanted: &[&str] =
        if machine.has_rdma() { &["nvme-tcp", "nvme-rdma"] } else { &["nvme-tcp"] };
    let missing = wanted.iter().find(|module| !is_there(module))?;
    let what = format!("this kernel has no module {missing}");
    let why = "`nvme connect` needs it, if this machine is a host";
    let remedy = "apt install linux-modules-extra-$(uname -r), or `weft attach`";
    Some(Finding::new(Severity::Note, what, why, remedy))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const LIMITS: &str = "Limit              Soft Limit  Hard Limit  Units\n\
                          Max open files     65536       65536       files\n\
                          Max locked memory  unlimited   unlimited   bytes\n";

    /// A machine that has what it should, in a folder of its own.
    pub(in crate::doctor) struct MachineFixture {
        pub(in crate::doctor) machine: Machine,
        _folder: tempfile::TempDir,
    }

    impl MachineFixture {
        pub(in crate::doctor) fn sound() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let machine = Machine {
                root: folder.path().to_owned(),
                process: "self".to_owned(),
                no_io_uring: None,
                is_clock_synchronized: Some(true),
            };
            let made = Self { machine, _folder: folder };
            for (path, text) in [
                ("proc/self/limits", LIMITS),
                ("proc/net/snmp", "Tcp: InSegs OutSegs RetransSegs\nTcp: 1 1000000 1000\n"),
                ("proc/sys/kernel/osrelease", "6.12.9-amd64\n"),
                ("proc/sys/kernel/io_uring_disabled", "0\n"),
                ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
                ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
                ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
                ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
                ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
                ("lib/modules/6.12.9-amd64/modules.dep", "kernel/nvme/host/nvme-tcp.ko.xz:\n"),
            ] {
                made.write(path, text);
            }
            made
        }

        pub(in crate::doctor) fn path(&self, path: &str) -> PathBuf {
            self.machine.root.join(path)
        }

        pub(in crate::doctor) fn write(&self, path: &str, text: &str) {
            let path = self.path(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    #[test]
    fn a_sound_machine_has_nothing_to_do() {
        assert_eq!(MachineFixture::sound().machine.findings(), []);
    }

    /// A fault, and what is said of it: severity, a part of what it is, a part of what to do.
    type Case = (fn(&mut MachineFixture), Severity, &'static str, &'static str);

    const BROKEN: [Case; 15] = [
        (
            |made| made.write("proc/self/limits", &LIMITS.replace("65536", "64")),
            Severity::Warning,
            "64 files may be open",
            "LimitNOFILE=65536",
        ),
        (
            |made| made.write("proc/self/limits", &LIMITS.replace("65536", "1024")),
            Severity::Note,
            "1024 files may be open",
            "ulimit -n 65536",
        ),
        (
            |made| {
                made.write("proc/self/limits", &LIMITS.replace("unlimited", "8388608"));
                made.write("sys/class/infiniband/mlx5_0/device/vendor", "0x15b3");
                made.write("sys/module/nvme_rdma/refcnt", "0");
            },
            Severity::Warning,
            "8 MiB of memory may be locked",
            "LimitMEMLOCK=infinity",
        ),
        (
            |made| {
                made.write("proc/self/limits", &LIMITS.replace("unlimited", "8388608"));
                made.write("proc/sys/kernel/osrelease", "6.18.1\n");
                made.write("lib/modules/6.18.1/modules.builtin", "kernel/host/nvme-tcp.ko\n");
            },
            Severity::Warning,
            "8 MiB of memory may be locked",
            "ulimit -l unlimited",
        ),
        (
            |made| made.write("proc/sys/kernel/io_uring_disabled", "2\n"),
            Severity::Warning,
            "kernel.io_uring_disabled is 2",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        (
            |made| made.machine.no_io_uring = Some("cannot set up io_uring: EPERM".to_owned()),
            Severity::Warning,
            "EPERM",
            "seccomp",
        ),
        (
            |made| made.write("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n"),
            Severity::Warning,
            "congestion control is bbr",
            "tcp_congestion_control=cubic",
        ),
        (
            |made| made.write("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
            Severity::Warning,
            "133 µs",
            "cpupower idle-set -D 50",
        ),
        (
            |made| {
                let path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
                made.write(path, "powersave\n");
            },
            Severity::Warning,
            "governor is powersave",
            "frequency-set -g performance",
        ),
        (
            |made| {
                let folder = "sys/devices/system/clocksource/clocksource0";
                made.write(&format!("{folder}/current_clocksource"), "hpet\n");
            },
            Severity::Warning,
            "clock source is hpet",
            "tsc=reliable",
        ),
        (
            |made| {
                let text = "Tcp: InSegs OutSegs RetransSegs\nTcp: 1 1000000 12000\n";
                made.write("proc/net/snmp", text);
            },
            Severity::Warning,
            "1.2 % of the TCP segments",
            "ethtool -S",
        ),
        (
            |made| made.machine.is_clock_synchronized = Some(false),
            Severity::Warning,
            "keeps the clock right",
            "timedatectl set-ntp true",
        ),
        (
            |made| {
                made.write("sys/class/infiniband/rxe0/node_type", "1");
                made.write("sys/module/nvme_rdma/refcnt", "0");
            },
            Severity::Note,
            "soft-RoCE",
            "--rdma-access",
        ),
        (
            |made| made.write("lib/modules/6.12.9-amd64/modules.dep", "\n"),
            Severity::Note,
            "no module nvme-tcp",
            "weft attach",
        ),
        (
            |made| made.write("sys/class/infiniband/mlx5_0/device/vendor", "0x15b3"),
            Severity::Note,
            "no module nvme-rdma",
            "linux-modules-extra",
        ),
    ];

    #[test]
    fn each_broken_machine_has_its_finding_and_no_other() {
        for (fault, severity, what, remedy) in BROKEN {
            let mut made = MachineFixture::sound();
            fault(&mut made);
            let findings = made.machine.findings();
            let [found] = findings.as_slice() else { panic!("{what}: {findings:?}") };
            assert_eq!(found.severity, severity, "{found:?}");
            assert!(found.what.contains(what) && found.remedy.contains(remedy), "{found:?}");
            assert!(!found.why.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn this_machine_is_looked_at() {
        let own = Machine::own(Some(std::process::id()));
        assert_eq!(own.limit("Max open files"), Some(weft_reactor::descriptor_limit()));
        assert!(own.findings().iter().all(|finding| !finding.remedy.is_empty()));
    }
}
