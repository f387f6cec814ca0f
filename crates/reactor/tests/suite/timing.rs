//! Cases about timers, deadlines and mail.

use crate::harness::{Driver, assert_quiet, connection, outcome_of, token, wait_for};
use std::sync::mpsc;
use std::time::Duration;
use weft_reactor::{Operation, Outcome, WaitLimit, thread_cpu_time};

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
    reactor.poll(WaitLimit::Until(until), &mut completions);
    assert!(reactor.now() >= until);
    assert!(completions.is_empty());
    // A time that is over does not wait at all.
    reactor.poll(WaitLimit::Until(until), &mut completions);
    reactor.poll(WaitLimit::NoWait, &mut completions);
    assert!(completions.is_empty());
    // WaitLimit of every kind ends with a timer.
    for patience in [WaitLimit::Spin, WaitLimit::Sleep, WaitLimit::Adaptive { grace: ms(1) }] {
        reactor.set_timer(token(1), reactor.now() + ms(3));
        while completions.is_empty() {
            reactor.poll(patience, &mut completions);
        }
        assert!(matches!(completions.remove(0).outcome, Outcome::Timer));
    }
}

pub(crate) fn who_has_waited_for_long_sleeps_at_once(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let mut completions = Vec::new();
    reactor.set_timer(token(1), reactor.now() + ms(15));
    while completions.is_empty() {
        reactor.poll(WaitLimit::Sleep, &mut completions);
    }
    let waited = reactor.last_wait();
    assert!(waited >= ms(10), "{waited:?}");
    // What is there at once is no wait, and one until a time does not count.
    reactor.set_timer(token(1), reactor.now());
    reactor.poll(WaitLimit::Sleep, &mut completions);
    reactor.poll(WaitLimit::Until(reactor.now() + ms(40)), &mut completions);
    assert_eq!((completions.len(), reactor.last_wait()), (2, waited));
    assert_eq!(WaitLimit::after(waited, waited / 3), WaitLimit::Sleep);
    let grace = waited / 2 + ms(1);
    assert_eq!(WaitLimit::after(waited, grace), WaitLimit::Adaptive { grace });
}

pub(crate) fn mail_ends_the_wait(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (sender, mailbox) = reactor.mailbox::<u32>();
    let mut completions = Vec::new();
    for patience in [WaitLimit::Spin, WaitLimit::Sleep, WaitLimit::Adaptive { grace: ms(1) }] {
        sender.post(5);
        reactor.poll(patience, &mut completions);
        assert_eq!(mailbox.take(), Some(5));
        assert_eq!(mailbox.take(), None);
    }
    assert!(completions.is_empty());
}

pub(crate) fn files_and_sockets_share_a_turn(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    let (file, _) = driver.file(&mut reactor);
    let mut completions = Vec::new();
    // However long one of them is busy, the others come through; with every kind of patience.
    for (round, patience) in (0u32..60).zip(
        [
            WaitLimit::NoWait,
            WaitLimit::Spin,
            WaitLimit::Sleep,
            WaitLimit::Adaptive { grace: ms(1) },
        ]
        .into_iter()
        .cycle(),
    ) {
        let buffer = reactor.pool().take(4096).unwrap();
        let offset = u64::from(round) * 4096;
        let range = 0..4096;
        reactor.submit(token(1), Operation::Write { file, offset, buffer, range, durable: false });
        reactor.submit(token(2), Operation::Receive { socket: server });
        let mut message = weft_reactor::Message::new();
        message.bytes(b"round");
        reactor.submit(token(3), Operation::Send { socket: client, message });
        reactor.set_timer(token(4), reactor.now() + ms(1));
        let mut received = 0;
        let (mut written, mut sent, mut fired) = (0, 0, 0);
        while (received, written, sent, fired) != (5, 1, 1, 1) {
            reactor.poll(patience, &mut completions);
            if patience == WaitLimit::NoWait && completions.is_empty() {
                // Virtual time passes only by waiting.
                reactor.poll(WaitLimit::Until(reactor.now() + ms(1)), &mut completions);
            }
            for completion in completions.drain(..) {
                match completion.outcome {
                    Outcome::Transferred { .. } => written += 1,
                    Outcome::Sent { .. } => sent += 1,
                    Outcome::Timer => fired += 1,
                    Outcome::Received { len, .. } => {
                        received += len;
                        if received < 5 {
                            reactor.submit(token(2), Operation::Receive { socket: server });
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

enum Mail {
    Question(u64, mpsc::Sender<u64>),
    /// A sender has all its answers.
    Done,
    /// A sender waited in vain.
    Lost,
}

/// Four threads and a reactor that falls asleep as often as it can. After a lost wake-up it would
/// sleep on, with mail in its box, while all the senders wait for their answers.
pub(crate) fn mail_from_other_threads_is_never_lost(driver: &impl Driver) {
    const ROUNDS: u64 = 2000;
    let mut reactor = driver.reactor();
    let (sender, mailbox) = reactor.mailbox();
    for number in 0..4 {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let (answer, answers) = mpsc::channel();
            for round in 0..ROUNDS {
                // Alone and in bursts.
                let burst = 1 + (round + number) % 3;
                for n in 0..burst {
                    sender.post(Mail::Question(round * 10 + n, answer.clone()));
                }
                for n in 0..burst {
                    if answers.recv_timeout(Duration::from_secs(20)) != Ok(round * 10 + n) {
                        return sender.post(Mail::Lost);
                    }
                }
            }
            sender.post(Mail::Done);
        });
    }
    let mut completions = Vec::new();
    let mut done = 0;
    for turn in 0u32.. {
        let patience = match turn % 4 {
            0 => WaitLimit::NoWait,
            1 => WaitLimit::Adaptive { grace: Duration::from_micros(20) },
            2 => WaitLimit::Sleep,
            _ => WaitLimit::Until(reactor.now() + Duration::from_secs(60)),
        };
        reactor.poll(patience, &mut completions);
        while let Some(mail) = mailbox.take() {
            match mail {
                Mail::Question(number, answer) => answer.send(number).unwrap(),
                Mail::Done => done += 1,
                Mail::Lost => panic!("the reactor slept on its mail"),
            }
        }
        if done == 4 {
            break;
        }
    }
}

pub(crate) fn an_idle_reactor_uses_no_cpu(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (_, client, server) = connection(&mut reactor);
    reactor.submit(token(1), Operation::Receive { socket: client });
    reactor.submit(token(2), Operation::Receive { socket: server });
    let mut completions = Vec::new();
    let before = thread_cpu_time();
    reactor.set_timer(token(3), reactor.now() + ms(400));
    while completions.is_empty() {
        reactor.poll(WaitLimit::Adaptive { grace: ms(2) }, &mut completions);
    }
    let used = thread_cpu_time() - before;
    // The grace, and a hundred times what one wake-up takes.
    assert!(used < ms(50), "{used:?} of 400 ms");
}

pub(crate) fn a_call_from_another_thread_ends_a_sleep(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let waker = reactor.waker();
    let caller = std::thread::spawn(move || {
        std::thread::sleep(ms(30));
        waker.wake();
    });
    let mut completions = Vec::new();
    let before = reactor.now();
    reactor.poll(WaitLimit::Sleep, &mut completions);
    assert!(completions.is_empty());
    assert!(reactor.now() - before >= ms(25));
    caller.join().unwrap();
    // A timer set for the past fires at once.
    reactor.set_timer(token(9), before);
    assert!(matches!(outcome_of(&mut reactor, 9), Outcome::Timer));
}
