//! Where and how `weft bench` reports.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use serde_json::Value;
use weft_load::report::disks::Disks;
use weft_load::report::{Entry, fio, human, terse};

use crate::failure::Failure;
use crate::{output, values};

/// Forms of a report, with fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text.
    #[value(alias = "human")]
    Normal,
    /// A line of values for each job.
    Terse,
    /// JSON.
    Json,
    /// JSON with how often each latency occurred.
    #[value(name = "json+")]
    JsonPlus,
}

/// When there is a progress line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Eta {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Options about reports.
#[derive(Debug, Args)]
pub(super) struct Reports {
    /// Forms of the result, separated by commas; json is in fio's shape.
    #[arg(short, long, value_enum, value_delimiter = ',', default_value = "normal")]
    output_format: Vec<Form>,
    /// As --output-format terse.
    #[arg(long)]
    minimal: bool,
    /// Which of fio's versions of terse: 2 to 5.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    terse_version: u32,
    /// Write the result to this file, and not to standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report what there is so far, every so many seconds.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    status_interval: Option<Duration>,
    /// When there is a progress line.
    #[arg(long, value_enum, default_value_t)]
    eta: Eta,
    /// No progress line.
    #[arg(long)]
    quiet: bool,
}

/// Where results go.
#[derive(Debug)]
pub(super) struct Output<'a> {
    options: &'a Reports,
    forms: Vec<Form>,
    file: Option<(&'a Path, File)>,
    is_begun: bool,
    /// What is below the devices.
    pub(super) disks: Disks,
}

impl Reports {
    pub(super) const fn status_interval(&self) -> Option<Duration> {
        self.status_interval
    }

    /// Whether there is a progress line, and whether also without a terminal.
    pub(super) fn live(&self) -> (bool, bool) {
        let is_wanted = !self.quiet && self.eta != Eta::Never;
        (is_wanted, self.eta == Eta::Always && !std::io::stderr().is_terminal())
    }

    /// Opens the file of `--output` before the run, so that one that cannot be written ends the
    /// run before it begins. What it held stays until there is a result.
    pub(super) fn open(&self) -> Result<Output<'_>, Failure> {
        if !terse::VERSIONS.contains(&self.terse_version) {
            return Err(Failure::Because(format!(
                "--terse-version {} is none of 2, 3, 4, 5",
                self.terse_version
            )));
        }
        if self.status_interval.is_some_and(|interval| interval.is_zero()) {
            return Err(Failure::because("a --status-interval of 0 reports without end"));
        }
        let file = self.output.as_deref().map(|path| {
            let file = File::options().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| Failure::io("write", &path.display(), &error))?;
            Ok::<_, Failure>((path, file))
        });
        let forms = if self.minimal { vec![Form::Terse] } else { self.output_format.clone() };
        Ok(Output {
            options: self,
            forms,
            file: file.transpose()?,
            is_begun: false,
            disks: Disks::default(),
        })
    }
}

impl Output<'_> {
    /// Writes a report of these. One that cannot be written to its file is printed, and then told.
    pub(super) fn report(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        let text: String = self.forms.iter().map(|form| self.text(*form, entries)).collect();
        let Some((path, file)) = &mut self.file else { return output::print(&text) };
        let is_file = file.metadata().is_ok_and(|found| found.is_file());
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let emptied = if is_file && is_first { file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| {
            let failure = Failure::io("write", &path.display(), &error);
            output::print(&text).err().unwrap_or(failure)
        })
    }

    fn text(&self, form: Form, entries: &[Entry]) -> String {
        match form {
            Form::Normal => {
                let texts = entries
                    .iter()
                    .map(|entry| human::result(&entry.job, &entry.device, &entry.result));
                texts.collect::<String>() + &human::groups(entries)
            }
            Form::Terse => terse::lines(entries, self.options.terse_version),
            Form::Json => self.json(fio::reports(entries, time_of_day())),
            Form::JsonPlus => self.json(fio::reports_with_bins(entries, time_of_day())),
        }
    }

    fn json(&self, mut report: Value) -> String {
        if let Some(used) = self.disks.used() {
            report["disk_util"] = used;
        }
        format!("{report:#}\n")
    }
}

/// Since 1970, for reports.
pub(crate) fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
