//! What an agent is asked for: the methods, their parameters and their answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_rpc::Method;
use weft_rpc::machine::Machine;

use super::probe::{Probe, ProbeResult, Way};
use crate::results::{Connection, Environment};
use crate::study::capabilities::MissingSoftware;
use crate::study::inside::Settings;
use crate::study::knob::{Applied, KnobValue};
use crate::study::site::SpdkTools;
use crate::study::site::end::End;
use crate::study::software::{HostSettings, Software};

/// A build of this program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// What tells it from other builds of that version.
    pub id: String,
}

/// What an agent says of itself and its machine. One of another build may say less, and is refused
/// for its build.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Description {
    pub(super) build: Build,
    pub(super) boot_id: String,
    pub(super) cpus: Vec<usize>,
    pub(super) rdma: bool,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ends: Vec<End>,
    /// Whether it may change the machine.
    pub(super) root: bool,
    /// The addresses of both ends of the connection that carries control, if there is one.
    pub(super) control: Vec<IpAddr>,
    /// What agents before it had left changed, and it has put back.
    pub(super) restored: Vec<String>,
    pub(super) lacks: MissingSoftware,
    pub(super) environment: Environment,
}

/// A reading of a machine's counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::study) struct Counters {
    pub(super) time: Duration,
    pub(super) machine: Machine,
}

/// A listener for others to reach, and the word that it answers with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    pub(super) word: String,
}

/// A target to be started: the fields of a [`TargetSpec`](crate::study::launch::TargetSpec).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TargetRequest {
    pub(super) devices: Vec<String>,
    pub(super) subsystems: u32,
    pub(super) transport: String,
    pub(super) cpus: Vec<usize>,
    pub(super) idle_poll: Option<Duration>,
    #[serde(default)]
    pub(super) express: Option<bool>,
    pub(super) driver: String,
    #[serde(default)]
    pub(super) software: Software,
    pub(super) listen: Option<IpAddr>,
}

/// Knobs to be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) wishes: Vec<KnobValue>,
    /// The address of the interface that they are about.
    pub(super) at: Option<IpAddr>,
    /// Addresses over which agents are controlled: their interfaces are not changed.
    pub(super) control: Vec<IpAddr>,
}

/// A target that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AgentTarget {
    pub(super) number: u64,
    /// Of its subsystems.
    pub(super) addresses: Vec<String>,
    pub(super) has_control: bool,
}

/// A call of a target's method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) method: String,
    pub(super) params: Value,
}

/// The device of a load: a namespace, and the hosts that are connected to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DeviceRequest {
    pub(super) addresses: Vec<String>,
    pub(super) nsid: u32,
    pub(super) hosts: u32,
    pub(super) subsystems: u32,
    /// Whether its hosts have names of their own, so that no two machines have the same.
    pub(super) renamed: bool,
    /// The address of the load's machine to connect from, if the link has a name.
    pub(super) from: Option<IpAddr>,
    #[serde(default)]
    pub(super) host: HostSettings,
    pub(super) job: Settings,
}

/// A device of a load that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenDevice {
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) connection: Option<Connection>,
}

/// What an agent's machine counted during the measured time of its last load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct MachineCounts {
    /// When the load began, by the agent's clock, ramp included.
    pub(super) start: Duration,
    /// Between the two readings.
    pub(super) lasted: Duration,
    pub(super) machine: Machine,
}

/// Defines a method: its type, name, parameters and answer.
macro_rules! method {
    ($(#[$doc:meta])* $method:ident, $name:literal, $params:ty, $answer:ty) => {
        $(#[$doc])*
        pub(super) struct $method;

        impl Method for $method {
            const NAME: &'static str = $name;
            type Params = $params;
            type Answer = $answer;
        }
    };
}

method!(
    /// Describes agent and machine.
    Describe, "agent_describe", (), Description
);
method!(
    /// Says where SPDK's programs are: what its machine lacks then.
    UseSpdk, "agent_use_spdk", SpdkTools, MissingSoftware
);
method!(
    /// The machine's clock.
    Clock, "agent_clock", (), Duration
);
method!(
    /// The machine's counters.
    Count, "agent_counters", (), Counters
);
method!(
    /// Listens at an address for a short time.
    Listen, "agent_listen", (IpAddr,), Listening
);
method!(
    /// Tries to reach a listener: why that fails, if it does.
    Reach, "agent_reach", Listening, Option<String>
);
method!(
    /// Offloads and interrupt moderation of an interface.
    Offloads, "agent_offloads", (String,), BTreeMap<String, String>
);
method!(
    /// Answers one probe of the raw link.
    ProbeListen, "agent_probe_listen", (Probe, IpAddr), SocketAddr
);
method!(
    /// Probes the raw link.
    ProbeRun, "agent_probe", Way, ProbeResult
);
method!(
    /// Gives knobs the values of a cell, and puts back the others.
    SetKnobs, "agent_set_knobs", Order, Vec<Applied>
);
method!(
    /// Starts a target.
    StartTarget, "target_start", TargetRequest, AgentTarget
);
method!(
    /// Why a target has ended, if it has.
    EndedTarget, "target_ended", (u64,), Option<String>
);
method!(
    /// Stops a target.
    StopTarget, "target_stop", (u64,), ()
);
method!(
    /// Calls a target's method.
    CallTarget, "target_call", Call, Value
);
method!(
    /// Opens the device of a load.
    OpenLoad, "load_open", DeviceRequest, OpenDevice
);
method!(
    /// Prepares a load on it, which then waits for its start.
    PrepareLoad, "load_prepare", Settings, ()
);
method!(
    /// Begins it at a time of the agent's clock.
    Go, "load_go", (Duration,), ()
);
method!(
    /// What the machine counted meanwhile.
    CountedLoad, "load_counted", (), MachineCounts
);
method!(
    /// Closes the device.
    CloseLoad, "load_close", (), ()
);
