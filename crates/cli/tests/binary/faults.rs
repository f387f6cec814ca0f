//! Studies during which an error occurs.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use weft_lab::results::{Record, Role, Status};

use crate::study::{RunningStudy, SHORT, lines, plan, records};
use crate::weft::{Folder, Target, command, text, weft};

#[test]
fn a_tenant_on_a_target_that_others_use_is_void() {
    let folder = Folder::new("void");
    let body = "kind = \"interference\"\n[axes]\nforeground = [\"l-app\"]\nload_percent = [50]\n\
                [interference]\nshared = \"target\"\nbackground = { depth = 4 }\n\
                [interference.foreground]\nl-app = { depth = 1 }\n";
    let plan = plan(&folder, body);
    let control = format!("unix:{}", folder.path("control").display());
    let serves = ["--memory", "8MiB", "--memory", "8MiB", "--control", &control];
    let target = Target::start("epoll", &serves);
    let url = target.url(1);
    let run = |name: &str| {
        let out = folder.path(name);
        let how = ["--target", &url, "--control", &control, "--out", text(&out)];
        let how = [&how[..], &["--no-report", "--quick"]].concat();
        let words = [&["study", "run", text(&plan)], &SHORT[..], &how].concat();
        let ran = weft("epoll", words);
        (ran.code, ran.stderr, records(&out))
    };
    let (code, said, alone) = run("alone");
    assert_eq!(code, Some(0), "{said}");
    assert!(alone.len() > 1 && alone.iter().all(Record::is_measured));
    let _intruder =
        RunningStudy::start(&["bench", &url, "--runtime", "600", "--time_based", "--quiet"]);
    let (code, said, disturbed) = run("disturbed");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(disturbed.len(), alone.len(), "{said}");
    for record in &disturbed {
        match &record.status {
            Status::Void { reason } => assert!(reason.contains("which served"), "{reason}"),
            // A share of a void saturation point is not offered.
            Status::Failed { reason }
                if matches!(record.role, Role::Foreground | Role::Background) =>
            {
                assert!(reason.contains("saturation point"), "{reason}");
            }
            status => panic!("{}: {status:?}", record.cell),
        }
        assert!(said.contains(&record.cell), "{said}");
    }
}

#[test]
fn a_full_disk_loses_no_measured_repeat() {
    let folder = Folder::new("full");
    let body = "[axes]\ntransport = [\"local\"]\ndepth = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, \
                13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24]\n";
    let plan = plan(&folder, body);
    let small = folder.path("small");
    fs::create_dir(&small).expect("a folder");
    let out = folder.path("out");
    // A file system for this process alone; its files are copied before it is unmounted.
    let script = "mount -t tmpfs -o size=32k none \"$1\" || exit 99; at=$1; out=$2; shift 2; \
                  \"$@\" --out \"$at/out\"; code=$?; cp -r \"$at/out\" \"$out\"; exit $code";
    let weft_itself = command("epoll");
    let mut unshare = std::process::Command::new("unshare");
    unshare.env("WEFT_DRIVER", "epoll").stdin(Stdio::null());
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    unshare.args([text(&small), text(&out)]).arg(weft_itself.get_program());
    unshare.args(["study", "run", text(&plan)]).args(SHORT);
    unshare.args(["--local", "null:1GiB", "--no-report", "--quick"]);
    let ran = unshare.output().expect("unshare");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be written: No space left on device"), "{said}");
    assert!(said.contains("--resume"), "{said}");

    let kept = records(&out);
    assert!(!kept.is_empty() && kept.iter().all(Record::is_measured));
    let missing = 24 - kept.len();
    assert!(missing > 0 && said.contains(&format!("{missing} cells are missing")), "{said}");

    let again = ["study", "run", "--resume", text(&out), "--no-report", "-o", "json"];
    assert_eq!(weft("epoll", again).json()["measured"], 24);
    assert_eq!(lines(&out), 24, "nothing is measured twice, and an incomplete line is removed");
    let loaded = records(&out);
    let cells: BTreeSet<_> = loaded.iter().map(|record| &record.cell).collect();
    assert_eq!(cells.len(), 24);
    for record in &kept {
        let same = loaded.iter().find(|other| other.cell == record.cell);
        assert_eq!(same.map(Record::iops), Some(record.iops()), "earlier records are unchanged");
    }
}

/// What was found is said, although a file that keeps it cannot be written: something else has its
/// name.
#[test]
fn what_was_found_is_said_although_it_cannot_be_kept() {
    let folder = Folder::new("unkept");
    let run = |words: &[&str], taken: &str| {
        let out = folder.path(&taken.replace('/', "-"));
        fs::create_dir_all(out.join(taken)).expect("a folder in the place of a file");
        let ran = weft("epoll", [words, &["--out", text(&out), "--quiet"]].concat());
        assert_eq!(ran.code, Some(1), "{taken}: {}", ran.stderr);
        assert!(ran.stderr.contains("Is a directory"), "{taken}: {}", ran.stderr);
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let body = "[axes]\ntransport = [\"local\"]\n[measure]\nsettle = \"0s\"\n";
    let plan = plan(&folder, body);
    let study = [&["study", "run", text(&plan), "--local", "null:1GiB"], &SHORT[..]].concat();
    for taken in [".report.html.new", ".results.csv.new"] {
        let said = run(&study, taken);
        assert!(said.contains("1 repeat measured"), "{taken}: {said}");
    }
    let advise = ["advise", "--p99", "1s", "--iops", "1k", "--no-confirm", "--accept-disturbed"];
    let brief = ["--local", "memory:8MiB", "--only", "transport=tcp", "--runtime", "100ms"];
    let said = run(&[&advise[..], &brief, &["-o", "json"]].concat(), "advice.json");
    let advice: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(advice["rows"].as_array().map(Vec::len), Some(1), "{advice}");
}
