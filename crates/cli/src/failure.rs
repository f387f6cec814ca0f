//! Errors of subcommands.

use std::{fmt, io};

/// Why a subcommand failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A sentence for the user.
    Because(String),
    /// It has been reported already; only the exit code is missing.
    Told,
    /// The same with a specific exit code.
    Exit(u8),
    /// The reader of standard output has closed it.
    ReaderGone,
}

impl Failure {
    /// From a sentence.
    pub(crate) fn because(what: impl fmt::Display) -> Self {
        Self::Because(what.to_string())
    }

    /// From an I/O error of a named file.
    pub(crate) fn io(doing: &str, what: &dyn fmt::Display, error: &io::Error) -> Self {
        Self::Because(format!("cannot {doing} {what}: {error}"))
    }

    /// The error of a command that prints what it is about to serve: a reader that has ended early
    /// is an error there, since nothing is served.
    pub(crate) fn before_serving(self) -> Self {
        match self {
            Self::ReaderGone => Self::Because(
                "cannot write to standard output: its reader has closed it".to_owned(),
            ),
            other => other,
        }
    }

    /// From an I/O error of standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::io("write to", &"standard output", error)
        }
    }
}

impl From<weft_host::Error> for Failure {
    fn from(error: weft_host::Error) -> Self {
        Self::because(error)
    }
}
