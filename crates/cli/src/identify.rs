//! `weft identify`.

use clap::Args;
use serde_json::json;
use weft_backend::bytes;
use weft_host::{ControllerInfo, NamespaceInfo};

use crate::{
    connection::{Connection, NamespaceChoice, pick},
    failure::Failure,
    fields::{self, Field, code, code_meaning, hex, meaning, names, plain, wide},
    output::{self, Format},
};

/// Options of `weft identify`.
///
/// The first argument selects `ctrl` (the controller) or `ns` (a namespace). By default the
/// controller is shown, with --namespace-id the namespace.
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
    let controller = connection.connect()?;
    let is_namespace = what.map_or(options.namespace.nsid().is_some(), |what| what == "ns");
    let fields = if is_namespace {
        let wanted = options.namespace.nsid().or(connection.options()?.address.nsid);
        let nsid = pick(&controller.namespaces(), wanted)?;
        let found = controller.namespaces().into_iter().find(|found| found.nsid == nsid);
        let namespace = found.ok_or_else(|| Failure::because("the namespace was removed"))?;
        of_namespace(&namespace)
    } else {
        of_controller(&*controller.info()?)
    };
    controller.disconnect()?;
    match options.output_format {
        Format::Human => output::print(&fields::human(&fields)),
        Format::Json => output::print_json(&fields::json(fields)),
    }
}

/// Identify Controller, and the values of Connect and the properties.
pub(crate) fn of_controller(picture: &ControllerInfo) -> Vec<Field> {
    let identify = &*picture.identify;
    let text = |text: Option<&str>| text.unwrap_or("(not text)").trim().to_owned();
    let subnqn = identify.subsystem();
    let limit = picture.transfer_bytes_max;
    let transfer = limit.map_or("no limit".to_owned(), |limit| bytes::human(u64::from(limit)));
    let keep_alive = identify.keep_alive_granularity_100ms.get();
    let mut fields = vec![
        code("vid", identify.pci_vendor_id.get()),
        code("ssvid", identify.pci_subsystem_vendor_id.get()),
        plain("sn", text(identify.serial_number.as_str())),
        plain("mn", text(identify.model_number.as_str())),
        plain("fr", text(identify.firmware_revision.as_str())),
        plain("ieee", hex(&identify.ieee_oui)),
        code("cmic", identify.multipath.0),
        meaning("mdts", identify.maximum_data_transfer_size, transfer),
        plain("cntlid", identify.controller_id.get()),
        code_meaning("ver", identify.version.get(), identify.version().to_string()),
        code_meaning("oaes", identify.optional_asynchronous_events.get(), events(picture)),
        code_meaning("ctratt", identify.attributes.get(), attributes(picture)),
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
    fields.extend(nvm_fields(picture));
    fields.extend([
        plain("subnqn", subnqn.map_or_else(|error| error.to_string(), |nqn| nqn.to_string())),
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

fn nvm_fields(picture: &ControllerInfo) -> Vec<Field> {
    let identify = &*picture.identify;
    let nvm = identify.optional_nvm_commands();
    let commands = names(&[
        (nvm.compare(), "compare"),
        (nvm.write_uncorrectable(), "write uncorrectable"),
        (nvm.dataset_management(), "dataset management"),
        (nvm.write_zeroes(), "write zeroes"),
        (nvm.reservations(), "reservations"),
        (nvm.verify(), "verify"),
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

fn events(picture: &ControllerInfo) -> String {
    let events = picture.events_offered();
    names(&[
        (events.namespace_attribute(), "namespace attribute"),
        (events.firmware_activation(), "firmware activation"),
        (events.asymmetric_namespace_access_change(), "ANA change"),
        (events.discovery_log_change(), "discovery log change"),
    ])
}

fn attributes(picture: &ControllerInfo) -> String {
    let attributes = picture.identify.attributes();
    names(&[
        (attributes.host_id_128_bits(), "128-bit host identifier"),
        (attributes.traffic_based_keep_alive(), "traffic based keep alive"),
    ])
}

/// Identify Namespace, and the identifiers of the descriptor list.
pub(crate) fn of_namespace(picture: &NamespaceInfo) -> Vec<Field> {
    let identify = &*picture.identify;
    let size = bytes::human(picture.bytes());
    let identity = &picture.identity;
    let mut fields = vec![
        plain("nsid", picture.nsid),
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
            if picture.write_protected { "write protected" } else { "writable" },
        ),
        plain("nguid", hex(&identify.nguid)),
        plain("eui64", hex(&identify.eui64)),
    ];
    if let Some(uuid) = identity.uuid {
        fields.push(plain("uuid", uuid::Uuid::from_bytes(uuid).to_string()));
    }
    fields.push(lba_formats(picture));
    fields
}

fn lba_formats(picture: &NamespaceInfo) -> Field {
    let identify = &*picture.identify;
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
            "{there}, in use is {in_use}: {} bytes a block, {} of metadata",
            picture.block_bytes, picture.metadata_bytes
        ),
    )
}
