use std::collections::{BTreeMap, BTreeSet};

use super::{Outcome, Row, paper_comparisons, summary};
use crate::cells::Cells;
use crate::cells::gate::{Rule, Sentence, rule};
use crate::published::Published;
use crate::results::{Connection, Environment, IdleRate, Mark, Record, Role, Value, key};
use crate::study::builtin;
use crate::study::capabilities::{Apart, Capabilities};
use crate::study::plan::Plan;
use crate::testing::{large_machine, made_up, record, repeated};

fn plan(name: &str) -> Plan {
    builtin::find(name).expect(name).plan().expect(name)
}

/// A document with these results of a study.
fn published(study: &str, results: &[&str]) -> Published {
    let mut text =
        "[source.paper]\ntitle = \"A paper\"\ntestbed = \"two hosts\"\nmethod = \"once\"\n"
            .to_owned();
    for result in results {
        text += &format!(
            "[[result]]\nsource = \"paper\"\nfigure = \"Fig 1\"\nstudy = \"{study}\"\n{result}\n"
        );
    }
    toml::from_str(&text).expect("published numbers")
}

fn rows(study: &str, results: &[&str], records: &[Record]) -> Vec<Row> {
    let cells = Cells::of(&repeated(records), &Environment::default());
    let documents = paper_comparisons(&published(study, results), &cells, &plan(study));
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0].document, "A paper");
    documents.into_iter().flat_map(|document| document.rows).collect()
}

fn point(transport: &str, pattern: &str, depth: u64, iops: f64) -> Record {
    let settings = [
        (key::TRANSPORT, Value::from(transport)),
        (key::PATTERN, pattern.into()),
        (key::BLOCK_BYTES, 4096u64.into()),
        (key::DEPTH, depth.into()),
    ];
    record(Role::Plain, &settings, iops, 10)
}

const LOCAL: &str = "transport = \"local\"\npattern = \"randread\"\nbs_bytes = 4096\nqd = 1\n\
                     metric = \"iops\"\nvalue = 100.0\nunit = \"KIOPS\"";

fn remote(value: f64) -> String {
    LOCAL.replace("\"local\"", "\"tcp\"").replace("100.0", &format!("{value:?}"))
}

#[test]
fn a_remote_number_is_compared_by_its_share_of_local() {
    let records = [
        point("local", "randread", 1, 2_000_000.0),
        point("tcp", "randread", 1, 1_000_000.0),
        // Other points do not correspond.
        point("tcp", "randwrite", 1, 10.0),
        point("tcp", "randread", 8, 20.0),
    ];
    let found = rows("overhead-t-app", &[LOCAL, &remote(45.0)], &records);
    assert!(matches!(found[0].verdict, Outcome::Ratio(_)), "{:?}", found[0].verdict);
    assert_eq!(found[1].verdict, Outcome::Alike, "45 % and 50 % are alike: {:?}", found[1]);
    assert_eq!(found[1].shape, "relative to local: published 45 %, measured 50 %");
    let found = rows("overhead-t-app", &[LOCAL, &remote(10.0)], &records);
    let Outcome::Differs(how) = &found[1].verdict else { panic!("{:?}", found[1]) };
    assert_eq!(how, "published 10 %, measured 50 %");
}

#[test]
fn opposite_directions_are_reported() {
    let records =
        [point("local", "randread", 1, 1_000_000.0), point("tcp", "randread", 1, 500_000.0)];
    let found = rows("overhead-t-app", &[LOCAL, &remote(130.0)], &records);
    let Outcome::Differs(how) = &found[1].verdict else { panic!("{:?}", found[1]) };
    assert!(how.starts_with("in the opposite direction: "), "{how}");
}

#[test]
fn published_numbers_without_a_measured_one_are_missing() {
    let records = [point("local", "randread", 1, 1_000_000.0)];
    let deep = LOCAL.replace("qd = 1", "qd = 77");
    let odd = LOCAL.replace("\"local\"", "\"pigeon\"");
    let found = rows("overhead-t-app", &[&remote(45.0), &deep, &odd], &records);
    let reasons: Vec<&str> = found
        .iter()
        .map(|row| match &row.verdict {
            Outcome::Missing(why) => why.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "no cell with these settings",
            "no cell with these settings",
            "no transport of this study corresponds to pigeon"
        ]
    );
    assert!(found.iter().all(|row| row.measured == "–"));
}

#[test]
fn interference_is_matched_by_tenant_and_load() {
    let tenant = |role: Role, name: &str, load: Option<u64>, us: u64| {
        let mut settings =
            vec![(key::FOREGROUND, Value::from(name)), (key::SHARED, "target".into())];
        settings.extend(load.map(|load| (key::LOAD_PERCENT, load.into())));
        settings.push((key::DEPTH, if name == "l-app" { 1u64 } else { 128 }.into()));
        record(role, &settings, 10_000.0, us)
    };
    let records = [
        tenant(Role::Alone, "l-app", None, 100),
        tenant(Role::Foreground, "l-app", Some(20), 200),
        tenant(Role::Foreground, "l-app", Some(60), 900),
        tenant(Role::Alone, "t-app", None, 100),
        tenant(Role::Foreground, "t-app", Some(20), 800),
    ];
    let theirs = "qd = 1\nmetric = \"latency_interference\"\nvalue = 1.8\nunit = \"x\"\n\
                  settings = { foreground = \"l-app\", load_percent = 20 }";
    let found = rows("target-interference", &[theirs], &records);
    assert_eq!(found[0].verdict, Outcome::Alike, "2.0 of the L-app at 20 %: {:?}", found[0]);
    let more = theirs.replace("20 }", "60 }");
    let found = rows("target-interference", &[&more], &records);
    assert!(matches!(found[0].verdict, Outcome::Differs(_)), "{:?}", found[0]);
}

#[test]
fn published_interference_is_that_of_hosts_that_poll() {
    let tenant = |role: Role, polling: &str, us: u64| {
        let mut settings = vec![
            (key::FOREGROUND, Value::from("l-app")),
            (key::HOST_POLLING, polling.into()),
            (key::DEPTH, 1u64.into()),
        ];
        if role == Role::Foreground {
            settings.push((key::LOAD_PERCENT, 20u64.into()));
        }
        record(role, &settings, 10_000.0, us)
    };
    let of =
        |polling, us| [tenant(Role::Alone, polling, 100), tenant(Role::Foreground, polling, us)];
    let theirs = "qd = 1\nmetric = \"latency_interference\"\nvalue = 1.8\nunit = \"x\"\n\
                  settings = { foreground = \"l-app\", load_percent = 20 }";
    let both = [of("sleep", 900), of("spin", 200)].concat();
    let found = rows("target-interference", &[theirs], &both);
    assert_eq!(found[0].verdict, Outcome::Alike, "{:?}", found[0]);
    assert!(!found[0].differences.contains("hosts that sleep"), "{:?}", found[0]);
    let found = rows("target-interference", &[theirs], &of("sleep", 200));
    assert_eq!(found[0].verdict, Outcome::Alike, "{:?}", found[0]);
    assert!(found[0].differences.contains("hosts that sleep measured"), "{:?}", found[0]);
}

#[test]
fn the_summary_counts_the_rows() {
    let records =
        [point("local", "randread", 1, 1_000_000.0), point("tcp", "randread", 1, 500_000.0)];
    let cells = Cells::of(&repeated(&records), &Environment::default());
    let deep = LOCAL.replace("qd = 1", "qd = 77");
    let results = [LOCAL, &remote(45.0), &remote(5.0), &deep];
    let said =
        paper_comparisons(&published("overhead-t-app", &results), &cells, &plan("overhead-t-app"));
    let said = summary(&said[0]);
    assert!(said.contains("4,") && said.matches('1').count() >= 4, "{said}");
}

#[test]
fn marks_and_intervals_withhold_a_verdict() {
    let mut records =
        [point("local", "randread", 1, 1_000_000.0), point("tcp", "randread", 1, 500_000.0)];
    let verdict = |records: &[Record], theirs: f64| {
        let found = rows("overhead-t-app", &[LOCAL, &remote(theirs)], records);
        found[1].verdict.clone()
    };
    assert_eq!(verdict(&records, 45.0), Outcome::Alike);
    records[0].mark(Mark::GeneratorFull);
    let Outcome::Withheld(why) = verdict(&records, 45.0) else { panic!("local was not full") };
    assert!(why.starts_with("the load generator's processor was saturated"), "{why}");
    let Outcome::Withheld(_) = verdict(&records, 5.0) else { panic!("nor does it differ") };
    records[0].marks = vec![Mark::SharedCores, Mark::Loopback];
    assert_eq!(verdict(&records, 45.0), Outcome::Alike, "these are named only");
    let once = Cells::of(&records, &Environment::default());
    let published = published("overhead-t-app", &[LOCAL, &remote(45.0)]);
    let said = paper_comparisons(&published, &once, &plan("overhead-t-app"));
    let Outcome::Withheld(why) = &said[0].rows[1].verdict else { panic!("one repeat") };
    assert!(why.contains("one repeat shows no spread"), "{why}");
    let mut records = repeated(&records);
    for (index, record) in records.iter_mut().enumerate() {
        let direction = record.read.as_mut().expect("reads");
        direction.requests = direction.requests * (10 + [0, 2, 0, 0, 3, 0][index]) / 10;
    }
    let cells = Cells::of(&records, &Environment::default());
    let said = paper_comparisons(&published, &cells, &plan("overhead-t-app"));
    let Outcome::Withheld(why) = &said[0].rows[1].verdict else { panic!("{:?}", said[0].rows[1]) };
    assert!(why.starts_with("not distinguishable here: about"), "{why}");
}

#[test]
fn every_mark_withholds_a_verdict_or_is_named_beside_it_as_the_table_says() {
    let records =
        [point("local", "randread", 1, 1_000_000.0), point("tcp", "randread", 1, 500_000.0)];
    // A mark counts wherever the number comes from: the remote cell, or the local one beside it.
    for (marked, mark) in [0, 1].into_iter().flat_map(|cell| Mark::ALL.map(|mark| (cell, mark))) {
        let mut records = records.clone();
        records[marked].mark(mark);
        let named = format!("({})", mark.short());
        for (theirs, is_alike) in [(45.0, true), (5.0, false)] {
            let found = rows("overhead-t-app", &[LOCAL, &remote(theirs)], &records);
            let row = &found[1];
            match (rule(mark, Sentence::Published), &row.verdict) {
                (Rule::Forbidden, Outcome::Withheld(why)) => {
                    assert!(why.contains(mark.explained()), "{mark:?}: {row:?}");
                }
                (told, Outcome::Alike) if is_alike && told != Rule::Forbidden => {}
                (told, Outcome::Differs(_)) if !is_alike && told != Rule::Forbidden => {}
                _ => panic!("{mark:?} of cell {marked}: {row:?}"),
            }
            let is_named = row.settings.contains(&named);
            assert_eq!(is_named, rule(mark, Sentence::Published) == Rule::Named, "{row:?}");
        }
        // A number with nothing to relate it to passes the same gate.
        let found = rows("overhead-t-app", &[LOCAL], &records);
        let is_withheld = matches!(found[0].verdict, Outcome::Withheld(_));
        let forbidden = rule(mark, Sentence::Published) == Rule::Forbidden;
        assert_eq!(is_withheld, marked == 0 && forbidden, "{mark:?}: {:?}", found[0]);
    }
}

#[test]
fn a_verdict_names_our_transport_device_and_cores_beside_theirs() {
    let mut records =
        [point("local", "randread", 1, 1_000_000.0), point("tcp", "randread", 1, 500_000.0)];
    let tcp = &mut records[1];
    tcp.connection = Some(Connection::over_loopback("tcp"));
    tcp.mark(Mark::Loopback);
    for (key, value) in [
        (key::DEVICE, Value::from("memory")),
        (key::HOST_CORES, 1u64.into()),
        (key::TARGET_CORES, 1u64.into()),
    ] {
        tcp.configuration.insert(key.to_owned(), value);
    }
    let theirs = remote(5.0) + "\ncores = 28\ndevice = \"an SSD\"";
    let found = rows("overhead-t-app", &[LOCAL, &theirs], &records);
    let expected = "ours: tcp within one machine, memory, 1 of the host's cores and 1 of the \
                    target's cores (loopback); theirs: tcp, an SSD, 28 cores";
    assert_eq!(found[1].settings, expected);
    let cells = Cells::of(&repeated(&records), &Environment::default());
    let published = published("overhead-t-app", &[LOCAL, &theirs]);
    let said = paper_comparisons(&published, &cells, &plan("overhead-t-app"));
    assert!(summary(&said[0]).contains(expected), "{}", summary(&said[0]));
}

/// What the documentation says how each publication is run as it was printed: the study, its plan
/// with the settings of the command, and the machines of its site.
fn printed() -> Vec<(Plan, Option<Apart>)> {
    const TEXT: &str = include_str!("../../../../../docs/studies.md");
    let (_, text) = TEXT.split_once("## Each as it was printed").expect("the section");
    let mut variables: Vec<(String, String)> = Vec::new();
    let (mut links, mut commands) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        if let Some((_, rest)) = line.split_once("links = {") {
            links = rest.trim_end_matches([' ', '}']).split(',').collect();
        } else if let Some((name, value)) = line
            .split_once("=\"")
            .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase()))
        {
            variables.push((format!("${name}"), value.trim_end_matches('"').to_owned()));
        } else if let Some(command) = line.strip_prefix("weft study run ") {
            let mut command = command.split('#').next().unwrap_or_default().to_owned();
            for (name, value) in &variables {
                command = command.replace(name, value);
            }
            let names = links.iter().filter_map(|link| link.split('=').next());
            let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
            let words: Vec<&str> = command.split_whitespace().collect();
            let loads = words.windows(2).find(|pair| pair[0] == "--load-on");
            let loads: Vec<&str> = loads.map_or(vec![""], |pair| pair[1].split(',').collect());
            let apart = command.contains("--site").then(|| Apart {
                load_cpus: (0..28).collect(),
                loads: loads.len(),
                same_load_machine: loads[1..].contains(&loads[0]),
                local: true,
                links: names.into_iter().map(|link| (link, true)).collect(),
                ..Apart::default()
            });
            commands.push((as_run(&command), apart));
        }
    }
    commands
}

/// The plan of a command line.
fn as_run(command: &str) -> Plan {
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut plan = plan(words[0]);
    let value = |text: &str| match text.parse::<u64>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(text),
    };
    for pair in words.windows(2) {
        let (key, values) = match pair[0] {
            "--set" => pair[1].split_once('=').expect("a setting"),
            "--host-software" => (key::HOST_SOFTWARE, pair[1]),
            "--target-software" => (key::TARGET_SOFTWARE, pair[1]),
            _ => continue,
        };
        plan.set(key, values.split(',').map(value).collect());
    }
    plan
}

/// A row of the account in the documentation.
#[derive(Debug)]
struct Account {
    /// The document, as [`Published`] calls it.
    source: &'static str,
    figures: Vec<String>,
    study: &'static str,
    is_as_printed: bool,
}

impl Account {
    /// Whether a figure of this number is one of its own; it may name the first and the last.
    fn has(&self, number: &str) -> bool {
        let number = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let value = |text: &str| text.parse::<f64>().unwrap_or_default();
        let ends = self.figures.iter().map(|text| value(text));
        let (least, most) = (ends.clone().fold(f64::MAX, f64::min), ends.fold(0.0, f64::max));
        (least..=most).contains(&value(number))
    }
}

/// The numbers of figures and tables in a text: `5a`, `4.2`.
fn numbers_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned).collect()
}

fn account() -> Vec<Account> {
    const TEXT: &str = include_str!("../../../../../docs/studies.md");
    const SOURCES: [(&str, &str); 5] = [
        ("Kashyap", "kashyap2020"),
        ("Chelsio", "chelsio2020"),
        ("Jia", "jia2019"),
        ("Sivakumar", "sivakumar2024"),
        ("nbdX", "nbdx2016"),
    ];
    let (_, table) = TEXT.split_once("|---|---|---|\n").expect("a table");
    let mut source = "";
    let rows = table.lines().take_while(|line| line.starts_with("| ")).map(|line| {
        let [what, study, account] = line.trim_matches('|').split(" | ").collect::<Vec<_>>()[..]
        else {
            panic!("three columns: {line}")
        };
        let known = SOURCES.iter().find(|(name, _)| what.trim().starts_with(name));
        source = known.map_or(source, |(_, name)| name);
        let figures = what.rsplit(": ").next().map(numbers_in).unwrap_or_default();
        let account = account.trim();
        let is_as_printed = account.starts_with('✓');
        assert!(is_as_printed || account.starts_with("✗ "), "{line}");
        Account { source, figures, study: study.trim(), is_as_printed }
    });
    rows.collect()
}

/// A document, a study and a number.
type Place = (&'static str, String, String);

/// The numbers beside a cell of a command, with the settings of both and what was measured; those
/// beside none, with the reasons; the studies that are run.
#[derive(Default)]
struct Beside {
    found: BTreeSet<(Place, String, String)>,
    missing: BTreeMap<Place, Vec<String>>,
    studies: BTreeSet<String>,
}

/// Runs all commands with made-up results of a machine that has everything.
fn as_printed() -> Beside {
    let mut beside = Beside::default();
    for (plan, apart) in printed() {
        let machine = Capabilities { cpus: (0..28).collect(), apart, ..large_machine() };
        let environment =
            Environment { local: "/dev/nvme0n1".to_owned(), ..Environment::default() };
        let cells = Cells::of(&repeated(&made_up(&plan, &machine)), &environment);
        beside.studies.insert(plan.name.clone());
        for document in paper_comparisons(crate::published::published(), &cells, &plan) {
            let mut sources = crate::published::published().source.iter();
            let source = sources.find(|(_, source)| source.title == document.document);
            let source = source.map_or("", |(name, _)| name.as_str());
            for row in document.rows {
                let what = format!("{}: {}", row.figure, row.what);
                let place = (source, plan.name.clone(), what);
                match row.verdict {
                    Outcome::Missing(why) => beside.missing.entry(place).or_default().push(why),
                    _ => drop(beside.found.insert((place, row.settings, row.measured))),
                }
            }
        }
    }
    let found: BTreeSet<&Place> = beside.found.iter().map(|(place, ..)| place).collect();
    beside.missing.retain(|place, _| !found.contains(place));
    beside
}

/// A publication's numbers beside the cells of its own commands: each stands beside the cell of its
/// own link and settings.
#[test]
fn each_number_stands_beside_the_cell_that_is_run_as_it_was_printed() {
    let Beside { found, missing, .. } = as_printed();
    for (place, settings, _) in &found {
        let own = settings.split("theirs: ").nth(1).and_then(|text| text.split(',').next());
        let theirs = |name: &str| own == Some(name);
        for source in crate::published::published().source.values() {
            for (transport, link) in source.links.iter().filter(|(name, _)| theirs(name)) {
                let is_over = settings.contains(&format!("@{link}"));
                assert!(is_over, "{transport}, {place:?}: {settings}");
            }
        }
    }
    let knobs: BTreeSet<&String> = found
        .iter()
        .filter(|((_, study, what), ..)| study == "knobs" && what.contains("lat p99"))
        .map(|(.., measured)| measured)
        .collect();
    assert_eq!(knobs.len(), 4, "each combination of the knobs has its own cell: {found:?}");
    println!("{} found, {} not: {missing:#?}", found.len(), missing.len());
    assert!(found.len() > 150, "{}", found.len());
}

/// The account says the same: a number of a row that is as printed has its cell, unless the machine
/// does not show it; a row that is not says why.
#[test]
fn the_account_of_figures_is_that_of_their_numbers() {
    /// What no number shows.
    const EXCUSED: [(&str, &str); 2] =
        [("chelsio2020", "null-size-sweep"), ("kashyap2020", "tradeoffs")];
    let Beside { missing, studies, .. } = as_printed();
    let account = account();
    let is_short = |why: &String| why.contains("nowhere on a par");
    let of_row = |row: &Account, place: &Place| (row.source, row.study) == (place.0, &place.1);
    for (place, reasons) in &missing {
        let says_so = account.iter().any(|row| of_row(row, place) && !row.is_as_printed);
        assert!(says_so || reasons.iter().any(is_short), "{place:?}: {reasons:?}");
    }
    for row in &account {
        assert!(studies.contains(row.study), "no command runs {row:?}");
        let is_missing = missing.keys().any(|place| of_row(row, place));
        let is_excused = EXCUSED.contains(&(row.source, row.study));
        assert!(row.is_as_printed || is_missing || is_excused, "nothing is short of {row:?}");
    }
    for result in &crate::published::published().results {
        let of = |row: &&Account| row.study == result.study && row.source == result.source;
        let rows: Vec<&Account> = account.iter().filter(of).collect();
        assert!(!rows.is_empty(), "no row has {}: {}", result.source, result.figure);
        let is_there = |number: &String| rows.iter().any(|row| row.has(number));
        assert!(numbers_in(&result.figure).iter().all(is_there), "{}: {rows:?}", result.figure);
    }
}

#[test]
fn a_sole_link_stands_for_a_transport_and_several_do_not() {
    let theirs = LOCAL.replace("\"local\"", "\"tcp-100gbe\"");
    let beside = |transports: &[&str]| {
        let records: Vec<Record> =
            transports.iter().map(|name| point(name, "randread", 1, 5e5)).collect();
        let found = rows("overhead-t-app", &[&theirs], &records);
        (found[0].settings.clone(), found[0].verdict.clone())
    };
    assert!(beside(&["local", "tcp@lo"]).0.contains("ours: tcp@lo"));
    assert!(beside(&["local", "tcp", "tcp@lo"]).0.contains("ours: tcp,"), "the plan's own");
    let Outcome::Missing(why) = beside(&["tcp@one", "tcp@two"]).1 else { panic!("which one?") };
    assert!(why.contains("in a site file its name is"), "{why}");
}

/// W14.
#[test]
fn a_share_of_a_copy_is_not_compared_with_a_share_of_a_device() {
    let records = [point("local", "randread", 1, 2e6), point("tcp", "randread", 1, 1e6)];
    let of = |local: &str| {
        let environment = Environment { local: local.to_owned(), ..Environment::default() };
        let cells = Cells::of(&repeated(&records), &environment);
        let published = published("overhead-t-app", &[LOCAL, &remote(45.0), OF_LOCAL]);
        let documents = paper_comparisons(&published, &cells, &plan("overhead-t-app"));
        let rows = documents.into_iter().flat_map(|document| document.rows);
        rows.map(|row| row.verdict).collect::<Vec<Outcome>>()
    };
    let memory = of("memory, 256 MiB");
    assert!(matches!(memory[1], Outcome::Ratio(_)), "a plain quotient: {memory:?}");
    let Outcome::Withheld(why) = &memory[2] else { panic!("{memory:?}") };
    assert!(why.contains("a copy in memory here and a device there"), "{why}");
    let device = of("/dev/nvme0n1");
    assert_eq!((&device[1], &device[2]), (&Outcome::Alike, &Outcome::Alike));
}

const OF_LOCAL: &str = "metric = \"local_over_remote_iops\"\nvalue = 2.0\nunit = \"x\"";

/// W6: "time of the host's processors: usr 69 %" stood beside a paper's 45 %, and two thirds of it
/// were a compiler.
#[test]
fn nothing_of_a_machine_that_was_busy_has_a_verdict_beside_a_paper() {
    let idle = IdleRate { seconds: 2.0, processors: 2, cpu_s: 1.97, ..IdleRate::default() };
    let busy = Environment { idle: Some(idle), ..Environment::default() };
    let mut verdicts = [0, 0];
    for study in builtin::BUILTINS {
        let mut plan = study.plan().expect(study.name);
        plan.quicken();
        let records = repeated(&made_up(&plan, &large_machine()));
        for (environment, count) in [&Environment::default(), &busy].into_iter().zip(&mut verdicts)
        {
            let cells = Cells::of(&records, environment);
            let papers = paper_comparisons(crate::published::published(), &cells, &plan);
            let rows = papers.iter().flat_map(|paper| &paper.rows);
            let is_told = |row: &&Row| {
                matches!(row.verdict, Outcome::Alike | Outcome::Differs(_) | Outcome::Ratio(_))
            };
            *count += rows.filter(is_told).count();
        }
    }
    assert!(verdicts[0] > 20, "{verdicts:?}");
    assert_eq!(verdicts[1], 0);
}

/// What an improvement says in percent is its ratio, with the interval of that.
#[test]
fn an_improvement_has_the_verdict_of_its_ratio() {
    let of = |polling: &str, repeats: [u64; 3]| {
        let settings = [
            (key::TRANSPORT, Value::from("tcp")),
            (key::PATTERN, "randread".into()),
            (key::BLOCK_BYTES, 4096u64.into()),
            (key::DEPTH, 1u64.into()),
            (key::HOST_POLLING, polling.into()),
        ];
        let each = (1..).zip(repeats);
        let each =
            each.map(|(repeat, us)| Record { repeat, ..record(Role::Plain, &settings, 1e5, us) });
        each.collect::<Vec<Record>>()
    };
    let ratio = |polling: &str, us: f64| {
        format!(
            "transport = \"tcp\"\npattern = \"randread\"\nbs_bytes = 4096\nqd = 1\n\
             metric = \"lat_p99\"\nvalue = {us:?}\nunit = \"us\"\n\
             settings = {{ host_polling = \"{polling}\" }}\n{}",
            if polling == "sleep" { "base = true\n" } else { "" }
        )
    };
    let improvement = "metric = \"p99_improvement\"\nvalue = 9.3\nunit = \"%\"";
    let results = [&ratio("sleep", 100.0), &ratio("spin", 90.7), improvement];
    let published = published("pollable-queues", &results);
    let kind = |outcome: &Outcome| match outcome {
        Outcome::Alike => "alike",
        Outcome::Differs(_) => "differs",
        Outcome::Withheld(_) => "withheld",
        Outcome::Ratio(_) | Outcome::Missing(_) => "none",
    };
    for (sleep, spin, expected) in [
        ([4000, 4000, 4000], [120, 121, 122], "differs"),
        // 93 to 99 %, by quotients that differ by a factor of seven.
        ([4000, 2000, 8000], [800, 60, 1000], "withheld"),
        ([100, 101, 102], [90, 91, 92], "alike"),
        ([100, 101, 102], [200, 201, 202], "differs"),
    ] {
        let records = [of("sleep", sleep), of("spin", spin)].concat();
        let cells = Cells::of(&records, &Environment::default());
        let documents = paper_comparisons(&published, &cells, &plan("pollable-queues"));
        let [_, ratio, gain] = &documents[0].rows[..] else { panic!("{documents:?}") };
        assert_eq!(kind(&ratio.verdict), expected, "{ratio:?}");
        assert_eq!(kind(&gain.verdict), expected, "{gain:?}");
    }
}
