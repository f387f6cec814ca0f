//! A way to reach the data, and what is known of its parts.

use weft_backend::DeviceSpec;

use super::kind::OF_THE_REQUESTS;
use super::measured::{OF_THE_LOAD, whole};
use super::model::KindModel;
use super::what_if::{Parts, WhatIf, mixed};
use crate::cells::{Cell, Cells};
use crate::results::{Configuration, Connection, LinkProbe, Value, key, text};
use crate::units;

/// The settings of cores.
const OF_THE_CORES: [&str; 3] = [key::CORES, key::HOST_CORES, key::TARGET_CORES];

/// Writes of more bytes wait for the target to ask for their data: another round trip.
const WITHIN_COMMAND: f64 = 8192.0;

/// A link that carried more than this part of what it can may have been what was slow.
const LINK_FREE: f64 = 0.5;

/// A second core has to serve so many times as much as one, or something else was slow.
const SECOND_CORE: f64 = 1.1;

/// What is replaced, in words.
const SIDES: [&str; 2] = ["host", "target"];
const DEVICE_UNKNOWN: &str =
    "what the device takes was not measured: measure the local device with it";

fn another_core(name: &str, have: usize) -> String {
    let more = 2 * have;
    format!(
        "what another {name} core costs was not measured: measure {have} and {more} \
         (--set {name}_cores={have},{more})"
    )
}

/// What is known of a device.
enum Device<'a> {
    /// Quantiles of what it takes.
    Named(Vec<f64>),
    /// They are those of this way without a network.
    Of(&'a Way),
}

/// A way, with its cells.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) configuration: Configuration,
    pub(super) cells: Vec<Cell>,
    /// What is known of its link; why it is not.
    pub(super) wire: Result<Wire, String>,
}

/// A link as it was measured without storage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wire {
    /// What its round trip takes, without the software at its ends as it is thought to be, and at
    /// the least and at the most, in ns.
    rtt_ns: [f64; 3],
    /// What it carries; infinite within a machine.
    bytes_per_s: f64,
}

impl Wire {
    /// That of a cell.
    pub(super) fn of(cells: &Cells, cell: &Cell) -> Result<Self, String> {
        let within =
            |ends: &Connection| ends.protocol == "loopback" || ends.host.ip() == ends.target.ip();
        let unknown = "what its link takes was not measured: nothing can be put in its place";
        let connection = cell.connection.as_ref().ok_or(unknown)?;
        if within(connection) {
            return Ok(Self { rtt_ns: [0.0; 3], bytes_per_s: f64::INFINITY });
        }
        let trip = |probe: &LinkProbe| {
            let latency = probe.round_trip.latency().ok()?;
            Some(latency.percentile_ns(50.0)? as f64)
        };
        let least = |all: &mut dyn Iterator<Item = f64>| all.reduce(f64::min);
        let own = least(&mut cells.link(cell).filter_map(trip)).ok_or(unknown)?;
        let here = cells.environment.link.iter();
        let here = here.filter(|probe| probe.connection.as_ref().is_some_and(within));
        // The software at both ends is in the round trip, and within a machine there is nothing
        // else in it.
        let software = least(&mut here.filter_map(trip)).unwrap_or(own / 2.0).min(own);
        let carried = cells.link(cell).map(|probe| probe.stream_bytes_per_s).fold(0.0, f64::max);
        let rtt_ns = [own - software, (own - 2.0 * software).max(0.0), own];
        Ok(Self { rtt_ns, bytes_per_s: carried })
    }
}

/// A configuration without its load, of whatever requests.
pub(super) fn way_of(configuration: &Configuration) -> Configuration {
    without(&without(configuration, &OF_THE_LOAD), &OF_THE_REQUESTS)
}

fn without(configuration: &Configuration, keys: &[&str]) -> Configuration {
    let mut rest = configuration.clone();
    rest.retain(|key, _| !keys.contains(&key.as_str()));
    rest
}

/// The link, then the other settings in which the ways differ: one over a network does not differ
/// from the local device by what only a network has.
pub(super) fn label_of(way: &Configuration, all: &[Way]) -> String {
    let is_local = text(way, key::TRANSPORT) == "local";
    let others = || all.iter().filter(|other| is_local || !other.is_local());
    let differs = |key: &str| others().any(|other| other.configuration.get(key) != way.get(key));
    let link = way.get(key::TRANSPORT).map(|value| units::short(key::TRANSPORT, value));
    let others = way.iter().filter(|(key, _)| *key != key::TRANSPORT && differs(key));
    let others = others.map(|(key, value)| units::setting(key, value));
    link.into_iter().chain(others).collect::<Vec<String>>().join(", ")
}

impl Way {
    pub(super) fn is_local(&self) -> bool {
        text(&self.configuration, key::TRANSPORT) == "local"
    }

    /// Cores of host and target.
    fn cores(&self) -> [usize; 2] {
        let of = |side: &str| {
            let number = |key: &str| whole(self.configuration.get(key));
            number(side).max(number(key::CORES))
        };
        [of(key::HOST_CORES), if self.is_local() { 0 } else { of(key::TARGET_CORES) }]
    }

    /// The cores that are wanted of it.
    fn wanted(&self, what_if: &WhatIf) -> [usize; 2] {
        let [host, target] = self.cores();
        let wanted = what_if.cores[1].filter(|_| target > 0);
        [what_if.cores[0].unwrap_or(host), wanted.unwrap_or(target)]
    }

    /// Whether another way differs in those cores alone that are replaced.
    fn is_beside(&self, other: &Self, what_if: &WhatIf) -> bool {
        let rest = |way: &Self| without(&way.configuration, &OF_THE_CORES);
        self.wanted(what_if) == other.wanted(what_if) && rest(self) == rest(other)
    }

    /// Why something cannot be put in place of a part of it, as far as that is known without a fit.
    ///
    /// # Errors
    /// It would be a guess.
    pub(super) fn replaceable(&self, all: &[Self], what_if: &WhatIf) -> Result<(), String> {
        if (what_if.link.is_some() || what_if.rtt.is_some()) && !self.is_local() {
            self.wire.clone()?;
        }
        if what_if.device.is_some() {
            self.device(all.iter(), 1.0)?;
        }
        self.with_fewer(all.iter(), what_if).map(|_| ())
    }

    /// What its device takes: by what it is, or as it was measured without a network.
    fn device<'a>(
        &self,
        mut all: impl Iterator<Item = &'a Self>,
        read_part: f64,
    ) -> Result<Device<'a>, String> {
        if self.configuration.contains_key(key::TARGET) {
            return Err(DEVICE_UNKNOWN.to_owned());
        }
        let name = self.configuration.get(key::DEVICE);
        match name.and_then(Value::as_text).map(|name| (name, name.parse::<DeviceSpec>())) {
            None
            | Some(
                ("memory" | "null", _)
                | (_, Ok(DeviceSpec::Memory { .. } | DeviceSpec::Null { .. })),
            ) => {
                return Ok(Device::Named(vec![0.0]));
            }
            Some((_, Ok(DeviceSpec::Delay { read, write, inner })))
                if matches!(*inner, DeviceSpec::Memory { .. } | DeviceSpec::Null { .. }) =>
            {
                return Ok(Device::Named(mixed([read, write], read_part)));
            }
            _ => {}
        }
        let local = all.find(|way| way.is_local() && way.configuration.get(key::DEVICE) == name);
        local.map(Device::Of).ok_or_else(|| DEVICE_UNKNOWN.to_owned())
    }

    /// The way that tells what more cores cost, and on which side; none where no others are wanted.
    fn with_fewer<'a>(
        &self,
        all: impl Iterator<Item = &'a Self>,
        what_if: &WhatIf,
    ) -> Result<Option<(usize, &'a Self)>, String> {
        let (own, wanted) = (self.cores(), self.wanted(what_if));
        if own == wanted {
            return Ok(None);
        }
        let side = usize::from(own[0] == wanted[0]);
        let (name, have) = (SIDES[side], own[side]);
        if (0..2).any(|side| own[side] > wanted[side]) {
            return Err(format!("with fewer {name} cores than {have} nothing was measured"));
        }
        let has_fewer = |way: &&Self| {
            let cores = way.cores();
            self.is_beside(way, what_if)
                && (0..2).all(|side| (cores[side] < own[side]) == (own[side] < wanted[side]))
        };
        let fewer = all.filter(has_fewer).max_by_key(|way| way.cores()[side]);
        fewer.map(|way| Some((side, way))).ok_or_else(|| another_core(name, have))
    }

    /// Cells of the ways that differ in the replaced cores alone: with other cores on one side only
    /// it shows what a request takes there.
    pub(super) fn beside(&self, all: &[Self], what_if: &WhatIf) -> Vec<Cell> {
        let is_other =
            |other: &&Self| other.cores() != self.cores() && self.is_beside(other, what_if);
        all.iter().filter(is_other).flat_map(|other| other.cells.clone()).collect()
    }

    /// Whether it is the one, of those that differ in the replaced cores alone, which is nearest to
    /// what is wanted.
    pub(super) fn is_nearest(&self, all: &[Self], what_if: &WhatIf) -> bool {
        let wanted = self.wanted(what_if);
        let rank = |way: &Self| {
            let own = way.cores();
            let fits = own[0] <= wanted[0] && own[1] <= wanted[1];
            let count = own[0] + own[1];
            (fits, if fits { count } else { usize::MAX - count })
        };
        let beside = all.iter().filter(|other| self.is_beside(other, what_if));
        beside.map(rank).max() == Some(rank(self))
    }
}

/// What is known of each way: of each kind of request that is asked for, or why it is not.
pub(super) type All = [(Way, Vec<Result<KindModel, String>>)];

/// A kind of request of a way, among all that were measured.
#[derive(Clone, Copy)]
pub(super) struct Among<'a> {
    pub(super) way: &'a Way,
    pub(super) known: &'a KindModel,
    /// Which of the kinds that are asked for.
    pub(super) place: usize,
    pub(super) all: &'a All,
}

impl Among<'_> {
    /// What is known of the parts that are replaced, and the cost of more cores in words.
    ///
    /// # Errors
    /// It would be a guess.
    pub(super) fn parts(&self, what_if: &WhatIf) -> Result<(Parts, [String; 2]), String> {
        let kind = &self.known.kind;
        let (read_part, block_bytes) = (kind.read_part(), kind.bytes());
        let cores = self.way.wanted(what_if);
        let mut parts = Parts { read_part, cores, ..Parts::default() };
        if (what_if.link.is_some() || what_if.rtt.is_some()) && !self.way.is_local() {
            let wire = self.way.wire.clone()?;
            let carried = self.known.fastest() * block_bytes;
            let faster = what_if.link.is_some_and(|bits| bits / 8.0 > wire.bytes_per_s);
            if faster && carried > LINK_FREE * wire.bytes_per_s {
                return Err(
                    "the measured link was what limited it: what it does with a faster one \
                            was not measured"
                        .to_owned(),
                );
            }
            let writes = if block_bytes > WITHIN_COMMAND { 2.0 } else { 1.0 };
            parts.trips = read_part + (1.0 - read_part) * writes;
            parts.rtt_ns = wire.rtt_ns;
            parts.data_ns = block_bytes / wire.bytes_per_s * 1e9;
        }
        if what_if.device.is_some() {
            parts.device_ns = self.device(read_part)?;
        }
        let (slower, words) = self.slower(what_if, cores)?;
        parts.slower = slower;
        Ok((parts, words))
    }

    /// Quantiles of what the device takes.
    fn device(&self, read_part: f64) -> Result<Vec<f64>, String> {
        match self.way.device(self.ways(), read_part)? {
            Device::Named(quantiles) => Ok(quantiles),
            Device::Of(local) => {
                Ok(self.known_of(local).ok_or(DEVICE_UNKNOWN)?.network().delays_ns)
            }
        }
    }

    fn ways(&self) -> impl Iterator<Item = &Way> {
        self.all.iter().map(|(way, _)| way)
    }

    /// What is known of another way.
    fn known_of(&self, other: &Way) -> Option<&KindModel> {
        let is_it = |(way, _): &&(Way, _)| way.configuration == other.configuration;
        self.all.iter().find(is_it)?.1.get(self.place)?.as_ref().ok()
    }

    /// How much more a request takes at each core with more of them: each doubling costs what the
    /// last one did that was measured.
    fn slower(
        &self,
        what_if: &WhatIf,
        wanted: [usize; 2],
    ) -> Result<([[f64; 3]; 2], [String; 2]), String> {
        let own = self.way.cores();
        let mut slower = [[1.0; 3]; 2];
        let mut words = [String::new(), String::new()];
        let Some((side, way)) = self.way.with_fewer(self.ways(), what_if)? else {
            return Ok((slower, words));
        };
        let (name, have, want) = (SIDES[side], own[side], wanted[side]);
        let known = self.known_of(way).ok_or_else(|| another_core(name, have))?;
        let less = way.cores()[side];
        let gain = self.known.fastest() / known.fastest();
        if gain < SECOND_CORE {
            return Err(format!(
                "{have} {name} cores served no more than {less}: what limited them is elsewhere"
            ));
        }
        let times = have as f64 / less as f64;
        let cost = ((times / gain).ln() / times.ln()).max(0.0);
        for side in (0..2).filter(|side| own[*side] < wanted[*side]) {
            let growth = wanted[side] as f64 / own[side] as f64;
            slower[side] = [growth.powf(cost), 1.0, growth.powf(2.0 * cost)];
        }
        words[side] =
            format!(" ({have} served {} as much as {less}, for {want})", units::times(gain));
        Ok((slower, words))
    }
}
