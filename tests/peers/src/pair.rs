//! A pair of targets with Debian's etcd: the tests of the binary that need it.

use anyhow::bail;
use std::path::Path;
use xtask::cargo::{self, FEATURES};
use xtask::packages;
use xtask::report::Report;

/// How their names begin.
const TESTS: &str = "a_pair_with_etcd_";

pub(crate) fn run(root: &Path, report: &mut Report) {
    report.check("a pair of targets with etcd from Debian", || {
        let etcd = packages::extract(root, "etcd-server", "etcd")?;
        let mut command = cargo::cargo_command(root);
        // With all packages, as the other tests are built.
        command.args(["test", "--workspace", "--test", "binary"]).args(FEATURES);
        command.args(["--", TESTS, "--nocapture"]);
        let status = command.env("WEFT_TEST_ETCD", etcd).status()?;
        if status.success() { Ok(()) } else { bail!("cargo test: {status}") }
    });
}
