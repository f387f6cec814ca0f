//! Devices as configuration: text of a command line, or data of a configuration file.
//!
//! The same device in three forms:
//!
//! ```
//! # use weft_backend::DeviceSpec;
//! let short = DeviceSpec::memory("1GiB,block=512")?;
//! let whole: DeviceSpec = "memory:1GiB,block=512".parse()?;
//! let plain = DeviceSpec::Memory { bytes: 1 << 30, block_bytes: 512 };
//! assert_eq!(short, plain);
//! assert_eq!(whole, plain);
//! # Ok::<(), weft_backend::ParseSpecError>(())
//! ```
//!
//! The full form starts with the kind: `memory:SIZE`, `null:SIZE`, `file:PATH`, `block:PATH`, and
//! the wrappers `delay:read=50us,write=1ms:DEVICE`, `uncorrectable:file=PATH:DEVICE` (or
//! `uncorrectable::DEVICE`) and `fault:RULE;RULE…:DEVICE` with rules such as
//! `operation=write,nth=3,effect=media-write`. Options follow after commas: `block=512` (bytes);
//! for a file also `size=1GiB` (create it, or extend it to that), `direct=on|off` and `read-only`;
//! and `shared` if other processes may write to it, too. A comma in a path is written twice:
//! `file:/a,,b.img,read-only`. An image of a Ceph cluster is `rbd:POOL/IMAGE`; its options are
//! those of [`rbd`](crate::rbd).

mod text;

use crate::block::BlockFactory;
use crate::delay::DelayFactory;
use crate::error::check_size;
use crate::fault::FaultFactory;
use crate::file::{FileFactory, FileOptions};
use crate::limits::LAYERS_MAX;
use crate::memory::MemoryFactory;
use crate::null::NullFactory;
use crate::nvme::NvmeFactory;
use crate::rbd::{RbdFactory, RbdSpec, UnopenedImage};
use crate::uncorrectable::UncorrectableFactory;
use crate::{
    BLOCK_BYTES_DEFAULT, DeviceFactory, Effect, FaultRule, OpenError, OperationKind, bytes,
    duration, files,
};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{BLOCK_BYTES_MIN, check_block_size, checked_path, escape_commas, pairs, per_million};
pub use text::{ParseSpecError, meant, nearest, split_path};
pub(crate) use text::{block_size, size, switch, unknown};

/// The description of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DeviceSpec {
    /// Memory of this process; empty at each start.
    Memory {
        /// The size.
        #[serde(with = "bytes::as_text", alias = "size")]
        bytes: u64,
        /// 512 or 4096.
        #[serde(default = "block_bytes_default")]
        block_bytes: u32,
    },
    /// Discards writes and reads as zeroes.
    Null {
        /// The size.
        #[serde(with = "bytes::as_text", alias = "size")]
        bytes: u64,
        /// 512 or 4096.
        #[serde(default = "block_bytes_default")]
        block_bytes: u32,
    },
    /// A regular file.
    File {
        /// Its path.
        path: PathBuf,
        /// Create the file with this size if it does not exist; extend it if it is smaller.
        #[serde(
            default,
            with = "bytes::as_text::option",
            alias = "size",
            skip_serializing_if = "Option::is_none"
        )]
        create_bytes: Option<u64>,
        /// 512 or 4096; by default 4096 if the size is a multiple of it, else 512.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block_bytes: Option<u32>,
        /// Use `O_DIRECT`, or the page cache; by default `O_DIRECT` where it works.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direct: Option<bool>,
        /// Refuse writes.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        read_only: bool,
        /// Other processes may write to it, too.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        shared: bool,
    },
    /// A block device, or a namespace of an NVMe device without the block layer.
    Block {
        /// Its node, such as `/dev/sdb` or `/dev/ng0n1`.
        path: PathBuf,
        /// Refuse writes.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        read_only: bool,
        /// Other processes may write to it, too.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        shared: bool,
        /// Completions of reads and writes are polled, as by fio's `hipri`.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        polled: bool,
    },
    /// An image of a Ceph cluster.
    Rbd(Box<RbdSpec>),
    /// Another device with delays.
    Delay {
        /// The delay of reads.
        #[serde(default, with = "duration::as_text")]
        read: Duration,
        /// The delay of all other operations.
        #[serde(default, with = "duration::as_text")]
        write: Duration,
        /// The inner device.
        inner: Box<DeviceSpec>,
    },
    /// Another device with injected faults.
    Fault {
        /// The rules; the first that hits a request decides.
        rules: Vec<FaultRule>,
        /// The inner device.
        inner: Box<DeviceSpec>,
    },
    /// Another device whose blocks can be marked as unreadable.
    Uncorrectable {
        /// Where the marks are kept; if absent, they are gone when the process ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// The inner device.
        inner: Box<DeviceSpec>,
    },
}

impl DeviceSpec {
    /// The same device, opened so that other processes may write to it, too.
    #[must_use]
    pub fn into_shared(mut self) -> Self {
        self.share();
        self
    }

    /// The same for the namespace of this number, from 0: all but the first have files of their
    /// own, with `.2` and so on behind their names.
    #[must_use]
    pub fn numbered(mut self, number: usize) -> Self {
        if number > 0 {
            self.rename_files(&format!(".{}", number + 1));
        }
        self
    }

    /// The same block device, of which the completions of reads and writes are polled.
    ///
    /// # Errors
    /// A sentence: it is none.
    pub fn into_polled(mut self) -> Result<Self, String> {
        let mut inner = &mut self;
        while let Self::Delay { inner: next, .. }
        | Self::Fault { inner: next, .. }
        | Self::Uncorrectable { inner: next, .. } = inner
        {
            inner = next;
        }
        match inner {
            Self::Block { polled, .. } => *polled = true,
            Self::File { .. } => {
                return Err(format!(
                    "hipri polls the queues of a block device, and {inner} is a file"
                ));
            }
            _ => {
                return Err(format!(
                    "hipri polls the queues of a block device, and {inner} has none"
                ));
            }
        }
        Ok(self)
    }

    fn share(&mut self) {
        match self {
            // Ceph keeps the writers of an image apart.
            Self::Memory { .. } | Self::Null { .. } | Self::Rbd(_) => {}
            Self::File { shared, .. } | Self::Block { shared, .. } => *shared = true,
            Self::Delay { inner, .. }
            | Self::Fault { inner, .. }
            | Self::Uncorrectable { inner, .. } => inner.share(),
        }
    }

    fn rename_files(&mut self, suffix: &str) {
        match self {
            Self::Memory { .. } | Self::Null { .. } | Self::Block { .. } | Self::Rbd(_) => {}
            Self::File { path, .. } => path.as_mut_os_string().push(suffix),
            Self::Delay { inner, .. } | Self::Fault { inner, .. } => inner.rename_files(suffix),
            Self::Uncorrectable { file, inner } => {
                file.iter_mut().for_each(|file| file.as_mut_os_string().push(suffix));
                inner.rename_files(suffix);
            }
        }
    }

    /// Reads `SIZE[,block=BYTES]`.
    pub fn memory(text: &str) -> Result<Self, ParseSpecError> {
        let (bytes, block_bytes) = sized(text)?;
        Ok(Self::Memory { bytes, block_bytes })
    }

    /// Reads `SIZE[,block=BYTES]`.
    pub fn null(text: &str) -> Result<Self, ParseSpecError> {
        let (bytes, block_bytes) = sized(text)?;
        Ok(Self::Null { bytes, block_bytes })
    }

    /// The same device with this `direct` option, which only files have.
    #[must_use]
    pub fn with_direct(mut self, direct_io: bool) -> Self {
        if let Self::File { direct, .. } = &mut self {
            *direct = Some(direct_io);
        }
        self
    }

    /// Reads `PATH[,size=SIZE][,block=BYTES][,direct=on|off][,read-only][,shared]`.
    pub fn file(text: &str) -> Result<Self, ParseSpecError> {
        let (path, options) = checked_path(text)?;
        let (mut create_bytes, mut block_bytes, mut direct) = (None, None, None);
        let (mut read_only, mut shared) = (false, false);
        for (key, value) in pairs(options) {
            match key {
                "size" => create_bytes = Some(size(value)?),
                "block" => block_bytes = Some(block_size(value)?),
                "direct" => direct = Some(switch(value)?),
                "read-only" => read_only = switch(value)?,
                "shared" => shared = switch(value)?,
                _ => return Err(unknown(key, "size, block, direct, read-only, shared")),
            }
        }
        let spec = Self::File { path, create_bytes, block_bytes, direct, read_only, shared };
        spec.check().map(|()| spec)
    }

    /// Reads `PATH[,read-only][,shared][,polled]`.
    pub fn block(text: &str) -> Result<Self, ParseSpecError> {
        let (path, options) = checked_path(text)?;
        let (mut read_only, mut shared, mut polled) = (false, false, false);
        for (key, value) in pairs(options) {
            match key {
                "read-only" => read_only = switch(value)?,
                "shared" => shared = switch(value)?,
                "polled" => polled = switch(value)?,
                _ => return Err(unknown(key, "read-only, shared, polled")),
            }
        }
        Ok(Self::Block { path, read_only, shared, polled })
    }

    /// Reads `[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]` with the options of [`rbd`](crate::rbd).
    pub fn rbd(text: &str) -> Result<Self, ParseSpecError> {
        RbdSpec::parse(text).map(|spec| Self::Rbd(Box::new(spec)))
    }

    /// Checks its block size, and the size that a file is to have.
    ///
    /// # Errors
    /// It is not possible, whatever the device contains.
    pub fn check(&self) -> Result<(), ParseSpecError> {
        match self {
            Self::Memory { block_bytes, .. } | Self::Null { block_bytes, .. } => {
                check_block_size(*block_bytes)
            }
            Self::File { create_bytes, block_bytes, .. } => {
                block_bytes.map_or(Ok(()), check_block_size)?;
                let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES_MIN);
                let whole = create_bytes.map_or(Ok(()), |size| check_size(size, block_bytes));
                whole.map_err(|error| ParseSpecError(format!("size: {error}")))
            }
            Self::Block { .. } => Ok(()),
            Self::Rbd(spec) => {
                spec.block_bytes.map_or(Ok(()), check_block_size)?;
                spec.check()
            }
            Self::Delay { inner, .. } | Self::Fault { inner, .. } => inner.check(),
            Self::Uncorrectable { file, inner } => {
                inner.check()?;
                let Some(file) = file else { return Ok(()) };
                if !inner.marks_files().contains(&files::canonical(file)) {
                    return Ok(());
                }
                let what = "keeps the marks of two wrappers; give each a file of its own";
                Err(ParseSpecError(format!("{} {what}", file.display())))
            }
        }
    }

    /// The canonical paths of the files that keep marks of unreadable blocks.
    pub fn marks_files(&self) -> Vec<PathBuf> {
        match self {
            Self::Uncorrectable { file, inner } => {
                let own = file.iter().map(|file| files::canonical(file));
                own.chain(inner.marks_files()).collect()
            }
            Self::Delay { inner, .. } | Self::Fault { inner, .. } => inner.marks_files(),
            _ => Vec::new(),
        }
    }

    /// Opens or creates the device.
    pub fn build(&self) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        self.built(false)
    }

    /// Opens the device only to see whether that is possible: what [`Self::build`] would create or
    /// extend is left as it is, and the cluster of an image is not asked.
    pub fn try_out(&self) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        self.built(true)
    }

    fn built(&self, is_trial: bool) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        self.check().map_err(|error| OpenError::Invalid(error.to_string()))?;
        Ok(match self {
            Self::Memory { bytes, block_bytes } => {
                Arc::new(MemoryFactory::new(*bytes, *block_bytes)?)
            }
            Self::Null { bytes, block_bytes } => Arc::new(NullFactory::new(*bytes, *block_bytes)?),
            Self::File { path, block_bytes, .. } => {
                let options = self.file_options(*block_bytes);
                Arc::new(FileFactory::open(path, FileOptions { is_trial, ..options })?)
            }
            Self::Block { path, read_only, shared, polled: false } if is_character(path) => {
                Arc::new(NvmeFactory::open(path, *read_only, *shared)?)
            }
            Self::Block { path, read_only, shared, polled } => {
                Arc::new(BlockFactory::open(path, *read_only, *shared, *polled)?)
            }
            Self::Rbd(spec) if is_trial => Arc::new(UnopenedImage::new(spec)?),
            Self::Rbd(spec) => Arc::new(RbdFactory::open(spec)?),
            Self::Delay { read, write, inner } => {
                Arc::new(DelayFactory::new(inner.built(is_trial)?, *read, *write)?)
            }
            Self::Fault { rules, inner } => {
                Arc::new(FaultFactory::new(inner.built(is_trial)?, rules.clone())?)
            }
            Self::Uncorrectable { file, inner } => {
                Arc::new(UncorrectableFactory::new(inner.built(is_trial)?, file.clone())?)
            }
        })
    }

    /// The same device, of which nothing is created: it was there before.
    ///
    /// # Errors
    /// A sentence: its file is gone.
    pub fn existing(&self) -> Result<Self, OpenError> {
        let mut existing = self.clone();
        match &mut existing {
            Self::File { path, create_bytes, .. } if !path.exists() => {
                return Err(OpenError::Invalid(gone(path, *create_bytes)));
            }
            Self::Rbd(spec) => spec.create = false,
            Self::Delay { inner, .. }
            | Self::Fault { inner, .. }
            | Self::Uncorrectable { inner, .. } => **inner = inner.existing()?,
            _ => {}
        }
        Ok(existing)
    }

    /// Opens the device for requests that begin and end at multiples of `unit` bytes: a file of
    /// which nothing says otherwise has blocks as small as these, through the page cache of any
    /// size.
    pub fn build_for(&self, unit: u32) -> Result<Arc<dyn DeviceFactory>, OpenError> {
        let Self::File { path, block_bytes: None, direct, .. } = self else { return self.build() };
        if unit.is_multiple_of(BLOCK_BYTES_DEFAULT) {
            return self.build();
        }
        let least = if *direct == Some(false) { 1 } else { BLOCK_BYTES_MIN };
        let block = (1 << unit.trailing_zeros()).max(least);
        Ok(Arc::new(FileFactory::open(path, self.file_options(Some(block)))?))
    }

    /// How a file is opened; of other devices the options of none.
    fn file_options(&self, block_bytes: Option<u32>) -> FileOptions {
        match self {
            Self::File { create_bytes, direct, read_only, shared, .. } => FileOptions {
                create_bytes: *create_bytes,
                block_bytes,
                direct: *direct,
                read_only: *read_only,
                shared: *shared,
                is_trial: false,
            },
            _ => FileOptions::default(),
        }
    }

    /// The device that the others are around.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Delay { inner, .. }
            | Self::Fault { inner, .. }
            | Self::Uncorrectable { inner, .. } => inner.innermost(),
            _ => self,
        }
    }

    /// The path of the innermost device, if it is a file or block device.
    pub fn path(&self) -> Option<&Path> {
        match self.innermost() {
            Self::File { path, .. } | Self::Block { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The size that it is configured to have, if it says one.
    #[must_use]
    pub fn configured_bytes(&self) -> Option<u64> {
        match self.innermost() {
            Self::Memory { bytes, .. } | Self::Null { bytes, .. } => Some(*bytes),
            Self::File { create_bytes, .. } => *create_bytes,
            Self::Rbd(image) => image.least_bytes,
            _ => None,
        }
    }

    /// Configures another size. `false`: it is not configured to have any, or is around another
    /// device.
    pub fn set_bytes(&mut self, size: u64) -> bool {
        match self {
            Self::Memory { bytes, .. } | Self::Null { bytes, .. } => *bytes = size,
            Self::File { create_bytes, .. } => *create_bytes = Some(size),
            Self::Rbd(image) => image.least_bytes = Some(size),
            _ => return false,
        }
        true
    }

    /// A text that names the innermost device in each run, without opening it: the path of a file
    /// or block device (not resolved), or the name of an image. None: its contents end with the
    /// process.
    pub fn stored_name(&self) -> Option<String> {
        match self.innermost() {
            Self::Rbd(spec) => Some(spec.identity()),
            _ => self.path().map(|path| path.display().to_string()),
        }
    }

    /// Whether the innermost device refuses writes.
    pub fn is_read_only(&self) -> bool {
        match self.innermost() {
            Self::File { read_only, .. } | Self::Block { read_only, .. } => *read_only,
            Self::Rbd(spec) => spec.is_read_only(),
            _ => false,
        }
    }
}

/// The full form, which parses to the same device.
impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sized = |f: &mut fmt::Formatter<'_>, kind: &str, bytes: u64, block_bytes: u32| {
            write!(f, "{kind}:{}", bytes::exact(bytes))?;
            match block_bytes {
                BLOCK_BYTES_DEFAULT => Ok(()),
                block_bytes => write!(f, ",block={block_bytes}"),
            }
        };
        match self {
            Self::Memory { bytes, block_bytes } => sized(f, "memory", *bytes, *block_bytes),
            Self::Null { bytes, block_bytes } => sized(f, "null", *bytes, *block_bytes),
            Self::File { path, create_bytes, block_bytes, direct, read_only, shared } => {
                write!(f, "file:{}", escape_commas(path))?;
                if let Some(bytes) = create_bytes {
                    write!(f, ",size={}", bytes::exact(*bytes))?;
                }
                if let Some(block_bytes) = block_bytes {
                    write!(f, ",block={block_bytes}")?;
                }
                if let Some(direct) = direct {
                    write!(f, ",direct={}", if *direct { "on" } else { "off" })?;
                }
                f.write_str(if *read_only { ",read-only" } else { "" })?;
                f.write_str(if *shared { ",shared" } else { "" })
            }
            Self::Block { path, read_only, shared, polled } => {
                write!(f, "block:{}", escape_commas(path))?;
                f.write_str(if *read_only { ",read-only" } else { "" })?;
                f.write_str(if *shared { ",shared" } else { "" })?;
                f.write_str(if *polled { ",polled" } else { "" })
            }
            Self::Rbd(spec) => write!(f, "rbd:{spec}"),
            Self::Delay { read, write, inner } => {
                let (read, write) = (duration::exact(*read), duration::exact(*write));
                write!(f, "delay:read={read},write={write}:{inner}")
            }
            Self::Uncorrectable { file, inner } => {
                f.write_str("uncorrectable:")?;
                if let Some(file) = file {
                    write!(f, "file={}", file.display())?;
                }
                write!(f, ":{inner}")
            }
            Self::Fault { rules, inner } => {
                f.write_str("fault:")?;
                for (index, rule) in rules.iter().enumerate() {
                    write!(f, "{}{rule}", if index == 0 { "" } else { ";" })?;
                }
                write!(f, ":{inner}")
            }
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_within(text, LAYERS_MAX)
    }
}

/// What is said of a file that was there before.
fn gone(path: &Path, create_bytes: Option<u64>) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (path, folder) = (path.display(), folder.unwrap_or(Path::new(".")).display());
    let empty = create_bytes.map_or(String::new(), |size| {
        format!(". To start with an empty file: truncate -s {} {path}", bytes::exact(size))
    });
    format!(
        "{path} was served before and is missing. Mount the file system of {folder}, or put the \
         file back. The name is that of the state file, not of the configuration{empty}"
    )
}

/// Whether a path is a character device, as NVMe namespaces without the block layer are.
fn is_character(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|found| found.file_type().is_char_device())
}

fn block_bytes_default() -> u32 {
    BLOCK_BYTES_DEFAULT
}

fn parse_within(text: &str, layers: u8) -> Result<DeviceSpec, ParseSpecError> {
    let kinds = "memory:SIZE, null:SIZE, file:PATH, block:PATH, rbd:POOL/IMAGE, delay:…:DEVICE, \
                 fault:…:DEVICE or uncorrectable:…:DEVICE";
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| ParseSpecError(format!("{text:?} is not a device (use {kinds})")))?;
    let wrapped = || {
        let (options, inner) = rest.split_once(':').ok_or_else(|| {
            ParseSpecError(format!("{text:?} has no inner device (try {kind}:{rest}:memory:1GiB)"))
        })?;
        let layers = layers.checked_sub(1).ok_or_else(|| {
            ParseSpecError(format!("more than {LAYERS_MAX} wrappers around a device"))
        })?;
        Ok((options, Box::new(parse_within(inner, layers)?)))
    };
    match kind {
        "memory" => DeviceSpec::memory(rest),
        "null" => DeviceSpec::null(rest),
        "file" => DeviceSpec::file(rest),
        "block" => DeviceSpec::block(rest),
        "rbd" => DeviceSpec::rbd(rest),
        "delay" => {
            let (options, inner) = wrapped()?;
            let (mut read, mut write) = (Duration::ZERO, Duration::ZERO);
            for (key, value) in pairs(options) {
                let span =
                    duration::parse(value).map_err(|error| ParseSpecError(error.to_string()))?;
                match key {
                    "read" => read = span,
                    "write" => write = span,
                    "both" => (read, write) = (span, span),
                    _ => return Err(unknown(key, "read, write, both")),
                }
            }
            Ok(DeviceSpec::Delay { read, write, inner })
        }
        "fault" => {
            let (options, inner) = wrapped()?;
            let rules = options.split(';').map(fault_rule).collect::<Result<_, _>>()?;
            Ok(DeviceSpec::Fault { rules, inner })
        }
        "uncorrectable" => {
            let (options, inner) = wrapped()?;
            let mut file = None;
            for (key, value) in pairs(options) {
                match key {
                    "file" if !value.is_empty() => file = Some(PathBuf::from(value)),
                    _ => return Err(unknown(key, "file")),
                }
            }
            Ok(DeviceSpec::Uncorrectable { file, inner })
        }
        _ => {
            let words = kinds.split([',', ' ']).filter_map(|one| Some(one.split_once(':')?.0));
            let meant = meant(kind, words);
            Err(ParseSpecError(format!("{kind:?} is not a kind of device{meant} (use {kinds})")))
        }
    }
}

fn sized(text: &str) -> Result<(u64, u32), ParseSpecError> {
    let (bytes, options) = text.split_once(',').unwrap_or((text, ""));
    let bytes = size(bytes)?;
    let mut block_bytes = BLOCK_BYTES_DEFAULT;
    for (key, value) in pairs(options) {
        match key {
            "block" => block_bytes = block_size(value)?,
            _ => return Err(unknown(key, "block")),
        }
    }
    Ok((bytes, block_bytes))
}

fn fault_rule(text: &str) -> Result<FaultRule, ParseSpecError> {
    let mut rule = FaultRule::default();
    for (key, value) in pairs(text) {
        let bad = || ParseSpecError(format!("{value:?} is not a value of {key}"));
        let number = || value.parse::<u64>().map_err(|_| bad());
        match key {
            "operation" => {
                rule.operation = Some(OperationKind::from_name(value).ok_or_else(bad)?);
            }
            "first-block" => rule.first_block = number()?,
            "last-block" => rule.last_block = Some(number()?),
            "nth" => rule.nth = Some(number()?),
            "probability" => rule.per_million = Some(per_million(value).ok_or_else(bad)?),
            "seed" => rule.seed = number()?,
            "times" => rule.times = Some(number()?),
            "effect" => {
                rule.effect = Effect::from_str(value).map_err(|e| ParseSpecError(e.to_string()))?;
            }
            _ => {
                let known = "operation, first-block, last-block, nth, probability, seed, times, \
                             effect";
                return Err(unknown(key, known));
            }
        }
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<DeviceSpec, ParseSpecError> {
        text.parse()
    }

    #[test]
    fn each_namespace_has_a_file_of_its_own() {
        let device: DeviceSpec = "delay:read=80us:file:/a,size=1GiB".parse().expect("a device");
        assert_eq!(device.clone().numbered(0), device);
        let second = "delay:read=80us:file:/a.2,size=1GiB".parse::<DeviceSpec>();
        assert_eq!(second.as_ref(), Ok(&device.numbered(1)));
        let marks: DeviceSpec = "uncorrectable:file=/m:memory:1GiB".parse().expect("a device");
        let third = "uncorrectable:file=/m.3:memory:1GiB".parse::<DeviceSpec>();
        assert_eq!(third.as_ref(), Ok(&marks.numbered(2)));
    }

    #[test]
    fn short_forms() {
        let plain = DeviceSpec::Memory { bytes: 1 << 30, block_bytes: 4096 };
        assert_eq!(DeviceSpec::memory("1GiB"), Ok(plain));
        let small = DeviceSpec::Null { bytes: 1 << 40, block_bytes: 512 };
        assert_eq!(DeviceSpec::null("1TiB,block=512"), Ok(small));
        let file = DeviceSpec::File {
            path: "/a,b=c,x,".into(),
            create_bytes: Some(512 << 20),
            block_bytes: Some(4096),
            direct: Some(false),
            read_only: true,
            shared: true,
        };
        let text = "/a,,b=c,,x,,,size=512M,block=4k,direct=off,read-only,shared";
        assert_eq!(DeviceSpec::file(text), Ok(file));
        let (read_only, shared) = (false, true);
        let block = DeviceSpec::Block { path: "/dev/sdb".into(), read_only, shared, polled: false };
        assert_eq!(DeviceSpec::block("/dev/sdb,shared"), Ok(block.clone()));
        assert_eq!(block.to_string(), "block:/dev/sdb,shared");
        let polled = block.into_polled().expect("a block device");
        assert_eq!(polled.to_string(), "block:/dev/sdb,shared,polled");
        assert_eq!(DeviceSpec::block("/dev/sdb,shared,polled"), Ok(polled));
        for (text, part) in [("file:/a", "file:/a is a file"), ("memory:1GiB", "memory:1GiB")] {
            let why = parse(text).unwrap().into_polled().unwrap_err();
            assert!(why.starts_with("hipri polls the queues of a block device"), "{why}");
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn marks_have_a_file_or_none() {
        for (text, file) in [
            ("uncorrectable::memory:1GiB", None),
            ("uncorrectable:file=/var/lib/a.marks:memory:1GiB", Some("/var/lib/a.marks".into())),
        ] {
            let spec = parse(text).unwrap();
            assert_eq!(spec.to_string(), text);
            let inner = Box::new(DeviceSpec::Memory { bytes: 1 << 30, block_bytes: 4096 });
            assert_eq!(spec, DeviceSpec::Uncorrectable { file, inner });
        }
        let twice = "uncorrectable:file=/usr/../m:delay:read=1us:uncorrectable:file=/m:memory:1GiB";
        let error = twice.parse::<DeviceSpec>().expect("a device").check();
        let error = error.expect_err("both would write the file").to_string();
        assert!(error.contains("two wrappers"), "{error}");
        let other = twice.replace("=/m", "=/n").parse::<DeviceSpec>().expect("a device");
        assert_eq!(other.check(), Ok(()));
        assert_eq!(other.marks_files(), ["/m", "/n"].map(std::path::PathBuf::from));
        for text in ["uncorrectable:file=:memory:1GiB", "uncorrectable:fil=/a:memory:1GiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrappers_nest() {
        let text = "delay:read=50us,write=1ms:\
                    fault:operation=write,nth=3,effect=media-write;probability=0.25,seed=7,\
                    first-block=8,last-block=15,times=2,effect=drop:\
                    memory:64MiB,block=512";
        let DeviceSpec::Delay { read, write, inner } = parse(text).unwrap() else { panic!() };
        assert_eq!((read, write), (Duration::from_micros(50), Duration::from_millis(1)));
        let DeviceSpec::Fault { rules, inner } = *inner else { panic!() };
        let first = FaultRule {
            operation: Some(OperationKind::Write),
            nth: Some(3),
            effect: Effect::Fail(Failure::MediaWrite),
            ..FaultRule::default()
        };
        let second = FaultRule {
            per_million: Some(250_000),
            seed: 7,
            first_block: 8,
            last_block: Some(15),
            times: Some(2),
            effect: Effect::Drop,
            ..FaultRule::default()
        };
        assert_eq!(rules, [first, second]);
        assert_eq!(*inner, DeviceSpec::Memory { bytes: 64 << 20, block_bytes: 512 });
    }

    #[test]
    fn invalid_specs_are_refused() {
        for text in [
            "",
            "memory",
            "memory:",
            "memory:1x",
            "memory:1G,block=520",
            "memory:1G,direct=on",
            "file:",
            "file:,size=1G",
            "file:/x,size=",
            "file:/x,direct=maybe",
            "file:/x,block=1024",
            "file:/x,size=1000",
            "file:/x,size=512,block=4096",
            "disk:/dev/sda",
            "delay:read=1ms",
            "delay:read=1:memory:1G",
            "delay:up=1ms:memory:1G",
            "fault:nth=x,effect=drop:memory:1G",
            "fault:effect=sometimes:memory:1G",
            "fault:probability=1.1:memory:1G",
            "fault:probability=.5:memory:1G",
            "block:",
            "fault:probability=0.+5:memory:1G",
            "rbd:",
            "rbd:a/b,read-only=maybe",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = "delay::".repeat(100_000) + "memory:1G";
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn sizes_are_whole_blocks_of_512_or_4096() {
        let error = parse("file:/x,size=3").expect_err("3 bytes").to_string();
        assert_eq!(
            error,
            "size: 3 bytes is not a whole number of blocks of 512 bytes (a size has a unit, like \
             64MiB)"
        );
        let delay = |inner| DeviceSpec::Delay {
            read: Duration::ZERO,
            write: Duration::ZERO,
            inner: Box::new(inner),
        };
        let odd = delay(DeviceSpec::Null { bytes: 1 << 20, block_bytes: 1024 });
        assert!(odd.check().is_err_and(|error| error.0.ends_with("not 1024")));
        assert!(matches!(odd.build(), Err(OpenError::Invalid(_))));
        assert_eq!(delay(DeviceSpec::Null { bytes: 1 << 20, block_bytes: 512 }).check(), Ok(()));
    }

    #[test]
    fn an_unknown_option_suggests_the_nearest() {
        for (text, expected) in [
            (
                "file:/x,readonly,size=1M",
                "\"readonly\" is not an option here, did you mean read-only?",
            ),
            ("file:/x,sized=1M", "did you mean size?"),
            ("file:/x,ro", "\"ro\" is not an option here (options: size, block, direct, read-only"),
            ("file:/a,b.img", "a comma in a path is written \",,\""),
            ("block:/dev/sdb,share", "did you mean shared?"),
            ("memory:1G,blocks=512", "did you mean block?"),
            ("memroy:1G", "\"memroy\" is not a kind of device, did you mean memory?"),
            ("delay:reads=1ms:memory:1G", "did you mean read?"),
            ("fault:operations=read:memory:1G", "did you mean operation?"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn specs_are_data() {
        let text = "delay:read=50us,write=0ns:fault:nth=2,effect=no-space:file:/x,size=1MiB";
        let spec = parse(text).unwrap();
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"delay","read":"50us","write":"0ns","inner":{"kind":"fault","#.to_owned()
                + r#""rules":[{"nth":2,"effect":"no-space"}],"inner":"#
                + r#"{"kind":"file","path":"/x","create_bytes":"1MiB"}}}"#
        );
        assert_eq!(serde_json::from_str::<DeviceSpec>(&json).unwrap(), spec);
        let image = r#"{"kind":"rbd","image":"a","ceph":{"user":"weft"}}"#;
        let expected = parse("rbd:rbd/a,user=weft").unwrap();
        assert_eq!(serde_json::from_str::<DeviceSpec>(image).unwrap(), expected);
        let numbers = r#"{"kind":"memory","size":1048576}"#;
        let expected = DeviceSpec::Memory { bytes: 1 << 20, block_bytes: 4096 };
        assert_eq!(serde_json::from_str::<DeviceSpec>(numbers).unwrap(), expected);
        for bad in [
            r#"{"kind":"memory"}"#,
            r#"{"kind":"memory","bytes":-1}"#,
            r#"{"kind":"memory","bytes":"1G","colour":"red"}"#,
            r#"{"kind":"fault","rules":[{"effect":"x"}],"inner":{"kind":"null","bytes":1}}"#,
            r#"{"kind":"rbd","pool":"a"}"#,
            r#"{"kind":"rbd","image":"a","colour":"red"}"#,
        ] {
            assert!(serde_json::from_str::<DeviceSpec>(bad).is_err(), "{bad}");
        }
    }

    fn specs() -> impl Strategy<Value = DeviceSpec> {
        let size = (any::<u64>(), prop_oneof![Just(512u32), Just(4096)]);
        let rules = prop::collection::vec(rules(), 1..3).boxed();
        let leaf = prop_oneof![
            size.clone().prop_map(|(bytes, block_bytes)| DeviceSpec::Memory { bytes, block_bytes }),
            size.prop_map(|(bytes, block_bytes)| DeviceSpec::Null { bytes, block_bytes }),
            ("/[a-z,:=]{1,9}/x", any::<Option<u32>>(), any::<Option<bool>>(), any::<[bool; 2]>())
                .prop_map(|(path, blocks, direct, [read_only, shared])| DeviceSpec::File {
                    path: path.into(),
                    create_bytes: blocks.map(|blocks| 512 * u64::from(blocks.max(1))),
                    block_bytes: None,
                    direct,
                    read_only,
                    shared
                }),
            ("[a-z,:.=]{1,9}", any::<Option<String>>(), any::<[bool; 2]>(), any::<u32>()).prop_map(
                |(image, user, [read_only, exclusive], nanoseconds)| {
                    let mut spec = RbdSpec::new("pool", image);
                    spec.ceph.config.extend(user.map(|user| ("key".to_owned(), user)));
                    (spec.read_only, spec.exclusive) = (read_only, exclusive);
                    spec.timeout = Duration::from_nanos(nanoseconds.into());
                    DeviceSpec::Rbd(Box::new(spec))
                }
            ),
        ];
        leaf.prop_recursive(3, 8, 1, move |inner| {
            let spans = (any::<u32>(), any::<u32>(), inner.clone());
            prop_oneof![
                spans.prop_map(|(read, write, inner)| DeviceSpec::Delay {
                    read: Duration::from_nanos(read.into()),
                    write: Duration::from_nanos(write.into()),
                    inner: Box::new(inner)
                }),
                (rules.clone(), inner)
                    .prop_map(|(rules, inner)| DeviceSpec::Fault { rules, inner: Box::new(inner) }),
            ]
        })
    }

    prop_compose! {
        fn rules()(
            kind in prop::option::of(prop::sample::select(&OperationKind::ALL[..])),
            first_block in 0u64..9, last_block in any::<Option<u64>>(), nth in any::<Option<u64>>(),
            per_million in prop::option::of(0u32..=1_000_000), seed in any::<u64>(),
            times in any::<Option<u64>>(), errno in any::<Option<i32>>(),
        ) -> FaultRule {
            let effect = errno.map_or(Effect::Drop, |errno| Effect::Fail(Failure::Device(errno)));
            let operation = kind;
            FaultRule { operation, first_block, last_block, nth, per_million, seed, times, effect }
        }
    }

    proptest! {
        #[test]
        fn every_device_reads_back(spec in specs()) {
            prop_assert_eq!(parse(&spec.to_string()), Ok(spec.clone()));
            let json = serde_json::to_string(&spec).unwrap();
            prop_assert_eq!(serde_json::from_str::<DeviceSpec>(&json).unwrap(), spec);
        }

        #[test]
        fn no_text_panics(text in "(memory|null|file|delay|fault|block)?:?\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
