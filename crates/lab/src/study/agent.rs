//! Agents: a study with its target and its loads on several machines.
//!
//! An agent is this program on another machine, or in another namespace or container there. It
//! speaks JSON-RPC over its standard input and output, so that whatever carries those two carries a
//! study. It starts targets and drives loads as [`super::runner`] does here, and ends everything
//! that it started when its input ends.
//!
//! - `serve` is the agent's side, `line` the connection to one agent.
//! - [`Fleet`] has the agents of a study: it is the [`Launcher`](super::launch::Launcher) of its
//!   targets and opens its loads; `together` runs a load on all its machines at the same time.
//!
//! Clocks: every load begins at one time of this machine's clock, which each agent is told in
//! terms of its own. The offset between the two is that of the fastest of several round trips, and
//! is wrong by half of that round trip at most.

mod control;
mod fleet;
mod floors;
mod knobs;
mod line;
mod links;
mod probe;
mod reach;
mod serve;
mod survey;
mod together;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_rpc::Method;
use weft_rpc::machine::Machine;

pub(super) use fleet::idle;
pub use fleet::{Carrier, Connector, Fleet, Places, Streams};
use probe::{Probe, ProbeResult, Way};
pub use serve::{Build, methods};
pub use survey::{Findings, FoundEnd, FoundMachine, FoundWay, Survey};
pub(super) use together::{Elsewhere, Part, jumped, machines, overlap, parts_of, run_beside};

use super::inside::Settings;
use super::knob::{Applied, KnobValue};
use super::site::SpdkTools;
use super::site::end::End;
use super::software::{HostSettings, MissingSoftware, Software};
use crate::results::{Connection, Environment};

/// What an agent says of itself and its machine. One of another build may say less, and is refused
/// for its build.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Description {
    build: Build,
    boot_id: String,
    cpus: Vec<usize>,
    rdma: bool,
    addresses: Vec<IpAddr>,
    ends: Vec<End>,
    /// Whether it may change the machine.
    root: bool,
    /// The addresses of both ends of the connection that carries control, if there is one.
    control: Vec<IpAddr>,
    /// What agents before it had left changed, and it has put back.
    restored: Vec<String>,
    lacks: MissingSoftware,
    environment: Environment,
}

/// A reading of a machine's counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counters {
    time: Duration,
    machine: Machine,
}

/// A listener for others to reach, and the word that it answers with.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Listening {
    address: SocketAddr,
    word: String,
}

/// A target to be started: the fields of a [`TargetSpec`](super::launch::TargetSpec).
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wanted {
    devices: Vec<String>,
    subsystems: u32,
    transport: String,
    cpus: Vec<usize>,
    idle_poll: Option<Duration>,
    #[serde(default)]
    express: Option<bool>,
    driver: String,
    #[serde(default)]
    software: Software,
    listen: Option<IpAddr>,
}

/// Knobs to be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    wishes: Vec<KnobValue>,
    /// The address of the interface that they are about.
    at: Option<IpAddr>,
    /// Addresses over which agents are controlled: their interfaces are not changed.
    control: Vec<IpAddr>,
}

/// A target that was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Started {
    number: u64,
    /// Of its subsystems.
    addresses: Vec<String>,
    has_control: bool,
}

/// A call of a target's method.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Call {
    number: u64,
    method: String,
    params: Value,
}

/// The device of a load: a namespace, and the hosts that are connected to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wish {
    addresses: Vec<String>,
    nsid: u32,
    hosts: u32,
    subsystems: u32,
    /// Whether its hosts have names of their own, so that no two machines have the same.
    renamed: bool,
    /// The address of the load's machine to connect from, if the link has a name.
    from: Option<IpAddr>,
    #[serde(default)]
    host: HostSettings,
    job: Settings,
}

/// A device of a load that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Opened {
    name: String,
    identity: String,
    connection: Option<Connection>,
}

/// What an agent's machine counted during the measured time of its last load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counted {
    /// When the load began, by the agent's clock, ramp included.
    start: Duration,
    /// Between the two readings.
    lasted: Duration,
    machine: Machine,
}

/// Defines a method: its type, name, parameters and answer.
macro_rules! method {
    ($(#[$doc:meta])* $method:ident, $name:literal, $params:ty, $answer:ty) => {
        $(#[$doc])*
        struct $method;

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
    StartTarget, "target_start", Wanted, Started
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
    OpenLoad, "load_open", Wish, Opened
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
    CountedLoad, "load_counted", (), Counted
);
method!(
    /// Closes the device.
    CloseLoad, "load_close", (), ()
);

#[cfg(test)]
mod tests;
