//! `weft discover`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_host::DiscoveryLog;
use weft_nvme::log_page::{
    AddressFamily, DiscoveryEntry, SecurityType, SubsystemType, TransportType,
};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;
use crate::values::time;
use crate::{fields, mdns};

/// Options of `weft discover`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    /// List the discovery controllers that announce themselves on the local network by multicast
    /// DNS (TP8009) within this time.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "3s", value_parser = time)]
    #[arg(conflicts_with_all = ["place", "traddr"])]
    mdns: Option<Duration>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(time) = options.mdns {
        return announced(time, options.output_format);
    }
    let log = weft_host::discover(&options.connection.options()?)?;
    match options.output_format {
        Format::Human => output::print(&human(&log)),
        Format::Json => output::print_json(&as_json(&log)),
    }
}

/// Prints the discovery controllers that announce themselves.
fn announced(time: Duration, format: Format) -> Result<(), Failure> {
    let found = mdns::browse(time).map_err(Failure::because)?;
    let mut table = Table::new(&["address", "nqn", "name"]);
    let mut all = Vec::new();
    for one in &found {
        for url in one.urls() {
            all.push(json!({ "address": url, "nqn": one.nqn, "name": one.name }));
            table.row(vec![url, one.nqn.clone(), one.name.clone()]);
        }
    }
    match format {
        Format::Human => output::print(&table.text()),
        Format::Json => output::print_json(&all.into()),
    }
}

/// The log as text, in the order and with the names of nvme-cli.
pub(crate) fn human(log: &DiscoveryLog) -> String {
    let (records, generation) = (log.entries.len(), log.generation);
    let mut text =
        format!("Discovery Log Number of Records {records}, Generation counter {generation}\n");
    for (index, entry) in log.entries.iter().enumerate() {
        text += &format!("=====Discovery Log Entry {index}======\n");
        for (name, value) in lines(entry) {
            text += &format!("{name:<8} {value}\n");
        }
    }
    text
}

/// The log as nvme-cli's JSON.
pub(crate) fn as_json(log: &DiscoveryLog) -> Value {
    let records: Vec<Value> = log
        .entries
        .iter()
        .map(|entry| {
            let fields = lines(entry).into_iter().map(|(name, value)| {
                let name = name.trim_end_matches(':').to_owned();
                (name, Value::String(value))
            });
            let mut record = Value::Object(fields.collect());
            record["portid"] = entry.port_id.get().into();
            record
        })
        .collect();
    json!({ "genctr": log.generation, "records": records })
}

/// The lines of nvme-cli: name and value.
fn lines(entry: &DiscoveryEntry) -> Vec<(&'static str, String)> {
    let subnqn = entry.subsystem();
    let requirements = entry.requirements;
    let mut treq = requirements.secure_channel().to_string();
    if requirements.disable_flow_control() {
        treq += ", sq flow control disable supported";
    }
    let mut lines = vec![
        ("trtype:", transport_type(entry.transport_type)),
        ("adrfam:", address_family(entry.address_family)),
        ("subtype:", subsystem_type(entry.subsystem_type)),
        ("treq:", treq),
        ("portid:", entry.port_id.get().to_string()),
        ("trsvcid:", entry.service_id.to_string()),
        ("subnqn:", subnqn.map_or_else(|error| format!("({error})"), |nqn| nqn.to_string())),
        ("traddr:", entry.address.to_string()),
        ("cntlid:", format!("{:#06x}", entry.controller_id.get())),
        ("eflags:", entry_flags(entry)),
    ];
    if entry.transport_type == TransportType::TCP {
        lines.push(("sectype:", security_type(entry.security_type())));
    }
    lines
}

/// nvme-cli's names.
fn entry_flags(entry: &DiscoveryEntry) -> String {
    let flags = entry.flags();
    fields::names(&[
        (flags.persistent_connections(), "explicit discovery connections"),
        (flags.duplicate_information(), "duplicate discovery information"),
        (flags.no_cdc_connectivity(), "no cdc connectivity"),
    ])
}

/// nvme-cli's name.
fn security_type(kind: SecurityType) -> String {
    match kind {
        SecurityType::NONE => "none".to_owned(),
        SecurityType::TLS_1_2 => "tls".to_owned(),
        SecurityType::TLS_1_3 => "tls13".to_owned(),
        other => other.to_string(),
    }
}

/// nvme-cli's name.
fn transport_type(kind: TransportType) -> String {
    match kind {
        TransportType::TCP => "tcp".to_owned(),
        TransportType::RDMA => "rdma".to_owned(),
        TransportType::FIBRE_CHANNEL => "fc".to_owned(),
        TransportType::INTRA_HOST => "loop".to_owned(),
        other => other.to_string(),
    }
}

/// nvme-cli's name.
fn address_family(family: AddressFamily) -> String {
    match family {
        AddressFamily::IPV4 => "ipv4".to_owned(),
        AddressFamily::IPV6 => "ipv6".to_owned(),
        AddressFamily::INFINIBAND => "infiniband".to_owned(),
        AddressFamily::FIBRE_CHANNEL => "fibre-channel".to_owned(),
        other => other.to_string(),
    }
}

/// nvme-cli's names.
fn subsystem_type(kind: SubsystemType) -> String {
    match kind {
        SubsystemType::REFERRAL => "discovery subsystem referral".to_owned(),
        SubsystemType::NVM => "nvme subsystem".to_owned(),
        SubsystemType::CURRENT_DISCOVERY => "current discovery subsystem".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::log_page::Endpoint;

    fn log() -> DiscoveryLog {
        let endpoint = Endpoint {
            transport_type: TransportType::TCP,
            address_family: AddressFamily::IPV4,
            address: "192.0.2.7",
            service_id: "4420",
            port_id: 1,
        };
        let nqn = "nqn.2024-01.io.example:disk".parse().expect("an NQN");
        let entry = DiscoveryEntry::new(SubsystemType::NVM, &nqn, &endpoint, 32);
        DiscoveryLog { generation: 5, entries: vec![entry] }
    }

    #[test]
    fn the_text_has_the_lines_of_nvme_cli() {
        let text = human(&log());
        for line in [
            "Discovery Log Number of Records 1, Generation counter 5",
            "=====Discovery Log Entry 0======",
            "trtype:  tcp",
            "adrfam:  ipv4",
            "subtype: nvme subsystem",
            "portid:  1",
            "trsvcid: 4420",
            "subnqn:  nqn.2024-01.io.example:disk",
            "traddr:  192.0.2.7",
            "eflags:  none",
            "sectype: none",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_json_has_the_names_of_nvme_cli() {
        let json = as_json(&log());
        assert_eq!(json["genctr"], 5);
        assert_eq!(json["records"][0]["traddr"], "192.0.2.7");
        assert_eq!(json["records"][0]["trsvcid"], "4420");
        assert_eq!(json["records"][0]["portid"], 1);
    }
}
