//! A build without the feature `mdns`.

use std::time::Duration;

use super::{DiscoveredController, Services};

const ABSENT: &str =
    "this build has no multicast DNS: take a package, or build it with --features mdns";

/// Whether there is any.
pub(crate) fn check() -> Result<(), String> {
    Err(ABSENT.to_owned())
}

pub(crate) fn browse(_: Duration) -> Result<Vec<DiscoveredController>, String> {
    Err(ABSENT.to_owned())
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Announcer {}

impl Announcer {
    pub(crate) fn new() -> Result<Self, String> {
        Err(ABSENT.to_owned())
    }

    pub(crate) fn announce(&mut self, _: &Services) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn stop(self) -> Result<(), String> {
        match self {}
    }
}
