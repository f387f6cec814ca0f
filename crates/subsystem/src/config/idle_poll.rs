//! How long a poll group spins: a duration, or `forever`.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::Serializer;
use weft_backend::duration;

/// How long a poll group spins after its last command before it sleeps, by default: about a
/// loopback round trip, so that the target is awake for a host at queue depth 1.
pub const IDLE_POLL_DEFAULT: Duration = Duration::from_micros(50);

/// As [`Config::idle_poll`](super::Config): a poll group never sleeps.
pub const IDLE_POLL_FOREVER: Duration = Duration::MAX;

pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    match *span {
        IDLE_POLL_FOREVER => serializer.serialize_str("forever"),
        span => serializer.serialize_str(&duration::exact(span)),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    match &*String::deserialize(deserializer)? {
        "forever" => Ok(IDLE_POLL_FOREVER),
        text => duration::parse(text).map_err(D::Error::custom),
    }
}
