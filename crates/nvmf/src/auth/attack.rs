//! Somebody in between, without a secret, who drops, repeats, reorders, swaps, changes and cuts
//! messages of several exchanges at a time, as a seed says.
//!
//! Whatever he does: who takes the other end for somebody has been answered by that one, to the
//! challenge of this exchange, with the same choice of hash function and group. To pass on
//! everything as it is remains possible, and is what a wire does.

use std::sync::Arc;

use weft_nvme::authentication::{HashId, MessageType, SecureChannel};

use super::host::{self, HostAction};
use super::message::{self, Challenge, Message, Reply};
use super::target::{self, AuthState, ReceiveAnswer};
use super::{Group, HashFunction, Names, Policy, Random, Secret};

/// A reproducible choice.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    fn random(&mut self) -> Random {
        Random::new(std::array::from_fn(|_| self.below(256).to_le_bytes()[0]))
    }
}

/// An end of a host, and what it has answered to which challenge.
struct Host {
    names: Names,
    end: host::Authenticator,
    next: HostAction,
    challenge: Vec<u8>,
    reply: Vec<u8>,
}

/// An end of a target, the challenge that it has given last, the one whose answer it has
/// believed, and the replies that it has got.
struct Target {
    names: Names,
    end: target::Authenticator,
    challenge: Vec<u8>,
    believed: Vec<u8>,
    replies: Vec<Vec<u8>>,
}

/// Exchanges at the same time, and every message that was seen of them.
struct Adversary {
    dice: Dice,
    policy: Arc<Policy>,
    hosts: Vec<Host>,
    targets: Vec<Target>,
    seen: Vec<Vec<u8>>,
    /// How many messages have not gone their way unchanged.
    meddled: usize,
}

fn names(host: &str) -> Names {
    let nqn = |text: &str| text.parse().expect("a name");
    Names { host: nqn(host), subsystem: nqn("nqn.subsystem") }
}

impl Adversary {
    /// Two hosts with the same secrets, which is the worst case, of which one comes twice; some
    /// make a key of TLS.
    fn new(seed: u64, group: Group) -> Self {
        let secret = |fill| Secret::new(&[fill; 32], None).expect("a secret");
        let policy = Policy {
            groups: [group].into(),
            hashes: [HashFunction::Sha384, HashFunction::Sha256].into(),
            ..Policy::new(secret(1), Some(secret(2)))
        };
        let policy = Arc::new(policy);
        let (mut hosts, mut targets) = (Vec::new(), Vec::new());
        for (number, host) in ["nqn.one", "nqn.two", "nqn.one"].into_iter().enumerate() {
            let transaction_id = u16::try_from(number % 2).expect("few");
            let mut end =
                host::Authenticator::new(names(host), Arc::clone(&policy), transaction_id);
            if number == 2 && group != Group::Null {
                end = end.with_secure_channel();
            }
            let next = HostAction::Send(end.start());
            let (challenge, reply) = (Vec::new(), Vec::new());
            hosts.push(Host { names: names(host), end, next, challenge, reply });
            let end = target::Authenticator::new(names(host), SecureChannel::NEW_TLS_PSK);
            let (challenge, believed, replies) = (Vec::new(), Vec::new(), Vec::new());
            targets.push(Target { names: names(host), end, challenge, believed, replies });
        }
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { dice, policy, hosts, targets, seen: Vec::new(), meddled: 0 }
    }

    /// One step of one exchange. Once in `calm` messages it is not the right message that goes on.
    fn step(&mut self, calm: usize) {
        let number = self.dice.below(self.hosts.len());
        match std::mem::replace(&mut self.hosts[number].next, HostAction::Done) {
            HostAction::Send(message) => {
                if message::header(&message).is_ok_and(|(kind, _)| kind == MessageType::REPLY) {
                    self.hosts[number].reply.clone_from(&message);
                }
                self.seen.push(message.clone());
                for message in self.on_the_way(message, calm) {
                    let to = self.addressee(number, calm);
                    self.send(to, &message);
                }
                let host = &mut self.hosts[number];
                host.next = host.end.sent();
            }
            HostAction::Receive(length) => {
                let from = self.addressee(number, calm);
                let message = self.receive(from, length);
                self.seen.push(message.clone());
                // A host that is given nothing waits, and gives up.
                let message = self.on_the_way(message, calm).pop().unwrap_or_default();
                let random = self.dice.random();
                let host = &mut self.hosts[number];
                host.next = host.end.received(&message, &random);
                // A challenge that it does not answer, such as a second one, is none of its.
                if let HostAction::Send(reply) = &host.next
                    && message::header(reply).is_ok_and(|(kind, _)| kind == MessageType::REPLY)
                {
                    host.challenge = message;
                }
            }
            ended => self.hosts[number].next = ended,
        }
    }

    fn addressee(&mut self, number: usize, calm: usize) -> usize {
        if self.dice.below(calm) > 0 {
            return number;
        }
        self.meddled += 1;
        self.dice.below(self.targets.len())
    }

    /// What becomes of a message: it goes on, is dropped, doubled, replaced or changed.
    fn on_the_way(&mut self, mut message: Vec<u8>, calm: usize) -> Vec<Vec<u8>> {
        if self.dice.below(calm) > 0 || message.is_empty() {
            return vec![message];
        }
        self.meddled += 1;
        let place = self.dice.below(message.len());
        match self.dice.below(8) {
            0 => return Vec::new(),
            1 => return vec![message.clone(), message],
            2 | 3 => message = self.seen[self.dice.below(self.seen.len())].clone(),
            4 => message.truncate(place),
            5 => message[place] ^= 1 << self.dice.below(8),
            // SC_C, or the length of a hash value; then what was chosen, or a boolean.
            6 => message[place.min(6)] = self.dice.below(4).to_le_bytes()[0],
            _ => {
                if let Some(place) = message.get_mut(8 + place % 2) {
                    *place = HashId::SHA_256.0;
                }
            }
        }
        vec![message]
    }

    fn send(&mut self, number: usize, message: &[u8]) {
        let random = self.dice.random();
        let target = &mut self.targets[number];
        if message::header(message).is_ok_and(|(kind, _)| kind == MessageType::REPLY) {
            target.replies.push(message.to_vec());
        }
        target.end.send(message, Some(&self.policy), &random);
        while let Some(work) = target.end.take_work() {
            target.end.finish(work.run());
        }
        target.believe();
    }

    fn receive(&mut self, number: usize, length: u32) -> Vec<u8> {
        let target = &mut self.targets[number];
        let ReceiveAnswer::Message(message) = target.end.receive(length) else {
            panic!("the work is done")
        };
        if message::header(&message).is_ok_and(|(kind, _)| kind == MessageType::CHALLENGE) {
            target.challenge.clone_from(&message);
        }
        target.believe();
        message
    }

    /// Checks who is authenticated, and returns how many ends are.
    fn check(&self, seed: u64) -> usize {
        let mut authenticated = 0;
        for (number, target) in self.targets.iter().enumerate() {
            if target.end.standing() == AuthState::Authenticated {
                authenticated += 1;
                let answers = self.hosts.iter().any(|host| host.has_answered(target));
                assert!(answers, "seed {seed}: target {number} believes a peer without the secret");
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            if host.next == HostAction::Done && !host.reply.is_empty() {
                authenticated += 1;
                let answers = self.targets.iter().any(|target| host.was_answered_by(target));
                assert!(answers, "seed {seed}: host {number} believes a peer without the secret");
            }
        }
        authenticated
    }
}

impl Target {
    /// An exchange that ends well is that of the last challenge; another may begin after it.
    fn believe(&mut self) {
        if self.end.standing() == AuthState::Authenticated && !self.end.is_under_way() {
            self.believed.clone_from(&self.challenge);
        }
    }
}

impl Host {
    /// Whether the response that a target has got to its challenge is this host's, and the two mean
    /// each other.
    fn has_answered(&self, target: &Target) -> bool {
        let (Some((id, own)), Some((_, given))) =
            (challenge(&self.challenge), challenge(&target.believed))
        else {
            return false;
        };
        self.means(target)
            && own == given
            && target.replies.iter().any(|reply| {
                matches!((reply_of(reply), reply_of(&self.reply)), (Some(got), Some(sent))
                    if got.0 == id
                        && (got.1.response, got.1.value) == (sent.1.response, sent.1.value))
            })
    }

    /// Whether a target has got this host's challenge, and has agreed to the same.
    fn was_answered_by(&self, target: &Target) -> bool {
        let (Some((_, own)), Some((_, given))) =
            (challenge(&self.challenge), challenge(&target.challenge))
        else {
            return false;
        };
        self.means(target)
            && (own.hash, own.group, own.value) == (given.hash, given.group, given.value)
            && target.replies.iter().any(|reply| {
                matches!((reply_of(reply), reply_of(&self.reply)), (Some(got), Some(sent))
                    if got.0 == sent.0
                        && (got.1.challenge, got.1.sequence, got.1.value)
                            == (sent.1.challenge, sent.1.sequence, sent.1.value))
            })
    }

    fn means(&self, target: &Target) -> bool {
        (self.names.host, self.names.subsystem) == (target.names.host, target.names.subsystem)
    }
}

/// A challenge and its transaction.
fn challenge(bytes: &[u8]) -> Option<(u16, Challenge<'_>)> {
    match Message::read(bytes) {
        Ok(Message::Challenge(challenge)) => Some((message::header(bytes).ok()?.1, challenge)),
        _ => None,
    }
}

/// A reply and its transaction.
fn reply_of(bytes: &[u8]) -> Option<(u16, Reply<'_>)> {
    match Message::read(bytes) {
        Ok(Message::Reply(reply)) => Some((message::header(bytes).ok()?.1, reply)),
        _ => None,
    }
}

/// Runs exchanges from seeds; returns how many ends were authenticated, and in how many runs
/// somebody has meddled and an end was authenticated nevertheless.
fn run(seeds: std::ops::Range<u64>, group: Group, calm: usize) -> (usize, usize) {
    let (mut authenticated, mut nevertheless) = (0, 0);
    for seed in seeds {
        let mut between = Adversary::new(seed, group);
        for _ in 0..40 {
            between.step(calm);
        }
        let found = between.check(seed);
        authenticated += found;
        nevertheless += usize::from(found > 0 && between.meddled > 0);
    }
    (authenticated, nevertheless)
}

#[test]
fn whatever_is_done_to_exchanges_nobody_is_taken_for_another() {
    // With nobody in between all of them end well: three hosts and three targets.
    assert_eq!(run(0..20, Group::Null, usize::MAX).0, 20 * 6);
    let (authenticated, nevertheless) = run(0..3000, Group::Null, 8);
    assert!(authenticated > 300 && nevertheless > 300, "{authenticated} {nevertheless}");
    run(0..3000, Group::Null, 3);
}

#[test]
fn nor_with_a_diffie_hellman_group_and_keys_of_tls() {
    assert_eq!(run(0..3, Group::Ffdhe2048, usize::MAX).0, 3 * 6);
    assert!(run(0..60, Group::Ffdhe2048, 8).0 > 20);
}

/// A challenge of a DH group is passed on as one without a group, or with another hash function.
#[test]
fn a_challenge_is_not_downgraded() {
    let secret = Secret::new(&[1; 32], None).expect("a secret");
    let policy = Arc::new(Policy::new(secret, None));
    for other in [Group::Null, Group::Ffdhe3072] {
        let mut end = host::Authenticator::new(names("nqn.one"), Arc::clone(&policy), 1);
        let mut target = target::Authenticator::new(names("nqn.one"), SecureChannel::NONE);
        let mut dice = Dice(7);
        target.send(&end.start(), Some(&policy), &dice.random());
        let work = target.take_work().expect("a pair of keys");
        target.finish(work.run());
        let ReceiveAnswer::Message(bytes) = target.receive(4096) else { panic!("a challenge") };
        let Ok(Message::Challenge(mut challenge)) = Message::read(&bytes) else {
            panic!("a challenge")
        };
        assert_eq!(challenge.group, Group::Ffdhe2048);
        let value = vec![5; other.value_length()];
        (challenge.group, challenge.value) = (other, &value);
        let downgraded = Message::Challenge(challenge).write(1);
        assert!(matches!(end.sent(), HostAction::Receive(_)));
        let HostAction::Send(reply) = end.received(&downgraded, &dice.random()) else {
            panic!("both are allowed to the host")
        };
        target.send(&reply, Some(&policy), &dice.random());
        while let Some(work) = target.take_work() {
            target.finish(work.run());
        }
        target.receive(4096);
        assert!(matches!(target.standing(), AuthState::Failed(_)), "{other}");
    }
}
