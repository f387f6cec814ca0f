//! `weft target --metrics`, as Prometheus meets it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use crate::weft::{Folder, NQN, Target, command, weft};

/// Sends these bytes; returns the whole answer.
fn ask(target: &Target, request: &str) -> String {
    let url = target.said["metrics"].as_str().expect("an address");
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

pub(crate) fn get(target: &Target, path: &str, accept: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    let answer = ask(target, &request);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// The value of the only series of this name whose labels have all of these.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let found: Vec<&str> = text
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:#?}");
    found[0].rsplit_once(' ').expect("a value").1.parse().expect("a number")
}

#[test]
fn a_scrape_is_answered_beside_connections_that_ask_for_nothing() {
    let target = Target::start("epoll", &["--memory", "1MiB", "--metrics", "0"]);
    let url = target.said["metrics"].as_str().expect("an address");
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    let idle = (0..100).map(|_| TcpStream::connect(address).expect("a connection"));
    let idle: Vec<TcpStream> = idle.collect();
    for _ in 0..20 {
        let (head, _) = get(&target, "/metrics", "*/*");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    }
    drop(idle);
    target.stop();
}

#[test]
fn what_is_scraped_is_what_the_load_did() {
    let words = ["--memory", "8MiB", "--metrics", "0", "--metrics-buckets", "100us,10ms,30s"];
    let target = Target::start("uring", &words);
    let url = target.url(1);
    let load = ["bench", "--rw=randrw", "--bs=4k", "--iodepth=8", "--number_ios=3000", &url];
    let report = weft(target.driver, [&load[..], &["--output-format=json"]].concat()).json();
    let job = &report["jobs"][0];
    let (_, text) = get(&target, "/metrics", "*/*");
    // A load begins with one read of the first block that it does not count.
    for (command, more) in [("read", 1.0), ("write", 0.0)] {
        let label = format!("command=\"{command}\"");
        let labels = ["nsid=\"1\"", &label];
        let ios = job[command]["total_ios"].as_f64().expect("a number");
        assert!(ios > 500.0, "{job}");
        let ios = ios + more;
        let name = "weft_host_command_duration_seconds";
        assert_eq!(value(&text, &format!("{name}_count"), &labels), ios);
        let all = [&labels[..], &["le=\"+Inf\""]].concat();
        assert_eq!(value(&text, &format!("{name}_bucket"), &all), ios);
        let beyond = [&labels[..], &["le=\"30\""]].concat();
        assert_eq!(value(&text, &format!("{name}_bucket"), &beyond), ios);
        assert!(value(&text, &format!("{name}_sum"), &labels) > 0.0);
        assert_eq!(value(&text, "weft_host_bytes_total", &labels), ios * 4096.0);
        for status in ["path", "compare", "media", "internal", "request"] {
            let status = format!("status=\"{status}\"");
            let labels = [&labels[..], &[&status]].concat();
            assert_eq!(value(&text, "weft_host_errors_total", &labels), 0.0);
        }
        assert_eq!(value(&text, "weft_namespace_commands_total", &labels), ios);
    }
    assert!(text.contains("weft_queues_connected_total{group=\"0\",queue=\"io\"} "), "{text}");
    let of = |name| value(&text, name, &[]);
    assert_eq!(of("weft_namespace_size_bytes"), f64::from(8 << 20));
    assert!(of("weft_group_pool_used_bytes") <= of("weft_group_pool_bytes"));
    assert!(of("weft_connections_limit") >= 1.0);
    assert!(of("process_resident_memory_bytes") > f64::from(1 << 20));
    assert!((1.0..=of("process_max_fds")).contains(&of("process_open_fds")));
    assert!(of("process_cpu_seconds_total") >= 0.0, "in ticks of 10 ms");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.expect("after 1970").as_secs_f64() - of("process_start_time_seconds");
    assert!((-1.0..600.0).contains(&age), "{age} s");
    let (head, open) = get(&target, "/metrics", "application/openmetrics-text;version=1.0.0");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    target.stop();
}

#[test]
fn a_target_is_ready_while_a_port_is_open() {
    let folder = Folder::new("ready");
    let control = format!("unix:{}", folder.path("control").display());
    let mut empty = command("epoll");
    empty.args(["target", "--stop-with-stdin", "-o", "json", "--metrics", "0"]);
    empty.args(["--control", &control]);
    let target = Target::spawn("epoll", empty);
    let of = |path: &str| {
        let (head, body) = get(&target, path, "*/*");
        (head.split(' ').nth(1).expect("a status").to_owned(), body)
    };
    let answer = |status: &str, body: &str| (status.to_owned(), body.to_owned());
    assert_eq!(of("/healthz"), answer("200", "alive\n"));
    assert_eq!(of("/readyz"), answer("503", "no port is open yet\n"));
    let ctl = |words: &[&str]| {
        let all = [&["ctl", "--control", &control][..], words].concat();
        weft("epoll", all).text()
    };
    ctl(&["subsystem", "create", NQN, "--allow-any-host"]);
    ctl(&["listener", "add", NQN, "tcp://127.0.0.1:0"]);
    assert_eq!(of("/readyz"), answer("200", "ready\n"));
    ctl(&["subsystem", "delete", NQN]);
    target.stop();
}

#[test]
fn what_is_no_scrape_is_answered_with_an_error() {
    let target = Target::start("uring", &["--memory", "8MiB", "--metrics", "127.0.0.1:0"]);
    assert!(get(&target, "/", "*/*").0.starts_with("HTTP/1.1 404 "));
    let post = ask(&target, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    assert!(ask(&target, "\u{1}\u{2}\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let head = ask(&target, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(target.weft("flush", 1, &[]).code, Some(0), "it serves as before");
    target.stop();
}

#[test]
fn wrong_options_are_told_in_a_sentence() {
    let start = |words: &[&str]| weft("uring", [&["target", "--null", "1GiB"], words].concat());
    let buckets = start(&["--metrics", "0", "--metrics-buckets", "2ms,1ms"]).fault();
    assert!(buckets.contains("that ascend"), "{buckets}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let in_use = start(&["--listen", "tcp://127.0.0.1:0", "--metrics", &port]).fault();
    assert!(in_use.contains("cannot listen for --metrics on 127.0.0.1:"), "{in_use}");
}

#[test]
fn top_shows_what_the_load_does_and_has_done() {
    let folder = Folder::new("top");
    let control = format!("unix:{}", folder.path("control").display());
    let words = ["--memory", "8MiB", "--metrics", "0", "--control", &control];
    let target = Target::start("uring", &words);
    let load = ["--rw=randread", "--number_ios=1000"];
    assert_eq!(target.weft("bench", 1, &load).code, Some(0));
    let top = |words: &[&str]| {
        let always = ["top", "--control", &control, "--once", "--interval", "200ms"];
        weft(target.driver, [&always[..], words].concat())
    };
    let value = top(&["-o", "json"]).json();
    assert_eq!(value["hosts"], serde_json::json!([]), "there is no load now");
    let host = &value["since_start"]["hosts"][0];
    // A load begins with one read of the first block that it does not count.
    assert_eq!((&host["command"], &host["commands"]), (&"read".into(), &1001.into()));
    assert!(host["p99_ns"].as_f64() > Some(0.0), "{value}");

    let mut load = command(target.driver)
        .args(["bench", "--rw=randread", "--runtime=60", "--time_based", "--quiet", "--hostnqn"])
        .args(["nqn.2024-01.io.example:top", &target.url(1)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    let shown = |words: &[&str]| {
        for _ in 0..100 {
            let text = top(words).text();
            if text.contains("io.example:top") {
                return text;
            }
        }
        panic!("the load is not shown: {}", top(words).text());
    };
    let text = shown(&["--filter", "example:top", "--sort", "p99"]);
    let whole = top(&["--since-start", "--queues"]).text();
    for part in ["SLOWEST", "DEPTH", "WAITS FOR", "QUEUE OF", "127.0.0.1:"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
    let queues = &top(&["-o", "json", "--queues", "--filter", "example:top"]).json()["queues"];
    let ids: Vec<_> = queues.as_array().expect("a list").iter().map(|one| &one["qid"]).collect();
    assert_eq!(ids, [0, 1], "{queues}");
    load.kill().expect("it runs");
    load.wait().expect("it ends");
    assert!(
        text.contains("GROUP") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    target.stop();
}

#[test]
fn top_says_who_is_slow_and_what_it_waits_for() {
    let folder = Folder::new("slow");
    let control = format!("unix:{}", folder.path("control").display());
    let words = ["--memory", "8MiB", "--delay-read", "5ms", "--control", &control];
    let target = Target::start("uring", &[&words[..], &["--metrics", "0"]].concat());
    let limit = ["ctl", "--control", &control, "rate-limit", "set", "--rw", "write"];
    weft(target.driver, [&limit[..], &["--rate-iops", "50", "--burst", "20ms"]].concat()).text();
    for (rw, depth) in [("randread", "1"), ("randwrite", "8")] {
        // One host, also on a machine that has no name of its own for hosts.
        let host = "nqn.2024-01.io.example:slow";
        let load = ["--hostnqn", host, "--rw", rw, "--iodepth", depth, "--number_ios=25"];
        assert_eq!(target.weft("bench", 1, &load).code, Some(0), "{rw}");
    }
    let top = |words: &[&str]| {
        let always = ["top", "--control", &control, "--once", "--interval", "100ms"];
        weft(target.driver, [&always[..], words].concat())
    };
    let said = top(&["-o", "json"]).json();
    for (command, wait) in [("read", "device_ns"), ("write", "limit_ns")] {
        let hosts = said["since_start"]["hosts"].as_array().expect("hosts");
        let host = hosts.iter().find(|one| one["command"] == command).expect(command);
        let [waited, mean, commands] = [&host["waits"][wait], &host["mean_ns"], &host["commands"]]
            .map(|number| number.as_f64().expect("a number"));
        assert!(waited > 0.5 * mean * commands, "{command}: {host}");
    }
    let (_, text) = get(&target, "/metrics", "*/*");
    for (command, cause) in [("read", "device"), ("write", "limit")] {
        let [command, cause] = [format!("command=\"{command}\""), format!("cause=\"{cause}\"")];
        let waited = value(&text, "weft_host_wait_seconds_total", &[&command, &cause]);
        let all = value(&text, "weft_host_command_duration_seconds_sum", &[&command]);
        assert!(waited > 0.5 * all && waited <= all, "{command} {cause}: {waited} of {all}");
    }
    let text = top(&["--since-start"]).text();
    let slowest: Vec<_> = text.lines().skip_while(|line| !line.starts_with("SLOWEST")).collect();
    let write = slowest.iter().find(|line| line.contains(" write ")).expect("writes");
    let read = slowest.iter().find(|line| line.contains(" read ")).expect("reads");
    assert!(write.contains(" rate limit ") && read.contains(" device "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    target.stop();
}

/// `script` is the terminal, and what reads its output here is the person.
#[test]
fn keys_change_what_top_shows_and_leave_the_terminal_as_it_was() {
    let folder = Folder::new("top-keys");
    let control = format!("unix:{}", folder.path("control").display());
    let target = Target::start("epoll", &["--memory", "1MiB", "--control", &control]);
    let weft = env!("CARGO_BIN_EXE_weft");
    let steps =
        format!("stty cols 80 && {weft} top --control {control} --interval 100ms && stty -a");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &steps, "/dev/null"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.spawn().expect("script, of util-linux");
    let (mut keys, mut screen) = (script.stdin.take().expect("one"), script.stdout.take());
    let screen = screen.as_mut().expect("one");
    let mut seen = String::new();
    let mut until = |seen: &mut String, text: &str| {
        let mut piece = [0; 4096];
        while !seen.contains(text) {
            let count = screen.read(&mut piece).expect("a screen");
            assert_ne!(count, 0, "it ends before {text:?}: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    };
    until(&mut seen, "? shows the keys");
    assert!(!seen.contains("b bandwidth"), "{seen}");
    keys.write_all(b"?").expect("a key");
    until(&mut seen, "b bandwidth");
    keys.write_all(b"q").expect("a key");
    until(&mut seen, "icanon");
    until(&mut seen, " echo ");
    assert!(!seen.contains("-icanon"), "{seen}");
    drop(keys);
    assert!(script.wait().expect("an end").success(), "{seen}");
    target.stop();
}
