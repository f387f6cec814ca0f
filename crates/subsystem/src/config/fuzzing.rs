//! A harness that reads arbitrary bytes as a configuration and checks the result for what a target
//! relies on. Fuzz targets and tests share it.

use std::path::Path;

use weft_backend::DeviceSpec;
use weft_nvme::Nqn;

use super::nvmetcli::{self, ImportResult};
use super::{Config, ConfigError, toml};

/// Reads `input` as either form of a configuration. Panics if an invariant is broken.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match toml::parse(text) {
        Ok(config) => check_config(&config),
        Err(error) => check_error(text, &error),
    }
    // The result must not depend on files of this machine.
    match nvmetcli::parse_with(text, &|path: &Path| path.starts_with("/dev")) {
        Ok(ImportResult { config, notes }) => {
            check_config(&config);
            assert!(notes.iter().all(|note| !note.is_empty()));
        }
        Err(error) => check_error(text, &error),
    }
}

/// An accepted configuration is accepted again, and fulfils what the catalogue relies on.
fn check_config(config: &Config) {
    assert_eq!(config.validate(), Ok(()));
    for subsystem in &config.subsystems {
        let hosts = subsystem.allowed_hosts.iter().flatten();
        for name in hosts.chain([&subsystem.nqn]) {
            assert!(name.parse::<Nqn>().is_ok(), "{name:?}");
        }
        assert!(subsystem.serial().len() <= 20);
        for namespace in &subsystem.namespaces {
            assert!(namespace.nsid > 0);
            check_device(&namespace.device);
        }
    }
}

/// A device's text is read as the same device, unless its path has a separator of options.
fn check_device(device: &DeviceSpec) {
    let is_plain = |path: &Path| !path.to_string_lossy().contains([',', ':', ';', '\u{fffd}']);
    if device.path().is_none_or(is_plain) {
        let text = device.to_string();
        assert_eq!(text.parse::<DeviceSpec>().as_ref(), Ok(device), "{text}");
    }
}

/// An error has a text, and if it names a line, that line exists.
fn check_error(text: &str, error: &ConfigError) {
    assert!(!error.to_string().is_empty());
    let lines = text.lines().count();
    assert!(error.line().is_none_or(|line| line <= lines + 1), "{error}: {lines} lines");
}
