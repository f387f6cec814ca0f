//! The knobs of a machine: settings of its kernel and its network that a cell may have.
//!
//! An agent sets them on the machine where they act. What a knob was is in a journal on that
//! machine before it is changed. It is put back when no cell wants it any more and when the agent
//! ends; by a watchdog if the agent dies; by the next agent there if both have died.
//!
//! - `wish` has the knobs of a cell; `change` knows what has to be written for each.
//! - [`Knobs`] is the agent's side: it changes, reads back, and puts back by the [`Keeper`], which
//!   has the `journal` of a process.

pub(super) mod change;
pub(super) mod journal;
mod keeper;
mod wish;

use std::path::Path;
use std::sync::Arc;

use self::change::Change;
pub use self::change::Machine;
pub use self::journal::Watch;
pub use self::keeper::Keeper;
pub use self::wish::{Applied, KnobValue};
pub(super) use self::wish::{KNOBS, any, is_of_interface, of_interface, wishes};

/// The knobs of this machine that this process has set.
#[derive(Debug)]
pub struct Knobs {
    keeper: Arc<Keeper>,
    /// What was changed for them.
    set: Vec<Change>,
}

impl Knobs {
    /// Those of a machine.
    #[must_use]
    pub const fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, set: Vec::new() }
    }

    /// Puts back what processes of this network namespace have left that are dead, and says what.
    #[must_use]
    pub fn restore_left(&self) -> Vec<String> {
        self.keeper.restore_left()
    }

    /// Makes these knobs have these values, and those of earlier cells what they were.
    ///
    /// # Errors
    /// One sentence: a knob that does not exist here, or that the driver refuses.
    pub fn arrange(
        &mut self,
        wishes: &[KnobValue],
        interface: Option<&str>,
    ) -> Result<Vec<Applied>, String> {
        let planned = wishes
            .iter()
            .map(|wish| Ok((wish, self.keeper.machine().changes(wish, interface)?)))
            .collect::<Result<Vec<_>, String>>()?;
        let wanted: Vec<&Change> = planned.iter().flat_map(|(_, changes)| changes).collect();
        let (kept, others): (Vec<Change>, Vec<Change>) = std::mem::take(&mut self.set)
            .into_iter()
            .partition(|change| wanted.iter().any(|one| one.is_of(change)));
        self.set = kept;
        self.put_back(others)?;
        let mut applied = Vec::new();
        for (wish, changes) in &planned {
            let mut values = Vec::new();
            let mut before = Vec::new();
            for change in changes {
                let (was, is) = self.change(wish, change)?;
                values.push(is);
                before.push(was);
            }
            values.dedup();
            before.dedup();
            applied.push(Applied {
                knob: wish.knob.clone(),
                value: values.join(" "),
                before: before.join(" "),
            });
        }
        Ok(applied)
    }

    /// Makes one change: what it was before the study, and what it is now.
    fn change(&mut self, wish: &KnobValue, change: &Change) -> Result<(String, String), String> {
        let fault =
            |why: String| format!("{} {} cannot be set: {change}: {why}", wish.knob, wish.value);
        let machine = self.keeper.machine();
        let now = machine.read(change).map_err(fault)?;
        let known = self.keeper.before(change);
        if change.agrees(&now) {
            return Ok((known.unwrap_or_else(|| now.clone()), now));
        }
        let before = match known {
            Some(before) => before,
            None => {
                self.keeper.note(change, &now)?;
                self.set.push(change.clone());
                now
            }
        };
        let machine = self.keeper.machine();
        let written = machine.write(change).map_err(fault);
        let read = written.and_then(|()| machine.read(change).map_err(fault));
        match read {
            Ok(is) if change.agrees(&is) => Ok((before, is)),
            other => {
                let why = match other {
                    Ok(is) => fault(format!("it is {is} after it was set")),
                    Err(why) => why,
                };
                Err(match self.restore() {
                    Ok(()) => why,
                    Err(left) => format!("{why}; {left}"),
                })
            }
        }
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// One sentence that says what could not be put back; the journal keeps it.
    pub fn restore(&mut self) -> Result<(), String> {
        let all = std::mem::take(&mut self.set);
        self.put_back(all)
    }

    /// Puts some back. What fails is tried again with the next.
    fn put_back(&mut self, changes: Vec<Change>) -> Result<(), String> {
        self.keeper.restore(&changes).inspect_err(|_| self.set.extend(changes))
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        // What fails stays in the journal: the watchdog tries again, and the next agent.
        let _ = self.restore();
    }
}

/// Puts back what a journal has: what a watchdog does.
///
/// # Errors
/// One sentence that says what could not be put back; the journal keeps it.
pub fn restore(machine: &Machine, journal: &Path) -> Result<Vec<String>, String> {
    journal::restore(machine, journal)
}

#[cfg(test)]
mod tests;
