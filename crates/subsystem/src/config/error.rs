//! The one error of this module: what is wrong, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    line: Option<usize>,
    key: String,
    what: String,
    remedy: String,
}

impl ConfigError {
    /// An error at a key, written as a path (`subsystem[0].namespace[1].nsid`); empty: the whole.
    #[must_use]
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: None, line: None, key: key.into(), what: what.into(), remedy: String::new() }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Adds the file it is in.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Adds the line it is on, counted from 1.
    #[must_use]
    pub fn on_line(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }

    /// The same, with the flag of a command line in place of the key that it sets.
    #[must_use]
    pub fn at_flag(mut self, flag: &str) -> Self {
        self.key = flag.to_owned();
        self
    }

    /// The key it is at.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The line it is on, if that is known.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// It without its place in a file: for who changes what is served by other means.
    #[must_use]
    pub fn sentence(&self) -> String {
        // What is no path begins a sentence already.
        let is_path = !self.key.contains(' ');
        let last = self.key.rsplit('.').next().filter(|_| is_path).unwrap_or(&self.key);
        let name = match last.split('[').next().unwrap_or(last) {
            "allowed-hosts" | "visible-to" => "host",
            "namespaces-max" => "max-namespaces",
            name => name,
        };
        let error = Self::new("", self.what.clone()).remedy(self.remedy.clone());
        if name.is_empty() { error.to_string() } else { format!("{name}: {error}") }
    }

    pub(super) fn with_key(mut self, key: String) -> Self {
        self.key = key;
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_file_line_key_fault_and_remedy() {
        let error = ConfigError::new("port[0].listen", "it is empty").remedy("give an address");
        assert_eq!(error.to_string(), "`port[0].listen`: it is empty; give an address");
        let error = error.in_file(Path::new("a.toml"));
        assert_eq!(error.to_string(), "a.toml: `port[0].listen`: it is empty; give an address");
        let error = error.on_line(Some(3));
        assert_eq!(error.to_string(), "a.toml:3: `port[0].listen`: it is empty; give an address");
        assert_eq!(ConfigError::new("", "bad").on_line(Some(2)).to_string(), "line 2: bad");
    }

    #[test]
    fn the_sentence_has_no_place_in_a_file() {
        for (key, sentence) in [
            ("rate-limit[3].burst", "burst: it is longer than 60s; give 1s"),
            ("subsystem[1].allowed-hosts[0]", "host: it is longer than 60s; give 1s"),
            ("subsystem[1]", "subsystem: it is longer than 60s; give 1s"),
            ("uuid of nqn.a.b", "uuid of nqn.a.b: it is longer than 60s; give 1s"),
            ("", "it is longer than 60s; give 1s"),
        ] {
            let error = ConfigError::new(key, "it is longer than 60s").remedy("give 1s");
            assert_eq!(error.in_file(Path::new("a.toml")).sentence(), sentence);
        }
    }
}
