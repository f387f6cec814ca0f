//! The ends of links on this machine: its addresses, and the interfaces that have them.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use serde::{Deserialize, Serialize};

/// An address of a machine, and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// How many of its bits are those of its network.
    pub prefix: u8,
    /// The interface.
    pub interface: String,
    /// Its kernel driver; empty if it is a virtual one.
    pub driver: String,
    /// Largest packet.
    pub mtu: u64,
    /// Its speed, if it has one.
    pub speed_mbit_per_s: Option<u64>,
    /// Whether it has a link.
    pub carrier: bool,
    /// The node of memory and processors to which it is attached, if there are several.
    pub numa_node: Option<u32>,
    /// How many queues it receives by, and sends by.
    pub queues: (usize, usize),
    /// Its RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaEnd>,
}

/// The RDMA device of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaEnd {
    /// The device.
    pub device: String,
    /// Its port.
    pub port: u32,
    /// Its link layer: `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// The GID of the address, its index, and its kind (`RoCE v2`).
    pub gid: String,
    /// Its index in the port's table.
    pub gid_index: u32,
    /// Its kind: `RoCE v2`, for example.
    pub gid_kind: String,
}

impl End {
    /// Whether an address is in the same network.
    #[must_use]
    pub fn reaches(&self, other: IpAddr) -> bool {
        network(self.address, self.prefix) == network(other, self.prefix)
    }
}

/// An address without the bits of its host; the family of addresses tells networks apart, too.
fn network(address: IpAddr, prefix: u8) -> (bool, u128) {
    let (bits, all) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let host = all - u32::from(prefix).min(all);
    (address.is_ipv4(), bits.checked_shr(host).unwrap_or(0))
}

/// Those of this machine.
#[must_use]
pub fn ends() -> Vec<End> {
    let all = getifaddrs().into_iter().flatten();
    let mut ends: Vec<End> = Vec::new();
    for found in all {
        let (Some(address), Some(mask)) = (found.address, found.netmask) else { continue };
        let v4 = |of: &nix::sys::socket::SockaddrStorage| of.as_sockaddr_in().map(|a| a.ip());
        let v6 = |of: &nix::sys::socket::SockaddrStorage| of.as_sockaddr_in6().map(|a| a.ip());
        let (address, ones) = match (v4(&address), v4(&mask), v6(&address), v6(&mask)) {
            (Some(address), Some(mask), ..) => (IpAddr::V4(address), mask.to_bits().count_ones()),
            // One that needs its interface to be named is no address for others.
            (.., Some(address), Some(mask)) if !address.is_unicast_link_local() => {
                (IpAddr::V6(address), mask.to_bits().count_ones())
            }
            _ => continue,
        };
        let prefix = u8::try_from(ones).unwrap_or(u8::MAX);
        ends.push(end(Path::new("/sys"), address, prefix, &found.interface_name));
    }
    ends
}

/// What the kernel says about the interface of an address.
fn end(sys: &Path, address: IpAddr, prefix: u8, interface: &str) -> End {
    let folder = sys.join("class/net").join(interface);
    let number = |name: &str| -> Option<i64> { line(&folder.join(name))?.parse().ok() };
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let queues = |kind: &str| {
        let names = fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
        names.filter(|name| name.file_name().to_string_lossy().starts_with(kind)).count()
    };
    End {
        address,
        prefix,
        interface: interface.to_owned(),
        driver: driver.unwrap_or_default().to_owned(),
        mtu: number("mtu").and_then(|mtu| u64::try_from(mtu).ok()).unwrap_or(0),
        // -1 where there is none.
        speed_mbit_per_s: number("speed").and_then(|speed| u64::try_from(speed).ok()),
        carrier: number("carrier") == Some(1),
        numa_node: number("device/numa_node").and_then(|node| u32::try_from(node).ok()),
        queues: (queues("rx-"), queues("tx-")),
        rdma: rdma(&sys.join("class/infiniband"), address, interface),
    }
}

fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The entries of a folder by their names, in order.
fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = found.map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name.parse::<u32>().unwrap_or(u32::MAX), name)
    });
    paths
}

/// The RDMA device of an address: a GID has it in its own form (RoCE), or belongs to its interface
/// (InfiniBand). Of several the one of RoCE version 2 is taken, which routers forward.
fn rdma(devices: &Path, address: IpAddr, interface: &str) -> Option<RdmaEnd> {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let mut found: Vec<RdmaEnd> = Vec::new();
    for device in entries(devices) {
        for port in entries(&device.join("ports")) {
            let layer = line(&port.join("link_layer")).unwrap_or_default();
            for gid in entries(&port.join("gids")) {
                let (Some(text), Some(index)) = (line(&gid), name(&gid)) else { continue };
                let of = |kind: &str| line(&port.join("gid_attrs").join(kind).join(&index));
                let is_its = text.parse::<Ipv6Addr>().is_ok_and(|gid| gid == mapped)
                    || layer == "InfiniBand" && of("ndevs").as_deref() == Some(interface);
                if let (true, Some(device), Some(port)) = (is_its, name(&device), name(&port)) {
                    found.push(RdmaEnd {
                        device,
                        port: port.parse().unwrap_or(0),
                        link_layer: layer.clone(),
                        gid: text,
                        gid_index: index.parse().unwrap_or(0),
                        gid_kind: of("types").unwrap_or_default(),
                    });
                }
            }
        }
    }
    found.sort_by_key(|end| end.gid_kind != "RoCE v2");
    found.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file of a made-up /sys.
    fn put(sys: &Path, path: &str, text: &str) {
        let path = sys.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    #[test]
    fn the_loopback_interface_is_an_end() {
        let ends = ends();
        let lo = ends.iter().find(|end| end.interface == "lo").expect("lo");
        assert_eq!((lo.address.to_string().as_str(), lo.prefix), ("127.0.0.1", 8));
        assert!(lo.mtu >= 1500 && lo.speed_mbit_per_s.is_none());
    }

    #[test]
    fn addresses_of_one_network_reach_one_another() {
        let of = |text: &str, prefix| {
            let sys = Path::new("/nowhere");
            end(sys, text.parse().expect(text), prefix, "eth0")
        };
        let reaches = |one: &End, other: &str| one.reaches(other.parse().expect(other));
        let ours = of("10.0.1.1", 24);
        assert!(reaches(&ours, "10.0.1.255") && !reaches(&ours, "10.0.2.1"));
        assert!(!reaches(&ours, "::1"));
        let all = of("10.0.1.1", 0);
        assert!(reaches(&all, "192.0.2.1") && !reaches(&all, "::1"));
        let six = of("2001:db8:0:1::1", 64);
        assert!(reaches(&six, "2001:db8:0:1::2") && !reaches(&six, "2001:db8:0:2::2"));
        assert!(
            reaches(&of("10.0.1.1", 32), "10.0.1.1") && !reaches(&of("10.0.1.1", 32), "10.0.1.2")
        );
    }

    #[test]
    fn an_adapter_is_described_with_the_gid_of_its_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let sys = folder.path();
        for (path, text) in [
            ("class/net/roce0/mtu", "9000"),
            ("class/net/roce0/speed", "100000"),
            ("class/net/roce0/carrier", "1"),
            ("class/net/roce0/device/numa_node", "1"),
            ("class/net/roce0/queues/rx-0/rps_cpus", "0"),
            ("class/net/roce0/queues/rx-1/rps_cpus", "0"),
            ("class/net/roce0/queues/tx-0/xps_cpus", "0"),
            ("class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet"),
            ("class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456"),
            ("class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0201"),
            ("class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "IB/RoCE v1"),
            ("class/infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0201"),
            ("class/infiniband/mlx5_0/ports/1/gid_attrs/types/3", "RoCE v2"),
        ] {
            put(sys, path, text);
        }
        let found = end(sys, "10.0.2.1".parse().expect("an address"), 24, "roce0");
        assert_eq!((found.mtu, found.speed_mbit_per_s, found.carrier), (9000, Some(100_000), true));
        assert_eq!((found.numa_node, found.queues), (Some(1), (2, 1)));
        let rdma = found.rdma.expect("a device");
        assert_eq!((rdma.device.as_str(), rdma.port, rdma.gid_index), ("mlx5_0", 1, 3));
        assert_eq!(rdma.gid_kind, "RoCE v2");
        let other = end(sys, "10.0.3.1".parse().expect("an address"), 24, "eth0");
        assert_eq!((other.rdma, other.mtu, other.carrier), (None, 0, false));
    }

    #[test]
    fn over_infiniband_the_gid_is_that_of_the_interface() {
        let folder = tempfile::tempdir().expect("a folder");
        let sys = folder.path();
        for (path, text) in [
            ("class/infiniband/mlx4_0/ports/2/link_layer", "InfiniBand"),
            ("class/infiniband/mlx4_0/ports/2/gids/0", "fe80:0000:0000:0000:0002:c903:00a0:0001"),
            ("class/infiniband/mlx4_0/ports/2/gid_attrs/ndevs/0", "ib0"),
            ("class/infiniband/mlx4_0/ports/2/gid_attrs/types/0", "IB/RoCE v1"),
        ] {
            put(sys, path, text);
        }
        let of = |interface| end(sys, "10.0.4.1".parse().expect("an address"), 24, interface).rdma;
        assert_eq!(of("ib0").map(|end| (end.device, end.port)), Some(("mlx4_0".to_owned(), 2)));
        assert_eq!(of("ib1"), None);
    }
}
