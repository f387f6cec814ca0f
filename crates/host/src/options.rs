//! The options of a host, with nvme-cli's names and defaults where it has them.

use std::net::IpAddr;
use std::time::Duration;

use weft_nvme::Nqn;
use weft_nvmf::auth::Secret;
use weft_nvmf::host::{ReconnectPolicy, Transport, TransportId};
use weft_nvmf::keys::{Derivation, TlsKey, TlsRecords};

use weft_reactor::Marking;
use weft_transport::rdma::{Provider, RemoteAccess};

use crate::error::Error;
use crate::identity;
use crate::multipath::IoPolicy;

/// Default of [`Options::queue_size`], as in Linux (`NVMF_DEF_QUEUE_SIZE`).
pub const QUEUE_SIZE_DEFAULT: u16 = 128;
/// Longest queue that can be asked for (`NVMF_MAX_QUEUE_SIZE` of Linux).
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Shortest queue: one command in flight.
pub const QUEUE_SIZE_MIN: u16 = 2;

/// Shortest [`Options::dhchap_interval`]: an exchange takes up to 20 ms of a queue's thread.
pub(crate) const DHCHAP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How to connect to a controller. Every field but the address has a default, see
/// [`Options::new`].
#[derive(Debug, Clone)]
pub struct Options {
    /// `--traddr`, `--trsvcid` and `--nqn`: where the subsystem is.
    pub address: TransportId,
    /// `--hostnqn`: this host's NQN. Default: [`Options::default_host_nqn`].
    pub hostnqn: Nqn,
    /// `--hostid`: this host's identifier. Default: the UUID in the default host NQN.
    pub hostid: [u8; 16],
    /// `--host-traddr`: the local address to connect from. Default: the kernel chooses.
    pub host_traddr: Option<IpAddr>,
    /// `--nr-io-queues`: I/O queues, that is devices that can be open at a time (each reactor
    /// that reads and writes a namespace opens one). Default: one per CPU, at least 4.
    pub nr_io_queues: u16,
    /// `--queue-size`: entries of each I/O queue, one more than commands in flight. Default 128.
    pub queue_size: u16,
    /// `--keep-alive-tmo`: time without traffic after which either side takes the other as lost;
    /// zero for never. Default 5 s.
    pub keep_alive_tmo: Duration,
    /// `--reconnect-delay`: time between attempts to reconnect to a lost controller. Default 10 s;
    /// the first attempt does not wait for it.
    pub reconnect_delay: Duration,
    /// `--ctrl-loss-tmo`: time after which a lost controller is given up; `None` for never.
    /// Default 600 s. Zero: the first loss is final.
    pub ctrl_loss_tmo: Option<Duration>,
    /// Attempts after which a lost controller is given up. Default `None`: only the time counts.
    pub reconnect_attempts: Option<u32>,
    /// `--fast-io-fail-tmo`: time after a loss at which I/O that waits begins to fail. Default
    /// `None`: it waits until the controller is given up. Zero: it never waits.
    pub fast_io_fail_tmo: Option<Duration>,
    /// `--tos`: the type of service of what is sent over TCP. Default `None`: the system's.
    pub tos: Option<u8>,
    /// The priority of the sockets (`SO_PRIORITY`). Default `None`: what follows from `tos`.
    pub so_priority: Option<u32>,
    /// `--hdr-digest`: ask for header digests.
    pub hdr_digest: bool,
    /// `--data-digest`: ask for data digests.
    pub data_digest: bool,
    /// `--disable-sqflow`: ask for queues without SQ flow control, which saves the controller
    /// a response to each read. Default true, unlike nvme-cli's; a controller that does not
    /// support it may be asked without.
    pub disable_sqflow: bool,
    /// The host's secret, by which it authenticates itself (nvme-cli's `--dhchap-secret`). Default
    /// `None`: it cannot.
    pub dhchap_secret: Option<Secret>,
    /// The controller's secret (`--dhchap-ctrl-secret`): a controller that does not prove that it
    /// has it is not accepted. Default `None`: any controller is.
    pub dhchap_ctrl_secret: Option<Secret>,
    /// `--dhchap-interval`: how often the queues of a controller are authenticated again while they
    /// are used. Default `None`: only when that is asked for
    /// ([`crate::Controller::authenticate_again`]).
    pub dhchap_interval: Option<Duration>,
    /// The key of TLS; the controller has to have it, too. Default `None`: without TLS.
    pub tls_key: Option<TlsKey>,
    /// How PSKs are derived from it. Default: as the specification has it.
    pub tls_derivation: Derivation,
    /// Who makes and reads the records of TLS. Default: this program.
    pub tls_records: TlsRecords,
    /// `--concat`: the authentication makes the keys of TLS (secure concatenation). Only Connect
    /// and the authentication are in the clear, on a connection of their own. Default false.
    pub concat: bool,
    /// Time for one connection to be made. Default 10 s.
    pub connect_timeout: Duration,
    /// Time for an I/O command, after which the controller counts as lost. Default 30 s, as in
    /// Linux (`nvme_core.io_timeout`).
    pub io_timeout: Duration,
    /// Time for an admin command. Default 60 s, as in Linux (`nvme_core.admin_timeout`).
    pub admin_timeout: Duration,
    /// `--rdma-access`: what the controller can reach over RDMA. Default `None`: the narrowest that
    /// the device has.
    pub rdma_access: Option<RemoteAccess>,
    /// Whether the controller is one of several paths to its namespaces; [`crate::Multipath`] sets
    /// it. Access states (ANA) are followed, and it is tried again if the first attempt fails.
    pub multipath: bool,
    /// `--discovery`: the address is that of discovery controllers. The ports of the subsystem that
    /// they, or those that they refer to, list are the paths, and those of a
    /// [`crate::Multipath`] follow the log pages.
    pub discovery: bool,
    /// `--iopolicy`: which of several paths a request takes. Default: the best.
    pub iopolicy: IoPolicy,
    /// Where RDMA devices come from, on reactors that have no provider yet. Default: this machine.
    pub rdma: Provider,
    /// The reactor of the thread that serves blocking users and the admin queue.
    pub reactor: weft_reactor::Config,
}

impl Options {
    /// The defaults, for this address.
    #[must_use]
    pub fn new(address: TransportId) -> Self {
        let identity = identity::default_identity();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let reconnect = ReconnectPolicy::default();
        Self {
            address,
            hostnqn: identity.nqn,
            hostid: identity.id,
            host_traddr: None,
            nr_io_queues: u16::try_from(cpus).unwrap_or(u16::MAX).max(4),
            queue_size: QUEUE_SIZE_DEFAULT,
            keep_alive_tmo: Duration::from_secs(5),
            reconnect_delay: reconnect.reconnect_delay,
            ctrl_loss_tmo: reconnect.ctrl_loss_tmo,
            reconnect_attempts: reconnect.attempts_max,
            fast_io_fail_tmo: reconnect.fast_io_fail_tmo,
            tos: None,
            so_priority: None,
            hdr_digest: false,
            data_digest: false,
            disable_sqflow: true,
            dhchap_secret: None,
            dhchap_ctrl_secret: None,
            dhchap_interval: None,
            tls_key: None,
            tls_derivation: Derivation::Standard,
            tls_records: TlsRecords::User,
            concat: false,
            connect_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(30),
            admin_timeout: weft_nvmf::host::limits::ADMIN_TIMEOUT,
            rdma_access: None,
            multipath: false,
            discovery: false,
            iopolicy: IoPolicy::default(),
            rdma: Provider::System,
            reactor: weft_reactor::Config::default(),
        }
    }

    /// The host NQN that is used unless another is given: the first line of `/etc/nvme/hostnqn`
    /// where that can be read, else one made from a random UUID, the same for all controllers of
    /// this process.
    #[must_use]
    pub fn default_host_nqn() -> Nqn {
        identity::default_identity().nqn
    }

    /// Makes it another host than any other, with a NQN and a host identifier of its own.
    #[must_use]
    pub fn of_another_host(self) -> Self {
        let identity = identity::random_identity();
        Self { hostnqn: identity.nqn, hostid: identity.id, ..self }
    }

    /// Sets the host NQN, and with it the host identifier, as the two belong together: the UUID in
    /// the name (the rule of nvme-cli), that of this machine if it is its name, or else one that is
    /// made of the name.
    #[must_use]
    pub fn with_host_nqn(self, hostnqn: Nqn) -> Self {
        let identity = identity::of_name(hostnqn);
        Self { hostnqn: identity.nqn, hostid: identity.id, ..self }
    }

    /// The parameters of reconnection.
    #[must_use]
    pub const fn reconnect_policy(&self) -> ReconnectPolicy {
        ReconnectPolicy {
            reconnect_delay: self.reconnect_delay,
            ctrl_loss_tmo: self.ctrl_loss_tmo,
            attempts_max: self.reconnect_attempts,
            fast_io_fail_tmo: self.fast_io_fail_tmo,
        }
    }

    /// Whether [`crate::Multipath`] has more than one path, or may have.
    #[must_use]
    pub fn has_several_paths(&self) -> bool {
        self.multipath || self.discovery || self.address.is_multipath()
    }

    /// How what is sent is marked.
    #[must_use]
    pub const fn marking(&self) -> Marking {
        Marking { tos: self.tos, priority: self.so_priority }
    }

    /// Checks the options that need no controller.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        if self.address.transport != Transport::Tcp && (self.hdr_digest || self.data_digest) {
            return wrong(format!("digests are TCP's; {} has its own", self.address.transport));
        }
        let marking = self.marking();
        if self.address.transport != Transport::Tcp && marking != Marking::default() {
            return wrong(format!(
                "type of service and priority are of TCP's sockets, and this is {}",
                self.address.transport
            ));
        }
        marking.check().map_err(|error| Error::Invalid(error.to_string()))?;
        if !(QUEUE_SIZE_MIN..=QUEUE_SIZE_MAX).contains(&self.queue_size) {
            return wrong(format!(
                "a queue size of {} is not from {QUEUE_SIZE_MIN} to {QUEUE_SIZE_MAX}",
                self.queue_size
            ));
        }
        if self.nr_io_queues == 0 {
            return wrong("at least one I/O queue is needed".into());
        }
        if u32::try_from(self.keep_alive_tmo.as_millis()).is_err() {
            return wrong("the keep-alive timeout is longer than 49 days".into());
        }
        if self.discovery && self.address.is_discovery() {
            return wrong("paths are found by discovery for a subsystem, and none is named".into());
        }
        let several = self.has_several_paths();
        if several && self.keep_alive_tmo.is_zero() {
            return wrong(
                "several paths need a keep-alive timeout: after it a controller that was lost \
                 executes nothing any more"
                    .into(),
            );
        }
        if self.dhchap_ctrl_secret.is_some() && self.dhchap_secret.is_none() {
            return wrong(
                "the controller can authenticate itself only to a host that has a secret of its \
                 own"
                .into(),
            );
        }
        if let Some(every) = self.dhchap_interval {
            if self.dhchap_secret.is_none() {
                return wrong("a host without a secret cannot authenticate itself again".into());
            }
            if every < DHCHAP_INTERVAL_MIN {
                return wrong(format!(
                    "an authentication every {every:?} is more often than every \
                     {DHCHAP_INTERVAL_MIN:?}"
                ));
            }
        }
        self.check_tls()?;
        if self.hostid == [0; 16] {
            return wrong("the host identifier is all zeros, which controllers refuse".into());
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Invalid(what));
        if self.concat && (self.dhchap_secret.is_none() || self.tls_key.is_some()) {
            return wrong(
                "an authentication that makes the keys of TLS needs a secret of this host, and no \
                 key of TLS besides"
                    .into(),
            );
        }
        let has_tls = self.concat || self.tls_key.is_some();
        if has_tls && self.address.transport != Transport::Tcp {
            return wrong(format!(
                "TLS is possible over TCP only, not over {}",
                self.address.transport
            ));
        }
        match (self.tls_records, has_tls) {
            (TlsRecords::User, _) => Ok(()),
            (TlsRecords::Kernel, false) => {
                wrong("records of a connection without TLS cannot be the kernel's".into())
            }
            (TlsRecords::Kernel, true) => weft_reactor::check_kernel_records()
                .map_err(|error| Error::Invalid(error.to_string())),
        }
    }
}
