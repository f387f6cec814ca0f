//! A configuration from flags alone.

use std::fs;
use std::time::Duration;

use clap::ArgMatches;
use weft_backend::{DeviceSpec, ParseSpecError};
use weft_target::config::{Config, Listen, Namespace, Port, PortSubsystems, Subsystem, identity};

use super::{Devices, Options};
use crate::failure::Failure;

/// Where a target listens that is not told where.
const LISTEN_DEFAULT: &str = "tcp://127.0.0.1:4420";

/// The name of the subsystem that the flags describe.
pub(super) fn nqn(options: &Options) -> Result<String, Failure> {
    match &options.subsystem.nqn {
        Some(nqn) => Ok(nqn.clone()),
        None => Ok(default_nqn(&ports(options, false)?)),
    }
}

/// The configuration that the flags describe, with this name for the subsystem.
pub(super) fn configuration(
    options: &Options,
    matches: &ArgMatches,
    nqn: &str,
) -> Result<Config, Failure> {
    let devices = in_order(matches)?;
    let may_wait = options.control.is_some() || options.state.is_some();
    let waits = devices.is_empty() && may_wait && options.is_bare();
    let listens = !options.listening.listen.is_empty() || !options.listening.discovery.is_empty();
    if waits && !listens {
        return Ok(Config::default());
    }
    let ports = ports(options, waits)?;
    if waits {
        return Ok(Config { ports, ..Config::default() });
    }
    // Others serve what it knows of.
    if devices.is_empty() && options.centralized_discovery {
        return Ok(Config { ports, ..Config::default() });
    }
    if devices.is_empty() {
        return Err(Failure::because(
            "nothing to serve: give --memory 1GiB, --file PATH, --block PATH, --rbd POOL/IMAGE \
             or --null 1TiB, or --control unix:PATH to have it made while the target runs",
        ));
    }
    let flags = &options.subsystem;
    let mut subsystem = Subsystem::new(nqn);
    subsystem.serial.clone_from(&flags.serial);
    if let Some(model) = &flags.model {
        subsystem.model.clone_from(model);
    }
    if !flags.allow_host.is_empty() {
        subsystem.allowed_hosts = Some(flags.allow_host.clone());
    }
    for (nsid, device) in (1..).zip(devices) {
        let device = options.devices.amended(device)?;
        let namespace = Namespace { by_position: true, ..Namespace::new(nsid, device) };
        subsystem.namespaces.push(namespace);
    }
    Ok(Config { ports, subsystems: vec![subsystem], ..Config::default() })
}

/// One that `waits` for what is served has no port but those of the flags.
fn ports(options: &Options, waits: bool) -> Result<Vec<Port>, Failure> {
    let listening = &options.listening;
    let mut listens = listening.listen.clone();
    let may_only_discover = options.centralized_discovery || waits;
    let is_discovery = may_only_discover && !listening.discovery.is_empty();
    if listens.is_empty() && !is_discovery {
        listens.push(LISTEN_DEFAULT.parse().map_err(Failure::because)?);
    }
    if listening.advertise.len() > listens.len() {
        return Err(Failure::because("there are more --advertise than --listen"));
    }
    let mut ports: Vec<Port> = Vec::new();
    for (id, listen) in (1..).zip(&listens) {
        let mut port = Port::new(id, *listen);
        port.advertise = listening.advertise.get(usize::from(id) - 1).copied();
        ports.push(port);
    }
    let next = u16::try_from(ports.len() + 1).unwrap_or(u16::MAX);
    for (id, listen) in (next..).zip(&listening.discovery) {
        ports.push(Port { subsystems: PortSubsystems::Only(Vec::new()), ..Port::new(id, *listen) });
    }
    Ok(ports)
}

/// The devices in the order in which they stand on the command line, across their kinds.
fn in_order(matches: &ArgMatches) -> Result<Vec<DeviceSpec>, Failure> {
    type Parse = fn(&str) -> Result<DeviceSpec, ParseSpecError>;
    let kinds: [(&str, Parse); 6] = [
        ("memory", DeviceSpec::memory),
        ("file", DeviceSpec::file),
        ("block", DeviceSpec::block),
        ("rbd", DeviceSpec::rbd),
        ("null", DeviceSpec::null),
        ("device", str::parse),
    ];
    let mut found = Vec::new();
    for (kind, parse) in kinds {
        let indices = matches.indices_of(kind).into_iter().flatten();
        let values = matches.get_many::<String>(kind).into_iter().flatten();
        for (index, text) in indices.zip(values) {
            let device = parse(text)
                .map_err(|error| Failure::Because(format!("--{kind} {text}: {error}")))?;
            found.push((index, device));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, device)| device).collect())
}

impl Options {
    /// Whether nothing is said of what is served.
    fn is_bare(&self) -> bool {
        let Self { subsystem, .. } = self;
        let of = (&subsystem.nqn, &subsystem.serial, &subsystem.model);
        of == (&None, &None, &None) && subsystem.allow_host.is_empty()
    }
}

impl Devices {
    /// A device with what was said for all of them.
    fn amended(&self, mut device: DeviceSpec) -> Result<DeviceSpec, Failure> {
        if let Some(bytes) = self.block_size {
            let bytes = u32::try_from(bytes).ok().filter(|bytes| [512, 4096].contains(bytes));
            let bytes = bytes.ok_or_else(|| Failure::because("--block-size is 512 or 4096"))?;
            set_block_size(&mut device, bytes);
        }
        let zero = Duration::ZERO;
        let read = self.delay.or(self.delay_read).unwrap_or(zero);
        let write = self.delay.or(self.delay_write).unwrap_or(zero);
        if read > zero || write > zero {
            device = DeviceSpec::Delay { read, write, inner: Box::new(device) };
        }
        Ok(device)
    }
}

/// Sets the block size of a device that did not say its own.
fn set_block_size(device: &mut DeviceSpec, bytes: u32) {
    match device {
        DeviceSpec::Memory { block_bytes, .. } | DeviceSpec::Null { block_bytes, .. } => {
            if *block_bytes == weft_backend::BLOCK_BYTES_DEFAULT {
                *block_bytes = bytes;
            }
        }
        DeviceSpec::File { block_bytes, .. } => {
            block_bytes.get_or_insert(bytes);
        }
        DeviceSpec::Delay { inner, .. }
        | DeviceSpec::Fault { inner, .. }
        | DeviceSpec::Uncorrectable { inner, .. } => {
            set_block_size(inner, bytes);
        }
        DeviceSpec::Rbd(spec) => {
            spec.block_bytes.get_or_insert(bytes);
        }
        DeviceSpec::Block { .. } => {}
    }
}

/// A name that stays for this machine and port, so that hosts find the same subsystem after a
/// restart; a new one where the kernel chooses the port.
fn default_nqn(ports: &[Port]) -> String {
    let port =
        ports.first().map_or(0, |Port { listen: Listen { address, .. }, .. }| address.port());
    let machine = ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty());
    match (machine, port) {
        (Some(machine), 1..) => identity::nqn(&machine, port),
        _ => identity::fresh_nqn(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches};
    use weft_target::config::{IDLE_POLL_DEFAULT, IDLE_POLL_FOREVER};

    use crate::arguments::{Arguments, Verb};

    fn parse(words: &str) -> Result<Config, String> {
        let words =
            ["weft", "target"].into_iter().chain(words.split(' ').filter(|word| !word.is_empty()));
        let matches =
            Arguments::command().try_get_matches_from(words).map_err(|e| e.to_string())?;
        let arguments = Arguments::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        let Verb::Target(options) = arguments.verb else { panic!("another verb") };
        let matches = matches.subcommand_matches("target").expect("a verb");
        let config = super::nqn(&options)
            .and_then(|nqn| super::super::configuration(&options, matches, &nqn));
        config.map_err(|failure| match failure {
            Failure::Because(what) => what,
            other => panic!("{other:?}"),
        })
    }

    fn devices(words: &str) -> Vec<String> {
        let config = parse(words).expect(words);
        let namespaces = &config.subsystems[0].namespaces;
        namespaces.iter().map(|n| format!("{} {}", n.nsid, n.device)).collect()
    }

    #[test]
    fn little_is_needed() {
        let config = parse("--memory 1GiB").expect("a configuration");
        assert_eq!(config.ports, [Port::new(1, LISTEN_DEFAULT.parse().expect("an address"))]);
        assert_eq!(config.subsystems.len(), 1);
        assert!(config.subsystems[0].nqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
        assert_eq!(config.subsystems[0].allowed_hosts, None);
    }

    #[test]
    fn nsids_follow_the_order_across_kinds() {
        let words = "--null 1TiB --file /a,size=1M --memory 1GiB --block /dev/sdb --null 2GiB \
                     --device delay:read=1ms:memory:4k --memory 64k,block=512";
        let expected = [
            "1 null:1TiB",
            "2 file:/a,size=1MiB",
            "3 memory:1GiB",
            "4 block:/dev/sdb",
            "5 null:2GiB",
            "6 delay:read=1ms,write=0ns:memory:4KiB",
            "7 memory:64KiB,block=512",
        ];
        assert_eq!(devices(words), expected);
    }

    #[test]
    fn what_is_said_for_all_devices_reaches_each() {
        let words = "--memory 1M --null 1M,block=512 --file /a --block /dev/b --rbd p/i \
                     --block-size 512";
        let expected = [
            "1 memory:1MiB,block=512",
            "2 null:1MiB,block=512",
            "3 file:/a,block=512",
            "4 block:/dev/b",
            "5 rbd:p/i,block=512",
        ];
        assert_eq!(devices(words), expected);
        let delayed = ["1 delay:read=10us,write=0ns:memory:1MiB"];
        assert_eq!(devices("--memory 1M --delay-read 10us"), delayed);
        let both = ["1 delay:read=1ms,write=1ms:memory:1MiB"];
        assert_eq!(devices("--memory 1M --delay 1ms"), both);
    }

    #[test]
    fn ports_are_counted_and_advertised_in_order() {
        let words = "--memory 1M --listen tcp://10.0.0.1:4420 --listen tcp://[::]:4421 \
                     --discovery tcp://0.0.0.0:8009 --advertise 192.0.2.1:1 --advertise [::1]:2";
        let ports = parse(words).expect("a configuration").ports;
        let ids: Vec<u16> = ports.iter().map(|port| port.id).collect();
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(ports[0].advertise, Some("192.0.2.1:1".parse().expect("an address")));
        assert_eq!(ports[1].advertise, Some("[::1]:2".parse().expect("an address")));
        assert_eq!(ports[2].subsystems, PortSubsystems::Only(Vec::new()));
        assert!(ports.iter().all(|port| port.discovery));
    }

    #[test]
    fn the_subsystem_and_the_engine_are_set() {
        let words = "--memory 1M --nqn nqn.x --serial S1 --model M --allow-host nqn.h \
                     --allow-host nqn.i --cpus 0-1 --driver epoll --idle-poll 0 --queue-size 64 \
                     --express false \
                     --mdts 128k --in-capsule 8k --max-connections 100 --connect-timeout 2 \
                     --io-queues 4 --pool-size 64M";
        let config = parse(words).expect("a configuration");
        let subsystem = &config.subsystems[0];
        assert_eq!((subsystem.nqn.as_str(), subsystem.serial().as_str()), ("nqn.x", "S1"));
        assert_eq!(subsystem.model, "M");
        assert_eq!(subsystem.allowed_hosts.as_ref().map(Vec::len), Some(2));
        assert_eq!((config.cpus.as_slice(), config.idle_poll), (&[0, 1][..], Duration::ZERO));
        let is_express = |words| parse(words).expect("a configuration").express;
        assert!(!config.express && is_express("--memory 1M"));
        assert!(is_express("--memory 1M --express"));
        let limits = &config.limits;
        assert_eq!((limits.queue_entries, limits.io_queues), (64, 4));
        assert_eq!((limits.transfer_bytes, limits.in_capsule_bytes), (131_072, 8192));
        assert_eq!((limits.connections, limits.pool_bytes), (100, 64 << 20));
        assert_eq!(limits.connect_timeout, Duration::from_secs(2));
    }

    #[test]
    fn how_to_wait_can_be_said_in_a_word() {
        let idle_poll = |words: &str| {
            parse(&format!("--memory 1M {words}")).expect("a configuration").idle_poll
        };
        assert_eq!(idle_poll("--polling spin"), IDLE_POLL_FOREVER);
        assert_eq!(idle_poll("--polling sleep --idle-poll 1ms"), Duration::ZERO);
        let adaptive = "--polling adaptive --idle-poll 1ms";
        assert_eq!(idle_poll(adaptive), Duration::from_millis(1));
        assert_eq!(idle_poll("--polling adaptive"), idle_poll(""));
        assert_eq!(idle_poll("--polling adaptive --idle-poll 0"), IDLE_POLL_DEFAULT);
    }

    #[test]
    fn threads_need_no_processors() {
        let groups = |words: &str| parse(&format!("--memory 1M {words}")).expect(words).groups();
        assert_eq!((groups(""), groups("--threads 2"), groups("--cpus 0-2")), (1, 2, 3));
    }

    #[test]
    fn a_name_stays_with_its_port() {
        let nqn = |port: u16| {
            let listen = format!("tcp://127.0.0.1:{port}").parse().expect("an address");
            default_nqn(&[Port::new(1, listen)])
        };
        assert_eq!(nqn(4420), nqn(4420));
        assert_ne!(nqn(4420), nqn(4421));
        assert_ne!(nqn(0), nqn(0), "the kernel's choice is another each time");
    }

    /// Subsystems are made through --control, at whatever address it is.
    #[test]
    fn a_target_that_is_controlled_may_start_empty_at_its_ports() {
        for control in ["unix:/run/weft.sock", "tcp://127.0.0.1:9000"] {
            for (words, ports) in [
                ("", 0),
                ("--discovery tcp://127.0.0.1:8009", 1),
                ("--listen tcp://127.0.0.1:4420 --discovery tcp://127.0.0.1:8009", 2),
            ] {
                let config = parse(&format!("--control {control} {words}")).expect(words);
                assert_eq!((config.ports.len(), config.subsystems.len()), (ports, 0), "{words}");
                config.check_consistent().expect(words);
            }
            let named = format!("--control {control} --allow-host nqn.2024-01.org.example:h");
            let fault = parse(&named).expect_err("hosts of no subsystem").to_string();
            assert!(fault.contains("nothing to serve"), "{fault}");
        }
    }

    #[test]
    fn bad_flags_are_told() {
        for (words, part) in [
            ("", "nothing to serve"),
            ("--memory 1x", "--memory 1x"),
            ("--memory", "value is required"),
            ("--null 1G,direct=on", "--null 1G,direct=on"),
            ("--rbd a/b/c/d", "is not an image (use [POOL/"),
            ("--listen 127.0.0.1:4420 --memory 1M", "does not start with a transport"),
            ("--listen fc://1.2.3.4 --memory 1M", "not served"),
            ("--memory 1M --advertise 1.2.3.4:5 --advertise 1.2.3.4:6", "more --advertise"),
            ("--memory 1M --queue-size 5000", "5000 is not in 2..=1024"),
            ("--memory 1M --queue-size 100000", "100000 is not in 2..=1024"),
            ("--memory 1M --io-queues 0", "`--io-queues`: 0 is out of range; give 1 to 1024"),
            ("--memory 1M --mdts 3M", "power of two"),
            ("--memory 1M --mdts 64GiB", "64GiB is too large"),
            ("--memory 1M --mdts 8M", "`--mdts`: 8388608 is out of range"),
            ("--memory -5MiB", "--memory -5MiB: \"-5MiB\" is not a size: it is negative"),
            ("--file x.img,size=3", "--file x.img,size=3: size: 3 bytes is not a whole number"),
            ("--memory 1M --delay-read 50", "\"50\" is not a span of time (try 50us"),
            ("--memory 1M --idle-poll 50", "try 50us"),
            ("--memory 1M --in-capsule 4G", "4G is too large"),
            ("--memory 1M --block-size 520", "512 or 4096"),
            ("--memory 1M --cpus 0,0", "twice"),
            ("--memory 1M --cpus 0 --threads 2", "cannot be used with"),
            ("--memory 1M --threads 0", "threads"),
            ("--memory 1M --nqn nqn.a:b\u{a0}c", "space"),
            ("--memory 1M --nqn foo", "\"foo\" is no NQN, which begins with \"nqn.\""),
            ("--memory 1M --allow-host nqm.foo", "which begins with \"nqn.\""),
            ("--config /nonexistent.toml", "cannot be read"),
            ("--config x --memory 1M", "cannot be used with"),
            ("--config x --listen tcp://127.0.0.1:1", "cannot be used with"),
            ("--config x --nqn nqn.y", "cannot be used with"),
            ("--listen tcp://127.0.0.1:1 --listen tcp://127.0.0.1:1 --memory 1M", "port[0]"),
        ] {
            let error = parse(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
