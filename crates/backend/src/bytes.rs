//! Parses and prints sizes.
//!
//! As in fio, qemu-img and mkfs, `k`, `K`, `KiB`, `M`, `MiB`, … are powers of 1024; `kB`, `MB`, …
//! are powers of 1000, as drives are sold. A number alone, or with `B`, counts bytes. A fraction
//! (`1.5GiB`) is accepted if the result is a whole number of bytes.

use core::fmt;

use crate::quantity;

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
    why: &'static str,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a size: {} (try 4k, 512MiB, 1GiB, 2TB)", self.text, self.why)
    }
}

impl core::error::Error for ParseBytesError {}

/// Parses a size: `4096`, `4k`, `512M`, `1GiB`, `1.5TiB`, `2TB`.
pub fn parse(text: &str) -> Result<u64, ParseBytesError> {
    let error = |why| ParseBytesError { text: text.to_owned(), why };
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(error("it is negative"));
    }
    let (number, unit) = quantity::split(trimmed);
    let unit = unit_bytes(unit).ok_or_else(|| error("unknown unit"))?;
    match quantity::times(number, unit) {
        Ok((bytes, true)) => Ok(bytes),
        Ok(_) => Err(error("it is not a whole number of bytes")),
        Err(why) => Err(error(why)),
    }
}

/// Prints a size so that [`parse`] reads the same number again: the largest binary unit that
/// divides it, else bytes.
pub fn exact(bytes: u64) -> String {
    let unit = BINARY.iter().rev().find(|(_, size)| bytes != 0 && bytes.is_multiple_of(*size));
    match unit {
        Some((name, size)) => format!("{}{name}", bytes / size),
        None => format!("{bytes}"),
    }
}

/// Prints a size with about three digits and a binary unit, as in `1.46 TiB`.
pub fn human(bytes: u64) -> String {
    let Some((name, size)) = BINARY.iter().rev().find(|(_, size)| bytes >= *size) else {
        return format!("{bytes} B");
    };
    let hundredths = u128::from(bytes) * 100 / u128::from(*size);
    match hundredths % 100 {
        0 => format!("{} {name}", hundredths / 100),
        _ if hundredths >= 10_000 => format!("{} {name}", hundredths / 100),
        part if part % 10 == 0 => format!("{}.{} {name}", hundredths / 100, part / 10),
        part => format!("{}.{part:02} {name}", hundredths / 100),
    }
}

const BINARY: [(&str, u64); 6] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
];

fn unit_bytes(unit: &str) -> Option<u64> {
    let mut letters = unit.chars();
    let Some(prefix) = letters.next() else {
        return Some(1);
    };
    let power = match prefix.to_ascii_lowercase() {
        'b' if letters.as_str().is_empty() => return Some(1),
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        'p' => 5,
        'e' => 6,
        _ => return None,
    };
    match letters.as_str() {
        "" | "i" | "iB" | "ib" => Some(1 << (10 * power)),
        "B" | "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// Serde: a size is a number of bytes or a text as above; written in the [`exact`] form.
pub mod as_text {
    use serde::{Deserializer, Serializer, de};

    /// Writes the exact text.
    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::exact(*bytes))
    }

    /// Reads a number or a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(Visitor)
    }

    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = u64;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("a size such as 4096 or \"1GiB\"")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::custom("a size is not negative"))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            super::parse(text).map_err(E::custom)
        }
    }

    /// The same for `Option<u64>`.
    pub mod option {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Text(#[serde(with = "super")] u64);

        /// Writes the exact text, or nothing.
        pub fn serialize<S: Serializer>(
            bytes: &Option<u64>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            bytes.map(Text).serialize(serializer)
        }

        /// Reads a number, a text, or nothing.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<u64>, D::Error> {
            Ok(Option::<Text>::deserialize(deserializer)?.map(|text| text.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_storage_tools_read_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kB", 4000),
            ("512M", 512 << 20),
            ("1GiB", 1 << 30),
            (" 1 GiB ", 1 << 30),
            ("1g", 1 << 30),
            ("1.5k", 1536),
            ("1TiB", 1 << 40),
            ("2TB", 2_000_000_000_000),
            ("15EiB", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "k",
            "-1",
            "1x",
            "1kk",
            "1.k",
            ".5k",
            "1.2.3",
            "0.3",
            "1.0001k",
            "16EiB",
            "1e3",
            "1 2",
            "１k",
            "1.9999999999k",
            "18446744073709551616",
            "GiB",
            "0x10",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn it_is_told_what_is_wrong() {
        for (text, why) in [
            ("-5MiB", "\"-5MiB\" is not a size: it is negative (try 4k"),
            ("5XiB", "unknown unit"),
            ("KiB", "a number is missing"),
            ("16EiB", "it is too large"),
            ("0.3", "it is not a whole number of bytes"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_print_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1 << 30, "1 GiB"),
            ((1 << 30) + (1 << 28), "1.25 GiB"),
            (1_600_321_314_816, "1.45 TiB"),
            (999 << 20, "999 MiB"),
            ((999 << 20) + (1 << 19), "999 MiB"),
            (u64::MAX, "15.99 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn the_exact_form_reads_back(bytes in any::<u64>(), shift in 0u32..64) {
            let bytes = bytes >> shift << (shift / 2);
            prop_assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _ = parse(&text);
        }
    }
}
