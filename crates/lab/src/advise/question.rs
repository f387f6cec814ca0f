//! What is asked.

use weft_load::{Job, Pattern};

/// The percentile of an objective.
const P99: f64 = 99.0;

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
}

impl Question {
    /// What a job asks for. Its own latency, which is a `latency_target` of 99 % of the requests,
    /// comes before the one that is given, and the rate that is given before its own.
    ///
    /// # Errors
    /// It has no latency or no rate, or something that no plan of a study has: a sentence without
    /// its subject.
    pub fn of(job: &Job, p99_ns: Option<f64>, iops: Option<f64>) -> Result<Self, String> {
        let own = job.rate.map(|rate| rate.iops * f64::from(job.copies));
        let iops = iops.or(own).ok_or("the job has no rate_iops: give --iops")?;
        let p99_ns = match job.latency_target {
            Some(target) if target.percentile != P99 => {
                let percentile = target.percentile;
                return Err(format!(
                    "the job has a latency_percentile of {percentile}, and the advice is about 99"
                ));
            }
            Some(target) => target.latency.as_secs_f64() * 1e9,
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
            (job.replay.is_some(), "read_iolog"),
            (job.verify, "verify"),
        ];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            return Err(format!("the job has {what}, which no study measures"));
        }
        let mixed = [Pattern::RandRw, Pattern::ReadWrite].contains(&job.pattern);
        let whole = format!("{:.0}", job.read_percent).parse().ok().filter(|_| mixed);
        Ok(Self {
            name: job.name.clone(),
            p99_ns,
            iops,
            pattern: Some(job.pattern.name().to_owned()),
            read_percent: whole,
            block_bytes: Some(job.block_bytes.into()),
        })
    }
}
