//! What is asked.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::duration::exact;
use weft_load::pacer::Process;
use weft_load::replay::{Action, RecordedRequest, Replay};
use weft_load::units::whole;
use weft_load::{Direction, Job, Pattern, Rate};

use crate::limits::IOPS_MAX;
use crate::units;

/// The percentile of an objective.
const P99: f64 = 99.0;

/// No repeat is longer, so that nothing is known of latencies beyond.
const P99_MAX: Duration = Duration::from_secs(10);

/// The longest latency of an objective that can be told.
///
/// # Errors
/// It is none.
pub fn objective(p99: Duration) -> Result<Duration, String> {
    let shown = exact(p99);
    match p99 {
        Duration::ZERO => Err("no request takes 0 s".to_owned()),
        p99 if p99 > P99_MAX => {
            Err(format!("{shown} is longer than any run of it (10s): give less"))
        }
        p99 => Ok(p99),
    }
}

/// A rate that a machine can have.
///
/// # Errors
/// It is none.
pub fn rate(iops: f64) -> Result<f64, String> {
    let most = units::count(IOPS_MAX);
    let refused =
        || format!("no machine serves {} requests a second ({most} at most)", units::count(iops));
    (iops <= IOPS_MAX).then_some(iops).ok_or_else(refused)
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Whose requests they are, where there are several tenants.
    pub name: String,
    /// The latency that 99 % of the requests have at most, in ns.
    pub p99_ns: f64,
    /// Requests a second.
    pub iops: f64,
    /// The pattern, in the words of a plan; none: that of the results, if they have one only.
    pub pattern: Option<String>,
    /// Which part of the requests are reads, in percent, where the pattern mixes them.
    pub read_percent: Option<u64>,
    /// Their size; none: that of the results, if they have one only.
    pub block_bytes: Option<u64>,
    /// Times from one arrival to the next as they were recorded, by their mean; none: they arrive
    /// at random.
    pub gaps: Arc<[f64]>,
}

impl Question {
    /// What a job asks for. Its own latency, which is a `latency_target` of 99 % of the requests,
    /// comes before the one that is given, and the rate that is given before its own.
    ///
    /// # Errors
    /// It has no latency or no rate, or something that no plan of a study has: a sentence without
    /// its subject.
    pub fn of(job: &Job, p99_ns: Option<f64>, iops: Option<f64>) -> Result<Self, String> {
        let recorded = job.replay.as_ref().map(|replay| recorded(job, replay)).transpose()?;
        let (job, gaps) = recorded.unwrap_or_else(|| (job.clone(), Arc::default()));
        let own = job.rate.map(|rate| rate.iops * f64::from(job.copies));
        let iops =
            iops.or(own.filter(|own| *own > 0.0)).ok_or("the job has no rate_iops: give --iops")?;
        rate(iops)?;
        let p99_ns = match job.latency_target {
            Some(target) if target.percentile != P99 => {
                let percentile = target.percentile;
                return Err(format!(
                    "the job has a latency_percentile of {percentile}, and the advice is about 99"
                ));
            }
            Some(target) => objective(target.latency)?.as_secs_f64() * 1e9,
            None => p99_ns.ok_or("the job has no latency_target: give --p99")?,
        };
        let known = Job {
            pattern: job.pattern,
            read_percent: job.read_percent,
            block_bytes: job.block_bytes,
            ..Job::default()
        };
        let differs = [
            (job.modifier != known.modifier, "rw with a modifier"),
            (job.zones != known.zones, "zones"),
            (job.sizes != known.sizes, "bssplit or a range of sizes"),
            (job.spread != known.spread, "random_distribution"),
            (job.random_percent != known.random_percent, "percentage_random"),
            (job.think != known.think, "thinktime"),
            (job.verify, "verify"),
        ];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            return Err(format!("the job has {what}, which no study measures"));
        }
        let mixed = [Pattern::RandRw, Pattern::ReadWrite].contains(&job.pattern);
        Ok(Self {
            name: job.name.clone(),
            p99_ns,
            iops,
            pattern: Some(job.pattern.name().to_owned()),
            read_percent: mixed.then(|| whole(job.read_percent.round())),
            block_bytes: Some(job.block_bytes.into()),
            gaps,
        })
    }
}

/// What a job has that replays a recording: the times from one arrival to the next by their mean,
/// and with them the rate and the pattern of one kind of requests.
fn recorded(job: &Job, replay: &Replay) -> Result<(Job, Arc<[f64]>), String> {
    let requests = &replay.requests;
    let times = replay.times.as_deref().unwrap_or_default();
    let apart = times.windows(2).map(|two| two[1].saturating_sub(two[0]) as f64);
    let mean_ns = apart.clone().sum::<f64>() / apart.len().max(1) as f64;
    if mean_ns <= 0.0 {
        return Err("the recording has no times".to_owned());
    }
    let bytes = replay.longest();
    let [read, write] = [Direction::Read, Direction::Write].map(Action::Transfer);
    let is_plain =
        |one: &RecordedRequest| [read, write].contains(&one.action) && one.bytes == bytes;
    if !requests.iter().all(is_plain) || job.copies != 1 {
        return Err("the recording has trims, flushes, several sizes or copies, which no study \
                    measures"
            .to_owned());
    }
    let is_next =
        |two: &&[RecordedRequest]| two[1].offset == two[0].offset.saturating_add(bytes.into());
    let in_order = 2 * requests.windows(2).filter(is_next).count() > requests.len();
    let pattern = match (in_order, job.pattern) {
        (true, own) => own,
        (false, Pattern::Read) => Pattern::RandRead,
        (false, Pattern::Write) => Pattern::RandWrite,
        (false, _) => Pattern::RandRw,
    };
    let reads = requests.iter().filter(|one| one.action == read).count();
    let read_percent = 100.0 * reads as f64 / requests.len() as f64;
    let rate = Some(Rate { iops: 1e9 / mean_ns, process: Process::Poisson });
    let gaps = apart.map(|gap| gap / mean_ns).collect();
    Ok((Job { pattern, read_percent, rate, ..job.clone() }, gaps))
}
