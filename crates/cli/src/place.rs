//! What can be accessed: a remote namespace, or a device of this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use weft_backend::{DeviceFactory, DeviceSpec};
use weft_host::TransportId;

/// The prefixes of device specifications.
const DEVICE_KINDS: [&str; 7] = ["memory:", "null:", "file:", "block:", "rbd:", "delay:", "fault:"];

/// The location of a namespace or device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Location {
    /// Remote, at this address.
    Remote(Box<TransportId>),
    /// On this machine.
    Local(DeviceSpec),
}

impl Location {
    /// Remote, at this address.
    pub(crate) fn remote(id: TransportId) -> Self {
        Self::Remote(Box::new(id))
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if DEVICE_KINDS.iter().any(|kind| text.starts_with(kind)) {
            return text.parse().map(Self::Local).map_err(|error| format!("{error}"));
        }
        // `disk.img` is a path if the file exists; `./disk.img` is one in any case.
        let (path, _) = weft_backend::split_path(text);
        if path.is_file() || ["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
            return local_path(text, &path).map(Self::Local);
        }
        if let Some(kind) = ["memory", "null"].iter().find(|kind| text == **kind) {
            return Err(format!("{text:?} needs a size, like {kind}:1GiB"));
        }
        text.parse().map(Self::remote).map_err(|error| {
            if text.contains("://") || text.to_ascii_lowercase().contains("trtype") {
                return format!("{text:?} is not an address: {error}");
            }
            if text.parse::<SocketAddr>().is_ok() {
                return format!("{text:?} is not an address: write nvme-tcp://{text}/NQN");
            }
            format!(
                "{text:?} is neither an address nor a local device or file (examples: \
                 nvme-tcp://HOST:4420/NQN?nsid=1, /dev/sdb, file:PATH, memory:1GiB)"
            )
        })
    }
}

/// A path with options is a block device if that exists there, else a file.
fn local_path(text: &str, path: &Path) -> Result<DeviceSpec, String> {
    use std::os::unix::fs::FileTypeExt;
    if path.extension().is_some_and(|extension| extension == "fio") {
        return Err(format!("{text} is a job file, not a device (use file:{text} if it is one)"));
    }
    let block = std::fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_block_device() || kind.is_char_device()
    });
    let parsed = if block { DeviceSpec::block(text) } else { DeviceSpec::file(text) };
    parsed.map_err(|error| error.to_string())
}

/// Opens a local device for requests that begin and end at multiples of so many bytes.
pub(crate) fn build(spec: &DeviceSpec, unit: u32) -> Result<Arc<dyn DeviceFactory>, String> {
    spec.build_for(unit).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_devices_are_recognized() {
        let local = |text: &str| match text.parse() {
            Ok(Location::Local(spec)) => spec.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(local("memory:1GiB"), "memory:1GiB");
        assert_eq!(local("null:1TiB,block=512"), "null:1TiB,block=512");
        // Tests run in the folder of the crate's manifest.
        assert_eq!(local("Cargo.toml,block=512"), "file:Cargo.toml,block=512");
        assert!("no-such.img".parse::<Location>().is_err_and(|error| error.contains("neither")));
        assert_eq!(local("/var/lib/disk.img"), "file:/var/lib/disk.img");
        assert_eq!(local("./disk.img,direct=off"), "file:./disk.img,direct=off");
        assert_eq!(local("block:/dev/sdb"), "block:/dev/sdb");
        assert_eq!(local("rbd:disk,user=weft"), "rbd:rbd/disk,user=weft");
        assert_eq!(local("delay:read=1ms:memory:1MiB"), "delay:read=1ms,write=0ns:memory:1MiB");
    }

    #[test]
    fn addresses_have_two_forms() {
        for text in [
            "nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.nvmexpress:uuid:x?nsid=2",
            "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:4420 \
             subnqn:nqn.2014-08.org.nvmexpress:uuid:x nsid:2",
        ] {
            let Ok(Location::Remote(id)) = text.parse() else { panic!("{text}") };
            assert_eq!((id.traddr.as_str(), id.port(), id.nsid), ("127.0.0.1", 4420, Some(2)));
        }
    }

    #[test]
    fn invalid_locations_are_refused_with_examples() {
        for text in ["", "storage", "http://x/", "memory:1x", "floppy:1"] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
        for text in ["nvme-tcp://host:0/x", "trtype:TCP traddr:host nsid:0"] {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.contains("is not an address: the "), "{error}");
            assert!(!error.contains("/dev/sdb"), "the error names only addresses: {error}");
        }
        let error = "elsewhere".parse::<Location>().expect_err("no place");
        assert!(error.contains("nvme-tcp://HOST") && error.contains("memory:1GiB"), "{error}");
        assert!("memory".parse::<Location>().is_err_and(|error| error.contains("needs a size")));
    }
}
