//! The telemetry log pages: what a controller says of its state, as its vendor writes it.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use weft_nvme::log_page::{GetLogPage, LogPageId, TelemetryHeader, TelemetryParameter};
use weft_nvme::{TruncationError, Wire};

use super::{Page, short};
use crate::failure::Failure;
use crate::fields::{Field, hex, meaning, plain};

const HOST_INITIATED: LogPageId = LogPageId::TELEMETRY_HOST_INITIATED;
const CONTROLLER_INITIATED: LogPageId = LogPageId::TELEMETRY_CONTROLLER_INITIATED;

/// Bytes of the header and of each block.
const BLOCK: u32 = 512;

/// The options of telemetry, with nvme-cli's names.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Telemetry")]
pub(super) struct Telemetry {
    /// File for the log page, header and data. Without one the data are shown if they are text.
    #[arg(short = 'O', long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// 1: the controller captures its state for this (the default); 0: what it has captured last.
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    host_generate: Option<u8>,
    /// What the controller has captured by itself (Telemetry Controller-Initiated).
    #[arg(long, conflicts_with = "host_generate")]
    controller_init: bool,
    /// The largest data area to read: 1, 2 or 3, the default.
    #[arg(long, value_name = "AREA", value_parser = clap::value_parser!(u8).range(1..=3))]
    data_area: Option<u8>,
}

/// Whether it is one of the telemetry log pages.
pub(super) fn is_telemetry(id: LogPageId) -> bool {
    [HOST_INITIATED, CONTROLLER_INITIATED].contains(&id)
}

impl Telemetry {
    /// The log page that is meant where this one is named.
    pub(super) fn page(&self, id: LogPageId) -> Result<LogPageId, Failure> {
        match id {
            HOST_INITIATED if self.controller_init => Ok(CONTROLLER_INITIATED),
            CONTROLLER_INITIATED if self.host_generate.is_some() => {
                Err(Failure::because("--host-generate is for Telemetry Host-Initiated"))
            }
            id if is_telemetry(id) || *self == Self::default() => Ok(id),
            id => Err(Failure::Because(format!(
                "--output-file, --host-generate, --controller-init and --data-area are for \
                 telemetry, not for {id}"
            ))),
        }
    }

    /// Reads the log page by what carries out a command of whole blocks, and writes the file. What
    /// a controller has captured by itself is acknowledged then, unless it is to be retained: the
    /// controller may give it up.
    pub(super) fn read(
        &self,
        id: LogPageId,
        retain: bool,
        get: impl Fn(GetLogPage) -> Result<Vec<u8>, Failure>,
    ) -> Result<Page, Failure> {
        let part = |create, retain_event, offset, length| {
            let specific_parameter = TelemetryParameter(0).with_create(create).0;
            let part = GetLogPage::new(id, offset, length);
            get(GetLogPage { specific_parameter, retain_event, ..part })
        };
        let is_of_host = id == HOST_INITIATED;
        let create = is_of_host && self.host_generate != Some(0);
        let first = header(&part(create, true, 0, BLOCK)?, id)?;
        let length = match is_of_host || first.available != 0 {
            true => first.blocks(self.data_area.unwrap_or(3)).map_err(Failure::because)? * BLOCK,
            false => 0,
        };
        let data = match length {
            0 => Vec::new(),
            length => part(false, true, BLOCK.into(), length)?,
        };
        let needed = length as usize;
        if data.len() != needed {
            return Err(short(TruncationError { needed, available: data.len() }));
        }
        if header(&part(false, true, 0, BLOCK)?, id)?.generation() != first.generation() {
            return Err(Failure::because("the log has changed while it was read: read it again"));
        }
        let (note, text) = match (&self.output_file, text(&data)) {
            (Some(file), _) => {
                fs::write(file, [first.bytes(), &data[..]].concat())
                    .map_err(|error| Failure::io("write", &file.display(), &error))?;
                (format!("in {}", file.display()), None)
            }
            (None, Some(text)) => (String::new(), Some(text.to_owned())),
            (None, None) => ("not text: --output-file keeps them".to_owned(), None),
        };
        let is_kept = self.output_file.is_some() || text.is_some();
        if !is_of_host && !retain && is_kept {
            part(false, false, 0, BLOCK)?;
        }
        let mut fields = shown(&first);
        fields.push(meaning("bytes", data.len(), note));
        Ok(Page::Telemetry(fields, text))
    }
}

fn header(bytes: &[u8], id: LogPageId) -> Result<TelemetryHeader, Failure> {
    let header = TelemetryHeader::read(bytes).map_err(short)?;
    if header.log_page != id {
        let other = header.log_page;
        return Err(Failure::Because(format!("the controller sent {other} instead of {id}")));
    }
    Ok(header)
}

fn shown(header: &TelemetryHeader) -> Vec<Field> {
    let is_of_host = header.log_page == HOST_INITIATED;
    let [dalb1, dalb2, dalb3] = header.last_blocks.map(|block| block.get());
    let scope = header.scope();
    let reason = text(&header.reason.0).map(|text| text.trim_end().to_owned());
    let mut fields = vec![
        meaning("lpi", header.log_page.0, header.log_page.to_string()),
        plain("ieee", hex(&header.ieee_oui)),
        plain("dalb1", dalb1),
        plain("dalb2", dalb2),
        plain("dalb3", dalb3),
        plain("dalb4", header.last_block4.get()),
        meaning(if is_of_host { "ths" } else { "tcs" }, scope.0, scope.to_string()),
    ];
    if is_of_host {
        fields.push(plain("hostdgn", header.generation()));
    }
    fields.extend([
        plain("ctrlavail", header.available),
        plain("ctrldgn", header.controller_generation),
        plain("rsnident", reason.unwrap_or_else(|| hex(&header.reason.0))),
    ]);
    fields
}

/// The bytes up to the padding as text, if they are text that does nothing to a terminal.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    text.chars().all(|one| !one.is_control() || matches!(one, '\n' | '\t')).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use weft_nvme::wire::{Text, U16};

    use super::*;
    use crate::log_page::{as_json, human};

    /// A log page with these last blocks, as long as area 3.
    fn page(id: LogPageId, blocks: [u16; 3], text: &str) -> Vec<u8> {
        let header = TelemetryHeader {
            log_page: id,
            last_blocks: blocks.map(U16::new),
            host_generation_or_scope: 1,
            available: 1,
            reason: Text::new("fine"),
            ..TelemetryHeader::zeroed()
        };
        let mut page = [header.bytes(), text.as_bytes()].concat();
        page.resize(512 + usize::from(blocks[2]) * 512, 0);
        page
    }

    fn part(page: &[u8], get: GetLogPage) -> Vec<u8> {
        let from = usize::try_from(get.offset).expect("small");
        page[from..from + usize::try_from(get.length()).expect("small")].to_vec()
    }

    fn why(read: Result<Page, Failure>) -> String {
        format!("{:?}", read.expect_err("a failure"))
    }

    #[test]
    fn telemetry_is_captured_once_and_read_to_the_end_of_an_area() {
        let bytes = page(HOST_INITIATED, [1, 1, 3], "weft-telemetry: 1\nµ: 2\n");
        let read = |options: Telemetry| {
            let asked = RefCell::new(Vec::new());
            let read = options.read(HOST_INITIATED, false, |get| {
                asked.borrow_mut().push((get.specific_parameter, get.offset, get.length()));
                Ok(part(&bytes, get))
            });
            (read.expect("a page"), asked.into_inner())
        };
        let (shown, asked) = read(Telemetry::default());
        assert_eq!(asked, [(1, 0, 512), (0, 512, 1536), (0, 0, 512)]);
        let text = human(&shown);
        assert!(text.ends_with("rsnident  : fine\nbytes     : 1536\n\nweft-telemetry: 1\nµ: 2\n"));
        assert!(text.contains("hostdgn   : 1\n"), "{text}");
        let value = as_json(shown);
        assert_eq!(
            (&value["dalb3"], &value["text"]),
            (&3.into(), &"weft-telemetry: 1\nµ: 2\n".into())
        );
        let old = Telemetry { host_generate: Some(0), data_area: Some(2), ..Telemetry::default() };
        assert_eq!(read(old).1, [(0, 0, 512), (0, 512, 512), (0, 0, 512)]);

        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("telemetry");
        let options = Telemetry { output_file: Some(file.clone()), ..Telemetry::default() };
        let saved = human(&read(options).0);
        assert!(
            saved.ends_with(&format!("bytes     : 1536  (in {})\n", file.display())),
            "{saved}"
        );
        assert!(fs::read(&file).expect("the file") == bytes);
    }

    #[test]
    fn what_a_controller_has_captured_is_acknowledged_once_it_is_kept() {
        let mut bytes = page(CONTROLLER_INITIATED, [2, 2, 2], "text");
        let read = |bytes: &[u8], retain, file: &str| {
            let asked = RefCell::new(Vec::new());
            let output_file = (!file.is_empty()).then(|| file.into());
            let options = Telemetry { output_file, ..Telemetry::default() };
            let read = options.read(CONTROLLER_INITIATED, retain, |get| {
                assert_eq!(get.specific_parameter, 0, "nothing is captured");
                asked.borrow_mut().push((get.retain_event, get.length()));
                Ok(part(bytes, get))
            });
            (read, asked.into_inner())
        };
        let all = [(true, 512), (true, 1024), (true, 512), (false, 512)];
        let (shown, asked) = read(&bytes, false, "");
        assert_eq!(asked, all);
        assert!(human(&shown.expect("a page")).contains("tcs       : 1  (Controller)\nctrlavail"));
        assert_eq!(read(&bytes, true, "").1, all[..3], "retained");
        let (failed, asked) = read(&bytes, false, "/no/such/folder/file");
        assert!(why(failed).contains("/no/such/folder/file"));
        assert_eq!(asked, all[..3], "it can be read again");
        let binary = page(CONTROLLER_INITIATED, [2, 2, 2], "\x01");
        assert_eq!(read(&binary, false, "").1, all[..3], "neither shown nor in a file");
        // Not available: whatever the last blocks say.
        bytes[382] = 0;
        let (shown, asked) = read(&bytes, true, "");
        assert_eq!(asked, [(true, 512), (true, 512)]);
        assert!(human(&shown.expect("a page")).ends_with("bytes     : 0\n\n"));
    }

    #[test]
    fn no_header_is_trusted() {
        let options = Telemetry::default();
        let of = |bytes: Vec<u8>| {
            options.read(HOST_INITIATED, false, |get| {
                assert!(get.length() <= 65535 * 512, "bounded");
                let from = usize::try_from(get.offset).expect("small");
                let rest = bytes.get(from..).unwrap_or_default();
                let length = usize::try_from(get.length()).expect("small");
                Ok(rest[..rest.len().min(length)].to_vec())
            })
        };
        assert!(why(of(page(HOST_INITIATED, [3, 1, 4], ""))).contains("ends before"));
        assert!(why(of(page(HOST_INITIATED, [1, 4, 3], ""))).contains("ends before"));
        assert!(why(of(page(CONTROLLER_INITIATED, [1, 1, 1], ""))).contains("instead of"));
        let whole = page(HOST_INITIATED, [1, 1, 65535], "");
        assert!(of(whole.clone()).is_ok());
        for cut in [0, 511, 1024, whole.len() - 1] {
            assert!(why(of(whole[..cut].to_vec())).contains("less than the whole"), "{cut}");
        }
        let reads = RefCell::new(0);
        let changing = options.read(HOST_INITIATED, false, |get| {
            let mut bytes = page(HOST_INITIATED, [1, 1, 1], "");
            *reads.borrow_mut() += 1;
            bytes[381] = *reads.borrow();
            Ok(part(&bytes, get))
        });
        assert!(why(changing).contains("read it again"));
    }

    #[test]
    fn what_is_not_text_is_not_shown() {
        for bytes in [&b"\x1b[2J"[..], b"a\0b", b"\xff", b"\x7f", b"\rover"] {
            assert_eq!(text(bytes), None, "{bytes:?}");
        }
        assert_eq!(text(b"a\tb\n\0\0"), Some("a\tb\n"));
        let mut bytes = page(HOST_INITIATED, [1, 1, 1], "\x1b[2J");
        bytes[384] = 0x1b;
        let shown = Telemetry::default().read(HOST_INITIATED, false, |get| Ok(part(&bytes, get)));
        let shown = human(&shown.expect("a page"));
        assert!(shown.ends_with("bytes     : 512  (not text: --output-file keeps them)\n"));
        assert!(shown.contains("rsnident  : 1b696e65") && !shown.contains('\x1b'), "{shown}");
    }

    #[test]
    fn options_of_telemetry_are_for_nothing_else() {
        let file = Telemetry { output_file: Some("file".into()), ..Telemetry::default() };
        assert!(file.page(LogPageId::HEALTH).is_err());
        assert!(file.page(HOST_INITIATED).is_ok_and(|id| id == HOST_INITIATED));
        assert!(Telemetry::default().page(LogPageId::HEALTH).is_ok());
        let of_controller = Telemetry { controller_init: true, ..Telemetry::default() };
        assert!(of_controller.page(HOST_INITIATED).is_ok_and(|id| id == CONTROLLER_INITIATED));
        let generate = Telemetry { host_generate: Some(1), ..Telemetry::default() };
        assert!(generate.page(CONTROLLER_INITIATED).is_err());
    }
}
