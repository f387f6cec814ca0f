//! A target and the host's subcommands over loopback, with both drivers.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use crate::weft::{DRIVERS, Folder, NQN, Target, command, pattern, text, weft, weft_with_stdin};
use rustix::process::Signal;

#[test]
fn a_target_is_discovered_identified_written_read_and_stopped() {
    for driver in DRIVERS {
        let target = Target::start(driver, &["--memory", "8MiB", "--null", "1GiB,block=512"]);
        let port = target.port(0).to_string();
        let discovery = ["discover", "-a", "127.0.0.1", "-s", &port, "-o", "json"];
        let log = weft(driver, discovery).json();
        let found = log["records"].as_array().expect("records");
        assert!(
            found
                .iter()
                .any(|record| { record["subnqn"] == NQN && record["trsvcid"] == port.as_str() }),
            "{log}"
        );

        let list = weft(driver, ["list", "-a", "127.0.0.1", "-s", &port, "-o", "json"]).json();
        let sizes: Vec<&serde_json::Value> = list["Devices"]
            .as_array()
            .expect("devices")
            .iter()
            .map(|d| &d["PhysicalSize"])
            .collect();
        assert_eq!(sizes, [8 << 20, 1 << 30]);

        let controller = target.weft("identify", 1, &["-o", "json"]).json();
        assert_eq!((&controller["mn"], &controller["subnqn"]), (&"weft".into(), &NQN.into()));
        let url = target.url(2);
        let namespace = weft(driver, ["identify", "ns", &url, "-o", "json"]).json();
        assert_eq!((&namespace["nsid"], &namespace["lbafs"][0]["ds"]), (&2.into(), &9.into()));
        assert!(namespace["uuid"].is_string());
        let bare = url.split('?').next().expect("a URL");
        let same = weft(driver, ["identify", bare, "--nsid", "2", "-o", "json"]).json();
        assert_eq!(same, namespace, "--nsid selects the namespace");
        let human = weft(driver, ["identify", "ctrl", &url]).text();
        assert!(human.contains("mdts       : 8  (1 MiB)"), "{human}");

        let data = pattern(3 << 20);
        let url = target.url(1);
        let wrote = weft_with_stdin(driver, &["write", &url, "--start-block", "2"], &data);
        assert!(wrote.stderr.contains("wrote 3145728 bytes"), "{}", wrote.stderr);
        let size = data.len().to_string();
        let read = target.weft("read", 1, &["--start-block", "2", "--data-size", &size]);
        assert_eq!(read.code, Some(0), "{}", read.stderr);
        assert!(read.stdout == data, "what was read is not what was written");
        assert_eq!(target.weft("flush", 1, &[]).code, Some(0));

        let smart = target.weft("log", 1, &["smart", "-o", "json"]).json();
        assert!(smart["host_write_commands"].as_u64() >= Some(3), "{smart}");
        let by_number = weft(driver, ["log", "--log-id", "2", &url, "-o", "json"]).json();
        assert!(by_number["temperature"].is_number(), "{by_number}");
        let listener = format!("tcp://127.0.0.1:{port}");
        assert_eq!(weft(driver, ["discover", &listener, "-o", "json"]).json(), log);
        target.signal(Signal::TERM);
        assert_eq!(target.wait(), Some(0));
        let gone = weft(driver, ["identify", &url]).fault();
        assert!(gone.starts_with("weft identify: ") && gone.contains(&port), "{gone}");
    }
}

#[test]
fn telemetry_is_shown_or_written_to_a_file() {
    let target = Target::start("epoll", &["--memory", "1MiB"]);
    let log = |words: &[&str]| target.weft("log", 1, words);
    let shown = log(&["telemetry"]).text();
    for part in ["ths       : 1  (Controller)\n", "\n\nweft-telemetry: 1\n"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(shown.contains(&format!("\nsubsystem: {NQN}\n")), "{shown}");
    let folder = Folder::new("telemetry");
    let file = folder.path("file");
    let saved = log(&["telemetry", "-O", text(&file), "-o", "json"]).json();
    let bytes = std::fs::read(&file).expect("the file");
    let blocks = usize::try_from(saved["dalb3"].as_u64().expect("a number")).expect("few");
    assert_eq!((bytes.len(), bytes[0]), (512 * (1 + blocks), 7));
    assert_eq!((&saved["bytes"], &saved["text"]), (&(512 * blocks).into(), &().into()));
    // Each command has a controller of its own, which has captured nothing before.
    let none = log(&["telemetry", "--host-generate", "0", "-o", "json"]).json();
    assert_eq!((&none["hostdgn"], &none["bytes"]), (&0.into(), &0.into()));
    let own = log(&["telemetry", "--controller-init", "-o", "json"]).json();
    assert_eq!((&own["lpi"], &own["ctrlavail"], &own["tcs"]), (&8.into(), &0.into(), &1.into()));
    let fault = log(&["smart", "--data-area", "1"]).fault();
    assert!(fault.contains("are for telemetry, not for SMART"), "{fault}");
}

#[test]
fn a_target_stops_on_sigint_and_at_the_end_of_stdin() {
    let target = Target::start("epoll", &["--memory", "1MiB"]);
    target.signal(Signal::INT);
    assert_eq!(target.wait(), Some(0));
    Target::start("uring", &["--memory", "1MiB"]).stop();
}

/// What a service manager starts after the target must not find its port closed.
#[test]
fn a_service_manager_is_told_when_it_serves_and_when_it_stops() {
    let folder = Folder::new("notify");
    let path = folder.path("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let told = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut command = command("uring");
    command.env("NOTIFY_SOCKET", &path).args(["target", "--memory", "1MiB", "-o", "json"]);
    command.args(["--nqn", NQN, "--listen", "tcp://127.0.0.1:0"]);
    let target = Target::spawn("uring", command);
    assert_eq!(told(), "READY=1\n");
    target.weft("identify", 1, &["-o", "json"]).json();
    target.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(target.wait(), Some(0));
}

#[test]
fn load_is_measured_over_the_network() {
    for driver in DRIVERS {
        let target = Target::start(driver, &["--memory", "16MiB", "--null", "1TiB"]);
        let load = ["--rw", "randrw", "--iodepth", "8", "--numjobs", "2"];
        let load = [&load[..], &["--runtime", "300ms", "--time_based"]].concat();
        let report = target.weft("bench", 1, &[&load[..], &["-o", "json"]].concat()).json();
        let job = &report["jobs"][0];
        assert_eq!((&job["error"], &job["job options"]["rw"]), (&0.into(), &"randrw".into()));
        for direction in ["read", "write"] {
            assert!(job[direction]["iops"].as_f64() > Some(0.0), "{direction}: {job}");
            assert!(job[direction]["lat_ns"]["mean"].as_f64() > Some(1000.0), "{job}");
        }
        let load = ["--rw", "randwrite", "--verify", "crc32c", "--iodepth", "16", "--bs", "16k"];
        let human = target.weft("bench", 1, &[&load[..], &["--size", "4MiB"]].concat()).text();
        assert!(human.contains("write :") && human.contains(" 0 wrong"), "{human}");
        let options = ["--hdr-digest", "--data-digest", "--disable-sqflow=false"];
        let human = target.weft("bench", 1, &[&load[..], &options].concat()).text();
        assert!(human.contains(" 0 wrong"), "{human}");
        let forgetful = target.weft("bench", 2, &[&load[..], &["--size", "1MiB"]].concat());
        assert!(forgetful.fault().contains("blocks are wrong"), "{}", forgetful.stderr);
        target.stop();
    }
}

#[test]
fn load_is_measured_over_loopback() {
    for driver in DRIVERS {
        let load = ["bench", "memory:16MiB", "--loopback", "--driver", driver, "--numjobs", "2"];
        let check = ["--rw", "randwrite", "--verify", "crc32c", "--bs", "16k", "--size", "4MiB"];
        let human = weft(driver, [&load[..], &check].concat()).text();
        assert!(human.contains("over loopback") && human.contains(" 0 wrong"), "{human}");
    }
}

#[test]
fn a_byte_flipped_on_the_target_is_detected() {
    use std::os::unix::fs::FileExt;
    let folder = Folder::new("flip");
    let path = folder.path("disk.img");
    let spec = format!("{},size=4MiB,direct=off", text(&path));
    let target = Target::start("epoll", &["--file", &spec]);
    let write = ["--rw", "write", "--verify", "crc32c", "--iodepth", "4", "--quiet"];
    assert!(target.weft("bench", 1, &write).text().contains(" 0 wrong"));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1_000_001).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x80], 1_000_001).expect("a byte");
    let read = ["--rw", "read", "--verify", "crc32c", "--io-size", "4MiB"];
    let found = target.weft("bench", 1, &read);
    assert_eq!(found.fault(), "weft bench: 1 block is wrong");
    let told = String::from_utf8_lossy(&found.stdout);
    let expected = format!(
        "block at offset 999424: 1 wrong bytes, byte at 1000001 expected {:#04x} got {:#04x}",
        byte[0],
        byte[0] ^ 0x80
    );
    assert!(told.contains(&expected), "{told}");
    target.stop();
}

#[test]
fn persistent_devices_keep_identity_and_data() {
    let folder = Folder::new("identity");
    let spec = format!("{},size=1MiB", text(&folder.path("disk.img")));
    let start = || Target::start("uring", &["--memory", "1MiB", "--file", &spec]);
    let identity = |target: &Target, nsid: u32| {
        let url = target.url(nsid);
        let json = weft("uring", ["identify", "ns", &url, "-o", "json"]).json();
        (json["uuid"].clone(), json["nguid"].clone())
    };
    let first = start();
    let before = (identity(&first, 1), identity(&first, 2));
    let data = pattern(4096);
    assert_eq!(weft_with_stdin("uring", &["write", &first.url(2)], &data).code, Some(0));
    first.stop();
    let second = start();
    let after = (identity(&second, 1), identity(&second, 2));
    assert_ne!(before.0, after.0, "memory is a new namespace");
    assert_eq!(before.1, after.1, "a file is the same namespace");
    let read = second.weft("read", 2, &["--block-count", "1"]);
    assert!(read.stdout == data);
    second.stop();
}

#[test]
fn a_file_longer_than_its_size_is_served_whole_and_told() {
    let folder = Folder::new("longer");
    let path = folder.write("disk.img", [7; 1 << 16]);
    let words = ["--file", &format!("{},size=32KiB", text(&path))];
    let target = Target::start("epoll", &words);
    target.wait_for_log("disk.img has 64 KiB, which is more than its size=; it is not cut");
    assert_eq!(target.said["subsystems"][0]["namespaces"][0]["bytes"], 1 << 16);
    target.stop();
    let odd = ["target", "--file", &format!("{},size=3", text(&path))];
    let told = weft("epoll", odd).fault();
    assert!(told.contains("size: 3 bytes is not a whole number of blocks of 512 bytes"), "{told}");
}

/// Two processes that write to one file would overwrite each other's data.
#[test]
fn a_file_belongs_to_one_process_unless_shared() {
    let folder = Folder::new("shared");
    let file = text(&folder.path("disk.img")).to_owned();
    let create = format!("{file},size=1MiB");
    let alone = Target::start("epoll", &["--file", &create]);
    for words in [["target", "--file", &file], ["bench", &format!("file:{file}"), "--quiet"]] {
        let refused = weft("epoll", words);
        assert_eq!(refused.code, Some(1), "{words:?}");
        let told = refused.fault();
        assert!(told.contains("is in use by another process") && told.contains(&file), "{told}");
    }
    alone.stop();
    let shared = format!("{create},shared");
    let both = [(); 2].map(|()| Target::start("epoll", &["--file", &shared]));
    let data = pattern(4096);
    assert_eq!(weft_with_stdin("epoll", &["write", &both[0].url(1)], &data).code, Some(0));
    assert!(both[1].weft("read", 1, &["--block-count", "1"]).stdout == data);
    both.into_iter().for_each(Target::stop);
}

#[test]
fn ports_allowed_hosts_and_advertised_addresses_are_applied() {
    let host = "nqn.2024-01.io.example:host";
    let target = Target::start(
        "epoll",
        &[
            "--memory",
            "1MiB",
            "--listen",
            "tcp://127.0.0.1:0",
            "--listen",
            "tcp://[::1]:0",
            "--discovery",
            "tcp://127.0.0.1:0",
            "--advertise",
            "192.0.2.7:4420",
            "--allow-host",
            host,
        ],
    );
    let (first, second, third) = (target.port(0), target.port(1), target.port(2));
    let refused = target.weft("identify", 1, &[]).fault();
    assert!(refused.contains("Connect"), "{refused}");
    let url = target.url(1);
    assert_eq!(weft("epoll", ["identify", &url, "-q", host]).code, Some(0));
    let six = ["identify", "-a", "::1", "-s", &second.to_string(), "-n", NQN, "-q", host];
    assert_eq!(weft("epoll", six).code, Some(0));
    let discover = |port: u16| {
        let port = port.to_string();
        weft("epoll", ["discover", "-a", "127.0.0.1", "-s", &port, "-q", host]).text()
    };
    for port in [first, third] {
        let text = discover(port);
        assert!(text.contains("traddr:  192.0.2.7") && text.contains("trsvcid: 4420"), "{text}");
    }
    let nowhere = ["identify", "-a", "127.0.0.1", "-s", &third.to_string(), "-n", NQN, "-q", host];
    assert_ne!(weft("epoll", nowhere).code, Some(0), "only discovery is served there");
    target.stop();
}

#[test]
fn a_configuration_is_reloaded_on_sighup() {
    let folder = Folder::new("reload");
    let config = |namespaces: &str| {
        format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
        )
    };
    let one = "[[subsystem.namespace]]\nmemory = \"1MiB\"\n";
    let path = folder.write("target.toml", config(one));
    let target = Target::start("uring", &["--config", text(&path)]);
    let sizes = || {
        let list = target.weft("list", 1, &["-o", "json"]).json();
        let devices = list["Devices"].as_array().expect("devices").clone();
        devices.iter().map(|device| device["PhysicalSize"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(sizes(), [Some(1 << 20)]);
    let two = format!("{one}[[subsystem.namespace]]\nnull = \"1GiB\"\n");
    folder.write("target.toml", config(&two));
    target.signal(Signal::HUP);
    let line = target.wait_for_log("namespace 2");
    assert!(line.contains(&format!("namespace 2 of {NQN} added: null:1GiB")), "{line}");
    assert_eq!(sizes(), [Some(1 << 20), Some(1 << 30)]);
    folder.write("target.toml", config("memory = \"1MiB\"\n"));
    target.signal(Signal::HUP);
    let line = target.wait_for_log("stays as it was");
    assert!(line.contains("target.toml:5: `memory`: unknown field"), "{line}");
    assert_eq!(sizes(), [Some(1 << 20), Some(1 << 30)]);
    target.stop();
}

/// What would be served is said beside a target that serves it, and nothing is changed by that.
#[test]
fn a_configuration_is_checked_without_serving_it() {
    let folder = Folder::new("check");
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let new = folder.path("new.img");
    let config = |port: u16, last: &str| {
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:{port}\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nnsid = 3\nfile = \"{}\"\n\
             [[subsystem.namespace]]\nmemory = \"2MiB\"\n{last}",
            text(&disk)
        );
        folder.write("check.toml", text)
    };
    let target = Target::start("epoll", &["--config", text(&config(0, ""))]);
    let listed = target.weft("list", 3, &["-o", "json"]).json();
    let port = target.port(0);
    target.stop();
    let created = format!("[[subsystem.namespace]]\nfile = \"{}\"\nsize = \"4MiB\"\n", text(&new));
    let path = config(port, &created);
    let check = |words: &[&str]| {
        let all = ["target", "--config", text(&path), "--check"];
        weft("epoll", all.iter().chain(words).copied())
    };
    let checked = check(&["-o", "json"]);
    let said = &checked.json()["namespaces"];
    let nsids: Vec<_> = (0..3).map(|index| said[index]["nsid"].as_u64()).collect();
    assert_eq!(nsids, [Some(3), Some(4), Some(5)]);
    assert_eq!(said[0]["uuid"], listed["Devices"][0]["UUID"]);
    assert!(said[1]["uuid"].is_null(), "memory has a new one at each start");
    assert_eq!(said[2]["bytes"], 4 << 20);
    assert!(!new.exists(), "it is not created");
    let warnings: Vec<_> = checked.stderr.lines().collect();
    assert_eq!(warnings.len(), 2, "{}", checked.stderr);
    assert!(
        warnings[0].contains("namespace 4") && warnings[0].contains("nsid = 4"),
        "{warnings:?}"
    );
    let text_of = check(&[]).text();
    assert!(text_of.contains("namespace 5: file:"), "{text_of}");
    assert!(text_of.contains("4MiB, to be created, empty, UUID "), "{text_of}");
    config(port, "[[subsystem.namespace]]\nfile = \"/nonexistent/weft\"\n");
    let fault = check(&[]).fault();
    assert!(fault.contains("namespace 5") && fault.contains("/nonexistent/weft"), "{fault}");
    let link = folder.path("link.img");
    std::os::unix::fs::symlink(&disk, &link).expect("a link");
    let again = format!("[[subsystem.namespace]]\nfile = \"{}\"\n", text(&link));
    config(port, &again);
    assert!(check(&[]).fault().contains("is what namespace 3 stands on"));
    for (first, part) in [
        ("cpus = [4095]\n", "processor 4095"),
        ("[[port]]\nlisten = \"tcp://192.0.2.77:4420\"\n", "no address of this machine"),
        // The loopback interface has no RDMA device, on any machine.
        ("[[port]]\nlisten = \"rdma://127.0.0.1:4420\"\n", "rdma://127.0.0.1:4420: "),
    ] {
        let text = first.to_owned() + &std::fs::read_to_string(config(0, "")).expect("a file");
        folder.write("check.toml", text);
        let fault = check(&[]).fault();
        assert!(fault.contains(part), "{fault}");
    }
    // What cannot be written to, or made, is what the start would say: not even root may here.
    for (kept, path) in
        [("", "/sys/devices/system/cpu/online"), ("size = \"1MiB\"\n", "/proc/self/weft.img")]
    {
        config(0, &format!("[[subsystem.namespace]]\nfile = \"{path}\"\n{kept}"));
        let fault = check(&[]).fault();
        assert!(fault.contains(&format!(" {path}: ")) && fault.contains("cannot "), "{fault}");
    }
}

#[test]
fn sighup_keeps_what_was_not_changed() {
    // Without an NQN, on a port that the kernel chooses: as programs start a target.
    let mut command = command("epoll");
    command.args(["target", "--output-format", "json", "--stop-with-stdin"]);
    command.args(["--listen", "tcp://127.0.0.1:0", "--memory", "1MiB"]);
    let target = Target::spawn("epoll", command);
    let data = pattern(4096);
    let wrote = weft_with_stdin("epoll", &["write", &target.url(1)], &data);
    assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
    target.signal(Signal::HUP);
    target.wait_for_log("read again");
    let read = target.weft("read", 1, &["--data-size", "4096"]);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    assert!(read.stdout == data, "what was read is not what was written");
    target.stop();
}

#[test]
fn a_configuration_of_nvmetcli_is_converted_and_served() {
    let folder = Folder::new("nvmetcli");
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let json = format!(
        r#"{{"hosts": [], "ports": [
            {{"addr": {{"adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": "0", "trtype": "tcp"}},
              "portid": 1, "referrals": [], "subsystems": ["{NQN}"]}},
            {{"addr": {{"adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": "1", "trtype": "fc"}},
              "portid": 2, "referrals": [], "subsystems": ["{NQN}"]}}],
          "subsystems": [{{"allowed_hosts": [], "attr": {{"allow_any_host": "1", "serial": "S1"}},
            "namespaces": [{{"device": {{"path": "{}",
              "uuid": "99451596-9675-4382-bff8-b78ee34de567"}}, "enable": 1, "nsid": 5}}],
            "nqn": "{NQN}"}}]}}"#,
        text(&disk)
    );
    let saved = folder.write("config.json", json);
    let error = weft("epoll", ["target", "--config", text(&saved)]).fault();
    assert!(error.contains("weft convert"), "{error}");
    let converted = weft("epoll", ["convert", text(&saved)]);
    assert!(converted.stderr.contains("ports[1]"), "{}", converted.stderr);
    let said = weft("epoll", ["convert", text(&saved), "-o", "json"]).json();
    assert_eq!(said["configuration"], converted.text().as_str());
    assert!(said["notes"].to_string().contains("ports[1]"), "{said}");
    let path = folder.write("weft.toml", converted.text());
    let target = Target::start("epoll", &["--config", text(&path)]);
    let list = target.weft("list", 5, &["-o", "json"]).json();
    let device = &list["Devices"][0];
    assert_eq!((&device["NameSpace"], &device["SerialNumber"]), (&5.into(), &"S1".into()));
    assert_eq!(device["UUID"], "99451596-9675-4382-bff8-b78ee34de567");
    target.stop();
}

/// There is no file of a configuration to read again, and there are sizes.
#[test]
fn a_target_of_flags_reads_sizes_at_sighup() {
    let folder = Folder::new("grown");
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let target = Target::start("epoll", &["--file", text(&disk), "-v"]);
    let file = std::fs::OpenOptions::new().write(true).open(&disk).expect("a file");
    file.set_len(2 << 20).expect("a size");
    target.signal(Signal::HUP);
    target.wait_for_log("has another size");
    let list = target.weft("list", 1, &["-o", "json"]).json();
    assert_eq!(list["Devices"][0]["PhysicalSize"], 2 << 20, "{list}");
    target.stop();
}

#[test]
fn errors_are_one_sentence() {
    let target = Target::start("epoll", &["--memory", "1MiB", "--memory", "1MiB"]);
    let port = target.port(0).to_string();
    let here = ["-a", "127.0.0.1", "-s", &port];
    let absent = format!("nvme-tcp://127.0.0.1:{port}/{NQN}?nsid=9");
    let fault = |words: &[&str]| weft("epoll", words).fault();
    for (words, part) in [
        ([&["identify"], &here[..], &["-n", "nqn.2024-01.io.example:other"]].concat(), "Connect"),
        ([&["identify", "ns"], &here[..], &["-n", NQN]].concat(), "there are 1, 2: select one"),
        (
            [&["identify", "ns", "--nsid", "9"], &here[..], &["-n", NQN]].concat(),
            "namespace 9 does not exist",
        ),
        (vec!["identify", &absent], "namespace 9 does not exist"),
        ([&["identify"], &here[..]].concat(), "no subsystem given"),
        (vec!["read", "-a", "no.such.host.invalid", "-n", NQN], "no.such.host.invalid"),
        (vec!["flush"], "no address"),
        (vec!["list", "memory:1GiB"], "local device"),
        (vec!["bench", "memory:1GiB", "--bs", "1000"], "device's block of 4096"),
        (vec!["bench", "file:/no/such/file"], "/no/such/file"),
        (vec!["bench", "nvme-tcp://127.0.0.1:1/nqn.x", "--loopback"], "give a device"),
        (vec!["bench", "nvme-loopback://127.0.0.1:1/nqn.x"], "refused"),
        (vec!["target", "--null", "1GiB", "--listen", "loopback://127.0.0.1"], "nobody but this"),
        (vec!["log", "smartest", "-a", "127.0.0.1", "-n", NQN], "is not a log page"),
        (vec!["floor", "--cpus", "0"], "takes two"),
        (vec!["target", "--file", "/no/such/file"], "/no/such/file"),
        (vec!["report", "/"], "/ has no results"),
    ] {
        let told = fault(&words);
        assert!(told.contains(part), "{words:?}: {told}");
        assert!(told.starts_with(&format!("weft {}: ", words[0])), "{told}");
    }
    let taken = format!("tcp://127.0.0.1:{port}");
    let told = weft("epoll", ["target", "--memory", "1MiB", "--listen", &taken]);
    assert_eq!(told.code, Some(1));
    let sentences: Vec<&str> =
        told.stderr.lines().filter(|line| !line.contains("io_uring")).collect();
    let [sentence] = sentences[..] else { panic!("one sentence is enough: {}", told.stderr) };
    assert!(sentence.starts_with("weft target: ") && sentence.contains(&port), "{sentence}");
    for verb in ["read", "write"] {
        let none = target.weft(verb, 1, &["--block-count", "0"]);
        assert!(none.code == Some(2) && none.stderr.contains("0 is not in 1.."), "{}", none.stderr);
    }
    // `script` gives the command a terminal.
    let read = format!("{} read {} --block-count 1", env!("CARGO_BIN_EXE_weft"), target.url(1));
    let terminal = std::process::Command::new("script").args(["-qec", &read, "/dev/null"]).output();
    let terminal = terminal.expect("script, of bsdutils");
    let shown = String::from_utf8_lossy(&terminal.stdout);
    assert!(!terminal.status.success() && shown.contains("is a terminal: redirect it"), "{shown}");
    for beyond in [["--start-block", "256"], ["--start-block", "18446744073709551615"]] {
        let read = target.weft("read", 1, &[&beyond[..], &["--block-count", "1"]].concat());
        assert!(read.fault().contains("beyond"), "{}", read.stderr);
    }
    let odd = weft_with_stdin("epoll", &["write", &target.url(1)], &[1; 5000]);
    assert!(odd.fault().contains("not a multiple of the block size"), "{}", odd.stderr);
    target.stop();
}

#[test]
fn a_plain_cargo_run_means_this_binary() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let metadata = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata = std::process::Command::new(cargo).args(metadata).current_dir(&root).output();
    let metadata = metadata.expect("the workspace").stdout;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).expect("JSON");
    let what_runs = metadata["workspace_default_members"].as_array().expect("members");
    assert_eq!(what_runs.len(), 1, "`cargo run` needs one default binary");
}

#[test]
fn the_log_distinguishes_normal_events_from_errors() {
    for driver in DRIVERS {
        let device = "fault:operation=write,effect=no-space:memory:1MiB";
        let words = ["--listen", "tcp://[::]:0", "--device", device];
        let target = Target::start(driver, &words);
        assert_eq!(target.weft("flush", 1, &[]).code, Some(0));
        let came = target.wait_for_log("connected to");
        let (time, came) = came.split_once(' ').expect("the time first");
        assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        assert!(came.starts_with("info: 127.0.0.1:"), "{came}");
        let left = target.wait_for_log("left controller 1");
        assert!(left.contains("Z info: ") && left.ends_with("the host disconnected"));

        let refused = weft_with_stdin(driver, &["write", &target.url(1)], &pattern(4096)).fault();
        let full = "the controller has no space left; it wrote 0 bytes";
        assert!(refused.ends_with(full), "{refused}");
        let trouble = target.wait_for_log("a request failed");
        let what = "there is no space left: free space";
        assert!(trouble.contains("warn: ") && trouble.contains(what), "{trouble}");

        let mut lost = crate::weft::command(driver);
        let mut lost = lost
            .args(["bench", &target.url(1), "--rw", "read", "--runtime", "60", "--time_based"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary");
        let reads =
            || target.weft("log", 1, &["smart", "-o", "json"]).json()["host_read_commands"].clone();
        while reads() == 0 {}
        lost.kill().expect("the process is there");
        lost.wait().expect("its end");
        let line = target.wait_for_log("the admin connection was lost");
        assert!(line.contains("Z warn: "), "{line}");
        target.stop();
    }
}

#[test]
fn log_lines_have_the_form_that_their_reader_wants() {
    let words = ["--memory", "1MiB", "--log-format"];
    let target = Target::start("epoll", &[&words[..], &["json"]].concat());
    target.weft("flush", 1, &[]);
    let line = target.wait_for_log("connected to");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["level"], "info");
    assert!(line["module"].as_str().is_some_and(|module| module.starts_with("weft_target::")));
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    target.stop();
    let target = Target::start("epoll", &[&words[..], &["journal"]].concat());
    target.weft("flush", 1, &[]);
    let line = target.wait_for_log("connected to");
    assert!(line.starts_with("<6>127.0.0.1:"), "{line}");
    target.stop();
}

#[test]
fn invalid_arguments_are_reported_with_a_usage() {
    for words in [&["no-such-verb"][..], &["bench", "--no-such-option"], &["bench", "--section"]] {
        let ran = weft("epoll", words);
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains("error: "), "{}", ran.stderr);
    }
    let version = weft("epoll", ["--version"]).text();
    assert!(version.starts_with("weft "), "{version}");
}

#[test]
fn a_reader_that_closes_the_output_is_not_an_error() {
    let target = Target::start("epoll", &["--memory", "16MiB"]);
    let url = target.url(1);
    let mut child = crate::weft::command("epoll")
        .args(["read", &url, "--data-size", "16MiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.trim()), (Some(0), ""));
    target.stop();
}

#[test]
fn ctrl_c_ends_bench_with_a_report() {
    let mut child = crate::weft::command("epoll");
    let child = child
        .args(["bench", "null:1GiB", "--runtime", "60min", "-o", "json", "--polling", "sleep"])
        .arg("--time_based")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary");
    std::thread::sleep(Duration::from_millis(700));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).expect("the process is there");
    let output = child.wait_with_output().expect("the binary");
    assert_eq!(output.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["jobs"][0]["read"]["total_ios"].as_u64() > Some(0));
    assert_eq!(report["jobs"][0]["weft_interrupted"], true);
}
