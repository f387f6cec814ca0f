//! NVMe Qualified Names.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use crate::wire::until_nul;

/// Longest name, in bytes.
pub const NQN_LENGTH_MAX: usize = 223;

/// Bytes of a field that holds a name: the name, then zeros.
pub const NQN_FIELD_LENGTH: usize = 256;

/// A qualified name of a host or a subsystem.
///
/// Valid means: 1 to 223 bytes of UTF-8 without control characters. The specification asks for
/// more (the prefix `nqn.` with a date and a domain, or a UUID), but Linux on both sides takes
/// whatever fits, so this does too; [`Nqn::is_well_formed`] tells.
///
/// The text is kept in place: making, copying and comparing a name allocates nothing.
#[derive(Clone, Copy)]
pub struct Nqn {
    length: u8,
    text: [u8; NQN_LENGTH_MAX],
}

/// Why some bytes are no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidNqn {
    /// There are no bytes.
    Empty,
    /// There are more than [`NQN_LENGTH_MAX`] bytes.
    TooLong,
    /// The bytes are not UTF-8.
    NotUtf8,
    /// There is a control character.
    ControlCharacter,
}

impl fmt::Display for InvalidNqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "an NQN is empty",
            Self::TooLong => "an NQN has more than 223 bytes",
            Self::NotUtf8 => "an NQN is not UTF-8",
            Self::ControlCharacter => "an NQN has a control character",
        })
    }
}

impl core::error::Error for InvalidNqn {}

impl Nqn {
    /// The well-known name of the discovery service.
    pub const DISCOVERY: Self = Self::constant(b"nqn.2014-08.org.nvmexpress.discovery");

    /// What a name made from a UUID begins with.
    pub const UUID_PREFIX: &'static str = "nqn.2014-08.org.nvmexpress:uuid:";

    /// A name known when the crate is compiled.
    const fn constant(ascii: &[u8]) -> Self {
        assert!(ascii.len() <= NQN_LENGTH_MAX);
        let mut text = [0; NQN_LENGTH_MAX];
        let mut index = 0;
        while index < ascii.len() {
            assert!(ascii[index].is_ascii_graphic());
            text[index] = ascii[index];
            index += 1;
        }
        #[allow(clippy::cast_possible_truncation)] // asserted above
        Self { length: ascii.len() as u8, text }
    }

    /// The name made from a UUID.
    #[must_use]
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        let hexadecimal = |nibble: u8| match nibble {
            0..=9 => b'0' + nibble,
            _ => b'a' + nibble - 10,
        };
        let digits = uuid.into_iter().enumerate().flat_map(|(index, byte)| {
            let hyphen = matches!(index, 4 | 6 | 8 | 10).then_some(b'-');
            hyphen.into_iter().chain([hexadecimal(byte >> 4), hexadecimal(byte & 0xf)])
        });
        let mut name = Self { length: 0, text: [0; NQN_LENGTH_MAX] };
        for (place, character) in name.text.iter_mut().zip(Self::UUID_PREFIX.bytes().chain(digits))
        {
            *place = character;
            name.length += 1;
        }
        name
    }

    /// The name that these bytes are, all of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidNqn> {
        if bytes.is_empty() {
            return Err(InvalidNqn::Empty);
        }
        let mut text = [0; NQN_LENGTH_MAX];
        let Some(room) = text.get_mut(..bytes.len()) else {
            return Err(InvalidNqn::TooLong);
        };
        let name = str::from_utf8(bytes).map_err(|_| InvalidNqn::NotUtf8)?;
        if name.chars().any(char::is_control) {
            return Err(InvalidNqn::ControlCharacter);
        }
        room.copy_from_slice(bytes);
        let length = u8::try_from(bytes.len()).map_err(|_| InvalidNqn::TooLong)?;
        Ok(Self { length, text })
    }

    /// The name in a field of fixed length: up to the first NUL, or all of the field.
    pub fn from_field(field: &[u8]) -> Result<Self, InvalidNqn> {
        Self::from_bytes(until_nul(field))
    }

    /// The name as a field of 256 bytes, padded with zeros.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_LENGTH] {
        let mut field = [0; NQN_FIELD_LENGTH];
        let (head, _) = field.split_at_mut(NQN_LENGTH_MAX);
        head.copy_from_slice(&self.text);
        field
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(..usize::from(self.length)).unwrap_or(&self.text)
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Whether this is the well-known name of the discovery service.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        *self == Self::DISCOVERY
    }

    /// Whether the name has the form that the specification asks for: `nqn.yyyy-mm.` and a
    /// domain in reverse, then anything.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let Some(rest) = self.as_bytes().strip_prefix(b"nqn.") else { return false };
        let [y0, y1, y2, y3, b'-', m0, m1, b'.', domain, ..] = rest else { return false };
        [y0, y1, y2, y3, m0, m1].iter().all(|digit| digit.is_ascii_digit())
            && domain.is_ascii_alphanumeric()
    }
}

impl PartialEq for Nqn {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Nqn {}

impl PartialOrd for Nqn {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nqn {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Nqn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialEq<str> for Nqn {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Nqn({self})")
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for Nqn {
    type Err = InvalidNqn;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_bytes(text.as_bytes())
    }
}

impl TryFrom<&str> for Nqn {
    type Error = InvalidNqn;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};
    use std::{format, vec};

    #[test]
    fn text_round_trips() {
        for text in [
            "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349",
            "nqn.2016-06.io.spdk:cnode1",
            "blktests-subsystem-1",
            "x",
            "nqn.2024-01.org.exämple:ü",
        ] {
            let nqn: Nqn = text.parse().expect(text);
            assert_eq!(nqn.to_string(), text);
            assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
            assert_eq!(&nqn, text);
        }
    }

    #[test]
    fn a_uuid_makes_a_name() {
        let uuid = 0x0f01_fb42_9f7f_4856_b0b3_51e6_0b8d_e349_u128.to_be_bytes();
        let name = "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349";
        assert_eq!(&Nqn::from_uuid(uuid), name);
    }

    #[test]
    fn length_has_a_limit() {
        let longest = "n".repeat(NQN_LENGTH_MAX);
        assert_eq!(longest.parse::<Nqn>().unwrap().as_str(), longest);
        assert_eq!("n".repeat(224).parse::<Nqn>(), Err(InvalidNqn::TooLong));
        assert_eq!(Nqn::from_field(&[b'n'; 256]), Err(InvalidNqn::TooLong));
        assert_eq!(String::new().parse::<Nqn>(), Err(InvalidNqn::Empty));
        assert_eq!(Nqn::from_field(&[0; 256]), Err(InvalidNqn::Empty));
    }

    #[test]
    fn a_name_has_no_control_characters() {
        assert_eq!("nqn\nx".parse::<Nqn>(), Err(InvalidNqn::ControlCharacter));
        assert_eq!("nqn\u{1b}[2J".parse::<Nqn>(), Err(InvalidNqn::ControlCharacter));
        assert_eq!(Nqn::from_bytes(b"a\0b"), Err(InvalidNqn::ControlCharacter));
        assert_eq!(Nqn::from_bytes(&[0xff, 0xfe]), Err(InvalidNqn::NotUtf8));
    }

    #[test]
    fn a_field_ends_at_its_first_nul() {
        let mut field = vec![0; 256];
        field[..5].copy_from_slice(b"abc\0x");
        assert_eq!(Nqn::from_field(&field).unwrap().as_str(), "abc");
    }

    #[test]
    fn discovery() {
        assert!(Nqn::DISCOVERY.is_discovery() && Nqn::DISCOVERY.is_well_formed());
        let parsed: Nqn = "nqn.2014-08.org.nvmexpress.discovery".parse().unwrap();
        assert_eq!(parsed, Nqn::DISCOVERY);
        assert_eq!(format!("{parsed:?}"), "Nqn(nqn.2014-08.org.nvmexpress.discovery)");
        assert!(!Nqn::try_from("nqn.2014-08.org").unwrap().is_discovery());
    }

    #[test]
    fn form() {
        assert!(Nqn::try_from("nqn.2016-06.io.spdk:cnode1").unwrap().is_well_formed());
        for text in ["testnqn", "nqn.2016-6.io", "nqn.2016-06", "nqn.2016-06.", "nqn.x016-06.io"] {
            assert!(!Nqn::try_from(text).unwrap().is_well_formed(), "{text}");
        }
    }

    #[test]
    fn order_is_that_of_the_text() {
        assert!(Nqn::try_from("a").unwrap() < Nqn::try_from("ab").unwrap());
        assert!(Nqn::try_from("ab").unwrap() < Nqn::try_from("b").unwrap());
    }
}
