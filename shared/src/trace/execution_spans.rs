//! The spans of an execution, made from its log. The names and attributes follow the
//! `OpenTelemetry` conventions for generative AI. Contents of calls are left out, because they may
//! be secret.

use super::{AttributeValue, FinishedSpan, SpanContext, SpanEvent, SpanId, SpanKind, TraceId};
use crate::{
    clock::Timestamp,
    event::idempotency_key,
    execution::{EndedAttempt, Execution, ExecutionState, History},
    id::{Attempt, ExecutionId, Task, ToolName},
};

/// Returns the context of the span of an execution as a whole. If the caller sent a context, the
/// span belongs to the caller's trace.
pub fn root_context(execution: &Execution, is_sampled: bool) -> SpanContext {
    let span = SpanId::from_seed(&execution.id().to_string());
    if let Some(caller) = execution.trace() {
        return SpanContext { span, is_sampled, ..caller.clone() };
    }
    let trace = TraceId::of_execution(execution.id());
    SpanContext { trace, span, is_sampled, state: None }
}

pub fn attempt_context(
    execution: &Execution,
    task: Task,
    attempt: Attempt,
    is_sampled: bool,
) -> SpanContext {
    root_context(execution, is_sampled).with_span(attempt_id(execution, task, attempt))
}

fn attempt_id(execution: &Execution, task: Task, attempt: Attempt) -> SpanId {
    let step = &execution.plan().step(task.step).id;
    let key = idempotency_key(execution.id(), step, task.part);
    SpanId::from_seed(&format!("{key}#{attempt}"))
}

/// Makes the span of an attempt that has ended. Returns `None` if the attempt never started. The
/// spans of a list's items are children of the list's span.
pub fn attempt_span(
    execution: &Execution,
    ended: &EndedAttempt,
    is_sampled: bool,
) -> Option<FinishedSpan> {
    let EndedAttempt { task, attempt, .. } = *ended;
    let started_at = ended.started_at?;
    let step = execution.plan().step(task.step);
    let tool: &ToolName = step.call_of_part(task.part).tool;
    let root = root_context(execution, is_sampled);
    let list = Task::from(task.step);
    let parent = match task.part.item {
        Some(_) => attempt_id(execution, list, Attempt::FIRST),
        None => root.span,
    };
    let mut attributes = vec![
        ("gen_ai.operation.name", AttributeValue::from("execute_tool")),
        ("gen_ai.tool.name", tool.to_string().into()),
        ("gen_ai.tool.call.id", idempotency_key(execution.id(), &step.id, task.part).into()),
        ("faber.execution.id", execution.id().to_string().into()),
        ("faber.step.id", step.id.to_string().into()),
        ("faber.step.attempt", attempt.get().into()),
        ("faber.step.outcome", ended.outcome.as_str().into()),
    ];
    if let Some(claim) = &ended.claim {
        attributes.push(("faber.worker.id", claim.worker.to_string().into()));
        attributes.push(("faber.node", claim.node.to_string().into()));
    }
    if let Some(item) = task.part.item {
        attributes.push(("faber.step.item", item.into()));
    }
    if task.part.undo {
        attributes.push(("faber.step.compensation", true.into()));
    }
    if let Some(child) = ended.child {
        attributes.push(("faber.child.execution.id", child.to_string().into()));
    }
    if let Some(error) = &ended.error {
        attributes.push(("error.type", error.code.to_string().into()));
    }
    Some(FinishedSpan {
        context: root.with_span(attempt_id(execution, task, attempt)),
        parent: Some(parent),
        has_remote_parent: false,
        name: format!("execute_tool {tool}").into(),
        kind: SpanKind::Internal,
        started_at,
        ended_at: ended.ended_at.max(started_at),
        attributes,
        events: Vec::new(),
        links: Vec::new(),
        error: ended.error.as_ref().map(|error| error.code.to_string()),
    })
}

/// Makes the span of an execution as a whole. The span of an execution that has not finished ends
/// at its last event.
pub fn root_span(execution: &Execution, is_sampled: bool) -> FinishedSpan {
    let (plan, state) = (execution.plan(), execution.state());
    let last = execution.history().last.map_or(execution.created_at(), |last| last.at);
    let code = execution.first_error().map(|(_, error)| error.code.to_string());
    let code = code.filter(|_| state == ExecutionState::Failed);
    let mut attributes = vec![
        ("gen_ai.operation.name", AttributeValue::from("invoke_workflow")),
        ("gen_ai.workflow.name", plan.id().to_string().into()),
        ("gen_ai.conversation.id", execution.request().to_string().into()),
        ("faber.execution.id", execution.id().to_string().into()),
        ("faber.execution.state", state.as_str().into()),
        ("faber.plan.id", plan.id().to_string().into()),
        ("faber.request.id", execution.request().to_string().into()),
        ("faber.steps", plan.steps().len().into()),
    ];
    if let Some(parent) = execution.parent() {
        attributes.push(("faber.parent.execution.id", parent.execution.to_string().into()));
    }
    let failure = code.unwrap_or_else(|| "execution_failed".to_owned());
    let error = (state == ExecutionState::Failed).then_some(failure);
    if let Some(code) = &error {
        attributes.push(("error.type", code.clone().into()));
    }
    FinishedSpan {
        context: root_context(execution, is_sampled),
        parent: execution.trace().map(|caller| caller.span),
        has_remote_parent: execution.trace().is_some() && execution.parent().is_none(),
        name: format!("invoke_workflow {}", plan.id()).into(),
        kind: SpanKind::Internal,
        started_at: execution.created_at(),
        ended_at: execution.finished_at().unwrap_or(last).max(execution.created_at()),
        attributes,
        events: list_events(execution.history()),
        links: execution.continued_from().map(link_of_execution).into_iter().collect(),
        error,
    }
}

/// Returns the context of another execution, as if its caller had sent no trace. The log of the
/// other execution is not read.
fn link_of_execution(id: ExecutionId) -> SpanContext {
    let span = SpanId::from_seed(&id.to_string());
    SpanContext { trace: TraceId::of_execution(id), span, is_sampled: true, state: None }
}

fn list_events(history: &History) -> Vec<SpanEvent> {
    let plain = |name, at: Timestamp| SpanEvent { name, at, attributes: Vec::new() };
    let mut events: Vec<SpanEvent> = history
        .takeovers
        .iter()
        .map(|takeover| SpanEvent {
            name: "taken_over",
            at: takeover.claim.at,
            attributes: vec![
                ("faber.worker.id", takeover.new.worker.to_string().into()),
                ("faber.node", takeover.new.node.to_string().into()),
                ("faber.lost.worker.id", takeover.lost.worker.to_string().into()),
                ("faber.lost.node", takeover.lost.node.to_string().into()),
            ],
        })
        .collect();
    events.extend(history.paused.map(|paused| plain("paused", paused.at)));
    events.extend(history.cancelled.as_ref().map(|(at, _)| plain("cancel_requested", at.at)));
    events.extend(history.deadline_passed.map(|passed| plain("deadline_passed", passed.at)));
    events.sort_by_key(|event| event.at);
    events
}
