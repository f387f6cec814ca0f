use super::*;
use crate::study::site::end::RdmaEnd;

fn end(address: &str, mtu: u64, speed: u64) -> End {
    End {
        address: address.parse().expect(address),
        prefix: 24,
        interface: "roce0".to_owned(),
        driver: "mlx5_core".to_owned(),
        mtu,
        speed_mbit_per_s: Some(speed),
        carrier: true,
        numa_node: Some(0),
        queues: (8, 8),
        rdma: None,
    }
}

fn found(machine: &str, end: Option<End>) -> FoundEnd {
    FoundEnd {
        link: "roce100".to_owned(),
        machine: machine.to_owned(),
        address: "192.0.2.1".parse().expect("an address"),
        end,
        ethtool: [("tso".to_owned(), "on".to_owned())].into(),
    }
}

fn way(gbit: f64, through: f64) -> FoundWay {
    let bytes_per_s = gbit * 1e9 / 8.0;
    FoundWay {
        link: "roce100".to_owned(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        bytes_per_s,
        through_interface: bytes_per_s * through,
        ..FoundWay::default()
    }
}

fn said(ends: [Option<End>; 2], way: FoundWay) -> Vec<String> {
    let [one, other] = ends;
    let machine =
        |name: &str| FoundMachine { name: name.to_owned(), root: true, ..FoundMachine::default() };
    remarks(&Findings {
        machines: vec![machine("a"), machine("b")],
        ends: vec![found("a", one), found("b", other)],
        ways: vec![way],
        ..Findings::default()
    })
}

#[test]
fn a_link_without_a_fault_has_no_remark() {
    let ends = [("192.0.2.1", 9000), ("192.0.2.2", 9000)];
    let ends = ends.map(|(address, mtu)| Some(end(address, mtu, 100_000)));
    assert_eq!(said(ends, way(90.0, 1.01)), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_link_is_said() {
    let good = || Some(end("192.0.2.2", 9000, 100_000));
    let one = |change: fn(&mut End)| {
        let mut one = end("192.0.2.1", 9000, 100_000);
        change(&mut one);
        [Some(one), good()]
    };
    let roce = |kind: &str| RdmaEnd {
        device: "mlx5_0".to_owned(),
        port: 1,
        link_layer: "Ethernet".to_owned(),
        gid: String::new(),
        gid_index: 0,
        gid_kind: kind.to_owned(),
    };
    for (ends, way, part) in [
        (one(|end| end.mtu = 1500), way(90.0, 1.0), "MTU is 1500 at a and 9000 at b"),
        (one(|end| end.carrier = false), way(90.0, 1.0), "roce0 of a has no carrier"),
        (one(|end| end.speed_mbit_per_s = None), way(90.0, 1.0), "different speeds"),
        ([None, good()], way(90.0, 1.0), "a does not have the address 192.0.2.1"),
        ([good(), good()], way(30.0, 1.0), "carries 30 % of 100000 Mb/s"),
        ([good(), good()], way(90.0, 0.01), "went over another interface"),
    ] {
        let said = said(ends, way);
        assert!(said.len() == 1 && said[0].contains(part), "{part}: {said:?}");
    }
    let mut both = [good(), good()];
    both.iter_mut().flatten().for_each(|end| end.rdma = Some(roce("IB/RoCE v1")));
    let lines = said(both, way(90.0, 1.0));
    assert!(
        lines.len() == 2 && lines[0].contains("mlx5_0 of a has no GID of RoCE v2"),
        "{lines:?}"
    );
    let mut only = [good(), good()];
    only[0].iter_mut().for_each(|end| end.rdma = Some(roce("RoCE v2")));
    let lines = said(only, way(90.0, 1.0));
    assert!(lines.len() == 1 && lines[0].contains("only one of a and b"), "{lines:?}");
}
