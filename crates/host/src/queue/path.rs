//! What the queue of one of several paths has beyond that of an only one.
//!
//! It replays nothing by itself: its requests go back to the device, which sends them by another
//! path. Those that were in flight when a connection was lost may still be executed on the old
//! path, so the queue says until when: its fence.
//!
//! # The fence
//!
//! A connection with commands in flight is closed by a reset, so that this side sends nothing more
//! of them. What the controller has received is executed at most until
//!
//! * it has noticed the end of the association, and the Command Quiesce Time (CQT) has passed. It
//!   has noticed at once if it closed a connection by itself, and at the latest when its Keep Alive
//!   Timer has expired. That it answers another Connect of this host says nothing: not every
//!   controller looks for the earlier association then;
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

/// Why a request goes back to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReturnReason {
    /// None of its commands was in flight.
    NotSent,
    /// The connection was lost; it may have been executed, and may be until the fence is over.
    Unknown,
    /// The controller answered with this path-related status, so it is over there.
    Refused(Status),
}

/// The end of a request on this path.
#[derive(Debug)]
pub(crate) enum RequestEnd {
    /// It is completed.
    Done(RequestCompletion),
    /// It is not.
    Back(Request, ReturnReason),
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
    /// Until when commands of the last connection that was lost may still be executed.
    fence: Duration,
    pub(super) suspended_by_peer: bool,
    /// A command was refused because of an access state, and the states are being read.
    pub(super) awaits_access: bool,
}

impl PathState {
    /// Tokens have four times the tag of their connection.
    pub(super) const fn first_connection_tag(&self) -> u32 {
        self.number * (limits::PATH_TAGS / 4)
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
            fence: Duration::ZERO,
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
        let by_peer = by_itself.map_or(path.suspended_by_peer, CloseReason::is_by_peer);
        let Some(snapshot) = &self.snapshot else { return };
        let controller = &snapshot.controller;
        let notices = match by_peer {
            true => Duration::ZERO,
            false => controller.notices_within(self.shared.options.keep_alive_tmo),
        };
        let wait = notices + controller.quiesce_time() + limits::NETWORK_DELAY;
        path.fence = now.saturating_add(wait);
    }

    /// Until when commands of the last connection that was lost may still be executed.
    pub(crate) fn fence(&self) -> Duration {
        self.path.as_ref().map_or(Duration::ZERO, |path| path.fence)
    }

    /// The next request that ended here.
    pub(crate) fn poll_ended(&mut self, pool: &Pool) -> Option<RequestEnd> {
        if let Some(completion) = self.completions.pop_front() {
            return Some(RequestEnd::Done(completion));
        }
        let (id, result) = self.requests.poll_finished()?;
        let buffers = std::mem::take(&mut self.request_buffers[id.0 as usize]);
        match result.err().and_then(|error| self.why(id, error)) {
            None => Some(RequestEnd::Done(buffers.complete(result.map_err(failure_of)))),
            Some(why) => {
                let (kind, slba, nlb) = self.requests.range(id);
                Some(match buffers.into_request(kind, slba, nlb, pool) {
                    Ok(request) => RequestEnd::Back(request, why),
                    Err(buffers) => {
                        RequestEnd::Done(buffers.complete(Err(weft_backend::Failure::PathLost)))
                    }
                })
            }
        }
    }

    fn why(&self, id: RequestId, error: RequestError) -> Option<ReturnReason> {
        match error {
            RequestError::NotSent => Some(ReturnReason::NotSent),
            RequestError::PathLost => Some(ReturnReason::Unknown),
            RequestError::Status(status) => {
                let (kind, ..) = self.requests.range(id);
                is_for_another_path(kind, status).then_some(ReturnReason::Refused(status))
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
