//! The verbs that send one command of a host.

use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, pattern, text, weft};

const HOST: [&str; 4] =
    ["-q", "nqn.2024-01.io.example:h", "-I", "11111111-1111-1111-1111-111111111111"];

fn run(target: &Target, verb: &str, words: &str) -> CommandOutput {
    target.weft(verb, 1, &words.split_whitespace().collect::<Vec<&str>>())
}

fn read(target: &Target, blocks: usize) -> Vec<u8> {
    let ran = run(target, "read", &format!("--block-count {blocks}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

#[test]
fn blocks_are_compared_zeroed_and_deallocated() {
    for driver in DRIVERS {
        let folder = Folder::new("verbs");
        let target = Target::start(driver, &["--memory", "8MiB"]);
        // More than one command takes.
        let data = pattern(3 << 20);
        let file = folder.write("data", &data);
        let file = text(&file);
        assert_eq!(run(&target, "write", &format!("--data {file}")).code, Some(0));
        let ran = run(&target, "compare", &format!("--data {file}"));
        assert_eq!(
            (ran.code, ran.stderr.trim()),
            (Some(0), "compared 3145728 bytes with namespace 1")
        );
        let other =
            run(&target, "compare", &format!("--start-block 1 --block-count 8 --data {file}"));
        assert!(other.fault().contains("the blocks hold something else"), "{}", other.stderr);
        assert!(run(&target, "compare", "--fua").fault().contains("for writes"));

        let ran = run(&target, "write-zeroes", "--start-block 2 --block-count 3");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let ran = run(&target, "dsm", "--ad --slbs 10,20 --blocks 1,2");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let mut expected = data.clone();
        for (block, blocks) in [(2, 3), (10, 1), (20, 2)] {
            expected[block * 4096..][..blocks * 4096].fill(0);
        }
        assert!(read(&target, 768) == expected);
        let beyond = run(&target, "write-zeroes", "--start-block 2047 --block-count 2 --deac");
        assert!(beyond.fault().contains("beyond the end"), "{}", beyond.stderr);
        let uneven = run(&target, "dsm", "--ad --slbs 10,20 --blocks 1");
        assert!(uneven.fault().contains("--slbs has 2 ranges"), "{}", uneven.stderr);
        assert!(read(&target, 768) == expected);
    }
}

#[test]
fn features_are_read_and_set() {
    for driver in DRIVERS {
        let target = Target::start(driver, &["--memory", "1MiB"]);
        let queues = run(&target, "get-feature", "-f 7 -o json").json();
        assert_eq!((&queues["feature"], &queues["name"]), (&7.into(), &"Number of Queues".into()));
        assert!(queues["value"].as_u64() > Some(0), "{queues}");
        let text = run(&target, "get-feature", "-f 0x7").text();
        let value = format!("value:{:#010x}", queues["value"].as_u64().expect("a number"));
        assert_eq!(text, format!("get-feature:0x07 (Number of Queues), current {value}\n"));
        let behavior = run(&target, "get-feature", "-f 0x16 -o json").json();
        assert_eq!(behavior["data"].as_str().map(str::len), Some(1024), "{behavior}");

        let protection =
            |nsid: &str| run(&target, "get-feature", &format!("-f 0x84 --nsid {nsid} -o json"));
        assert_eq!(protection("1").json()["value"], 0);
        let set = run(&target, "set-feature", "-f 0x84 --nsid 1 --value 0x1 -o json").json();
        assert_eq!(
            (&set["name"], &set["value"]),
            (&"Namespace Write Protection Config".into(), &1.into())
        );
        assert_eq!(protection("1").json()["value"], 1);
        let refused = run(&target, "write-zeroes", "--block-count 1");
        assert!(refused.fault().contains("write protected"), "{}", refused.stderr);
        assert!(
            run(&target, "set-feature", "-f 0x84 --nsid 1").stderr.contains("value:0x00000000")
        );
        assert_eq!(run(&target, "write-zeroes", "--block-count 1").code, Some(0));
        assert!(
            protection("9").fault().contains("Invalid Namespace"),
            "{}",
            protection("9").stderr
        );
        let unknown = run(&target, "get-feature", "-f 0x79");
        assert!(unknown.fault().contains("Invalid Field"), "{}", unknown.stderr);
    }
}

#[test]
fn a_host_makes_attaches_detaches_and_deletes_a_namespace() {
    let driver = DRIVERS[0];
    let folder = Folder::new("namespaces");
    let config = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         host-namespaces = {{ capacity = \"8MiB\", folder = \"{}\" }}\n\
         [[subsystem.namespace]]\ndevice = \"memory:1MiB\"\n",
        text(&folder.path("made"))
    );
    std::fs::create_dir(folder.path("made")).expect("a folder");
    let file = folder.write("target.toml", config);
    let target = Target::start(driver, &["--config", text(&file)]);
    let url = target.url(1).replace("?nsid=1", "");
    let namespace = |words: &str| {
        let words = words.split_whitespace();
        let first: Vec<&str> = ["namespace"].into_iter().chain(words).chain(HOST).collect();
        weft(driver, first.into_iter().chain(["--", url.as_str()]))
    };
    let there = || {
        let list =
            weft(driver, ["list", "-o", "json"].into_iter().chain(HOST).chain([url.as_str()]));
        list.json()["Devices"].as_array().expect("a list").len()
    };
    let made = namespace("create --nsze 1024 --flbas 1 -o json").json();
    assert_eq!((&made["nsid"], there()), (&2.into(), 1), "it is not attached");
    assert_eq!(namespace("attach --nsid 2").text(), "attached namespace 2\n");
    assert_eq!(there(), 2);
    let again = namespace("attach --nsid 2");
    assert!(again.fault().contains("Already Attached"), "{}", again.stderr);
    // The address may name it as well, once.
    let at = |address: &str, words: &str| {
        let words: Vec<&str> = ["namespace"].into_iter().chain(words.split(' ')).collect();
        weft(driver, words.into_iter().chain(HOST).chain(["--", address]))
    };
    let second = format!("{url}?nsid=2");
    assert!(at(&second, "detach --nsid 3").fault().contains("another one"));
    assert!(at(&second, "create --nsze 8").fault().contains("leave nsid="));
    assert!(at(&url, "detach").fault().contains("give --namespace-id, or ?nsid="));
    assert_eq!(there(), 2);
    assert_eq!(at(&second, "detach -o json").json()["result"], "detached");
    assert_eq!(there(), 1);
    let large = namespace("create --nsze 4096 --flbas 1");
    assert!(large.fault().contains("Insufficient Capacity"), "{}", large.stderr);

    // It asks, and what it asks for is what allows it.
    let refused = at(&second, "delete").fault();
    let address = refused.rsplit_once(' ').expect("words").1.to_owned();
    assert!(refused.contains("--yes-destroy") && address.ends_with("nsid=2"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path("made")).expect("a folder").count(), 1);
    let deleted = namespace(&format!("delete --nsid 2 --yes-destroy {address}"));
    assert_eq!(deleted.text(), "deleted namespace 2\n");
    assert_eq!(std::fs::read_dir(folder.path("made")).expect("a folder").count(), 0);
}

#[test]
fn reservations_are_made_preempted_and_reported() {
    const OTHER: [&str; 4] =
        ["-q", "nqn.2024-01.io.example:i", "-I", "22222222-2222-2222-2222-222222222222"];
    for driver in DRIVERS {
        let target = Target::start(driver, &["--memory", "1MiB"]);
        let url = target.url(1);
        let reserve = |host: [&str; 4], words: &str| {
            let words = words.split_whitespace();
            let words: Vec<&str> = ["reservation"].into_iter().chain(words).chain(host).collect();
            weft(driver, words.into_iter().chain(["--", url.as_str()]))
        };
        let write = |host: [&str; 4]| {
            let words = ["write-zeroes", "--block-count", "1"].into_iter().chain(host);
            weft(driver, words.chain(["--", url.as_str()]))
        };
        let none = reserve(HOST, "report").text();
        assert_eq!(none, "generation 0, reservation none, persistence off, 0 registered\n");
        assert_eq!(reserve(HOST, "register --nrkey 0xa").text(), "registered at namespace 1\n");
        assert_eq!(reserve(OTHER, "register --nrkey 11 -o json").json()["result"], "registered");
        let wrong = reserve(HOST, "acquire --crkey 0xb --rtype 1");
        assert!(wrong.fault().contains("Reservation Conflict"), "{}", wrong.stderr);
        assert_eq!(
            reserve(HOST, "acquire --crkey 0xa --rtype 1").text(),
            "acquired at namespace 1\n"
        );
        assert_eq!((write(HOST).code, write(OTHER).code), (Some(0), Some(1)));

        // The other one takes it away, and with it the registration.
        let preempt = "acquire --crkey 0xb --prkey 0xa --rtype 2 --racqa 1";
        assert_eq!(reserve(OTHER, preempt).text(), "preempted at namespace 1\n");
        assert_eq!((write(HOST).code, write(OTHER).code), (Some(1), Some(0)));
        let report = reserve(OTHER, "report -o json").json();
        assert_eq!((&report["rtype"], &report["regctl"]), (&2.into(), &1.into()));
        let holder = &report["regctlext"][0];
        assert_eq!(
            (&holder["rkey"], &holder["rcsts"], &holder["hostid"]),
            (&11.into(), &1.into(), &OTHER[3].into())
        );
        let text = reserve(OTHER, "report").text();
        assert!(text.contains("reservation Exclusive Access,"), "{text}");
        assert_eq!(
            reserve(OTHER, "release --crkey 11 --rtype 2").text(),
            "released at namespace 1\n"
        );
        assert_eq!(
            reserve(OTHER, "register --crkey 11 --rrega 1").text(),
            "unregistered at namespace 1\n"
        );
        assert_eq!(write(HOST).code, Some(0));
        assert_eq!(reserve(HOST, "report -o json").json()["regctl"], 0);
    }
}

/// Verbs that only treat blocks tell programs how many.
#[test]
fn treated_blocks_are_told_as_json() {
    let folder = Folder::new("verbs-json");
    let target = Target::start(DRIVERS[0], &["--memory", "8MiB"]);
    let block = 4096;
    let file = folder.write("data", pattern(2 * block));
    let (file, out) = (text(&file), folder.path("out"));
    let read_into = format!("--block-count 2 --data {}", text(&out));
    for (verb, words, blocks) in [
        ("write", format!("--data {file}"), 2),
        ("compare", format!("--data {file}"), 2),
        ("read", read_into, 2),
        ("copy", "--sdlba 4 --slbs 0 --blocks 1".to_owned(), 1),
        ("write-zeroes", "--block-count 3".to_owned(), 3),
        ("dsm", "--ad --slbs 10,20 --blocks 1,2".to_owned(), 3),
        ("flush", String::new(), 0),
    ] {
        let told = run(&target, verb, &format!("{words} -o json")).json();
        assert_eq!(
            (&told["nsid"], &told["bytes"]),
            (&1.into(), &(blocks * block).into()),
            "{verb}"
        );
    }
    let fault = run(&target, "read", "--block-count 1 -o json").fault();
    assert!(fault.contains("--data FILE"), "{fault}");
    target.stop();
}
