//! `weft doctor` at targets that run here.

use serde_json::Value;

use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, text, weft};

/// The findings of a run, whose exit code must be that of the worst.
#[track_caller]
fn findings(ran: &CommandOutput) -> Vec<Value> {
    let json: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
    let findings = json["findings"].as_array().expect("a list").clone();
    let has = |severity| findings.iter().any(|one| one["severity"] == severity);
    let code = if has("fault") { 4 } else { 3 * i32::from(has("warning")) };
    assert_eq!(ran.code, Some(code), "{json:#}");
    findings
}

#[track_caller]
fn one<'a>(findings: &'a [Value], what: &str) -> &'a Value {
    let is_it = |one: &&Value| one["what"].as_str().is_some_and(|text| text.contains(what));
    findings.iter().find(is_it).unwrap_or_else(|| panic!("{what:?} is not in {findings:#?}"))
}

#[test]
fn a_target_that_serves_has_no_fault_and_what_cannot_be_reached_is_one() {
    for driver in DRIVERS {
        let folder = Folder::new("doctor");
        let control = format!("unix:{}", text(&folder.path("control")));
        let target = Target::start(driver, &["--memory", "1MiB", "--control", &control]);
        let good = target.url(1);
        let ran = weft(driver, ["doctor", "--control", &control, &good, "-o", "json"]);
        let found = findings(&ran);
        assert!(found.iter().all(|one| one["severity"] != "fault"), "{found:#?}");
        let answers = one(&found, "answers, with 1 namespace");
        assert_eq!(answers["severity"], "ok");
        // A hypervisor may take time from this machine meanwhile, which is something to do.
        let is_quiet = |text: &str| {
            ["listens on this machine alone", "the hypervisor takes"]
                .iter()
                .any(|of| text.contains(of))
        };
        assert!(found.iter().any(|one| one["what"].as_str().is_some_and(is_quiet)), "{found:#?}");

        // The addresses alone: one that nobody listens at, and a name that is not served.
        let closed = format!("nvme-tcp://127.0.0.1:1/{NQN}");
        let (unknown, port) = ("nqn.2024-01.io.example:unknown", target.port(0));
        let unknown = format!("nvme-tcp://127.0.0.1:{port}/{unknown}");
        let discovery = format!("tcp://127.0.0.1:{port}");
        let ran = weft(driver, ["doctor", &closed, &unknown, &discovery, "-o", "json"]);
        let found = findings(&ran);
        let closed = one(&found, "127.0.0.1:1");
        assert_eq!(closed["severity"], "fault");
        assert!(closed["do"].as_str().is_some_and(|text| text.contains("sport = :1 ")), "{closed}");
        let unknown = one(&found, "example:unknown");
        assert_eq!(unknown["severity"], "fault");
        assert!(unknown["why"].as_str().is_some_and(|text| text.contains(NQN)), "{unknown}");
        assert_eq!(one(&found, &format!("lists {NQN}"))["severity"], "ok");
        let human = weft(driver, ["doctor", &discovery]);
        let human = String::from_utf8_lossy(&human.stdout);
        assert!(
            human.contains(&format!("\nok       nvme-tcp://127.0.0.1:{port} lists")),
            "{human}"
        );
    }
}

#[test]
fn a_device_of_two_namespaces_and_a_host_that_is_not_allowed_are_faults() {
    let driver = DRIVERS[0];
    let folder = Folder::new("doctor-twice");
    let (disk, link) = (folder.path("disk"), folder.path("link"));
    std::fs::write(&disk, vec![0; 1 << 20]).expect("a file");
    std::fs::hard_link(&disk, &link).expect("a link");
    let subsystem = |nqn: &str, path: &str| {
        format!(
            "[[subsystem]]\nnqn = \"{nqn}\"\nallowed-hosts = [\"nqn.2024-01.io.example:h\"]\n\
             [[subsystem.namespace]]\ndevice = \"file:{path}\"\n"
        )
    };
    let other = format!("{NQN}-2");
    let port = "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n".to_owned();
    let config = port + &subsystem(NQN, text(&disk)) + &subsystem(&other, text(&link));
    let file = folder.write("target.toml", config);
    let control = format!("unix:{}", text(&folder.path("control")));
    let target = Target::start(driver, &["--config", text(&file), "--control", &control]);
    let ran = weft(driver, ["doctor", "--control", &control, &target.url(1), "-o", "json"]);
    let found = findings(&ran);
    let twice = one(&found, "are one device");
    assert_eq!(twice["severity"], "fault");
    let what = format!("1 of {NQN} and 1 of {other}");
    assert!(twice["what"].as_str().is_some_and(|text| text.contains(&what)), "{twice}");
    let refused = found.last().expect("the address");
    assert_eq!(refused["severity"], "fault", "{refused}");
    let allowed = ["doctor", "-q", "nqn.2024-01.io.example:h", &target.url(1), "-o", "json"];
    let found = findings(&weft(driver, allowed));
    assert_eq!(found.last().expect("the address")["severity"], "ok", "{found:#?}");
}

/// A file that was cut, more memory than there is, a dead path, and hosts that are refused, each
/// with what to do.
#[test]
fn what_hosts_complain_of_is_named_with_its_remedy() {
    let driver = DRIVERS[0];
    let folder = Folder::new("doctor-hosts");
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let host = "nqn.2024-01.io.example:h";
    let key = crate::operate::token_file(&folder, "key", crate::control::SECRETS[0]);
    let text_of = |port: &str| {
        format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n{port}[[subsystem]]\nnqn = \"{NQN}\"\n\
             allowed-hosts = [\"{host}\"]\n[[subsystem.host]]\nnqn = \"{host}\"\n\
             dhchap-key = \"{key}\"\n[[subsystem.namespace]]\nfile = \"{}\"\n\
             [[subsystem.namespace]]\nmemory = \"1TiB\"\n",
            text(&disk)
        )
    };
    let file = folder.write("target.toml", text_of(""));
    let control = format!("unix:{}", text(&folder.path("control")));
    let target = Target::start(driver, &["--config", text(&file), "--control", &control]);
    let keep = std::fs::File::options().write(true).open(&disk).expect("the disk");
    keep.set_len(4096).expect("it is cut");
    let doctor =
        |words: &[&str]| findings(&weft(driver, [&["doctor", "-o", "json"], words].concat()));
    let said = |finding: &Value, severity: &str, remedy: &str| {
        assert_eq!(finding["severity"], severity, "{finding}");
        assert!(finding["do"].as_str().is_some_and(|text| text.contains(remedy)), "{finding}");
    };
    let found = doctor(&["--control", &control]);
    said(one(&found, "disk has 4KiB, and namespace 1"), "fault", "truncate -s 1MiB");
    said(one(&found, "devices of memory have 1 TiB"), "warning", "smaller devices");
    let url = target.url(1);
    let found = doctor(&[&url]);
    let allow = format!("weft ctl host allow {NQN} ");
    said(found.last().expect("the address"), "fault", &allow);
    let found = doctor(&["-q", host, &url]);
    said(found.last().expect("the address"), "fault", "--dhchap-secret-file FILE");
    let paths = url.replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:");
    let found = doctor(&["-q", host, "--dhchap-secret-file", &key, &paths]);
    said(one(&found, "127.0.0.1:1/"), "warning", "ss -ltn");
    assert_eq!(found.last().expect("the other path")["severity"], "ok", "{found:#?}");
    target.signal(rustix::process::Signal::TERM);
    target.wait();
    // A port that requires TLS, and a host that comes without.
    if cfg!(feature = "tls") {
        let file = folder.write("tls.toml", text_of("tls = \"required\"\n"));
        keep.set_len(1 << 20).expect("a size");
        let target = Target::start(driver, &["--config", text(&file)]);
        let url = target.url(1);
        for at in [url.as_str(), url.split("/nqn").next().expect("an address")] {
            let found = doctor(&["-q", host, at]);
            said(found.last().expect("the address"), "fault", "--tls --tls-key-file FILE");
        }
        target.stop();
    }
}

#[test]
fn a_host_that_comes_again_and_again_is_named() {
    let driver = DRIVERS[1];
    let folder = Folder::new("doctor-again");
    let control = format!("unix:{}", text(&folder.path("control")));
    let target = Target::start(driver, &["--memory", "1MiB", "--control", &control]);
    let url = target.url(1);
    let over = std::sync::atomic::AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                weft(driver, ["flush", &url]);
            }
        });
        let mut found = Vec::new();
        // Until the counter stands out, or both looks meet a connection.
        for _ in 0..60 {
            found = findings(&weft(driver, ["doctor", "--control", &control, "-o", "json"]));
            if found.iter().any(|one| one["do"].as_str().is_some_and(|r| r.contains("journalctl")))
            {
                break;
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        found
    });
    let again = found.iter().find(|one| one["do"].as_str().is_some_and(|r| r.contains("dmesg")));
    assert!(again.is_some(), "{found:#?}");
}
