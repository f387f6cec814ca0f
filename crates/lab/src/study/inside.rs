//! A load that runs inside a target, on a device that the target has opened and claimed.
//!
//! A file or SSD that a target holds exclusively can so be its own baseline. The target answers
//! three methods on its control connection: one starts a job, one reports what has happened since,
//! one stops it. Job and result are those of [`weft_load::run`]. [Agents](super::agent)
//! report theirs in the same way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::DeviceFactory;
use weft_load::job::Think;
use weft_load::pacer::Process;
use weft_load::{
    Extent, Job, Phase, Polling, Progress, Rate, RunObserver, RunResult, run_observed,
};
use weft_reactor::DriverKind;
use weft_rpc::{CallError, Client, Method, Methods};

/// How long a caller waits for news of a load, at most.
const NEWS_WAIT: Duration = Duration::from_millis(200);

/// Starts a load.
struct Start;
/// What has happened since the last call; waits a short time for something.
pub(super) struct News;
/// Ends it early.
pub(super) struct Stop;

impl Method for Start {
    const NAME: &'static str = "load_start";
    type Params = Ordered;
    type Answer = ();
}

impl Method for News {
    const NAME: &'static str = "load_news";
    type Params = ();
    type Answer = Vec<Event>;
}

impl Method for Stop {
    const NAME: &'static str = "load_stop";
    type Params = ();
    type Answer = ();
}

/// A job and its namespace.
#[derive(Debug, Serialize, Deserialize)]
struct Ordered {
    nqn: String,
    nsid: u32,
    job: Settings,
}

/// What happens while it runs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Event {
    /// An agent's load waits for its start.
    Ready,
    Begins,
    Ends,
    Window(Window),
    Result(Box<RunResult>),
    Failed(String),
}

/// The numbers of a window.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Window {
    ramp: bool,
    elapsed: Duration,
    total: Option<Duration>,
    left: Option<Duration>,
    read_iops: f64,
    write_iops: f64,
    bytes_per_second: f64,
    p99_ns: Option<u64>,
}

/// The settings of a job that studies have; all others are those of [`Job::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    name: String,
    pattern: String,
    read_percent: f64,
    random_map: bool,
    block_bytes: u32,
    depth: u32,
    copies: u32,
    size: Option<Extent>,
    runtime: Option<Duration>,
    time_based: bool,
    ramp: Duration,
    rate: Option<(f64, bool)>,
    think: Option<(Duration, u32)>,
    cpus: Vec<usize>,
    seed: u64,
    polling: Polling,
    driver: String,
}

impl Settings {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            name: job.name.clone(),
            pattern: job.pattern.to_string(),
            read_percent: job.read_percent,
            random_map: job.random_map,
            block_bytes: job.block_bytes,
            depth: job.depth,
            copies: job.copies,
            size: job.size,
            runtime: job.runtime,
            time_based: job.time_based,
            ramp: job.ramp,
            rate: job.rate.map(|rate| (rate.iops, rate.process == Process::Poisson)),
            think: job.think.map(|think| (think.time, think.blocks)),
            cpus: job.cpus.clone(),
            seed: job.seed,
            polling: job.polling,
            driver: job.driver.name().to_owned(),
        }
    }

    pub(super) fn job(self) -> Result<Job, String> {
        let process = |is_poisson| if is_poisson { Process::Poisson } else { Process::Fixed };
        Ok(Job {
            name: self.name,
            pattern: self.pattern.parse().map_err(|error| format!("{error}"))?,
            read_percent: self.read_percent,
            random_map: self.random_map,
            block_bytes: self.block_bytes,
            depth: self.depth,
            copies: self.copies,
            size: self.size,
            runtime: self.runtime,
            time_based: self.time_based,
            ramp: self.ramp,
            rate: self.rate.map(|(iops, poisson)| Rate { iops, process: process(poisson) }),
            think: self.think.map(|(time, blocks)| Think { time, blocks }),
            cpus: self.cpus,
            seed: self.seed,
            polling: self.polling,
            driver: DriverKind::named(&self.driver)
                .ok_or_else(|| format!("{:?} is not a driver", self.driver))?,
            ..Job::default()
        })
    }
}

/// A load of this process that another one has started: at most one at a time.
#[derive(Debug, Default)]
pub(super) struct ActiveLoad(Mutex<Option<(Receiver<Event>, Arc<AtomicBool>)>>);

/// Adds the methods by which a study runs loads inside this process, on the devices that `device`
/// finds by subsystem and namespace.
#[must_use]
pub fn methods(
    methods: Methods,
    device: impl Fn(&str, u32) -> Option<Arc<dyn DeviceFactory>> + Send + Sync + 'static,
) -> Methods {
    let running = Arc::new(ActiveLoad::default());
    let (starting, asked) = (Arc::clone(&running), Arc::clone(&running));
    methods
        .with::<Start>(move |Ordered { nqn, nsid, job }| {
            let factory = device(&nqn, nsid);
            let factory = factory.ok_or_else(|| format!("{nqn} has no namespace {nsid}"))?;
            let job = job.job()?;
            starting.start(move |stop, teller| {
                run_observed(&job, &factory, stop, teller).map_err(|error| error.to_string())
            })
        })
        .with::<News>(move |()| asked.news())
        .with::<Stop>(move |()| {
            running.stop();
            Ok(())
        })
}

impl ActiveLoad {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Receiver<Event>, Arc<AtomicBool>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a load on a thread of its own.
    pub(super) fn start(
        &self,
        load: impl FnOnce(&AtomicBool, &mut Teller) -> Result<RunResult, String> + Send + 'static,
    ) -> Result<(), String> {
        let mut running = self.lock();
        if running.is_some() {
            return Err("a load runs already in this process".to_owned());
        }
        let (told, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("weft-load".to_owned());
        let spawned = thread.spawn(move || {
            let mut teller = Teller(told);
            let event = match load(&stopped, &mut teller) {
                Ok(result) => Event::Result(Box::new(result)),
                Err(why) => Event::Failed(why),
            };
            teller.tell(event);
        });
        spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
        *running = Some((news, stop));
        Ok(())
    }

    /// Ends it early, if there is one.
    pub(super) fn stop(&self) {
        if let Some((_, stop)) = &*self.lock() {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// What has happened since the last call.
    pub(super) fn news(&self) -> Result<Vec<Event>, String> {
        let mut running = self.lock();
        let Some((news, _)) = &*running else { return Err("no load runs".to_owned()) };
        let mut events: Vec<Event> = news.recv_timeout(NEWS_WAIT).into_iter().collect();
        events.extend(news.try_iter());
        if matches!(events.last(), Some(Event::Result(_) | Event::Failed(_))) {
            *running = None;
        }
        Ok(events)
    }
}

/// Tells another process what happens.
pub(super) struct Teller(Sender<Event>);

impl Teller {
    /// The load waits for its start.
    pub(super) fn waits(&self) {
        self.tell(Event::Ready);
    }

    fn tell(&self, event: Event) {
        // Nobody asks any more if the target stops.
        let _ = self.0.send(event);
    }
}

impl RunObserver for Teller {
    fn progress(&mut self, progress: &Progress) {
        self.tell(Event::Window(Window {
            ramp: progress.phase == Phase::Ramp,
            elapsed: progress.elapsed,
            total: progress.total,
            left: progress.left,
            read_iops: progress.read_iops,
            write_iops: progress.write_iops,
            bytes_per_second: progress.bytes_per_second,
            p99_ns: progress.p99_ns,
        }));
    }

    fn measurement_begins(&mut self) {
        self.tell(Event::Begins);
    }

    fn measurement_ends(&mut self) {
        self.tell(Event::Ends);
    }
}

/// A namespace of a target that runs loads on it.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    /// A connection to its control interface.
    pub(super) client: Arc<Mutex<Client>>,
    pub(super) nqn: String,
    pub(super) nsid: u32,
}

impl Inside {
    /// Runs a job there, as [`run_observed`] does here.
    ///
    /// # Errors
    /// One sentence that says why it has no result.
    pub(super) fn run(
        &self,
        job: &Job,
        stop: &AtomicBool,
        observer: &mut dyn RunObserver,
    ) -> Result<RunResult, String> {
        let fault = |error: CallError| format!("the load inside the target: {error}");
        let (nqn, nsid, job) = (self.nqn.clone(), self.nsid, Settings::of(job));
        self.call::<Start>(&Ordered { nqn, nsid, job }).map_err(fault)?;
        let mut is_told = false;
        loop {
            if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_told, true) {
                self.call::<Stop>(&()).map_err(fault)?;
            }
            for event in self.call::<News>(&()).map_err(fault)? {
                match event {
                    Event::Ready => {}
                    Event::Begins => observer.measurement_begins(),
                    Event::Ends => observer.measurement_ends(),
                    Event::Window(window) => observer.progress(&window.progress()),
                    Event::Result(result) => return Ok(*result),
                    Event::Failed(why) => return Err(why),
                }
            }
        }
    }

    fn call<M: Method>(&self, params: &M::Params) -> Result<M::Answer, CallError> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).call::<M>(params)
    }
}

impl Window {
    pub(super) fn progress(self) -> Progress {
        Progress {
            phase: if self.ramp { Phase::Ramp } else { Phase::Run },
            elapsed: self.elapsed,
            total: self.total,
            left: self.left,
            read_iops: self.read_iops,
            write_iops: self.write_iops,
            trim_iops: 0.0,
            bytes_per_second: self.bytes_per_second,
            p99_ns: self.p99_ns,
            faults: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_backend::DeviceSpec;
    use weft_load::Pattern;
    use weft_rpc::{Address, Server};

    use super::*;

    /// A process that runs loads on a namespace of 8 MiB of memory.
    fn serving(folder: &tempfile::TempDir) -> (Server, Inside) {
        let spec: DeviceSpec = "memory:8MiB".parse().expect("a device");
        let factory = spec.build().expect("memory");
        let device =
            move |nqn: &str, nsid| (nqn == "nqn.a" && nsid == 1).then(|| Arc::clone(&factory));
        let control = Address::Unix(folder.path().join("control"));
        let server =
            Server::start(&control, methods(Methods::new(), device), None).expect("a server");
        let client = Client::connect(&control, None, Duration::from_secs(10)).expect("a client");
        let client = Arc::new(Mutex::new(client));
        (server, Inside { client, nqn: "nqn.a".to_owned(), nsid: 1 })
    }

    #[test]
    fn every_job_of_a_study_arrives_as_it_was() {
        use crate::results::Configuration;
        use crate::study::builtin::BUILTINS;
        use crate::study::capabilities::Capabilities;
        use crate::study::deployment::Planner;
        use crate::study::matrix::expand;
        let (cpus, own_target) = ((0..64).collect(), true);
        let capabilities = Capabilities { cpus, own_target, ..Capabilities::default() };
        for study in BUILTINS {
            let plan = study.plan().expect(study.name);
            let planner = Planner {
                plan: &plan,
                capabilities: &capabilities,
                local: None,
                seed: 7,
                driver: DriverKind::Epoll,
            };
            let matrix = expand(&plan, &capabilities, &Configuration::new());
            for step in matrix.steps().filter(|step| step.missing().is_none()) {
                let deployment = planner.deployment(step, Some(1234.5)).expect("room");
                for job in deployment.loads.into_iter().map(|load| load.job) {
                    let text = serde_json::to_string(&Settings::of(&job)).expect("JSON");
                    let read: Settings = serde_json::from_str(&text).expect(&text);
                    assert_eq!(read.job().expect("a job"), job);
                }
            }
        }
    }

    #[derive(Default)]
    struct Recorder(Vec<&'static str>, Vec<f64>);

    impl RunObserver for Recorder {
        fn progress(&mut self, progress: &Progress) {
            self.0.push("window");
            self.1.push(progress.read_iops + progress.write_iops);
        }
        fn measurement_begins(&mut self) {
            self.0.push("begins");
        }
        fn measurement_ends(&mut self) {
            self.0.push("ends");
        }
    }

    struct Begins(Sender<()>);

    impl RunObserver for Begins {
        fn measurement_begins(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn a_load_inside_has_the_result_of_one_here() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_server, inside) = serving(&folder);
        let job = Job {
            pattern: Pattern::RandRw,
            copies: 2,
            depth: 4,
            runtime: Some(Duration::from_millis(1_200)),
            ramp: Duration::from_millis(300),
            time_based: true,
            random_map: false,
            polling: Polling::Sleep,
            rate: Some(Rate { iops: 500.0, process: Process::Poisson }),
            ..Job::default()
        };
        let mut seen = Recorder::default();
        let result = inside.run(&job, &AtomicBool::new(false), &mut seen).expect("a result");
        assert_eq!(result.lanes.len(), 2);
        assert!(["io_uring", "epoll"].contains(&result.driver), "{}", result.driver);
        let total = result.total();
        assert!(total.read.requests > 100 && total.write.requests > 100, "{total:?}");
        assert_eq!(total.read.latency.count(), total.read.requests);
        assert!(total.read.latency.percentile_ns(50.0).is_some_and(|ns| ns > 0));
        assert!(total.read.completion.is_some(), "an open loop has both latencies");
        assert!(total.submitted >= total.read.requests + total.write.requests);
        assert!(total.usage.user + total.usage.system > Duration::ZERO);
        let at = |what| seen.0.iter().position(|seen| *seen == what).expect(what);
        assert!(at("begins") < at("ends"), "{:?}", seen.0);
        assert!(seen.1.iter().any(|iops| (500.0..2_000.0).contains(iops)), "{:?}", seen.1);
    }

    /// What fills a device ends with it, and not after the time of a job without an end.
    #[test]
    fn a_job_of_a_size_ends_with_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_server, inside) = serving(&folder);
        let size = Some(Extent::Percent(100));
        let job = Job { pattern: Pattern::Write, block_bytes: 65_536, size, ..Job::default() };
        let began = weft_reactor::monotonic_time();
        let result = inside.run(&job, &AtomicBool::new(false), &mut Recorder::default());
        let written = result.expect("a result").total().write.bytes;
        assert!(weft_reactor::monotonic_time() - began < Duration::from_secs(5));
        assert!(written > 0 && written.is_multiple_of(1 << 20), "{written} bytes");
    }

    #[test]
    fn a_load_inside_is_stopped_and_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_server, inside) = serving(&folder);
        let long =
            Job { runtime: Some(Duration::from_secs(600)), time_based: true, ..Job::default() };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (begins, began) = channel();
            let running = scope.spawn(|| inside.run(&long, &stop, &mut Begins(begins)));
            began.recv().expect("it begins");
            let second =
                inside.run(&long, &stop, &mut Recorder::default()).expect_err("one at a time");
            assert!(second.contains("runs already"), "{second}");
            stop.store(true, Ordering::Relaxed);
            let stopped = running.join().expect("no panic");
            assert!(stopped.is_ok_and(|result| result.interrupted));
        });
        let other = Inside { nsid: 2, ..inside.clone() };
        let why =
            other.run(&Job::default(), &stop, &mut Recorder::default()).expect_err("no device");
        assert!(why.contains("nqn.a has no namespace 2"), "{why}");
        let large = Job { block_bytes: 1 << 20, depth: 1 << 20, ..Job::default() };
        let why = inside.run(&large, &stop, &mut Recorder::default()).expect_err("too large");
        assert!(!why.is_empty());
        let gone = |_: &str, _| Err(CallError::Relay("it is gone".to_owned()));
        let client = Arc::new(Mutex::new(Client::relayed(gone)));
        let nobody = Inside { client, ..inside };
        let why = nobody.run(&Job::default(), &stop, &mut Recorder::default()).expect_err("nobody");
        assert!(why.starts_with("the load inside the target:"), "{why}");
    }
}
