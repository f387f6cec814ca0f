//! Two targets that serve one file, one at a time, and a host with a path to each.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weft_rpc::Client;
use weft_statistics::GetStatistics;

use crate::metrics;
use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, command, text, weft};

/// Where `cargo xtask pair` has etcd.
const ETCD: &str = "WEFT_TEST_ETCD";

const PATIENCE: Duration = Duration::from_secs(30);

/// A load that checks what it reads, of so few blocks that each is written again and again.
const LOAD: &str = "--rw randrw --bs 4k --size 512k --iodepth 8 --runtime 300 --time_based \
                    --verify crc32c --reconnect-delay 1 --keep-alive-tmo 2";

/// Two members of a pair; none of a number: it does not run.
struct Members {
    folder: Folder,
    /// What the members' files say of who is primary.
    arbiter: String,
    /// What is around the device of a member that starts.
    wrapper: &'static str,
    running: [Option<Target>; 2],
    ports: [u16; 2],
    driver: &'static str,
}

impl Members {
    fn start(name: &str, arbiter: impl FnOnce(&Folder) -> String, driver: &'static str) -> Self {
        let mut own = Self::none(name, arbiter, driver);
        own.run(0);
        own.run(1);
        own
    }

    /// Members that do not run yet.
    fn none(name: &str, arbiter: impl FnOnce(&Folder) -> String, driver: &'static str) -> Self {
        let folder = Folder::new(name);
        let arbiter = arbiter(&folder);
        let (running, ports, wrapper) = ([None, None], [0, 0], "");
        Self { folder, arbiter, wrapper, running, ports, driver }
    }

    fn control(&self, member: usize) -> PathBuf {
        self.folder.path(&format!("control{member}"))
    }

    fn run(&mut self, member: usize) {
        let file = self.folder.path("disk");
        let config = format!(
            "[pair]\nmember = {}\n{}\n\
             [[port]]\nlisten = \"tcp://127.0.0.1:{}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\ndevice = \"{}delay:write=5ms:file:{},size=16MiB\"\n",
            member + 1,
            self.arbiter,
            self.ports[member],
            self.wrapper,
            text(&file)
        );
        let config = self.folder.write(&format!("member{member}.toml"), config);
        let control = format!("unix:{}", text(&self.control(member)));
        let words = ["--config", text(&config), "--control", &control, "--metrics", "0"];
        let target = Target::start(self.driver, &words);
        self.ports[member] = target.port(0);
        self.running[member] = Some(target);
    }

    fn ctl(&self, member: usize, words: &str) -> CommandOutput {
        let control = format!("unix:{}", text(&self.control(member)));
        weft(self.driver, ["ctl", "--control", &control].into_iter().chain(words.split(' ')))
    }

    fn is_primary(&self, member: usize) -> bool {
        let shown = self.ctl(member, "pair show -o json").json();
        assert_eq!(shown["member"], member + 1);
        shown["role"] == "primary"
    }

    /// The metrics of the pair at a member, by their names; they have these labels.
    fn metrics(&self, member: usize) -> BTreeMap<String, f64> {
        let (_, text) = metrics::get(self.target(member), "/metrics", "*/*");
        let of_pair = text.lines().filter_map(|line| line.strip_prefix("weft_pair_"));
        let of_pair = of_pair.map(|line| {
            let (name, rest) = line.split_once('{').expect("labels");
            let label = format!("member=\"{}\",arbiter=\"the ", member + 1);
            assert!(rest.starts_with(&label), "{line}");
            let value = rest.rsplit_once(' ').expect("a value").1;
            (name.to_owned(), value.parse().expect("a number"))
        });
        of_pair.collect()
    }

    fn wait_until_primary(&self, member: usize) {
        let begin = Instant::now();
        while !self.is_primary(member) {
            assert!(begin.elapsed() < PATIENCE, "member {} does not take over", member + 1);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until one of the two is primary, and returns which.
    fn wait_for_primary(&self) -> usize {
        let begin = Instant::now();
        loop {
            if let Some(found) = [0, 1].into_iter().find(|one| self.is_primary(*one)) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE, "nobody is primary");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn hand_over(&self, from: usize) {
        self.ctl(from, "pair hand-over").text();
        assert!(!self.is_primary(from), "it has handed over");
        self.wait_until_primary(1 - from);
    }

    fn target(&self, member: usize) -> &Target {
        self.running[member].as_ref().expect("it runs")
    }

    fn address(&self) -> String {
        let [one, two] = self.ports;
        format!("nvme-tcp://127.0.0.1:{one},127.0.0.1:{two}/{NQN}?nsid=1")
    }

    fn load(&self) -> Child {
        let mut load = command(self.driver);
        load.args(["bench", &self.address(), "--quiet"]).args(LOAD.split(' '));
        load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary")
    }

    /// Commands that a member has executed.
    fn executed(&self, member: usize) -> u64 {
        let address = format!("unix:{}", text(&self.control(member)));
        let address = address.parse().expect("an address");
        let mut client = Client::connect(&address, None, PATIENCE).expect("a connection");
        let now = client.call::<GetStatistics>(&()).expect("statistics");
        let served = now.groups.iter().flat_map(|group| &group.served);
        served.map(|one| one.reads + one.writes).sum()
    }

    /// Waits until the load goes on at a member; returns how long that took.
    fn goes_on(&self, member: usize, after: &str) -> Duration {
        let (begin, from) = (Instant::now(), self.executed(member));
        while self.executed(member) < from + 1 {
            assert!(begin.elapsed() < PATIENCE, "the load stands still after {after}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = begin.elapsed();
        while self.executed(member) < from + 300 {
            assert!(begin.elapsed() < PATIENCE, "the load stands still after {after}");
            std::thread::sleep(Duration::from_millis(5));
        }
        took
    }

    /// Ends a load, which has read back all that it had written, and has seen no error.
    fn ends_well(&self, load: Child) {
        kill_process(Pid::from_child(&load), Signal::INT).expect("a process");
        let ended = load.wait_with_output().expect("a process");
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(130), "{told}");
        // Warnings are of paths that were lost.
        let mut others = told.lines().filter(|line| !line.contains(" warn: "));
        let fine = "weft bench: interrupted: the results are what was measured until then";
        assert!(others.all(|line| line == fine), "{told}");
    }
}

fn lock_file(folder: &Folder) -> String {
    format!("lock-file = {:?}", text(&folder.path("lock")))
}

#[test]
fn a_pair_with_a_lock_file_loses_nothing_when_it_is_handed_over_killed_or_stopped() {
    for driver in DRIVERS {
        let mut own = Members::start("pair", lock_file, driver);
        own.wait_until_primary(0);
        assert!(!own.is_primary(1));
        let refused = own.ctl(1, "pair hand-over").fault();
        assert!(refused.contains("member 2 stands by"), "{refused}");
        let load = own.load();
        own.goes_on(0, "the start");
        for from in [0, 1, 0, 1] {
            own.hand_over(from);
            let took = own.goes_on(1 - from, "a hand-over");
            println!("{driver}: by command after {took:?}");
        }
        // The death of the primary.
        own.target(0).signal(Signal::KILL);
        own.running[0] = None;
        let begin = Instant::now();
        own.wait_until_primary(1);
        own.goes_on(1, "a death");
        println!("{driver}: after a death within {:?}", begin.elapsed());
        own.run(0);
        assert!(!own.is_primary(0), "the other one is");
        std::thread::sleep(Duration::from_secs(2));
        own.hand_over(1);
        own.goes_on(0, "the return of the one that died");
        // One that is stopped keeps its lock, and so the other one does not write.
        own.target(0).signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(5));
        assert!(!own.is_primary(1));
        own.target(0).signal(Signal::CONT);
        own.goes_on(0, "a pause");
        // One that is stopped in order hands over first.
        own.running[0].take().expect("it runs").stop();
        own.wait_until_primary(1);
        own.goes_on(1, "the end of the other one");
        own.ends_well(load);
        own.running[1].take().expect("it runs").stop();
    }
}

#[test]
fn a_hand_over_to_nobody_is_refused_and_the_member_stays_primary() {
    let mut own = Members::start("pair-alone", lock_file, DRIVERS[0]);
    own.wait_until_primary(0);
    let of = |member, metric| own.metrics(member).get(metric).copied();
    for (member, primary) in [(0, 1.0), (1, 0.0)] {
        let found = ["primary", "terms_total", "failures_total", "lease_seconds"]
            .map(|metric| of(member, metric));
        assert_eq!(found, [Some(primary), Some(primary), Some(0.0), None], "a lock has no end");
    }
    own.running[1].take().expect("it runs").stop();
    let told = own.ctl(0, "pair hand-over").fault();
    assert!(told.contains("does not claim to be primary"), "{told}");
    own.wait_until_primary(0);
    let metrics = own.metrics(0);
    assert_eq!(metrics["terms_total"], 2.0, "it was primary before as well");
    own.running[0].take().expect("it runs").stop();
}

/// As when systemd removes the runtime directory of a unit that stops, and makes it again.
#[test]
fn a_member_whose_lock_file_is_another_one_ends_and_the_other_one_serves() {
    let arbiter = |folder: &Folder| {
        std::fs::create_dir(folder.path("run")).expect("a folder");
        format!("lock-file = {:?}", text(&folder.path("run/lock")))
    };
    let mut own = Members::start("pair-lock-gone", arbiter, DRIVERS[0]);
    own.wait_until_primary(0);
    let run = own.folder.path("run");
    std::fs::remove_dir_all(&run).expect("removed");
    own.target(0).wait_for_log("the lock file is not the one at its path any more");
    assert_eq!(own.running[0].take().expect("it was there").wait(), None, "it ends at once");
    std::fs::create_dir(&run).expect("a folder");
    own.wait_until_primary(1);
    own.run(0);
    std::thread::sleep(Duration::from_secs(2));
    assert!(!own.is_primary(0) && own.is_primary(1), "both look at the same file");
    // A file that is put in its place: whoever waits for the old one waits for this one then.
    std::fs::rename(own.folder.write("new", ""), run.join("lock")).expect("renamed");
    own.target(1).wait_for_log("the lock file is not the one at its path any more");
    assert_eq!(own.running[1].take().expect("it was there").wait(), None);
    own.wait_until_primary(0);
    own.run(1);
    own.hand_over(0);
    own.running.into_iter().flatten().for_each(Target::stop);
}

#[test]
fn two_members_of_one_number_do_not_run() {
    let mut own = Members::none("pair-one-number", lock_file, DRIVERS[0]);
    own.run(0);
    own.wait_until_primary(0);
    let config = std::fs::read_to_string(own.folder.path("member0.toml")).expect("a file");
    let config = own.folder.write("again.toml", config);
    let refused = weft(DRIVERS[0], ["target", "--config", text(&config)]).fault();
    assert!(refused.contains("member 1 is taken") && refused.contains("member = 2"), "{refused}");
    own.running[0].take().expect("it runs").stop();
}

/// Whoever is wrong about the lock file still cannot write: the primary has locked the devices.
#[test]
fn a_member_with_another_lock_file_does_not_serve() {
    let mut own = Members::none("pair-two-locks", lock_file, DRIVERS[0]);
    own.run(0);
    own.wait_until_primary(0);
    own.arbiter = format!("lock-file = {:?}", text(&own.folder.path("other")));
    own.run(1);
    let told = own.target(1).wait_for_log("this member cannot serve");
    assert!(told.contains("disk is in use by another process"), "{told}");
    assert!(own.is_primary(0) && !own.is_primary(1));
    own.running[0].take().expect("it runs").stop();
    own.wait_until_primary(1);
    own.running[1].take().expect("it runs").stop();
}

#[test]
fn a_member_that_has_lost_writes_hands_over_only_if_an_operator_decides_so() {
    let mut own = Members::none("pair-loss", lock_file, DRIVERS[0]);
    own.wrapper = "fault:operation=flush,nth=1,effect=media-write:";
    own.run(0);
    own.wait_until_primary(0);
    own.wrapper = "";
    own.run(1);
    // The device works again at the second try, but what was lost is lost.
    for _ in 0..2 {
        let told = own.ctl(0, "pair hand-over").fault();
        assert!(told.contains("is stored") && told.contains("--force"), "{told}");
        assert!(own.is_primary(0) && !own.is_primary(1));
    }
    own.ctl(0, "pair hand-over --force").text();
    own.wait_until_primary(1);
    assert!(!own.is_primary(0));
    let lost = own.running[0].take().expect("it runs");
    lost.signal(Signal::TERM);
    assert_eq!(lost.wait(), Some(1), "it says so at its end as well");
    own.running[1].take().expect("it runs").stop();
}

#[test]
fn a_member_that_cannot_store_anything_ends_when_it_is_stopped() {
    let mut own = Members::none("pair-broken", lock_file, DRIVERS[0]);
    own.wrapper = "fault:operation=flush,effect=media-write:";
    own.run(0);
    own.wait_until_primary(0);
    own.wrapper = "";
    own.run(1);
    let broken = own.running[0].take().expect("it runs");
    broken.signal(Signal::TERM);
    let told = broken.wait_for_log("the claim ends with this process");
    assert!(told.contains("media-write"), "{told}");
    assert_eq!(broken.wait(), Some(1));
    own.wait_until_primary(1);
    own.running[1].take().expect("it runs").stop();
}

/// etcd alone, with its data in a folder.
struct Etcd {
    child: Child,
    url: String,
}

/// The file of a certificate or key that `etcd/README.md` describes.
#[cfg(feature = "tls")]
fn certificate(name: &str) -> String {
    format!("{}/tests/binary/etcd/{name}.pem", env!("CARGO_MANIFEST_DIR"))
}

impl Etcd {
    fn start(folder: &Folder) -> Self {
        Self::with(folder, "http", &[])
    }

    /// With TLS, and for those alone who have a certificate of its authority.
    #[cfg(feature = "tls")]
    fn start_with_tls(folder: &Folder) -> Self {
        let [ca, cert, key] = ["authority", "server", "server-key"].map(certificate);
        let words = ["--client-cert-auth", "--trusted-ca-file", &ca];
        let words = [&words[..], &["--cert-file", &cert, "--key-file", &key]].concat();
        Self::with(folder, "https", &words)
    }

    fn with(folder: &Folder, scheme: &str, words: &[&str]) -> Self {
        let program = std::env::var_os(ETCD).expect("set");
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        };
        let (port, peer) = (free(), free());
        let url = format!("{scheme}://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer}");
        let log = std::fs::File::create(folder.path("etcd.log")).expect("a file");
        let mut command = std::process::Command::new(program);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]).args(words);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--data-dir"]);
        command.arg(folder.path("etcd")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { child: command.spawn().expect("etcd"), url }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("etcd runs");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is etcd; says it if not.
fn has_etcd() -> bool {
    let found = std::env::var_os(ETCD).is_some();
    if !found {
        // The harness keeps what a test that passes prints by a macro.
        let _ = writeln!(std::io::stderr(), "SKIPPED: cargo xtask pair runs this with etcd");
    }
    found
}

#[test]
fn a_pair_with_etcd_loses_nothing_whatever_becomes_of_its_members() {
    if !has_etcd() {
        return;
    }
    let ttl = Duration::from_secs(3);
    let mut etcd = None;
    let arbiter = |folder: &Folder| {
        let started = etcd.insert(Etcd::start(folder));
        format!("etcd = [\"{}\"]\nttl = \"3s\"", started.url)
    };
    let mut own = Members::start("pair-etcd", arbiter, DRIVERS[0]);
    let etcd = etcd.expect("started");
    let first = own.wait_for_primary();
    let left = own.metrics(first)["lease_seconds"];
    assert!((0.5..=2.25).contains(&left), "{left} s of three quarters of {ttl:?}");
    assert_eq!(own.metrics(1 - first).get("lease_seconds"), None, "it has none");
    let load = own.load();
    own.goes_on(first, "the start");
    let mut at = first;
    for _ in 0..4 {
        own.hand_over(at);
        at = 1 - at;
        println!("by command after {:?}", own.goes_on(at, "a hand-over"));
    }
    // A death: the lease has to end by itself.
    own.target(at).signal(Signal::KILL);
    own.running[at] = None;
    let begin = Instant::now();
    own.wait_until_primary(1 - at);
    own.goes_on(1 - at, "a death");
    println!("after a death within {:?}", begin.elapsed());
    own.run(at);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!own.is_primary(at), "the other one is");
    at = 1 - at;
    // One that is stopped for longer than its lease is killed by the kernel before the other one
    // serves, so that nothing comes of what it had begun when it is continued.
    own.target(at).signal(Signal::STOP);
    own.wait_until_primary(1 - at);
    own.goes_on(1 - at, "the end of the lease of one that is stopped");
    std::thread::sleep(ttl);
    own.target(at).signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(own.running[at].take().expect("it was there").wait(), None, "killed by a signal");
    own.run(at);
    at = 1 - at;
    // Without etcd nobody can be sure to be primary.
    etcd.signal(Signal::STOP);
    let begin = Instant::now();
    while own.is_primary(at) {
        assert!(begin.elapsed() < ttl, "it still serves");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(ttl);
    assert!(!own.is_primary(0) && !own.is_primary(1));
    let metrics = own.metrics(at);
    assert!(metrics["failures_total"] >= 1.0 && metrics["primary"] == 0.0, "{metrics:?}");
    etcd.signal(Signal::CONT);
    let at = own.wait_for_primary();
    own.goes_on(at, "the return of etcd");
    own.ends_well(load);
    let other = own.running[1 - at].take().expect("it runs");
    other.stop();
    own.running[at].take().expect("it runs").stop();
}

/// The files of a member that etcd is to know, of which the folder has copies.
#[cfg(feature = "tls")]
fn with_tls(folder: &Folder, url: &str) -> String {
    use std::os::unix::fs::PermissionsExt;

    let [cert, key] = ["member", "member-key"].map(|name| {
        let copy = folder.path(name);
        std::fs::copy(certificate(name), &copy).expect("a copy");
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o600)).expect("its owner's");
        copy
    });
    let (ca, cert, key) = (certificate("authority"), text(&cert), text(&key));
    format!(
        "etcd = [{url:?}]\nttl = \"3s\"\netcd-cacert = {ca:?}\netcd-cert = {cert:?}\n\
         etcd-key = {key:?}"
    )
}

#[cfg(feature = "tls")]
#[test]
fn a_pair_with_etcd_over_tls_knows_it_by_its_certificate_and_is_known_by_its_own() {
    if !has_etcd() {
        return;
    }
    let mut etcd = None;
    let arbiter = |folder: &Folder| {
        let started = etcd.insert(Etcd::start_with_tls(folder));
        with_tls(folder, &started.url)
    };
    let mut own = Members::start("pair-etcd-tls", arbiter, DRIVERS[0]);
    let mut at = own.wait_for_primary();
    let load = own.load();
    own.goes_on(at, "the start");
    own.hand_over(at);
    at = 1 - at;
    own.goes_on(at, "a hand-over");
    own.target(at).signal(Signal::KILL);
    own.running[at] = None;
    own.wait_until_primary(1 - at);
    at = 1 - at;
    own.goes_on(at, "a death");
    // The files are read for each connection: without its certificate it cannot renew the lease.
    let cert = own.folder.path("member");
    std::fs::write(&cert, "").expect("a file");
    own.target(at).wait_for_log("member: it has no certificate");
    own.target(at).wait_for_log("this member stands by");
    std::fs::copy(certificate("member"), &cert).expect("a copy");
    own.wait_until_primary(at);
    own.goes_on(at, "a new certificate");
    // Neither an etcd of another authority nor a member without a certificate is trusted.
    let arbiter = own.arbiter.clone();
    let authority = format!("{:?}", certificate("authority"));
    own.arbiter = arbiter.replace(&authority, &format!("{:?}", certificate("member")));
    own.run(1 - at);
    own.target(1 - at).wait_for_log("invalid peer certificate: UnknownIssuer");
    own.running[1 - at].take().expect("it runs").stop();
    own.arbiter = arbiter.split("\netcd-cert").next().expect("a beginning").to_owned();
    own.run(1 - at);
    own.target(1 - at).wait_for_log("received fatal alert: ");
    own.running[1 - at].take().expect("it runs").stop();
    own.ends_well(load);
    own.running[at].take().expect("it runs").stop();
}

#[cfg(feature = "tls")]
#[test]
fn a_target_whose_files_of_tls_to_etcd_are_wrong_does_not_start() {
    let folder = Folder::new("pair-tls-files");
    let arbiter = with_tls(&folder, "https://127.0.0.1:1");
    let fault = |name: &str| {
        let config = format!(
            "[pair]\nmember = 1\n{arbiter}\n[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\n"
        );
        let config = folder.write(name, config);
        weft(DRIVERS[0], ["target", "--config", text(&config)]).fault()
    };
    std::fs::write(folder.path("member-key"), "no key").expect("a file");
    let told = fault("no-key");
    assert!(told.contains("member-key: No pem encoded private key found"), "{told}");
    std::fs::remove_file(folder.path("member-key")).expect("a file");
    let told = fault("none");
    assert!(told.contains("member-key: No such file"), "{told}");
    std::fs::remove_file(folder.path("member")).expect("a file");
    let told = fault("neither");
    assert!(told.contains("member: No such file"), "{told}");
}
