//! The forms of a bench's reports, and its logs.

use crate::weft::{Folder, command, text, weft};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Instant;

const LOAD: [&str; 6] = ["bench", "null:1GiB", "--io-size", "4MiB", "--rw", "randread"];

#[test]
fn a_report_has_each_form_that_is_asked_for() {
    let all = weft("epoll", [&LOAD[..], &["-o", "normal,terse,json+"]].concat()).text();
    let (human, rest) = all.split_once("3;fio-").expect("a terse line");
    assert!(human.contains("  read  : IOPS "), "{human}");
    let (terse, json) = rest.split_once('\n').expect("more after it");
    assert!(terse.contains(";weft;0;0;4096;"), "{terse}");
    let report: Value = serde_json::from_str(json).expect("JSON");
    let read = &report["jobs"][0]["read"];
    let counts = |field: &str| -> u64 {
        let bins = read[field]["bins"].as_object().expect("bins");
        bins.values().filter_map(Value::as_u64).sum()
    };
    assert_eq!((counts("lat_ns"), counts("clat_ns")), (1024, 1024));
    let plain = weft("epoll", [&LOAD[..], &["-o", "json"]].concat()).json();
    assert!(plain["jobs"][0]["read"]["lat_ns"].get("bins").is_none());
    let terse = |words: &[&str]| weft("epoll", [&LOAD[..], words].concat());
    let minimal = terse(&["--minimal", "--terse-version", "5"]).text();
    assert!(minimal.starts_with("5;fio-") && minimal.lines().count() == 1, "{minimal}");
    let refused = terse(&["--minimal", "--terse-version", "7"]).fault();
    assert!(refused.ends_with("--terse-version 7 is none of 2, 3, 4, 5"), "{refused}");
    let refused = terse(&["--status-interval", "0"]).fault();
    assert!(refused.contains("--status-interval of 0"), "{refused}");
}

/// Reports so far, and then the last one; a line of progress where it is asked for.
#[test]
fn a_run_reports_while_it_lasts() {
    let folder = Folder::new("status");
    let path = folder.path("reports.json");
    let words = ["bench", "null:1GiB", "--rate-iops", "1000", "--runtime", "2", "--time_based"];
    let told = ["--status-interval", "500ms", "-o", "json", "--output", text(&path)];
    let ran = weft("epoll", [&words[..], &told, &["--eta", "always"]].concat());
    assert_eq!(ran.text(), "");
    let written = std::fs::read_to_string(&path).expect("reports");
    let reports: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(&written).into_iter().collect();
    let requests = |report: &Value| report["jobs"][0]["read"]["total_ios"].as_u64();
    let all: Vec<u64> = reports.expect("JSON").iter().filter_map(requests).collect();
    assert!(all.len() >= 3 && all[0] > 0, "{all:?}");
    assert!(all.is_sorted(), "{all:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| line.starts_with("run ") && line.contains(" left")),
        "{lines:?}"
    );
    let never = weft("epoll", [&LOAD[..], &["--eta", "never"]].concat());
    assert_eq!(never.stderr, "");
}

/// The names, and in each line the columns, that fio-plot reads.
#[test]
fn logs_are_written_as_fio_plot_reads_them() {
    let folder = Folder::new("logs");
    let name = |name: &str| text(&folder.path(name)).to_owned();
    let prefix = name("randread-iodepth-1-numjobs-2");
    let logs = ["lat", "iops", "bw"].map(|kind| format!("write_{kind}_log={prefix}\n"));
    let job = format!(
        "[a]\nrw=randrw\nrate_iops=1000\nnumjobs=2\nruntime=1\ntime_based\nlog_avg_msec=100\n{}\
         [b]\nrw=read\nnumber_ios=8\nwrite_lat_log\nwrite_iolog={}\n",
        logs.concat(),
        name("requests")
    );
    let file = folder.write("job.fio", job);
    let run = || weft("epoll", ["bench", text(&file), "memory:4MiB", "--quiet"]);
    let mut command = crate::weft::command("epoll");
    command.args(["bench", text(&file), "memory:4MiB", "--quiet"]).current_dir(folder.path(""));
    assert!(command.output().expect("the binary").status.success());
    let read = |path: &str| std::fs::read_to_string(path).expect(path);
    for copy in 1..=2 {
        for kind in ["lat", "clat", "slat", "iops", "bw"] {
            let log = read(&format!("{prefix}_{kind}.{copy}.log"));
            let mut directions = [0; 2];
            for line in log.lines() {
                let fields: Vec<usize> =
                    line.split(", ").map(|field| field.parse().expect(line)).collect();
                let [at_ms, _, direction, 0, 0] = fields[..] else { panic!("{line}") };
                assert!(at_ms >= 100, "{line}");
                directions[direction] += 1;
            }
            assert!(directions.iter().all(|lines| (2..=11).contains(lines)), "{directions:?}");
        }
    }
    // A job of one name writes to that name: each request, and the requests themselves.
    assert_eq!(read(&name("b_lat.3.log")).lines().count(), 8);
    let requests = read(&name("requests"));
    assert!(requests.starts_with("fio version 3 iolog\n0 memory:4MiB add\n"), "{requests}");
    assert_eq!(requests.lines().filter(|line| line.contains(" read ")).count(), 8);
    folder.write("job.fio", "[a]\nrw=read\nwrite_bw_log=/no/such/folder/x\n");
    let refused = run().fault();
    assert!(refused.contains("cannot write /no/such/folder/x_bw.1.log"), "{refused}");
    // Each file of each copy is tried before anything runs.
    for (word, log) in [("write_lat_log", "x_slat.2.log"), ("write_iolog", "x.2")] {
        std::fs::create_dir(folder.path(log)).expect("a folder in the file's place");
        let path = name("x");
        folder.write("job.fio", format!("[a]\nrw=read\nnumjobs=2\n{word}={path}\n"));
        let ran = run();
        assert!(ran.fault().contains(&format!("cannot write {path}")), "{}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{word}: it ran");
    }
}

/// What is wrong with a later section is known before anything runs; where it shows only then,
/// what ran before is reported.
#[test]
fn a_later_section_does_not_cost_the_results_of_an_earlier_one() {
    let folder = Folder::new("sections");
    let run = |later: &str| {
        let file = folder.write("job.fio", format!("[a]\nrw=read\n[b]\nstonewall\n{later}\n"));
        weft("epoll", ["bench", text(&file), "memory:4MiB", "--quiet"])
    };
    for (later, part) in [("bs=1000", "multiple"), ("wait_for=c", "waits for \"c\"")] {
        let ran = run(later);
        assert!(ran.fault().contains(part), "{}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{later}: it ran");
    }
    let ran = run("cpus_allowed=4000");
    ran.fault();
    assert!(String::from_utf8_lossy(&ran.stdout).contains("a: rw=read"), "{:?}", ran.stdout);
}

/// The lines that overwrite each other on a terminal of so many columns.
fn on_a_terminal(columns: usize, words: &str) -> Vec<String> {
    let binary = env!("CARGO_BIN_EXE_weft");
    let run = format!("stty cols {columns}; exec {binary} {words}");
    let mut script = Command::new("script");
    let script = script.args(["--quiet", "--return", "--command", &run, "/dev/null"]);
    let output = script.stdin(Stdio::null()).output().expect("script, of Debian's bsdutils");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stdout).replace("\u{1b}[K", "");
    text.split(['\r', '\n']).filter(|line| line.contains(" left")).map(str::to_owned).collect()
}

#[test]
fn the_progress_line_is_true_and_fits_its_terminal() {
    let words = "bench memory:4MiB --rate-iops 4000 --runtime 3 --time_based";
    for columns in [60, 200] {
        let begin = Instant::now();
        let lines = on_a_terminal(columns, words);
        // A busy machine may notice the end late, but no later than it was.
        let most = begin.elapsed().as_secs_f64().max(3.3);
        assert!(lines.len() >= 4, "{lines:?}");
        let mut percents = Vec::new();
        for line in &lines {
            assert!(line.chars().count() < columns, "{columns}: {line}");
            let fields: Vec<&str> = line.split(['(', ')', ',', ' ']).collect();
            let ["run", elapsed, "s", "", percent, "%", "", "", left, "s", "left", ..] = fields[..]
            else {
                panic!("{line}")
            };
            let number = |text: &str| text.parse::<f64>().expect("a number");
            let total = number(elapsed) + number(left);
            let most = if number(left) == 0.0 { most } else { 3.3 };
            assert!((2.7..most).contains(&total), "{line}");
            percents.push(number(percent));
            assert!(line.contains(" IOPS"), "{line}");
            assert!(columns == 60 || line.contains("p99 ") && line.ends_with("MiB/s"), "{line}");
        }
        assert!(percents.is_sorted() && percents[0] <= 40.0, "{lines:?}");
        assert!(percents.last() >= Some(&70.0), "{lines:?}");
    }
    let folder = Folder::new("runs");
    let plan = "name = \"mine\"\ntitle = \"T\"\nquestion = \"Q\"\n[source]\n\
                document = \"weft\"\nfigure = \"none\"\n[axes]\ntransport = [\"local\"]\n\
                depth = [1, 2]\n";
    let plan = folder.write("plan.toml", plan);
    for columns in [60, 200] {
        let out = folder.path(&columns.to_string());
        let how = "--local null:1GiB --quick --repeats 1 --runtime 1200ms --ramp-time 0";
        let words = format!("study run {} --out {} {how}", text(&plan), text(&out));
        let lines = on_a_terminal(columns, &words);
        assert!(lines.iter().all(|line| line.chars().count() < columns), "{columns}: {lines:?}");
        let has = |line: &&String| line.starts_with("cell ") && line.contains(" IOPS");
        let of_load: Vec<_> = lines.iter().filter(has).collect();
        assert!(of_load.iter().any(|line| line.contains("depth")) || columns == 60, "{lines:?}");
        assert!(!of_load.is_empty(), "{columns}: {lines:?}");
    }
    let file = folder.write("job.fio", "[a]\nruntime=1\ntime_based\n[b]\nstonewall\n");
    let lines = on_a_terminal(60, &format!("bench memory:4MiB {}", text(&file)));
    assert!(lines.first().is_some_and(|line| line.starts_with("1 of 2: run ")), "{lines:?}");
}

/// What was measured is reported, with what was not, and the end is that of an interrupt.
#[test]
fn an_interrupted_run_says_what_it_leaves_out() {
    let jobs = "[a]\nruntime=1h\ntime_based\nrate_iops=1000\n";
    let (report, rest) = interrupted(&format!("{jobs}[b]\nstonewall\n[c]\n"), "normal");
    assert!(report.contains("  read  : IOPS ") && report.contains("interrupted after"), "{report}");
    assert!(rest.ends_with("weft bench: interrupted: 2 of 3 jobs never began\n"), "{rest}");
    // A form that has no word for it.
    let (report, rest) = interrupted(jobs, "terse");
    assert!(report.starts_with("3;"), "{report}");
    assert!(rest.contains("weft bench: interrupted: the results are what was measured"), "{rest}");
}

/// Two jobs at once, and one after them.
#[test]
fn a_job_that_ends_first_ends_what_exit_what_says() {
    let folder = Folder::new("exit-what");
    for (what, follows) in [("stonewall", true), ("all", false)] {
        let jobs = format!(
            "[global]\nrw=randread\ntime_based\nrate_iops=1000\n[a]\nruntime=300ms\nexitall\n\
             exit_what={what}\n[b]\nnew_group\nruntime=1h\n[c]\nstonewall\nruntime=300ms\n"
        );
        let file = folder.write("job.fio", jobs);
        let ran = weft("epoll", ["bench", text(&file), "memory:4MiB", "--quiet"]).text();
        assert!(ran.contains("a: rw=") && ran.contains("b: rw="), "{what}: {ran}");
        assert_eq!(ran.contains("c: rw="), follows, "{what}: {ran}");
    }
}

/// What a run of these jobs reports and says when it is interrupted.
fn interrupted(jobs: &str, form: &str) -> (String, String) {
    let folder = Folder::new("interrupted");
    let file = folder.write("job.fio", jobs);
    let mut child = command("epoll");
    let child = child.args(["bench", "memory:4MiB", text(&file), "--eta", "always", "-o", form]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("weft");
    let mut said = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    let mut first = String::new();
    std::io::BufRead::read_line(&mut said, &mut first).expect("its first line");
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process is there");
    let output = child.wait_with_output().expect("its end");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    assert_eq!(output.status.code(), Some(130), "{rest}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), rest)
}
