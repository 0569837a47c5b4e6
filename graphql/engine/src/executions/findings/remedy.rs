use serde_json::{Map, Value, json};
use shared::{
    execution::Execution,
    id::{ExecutionId, Part, StepId, ToolName, ToolSetName},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub label: String,
    pub command: Option<String>,
    pub mutation: Option<&'static str>,
    pub variables: Option<Value>,
    /// `true` if the action can repeat an effect, or can cause an effect that cannot be undone.
    pub is_dangerous: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettlementAnswer {
    Succeeded,
    Failed,
}

impl Remedy {
    fn new(label: impl Into<String>, command: String) -> Self {
        let (mutation, variables, is_dangerous) = (None, None, false);
        Self { label: label.into(), command: Some(command), mutation, variables, is_dangerous }
    }

    fn with_mutation(self, mutation: &'static str, variables: Value) -> Self {
        Self { mutation: Some(mutation), variables: Some(variables), ..self }
    }

    pub(super) fn mark_dangerous(self) -> Self {
        Self { is_dangerous: true, ..self }
    }

    pub(super) fn with_label(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    /// Retries the failed steps. A child execution is retried through its parent.
    pub(super) fn retry(execution: &Execution) -> Self {
        let id = execution.parent().map_or(execution.id(), |parent| parent.execution);
        Self::new("retry what failed, and keep the rest", format!("faber retry {id}"))
            .with_mutation("retryExecution", json!({ "executionId": id, "mode": "FAILED" }))
    }

    pub(super) fn replan(execution: &Execution) -> Self {
        let id = execution.id();
        Self::new("let a model replan the rest", format!("faber replan {id}"))
            .with_mutation("replanExecution", json!({ "executionId": id }))
    }

    pub(super) fn revise(execution: &Execution) -> Self {
        let plan = execution.plan().id();
        Self::new("correct the plan", format!("faber revise {plan} FILE"))
    }

    pub(super) fn give_input(execution: &Execution, missing: &[String]) -> Self {
        let plan = execution.plan().id();
        let mut input = match &*execution.options().input {
            Value::Object(given) => given.clone(),
            _ => Map::new(),
        };
        for name in missing {
            input.entry(name.clone()).or_insert_with(|| json!("…"));
        }
        let input = Value::Object(input);
        let written = quote_for_shell(&input.to_string());
        Self::new(
            "execute the plan with this input",
            format!("faber execute {plan} --input {written}"),
        )
        .with_mutation("executePlan", json!({ "planId": plan, "options": { "input": input } }))
    }

    pub(super) fn with_deadline(execution: &Execution) -> Self {
        let plan = execution.plan().id();
        Self::new(
            "execute the plan with a longer deadline",
            format!("faber execute {plan} --deadline-ms MS"),
        )
    }

    pub(super) fn start_worker(id: ExecutionId) -> Self {
        Self::new("start a worker for it", format!("faber execute {id}"))
    }

    pub(super) fn resume(id: ExecutionId) -> Self {
        Self::new("resume it", format!("faber resume {id}"))
            .with_mutation("resumeExecution", json!({ "executionId": id }))
    }

    pub(super) fn approve(id: ExecutionId, step: &StepId, part: Part, is_approved: bool) -> Self {
        let name = format_part_name(step, part.item);
        let (label, option) =
            if is_approved { ("approve it", "") } else { ("reject it", " --reject") };
        let command = format!("faber approve {id} {}{option}", quote_for_shell(&name));
        let variables = json!({ "executionId": id, "stepId": name, "approved": is_approved });
        Self::new(label, command).with_mutation("approveStep", variables)
    }

    fn settle(id: ExecutionId, step: &StepId, part: Part, answer: SettlementAnswer) -> Self {
        let (label, option, outcome) = match answer {
            SettlementAnswer::Succeeded => ("it took effect", "--succeeded", "SUCCEEDED"),
            SettlementAnswer::Failed => ("it did not take effect", "--failed", "FAILED"),
        };
        let mut variables = json!({ "executionId": id, "stepId": step, "outcome": outcome });
        let mut item = String::new();
        if let Some(index) = part.item {
            variables["item"] = json!(index);
            item = format!(" --item {index}");
        }
        Self::new(
            label,
            format!("faber settle {id} {}{item} {option}", quote_for_shell(step.as_str())),
        )
        .with_mutation("settleStep", variables)
    }

    pub(super) fn is_settlement(&self) -> bool {
        self.mutation == Some("settleStep")
    }

    pub(in crate::executions) fn settle_either_way(
        id: ExecutionId,
        step: &StepId,
        part: Part,
    ) -> [Self; 2] {
        [SettlementAnswer::Succeeded, SettlementAnswer::Failed]
            .map(|settlement| Self::settle(id, step, part, settlement))
    }

    pub(super) fn signal(id: ExecutionId, name: &str) -> Self {
        Self::new("send the signal", format!("faber signal {id} {}", quote_for_shell(name)))
            .with_mutation("signalExecution", json!({ "executionId": id, "name": name }))
    }

    pub(super) fn activate(set: &ToolSetName) -> Self {
        Self::new("activate its toolset", format!("faber toolsets activate {set}"))
            .with_mutation("activateToolSets", json!({ "names": [set] }))
    }

    pub(super) fn doctor() -> Self {
        Self::new("see which tools are missing or unreachable", "faber doctor".to_owned())
    }

    pub(super) fn show_execution(id: ExecutionId) -> Self {
        Self::new("see what happened there", format!("faber debug {id}"))
    }

    /// Calls a tool outside plans, to undo a step whose compensation failed or did not run.
    pub(super) fn call_tool(tool: &ToolName, parameters: &Value) -> Self {
        let written = quote_for_shell(&parameters.to_string());
        Self::new("undo it by hand", format!("faber tools call {tool} {written}"))
            .with_mutation("callTool", json!({ "name": tool, "parameters": parameters }))
            .mark_dangerous()
    }

    pub(super) fn from_command(label: &str, command: &str) -> Self {
        Self::new(label, command.to_owned())
    }
}

pub(super) fn format_part_name(step: &StepId, item: Option<u32>) -> String {
    match item {
        Some(item) => format!("{step}[{item}]"),
        None => step.to_string(),
    }
}

/// Quotes a word for a shell if it is empty, begins with `-` or contains special characters.
/// Brackets are special, too, because a shell reads them as a pattern.
pub fn quote_for_shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:@=".contains(letter);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
