//! `weft log`.

mod persistent;
mod telemetry;

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use weft_host::{AdminData, Controller, DiscoveryLog};
use weft_nvme::command::NAMESPACE_ID_BROADCAST;
use weft_nvme::identify::{Cns, Controller as Identified};
use weft_nvme::log_page::{
    CommandEffects, CommandsSupportedAndEffects, ErrorInformation, FirmwareSlots, GetLogPage,
    Health, KELVIN_AT_0_CELSIUS, LogPageId, PersistentEventAction, SupportedLogPages,
};
use weft_nvme::{AdminOpcode, NvmOpcode, TruncationError, Wire};

use weft_reactor::NvmeNamespace;

use self::telemetry::{Telemetry, is_telemetry};
use crate::connection::Connection;
use crate::discover;
use crate::failure::Failure;
use crate::fields::{self, Field, code, code_meaning, hex, meaning, names, plain, wide};
use crate::output::{self, Format};

/// Most error log entries that are read.
const ERROR_ENTRIES: u32 = 64;

/// The names of log pages.
const PAGES: &str = "supported, error, smart, firmware, changed, effects, \
     persistent-event, telemetry, discovery, and numbers up to 255";

/// Options of `weft log`.
#[derive(Debug, Args)]
#[command(override_usage = "weft log <PAGE> [OPTIONS] [ADDRESS]")]
pub(crate) struct Options {
    /// The log page: supported, error, smart, firmware, changed, effects, persistent-event,
    /// telemetry, discovery, or a number.
    #[arg(value_name = "PAGE")]
    page: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// The log page, instead of PAGE.
    #[arg(long, value_name = "PAGE")]
    log_id: Option<String>,
    /// Bytes to read, for a page given by number.
    #[arg(long, visible_alias = "log-len", value_name = "BYTES", default_value_t = 512)]
    length: u32,
    /// Offset to read from, for a page given by number.
    #[arg(long, visible_alias = "lpo", value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// Do not clear the event of this page (RAE).
    #[arg(long, visible_alias = "rae")]
    retain: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
    #[command(flatten)]
    telemetry: Telemetry,
}

/// The contents of a log page.
#[derive(Debug)]
enum Page {
    /// Named values.
    Fields(Vec<Field>),
    /// A list of entries with named values.
    List(&'static str, Vec<Vec<Field>>),
    /// The Persistent Event Log: its header, and its events as lists of named values.
    Events(Vec<Field>, Vec<Vec<Field>>),
    /// Telemetry: its header, and its data if they are text.
    Telemetry(Vec<Field>, Option<String>),
    /// The discovery log.
    Discovery(DiscoveryLog),
    /// Bytes.
    Raw(Vec<u8>),
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (page, connection) = match (&options.log_id, options.page.as_deref()) {
        (Some(page), word) => (page.as_str(), options.connection.with_first_word(word)),
        (None, Some(page)) => (page, options.connection.clone()),
        (None, None) => return Err(Failure::because(format!("no log page given: use {PAGES}"))),
    };
    let id = options.telemetry.page(page_id(page)?)?;
    if let Some(node) = connection.local_node() {
        return show(options, of_local(options, &node, id)?);
    }
    let page = match id {
        LogPageId::DISCOVERY => Page::Discovery(weft_host::discover(&connection.options()?)?),
        id => {
            let controller = connection.connect()?;
            let page = of_controller(options, &controller, id)?;
            controller.disconnect()?;
            page
        }
    };
    show(options, page)
}

fn show(options: &Options, page: Page) -> Result<(), Failure> {
    match options.output_format {
        Format::Human => output::print(&human(&page)),
        Format::Json => output::print_json(&as_json(page)),
    }
}

/// A page of a device of this machine.
fn of_local(options: &Options, node: &Path, id: LogPageId) -> Result<Page, Failure> {
    let cannot = |error| Failure::io("read a log page of", &node.display(), &error);
    if id == LogPageId::DISCOVERY {
        let what =
            format!("{} is a device of this machine, which discovers nothing", node.display());
        return Err(Failure::Because(what));
    }
    let device = NvmeNamespace::open(node, false).map_err(cannot)?;
    if id == LogPageId::PERSISTENT_EVENT_LOG {
        return persistent::read(|action, length, offset| {
            let bytes = usize::try_from(length.next_multiple_of(4)).unwrap_or(usize::MAX);
            device.log_page(id.0, action.0, offset, bytes, true).map_err(cannot)
        });
    }
    if is_telemetry(id) {
        return options.telemetry.read(id, options.retain, |get| {
            let bytes = usize::try_from(get.length()).unwrap_or(usize::MAX);
            let specific = get.specific_parameter;
            device.log_page(id.0, specific, get.offset, bytes, get.retain_event).map_err(cannot)
        });
    }
    let error_entries = || {
        let data = device.identify(Cns::CONTROLLER.0, 0).map_err(cannot)?;
        Ok(Identified::view(&data).map_err(short)?.error_log_page_entries_0s_based)
    };
    read(options, id, error_entries, |length, offset| {
        // The call takes whole dwords.
        let bytes = usize::try_from(length.next_multiple_of(4)).unwrap_or(usize::MAX);
        let mut data = device.log_page(id.0, 0, offset, bytes, options.retain).map_err(cannot)?;
        data.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(data)
    })
}

fn short(_: TruncationError) -> Failure {
    Failure::because("the controller sent less than the whole log page")
}

fn page_id(text: &str) -> Result<LogPageId, Failure> {
    Ok(match text {
        "supported" => LogPageId::SUPPORTED_LOG_PAGES,
        "error" | "error-log" => LogPageId::ERROR_INFORMATION,
        "smart" | "smart-log" | "health" => LogPageId::HEALTH,
        "firmware" | "fw" | "fw-log" => LogPageId::FIRMWARE_SLOT,
        "changed" | "changed-ns" => LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST,
        "effects" => LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS,
        "persistent-event" | "persistent-event-log" => LogPageId::PERSISTENT_EVENT_LOG,
        "telemetry" | "telemetry-log" => LogPageId::TELEMETRY_HOST_INITIATED,
        "discovery" => LogPageId::DISCOVERY,
        number => {
            let digits = number.strip_prefix("0x");
            let id = match digits {
                Some(digits) => u8::from_str_radix(digits, 16),
                None => number.parse(),
            };
            LogPageId(id.map_err(|_| {
                Failure::Because(format!("{text:?} is not a log page: use {PAGES}"))
            })?)
        }
    })
}

fn of_controller(
    options: &Options,
    controller: &Controller,
    id: LogPageId,
) -> Result<Page, Failure> {
    if id == LogPageId::PERSISTENT_EVENT_LOG {
        return persistent::read(|action, length, offset| {
            let get = GetLogPage {
                specific_parameter: action.0,
                retain_event: true,
                ..GetLogPage::new(id, offset, length)
            };
            if action == PersistentEventAction::RELEASE {
                controller.admin_command_checked(get.to_command(), AdminData::None)?;
                return Ok(Vec::new());
            }
            Ok(controller.log_page(get, length)?)
        });
    }
    if is_telemetry(id) {
        return options.telemetry.read(id, options.retain, |get| {
            let length = u32::try_from(get.length()).unwrap_or(u32::MAX);
            Ok(controller.log_page(get, length)?)
        });
    }
    let error_entries = || Ok(controller.info()?.identify.error_log_page_entries_0s_based);
    read(options, id, error_entries, |length, offset| {
        let get = GetLogPage::new(id, offset, length);
        let all = GetLogPage {
            retain_event: options.retain,
            namespace_id: NAMESPACE_ID_BROADCAST,
            ..get
        };
        Ok(controller.log_page(all, length)?)
    })
}

/// Reads as much of a page as it has, by what gets so many bytes from an offset. How many entries
/// the error log has is asked for only if that is the page (ELPE).
fn read(
    options: &Options,
    id: LogPageId,
    error_entries_0s_based: impl FnOnce() -> Result<u8, Failure>,
    get: impl Fn(u32, u64) -> Result<Vec<u8>, Failure>,
) -> Result<Page, Failure> {
    Ok(match id {
        LogPageId::SUPPORTED_LOG_PAGES => {
            let data = get(1024, 0)?;
            supported(SupportedLogPages::view(&data).map_err(short)?)
        }
        LogPageId::ERROR_INFORMATION => {
            let there = u32::from(error_entries_0s_based()?) + 1;
            let data = get(there.min(ERROR_ENTRIES) * 64, 0)?;
            errors(&data)
        }
        LogPageId::HEALTH => {
            let data = get(512, 0)?;
            Page::Fields(health(Health::view(&data).map_err(short)?))
        }
        LogPageId::FIRMWARE_SLOT => {
            let data = get(512, 0)?;
            Page::Fields(firmware(FirmwareSlots::view(&data).map_err(short)?))
        }
        LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST => changed(&get(4096, 0)?),
        LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS => {
            let data = get(4096, 0)?;
            effects(CommandsSupportedAndEffects::view(&data).map_err(short)?)
        }
        _ => Page::Raw(get(options.length, options.offset)?),
    })
}

fn supported(page: &SupportedLogPages) -> Page {
    let ids = (0..=u8::MAX).map(LogPageId).filter(|id| page.get(*id).supported());
    let rows = ids.map(|id| vec![meaning("lid", id.0, id.to_string())]);
    Page::List("supported", rows.collect())
}

fn errors(data: &[u8]) -> Page {
    let mut rows = Vec::new();
    for entry in data.chunks_exact(64).filter_map(|bytes| ErrorInformation::view(bytes).ok()) {
        // Error count 0 marks an empty entry.
        if entry.error_count.get() == 0 {
            continue;
        }
        let status = entry.status_field.status();
        rows.push(vec![
            plain("error_count", entry.error_count.get()),
            plain("sqid", entry.submission_queue_id.get()),
            code("cmdid", entry.command_id.get()),
            code_meaning("status_field", status.0, status.to_string()),
            code("parm_error_location", entry.parameter_location.get()),
            plain("lba", entry.lba.get()),
            plain("nsid", entry.namespace_id.get()),
        ]);
    }
    Page::List("errors", rows)
}

fn health(page: &Health) -> Vec<Field> {
    let kelvin = page.composite_temperature_k.get();
    let celsius = i32::from(kelvin) - i32::from(KELVIN_AT_0_CELSIUS);
    let warning = page.critical_warning;
    let warnings = names(&[
        (warning.spare_below_threshold(), "spare below threshold"),
        (warning.temperature(), "temperature"),
        (warning.degraded_reliability(), "degraded reliability"),
        (warning.read_only(), "read-only"),
    ]);
    vec![
        code_meaning("critical_warning", warning.0, warnings),
        meaning("temperature", kelvin, format!("{celsius} °C")),
        plain("avail_spare", page.available_spare_percent),
        plain("spare_thresh", page.available_spare_threshold_percent),
        plain("percent_used", page.percentage_used),
        wide("data_units_read", page.data_units_read.get()),
        wide("data_units_written", page.data_units_written.get()),
        wide("host_read_commands", page.host_read_commands.get()),
        wide("host_write_commands", page.host_write_commands.get()),
        wide("controller_busy_time", page.controller_busy_time_minutes.get()),
        wide("power_cycles", page.power_cycles.get()),
        wide("power_on_hours", page.power_on_hours.get()),
        wide("unsafe_shutdowns", page.unexpected_power_losses.get()),
        wide("media_errors", page.media_errors.get()),
        wide("num_err_log_entries", page.error_log_entries.get()),
        plain("warning_temp_time", page.warning_temperature_minutes.get()),
        plain("critical_comp_time", page.critical_temperature_minutes.get()),
    ]
}

fn firmware(page: &FirmwareSlots) -> Vec<Field> {
    const SLOTS: [&str; 7] = ["frs1", "frs2", "frs3", "frs4", "frs5", "frs6", "frs7"];
    let mut fields = vec![plain("afi", page.active)];
    for (name, revision) in SLOTS.into_iter().zip(&page.revisions) {
        let text = revision.to_string();
        if !text.is_empty() {
            fields.push(plain(name, text));
        }
    }
    fields
}

fn changed(data: &[u8]) -> Page {
    let ids = data.chunks_exact(4).filter_map(|bytes| bytes.first_chunk());
    let ids = ids.map(|bytes| u32::from_le_bytes(*bytes)).take_while(|nsid| *nsid != 0);
    let row = |nsid| {
        let many = nsid == weft_nvme::log_page::CHANGED_NAMESPACES_TOO_MANY;
        vec![meaning("nsid", nsid, if many { "more than 1024 namespaces" } else { "" })]
    };
    Page::List("changed", ids.map(row).collect())
}

fn effects(page: &CommandsSupportedAndEffects) -> Page {
    let row = |kind: &'static str, opcode: u8, name: String, effects: CommandEffects| {
        vec![
            plain("kind", kind),
            code_meaning("opcode", opcode, name),
            code("effects", effects.0),
            plain("content_change", effects.content_change()),
        ]
    };
    let mut rows = Vec::new();
    for opcode in 0..=u8::MAX {
        let effects = page.admin_effects(opcode);
        if effects.supported() {
            rows.push(row("admin", opcode, AdminOpcode(opcode).to_string(), effects));
        }
    }
    for opcode in 0..=u8::MAX {
        let effects = page.io_effects(opcode);
        if effects.supported() {
            rows.push(row("io", opcode, NvmOpcode(opcode).to_string(), effects));
        }
    }
    Page::List("commands", rows)
}

fn human(page: &Page) -> String {
    match page {
        Page::Fields(fields) => fields::human(fields),
        Page::List(name, rows) if rows.is_empty() => format!("no {}\n", none(name)),
        Page::List(_, list) => rows(list),
        Page::Events(header, events) => fields::human(header) + &rows(events),
        Page::Telemetry(header, None) => fields::human(header),
        Page::Telemetry(header, Some(text)) => format!("{}\n{text}", fields::human(header)),
        Page::Discovery(log) => discover::human(log),
        Page::Raw(data) => {
            let mut text = String::new();
            for (line, bytes) in data.chunks(16).enumerate() {
                let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                text += &format!("{:04x}: {}\n", line * 16, pairs.join(" "));
            }
            text
        }
    }
}

/// A line for each entry.
fn rows(list: &[Vec<Field>]) -> String {
    let mut text = String::new();
    for row in list {
        let cells = row.iter().map(|field| {
            let (name, shown, meaning) = (field.name, field.shown(), &field.meaning);
            match meaning.is_empty() {
                true => format!("{name} {shown}"),
                false => format!("{name} {shown} ({meaning})"),
            }
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text.push('\n');
    }
    text
}

/// The plural for "no …", if an entry list is empty.
fn none(name: &str) -> &str {
    match name {
        "changed" => "changed namespaces",
        name => name,
    }
}

fn as_json(page: Page) -> Value {
    match page {
        Page::Fields(found) => fields::json(found),
        Page::List(name, rows) => {
            let rows: Vec<Value> = rows.into_iter().map(fields::json).collect();
            json!({ name: rows })
        }
        Page::Events(header, events) => {
            let mut object = fields::json(header);
            object["events"] = events.into_iter().map(fields::json).collect();
            object
        }
        Page::Telemetry(header, text) => {
            let mut object = fields::json(header);
            if let Some(text) = text {
                object["text"] = text.into();
            }
            object
        }
        Page::Discovery(log) => discover::as_json(&log),
        Page::Raw(data) => json!({ "data": hex(&data) }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn each_page_is_read_as_long_as_it_is_wherever_it_is_from() {
        let line = Line::try_parse_from(["log", "0xca", "--length", "6000", "--offset", "8"]);
        let options = line.map_err(|error| error.to_string()).expect("options").options;
        for (id, asked) in [
            (LogPageId::COMMANDS_SUPPORTED_AND_EFFECTS, (4096, 0)),
            (LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST, (4096, 0)),
            (LogPageId::SUPPORTED_LOG_PAGES, (1024, 0)),
            (LogPageId::ERROR_INFORMATION, (3 * 64, 0)),
            (LogPageId::HEALTH, (512, 0)),
            (LogPageId(0xca), (6000, 8)),
        ] {
            let get = |length: u32, offset: u64| {
                assert_eq!((length, offset), asked, "{id}");
                Ok(vec![0; length as usize])
            };
            let page = read(&options, id, || Ok(2), get).expect("a page");
            assert_eq!(matches!(page, Page::Raw(_)), id == LogPageId(0xca), "{page:?}");
        }
    }

    #[test]
    fn pages_are_selected_by_name_or_number() {
        for (text, id) in [
            ("smart", LogPageId::HEALTH),
            ("smart-log", LogPageId::HEALTH),
            ("error", LogPageId::ERROR_INFORMATION),
            ("persistent-event", LogPageId::PERSISTENT_EVENT_LOG),
            ("telemetry", LogPageId::TELEMETRY_HOST_INITIATED),
            ("discovery", LogPageId::DISCOVERY),
            ("0x0c", LogPageId::ASYMMETRIC_NAMESPACE_ACCESS),
            ("12", LogPageId::ASYMMETRIC_NAMESPACE_ACCESS),
        ] {
            assert!(page_id(text).is_ok_and(|found| found == id), "{text}");
        }
        for text in ["", "256", "0x100", "smartest", "-1"] {
            assert!(page_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pages_become_text_and_json() {
        let page = supported(&SupportedLogPages::new(&[LogPageId::HEALTH]));
        assert_eq!(human(&page), "lid 2 (SMART / Health Information)\n");
        assert_eq!(as_json(page), json!({ "supported": [{ "lid": 2 }] }));
        assert_eq!(human(&errors(&[0; 128])), "no errors\n");
        assert_eq!(human(&changed(&[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0])), "nsid 1\nnsid 9\n");
        assert_eq!(human(&Page::Raw((0..18).collect())).lines().count(), 2);
        let health = health(&Health::default());
        assert!(fields::human(&health).contains("temperature          : 0  (-273 °C)"));
        let mut page = CommandsSupportedAndEffects::none();
        page.set_io(1, CommandEffects::WRITES);
        let text = human(&effects(&page));
        assert!(text.starts_with("kind io  opcode 0x1 (Write)"), "{text}");
    }
}
