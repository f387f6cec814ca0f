//! Keeps threads that carry no load off the processors of those that do.

use std::marker::PhantomData;

use weft_reactor::system::{confine_current_thread, cpus_of_current_thread};

/// While it is there, the calling thread and those that it starts run on no processor of the
/// measured threads, if another one is left.
#[derive(Debug)]
pub struct Aside {
    /// Where it may run otherwise; none if that was not changed.
    before: Vec<usize>,
    /// It belongs to its thread.
    _of_a_thread: PhantomData<*const ()>,
}

impl Aside {
    /// Until it is dropped.
    #[must_use]
    pub fn of(measured: &[usize]) -> Self {
        let mut before = cpus_of_current_thread().unwrap_or_default();
        let left = before.iter().copied().filter(|cpu| !measured.contains(cpu));
        let left: Vec<usize> = left.collect();
        let is_less = !left.is_empty() && left.len() < before.len();
        if !is_less || confine_current_thread(&left).is_err() {
            before.clear();
        }
        Self { before, _of_a_thread: PhantomData }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            // They were allowed before; a machine that has taken them away meanwhile says so later.
            let _ = confine_current_thread(&self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_elsewhere_while_another_processor_is_left() {
        let here = || cpus_of_current_thread().expect("processors");
        let all = here();
        {
            let _aside = Aside::of(&all[..1]);
            let expected = if all.len() > 1 { &all[1..] } else { &all[..] };
            assert_eq!(here(), expected);
            let inner = Aside::of(&all);
            assert_eq!(here(), expected, "none is left, so nothing changes");
            drop(inner);
            assert_eq!(here(), expected);
        }
        assert_eq!(here(), all);
        let _none = Aside::of(&[]);
        assert_eq!(here(), all);
    }
}
