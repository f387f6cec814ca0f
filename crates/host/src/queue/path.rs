//! What the queue of one of several paths has beyond that of an only one.
//!
//! It replays nothing by itself: its requests go back to the device, which sends them by another
//! path. Those that were in flight when a connection was lost may still be executed on the old
//! path, so the queue says until when: its [`Fence`].
//!
//! # The fence
//!
//! A connection with commands in flight is closed by a reset, so that this side sends nothing more
//! of them. What the controller has received is executed at most until
//!
//! * it has noticed the end of the association, and the Command Quiesce Time (CQT) has passed. It
//!   has noticed at once if it closed a connection by itself, and if it answers another Connect of
//!   this host; and at the latest when its Keep Alive Timer has expired;
//! * so many milliseconds later ([`limits::NETWORK_DELAY`]) for what was on its way.

use std::sync::Arc;
use std::time::Duration;

use weft_backend::{Request, RequestCompletion};
use weft_nvme::Status;
use weft_nvmf::host::request_table::{Kind, RequestError, RequestId};
use weft_reactor::{Owner, Pool, Reactor};
use weft_transport::CloseReason;

use super::buffers::failure_of;
use super::{QueuePair, State};
use crate::limits;
use crate::shared::{DriverMessage, Shared};

/// How long commands of a lost association may still be executed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fence {
    generation: u32,
    until: Duration,
}

/// Why a request goes back to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// None of its commands was in flight.
    NotSent,
    /// The connection was lost; it may have been executed, and may be until the fence is over.
    Unknown,
    /// The controller answered with this path-related status, so it is over there.
    Refused(Status),
}

/// The end of a request on this path.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It is completed.
    Done(RequestCompletion),
    /// It is not.
    Back(Request, Why),
}

/// Whether a path may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It is there, or is being connected.
    Hope,
    /// It is being connected, but for too long to wait for it.
    Failing,
    /// It has ended.
    Ended,
}

/// The state of the queue of one of several paths.
#[derive(Debug)]
pub(super) struct PathState {
    number: u32,
    /// The generation of the controller that came last, and when.
    generation: u32,
    live_at: Duration,
    fence: Fence,
    pub(super) suspended_by_peer: bool,
    /// A command was refused because of an access state, and the states are being read.
    pub(super) awaits_access: bool,
}

impl PathState {
    /// Tokens have four times the tag of their connection.
    pub(super) const fn first_connection_tag(&self) -> u32 {
        self.number * (limits::PATH_TAGS / 4)
    }

    pub(super) const fn live(&mut self, generation: u32, now: Duration) {
        self.generation = generation;
        self.live_at = now;
        self.awaits_access = false;
    }
}

impl QueuePair {
    /// The queue of a path with this number.
    pub(crate) fn open_path(
        shared: &Arc<Shared>,
        reactor: &Reactor,
        owner: Owner,
        number: u32,
    ) -> Result<Self, String> {
        let path = PathState {
            number,
            generation: 0,
            live_at: Duration::ZERO,
            fence: Fence::default(),
            suspended_by_peer: false,
            awaits_access: false,
        };
        Self::open_as(shared, reactor, owner, Some(path))
    }

    pub(super) fn timer_tag(&self) -> u32 {
        let number = self.path.as_ref().map_or(0, |path| path.number);
        number * limits::PATH_TAGS + limits::TIMER_TAG
    }

    /// Whether requests can be sent.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == State::Up && self.path.as_ref().is_none_or(|path| !path.awaits_access)
    }

    /// Whether waiting for it makes sense.
    pub(crate) const fn outlook(&self) -> Outlook {
        match self.failing {
            None => Outlook::Hope,
            Some(RequestError::PathLost) => Outlook::Failing,
            Some(_) => Outlook::Ended,
        }
    }

    /// Whether its controller has ended, and nothing of it is left here.
    pub(crate) fn is_over(&self) -> bool {
        self.outlook() == Outlook::Ended && self.connection.is_none() && self.in_flight() == 0
    }

    /// Requests that have not ended here.
    pub(crate) fn load(&self) -> usize {
        self.requests.unfinished()
    }

    /// A command was refused because of an access state: nothing more is sent until they were read.
    pub(crate) fn reread_access(&mut self) {
        if let Some(path) = self.path.as_mut().filter(|path| !path.awaits_access) {
            path.awaits_access = true;
            self.shared.postbox.post(DriverMessage::AccessRefused);
        }
    }

    /// The connection has ended, by itself for this reason or because this side closed it.
    pub(super) fn raise_fence(&mut self, by_itself: Option<&CloseReason>, now: Duration) {
        let Some(path) = &mut self.path else { return };
        let by_peer = by_itself.map_or(path.suspended_by_peer, is_by_peer);
        let Some(snapshot) = &self.snapshot else { return };
        let controller = &snapshot.controller;
        let notices = match by_peer {
            true => Duration::ZERO,
            false => controller.notices_within(self.shared.options.keep_alive_tmo),
        };
        let wait = notices + controller.quiesce_time() + limits::NETWORK_DELAY;
        path.fence = Fence { generation: path.generation, until: now.saturating_add(wait) };
    }

    /// How long commands of the last connection that was lost may still be executed.
    pub(crate) fn fence(&self) -> Fence {
        self.path.as_ref().map(|path| path.fence).unwrap_or_default()
    }

    /// When a fence of this path is over.
    pub(crate) fn is_over_at(&self, fence: &Fence) -> Duration {
        let (Some(path), Some(snapshot)) = (&self.path, &self.snapshot) else { return fence.until };
        if path.generation == fence.generation {
            return fence.until;
        }
        // The controller has answered another Connect since.
        fence.until.min(path.live_at.saturating_add(snapshot.controller.quiesce_time()))
    }

    /// The next request that ended here.
    pub(crate) fn poll_ended(&mut self, pool: &Pool) -> Option<Ended> {
        if let Some(completion) = self.completions.pop_front() {
            return Some(Ended::Done(completion));
        }
        let (id, result) = self.requests.poll_finished()?;
        let buffers = std::mem::take(&mut self.request_buffers[id.0 as usize]);
        match result.err().and_then(|error| self.why(id, error)) {
            None => Some(Ended::Done(buffers.complete(result.map_err(failure_of)))),
            Some(why) => {
                let range = self.requests.range(id);
                Some(match buffers.into_request(range, pool) {
                    Ok(request) => Ended::Back(request, why),
                    Err(buffers) => {
                        Ended::Done(buffers.complete(Err(weft_backend::Failure::PathLost)))
                    }
                })
            }
        }
    }

    fn why(&self, id: RequestId, error: RequestError) -> Option<Why> {
        match error {
            RequestError::NotSent => Some(Why::NotSent),
            RequestError::PathLost => Some(Why::Unknown),
            RequestError::Status(status) => {
                let (kind, ..) = self.requests.range(id);
                is_for_another_path(kind, status).then_some(Why::Refused(status))
            }
            _ => None,
        }
    }
}

/// Whether a request with this status is sent by another path, as in Linux (without Do Not Retry).
/// One that must not be executed twice only if it was not executed at all.
fn is_for_another_path(kind: Kind, status: Status) -> bool {
    status.is_path_related()
        && !status.do_not_retry()
        && (kind.is_replayed() || is_of_access(status))
}

/// Whether the status says that the namespace cannot be accessed here.
pub(crate) fn is_of_access(status: Status) -> bool {
    [Status::ANA_TRANSITION, Status::ANA_INACCESSIBLE, Status::ANA_PERSISTENT_LOSS]
        .iter()
        .any(|of_access| of_access.code() == status.code())
}

/// Whether the controller has ended a connection by itself: from then on it takes no more commands
/// of the association.
pub(crate) const fn is_by_peer(reason: &CloseReason) -> bool {
    match reason {
        CloseReason::PeerClosed | CloseReason::PeerTerminated { .. } => true,
        CloseReason::Io { kind, .. } => {
            matches!(kind, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
        }
        _ => false,
    }
}
