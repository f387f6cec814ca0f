//! Why a verb did not do what it should.

use std::{fmt, io};

/// Why a verb ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One sentence for the user.
    Because(String),
    /// The user has been told; only the exit code is missing.
    Told,
    /// The same with an exit code that says which answer it was.
    Exit(u8),
    /// Nobody reads the output any more.
    ReaderGone,
}

impl Failure {
    /// With a sentence.
    pub(crate) fn because(what: impl fmt::Display) -> Self {
        Self::Because(what.to_string())
    }

    /// An error of reading or writing something that has a name.
    pub(crate) fn io(doing: &str, what: &dyn fmt::Display, error: &io::Error) -> Self {
        Self::Because(format!("cannot {doing} {what}: {error}"))
    }

    /// An error of writing to standard output.
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
