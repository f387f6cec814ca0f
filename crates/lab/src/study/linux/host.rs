//! The kernel's host: `/dev/nvme-fabrics`, and the block device of a namespace.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use uuid::Uuid;
use weft_host::{Options, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, TransportId};
use weft_load::Job;
use weft_reactor::monotonic_time;

use super::changes::{Changes, Linux};
use super::fabrics::{CONTROLLERS, controllers, write};
use super::sysfs::{attribute, load, names, nvme, set};
use crate::results::Connection;
use crate::study::given::protocol_name;
use crate::study::knob::change::Change;
use crate::study::load_device::Spread;
use crate::study::software::HostSettings;

/// How long a block device may take to appear.
const APPEARS: Duration = Duration::from_secs(30);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(5);

const DISKS: &str = "/sys/block";

/// The priority of the sockets of nvme-tcp, below the root.
const SO_PRIORITY: &str = "sys/module/nvme_tcp/parameters/so_priority";

/// A connection of the kernel's host, which ends with this value.
#[derive(Debug)]
pub(in crate::study) struct KernelConnection {
    changes: Changes,
    /// The node of its block device.
    pub(in crate::study) device: PathBuf,
    /// The namespace.
    pub(in crate::study) nsid: u32,
    /// Model and firmware of the controller.
    pub(in crate::study) identity: String,
    pub(in crate::study) connection: Option<Connection>,
}

impl KernelConnection {
    pub(in crate::study) fn close(mut self) -> Result<(), String> {
        self.changes.undo()
    }
}

/// Connects the kernel to a subsystem and waits for the block device of a namespace: the one given,
/// else the first.
pub(in crate::study) fn connect(
    linux: &Arc<Linux>,
    address: &TransportId,
    nsid: Option<u32>,
    how: &Spread<'_>,
) -> Result<KernelConnection, String> {
    let settings = how.host;
    load(&nvme(address.transport), &[])?;
    let nqn = address.subnqn.as_ref().map(ToString::to_string).unwrap_or_default();
    if let Some(other) = controllers(&nqn).first() {
        return Err(format!(
            "the kernel is connected to {nqn} already, and a load would be spread over both \
             connections: nvme disconnect -d {other}"
        ));
    }
    let mut options = Options::new(address.clone());
    if how.renamed {
        options = options.of_another_host();
    }
    options.host_traddr = how.from;
    let hostnqn = options.hostnqn.to_string();
    let line = line(&options, &nqn, settings, how.job);
    let mut changes = Changes::new(linux);
    let priority = settings.so_priority.map(|priority| {
        // The module has one for all sockets that it makes from now on.
        changes.set_file(SO_PRIORITY, &priority.to_string())
    });
    let priority = priority.transpose()?;
    changes.note(Change::Connected { nqn: nqn.clone(), hostnqn })?;
    let instance = write(&line).map_err(|error| {
        format!("the kernel's host cannot connect to {address}: {error} (dmesg says more)")
    })?;
    let controller = format!("nvme{instance}");
    let (name, nsid) = await_disk(&nqn, nsid).ok_or_else(|| match nsid {
        Some(nsid) => format!("{address}: the kernel found no namespace {nsid}"),
        None => format!("{address}: the kernel found no namespace"),
    })?;
    schedule(&controller, &name, settings.scheduler.as_deref().unwrap_or("none"))?;
    let folder = Path::new(CONTROLLERS).join(&controller);
    let of = |name: &str| attribute(&folder.join(name));
    let identity = format!("{} {}", of("model"), of("firmware_rev"));
    let connection = ends(address, &of("address")).map(|ends| Connection {
        // The admin queue is one of them.
        io_queues: of("queue_count").parse().ok().map(|count: u16| count.saturating_sub(1)),
        tos: settings.tos.and_then(|_| tos_to(ends.target)),
        so_priority: priority.and_then(|text| text.parse().ok()),
        ..ends
    });
    let device = Path::new("/dev").join(name);
    Ok(KernelConnection { changes, device, nsid, identity, connection })
}

/// What is written to `/dev/nvme-fabrics`.
fn line(options: &Options, nqn: &str, settings: &HostSettings, job: &Job) -> String {
    let address = &options.address;
    let hostid = Uuid::from_bytes(options.hostid);
    let transport = protocol_name(address.transport);
    let mut words = vec![
        format!("transport={transport}"),
        format!("traddr={}", address.traddr),
        format!("nqn={nqn}"),
        format!("hostnqn={}", options.hostnqn),
        format!("hostid={hostid}"),
    ];
    words.extend(options.host_traddr.map(|from| format!("host_traddr={from}")));
    let mut add = |name: &str, value: Option<u16>| {
        words.extend(value.map(|value| format!("{name}={value}")));
    };
    add("trsvcid", address.trsvcid);
    add("nr_io_queues", settings.nr_io_queues);
    add("nr_write_queues", settings.nr_write_queues);
    add("nr_poll_queues", settings.nr_poll_queues.filter(|count| *count > 0));
    let entries = u16::try_from(job.depth.saturating_add(1)).unwrap_or(u16::MAX);
    let deep = Some(entries.min(QUEUE_SIZE_MAX)).filter(|entries| *entries > QUEUE_SIZE_DEFAULT);
    add("queue_size", settings.queue_size.or(deep));
    add("tos", settings.tos.map(u16::from));
    add("keep_alive_tmo", settings.keep_alive_tmo);
    // A lost target makes the cell fail at once instead of waiting for a reconnect.
    add("ctrl_loss_tmo", Some(settings.ctrl_loss_tmo.unwrap_or(0)));
    words.extend(settings.hdr_digest.then(|| "hdr_digest".to_owned()));
    words.extend(settings.data_digest.then(|| "data_digest".to_owned()));
    words.join(",")
}

/// The name of a namespace's block device when it has appeared, and its number.
fn await_disk(nqn: &str, nsid: Option<u32>) -> Option<(String, u32)> {
    let end = monotonic_time() + APPEARS;
    loop {
        let found = disk(Path::new(DISKS), nqn, nsid);
        let there = found.filter(|(name, _)| Path::new("/dev").join(name).exists());
        if there.is_some() || monotonic_time() > end {
            return there;
        }
        thread::sleep(LOOK);
    }
}

/// The block device of a namespace, by the kernel's list. With multipath its device is that of the
/// subsystem, and those of its paths, with a `c` in their names, have no nodes.
fn disk(disks: &Path, nqn: &str, nsid: Option<u32>) -> Option<(String, u32)> {
    let is_disk = |name: &&String| {
        name.strip_prefix("nvme").is_some_and(|rest| rest.contains('n') && !rest.contains('c'))
    };
    let all = names(disks);
    let found = all.iter().filter(is_disk).filter_map(|name| {
        let folder = disks.join(name);
        let number: u32 = attribute(&folder.join("nsid")).parse().ok()?;
        let theirs = attribute(&folder.join("device/subsysnqn"));
        let wanted = theirs == nqn && nsid.is_none_or(|nsid| nsid == number);
        wanted.then(|| (name.clone(), number))
    });
    found.min_by_key(|(_, number)| *number)
}

/// Sets the scheduler of the queues of a namespace. They end with the connection, so that nothing
/// has to be put back.
fn schedule(controller: &str, disk: &str, scheduler: &str) -> Result<(), String> {
    let paths = names(&Path::new(CONTROLLERS).join(controller));
    let is_queue = |name: &String| name.starts_with("nvme");
    let queues = paths.into_iter().filter(is_queue).chain([disk.to_owned()]);
    let files = queues.map(|name| Path::new(DISKS).join(name).join("queue/scheduler"));
    let files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    for file in files {
        let now = attribute(&file);
        // The device of several paths has no requests of its own to be scheduled.
        let has_any = now.contains('[') && now.trim() != "[none]";
        if has_any && !now.contains(&format!("[{scheduler}]")) {
            set(&file, scheduler).map_err(|why| format!("{why} (it has {now})"))?;
        }
    }
    Ok(())
}

/// Both ends, by what the controller says of its address; where it does not say from where it
/// connects, by the kernel's route.
pub(in crate::study) fn ends(address: &TransportId, said: &str) -> Option<Connection> {
    let field = |name: &str| {
        let mut words = said.split(',');
        words.find_map(|word| word.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    };
    let to: IpAddr = field("traddr").or_else(|| address.traddr.parse().ok())?;
    let from: Option<IpAddr> = field("src_addr").or_else(|| {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((to, 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    });
    let port = address.trsvcid.unwrap_or(0);
    let host = SocketAddr::new(from?, 0);
    Some(Connection::new(protocol_name(address.transport), host, SocketAddr::new(to, port)))
}

/// The type of service of the sockets that are connected to an address, as `ss` reads it; none if
/// that program is not there, or does not say the same of all.
fn tos_to(target: SocketAddr) -> Option<u8> {
    let mut command = Command::new("ss");
    command.args(["-Htn", "--tos", "state", "established", "dst", &target.to_string()]);
    let output = command.output().ok()?;
    tos_in(&String::from_utf8_lossy(&output.stdout))
}

/// The one that all sockets have which `ss` has listed.
fn tos_in(said: &str) -> Option<u8> {
    let mut words = said.split_whitespace().filter_map(|word| word.strip_prefix("tos:0x"));
    let first = words.next()?;
    let is_same = words.all(|word| word == first);
    u8::from_str_radix(first, 16).ok().filter(|_| is_same)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn address() -> TransportId {
        let text = "nvme-tcp://192.0.2.1:4420/nqn.2024-01.io.example:disk";
        text.parse().expect("an address")
    }

    #[test]
    fn a_connection_is_asked_for_as_nvme_cli_does() {
        let settings = HostSettings {
            nr_io_queues: Some(4),
            nr_write_queues: Some(2),
            nr_poll_queues: Some(1),
            tos: Some(8),
            hdr_digest: true,
            ..HostSettings::default()
        };
        let options = Options::new(address());
        let of = |settings: &HostSettings, depth: u32| {
            line(&options, "nqn.x", settings, &Job { depth, ..Job::default() })
        };
        let text = of(&settings, 32);
        let start = "transport=tcp,traddr=192.0.2.1,nqn=nqn.x,hostnqn=";
        assert!(text.starts_with(start), "{text}");
        let end = ",trsvcid=4420,nr_io_queues=4,nr_write_queues=2,nr_poll_queues=1,tos=8,\
                   ctrl_loss_tmo=0,hdr_digest";
        assert!(text.ends_with(end), "{text}");
        let deep = of(&HostSettings::default(), 256);
        assert!(deep.contains(",queue_size=257,"), "{deep}");
        let given = HostSettings { queue_size: Some(64), ..HostSettings::default() };
        assert!(of(&given, 256).contains(",queue_size=64,"));
    }

    #[test]
    fn the_type_of_service_is_that_of_all_sockets() {
        let line = |tos: &str| format!("0 0 10.0.0.1:9 10.0.0.2:4420\n\t tos:{tos} class_id:0x0\n");
        assert_eq!(tos_in(&(line("0x88") + &line("0x88"))), Some(0x88));
        assert_eq!(tos_in(&(line("0x88") + &line("0x0"))), None);
        assert_eq!(tos_in(""), None);
    }

    #[test]
    fn the_disk_of_a_namespace_is_the_one_with_a_node() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, nqn, nsid) in [
            ("nvme0n1", "nqn.x", "2"),
            ("nvme0c1n1", "nqn.x", "2"),
            ("nvme0n2", "nqn.x", "1"),
            ("nvme3n1", "nqn.y", "1"),
            ("loop0", "nqn.x", "1"),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.join("device")).expect("a folder");
            fs::write(path.join("device/subsysnqn"), format!("{nqn}\n")).expect("a file");
            fs::write(path.join("nsid"), format!("{nsid}\n")).expect("a file");
        }
        let of = |nqn, nsid| disk(folder.path(), nqn, nsid).map(|(name, _)| name);
        assert_eq!(of("nqn.x", Some(2)).as_deref(), Some("nvme0n1"));
        assert_eq!(of("nqn.x", None).as_deref(), Some("nvme0n2"), "the first namespace");
        assert_eq!(of("nqn.y", Some(2)), None);
    }

    #[test]
    fn both_ends_are_known() {
        let said = "traddr=192.0.2.1,trsvcid=4420,src_addr=192.0.2.7";
        let connection = ends(&address(), said).expect("a connection");
        assert_eq!(connection.host.ip().to_string(), "192.0.2.7");
        assert_eq!(connection.target.to_string(), "192.0.2.1:4420");
        assert!(!connection.is_within_a_machine());
        let here = "nvme-tcp://127.0.0.1:4420/nqn.x".parse().expect("an address");
        let connection = ends(&here, "traddr=127.0.0.1,trsvcid=4420").expect("a connection");
        assert!(connection.is_within_a_machine());
    }
}
