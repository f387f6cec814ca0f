//! What knobs were, in a file, so that they can be put back whoever dies.
//!
//! A line is written and has reached the disk before a knob is changed, and another one after it
//! was put back. The process that changes knobs holds a lock of the file, which its watchdog
//! shares: a file whose lock is free has been left.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::files::read_text;
use weft_reactor::monotonic_time;

use super::change::{Change, Machine};

/// How long a watchdog may take to put back what it has.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts a process that puts back what a journal has when its input ends, with the journal's file
/// open so that its lock lasts.
pub type Watch = Box<dyn Fn(&Path, File) -> Result<Child, String> + Send + Sync>;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Line {
    /// It will be changed; this is the value to which it is put back.
    Changes { back: Change },
    /// It was put back.
    IsBack { back: Change },
}

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// What is to be put back, in the order in which it was changed.
    open: Vec<Change>,
    watchdog: Child,
    /// Its end tells the watchdog that this process has ended.
    input: Option<ChildStdin>,
}

impl Journal {
    /// Begins one, and has it watched.
    pub(super) fn begin(folder: &Path, watch: &Watch) -> Result<Self, String> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        let unwritable = |error: io::Error| format!("no journal in {}: {error}", folder.display());
        made.map_err(unwritable)?;
        check_private(folder)?;
        let mut number = 0;
        let (path, file) = loop {
            let name = format!("{}{}-{number}.jsonl", prefix(), std::process::id());
            let path = folder.join(name);
            let opened = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
            match opened {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                }
                Err(error) => return Err(unwritable(error)),
            }
        };
        file.lock().map_err(unwritable)?;
        let shared = file.try_clone().map_err(unwritable)?;
        let watchdog = watch(&path, shared);
        let mut watchdog = watchdog.inspect_err(|_| {
            // There is nothing in it.
            let _ = fs::remove_file(&path);
        })?;
        let input = watchdog.stdin.take();
        Ok(Self { path, file, open: Vec::new(), watchdog, input })
    }

    /// What a knob was that this process has changed.
    pub(super) fn before(&self, change: &Change) -> Option<String> {
        let back = self.open.iter().find(|back| back.is_of(change))?;
        Some(back.value().to_owned())
    }

    /// Notes what a knob is before it is changed.
    pub(super) fn note(&mut self, change: &Change, now: &str) -> Result<(), String> {
        let back = change.with(now);
        write(&mut self.file, &Line::Changes { back: back.clone() })
            .map_err(|error| format!("{} cannot be written: {error}", self.path.display()))?;
        self.open.push(back);
        Ok(())
    }

    /// Puts back those of the changes that are meant, last first.
    pub(super) fn restore(
        &mut self,
        machine: &Machine,
        is_meant: impl Fn(&Change) -> bool,
    ) -> Result<(), String> {
        let (back, kept) = self.open.drain(..).partition(|change| is_meant(change));
        self.open = kept;
        let (_, failed) = put_back(machine, back, &mut self.file);
        let faults: Vec<String> = failed.iter().map(|(_, why)| why.clone()).collect();
        self.open.extend(failed.into_iter().map(|(change, _)| change));
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.open.is_empty() {
            // A file without anything open in it would be removed by the next agent as well.
            let _ = fs::remove_file(&self.path);
        }
        // The watchdog ends with its input: it finds no file, or tries again.
        drop(self.input.take());
        let _ = self.watchdog.wait();
    }
}

/// Whether a folder has journals of this user alone: what a journal says is done with its rights.
fn check_private(folder: &Path) -> Result<(), String> {
    let about = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw();
    match is_own && about.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(format!(
            "{}: others may write to this folder of journals, so they are not used: remove it",
            folder.display()
        )),
    }
}

/// How the names of all journals of this network namespace begin: only within it can they be put
/// back.
fn prefix() -> String {
    let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |file| file.ino());
    format!("knobs-{namespace}-")
}

fn write(file: &mut File, line: &Line) -> io::Result<()> {
    let text = serde_json::to_string(line)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.sync_data()
}

/// Puts changes back, last first: what was put back, and what was not, with the reason.
fn put_back(
    machine: &Machine,
    changes: Vec<Change>,
    file: &mut File,
) -> (Vec<String>, Vec<(Change, String)>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for back in changes.into_iter().rev() {
        // An interface that has gone has taken its settings with it.
        let is_back = || machine.read(&back).is_ok_and(|now| back.agrees(&now));
        // A driver may refuse even the value that it has.
        let put = match machine.has(&back) && !is_back() {
            true => machine.write(&back),
            false => Ok(()),
        };
        match put {
            Ok(()) => {
                // If it cannot be written it is put back twice.
                let _ = write(file, &Line::IsBack { back: back.clone() });
                done.push(format!("{back} {}", back.value()));
            }
            Err(why) => {
                let what = format!("{back} was not put back to {}: {why}", back.value());
                failed.push((back, what));
            }
        }
    }
    (done, failed)
}

/// What a journal has to put back, in the order in which it was changed.
fn open_in(text: &str) -> Vec<Change> {
    let mut open: Vec<Change> = Vec::new();
    // A line that was not finished is about nothing that was changed.
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            Line::Changes { back } => open.push(back),
            Line::IsBack { back } => open.retain(|known| *known != back),
        }
    }
    open
}

/// Puts back what a journal has, and removes it: says what.
pub(super) fn restore(machine: &Machine, path: &Path) -> Result<Vec<String>, String> {
    let text = match read_text(path) {
        Ok(text) => text,
        // All was put back.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let unwritable = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().append(true).open(path).map_err(unwritable)?;
    let (done, failed) = put_back(machine, open_in(&text), &mut file);
    if failed.is_empty() {
        fs::remove_file(path).map_err(unwritable)?;
        return Ok(done);
    }
    Err(failed.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; "))
}

/// Puts back what was left in journals of this network namespace, and says what.
pub(super) fn restore_left(machine: &Machine, folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    if let Err(why) = check_private(folder) {
        return vec![why];
    }
    let prefix = prefix();
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    };
    let mut said = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()).filter(is_ours) {
        let Ok(file) = File::open(&path) else { continue };
        // One that is held belongs to a process that lives, or to a watchdog that is about it.
        let end = monotonic_time() + PATIENCE;
        let is_free = loop {
            match file.try_lock() {
                Ok(()) => break true,
                Err(TryLockError::WouldBlock) if monotonic_time() < end => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(_) => break false,
            }
        };
        if is_free {
            match restore(machine, &path) {
                Ok(done) => said.extend(done),
                Err(why) => said.push(why),
            }
        }
    }
    said
}
