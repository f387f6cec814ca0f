//! Studies on several machines: network namespaces with a link each, reached by `ip` and by ssh,
//! and nodes of a cluster. Multicast DNS between such namespaces.

mod bench;
mod many;
mod mdns;
mod site;
mod slurm;
mod ssh;

use anyhow::{Result, bail};
use bench::{Bench, NAMES, name};
use std::fs;
use std::path::Path;
use xtask::python::succeeded;
use xtask::report::Report;
use xtask::{cargo, packages};

/// A check, and the name by which it is chosen, which is that of the folder of its results.
type Check = (&'static str, &'static str, fn(&Bench) -> Result<()>);

/// What takes longest, which only `cargo xtask test --all` runs, or whoever names it.
const LONG: &[&str] = &["two-links", "lost", "many", "mdns", "slurm"];

const CHECKS: &[Check] = &[
    ("commands", "a study of three namespaces, by commands", commands),
    ("ssh", "the same over ssh", ssh::loads),
    ("two-links", "a study of three namespaces and two links over ssh", ssh::links),
    ("refused", "what ssh, agents, links and drivers refuse", ssh::refused),
    ("lost", "an agent that is killed, and a clock that jumps", ssh::lost),
    ("links", "a study over two links of a site", site::links),
    ("site", "weft site check", site::check),
    ("knobs", "knobs are set for cells, and are back afterwards", site::knobs),
    ("killed", "knobs are back after an agent was killed, and its watchdog", site::killed),
    ("many", "64 agents", many::agents),
    ("mdns", "multicast DNS, with avahi", mdns::check),
];

/// Which checks run.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    /// Those that take long as well.
    All,
    /// Not those.
    Short,
    /// The one of this name.
    One(&'a str),
}

impl Selection<'_> {
    fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Short => !LONG.contains(&name),
            Self::One(one) => name == one,
        }
    }
}

/// Runs them.
pub(crate) fn run(root: &Path, report: &mut Report, which: Selection<'_>) {
    if !rustix::process::geteuid().is_root() {
        let why = "needs root, to make network namespaces and a cluster";
        report.skip("studies on several machines", CHECKS.len() + 1, why);
        return;
    }
    let mut names = CHECKS.iter().map(|(name, ..)| *name).chain(["slurm"]);
    if !names.clone().any(|name| which.has(name)) {
        report.check("studies on several machines", || {
            bail!("their checks are {}", names.by_ref().collect::<Vec<_>>().join(", "))
        });
        return;
    }
    let mut weft = None;
    report.check("ip and ssh from Debian", || {
        packages::need(
            "studies run on several machines",
            &[
                ("ip", "iproute2"),
                ("/usr/sbin/sshd", "openssh-server"),
                ("ssh", "openssh-client"),
                ("ethtool", "ethtool"),
            ],
        )?;
        weft = Some(cargo::build_binary(root)?);
        Ok(())
    });
    let Some(weft) = weft else { return };
    let folders = cargo::target_folder(root).join("machines");
    for (name, title, check) in CHECKS.iter().filter(|(name, ..)| which.has(name)) {
        report.check(title, || {
            let folder = folders.join(name);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            check(&Bench::new(root, weft.clone(), folder)?)
        });
    }
    if which.has("slurm") && report.check("Slurm from Debian", slurm::install) {
        // Not under the target folder, which may be too long for the name of a socket.
        let folder = std::env::temp_dir().join(format!("weft-slurm-{}", std::process::id()));
        let done = report.check("a study in a job of Slurm", || {
            fs::create_dir(&folder)?;
            slurm::run(root, &weft, &folder, &folders.join("slurm"))
        });
        match done {
            true => drop(fs::remove_dir_all(&folder)),
            false => println!("its files are in {}", folder.display()),
        }
    }
}

fn commands(bench: &Bench) -> Result<()> {
    let out = bench.path("out")?;
    let place =
        |of: &str| format!("exec:ip netns exec {} {} agent", name(of), bench.weft.display());
    let [a, b, c] = NAMES.map(place);
    let words = ["--target-on", &a, "--load-on", &b, "--load-on", &c];
    succeeded(&mut bench.study(&out, &words)?)?;
    bench.measured(&out)
}
