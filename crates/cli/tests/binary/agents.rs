//! Studies whose target and loads are started by agents.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weft_lab::results::{self, Mark, Record, Role, Status, number};

use crate::study::{RunningStudy, lines, plan, records};
use crate::weft::{Folder, command, text, weft};

/// Long enough for clocks and for a busy machine, whose loads have to count at the same time.
const TIMES: [&str; 6] = ["--runtime", "1s", "--ramp-time", "300ms", "--repeats", "1"];

/// A shell script that becomes an agent after these lines.
fn agent_after(folder: &Folder, name: &str, lines: &str) -> String {
    let script = format!("{lines}\nexec '{}' agent\n", env!("CARGO_BIN_EXE_weft"));
    format!("exec:sh {}", text(&folder.write(name, script)))
}

fn run<'a>(plan: &'a Path, out: &'a Path, how: &[&'a str]) -> Vec<&'a str> {
    let always = ["study", "run", text(plan), "--out", text(out), "--quick", "--seed", "1"];
    [&always[..], &TIMES, how].concat()
}

#[test]
fn loads_of_several_agents_are_one_result_and_local_cells_run_where_the_target_is() {
    let folder = Folder::new("agents");
    let body = "[axes]\ntransport = [\"local\", \"tcp\", \"loopback\"]\n[fixed]\ndepth = 2\n";
    let (plan, out) = (plan(&folder, body), folder.path("out"));
    let how = ["--local", "memory:8MiB", "--target-on", "here", "--load-on", "here,here"];
    let ran = weft("epoll", run(&plan, &out, &how));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let records = records(&out);
    let of = |transport: &str| {
        let is_it = |cell: &str| cell.contains(&format!("transport={transport}"));
        records.iter().find(|record| is_it(&record.cell)).expect(transport)
    };
    let skipped = of("loopback").status.reason().expect("a reason");
    assert!(skipped.contains("one process"), "{skipped}");
    let local = of("local");
    assert_eq!((&local.status, local.inside_target), (&Status::Measured, true));
    let tcp = of("tcp");
    assert_eq!(tcp.status, Status::Measured);
    // Two loads, each at the depth of the cell, and nothing else was served.
    assert_eq!(tcp.parts.len(), 2);
    let read = tcp.read.as_ref().expect("reads");
    assert_eq!(tcp.parts.iter().map(|part| part.requests).sum::<u64>(), read.requests);
    assert!(tcp.parts.iter().all(|part| part.requests > 0 && part.place == "here"));
    assert!(tcp.parts.iter().all(|part| part.began_s < 0.01), "{:?}", tcp.parts);
    let latency = read.latency.latency().expect("a histogram");
    assert_eq!(latency.count(), read.requests);
    let value = |name: &str| tcp.values.get(name).copied();
    assert_eq!(value(number::REQUESTS_ALL), value(number::SERVED_ALL));
    // All places are on one machine, whose processors count once.
    let connection = tcp.connection.as_ref().expect("a connection");
    assert!(connection.one_machine && tcp.has(Mark::Loopback));
    let host = tcp.host.as_ref().expect("the host's side");
    let stat = fs::read_to_string("/proc/stat").expect("counters");
    let cores = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    assert_eq!((host.machine.cores.len(), host.threads.len()), (cores.count(), 2));
    let environment = results::load(&out).expect("results").environment;
    let roles: Vec<&str> = environment.machines.iter().map(|machine| &*machine.role).collect();
    assert_eq!(roles, ["target", "load", "load"]);
    assert!(environment.machines.iter().all(|machine| !machine.boot_id.is_empty()));
    // The link is that between the machines of the target and of the first load.
    assert!(environment.idle.is_some() && !environment.link.is_empty());
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("machine of the load"), "the page names the machines");
    // The places are those of the run.
    let resumed = weft("epoll", ["study", "run", "--resume", text(&out)]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(records.iter().all(|record| record.command.contains("--load-on here")));
}

#[test]
fn a_greeting_of_a_shell_does_not_disturb_an_agent() {
    let folder = Folder::new("greeting");
    let greeting = "echo 'Welcome {to} this machine'\nprintf 'no end of line: '";
    let place = agent_after(&folder, "greet.sh", greeting);
    let (plan, out) = (plan(&folder, "[axes]\ndepth = [1]\n"), folder.path("out"));
    let how = ["--target-on", &place, "--load-on", &place, "--no-report"];
    let ran = weft("uring", run(&plan, &out, &how));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(records(&out)[0].status, Status::Measured);
}

#[test]
fn a_place_without_an_agent_is_named_with_what_helps() {
    let folder = Folder::new("no-agent");
    let (plan, out) = (plan(&folder, "[axes]\ndepth = [1]\n"), folder.path("out"));
    let other = r#"{"jsonrpc":"2.0","id":1,"result":{"build":{"version":"0.0.1","id":"0"},
        "boot_id":"","cpus":[],"rdma":false,"addresses":[],"environment":{}}}"#;
    let other = format!("read line\necho '{}'\nread line\n", other.replace('\n', ""));
    let other = format!("exec:sh {}", text(&folder.write("other.sh", other)));
    let talk = format!("exec:sh {}", text(&folder.write("talk.sh", "echo I am a shell\n")));
    for (place, expected) in [
        ("exec:/nowhere/weft agent", "cannot run /nowhere/weft"),
        ("exec:false", "no agent answers there (exit status: 1"),
        ("exec:sh -c nothing-like-weft", "it has no weft"),
        (talk.as_str(), "I am a shell"),
        (other.as_str(), "it has weft 0.0.1"),
    ] {
        let why = weft("epoll", run(&plan, &out, &["--target-on", "here", "--load-on", place]));
        let why = why.fault();
        assert!(why.contains(expected) && why.contains(place), "{why}");
        assert!(!out.exists(), "nothing was measured");
    }
    for option in ["--target-on=-oProxyCommand=x", "--target-on=a@-oProxyCommand=x"] {
        let why = weft("epoll", run(&plan, &out, &[option, "--load-on", "here"]));
        assert_ne!(why.code, Some(0));
        assert!(why.stderr.contains("is not a destination of ssh"), "{}", why.stderr);
    }
}

#[test]
fn a_killed_agent_voids_its_cell_and_the_study_goes_on() {
    let folder = Folder::new("killed-agent");
    let pid = folder.path("pid");
    let place = agent_after(&folder, "agent.sh", &format!("echo $$ > {}", text(&pid)));
    let (plan, out) = (plan(&folder, "[axes]\ndepth = [1, 2, 4]\n"), folder.path("out"));
    let how = ["--target-on", "here", "--load-on", &place, "--no-report"];
    let mut running = RunningStudy::start(&run(&plan, &out, &how));
    running.wait_for_lines(&out, 1);
    // The second cell has begun, or is about to.
    thread::sleep(Duration::from_millis(900));
    let killed = fs::read_to_string(&pid).expect("its number").trim().parse().expect("a number");
    kill_process(Pid::from_raw(killed).expect("a process"), Signal::KILL).expect("it is there");
    let (code, said) = running.wait();
    assert_ne!(code, Some(0), "a cell is missing: {said}");
    let statuses: Vec<Status> = records(&out).into_iter().map(|record| record.status).collect();
    assert_eq!(statuses.len(), 3);
    let void: Vec<&str> = statuses
        .iter()
        .filter(|status| matches!(status, Status::Void { .. }))
        .filter_map(Status::reason)
        .collect();
    let [why] = void[..] else { panic!("one is void: {statuses:?}") };
    assert!(why.contains(&place) && why.contains("signal: 9"), "{why}");
    assert_eq!(statuses.iter().filter(|status| **status == Status::Measured).count(), 2);
    assert_eq!(lines(&out), 3);
    let resumed = weft("epoll", ["study", "run", "--resume", text(&out), "--no-report"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
}

#[test]
fn everything_that_an_agent_started_ends_with_its_input() {
    let mut agent = command("epoll")
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary");
    let mut input = agent.stdin.take().expect("a pipe");
    let mut output = BufReader::new(agent.stdout.take().expect("a pipe"));
    let mut call = |method: &str, params: Value| -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(input, "{request}").expect("a request");
        let mut line = String::new();
        output.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect(&line);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    };
    let about = call("agent_describe", json!([]));
    assert_eq!(about["build"]["version"], env!("CARGO_PKG_VERSION"));
    let wanted = json!({
        "devices": ["memory:8MiB"], "subsystems": 1, "transport": "tcp", "cpus": [],
        "idle_poll": null, "driver": "epoll", "listen": "127.0.0.1"
    });
    let started = call("target_start", wanted);
    let address = started["addresses"][0].as_str().expect("an address").to_owned();
    let place = address.strip_prefix("nvme-tcp://").and_then(|rest| rest.split('/').next());
    let place: SocketAddr = place.and_then(|text| text.parse().ok()).expect(&address);
    TcpStream::connect(place).expect("the target listens");
    let job = json!({
        "name": "long", "pattern": "randread", "read_percent": 70.0, "random_map": false,
        "block_bytes": 4096, "depth": 1, "copies": 1, "runtime": { "secs": 600, "nanos": 0 },
        "time_based": true, "ramp": { "secs": 0, "nanos": 0 }, "rate": null, "cpus": [],
        "seed": 1, "polling": "sleep", "driver": "epoll"
    });
    let opened = call(
        "load_open",
        json!({
            "addresses": [address], "nsid": 1, "hosts": 1, "subsystems": 1, "renamed": false,
            "job": job
        }),
    );
    assert_eq!(opened["connection"]["protocol"], "tcp");
    call("load_prepare", job);
    let ready = call("load_news", json!([]));
    assert_eq!(ready, json!(["ready"]));
    call("load_go", json!([{ "secs": 0, "nanos": 0 }]));
    drop(input);
    for _ in 0..2_000 {
        let ended = agent.try_wait().expect("the process").is_some();
        if ended && TcpStream::connect(place).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = agent.kill();
    panic!("agent or target still run");
}

#[test]
fn a_site_is_found_in_the_folder_or_the_users_and_gives_its_places() {
    let folder = Folder::new("site-found");
    let plan = plan(&folder, "[axes]\ndepth = [1]\n");
    for name in ["here", "configuration/weft", "home/.config/weft", "empty"] {
        fs::create_dir_all(folder.path(name)).expect("a folder");
        let place = format!("exec:/nowhere/{} agent", name.replace('/', "-"));
        let machine = format!("[machines.m]\nplace = \"{place}\"\n");
        let site = format!("target = \"m\"\nloads = [\"m\"]\n{machine}");
        let file = folder.path(name).join("weft-site.toml");
        if name != "empty" {
            fs::write(file, site).expect("a file");
        }
    }
    for (here, configuration, expected) in [
        ("here", "configuration", "here"),
        ("empty", "configuration", "configuration-weft"),
        ("empty", "", "home-.config-weft"),
    ] {
        let mut command = command("epoll");
        command.current_dir(folder.path(here)).env("HOME", folder.path("home"));
        match configuration {
            "" => command.env_remove("XDG_CONFIG_HOME"),
            name => command.env("XDG_CONFIG_HOME", folder.path(name)),
        };
        command.args(run(&plan, &folder.path("never"), &[]));
        let output = command.output().expect("the binary");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("cannot run /nowhere/{expected}")), "{said}");
        assert!(said.contains("weft-site.toml (--no-site: on this one)"), "{said}");
    }
    assert!(!folder.path("never").exists());
}

/// It is in the same minute, over this machine and between agents, unless the plan leaves it out.
#[test]
fn an_open_loop_over_tcp_has_its_bare_socket() {
    let folder = Folder::new("bare-socket");
    let body = |is_asked: bool| {
        format!(
            "[axes]\ntransport = [\"local\", \"tcp\"]\n[fixed]\nrate_iops = 500\n\
             device_bytes = \"8MiB\"\n[measure]\nsettle = \"0s\"\nbare_socket = {is_asked}\n"
        )
    };
    let agents = ["--local", "memory:8MiB", "--target-on", "here", "--load-on", "here"];
    for (name, how, is_asked) in
        [("here", &[][..], true), ("apart", &agents[..], true), ("not", &[], false)]
    {
        let (plan, out) = (plan(&folder, &body(is_asked)), folder.path(name));
        weft("epoll", run(&plan, &out, how)).text();
        let all = records(&out);
        let bare: Vec<&Record> = all.iter().filter(|record| record.role == Role::Link).collect();
        assert_eq!((all.len(), bare.len()), (2 + usize::from(is_asked), usize::from(is_asked)));
        let page = fs::read_to_string(out.join("report.html")).expect("a page");
        assert_eq!(page.contains("Open loops beside the bare socket"), is_asked, "{name}");
        weft("epoll", ["report", "--verify", text(&out)]).text();
        for record in bare {
            assert_eq!(record.status, Status::Measured, "{name}");
            assert_eq!(record.cell, "role=link transport=tcp");
            let read = record.read.as_ref().expect("messages");
            // 500 are due; some of them late on a busy machine.
            assert!((20..=550).contains(&read.requests), "{name}: {}", read.requests);
            assert_eq!(record.values[number::OFFERED_IOPS], 500.0);
        }
    }
}

fn tenants_that_share(side: &str) -> String {
    format!(
        "kind = \"interference\"\n[axes]\nload_percent = [30]\nforeground = [\"l\"]\n\
         [fixed]\ntransport = \"tcp\"\ntarget_idle_poll_us = 0\nhost_polling = \"sleep\"\n\
         [interference]\nshared = \"{side}\"\n\
         background = {{ depth = 4, rate_process = \"fixed\" }}\n\
         [interference.foreground]\nl = {{ depth = 1 }}\n"
    )
}

/// Their target may be on another machine, which is this one here as well.
#[test]
fn tenants_of_a_hosts_processor_are_two_loads_of_one_machine() {
    let folder = Folder::new("host-tenants");
    let (plan, out) = (plan(&folder, &tenants_that_share("host")), folder.path("out"));
    let how = ["--target-on", "here", "--load-on", "here", "--no-report"];
    assert_eq!(weft("epoll", run(&plan, &out, &how)).code, Some(0));
    let skipped = records(&out);
    let why = skipped.iter().find_map(|record| record.status.reason()).expect("a reason");
    assert!(why.contains("--load-on A,A"), "{why}");
    fs::remove_dir_all(&out).expect("a folder");
    let how = ["--target-on", "here", "--load-on", "here,here", "--no-report"];
    let ran = weft("epoll", run(&plan, &out, &how));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let records = records(&out);
    let of = |role: Role| {
        let record = records.iter().find(|record| record.role == role).expect("a record");
        assert_eq!(record.status, Status::Measured, "{}", record.cell);
        let cpus = record.host.as_ref().expect("its host").cpus.clone();
        let served = record.target.as_ref().expect("its target").served.clone();
        let targets: Vec<usize> = served.iter().map(|served| served.target).collect();
        (cpus, targets)
    };
    let ((one, its), (other, others)) = (of(Role::Foreground), of(Role::Background));
    assert!(one == other && one.len() == 1, "{one:?} {other:?}");
    assert!(its != others && !its.is_empty() && !others.is_empty(), "{its:?} {others:?}");
}

#[test]
fn tenants_of_a_target_are_hosts_at_two_places_that_count_together() {
    let folder = Folder::new("tenants");
    let place = agent_after(&folder, "neighbour.sh", "");
    let (plan, out) = (plan(&folder, &tenants_that_share("target")), folder.path("out"));
    let one = ["--target-on", "here", "--load-on", "here", "--no-report"];
    assert_eq!(weft("epoll", run(&plan, &out, &one)).code, Some(0));
    let skipped = records(&out);
    let why = skipped.iter().find_map(|record| record.status.reason()).expect("a reason");
    assert!(why.contains("--load-on A,B"), "{why}");
    fs::remove_dir_all(&out).expect("a folder");
    let two = [&one[..2], &["--load-on", "here", "--load-on", &place, "--no-report"]].concat();
    let ran = weft("epoll", run(&plan, &out, &two));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let records = records(&out);
    let places = |role: Role| {
        let record = records.iter().find(|record| record.role == role).expect("a record");
        assert_eq!(record.status, Status::Measured, "{}", record.cell);
        let value = |name: &str| record.values.get(name).copied();
        assert_eq!(value(number::REQUESTS_ALL), value(number::SERVED_ALL), "{}", record.cell);
        let places = record.parts.iter().map(|part| part.place.clone());
        (record, places.collect::<Vec<String>>())
    };
    for (role, expected) in [
        (Role::Alone, "here"),
        (Role::Foreground, "here"),
        (Role::Saturation, &place),
        (Role::Background, &place),
    ] {
        assert_eq!(places(role).1, [expected]);
    }
    let (beside, _) = places(Role::Background);
    let offered = beside.values[number::OFFERED_IOPS] / beside.values[number::REFERENCE_IOPS];
    assert!((offered - 0.3).abs() < 0.01, "{offered} of the capacity");
    assert_eq!(places(Role::Foreground).0.together, beside.together);
}
