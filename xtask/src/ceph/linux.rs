//! Linux' host in a guest, on images that weft serves outside.

use super::served::Scene;
use crate::peers::{self, bench::Bench};
use anyhow::{Result, ensure};

const MIB: usize = 1 << 20;

/// The NQN is that of all guests.
fn namespaces(scene: &Scene) -> String {
    let images = ["linux", "zeroes"].map(|image| scene.namespace(image));
    images.concat()
}

pub(super) fn host(scene: &Scene) -> Result<()> {
    scene.cluster.rbd("create --size 64M linux")?;
    scene.cluster.rbd("create --size 16M zeroes")?;
    let served = scene.serve_toml("linux", "", &namespaces(scene))?;
    let mut guest = peers::kernel_as_host(&scene.root, &scene.weft, "ceph", "ceph.sh")?;
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
    sizes("an object is discarded", &[4 * MIB; 3])
}
