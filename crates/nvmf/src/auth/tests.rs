//! Exchanges between the two ends, undisturbed and with someone in between.

use std::sync::Arc;

use proptest::prelude::*;
use weft_nvme::Nqn;
use weft_nvme::authentication::{FailureReason, SecureChannel};

use super::host::{self, HostAction, Problem};
use super::target::{self, AuthState, ReceiveAnswer};
use super::{Group, HashFunction, Names, Policy, Random, Secret};

pub(super) fn hex(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).expect("a byte");
    (0..text.len()).step_by(2).map(byte).collect()
}

pub(super) fn names() -> Names {
    let nqn = |text: &str| text.parse::<Nqn>().expect("a name");
    Names { host: nqn("nqn.psk-test-host"), subsystem: nqn("nqn.psk-test-subsys") }
}

fn secret(seed: u8, length: usize, transform: Option<HashFunction>) -> Secret {
    Secret::new(&vec![seed; length], transform).expect("a secret")
}

fn policy(hash: HashFunction, group: Group, mutual: bool) -> Policy {
    let controller = mutual.then(|| secret(2, hash.length(), Some(hash)));
    Policy {
        hashes: [hash].into(),
        groups: [group].into(),
        ..Policy::new(secret(1, 32, None), controller)
    }
}

fn random(seed: u8) -> Random {
    let mut byte = seed.wrapping_mul(101);
    Random::new(std::array::from_fn(|_| {
        byte = byte.wrapping_add(1);
        byte
    }))
}

/// The two ends, and what became of them.
struct ExchangePair {
    host: host::Authenticator,
    target: target::Authenticator,
    policy: Arc<Policy>,
    seed: u8,
}

impl ExchangePair {
    fn new(host: Policy, target: Policy) -> Self {
        Self {
            host: host::Authenticator::new(names(), Arc::new(host), 7),
            target: target::Authenticator::new(names(), SecureChannel::NEW_TLS_PSK),
            policy: Arc::new(target),
            seed: 1,
        }
    }

    /// Runs an exchange; `meddle` sees each message, counted from 0, and may change it.
    fn run(&mut self, mut meddle: impl FnMut(usize, &mut Vec<u8>)) -> (HostAction, AuthState) {
        let mut count = 0;
        let mut meddle = |bytes: &mut Vec<u8>| {
            meddle(count, bytes);
            count += 1;
        };
        let mut next = HostAction::Send(self.host.start());
        loop {
            next = match next {
                HostAction::Send(mut bytes) => {
                    meddle(&mut bytes);
                    self.send(&bytes);
                    self.host.sent()
                }
                HostAction::Receive(length) => {
                    let mut bytes = self.receive(length);
                    meddle(&mut bytes);
                    self.seed += 1;
                    self.host.received(&bytes, &random(self.seed))
                }
                HostAction::Done => return (HostAction::Done, self.target.standing()),
                HostAction::Failed(problem, farewell) => {
                    if let Some(bytes) = &farewell {
                        self.send(bytes);
                    }
                    return (HostAction::Failed(problem, farewell), self.target.standing());
                }
            };
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.seed += 1;
        self.target.send(bytes, Some(&self.policy), &random(self.seed));
        while let Some(work) = self.target.take_work() {
            self.target.finish(work.run());
        }
    }

    fn receive(&mut self, length: u32) -> Vec<u8> {
        match self.target.receive(length) {
            ReceiveAnswer::Message(bytes) => bytes,
            ReceiveAnswer::Pending => panic!("the work is done"),
        }
    }
}

fn undisturbed(host: Policy, target: Policy) -> (HostAction, AuthState) {
    ExchangePair::new(host, target).run(|_, _| {})
}

#[test]
fn every_hash_function_and_group_in_both_directions() {
    for hash in HashFunction::ALL {
        for group in Group::ALL {
            for mutual in [false, true] {
                let policy = policy(hash, group, mutual);
                let ended = undisturbed(policy.clone(), policy);
                assert_eq!(
                    ended,
                    (HostAction::Done, AuthState::Authenticated),
                    "{hash} {group} {mutual}"
                );
            }
        }
    }
}

#[test]
fn a_queue_authenticates_again() {
    let policy = policy(HashFunction::Sha384, Group::Ffdhe2048, true);
    let mut pair = ExchangePair::new(policy.clone(), policy.clone());
    assert_eq!(pair.run(|_, _| {}).1, AuthState::Authenticated);
    pair.host = host::Authenticator::new(names(), Arc::new(policy.clone()), 8);
    let standing = pair.run(|_, _| {});
    assert_eq!(standing, (HostAction::Done, AuthState::Authenticated));
    // With another key, as after a change at the target only.
    pair.policy = Arc::new(Policy { secret: secret(9, 32, None), ..policy.clone() });
    pair.host = host::Authenticator::new(names(), Arc::new(policy), 9);
    assert_eq!(pair.run(|_, _| {}).1, AuthState::Failed(FailureReason::FAILED));
}

#[test]
fn wrong_secrets_are_refused() {
    let good = policy(HashFunction::Sha256, Group::Null, true);
    let wrong_host = Policy { secret: secret(3, 32, None), ..good.clone() };
    let (ended, standing) = undisturbed(wrong_host, good.clone());
    assert_eq!(ended, HostAction::Failed(Problem::Refused(FailureReason::FAILED), None));
    assert_eq!(standing, AuthState::Failed(FailureReason::FAILED));
    let other = Some(secret(4, 32, None));
    let wrong_controller = Policy { controller_secret: other, ..good.clone() };
    let (ended, standing) = undisturbed(good.clone(), wrong_controller);
    assert!(matches!(ended, HostAction::Failed(Problem::WrongController, Some(_))), "{ended:?}");
    assert_eq!(standing, AuthState::Failed(FailureReason::FAILED));
    let none = Policy { controller_secret: None, ..good.clone() };
    let (ended, standing) = undisturbed(good, none);
    assert_eq!(ended, HostAction::Failed(Problem::Refused(FailureReason::FAILED), None));
    assert_eq!(standing, AuthState::Failed(FailureReason::FAILED));
}

#[test]
fn the_target_chooses_by_its_own_order() {
    let host = Policy::new(secret(1, 32, None), None);
    let hashes = [HashFunction::Sha512, HashFunction::Sha256].into();
    let groups = [Group::Null, Group::Ffdhe2048].into();
    let target = Policy { hashes, groups, ..host.clone() };
    let mut pair = ExchangePair::new(host, target);
    pair.send(&pair.host.start());
    assert_eq!(pair.target.choice(), Some((HashFunction::Sha512, Group::Null)));
}

#[test]
fn nothing_in_common() {
    let host = policy(HashFunction::Sha256, Group::Null, false);
    for (hash, group, reason) in [
        (HashFunction::Sha512, Group::Null, FailureReason::HASH_NOT_USABLE),
        (HashFunction::Sha256, Group::Ffdhe2048, FailureReason::GROUP_NOT_USABLE),
    ] {
        let (ended, standing) = undisturbed(host.clone(), policy(hash, group, false));
        assert_eq!(ended, HostAction::Failed(Problem::Refused(reason), None));
        assert_eq!(standing, AuthState::Failed(reason));
    }
}

#[test]
fn concatenation_makes_the_same_psk_at_both_ends() {
    for mutual in [false, true] {
        let policy = Policy {
            groups: [Group::Null, Group::Ffdhe2048].into(),
            hashes: [HashFunction::Sha512, HashFunction::Sha384].into(),
            ..policy(HashFunction::Sha384, Group::Null, mutual)
        };
        let mut pair = ExchangePair::new(policy.clone(), policy);
        pair.host = pair.host.with_secure_channel();
        assert_eq!(pair.run(|_, _| {}), (HostAction::Done, AuthState::Authenticated));
        let own = pair.host.take_generated_psk().expect("a PSK");
        let theirs = pair.target.take_generated_psk().expect("a PSK");
        assert_eq!((own.hash, &own.psk), (theirs.hash, &theirs.psk));
        assert_eq!((own.hash, own.psk.len()), (HashFunction::Sha384, 48));
        assert_eq!(format!("{own:?}"), "GeneratedPsk { hash: Sha384, .. }");
    }
}

/// The host refuses the controller after the target has accepted the host.
#[test]
fn a_failed_exchange_has_no_psk() {
    let own = policy(HashFunction::Sha256, Group::Ffdhe2048, true);
    let theirs = Policy { controller_secret: Some(secret(3, 32, None)), ..own.clone() };
    let mut pair = ExchangePair::new(own, theirs);
    pair.host = pair.host.with_secure_channel();
    let (next, standing) = pair.run(|_, _| {});
    assert!(matches!(next, HostAction::Failed(Problem::WrongController, _)), "{next:?}");
    assert_eq!(standing, AuthState::Failed(FailureReason::FAILED));
    assert!(pair.host.take_generated_psk().is_none());
    assert!(pair.target.take_generated_psk().is_none());
}

/// The secret of the exchange as the key of a HMAC (Linux before 7.1), and its hash value.
#[test]
fn both_ways_of_hashing_the_secret_make_the_same_psk() {
    for hash in HashFunction::ALL {
        for group in Group::ALL.into_iter().filter(|group| *group != Group::Null) {
            let secret: Vec<u8> = (0..=255).cycle().take(group.value_length()).collect();
            let psk = super::GeneratedPsk::new(hash, &secret, [b"C1", b"C2"]);
            assert_eq!(psk.psk, hash.hmac(&secret, &[b"C1", b"C2"]), "{hash} {group}");
        }
    }
}

#[test]
fn concatenation_is_refused_where_it_is_not_offered() {
    let policy = policy(HashFunction::Sha256, Group::Ffdhe2048, false);
    let mut pair = ExchangePair::new(policy.clone(), policy);
    pair.host = pair.host.with_secure_channel();
    pair.target = target::Authenticator::new(names(), SecureChannel::NONE);
    let reason = FailureReason::CONCATENATION_MISMATCH;
    assert_eq!(pair.run(|_, _| {}).1, AuthState::Failed(reason));
}

/// On a queue over TLS the same exchange makes another PSK, and a new channel is not to be had.
#[test]
fn the_psk_of_a_channel_is_replaced() {
    let policy = policy(HashFunction::Sha256, Group::Ffdhe2048, true);
    let mut pair = ExchangePair::new(policy.clone(), policy.clone());
    pair.target = target::Authenticator::over_channel(names());
    assert_eq!(pair.target.standing(), AuthState::Authenticated, "by its key");
    let mut psks = Vec::new();
    for transaction in [8, 9] {
        let host = host::Authenticator::new(names(), Arc::new(policy.clone()), transaction);
        pair.host = host.with_other_psk();
        assert_eq!(pair.run(|_, _| {}), (HostAction::Done, AuthState::Authenticated));
        let own = pair.host.take_generated_psk().expect("a PSK");
        let theirs = pair.target.take_generated_psk().expect("a PSK");
        assert_eq!((own.hash, &own.psk), (theirs.hash, &theirs.psk));
        psks.push(own.psk);
    }
    assert_ne!(psks[0], psks[1]);
    // Without another PSK it is an ordinary exchange, and leaves the one that there is.
    pair.host = host::Authenticator::new(names(), Arc::new(policy.clone()), 10);
    assert_eq!(pair.run(|_, _| {}), (HostAction::Done, AuthState::Authenticated));
    assert!(pair.target.take_generated_psk().is_none());
    let mismatch = AuthState::Failed(FailureReason::CONCATENATION_MISMATCH);
    let host = host::Authenticator::new(names(), Arc::new(policy.clone()), 11);
    pair.host = host.with_secure_channel();
    assert_eq!(pair.run(|_, _| {}).1, mismatch, "the queue has a channel");
    let mut pair = ExchangePair::new(policy.clone(), policy);
    pair.host = pair.host.with_other_psk();
    assert_eq!(pair.run(|_, _| {}).1, mismatch, "the queue has none");
}

/// Whoever takes SC_C out of the offer, or puts it in, ends the exchange, with whatever the target
/// would have served without a channel.
#[test]
fn a_channel_is_neither_left_out_nor_put_in_by_somebody_in_between() {
    for (wants, sent) in [(true, SecureChannel::NONE), (false, SecureChannel::NEW_TLS_PSK)] {
        let policy = policy(HashFunction::Sha256, Group::Ffdhe2048, false);
        let mut pair = ExchangePair::new(policy.clone(), policy);
        if wants {
            pair.host = pair.host.with_secure_channel();
        }
        let (next, standing) = pair.run(|count, bytes| {
            if count == 0 {
                bytes[6] = sent.0;
            }
        });
        assert_eq!(next, HostAction::Failed(Problem::Refused(FailureReason::FAILED), None));
        assert_eq!(standing, AuthState::Failed(FailureReason::FAILED));
        assert!(pair.target.take_generated_psk().is_none());
    }
}

#[test]
fn a_host_that_has_to_make_a_channel_is_refused_without() {
    let own = policy(HashFunction::Sha256, Group::Ffdhe2048, false);
    let required = Policy { requires_channel: true, ..own.clone() };
    let mismatch = AuthState::Failed(FailureReason::CONCATENATION_MISMATCH);
    assert_eq!(undisturbed(own.clone(), required.clone()).1, mismatch);
    let mut pair = ExchangePair::new(own.clone(), required.clone());
    pair.host = pair.host.with_secure_channel();
    assert_eq!(pair.run(|_, _| {}).1, AuthState::Authenticated);
    // Over TLS there is one.
    let mut pair = ExchangePair::new(own, required);
    pair.target = target::Authenticator::over_channel(names());
    assert_eq!(pair.run(|_, _| {}).1, AuthState::Authenticated);
}

/// Linux before 7.1 leaves SC_C out of the controller's response: as target the same is chosen for
/// such a host, and as host both are taken.
#[test]
fn the_controllers_response_is_taken_with_and_without_the_channel() {
    for old_channel in [false, true] {
        let own = policy(HashFunction::Sha256, Group::Ffdhe2048, true);
        let mut pair = ExchangePair::new(own.clone(), Policy { old_channel, ..own });
        pair.host = pair.host.with_secure_channel();
        let mut responses = Vec::new();
        let ended = pair.run(|count, bytes| {
            if count == 3 {
                responses.push(bytes.split_off(16));
                bytes.extend_from_slice(&responses[0]);
            }
        });
        assert_eq!(ended, (HostAction::Done, AuthState::Authenticated), "{old_channel}");
        assert_eq!(responses.len(), 1);
    }
}

/// Bytes of each message that mean nothing: reserved ones, and a failure's own.
fn is_reserved(message: usize, position: usize) -> bool {
    match message {
        // Header, then a descriptor: the host's lists have one entry each, and longer ones have
        // empty places besides.
        0 => matches!(position, 2 | 3 | 9..=11 | 13..=41 | 43..),
        1 => matches!(position, 2 | 3 | 7),
        2 => matches!(position, 2 | 3 | 7 | 9),
        3 => matches!(position, 2 | 3 | 7 | 9..=15),
        _ => matches!(position, 2 | 3 | 6..),
    }
}

/// Whoever changes one bit of any message makes the exchange fail at one end at least.
#[test]
fn no_flipped_bit_is_accepted() {
    let policy = policy(HashFunction::Sha256, Group::Null, true);
    let mut lengths = Vec::new();
    ExchangePair::new(policy.clone(), policy.clone()).run(|_, bytes| lengths.push(bytes.len()));
    assert_eq!(lengths.len(), 5, "five messages");
    for (message, length) in lengths.into_iter().enumerate() {
        for position in (0..length).filter(|position| !is_reserved(message, *position)) {
            for bit in 0..8 {
                let ended =
                    ExchangePair::new(policy.clone(), policy.clone()).run(|count, bytes| {
                        if count == message {
                            bytes[position] ^= 1 << bit;
                        }
                    });
                // Values of a boolean other than 0 are true; the response then still has to match.
                let harmless = ended == (HostAction::Done, AuthState::Authenticated);
                let is_boolean = matches!((message, position), (2 | 3, 8)) && bit > 0;
                // Transaction identifiers and types are in every message, the rest is hashed.
                assert!(!harmless || is_boolean, "message {message} byte {position} bit {bit}");
            }
        }
    }
}

/// Wherever a message is cut, the exchange fails.
#[test]
fn no_message_that_is_cut_is_accepted() {
    let policy = policy(HashFunction::Sha256, Group::Ffdhe2048, true);
    let mut lengths = Vec::new();
    ExchangePair::new(policy.clone(), policy.clone()).run(|_, bytes| lengths.push(bytes.len()));
    for (message, length) in lengths.into_iter().enumerate() {
        // Powers take time: a stride over the DH value, each byte of the rest.
        for cut in (0..length).filter(|cut| *cut < 80 || cut % 16 == 0 || cut + 1 == length) {
            let ended = ExchangePair::new(policy.clone(), policy.clone()).run(|count, bytes| {
                if count == message {
                    bytes.truncate(cut);
                }
            });
            assert_ne!(ended, (HostAction::Done, AuthState::Authenticated), "{message} at {cut}");
        }
    }
}

/// The messages of one exchange are of no use in another, to neither end.
#[test]
fn replayed_messages_are_refused() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let policy = policy(HashFunction::Sha256, group, true);
        let mut recorded = Vec::new();
        ExchangePair::new(policy.clone(), policy.clone())
            .run(|_, bytes| recorded.push(bytes.clone()));
        // Negotiate has nothing that is fresh: replaying it changes nothing.
        for replayed in 1..5 {
            let mut pair = ExchangePair::new(policy.clone(), policy.clone());
            pair.seed = 100;
            let ended = pair.run(|count, bytes| {
                if count == replayed {
                    bytes.clone_from(&recorded[count]);
                }
            });
            // Success2 has nothing that is fresh either, but comes after both have proved all.
            let both = ended == (HostAction::Done, AuthState::Authenticated);
            assert_eq!(both, replayed == 4, "{group} message {replayed}");
        }
    }
}

/// A peer that has no secret reflects the host's challenge to it, to have it answered by the
/// host itself: the roles are in the responses.
#[test]
fn a_reflected_challenge_is_of_no_use() {
    let same = secret(1, 32, None);
    let policy = Policy {
        controller_secret: Some(same.clone()),
        ..policy(HashFunction::Sha256, Group::Null, true)
    };
    let names = Names { host: names().host, subsystem: names().host };
    let mut victim = host::Authenticator::new(names.clone(), Arc::new(policy.clone()), 7);
    let mut oracle = host::Authenticator::new(names, Arc::new(policy.clone()), 7);
    assert_eq!(victim.start(), oracle.start());
    assert!(
        matches!(victim.sent(), HostAction::Receive(_))
            && matches!(oracle.sent(), HostAction::Receive(_))
    );
    let challenge = |value: &[u8], sequence: u32| {
        let challenge = super::message::Challenge {
            hash: HashFunction::Sha256,
            group: Group::Null,
            sequence,
            challenge: value,
            value: &[],
        };
        super::message::Message::Challenge(challenge).write(7)
    };
    let HostAction::Send(reply) = victim.received(&challenge(&[5; 32], 1), &random(1)) else {
        panic!("a reply")
    };
    let (own, sequence) =
        (&reply[48..80], u32::from_le_bytes(reply[12..16].try_into().expect("4")));
    let HostAction::Send(reflected) = oracle.received(&challenge(own, sequence), &random(2)) else {
        panic!("a reply")
    };
    assert!(matches!(victim.sent(), HostAction::Receive(_)));
    let response = Some(&reflected[16..48]);
    let success = super::message::Message::Success1 { response, hash_length: 32 };
    let ended = victim.received(&success.write(7), &random(3));
    assert!(matches!(ended, HostAction::Failed(Problem::WrongController, Some(_))), "{ended:?}");
}

/// Someone in between takes the stronger offers away: the end that still allows the weaker ones
/// goes on, the end that does not refuses.
#[test]
fn what_was_not_offered_is_not_accepted() {
    let host = policy(HashFunction::Sha512, Group::Ffdhe2048, false);
    let all = Policy::new(host.secret.clone(), None);
    // The lists of Negotiate are at bytes 12 and 42.
    let downgrade = |count: usize, bytes: &mut Vec<u8>| {
        if count == 0 {
            bytes[12] = 1;
            bytes[42] = 0;
        }
    };
    let (ended, standing) = ExchangePair::new(host, all).run(downgrade);
    let reason = FailureReason::HASH_NOT_USABLE;
    assert!(matches!(ended, HostAction::Failed(Problem::Invalid(found), _) if found == reason));
    assert_eq!(standing, AuthState::Failed(reason));
}

#[test]
fn messages_out_of_order_are_refused() {
    let policy = policy(HashFunction::Sha256, Group::Null, true);
    let mut recorded = Vec::new();
    ExchangePair::new(policy.clone(), policy.clone()).run(|_, bytes| recorded.push(bytes.clone()));
    for sent in &recorded[1..] {
        let mut pair = ExchangePair::new(policy.clone(), policy.clone());
        pair.send(sent);
        assert_eq!(pair.target.standing(), AuthState::Unauthenticated);
        pair.receive(4096);
        assert!(matches!(pair.target.standing(), AuthState::Failed(_)));
    }
    // Receive before anything was sent, and a second Negotiate.
    let mut pair = ExchangePair::new(policy.clone(), policy.clone());
    pair.receive(4096);
    assert_eq!(pair.target.standing(), AuthState::Failed(FailureReason::INCORRECT_MESSAGE));
    let mut pair = ExchangePair::new(policy.clone(), policy);
    pair.send(&recorded[0]);
    pair.send(&recorded[0]);
    pair.receive(4096);
    assert_eq!(pair.target.standing(), AuthState::Failed(FailureReason::INCORRECT_MESSAGE));
    // No room for the message.
    let mut pair = ExchangePair::new(Policy::clone(&pair.policy), Policy::clone(&pair.policy));
    pair.send(&recorded[0]);
    assert_eq!(pair.receive(20).len(), 8, "a failure");
}

#[test]
fn without_a_policy_the_protocol_is_not_usable() {
    let policy = policy(HashFunction::Sha256, Group::Null, false);
    let mut pair = ExchangePair::new(policy.clone(), policy);
    let negotiate = pair.host.start();
    pair.target.send(&negotiate, None, &random(1));
    pair.receive(4096);
    assert_eq!(pair.target.standing(), AuthState::Failed(FailureReason::PROTOCOL_NOT_USABLE));
}

proptest! {
    /// Whatever is sent: no panic, and no end believes a peer without the secret.
    #[test]
    fn a_peer_without_the_secret_is_not_let_in(
        input in prop::collection::vec(any::<u8>(), 0..1000)
    ) {
        super::fuzzing::strange_host(&input);
        super::fuzzing::strange_controller(&input);
    }
}
