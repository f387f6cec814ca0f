//! Who has to wait before its next Connect is answered.
//!
//! When an association ends, commands of it may still be on their way to a device. If the same
//! host came back to the same subsystem before they are done, an old write could land after a
//! newer one. So every queue that ends with work outstanding holds its host's gate, and an admin
//! Connect of that host waits until nobody holds it any more.
//!
//! A queue whose connection the host has closed ends when its group reads so much, which may be
//! after the host's next Connect came to another group. So each admin Connect first has every
//! group look for such connections (`Message::Survey`): they end then and there, what the host
//! sent on them before and nobody has read yet is never executed, and they hold the gate.

use std::collections::BTreeMap;

/// The gates of all hosts; `K` says which host at which subsystem, `W` who waits.
#[derive(Debug)]
pub(crate) struct Gates<K, W> {
    gates: BTreeMap<K, Gate<W>>,
}

#[derive(Debug)]
struct Gate<W> {
    held: usize,
    waiting: Vec<W>,
}

impl<K: Ord + Clone, W: PartialEq> Gates<K, W> {
    pub(crate) fn new() -> Self {
        Self { gates: BTreeMap::new() }
    }

    /// One more queue of this host ends with work outstanding.
    pub(crate) fn hold(&mut self, key: &K) {
        self.gates
            .entry(key.clone())
            .or_insert_with(|| Gate { held: 0, waiting: Vec::new() })
            .held += 1;
    }

    /// That queue's work is done. Returns who may go on now.
    pub(crate) fn release(&mut self, key: &K) -> Vec<W> {
        let Some(gate) = self.gates.get_mut(key) else { return Vec::new() };
        gate.held = gate.held.saturating_sub(1);
        if gate.held > 0 {
            return Vec::new();
        }
        self.gates.remove(key).map(|gate| gate.waiting).unwrap_or_default()
    }

    /// Lets `waiter` through (`None`) or keeps it until the gate opens.
    pub(crate) fn pass(&mut self, key: &K, waiter: W) -> Option<W> {
        match self.gates.get_mut(key) {
            None => Some(waiter),
            Some(gate) => {
                gate.waiting.push(waiter);
                None
            }
        }
    }

    /// This one waits no longer.
    pub(crate) fn leave(&mut self, key: &K, waiter: &W) {
        if let Some(gate) = self.gates.get_mut(key) {
            gate.waiting.retain(|other| other != waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_gate_lets_everyone_through() {
        let mut gates: Gates<&str, u32> = Gates::new();
        assert_eq!(gates.pass(&"host", 1), Some(1));
    }

    #[test]
    fn waiters_go_on_when_the_last_holder_lets_go_and_not_before() {
        let mut gates = Gates::new();
        gates.hold(&"host");
        gates.hold(&"host");
        assert_eq!(gates.pass(&"host", 1), None);
        assert_eq!(gates.pass(&"other", 2), Some(2));
        assert!(gates.release(&"host").is_empty());
        assert_eq!(gates.pass(&"host", 3), None);
        assert_eq!(gates.release(&"host"), vec![1, 3]);
        assert_eq!(gates.pass(&"host", 4), Some(4));
    }

    #[test]
    fn who_gives_up_is_forgotten() {
        let mut gates = Gates::new();
        gates.hold(&"host");
        assert_eq!(gates.pass(&"host", 1), None);
        assert_eq!(gates.pass(&"host", 2), None);
        gates.leave(&"host", &1);
        gates.leave(&"host", &3);
        gates.leave(&"other", &2);
        assert_eq!(gates.release(&"host"), vec![2]);
        gates.leave(&"host", &2);
        assert_eq!(gates.pass(&"host", 4), Some(4));
    }

    #[test]
    fn releasing_what_nobody_holds_changes_nothing() {
        let mut gates: Gates<&str, u32> = Gates::new();
        assert!(gates.release(&"host").is_empty());
        assert_eq!(gates.pass(&"host", 1), Some(1));
    }
}
