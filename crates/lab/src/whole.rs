//! Whether a directory of results is whole: what a run wrote, all of it and nothing else.

mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::record::contradiction;
use crate::results::seal::{self, Manifest};
use crate::results::{Environment, Record, Role, SCHEMA, Status, file};
use crate::study::plan::Plan;

/// As many cells, or lines, are named for each fault.
const NAMED_MAX: usize = 3;

/// What comes before a change that was found when a run went on.
const BEFORE: &str = "before it was resumed: ";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Why the directory is not whole: a sentence each.
    pub faults: Vec<String>,
    /// Those of them that no run leaves, however it ended.
    #[serde(skip)]
    pub changes: Vec<String>,
    /// Whether the run sealed its files. Those of an earlier version are held against each other
    /// only.
    pub sealed: bool,
}

impl Verified {
    /// Whether it is whole.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

/// A line of the records: its number, and what it holds.
type Line = (usize, Record);

/// Verifies a directory.
#[must_use]
pub fn verify(directory: &Path) -> Verified {
    let mut faults = Vec::new();
    let mut text = |name: &str| {
        let read = fs::read_to_string(directory.join(name));
        read.map_err(|error| faults.push(format!("{name} cannot be read: {error}"))).ok()
    };
    let (environment, plan, records) =
        (text(file::ENVIRONMENT), text(file::PLAN), text(file::RECORDS));
    let mut judge = Judge { directory, faults, changes: Vec::new(), whole: None };
    let environment = environment.and_then(|text| judge.environment(&text));
    let plan = plan.and_then(|text| judge.plan(&text));
    let lines = records.map(|text| judge.lines(&text)).unwrap_or_default();
    judge.records(&lines, environment.as_ref(), plan.as_ref());
    if let Some(environment) = &environment {
        judge.missing(&lines, environment, plan.as_ref());
    }
    judge.files();
    Verified { sealed: judge.whole.is_some(), faults: judge.faults, changes: judge.changes }
}

/// Writes into the environment of a run that goes on what was changed of its results, so that they
/// do not become valid by that, and returns it.
pub fn keep_changes(directory: &Path, environment: &mut Environment) -> Vec<String> {
    let mut changes = verify(directory).changes;
    changes.retain(|what| !what.starts_with(BEFORE));
    for what in &changes {
        if !environment.changes.contains(what) {
            environment.changes.push(what.clone());
        }
    }
    changes
}

struct Judge<'a> {
    directory: &'a Path,
    faults: Vec<String>,
    changes: Vec<String>,
    whole: Option<Manifest>,
}

/// What an environment says of the other files, if it says anything.
#[derive(Deserialize)]
struct EnvironmentManifest {
    whole: Option<Manifest>,
}

impl Judge<'_> {
    fn add(&mut self, fault: String) {
        self.faults.push(fault);
    }

    /// A fault that no run leaves.
    fn add_change(&mut self, fault: String) {
        self.changes.push(fault.clone());
        self.add(fault);
    }

    fn environment(&mut self, text: &str) -> Option<Environment> {
        let name = file::ENVIRONMENT;
        match seal::of_environment(text) {
            (wanted, Some(seal)) if wanted != seal => {
                self.add_change(format!("{name} was changed"));
            }
            (_, None) if text.contains("\"whole\"") || text.contains("\"seal\"") => {
                self.add_change(format!("{name} was changed: its seal is not at its end"));
            }
            _ => {}
        }
        let read = |error: serde_json::Error| format!("{name} cannot be read: {error}");
        self.whole =
            serde_json::from_str(text).ok().and_then(|told: EnvironmentManifest| told.whole);
        match serde_json::from_str::<Environment>(text).map_err(read) {
            Ok(environment) => {
                for what in &environment.changes {
                    self.add_change(format!("{BEFORE}{what}"));
                }
                if environment.interrupted {
                    self.add("the run was interrupted".to_owned());
                } else if environment.ended_at_ms == 0 {
                    self.add("the run did not end".to_owned());
                }
                if environment.builds.len() > 1 {
                    let builds = environment.builds.join(", ");
                    self.add(format!("several builds have measured: {builds}"));
                }
                Some(environment)
            }
            Err(fault) => {
                self.add(fault);
                None
            }
        }
    }

    fn plan(&mut self, text: &str) -> Option<Plan> {
        text.parse::<Plan>().map_err(|error| self.add(format!("{}: {error}", file::PLAN))).ok()
    }

    /// The lines that can be read, after a look at their seals.
    fn lines(&mut self, text: &str) -> Vec<Line> {
        if !text.is_empty() && !text.ends_with('\n') {
            self.add("the last line is cut".to_owned());
        }
        let (mut records, mut chain) = (Vec::new(), String::new());
        let ended = self.whole.as_ref().map_or(0, |whole| whole.lines);
        let mut chain_then = (ended == 0).then(String::new);
        let (mut broken, mut unsealed) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let (wanted, seal) = seal::of_line(&chain, line);
            match seal {
                Some(seal) if wanted != seal => broken.push(number),
                None => unsealed.push(number),
                Some(_) => {}
            }
            chain = seal.map_or(wanted, str::to_owned);
            if number == ended {
                chain_then = Some(chain.clone());
            }
            match serde_json::from_str::<Record>(line) {
                Ok(record) if record.schema > SCHEMA => {
                    self.add(format!("line {number} is of schema {}", record.schema));
                }
                Ok(record) => records.push((number, record)),
                Err(error) => self.add(format!("line {number} cannot be read: {error}")),
            }
        }
        if !broken.is_empty() {
            self.add_change(format!(
                "{} not what follows the line before: changed, added, moved, or after lines that \
                 are gone",
                named("line", &broken)
            ));
        }
        let Some(whole) = self.whole.clone() else { return records };
        if broken.is_empty() && (whole.lines, &whole.chain) != (text.lines().count(), &chain) {
            let told = match whole.lines {
                lines if lines == text.lines().count() => "another last line".to_owned(),
                lines => format!("{lines} lines"),
            };
            let fault = format!("{} had {told} when the run ended", file::RECORDS);
            // A run that was killed leaves more lines than it has told of.
            match chain_then.as_ref() == Some(&whole.chain) {
                true => self.add(fault),
                false => self.add_change(fault),
            }
        }
        records
    }

    /// Holds records against themselves, their environment and their plan.
    fn records(&mut self, lines: &[Line], environment: Option<&Environment>, plan: Option<&Plan>) {
        let study = plan.map(|plan| &plan.name);
        if let (Some(study), Some(environment)) = (study, environment)
            && *study != environment.study
        {
            let other = &environment.study;
            self.add_change(format!("the plan is of {study}, and the environment of {other}"));
        }
        let others = lines.iter().filter(|(_, of)| study.is_some_and(|name| of.study != *name));
        let others: Vec<usize> = others.map(|(number, _)| *number).collect();
        if !others.is_empty() {
            self.add_change(format!("{} of another study", named("line", &others)));
        }
        let cells = environment.map(|environment| &environment.cells[..]).unwrap_or_default();
        // Bare sockets have the name of the open loop beside which they were measured.
        let is_beside = |of: &Record| {
            let of = of.cell.strip_prefix("role=link ");
            of.is_some_and(|of| cells.iter().any(|cell| cell == of))
        };
        let is_known =
            |of: &Record| of.role == Role::Reference || cells.contains(&of.cell) || is_beside(of);
        let unknown = lines.iter().filter(|(_, of)| !cells.is_empty() && !is_known(of));
        let unknown: Vec<usize> = unknown.map(|(number, _)| *number).collect();
        if !unknown.is_empty() {
            self.add_change(format!(
                "{} of a cell that the plan does not have",
                named("line", &unknown)
            ));
        }
        let mut seen: BTreeSet<(&str, u32)> = BTreeSet::new();
        for (number, of) in lines {
            if let Some(fault) = contradiction(of) {
                self.add_change(format!("line {number}: {fault}"));
            }
            if of.is_measured() && !seen.insert((of.cell.as_str(), of.repeat)) {
                self.add_change(format!("line {number}: its repeat was measured before"));
            }
        }
    }

    /// The cells and repeats that the plan wants and that have no line.
    fn missing(&mut self, lines: &[Line], environment: &Environment, plan: Option<&Plan>) {
        let mut of_cell: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for (_, record) in lines.iter().filter(|(_, record)| record.role != Role::Reference) {
            of_cell.entry(&record.cell).or_default().push(record);
        }
        let cells = environment.cells.iter().map(String::as_str);
        let absent: Vec<&str> = cells.filter(|cell| !of_cell.contains_key(cell)).collect();
        if !absent.is_empty() {
            self.add(format!("{} without a line", named("cell", &absent)));
        }
        let Some(plan) = plan else { return };
        let is_short = |(_, records): &(&&str, &Vec<&Record>)| {
            let is_skipped = |of: &&Record| matches!(of.status, Status::Skipped { .. });
            let wanted = records.first().map_or(0, |of| plan.repeats_of(&of.configuration));
            let has = |repeat: u32| records.iter().any(|of| of.repeat == repeat);
            !records.iter().any(is_skipped) && !(1..=wanted).all(has)
        };
        let short: Vec<&str> = of_cell.iter().filter(is_short).map(|(cell, _)| *cell).collect();
        if !short.is_empty() {
            self.add(format!("{} without a repeat that the plan wants", named("cell", &short)));
        }
    }

    fn files(&mut self) {
        let Some(whole) = self.whole.clone() else { return };
        if !whole.files.contains_key(file::PLAN) {
            self.add(format!("{} does not know {}", file::ENVIRONMENT, file::PLAN));
        }
        for (name, digest) in &whole.files {
            match fs::read(self.directory.join(name)) {
                Ok(text) if seal::digest("", &text) == *digest => {}
                Ok(_) => {
                    let fault = format!("{name} was changed, or is of another run");
                    // The others are made from the lines, again and again.
                    match name == file::PLAN {
                        true => self.add_change(fault),
                        false => self.add(fault),
                    }
                }
                Err(error) if name != file::PLAN => {
                    self.add(format!("{name} cannot be read: {error}"));
                }
                Err(_) => {}
            }
        }
    }
}

/// How many, and the first of them, with their verb.
fn named(what: &str, of: &[impl ToString]) -> String {
    let first: Vec<String> = of.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if of.len() > NAMED_MAX { ", …" } else { "" };
    let first = first.join(", ");
    match (of.len(), what) {
        (1, _) => format!("{what} {first} is"),
        (count, _) => format!("{count} {what}s ({first}{more}) are"),
    }
}

#[cfg(test)]
mod tests;
