//! `weft ctl controller`: what hosts have connected.

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};

use super::session::{Session, list, shown, text, url};
use crate::failure::Failure;
use crate::names;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the controllers.
    List {
        /// Of this subsystem only.
        #[arg(add = ArgValueCandidates::new(names::subsystems))]
        nqn: Option<String>,
    },
}

impl Session {
    pub(super) fn controllers(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let head = ["subsystem", ">controller", "host", ">queues", "peer", "tls", "authenticated"];
        let mut table = Table::new(&head);
        let mut all = Vec::new();
        for subsystem in self.subsystems(nqn)? {
            let params = json!({ "nqn": subsystem["nqn"] });
            let controllers = self.call("nvmf_subsystem_get_controllers", params.clone())?;
            let queues = self.call("nvmf_subsystem_get_qpairs", params)?;
            for one in list(&controllers) {
                let is_admin =
                    |queue: &&Value| queue["qid"] == 0 && queue["cntlid"] == one["cntlid"];
                let admin = list(&queues).iter().find(is_admin).unwrap_or(&Value::Null);
                let mut one = one.clone();
                one["subsystem"] = subsystem["nqn"].clone();
                one["peer"] = match &admin["peer_address"] {
                    Value::Null => Value::Null,
                    peer => url(peer).into(),
                };
                one["tls"] = (!admin["tls"].is_null()).into();
                one["authenticated"] = (admin["auth"]["state"] == "completed").into();
                let yes = |key: &str| if one[key] == true { "yes" } else { "no" }.to_owned();
                table.row(vec![
                    text(&subsystem["nqn"]),
                    text(&one["cntlid"]),
                    text(&one["hostnqn"]),
                    text(&one["num_io_qpairs"]),
                    shown(&one["peer"], "-"),
                    yes("tls"),
                    yes("authenticated"),
                ]);
                all.push(one);
            }
        }
        self.show(&all.into(), &table.text())
    }
}
