//! The class of an I/O queue: who decides it, and how other threads read it.

use std::sync::atomic::{AtomicU8, Ordering};

use weft_nvme::fabrics::ConnectAttributes;

use crate::config::{QosClass, QosRule};

/// Who decides the class of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassSource {
    /// The rule at this place.
    Rule(QosClass, usize),
    /// The host, which has chosen weighted round robin and given the queue a priority.
    Connect(QosClass),
    /// What the queue does.
    Automatic,
}

/// The class of a queue at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedClass {
    /// How it is to be served.
    pub class: QosClass,
    /// Who has decided that.
    pub reason: ClassReason,
    /// Whether it is an express queue now.
    pub is_express: bool,
}

/// Why a queue has its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ClassReason {
    /// A rule says so.
    Rule,
    /// Its host has given it that priority with Connect.
    Connect,
    /// What it did.
    Automatic,
    /// No rule applies, and nothing else decides it.
    Default,
}

impl ClassReason {
    /// The word for it in statistics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Connect => "connect",
            Self::Automatic => "automatic",
            Self::Default => "default",
        }
    }
}

impl ClassSource {
    /// Who decides the class of a queue, by the names of its host and subsystem, that came to a
    /// port; `priority` is the one that the host has given it, if it has chosen weighted round
    /// robin.
    pub(crate) fn of(
        rules: &[QosRule],
        names: (&str, &str),
        port: u16,
        priority: Option<u8>,
    ) -> Self {
        let (host, subsystem) = names;
        // Of equals the first rule decides: `max_by_key` takes the last one that it sees.
        let applying = rules.iter().enumerate().rev();
        let applying = applying.filter(|(_, rule)| rule.applies_to(host, subsystem, port));
        if let Some((place, rule)) = applying.max_by_key(|(_, rule)| rule.rank()) {
            return Self::Rule(rule.class, place);
        }
        match priority {
            Some(ConnectAttributes::URGENT) => Self::Connect(QosClass::Latency),
            Some(_) => Self::Connect(QosClass::Throughput),
            None => Self::Automatic,
        }
    }

    /// Whether a rule gives such a queue the class latency.
    pub(crate) fn is_ruled_express(rules: &[QosRule], names: (&str, &str), port: u16) -> bool {
        matches!(Self::of(rules, names, port, None), Self::Rule(QosClass::Latency, _))
    }

    /// The class as others see it: of a queue that is express or not, in a group in which only
    /// rules decide or not.
    pub(crate) const fn shown(self, is_express: bool, is_automatic_off: bool) -> ServedClass {
        let (class, reason) = match self {
            Self::Rule(class, _) => (class, ClassReason::Rule),
            _ if is_automatic_off => (QosClass::Throughput, ClassReason::Default),
            Self::Connect(class) => (class, ClassReason::Connect),
            Self::Automatic if is_express => (QosClass::Latency, ClassReason::Automatic),
            Self::Automatic => (QosClass::Throughput, ClassReason::Automatic),
        };
        ServedClass { class, reason, is_express }
    }
}

/// The class of a queue, which its group alone writes and others read.
#[derive(Debug, Default)]
pub(crate) struct ClassWord(AtomicU8);

impl ClassWord {
    const THROUGHPUT: u8 = 1;
    const EXPRESS: u8 = 2;
    const REASON_SHIFT: u32 = 2;

    pub(crate) fn set(&self, class: ServedClass) {
        let mut word = (class.reason as u8) << Self::REASON_SHIFT;
        word |= if class.class == QosClass::Throughput { Self::THROUGHPUT } else { 0 };
        word |= if class.is_express { Self::EXPRESS } else { 0 };
        self.0.store(word, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> ServedClass {
        let word = self.0.load(Ordering::Relaxed);
        let is_throughput = word & Self::THROUGHPUT != 0;
        ServedClass {
            class: if is_throughput { QosClass::Throughput } else { QosClass::Latency },
            reason: match word >> Self::REASON_SHIFT {
                0 => ClassReason::Rule,
                1 => ClassReason::Connect,
                2 => ClassReason::Automatic,
                _ => ClassReason::Default,
            },
            is_express: word & Self::EXPRESS != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Hosts;

    fn rule(
        host: Option<&str>,
        subsystem: Option<&str>,
        port: Option<u16>,
        class: QosClass,
    ) -> QosRule {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        QosRule {
            host: host.map(Into::into),
            subsystem: owned(subsystem),
            port,
            class,
            weight: None,
        }
    }

    #[test]
    fn the_rule_that_says_most_decides() {
        use QosClass::{Latency, Throughput};
        let rules = [
            rule(None, None, None, Throughput),
            rule(None, None, Some(2), Latency),
            rule(None, Some("s"), None, Throughput),
            rule(None, Some("s"), Some(2), Latency),
            rule(Some("h"), None, None, Throughput),
            rule(Some("h"), Some("s"), None, Latency),
        ];
        // Of two that say as much the first decides.
        let group = |other: &str| QosRule {
            host: Hosts::group(["h", other].map(str::to_owned)),
            ..rule(None, None, None, Latency)
        };
        let equals = [group("a"), group("b")];
        assert_eq!(equals[0].rank(), equals[1].rank());
        let expected = ClassSource::Rule(Latency, 0);
        assert_eq!(ClassSource::of(&equals, ("h", "t"), 1, None), expected);
        for (host, subsystem, port, place) in [
            ("g", "t", 1, 0),
            ("g", "t", 2, 1),
            ("g", "s", 1, 2),
            ("g", "s", 2, 3),
            ("h", "t", 2, 4),
            ("h", "s", 2, 5),
        ] {
            let expected = ClassSource::Rule(rules[place].class, place);
            assert_eq!(ClassSource::of(&rules, (host, subsystem), port, Some(0)), expected);
        }
    }

    #[test]
    fn without_a_rule_the_priority_decides_where_the_host_chose_one() {
        let other = [rule(Some("other"), None, None, QosClass::Latency)];
        let of = |priority| ClassSource::of(&other, ("h", "s"), 1, priority);
        assert_eq!(of(None), ClassSource::Automatic);
        assert_eq!(of(Some(0)), ClassSource::Connect(QosClass::Latency));
        for priority in 1..4 {
            assert_eq!(of(Some(priority)), ClassSource::Connect(QosClass::Throughput));
        }
    }

    #[test]
    fn a_class_is_read_as_it_was_written() {
        let word = ClassWord::default();
        for class in [QosClass::Latency, QosClass::Throughput] {
            let grants =
                [ClassSource::Rule(class, 7), ClassSource::Connect(class), ClassSource::Automatic];
            for (grant, is_express, is_off) in grants.into_iter().flat_map(|grant| {
                [(grant, false, false), (grant, true, false), (grant, true, true)]
            }) {
                let shown = grant.shown(is_express, is_off);
                word.set(shown);
                assert_eq!(word.get(), shown);
            }
        }
        let shown = ClassSource::Automatic.shown(false, true);
        assert_eq!((shown.class, shown.reason), (QosClass::Throughput, ClassReason::Default));
    }
}
