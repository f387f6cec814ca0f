//! What a person is told of a rule that was set: what it replaced, and what it waits for.

use serde_json::{Value, json};

use super::session::{Session, list};
use super::{LimitedCommands, per_second};
use crate::failure::Failure;
use crate::output;

impl Session {
    /// The rates of an earlier limit for the same commands that are not among those `given`.
    pub(super) fn tell_what_is_gone(
        &self,
        before: &[Value],
        of: &LimitedCommands,
        given: [bool; 3],
    ) -> Result<(), Failure> {
        let mut scope = serde_json::to_value(of).map_err(Failure::because)?;
        let mut hosts = of.host.clone();
        hosts.sort();
        hosts.dedup();
        scope["host"] = match hosts.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        let keys = ["host", "subsystem", "nsid", "rw"];
        let is_same = |one: &&Value| keys.iter().all(|key| one[key] == scope[key]);
        let Some(old) = before.iter().find(is_same) else { return Ok(()) };
        let terms = [
            old["rate_iops"].as_u64().map(|rate| format!("limit of {rate} IOPS")),
            old["rate"].as_u64().map(|rate| format!("limit of {}", per_second(rate))),
            old["burst"].as_str().map(|burst| format!("burst of {burst}")),
        ];
        for (term, given) in terms.into_iter().zip(given) {
            if let Some(term) = term.filter(|_| !given) {
                self.note(&format!("the earlier {term} is gone: a limit is set as a whole"))?;
            }
        }
        Ok(())
    }

    /// What a rule is for that is not there, or not yet.
    pub(super) fn tell_what_is_missing(
        &mut self,
        nqn: Option<&str>,
        nsid: Option<u32>,
    ) -> Result<(), Failure> {
        let Some(nqn) = nqn else { return Ok(()) };
        let all = self.subsystems(None)?;
        let found = all.iter().find(|one| one["nqn"] == nqn);
        let namespaces = found.map(|one| list(&one["namespaces"])).unwrap_or_default();
        let is_there = |nsid: &u32| namespaces.iter().any(|one| one["nsid"] == *nsid);
        let what = match nsid.filter(|nsid| !is_there(nsid)) {
            _ if found.is_none() => format!("subsystem {nqn}"),
            Some(nsid) => format!("namespace {nsid} of {nqn}"),
            None => return Ok(()),
        };
        self.note(&format!("there is no {what} now; the rule waits for it"))
    }

    pub(super) fn note(&self, what: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { output::print(&format!("note: {what}\n")) }
    }
}
