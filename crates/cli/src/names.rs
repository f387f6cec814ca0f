//! The names that exist in a target that runs, for the completion of a command line.
//!
//! A shell calls this program for each completion; the target that is meant is the one of the words
//! so far, or that of the variables of `weft ctl`.

use std::path::PathBuf;

use clap_complete::CompletionCandidate;
use serde_json::Value;
use weft_rpc::Client;

use crate::ctl::session::{ControlledTarget, addresses, list, text};
use crate::limits::COMPLETION_TIMEOUT;

/// Subsystems, by NQN.
pub(crate) fn subsystems() -> Vec<CompletionCandidate> {
    candidates(each_subsystem(|subsystem| vec![text(&subsystem["nqn"])]))
}

/// Namespaces of the subsystems among the words, or of all.
pub(crate) fn namespaces() -> Vec<CompletionCandidate> {
    candidates(each_subsystem(|subsystem| {
        list(&subsystem["namespaces"]).iter().map(|one| text(&one["nsid"])).collect()
    }))
}

/// Addresses of the subsystems among the words, or of all.
pub(crate) fn listeners() -> Vec<CompletionCandidate> {
    candidates(each_subsystem(addresses))
}

/// Hosts that are listed, or have connected.
pub(crate) fn hosts() -> Vec<CompletionCandidate> {
    let mut client = client();
    let all = client.as_mut().and_then(subsystems_of).unwrap_or_default();
    let mut names = of_those_meant(&all, |subsystem| {
        list(&subsystem["hosts"]).iter().map(|host| text(&host["nqn"])).collect()
    });
    for subsystem in list(&all) {
        let nqn = serde_json::json!({ "nqn": subsystem["nqn"] });
        let of =
            |client: &mut Client| client.call_named("nvmf_subsystem_get_controllers", nqn).ok();
        let controllers = client.as_mut().and_then(of).unwrap_or_default();
        names.extend(list(&controllers).iter().map(|one| text(&one["hostnqn"])));
    }
    names.push("any".to_owned());
    candidates(names)
}

/// Block devices, by name.
pub(crate) fn bdevs() -> Vec<CompletionCandidate> {
    let all = call("bdev_get_bdevs").unwrap_or_default();
    candidates(list(&all).iter().map(|bdev| text(&bdev["name"])).collect())
}

/// Methods.
pub(crate) fn methods() -> Vec<CompletionCandidate> {
    let all = call("rpc_get_methods").unwrap_or_default();
    candidates(list(&all).iter().map(text).collect())
}

/// The names of each subsystem with namespaces: of those among the words, or else of all.
fn each_subsystem(names: impl Fn(&Value) -> Vec<String>) -> Vec<String> {
    let all = client().as_mut().and_then(subsystems_of).unwrap_or_default();
    of_those_meant(&all, names)
}

fn subsystems_of(client: &mut Client) -> Option<Value> {
    client.call_named("nvmf_get_subsystems", Value::Null).ok()
}

fn of_those_meant(all: &Value, names: impl Fn(&Value) -> Vec<String>) -> Vec<String> {
    let words: Vec<String> = std::env::args().collect();
    let is_named = |subsystem: &&Value| words.contains(&text(&subsystem["nqn"]));
    let any_is_named = list(all).iter().any(|one| is_named(&one));
    let meant = list(all).iter().filter(|one| one["subtype"] == "NVMe");
    meant.filter(|one| !any_is_named || is_named(one)).flat_map(names).collect()
}

fn candidates(mut names: Vec<String>) -> Vec<CompletionCandidate> {
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The result of a method without parameters. A target that cannot be asked has no names.
fn call(method: &str) -> Option<Value> {
    client()?.call_named(method, Value::Null).ok()
}

fn client() -> Option<Client> {
    let control = word_after("--control");
    let control_token_file = word_after("--control-token-file").map(PathBuf::from);
    ControlledTarget { control, control_token_file }.connect(COMPLETION_TIMEOUT).ok()
}

/// The value of a flag among the words.
fn word_after(flag: &str) -> Option<String> {
    let mut words = std::env::args();
    while let Some(word) = words.next() {
        if word == flag {
            return words.next();
        }
        if let Some(value) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.to_owned());
        }
    }
    None
}
