//! Documents: their length in all, and that of their lines and paragraphs.

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
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    list(root, Path::new(""), &mut files)?;
    let (mut faults, mut count) = (Vec::new(), 0);
    for path in files {
        let text = fs::read_to_string(root.join(&path))?;
        if !path.starts_with(NOTEBOOK) {
            count += words(&text);
        }
        let of_page = faults_of(&text).into_iter();
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

/// What has a letter or a digit: not the bars of tables, dashes of lists and fences.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
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
        let is_prose = !is_code && !line.starts_with("    ") && !start.starts_with(['|', '#']);
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
