//! TLS of which the kernel makes the records: weft's host and weft's target, both in the guest, as
//! this machine's kernel may have none.

use super::bench::Bench;
use super::suite::{Suite, inside, long, step};
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
        inside("shown"),
        long("renewed_of_sha256", |bench| bench.guest("renewed sha256").map(drop)),
        long("renewed_of_sha384", |bench| bench.guest("renewed sha384").map(drop)),
        long("concatenation", |bench| bench.guest("concatenated_both").map(drop)),
        step("renewal_is_asked_for", |bench| bench.guest("asked").map(drop)),
        inside("linux_host"),
        inside("linux_target"),
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
        inside("not_renewed").long(),
        inside("missing").long(),
    ],
    ..SUITE
};

fn prepare(bench: &mut Bench) -> Result<()> {
    bench.give_weft()?;
    bench.guest("prepare").map(drop)
}
