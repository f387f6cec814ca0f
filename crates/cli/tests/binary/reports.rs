//! The forms of a bench's reports, and its logs.

use crate::weft::{Folder, text, weft};
use serde_json::Value;

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
}
