//! The connection to one agent.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use weft_reactor::monotonic_time;
use weft_rpc::limits::RESPONSE_BYTES_MAX;
use weft_rpc::{CallError, Client, Code, Id, Method, Request, Response};

use super::calls::{Build, Call, CallTarget, Describe, Description};

/// How long an agent may take to answer: it may have to connect the kernel to a target, which gives
/// up a command only after a minute, and to wait for the block device. (A connection that is
/// lost is noticed by ssh.)
const ANSWER: Duration = Duration::from_secs(180);

/// How often a clock is read to find its offset.
const ROUND_TRIPS: u32 = 9;

/// How much of a line that is no answer is kept, to be shown.
const NOISE: usize = 200;

/// How much is read at a time.
const READ: usize = 1 << 16;

/// How often what has ended is read.
const READS_MAX: u32 = 16;

/// How much the rates of two clocks may differ: NTP changes that of each by 500 ppm at most.
const DRIFT: f64 = 1e-3;

/// What an agent is spoken to through.
pub struct Streams {
    /// What it says.
    pub from: OwnedFd,
    /// What it is told.
    pub to: Box<dyn Write + Send>,
    /// What carries both.
    pub carrier: Box<dyn Carrier>,
}

/// What carries the words of an agent: a process, as a rule.
pub trait Carrier: Send {
    /// Takes what it has said to people meanwhile, without waiting.
    fn hear(&mut self);

    /// Ends it and says in half a sentence why there was no answer, and what helps; it may have
    /// answered before.
    fn why(&mut self, has_answered: bool) -> String;
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

    /// By how much the clock has jumped since an earlier reading, if it has: by more than the
    /// readings may be wrong and clocks drift in the time between them.
    pub(super) fn jump_since(self, earlier: Self, between: Duration) -> Option<Duration> {
        let moved = unsigned((self.ns - earlier.ns).abs());
        let wrong = (self.round_trip + earlier.round_trip) / 2 + between.mul_f64(DRIFT);
        (moved > wrong).then_some(moved)
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
    // Its input ends before its output does.
    line: Mutex<Line>,
    from: OwnedFd,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Requests and answers.
struct Line {
    to: Box<dyn Write + Send>,
    carrier: Box<dyn Carrier>,
    /// The beginning of a line that has not come to its end.
    partial: Vec<u8>,
    /// Requests without an answer, or with one that nobody has taken.
    asked: BTreeMap<u64, Option<Response>>,
    /// The first line that was no answer.
    noise: Option<String>,
    next: u64,
    /// Why there are no more answers.
    lost: Option<String>,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    id: u64,
    at: Duration,
}

impl Agent {
    /// Begins to speak to an agent, which has to be of the same build.
    ///
    /// # Errors
    /// One sentence that names the place and what helps.
    pub(super) fn greet(place: &str, streams: Streams, build: &Build) -> Result<Self, String> {
        let Streams { from, to, carrier } = streams;
        let line = Line {
            to,
            carrier,
            partial: Vec::new(),
            asked: BTreeMap::new(),
            noise: None,
            next: 1,
            lost: None,
        };
        let (place, description) = (place.to_owned(), Description::default());
        let mut agent = Self { place, description, line: Mutex::new(line), from };
        agent.description = agent.call::<Describe>(&())?;
        let theirs = &agent.description.build;
        if theirs != build {
            let what = match theirs.version == build.version {
                true => format!("another build of weft {}", build.version),
                false => format!("weft {}, and this is {}", theirs.version, build.version),
            };
            return Err(format!(
                "{}: it has {what}: install there the package of which this program is, or \
                 copy this program there",
                agent.place
            ));
        }
        Ok(agent)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, why: String) -> String {
        format!("{}: {why}", self.place)
    }

    /// Calls a method.
    ///
    /// # Errors
    /// One sentence that names the place.
    pub(super) fn call<M: Method>(&self, params: &M::Params) -> Result<M::Answer, String> {
        let asked = self.ask::<M>(params)?;
        self.wait::<M>(asked)
    }

    /// Sends a request, whose answer is taken later.
    ///
    /// # Errors
    /// One sentence that names the place.
    pub(super) fn ask<M: Method>(&self, params: &M::Params) -> Result<SentRequest, String> {
        let params = serde_json::to_value(params)
            .map_err(|error| self.named(format!("{} is malformed: {error}", M::NAME)))?;
        self.line().send(&self.from, M::NAME, params).map_err(|why| self.named(why))
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// One sentence that names the place.
    pub(super) fn wait<M: Method>(&self, asked: SentRequest) -> Result<M::Answer, String> {
        loop {
            if let Some(answer) = self.answer::<M>(asked)? {
                return Ok(answer);
            }
            let left = (asked.at + ANSWER).saturating_sub(monotonic_time());
            wait_for(&[self], left);
        }
    }

    /// An answer, if it has come.
    ///
    /// # Errors
    /// One sentence that names the place.
    pub(super) fn answer<M: Method>(
        &self,
        asked: SentRequest,
    ) -> Result<Option<M::Answer>, String> {
        let answer = self.line().answer(&self.from, asked).map_err(|why| self.named(why))?;
        let malformed = |error| self.named(format!("{} is malformed: {error}", M::NAME));
        answer.map(|answer| serde_json::from_value(answer).map_err(malformed)).transpose()
    }

    /// Why it does not answer any more, if it does not.
    pub(super) fn lost(&self) -> Option<String> {
        self.line().lost.as_ref().map(|why| self.named(why.clone()))
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

/// Calls a method of several agents at the same time: the answer of each.
pub(super) fn call_all<M: Method>(
    agents: &[Arc<Agent>],
    params: impl Fn(usize) -> Result<M::Params, String>,
) -> Vec<Result<M::Answer, String>> {
    let ask = |(number, agent): (usize, &Arc<Agent>)| agent.ask::<M>(&params(number)?);
    let asked: Vec<Result<SentRequest, String>> = agents.iter().enumerate().map(ask).collect();
    let all = agents.iter().zip(asked);
    all.map(|(agent, asked)| asked.and_then(|asked| agent.wait::<M>(asked))).collect()
}

/// Waits until one of these says something, or the time is over.
pub(super) fn wait_for(agents: &[&Agent], time: Duration) {
    let descriptors = agents.iter().map(|agent| PollFd::new(&agent.from, PollFlags::IN));
    let mut descriptors: Vec<PollFd<'_>> = descriptors.collect();
    let time = Timespec::try_from(time).unwrap_or_default();
    // Whatever ends it, callers look at all of them.
    let _ = poll(&mut descriptors, Some(&time));
}

/// Several readings of a clock, of which the fastest counts.
#[derive(Debug, Default)]
pub(super) struct Reading {
    taken: u32,
    best: Option<Offset>,
}

impl Reading {
    /// Takes one; all of them, once there are enough.
    pub(super) fn take(&mut self, asked: SentRequest, theirs: Duration) -> Option<Offset> {
        let offset = Offset::of(asked.at, theirs, monotonic_time());
        let best = self.best.filter(|best| best.round_trip <= offset.round_trip).unwrap_or(offset);
        self.best = Some(best);
        self.taken += 1;
        (self.taken == ROUND_TRIPS).then_some(best)
    }
}

impl Line {
    fn send(&mut self, from: &OwnedFd, method: &str, params: Value) -> Result<SentRequest, String> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let id = self.next;
        self.next += 1;
        let (jsonrpc, method) = (Some("2.0".to_owned()), method.to_owned());
        let request = Request { jsonrpc, method, params, id: Some(Id::Number(id.into())) };
        let text = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let at = monotonic_time();
        let sent = self.to.write_all(format!("{text}\n").as_bytes());
        if sent.and_then(|()| self.to.flush()).is_err() {
            return Err(self.lose(from, None));
        }
        self.asked.insert(id, None);
        Ok(SentRequest { id, at })
    }

    /// The answer to a request, if it has come.
    fn answer(&mut self, from: &OwnedFd, asked: SentRequest) -> Result<Option<Value>, String> {
        self.carrier.hear();
        while self.asked.get(&asked.id).is_some_and(Option::is_none) && is_readable(from) {
            if !self.read(from) {
                return Err(self.lose(from, None));
            }
        }
        let is_late = || monotonic_time() > asked.at + ANSWER;
        match self.asked.get_mut(&asked.id).map(Option::take) {
            Some(Some(Response { error: Some(error), .. })) => {
                self.asked.remove(&asked.id);
                Err(match error.code {
                    Code::METHOD_NOT_FOUND => "it is no agent of weft".to_owned(),
                    _ => error.message,
                })
            }
            Some(Some(response)) => {
                self.asked.remove(&asked.id);
                Ok(Some(response.result.unwrap_or(Value::Null)))
            }
            Some(None) if !is_late() && self.lost.is_none() => Ok(None),
            _ => {
                let silent = format!("no answer within {} s", ANSWER.as_secs());
                Err(self.lose(from, Some(silent)))
            }
        }
    }

    /// Reads what has come; false at the end.
    fn read(&mut self, from: &OwnedFd) -> bool {
        let mut bytes = vec![0; READ];
        match rustix::io::read(from, &mut bytes) {
            Ok(count) if count > 0 => {
                self.take(bytes.get(..count).unwrap_or_default());
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Ok(_) | Err(_) => false,
        }
    }

    /// Takes what has come: answers, and lines that are none, of which the first is kept. A shell
    /// may greet before it starts anything.
    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(part);
            let is_too_long = self.partial.len() as u64 > RESPONSE_BYTES_MAX;
            if !part.ends_with(b"\n") && !is_too_long {
                return;
            }
            let line = std::mem::take(&mut self.partial);
            match response(&line) {
                Some(response) => {
                    // Whatever else looks like an answer is not one to a request.
                    let known = self.asked.iter_mut();
                    let mut known =
                        known.filter(|(id, _)| response.id == Id::Number((**id).into()));
                    if let Some((_, place)) = known.next() {
                        *place = Some(response);
                    }
                }
                None => {
                    let text = String::from_utf8_lossy(&line);
                    let text: String = text.trim().chars().take(NOISE).collect();
                    if !text.is_empty() {
                        self.noise.get_or_insert(text);
                    }
                }
            }
        }
    }

    /// There will be no more answers: the reason.
    fn lose(&mut self, from: &OwnedFd, why: Option<String>) -> String {
        if let Some(lost) = &self.lost {
            return lost.clone();
        }
        // In any case it ends.
        let has_answered = self.next > 2;
        let ended = self.carrier.why(has_answered);
        let mut why = why.unwrap_or(ended);
        // It may have said something before it ended; what it started may go on to do so.
        let mut reads = 0..READS_MAX;
        while is_readable(from) && self.read(from) && reads.next().is_some() {}
        // What ends without a line is one as well.
        self.take(b"\n");
        if let Some(noise) = self.noise.take().filter(|_| !has_answered) {
            why += &format!("; it said {noise:?}");
        }
        self.lost = Some(why.clone());
        why
    }
}

/// Whether something has come, or will never come.
fn is_readable(from: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(from, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
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
    fn a_clock_jumps_if_it_moves_by_more_than_it_may() {
        let ms = Duration::from_millis;
        let of = |theirs: u64, round_trip: u64| {
            Offset::of(ms(1_000), ms(theirs) + ms(round_trip) / 2, ms(1_000 + round_trip))
        };
        let before = of(5_000, 2);
        assert_eq!(of(5_002, 4).jump_since(before, Duration::ZERO), None, "3 ms may be wrong");
        assert_eq!(of(5_010, 4).jump_since(before, ms(10_000)), None, "it drifts");
        assert_eq!(of(5_020, 4).jump_since(before, ms(10_000)), Some(ms(20)));
        assert_eq!(of(4_000, 2).jump_since(before, ms(10_000)), Some(ms(1_000)), "backwards");
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
