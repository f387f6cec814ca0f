//! A pair of targets on an image, of which the one is primary that has the lock of another image.

use super::images::owner;
use super::served::{NQN, RunningTarget, Scene, VERIFIED};
use crate::process::within;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const LOCK: &str = "pair-lock";
const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody waits for longer when nothing has failed.
const HAND_OVER_MOST: Duration = Duration::from_secs(1);

/// How long a load runs before something happens to it.
const SOME: Duration = Duration::from_millis(800);

/// One of the two targets.
fn member<'a>(scene: &'a Scene, name: &str, number: u8) -> Result<RunningTarget<'a>> {
    let conf = scene.cluster.configuration();
    let rest = format!(
        "{}[pair]\nmember = {number}\nrbd-lock = \"{LOCK},user=weft,conf={conf}\"\n",
        scene.namespace("pair")
    );
    scene.serve_toml(name, "", &rest)
}

/// The images, and both members, of which the first one is primary.
fn pair<'a>(scene: &'a Scene, name: &str) -> Result<(RunningTarget<'a>, RunningTarget<'a>)> {
    if scene.cluster.rbd(&format!("info {LOCK}")).is_err() {
        scene.cluster.rbd(&format!("create --size 1M {LOCK}"))?;
        scene.cluster.rbd("create --size 16M pair")?;
    }
    let one = member(scene, &format!("{name}-one"), 1)?;
    is_primary(&one)?;
    let two = member(scene, &format!("{name}-two"), 2)?;
    ensure!(role(&two)? == "standby", "two members are primary");
    Ok((one, two))
}

fn role(served: &RunningTarget<'_>) -> Result<String> {
    let state = served.call("pair_get_state", &json!({}))?;
    Ok(state["role"].as_str().with_context(|| state.to_string())?.to_owned())
}

/// Waits until a member is primary.
fn is_primary(served: &RunningTarget<'_>) -> Result<()> {
    within(PATIENCE, "a member is primary", || {
        ensure!(role(served)? == "primary", "{}", served.log());
        Ok(())
    })
}

/// Waits until a load of the host has written by this member.
fn goes_on(served: &RunningTarget<'_>) -> Result<()> {
    let read = || served.weft("read", 1, &["--data-size", "1MiB"]);
    let before = read()?;
    within(PATIENCE, "the load goes on", || {
        ensure!(read()? != before, "nothing was written");
        Ok(())
    })
}

fn paths(one: &RunningTarget<'_>, two: &RunningTarget<'_>) -> String {
    format!("nvme-tcp://127.0.0.1:{},127.0.0.1:{}/{NQN}?nsid=1", one.port, two.port)
}

/// By command, there and back, under a verified load.
pub(super) fn handed_over(scene: &Scene) -> Result<()> {
    let (one, two) = pair(scene, "pair")?;
    let (file, data) = scene.data(30, MIB)?;
    one.write(1, 8, &file, &[])?;
    let load = scene.load(&paths(&one, &two), VERIFIED)?;
    sleep(SOME);
    let mut owners = vec![owner(scene, LOCK)?];
    for (from, to) in [(&one, &two), (&two, &one)] {
        let begin = Instant::now();
        from.call("pair_hand_over", &json!({}))?;
        is_primary(to)?;
        let took = begin.elapsed();
        ensure!(took < HAND_OVER_MOST, "handed over in {took:?}");
        ensure!(role(from)? == "standby", "both are primary");
        owners.push(owner(scene, LOCK)?);
        goes_on(to)?;
        to.has(1, 8, &data)?;
    }
    ensure!(owners[0] != owners[1] && owners[0] == owners[2], "{owners:?}");
    load.ends_well()?;
    // The one that stops gives the lock up.
    one.stop()?;
    is_primary(&two)?;
    two.has(1, 8, &data)?;
    two.stop()
}

/// One is killed; the other one, and later again one, breaks its lock and has it fenced. A primary
/// that was only stopped finds that it is fenced when it goes on, and ends.
pub(super) fn one_dies(scene: &Scene) -> Result<()> {
    let (one, two) = pair(scene, "dies")?;
    let (file, data) = scene.data(31, MIB)?;
    one.write(1, 8, &file, &[])?;
    let words = format!("{VERIFIED} --reconnect-delay 1 --keep-alive-tmo 2");
    let load = scene.load(&paths(&one, &two), &words)?;
    sleep(SOME);
    let begin = Instant::now();
    one.kill();
    is_primary(&two)?;
    println!("  the other member is primary {:.1} s after the death of one", seconds(begin));
    goes_on(&two)?;
    load.ends_well()?;

    let one = member(scene, "dies-again", 1)?;
    let locks = scene.cluster.rbd_json(&format!("lock ls {LOCK}"))?;
    let address = locks[0]["address"].as_str().with_context(|| locks.to_string())?;
    let load = scene.load(&paths(&one, &two), &words)?;
    sleep(SOME);
    let begin = Instant::now();
    two.signal(Signal::STOP)?;
    is_primary(&one)?;
    println!("  the other member is primary {:.1} s after one was stopped", seconds(begin));
    let fenced = scene.cluster.ceph("osd blocklist ls")?;
    ensure!(fenced.contains(address), "{address} is not fenced: {fenced}");
    goes_on(&one)?;
    two.signal(Signal::CONT)?;
    let said = two.ends_badly(PATIENCE)?;
    ensure!(said.contains("another client has broken the lock"), "{said}");
    goes_on(&one)?;
    load.ends_well()?;
    one.has(1, 8, &data)?;
    one.stop()
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}
