//! A queue's end of an exchange at the host.

use std::fmt;
use std::sync::Arc;

use weft_nvme::authentication::{FailureReason, SecureChannel};

use super::group::{Group, KeyPair};
use super::hash::HashFunction;
use super::message::{self, Challenge, Message, Negotiate, Reply};
use super::response::{Names, Prover, Question};
use super::{GeneratedPsk, Policy, Random};
use crate::limits::AUTH_MESSAGE_BYTES_MAX;

/// What the host does next.
#[derive(Debug, PartialEq, Eq)]
pub enum HostAction {
    /// Send this message with Authentication Send.
    Send(Vec<u8>),
    /// Fetch a message of up to this many bytes with Authentication Receive.
    Receive(u32),
    /// The exchange has succeeded.
    Done,
    /// It has failed; before it closes the connection the host sends this message, if any.
    Failed(Problem, Option<Vec<u8>>),
}

/// Why an exchange has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The controller has ended it for this reason.
    Refused(FailureReason),
    /// The controller does not have its secret.
    WrongController,
    /// What the controller sent is not what has to come now.
    Invalid(FailureReason),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(FailureReason::FAILED) => formatter.write_str(
                "the controller does not accept this host's secret: compare the keys at both ends",
            ),
            Self::Refused(reason) => {
                write!(formatter, "the controller refuses the authentication: {reason}")
            }
            Self::WrongController => formatter.write_str(
                "the controller has not proved that it has its secret: \
                 compare the controller's keys at both ends",
            ),
            Self::Invalid(reason) => {
                write!(formatter, "the controller broke the authentication protocol: {reason}")
            }
        }
    }
}

/// The state machine. [`Authenticator::start`] is followed by [`Authenticator::sent`] for each
/// message that was sent and [`Authenticator::received`] for each that was fetched.
#[derive(Debug)]
pub struct Authenticator {
    names: Names,
    policy: Arc<Policy>,
    transaction_id: u16,
    secure_channel: SecureChannel,
    phase: Phase,
    generated_psk: Option<GeneratedPsk>,
}

#[derive(Debug)]
enum Phase {
    Negotiating,
    AwaitChallenge,
    Replying(Box<ExpectedResponse>),
    AwaitSuccess1(Box<ExpectedResponse>),
    Confirming,
    Ended,
}

/// What the controller has to prove.
#[derive(Debug)]
struct ExpectedResponse {
    hash: HashFunction,
    shared_secret: Option<super::SecretBytes>,
    challenge: Option<Vec<u8>>,
    sequence: u32,
}

impl Authenticator {
    /// The end of a queue between these two; the transaction identifier is the host's to choose,
    /// another one for each exchange.
    #[must_use]
    pub const fn new(names: Names, policy: Arc<Policy>, transaction_id: u16) -> Self {
        Self {
            names,
            policy,
            transaction_id,
            secure_channel: SecureChannel::NONE,
            phase: Phase::Negotiating,
            generated_psk: None,
        }
    }

    /// Has the exchange make a TLS PSK as well.
    #[must_use]
    pub const fn with_secure_channel(mut self) -> Self {
        self.secure_channel = SecureChannel::NEW_TLS_PSK;
        self
    }

    /// Has the exchange replace the TLS PSK of the secure channel that the queue has.
    #[must_use]
    pub const fn with_other_psk(mut self) -> Self {
        self.secure_channel = SecureChannel::REPLACE_TLS_PSK;
        self
    }

    /// The PSK that the exchange has made, once.
    pub const fn take_generated_psk(&mut self) -> Option<GeneratedPsk> {
        self.generated_psk.take()
    }

    /// The first message.
    #[must_use]
    pub fn start(&self) -> Vec<u8> {
        let concatenates = self.concatenates();
        let hashes = self.policy.hashes.iter().copied();
        let groups = self.policy.groups.iter().copied();
        let negotiate = Negotiate {
            secure_channel: self.secure_channel,
            hashes: hashes.filter(|hash| !concatenates || *hash != HashFunction::Sha512).collect(),
            groups: groups.filter(|group| !concatenates || *group != Group::Null).collect(),
            is_usable: true,
        };
        Message::Negotiate(negotiate).write(self.transaction_id)
    }

    /// The last message was sent and accepted.
    pub fn sent(&mut self) -> HostAction {
        let (phase, next) = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Negotiating => {
                (Phase::AwaitChallenge, HostAction::Receive(AUTH_MESSAGE_BYTES_MAX))
            }
            Phase::Replying(expected) => {
                (Phase::AwaitSuccess1(expected), HostAction::Receive(AUTH_MESSAGE_BYTES_MAX))
            }
            Phase::Confirming => (Phase::Ended, HostAction::Done),
            phase => {
                let problem = Problem::Invalid(FailureReason::INCORRECT_MESSAGE);
                (phase, HostAction::Failed(problem, None))
            }
        };
        self.phase = phase;
        next
    }

    /// A message was fetched. With DH groups this takes up to 20 ms of computing.
    pub fn received(&mut self, bytes: &[u8], random: &Random) -> HostAction {
        let phase = std::mem::replace(&mut self.phase, Phase::Ended);
        let read = Message::read(bytes).and_then(|message| {
            let (_, transaction_id) = message::header(bytes)?;
            let is_ours =
                transaction_id == self.transaction_id || matches!(message, Message::Failure1(_));
            if is_ours { Ok(message) } else { Err(FailureReason::INCORRECT_MESSAGE) }
        });
        match (phase, read) {
            (_, Err(reason)) => self.invalid(reason),
            (_, Ok(Message::Failure1(reason))) => {
                HostAction::Failed(Problem::Refused(reason), None)
            }
            (Phase::AwaitChallenge, Ok(Message::Challenge(challenge))) => {
                match self.reply(&challenge, random) {
                    Ok(reply) => HostAction::Send(reply),
                    Err(reason) => self.invalid(reason),
                }
            }
            (Phase::AwaitSuccess1(expected), Ok(Message::Success1 { response, hash_length }))
                if hash_length == expected.hash.length() =>
            {
                self.success(&expected, response)
            }
            _ => self.invalid(FailureReason::INCORRECT_MESSAGE),
        }
    }

    fn concatenates(&self) -> bool {
        self.secure_channel != SecureChannel::NONE
    }

    fn invalid(&self, reason: FailureReason) -> HostAction {
        let message = Message::Failure2(reason).write(self.transaction_id);
        HostAction::Failed(Problem::Invalid(reason), Some(message))
    }

    fn reply(
        &mut self,
        received: &Challenge<'_>,
        random: &Random,
    ) -> Result<Vec<u8>, FailureReason> {
        let Challenge { hash, group, sequence, challenge, value } = *received;
        // What was not offered would be a downgrade.
        if !self.policy.hashes.contains(&hash)
            || (self.concatenates() && hash == HashFunction::Sha512)
        {
            return Err(FailureReason::HASH_NOT_USABLE);
        }
        if !self.policy.groups.contains(&group) || (self.concatenates() && group == Group::Null) {
            return Err(FailureReason::GROUP_NOT_USABLE);
        }
        let mut shared_secret = None;
        let mut own_value = Vec::new();
        if group != Group::Null {
            let pair = KeyPair::new(group, &random.exponent());
            let secret = pair.shared_secret(value).ok_or(FailureReason::INCORRECT_PAYLOAD)?;
            shared_secret = Some(secret);
            own_value = pair.value().to_vec();
        }
        let secret = shared_secret.as_deref().map(Vec::as_slice);
        let question = self.question(hash, secret, challenge, sequence);
        let response = question.answer(Prover::Host, &self.policy.secret, &self.names);
        let authenticates_controller = self.policy.controller_secret.is_some();
        let own_challenge =
            (authenticates_controller || self.concatenates()).then(|| random.challenge(hash));
        // A challenge that only makes the PSK has no sequence number.
        let own_sequence = if authenticates_controller { random.sequence() } else { 0 };
        if self.concatenates()
            && let (Some(own), Some(secret)) = (&own_challenge, secret)
        {
            self.generated_psk = Some(GeneratedPsk::new(hash, secret, [challenge, own]));
        }
        let reply = Reply {
            sequence: own_sequence,
            response: &response,
            challenge: own_challenge.as_deref(),
            value: &own_value,
        };
        let written = Message::Reply(reply).write(self.transaction_id);
        self.phase = Phase::Replying(Box::new(ExpectedResponse {
            hash,
            shared_secret,
            challenge: own_challenge.filter(|_| authenticates_controller),
            sequence: own_sequence,
        }));
        Ok(written)
    }

    fn success(&mut self, expected: &ExpectedResponse, response: Option<&[u8]>) -> HostAction {
        let secret = self.policy.controller_secret.as_ref();
        let Some((secret, challenge)) = secret.zip(expected.challenge.as_deref()) else {
            return HostAction::Done;
        };
        let shared_secret = expected.shared_secret.as_deref().map(Vec::as_slice);
        // Linux before 7.1 leaves SC_C out here. The host's own response, which the controller has
        // accepted, has it in any case.
        let proves = response.is_some_and(|response| {
            [self.secure_channel, SecureChannel::NONE].into_iter().any(|secure_channel| {
                let (hash, sequence) = (expected.hash, expected.sequence);
                let question = Question {
                    secure_channel,
                    ..self.question(hash, shared_secret, challenge, sequence)
                };
                question.is_answered_by(response, Prover::Controller, secret, &self.names)
            })
        });
        if !proves {
            self.generated_psk = None;
            let message = Message::Failure2(FailureReason::FAILED).write(self.transaction_id);
            return HostAction::Failed(Problem::WrongController, Some(message));
        }
        self.phase = Phase::Confirming;
        HostAction::Send(Message::Success2.write(self.transaction_id))
    }

    const fn question<'a>(
        &self,
        hash: HashFunction,
        shared_secret: Option<&'a [u8]>,
        challenge: &'a [u8],
        sequence: u32,
    ) -> Question<'a> {
        Question {
            hash,
            shared_secret,
            challenge,
            sequence,
            transaction_id: self.transaction_id,
            secure_channel: self.secure_channel,
        }
    }
}
