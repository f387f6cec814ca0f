//! The declarations that this crate is written in: the layout of a struct, an open code space,
//! and the bit fields of an integer.

/// Asserts a layout at compile time: its size, its alignment, and where its fields lie.
macro_rules! assert_layout {
    ($layout:ty, size $size:literal $(, $field:ident at $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(core::mem::size_of::<$layout>() == $size);
            assert!(core::mem::align_of::<$layout>() == 1);
            $(assert!(core::mem::offset_of!($layout, $field) == $offset);)*
        };
    };
}

/// Declares an open code space: a newtype with a constant for each value that has a name.
///
/// `Debug` prints the constant's name, `Display` the words, and both print an unknown value as a
/// number. Those over `u8` are layouts and can stand in a layout themselves.
macro_rules! code_space {
    ($(#[$meta:meta])* pub struct $name:ident($vis:vis u8); $($rest:tt)*) => {
        code_space! {
            @declare
            #[derive(
                zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
                zerocopy::Immutable, zerocopy::Unaligned,
            )]
            #[repr(transparent)]
            $(#[$meta])* pub struct $name($vis u8); $($rest)*
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident($vis:vis $raw:ident); $($rest:tt)*) => {
        code_space! { @declare $(#[$meta])* pub struct $name($vis $raw); $($rest)* }
    };
    (@declare $(#[$meta:meta])* pub struct $name:ident($vis:vis $raw:ident);
     $($constant:ident = $value:literal, $words:literal;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($vis $raw);

        impl $name {
            $(#[doc = concat!($words, " (", stringify!($value), ").")]
            pub const $constant: Self = Self($value);)*

            /// The words of the specification for this value, if it names it.
            #[must_use]
            pub const fn words(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($words),)*
                    _ => None,
                }
            }

            /// Whether the value is one that the specification names.
            #[must_use]
            pub const fn is_known(self) -> bool {
                self.words().is_some()
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.0 {
                    $($value => formatter.write_str(
                        concat!(stringify!($name), "::", stringify!($constant))),)*
                    unknown => write!(formatter, concat!(stringify!($name), "({:#x})"), unknown),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.words() {
                    Some(words) => formatter.write_str(words),
                    None => write!(formatter, "unknown ({:X}h)", self.0),
                }
            }
        }

        impl From<$name> for $raw {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl From<$raw> for $name {
            fn from(value: $raw) -> Self {
                Self(value)
            }
        }
    };
}

/// Declares a newtype over an integer together with its bit fields, see [`bit_fields`]. Those over
/// `u8` are layouts and can stand in a layout themselves; wider ones convert to and from the
/// little-endian integer that stands there.
macro_rules! bit_struct {
    ($(#[$meta:meta])* pub struct $name:ident($vis:vis u8) { $($fields:tt)* }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, Default, zerocopy::FromBytes,
            zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name($vis u8);

        bit_fields! { pub $name(u8) { $($fields)* } }
    };
    ($(#[$meta:meta])* pub struct $name:ident($vis:vis $raw:ident) { $($fields:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($vis $raw);

        bit_fields! { pub $name($raw) { $($fields)* } }
        wire_conversion! { $name, $raw }
    };
}

/// Conversions between a newtype over an integer and that integer as it stands in a layout.
macro_rules! wire_conversion {
    ($name:ident, u16) => {
        wire_conversion! { @between $name, U16 }
    };
    ($name:ident, u32) => {
        wire_conversion! { @between $name, U32 }
    };
    ($name:ident, u64) => {
        wire_conversion! { @between $name, U64 }
    };
    (@between $name:ident, $wire:ident) => {
        impl From<crate::wire::$wire> for $name {
            fn from(wire: crate::wire::$wire) -> Self {
                Self(wire.get())
            }
        }

        impl From<$name> for crate::wire::$wire {
            fn from(value: $name) -> Self {
                Self::new(value.0)
            }
        }
    };
}

/// Declares the bit fields of a newtype over an integer, in the notation of the specification:
/// `[15:0] get, set -> u16;` for a range, `[4] get, set;` for a single bit.
///
/// Setters take and return `Self` by value and mask what they are given.
macro_rules! bit_fields {
    ($vis:vis $name:ident($raw:ident) {
        $($(#[$meta:meta])* [$($range:tt)*] $get:ident, $set:ident $(-> $value:ident)?;)*
    }) => {
        bit_fields! { @each $vis $name($raw) {
            $([$(#[$meta])*] [$($range)*] $get, $set $(-> $value)?;)*
        } }

        #[cfg(test)]
        impl $name {
            /// Sets each field between ones and between zeros, and reads it back; no two fields
            /// may share a bit.
            pub(crate) fn check_bit_fields() {
                let mut seen: $raw = 0;
                $(
                    let mask = bit_field!(@mask $raw, [$($range)*]);
                    assert_eq!(seen & mask, 0, concat!(stringify!($get), " overlaps a neighbour"));
                    seen |= mask;
                    bit_field!(@check $name, $raw, [$($range)*], $get, $set $(, $value)?);
                )*
                assert_ne!(seen, 0);
            }
        }
    };
    (@each $vis:vis $name:ident($raw:ident) {}) => {};
    (@each $vis:vis $name:ident($raw:ident) {
        [$($meta:tt)*] [$($range:tt)*] $get:ident, $set:ident $(-> $value:ident)?; $($rest:tt)*
    }) => {
        impl $name {
            bit_field! { $vis $raw, $($meta)* [$($range)*] $get, $set $(-> $value)? }
        }
        bit_fields! { @each $vis $name($raw) { $($rest)* } }
    };
}

/// One field of [`bit_fields`].
macro_rules! bit_field {
    ($vis:vis $raw:ident, $(#[$meta:meta])* [$bit:literal] $get:ident, $set:ident) => {
        $(#[$meta])*
        #[must_use]
        $vis const fn $get(self) -> bool {
            self.0 & bit_field!(@mask $raw, [$bit]) != 0
        }

        #[doc = concat!("Returns the value with [`Self::", stringify!($get), "`] changed.")]
        #[must_use]
        $vis const fn $set(self, value: bool) -> Self {
            let mask = bit_field!(@mask $raw, [$bit]);
            if value { Self(self.0 | mask) } else { Self(self.0 & !mask) }
        }
    };
    ($vis:vis $raw:ident, $(#[$meta:meta])* [$high:literal:$low:literal] $get:ident, $set:ident
     -> $value:ident) => {
        $(#[$meta])*
        #[must_use]
        #[allow(clippy::cast_possible_truncation, clippy::unnecessary_cast)]
        $vis const fn $get(self) -> $value {
            const { assert!($high - $low < <$value>::BITS) };
            ((self.0 & bit_field!(@mask $raw, [$high:$low])) >> $low) as $value
        }

        #[doc = concat!("Returns the value with [`Self::", stringify!($get), "`] changed.")]
        #[must_use]
        #[allow(clippy::unnecessary_cast)]
        $vis const fn $set(self, value: $value) -> Self {
            let mask = bit_field!(@mask $raw, [$high:$low]);
            Self(self.0 & !mask | (((value as $raw) << $low) & mask))
        }
    };
    (@mask $raw:ident, [$bit:literal]) => { bit_field!(@mask $raw, [$bit:$bit]) };
    (@mask $raw:ident, [$high:literal:$low:literal]) => {
        const { ($raw::MAX >> ($raw::BITS - 1 - ($high - $low))) << $low }
    };
    (@check $name:ident, $raw:ident, [$bit:literal], $get:ident, $set:ident) => {
        let mask = bit_field!(@mask $raw, [$bit]);
        assert!($name(mask).$get() && !$name(!mask).$get());
        assert_eq!($name(0).$set(true).0, mask);
        assert_eq!($name($raw::MAX).$set(false).0, !mask);
        assert_eq!($name($raw::MAX).$set(true).0, $raw::MAX);
    };
    (@check $name:ident, $raw:ident, [$high:literal:$low:literal], $get:ident, $set:ident,
     $value:ident) => {
        let mask = bit_field!(@mask $raw, [$high:$low]);
        let widest = $value::MAX >> ($value::BITS - 1 - ($high - $low));
        assert_eq!($name(mask).$get(), widest);
        assert_eq!($name(!mask).$get(), 0);
        assert_eq!($name(0).$set($value::MAX).0, mask, "too wide a value must not spill over");
        assert_eq!($name($raw::MAX).$set(0).0, !mask);
        assert_eq!($name($raw::MAX).$set(1).$get(), 1);
        assert_eq!($name($raw::MAX).$set(1).0 | mask, $raw::MAX);
    };
}

#[cfg(test)]
mod tests {
    use std::format;

    code_space! {
        /// A code space over a byte.
        pub struct Fruit(pub u8);
        APPLE = 0x01, "Apple";
        PEAR = 0x7f, "Pear";
    }

    /// A word with fields at both ends and in the middle.
    #[derive(Clone, Copy)]
    struct Word(u16);

    bit_fields! {
        Word(u16) {
            /// Lowest.
            [2:0] low, with_low -> u8;
            /// Middle.
            [3] middle, with_middle;
            /// Highest.
            [15:4] high, with_high -> u16;
        }
    }

    #[test]
    fn unknown_codes_survive_and_print() {
        assert_eq!(format!("{:?} {}", Fruit::PEAR, Fruit::PEAR), "Fruit::PEAR Pear");
        assert_eq!(format!("{:?} {}", Fruit(0xab), Fruit(0xab)), "Fruit(0xab) unknown (ABh)");
        assert_eq!(u8::from(Fruit::from(0xab)), 0xab);
        assert!(Fruit::APPLE.is_known() && !Fruit(0).is_known());
    }

    #[test]
    fn fields_have_their_declared_offsets() {
        Word::check_bit_fields();
        let word = Word(0).with_low(5).with_high(0xabc);
        assert_eq!(word.0, 0xabc5);
        assert_eq!(word.with_middle(true).0, 0xabcd);
        assert_eq!(Word(0).with_low(0xff).0, 7);
    }
}
