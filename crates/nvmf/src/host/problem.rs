//! The errors between a host and a controller, each with the side that has to change something.

use core::fmt;
use core::time::Duration;

use weft_nvme::fabrics::InvalidParameter;
use weft_nvme::status::StatusCode;
use weft_nvme::{Completion, Status};

use crate::auth;

/// Who has to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// This host, or who called it.
    Local,
    /// The controller on the other side.
    Peer,
    /// The network.
    Io,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Local => "local",
            Self::Peer => "peer",
            Self::Io => "io",
        })
    }
}

/// A step of initialisation, operation or shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostStep {
    /// The transport connection of the admin queue.
    Open,
    /// Connect of the admin queue.
    ConnectAdmin,
    /// Connect of this I/O queue.
    ConnectQueue(u16),
    /// Authentication Send and Receive.
    Authenticate,
    /// Property Get of CAP.
    ReadCapabilities,
    /// Property Get of VS.
    ReadVersion,
    /// Property Set of CC, with EN.
    Enable,
    /// Property Get of CSTS until RDY.
    AwaitReady,
    /// Identify Controller.
    IdentifyController,
    /// Identify Controller of the NVM command set.
    IdentifyNvmController,
    /// Set Features, Number of Queues.
    SetQueueCount,
    /// Set Features, Asynchronous Event Configuration.
    SetEventConfiguration,
    /// Get Log Page, Asymmetric Namespace Access.
    ReadAccessLog,
    /// Get Log Page, Changed Namespace List.
    ReadChangedNamespaces,
    /// Identify, Active Namespace ID list.
    ListNamespaces,
    /// Identify Namespace.
    IdentifyNamespace(u32),
    /// Identify, Namespace Identification Descriptor list.
    DescribeNamespace(u32),
    /// Get Log Page, Discovery.
    ReadDiscoveryLog,
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request.
    AwaitEvent,
    /// Property Set of CC and Property Get of CSTS, for shutdown or reset.
    Stop,
    /// An admin command that the user gave.
    UserCommand,
    /// An I/O command.
    InputOutput,
}

impl fmt::Display for HostStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Open => "opening the connection",
            Self::ConnectAdmin => "Connect of the admin queue",
            Self::ConnectQueue(queue) => return write!(formatter, "Connect of I/O queue {queue}"),
            Self::Authenticate => "authentication",
            Self::ReadCapabilities => "Property Get of CAP",
            Self::ReadVersion => "Property Get of VS",
            Self::Enable => "enabling the controller",
            Self::AwaitReady => "Property Get of CSTS",
            Self::IdentifyController => "Identify Controller",
            Self::IdentifyNvmController => "Identify Controller of the NVM command set",
            Self::SetQueueCount => "Set Features of Number of Queues",
            Self::SetEventConfiguration => "Set Features of Asynchronous Event Configuration",
            Self::ReadAccessLog => "Get Log Page of Asymmetric Namespace Access",
            Self::ReadChangedNamespaces => "Get Log Page of the Changed Namespace List",
            Self::ListNamespaces => "Identify of the active namespaces",
            Self::IdentifyNamespace(nsid) => {
                return write!(formatter, "Identify of namespace {nsid}");
            }
            Self::DescribeNamespace(nsid) => {
                return write!(formatter, "Identify of namespace {nsid}'s descriptors");
            }
            Self::ReadDiscoveryLog => "Get Log Page of the discovery log",
            Self::KeepAlive => "Keep Alive",
            Self::AwaitEvent => "Asynchronous Event Request",
            Self::Stop => "shutting the controller down",
            Self::UserCommand => "the admin command",
            Self::InputOutput => "an I/O command",
        })
    }
}

/// Why a controller cannot be used, or no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The transport could not connect, or the connection ended.
    Transport {
        /// The side that caused it, as far as the transport can tell.
        side: Side,
        /// The transport's message.
        reason: String,
    },
    /// The controller refused a command.
    Refused {
        /// Which one.
        step: HostStep,
        /// Its answer.
        status: Status,
        /// Of a Connect with invalid parameters: which parameter.
        parameter: Option<InvalidParameter>,
    },
    /// The controller's response is invalid.
    InvalidResponse {
        /// To what.
        step: HostStep,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The controller did not answer.
    TimedOut {
        /// To what.
        step: HostStep,
        /// For how long.
        waited: Duration,
    },
    /// The controller did not become ready in the time that it claims for itself.
    NotReady(Duration),
    /// The controller reports a fatal status (CSTS.CFS).
    Fatal,
    /// The controller requires authentication, and this host has no secret.
    AuthenticationRequired,
    /// The controller requires a secure channel that authentication makes; this host makes none.
    SecureChannelRequired,
    /// This host makes its secure channel by authentication, and the controller asks for none.
    SecureChannelNotOffered,
    /// This host has the controller's secret, and the controller asks for no authentication.
    ControllerNotAuthenticated,
    /// The authentication has failed.
    Authentication(auth::host::Problem),
    /// An I/O queue was lost, and the controller with it.
    QueueLost {
        /// Which.
        queue: u16,
        /// Why.
        problem: Box<Problem>,
    },
    /// The user asked for a reset.
    Reset,
    /// What was asked for is not possible; the text says what is.
    Impossible(String),
}

impl Problem {
    /// The side that caused it.
    #[must_use]
    pub fn side(&self) -> Side {
        match self {
            Self::Transport { side, .. } => *side,
            Self::Refused { .. }
            | Self::InvalidResponse { .. }
            | Self::NotReady(_)
            | Self::Fatal => Side::Peer,
            Self::TimedOut { .. } => Side::Io,
            Self::Authentication(auth::host::Problem::Refused(_))
            | Self::AuthenticationRequired
            | Self::SecureChannelRequired
            | Self::Reset
            | Self::Impossible(_) => Side::Local,
            Self::Authentication(_)
            | Self::ControllerNotAuthenticated
            | Self::SecureChannelNotOffered => Side::Peer,
            Self::QueueLost { problem, .. } => problem.side(),
        }
    }

    /// Whether Connect of the admin queue was refused because of its attributes.
    pub(super) fn is_of_attributes(&self) -> bool {
        let attributes = Some(InvalidParameter::ATTRIBUTES);
        matches!(self, Self::Refused { step: HostStep::ConnectAdmin, parameter, .. }
            if *parameter == attributes)
    }

    /// Whether Connect of an I/O queue was refused because there is no such controller: it has
    /// ended, which the admin queue's connection has not told yet.
    fn is_of_controller(&self) -> bool {
        let controller = Some(InvalidParameter::CONTROLLER_ID);
        matches!(self, Self::Refused { step: HostStep::ConnectQueue(_), parameter, .. }
            if *parameter == controller)
    }

    /// Whether a retry cannot succeed: the controller set DNR, or requires something that this
    /// host does not have.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused { status, .. } => status.do_not_retry() && !self.is_of_controller(),
            Self::AuthenticationRequired
            | Self::SecureChannelRequired
            | Self::SecureChannelNotOffered
            | Self::ControllerNotAuthenticated
            | Self::Authentication(_)
            | Self::Impossible(_) => true,
            Self::QueueLost { problem, .. } => problem.is_final(),
            Self::Transport { .. }
            | Self::InvalidResponse { .. }
            | Self::TimedOut { .. }
            | Self::NotReady(_)
            | Self::Fatal
            | Self::Reset => false,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport { reason, .. } => formatter.write_str(reason),
            Self::Refused { step, status, parameter } => {
                refusal(formatter, *step, *status, *parameter)
            }
            Self::InvalidResponse { step, what } => {
                write!(formatter, "the controller's response to {step} is invalid: {what}")
            }
            Self::TimedOut { step, waited } => {
                write!(formatter, "the controller did not answer within {waited:?}: {step}")?;
                // What accepts TCP connections on that port may be anything.
                let open = *step == HostStep::Open;
                formatter.write_str(if open {
                    "; does an NVMe-oF target listen there?"
                } else {
                    ""
                })
            }
            Self::NotReady(waited) => {
                write!(formatter, "the controller did not become ready within {waited:?}")
            }
            Self::Fatal => formatter.write_str("the controller reports a fatal state (CSTS.CFS)"),
            Self::AuthenticationRequired => formatter.write_str(
                "the controller requires authentication, and this host has no secret for it: give \
                 --dhchap-secret-file",
            ),
            Self::SecureChannelRequired => formatter.write_str(
                "the controller requires keys of TLS that are made by the authentication: give \
                 --concat and --dhchap-secret-file",
            ),
            Self::SecureChannelNotOffered => formatter.write_str(
                "the controller asks for no authentication, by which keys of TLS could be made: \
                 give this host a key there, or connect without --concat",
            ),
            Self::ControllerNotAuthenticated => formatter.write_str(
                "the controller asks for no authentication, so it cannot prove who it is, which \
                 this host requires: give it the controller's secret, or connect without one",
            ),
            Self::Authentication(problem) => write!(formatter, "{problem}"),
            Self::QueueLost { queue, problem } => {
                write!(formatter, "I/O queue {queue} was lost: {problem}")
            }
            Self::Reset => formatter.write_str("a reset was asked for"),
            Self::Impossible(what) => formatter.write_str(what),
        }
    }
}

impl core::error::Error for Problem {}

fn refusal(
    formatter: &mut fmt::Formatter<'_>,
    step: HostStep,
    status: Status,
    parameter: Option<InvalidParameter>,
) -> fmt::Result {
    let is_connect = matches!(step, HostStep::ConnectAdmin | HostStep::ConnectQueue(_));
    match connect_words(status, parameter).filter(|_| is_connect) {
        Some(words) => write!(formatter, "the controller refused {step}: {words}"),
        None => write!(formatter, "the controller refused {step}: {status}"),
    }
}

/// Why a Connect was refused, in words.
pub(crate) fn connect_words(
    status: Status,
    parameter: Option<InvalidParameter>,
) -> Option<&'static str> {
    parameter.and_then(parameter_words).or_else(|| {
        Some(match status.code() {
            StatusCode::CONNECT_INVALID_HOST => {
                "this host NQN is not allowed to connect to the subsystem"
            }
            code if code == Status::CONNECT_CONTROLLER_BUSY.code() => "the controller is busy",
            code if code == Status::CONNECT_INCOMPATIBLE_FORMAT.code() => {
                "it does not know this record format"
            }
            code if code == Status::CONNECT_RESTART_DISCOVERY.code() => {
                "the subsystem has moved, discovery has to be done again"
            }
            _ => return None,
        })
    })
}

fn parameter_words(parameter: InvalidParameter) -> Option<&'static str> {
    Some(match parameter {
        InvalidParameter::SUBSYSTEM_NQN => "there is no subsystem of this NQN at this address",
        InvalidParameter::HOST_NQN => "it does not accept this host NQN",
        InvalidParameter::HOST_ID => "it does not accept this host identifier",
        InvalidParameter::CONTROLLER_ID => "there is no controller of this identifier",
        InvalidParameter::QUEUE_ID => "it does not accept this queue identifier",
        InvalidParameter::SUBMISSION_QUEUE_SIZE => "it does not accept this queue size",
        InvalidParameter::ATTRIBUTES => "it does not accept these connect attributes",
        InvalidParameter::KEEP_ALIVE_TIMEOUT => "it does not accept this keep-alive timeout",
        InvalidParameter::RECORD_FORMAT => "it does not accept this record format",
        _ => return None,
    })
}

/// A refusal, with the parameter that a Connect names.
pub(super) fn refused(step: HostStep, completion: &Completion) -> Problem {
    let status = completion.status();
    let is_connect = matches!(step, HostStep::ConnectAdmin | HostStep::ConnectQueue(_));
    let names_parameter = is_connect && status.code() == Status::CONNECT_INVALID_PARAMETERS.code();
    let parameter = names_parameter.then(|| InvalidParameter(completion.dword0()));
    Problem::Refused { step, status, parameter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_parameter() {
        let refused = |status, parameter| Problem::Refused {
            step: HostStep::ConnectAdmin,
            status,
            parameter,
        };
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        let problem = refused(status, Some(InvalidParameter::SUBSYSTEM_NQN));
        assert_eq!(
            problem.to_string(),
            "the controller refused Connect of the admin queue: \
             there is no subsystem of this NQN at this address"
        );
        assert_eq!((problem.side(), problem.is_final()), (Side::Peer, true));
        let problem = refused(Status::CONNECT_CONTROLLER_BUSY, None);
        assert!(problem.to_string().ends_with("the controller is busy"));
        assert!(!problem.is_final());
        let problem = refused(status, Some(InvalidParameter::in_command(17)));
        assert!(problem.to_string().contains("Connect Invalid Parameters"), "{problem}");
    }

    #[test]
    fn a_lost_queue_names_the_side_that_lost_it() {
        let inner = Problem::Transport { side: Side::Io, reason: "connection reset".into() };
        let problem = Problem::QueueLost { queue: 3, problem: Box::new(inner) };
        assert_eq!(problem.to_string(), "I/O queue 3 was lost: connection reset");
        assert_eq!((problem.side(), problem.is_final()), (Side::Io, false));
        assert!(Problem::AuthenticationRequired.is_final());
        assert_eq!(Side::Local.to_string(), "local");
    }
}
