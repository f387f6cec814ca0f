//! JSON values on a stream of bytes.

use std::io::{self, Read};

use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// Why a value could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The peer closed the connection between two values.
    Closed,
    /// The value is not JSON, or not of the expected type.
    Invalid(serde_json::Error),
    /// The value exceeds its limit.
    TooLong,
    /// The connection failed or timed out.
    Io(io::Error),
}

/// Reads one JSON value. An object or array ends at its last bracket, whatever follows it, so a
/// peer need not end its request with a new line. After an error other than
/// [`ReadError::Closed`] it is not known where the next value begins.
///
/// # Errors
/// There is no value, it is not valid, or it is longer than `bytes_max`.
pub fn read_value<T: DeserializeOwned>(
    from: &mut impl Read,
    bytes_max: u64,
) -> Result<T, ReadError> {
    let mut limited = from.take(bytes_max);
    let result = serde_json::Deserializer::from_reader(&mut limited).into_iter().next();
    let too_long = limited.limit() == 0;
    match result {
        Some(Ok(value)) => Ok(value),
        None if !too_long => Err(ReadError::Closed),
        Some(Err(error)) if error.classify() == Category::Io => Err(ReadError::Io(error.into())),
        Some(Err(error)) if !too_long || !error.is_eof() => Err(ReadError::Invalid(error)),
        None | Some(Err(_)) => Err(ReadError::TooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::BufReader;

    #[test]
    fn values_end_where_their_brackets_close_however_they_arrive() {
        let text = b"{\"a\": \"}\"}{\n  \"b\": [1]\n}\r\n[]";
        for capacity in 1..=text.len() {
            let mut from = BufReader::with_capacity(capacity, &text[..]);
            for expected in [json!({"a": "}"}), json!({"b": [1]}), json!([])] {
                assert_eq!(read_value::<Value>(&mut from, 100).expect("a value"), expected);
            }
            assert!(matches!(read_value::<Value>(&mut from, 100), Err(ReadError::Closed)));
        }
    }

    #[test]
    fn a_value_is_not_read_beyond_its_limit() {
        for text in [
            vec![b' '; 100_000],
            vec![b'['; 100_000],
            [b"\"".to_vec(), vec![b'x'; 100_000]].concat(),
        ] {
            let mut from = &text[..];
            let error = read_value::<Value>(&mut from, 100).expect_err("too long");
            assert!(matches!(error, ReadError::TooLong), "{error:?}");
            assert!(from.len() >= text.len() - 100);
        }
    }

    #[test]
    fn a_value_that_is_cut_or_malformed_is_invalid() {
        for text in ["{\"a\":", "{\"a\" 1}", "nonsense", "{\"a\": \"line\n\"}"] {
            let error = read_value::<Value>(&mut text.as_bytes(), 100).expect_err("invalid");
            assert!(matches!(error, ReadError::Invalid(_)), "{text}: {error:?}");
        }
    }
}
