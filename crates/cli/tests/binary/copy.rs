//! `weft copy` between namespaces of a target.

use crate::weft::{CommandOutput, DRIVERS, Folder, NQN, Target, pattern, text, weft_with_stdin};

/// Two namespaces of 96 MiB, one with other blocks, and one with a block that cannot be read.
fn start(driver: &'static str) -> (Target, Folder) {
    let unreadable =
        "fault:operation=read,first-block=500,last-block=500,effect=media-read:memory:4MiB";
    let devices = ["memory:96MiB", "memory:96MiB", "memory:1MiB,block=512", unreadable];
    let namespaces: String = devices
        .iter()
        .map(|device| format!("[[subsystem.namespace]]\ndevice = \"{device}\"\n"))
        .collect();
    let text_of = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
    );
    let folder = Folder::new("copy");
    let file = folder.path("target.toml");
    std::fs::write(&file, text_of).expect("a file");
    (Target::start(driver, &["--config", text(&file)]), folder)
}

fn copy(target: &Target, nsid: u32, words: &str) -> CommandOutput {
    target.weft("copy", nsid, &words.split(' ').collect::<Vec<&str>>())
}

fn read(target: &Target, nsid: u32, block: u64, blocks: usize) -> Vec<u8> {
    let (block, blocks) = (block.to_string(), blocks.to_string());
    let ran = target.weft("read", nsid, &["--start-block", &block, "--block-count", &blocks]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

#[test]
fn blocks_are_copied_in_as_many_commands_as_it_takes() {
    for driver in DRIVERS {
        let (target, _folder) = start(driver);
        let data = pattern(40 << 20);
        let wrote = weft_with_stdin(driver, &["write", &target.url(1)], &data);
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
        // More blocks than one command copies.
        let ran = copy(&target, 1, "--sdlba 10240 --slbs 0 --blocks 10240 --fua");
        assert!(ran.stderr.contains("copied 41943040 bytes to namespace 1"), "{}", ran.stderr);
        assert!(read(&target, 1, 10240, 10240) == data);
        // More ranges than one command has, of both namespaces.
        let block = |block: usize| &data[block * 4096..][..4096];
        let wrote = weft_with_stdin(driver, &["write", &target.url(2)], block(77));
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
        let list = |one: &dyn Fn(usize) -> usize| {
            let all: Vec<String> = (0..300).map(|at| one(at).to_string()).collect();
            all.join(",")
        };
        let own = |at: usize| at % 7 == 3;
        let slbs = list(&|at| if own(at) { 0 } else { 2 * (299 - at) });
        let snsids = list(&|at| if own(at) { 2 } else { 1 });
        let words =
            format!("--sdlba 1000 --slbs {slbs} --blocks {} --snsids {snsids}", list(&|_| 1));
        let ran = copy(&target, 2, &words);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let expected: Vec<u8> = (0..300)
            .flat_map(|at| if own(at) { block(77) } else { block(2 * (299 - at)) })
            .copied()
            .collect();
        assert!(read(&target, 2, 1000, 300) == expected);
        assert!(read(&target, 2, 1300, 1) == [0; 4096]);
        target.stop();
    }
}

#[test]
fn what_cannot_be_copied_is_named_and_nothing_else_is_changed() {
    let (target, _folder) = start(DRIVERS[0]);
    let data = pattern(2 * 4096);
    for nsid in [1, 4] {
        let wrote = weft_with_stdin(DRIVERS[0], &["write", &target.url(nsid)], &data);
        assert_eq!(wrote.code, Some(0), "{}", wrote.stderr);
    }
    for (words, told) in [
        ("--sdlba 5 --slbs 100,0 --blocks 1,10", "blocks 0 to 9 overlap"),
        ("--sdlba 5 --slbs 0 --blocks 2 --snsids 3", "namespace 3 has blocks of 512 bytes"),
        ("--sdlba 5 --slbs 0,1023 --blocks 2,2 --snsids 1,4", "blocks 1023 to 1024 of namespace 4"),
        ("--sdlba 24575 --slbs 0 --blocks 2", "namespace 1 goes beyond its end"),
        ("--sdlba 5 --slbs 0 --blocks 2 --snsids 9", "no namespace 9"),
        ("--sdlba 5 --slbs 0,1 --blocks 2", "--slbs has 2 source ranges, and --blocks has 1"),
        ("--sdlba 5 --slbs 0 --blocks 2 --snsids 1,1", "--snsids has 2"),
        ("--sdlba 18446744073709551615 --slbs 0 --blocks 1", "exceed any namespace"),
        ("--sdlba 4503599627370495 --slbs 0 --blocks 1", "beyond its end"),
    ] {
        let fault = copy(&target, 1, words).fault();
        assert!(fault.contains(told), "{words}: {fault}");
        assert!(read(&target, 1, 0, 2) == data && read(&target, 1, 5, 10) == [0; 10 * 4096]);
    }
    // What comes before it was copied.
    for to in [1, 4] {
        let words = "--sdlba 100 --slbs 0,490,1 --blocks 2,11,1 --snsids 4,4,4";
        let fault = copy(&target, to, words).fault();
        let told = "blocks 490 to 500 of namespace 4 were not copied: the controller could not";
        assert!(fault.contains(told), "{fault}");
        assert!(read(&target, to, 100, 2) == data);
    }
    target.stop();
}
