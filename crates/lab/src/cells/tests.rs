use super::*;
use crate::results::{Core, Direction, IdleRate, LatencyRecord, SideMachine, Thread, number};
use crate::testing::record;

fn busy(seconds: f64) -> Side {
    let thread = Thread { user_s: seconds, ..Thread::default() };
    Side { seconds: 1.0, threads: vec![thread], ..Side::default() }
}

/// Means of logarithms are exact but for the last digits.
fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 1e3).round() / 1e3)
}

fn metric(name: &str) -> Metric {
    Metric::named(name).expect(name)
}

#[test]
fn repeats_are_grouped_whatever_their_order() {
    let mut third = record(Role::Plain, &[("depth", 1u64.into())], 300.0, 10);
    third.repeat = 3;
    let mut failed = third.clone();
    (failed.repeat, failed.status) = (2, Status::Failed { reason: "gone".to_owned() });
    let mut first = record(Role::Plain, &[("depth", 1u64.into())], 100.0, 10);
    first.mark(Mark::Loopback);
    let other = record(Role::Plain, &[("depth", 32u64.into())], 900.0, 10);
    let cells = Cells::of(&[other, third, failed, first], &Environment::default());
    assert_eq!(cells.cells.len(), 2);
    let cell = &cells.cells[0];
    let numbers: Vec<u32> = cell.repeats.iter().map(|repeat| repeat.number).collect();
    assert_eq!((numbers, cell.missing.len()), (vec![1, 3], 1), "by depth, and by repeat");
    assert_eq!(cell.marks, [Mark::Loopback]);
    assert_eq!(metric("iops").read(&cells, cell).mean(), Some(200.0));
    assert_eq!(cells.varied(Role::Plain), ["depth"]);
}

#[test]
fn an_unreadable_histogram_is_no_result() {
    let mut bad = record(Role::Plain, &[], 100.0, 10);
    let latency = LatencyRecord { count: 5, hdr_v2: "%".to_owned(), ..LatencyRecord::default() };
    bad.read = Some(Direction { latency, ..bad.read.expect("reads") });
    let cells = Cells::of(&[bad], &Environment::default());
    assert!(!cells.cells[0].is_measured());
    assert!(cells.cells[0].missing[0].reason().is_some_and(|why| why.contains("histogram")));
}

#[test]
fn a_remote_cell_refers_to_its_local_counterpart() {
    let of = |transport: &str, depth: u64, iops| {
        let depth = Value::from(depth);
        record(Role::Plain, &[("transport", transport.into()), ("depth", depth)], iops, 10)
    };
    let mut tcp = of("tcp", 32, 300.0);
    tcp.configuration.insert(key::TARGET_CORES.to_owned(), 1u64.into());
    let records = [of("local", 1, 100.0), of("local", 32, 600.0), tcp];
    let cells = Cells::of(&records, &Environment::default());
    let remote = cells.cells.iter().find(|cell| cell.text("transport") == "tcp").expect("it");
    let read = |name: &str| rounded(metric(name).read(&cells, remote).mean());
    assert_eq!((read("share-of-local"), read("concurrency")), (Some(0.5), Some(3.0)));
}

#[test]
fn a_foreground_refers_to_itself_alone() {
    let of = |role, load: Option<u64>, iops, us| {
        let load = load.map(|load| (key::LOAD_PERCENT, Value::from(load)));
        // A background may have more processors than the foreground.
        let cores = if role == Role::Background { 2u64 } else { 1 };
        let settings = [(key::FOREGROUND, "l-app".into()), (key::HOST_CORES, cores.into())];
        record(role, &settings.into_iter().chain(load).collect::<Vec<_>>(), iops, us)
    };
    let mut background = of(Role::Background, Some(50), 400.0, 10);
    background.values.insert(number::OFFERED_IOPS.to_owned(), 500.0);
    let records =
        [of(Role::Alone, None, 1000.0, 10), of(Role::Foreground, Some(50), 250.0, 40), background];
    let cells = Cells::of(&records, &Environment::default());
    let cell = cells.measured(Role::Foreground).next().expect("it");
    let read = |name: &str| metric(name).read(&cells, cell).mean().expect(name);
    assert!((read("latency-interference") - 4.0).abs() < 0.02);
    assert_eq!((read("throughput-sustained"), read("background-reached")), (0.25, 0.8));
}

#[test]
fn interference_has_the_spread_of_the_foreground_alone_too() {
    let of = |role, repeat, us| {
        let mut record = record(role, &[(key::FOREGROUND, "l-app".into())], 1000.0, us);
        record.repeat = repeat;
        record
    };
    // The foreground under load is the same each time; alone it is not.
    let alone = [(1, 8), (2, 10), (3, 12)].map(|(repeat, us)| of(Role::Alone, repeat, us));
    let loaded = [1, 2, 3].map(|repeat| of(Role::Foreground, repeat, 40));
    let cells = Cells::of(&[&alone[..], &loaded].concat(), &Environment::default());
    let cell = cells.measured(Role::Foreground).next().expect("it");
    let estimate = metric("latency-interference").read(&cells, cell).estimate().expect("a ratio");
    assert!((estimate.mean - 4.05).abs() < 0.02, "{estimate:?}");
    assert!(estimate.bar().is_some_and(|(down, up)| down > 1.0 && up > 1.5), "{estimate:?}");
    let alone = cells.measured(Role::Alone).next().expect("it");
    let estimate = metric("latency-interference").read(&cells, alone).estimate().expect("1");
    assert_eq!((estimate.mean, estimate.bar()), (1.0, Some((0.0, 0.0))));
}

#[test]
fn a_local_cell_with_other_repeats_has_its_spread_in_the_ratio() {
    let of = |transport: &str, repeat, iops| {
        let mut record = record(Role::Plain, &[("transport", transport.into())], iops, 10);
        record.repeat = repeat;
        record
    };
    let local = [(1, 900.0), (2, 1000.0), (3, 1100.0)];
    let local = local.map(|(repeat, iops)| of("local", repeat, iops));
    let tcp = [1, 2, 3, 4].map(|repeat| of("tcp", repeat, 500.0));
    let cells = Cells::of(&[&local[..], &tcp].concat(), &Environment::default());
    let cell = cells.cells.iter().find(|cell| cell.text("transport") == "tcp").expect("it");
    let share = metric("share-of-local").read(&cells, cell).estimate().expect("a ratio");
    let (down, up) = share.bar().expect("enough repeats");
    assert!((share.mean - 0.5).abs() < 0.01 && down > 0.1 && up > down, "{share:?}");
}

#[test]
fn total_cpu_is_unknown_if_the_targets_cpu_is() {
    let mut known = record(Role::Plain, &[("transport", "tcp".into())], 1000.0, 10);
    (known.host, known.target) = (Some(busy(0.25)), Some(busy(0.5)));
    let mut unknown = known.clone();
    unknown.target = None;
    unknown.mark(Mark::TargetUnknown);
    let mut local = unknown.clone();
    local.marks.clear();
    let read = |record: &Record, name: &str| {
        let cells = Cells::of(std::slice::from_ref(record), &Environment::default());
        rounded(metric(name).read(&cells, &cells.cells[0]).mean())
    };
    assert_eq!(read(&known, "total-cpu"), Some(75.0));
    assert_eq!(read(&known, "cpu-per-io"), Some(750_000.0));
    assert_eq!(read(&unknown, "host-cpu"), Some(25.0), "the host's is known");
    assert_eq!((read(&unknown, "total-cpu"), read(&unknown, "cpu-per-io")), (None, None));
    assert_eq!(read(&local, "total-cpu"), Some(25.0), "there is no target");
}

#[test]
fn the_cpu_time_of_a_machine_is_that_beyond_its_idle_rate() {
    let side = |busy_s: f64, interrupts: u64| {
        let core = Core { user_s: busy_s - 0.5, softirq_s: 0.5, ..Core::default() };
        let softirqs = [("NET_RX".to_owned(), 300)].into();
        let machine =
            SideMachine { cores: vec![core], interrupts, softirqs, ..SideMachine::default() };
        let thread = Thread { user_s: 1.0, polling_s: 0.5, ..Thread::default() };
        Side { seconds: 2.0, threads: vec![thread], machine, ..Side::default() }
    };
    let mut here = record(Role::Plain, &[("transport", "tcp".into())], 100.0, 10);
    here.connection = Some(Connection::over_loopback("tcp"));
    (here.host, here.target) = (Some(side(1.5, 500)), Some(side(1.5, 500)));
    let rate = |cpu_s, interrupts| IdleRate { cpu_s, interrupts, ..IdleRate::default() };
    let environment = Environment {
        idle: Some(rate(0.25, 50.0)),
        target_idle: [("far".to_owned(), rate(0.5, 150.0))].into(),
        ..Environment::default()
    };
    let read = |record: &Record, name: &str| {
        let cells = Cells::of(std::slice::from_ref(record), &environment);
        rounded(metric(name).read(&cells, &cells.cells[0]).mean())
    };
    // 1.5 s in 2 s, of which 0.5 s go by without a load; both sides are the same machine.
    assert_eq!(read(&here, "machine-cpu"), Some(50.0));
    let gbps = 100.0 * 4096.0 * 8.0 / 1e9;
    assert_eq!(read(&here, "machine-cpu-per-gbps"), rounded(Some(50.0 / gbps)));
    assert_eq!(read(&here, "target-interrupts"), Some(200.0));
    assert_eq!(
        (read(&here, "host-softirqs"), read(&here, "host-polling")),
        (Some(150.0), Some(25.0))
    );
    // Another machine has an idle rate of its own: (1.5 − 0.5 + 1.5 − 1) s in 2 s.
    let mut far = here.clone();
    far.configuration.insert(key::TARGET.to_owned(), "far".into());
    let end = |text: &str| text.parse().expect("an address");
    far.connection = Some(Connection::new("tcp", end("10.0.0.1:1"), end("10.0.0.2:2")));
    assert_eq!(read(&far, "machine-cpu"), Some(75.0));
    assert_eq!(
        (read(&far, "target-interrupts"), read(&far, "host-interrupts")),
        (Some(100.0), Some(200.0))
    );
    // Where that is not known the sum is not, nor is one tenant's part.
    far.configuration.insert(key::TARGET.to_owned(), "other".into());
    assert_eq!(read(&far, "machine-cpu"), None);
    here.role = Role::Foreground;
    assert_eq!(read(&here, "machine-cpu"), None);
}

/// W6: "CPU of everything, without idle" was 1.68 % beside threads of 83.6 %: idle was a compiler.
#[test]
fn the_cpu_time_of_a_machine_that_was_busy_before_is_unknown() {
    let core = Core { user_s: 1.0, softirq_s: 0.5, ..Core::default() };
    let machine = SideMachine { cores: vec![core; 2], interrupts: 900, ..SideMachine::default() };
    let mut record = record(Role::Plain, &[("transport", "tcp".into())], 100.0, 10);
    record.connection = Some(Connection::over_loopback("tcp"));
    record.host = Some(Side { seconds: 2.0, machine, ..busy(0.25) });
    let names = ["machine-cpu", "machine-cpu-per-io", "machine-cpu-per-gbps", "host-interrupts"];
    // Earlier versions have not recorded how many processors that was of.
    for (processors, cores) in [(2, 0), (0, 2)] {
        let read = |cpu_s: f64| {
            let idle = IdleRate { seconds: 2.0, processors, cpu_s, ..IdleRate::default() };
            let mut environment = Environment { idle: Some(idle), ..Environment::default() };
            environment.processor.cores = cores;
            let cells = Cells::of(std::slice::from_ref(&record), &environment);
            let is_known =
                |name: &&str| metric(name).read(&cells, &cells.cells[0]).mean().is_some();
            assert!(metric("host-cpu").read(&cells, &cells.cells[0]).mean().is_some());
            (names.iter().filter(|name| is_known(name)).count(), environment.banner().is_some())
        };
        assert_eq!(read(0.05), (4, false));
        assert_eq!(read(0.2), (4, false), "a tenth, in which a tick of each is left out");
        assert_eq!(read(0.22), (0, true));
        assert_eq!(read(1.97), (0, true));
    }
}

#[test]
fn each_machine_that_was_busy_is_named_and_its_cells_are_marked() {
    let end = |text: &str| text.parse().expect("an address");
    let over = |target: &str, address: &str| {
        let settings = [("transport", "tcp".into()), (key::TARGET, target.into())];
        let mut record = record(Role::Plain, &settings, 100.0, 10);
        record.connection = Some(Connection::new("tcp", end("10.0.0.1:1"), end(address)));
        record
    };
    let records = [over("near", "10.0.0.2:2"), over("far", "10.0.0.3:2")];
    let rate = |cpu_s| IdleRate { seconds: 2.0, processors: 4, cpu_s, ..IdleRate::default() };
    let environment = Environment {
        idle: Some(rate(0.1)),
        target_idle: [("near".to_owned(), rate(0.2)), ("far".to_owned(), rate(3.2))].into(),
        ..Environment::default()
    };
    let banner = environment.banner().expect("one is busy");
    assert!(banner.contains("ar was 80 % busy before the run") && !banner.contains("near was"));
    let cells = Cells::of(&records, &environment).cells;
    let marked = |name: &str| {
        let mut cells = cells.iter().filter(|cell| cell.text(key::TARGET) == name);
        cells.next().expect(name).marks.contains(&Mark::BusyMachine)
    };
    assert_eq!((marked("near"), marked("far")), (false, true));
}

/// What a link at line rate takes, and how many drives fill it.
#[test]
fn a_link_is_full_from_nine_tenths_on_and_memory_is_no_drive() {
    let of = |transport: &str, bytes: u64| {
        let settings = [("transport", transport.into()), ("target_cores", 2u64.into())];
        let mut record = record(Role::Plain, &settings, 1e5, 10);
        if let Some(read) = &mut record.read {
            read.bytes = bytes;
        }
        record.connection = (transport != "local").then(|| Connection::over_loopback("tcp"));
        (record.host, record.target) = (Some(busy(0.5)), Some(busy(1.0)));
        record
    };
    let read = |bytes: u64, local: &str, name: &str| {
        let link = LinkProbe {
            connection: Some(Connection::over_loopback("tcp")),
            stream_bytes_per_s: 1e9,
            ..LinkProbe::default()
        };
        let local = local.to_owned();
        let environment = Environment { local, link: vec![link], ..Environment::default() };
        let cells = Cells::of(&[of("local", 250_000_000), of("tcp", bytes)], &environment);
        let tcp = cells.cells.iter().find(|cell| cell.text(key::TRANSPORT) == "tcp").expect("it");
        rounded(metric(name).read(&cells, tcp).mean())
    };
    let drive = "/dev/nvme0n1";
    assert_eq!(read(950_000_000, drive, "line-rate-cores"), Some(1.5));
    assert_eq!(read(850_000_000, drive, "line-rate-cores"), None);
    assert_eq!(read(850_000_000, drive, "drives"), Some(4.0));
    assert_eq!(read(850_000_000, "memory:1GiB", "drives"), None);
    assert_eq!(read(850_000_000, drive, "iops-per-core"), Some(5e4));
}
