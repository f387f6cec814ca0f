//! Rules that give queues a class, whatever their hosts do.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::duration;

use super::{Config, ConfigError, Hosts};

/// Most rules: each new queue looks for its own among all.
const RULES_MAX: usize = 1024;

/// The part of a poll group's time that express queues have, in percent: those of a rule that does
/// not say another one, those that are express by themselves, and those whose hosts asked for it.
pub const QOS_BUDGET_DEFAULT: u8 = 25;

/// The largest such part, and that of all express queues of a poll group together: the other queues
/// always have the rest.
pub const QOS_BUDGET_MAX: u8 = 75;

/// What others may lose for a latency target if its rule does not say it, in percent.
pub const MAX_THROUGHPUT_LOSS_DEFAULT: u8 = 25;

/// The most that they may lose.
const THROUGHPUT_LOSS_MAX: u8 = 75;

/// The least and the largest latency target.
const LATENCY_TARGETS: (Duration, Duration) = (Duration::from_micros(1), Duration::from_secs(1));

/// The weight of a tenant that no rule gives another one.
pub const QOS_WEIGHT_DEFAULT: u16 = 100;

/// The largest weight.
pub const QOS_WEIGHT_MAX: u16 = 10_000;

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
    /// The part of each poll group's time that they have together as express queues, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<u8>,
    /// What they have together of the time that queues which are served in their turn have,
    /// against the weights of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// What 99 % of their commands are to be answered within, as express queues.
    #[serde(default, with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<Duration>,
    /// What others may lose for that of each poll group's rate, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_throughput_loss: Option<u8>,
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
    /// Whether it applies to a host's queues that came to a subsystem at a port.
    #[must_use]
    pub fn applies_to(&self, host: &str, subsystem: &str, port: u16) -> bool {
        self.host.as_ref().is_none_or(|hosts| hosts.contain(host))
            && self.subsystem.as_deref().is_none_or(|nqn| nqn == subsystem)
            && self.port.is_none_or(|wanted| wanted == port)
    }

    /// Whether it is for the same queues as another one.
    #[must_use]
    pub fn has_scope_of(&self, other: &Self) -> bool {
        (&self.host, &self.subsystem, self.port) == (&other.host, &other.subsystem, other.port)
    }

    /// Of the rules that apply to a queue the one with the highest rank decides.
    pub(crate) fn rank(&self) -> (u8, bool, bool) {
        let host = self.host.as_ref().map_or(0, |hosts| if hosts.are_group() { 1 } else { 2 });
        (host, self.subsystem.is_some(), self.port.is_some())
    }

    /// The part of each poll group's time, in percent.
    #[must_use]
    pub fn budget(&self) -> u8 {
        self.budget.unwrap_or(QOS_BUDGET_DEFAULT)
    }

    /// What others may lose for its latency target, in percent.
    #[must_use]
    pub fn max_throughput_loss(&self) -> u8 {
        self.max_throughput_loss.unwrap_or(MAX_THROUGHPUT_LOSS_DEFAULT)
    }

    /// What it gives, in words.
    #[must_use]
    pub fn terms(&self) -> String {
        let mut terms = match self.class {
            QosClass::Latency => format!("class latency, {} % of the time", self.budget()),
            QosClass::Throughput => "class throughput".to_owned(),
        };
        if let Some(target) = self.latency_target {
            let (target, loss) = (duration::exact(target), self.max_throughput_loss());
            terms += &format!(", p99 of {target} while others lose {loss} % at most");
        }
        self.weight.iter().for_each(|weight| terms += &format!(", weight {weight}"));
        terms
    }

    fn validate(&self, at: &str) -> Result<(), ConfigError> {
        if self.weight.is_some_and(|weight| !(1..=QOS_WEIGHT_MAX).contains(&weight)) {
            return Err(ConfigError::new(format!("{at}.weight"), "it is out of range".to_owned())
                .remedy(format!("give 1 to {QOS_WEIGHT_MAX}")));
        }
        self.validate_target(at)?;
        let error = |what: &str| ConfigError::new(format!("{at}.budget"), what.to_owned());
        match (self.class, self.budget) {
            (QosClass::Throughput, Some(_)) => Err(error("only the class latency has one")
                .remedy("leave it out: these queues are served in their turn")),
            (QosClass::Latency, Some(budget)) if !(1..=QOS_BUDGET_MAX).contains(&budget) => {
                Err(error("it is out of range").remedy(format!(
                    "give 1 to {QOS_BUDGET_MAX}, in percent of a poll group's time"
                )))
            }
            _ => Ok(()),
        }
    }

    fn validate_target(&self, at: &str) -> Result<(), ConfigError> {
        let error =
            |key: &str, what: &str| ConfigError::new(format!("{at}.{key}"), what.to_owned());
        let (least, largest) = LATENCY_TARGETS;
        match (self.latency_target, self.max_throughput_loss) {
            (Some(_), _) if self.class == QosClass::Throughput => {
                Err(error("latency-target", "only the class latency has one")
                    .remedy("leave it out: these queues are served in their turn"))
            }
            (Some(target), _) if !(least..=largest).contains(&target) => {
                let text = duration::exact;
                Err(error("latency-target", "it is out of range").remedy(format!(
                    "give {} to {}",
                    text(least),
                    text(largest)
                )))
            }
            (None, Some(_)) => Err(error("max-throughput-loss", "there is no latency target")
                .remedy("give latency-target as well, or leave this out")),
            (_, Some(loss)) if !(1..=THROUGHPUT_LOSS_MAX).contains(&loss) => {
                Err(error("max-throughput-loss", "it is out of range").remedy(format!(
                    "give 1 to {THROUGHPUT_LOSS_MAX}, in percent of the others' rate"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A duration that may be left out.
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};
    use weft_backend::duration::as_text;

    #[allow(clippy::ref_option, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => as_text::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        as_text::deserialize(deserializer).map(Some)
    }
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

impl Config {
    /// Sets a rule; one that is for the same queues is replaced.
    pub(crate) fn set_qos_rule(&mut self, rule: &QosRule) {
        match self.qos_rules.iter_mut().find(|other| other.has_scope_of(rule)) {
            Some(other) => other.clone_from(rule),
            None => self.qos_rules.push(rule.clone()),
        }
    }

    /// Deletes the rule that is for the same queues; whether there was one.
    pub(crate) fn delete_qos_rule(&mut self, rule: &QosRule) -> bool {
        let place = self.qos_rules.iter().position(|other| other.has_scope_of(rule));
        place.map(|place| self.qos_rules.remove(place)).is_some()
    }
}

/// Checks all rules of a configuration.
pub(super) fn validate(config: &Config) -> Result<(), ConfigError> {
    let all = &config.qos_rules;
    if all.len() > RULES_MAX {
        let what = format!("{} are too many", all.len());
        return Err(ConfigError::new("qos", what).remedy(format!("give at most {RULES_MAX}")));
    }
    for (index, rule) in all.iter().enumerate() {
        let at = format!("qos[{index}]");
        rule.validate(&at)?;
        if let Some(first) = all.iter().take(index).position(|one| one.has_scope_of(rule)) {
            let what = format!("it is for the same queues as qos[{first}]");
            return Err(ConfigError::new(at, what).remedy("remove one of them"));
        }
    }
    Ok(())
}

/// Whether the subsystems and ports that are named are served. A target that is controlled at run
/// time may get them later.
pub(super) fn check_serves(config: &Config) -> Result<(), ConfigError> {
    for (index, rule) in config.qos_rules.iter().enumerate() {
        let missing = |key: &str, what: String| {
            ConfigError::new(format!("qos[{index}].{key}"), what)
                .remedy("name one that is configured, or leave the key out for all")
        };
        if let Some(nqn) = &rule.subsystem
            && config.subsystems.iter().all(|served| served.nqn != *nqn)
        {
            return Err(missing("subsystem", format!("there is no subsystem {nqn:?}")));
        }
        if let Some(id) = rule.port
            && config.ports.iter().all(|port| port.id != id)
        {
            return Err(missing("port", format!("there is no port with the id {id}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::toml::parse;
    use super::*;

    fn parsed(keys: &str) -> Result<Config, ConfigError> {
        parse(&format!(
            "[[port]]\nid = 2\nlisten = \"tcp://127.0.0.1:0\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.a:b\"\n[[subsystem.namespace]]\nnull = \"1GiB\"\n\
             [[qos]]\n{keys}\n"
        ))
    }

    #[test]
    fn a_rule_is_read() {
        let text = "host = \"nqn.2024-01.a:h\"\nport = 2\nclass = \"latency\"\nbudget = 40";
        let rule = QosRule {
            host: Some("nqn.2024-01.a:h".into()),
            subsystem: None,
            port: Some(2),
            class: QosClass::Latency,
            budget: Some(40),
            weight: None,
            latency_target: None,
            max_throughput_loss: None,
        };
        let config = parsed(text).expect("a configuration");
        assert_eq!(config.qos_rules, std::slice::from_ref(&rule));
        assert_eq!(rule.to_string(), "queues of host nqn.2024-01.a:h at port 2");
        assert_eq!(rule.terms(), "class latency, 40 % of the time");
        assert!(rule.applies_to("nqn.2024-01.a:h", "nqn.any", 2));
        assert!(!rule.applies_to("nqn.2024-01.a:h", "nqn.any", 1));
        assert!(!rule.applies_to("nqn.2024-01.a:i", "nqn.any", 2));
        let shared = &parsed("class = \"throughput\"\nweight = 200").expect("one").qos_rules[0];
        assert_eq!(shared.terms(), "class throughput, weight 200");
        let keys = "class = \"latency\"\nlatency-target = \"150us\"";
        let targeted = &parsed(keys).expect("a configuration").qos_rules[0];
        assert_eq!(targeted.latency_target, Some(Duration::from_micros(150)));
        let terms = "class latency, 25 % of the time, p99 of 150us while others lose 25 % at most";
        assert_eq!(targeted.terms(), terms);
        let keys = "host = [\"nqn.2024-01.a:i\", \"nqn.2024-01.a:h\"]\nclass = \"throughput\"";
        let group = &parsed(keys).expect("a configuration").qos_rules[0];
        assert_eq!(group.to_string(), "queues of hosts nqn.2024-01.a:h,nqn.2024-01.a:i");
        let of_group = |host| group.applies_to(host, "nqn.any", 1);
        assert!(of_group("nqn.2024-01.a:h") && of_group("nqn.2024-01.a:i"));
        assert!(!of_group("nqn.2024-01.a:j"));
        let all = &parsed("class = \"throughput\"").expect("a configuration").qos_rules[0];
        assert_eq!((all.to_string().as_str(), all.budget()), ("all queues", 25));
    }

    #[test]
    fn bad_rules_are_refused_with_a_sentence() {
        for (keys, part) in [
            ("", "class"),
            ("class = \"urgent\"", "urgent"),
            ("class = \"latency\"\nbudget = 0", "give 1 to 75"),
            ("class = \"latency\"\nbudget = 76", "give 1 to 75"),
            ("class = \"throughput\"\nweight = 0", "give 1 to 10000"),
            ("class = \"throughput\"\nweight = 10001", "give 1 to 10000"),
            ("class = \"throughput\"\nlatency-target = \"1ms\"", "only the class latency"),
            ("class = \"latency\"\nlatency-target = \"10ns\"", "give 1us to 1s"),
            ("class = \"latency\"\nmax-throughput-loss = 10", "no latency target"),
            (
                "class = \"latency\"\nlatency-target = \"1ms\"\nmax-throughput-loss = 76",
                "give 1 to 75",
            ),
            ("class = \"throughput\"\nbudget = 10", "only the class latency"),
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
