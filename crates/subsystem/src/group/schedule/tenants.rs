//! Shares of a poll group's time: deficit round robin between tenants, by weight.
//!
//! A tenant is all queues of a rule with a weight together, or else all queues of a host; those of
//! a host that has chosen weighted round robin are divided by their priority classes once more.
//! Tenants with work are in a round. When it is a tenant's turn it is given its quantum, a time in
//! proportion to its weight, and is served until that is used up. What it really took is known
//! afterwards, and what was more than it had is a debt. A tenant without work leaves the round and
//! loses what it had left, so that its absence is not paid out; it keeps its debt.
//!
//! What a tenant takes is measured: its visits, its sends, and its part of what was received, by
//! bytes. The rest of a turn is divided as what was measured. Express work between these is left
//! out, as it has credit of its own.
//!
//! Lag: over any time in which the same tenants have work, the times that two of them took, each
//! divided by its weight, differ by at most `3 q + 2 c / w`. Here `q` is a quantum divided by its
//! weight, `c` the most by which a visit goes beyond what it had, and `w` the least weight.
//!
//! While there is one tenant alone nothing is measured: it has all of each turn, its connections in
//! turn.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use weft_statistics::ns;

use crate::config::QOS_WEIGHT_DEFAULT;
use crate::shared::limits::COMMAND_BYTES;

/// The quantum of the heaviest tenant with work: half of what a turn begins of small commands, so
/// that each send still has many answers.
const QUANTUM_NS: u64 = 32_000;

/// What a tenant owes, at most: one stall of the machine is not its fault.
const DEBT_MAX_NS: u64 = 10_000_000;

/// What receiving costs beside the bytes, in bytes.
const RECEIVE_BYTES: u64 = 2048;

/// The assumed time of a command before one was measured.
const PACE_NS: u64 = 1000;

/// Parts of a weight, so that it can be divided among priority classes.
const WEIGHT_PARTS: u64 = 1024;

/// Who shares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TenantKey {
    /// All queues of the rule at this place.
    Rule(usize),
    /// All queues of a host, of this priority class if it has chosen weighted round robin.
    Host(String, Option<u8>),
}

/// A tenant's place, while its generation is the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TenantId {
    generation: u64,
    place: usize,
}

/// A visit of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) tenant: TenantId,
    pub(crate) connection: usize,
    /// About how many bytes it may begin, if small commands count as in a turn's allowance.
    pub(crate) bytes: usize,
}

/// The shares of a group.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// There are several tenants, so that time is measured.
    is_divided: bool,
    generation: u64,
    tenants: Vec<Tenant>,
    free: Vec<usize>,
    places: BTreeMap<TenantKey, usize>,
    /// Tenants with work, in their order.
    round: VecDeque<usize>,
    /// The largest weight among them.
    heaviest: u64,
    /// Those that something was charged to in this turn.
    touched: Vec<usize>,
    /// Until when time is charged, and how long the reactor had been idle.
    charged_until: Duration,
    idle: Duration,
    /// Express work since then.
    left_out: Duration,
    /// Time of this turn that is nobody's.
    rest_ns: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    key: Option<TenantKey>,
    queues: usize,
    /// Its own weight, or that of its host.
    weight: u64,
    /// The weight of its priority class among those of its host.
    class_weight: u64,
    /// What comes of these.
    parts: u64,
    /// Its connections with work, in their order.
    ready: VecDeque<usize>,
    is_in_round: bool,
    /// It has its quantum.
    is_given: bool,
    balance_ns: i64,
    /// The time of [`COMMAND_BYTES`].
    pace_ns: u64,
    /// Of this turn.
    turn_ns: u64,
    turn_bytes: u64,
    received: u64,
}

impl Tenant {
    fn quantum_ns(&self, heaviest: u64) -> i64 {
        let quantum = QUANTUM_NS.saturating_mul(self.parts) / heaviest.max(1);
        i64::try_from(quantum.max(1)).unwrap_or(i64::MAX)
    }

    fn charge(&mut self, took_ns: u64) {
        self.turn_ns = self.turn_ns.saturating_add(took_ns);
        let took = i64::try_from(took_ns.min(DEBT_MAX_NS)).unwrap_or(i64::MAX);
        let least = -i64::try_from(DEBT_MAX_NS).unwrap_or(i64::MAX);
        self.balance_ns = (self.balance_ns - took).max(least);
    }
}

impl Shares {
    /// Whether there are several tenants, so that time is measured.
    #[inline]
    pub(crate) const fn is_divided(&self) -> bool {
        self.is_divided
    }

    /// Whether time is measured from the next turn on, or was in the last one.
    #[inline]
    pub(crate) fn is_to_be_measured(&self) -> bool {
        self.is_divided || self.places.len() > 1
    }

    /// Whether a tenant has work.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.round.is_empty()
    }

    /// A turn has begun.
    pub(crate) fn begin_turn(&mut self, now: Duration, idle: Duration) {
        let is_divided = self.places.len() > 1;
        if std::mem::replace(&mut self.is_divided, is_divided) != is_divided {
            (self.charged_until, self.idle) = (now, idle);
            self.left_out = Duration::ZERO;
        }
        // What the reactor was idle for is nobody's.
        let idle_for = idle.saturating_sub(std::mem::replace(&mut self.idle, idle));
        self.charged_until = (self.charged_until + idle_for).min(now);
        let of_round = self.round.iter().filter_map(|place| self.tenants.get(*place));
        self.heaviest = of_round.map(|tenant| tenant.parts).max().unwrap_or(0);
    }

    /// Other rules are in force: every queue is to [`enter`](Self::enter) again. The connections
    /// that had work.
    pub(crate) fn reset(&mut self) -> Vec<usize> {
        self.generation += 1;
        let left = self.tenants.iter_mut().flat_map(|tenant| std::mem::take(&mut tenant.ready));
        let left = left.collect();
        self.tenants.clear();
        self.free.clear();
        self.places.clear();
        self.round.clear();
        self.touched.clear();
        (self.heaviest, self.rest_ns) = (0, 0);
        left
    }

    /// Whether a tenant is still there.
    pub(crate) const fn has(&self, tenant: TenantId) -> bool {
        tenant.generation == self.generation
    }

    /// One more queue of a tenant. `weight` is that of its rule, if that has one, and
    /// `class_weight` that of its priority class.
    pub(crate) fn enter(
        &mut self,
        key: TenantKey,
        weight: Option<u16>,
        class_weight: u16,
    ) -> TenantId {
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.tenants.push(Tenant::default());
                    self.tenants.len() - 1
                });
                if let Some(tenant) = self.tenants.get_mut(place) {
                    *tenant = Tenant {
                        key: Some(key.clone()),
                        weight: weight.unwrap_or(QOS_WEIGHT_DEFAULT).into(),
                        class_weight: class_weight.into(),
                        pace_ns: PACE_NS,
                        ..Tenant::default()
                    };
                }
                self.places.insert(key, place);
                self.weigh(place);
                place
            }
        };
        if let Some(tenant) = self.tenants.get_mut(place) {
            tenant.queues += 1;
        }
        TenantId { generation: self.generation, place }
    }

    /// One fewer, that of this connection.
    pub(crate) fn leave(&mut self, tenant: TenantId, connection: usize) {
        let Some(one) = self.tenant(tenant) else { return };
        one.ready.retain(|ready| *ready != connection);
        one.queues = one.queues.saturating_sub(1);
        if one.queues > 0 {
            return;
        }
        let key = one.key.take();
        key.iter().for_each(|key| _ = self.places.remove(key));
        self.round.retain(|place| *place != tenant.place);
        self.touched.retain(|place| *place != tenant.place);
        self.free.push(tenant.place);
        if let Some(key) = key {
            self.weigh_host(&key);
        }
    }

    /// The host has given the priority class of a tenant this weight.
    pub(crate) fn set_class_weight(&mut self, tenant: TenantId, class_weight: u16) {
        if let Some(one) = self.tenant(tenant)
            && one.class_weight != u64::from(class_weight)
        {
            one.class_weight = class_weight.into();
            self.weigh(tenant.place);
        }
    }

    fn weigh(&mut self, place: usize) {
        let key = self.tenants.get(place).and_then(|tenant| tenant.key.clone());
        if let Some(key) = key {
            self.weigh_host(&key);
        }
    }

    /// A host's weight is divided among its priority classes that are there; of one that has
    /// controllers with classes and others without, these have half of it each.
    fn weigh_host(&mut self, of: &TenantKey) {
        let is_one = |tenant: &Tenant| match (&tenant.key, of) {
            (Some(TenantKey::Host(one, _)), TenantKey::Host(host, _)) => one == host,
            (Some(key), of) => key == of,
            (None, _) => false,
        };
        let has_class = |tenant: &Tenant| matches!(tenant.key, Some(TenantKey::Host(_, Some(_))));
        let sum = |with_class: bool| -> u64 {
            let of_host = self.tenants.iter().filter(|tenant| is_one(tenant));
            let alike = of_host.filter(|tenant| has_class(tenant) == with_class);
            alike.map(|tenant| tenant.class_weight).sum()
        };
        let sums = [false, true].map(sum);
        let kinds = sums.iter().filter(|sum| **sum > 0).count() as u64;
        for tenant in self.tenants.iter_mut().filter(|tenant| is_one(tenant)) {
            let all = sums[usize::from(has_class(tenant))] * kinds;
            let parts = tenant.weight * WEIGHT_PARTS * tenant.class_weight / all.max(1);
            tenant.parts = parts.max(1);
        }
    }

    /// A connection has work.
    pub(crate) fn push(&mut self, tenant: TenantId, connection: usize) {
        let Some(one) = self.tenant(tenant) else { return };
        one.ready.push_back(connection);
        let (was_in_round, parts) = (std::mem::replace(&mut one.is_in_round, true), one.parts);
        if !was_in_round {
            self.round.push_back(tenant.place);
            self.heaviest = self.heaviest.max(parts);
        }
    }

    /// Whose turn it is.
    pub(crate) fn next(&mut self) -> Option<Visit> {
        let mut rotated = 0;
        loop {
            let place = self.round.front().copied()?;
            let tenant = self.tenants.get_mut(place)?;
            if tenant.ready.is_empty() {
                tenant.balance_ns = tenant.balance_ns.min(0);
                (tenant.is_in_round, tenant.is_given) = (false, false);
                self.round.pop_front();
                rotated = 0;
                continue;
            }
            if !self.is_divided {
                let connection = tenant.ready.pop_front()?;
                let tenant = TenantId { generation: self.generation, place };
                return Some(Visit { tenant, connection, bytes: usize::MAX });
            }
            if !std::mem::replace(&mut tenant.is_given, true) {
                tenant.balance_ns += tenant.quantum_ns(self.heaviest);
            }
            if let Ok(balance_ns @ 1..) = u64::try_from(tenant.balance_ns) {
                let connection = tenant.ready.pop_front()?;
                let bytes = balance_ns.saturating_mul(COMMAND_BYTES as u64) / tenant.pace_ns.max(1);
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
                let tenant = TenantId { generation: self.generation, place };
                return Some(Visit { tenant, connection, bytes });
            }
            tenant.is_given = false;
            self.round.rotate_left(1);
            rotated += 1;
            if rotated >= self.round.len() {
                self.skip_rounds();
                rotated = 0;
            }
        }
    }

    /// All owe more than they are given in a round: gives what makes the first one free of debt in
    /// the next round.
    fn skip_rounds(&mut self) {
        let heaviest = self.heaviest;
        let of_round = || self.round.iter().copied();
        let rounds = of_round().filter_map(|place| {
            let tenant = self.tenants.get(place)?;
            Some(-tenant.balance_ns / tenant.quantum_ns(heaviest))
        });
        let rounds = rounds.min().unwrap_or(0);
        for place in of_round().collect::<Vec<_>>() {
            if let Some(tenant) = self.tenants.get_mut(place) {
                tenant.balance_ns += rounds.saturating_mul(tenant.quantum_ns(heaviest));
            }
        }
    }

    /// A visit has ended, in which so many bytes were begun, counted as in a turn's allowance.
    pub(crate) fn visited(&mut self, visit: Visit, bytes: usize, has_more: bool) {
        let is_divided = self.is_divided;
        let Some(one) = self.tenant(visit.tenant) else { return };
        if is_divided {
            one.turn_bytes += bytes as u64;
        }
        match (has_more, is_divided && one.balance_ns > 0) {
            (false, _) => {}
            (true, true) => one.ready.push_front(visit.connection),
            (true, false) => one.ready.push_back(visit.connection),
        }
    }

    /// So many bytes were received for a tenant.
    pub(crate) fn received(&mut self, tenant: TenantId, bytes: usize) {
        if let Some(one) = self.tenant(tenant) {
            let before = one.received;
            one.received += bytes as u64 + RECEIVE_BYTES;
            if before == 0 && one.turn_ns == 0 {
                self.touched.push(tenant.place);
            }
        }
    }

    /// What came is received: that time is divided by bytes.
    pub(crate) fn end_receive(&mut self, now: Duration) {
        let took_ns = self.lap(now);
        let of_turn = || self.touched.iter().copied();
        let all: u64 = of_turn().filter_map(|place| Some(self.tenants.get(place)?.received)).sum();
        if all == 0 {
            self.rest_ns += took_ns;
            return;
        }
        for place in of_turn().collect::<Vec<_>>() {
            let Some(tenant) = self.tenants.get_mut(place) else { continue };
            let received = std::mem::take(&mut tenant.received);
            tenant.charge(took_ns.saturating_mul(received) / all);
        }
    }

    /// Charges the time since the last call of this kind to a tenant, or to nobody.
    pub(crate) fn charge(&mut self, tenant: Option<TenantId>, now: Duration) {
        let took_ns = self.lap(now);
        match tenant.and_then(|tenant| Some((tenant.place, self.tenant(tenant)?))) {
            Some((place, one)) => {
                let is_first = one.turn_ns == 0 && took_ns > 0;
                one.charge(took_ns);
                if is_first && !self.touched.contains(&place) {
                    self.touched.push(place);
                }
            }
            None => self.rest_ns += took_ns,
        }
    }

    /// Express work took so long, which is charged to nobody.
    pub(crate) fn leave_out(&mut self, took: Duration) {
        self.left_out += took;
    }

    /// The turn has ended: what is left of its time is divided as the rest of it.
    pub(crate) fn end_turn(&mut self, now: Duration) {
        let rest_ns = self.lap(now) + std::mem::take(&mut self.rest_ns);
        let touched = std::mem::take(&mut self.touched);
        let of_turn = || touched.iter().copied();
        let all: u64 = of_turn().filter_map(|place| Some(self.tenants.get(place)?.turn_ns)).sum();
        for place in of_turn() {
            let Some(tenant) = self.tenants.get_mut(place) else { continue };
            let measured = tenant.turn_ns;
            tenant.charge(rest_ns.saturating_mul(measured) / all.max(1));
            let time = tenant.turn_ns.saturating_mul(COMMAND_BYTES as u64);
            if let Some(pace) = time.checked_div(tenant.turn_bytes) {
                tenant.pace_ns = ((7 * tenant.pace_ns + pace) / 8).clamp(1, DEBT_MAX_NS);
            }
            (tenant.turn_ns, tenant.turn_bytes, tenant.received) = (0, 0, 0);
        }
        self.touched = touched;
        self.touched.clear();
    }

    /// The time since the last lap, in ns.
    fn lap(&mut self, now: Duration) -> u64 {
        let since = now.saturating_sub(std::mem::replace(&mut self.charged_until, now));
        ns(since.saturating_sub(std::mem::take(&mut self.left_out)))
    }

    fn tenant(&mut self, tenant: TenantId) -> Option<&mut Tenant> {
        if self.has(tenant) { self.tenants.get_mut(tenant.place) } else { None }
    }
}

#[cfg(test)]
mod tests;
