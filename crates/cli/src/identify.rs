//! `weft identify`.

use std::path::Path;

use clap::Args;
use serde_json::json;
use weft_backend::bytes;
use weft_host::{ControllerInfo, NamespaceInfo};
use weft_nvme::Wire;
use weft_nvme::identify::{Cns, Controller, Namespace, OptionalAsynchronousEvents};
use weft_reactor::NvmeNamespace;

use crate::connection::{Connection, NamespaceChoice, pick};
use crate::failure::Failure;
use crate::fields::{self, Field, code, code_meaning, hex, meaning, names, plain, wide};
use crate::output::{self, Format};

/// Options of `weft identify`.
///
/// The first argument selects `ctrl` (the controller) or `ns` (a namespace). By default the
/// controller is shown, with --namespace-id the namespace. ADDRESS may be the node of an NVMe
/// device of this machine, such as /dev/ng0n1.
#[derive(Debug, Args)]
#[command(override_usage = "weft identify [ctrl|ns] [OPTIONS] [ADDRESS]")]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (what, connection) = options.connection.without_first_word(&["ctrl", "ns"]);
    let is_namespace = what.map_or(options.namespace.nsid().is_some(), |what| what == "ns");
    if let Some(node) = connection.local_node() {
        return show(options, of_local(&node, is_namespace, options.namespace.nsid())?);
    }
    let controller = connection.connect()?;
    let fields = if is_namespace {
        let wanted = options.namespace.nsid().or(connection.options()?.address.nsid);
        let nsid = pick(&controller.namespaces(), wanted)?;
        let found = controller.namespaces().into_iter().find(|found| found.nsid == nsid);
        let namespace = found.ok_or_else(|| Failure::because("the namespace was removed"))?;
        of_namespace(&namespace)
    } else {
        if let Some(nsid) = connection.options()?.address.nsid {
            pick(&controller.namespaces(), Some(nsid))?;
        }
        of_controller(&*controller.info()?)
    };
    controller.disconnect()?;
    show(options, fields)
}

fn show(options: &Options, fields: Vec<Field>) -> Result<(), Failure> {
    match options.output_format {
        Format::Human => output::print(&fields::human(&fields)),
        Format::Json => output::print_json(&fields::json(fields)),
    }
}

/// What a device of this machine says of itself.
fn of_local(node: &Path, is_namespace: bool, nsid: Option<u32>) -> Result<Vec<Field>, Failure> {
    let cannot = |error| Failure::io("identify", &node.display(), &error);
    let short = |_| Failure::because("the device sent less than the whole structure");
    let device = NvmeNamespace::open(node, false).map_err(cannot)?;
    if is_namespace {
        let nsid = nsid.unwrap_or(device.nsid());
        let data = device.identify(Cns::NAMESPACE.0, nsid).map_err(cannot)?;
        let identify = Namespace::view(&data).map_err(short)?;
        let format = identify.lba_format().unwrap_or(identify.lba_formats[0]);
        let block_bytes = 1_u64.checked_shl(format.data_size.into()).unwrap_or(0);
        let size = bytes::human(identify.size.get().saturating_mul(block_bytes));
        let mut fields = namespace_fields(nsid, identify, size);
        fields.push(lba_formats(identify, block_bytes, format.metadata_size.get()));
        return Ok(fields);
    }
    let data = device.identify(Cns::CONTROLLER.0, 0).map_err(cannot)?;
    let identify = Controller::view(&data).map_err(short)?;
    let events = identify.optional_asynchronous_events();
    Ok(controller_fields(identify, transfer_of_local(identify), events))
}

/// MDTS in words, of a controller whose CAP cannot be read: the kernel has no call for that.
fn transfer_of_local(identify: &Controller) -> String {
    match identify.maximum_transfer_bytes(0) {
        None => no_limit(),
        Some(limit) => {
            format!("{}, if the smallest page is 4 KiB", bytes::human(u64::from(limit)))
        }
    }
}

fn no_limit() -> String {
    "no limit".to_owned()
}

/// Identify Controller, and the values of Connect and the properties.
pub(crate) fn of_controller(picture: &ControllerInfo) -> Vec<Field> {
    let identify = &*picture.identify;
    let limit = picture.transfer_bytes_max;
    let transfer = limit.map_or_else(no_limit, |limit| bytes::human(u64::from(limit)));
    let mut fields = controller_fields(identify, transfer, picture.events_offered());
    fields.extend([
        meaning(
            "ioccsz",
            identify.io_command_capsule_16b.get(),
            format!("{} of data in a capsule", bytes::human(picture.in_capsule_bytes.into())),
        ),
        plain("iorcsz", identify.io_response_capsule_16b.get()),
        plain("icdoff", identify.in_capsule_data_offset_16b.get()),
        code("fcatt", identify.fabrics_attributes.0),
        plain("msdbd", identify.maximum_sgl_descriptors),
        code("ofcs", identify.fabrics_commands.get()),
        code("cap", picture.capabilities.0),
        meaning("mqes", picture.capabilities.queue_entries_max() - 1, "0's based"),
        plain("io_queues", picture.io_queues),
        plain("queue_size", picture.queue_entries),
    ]);
    fields
}

/// What every controller has.
fn controller_fields(
    identify: &Controller,
    transfer: String,
    offered: OptionalAsynchronousEvents,
) -> Vec<Field> {
    let subnqn = identify.subsystem();
    let keep_alive = identify.keep_alive_granularity_100ms.get();
    let mut fields = vec![
        code("vid", identify.pci_vendor_id.get()),
        code("ssvid", identify.pci_subsystem_vendor_id.get()),
        plain("sn", identify.serial_number.to_string()),
        plain("mn", identify.model_number.to_string()),
        plain("fr", identify.firmware_revision.to_string()),
        plain("ieee", hex(&identify.ieee_oui)),
        code("cmic", identify.multipath.0),
        meaning("mdts", identify.maximum_data_transfer_size, transfer),
        plain("cntlid", identify.controller_id.get()),
        code_meaning("ver", identify.version.get(), identify.version().to_string()),
        code_meaning("oaes", identify.optional_asynchronous_events.get(), events(offered)),
        code_meaning("ctratt", identify.attributes.get(), attributes(identify)),
        meaning("cntrltype", identify.controller_type.0, identify.controller_type.to_string()),
        code("oacs", identify.optional_admin_commands.get()),
        plain("acl", identify.abort_command_limit_0s_based),
        plain("aerl", identify.asynchronous_event_request_limit_0s_based),
        code("frmw", identify.firmware_updates.0),
        code("lpa", identify.log_page_attributes.0),
        plain("elpe", identify.error_log_page_entries_0s_based),
        plain("wctemp", identify.warning_temperature_k.get()),
        plain("cctemp", identify.critical_temperature_k.get()),
        wide("tnvmcap", identify.total_capacity_bytes.get()),
        wide("unvmcap", identify.unallocated_capacity_bytes.get()),
        meaning("kas", keep_alive, format!("{} ms", u32::from(keep_alive) * 100)),
    ];
    fields.extend(nvm_fields(identify));
    let subnqn = subnqn.map_or_else(|error| error.to_string(), |nqn| nqn.to_string());
    fields.push(plain("subnqn", subnqn));
    fields
}

fn nvm_fields(identify: &Controller) -> Vec<Field> {
    let nvm = identify.optional_nvm_commands();
    let commands = names(&[
        (nvm.compare(), "compare"),
        (nvm.write_uncorrectable(), "write uncorrectable"),
        (nvm.dataset_management(), "dataset management"),
        (nvm.write_zeroes(), "write zeroes"),
        (nvm.reservations(), "reservations"),
        (nvm.verify(), "verify"),
        (nvm.copy(), "copy"),
    ]);
    let cache = if identify.volatile_write_cache.present() { "present" } else { "none" };
    vec![
        code("sqes", identify.submission_queue_entry_sizes.0),
        code("cqes", identify.completion_queue_entry_sizes.0),
        plain("maxcmd", identify.maximum_outstanding_commands.get()),
        plain("nn", identify.namespaces.get()),
        code_meaning("oncs", identify.optional_nvm_commands.get(), commands),
        code("fuses", identify.fused_operations.get()),
        code("fna", identify.format_attributes.0),
        code_meaning("vwc", identify.volatile_write_cache.0, cache),
        plain("awun", identify.atomic_write_unit_normal_0s_based.get()),
        plain("awupf", identify.atomic_write_unit_power_fail_0s_based.get()),
        code("nwpc", identify.write_protection.0),
        plain("acwu", identify.atomic_compare_and_write_unit_0s_based.get()),
        code("sgls", identify.sgl_support.get()),
        plain("mnan", identify.maximum_allowed_namespaces.get()),
    ]
}

fn events(events: OptionalAsynchronousEvents) -> String {
    names(&[
        (events.namespace_attribute(), "namespace attribute"),
        (events.firmware_activation(), "firmware activation"),
        (events.asymmetric_namespace_access_change(), "ANA change"),
        (events.discovery_log_change(), "discovery log change"),
    ])
}

fn attributes(identify: &Controller) -> String {
    let attributes = identify.attributes();
    names(&[
        (attributes.host_id_128_bits(), "128-bit host identifier"),
        (attributes.traffic_based_keep_alive(), "traffic based keep alive"),
    ])
}

/// Identify Namespace, and the identifiers of the descriptor list.
pub(crate) fn of_namespace(picture: &NamespaceInfo) -> Vec<Field> {
    let mut fields =
        namespace_fields(picture.nsid, &picture.identify, bytes::human(picture.bytes()));
    if let Some(uuid) = picture.identity.uuid {
        fields.push(plain("uuid", uuid::Uuid::from_bytes(uuid).to_string()));
    }
    let block_bytes = picture.block_bytes.into();
    fields.push(lba_formats(&picture.identify, block_bytes, picture.metadata_bytes));
    fields
}

fn namespace_fields(nsid: u32, identify: &Namespace, size: String) -> Vec<Field> {
    let is_protected = identify.attributes.write_protected();
    vec![
        plain("nsid", nsid),
        meaning("nsze", identify.size.get(), size),
        plain("ncap", identify.capacity.get()),
        plain("nuse", identify.utilization.get()),
        code("nsfeat", identify.features.0),
        plain("nlbaf", identify.lba_formats_0s_based),
        code("flbas", identify.formatted_lba_size.0),
        code("mc", identify.metadata_capabilities),
        code("dpc", identify.protection_capabilities),
        code("dps", identify.protection_settings),
        code("nmic", identify.sharing.0),
        code("rescap", identify.reservations.0),
        code("dlfeat", identify.deallocate_features.0),
        plain("nawun", identify.atomic_write_unit_normal_0s_based.get()),
        plain("nawupf", identify.atomic_write_unit_power_fail_0s_based.get()),
        plain("nacwu", identify.atomic_compare_and_write_unit_0s_based.get()),
        plain("noiob", identify.optimal_io_boundary.get()),
        wide("nvmcap", identify.nvm_capacity_bytes.get()),
        plain("npwg", identify.preferred_write_granularity_0s_based.get()),
        plain("npwa", identify.preferred_write_alignment_0s_based.get()),
        plain("npdg", identify.preferred_deallocate_granularity_0s_based.get()),
        plain("npda", identify.preferred_deallocate_alignment_0s_based.get()),
        plain("nows", identify.optimal_write_size_0s_based.get()),
        plain("anagrpid", identify.ana_group_id.get()),
        code_meaning(
            "nsattr",
            identify.attributes.0,
            if is_protected { "write protected" } else { "writable" },
        ),
        plain("nguid", hex(&identify.nguid)),
        plain("eui64", hex(&identify.eui64)),
    ]
}

fn lba_formats(identify: &Namespace, block_bytes: u64, metadata_bytes: u16) -> Field {
    let there = usize::from(identify.lba_formats_0s_based) + 1;
    let formats = identify.lba_formats.iter().take(there).map(|format| {
        json!({
            "ms": format.metadata_size.get(),
            "ds": format.data_size,
            "rp": format.relative_performance,
        })
    });
    let in_use = identify.formatted_lba_size.format_index();
    meaning(
        "lbafs",
        formats.collect::<Vec<_>>(),
        format!(
            "{there}, in use is {in_use}: {block_bytes} bytes a block, {metadata_bytes} of metadata"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdts_of_a_local_device_is_bytes_or_no_limit() {
        let mut identify = Controller::zeroed();
        assert_eq!(transfer_of_local(&identify), "no limit");
        identify.maximum_data_transfer_size = 5;
        assert_eq!(transfer_of_local(&identify), "128 KiB, if the smallest page is 4 KiB");
    }
}
