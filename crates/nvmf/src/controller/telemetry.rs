//! Telemetry: what a controller says of its state to whoever develops its host.
//!
//! The data are lines of text, `key: value`; what there is several of has a line for each. They are
//! about this controller, and about its subsystem as this host may see it.

use std::fmt::{Display, Write};
use std::time::Duration;

use weft_nvme::event::Event;
use weft_nvme::log_page::{
    GetLogPage, LogPageId, PersistentEvent, TelemetryHeader, TelemetryParameter, TelemetryScope,
    Timestamp,
};
use weft_nvme::wire::{Text, U16};
use weft_nvme::{Command, Wire};

use super::ana::changes::{Group, groups};
use super::log_page::{LENGTH, OFFSET};
use super::outcome::Outcome;
use super::{AdminQueue, AttachedQueue, Controller};
use crate::discovery::window;
use crate::limits;
use crate::queue::{CommandError, ErrorRecord};
use crate::subsystem::NamespaceView;

/// The version of the text: another one if a line that there was has another meaning.
const FORMAT: u32 = 1;

/// The text in the making.
#[derive(Debug, Default)]
struct Report {
    text: String,
    is_cut_off: bool,
}

impl Report {
    /// Adds a line, if there is room for it and was for all before it.
    fn line(&mut self, key: &str, value: impl Display) {
        let value = value.to_string().replace(char::is_control, "?");
        let line = format!("{key}: {value}\n");
        self.is_cut_off |= self.text.len() + line.len() > limits::TELEMETRY_BYTES_MAX;
        if !self.is_cut_off {
            self.text += &line;
        }
    }

    /// Adds a line for each value, as long as there is room.
    fn lines(&mut self, key: &str, values: impl IntoIterator<Item = impl Display>) {
        for value in values {
            if self.is_cut_off {
                return;
            }
            self.line(key, value);
        }
    }

    fn finish(mut self) -> String {
        if self.is_cut_off {
            self.text += "cut-off: true\n";
        }
        self.text
    }
}

impl Controller {
    /// Get Log Page of Telemetry Host-Initiated or Controller-Initiated. Nothing is captured by
    /// the controller itself: one that fails ends, and its host has another one then.
    pub(super) fn get_telemetry(
        &mut self,
        command: &Command,
        get: &GetLogPage,
        now: Duration,
    ) -> Result<Outcome, CommandError> {
        let length = self.check_part(command, get)?;
        if !length.is_multiple_of(TelemetryHeader::BLOCK) {
            return Err(LENGTH);
        }
        if !get.offset.is_multiple_of(TelemetryHeader::BLOCK as u64) {
            return Err(OFFSET);
        }
        let is_of_host = get.log_page == LogPageId::TELEMETRY_HOST_INITIATED;
        let create = is_of_host && TelemetryParameter(get.specific_parameter).create();
        let captured = create.then(|| self.capture(now));
        let empty = header(get.log_page);
        let page = match &captured {
            Some(page) => page,
            None if is_of_host && !self.telemetry.is_empty() => &self.telemetry,
            None => empty.bytes(),
        };
        let part = window(page, get.offset, length).ok_or(OFFSET)?;
        if let Some(page) = captured {
            self.telemetry = page;
        }
        Ok(Outcome::Data(part))
    }

    /// The log page of a new capture.
    fn capture(&self, now: Duration) -> Vec<u8> {
        let mut text = self.report(now).into_bytes();
        text.resize(text.len().next_multiple_of(TelemetryHeader::BLOCK), 0);
        let last = u16::try_from(text.len() / TelemetryHeader::BLOCK).unwrap_or(u16::MAX);
        let before = TelemetryHeader::read(&self.telemetry).map_or(0, |one| one.generation());
        let warning = self.features.critical_warning(&self.view).0;
        let header = TelemetryHeader {
            last_blocks: [U16::new(last); 3],
            host_generation_or_scope: before.wrapping_add(1),
            reason: Text::new(&format!("weft CSTS={:08x} CW={warning:02x}", self.status.0)),
            ..header(LogPageId::TELEMETRY_HOST_INITIATED)
        };
        [header.bytes(), &text[..]].concat()
    }

    fn report(&self, now: Duration) -> String {
        let mut report = Report::default();
        report.line("weft-telemetry", FORMAT);
        self.report_identity(&mut report, now);
        self.report_state(&mut report, now);
        self.report_queues(&mut report);
        self.report_errors(&mut report);
        self.report_namespaces(&mut report);
        report.finish()
    }

    fn report_identity(&self, report: &mut Report, now: Duration) {
        let view = &self.view;
        report.line("weft", env!("CARGO_PKG_VERSION"));
        report.line("time", shown(view.shared.events().timestamp(now)));
        report.line("subsystem", view.nqn);
        report.line("serial", &view.serial);
        report.line("model", &view.model);
        report.line("firmware", &view.firmware);
        report.line("controller", self.controller_id);
        report.line("age-ms", now.saturating_sub(self.started).as_millis());
        report.line("host", self.host);
        report.line("host-id", format_args!("{:032x}", u128::from_be_bytes(self.host_id)));
        report.line("transport", if self.rdma { "rdma" } else { "tcp" });
        report.line("local-address", self.local_address);
        report.line("port", self.port_id);
        let limits = &view.limits;
        report.line("max-io-queues", limits.max_io_queues);
        report.line("max-queue-entries", self.queue_entries_max());
        report.line("max-transfer-bytes", limits.transfer_bytes_max());
        report.line("max-namespaces", limits.max_namespaces);
    }

    fn report_state(&self, report: &mut Report, now: Duration) {
        report.line("cap", format_args!("{:#018x}", self.capabilities().0));
        report.line("cc", format_args!("{:#010x}", self.configuration.0));
        report.line("csts", format_args!("{:#010x}", self.status.0));
        report.line("resetting", self.resetting);
        report.line("shutting-down", self.shutting_down);
        let warning = self.features.critical_warning(&self.view);
        report.line("critical-warning", format_args!("{:#04x}", warning.0));
        report.line("keep-alive-ms", self.keep_alive.timeout_ms());
        if let Some(deadline) = self.keep_alive.deadline() {
            report.line("keep-alive-left-ms", deadline.saturating_sub(now).as_millis());
        }
        for (feature, value) in self.feature_values(None) {
            let id = feature.0;
            report.line("feature", format_args!("{id:02x}h value={value:#x} ({feature})"));
        }
        let behavior = self.features.host_behavior;
        let (etdas, lbafee) = (behavior.telemetry_data_area4, behavior.extended_lba_formats);
        let cdfe = behavior.copy_descriptor_formats.get();
        let value = format_args!("etdas={etdas} lbafee={lbafee} cdfe={cdfe:#x}");
        report.line("host-behavior", value);
        report.line("event-requests", self.events.requests.len());
        let event = |event: &Event| format!("{:#010x}", event.0);
        report.lines("event-raised", self.events.raised.iter().map(event));
        report.lines("event-masked", self.events.masked.iter().map(event));
        report.line("aborts", self.aborts.len());
        report.line("waiting-commands", self.setting.len());
        report.line("persistent-event-context", self.event_context.is_some());
    }

    fn report_queues(&self, report: &mut Report) {
        let AdminQueue { head, entries, flow_control } = &self.admin;
        let value = format_args!("entries={entries} flow-control={flow_control}");
        report.line("admin-queue", format_args!("{value} head={}", head.value()));
        report.line("io-queues", self.queues.len());
        let queue = |(id, queue): (&u16, &AttachedQueue)| {
            let AttachedQueue { shared, entries, flow_control, .. } = queue;
            let (commands, in_flight) = (shared.commands(), shared.in_flight());
            format!(
                "{id} entries={entries} flow-control={flow_control} commands={commands} \
                 in-flight={in_flight}"
            )
        };
        report.lines("io-queue", self.queues.iter().map(queue));
    }

    fn report_errors(&self, report: &mut Report) {
        let errors = self.shared.errors();
        report.line("errors", errors.count());
        report.line("media-errors", errors.media_count());
        let error = |error: &ErrorRecord| {
            let ErrorRecord { count, queue_id, command_id, status, .. } = error;
            let ErrorRecord { parameter, lba, nsid, opcode, .. } = error;
            let byte = parameter.map_or("none".to_owned(), |byte| byte.to_string());
            format!(
                "{count} sqid={queue_id} cid={command_id:#x} opcode={opcode:02x}h nsid={nsid} \
                 lba={lba} status={:#x} ({status}) byte={byte}",
                status.0
            )
        };
        report.lines("error", errors.newest_first().iter().map(error));
        let events = self.view.shared.events().kept().events;
        let events = events.iter().filter_map(|bytes| PersistentEvent::read(bytes).ok());
        let event = |event: PersistentEvent| {
            let (kind, controller_id) = (event.kind, event.controller_id.get());
            let time = shown(event.timestamp.into());
            format!("{:02x}h controller={controller_id:#x} time={time} ({kind})", kind.0)
        };
        report.lines("persistent-event", events.take(limits::TELEMETRY_EVENTS_MAX).map(event));
    }

    fn report_namespaces(&self, report: &mut Report) {
        if self.view.ana.is_some() {
            let group = |(id, group): (u32, Group)| {
                format!("{id} namespaces={} ({})", group.nsids.len(), group.state)
            };
            report.lines("ana-group", groups(&self.view, self.port_id).into_iter().map(group));
        }
        let namespaces = &self.view.namespaces;
        report.line("namespaces", namespaces.len());
        let namespace = |namespace: &NamespaceView| {
            let NamespaceView { nsid, blocks, block_bytes, ana_group, .. } = namespace;
            let NamespaceView { lost_writes, detached, .. } = namespace;
            let mut line = format!(
                "{nsid} blocks={blocks} block-bytes={block_bytes} lost-writes={lost_writes} \
                 detached={detached} ana-group={ana_group}"
            );
            for (feature, value) in self.feature_values(Some(*nsid)) {
                // Writing to a string does not fail.
                let _ = write!(line, " feature-{:02x}h={value:#x}", feature.0);
            }
            line
        };
        report.lines("namespace", namespaces.iter().map(namespace));
    }
}

/// The header of a log page without data.
fn header(log_page: LogPageId) -> TelemetryHeader {
    let header = TelemetryHeader { log_page, ..TelemetryHeader::zeroed() };
    let scope = TelemetryScope::CONTROLLER;
    match log_page == LogPageId::TELEMETRY_HOST_INITIATED {
        true => TelemetryHeader { host_scope: scope, ..header },
        false => TelemetryHeader { host_generation_or_scope: scope.0, ..header },
    }
}

fn shown(time: Timestamp) -> String {
    let since = match time.origin() {
        Timestamp::SINCE_1970 => "1970",
        _ => "reset",
    };
    format!("{} ms since {since}", time.milliseconds())
}
