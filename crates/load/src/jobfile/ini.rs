//! fio's job files: sections of `word=value` lines.

use std::fs;
use std::path::Path;

use weft_backend::files::read_input;

/// A line of a section that sets a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The word.
    pub word: String,
    /// What comes after `=`, variables replaced; none where there is no `=`.
    pub value: Option<String>,
    /// The file and the line, for messages.
    pub place: String,
}

/// A job's section: what the global sections above it set comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Between the brackets.
    pub name: String,
    /// In order; what comes later counts.
    pub lines: Vec<Line>,
}

/// Files that include each other, at most.
const INCLUDES_MAX: usize = 16;

/// Reads a job file and what it includes.
///
/// # Errors
/// The file and the line that cannot be read, and why.
pub fn read(path: &Path) -> Result<Vec<Section>, String> {
    let text = text_of(path)?;
    parse(&text, path, &|name| std::env::var(name).ok())
}

/// Parses the text of a job file. `path` is where it was found; `variable` looks up `${NAME}`.
///
/// # Errors
/// As [`read`].
pub fn parse(
    text: &str,
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Section>, String> {
    let mut parser = Parser { variable, global: Vec::new(), sections: Vec::new(), open: None };
    parser.file(text, path, 0)?;
    if parser.sections.is_empty() {
        return Err(format!("{}: there is no job in it, like [job]", path.display()));
    }
    Ok(parser.sections)
}

struct Parser<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    global: Vec<Line>,
    sections: Vec<Section>,
    /// Whether lines are those of the global section, or of the last of `sections`.
    open: Option<bool>,
}

impl Parser<'_> {
    fn file(&mut self, text: &str, path: &Path, depth: usize) -> Result<(), String> {
        for (number, line) in (1..).zip(text.lines()) {
            let place = format!("{}:{number}", path.display());
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name =
                    name.strip_suffix(']').ok_or_else(|| format!("{place}: no ] ends it"))?;
                if depth > 0 {
                    return Err(format!("{place}: a file that is included has no sections"));
                }
                self.section(name.trim());
                continue;
            }
            if let Some(file) = include(line) {
                let file = path.parent().unwrap_or(Path::new("")).join(self.expand(file));
                if depth >= INCLUDES_MAX {
                    return Err(format!("{place}: files include each other too deeply"));
                }
                let text = text_of(&file).map_err(|error| format!("{place}: {error}"))?;
                self.file(&text, &file, depth + 1)?;
                continue;
            }
            self.line(line, place)?;
        }
        Ok(())
    }

    fn section(&mut self, name: &str) {
        let is_global = name == "global";
        if !is_global {
            self.sections.push(Section { name: name.to_owned(), lines: self.global.clone() });
        }
        self.open = Some(is_global);
    }

    fn line(&mut self, line: &str, place: String) -> Result<(), String> {
        let (word, value) = match line.split_once('=') {
            Some((word, value)) => (word.trim(), Some(self.expand(value.trim()))),
            None => (line, None),
        };
        let line = Line { word: word.to_owned(), value, place };
        match (self.open, self.sections.last_mut()) {
            (Some(true), _) => self.global.push(line),
            (Some(false), Some(section)) => section.lines.push(line),
            _ => return Err(format!("{}: {word:?} stands before any [section]", line.place)),
        }
        Ok(())
    }

    /// Puts in what `${NAME}` and fio's own `$ncpus`, `$pagesize` and `$mb_memory` stand for.
    fn expand(&self, text: &str) -> String {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            let Some(end) = from.find('}') else { break };
            expanded.push_str(before);
            expanded.push_str(&(self.variable)(&from[2..end]).unwrap_or_default());
            rest = &from[end + 1..];
        }
        expanded.push_str(rest);
        for (name, of) in KEYWORDS {
            if expanded.contains(name) {
                expanded = expanded.replace(name, &of().to_string());
            }
        }
        expanded
    }
}

/// One of fio's own names, and what it stands for.
type Keyword = (&'static str, fn() -> u64);

const KEYWORDS: [Keyword; 3] = [
    ("$ncpus", || crate::job::processors() as u64),
    ("$pagesize", || rustix::param::page_size() as u64),
    ("$mb_memory", || memory_bytes() >> 20),
];

/// The machine's memory; 0 where nobody says.
fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A comment begins with `;` or `#` wherever it stands.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or(line)
}

fn include(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    rest.starts_with(char::is_whitespace).then(|| rest.trim())
}

fn text_of(path: &Path) -> Result<String, String> {
    read_input(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "SIZE").then(|| "64m".to_owned())
    }

    fn sections(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let sections = parse(text, Path::new("job.fio"), &variable)?;
        let lines = |section: &Section| {
            let text = |line: &Line| match &line.value {
                Some(value) => format!("{}={value}", line.word),
                None => line.word.clone(),
            };
            section.lines.iter().map(text).collect()
        };
        Ok(sections.iter().map(|section| (section.name.clone(), lines(section))).collect())
    }

    #[test]
    fn sections_have_what_the_global_ones_above_them_set() {
        let text = "; a comment\n[global]\nrw = randread   # another\nsize=${SIZE}\n\n[a]\nbs=4k\n\
                    time_based\n[global]\nbs=8k\n[b]\nfilename=/dev/${NONE}x${SIZE}\n";
        let found = sections(text).expect("sections");
        let expected: [(&str, &[&str]); 2] = [
            ("a", &["rw=randread", "size=64m", "bs=4k", "time_based"]),
            ("b", &["rw=randread", "size=64m", "bs=8k", "filename=/dev/x64m"]),
        ];
        assert_eq!(found.len(), 2);
        for ((name, lines), (expected, words)) in found.iter().zip(expected) {
            assert_eq!(name, expected);
            assert!(lines.iter().eq(words), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_job_file_is_refused_with_its_line() {
        for (text, part) in [
            ("rw=read\n[a]\n", "job.fio:1: \"rw\" stands before"),
            ("[a]\nrw=read\n[b\n", "job.fio:3: no ]"),
            ("[global]\nrw=read\n", "no job in it"),
            ("[a]\ninclude nowhere.fio\n", "job.fio:2: cannot read nowhere.fio"),
        ] {
            let error = sections(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn files_are_included_from_where_the_file_lies() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        write("a.fio", "[global]\ninclude b.inc\n[x]\ninclude c.inc\n").expect("a file");
        write("b.inc", "bs=8k\n").expect("a file");
        write("c.inc", "iodepth=4\ninclude b.inc\n").expect("a file");
        let found = read(&folder.path().join("a.fio")).expect("sections");
        let words: Vec<&str> = found[0].lines.iter().map(|line| line.word.as_str()).collect();
        assert_eq!(words, ["bs", "iodepth", "bs"]);
        assert!(found[0].lines[2].place.ends_with("b.inc:1"));
        write("b.inc", "[y]\n").expect("a file");
        let error = read(&folder.path().join("a.fio")).expect_err("a section");
        assert!(error.contains("has no sections"), "{error}");
        write("b.inc", "include b.inc\n").expect("a file");
        let error = read(&folder.path().join("a.fio")).expect_err("a circle");
        assert!(error.contains("too deeply"), "{error}");
    }

    #[test]
    fn fios_own_names_are_numbers_of_this_machine() {
        let found = sections("[a]\nnumjobs=$ncpus\nbs=$pagesize\n").expect("a section");
        assert_eq!(found[0].1[0], format!("numjobs={}", crate::job::processors()));
        assert!(found[0].1[1] == "bs=4096" || found[0].1[1] == "bs=65536", "{}", found[0].1[1]);
        assert!(memory_bytes() > 1 << 20);
    }
}
