//! Connections turn by turn, with the test as their owner: the order of calls, and the move to
//! another reactor.

use std::net::SocketAddr;
use std::time::Duration;

use weft_nvme::{Command, Completion, FabricsType, Status};
use weft_reactor::{Buffer, Operation, Outcome, Owner, Reactor, Token, WaitLimit};
use weft_transport::host::{HostConnection, HostData, HostEvent, HostOptions};
use weft_transport::target::{Event, Limits, TargetConnection};
use weft_transport::{CloseReason, Slot};

use crate::rig::{READ, WRITE, drivers, pattern};

const LISTENER: Owner = Owner(1);
const TARGET: Owner = Owner(2);
const HOST: Owner = Owner(3);

/// Both ends of one connection.
struct Ends {
    reactor: Reactor,
    target: Option<TargetConnection>,
    host: HostConnection,
    target_events: Vec<Event>,
    host_events: Vec<HostEvent>,
}

impl Ends {
    fn new(mut reactor: Reactor, limits: Limits, options: HostOptions) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = reactor.listen(any).expect("listen");
        let address = reactor.local_address(listener).expect("address");
        reactor.submit(Token::new(LISTENER, 0), Operation::Accept { listener });
        let host = HostConnection::connect(&mut reactor, HOST, 0, address, options);
        let (target_events, host_events) = (Vec::new(), Vec::new());
        let mut ends = Self { reactor, target: None, host, target_events, host_events };
        let mut completions = Vec::new();
        while ends.target.is_none() {
            ends.reactor.poll(WaitLimit::Sleep, &mut completions);
            for completion in completions.drain(..) {
                match completion.outcome {
                    Outcome::Accepted { socket, .. } => {
                        ends.target = Some(TargetConnection::accept(
                            &mut ends.reactor,
                            TARGET,
                            0,
                            socket,
                            limits,
                        ));
                    }
                    _ => ends.host.handle(&mut ends.reactor, completion),
                }
            }
        }
        ends.reactor.close_listener(listener);
        ends
    }

    /// Runs a turn without completing any command.
    fn turn(&mut self) {
        let mut completions = Vec::new();
        let until = self.reactor.now() + Duration::from_millis(10);
        self.reactor.poll(WaitLimit::Until(until), &mut completions);
        for completion in completions {
            if completion.token.owner == HOST {
                self.host.handle(&mut self.reactor, completion);
            } else if let Some(target) =
                self.target.as_mut().filter(|_| completion.token.owner == TARGET)
            {
                target.handle(&mut self.reactor, completion);
            }
        }
        self.collect();
        if let Some(target) = &mut self.target {
            target.flush(&mut self.reactor);
        }
        self.host.flush(&mut self.reactor);
    }

    fn collect(&mut self) {
        if let Some(target) = &mut self.target {
            self.target_events.extend(std::iter::from_fn(|| target.poll_event()));
        }
        let host = &mut self.host;
        self.host_events.extend(std::iter::from_fn(|| host.poll_event()));
    }

    fn target_event(&mut self) -> Event {
        for _ in 0..1000 {
            if !self.target_events.is_empty() {
                return self.target_events.remove(0);
            }
            self.turn();
        }
        panic!("the target reported no event");
    }

    fn host_event(&mut self) -> HostEvent {
        for _ in 0..1000 {
            if !self.host_events.is_empty() {
                return self.host_events.remove(0);
            }
            self.turn();
        }
        panic!("the host reported no event");
    }

    fn command(&mut self) -> (Slot, Command) {
        match self.target_event() {
            Event::Command { slot, .. } => (slot, *self.target().command(slot).expect("it came")),
            other => panic!("{other:?}"),
        }
    }

    fn target(&mut self) -> &mut TargetConnection {
        self.target.as_mut().expect("a connection")
    }

    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.reactor.pool().take(bytes.len()).expect("a buffer");
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn submit(&mut self, command: Command, data: HostData) -> Slot {
        self.host.submit(command, data).expect("a slot")
    }

    /// Connects, up to a received Connect that is not completed.
    fn mark_connect(&mut self) -> (Slot, Command) {
        assert!(matches!(self.host_event(), HostEvent::Ready { .. }));
        self.submit(Command::fabrics(FabricsType::CONNECT), HostData::None);
        self.command()
    }

    fn accept_connect(&mut self, depth: u16, flow_control: bool) {
        let (slot, command) = self.mark_connect();
        self.target().set_queue(1, depth, flow_control);
        self.target().complete(slot, success(&command));
        assert!(matches!(self.host_event(), HostEvent::Completed { .. }));
    }

    fn close(mut self) {
        let reason = CloseReason::Requested("test is over");
        self.host.close(&mut self.reactor, reason);
        while !matches!(self.host_event(), HostEvent::Closed { .. }) {}
        while !matches!(self.target_event(), Event::Closed { .. }) {}
        let pool = self.reactor.pool();
        assert_eq!(pool.available(), pool.capacity(), "every buffer was returned");
    }
}

fn success(command: &Command) -> Completion {
    Completion::new(command.command_id.get(), Status::SUCCESS)
}

#[test]
fn a_connection_moves_to_another_reactor_with_connect() {
    for (first, mut second) in drivers().into_iter().zip(drivers()) {
        let mut ends = Ends::new(first, Limits::default(), HostOptions::default());
        let (slot, connect) = ends.mark_connect();
        assert_eq!(slot, Slot(0));
        let target = ends.target.take().expect("a connection");
        let address = target.local_address(&ends.reactor).expect("an address");
        let detached = target.detach(&mut ends.reactor).expect("it can move now");

        let moved = std::thread::scope(|scope| {
            // It is `Send`: the other reactor would be on another thread.
            scope.spawn(|| detached).join().expect("no panic")
        });
        let mut target = TargetConnection::attach(&mut second, TARGET, 7, moved).expect("room");
        assert_eq!(target.local_address(&second).expect("an address"), address);
        assert_eq!(target.command(Slot(0)), Some(&connect));
        target.set_queue(1, 32, true);
        target.complete(Slot(0), success(&connect));
        assert_eq!(target.command(Slot(0)), None, "it is completed");
        target.flush(&mut second);
        assert!(matches!(ends.host_event(), HostEvent::Completed { .. }));

        let buffer = ends.reactor.pool().take(50_000).expect("a buffer");
        ends.submit(Command::new(READ), HostData::FromController(buffer));
        let mut completions = Vec::new();
        let received = loop {
            ends.turn();
            if let Some(event) = ends.host_events.pop() {
                break event;
            }
            let until = second.now() + Duration::from_millis(5);
            second.poll(WaitLimit::Until(until), &mut completions);
            for completion in completions.drain(..) {
                assert_eq!(weft_transport::tag_of(completion.token), 7);
                target.handle(&mut second, completion);
            }
            while let Some(event) = target.poll_event() {
                let Event::Command { slot, .. } = event else { panic!("{event:?}") };
                let command = *target.command(slot).expect("it came");
                let mut buffer = second.pool().take(50_000).expect("a buffer");
                buffer.copy_from_slice(&pattern(5, 50_000));
                target.send(slot, buffer, success(&command));
                assert_eq!(target.command(slot), None, "it is completed");
            }
            target.flush(&mut second);
        };
        let HostEvent::Completed { buffer: Some(buffer), received: 50_000, .. } = received else {
            panic!("{received:?}");
        };
        assert!(buffer[..] == pattern(5, 50_000));
        drop(buffer);
        target.close(&mut second, CloseReason::Requested("test is over"));
        while !matches!(target.poll_event(), Some(Event::Closed { .. })) {
            second.poll(WaitLimit::NoWait, &mut completions);
            for completion in completions.drain(..) {
                target.handle(&mut second, completion);
            }
        }
        assert!(matches!(ends.host_event(), HostEvent::Closed { .. }));
        for pool in [ends.reactor.pool(), second.pool()] {
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

#[test]
fn a_connection_moves_only_with_connect() {
    for reactor in drivers() {
        let mut ends = Ends::new(reactor, Limits::default(), HostOptions::default());
        let target = ends.target.take().expect("a connection");
        let target = target.detach(&mut ends.reactor).expect_err("before the handshake");
        ends.target = Some(target);
        ends.accept_connect(32, true);
        let target = ends.target.take().expect("a connection");
        let target = target.detach(&mut ends.reactor).expect_err("the queue is ready");
        ends.target = Some(target);
        ends.close();
    }
}

/// Connect is refused, and the host tries again on the same connection.
#[test]
fn connect_may_be_tried_again() {
    for reactor in drivers() {
        let mut ends = Ends::new(reactor, Limits::default(), HostOptions::default());
        let (slot, command) = ends.mark_connect();
        let refused = success(&command).with_status(Status::CONNECT_CONTROLLER_BUSY);
        ends.target().complete(slot, refused);
        let HostEvent::Completed { completion, .. } = ends.host_event() else { panic!() };
        assert_eq!(completion.status(), Status::CONNECT_CONTROLLER_BUSY);
        ends.submit(Command::fabrics(FabricsType::CONNECT), HostData::None);
        let (slot, command) = ends.command();
        ends.target().set_queue(1, 4, true);
        ends.target().complete(slot, success(&command));
        assert!(matches!(ends.host_event(), HostEvent::Completed { .. }));
        ends.close();
    }
}

/// A slow Connect (an old association must end first) does not count for the handshake time-out.
#[test]
fn the_owner_may_take_its_time_with_connect() {
    for reactor in drivers() {
        let handshake_timeout = Duration::from_millis(30);
        let limits = Limits { handshake_timeout, ..Limits::default() };
        let mut ends = Ends::new(reactor, limits, HostOptions::default());
        let (slot, command) = ends.mark_connect();
        let until = ends.reactor.now() + Duration::from_millis(100);
        while ends.reactor.now() < until {
            ends.turn();
        }
        assert!(ends.target_events.is_empty());
        ends.target().set_queue(1, 4, true);
        ends.target().complete(slot, success(&command));
        assert!(matches!(ends.host_event(), HostEvent::Completed { .. }));
        ends.close();
    }
}

/// A write that is completed before its data has arrived: the data is dropped, and the completion
/// is sent after it.
#[test]
fn a_completion_waits_for_data_that_was_asked_for() {
    for reactor in drivers() {
        let mut ends = Ends::new(reactor, Limits::default(), HostOptions::default());
        ends.accept_connect(32, true);
        let payload = ends.buffer(&pattern(1, 300_000));
        ends.submit(Command::new(WRITE), HostData::ToController(payload));
        let (slot, command) = ends.command();
        let buffer = ends.reactor.pool().take(300_000).expect("a buffer");
        ends.target().receive(slot, buffer);
        let aborted = success(&command).with_status(Status::ABORT_REQUESTED);
        ends.target().complete(slot, aborted);
        let HostEvent::Completed { completion, .. } = ends.host_event() else { panic!() };
        assert_eq!(completion.status(), Status::ABORT_REQUESTED);
        assert_eq!((ends.target().in_flight(), ends.host.in_flight()), (0, 0));
        ends.close();
    }
}

/// Completing a command of a closed connection has no effect.
#[test]
fn completions_after_the_end_have_no_effect() {
    for reactor in drivers() {
        let mut ends = Ends::new(reactor, Limits::default(), HostOptions::default());
        ends.accept_connect(32, false);
        for _ in 0..3 {
            let buffer = ends.reactor.pool().take(4096).expect("a buffer");
            ends.submit(Command::new(READ), HostData::FromController(buffer));
        }
        let commands: Vec<(Slot, Command)> = (0..3).map(|_| ends.command()).collect();
        ends.host.close(&mut ends.reactor, CloseReason::Requested("gone"));
        let Event::Closed { reason: CloseReason::Io { kind, .. } } = ends.target_event() else {
            panic!()
        };
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "commands were in flight");
        let buffer = ends.buffer(&[0; 4096]);
        ends.target().send(commands[0].0, buffer, success(&commands[0].1));
        ends.target().complete(commands[1].0, success(&commands[1].1));
        let buffer = ends.buffer(&[0; 4096]);
        ends.target().receive(commands[2].0, buffer);
        ends.turn();
        assert!(ends.target_events.is_empty(), "no event follows the end");
        let HostEvent::Closed { in_flight, .. } = ends.host_event() else { panic!() };
        assert_eq!(in_flight.len(), 3);
        assert!(in_flight.iter().all(|(_, buffer)| buffer.is_some()));
        drop(in_flight);
        let pool = ends.reactor.pool();
        assert_eq!(pool.available(), pool.capacity(), "every buffer was returned");
    }
}

/// If a command completes before its data is sent, the buffer is not returned with it but goes back
/// to the pool after the send.
#[test]
fn a_buffer_that_is_being_sent_is_not_handed_out() {
    for reactor in drivers() {
        let options = HostOptions { in_capsule_bytes: 1 << 20, ..HostOptions::default() };
        let mut limits = Limits::default();
        limits.tcp.in_capsule_bytes = 1 << 20;
        let mut ends = Ends::new(reactor, limits, options);
        ends.accept_connect(32, true);
        // One message, longer than the socket can take.
        for key in 0..16 {
            let payload = ends.buffer(&pattern(key, 1 << 20));
            ends.submit(Command::new(WRITE), HostData::ToController(payload));
        }
        let mut handed_out = Vec::new();
        for _ in 0..16 {
            let (slot, command) = ends.command();
            ends.target().complete(slot, success(&command));
            let HostEvent::Completed { buffer, .. } = ends.host_event() else { panic!() };
            assert!(buffer.as_ref().is_none_or(|buffer| !buffer.is_shared()));
            handed_out.push(buffer.is_some());
        }
        assert_eq!((handed_out[0], handed_out[15]), (false, true));
        ends.close();
    }
}
