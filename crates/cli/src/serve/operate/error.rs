//! Errors as SPDK's methods have them.

use weft_rpc::{Code, ErrorObject};

/// What SPDK's errors begin with.
const KINDS: [&str; 4] =
    ["Invalid parameters: ", "Invalid argument: ", "No such device: ", "File exists: "];

/// The sentence of an error, for who does not know of methods and parameters.
pub(crate) fn sentence(message: &str) -> &str {
    let creating = || message.strip_prefix("Unable to create subsystem ")?.split_once(": ");
    let kind = KINDS.iter().find_map(|kind| message.strip_prefix(kind));
    kind.or_else(|| creating().map(|(_, what)| what)).unwrap_or(message)
}

/// An error in the parameters of a method.
pub(in crate::serve) fn invalid(what: impl std::fmt::Display) -> ErrorObject {
    ErrorObject::new(Code::INVALID_PARAMS, format!("Invalid parameters: {what}"))
}

pub(super) fn no_device(what: impl std::fmt::Display) -> ErrorObject {
    ErrorObject::new(Code(-19), format!("No such device: {what}"))
}
