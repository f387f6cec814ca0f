//! Simulation without a kernel: virtual time, a network and files in memory, and every fault
//! drawn from one seed.
//!
//! Reactors of one [`World`] (made by [`Reactor::simulated`](crate::Reactor::simulated)) reach
//! each other by simulated connections and share its files. Everything happens on one thread, so
//! that the same seed and the same calls give the same run, down to the byte at which a receive
//! is cut.
//!
//! The loop of a simulation with several reactors: poll each with
//! [`WaitLimit::NoWait`](crate::WaitLimit::NoWait) until none has anything to do, then
//! [`World::advance`] to the next event. A single reactor may be polled with any
//! [`WaitLimit`](crate::WaitLimit): waiting moves the time. (A reactor that waits
//! while others have timers moves the time past those.) A wait that could never end panics: it is a
//! fault of the tested code.

mod conditions;
mod driver;
mod files;
mod network;
mod random;
mod state;

pub use conditions::{NetworkConditions, SimulatedFile, StorageConditions};
pub use driver::DRIVER_NAME;
pub use network::{Detached, Interception};
pub use random::Random;

pub(crate) use driver::SimulatedDriver;

use crate::mailbox::Waker;
use crate::pool::Pool;
use state::State;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// Everything that simulated reactors have in common. All clones are the same world.
#[derive(Clone)]
pub struct World {
    state: Rc<RefCell<State>>,
}

impl World {
    /// A world whose faults are drawn from `seed`.
    pub fn new(seed: u64, network: NetworkConditions) -> Self {
        Self { state: Rc::new(RefCell::new(State::new(seed, network))) }
    }

    /// The virtual time.
    pub fn now(&self) -> Duration {
        self.state.borrow().now()
    }

    /// Moves the time to the next event or reactor's timer and executes it. False if there is
    /// none. Poll the reactors afterwards.
    pub fn advance(&self) -> bool {
        self.state.borrow_mut().advance()
    }

    /// Whether there is a next event that is no reactor's timer.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.state.borrow().has_events()
    }

    /// Lets this much time pass, with the events in it. Timers come later than they are set to.
    pub fn pass(&self, time: Duration) {
        self.state.borrow_mut().pass(time);
    }

    /// How much time passes between two looks of a reactor at its express sockets
    /// ([`Reactor::has_express`](crate::Reactor::has_express)), that is with the work for others;
    /// at first none.
    pub fn set_work_time(&self, time: Duration) {
        self.state.borrow_mut().work_time = time;
    }

    /// How long a reactor with express sockets takes to send 64 KiB from another one, in which it
    /// does not look at these; at first no time.
    pub fn set_send_time(&self, time: Duration) {
        self.state.borrow_mut().send_time = time;
    }

    /// A hash of the run so far: equal for two runs with the same events.
    pub fn fingerprint(&self) -> u64 {
        self.state.borrow().fingerprint()
    }

    /// Changes how the network behaves from now on.
    pub fn set_network(&self, conditions: NetworkConditions) {
        self.state.borrow_mut().network = conditions;
    }

    /// Changes how files behave from now on.
    pub fn set_storage(&self, conditions: StorageConditions) {
        self.state.borrow_mut().storage = conditions;
    }

    /// Buffer pool and receive size of the reactors that are made from now on.
    pub fn set_memory(&self, pool_bytes: usize, receive_bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.pool_bytes = pool_bytes;
        state.receive_bytes = receive_bytes;
    }

    /// How many sockets each reactor can have open, listeners included; beyond that connecting and
    /// accepting fail as they do when a process runs out of descriptors.
    pub fn set_socket_limit(&self, limit: Option<usize>) {
        self.state.borrow_mut().socket_limit = limit;
    }

    /// From now on somebody is between the ends of every connection: he is given the time, the
    /// addresses of the end that sends and of the other one, and what is sent, and says what
    /// arrives.
    pub fn intercept(
        &self,
        intercept: impl FnMut(Duration, [SocketAddr; 2], Vec<u8>) -> Vec<Interception> + 'static,
    ) {
        self.state.borrow_mut().interceptor.0 = Some(Box::new(intercept));
    }

    /// Nobody is there any more.
    pub fn stop_intercepting(&self) {
        self.state.borrow_mut().interceptor.0 = None;
    }

    /// Resets the connection whose one end has this address. Whether there was one.
    pub fn reset_connection(&self, end: SocketAddr) -> bool {
        self.state.borrow_mut().reset_by_address(end)
    }

    /// Stops the traffic of the connection whose one end has this address: both ends stay
    /// connected, and nothing arrives any more. Whether there was one.
    pub fn drop_silently(&self, end: SocketAddr) -> bool {
        self.state.borrow_mut().silence_by_address(end)
    }

    /// Begins or ends an outage of the connections whose one end has this address. Meanwhile
    /// nothing arrives at either end, and resets are lost. What a kernel has been given it sends
    /// again, also when the process has ended, so that it arrives after the outage: up to as long
    /// after it as the outage was.
    pub fn set_outage(&self, address: IpAddr, is_out: bool) {
        self.state.borrow_mut().set_outage(address, is_out);
    }

    /// Whether the connections that are made from now on are reset when the process that has made
    /// them ends (`SO_LINGER` with a time of zero), instead of closed after all that it has sent.
    /// At first as the drivers of the kernel have it.
    pub fn set_resets_at_death(&self, resets: bool) {
        self.state.borrow_mut().resets_at_death = resets;
    }

    /// The next sync of a file fails, and what it should have made durable never will be.
    pub fn fail_sync(&self, file: SimulatedFile) {
        self.state.borrow_mut().file_mut(file).fail_sync();
    }

    /// A new file of `len` zero bytes, all of them durable.
    pub fn add_file(&self, len: u64) -> SimulatedFile {
        self.state.borrow_mut().add_file(len)
    }

    /// The power fails and comes back: what was written to files and not made durable is lost,
    /// and operations in flight fail.
    pub fn crash_files(&self) {
        self.state.borrow_mut().crash_files();
    }

    /// The length of a file.
    pub fn file_len(&self, file: SimulatedFile) -> u64 {
        self.state.borrow().file(file).len()
    }

    /// What a file holds at this moment; beyond its end zeroes.
    pub fn peek(&self, file: SimulatedFile, offset: u64, into: &mut [u8]) {
        self.state.borrow().file(file).peek(offset, into);
    }

    /// Changes a file's durable content without an operation, as a corrupted sector does.
    pub fn corrupt(&self, file: SimulatedFile, offset: u64, bytes: &[u8]) {
        self.state.borrow_mut().file_mut(file).write(offset, bytes, true);
    }

    /// Bytes that a file takes, in pages.
    pub fn allocated_bytes(&self, file: SimulatedFile) -> u64 {
        self.state.borrow().file(file).allocated_bytes()
    }

    pub(crate) fn pool(&self) -> Pool {
        let bytes = self.state.borrow().pool_bytes;
        Pool::new(bytes).expect("address space for a simulated reactor's buffers")
    }

    pub(crate) fn driver(&self, pool: Pool, waker: Waker) -> SimulatedDriver {
        SimulatedDriver::new(Rc::clone(&self.state), pool, waker)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
