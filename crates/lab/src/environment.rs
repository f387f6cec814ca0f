//! The conditions of a study that can change its results.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::path::Path;

use flate2::read::GzDecoder;
use weft_rpc::machine::Machine;

use crate::results::{Environment, Hardware, Interface, NvmeController, Processor, SCHEMA, Slot};

/// Kernel settings that affect sockets, processors and memory.
const SYSCTLS: &[&str] = &[
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/netdev_budget",
    "net/core/default_qdisc",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_autocorking",
    "kernel/sched_autogroup_enabled",
    "kernel/io_uring_disabled",
    "kernel/perf_event_paranoid",
    "vm/swappiness",
];

/// Describes this machine; the caller adds what belongs to the run.
#[must_use]
pub fn this_machine() -> Environment {
    machine_at(Path::new("/"))
}

/// The same of a machine whose `/proc` and `/sys` are below this folder.
#[must_use]
pub fn machine_at(root: &Path) -> Environment {
    let kernel = |name: &str| line(&root.join("proc/sys/kernel").join(name));
    let sysctls: BTreeMap<String, String> = SYSCTLS
        .iter()
        .filter_map(|name| {
            let value = fs::read_to_string(root.join("proc/sys").join(name)).ok()?;
            let value: Vec<&str> = value.split_ascii_whitespace().collect();
            Some((name.replace('/', "."), value.join(" ")))
        })
        .collect();
    let cpuinfo = text(&root.join("proc/cpuinfo"));
    let processor = processor(&cpuinfo, cpus().len(), &root.join("sys/devices/system/cpu/cpu0"));
    let mut notes: Vec<String> =
        emulation(&processor.model).map(str::to_owned).into_iter().collect();
    notes.extend(clock_source(root).map(|name| format!("the kernel's clock source is {name}")));
    notes.extend(rdma_devices(&root.join("sys/class/infiniband")));
    Environment {
        schema: SCHEMA,
        kernel: format!("{} {}", kernel("osrelease"), kernel("version")).trim().to_owned(),
        machine: kernel("hostname"),
        processor,
        memory_bytes: memory_bytes(&text(&root.join("proc/meminfo"))),
        hardware: hardware(&root.join("sys/class")),
        interfaces: interfaces(&root.join("sys/class/net")),
        sysctls,
        irq_time_accounting: irq_time_accounting(root, &kernel("osrelease")),
        notes,
        ..Environment::default()
    }
}

/// The processors that this process may use.
#[must_use]
pub fn cpus() -> Vec<usize> {
    let allowed = allowed_cpus(&text(Path::new("/proc/self/status")));
    if allowed.is_empty() {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        return (0..count).collect();
    }
    allowed
}

/// The IPv4 address of this machine's first RDMA device that has one (as RoCE version 2 has it in
/// its table of GIDs).
#[must_use]
pub fn rdma_address() -> Option<IpAddr> {
    let devices = fs::read_dir("/sys/class/infiniband").ok()?;
    let mut tables: Vec<_> =
        devices.flatten().map(|device| device.path().join("ports/1/gids")).collect();
    tables.sort();
    tables.iter().find_map(|table| {
        let gids = fs::read_dir(table).ok()?.flatten();
        gids.filter_map(|gid| ipv4_of_gid(&fs::read_to_string(gid.path()).ok()?)).min()
    })
}

/// The IPv4 address in a GID, which has the form of an IPv6 address.
fn ipv4_of_gid(text: &str) -> Option<IpAddr> {
    let gid: Ipv6Addr = text.trim().parse().ok()?;
    gid.to_ipv4_mapped().map(IpAddr::V4)
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &Path) -> String {
    text(path).trim().to_owned()
}

fn allowed_cpus(status: &str) -> Vec<usize> {
    let list = field(status, "Cpus_allowed_list").unwrap_or_default();
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
        {
            // The kernel wrote this list; the bound limits the loop in any case.
            cpus.extend(first..=last.min(first.saturating_add(65_535)));
        }
    }
    cpus
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

fn processor(cpuinfo: &str, cores: usize, cpu0: &Path) -> Processor {
    // Arm has no model name; one of these identifies the part.
    let model = ["model name", "Model", "CPU part"].iter().find_map(|name| field(cpuinfo, name));
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    Processor {
        model: model.unwrap_or_default().to_owned(),
        cores,
        governor: line(&cpu0.join("cpufreq/scaling_governor")),
        hypervisor: flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = field(meminfo, "MemTotal").and_then(|value| value.split_once(' '));
    let kib = total.and_then(|(number, _)| number.parse::<u64>().ok()).unwrap_or(0);
    kib.saturating_mul(1024)
}

fn interfaces(directory: &Path) -> Vec<Interface> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut interfaces: Vec<Interface> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = |name: &str| -> Option<i64> {
                fs::read_to_string(path.join(name)).ok()?.trim().parse().ok()
            };
            let driver = fs::read_link(path.join("device/driver")).ok();
            let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            Some(Interface {
                name: path.file_name()?.to_str()?.to_owned(),
                driver: driver.unwrap_or_default().to_owned(),
                mtu: number("mtu").and_then(|mtu| u64::try_from(mtu).ok()).unwrap_or(0),
                // -1 if there is no link.
                speed_mbit_per_s: number("speed").and_then(|speed| u64::try_from(speed).ok()),
                slot: path.join("device").exists().then(|| slot(&path.join("device"))),
            })
        })
        .collect();
    interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    interfaces
}

/// The firmware and NVMe controllers of a machine, as far as anybody may read them.
fn hardware(class: &Path) -> Hardware {
    let words = |names: &[&str]| {
        let words = names.iter().map(|name| line(&class.join("dmi/id").join(name)));
        words.filter(|word| !word.is_empty()).collect::<Vec<String>>().join(" ")
    };
    let entries = fs::read_dir(class.join("nvme")).into_iter().flatten().flatten();
    let mut nvme: Vec<NvmeController> = entries
        .map(|entry| NvmeController {
            name: entry.file_name().to_string_lossy().into_owned(),
            model: line(&entry.path().join("model")),
            firmware: line(&entry.path().join("firmware_rev")),
            slot: slot(&entry.path().join("device")),
        })
        .collect();
    nvme.sort_by(|one, other| one.name.cmp(&other.name));
    Hardware {
        product: words(&["sys_vendor", "product_name"]),
        bios: words(&["bios_vendor", "bios_version", "bios_date"]),
        nvme,
    }
}

/// Where a device is. The kernel says -1 for no NUMA node, and no lanes or 255 of a link that it
/// does not know.
fn slot(device: &Path) -> Slot {
    let number = |name: &str| line(&device.join(name)).parse::<u32>().ok();
    let speed = line(&device.join("current_link_speed"));
    Slot {
        numa_node: number("numa_node"),
        link_speed: if speed.starts_with("Unknown") { String::new() } else { speed },
        link_width: number("current_link_width").filter(|lanes| (1..255).contains(lanes)),
    }
}

/// Whether an address or a host's name is this machine's.
#[must_use]
pub fn is_here(host: &str) -> bool {
    addresses_here(host).next().is_some()
}

/// The addresses of this machine that a host's name has: another machine's cannot be bound to.
pub(crate) fn addresses_here(host: &str) -> impl Iterator<Item = IpAddr> {
    let addresses = (host, 0).to_socket_addrs().into_iter().flatten();
    addresses.filter(|address| TcpListener::bind(address).is_ok()).map(|address| address.ip())
}

/// The kernel's clock source. One that is read by a system call makes every latency longer.
#[must_use]
pub fn clock_source(root: &Path) -> Option<String> {
    let folder = root.join("sys/devices/system/clocksource/clocksource0");
    Some(line(&folder.join("current_clocksource"))).filter(|source| !source.is_empty())
}

/// Whether the kernel counts the time of interrupts apart: by its configuration, or else by whether
/// it has counted any (without it a tick hardly ever meets an interrupt).
fn irq_time_accounting(root: &Path, release: &str) -> Option<bool> {
    let mut config = String::new();
    let packed = fs::File::open(root.join("proc/config.gz")).ok();
    let unpacked = packed.and_then(|file| GzDecoder::new(file).read_to_string(&mut config).ok());
    if unpacked.is_none() {
        config = text(&root.join(format!("boot/config-{release}")));
    }
    accounting(&config, &Machine::read())
}

fn accounting(config: &str, machine: &Machine) -> Option<bool> {
    if !config.is_empty() {
        return Some(config.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"));
    }
    (!machine.cores.is_empty()).then(|| machine.cores.iter().any(|core| core.irq_ns > 0))
}

/// A warning if the processor's model name is that of an emulator.
fn emulation(model: &str) -> Option<&'static str> {
    let note = "the processor is emulated: times measured here do not apply to a real one";
    model.contains("TCG").then_some(note)
}

/// The RDMA devices, and whether each is an adapter or software.
fn rdma_devices(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut notes: Vec<String> = entries
        .flatten()
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            // An adapter has a device on a bus, software has none.
            let what = match entry.path().join("device").exists() {
                true => "an adapter",
                false => "software; its results do not apply to adapters",
            };
            format!("the RDMA device {name} is {what}")
        })
        .collect();
    notes.sort();
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_processors_and_software_rdma_are_noted() {
        assert!(emulation("QEMU TCG CPU version 2.5+").is_some());
        assert!(emulation("AMD EPYC 9575F 64-Core Processor").is_none());
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("mlx5_0/device")).expect("a folder");
        fs::create_dir_all(folder.path().join("rxe0")).expect("a folder");
        let notes = rdma_devices(folder.path());
        assert_eq!(notes[0], "the RDMA device mlx5_0 is an adapter");
        assert!(notes[1].starts_with("the RDMA device rxe0 is software"), "{notes:?}");
        assert!(rdma_devices(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn accounting_of_interrupts_is_known_by_configuration_or_by_behaviour() {
        let counted = |irq_ns| {
            let core = weft_rpc::machine::Core { irq_ns, ..Default::default() };
            Machine { cores: vec![core], ..Machine::default() }
        };
        let off = "# CONFIG_IRQ_TIME_ACCOUNTING is not set\nCONFIG_HAVE_IRQ_TIME_ACCOUNTING=y\n";
        assert_eq!(accounting(off, &counted(9)), Some(false), "the configuration decides");
        assert_eq!(accounting("CONFIG_IRQ_TIME_ACCOUNTING=y\n", &counted(0)), Some(true));
        assert_eq!(accounting("", &counted(9)), Some(true));
        assert_eq!(accounting("", &counted(0)), Some(false));
        assert_eq!(accounting("", &Machine::default()), None);
    }

    #[test]
    fn a_gid_may_contain_an_ipv4_address() {
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:020f\n";
        assert_eq!(ipv4_of_gid(gid), Some(IpAddr::from([10, 0, 2, 15])));
        for none in ["fe80:0000:0000:0000:5054:00ff:fe12:3456", "", "0a00:020f", "::"] {
            assert_eq!(ipv4_of_gid(none), None, "{none}");
        }
    }

    #[test]
    fn the_kernels_texts_are_parsed() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,5,7-8\n";
        assert_eq!(allowed_cpus(status), [0, 1, 2, 5, 7, 8]);
        assert_eq!(allowed_cpus("garbage"), Vec::<usize>::new());
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        let processor = processor(cpuinfo, 4, Path::new("/nowhere"));
        assert_eq!((processor.model.as_str(), processor.cores), ("A CPU @ 2 GHz", 4));
        assert!(processor.hypervisor);
        assert_eq!(memory_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16 << 20);
        assert_eq!(memory_bytes(""), 0);
    }

    #[test]
    fn firmware_and_slots_are_known_as_far_as_the_kernel_tells_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join("sys/class").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
        };
        for (name, text) in [
            ("sys_vendor", "Supermicro\n"),
            ("product_name", "SYS-1029\n"),
            ("bios_vendor", "AMI\n"),
            ("bios_version", "3.4\n"),
            ("bios_date", "11/02/2020\n"),
        ] {
            write(&format!("dmi/id/{name}"), text);
        }
        write("nvme/nvme0/model", "P4800X  \n");
        write("nvme/nvme0/firmware_rev", "E2010435\n");
        write("nvme/nvme0/device/numa_node", "1\n");
        write("nvme/nvme0/device/current_link_speed", "8.0 GT/s PCIe\n");
        write("nvme/nvme0/device/current_link_width", "4\n");
        write("net/lo/mtu", "65536\n");
        write("net/ens1/mtu", "9000\n");
        write("net/ens1/device/numa_node", "-1\n");
        write("net/ens1/device/current_link_speed", "Unknown\n");
        write("net/ens1/device/current_link_width", "0\n");
        let environment = machine_at(folder.path());
        let Hardware { product, bios, nvme } = environment.hardware;
        assert_eq!((&*product, &*bios), ("Supermicro SYS-1029", "AMI 3.4 11/02/2020"));
        assert_eq!((&*nvme[0].model, &*nvme[0].firmware), ("P4800X", "E2010435"));
        assert_eq!(nvme[0].slot.to_string(), "PCIe at 8.0 GT/s x4, NUMA node 1");
        let [adapter, lo] = &environment.interfaces[..] else { panic!("two interfaces") };
        assert_eq!(adapter.slot.as_ref().map(Slot::to_string).as_deref(), Some("slot unknown"));
        assert_eq!(lo.slot, None, "it has no device");
        let nothing = machine_at(&folder.path().join("none"));
        assert_eq!(nothing.hardware, Hardware::default());
    }

    #[test]
    fn this_machine_is_described() {
        let environment = this_machine();
        assert!(!environment.kernel.is_empty() && environment.memory_bytes > 0);
        assert!(environment.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(environment.sysctls.contains_key("net.core.rmem_max"));
        assert!(!cpus().is_empty());
    }
}
