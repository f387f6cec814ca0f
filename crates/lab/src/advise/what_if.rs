//! What would be if a part of what was measured were another one.
//!
//! The rest stays. A part that was measured together with others is taken out of them as far as it
//! is known: [`Replaced`] has the network as it is then thought to be, and at its fastest and
//! slowest.

use std::str::FromStr;
use std::time::Duration;

use weft_advise::Network;
use weft_advise::network::Link;
use weft_backend::{DeviceSpec, duration, nearest};

use super::kind::Kind;
use crate::limits::CORES_MAX;
use crate::units;

/// What is replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIf {
    /// Bits a second of the link.
    pub link: Option<f64>,
    /// The link's round trip.
    pub rtt: Option<Duration>,
    /// How long the device takes for a read and a write.
    pub device: Option<[Duration; 2]>,
    /// Cores of the host and of the target.
    pub cores: [Option<usize>; 2],
}

const KEYS: [&str; 5] = ["link", "rtt", "device", "host-cores", "target-cores"];

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (key, value) = rest
                .split_once('=')
                .ok_or_else(|| format!("{rest:?} has no = (try link=25Gb/s)"))?;
            // The options of a device have commas of their own.
            let end = value.find(',').filter(|_| key != "device").unwrap_or(value.len());
            rest = value.get(end + 1..).unwrap_or_default();
            found = found.and(Self::of(key, &value[..end])?)?;
        }
        Ok(found)
    }
}

impl WhatIf {
    fn of(key: &str, value: &str) -> Result<Self, String> {
        let none = Self::default();
        let cores = || {
            let count = value.parse().ok().filter(|count| (1..=CORES_MAX).contains(count));
            let refused = || format!("{value:?} is no number of cores (1 to {CORES_MAX})");
            count.map(Some).ok_or_else(refused)
        };
        Ok(match key {
            "link" => Self { link: Some(bits(value)?), ..none },
            "rtt" => Self { rtt: Some(span(value)?), ..none },
            "device" => Self { device: Some(delays(value)?), ..none },
            "host-cores" => Self { cores: [cores()?, None], ..none },
            "target-cores" => Self { cores: [None, cores()?], ..none },
            _ => {
                let near = nearest(key, KEYS).map(|known| format!(", did you mean {known}?"));
                let near = near.unwrap_or_else(|| format!(" (use {})", KEYS.join(", ")));
                return Err(format!("{key:?} cannot be replaced{near}"));
            }
        })
    }

    /// Both.
    ///
    /// # Errors
    /// They replace the same part.
    pub fn and(self, other: Self) -> Result<Self, String> {
        fn one<T>(key: &str, one: Option<T>, other: Option<T>) -> Result<Option<T>, String> {
            match (one, other) {
                (Some(_), Some(_)) => Err(format!("{key} is given twice")),
                (one, other) => Ok(one.or(other)),
            }
        }
        let [host, target] = self.cores;
        Ok(Self {
            link: one("link", self.link, other.link)?,
            rtt: one("rtt", self.rtt, other.rtt)?,
            device: one("device", self.device, other.device)?,
            cores: [
                one("host-cores", host, other.cores[0])?,
                one("target-cores", target, other.cores[1])?,
            ],
        })
    }

    /// What of it the local device has: no link, and no target.
    pub(super) fn of_local(&self) -> Self {
        Self { link: None, rtt: None, cores: [self.cores[0], None], ..self.clone() }
    }

    /// What of it changes the work of the cores.
    pub(super) fn of_cores(&self) -> Self {
        Self { cores: self.cores, ..Self::default() }
    }

    /// Whether something is replaced.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

fn span(text: &str) -> Result<Duration, String> {
    within(duration::parse(text).map_err(|error| error.to_string())?)
}

/// A part that takes longer leaves nothing to be simulated.
fn within(part: Duration) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(1);
    let shown = duration::exact(part);
    (part <= LONGEST).then_some(part).ok_or_else(|| format!("{shown} is longer than a second"))
}

fn bits(text: &str) -> Result<f64, String> {
    let known = [("Gb/s", 1e9), ("Mb/s", 1e6)];
    let number = known.iter().find_map(|(unit, by)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * by).filter(|bits| bits.is_finite() && *bits > 0.0)
    });
    number.ok_or_else(|| format!("{text:?} is no speed of a link (try 25Gb/s, 100Mb/s)"))
}

/// In the words of the target's devices, without the one that is delayed.
fn delays(text: &str) -> Result<[Duration; 2], String> {
    let other = || format!("{text:?} is no delay (try delay:read=80us,write=20us)");
    if text.strip_prefix("delay:").is_none_or(|options| options.contains(':')) {
        return Err(other());
    }
    match format!("{text}:null:1GiB").parse().map_err(|error| format!("{error}"))? {
        DeviceSpec::Delay { read, write, inner } if matches!(*inner, DeviceSpec::Null { .. }) => {
            Ok([within(read)?, within(write)?])
        }
        _ => Err(other()),
    }
}

/// What is known of the parts that are replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parts {
    /// Quantiles of what the device takes, in ns.
    pub(super) device_ns: Vec<f64>,
    /// What the link's round trip takes, in ns, as it is thought to be, and at its least and most;
    /// nothing within a machine.
    pub(super) rtt_ns: [f64; 3],
    /// How many of them a request waits for.
    pub(super) trips: f64,
    /// How long the link has the data of a request, in ns; nothing within a machine.
    pub(super) data_ns: f64,
    /// How much more each core's request takes with the cores that are wanted: as it is thought to
    /// be, and at its least and most.
    pub(super) slower: [[f64; 3]; 2],
    /// The cores that are wanted.
    pub(super) cores: [usize; 2],
    /// Part of the requests that read.
    pub(super) read_part: f64,
}

impl WhatIf {
    /// The network with what is replaced: as it is thought to be, at its fastest, and at its
    /// slowest.
    pub(super) fn replaced(&self, measured: &Network, parts: &Parts) -> [Network; 3] {
        [0, 1, 2].map(|end| {
            let mut network = measured.clone();
            [network.host_cores, network.target_cores] = parts.cores;
            let cores = [&mut network.host, &mut network.target];
            for (core, slower) in cores.into_iter().zip(parts.slower) {
                core.turn_ns *= slower[end];
                core.request_ns *= slower[end];
            }
            if let Some(rtt) = self.rtt {
                // What was taken out at the most leaves the least.
                let own = parts.rtt_ns[[0, 2, 1][end]];
                network.wire_ns += parts.trips * (rtt.as_secs_f64() * 1e9 - own);
            }
            if self.link.is_some() && end < 2 {
                network.wire_ns -= parts.data_ns;
            }
            if let Some(delays) = self.device {
                without(&mut network.delays_ns, &parts.device_ns, end);
                network.delays_ns = sums(&network.delays_ns, &mixed(delays, parts.read_part));
                network.device_width = f64::INFINITY;
            }
            network
        })
    }

    /// The link that is put in.
    pub(super) fn link(&self, kind: &Kind) -> Option<Link> {
        let request_ns = kind.bytes() * 8e9 / self.link?;
        Some(Link { request_ns, read_part: kind.read_part() })
    }

    /// What is replaced, in words: that of the cores comes with their cost.
    pub(super) fn words(&self, cores: [&str; 2]) -> String {
        let [read, write] = self.device.unwrap_or_default().map(duration::exact);
        let gigabits = self.link.unwrap_or_default() / 1e9;
        let all = [
            self.link.map(|_| format!("a link of {} Gb/s", units::digits(gigabits))),
            self.rtt.map(|rtt| format!("a round trip of {}", duration::exact(rtt))),
            self.device.map(|_| format!("a device that takes {read} to read, {write} to write")),
            self.cores[0].map(|count| format!("{count} host cores{}", cores[0])),
            self.cores[1].map(|count| format!("{count} target cores{}", cores[1])),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        format!("not measured, but replaced: {}", all.join("; "))
    }
}

/// Quantiles of a device that takes so long to read and to write.
pub(super) fn mixed(delays: [Duration; 2], read_part: f64) -> Vec<f64> {
    let [read, write] = delays.map(|delay| delay.as_secs_f64() * 1e9);
    let (short, part) = if read < write { (read, read_part) } else { (write, 1.0 - read_part) };
    let at = |step: u32| if f64::from(step) < part * 50.0 { short } else { read.max(write) };
    (0..50).map(at).collect()
}

/// Without a part that is in all of these: quantile by quantile as it is thought to be, and the
/// longest or the shortest of it at the ends.
fn without(delays: &mut [f64], part: &[f64], end: usize) {
    let (Some(least), Some(most)) = (part.first(), part.last()) else { return };
    let last = delays.len().saturating_sub(1).max(1) as f64;
    for (place, delay) in delays.iter_mut().enumerate() {
        let own = match end {
            0 => between(part, place as f64 / last),
            1 => *most,
            _ => *least,
        };
        *delay = (*delay - own).max(0.0);
    }
}

/// A quantile of evenly spaced ones.
fn between(quantiles: &[f64], part: f64) -> f64 {
    let last = quantiles.len().saturating_sub(1);
    let at = part * last as f64;
    let below = usize::try_from(weft_load::units::whole(at)).unwrap_or(last).min(last);
    let (low, high) = (quantiles[below], quantiles[(below + 1).min(last)]);
    low + (high - low) * (at - at.floor())
}

/// Quantiles of the sum of two that have nothing to do with each other.
fn sums(delays: &[f64], others: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> =
        delays.iter().flat_map(|one| others.iter().map(move |other| one + other)).collect();
    all.sort_by(f64::total_cmp);
    (0..=50).map(|step| between(&all, f64::from(step) / 50.0)).collect()
}

#[cfg(test)]
mod tests;
