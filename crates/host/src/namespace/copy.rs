//! Copy: what is checked before the first command, and how the ranges are cut into commands.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use weft_nvme::Wire;
use weft_nvme::feature::{FeatureId, GetFeatures, HostBehavior, SetFeatures};
use weft_nvme::nvm::CopySourceRange;
use weft_nvme::wire::U16;
use weft_nvmf::host::{AdminData, ControllerInfo, NamespaceInfo};

use super::Namespace;
use crate::controller::admin_command_checked;
use crate::error::Error;
use crate::worker::{CopyRange, IoKind};

/// The bit of the descriptor format whose ranges name their namespaces, in CDFS and CDFE.
const FORMAT_2: u16 = 1 << 2;

/// Bytes to be copied, of a namespace of the same subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopySource {
    /// Namespace Identifier.
    pub nsid: u32,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

/// The same in blocks.
struct Piece {
    from: Arc<NamespaceInfo>,
    blocks: Range<u64>,
}

/// What one command may have.
#[derive(Clone, Copy)]
struct Limits {
    /// Source ranges (MSRC).
    ranges: usize,
    /// Blocks of one of them (MSSRL).
    range_blocks: u64,
    /// Blocks of all of them (MCL).
    blocks: u64,
}

impl Namespace {
    /// Has the controller copy these bytes, one source after the other, to `offset`; with `durable`
    /// they are durable then (FUA). Blocks are of one size, and no source overlaps what is written.
    ///
    /// All is checked before the first command. One that fails ends it: [`Error::Copy`] says which
    /// range was not copied. Sources in other namespaces need descriptor format 2h, which the host
    /// enables for its controller (Host Behavior Support).
    pub fn copy(&self, offset: u64, sources: &[CopySource], durable: bool) -> Result<(), Error> {
        let snapshot = self.shared.snapshot().ok_or(Error::Stopped)?;
        let find = |nsid| snapshot.namespaces.get(&nsid).ok_or(Error::NoNamespace(nsid));
        let own = find(self.nsid())?;
        let limits = limits(&snapshot.controller, own)?;
        let mut pieces = VecDeque::new();
        for source in sources {
            pieces.push_back(self.piece(source, find(source.nsid)?)?);
        }
        let mut at = self.check_destination(offset, own.blocks, &pieces)?;
        if pieces.iter().any(|piece| piece.from.nsid != self.nsid()) {
            self.enable_format(&snapshot.controller)?;
        }
        pieces.retain(|piece| !piece.blocks.is_empty());
        while !pieces.is_empty() {
            let ranges = next_command(&mut pieces, &limits);
            let nlb: u32 = ranges.iter().map(|range| range.nlb).sum();
            let kind = IoKind::Copy { ranges: ranges.clone().into(), durable };
            self.wait_for(kind, at, nlb, Vec::new())?.map_err(|why| match why {
                Ok((failure, index)) => {
                    let named = usize::try_from(index).ok().and_then(|index| ranges.get(index));
                    let CopyRange { from, slba, nlb } = named.unwrap_or(&ranges[0]);
                    Error::Copy { nsid: from.nsid, slba: *slba, nlb: *nlb, failure }
                }
                Err(words) => Error::Invalid(words),
            })?;
            at += u64::from(nlb);
        }
        Ok(())
    }

    fn piece(&self, source: &CopySource, from: &Arc<NamespaceInfo>) -> Result<Piece, Error> {
        let CopySource { nsid, offset, length } = *source;
        let (own, other) = (self.block_bytes(), from.block_bytes);
        if own != other {
            return Err(Error::Invalid(format!(
                "namespace {nsid} has blocks of {other} bytes, and namespace {} of {own}",
                self.nsid()
            )));
        }
        self.check(offset, length)?;
        let first = offset / u64::from(own);
        let blocks = first..first + length / u64::from(own);
        if blocks.end > from.blocks {
            return Err(Error::Invalid(format!(
                "{} of namespace {nsid} are beyond its end: it has {} blocks",
                words(&blocks),
                from.blocks
            )));
        }
        Ok(Piece { from: Arc::clone(from), blocks })
    }

    /// The first block that is written.
    fn check_destination(
        &self,
        offset: u64,
        blocks: u64,
        pieces: &VecDeque<Piece>,
    ) -> Result<u64, Error> {
        self.check(offset, 0)?;
        let first = offset / u64::from(self.block_bytes());
        let count = |piece: &Piece| piece.blocks.end - piece.blocks.start;
        let sum = |sum: u64, piece| sum.checked_add(count(piece));
        let end = pieces.iter().try_fold(first, sum).filter(|end| *end <= blocks);
        let Some(end) = end else {
            return Err(Error::Invalid(format!(
                "what is copied to block {first} of namespace {} goes beyond its end: it has \
                 {blocks} blocks",
                self.nsid()
            )));
        };
        let overlaps = |piece: &&Piece| {
            piece.from.nsid == self.nsid()
                && piece.blocks.start < end
                && first < piece.blocks.end
                && !piece.blocks.is_empty()
        };
        match pieces.iter().find(overlaps) {
            None => Ok(first),
            Some(piece) => Err(Error::Invalid(format!(
                "{} overlap those that are written, {}",
                words(&piece.blocks),
                words(&(first..end))
            ))),
        }
    }

    /// Lets Copy commands of this host name the namespaces that they read.
    fn enable_format(&self, controller: &ControllerInfo) -> Result<(), Error> {
        if controller.identify.copy_descriptor_formats.get() & FORMAT_2 == 0 {
            let what = "the controller copies only within a namespace (CDFS has no format 2h)";
            return Err(Error::Invalid(what.into()));
        }
        let feature = FeatureId::HOST_BEHAVIOR_SUPPORT;
        let length = u32::try_from(HostBehavior::SIZE).unwrap_or(u32::MAX);
        let get = GetFeatures::new(feature).to_command();
        let data = AdminData::FromController(length);
        let answer = admin_command_checked(&self.shared, &self.calls, get, data)?;
        let before = HostBehavior::read(&answer.data)
            .map_err(|_| Error::Invalid("Host Behavior Support is too short".into()))?;
        let formats = before.copy_descriptor_formats.get();
        if formats & FORMAT_2 != 0 {
            return Ok(());
        }
        let copy_descriptor_formats = U16::new(formats | FORMAT_2);
        let behavior = HostBehavior { copy_descriptor_formats, ..before };
        let set = SetFeatures::new(feature, 0).to_command();
        let data = AdminData::ToController(behavior.bytes().to_vec());
        admin_command_checked(&self.shared, &self.calls, set, data).map(drop)
    }
}

fn limits(controller: &ControllerInfo, namespace: &NamespaceInfo) -> Result<Limits, Error> {
    if !controller.identify.optional_nvm_commands().copy() {
        return Err(Error::Invalid("the controller does not support Copy".into()));
    }
    let identify = &namespace.identify;
    let range_blocks = identify.copy_source_range_length_max.get().into();
    let blocks = identify.copy_length_max.get().into();
    if range_blocks == 0 || blocks == 0 {
        let what = format!("namespace {} has no limits for Copy", namespace.nsid);
        return Err(Error::Invalid(what));
    }
    // Their list is the data of one command.
    let most = controller.transfer_bytes_max.map_or(usize::MAX, |bytes| bytes as usize);
    let ranges = usize::from(identify.copy_source_ranges_0s_based) + 1;
    Ok(Limits { ranges: ranges.min(most / CopySourceRange::SIZE).max(1), range_blocks, blocks })
}

fn words(blocks: &Range<u64>) -> String {
    format!("blocks {} to {}", blocks.start, blocks.end.saturating_sub(1))
}

/// The source ranges of the next command, which are taken from the first pieces: at least one.
fn next_command(pieces: &mut VecDeque<Piece>, limits: &Limits) -> Vec<CopyRange> {
    let mut ranges = Vec::new();
    let mut room = limits.blocks.min(u32::MAX.into());
    while room > 0
        && ranges.len() < limits.ranges
        && let Some(piece) = pieces.front_mut()
    {
        let slba = piece.blocks.start;
        let count = (piece.blocks.end - slba).min(limits.range_blocks).min(room);
        let nlb = u32::try_from(count).unwrap_or(u32::MAX);
        ranges.push(CopyRange { from: Arc::clone(&piece.from), slba, nlb });
        piece.blocks.start += count;
        room -= count;
        if piece.blocks.is_empty() {
            pieces.pop_front();
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(nsid: u32) -> Arc<NamespaceInfo> {
        Arc::new(NamespaceInfo {
            nsid,
            identity: weft_nvmf::host::NamespaceIdentity::default(),
            block_bytes: 512,
            metadata_bytes: 0,
            blocks: 1000,
            write_protected: false,
            limits: weft_nvmf::host::request_table::BlockLimits::default(),
            identify: Box::new(weft_nvme::identify::Namespace::zeroed()),
        })
    }

    /// Namespace, first block and number of blocks of the ranges of each command.
    fn commands(pieces: &[(u32, Range<u64>)], limits: &Limits) -> Vec<Vec<(u32, u64, u32)>> {
        let piece = |(nsid, blocks): &(u32, Range<u64>)| Piece {
            from: namespace(*nsid),
            blocks: blocks.clone(),
        };
        let mut pieces: VecDeque<Piece> = pieces.iter().map(piece).collect();
        let mut commands = Vec::new();
        while !pieces.is_empty() {
            let ranges = next_command(&mut pieces, limits);
            let range = |range: &CopyRange| (range.from.nsid, range.slba, range.nlb);
            commands.push(ranges.iter().map(range).collect());
        }
        commands
    }

    #[test]
    fn ranges_are_cut_at_each_limit() {
        let pieces = [(1, 0..10), (2, 50..51), (1, 90..93)];
        let wide = Limits { ranges: 9, range_blocks: 100, blocks: 100 };
        assert_eq!(commands(&pieces, &wide), [[(1, 0, 10), (2, 50, 1), (1, 90, 3)]]);
        let few = Limits { ranges: 2, ..wide };
        let expected = [vec![(1, 0, 10), (2, 50, 1)], vec![(1, 90, 3)]];
        assert_eq!(commands(&pieces, &few), expected);
        let short = Limits { range_blocks: 4, ..wide };
        let all = [(1, 0, 4), (1, 4, 4), (1, 8, 2), (2, 50, 1), (1, 90, 3)];
        assert_eq!(commands(&pieces, &short), [all]);
        let little = Limits { blocks: 6, ..short };
        let expected =
            [vec![(1, 0, 4), (1, 4, 2)], vec![(1, 6, 4), (2, 50, 1), (1, 90, 1)], vec![(1, 91, 2)]];
        assert_eq!(commands(&pieces, &little), expected);
    }
}
