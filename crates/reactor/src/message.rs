//! The bytes of one send: small pieces are copied one after another, large ones are gathered from
//! the buffers that hold them.

use crate::pool::Buffer;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Most pieces that one `sendmsg` takes (UIO_MAXIOV of Linux).
pub(crate) const PIECES_MAX: usize = 1024;

/// Bytes to be sent, in order. Its memory is kept when it is [cleared](Self::clear).
#[derive(Debug, Default)]
pub struct Message {
    // Boxed, so that messages and completions move cheaply.
    inner: Box<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    arena: Vec<u8>,
    parts: Vec<MessagePart>,
    len: usize,
    /// Sent so far: all parts before this one,
    sent_parts: usize,
    /// and this many bytes of it,
    sent_offset: usize,
    /// which is this many bytes in all.
    sent: usize,
}

#[derive(Debug)]
enum MessagePart {
    /// A range of the arena.
    Bytes(Range<usize>),
    /// A range of a buffer.
    Buffer(Buffer, Range<usize>),
}

impl Message {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy of `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let start = self.inner.arena.len();
        self.inner.arena.extend_from_slice(bytes);
        self.inner.append(start);
    }

    /// Appends `len` zeroes and yields them, to be written in place.
    pub fn extend(&mut self, len: usize) -> &mut [u8] {
        let inner = &mut *self.inner;
        let start = inner.arena.len();
        inner.arena.resize(start + len, 0);
        inner.append(start);
        &mut inner.arena[start..]
    }

    /// Appends `buffer[range]`, to be sent without a copy. The buffer is kept until the
    /// message is cleared or dropped.
    ///
    /// # Panics
    /// If the range lies outside the buffer.
    pub fn buffer(&mut self, buffer: Buffer, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= buffer.len(), "range outside the buffer");
        if range.is_empty() {
            return;
        }
        self.inner.len += range.len();
        self.inner.parts.push(MessagePart::Buffer(buffer, range));
    }

    /// Bytes in all, sent or not.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Bytes in all that were copied into it.
    pub fn copied(&self) -> usize {
        self.inner.arena.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Bytes that the kernel has taken, of a message that came back unfinished.
    pub fn sent(&self) -> usize {
        self.inner.sent
    }

    /// How many pieces it has; more than 1024 take more than one system call.
    pub fn pieces(&self) -> usize {
        self.inner.parts.len()
    }

    /// Its pieces, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.inner.parts.iter().map(|part| self.inner.part(part))
    }

    /// Empties it. Buffers go back to their pool, its own memory is kept.
    pub fn clear(&mut self) {
        let inner = &mut *self.inner;
        inner.arena.clear();
        inner.parts.clear();
        inner.len = 0;
        inner.rewind();
    }

    /// Rewinds it: it is going to be sent from its start.
    pub(crate) fn rewind(&mut self) {
        self.inner.rewind();
    }

    /// Bytes that are still to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.inner.len - self.inner.sent
    }

    /// What is unsent, if it is one piece.
    pub(crate) fn last_piece(&self) -> Option<&[u8]> {
        match self.inner.parts.get(self.inner.sent_parts..)? {
            [part] => self.inner.part(part).get(self.inner.sent_offset..),
            _ => None,
        }
    }

    /// The next unsent pieces, as many as fit in `slices`, until they have at least `most` bytes.
    pub(crate) fn gather<'a, 'b>(
        &'a self,
        slices: &'b mut [MaybeUninit<IoSlice<'a>>; PIECES_MAX],
        most: usize,
    ) -> &'b [IoSlice<'a>] {
        let (mut count, mut left) = (0, most);
        let mut offset = self.inner.sent_offset;
        for part in self.inner.parts.iter().skip(self.inner.sent_parts).take(PIECES_MAX) {
            let piece = &self.inner.part(part)[offset..];
            slices[count].write(IoSlice::new(piece));
            offset = 0;
            count += 1;
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
        // SAFETY: the first `count` elements were written just above.
        unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), count) }
    }

    /// Notes that `count` more bytes were sent.
    pub(crate) fn advance(&mut self, mut count: usize) {
        let inner = &mut *self.inner;
        inner.sent += count;
        while let Some(part) = inner.parts.get(inner.sent_parts) {
            let left = inner.part(part).len() - inner.sent_offset;
            if count < left {
                inner.sent_offset += count;
                return;
            }
            count -= left;
            inner.sent_parts += 1;
            inner.sent_offset = 0;
        }
        assert_eq!(count, 0, "more was sent than there is");
    }
}

impl Inner {
    /// Makes the arena from `start` on a part of the message.
    fn append(&mut self, start: usize) {
        let end = self.arena.len();
        self.len += end - start;
        match self.parts.last_mut() {
            Some(MessagePart::Bytes(range)) if range.end == start => range.end = end,
            _ if start == end => {}
            _ => self.parts.push(MessagePart::Bytes(start..end)),
        }
    }

    fn part<'a>(&'a self, part: &'a MessagePart) -> &'a [u8] {
        match part {
            MessagePart::Bytes(range) => &self.arena[range.clone()],
            MessagePart::Buffer(buffer, range) => &buffer[range.clone()],
        }
    }

    fn rewind(&mut self) {
        self.sent_parts = 0;
        self.sent_offset = 0;
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use proptest::prelude::*;

    fn unsent(message: &Message) -> Vec<u8> {
        let mut slices = [const { MaybeUninit::uninit() }; PIECES_MAX];
        let pieces = message.gather(&mut slices, usize::MAX);
        let only = if let [piece] = pieces { Some(&**piece) } else { None };
        assert_eq!(message.last_piece(), only);
        pieces.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn neighbouring_bytes_are_one_piece() {
        let pool = Pool::new(1).unwrap();
        let mut buffer = pool.take(4).unwrap();
        buffer.copy_from_slice(b"cdef");
        let mut message = Message::new();
        message.bytes(b"a");
        message.bytes(b"");
        message.bytes(b"b");
        message.buffer(buffer, 1..3);
        message.extend(2).copy_from_slice(b"gh");
        assert_eq!(message.pieces(), 3);
        assert_eq!(message.len(), 6);
        assert_eq!(unsent(&message), b"abdegh");
    }

    #[test]
    fn clearing_returns_buffers_and_keeps_memory() {
        let pool = Pool::new(1).unwrap();
        let mut message = Message::new();
        message.bytes(&[1; 1000]);
        message.buffer(pool.take(4096).unwrap(), 0..4096);
        let capacity = message.inner.arena.capacity();
        message.advance(1200);
        assert_eq!((message.sent(), message.unsent()), (1200, 3896));
        message.clear();
        assert!(message.is_empty());
        assert_eq!(message.sent(), 0);
        assert_eq!(pool.available(), pool.capacity());
        assert_eq!(message.inner.arena.capacity(), capacity);
    }

    proptest! {
        #[test]
        fn partial_sends_add_up(
            parts in proptest::collection::vec((any::<bool>(), 0..300usize), 0..40),
            steps in proptest::collection::vec(1..500usize, 1..200),
        ) {
            let pool = Pool::new(4 << 20).unwrap();
            let mut message = Message::new();
            let mut whole = Vec::new();
            for (n, (gathered, len)) in parts.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|m| (n * 31 + m).to_le_bytes()[0]).collect();
                whole.extend_from_slice(&bytes);
                if gathered {
                    let mut buffer = pool.take(len + 3).unwrap();
                    buffer[2..len + 2].copy_from_slice(&bytes);
                    message.buffer(buffer, 2..len + 2);
                } else {
                    message.bytes(&bytes);
                }
            }
            prop_assert_eq!(message.len(), whole.len());
            let mut sent = 0;
            for step in steps {
                prop_assert_eq!(&unsent(&message), &whole[sent..]);
                let step = step.min(message.unsent());
                message.advance(step);
                sent += step;
            }
            message.rewind();
            prop_assert_eq!(unsent(&message), whole);
        }
    }
}
