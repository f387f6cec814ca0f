//! How much of a group's time its express queues may use.
//!
//! An account has a part of the time, which its hosts have in equal parts. What a queue uses is
//! charged to its host's part, to the account, and to the account of all together; all three must
//! have credit before it is served. What was not used in the last [`CREDIT_TIME`] can be used at
//! once, what is older is lost.

use std::time::Duration;

use crate::config::{QOS_BUDGET_DEFAULT, QOS_BUDGET_MAX, QosClass, QosRule};
use crate::shared::classes::Grant;

/// The time of which an account can use its part at once.
const CREDIT_TIME: Duration = Duration::from_millis(1);

/// Accounts that are there without a rule.
const FIXED: usize = 2;

/// What is charged for a queue: the place of its account, and of its host's part of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountId {
    account: usize,
    part: usize,
}

/// The place of the account of a queue with this grant: first that of all queues that are express
/// by themselves, then that of all whose hosts asked for it, then those of the rules.
const fn account_of(grant: Grant) -> usize {
    match grant {
        Grant::Automatic => 0,
        Grant::Connect(_) => 1,
        Grant::Rule(_, place) => FIXED + place,
    }
}

/// The accounts of a group.
#[derive(Debug)]
pub(crate) struct Budgets {
    total: Account,
    accounts: Vec<Account>,
    /// From when on a queue may have credit.
    credit_at: Duration,
}

#[derive(Debug)]
struct Account {
    /// Its part of the time.
    percent: u32,
    /// The time at which its part of the time covers what was used.
    paid_at: Duration,
    /// Those of its hosts.
    parts: Vec<Part>,
    /// Hosts with express queues.
    hosts: u32,
}

/// A host's part of an account.
#[derive(Debug, Default)]
struct Part {
    host: String,
    /// As that of the account.
    paid_at: Duration,
    /// The host's express queues of this account.
    queues: usize,
}

impl Account {
    fn new(percent: u8) -> Self {
        let percent = u32::from(percent).max(1);
        Self { percent, paid_at: Duration::ZERO, parts: Vec::new(), hosts: 0 }
    }

    fn charge(&mut self, part: usize, took: Duration, now: Duration) {
        charge(&mut self.paid_at, took * 100 / self.percent, now);
        if let Some(part) = self.parts.get_mut(part) {
            charge(&mut part.paid_at, took * 100 * self.hosts.max(1) / self.percent, now);
        }
    }

    /// The place of a host's part. One without queues is forgotten once what it used is paid.
    fn part_of(&mut self, host: &str, now: Duration) -> usize {
        if let Some(place) = self.parts.iter().position(|part| part.host == host) {
            return place;
        }
        let is_free = |part: &Part| part.queues == 0 && part.paid_at <= now;
        let place = self.parts.iter().position(is_free).unwrap_or_else(|| {
            self.parts.push(Part::default());
            self.parts.len() - 1
        });
        if let Some(part) = self.parts.get_mut(place) {
            *part = Part { host: host.to_owned(), ..Part::default() };
        }
        place
    }

    /// From when on one of its queues may have credit, if it has any.
    fn credit_at(&self) -> Option<Duration> {
        let first = self.parts.iter().filter(|part| part.queues > 0).map(|part| part.paid_at).min();
        first.map(|first| first.max(self.paid_at))
    }
}

/// What takes so long to be paid was used until now.
fn charge(paid_at: &mut Duration, takes: Duration, now: Duration) {
    *paid_at = (*paid_at).max(now.saturating_sub(CREDIT_TIME)) + takes;
}

impl Budgets {
    /// The accounts where these rules are in force.
    pub(crate) fn new(rules: &[QosRule]) -> Self {
        let fixed = [(); FIXED].map(|()| Account::new(QOS_BUDGET_DEFAULT));
        let of_rules = rules.iter().map(|rule| match rule.class {
            QosClass::Latency => Account::new(rule.budget()),
            // Its queues are never express.
            QosClass::Throughput => Account::new(QOS_BUDGET_DEFAULT),
        });
        Self {
            total: Account::new(QOS_BUDGET_MAX),
            accounts: fixed.into_iter().chain(of_rules).collect(),
            credit_at: Duration::ZERO,
        }
    }

    /// Other rules are in force. What was used of a rule that is still there stays used; every
    /// queue is to [`enter`](Self::enter) again.
    pub(crate) fn replace(&mut self, old: &[QosRule], new: &[QosRule]) {
        let mut before = std::mem::replace(self, Self::new(new));
        self.total.paid_at = before.total.paid_at;
        let place_before = |place: usize| match place.checked_sub(FIXED) {
            None => Some(place),
            Some(rule) => {
                let rule = new.get(rule)?;
                Some(FIXED + old.iter().position(|one| one.has_scope_of(rule))?)
            }
        };
        for (place, account) in self.accounts.iter_mut().enumerate() {
            let old = place_before(place).and_then(|place| before.accounts.get_mut(place));
            let Some(old) = old else { continue };
            account.paid_at = old.paid_at;
            account.parts = std::mem::take(&mut old.parts);
            account.parts.iter_mut().for_each(|part| part.queues = 0);
        }
        self.settle();
    }

    /// One more queue of a host is express: what is charged for it from now on.
    pub(crate) fn enter(&mut self, grant: Grant, host: &str, now: Duration) -> AccountId {
        let mut id = AccountId { account: account_of(grant), part: 0 };
        if let Some(account) = self.accounts.get_mut(id.account) {
            id.part = account.part_of(host, now);
            if let Some(part) = account.parts.get_mut(id.part) {
                account.hosts += u32::from(part.queues == 0);
                part.queues += 1;
            }
        }
        self.settle();
        id
    }

    /// One fewer is.
    pub(crate) fn leave(&mut self, id: AccountId) {
        if let Some(account) = self.accounts.get_mut(id.account)
            && let Some(part) = account.parts.get_mut(id.part)
            && part.queues > 0
        {
            part.queues -= 1;
            account.hosts -= u32::from(part.queues == 0);
        }
        self.settle();
    }

    /// Whether a queue of some account has credit, if all accounts with queues are asked.
    pub(crate) fn may_have_credit(&self, now: Duration) -> bool {
        self.credit_at <= now
    }

    /// Whether the queues of an account have credit: otherwise they are served in their turn.
    pub(crate) fn has_credit(&self, id: AccountId, now: Duration) -> bool {
        let Some(account) = self.accounts.get(id.account) else { return false };
        let of_host = account.parts.get(id.part).map_or(Duration::MAX, |part| part.paid_at);
        self.total.paid_at.max(account.paid_at).max(of_host) <= now
    }

    /// A queue of this account was served until now, for so long.
    pub(crate) fn charge(&mut self, id: AccountId, took: Duration, now: Duration) {
        charge(&mut self.total.paid_at, took * 100 / self.total.percent, now);
        if let Some(account) = self.accounts.get_mut(id.account) {
            account.charge(id.part, took, now);
        }
        self.settle();
    }

    fn settle(&mut self) {
        let first = self.accounts.iter().filter_map(Account::credit_at).min();
        self.credit_at = self.total.paid_at.max(first.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    fn rule(host: &str, budget: u8) -> QosRule {
        QosRule {
            host: Some(host.into()),
            subsystem: None,
            port: None,
            class: QosClass::Latency,
            budget: Some(budget),
            weight: None,
            latency_target: None,
            max_throughput_loss: None,
        }
    }

    const AUTOMATIC: Grant = Grant::Automatic;
    const CONNECT: Grant = Grant::Connect(QosClass::Latency);

    fn of_rule(place: usize) -> Grant {
        Grant::Rule(QosClass::Latency, place)
    }

    #[test]
    fn an_account_without_credit_leaves_the_others_theirs() {
        let mut budgets = Budgets::new(&[rule("a", 50)]);
        let automatic = budgets.enter(AUTOMATIC, "h", us(0));
        let ruled = budgets.enter(of_rule(0), "a", us(0));
        budgets.charge(automatic, us(300), us(10_000));
        assert!(!budgets.has_credit(automatic, us(10_000)));
        assert!(budgets.has_credit(ruled, us(10_000)) && budgets.may_have_credit(us(10_000)));
        // 300 µs are a quarter of 1200, of which 1000 had passed.
        assert!(!budgets.has_credit(automatic, us(10_199)));
        assert!(budgets.has_credit(automatic, us(10_200)));
        // All together have three quarters: 750 µs at once.
        budgets.charge(ruled, us(450), us(10_000));
        assert!(budgets.has_credit(ruled, us(10_000)));
        budgets.charge(ruled, us(3), us(10_000));
        assert!(!budgets.has_credit(ruled, us(10_000)) && !budgets.may_have_credit(us(10_000)));
        assert!(budgets.has_credit(ruled, us(10_004)));
    }

    #[test]
    fn credit_is_possible_only_for_accounts_with_queues() {
        let mut budgets = Budgets::new(&[rule("a", 50)]);
        let automatic = budgets.enter(AUTOMATIC, "h", us(0));
        budgets.charge(automatic, us(300), us(10_000));
        assert!(!budgets.may_have_credit(us(10_199)) && budgets.may_have_credit(us(10_200)));
        let ruled = budgets.enter(of_rule(0), "a", us(10_000));
        assert!(budgets.may_have_credit(us(10_000)));
        budgets.leave(ruled);
        assert!(!budgets.may_have_credit(us(10_199)));
    }

    #[test]
    fn hosts_have_equal_parts_of_an_account() {
        let mut budgets = Budgets::new(&[]);
        let many: Vec<_> = (0..9).map(|_| budgets.enter(AUTOMATIC, "many", us(0))).collect();
        let few = budgets.enter(AUTOMATIC, "few", us(0));
        // 130 µs are an eighth of 1040.
        budgets.charge(many[0], us(130), us(10_000));
        assert!(!budgets.has_credit(many[8], us(10_039)) && budgets.has_credit(few, us(10_000)));
        assert!(budgets.may_have_credit(us(10_000)));
        assert!(budgets.has_credit(many[8], us(10_040)));
        // Alone it has all of it again, but for what it has used.
        budgets.leave(few);
        budgets.charge(many[8], us(130), us(10_040));
        assert!(
            budgets.has_credit(many[0], us(10_560)) && !budgets.has_credit(many[0], us(10_559))
        );
        // Leaving does not clear it.
        many.into_iter().for_each(|id| budgets.leave(id));
        let again = budgets.enter(AUTOMATIC, "many", us(10_040));
        assert!(!budgets.has_credit(again, us(10_559)));
        let other = budgets.enter(AUTOMATIC, "other", us(10_560));
        assert_eq!((again.part, other.part), (0, 1), "places are used again");
    }

    #[test]
    fn what_was_used_stays_used_while_its_rule_is_there() {
        let old = [rule("a", 10), rule("b", 20)];
        let mut budgets = Budgets::new(&old);
        let connect = budgets.enter(CONNECT, "h", us(0));
        let b = budgets.enter(of_rule(1), "b", us(0));
        budgets.charge(connect, us(300), us(10_000));
        budgets.charge(b, us(300), us(10_000));
        budgets.replace(&old, &[rule("b", 30), rule("c", 10)]);
        assert!(budgets.may_have_credit(us(10_000)), "no queue has entered");
        let connect = budgets.enter(CONNECT, "h", us(10_000));
        let b = budgets.enter(of_rule(0), "b", us(10_000));
        let c = budgets.enter(of_rule(1), "c", us(10_000));
        assert!(!budgets.has_credit(connect, us(10_199)));
        assert!(!budgets.has_credit(b, us(10_400)), "300 µs are a fifth of 1500");
        assert!(budgets.has_credit(b, us(10_500)) && budgets.has_credit(c, us(10_000)));
    }

    proptest! {
        /// In any time, the queues of an account take its part of it, that part of a millisecond
        /// more, and what the last service took; all together theirs. An account whose queues are
        /// alone has credit again in time.
        #[test]
        fn express_queues_take_their_part(
            budget in 1_u8..=QOS_BUDGET_MAX,
            services in proptest::collection::vec((0_usize..3, 0_u64..2000, 0_u64..100), 1..200),
        ) {
            let mut budgets = Budgets::new(&[rule("a", budget)]);
            let parts = [QOS_BUDGET_DEFAULT, QOS_BUDGET_DEFAULT, budget].map(u32::from);
            let ids = [AUTOMATIC, CONNECT, of_rule(0)].map(|of| budgets.enter(of, "h", us(0)));
            let mut now = us(10_000);
            let mut served = Vec::new();
            for (account, pause, took) in services {
                now += us(pause);
                if budgets.has_credit(ids[account], now) {
                    let begun = now;
                    now += us(took);
                    budgets.charge(ids[account], us(took), now);
                    served.push((account, begun, now));
                }
                let part = parts[account].min(QOS_BUDGET_MAX.into());
                let again = now + us(100) * 100 / part;
                let all_again = budgets.total.paid_at;
                prop_assert!(budgets.has_credit(ids[account], again.max(all_again)));
                prop_assert!(all_again <= now + us(100) * 100 / u32::from(QOS_BUDGET_MAX));
            }
            for account in [Some(0), Some(1), Some(2), None] {
                let part = account.map_or(QOS_BUDGET_MAX.into(), |account: usize| parts[account]);
                let of = |one: &&(usize, Duration, Duration)| account.is_none_or(|it| it == one.0);
                let served: Vec<_> = served.iter().filter(of).collect();
                for (first, (_, begun, _)) in served.iter().enumerate() {
                    let mut used = Duration::ZERO;
                    for (_, since, until) in &served[first..] {
                        let time = (*since - *begun) + CREDIT_TIME;
                        prop_assert!(used * 100 <= time * part + us(20), "{account:?}");
                        used += *until - *since;
                    }
                }
            }
        }
    }
}
