//! Studies with targets that they start, and with given targets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_lab::results::{self, Mark, Record, Role, Status, key, number};

use crate::metrics;
use crate::weft::{DRIVERS, Folder, NQN, Target, command, text, weft};

/// A study with these axes and settings.
pub(crate) fn plan(folder: &Folder, body: &str) -> PathBuf {
    let path = folder.path("plan.toml");
    let head = "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"What then?\"\n\
                source = { document = \"weft\", figure = \"none\" }\n";
    let (top, rest) = body.split_once("[axes]").expect("axes");
    fs::write(&path, format!("{head}{top}[axes]{rest}")).expect("a plan");
    path
}

/// Times that are too short for meaningful results but let every cell complete requests.
pub(crate) const SHORT: [&str; 6] = ["--runtime", "200ms", "--ramp-time", "20ms", "--repeats", "1"];

/// The records of a study's own cells.
pub(crate) fn records(directory: &Path) -> Vec<Record> {
    let records = results::load(directory).expect("results").records.into_iter();
    records.filter(|record| record.role != Role::Reference).collect()
}

pub(crate) fn lines(directory: &Path) -> usize {
    let text = fs::read_to_string(directory.join(results::file::RECORDS)).unwrap_or_default();
    text.lines().filter(|line| !line.contains(r#""role":"reference""#)).count()
}

/// The target served exactly the requests of the host.
fn assert_served(record: &Record) {
    let value = |name: &str| record.values.get(name).copied();
    assert!(value(number::REQUESTS_ALL) > Some(0.0), "{}", record.cell);
    assert_eq!(value(number::REQUESTS_ALL), value(number::SERVED_ALL), "{}", record.cell);
}

/// What a cell asks of weft's sockets and queues is read back from them and recorded.
#[test]
fn marks_of_packets_and_queues_are_settings_of_a_cell_and_read_back() {
    for driver in DRIVERS {
        let folder = Folder::new(&format!("marked-{driver}"));
        let body = "[axes]\ntos = [0, 136]\nso_priority = [0, 5]\n[fixed]\nnr_io_queues = 2\n\
                    jobs = 2\ndevice_bytes = \"8MiB\"\n[measure]\nsettle = \"0s\"\n";
        let (plan, out) = (plan(&folder, body), folder.path("out"));
        let words = ["study", "run", text(&plan), "--driver", driver, "--out", text(&out)];
        weft(driver, [&words[..], &SHORT, &["--no-report", "--no-site"]].concat()).text();
        let measured = records(&out);
        assert_eq!(measured.len(), 4);
        for record in measured {
            assert_eq!(record.status, Status::Measured, "{}", record.cell);
            let set = |key: &str| record.configuration[key].as_integer();
            let ends = record.connection.as_ref().expect("a connection");
            assert_eq!(ends.tos.map(u64::from), set(key::TOS), "{}", record.cell);
            assert_eq!(ends.so_priority.map(u64::from), set(key::SO_PRIORITY), "{}", record.cell);
            assert_eq!(ends.io_queues, Some(2), "{}", record.cell);
        }
    }
}

/// W6: a busy machine is waited for, and told before everything else where nobody waits.
#[test]
fn a_busy_machine_is_waited_for_and_told() {
    let folder = Folder::new("busy-machine");
    let body = "[axes]\ntransport = [\"local\"]\n[fixed]\ndevice_bytes = \"8MiB\"\n[measure]\n\
                settle = \"0s\"\n";
    let (plan, out) = (plan(&folder, body), folder.path("out"));
    let elsewhere = folder.path("advice");
    let words = ["study", "run", text(&plan), "--out", text(&out), "--no-site"];
    let is_over = AtomicBool::new(false);
    let (waited, measured, advised) = std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                // Busy enough to be seen, and not so busy that other tests do not run.
                while !is_over.load(Ordering::Relaxed) {
                    let began = std::time::Instant::now();
                    while began.elapsed() < Duration::from_millis(4) {
                        std::hint::spin_loop();
                    }
                    std::thread::sleep(Duration::from_millis(6));
                }
            });
        }
        let run = |more: &[&str]| {
            command(DRIVERS[0]).args(words).args(SHORT).args(more).output().expect("a run of weft")
        };
        let advise = ["advise", "--p99", "1s", "--iops", "1k", "--out", text(&elsewhere)];
        let advise = command(DRIVERS[0]).args(advise).output().expect("a run of weft");
        let all = (run(&["--wait-for-quiet", "1s"]), run(&["--no-report"]), advise);
        is_over.store(true, Ordering::Relaxed);
        all
    });
    // Nothing would be advised of what is measured now.
    let said = String::from_utf8_lossy(&advised.stderr);
    assert_eq!(advised.status.code(), Some(6), "{said}");
    assert!(said.contains("weft advise: the machine is busy: other programs use "), "{said}");
    assert!(said.contains(" processors (") && said.contains("--wait-for-quiet 5m"), "{said}");
    assert!(!elsewhere.exists() && advised.stdout.is_empty(), "nothing was measured");
    let said = String::from_utf8_lossy(&waited.stderr);
    assert_eq!(waited.status.code(), Some(6), "{said}");
    assert!(said.contains("the machine was not quiet for a second in 1s"), "{said}");
    assert!(said.contains("10 % is the most"), "{said}");
    // Nothing was begun, so that the same command measures into the same directory.
    let told = String::from_utf8_lossy(&measured.stdout);
    assert_eq!(measured.status.code(), Some(0), "{told}");
    assert!(told.contains("busy before the run"), "{told}");
    assert!(told.contains("weft study run --wait-for-quiet 5m"), "{told}");
}

#[test]
fn a_first_look_measures_local_and_remote_and_writes_a_report() {
    for driver in DRIVERS {
        let folder = Folder::new(&format!("first-look-{driver}"));
        let out = folder.path("out");
        let how = ["--local", "memory:8MiB", "--driver", driver, "--out", text(&out), "-o", "json"];
        let words = [&["first-look"], &SHORT[..], &how].concat();
        let said = weft(driver, words).json();
        assert_eq!(said["measured"], 24, "{said}");
        let report = fs::read_to_string(said["report"].as_str().expect("a report"));
        assert!(report.expect("the report").contains("<html"));
        let measured = records(&out);
        assert_eq!(measured.len(), 24);
        for record in &measured {
            assert_eq!(record.status, Status::Measured, "{}", record.cell);
            assert!(record.has(Mark::NotAwaited) && record.host.is_some());
            assert!(record.command.starts_with("weft study run first-look --"));
            let remote = record.cell.contains("transport=tcp");
            assert_eq!(record.target.is_some(), remote);
            if remote {
                assert_served(record);
                let target = record.target.as_ref().expect("a target");
                assert_eq!(target.threads.len(), 1);
                assert!(!target.machine.cores.is_empty() && !target.served.is_empty());
            }
        }
        let environment = results::load(&out).expect("results").environment;
        assert_eq!(
            (environment.study.as_str(), environment.link.is_empty()),
            ("first-look", false)
        );
        assert!(environment.targets[0].statistics && environment.targets[0].started_here);
        assert!(environment.ended_at_ms >= environment.started_at_ms);
        let table = fs::read_to_string(out.join(results::file::TABLE)).expect("a table");
        let all = results::load(&out).expect("results").records.len();
        assert_eq!(table.lines().count(), 1 + all);
        assert!(all > measured.len(), "a reference cell comes back");
    }
}

#[test]
fn a_study_ends_with_its_answer_in_the_terminal_on_the_page_and_as_data() {
    let folder = Folder::new("answer");
    let out = folder.path("out");
    let only = ["--only", "pattern=randread,block_bytes=4096,depth=1"];
    let how = ["--local", "memory:8MiB", "--out", text(&out)];
    let said = weft("epoll", [&["study", "run", "first-look"], &SHORT[..], &only, &how].concat());
    let said = said.text();
    let data = fs::read_to_string(out.join("answer.json")).expect("an answer");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    let sentence = data["sentence"].as_str().expect("a sentence");
    assert_eq!(said.trim_end().lines().last(), Some(sentence));
    assert!(data["question"].as_str().is_some_and(|question| question.ends_with('?')), "{data}");
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains(&format!("<p class=\"sentence\">{sentence}</p>")), "{sentence}");
}

#[test]
fn local_and_remote_are_adjacent_and_the_seed_decides_the_order() {
    let folder = Folder::new("order");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\", \"tcp\"]\ndepth = [1, 2, 4, 8]\n");
    let order = |name: &str, seed: &str| {
        let out = folder.path(name);
        let how = ["--local", "null:1GiB", "--seed", seed, "--out", text(&out), "--no-report"];
        let words = [&["study", "run", text(&plan)], &SHORT[..], &how, &["--quick"]].concat();
        weft("epoll", words).text();
        records(&out).into_iter().map(|record| record.cell).collect::<Vec<_>>()
    };
    let first = order("a", "1");
    assert_eq!(first, order("b", "1"));
    assert_ne!(first, order("c", "2"));
    for pair in first.chunks(2) {
        let point = |cell: &str| cell.split(" transport=").next().map(str::to_owned);
        assert_eq!(point(&pair[0]), point(&pair[1]));
    }
}

#[test]
fn several_hosts_drive_several_subsystems_together() {
    let folder = Folder::new("hosts");
    let of_hosts = |axes: &str| {
        let fixed = "transport = \"tcp\"\npattern = \"randread\"\ndepth = 2\njobs = 2\n";
        plan(&folder, &format!("[axes]\n{axes}[fixed]\n{fixed}"))
    };
    let run = |plan: &Path, out: &Path, how: &[&str]| {
        let always = ["study", "run", text(plan), "--out", text(out), "--no-report", "--quick"];
        let ran = weft("uring", [&always[..], &SHORT, how].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        records(out)
    };
    let (plan, out) = (of_hosts("hosts = [1, 3]\nsubsystems = [1, 2]\n"), folder.path("own"));
    let measured = run(&plan, &out, &["--local", "null:1GiB"]);
    assert_eq!(measured.len(), 4);
    for record in &measured {
        assert_eq!(record.status, Status::Measured, "{}", record.cell);
        assert_served(record);
        let served = &record.target.as_ref().expect("a target").served;
        let driven = served.iter().filter(|served| served.counted.commands() > 0);
        let names: BTreeSet<&str> = driven.map(|served| &*served.counted.subsystem).collect();
        let subsystems = record.configuration["subsystems"].as_number();
        assert_eq!(subsystems, Some(names.len() as f64), "{}", record.cell);
    }
    // Who they are says a target that counts by host.
    let target = Target::start("uring", &["--null", "1GiB", "--metrics", "0"]);
    let (plan, out, url) = (of_hosts("hosts = [3]\n"), folder.path("given"), target.url(1));
    let measured = run(&plan, &out, &["--target", &url]);
    assert_eq!(measured.len(), 1);
    let (_, seen) = metrics::get(&target, "/metrics", "*/*");
    let reads = seen.lines().filter(|line| {
        line.starts_with("weft_host_command_duration_seconds_count") && line.contains("\"read\"")
    });
    assert_eq!(reads.count(), 3, "{seen}");
    target.stop();
}

#[test]
fn tenants_share_only_what_is_configured() {
    let folder = Folder::new("tenants");
    for shared in ["host", "target"] {
        let body = format!(
            "kind = \"interference\"\n[axes]\nforeground = [\"l-app\", \"t-app\"]\n\
             load_percent = [10, 50]\nbackground = [\"storage\", \"network\"]\n\
             [fixed]\nhost_polling = \"sleep\"\ntarget_idle_poll_us = 0\n\
             [interference]\nshared = \"{shared}\"\nbackground = {{ depth = 16 }}\n\
             [interference.foreground]\nl-app = {{ depth = 1 }}\nt-app = {{ depth = 32 }}\n"
        );
        let plan = plan(&folder, &body);
        let out = folder.path(shared);
        let how = ["--local", "memory:8MiB", "--out", text(&out), "--no-report", "--quick"];
        let words = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
        let ran = weft("uring", words);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let records = records(&out);
        let of = |role| records.iter().filter(move |record| record.role == role);
        let counts = [Role::Saturation, Role::Alone, Role::Foreground, Role::Background]
            .map(|role| of(role).count());
        assert_eq!(counts, [1, 2, 8, 8]);
        for record in &records {
            assert_eq!(record.status, Status::Measured, "{}", record.cell);
            let network = record.configuration.get("background") == Some(&"network".into());
            if network && record.role == Role::Background {
                // Bytes over the link that no target served.
                assert!(!record.values.contains_key(number::SERVED_ALL), "{}", record.cell);
                let connection = record.connection.as_ref().expect("a connection");
                assert!(connection.protocol == "tcp" && connection.is_within_a_machine());
                assert!(record.has(Mark::Loopback) && !record.has(Mark::TargetUnknown));
                assert_eq!(record.read.as_ref().expect("reads").bytes % 4096, 0);
            } else {
                assert_served(record);
            }
        }
        for foreground in of(Role::Foreground) {
            let background = of(Role::Background)
                .find(|record| record.together == foreground.together)
                .expect("its background");
            assert!(background.has(Mark::OpenLoop) && !foreground.has(Mark::OpenLoop));
            let share =
                background.values[number::OFFERED_IOPS] / background.values[number::REFERENCE_IOPS];
            let percent = foreground.configuration["load_percent"].as_number().expect("a load");
            assert!((share * 100.0 - percent).abs() < 1e-6);
            let direction = background.read.as_ref().expect("reads");
            assert!(direction.completion.is_some(), "an open loop has both latencies");
        }
        let few = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 3);
        assert_eq!(of(Role::Foreground).all(|record| record.has(Mark::SharedCores)), few);
    }
}

#[test]
fn a_known_delay_is_measured_over_the_network() {
    let folder = Folder::new("self-check");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\", \"tcp\"]\n[fixed]\ndepth = 1\n");
    let percentiles = |name: &str, device: &str| {
        let out = folder.path(name);
        let how = ["--local", device, "--out", text(&out), "--no-report", "--quick"];
        let times = ["--runtime", "600ms", "--ramp-time", "30ms", "--repeats", "1"];
        let words = [&["study", "run", text(&plan)], &times[..], &how].concat();
        weft("uring", words).text();
        let of = |record: &Record| {
            let latency = record.read.as_ref().expect("reads").latency.latency().expect("one");
            let share = latency.percentile_ns(50.0).expect("the median");
            (record.cell.clone(), (latency.min_ns(), share))
        };
        records(&out).iter().map(of).collect::<BTreeMap<_, _>>()
    };
    let plain = percentiles("plain", "memory:1MiB");
    let delayed = percentiles("delayed", "delay:read=10ms:memory:1MiB");
    assert_eq!(plain.len(), 2);
    for (cell, (least, median)) in &delayed {
        let delay = 10_000_000;
        assert!(*least >= delay && *median >= delay, "{cell}: {least} {median}");
        // A busy machine adds to both; it does not shorten the delay.
        let (_, before) = plain[cell];
        assert!(before < delay, "{cell}: {before} without the delay");
        assert!(*median >= before.max(delay), "{cell}: {before} and {median}");
    }
}

/// A running study.
pub(crate) struct RunningStudy(Child);

impl RunningStudy {
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut command = command("epoll");
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(command.spawn().expect("the binary"))
    }

    /// Waits until the results have so many lines.
    pub(crate) fn wait_for_lines(&mut self, directory: &Path, count: usize) {
        for _ in 0..2_000 {
            if lines(directory) >= count {
                return;
            }
            assert!(self.0.try_wait().expect("the process").is_none(), "it ended before");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("there are only {} lines", lines(directory));
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("the process is there");
    }

    /// Its exit code and its messages.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut stderr, &mut said).expect("text");
        (self.0.wait().expect("the process").code(), said)
    }
}

impl Drop for RunningStudy {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_stopped_study_is_resumed() {
    let folder = Folder::new("resume");
    let body = "[axes]\ntransport = [\"local\", \"tcp\", \"rdma\"]\ndepth = [1, 2, 4, 8, 16]\n";
    let plan = plan(&folder, body);
    let out = folder.path("out");
    let how = ["--local", "null:1GiB", "--out", text(&out), "--no-report", "--quick"];
    let times = ["--runtime", "100ms", "--ramp-time", "20ms", "--repeats", "2"];
    let words = [&["study", "run", text(&plan)], &times[..], &how].concat();
    let mut running = RunningStudy::start(&words);
    // Five cells are skipped before the first one is measured.
    running.wait_for_lines(&out, 5 + 4);
    running.interrupt();
    let (code, said) = running.wait();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("measured repeats are kept") && said.contains("--resume"), "{said}");
    assert!(said.contains("cells are missing"), "{said}");
    let before = lines(&out);
    assert!((9..25).contains(&before), "{before}");
    assert!(results::load(&out).expect("results").environment.interrupted);
    let other = ["study", "run", "--resume", text(&out), "--driver", "uring"];
    let fault = weft("epoll", other).fault();
    assert!(fault.contains("began with --driver auto"), "{fault}");
    let again = ["study", "run", "--resume", text(&out), "--no-report", "-o", "json"];
    let said = weft("epoll", again).json();
    assert_eq!((&said["measured"], &said["skipped"]), (&20.into(), &5.into()), "{said}");
    // A repeat in which no request ended, on a busy machine, is made again.
    let is_kept =
        |record: &&Record| matches!(record.status, Status::Measured | Status::Skipped { .. });
    let kept = records(&out).iter().filter(is_kept).count();
    assert_eq!(kept, 25, "nothing is measured twice");
    let cells: BTreeSet<_> = records(&out).iter().map(|r| (r.cell.clone(), r.repeat)).collect();
    assert_eq!(cells.len(), 25);
    assert!(!results::load(&out).expect("results").environment.interrupted);
    let fault = weft("epoll", words).fault();
    assert!(fault.contains("holds results already"), "{fault}");
}

#[test]
fn a_given_target_is_measured_and_its_end_is_reported() {
    let folder = Folder::new("given");
    let plan = plan(&folder, "[axes]\ntransport = [\"tcp\"]\ndepth = [1, 2, 4, 8, 16, 32]\n");
    let control = format!("unix:{}", folder.path("control").display());
    let target = Target::start("epoll", &["--memory", "8MiB", "--control", &control]);
    let url = target.url(1);
    let run = |name: &str, more: &[&str]| {
        let out = folder.path(name);
        let how = ["--target", &url, "--out", text(&out), "--no-report", "--quick"];
        let words = [&["study", "run", text(&plan)], &SHORT[..], &how, more].concat();
        weft("epoll", words).text();
        records(&out)
    };
    for record in run("known", &["--control", &control]) {
        assert!(record.is_measured() && record.target.is_some());
        assert!(!record.has(Mark::TargetUnknown));
        assert_served(&record);
    }
    for record in run("unknown", &["--only", "depth=4"]) {
        assert!(record.is_measured() && record.target.is_none());
        assert!(record.has(Mark::TargetUnknown));
        assert_eq!(record.cell, "depth=4 transport=tcp");
    }
    let out = folder.path("gone");
    let how = ["--target", &url, "--out", text(&out), "--no-report", "--quick"];
    let times = ["--runtime", "200ms", "--ramp-time", "20ms", "--repeats", "1"];
    let words = [&["study", "run", text(&plan)], &times[..], &how].concat();
    let mut running = RunningStudy::start(&words);
    running.wait_for_lines(&out, 1);
    target.signal(Signal::KILL);
    let (code, said) = running.wait();
    assert_eq!(code, Some(1));
    assert!(said.contains("cells in a row failed") && said.contains("cells are missing"), "{said}");
    let records = records(&out);
    let (out, wrong) = (folder.path("wrong"), "nvme-tcp://127.0.0.1:9/nqn.2024-01.io.example:x");
    let words = ["study", "run", text(&plan), "--target", wrong, "--out", text(&out)];
    assert!(weft("epoll", words).fault().contains("--target "), "before anything is measured");
    assert!(!out.exists(), "nothing is left");
    assert!(records.iter().any(Record::is_measured), "what was measured is kept");
    let failed = records.iter().filter(|r| matches!(r.status, Status::Failed { .. })).count();
    assert_eq!(failed, 3, "{said}");
}

/// The host of a given target has the name and the keys that `weft bench` would be given.
#[test]
fn a_given_target_is_measured_by_a_host_that_proves_itself() {
    let folder = Folder::new("given-keys");
    let plan = plan(&folder, "[axes]\ntransport = [\"tcp\"]\ndepth = [1]\n");
    let host = "nqn.2024-01.io.example:measures";
    let [dhchap, psk] = ["dhchap", "tls"].map(|kind| {
        let key = folder.path(kind);
        weft("epoll", ["key", "generate", kind, text(&key)]).text();
        key
    });
    let tls = if cfg!(feature = "tls") { "tls = \"required\"\n" } else { "" };
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n{tls}[[subsystem]]\nnqn = \"{NQN}\"\n\
         allowed-hosts = [\"{host}\"]\n[[subsystem.host]]\nnqn = \"{host}\"\n\
         dhchap-key = \"{}\"\npsk = \"{}\"\n[[subsystem.namespace]]\nmemory = \"8MiB\"\n",
        text(&dhchap),
        text(&psk)
    );
    let config = folder.write("target.toml", config);
    let target = Target::start("epoll", &["--config", text(&config)]);
    let (url, out) = (target.url(1), folder.path("out"));
    let name = ["--hostnqn", host];
    let secret = ["--dhchap-secret-file", text(&dhchap)];
    let tls = ["--tls", "--tls-key-file", text(&psk)];
    let tls = if cfg!(feature = "tls") { &tls[..] } else { &[] };
    let how = ["--target", &url, "--out", text(&out), "--no-report", "--quick"];
    let study = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
    for missing in [[&name[..], tls].concat(), [&secret[..], tls].concat()] {
        let fault = weft("epoll", [&study[..], &missing].concat()).fault();
        assert!(fault.contains("--target ") && !out.exists(), "{missing:?}: {fault}");
    }
    weft("epoll", [&study[..], &name, &secret, tls].concat()).text();
    assert!(records(&out).iter().all(Record::is_measured));
    let rerun = results::load(&out).expect("results").environment;
    assert!(rerun.command_line.iter().any(|word| word == text(&dhchap)), "as it was run");
    target.stop();
}

#[test]
fn several_targets_are_separate_series() {
    let folder = Folder::new("several");
    let body = "[axes]\ntransport = [\"local\", \"tcp\"]\ndepth = [1, 8]\n[[plot]]\n\
                title = \"IOPS\"\nkind = \"line\"\nx = \"depth\"\ny = [\"iops\"]\n\
                series = [\"transport\"]\n";
    let plan = plan(&folder, body);
    let targets = [(), ()].map(|()| Target::start("epoll", &["--memory", "8MiB"]));
    let [one, two] = [targets[0].url(1), targets[1].url(1)];
    let out = folder.path("out");
    let how = [
        "--target",
        &one,
        "--target",
        &two,
        "--local",
        "null:1GiB",
        "--out",
        text(&out),
        "--quick",
    ];
    let words = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
    weft("epoll", words).text();
    let records = records(&out);
    assert_eq!(records.len(), 2 * 3, "a local cell has no target");
    let mut names = BTreeSet::new();
    for record in &records {
        assert!(record.is_measured(), "{:?}", record.status);
        let configuration = &record.configuration;
        let remote = record.cell.contains("transport=tcp");
        assert_eq!(configuration.contains_key("target"), remote);
        assert_eq!(configuration.contains_key("device"), !remote, "their devices are not known");
        names.extend(configuration.get("target").map(ToString::to_string));
    }
    assert_eq!(names.len(), 2);
    // Points are adjacent: local and both targets.
    for point in records.chunks(3) {
        let depths: BTreeSet<_> =
            point.iter().map(|record| record.configuration["depth"].to_string()).collect();
        assert_eq!(depths.len(), 1);
    }
    let kept = fs::read_to_string(out.join(results::file::PLAN)).expect("the plan");
    assert!(kept.contains("\"target\""), "each target is a series");
    assert_eq!(results::load(&out).expect("results").environment.targets.len(), 2);
}

#[test]
fn the_protocol_floor_is_measured_within_one_process() {
    for driver in DRIVERS {
        let folder = Folder::new(&format!("floor-{driver}"));
        let out = folder.path("out");
        let how = ["--local", "memory:8MiB", "--driver", driver, "--out", text(&out), "--quick"];
        let words = [&["study", "run", "protocol-floor"], &SHORT[..], &how].concat();
        weft(driver, words).text();
        let records = records(&out);
        assert_eq!(records.len(), 24);
        let within = |record: &&Record| record.cell.contains("transport=loopback");
        assert_eq!(records.iter().filter(within).count(), 8);
        let mut used_s = 0.0;
        for record in records.iter().filter(within) {
            assert_eq!(record.status, Status::Measured, "{}", record.cell);
            assert_served(record);
            let target = record.target.as_ref().expect("it tells its statistics");
            assert_eq!(target.threads.len(), 1, "the target's thread in the shared process");
            used_s += target.threads[0].user_s + target.threads[0].system_s;
        }
        // A short cell may lie between two ticks of the kernel's clock, but not all of them.
        assert!(used_s > 0.0);
        let targets = results::load(&out).expect("results").environment.targets;
        assert!(targets.iter().any(|target| target.address.contains("in its process")));
    }
}

/// Each cell has TLS as its name says, with keys that are nowhere in the results.
#[cfg(feature = "tls")]
#[test]
fn the_cost_of_tls_is_measured_with_keys_of_its_own() {
    let folder = Folder::new("tls-cost");
    let out = folder.path("out");
    let how = ["--local", "memory:8MiB", "--out", text(&out), "--quick"];
    weft("epoll", [&["study", "run", "tls-cost"], &SHORT[..], &how].concat()).text();
    let records = records(&out);
    assert_eq!(records.len(), 16);
    for record in &records {
        assert_eq!(record.status, Status::Measured, "{}", record.cell);
        assert_served(record);
    }
    for name in ["off", "aes-128-gcm", "aes-256-gcm", "concatenation"] {
        let named = format!("tls={name}");
        let of_name = records.iter().filter(|record| record.cell.contains(&named));
        assert_eq!(of_name.count(), 4, "{name}");
    }
    for file in fs::read_dir(&out).expect("results") {
        let text = fs::read(file.expect("a file").path()).expect("its contents");
        for secret in [&b"NVMeTLSkey-1:"[..], b"DHHC-1:"] {
            assert!(!text.windows(secret.len()).any(|part| part == secret), "a key is shown");
        }
    }
    // A target that has keys of its own keeps its own TLS.
    let target = "nvme-tcp://127.0.0.1:9/nqn.x";
    let other = folder.path("other");
    let words = ["study", "run", "tls-cost", "--target", target, "--out", text(&other)];
    let refused = weft("epoll", words).fault();
    assert!(refused.contains("varies tls"), "{refused}");
}

#[test]
fn given_devices_are_overwritten_only_if_named() {
    let folder = Folder::new("destroy");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\"]\npattern = [\"randwrite\"]\n");
    let disk = folder.path("disk.img");
    fs::write(&disk, vec![0x5a; 1 << 20]).expect("a disk");
    let out = folder.path("out");
    let how = ["--local", text(&disk), "--out", text(&out), "--no-report", "--quick"];
    let words = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
    let fault = weft("epoll", &words).fault();
    assert!(fault.contains("overwrites") && fault.contains("--yes-destroy"), "{fault}");
    assert!(fs::read(&disk).expect("the disk").iter().all(|byte| *byte == 0x5a));
    assert!(!out.exists());
    let other = [&words[..], &["--yes-destroy", "/dev/null"]].concat();
    assert!(weft("epoll", other).fault().contains("overwrites"), "another name does not allow it");
    let fill = ["--precondition", "--precondition-limit", "200ms"];
    let named = [&words[..], &["--yes-destroy", text(&disk)], &fill].concat();
    weft("epoll", named).text();
    assert!(fs::read(&disk).expect("the disk").iter().any(|byte| *byte != 0x5a));
    let notes = results::load(&out).expect("results").environment.notes;
    assert!(notes.iter().any(|note| note.contains("filled twice")), "{notes:?}");
}

#[test]
fn a_file_is_driven_locally_and_served_by_a_started_target() {
    let folder = Folder::new("file");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\", \"tcp\"]\ndepth = [1, 4]\n");
    let disk = folder.path("disk.img");
    fs::write(&disk, vec![0x5a; 1 << 20]).expect("a disk");
    let run = |name: &str| {
        let out = folder.path(name);
        let how = ["--local", text(&disk), "--out", text(&out), "--no-report", "--quick"];
        weft("epoll", [&["study", "run", text(&plan)], &SHORT[..], &how].concat())
    };
    run("out").text();
    let measured = records(&folder.path("out"));
    assert_eq!(measured.len(), 4);
    assert!(measured.iter().all(Record::is_measured), "{measured:?}");
    for record in &measured {
        // The local side is the target's own device, driven inside the target.
        let is_local = record.configuration["transport"] == "local".into();
        assert_eq!(record.inside_target, is_local, "{}", record.cell);
        let device = record.configuration["device"].as_text().expect("a device");
        assert_eq!(device, format!("file:{}", disk.display()));
        assert!(!record.host.as_ref().expect("a host").threads.is_empty());
    }
    let environment = results::load(&folder.path("out")).expect("results").environment;
    assert!(environment.local_inside && environment.local.starts_with("file:"));
    let others = fs::File::open(&disk).expect("the disk");
    others.lock().expect("nobody has it");
    let refused = run("in-use");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("in use by another process"), "{}", refused.stderr);
    assert!(!records(&folder.path("in-use")).iter().any(Record::is_measured));
}

#[test]
fn a_target_holds_the_file_that_is_its_baseline() {
    let folder = Folder::new("held");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\"]\ndepth = [1, 4]\n");
    let disk = folder.path("disk.img");
    fs::write(&disk, vec![0x5a; 1 << 20]).expect("a disk");
    let out = folder.path("out");
    let how = ["--local", text(&disk), "--out", text(&out), "--no-report", "--quick"];
    let times = ["--runtime", "400ms", "--ramp-time", "10ms", "--repeats", "2"];
    let words = [&["study", "run", text(&plan)], &times[..], &how].concat();
    let mut running = RunningStudy::start(&words);
    running.wait_for_lines(&out, 1);
    let held = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        let other = fs::File::open(&disk).expect("the disk");
        matches!(other.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
    });
    assert!(held, "another process may read a file that is being measured");
    running.wait_for_lines(&out, 2);
    running.interrupt();
    let (code, said) = running.wait();
    assert_eq!(code, Some(130), "a load inside a target is stopped, too: {said}");
    let again = ["study", "run", "--resume", text(&out), "--no-report", "-o", "json"];
    assert_eq!(weft("epoll", again).json()["measured"], 4);
    assert!(records(&out).iter().all(|record| record.inside_target));
}

#[test]
fn fios_json_is_written_on_request() {
    let folder = Folder::new("fio");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\"]\ndepth = [1, 4]\n");
    let out = folder.path("out");
    let how = ["--local", "null:1GiB", "--out", text(&out), "--no-report", "--quick", "--fio-json"];
    let words = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
    weft("epoll", words).text();
    let path = out.join("fio").join("depth=4_transport=local.1.json");
    let text = fs::read_to_string(path).expect("fio's form");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["jobs"][0]["job options"]["iodepth"], "4", "{report}");
}

#[test]
fn the_raw_link_is_a_study() {
    let folder = Folder::new("link");
    let out = folder.path("out");
    let only = ["--only", "transport=tcp,host_polling=sleep"];
    let how = ["--out", text(&out), "--no-report", "--quick"];
    let words = [&["study", "run", "link-probe"], &SHORT[..], &only, &how].concat();
    weft("epoll", words).text();
    let records = records(&out);
    assert_eq!(records.len(), 4);
    for record in &records {
        assert_eq!((record.role, &record.status), (Role::Link, &Status::Measured));
        assert!(record.iops() > 0.0 && record.read.as_ref().expect("one").latency.count > 0);
    }
}

#[test]
fn studies_are_listed_and_shown() {
    let list = weft("epoll", ["study", "list", "-o", "json"]).json();
    let list = list.as_array().expect("a list");
    assert_eq!(list.len(), 33);
    assert!(list.iter().all(|study| study["cells"].as_u64() >= study["cells_here"].as_u64()));
    for study in list {
        let name = study["name"].as_str().expect("a name");
        let shown = weft("epoll", ["study", "show", name]).text();
        assert!(shown.starts_with(&format!("{name}: ")) && shown.contains("Cells "), "{shown}");
    }
    let toml = weft("epoll", ["study", "show", "concurrency", "--toml"]).text();
    let folder = Folder::new("show");
    let copy = folder.path("copy.toml");
    fs::write(&copy, toml).expect("a plan");
    let shown = weft("epoll", ["study", "show", text(&copy), "--cells", "--quick"]).text();
    assert!(shown.contains("transport=rdma") && shown.contains("cannot run here: "), "{shown}");
    let fault = weft("epoll", ["study", "run", "no-such"]).fault();
    assert!(fault.contains("weft study list"), "{fault}");
    let bad = folder.path("bad.toml");
    fs::write(&bad, "name = 1\n").expect("a plan");
    assert!(weft("epoll", ["study", "show", text(&bad)]).fault().contains("bad.toml"));
}

#[test]
fn two_quick_runs_are_shown_although_nothing_is_decided() {
    let folder = Folder::new("quick");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\"]\ndepth = [1, 2]\n");
    let sets = ["one", "two"].map(|name| folder.path(name));
    for out in &sets {
        let how = ["--local", "null:1GiB", "--quick", "--no-report", "--out", text(out)];
        let times = ["--runtime", "100ms", "--ramp-time", "5ms"];
        weft("epoll", [&["study", "run", text(&plan)], &how[..], &times].concat()).text();
    }
    let [one, two] = sets.each_ref().map(|set| text(set));
    let compare = |more: &[&str]| {
        weft("epoll", [&["study", "compare", one, two, "--accept-disturbed"], more].concat())
    };
    let shown = compare(&[]);
    let table = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.code, Some(5), "{}", shown.stderr);
    assert!(table.contains("too few repeats") && table.contains("depth=2"), "{table}");
    assert!(shown.stderr.contains("Measure with --repeats"), "{}", shown.stderr);
    let ran = compare(&["-o", "json"]);
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!((ran.code, &said["undecided"]), (Some(5), &true.into()), "{said}");
}

#[test]
fn two_builds_measure_in_turns_and_are_compared() {
    let folder = Folder::new("against");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\", \"tcp\"]\ndepth = [1, 2]\n");
    let (out, this) = (folder.path("out"), Path::new(env!("CARGO_BIN_EXE_weft")));
    let run = |against: &Path, repeats: &str| {
        let mut words = vec!["study", "run", text(&plan), "--local", "memory:1MiB", "--quick"];
        words.extend(["--runtime", "200ms", "--ramp-time", "5ms", "--repeats", repeats]);
        words.extend(["--only", "transport=local", "--out", text(&out), "-o", "json"]);
        words.extend(["--accept-disturbed", "--against", text(against)]);
        weft("auto", words)
    };
    // Three questions, two cells and both together, take five repeats.
    let fault = run(this, "4").fault();
    assert!(fault.contains("at least 5 of each build") && !out.exists(), "{fault}");
    let fault = run(Path::new("/bin/true"), "5").fault();
    assert!(fault.contains("it is not weft"), "{fault}");
    let ran = run(this, "5");
    // So short a run may find anything.
    assert!([Some(0), Some(3), Some(5)].contains(&ran.code), "{:?} {}", ran.code, ran.stderr);
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(said["cells"][0]["metrics"][0]["repeats"], serde_json::json!([5, 5]), "{said}");
    // What else runs here is accepted, and told.
    let mut differences = said["differences"].as_array().expect("differences").iter();
    let is_told = |what: &Value| {
        let what = what.as_str().unwrap_or_default();
        what.contains("busy before") || what.contains(" were disturbed for more than ")
    };
    assert!(differences.all(is_told), "{said}");
    assert_turns(&out, 5);
    assert!(out.join("this/report.html").exists());
}

/// Two builds measured two cells in turns, each repeat of each cell once.
#[track_caller]
fn assert_turns(out: &Path, repeats: u32) {
    let mut began = Vec::new();
    for name in ["other", "this"] {
        let directory = out.join(name);
        assert_eq!(lines(&directory), 2 * repeats as usize, "{name}");
        let records = records(&directory);
        for repeat in 1..=repeats {
            let of_it = records.iter().filter(|record| record.repeat == repeat);
            let times: Vec<u64> = of_it.map(|record| record.started_at_ms).collect();
            assert_eq!(times.len(), 2, "{name}, repeat {repeat}");
            began.extend(times.into_iter().map(|at| (at, repeat, name)));
        }
    }
    began.sort_unstable();
    let order: Vec<(u32, &str)> = began.iter().map(|(_, repeat, name)| (*repeat, *name)).collect();
    let turns = (1..=repeats).flat_map(|repeat| match repeat % 2 {
        1 => [(repeat, "other"), (repeat, "this")],
        _ => [(repeat, "this"), (repeat, "other")],
    });
    let twice = turns.flat_map(|turn| [turn, turn]);
    assert_eq!(order, twice.collect::<Vec<_>>());
}

#[test]
fn a_stopped_comparison_goes_on_with_its_turn() {
    let folder = Folder::new("against-resumed");
    let plan = plan(&folder, "[axes]\ntransport = [\"local\"]\ndepth = [1, 2]\n");
    let (out, other) = (folder.path("out"), folder.path("other build"));
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_weft"));
    let make = |more: &str| {
        fs::write(&other, format!("{script}{more}")).expect("a script");
        fs::set_permissions(&other, Permissions::from_mode(0o755)).expect("a program");
    };
    make("");
    let how = ["--local", "null:1GiB", "--quick", "--repeats", "5", "--out", text(&out)];
    let times = ["--runtime", "100ms", "--ramp-time", "5ms", "--against", text(&other)];
    let words = [&["study", "run", text(&plan)], &how[..], &times].concat();
    let mut running = RunningStudy::start(&words);
    // In the middle of its second turn, which is the third one.
    running.wait_for_lines(&out.join("this"), 3);
    running.interrupt();
    let (code, said) = running.wait();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains(&format!("study run --resume {}", out.display())), "{said}");
    let before = (lines(&out.join("other")), lines(&out.join("this")));
    assert!(before.0 <= 4 && (3..=4).contains(&before.1), "{before:?}");

    let resume = || {
        let words = ["study", "run", "--resume", text(&out), "--accept-disturbed", "-o", "json"];
        weft("epoll", words)
    };
    make("# built anew\n");
    assert!(resume().fault().contains("is another build than"));
    make("");
    let fault = weft("epoll", &words).fault();
    assert!(fault.contains("holds a comparison already"), "{fault}");
    let uring = ["study", "run", "--driver", "uring", "--resume", text(&out)];
    let fault = weft("epoll", uring).fault();
    assert!(fault.contains("began with --driver"), "{fault}");
    let ran = resume();
    assert!([Some(0), Some(3), Some(5)].contains(&ran.code), "{:?} {}", ran.code, ran.stderr);
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(said["cells"][0]["metrics"][0]["repeats"], serde_json::json!([5, 5]), "{said}");
    assert_turns(&out, 5);

    fs::remove_file(out.join("comparison.json")).expect("it is there");
    let fault = resume().fault();
    assert!(fault.contains("does not say how far it is"), "{fault}");
}
