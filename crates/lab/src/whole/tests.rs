use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weft_load::random::Random;

use super::{Verified, keep_changes, verify};
use crate::claims;
use crate::results::{
    self, Environment, LatencyRecord, Record, Results, Status, Store, file, integer, key,
};
use crate::study::builtin;
use crate::study::plan::Run;
use crate::testing::{large_machine, made_up, repeated};

const FILES: [&str; 5] = [file::RECORDS, file::ENVIRONMENT, file::PLAN, file::ANSWER, file::TABLE];

/// What a run of a study leaves, made up; every seed has other numbers.
fn run(study: &str, seed: u64) -> tempfile::TempDir {
    let mut plan = builtin::find(study).expect(study).plan().expect(study);
    plan.quicken();
    plan.run = Some(Run { seed, quick: true, ..Run::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a store");
    let mut records = repeated(&made_up(&plan, &large_machine()));
    records.retain(|record| !matches!(record.status, Status::Skipped { .. }) || record.repeat == 1);
    for record in &mut records {
        record.study.clone_from(&plan.name);
        record.started_at_ms = seed;
        let setting = |key| integer(&record.configuration, key);
        let slots = setting(key::DEPTH).unwrap_or(1) * setting(key::JOBS).unwrap_or(1);
        let block_bytes = setting(key::BLOCK_BYTES).unwrap_or(4096);
        for direction in record.read.iter_mut().chain(&mut record.write) {
            let mut latency = weft_load::Latency::new();
            let each = slots * 1_000_000_000 / direction.requests.max(1);
            latency.record_times(each + seed, direction.requests);
            direction.latency = LatencyRecord::of(&latency);
            direction.bytes = block_bytes * direction.requests;
        }
    }
    let cells = records.iter().filter(|of| of.repeat == 1).map(|of| of.cell.clone()).collect();
    let environment = Environment {
        study: plan.name.clone(),
        seed,
        started_at_ms: seed,
        ended_at_ms: seed + 1,
        cells,
        builds: vec!["one".to_owned()],
        ..Environment::default()
    };
    store.set_plan(&plan.to_text().expect("a plan")).expect("a plan");
    store.set_environment(&environment).expect("an environment");
    records.iter().for_each(|record| store.add(record).expect("a line"));
    let results: Results = results::load(folder.path()).expect("results");
    store.set_answer(&claims::answer(&results)).expect("an answer");
    store.set_table(&results.records).expect("a table");
    store.set_environment(&environment).expect("an environment");
    folder
}

fn copy(of: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in FILES {
        let _ = fs::copy(of.join(name), folder.path().join(name));
    }
    folder
}

fn lines(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join(file::RECORDS)).expect("records");
    text.lines().map(|line| format!("{line}\n")).collect()
}

fn set_lines(folder: &Path, lines: &[String]) {
    fs::write(folder.join(file::RECORDS), lines.concat()).expect("records");
}

/// Damages a run's directory in one way, and says in which.
fn damage(folder: &Path, others: &[tempfile::TempDir; 2], chance: &mut Random) -> String {
    let mut below = |count: usize| {
        usize::try_from(chance.below(u64::try_from(count).expect("a count"))).expect("an index")
    };
    let mut own = lines(folder);
    let (at, kind, name) = (below(own.len()), below(9), FILES[below(FILES.len())]);
    let path = folder.join(name);
    match kind {
        0 => {
            let mut bytes = fs::read(&path).expect(name);
            let byte = below(bytes.len());
            bytes[byte] ^= 1 << below(7);
            fs::write(&path, bytes).expect(name);
            return format!("byte {byte} of {name}");
        }
        1 => {
            let bytes = fs::read(&path).expect(name);
            let length = below(bytes.len());
            fs::write(&path, &bytes[..length]).expect(name);
            return format!("{name} cut at {length}");
        }
        2 => {
            fs::remove_file(&path).expect(name);
            return format!("{name} removed");
        }
        3 => {
            let other = below(2);
            fs::copy(others[other].path().join(name), &path).expect(name);
            return format!("{name} of other {other}");
        }
        4 => drop(own.remove(at)),
        5 => own.insert(below(own.len() + 1), own[at].clone()),
        6 => {
            let other = (at + 1 + below(own.len() - 1)) % own.len();
            own.swap(at, other);
        }
        7 => own.truncate(at),
        _ => {
            let line = lines(others[below(2)].path()).swap_remove(0);
            own.insert(below(own.len() + 1), line);
        }
    }
    set_lines(folder, &own);
    format!("kind {kind} at line {}", at + 1)
}

#[test]
fn every_damage_of_a_directory_is_found_and_what_a_run_leaves_is_valid() {
    let whole = ["overhead-t-app", "saturation", "link-probe", "target-interference"];
    let others = [run("overhead-t-app", 2), run("overhead-l-app", 1)];
    for (study, seed) in whole.into_iter().zip(0..) {
        let run = run(study, 1);
        let whole = Verified { sealed: true, ..Verified::default() };
        assert_eq!(verify(run.path()), whole, "{study}");
        let mut chance = Random::new(seed, 0);
        for _ in 0..100 {
            let folder = copy(run.path());
            let what = damage(folder.path(), &others, &mut chance);
            let is_same = FILES.iter().all(|name| {
                fs::read(folder.path().join(name)).ok() == fs::read(run.path().join(name)).ok()
            });
            assert_eq!(verify(folder.path()).is_valid(), is_same, "{study}: {what}");
        }
    }
}

fn edited(folder: &Path, at: usize, edit: impl Fn(&mut Record)) {
    let mut own = lines(folder);
    let mut record: Record = serde_json::from_str(&own[at]).expect("a record");
    edit(&mut record);
    own[at] = serde_json::to_string(&record).expect("a line") + "\n";
    set_lines(folder, &own);
}

fn gallery() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gallery")
}

/// lab.md: a cut file of results had a page without a word, requests × 10 were 10.1 M IOPS, and
/// lines of another study were its best. Results without seals are held against themselves.
#[test]
fn damaged_results_of_an_earlier_version_are_found_as_far_as_they_contradict_themselves() {
    let real = gallery();
    let folders = fs::read_dir(&real).expect("the gallery").map(|entry| entry.expect("one").path());
    let folders: Vec<PathBuf> = folders.filter(|path| path.join(file::RECORDS).exists()).collect();
    assert!(folders.len() > 10, "{folders:?}");
    for folder in &folders {
        assert_eq!(verify(folder).faults, Vec::<String>::new(), "{}", folder.display());
    }
    let of = |name: &str| copy(&real.join(name));
    let faults = |folder: &tempfile::TempDir| verify(folder.path()).faults.join("\n");
    let measured = lines(&real.join("concurrency"))
        .iter()
        .position(|line| serde_json::from_str::<Record>(line).expect("a line").is_measured());
    let measured = measured.expect("a result");

    let tenfold = of("concurrency");
    edited(tenfold.path(), measured, |of| of.read.as_mut().expect("reads").requests *= 10);
    assert!(faults(&tenfold).contains("latencies"), "{}", faults(&tenfold));

    let mixed = of("concurrency");
    let both = [lines(mixed.path()), lines(&real.join("size-sweep"))].concat();
    set_lines(mixed.path(), &both);
    assert!(faults(&mixed).contains("of another study"), "{}", faults(&mixed));

    let cut = of("concurrency");
    let whole = lines(cut.path()).concat();
    fs::write(cut.path().join(file::RECORDS), &whole[..whole.len() - 9]).expect("records");
    assert!(faults(&cut).contains("the last line is cut"), "{}", faults(&cut));

    let short = of("concurrency");
    set_lines(short.path(), &lines(short.path())[..whole.lines().count() - 30]);
    assert!(faults(&short).contains("without a repeat"), "{}", faults(&short));

    let bare = of("concurrency");
    fs::remove_file(bare.path().join(file::ENVIRONMENT)).expect("the environment");
    assert!(faults(&bare).contains("environment.json cannot be read"), "{}", faults(&bare));
}

/// A run that goes on seals after what is there, also after lines without seals and a cut one.
#[test]
fn a_run_that_goes_on_is_valid_and_another_build_is_named() {
    let run = run("saturation", 1);
    let own = lines(run.path());
    for kept in 0..own.len() {
        let folder = copy(run.path());
        let mut text = own[..kept].concat();
        if kept % 2 == 1 {
            let first: Record = serde_json::from_str(&own[0]).expect("a record");
            let unsealed = serde_json::to_string(&first).expect("a line") + "\n";
            text = text.replacen(&own[0], &unsealed, 1);
        }
        text += &own[kept][..own[kept].len() / 2];
        fs::write(folder.path().join(file::RECORDS), text).expect("records");
        let mut environment = results::load(folder.path()).expect("results").environment;
        let mut store = Store::open(folder.path()).expect("a store");
        for line in &own[kept..] {
            store.add(&serde_json::from_str(line).expect("a record")).expect("a line");
        }
        store.set_environment(&environment).expect("an environment");
        assert_eq!(verify(folder.path()).faults, Vec::<String>::new(), "{kept} lines kept");
        environment.builds.push("another".to_owned());
        store.set_environment(&environment).expect("an environment");
        let faults = verify(folder.path()).faults;
        assert_eq!(faults, ["several builds have measured: one, another"]);
    }
}

/// What a killed run leaves goes on as it was, and what was edited does not become valid by it.
#[test]
fn a_run_that_goes_on_does_not_make_changed_results_valid() {
    let run = run("overhead-t-app", 1);
    let goes_on = |folder: &Path| {
        let mut environment = results::load(folder).expect("results").environment;
        let changes = keep_changes(folder, &mut environment);
        let mut store = Store::open(folder).expect("a store");
        let plan = fs::read_to_string(folder.join(file::PLAN)).expect("a plan");
        store.set_plan(&plan).expect("a plan");
        store.set_environment(&environment).expect("an environment");
        changes
    };
    let changed = |what: &str, edit: &dyn Fn(&Path)| {
        let folder = copy(run.path());
        edit(folder.path());
        let before = verify(folder.path());
        assert!(!goes_on(folder.path()).is_empty(), "{what}: {before:?}");
        for _ in 0..2 {
            let after = verify(folder.path()).faults;
            assert!(after.iter().any(|fault| fault.starts_with("before it was")), "{what}");
            assert_eq!(after.len(), after.iter().collect::<BTreeSet<_>>().len(), "{after:?}");
            goes_on(folder.path());
        }
    };
    let replaced = |name: &'static str, from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).expect(name);
            assert!(text.contains(from), "{name} has no {from}");
            fs::write(path, text.replacen(from, to, 1)).expect(name);
        }
    };
    changed("the conditions", &replaced(file::ENVIRONMENT, "\"kernel\": \"", "\"kernel\": \"9.9"));
    changed("the plan", &replaced(file::PLAN, "ramp = ", "ramp = \"9s\" #"));
    changed("lines that are gone", &|folder| set_lines(folder, &lines(folder)[..5]));
    changed("lines that were sealed again", &|folder| {
        let mut own = lines(folder);
        let last = own.pop().expect("a line");
        set_lines(folder, &own);
        let mut record: Record = serde_json::from_str(&last).expect("a record");
        record.started_at_ms += 1;
        let mut store = Store::open(folder).expect("a store");
        store.add(&record).expect("a line");
    });
    let killed = copy(run.path());
    let mut environment = results::load(killed.path()).expect("results").environment;
    environment.ended_at_ms = 0;
    let own = lines(killed.path());
    set_lines(killed.path(), &own[..3]);
    Store::open(killed.path())
        .and_then(|mut store| store.set_environment(&environment))
        .expect("an environment");
    set_lines(killed.path(), &own);
    assert!(!verify(killed.path()).is_valid());
    assert_eq!(goes_on(killed.path()), Vec::<String>::new());
}

#[test]
fn a_page_of_a_directory_that_is_not_whole_says_so() {
    let run = run("overhead-t-app", 1);
    let page = |folder: &Path| crate::html::report(&[folder]).expect("a page");
    const MARK: &str = "These results are not whole: ";
    assert!(!page(run.path()).contains(MARK));
    let own = lines(run.path());
    set_lines(run.path(), &own[..own.len() - 1]);
    let page = page(run.path());
    let (_, said) = page.split_once(MARK).expect("a mark");
    assert!(said.starts_with("results.jsonl had "), "{}", &said[..200]);
}
