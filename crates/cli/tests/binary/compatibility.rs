//! What 0.1.0 wrote is read, and its methods answer as they did (docs/operate.md#compatibility).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::control::{call, client, loaded};
use crate::weft::{DRIVERS, Folder, Target, command, text, weft};

const NQN: &str = "nqn.2024-01.org.example:sample";

/// Host and identifier that hold the reservation.
const HOST: [&str; 4] =
    ["-q", "nqn.2014-08.org.example:h", "-I", "11111111-1111-1111-1111-111111111111"];

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/0.1.0").join(name)
}

fn sample_of_json(name: &str) -> Value {
    let text = std::fs::read_to_string(sample(name)).expect("a sample");
    serde_json::from_str(&text).expect("JSON")
}

/// A target in a folder with what 0.1.0 left there.
fn target(folder: &Folder, words: &[&str]) -> Target {
    for name in
        ["target.toml", "state", "state.events", "reservations.json", "reservations.json.hosts"]
    {
        std::fs::copy(sample(name), folder.path(name)).expect("a copy");
    }
    let disk = std::fs::File::create(folder.path("disk.img")).expect("a file");
    disk.set_len(1 << 20).expect("a size");
    let control = format!("unix:{}", folder.path("control").display());
    let mut command = command(DRIVERS[0]);
    command.args(["target", "--stop-with-stdin", "-o", "json", "--control", &control]);
    command.args(words).current_dir(folder.path("."));
    Target::spawn(DRIVERS[0], command)
}

#[test]
fn the_configuration_and_the_reservations_of_the_first_release_are_read() {
    let folder = Folder::new("first-configuration");
    let target = target(&folder, &["--config", "target.toml"]);
    let namespaces = target.said["subsystems"][0]["namespaces"].clone();
    assert_eq!(namespaces[0]["nsid"], 3, "{namespaces}");
    let mut words = vec!["reservation", "report", "--namespace-id", "3", "-o", "json"];
    let url = target.url(3);
    words.extend(HOST);
    words.extend(["--", &url]);
    let report = weft(DRIVERS[0], words).json();
    let then = sample_of_json("report.json");
    for field in ["rtype", "ptpls"] {
        assert!(!then[field].is_null() && report[field] == then[field], "{report}");
    }
    target.stop();
}

#[test]
fn the_state_of_the_first_release_is_read() {
    let folder = Folder::new("first-state");
    let target = target(&folder, &["--state", "state"]);
    let subsystems = call(&mut client(&target), "nvmf_get_subsystems", json!({})).expect("answer");
    let of = |all: &Value| {
        let all = all.as_array().expect("a list").iter().find(|one| one["nqn"] == NQN).cloned();
        let namespaces = all.expect("it is served")["namespaces"].clone();
        let namespaces = namespaces.as_array().expect("a list").clone();
        namespaces.iter().map(|one| (one["nsid"].clone(), one["uuid"].clone())).collect::<Vec<_>>()
    };
    let then = of(&sample_of_json("rpc.json")["answers"]["nvmf_get_subsystems"]);
    assert_eq!((of(&subsystems), then.len()), (then.clone(), 2));
    target.stop();
}

/// Whether an answer has what it had: each field, with a value of the same type.
fn has(now: &Value, then: &Value, place: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, then) in then {
                let now = now.get(name).unwrap_or_else(|| panic!("{place}.{name} is gone"));
                has(now, then, &format!("{place}.{name}"));
            }
        }
        // The first stands for all, whichever that is.
        (Value::Array(now), Value::Array(then)) => {
            if let (Some(now), Some(then)) = (now.first(), then.first()) {
                has(now, then, place);
            }
        }
        _ => {
            let same = std::mem::discriminant(now) == std::mem::discriminant(then);
            assert!(same, "{place} was {then} and is {now}");
        }
    }
}

#[test]
fn methods_answer_as_in_the_first_release() {
    let folder = Folder::new("first-methods");
    let target = target(&folder, &["--state", "state"]);
    let mut client = client(&target);
    let answers = sample_of_json("rpc.json")["answers"].clone();
    for (method, then) in answers.as_object().expect("answers") {
        let now = call(&mut client, method, json!({})).expect(method);
        if method == "rpc_get_methods" {
            let now = now.as_array().expect("a list");
            let gone = then.as_array().expect("a list").iter().find(|one| !now.contains(one));
            assert_eq!(gone, None);
        } else {
            has(&now, then, method);
        }
    }
    target.stop();
}

#[test]
fn what_the_first_release_saved_is_loaded() {
    let calls = sample_of_json("rpc.json")["saved"].clone();
    let mut calls = calls.as_array().expect("calls").clone();
    let folder = Folder::new("first-saved");
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    for one in &mut calls {
        if one["params"]["device"] == "file:disk.img,size=1MiB" {
            one["params"]["device"] = format!("file:{}", text(&disk)).into();
        }
        if one["params"]["namespace"].get("ptpl_file").is_some() {
            one["params"]["namespace"]["ptpl_file"] = text(&folder.path("reservations")).into();
        }
    }
    let names = |calls: &[Value]| {
        let names = calls.iter().filter_map(|one| one["method"].as_str().map(str::to_owned));
        let mut names: Vec<String> =
            names.filter(|name| name != "nvmf_subsystem_add_listener").collect();
        names.sort();
        names
    };
    assert_eq!(names(&loaded(&calls)), names(&calls));
}

#[test]
fn results_of_the_first_release_are_reported_and_compared() {
    let folder = Folder::new("first-results");
    let (results, page) = (sample("results"), folder.path("report.html"));
    weft(DRIVERS[0], ["report", text(&results), "--out", text(&page)]).text();
    let shown = std::fs::read_to_string(&page).expect("a page");
    assert!(shown.contains("Random reads"), "the page has the study's figures");
    let compared = weft(DRIVERS[0], ["study", "compare", text(&results), text(&results)]);
    // A copy convinces nobody; but it is read.
    let said = "of one run, which counts once";
    assert!(compared.stderr.contains(said), "{}", compared.stderr);
    let both = weft(DRIVERS[0], ["report", text(&results), text(&results), "--out", text(&page)]);
    assert!(both.stderr.contains(said), "{}", both.stderr);
}
