//! What man pages say beside the definition of the command line.

use crate::{advise, compare, doctor, signals, study};

/// Which pages something is for.
#[derive(Debug, PartialEq)]
pub(super) enum PageScope {
    /// All of them.
    All,
    /// Those of these names.
    Pages(&'static [&'static str]),
    /// Those of commands that have this option and do not need it.
    Option(&'static str),
}

/// Those that compare two sets of results.
const COMPARES: PageScope = PageScope::Pages(&["weft-study-compare", "weft-study-run"]);

/// Those that measure, and keep what they have measured when they are interrupted.
const MEASURES: PageScope =
    PageScope::Pages(&["weft-bench", "weft-first-look", "weft-study-run", "weft-advise"]);

/// Exit codes.
pub(super) const EXIT_STATUS: &[(PageScope, u8, &str)] = &[
    (
        PageScope::All,
        0,
        "What was asked is done, or the reader of the output has ended early \
         (weft list | head -1).",
    ),
    (PageScope::All, 1, "It could not be done: a line on standard error says why."),
    (PageScope::All, 2, "The words of the command line are wrong."),
    (
        COMPARES,
        compare::SLOWER,
        "Of two sets of results that were compared, the second is slower by more than the margin, \
         with confidence.",
    ),
    (
        COMPARES,
        compare::INCOMPLETE,
        "Nothing is slower, but cells of the first set have no result in the second.",
    ),
    (
        COMPARES,
        compare::UNDECIDED,
        "Undecided: something may be slower by more than one would mind, or the repeats are too \
         few for any answer.",
    ),
    (PageScope::Pages(&["weft-doctor"]), doctor::WARNED, "There is a warning, and no fault."),
    (
        PageScope::Pages(&["weft-doctor"]),
        doctor::FAULTY,
        "There is a fault: it does not work, or loses data.",
    ),
    (
        PageScope::Pages(&["weft-advise"]),
        advise::NONE_HOLDS,
        "No way holds the objective, as far as it is known.",
    ),
    (
        PageScope::Pages(&["weft-advise"]),
        advise::NOT_CONFIRMED,
        "The way that was advised did not hold the objective when it was measured.",
    ),
    (
        PageScope::Option("wait-for-quiet"),
        study::NOT_QUIET,
        "The machines were not quiet, within the time of --wait-for-quiet where that is given.",
    ),
    (
        PageScope::Pages(&["weft-target"]),
        weft_target::EXIT_CODE_OF_A_FAILED_GROUP,
        "A poll group has failed: it is a fault of weft.",
    ),
    (
        MEASURES,
        signals::INTERRUPTED,
        "SIGINT or SIGTERM has interrupted it; what was measured until then stays.",
    ),
    (
        PageScope::Pages(&["weft-target", "weft-attach"]),
        signals::INTERRUPTED,
        "A second SIGINT or SIGTERM has ended it while it stopped.",
    ),
];

/// Those that talk to a target's control socket.
const CONTROLS: PageScope = PageScope::Option("control");

/// Variables of the environment that are read.
pub(super) const ENVIRONMENT: &[(PageScope, &str, &str)] = &[
    (
        PageScope::All,
        "WEFT_LOG",
        "Which log lines are written, in place of --verbose: a level, or levels of modules, as \
         info,weft_rpc=warn.",
    ),
    (
        PageScope::All,
        "JOURNAL_STREAM",
        "Set by systemd; log lines have journald's form if it names standard error.",
    ),
    (PageScope::Option("hostnqn"), "WEFT_DRIVER", "How sockets are driven: auto, uring or epoll."),
    (
        PageScope::Pages(&[
            "weft-target",
            "weft-floor",
            "weft-first-look",
            "weft-study-run",
            "weft-agent",
        ]),
        "WEFT_DRIVER",
        "How sockets are driven: auto, uring or epoll; --driver and a configuration come first.",
    ),
    (CONTROLS, "WEFT_CONTROL", "The control socket of the target where --control is not given."),
    (
        CONTROLS,
        "WEFT_CONTROL_TOKEN_FILE",
        "The token file of the target where --control-token-file is not given.",
    ),
    (
        PageScope::Option("tls-key-file"),
        "CREDENTIALS_DIRECTORY",
        "Set by systemd; key files in this folder may be readable for their group.",
    ),
    (
        PageScope::Pages(&["weft-target"]),
        "CREDENTIALS_DIRECTORY",
        "Set by systemd; key files in this folder may be readable for their group.",
    ),
    (
        PageScope::Pages(&["weft-target", "weft-attach"]),
        "NOTIFY_SOCKET",
        "Set by systemd, which is told when it serves, reloads and stops.",
    ),
    (
        PageScope::Option("site"),
        "XDG_CONFIG_HOME",
        "The folder of weft/weft-site.toml; ~/.config (of HOME) if it is not set.",
    ),
    (
        PageScope::Option("target-on"),
        "SLURM_JOB_ID",
        "Set by Slurm: the first node of the job runs the target, and the others loads, unless \
         machines are named.",
    ),
    (
        PageScope::Pages(&["weft-agent"]),
        "SSH_CONNECTION",
        "Set by ssh: the link that carries this connection is not changed.",
    ),
];

/// Files that are read, and the option or page that has to do with them.
pub(super) const FILES: &[(PageScope, &str, &str)] = &[
    (
        PageScope::Pages(&["weft-target"]),
        "/etc/weft/target.toml",
        "The configuration that weft.service serves; docs/config.toml shows every key.",
    ),
    (PageScope::Pages(&["weft-target"]), "/var/lib/weft", "The working folder of weft.service."),
    (
        PageScope::Pages(&["weft-target"]),
        "/run/weft/control.sock",
        "The control socket of weft.service, for weft ctl, top and trace.",
    ),
    (
        PageScope::Pages(&["weft-target"]),
        "/etc/machine-id",
        "The name of a subsystem that has none is made of it.",
    ),
    (
        PageScope::Option("rbd"),
        "/etc/ceph/ceph.conf",
        "The Ceph cluster, and where its keyring is, unless conf= names another one.",
    ),
    (PageScope::Option("hostnqn"), weft_host::HOST_NQN_FILE, "The NQN of this host."),
    (
        PageScope::Option("hostnqn"),
        weft_host::HOST_ID_FILE,
        "The Host Identifier of this host; without both files each process makes its own.",
    ),
    (
        PageScope::Option("site"),
        "weft-site.toml",
        "Machines and links: in this folder, in weft of $XDG_CONFIG_HOME or ~/.config, or in \
         /etc/weft.",
    ),
    (PageScope::All, "/usr/share/doc/weft/docs", "What is named docs/NAME here and in messages."),
];

/// What to read next; a document is at docs/NAME.
pub(super) const SEE_ALSO: &[(PageScope, &str)] = &[
    (PageScope::Pages(&["weft-target"]), "weft-ctl(1)"),
    (PageScope::Pages(&["weft-target"]), "weft-convert(1)"),
    (PageScope::Pages(&["weft-target", "weft-ctl"]), "weft-top(1)"),
    (PageScope::Pages(&["weft-target", "weft-ctl"]), "weft-trace(1)"),
    (PageScope::Pages(&["weft-target", "weft-attach", "weft-discover"]), "weft-doctor(1)"),
    (PageScope::Pages(&["weft-bench"]), "weft-floor(1)"),
    (PageScope::Pages(&["weft-attach"]), "weft-detach(1)"),
    (PageScope::Pages(&["weft-detach"]), "weft-attach(1)"),
    (PageScope::Pages(&["weft-study-run", "weft-bench"]), "weft-report(1)"),
    (PageScope::Pages(&["weft-study-run"]), "weft-site(1)"),
    (PageScope::Pages(&["weft-advise"]), "weft-study(1)"),
    (PageScope::Option("tls-key-file"), "weft-key(1)"),
    (PageScope::Pages(&["weft-target", "weft-convert", "weft-doctor"]), "docs/operate.md"),
    (PageScope::Pages(&["weft-target"]), "docs/config.toml"),
    (CONTROLS, "docs/control.md"),
    (PageScope::Option("tls-key-file"), "docs/security.md"),
    (PageScope::Pages(&["weft-attach", "weft-detach"]), "docs/attach.md"),
    (PageScope::Pages(&["weft-bench", "weft-floor", "weft-study-run"]), "docs/measuring.md"),
    (PageScope::Pages(&["weft-report", "weft-study-compare"]), "docs/results.md"),
    (PageScope::Pages(&["weft-advise"]), "docs/advise.md"),
    (PageScope::Option("site"), "docs/machines.md"),
    (PageScope::All, "docs/README.md"),
];

/// Commands: a page shows those of its command and of the commands below.
pub(super) const EXAMPLES: &[&str] = &[
    "weft target --listen tcp://0.0.0.0:4420 --file /var/lib/disk.img,size=10GiB",
    "weft target --config /etc/weft/target.toml --control unix:/run/weft/control.sock",
    "weft target --check --config /etc/weft/target.toml",
    "weft ctl subsystem list --control unix:/run/weft/control.sock",
    "weft ctl reload --control unix:/run/weft/control.sock",
    "weft ctl subsystem create NQN --allow-any-host",
    "weft ctl subsystem delete NQN",
    "weft ctl namespace add NQN --file disk.img,size=1GiB",
    "weft ctl namespace list NQN",
    "weft ctl namespace resize NQN 1 2GiB",
    "weft ctl namespace remove NQN 1",
    "weft ctl namespace add-host NQN 1 nqn.2014-08.org.example:h",
    "weft ctl namespace remove-host NQN 1 nqn.2014-08.org.example:h",
    "weft ctl listener add NQN tcp://192.0.2.1:4420",
    "weft ctl listener list NQN",
    "weft ctl listener remove NQN tcp://192.0.2.1:4420",
    "weft ctl host allow NQN nqn.2014-08.org.example:h",
    "weft ctl host list NQN",
    "weft ctl host set-keys NQN nqn.2014-08.org.example:h --psk web1",
    "weft ctl host remove NQN nqn.2014-08.org.example:h",
    "weft ctl key add web1 /etc/weft/keys/web1",
    "weft ctl key list",
    "weft ctl key remove web1",
    "weft ctl ana list NQN",
    "weft ctl ana set NQN tcp://192.0.2.1:4420 non-optimized",
    "weft ctl ana group NQN 1 2",
    "weft ctl bdev create disk file:disk.img,size=1GiB",
    "weft ctl bdev list",
    "weft ctl bdev delete disk",
    "weft ctl qos set --host nqn.2014-08.org.example:h --class latency",
    "weft ctl qos list",
    "weft ctl qos delete --host nqn.2014-08.org.example:h",
    "weft ctl rate-limit set --host nqn.2014-08.org.example:h --rate 200MiB",
    "weft ctl rate-limit list",
    "weft ctl rate-limit delete --host nqn.2014-08.org.example:h",
    "weft ctl controller list",
    "weft ctl pair show",
    "weft ctl pair hand-over",
    "weft ctl call framework_get_config nvmf",
    "weft top --control unix:/run/weft/control.sock",
    "weft trace --control unix:/run/weft/control.sock --seconds 2",
    "weft convert /etc/nvmet/config.json",
    "weft doctor",
    "weft doctor --control unix:/run/weft/control.sock nvme-tcp://192.0.2.1:4420/NQN",
    "weft discover tcp://192.0.2.1:4420",
    "weft discover --mdns",
    "weft identify nvme-tcp://192.0.2.1:4420/NQN",
    "weft identify ns nvme-tcp://192.0.2.1:4420/NQN --namespace-id 1",
    "weft list tcp://192.0.2.1:4420",
    "weft read nvme-tcp://192.0.2.1:4420/NQN --block-count 8 --data blocks",
    "weft write nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --data blocks",
    "weft flush nvme-tcp://192.0.2.1:4420/NQN",
    "weft copy nvme-tcp://192.0.2.1:4420/NQN --slbs 0 --blocks 8 --sdlba 1024",
    "weft compare nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --data blocks",
    "weft write-zeroes nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --block-count 8",
    "weft dsm nvme-tcp://192.0.2.1:4420/NQN --ad --slbs 0,64 --blocks 8,8",
    "weft get-feature nvme-tcp://192.0.2.1:4420/NQN --feature-id 7",
    "weft set-feature nvme-tcp://192.0.2.1:4420/NQN --feature-id 0x84 --nsid 1 --value 1",
    "weft namespace create nvme-tcp://192.0.2.1:4420/NQN --nsze 262144 --flbas 1",
    "weft namespace attach nvme-tcp://192.0.2.1:4420/NQN --nsid 2",
    "weft namespace delete nvme-tcp://192.0.2.1:4420/NQN --nsid 2",
    "weft namespace detach nvme-tcp://192.0.2.1:4420/NQN --nsid 2",
    "weft reservation register nvme-tcp://192.0.2.1:4420/NQN --nrkey 0xa",
    "weft reservation acquire nvme-tcp://192.0.2.1:4420/NQN --crkey 0xa --rtype 1",
    "weft reservation report nvme-tcp://192.0.2.1:4420/NQN",
    "weft reservation release nvme-tcp://192.0.2.1:4420/NQN --crkey 0xa --rtype 1",
    "weft attach nvme-tcp://192.0.2.1:4420/NQN",
    "weft attach nvme-tcp://192.0.2.1:4420/NQN --recover 0",
    "weft detach /dev/ublkb0",
    "weft log smart nvme-tcp://192.0.2.1:4420/NQN",
    "weft bench nvme-tcp://192.0.2.1:4420/NQN --rw randread --bs 4k --runtime 10 --time_based",
    "weft bench nvme-tcp://192.0.2.1:4420/NQN job.fio",
    "weft floor",
    "weft study list",
    "weft study run concurrency --quick",
    "weft study compare before after",
    "weft study show concurrency",
    "weft site check --site weft-site.toml",
    "weft site restore --site weft-site.toml",
    "ssh server weft agent",
    "weft key generate tls key",
    "weft key check key",
    "weft key show-identity key --hostnqn nqn.2014-08.org.example:h --subsysnqn NQN",
    "weft rdma devices",
    "weft report results",
    "weft report --verify results",
    "weft advise --p99 300us --iops 200k",
    "weft advise --p99 300us --iops 200k --from results",
    "weft advise --p99 300us --iops 200k --from results --what-if link=25Gb/s,rtt=30us",
    "weft advise jobs.fio --p99 300us --cost prices.toml",
    "weft first-look",
    "weft completion bash",
];

/// Those of the first page, which does not show all.
pub(super) const FIRST_EXAMPLES: &[&str] = &[
    "weft first-look",
    "weft target --memory 1GiB",
    "weft discover tcp://127.0.0.1:4420",
    "weft bench nvme-tcp://127.0.0.1:4420/NQN --rw randread --bs 4k --iodepth 32",
];
