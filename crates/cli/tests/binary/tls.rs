//! TLS on the way between host and target, with somebody in between who sees and changes bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::paths::PATIENCE;
use crate::weft::{
    CommandOutput, DRIVERS, Folder, NQN, Target, pattern, text, weft, weft_with_stdin,
};

pub(crate) const HOST: &str = "nqn.2024-01.io.example:tls-host";
const OTHER_HOST: &str = "nqn.2024-01.io.example:tls-other";

/// No byte is changed.
pub(crate) const NEVER: u64 = u64::MAX;

/// What is done to the bytes that come together with a certain one.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tampering {
    /// A bit of that byte is flipped.
    Flip,
    /// The connection ends before it.
    Cut,
    /// They are sent twice.
    Repeat,
    /// They go back to who has sent them.
    Reflect,
}

/// Carries connections to a target, keeps what it has seen, and changes what it is told to.
pub(crate) struct Adversary {
    port: u16,
    seen: Arc<Traffic>,
}

#[derive(Default)]
struct Traffic {
    /// What the host and the target have sent, of each connection.
    streams: Mutex<Vec<[Vec<u8>; 2]>>,
    sockets: Mutex<Vec<TcpStream>>,
    /// The byte of each connection to do something about, of which side, and what.
    at: AtomicU64,
    side: AtomicUsize,
    deed: Mutex<Option<Tampering>>,
}

impl Adversary {
    pub(crate) fn new(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Traffic { at: NEVER.into(), ..Traffic::default() });
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let Ok(target) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let index = {
                    let mut streams = shared.streams.lock().expect("no panic");
                    streams.push(Default::default());
                    streams.len() - 1
                };
                let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                shared.sockets.lock().expect("no panic").extend([copy(&host), copy(&target)]);
                for (side, from, to) in
                    [(0, copy(&host), copy(&target)), (1, copy(&target), copy(&host))]
                {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.carry(index, side, from, to));
                }
            }
        });
        Self { port, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}?nsid=1", self.port)
    }

    /// Waits until so many connections have been made, of which the last one carries data.
    pub(crate) fn waits_for(&self, connections: usize) {
        const DATA: usize = 256 << 10;
        let begin = Instant::now();
        let carries = |streams: &[[Vec<u8>; 2]]| {
            let last = streams.last().filter(|_| streams.len() >= connections);
            last.is_some_and(|of| of.iter().map(Vec::len).sum::<usize>() > DATA)
        };
        while !carries(&self.seen.streams.lock().expect("no panic")) {
            assert!(begin.elapsed() < PATIENCE, "no data on connection {connections}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for socket in self.seen.sockets.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Flips a bit of the byte at this place of what one side sends on each connection.
    pub(crate) fn change(&self, side: usize, at: u64) {
        self.meddle(Tampering::Flip, side, at);
    }

    /// Does this at this place of what one side sends on each connection.
    pub(crate) fn meddle(&self, deed: Tampering, side: usize, at: u64) {
        *self.seen.deed.lock().expect("no panic") = Some(deed);
        self.seen.side.store(side, Ordering::SeqCst);
        self.seen.at.store(at, Ordering::SeqCst);
    }

    /// Takes what was seen.
    pub(crate) fn take(&self) -> Vec<[Vec<u8>; 2]> {
        std::mem::take(&mut *self.seen.streams.lock().expect("no panic"))
    }
}

impl Traffic {
    fn carry(&self, index: usize, side: usize, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        let mut carried = 0;
        while let Ok(length) = from.read(&mut buffer)
            && length > 0
        {
            let bytes = &mut buffer[..length];
            if let Some(stream) = self.streams.lock().expect("no panic").get_mut(index) {
                stream[side].extend_from_slice(bytes);
            }
            let at = self.at.load(Ordering::SeqCst).checked_sub(carried);
            carried += length as u64;
            let place = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < length);
            let place = place.filter(|_| side == self.side.load(Ordering::SeqCst));
            let deed = *self.deed.lock().expect("no panic");
            let went_on = match (place, deed) {
                (Some(place), Some(Tampering::Flip)) => {
                    bytes[place] ^= 1;
                    to.write_all(bytes)
                }
                (Some(place), Some(Tampering::Cut)) => {
                    // It may have ended already.
                    let _ = to.write_all(&bytes[..place]);
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = to.shutdown(Shutdown::Both);
                    return;
                }
                (Some(_), Some(Tampering::Repeat)) => {
                    to.write_all(bytes).and_then(|()| to.write_all(bytes))
                }
                (Some(_), Some(Tampering::Reflect)) => from.write_all(bytes),
                _ => to.write_all(bytes),
            };
            if went_on.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Whether a stream is records of TLS from its begin to its end; the last one may be cut.
pub(crate) fn is_tls(mut stream: &[u8]) -> bool {
    while let Some(header) = stream.first_chunk::<5>() {
        let [kind, 3, 1..=3, high, low] = *header else { return false };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if !(0x14..=0x17).contains(&kind) || length > (1 << 14) + 256 {
            return false;
        }
        stream = stream.get(5 + length..).unwrap_or_default();
    }
    true
}

/// A new key of TLS in a file.
pub(crate) fn key(folder: &Folder, name: &str, words: &[&str]) -> PathBuf {
    let path = folder.path(name);
    weft("epoll", [&["key", "generate", "tls", text(&path)], words].concat()).text();
    path
}

/// Serves with TLS.
fn target(folder: &Folder, driver: &'static str, mode: &str, keys: &str) -> Target {
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"{mode}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\n{keys}\n\
         [[subsystem.host]]\nnqn = \"{OTHER_HOST}\"\n\
         [[subsystem.namespace]]\nmemory = \"8MiB\"\n"
    );
    let config = folder.write("target.toml", config);
    Target::start(driver, &["--config", text(&config)])
}

pub(crate) fn run(url: &str, verb: &str, key: &Path, words: &[&str]) -> CommandOutput {
    let tls = ["--hostnqn", HOST, "--tls", "--tls-key-file", text(key)];
    weft("epoll", [&[verb], &tls[..], words, &["--", url]].concat())
}

#[test]
fn no_byte_of_a_required_port_is_in_the_clear() {
    for (driver, hash) in DRIVERS.into_iter().zip(["sha256", "sha384"]) {
        let folder = Folder::new("tls");
        let own = key(&folder, "own", &["--hmac", hash]);
        let target = target(&folder, driver, "required", &format!("psk = [{own:?}]"));
        let between = Adversary::new(target.port(0));
        let url = between.url();
        let data = pattern(3 << 20);
        let file = folder.write("data", &data);
        let words =
            ["--hostnqn", HOST, "--tls", "--tls-key-file", text(&own), "--data", text(&file)];
        let wrote = weft(driver, [&["write"], &words[..], &["--", &url]].concat());
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
        let size = data.len().to_string();
        for digests in [&[][..], &["--hdr-digest", "--data-digest"]] {
            let read = run(&url, "read", &own, &[digests, &["--data-size", &size]].concat());
            assert_eq!(read.code, Some(0), "{}", read.stderr);
            assert!(read.stdout == data, "what was read is not what was written");
        }
        let streams = between.take();
        assert!(streams.len() >= 6, "three hosts with two queues each: {}", streams.len());
        for [host, target] in &streams {
            assert!(is_tls(host) && is_tls(target) && host.len() > 500 && target.len() > 500);
            // The host offers both identities; its name is no secret.
            assert!(host.windows(HOST.len()).any(|part| part == HOST.as_bytes()));
            let shown = |stream: &[u8]| stream.windows(64).any(|part| part == &data[4096..4160]);
            assert!(!shown(host) && !shown(target));
        }
        // A host without TLS gets nothing, whatever it is called.
        let plain = weft(driver, ["list", "--hostnqn", HOST, "--", &url]);
        assert_ne!(plain.code, Some(0), "{}", plain.stderr);
        target.wait_for_log("does not speak TLS");
        let streams = between.take();
        assert!(!streams.is_empty());
        assert!(streams.iter().all(|[host, target]| host.len() == 128 && target.is_empty()));
        target.stop();
    }
}

#[test]
fn who_has_not_the_key_or_has_another_name_gets_in_nowhere() {
    let folder = Folder::new("tls-keys");
    let (own, next) = (key(&folder, "own", &[]), key(&folder, "next", &["-m", "sha384"]));
    let other = key(&folder, "other", &[]);
    let keys = format!("psk = [{own:?}, {next:?}]");
    let target = target(&folder, "epoll", "required", &keys);
    let url = target.url(1);
    for known in [&own, &next] {
        assert_eq!(run(&url, "list", known, &[]).code, Some(0), "while keys are changed, both do");
    }
    let refused = run(&url, "list", &other, &[]).fault();
    assert!(!refused.contains(&std::fs::read_to_string(&other).expect("the key")));
    assert!(refused.contains("ended the TLS handshake"), "{refused}");
    target.wait_for_log("TLS:");
    let words = ["--hostnqn", OTHER_HOST, "--tls", "--tls-key-file", text(&own), "--", &url];
    let refused = weft("epoll", [&["list"], &words[..]].concat()).fault();
    assert!(refused.contains("ended the TLS handshake"), "{refused}");
    target.wait_for_log("no key is configured for a PSK identity");
    // The same key, derived in another way.
    run(&url, "list", &own, &["--tls-compat"]).fault();
    let log = run(&format!("tcp://127.0.0.1:{}", target.port(0)), "discover", &own, &[]).text();
    for line in ["treq:    required, sq flow control disable supported", "sectype: tls13"] {
        assert!(log.lines().any(|found| found == line), "{line} is not in\n{log}");
    }
    target.stop();
}

#[test]
fn an_allowed_port_serves_both() {
    let folder = Folder::new("tls-allowed");
    let own = key(&folder, "own", &[]);
    let keys = format!("psk = [{own:?}]\npsk-compat = true");
    let target = target(&folder, "uring", "allowed", &keys);
    let between = Adversary::new(target.port(0));
    assert_eq!(run(&between.url(), "list", &own, &["--tls-compat"]).code, Some(0));
    assert!(between.take().iter().all(|[host, target]| is_tls(host) && is_tls(target)));
    let plain = weft("epoll", ["list", "--hostnqn", HOST, "--", &between.url()]);
    assert_eq!(plain.code, Some(0), "{}", plain.stderr);
    assert!(between.take().iter().any(|[host, target]| !is_tls(host) && !is_tls(target)));
    target.stop();
}

/// Whatever byte somebody changes, of the handshake or of records, no data gets through.
#[test]
fn a_byte_that_is_changed_on_the_way_lets_no_data_through() {
    let folder = Folder::new("tls-changed");
    let own = key(&folder, "own", &[]);
    let target = target(&folder, "epoll", "required", &format!("psk = [{own:?}]"));
    let between = Adversary::new(target.port(0));
    let data = pattern(64 << 10);
    let url = target.url(1);
    let words = ["--hostnqn", HOST, "--tls", "--tls-key-file", text(&own), "--", &url];
    weft_with_stdin("epoll", &[&["write"], &words[..]].concat(), &data);
    // Type, length and fields of the hellos, key shares, binders, Finished, and then records.
    for side in [0, 1] {
        for at in [0, 3, 5, 9, 11, 43, 100, 150, 250, 330, 400, 450, 520] {
            between.change(side, at);
            let words = ["--data-size", "65536", "--ctrl-loss-tmo", "0"];
            let read = run(&between.url(), "read", &own, &words);
            assert_ne!(read.code, Some(0), "{side} {at}");
            assert!(read.stdout.is_empty(), "{side} {at}: {} bytes", read.stdout.len());
        }
    }
    between.change(0, NEVER);
    let read = run(&between.url(), "read", &own, &["--data-size", "65536"]);
    assert!(read.stdout == data, "the target serves on: {}", read.stderr);
    target.stop();
}

/// Connections are cut, and what is sent is repeated and sent back, anywhere in the handshake and
/// after it: what is read is right or nothing, and the target says why a connection has ended.
#[test]
fn whatever_is_cut_repeated_or_sent_back_no_other_data_gets_through() {
    let folder = Folder::new("tls-meddled");
    let own = key(&folder, "own", &[]);
    let target = target(&folder, "epoll", "required", &format!("psk = [{own:?}]"));
    let between = Adversary::new(target.port(0));
    let data = pattern(64 << 10);
    let url = target.url(1);
    let words = ["--hostnqn", HOST, "--tls", "--tls-key-file", text(&own), "--", &url];
    weft_with_stdin("epoll", &[&["write"], &words[..]].concat(), &data);
    let mut ended = 0;
    for deed in [Tampering::Cut, Tampering::Repeat, Tampering::Reflect] {
        for side in [0, 1] {
            for at in (0..1100).step_by(89) {
                between.meddle(deed, side, at);
                let words = ["--data-size", "65536", "--ctrl-loss-tmo", "0"];
                let read = run(&between.url(), "read", &own, &words);
                let is_whole = read.code == Some(0) && read.stdout == data;
                let is_nothing = read.code != Some(0) && read.stdout.is_empty();
                assert!(is_whole || is_nothing, "{side} {at}: {}", read.stderr);
                ended += usize::from(is_nothing);
                for [host, target] in between.take() {
                    assert!(is_tls(&host) && is_tls(&target), "{side} {at}: in the clear");
                }
            }
        }
    }
    assert!(ended >= 60, "only {ended} were noticed");
    target.wait_for_log("connection ended: TLS:");
    between.change(0, NEVER);
    let read = run(&between.url(), "read", &own, &["--data-size", "65536"]);
    assert!(read.stdout == data, "the target serves on: {}", read.stderr);
    target.stop();
}

#[test]
fn a_host_comes_back_with_tls() {
    let folder = Folder::new("tls-reconnect");
    let own = key(&folder, "own", &[]);
    let target = target(&folder, "epoll", "required", &format!("psk = [{own:?}]"));
    let between = Arc::new(Adversary::new(target.port(0)));
    let (cutter, url) = (Arc::clone(&between), between.url());
    let cuts = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(700));
            cutter.cut();
        }
    });
    let words = ["--rw", "randrw", "--iodepth", "8", "--runtime", "4s", "--quiet", "-o", "json"];
    let load = run(&url, "bench", &own, &[&words[..], &["--reconnect-delay", "0"]].concat());
    cuts.join().expect("no panic");
    let load = load.json();
    assert!(load["jobs"][0]["read"]["total_ios"].as_u64() > Some(100), "{load}");
    let streams = between.take();
    assert!(streams.len() >= 8, "four times two queues: {}", streams.len());
    assert!(streams.iter().all(|[host, target]| is_tls(host) && is_tls(target)));
    target.stop();
}

/// The kernel has the records at both ends, or, without its module, one sentence says so.
#[test]
fn the_kernel_has_the_records_or_has_no_tls_and_that_is_said() {
    let folder = Folder::new("tls-kernel");
    let own = key(&folder, "own", &[]);
    let keys = format!("psk = [{own:?}]");
    let config = |mode: &str| {
        let words = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"{mode}\"\ntls-records = \"kernel\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\n{keys}\n\
             [[subsystem.namespace]]\nmemory = \"8MiB\"\n"
        );
        folder.write("kernel.toml", words)
    };
    let off = weft("epoll", ["target", "--config", text(&config("off"))]).fault();
    assert!(off.contains("tls-records") && off.contains("or set tls"), "{off}");
    let config = config("required");
    if let Err(none) = weft_reactor::check_kernel_records() {
        assert!(none.to_string().contains("modprobe tls"), "{none}");
        let refused = weft("epoll", ["target", "--config", text(&config)]).fault();
        assert!(refused.contains("port 1 (tls-records): this kernel has no TLS"), "{refused}");
        let target = target(&folder, "epoll", "required", &keys);
        let refused = run(&target.url(1), "list", &own, &["--tls-records", "kernel"]).fault();
        assert!(refused.contains("this kernel has no TLS (load its module"), "{refused}");
        return target.stop();
    }
    for driver in DRIVERS {
        let target = Target::start(driver, &["--config", text(&config)]);
        for records in ["kernel", "user"] {
            let words = ["--tls-records", records, "-o", "json"];
            let found = run(&target.url(1), "list", &own, &words).json();
            assert_eq!(found["Devices"][0]["TLSRecords"], records, "{found}");
        }
        target.wait_for_log("records of the kernel");
        target.stop();
    }
}

/// The TLS library would read them when it is initialized. They are in a pipe here, to which nobody
/// writes.
#[test]
fn no_certificates_of_the_system_are_read() {
    let folder = Folder::new("tls-certificates");
    let own = key(&folder, "own", &[]);
    let target = target(&folder, "epoll", "required", &format!("psk = [{own:?}]"));
    let pipe = folder.path("certificates");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("SSL_CERT_FILE", &pipe).args(["list", "--hostnqn", HOST, "--tls"]);
    command.args(["--tls-key-file", text(&own), "--", &target.url(1)]);
    let mut weft = command.stdout(Stdio::null()).spawn().expect("weft");
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        match weft.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    // It would wait for ever.
    let _ = weft.kill();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    target.stop();
}
