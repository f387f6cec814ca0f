//! Steps that concern which hosts see a namespace.

use super::{Outcome, StepError, done, namespace};
use crate::config::Config;

/// What becomes of a namespace for hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceVisibility {
    /// Every host sees it.
    ToAll,
    /// Only hosts that are listed see it, none of them at first.
    ToListed,
    /// This host sees it as well.
    To(String),
    /// This host no longer sees it.
    NotTo(String),
}

/// Shows a namespace to other hosts than before.
pub(super) fn set(
    config: &mut Config,
    nqn: &str,
    nsid: u32,
    visible: &NamespaceVisibility,
) -> Outcome {
    let hosts = &mut namespace(config, nqn, nsid)?.visible_to;
    match (visible, &mut *hosts) {
        (NamespaceVisibility::ToAll, _) => *hosts = None,
        (NamespaceVisibility::ToListed, None) => *hosts = Some(Vec::new()),
        (NamespaceVisibility::ToListed, Some(_)) => {}
        (NamespaceVisibility::To(_) | NamespaceVisibility::NotTo(_), None) => {
            let what = "every host sees it; add it anew as one that only some hosts see";
            return Err(StepError::invalid(format!("namespace {nsid} of {nqn}: {what}")));
        }
        // As with SPDK, what is so already is no error.
        (NamespaceVisibility::To(host), Some(hosts)) if !hosts.contains(host) => {
            hosts.push(host.clone())
        }
        (NamespaceVisibility::To(_), Some(_)) => {}
        (NamespaceVisibility::NotTo(host), Some(hosts)) => hosts.retain(|one| one != host),
    }
    done([nqn.to_owned()])
}
