//! Events of a controller, for its user.

use core::fmt;
use core::time::Duration;

use weft_nvme::log_page::AsymmetricNamespaceAccessState;

use super::problem::Problem;
use super::snapshot::Change;

/// An event of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The controller can be used, the first time or again.
    Connected {
        /// Its identifier.
        controller_id: u16,
        /// Attempts that it took after a loss; 0 the first time.
        attempts: u32,
    },
    /// The controller was lost.
    Lost {
        /// Why.
        problem: Problem,
        /// Time to the next attempt; `None` if there will be none.
        retry_in: Option<Duration>,
    },
    /// An attempt to find it again failed.
    AttemptFailed {
        /// Why.
        problem: Problem,
        /// How many were made.
        attempts: u32,
        /// Time to the next attempt; `None` if there will be none.
        retry_in: Option<Duration>,
    },
    /// A namespace came, went or changed.
    Namespace {
        /// Which.
        nsid: u32,
        /// How.
        change: Change,
    },
    /// The controller reaches a namespace less well than before, or better (ANA).
    Access {
        /// Which.
        nsid: u32,
        /// How well now.
        state: AsymmetricNamespaceAccessState,
    },
    /// A namespace has been between two access states for too long; the controller is reset.
    AccessStuck,
    /// A namespace cannot be used, and is left out.
    NamespaceUnusable {
        /// Which.
        nsid: u32,
        /// Why.
        why: &'static str,
    },
    /// The controller refused an I/O queue with Do Not Retry; the others go on.
    QueueRefused {
        /// Which.
        queue: u16,
        /// Why.
        problem: Problem,
    },
    /// The namespaces could not be listed again; the old snapshot is kept.
    ScanFailed(Problem),
    /// A queue that is in use was authenticated again.
    Authenticated {
        /// Which.
        queue: u16,
    },
    /// The discovery log page changed.
    DiscoveryChanged,
    /// The controller sent another asynchronous event.
    Asynchronous(weft_nvme::event::Event),
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = |formatter: &mut fmt::Formatter<'_>, retry_in: &Option<Duration>| match retry_in
        {
            Some(delay) => write!(formatter, "; trying again in {delay:?}"),
            None => formatter.write_str("; giving up"),
        };
        match self {
            Self::Connected { controller_id, attempts: 0 } => {
                write!(formatter, "connected to controller {controller_id}")
            }
            Self::Connected { controller_id, attempts } => {
                write!(formatter, "connected to controller {controller_id}, attempt {attempts}")
            }
            Self::Lost { problem, retry_in } => {
                write!(formatter, "the controller was lost: {problem}")?;
                again(formatter, retry_in)
            }
            Self::AttemptFailed { problem, attempts: 0, retry_in } => {
                write!(formatter, "the controller is not there yet: {problem}")?;
                again(formatter, retry_in)
            }
            Self::AttemptFailed { problem, attempts, retry_in } => {
                write!(formatter, "attempt {attempts} to reconnect failed: {problem}")?;
                again(formatter, retry_in)
            }
            Self::QueueRefused { problem, .. } | Self::ScanFailed(problem) => {
                write!(formatter, "{problem}")
            }
            Self::Namespace { nsid, change } => write!(formatter, "namespace {nsid} {change}"),
            Self::Access { nsid, state } => write!(formatter, "namespace {nsid}: {state}"),
            Self::AccessStuck => formatter.write_str(
                "ANA Change has lasted for twice the transition time (ANATT); the controller is \
                 reset",
            ),
            Self::NamespaceUnusable { nsid, why } => {
                write!(formatter, "namespace {nsid} cannot be used and is left out: {why}")
            }
            Self::Authenticated { queue } => {
                write!(formatter, "queue {queue} was authenticated again")
            }
            Self::DiscoveryChanged => formatter.write_str("the discovery log page changed"),
            Self::Asynchronous(event) => write!(formatter, "event: {event:?}"),
        }
    }
}
