//! The examples, each as a process beside weft's own target.

use std::path::PathBuf;
use std::process::Command;

use weft_target::Target;
use weft_target::config::toml;

const SUBSYSTEM: &str = "nqn.2024-01.io.example:examples";

/// Starts a target with 1 MiB of memory; returns its address.
fn start() -> (Target, String) {
    let text = format!(
        "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n\
         [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
    );
    let target = Target::start(toml::parse(&text).expect("a configuration"));
    let target = target.expect("a target");
    let address = target.addresses().into_values().next().expect("a port");
    (target, format!("nvme-tcp://{address}"))
}

/// Runs an example, which cargo builds into the folder beside the tests; returns its output.
fn run(name: &str, address: &str) -> String {
    let test = std::env::current_exe().expect("a path");
    let built: PathBuf = test.parent().and_then(|deps| deps.parent()).expect("a folder").into();
    let mut command = Command::new(built.join("examples").join(name));
    let output = command
        .arg(address)
        .output()
        .expect("an example: cargo builds them unless --test names a test");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{name}: {}", said(&output.stderr));
    said(&output.stdout)
}

#[test]
fn each_example_runs_beside_the_target() {
    let (target, address) = start();
    let unused = "namespace 1: 0 of 256 blocks of 4096 bytes are in use\n";
    assert_eq!(run("read", &address), unused);
    let toured = run("tour", &address);
    assert!(toured.ends_with("done\n") && toured.contains("event: "), "{toured}");
    // The tour gives back the block that it wrote.
    assert_eq!(run("read", &address), unused);
    let bytes = 32 * 4096;
    let expected = format!("{bytes} bytes in 32 reads at a time\n");
    assert_eq!(run("async_read", &format!("{address}/{SUBSYSTEM}")), expected);
    target.stop().expect("it stops");
}
