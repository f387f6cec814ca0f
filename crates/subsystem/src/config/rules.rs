//! Rules of which a configuration has a list: rate limits, and classes of queues. Each is for what
//! is in its scope, and no two have the same.

use std::fmt;

use super::nqn::check_nqn;
use super::{ConfigError, Hosts, Limits};

/// A rule.
pub(crate) trait Rule: Clone + PartialEq + fmt::Display {
    /// The key of their list in a file.
    const KEY: &'static str;
    /// What it is called.
    const NAME: &'static str;
    /// What is in its scope.
    const SCOPE: &'static str;
    /// What to do about two of the same scope.
    const TWICE: &'static str;
    /// Most of them.
    const MAX: usize;
    /// What stands before the terms of one in the log of a reload.
    const GIVES: &'static str;

    /// Whether it is for the same as another one.
    fn has_scope_of(&self, other: &Self) -> bool;

    /// The hosts that it is for, if it names any.
    fn hosts(&self) -> Option<&Hosts>;

    /// The subsystem that it is for, if it names one.
    fn subsystem(&self) -> Option<&str>;

    /// The port that it is for, if it names one.
    fn port(&self) -> Option<u16>;

    /// What it gives, in words.
    fn terms(&self) -> String;

    /// Whether it is possible in itself.
    fn check(&self, at: &str, limits: &Limits) -> Result<(), ConfigError>;
}

/// Sets a rule; one of the same scope is replaced.
pub(crate) fn set<T: Rule>(rules: &mut Vec<T>, rule: &T) {
    match rules.iter_mut().find(|other| other.has_scope_of(rule)) {
        Some(other) => other.clone_from(rule),
        None => rules.push(rule.clone()),
    }
}

/// Deletes the rule of the same scope; whether there was one.
pub(crate) fn delete<T: Rule>(rules: &mut Vec<T>, rule: &T) -> bool {
    let place = rules.iter().position(|other| other.has_scope_of(rule));
    place.map(|place| rules.remove(place)).is_some()
}

/// Checks all rules of a list.
pub(super) fn validate<T: Rule>(rules: &[T], limits: &Limits) -> Result<(), ConfigError> {
    if rules.len() > T::MAX {
        let what = format!("{} are too many", rules.len());
        return Err(ConfigError::new(T::KEY, what).remedy(format!("give at most {}", T::MAX)));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("{}[{index}]", T::KEY);
        rule.check(&at, limits)?;
        // They may come later, but under no name that is none.
        for host in rule.hosts().into_iter().flat_map(Hosts::names) {
            check_nqn(&format!("{at}.host"), host)?;
            // It would be shown as a group is.
            if host.contains(',') {
                return Err(ConfigError::new(
                    format!("{at}.host"),
                    format!("{host:?} has a comma"),
                )
                .remedy("give several hosts as a list: host = [\"NQN\", \"NQN\"]"));
            }
        }
        rule.subsystem().map_or(Ok(()), |nqn| check_nqn(&format!("{at}.subsystem"), nqn))?;
        if let Some(first) = rules.iter().take(index).position(|one| one.has_scope_of(rule)) {
            let what = format!("it is for the same {} as {}[{first}]", T::SCOPE, T::KEY);
            return Err(ConfigError::new(at, what).remedy(T::TWICE));
        }
    }
    Ok(())
}
