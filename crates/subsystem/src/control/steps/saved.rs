//! What a step touches: saved before it, put back if the step is not possible, and all that is
//! checked after it.

use super::{Step, StepOutcome};
use crate::config::index::{Index, NamespaceKey};
use crate::config::{
    Bdev, BdevLimits, Config, ConfigError, Namespace, Subsystem, implied_bdev_name,
};
use crate::shared::snapshot::Scope;

/// Something with its place among others, if it was there.
type SavedEntry<T> = Option<(usize, T)>;

/// What a step may change, as it was before.
#[derive(Debug, Default)]
pub(crate) struct Savepoint {
    /// Everything.
    all: Option<Box<Config>>,
    /// All but subsystems and block devices.
    frame: Option<Box<Config>>,
    /// A subsystem with its place, if it was there.
    subsystem: Option<(String, SavedEntry<Subsystem>)>,
    /// A namespace with its place, if it was there.
    namespace: Option<(NamespaceKey, SavedEntry<Namespace>)>,
    /// A block device.
    bdev: Option<SavedBdev>,
}

/// A block device by its name, as it was before.
#[derive(Debug)]
struct SavedBdev {
    name: String,
    /// With its place, if it has a name of its own.
    known: Option<(u64, Bdev)>,
    limits: Option<BdevLimits>,
}

/// The parts of a configuration that a step may change.
#[derive(Debug, Default)]
struct Footprint {
    frame: bool,
    /// A subsystem.
    nqn: Option<String>,
    /// One of its namespaces only: the one with this number, or else one that is new.
    one: Option<Option<u32>>,
    bdev: Option<String>,
}

impl Footprint {
    fn by(step: &Step, config: &Config, index: &Index) -> Self {
        let mut touched = Self::default();
        match step {
            Step::CreateTransport(..)
            | Step::RegisterCluster { .. }
            | Step::UnregisterCluster { .. }
            | Step::SetRateLimit(_)
            | Step::DeleteRateLimit(_)
            | Step::SetQosRule(_)
            | Step::DeleteQosRule(_)
            | Step::LimitSubsystems { .. }
            | Step::SetAuthentication { .. }
            | Step::AddReferral(_)
            | Step::RemoveReferral(_)
            | Step::AddKey { .. }
            | Step::RemoveKey { .. } => touched.frame = true,
            Step::CreateBdev(Bdev { name, .. }) | Step::LimitBdev { name, .. } => {
                touched.bdev = Some(name.clone());
            }
            Step::DeleteBdev { name, .. }
            | Step::ResizeBdev { name, .. }
            | Step::RescanBdev { name } => {
                touched.bdev = Some(name.clone());
                if let Some((nqn, namespace)) = index.user_of(config, name) {
                    touched.nqn = Some(nqn.to_owned());
                    touched.one = Some(Some(namespace.nsid));
                }
            }
            Step::AddNamespace { nqn, namespace } => {
                (touched.nqn, touched.bdev) = (Some(nqn.clone()), namespace.bdev.clone());
                touched.one = Some(None);
            }
            Step::SetVisible { nqn, nsid, .. } => {
                (touched.nqn, touched.one) = (Some(nqn.clone()), Some(Some(*nsid)));
            }
            Step::RemoveNamespace { nqn, nsid } => {
                touched.nqn = Some(nqn.clone());
                touched.one = Some(Some(*nsid));
                touched.bdev = step.concerns(config).0.map(|name| name.into_owned());
            }
            Step::CreateSubsystem(subsystem) => {
                touched.frame = true;
                touched.nqn = Some(subsystem.nqn.clone());
            }
            Step::DeleteSubsystem { nqn }
            | Step::AddListener { nqn, .. }
            | Step::RemoveListener { nqn, .. }
            | Step::SetAnaState { nqn, .. } => {
                touched.frame = true;
                touched.nqn = Some(nqn.clone());
            }
            Step::SetAnaGroup { nqn, .. }
            | Step::AddHost { nqn, .. }
            | Step::SetKeys { nqn, .. }
            | Step::SetPsks { nqn, .. }
            | Step::RemoveHost { nqn, .. }
            | Step::AllowAnyHost { nqn, .. } => touched.nqn = Some(nqn.clone()),
        }
        touched
    }
}

fn place_of(config: &Config, nqn: &str) -> Option<usize> {
    config.subsystems.iter().position(|subsystem| subsystem.nqn == nqn)
}

fn find<'a>(config: &'a Config, nqn: &str, nsid: u32) -> Option<(usize, &'a Namespace)> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
    subsystem.namespaces.iter().enumerate().find(|(_, namespace)| namespace.nsid == nsid)
}

/// Which namespace is meant is known: nothing is told from its position any more.
fn number(subsystem: &mut Subsystem) {
    subsystem.namespaces.iter_mut().for_each(|namespace| namespace.by_position = false);
}

impl Savepoint {
    /// Saves what a step touches.
    pub(crate) fn before(step: &Step, config: &mut Config, index: &Index) -> Self {
        let mut saved = Self::default();
        // Other limits are checked for every subsystem.
        if matches!(step, Step::CreateTransport(_, limits) if config.limits != **limits) {
            saved.all = Some(Box::new(config.clone()));
            config.subsystems.iter_mut().for_each(number);
            return saved;
        }
        let Footprint { frame, nqn, one, bdev } = Footprint::by(step, config, index);
        saved.frame = frame.then(|| Box::new(config.frame()));
        saved.bdev = bdev.map(|name| {
            let known = config.operated.bdevs.with_place(&name);
            let known = known.map(|(place, bdev)| (place, bdev.clone()));
            let limits = config.operated.bdev_limits.get(&name).copied();
            SavedBdev { name, known, limits }
        });
        let Some(nqn) = nqn else { return saved };
        let place = place_of(config, &nqn);
        let subsystem = place.and_then(|place| config.subsystems.get_mut(place));
        let Some(subsystem) = subsystem else {
            saved.subsystem = Some((nqn, None));
            return saved;
        };
        let by_position = subsystem.namespaces.iter().any(|namespace| namespace.by_position);
        match one.filter(|_| !by_position) {
            // It is known once it is made.
            Some(None) => {}
            Some(Some(nsid)) => {
                let known = find(config, &nqn, nsid).map(|(place, one)| (place, one.clone()));
                saved.namespace = Some(((nqn, nsid), known));
            }
            None => {
                saved.subsystem = Some((nqn, place.zip(Some(subsystem.clone()))));
                number(subsystem);
            }
        }
        saved
    }

    /// The step has made this, and may still turn out to be impossible.
    pub(crate) fn made(&mut self, step: &Step, made: StepOutcome) {
        if let (Step::AddNamespace { nqn, .. }, StepOutcome::Nsid(nsid), None) =
            (step, made, &self.subsystem)
        {
            self.namespace = Some(((nqn.clone(), nsid), None));
        }
    }

    /// Puts back what was saved.
    pub(crate) fn restore(self, config: &mut Config) {
        if let Some(all) = self.all {
            *config = *all;
            return;
        }
        if let Some(frame) = self.frame {
            config.restore_frame(*frame);
        }
        if let Some((nqn, before)) = self.subsystem {
            config.subsystems.retain(|subsystem| subsystem.nqn != nqn);
            if let Some((place, subsystem)) = before {
                config.subsystems.insert(place.min(config.subsystems.len()), subsystem);
            }
        }
        if let Some(((nqn, nsid), before)) = self.namespace
            && let Some(place) = place_of(config, &nqn)
            && let Some(subsystem) = config.subsystems.get_mut(place)
        {
            let namespaces = &mut subsystem.namespaces;
            namespaces.retain(|namespace| namespace.nsid != nsid);
            if let Some((place, namespace)) = before {
                namespaces.insert(place.min(namespaces.len()), namespace);
            }
        }
        if let Some(SavedBdev { name, known, limits }) = self.bdev {
            match known {
                Some((place, bdev)) => config.operated.bdevs.put_at(place, bdev),
                None => drop(config.operated.bdevs.remove(&name)),
            }
            match limits {
                Some(limits) => drop(config.operated.bdev_limits.insert(name, limits)),
                None => drop(config.operated.bdev_limits.remove(&name)),
            }
        }
    }

    /// Removes limits of block devices that are gone, and those that limit nothing.
    pub(crate) fn prune_limits(&self, config: &mut Config, index: &Index) {
        if self.all.is_some() || self.frame.is_some() {
            return config.prune_bdev_limits();
        }
        let Some(SavedBdev { name, .. }) = &self.bdev else { return };
        let is_there = config.bdev(name).is_some() || index.user_of(config, name).is_some();
        let limits = &mut config.operated.bdev_limits;
        if !is_there || limits.get(name) == Some(&BdevLimits::default()) {
            limits.remove(name);
        }
    }

    /// Checks what the step has touched for contradictions.
    pub(crate) fn check(&self, config: &Config, index: &Index) -> Result<(), ConfigError> {
        if self.all.is_some() {
            return config.check_consistent();
        }
        if self.frame.is_some() {
            config.check_frame()?;
        }
        if let Some((nqn, _)) = &self.subsystem {
            config.check_one_subsystem(nqn, index)?;
        }
        match &self.namespace {
            Some(((nqn, nsid), _)) => config.check_one_namespace(nqn, *nsid, index),
            None => Ok(()),
        }
    }

    /// The scope of the step, as far as it is known here to be narrower.
    pub(crate) fn narrowed(&self, scope: Scope) -> Scope {
        let Scope::Only(mut part) = scope else { return scope };
        part.namespace = self.namespace.as_ref().map(|((_, nsid), _)| *nsid);
        part.bdev = self.bdev.as_ref().map(|bdev| bdev.name.clone());
        Scope::Only(part)
    }

    /// The step was made: tells the index.
    pub(crate) fn note(&self, config: &Config, index: &mut Index) {
        if let Some((nqn, before)) = &self.subsystem {
            let before = before.as_ref().map(|(_, subsystem)| &subsystem.namespaces);
            let place = place_of(config, nqn);
            let after = place.and_then(|place| config.subsystems.get(place));
            let after = after.map(|subsystem| &subsystem.namespaces);
            if before != after {
                before.into_iter().flatten().for_each(|one| index.remove(nqn, one));
                after.into_iter().flatten().for_each(|one| index.add(nqn, one));
            }
        }
        if let Some(((nqn, nsid), before)) = &self.namespace {
            before.iter().for_each(|(_, one)| index.remove(nqn, one));
            find(config, nqn, *nsid).iter().for_each(|(_, one)| index.add(nqn, one));
        }
    }

    /// Whether other rate limits may be served than before.
    pub(crate) fn concerns_rate_limits(&self, config: &Config) -> bool {
        let limited = |bdev: &SavedBdev| {
            bdev.limits.is_some() || config.operated.bdev_limits.contains_key(&bdev.name)
        };
        self.all.is_some() || self.frame.is_some() || self.bdev.as_ref().is_some_and(limited)
    }
}

impl Step {
    /// The block device, by name, and the subsystem whose block devices it may make, change or
    /// remove.
    #[must_use]
    pub fn concerns<'a>(
        &'a self,
        config: &Config,
    ) -> (Option<std::borrow::Cow<'a, str>>, Option<&'a str>) {
        match self {
            Self::CreateBdev(bdev) => (Some(bdev.name.as_str().into()), None),
            Self::DeleteBdev { name, .. }
            | Self::ResizeBdev { name, .. }
            | Self::RescanBdev { name } => (Some(name.as_str().into()), None),
            Self::DeleteSubsystem { nqn } => (None, Some(nqn)),
            Self::RemoveNamespace { nqn, nsid } => {
                let named = find(config, nqn, *nsid).and_then(|(_, one)| one.bdev.clone());
                let name = named.unwrap_or_else(|| implied_bdev_name(nqn, *nsid));
                (Some(name.into()), None)
            }
            _ => (None, None),
        }
    }
}
