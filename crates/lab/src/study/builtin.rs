//! The studies that are part of the program.

use super::plan::{Plan, PlanError};

/// A plan's file name and text.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name, which is the study's.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

macro_rules! builtins {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin {
            name: $name,
            text: include_str!(concat!("../../studies/", $name, ".toml")),
        }),*]
    };
}

/// All of them: the first look, then by document.
pub const BUILTINS: &[Builtin] = builtins![
    "first-look",
    "latency-vs-load",
    "protocol-floor",
    "loss",
    "tls-cost",
    "size-sweep",
    "core-sweep",
    "pattern-sweep",
    "latency-at-peak",
    "latency-cdf",
    "host-cpu",
    "concurrency",
    "tradeoffs",
    "null-size-sweep",
    "cpu-per-gbps",
    "local-vs-remote",
    "link-probe",
    "request-size",
    "parallelism",
    "computational-cost",
    "one-target-core",
    "knobs",
    "pollable-queues",
    "target-idle-poll",
    "overhead-l-app",
    "overhead-t-app",
    "overhead-b-app",
    "saturation",
    "host-interference",
    "target-interference",
    "isolation",
    "depth-by-size",
    "attach",
];

impl Builtin {
    /// The plan.
    ///
    /// # Errors
    /// The text is not a plan; a test checks that it is.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        self.text.parse().map_err(|PlanError(what)| PlanError(format!("{}: {what}", self.name)))
    }
}

/// The built-in study of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

#[cfg(test)]
mod tests;
