//! Images of a Ceph cluster of one node, made of Debian's packages: weft's target serves them to
//! weft's host and to Linux'.
//!
//! A step has a target of its own and images of its own; the cluster is the same for all.

mod bars;
mod cluster;
mod faults;
mod images;
mod linux;
mod nvmeof;
mod pair;
mod served;

use anyhow::Result;
use cluster::{Cluster, Programs, Purpose};
use served::Scene;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask::bench;
use xtask::cargo::{build_binary, target_folder};
use xtask::report::Report;

/// A step and its name.
type CephTest = (&'static str, fn(&Scene) -> Result<()>);

const STEPS: &[CephTest] = &[
    ("data is where other clients of the cluster find it", images::data),
    ("flush and FUA reach the cluster past librbd's cache", images::durable),
    ("deallocated blocks free their objects", images::deallocated),
    ("a resize is seen by hosts", images::resized),
    ("a snapshot and a namespace of a pool", images::snapshot_and_namespace),
    ("the exclusive lock goes to who writes, unless it is kept", images::exclusive_lock),
    ("SPDK's methods, with two users of the cluster", images::methods),
    ("ceph-nvmeof operates weft in place of SPDK's target", nvmeof::operates),
    ("Linux' host in a guest: file system, resize, zeroes", linux::host),
    ("an OSD is killed and started again under load", faults::osd_killed),
    ("an image that hangs ends its commands and holds up no other", faults::hangs),
    ("images of two clusters, one of which hangs", faults::two_clusters),
    ("a full pool: what was written stays, and writes go on later", faults::full),
    ("a pool is removed under load", faults::removed),
    ("one of two gateways dies under load", faults::gateway_dies),
    ("a client that was fenced says so, and is replaced", faults::fenced),
    ("a pair by the lock of an image is handed over", pair::handed_over),
    ("a pair by the lock of an image: one dies, one is stopped", pair::one_dies),
];

/// What takes longest, which only `cargo xtask test --all` runs, or whoever names it.
const LONG: &[&str] = &[
    "ceph-nvmeof operates weft in place of SPDK's target",
    "Linux' host in a guest: file system, resize, zeroes",
    "one of two gateways dies under load",
    "images of two clusters, one of which hangs",
    "a pair by the lock of an image: one dies, one is stopped",
];

/// What `cargo xtask ceph` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only steps whose name contains this text
    filter: Option<String>,
    /// In place of the steps: measure weft over TCP beside fio's rbd engine and `rbd bench`
    #[arg(long, conflicts_with = "filter")]
    bench: bool,
    /// With --bench: how often each load is measured
    #[arg(long, default_value_t = 5, requires = "bench")]
    rounds: usize,
    /// With --bench: for how many seconds
    #[arg(long, default_value_t = 5, requires = "bench")]
    seconds: u64,
}

/// Runs the steps, those that take longest only if all are wanted.
pub(crate) fn test(root: &Path, report: &mut Report, all: bool) {
    if let Some(scene) = set_up(report, root, Purpose::Steps, || build_binary(root)) {
        steps(report, &scene, |name| all || !LONG.contains(&name));
    }
}

/// Runs the steps, or those that were asked for; or measures.
pub(crate) fn run(root: &Path, report: &mut Report, options: &Options) {
    let filter = options.filter.as_deref().unwrap_or_default();
    let wanted = |name: &str| name.contains(filter);
    if !STEPS.iter().any(|(name, _)| wanted(name)) {
        return report.add_failure(&format!("ceph: no step's name contains `{filter}`"));
    }
    if options.bench {
        let Some(scene) = set_up(report, root, Purpose::Bars, || bench::built(root)) else {
            return;
        };
        let time = Duration::from_secs(options.seconds);
        report.check("ceph: bars", || bars::measure(&scene, options.rounds, time));
    } else if let Some(scene) = set_up(report, root, Purpose::Steps, || build_binary(root)) {
        steps(report, &scene, wanted);
    }
}

/// Starts a cluster.
fn set_up(
    report: &mut Report,
    root: &Path,
    purpose: Purpose,
    binary: impl FnOnce() -> Result<PathBuf>,
) -> Option<Scene> {
    let mut scene = None;
    report.check("ceph: a cluster of Debian's packages", || {
        let weft = binary()?;
        let folder = target_folder(root).join("ceph");
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        let cluster = Cluster::start(Programs::of_debian(root)?, folder.join("cluster"), purpose)?;
        scene = Some(Scene { root: root.to_owned(), cluster, weft, folder });
        Ok(())
    });
    scene
}

fn steps(report: &mut Report, scene: &Scene, wanted: impl Fn(&str) -> bool) {
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        report.check(&format!("ceph: {name}"), || step(scene));
    }
}
