//! `weft ctl key`, and the keys of hosts: names of key files, never the keys themselves.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Session, given, list, text};
use crate::{failure::Failure, table::Table};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Give the file of a key a name, by which hosts have it.
    Add {
        /// The name.
        name: String,
        /// The file, on the target's machine; only its owner may have access to it.
        file: PathBuf,
    },
    /// Take the name of a key away that no host has.
    Remove {
        /// The name.
        name: String,
    },
    /// List the names and files.
    List,
}

/// The keys of a host, by their names.
#[derive(Debug, Args)]
pub(super) struct HostKeys {
    /// The key by which the host authenticates itself.
    #[arg(long, value_name = "NAME")]
    dhchap_key: Option<String>,
    /// The key by which the subsystem authenticates itself to the host.
    #[arg(long, value_name = "NAME", requires = "dhchap_key")]
    dhchap_ctrlr_key: Option<String>,
    /// A key of TLS; several while they are changed.
    #[arg(long, value_name = "NAME")]
    psk: Vec<String>,
}

impl HostKeys {
    fn authentication(&self) -> [(&'static str, Value); 2] {
        let (host, controller) = (json!(self.dhchap_key), json!(self.dhchap_ctrlr_key));
        [("dhchap_key", host), ("dhchap_ctrlr_key", controller)]
    }

    fn psk(&self) -> Value {
        if self.psk.is_empty() { Value::Null } else { json!(self.psk) }
    }
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
                let keys = self.call("keyring_get_keys", Value::Null)?;
                let mut table = Table::new(&["key", "file"]);
                for key in list(&keys) {
                    table.row(vec![text(&key["name"]), text(&key["path"])]);
                }
                self.show(&keys, &table.text())
            }
        }
    }

    /// Allows a host, with these keys.
    pub(super) fn allow(
        &mut self,
        (nqn, host): (&str, &str),
        keys: &HostKeys,
        concat: bool,
    ) -> Result<(), Failure> {
        let [own, controllers] = keys.authentication();
        let concat = if concat { json!(true) } else { Value::Null };
        let [nqn, host] = [("nqn", json!(nqn)), ("host", json!(host))];
        let all = [nqn, host, own, controllers, ("psk", keys.psk()), ("dhchap_concat", concat)];
        self.change("nvmf_subsystem_add_host", given(all))
    }

    /// Gives a host other keys, of the kinds that are named.
    pub(super) fn set_keys(
        &mut self,
        (nqn, host): (&str, &str),
        keys: &HostKeys,
    ) -> Result<(), Failure> {
        const METHOD: &str = "nvmf_subsystem_set_keys";
        let of = || [("nqn", json!(nqn)), ("host", json!(host))];
        let ([nqn, host], [own, controllers]) = (of(), keys.authentication());
        match (keys.dhchap_key.is_some(), !keys.psk.is_empty()) {
            (false, false) => {
                Err(Failure::because("name the keys that change: --dhchap-key or --psk"))
            }
            (true, false) => self.change(METHOD, given([nqn, host, own, controllers])),
            (false, true) => self.change(METHOD, given([nqn, host, ("psk", keys.psk())])),
            (true, true) => {
                self.call(METHOD, given([nqn, host, own, controllers]))?;
                let [nqn, host] = of();
                self.change(METHOD, given([nqn, host, ("psk", keys.psk())]))
            }
        }
    }
}
