//! The secret that a caller shows over TCP.

use std::{fmt, fs, os::unix::fs::PermissionsExt, path::Path};

use serde::{Deserialize, Serialize};

use crate::method::Method;

/// Fewer characters could be guessed.
const LENGTH_MIN: usize = 16;

/// The secret of a file, which a server and its clients have.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Reads it from a file, without the line's end.
    ///
    /// # Errors
    /// One sentence: the file cannot be read, others may read it, or what it has is too short.
    pub fn load(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let told = |error| format!("cannot read the token file {shown}: {error}");
        let mode = fs::metadata(path).map_err(told)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!("others may read the token file {shown}: chmod 600 {shown}"));
        }
        let token = fs::read_to_string(path).map_err(told)?.trim().to_owned();
        match token.len() {
            LENGTH_MIN.. => Ok(Self(token)),
            _ => Err(format!(
                "the token file {shown} needs at least {LENGTH_MIN} characters: head -c 24 \
                 /dev/urandom | base64 > {shown}"
            )),
        }
    }
}

/// Takes a time that does not depend on where they differ.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        let differs = own.iter().zip(other).fold(0, |differs, (one, two)| differs | (one ^ two));
        own.len() == other.len() && std::hint::black_box(differs) == 0
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The first call of a connection to a server that has a token.
#[derive(Clone, Copy, Debug)]
pub struct Authenticate;

/// Its parameters.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthenticateParams {
    /// What the caller's file has.
    pub token: Token,
}

impl Method for Authenticate {
    const NAME: &'static str = "authenticate";
    type Params = AuthenticateParams;
    type Answer = bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_from_a_file_that_only_its_user_reads() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("token");
        let load = |text: &str, mode: u32| {
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
            Token::load(&path)
        };
        let token = load("0123456789abcdef\n", 0o600).expect("a token");
        assert_eq!(token, Token("0123456789abcdef".to_owned()));
        for other in ["0123456789abcdeg", "0123456789abcde", "0123456789abcdeff", ""] {
            assert_ne!(token, Token(other.to_owned()));
        }
        assert!(!format!("{token:?}").contains("0123"));
        assert!(load("0123456789abcdef\n", 0o640).expect_err("open").contains("chmod 600"));
        assert!(load("short\n", 0o600).expect_err("short").contains("at least 16"));
        fs::remove_file(&path).expect("removed");
        assert!(Token::load(&path).expect_err("gone").contains("cannot read"));
    }
}
