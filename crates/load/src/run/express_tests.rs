//! The order in which a thread serves jobs of two classes, counted and not timed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;

use weft_backend::{
    BlockDevice, Failure, Geometry, OpenError, Request, RequestCompletion, ResizeError,
};
use weft_reactor::{Outcome, Owner, Reactor, ReactorCompletion, Source, Token};

use super::*;

/// A request of L is answered when T has begun so many.
const ANSWERED_AFTER: u64 = 8;

/// How many requests T has begun between an answer for L and L's device having it.
type Gaps = Arc<Mutex<Vec<u64>>>;

/// What the devices of a thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Requests of T that were begun.
    begun: u64,
    /// L's owner, and at how many of these its request is answered.
    awaited: Option<(Owner, u64)>,
    /// L has been told of it.
    is_told: bool,
    is_express: bool,
}

impl Shared {
    fn has_answer(&self) -> bool {
        !self.is_told && self.awaited.is_some_and(|(_, at)| at <= self.begun)
    }

    fn tell(&mut self, ready: &mut Vec<ReactorCompletion>) {
        if let Some((owner, _)) = self.awaited.filter(|_| self.has_answer()) {
            self.is_told = true;
            let token = Token::new(owner, 0);
            ready.push(ReactorCompletion { token, outcome: Outcome::SourceEvents });
        }
    }
}

#[derive(Debug)]
struct Answers(Rc<RefCell<Shared>>);

impl Source for Answers {
    fn poll(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let mut shared = self.0.borrow_mut();
        if !shared.is_express {
            shared.tell(ready);
        }
    }

    fn arm(&mut self, ready: &mut Vec<ReactorCompletion>) {
        self.poll(ready);
    }

    fn express(&self) -> usize {
        self.0.borrow().is_express.into()
    }

    fn has_express(&mut self) -> bool {
        let shared = self.0.borrow();
        shared.is_express && shared.has_answer()
    }

    fn poll_express(&mut self, ready: &mut Vec<ReactorCompletion>) {
        let mut shared = self.0.borrow_mut();
        if shared.is_express {
            shared.tell(ready);
        }
    }
}

/// The device of L, or of T, which answers with each flush.
#[derive(Debug)]
struct Device {
    owner: Owner,
    shared: Rc<RefCell<Shared>>,
    /// Of L.
    gaps: Option<Gaps>,
    geometry: Geometry,
    waiting: Vec<Request>,
    done: Vec<RequestCompletion>,
}

impl Device {
    fn complete(&mut self) {
        self.done.extend(
            self.waiting.drain(..).map(|request| RequestCompletion {
                result: Ok(()),
                ..request.refuse(Failure::Gone)
            }),
        );
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, _: &mut Reactor, request: Request) {
        let mut shared = self.shared.borrow_mut();
        if self.gaps.is_some() {
            // The first is the read with which a lane begins, when T has begun no more than that.
            let after = if shared.awaited.is_some() { ANSWERED_AFTER } else { 0 };
            shared.awaited = Some((self.owner, shared.begun + after));
            shared.is_told = false;
        } else {
            shared.begun += 1;
        }
        self.waiting.push(request);
    }

    fn handle(&mut self, _: &mut Reactor, _: ReactorCompletion) {
        let shared = self.shared.borrow();
        if let (Some(gaps), Some((_, at))) = (&self.gaps, shared.awaited) {
            gaps.lock().expect("nobody panics").push(shared.begun - at);
        }
        drop(shared);
        self.complete();
    }

    fn flush(&mut self, _: &mut Reactor) {
        if self.gaps.is_none() {
            self.complete();
        }
    }

    fn set_express(&mut self, _: &mut Reactor, is_express: bool) {
        self.shared.borrow_mut().is_express = is_express;
    }

    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop()
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.done.len()
    }

    fn close(&mut self, _: &mut Reactor) {
        self.complete();
    }
}

#[derive(Debug)]
struct Factory(Option<Gaps>);

impl DeviceFactory for Factory {
    fn open(&self, reactor: &mut Reactor, owner: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let shared = reactor.attachment::<RefCell<Shared>>().unwrap_or_else(|| {
            let shared = Rc::new(RefCell::new(Shared::default()));
            reactor.attach(Rc::clone(&shared));
            reactor.add_source(Box::new(Answers(Rc::clone(&shared))));
            shared
        });
        let (gaps, geometry) = (self.0.clone(), self.geometry());
        let (waiting, done) = (Vec::new(), Vec::new());
        Ok(Box::new(Device { owner, shared, gaps, geometry, waiting, done }))
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(1 << 30, 4096)
    }

    fn survives_restart(&self) -> bool {
        false
    }

    fn identity(&self) -> String {
        "made up".to_owned()
    }

    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
}

/// The largest gap, and how many requests of L there were, beside T at a depth of 128 on one
/// thread.
fn largest_gap(express: bool) -> (u64, usize) {
    let gaps = Gaps::default();
    let t = Job {
        depth: 128,
        cpus: vec![0],
        runtime: Some(Duration::from_millis(300)),
        ..Job::default()
    };
    let t = Job { time_based: true, ..t };
    let l = Job { depth: 1, express, ..t.clone() };
    let factory = |gaps| Arc::new(Factory(gaps)) as Arc<dyn DeviceFactory>;
    // The order in which they are given makes no difference.
    let parts = [Part::new(&t, &factory(None)), Part::new(&l, &factory(Some(Arc::clone(&gaps))))];
    let results =
        run_jobs(&parts, &AtomicBool::new(false), &mut Windows(&mut |_| {})).expect("a run");
    assert!(results.iter().all(|result| result.lanes.iter().all(|(worker, _)| *worker == 0)));
    let gaps = gaps.lock().expect("nobody panics");
    // The first is that of the read with which a lane begins.
    (gaps.iter().skip(1).copied().max().unwrap_or(0), gaps.len())
}

/// What comes for a job of class 1 is served after at most a part of another's turn; in its turn it
/// waits for all that the other has begun until the reactor is polled.
#[test]
fn a_job_that_comes_first_waits_for_a_part_of_the_others_turn() {
    let (first, many) = largest_gap(true);
    let (in_turn, _) = largest_gap(false);
    assert!(first <= 32 && many > 100, "{first} of T between, {many} times");
    assert!(in_turn > 100, "{in_turn} of T between without a class");
}
