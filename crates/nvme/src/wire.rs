//! Looking at bytes as a layout, and the little-endian integers that layouts are made of.

use core::fmt;

pub use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A layout: a type that is its own wire form, at any alignment and for any bit pattern.
///
/// Implemented for every type that has the properties; nobody implements it by hand.
pub trait Wire: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized {
    /// The number of bytes on the wire.
    const SIZE: usize = size_of::<Self>();

    /// The layout at the beginning of `bytes`, in place; what follows it is ignored.
    fn view(bytes: &[u8]) -> Result<&Self, Truncated> {
        match Self::ref_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(Truncated { needed: Self::SIZE, available: bytes.len() }),
        }
    }

    /// The layout at the beginning of `bytes`, in place and writable.
    fn view_mut(bytes: &mut [u8]) -> Result<&mut Self, Truncated> {
        let available = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(Truncated { needed: Self::SIZE, available }),
        }
    }

    /// The layout at the beginning of `bytes`, copied out.
    fn read(bytes: &[u8]) -> Result<Self, Truncated> {
        match Self::read_from_prefix(bytes) {
            Ok((layout, _)) => Ok(layout),
            Err(_) => Err(Truncated { needed: Self::SIZE, available: bytes.len() }),
        }
    }

    /// Copies the layout to the beginning of `bytes`.
    fn write(&self, bytes: &mut [u8]) -> Result<(), Truncated> {
        let available = bytes.len();
        self.write_to_prefix(bytes).map_err(|_| Truncated { needed: Self::SIZE, available })
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
pub struct Truncated {
    /// Bytes that the layout has.
    pub needed: usize,
    /// Bytes that there were.
    pub available: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes where {} are needed", self.available, self.needed)
    }
}

impl core::error::Error for Truncated {}

/// The bytes of a fixed field up to its first NUL, or all of them.
pub(crate) fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    field.get(..end).unwrap_or(field)
}

/// Copies `text` into a field that is padded with `padding`, cutting what does not fit.
pub(crate) fn fill(field: &mut [u8], text: &[u8], padding: u8) {
    let length = text.len().min(field.len());
    let (head, tail) = field.split_at_mut(length);
    head.copy_from_slice(&text[..length]);
    tail.fill(padding);
}

#[cfg(test)]
pub(crate) mod test_support {
    use super::*;

    /// A layout must come back from its bytes, and no shorter prefix may yield one.
    pub(crate) fn check_truncations<T: Wire>(vector: &[u8]) {
        assert_eq!(vector.len(), T::SIZE, "the vector must be exactly one layout");
        for length in 0..vector.len() {
            let expected = Truncated { needed: T::SIZE, available: length };
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

    #[test]
    fn view_mut_writes_in_place() {
        let mut bytes = [0u8; 5];
        *U32::view_mut(&mut bytes[1..]).unwrap() = U32::new(0x0102_0304);
        assert_eq!(bytes, [0, 4, 3, 2, 1]);
        assert_eq!(
            U32::view_mut(&mut bytes[2..]).err(),
            Some(Truncated { needed: 4, available: 3 })
        );
        assert_eq!(U16::new(0xabcd).write(&mut bytes[4..]).unwrap_err().available, 1);
        U16::new(0xabcd).write(&mut bytes).unwrap();
        assert_eq!(bytes[..2], [0xcd, 0xab]);
    }

    #[test]
    fn fields_end_at_nul_and_are_cut() {
        assert_eq!(until_nul(b"ab\0c"), b"ab");
        assert_eq!(until_nul(b"abc"), b"abc");
        assert_eq!(until_nul(b""), b"");
        let mut field = *b"......";
        fill(&mut field, b"abc", b' ');
        assert_eq!(&field, b"abc   ");
        fill(&mut field, b"abcdefgh", b' ');
        assert_eq!(&field, b"abcdef");
    }
}
