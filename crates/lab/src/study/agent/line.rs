//! The connection to one agent.

use std::{
    fmt,
    io::{BufRead, BufReader, Read, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use weft_reactor::monotonic_time;
use weft_rpc::{
    CallError, Client, Code, Id, Method, Request, Response, limits::RESPONSE_BYTES_MAX,
};

use super::{Build, Call, CallTarget, Clock, Describe, Description};

/// How long an agent may take to answer: it may have to open a device or connect to a target.
const ANSWER: Duration = Duration::from_secs(60);

/// How often a clock is read to find its offset.
const ROUND_TRIPS: u32 = 9;

/// How much of a line that is no answer is kept, to be shown.
const NOISE: usize = 200;

/// What an agent is spoken to through.
pub struct Streams {
    /// What it says.
    pub from: Box<dyn Read + Send>,
    /// What it is told.
    pub to: Box<dyn Write + Send>,
    /// Ends it and says in half a sentence why there was no answer, and what helps.
    pub why: Box<dyn FnMut() -> String + Send>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// How far the clock of an agent is ahead of this one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset {
    /// Its clock less this one's, in ns.
    pub(super) ns: i128,
    /// The round trip by which that was found; it is wrong by half of it at most.
    pub(super) round_trip: Duration,
}

impl Offset {
    /// From a reading between two of this machine's.
    fn of(before: Duration, theirs: Duration, after: Duration) -> Self {
        let (before, after) = (signed(before), signed(after));
        let round_trip = u64::try_from(after - before).unwrap_or(0);
        Self {
            ns: signed(theirs) - (before + after) / 2,
            round_trip: Duration::from_nanos(round_trip),
        }
    }

    /// A time of this machine in terms of the agent's clock.
    pub(super) fn theirs(self, ours: Duration) -> Duration {
        unsigned(signed(ours) + self.ns)
    }

    /// The reverse.
    pub(super) fn ours(self, theirs: Duration) -> Duration {
        unsigned(signed(theirs) - self.ns)
    }
}

fn signed(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

fn unsigned(ns: i128) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

/// An agent that answers.
pub(super) struct Agent {
    /// Where it is, as it was given.
    pub(super) place: String,
    pub(super) description: Description,
    line: Mutex<Line>,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Requests and answers.
struct Line {
    to: Box<dyn Write + Send>,
    answers: Receiver<Response>,
    why: Box<dyn FnMut() -> String + Send>,
    /// The first line that was no answer.
    noise: Arc<Mutex<Option<String>>>,
    next: u64,
    /// Why there are no more answers.
    lost: Option<String>,
}

impl Agent {
    /// Begins to speak to an agent, which has to be of the same build.
    ///
    /// # Errors
    /// One sentence that names the place and what helps.
    pub(super) fn greet(place: &str, streams: Streams, build: &Build) -> Result<Self, String> {
        let mut line = Line::over(streams)?;
        let description = line.call::<Describe>(&()).map_err(|why| format!("{place}: {why}"))?;
        let theirs = &description.build;
        if theirs != build {
            let what = match theirs.version == build.version {
                true => format!("another build of weft {}", build.version),
                false => format!("weft {}, and this is {}", theirs.version, build.version),
            };
            return Err(format!(
                "{place}: it has {what}: install there the package of which this program is, or \
                 copy this program there"
            ));
        }
        Ok(Self { place: place.to_owned(), description, line: Mutex::new(line) })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a method.
    ///
    /// # Errors
    /// One sentence that names the place.
    pub(super) fn call<M: Method>(&self, params: &M::Params) -> Result<M::Answer, String> {
        self.line().call::<M>(params).map_err(|why| format!("{}: {why}", self.place))
    }

    /// Why it does not answer any more, if it does not.
    pub(super) fn lost(&self) -> Option<String> {
        self.line().lost.as_ref().map(|why| format!("{}: {why}", self.place))
    }

    /// How far its clock is ahead, by the fastest of several round trips.
    pub(super) fn offset(&self) -> Result<Offset, String> {
        let mut best: Option<Offset> = None;
        for _ in 0..ROUND_TRIPS {
            let before = monotonic_time();
            let theirs = self.call::<Clock>(&())?;
            let offset = Offset::of(before, theirs, monotonic_time());
            if best.is_none_or(|best| offset.round_trip < best.round_trip) {
                best = Some(offset);
            }
        }
        best.ok_or_else(|| format!("{}: its clock was not read", self.place))
    }

    /// A connection to the control interface of a target that it has started.
    pub(super) fn control(self: &Arc<Self>, number: u64) -> Client {
        let agent = Arc::clone(self);
        Client::relayed(move |method, params| {
            let call = Call { number, method: method.to_owned(), params };
            agent.call::<CallTarget>(&call).map_err(CallError::Relay)
        })
    }
}

impl Line {
    fn over(streams: Streams) -> Result<Self, String> {
        let Streams { from, to, why } = streams;
        let (told, answers) = channel();
        let noise = Arc::<Mutex<Option<String>>>::default();
        let heard = Arc::clone(&noise);
        thread::Builder::new()
            .name("weft-agent".to_owned())
            .spawn(move || listen(from, &told, &heard))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self { to, answers, why, noise, next: 1, lost: None })
    }

    fn call<M: Method>(&mut self, params: &M::Params) -> Result<M::Answer, String> {
        let unusable = |error: serde_json::Error| format!("{} is malformed: {error}", M::NAME);
        let params = serde_json::to_value(params).map_err(unusable)?;
        let answer = self.exchange(M::NAME, params)?;
        serde_json::from_value(answer).map_err(unusable)
    }

    fn exchange(&mut self, method: &str, params: Value) -> Result<Value, String> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let id = Id::Number(self.next.into());
        self.next += 1;
        let method = method.to_owned();
        let jsonrpc = Some("2.0".to_owned());
        let request = Request { jsonrpc, method, params, id: Some(id.clone()) };
        let text = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let sent = self.to.write_all(format!("{text}\n").as_bytes());
        if sent.and_then(|()| self.to.flush()).is_err() {
            return Err(self.lose(None));
        }
        let end = monotonic_time() + ANSWER;
        loop {
            match self.answers.recv_timeout(end.saturating_sub(monotonic_time())) {
                // Whatever else looks like an answer is not one to this request.
                Ok(response) if response.id != id => {}
                Ok(Response { error: Some(error), .. }) => {
                    return Err(match error.code {
                        Code::METHOD_NOT_FOUND => "it is no agent of weft".to_owned(),
                        _ => error.message,
                    });
                }
                Ok(response) => return Ok(response.result.unwrap_or(Value::Null)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.lose(None)),
                Err(RecvTimeoutError::Timeout) => {
                    let silent = format!("no answer within {} s", ANSWER.as_secs());
                    return Err(self.lose(Some(silent)));
                }
            }
        }
    }

    /// There will be no more answers: the reason.
    fn lose(&mut self, why: Option<String>) -> String {
        // In any case it ends.
        let ended = (self.why)();
        let mut why = why.unwrap_or(ended);
        let noise = self.noise.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(noise) = noise.filter(|_| self.next == 2) {
            why += &format!("; it said {noise:?}");
        }
        self.lost = Some(why.clone());
        why
    }
}

/// Passes on the answers of an agent, and keeps the first line that is none: a shell may greet
/// before it starts anything.
fn listen(from: Box<dyn Read + Send>, told: &Sender<Response>, noise: &Mutex<Option<String>>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(RESPONSE_BYTES_MAX).read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return;
        }
        if let Some(response) = response(&line) {
            if told.send(response).is_err() {
                return;
            }
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim().chars().take(NOISE).collect();
        if !text.is_empty() {
            noise.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        }
    }
}

/// The answer in a line, which may follow a greeting without an end of its own.
fn response(line: &[u8]) -> Option<Response> {
    const BRACES_MAX: usize = 8;
    let braces = line.iter().enumerate().filter(|(_, byte)| **byte == b'{').take(BRACES_MAX);
    let mut answers = braces.map(|(at, _)| serde_json::from_slice(line.get(at..).unwrap_or(&[])));
    answers.find_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_that_of_the_middle_of_a_round_trip() {
        let ms = Duration::from_millis;
        let offset = Offset::of(ms(1_000), ms(5_010), ms(1_020));
        assert_eq!((offset.ns, offset.round_trip), (4_000_000_000, ms(20)));
        assert_eq!((offset.theirs(ms(2_000)), offset.ours(ms(6_000))), (ms(6_000), ms(2_000)));
        let behind = Offset::of(ms(5_000), ms(1_000), ms(5_000));
        assert_eq!((behind.theirs(ms(6_000)), behind.ours(ms(2_000))), (ms(2_000), ms(6_000)));
        assert_eq!(behind.theirs(ms(1)), Duration::ZERO, "before its clock began");
    }

    #[test]
    fn an_answer_is_found_behind_a_greeting_of_a_shell() {
        let answer = r#"{"jsonrpc":"2.0","result":7,"id":1}"#;
        let of = |text: String| response(text.as_bytes()).and_then(|response| response.result);
        assert_eq!(of(format!("{answer}\n")), Some(7.into()));
        assert_eq!(of(format!("Welcome {{ to }} \u{fffd} {answer}\n")), Some(7.into()));
        assert_eq!(of("Welcome\n".to_owned()), None);
        assert_eq!(of("{\"a\": {\"b\": 1}}\n".to_owned()), None);
        assert_eq!(of("{".repeat(100_000)), None);
    }
}
