//! What images do while the cluster is well.

use super::served::{NQN, Scene, VERIFIED, all_verified};
use crate::process::within;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use xtask::python::succeeded;

const MIB: usize = 1 << 20;

/// How long a change may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn data(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 64M data")?;
    let served = scene.serve("data", &["data"])?;
    for words in ["--bs 4k --size 2m --iodepth 16", "--bs 64k --size 16m --iodepth 32"] {
        let words = format!("--rw randwrite --verify crc32c {words}");
        let words: Vec<&str> = words.split(' ').collect();
        all_verified(&String::from_utf8(served.weft("bench", 1, &words)?)?)?;
    }
    let (file, data) = scene.data(1, 5 * MIB)?;
    served.write(1, 3, &file, &[])?;
    served.has(1, 3, &data)?;
    let found = scene.cluster.contents("data", 8 * MIB)?;
    ensure!(found[3 * MIB..] == data, "another client finds other data");
    served.stop()
}

/// An image may have librbd's cache of its own: then a write is not in the cluster before Flush, or
/// with FUA.
pub(super) fn durable(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M durable")?;
    for (key, value) in [
        ("rbd_cache", "true"),
        ("rbd_cache_policy", "writeback"),
        ("rbd_cache_writethrough_until_flush", "false"),
        ("rbd_cache_max_dirty_age", "300"),
    ] {
        scene.cluster.rbd(&format!("config image set durable {key} {value}"))?;
    }
    let served = scene.serve("durable", &["durable"])?;
    let is_there = |data: &[u8]| Ok(scene.cluster.contents("durable", data.len())? == data);
    let (file, data) = scene.data(2, MIB)?;
    served.write(1, 0, &file, &[])?;
    let early: Result<bool> = is_there(&data);
    ensure!(!early?, "the cache holds nothing back: this test shows nothing");
    served.weft("flush", 1, &[])?;
    ensure!(is_there(&data)?, "the flush has not reached the cluster");
    let (file, data) = scene.data(3, MIB)?;
    served.write(1, 0, &file, &["--fua"])?;
    ensure!(is_there(&data)?, "the write with FUA is not in the cluster");
    served.stop()
}

pub(super) fn deallocated(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 64M deallocated")?;
    let served = scene.serve("deallocated", &["deallocated"])?;
    let (file, data) = scene.data(4, 16 * MIB)?;
    served.write(1, 0, &file, &[])?;
    let sizes = |scene: &Scene| scene.cluster.objects("deallocated");
    ensure!(sizes(scene)? == [4 * MIB; 4], "16 MiB are 4 objects");
    // In pieces of 1 MiB: holes, and a shorter object for its last piece; or none if librbd joins
    // them.
    served.weft("bench", 1, &"--rw trim --bs 4m --size 8m".split(' ').collect::<Vec<_>>())?;
    let left = sizes(scene)?;
    let all_data = left.ends_with(&[4 * MIB; 2]);
    ensure!(all_data && left.iter().sum::<usize>() <= 14 * MIB, "the objects have {left:?} bytes");
    served.has(1, 0, &vec![0; 8 * MIB])?;
    served.has(1, 8, &data[8 * MIB..])?;
    served.stop()
}

/// The size of a namespace as a host is told.
fn size(served: &super::served::RunningTarget<'_>, nsid: u32) -> Result<u64> {
    let nsid = nsid.to_string();
    let words = ["--namespace-id", &nsid, "-o", "json"];
    let said: Value = serde_json::from_slice(&served.weft("identify", 1, &words)?)?;
    Ok(said["nsze"].as_u64().with_context(|| said.to_string())? * 4096)
}

pub(super) fn resized(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M resized")?;
    let served = scene.serve("resized", &["resized"])?;
    let load = served.load(1, VERIFIED)?;
    ensure!(size(&served, 1)? == 16 << 20, "the first size");
    for (mib, more) in [(24, ""), (8, " --allow-shrink")] {
        scene.cluster.rbd(&format!("resize resized --size {mib}M{more}"))?;
        within(PATIENCE, "hosts are told the new size", || {
            let size = size(&served, 1)?;
            ensure!(size == mib << 20, "{size} bytes");
            Ok(())
        })?;
    }
    load.ends_well()?;
    served.stop()
}

pub(super) fn snapshot_and_namespace(scene: &Scene) -> Result<()> {
    let (old, first) = scene.data(5, MIB)?;
    let cluster = &scene.cluster;
    cluster.rbd("namespace create rbd/team")?;
    for image in ["rbd/snapped", "rbd/team/snapped"] {
        cluster.rbd(&format!("create --size 16M {image}"))?;
    }
    let served = scene.serve("before", &["snapped"])?;
    served.write(1, 0, &old, &[])?;
    cluster.rbd("snap create snapped@then")?;
    served.stop()?;
    let served = scene.serve("snapped", &["snapped", "snapped@then", "rbd/team/snapped"])?;
    let (new, second) = scene.data(6, MIB)?;
    served.write(1, 0, &new, &[])?;
    served.has(1, 0, &second)?;
    served.has(2, 0, &first)?;
    let data = new.display().to_string();
    let refused = served.refused("write", 2, &["--data", &data])?;
    ensure!(refused.contains("write protected"), "{refused}");
    served.has(2, 0, &first)?;
    // An image of the same name, in a namespace of its own.
    served.has(3, 0, &vec![0; MIB])?;
    let (third, data) = scene.data(7, MIB)?;
    served.write(3, 0, &third, &[])?;
    ensure!(cluster.contents("rbd/team/snapped", MIB)? == data, "the namespace has other data");
    served.has(1, 0, &second)?;
    served.stop()
}

/// The client that has the lock of an image.
pub(super) fn owner(scene: &Scene, image: &str) -> Result<String> {
    let locks = scene.cluster.rbd_json(&format!("lock ls {image}"))?;
    Ok(locks[0]["locker"].as_str().unwrap_or_default().to_owned())
}

pub(super) fn exclusive_lock(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 16M locked")?;
    let (file, data) = scene.data(8, MIB)?;
    let one = scene.serve("lock-one", &["locked"])?;
    let two = scene.serve("lock-two", &["locked"])?;
    let mut owners = Vec::new();
    for _ in 0..2 {
        for served in [&one, &two] {
            served.write(1, 0, &file, &[])?;
            owners.push(owner(scene, "locked")?);
        }
    }
    let [a, b, ..] = &owners[..] else { unreachable!("there are four") };
    ensure!(a != b && !a.is_empty() && owners == [a, b, a, b].map(String::clone), "{owners:?}");
    two.has(1, 0, &data)?;
    two.stop()?;
    one.stop()?;

    let keeps = scene.serve("lock-kept", &["locked,exclusive"])?;
    let kept = owner(scene, "locked")?;
    let bench = "bench --io-type write --io-total 64K --io-size 4K locked";
    let other = scene.cluster.rbd(bench).err().context("another client could write")?;
    ensure!(format!("{other:#}").contains("Read-only"), "{other:#}");
    // A second gateway that wants to keep it says so; one that does not refers hosts elsewhere.
    let refused =
        scene.serve("lock-refused", &["locked,exclusive"]).err().context("two keep it")?;
    ensure!(format!("{refused:#}").contains("another client keeps it"), "{refused:#}");
    let second = scene.serve("lock-second", &["locked"])?;
    let refused = second.refused("write", 1, &["--data", &file.display().to_string()])?;
    ensure!(refused.contains("Internal Path Error"), "{refused}");
    second.has(1, 0, &data)?;
    ensure!(owner(scene, "locked")? == kept, "the lock has moved");
    second.stop()?;
    keeps.stop()?;
    // It is free once its owner has ended.
    scene.cluster.rbd(bench).map(drop)
}

/// From nothing to a namespace, as SPDK's clients do it. Two names of clusters with users of their
/// own are two connections.
pub(super) fn methods(scene: &Scene) -> Result<()> {
    let cluster = &scene.cluster;
    for image in ["spdk-one", "spdk-two"] {
        cluster.rbd(&format!("create --size 16M {image}"))?;
    }
    let served = scene.serve("methods", &[])?;
    let (conf, keyring) = (cluster.configuration(), cluster.keyring());
    let no_cluster = json!({ "pool_name": "rbd", "rbd_name": "spdk-one", "block_size": 4096,
        "cluster_name": "one" });
    let refused = served.call("bdev_rbd_create", &no_cluster).err().context("no cluster one")?;
    ensure!(format!("{refused:#}").contains("there is no cluster one"), "{refused:#}");
    for (name, user) in [("one", "weft"), ("two", "admin")] {
        let params = json!({ "name": name, "user_id": user, "config_file": conf,
            "key_file": keyring });
        let made = served.call("bdev_rbd_register_cluster", &params)?;
        ensure!(made == json!(name), "{made}");
        let params = json!({ "name": format!("Ceph-{name}"), "pool_name": "rbd",
            "rbd_name": format!("spdk-{name}"), "block_size": 4096, "cluster_name": name });
        served.call("bdev_rbd_create", &params)?;
        served.call(
            "nvmf_subsystem_add_ns",
            &json!({ "nqn": NQN, "namespace": { "bdev_name": format!("Ceph-{name}") } }),
        )?;
    }
    let info = served.call("bdev_rbd_get_clusters_info", &json!({ "name": "one" }))?;
    let info = if info.is_array() { &info[0] } else { &info };
    ensure!(info["cluster_name"] == "one" && info["config_file"] == json!(conf), "{info}");
    let (file, data) = scene.data(9, MIB)?;
    for (nsid, image) in [(2, "spdk-one"), (3, "spdk-two")] {
        served.write(nsid, 0, &file, &[])?;
        ensure!(cluster.contents(image, MIB)? == data, "{image} has other data");
    }
    served.call("bdev_rbd_resize", &json!({ "name": "Ceph-two", "new_size": 32 }))?;
    let found = cluster.rbd_json("info spdk-two")?;
    ensure!(found["size"] == 32 << 20, "{found}");
    let used = served.call("bdev_rbd_unregister_cluster", &json!({ "name": "one" }));
    ensure!(used.is_err(), "a cluster in use was forgotten");
    for (nsid, name) in [(2, "one"), (3, "two")] {
        served.call("nvmf_subsystem_remove_ns", &json!({ "nqn": NQN, "nsid": nsid }))?;
        served.call("bdev_rbd_delete", &json!({ "name": format!("Ceph-{name}") }))?;
        served.call("bdev_rbd_unregister_cluster", &json!({ "name": name }))?;
    }
    // Nobody has the image open any more.
    within(PATIENCE, "the image is free", || {
        succeeded(cluster.command("rbd").args(["rm", "spdk-one"]))
    })?;
    served.stop()
}
