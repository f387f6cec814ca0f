use weft_nvme::feature::{FeatureId, SetFeatures};
use weft_nvme::identify::{self, Cns, Identify};
use weft_nvme::log_page::{
    GetLogPage, LogPageId, SupportedLogPages, TelemetryHeader, TelemetryParameter, TelemetryScope,
};
use weft_nvme::{AdminOpcode, Wire};

use super::*;
use crate::subsystem::test_support::{HOST, SUBSYSTEM, namespace, nqn};

const HOST_INITIATED: LogPageId = LogPageId::TELEMETRY_HOST_INITIATED;
const CONTROLLER_INITIATED: LogPageId = LogPageId::TELEMETRY_CONTROLLER_INITIATED;
const INVALID: Status = Status::INVALID_FIELD.with_dnr();

fn get(log_page: LogPageId, create: bool, offset: u64, length: u32) -> Command {
    let parameter = TelemetryParameter(0).with_create(create);
    let get = GetLogPage::new(log_page, offset, length);
    let command = GetLogPage { specific_parameter: parameter.0, ..get }.to_command();
    command.with_data_pointer(Descriptor::transport(length))
}

fn header(controller: &mut Controller, create: bool) -> TelemetryHeader {
    let bytes = data(controller, get(HOST_INITIATED, create, 0, 512), 512);
    TelemetryHeader::read(&bytes).expect("512 bytes")
}

/// The text of the last capture.
fn text(controller: &mut Controller) -> String {
    let blocks = header(controller, false).blocks(1).expect("an area");
    let bytes = data(controller, get(HOST_INITIATED, false, 512, blocks * 512), blocks * 512);
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert_eq!(text.trim_end_matches('\0').len().next_multiple_of(512), text.len());
    text.trim_end_matches('\0').to_owned()
}

/// The text of a new capture.
fn captured(controller: &mut Controller) -> String {
    header(controller, true);
    text(controller)
}

#[track_caller]
fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|one| one == *line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn a_capture_stays_until_the_next() {
    let mut controller = enabled();
    let none = header(&mut controller, false);
    assert_eq!(none.log_page, HOST_INITIATED);
    assert_eq!((none.blocks(3), none.generation()), (Ok(0), 0));
    assert_eq!(none.scope(), TelemetryScope::CONTROLLER);

    let first = header(&mut controller, true);
    let blocks = first.blocks(1).expect("an area");
    assert!(blocks > 0);
    assert_eq!((first.blocks(2), first.blocks(3)), (Ok(blocks), Ok(blocks)));
    assert_eq!((first.last_block4.get(), first.generation()), (0, 1));
    assert_eq!((first.available, first.controller_generation), (0, 0));
    assert_eq!(first.reason.raw_text(), Some("weft CSTS=00000001 CW=00"));
    let shown = text(&mut controller);
    has_lines(&shown, &["keep-alive-ms: 0"]);
    // A part that begins within the text.
    let second = data(&mut controller, get(HOST_INITIATED, false, 1024, 512), 512);
    assert!(shown.as_bytes()[512..].starts_with(&second[..16]));

    result(&mut controller, &SetFeatures::new(FeatureId::KEEP_ALIVE_TIMER, 5000).to_command());
    configure(&mut controller, ENABLE.with_enable(false));
    configure(&mut controller, ENABLE);
    assert_eq!(header(&mut controller, false), first, "a reset does not change it");
    assert_eq!(text(&mut controller), shown);
    let next = header(&mut controller, true);
    assert_eq!(next.generation(), 2);
    has_lines(&text(&mut controller), &["keep-alive-ms: 5000", "keep-alive-left-ms: 5000"]);
    for _ in 2..256 {
        header(&mut controller, true);
    }
    assert_eq!(header(&mut controller, false).generation(), 0, "after 255");
}

#[test]
fn telemetry_is_read_in_blocks() {
    let mut controller = enabled();
    let first = header(&mut controller, true);
    for log_page in [HOST_INITIATED, CONTROLLER_INITIATED] {
        for (offset, length) in [(0, 508), (0, 516), (4, 512), (256, 512), (u64::MAX - 511, 512)] {
            let command = get(log_page, true, offset, length);
            assert_eq!(refused(&mut controller, &command), INVALID, "{offset} {length}");
        }
    }
    assert_eq!(refused(&mut controller, &get(HOST_INITIATED, true, 1 << 20, 512)), INVALID);
    assert_eq!(header(&mut controller, false), first, "what is refused captures nothing");
    let end = u64::from(first.blocks(3).expect("an area") + 1) * 512;
    assert_eq!(refused(&mut controller, &get(HOST_INITIATED, false, end + 512, 512)), INVALID);
    let end = data(&mut controller, get(HOST_INITIATED, false, end, 1024), 1024);
    assert_eq!(end, [0; 1024], "nothing is behind the last block");
}

#[test]
fn a_controller_captures_nothing_by_itself() {
    let mut controller = enabled();
    header(&mut controller, true);
    for create in [false, true] {
        let bytes = data(&mut controller, get(CONTROLLER_INITIATED, create, 0, 1024), 1024);
        let header = TelemetryHeader::read(&bytes).expect("512 bytes");
        assert_eq!(header.log_page, CONTROLLER_INITIATED);
        assert_eq!((header.available, header.generation(), header.blocks(3)), (0, 0, Ok(0)));
        assert_eq!(header.scope(), TelemetryScope::CONTROLLER);
        assert_eq!(bytes[384..], [0; 640]);
    }
}

#[test]
fn telemetry_is_shown_as_supported() {
    let mut controller = enabled();
    let bytes = data(&mut controller, Identify::new(Cns::CONTROLLER, 0).to_command(), 4096);
    let identified = identify::Controller::read(&bytes).expect("4096 bytes");
    let attributes = identified.log_page_attributes;
    assert_eq!((attributes.telemetry(), attributes.telemetry_data_area4()), (true, false));
    let command = GetLogPage::new(LogPageId::SUPPORTED_LOG_PAGES, 0, 1024).to_command();
    let bytes = data(&mut controller, command, 1024);
    let supported = SupportedLogPages::read(&bytes).expect("1024 bytes");
    assert_eq!(supported.get(HOST_INITIATED).specific(), 0, "no Maximum Created Data Area");
}

#[test]
fn telemetry_says_what_the_controller_knows() {
    let mut view = view(&[1, 3]);
    view.serial = "WEFT\nhost: another".into();
    view.namespaces.get_mut(3).expect("there").lost_writes = true;
    view.namespaces.get_mut(3).expect("there").write_protected = true;
    let other = nqn("nqn.2024-01.io.weft:other-host");
    view.allowed_hosts = Some(Arc::new([nqn(HOST), other].into()));
    let mut elsewhere = ConnectRequest { host: other, ..request(0, 31, 0xffff) };
    elsewhere.host_id = [0xab; 16];
    let mut another = Controller::new(Arc::new(view.clone()), &elsewhere, 8, LOCAL, NOW);
    configure(&mut another, ENABLE);

    let mut controller = enabled_of(view).at_port(5);
    attach(&mut controller, 2).shared.count_command();
    let wait = Command::new(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).with_command_id(1);
    assert_eq!(controller.handle_command(&wait, &[], NOW), AdminReply::Pending);
    let set = SetFeatures::new(FeatureId::VOLATILE_WRITE_CACHE, 0).to_command();
    result(&mut controller, &set);
    let bad = Identify::new(Cns(0x77), 3).to_command();
    refused(&mut controller, &bad.with_data_pointer(Descriptor::transport(4096)));
    configure(&mut another, ENABLE.with_enable(false));

    let text = captured(&mut controller);
    assert!(text.starts_with("weft-telemetry: 1\nweft: "), "{text}");
    has_lines(
        &text,
        &[
            &format!("subsystem: {SUBSYSTEM}"),
            "serial: WEFT?host: another",
            "firmware: 0.1",
            "controller: 9",
            &format!("host: {HOST}"),
            "host-id: 07070707070707070707070707070707",
            "transport: tcp",
            "port: 5",
            "csts: 0x00000001",
            "critical-warning: 0x04",
            "feature: 06h value=0x0 (Volatile Write Cache)",
            "event-requests: 1",
            "admin-queue: entries=32 flow-control=true head=5",
            "io-queues: 1",
            "io-queue: 2 entries=128 flow-control=true commands=1 in-flight=1",
            "errors: 1",
            "error: 1 sqid=0 cid=0x55 opcode=06h nsid=3 lba=0 status=0x4002 \
         (Invalid Field in Command, do not retry) byte=40",
            "namespaces: 2",
            "namespace: 1 blocks=1024 block-bytes=512 lost-writes=false detached=false ana-group=1 \
         feature-05h=0x0 feature-82h=0x0 feature-83h=0x0 feature-84h=0x0",
            "namespace: 3 blocks=1024 block-bytes=512 lost-writes=true detached=false ana-group=1 \
         feature-05h=0x0 feature-82h=0x0 feature-83h=0x0 feature-84h=0x1",
        ],
    );
    let reset = "04h controller=0x8 time=1000000 ms since reset (Power-on or Reset)";
    has_lines(&text, &[&format!("persistent-event: {reset}")]);
    assert!(!text.contains("other-host") && !text.contains("abab"), "nothing of other hosts");
}

/// Namespaces come last and are what is left out.
#[test]
fn telemetry_is_bounded() {
    let mut big = view(&[]);
    big.namespaces = (1..=8192).map(namespace).collect();
    let text = captured(&mut enabled_of(big));
    let cut_off = "\ncut-off: true\n";
    let lines = text.strip_suffix(cut_off).expect("cut off");
    assert!((32 * 1024 - 200..32 * 1024).contains(&lines.len()), "{}", lines.len());
    has_lines(lines, &["errors: 0", "namespaces: 8192"]);
    assert!(lines.lines().last().is_some_and(|line| line.starts_with("namespace: ")));
    assert!(!captured(&mut enabled()).contains(cut_off));
}
