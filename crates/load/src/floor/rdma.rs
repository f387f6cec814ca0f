//! The raw link over RDMA: SENDs there and back, or READs, over one queue pair.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weft_reactor::{monotonic_time, pin_current_thread};
pub use weft_transport::rdma::Provider;
use weft_transport::rdma::probe::ProbeClient;
pub use weft_transport::rdma::probe::{Probe, ProbeOperation, ProbeServer};

use super::{FloorResult, SILENCE_MAX, both, joined};
use crate::histogram::Latency;
use crate::units::ns;
use crate::usage::Usage;

/// Bytes of a command's capsule.
pub const CAPSULE_BYTES: u32 = 64;

/// Bytes of a response's capsule.
pub const RESPONSE_BYTES: u32 = 16;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct RdmaFloor {
    /// What is done over and over again.
    pub probe: Probe,
    /// How long to count.
    pub runtime: Duration,
    /// How long to run before that.
    pub ramp: Duration,
    /// The processors of server and client.
    pub cpus: Option<(usize, usize)>,
    /// Where RDMA devices come from.
    pub provider: Provider,
}

impl RdmaFloor {
    /// Measures, between two ends at an address of this machine.
    ///
    /// # Errors
    /// Sizes that make no sense, or a device that cannot be had.
    pub fn measure(&self, address: IpAddr) -> io::Result<FloorResult> {
        self.probe.check()?;
        let (ready, listening) = mpsc::channel();
        thread::scope(|scope| {
            let server = scope.spawn(move || {
                let server = ProbeServer::listen(&self.provider, SocketAddr::new(address, 0))?;
                // A client that waits no longer fails by itself.
                let _ = ready.send(server.local_address()?);
                self.serve(server)
            });
            let client = match listening.recv() {
                Ok(remote) => joined(scope.spawn(move || self.drive(None, remote)).join()),
                Err(_) => Err(io::Error::other("the other end does not listen")),
            };
            both(client, joined(server.join()))
        })
    }

    /// Answers one client until it is gone.
    ///
    /// # Errors
    /// None comes, or the connection fails.
    pub fn serve(&self, server: ProbeServer) -> io::Result<Usage> {
        self.cpus.map_or(Ok(()), |(cpu, _)| pin_current_thread(cpu))?;
        let before = Usage::of_this_thread();
        server.serve(SILENCE_MAX)?;
        Ok(Usage::of_this_thread().since(&before))
    }

    /// Sends requests to an end that [serves](Self::serve), from an address of this machine, and
    /// measures.
    ///
    /// # Errors
    /// The connection cannot be made, or fails; or the adapters serve fewer READs at a time than
    /// are to be in flight.
    pub fn drive(&self, from: Option<IpAddr>, remote: SocketAddr) -> io::Result<FloorResult> {
        self.cpus.map_or(Ok(()), |(_, cpu)| pin_current_thread(cpu))?;
        let from = from.map(|address| SocketAddr::new(address, 0));
        let client = ProbeClient::connect(&self.provider, self.probe, from, remote)?;
        let (ends, depth) = (client.ends(), client.depth());
        if depth < self.probe.depth {
            let why =
                format!("the adapters serve {depth} READs at a time: the depth is at most that");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let before = Usage::of_this_thread();
        let count_from = monotonic_time() + self.ramp;
        let end = count_from + self.runtime;
        let mut latency = Latency::new();
        let (mut messages, mut last) = (0, count_from);
        client.drive(|posted, found| {
            last = found;
            if found >= count_from {
                latency.record_times(ns(found.saturating_sub(posted)), 1);
                messages += 1;
            }
            found < end
        })?;
        let measured = last.saturating_sub(count_from);
        let (client, server) = (Usage::of_this_thread().since(&before), Usage::default());
        Ok(FloorResult { messages, measured, latency, client, server, ends })
    }
}

/// What a read of so many bytes moves, as SENDs: a capsule there, data and response back. (A target
/// writes the data and then sends the response, which takes a message more.)
#[must_use]
pub fn read_of(bytes: u32, depth: u16, spin: bool) -> Probe {
    Probe {
        operation: ProbeOperation::Send,
        request_bytes: CAPSULE_BYTES,
        response_bytes: bytes + RESPONSE_BYTES,
        depth,
        spin,
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::rdma::software::{Conditions, Fabric};

    use super::*;

    fn floor(probe: Probe) -> RdmaFloor {
        RdmaFloor {
            probe,
            runtime: Duration::from_millis(60),
            ramp: Duration::from_millis(10),
            cpus: None,
            provider: Provider::Software(Fabric::default()),
        }
    }

    fn reads(depth: u16, spin: bool) -> Probe {
        let probe = read_of(4096, depth, spin);
        Probe { operation: ProbeOperation::Read, request_bytes: 0, ..probe }
    }

    #[test]
    fn answers_are_counted_after_the_ramp() {
        for spin in [false, true] {
            for probe in [read_of(4096, 8, spin), reads(8, spin)] {
                let result = floor(probe).measure([10, 0, 0, 1].into()).expect("a result");
                assert!(result.messages > 0 && result.measured >= Duration::from_millis(60));
                assert_eq!(result.latency.count(), result.messages);
                assert_eq!(result.ends.1.ip(), IpAddr::from([10, 0, 0, 1]));
            }
        }
    }

    #[test]
    fn a_depth_that_the_adapters_do_not_serve_is_refused() {
        let mut conditions = Conditions::default();
        conditions.attributes.responder_resources_max = 2;
        let provider = Provider::Software(Fabric::new(conditions));
        let floor = |depth| RdmaFloor { provider: provider.clone(), ..floor(reads(depth, false)) };
        assert!(floor(2).measure([10, 0, 0, 1].into()).is_ok());
        let error = floor(3).measure([10, 0, 0, 1].into()).expect_err("beyond what is served");
        assert!(error.to_string().contains("serve 2 READs at a time"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [read_of(4096, 0, false), read_of(4 << 20, 1, false)] {
            let error = floor(bad).measure([10, 0, 0, 1].into()).expect_err("beyond a bound");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
