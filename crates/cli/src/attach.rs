//! `weft attach`: a namespace as a block device of this kernel, by ublk.
//!
//! Each queue of the device has a thread, a reactor and an I/O queue of the namespace of its own
//! ([`queue`]). The kernel keeps the device when this process ends in another way than by a stop:
//! requests wait, and `weft attach --recover` serves them.

mod parameters;
mod queue;
pub(crate) mod tools;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use sd_notify::NotifyState;
use serde_json::json;
use weft_backend::{Geometry, bytes};
use weft_reactor::system;
use weft_reactor::ublk::{Control, DeviceInfo, Features, State};

use self::parameters::{SECTOR_BYTES, parameters, sectors};
use self::queue::{Order, ThreadEvent};
use self::tools::{block_device, hold, mark, open_control, refused};
use crate::connection::{Connection, NamespaceChoice};
use crate::driven::Driven;
use crate::failure::Failure;
use crate::limits::ATTACH_REQUEST_BYTES_MAX;
use crate::output::Format;
use crate::service_manager::tell_manager;
use crate::values::{Driver, PollingMode};
use crate::{output, signals};

/// Queues, unless a number is given.
pub(crate) const QUEUES_DEFAULT: u16 = 4;

/// How often signals and the size are looked at.
const WATCH: Duration = Duration::from_millis(200);
const SIZE_EVERY: u32 = 5;

/// How long the kernel may take to notice that an earlier server has ended.
const RECOVERY_TRIES: u32 = 100;
const RECOVERY_DELAY: Duration = Duration::from_millis(100);

/// Options of `weft attach`.
///
/// It serves the device until it gets SIGINT or SIGTERM, or until `weft detach`. Needs root, the
/// module ublk_drv and Linux 6.5; a size that changes needs Linux 6.16.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    /// Number of the device, N of /dev/ublkbN; by default the first that is free.
    #[arg(long, value_name = "N", conflicts_with = "recover")]
    id: Option<u32>,
    /// Serve the device that an earlier process served until it was killed.
    #[arg(long, value_name = "N")]
    recover: Option<u32>,
    /// Requests in flight of each queue, at most.
    #[arg(long, value_name = "REQUESTS", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1023))]
    queue_depth: u16,
    /// Serve requests of 16 KiB and less by queue pairs of their own, between the others: each
    /// queue of the device has two of the namespace then. With --nr-io-queues, so many of the
    /// device.
    #[arg(long)]
    express: bool,
    /// When a signal says stop: also if the device is in use. What its users have not written
    /// is lost to them.
    #[arg(long)]
    force: bool,
    /// How the threads wait: adaptive looks for a while, then sleeps.
    #[arg(long, value_enum, default_value_t)]
    polling: PollingMode,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

#[expect(clippy::mem_forget, reason = "controllers that must not be closed")]
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut control = open_control()?;
    let features = control.features().unwrap_or_default();
    if !features.has(Features::CMD_IOCTL_ENCODE.with(Features::USER_RECOVERY_REISSUE)) {
        return Err(Failure::because(
            "this kernel's ublk is too old: Linux 6.5 or later is needed",
        ));
    }
    // Before any thread starts, because they inherit it.
    if let Err(error) = system::forbid_writeback_for_memory() {
        log::debug!("memory may be made free by writing to the device: {error}");
    }
    let driven = connect(options)?;
    let served = match AttachedDevice::begin(options, &mut control, features, &driven) {
        Ok(served) => served,
        Err(failure) => return driven.close().and(Err(failure)),
    };
    let outcome = served.serve(options, &mut control, &driven);
    if outcome.is_err() {
        // The device waits for another process. What is in flight would fail if the controllers
        // were closed before this process ends.
        std::mem::forget(driven);
        return outcome;
    }
    driven.close()
}

fn connect(options: &Options) -> Result<Driven, Failure> {
    let mut host = options.connection.options()?;
    if !options.connection.has_nr_io_queues() {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        host.nr_io_queues = u16::try_from(cpus).unwrap_or(u16::MAX).min(QUEUES_DEFAULT);
    }
    if options.express {
        host.nr_io_queues = host.nr_io_queues.saturating_mul(2);
    }
    host.queue_size = host.queue_size.max(options.queue_depth + 1).min(weft_host::QUEUE_SIZE_MAX);
    let _ = weft_reactor::raise_descriptor_limit();
    Driven::remote(&host, options.namespace.nsid())
}

/// A device of the kernel, and the threads that serve it.
struct AttachedDevice {
    info: DeviceInfo,
    /// Its size, as the kernel knows it.
    sectors: u64,
    threads: Vec<JoinHandle<()>>,
    news: Receiver<ThreadEvent>,
    stop: Arc<AtomicBool>,
}

impl AttachedDevice {
    /// Makes the device, or takes it over, and starts it.
    fn begin(
        options: &Options,
        control: &mut Control,
        features: Features,
        driven: &Driven,
    ) -> Result<Self, Failure> {
        let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
        let geometry = driven.factory.geometry();
        let wanted = parameters(&geometry, ATTACH_REQUEST_BYTES_MAX).map_err(Failure::Because)?;
        let own = mark(&driven.factory.identity());
        let granted = driven.io_queues().unwrap_or(1);
        let (info, sectors) = match options.recover {
            Some(id) => {
                let known = tools::own_device(control, id)?;
                device_queues(granted, options.express, Some(known.queues))?;
                (take_over(control, id, own, &geometry)?, control.parameters(id))
            }
            None => {
                let queues = device_queues(granted, options.express, None)?;
                (add(options, control, features, queues, own)?, Ok(wanted))
            }
        };
        let sectors = sectors.map_err(|error| refused("its parameters", &error))?.sectors;
        let (news, received) = channel();
        let mut this = Self { info, sectors, threads: Vec::new(), news: received, stop };
        let started = this.start_threads(options, control, driven, &news).and_then(|()| {
            let outcome = match options.recover {
                Some(id) => control.end_recovery(id),
                None => {
                    control.set_parameters(info.id, &wanted).and_then(|()| control.start(info.id))
                }
            };
            outcome.map_err(|error| refused("to start the device", &error))
        });
        match started {
            Ok(()) => Ok(this),
            Err(failure) => {
                // A device that was taken over stays as it was, for another try.
                if options.recover.is_none() {
                    let _ = control.delete(info.id);
                }
                Err(failure)
            }
        }
    }

    fn start_threads(
        &mut self,
        options: &Options,
        control: &Control,
        driven: &Driven,
        news: &Sender<ThreadEvent>,
    ) -> Result<(), Failure> {
        let device = control.device(&self.info);
        let device = device
            .map_err(|error| Failure::io("open", &format!("/dev/ublkc{}", self.info.id), &error))?;
        for number in 0..self.info.queues {
            let order = Order {
                device: device.clone(),
                number,
                factory: Arc::clone(&driven.factory),
                driver: Driver::Uring.into(),
                polling: options.polling,
                express: options.express,
                news: news.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("weft-attach-{number}"));
            let thread = thread.spawn(move || queue::work(order));
            self.threads.push(thread.map_err(|e| Failure::io("start", &"a thread", &e))?);
        }
        for _ in 0..self.info.queues {
            match self.news.recv() {
                Ok(ThreadEvent::Ready) => {}
                Ok(ThreadEvent::Ended(Err(why))) => return Err(Failure::Because(why)),
                Ok(ThreadEvent::Ended(Ok(()))) | Err(_) => {
                    return Err(Failure::because("the device was removed while it was started"));
                }
            }
        }
        Ok(())
    }

    /// Serves the device until it is to stop.
    fn serve(
        mut self,
        options: &Options,
        control: &mut Control,
        driven: &Driven,
    ) -> Result<(), Failure> {
        let path = block_device(self.info.id);
        let geometry = driven.factory.geometry();
        let about = json!({
            "device": path,
            "namespace": driven.name,
            "bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "queues": self.info.queues,
            "queue_depth": self.info.depth,
        });
        let said = options.output_format.print(&format!("{}\n", path.display()), &about);
        said.map_err(Failure::before_serving)?;
        output::print_error(&format!(
            "weft attach: {} is {}: {}, blocks of {} bytes, {} queues of {}",
            path.display(),
            driven.name,
            bytes::human(geometry.bytes()),
            geometry.block_bytes,
            self.info.queues,
            self.info.depth,
        ));
        tell_manager(NotifyState::Ready);
        let mut is_told = false;
        for turn in 0_u32.. {
            match hear(&self.news, self.info.id) {
                DeviceEvent::Nothing => {}
                DeviceEvent::Failed(failure) => return Err(failure),
                DeviceEvent::Stopped => return self.end(control),
            }
            if self.stop.load(Ordering::Relaxed) {
                match hold(self.info.id, options.force) {
                    Ok(held) => return self.stop(control, held),
                    Err(why) if !is_told => {
                        is_told = true;
                        tell_manager(NotifyState::Stopping);
                        output::print_error(&format!(
                            "weft attach: {why}: waiting until it is not; a second signal ends \
                             this process, and `weft attach --recover {}` serves the device then",
                            self.info.id
                        ));
                    }
                    Err(_) => {}
                }
            }
            if turn % SIZE_EVERY == 0 {
                self.follow_size(control, &driven.factory.geometry());
            }
        }
        Ok(())
    }

    /// Gives the device the size of its namespace.
    fn follow_size(&mut self, control: &mut Control, geometry: &Geometry) {
        let now = sectors(geometry);
        if now == self.sectors {
            return;
        }
        let path = block_device(self.info.id);
        let size = bytes::human(now.saturating_mul(SECTOR_BYTES));
        let outcome = if self.info.features.has(Features::UPDATE_SIZE) {
            control.update_size(self.info.id, now)
        } else {
            Err(Errno::OPNOTSUPP.into())
        };
        match outcome {
            Ok(()) => log::info!("{} has {size} now", path.display()),
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                log::warn!(
                    "the namespace has {size} now; a kernel before Linux 6.16 changes {} only \
                     when it is detached and attached again",
                    path.display()
                );
            }
            Err(error) => log::warn!("{} cannot have {size}: {error}", path.display()),
        }
        self.sectors = now;
    }

    /// Stops the device, which nobody else has while it is held.
    fn stop(self, control: &mut Control, held: Option<File>) -> Result<(), Failure> {
        tell_manager(NotifyState::Stopping);
        control.stop(self.info.id).map_err(|error| refused("to stop the device", &error))?;
        drop(held);
        self.end(control)
    }

    /// The device is stopped: waits for the threads, and removes it.
    fn end(self, control: &mut Control) -> Result<(), Failure> {
        for thread in self.threads {
            if thread.join().is_err() {
                return Err(Failure::because("a thread has ended by a fault of this program"));
            }
        }
        tools::delete(control, self.info.id)
    }
}

/// What the threads of a device tell.
#[derive(Debug)]
enum DeviceEvent {
    /// Nothing within [`WATCH`].
    Nothing,
    /// One has failed: the process is to end.
    Failed(Failure),
    /// The device was stopped by `weft detach`.
    Stopped,
}

fn hear(news: &Receiver<ThreadEvent>, id: u32) -> DeviceEvent {
    match news.recv_timeout(WATCH) {
        Err(RecvTimeoutError::Timeout) => DeviceEvent::Nothing,
        Ok(ThreadEvent::Ended(Err(why))) => DeviceEvent::Failed(Failure::Because(format!(
            "a queue of {} has ended: {why}; weft attach --recover {id} serves it",
            block_device(id).display(),
        ))),
        _ => DeviceEvent::Stopped,
    }
}

/// How many queues the device has, or the number that it `has` already, if the controller grants
/// enough I/O queues for that.
fn device_queues(granted: u16, express: bool, has: Option<u16>) -> Result<u16, Failure> {
    let each = if express { 2 } else { 1 };
    let queues = has.unwrap_or(granted / each);
    let needed = queues.max(1).saturating_mul(each);
    if needed <= granted.max(1) {
        return Ok(queues.max(1));
    }
    let (two, other_way) = match express {
        true => ("two I/O queues", "; without --express one is enough"),
        false => ("an I/O queue", ""),
    };
    let its =
        if has.is_some() { format!("{queues} of its own") } else { "one at least".to_owned() };
    Err(Failure::Because(format!(
        "the device needs {two} of the controller for each of its queues, {its}, which is \
         {needed}, and the controller grants {granted}{other_way}"
    )))
}

/// Makes a device with so many queues and this mark for a namespace.
fn add(
    options: &Options,
    control: &mut Control,
    features: Features,
    queues: u16,
    mark: u64,
) -> Result<DeviceInfo, Failure> {
    let own = Features::USER_RECOVERY
        .with(Features::USER_RECOVERY_REISSUE)
        .with(Features::CMD_IOCTL_ENCODE)
        .with(Features(features.0 & Features::UPDATE_SIZE.0));
    let wanted = DeviceInfo {
        id: options.id.unwrap_or(u32::MAX),
        queues,
        depth: options.queue_depth,
        request_bytes_max: ATTACH_REQUEST_BYTES_MAX,
        features: own,
        mark,
        ..DeviceInfo::default()
    };
    control.add(&wanted).map_err(|error| match (error.raw_os_error(), options.id) {
        (Some(number), Some(id)) if number == Errno::EXIST.raw_os_error() => {
            Failure::Because(format!("{} is there already", block_device(id).display()))
        }
        _ => refused("a new device", &error),
    })
}

/// Takes over a device whose server has ended.
fn take_over(
    control: &mut Control,
    id: u32,
    mark: u64,
    geometry: &Geometry,
) -> Result<DeviceInfo, Failure> {
    let info = tools::own_device(control, id)?;
    let path = block_device(id);
    if info.mark != mark {
        return Err(Failure::Because(format!(
            "{} is another namespace: give the address that it was attached with",
            path.display()
        )));
    }
    let known = control.parameters(id).map_err(|error| refused("its parameters", &error))?;
    if 1 << known.logical_block_shift != geometry.block_bytes {
        return Err(Failure::Because(format!(
            "{} has blocks of {} bytes, and the namespace of {}",
            path.display(),
            1_u32 << known.logical_block_shift,
            geometry.block_bytes
        )));
    }
    for _ in 0..RECOVERY_TRIES {
        match control.begin_recovery(id) {
            Ok(()) => return control.info(id).map_err(|error| refused("the device", &error)),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            Err(error) => return Err(refused("to recover the device", &error)),
        }
        std::thread::sleep(RECOVERY_DELAY);
    }
    Err(Failure::Because(match info.state {
        State::Dead => format!("{} was never started: weft detach {id} removes it", path.display()),
        _ => format!("{} is served by process {}", path.display(), info.pid),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_as_many_queues_as_the_controller_grants_queue_pairs_for() {
        for (granted, express, has, queues) in [
            (4, false, None, 4),
            (4, true, None, 2),
            (5, true, None, 2),
            (4, true, Some(2), 2),
            (8, false, Some(2), 2),
        ] {
            assert_eq!(device_queues(granted, express, has).ok(), Some(queues), "{granted}");
        }
        for (granted, express, has, needed) in
            [(1, true, None, 2), (1, false, Some(2), 2), (7, true, Some(4), 8)]
        {
            let Err(Failure::Because(why)) = device_queues(granted, express, has) else {
                panic!("{granted}")
            };
            assert!(why.contains(&format!("which is {needed}, and")), "{why}");
            assert!(why.contains(&format!("grants {granted}")), "{why}");
        }
    }
}
