//! What images do when the cluster is not well.

use super::images::owner;
use super::served::{BLOCKS_OF_MIB, NQN, RunningTarget, Scene, VERIFIED};
use crate::process::within;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a load runs before something happens to it.
const SOME: Duration = Duration::from_millis(800);

/// The OSD dies under a verified load, which sees a pause.
pub(super) fn osd_killed(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M killed")?;
    let served = scene.serve("killed", &["killed"])?;
    let (file, data) = scene.data(10, MIB)?;
    served.write(1, 8, &file, &[])?;
    let load = served.load(1, VERIFIED)?;
    sleep(SOME);
    scene.cluster.kill_osd();
    sleep(SOME);
    scene.cluster.start_osd()?;
    // This one waits for the OSD.
    served.has(1, 8, &data)?;
    sleep(SOME);
    load.ends_well()?;
    served.stop()
}

/// The OSD is stopped. One poll group serves both namespaces.
pub(super) fn hangs(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M hangs")?;
    let served = scene.serve("hangs", &["hangs,timeout=500ms"])?;
    let (file, first) = scene.data(11, MIB)?;
    served.write(1, 4, &file, &[])?;
    scene.cluster.signal_osd(Signal::STOP)?;
    let hung = while_it_hangs(scene, &served);
    scene.cluster.signal_osd(Signal::CONT)?;
    hung?;
    // What was given up may have been written; what is written now comes after it.
    within(PATIENCE, "the image answers again", || served.weft("flush", 1, &[]))?;
    served.has(1, 4, &first)?;
    let (file, last) = scene.data(13, MIB)?;
    served.write(1, 0, &file, &[])?;
    served.has(1, 0, &last)?;
    served.stop()
}

fn while_it_hangs(scene: &Scene, served: &RunningTarget<'_>) -> Result<()> {
    let words = "--rw randread --bs 4k --iodepth 4 --runtime 300 --time_based -o json";
    let beside = served.load(2, words)?;
    let (file, _) = scene.data(12, MIB)?;
    let file = file.display().to_string();
    // The host tries a command five times more.
    let begin = Instant::now();
    let told = served.refused("write", 1, &["--data", &file])?;
    let took = begin.elapsed();
    ensure!(told.contains("Internal Path Error"), "{told}");
    ensure!(took < Duration::from_secs(10), "it was ended after {took:?}");
    let log = served.log();
    ensure!(log.contains("did not complete") && log.contains("within 500ms"), "{log}");
    // More than what a read of memory takes on a busy machine, and less than the time-out.
    let job = beside.measured()?;
    let longest = job["read"]["clat_ns"]["max"].as_f64().context("no latency")? / 1e9;
    ensure!(longest < 0.4, "a read of memory took {longest} s beside the image that hangs");
    ensure!(job["read"]["total_ios"].as_u64() > Some(1000), "{job}");
    Ok(())
}

/// Images of the same name in two clusters, one of which hangs.
pub(super) fn two_clusters(scene: &Scene) -> Result<()> {
    let other = scene.cluster.another(scene.folder.join("other"))?;
    for cluster in [&scene.cluster, &other] {
        cluster.rbd("create --size 16M both")?;
    }
    let hangs = format!(
        "[[subsystem.namespace]]\nrbd = \"both,timeout=500ms,user=weft,conf={}\"\n",
        other.configuration()
    );
    let served = scene.serve_toml("two", "", &(scene.namespace("both") + &hangs))?;
    for (nsid, cluster) in [(1_u32, &scene.cluster), (2, &other)] {
        let (file, data) = scene.data(20 + u64::from(nsid), MIB)?;
        served.write(nsid, 8, &file, &[])?;
        ensure!(cluster.contents("both", 9 * MIB)?[8 * MIB..] == data, "other data: {nsid}");
    }
    let load = served.load(1, VERIFIED)?;
    other.signal_osd(Signal::STOP)?;
    // What was written: that there is no object elsewhere librbd knows by the image's object map.
    let written = (8 * BLOCKS_OF_MIB).to_string();
    let told = served.refused("read", 2, &["--start-block", &written, "--data-size", "4096"]);
    other.signal_osd(Signal::CONT)?;
    let told = told?;
    ensure!(told.contains("Internal Path Error"), "the cluster that hangs has answered: {told}");
    load.ends_well()?;
    within(PATIENCE, "the cluster answers", || served.weft("flush", 2, &[]))?;
    served.stop()
}

/// The OSD's file is nearly full by its own measure: a small part of it.
pub(super) fn full(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 1G full")?;
    let served = scene.serve("full", &["full"])?;
    let filled = fill(scene, &served);
    scene.cluster.set_full_ratio(0.95)?;
    let written = filled?;
    let (file, data) = piece(scene, written)?;
    within(PATIENCE, "writes go on", || served.write(1, written * 8, Path::new(&file), &[]))?;
    served.has(1, written * 8, &data)?;
    served.stop()?;
    scene.cluster.rbd("rm full").map(drop)
}

/// Data of its own for each piece of 8 MiB.
fn piece(scene: &Scene, number: usize) -> Result<(String, Vec<u8>)> {
    let (file, data) = scene.data(100 + number as u64, 8 * MIB)?;
    Ok((file.display().to_string(), data))
}

/// Writes until there is no room; returns how many pieces there are.
fn fill(scene: &Scene, served: &RunningTarget<'_>) -> Result<usize> {
    scene.cluster.set_full_ratio(0.06)?;
    let mut written = 0;
    let refused = loop {
        let (file, _) = piece(scene, written)?;
        match served.write(1, written * 8, Path::new(&file), &[]) {
            Ok(()) => written += 1,
            Err(error) => break format!("{error:#}"),
        }
        if written == 100 {
            bail!("800 MiB were written, and it is not full");
        }
        // The OSD reports how full it is.
        sleep(Duration::from_millis(100));
    };
    ensure!(refused.contains("the controller has no space left"), "{refused}");
    let log = served.log();
    ensure!(log.contains("there is no space left"), "{log}");
    ensure!(written > 0, "it was full at once");
    // Nothing that was acknowledged is lost, while it is full.
    for number in 0..written {
        served.has(1, number * 8, &piece(scene, number)?.1)?;
    }
    Ok(written)
}

pub(super) fn removed(scene: &Scene) -> Result<()> {
    let cluster = &scene.cluster;
    cluster.make_pool("gone")?;
    cluster.rbd("create --size 16M gone/image")?;
    cluster.rbd("create --size 16M stays")?;
    let served = scene.serve("removed", &["gone/image", "stays"])?;
    let (load, other) = (served.load(1, VERIFIED)?, served.load(2, VERIFIED)?);
    sleep(SOME);
    // Ceph itself keeps what is in use.
    let refused = cluster.rbd("rm gone/image").err().context("an image in use was removed")?;
    ensure!(format!("{refused:#}").contains("still has watchers"), "{refused:#}");
    cluster.ceph("osd pool delete gone gone --yes-i-really-really-mean-it")?;
    let told = load.fails()?;
    ensure!(told.contains("gone") || told.contains("status-0x300"), "{told}");
    within(PATIENCE, "the namespace is told to be gone", || {
        let told = served.refused("read", 1, &["--data-size", "4096"])?;
        ensure!(told.contains("the namespace is gone"), "{told}");
        Ok(())
    })?;
    let log = served.log();
    ensure!(log.contains("the image was removed"), "{log}");
    other.ends_well()?;
    served.stop()
}

/// Two gateways of one subsystem, one of which hosts prefer. The other one breaks the lock of the
/// one that died, and has it fenced.
pub(super) fn gateway_dies(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M gateways")?;
    let gateway = |name: &str, state: &str, first: u32| {
        let of_port = format!("[[port.ana]]\nstate = \"{state}\"\n");
        let ids = format!("cntlid-min = {first}\ncntlid-max = {}\n", first + 1999);
        let image = scene.namespace("gateways");
        scene.serve_toml(name, &of_port, &format!("ana-reporting = true\n{ids}{image}"))
    };
    let (one, two) =
        (gateway("gateway-one", "optimized", 1)?, gateway("gateway-two", "non-optimized", 2001)?);
    let (file, data) = scene.data(15, MIB)?;
    one.write(1, 8, &file, &[])?;
    let first = owner(scene, "gateways")?;
    let locks = scene.cluster.rbd_json("lock ls gateways")?;
    let address = locks[0]["address"].as_str().with_context(|| locks.to_string())?;
    let paths = format!("nvme-tcp://127.0.0.1:{},127.0.0.1:{}/{NQN}?nsid=1", one.port, two.port);
    let load = scene.load(&paths, &format!("{VERIFIED} --reconnect-delay 1"))?;
    sleep(SOME);
    ensure!(owner(scene, "gateways")? == first, "the load is not where it is preferred");
    one.kill();
    within(PATIENCE, "the other gateway has the lock", || {
        let now = owner(scene, "gateways")?;
        ensure!(!now.is_empty() && now != first, "{now:?}");
        Ok(())
    })?;
    let fenced = scene.cluster.ceph("osd blocklist ls")?;
    ensure!(fenced.contains(address), "{address} is not fenced: {fenced}");
    let read = || two.weft("read", 1, &["--data-size", "1MiB"]);
    let before = read()?;
    within(PATIENCE, "the load goes on", || {
        ensure!(read()? != before, "nothing was written");
        Ok(())
    })?;
    load.ends_well()?;
    two.has(1, 8, &data)?;
    two.stop()
}

/// Another client had this one fenced: its namespace refers hosts to other paths until it is
/// removed and added again, also while other images of the same connection are in use.
pub(super) fn fenced(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M fenced")?;
    scene.cluster.rbd("create --size 16M beside")?;
    let served = scene.serve("fenced", &["fenced", "beside"])?;
    let (file, data) = scene.data(14, MIB)?;
    served.write(1, 0, &file, &[])?;
    let load = served.load(1, VERIFIED)?;
    sleep(SOME);
    let locks = scene.cluster.rbd_json("lock ls fenced")?;
    let address = locks[0]["address"].as_str().with_context(|| locks.to_string())?;
    scene.cluster.ceph(&format!("osd blocklist add {address}"))?;
    let told = load.fails()?;
    ensure!(told.contains("status-0x300"), "{told}");
    let told = served.refused("read", 2, &["--data-size", "4096"])?;
    ensure!(told.contains("Internal Path Error"), "{told}");
    let log = served.log();
    ensure!(log.contains("was fenced"), "{log}");
    let shown = served.call("nvmf_get_subsystems", &json!({}))?;
    let all = shown.as_array().context("no subsystems")?;
    let own = all.iter().find(|one| one["nqn"] == NQN).context("no subsystem")?;
    let first = &own["namespaces"][0];
    ensure!(first["nsid"] == 1, "{shown}");
    let uuid = &first["uuid"];
    served.call("nvmf_subsystem_remove_ns", &json!({ "nqn": NQN, "nsid": 1 }))?;
    let conf = scene.cluster.configuration();
    let params = json!({ "name": "ceph", "user_id": "weft", "config_file": conf });
    served.call("bdev_rbd_register_cluster", &params)?;
    let params = json!({ "name": "again", "pool_name": "rbd", "rbd_name": "fenced",
        "block_size": 4096, "cluster_name": "ceph" });
    served.call("bdev_rbd_create", &params)?;
    let namespace = json!({ "bdev_name": "again", "nsid": 1, "uuid": uuid });
    served.call("nvmf_subsystem_add_ns", &json!({ "nqn": NQN, "namespace": namespace }))?;
    served.write(1, 8, &file, &[])?;
    served.has(1, 8, &data)?;
    // At its end a target says what it cannot sync, and fails.
    served.call("nvmf_subsystem_remove_ns", &json!({ "nqn": NQN, "nsid": 2 }))?;
    served.stop()
}
