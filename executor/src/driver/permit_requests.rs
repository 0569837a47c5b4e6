//! Permits for calls whose tools have limits. All nodes share the limits.
//!
//! A driver requests permits only for tasks that could start, because a rate counts each granted
//! permit, whether or not a call follows.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    execution::{ExecutionMode, Phase},
    id::Task,
    store::CallLimit,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolbox::dispatch::Dispatch;

use super::{Driver, JobResult, parking::StartPermission};
use crate::{
    machine::{self, Input},
    permits::HeldPermit,
};

const MAX_WAITING_TASKS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct PermitRequests {
    /// The first tasks in the queue for permits. The driver requests no permit for later tasks.
    waiting: BTreeMap<Task, WaitingTask>,
    granted_permits: BTreeMap<Task, HeldPermit>,
    next_number: u64,
}

#[derive(Debug)]
struct WaitingTask {
    limits: Vec<CallLimit>,
    keys: Arc<str>,
    /// The number of the open request. Dropping the guard cancels it.
    request: Option<(u64, DropGuard)>,
    /// A permit of limits that have a rate and no concurrency. It is kept while the task waits for
    /// a slot.
    permit: Option<HeldPermit>,
}

impl WaitingTask {
    fn has_only_rates(&self) -> bool {
        self.limits.iter().all(|limit| limit.concurrency.is_none())
    }
}

impl PermitRequests {
    pub(super) fn open_requests(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.request.is_some()).count()
    }

    fn is_open_request(&self, task: Task, number: u64) -> bool {
        let ask = self.waiting.get(&task).and_then(|waiting| waiting.request.as_ref());
        ask.is_some_and(|request| request.0 == number)
    }
}

impl Driver {
    pub(super) fn request_permits(&mut self) {
        let held = self.execution.agenda().without_permit();
        if held.is_empty() && self.permit_requests.waiting.is_empty() {
            return;
        }
        // Requests permits for several limits at the same time, because a task whose limit is full
        // must not block a task with another limit.
        let is_sequential = self.execution.options().mode == ExecutionMode::Sequential;
        let maximum = if is_sequential { 1 } else { MAX_WAITING_TASKS };
        let first: Vec<Task> = held.iter().take(maximum).copied().collect();
        self.permit_requests.waiting.retain(|task, _| first.binary_search(task).is_ok());
        self.start_tasks_with_permits(&first);
        let slots = self.free_slots();
        if slots == 0 {
            let is_later = self.start_permission() == StartPermission::Later;
            self.claim.needs_decision |= is_later && !first.is_empty();
            let keeps = !is_later && machine::can_start_tasks(&self.execution);
            let asks = self.permit_requests.waiting.values_mut();
            asks.filter(|waiting| !(keeps && waiting.has_only_rates()))
                .for_each(|waiting| waiting.request = None);
            return;
        }
        let mut asks: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for task in first {
            let keys = self.limit_keys(task);
            let n = asks.entry(keys).or_default();
            *n += 1;
            let is_allowed = *n <= slots;
            self.request_permit(task, is_allowed);
        }
    }

    fn start_tasks_with_permits(&mut self, first: &[Task]) {
        for task in first {
            if self.free_slots() == 0 {
                return;
            }
            let permit = self
                .permit_requests
                .waiting
                .get_mut(task)
                .and_then(|waiting| waiting.permit.take());
            if let Some(permit) = permit {
                self.start_with_permit(*task, permit);
            }
        }
    }

    fn free_slots(&self) -> usize {
        if self.start_permission() != StartPermission::Now
            || !machine::can_start_tasks(&self.execution)
        {
            return 0;
        }
        let running = self.execution.agenda().running().len();
        match self.execution.phase() {
            Phase::Compensating(_) => 1,
            _ => self.execution.options().width().saturating_sub(running),
        }
    }

    /// Returns the keys of a task's limits. The task's parameters do not change while the task
    /// waits.
    fn limit_keys(&mut self, task: Task) -> Arc<str> {
        let Self { permit_requests: requests, execution, context, .. } = self;
        let waiting = requests.waiting.entry(task).or_insert_with(|| {
            let tool = execution.plan().step(task.step).call_of_part(task.part).tool;
            let parameters = machine::preview_parameters(execution, task);
            let calls = context.options.calls.get();
            let limits = match Dispatch::parse(&context.toolbox, tool, &parameters) {
                Some(Ok(dispatch)) => calls.limits_of_call(&dispatch.tool, &dispatch.args),
                _ => calls.limits_of_call(tool, &parameters),
            };
            let keys: Vec<&str> = limits.iter().map(|limit| limit.key.as_str()).collect();
            WaitingTask { keys: keys.join("\n").into(), limits, request: None, permit: None }
        });
        Arc::clone(&waiting.keys)
    }

    fn request_permit(&mut self, task: Task, is_allowed: bool) {
        let Some(waiting) = self.permit_requests.waiting.get_mut(&task) else { return };
        if !is_allowed {
            waiting.request = None;
            return;
        }
        if waiting.request.is_some() || waiting.permit.is_some() {
            return;
        }
        let (number, cut) = (self.permit_requests.next_number, CancellationToken::new());
        self.permit_requests.next_number += 1;
        waiting.request = Some((number, cut.clone().drop_guard()));
        let limits = waiting.limits.clone();
        let holder = machine::permit_holder(&self.execution, task);
        let priority = self.execution.options().priority;
        let token = self.execution.token().map(Arc::from);
        let permits = Arc::clone(&self.context.permits);
        self.jobs.spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => JobResult::Cancelled,
                permit = permits.acquire_permit(holder, limits, priority, token) => {
                    JobResult::Permitted(task, number, permit)
                }
            }
        });
    }

    /// Starts the task of a permit. Keeps a permit without a concurrency limit while no slot is
    /// free. Releases the permit if the task can no longer start.
    pub(super) fn accept_permit(&mut self, task: Task, number: u64, permit: HeldPermit) {
        if !self.permit_requests.is_open_request(task, number) {
            return;
        }
        let is_full = self.free_slots() == 0;
        if let Some(waiting) = self.permit_requests.waiting.get_mut(&task)
            && is_full
            && waiting.has_only_rates()
        {
            (waiting.request, waiting.permit) = (None, Some(permit));
            return;
        }
        self.start_with_permit(task, permit);
    }

    fn start_with_permit(&mut self, task: Task, permit: HeldPermit) {
        self.permit_requests.waiting.remove(&task);
        if self.execution.agenda().without_permit().contains(&task) {
            self.permit_requests.granted_permits.insert(task, permit);
            self.decide(Input::Permitted(task));
        }
    }

    pub(super) fn release_permits(&mut self) {
        let running = self.execution.agenda().running();
        self.permit_requests.granted_permits.retain(|task, _| running.contains(task));
    }

    pub(super) fn withdraw_permit_requests(&mut self) {
        self.permit_requests.waiting.clear();
    }
}
