//! `/dev/nvme-fabrics`, and the controllers that the kernel has by it.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

use super::sysfs::{attribute, names};

const FABRICS: &str = "/dev/nvme-fabrics";
pub(super) const CONTROLLERS: &str = "/sys/class/nvme";

/// Connects: the number of the controller.
pub(super) fn write(line: &str) -> io::Result<u32> {
    let mut fabrics = OpenOptions::new().read(true).write(true).open(FABRICS)?;
    // One write is one connection.
    let written = fabrics.write(line.as_bytes())?;
    if written != line.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut said = [0; 256];
    let length = fabrics.read(&mut said)?;
    let said = String::from_utf8_lossy(said.get(..length).unwrap_or_default()).into_owned();
    instance(&said).ok_or_else(|| io::Error::other(format!("it answered {said:?}")))
}

/// The number of a controller in `instance=0,cntlid=1`.
fn instance(said: &str) -> Option<u32> {
    let mut words = said.trim().split(',');
    words.find_map(|word| word.trim().strip_prefix("instance=")?.parse().ok())
}

/// The names of the controllers that are connected to a subsystem.
pub(super) fn controllers(nqn: &str) -> Vec<String> {
    let root = Path::new(CONTROLLERS);
    let mut all = names(root);
    all.retain(|name| attribute(&root.join(name).join("subsysnqn")) == nqn);
    all
}

/// Ends the connections of a host to a subsystem.
pub(in crate::study) fn disconnect(nqn: &str, hostnqn: &str) -> io::Result<()> {
    let root = Path::new(CONTROLLERS);
    for name in controllers(nqn) {
        let theirs = attribute(&root.join(&name).join("hostnqn"));
        if theirs == hostnqn || theirs.is_empty() {
            std::fs::write(root.join(name).join("delete_controller"), "1")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_the_controller() {
        assert_eq!(instance("instance=7,cntlid=1\n"), Some(7));
        assert_eq!(instance("cntlid=1,instance=0\n"), Some(0));
        assert_eq!(instance(""), None);
    }
}
