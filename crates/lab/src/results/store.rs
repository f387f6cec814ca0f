//! Directories of results.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use weft_load::text::is_obeyed;

use super::seal::{self, Manifest};
use super::{Environment, Record, SCHEMA, csv, file, upgrade};

/// Everything in a directory of results.
#[derive(Clone, Debug)]
pub struct Results {
    /// Where it was read from.
    pub directory: PathBuf,
    /// Where and how it was run.
    pub environment: Environment,
    /// The plan, as text.
    pub plan: String,
    /// The records in the order in which they were measured; one for each cell and repeat.
    pub records: Vec<Record>,
}

/// Why results cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    path: PathBuf,
    what: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for LoadError {}

/// The repeats of results, by which a copy of them is found.
#[derive(Debug, Default)]
pub(crate) struct Repeats(BTreeMap<(String, u32, u64), PathBuf>);

impl Repeats {
    /// Adds those of a directory.
    ///
    /// # Errors
    /// Another one has one of them.
    pub(crate) fn add(&mut self, results: &Results) -> Result<(), String> {
        let measured = |one: &&Record| one.is_measured() && one.started_at_ms > 0;
        for record in results.records.iter().filter(measured) {
            let repeat = (record.cell.clone(), record.repeat, record.started_at_ms);
            if let Some(other) = self.0.insert(repeat, results.directory.clone()) {
                let (one, other) = (other.display(), results.directory.display());
                return Err(format!("{one} and {other} are of one run, which counts once"));
            }
        }
        Ok(())
    }
}

/// Whether no two of these results have a repeat in common.
///
/// # Errors
/// Two have: a sentence.
pub fn each_once<'a>(all: impl IntoIterator<Item = &'a Results>) -> Result<(), String> {
    let mut known = Repeats::default();
    all.into_iter().try_for_each(|results| known.add(results))
}

/// Reads a directory of results.
///
/// # Errors
/// A file is missing, malformed or of a later version. An incomplete last line (the machine
/// stopped while it was written) is ignored.
pub fn load(directory: &Path) -> Result<Results, LoadError> {
    let text = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|error| fault(&path, &error))
    };
    let environment = text(file::ENVIRONMENT)?;
    let mut environment: Environment = from_json(environment.as_bytes())
        .map_err(|error| fault(&directory.join(file::ENVIRONMENT), &error))?;
    upgrade::environment(&mut environment);
    let mut records = records(&directory.join(file::RECORDS))?;
    records.iter_mut().for_each(|record| upgrade::record(record, &environment));
    let plan = text(file::PLAN)?;
    Ok(Results { directory: directory.to_owned(), environment, plan, records })
}

fn fault(path: &Path, what: &dyn fmt::Display) -> LoadError {
    LoadError { path: path.to_owned(), what: what.to_string() }
}

/// From JSON with `?` in its texts for what a terminal would obey, and for ends of lines: whoever
/// wrote them, names of results are shown in lines, tables and pages.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    // Most lines have no escape and nothing beyond ASCII.
    if json.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
        return serde_json::from_slice(json);
    }
    let mut value = serde_json::from_slice(json)?;
    make_printable(&mut value);
    serde_json::from_value(value)
}

fn make_printable(value: &mut Json) {
    let printable = |text: &str| text.replace(is_obeyed, "?");
    match value {
        Json::String(text) => *text = printable(text),
        Json::Array(all) => all.iter_mut().for_each(make_printable),
        Json::Object(all) => {
            all.values_mut().for_each(make_printable);
            let known = std::mem::take(all).into_iter();
            *all = known.map(|(key, value)| (printable(&key), value)).collect();
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn records(path: &Path) -> Result<Vec<Record>, LoadError> {
    let opened = File::open(path).map_err(|error| fault(path, &error))?;
    let mut lines = BufReader::new(opened).split(b'\n').enumerate().peekable();
    let mut records = Vec::new();
    let mut place: BTreeMap<(String, u32), usize> = BTreeMap::new();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(|error| fault(path, &error))?;
        if line.is_empty() {
            continue;
        }
        let record: Record = match from_json(&line) {
            Ok(record) => record,
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                let newer =
                    if error.is_data() { "; a newer build may have written it" } else { "" };
                return Err(fault(path, &format!("line {}: {error}{newer}", number + 1)));
            }
        };
        if record.schema > SCHEMA {
            let what = format!("it is of version {}; this build knows {SCHEMA}", record.schema);
            return Err(fault(path, &what));
        }
        match place.get(&(record.cell.clone(), record.repeat)).copied() {
            // A repeat that was measured again replaces the earlier one.
            Some(index) => records[index] = record,
            None => {
                place.insert((record.cell.clone(), record.repeat), records.len());
                records.push(record);
            }
        }
    }
    Ok(records)
}

/// A directory of results that is being written.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    records: File,
    whole: Manifest,
}

/// The environment with what it says of the other files.
#[derive(Serialize)]
struct SealedEnvironment<'a> {
    #[serde(flatten)]
    environment: &'a Environment,
    whole: &'a Manifest,
}

impl Store {
    /// Creates the directory, or opens an existing one.
    ///
    /// # Errors
    /// It cannot be created or opened.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(file::RECORDS);
        let mut records = OpenOptions::new().create(true).append(true).open(&path)?;
        // An incomplete line must not absorb the next one.
        if !fs::read(&path)?.ends_with(b"\n") && records.metadata()?.len() > 0 {
            trim_last_line(&path)?;
            records = OpenOptions::new().append(true).open(&path)?;
        }
        let text = fs::read_to_string(&path)?;
        let files = [file::PLAN, file::ANSWER, file::TABLE].into_iter().filter_map(|name| {
            let text = fs::read(directory.join(name)).ok()?;
            Some((name.to_owned(), seal::digest("", &text)))
        });
        let (lines, chain) = (text.lines().count(), seal::after(text.lines()));
        let whole = Manifest { files: files.collect(), lines, chain };
        Ok(Self { directory: directory.to_owned(), records, whole })
    }

    /// Its path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends a record and starts writing it to the disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let (line, seal) = seal::line(&self.whole.chain, &serde_json::to_string(record)?);
        self.records.write_all(line.as_bytes())?;
        (self.whole.lines, self.whole.chain) = (self.whole.lines + 1, seal);
        self.records.sync_data()
    }

    /// Writes the environment, with what is in the other files by now.
    ///
    /// # Errors
    /// As [`Store::add`].
    pub fn set_environment(&mut self, environment: &Environment) -> io::Result<()> {
        let text =
            serde_json::to_string_pretty(&SealedEnvironment { environment, whole: &self.whole })?;
        self.replace(file::ENVIRONMENT, &seal::environment(&text))
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// As [`Store::add`].
    pub fn set_plan(&mut self, text: &str) -> io::Result<()> {
        self.replace(file::PLAN, text)
    }

    /// Writes the flat table.
    ///
    /// # Errors
    /// As [`Store::add`].
    pub fn set_table(&mut self, records: &[Record]) -> io::Result<()> {
        self.replace(file::TABLE, &csv::table(records))
    }

    /// Writes the answer.
    ///
    /// # Errors
    /// As [`Store::add`].
    pub fn set_answer(&mut self, answer: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(answer)?;
        self.replace(file::ANSWER, &format!("{text}\n"))
    }

    /// Replaces a file as a whole, so that it is never half written.
    fn replace(&mut self, name: &str, text: &str) -> io::Result<()> {
        let new = self.directory.join(format!(".{name}.new"));
        fs::write(&new, text)?;
        if name != file::ENVIRONMENT {
            self.whole.files.insert(name.to_owned(), seal::digest("", text.as_bytes()));
        }
        fs::rename(new, self.directory.join(name))
    }
}

fn trim_last_line(path: &Path) -> io::Result<()> {
    let bytes = fs::read(path)?;
    let keep = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    OpenOptions::new().write(true).open(path)?.set_len(keep as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Configuration, Role, Status, Value, Window, key};

    fn record(depth: u64, repeat: u32) -> Record {
        let configuration = Configuration::from([(key::DEPTH.to_owned(), Value::from(depth))]);
        let cell = format!("depth={depth}");
        Record { repeat, ..Record::new("test", &cell, Role::Plain, configuration) }
    }

    fn written(records: &[Record]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path()).expect("a store");
        store.set_environment(&Environment::default()).expect("an environment");
        store.set_plan("name = \"test\"\n").expect("a plan");
        for record in records {
            store.add(record).expect("a record");
        }
        store.set_table(records).expect("a table");
        directory
    }

    #[test]
    fn a_directory_is_read_back() {
        let records = [record(1, 1), record(2, 1), record(1, 2)];
        let directory = written(&records);
        let results = load(directory.path()).expect("results");
        assert_eq!(results.records, records);
        assert_eq!(results.environment, Environment::default());
        assert_eq!(results.plan, "name = \"test\"\n");
    }

    /// A copy is no other run, wherever it is.
    #[test]
    fn a_run_counts_once() {
        let of = |started_at_ms: u64| {
            let records = [1, 2].map(|repeat| Record { started_at_ms, ..record(1, repeat) });
            load(written(&records).path()).expect("results")
        };
        let (one, copy, other) = (of(7), of(7), of(8));
        assert_eq!(each_once([&one, &other]), Ok(()));
        let why = each_once([&one, &other, &copy]).expect_err("a copy");
        assert!(why.ends_with("are of one run, which counts once"), "{why}");
        assert!(why.starts_with(&one.directory.display().to_string()), "{why}");
    }

    #[test]
    fn windows_are_read_back_and_a_record_without_them_is_read() {
        let mut with = record(1, 1);
        let ramp = Window { at_s: 0.5, iops: 900.0, p99_ns: None, ramp: true };
        let counted = Window { at_s: 1.0, iops: 1000.0, p99_ns: Some(50_000), ramp: false };
        with.windows = vec![ramp, counted];
        let lines = [&with, &record(2, 1)].map(|of| serde_json::to_string(of).expect("a line"));
        let expected = r#""windows":[{"at_s":0.5,"iops":900.0,"ramp":true},{"at_s":1.0,"#;
        assert!(lines[0].contains(expected), "{}", lines[0]);
        assert!(!lines[1].contains("windows"), "{}", lines[1]);
        let records = [with, record(2, 1)];
        let directory = written(&records);
        let read = load(directory.path()).expect("results").records;
        assert_eq!(read, records);
        assert_eq!(read[0].over_time(), [ramp, counted]);
        assert_eq!(read[1].over_time(), []);
    }

    #[test]
    fn a_repeat_that_is_measured_again_replaces_the_earlier_one() {
        let mut failed = record(1, 1);
        failed.status = Status::Failed { reason: "gone".to_owned() };
        let directory = written(&[failed, record(2, 1), record(1, 1)]);
        let results = load(directory.path()).expect("results");
        assert_eq!(results.records, [record(1, 1), record(2, 1)]);
    }

    #[test]
    fn an_incomplete_line_is_ignored_and_then_removed() {
        let directory = written(&[record(1, 1), record(2, 1)]);
        let path = directory.path().join(file::RECORDS);
        let whole = fs::read(&path).expect("records");
        fs::write(&path, &whole[..whole.len() - 5]).expect("a cut");
        assert_eq!(load(directory.path()).expect("results").records, [record(1, 1)]);
        let mut store = Store::open(directory.path()).expect("a store");
        store.add(&record(3, 1)).expect("a record");
        let records = load(directory.path()).expect("results").records;
        assert_eq!(records, [record(1, 1), record(3, 1)]);
    }

    /// Whoever wrote results: no text of them, nor a name of one, has what a terminal obeys or what
    /// ends a line, and the rest of them is as it was.
    #[test]
    fn no_text_of_results_is_obeyed() {
        let evil = "a\u{1b}[2J\n✓ b\t\u{9b}\u{7f}\r\u{202e}ü\"\\";
        let shown = "a?[2J?✓ b?????ü\"\\";
        let named = |name: &str| {
            let mut one = record(1, 1);
            one.cell = name.to_owned();
            one.status = Status::Failed { reason: name.to_owned() };
            one.configuration.insert(key::TRANSPORT.to_owned(), name.into());
            one.configuration.insert(name.to_owned(), 0.1.into());
            one.values.insert(name.to_owned(), 1.0 / 3.0);
            one
        };
        let directory = written(&[named(evil), record(2, 1)]);
        let path = directory.path().join(file::ENVIRONMENT);
        let text = fs::read_to_string(&path).expect("an environment");
        let mut environment: Json = serde_json::from_str(&text).expect("JSON");
        let kernel = environment.as_object_mut().expect("an object");
        kernel.insert("kernel".to_owned(), evil.into());
        fs::write(&path, environment.to_string()).expect("a write");
        let results = load(directory.path()).expect("results");
        assert_eq!(results.records, [named(shown), record(2, 1)]);
        assert_eq!(results.environment.kernel, shown);
    }

    #[test]
    fn malformed_and_later_records_are_refused() {
        let directory = written(&[record(1, 1)]);
        let path = directory.path().join(file::RECORDS);
        let mut later = record(1, 2);
        later.schema = SCHEMA + 1;
        let line = serde_json::to_string(&later).expect("a line");
        fs::write(&path, format!("{line}\n")).expect("a write");
        assert!(load(directory.path()).is_err_and(|error| error.to_string().contains("version")));
        fs::write(&path, "garbage\n{}\n").expect("a write");
        assert!(load(directory.path()).is_err_and(|error| error.to_string().contains("line 1")));
    }
}
