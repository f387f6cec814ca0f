//! What a suite is: steps that share a guest.

use super::bench::Bench;
use crate::guest::Kernel;
use anyhow::Result;

/// One test with a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct SuiteTest {
    pub(super) name: &'static str,
    /// What is done outside the guest; `None`: all of it is the guest's function of its name.
    outside: Option<fn(&mut Bench) -> Result<()>>,
    /// Whether it takes minutes, and is left to `--all` and to who names it.
    pub(super) long: bool,
}

/// A step that always runs.
pub(super) const fn step(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> SuiteTest {
    SuiteTest { name, outside: Some(run), long: false }
}

/// A step that runs only with `--all`, or if it is named.
pub(super) const fn long(name: &'static str, run: fn(&mut Bench) -> Result<()>) -> SuiteTest {
    step(name, run).long()
}

/// A step that is a function of the guest's script.
pub(super) const fn inside(name: &'static str) -> SuiteTest {
    SuiteTest { name, outside: None, long: false }
}

impl SuiteTest {
    /// The same, but only with `--all`, or if it is named.
    pub(super) const fn long(self) -> Self {
        Self { long: true, ..self }
    }

    pub(super) fn run(&self, bench: &mut Bench) -> Result<()> {
        match self.outside {
            Some(run) => run(bench),
            None => bench.guest(self.name).map(drop),
        }
    }
}

/// Steps that share a guest.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The script in `tests/peers/scripts` that holds its functions.
    pub(super) script: &'static str,
    /// The kernel that it needs.
    pub(super) kernel: Kernel,
    /// Whether the target is inside, so that a port is forwarded to it, which QEMU occupies.
    pub(super) forwards: bool,
    /// Modules that the guest loads.
    pub(super) modules: &'static [&'static str],
    /// Prepares what all steps need.
    pub(super) setup: fn(&mut Bench) -> Result<()>,
    pub(super) steps: &'static [SuiteTest],
}
