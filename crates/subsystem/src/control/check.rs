//! The namespaces that a configuration would serve, without listening and without creating
//! or writing anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::net::UdpSocket;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::thread;

use weft_backend::{
    DeviceSpec, StorageId, files, missing_file, not_a_block_device, part_beside_whole, same_blocks,
};
use weft_transport::Transport;
use weft_transport::rdma::probe::ProbeServer;

use crate::config::{Config, Subsystem, identity};
use crate::control::nsids;
use crate::shared::error::TargetError;

/// A namespace as it would be served.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedNamespace {
    /// The subsystem's name.
    pub subsystem: String,
    /// Its number.
    pub nsid: u32,
    /// Whether the number is only its position in the list.
    pub by_position: bool,
    /// Its device.
    pub device: DeviceSpec,
    /// Its UUID; none: a new one at each start.
    pub uuid: Option<[u8; 16]>,
    /// Its size; none: only its cluster knows.
    pub bytes: Option<u64>,
    /// Whether its file is not there and would be created.
    pub is_created: bool,
}

/// The properties of a device that is not opened.
struct DeviceProperties {
    device: identity::Device,
    /// None: nothing but itself, or it is not there yet and has only its name.
    storage: Option<StorageId>,
    bytes: Option<u64>,
    is_created: bool,
}

/// The namespaces that a target would serve that starts with this configuration. Whether there must
/// be any is for its caller to say, as at a start.
///
/// # Errors
/// One sentence that names what is not available.
pub fn check(config: &Config) -> Result<Vec<CheckedNamespace>, TargetError> {
    config.check_consistent().map_err(|error| TargetError::new(error.to_string()))?;
    crate::shared::tls::check(config)?;
    check_machine(config)?;
    let mut checked = Vec::new();
    let mut storages = BTreeMap::new();
    for subsystem in &config.subsystems {
        let mut subsystem = subsystem.clone();
        config.policies(&subsystem).map_err(TargetError::new)?;
        config.psks(&subsystem).map_err(TargetError::new)?;
        let most = subsystem.most_namespaces(&config.limits);
        nsids::assign(&mut subsystem, &[], most)?;
        check_subsystem(&subsystem, config.is_restored, &mut checked, &mut storages)?;
    }
    check_parts(&storages)?;
    Ok(checked)
}

/// Whether the machine has the processors and the addresses.
fn check_machine(config: &Config) -> Result<(), TargetError> {
    for cpu in config.cpus.iter().chain(&config.express_cpus).copied() {
        let pin = || weft_reactor::system::pin_current_thread(cpu);
        let pinned = thread::scope(|scope| scope.spawn(pin).join());
        if let Ok(Err(error)) = pinned {
            let what =
                format!("there is no processor {cpu} for `cpus` or `express-cpus` ({error})");
            let here = weft_reactor::system::cpus_of_current_thread().unwrap_or_default();
            let here: Vec<String> = here.iter().map(ToString::to_string).collect();
            return Err(TargetError::new(format!("{what}; there are {}", here.join(","))));
        }
    }
    for port in &config.ports {
        let mut address = port.listen.address;
        address.set_port(0);
        if let Err(error) = UdpSocket::bind(address) {
            let what = format!("{}: no address of this machine ({error})", port.listen);
            return Err(TargetError::new(what));
        }
        if port.listen.transport == Transport::Rdma
            && let Err(error) = ProbeServer::listen(&config.rdma, address)
        {
            return Err(TargetError::new(format!("{}: {error}", port.listen)));
        }
    }
    Ok(())
}

/// What each storage is called, and its namespace.
type Storages = BTreeMap<StorageId, (PathBuf, String, u32)>;

/// No namespace stands on a part of what another one stands on.
fn check_parts(storages: &Storages) -> Result<(), TargetError> {
    // All files of a file system have the same wholes.
    let mut seen = BTreeSet::new();
    for (id, (part, nqn, nsid)) in storages {
        if let StorageId::File { device, .. } = id
            && !seen.insert(device)
        {
            continue;
        }
        let overlaps = |other: &&StorageId| *other < id && other.overlaps(id);
        let why = match id.wholes().iter().find_map(|whole| storages.get(whole)) {
            Some((whole, ..)) => part_beside_whole(part, whole),
            None => match storages.keys().find(overlaps).and_then(|other| storages.get(other)) {
                Some((other, ..)) => same_blocks(part, other),
                None => continue,
            },
        };
        return Err(TargetError::namespace(nqn, *nsid, &why));
    }
    Ok(())
}

fn check_subsystem(
    subsystem: &Subsystem,
    is_restored: bool,
    checked: &mut Vec<CheckedNamespace>,
    storages: &mut Storages,
) -> Result<(), TargetError> {
    let (mut examined, mut seen) = (Vec::new(), BTreeMap::new());
    for namespace in &subsystem.namespaces {
        let error = |what: &str| TargetError::namespace(&subsystem.nqn, namespace.nsid, &what);
        if is_restored {
            namespace.device.existing().map_err(|gone| error(&gone.to_string()))?;
        }
        let found = examine(&namespace.device).map_err(|what| error(&what))?;
        if let Some(storage) = &found.storage {
            if let Some(first) = seen.insert(storage.clone(), namespace.nsid) {
                let path = &found.device.identity;
                return Err(error(&format!("{path} is what namespace {first} stands on")));
            }
            let name = PathBuf::from(&found.device.identity);
            storages.insert(storage.clone(), (name, subsystem.nqn.clone(), namespace.nsid));
        }
        examined.push(found);
    }
    let devices: Vec<_> = examined.iter().map(|examined| examined.device.clone()).collect();
    let identities = identity::namespaces(subsystem, &devices, &vec![None; devices.len()]);
    for ((namespace, examined), identity) in
        subsystem.namespaces.iter().zip(examined).zip(identities)
    {
        let stays = namespace.uuid.is_some() || examined.device.survives_restart;
        checked.push(CheckedNamespace {
            subsystem: subsystem.nqn.clone(),
            nsid: namespace.nsid,
            by_position: namespace.by_position,
            device: namespace.device.clone(),
            uuid: stays.then_some(identity.uuid),
            bytes: examined.bytes,
            is_created: examined.is_created,
        });
    }
    Ok(())
}

fn examine(spec: &DeviceSpec) -> Result<DeviceProperties, String> {
    match spec {
        DeviceSpec::Memory { .. } | DeviceSpec::Null { .. } => {
            let factory = spec.build().map_err(|error| error.to_string())?;
            let (device, bytes) = (identity::Device::of(&*factory), factory.geometry().bytes());
            Ok(DeviceProperties { device, storage: None, bytes: Some(bytes), is_created: false })
        }
        DeviceSpec::Delay { inner, .. }
        | DeviceSpec::Fault { inner, .. }
        | DeviceSpec::Uncorrectable { inner, .. } => examine(inner),
        DeviceSpec::File { path, create_bytes, block_bytes, read_only, .. } => {
            let found = length(path, false, !read_only)?;
            let create_bytes = create_bytes.filter(|_| !read_only);
            let Some(bytes) = create_bytes.max(found) else {
                return Err(missing_file(path));
            };
            if bytes < block_bytes.unwrap_or(512).into() {
                return Err(format!("{} is shorter than a block", path.display()));
            }
            Ok(stored(spec, Some(bytes), found.is_none()))
        }
        // A namespace without the block layer, which tells its size when it is opened.
        DeviceSpec::Block { path, .. }
            if path.metadata().is_ok_and(|found| found.file_type().is_char_device()) =>
        {
            Ok(stored(spec, None, false))
        }
        DeviceSpec::Block { path, read_only, .. } => match length(path, true, !read_only)? {
            Some(bytes) => Ok(stored(spec, Some(bytes), false)),
            None => Err(format!("{} does not exist", path.display())),
        },
        DeviceSpec::Rbd(_) => Ok(stored(spec, None, false)),
    }
}

fn stored(spec: &DeviceSpec, bytes: Option<u64>, is_created: bool) -> DeviceProperties {
    let identity = nsids::canonical_path(spec).unwrap_or_default();
    let device = identity::Device { identity, survives_restart: true };
    let storage = spec.path().and_then(StorageId::of);
    let storage = storage.or_else(|| Some(StorageId::Named(device.identity.clone())));
    DeviceProperties { device, storage, bytes, is_created }
}

/// The length of a file or block device; none: it does not exist and could be created.
fn length(path: &Path, is_block: bool, is_written: bool) -> Result<Option<u64>, String> {
    let cannot = |doing: &str, error| format!("cannot {doing} {}: {error}", path.display());
    let kind = match path.metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let can = files::can_create_in(parent.unwrap_or(Path::new(".")));
            return can.map(|()| None).map_err(|error| cannot("create", error));
        }
        Err(error) => return Err(cannot("stat", error)),
    };
    match is_block {
        true if !kind.is_block_device() => {
            return Err(not_a_block_device(path));
        }
        false if !kind.is_file() => {
            return Err(format!("{} is not a regular file", path.display()));
        }
        _ => {}
    }
    let opened = File::options().read(true).write(is_written).open(path);
    let end = opened.and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.map(Some).map_err(|error| cannot("open", error))
}
