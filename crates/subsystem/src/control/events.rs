//! Where the Persistent Event Logs of the subsystems outlast the target: a file that a thread
//! replaces as a whole when something was recorded.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::files::read_text;
use weft_nvmf::persistent::{EventLog, SavedEvents};
use weft_reactor::{monotonic_time, real_time};

use crate::shared::error::TargetError;

/// The version of the form.
const VERSION: u32 = 1;

/// The logs of the subsystems that are served. By default they have no time of day and no file.
#[derive(Debug, Default)]
pub(crate) struct EventLogs {
    /// The time since 1970 at which the monotonic clock began.
    epoch: Option<Duration>,
    file: Option<(Arc<EventFile>, SyncSender<()>)>,
}

/// The file, and what belongs into it.
#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    logs: Mutex<Logs>,
}

#[derive(Debug, Default)]
struct Logs {
    served: BTreeMap<String, Weak<EventLog>>,
    /// Those of subsystems that were not served since the start.
    kept: BTreeMap<String, SavedEvents>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredEvents {
    weft_events: u32,
    subsystems: BTreeMap<String, StoredLog>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StoredLog {
    power_cycles: u64,
    /// In hexadecimal digits, newest first.
    events: Vec<String>,
}

impl EventLogs {
    /// Logs with the time of day, which are kept in a file if one is given.
    pub(crate) fn new(path: Option<&Path>) -> Result<Self, TargetError> {
        let epoch = Some(real_time().saturating_sub(monotonic_time()));
        let Some(path) = path else { return Ok(Self { epoch, file: None }) };
        let kept = read(path).map_err(TargetError::new)?;
        let logs = Mutex::new(Logs { kept, ..Logs::default() });
        let file = Arc::new(EventFile { path: path.to_owned(), logs });
        let (news, told) = sync_channel(1);
        start_writer(Arc::clone(&file), told)?;
        Ok(Self { epoch, file: Some((file, news)) })
    }

    /// Whether such a file can be read.
    pub(crate) fn check(path: &Path) -> Result<(), TargetError> {
        read(path).map(drop).map_err(TargetError::new)
    }

    /// The log of a subsystem that was not served so far, or not any more.
    pub(crate) fn begin(&self, nqn: &str) -> Arc<EventLog> {
        let (started, epoch) = match self.epoch {
            Some(epoch) => (monotonic_time(), epoch),
            None => (Duration::ZERO, Duration::ZERO),
        };
        let Some((file, news)) = &self.file else {
            return Arc::new(EventLog::new(started, epoch, SavedEvents::default(), None));
        };
        let mut logs = file.lock();
        let kept = logs.kept.remove(nqn).unwrap_or_default();
        let log = Arc::new(EventLog::new(started, epoch, kept, Some(news.clone())));
        logs.served.insert(nqn.to_owned(), Arc::downgrade(&log));
        log
    }

    /// Writes what was recorded.
    pub(crate) fn write(&self) -> Result<(), String> {
        self.file.as_ref().map_or(Ok(()), |(file, _)| file.write())
    }
}

impl EventFile {
    /// The lock is held until the file is written, so that an older state does not replace a newer.
    fn write(&self) -> Result<(), String> {
        let mut logs = self.lock();
        logs.served.retain(|_, log| log.strong_count() > 0);
        let served = logs.served.iter().filter_map(|(nqn, log)| Some((nqn, log.upgrade()?.kept())));
        let kept = logs.kept.iter().map(|(nqn, kept)| (nqn, kept.clone()));
        let subsystems = kept.chain(served).map(|(nqn, kept)| (nqn.clone(), kept.into()));
        let stored = StoredEvents { weft_events: VERSION, subsystems: subsystems.collect() };
        let text = serde_json::to_string(&stored).map_err(|error| error.to_string())? + "\n";
        crate::replace_file(&self.path, text.as_bytes())
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        // What is done under the lock leaves it whole at any step.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<SavedEvents> for StoredLog {
    fn from(kept: SavedEvents) -> Self {
        let hex = |event: &Arc<[u8]>| event.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { power_cycles: kept.power_cycles, events: kept.events.iter().map(hex).collect() }
    }
}

impl StoredLog {
    fn read(&self) -> Option<SavedEvents> {
        let events = self.events.iter().map(|text| bytes(text)).collect::<Option<_>>()?;
        Some(SavedEvents { power_cycles: self.power_cycles, events }).filter(SavedEvents::is_valid)
    }
}

/// The bytes of hexadecimal digits.
fn bytes(text: &str) -> Option<Arc<[u8]>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(|digits| pair(digits).filter(|_| digits.len() == 2)).collect()
}

fn start_writer(file: Arc<EventFile>, told: Receiver<()>) -> Result<(), TargetError> {
    let run = move || {
        for () in told {
            if let Err(error) = file.write() {
                log::error!("the Persistent Event Log cannot be written to {error}");
            }
        }
    };
    let started = std::thread::Builder::new().name("weft-events".to_owned()).spawn(run);
    started.map(drop).map_err(|error| TargetError::new(format!("cannot start a thread: {error}")))
}

/// Reads the logs; none if there is no file.
fn read(path: &Path) -> Result<BTreeMap<String, SavedEvents>, String> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    parse(&text).map_err(|what| {
        format!("{}: {what}; move the file away to begin with an empty log", path.display())
    })
}

fn parse(text: &str) -> Result<BTreeMap<String, SavedEvents>, String> {
    let stored: StoredEvents = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if stored.weft_events != VERSION {
        return Err(format!("version {} of Persistent Event Logs is unknown", stored.weft_events));
    }
    let read = |(nqn, log): (String, StoredLog)| match log.read() {
        Some(kept) => Ok((nqn, kept)),
        None => Err(format!("the Persistent Event Log of {nqn} is damaged")),
    };
    stored.subsystems.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2024-01.io.weft:test";

    fn events(path: &Path) -> usize {
        read(path).expect("a file").get(NQN).map_or(0, |kept| kept.events.len())
    }

    #[test]
    fn events_are_written_and_are_there_with_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events");
        for start in 1..=3 {
            let logs = EventLogs::new(Some(&path)).expect("logs");
            let log = logs.begin(NQN);
            log.record_power_on("0.1");
            // By the thread: nobody else is asked to.
            let began = std::time::Instant::now();
            while !path.exists() || events(&path) < start {
                assert!(began.elapsed() < Duration::from_secs(20), "it is never written");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(log.kept().power_cycles, start as u64);
        }
        // A subsystem that is not served keeps its log, one that is deleted does not.
        let logs = EventLogs::new(Some(&path)).expect("logs");
        logs.write().expect("written");
        assert_eq!(events(&path), 3);
        drop(logs.begin(NQN));
        logs.write().expect("written");
        assert_eq!(events(&path), 0);
    }

    /// The new file is written aside: at any byte of it a crash leaves the one before.
    #[test]
    fn a_crash_at_any_byte_leaves_the_log_that_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events");
        // Without the thread, which would write at any time.
        let file = Arc::new(EventFile { path: path.clone(), logs: Mutex::default() });
        let logs = EventLogs { epoch: None, file: Some((file, sync_channel(1).0)) };
        let log = logs.begin(NQN);
        log.record_power_on("0.1");
        logs.write().expect("written");
        let whole = std::fs::read(&path).expect("a file");
        for length in 0..=whole.len() {
            std::fs::write(weft_backend::files::aside(&path), &whole[..length]).expect("cut off");
            assert_eq!(events(&path), 1, "after {length} bytes");
        }
        let text = std::str::from_utf8(&whole).expect("text");
        for length in 0..whole.len() - 1 {
            assert!(parse(&text[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn what_is_damaged_is_said_to_be() {
        let log = |events: &str| {
            let log = format!(r#"{{"power-cycles":1,"events":[{events}]}}"#);
            parse(&format!(r#"{{"weft-events":1,"subsystems":{{"{NQN}":{log}}}}}"#))
        };
        assert!(log("").is_ok());
        for damaged in [r#""0""#, r#""zz""#, r#""0400150000""#, r#""é""#] {
            let error = log(damaged).expect_err(damaged);
            assert!(error.contains(NQN) && error.contains("damaged"), "{error}");
        }
        let other = r#"{"weft-events":2,"subsystems":{}}"#;
        assert!(parse(other).expect_err("another version").contains("version 2"));
    }
}
