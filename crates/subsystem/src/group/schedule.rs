//! Which connection may begin its next command, and how much.
//!
//! [`Schedule::next`] says what a turn does next. (What one command waits for on its way, and in
//! which order, is in ARCHITECTURE.md.)
//!
//! 1. a piece of a large request without data, and one of each Copy command; of several tenants
//!    each has them in its turn (3);
//! 2. what a rate limit lets go on ([`limits`]), one command of each flow in turn;
//! 3. connections with events: I/O queues with commands by the shares of their [`tenants`], and
//!    before them the others in the order in which they came;
//! 4. connections that wait for [`memory`], hosts in turn.
//!
//! All of these begin as much in a turn as the [`allowance`]. Between any two of them come the
//! commands of express queues ([`class`]), and what others have in a device meanwhile is bounded by
//! its [`window`].

mod allowance;
mod class;
mod limits;
mod memory;
mod pieces;
mod tenants;
mod window;

use std::collections::VecDeque;
use std::time::Duration;

use weft_reactor::{Pool, Reactor};

pub(crate) use self::allowance::{Allowance, SuspendedAllowance};
pub(crate) use self::class::{Express, QueueClass};
pub(crate) use self::limits::{Charge, FlowKey, LimitAnswer, Throttle, WaitingFlow};
pub(crate) use self::memory::{Memory, MemoryTry};
pub(crate) use self::pieces::{PIECE_TURN_BYTES, Pieces, is_long, turn_bytes};
pub(crate) use self::tenants::{Shares, TenantId, TenantKey, Visit};
pub(crate) use self::window::{DeviceWindow, ExpressDelay};

use crate::shared::snapshot::Snapshot;

/// Pieces of requests in a turn: what a memory device zeroes in one.
const PIECES_MAX: usize = 16;

/// What waits in a group, and for what.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// What the turn may still begin.
    pub(crate) allowance: Allowance,
    /// Who waits for memory.
    pub(crate) memory: Memory,
    /// Who waits for a rate limit.
    pub(crate) throttle: Throttle,
    /// What is served between the commands of others.
    pub(crate) express: Express,
    /// Who is served when, by weight.
    pub(crate) shares: Shares,
    /// Connections that may have events, in their order.
    arrived: VecDeque<usize>,
    /// Those of a turn that it could not finish: they go behind new ones, but only once.
    postponed: Vec<usize>,
    /// Connections that were polled in this turn: their responses are sent at its end.
    pub(crate) polled: Vec<usize>,
    /// Flows that may ask their rate limit in this turn.
    due: VecDeque<WaitingFlow>,
    /// Pieces of requests that the turn may still begin.
    pieces_left: usize,
}

/// What a turn does next.
#[derive(Debug)]
pub(crate) enum Work {
    /// Begins a piece of a large request without data.
    Piece,
    /// Has the first command of a flow ask its rate limit again.
    Limited(WaitingFlow),
    /// Has a connection wait for its tenant's turn, or polls one of nobody.
    Connection(usize),
    /// Polls the connection of a tenant whose turn it is.
    Visit(Visit),
    /// Has a connection ask for memory again.
    Memory(usize),
}

impl Schedule {
    /// Nothing waits yet in the group of this number.
    pub(crate) fn new(group: usize, pool: Pool, snapshot: &Snapshot) -> Self {
        Self {
            allowance: Allowance::default(),
            memory: Memory::new(pool),
            throttle: Throttle::new(group),
            express: Express::new(snapshot.express),
            shares: Shares::default(),
            arrived: VecDeque::new(),
            postponed: Vec::new(),
            polled: Vec::new(),
            due: VecDeque::new(),
            pieces_left: 0,
        }
    }

    /// A turn begins; `is_stopping`: no rate limit holds anything up any more.
    pub(crate) fn begin_turn(&mut self, now: Duration, is_stopping: bool) {
        self.allowance.begin_turn();
        self.arrived.extend(self.postponed.drain(..));
        self.due = self.throttle.take_due(now, is_stopping);
        self.pieces_left = PIECES_MAX;
        self.memory.begin_tries();
    }

    /// What is to be done next, if the turn may begin more; `has_piece`: a large request without
    /// data has a next piece.
    pub(crate) fn next(&mut self, has_piece: bool) -> Option<Work> {
        if has_piece && self.pieces_left > 0 {
            self.pieces_left -= 1;
            return Some(Work::Piece);
        }
        if !self.allowance.may_begin() {
            return None;
        }
        let limited = self.due.pop_front().map(Work::Limited);
        limited
            .or_else(|| self.arrived.pop_front().map(Work::Connection))
            .or_else(|| self.shares.next().map(Work::Visit))
            .or_else(|| self.memory.next_try().map(Work::Memory))
    }

    /// An express queue is served from now on, until the turn [goes on](Self::resume).
    pub(crate) fn interrupt(&mut self, now: Duration) -> SuspendedAllowance {
        self.express.begin(now);
        self.allowance.interrupt()
    }

    /// The turn goes on. How long it was interrupted, which is no tenant's time.
    pub(crate) fn resume(&mut self, turn: SuspendedAllowance, now: Duration) -> Duration {
        self.allowance.resume(turn);
        let took = self.express.end(now);
        self.shares.leave_out(took);
        took
    }

    /// What a flow's rate limit has said.
    pub(crate) fn asked(&mut self, flow: WaitingFlow, answer: LimitAnswer) {
        match answer {
            LimitAnswer::Begin(_) => self.due.push_back(self.throttle.served(flow)),
            LimitAnswer::Wait(at) => self.throttle.wait_until(at, flow),
            LimitAnswer::Empty => {}
        }
    }

    /// A connection may have events.
    pub(crate) fn arrived(&mut self, connection: usize) {
        self.arrived.push_back(connection);
    }

    /// A connection has more events than this turn could take.
    pub(crate) fn postpone(&mut self, connection: usize) {
        self.postponed.push(connection);
    }

    /// The turn has ended: flows that could not ask do so in the next one, and the timer is set for
    /// those that wait.
    pub(crate) fn end_turn(&mut self, reactor: &mut Reactor) {
        let now = reactor.turn_time();
        for flow in std::mem::take(&mut self.due) {
            self.throttle.wait_until(now, flow);
        }
        self.throttle.set_timer(reactor);
    }

    /// Whether the last turn has left work.
    pub(crate) fn has_left(&self) -> bool {
        !self.arrived.is_empty()
            || !self.postponed.is_empty()
            || self.shares.has_backlog()
            || (self.memory.waits_since().is_some() && !self.allowance.may_begin())
    }

    /// Whether what has completed last may let this turn go on.
    pub(crate) fn has_more(&self) -> bool {
        !self.arrived.is_empty() || self.shares.has_backlog() || self.memory.waits_since().is_some()
    }
}
