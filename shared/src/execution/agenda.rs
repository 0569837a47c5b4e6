//! What is to be done next: the steps by what they wait for.
//!
//! Kept up to date event by event, so that nobody ever searches a plan for work.

use std::collections::BTreeSet;

use super::StepState;
use crate::{
    clock::Timestamp,
    id::StepIx,
    plan::{Plan, StepKind},
};

/// The steps that are not over, by what they wait for.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Pending, and all that it depends on let it go on: to be called, which takes a slot.
    ready: BTreeSet<StepIx>,
    /// The same, but first somebody must agree or send a signal, which takes no slot.
    asking: BTreeSet<StepIx>,
    /// Pending, and something that it depends on ended so that it will not run.
    doomed: BTreeSet<StepIx>,
    /// Under way.
    running: BTreeSet<StepIx>,
    /// Under way, and only a time ends it.
    sleeping: BTreeSet<(Timestamp, StepIx)>,
    /// To be tried again, from a time on.
    retrying: BTreeSet<(Timestamp, StepIx)>,
    /// Waiting for somebody.
    waiting: BTreeSet<StepIx>,
    /// How many are not over.
    open: usize,
}

impl Agenda {
    pub(super) fn new(plan: &Plan) -> Self {
        let numbered = plan.steps().iter().enumerate();
        let (asking, ready) = numbered
            .filter(|(_, it)| it.depends_on.is_empty())
            .map(|(at, _)| StepIx::new(at))
            .partition(|it| plan.step(*it).asks_first());
        Self { ready, asking, open: plan.steps().len(), ..Self::default() }
    }

    pub(super) fn leave(&mut self, number: StepIx, state: &StepState) {
        match state {
            StepState::Pending => {
                let _ = self.ready.remove(&number)
                    || self.asking.remove(&number)
                    || self.doomed.remove(&number);
            }
            StepState::Running { until, .. } => {
                self.running.remove(&number);
                until.map(|it| self.sleeping.remove(&(it, number)));
            }
            StepState::Retrying { until, .. } => {
                self.retrying.remove(&(*until, number));
            }
            StepState::Waiting(_) => {
                self.waiting.remove(&number);
            }
            _ => (),
        }
    }

    pub(super) fn enter(&mut self, number: StepIx, state: &StepState, kind: StepKind) {
        match state {
            // Only a step that somebody agreed to comes back.
            StepState::Pending => self.unblock(number, kind == StepKind::Wait),
            StepState::Running { until, .. } => {
                self.running.insert(number);
                until.map(|it| self.sleeping.insert((it, number)));
            }
            StepState::Retrying { until, .. } => {
                self.retrying.insert((*until, number));
            }
            StepState::Waiting(_) => {
                self.waiting.insert(number);
            }
            _ => self.open -= 1,
        }
    }

    /// Says that everything a pending step depends on lets it go on.
    pub(super) fn unblock(&mut self, number: StepIx, asks_first: bool) {
        if asks_first {
            self.asking.insert(number)
        } else {
            self.ready.insert(number)
        };
    }

    /// Says that a pending step will not run.
    pub(super) fn doom(&mut self, number: StepIx) {
        self.doomed.insert(number);
    }

    /// Returns the steps that may begin once somebody was asked, in plan order.
    pub fn asking(&self) -> &BTreeSet<StepIx> {
        &self.asking
    }

    /// Returns whether steps are open that are not under way.
    pub fn has_idle(&self) -> bool {
        self.open > self.running.len()
    }

    /// Returns the steps that may begin now, in plan order.
    pub fn ready(&self) -> &BTreeSet<StepIx> {
        &self.ready
    }

    /// Returns the steps that will not run because of another's end, in plan order.
    pub fn doomed(&self) -> &BTreeSet<StepIx> {
        &self.doomed
    }

    /// Returns the steps that are under way, sleeping ones included.
    pub fn running(&self) -> &BTreeSet<StepIx> {
        &self.running
    }

    /// Returns the steps that only a time ends, the next first.
    pub fn sleeping(&self) -> &BTreeSet<(Timestamp, StepIx)> {
        &self.sleeping
    }

    /// Returns the steps to be tried again, the next first.
    pub fn retrying(&self) -> &BTreeSet<(Timestamp, StepIx)> {
        &self.retrying
    }

    /// Returns the steps that wait for somebody.
    pub fn waiting(&self) -> &BTreeSet<StepIx> {
        &self.waiting
    }

    /// Returns whether every step is over.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Returns whether nothing runs and nothing is about to.
    pub fn only_waits(&self) -> bool {
        self.running.is_empty()
            && self.ready.is_empty()
            && self.asking.is_empty()
            && self.doomed.is_empty()
            && !(self.waiting.is_empty() && self.retrying.is_empty())
    }
}
