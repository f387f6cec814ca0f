//! The report page as text: what it says, and that it needs nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use report_page::made_up::{self, Machine};
use tempfile::TempDir;
use weft_lab::compare::{self, Answer, Parameters};
use weft_lab::study::builtin;
use weft_lab::{html, results};

fn results_of(study: &str, machine: &Machine, folder: &TempDir) -> PathBuf {
    let directory = folder.path().join(format!("{study}-{}", machine.seed));
    made_up::write(study, machine, &directory).expect("results");
    directory
}

fn page(studies: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::default();
    let directories: Vec<PathBuf> =
        studies.iter().map(|study| results_of(study, &machine, &folder)).collect();
    let directories: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
    html::report(&directories).expect("a page")
}

/// What a reader sees: without scripts, styles and tags.
fn text_of(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        let ends = ["script", "style"].into_iter().find(|name| tag.starts_with(name));
        let after = match ends {
            Some(name) => tag.split_once(&format!("</{name}>")).map(|(_, after)| after),
            None => tag.split_once('>').map(|(_, after)| after),
        };
        rest = after.expect("a whole tag");
    }
    text += rest;
    text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"")
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let page = page(&["first-look"]);
    let markup = page.split("<script id=\"charts\"").next().expect("a page");
    for attribute in ["src=", "href="] {
        for (at, _) in markup.match_indices(attribute) {
            let value = &markup[at + attribute.len()..];
            let local = value.starts_with("\"#") || value.starts_with("\"data:");
            assert!(local, "{}", &value[..value.len().min(60)]);
        }
    }
    assert!(!markup.contains("@import") && !markup.contains("url("));
    assert!(markup.contains("default-src 'none'"), "the page forbids itself to load anything");
    assert!(page.len() < 3_000_000, "{}", page.len());
}

#[test]
fn one_colour_has_one_meaning_in_a_study() {
    const TRANSPORTS: [&str; 5] = ["local", "tcp", "tcp-link", "rdma", "loopback"];
    for builtin in builtin::BUILTINS {
        let page = page(&[builtin.name]);
        let (_, rest) = page.split_once("type=\"application/json\">").expect("charts");
        let charts = rest.split("</script>").next().expect("an end");
        let charts: Vec<serde_json::Value> = serde_json::from_str(charts).expect("JSON");
        let mut meanings: BTreeMap<(u64, Option<u64>), String> = BTreeMap::new();
        // Parts of CPU time have colours of their own, and rings those of their line.
        let of = |chart: &serde_json::Value| -> Vec<serde_json::Value> {
            let traces = chart["traces"].as_array().expect("traces").iter();
            let is_series = |trace: &&serde_json::Value| {
                trace["meta"]["rings"] != true && trace["meta"]["part"].is_null()
            };
            traces.filter(is_series).cloned().collect()
        };
        for trace in charts.iter().map(of).filter(|traces| traces.len() > 1).flatten() {
            let (name, meta) = (trace["name"].as_str().expect("a name"), &trace["meta"]);
            let colour = meta["colour"].as_u64().expect("a colour");
            let transport = name.split(", ").find(|word| TRANSPORTS.contains(word));
            // Where no transports are told apart, a colour and a dash are one value together.
            let (key, meaning) = match transport {
                _ if meta["published"] == true => ((colour, None), "published"),
                Some(transport) => ((colour, None), transport),
                None => ((colour, meta["dash"].as_u64()), name),
            };
            let known = meanings.entry(key).or_insert_with(|| meaning.to_owned());
            assert_eq!(known, meaning, "{}: colour {key:?}", builtin.name);
        }
        for (colour, _) in meanings.keys().filter(|(_, dash)| dash.is_none()) {
            let mut others = meanings.keys().filter(|(_, dash)| dash.is_some());
            assert!(others.all(|(other, _)| other != colour), "{}: {meanings:?}", builtin.name);
        }
    }
}

#[test]
fn the_same_results_give_the_same_page() {
    assert!(page(&["size-sweep"]) == page(&["size-sweep"]));
}

#[test]
fn a_first_look_says_what_it_is() {
    let text = text_of(&page(&["first-look"]));
    for part in [
        "repeats (n = 3), short cells (300.0 ms), measured without waiting",
        "measured without waiting for steady state",
        "weft study run first-look --seed 7",
        "target on the same machine",
        "Made-up CPU",
        "relative to raw round trips",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn every_study_has_a_page_that_says_what_is_missing_and_why() {
    for builtin in builtin::BUILTINS {
        let page = page(&[builtin.name]);
        let text = text_of(&page);
        let plan = builtin.plan().expect("a plan");
        assert!(text.contains(&plan.title) && text.contains(&plan.question), "{}", builtin.name);
        assert!(page.contains("<p class=\"sentence\">"), "{}: no answer", builtin.name);
        assert!(text.contains("Environment"));
        assert!(text.contains("n = "), "{}", builtin.name);
        if plan.has("transport", "rdma") {
            let reason = "this machine has no RDMA device with an IPv4 address";
            assert!(text.contains(reason), "{}", builtin.name);
        }
        if text.contains("CPU") {
            assert!(text.contains("use the sum of host and target"), "{}", builtin.name);
        }
        for figure in plan.plots.iter().filter(|plot| !plot.figure.is_empty()).take(1) {
            assert!(text.contains(&format!("after {}", figure.figure)), "{}", builtin.name);
        }
    }
}

#[test]
fn void_and_failed_cells_are_told_with_their_reasons() {
    let text = text_of(&page(&["concurrency"]));
    for part in [
        "the target served 12 commands on another poll group",
        "the peer closed the connection",
        "IOPS were not steady",
        "Cells without a result",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn published_numbers_stand_beside_ours_with_both_machines() {
    let text = text_of(&page(&["target-interference"]));
    for part in [
        "Comparison with the paper",
        "Xeon Silver 4210R",
        "Made-up CPU",
        "latency interference",
        "agrees",
        "P99 of l-app beside a neighbour on the same target core",
        "beside network, host sleeps",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn several_studies_make_one_page() {
    let page = page(&["concurrency", "size-sweep"]);
    let text = text_of(&page);
    assert!(text.contains("Across the studies") && text.contains("2 studies"));
    assert!(page.contains("href=\"#study-1\"") && page.contains("id=\"study-1\""));
    assert_eq!(page.matches("id=\"library\"").count(), 1, "the library is there once");
}

#[test]
fn what_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = html::report(&[folder.path()]).expect_err("no results");
    assert!(error.to_string().contains("environment.json"), "{error}");
    assert!(html::report(&[]).is_err());
    let directory = results_of("saturation", &Machine::default(), &folder);
    let nowhere = folder.path().join("no/such/folder/report.html");
    assert!(html::write_report(&[&directory], &nowhere).is_err());
    // A plan of another version costs the plan's figures, not the page.
    std::fs::write(directory.join(results::file::PLAN), "name = 1\n").expect("a write");
    let page = html::report(&[&directory]).expect("a page");
    assert!(text_of(&page).contains("The plan in this directory cannot be read"));
    assert!(page.contains("data-chart") || page.contains("<table>"));
}

fn compared(study: &str, slowness: f64, repeats: u32) -> compare::Comparison {
    let folder = tempfile::tempdir().expect("a folder");
    let load =
        |machine: &Machine| results::load(&results_of(study, machine, &folder)).expect("results");
    let first = load(&Machine { repeats: Some(repeats), ..Machine::default() });
    let second = load(&Machine { slowness, seed: 2, repeats: Some(repeats), ..Machine::default() });
    compare::compare(&first, &second, &Parameters::default())
}

#[test]
fn a_slower_machine_is_found_to_be_slower_and_the_same_one_is_not() {
    let slower = compared("concurrency", 1.15, 8);
    assert!(slower.is_slower());
    let told = slower.each().filter(|one| one.answer == Answer::Slower).count();
    assert!(told > 20, "{told}");
    // The plan's three repeats cannot convince.
    let refusal = compared("concurrency", 1.15, 3).inconclusive().expect("too few repeats");
    assert!(refusal.contains("3 repeats of a cell cannot convince"), "{refusal}");
    let same = compared("concurrency", 1.0, 8);
    assert!(!same.is_slower(), "{:?}", same.overall);
    let faster = compared("concurrency", 0.8, 8);
    assert!(!faster.is_slower());
    assert!(faster.each().any(|one| one.answer == Answer::Faster));
}
