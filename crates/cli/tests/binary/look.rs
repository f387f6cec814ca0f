//! Measurements of one job or one job file.

use crate::weft::{DRIVERS, Folder, Target, text, weft};
use serde_json::Value;
use std::path::Path;

#[test]
fn local_devices_are_driven_on_both_drivers() {
    let folder = Folder::new("local");
    let path = folder.path("disk.img");
    let file = format!("file:{},size=4MiB", text(&path));
    for driver in DRIVERS {
        for device in ["memory:4MiB", "null:1TiB,block=512", &file] {
            let load = ["--rw", "randread", "--iodepth", "4", "--io-size", "1MiB"];
            let words = [&["bench", device], &load[..], &["-o", "json"]].concat();
            let report = weft(driver, words).json();
            let read = &report["jobs"][0]["read"];
            assert_eq!(read["io_bytes"], 1 << 20, "{driver} {device}");
            assert_eq!(read["total_ios"], 256);
        }
        let verify = ["bench", &file, "--rw", "randwrite", "--verify", "crc32c", "--iodepth", "8"];
        let verify = [&verify[..], &["--yes-destroy", text(&path)]].concat();
        assert!(weft(driver, verify).text().contains(" 0 wrong"));
    }
}

#[test]
fn a_rate_is_kept_and_the_report_is_written_to_a_file() {
    let folder = Folder::new("rate");
    let path = folder.path("report.json");
    let words = [
        "bench",
        "null:1GiB",
        "--rate-iops",
        "1000",
        "--io-size",
        "800KiB",
        "--rate-process",
        "poisson",
    ];
    let human = weft("epoll", words).text();
    let written = ["-o", "json", "--output", text(&path)];
    assert_eq!(weft("epoll", [&words[..], &written].concat()).text(), "", "fio prints nothing");
    assert!(human.contains("rate-iops=1000 (poisson, latency from the due"), "{human}");
    let written = std::fs::read_to_string(&path).expect("the report");
    let report: Value = serde_json::from_str(&written).expect("JSON");
    let iops = report["jobs"][0]["read"]["iops"].as_f64().expect("a number");
    // 200 requests of a Poisson process: the rate stays within four standard deviations.
    assert!(iops < 1_300.0, "{iops}");
}

#[test]
fn the_floor_is_measured() {
    let words = ["floor", "--runtime", "100ms", "--ramp-time", "20ms", "-o", "json"];
    let floor = weft("epoll", words).json();
    assert!(floor["messages_per_second"].as_f64() > Some(0.0));
    assert_eq!((&floor["request_bytes"], &floor["response_bytes"]), (&72.into(), &4120.into()));
    let human = weft("epoll", ["floor", "--runtime", "50ms", "--iodepth", "8"]).text();
    assert!(human.starts_with("tcp floor: request 72 response 4120 depth 8 blocking"), "{human}");
    let words = ["floor", "--runtime", "50ms", "--ramp-time", "0", "--think", "200us,1us"];
    let human = weft("epoll", words).text();
    assert!(human.contains(" blocking thinking 200us, 1us\n"), "{human}");
    let refused = weft("epoll", ["floor", "--think", "1us"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("two times"), "{}", refused.stderr);
}

/// A job file as fio's users write them: several kinds of jobs, a stonewall, groups, a refusal.
#[test]
fn a_job_file_is_run() {
    let folder = Folder::new("jobs");
    let (path, disk) = (folder.path("job.fio"), folder.path("disk.img"));
    std::fs::File::create(&disk).and_then(|file| file.set_len(4 << 20)).expect("a file");
    let text_of_jobs = format!(
        "[global]\nioengine=libaio\niodepth=4\nfilename={}\nsize=1m\n[fill]\nrw=write\nbs=64k\n\
         [check]\nstonewall\nrw=randread\nbssplit=4k/50:8k/50\nnumber_ios=100\nloops=9\n\
         [beside]\nrw=read\nnumjobs=2\npercentile_list=50:75\n",
        text(&disk)
    );
    std::fs::write(&path, &text_of_jobs).expect("a job file");
    let run = |more: &[&str]| {
        weft("epoll", [&["bench", text(&path), "--quiet", "-o", "json"], more].concat())
    };
    // A file is overwritten only where that is allowed.
    let allowed = ["--yes-destroy", text(&disk)];
    assert!(run(&[]).fault().contains("to allow that, use --yes-destroy"));
    for what in [&allowed[..], &["memory:4MiB"]] {
        let report = run(what).json();
        let jobs = report["jobs"].as_array().expect("jobs");
        let names: Vec<_> = jobs.iter().map(|job| (&job["jobname"], &job["groupid"])).collect();
        assert_eq!(names[0], (&"fill".into(), &0.into()));
        assert_eq!(names[1], (&"check".into(), &1.into()));
        assert_eq!(names[2], (&"beside".into(), &1.into()));
        assert_eq!(jobs[0]["write"]["total_ios"], 16);
        assert_eq!(jobs[1]["read"]["total_ios"], 100);
        assert_eq!(jobs[2]["read"]["io_bytes"], 2 << 20, "each copy reads its size");
        let percentiles = jobs[2]["read"]["lat_ns"]["percentile"].as_object().expect("some");
        assert!(percentiles.keys().all(|name| ["50.000000", "75.000000"].contains(&&name[..])));
    }
    let human = weft("epoll", ["bench", text(&path), "memory:4MiB", "--quiet"]);
    assert!(human.text().contains("group 1: 2 jobs"), "{}", human.text());
    let said = format!("job \"fill\" names {}, and drives what the command", text(&disk));
    assert!(human.stderr.contains(&said), "{}", human.stderr);
    let only = run(&["memory:4MiB", "--section", "beside"]).json();
    assert_eq!(only["jobs"].as_array().map(Vec::len), Some(1));
    let both = run(&["memory:4MiB", "--bs", "8k"]).fault();
    assert_eq!(both, "weft bench: --bs stands beside a job file: write it into the file");
    std::fs::write(&path, "[a]\nrw=randrw\nflow=2\n").expect("a job file");
    let refused = run(&["memory:4MiB"]).fault();
    let expected =
        format!("{}:3: flow: this is not done: give each job its rate_iops", text(&path));
    assert!(refused.ends_with(&expected), "{refused}");
    std::fs::write(&path, "[a]\nrw=randread\n").expect("a job file");
    let nothing = run(&[]).fault();
    assert!(nothing.contains("names nothing that is driven"), "{nothing}");
    let target = Target::start("epoll", &["--memory", "4MiB"]);
    let buffered = "[a]\nrw=randread\nnumber_ios=10\ndirect=0\n";
    for (job, more) in [
        (buffered.to_owned(), vec![target.url(1)]),
        (format!("{buffered}filename={}\n", target.url(1)), Vec::new()),
    ] {
        std::fs::write(&path, job).expect("a job file");
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let ran = run(&more);
        assert_eq!(ran.json()["jobs"][0]["read"]["total_ios"], 10);
        let noted = "job \"a\": direct=0: there is no page cache before a namespace";
        assert!(ran.stderr.contains(noted), "{}", ran.stderr);
    }
}

/// An objective is answered by measuring each way; what holds it is measured at the rate that was
/// asked for. Whatever the machine does meanwhile, the exit code is that of the rows.
#[test]
fn an_objective_is_answered_by_measuring() {
    let folder = Folder::new("advise");
    let out = folder.path("results");
    let objective = ["advise", "--iops", "20k", "-o", "json"];
    let run = |more: &[&str]| weft("epoll", [&objective[..], more].concat());
    let measured = ["--p99", "1s", "--out", text(&out), "--runtime", "200ms", "--quiet"];
    let brief = ["--local", "memory:16MiB", "--driver", "epoll", "--bs", "8k"];
    // What else runs on the machine is no matter here.
    let ran = run(&[&measured[..], &brief, &["--accept-disturbed"]].concat());
    let advice: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let rows = advice["rows"].as_array().expect("rows");
    let ways: Vec<&str> = rows.iter().filter_map(|row| row["way"].as_str()).collect();
    assert!(ways.iter().any(|way| way.starts_with("tcp")), "{advice}");
    assert!(ways.last().is_some_and(|way| way.starts_with("local")), "{advice}");
    for row in rows {
        assert_eq!(row["configuration"]["block_bytes"], 8192, "{row}");
        assert_eq!(row["refusal"].is_null(), !row["quantiles_ns"].is_null(), "{row}");
    }
    let confirmed = &advice["confirmation"];
    let expected = match (rows[0]["verdict"].as_str(), confirmed["verdict"].as_str()) {
        (Some("holds"), Some("holds")) => 0,
        (Some("holds"), Some(_)) => 4,
        // Of what is likely to hold it was measured whether it does.
        (Some("unknown"), Some("holds")) => 0,
        (Some("unknown"), Some(_)) | (Some(_), None) => 3,
        other => panic!("{other:?}: {advice}"),
    };
    assert_eq!(ran.code, Some(expected), "{advice} {}", ran.stderr);
    if !confirmed.is_null() {
        assert!(confirmed["iops"].as_f64().is_some_and(|iops| iops > 1000.0), "{advice}");
        assert!(out.join("confirmation/results.jsonl").exists());
    }
    let again = run(&["--p99", "1s", "--from", text(&out)]);
    let advice_again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(advice_again["rows"], advice["rows"], "the same results give the same answer");
    let none = run(&["--p99", "1ns", "--from", text(&out)]);
    assert_eq!(none.code, Some(3), "{}", none.stderr);
    terms_of_an_advice(&folder, &out);
    // Too few requests for a p99 of the confirmation: the advice is printed and kept all the same.
    let few = folder.path("few");
    let brief_run = ["--iops", "20", "--no-report", "--quiet", "--accept-disturbed"];
    let words = ["advise", "--p99", "1s", "--runtime", "200ms", "--out", text(&few), "-o", "json"];
    let ran = weft("epoll", [&words[..], &brief_run, &brief[..4]].concat());
    let kept = std::fs::read(few.join("advice.json")).expect("an advice");
    let [printed, kept] =
        [&ran.stdout, &kept].map(|text| serde_json::from_slice::<Value>(text).expect("JSON"));
    assert_eq!(printed, kept, "{}", ran.stderr);
    assert!(printed["confirmation"].is_null(), "{printed}");
    if printed["rows"][0]["verdict"] == "holds" {
        assert!(ran.fault().ends_with("too few requests for a p99"), "{}", ran.stderr);
    }
    let both = run(&["--p99", "1s", "--from", text(&out), "--out", "elsewhere"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}

/// What is replaced, what it costs and whose the requests are is taken from the words, and in the
/// rows, where these say anything.
fn terms_of_an_advice(folder: &Folder, out: &Path) {
    let run =
        |words: &[&str]| weft("epoll", [words, &["--from", text(out), "-o", "json"]].concat());
    let rows = |words: &[&str]| {
        let advice: Value = serde_json::from_slice(&run(words).stdout).expect("JSON");
        advice["rows"].as_array().expect("rows").clone()
    };
    let (prices, jobs) = (folder.path("prices.toml"), folder.path("jobs.fio"));
    let priced = "currency = \"EUR\"\nhost_core = 1\ntarget_core = 2\n[port]\ntcp = 3\n";
    std::fs::write(&prices, priced).expect("prices");
    let objective = ["advise", "--p99", "1s", "--iops", "20k"];
    let terms = ["--what-if", "rtt=30us", "--what-if", "target-cores=1", "--cost", text(&prices)];
    for row in rows(&[&objective[..], &terms].concat()) {
        let is_said = row["refusal"].is_null();
        assert_eq!(row["money"].is_number(), is_said, "{row}");
        assert_eq!(row["notes"][0].as_str().is_some(), is_said, "{row}");
    }
    let job = "[global]\nrw=randread\nbs=8k\nrate_iops=5000\n[a]\nlatency_target=900ms\n\
               latency_window=1s\nlatency_percentile=99\n[b]\n";
    std::fs::write(&jobs, job).expect("a job file");
    // The job file may stand before or after --from.
    let after =
        weft("epoll", ["advise", "--p99", "1s", "--from", text(out), text(&jobs), "-o", "json"]);
    let after: Value = serde_json::from_slice(&after.stdout).expect("JSON");
    let before = rows(&["advise", text(&jobs), "--p99", "1s"]);
    assert_eq!(after["rows"].as_array(), Some(&before), "{after}");
    for row in before {
        let names: Vec<&str> = row["tenants"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert!(row["refusal"].is_string() || names == ["a", "b"], "{row}");
    }
    for (code, words, why) in [
        (1, &["advise", text(&jobs)][..], "give --p99"),
        (1, &["advise", text(&jobs), "--p99", "1s", "--iops", "5"][..], "leave out --iops"),
        (1, &["advise", "--p99", "1s", "--iops", "5", "--cost", text(&jobs)][..], "jobs.fio: "),
        (
            2,
            &["advise", "--p99", "1s", "--iops", "5", "--what-if", "rtt=3"][..],
            "is not a span of time",
        ),
        (1, &["advise", "--iops", "5"][..], "give --p99"),
        (1, &["advise", text(&jobs), "--p99", "1s", "--bs", "4k"][..], "those of the job file"),
    ] {
        let ran = run(words);
        assert!(ran.code == Some(code) && ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    }
}

/// A number that is no objective, no request and no price is refused by the name of its option, and
/// what could not be answered of what would be measured, too: before anything is.
#[test]
fn what_makes_no_question_is_refused_before_it_is_measured() {
    let folder = Folder::new("no-question");
    let (out, prices, job) = (folder.path("out"), folder.path("prices"), folder.path("job.fio"));
    std::fs::write(&prices, "currency = \"EUR\"\nhost_core = -1\ntarget_core = 1\n")
        .expect("a file");
    let late = "[a]\nrw=randread\nrate_iops=10\nlatency_target=1h\nlatency_window=1s\n\
                latency_percentile=99\n";
    std::fs::write(&job, late).expect("a job file");
    let objective = ["--p99", "1ms", "--iops", "5k"];
    for (words, code, parts) in [
        (&["--p99", "1ms", "--iops", "0"][..], 2, ["--iops", "no rate"]),
        (&["--p99", "1ms", "--iops", "-1"], 2, ["--iops", "no rate"]),
        (&["--p99", "1ms", "--iops", "1e12"], 2, ["--iops", "no machine serves"]),
        (&["--p99", "0", "--iops", "5k"], 2, ["--p99", "no request takes 0 s"]),
        (&["--p99", "1h", "--iops", "5k"], 2, ["--p99", "longer than any run"]),
        (&[text(&job)], 1, ["job.fio", "longer than any run"]),
        (&["--bs", "0"], 2, ["--bs", "512 B"]),
        (&["--bs", "3"], 2, ["--bs", "512 B"]),
        (&["--rw", "randread", "--rwmixread", "70"], 1, ["--rwmixread 70", "give --rw randrw"]),
        (&["--rwmixread", "70"], 1, ["--rwmixread 70", "give --rw randrw"]),
        (&["--budget", "0"], 1, ["--budget", "at least: give as much"]),
        (&["--budget", "1s"], 1, ["--budget", "at least: give as much"]),
        (&["--cost", text(&prices)], 1, ["prices", "host_core: -1 is no price"]),
        (&["--what-if", "target-cores=0"], 2, ["--what-if", "no number of cores"]),
        (&["--what-if", "target-cores=8"], 1, ["--what-if", "--set target_cores=1,2"]),
        (&["--what-if", "rtt=1us", "--what-if", "rtt=2us"], 1, ["--what-if", "given twice"]),
    ] {
        let own = ["--p99", "--iops", text(&job)];
        let is_whole = words.iter().any(|word| own.contains(word));
        let rest: &[&str] = if is_whole { &[] } else { &objective };
        let always = ["--out", text(&out), "--accept-disturbed"];
        let ran = weft("epoll", [&["advise"], words, rest, &always].concat());
        let said = &ran.stderr;
        assert_eq!(ran.code, Some(code), "{words:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        assert!(!out.exists(), "{words:?}");
    }
}
