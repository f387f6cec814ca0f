//! Cases about timers, deadlines and mail.

use crate::harness::{Driver, assert_quiet, token, wait_for};
use std::time::Duration;
use weft_reactor::{Outcome, Patience};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn timers_fire_in_order_and_once(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let start = reactor.now();
    reactor.set_timer(token(1), start + ms(30));
    reactor.set_timer(token(2), start + ms(10));
    reactor.set_timer(token(3), start + ms(20));
    reactor.set_timer(token(4), start + ms(5));
    reactor.set_timer(token(4), start + ms(40));
    reactor.set_timer(token(5), start + ms(1));
    reactor.clear_timer(token(5));
    let completions = wait_for(&mut reactor, 4);
    assert!(reactor.now() >= start + ms(40));
    assert!(reactor.turn_time() >= start + ms(40));
    let tags: Vec<_> = completions.iter().map(|completion| completion.token.tag).collect();
    assert_eq!(tags, [2, 3, 1, 4]);
    assert!(completions.iter().all(|it| matches!(it.outcome, Outcome::Timer)));
    assert_quiet(&mut reactor, ms(20));
}

pub(crate) fn a_deadline_ends_the_wait(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let mut completions = Vec::new();
    let until = reactor.now() + ms(15);
    reactor.poll(Patience::Until(until), &mut completions);
    assert!(reactor.now() >= until);
    assert!(completions.is_empty());
    // A time that is over does not wait at all.
    reactor.poll(Patience::Until(until), &mut completions);
    reactor.poll(Patience::NoWait, &mut completions);
    assert!(completions.is_empty());
    // Patience of every kind ends with a timer.
    for patience in [Patience::Spin, Patience::Sleep, Patience::Adaptive { grace: ms(1) }] {
        reactor.set_timer(token(1), reactor.now() + ms(3));
        while completions.is_empty() {
            reactor.poll(patience, &mut completions);
        }
        assert!(matches!(completions.remove(0).outcome, Outcome::Timer));
    }
}

pub(crate) fn mail_ends_the_wait(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (postbox, mailbox) = reactor.mailbox::<u32>();
    let mut completions = Vec::new();
    for patience in [Patience::Spin, Patience::Sleep, Patience::Adaptive { grace: ms(1) }] {
        postbox.post(5);
        reactor.poll(patience, &mut completions);
        assert_eq!(mailbox.take(), Some(5));
        assert_eq!(mailbox.take(), None);
    }
    assert!(completions.is_empty());
}
