//! The options that select a controller: nvme-cli's, or an address as one argument.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use weft_backend::DeviceSpec;
use weft_host::{
    AddressFamily, Controller, IoPolicy, Namespace, NamespaceInfo, Options, Transport, TransportId,
};
use weft_nvmf::auth::Secret;
use weft_nvmf::keys::{Derivation, TlsKey, TlsRecords};
use weft_target::key_file;
use weft_transport::rdma::RemoteAccess;

use crate::failure::Failure;
use crate::place::Location;
use crate::values;

/// Who this host is, and the keys that it has.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct HostProof {
    /// NQN of this host; by default that in /etc/nvme/hostnqn, or a generated one.
    #[arg(short = 'q', long)]
    hostnqn: Option<String>,
    /// Identifier of this host, a UUID; by default it goes with the NQN.
    #[arg(short = 'I', long, value_parser = uuid)]
    hostid: Option<uuid::Uuid>,
    /// File with the secret that this host authenticates itself with (`nvme gen-dhchap-key` makes
    /// one); only its owner may have access to it.
    #[arg(long, value_name = "FILE")]
    dhchap_secret_file: Option<PathBuf>,
    /// File with the controller's secret: the controller has to prove that it has it.
    #[arg(long, value_name = "FILE")]
    dhchap_ctrl_secret_file: Option<PathBuf>,
    /// Use TLS 1.3 with keys that the authentication makes (secure concatenation): only that is in
    /// the clear.
    #[arg(long, requires = "dhchap_secret_file", conflicts_with = "tls")]
    concat: bool,
    /// Use TLS 1.3, with the key in --tls-key-file.
    #[arg(long, requires = "tls_key_file")]
    tls: bool,
    /// File with the key of TLS (`weft key generate tls` makes one); only its owner may have access
    /// to it.
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_key_file: Option<PathBuf>,
    /// Derive the PSK from the TLS key as libnvme before 1.16 did.
    #[arg(long, requires = "tls")]
    tls_compat: bool,
    /// Who makes and reads the records of TLS: user (this program) or kernel.
    #[arg(long, value_name = "WHO", default_value = "user")]
    tls_records: TlsRecords,
}

/// Options of every subcommand that connects to a controller, with nvme-cli's names and letters.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Address: nvme-tcp://HOST:PORT/NQN?nsid=N, or SPDK's transport id ("trtype:TCP adrfam:IPv4
    /// traddr:… trsvcid:… subnqn:…"). With several endpoints, HOST:PORT,HOST:PORT,
    /// `weft bench`, `attach` and `list` use all of them as paths, and other commands the first
    /// that answers.
    #[arg(value_name = "ADDRESS", num_args = 0.., help_heading = "Arguments")]
    place: Vec<String>,

    /// ADDRESS names discovery controllers. Each port that they list for the subsystem is a path;
    /// ports that appear or vanish later are followed.
    #[arg(long)]
    discovery: bool,

    /// Transport: tcp or rdma.
    #[arg(short, long)]
    transport: Option<String>,
    /// Address or host name of the controller.
    #[arg(short = 'a', long)]
    traddr: Option<String>,
    /// Port of the controller; 4420 by default, 8009 for discovery.
    #[arg(short = 's', long)]
    trsvcid: Option<u16>,
    /// NQN of the subsystem.
    #[arg(short, long)]
    nqn: Option<String>,
    /// Local address to connect from.
    #[arg(short = 'w', long)]
    host_traddr: Option<IpAddr>,
    #[command(flatten)]
    host: HostProof,
    /// Number of I/O queues.
    #[arg(short = 'i', long)]
    nr_io_queues: Option<u16>,
    /// Type of service of what is sent over TCP.
    #[arg(long)]
    tos: Option<u8>,
    /// Priority of the sockets (SO_PRIORITY), by which queues of the interface are chosen; above 6
    /// it needs CAP_NET_ADMIN.
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    so_priority: Option<u32>,
    /// Entries of an I/O queue.
    #[arg(short = 'Q', long, value_parser = queue_size())]
    queue_size: Option<u16>,
    /// Keep-alive timeout in seconds; 0: no keep-alive.
    #[arg(short = 'k', long, value_parser = values::time, value_name = "SECONDS")]
    keep_alive_tmo: Option<Duration>,
    /// Time between attempts to reconnect, in seconds.
    #[arg(short = 'c', long, value_parser = values::time, value_name = "SECONDS")]
    reconnect_delay: Option<Duration>,
    /// Time after which a lost controller is given up, in seconds; -1: never.
    #[arg(
        short = 'l',
        long,
        value_name = "SECONDS",
        allow_hyphen_values = true,
        help_heading = "Connection"
    )]
    ctrl_loss_tmo: Option<i64>,
    /// Time after a loss at which pending I/O begins to fail, in seconds; -1: not before the
    /// controller is given up.
    #[arg(
        short = 'F',
        long,
        alias = "fast_io_fail_tmo",
        value_name = "SECONDS",
        allow_hyphen_values = true,
        help_heading = "Connection"
    )]
    fast_io_fail_tmo: Option<i64>,
    /// Use header digests.
    #[arg(short = 'g', long)]
    hdr_digest: bool,
    /// Data digests.
    #[arg(short = 'G', long)]
    data_digest: bool,
    /// Disable SQ flow control (the default, unlike nvme-cli's; =false enables it).
    #[arg(short = 'd', long, action = ArgAction::Set, num_args = 0..=1, value_name = "BOOL")]
    #[arg(require_equals = true, default_missing_value = "true")]
    disable_sqflow: Option<bool>,
    /// How often the controller's queues are authenticated again while they are used; by default
    /// only when they connect.
    #[arg(
        long,
        value_parser = values::time,
        value_name = "SECONDS",
        requires = "dhchap_secret_file"
    )]
    dhchap_interval: Option<Duration>,
    /// Which of several paths a request takes: numa (the best one), round-robin, queue-depth or
    /// latency.
    #[arg(long, value_name = "POLICY")]
    iopolicy: Option<IoPolicy>,
    /// What the controller can reach over RDMA: window (the buffer of a command in flight), lease
    /// (memory of this connection alone, at the price of a copy) or wide (all that is registered,
    /// for fabrics that are trusted); by default the first of these that the device has.
    #[arg(long, value_name = "HOW", value_parser = remote_access)]
    rdma_access: Option<RemoteAccess>,
}

fn queue_size() -> clap::builder::RangedI64ValueParser<u16> {
    let most = i64::from(weft_host::QUEUE_SIZE_MAX);
    clap::value_parser!(u16).range(i64::from(weft_host::QUEUE_SIZE_MIN)..=most)
}

/// Selects a namespace.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NamespaceChoice {
    /// The namespace; needed only if there are several and the address names none.
    #[arg(long, visible_alias = "nsid", value_name = "NSID")]
    namespace_id: Option<u32>,
}

impl HostProof {
    /// A connection to this address is of this host.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), Failure> {
        if let Some(hostnqn) = &self.hostnqn {
            let nqn = hostnqn.parse().map_err(|error| {
                Failure::Because(format!("{hostnqn:?} is not a valid host NQN: {error}"))
            })?;
            *options = options.clone().with_host_nqn(nqn);
        }
        if let Some(hostid) = self.hostid {
            options.hostid = hostid.into_bytes();
        }
        options.dhchap_secret = secret(self.dhchap_secret_file.as_deref())?;
        options.dhchap_ctrl_secret = secret(self.dhchap_ctrl_secret_file.as_deref())?;
        options.concat = self.concat;
        if self.tls || self.concat {
            // While there is one thread.
            weft_transport::tls::initialize();
        }
        if let Some(file) = self.tls_key_file.as_deref().filter(|_| self.tls) {
            options.tls_key = Some(tls_key(file)?);
        }
        if self.tls_compat {
            options.tls_derivation = Derivation::OldLibnvme;
        }
        options.tls_records = self.tls_records;
        Ok(())
    }

    /// The words of a command line that say the same.
    pub(crate) fn words(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let values = [
            ("--hostnqn", self.hostnqn.clone()),
            ("--hostid", self.hostid.map(|id| id.to_string())),
            ("--dhchap-secret-file", path(&self.dhchap_secret_file)),
            ("--dhchap-ctrl-secret-file", path(&self.dhchap_ctrl_secret_file)),
            ("--tls-key-file", path(&self.tls_key_file)),
            ("--tls-records", self.tls.then(|| self.tls_records.name().to_owned())),
        ];
        let flags =
            [("--concat", self.concat), ("--tls", self.tls), ("--tls-compat", self.tls_compat)];
        let values = values.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        values.flatten().chain(flags.map(|(flag, _)| flag.to_owned())).collect()
    }
}

impl Connection {
    /// The selected location, which may be a device of this machine.
    pub(crate) fn place(&self) -> Result<Location, Failure> {
        if self.place.is_empty() {
            return self.remote().map(Location::remote);
        }
        // A transport id may be given unquoted, as several arguments.
        let is_transport_id =
            self.place.iter().any(|word| word.to_ascii_lowercase().contains("trtype:"));
        if let [first, second, ..] = self.place.as_slice()
            && !is_transport_id
        {
            let place: Result<Location, String> = first.parse();
            let wrong = if place.is_err() { first } else { second };
            return Err(Failure::Because(format!(
                "{wrong:?} is not an address: one is wanted here; the value of a flag stands \
                 behind \"=\" (--direct=1)"
            )));
        }
        let text = self.place.join(" ");
        match text.parse().map_err(Failure::Because)? {
            Location::Remote(id) => self.amended(*id).map(Location::remote),
            local if self.traddr.is_none() && self.nqn.is_none() => Ok(local),
            Location::Local(spec) => {
                Err(Failure::Because(format!("{spec} is a local device; --traddr does not apply")))
            }
        }
    }

    /// The node of an NVMe device of this machine, if that is what is selected.
    pub(crate) fn local_node(&self) -> Option<PathBuf> {
        match self.place() {
            Ok(Location::Local(DeviceSpec::Block { path, .. })) if !self.place.is_empty() => {
                Some(path)
            }
            _ => None,
        }
    }

    /// The job files among the words, and the connection without them.
    pub(crate) fn without_job_files(&self) -> (Vec<&str>, Self) {
        let is_job_file = |word: &&String| word.ends_with(".fio");
        let files = self.place.iter().filter(is_job_file).map(String::as_str).collect();
        let mut rest = self.clone();
        rest.place.retain(|word| !is_job_file(&word));
        (files, rest)
    }

    /// Whether the number of I/O queues was given.
    pub(crate) const fn has_nr_io_queues(&self) -> bool {
        self.nr_io_queues.is_some()
    }

    /// One connection for each word of the address, or for the separate options.
    pub(crate) fn each(&self) -> Vec<Self> {
        if self.place.is_empty() && !self.is_empty() {
            return vec![self.clone()];
        }
        self.place.iter().map(|word| Self { place: vec![word.clone()], ..self.clone() }).collect()
    }

    /// Whether nothing says what is meant.
    pub(crate) fn is_empty(&self) -> bool {
        self.place.is_empty() && self.traddr.is_none() && self.nqn.is_none()
    }

    /// Removes the first word of the address if it is one of these.
    pub(crate) fn without_first_word<'a>(&self, words: &[&'a str]) -> (Option<&'a str>, Self) {
        let mut rest = self.clone();
        let found = self.place.first().and_then(|first| words.iter().find(|word| *word == first));
        if found.is_some() {
            rest.place.remove(0);
        }
        (found.copied(), rest)
    }

    /// Puts a word back in front of the address.
    pub(crate) fn with_first_word(&self, word: Option<&str>) -> Self {
        let mut all = self.clone();
        all.place.splice(0..0, word.map(str::to_owned));
        all
    }

    /// Options for the selected address, which must be remote.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        match self.place()? {
            Location::Remote(id) => self.options_for(*id),
            Location::Local(spec) => {
                Err(Failure::Because(format!("{spec} is a local device, not a remote address")))
            }
        }
    }

    /// Options for an address.
    pub(crate) fn options_for(&self, address: TransportId) -> Result<Options, Failure> {
        let mut options = Options::new(address);
        self.host.apply(&mut options)?;
        options.discovery = self.discovery;
        options.host_traddr = self.host_traddr;
        options.tos = self.tos;
        options.so_priority = self.so_priority;
        options.hdr_digest = self.hdr_digest;
        options.data_digest = self.data_digest;
        options.rdma_access = self.rdma_access;
        options.dhchap_interval = self.dhchap_interval;
        set(&mut options.nr_io_queues, self.nr_io_queues);
        set(&mut options.queue_size, self.queue_size);
        set(&mut options.iopolicy, self.iopolicy);
        set(&mut options.keep_alive_tmo, self.keep_alive_tmo);
        set(&mut options.reconnect_delay, self.reconnect_delay);
        set(&mut options.disable_sqflow, self.disable_sqflow);
        set(&mut options.ctrl_loss_tmo, self.ctrl_loss_tmo.map(forever));
        set(&mut options.fast_io_fail_tmo, self.fast_io_fail_tmo.map(forever));
        options.check()?;
        Ok(options)
    }

    /// Connects to the selected subsystem.
    pub(crate) fn connect(&self) -> Result<Controller, Failure> {
        let options = self.options()?;
        if options.address.is_discovery() {
            return Err(Failure::because(
                "no subsystem given: use --nqn; `weft discover` lists the subsystems",
            ));
        }
        Ok(weft_host::connect(&options)?)
    }

    /// Connects, and selects the namespace.
    pub(crate) fn namespace(
        &self,
        choice: &NamespaceChoice,
    ) -> Result<(Controller, Namespace), Failure> {
        let options = self.options()?;
        let wanted = one_nsid(choice.namespace_id, options.address.nsid)?;
        let controller = self.connect()?;
        let nsid = pick(&controller.namespaces(), wanted)?;
        let namespace = controller.namespace(nsid)?;
        Ok((controller, namespace))
    }

    fn remote(&self) -> Result<TransportId, Failure> {
        let Some(traddr) = &self.traddr else {
            return Err(Failure::because(
                "no address given: use --traddr, or an address like nvme-tcp://HOST:4420/NQN",
            ));
        };
        let id = TransportId::tcp(traddr, self.trsvcid).map_err(Failure::because)?;
        let family = AddressFamily::of(traddr);
        self.amended(TransportId { family, ..id })
    }

    /// The address with the values of separate options.
    fn amended(&self, mut id: TransportId) -> Result<TransportId, Failure> {
        let is_amended =
            self.transport.is_some() || self.traddr.is_some() || self.trsvcid.is_some();
        if id.is_multipath() && is_amended {
            return Err(Failure::because(
                "the address has several endpoints: write transports, hosts and ports into it",
            ));
        }
        if let Some(transport) = &self.transport {
            id.transport = Transport::from_name(transport).ok_or_else(|| {
                Failure::Because(format!(
                    "transport {transport:?} is not supported; use tcp or rdma"
                ))
            })?;
        }
        if let Some(traddr) = &self.traddr {
            id.traddr.clone_from(traddr);
            id.family = AddressFamily::of(traddr);
        }
        if self.trsvcid.is_some() {
            id.trsvcid = self.trsvcid;
        }
        if let Some(nqn) = &self.nqn {
            let subnqn = nqn.parse();
            id.subnqn = Some(subnqn.map_err(|error| {
                Failure::Because(format!("{nqn:?} is not a valid NQN: {error}"))
            })?);
        }
        Ok(id)
    }
}

impl NamespaceChoice {
    /// The namespace that the option gives.
    pub(crate) fn nsid(&self) -> Option<u32> {
        self.namespace_id
    }
}

/// The namespace that an option or an address names, or both.
///
/// # Errors
/// They name two.
pub(crate) fn one_nsid(option: Option<u32>, address: Option<u32>) -> Result<Option<u32>, Failure> {
    match (option, address) {
        (Some(one), Some(other)) if one != other => Err(Failure::Because(format!(
            "--namespace-id names namespace {one}, and nsid={other} of the address another one"
        ))),
        (one, other) => Ok(one.or(other)),
    }
}

/// The namespace to use: the given one, or the only one.
pub(crate) fn pick(found: &[Arc<NamespaceInfo>], wanted: Option<u32>) -> Result<u32, Failure> {
    let there: Vec<u32> = found.iter().map(|found| found.nsid).collect();
    match (wanted, there.as_slice()) {
        (Some(nsid), there) if there.contains(&nsid) => Ok(nsid),
        (None, [only]) => Ok(*only),
        (_, []) => Err(Failure::because("the subsystem has no namespace")),
        (wanted, there) => {
            let there: Vec<String> = there.iter().map(ToString::to_string).collect();
            let there = there.join(", ");
            Err(Failure::Because(match wanted {
                Some(nsid) => format!("namespace {nsid} does not exist; the subsystem has {there}"),
                None => format!("there are {there}: select one with --namespace-id"),
            }))
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// A timeout in seconds; -1 means never.
fn forever(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

fn secret(file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    file.map(key_file::read).transpose().map_err(Failure::Because)
}

fn tls_key(file: &Path) -> Result<TlsKey, Failure> {
    key_file::read(file).map_err(Failure::Because)
}

fn remote_access(text: &str) -> Result<RemoteAccess, String> {
    RemoteAccess::from_name(text).ok_or_else(|| "window, lease or wide".to_owned())
}

fn uuid(text: &str) -> Result<uuid::Uuid, String> {
    uuid::Uuid::try_parse(text).map_err(|error| format!("{text:?} is not a UUID: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f7f-4856-b0b3-51e60b8de349";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connection: Connection,
    }

    fn options(words: &[&str]) -> Result<Options, String> {
        let line = Line::try_parse_from([&["weft"], words].concat());
        let line = line.map_err(|error| error.to_string())?;
        match line.connection.options() {
            Ok(options) => Ok(options),
            Err(Failure::Because(what)) => Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_match_those_of_nvme_cli() {
        let short = [
            "-t",
            "tcp",
            "-a",
            "::1",
            "-s",
            "4421",
            "-n",
            NQN,
            "-q",
            "nqn.2024-01.io.example:h",
            "-I",
            "11111111-2222-3333-4444-555555555555",
            "-i",
            "3",
            "-Q",
            "64",
            "-k",
            "7",
            "-c",
            "2",
            "-l",
            "30",
            "-F",
            "5",
            "-g",
            "-G",
            "-w",
            "::1",
            "-d=false",
        ];
        let long = [
            "--transport",
            "TCP",
            "--traddr",
            "::1",
            "--trsvcid",
            "4421",
            "--nqn",
            NQN,
            "--hostnqn",
            "nqn.2024-01.io.example:h",
            "--hostid",
            "11111111-2222-3333-4444-555555555555",
            "--nr-io-queues",
            "3",
            "--queue-size",
            "64",
            "--keep-alive-tmo",
            "7",
            "--reconnect-delay",
            "2",
            "--ctrl-loss-tmo",
            "30",
            "--fast_io_fail_tmo",
            "5",
            "--tos",
            "136",
            "--so-priority",
            "5",
            "--hdr-digest",
            "--data-digest",
            "--host-traddr",
            "::1",
            "--disable-sqflow=false",
        ];
        for words in [&short[..], &long[..]] {
            let options = options(words).expect("options");
            assert_eq!(options.address.to_string(), format!("nvme-tcp://[::1]:4421/{NQN}"));
            assert_eq!(options.hostnqn.as_str(), "nqn.2024-01.io.example:h");
            assert_eq!(options.hostid[0], 0x11);
            assert_eq!((options.nr_io_queues, options.queue_size), (3, 64));
            assert_eq!(options.keep_alive_tmo, Duration::from_secs(7));
            assert_eq!(options.reconnect_delay, Duration::from_secs(2));
            assert_eq!(options.ctrl_loss_tmo, Some(Duration::from_secs(30)));
            assert_eq!(options.fast_io_fail_tmo, Some(Duration::from_secs(5)));
            assert!(options.hdr_digest && options.data_digest && !options.disable_sqflow);
            assert!(options.host_traddr.is_some());
        }
    }

    #[test]
    fn packets_are_marked_over_tcp_only() {
        let words = ["-a", "1.2.3.4", "-n", NQN, "--tos", "136", "--so-priority", "5"];
        let marked = options(&words).expect("options");
        assert_eq!((marked.tos, marked.so_priority), (Some(136), Some(5)));
        let error = options(&["nvme-rdma://1.2.3.4", "--tos", "8"]).expect_err("RDMA");
        assert!(error.contains("TCP's sockets"), "{error}");
        assert!(options(&["-a", "1.2.3.4", "--tos", "256"]).is_err());
    }

    #[test]
    fn an_address_is_one_argument_or_several() {
        let url = format!("nvme-tcp://127.0.0.1:4420/{NQN}?nsid=2");
        let words = ["trtype:TCP", "traddr:127.0.0.1", "trsvcid:4420", "nsid:2"];
        let subnqn = format!("subnqn:{NQN}");
        let expected = options(&[&url]).expect("options").address;
        assert_eq!(expected.nsid, Some(2));
        let unquoted = options(&[&words[..], &[&subnqn]].concat()).expect("options").address;
        assert_eq!(unquoted.to_string(), expected.to_string());
        let amended = options(&[&url, "-s", "4421"]).expect("options").address;
        assert_eq!(amended.port(), 4421);
    }

    #[test]
    fn never_is_minus_one() {
        let words = ["-a", "1.2.3.4", "-n", NQN, "-l", "-1", "-F", "-1"];
        let options = options(&words).expect("options");
        assert_eq!((options.ctrl_loss_tmo, options.fast_io_fail_tmo), (None, None));
        assert!(options.disable_sqflow, "the default");
        assert_eq!(options.address.port(), 4420);
    }

    #[test]
    fn rdma_is_a_transport() {
        let address = options(&["-t", "rdma", "-a", "1.2.3.4"]).expect("options").address;
        assert_eq!((address.transport, address.port()), (Transport::Rdma, 4420));
        let address = options(&["nvme-rdma://1.2.3.4:4421"]).expect("options").address;
        assert_eq!(address.spdk(), "trtype:RDMA adrfam:IPv4 traddr:1.2.3.4 trsvcid:4421");
        let error = options(&["nvme-rdma://1.2.3.4", "--data-digest"]).expect_err("digests");
        assert!(error.contains("TCP"), "{error}");
    }

    #[test]
    fn invalid_options_are_reported() {
        for (words, part) in [
            (&[][..], "no address"),
            (&["-t", "fc", "-a", "1.2.3.4"], "rdma"),
            (&["-a", "1.2.3.4", "-n", ""], "not a valid NQN"),
            (&["-a", "1.2.3.4", "-q", ""], "host NQN"),
            (&["-a", "1.2.3.4", "-s", "70000"], "70000"),
            (&["-a", "1.2.3.4", "-I", "me"], "not a UUID"),
            (&["-a", "1.2.3.4", "-Q", "1"], "1 is not in 2..=1024"),
            (&["-a", "1.2.3.4", "-Q", "100000"], "100000 is not in 2..=1024"),
            (&["-a", "1.2.3.4", "-k", "soon"], "span of time"),
            (&["memory:1GiB"], "local device"),
            (&["memory:1GiB", "-a", "1.2.3.4"], "--traddr does not apply"),
            (&["nvme-tcp://a,b/nqn.x", "-s", "4421"], "several endpoints"),
            (&["nvme-tcp://a,b/nqn.x", "-k", "0"], "keep-alive"),
            (&["nvme-tcp://a,b/nqn.x", "--iopolicy", "best"], "queue-depth"),
            (&["nonsense"], "neither an address"),
        ] {
            let error = options(words).expect_err(part);
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }
}
