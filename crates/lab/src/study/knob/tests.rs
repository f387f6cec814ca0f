use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::journal::Watch;
use super::*;
use crate::results::{Configuration, key};

/// A made-up machine: its files, an ethtool, and a folder for journals.
struct MadeUp {
    folder: TempDir,
}

/// An ethtool that keeps each word in a file, and a driver that takes no LRO.
const ETHTOOL: &str = r#"#!/bin/sh
state=$(dirname "$0")/ethtool-state
word() { cat "$state/$1" 2>/dev/null || echo "$2"; }
case $1 in
-k) echo "Features for $2:"
    echo "rx-checksumming: $(word rx on)"
    echo "tx-checksumming: $(word tx on)"
    echo "tcp-segmentation-offload: $(word tso on)"
    echo "large-receive-offload: off [fixed]"
    echo "ntuple-filters: $(word ntuple off)" ;;
-c) echo "Adaptive RX: $(word adaptive-rx on)  TX: off"
    echo "rx-usecs:	$(word rx-usecs 8)" ;;
-K|-C) [ "$3" = lro ] && { echo "Could not change any device features" >&2; exit 1; }
    mkdir -p "$state"; echo "$4" > "$state/$3" ;;
esac
"#;

/// A tc that keeps what netem does to eth1 in a file, and a kernel that has netem unless told.
const TC: &str = r#"#!/bin/sh
state=$(dirname "$0")/tc-state
case "$*" in
*show*) cat "$state" 2>/dev/null ||
    echo '[{"kind":"mq","handle":"0:","root":true},{"kind":"fq","parent":":1","handle":"0:"}]' ;;
*netem*) [ -e "$state-none" ] && { echo "Error: Specified qdisc kind is unknown." >&2; exit 2; }
    options='"limit":1000'
    while [ $# -gt 0 ]; do case $1 in
    loss) options="$options,\"loss-random\":{\"loss\":$(echo "${2%\%} 100" |
        awk '{printf "%.9f", $1 / $2 - 1e-9}'),\"correlation\":0}" ;;
    delay) options="$options,\"delay\":{\"delay\":0.0001,\"jitter\":0,\"correlation\":0}" ;;
    reorder) options="$options,\"reorder\":{\"reorder\":$(echo "${2%\%} 100" |
        awk '{printf "%.9f", $1 / $2 - 1e-9}'),\"correlation\":0},\"gap\":1" ;;
    esac; shift; done
    root='"kind":"netem","handle":"8001:","root":true'
    echo "[{$root,\"options\":{$options}}]" > "$state" ;;
*del*) rm "$state" ;;
esac
"#;

impl MadeUp {
    fn new() -> Self {
        let made_up = Self { folder: tempfile::tempdir().expect("a folder") };
        for (path, text) in [
            ("sys/class/net/eth1/mtu", "1500"),
            ("sys/class/net/eth1/queues/rx-0/rps_cpus", "00000000,00000000"),
            ("sys/class/net/eth1/queues/rx-1/rps_cpus", "0"),
            ("sys/class/net/eth1/queues/rx-0/rps_flow_cnt", "0"),
            ("sys/class/net/eth1/queues/rx-1/rps_flow_cnt", "0"),
            ("sys/class/net/eth1/queues/tx-0/xps_cpus", "0"),
            ("sys/class/net/eth1/device/msi_irqs/41", "msix"),
            ("proc/irq/41/smp_affinity_list", "0-1"),
            ("proc/sys/net/core/rps_sock_flow_entries", "0"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0"),
            ("sys/devices/system/cpu/cpufreq/policy0/x", "0"),
        ] {
            let path = made_up.path(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        let ethtool = made_up.path("ethtool");
        fs::write(&ethtool, ETHTOOL).expect("a file");
        fs::set_permissions(&ethtool, fs::Permissions::from_mode(0o755)).expect("a program");
        let tc = made_up.path("tc");
        fs::write(&tc, TC).expect("a file");
        fs::set_permissions(&tc, fs::Permissions::from_mode(0o755)).expect("a program");
        made_up
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn machine(&self) -> Machine {
        Machine::new(self.folder.path().to_owned(), self.path("ethtool"))
    }

    fn keeper(&self, watch: Watch) -> Arc<Keeper> {
        Arc::new(Keeper::new(self.machine(), self.path("journals"), watch))
    }

    fn knobs(&self) -> Knobs {
        // A watchdog that does nothing: what it would do is called by the tests.
        let watch = |_: &Path, journal: File| {
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(journal);
            cat.spawn().map_err(|error| error.to_string())
        };
        Knobs::new(self.keeper(Box::new(watch)))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect(path).trim().to_owned()
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("journals")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

fn wish(knob: &str, value: &str) -> KnobValue {
    KnobValue { knob: knob.to_owned(), value: value.to_owned() }
}

const MTU: &str = "sys/class/net/eth1/mtu";
const CONGESTION: &str = "proc/sys/net/ipv4/tcp_congestion_control";

#[test]
fn knobs_are_set_for_a_cell_and_put_back_for_the_next() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    let both = [wish(key::MTU, "9000"), wish(key::CONGESTION_CONTROL, "reno")];
    let applied = knobs.arrange(&both, Some("eth1")).expect("it sets them");
    assert_eq!((made_up.read(MTU), made_up.read(CONGESTION)), ("9000".into(), "reno".into()));
    let seen = |applied: &[Applied]| {
        let words = applied.iter().map(|one| format!("{} {}>{}", one.knob, one.before, one.value));
        words.collect::<Vec<_>>()
    };
    assert_eq!(seen(&applied), ["mtu 1500>9000", "congestion_control cubic>reno"]);
    let [journal] = &made_up.journals()[..] else { panic!("one journal") };
    let text = fs::read_to_string(journal).expect("a journal");
    assert_eq!(text.matches("changes").count(), 2, "{text}");
    let applied = knobs.arrange(&[wish(key::MTU, "4000")], Some("eth1")).expect("it sets it");
    assert_eq!(seen(&applied), ["mtu 1500>4000"], "what it was before the study");
    assert_eq!(made_up.read(CONGESTION), "cubic");
    // One that has its value already is not changed, and has nothing to be put back.
    let applied = knobs.arrange(&[wish(key::CONGESTION_CONTROL, "cubic")], None).expect("it is");
    assert_eq!(seen(&applied), ["congestion_control cubic>cubic"]);
    assert_eq!(made_up.read(MTU), "1500");
    assert!(made_up.journals().is_empty(), "nothing is to be put back");
}

#[test]
fn all_that_was_set_is_put_back_at_the_end() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    let all = [
        wish(key::MTU, "9000"),
        wish(key::TSO, "off"),
        wish(key::CHECKSUM, "off"),
        wish(key::RX_USECS, "0"),
        wish(key::ADAPTIVE_RX, "off"),
        wish(key::RPS, "all"),
        wish(key::IRQ_CPUS, "1"),
        wish(key::ARFS, "on"),
        wish(key::LOSS_PERCENT, "0.1"),
        wish(key::REORDER_PERCENT, "2"),
        wish(key::CONGESTION_CONTROL, "reno"),
        wish(key::GOVERNOR, "performance"),
        wish(key::IDLE_STATES, "shallow"),
    ];
    let applied = knobs.arrange(&all, Some("eth1")).expect("it sets them");
    assert_eq!(applied.len(), all.len());
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    let idle = |state: u32| format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}/disable");
    let rps = "sys/class/net/eth1/queues/rx-1/rps_cpus";
    let flows = "sys/class/net/eth1/queues/rx-1/rps_flow_cnt";
    let irq = "proc/irq/41/smp_affinity_list";
    let read = || {
        let paths = [governor, &idle(0), &idle(1), rps, flows, irq];
        let files = paths.map(|path| made_up.read(path));
        let words = ["tso", "rx", "tx", "rx-usecs", "adaptive-rx", "ntuple"];
        (files, words.map(|word| made_up.read(&format!("ethtool-state/{word}"))))
    };
    let (files, words) = read();
    assert_eq!(files, ["performance", "0", "1", "3", "16384", "1"]);
    assert_eq!(words, ["off", "off", "off", "0", "off", "on"]);
    assert!(made_up.path("tc-state").exists());
    drop(knobs);
    assert!(!made_up.path("tc-state").exists(), "the interface has no netem any more");
    let (files, words) = read();
    assert_eq!(files, ["powersave", "0", "0", "0", "0", "0-1"]);
    assert_eq!(words, ["on", "on", "on", "8", "on", "off"]);
    assert!(made_up.journals().is_empty());
}

#[test]
fn what_a_driver_refuses_is_a_sentence_and_leaves_nothing_changed() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    let wishes = [wish(key::MTU, "9000"), wish(key::LRO, "on")];
    let why = knobs.arrange(&wishes, Some("eth1")).expect_err("no LRO");
    let expected = "lro on cannot be set: ethtool -K eth1 lro: the driver refuses it (Could not \
                    change any device features): leave it out of the plan";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!(made_up.read(MTU), "1500");
    assert!(made_up.journals().is_empty());
    for (wish, interface, part) in [
        (wish(key::GRO, "off"), Some("eth1"), "eth1 has no gro"),
        (wish(key::MTU, "9000"), Some("eth2"), "No such file"),
        (wish(key::MTU, "9000"), None, "mtu needs an interface"),
        (wish(key::IRQ_CPUS, "1"), Some("eth2"), "eth2 has no interrupts of its own"),
    ] {
        let why = knobs.arrange(std::slice::from_ref(&wish), interface).expect_err(part);
        assert!(why.contains(part), "{why}");
    }
    let none = Machine::new(made_up.folder.path().to_owned(), made_up.path("none/ethtool"));
    let keeper = Keeper::new(none, made_up.path("journals"), Box::new(|_, _| Err("no".into())));
    let mut knobs = Knobs::new(Arc::new(keeper));
    let why = knobs.arrange(&[wish(key::TSO, "off")], Some("eth1")).expect_err("no ethtool");
    assert!(why.contains("ethtool is not there: install it"), "{why}");
}

/// What knobs have changed and what else a process has changed are in one journal, and each is put
/// back by itself.
#[test]
fn a_process_has_one_journal_for_all_that_it_changes() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    let keeper = Arc::clone(&knobs.keeper);
    knobs.arrange(&[wish(key::MTU, "9000")], Some("eth1")).expect("it sets it");
    let other = Change::File { path: CONGESTION.into(), value: "reno".to_owned() };
    assert_eq!(keeper.set(&other).as_deref(), Ok("reno"));
    assert_eq!(made_up.journals().len(), 1);
    knobs.arrange(&[], None).expect("it puts it back");
    assert_eq!((made_up.read(MTU), made_up.read(CONGESTION)), ("1500".into(), "reno".into()));
    keeper.restore(&[other]).expect("it puts it back");
    assert_eq!(made_up.read(CONGESTION), "cubic");
    assert!(made_up.journals().is_empty());
}

#[test]
fn a_value_that_does_not_stay_is_refused() {
    let made_up = MadeUp::new();
    // A driver that rounds: what is read is not what was written.
    let script = ETHTOOL.replace("echo \"$4\" > ", "echo 16 > ");
    fs::write(made_up.path("ethtool"), script).expect("a file");
    let mut knobs = made_up.knobs();
    let why = knobs.arrange(&[wish(key::RX_USECS, "13")], Some("eth1")).expect_err("it rounds");
    assert!(why.contains("rx_usecs 13 cannot be set") && why.contains("it is 16"), "{why}");
}

#[test]
fn what_a_dead_process_has_left_is_put_back_by_the_next_one() {
    let made_up = MadeUp::new();
    let mut dead = made_up.knobs();
    dead.arrange(&[wish(key::MTU, "9000")], Some("eth1")).expect("it sets it");
    let next = made_up.knobs();
    assert!(next.restore_left().is_empty(), "the other one lives");
    assert_eq!(made_up.read(MTU), "9000");
    // It dies: its lock is free, and nothing was put back.
    let [path] = &made_up.journals()[..] else { panic!("one journal") };
    let text = fs::read(path).expect("a journal");
    drop(dead);
    fs::write(path, [text.as_slice(), b"{\"what\":\"chan"].concat()).expect("a file");
    fs::write(made_up.path(MTU), "9000").expect("a file");
    assert_eq!(next.restore_left(), ["/sys/class/net/eth1/mtu 1500"]);
    assert_eq!(made_up.read(MTU), "1500");
    assert!(made_up.journals().is_empty());
}

#[test]
fn a_watchdog_puts_back_by_the_journal_and_keeps_what_fails() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    let wishes = [wish(key::MTU, "9000"), wish(key::TSO, "off")];
    knobs.arrange(&wishes, Some("eth1")).expect("it sets them");
    let [path] = &made_up.journals()[..] else { panic!("one journal") };
    let none = Machine::new(made_up.folder.path().to_owned(), made_up.path("none"));
    let why = restore(&none, path).expect_err("no ethtool");
    assert!(why.contains("was not put back to on"), "{why}");
    assert_eq!(made_up.read(MTU), "1500", "the others are");
    let done = restore(&made_up.machine(), path).expect("all");
    assert_eq!(done, ["ethtool -K eth1 tso on"]);
    assert_eq!(restore(&made_up.machine(), path), Ok(Vec::new()), "there is none any more");
    // An interface that has gone took its settings with it.
    fs::remove_dir_all(made_up.path("sys/class/net/eth1")).expect("a folder");
    drop(knobs);
}

/// What is put back is written with this user's rights.
#[test]
fn journals_of_a_folder_that_others_may_write_to_are_not_used() {
    let made_up = MadeUp::new();
    let mut knobs = made_up.knobs();
    knobs.arrange(&[wish(key::MTU, "9000")], Some("eth1")).expect("it sets it");
    let [path] = &made_up.journals()[..] else { panic!("one journal") };
    let left = fs::read(path).expect("a journal");
    drop(knobs);
    assert_eq!(made_up.read(MTU), "1500");
    fs::write(made_up.path(MTU), "9000").expect("a knob");
    fs::write(path, &left).expect("a journal");
    let open_to = |mode| {
        let folder = made_up.path("journals");
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    open_to(0o777);
    let mut knobs = made_up.knobs();
    let said = knobs.restore_left();
    assert!(said.len() == 1 && said[0].contains("others may write"), "{said:?}");
    let why = knobs.arrange(&[wish(key::MTU, "4000")], Some("eth1")).expect_err("no journal");
    assert!(why.contains("others may write"), "{why}");
    assert_eq!(made_up.read(MTU), "9000");
    open_to(0o700);
    assert_eq!(knobs.restore_left().len(), 1);
    assert_eq!(made_up.read(MTU), "1500");
}

#[test]
fn knobs_of_interfaces_belong_to_cells_of_links() {
    let configuration = Configuration::from([
        (key::MTU.to_owned(), 9000_u64.into()),
        (key::GOVERNOR.to_owned(), "performance".into()),
        (key::DEPTH.to_owned(), 4_u64.into()),
    ]);
    let all = [wish(key::MTU, "9000"), wish(key::GOVERNOR, "performance")];
    assert_eq!(wishes(&configuration, "roce100"), all);
    assert_eq!(wishes(&configuration, ""), all[1..]);
    assert_eq!(of_interface(&configuration), Some(key::MTU));
}

/// Lost and held back packets are of one queueing discipline, and each is put back by itself, also
/// from the journal of a dead process.
#[test]
fn packets_are_lost_and_held_back_until_nobody_wants_it() {
    let made_up = MadeUp::new();
    let state = || fs::read_to_string(made_up.path("tc-state")).unwrap_or_default();
    let mut knobs = made_up.knobs();
    let (loss, reorder) = (wish(key::LOSS_PERCENT, "0.01"), wish(key::REORDER_PERCENT, "5"));
    let applied = knobs.arrange(&[loss.clone(), reorder], Some("eth1")).expect("both");
    let seen: Vec<_> = applied.iter().map(|one| (&one.before[..], &one.value[..])).collect();
    assert_eq!(seen, [("0", "0.01"), ("0", "5")]);
    assert!(state().contains("loss-random") && state().contains("reorder"), "{}", state());
    knobs.arrange(&[loss], Some("eth1")).expect("one of them");
    assert!(state().contains("loss-random") && !state().contains("reorder"), "{}", state());
    let [path] = &made_up.journals()[..] else { panic!("one journal") };
    let done = restore(&made_up.machine(), path).expect("all");
    assert_eq!(
        (done, state()),
        (vec!["tc qdisc eth1 netem loss_percent 0".to_owned()], String::new())
    );

    // None is what an interface without netem has.
    let mut knobs = made_up.knobs();
    knobs.arrange(&[wish(key::LOSS_PERCENT, "0")], Some("eth1")).expect("it has that");
    assert!(made_up.journals().is_empty() && state().is_empty());
    for (own, part) in [
        (r#"[{"kind":"htb","handle":"1:","root":true}]"#, "discipline of its own (htb)"),
        (
            r#"[{"kind":"netem","handle":"8001:","root":true,"options":{"delay":{"delay":1}}}]"#,
            "discipline of its own (netem)",
        ),
    ] {
        fs::write(made_up.path("tc-state"), own).expect("a file");
        let why = knobs.arrange(&[wish(key::LOSS_PERCENT, "1")], Some("eth1")).expect_err(part);
        assert!(why.contains(part) && state() == own, "{why}");
    }
    fs::remove_file(made_up.path("tc-state")).expect("a file");
    fs::write(made_up.path("tc-state-none"), "").expect("a file");
    let why = knobs.arrange(&[wish(key::LOSS_PERCENT, "1")], Some("eth1")).expect_err("no netem");
    assert!(why.ends_with("load it (modprobe sch_netem), or leave this out of the plan"), "{why}");
    assert!(made_up.journals().is_empty(), "nothing was changed");
}
