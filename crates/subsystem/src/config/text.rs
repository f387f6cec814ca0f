//! Serde forms of values that a configuration has as text.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Whether a value is that of its type's default, and need not be written.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The default of a switch that is on.
pub(super) const fn yes() -> bool {
    true
}

/// Texts as a list, or one as it is.
pub(super) mod one_or_several {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "give a name, or a list of names")]
    enum Notation {
        One(String),
        Several(Vec<String>),
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        texts: &[String],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match texts {
            [only] => serializer.serialize_str(only),
            texts => serializer.collect_seq(texts),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<String>, D::Error> {
        Ok(match Notation::deserialize(deserializer)? {
            Notation::One(text) => vec![text],
            Notation::Several(texts) => texts,
        })
    }
}

/// A size as the text of one or a number of bytes, in the type of the field.
pub(super) mod size {
    use super::*;
    use weft_backend::bytes::as_text;

    pub(in crate::config) fn serialize<T: Copy + TryInto<u64>, S: Serializer>(
        bytes: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        as_text::serialize(&(*bytes).try_into().unwrap_or(u64::MAX), serializer)
    }

    pub(in crate::config) fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let bytes = as_text::deserialize(deserializer)?;
        let error = |_| D::Error::custom(format!("{bytes} bytes are too many here"));
        T::try_from(bytes).map_err(error)
    }
}
