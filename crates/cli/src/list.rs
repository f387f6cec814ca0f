//! `weft list`.

use clap::Args;
use serde_json::{Value, json};
use weft_backend::bytes;
use weft_host::{Controller, NamespaceInfo, TransportId};

use crate::{
    connection::Connection,
    failure::Failure,
    output::{self, Format},
    table::Table,
};

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
struct Found {
    address: TransportId,
    serial: String,
    model: String,
    firmware: String,
    namespaces: Vec<std::sync::Arc<NamespaceInfo>>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut failed = false;
    for address in addresses(options)? {
        match look(options, &address) {
            Ok(one) => found.push(one),
            Err(Failure::Because(what)) => {
                output::complain(&format!("weft list: {what}"));
                failed = true;
            }
            Err(other) => return Err(other),
        }
    }
    match options.output_format {
        Format::Human => output::print(&human(&found))?,
        Format::Json => output::print_json(&as_json(&found))?,
    }
    if failed { Err(Failure::Told) } else { Ok(()) }
}

/// The given subsystem, or those of the discovery controller.
fn addresses(options: &Options) -> Result<Vec<TransportId>, Failure> {
    let connection = options.connection.options()?;
    if !connection.address.is_discovery() {
        return Ok(vec![connection.address]);
    }
    let mut addresses = Vec::new();
    for entry in weft_host::discover(&connection)?.entries {
        let Ok(address) = weft_host::transport_id(&entry) else { continue };
        if !address.is_discovery() && !weft_host::is_referral(&entry) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn look(options: &Options, address: &TransportId) -> Result<Found, Failure> {
    let connection = options.connection.options_for(address.clone())?;
    let controller: Controller = weft_host::connect(&connection)?;
    let info = controller.info()?;
    let text = |text: Option<&str>| text.unwrap_or("(not text)").trim().to_owned();
    let found = Found {
        address: address.clone(),
        serial: text(info.identify.serial_number.as_str()),
        model: text(info.identify.model_number.as_str()),
        firmware: text(info.identify.firmware_revision.as_str()),
        namespaces: controller.namespaces(),
    };
    controller.disconnect()?;
    Ok(found)
}

fn url(address: &TransportId, nsid: u32) -> String {
    TransportId { nsid: Some(nsid), trsvcid: Some(address.port()), ..address.clone() }.to_string()
}

fn human(found: &[Found]) -> String {
    let mut table = Table::new(&["address", "sn", "model", ">nsid", ">size", ">block", "firmware"]);
    for one in found {
        for namespace in &one.namespaces {
            table.row(vec![
                url(&one.address, namespace.nsid),
                one.serial.clone(),
                one.model.clone(),
                namespace.nsid.to_string(),
                bytes::human(namespace.bytes()),
                namespace.block_bytes.to_string(),
                one.firmware.clone(),
            ]);
        }
    }
    table.text()
}

/// As nvme-cli's list, with an address instead of a device node.
fn as_json(found: &[Found]) -> Value {
    let mut devices = Vec::new();
    for one in found {
        for namespace in &one.namespaces {
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
            }));
        }
    }
    json!({ "Devices": devices })
}
