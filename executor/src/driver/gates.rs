//! Permits for calls whose tools have limits. All nodes share the limits.
//!
//! A driver acquires a permit before the task starts and releases it when the attempt ends. It
//! requests permits only for tasks that could start, because a rate counts each granted permit,
//! whether or not a call follows. A permit without a concurrency limit blocks no other call. If the
//! execution has no free slot when such a permit arrives, the driver keeps it until a slot is free.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    execution::{ExecutionMode, Phase},
    id::Task,
    store::CallLimit,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolbox::dispatch::Dispatch;

use super::{Done, Driver, idle::Begins};
use crate::{
    machine::{self, Input},
    permits::Granted,
};

/// Tasks of one execution that request permits at the same time.
const ASKED: usize = 256;

/// The permits of a driver's tasks, and the requests for them.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// The first tasks that wait for a permit.
    waiting: BTreeMap<Task, Waiting>,
    /// Permits of running tasks.
    granted: BTreeMap<Task, Granted>,
    /// The number of the next request.
    asked: u64,
}

/// A task that waits for a permit.
#[derive(Debug)]
struct Waiting {
    limits: Vec<CallLimit>,
    /// The keys of the limits.
    keys: Arc<str>,
    /// The number of the open request. Dropping the guard cancels it.
    ask: Option<(u64, DropGuard)>,
    /// A permit without a concurrency limit, which waits for a slot.
    permit: Option<Granted>,
}

impl Waiting {
    /// Returns whether no limit is a concurrency limit.
    fn is_only_rated(&self) -> bool {
        self.limits.iter().all(|limit| limit.concurrency.is_none())
    }
}

impl Gates {
    /// Returns the number of open requests.
    pub(super) fn asks(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.ask.is_some()).count()
    }

    fn is_out(&self, task: Task, number: u64) -> bool {
        let ask = self.waiting.get(&task).and_then(|waiting| waiting.ask.as_ref());
        ask.is_some_and(|request| request.0 == number)
    }
}

impl Driver {
    /// Requests permits for tasks that could start with them, and cancels all other requests.
    pub(super) fn ask_for_permits(&mut self) {
        let gated = self.execution.agenda().waiting_for_permit();
        if gated.is_empty() && self.gates.waiting.is_empty() {
            return;
        }
        // A task whose limit is full must not block a task with another limit. A sequential execution
        // keeps the order of its tasks.
        let is_sequential = self.execution.options().mode == ExecutionMode::Sequential;
        let most = if is_sequential { 1 } else { ASKED };
        let first: Vec<Task> = gated.iter().take(most).copied().collect();
        self.gates.waiting.retain(|task, _| first.binary_search(task).is_ok());
        self.begin_permitted(&first);
        let slots = self.slots();
        if slots == 0 {
            let is_later = self.begins() == Begins::Later;
            self.claim.must_decide_again |= is_later && !first.is_empty();
            let keeps = !is_later && machine::lets_begin(&self.execution);
            let asks = self.gates.waiting.values_mut();
            asks.filter(|waiting| !(keeps && waiting.is_only_rated()))
                .for_each(|waiting| waiting.ask = None);
            return;
        }
        let mut asks: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for task in first {
            let keys = self.keys(task);
            let n = asks.entry(keys).or_default();
            *n += 1;
            let may_ask = *n <= slots;
            self.ask_for_permit(task, may_ask);
        }
    }

    /// Starts tasks whose permits waited for a slot, in plan order.
    fn begin_permitted(&mut self, first: &[Task]) {
        for task in first {
            if self.slots() == 0 {
                return;
            }
            let permit = self.gates.waiting.get_mut(task).and_then(|waiting| waiting.permit.take());
            if let Some(permit) = permit {
                self.begin_with(*task, permit);
            }
        }
    }

    /// Returns the number of tasks that could start now.
    fn slots(&self) -> usize {
        if self.begins() != Begins::Now || !machine::lets_begin(&self.execution) {
            return 0;
        }
        let running = self.execution.agenda().running().len();
        match self.execution.phase() {
            Phase::Compensating(_) => 1,
            _ => self.execution.options().width().saturating_sub(running),
        }
    }

    /// Returns the keys of a task's limits. Its parameters do not change while it waits.
    fn keys(&mut self, task: Task) -> Arc<str> {
        let Self { gates, execution, context, .. } = self;
        let waiting = gates.waiting.entry(task).or_insert_with(|| {
            let tool = execution.plan().step(task.step).call_of_part(task.part).tool;
            let parameters = machine::parameters(execution, task);
            let calls = &context.options.calls;
            let limits = match Dispatch::of(&context.toolbox, tool, &parameters) {
                Some(Ok(dispatch)) => calls.of(&dispatch.tool, &dispatch.args),
                _ => calls.of(tool, &parameters),
            };
            let keys: Vec<&str> = limits.iter().map(|limit| limit.key.as_str()).collect();
            Waiting { keys: keys.join("\n").into(), limits, ask: None, permit: None }
        });
        Arc::clone(&waiting.keys)
    }

    /// Makes sure that a task has an open request, or none.
    fn ask_for_permit(&mut self, task: Task, may_ask: bool) {
        let Some(waiting) = self.gates.waiting.get_mut(&task) else { return };
        if !may_ask {
            waiting.ask = None;
            return;
        }
        if waiting.ask.is_some() || waiting.permit.is_some() {
            return;
        }
        let (number, cut) = (self.gates.asked, CancellationToken::new());
        self.gates.asked += 1;
        waiting.ask = Some((number, cut.clone().drop_guard()));
        let limits = waiting.limits.clone();
        let holder = machine::holder(&self.execution, task);
        let priority = self.execution.options().priority;
        let permits = Arc::clone(&self.context.permits);
        self.attempts.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => Done::Nothing,
                permit = permits.acquire(holder, limits, priority) => {
                    Done::Permitted(task, number, permit)
                }
            }
        });
    }

    /// Starts the task of a permit. Releases the permit if the task may not start any more.
    pub(super) fn permitted(&mut self, task: Task, number: u64, permit: Granted) {
        if !self.gates.is_out(task, number) {
            return;
        }
        let is_full = self.slots() == 0;
        if let Some(waiting) = self.gates.waiting.get_mut(&task)
            && is_full
            && waiting.is_only_rated()
        {
            (waiting.ask, waiting.permit) = (None, Some(permit));
            return;
        }
        self.begin_with(task, permit);
    }

    fn begin_with(&mut self, task: Task, permit: Granted) {
        self.gates.waiting.remove(&task);
        if self.execution.agenda().waiting_for_permit().contains(&task) {
            self.gates.granted.insert(task, permit);
            self.decide(Input::Permitted(task));
        }
    }

    /// Releases the permits of tasks that are not running.
    pub(super) fn release_what_ended(&mut self) {
        let running = self.execution.agenda().running();
        self.gates.granted.retain(|task, _| running.contains(task));
    }

    /// Cancels all requests.
    pub(super) fn withdraw(&mut self) {
        self.gates.waiting.clear();
    }
}
