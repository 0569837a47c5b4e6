//! Calls that begin before the steps that ask for them: while the plan is still being written.
//!
//! Only what reads is called so early. Whoever begins such a call writes it down, and knows whose it
//! will be: the tool sees the execution and the step that are to be. That step takes what it
//! returned, and the log says that it did. One that failed counts for nothing, and one that no step
//! takes is told to stop; nobody misses it: the step calls for itself, as after a crash.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use shared::{
    event::StepStarted,
    id::{Attempt, ExecutionId, Part, StepId, StepIx, Task, ToolName},
    plan::Callee,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolbox::{StepCall, ToolContext, Toolbox, blobs::Blobs, progress::Reports};

use crate::{
    call::{Call, Ended, Key},
    options::Options,
};

/// A call that has begun. Dropping it stops it.
#[derive(Debug)]
pub struct CallAhead {
    step: StepId,
    tool: ToolName,
    parameters: Arc<Value>,
    /// One task, until what came of it is known.
    work: JoinSet<Ended>,
    ended: Option<Ended>,
    /// What it reports while it runs.
    reports: Reports<Key>,
    stop: CancellationToken,
}

/// Calls that have begun for an execution that is to be, by the step that is to take what comes of
/// each.
#[derive(Debug, Default)]
pub struct Ahead {
    execution: Option<ExecutionId>,
    calls: BTreeMap<StepId, CallAhead>,
}

impl CallAhead {
    /// Calls what a step of an execution will call, as its first attempt would.
    pub fn begin(
        (execution, step): (ExecutionId, StepId),
        callee: Callee<'_>,
        parameters: Arc<Value>,
        blobs: Blobs,
        (toolbox, options): (&Toolbox, &Arc<Options>),
    ) -> Self {
        let (task, attempt) =
            (Task { step: StepIx::new(0), part: Part::default() }, Attempt::FIRST);
        let (tool, halt) = (callee.tool.clone(), CancellationToken::new());
        let reports = Reports::default();
        let whose = StepCall { execution, step: step.clone(), part: Part::default(), attempt };
        let call = Call {
            task,
            attempt,
            tool: tool.clone(),
            pinned: None,
            parameters: Arc::clone(&parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: reports.sink((task, attempt)),
            cx: ToolContext {
                call: Some(whose),
                cancel: halt.clone(),
                blobs: Some(blobs.ahead()),
                ..ToolContext::detached()
            },
        };
        let mut work = JoinSet::new();
        work.spawn(call.carry_out(toolbox.clone(), Arc::clone(options)));
        Self { step, tool, parameters, work, ended: None, reports, stop: halt }
    }

    /// Returns whether it calls this for this step.
    pub fn is_of(&self, step: &StepId, tool: &ToolName, parameters: &Value) -> bool {
        self.step == *step && self.tool == *tool && *self.parameters == *parameters
    }

    /// Returns whether it has not ended.
    pub fn is_under_way(&mut self) -> bool {
        if let Some(ended) = self.work.try_join_next() {
            self.ended = ended.ok();
        }
        !self.work.is_empty()
    }

    /// Returns whether it has ended, and is of no use.
    pub fn has_failed(&mut self) -> bool {
        !self.is_under_way() && self.ended.as_ref().is_none_or(|it| it.result.is_err())
    }

    /// Returns what it returned to the attempt that is to call the same, and is stopped with that;
    /// nothing if it failed, or was lost.
    pub(crate) async fn end(mut self, call: &Call) -> Option<Ended> {
        while self.is_under_way() {
            tokio::select! {
                biased;
                ended = self.work.join_next() => self.ended = ended.and_then(Result::ok),
                () = call.cx.cancel.cancelled(), if !self.stop.is_cancelled() => self.stop.cancel(),
                (_, progress) = self.reports.recv() => call.progress.send(progress),
            }
        }
        let mut ended = self.ended?;
        (ended.task, ended.attempt) = (call.task, call.attempt);
        match &mut ended.result {
            Ok(answer) => answer.cached = true,
            // Whoever is told to stop calls nothing anew.
            Err(_) if call.cx.cancel.is_cancelled() => (),
            Err(_) => return None,
        }
        Some(ended)
    }
}

impl Ahead {
    /// Makes room for calls of an execution that is to be.
    pub fn of(execution: ExecutionId) -> Self {
        Self { execution: Some(execution), calls: BTreeMap::new() }
    }

    /// Adds a call.
    pub fn add(&mut self, call: CallAhead) {
        self.calls.insert(call.step.clone(), call);
    }

    /// Returns the execution that is to be, if there are calls for it.
    pub(crate) fn execution(&self) -> Option<ExecutionId> {
        self.execution.filter(|_| !self.calls.is_empty())
    }

    /// Takes the call of what begins, if it is the same.
    pub(crate) fn take(&mut self, tool: &ToolName, started: &StepStarted) -> Option<CallAhead> {
        if self.calls.is_empty() || !started.part.is_whole() {
            return None;
        }
        let call = self.calls.remove(&started.step)?;
        let is_first = started.attempt == Attempt::FIRST;
        (is_first && call.is_of(&started.step, tool, &started.parameters)).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use async_trait::async_trait;
    use futures::FutureExt;
    use serde_json::json;
    use shared::{
        blob::{self, BlobId},
        clock::WallClock,
        limits,
        plan::{StepKind, StepPolicy},
        store::memory::Memory,
        template::Template,
        tool::{Effect, ErrorCode, Progress, ToolDefinition, ToolError},
    };
    use tokio::sync::Semaphore;
    use toolbox::{
        Tool, ToolSet,
        blobs::{Binary, keep},
    };

    use super::*;

    /// Answers once it may, or fails; how often it was called and left, and for whom at last.
    #[derive(Debug)]
    struct Slow {
        definition: Arc<ToolDefinition>,
        may: Semaphore,
        whose: Mutex<Option<StepCall>>,
        called: AtomicUsize,
        stopped: Semaphore,
    }

    /// Tells of the end of a call, however it ends.
    struct Left<'a>(&'a Semaphore);

    impl Drop for Left<'_> {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }

    #[async_trait]
    impl Tool for Slow {
        fn definition(&self) -> &Arc<ToolDefinition> {
            &self.definition
        }

        async fn call(&self, given: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
            self.called.fetch_add(1, Ordering::SeqCst);
            let _left = Left(&self.stopped);
            *self.whose.lock().unwrap() = cx.call.clone();
            cx.progress(Progress { progress: 1.0, total: None, message: None });
            tokio::select! {
                _ = self.may.acquire(), if given["fail"] == true => {
                    Err(ToolError::failed("not yet"))
                }
                _ = self.may.acquire(), if given["fail"] != true => {
                    let (mut output, whose) = ((*given).clone(), cx.call.map(|it| it.execution));
                    let data = Binary::take(&mut output, "/data".to_owned(), "image/png");
                    keep(cx.blobs.as_ref(), whose, output, Vec::from_iter(data)).await
                }
                () = cx.cancel.cancelled() => {
                    Err(ToolError::new(ErrorCode::CANCELLED, "stopped"))
                }
            }
        }
    }

    fn slow() -> (Arc<Slow>, Toolbox) {
        let definition = Arc::new(ToolDefinition {
            name: "look".parse().unwrap(),
            set: "set".parse().unwrap(),
            description: String::new(),
            input_schema: json!({}),
            output_schema: None,
            effect: Effect::Read,
            examples: Vec::new(),
            is_callable: true,
        });
        let (may, stopped) = (Semaphore::new(0), Semaphore::new(0));
        let (called, whose) = (AtomicUsize::new(0), Mutex::default());
        let tool = Arc::new(Slow { definition, may, whose, called, stopped });
        let tools = [Arc::clone(&tool) as Arc<dyn Tool>];
        let set = ToolSet::ready("set".parse().unwrap(), "test", "", tools);
        (tool, Toolbox::new([set]))
    }

    fn begin(toolbox: &Toolbox, given: Value) -> CallAhead {
        begin_beside(Arc::new(Memory::new()), toolbox, given)
    }

    fn begin_beside(store: Arc<Memory>, toolbox: &Toolbox, given: Value) -> CallAhead {
        let (tool, template, policy) =
            ("set.look".parse().unwrap(), Template::default(), StepPolicy::default());
        let callee =
            Callee { tool: &tool, kind: StepKind::Call, template: &template, policy: &policy };
        let blobs = Blobs::new(store, Arc::new(WallClock));
        let whose = (execution(), "a".parse().unwrap());
        CallAhead::begin(whose, callee, Arc::new(given), blobs, (toolbox, &Arc::default()))
    }

    fn execution() -> ExecutionId {
        "exec_1763712000_abc123def".parse().unwrap()
    }

    /// The attempt of a step that is to call the same.
    fn call(cancel: &CancellationToken, reports: &Reports<Key>) -> Call {
        let (task, attempt) = (TASK(), Attempt::FIRST);
        Call {
            task,
            attempt,
            tool: "set.look".parse().unwrap(),
            pinned: None,
            parameters: Arc::default(),
            timeout: Duration::MAX,
            idle_timeout: None,
            progress: reports.sink((task, attempt)),
            cx: ToolContext { cancel: cancel.clone(), ..ToolContext::detached() },
        }
    }

    async fn end(ahead: CallAhead) -> Option<Ended> {
        ahead.end(&call(&CancellationToken::new(), &Reports::default())).await
    }

    fn started(step: &str, attempt: Attempt, given: Value) -> StepStarted {
        StepStarted {
            step: step.parse().unwrap(),
            part: Part::default(),
            attempt,
            parameters: Arc::new(given),
            warnings: Vec::new(),
            until: None,
            items: None,
            child: None,
        }
    }

    const TASK: fn() -> Task = || Task { step: StepIx::new(3), part: Part::default() };

    #[tokio::test]
    async fn a_step_takes_what_came_of_its_call() {
        let (tool, toolbox) = slow();
        let mut ahead = Ahead::of(execution());
        assert_eq!(ahead.execution(), None, "nobody needs to have that name");
        ahead.add(begin(&toolbox, json!({ "x": 1 })));
        assert_eq!(ahead.execution(), Some(execution()));
        tool.may.add_permits(1);
        let begins = started("a", Attempt::FIRST, json!({ "x": 1 }));
        let call = ahead.take(&"set.look".parse().unwrap(), &begins).expect("it is the same");
        assert_eq!(ahead.execution(), None);
        let ended = end(call).await.unwrap();
        assert_eq!((ended.task, ended.attempt), (TASK(), Attempt::FIRST));
        let answer = ended.result.unwrap();
        assert_eq!((answer.output, answer.cached), (json!({ "x": 1 }), true));
        assert_eq!(tool.called.load(Ordering::SeqCst), 1);
        let (execution, step) = (execution(), "a".parse().unwrap());
        let (part, attempt) = (Part::default(), Attempt::FIRST);
        let whose = tool.whose.lock().unwrap().take();
        assert_eq!(whose, Some(StepCall { execution, step, part, attempt }));
    }

    /// Nobody takes it for one whose execution is gone.
    #[tokio::test]
    async fn what_it_returned_waits_for_the_execution() {
        let ((tool, toolbox), store) = (slow(), Arc::new(Memory::new()));
        let large = json!({ "data": "A".repeat(limits::INLINE_BINARY + 4) });
        tool.may.add_permits(1);
        let ended = end(begin_beside(Arc::clone(&store), &toolbox, large)).await.unwrap();
        let id = BlobId::referred(&ended.result.unwrap().output["data"]).unwrap();
        assert!(id.to_string().starts_with(&execution().to_string()));
        assert!(blob::about(&*store, &id).await.unwrap().unwrap().is_ahead);
    }

    #[tokio::test]
    async fn one_that_failed_counts_for_nothing() {
        let (tool, toolbox) = slow();
        let mut begun = begin(&toolbox, json!({ "fail": true }));
        assert!(begun.is_under_way() && !begun.has_failed());
        tool.may.add_permits(1);
        while begun.is_under_way() {
            tokio::task::yield_now().await;
        }
        assert!(begun.has_failed());
        assert!(end(begun).await.is_none());
        assert!(end(begin(&toolbox, json!({ "fail": true }))).await.is_none());
        assert_eq!(tool.called.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn whoever_takes_it_hears_how_far_it_is() {
        let (tool, toolbox) = slow();
        let mut reports = Reports::default();
        let call = call(&CancellationToken::new(), &reports);
        let ended = begin(&toolbox, json!({})).end(&call).boxed();
        let (ended, heard) = tokio::join!(ended, async {
            let (key, progress) = reports.recv().await;
            tool.may.add_permits(1);
            (key, progress.progress)
        });
        assert!(ended.unwrap().result.is_ok());
        assert_eq!(heard, ((TASK(), Attempt::FIRST), 1.0));
    }

    #[tokio::test]
    async fn what_is_not_the_same_is_stopped() {
        let (tool, toolbox) = slow();
        for (name, begins) in [
            ("set.look", started("a", Attempt::FIRST, json!({ "x": 1.0 }))),
            ("set.look", started("a", Attempt::FIRST.next(), json!({ "x": 1 }))),
            ("set.other", started("a", Attempt::FIRST, json!({ "x": 1 }))),
        ] {
            let mut ahead = Ahead::of(execution());
            ahead.add(begin(&toolbox, json!({ "x": 1 })));
            let other = started("b", Attempt::FIRST, json!({ "x": 1 }));
            assert!(ahead.take(&"set.look".parse().unwrap(), &other).is_none());
            // It runs before it is stopped, so that there is something to stop.
            while tool.called.swap(0, Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            assert!(ahead.take(&name.parse().unwrap(), &begins).is_none(), "{name} {begins:?}");
            tool.stopped.acquire().await.unwrap().forget();
        }
    }

    #[tokio::test]
    async fn whoever_cancels_the_step_stops_the_call() {
        let (tool, toolbox) = slow();
        let begun = begin(&toolbox, json!({}));
        while tool.called.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let cancel = CancellationToken::new();
        cancel.cancel();
        let ended = begun.end(&call(&cancel, &Reports::default())).await.unwrap();
        assert_eq!(ended.result.unwrap_err().code, ErrorCode::CANCELLED);
        assert_eq!(tool.stopped.available_permits(), 1);
    }
}
