//! Somebody between hosts and target, without their keys, who drops, flips, repeats, reorders,
//! reflects, exchanges and cuts what they send, as a seed says. (The library draws its own random
//! numbers, so that a seed repeats what he does, not every byte.)
//!
//! Over TLS, and with keys of TLS that the authentication makes: whatever he does, what a read
//! returns is what was written, a write that is acknowledged was executed, and where he touches
//! each connection nothing is read or written at all.
#![cfg(feature = "tls")]

mod leak;
mod logged;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weft_reactor::simulation::{Interception, Random};
use weft_sim::{Client, SUBSYSTEM, Security, Size, Testbed};

const SIZE: Size = Size { groups: 2, hosts: 2, queues: 2 };
const BLOCKS: usize = 40;

/// The device, all of it zeros.
const DEVICE: &str = "memory:1MiB";

const TLS_KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// Runs log to one place: one at a time.
static ONE_RUN: Mutex<()> = Mutex::new(());

/// What he does.
#[derive(Clone, Copy, PartialEq)]
enum Attack {
    /// One of so many pieces is something else.
    Sometimes(u64),
    /// Every connection has TLS only until he flips a bit in one of its first pieces, and in each
    /// after that.
    EachConnection,
}

struct Adversary {
    how: Attack,
    dice: Random,
    /// What was seen of each connection, by the address of the host's end: the pieces in both
    /// directions, and from which on each is changed.
    connections: BTreeMap<SocketAddr, (u64, u64)>,
    /// All pieces, of any connection and direction.
    pieces: Vec<Vec<u8>>,
    held: Option<Vec<u8>>,
    meddled: usize,
    /// Pieces that did not begin with a record.
    clear: usize,
}

impl Adversary {
    fn new(how: Attack, seed: u64) -> Rc<RefCell<Self>> {
        let connections = BTreeMap::new();
        let (dice, pieces) = (Random::new(seed ^ 0xad7e), Vec::new());
        let between = Self { how, dice, connections, pieces, held: None, meddled: 0, clear: 0 };
        Rc::new(RefCell::new(between))
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.dice.below(end.max(1) as u64)).expect("small")
    }

    fn pass(&mut self, [from, to]: [SocketAddr; 2], bytes: Vec<u8>) -> Vec<Interception> {
        let host = if from.port() == 4420 { to } else { from };
        let first = self.dice.below(8);
        let (number, first) = {
            let seen = self.connections.entry(host).or_insert((0, first));
            seen.0 += 1;
            (seen.0 - 1, seen.1)
        };
        // Connections go on in the middle of a record, which may look like anything.
        let is_clear = number == 0 && !(0x14..=0x17).contains(&bytes[0]);
        self.clear += usize::from(is_clear);
        self.pieces.push(bytes.clone());
        self.pieces.truncate(64);
        let is_exchange = self.is_exchange(host, is_clear);
        match self.how {
            Attack::Sometimes(calm) if self.dice.below(calm) > 0 => {}
            Attack::Sometimes(_) => return self.meddle(bytes),
            Attack::EachConnection if number < first || is_exchange => {}
            Attack::EachConnection => return vec![Interception::Forward(self.flip(bytes))],
        }
        vec![Interception::Forward(bytes)]
    }

    /// Whether this connection is that of an exchange in the clear.
    fn is_exchange(&mut self, host: SocketAddr, begins: bool) -> bool {
        let seen = self.connections.entry(host).or_default();
        if begins {
            seen.1 = u64::MAX;
        }
        seen.1 == u64::MAX
    }

    /// Flips a bit of the first record's contents.
    fn flip(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        self.meddled += 1;
        let place = 5 + self.below(bytes.len().saturating_sub(5));
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << bit;
        }
        bytes
    }

    fn meddle(&mut self, mut bytes: Vec<u8>) -> Vec<Interception> {
        use Interception::{Back, Cut, Forward};
        self.meddled += 1;
        let place = self.below(bytes.len());
        match self.below(9) {
            // Dropped.
            0 => vec![],
            // A bit is flipped.
            1 => {
                bytes[place] ^= 1 << self.below(8);
                vec![Forward(bytes)]
            }
            // Repeated at once, or later, or that of another connection or of the other direction.
            2 => vec![Forward(bytes.clone()), Forward(bytes)],
            3 => {
                let before = self.below(self.pieces.len());
                vec![Forward(bytes), Forward(self.pieces[before].clone())]
            }
            4 => {
                let before = self.below(self.pieces.len());
                vec![Forward(self.pieces[before].clone())]
            }
            // Held back until another is, which goes first.
            5 => match self.held.replace(bytes.clone()) {
                Some(before) => vec![Forward(bytes), Forward(before)],
                None => vec![],
            },
            // Reflected.
            6 => vec![Back(bytes)],
            // Cut, before or within it.
            7 => vec![Cut],
            _ => {
                bytes.truncate(place);
                vec![Forward(bytes), Cut]
            }
        }
    }
}

fn stand_between(testbed: &Testbed, how: Attack, seed: u64) -> Rc<RefCell<Adversary>> {
    let between = Adversary::new(how, seed);
    let inner = Rc::clone(&between);
    testbed.world.intercept(move |_, ends, bytes| inner.borrow_mut().pass(ends, bytes));
    between
}

/// A file with a key, in a folder that goes with it.
fn key(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    std::fs::write(&path, text).expect("it is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("its mode is set");
    (folder, path)
}

fn drain(testbed: &mut Testbed, clients: &mut [Client]) {
    while clients.iter().any(|client| !client.is_idle()) {
        testbed.step();
        clients.iter_mut().for_each(|client| client.collect(testbed));
    }
}

/// A run with him in between for a while. Returns in how many pieces he has meddled, and how many
/// requests ended meanwhile.
fn run(security: &Security, how: Attack, seed: u64, time: Duration) -> (usize, u64) {
    let mut testbed = Testbed::secured(security.clone(), seed, DEVICE, SIZE);
    let mut clients = Client::of_each_host(&testbed, seed, BLOCKS);
    let between = stand_between(&testbed, how, seed);
    if how == Attack::EachConnection {
        (0..SIZE.hosts).for_each(|host| testbed.reset(host));
    }
    let end = testbed.world.now() + time;
    while testbed.world.now() < end {
        clients.iter_mut().for_each(|client| client.begin(&mut testbed));
        testbed.step();
        clients.iter_mut().for_each(|client| client.collect(&mut testbed));
    }
    testbed.world.stop_intercepting();
    let (ended, lost): (u64, u64) =
        clients.iter().fold((0, 0), |(a, b), one| (a + one.ended(), b + one.lost()));
    let given_up = testbed.replace_ended(SIZE.queues);
    // What he changes of records is no reason to give up.
    assert!(given_up == 0 || matches!(security, Security::Concatenation(_)), "seed {seed}");
    drain(&mut testbed, &mut clients);
    clients.iter_mut().for_each(|client| client.begin_check(&mut testbed));
    drain(&mut testbed, &mut clients);
    testbed.finish();
    let between = between.borrow();
    if matches!(security, Security::Tls(_)) {
        assert_eq!(between.clear, 0, "seed {seed}: something begins in the clear");
    }
    (between.meddled, ended - lost)
}

fn securities() -> (tempfile::TempDir, tempfile::TempDir, [Security; 2]) {
    let ((first, tls), (second, secret)) = (key(TLS_KEY), key(SECRET));
    (first, second, [Security::Tls(tls), Security::Concatenation(secret)])
}

#[test]
fn where_each_connection_is_changed_nothing_is_read_or_written() {
    let _one = ONE_RUN.lock().unwrap_or_else(PoisonError::into_inner);
    logged::install();
    let (_first, _second, securities) = securities();
    for security in securities {
        for seed in 0..10 {
            drop(logged::take());
            let time = Duration::from_secs(8);
            let (meddled, ended) = run(&security, Attack::EachConnection, seed, time);
            assert!(meddled > 10, "seed {seed}: only {meddled} pieces were changed");
            assert_eq!(ended, 0, "seed {seed}: requests have ended");
            let lines = logged::take();
            let with_reason = |part: &str| lines.iter().any(|line| line.contains(part));
            assert!(with_reason("ended: TLS: "), "seed {seed}: the target says no reason");
            assert!(with_reason("to reconnect failed: "), "seed {seed}: nor does the host");
        }
    }
}

/// And none of the lines that all of this logs at the highest level has a secret in it.
#[test]
fn whatever_is_done_what_is_read_is_what_was_written_and_no_secret_is_logged() {
    let _one = ONE_RUN.lock().unwrap_or_else(PoisonError::into_inner);
    logged::install();
    drop(logged::take());
    let (_first, _second, securities) = securities();
    let (mut meddled, mut ended) = (0, 0);
    for security in securities {
        for (seed, calm) in (0..15).zip([3, 30, 300].into_iter().cycle()) {
            let time = Duration::from_secs(8);
            let (more, requests) = run(&security, Attack::Sometimes(calm), seed, time);
            (meddled, ended) = (meddled + more, ended + requests);
        }
    }
    assert!(meddled > 1000 && ended > 1000, "{meddled} {ended}");
    let lines = logged::take();
    assert!(lines.len() >= 10_000, "only {} lines", lines.len());
    let hosts: Vec<String> = (0..SIZE.hosts).map(Testbed::host_name).collect();
    let names: Vec<(&str, &str)> = hosts.iter().map(|host| (&**host, SUBSYSTEM)).collect();
    let patterns = leak::patterns(&[TLS_KEY, SECRET], &names);
    assert_eq!(leak::leak(&lines, &patterns), None);
}
