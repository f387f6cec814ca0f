//! What an NVMe Qualified Name of a configuration has to be.

use super::ConfigError;

/// Longest NQN, without its terminating zero (NVMe Base 2.1, NVMe Qualified Names).
const NQN_BYTES_MAX: usize = 223;

/// Refuses a text that is no name.
pub(super) fn check_nqn(key: &str, nqn: &str) -> Result<(), ConfigError> {
    let remedy = "write it like nqn.2014-08.org.nvmexpress:uuid:…";
    nqn_fault(nqn).map_or(Ok(()), |what| Err(ConfigError::new(key, what).remedy(remedy)))
}

/// What is wrong with the NQN of a host or subsystem, wherever it was given.
pub fn nqn_fault(nqn: &str) -> Option<String> {
    Some(if nqn.is_empty() {
        "it is empty".to_owned()
    } else if nqn.strip_prefix("nqn.").is_none_or(str::is_empty) {
        format!("{nqn:?} is no NQN, which begins with \"nqn.\"")
    } else if nqn.len() > NQN_BYTES_MAX {
        format!("{} bytes are too long for an NQN, which has at most {NQN_BYTES_MAX}", nqn.len())
    } else if nqn.chars().any(|c| c.is_whitespace() || c.is_control()) {
        format!("{nqn:?} has a space or control character in it")
    } else {
        return None;
    })
}
