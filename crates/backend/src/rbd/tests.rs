use super::librbd::Image;
use super::librbd::software::World;
use super::*;
use crate::{DeviceSpec, Failure, Operation, Request, RequestCompletion};
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use weft_reactor::{Buffer, Config, Token, WaitLimit};

const BYTES: usize = 1 << 20;
const BLOCK: u32 = 4096;
const OWNER: Owner = Owner(7);

/// An image in memory, opened on a reactor.
struct Rig {
    world: Arc<World>,
    factory: RbdFactory,
    reactor: Reactor,
    device: Box<dyn BlockDevice>,
    tag: u64,
}

/// A cluster that no other test has, and a connection to it.
fn world() -> (Arc<World>, Arc<Cluster>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (world, cluster) = World::new(&format!("world {}", COUNT.fetch_add(1, SeqCst)));
    world.lock().images.insert("pool/team/disk".to_owned(), vec![0; BYTES]);
    (world, cluster)
}

fn spec(options: &str) -> RbdSpec {
    RbdSpec::parse(&format!("pool/team/disk{options}")).unwrap()
}

fn factory(cluster: Arc<Cluster>, spec: &RbdSpec) -> Result<RbdFactory, OpenError> {
    let (image, follower) = open_image(cluster, spec).map_err(invalid)?;
    RbdFactory::with(spec, image, follower)
}

impl Rig {
    fn new(options: &str) -> Self {
        let (world, cluster) = world();
        let factory = factory(cluster, &spec(options)).unwrap();
        let config = Config { pool_bytes: 128 << 20, ..Config::default() };
        let mut reactor = Reactor::new(config).unwrap();
        let device = factory.open(&mut reactor, OWNER).unwrap();
        Self { world, factory, reactor, device, tag: 0 }
    }

    fn buffer(&self, blocks: u32, byte: u8) -> Buffer {
        let mut buffer = self.reactor.pool().take((blocks * BLOCK) as usize).unwrap();
        buffer.bytes_mut().fill(byte);
        buffer
    }

    fn submit(&mut self, operation: Operation) {
        self.tag += 1;
        self.device.submit(&mut self.reactor, Request { tag: self.tag, operation });
    }

    /// Waits for that many completions.
    fn collect(&mut self, count: usize) -> Vec<RequestCompletion> {
        let (mut done, mut events) = (Vec::new(), Vec::new());
        let end = self.reactor.now() + Duration::from_secs(20);
        loop {
            self.device.flush(&mut self.reactor);
            done.extend(std::iter::from_fn(|| self.device.poll_completion()));
            if done.len() >= count {
                return done;
            }
            assert!(self.reactor.now() < end, "{} of {count} completions", done.len());
            self.reactor.poll(WaitLimit::Until(end), &mut events);
            for event in events.drain(..) {
                assert_eq!(event.token.owner, OWNER);
                self.device.handle(&mut self.reactor, event);
            }
        }
    }

    fn run(&mut self, operation: Operation) -> RequestCompletion {
        self.submit(operation);
        self.collect(1).remove(0)
    }

    fn read(&mut self, slba: u64, nlb: u32) -> RequestCompletion {
        let into = self.buffer(nlb, 0xee);
        self.run(Operation::Read { slba, nlb, into })
    }

    fn write(&mut self, slba: u64, nlb: u32, byte: u8) -> Result<(), Failure> {
        let (from, durable) = (self.buffer(nlb, byte), false);
        self.run(Operation::Write { slba, nlb, from, durable }).result
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.world.lock().log)
    }

    fn memory(&self) -> usize {
        self.reactor.pool().available()
    }
}

/// An image by two ways to its cluster is one; that it is made is known.
#[test]
fn an_image_is_the_same_by_whatever_way() {
    let (world, cluster) = world();
    let id = |cluster: &Arc<Cluster>, spec: &RbdSpec| {
        let factory = factory(Arc::clone(cluster), spec).unwrap();
        let storage = factory.storage().unwrap();
        (storage.id().clone(), storage.is_created())
    };
    let one = spec("");
    let other = RbdSpec::parse("pool/team/disk,user=other,conf=/elsewhere/ceph.conf").unwrap();
    assert_ne!(one.identity(), other.identity(), "by its spelling it is another one");
    assert_eq!(id(&cluster, &one), id(&cluster, &other));
    let new = RbdSpec::parse("pool/team/new,create,size=1MiB").unwrap();
    let (made, is_created) = id(&cluster, &new);
    assert!(is_created && made != id(&cluster, &one).0);
    assert!(!id(&cluster, &new).1, "it is there");
    assert_ne!(id(&cluster, &spec("@before")).0, id(&cluster, &one).0);
    let (elsewhere, another) = self::world();
    assert_ne!(id(&another, &one).0, id(&cluster, &one).0, "in another cluster");
    world.end();
    elsewhere.end();
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.hang(false);
        self.device.close(&mut self.reactor);
        self.world.end();
    }
}

fn all_are(completion: &RequestCompletion, byte: u8) -> bool {
    completion.result.is_ok()
        && completion.buffer.as_ref().is_some_and(|buffer| buffer.iter().all(|at| *at == byte))
}

#[test]
fn an_image_is_opened_as_it_is_described() {
    let (world, cluster) = world();
    let ceph = CephSpec {
        cluster: Some("no such".to_owned()),
        conf: Some("/etc/ceph/missing.conf".into()),
        ..CephSpec::default()
    };
    assert!(World::connect(&ceph).unwrap_err().to_string().contains("librados cannot start"));
    let log = std::mem::take(&mut world.lock().log);
    let settings = ["create client.admin", "conf ", "set client_mount_timeout=10"];
    assert_eq!(log[..3], settings);
    assert_eq!(log[3], "set rbd_cache=false");
    let device = factory(Arc::clone(&cluster), &spec("")).unwrap();
    let geometry = device.geometry();
    assert_eq!((geometry.block_bytes, geometry.blocks), (BLOCK, 256));
    assert_eq!(geometry.discard_granularity_blocks, 4, "what the cluster's option says");
    let can = geometry.capabilities;
    assert!(can.discard && can.write_zeroes && can.compare_and_write && can.durable_write);
    assert!(can.volatile_cache && !can.discard_reads_zeroes && !can.read_only);
    let snapshot = factory(Arc::clone(&cluster), &spec("@monday,block=512")).unwrap();
    let geometry = snapshot.geometry();
    assert_eq!((geometry.block_bytes, geometry.capabilities.read_only), (512, true));
    assert!(matches!(snapshot.resize(4096), Err(ResizeError::Unsupported)));
    let opened = std::mem::take(&mut world.lock().log);
    let of_snapshot = ["full try", "open pool/team/disk@monday"];
    assert_eq!(opened, [["full try", "open pool/team/disk@"], of_snapshot].concat());
    drop((device, snapshot));
    wait_until_closed(Duration::from_secs(5));
    let closed = ["close pool/team/disk", "close pool/team/disk"];
    assert_eq!(std::mem::take(&mut world.lock().log), closed);
    world.end();
}

#[test]
fn what_is_not_there_is_told() {
    let (world, cluster) = world();
    let error = |text: &str| {
        let spec = RbdSpec::parse(text).unwrap();
        factory(Arc::clone(&cluster), &spec).unwrap_err().to_string()
    };
    assert!(error("missing/disk").starts_with("cannot open pool missing: No such file"));
    assert!(error("pool/none").starts_with("cannot open image pool/none: No such file"));
    world.lock().images.insert("pool/tiny".to_owned(), vec![0; 100]);
    assert!(error("pool/tiny").contains("has 100 bytes, less than a block of 512"));
    world.lock().locked = true;
    assert!(error("pool/team/disk,exclusive").contains("another client keeps it"));
    factory(Arc::clone(&cluster), &spec(",exclusive,read-only")).unwrap();
    world.lock().locked = false;
    factory(cluster, &spec(",exclusive")).unwrap();
    let mut nameless = spec("");
    nameless.image = "a/b".to_owned();
    let error = DeviceSpec::Rbd(Box::new(nameless)).build().unwrap_err().to_string();
    assert!(error.contains("is not an image"), "{error}");
    world.end();
}

#[test]
fn operations_reach_the_cluster() {
    let mut rig = Rig::new("");
    rig.log();
    assert_eq!(rig.write(3, 2, 7), Ok(()));
    assert!(all_are(&rig.read(4, 1), 7) && all_are(&rig.read(5, 1), 0));
    let (from, durable) = (rig.buffer(1, 8), true);
    assert_eq!(rig.run(Operation::Write { slba: 5, nlb: 1, from, durable }).result, Ok(()));
    assert_eq!(rig.run(Operation::Flush).result, Ok(()));
    let zeroes = |deallocate| Operation::WriteZeroes { slba: 5, nlb: 1, deallocate, durable: true };
    assert_eq!(rig.run(zeroes(false)).result, Ok(()));
    assert_eq!(rig.run(zeroes(true)).result, Ok(()));
    assert_eq!(
        rig.log(),
        ["write", "read", "read", "write fua", "flush", "zero thick fua", "zero fua"]
    );
    let ranges = Box::new([(9, 0), (3, 1), (8, 0), (10, 4), (1, 0)]);
    assert_eq!(rig.run(Operation::Discard { ranges }).result, Ok(()));
    assert_eq!(rig.log(), ["discard 12288+4096", "discard 40960+16384"]);
    let with = rig.buffer(1, 7);
    assert_eq!(rig.run(Operation::Compare { slba: 4, nlb: 1, with }).result, Ok(()));
    let with = rig.buffer(1, 7);
    let other = rig.run(Operation::Compare { slba: 3, nlb: 1, with }).result;
    assert_eq!(other, Err(Failure::Mismatch));
    rig.log();
    assert_eq!(rig.run(Operation::Verify { slba: 0, nlb: 256 }).result, Ok(()));
    assert_eq!(rig.log(), ["read"], "a MiB at a time");
    let beyond = rig.run(Operation::Verify { slba: 256, nlb: 1 }).result;
    assert_eq!(beyond, Err(Failure::OutOfRange));
}

#[test]
fn a_block_is_compared_and_written_by_the_cluster() {
    let mut rig = Rig::new("");
    let pair = |rig: &Rig, nlb, expected, new| {
        let (compare, write) = (rig.buffer(nlb, expected), rig.buffer(nlb, new));
        Operation::CompareAndWrite { slba: 1, nlb, compare, write, durable: false }
    };
    let write = pair(&rig, 1, 0, 9);
    assert_eq!(rig.run(write).result, Ok(()));
    let write = pair(&rig, 1, 0, 10);
    let refused = rig.run(write);
    assert_eq!(refused.result, Err(Failure::Mismatch));
    assert!(refused.buffer.is_some_and(|buffer| buffer[0] == 10), "its data comes back");
    assert!(all_are(&rig.read(1, 1), 9));
    let write = pair(&rig, 2, 0, 9);
    assert_eq!(rig.run(write).result, Err(Failure::Unsupported));
    rig.log();
    let (compare, write) = (rig.buffer(1, 9), rig.buffer(1, 8));
    let write = Operation::CompareAndWrite { slba: 1, nlb: 1, compare, write, durable: true };
    assert_eq!(rig.run(write).result, Ok(()));
    assert_eq!(rig.log(), ["compare and write fua"]);
}

#[test]
fn an_image_is_made_and_removed() {
    let (world, cluster) = world();
    let spec = |options: &str| RbdSpec::parse(&format!("pool/team/new{options}")).unwrap();
    let open = |options: &str| factory(Arc::clone(&cluster), &spec(options));
    let error = open(",size=2MiB").unwrap_err().to_string();
    assert!(error.starts_with("cannot open image pool/team/new"), "{error}");
    world.lock().fails = Some(28);
    let error = open(",size=2MiB,create").unwrap_err().to_string();
    assert!(error.starts_with("cannot make image pool/team/new: No space"), "{error}");
    world.lock().fails = None;
    let made = open(",size=2MiB,create").unwrap();
    assert_eq!(made.geometry().blocks, 512);
    world.lock().images.get_mut("pool/team/new").unwrap().fill(7);
    let again = open(",size=2MiB,create").unwrap();
    assert_eq!(again.geometry().blocks, 512);
    assert_eq!(world.lock().images["pool/team/new"][0], 7, "what is there stays");
    let remove = || Image::remove(Arc::clone(&cluster), &spec(""));
    assert!(!remove().unwrap(), "it is open");
    drop((made, again));
    until_closed(remove).unwrap();
    assert!(!world.lock().images.contains_key("pool/team/new"));
    assert_eq!(remove().unwrap_err().kind(), io::ErrorKind::NotFound);
    world.end();
}

#[test]
fn an_image_grows_to_the_size_that_it_is_given() {
    for (options, blocks) in [(",size=2MiB", 512), (",size=4KiB", 256), ("@monday,size=2MiB", 256)]
    {
        assert_eq!(Rig::new(options).factory.geometry().blocks, blocks, "{options}");
    }
}

#[test]
fn a_snapshot_refuses_writes() {
    let mut rig = Rig::new("@monday");
    assert_eq!(rig.write(0, 1, 1), Err(Failure::ReadOnly));
    assert!(all_are(&rig.read(0, 1), 0));
}

#[test]
fn errors_of_the_cluster_are_told_apart() {
    let mut rig = Rig::new("");
    for (number, failure) in [
        (28, Failure::NoSpace),
        (122, Failure::NoSpace),
        (2, Failure::Gone),
        (1, Failure::PathLost),
        (30, Failure::PathLost),
        (108, Failure::PathLost),
        (110, Failure::PathLost),
        (5, Failure::MediaWrite),
        (12, Failure::Device(12)),
    ] {
        rig.world.lock().fails = Some(number);
        assert_eq!(rig.write(0, 1, 1), Err(failure), "{number}");
    }
    rig.world.lock().fails = None;
    assert!(all_are(&rig.read(0, 1), 0));
}

#[test]
fn a_removed_image_is_gone_whatever_its_requests_say() {
    let mut rig = Rig::new("");
    rig.world.lock().fails = Some(30);
    assert_eq!(rig.write(0, 1, 1), Err(Failure::PathLost), "as without its lock");
    rig.world.lock().images.clear();
    while rig.write(0, 1, 1) != Err(Failure::Gone) {
        thread::yield_now();
    }
    assert_eq!(rig.read(0, 1).result, Err(Failure::Gone));
    // For the drop of the rig, which waits for nothing.
    assert_eq!(rig.device.in_flight(), 0);
}

#[test]
fn an_image_that_hangs_ends_its_requests() {
    let mut rig = Rig::new(",timeout=300ms");
    let before = rig.memory();
    rig.world.hang(true);
    let into = rig.buffer(1, 0xee);
    rig.submit(Operation::Read { slba: 0, nlb: 1, into });
    let from = rig.buffer(1, 5);
    rig.submit(Operation::Write { slba: 0, nlb: 1, from, durable: false });
    for completion in rig.collect(2) {
        assert_eq!(completion.result, Err(Failure::PathLost));
        assert!(completion.buffer.is_some(), "its memory is free at once");
    }
    assert_eq!((rig.device.in_flight(), rig.memory()), (0, before));
    // What librbd kept is executed first.
    let from = rig.buffer(1, 6);
    rig.submit(Operation::Write { slba: 0, nlb: 1, from, durable: false });
    rig.world.hang(false);
    assert_eq!(rig.collect(1).remove(0).result, Ok(()));
    assert!(all_are(&rig.read(0, 1), 6));
}

#[test]
fn more_than_can_be_in_flight_waits_and_ends_as_well() {
    let mut rig = Rig::new(",timeout=300ms");
    rig.world.hang(true);
    for _ in 0..300 {
        let into = rig.buffer(1, 0xee);
        rig.submit(Operation::Read { slba: 0, nlb: 1, into });
    }
    // More memory than a handle has.
    for _ in 0..40 {
        let into = rig.buffer(256, 0xee);
        rig.submit(Operation::Read { slba: 0, nlb: 256, into });
    }
    let gone = rig.collect(340);
    assert!(gone.iter().all(|done| done.result == Err(Failure::PathLost)));
    assert_eq!(rig.device.in_flight(), 0);
    rig.world.hang(false);
    // All slots come back, however long what was given up takes.
    let all_succeed = |rig: &mut Rig| {
        for _ in 0..40 {
            let into = rig.buffer(256, 0xee);
            rig.submit(Operation::Read { slba: 0, nlb: 256, into });
        }
        rig.collect(40).iter().all(|done| all_are(done, 0))
    };
    assert!((0..50).any(|_| all_succeed(&mut rig)));
}

#[test]
fn a_handle_can_go_before_its_operations() {
    let mut rig = Rig::new(",timeout=2s");
    rig.world.hang(true);
    for slba in 0..4 {
        let into = rig.buffer(1, 0xee);
        rig.submit(Operation::Read { slba, nlb: 1, into });
    }
    rig.device.close(&mut rig.reactor);
    assert_eq!(rig.collect(4).len(), 4, "they still have their time");
    rig.device = rig.factory.open(&mut rig.reactor, OWNER).unwrap();
    rig.world.hang(false);
    assert!(all_are(&rig.read(0, 1), 0));
}

#[test]
fn closing_does_not_wait_for_the_cluster() {
    let mut rig = Rig::new("");
    rig.world.hang(true);
    let into = rig.buffer(1, 0xee);
    rig.submit(Operation::Read { slba: 0, nlb: 1, into });
    let (_, cluster) = world();
    let other = factory(cluster, &spec("")).unwrap();
    rig.device = other.open(&mut rig.reactor, OWNER).unwrap();
    rig.factory = other;
    let closed = || rig.world.lock().log.iter().any(|word| word == "close pool/team/disk");
    assert!(!closed());
    rig.world.hang(false);
    while !closed() {
        thread::yield_now();
    }
}

#[test]
fn a_connection_that_was_fenced_is_used_for_no_further_image() {
    let (_, first) = world();
    first.note(-5);
    assert!(!first.is_fenced());
    first.note(-108);
    assert!(first.is_fenced());
}

/// A lock that others keep is not had, one that is had is kept until it is released, and who is
/// fenced has it no longer.
#[test]
fn a_lock_is_had_by_one() {
    let (world, cluster) = world();
    let lock = ImageLock::with(cluster, &spec("")).unwrap();
    world.lock().locked = true;
    assert!(!lock.try_acquire().unwrap());
    assert!(lock.is_taken().unwrap() && !lock.is_kept().unwrap());
    world.lock().locked = false;
    assert!(!lock.is_taken().unwrap());
    assert!(lock.try_acquire().unwrap());
    assert!(lock.is_taken().unwrap() && lock.is_kept().unwrap());
    world.lock().fails = Some(rustix::io::Errno::SHUTDOWN.raw_os_error());
    assert!(!lock.is_kept().unwrap());
    world.lock().fails = Some(rustix::io::Errno::TIMEDOUT.raw_os_error());
    assert!(lock.is_kept().is_err(), "an answer that has not come says nothing");
    world.lock().fails = None;
    lock.release().unwrap();
    assert!(!lock.is_taken().unwrap() && !lock.is_kept().unwrap());
    world.end();
}

#[test]
fn the_lock_is_not_taken_only_to_sync() {
    let rig = Rig::new("");
    rig.log();
    for (locked, log) in [(true, &[][..]), (false, &["sync".to_owned()])] {
        rig.world.lock().locked = locked;
        rig.factory.sync().unwrap();
        assert_eq!(rig.log(), log);
    }
}

#[test]
fn a_new_size_is_seen_at_once() {
    let mut rig = Rig::new("");
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    rig.factory.when_resized(ResizeCallback::new(move || {
        count.fetch_add(1, SeqCst);
    }));
    assert_eq!(rig.read(256, 1).result, Err(Failure::OutOfRange));
    rig.world.resize("pool/team/disk", 2 * BYTES);
    while told.load(SeqCst) == 0 {
        thread::yield_now();
    }
    assert_eq!(rig.factory.geometry().blocks, 512);
    assert!(all_are(&rig.read(256, 1), 0));
    rig.factory.resize(BYTES as u64 / 2).unwrap();
    assert_eq!(rig.read(128, 1).result, Err(Failure::OutOfRange));
    assert_eq!(rig.device.geometry().blocks, 128);
    assert!(matches!(rig.factory.resize(100), Err(ResizeError::NotWholeBlocks { .. })));
}

#[test]
fn a_timer_of_a_closed_handle_is_cleared() {
    // Within which an emulated processor is done.
    let mut rig = Rig::new(",timeout=2s");
    assert_eq!(rig.write(0, 1, 1), Ok(()));
    rig.device.close(&mut rig.reactor);
    let end = rig.reactor.now() + Duration::from_millis(2100);
    let mut events = Vec::new();
    while rig.reactor.now() < end {
        rig.reactor.poll(WaitLimit::Until(end), &mut events);
    }
    let timer = Token::new(OWNER, crate::DEVICE_TAGS - 1);
    assert!(events.iter().all(|event| event.token != timer));
    let into = rig.buffer(1, 0);
    assert_eq!(rig.run(Operation::Read { slba: 0, nlb: 1, into }).result, Err(Failure::Gone));
}

/// What a random operation does to a model of the image.
fn apply(rig: &mut Rig, model: &mut [u8], kind: u8, slba: u64, nlb: u32, byte: u8) {
    let nlb = nlb.min(u32::try_from(256 - slba).unwrap());
    let at = usize::try_from(slba).unwrap() * BLOCK as usize;
    let bytes = &mut model[at..at + (nlb * BLOCK) as usize];
    let result = match kind {
        0 => {
            let completion = rig.read(slba, nlb);
            assert_eq!(completion.buffer.as_deref(), Some(&*bytes));
            completion.result
        }
        1 => {
            bytes.fill(byte);
            rig.write(slba, nlb, byte)
        }
        2 => {
            bytes.fill(0);
            let (deallocate, durable) = (byte.is_multiple_of(2), false);
            rig.run(Operation::WriteZeroes { slba, nlb, deallocate, durable }).result
        }
        _ => {
            let expected = bytes.iter().all(|at| *at == byte);
            let with = rig.buffer(nlb, byte);
            let found = rig.run(Operation::Compare { slba, nlb, with }).result;
            assert_eq!(found, expected.then_some(()).ok_or(Failure::Mismatch));
            Ok(())
        }
    };
    assert_eq!(result, Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn an_image_is_like_memory(
        operations in prop::collection::vec((0u8..4, 0u64..256, 1u32..40, 0u8..4), 1..60)
    ) {
        let mut rig = Rig::new("");
        let mut model = vec![0; BYTES];
        for operation in operations {
            let (kind, slba, nlb, byte) = operation;
            apply(&mut rig, &mut model, kind, slba, nlb, byte);
        }
    }
}

/// The handles are used by one thread; the image by all.
#[test]
fn what_threads_share_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Image>();
    shared::<RbdFactory>();
}
