//! The examples, each as a process that a host comes to.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weft_host::Options;

/// An example, which cargo builds into the folder beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let built = test.parent().and_then(|deps| deps.parent()).expect("a folder");
    built.join("examples").join(name)
}

#[test]
fn a_program_that_embeds_a_target_serves_hosts() {
    let mut command = Command::new(example("embed"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("cargo builds examples unless --test names a test");
    let mut said = BufReader::new(process.stdout.take().expect("a pipe"));
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        line
    };
    let (address, change) = (line(), line());
    assert!(change.contains("null:1GiB"), "{change}");
    let address = address.trim().parse().expect("an address");
    let controller = weft_host::connect(&Options::new(address)).expect("a controller");
    let sizes: Vec<_> = controller.namespaces().iter().map(|one| (one.nsid, one.blocks)).collect();
    assert_eq!(sizes, [(1, 64 << 8), (2, 1 << 18)]);
    let disk = controller.namespace(1).expect("memory");
    disk.read(0, &mut [0; 3 * 4096]).expect("data");
    controller.disconnect().expect("an end");
    drop(process.stdin.take());
    assert!(process.wait().expect("an end").success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(rest.starts_with("namespace 1: 12288 bytes read\n"), "{rest}");
}
