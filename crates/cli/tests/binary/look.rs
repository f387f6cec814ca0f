//! Measurements without a separate target.

use crate::weft::{DRIVERS, Folder, text, weft};
use serde_json::Value;

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
        "1k",
        "--io-size",
        "800KiB",
        "--output",
        text(&path),
        "--rate-process",
        "poisson",
    ];
    let human = weft("epoll", words).text();
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
