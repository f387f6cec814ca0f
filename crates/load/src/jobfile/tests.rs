mod named;

use super::*;

fn file(text: &str) -> Result<Vec<Section>, String> {
    let sections = ini::parse(text, Path::new("job.fio"), &|_| None)?;
    sections.iter().map(of_file).collect()
}

fn job(lines: &str) -> Job {
    section(lines).job
}

fn section(lines: &str) -> Section {
    let mut sections = file(&format!("[a]\n{lines}")).expect(lines);
    sections.pop().expect("a section")
}

fn fault(lines: &str) -> String {
    file(&format!("[a]\n{lines}")).expect_err(lines)
}

#[test]
fn a_section_is_what_it_is_in_fio() {
    let found = section(
        "rw=randrw\nbs=4k,8k\niodepth=32\nioengine=libaio\nrwmixwrite=30\nsize=50%\nio_size=1g\n\
         offset=10%\nnumber_ios=1000\nloops=3\nruntime=5m\ntime_based\nramp_time=2\n\
         startdelay=1-3\nfsync=8\nend_fsync=1\nthinktime=50\nthinktime_blocks=4\nnorandommap\n\
         randseed=9\ncpus_allowed=0-1\nfilename=disk\ndirectory=/data\ndirect=1\n\
         percentile_list=50:99.9\nexitall\nstonewall\nnew_group\ngroup_reporting\nwait_for=b\n",
    );
    let expected = Job {
        name: "a".to_owned(),
        pattern: Pattern::RandRw,
        read_percent: 70.0,
        sizes: [4096, 8192, 8192].map(|bytes| Some(Sizes::Fixed(bytes))),
        random_map: false,
        depth: 32,
        offset: Extent::Percent(10),
        size: Some(Extent::Percent(50)),
        io_size: Some(Extent::Bytes(1 << 30)),
        number_ios: Some(1000),
        loops: 3,
        runtime: Some(Duration::from_secs(300)),
        time_based: true,
        ramp: Duration::from_secs(2),
        start_delay: (Duration::from_secs(1), Duration::from_secs(3)),
        flush_every: 8,
        flush_at_end: true,
        think: Some(Think { time: Duration::from_micros(50), blocks: 4 }),
        seed: 9,
        cpus: vec![0, 1],
        percentiles: Some(vec![50.0, 99.9]),
        ..Job::default()
    };
    assert_eq!(found.job, expected);
    assert_eq!((found.filename.as_deref(), found.direct), (Some("/data/disk"), Some(true)));
    assert!(found.stonewall && found.new_group && found.group_reporting);
    assert_eq!(found.exit, Some(Exit::Group));
    assert_eq!(found.wait_for.as_deref(), Some("b"));
    assert_eq!(found.notes, Vec::<String>::new());
}

#[test]
fn what_a_section_does_not_say_is_as_in_fio() {
    let found = section("filename=x\n");
    let Job { pattern, size, time_based, random_map, runtime, .. } = found.job;
    assert_eq!((pattern, size), (Pattern::Read, Some(Extent::Percent(100))));
    assert_eq!((time_based, random_map, runtime), (false, true, None));
    assert_eq!(found.direct, None);
}

#[test]
fn lengths_are_read_as_fio_reads_them() {
    assert_eq!(job("bs=4k").block_bytes, 4096);
    assert_eq!(job("bs=4kb").block_bytes, 4096);
    assert_eq!(job("bs=0x1000").block_bytes, 4096);
    assert_eq!(job("bs=1.5k").block_bytes, 1536);
    assert_eq!(job("kb_base=1000\nbs=4k").block_bytes, 4000);
    assert_eq!(job("bs=4k\nkb_base=1000").block_bytes, 4000);
    assert_eq!(job("kb_base=1000\nbs=4ki").block_bytes, 4096);
    // Reads keep what they had where only writes are told.
    let sizes = |lines: &str| job(&format!("rw=randrw\n{lines}")).sizes;
    let fixed = |bytes| Some(Sizes::Fixed(bytes));
    assert_eq!(sizes("bs=8k\nbs=,16k"), [fixed(8192), fixed(16_384), fixed(16_384)]);
    assert_eq!(sizes("bsrange=1k-4k,8k-8k")[..2], [Some(Sizes::Range(1024, 4096)), fixed(8192)]);
    let split = |parts: &[(u32, u32)]| Some(Sizes::Split(parts.to_vec()));
    // Sorted by share, as in fio; those without one divide what is left.
    let two = sizes("bssplit=4k/10:64k/50:32k/40,16k");
    assert_eq!(two[0], split(&[(4096, 10), (32_768, 40), (65_536, 50)]));
    assert_eq!(two[1], split(&[(16_384, 100)]));
    assert_eq!(sizes("bssplit=4k/60:8k:16k")[0], split(&[(8192, 20), (16_384, 20), (4096, 60)]));
    assert!(fault("bssplit=4k/60:8k/60").contains("add up to 120"));
    assert!(fault("bssplit=4k/60:8k/30").contains("and not to 100"));
}

#[test]
fn spreads_and_modifiers_are_read() {
    let spread = |text: &str| job(&format!("rw=randread\nrandom_distribution={text}")).spread;
    assert_eq!(spread("zipf:1.2"), Spread::Zipf(1.2, None));
    assert_eq!(spread("pareto:0.2:0.5"), Spread::Pareto(0.2, Some(0.5)));
    assert_eq!(spread("normal:40"), Spread::Normal(40.0, None));
    let Spread::Zoned(zones) = spread("zoned:50/5:30/15:20/") else { panic!("zones") };
    let lengths: Vec<_> = zones.iter().map(|zone| (zone.accesses, zone.length)).collect();
    let percent = crate::pattern::spread::ZoneLength::Percent;
    assert_eq!(lengths, [(50, percent(5)), (30, percent(15)), (20, percent(80))]);
    for (text, part) in [
        ("zipf", "wants a number"),
        ("zipf:1", "not 1"),
        ("pareto:2", "between 0 and 1"),
        ("normal:200", "within 0 to 100"),
        ("zipf:1.2:3", "a centre is within"),
        ("zoned:50/5:30/95", "add up to 80"),
        ("lumpy:1", "none of random"),
    ] {
        let error = fault(&format!("random_distribution={text}"));
        assert!(error.contains(part), "{text}: {error}");
    }
    assert_eq!(job("rw=read:-8k").modifier, Modifier::Hole(-8192));
    assert_eq!(job("rw=randread:8").modifier, Modifier::Run(8));
    let repeat = job("rw=randread:8\nrw_sequencer=identical").modifier;
    assert_eq!(repeat, Modifier::Repeat(8));
}

#[test]
fn rates_are_of_each_direction_and_together_make_the_mix() {
    let rate = |lines: &str| job(lines).rate.expect("a rate").iops;
    assert_eq!(rate("rw=read\nrate_iops=500"), 500.0);
    assert_eq!(rate("rw=read\nbs=64k\nrate=1m"), 16.0);
    assert_eq!(rate("rw=write\nrate_iops=100,300"), 300.0);
    let mixed = job("rw=randrw\nrate_iops=300,100");
    assert_eq!((mixed.rate.map(|rate| rate.iops), mixed.read_percent), (Some(400.0), 75.0));
    assert!(fault("rw=randrw\nrate_iops=,100").contains("give both"));
    let floor = job("rw=read\nrate_min=1m\nratecycle=500").rate_min.expect("a floor");
    assert_eq!((floor.bytes, floor.cycle), (1_048_576.0, Duration::from_millis(500)));
}

#[test]
fn engines_decide_how_many_requests_are_in_flight() {
    for (engine, depth) in [
        ("", 1),
        ("ioengine=sync\n", 1),
        ("ioengine=mmap\n", 1),
        ("ioengine=libaio\n", 32),
        ("ioengine=io_uring\n", 32),
    ] {
        let found = section(&format!("{engine}iodepth=32\n"));
        assert_eq!(found.job.depth, depth, "{engine}");
        assert_eq!(found.notes.is_empty(), depth == 32, "what is not followed is said: {engine}");
    }
    for engine in ["rbd", "net", "cpuio", "null", "sg", "filecreate"] {
        let error = fault(&format!("ioengine={engine}"));
        assert!(error.starts_with("job.fio:2: ioengine: "), "{error}");
    }
}

#[test]
fn verification_is_what_is_asked_for_or_more() {
    for (name, checksum) in [
        ("crc32c", Checksum::Crc32c),
        ("md5", Checksum::Md5),
        ("sha256", Checksum::Sha256),
        ("xxhash", Checksum::Xxhash),
    ] {
        let found = section(&format!("rw=write\nverify={name}\n"));
        assert!(found.job.verify && found.notes.is_empty(), "{:?}", found.notes);
        assert_eq!(found.job.checksum, checksum);
    }
    let found = section("rw=write\nverify=crc64\n");
    assert!(found.job.verify && found.notes[0].contains("CRC32C"), "{:?}", found.notes);
    let pattern = job("rw=write\nverify=pattern\nverify_pattern=0xdeadbeef\ndo_verify=0");
    assert_eq!(pattern.verify_pattern, Some(vec![0xde, 0xad, 0xbe, 0xef]));
    assert!(!pattern.read_back);
    let quoted = job("rw=write\nverify=pattern\nverify_pattern=\"a word\"");
    assert_eq!(quoted.verify_pattern, Some(b"a word".to_vec()));
    assert!(fault("verify=pattern\nverify_pattern=word").contains("no pattern"));
    assert!(fault("verify=pattern").contains("wants verify_pattern"));
    assert!(fault("verify=null").contains("checks nothing"));
    assert!(!job("verify=0").verify);
}

#[test]
fn what_is_refused_says_so_with_its_place() {
    for (lines, part) in [
        ("io_depth=9", "io_depth: weft does not know this word: did you mean iodepth?"),
        ("iops=9", "iops: weft does not know this word: did you mean rate_iops?"),
        ("rate_iops=5k", "fio takes no k here"),
        ("percentile_list=50,99", "separate them by colons: 50:99"),
        ("no_such_word=1", "job.fio:2: no_such_word: weft does not know this word"),
        ("bs=4k\nflow=2", "job.fio:3: flow: this is not done: give each job its rate_iops"),
        ("zonemode=zbd", "zoned devices are not driven"),
        ("bs", "it wants a value"),
        ("latency_target=1ms", "wants a latency_window"),
        ("read_iolog=/no/such/log", "cannot read /no/such/log"),
        ("time_based", "wants a runtime"),
        ("filename=/dev/a:/dev/b", "one device"),
        ("size=(4*1024)", "arithmetic"),
        ("direct=2", "neither 0 nor 1"),
        ("thinktime_spin=1", "leave it out"),
    ] {
        let error = fault(lines);
        assert!(error.contains(part), "{lines}: {error}");
    }
    assert_eq!(section("filename=/dev/disk\\:1").filename.as_deref(), Some("/dev/disk:1"));
}

#[test]
fn what_is_switched_off_is_taken() {
    let mut taken = 0;
    for word in words::WORDS.iter().filter(|word| matches!(word.effect, Effect::Refused(_))) {
        assert_eq!(section(&format!("{}=0", word.name)), section(""), "{}", word.name);
        taken += 1;
    }
    assert!(taken > 20, "{taken}");
}

#[test]
fn copies_that_verify_are_told_to_have_regions_of_their_own() {
    let notes = |lines: &str| section(lines).notes;
    let told = notes("rw=write\nverify=md5\nnumjobs=4");
    assert!(told.iter().any(|note| note.contains("1/4 of the region")), "{told:?}");
    for lines in ["verify=md5", "numjobs=4", "verify=md5\nnumjobs=4\noffset_increment=1m"] {
        assert_eq!(notes(lines), Vec::<String>::new(), "{lines}");
    }
}

#[test]
fn a_least_rate_of_one_kind_leaves_the_other_at_zero() {
    let least = |lines: &str| job(lines).rate_min.expect("a least rate");
    let iops = least("rate_iops_min=1000");
    assert_eq!(format!("{} {}", iops.iops, iops.bytes), "1000 0");
    let bytes = least("rate_min=4k");
    assert_eq!(format!("{} {}", bytes.iops, bytes.bytes), "0 4096");
}

#[test]
fn the_table_has_each_word_once() {
    let mut names: Vec<&str> = words::WORDS
        .iter()
        .flat_map(|word| std::iter::once(word.name).chain(word.aliases.iter().copied()))
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(words::find("rate-iops").is_some_and(|word| word.name == "rate_iops"));
}
