//! Lines of code, of comments and of tests by crate, now and at a commit.

use crate::python::succeeded;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What the lines of a crate are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    tests: usize,
}

impl Lines {
    fn add(&mut self, other: Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
    }
}

/// Prints the table; with `against` the lines of code of that commit beside those of now.
pub fn run(root: &Path, against: Option<&str>) -> Result<()> {
    let now = tally(&git(root, &["ls-files"])?, |file| Ok(fs::read_to_string(root.join(file))?))?;
    let then = against.map(|commit| {
        let files = git(root, &["ls-tree", "-r", "--name-only", commit])?;
        tally(&files, |file| git(root, &["show", &format!("{commit}:{file}")]))
    });
    let then = then.transpose()?;
    print!("{}", table(&now, then.as_ref()));
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    succeeded(Command::new("git").current_dir(root).args(arguments))
}

/// The lines of each crate among `files`.
fn tally(files: &str, read: impl Fn(&str) -> Result<String>) -> Result<BTreeMap<String, Lines>> {
    let mut texts = Vec::new();
    for file in files.lines() {
        if let Some(name) = crate_of(file) {
            texts.push((name, file, read(file).with_context(|| file.to_owned())?));
        }
    }
    let tests: Vec<String> =
        texts.iter().flat_map(|(_, file, text)| test_modules(file, text)).collect();
    let mut crates = BTreeMap::<String, Lines>::new();
    for (name, file, text) in texts {
        let is_test = tests.iter().any(|module| is_of_module(file, module));
        let lines = match file.ends_with(".sh") {
            true => of_shell(&text),
            false => of_rust(file, &text, is_test),
        };
        crates.entry(name).or_default().add(lines);
    }
    Ok(crates)
}

/// The modules of a file that only tests or fuzz targets have, as paths without `.rs`.
fn test_modules(file: &str, text: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let is_root = ["/lib", "/main", "/mod"].iter().any(|root| stem.ends_with(root));
    let folder =
        if is_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of = |pair: &[&str]| {
        let [attribute, module] = pair else { return None };
        Some(*attribute).filter(|line| is_of_tests(line))?;
        let (_, name) = module.strip_suffix(';')?.rsplit_once("mod ")?;
        Some(format!("{folder}/{name}"))
    };
    lines.windows(2).filter_map(of).collect()
}

/// Whether only tests or fuzz targets have what follows this attribute.
fn is_of_tests(line: &str) -> bool {
    let only =
        ["#[cfg(test)]", "#[cfg(feature = \"fuzzing\")]", "#[cfg(any(test, ", "#[cfg(all(test, "];
    only.iter().any(|only| line.starts_with(only))
}

/// Whether a file is a module, or within it.
fn is_of_module(file: &str, module: &str) -> bool {
    let rest = file.strip_prefix(module);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// The crate of a source file; the scripts of the peers' tests are counted with theirs.
fn crate_of(file: &str) -> Option<String> {
    let is_counted = file.ends_with(".rs") || file.starts_with("tests/") && file.ends_with(".sh");
    let mut parts = file.split('/');
    let first = parts.next().filter(|_| is_counted)?;
    Some(match first {
        "crates" => parts.next()?.to_owned(),
        "tests" => format!("tests/{}", parts.next()?),
        other => other.to_owned(),
    })
}

fn of_shell(text: &str) -> Lines {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (comments, code): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('#'));
    Lines { code: code.len(), comments: comments.len(), tests: 0 }
}

/// All lines of a file of tests are tests, and those of a module of tests within another one.
fn of_rust(file: &str, text: &str, is_test_module: bool) -> Lines {
    let is_test = |part: &str| part == "tests" || part == "tests.rs";
    let within = file.split('/').skip(1).any(is_test) && !file.starts_with("tests/");
    let all_tests = within || is_test_module;
    let mut lines = Lines::default();
    // The spaces before a module of tests, which its end has as well.
    let mut module: Option<usize> = None;
    let mut all = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    while let Some(line) = all.next() {
        let code = line.trim_start();
        let spaces = line.len() - code.len();
        let is_module = |next: &&str| next.contains("mod ") && next.ends_with('{');
        if module.is_none() && is_of_tests(code) && all.peek().is_some_and(is_module) {
            module = Some(spaces);
        }
        if code.starts_with("//") {
            lines.comments += 1;
        } else if all_tests || module.is_some() {
            lines.tests += 1;
        } else {
            lines.code += 1;
        }
        if module == Some(spaces) && code == "}" {
            module = None;
        }
    }
    lines
}

fn table(now: &BTreeMap<String, Lines>, then: Option<&BTreeMap<String, Lines>>) -> String {
    let mut text = String::from("| crate | code | comments | tests |");
    let columns = if then.is_some() { " code then |" } else { "" };
    text += &format!("{columns}\n|---|---|---|---|{}\n", if then.is_some() { "---|" } else { "" });
    let mut names: Vec<&String> =
        now.keys().chain(then.into_iter().flat_map(|it| it.keys())).collect();
    names.sort_unstable();
    names.dedup();
    let (mut sum, mut sum_then) = (Lines::default(), 0);
    let mut row = |name: &str, lines: Lines, then: Option<usize>| {
        let then = then.map_or(String::new(), |code| format!(" {code} |"));
        let Lines { code, comments, tests } = lines;
        text += &format!("| {name} | {code} | {comments} | {tests} |{then}\n");
    };
    for name in names {
        let lines = now.get(name).copied().unwrap_or_default();
        let code_then = then.map(|it| it.get(name).map_or(0, |lines| lines.code));
        sum.add(lines);
        sum_then += code_then.unwrap_or_default();
        row(name, lines, code_then);
    }
    row("all", sum, then.map(|_| sum_then));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let code = "//! Text.\n\nuse a;\n\n/// More.\nfn f() {} // beside\n\n";
        let tests = "#[cfg(test)]\nmod tests {\n    // A comment.\n    fn t() {}\n}\n";
        let text = &[code, tests].concat();
        let lines = Lines { code: 2, comments: 3, tests: 4 };
        assert_eq!(of_rust("crates/x/src/lib.rs", text, false), lines);
        let named = "#[cfg(all(test, x))]\npub(crate) mod support {\n    fn t() {\n    }\n}\n";
        let around = Lines { code: 4, comments: 4, tests: 5 };
        assert_eq!(of_rust("crates/x/src/lib.rs", &[code, named, code].concat(), false), around);
        let lines = Lines { code: 0, comments: 3, tests: 6 };
        assert_eq!(of_rust("crates/x/src/lib/tests.rs", text, false), lines);
        assert_eq!(of_rust("crates/x/src/attack.rs", text, true), lines);
        assert_eq!(of_shell("# a\n\n b\nc # d\n"), Lines { code: 2, comments: 1, tests: 0 });
    }

    #[test]
    fn modules_that_only_tests_have_are_tests() {
        let text = "#[cfg(test)]\nmod attack;\nmod plain;\n#[cfg(feature = \"fuzzing\")]\n\
                    pub mod fuzzing;\n#[cfg(test)]\nmod tests {\n";
        assert_eq!(test_modules("a/src/lib.rs", text), ["a/src/attack", "a/src/fuzzing"]);
        assert_eq!(test_modules("a/src/x.rs", text), ["a/src/x/attack", "a/src/x/fuzzing"]);
        for (file, is_of) in [("m/a.rs", true), ("m/a/b.rs", true), ("m/ab.rs", false)] {
            assert_eq!(is_of_module(file, "m/a"), is_of, "{file}");
        }
    }

    #[test]
    fn a_file_belongs_to_a_crate() {
        let of = |file| crate_of(file);
        assert_eq!(of("crates/x/src/lib.rs").as_deref(), Some("x"));
        assert_eq!(of("tests/peers/a.sh").as_deref(), Some("tests/peers"));
        assert_eq!(of("xtask/src/main.rs").as_deref(), Some("xtask"));
        assert_eq!((of("docs/top.sh"), of("crates/x/Cargo.toml")), (None, None));
    }
}
