//! Linux' host in a guest, on images that weft serves outside.

use super::served::Scene;
use crate::kernels::bench::Bench;
use crate::kernels::{self};
use crate::process::within;
use anyhow::{Result, ensure};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// The NQN is that of all guests.
fn namespaces(scene: &Scene) -> String {
    let images = ["linux", "zeroes"].map(|image| scene.namespace(image));
    images.concat()
}

pub(super) fn host(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 64M linux")?;
    scene.cluster.rbd("create --size 16M zeroes")?;
    let conf = scene.cluster.configuration();
    let made = format!(
        "host-namespaces = {{ capacity = \"32MiB\", rbd = \"rbd/made,user=weft,conf={conf}\" }}\n"
    );
    let served = scene.serve_toml("linux", "", &(made + &namespaces(scene)))?;
    let mut guest = kernels::kernel_as_host(&scene.root, &scene.weft, "ceph", "ceph.sh")?;
    guest.port = served.port;
    steps(scene, &mut guest).map_err(|error| guest.explain(error).context(served.log()))?;
    served.stop()
}

fn steps(scene: &Scene, guest: &mut Bench) -> Result<()> {
    guest.guest("file_system")?;
    guest.guest("before_resize")?;
    scene.cluster.rbd("resize linux --size 96M")?;
    guest.guest(&format!("resized {}", 96 * MIB))?;
    let sizes = |what: &str, expected: &[usize]| {
        let found = scene.cluster.objects("zeroes")?;
        ensure!(found == expected, "{what}: the objects have {found:?} bytes");
        Ok(())
    };
    guest.guest("fill")?;
    sizes("filled", &[4 * MIB; 4])?;
    guest.guest("write_zeroes")?;
    sizes("zeroes are written", &[4 * MIB; 4])?;
    guest.guest("discard")?;
    sizes("an object is discarded", &[4 * MIB; 3])?;
    guest.guest("made")?;
    let made = || {
        let listed = scene.cluster.rbd("ls")?;
        let made = listed.lines().filter(|image| image.starts_with("made-"));
        Ok::<_, anyhow::Error>(made.map(str::to_owned).collect::<Vec<_>>())
    };
    let images = made()?;
    ensure!(images.len() == 1, "the host has made {images:?}");
    let info = scene.cluster.rbd_json(&format!("info {}", images[0]))?;
    ensure!(info["size"] == 16 * MIB && info["format"] == 2, "what was made is {info}");
    guest.guest("deleted")?;
    within(Duration::from_secs(20), "its image was removed", || {
        let images = made()?;
        ensure!(images.is_empty(), "there is {images:?}");
        Ok(())
    })
}
