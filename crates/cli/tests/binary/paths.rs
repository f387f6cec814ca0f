//! One namespace by two ports of a target.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use weft_rpc::Client;
use weft_statistics::GetStatistics;

use crate::control::{call, waiting};
use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, command, weft};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A target with a namespace in memory at two ports.
struct TwoPorts {
    target: Target,
    client: Client,
    _folder: Folder,
    urls: Vec<String>,
}

impl TwoPorts {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let (target, client) = waiting(&folder, &[]);
        let mut own = Self { target, client, _folder: folder, urls: Vec::new() };
        own.ctl(&format!("subsystem create {NQN} --ana-reporting --allow-any-host"));
        own.ctl(&format!("namespace add {NQN} --memory 16MiB --nsid 1"));
        for host in [1, 2] {
            own.ctl(&format!("listener add {NQN} tcp://127.0.0.{host}:0"));
        }
        let listed = own.run("ana list -o json").json();
        let listed = listed.as_array().expect("a list");
        let url = |one: &serde_json::Value| one["address"].as_str().expect("text").to_owned();
        own.urls = listed.iter().map(url).collect();
        own
    }

    fn run(&self, words: &str) -> CommandOutput {
        let control = self.target.said["control"].as_str().expect("said");
        weft(DRIVERS[0], ["ctl", "--control", control].into_iter().chain(words.split(' ')))
    }

    fn ctl(&self, words: &str) {
        self.run(words).text();
    }

    fn address(&self) -> String {
        let places: Vec<&str> = self.urls.iter().map(|url| place(url)).collect();
        format!("nvme-tcp://{}/{NQN}?nsid=1", places.join(","))
    }

    /// Commands that were executed.
    fn executed(&mut self) -> u64 {
        let now = self.client.call::<GetStatistics>(&()).expect("statistics");
        let served = now.groups.iter().flat_map(|group| &group.served);
        served.map(|one| one.reads + one.writes).sum()
    }

    /// Waits until the load has done some more.
    fn goes_on(&mut self, after: &str) {
        let (begin, from) = (Instant::now(), self.executed());
        while self.executed() < from + 200 {
            assert!(begin.elapsed() < PATIENCE, "the load stands still after: {after}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn bench(&self, words: &str) -> Child {
        bench(&self.address(), words)
    }

    /// What `weft top` shows of the queues.
    fn top(&self) -> String {
        let control = self.target.said["control"].as_str().expect("said");
        let words = ["top", "--control", control, "--once", "--queues", "--interval", "100ms"];
        weft(DRIVERS[0], words).text()
    }

    /// Waits until queues come by these ports alone.
    fn comes_by(&self, wanted: [bool; 2], after: &str) {
        let begin = Instant::now();
        loop {
            let shown = self.top();
            if [0, 1].map(|port| shown.contains(place(&self.urls[port]))) == wanted {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "not {wanted:?} after {after}: {shown}");
        }
    }
}

fn place(url: &str) -> &str {
    url.strip_prefix("tcp://").expect("a URL")
}

fn bench(address: &str, words: &str) -> Child {
    let mut command = command(DRIVERS[0]);
    command.args(["bench", address, "--quiet"]).args(words.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary")
}

/// Interrupts a verified load, which reads back what it has written. What it told.
pub(crate) fn interrupted(load: Child) -> String {
    let pid = Pid::from_child(&load);
    kill_process(pid, Signal::INT).expect("a process");
    let ended = load.wait_with_output().expect("a process");
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(130) && !told.contains("panicked"), "{told}");
    told
}

/// A target whose discovery controller lists one port of another target.
struct Lister {
    target: Target,
    client: Client,
    _folder: Folder,
}

impl Lister {
    fn new(name: &str, listed: &str, port: u16) -> Self {
        let folder = Folder::new(name);
        let own = format!("tcp://127.0.0.1:{port}");
        let words = ["--nqn", NQN, "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
        let more = ["--advertise", place(listed), "--discovery", &own];
        let (target, client) = waiting(&folder, &[&words[..], &more].concat());
        Self { target, client, _folder: folder }
    }

    fn port(&self) -> u16 {
        self.target.port(1)
    }

    /// Adds or removes a referral to this port.
    fn refer(&mut self, what: &str, port: u16) {
        let method = format!("nvmf_discovery_{what}_referral");
        let at = json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": port.to_string()});
        call(&mut self.client, &method, json!({"address": at})).expect(what);
    }
}

#[test]
fn a_verified_load_goes_on_whatever_happens_to_one_of_two_ports() {
    for policy in ["numa", "round-robin", "queue-depth", "latency"] {
        let mut own = TwoPorts::new("paths");
        let load = own.bench(&format!(
            "--rw randrw --bs 4k --iodepth 8 --runtime 300 --time_based --verify crc32c \
             --iopolicy {policy} --reconnect-delay 1"
        ));
        own.goes_on("the start");
        let ports = own.urls.clone();
        for state in ["inaccessible", "non-optimized", "change", "persistent-loss", "optimized"] {
            own.ctl(&format!("ana set {NQN} {} {state}", ports[0]));
            own.goes_on(state);
        }
        own.ctl(&format!("listener remove {NQN} {}", ports[0]));
        own.goes_on("one port is away");
        own.ctl(&format!("listener add {NQN} {}", ports[0]));
        own.goes_on("it is there again");
        std::thread::sleep(Duration::from_millis(1200));
        own.ctl(&format!("ana set {NQN} {} inaccessible", ports[1]));
        own.goes_on("only the first can be used");
        let told = interrupted(load);
        // A port that is away for longer than the first delay refuses the host once or twice.
        let mut others = told.lines().filter(|line| !line.contains("to reconnect failed"));
        assert!(others.all(|line| !line.contains("error")), "{policy}: {told}");
        own.target.stop();
    }
}

#[test]
fn paths_that_a_discovery_controller_lists_come_and_go_under_a_verified_load() {
    let mut own = TwoPorts::new("discovered");
    let ports = own.urls.clone();
    own.ctl(&format!("listener remove {NQN} {}", ports[1]));
    let of_discovery = format!("nvme-tcp://{}/{NQN}?nsid=1", place(&ports[0]));
    let load = bench(
        &of_discovery,
        "--discovery --rw randrw --bs 4k --iodepth 8 --runtime 300 --time_based --verify crc32c \
         --reconnect-delay 1 --keep-alive-tmo 2",
    );
    own.goes_on("the start");

    // What is used of both is what can be reached alone.
    own.ctl(&format!("listener add {NQN} {}", ports[1]));
    own.ctl(&format!("ana set {NQN} {} inaccessible", ports[0]));
    own.goes_on("the second port has come");
    own.ctl(&format!("ana set {NQN} {} optimized", ports[0]));
    own.ctl(&format!("listener remove {NQN} {}", ports[1]));
    own.goes_on("the second port has gone");

    // The discovery controller is lost with its port, and found again.
    own.ctl(&format!("listener add {NQN} {}", ports[1]));
    own.ctl(&format!("ana set {NQN} {} inaccessible", ports[0]));
    own.goes_on("the second port has come again");
    own.ctl(&format!("listener remove {NQN} {}", ports[0]));
    own.goes_on("the first port has gone");
    own.ctl(&format!("listener add {NQN} {}", ports[0]));
    own.ctl(&format!("ana set {NQN} {} inaccessible", ports[1]));
    own.goes_on("the first port has come again");

    // Others list the paths once, or take one.
    own.ctl(&format!("ana set {NQN} {} optimized", ports[1]));
    let words = ["list", &of_discovery, "--discovery", "-o", "json"];
    let listed = weft(DRIVERS[0], words).json();
    assert_eq!(listed["Devices"][0]["Paths"].as_array().map(Vec::len), Some(2), "{listed}");
    let read = weft(DRIVERS[0], ["read", &of_discovery, "--discovery", "--block-count", "1"]);
    assert_eq!(read.stdout.len(), 4096, "{}", read.stderr);
    let unknown = of_discovery.replace("?nsid", "x?nsid");
    let none = weft(DRIVERS[0], ["read", &unknown, "--discovery"]);
    assert!(none.stderr.contains("lists no port of"), "{}", none.stderr);

    let told = interrupted(load);
    assert!(!told.contains("error"), "{told}");
    own.target.stop();
}

#[test]
fn referrals_lead_to_further_paths_which_come_and_go_with_them() {
    let mut own = TwoPorts::new("referred");
    let ports = own.urls.clone();
    let mut first = Lister::new("refers", &ports[0], 0);
    let mut second = Lister::new("is-referred-to", &ports[1], 0);
    let nobody =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    // In a loop, with one that cannot be reached.
    first.refer("add", nobody);
    first.refer("add", second.port());
    second.refer("add", first.port());
    let at = format!("nvme-tcp://127.0.0.1:{}", first.port());
    let of_discovery = format!("{at}/{NQN}?nsid=1");
    let listed = weft(DRIVERS[0], ["list", &of_discovery, "--discovery", "-o", "json"]);
    let told = format!("127.0.0.1:{nobody}");
    assert!(listed.stderr.contains(&told), "{}", listed.stderr);
    let paths = listed.json()["Devices"][0]["Paths"].as_array().map(Vec::len);
    assert_eq!(paths, Some(2), "{}", listed.text());
    let all = weft(DRIVERS[0], ["list", &at]).text();
    assert!(ports.iter().all(|url| all.contains(place(url))), "{all}");

    let load = bench(
        &of_discovery,
        "--discovery --rw randrw --bs 4k --iodepth 8 --runtime 300 --time_based --verify crc32c \
         --reconnect-delay 1 --keep-alive-tmo 2",
    );
    own.comes_by([true, true], "the start");
    first.refer("remove", second.port());
    own.comes_by([true, false], "a referral was removed");
    own.goes_on("a referral was removed");
    first.refer("add", second.port());
    own.comes_by([true, true], "it was added again");

    // One that cannot be asked takes no path away, though others are asked again.
    let port = second.port();
    second.target.signal(Signal::KILL);
    drop(second);
    first.refer("remove", nobody);
    std::thread::sleep(Duration::from_millis(2500));
    own.comes_by([true, true], "the one that lists it is away");
    own.ctl(&format!("ana set {NQN} {} inaccessible", ports[0]));
    own.goes_on("the one that lists it is away");
    own.ctl(&format!("ana set {NQN} {} optimized", ports[0]));

    // It is asked again when it is back, and tells of changes.
    let mut second = Lister::new("is-back", &ports[1], port);
    let at = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1",
        "trsvcid": second.target.port(0).to_string()});
    std::thread::sleep(Duration::from_millis(2500));
    own.comes_by([true, true], "the one that lists it is back");
    let params = json!({"nqn": NQN, "listen_address": at});
    call(&mut second.client, "nvmf_subsystem_remove_listener", params).expect("a removal");
    own.comes_by([true, false], "it is listed no longer");
    own.goes_on("it is listed no longer");
    interrupted(load);
    [first.target, second.target, own.target].into_iter().for_each(Target::stop);
}

#[test]
fn one_of_two_endpoints_is_enough_to_begin_with() {
    let own = TwoPorts::new("one-of-two");
    own.ctl(&format!("listener remove {NQN} {}", own.urls[0]));
    let bench = own.bench("--rw randread --iodepth 4 --number_ios 500");
    let ended = bench.wait_with_output().expect("a process");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    // Other commands use the first that answers.
    let address = own.address();
    let read = weft(DRIVERS[0], ["read", &address, "--block-count", "1"]);
    assert_eq!((read.code, read.stdout.len()), (Some(0), 4096), "{}", read.stderr);
    own.ctl(&format!("listener remove {NQN} {}", own.urls[1]));
    let none = weft(DRIVERS[0], ["bench", &address, "--number_ios", "1"]);
    let last = none.stderr.lines().last().expect("a reason");
    assert!(none.code != Some(0) && last.contains("refused"), "{}", none.stderr);
    own.target.stop();
}

#[test]
fn list_and_top_show_the_paths() {
    let own = TwoPorts::new("shown");
    let paths = || -> Vec<(String, String)> {
        let listed = weft(DRIVERS[0], ["list", &own.address(), "-o", "json"]).json();
        let paths = listed["Devices"][0]["Paths"].as_array().expect("a list").clone();
        let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
        paths.iter().map(|path| (word(&path["State"]), word(&path["ANAState"]))).collect()
    };
    let pair = |state: &str, access: &str| (state.to_owned(), access.to_owned());
    let best = pair("live", "ana optimized");
    assert_eq!(paths(), [best.clone(), best.clone()]);
    own.ctl(&format!("ana set {NQN} {} inaccessible", own.urls[1]));
    assert_eq!(paths(), [best.clone(), pair("live", "ana inaccessible")]);
    let text = weft(DRIVERS[0], ["list", &own.address()]).text();
    assert!(
        text.lines().any(|line| line.contains("live") && line.contains("inaccessible")),
        "{text}"
    );
    own.ctl(&format!("ana set {NQN} {} optimized", own.urls[1]));
    // Which port each queue came to is what the target knows of them.
    let mut load = own.bench("--rw randread --iodepth 1 --runtime 60 --time_based");
    own.comes_by([true, true], "the start");
    load.kill().expect("it runs");
    load.wait().expect("a process");
    own.ctl(&format!("listener remove {NQN} {}", own.urls[0]));
    let left = paths();
    assert_eq!(left[1], best);
    assert_ne!(left[0].0, "live", "{left:?}");
    own.target.stop();
}
