//! Somebody between hosts and a target, without their key, who drops, changes, repeats, reorders,
//! reflects, exchanges and cuts what they send on several connections, and makes the offers of a
//! handshake worse, as a seed says.
//!
//! Whatever he does: what an end has decrypted is the beginning of what the other end of this very
//! connection has sent, and an end that has met anything else has ended with a reason.

use weft_nvmf::keys::{IdentityVersion, TlsPsk};
use weft_reactor::Message;

use super::tests::{LayerPair, psk};
use crate::tls::{TlsFault, TlsMode};

/// A reproducible choice.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }
}

/// A connection, what each end has sent in all and not sealed yet, and why it has ended.
struct Connection {
    pair: LayerPair,
    written: [Vec<u8>; 2],
    waiting: [Message; 2],
    faults: [Option<TlsFault>; 2],
    /// Nothing more comes through to this end.
    cut: [bool; 2],
}

/// What somebody may make of a ClientHello or ServerHello so that less is agreed on: TLS 1.2 in
/// `supported_versions`, other suites, a PSK without a key exchange, another identity.
const DOWNGRADES: [(&[u8], &[u8]); 6] = [
    (&[0x00, 0x2b, 0x00, 0x02, 0x03, 0x04], &[0x00, 0x2b, 0x00, 0x02, 0x03, 0x03]),
    (&[0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04], &[0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x03]),
    (&[0x13, 0x02], &[0x13, 0x01]),
    (&[0x13, 0x01], &[0x13, 0x03]),
    (&[0x00, 0x2d, 0x00, 0x02, 0x01, 0x01], &[0x00, 0x2d, 0x00, 0x02, 0x01, 0x00]),
    (b"NVMe1R0", b"NVMe0R0"),
];

struct Adversary {
    dice: Dice,
    connections: Vec<Connection>,
    /// Every piece that was seen, of any connection and direction.
    seen: Vec<Vec<u8>>,
    /// A piece that was held back, and for whom.
    held: Option<(usize, usize, Vec<u8>)>,
    meddled: usize,
}

impl Adversary {
    fn new(seed: u64) -> Self {
        let known: Vec<TlsPsk> = [1, 2]
            .into_iter()
            .flat_map(|hash| {
                [IdentityVersion::V1, IdentityVersion::V0].map(|version| psk(hash, version, 7))
            })
            .collect();
        // Three connections with the same keys, which is the worst case.
        let connections = (0..3).map(|number| {
            let offered = if number == 2 { known[2..].to_vec() } else { known[..2].to_vec() };
            Connection {
                pair: LayerPair::new(offered, known.clone(), TlsMode::Required),
                written: Default::default(),
                waiting: [Message::new(), Message::new()],
                faults: [None; 2],
                cut: [false; 2],
            }
        });
        Self {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            connections: connections.collect(),
            seen: Vec::new(),
            held: None,
            meddled: 0,
        }
    }

    /// One end writes something and sends what it can. Once in `calm` pieces something else than
    /// that goes on.
    fn step(&mut self, calm: usize) {
        let (number, end) = (self.dice.below(self.connections.len()), self.dice.below(2));
        let fill = self.dice.byte();
        let length = 1 + self.dice.below(64);
        let connection = &mut self.connections[number];
        if connection.faults[end].is_some() {
            return;
        }
        // What is written says where, so that nothing of another place can be taken for it.
        let place = connection.written[end].len().to_le_bytes();
        let text = [&[fill, u8::try_from(2 * number + end).expect("few")], &place[..]].concat();
        let text: Vec<u8> = text.into_iter().cycle().take(length).collect();
        connection.written[end].extend_from_slice(&text);
        connection.waiting[end].bytes(&text);
        if let Err(fault) = connection.pair.ends[end].seal(&mut connection.waiting[end]) {
            connection.faults[end] = Some(fault);
        }
        let piece = connection.pair.sent(end);
        if piece.is_empty() {
            return;
        }
        self.seen.push(piece.clone());
        if self.dice.below(calm) > 0 {
            return self.deliver(number, 1 - end, &piece);
        }
        self.meddled += 1;
        self.meddle(number, end, piece);
    }

    fn meddle(&mut self, number: usize, end: usize, mut piece: Vec<u8>) {
        let place = self.dice.below(piece.len());
        match self.dice.below(10) {
            // Dropped.
            0 => return,
            // Changed in one bit, or one byte.
            1 => piece[place] ^= 1 << self.dice.below(8),
            2 => piece[place] = self.dice.byte(),
            // Repeated, at once or later.
            3 => self.deliver(number, 1 - end, &piece.clone()),
            4 => piece = self.seen[self.dice.below(self.seen.len())].clone(),
            // Held back until another is, which goes first.
            5 => match self.held.replace((number, 1 - end, piece)) {
                Some((number, end, before)) => return self.deliver(number, end, &before),
                None => return,
            },
            // Sent back to who has sent it, or to somebody else.
            6 => return self.deliver(number, end, &piece),
            7 => {
                let other = self.dice.below(self.connections.len());
                return self.deliver(other, 1 - end, &piece);
            }
            // Cut for good.
            8 => {
                piece.truncate(place);
                self.deliver(number, 1 - end, &piece);
                self.connections[number].cut[1 - end] = true;
                return;
            }
            // Less is offered, or chosen.
            _ => {
                let (from, to) = DOWNGRADES[self.dice.below(DOWNGRADES.len())];
                let found = piece.windows(from.len()).position(|part| part == from);
                if let Some(at) = found {
                    piece[at..at + to.len()].copy_from_slice(to);
                }
            }
        }
        self.deliver(number, 1 - end, &piece);
    }

    fn deliver(&mut self, number: usize, end: usize, piece: &[u8]) {
        let connection = &mut self.connections[number];
        if connection.faults[end].is_some() || connection.cut[end] {
            return;
        }
        let came = connection.pair.receive(end, piece);
        connection.faults[end] = came.err();
        // A host begins, and both ends answer.
        if connection.faults[end].is_none()
            && let Err(fault) = connection.pair.ends[end].seal(&mut connection.waiting[end])
        {
            connection.faults[end] = Some(fault);
        }
    }

    /// Checks what was decrypted, and returns whether anything was.
    fn check(&self, seed: u64) -> bool {
        let mut any = false;
        for (number, connection) in self.connections.iter().enumerate() {
            for end in [0, 1] {
                let (opened, written) =
                    (&connection.pair.opened[end], &connection.written[1 - end]);
                assert!(
                    written.starts_with(opened),
                    "seed {seed}: end {end} of connection {number} has accepted something else"
                );
                any |= !opened.is_empty();
            }
        }
        any
    }
}

/// Runs from seeds; returns in how many of them something was decrypted, in how many of these
/// somebody has meddled, and how many ends have ended with a reason.
fn run(seeds: std::ops::Range<u64>, calm: usize) -> (usize, usize, usize) {
    let (mut decrypted, mut nevertheless, mut faults) = (0, 0, 0);
    for seed in seeds {
        let mut between = Adversary::new(seed);
        for _ in 0..60 {
            between.step(calm);
        }
        let any = between.check(seed);
        decrypted += usize::from(any);
        nevertheless += usize::from(any && between.meddled > 0);
        faults += between.connections.iter().flat_map(|one| one.faults).flatten().count();
    }
    (decrypted, nevertheless, faults)
}

#[test]
fn whatever_is_done_to_connections_nothing_but_what_was_sent_is_accepted() {
    // With nobody in between every connection works.
    assert_eq!(run(0..20, usize::MAX), (20, 0, 0));
    let (_, nevertheless, faults) = run(0..400, 12);
    assert!(nevertheless > 100 && faults > 200, "{nevertheless} {faults}");
    let (_, _, faults) = run(0..400, 3);
    assert!(faults > 400, "{faults}");
}
