//! SPDK's target: an `nvmf_tgt`, driven through its JSON-RPC socket. One that does not run is
//! started where the site file says what it is. `perf` has SPDK's host.
//!
//! What is made there is in the [journal of knobs](super::knob) before it is made, and deleted at
//! the end. A transport cannot be deleted: one that was created stays until `nvmf_tgt` ends.

pub(super) mod perf;
pub(super) mod process;

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::{BLOCK_BYTES_DEFAULT, DeviceSpec};
use weft_reactor::monotonic_time;
use weft_rpc::Client;

use self::process::{LOOK, began, call, open};
use super::given::protocol_name;
use super::knob::change::Change;
use super::launch::TargetSpec;
use super::linux::{Changes, ForeignTarget, Linux, Port};
use super::site::SpdkTools;

/// Where its socket is, unless it was started with `-r`.
const SOCKET: &str = "/var/tmp/spdk.sock";

/// How long it may take to start: it sets up its memory first.
const START: Duration = Duration::from_secs(60);

/// The socket of the target.
fn socket(tools: &SpdkTools) -> &Path {
    Path::new(if tools.socket.is_empty() { SOCKET } else { &tools.socket })
}

/// Why there is none, and none can be started.
pub(super) fn lacks(tools: &SpdkTools) -> Option<String> {
    let why = silent(socket(tools))?;
    match tools.nvmf_tgt.as_str() {
        "" => Some(format!("{why}: start nvmf_tgt first, or name its path in the site file")),
        path if Path::new(path).is_file() => None,
        path => Some(format!("SPDK's target is not at {path}, which the site file names")),
    }
}

/// Why a target does not answer.
fn silent(socket: &Path) -> Option<String> {
    let fault = open(socket).err()?;
    Some(format!("SPDK's target does not answer at {} ({fault})", socket.display()))
}

/// An `nvmf_tgt` that was started, which the journal ends.
fn start_process(changes: &mut Changes, tools: &SpdkTools) -> Result<(), String> {
    let fault = |what: &str| format!("{} {what}", tools.nvmf_tgt);
    let mut command = Command::new(&tools.nvmf_tgt);
    command.arg("-r").arg(socket(tools)).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child =
        command.spawn().map_err(|error| fault(&format!("cannot be started: {error}")))?;
    let id = child.id();
    let noted = began(id).ok_or_else(|| fault("has ended at once"));
    if let Err(why) = noted.and_then(|began| changes.note(Change::Process { id, began })) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(why);
    }
    // It is waited for whoever ends it.
    let waiting = thread::Builder::new().name("weft-spdk".to_owned());
    let waited = waiting.spawn(move || child.wait());
    waited.map_err(|error| format!("cannot start a thread: {error}"))?;
    let end = monotonic_time() + START;
    while let Some(why) = silent(socket(tools)) {
        if began(id).is_none() {
            return Err(fault("has ended while it started: its log says why"));
        }
        if monotonic_time() > end {
            return Err(fault(&format!("was started, and after {} s {why}", START.as_secs())));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Makes a subsystem or several in SPDK's target.
pub(super) fn start(
    linux: &Arc<Linux>,
    tools: &SpdkTools,
    spec: &TargetSpec,
    listen: Option<IpAddr>,
) -> Result<ForeignTarget, String> {
    let port = Port::free(spec, listen)?;
    let (socket, mut changes) = (socket(tools), Changes::new(linux));
    if !tools.nvmf_tgt.is_empty() && silent(socket).is_some() {
        start_process(&mut changes, tools)?;
    }
    let mut client = open(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    let trtype = protocol_name(spec.transport).to_ascii_uppercase();
    create_transport(&mut client, &trtype)?;
    let address = json!({
        "trtype": trtype, "traddr": port.at.to_string(), "adrfam": port.family(),
        "trsvcid": port.service.to_string(),
    });
    let mut made = Making { client, changes, socket };
    let mut addresses = Vec::new();
    for _ in 0..spec.subsystems.max(1) {
        let nqn = made.subsystem(&spec.devices)?;
        let params = json!({ "nqn": nqn, "listen_address": address });
        call(&mut made.client, "nvmf_subsystem_add_listener", params)?;
        addresses.push(port.address(&nqn)?);
    }
    let Making { changes, .. } = made;
    let socket = socket.to_owned();
    Ok(ForeignTarget {
        whose: "SPDK's",
        changes,
        addresses,
        ended: Box::new(move || silent(&socket)),
    })
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
        method: &str,
        params: Value,
        delete: &str,
        of: Value,
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
            "nvmf_create_subsystem",
            json!({ "nqn": nqn, "allow_any_host": true }),
            "nvmf_delete_subsystem",
            json!({ "nqn": nqn }),
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
            &format!("bdev_{kind}_create"),
            params,
            &format!("bdev_{kind}_delete"),
            json!({ "name": name }),
        )?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests;
