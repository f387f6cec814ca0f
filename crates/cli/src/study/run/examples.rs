//! Every example of a site file and of a plan in the documents, and every command of this program,
//! is read by what reads those of users.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};
use weft_lab::study::plan::Plan;
use weft_lab::study::{builtin, software};

use super::*;
use crate::arguments::Arguments;
use crate::study::agents;

/// An example.
struct Fence {
    /// Document and line.
    place: String,
    language: String,
    text: String,
}

/// All examples of README and docs.
fn fences() -> Vec<Fence> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).expect("the documents").flatten() {
        documents.push(entry.path());
    }
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut found = Vec::new();
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        let mut open: Option<Fence> = None;
        for (line, number) in text.lines().zip(1..) {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(language), None) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let place = format!("{name}:{number}");
                    let language = language.trim().to_owned();
                    open = Some(Fence { place, language, text: String::new() });
                }
                (None, Some(fence)) => fence.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: an example has no end", path.display());
    }
    found
}

/// The name that an example has in its first line.
fn name(fence: &Fence) -> &str {
    let first = fence.text.lines().next().unwrap_or_default();
    first.strip_prefix("# ").unwrap_or_default()
}

#[test]
fn site_files_and_plans_of_the_documents_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut sites, mut plans) = (Vec::new(), Vec::new());
    for fence in fences().iter().filter(|fence| fence.language == "toml") {
        if fence.text.contains("[machines.") {
            let path = folder.path().join("site.toml");
            fs::write(&path, &fence.text).expect("a file");
            let read = agents::site::read(Some(&path)).unwrap_or_else(|why| {
                panic!("{}: {why:?}", fence.place);
            });
            assert!(read.is_some(), "{}", fence.place);
            sites.push(name(fence).to_owned());
        } else if fence.text.contains("[axes]") {
            let plan: Plan =
                fence.text.parse().unwrap_or_else(|error| panic!("{}: {error}", fence.place));
            let run = Capabilities { own_target: true, ..Capabilities::default() };
            assert!(!expand(&plan, &run, &Default::default()).is_empty(), "{}", fence.place);
            plans.push(plan.name);
        }
    }
    for site in ["weft-site.toml", "kashyap.toml", "chelsio.toml", "jia.toml", "thesis.toml"] {
        assert!(sites.iter().any(|known| known == site), "no example {site}: {sites:?}");
    }
    assert!(plans.iter().any(|name| name == "transports"), "{plans:?}");
}

/// The commands of this program, with the variables of their example put in, and what stands for
/// the reader's own.
fn commands() -> Vec<(String, Vec<String>)> {
    const OWN: [(&str, &str); 12] = [
        ("/NQN", "/nqn.2024-01.io.example:disk"),
        ("nqn.…", "nqn.2024-01.io.example:host"),
        ("TARGET", "192.0.2.1"),
        ("HOST:", "192.0.2.1:"),
        ("ADDRESS", "nvme-tcp://192.0.2.1:4420/nqn.2024-01.io.example:disk"),
        ("FILE", "file"),
        ("STUDY", "concurrency"),
        ("OTHER/weft", "other/weft"),
        ("--out docs/gallery/NAME", "--out gallery"),
        ("docs/gallery/NAME", "gallery"),
        ("NAME", "concurrency"),
        ("--recover N", "--recover 0"),
    ];
    let mut found = Vec::new();
    for fence in fences().iter().filter(|fence| fence.language.starts_with("console")) {
        let mut variables = BTreeMap::<String, String>::new();
        let text = fence.text.replace("\\\n", "");
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("$ ")) {
            let mut line = line.split(" #").next().unwrap_or_default().trim().to_owned();
            for (name, value) in &variables {
                line = line.replace(&format!("${name}"), value);
            }
            for (name, value) in OWN {
                line = line.replace(name, value);
            }
            if let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_variable(name))
            {
                variables.insert(name.to_owned(), value.trim_matches('"').to_owned());
            }
            for part in line.split(['|', '>', '<', '&', ';']).map(str::trim) {
                let words = part.split_whitespace().map(|word| word.trim_matches('"').to_owned());
                let words: Vec<String> = words.filter(|word| !word.starts_with('$')).collect();
                if words.first().is_some_and(|word| word == "weft") {
                    found.push((fence.place.clone(), words));
                }
            }
        }
    }
    found
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|one| one.is_ascii_alphabetic() || one == '_')
}

#[test]
fn commands_of_the_documents_are_read_and_change_their_plans() {
    let mut printed = 0;
    let commands = commands();
    assert!(commands.len() > 100, "{} commands", commands.len());
    for (place, words) in commands {
        let command = words.join(" ");
        let matches = Arguments::command().try_get_matches_from(&words);
        let matches = matches.unwrap_or_else(|error| panic!("{place}: {command}: {error}"));
        Arguments::from_arg_matches(&matches).expect("arguments");
        if words.get(1..3).is_none_or(|verb| verb != ["study", "run"]) {
            continue;
        }
        let (_, run) = matches.subcommand().and_then(|(_, of)| of.subcommand()).expect("run");
        let options = Options::from_arg_matches(run).expect("options");
        let Some(study) = options.study.filter(|name| builtin::find(name).is_some()) else {
            continue;
        };
        let mut plan = crate::study::here::plan(&study).expect("a plan");
        let amended = options.how.amend(&mut plan, &options.how.agents);
        amended.unwrap_or_else(|why| panic!("{place}: {command}: {why:?}"));
        assert_eq!(software::refusal(&plan), None, "{place}: {command}");
        if words.iter().any(|word| word == "--site") {
            printed += 1;
            let links = plan.values(key::TRANSPORT).filter_map(Value::as_text);
            let named = links.filter(|transport| transport.contains('@')).count();
            assert!(named > 0, "{place}: {command}: its transports are of no link");
        }
    }
    assert!(printed >= 20, "{printed} commands of publications");
}
