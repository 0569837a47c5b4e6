//! What a driver has under way: calls, and what must happen before them.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use futures::FutureExt;
use shared::{
    clock::Timestamp,
    event::StepStarted,
    id::{Part, Seq, Task},
    limits,
    plan::{Callee, StepKind},
    tool::{Effect, Progress},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbox::{Found, StepCall, ToolContext, blobs::Blobs};
use tracing::warn;

use super::{Context, Driver, children::Seen};
use crate::{
    cache,
    call::{Call, Ended, Key},
    machine::{Answer, Input},
    permits::Granted,
};

/// Something that was under way and is over.
#[derive(Debug)]
pub(super) enum Done {
    /// An attempt.
    Ended(Ended),
    /// The wait for a permit, by its number.
    Permitted(Task, u64, Granted),
    /// A look after a child, by its number.
    Looked(Task, u64, Seen),
    /// Something of which nobody needs to hear.
    Nothing,
}

/// Something that begins once the log durably says so.
#[derive(Debug)]
pub(super) enum Held {
    /// A call with an effect.
    Call(Box<Call>),
    /// An execution of another plan.
    Child(Task),
}

impl Held {
    fn task(&self) -> Task {
        match self {
            Self::Call(call) => call.task,
            Self::Child(task) => *task,
        }
    }
}

impl Driver {
    /// Prepares what has started: it begins at once if it only reads, else once its record is
    /// durable.
    pub(super) fn prepare(&mut self, seq: Seq, started: &StepStarted) {
        let plan = Arc::clone(self.execution.plan());
        let step = plan.step_number(&started.step).expect("the machine starts steps of the plan");
        let task = Task { step, part: started.part };
        let callee = plan.step(step).call_of_part(started.part);
        match callee.kind {
            _ if started.items.is_some() => (),
            StepKind::Sleep | StepKind::Wait => (),
            StepKind::Plan(_) => self.held.push_back((seq, Held::Child(task))),
            StepKind::Call => {
                let call = self.call(task, callee, started);
                if callee.policy.effect == Effect::Read {
                    self.launch(call, callee.policy.cache_ttl_ms);
                } else {
                    self.held.push_back((seq, Held::Call(Box::new(call))));
                }
            }
        }
    }

    fn call(&self, task: Task, callee: Callee<'_>, started: &StepStarted) -> Call {
        let call = StepCall {
            execution: self.execution.id(),
            step: started.step.clone(),
            part: started.part,
            attempt: started.attempt,
        };
        Call {
            task,
            attempt: started.attempt,
            tool: callee.tool.clone(),
            pinned: None,
            parameters: Arc::clone(&started.parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: self.reports.sink((task, started.attempt)),
            cx: ToolContext {
                call: Some(call),
                cancel: self.token(started.part),
                blobs: Some(self.blobs()),
                ..ToolContext::detached()
            },
        }
    }

    fn blobs(&self) -> Blobs {
        let Context { store, clock, .. } = &*self.context;
        Blobs::new(Arc::clone(store), Arc::clone(clock))
    }

    /// Returns what tells a call to stop. What undoes something is not stopped: the end of the
    /// execution is why it runs.
    fn token(&self, part: Part) -> CancellationToken {
        if part.undo { CancellationToken::new() } else { self.cancel.child_token() }
    }

    /// Begins a call, unless what it would return is known. One that is over at once costs no
    /// task.
    fn launch(&mut self, call: Call, ttl_ms: Option<u64>) {
        let context = Arc::clone(&self.context);
        let work = match ttl_ms {
            None => {
                let Context { toolbox, options, .. } = &*context;
                call.carry_out(toolbox.clone(), Arc::clone(options)).boxed()
            }
            Some(ttl_ms) => call_once_in_a_while(context, call, ttl_ms).boxed(),
        };
        let mut work = work.map(Done::Ended).boxed();
        match work.as_mut().now_or_never() {
            Some(done) => self.done.push_back(done),
            None => drop(self.attempts.spawn(work)),
        }
    }

    /// Begins everything whose record is durable, once the lease is in no doubt.
    pub(super) fn begin_held(&mut self) {
        let durable = self.pending.durable();
        while let Some((seq, _)) = self.held.front()
            && *seq <= durable
            && !self.is_lease_doubtful()
        {
            match self.held.pop_front().expect("there is a first").1 {
                Held::Call(call) => self.launch(*call, None),
                Held::Child(task) => self.attend(task),
            }
        }
    }

    /// Returns whether a task waits until its record is durable.
    pub(super) fn is_held(&self, task: Task) -> bool {
        self.held.iter().any(|(_, it)| it.task() == task)
    }

    /// Records how far a call is, as often as a log wants to know.
    pub(super) fn note(&mut self, (task, attempt): Key, progress: Progress) {
        let now = Instant::now();
        let (n, last) = self.noted.entry(task).or_insert((0, now));
        if *n >= limits::PROGRESS_EVENTS && now - *last < limits::PROGRESS_SELDOM {
            return;
        }
        (*n, *last) = (n.saturating_add(1), now);
        self.decide(Input::Progressed { task, attempt, progress });
    }

    /// Takes what has come of something that was under way.
    pub(super) fn settle(&mut self, done: Done) {
        match done {
            Done::Ended(ended) => self.end(ended),
            Done::Permitted(task, number, permit) => self.permitted(task, number, permit),
            Done::Looked(task, number, seen) => {
                for word in self.children.seen(task, number, &seen) {
                    self.pending.heard(word);
                }
                if let Seen::Over(ended) = seen {
                    self.end(ended);
                }
            }
            Done::Nothing => (),
        }
    }

    fn end(&mut self, Ended { task, attempt, result, bytes, is_gone }: Ended) {
        self.pending.weigh(bytes);
        self.noted.remove(&task);
        match result {
            Err(error) if is_gone => {
                // Before anything begins again.
                self.tools.forget();
                self.decide(Input::Uncalled { task, attempt, error });
            }
            result => self.decide(Input::Ended { task, attempt, result }),
        }
    }
}

/// Calls a tool that only reads, unless the same was asked not long ago.
async fn call_once_in_a_while(context: Arc<Context>, call: Call, ttl_ms: u64) -> Ended {
    if matches!(context.toolbox.find_planned(&call.tool), Found::Inactive(_)) {
        // What is switched off returns nothing, whatever it returned before.
        return call.carry_out(context.toolbox.clone(), Arc::clone(&context.options)).await;
    }
    let key = cache::key(&call.tool, &call.parameters);
    match context.store.cached(&key, context.clock.now()).await {
        Ok(Some(output)) => {
            let output = Arc::unwrap_or_clone(output);
            let bytes = shared::json::json_size(&output);
            let result = Ok(Answer { cached: true, ..Answer::from(output) });
            let (task, attempt) = (call.task, call.attempt);
            return Ended { task, attempt, result, bytes, is_gone: false };
        }
        Ok(None) => (),
        Err(err) => warn!(%err, "cannot look into the cache"),
    }
    let ended = call.carry_out(context.toolbox.clone(), Arc::clone(&context.options)).await;
    if let Ok(Answer { output, .. }) = &ended.result {
        let until = expiry(context.clock.now(), Duration::from_millis(ttl_ms));
        if let Err(err) = context.store.cache(&key, output, until).await {
            warn!(%err, "cannot keep an output in the cache");
        }
    }
    ended
}

fn expiry(now: Timestamp, ttl: Duration) -> Timestamp {
    TimeDelta::from_std(ttl)
        .ok()
        .and_then(|it| now.checked_add_signed(it))
        .unwrap_or(Timestamp::MAX_UTC)
}
