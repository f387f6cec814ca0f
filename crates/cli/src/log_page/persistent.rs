//! The Persistent Event Log.

use weft_nvme::Wire;
use weft_nvme::feature::FeatureId;
use weft_nvme::log_page::{
    ChangeNamespace, ControllerReset, PersistentEvent, PersistentEventAction,
    PersistentEventHeader, PersistentEventType, PersistentEvents, Timestamp,
};
use weft_nvme::wire::{Text, U16, U32};

use super::{Page, short};
use crate::failure::Failure;
use crate::fields::{Field, code_meaning, hex, meaning, plain, wide};
use crate::limits::PERSISTENT_LOG_BYTES_MAX;

/// Bytes of the header.
const HEADER: u32 = 512;

/// Reads the whole log within a reporting context, by what carries out an action for so many bytes
/// from an offset.
pub(super) fn read(
    get: impl Fn(PersistentEventAction, u32, u64) -> Result<Vec<u8>, Failure>,
) -> Result<Page, Failure> {
    let first = header(&get(PersistentEventAction::ESTABLISH_AND_READ, HEADER, 0)?)?;
    let events = read_events(&first, &get);
    // Also after a failure: with its context left no other reader could establish one.
    let released = get(PersistentEventAction::RELEASE, 4, 0);
    let events = events?;
    released?;
    let events = PersistentEvents::new(&events).map(|event| {
        let (event, data) = event.map_err(Failure::because)?;
        Ok(row(&event, data))
    });
    Ok(Page::Events(shown(&first), events.collect::<Result<_, Failure>>()?))
}

fn header(bytes: &[u8]) -> Result<PersistentEventHeader, Failure> {
    PersistentEventHeader::read(bytes).map_err(short)
}

/// Reads what follows the header, within its context.
fn read_events(
    first: &PersistentEventHeader,
    get: impl Fn(PersistentEventAction, u32, u64) -> Result<Vec<u8>, Failure>,
) -> Result<Vec<u8>, Failure> {
    let length = first.length.get();
    if length > PERSISTENT_LOG_BYTES_MAX {
        let what = format!(
            "the Persistent Event Log has {length} bytes, more than {PERSISTENT_LOG_BYTES_MAX}"
        );
        return Err(Failure::Because(what));
    }
    let begin = u64::from(first.header_length.get()) + 20;
    let rest = u32::try_from(length.saturating_sub(begin)).unwrap_or(u32::MAX);
    let events = match rest {
        0 => Vec::new(),
        rest => get(PersistentEventAction::READ, rest, begin)?,
    };
    let last = header(&get(PersistentEventAction::READ, HEADER, 0)?)?;
    if last.generation != first.generation {
        return Err(Failure::because("the log has changed while it was read: read it again"));
    }
    Ok(events)
}

fn shown(header: &PersistentEventHeader) -> Vec<Field> {
    vec![
        plain("tnev", header.events.get()),
        plain("tll", header.length.get()),
        plain("rv", header.revision),
        time("ts", header.timestamp.into()),
        wide("poh", header.power_on_hours.get()),
        plain("pcc", header.power_cycles.get()),
        plain("gen_number", header.generation.get()),
    ]
}

fn time(name: &'static str, time: Timestamp) -> Field {
    let origin = match time.origin() {
        Timestamp::SINCE_1970 => "ms since 1970",
        _ => "ms since a reset",
    };
    meaning(name, time.milliseconds(), origin)
}

fn row(event: &PersistentEvent, data: &[u8]) -> Vec<Field> {
    let mut row = vec![
        meaning("etype", event.kind.0, event.kind.to_string()),
        time("ets", event.timestamp.into()),
    ];
    if event.information.port_type() == PersistentEvent::SUBSYSTEM_PORT {
        row.push(plain("cntlid", event.controller_id.get()));
        row.push(plain("pelpid", event.port_id.get()));
    }
    let (_, data) = data.split_at_checked(event.vendor_length.get().into()).unwrap_or((data, &[]));
    row.extend(details(event.kind, data).unwrap_or_else(|| vec![plain("data", hex(data))]));
    row
}

/// What the data of an event say, if they are those of its type.
fn details(kind: PersistentEventType, data: &[u8]) -> Option<Vec<Field>> {
    Some(match kind {
        PersistentEventType::POWER_ON_OR_RESET => {
            let firmware = Text::<8>::read(data).ok()?;
            let resets = data.get(8..)?.chunks_exact(ControllerReset::SIZE);
            let resets = resets.filter_map(|bytes| ControllerReset::read(bytes).ok());
            let ids: Vec<u16> = resets.map(|reset| reset.controller_id.get()).collect();
            let listed = format!("{ids:?}");
            let mut fields = vec![plain("fw_rev", firmware.to_string())];
            if !ids.is_empty() {
                fields.push(meaning("controllers", ids, listed));
            }
            fields
        }
        PersistentEventType::HARDWARE_ERROR => {
            let code = U16::read(data).ok()?.get();
            vec![
                code_meaning("nss_hw_err_event_code", code, hardware_error(code)),
                plain("add_hw_err_info", hex(data.get(4..)?)),
            ]
        }
        PersistentEventType::CHANGE_NAMESPACE => {
            let change = ChangeNamespace::read(data).ok()?;
            let done = match change.cdw10.get() & 0xf {
                0 => "create",
                1 => "delete",
                _ => "",
            };
            vec![
                code_meaning("nsmgt_cdw10", change.cdw10.get(), done),
                plain("nsid", change.namespace_id.get()),
                plain("nsze", change.size.get()),
                plain("flbas", change.formatted_lba_size),
                plain("ana_grp_id", change.ana_group_id.get()),
            ]
        }
        PersistentEventType::SET_FEATURE => {
            let dword = |at: usize| Some(U32::read(data.get(at..)?).ok()?.get());
            let [id, ..] = dword(4)?.to_le_bytes();
            vec![
                code_meaning("fid", id, FeatureId(id).to_string()),
                code_meaning("value", dword(8)?, ""),
            ]
        }
        _ => return None,
    })
}

fn hardware_error(code: u16) -> &'static str {
    match code {
        6 => "critical warning",
        8 => "unexpected power loss",
        9 => "controller fatal status",
        10 => "media and data integrity",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;
    use crate::log_page::{as_json, human};

    const READ: PersistentEventAction = PersistentEventAction::READ;

    fn page(events: &[u8]) -> Vec<u8> {
        let mut header = PersistentEventHeader::zeroed();
        header.header_length.set(PersistentEventHeader::HEADER_LENGTH);
        header.length.set(512 + events.len() as u64);
        header.events.set(2);
        [header.bytes(), events].concat()
    }

    fn event(kind: u8, port_type: u8, data: &[u8]) -> Vec<u8> {
        let event = PersistentEvent {
            kind: PersistentEventType(kind),
            header_length: PersistentEvent::HEADER_LENGTH,
            information: weft_nvme::log_page::PersistentEventInformation(port_type),
            controller_id: U16::new(7),
            timestamp: Timestamp(5).with_origin(1).into(),
            length: U16::new(u16::try_from(data.len()).expect("short")),
            ..PersistentEvent::default()
        };
        [event.bytes(), data].concat()
    }

    #[test]
    fn the_log_is_read_within_a_context() {
        let mut reset = ControllerReset::zeroed();
        reset.controller_id.set(7);
        let reset = event(4, 1, &[&b"0.1     "[..], reset.bytes()].concat());
        let warning = event(5, 3, &[6, 0, 0, 0, 4]);
        let page = page(&[reset, warning].concat());
        let asked = RefCell::new(Vec::new());
        let log = read(|action, length, offset| {
            asked.borrow_mut().push((action, length, offset));
            let from = usize::try_from(offset).expect("small");
            Ok(page[from..from + length as usize].to_vec())
        });
        let log = log.expect("a log");
        let establish = PersistentEventAction::ESTABLISH_AND_READ;
        let release = PersistentEventAction::RELEASE;
        let events = u32::try_from(page.len()).expect("small") - 512;
        let all = [(establish, 512, 0), (READ, events, 512), (READ, 512, 0), (release, 4, 0)];
        assert_eq!(asked.into_inner(), all);
        let text = human(&log);
        let last = "etype 5 (NVM Subsystem Hardware Error)  ets 5 (ms since 1970)  \
                    nss_hw_err_event_code 0x6 (critical warning)  add_hw_err_info 04\n";
        assert!(text.ends_with(last), "{text}");
        let value = as_json(log);
        assert_eq!(value["tnev"], 2);
        let first = json!({ "etype": 4, "ets": 5, "cntlid": 7, "pelpid": 0, "fw_rev": "0.1",
            "controllers": [7] });
        assert_eq!(value["events"][0], first);
    }

    #[test]
    fn a_log_that_changes_or_is_cut_off_is_not_shown() {
        let bytes = page(&event(11, 1, &[2, 0, 0, 0, 0x84, 0, 0, 0, 1, 0, 0, 0]));
        let cut = read(|action, length, offset| {
            let from = usize::try_from(offset).expect("small");
            let length = length as usize - usize::from(action == READ && offset > 0);
            Ok(bytes[from..from + length].to_vec())
        });
        assert!(cut.is_err_and(|error| format!("{error:?}").contains("ends within an event")));
        let changing = read(|action, length, offset| {
            let mut bytes = bytes.clone();
            bytes[372] = u8::from(action == READ);
            let from = usize::try_from(offset).expect("small");
            Ok(bytes[from..from + length as usize].to_vec())
        });
        assert!(changing.is_err_and(|error| format!("{error:?}").contains("read it again")));
    }

    #[test]
    fn the_context_is_released_after_a_failure_too() {
        let bytes = page(&[]);
        let asked = RefCell::new(Vec::new());
        let log = read(|action, length, _| {
            asked.borrow_mut().push(action);
            match action {
                READ => Err(Failure::because("the controller is gone")),
                _ => Ok(bytes[..length as usize].to_vec()),
            }
        });
        assert!(log.is_err_and(|error| format!("{error:?}").contains("is gone")));
        assert_eq!(asked.into_inner().last(), Some(&PersistentEventAction::RELEASE));
    }

    #[test]
    fn events_of_other_types_are_shown_as_bytes() {
        let (kind, short) = (PersistentEventType::CHANGE_NAMESPACE, [1, 2]);
        assert_eq!(details(kind, &short), None);
        assert_eq!(details(PersistentEventType::SET_FEATURE, &short), None);
        let own = PersistentEventType::VENDOR_SPECIFIC;
        let event = PersistentEvent { kind: own, ..PersistentEvent::default() };
        assert_eq!(row(&event, &[0xab]).last(), Some(&plain("data", "ab")));
    }
}
