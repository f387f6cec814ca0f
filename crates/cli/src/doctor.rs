//! `weft doctor`: what an experienced operator would see at a machine and at a running target, and
//! what to do about it.
//!
//! Each finding is made of facts that were collected before ([`machine::Machine`],
//! [`target::Observations`]), so that tests make machines and targets up.

mod finding;
mod host;
mod machine;
mod reach;
mod target;

use clap::Args;

use self::finding::{Finding, Severity};
use crate::connection::Connection;
use crate::ctl::session::ControlledTarget;
use crate::failure::Failure;
use crate::output::{self, Format};

/// Exit code if the worst finding is a warning.
pub(crate) const WARNED: u8 = 3;

/// Exit code if there is a fault.
pub(crate) const FAULTY: u8 = 4;

/// Options of `weft doctor`.
///
/// Without --control and ADDRESS only this machine is looked at. Each ADDRESS is connected to: its
/// discovery controller, and with an NQN the subsystem. The exit code is 0 without a warning, 3
/// with warnings, and 4 with a fault.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: ControlledTarget,
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut process = None;
    let mut findings = Vec::new();
    if options.target.is_named() {
        let seen = target::Observations::collect(&options.target)?;
        process = seen.process();
        findings = section("the target", seen.findings());
    }
    let machine = machine::Machine::own(process);
    let of_machine = [machine.findings(), host::findings(&machine)].concat();
    findings.splice(0..0, section("this machine", of_machine));
    for connection in options.connection.each() {
        findings.extend(reach::findings(&connection)?);
    }
    match options.output_format {
        Format::Human => output::print(&human(&findings))?,
        Format::Json => output::print_json(&serde_json::json!({ "findings": findings }))?,
    }
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fault) => Err(Failure::Exit(FAULTY)),
        Some(Severity::Warning) => Err(Failure::Exit(WARNED)),
        _ => Ok(()),
    }
}

/// The findings, or that there is none.
fn section(of: &str, findings: Vec<Finding>) -> Vec<Finding> {
    match findings.is_empty() {
        true => vec![Finding::ok(format!("nothing to do at {of}"))],
        false => findings,
    }
}

/// A finding a line, and what to do about it on the next.
fn human(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let word = format!("{:?}", finding.severity).to_lowercase();
        let mut line = format!("{word:<8} {}", finding.what);
        for (before, text) in [(": ", &finding.why), ("\n         do: ", &finding.remedy)] {
            if !text.is_empty() {
                line += &format!("{before}{text}");
            }
        }
        line + "\n"
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_why_and_what_to_do() {
        let bad = Finding::new(Severity::Warning, "the moon is full", "wolves", "close the door");
        let text = human(&section("this machine", vec![bad]));
        assert_eq!(text, "warning  the moon is full: wolves\n         do: close the door\n");
        assert_eq!(human(&section("it", Vec::new())), "ok       nothing to do at it\n");
        assert!(Severity::Ok < Severity::Note && Severity::Warning < Severity::Fault);
    }
}
