//! A device that cannot be opened in one group, or panics in one.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weft_backend::{
    BlockDevice, DeviceFactory, DeviceSpec, Geometry, OpenError, Operation, Request,
    RequestCompletion, ResizeError,
};
use weft_nvme::Status;
use weft_reactor::{Owner, Reactor};
use weft_target::Target;
use weft_target::config::Config;

use crate::support::child::{ChildTarget, is_child_of, serve_target};
use crate::support::peer::Peer;
use crate::support::{address, config_of_two_groups, log, pattern};

const BLOCK: usize = 4096;

/// What stands for the device in a configuration.
const SPEC: &str = "null:3MiB";

/// Takes writes of block 0 and panics at any other.
#[derive(Debug, Default)]
struct Panicking {
    opened: AtomicUsize,
    /// It cannot be opened more often than this.
    opens_max: Option<usize>,
    synced: Arc<AtomicUsize>,
}

impl DeviceFactory for Panicking {
    fn open(&self, _: &mut Reactor, _: Owner) -> Result<Box<dyn BlockDevice>, OpenError> {
        let before = self.opened.fetch_add(1, Ordering::Relaxed);
        if self.opens_max.is_some_and(|most| before >= most) {
            return Err(OpenError::Invalid("it cannot be opened here".to_owned()));
        }
        Ok(Box::new(Device { geometry: self.geometry(), done: Vec::new() }))
    }
    fn geometry(&self) -> Geometry {
        Geometry::new(3 << 20, 4096)
    }
    fn survives_restart(&self) -> bool {
        true
    }
    fn identity(&self) -> String {
        "panicking".to_owned()
    }
    fn resize(&self, _: u64) -> Result<(), ResizeError> {
        Err(ResizeError::Unsupported)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.synced.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Debug)]
struct Device {
    geometry: Geometry,
    done: Vec<RequestCompletion>,
}

impl BlockDevice for Device {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn submit(&mut self, _: &mut Reactor, request: Request) {
        match request.operation {
            Operation::Write { slba: 0, from, .. } => {
                self.done.push(RequestCompletion {
                    tag: request.tag,
                    result: Ok(()),
                    buffer: Some(from),
                });
            }
            // A panic that prints nothing: it is no failure of the test.
            operation => resume_unwind(Box::new(format!("the device does not know {operation:?}"))),
        }
    }
    fn handle(&mut self, _: &mut Reactor, _: weft_reactor::ReactorCompletion) {}
    fn flush(&mut self, _: &mut Reactor) {}
    fn poll_completion(&mut self) -> Option<RequestCompletion> {
        self.done.pop()
    }
    fn in_flight(&self) -> usize {
        self.done.len()
    }
    fn close(&mut self, _: &mut Reactor) {}
}

fn target_with(device: Panicking, config: Config) -> Target {
    log::install();
    let spec: DeviceSpec = SPEC.parse().expect("a device");
    Target::with_devices(config, vec![(spec, Arc::new(device))]).expect("a target")
}

/// A reload that one group cannot make is made by none.
#[test]
fn a_device_that_opens_in_one_group_only_is_served_by_none() {
    let before = config_of_two_groups(&["memory:1MiB"]);
    let mut after = config_of_two_groups(&["memory:2MiB", SPEC]);
    after.subsystems[0].serial = Some("NEW".to_owned());
    let mut target =
        target_with(Panicking { opens_max: Some(1), ..Panicking::default() }, before.clone());
    let (_admin, controller) = Peer::admin(address(&target));
    let mut queues = [1, 2].map(|queue_id| Peer::io(address(&target), controller, queue_id));
    let error = target.reload(after).map(|_| ()).expect_err("one group cannot").to_string();
    assert!(error.contains("cannot be opened here"), "{error}");
    for io in &mut queues {
        let bytes = pattern(BLOCK, 1);
        assert_eq!(io.write(2, 0, 1, &bytes).status(), Status::INVALID_NAMESPACE.with_dnr());
        assert_eq!(io.write(1, 256, 1, &bytes).status(), Status::LBA_OUT_OF_RANGE.with_dnr());
        io.write(1, 0, 1, &bytes).succeeded();
    }
    assert_eq!(target.config().subsystems, before.subsystems);
    target.reload(before).expect("a reload");
    target.stop().expect("a clean stop");
}

/// Within another program: the hosts of every group lose their connections, nothing is said to be
/// durable, and whoever has the target is told.
#[test]
fn a_group_that_panics_takes_the_target_with_it() {
    let device = Panicking::default();
    let synced = Arc::clone(&device.synced);
    let mut target = target_with(device, config_of_two_groups(&[SPEC]));
    let (mut admin, controller) = Peer::admin(address(&target));
    let mut queues = [1, 2].map(|queue_id| Peer::io(address(&target), controller, queue_id));
    queues[1].write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    queues[0].begin_write(1, 1, 1, &pattern(BLOCK, 1));
    for peer in queues.iter_mut().chain([&mut admin]) {
        peer.until_closed();
    }
    let config = target.config().clone();
    let error = target.reload(config).map(|_| ()).expect_err("it has failed").to_string();
    assert!(error.contains("poll group") && error.contains("does not know"), "{error}");
    assert!(target.stop().expect_err("it has failed").to_string().contains("does not know"));
    assert_eq!(synced.load(Ordering::Relaxed), 0, "nothing is said to be durable");
}

/// In a process of its own: that ends, at once and with an exit code.
#[test]
fn a_group_that_panics_takes_the_process_with_it() {
    const TEST: &str = "failure::a_group_that_panics_takes_the_process_with_it";
    let config = || config_of_two_groups(&[SPEC]);
    if is_child_of(TEST) {
        let target = target_with(Panicking::default(), config());
        target.exit_on_failure();
        return serve_target(target);
    }
    let mut child = ChildTarget::of(TEST, "epoll", None);
    let (mut admin, controller) = Peer::admin(child.address);
    let mut queues = [1, 2].map(|queue_id| Peer::io(child.address, controller, queue_id));
    queues[1].write(1, 0, 1, &pattern(BLOCK, 1)).succeeded();
    let late = queues[0].begin_write(1, 1, 1, &pattern(BLOCK, 1));
    for peer in queues.iter_mut().chain([&mut admin]) {
        peer.until_closed();
    }
    assert!(queues[0].answered(late).is_none());
    assert_eq!(child.exit_code(), Some(101));
}

/// An address that a process which is just ending still has.
#[test]
fn an_address_in_use_is_tried_again() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("its address");
    let mut config = config_of_two_groups(&["memory:1MiB"]);
    config.ports[0].listen = weft_target::config::Listen::tcp(at);
    let error = Target::start(config.clone()).map(|_| ()).expect_err("it is taken").to_string();
    assert!(error.contains("in use") && error.contains(&at.to_string()), "{error}");
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(taken);
    });
    let target = Target::start(config).expect("a target");
    assert_eq!(address(&target), at);
    ending.join().expect("no panic");
    target.stop().expect("a clean stop");
}
