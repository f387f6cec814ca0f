use super::*;

fn parsed(text: &str) -> WhatIf {
    text.parse().expect(text)
}

/// Every part has its word, alone or with others, and the words of a device are those of a target.
#[test]
fn what_is_replaced_is_said_in_words() {
    let link = WhatIf {
        link: Some(25e9),
        rtt: Some(Duration::from_micros(30)),
        cores: [Some(2), Some(8)],
        ..WhatIf::default()
    };
    assert_eq!(parsed("link=25Gb/s,rtt=30us,host-cores=2,target-cores=8"), link);
    let device = |read, write| WhatIf {
        device: Some([read, write].map(Duration::from_micros)),
        ..WhatIf::default()
    };
    assert_eq!(parsed("device=delay:read=80us,write=20us"), device(80, 20));
    assert_eq!(parsed("device=delay:both=1ms"), device(1000, 1000));
    let both = parsed("rtt=30us,device=delay:write=20us");
    assert_eq!(both, WhatIf { rtt: link.rtt, ..device(0, 20) });
    assert_eq!(both.clone().and(parsed("link=100Mb/s")).map(|one| one.link), Ok(Some(1e8)));
    assert_eq!(both.and(parsed("rtt=1us")), Err("rtt is given twice".to_owned()));
    let words = link.words([" (a)", ""]);
    assert!(
        words.contains("a link of 25.0 Gb/s; a round trip of 30us; 2 host cores (a);"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_replaced_is_refused_in_a_sentence() {
    for (text, why) in [
        ("lnk=25Gb/s", "\"lnk\" cannot be replaced, did you mean link?"),
        ("colour=red", "\"colour\" cannot be replaced (use link, rtt, device, host-cores"),
        ("link=25", "\"25\" is no speed of a link (try 25Gb/s"),
        ("link=25GB/s", "is no speed of a link"),
        ("link=-1Gb/s", "is no speed of a link"),
        ("rtt=30", "\"30\" is not a span of time"),
        ("rtt", "\"rtt\" has no ="),
        ("target-cores=0", "\"0\" is no number of cores"),
        ("host-cores=9999", "\"9999\" is no number of cores (1 to 8192)"),
        ("device=memory:1GiB", "is no delay (try delay:read=80us"),
        ("device=delay:read=80", "\"80\" is not a span of time"),
        ("device=delay:reads=80us", "did you mean read?"),
        ("device=delay:read=80us:memory:1GiB", "is no delay"),
        ("link=1Gb/s,link=2Gb/s", "link is given twice"),
    ] {
        let error = text.parse::<WhatIf>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// A device is taken out and another put in; what is not known for sure is at the ends.
#[test]
fn a_part_is_taken_out_before_another_is_put_in() {
    let measured = Network {
        host_cores: 1,
        target_cores: 1,
        delays_ns: vec![60_000.0, 70_000.0, 80_000.0],
        device_width: 4.0,
        ..Network::default()
    };
    let parts = Parts {
        device_ns: vec![30_000.0, 40_000.0, 50_000.0],
        slower: [[1.0; 3]; 2],
        cores: [1, 1],
        read_part: 1.0,
        trips: 1.0,
        rtt_ns: [10_000.0, 5_000.0, 12_000.0],
        ..Parts::default()
    };
    let middle = |what: &str| {
        let of = |network: Network| between(&network.delays_ns, 0.5) + network.wire_ns;
        parsed(what).replaced(&measured, &parts).map(of)
    };
    assert_eq!(middle("device=delay:read=80us"), [110_000.0, 100_000.0, 120_000.0]);
    assert_eq!(middle("rtt=30us"), [90_000.0, 88_000.0, 95_000.0]);
    let [network, ..] = parsed("device=delay:read=80us").replaced(&measured, &parts);
    assert_eq!(network.device_width, f64::INFINITY);
    let half = mixed([Duration::from_micros(80), Duration::from_micros(20)], 0.5);
    assert_eq!((half[0], half[24], half[25], half[49]), (20e3, 20e3, 80e3, 80e3));
}
