//! `weft ctl qos`: classes of queues.

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde::Serialize;
use serde_json::Value;

use super::session::{Session, list, shown, text};
use crate::failure::Failure;
use crate::names;
use crate::table::Table;

#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
pub(super) enum Verb {
    /// Give queues a class, or change that of the same queues.
    #[command(alias = "add")]
    Set {
        #[serde(flatten)]
        #[command(flatten)]
        of: Queues,
        /// Between the commands of others (latency), or in their turn (throughput).
        #[arg(long, value_parser = ["latency", "throughput"])]
        class: String,
        /// The queues' share of processor time among those of class throughput; 200 gets twice what
        /// the default 100 gets.
        #[arg(long, value_name = "1-10000")]
        weight: Option<u16>,
    },
    /// Delete the rule for these queues.
    #[command(alias = "remove")]
    Delete {
        #[serde(flatten)]
        #[command(flatten)]
        of: Queues,
    },
    /// List the rules.
    List,
}

/// The I/O queues that a rule is for. Of several rules the one with a host decides, then the one
/// with several hosts, with a subsystem, with a port.
#[derive(Debug, Args, Serialize)]
pub(super) struct Queues {
    /// Those of this host, by NQN; given several times: those of all these as one tenant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(add = ArgValueCandidates::new(names::hosts))]
    #[arg(long, value_name = "NQN")]
    host: Vec<String>,
    /// Those to this subsystem, by NQN.
    #[arg(add = ArgValueCandidates::new(names::subsystems))]
    #[arg(long, value_name = "NQN")]
    subsystem: Option<String>,
    /// Those that came to the port with this id.
    #[arg(long, value_name = "ID")]
    port: Option<u16>,
}

impl Session {
    pub(super) fn qos(&mut self, verb: &Verb) -> Result<(), Failure> {
        match verb {
            Verb::Set { of, .. } => {
                self.change("qos_set", verb)?;
                self.tell_what_is_missing(of.subsystem.as_deref(), None)
            }
            Verb::Delete { .. } => self.change("qos_delete", verb),
            Verb::List => {
                let all = self.call("qos_get_all", Value::Null)?;
                let mut table = Table::new(&["host", "subsystem", ">port", "class", ">weight"]);
                for one in list(&all) {
                    let shown = |key: &str, none: &str| shown(&one[key], none);
                    table.row(vec![
                        shown("host", "all"),
                        shown("subsystem", "all"),
                        shown("port", "all"),
                        text(&one["class"]),
                        shown("weight", "-"),
                    ]);
                }
                self.show(&all, &table.text())
            }
        }
    }
}
