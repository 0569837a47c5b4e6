//! Permits: what keeps the calls of a tool within a limit that every node shares.
//!
//! A permit is taken before a task starts, so that what waits for one is not under way and holds
//! nothing, and given back once its attempt has ended. What could not begin with it asks for none:
//! a rate counts whoever is permitted, whether he calls or not. A permit of rates alone keeps nobody
//! else out: where others took the slots meanwhile it is kept until there is one.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    execution::{ExecutionMode, Phase},
    id::Task,
    store::CallLimit,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolbox::dispatch::Dispatch;

use super::{Driver, calls::Done, idle::Begins};
use crate::{
    machine::{self, Input},
    permits::Granted,
};

/// The most tasks of one execution that are thought of at the same time.
const ASKED: usize = 256;

/// What a driver knows of the permits of its tasks.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// The first tasks that wait for a permit.
    waiting: BTreeMap<Task, Waiting>,
    /// Permits of tasks that are under way.
    granted: BTreeMap<Task, Granted>,
    /// How many permits were asked for.
    asked: u64,
}

/// A task that waits for a permit.
#[derive(Debug)]
struct Waiting {
    limits: Vec<CallLimit>,
    /// The keys of the limits.
    keys: Arc<str>,
    /// The number of the ask that is out. Dropping the guard withdraws it.
    ask: Option<(u64, DropGuard)>,
    /// A permit of rates alone, which waits for a slot.
    permit: Option<Granted>,
}

impl Waiting {
    /// Returns whether its limits are rates alone.
    fn is_only_rated(&self) -> bool {
        self.limits.iter().all(|it| it.concurrency.is_none())
    }
}

impl Gates {
    /// Returns how many asks are out.
    pub(super) fn asks(&self) -> usize {
        self.waiting.values().filter(|it| it.ask.is_some()).count()
    }

    fn is_out(&self, task: Task, number: u64) -> bool {
        let ask = self.waiting.get(&task).and_then(|it| it.ask.as_ref());
        ask.is_some_and(|it| it.0 == number)
    }
}

impl Driver {
    /// Asks for the permits of what could begin if it had them, and withdraws the other asks.
    pub(super) fn ask_for_permits(&mut self) {
        let gated = self.execution.agenda().waiting_for_permit();
        if gated.is_empty() && self.gates.waiting.is_empty() {
            return;
        }
        // One whose limit is full must not keep one with another limit from asking; but one at a
        // time, nothing overtakes.
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
            asks.filter(|it| !(keeps && it.is_only_rated())).for_each(|it| it.ask = None);
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

    /// Begins what has had its permit since there was no slot, in plan order.
    fn begin_permitted(&mut self, first: &[Task]) {
        for task in first {
            if self.slots() == 0 {
                return;
            }
            let permit = self.gates.waiting.get_mut(task).and_then(|it| it.permit.take());
            if let Some(permit) = permit {
                self.begin_with(*task, permit);
            }
        }
    }

    /// Returns how many tasks could begin now.
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

    /// Returns the keys of the limits of a task. Its parameters stay what they are while it waits.
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
            let keys: Vec<&str> = limits.iter().map(|it| it.key.as_str()).collect();
            Waiting { keys: keys.join("\n").into(), limits, ask: None, permit: None }
        });
        Arc::clone(&waiting.keys)
    }

    /// Has an ask for a task out, or none.
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

    /// Begins what there is a permit for, or gives that back where it may not begin any more.
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

    /// Gives back the permits of what is not under way: it did not begin, or is over.
    pub(super) fn release_what_ended(&mut self) {
        let running = self.execution.agenda().running();
        self.gates.granted.retain(|task, _| running.contains(task));
    }

    /// Withdraws every ask.
    pub(super) fn withdraw(&mut self) {
        self.gates.waiting.clear();
    }
}
