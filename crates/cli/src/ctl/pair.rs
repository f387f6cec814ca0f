//! `weft ctl pair`: two targets that serve the same devices.

use clap::Subcommand;
use serde_json::{Value, json};

use super::session::{Session, text};
use crate::failure::Failure;
use crate::table::Table;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum Verb {
    /// Show whether this member is primary or stands by.
    Show,
    /// Have the other member become primary, once the commands in flight have ended.
    HandOver {
        /// Do so also where writes were lost before they were durable: hosts then see what is there
        /// as if nothing were missing.
        #[arg(long)]
        force: bool,
    },
}

impl Session {
    pub(super) fn pair(&mut self, verb: Verb) -> Result<(), Failure> {
        match verb {
            Verb::Show => {
                let state = self.call("pair_get_state", Value::Null)?;
                let mut table = Table::new(&[">member", "role", "decided by"]);
                table.row(["member", "role", "arbiter"].map(|key| text(&state[key])).into());
                self.show(&state, &table.text())
            }
            Verb::HandOver { force } => {
                // Targets before this option know no parameters.
                let params = if force { json!({ "force": true }) } else { Value::Null };
                self.change("pair_hand_over", params)
            }
        }
    }
}
