//! The layer of TLS between a socket and its session.
//!
//! ```text
//!   socket --received--> open ---> session's input, or a command's buffer
//!   socket <--outgoing-- seal <--- session's messages
//! ```
//!
//! Until the handshake is complete nothing of the session is sealed and nothing is opened for it.

use std::ops::RangeInclusive;

use weft_reactor::Message;

use super::link::Input;
use crate::tls::{
    Engine, TlsAcceptor, TlsConnector, TlsFault, TlsMode, TlsRecords, TlsSecrets, Wire, key_bytes,
};

/// Most bytes of a record's plaintext.
const RECORD_BYTES: usize = 16 * 1024;

/// Why the kernel cannot have the records of a connection.
const NOT_QUIET: &str = "the peer has sent more than its handshake";

/// The first byte of a record, its type. NVMe/TCP begins with 0.
const RECORD_TYPES: RangeInclusive<u8> = 0x14..=0x17;

#[derive(Debug)]
pub(crate) struct Layer {
    engine: Engine,
    /// Who is to have the records after the handshake.
    records: TlsRecords,
    stage: Stage,
    /// What was received and is not decrypted.
    received: Option<Input>,
    /// The engine may have plaintext before more is received.
    has_more: bool,
    /// Memory for the plaintext of one record.
    plain: Option<Vec<u8>>,
    /// Plaintext that is going to be in the next record.
    staged: Vec<u8>,
    /// Bytes encrypted with the sending key, and after how many it is renewed.
    sealed: u64,
    key_bytes: u64,
    /// What is encrypted and not sent.
    pub(crate) outgoing: Message,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has come: a peer that does not speak TLS may be served as well, or not.
    Fresh {
        allowed_in_the_clear: bool,
    },
    ShakingHands,
    Open,
    /// The peer has been told that nothing more comes.
    Ended,
}

/// Where plaintext goes.
#[derive(Debug)]
pub(crate) enum Plaintext {
    /// Nothing before more is received; the handshake may have gone on.
    Starved,
    /// So many bytes in the place that was given.
    Placed(usize),
    /// Input for the session.
    Input(Input),
    /// The peer has ended the connection.
    Ended,
}

/// The state that moves to another reactor.
#[derive(Debug)]
pub(crate) struct DetachedLayer {
    engine: Engine,
    received: Vec<u8>,
    has_more: bool,
    sealed: u64,
}

impl Layer {
    /// A target's side at a port with this mode, which is not [`TlsMode::Off`].
    pub(crate) fn accept(
        acceptor: &TlsAcceptor,
        mode: TlsMode,
        records: TlsRecords,
    ) -> Result<Self, TlsFault> {
        let stage = Stage::Fresh { allowed_in_the_clear: mode != TlsMode::Required };
        Ok(Self::new(Engine::accept(acceptor, records)?, records, stage))
    }

    /// A host's side.
    pub(crate) fn connect(connector: &TlsConnector) -> Result<Self, TlsFault> {
        let stage = Stage::Fresh { allowed_in_the_clear: false };
        Ok(Self::new(Engine::connect(connector)?, connector.records, stage))
    }

    fn new(engine: Engine, records: TlsRecords, stage: Stage) -> Self {
        Self {
            engine,
            records,
            stage,
            received: None,
            has_more: false,
            plain: None,
            staged: Vec::new(),
            sealed: 0,
            key_bytes: key_bytes(),
            outgoing: Message::new(),
        }
    }

    /// The rest of a connection that has moved here.
    pub(crate) fn attach(detached: DetachedLayer) -> Self {
        let DetachedLayer { engine, received, has_more, sealed } = detached;
        let received = (!received.is_empty()).then(|| Input::parked(received));
        Self { received, has_more, sealed, ..Self::new(engine, TlsRecords::User, Stage::Open) }
    }

    /// What moves of a connection whose handshake is complete.
    pub(crate) fn detach(self) -> DetachedLayer {
        let received = self.received.map(|input| input.bytes().to_vec()).unwrap_or_default();
        let Self { engine, has_more, sealed, .. } = self;
        DetachedLayer { engine, received, has_more, sealed }
    }

    /// The identity of the PSK in use.
    pub(crate) fn identity(&self) -> Option<String> {
        self.engine.identity()
    }

    /// Whether the kernel is to have the records.
    pub(crate) fn is_for_kernel(&self) -> bool {
        self.records == TlsRecords::Kernel
    }

    /// Takes what the kernel needs to have the records from now on, if it has the cipher suite; why
    /// not if they stay here.
    pub(crate) fn hand_over(
        &mut self,
        is_quiet: bool,
        kernel_has: impl FnOnce([u8; 2]) -> bool,
    ) -> Result<TlsSecrets, &'static str> {
        self.records = TlsRecords::User;
        let is_quiet = is_quiet
            && self.stage == Stage::Open
            && self.received.is_none()
            && self.staged.is_empty()
            && self.outgoing.is_empty();
        if !is_quiet {
            return Err(NOT_QUIET);
        }
        // What was handed over cannot be taken back.
        if !self.engine.suite().is_some_and(kernel_has) {
            return Err("this kernel does not have the cipher suite");
        }
        self.engine.hand_over().ok_or(NOT_QUIET)
    }

    /// Whether [`Self::open`] has something to do.
    pub(crate) const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Takes what was received. The first bytes say whether the peer speaks TLS; of one that does
    /// not they are returned if it may be served all the same.
    pub(crate) fn take(&mut self, input: Input) -> Result<Option<Input>, TlsFault> {
        if let Stage::Fresh { allowed_in_the_clear } = self.stage {
            match (input.bytes().first(), allowed_in_the_clear) {
                (Some(first), _) if RECORD_TYPES.contains(first) => {}
                (_, true) => return Ok(Some(input)),
                (_, false) => return Err(TlsFault::InTheClear),
            }
            self.stage = Stage::ShakingHands;
        }
        self.received = Some(input);
        self.has_more = true;
        Ok(None)
    }

    /// Decrypts the next record's bytes into `place` if there is one, else into memory of its own.
    pub(crate) fn open(&mut self, place: Option<&mut [u8]>) -> Result<Plaintext, TlsFault> {
        if self.stage == Stage::ShakingHands {
            if !self.with_wire(Engine::shake_hands)? {
                self.has_more = false;
                return Ok(Plaintext::Starved);
            }
            self.stage = Stage::Open;
        }
        match place {
            Some(place) => self.fill(place),
            None => self.input(),
        }
    }

    /// Fills a place as far as what was received suffices.
    fn fill(&mut self, place: &mut [u8]) -> Result<Plaintext, TlsFault> {
        let mut filled = 0;
        while let Some(rest) = place.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.with_wire(|engine, wire| engine.open(wire, rest))? {
                // What came before it counts first.
                Some(0) if filled > 0 => break,
                Some(0) => return Ok(Plaintext::Ended),
                Some(bytes) => filled += bytes,
                None => {
                    self.has_more = false;
                    break;
                }
            }
        }
        Ok(Plaintext::Placed(filled))
    }

    fn input(&mut self) -> Result<Plaintext, TlsFault> {
        let mut plain = self.plain.take().unwrap_or_else(|| vec![0; RECORD_BYTES]);
        let opened = self.with_wire(|engine, wire| engine.open(wire, &mut plain));
        match opened? {
            Some(bytes) if bytes > 0 => Ok(Plaintext::Input(Input::first(plain, bytes))),
            ended => {
                self.plain = Some(plain);
                self.has_more = false;
                Ok(if ended.is_some() { Plaintext::Ended } else { Plaintext::Starved })
            }
        }
    }

    /// Copies what was received out of the pool's buffer and frees that. Returns whether there is
    /// any.
    pub(crate) fn park(&mut self) -> bool {
        self.received = self.received.take().map(Input::park);
        self.received.is_some()
    }

    /// Takes back the memory of used input.
    pub(crate) fn reuse(&mut self, plain: Vec<u8>) {
        if plain.len() == RECORD_BYTES {
            self.plain = Some(plain);
        }
    }

    /// Encrypts the session's messages once the handshake is complete.
    pub(crate) fn seal(&mut self, messages: &mut Message) -> Result<(), TlsFault> {
        match self.stage {
            // A host begins.
            Stage::Fresh { allowed_in_the_clear: false } if !messages.is_empty() => {
                self.with_wire(Engine::shake_hands).map(drop)
            }
            Stage::Open if !messages.is_empty() => {
                for piece in messages.parts() {
                    self.stage_piece(piece)?;
                }
                messages.clear();
                self.seal_staged()
            }
            _ => Ok(()),
        }
    }

    /// Records are as long as they can be: each costs a fixed time.
    fn stage_piece(&mut self, mut piece: &[u8]) -> Result<(), TlsFault> {
        if !self.staged.is_empty() {
            let room = RECORD_BYTES - self.staged.len();
            let (first, rest) = piece.split_at(room.min(piece.len()));
            self.staged.extend_from_slice(first);
            piece = rest;
            if self.staged.len() == RECORD_BYTES {
                self.seal_staged()?;
            }
        }
        let (records, rest) = piece.split_at(piece.len() - piece.len() % RECORD_BYTES);
        if !records.is_empty() {
            self.seal_records(records)?;
        }
        self.staged.extend_from_slice(rest);
        Ok(())
    }

    fn seal_staged(&mut self) -> Result<(), TlsFault> {
        let mut staged = std::mem::take(&mut self.staged);
        let sealed = self.seal_records(&staged);
        staged.clear();
        self.staged = staged;
        sealed
    }

    fn seal_records(&mut self, plain: &[u8]) -> Result<(), TlsFault> {
        self.sealed += plain.len() as u64;
        if self.sealed > self.key_bytes {
            self.sealed = 0;
            self.engine.renew_key()?;
        }
        self.with_wire(|engine, wire| engine.seal(wire, plain))
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Ended;
            self.with_wire(Engine::end);
        }
    }

    /// Frees what a quiet connection does not need.
    pub(crate) fn release(&mut self) {
        self.plain = None;
        self.staged = Vec::new();
        self.outgoing = Message::new();
        self.engine.release();
    }

    /// Calls the engine with what was received, of which it leaves the rest.
    fn with_wire<T>(&mut self, call: impl FnOnce(&mut Engine, Wire<'_, '_>) -> T) -> T {
        let mut received = self.received.as_ref().map_or(&[][..], Input::bytes);
        let result = call(&mut self.engine, (&mut received, &mut self.outgoing));
        let left = received.len();
        if let Some(input) = &mut self.received {
            input.keep(left);
        }
        self.received.take_if(|_| left == 0);
        result
    }
}

#[cfg(all(test, feature = "tls"))]
mod attack;

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use crate::tcp::security::Security;
    use std::sync::Arc;
    use weft_nvmf::keys::{Derivation, IdentityVersion, TlsKey, TlsPsk};

    const HOST: &str = "nqn.host";
    const SUBSYSTEM: &str = "nqn.subsystem";
    /// Handing over is possible, and is nowhere asked for but in its test.
    const RECORDS: TlsRecords = TlsRecords::Kernel;

    pub(super) fn psk(hash: u8, version: IdentityVersion, fill: u8) -> TlsPsk {
        let (hash, bytes) = match hash {
            1 => (weft_nvmf::auth::HashFunction::Sha256, 32),
            _ => (weft_nvmf::auth::HashFunction::Sha384, 48),
        };
        let key = TlsKey::new(Some(hash), vec![fill; bytes].into()).expect("a key");
        key.psk(version, Derivation::Standard, HOST, SUBSYSTEM).expect("short names")
    }

    fn usual() -> TlsPsk {
        psk(1, IdentityVersion::V1, 7)
    }

    /// A host that offers PSKs, and a target that knows some.
    pub(super) struct LayerPair {
        pub(super) ends: [Layer; 2],
        /// What each end has been sent and has decrypted.
        pub(super) opened: [Vec<u8>; 2],
    }

    impl LayerPair {
        pub(super) fn new(offered: Vec<TlsPsk>, known: Vec<TlsPsk>, mode: TlsMode) -> Self {
            let find =
                move |identity: &str| known.iter().find(|psk| psk.identity == identity).cloned();
            let acceptor = TlsAcceptor::new(Arc::new(find)).expect("an acceptor");
            let connector = TlsConnector::new(offered, RECORDS).expect("a connector");
            let host = Layer::connect(&connector).expect("a host");
            let target = Layer::accept(&acceptor, mode, RECORDS).expect("a target");
            Self { ends: [host, target], opened: [Vec::new(), Vec::new()] }
        }

        fn usual() -> Self {
            Self::new(vec![usual()], vec![usual()], TlsMode::Required)
        }

        fn seal(&mut self, end: usize, bytes: &[u8]) {
            let mut message = Message::new();
            message.bytes(bytes);
            self.ends[end].seal(&mut message).expect("sealed");
        }

        /// The cipher suites that the host offers.
        fn offered_suites(&mut self) -> Vec<u8> {
            self.seal(0, b"request");
            let hello = self.sent(0);
            // The headers of the record and of the message, the version and random; the session.
            let session = 5 + 4 + 2 + 32;
            let suites = session + 1 + usize::from(hello[session]);
            let length = usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
            hello[suites + 2..][..length].to_vec()
        }

        /// What an end has to send.
        pub(super) fn sent(&mut self, end: usize) -> Vec<u8> {
            let bytes = self.ends[end].outgoing.parts().collect::<Vec<_>>().concat();
            self.ends[end].outgoing.clear();
            bytes
        }

        pub(super) fn receive(&mut self, end: usize, bytes: &[u8]) -> Result<(), TlsFault> {
            if bytes.is_empty() {
                return Ok(());
            }
            let layer = &mut self.ends[end];
            if let Some(clear) = layer.take(Input::parked(bytes.to_vec()))? {
                self.opened[end].extend_from_slice(clear.bytes());
                return Ok(());
            }
            while layer.has_more() {
                match layer.open(None)? {
                    Plaintext::Input(input) => self.opened[end].extend_from_slice(input.bytes()),
                    Plaintext::Ended => self.opened[end].extend_from_slice(b"(end)"),
                    Plaintext::Starved | Plaintext::Placed(_) => {}
                }
            }
            Ok(())
        }

        /// Carries bytes until neither end has more, each stream changed on the way.
        fn carry(
            &mut self,
            mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
        ) -> Result<(), TlsFault> {
            // The host has its first request ready, and begins.
            let mut request = Message::new();
            request.bytes(b"request");
            self.ends[0].seal(&mut request)?;
            loop {
                let mut quiet = true;
                for end in [0, 1] {
                    let bytes = change(end, self.sent(end));
                    quiet &= bytes.is_empty();
                    self.receive(1 - end, &bytes)?;
                    self.ends[0].seal(&mut request)?;
                }
                if quiet {
                    return Ok(());
                }
            }
        }

        fn connected() -> Self {
            let mut pair = Self::usual();
            pair.carry(|_, bytes| bytes).expect("a handshake");
            assert_eq!(pair.opened[1], b"request");
            pair
        }
    }

    /// A server chooses among the suites that it is offered without a look at the hash function of
    /// the PSK, as that of OpenSSL does, and refuses the PSK then.
    #[test]
    fn a_host_offers_suites_of_its_keys_hash_function() {
        let offered = |hashes: &[u8]| {
            let all = hashes.iter().zip(1..);
            let psks = all.map(|(hash, fill)| psk(*hash, IdentityVersion::V1, fill));
            LayerPair::new(psks.collect(), Vec::new(), TlsMode::Required).offered_suites()
        };
        assert_eq!(offered(&[2]), [0x13, 2]);
        assert_eq!(offered(&[2, 2]), [0x13, 2]);
        assert_eq!(offered(&[1])[..2], [0x13, 1]);
        for suite in [[0x13, 1], [0x13, 2]] {
            assert!(offered(&[1, 2]).chunks(2).any(|one| one == suite), "{suite:?}");
        }
    }

    #[test]
    fn every_version_and_hash_connects_and_has_its_identity() {
        for hash in [1, 2] {
            for version in [IdentityVersion::V0, IdentityVersion::V1] {
                let own = psk(hash, version, 7);
                // The target has several keys, and the host offers one that it does not know.
                let known = vec![psk(1, IdentityVersion::V1, 9), own.clone()];
                let offered = vec![psk(2, IdentityVersion::V1, 1), own.clone()];
                let mut pair = LayerPair::new(offered, known, TlsMode::Required);
                pair.carry(|_, bytes| bytes).expect("a handshake");
                assert_eq!(pair.opened[1], b"request");
                assert_eq!(pair.ends[1].identity(), Some(own.identity));
            }
        }
    }

    #[test]
    fn an_unknown_identity_and_a_wrong_key_end_the_handshake() {
        let mut pair =
            LayerPair::new(vec![usual()], vec![psk(1, IdentityVersion::V1, 9)], TlsMode::Required);
        let fault = pair.carry(|_, bytes| bytes).expect_err("no key");
        assert_eq!(fault, TlsFault::UnknownIdentity);
        let wrong = TlsPsk { identity: usual().identity, ..psk(1, IdentityVersion::V1, 9) };
        let mut pair = LayerPair::new(vec![usual()], vec![wrong], TlsMode::Required);
        pair.carry(|_, bytes| bytes).expect_err("another key of the same name");
        assert!(pair.opened.iter().all(Vec::is_empty));
    }

    /// As GnuTLS before 3.8.11 does with every PSK.
    #[test]
    fn a_psk_that_is_used_with_another_hash_function_than_its_own_ends_the_handshake() {
        let own = psk(2, IdentityVersion::V1, 7);
        let wrong = TlsPsk { hash: weft_nvmf::auth::HashFunction::Sha256, ..own.clone() };
        let mut pair = LayerPair::new(vec![wrong], vec![own], TlsMode::Required);
        assert_eq!(pair.carry(|_, bytes| bytes), Err(TlsFault::OtherHash));
        assert!(pair.opened.iter().all(Vec::is_empty));
    }

    #[test]
    fn what_is_not_tls_is_served_only_where_that_is_allowed() {
        let clear = [0, 0, 128, 0];
        let mut pair = LayerPair::new(vec![usual()], vec![usual()], TlsMode::Required);
        assert_eq!(pair.receive(1, &clear), Err(TlsFault::InTheClear));
        assert!(pair.sent(1).is_empty() && pair.opened[1].is_empty());
        let mut pair = LayerPair::new(vec![usual()], vec![usual()], TlsMode::Allowed);
        assert_eq!(pair.receive(1, &clear), Ok(()));
        assert_eq!(pair.opened[1], clear);
        let mut pair = LayerPair::new(vec![usual()], vec![usual()], TlsMode::Allowed);
        pair.carry(|_, bytes| bytes).expect("TLS is allowed, too");
        assert_eq!(pair.opened[1], b"request");
    }

    #[test]
    fn long_messages_come_back_in_any_pieces_and_into_a_place() {
        let mut pair = LayerPair::connected();
        let payload: Vec<u8> = (0..100_000u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        let mut message = Message::new();
        message.bytes(&[1; 24]);
        message.bytes(&payload);
        pair.ends[1].seal(&mut message).expect("sealed");
        assert!(message.is_empty());
        let sent = pair.sent(1);
        assert!(sent.len() < payload.len() + 24 + 7 * 30, "records are long: {}", sent.len());
        for piece in sent.chunks(777) {
            pair.receive(0, piece).expect("records");
        }
        assert_eq!(pair.opened[0][..24], [1; 24]);
        assert_eq!(pair.opened[0][24..], payload);
        pair.seal(0, &payload);
        let sent = pair.sent(0);
        pair.ends[1].take(Input::parked(sent)).expect("TLS");
        let mut place = vec![0; 50_000];
        assert!(matches!(pair.ends[1].open(Some(&mut place)), Ok(Plaintext::Placed(50_000))));
        assert_eq!(place, payload[..50_000]);
        assert!(pair.ends[1].has_more());
        assert!(matches!(pair.ends[1].open(Some(&mut place)), Ok(Plaintext::Placed(50_000))));
        assert_eq!(place, payload[50_000..]);
    }

    #[test]
    fn keys_are_renewed_by_both_ends_in_both_directions() {
        let mut pair = LayerPair::connected();
        for round in 0..6u8 {
            for end in [0, 1] {
                pair.ends[end].sealed = pair.ends[end].key_bytes;
                pair.seal(end, &[round; 100]);
                assert_eq!(pair.ends[end].sealed, 0, "the key was renewed");
                let sent = pair.sent(end);
                pair.opened[1 - end].clear();
                pair.receive(1 - end, &sent).expect("the new key");
                assert_eq!(pair.opened[1 - end], [round; 100]);
            }
        }
    }

    #[test]
    fn what_is_handed_over_is_the_same_at_both_ends_and_between_two_records() {
        let mut pair = LayerPair::connected();
        // A second record of the host, after its request.
        pair.seal(0, b"more");
        let sent = pair.sent(0);
        pair.receive(1, &sent[..9]).expect("half a record");
        let has = |suite| suite == [0x13, 1];
        assert_eq!(pair.ends[1].hand_over(true, has).err(), Some(NOT_QUIET), "half a record");
        pair.receive(1, &sent[9..]).expect("the rest");
        assert_eq!(pair.opened[1], b"requestmore");
        let refused = pair.ends[1].hand_over(true, |_| false).expect_err("no such suite");
        assert!(refused.contains("cipher suite"), "{refused}");
        let handed = pair.ends.each_mut().map(|end| end.hand_over(true, has));
        let [host, target] = handed.map(|handed| handed.expect("it is quiet"));
        assert_eq!((host.suite, target.suite), ([0x13, 1], [0x13, 1]));
        assert_eq!((&host.sending, &host.receiving), (&target.receiving, &target.sending));
        assert_eq!((host.sending.1, target.sending.1), (2u64.to_be_bytes(), [0; 8]));
        assert_ne!(host.sending.0, host.receiving.0);
        assert_eq!(target.identity, Some(usual().identity));
        // Nobody else may use the keys.
        let mut message = Message::new();
        message.bytes(b"again");
        assert!(pair.ends[0].seal(&mut message).is_err());
    }

    #[test]
    fn a_socket_stays_as_it_is_if_the_kernel_cannot_have_the_records() {
        let untouched = || panic!("the kernel is asked for records");
        for is_quiet in [false, true] {
            let [_, target] = LayerPair::connected().ends;
            let mut security = Security::Layer(target);
            security.hand_over(is_quiet, |_| false, untouched).expect("they stay here");
            assert!(security.layer().is_some_and(|layer| !layer.is_for_kernel()));
        }
    }

    #[test]
    fn an_end_is_told() {
        let mut pair = LayerPair::connected();
        pair.ends[0].end();
        let sent = pair.sent(0);
        pair.receive(1, &sent).expect("an alert that closes");
        assert_eq!(pair.opened[1], b"request(end)");
    }

    #[test]
    fn records_that_are_changed_repeated_dropped_or_reordered_are_not_accepted() {
        let sealed = |pair: &mut LayerPair| -> [Vec<u8>; 2] {
            std::array::from_fn(|n| {
                pair.seal(0, &[u8::try_from(n).expect("few"); 40]);
                pair.sent(0)
            })
        };
        type Change = fn([Vec<u8>; 2]) -> Vec<u8>;
        let runs: [Change; 3] = [
            |[first, second]| [first.clone(), first, second].concat(),
            |[_, second]| second,
            |[first, second]| [second, first].concat(),
        ];
        for run in runs {
            let mut pair = LayerPair::connected();
            let sent = run(sealed(&mut pair));
            pair.opened[1].clear();
            pair.receive(1, &sent).expect_err("not accepted");
            assert!(pair.opened[1].len() <= 40, "at most what was genuine");
        }
        for at in 0..62 {
            let mut pair = LayerPair::connected();
            let [mut sent, _] = sealed(&mut pair);
            pair.opened[1].clear();
            sent[at] ^= 1;
            let outcome = pair.receive(1, &sent);
            // A longer length waits for more; all else is refused at once.
            assert!(outcome.is_err() || at == 3 || at == 4, "{at}: {outcome:?}");
            assert!(pair.opened[1].is_empty(), "{at}");
        }
    }

    /// Somebody between host and target flips one bit of any byte of the handshake, or cuts it
    /// there for good: nothing reaches the session.
    #[test]
    fn a_handshake_that_is_changed_or_cut_at_any_byte_delivers_nothing() {
        let mut lengths = [0, 0];
        LayerPair::usual()
            .carry(|end, bytes| {
                lengths[end] += bytes.len();
                bytes
            })
            .expect("a handshake");
        // The first record's version, which RFC 8446 has everybody ignore, and records that change
        // nothing (ChangeCipherSpec).
        let mut harmless = 0;
        for (end, length) in lengths.into_iter().enumerate() {
            for at in 0..length {
                for cut in [false, true] {
                    let mut pair = LayerPair::usual();
                    let mut seen = 0;
                    let outcome = pair.carry(|from, mut bytes| {
                        if from == end {
                            let place = at.checked_sub(seen).filter(|place| *place < bytes.len());
                            seen += bytes.len();
                            match place {
                                Some(place) if cut => bytes.truncate(place),
                                Some(place) => bytes[place] ^= 1,
                                None if cut && seen > at => bytes.clear(),
                                None => {}
                            }
                        }
                        bytes
                    });
                    if outcome.is_ok() && pair.opened[1] == b"request" && !(cut && end == 0) {
                        // The target's last flight came through, or the change meant nothing.
                        harmless += 1;
                        continue;
                    }
                    assert!(pair.opened[1].is_empty(), "{end} {at} {cut}: {outcome:?}");
                }
            }
        }
        assert!(harmless <= 20, "{harmless} of {lengths:?}");
    }
}
