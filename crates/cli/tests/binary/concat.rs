//! Secure concatenation: keys of TLS that the authentication makes, with somebody in between who
//! sees and changes bytes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::paths::interrupted;
use crate::tls::{Adversary, HOST, NEVER, is_tls};
use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, command, pattern, text, weft};

/// A new secret in a file.
fn secret(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    weft("epoll", ["key", "generate", "dhchap", text(&path)]).text();
    path
}

/// Serves at a port with this TLS and at one without, to a host with these keys.
fn target(folder: &Folder, driver: &'static str, mode: &str, keys: &str) -> Target {
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"{mode}\"\n\
         [[port]]\nlisten = \"tcp://127.0.0.2:0\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\n{keys}\n\
         [[subsystem.namespace]]\nmemory = \"8MiB\"\n"
    );
    let config = folder.write("target.toml", config);
    Target::start(driver, &["--config", text(&config), "-vv"])
}

fn run(
    driver: &'static str,
    url: &str,
    verb: &str,
    secret: &Path,
    words: &[&str],
) -> CommandOutput {
    let own = ["--hostnqn", HOST, "--dhchap-secret-file", text(secret)];
    weft(driver, [&[verb], &own[..], words, &["--", url]].concat())
}

/// The commands that a host has sent in the clear: opcode, and type if it is of Fabrics.
fn commands(mut stream: &[u8]) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    while let Some(header) = stream.first_chunk::<8>() {
        let [kind, .., a, b, c, d] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if kind == 4
            && let Some(command) = stream.get(8..)
        {
            found.push((command[0], command[4]));
        }
        stream = stream.get(length.max(8)..).unwrap_or_default();
    }
    found
}

/// Whether a stream in the clear has only Connect and the authentication.
fn authenticates_only(host: &[u8]) -> bool {
    let commands = commands(host);
    commands.iter().all(|command| matches!(command, (0x7f, 1 | 5 | 6)))
}

#[test]
fn after_the_authentication_no_byte_is_in_the_clear() {
    for (driver, mutual) in DRIVERS.into_iter().zip([false, true]) {
        let folder = Folder::new("concat");
        let (own, controllers) = (secret(&folder, "own"), secret(&folder, "controllers"));
        let keys = format!("dhchap-key = {own:?}\ndhchap-ctrlr-key = {controllers:?}");
        let target = target(&folder, driver, "allowed", &keys);
        let between = Adversary::new(target.port(0));
        let url = between.url();
        let data = pattern(3 << 20);
        let file = folder.write("data", &data);
        let size = data.len().to_string();
        let both: &[&str] = match mutual {
            true => &["--concat", "--dhchap-ctrl-secret-file", text(&controllers)],
            false => &["--concat"],
        };
        let words = [both, &["--data", text(&file)]].concat();
        let wrote = run(driver, &url, "write", &own, &words);
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
        let read = run(driver, &url, "read", &own, &[both, &["--data-size", &size]].concat());
        assert_eq!(read.code, Some(0), "{}", read.stderr);
        assert!(read.stdout == data, "what was read is not what was written");

        let streams = between.take();
        let (secure, clear): (Vec<_>, Vec<_>) =
            streams.iter().partition(|[host, target]| is_tls(host) && is_tls(target));
        assert_eq!(clear.len(), 2, "one for each host");
        assert_eq!(secure.len(), 4, "an admin queue and an I/O queue of each host");
        for [host, target] in clear {
            assert!(authenticates_only(host), "{:?}", commands(host));
            assert!(host.len() < 8192 && target.len() < 16384);
        }
        let shown = |stream: &[u8]| stream.windows(64).any(|part| part == &data[4096..4160]);
        assert!(secure.iter().all(|[host, target]| !shown(host) && !shown(target)));
        // Each has keys of its own.
        let identities: Vec<_> = secure
            .iter()
            .filter_map(|[host, _]| {
                let at = host.windows(7).position(|part| part == b"NVMe1G0")?;
                let length = u16::from_be_bytes([*host.get(at - 2)?, *host.get(at - 1)?]);
                host.get(at..at + usize::from(length))
            })
            .collect();
        assert_eq!(identities.len(), 4, "a generated key");
        assert_eq!((identities[0], identities[2]), (identities[1], identities[3]));
        assert_ne!(identities[0], identities[2]);
        target.stop();
    }
}

#[test]
fn who_is_to_make_keys_of_tls_is_not_served_without() {
    let folder = Folder::new("concat-required");
    let own = secret(&folder, "own");
    let keys = format!("dhchap-key = {own:?}\ndhchap-concat = true");
    let target = target(&folder, "epoll", "allowed", &keys);
    let (url, clear) = (target.url(1), target.url(1).replace("127.0.0.1", "127.0.0.2"));
    let clear = clear.replace(&target.port(0).to_string(), &target.port(1).to_string());
    let refused = run("epoll", &url, "list", &own, &[]).fault();
    assert!(refused.contains("--concat"), "{refused}");
    let list = run("epoll", &url, "list", &own, &["--concat"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    for words in [&[][..], &["--concat"]] {
        let refused = run("epoll", &clear, "list", &own, words).fault();
        assert!(refused.contains("not allowed"), "a port without TLS: {refused}");
    }
    let refused = run("epoll", &url, "list", &secret(&folder, "other"), &["--concat"]).fault();
    assert!(refused.contains("does not accept this host's secret"), "{refused}");
    target.stop();
}

#[test]
fn keys_of_tls_are_made_only_where_both_ends_do() {
    let folder = Folder::new("concat-ends");
    let own = secret(&folder, "own");
    // A target that would serve without an exchange.
    let open = target(&folder, "epoll", "allowed", "");
    let refused = run("epoll", &open.url(1), "list", &own, &["--concat"]).fault();
    assert!(refused.contains("asks for no authentication"), "{refused}");
    open.stop();
    // One without TLS, and one that has nothing in the clear.
    for (mode, part) in [("off", "concatenation mismatch"), ("required", "")] {
        let target = target(&folder, "epoll", mode, &format!("dhchap-key = {own:?}"));
        let refused = run("epoll", &target.url(1), "list", &own, &["--concat"]).fault();
        assert!(refused.contains(part), "{refused}");
        target.stop();
    }
    // Whoever need not make keys is served without, too.
    let target = target(&folder, "epoll", "allowed", &format!("dhchap-key = {own:?}"));
    for words in [&[][..], &["--concat"]] {
        assert_eq!(run("epoll", &target.url(1), "list", &own, words).code, Some(0));
    }
    target.stop();
}

/// Whatever byte somebody changes of the first connection or of those after it: what is read is
/// right or nothing, and nothing but the authentication is in the clear.
#[test]
fn a_byte_that_is_changed_shows_nothing_and_lets_nothing_through() {
    let folder = Folder::new("concat-changed");
    let own = secret(&folder, "own");
    let target = target(&folder, "epoll", "allowed", &format!("dhchap-key = {own:?}"));
    let between = Adversary::new(target.port(0));
    let data = pattern(64 << 10);
    let file = folder.write("data", &data);
    let words = ["--concat", "--data", text(&file)];
    assert_eq!(run("epoll", &target.url(1), "write", &own, &words).code, Some(0));
    let words = ["--concat", "--data-size", "65536", "--ctrl-loss-tmo", "0"];
    let mut refused = 0;
    for side in [0, 1] {
        for at in (0..2400).step_by(89).chain([1302]) {
            between.change(side, at);
            let read = run("epoll", &between.url(), "read", &own, &words);
            let is_whole = read.code == Some(0) && read.stdout == data;
            assert!(is_whole || (read.code != Some(0) && read.stdout.is_empty()), "{side} {at}");
            refused += usize::from(!is_whole);
            for [host, target] in between.take() {
                let is_secure = is_tls(&host) && is_tls(&target);
                assert!(is_secure || authenticates_only(&host), "{side} {at}");
            }
        }
    }
    assert!(refused > 10, "only {refused} changes were noticed");
    between.change(0, NEVER);
    assert_eq!(run("epoll", &between.url(), "read", &own, &words).stdout, data);
    target.stop();
}

#[test]
fn a_host_that_comes_back_makes_new_keys() {
    let folder = Folder::new("concat-reconnect");
    let own = secret(&folder, "own");
    let keys = format!("dhchap-key = {own:?}\ndhchap-concat = true");
    let target = target(&folder, "epoll", "allowed", &keys);
    let between = Adversary::new(target.port(0));
    let words = "bench --rw randrw --iodepth 8 --time_based --runtime 300 --quiet --concat \
                 --reconnect-delay 0";
    let load = command("epoll")
        .args(words.split_whitespace())
        .args(["--hostnqn", HOST, "--dhchap-secret-file", text(&own), "--", &between.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary");
    // The admin queue before it has keys and with them, and one of commands.
    for round in 1..=3 {
        between.waits_for(3 * round);
        between.cut();
    }
    between.waits_for(12);
    interrupted(load);
    let streams = between.take();
    let (secure, clear): (Vec<_>, Vec<_>) =
        streams.iter().partition(|[host, target]| is_tls(host) && is_tls(target));
    assert!(clear.len() >= 4 && secure.len() >= 8, "{} {}", clear.len(), secure.len());
    assert!(clear.iter().all(|[host, _]| authenticates_only(host)));
    target.stop();
}

/// Another exchange over TLS makes the next key, while the load goes on.
#[test]
fn keys_are_replaced_while_they_are_used() {
    let folder = Folder::new("concat-again");
    let own = secret(&folder, "own");
    let keys = format!("dhchap-key = {own:?}\ndhchap-concat = true");
    let target = target(&folder, "epoll", "allowed", &keys);
    let words = ["--rw", "randrw", "--iodepth", "8", "--runtime", "4s", "--quiet", "-o", "json"];
    // The first loss would end it.
    let again = ["--time_based", "--concat", "--dhchap-interval", "1", "--ctrl-loss-tmo", "0"];
    let load = run("epoll", &target.url(1), "bench", &own, &[&words[..], &again].concat());
    let load = load.json();
    assert!(load["jobs"][0]["read"]["total_ios"].as_u64() > Some(100), "{load}");
    let keys: Vec<_> = (0..3).map(|_| target.wait_for_log("has made a key of TLS")).collect();
    assert!(keys[0] != keys[1] && keys[1] != keys[2], "{keys:?}");
    target.stop();
}
