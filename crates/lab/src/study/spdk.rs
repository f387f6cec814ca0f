//! SPDK's target: an `nvmf_tgt` that runs already, driven through its JSON-RPC socket.
//!
//! What is made there is in the [journal of knobs](super::knob) before it is made, and deleted at
//! the end. A transport cannot be deleted: one that was created stays until `nvmf_tgt` ends.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceSpec};
use weft_host::{Transport, TransportId};
use weft_rpc::{Address, CallError, Client};

use super::{
    given::protocol_name,
    knob::change::Change,
    launch::{StartedTarget, TargetSpec},
    linux::{Changes, Linux},
};
use crate::environment;

/// Where its socket is, unless it was started with `-r`.
pub const SOCKET: &str = "/var/tmp/spdk.sock";

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(20);

/// SPDK's error for an object that is not there: -ENODEV.
const NO_DEVICE: i64 = -19;

/// A subsystem or several in SPDK's target. They end with this value.
#[derive(Debug)]
pub(super) struct SpdkTarget {
    changes: Changes,
    addresses: Vec<TransportId>,
    socket: PathBuf,
}

/// Why there is none at this socket.
pub(super) fn lacks(socket: &Path) -> Option<String> {
    let fault = open(socket).err()?;
    Some(format!(
        "SPDK's target does not answer at {} ({fault}): start nvmf_tgt first",
        socket.display()
    ))
}

fn open(socket: &Path) -> io::Result<Client> {
    Client::connect(&Address::Unix(socket.to_owned()), None, ANSWER)
}

fn call(client: &mut Client, method: &str, params: Value) -> Result<Value, String> {
    let answer = client.call_named(method, params);
    answer.map_err(|error| format!("SPDK's target: {method}: {error}"))
}

/// Deletes an object; one that is gone already, with its target or without, counts as deleted.
pub(super) fn delete(socket: &Path, method: &str, params: &Value) -> io::Result<()> {
    let mut client = match open(socket) {
        // It removes its socket at its end, unless it was killed.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            return Ok(());
        }
        client => client?,
    };
    match client.call_named(method, params.clone()) {
        Err(CallError::Error(error))
            if error.code.0 == NO_DEVICE || error.message.contains("not found") =>
        {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error.to_string())),
        Ok(_) => Ok(()),
    }
}

impl SpdkTarget {
    pub(super) fn start(
        linux: &Arc<Linux>,
        socket: &Path,
        spec: &TargetSpec,
        listen: Option<IpAddr>,
    ) -> Result<Self, String> {
        let at = match spec.transport {
            Transport::Rdma => {
                let address = listen.or_else(environment::rdma_address);
                address.ok_or("no RDMA device has an IP address")?
            }
            _ => listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        };
        let free = TcpListener::bind((at, 0)).and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| format!("cannot listen at {at}: {error}"))?.port();
        let mut client = open(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        let trtype = protocol_name(spec.transport).to_ascii_uppercase();
        create_transport(&mut client, &trtype)?;
        let adrfam = if at.is_ipv4() { "ipv4" } else { "ipv6" };
        let address = json!({
            "trtype": trtype, "traddr": at.to_string(), "adrfam": adrfam,
            "trsvcid": port.to_string(),
        });
        let mut made = Making { client, changes: Changes::new(linux), socket };
        let mut addresses = Vec::new();
        for _ in 0..spec.subsystems.max(1) {
            let nqn = made.subsystem(&spec.devices)?;
            let params = json!({ "nqn": nqn, "listen_address": address });
            call(&mut made.client, "nvmf_subsystem_add_listener", params)?;
            let id = TransportId::tcp(&at.to_string(), Some(port));
            let id = id.map_err(|error| error.to_string())?;
            let subnqn = Some(nqn.parse().map_err(|error| format!("{error}"))?);
            addresses.push(TransportId { transport: spec.transport, subnqn, ..id });
        }
        let Making { changes, .. } = made;
        Ok(Self { changes, addresses, socket: socket.to_owned() })
    }
}

/// Creates a transport unless the target has it.
fn create_transport(client: &mut Client, trtype: &str) -> Result<(), String> {
    let known = call(client, "nvmf_get_transports", Value::Null)?;
    let mut known = known.as_array().into_iter().flatten();
    if known.any(|known| known["trtype"] == trtype) {
        return Ok(());
    }
    call(client, "nvmf_create_transport", json!({ "trtype": trtype })).map(drop)
}

/// What a target is made with.
struct Making<'a> {
    client: Client,
    changes: Changes,
    socket: &'a Path,
}

impl Making<'_> {
    /// Creates an object after it was noted how it is deleted.
    fn create(
        &mut self,
        (method, params): (&str, Value),
        (delete, of): (&str, Value),
    ) -> Result<(), String> {
        let socket = self.socket.to_owned();
        self.changes.note(Change::Spdk { socket, method: delete.to_owned(), params: of })?;
        call(&mut self.client, method, params).map(drop)
    }

    /// A subsystem with these devices as namespaces 1, 2 and so on: its name.
    fn subsystem(&mut self, devices: &[DeviceSpec]) -> Result<String, String> {
        let names = devices.iter().map(|device| self.device(device));
        let names = names.collect::<Result<Vec<String>, String>>()?;
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{}", Uuid::new_v4());
        self.create(
            ("nvmf_create_subsystem", json!({ "nqn": nqn, "allow_any_host": true })),
            ("nvmf_delete_subsystem", json!({ "nqn": nqn })),
        )?;
        for (nsid, name) in (1..).zip(names) {
            let namespace = json!({ "bdev_name": name, "nsid": nsid });
            let params = json!({ "nqn": nqn, "namespace": namespace });
            call(&mut self.client, "nvmf_subsystem_add_ns", params)?;
        }
        Ok(nqn)
    }

    fn device(&mut self, device: &DeviceSpec) -> Result<String, String> {
        let name = format!("weft-{}", Uuid::new_v4().simple());
        let blocks = |bytes: u64, block_bytes: u32| {
            json!({
                "name": name, "num_blocks": bytes / u64::from(block_bytes),
                "block_size": block_bytes,
            })
        };
        let (kind, params) = match device {
            DeviceSpec::Memory { bytes, block_bytes } => ("malloc", blocks(*bytes, *block_bytes)),
            DeviceSpec::Null { bytes, block_bytes } => ("null", blocks(*bytes, *block_bytes)),
            DeviceSpec::File { path, block_bytes, .. } => {
                let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
                let file = json!({ "name": name, "filename": path, "block_size": block_bytes });
                ("aio", file)
            }
            DeviceSpec::Block { path, .. } => ("aio", json!({ "name": name, "filename": path })),
            other => {
                return Err(format!(
                    "SPDK's target serves memory, null, files and block devices, not {other}"
                ));
            }
        };
        self.create(
            (&format!("bdev_{kind}_create"), params),
            (&format!("bdev_{kind}_delete"), json!({ "name": name })),
        )?;
        Ok(name)
    }
}

impl StartedTarget for SpdkTarget {
    fn address(&self) -> &TransportId {
        // There is at least one subsystem.
        &self.addresses[0]
    }

    fn addresses(&self) -> Vec<TransportId> {
        self.addresses.clone()
    }

    fn has_control(&self) -> bool {
        false
    }

    fn control(&self) -> Result<Client, String> {
        Err("SPDK's target has no statistics of weft".to_owned())
    }

    fn ended(&mut self) -> Option<String> {
        lacks(&self.socket)
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        self.changes.undo()
    }
}

#[cfg(test)]
mod tests;
