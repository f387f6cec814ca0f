//! `weft ctl key`, and the keys of hosts: names of key files, never the keys themselves.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};

use super::session::{Session, list, text};
use crate::failure::Failure;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Give a key file a name, which `host allow` and `host set-keys` take.
    Add {
        /// The name.
        name: String,
        /// The file, on the target's machine; only its owner may have access to it.
        file: PathBuf,
    },
    /// Remove the name of a key file; refused while a host uses it.
    #[command(alias = "delete")]
    Remove {
        /// The name.
        name: String,
    },
    /// List the names and files, and the hosts that use them.
    List,
}

/// A host of a subsystem, as methods have it.
#[derive(Serialize)]
struct Host<'a> {
    nqn: &'a str,
    host: &'a str,
    #[serde(flatten)]
    keys: &'a HostKeys,
    dhchap_concat: Option<bool>,
}

/// The keys of a host, by their names.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize)]
pub(super) struct HostKeys {
    /// The key by which the host authenticates itself.
    #[arg(long, value_name = "NAME")]
    dhchap_key: Option<String>,
    /// The key by which the subsystem authenticates itself to the host.
    #[arg(long, value_name = "NAME", requires = "dhchap_key")]
    dhchap_ctrlr_key: Option<String>,
    /// A key of TLS; several while they are changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "NAME")]
    psk: Vec<String>,
}

/// The hosts of these subsystems that use a key.
fn users(subsystems: &[Value], key: &Value) -> Vec<String> {
    let uses = |host: &&Value| {
        let mut values = host.as_object().into_iter().flatten().map(|(_, value)| value);
        values.any(|value| value == key || list(value).contains(key))
    };
    let hosts = subsystems.iter().flat_map(|one| list(&one["hosts"])).filter(uses);
    hosts.map(|host| text(&host["nqn"])).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Session {
    pub(super) fn key(&mut self, verb: &Verb) -> Result<(), Failure> {
        match verb {
            Verb::Add { name, file } => {
                let told = |error| Failure::io("find", &file.display(), &error);
                let file = std::path::absolute(file).map_err(told)?;
                self.change("keyring_file_add_key", json!({ "name": name, "path": file }))
            }
            Verb::Remove { name } => {
                self.change("keyring_file_remove_key", json!({ "name": name }))
            }
            Verb::List => {
                let mut keys = self.call("keyring_get_keys", Value::Null)?;
                let subsystems = self.subsystems(None)?;
                let mut table = Table::new(&["key", "file", "hosts"]);
                for key in keys.as_array_mut().into_iter().flatten() {
                    let hosts = users(&subsystems, &key["name"]);
                    table.row(vec![text(&key["name"]), text(&key["path"]), hosts.join(" ")]);
                    key["hosts"] = hosts.into();
                }
                self.show(&keys, &table.text())
            }
        }
    }

    /// Allows a host, with these keys.
    pub(super) fn allow(
        &mut self,
        nqn: &str,
        host: &str,
        keys: &HostKeys,
        concat: bool,
    ) -> Result<(), Failure> {
        let concat = concat.then_some(true);
        self.change("nvmf_subsystem_add_host", Host { nqn, host, keys, dhchap_concat: concat })
    }

    /// Gives a host other keys, of the kinds that are named, each kind by a call of its own.
    pub(super) fn set_keys(
        &mut self,
        nqn: &str,
        host: &str,
        keys: &HostKeys,
    ) -> Result<(), Failure> {
        const METHOD: &str = "nvmf_subsystem_set_keys";
        if keys.dhchap_key.is_none() && keys.psk.is_empty() {
            return Err(Failure::because("name the keys that change: --dhchap-key or --psk"));
        }
        let HostKeys { dhchap_key, dhchap_ctrlr_key, psk } = keys.clone();
        let authentication = HostKeys { dhchap_key, dhchap_ctrlr_key, psk: Vec::new() };
        let psks = HostKeys { psk, ..HostKeys::default() };
        let mut answer = Value::Null;
        for keys in [&authentication, &psks].into_iter().filter(|one| **one != HostKeys::default())
        {
            answer = self.call(METHOD, Host { nqn, host, keys, dhchap_concat: None })?;
        }
        self.made(&answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_by_the_hosts_that_name_it() {
        let subsystems = [
            json!({ "hosts": [{ "nqn": "nqn.b", "psk": ["one", "two"] }, { "nqn": "nqn.c" }] }),
            json!({ "hosts": [{ "nqn": "nqn.a", "dhchap_key": "one", "psk": "three" }] }),
        ];
        for (key, hosts) in [("one", &["nqn.a", "nqn.b"][..]), ("two", &["nqn.b"]), ("four", &[])] {
            assert_eq!(users(&subsystems, &json!(key)), hosts, "{key}");
        }
    }
}
