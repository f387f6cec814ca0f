//! Where an agent is, as text.

use std::fmt;
use std::str::FromStr;

/// Where an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentPlace {
    /// Beside this process.
    Here,
    /// Where ssh goes.
    Ssh(String),
    /// Where a command starts it.
    Exec(Vec<String>),
    /// On a node of this job's allocation.
    Slurm(String),
}

impl FromStr for AgentPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "here" {
            return Ok(Self::Here);
        }
        if let Some(command) = text.strip_prefix("exec:") {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            return match words.first() {
                Some(program) if !program.starts_with('-') => Ok(Self::Exec(words)),
                _ => Err(format!(
                    "{text:?} names no command (example: exec:ip netns exec NAME weft agent)"
                )),
            };
        }
        let (node, what) = match text.strip_prefix("slurm:") {
            Some(node) => (node, "the name of a node of Slurm"),
            None => (text, "a destination of ssh"),
        };
        // No option and nothing that a shell would interpret: ssh has both.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@:/%[]+~".contains(c);
        let host = node.rsplit(['@', '/']).next().unwrap_or_default();
        if node.is_empty() || [node, host].iter().any(|part| part.starts_with('-')) {
            return Err(format!("{text:?} is not {what}"));
        }
        match node.chars().find(|c| !is_plain(*c)) {
            Some(other) => Err(format!("{text:?} is not {what}: it has {other:?} in it")),
            None if node.len() < text.len() => Ok(Self::Slurm(node.to_owned())),
            None => Ok(Self::Ssh(node.to_owned())),
        }
    }
}

impl fmt::Display for AgentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("here"),
            Self::Ssh(destination) => f.write_str(destination),
            Self::Exec(words) => write!(f, "exec:{}", words.join(" ")),
            Self::Slurm(node) => write!(f, "slurm:{node}"),
        }
    }
}
