//! `weft read`, `weft write` and `weft compare`.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use clap::Args;
use weft_host::Namespace;

use crate::connection::{Connection, NamespaceChoice};
use crate::failure::Failure;
use crate::output;
use crate::values::size;

/// Bytes of one read or write call.
const PIECE_BYTES: u64 = 1 << 20;

/// Options of `weft read`, `weft write` and `weft compare`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    #[command(flatten)]
    report: output::BlockReport,
    /// First logical block (SLBA).
    #[arg(long, default_value_t = 0, value_name = "BLOCK")]
    start_block: u64,
    /// Number of logical blocks (nvme-cli's option is this number minus 1).
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    block_count: Option<u64>,
    /// Number of bytes: a size such as 4096 or 1MiB.
    #[arg(short = 'z', long, value_parser = size, value_name = "SIZE")]
    data_size: Option<u64>,
    /// File for the data; by default standard input or output.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// For writes: complete when the data is durable (FUA).
    #[arg(short, long, visible_alias = "force-unit-access")]
    fua: bool,
}

pub(crate) fn read(options: &Options) -> Result<(), Failure> {
    if options.report.is_json() && options.data.is_none() {
        return Err(Failure::because("standard output is for JSON: give --data FILE"));
    }
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    let length = length(options, &namespace)?;
    let Some(length) = length else {
        return Err(Failure::because("no length given: use --block-count or --data-size"));
    };
    let (mut offset, mut left) = (start(options, &namespace)?, length);
    check_range(offset, length, &namespace)?;
    let mut sink = Sink::open(options)?;
    while left > 0 {
        let now = left.min(PIECE_BYTES);
        // The last block is read whole; the bytes beyond the requested size are dropped.
        let whole = whole_blocks(now, &namespace);
        let mut piece = vec![0; usize_of(whole)];
        namespace.read(offset, &mut piece)?;
        piece.truncate(usize_of(now));
        sink.write(&piece)?;
        offset += now;
        left -= now;
    }
    sink.finish()?;
    if options.report.is_json() {
        options.report.print("", namespace.nsid(), length)?;
    }
    Ok(controller.disconnect()?)
}

pub(crate) fn write(options: &Options) -> Result<(), Failure> {
    each_piece(options, "wrote", "to", |namespace, offset, piece| match options.fua {
        true => namespace.write_durable(offset, piece),
        false => namespace.write(offset, piece),
    })
}

/// The first piece that differs ends it.
pub(crate) fn compare(options: &Options) -> Result<(), Failure> {
    if options.fua {
        return Err(Failure::because("--fua is for writes"));
    }
    each_piece(options, "compared", "with", Namespace::compare)
}

/// Does something with each piece of the data; `what` was done to so many bytes `how`.
fn each_piece(
    options: &Options,
    what: &str,
    how: &str,
    action: impl Fn(&Namespace, u64, &[u8]) -> Result<(), weft_host::Error>,
) -> Result<(), Failure> {
    let mut source = Source::open(options)?;
    let (controller, namespace) = options.connection.namespace(&options.namespace)?;
    let length = length(options, &namespace)?;
    let (mut offset, mut left) = (start(options, &namespace)?, length.unwrap_or(u64::MAX));
    check_range(offset, length.or(source.bytes).unwrap_or(0), &namespace)?;
    let mut done: u64 = 0;
    while left > 0 {
        let mut piece = source.take(left.min(PIECE_BYTES))?;
        let got = piece.len() as u64;
        if got == 0 {
            break;
        }
        if got < left.min(PIECE_BYTES) && length.is_some() {
            let name = &source.name;
            return Err(Failure::Because(format!(
                "{name} ended after {} bytes of {}",
                done + got,
                length.unwrap_or(0)
            )));
        }
        if !got.is_multiple_of(u64::from(namespace.block_bytes())) {
            return Err(Failure::Because(format!(
                "{} bytes are not a multiple of the block size, {} bytes; it {what} {done}",
                done + got,
                namespace.block_bytes()
            )));
        }
        let result = check_range(offset, got, &namespace)
            .and_then(|()| Ok(action(&namespace, offset, &piece)?));
        result.map_err(|failure| match failure {
            Failure::Because(why) => Failure::Because(format!("{why}; it {what} {done} bytes")),
            other => other,
        })?;
        piece.clear();
        offset += got;
        done += got;
        left -= got;
    }
    let nsid = namespace.nsid();
    options.report.print(&format!("{what} {done} bytes {how} namespace {nsid}"), nsid, done)?;
    Ok(controller.disconnect()?)
}

fn start(options: &Options, namespace: &Namespace) -> Result<u64, Failure> {
    let block_bytes = u64::from(namespace.block_bytes());
    options.start_block.checked_mul(block_bytes).ok_or_else(|| {
        Failure::Because(format!("block {} is beyond any namespace", options.start_block))
    })
}

/// Checks the range before anything is read or written.
fn check_range(offset: u64, length: u64, namespace: &Namespace) -> Result<(), Failure> {
    let end = offset.checked_add(length).filter(|end| *end <= namespace.bytes());
    match end {
        Some(_) => Ok(()),
        None => Err(Failure::Because(format!(
            "{length} bytes from block {} on go beyond the end: the namespace has {} blocks of \
             {} bytes",
            offset / u64::from(namespace.block_bytes()),
            namespace.bytes() / u64::from(namespace.block_bytes()),
            namespace.block_bytes(),
        ))),
    }
}

/// The number of bytes, if given.
fn length(options: &Options, namespace: &Namespace) -> Result<Option<u64>, Failure> {
    let block_bytes = u64::from(namespace.block_bytes());
    let by_count =
        match options.block_count {
            Some(blocks) => Some(blocks.checked_mul(block_bytes).ok_or_else(|| {
                Failure::Because(format!("{blocks} blocks exceed any namespace"))
            })?),
            None => None,
        };
    if let (Some(count), Some(size)) = (by_count, options.data_size)
        && size > count
    {
        return Err(Failure::Because(format!(
            "--data-size {size} exceeds the {count} bytes of --block-count"
        )));
    }
    Ok(options.data_size.or(by_count))
}

fn whole_blocks(bytes: u64, namespace: &Namespace) -> u64 {
    bytes.next_multiple_of(u64::from(namespace.block_bytes()))
}

fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The destination of read data.
struct Sink {
    file: Option<(File, String)>,
}

impl Sink {
    fn open(options: &Options) -> Result<Self, Failure> {
        let Some(path) = &options.data else {
            if io::stdout().is_terminal() {
                return Err(Failure::because(
                    "standard output is a terminal: redirect it to a file or a pipe, or give \
                     --data FILE",
                ));
            }
            return Ok(Self { file: None });
        };
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| Failure::io("create", &name, &error))?;
        Ok(Self { file: Some((file, name)) })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.file {
            Some((file, name)) => {
                file.write_all(bytes).map_err(|error| Failure::io("write", name, &error))
            }
            None => output::print_bytes(bytes),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self.file {
            Some((file, name)) => {
                file.sync_all().or_else(not_a_disk).map_err(|e| Failure::io("write", &name, &e))
            }
            None => Ok(()),
        }
    }
}

/// A pipe or terminal cannot be synced and need not be.
fn not_a_disk(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::InvalidInput { Ok(()) } else { Err(error) }
}

/// The source of written data.
struct Source {
    from: Box<dyn Read>,
    name: String,
    /// How many there are, of a file.
    bytes: Option<u64>,
}

impl Source {
    fn open(options: &Options) -> Result<Self, Failure> {
        let Some(path) = &options.data else {
            let name = "standard input".to_owned();
            return Ok(Self { from: Box::new(io::stdin()), name, bytes: None });
        };
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Failure::io("open", &name, &error))?;
        let bytes = file.metadata().ok().filter(|file| file.is_file()).map(|file| file.len());
        Ok(Self { from: Box::new(file), name, bytes })
    }

    /// The next bytes; fewer than requested only at the end.
    fn take(&mut self, bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut piece = Vec::new();
        let read = self.from.by_ref().take(bytes).read_to_end(&mut piece);
        read.map_err(|error| Failure::io("read", &self.name, &error))?;
        Ok(piece)
    }
}
