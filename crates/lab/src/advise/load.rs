//! The load of a question at a way: one kind of request, or several tenants at the same cores.

use weft_advise::network::{Class, Link, together};
use weft_advise::transfer::Change;
use weft_advise::{Arrivals, Network};

use super::model::{Known, SEED, Said};
use super::question::Question;
use super::way::Among;
use super::what_if::WhatIf;

/// Requests of each simulation.
const REQUESTS: usize = 20_000;

/// The requests of a tenant.
#[derive(Clone, Debug)]
struct Tenant<'a> {
    known: &'a Known,
    rate: f64,
    measured: Network,
    /// With what is replaced: as it is thought to be, at its fastest and its slowest.
    after: Vec<Network>,
    link: Option<Link>,
}

impl Tenant<'_> {
    /// The part of the time in which it has the link, in the direction that has more.
    fn link_use(&self, times: f64) -> f64 {
        self.link.as_ref().map_or(0.0, |link| {
            let busier = link.read_part.max(1.0 - link.read_part);
            times * self.rate * busier * link.request_ns / 1e9
        })
    }

    /// Its requests at so many times their rate, at one of the networks.
    fn class(&self, end: usize, times: f64, depth: usize) -> Class<'_> {
        let arrivals = Arrivals::Poisson(times * self.rate);
        Class { network: &self.after[end], arrivals, depth, link: self.link }
    }
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
            let (mut after, mut link) = (vec![measured.clone()], None);
            if what_if.is_any() {
                let (parts, words) = among.parts(what_if)?;
                after = what_if.replaced(&measured, &parts).to_vec();
                link = what_if.link(&parts).filter(|_| !among.way.is_local());
                note = Some(what_if.words(words.each_ref().map(String::as_str)));
                let own = among.known.cores();
                cores = [0, 1].map(|side| parts.cores[side] as f64 / own[side].max(1) as f64);
            }
            Ok(Tenant { known: among.known, rate: question.iops, measured, after, link })
        };
        let all = among.iter().zip(questions).map(|(among, question)| tenant(among, question));
        let tenants = all.collect::<Result<Vec<_>, String>>()?;
        let is_measured = tenants.len() == 1 && !what_if.is_any();
        Ok(Self { tenants, is_measured, note, cores })
    }

    /// # Errors
    /// The link that is put in does not carry so many times the rates.
    pub(super) fn carried(&self, times: f64) -> Result<(), String> {
        let used: f64 = self.tenants.iter().map(|one| one.link_use(times)).sum();
        let refused = || format!("the link carries {:.0} % of this rate", 100.0 / used);
        (used <= 1.0).then_some(()).ok_or_else(refused)
    }

    /// What becomes of each tenant at so many times its rate and this depth.
    ///
    /// # Errors
    /// It would be a guess.
    pub(super) fn at(&self, times: f64, depths: &[usize]) -> Result<Vec<Said>, String> {
        let all = || self.tenants.iter().zip(depths);
        self.carried(times)?;
        if self.is_measured {
            return all().map(|(one, depth)| one.known.at(times * one.rate, *depth)).collect();
        }
        let ends = self.tenants.first().map_or(0, |tenant| tenant.after.len());
        let simulated = (0..ends).map(|end| {
            let classes = all().map(|(tenant, depth)| tenant.class(end, times, *depth));
            together(&classes.collect::<Vec<_>>(), REQUESTS, SEED)
        });
        let simulated: Vec<_> = simulated.collect();
        let of = |(place, (tenant, depth)): (usize, (&Tenant<'_>, &usize))| {
            let alike = times * self.alike(tenant);
            let known = tenant.known.at(alike, *depth)?;
            if known.is_measured {
                return Err("the model does not explain its cells, so that it says nothing of \
                            others"
                    .to_owned());
            }
            let before = tenant.measured.simulate(Arrivals::Poisson(alike), *depth, REQUESTS, SEED);
            let after: Vec<_> = simulated.iter().map(|end| end[place].clone()).collect();
            let found = Change { before: &before, after: &after };
            let found = found.of(&known.prediction, times * tenant.rate);
            let said = |prediction| Said { prediction, is_measured: false };
            found.map(said).ok_or_else(|| {
                "what was measured does not serve this rate, and what is put in its place may"
                    .to_owned()
            })
        };
        all().enumerate().map(of).collect()
    }

    /// The rate at which a tenant alone, as it was measured, has the busier side's cores work as
    /// much as all tenants do together.
    fn alike(&self, tenant: &Tenant<'_>) -> f64 {
        let loads = self.loads();
        self.alike_at(tenant, usize::from(loads[1] > loads[0]))
    }

    /// The same of a side.
    fn alike_at(&self, tenant: &Tenant<'_>, side: usize) -> f64 {
        let one = tenant.measured.loads(1.0)[side];
        if one > 0.0 { self.loads()[side] / one } else { tenant.rate }
    }

    /// Which part of their time the cores of each side work for all tenants.
    fn loads(&self) -> [f64; 2] {
        let of = |tenant: &Tenant<'_>| Some(tenant.after.first()?.loads(tenant.rate));
        let all = self.tenants.iter().filter_map(of);
        all.fold([0.0; 2], |[host, target], own| [host + own[0], target + own[1]])
    }

    /// The greatest depth that was measured of each tenant.
    pub(super) fn deepest(&self) -> Vec<usize> {
        self.tenants.iter().map(|tenant| tenant.known.deepest()).collect()
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
