//! A queue's end of an exchange at the controller.
//!
//! ```text
//!            Negotiate           Receive              Reply              Receive
//!   Idle ──────────────▶ Choosing ───────▶ Challenged ─────▶ Checking ─────────────▶ Idle
//!    │ (Work: key pair)                       (Work: shared secret)    │ with C2     ▲
//!    │                                                                 ▼   Success2  │
//!    │ whatever is wrong                                          Proving ───────────┘
//!    ▼           Receive
//!   Failing ──────────────▶ Failed: the connection ends
//! ```
//!
//! A message that is wrong completes successfully, and what is wrong is told by the failure that
//! the host receives next.

use std::sync::Arc;

use weft_nvme::Status;
use weft_nvme::authentication::{FailureReason, SecureChannel};
use weft_nvme::fabrics::Authentication;

use super::group::{Group, KeyPair};
use super::hash::{HashFunction, SecretBytes};
use super::message::{self, Challenge, Message, Negotiate, Reply};
use super::response::{Names, Prover, Question};
use super::{GeneratedPsk, Policy, Random};
use crate::limits::AUTH_MESSAGE_BYTES_MAX;

/// A power to be computed, which takes up to 10 ms.
#[derive(Debug)]
pub struct Work(Job);

#[derive(Debug)]
enum Job {
    MakePair { group: Group, exponent: SecretBytes },
    ShareSecret { pair: KeyPair, value: Vec<u8> },
}

/// A computed power.
#[derive(Debug)]
pub struct WorkDone(Power);

#[derive(Debug)]
enum Power {
    Pair(KeyPair),
    SharedSecret(Option<SecretBytes>),
}

impl Work {
    /// Computes it.
    #[must_use]
    pub fn run(self) -> WorkDone {
        WorkDone(match self.0 {
            Job::MakePair { group, exponent } => Power::Pair(KeyPair::new(group, &exponent)),
            Job::ShareSecret { pair, value } => Power::SharedSecret(pair.shared_secret(&value)),
        })
    }
}

/// The answer to Authentication Receive.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceiveAnswer {
    /// This message.
    Message(Vec<u8>),
    /// It depends on work that is not done yet.
    Pending,
}

/// How far the queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthState {
    /// No exchange has succeeded yet.
    Unauthenticated,
    /// One has, and none has failed since.
    Authenticated,
    /// One has failed, for this reason: the connection has to end.
    Failed(FailureReason),
}

/// The state machine; see the module.
#[derive(Debug)]
pub struct Authenticator {
    names: Names,
    phase: Phase,
    authenticated: bool,
    /// The secure channel that may be asked for: a new one on an admin queue without TLS whose
    /// port offers that, another key for one on an admin queue that has it.
    channel: SecureChannel,
    generated_psk: Option<GeneratedPsk>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Choosing(Box<Exchange>, Option<Work>),
    Challenged(Box<Exchange>),
    Checking(Box<Exchange>, Box<Response>, Option<Work>),
    /// Success1 can be received.
    Succeeded {
        transaction_id: u16,
        response: Option<SecretBytes>,
        hash: HashFunction,
    },
    /// It was received, and the host checks the controller's response.
    Proving {
        transaction_id: u16,
    },
    Failing {
        transaction_id: u16,
        reason: FailureReason,
    },
    Failed(FailureReason),
}

/// What was agreed on.
#[derive(Debug)]
struct Exchange {
    policy: Arc<Policy>,
    transaction_id: u16,
    secure_channel: SecureChannel,
    hash: HashFunction,
    group: Group,
    challenge: Vec<u8>,
    sequence: u32,
    pair: Option<KeyPair>,
}

/// A host's Reply.
#[derive(Debug)]
struct Response {
    response: Vec<u8>,
    challenge: Option<Vec<u8>>,
    sequence: u32,
}

impl Authenticator {
    /// The end of a queue between these two.
    #[must_use]
    pub const fn new(names: Names, channel: SecureChannel) -> Self {
        let (phase, generated_psk) = (Phase::Idle, None);
        Self { names, phase, authenticated: false, channel, generated_psk }
    }

    /// The end of an admin queue over TLS, with a key that an earlier exchange has made: the host
    /// has authenticated itself by it.
    #[must_use]
    pub fn over_channel(names: Names) -> Self {
        let this = Self::new(names, SecureChannel::REPLACE_TLS_PSK);
        Self { authenticated: true, ..this }
    }

    /// How far the queue is.
    #[must_use]
    pub const fn standing(&self) -> AuthState {
        match (&self.phase, self.authenticated) {
            (Phase::Failed(reason), _) => AuthState::Failed(*reason),
            (_, true) => AuthState::Authenticated,
            (_, false) => AuthState::Unauthenticated,
        }
    }

    /// Whether the host is to be told that an exchange has failed.
    #[must_use]
    pub const fn is_failing(&self) -> bool {
        matches!(self.phase, Phase::Failing { .. })
    }

    /// Whether an exchange has begun and not ended.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Failed(_))
    }

    /// The hash function and the group of the exchange under way.
    #[must_use]
    pub const fn choice(&self) -> Option<(HashFunction, Group)> {
        match &self.phase {
            Phase::Choosing(exchange, _)
            | Phase::Challenged(exchange)
            | Phase::Checking(exchange, ..) => Some((exchange.hash, exchange.group)),
            _ => None,
        }
    }

    /// The PSK that the last exchange has made, once; none of an exchange that has not succeeded.
    pub fn take_generated_psk(&mut self) -> Option<GeneratedPsk> {
        let has_succeeded = self.standing() == AuthState::Authenticated && !self.is_under_way();
        self.generated_psk.take_if(|_| has_succeeded)
    }

    /// Takes a message that the host has sent. `policy` is the host's now, if it has one.
    pub fn send(&mut self, bytes: &[u8], policy: Option<&Arc<Policy>>, random: &Random) {
        let transaction_id = message::header(bytes).map_or(0, |(_, id)| id);
        let taken = Message::read(bytes).and_then(|message| match message {
            Message::Negotiate(negotiate) => {
                self.negotiate(&negotiate, transaction_id, policy, random)
            }
            Message::Reply(reply) => self.reply(&reply, transaction_id),
            Message::Success2 => self.success2(transaction_id),
            Message::Failure2(reason) => {
                self.phase = Phase::Failed(reason);
                Ok(())
            }
            _ => Err(FailureReason::INCORRECT_MESSAGE),
        });
        if let Err(reason) = taken
            && !matches!(self.phase, Phase::Failed(_) | Phase::Failing { .. })
        {
            self.fail(transaction_id, reason);
        }
    }

    /// Gives the message that the host fetches, if there is room for it.
    pub fn receive(&mut self, allocation_length: u32) -> ReceiveAnswer {
        let room = usize::try_from(allocation_length).unwrap_or(usize::MAX);
        let written = match &self.phase {
            Phase::Choosing(exchange, _) if exchange.waits_for_pair() => {
                return ReceiveAnswer::Pending;
            }
            Phase::Checking(..) => return ReceiveAnswer::Pending,
            Phase::Choosing(exchange, _) => exchange.challenge(),
            Phase::Succeeded { transaction_id, response, hash } => {
                let response = response.as_deref().map(Vec::as_slice);
                let success = Message::Success1 { response, hash_length: hash.length() };
                success.write(*transaction_id)
            }
            Phase::Failing { transaction_id, reason } => {
                Message::Failure1(*reason).write(*transaction_id)
            }
            Phase::Idle | Phase::Challenged(_) | Phase::Proving { .. } | Phase::Failed(_) => {
                let transaction_id = self.transaction_id();
                self.fail(transaction_id, FailureReason::INCORRECT_MESSAGE);
                return self.receive(allocation_length);
            }
        };
        if written.len() > room && !matches!(self.phase, Phase::Failing { .. }) {
            self.fail(self.transaction_id(), FailureReason::INCORRECT_PAYLOAD);
            return self.receive(allocation_length);
        }
        self.received();
        ReceiveAnswer::Message(written)
    }

    /// The next work, to be done on another thread.
    pub fn take_work(&mut self) -> Option<Work> {
        match &mut self.phase {
            Phase::Choosing(_, work) | Phase::Checking(_, _, work) => work.take(),
            _ => None,
        }
    }

    /// The work that was taken last has been done.
    pub fn finish(&mut self, done: WorkDone) {
        match (std::mem::replace(&mut self.phase, Phase::Idle), done.0) {
            (Phase::Choosing(mut exchange, None), Power::Pair(pair)) => {
                exchange.pair = Some(pair);
                self.phase = Phase::Choosing(exchange, None);
            }
            (Phase::Checking(exchange, response, None), Power::SharedSecret(secret)) => {
                let checked = match secret {
                    Some(secret) => self.check(&exchange, &response, Some(&secret)),
                    None => Err(FailureReason::INCORRECT_PAYLOAD),
                };
                if let Err(reason) = checked {
                    self.fail(exchange.transaction_id, reason);
                }
            }
            (phase, _) => self.phase = phase,
        }
    }

    fn fail(&mut self, transaction_id: u16, reason: FailureReason) {
        self.authenticated = false;
        self.phase = Phase::Failing { transaction_id, reason };
    }

    const fn transaction_id(&self) -> u16 {
        match &self.phase {
            Phase::Idle | Phase::Failed(_) => 0,
            Phase::Choosing(exchange, _)
            | Phase::Challenged(exchange)
            | Phase::Checking(exchange, ..) => exchange.transaction_id,
            Phase::Succeeded { transaction_id, .. }
            | Phase::Proving { transaction_id }
            | Phase::Failing { transaction_id, .. } => *transaction_id,
        }
    }

    /// The host has the message of this phase.
    fn received(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Choosing(exchange, _) => Phase::Challenged(exchange),
            Phase::Succeeded { response: None, .. } => {
                self.authenticated = true;
                Phase::Idle
            }
            Phase::Succeeded { transaction_id, .. } => Phase::Proving { transaction_id },
            Phase::Failing { reason, .. } => Phase::Failed(reason),
            phase => phase,
        };
    }

    fn negotiate(
        &mut self,
        offer: &Negotiate,
        transaction_id: u16,
        policy: Option<&Arc<Policy>>,
        random: &Random,
    ) -> Result<(), FailureReason> {
        if !matches!(self.phase, Phase::Idle) {
            return Err(FailureReason::INCORRECT_MESSAGE);
        }
        let policy = policy.filter(|_| offer.is_usable);
        let policy = policy.ok_or(FailureReason::PROTOCOL_NOT_USABLE)?;
        let wants_channel = offer.secure_channel != SecureChannel::NONE;
        let is_offered = !wants_channel || offer.secure_channel == self.channel;
        let is_missing =
            !wants_channel && policy.requires_channel && self.channel == SecureChannel::NEW_TLS_PSK;
        if !is_offered || is_missing {
            return Err(FailureReason::CONCATENATION_MISMATCH);
        }
        let hash = policy.hashes.iter().copied().find(|hash| {
            offer.hashes.contains(hash) && !(wants_channel && *hash == HashFunction::Sha512)
        });
        let hash = hash.ok_or(FailureReason::HASH_NOT_USABLE)?;
        let group = policy.groups.iter().copied().find(|group| {
            offer.groups.contains(group) && !(wants_channel && *group == Group::Null)
        });
        let group = group.ok_or(FailureReason::GROUP_NOT_USABLE)?;
        let work = (group != Group::Null)
            .then(|| Work(Job::MakePair { group, exponent: random.exponent() }));
        let exchange = Exchange {
            policy: Arc::clone(policy),
            transaction_id,
            secure_channel: offer.secure_channel,
            hash,
            group,
            challenge: random.challenge(hash),
            sequence: random.sequence(),
            pair: None,
        };
        self.phase = Phase::Choosing(Box::new(exchange), work);
        Ok(())
    }

    fn reply(&mut self, reply: &Reply<'_>, transaction_id: u16) -> Result<(), FailureReason> {
        let Phase::Challenged(exchange) = &mut self.phase else {
            return Err(FailureReason::INCORRECT_MESSAGE);
        };
        if transaction_id != exchange.transaction_id {
            return Err(FailureReason::INCORRECT_MESSAGE);
        }
        if reply.response.len() != exchange.hash.length()
            || reply.value.len() != exchange.group.value_length()
        {
            return Err(FailureReason::INCORRECT_PAYLOAD);
        }
        let pair = exchange.pair.take();
        let response = Response {
            response: reply.response.to_vec(),
            challenge: reply.challenge.map(<[u8]>::to_vec),
            sequence: reply.sequence,
        };
        let Phase::Challenged(exchange) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return Err(FailureReason::INCORRECT_MESSAGE);
        };
        match pair {
            None => self.check(&exchange, &response, None),
            Some(pair) => {
                let work = Work(Job::ShareSecret { pair, value: reply.value.to_vec() });
                self.phase = Phase::Checking(exchange, Box::new(response), Some(work));
                Ok(())
            }
        }
    }

    /// Checks the host's response, and makes the controller's if the host has asked for it.
    fn check(
        &mut self,
        exchange: &Exchange,
        response: &Response,
        shared_secret: Option<&[u8]>,
    ) -> Result<(), FailureReason> {
        let question = exchange.question(&exchange.challenge, exchange.sequence, shared_secret);
        let (policy, names) = (&exchange.policy, &self.names);
        if !question.is_answered_by(&response.response, Prover::Host, &policy.secret, names) {
            return Err(FailureReason::FAILED);
        }
        let wants_channel = exchange.secure_channel != SecureChannel::NONE;
        let own = match (&response.challenge, response.sequence) {
            // The challenge is only for the PSK.
            (Some(_), 0) if wants_channel => None,
            (Some(_), 0) => return Err(FailureReason::INCORRECT_PAYLOAD),
            (Some(challenge), sequence) => {
                let secret = policy.controller_secret.as_ref().ok_or(FailureReason::FAILED)?;
                let mut question = exchange.question(challenge, sequence, shared_secret);
                if policy.old_channel {
                    question.secure_channel = SecureChannel::NONE;
                }
                Some(question.answer(Prover::Controller, secret, names))
            }
            (None, _) => None,
        };
        if wants_channel {
            let challenge = response.challenge.as_deref();
            let (challenge, shared_secret) =
                challenge.zip(shared_secret).ok_or(FailureReason::CONCATENATION_MISMATCH)?;
            let challenges = [exchange.challenge.as_slice(), challenge];
            let psk = GeneratedPsk::new(exchange.hash, shared_secret, challenges);
            self.generated_psk = Some(psk);
        }
        self.phase = Phase::Succeeded {
            transaction_id: exchange.transaction_id,
            response: own,
            hash: exchange.hash,
        };
        Ok(())
    }

    fn success2(&mut self, transaction_id: u16) -> Result<(), FailureReason> {
        match self.phase {
            Phase::Proving { transaction_id: own } if own == transaction_id => {
                self.authenticated = true;
                self.phase = Phase::Idle;
                Ok(())
            }
            _ => Err(FailureReason::INCORRECT_MESSAGE),
        }
    }
}

impl Exchange {
    fn waits_for_pair(&self) -> bool {
        self.pair.is_none() && self.group != Group::Null
    }

    fn challenge(&self) -> Vec<u8> {
        let challenge = Challenge {
            hash: self.hash,
            group: self.group,
            sequence: self.sequence,
            challenge: &self.challenge,
            value: self.pair.as_ref().map(KeyPair::value).unwrap_or_default(),
        };
        Message::Challenge(challenge).write(self.transaction_id)
    }

    const fn question<'a>(
        &self,
        challenge: &'a [u8],
        sequence: u32,
        shared_secret: Option<&'a [u8]>,
    ) -> Question<'a> {
        Question {
            hash: self.hash,
            shared_secret,
            challenge,
            sequence,
            transaction_id: self.transaction_id,
            secure_channel: self.secure_channel,
        }
    }
}

/// The length of the message of Authentication Send or Receive, if the command is one of
/// DH-HMAC-CHAP.
pub fn message_length(command: &Authentication) -> Result<u32, Status> {
    let Authentication { protocol_specific0, protocol_specific1, protocol, length } = *command;
    let is_ours = protocol == Authentication::PROTOCOL_NVME
        && (protocol_specific0, protocol_specific1) == (1, 1);
    if is_ours && (1..=AUTH_MESSAGE_BYTES_MAX).contains(&length) {
        Ok(length)
    } else {
        Err(Status::INVALID_FIELD.with_dnr())
    }
}
