//! Limits of rates: which commands each is for, and whether hosts can live with it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::{bytes, duration};
use weft_nvmf::limits::NSID_MAX;

use super::rules::Rule;
use super::{ConfigError, Hosts, Limits};

/// The longest burst.
const BURST_MAX: Duration = Duration::from_secs(60);

/// What a host sends at once: the usual depth of a Linux host's queue.
const DEPTH: u64 = 128;

/// How long a full queue may wait: half the I/O timeout of the Linux host.
const WAIT_MAX: u64 = 15;

/// A limit of a rate, of all commands that it applies to together. A command may be under several
/// limits: it begins when all of them admit it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RateLimit {
    /// The host, by NQN, or several together; none: all hosts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Hosts>,
    /// The subsystem, by NQN; none: all subsystems together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// The namespace of the subsystem; none: all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// The block device whose limit (`bdev_set_qos_limit`) it was made from; none: it is one of the
    /// configuration.
    #[serde(skip)]
    pub bdev: Option<String>,
    /// Which commands count.
    pub rw: RateLimitedCommands,
    /// Commands in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_iops: Option<u64>,
    /// Bytes in a second.
    #[serde(deserialize_with = "rate", skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// What may be done at once after a pause: the rate of this time.
    #[serde(with = "duration::as_text", skip_serializing_if = "Duration::is_zero")]
    pub burst: Duration,
    /// Accept a rate at which a host's commands may reach their timeout.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Which commands a rate limit is for. Flush never waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimitedCommands {
    /// Read, Compare, Verify, and what Copy reads.
    Read,
    /// Write, Write Zeroes, Dataset Management, Write Uncorrectable, and what Copy writes.
    Write,
    /// All of them.
    #[default]
    Rw,
}

impl RateLimitedCommands {
    /// Its word, as keys have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Rw => "rw",
        }
    }

    /// Whether a command that writes, or one that does not, is among them.
    #[must_use]
    pub const fn includes(self, is_write: bool) -> bool {
        match self {
            Self::Read => !is_write,
            Self::Write => is_write,
            Self::Rw => true,
        }
    }
}

fn rate<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes::as_text::deserialize(deserializer).map(Some)
}

impl RateLimit {
    /// Whether it applies to a host's commands in a subsystem, in some of its namespaces.
    #[must_use]
    pub fn applies_to(&self, host: &str, subsystem: &str) -> bool {
        self.host.as_ref().is_none_or(|hosts| hosts.contain(host))
            && self.subsystem.as_deref().is_none_or(|nqn| nqn == subsystem)
    }

    /// Whether a full queue of a Linux host ends in time.
    fn check_wait(&self, at: &str, limits: &Limits) -> Result<(), ConfigError> {
        let Some(stall) = self.stall(limits) else { return Ok(()) };
        let error = ConfigError::new(format!("{at}.{}", stall.key), stall.what);
        let Stall { key, least, .. } = stall;
        Err(error.remedy(format!("give `{key} = {least}` or more, or `force = true`")))
    }

    /// Why a host may give up at this rate, if it may.
    fn stall(&self, limits: &Limits) -> Option<Stall> {
        let longest = u64::from(limits.transfer_bytes);
        let size = bytes::exact(longest);
        let rates = [
            ("rate-iops", self.rate_iops, 1, format!("{DEPTH} commands")),
            ("rate", self.rate, longest, format!("{DEPTH} commands of {size}")),
        ];
        rates.into_iter().find_map(|(key, rate, cost, what)| {
            let rate = rate.filter(|rate| DEPTH * cost > WAIT_MAX.saturating_mul(*rate))?;
            let least = (DEPTH * cost).div_ceil(WAIT_MAX);
            // The next size that is easily written.
            let mebibytes = least.div_ceil(1 << 20);
            let least = if cost == 1 { least.to_string() } else { format!("\"{mebibytes}MiB\"") };
            let seconds = DEPTH * cost / rate;
            let what = format!("{what} take {seconds} s, and hosts give up after 30 s");
            Some(Stall { key, what, least })
        })
    }
}

impl Rule for RateLimit {
    const KEY: &'static str = "rate-limit";
    const NAME: &'static str = "rate limit";
    const SCOPE: &'static str = "commands";
    const TWICE: &'static str = "give both rates in one of them";
    /// Each connection of a host looks for its own among all.
    const MAX: usize = 4096;
    const GIVES: &'static str = "limited to ";

    fn terms(&self) -> String {
        let iops = self.rate_iops.map(|rate| format!("{rate} IOPS"));
        let bytes = self.rate.map(|rate| format!("{}/s", bytes::exact(rate)));
        let mut words: Vec<_> = iops.into_iter().chain(bytes).collect();
        if !self.burst.is_zero() {
            words.push(format!("a burst of {}", duration::exact(self.burst)));
        }
        words.join(", ")
    }

    fn has_scope_of(&self, other: &Self) -> bool {
        let scope = |of: &Self| (of.host.clone(), of.subsystem.clone(), of.nsid, of.rw);
        (scope(self), &self.bdev) == (scope(other), &other.bdev)
    }

    fn hosts(&self) -> Option<&Hosts> {
        self.host.as_ref()
    }

    fn subsystem(&self) -> Option<&str> {
        self.subsystem.as_deref()
    }

    fn port(&self) -> Option<u16> {
        None
    }

    fn check(&self, at: &str, limits: &Limits) -> Result<(), ConfigError> {
        let error = |key: &str, what: String| ConfigError::new(format!("{at}.{key}"), what);
        if self.rate_iops.is_none() && self.rate.is_none() {
            return Err(error("rate", "it limits nothing".to_owned())
                .remedy("give `rate-iops`, `rate` or both"));
        }
        if self.rate_iops == Some(0) || self.rate == Some(0) {
            let key = if self.rate == Some(0) { "rate" } else { "rate-iops" };
            let what = "a rate of 0 would stop the host for ever".to_owned();
            return Err(error(key, what).remedy(
                "give 1 or more; to keep a host away, leave it out of allowed-hosts (weft ctl \
                 host remove NQN HOST)",
            ));
        }
        if self.burst > BURST_MAX {
            return Err(error("burst", "it is longer than 60s".to_owned())
                .remedy("give the time whose rate may be used at once, like 100ms"));
        }
        if self.subsystem.is_none() && self.nsid.is_some() {
            return Err(error("nsid", "a namespace belongs to a subsystem".to_owned())
                .remedy("name the subsystem, too"));
        }
        if let Some(nsid) = self.nsid.filter(|nsid| !(1..=NSID_MAX).contains(nsid)) {
            return Err(error("nsid", format!("{nsid} is no NSID"))
                .remedy(format!("give 1 to {NSID_MAX}, or leave it out")));
        }
        if self.force { Ok(()) } else { self.check_wait(at, limits) }
    }
}

/// A rate at which a full queue takes so long that its host may give up.
struct Stall {
    key: &'static str,
    what: String,
    /// The least rate at which it does not.
    least: String,
}

/// The limits of a block device, as SPDK's `bdev_set_qos_limit` sets them. 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BdevLimits {
    /// Commands in a second.
    pub rw_ios_per_sec: u64,
    /// MiB in a second.
    pub rw_mbytes_per_sec: u64,
    /// MiB that are read in a second.
    pub r_mbytes_per_sec: u64,
    /// MiB that are written in a second.
    pub w_mbytes_per_sec: u64,
}

impl BdevLimits {
    /// What hosts may suffer from the limits of a block device, which are taken all the same.
    #[must_use]
    pub fn warning(&self, bdev: &str, limits: &Limits) -> Option<String> {
        let own = self.of_namespace(bdev, "", 0);
        let stall = own.iter().find_map(|limit| limit.stall(limits))?;
        let (what, least) = (stall.what, stall.least.trim_matches('"'));
        Some(format!("the limit of {bdev}: {what}; {least} or more in a second avoids that"))
    }

    /// The rate limits of a namespace that uses the block device.
    pub(super) fn of_namespace(&self, bdev: &str, subsystem: &str, nsid: u32) -> Vec<RateLimit> {
        let bytes = |mib: u64| Some(mib.saturating_mul(1 << 20)).filter(|bytes| *bytes > 0);
        let all = [
            (
                RateLimitedCommands::Rw,
                Some(self.rw_ios_per_sec).filter(|rate| *rate > 0),
                bytes(self.rw_mbytes_per_sec),
            ),
            (RateLimitedCommands::Read, None, bytes(self.r_mbytes_per_sec)),
            (RateLimitedCommands::Write, None, bytes(self.w_mbytes_per_sec)),
        ];
        let limits = all.into_iter().filter(|(_, iops, rate)| iops.is_some() || rate.is_some());
        let limits = limits.map(|(rw, rate_iops, rate)| RateLimit {
            subsystem: Some(subsystem.to_owned()),
            nsid: Some(nsid),
            bdev: Some(bdev.to_owned()),
            rw,
            rate_iops,
            rate,
            ..RateLimit::default()
        });
        limits.collect()
    }
}

impl fmt::Display for RateLimit {
    /// Which commands it is for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.rw {
            RateLimitedCommands::Read => "reads",
            RateLimitedCommands::Write => "writes",
            RateLimitedCommands::Rw => "commands",
        })?;
        if let Some(hosts) = &self.host {
            let word = if hosts.are_group() { "hosts" } else { "host" };
            write!(f, " of {word} {hosts}")?;
        }
        match (&self.subsystem, self.nsid) {
            (Some(nqn), Some(nsid)) => write!(f, " to namespace {nsid} of {nqn}"),
            (Some(nqn), None) => write!(f, " to {nqn}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::toml::parse;

    /// The one sentence about a rate limit with these keys.
    fn refusal(keys: &str) -> String {
        let text = format!(
            "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.2024-01.a:b\"\n\
             [[subsystem.namespace]]\nnull = \"1GiB\"\n[[rate-limit]]\n{keys}\n"
        );
        parse(&text).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_rate_that_stalls_hosts_needs_force() {
        let slow = refusal("rate = \"1MiB\"");
        for part in [
            "rate-limit[0].rate",
            "128 commands of 1MiB take 128 s",
            "give `rate = \"9MiB\"` or more, or `force = true`",
        ] {
            assert!(slow.contains(part), "{slow}");
        }
        assert_eq!(refusal("rate = \"1MiB\"\nforce = true"), "");
        assert!(refusal("rate-iops = 8").contains("128 commands take 16 s"));
        assert_eq!(refusal("rate-iops = 9\nrate = \"9MiB\""), "");
    }

    #[test]
    fn bad_rate_limits_are_refused_with_a_sentence() {
        for (keys, part) in [
            ("", "it limits nothing"),
            ("rate-iops = 0", "a rate of 0 would stop the host"),
            ("rate-iops = 100\nburst = \"61s\"", "longer than 60s"),
            ("rate-iops = 100\nnsid = 1", "name the subsystem"),
            ("rate-iops = 100\nsubsystem = \"nqn.2024-01.a:b\"\nnsid = 0", "0 is no NSID"),
            ("rate-iops = 100\nhost = \"nqn.a:a,nqn.a:b\"", "has a comma"),
            ("rate-iops = 100\nsubsystem = \"nqn.2024-01.a:c\"", "there is no subsystem"),
            ("rate-iops = 100\nrw = \"trim\"", "trim"),
            ("rate-iops = 100\nhost = []", "a group has at least one host"),
            ("rate-iops = 100\nhost = 7", "a host's NQN, or a list of them"),
            (
                "rate-iops = 100\nhost = [\"nqn.a:a\", \"nqn.a:b\"]\n[[rate-limit]]\n\
                 rate-iops = 100\nhost = [\"nqn.a:b\", \"nqn.a:a\"]",
                "same commands",
            ),
            ("rate-iops = 100\n[[rate-limit]]\nrate = \"1GiB\"", "same commands"),
        ] {
            let text = refusal(keys);
            assert!(text.contains(part), "{keys}: {text}");
        }
        let two = "rate-iops = 100\n[[rate-limit]]\nrate = \"1GiB\"\nrw = \"read\"";
        assert_eq!(refusal(two), "");
    }
}
