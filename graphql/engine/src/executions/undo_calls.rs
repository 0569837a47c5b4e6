use shared::{
    execution::{AttemptKind, Execution, StepState},
    id::{ExecutionId, StepId, ToolName},
};

use super::reader::ExecutionReader;
use crate::error::EngineError;

const MAX_READ_EXECUTIONS: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoCall {
    /// The execution that has the step: the given execution, or the execution of one of its
    /// sub-plans.
    pub execution: ExecutionId,
    pub step: StepId,
    /// The item of the step's `forEach`, from 0.
    pub item: Option<u32>,
    pub tool: ToolName,
}

impl ExecutionReader {
    /// Returns the calls that undo the finished steps of an unfinished execution and of its
    /// sub-plans. Reads a limited number of sub-plans.
    pub async fn undo_calls(&self, execution: &Execution) -> Result<Vec<UndoCall>, EngineError> {
        let (mut calls, mut children) = (list_undo_calls(execution), list_open_children(execution));
        for _ in 0..MAX_READ_EXECUTIONS {
            let Some(id) = children.pop() else { break };
            // Skips a child that does not exist yet, because it has done nothing.
            let Some(child) = self.load(id).await? else { continue };
            children.append(&mut list_open_children(&child));
            calls.append(&mut list_undo_calls(&child));
        }
        Ok(calls)
    }
}

fn list_undo_calls(execution: &Execution) -> Vec<UndoCall> {
    if execution.state().is_finished() {
        return Vec::new();
    }
    let undoable = execution.undoable().iter().rev();
    let calls = undoable.filter_map(|task| {
        let planned = execution.plan().step(task.step);
        Some(UndoCall {
            execution: execution.id(),
            step: planned.id.clone(),
            item: task.part.item,
            tool: planned.compensate.as_ref()?.tool.clone(),
        })
    });
    calls.collect()
}

fn list_open_children(execution: &Execution) -> Vec<ExecutionId> {
    let tasks = execution.agenda().in_children().iter();
    let children = tasks.filter_map(|task| match execution.task(*task)?.state {
        StepState::Running { how: AttemptKind::Executing { child }, .. } => Some(child),
        _ => None,
    });
    children.collect()
}
