//! `weft ctl` as a person uses it.

use serde_json::json;

use crate::control::{call, waiting};
use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, text, weft};

/// Runs `weft ctl` for the target at this address.
fn ctl(control: &str, words: &str) -> CommandOutput {
    weft(DRIVERS[0], ["ctl", "--control", control].into_iter().chain(words.split(' ')))
}

/// Whether a text has words of methods or of a configuration's file: names with underscores, places
/// in a file, and what SPDK's errors begin with.
fn is_of_another_interface(text: &str) -> bool {
    let is_name = |word: &str| {
        let mut parts = word.split('_');
        let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase());
        word.contains('_') && parts.all(is_word)
    };
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let kinds = ["Invalid ", "No such device", "File exists:", "`", "[0]", "[1]", " = "];
    words.any(is_name) || kinds.iter().any(|kind| text.contains(kind))
}

/// Whatever is wrong with a command, one sentence says it in the words of these commands.
#[test]
fn what_is_wrong_is_said_in_the_words_of_ctl() {
    let folder = Folder::new("ctl-words");
    let words = ["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0", "--nqn", "nqn.own"];
    let (target, _client) = waiting(&folder, &words);
    let control = target.said["control"].as_str().expect("said").to_owned();
    let (disk, missing) = (folder.path("disk"), folder.path("missing"));
    let (disk, missing) = (text(&disk), text(&missing));
    for made in [
        format!("subsystem create {NQN}"),
        format!("namespace add {NQN} --null 1MiB --nsid 4"),
        format!("namespace add {NQN} --file {disk},size=1MiB --nsid 5"),
        "bdev create spare null:1MiB".to_owned(),
    ] {
        ctl(&control, &made).text();
    }
    let listed = ctl(&control, "namespace list -o json").json();
    assert_eq!(listed.as_array().map(Vec::len), Some(3));
    let long = "x".repeat(41);
    let host = "nqn.2014-08.org.example:h";
    for (wrong, part) in [
        (format!("subsystem create {NQN}"), "exists"),
        ("subsystem create notannqn".to_owned(), "begins with \"nqn.\""),
        (format!("subsystem create nqn.n --serial {long}"), "serial number"),
        (format!("subsystem create nqn.n --model {long}"), "model number"),
        ("subsystem create nqn.n --max-namespaces 4294967295".to_owned(), "out of range"),
        ("subsystem delete nqn.no".to_owned(), "no subsystem nqn.no"),
        ("namespace add nqn.no --null 1MiB".to_owned(), "no subsystem nqn.no"),
        (format!("namespace add {NQN} --bdev no"), "no block device no"),
        (format!("namespace add {NQN} --null 1MiB --nsid 4"), "has a namespace 4"),
        (format!("namespace add {NQN} --null 1MiB --nsid 4000000000"), "above"),
        (format!("namespace add {NQN} --null 1"), "1"),
        (format!("namespace add {NQN} --file {missing}"), "missing"),
        (format!("namespace add {NQN} --file {disk}"), "disk"),
        (format!("namespace remove {NQN} 9"), "no namespace 9"),
        (format!("namespace resize {NQN} 9 1MiB"), "no namespace 9"),
        (format!("namespace resize {NQN} 5 4KiB"), "not made smaller"),
        ("namespace list nqn.no".to_owned(), "no subsystem nqn.no"),
        (format!("namespace add-host {NQN} 4 {host}"), "every host sees it"),
        (format!("namespace remove-host {NQN} 9 {host}"), "no namespace 9"),
        ("listener add nqn.no tcp://127.0.0.1:0".to_owned(), "no subsystem nqn.no"),
        (format!("listener add {NQN} tcp://192.0.2.1:4420"), "192.0.2.1"),
        (format!("listener add {NQN} rdma://127.0.0.1:0 --tls required"), "TLS"),
        (format!("listener remove {NQN} tcp://192.0.2.1:4420"), "not served"),
        (format!("host allow {NQN} notannqn"), "begins with \"nqn.\""),
        (format!("host allow {NQN} {host} --psk no"), "no key \"no\""),
        (format!("host allow {NQN} {host} --dhchap-key no"), "no key \"no\""),
        (format!("host set-keys {NQN} {host} --psk no"), "not listed"),
        (format!("host remove {NQN} {host}"), "not listed"),
        (format!("key add a/b {disk}"), "no name for a key"),
        (format!("key add k {missing}"), "missing"),
        ("key remove no".to_owned(), "no key \"no\""),
        (format!("ana set {NQN} tcp://192.0.2.1:4420 inaccessible"), "access states"),
        (format!("ana group {NQN} 4 1"), "access states"),
        ("bdev create spare null:1MiB".to_owned(), "exists"),
        ("bdev create other null:1".to_owned(), "1"),
        ("bdev delete no".to_owned(), "no block device no"),
        ("rate-limit set".to_owned(), "rate"),
        ("rate-limit set --rate-iops 0".to_owned(), "rate-iops"),
        ("rate-limit set --rate 1MiB".to_owned(), "force"),
        ("rate-limit set --rate 1GiB --burst 2h".to_owned(), "burst"),
        ("rate-limit set --rate 1GiB --burst soon".to_owned(), "soon"),
        ("rate-limit delete --host nqn.x".to_owned(), "no rate limit"),
        ("qos set --class latency --weight 0".to_owned(), "weight"),
        ("qos delete --host nqn.x".to_owned(), "no rule"),
        ("pair show".to_owned(), "pair"),
        ("pair hand-over".to_owned(), "pair"),
        ("controller list nqn.no".to_owned(), "no subsystem nqn.no"),
        ("reload".to_owned(), "--config FILE"),
    ] {
        let ran = ctl(&control, &wrong);
        assert_ne!(ran.code, Some(0), "{wrong}");
        let said = ran.stderr.lines().next().unwrap_or_default();
        assert!(said.contains(part), "{wrong}: {said}");
        assert!(!is_of_another_interface(said), "{wrong}: {said}");
    }
    let called = ctl(&control, "call nvmf_get_subsystems {\"nqn\":\"nqn.no\"}").fault();
    assert!(called.contains("No such device: "), "as the method has it: {called}");
    target.stop();
}

/// What takes data or a namespace from hosts is asked for, and a script has to name it.
#[test]
fn what_is_in_use_is_neither_cut_nor_deleted_unless_it_is_named() {
    let folder = Folder::new("ctl-destroys");
    let (target, _client) = waiting(&folder, &[]);
    let control = target.said["control"].as_str().expect("said").to_owned();
    for made in [
        "bdev create used memory:2MiB".to_owned(),
        "bdev create spare null:1MiB".to_owned(),
        format!("subsystem create {NQN}"),
        format!("namespace add {NQN} --bdev used"),
        format!("namespace add {NQN} --memory 2MiB"),
    ] {
        ctl(&control, &made).text();
    }
    let bdevs = || ctl(&control, "bdev list -o json").json();
    let before = bdevs();
    let second = format!("{NQN}:2");
    for (change, name, part) in [
        (format!("namespace resize {NQN} 1 1MiB"), format!("{NQN}:1"), "takes 1MiB of 2MiB"),
        (format!("namespace resize {NQN} 2 1MiB"), second.clone(), "takes 1MiB of 2MiB"),
        ("bdev delete used".to_owned(), "used".to_owned(), "takes namespace 1 of"),
    ] {
        for words in [&change, &format!("{change} --yes-destroy spare")] {
            let fault = ctl(&control, words).fault();
            assert!(fault.contains(part), "{fault}");
            assert!(fault.contains(&format!("--yes-destroy {name}")), "{fault}");
            assert_eq!(bdevs(), before, "{words}");
        }
    }
    for allowed in [
        format!("namespace resize {NQN} 1 4MiB"),
        format!("namespace resize {NQN} 2 1MiB --yes-destroy {second}"),
        "bdev delete spare".to_owned(),
        "bdev delete used --yes-destroy used".to_owned(),
    ] {
        ctl(&control, &allowed).text();
    }
    let left = bdevs();
    assert_eq!((left.as_array().map(Vec::len), &left[0]["num_blocks"]), (Some(1), &json!(256)));
    target.stop();
}

#[test]
fn a_subsystem_that_is_made_says_where_it_is_served() {
    let folder = Folder::new("ctl-where");
    let words = ["--memory", "1MiB", "--listen", "tcp://127.0.0.1:0", "--nqn", "nqn.own"];
    for (words, part) in [(&words[..], "served at tcp://127.0.0.1:"), (&[], "served nowhere")] {
        let (target, _client) = waiting(&folder, words);
        let control = target.said["control"].as_str().expect("said").to_owned();
        let said = ctl(&control, &format!("subsystem create {NQN}")).text();
        assert!(said.starts_with(part), "{said}");
        let addresses = ctl(&control, "subsystem list -o json").json();
        let made = addresses.as_array().expect("a list").iter().find(|one| one["nqn"] == NQN);
        let listed = made.expect("it is there")["listen_addresses"].as_array().map(Vec::len);
        assert_eq!(listed, Some(words.len() / 6), "as it says");
        target.stop();
    }
}

/// The interface of a link-local address is kept from the command to the list.
#[test]
fn a_link_local_address_is_shown_with_its_interface() {
    let folder = Folder::new("ctl-link-local");
    let state = folder.path("state.json");
    let words = ["--state", text(&state)];
    let (target, mut client) = waiting(&folder, &words);
    let control = target.said["control"].as_str().expect("said").to_owned();
    // A referral, as nobody listens at it: machines have no link-local address on `lo`.
    let at = json!({"trtype": "TCP", "adrfam": "IPv6", "traddr": "fe80::1%lo", "trsvcid": "8009"});
    let add = format!("call nvmf_discovery_add_referral {}", json!({"address": at}));
    ctl(&control, &add).text();
    let shown = crate::control::call(&mut client, "nvmf_discovery_get_referrals", json!({}));
    assert_eq!(shown.expect("a list")[0]["address"]["traddr"], "fe80::1%lo");
    ctl(&control, &format!("subsystem create {NQN}")).text();
    // An address that is not here is told as it was given.
    let refused = ctl(&control, &format!("listener add {NQN} tcp://[fe80::2%lo]:0")).fault();
    assert!(refused.contains("[fe80::2%lo]:0"), "{refused}");
    target.stop();
    let text = std::fs::read_to_string(&state).expect("a state");
    assert!(text.contains("fe80::1%lo"), "numbers may be other ones after a start: {text}");
    let (target, mut client) = waiting(&folder, &words);
    let kept = crate::control::call(&mut client, "nvmf_discovery_get_referrals", json!({}));
    assert_eq!(kept.expect("a list")[0]["address"]["traddr"], "fe80::1%lo");
    target.stop();
}

/// Parameters without an option of their own are given by their names.
#[test]
fn every_parameter_of_a_subsystem_and_a_namespace_can_be_set() {
    let folder = Folder::new("ctl-set");
    let (target, mut client) = waiting(&folder, &[]);
    let control = target.said["control"].as_str().expect("said").to_owned();
    ctl(
        &control,
        "subsystem create nqn.2026-01.io.weft:set --set qid-max=2 --set admin_label=shelf",
    )
    .text();
    ctl(
        &control,
        "namespace add nqn.2026-01.io.weft:set --memory 1MiB --set read_only=true \
         --set nguid=00112233445566778899aabbccddeeff",
    )
    .text();
    assert!(ctl(&control, "namespace list").text().contains(" all"), "every host sees it");
    ctl(&control, "namespace add nqn.2026-01.io.weft:set --null 1MiB --no-auto-visible").text();
    assert!(ctl(&control, "namespace list").text().contains(" none"));
    ctl(&control, "namespace add-host nqn.2026-01.io.weft:set 2 nqn.2014-08.org.example:h").text();
    let listed = ctl(&control, "namespace list").text();
    assert!(listed.contains(" nqn.2014-08.org.example:h"), "{listed}");
    let saved = call(&mut client, "framework_get_config", json!({"name": "nvmf"})).expect("it");
    let saved = saved.to_string();
    for part in ["\"qid_max\":2", "\"admin_label\":\"shelf\"", "\"read_only\":true"] {
        assert!(saved.contains(part), "{part}: {saved}");
    }
    let fault = ctl(&control, "subsystem create nqn.2026-01.io.weft:b --set no_such=1").fault();
    assert!(fault.contains("no_such") || fault.contains("no-such"), "{fault}");
    let ran = ctl(&control, "subsystem create nqn.2026-01.io.weft:b --set qid");
    assert!(ran.code != Some(0) && ran.stderr.contains("KEY=VALUE"), "{}", ran.stderr);
    target.stop();
}
