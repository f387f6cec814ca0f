//! Values of axes and fixed settings.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The settings of a cell: the value of every axis and every fixed setting, by name (see
/// [`key`](super::key)).
pub type Configuration = BTreeMap<String, Value>;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A whole number: bytes, a depth, a count.
    Integer(u64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// The whole number, if it is one.
    #[must_use]
    pub fn as_integer(&self) -> Option<u64> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, whole or not.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Number(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As one of several values on a command line, which have commas between them: a comma in it is
    /// written twice.
    #[must_use]
    pub fn as_word(&self) -> String {
        self.to_string().replace(',', ",,")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(u64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

/// A setting whose value is text; empty if there is none.
#[must_use]
pub fn text<'a>(configuration: &'a Configuration, key: &str) -> &'a str {
    configuration.get(key).and_then(Value::as_text).unwrap_or_default()
}

/// A setting whose value is a whole number.
#[must_use]
pub fn integer(configuration: &Configuration, key: &str) -> Option<u64> {
    configuration.get(key).and_then(Value::as_integer)
}
