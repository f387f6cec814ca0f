//! UUID, NGUID and EUI-64 in the forms that people and other tools write.

use std::fmt;

use serde::{Deserialize, Deserializer, Serializer};
use serde_with::{DeserializeAs, DeserializeFromStr, SerializeAs};

/// An identifier of `N` bytes, written as hexadecimal digits with any `-`, `:` or `.` between
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, DeserializeFromStr)]
pub struct HexId<const N: usize>(pub [u8; N]);

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIdError {
    text: String,
    digits: usize,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an identifier of {} hexadecimal digits", self.text, self.digits)
    }
}

impl std::error::Error for ParseIdError {}

impl<const N: usize> std::str::FromStr for HexId<N> {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseIdError { text: text.to_owned(), digits: 2 * N };
        let trimmed = text.trim();
        let trimmed = trimmed.strip_prefix("0x").unwrap_or(trimmed);
        let mut bytes = [0; N];
        let mut digits = 0;
        for letter in trimmed.chars().filter(|c| !matches!(c, '-' | ':' | '.')) {
            let digit = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let place = bytes.get_mut(digits / 2).ok_or_else(error)?;
            *place = *place << 4 | digit.ok_or_else(error)?;
            digits += 1;
        }
        if digits == 2 * N { Ok(Self(bytes)) } else { Err(error()) }
    }
}

impl<const N: usize> fmt::Display for HexId<N> {
    /// As a UUID is written, if it has the length of one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_uuid = N == 16;
        for (place, byte) in self.0.iter().enumerate() {
            f.write_str(if is_uuid && matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" })?;
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl<const N: usize> SerializeAs<[u8; N]> for HexId<N> {
    fn serialize_as<S: Serializer>(id: &[u8; N], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Self(*id))
    }
}

impl<'de, const N: usize> DeserializeAs<'de, [u8; N]> for HexId<N> {
    fn deserialize_as<D: Deserializer<'de>>(deserializer: D) -> Result<[u8; N], D::Error> {
        Self::deserialize(deserializer).map(|Self(id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_in_every_form() {
        let expected = [
            0xef, 0x90, 0x68, 0x9c, 0x6c, 0x46, 0xd4, 0x4c, 0x89, 0xc1, 0x40, 0x67, 0x80, 0x13,
            0x09, 0xa8,
        ];
        for text in [
            "ef90689c-6c46-d44c-89c1-4067801309a8",
            "EF90689C6C46D44C89C14067801309A8",
            "0xef90689c6c46d44c89c14067801309a8",
            " ef:90:68:9c:6c:46:d4:4c:89:c1:40:67:80:13:09:a8 ",
        ] {
            assert_eq!(text.parse(), Ok(HexId(expected)), "{text}");
        }
        assert_eq!("00-11-22-33-44-55-66-77".parse(), Ok(HexId([0, 17, 34, 51, 68, 85, 102, 119])));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0", "x", "00112233445566", "001122334455667788", "0011223344556g77", "é"]
        {
            let error = text.parse::<HexId<8>>().expect_err(text).to_string();
            assert!(error.contains("16 hexadecimal digits"), "{error}");
        }
    }
}
