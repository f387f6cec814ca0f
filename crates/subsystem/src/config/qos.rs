//! Rules that give queues a class, whatever their hosts do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rules::Rule;
use super::{ConfigError, Hosts, Limits};

/// The weight of a tenant that no rule gives another one.
pub const QOS_WEIGHT_DEFAULT: u16 = 100;

/// The largest weight.
pub const QOS_WEIGHT_MAX: u16 = 10_000;

/// Keys that a rule had, and what takes their place.
const REPLACED: [(&str, &str); 3] = [
    ("budget", "all queues of the class latency have half of a poll group's time together"),
    (
        "latency-target",
        "queues of the class latency are always served as soon as possible, and express-cpus gives \
         them a processor of their own",
    ),
    ("max-throughput-loss", "others always keep half of a poll group's time"),
];

/// A class for all I/O queues that the rule applies to. Of several rules the one with a host
/// decides, then the one with a group of hosts, with a subsystem, with a port; of two that say the
/// same the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QosRule {
    /// The host, by NQN, or several together; none: all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Hosts>,
    /// The subsystem, by NQN; none: all subsystems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// The port that the host came to, by its id; none: all ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The class of these queues.
    pub class: QosClass,
    /// What they have together of the time that queues which are served in their turn have,
    /// against the weights of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
}

/// How a queue is to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum QosClass {
    /// Between the commands of others: it is an express queue.
    Latency,
    /// In its turn.
    Throughput,
}

impl QosClass {
    /// The word for it in configurations.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}

impl QosRule {
    /// A rule that gives every queue a class.
    #[must_use]
    pub const fn new(class: QosClass) -> Self {
        Self { host: None, subsystem: None, port: None, class, weight: None }
    }

    /// Whether it applies to a host's queues that came to a subsystem at a port.
    #[must_use]
    pub fn applies_to(&self, host: &str, subsystem: &str, port: u16) -> bool {
        self.host.as_ref().is_none_or(|hosts| hosts.contain(host))
            && self.subsystem.as_deref().is_none_or(|nqn| nqn == subsystem)
            && self.port.is_none_or(|wanted| wanted == port)
    }

    /// Of the rules that apply to a queue the one with the highest rank decides.
    pub(crate) fn rank(&self) -> (u8, bool, bool) {
        let host = self.host.as_ref().map_or(0, |hosts| if hosts.are_group() { 1 } else { 2 });
        (host, self.subsystem.is_some(), self.port.is_some())
    }
}

impl Rule for QosRule {
    const KEY: &'static str = "qos";
    const NAME: &'static str = "rule";
    const SCOPE: &'static str = "queues";
    const TWICE: &'static str = "remove one of them";
    /// Each queue that connects looks for its own among all.
    const MAX: usize = 1024;
    const GIVES: &'static str = "";

    fn terms(&self) -> String {
        let mut terms = format!("class {}", self.class.word());
        self.weight.iter().for_each(|weight| terms += &format!(", weight {weight}"));
        terms
    }

    fn has_scope_of(&self, other: &Self) -> bool {
        (&self.host, &self.subsystem, self.port) == (&other.host, &other.subsystem, other.port)
    }

    fn hosts(&self) -> Option<&Hosts> {
        self.host.as_ref()
    }

    fn subsystem(&self) -> Option<&str> {
        self.subsystem.as_deref()
    }

    fn port(&self) -> Option<u16> {
        self.port
    }

    fn check(&self, at: &str, _: &Limits) -> Result<(), ConfigError> {
        match self.weight {
            Some(weight) if !(1..=QOS_WEIGHT_MAX).contains(&weight) => {
                Err(ConfigError::new(format!("{at}.weight"), "it is out of range")
                    .remedy(format!("give 1 to {QOS_WEIGHT_MAX}")))
            }
            _ => Ok(()),
        }
    }
}

/// What to do about a key that a rule had, if this is one.
#[must_use]
pub fn replaced_key(key: &str) -> Option<String> {
    let (key, instead) =
        REPLACED.iter().find(|(replaced, _)| *replaced == key.replace('_', "-"))?;
    Some(format!("there is no {key} any more: {instead}; leave it out"))
}

impl fmt::Display for QosRule {
    /// Which queues it is for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, &self.subsystem, self.port) {
            (None, None, None) => f.write_str("all queues"),
            (host, subsystem, port) => {
                f.write_str("queues")?;
                if let Some(hosts) = host {
                    let word = if hosts.are_group() { "hosts" } else { "host" };
                    write!(f, " of {word} {hosts}")?;
                }
                subsystem.iter().try_for_each(|nqn| write!(f, " to {nqn}"))?;
                port.iter().try_for_each(|port| write!(f, " at port {port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::toml::parse;

    fn parsed(keys: &str) -> Result<Config, ConfigError> {
        parse(&format!(
            "[[port]]\nid = 2\nlisten = \"tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.a:b\"\n[[subsystem.namespace]]\nnull = \"1GiB\"\n\
             [[qos]]\n{keys}\n"
        ))
    }

    #[test]
    fn a_rule_is_read() {
        let text = "host = \"nqn.2024-01.a:h\"\nport = 2\nclass = \"latency\"";
        let rule = QosRule {
            host: Some("nqn.2024-01.a:h".into()),
            subsystem: None,
            port: Some(2),
            class: QosClass::Latency,
            weight: None,
        };
        let config = parsed(text).expect("a configuration");
        assert_eq!(config.qos_rules, std::slice::from_ref(&rule));
        assert_eq!(rule.to_string(), "queues of host nqn.2024-01.a:h at port 2");
        assert_eq!(rule.terms(), "class latency");
        assert!(rule.applies_to("nqn.2024-01.a:h", "nqn.any", 2));
        assert!(!rule.applies_to("nqn.2024-01.a:h", "nqn.any", 1));
        assert!(!rule.applies_to("nqn.2024-01.a:i", "nqn.any", 2));
        let shared = &parsed("class = \"throughput\"\nweight = 200").expect("one").qos_rules[0];
        assert_eq!(shared.terms(), "class throughput, weight 200");
        let keys = "host = [\"nqn.2024-01.a:i\", \"nqn.2024-01.a:h\"]\nclass = \"throughput\"";
        let group = &parsed(keys).expect("a configuration").qos_rules[0];
        assert_eq!(group.to_string(), "queues of hosts nqn.2024-01.a:h,nqn.2024-01.a:i");
        let of_group = |host| group.applies_to(host, "nqn.any", 1);
        assert!(of_group("nqn.2024-01.a:h") && of_group("nqn.2024-01.a:i"));
        assert!(!of_group("nqn.2024-01.a:j"));
        let all = &parsed("class = \"throughput\"").expect("a configuration").qos_rules[0];
        assert_eq!(all.to_string(), "all queues");
    }

    #[test]
    fn bad_rules_are_refused_with_a_sentence() {
        for (keys, part) in [
            ("", "class"),
            ("class = \"urgent\"", "urgent"),
            ("class = \"throughput\"\nweight = 0", "give 1 to 10000"),
            ("class = \"throughput\"\nweight = 10001", "give 1 to 10000"),
            ("class = \"latency\"\nbudget = 40", "half of a poll group's time together"),
            ("class = \"latency\"\nlatency-target = \"1ms\"", "served as soon as possible"),
            ("class = \"latency\"\nmax-throughput-loss = 10", "others always keep half"),
            ("class = \"latency\"\nlatency_target = \"1ms\"", "served as soon as possible"),
            ("class = \"latency\"\nhost = \"nqn.a:a,nqn.a:b\"", "has a comma"),
            ("class = \"latency\"\nport = 1", "no port with the id 1"),
            ("class = \"latency\"\nsubsystem = \"nqn.2024-01.a:c\"", "there is no subsystem"),
            ("class = \"latency\"\nnsid = 1", "nsid"),
            ("class = \"latency\"\n[[qos]]\nclass = \"throughput\"", "same queues as qos[0]"),
        ] {
            let text = parsed(keys).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(text.contains(part), "{keys:?}: {text:?}");
        }
    }
}
