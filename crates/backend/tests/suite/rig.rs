//! A device on a reactor, for tests: every kind of device on every driver.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use weft_backend::delay::DelayFactory;
use weft_backend::file::SimulatedFileFactory;
use weft_backend::{
    BlockDevice, DeviceFactory, DeviceSpec, Failure, FaultRule, Operation, Request,
    RequestCompletion,
};
use weft_reactor::simulation::{NetworkConditions, World};
use weft_reactor::{Buffer, Config, DriverKind, Owner, Reactor, WaitLimit};

pub(crate) const BYTES: u64 = 8 << 20;
pub(crate) const OWNER: Owner = Owner(7);

/// A device opened on a reactor.
pub(crate) struct Rig {
    pub(crate) name: String,
    pub(crate) reactor: Reactor,
    pub(crate) world: Option<World>,
    pub(crate) factory: Arc<dyn DeviceFactory>,
    pub(crate) device: Box<dyn BlockDevice>,
    pub(crate) completions: Vec<weft_reactor::ReactorCompletion>,
    directory: Option<TempDir>,
}

/// A reactor over the kernel. `None` where io_uring is forbidden.
pub(crate) fn kernel_reactor(driver: DriverKind) -> Option<Reactor> {
    let config = Config { driver, pool_bytes: 32 << 20, ..Config::default() };
    match Reactor::new(config) {
        Ok(reactor) => Some(reactor),
        Err(error) if driver == DriverKind::Uring => {
            eprintln!("without io_uring: {error}");
            None
        }
        Err(error) => panic!("{driver:?}: {error}"),
    }
}

pub(crate) const KERNEL_DRIVERS: [DriverKind; 2] = [DriverKind::Uring, DriverKind::Epoll];

/// Specs of devices that keep their data, in a directory.
pub(crate) fn keeping_specs(directory: &Path) -> Vec<(&'static str, DeviceSpec)> {
    let memory = |block_bytes| DeviceSpec::Memory { bytes: BYTES, block_bytes };
    let file = |block_bytes, direct| file_spec(directory, block_bytes, direct);
    vec![
        ("memory 4096", memory(4096)),
        ("memory 512", memory(512)),
        ("file 512", file(Some(512), Some(false))),
        ("file direct", file(Some(4096), None)),
        (
            "slow file",
            DeviceSpec::Delay {
                read: Duration::from_micros(50),
                write: Duration::from_micros(200),
                inner: Box::new(file(None, None)),
            },
        ),
        (
            "memory with marks",
            DeviceSpec::Uncorrectable { file: None, inner: Box::new(memory(4096)) },
        ),
        (
            "slow file with kept marks",
            DeviceSpec::Uncorrectable {
                file: Some(directory.join("marks")),
                inner: Box::new(DeviceSpec::Delay {
                    read: Duration::from_micros(50),
                    write: Duration::from_micros(200),
                    inner: Box::new(file(Some(512), Some(false))),
                }),
            },
        ),
        (
            "file with a rule that never hits, around slow memory",
            DeviceSpec::Fault {
                rules: vec![FaultRule { per_million: Some(0), ..FaultRule::default() }],
                inner: Box::new(DeviceSpec::Delay {
                    read: Duration::ZERO,
                    write: Duration::from_micros(10),
                    inner: Box::new(memory(4096)),
                }),
            },
        ),
    ]
}

/// A file in a directory, created.
pub(crate) fn file_spec(
    directory: &Path,
    block_bytes: Option<u32>,
    direct: Option<bool>,
) -> DeviceSpec {
    DeviceSpec::File {
        path: directory.join("disk.img"),
        create_bytes: Some(BYTES),
        block_bytes,
        direct,
        read_only: false,
        shared: false,
    }
}

/// Runs a test on every device that keeps its data, and every driver.
pub(crate) fn on_every_device(test: impl Fn(&mut Rig)) {
    for driver in KERNEL_DRIVERS {
        let count = keeping_specs(Path::new("/")).len();
        for index in 0..count {
            let directory = tempfile::tempdir().unwrap();
            let (name, spec) = keeping_specs(directory.path()).swap_remove(index);
            let Some(reactor) = kernel_reactor(driver) else { break };
            let factory = spec.build().unwrap_or_else(|error| panic!("{name}: {error}"));
            let name = format!("{name} on {driver:?}");
            let mut rig = Rig::new(name, reactor, None, factory);
            rig.directory = Some(directory);
            test(&mut rig);
            rig.finish();
        }
    }
    for delayed in [false, true] {
        let mut rig = simulated(1, BYTES, delayed);
        test(&mut rig);
        rig.finish();
    }
}

/// A file of a simulated world.
pub(crate) fn simulated(seed: u64, bytes: u64, delayed: bool) -> Rig {
    let world = World::new(seed, NetworkConditions::default());
    let file = world.add_file(bytes);
    let factory = SimulatedFileFactory::new(file, bytes, 4096).unwrap();
    let mut factory: Arc<dyn DeviceFactory> = Arc::new(factory);
    if delayed {
        let (read, write) = (Duration::from_micros(80), Duration::from_millis(2));
        factory = Arc::new(DelayFactory::new(factory, read, write).unwrap());
    }
    let reactor = Reactor::simulated(&world);
    Rig::new(format!("simulated file, delayed: {delayed}"), reactor, Some(world), factory)
}

impl Rig {
    pub(crate) fn new(
        name: String,
        mut reactor: Reactor,
        world: Option<World>,
        factory: Arc<dyn DeviceFactory>,
    ) -> Self {
        let device = factory.open(&mut reactor, OWNER).unwrap();
        Self { name, reactor, world, factory, device, completions: Vec::new(), directory: None }
    }

    /// A rig of a spec on the epoll driver.
    pub(crate) fn of(spec: &DeviceSpec) -> Self {
        let reactor = kernel_reactor(DriverKind::Epoll).unwrap();
        Self::new(spec.to_string(), reactor, None, spec.build().unwrap())
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().join("disk.img"))
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.device.geometry().block_bytes as usize
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.device.geometry().blocks
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.reactor.pool().take(bytes.len()).expect("the pool is large enough");
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// A buffer with leftover content.
    pub(crate) fn dirty(&self, len: usize) -> Buffer {
        self.buffer(&vec![0xdd; len])
    }

    pub(crate) fn submit(&mut self, tag: u64, operation: Operation) {
        self.device.submit(&mut self.reactor, Request { tag, operation });
    }

    /// One turn of the loop, which sleeps until there is something to do.
    pub(crate) fn turn(&mut self) {
        match &self.world {
            Some(world) => {
                self.reactor.poll(WaitLimit::NoWait, &mut self.completions);
                if self.completions.is_empty() {
                    assert!(world.advance(), "{}: no event is left", self.name);
                }
            }
            None => {
                let limit = self.reactor.now() + Duration::from_secs(20);
                self.reactor.poll(WaitLimit::Until(limit), &mut self.completions);
                assert!(self.reactor.now() < limit, "{}: nothing happened", self.name);
            }
        }
        for completion in self.completions.drain(..) {
            assert_eq!(completion.token.owner, OWNER);
            self.device.handle(&mut self.reactor, completion);
        }
        self.device.flush(&mut self.reactor);
    }

    /// Waits for the next completion.
    pub(crate) fn wait(&mut self) -> RequestCompletion {
        self.device.flush(&mut self.reactor);
        loop {
            if let Some(completion) = self.device.poll_completion() {
                return completion;
            }
            assert_ne!(self.device.in_flight(), 0, "{}: nothing to wait for", self.name);
            self.turn();
        }
    }

    /// Executes one operation.
    pub(crate) fn run(&mut self, operation: Operation) -> RequestCompletion {
        self.submit(4711, operation);
        let completion = self.wait();
        assert_eq!(completion.tag, 4711, "{}", self.name);
        completion
    }

    pub(crate) fn result(&mut self, operation: Operation) -> Result<(), Failure> {
        self.run(operation).result
    }

    #[track_caller]
    pub(crate) fn ok(&mut self, operation: Operation) {
        let kind = operation.kind();
        assert_eq!(self.result(operation), Ok(()), "{}: {kind}", self.name);
    }

    #[track_caller]
    pub(crate) fn write(&mut self, block: u64, bytes: &[u8]) {
        let operation = self.write_of(block, bytes);
        self.ok(operation);
    }

    pub(crate) fn write_of(&self, block: u64, bytes: &[u8]) -> Operation {
        let (blocks, from) = (self.blocks_of(bytes), self.buffer(bytes));
        Operation::Write { slba: block, nlb: blocks, from, durable: false }
    }

    pub(crate) fn read_of(&self, block: u64, blocks: u32) -> Operation {
        let into = self.dirty(blocks as usize * self.block_bytes());
        Operation::Read { slba: block, nlb: blocks, into }
    }

    pub(crate) fn compare_of(&self, block: u64, bytes: &[u8]) -> Operation {
        Operation::Compare { slba: block, nlb: self.blocks_of(bytes), with: self.buffer(bytes) }
    }

    pub(crate) fn compare_and_write_of(
        &self,
        block: u64,
        compare: &[u8],
        write: &[u8],
    ) -> Operation {
        Operation::CompareAndWrite {
            slba: block,
            nlb: self.blocks_of(compare),
            compare: self.buffer(compare),
            write: self.buffer(write),
            durable: false,
        }
    }

    pub(crate) fn blocks_of(&self, bytes: &[u8]) -> u32 {
        u32::try_from(bytes.len() / self.block_bytes()).unwrap()
    }

    #[track_caller]
    pub(crate) fn read(&mut self, block: u64, blocks: u32) -> Vec<u8> {
        let operation = self.read_of(block, blocks);
        let completion = self.run(operation);
        assert_eq!(completion.result, Ok(()), "{}: read", self.name);
        completion.buffer.expect("a read gives its buffer back").to_vec()
    }

    /// Blocks with a pattern of this seed.
    pub(crate) fn pattern(&self, seed: u64, blocks: u32) -> Vec<u8> {
        pattern(seed, blocks as usize * self.block_bytes())
    }

    /// Closes the device and checks that all resources are returned.
    pub(crate) fn finish(&mut self) {
        self.device.close(&mut self.reactor);
        while self.device.in_flight() != 0 {
            let _ = self.wait();
        }
        let pool = self.reactor.pool();
        assert_eq!(pool.available(), pool.capacity(), "{}: buffers are missing", self.name);
    }
}

/// Pseudo-random bytes of a seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}
