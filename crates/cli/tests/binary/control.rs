//! The target's control socket.

use std::time::Duration;

use weft_rpc::{
    Address, CallError, Client,
    statistics::{GetStatistics, Reload},
};

use crate::weft::{DRIVERS, Folder, NQN, Target, weft};

const TIMEOUT: Duration = Duration::from_secs(20);

fn client(target: &Target) -> Client {
    let address: Address = target.said["control"].as_str().expect("said").parse().expect("one");
    Client::connect(&address, TIMEOUT).expect("a control connection")
}

#[test]
fn statistics_report_requests_and_cpu_use() {
    for driver in DRIVERS {
        let folder = Folder::new("control");
        let control = format!("unix:{}", folder.path("control").display());
        let words = ["--memory", "1MiB", "--memory", "1MiB", "--control", &control];
        let target = Target::start(driver, &words);
        let mut client = client(&target);
        let before = client.call::<GetStatistics>(&()).expect("statistics");
        assert_eq!(target.weft("read", 2, &["--block-count", "3"]).code, Some(0));
        let after = client.call::<GetStatistics>(&()).expect("statistics").since(&before);
        let group = &after.groups[0];
        let served: Vec<_> = group.served.iter().map(|s| (s.nsid, s.reads, s.read_bytes)).collect();
        assert_eq!(served, [(1, 0, 0), (2, 1, 3 * 4096)]);
        assert_eq!(group.served[1].subsystem, NQN);
        assert!(group.thread.user_ns + group.thread.system_ns > 0);
        assert!(group.idle_ns > 0 && !after.machine.cores.is_empty());
        let path = folder.path("control");
        target.stop();
        assert!(!path.exists(), "the socket goes with the target");
    }
}

#[test]
fn a_reload_is_answered_when_it_is_complete() {
    let folder = Folder::new("control-reload");
    let file = folder.path("target.toml");
    let write = |devices: &[&str]| {
        let namespaces: String = devices
            .iter()
            .map(|device| format!("[[subsystem.namespace]]\ndevice = \"{device}\"\n"))
            .collect();
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
        );
        std::fs::write(&file, text).expect("a file");
    };
    write(&["memory:1MiB"]);
    let name = file.display().to_string();
    let words = ["--config", &name, "--control", "tcp://127.0.0.1:0"];
    let target = Target::start("epoll", &words);
    let mut client = client(&target);
    write(&["memory:1MiB", "null:1GiB"]);
    let changes = client.call::<Reload>(&()).expect("a reload");
    assert!(matches!(&changes[..], [added] if added.contains("null:1GiB")), "{changes:?}");
    let groups = client.call::<GetStatistics>(&()).expect("statistics").groups;
    assert_eq!(groups[0].served.len(), 2, "the reply follows the change");
    std::fs::write(&file, "nonsense").expect("a file");
    let fault = client.call::<Reload>(&()).expect_err("no configuration");
    assert!(matches!(fault, CallError::Error(_)), "{fault}");
    let groups = client.call::<GetStatistics>(&()).expect("statistics").groups;
    assert_eq!(groups[0].served.len(), 2, "the configuration is unchanged");
    target.stop();
}

#[test]
fn an_unusable_address_is_reported() {
    for bad in ["tcp://192.0.2.1:1", "unix:/nonexistent/control"] {
        let words =
            ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0", "--control", bad];
        let fault = weft("epoll", words).fault();
        assert!(fault.contains("control on") && fault.contains(bad), "{fault}");
    }
}
