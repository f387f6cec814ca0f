//! Checks that the tests exist that the conformance matrix and the table of promises name.
//!
//! In every table with a column `Test` (or `Tests`), each name in backticks there is a test: a
//! function (`module::name` or `name`), a step of the tests with real peers (`suite/step`), or a
//! file of the repository. A promise has one at least.

use super::source::Source;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MATRIX: &str = "docs/conformance.md";
const PROMISES: &str = "docs/promises.md";
/// Where the suites are, each in a file with its steps.
const STEPS: &str = "tests/peers/src/kernels/";

/// One sentence for each test that a page names and that does not exist, and for each promise
/// without a test.
pub(super) fn check(tests: &Tests<'_>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in [MATRIX, PROMISES] {
        let path = tests.root.join(page);
        if !path.exists() {
            continue; // A test of tidy has other pages.
        }
        for (line, names) in rows(&fs::read_to_string(path)?) {
            if names.is_empty() && page == PROMISES {
                faults.push(format!("{page}:{line}: no test keeps this promise"));
            }
            for name in names {
                if !tests.has(&name) {
                    faults.push(format!("{page}:{line}: no test is called {name}"));
                }
            }
        }
    }
    Ok(faults)
}

/// All that may be named as a test.
pub(super) struct Tests<'a> {
    root: &'a Path,
    sources: &'a [Source],
    functions: BTreeSet<&'a str>,
}

impl<'a> Tests<'a> {
    pub(super) fn of(root: &'a Path, sources: &'a [Source]) -> Self {
        Self { root, sources, functions: sources.iter().flat_map(Source::names).collect() }
    }

    /// Whether it is a function, a step with real peers or a file.
    pub(super) fn has(&self, name: &str) -> bool {
        let function = name.rsplit("::").next().unwrap_or(name);
        self.functions.contains(function)
            || has_step(self.sources, name)
            || (name.contains('/') && self.root.join(name).exists())
    }
}

/// Whether `name` is `suite/step` of the tests with real peers.
fn has_step(sources: &[Source], name: &str) -> bool {
    let Some((suite, step)) = name.split_once('/') else { return false };
    let suite = format!("name: \"{suite}\"");
    let steps = ["step", "long", "inside"].map(|kind| format!("{kind}(\"{step}\""));
    let has = |source: &Source, text: &str| source.text.iter().any(|line| line.contains(text));
    let mut of_peers = sources.iter().filter(|source| source.path.starts_with(STEPS));
    of_peers.any(|source| has(source, &suite) && steps.iter().any(|step| has(source, step)))
}

/// The rows of the tables of `text` that have a column of tests, with their lines: the tests that
/// each names.
fn rows(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut tests = Vec::new();
    let mut column = None;
    for (at, line) in text.lines().enumerate() {
        if !line.trim_start().starts_with('|') {
            column = None;
            continue;
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let heading =
            |cell: &&str| cell.eq_ignore_ascii_case("test") || cell.eq_ignore_ascii_case("tests");
        match column {
            None => column = Some(cells.iter().position(heading)),
            Some(Some(index)) => {
                let cell = cells.get(index).copied().unwrap_or_default();
                if cell.is_empty() || cell.contains(|it| it != '-') {
                    let names = cell.split('`').skip(1).step_by(2);
                    tests.push((at + 1, names.map(str::to_owned).collect()));
                }
            }
            Some(None) => {}
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_in_the_file_of_its_suite() {
        let text = "name: \"host\",\nsteps: &[step(\"reads\", reads), long(\"waits\", waits), \
                    inside(\"writes\")],\n";
        let sources = [Source::parse(Path::new("tests/peers/src/kernels/host.rs"), text)];
        let has = |name| has_step(&sources, name);
        assert!(has("host/reads") && has("host/waits") && has("host/writes"));
        assert!(!has("host/nonsense") && !has("other/reads") && !has("reads"));
    }

    #[test]
    fn names_are_read_from_the_column_of_every_table() {
        let text = "# Matrix\n| Feature | Test |\n|---|---|\n| `Connect` | `a::b`, `peers/x` |\n\n\
                    | What | Why |\n|---|---|\n| `not` | `this` |\n\n| Tests | State |\n|---|---|\n\
                    | `c` | `done` |\n| none | |\n";
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected = [(4, names(&["a::b", "peers/x"])), (12, names(&["c"])), (13, names(&[]))];
        assert_eq!(rows(text), expected);
    }
}
