//! How much of a group's time its express queues may use.
//!
//! An account has a part of the time. What the queues of an account use is charged to it and to the
//! account of all together; both must have credit before one of them is served. What an account has
//! not used in the last [`CREDIT_TIME`] it can use at once, what is older is lost.

use std::time::Duration;

use crate::classes::Grant;
use crate::config::{QOS_BUDGET_DEFAULT, QOS_BUDGET_MAX, QosClass, QosRule};

/// The time of which an account can use its part at once.
const CREDIT_TIME: Duration = Duration::from_millis(1);

/// Accounts that are there without a rule.
const FIXED: usize = 2;

/// An account's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountId(usize);

impl AccountId {
    /// That of all queues that are express by themselves.
    const AUTOMATIC: Self = Self(0);
    /// That of all queues whose hosts asked for it.
    const CONNECT: Self = Self(1);

    /// The account of a queue with this grant.
    pub(crate) const fn of(grant: Grant) -> Self {
        match grant {
            Grant::Automatic => Self::AUTOMATIC,
            Grant::Connect(_) => Self::CONNECT,
            Grant::Rule(_, place) => Self(FIXED + place),
        }
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

#[derive(Debug, Clone, Copy)]
struct Account {
    /// Its part of the time.
    percent: u32,
    /// The time at which its part of the time covers what was used.
    paid_at: Duration,
    /// Its express queues.
    queues: usize,
}

impl Account {
    fn new(percent: u8) -> Self {
        Self { percent: u32::from(percent).max(1), paid_at: Duration::ZERO, queues: 0 }
    }

    fn charge(&mut self, took: Duration, now: Duration) {
        let since = self.paid_at.max(now.saturating_sub(CREDIT_TIME));
        self.paid_at = since + took * 100 / self.percent;
    }
}

impl Budgets {
    /// The accounts where these rules are in force.
    pub(crate) fn new(rules: &[QosRule]) -> Self {
        let fixed = [Account::new(QOS_BUDGET_DEFAULT); FIXED];
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
        let before = std::mem::replace(self, Self::new(new));
        self.total.paid_at = before.total.paid_at;
        let place_before = |place: usize| match place.checked_sub(FIXED) {
            None => Some(place),
            Some(rule) => {
                let rule = new.get(rule)?;
                Some(FIXED + old.iter().position(|one| one.has_scope_of(rule))?)
            }
        };
        for (place, account) in self.accounts.iter_mut().enumerate() {
            let old = place_before(place).and_then(|place| before.accounts.get(place));
            account.paid_at = old.map_or(Duration::ZERO, |old| old.paid_at);
        }
    }

    /// One more queue of this account is express.
    pub(crate) fn enter(&mut self, account: AccountId) {
        if let Some(account) = self.accounts.get_mut(account.0) {
            account.queues += 1;
        }
        self.settle();
    }

    /// One fewer is.
    pub(crate) fn leave(&mut self, account: AccountId) {
        if let Some(account) = self.accounts.get_mut(account.0) {
            account.queues = account.queues.saturating_sub(1);
        }
        self.settle();
    }

    /// Whether a queue of some account has credit, if all accounts with queues are asked.
    pub(crate) fn may_have_credit(&self, now: Duration) -> bool {
        self.credit_at <= now
    }

    /// Whether the queues of an account have credit: otherwise they are served in their turn.
    pub(crate) fn has_credit(&self, account: AccountId, now: Duration) -> bool {
        let paid_at = self.accounts.get(account.0).map_or(Duration::MAX, |one| one.paid_at);
        self.total.paid_at.max(paid_at) <= now
    }

    /// A queue of this account was served until now, for so long.
    pub(crate) fn charge(&mut self, account: AccountId, took: Duration, now: Duration) {
        self.total.charge(took, now);
        if let Some(account) = self.accounts.get_mut(account.0) {
            account.charge(took, now);
        }
        self.settle();
    }

    fn settle(&mut self) {
        let used = self.accounts.iter().filter(|account| account.queues > 0);
        let first = used.map(|account| account.paid_at).min();
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
            host: Some(host.to_owned()),
            subsystem: None,
            port: None,
            class: QosClass::Latency,
            budget: Some(budget),
            weight: None,
        }
    }

    fn of_rule(place: usize) -> AccountId {
        AccountId::of(Grant::Rule(QosClass::Latency, place))
    }

    #[test]
    fn an_account_without_credit_leaves_the_others_theirs() {
        let mut budgets = Budgets::new(&[rule("a", 50)]);
        let (automatic, ruled) = (AccountId::of(Grant::Automatic), of_rule(0));
        budgets.enter(automatic);
        budgets.enter(ruled);
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
        budgets.enter(AccountId::AUTOMATIC);
        budgets.charge(AccountId::AUTOMATIC, us(300), us(10_000));
        assert!(!budgets.may_have_credit(us(10_199)) && budgets.may_have_credit(us(10_200)));
        budgets.enter(of_rule(0));
        assert!(budgets.may_have_credit(us(10_000)));
        budgets.leave(of_rule(0));
        assert!(!budgets.may_have_credit(us(10_199)));
    }

    #[test]
    fn what_was_used_stays_used_while_its_rule_is_there() {
        let old = [rule("a", 10), rule("b", 20)];
        let mut budgets = Budgets::new(&old);
        budgets.charge(AccountId::CONNECT, us(300), us(10_000));
        budgets.charge(of_rule(1), us(300), us(10_000));
        budgets.replace(&old, &[rule("b", 30), rule("c", 10)]);
        assert!(!budgets.has_credit(AccountId::CONNECT, us(10_199)));
        assert!(!budgets.has_credit(of_rule(0), us(10_400)), "300 µs are a fifth of 1500");
        assert!(budgets.has_credit(of_rule(0), us(10_500)));
        assert!(budgets.has_credit(of_rule(1), us(10_000)));
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
            let mut now = us(10_000);
            let mut served = Vec::new();
            for (account, pause, took) in services {
                now += us(pause);
                if budgets.has_credit(AccountId(account), now) {
                    let begun = now;
                    now += us(took);
                    budgets.charge(AccountId(account), us(took), now);
                    served.push((account, begun, now));
                }
                let part = parts[account].min(QOS_BUDGET_MAX.into());
                let again = now + us(100) * 100 / part;
                let all_again = budgets.total.paid_at;
                prop_assert!(budgets.has_credit(AccountId(account), again.max(all_again)));
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
