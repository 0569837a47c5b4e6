//! Plans whose execution begins while they are still being written.
//!
//! A step that only reads and depends on nothing is called as soon as its end is there, if nothing
//! that does more was written before it: whatever becomes of the plan, nobody can tell that it was
//! called. It is compiled like any plan, for it must be allowed like any; and it is in the
//! transcript before it is called. The execution that it will be of has its identifier by then, so
//! that the tool is told what the step would tell it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use executor::ahead::{Ahead, CallAhead};
use planner::{Foresight, Judge, compile::Ids, draft::Draft};
use serde_json::{Value, json};
use shared::{
    blob,
    clock::Timestamp,
    diagnostic::Diagnostic,
    execution::{ExecutionMode, ExecutionOptions},
    id::{ExecutionId, Part, RequestId, StepId},
    plan::{Plan, StepKind, ToolExecution},
    template::Template,
    tool::Effect,
};
use toolbox::blobs::Blobs;

use super::{Engine, planners::Compiling};
use crate::agent;

/// The most calls that one plan can have before it is there.
const MOST: usize = 32;
/// How long a plan may take so that what began before it counts: what those calls returned waits for
/// the execution, but not for ever, and only a part of that is for the planning.
const LONGEST: Duration = Duration::from_mins(30);
const _: () = assert!(2 * LONGEST.as_secs() <= blob::AHEAD.as_secs(), "as much is left");

/// Says what is wrong with a draft, and begins what can be begun before it is there.
pub(super) struct Foreseeing<'a> {
    compiling: Compiling<'a>,
    /// How the plan is to be carried out; nothing if nothing may begin.
    execution: Option<&'a ExecutionOptions>,
    /// What the execution will be called.
    id: ExecutionId,
    since: Timestamp,
    begun: Mutex<Begun>,
}

/// What has begun.
#[derive(Default)]
struct Begun {
    calls: Vec<CallAhead>,
    /// What the steps are called that were heard of.
    ids: Ids,
    /// Whether something was written that does more than read: what is behind it may look at what
    /// that does.
    is_over: bool,
}

impl<'a> Foreseeing<'a> {
    pub(super) fn new(compiling: Compiling<'a>, execution: Option<&'a ExecutionOptions>) -> Self {
        let execution = execution.filter(|it| compiling.engine.may_foresee(it));
        let since = compiling.engine.clock.now();
        let id = ExecutionId::draw(since);
        Self { compiling, execution, id, since, begun: Mutex::default() }
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the calls that are in a plan; the others are told to stop. So are those whose steps
    /// do not begin at once, unless they have ended: no more may be under way than steps.
    pub(super) fn ahead(self, plan: &Plan) -> Ahead {
        let (width, is_sequential) = (self.width(), self.is_sequential());
        let is_too_late = is_too_late(self.since, self.engine().clock.now());
        let mut calls = self.begun.into_inner().unwrap_or_else(PoisonError::into_inner).calls;
        let (mut ahead, mut ready) = (Ahead::of(self.id), 0);
        if is_too_late {
            return ahead;
        }
        for step in plan.steps() {
            let at = known(step).and_then(|parameters| {
                calls.iter().position(|it| it.is_of(&step.id, &step.tool, parameters))
            });
            let mut call = at.map(|at| calls.swap_remove(at));
            let is_under_way = call.as_mut().is_some_and(CallAhead::is_under_way);
            let is_done = !is_under_way && call.as_mut().is_some_and(|it| !it.has_failed());
            ready += usize::from(step.depends_on.is_empty() && !is_done);
            match call.filter(|_| is_done || is_under_way && ready <= width) {
                Some(call) => ahead.add(call),
                // One after another, each may look at what those before it did.
                None if is_sequential => break,
                None => (),
            }
        }
        ahead
    }

    /// Returns how many calls may be under way.
    fn width(&self) -> usize {
        self.execution.map_or(0, ExecutionOptions::width)
    }

    fn is_sequential(&self) -> bool {
        self.execution.is_some_and(|it| it.mode == ExecutionMode::Sequential)
    }

    fn engine(&self) -> &'a Engine {
        self.compiling.engine
    }

    fn request(&self) -> RequestId {
        self.compiling.request
    }

    /// Returns whether nothing else may begin now.
    fn is_over(&self) -> bool {
        let begun = self.begun();
        begun.is_over || begun.calls.len() >= MOST
    }

    /// Returns whether there is room for one more call.
    fn has_room(&self) -> bool {
        let mut begun = self.begun();
        let under_way = begun.calls.iter_mut().map(|it| usize::from(it.is_under_way()));
        under_way.sum::<usize>() < self.width()
    }

    /// Begins what a step calls, unless the same has begun. Returns whether it has.
    async fn call(&self, id: StepId, step: &ToolExecution, parameters: &Arc<Value>) -> bool {
        let engine = self.engine();
        if self.begun().calls.iter().any(|it| it.is_of(&id, &step.tool, parameters)) {
            return true;
        }
        if !self.has_room() {
            return false;
        }
        let told = json!({ "step": id, "tool": step.tool, "parameters": parameters });
        let entry = engine.entry("ahead", told);
        if let Err(err) = engine.store.add_transcript(self.request(), &[entry]).await {
            // What cannot be written down is not done.
            tracing::warn!(request = %self.request(), %err, "nothing is called ahead");
            self.begun().is_over = true;
            return false;
        }
        let blobs = Blobs::new(Arc::clone(&engine.store), Arc::clone(&engine.clock));
        let (callee, parameters) = (step.callee(Part::default()), Arc::clone(parameters));
        let call = CallAhead::begin(
            (self.id, id),
            callee,
            parameters,
            blobs,
            (&engine.toolbox, &engine.options),
        );
        self.begun().calls.push(call);
        true
    }
}

#[async_trait]
impl Judge for Foreseeing<'_> {
    async fn judge(&self, draft: &Draft) -> Vec<Diagnostic> {
        self.compiling.judge(draft).await
    }

    fn foresight(&self) -> Option<&dyn Foresight> {
        self.execution.is_some().then_some(self as &dyn Foresight)
    }
}

#[async_trait]
impl Foresight for Foreseeing<'_> {
    async fn begin(&self) {
        let mut begun = self.begun();
        (begun.is_over, begun.ids) = (false, Ids::default());
    }

    async fn foresee(&self, draft: &Draft) {
        if self.is_over() {
            return;
        }
        let Some(id) = draft.tools.first().and_then(|it| self.begun().ids.foresee(it)) else {
            self.begun().is_over = true;
            return;
        };
        // What depends on others is no plan by itself, and whether it only reads is seen by the
        // tool that it names.
        let plan = match self.compiling.compiled(draft).await {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
            Err(_) => {
                let is_last = self.is_sequential() || !self.compiling.only_reads(draft);
                self.begun().is_over |= is_last;
                return;
            }
        };
        for step in plan.steps() {
            let is_called = match known(step) {
                Some(parameters) if self.engine().may_call_ahead(step, parameters) => {
                    self.call(id.clone(), step, parameters).await
                }
                _ => false,
            };
            // One after another, what is behind it is called behind it.
            let is_last = !only_reads(step) || self.is_sequential() && !is_called;
            self.begun().is_over |= is_last;
        }
    }
}

impl Engine {
    /// Returns whether the plan of a query may begin before it is there: not where nothing is to
    /// be called, or later, or where somebody counts.
    fn may_foresee(&self, options: &ExecutionOptions) -> bool {
        !options.dry_run && options.start_at.is_none() && !self.grant.has_limits()
    }

    fn may_call_ahead(&self, step: &ToolExecution, parameters: &Value) -> bool {
        self.options.calls.of(&step.tool, parameters).is_empty()
            && !agent::is_own(&step.tool)
            && self.toolbox.has_all(std::iter::once(&step.tool))
            && self.grant.allows(&step.tool)
    }
}

/// Returns whether a plan was so long in coming that nothing which began before it counts.
fn is_too_late(since: Timestamp, now: Timestamp) -> bool {
    (now - since).to_std().is_ok_and(|took| took > LONGEST)
}

fn only_reads(step: &ToolExecution) -> bool {
    step.kind == StepKind::Call && step.policy.effect == Effect::Read && step.compensate.is_none()
}

/// Returns what a step calls its tool with, if that is known and it waits for nothing.
fn known(step: &ToolExecution) -> Option<&Arc<Value>> {
    let waits = !step.depends_on.is_empty() || step.asks_first() || step.when.is_some();
    let is_plain = step.for_each.is_none() && step.policy.cache_ttl_ms.is_none();
    match &step.template {
        Template::Literal(parameters) if only_reads(step) && is_plain && !waits => Some(parameters),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_long_ago_counts_no_more() {
        let now = Timestamp::UNIX_EPOCH;
        for (took, expected) in [
            (Duration::ZERO, false),
            (LONGEST, false),
            (LONGEST + Duration::from_millis(1), true),
            (blob::AHEAD, true),
        ] {
            assert_eq!(is_too_late(now, now + took), expected, "{took:?}");
            assert!(!is_too_late(now + took, now), "a clock that goes back takes no time");
        }
    }
}
