//! The results of a run of the tests, with a summary as last line.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Counts of everything that was checked.
#[derive(Debug)]
pub struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Failures and skips, repeated at the end.
    notes: Vec<String>,
    /// How long each check took.
    times: Vec<(f32, String)>,
    start: Instant,
}

/// How the summary begins.
const DONE: &str = "==> done";

/// How many of the slowest checks the summary has.
const SLOWEST: usize = 20;

impl Report {
    /// One of a run that begins now.
    pub fn begin() -> Self {
        Self::since(Instant::now())
    }

    fn since(start: Instant) -> Self {
        Self { passed: 0, failed: 0, skipped: 0, notes: Vec::new(), times: Vec::new(), start }
    }

    /// A report of checks that run beside others; `merge` adds it to this one.
    pub fn beside(&self) -> Self {
        Self::since(self.start)
    }

    /// Adds all that `other` has.
    pub fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.notes.extend(other.notes);
        self.times.extend(other.times);
    }

    /// Runs jobs, so many of them at a time, and adds what they report.
    pub fn spread<J: Send>(
        &mut self,
        at_a_time: usize,
        jobs: VecDeque<J>,
        run: impl Fn(&mut Self, J) + Sync,
    ) {
        let jobs = Mutex::new(jobs);
        let next = || jobs.lock().expect("no panic while it is held").pop_front();
        let worker = || {
            let mut report = self.beside();
            while let Some(job) = next() {
                run(&mut report, job);
            }
            report
        };
        let reports: Vec<Self> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic of a job")).collect()
        });
        reports.into_iter().for_each(|report| self.merge(report));
    }

    /// Announces a stage whose checks are counted one by one.
    pub fn announce(&self, name: &str) {
        println!("==> {name} ({})", minutes(self.start.elapsed()));
    }

    /// Runs one check, counts it, and returns whether it passed.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) -> bool {
        let start = Instant::now();
        let result = check();
        let time = start.elapsed().as_secs_f32();
        match &result {
            Ok(()) => {
                println!("PASS {name} {time:.1} s");
                self.passed += 1;
            }
            Err(error) => {
                println!("{error:#}\nFAIL {name} {time:.1} s");
                self.failed += 1;
                self.notes.push(format!("FAIL {name}"));
            }
        }
        self.times.push((time, name.to_owned()));
        result.is_ok()
    }

    /// Counts checks that this machine cannot run as skipped; on CI that is a failure.
    pub fn lacks(&mut self, name: &str, count: usize, reason: &str) {
        if std::env::var("CI").is_ok_and(|value| value == "true") {
            println!("{reason}");
            self.add_failure(&format!("{name}: {reason}"));
        } else {
            self.skip(name, count, reason);
        }
    }

    /// Counts `count` checks that were not run.
    pub fn skip(&mut self, name: &str, count: usize, reason: &str) {
        println!("SKIP {name}: {reason}");
        self.skipped += count;
        self.notes.push(format!("SKIP {name}: {reason}"));
    }

    /// Adds how long something took that counts its checks itself.
    pub fn took(&mut self, name: &str, time: Duration) {
        self.times.push((time.as_secs_f32(), name.to_owned()));
    }

    /// Adds the counts of a test harness.
    pub fn add(&mut self, passed: usize, ignored: usize) {
        self.passed += passed;
        self.skipped += ignored;
    }

    /// Adds a test that failed in a test harness.
    pub fn add_failure(&mut self, name: &str) {
        self.failed += 1;
        self.notes.push(format!("FAIL {name}"));
    }

    /// Runs a program that ends with such a summary, and adds that to this one.
    pub fn follow(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut has_ended = false;
        for line in lines.map_while(Result::ok) {
            has_ended |= line.starts_with(DONE);
            match line.split(' ').collect::<Vec<_>>()[..] {
                _ if !has_ended => println!("{line}"),
                ["FAIL" | "SKIP", ..] => self.notes.push(line),
                [passed, "passed,", failed, "failed,", skipped, "skipped"] => {
                    self.passed += passed.parse::<usize>()?;
                    self.failed += failed.parse::<usize>()?;
                    self.skipped += skipped.parse::<usize>()?;
                }
                _ => {
                    let time = line.trim_start().split_once(" s ");
                    self.times
                        .extend(time.and_then(|(t, of)| Some((t.parse().ok()?, of.to_owned()))));
                }
            }
        }
        let status = child.wait()?;
        if !has_ended {
            self.add_failure(&format!("{name}: {status}"));
        }
        Ok(())
    }

    /// Prints the summary and returns whether nothing failed.
    pub fn finish(mut self) -> bool {
        println!("{DONE} ({})", minutes(self.start.elapsed()));
        self.times.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (time, name) in self.times.iter().take(SLOWEST) {
            println!("{time:6.1} s {name}");
        }
        for note in &self.notes {
            println!("{note}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        self.failed == 0
    }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
