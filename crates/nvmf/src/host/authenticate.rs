//! Authentication of one queue by DH-HMAC-CHAP, between its Connect and its first other command,
//! and again while it is used.

use std::sync::Arc;

use weft_nvme::fabrics::{Authentication, ConnectResult};
use weft_nvme::{Command, Completion, FabricsType};

use super::admin_queue::AdminData;
use super::config::HostConfig;
use super::problem::{HostStep, Problem, refused};
use crate::auth::host::{Authenticator, HostAction};
use crate::auth::{GeneratedPsk, Names, Policy, Random};

/// What a host proves its identity with, and the controller's.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The secrets. With a controller's secret the host accepts no controller that does not prove
    /// that it has it.
    pub policy: Arc<Policy>,
    /// Random bytes fit for keys, others with each call; `None` if there are none.
    pub random: fn() -> Option<Random>,
}

/// What comes after a command of the exchange.
#[derive(Debug)]
pub enum AuthenticationProgress {
    /// The next command.
    Submit((Command, AdminData)),
    /// The queue can be used.
    Done,
    /// It cannot.
    Failed(Problem),
}

/// The key of TLS that an exchange makes.
#[derive(Debug, Clone, Copy)]
enum Channel {
    None,
    New,
    /// In place of the one that the queue has.
    Other,
}

/// One exchange on one queue.
#[derive(Debug)]
pub struct QueueAuthentication {
    authenticator: Authenticator,
    random: fn() -> Option<Random>,
    /// It makes a key of TLS, without which the queue is not used.
    makes_channel: bool,
    /// The command in flight fetches a message.
    receiving: bool,
    /// Why the exchange has failed, while the controller is told.
    problem: Option<Problem>,
}

impl QueueAuthentication {
    /// What a successful Connect leads to: nothing more, or an exchange. `has_channel`: what makes
    /// a secure channel by authentication has made it.
    pub(super) fn after_connect(
        config: &HostConfig,
        credentials: Option<&Credentials>,
        result: ConnectResult,
        has_channel: bool,
    ) -> Result<Option<Self>, Problem> {
        let wants_channel = credentials.is_some_and(|own| own.policy.requires_channel);
        if result.secure_channel_required() && !wants_channel {
            return Err(Problem::SecureChannelRequired);
        }
        let makes_channel = wants_channel && !has_channel;
        let required = result.authentication_required() || result.secure_channel_required();
        let Some(credentials) = credentials else {
            return if required { Err(Problem::AuthenticationRequired) } else { Ok(None) };
        };
        if !required {
            if makes_channel {
                return Err(Problem::SecureChannelNotOffered);
            }
            // Who wants to be taken for the controller would leave the exchange out. Who has the
            // key of the channel has proved itself when that was made.
            let wanted = credentials.policy.controller_secret.is_some() && !wants_channel;
            return if wanted { Err(Problem::ControllerNotAuthenticated) } else { Ok(None) };
        }
        let channel = if makes_channel { Channel::New } else { Channel::None };
        Self::new(config, credentials, channel).map(Some)
    }

    /// Of a queue that has been authenticated and is in use.
    ///
    /// # Errors
    /// There are no random bytes.
    pub fn again(config: &HostConfig, credentials: &Credentials) -> Result<Self, Problem> {
        Self::new(config, credentials, Channel::None)
    }

    /// Of an admin queue over TLS with a key that an authentication has made, which this one
    /// replaces.
    pub(super) fn replacing(
        config: &HostConfig,
        credentials: &Credentials,
    ) -> Result<Self, Problem> {
        Self::new(config, credentials, Channel::Other)
    }

    fn new(
        config: &HostConfig,
        credentials: &Credentials,
        channel: Channel,
    ) -> Result<Self, Problem> {
        let random = (credentials.random)().ok_or_else(no_random_bytes)?;
        let names = Names { host: config.host, subsystem: config.subsystem };
        let policy = Arc::clone(&credentials.policy);
        let authenticator = Authenticator::new(names, policy, random.transaction_id());
        let authenticator = match channel {
            Channel::None => authenticator,
            Channel::New => authenticator.with_secure_channel(),
            Channel::Other => authenticator.with_other_psk(),
        };
        let makes_channel = !matches!(channel, Channel::None);
        let (random, receiving, problem) = (credentials.random, false, None);
        Ok(Self { authenticator, random, makes_channel, receiving, problem })
    }

    /// After it is done: the key of TLS that it has made, if that was its purpose.
    pub(super) fn finish(mut self) -> Result<Option<GeneratedPsk>, Problem> {
        let generated = self.authenticator.take_generated_psk();
        if self.makes_channel && generated.is_none() {
            return Err(Problem::SecureChannelNotOffered);
        }
        Ok(generated)
    }

    /// Its first command.
    #[must_use]
    pub fn first(&self) -> (Command, AdminData) {
        send(self.authenticator.start())
    }

    /// A command of the exchange was completed. `data` is what the controller sent for it. With DH
    /// groups this takes up to 20 ms of computing.
    pub fn handle_completion(
        &mut self,
        completion: &Completion,
        data: &[u8],
    ) -> AuthenticationProgress {
        if let Some(problem) = self.problem.take() {
            return AuthenticationProgress::Failed(problem);
        }
        if !completion.status().is_success() {
            return AuthenticationProgress::Failed(refused(HostStep::Authenticate, completion));
        }
        let next = if self.receiving {
            let Some(random) = (self.random)() else {
                return AuthenticationProgress::Failed(no_random_bytes());
            };
            self.authenticator.received(data, &random)
        } else {
            self.authenticator.sent()
        };
        self.receiving = matches!(next, HostAction::Receive(_));
        match next {
            HostAction::Send(message) => AuthenticationProgress::Submit(send(message)),
            HostAction::Receive(length) => AuthenticationProgress::Submit(receive(length)),
            HostAction::Done => AuthenticationProgress::Done,
            HostAction::Failed(problem, None) => {
                AuthenticationProgress::Failed(Problem::Authentication(problem))
            }
            HostAction::Failed(problem, Some(farewell)) => {
                self.problem = Some(Problem::Authentication(problem));
                AuthenticationProgress::Submit(send(farewell))
            }
        }
    }
}

impl QueueAuthentication {
    /// As [`QueueAuthentication::handle_completion`], of a queue that is in use: if the exchange
    /// fails, nothing more is sent to the controller, and so it is not told why either.
    pub fn handle_completion_in_use(
        &mut self,
        completion: &Completion,
        data: &[u8],
    ) -> AuthenticationProgress {
        let progress = self.handle_completion(completion, data);
        match self.problem.take() {
            Some(problem) => AuthenticationProgress::Failed(problem),
            None => progress,
        }
    }
}

fn no_random_bytes() -> Problem {
    Problem::Impossible("the kernel gives no random bytes for an authentication".into())
}

fn command(fabrics_type: FabricsType, length: u32) -> Command {
    let protocol = Authentication::PROTOCOL_NVME;
    Authentication { protocol_specific0: 1, protocol_specific1: 1, protocol, length }
        .to_command(fabrics_type)
}

fn send(message: Vec<u8>) -> (Command, AdminData) {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    (command(FabricsType::AUTHENTICATION_SEND, length), AdminData::ToController(message))
}

fn receive(length: u32) -> (Command, AdminData) {
    (command(FabricsType::AUTHENTICATION_RECEIVE, length), AdminData::FromController(length))
}
