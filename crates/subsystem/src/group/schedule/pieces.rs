//! Large requests without data, executed in pieces, so that an express queue is served between, and
//! that each piece is time of its tenant.

use std::collections::{BTreeMap, VecDeque};

use weft_backend::{Geometry, Operation};

/// Bytes that a piece zeroes or verifies: some tens of microseconds of a processor.
const ZERO_BYTES: u64 = 256 << 10;

/// Bytes that a piece deallocates.
const DISCARD_BYTES: u64 = 1 << 20;

/// What a piece takes of a turn, in bytes: a device zeroes memory faster than it copies data.
pub(crate) const PIECE_TURN_BYTES: usize = 64 << 10;

/// What a request without data takes of a turn, in bytes; if it is executed in pieces, only these
/// do.
pub(crate) fn turn_bytes(operation: &Operation, geometry: &Geometry, is_pieced: bool) -> usize {
    let Some(kind) = Kind::of(operation) else { return 0 };
    let blocks: u64 = operation.ranges().map(|(_, nlb)| u64::from(nlb)).sum();
    let bytes = blocks.saturating_mul(geometry.block_bytes.into());
    if is_pieced && bytes > kind.bytes() {
        return 0;
    }
    let part = bytes.saturating_mul(PIECE_TURN_BYTES as u64) / kind.bytes();
    usize::try_from(part).unwrap_or(usize::MAX)
}

/// Whether a request has no data, and may take long.
pub(crate) const fn is_long(operation: &Operation) -> bool {
    Kind::of(operation).is_some()
}

/// Requests that are executed in pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Those whose next piece may begin, by connection, in their order.
    waiting: BTreeMap<usize, VecDeque<PiecedRequest>>,
    /// The connection that was served last.
    last: usize,
    /// Those that a device has a piece of.
    begun: Vec<PiecedRequest>,
    /// The tags of those that are given up and have not ended yet.
    given_up: Vec<u64>,
}

/// A request.
#[derive(Debug)]
struct PiecedRequest {
    connection: usize,
    device: u32,
    tag: u64,
    kind: Kind,
    /// What is left of it.
    ranges: VecDeque<(u64, u32)>,
    /// Blocks of a piece, at most.
    blocks: u32,
    /// A range is cut at multiples of this, so that a device can free both sides.
    alignment: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Zero { deallocate: bool, durable: bool },
    Discard,
    Verify,
}

impl Kind {
    const fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::WriteZeroes { deallocate, durable, .. } => {
                Some(Self::Zero { deallocate: *deallocate, durable: *durable })
            }
            Operation::Discard { .. } => Some(Self::Discard),
            Operation::Verify { .. } => Some(Self::Verify),
            _ => None,
        }
    }

    const fn bytes(self) -> u64 {
        match self {
            Self::Zero { deallocate: false, .. } | Self::Verify => ZERO_BYTES,
            Self::Zero { deallocate: true, .. } | Self::Discard => DISCARD_BYTES,
        }
    }
}

impl Pieces {
    /// Takes a request of a connection that is to be executed in pieces. `false`: it is to be
    /// executed as it is.
    pub(crate) fn take(
        &mut self,
        connection: usize,
        device: u32,
        tag: u64,
        operation: &Operation,
        geometry: &Geometry,
    ) -> bool {
        let Some(kind) = Kind::of(operation) else { return false };
        let blocks = kind.bytes() / u64::from(geometry.block_bytes);
        let alignment = geometry.discard_granularity_blocks.max(1);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).max(alignment);
        let all: u64 = operation.ranges().map(|(_, nlb)| u64::from(nlb)).sum();
        let is_atomic = geometry.atomic_blocks > blocks;
        if all <= blocks.into() || is_atomic || operation.check(geometry).is_err() {
            return false;
        }
        let ranges = operation.ranges().collect();
        let request = PiecedRequest { connection, device, tag, kind, ranges, blocks, alignment };
        self.wait(request);
        true
    }

    fn wait(&mut self, request: PiecedRequest) {
        self.waiting.entry(request.connection).or_default().push_back(request);
    }

    /// The next piece, of connections in turn, with its device and tag; [`ended`](Self::ended)
    /// takes its end.
    pub(crate) fn next(&mut self) -> Option<(u32, u64, Operation)> {
        let mut behind = self.waiting.range(self.last.saturating_add(1)..);
        let (connection, _) = behind.next().or_else(|| self.waiting.first_key_value())?;
        self.last = *connection;
        self.next_of(self.last)
    }

    /// The next piece of a connection.
    pub(crate) fn next_of(&mut self, connection: usize) -> Option<(u32, u64, Operation)> {
        let waiting = self.waiting.get_mut(&connection)?;
        let request = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&connection);
        }
        let mut request = request?;
        let operation = request.next();
        let (device, tag) = (request.device, request.tag);
        self.begun.push(request);
        Some((device, tag, operation))
    }

    /// Whether a piece of a connection may begin.
    pub(crate) fn has_next_of(&self, connection: usize) -> bool {
        !self.waiting.is_empty() && self.waiting.contains_key(&connection)
    }

    /// The connections of which a piece may begin.
    pub(crate) fn connections(&self) -> Vec<usize> {
        self.waiting.keys().copied().collect()
    }

    /// A connection has ended: no piece of it begins any more.
    pub(crate) fn give_up(&mut self, connection: usize) {
        let waiting = self.waiting.remove(&connection).into_iter().flatten();
        self.given_up.extend(waiting.map(|request| request.tag));
        for request in self.begun.iter_mut().filter(|one| one.connection == connection) {
            request.ranges.clear();
        }
    }

    /// The tag of a request that was given up, and ends with that.
    pub(crate) fn take_given_up(&mut self) -> Option<u64> {
        self.given_up.pop()
    }

    /// A request of a device has ended, or a piece of one. Whether it was all of it.
    pub(crate) fn ended(&mut self, tag: u64, is_success: bool) -> bool {
        let place = self.begun.iter().position(|request| request.tag == tag);
        let Some(place) = place else { return true };
        let request = self.begun.swap_remove(place);
        let has_more = is_success && !request.ranges.is_empty();
        if has_more {
            self.wait(request);
        }
        !has_more
    }

    /// Whether a piece may begin.
    pub(crate) fn has_next(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there is something to do in the next turn.
    pub(crate) fn has_left(&self) -> bool {
        self.has_next() || !self.given_up.is_empty()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.waiting.is_empty()
    }

    /// Whether one is for a device.
    pub(crate) fn has_any_for(&self, device: u32) -> bool {
        self.waiting.values().flatten().chain(&self.begun).any(|request| request.device == device)
    }
}

impl PiecedRequest {
    /// Of a range that is longer, so many blocks that the rest begins at a multiple, if it can.
    fn cut(&self, slba: u64, blocks: u32) -> u32 {
        let beyond = (slba + u64::from(blocks)) % u64::from(self.alignment);
        let beyond = u32::try_from(beyond).unwrap_or(0);
        if beyond < blocks { blocks - beyond } else { blocks }
    }

    fn next(&mut self) -> Operation {
        let mut left = self.blocks;
        let mut ranges = Vec::new();
        while let Some((slba, nlb)) = self.ranges.pop_front() {
            let part = if nlb <= left { nlb } else { self.cut(slba, left) };
            ranges.push((slba, part));
            left -= part;
            if part < nlb {
                self.ranges.push_front((slba + u64::from(part), nlb - part));
                break;
            }
            if left == 0 {
                break;
            }
        }
        // All but a discard have one range.
        let (slba, nlb) = ranges.first().copied().unwrap_or_default();
        match self.kind {
            Kind::Zero { deallocate, durable } => {
                Operation::WriteZeroes { slba, nlb, deallocate, durable }
            }
            Kind::Verify => Operation::Verify { slba, nlb },
            Kind::Discard => Operation::Discard { ranges: ranges.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        let mut geometry = Geometry::new(1 << 50, 4096);
        geometry.discard_granularity_blocks = 16;
        geometry.capabilities.discard = true;
        geometry
    }

    proptest! {
        /// The pieces are all of it, in its order, and none is larger than it may be.
        #[test]
        fn pieces_are_all_of_a_request(
            ranges in proptest::collection::vec((0..1_u64 << 30, 0_u32..3000), 1..20),
            kind in 0..3,
        ) {
            let (slba, nlb) = ranges[0];
            let operation = match kind {
                0 => Operation::WriteZeroes { slba, nlb, deallocate: false, durable: true },
                1 => Operation::Verify { slba, nlb },
                _ => Operation::Discard { ranges: ranges.into() },
            };
            let all = |(slba, nlb)| slba..slba + u64::from(nlb);
            let blocks: Vec<u64> = operation.ranges().flat_map(all).collect();
            let most = if kind == 2 { 256 } else { 64 };
            let mut pieces = Pieces::default();
            prop_assert_eq!(pieces.take(0, 7, 9, &operation, &geometry()), blocks.len() > most);
            let (mut done, mut cuts) = (Vec::new(), 0);
            while let Some((device, tag, piece)) = pieces.next() {
                prop_assert_eq!((device, tag, piece.kind()), (7, 9, operation.kind()));
                prop_assert_eq!(piece.is_durable(), operation.is_durable());
                let before = done.len();
                done.extend(piece.ranges().flat_map(|(slba, nlb)| slba..slba + u64::from(nlb)));
                prop_assert!(done.len() - before <= most && done.len() > before);
                let next = done.last().expect("some") + 1;
                let is_cut = blocks.get(done.len()) == Some(&next) && done.len() - before > 16;
                cuts += usize::from(is_cut && next % 16 != 0);
                prop_assert!(pieces.next().is_none() && pieces.has_any_for(7));
                prop_assert!(pieces.ended(8, true), "another request");
                prop_assert_eq!(pieces.ended(9, true), done.len() == blocks.len());
            }
            // Ranges that follow one another end anywhere.
            prop_assert!(cuts <= operation.ranges().count(), "{cuts}");
            prop_assert!(pieces.is_empty() && (done == blocks || blocks.len() <= most));
        }
    }

    #[test]
    fn a_failure_ends_a_request_and_others_take_turns_with_it() {
        let mut pieces = Pieces::default();
        for tag in [1, 2] {
            let zero =
                Operation::WriteZeroes { slba: 0, nlb: 1000, deallocate: false, durable: false };
            assert!(pieces.take(0, 7, tag, &zero, &geometry()));
        }
        let tag = |pieces: &mut Pieces| pieces.next().map(|(_, tag, _)| tag);
        assert_eq!(
            (tag(&mut pieces), tag(&mut pieces), tag(&mut pieces)),
            (Some(1), Some(2), None)
        );
        assert!(!pieces.ended(2, true) && pieces.has_next());
        assert!(pieces.ended(1, false));
        assert_eq!(tag(&mut pieces), Some(2));
        assert!(pieces.has_any_for(7) && !pieces.has_any_for(8));
    }

    /// However many requests one of them has.
    #[test]
    fn connections_take_turns() {
        let mut pieces = Pieces::default();
        let zero = Operation::WriteZeroes { slba: 0, nlb: 1000, deallocate: false, durable: false };
        for (connection, tag) in [(1, 10), (1, 11), (1, 12), (5, 50)] {
            assert!(pieces.take(connection, 7, tag, &zero, &geometry()));
        }
        assert_eq!(pieces.connections(), [1, 5]);
        let tags: Vec<u64> = std::iter::from_fn(|| Some(pieces.next()?.1)).collect();
        assert_eq!(tags, [10, 50, 11, 12]);
        assert!(!pieces.ended(50, true) && pieces.has_next_of(5) && !pieces.has_next_of(1));
        assert_eq!(pieces.next_of(5).map(|(_, tag, _)| tag), Some(50));
        assert!(pieces.next_of(5).is_none() && pieces.connections().is_empty());
    }

    /// What of it waits ends at once, and what a device has with its piece; others stay.
    #[test]
    fn an_ended_connection_gives_its_requests_up() {
        let mut pieces = Pieces::default();
        let zero = Operation::WriteZeroes { slba: 0, nlb: 1000, deallocate: false, durable: false };
        for (connection, tag) in [(1, 10), (1, 11), (5, 50)] {
            assert!(pieces.take(connection, 7, tag, &zero, &geometry()));
        }
        assert_eq!(pieces.next_of(1).map(|(_, tag, _)| tag), Some(10));
        pieces.give_up(1);
        assert_eq!((pieces.take_given_up(), pieces.take_given_up()), (Some(11), None));
        assert!(pieces.ended(10, true), "its piece was the last");
        assert_eq!(pieces.connections(), [5]);
        pieces.give_up(5);
        assert!(!pieces.has_next() && pieces.has_left() && !pieces.has_any_for(7));
    }

    /// Out of range, or atomic as a whole.
    #[test]
    fn what_fails_or_is_atomic_is_one_request() {
        let zero =
            |slba| Operation::WriteZeroes { slba, nlb: 1000, deallocate: true, durable: false };
        let mut pieces = Pieces::default();
        assert!(!pieces.take(0, 7, 1, &zero(1 << 40), &geometry()));
        let atomic = Geometry { atomic_blocks: u32::MAX, ..geometry() };
        assert!(!pieces.take(0, 7, 1, &zero(0), &atomic));
        assert!(pieces.take(0, 7, 1, &zero(0), &geometry()));
    }
}
