//! Documents: their length in all, that of their lines and paragraphs, and what runs their
//! commands.

use super::matrix::Tests;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of all documents; the notebook's do not count.
const WORDS_MAX: usize = 30_000;
const NOTEBOOK: &str = "docs/notebook";

const COLUMNS_MAX: usize = 120;
const PARAGRAPH_LINES_MAX: usize = 6;

/// Where documents are; those at the top are beside these.
const FOLDERS: [&str; 4] = ["docs", "crates", "tests", "fuzz"];

/// One sentence for each fault of the documents.
pub(super) fn check(root: &Path, tests: &Tests<'_>) -> Result<Vec<String>> {
    let mut files = Vec::new();
    list(root, Path::new(""), &mut files)?;
    let (mut faults, mut count) = (Vec::new(), 0);
    for path in files {
        let text = fs::read_to_string(root.join(&path))?;
        if !path.starts_with(NOTEBOOK) {
            count += words(&text);
        }
        let of_page = faults_of(&text).into_iter().chain(claims(&text));
        let of_page = of_page.chain(commands(&text, |name| tests.has(name)));
        faults.extend(of_page.map(|(line, what)| format!("{}:{line}: {what}", path.display())));
    }
    if count > WORDS_MAX {
        faults.push(format!("the documents have {count} words, more than {WORDS_MAX}"));
    }
    Ok(faults)
}

/// The documents below a folder, and in it.
fn list(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let is_top = folder.as_os_str().is_empty();
    for entry in fs::read_dir(root.join(folder))? {
        let (entry, path) =
            entry.map(|entry| (entry.file_type(), folder.join(entry.file_name())))?;
        let is_build = root.join(&path).join("CACHEDIR.TAG").exists();
        if entry?.is_dir() {
            if !is_build && (!is_top || FOLDERS.iter().any(|one| path == Path::new(one))) {
                list(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|end| end == "md") {
            files.push(path);
        }
    }
    Ok(())
}

/// What has a letter or a digit: not the bars of tables, dashes of lists, and fences, whose first
/// lines no page shows.
fn words(text: &str) -> usize {
    let shown =
        text.lines().filter(|line| !line.trim_start().starts_with("```") && !is_address(line));
    let words = shown.flat_map(str::split_whitespace);
    words.filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// Lines and paragraphs that are too long, with the numbers of their lines. Commands, files and
/// tables are as long as they are.
fn faults_of(text: &str) -> Vec<(usize, String)> {
    let (mut faults, mut is_code, mut paragraph) = (Vec::new(), false, 0);
    for (at, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code = !is_code;
            paragraph = 0;
            continue;
        }
        let is_prose = !is_code
            && !is_address(line)
            && !line.starts_with("    ")
            && !start.starts_with(['|', '#']);
        if !is_prose || start.is_empty() {
            paragraph = 0;
            continue;
        }
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            faults.push((at + 1, format!("{columns} columns, more than {COLUMNS_MAX}")));
        }
        let begins = start.starts_with("- ") || start.split_once(". ").is_some_and(is_number);
        paragraph = if begins { 1 } else { paragraph + 1 };
        if paragraph == PARAGRAPH_LINES_MAX + 1 {
            faults.push((at + 1, format!("a paragraph of more than {PARAGRAPH_LINES_MAX} lines")));
        }
    }
    faults
}

/// Cells of the table beside other targets that lead to no evidence and do not say so; of links by
/// a name, the name has to be there.
fn claims(text: &str) -> Vec<(usize, String)> {
    let Some((before, of)) = text.split_once("\n## Beside others\n") else { return Vec::new() };
    let start = before.lines().count() + 2;
    let mut faults = Vec::new();
    let rows = of.lines().zip(start..).take_while(|(line, _)| !line.starts_with("## "));
    for (row, line) in rows.filter(|(line, _)| line.starts_with('|')).skip(2) {
        let cells = row.trim_matches('|').split('|').skip(1).map(str::trim);
        let is_named = |cell: &str| {
            let name = cell.rsplit_once("][").and_then(|(_, rest)| rest.split(']').next());
            name.is_some_and(|name| text.contains(&format!("\n[{name}]: https://")))
        };
        let bare =
            cells.filter(|cell| !is_named(cell) && !cell.contains("](") && *cell != "not known");
        faults.extend(bare.map(|cell| (line, format!("{cell:?} leads to no evidence"))));
    }
    faults
}

/// Fences whose commands nobody runs. A fence of commands is `console`, and `$ ` begins a step; a
/// test of the binary runs all steps, but those of a fence with a mark, which no page shows: `slow`
/// (with `--all`), `needs` and what, or `run by` and a test.
fn commands(text: &str, is_test: impl Fn(&str) -> bool) -> Vec<(usize, String)> {
    let (mut faults, mut info) = (Vec::new(), None);
    for (line, at) in text.lines().map(str::trim_start).zip(1..) {
        let (is_step, is_bare) = (line.starts_with("$ "), line.starts_with("weft "));
        match (line.strip_prefix("```"), info) {
            (Some(_), Some(_)) => info = None,
            (Some(of), None) => {
                info = Some(of);
                let mark = of.strip_prefix("console").map(str::trim_start);
                let is_known = mark.is_none_or(|mark| match mark.split_once(' ') {
                    None => ["", "slow"].contains(&mark),
                    Some(("needs", what)) => !what.is_empty(),
                    Some(("run", by)) => by.strip_prefix("by ").is_some_and(&is_test),
                    Some(_) => false,
                });
                if !is_known {
                    faults.push((at, format!("nothing runs a fence of {of:?}")));
                }
            }
            (None, Some("")) if is_step || is_bare => {
                let what = "a command stands behind `$ ` in a fence of `console`";
                faults.push((at, what.to_owned()));
            }
            _ => {}
        }
    }
    faults
}

/// Whether a line says where a link by a name leads.
fn is_address(line: &str) -> bool {
    line.starts_with('[') && line.contains("]: https://")
}

fn is_number((number, _): (&str, &str)) -> bool {
    number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_letter_or_a_digit_is_a_word() {
        assert_eq!(words("# A page\n| a | `--b` | 1 |\n|---|---|\n- c, d → e\n```\n"), 8);
    }

    #[test]
    fn each_claim_about_another_leads_to_its_evidence() {
        let page = |cells: &str| {
            let head = "# T\n## Beside others\n| | a | b |\n|---|---|---|\n";
            format!("{head}| x | {cells} |\n\n[k]: https://e\n")
        };
        for (cells, faults) in [
            ("[yes](a.md) | [yes][k]", 0),
            ("[yes](a.md) | not known", 0),
            ("[yes](a.md) | [yes][l]", 1),
            ("yes | no", 2),
        ] {
            assert_eq!(claims(&page(cells)).len(), faults, "{cells}");
        }
        assert_eq!(
            claims(&page("yes | [yes](a.md)")),
            [(5, "\"yes\" leads to no evidence".into())]
        );
    }

    #[test]
    fn a_fence_of_commands_says_who_runs_them() {
        let is_test = |name: &str| name == "suite/step";
        for (fence, faults) in [
            ("```console\n$ weft list\nit lists\n```", 0),
            ("```console slow\n$ weft list\n```", 0),
            ("```console needs a disk\n$ weft list\n```", 0),
            ("```console run by suite/step\n$ weft list\n```", 0),
            ("```console run by nobody\n$ weft list\n```", 1),
            ("```console later\n$ weft list\n```", 1),
            ("```\nweft list\n```", 1),
            ("```\n$ weft list\n```", 1),
            ("```toml\na = 1\n```\nweft lists", 0),
        ] {
            assert_eq!(commands(fence, is_test).len(), faults, "{fence}");
        }
    }

    #[test]
    fn long_lines_and_paragraphs_are_found_and_code_is_not() {
        let long = "x".repeat(121);
        let page = format!("# T\n{long}\n```\n{long}\n```\n|{long}|\n    {long}\n");
        assert_eq!(faults_of(&page).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2]);
        let seven = "a line\n".repeat(7);
        assert_eq!(faults_of(&seven).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [7]);
        assert_eq!(faults_of(&format!("{0}- b\n{0}", "a line\n".repeat(3))).len(), 0);
        assert_eq!(faults_of(&"12. a step\n".repeat(20)).len(), 0);
    }
}
