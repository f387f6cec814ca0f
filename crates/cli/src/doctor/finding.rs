//! What is found, and how bad it is.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// It was looked at, and nothing is to be done.
    Ok,
    /// Good to know.
    Note,
    /// It costs speed, or will fail later.
    Warning,
    /// It does not work, or loses data.
    Fault,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) what: String,
    /// Why it matters.
    pub(super) why: String,
    /// What to do: a command, or a setting.
    #[serde(rename = "do")]
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        what: impl Into<String>,
        why: &str,
        remedy: &str,
    ) -> Self {
        Self { severity, what: what.into(), why: why.to_owned(), remedy: remedy.to_owned() }
    }

    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self::new(Severity::Ok, what, "", "")
    }
}
