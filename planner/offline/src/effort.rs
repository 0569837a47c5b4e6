//! How much work a query may make: steps, and the word that nobody waits for it any longer.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Steps that checking a query takes at most: about a second of them.
const STEPS: usize = 16_000_000;

/// Says that work is no longer wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Says so.
    pub(super) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether somebody said so.
    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The steps that are left.
#[derive(Debug)]
pub(super) struct Effort {
    left: Cell<usize>,
    is_over: Cell<bool>,
    stop: Stop,
}

impl Effort {
    /// Returns all of them, up to when somebody says that they are in vain.
    pub(super) fn until(stop: &Stop) -> Self {
        Self { left: Cell::new(STEPS), is_over: Cell::new(false), stop: stop.clone() }
    }

    /// Takes steps, and returns whether there were as many.
    pub(super) fn spend(&self, steps: usize) -> bool {
        match self.left.get().checked_sub(steps) {
            Some(left) if !self.stop.is_stopped() => self.left.set(left),
            _ => self.is_over.set(true),
        }
        !self.is_over.get()
    }

    /// Returns whether what was done is not all that was to be done.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get() || self.stop.is_stopped()
    }

    /// Returns how many steps were taken.
    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        STEPS - self.left.get()
    }
}
