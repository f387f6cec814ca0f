//! TLS of which the kernel makes the records: weft's host and weft's target, both in the guest, as
//! this machine's kernel may have none.

use super::bench::Bench;
use super::suite::{Suite, long, step};
use crate::guest::Kernel;
use anyhow::Result;

/// With a kernel that can replace keys (Linux 6.14).
pub(super) const SUITE: Suite = Suite {
    name: "kernel_records",
    script: "kernel_records.sh",
    kernel: Kernel::Backports,
    forwards: false,
    modules: &["nvmet-tcp", "nvme-tcp", "tls"],
    setup: |bench| {
        prepare(bench)?;
        bench.guest("make_handshakes; serve; wants_tls required").map(drop)
    },
    steps: &[
        long("each_way_of_sha256", |bench| bench.guest("each_way sha256").map(drop)),
        long("each_way_of_sha384", |bench| bench.guest("each_way sha384").map(drop)),
        step("shown", |bench| bench.guest("shown").map(drop)),
        long("renewed_of_sha256", |bench| bench.guest("renewed sha256").map(drop)),
        long("renewed_of_sha384", |bench| bench.guest("renewed sha384").map(drop)),
        long("concatenation", |bench| bench.guest("concatenated_both").map(drop)),
        step("renewal_is_asked_for", |bench| bench.guest("asked").map(drop)),
        step("linux_host", |bench| bench.guest("linux_host").map(drop)),
        step("linux_target", |bench| bench.guest("linux_target").map(drop)),
        long("target_killed", |bench| bench.guest("killed").map(drop)),
    ],
};

/// With a kernel that cannot.
pub(super) const OLDER: Suite = Suite {
    name: "kernel_records_older",
    kernel: Kernel::Release,
    modules: &["nvme-tcp", "tls"],
    setup: prepare,
    steps: &[
        long("each_way_of_sha256", |bench| bench.guest("each_way sha256").map(drop)),
        long("not_renewed", |bench| bench.guest("not_renewed").map(drop)),
        long("missing", |bench| bench.guest("missing").map(drop)),
    ],
    ..SUITE
};

fn prepare(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("prepare").map(drop)
}
