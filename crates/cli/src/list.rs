//! `weft list`.

use clap::Args;
use serde_json::{Value, json};
use weft_backend::bytes;
use weft_host::{
    Controller, ControllerState, Multipath, NamespaceInfo, Options as HostOptions, PathInfo,
    TransportId,
};
use weft_nvmf::keys::TlsRecords;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;

/// Options of `weft list`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// The namespaces of one controller.
struct ControllerNamespaces {
    address: TransportId,
    serial: String,
    model: String,
    firmware: String,
    /// Who has the records of TLS, if the connection has that.
    tls_records: Option<&'static str>,
    namespaces: Vec<std::sync::Arc<NamespaceInfo>>,
    /// The paths to each namespace, if the address has several.
    paths: Vec<Vec<PathInfo>>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut failed = false;
    for address in addresses(options)? {
        match look(options, &address) {
            Ok(one) => found.push(one),
            Err(Failure::Because(what)) => {
                output::print_error(&format!("weft list: {what}"));
                failed = true;
            }
            Err(other) => return Err(other),
        }
    }
    match options.output_format {
        Format::Human if failed && found.is_empty() => {}
        Format::Human => output::print(&human(&found))?,
        Format::Json => output::print_json(&as_json(&found))?,
    }
    if failed { Err(Failure::Told) } else { Ok(()) }
}

/// The given subsystem, or those of the discovery controller and of those that it refers to.
fn addresses(options: &Options) -> Result<Vec<TransportId>, Failure> {
    let connection = options.connection.options()?;
    if !connection.address.is_discovery() {
        return Ok(vec![connection.address]);
    }
    Ok(weft_host::discover_ports(&connection)?)
}

fn look(options: &Options, address: &TransportId) -> Result<ControllerNamespaces, Failure> {
    let connection = options.connection.options_for(address.clone())?;
    if connection.has_several_paths() {
        return look_by_all(&connection);
    }
    let controller: Controller = weft_host::connect(&connection)?;
    let found =
        ControllerNamespaces::of(address, &controller, controller.namespaces(), Vec::new())?;
    controller.disconnect()?;
    Ok(found)
}

/// The same with every path.
fn look_by_all(connection: &HostOptions) -> Result<ControllerNamespaces, Failure> {
    let all = Multipath::connect(connection)?;
    let namespaces = all.namespaces();
    let paths = namespaces.iter().map(|namespace| all.paths(namespace.nsid)).collect();
    let controllers = all.controllers();
    let live = controllers.iter().find(|one| one.state() == ControllerState::Live);
    let live = live.ok_or_else(|| Failure::because("all paths were lost meanwhile"))?;
    let found = ControllerNamespaces::of(&connection.address, live, namespaces, paths)?;
    drop(controllers);
    all.disconnect()?;
    Ok(found)
}

impl ControllerNamespaces {
    fn of(
        address: &TransportId,
        controller: &Controller,
        namespaces: Vec<std::sync::Arc<NamespaceInfo>>,
        paths: Vec<Vec<PathInfo>>,
    ) -> Result<Self, Failure> {
        let info = controller.info()?;
        Ok(Self {
            address: address.clone(),
            serial: info.identify.serial_number.to_string(),
            model: info.identify.model_number.to_string(),
            firmware: info.identify.firmware_revision.to_string(),
            tls_records: controller.ends().and_then(|ends| ends.tls_records).map(TlsRecords::name),
            namespaces,
            paths,
        })
    }

    fn paths(&self) -> impl Iterator<Item = (u32, &PathInfo)> {
        let each = self.namespaces.iter().zip(&self.paths);
        each.flat_map(|(namespace, paths)| {
            let nsid = namespace.nsid;
            paths.iter().map(move |path| (nsid, path))
        })
    }
}

/// The words for a path's state and, if that is known, its access.
fn words(path: &PathInfo) -> (&'static str, Option<String>) {
    let state = match path.state {
        ControllerState::Connecting => "connecting",
        ControllerState::Live => "live",
        ControllerState::Reconnecting => "lost",
        _ => "ended",
    };
    let access = path.access.map(|access| access.to_string().to_lowercase());
    (state, access)
}

/// A table of the paths, if there are any to tell.
fn paths_text(found: &[ControllerNamespaces]) -> String {
    let mut table = Table::new(&["path", ">nsid", "state", "access", ">cntlid"]);
    let mut has_some = false;
    for (nsid, path) in found.iter().flat_map(ControllerNamespaces::paths) {
        let (state, access) = words(path);
        let cntlid = path.controller_id.map(|id| id.to_string());
        let [access, cntlid] = [access, cntlid].map(|known| known.unwrap_or_else(|| "-".into()));
        table.row(vec![path.address.to_string(), nsid.to_string(), state.into(), access, cntlid]);
        has_some = true;
    }
    if has_some { format!("\n{}", table.text()) } else { String::new() }
}

fn path_json(path: &PathInfo) -> Value {
    let (state, access) = words(path);
    json!({
        "Address": path.address.to_string(),
        "State": state,
        "ANAState": access,
        "Controller": path.controller_id,
    })
}

fn url(address: &TransportId, nsid: u32) -> String {
    TransportId { nsid: Some(nsid), trsvcid: Some(address.port()), ..address.clone() }.to_string()
}

fn human(found: &[ControllerNamespaces]) -> String {
    let mut columns = vec!["address", "sn", "model", ">nsid", ">size", ">block", "firmware"];
    let has_tls = found.iter().any(|one| one.tls_records.is_some());
    if has_tls {
        columns.push("tls");
    }
    let mut table = Table::new(&columns);
    for one in found {
        for namespace in &one.namespaces {
            let mut row = vec![
                url(&one.address, namespace.nsid),
                one.serial.clone(),
                one.model.clone(),
                namespace.nsid.to_string(),
                bytes::human(namespace.bytes()),
                namespace.block_bytes.to_string(),
                one.firmware.clone(),
            ];
            if has_tls {
                row.push(one.tls_records.unwrap_or("-").to_owned());
            }
            table.row(row);
        }
    }
    table.text() + &paths_text(found)
}

/// As nvme-cli's list, with an address instead of a device node.
fn as_json(found: &[ControllerNamespaces]) -> Value {
    let mut devices = Vec::new();
    for one in found {
        for (at, namespace) in one.namespaces.iter().enumerate() {
            let paths = one.paths.get(at).into_iter().flatten().map(path_json);
            let uuid = namespace.identity.uuid.map(|uuid| uuid::Uuid::from_bytes(uuid).to_string());
            devices.push(json!({
                "Address": url(&one.address, namespace.nsid),
                "NameSpace": namespace.nsid,
                "SerialNumber": one.serial,
                "ModelNumber": one.model,
                "Firmware": one.firmware,
                "UUID": uuid,
                "UsedBytes": namespace.identify.utilization.get()
                    .saturating_mul(u64::from(namespace.block_bytes)),
                "MaximumLBA": namespace.blocks,
                "PhysicalSize": namespace.bytes(),
                "SectorSize": namespace.block_bytes,
                "TLSRecords": one.tls_records,
                "Paths": paths.collect::<Vec<Value>>(),
            }));
        }
    }
    json!({ "Devices": devices })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_path_is_null() {
        let path = PathInfo {
            address: "nvme-tcp://192.0.2.1/nqn.x".parse().expect("an address"),
            state: ControllerState::Connecting,
            controller_id: None,
            access: None,
        };
        let json = path_json(&path);
        assert_eq!(json["State"], "connecting");
        assert!(json["ANAState"].is_null() && json["Controller"].is_null(), "{json}");
    }
}
