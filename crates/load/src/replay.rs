//! Requests that fio has recorded: `read_iolog`, versions 2 and 3.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use crate::pattern::Direction;
use crate::units::whole;

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request of the pattern.
    Transfer(Direction),
    /// `sync` and `datasync`.
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// What.
    pub action: Action,
    /// Bytes from the beginning of the device.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
}

/// Requests, and when each is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// In their order.
    pub requests: Vec<RecordedRequest>,
    /// Nanoseconds since the start, of each; none: as soon as there is room.
    pub times: Option<Arc<[u64]>>,
    /// The devices that are named.
    pub devices: Vec<String>,
}

/// How times are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Not `replay_no_stall`.
    pub is_kept: bool,
    /// `replay_time_scale`: of a hundred; 200 is twice as fast.
    pub percent: f64,
}

/// The bytes of a log of fio, which may be long; `None` if the file is none, which may have no end.
fn contents(path: &str) -> io::Result<Option<Vec<u8>>> {
    let begin = b"fio version";
    let (mut file, mut bytes) = (File::open(path)?, Vec::new());
    file.by_ref().take(begin.len() as u64).read_to_end(&mut bytes)?;
    if bytes != begin {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

impl Replay {
    /// Reads a file.
    ///
    /// # Errors
    /// The file, the line, and what is wrong with it.
    pub fn read(path: &str, timing: Timing) -> Result<Self, String> {
        let bytes = contents(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| {
            format!(
                "{path} is no log of fio's version 2 or 3: others, and blktrace's, are not read"
            )
        })?;
        Self::parse(&text, timing).map_err(|error| format!("{path}:{error}"))
    }

    fn parse(text: &str, timing: Timing) -> Result<Self, String> {
        let mut lines = (1..).zip(text.lines());
        let version = match lines.next().map(|(_, line)| line.trim()) {
            Some("fio version 2 iolog") => 2,
            Some("fio version 3 iolog") => 3,
            _ => return Err("1: the version is neither 2 nor 3".to_owned()),
        };
        let mut replay = Self::default();
        let mut times = Vec::new();
        let (mut first_us, mut now_us) = (None, 0);
        for (number, line) in lines {
            let fault = |what: &str| format!("{number}: {what}: {line:?}");
            let mut words = line.split_whitespace();
            let mut numbered = |what: &str| -> Result<u64, String> {
                let word = words.next().ok_or_else(|| fault(what))?;
                word.parse().map_err(|_| fault(what))
            };
            if line.trim().is_empty() {
                continue;
            }
            if version == 3 {
                let at_us = numbered("a line begins with its time")?;
                now_us = at_us.saturating_sub(*first_us.get_or_insert(at_us));
            }
            let mut word = || words.next().ok_or_else(|| fault("there is no action"));
            let (device, action) = (word()?, word()?);
            let rest: Result<Vec<u64>, _> = words.map(str::parse).collect();
            let rest = rest.map_err(|_| fault("offset and length are numbers"))?;
            let action = match (action, rest.as_slice()) {
                ("add" | "open" | "close", _) => {
                    if !replay.devices.iter().any(|known| known == device) {
                        replay.devices.push(device.to_owned());
                    }
                    continue;
                }
                // As fio takes it: milliseconds since the start.
                ("wait", [until_ms, ..]) if version == 2 => {
                    now_us = now_us.max(until_ms.saturating_mul(1000));
                    continue;
                }
                ("wait", _) => return Err(fault("version 3 has no wait")),
                ("read", _) => Action::Transfer(Direction::Read),
                ("write", _) => Action::Transfer(Direction::Write),
                ("trim", _) => Action::Transfer(Direction::Trim),
                ("sync" | "datasync", _) => Action::Flush,
                _ => return Err(fault("this action is not known")),
            };
            let (offset, bytes) = match (rest.as_slice(), action) {
                ([offset, bytes], _) => (*offset, *bytes),
                (_, Action::Flush) => (0, 0),
                _ => return Err(fault("a request has an offset and a length")),
            };
            let bytes = u32::try_from(bytes).map_err(|_| fault("the length is too large"))?;
            replay.requests.push(RecordedRequest { action, offset, bytes });
            times.push(now_us);
        }
        if replay.requests.is_empty() {
            return Err("1: there is no request in it".to_owned());
        }
        if timing.is_kept && times.iter().any(|time| *time > 0) {
            let scaled = |us: u64| whole((us as f64 * 1e3 * 100.0 / timing.percent).round());
            replay.times = Some(times.into_iter().map(scaled).collect());
        }
        Ok(replay)
    }

    /// Whether a request is of this direction.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        self.requests.iter().any(|request| request.action == Action::Transfer(direction))
    }

    /// The longest request.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.requests.iter().map(|request| request.bytes).max().unwrap_or(0)
    }

    /// The mean length.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        let bytes: u64 = self.requests.iter().map(|request| u64::from(request.bytes)).sum();
        bytes as f64 / self.requests.len().max(1) as f64
    }

    /// Where the last byte ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        let end =
            |request: &RecordedRequest| request.offset.saturating_add(u64::from(request.bytes));
        self.requests.iter().map(end).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Timing = Timing { is_kept: true, percent: 100.0 };

    #[test]
    fn both_versions_are_read() {
        let two = "fio version 2 iolog\n/d add\n/d open\n/d read 0 4096\n/d wait 3 0\n\
                   /d write 8192 512\n/d sync 0 0\n/d wait 2\n/d trim 0 4096\n/d close\n";
        let three = "fio version 3 iolog\n7 /d add\n7 /d open\n7 /d read 0 4096\n\
                     3007 /d write 8192 512\n3007 /d datasync 0 0\n3007 /d trim 0 4096\n\
                     9000 /d close\n";
        for text in [two, three] {
            let found = Replay::parse(text, KEPT).expect(text);
            let actions: Vec<Action> = found.requests.iter().map(|one| one.action).collect();
            let transfer = Action::Transfer;
            let expected = [
                transfer(Direction::Read),
                transfer(Direction::Write),
                Action::Flush,
                transfer(Direction::Trim),
            ];
            assert_eq!(actions, expected);
            assert_eq!((found.longest(), found.end()), (4096, 8704));
            assert_eq!(found.times.as_deref(), Some(&[0, 3_000_000, 3_000_000, 3_000_000][..]));
            assert_eq!(found.devices, ["/d"]);
            let fast = Replay::parse(text, Timing { percent: 200.0, ..KEPT }).expect(text);
            assert_eq!(fast.times.expect("times")[1], 1_500_000);
            let none = Replay::parse(text, Timing { is_kept: false, ..KEPT }).expect(text);
            assert_eq!(none.times, None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (text, part) in [
            ("", "1: the version"),
            ("fio version 2 iolog\n/d add\n", "no request"),
            ("fio version 2 iolog\n/d read x 1\n", "2: offset and length"),
            ("fio version 2 iolog\n/d read 1\n", "2: a request has"),
            ("fio version 2 iolog\n/d jump 1 1\n", "2: this action"),
            ("fio version 3 iolog\n/d read 0 1\n", "2: a line begins with its time"),
            ("fio version 3 iolog\n0 /d wait 1 0\n", "2: version 3 has no wait"),
        ] {
            let error = Replay::parse(text, KEPT).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
