use super::*;
use crate::config::{
    ControllerModel, HostNamespaces, Limits, Namespace, Port, PortSubsystems, Subsystem,
};
use proptest::prelude::*;
use weft_reactor::DriverKind;

const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.toml"));

const SMALL: &str = r#"
[[port]]
listen = "tcp://127.0.0.1:4420"

[[subsystem]]
nqn = "nqn.a"

[[subsystem.namespace]]
memory = "1GiB"
"#;

fn fault(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

fn namespace(keys: &str) -> Result<Namespace, String> {
    let text = SMALL.replace("memory = \"1GiB\"", keys);
    parse(&text).map(|c| c.subsystems[0].namespaces[0].clone()).map_err(|e| e.to_string())
}

#[test]
fn the_documented_example_is_read_in_full() {
    let config = parse(EXAMPLE).expect("docs/config.toml");
    assert_eq!(config.cpus, [0, 1]);
    assert_eq!(config.driver, DriverKind::Auto);
    assert_eq!(config.limits, Limits::default(), "the example shows the defaults");
    assert_eq!(config.idle_poll, crate::config::IDLE_POLL_DEFAULT);
    assert_eq!(config.ports.len(), 2);
    assert_eq!(config.ports[0].advertise, Some("192.0.2.10:4420".parse().expect("address")));
    assert_eq!(config.ports[1].subsystems, PortSubsystems::Only(Vec::new()));
    assert_eq!(config.ports[1].referrals.len(), 1);
    let subsystem = &config.subsystems[0];
    assert_eq!(subsystem.allowed_hosts.as_ref().map(Vec::len), Some(2));
    let nsids: Vec<u32> = subsystem.namespaces.iter().map(|n| n.nsid).collect();
    assert_eq!(nsids, [1, 2, 3, 9, 10, 11, 12]);
    assert!(matches!(subsystem.namespaces[4].device, DeviceSpec::Delay { .. }));
    assert_eq!(config.ports[1].ana.len(), 1);
    let folder = Some("/var/lib/weft/namespaces".into());
    let own = HostNamespaces { capacity: 1 << 40, folder, rbd: None };
    assert_eq!(
        (subsystem.host_namespaces.as_ref(), subsystem.subsystem_reset),
        (Some(&own), false)
    );
    assert!(subsystem.ana_reporting && subsystem.ana_groups() == [1, 2, 3, 9, 10, 11, 12]);
    assert_eq!(config.subsystems[1].controllers, ControllerModel::Static);
}

#[test]
fn an_image_that_is_made_has_a_size() {
    assert!(namespace("rbd = \"disk,create\"").unwrap_err().contains("needs a size"));
    assert!(namespace("rbd = \"disk,create\"\nsize = \"1GiB\"").is_ok());
}

#[test]
fn hosts_make_namespaces_of_one_kind() {
    let read = |keys: &str| {
        let own = format!("\nhost-namespaces = {{ capacity = \"1GiB\", {keys} }}\n");
        parse(&SMALL.replace("\"nqn.a\"\n", &format!("\"nqn.a\"{own}")))
    };
    let rbd = "rbd = \"pool/team/disk,user=weft,timeout=3s\"";
    let own = read(rbd).unwrap().subsystems[0].host_namespaces.clone().unwrap();
    assert_eq!((own.capacity, own.folder), (1 << 30, None));
    assert_eq!(own.rbd.unwrap().to_string(), "pool/team/disk,user=weft,timeout=3s");
    for (keys, part) in [
        (&*format!("folder = \"/a\", {rbd}"), "a file or an image"),
        ("rbd = \"disk,size=1GiB\"", "that hosts ask for"),
        ("rbd = \"disk,block=512\"", "that hosts ask for"),
        ("rbd = \"disk,read-only\"", "that hosts ask for"),
        ("rbd = \"disk@monday\"", "that hosts ask for"),
        ("rbd = \"disk,size=1GiB,create\"", "that hosts ask for"),
    ] {
        let error = read(keys).unwrap_err().to_string();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

#[test]
fn every_key_of_the_form_is_in_the_example() {
    for key in [
        "cpus",
        "idle-poll",
        "driver",
        "queue-entries",
        "io-queues",
        "transfer-size",
        "in-capsule-size",
        "h2c-data-size",
        "namespaces",
        "controllers",
        "connections",
        "connect-timeout",
        "drain-timeout",
        "stall-timeout",
        "keep-alive-min",
        "keep-alive-max",
        "pool-size",
        "id",
        "listen",
        "advertise",
        "discovery",
        "subsystems",
        "address",
        "port-id",
        "nqn",
        "serial",
        "model",
        "firmware",
        "admin-label",
        "allowed-hosts",
        "cntlid-min",
        "cntlid-max",
        "ana-reporting",
        "subsystem-reset",
        "host-namespaces",
        "ana-group",
        "group",
        "state",
        "nsid",
        "memory",
        "null",
        "file",
        "block",
        "rbd",
        "device",
        "size",
        "block-size",
        "direct",
        "delay-read",
        "delay-write",
        "uuid",
        "nguid",
        "eui64",
        "read-only",
        "shared",
        "host",
        "subsystem",
        "rw",
        "member",
        "lock-file",
        "etcd",
        "key",
        "ttl",
        "rate-iops",
        "rate",
        "burst",
        "force",
    ] {
        let shown = EXAMPLE.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.split_once('=').is_some_and(|(found, _)| found.trim() == key)
        });
        assert!(shown, "docs/config.toml does not show `{key}`");
    }
}

#[test]
fn little_is_needed() {
    let config = parse(SMALL).expect("a configuration");
    assert_eq!(config.ports, [Port::new(1, "tcp://127.0.0.1:4420".parse().expect("address"))]);
    let mut subsystem = Subsystem::new("nqn.a");
    let memory = DeviceSpec::Memory { bytes: 1 << 30, block_bytes: 4096 };
    let namespace = Namespace { by_position: true, ..Namespace::new(1, memory) };
    subsystem.namespaces.push(namespace);
    assert_eq!(config.subsystems, [subsystem]);
}

#[test]
fn every_device_is_read() {
    let device = |keys: &str| namespace(keys).expect(keys).device;
    let null = DeviceSpec::Null { bytes: 1 << 40, block_bytes: 512 };
    assert_eq!(device("null = \"1TiB\"\nblock-size = 512"), null);
    let file = DeviceSpec::File {
        path: "/a".into(),
        create_bytes: Some(1 << 20),
        block_bytes: Some(512),
        direct: Some(false),
        read_only: true,
        shared: true,
    };
    assert_eq!(
        device(
            "file = '/a'\nsize = '1MiB'\nblock-size = 512\ndirect = false\nread-only = true\n\
             shared = true"
        ),
        file
    );
    assert_eq!(device("file = '/a'"), "file:/a".parse().expect("a device"));
    assert_eq!(device("block = '/dev/sdb'"), "block:/dev/sdb".parse().expect("a device"));
    let image = "rbd = 'p/i,user=weft'\nsize = '1MiB'\nblock-size = 512\nread-only = true";
    let expected = "rbd:p/i,user=weft,size=1MiB,block=512,read-only";
    assert_eq!(device(image), expected.parse().expect("a device"));
    let wrapped = "fault:operation=write,nth=3,effect=media-write:memory:1MiB,block=512";
    assert_eq!(device(&format!("device = '{wrapped}'")), wrapped.parse().expect("a device"));
    let delayed = DeviceSpec::Delay {
        read: Duration::from_micros(20),
        write: Duration::ZERO,
        inner: Box::new(DeviceSpec::Memory { bytes: 1 << 20, block_bytes: 4096 }),
    };
    assert_eq!(device("memory = 1048576\ndelay-read = '20us'"), delayed);
}

/// The kind of a device and its path become one text, and that is read.
#[test]
fn a_path_is_read_whatever_is_in_it() {
    for path in
        ["/a,b", "/a,,b", "/a:b", "/a;b", "/a=b", "/a,size=1MiB", "a b", "/é", "/a,", ":", ";"]
    {
        for kind in ["file", "block"] {
            let keys = format!("{kind} = '{path}'");
            let device = namespace(&keys).expect(&keys).device;
            assert_eq!(device.path(), Some(std::path::Path::new(path)), "{keys}");
            let keys = format!("{keys}\ndelay-read = '1ms'");
            let DeviceSpec::Delay { inner, .. } = namespace(&keys).expect(&keys).device else {
                panic!("{keys}")
            };
            assert_eq!(*inner, device, "{keys}");
        }
    }
}

#[test]
fn keys_of_a_state_are_unknown_in_a_file() {
    for (from, to) in [
        ("memory =", "bdev = 'x'\nmemory ="),
        ("memory =", "by-position = true\nmemory ="),
        ("nqn =", "listed-hosts = []\nnqn ="),
        ("listen =", "made-at-run-time = true\nlisten ="),
    ] {
        let text = SMALL.replace(from, to);
        let key = to.split(' ').next().expect("a key");
        assert!(
            fault(&text).contains(&format!("`{key}`: unknown field `{key}`")),
            "{}",
            fault(&text)
        );
    }
}

/// What is written is read as the same.
#[test]
fn the_example_is_written_and_read() {
    let config = parse(EXAMPLE).expect("docs/config.toml");
    let written = write(&config).expect("a text");
    assert_eq!(parse(&written).map_err(|error| error.to_string()), Ok(config), "{written}");
}

#[test]
fn identifiers_and_flags_of_a_namespace_are_read() {
    let keys = "memory = '1MiB'\nnsid = 7\nread-only = true\neui64 = '0011223344556677'\n\
                uuid = 'ef90689c-6c46-d44c-89c1-4067801309a8'";
    let namespace = namespace(keys).expect(keys);
    assert_eq!((namespace.nsid, namespace.read_only), (7, true));
    assert_eq!(namespace.uuid.map(|uuid| uuid[0]), Some(0xef));
    assert_eq!(namespace.eui64.map(|eui64| eui64[7]), Some(0x77));
    assert_eq!(namespace.nguid, None);
}

#[test]
fn a_namespace_has_one_device_and_what_belongs_to_it() {
    let fault = |keys: &str| namespace(keys).expect_err(keys);
    assert_eq!(
        fault("nsid = 1"),
        "line 8: `subsystem[0].namespace[0]`: the namespace has no device; give one of memory, \
         null, file, block, rbd and device"
    );
    assert_eq!(
        fault("nsid = 1\nflie = '/a'"),
        "line 10: `subsystem[0].namespace[0].flie`: unknown field `flie`; did you mean file?"
    );
    assert!(fault("memroy = '1MiB'").contains("did you mean memory?"));
    assert!(fault("memory = '1M'\nfile = '/a'").contains("more than one device"));
    assert!(fault("memory = '1M'\nsize = '1M'").contains("namespace[0].size`"));
    assert!(fault("null = '1M'\ndirect = true").contains("namespace[0].direct`"));
    assert!(fault("block = '/dev/a'\nblock-size = 512").contains("namespace[0].block-size`"));
    assert!(fault("device = 'memory:1M'\nblock-size = 512").contains("[0].block-size`"));
    assert!(fault("device = 'disk:1M'").contains("not a kind of device"));
    for device in ["memory = '1M'", "null = '1M'", "file = '/a'", "rbd = 'a'"] {
        assert_eq!(
            fault(&format!("{device}\nblock-size = 1024")),
            "line 8: `subsystem[0].namespace[0]`: the block size is 512 or 4096 bytes, not 1024"
        );
    }
    assert_eq!(
        fault("file = '/a'\nsize = 3"),
        "line 8: `subsystem[0].namespace[0]`: size: 3 bytes is not a whole number of blocks of 512 \
         bytes (a size has a unit, like 64MiB)"
    );
    assert!(fault("memory = '-5MiB'").contains("\"-5MiB\" is not a size: it is negative"));
}

#[test]
fn a_fault_is_named_with_its_line_and_key() {
    let twice = format!("{SMALL}[[subsystem.namespace]]\nnsid = 1\nnull = \"1GiB\"\n");
    assert_eq!(
        fault(&twice),
        "line 11: `subsystem[0].namespace[1].nsid`: 1 is the NSID of subsystem[0].namespace[0]; \
         give each namespace of a subsystem an NSID of its own"
    );
    let unknown = fault(&SMALL.replace("nqn =", "name ="));
    assert!(unknown.starts_with("line 6: `name`: unknown field `name`"), "{unknown}");
    for (right, wrong, meant) in [
        ("[[subsystem]]", "[subsystem]", "`[[subsystem]]`"),
        ("[[subsystem]]", "[[subsystems]]", "`[[subsystem]] before [[subsystem.namespace]]`"),
        ("[[port]]", "[[ports]]", "`port`"),
        ("[[subsystem.namespace]]", "[[namespace]]", "`[[subsystem.namespace]]`"),
        ("[[subsystem.namespace]]", "[[namespaces]]", "`[[subsystem.namespace]]`"),
        ("[[subsystem.namespace]]", "[[subsystem.namespaces]]", "`namespace`"),
        ("[[subsystem.namespace]]", "[[subsystem.hosts]]", "`host`"),
        ("[[subsystem.namespace]]", "[[hosts]]", "`[[subsystem.host]]`"),
        ("[[subsystem.namespace]]", "hosts = []\n[[subsystem.namespace]]", "`allowed-hosts`"),
        ("[[port]]", "[limit]\nconnections = 5\n[[port]]", "`limits`"),
        ("[[port]]", "[pairs]\nmember = 1\n[[port]]", "`[pair]`"),
        ("[[subsystem]]", "tls = true\n[[subsystem]]", "`tls = \"required\"`"),
    ] {
        let found = fault(&SMALL.replacen(right, wrong, 1));
        assert!(found.contains(&format!("did you mean {meant}?")), "{wrong}: {found}");
    }
    for (right, wrong, said) in [
        ("nqn =", "allowed-hosts = 'nqn.a'\nnqn =", "write a list: allowed-hosts = ['nqn.a']"),
        ("[[port]]", "[limits]\nconnect-timeout = 10\n[[port]]", "connect-timeout = \"10s\""),
        ("\"tcp://127.0.0.1:4420\"", "tcp://127.0.0.1", "in quotes: listen = \"tcp://127.0.0.1\""),
        ("[[port]]", "[[port]]\nthreads = 2", "it belongs above the first [table]"),
        ("[[port]]", "metrics = 9464\n[[port]]", "it is a flag: weft target"),
        ("listen =", "traddr = '::'\nlisten =", "write `listen = \"tcp://ADDRESS:PORT\"`"),
        ("nqn =", "attr_allow_any_host = 1\nnqn =", "leave `allowed-hosts` out"),
        ("memory =", "path = '/x'\nmemory =", "`path`; write `file = \"PATH\"`"),
        ("[[port]]", "[[rate-limit]]\niops = 9\n[[port]]", "did you mean `rate-iops`?"),
    ] {
        let found = fault(&SMALL.replacen(right, wrong, 1));
        assert!(found.starts_with("line ") && found.contains(said), "{wrong}: {found}");
    }
    let size = fault(&SMALL.replace("1GiB", "1 gigabyte"));
    assert!(size.starts_with("line 9: `memory`: \"1 gigabyte\" is not a size"), "{size}");
    let address = fault(&SMALL.replace("tcp://127.0.0.1:4420", "127.0.0.1"));
    assert!(address.starts_with("line 3: `listen`: "), "{address}");
    let syntax = fault("[[port]\n");
    assert!(syntax.starts_with("line 1"), "{syntax}");
    let range = fault(&format!("limits.queue-entries = 2000\n{SMALL}"));
    assert!(range.starts_with("line 1: `limits.queue-entries`: 2000 is out of range"), "{range}");
    let cpus = fault(&format!("cpus = '0-x'\n{SMALL}"));
    assert!(cpus.starts_with("line 1: `cpus`: "), "{cpus}");
    assert!(fault("").contains("no port to listen on"));
    let driver = fault(&format!("driver = 'kqueue'\n{SMALL}"));
    assert!(driver.contains("`kqueue`") && driver.contains("`epoll`"), "{driver}");
}

#[test]
fn no_cut_of_the_example_panics() {
    for end in 0..EXAMPLE.len() {
        if EXAMPLE.is_char_boundary(end) {
            let _ = parse(&EXAMPLE[..end]);
        }
    }
}

#[test]
fn processors_are_read_as_text_list_or_number() {
    for (cpus, expected) in [("'0-2'", vec![0, 1, 2]), ("[1, 3]", vec![1, 3]), ("2", vec![2])] {
        let config = parse(&format!("cpus = {cpus}\n{SMALL}")).expect(cpus);
        assert_eq!(config.cpus, expected);
    }
}

proptest! {
    /// A line of the example put in place of another one: what comes out is a configuration that
    /// passes its own checks, or an error that says where.
    #[test]
    fn lines_in_the_wrong_place_are_read_or_refused(
        from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let mut lines: Vec<&str> = EXAMPLE.lines().collect();
        let (from, to) = (from.index(lines.len()), to.index(lines.len()));
        lines[to] = lines[from];
        match parse(&lines.join("\n")) {
            Ok(config) => prop_assert_eq!(config.validate(), Ok(())),
            Err(error) => prop_assert!(error.line().is_some(), "{}", error),
        }
    }

    #[test]
    fn no_text_panics(text in "(\\[\\[?[a-z.]{1,12}\\]?\\]?|[a-z-]{1,12} = \\PC{0,12}|\\n){0,12}") {
        let _ = parse(&text);
    }
}
