//! Checks that the tests exist that the conformance matrix (`docs/conformance.md`) names.
//!
//! In every table with a column `Test` (or `Tests`), each name in backticks there is a test: a
//! function (`module::name` or `name`), a step of the tests with real peers (`suite/step`), or a
//! file of the repository.

use super::source::Source;
use anyhow::Result;
use std::fs;
use std::path::Path;

const MATRIX: &str = "docs/conformance.md";

/// One sentence for each test that the matrix names and that does not exist.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let path = root.join(MATRIX);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut faults = Vec::new();
    for (line, name) in named_tests(&fs::read_to_string(path)?) {
        let function = name.rsplit("::").next().unwrap_or(&name);
        let exists = sources.iter().any(|source| source.defines(function))
            || crate::peers::has_step(&name)
            || (name.contains('/') && root.join(&name).exists());
        if !exists {
            faults.push(format!("{MATRIX}:{line}: no test is called {name}"));
        }
    }
    Ok(faults)
}

/// The tests that the tables of `text` name, with their lines.
fn named_tests(text: &str) -> Vec<(usize, String)> {
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
                let names = cell.split('`').skip(1).step_by(2);
                tests.extend(names.map(|name| (at + 1, name.to_owned())));
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
    fn names_are_read_from_the_column_of_every_table() {
        let text = "# Matrix\n| Feature | Test |\n|---|---|\n| `Connect` | `a::b`, `peers/x` |\n\n\
                    | What | Why |\n|---|---|\n| `not` | `this` |\n\n| Tests | State |\n|---|---|\n\
                    | `c` | `done` |\n";
        let expected = [(4, "a::b"), (4, "peers/x"), (12, "c")];
        let expected: Vec<_> = expected.iter().map(|(l, n)| (*l, (*n).to_owned())).collect();
        assert_eq!(named_tests(text), expected);
    }
}
