//! Harnesses that send arbitrary messages to either end, and hold that it believes no peer without
//! the secret.

use std::sync::{Arc, OnceLock};

use weft_nvme::authentication::{Header, MessageType, SecureChannel};
use weft_nvme::{Nqn, Wire};

use super::host::{self, HostAction};
use super::message::Message;
use super::target::{self, AuthState, ReceiveAnswer};
use super::{Group, HashFunction, Names, Policy, Random, Secret};

/// A piece of the input: a length byte and as many bytes, which become a message. If the first
/// bit of the second byte is set the message has one of the known types.
fn take_message(input: &mut &[u8]) -> Option<(u8, Vec<u8>)> {
    let [length, how, rest @ ..] = *input else { return None };
    let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
    *input = rest;
    let types = [
        MessageType::NEGOTIATE,
        MessageType::CHALLENGE,
        MessageType::REPLY,
        MessageType::SUCCESS1,
        MessageType::SUCCESS2,
        MessageType::FAILURE1,
        MessageType::FAILURE2,
    ];
    let mut message = bytes.to_vec();
    if how & 1 == 1
        && let Some(known) = types.get(usize::from(how >> 1) % types.len())
        && let Some(place) = message.get_mut(..6)
    {
        let header = Header::new(*known, 0);
        // The slice has the length of a header.
        place.copy_from_slice(header.bytes());
    }
    Some((*how, message))
}

/// Null and one group, so that most inputs compute nothing.
fn policy() -> Option<&'static (Arc<Policy>, Names)> {
    static POLICY: OnceLock<Option<(Arc<Policy>, Names)>> = OnceLock::new();
    let made = POLICY.get_or_init(|| {
        let secret = Secret::new(&[0x5a; 32], Some(HashFunction::Sha256))?;
        let names = Names {
            host: "nqn.host".parse::<Nqn>().ok()?,
            subsystem: "nqn.subsystem".parse().ok()?,
        };
        let policy = Policy {
            groups: [Group::Null, Group::Ffdhe2048].into(),
            ..Policy::new(secret.clone(), Some(secret))
        };
        Some((Arc::new(policy), names))
    });
    made.as_ref()
}

fn random(byte: u8) -> Random {
    Random::new([byte | 1; Random::LENGTH])
}

/// A host without the secret sends to a controller whatever it likes.
///
/// # Panics
/// The controller believes the host.
pub fn strange_host(mut input: &[u8]) {
    let Some((policy, names)) = policy() else { return };
    let mut target = target::Authenticator::new(names.clone(), SecureChannel::NEW_TLS_PSK);
    while let Some((how, message)) = take_message(&mut input) {
        target.send(&message, Some(policy), &random(how));
        if let Some(work) = target.take_work() {
            if how & 0x80 != 0 {
                assert_eq!(target.receive(4096), ReceiveAnswer::Pending, "the work is not done");
            }
            target.finish(work.run());
        }
        if how & 0x40 != 0 {
            assert_ne!(
                target.receive(u32::from(how) * 16),
                ReceiveAnswer::Pending,
                "nothing to do"
            );
        }
        assert_ne!(target.standing(), AuthState::Authenticated, "by a peer without the secret");
    }
}

/// A controller without its secret sends to a host whatever it likes.
///
/// # Panics
/// The host believes the controller.
pub fn strange_controller(mut input: &[u8]) {
    let Some((policy, names)) = policy() else { return };
    let mut host = host::Authenticator::new(names.clone(), Arc::clone(policy), 0);
    let mut next = HostAction::Send(host.start());
    loop {
        next = match next {
            HostAction::Send(_) => host.sent(),
            HostAction::Receive(_) => match take_message(&mut input) {
                Some((how, message)) => host.received(&message, &random(how)),
                None => return,
            },
            HostAction::Done => unreachable!("a peer without the secret is believed"),
            HostAction::Failed(..) => return,
        };
    }
}

/// A controller without its secret, for a host that makes a key of TLS (secure concatenation).
///
/// # Panics
/// The host believes the controller, or has a key of an exchange that has failed.
pub fn strange_concatenation(mut input: &[u8]) {
    let Some((policy, names)) = policy() else { return };
    let mut host = host::Authenticator::new(names.clone(), Arc::clone(policy), 0);
    host = host.with_secure_channel();
    let mut next = HostAction::Send(host.start());
    loop {
        next = match next {
            HostAction::Send(_) => host.sent(),
            HostAction::Receive(_) => match take_message(&mut input) {
                Some((how, message)) => host.received(&message, &random(how)),
                None => return,
            },
            HostAction::Done => unreachable!("a peer without the secret is believed"),
            HostAction::Failed(..) => {
                assert!(
                    host.take_generated_psk().is_none(),
                    "a key of an exchange that has failed"
                );
                return;
            }
        };
    }
}

/// A message is read as what it is written as.
///
/// # Panics
/// It is read as something else.
pub fn message(input: &[u8]) {
    let Ok(message) = Message::read(input) else { return };
    let Ok((_, transaction)) = super::message::header(input) else { return };
    match &message {
        // What is written always has one descriptor, and is of a hash function.
        Message::Negotiate(negotiate) if !negotiate.is_usable => return,
        Message::Reply(reply) if reply.response.len() > HashFunction::LENGTH_MAX => return,
        _ => {}
    }
    let written = message.write(transaction);
    assert_eq!(Message::read(&written).as_ref(), Ok(&message), "what was written is the same");
}
