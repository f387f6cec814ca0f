//! The load of a question at a way: one kind of request, or several tenants at the same cores.

use std::sync::Arc;

use weft_advise::network::{Class, Link, together};
use weft_advise::transfer::Change;
use weft_advise::{Arrivals, Network, Outcome};

use super::model::{Forecast, KindModel, SEED};
use super::question::Question;
use super::way::Among;
use super::what_if::WhatIf;

/// Requests of each simulation, and where a longer recording is cut off.
const REQUESTS: usize = 20_000;
const REQUESTS_MAX: usize = 200_000;

/// The requests of a tenant.
#[derive(Clone, Debug)]
struct Tenant<'a> {
    known: &'a KindModel,
    rate: f64,
    gaps: Arc<[f64]>,
    measured: Network,
    /// With the cores that are put in, and then with all that is replaced.
    steps: [Step; 2],
}

/// Networks with parts that are replaced.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    /// As it is thought to be, and if parts are, at its fastest and its slowest.
    ends: Vec<Network>,
    link: Option<Link>,
}

impl Tenant<'_> {
    /// Its requests at so many times their rate, at one end of a step.
    fn class(&self, step: usize, end: usize, times: f64, depth: usize) -> Class<'_> {
        let Step { ends, link } = &self.steps[step];
        let arrivals = Arrivals::Poisson(times * self.rate);
        Class { network: &ends[end], arrivals, depth, link: *link, gaps: &self.gaps }
    }
}

/// # Errors
/// The link that is put in does not carry what uses it for these parts of the time.
pub(super) fn carried(uses: impl Iterator<Item = f64>) -> Result<(), String> {
    let used: f64 = uses.sum();
    let refused = || format!("the link carries {:.0} % of this rate", 100.0 / used);
    (used <= 1.0).then_some(()).ok_or_else(refused)
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Load<'a> {
    tenants: Vec<Tenant<'a>>,
    /// Whether the way was measured with just this load, but for the rate.
    is_measured: bool,
    /// What was replaced.
    pub(super) note: Option<String>,
    /// How many times the cores that were measured there are at host and target.
    cores: [f64; 2],
}

impl<'a> Load<'a> {
    /// # Errors
    /// What is replaced was not measured well enough.
    pub(super) fn new(
        among: &[Among<'a>],
        questions: &[Question],
        what_if: &WhatIf,
    ) -> Result<Self, String> {
        let (mut note, mut cores) = (None, [1.0; 2]);
        let mut tenant = |among: &Among<'a>, question: &Question| {
            let measured = among.known.network();
            let plain = Step { ends: vec![measured.clone()], link: None };
            let mut steps = [plain.clone(), plain];
            if what_if.is_any() {
                let (parts, words) = among.parts(what_if)?;
                let link = what_if.link(&among.known.kind).filter(|_| !among.way.is_local());
                steps =
                    [(what_if.of_cores(), None), (what_if.clone(), link)].map(|(with, link)| {
                        Step { ends: with.replaced(&measured, &parts).to_vec(), link }
                    });
                note = Some(what_if.words(words.each_ref().map(String::as_str)));
                let own = among.known.cores();
                cores = [0, 1].map(|side| parts.cores[side] as f64 / own[side].max(1) as f64);
            }
            let (known, rate, gaps) = (among.known, question.iops, Arc::clone(&question.gaps));
            Ok(Tenant { known, rate, gaps, measured, steps })
        };
        let all = among.iter().zip(questions).map(|(among, question)| tenant(among, question));
        let tenants = all.collect::<Result<Vec<_>, String>>()?;
        let mut load = Self { tenants, is_measured: false, note, cores };
        load.is_measured = load.tenants.len() == 1 && !what_if.is_any() && !load.is_recorded();
        Ok(load)
    }

    /// What becomes of each tenant at so many times its rate and this depth.
    ///
    /// # Errors
    /// It would be a guess.
    pub(super) fn at(&self, times: f64, depths: &[usize]) -> Result<Vec<Forecast>, String> {
        let all = || self.tenants.iter().zip(depths);
        let link = |one: &Tenant<'_>| Some(one.steps[1].link?.used(times * one.rate));
        carried(self.tenants.iter().filter_map(link))?;
        if self.is_measured {
            return all().map(|(one, depth)| one.known.at(times * one.rate, *depth)).collect();
        }
        let worked = self.simulated(0, times, depths);
        let is_all = self.tenants.iter().all(|tenant| tenant.steps[0] == tenant.steps[1]);
        let after = if is_all { worked.clone() } else { self.simulated(1, times, depths) };
        let of = |(place, (tenant, depth)): (usize, (&Tenant<'_>, &usize))| {
            let alike = times * self.alike(tenant);
            let known = tenant.known.at(alike, *depth)?;
            if known.is_measured {
                return Err("the model does not explain its cells, so that it says nothing of \
                            others"
                    .to_owned());
            }
            let measured = &tenant.measured;
            let before = measured.simulate(Arrivals::Poisson(alike), *depth, REQUESTS, SEED);
            let by = tenant.known.interrupted_by();
            let before = before.interrupted_at(measured, measured.loads(alike), &by);
            let own = |all: &[Vec<Outcome>]| all.iter().map(|end| end[place].clone()).collect();
            let (worked, after): (Vec<_>, Vec<_>) = (own(&worked), own(&after));
            let found = Change { before: &before, worked: &worked, after: &after };
            let found = found.of(&known.prediction, times * tenant.rate);
            let said = |prediction| Forecast { prediction, is_measured: false };
            found.map(said).ok_or_else(|| {
                "what was measured does not serve this rate, and what is put in its place may"
                    .to_owned()
            })
        };
        all().enumerate().map(of).collect()
    }

    /// Requests of a simulation: all of a recording.
    fn requests(&self) -> usize {
        let longest = self.tenants.iter().map(|tenant| tenant.gaps.len()).max().unwrap_or(0);
        // The first tenth is not counted.
        (longest + longest / 9).clamp(REQUESTS, REQUESTS_MAX)
    }

    /// What becomes of each tenant at each end of a step, interrupted as it was measured.
    fn simulated(&self, step: usize, times: f64, depths: &[usize]) -> Vec<Vec<Outcome>> {
        let all = || self.tenants.iter().zip(depths);
        let ends = self.tenants.first().map_or(0, |tenant| tenant.steps[step].ends.len());
        let mut found: Vec<Vec<Outcome>> = Vec::new();
        for end in 0..ends {
            let is_first = |tenant: &Tenant<'_>| {
                let ends = &tenant.steps[step].ends;
                ends[end] == ends[0]
            };
            if end > 0 && self.tenants.iter().all(is_first) {
                found.push(found[0].clone());
                continue;
            }
            let classes: Vec<Class<'_>> =
                all().map(|(tenant, depth)| tenant.class(step, end, times, *depth)).collect();
            let loads = self.loads(times, step, end);
            let interrupted = |(outcome, (tenant, class)): (Outcome, (&Tenant<'_>, &Class<'_>))| {
                outcome.interrupted_at(class.network, loads, &tenant.known.interrupted_by())
            };
            let outcomes = together(&classes, self.requests(), SEED).into_iter();
            found.push(outcomes.zip(self.tenants.iter().zip(&classes)).map(interrupted).collect());
        }
        found
    }

    /// The rate at which a tenant alone, as it was measured, has the busier side's cores work as
    /// much as all tenants do together.
    fn alike(&self, tenant: &Tenant<'_>) -> f64 {
        let loads = self.loads(1.0, 1, 0);
        self.alike_at(tenant, usize::from(loads[1] > loads[0]))
    }

    /// The same of a side.
    fn alike_at(&self, tenant: &Tenant<'_>, side: usize) -> f64 {
        let one = tenant.measured.loads(1.0)[side];
        if one > 0.0 { self.loads(1.0, 1, 0)[side] / one } else { tenant.rate }
    }

    /// Which part of their time the cores of each side work for all tenants.
    fn loads(&self, times: f64, step: usize, end: usize) -> [f64; 2] {
        let of = |tenant: &Tenant<'_>| {
            Some(tenant.steps[step].ends.get(end)?.loads(times * tenant.rate))
        };
        let all = self.tenants.iter().filter_map(of);
        all.fold([0.0; 2], |[host, target], own| [host + own[0], target + own[1]])
    }

    /// The greatest depth that was measured of each tenant.
    pub(super) fn deepest(&self) -> Vec<usize> {
        self.tenants.iter().map(|tenant| tenant.known.deepest()).collect()
    }

    /// The lowest rate that was measured, of a tenant that has less.
    pub(super) fn below(&self) -> Option<f64> {
        let least = |one: &Tenant<'_>| (one.known.slowest(), self.alike(one));
        let below = self.tenants.iter().map(least).find(|(least, rate)| rate < least);
        below.map(|(least, _)| least)
    }

    /// Whether arrivals are those of a recording.
    pub(super) fn is_recorded(&self) -> bool {
        self.tenants.iter().any(|tenant| !tenant.gaps.is_empty())
    }

    /// Up to how many times the rates something is said.
    pub(super) fn most(&self) -> f64 {
        let all = self.tenants.iter().map(|tenant| tenant.known.most() / self.alike(tenant));
        all.fold(f64::INFINITY, f64::min)
    }

    /// Processors of host and target: those of the cells in which the cores work as much.
    pub(super) fn processors(&self) -> [Option<f64>; 2] {
        [0, 1].map(|side| {
            let of = |one: &Tenant<'_>| one.known.processors(self.alike_at(one, side))[side];
            let all = self.tenants.iter().map(of).collect::<Option<Vec<f64>>>()?;
            Some(self.cores[side] * all.into_iter().fold(0.0, f64::max))
        })
    }
}
