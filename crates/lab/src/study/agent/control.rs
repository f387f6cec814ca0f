//! Which connection carries control to this agent? Its link is not changed.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use crate::study::site::end::End;

/// The addresses of both ends of that connection, by what ssh and Slurm tell their processes; none
/// if it does not leave the machine, or is not known.
pub(super) fn addresses(variable: impl Fn(&str) -> Option<String>) -> Vec<IpAddr> {
    if let Some(ends) = variable("SSH_CONNECTION") {
        // Address and port of the client, and those of the server.
        return ends.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    }
    let launcher = variable("SLURM_LAUNCH_NODE_IPADDR").and_then(|text| text.parse().ok());
    let launcher: Option<IpAddr> = launcher;
    let own = launcher.and_then(towards);
    launcher.into_iter().chain(own).collect()
}

/// The address of this machine from which another one is reached.
fn towards(other: IpAddr) -> Option<IpAddr> {
    let any = if other.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // Nothing is sent: the kernel only chooses the way.
    socket.connect((other, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The interfaces that have these addresses, and those below them (of a bond, bridge or VLAN).
pub(super) fn interfaces(sys: &Path, ends: &[End], control: &[IpAddr]) -> BTreeSet<String> {
    let own = ends.iter().filter(|end| control.contains(&end.address));
    let mut next: Vec<String> = own.map(|end| end.interface.clone()).collect();
    let mut all = BTreeSet::new();
    while let Some(interface) = next.pop() {
        let folder = sys.join("class/net").join(&interface);
        if !all.insert(interface) {
            continue;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        next.extend(names.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::site::end;

    #[test]
    fn ssh_and_slurm_tell_which_connection_carries_control() {
        let of = |name: &'static str, value: &'static str| {
            addresses(move |asked| (asked == name).then(|| value.to_owned()))
        };
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let both = [address("192.0.2.9"), address("192.0.2.1")];
        assert_eq!(of("SSH_CONNECTION", "192.0.2.9 52100 192.0.2.1 22"), both);
        let lo = address("127.0.0.1");
        assert_eq!(of("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"), [lo, lo]);
        assert!(of("HOME", "/root").is_empty());
    }

    #[test]
    fn what_is_below_an_interface_of_control_is_one_as_well() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["lo/lower_bond0", "bond0/lower_eth0", "bond0/lower_eth1", "eth2"] {
            fs::create_dir_all(folder.path().join("class/net").join(path)).expect("a folder");
        }
        let control = ["127.0.0.1".parse().expect("an address")];
        let found = interfaces(folder.path(), &end::ends(), &control);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["bond0", "eth0", "eth1", "lo"]);
        assert!(interfaces(folder.path(), &end::ends(), &[]).is_empty());
    }
}
