//! `weft rdma`.

use std::io;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weft_transport::rdma::verbs::{self, LocalDevice};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;

/// Options of `weft rdma`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List this machine's RDMA devices, what they support, and why one cannot be used.
    Devices(Devices),
}

#[derive(Debug, Args)]
struct Devices {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let What::Devices(options) = &options.what;
    let devices = verbs::devices().map_err(Failure::because)?;
    match options.output_format {
        Format::Human if devices.is_empty() => output::print(
            "this machine has no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one \
             of a network interface (soft-RoCE)\n",
        ),
        Format::Human => output::print(&human(&devices)),
        Format::Json => output::print_json(&as_json(&devices)),
    }
}

/// Why a device cannot be used, if so.
fn unusable_reason(found: &io::Result<LocalDevice>) -> Option<String> {
    match found {
        Err(error) => Some(format!("cannot be opened: {error}")),
        Ok(found) if !found.active => Some("its port is down".to_owned()),
        Ok(_) => None,
    }
}

fn human(devices: &[(String, io::Result<LocalDevice>)]) -> String {
    let columns = ["device", "kind", ">queue depth", ">reads", "invalidates", "access", "usable"];
    let mut table = Table::new(&columns);
    for (name, found) in devices {
        let usable =
            unusable_reason(found).map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
        let mut row = vec![name.clone()];
        match found {
            Ok(LocalDevice { attributes, .. }) => row.extend([
                attributes.kind.to_string(),
                attributes.queue_depth_max.to_string(),
                attributes.initiator_depth_max.to_string(),
                if attributes.send_with_invalidate { "yes" } else { "no" }.to_owned(),
                attributes.narrowest_access().name().to_owned(),
            ]),
            Err(_) => row.extend(["-"; 5].map(str::to_owned)),
        }
        row.push(usable);
        table.row(row);
    }
    table.text()
}

fn as_json(devices: &[(String, io::Result<LocalDevice>)]) -> Value {
    let devices = devices.iter().map(|(name, found)| {
        let attributes = found.as_ref().ok().map(|found| &found.attributes);
        json!({
            "device": name,
            "usable": unusable_reason(found).is_none(),
            "trouble": unusable_reason(found),
            "kind": attributes.map(|it| it.kind.to_string()),
            "queue_depth_max": attributes.map(|it| it.queue_depth_max),
            "queue_pairs_max": attributes.map(|it| it.queue_pairs_max),
            "initiator_depth_max": attributes.map(|it| it.initiator_depth_max),
            "responder_resources_max": attributes.map(|it| it.responder_resources_max),
            "send_with_invalidate": attributes.map(|it| it.send_with_invalidate),
            "memory_windows": attributes.map(|it| it.memory_windows),
            "access": attributes.map(|it| it.narrowest_access().name()),
        })
    });
    json!({ "devices": devices.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_transport::rdma::{Attributes, DeviceKind};

    fn found(active: bool) -> LocalDevice {
        let attributes = Attributes {
            name: "rxe0".to_owned(),
            kind: DeviceKind::Roce,
            queue_depth_max: 1024,
            queue_pairs_max: 64,
            completion_entries_max: 4096,
            pieces_max: 32,
            initiator_depth_max: 128,
            responder_resources_max: 128,
            send_with_invalidate: true,
            memory_windows: true,
            soft_roce: true,
            soft_iwarp: false,
        };
        LocalDevice { attributes, active }
    }

    #[test]
    fn unusable_devices_are_listed_with_the_reason() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let devices = [
            ("rxe0".to_owned(), Ok(found(true))),
            ("rxe1".to_owned(), Ok(found(false))),
            ("mlx5_0".to_owned(), Err(denied)),
        ];
        let text = human(&devices);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains("RoCE") && lines[1].contains("lease") && lines[1].ends_with("yes"),
            "{text}"
        );
        assert!(lines[2].ends_with("no: its port is down"), "{text}");
        assert!(lines[3].contains("cannot be opened: permission denied"), "{text}");
        let json = as_json(&devices);
        assert_eq!(json["devices"][0]["usable"], true);
        assert_eq!(json["devices"][0]["access"], "lease");
        assert_eq!(json["devices"][2]["kind"], Value::Null);
    }
}
