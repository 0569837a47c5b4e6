//! Calls that begin before the steps that ask for them: while the plan is still being written.
//!
//! Only what reads is called so early. Whoever begins such a call writes it down; a step that
//! calls the same takes its result, and the log says that it did. One that no step takes is told to
//! stop, and nobody misses it: after a crash the step calls for itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use shared::{
    event::StepStarted,
    id::{Attempt, Part, StepId, StepIx, Task, ToolName},
    plan::Callee,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    blobs::Blobs,
    call::{Call, Ended},
    options::Options,
    tool::{ToolContext, progress::Reports},
    toolbox::Toolbox,
};

/// A call that has begun. Dropping it stops it.
#[derive(Debug)]
pub struct CallAhead {
    tool: ToolName,
    parameters: Arc<Value>,
    /// One task.
    work: JoinSet<Ended>,
    stop: CancellationToken,
}

/// Calls that have begun, by the step that is to take what comes of each.
#[derive(Debug, Default)]
pub struct Ahead(BTreeMap<StepId, CallAhead>);

impl CallAhead {
    /// Calls what a step will call, as it would.
    pub fn begin(
        callee: Callee<'_>,
        parameters: Arc<Value>,
        blobs: Blobs,
        toolbox: &Toolbox,
        options: &Arc<Options>,
    ) -> Self {
        let (task, attempt) =
            (Task { step: StepIx::new(0), part: Part::default() }, Attempt::FIRST);
        let (tool, stop) = (callee.tool.clone(), CancellationToken::new());
        let call = Call {
            task,
            attempt,
            tool: tool.clone(),
            pinned: None,
            parameters: Arc::clone(&parameters),
            timeout: callee.policy.timeout(),
            idle_timeout: callee.policy.idle_timeout_ms.map(Duration::from_millis),
            progress: Reports::default().sink((task, attempt)),
            cx: ToolContext { cancel: stop.clone(), blobs: Some(blobs), ..ToolContext::detached() },
        };
        let mut work = JoinSet::new();
        work.spawn(call.carry_out(toolbox.clone(), Arc::clone(options)));
        Self { tool, parameters, work, stop }
    }

    /// Returns whether it calls this.
    pub fn is_of(&self, tool: &ToolName, parameters: &Value) -> bool {
        self.tool == *tool && *self.parameters == *parameters
    }

    /// Returns what came of it, as what came of an attempt; nothing if it was lost.
    pub(crate) async fn end(
        mut self,
        task: Task,
        attempt: Attempt,
        cancel: CancellationToken,
    ) -> Option<Ended> {
        let ended = tokio::select! {
            biased;
            ended = self.work.join_next() => ended,
            () = cancel.cancelled() => {
                self.stop.cancel();
                self.work.join_next().await
            }
        };
        let mut ended = ended?.ok()?;
        (ended.task, ended.attempt) = (task, attempt);
        if let Ok(answer) = &mut ended.result {
            answer.cached = true;
        }
        Some(ended)
    }
}

impl Ahead {
    /// Adds the call that a step is to take the result of.
    pub fn add(&mut self, step: StepId, call: CallAhead) {
        self.0.insert(step, call);
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the call of what begins, if it is the same.
    pub(crate) fn take(&mut self, tool: &ToolName, started: &StepStarted) -> Option<CallAhead> {
        if self.0.is_empty() || !started.part.is_whole() {
            return None;
        }
        let call = self.0.remove(&started.step)?;
        (started.attempt == Attempt::FIRST && call.is_of(tool, &started.parameters)).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use serde_json::json;
    use shared::{
        clock::WallClock,
        plan::{StepKind, StepPolicy},
        store::memory::Memory,
        template::Template,
        tool::{Effect, ErrorCode, ToolDefinition, ToolError},
    };
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{tool::Tool, toolbox::ToolSet};

    /// Answers once it may; how often it was called and left.
    #[derive(Debug)]
    struct Slow {
        definition: Arc<ToolDefinition>,
        may: Semaphore,
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
            tokio::select! {
                _ = self.may.acquire() => Ok((*given).clone()),
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
        let tool = Arc::new(Slow { definition, may, called: AtomicUsize::new(0), stopped });
        let tools = [Arc::clone(&tool) as Arc<dyn Tool>];
        let set = ToolSet::ready("set".parse().unwrap(), "test", "", tools);
        (tool, Toolbox::new([set]))
    }

    fn begin(toolbox: &Toolbox, given: Value) -> CallAhead {
        let (tool, template, policy) =
            ("set.look".parse().unwrap(), Template::default(), StepPolicy::default());
        let callee =
            Callee { tool: &tool, kind: StepKind::Call, template: &template, policy: &policy };
        let blobs = Blobs::new(Arc::new(Memory::new()), Arc::new(WallClock));
        CallAhead::begin(callee, Arc::new(given), blobs, toolbox, &Arc::default())
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
        let mut ahead = Ahead::default();
        ahead.add("a".parse().unwrap(), begin(&toolbox, json!({ "x": 1 })));
        tool.may.add_permits(1);
        let begins = started("a", Attempt::FIRST, json!({ "x": 1 }));
        let call = ahead.take(&"set.look".parse().unwrap(), &begins).expect("it is the same");
        assert!(ahead.is_empty());
        let ended = call.end(TASK(), Attempt::FIRST, CancellationToken::new()).await.unwrap();
        assert_eq!((ended.task, ended.attempt), (TASK(), Attempt::FIRST));
        let answer = ended.result.unwrap();
        assert_eq!((answer.output, answer.cached), (json!({ "x": 1 }), true));
        assert_eq!(tool.called.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_is_not_the_same_is_stopped() {
        let (tool, toolbox) = slow();
        for (name, begins) in [
            ("set.look", started("a", Attempt::FIRST, json!({ "x": 1.0 }))),
            ("set.look", started("a", Attempt::FIRST.next(), json!({ "x": 1 }))),
            ("set.other", started("a", Attempt::FIRST, json!({ "x": 1 }))),
        ] {
            let mut ahead = Ahead::default();
            ahead.add("a".parse().unwrap(), begin(&toolbox, json!({ "x": 1 })));
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
        let call = begin(&toolbox, json!({}));
        while tool.called.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let cancel = CancellationToken::new();
        cancel.cancel();
        let ended = call.end(TASK(), Attempt::FIRST, cancel).await.unwrap();
        assert_eq!(ended.result.unwrap_err().code, ErrorCode::CANCELLED);
        assert_eq!(tool.stopped.available_permits(), 1);
    }
}
