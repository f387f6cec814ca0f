//! Packets that an interface loses or holds back: the kernel's queueing discipline netem.

use std::path::Path;

use serde_json::Value as Json;

use super::printed_by;
use crate::results::key;

/// For how long a packet is held back: a few hundred others overtake it on a fast link.
const HELD_BACK: &str = "100us";

/// Packets that netem holds at most: more than a link has in the time for which it holds one back.
const LIMIT: &str = "100000";

/// What netem does to what an interface is to send, in percent of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Netem {
    loss: f64,
    reorder: f64,
}

/// A percentage as it is compared: the kernel has 32 bits for it.
pub(super) fn percent(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Netem {
    /// That of an interface, which has none unless a study has given it one.
    pub(super) fn read(tc: &Path, interface: &str) -> Result<Self, String> {
        let text = printed_by(tc, &["-j", "qdisc", "show", "dev", interface])??;
        let all: Json = serde_json::from_str(&text).map_err(|error| format!("tc: {error}"))?;
        let mut roots = all.as_array().into_iter().flatten();
        let Some(root) = roots.find(|one| one["root"] == true) else { return Ok(Self::default()) };
        // What the kernel gives an interface has no handle.
        if root["handle"] == "0:" {
            return Ok(Self::default());
        }
        let options = &root["options"];
        let share = |of: &Json| 100.0 * of.as_f64().unwrap_or_default();
        let loss = share(&options["loss-random"]["loss"]);
        let at_once = &options["reorder"]["reorder"];
        let reorder = at_once.as_f64().map_or(0.0, |at_once| 100.0 * (1.0 - at_once));
        let own = Self { loss, reorder };
        let is_own = root["kind"] == "netem" && options["delay"].is_object() == at_once.is_number();
        is_own.then_some(own).ok_or_else(|| {
            let kind = root["kind"].as_str().unwrap_or("one");
            format!("{interface} has a queueing discipline of its own ({kind}): remove it")
        })
    }

    /// One of the two, by the name of its knob.
    pub(super) fn part(&self, name: &str) -> String {
        percent(if name == key::LOSS_PERCENT { self.loss } else { self.reorder })
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Result<Self, String> {
        let value = value.parse().map_err(|_| format!("{value} is no percentage"))?;
        *(if name == key::LOSS_PERCENT { &mut self.loss } else { &mut self.reorder }) = value;
        Ok(self)
    }

    pub(super) fn write(&self, tc: &Path, interface: &str) -> Result<(), String> {
        let (loss, at_once) = (format!("{}%", self.loss), format!("{}%", 100.0 - self.reorder));
        let mut words = vec!["qdisc", "replace", "dev", interface, "root", "netem", "limit", LIMIT];
        if *self == Self::default() {
            words = vec!["qdisc", "del", "dev", interface, "root"];
        }
        if self.loss > 0.0 {
            words.extend(["loss", &loss]);
        }
        if self.reorder > 0.0 {
            words.extend(["delay", HELD_BACK, "reorder", &at_once]);
        }
        match printed_by(tc, &words)? {
            Ok(_) => Ok(()),
            Err(said) if said.contains("qdisc kind is unknown") => Err(
                "the kernel has no netem: load it (modprobe sch_netem), or leave this out of the \
                 plan"
                    .to_owned(),
            ),
            Err(said) => Err(format!("tc refuses it ({said})")),
        }
    }
}
