use super::*;

/// As `nvmetcli save` dumps two ports (one of them RDMA), two subsystems and three namespaces: the
/// names and the text values are those of `nvmet/nvme.py`.
const SAVED: &str = r#"{
  "hosts": [
    {
      "nqn": "nqn.2014-08.org.nvmexpress:host"
    }
  ],
  "ports": [
    {
      "addr": {
        "adrfam": "ipv4",
        "traddr": "192.168.0.1",
        "treq": "not specified",
        "trsvcid": "4420",
        "trtype": "rdma",
        "tsas": "none"
      },
      "ana_groups": [],
      "param": {},
      "portid": 1,
      "referrals": [],
      "subsystems": ["nqn.2014-08.org.nvmexpress:test"]
    },
    {
      "addr": {
        "adrfam": "ipv6",
        "traddr": "::",
        "treq": "not specified",
        "trsvcid": "4420",
        "trtype": "tcp",
        "tsas": "none"
      },
      "ana_groups": [
        {
          "ana": {
            "state": "optimized"
          },
          "grpid": 1
        }
      ],
      "param": {
        "inline_data_size": "8192",
        "max_queue_size": "128",
        "pi_enable": "0"
      },
      "portid": 2,
      "referrals": [
        {
          "addr": {
            "adrfam": "ipv4",
            "portid": "7",
            "traddr": "192.168.0.2",
            "treq": "not specified",
            "trsvcid": "8009",
            "trtype": "tcp"
          },
          "enable": 1,
          "name": "other"
        }
      ],
      "subsystems": ["nqn.2014-08.org.nvmexpress:test"]
    }
  ],
  "subsystems": [
    {
      "allowed_hosts": ["nqn.2014-08.org.nvmexpress:host"],
      "attr": {
        "allow_any_host": "0",
        "cntlid_max": "65519",
        "cntlid_min": "1",
        "firmware": "6.12",
        "model": "Linux",
        "serial": "3d83c78b76623f1d",
        "version": "1.3"
      },
      "namespaces": [
        {
          "ana": {
            "grpid": "1"
          },
          "ana_grpid": 1,
          "device": {
            "nguid": "00000000-0000-0000-0000-000000000000",
            "path": "/dev/nvme0n1",
            "uuid": "26ffc8ce-73b4-321d-9685-7d7a9872c460"
          },
          "enable": 0,
          "nsid": 1
        },
        {
          "device": {
            "nguid": "ef90689c-6c46-d44c-89c1-4067801309a8",
            "path": "/dev/nullb0",
            "uuid": "00000000-0000-0000-0000-000000000000"
          },
          "enable": 1,
          "nsid": 2
        },
        {
          "device": {
            "path": "/srv/disk.img",
            "uuid": "99451596-9675-4382-bff8-b78ee34de567"
          },
          "enable": 1,
          "nsid": 3
        }
      ],
      "nqn": "nqn.2014-08.org.nvmexpress:test"
    },
    {
      "allowed_hosts": [],
      "attr": {
        "allow_any_host": "1"
      },
      "namespaces": [],
      "nqn": "nqn.2014-08.org.nvmexpress:second"
    }
  ]
}
"#;

fn read(text: &str) -> Result<ImportResult, ConfigError> {
    parse_with(text, &|path| path.starts_with("/dev"))
}

fn fault(from: &str, to: &str) -> String {
    assert!(SAVED.contains(from), "{from}");
    read(&SAVED.replacen(from, to, 1)).expect_err(to).to_string()
}

#[test]
fn what_nvmetcli_saves_is_read() {
    let ImportResult { config, notes } = read(SAVED).expect("a saved configuration");
    let mut port = Port::new(2, "tcp://[::]:4420".parse().expect("an address"));
    port.subsystems = PortSubsystems::Only(vec!["nqn.2014-08.org.nvmexpress:test".to_owned()]);
    let address = "tcp://192.168.0.2:8009".parse().expect("an address");
    port.referrals.push(Referral { address, port_id: 7, subsystem: None });
    let rdma = "rdma://192.168.0.1:4420".parse().expect("an address");
    let mut first = Port::new(1, rdma);
    first.subsystems = port.subsystems.clone();
    assert_eq!(config.ports, [first, port]);
    // The first port has the defaults, and the largest wins.
    assert_eq!((config.limits.in_capsule_bytes, config.limits.queue_entries), (16384, 1024));

    let first = &config.subsystems[0];
    assert_eq!(first.allowed_hosts, Some(vec!["nqn.2014-08.org.nvmexpress:host".to_owned()]));
    assert_eq!(first.serial(), "3d83c78b76623f1d");
    assert_eq!((first.model.as_str(), first.firmware.as_str()), ("Linux", "6.12"));
    assert_eq!(first.namespaces.len(), 2);
    let null = &first.namespaces[0];
    let block = DeviceSpec::Block {
        path: "/dev/nullb0".into(),
        read_only: false,
        shared: false,
        polled: false,
    };
    assert_eq!(null.device, block);
    assert_eq!((null.nsid, null.uuid, null.nguid.map(|id| id[0])), (2, None, Some(0xef)));
    let file = &first.namespaces[1];
    assert!(matches!(&file.device, DeviceSpec::File { path, .. } if path.ends_with("disk.img")));
    assert_eq!((file.nsid, file.uuid.map(|id| id[15]), file.nguid), (3, Some(0x67), None));
    assert_eq!(config.subsystems[1].allowed_hosts, None);

    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("subsystems[0].namespaces[0]"), "{notes:?}");
}

#[test]
fn a_transport_that_is_not_served_is_left_out() {
    let text = SAVED.replace("\"trtype\": \"rdma\"", "\"trtype\": \"fc\"");
    let ImportResult { config, notes } = read(&text).expect("a saved configuration");
    assert_eq!((config.ports.len(), config.ports[0].id), (1, 2));
    assert_eq!((config.limits.in_capsule_bytes, config.limits.queue_entries), (8192, 128));
    assert!(notes[0].starts_with("ports[0]") && notes[0].contains("fc"), "{notes:?}");
}

#[test]
fn access_states_are_read_where_they_say_something() {
    let plain = read(SAVED).expect("a saved configuration").config;
    assert!(plain.subsystems.iter().all(|one| !one.ana_reporting));
    let text = SAVED.replacen("\"state\": \"optimized\"", "\"state\": \"inaccessible\"", 1);
    let ImportResult { config, .. } = read(&text).expect("a saved configuration");
    let (first, port) = (&config.subsystems[0], &config.ports[1]);
    assert!(first.ana_reporting && !config.subsystems[1].ana_reporting);
    assert_eq!(first.ana_groups(), [1]);
    assert_eq!(port.ana_state(&first.nqn, 1), AnaState::Inaccessible);
    assert_eq!(config.ports[0].ana_state(&first.nqn, 1), AnaState::Optimized);
    let bad = fault("\"state\": \"optimized\"", "\"state\": \"best\"");
    assert!(bad.contains("ports[1].ana_groups[0].ana.state") && bad.contains("best"), "{bad}");
}

#[test]
fn ignored_settings_are_noted() {
    let noted = |from: &str, to: &str| {
        assert!(SAVED.contains(from), "{from}");
        let loaded = read(&SAVED.replacen(from, to, 1)).expect(to);
        // The first is of the namespace that is not enabled.
        let notes = loaded.notes.into_iter().filter(|note| !note.contains("not enabled"));
        (notes.collect::<Vec<_>>().join("\n"), loaded.config.limits.io_queues)
    };
    let model = "\"model\": \"Linux\"";
    let (unknown, _) = noted(model, "\"ieee_oui\": \"0x1\"");
    assert_eq!(unknown, "subsystems[0].attr.ieee_oui: this attribute is left aside");
    let (unknown, _) = noted("\"pi_enable\": \"0\"", "\"mdts\": \"5\"");
    assert_eq!(unknown, "ports[1].param.mdts: this attribute is left aside");
    let (unknown, _) =
        noted("\"path\": \"/srv/disk.img\",", "\"path\": \"/x\", \"p2pmem\": \"1\",");
    assert_eq!(unknown, "subsystems[0].namespaces[2].device.p2pmem: this attribute is left aside");

    assert_eq!(noted(model, "\"qid_max\": \"200\""), (String::new(), 200));
    assert_eq!(noted(model, "\"qid_max\": \"4\""), (String::new(), 128));
    let both = SAVED.replacen("\"serial\"", "\"qid_max\": \"8\", \"serial\"", 1).replacen(
        "\"allow_any_host\": \"1\"",
        "\"allow_any_host\": \"1\", \"qid_max\": \"4\"",
        1,
    );
    let loaded = read(&both).expect("bounds below the default are kept");
    let most = |one: &crate::config::Subsystem| one.qid_max.map(std::num::NonZeroU16::get);
    let each: Vec<_> = loaded.config.subsystems.iter().map(most).collect();
    assert_eq!((loaded.config.limits.io_queues, each), (128, vec![Some(8), Some(4)]));
}

#[test]
fn an_empty_allow_list_refuses_every_host() {
    let text = SAVED.replace("\"allow_any_host\": \"1\"", "\"version\": \"1.3\"");
    let config = read(&text).expect("a saved configuration").config;
    assert_eq!(config.subsystems[1].allowed_hosts, Some(Vec::new()));
}

#[test]
fn numbers_and_truth_values_of_hand_edited_files_are_read() {
    let text = SAVED
        .replace("\"allow_any_host\": \"1\"", "\"allow_any_host\": true")
        .replace("\"trsvcid\": \"8009\"", "\"trsvcid\": 8009")
        .replace("\"enable\": 0", "\"enable\": \"0\"");
    let config = read(&text).expect("a saved configuration").config;
    assert_eq!(config.subsystems[1].allowed_hosts, None);
    assert_eq!(config.subsystems[0].namespaces.len(), 2);
}

#[test]
fn faults_are_named_as_they_stand_in_the_file() {
    let port = fault("\"traddr\": \"::\"", "\"traddr\": \"storage\"");
    assert!(port.starts_with("`ports[1].addr.traddr`: \"storage\" is no IP address"), "{port}");
    let family = fault("\"traddr\": \"::\"", "\"traddr\": \"10.0.0.1\"");
    assert!(family.starts_with("`ports[1].addr.adrfam`"), "{family}");
    let service = fault("\"trsvcid\": \"8009\"", "\"trsvcid\": \"nvme\"");
    assert!(service.starts_with("`ports[1].referrals[0].addr.trsvcid`"), "{service}");
    let nsid = fault("\"nsid\": 3", "\"nsid\": 2");
    assert!(nsid.starts_with("`subsystems[0].namespaces[2].nsid`"), "{nsid}");
    let uuid = fault("99451596-9675", "99451596-967");
    assert!(uuid.starts_with("`subsystems[0].namespaces[2].device.uuid`"), "{uuid}");
    let path = fault("/srv/disk.img", "");
    assert!(path.starts_with("`subsystems[0].namespaces[2].device.path`"), "{path}");
    let serial = fault("3d83c78b76623f1d", "a serial number of more than twenty letters");
    assert!(serial.starts_with("`subsystems[0].attr.serial`"), "{serial}");
    let cntlid = fault("\"cntlid_max\": \"65519\"", "\"cntlid_max\": \"70000\"");
    assert!(cntlid.starts_with("`subsystems[0].attr.cntlid_max`"), "{cntlid}");
    let syntax = fault("\"portid\": 2,", "\"portid\": 2");
    assert!(syntax.starts_with("line 46: "), "{syntax}");
    let missing = fault("\"portid\": 2,", "");
    assert!(missing.contains("portid"), "{missing}");
}

#[test]
fn security_that_is_asked_for_is_never_dropped() {
    let key = fault(
        "\"nqn\": \"nqn.2014-08.org.nvmexpress:host\"",
        "\"nqn\": \"nqn.2014-08.org.nvmexpress:host\", \"dhchap_key\": \"DHHC-1:00:x\"",
    );
    assert!(
        key.starts_with(
            "`hosts[0].dhchap_key`: host \"nqn.2014-08.org.nvmexpress:host\" has a key"
        ),
        "{key}"
    );
    let group = "\"nqn\": \"nqn.2014-08.org.nvmexpress:host\", \
                 \"dhchap\": {\"key\": \"DHHC-1:00:x\", \"hash\": \"x\"}";
    assert!(
        fault("\"nqn\": \"nqn.2014-08.org.nvmexpress:host\"", group)
            .starts_with("`hosts[0].dhchap`")
    );
    let none = "\"nqn\": \"nqn.2014-08.org.nvmexpress:host\", \
                \"dhchap\": {\"key\": \"\", \"hash\": \"hmac(sha256)\"}";
    assert!(read(&SAVED.replace("\"nqn\": \"nqn.2014-08.org.nvmexpress:host\"", none)).is_ok());
    let tls = SAVED.replace("\"tsas\": \"none\"", "\"tsas\": \"tls1.3\"");
    assert!(read(&tls).is_err_and(|e| e.key() == "ports[0].addr.tsas"));
    let required = SAVED.replace("\"treq\": \"not specified\"", "\"treq\": \"required\"");
    assert!(read(&required).is_err_and(|e| e.key() == "ports[0].addr.treq"));
}

#[test]
fn no_cut_of_the_file_passes_or_panics() {
    for end in 0..SAVED.trim_end().len() {
        assert!(read(&SAVED[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_path_that_is_not_there_is_judged_by_its_place() {
    assert!(is_block_device(Path::new("/dev/there-is-no-such-device")));
    assert!(!is_block_device(Path::new("/there/is/no/such/file")));
    assert!(!is_block_device(Path::new("/dev/null")), "a character device");
}
