//! Looking at bytes as a layout, and the little-endian integers that layouts are made of.

use core::fmt;

pub use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A layout: a type that is its own wire form, at any alignment and for any bit pattern.
///
/// Implemented for every type that has these properties.
pub trait Wire: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// The number of bytes on the wire.
    const SIZE: usize = size_of::<Self>();

    /// The layout at the beginning of `bytes`, in place; what follows it is ignored.
    fn view(bytes: &[u8]) -> Result<&Self, TruncationError> {
        match Self::ref_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(TruncationError { needed: Self::SIZE, available: bytes.len() }),
        }
    }

    /// The layout at the beginning of `bytes`, in place and writable.
    fn view_mut(bytes: &mut [u8]) -> Result<&mut Self, TruncationError> {
        let available = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(TruncationError { needed: Self::SIZE, available }),
        }
    }

    /// The layout at the beginning of `bytes`, copied out.
    fn read(bytes: &[u8]) -> Result<Self, TruncationError> {
        match Self::read_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(TruncationError { needed: Self::SIZE, available: bytes.len() }),
        }
    }

    /// Copies the layout to the beginning of `bytes`.
    fn write(&self, bytes: &mut [u8]) -> Result<(), TruncationError> {
        let available = bytes.len();
        self.write_to_prefix(bytes).map_err(|_| TruncationError { needed: Self::SIZE, available })
    }

    /// The bytes as they go on the wire.
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The layout with every byte zero.
    fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> Wire for T {}

/// There were fewer bytes than the layout has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TruncationError {
    /// Bytes that the layout has.
    pub needed: usize,
    /// Bytes that there were.
    pub available: usize,
}

impl fmt::Display for TruncationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes where {} are needed", self.available, self.needed)
    }
}

impl core::error::Error for TruncationError {}

/// Reserved bytes: sent as zero, ignored on receipt, and not worth printing.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Reserved<const LENGTH: usize>(pub [u8; LENGTH]);

impl<const LENGTH: usize> Default for Reserved<LENGTH> {
    fn default() -> Self {
        Self([0; LENGTH])
    }
}

impl<const LENGTH: usize> fmt::Debug for Reserved<LENGTH> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{LENGTH} bytes]")
    }
}

/// A text field: ASCII, left justified, padded with spaces.
///
/// Reading is generous (NULs pad as well, and some devices use both); writing is not.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Text<const LENGTH: usize>(pub [u8; LENGTH]);

impl<const LENGTH: usize> Text<LENGTH> {
    /// The field with this text: cut if it is too long, and with `?` for what is not printable
    /// ASCII.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut field = [b' '; LENGTH];
        for (place, character) in field.iter_mut().zip(text.chars()) {
            let printable = matches!(character, ' '..='~');
            *place = u8::try_from(character).ok().filter(|_| printable).unwrap_or(b'?');
        }
        Self(field)
    }

    /// The bytes of the text without padding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        let mut text = until_nul(&self.0);
        while let [rest @ .., b' '] = text {
            text = rest;
        }
        text
    }

    /// The text without padding, if it is UTF-8: as the peer sent it, to be compared or parsed.
    /// What is shown is made by `Display`, which leaves nothing that a terminal would obey.
    #[must_use]
    pub fn raw_text(&self) -> Option<&str> {
        str::from_utf8(self.as_bytes()).ok()
    }
}

impl<const LENGTH: usize> Default for Text<LENGTH> {
    fn default() -> Self {
        Self([b' '; LENGTH])
    }
}

impl<const LENGTH: usize> fmt::Display for Text<LENGTH> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for byte in self.as_bytes() {
            let printable = matches!(byte, b' '..=b'~');
            formatter.write_char(if printable { char::from(*byte) } else { '?' })?;
        }
        Ok(())
    }
}

impl<const LENGTH: usize> fmt::Debug for Text<LENGTH> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{self}\"")
    }
}

/// The bytes of a fixed field up to its first NUL, or all of them.
pub(crate) fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    field.get(..end).unwrap_or(field)
}

#[cfg(test)]
pub(crate) mod test_support {
    use super::*;

    /// A layout must come back from its bytes, and no shorter prefix may yield one.
    pub(crate) fn check_truncations<T: Wire>(vector: &[u8]) {
        assert_eq!(vector.len(), T::SIZE, "the vector must be exactly one layout");
        for length in 0..vector.len() {
            let expected = TruncationError { needed: T::SIZE, available: length };
            assert_eq!(T::view(&vector[..length]).err(), Some(expected));
            assert_eq!(T::read(&vector[..length]).err(), Some(expected));
        }
        assert_eq!(T::view(vector).expect("whole").bytes(), vector);
        let mut shifted = std::vec![0xeeu8; 1];
        shifted.extend_from_slice(vector);
        shifted.push(0xee);
        assert_eq!(T::read(&shifted[1..]).expect("any offset").bytes(), vector);
    }

    /// Bytes from text such as `"06 00 0d00"`; white space is ignored.
    pub(crate) fn hex(text: &str) -> std::vec::Vec<u8> {
        let digits: std::vec::Vec<u8> = text
            .chars()
            .filter(|character| !character.is_whitespace())
            .map(|character| u8::try_from(character.to_digit(16).expect("hex")).expect("nibble"))
            .collect();
        assert_eq!(digits.len() % 2, 0, "an odd number of hex digits");
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// `text`'s bytes, followed by zeros up to `length`.
    pub(crate) fn hex_padded(text: &str, length: usize) -> std::vec::Vec<u8> {
        let mut bytes = hex(text);
        assert!(bytes.len() <= length, "the vector is longer than {length}");
        bytes.resize(length, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn view_mut_writes_in_place() {
        let mut bytes = [0u8; 5];
        *U32::view_mut(&mut bytes[1..]).unwrap() = U32::new(0x0102_0304);
        assert_eq!(bytes, [0, 4, 3, 2, 1]);
        assert_eq!(
            U32::view_mut(&mut bytes[2..]).err(),
            Some(TruncationError { needed: 4, available: 3 })
        );
        assert_eq!(U16::new(0xabcd).write(&mut bytes[4..]).unwrap_err().available, 1);
        U16::new(0xabcd).write(&mut bytes).unwrap();
        assert_eq!(bytes[..2], [0xcd, 0xab]);
    }

    #[test]
    fn fields_end_at_nul() {
        assert_eq!(until_nul(b"ab\0c"), b"ab");
        assert_eq!(until_nul(b"abc"), b"abc");
        assert_eq!(until_nul(b""), b"");
    }

    #[test]
    fn text_is_padded_with_spaces() {
        assert_eq!(Text::<6>::new("abc").0, *b"abc   ");
        assert_eq!(Text::<6>::new("abcdefgh").0, *b"abcdef");
        assert_eq!(Text::<6>::new("a\u{e4}\n").0, *b"a??   ");
        assert_eq!(Text::<6>::default().raw_text(), Some(""));
    }

    #[test]
    fn text_is_read_with_either_padding() {
        assert_eq!(Text(*b" ab \0x").raw_text(), Some(" ab"));
        assert_eq!(Text(*b"abc").raw_text(), Some("abc"));
        assert_eq!(Text([0xff, b'a', 0x1b]).raw_text(), None);
        assert_eq!(format!("{0} {0:?}", Text([0xff, b'a', 0x1b])), "?a? \"?a?\"");
        assert_eq!(format!("{:?}", Reserved::<9>::default()), "[9 bytes]");
    }
}
