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
