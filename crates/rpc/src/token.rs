//! The secret that a caller shows over TCP.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::method::Method;

/// Fewer characters could be guessed.
const LENGTH_MIN: usize = 16;

/// The secret that a server and its clients have.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// The secret of a text, which may end with a line's end.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(text: &str) -> Result<Self, String> {
        let token = text.trim();
        match token.len() {
            LENGTH_MIN.. => Ok(Self(token.to_owned())),
            _ => Err(format!(
                "a token has at least {LENGTH_MIN} characters, as head -c 24 /dev/urandom | base64 \
                 makes them"
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
    fn a_token_is_long_and_is_not_printed() {
        let token = Token::new("0123456789abcdef\n").expect("a token");
        assert_eq!(token, Token("0123456789abcdef".to_owned()));
        for other in ["0123456789abcdeg", "0123456789abcde", "0123456789abcdeff", ""] {
            assert_ne!(token, Token(other.to_owned()));
        }
        assert!(!format!("{token:?}").contains("0123"));
        assert!(Token::new("short\n").expect_err("short").contains("at least 16"));
    }
}
