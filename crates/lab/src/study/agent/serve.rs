//! The agent's side.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::geteuid;
use serde_json::Value;
use weft_backend::DeviceSpec;
use weft_host::{Options, Provider, TransportId};
use weft_load::{Job, Progress, RunObserver};
use weft_reactor::{DriverKind, monotonic_time};
use weft_rpc::machine::Machine;
use weft_rpc::{CallError, Client, Methods};

use super::calls::{
    AgentTarget, Build, Call, CallTarget, Clock, CloseLoad, Count, CountedLoad, Counters, Describe,
    Description, DeviceRequest, EndedTarget, Go, Listen, MachineCounts, Offloads, OpenDevice,
    OpenLoad, PrepareLoad, ProbeListen, ProbeRun, Reach, SetKnobs, StartTarget, StopTarget,
    TargetRequest, UseSpdk,
};
use super::{control, knobs, probe, reach};
use crate::environment;
use crate::study::given::protocol;
use crate::study::inside::{ActiveLoad, News, Settings, Stop, Teller};
use crate::study::knob::{self, Knobs};
use crate::study::launch::{Launcher, StartedTarget, TargetSpec};
use crate::study::linux::{self, Linux};
use crate::study::load_device::{LoadDevice, Spread, spread};
use crate::study::site::{SpdkTools, end};

/// A target that was started, and a connection to it.
struct Target {
    process: Box<dyn StartedTarget>,
    /// None without a control interface.
    client: Option<Client>,
}

/// What an agent has started.
struct Agent {
    launcher: Box<dyn Launcher + Send + Sync>,
    linux: Option<Arc<Linux>>,
    build: Build,
    targets: Mutex<(u64, BTreeMap<u64, Target>)>,
    load: Mutex<Option<Arc<LoadDevice>>>,
    running: ActiveLoad,
    /// Begins the load that waits.
    gate: Mutex<Option<Sender<Duration>>>,
    counted: Arc<Mutex<MachineCounts>>,
    knobs: Mutex<Knobs>,
    restored: Vec<String>,
}

/// The methods of an agent, which starts targets with `launcher` and may have the kernel of its
/// machine as a host. It first puts back what others before it have left changed.
#[must_use]
pub fn methods(
    launcher: Box<dyn Launcher + Send + Sync>,
    linux: Option<Arc<Linux>>,
    build: Build,
    knobs: Knobs,
) -> Methods {
    let restored = knobs.restore_left();
    let agent = Arc::new(Agent {
        launcher,
        linux,
        build,
        targets: Mutex::default(),
        load: Mutex::default(),
        running: ActiveLoad::default(),
        gate: Mutex::default(),
        counted: Arc::default(),
        knobs: Mutex::new(knobs),
        restored,
    });
    loads(targets(machine(Methods::new(), &agent), &agent), &agent)
}

fn machine(methods: Methods, agent: &Arc<Agent>) -> Methods {
    let (describing, setting) = (Arc::clone(agent), Arc::clone(agent));
    let using = Arc::clone(agent);
    methods
        .with::<SetKnobs>(move |order| knobs::set(&mut lock(&setting.knobs), &order))
        .with::<Describe>(move |()| Ok(describing.describe()))
        .with::<UseSpdk>(move |tools| {
            if let Some(linux) = &using.linux {
                linux.use_spdk(tools);
            }
            Ok(linux::lacks(&using.spdk()))
        })
        .with::<Clock>(|()| Ok(monotonic_time()))
        .with::<Count>(|()| Ok(Counters { time: monotonic_time(), machine: Machine::read() }))
        .with::<Listen>(|(address,)| reach::listen(address))
        .with::<Offloads>(|(interface,)| knob::Machine::default().described(&interface))
        .with::<ProbeListen>(|(wanted, address)| probe::listen(wanted, address))
        .with::<ProbeRun>(|way| probe::run(&way))
        .with::<Reach>(|listening| Ok(reach::reach(&listening).err()))
}

fn targets(methods: Methods, agent: &Arc<Agent>) -> Methods {
    let (starting, calling) = (Arc::clone(agent), Arc::clone(agent));
    let (ended, stopping) = (Arc::clone(agent), Arc::clone(agent));
    methods
        .with::<StartTarget>(move |wanted| starting.start_target(wanted))
        .with::<CallTarget>(move |call| calling.call_target(call))
        .with::<EndedTarget>(move |(number,)| {
            let ended = ended.with_target(number, |target| Ok(target.process.ended()));
            // One that was stopped has ended as well.
            ended.or_else(|why| Ok(Some(why)))
        })
        .with::<StopTarget>(move |(number,)| {
            let target = lock(&stopping.targets).1.remove(&number);
            target.map_or(Ok(()), |target| target.process.stop())
        })
}

fn loads(methods: Methods, agent: &Arc<Agent>) -> Methods {
    let of = || Arc::clone(agent);
    let (opening, preparing, going, asked) = (of(), of(), of(), of());
    let (stopping, counted, closing) = (of(), of(), of());
    methods
        .with::<OpenLoad>(move |wish| opening.open(wish))
        .with::<PrepareLoad>(move |job| preparing.prepare(job))
        .with::<Go>(move |(at,)| {
            let gate = lock(&going.gate).take();
            gate.and_then(|gate| gate.send(at).ok()).ok_or_else(|| "no load waits".to_owned())
        })
        .with::<News>(move |()| asked.running.news())
        .with::<Stop>(move |()| {
            stopping.running.stop();
            // One that waits for its start begins, and ends at once.
            drop(lock(&stopping.gate).take());
            Ok(())
        })
        .with::<CountedLoad>(move |()| Ok(lock(&counted.counted).clone()))
        .with::<CloseLoad>(move |()| {
            let device = lock(&closing.load).take();
            let alone = device.map(|device| Arc::into_inner(device).ok_or("the load still runs"));
            alone.transpose()?.map_or(Ok(()), LoadDevice::close)
        })
}

impl Agent {
    /// Where SPDK's programs are.
    fn spdk(&self) -> SpdkTools {
        self.linux.as_ref().map(|linux| linux.spdk()).unwrap_or_default()
    }

    fn describe(&self) -> Description {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Description {
            build: self.build.clone(),
            boot_id: boot_id.trim().to_owned(),
            cpus: environment::cpus(),
            rdma: environment::rdma_address().is_some(),
            addresses: reach::addresses(),
            ends: end::ends(),
            root: geteuid().is_root(),
            control: control::addresses(|name| std::env::var(name).ok()),
            restored: self.restored.clone(),
            lacks: linux::lacks(&self.spdk()),
            environment: environment::this_machine(),
        }
    }

    fn start_target(&self, wanted: TargetRequest) -> Result<AgentTarget, String> {
        let listen = wanted.listen;
        let process = self.launcher.launch(&wanted.spec()?, listen)?;
        let has_control = process.has_control();
        let client = has_control.then(|| process.control()).transpose()?;
        let addresses = process.addresses().iter().map(ToString::to_string).collect();
        let mut targets = lock(&self.targets);
        targets.0 += 1;
        let number = targets.0;
        targets.1.insert(number, Target { process, client });
        Ok(AgentTarget { number, addresses, has_control })
    }

    fn with_target<T>(
        &self,
        number: u64,
        run: impl FnOnce(&mut Target) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut targets = lock(&self.targets);
        let target = targets.1.get_mut(&number);
        run(target.ok_or_else(|| format!("there is no target {number}"))?)
    }

    fn call_target(&self, Call { number, method, params }: Call) -> Result<Value, String> {
        self.with_target(number, |target| {
            let client = target.client.as_mut().ok_or("this target has no control connection")?;
            match client.call_named(&method, params) {
                Ok(answer) => Ok(answer),
                Err(CallError::Error(error)) => Err(error.message),
                Err(error) => Err(target.process.ended().unwrap_or_else(|| error.to_string())),
            }
        })
    }

    fn open(&self, wish: DeviceRequest) -> Result<OpenDevice, String> {
        let mut load = lock(&self.load);
        if load.is_some() {
            return Err("a load is open already".to_owned());
        }
        let read = |text: &String| {
            let read = text.parse::<TransportId>();
            read.map(Options::new).map_err(|error| error.to_string())
        };
        let targets = wish.addresses.iter().map(read).collect::<Result<Vec<_>, String>>()?;
        let job = wish.job.job()?;
        let how = Spread {
            hosts: wish.hosts,
            subsystems: wish.subsystems,
            job: &job,
            renamed: wish.renamed,
            from: wish.from,
            host: &wish.host,
            linux: self.linux.as_ref(),
        };
        let device = spread(&targets, Some(wish.nsid), &how, &Provider::System)?;
        let opened = OpenDevice {
            name: device.name.clone(),
            identity: device.identity.clone(),
            connection: device.connection.clone(),
        };
        *load = Some(Arc::new(device));
        Ok(opened)
    }

    fn prepare(&self, job: Settings) -> Result<(), String> {
        let device = lock(&self.load).clone().ok_or("no load is open")?;
        let job: Job = job.job()?;
        let (go, gate) = channel();
        *lock(&self.counted) = MachineCounts::default();
        *lock(&self.gate) = Some(go);
        let counted = Arc::clone(&self.counted);
        self.running.start(move |stop, teller| {
            device.run(
                &job,
                stop,
                &mut Gated { teller, gate, ramp: job.ramp, counted, before: None },
            )
        })
    }
}

impl TargetRequest {
    fn spec(self) -> Result<TargetSpec, String> {
        let device = |text: String| {
            text.parse::<DeviceSpec>().map_err(|error| format!("device {text}: {error}"))
        };
        let transport = protocol(&self.transport);
        Ok(TargetSpec {
            devices: self.devices.into_iter().map(device).collect::<Result<_, String>>()?,
            subsystems: self.subsystems,
            transport: transport.ok_or_else(|| format!("{:?} is no protocol", self.transport))?,
            // Its address is given.
            link: String::new(),
            cpus: self.cpus,
            idle_poll: self.idle_poll,
            express: self.express,
            driver: DriverKind::named(&self.driver)
                .ok_or_else(|| format!("{:?} is not a driver", self.driver))?,
            // Keys are not given to agents.
            tls: None,
            software: self.software,
        })
    }
}

/// Lets a load wait for its start, and reads the machine's counters around the measured time.
struct Gated<'a> {
    teller: &'a mut Teller,
    gate: Receiver<Duration>,
    ramp: Duration,
    counted: Arc<Mutex<MachineCounts>>,
    before: Option<Counters>,
}

impl RunObserver for Gated<'_> {
    fn ready(&mut self) -> Option<Duration> {
        self.teller.waits();
        // Without an answer the load was stopped: it begins, and ends at once.
        let at = self.gate.recv().unwrap_or_default();
        thread::sleep(at.saturating_sub(monotonic_time()));
        let now = monotonic_time();
        // If it wakes late, its ramp is shorter, and it counts at the same time as the others.
        let start = if now.saturating_sub(at) <= self.ramp { at } else { now };
        lock(&self.counted).start = start;
        Some(start)
    }

    fn progress(&mut self, progress: &Progress) {
        self.teller.progress(progress);
    }

    fn measurement_begins(&mut self) {
        self.before = Some(Counters { time: monotonic_time(), machine: Machine::read() });
        self.teller.measurement_begins();
    }

    fn measurement_ends(&mut self) {
        if let Some(before) = self.before.take() {
            let mut counted = lock(&self.counted);
            counted.machine = Machine::read().since(&before.machine);
            counted.lasted = monotonic_time().saturating_sub(before.time);
        }
        self.teller.measurement_ends();
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
