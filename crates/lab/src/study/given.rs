//! Targets that were running before the study: which cells use them, and what they keep.

use weft_host::Transport;

use super::capabilities::{Capabilities, KnownTarget};
use super::plan::Plan;
use super::site;
use crate::results::{Configuration, Value, key};

/// Settings that a given target has chosen for itself: they are not in the records of its cells.
const ITS_OWN: [&str; 8] = [
    key::TARGET_SOFTWARE,
    key::TARGET_IDLE_POLL_US,
    key::TARGET_CORES,
    key::TARGET_EXPRESS,
    key::PLACEMENT,
    key::DEVICE,
    key::DEVICE_BYTES,
    key::TLS,
];

/// A setting that only targets of weft have: with a given target a plan that varies it has the
/// cells of one value, with whatever the target does, so that other targets can be compared.
const OF_WEFT: &str = key::TARGET_EXPRESS;

/// The protocol that cells of a transport speak; none for `local`.
#[must_use]
pub fn protocol(transport: &str) -> Option<Transport> {
    let spoken = site::named(transport).map_or(transport, |(protocol, _)| protocol);
    match spoken {
        "tcp" | "tcp-link" => Some(Transport::Tcp),
        "rdma" => Some(Transport::Rdma),
        "loopback" => Some(Transport::Loopback),
        _ => None,
    }
}

/// A protocol's name in the results.
#[must_use]
pub const fn protocol_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Rdma => "rdma",
        Transport::Loopback => "loopback",
    }
}

/// The given targets that cells of a transport use, by index: an empty list if none of them fits,
/// and nothing if the cells use a target that is started here. If a plan has both `tcp` and
/// `tcp-link`, a given target is at the other end of the link.
#[must_use]
pub fn given_targets(
    plan: &Plan,
    transport: &str,
    capabilities: &Capabilities,
) -> Option<Vec<usize>> {
    if capabilities.apart.is_some() {
        // An agent starts the target of all cells.
        return None;
    }
    let link = transport == "tcp-link";
    let any = !capabilities.targets.is_empty();
    let loopback = capabilities.target_elsewhere() && plan.has(key::TRANSPORT, "tcp-link");
    let uses = match transport {
        "tcp-link" => true,
        "tcp" => any && !loopback,
        "rdma" => any,
        _ => false,
    };
    let fits = |target: &KnownTarget| {
        Some(target.transport) == protocol(transport) && (target.elsewhere || !link)
    };
    uses.then(|| {
        let targets = capabilities.targets.iter().enumerate();
        targets.filter(|(_, target)| fits(target)).map(|(index, _)| index).collect()
    })
}

/// Why cells of a transport have no given target although they need one; none if they have.
pub(super) fn no_target(
    plan: &Plan,
    transport: &str,
    capabilities: &Capabilities,
) -> Option<String> {
    if !given_targets(plan, transport, capabilities)?.is_empty() {
        return None;
    }
    let wanted = protocol(transport)?;
    let how = format!("(--target nvme-{}://HOST:4420/NQN)", protocol_name(wanted));
    let link = transport == "tcp-link";
    let other = capabilities.targets.iter().filter(|target| target.elsewhere || !link);
    Some(match other.map(|target| target.transport).find(|spoken| *spoken != wanted) {
        Some(spoken) => {
            format!("the given target speaks {spoken}, and these cells speak {wanted} {how}")
        }
        None if !capabilities.targets.is_empty() => {
            format!("the given target is on this machine; {transport} needs one on another {how}")
        }
        None => format!("needs a target on another machine {how}"),
    })
}

/// Whether all cells of a plan have targets that were given, so that an axis has no meaning.
pub(super) fn is_meaningless(axis: &str, plan: &Plan, capabilities: &Capabilities) -> bool {
    let transport = plan.fixed(key::TRANSPORT).and_then(Value::as_text);
    axis == OF_WEFT
        && transport.is_some_and(|transport| {
            given_targets(plan, transport, capabilities).is_some_and(|given| !given.is_empty())
        })
}

/// Takes the settings that were not applied out of a configuration.
pub(crate) fn keep_applied(configuration: &mut Configuration) {
    for key in ITS_OWN {
        configuration.remove(key);
    }
}

/// The first of these settings that a given target keeps for itself.
pub(super) fn unsettable(varied: impl IntoIterator<Item = impl AsRef<str>>) -> Option<String> {
    varied.into_iter().map(|key| key.as_ref().to_owned()).find(|key| ITS_OWN.contains(&&**key))
}

/// Why a plan cannot run with the given targets: it varies a setting that they keep.
pub fn refusal(plan: &Plan, capabilities: &Capabilities) -> Option<String> {
    let knob = unsettable(plan.axes.keys().filter(|key| *key != OF_WEFT))?;
    let default = [Value::from("tcp")];
    let varied = plan.axes.get(key::TRANSPORT).map(Vec::as_slice);
    let fixed = plan.fixed(key::TRANSPORT).map(std::slice::from_ref);
    let transports = varied.or(fixed).unwrap_or(&default);
    let targets = transports
        .iter()
        .filter_map(Value::as_text)
        .find_map(|transport| given_targets(plan, transport, capabilities)?.first().copied())?;
    let name = capabilities.targets.get(targets).map_or("", |target| &target.name);
    Some(format!(
        "the plan varies {knob}, which cannot be set on a given target ({name}): run it without \
         --target, or take {knob} out of the plan's axes"
    ))
}

#[cfg(test)]
mod tests;
