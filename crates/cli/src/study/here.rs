//! What a study finds here: this build, plans, and what can run without a target that is given.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;

use weft_backend::files::read_text;
use weft_lab::environment;
use weft_lab::study::capabilities::Capabilities;
use weft_lab::study::plan::Plan;
use weft_lab::study::site::SpdkTools;
use weft_lab::study::{agent, builtin, linux};

use super::build_id;
use crate::failure::Failure;

/// This build, for agents, which have to be of the same.
pub(crate) fn this_build() -> Result<agent::Build, Failure> {
    // The file by that name may be another one by now.
    let program = Path::new("/proc/self/exe");
    let of_contents = || contents(program).map(|contents| format!("{contents:016x}"));
    let id = build_id::of(program).map_or_else(of_contents, Ok);
    let id = id.map_err(|error| Failure::io("read", &"this program's binary", &error))?;
    Ok(agent::Build { version: env!("CARGO_PKG_VERSION").to_owned(), id })
}

/// What tells a binary from others.
pub(super) fn contents(program: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(program)?);
    Ok(hasher.finish())
}

/// A study as it runs on this machine.
pub(super) fn plan_here(name: &str) -> Result<Plan, Failure> {
    let mut plan = plan(name)?;
    if capabilities().rdma {
        plan.with_rdma();
    }
    Ok(plan)
}

/// A built-in study by its name, or one from a file.
pub(super) fn plan(name: &str) -> Result<Plan, Failure> {
    if let Some(builtin) = builtin::find(name) {
        return builtin.plan().map_err(Failure::because);
    }
    let path = Path::new(name);
    if !name.ends_with(".toml") && !path.exists() {
        let near = weft_backend::meant(name, builtin::BUILTINS.iter().map(|one| one.name));
        return Err(Failure::Because(format!(
            "{name:?} is not a study{near}: `weft study list` shows the built-in ones; a plan of \
             your own is given as PLAN.toml"
        )));
    }
    let text = read_text(path).map_err(|error| Failure::io("read", &name, &error))?;
    text.parse().map_err(|error| Failure::Because(format!("{name}: {error}")))
}

/// What is available for studies if no target is given.
pub(super) fn capabilities() -> Capabilities {
    Capabilities {
        cpus: environment::cpus(),
        own_target: true,
        rdma: environment::rdma_address().is_some(),
        tls: cfg!(feature = "tls"),
        lacks: linux::lacks(&SpdkTools::default()),
        ..Capabilities::default()
    }
}
