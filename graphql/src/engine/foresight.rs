//! Plans whose execution begins while they are still being written.
//!
//! A step that only reads and depends on nothing is called as soon as its end is there, if nothing
//! that does more was written before it: whatever becomes of the plan, nobody can tell that it was
//! called. It is compiled like any plan, for it must be allowed like any; and it is in the
//! transcript before it is called.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use executor::{
    ahead::{Ahead, CallAhead},
    blobs::Blobs,
};
use planner::{Foresight, Judge, draft::Draft};
use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    execution::{ExecutionMode, ExecutionOptions},
    id::{Part, RequestId},
    plan::{Plan, StepKind, ToolExecution},
    template::Template,
    tool::Effect,
};

use super::{Engine, planners::Compiling};
use crate::agent;

/// The most calls that one plan can have before it is there.
const MOST: usize = 32;

/// Says what is wrong with a draft, and begins what can be begun before it is there.
pub(super) struct Foreseeing<'a> {
    compiling: Compiling<'a>,
    /// How the plan is to be carried out; nothing if nothing may begin.
    execution: Option<&'a ExecutionOptions>,
    begun: Mutex<Begun>,
}

/// What has begun.
#[derive(Default)]
struct Begun {
    calls: Vec<CallAhead>,
    /// Whether something was written that does more than read: what is behind it may look at what
    /// that does.
    is_over: bool,
}

impl<'a> Foreseeing<'a> {
    pub(super) fn new(compiling: Compiling<'a>, execution: Option<&'a ExecutionOptions>) -> Self {
        let execution = execution.filter(|it| compiling.engine.may_foresee(it));
        Self { compiling, execution, begun: Mutex::default() }
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the calls that are in a plan; the others are told to stop.
    pub(super) fn ahead(self, plan: &Plan) -> Ahead {
        let is_sequential = self.execution.is_some_and(|it| it.mode == ExecutionMode::Sequential);
        let mut calls = self.begun.into_inner().unwrap_or_else(PoisonError::into_inner).calls;
        let mut ahead = Ahead::default();
        for step in plan.steps() {
            // One after another, each may look at what those before it did.
            if is_sequential && !only_reads(step) {
                break;
            }
            let Some(parameters) = known(step) else { continue };
            if let Some(at) = calls.iter().position(|it| it.is_of(&step.tool, parameters)) {
                ahead.add(step.id.clone(), calls.swap_remove(at));
            }
        }
        ahead
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

    /// Begins what a step calls, unless the same has begun.
    async fn call(&self, step: &ToolExecution, parameters: &Arc<Value>) {
        let engine = self.engine();
        if self.begun().calls.iter().any(|it| it.is_of(&step.tool, parameters)) {
            return;
        }
        let told = json!({ "step": step.id, "tool": step.tool, "parameters": parameters });
        let entry = engine.entry("ahead", told);
        if let Err(err) = engine.store.add_transcript(self.request(), &[entry]).await {
            // What cannot be written down is not done.
            tracing::warn!(request = %self.request(), %err, "nothing is called ahead");
            self.begun().is_over = true;
            return;
        }
        let blobs = Blobs::new(Arc::clone(&engine.store), Arc::clone(&engine.clock));
        let (callee, parameters) = (step.callee(Part::default()), Arc::clone(parameters));
        let call = CallAhead::begin(callee, parameters, blobs, &engine.toolbox, &engine.options);
        self.begun().calls.push(call);
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
        self.begun().is_over = false;
    }

    async fn foresee(&self, draft: &Draft) {
        if self.is_over() {
            return;
        }
        // What depends on others is no plan by itself, and whether it only reads is seen by the
        // tool that it names.
        let plan = match self.compiling.compiled(draft).await {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
            Err(_) => {
                let only_reads = self.compiling.only_reads(draft);
                self.begun().is_over |= !only_reads;
                return;
            }
        };
        for step in plan.steps() {
            if !only_reads(step) {
                self.begun().is_over = true;
            } else if let Some(parameters) = known(step)
                && self.engine().may_call_ahead(step, parameters)
            {
                self.call(step, parameters).await;
            }
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
