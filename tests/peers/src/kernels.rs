//! Tests with real peers: the Linux kernel's host and target, nvme-cli, fio and ext4 in a guest,
//! against the binary `weft` outside (and inside, where block devices are needed).
//!
//! A suite boots one guest and runs its steps in order. A step is a Rust function that calls
//! functions of a script in `tests/peers/scripts` inside the guest, and starts, signals and kills
//! the target and checks its files outside. Every step starts from a clean guest, so that one
//! failure does not hide the next.

mod ana;
mod arm;
mod attach;
mod authentication;
pub(crate) mod bench;
mod block;
mod iwarp;
mod kernel_host;
mod kernel_records;
mod kernel_target;
mod nvme;
mod pair;
mod pairings;
mod rdma;
mod secure;
mod secure_host;
mod secure_target;
mod service;
mod stas;
mod suite;

use crate::guest::{Image, Kernel};
use anyhow::Result;
use bench::{Bench, Setup};
use std::collections::VecDeque;
use std::path::Path;
use suite::{Suite, SuiteTest};
use xtask::cargo::build_binary;
use xtask::report::Report;

/// How many guests run at the same time.
const GUESTS_AT_A_TIME: usize = 2;

/// A suite's steps with one driver.
#[derive(Debug)]
struct Job {
    suite: &'static Suite,
    driver: Driver,
    steps: Vec<&'static SuiteTest>,
}

const SUITES: &[&Suite] = &[
    &ana::SUITE,
    &kernel_host::SUITE,
    &kernel_target::SUITE,
    &block::SUITE,
    &attach::SUITE,
    &attach::NEWER,
    &nvme::SUITE,
    &pair::SUITE,
    &pairings::SUITE,
    &rdma::SUITE,
    &iwarp::SUITE,
    &service::SUITE,
    &arm::SUITE,
    &stas::SUITE,
    &secure_host::SUITE,
    &secure_target::SUITE,
    &kernel_records::SUITE,
    &kernel_records::OLDER,
];

/// The reactor's driver of weft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    Uring,
    Epoll,
}

impl Driver {
    fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// Runs the suites with each of `drivers`; with a `filter`, only the steps whose name contains it.
pub(crate) fn run(root: &Path, report: &mut Report, drivers: &[Driver], filter: Option<&str>) {
    let mut jobs = jobs(drivers, filter);
    if let (true, Some(filter)) = (jobs.is_empty(), filter) {
        return report.add_failure(&format!(
            "peers: no step's name contains `{filter}`, or those that do take minutes: give one's \
             whole name"
        ));
    }
    let mut images = Vec::new();
    for kernel in [Kernel::Release, Kernel::Backports] {
        if steps_of(&jobs, kernel) == 0 {
            continue;
        }
        match Image::prepare(kernel, false) {
            Ok(image) => images.push((kernel, image)),
            Err(error) => {
                println!("!!! no guest can run here: the tests with real peers are skipped");
                report.lacks("peers", steps_of(&jobs, kernel), &format!("{error:#}"));
                jobs.retain(|job| job.suite.kernel != kernel);
            }
        }
    }
    if jobs.is_empty() {
        return;
    }
    let versions: Vec<&str> = images.iter().map(|(_, image)| image.version.as_str()).collect();
    println!(
        "Linux {}, {}",
        versions.join(" and "),
        if crate::guest::machine::has_kvm() {
            "on KVM"
        } else {
            "emulated (no KVM with kvm_intel or kvm_amd)"
        }
    );
    let mut weft = None;
    let built = report.check("peers/build", || {
        weft = Some(build_binary(root)?);
        Ok(())
    });
    let (true, Some(weft)) = (built, weft) else { return };
    let setup = |job: &Job| {
        let (_, image) = images.iter().find(|(kernel, _)| *kernel == job.suite.kernel)?;
        let driver = job.driver.name();
        Some(Setup { root: root.to_owned(), image, weft: weft.clone(), driver })
    };
    // A guest waits for its devices, its peer and its timers much of the time.
    report.spread(GUESTS_AT_A_TIME, jobs, |report, job| {
        let Some(setup) = setup(&job) else { return };
        let Job { suite, steps, .. } = job;
        match iwarp::prepare(suite, setup.image).and_then(|()| stas::prepare(suite)) {
            Ok(()) => run_suite(report, &setup, suite, &steps),
            Err(error) => report.lacks(suite.name, steps.len(), &format!("{error:#}")),
        }
    });
}

/// How many steps need this kernel.
fn steps_of(jobs: &VecDeque<Job>, kernel: Kernel) -> usize {
    jobs.iter().filter(|job| job.suite.kernel == kernel).map(|job| job.steps.len()).sum()
}

/// The suites with each of `drivers`, and of them the steps whose name contains `filter`.
fn jobs(drivers: &[Driver], filter: Option<&str>) -> VecDeque<Job> {
    let mut jobs = VecDeque::new();
    let all = drivers.contains(&Driver::Epoll) && drivers.contains(&Driver::Uring);
    for driver in drivers {
        for suite in SUITES {
            let chosen = |step: &&SuiteTest| {
                let name = format!("{}/{}", suite.name, step.name);
                (!step.long || all || filter == Some(&name))
                    && filter.is_none_or(|filter| name.contains(filter))
            };
            let steps: Vec<&SuiteTest> = suite.steps.iter().filter(chosen).collect();
            if !steps.is_empty() {
                jobs.push_back(Job { suite, driver: *driver, steps });
            }
        }
    }
    jobs
}

fn run_suite(report: &mut Report, setup: &Setup<'_>, suite: &Suite, steps: &[&SuiteTest]) {
    report.announce(&format!("{} over {}", suite.name, setup.driver));
    let mut steps = steps.iter();
    let mut left = steps.len();
    // If the guest ends during a step, the next steps get a new one.
    while left > 0 {
        let mut bench = match Bench::boot(setup, suite) {
            Ok(bench) => bench,
            Err(error) => return cannot(report, &format!("{error:#}")),
        };
        let ready = report.check(&format!("{}/setup", suite.name), || {
            (suite.setup)(&mut bench).map_err(|error| bench.explain(error))
        });
        if !ready {
            return;
        }
        while bench.is_alive() {
            let Some(step) = steps.next() else { return };
            left -= 1;
            report.check(&format!("{}/{} ({})", suite.name, step.name, setup.driver), || {
                bench.begin();
                step.run(&mut bench).map_err(|error| bench.explain(error))
            });
        }
    }
}

/// A guest whose kernel is the host of a target outside, for another stage: `script` of
/// `tests/peers/scripts` has its functions.
pub(crate) fn kernel_as_host(
    root: &Path,
    weft: &Path,
    name: &'static str,
    script: &'static str,
) -> Result<Bench> {
    let image = Image::prepare(Kernel::Release, false)?;
    let suite = Suite {
        name,
        script,
        kernel: Kernel::Release,
        forwards: false,
        modules: &["nvme-tcp"],
        setup: |_| Ok(()),
        steps: &[],
    };
    let (root, weft) = (root.to_owned(), weft.to_owned());
    Bench::boot(&Setup { root, image: &image, weft, driver: Driver::Uring.name() }, &suite)
}

/// Skips these tests where no guest can run; on CI that is a failure.
fn cannot(report: &mut Report, reason: &str) {
    let count = SUITES.iter().map(|suite| suite.steps.len()).sum();
    println!("!!! no guest can run here: the tests with real peers are skipped");
    report.lacks("peers", count, reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_unique_full_name() {
        for suite in SUITES {
            for (at, step) in suite.steps.iter().enumerate() {
                let same = suite.steps[..at].iter().any(|other| other.name == step.name);
                assert!(!same, "{}/{} is there twice", suite.name, step.name);
            }
        }
    }
}
