//! Asks for permission before data is overwritten.

use std::io::{self, BufRead, IsTerminal};

use weft_backend::DeviceSpec;
use weft_lab::results::key;
use weft_lab::study::launch::GivenTarget;
use weft_lab::study::plan::Plan;
use weft_load::Pattern;

use crate::failure::Failure;
use crate::output;

/// The given devices and targets that a study would overwrite, as they were given.
pub(crate) fn at_risk(
    plan: &Plan,
    precondition: bool,
    local: Option<&DeviceSpec>,
    given: &[GivenTarget],
) -> Vec<String> {
    if !precondition && !writes(plan) {
        return Vec::new();
    }
    local
        .and_then(existing)
        .into_iter()
        .chain(given.iter().map(|given| given.options.address.to_string()))
        .collect()
}

/// The same of a device on the machine of an agent, whether it exists already or not.
pub(crate) fn at_risk_there(plan: &Plan, local: Option<&DeviceSpec>) -> Option<String> {
    let path = |device: &DeviceSpec| Some(device.path()?.display().to_string());
    local.filter(|_| writes(plan)).and_then(path)
}

/// The path of a device of this machine that was there before this program used it, or the name of
/// an image that can be written.
pub(crate) fn existing(device: &DeviceSpec) -> Option<String> {
    match device.path() {
        Some(path) => path.exists().then(|| path.display().to_string()),
        None => device.stored_name().filter(|_| !device.is_read_only()),
    }
}

/// Whether any of its cells writes, of those that were chosen. A tenant's neighbour may write
/// whatever is chosen of the tenant.
fn writes(plan: &Plan) -> bool {
    let chosen = plan.run.as_ref().and_then(|run| run.only.get(key::PATTERN));
    let chosen = chosen.filter(|_| plan.interference.is_none());
    plan.values(key::PATTERN)
        .filter(|value| chosen.is_none_or(|chosen| *value == chosen))
        .filter_map(|value| value.as_text())
        .filter_map(|word| word.parse::<Pattern>().ok())
        .any(Pattern::writes)
}

/// Succeeds if every device was named, by option or now on a terminal.
pub(crate) fn allow(who: &str, at_risk: &[String], named: &[String]) -> Result<(), Failure> {
    let one = |what: &String| confirm(&format!("{who} overwrites {what}"), what, named);
    at_risk.iter().try_for_each(one)
}

/// Succeeds if this was named. `does` is what becomes of it.
pub(crate) fn confirm(does: &str, what: &str, named: &[String]) -> Result<(), Failure> {
    if named.iter().any(|named| named == what) {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Because(format!(
            "this {does}; to allow that, use --yes-destroy {what}"
        )));
    }
    output::print_error(&format!("This {does}.\nType {what} to continue:"));
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::io("read from", &"the terminal", &error))?;
    match line.trim() == what {
        true => Ok(()),
        false => Err(Failure::because("nothing was changed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_lab::study::builtin;
    use weft_lab::study::plan::Run;

    fn plan(name: &str) -> Plan {
        builtin::find(name).expect(name).plan().expect(name)
    }

    #[test]
    fn only_given_devices_that_are_written_are_at_risk() {
        let file = std::env::temp_dir().join(format!("weft-destroy-{}", std::process::id()));
        std::fs::write(&file, "precious").expect("a file");
        let name = file.display().to_string();
        let spec = DeviceSpec::file(&name).expect("a device");
        let given = [GivenTarget {
            options: weft_host::Options::new(
                "nvme-tcp://192.0.2.1:4420/nqn.x".parse().expect("an address"),
            ),
            control: None,
            token: None,
        }];
        let of = |study, precondition, local| at_risk(&plan(study), precondition, local, &[]);
        assert_eq!(of("pattern-sweep", false, Some(&spec)), std::slice::from_ref(&name));
        assert!(of("size-sweep", false, Some(&spec)).is_empty(), "it only reads");
        let mut reads = plan("local-vs-remote");
        let only = [(key::PATTERN.to_owned(), "randread".into())].into();
        reads.run = Some(Run { only, ..Run::default() });
        assert!(at_risk(&reads, false, Some(&spec), &given).is_empty(), "only reads are chosen");
        assert_eq!(of("size-sweep", true, Some(&spec)), std::slice::from_ref(&name));
        let memory = DeviceSpec::memory("1MiB").expect("a device");
        assert!(of("pattern-sweep", false, Some(&memory)).is_empty());
        let image = DeviceSpec::rbd("p/i").expect("a device");
        assert_eq!(of("pattern-sweep", false, Some(&image)), ["rbd:p/i"]);
        assert!(of("pattern-sweep", false, None).is_empty());
        assert_eq!(at_risk(&plan("pattern-sweep"), false, None, &given).len(), 1);
        assert!(at_risk(&plan("size-sweep"), false, None, &given).is_empty());
        std::fs::remove_file(&file).expect("the file");
        assert!(
            of("pattern-sweep", false, Some(&spec)).is_empty(),
            "a file that does not exist is not at risk"
        );
    }

    #[test]
    fn named_devices_are_allowed() {
        let disk = "/dev/sdx".to_owned();
        assert!(allow("study", &[], &[]).is_ok());
        assert!(allow("study", std::slice::from_ref(&disk), std::slice::from_ref(&disk)).is_ok());
    }
}
