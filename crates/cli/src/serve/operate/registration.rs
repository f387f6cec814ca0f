//! What is registered with this target's discovery subsystem.

use std::sync::Arc;

use serde_json::{Value, json};
use weft_nvme::Nqn;
use weft_nvme::discovery_information::EntityType;
use weft_nvme::log_page::DiscoveryEntry;
use weft_nvmf::registration::Record;
use weft_rpc::Methods;

use super::method::method;
use super::operator::Operator;
use super::parameters::Params;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    method(methods, operator, "discovery_get_registrations", |operator, params| {
        Params::of(params)?.end()?;
        let all = operator.with(|target| target.registrations())?;
        Ok(all.iter().map(|(host, record)| shown(host, record)).collect())
    })
}

fn shown(host: &Nqn, record: &Record) -> Value {
    let entries = record.entries.iter().map(|registered| entry(&registered.entry));
    json!({
        "host": host.to_string(),
        "entity": match record.entity.kind {
            EntityType::HOST => "host",
            EntityType::DIRECT => "direct discovery controller",
            _ => "centralized discovery controller",
        },
        "id": record.entity.id.to_string(),
        "name": record.entity.name,
        "version": record.entity.version,
        "connected": record.ends.is_none(),
        "entries": entries.collect::<Vec<Value>>(),
    })
}

fn entry(entry: &DiscoveryEntry) -> Value {
    json!({
        "trtype": entry.transport_type.to_string(),
        "traddr": entry.address.to_string(),
        "trsvcid": entry.service_id.to_string(),
        "nqn": entry.subsystem().map(|nqn| nqn.to_string()).unwrap_or_default(),
    })
}
