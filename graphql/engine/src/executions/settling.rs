//! Decisions of people about calls whose outcome is unknown. No event follows `finished`, so the
//! decision about a finished execution is a record outside the log.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    event::{Settled, Settlement, WaitReason},
    execution::{Execution, Step, StepState},
    id::{ExecutionId, StepId, StepNumber, Task, ToolName},
    json, limits,
    plan::StepKind,
    schema::Schema,
    store::{AuditAction, AuditTarget, Command, FinishedCallId},
    tool::ErrorCode,
};
use toolbox::ToolLookup;

use super::{
    Executions,
    findings::quote_for_shell,
    steering::{is_ignored, split_item_name},
};
use crate::error::EngineError;

const MAX_LISTED_ITEMS: usize = 20;

#[derive(Clone, Debug, PartialEq)]
pub struct SettleOrder {
    pub step: String,
    pub item: Option<u32>,
    pub outcome: Settled,
    /// The output of a call that succeeded. `None` means null.
    pub output: Option<Value>,
    pub comment: Option<String>,
}

struct SettledTask {
    execution: ExecutionId,
    id: StepId,
    task: Task,
}

impl SettledTask {
    fn name(&self) -> String {
        let item = self.task.part.item.map(|item| format!("[{item}]")).unwrap_or_default();
        format!("{}{item}", self.id)
    }

    fn find_step<'a>(&self, execution: &'a Execution) -> Result<&'a Step, EngineError> {
        let missing = || format!("`{}` has no step `{}`", self.execution, self.name());
        execution.task(self.task).ok_or_else(|| EngineError::NotFound(missing()))
    }
}

impl Executions {
    /// Records a decision about a call that ended with an unknown outcome. The same decision again
    /// changes nothing, and another decision is rejected.
    pub async fn settle(
        &self,
        id: ExecutionId,
        order: SettleOrder,
    ) -> Result<Execution, EngineError> {
        let execution = self.reader.expect(id).await?;
        let (name, item) = read_step(id, &order)?;
        let missing = || EngineError::NotFound(format!("`{id}` has no step `{}`", order.step));
        let number = execution.plan().step_number(&name).ok_or_else(missing)?;
        let planned = execution.plan().step(number);
        self.tools.grant.check_tools(planned.called_tool())?;
        check_item(&execution, number, item)?;
        let task = item.map_or_else(|| number.into(), |index| Task::from(number).for_item(index));
        let settled = SettledTask { execution: id, id: name, task };
        let step = settled.find_step(&execution)?;
        check_unknown_outcome(&settled, &execution, step)?;
        let decision = self.read_decision(&planned.tool, order).await?;
        if let Some(before) = &step.settlement {
            check_same_decision(&settled, before, &decision)?;
            return Ok(execution);
        }
        let is_waiting = matches!(step.state, StepState::Waiting(_));
        if is_waiting {
            self.plans.check_plan(execution.plan()).await?;
            let updated = self.settle_waiting(execution, &settled, decision.clone()).await?;
            let step = settled.find_step(&updated)?;
            if let Some(before) = &step.settlement {
                check_same_decision(&settled, before, &decision)?;
                return Ok(updated);
            }
            if let StepState::Waiting(_) = step.state {
                return Ok(updated);
            }
            // The command changed nothing, so the execution ended or another person decided before
            // the command arrived.
            check_unknown_outcome(&settled, &updated, step)?;
        }
        self.record_settlement(&settled, &decision).await?;
        self.reader.expect(id).await
    }

    /// Checks the output of a decision against the schema of the step's tool. A command calls this
    /// while its toolsets are open, and records the decision later without toolsets.
    pub async fn check_settlement(
        &self,
        id: ExecutionId,
        order: &SettleOrder,
    ) -> Result<(), EngineError> {
        let execution = self.reader.expect(id).await?;
        let (name, _) = read_step(id, order)?;
        let (Some(number), Some(output)) = (execution.plan().step_number(&name), &order.output)
        else {
            return Ok(());
        };
        self.check_settled_output(&execution.plan().step(number).tool, output).await
    }

    async fn settle_waiting(
        &self,
        execution: Execution,
        settled: &SettledTask,
        decision: Settlement,
    ) -> Result<Execution, EngineError> {
        let (id, item) = (settled.execution, settled.task.part.item);
        for envelope in self.store.list_commands(Some(id)).await? {
            match envelope.command {
                Command::Settle { step, item: of, decision: before }
                    if step == settled.id && of == item =>
                {
                    check_same_decision(settled, &before, &decision)?;
                    return Ok(execution);
                }
                Command::Approve { step, item: of, .. }
                    if step == settled.id && (of == item || of.is_none()) =>
                {
                    let name = settled.name();
                    let reason = format!(
                        "step `{name}` was answered already; if no process runs `{id}`, continue \
                         it with `faber execute {id}`"
                    );
                    return Err(EngineError::Conflict(reason));
                }
                _ => (),
            }
        }
        let step = settled.id.clone();
        self.control.settle(id, step.clone(), item, decision).await?;
        self.await_event(execution, |_, event| {
            is_ignored(event) || event.step() == Some(&step) && event.part().item == item
        })
        .await
    }

    async fn record_settlement(
        &self,
        settled: &SettledTask,
        decision: &Settlement,
    ) -> Result<(), EngineError> {
        let call = FinishedCallId {
            execution: settled.execution,
            step: settled.id.clone(),
            item: settled.task.part.item,
        };
        let earlier = self.store.settle_call(&call, decision, self.clock.now()).await?;
        if let Some(earlier) = earlier {
            return check_same_decision(settled, &earlier, decision);
        }
        let target = AuditTarget {
            step: Some(settled.id.clone()),
            ..AuditTarget::of_execution(settled.execution)
        };
        let (index, outcome) = (settled.task.part.item, decision.outcome.as_str());
        let detail = json!({ "index": index, "outcome": outcome });
        self.record_action(AuditAction::SETTLE, target, detail).await;
        Ok(())
    }

    async fn read_decision(
        &self,
        tool: &ToolName,
        order: SettleOrder,
    ) -> Result<Settlement, EngineError> {
        let SettleOrder { outcome, output, comment, .. } = order;
        if comment.as_ref().is_some_and(|comment| comment.len() > limits::TEXT_BYTES) {
            let reason = format!("`comment` has more than {} bytes", limits::TEXT_BYTES);
            return Err(EngineError::InvalidArgument(reason));
        }
        match (outcome, output) {
            (Settled::Succeeded, None) => {
                Ok(Settlement { outcome, output: Some(Arc::default()), comment })
            }
            (Settled::Succeeded, Some(output)) => {
                self.check_settled_output(tool, &output).await?;
                Ok(Settlement { outcome, output: Some(Arc::new(output)), comment })
            }
            (Settled::Failed, None) => Ok(Settlement { outcome, output: None, comment }),
            (Settled::Failed, Some(_)) => {
                let reason = "a call that failed has no output: leave `output` out";
                Err(EngineError::InvalidArgument(reason.to_owned()))
            }
        }
    }

    async fn check_settled_output(
        &self,
        tool: &ToolName,
        output: &Value,
    ) -> Result<(), EngineError> {
        if json::json_size(output) > limits::OUTPUT_BYTES {
            let reason = format!("`output` has more than {} bytes", limits::OUTPUT_BYTES);
            return Err(EngineError::LimitExceeded(reason));
        }
        if json::is_deeper_than(output, limits::JSON_DEPTH) {
            let reason = format!("`output` is nested deeper than {} levels", limits::JSON_DEPTH);
            return Err(EngineError::InvalidArgument(reason));
        }
        let inventory = &self.tools.inventory;
        inventory.wait_for_tools(std::slice::from_ref(tool)).await;
        let (ToolLookup::Tool(found) | ToolLookup::Inactive(found)) =
            inventory.toolbox().find_planned(tool)
        else {
            return Ok(());
        };
        let Some(schema) = &found.definition().output_schema else { return Ok(()) };
        // Accepts any output if the schema is invalid.
        let Ok(schema) = Schema::new(schema) else { return Ok(()) };
        match schema.complaint(output) {
            None => Ok(()),
            Some(complaint) => {
                let reason =
                    format!("`output` does not fit the `outputSchema` of `{tool}`: {complaint}");
                Err(EngineError::InvalidArgument(reason))
            }
        }
    }
}

fn read_step(id: ExecutionId, order: &SettleOrder) -> Result<(StepId, Option<u32>), EngineError> {
    let missing = || EngineError::NotFound(format!("`{id}` has no step `{}`", order.step));
    let (name, item) = split_item_name(&order.step).ok_or_else(missing)?;
    let name = name.parse().map_err(|_| missing())?;
    match (item, order.item) {
        (Some(one), Some(other)) if one != other => {
            let reason = format!(
                "`stepId` names item {one}, and `item` is {other}: leave out one \
                of them"
            );
            Err(EngineError::InvalidArgument(reason))
        }
        (item, other) => Ok((name, item.or(other))),
    }
}

fn check_item(
    execution: &Execution,
    number: StepNumber,
    item: Option<u32>,
) -> Result<(), EngineError> {
    let planned = execution.plan().step(number);
    let id = &planned.id;
    match (&planned.for_each, item) {
        (None, Some(_)) => {
            let reason = format!("step `{id}` has no items: leave `item` out");
            Err(EngineError::InvalidArgument(reason))
        }
        (Some(_), None) => {
            let items = execution.step(number).items.iter().flat_map(|items| items.as_slice());
            let unknown: Vec<u32> = (0..)
                .zip(items)
                .filter(|(index, item)| {
                    let task = Task::from(number).for_item(*index);
                    let is_open = has_unknown_outcome(item) || execution.repeats_open_call(task);
                    is_open && item.settlement.is_none()
                })
                .map(|(index, _)| index)
                .collect();
            Err(EngineError::InvalidArgument(list_items(id, &unknown)))
        }
        _ => Ok(()),
    }
}

fn list_items(id: &StepId, unknown: &[u32]) -> String {
    let item_names: Vec<String> =
        unknown.iter().take(MAX_LISTED_ITEMS).map(ToString::to_string).collect();
    let more = unknown.len().saturating_sub(item_names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let item_list = item_names.join(", ");
    let ask = format!("step `{id}` has a `forEach`: name one item with `item`");
    match unknown {
        [] => format!("{ask}; no item has an unknown outcome"),
        _ => format!("{ask}; items with an unknown outcome: {item_list}{more}"),
    }
}

fn has_unknown_outcome(step: &Step) -> bool {
    let is_waiting = matches!(
        &step.state,
        StepState::Waiting(WaitReason::Decision { error })
            if error.code == ErrorCode::OUTCOME_UNKNOWN
    );
    is_waiting || step.is_outcome_unknown()
}

/// Rejects a step whose outcome is known, and a step whose call was made in another execution.
fn check_unknown_outcome(
    settled: &SettledTask,
    execution: &Execution,
    step: &Step,
) -> Result<(), EngineError> {
    let (name, planned) = (settled.name(), execution.plan().step(settled.task.step));
    let is_open = has_unknown_outcome(step) || execution.repeats_open_call(settled.task);
    if !is_open && step.settlement.is_none() {
        let state = step.state.name();
        let mut reason = format!(
            "the outcome of step `{name}` is known: it is {state}, and not failed with \
             `tool.outcome_unknown`"
        );
        // The idempotency key of a call begins with the id of the execution that made the call.
        let earlier = execution.open_earlier_key(settled.task);
        if let Some((earlier, _)) = earlier.and_then(|call| call.key.split_once('/')) {
            let quoted_name = quote_for_shell(&name);
            reason = format!(
                "{reason}; the outcome of the call in `{earlier}` is unknown: \
                 `faber settle {earlier} {quoted_name}`"
            );
        }
        return Err(EngineError::Conflict(reason));
    }
    if let StepKind::Plan(_) = planned.kind {
        let child = step.child.map(|child| format!("`{child}`"));
        let child = child.unwrap_or_else(|| "its child execution".to_owned());
        let reason =
            format!("step `{name}` executes a plan: settle the step of {child} that made the call");
        return Err(EngineError::InvalidArgument(reason));
    }
    Ok(())
}

fn check_same_decision(
    settled: &SettledTask,
    before: &Settlement,
    decision: &Settlement,
) -> Result<(), EngineError> {
    if before.is_same_answer(decision) {
        return Ok(());
    }
    let (name, outcome) = (settled.name(), before.outcome.as_str());
    let how = if before.outcome == decision.outcome { " with another output" } else { "" };
    Err(EngineError::Conflict(format!("step `{name}` was settled already: {outcome}{how}")))
}
