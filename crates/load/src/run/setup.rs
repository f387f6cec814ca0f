//! What all workers of a run share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use weft_backend::DeviceFactory;

use crate::job::{Job, Plan};
use crate::jobfile::Exit;

/// A job and what it runs on, among others that run at the same time.
#[derive(Clone)]
pub struct Part {
    /// The job.
    pub job: Job,
    /// Its device.
    pub factory: Arc<dyn DeviceFactory>,
    /// `wait_for`: it begins when this part has ended.
    pub after: Option<usize>,
    /// `exitall`: what ends when a copy of it ends.
    pub exit: Option<Exit>,
    /// Which group that is.
    pub group: usize,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("job", &self.job).finish_non_exhaustive()
    }
}

impl Part {
    /// A job that waits for nobody and ends nobody.
    #[must_use]
    pub fn new(job: &Job, factory: &Arc<dyn DeviceFactory>) -> Self {
        let (job, factory) = (job.clone(), Arc::clone(factory));
        Self { job, factory, after: None, exit: None, group: 0 }
    }
}

/// What all workers of a run share.
pub(crate) struct Setup<'a> {
    pub(super) parts: &'a [Part],
    pub(super) plans: Vec<Plan>,
    /// Of each lane, the part and which of its copies it is.
    pub(super) lanes: Vec<(usize, usize)>,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) ends: Arc<Ends>,
    /// How often results so far are reported.
    pub(crate) status: Option<Duration>,
    /// Identifies the blocks of this run. With the job's seed alone, a lost write could not be told
    /// from the same write of an earlier run.
    pub(crate) run_seed: u64,
}

/// Which parts have ended, and which groups are to end: seldom written, and read once a turn.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Lanes of each part that still run.
    running: Vec<AtomicUsize>,
    groups: Vec<AtomicBool>,
    /// Whether any part ends others.
    pub(crate) any: bool,
}

impl Ends {
    pub(super) fn of(parts: &[Part]) -> Self {
        let groups = parts.iter().map(|part| part.group + 1).max().unwrap_or(0);
        let running = |part: &Part| AtomicUsize::new(part.job.copies as usize);
        Self {
            running: parts.iter().map(running).collect(),
            groups: (0..groups).map(|_| AtomicBool::new(false)).collect(),
            any: parts.iter().any(|part| part.exit.is_some()),
        }
    }

    /// A lane of this part has ended.
    pub(crate) fn lane_ended(&self, part: usize, group: usize, exit: Option<Exit>) {
        if let Some(running) = self.running.get(part) {
            running.fetch_sub(1, Ordering::AcqRel);
        }
        for (number, ends) in self.groups.iter().enumerate() {
            if exit.is_some_and(|exit| exit != Exit::Group || number == group) {
                ends.store(true, Ordering::Release);
            }
        }
    }

    pub(crate) fn has_ended(&self, part: usize) -> bool {
        self.running.get(part).is_none_or(|running| running.load(Ordering::Acquire) == 0)
    }

    pub(crate) fn is_to_end(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|group| group.load(Ordering::Acquire))
    }
}

impl<'a> Setup<'a> {
    /// The part that a lane is a copy of, its number, and which of its copies.
    pub(crate) fn part(&self, lane: usize) -> (&'a Part, usize, usize) {
        let (part, copy) = self.lanes.get(lane).copied().unwrap_or_default();
        (&self.parts[part], part, copy)
    }

    /// A lane's plan.
    pub(crate) fn plan(&self, lane: usize) -> &Plan {
        &self.plans[self.lanes.get(lane).map_or(0, |(part, _)| *part)]
    }

    /// When the run ends at the latest, from the common start, if that is known.
    pub(super) fn total(&self) -> Option<Duration> {
        let all = || self.parts.iter().zip(&self.plans);
        let total_of = |(part, plan)| total_of(part, plan);
        let ends_all = |part: &Part| match part.exit {
            Some(Exit::Group) => self.parts.iter().all(|other| other.group == part.group),
            exit => exit.is_some(),
        };
        let first = all().filter(|(part, _)| ends_all(part)).map(total_of);
        match first.collect::<Option<Vec<Duration>>>()?.into_iter().min() {
            Some(first) => Some(first),
            None => all().map(total_of).collect::<Option<Vec<Duration>>>()?.into_iter().max(),
        }
    }

    /// How many bytes all lanes have before them, if it is by those that the run ends.
    pub(super) fn work(&self) -> Option<u64> {
        let work = |(part, plan): (&Part, &Plan)| -> Option<u64> {
            if ends_with_its_search(&part.job) || recorded(&part.job).is_some() {
                return None;
            }
            let mean = part.job.mean_bytes();
            plan.regions.iter().map(|region| region.work_bytes(mean)).sum()
        };
        if self.parts.iter().any(|part| part.exit.is_some()) {
            return None;
        }
        self.parts.iter().zip(&self.plans).map(work).sum()
    }

    /// When the first lane begins.
    pub(super) fn begin(&self) -> Duration {
        self.parts.iter().map(|part| part.job.start_delay.0).min().unwrap_or_default()
    }
}

/// When a part ends at the latest, from the common start.
fn total_of(part: &Part, plan: &Plan) -> Option<Duration> {
    let job = &part.job;
    if part.after.is_some() || ends_with_its_search(job) {
        return None;
    }
    let runtime = plan.runtime.map(|runtime| job.ramp + runtime);
    Some(job.start_delay.1 + [runtime, recorded(job)].into_iter().flatten().min()?)
}

/// Nobody knows when.
fn ends_with_its_search(job: &Job) -> bool {
    job.latency_target.is_some_and(|target| !target.goes_on)
}

/// How long a recording lasts that is replayed at its times.
fn recorded(job: &Job) -> Option<Duration> {
    let last_ns = job.replay.as_ref()?.times.as_ref()?.last()?;
    Some(Duration::from_nanos(*last_ns) * job.loops)
}
