//! Plans: tool executions in an order in which they can run. A [`Plan`] cannot be invalid, because
//! [`Plan::from_resolved_steps`] checks it in the compiler and on every load from a store.

mod inputs;
mod names;
mod policy;
mod proof;
mod read;
mod unchecked;

use std::{collections::BTreeMap, sync::Arc};

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    inputs::PlanInputs,
    names::StepNames,
    policy::{OnError, RetryPolicy, StepPolicy},
    unchecked::{PlanError, StoredPlanError, UncheckedCompensation, UncheckedPlan, UncheckedStep},
};
use crate::{
    clock::Timestamp,
    condition::Condition,
    diagnostic::Diagnostic,
    id::{Part, PlanId, RequestId, StepId, StepNumber, ToolName},
    template::{Path, Reference, Template},
};

/// A compiled plan.
#[derive(Clone, Debug)]
pub struct Plan {
    about: PlanInfo,
    steps: Vec<ToolExecution>,
    /// The steps in the order of the draft.
    written: Vec<StepNumber>,
    step_numbers: IndexMap<StepId, StepNumber, RandomState>,
    dependents: Vec<Vec<StepNumber>>,
    /// The steps that fill each variable, in plan order. The last step that succeeds decides the
    /// value.
    variables: BTreeMap<Arc<str>, Vec<StepNumber>>,
    diagnostics: Vec<Diagnostic>,
}

/// The purpose and origin of a plan.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanInfo {
    #[serde(rename = "planId", alias = "id")]
    pub id: PlanId,
    #[serde(rename = "requestId", alias = "request")]
    pub request: RequestId,
    /// The version of the plan within its request, counted from one.
    pub version: u32,
    pub query: String,
    /// The author of the draft: `offline`, `explicit`, or a model's name.
    pub planner: String,
    #[serde(rename = "createdAt", alias = "created_at", with = "chrono::serde::ts_microseconds")]
    pub created_at: Timestamp,
}

/// A step of a plan: one tool call, a wait, or the execution of another plan.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub struct ToolExecution {
    pub id: StepId,
    /// The tool, as `set.name`.
    pub tool: ToolName,
    pub kind: StepKind,
    /// The inputs of the plan that the step executes, if they have a schema.
    pub inputs: Option<PlanInputs>,
    pub parameters: Arc<Value>,
    pub template: Template,
    /// The steps that must finish before this step starts, in plan order.
    pub depends_on: Vec<StepNumber>,
    pub output_mapping: Vec<OutputMapping>,
    pub policy: StepPolicy,
    /// The condition. A step with a condition waits until its dependencies finish, whether or not
    /// they succeeded.
    pub when: Option<Condition>,
    pub for_each: Option<ForEach>,
    pub compensate: Option<Box<Compensation>>,
}

/// A list. The step runs once for each of its items.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct ForEach {
    /// The template as it was written.
    pub written: String,
    pub list: Reference,
}

/// The call that undoes a step.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct Compensation {
    pub tool: ToolName,
    pub parameters: Arc<Value>,
    pub template: Template,
    pub policy: StepPolicy,
}

/// The call of a step, or of a part of a step.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    pub tool: &'a ToolName,
    pub kind: StepKind,
    pub template: &'a Template,
    pub policy: &'a StepPolicy,
}

/// A part of an output, and the variable that it fills.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct OutputMapping {
    pub written: String,
    pub path: Path,
    pub variable: Arc<str>,
}

/// The work of a step: a call, a wait, or another plan.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Call,
    /// `flow.sleep`: the machine waits for a time.
    Sleep,
    /// `flow.wait`: the machine waits for a signal.
    Wait,
    Plan(PlanId),
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl ToolExecution {
    /// Returns `true` if the step waits for a person or a signal before its call.
    pub fn must_wait_first(&self) -> bool {
        self.kind == StepKind::Wait || self.policy.requires_approval
    }

    /// Returns the tool that the step calls, or `None` if it executes a plan.
    pub fn called_tool(&self) -> Option<&ToolName> {
        (!matches!(self.kind, StepKind::Plan(_))).then_some(&self.tool)
    }

    pub fn call_of_part(&self, part: Part) -> Callee<'_> {
        match &self.compensate {
            Some(undo) if part.undo => Callee {
                tool: &undo.tool,
                kind: StepKind::of_tool(&undo.tool),
                template: &undo.template,
                policy: &undo.policy,
            },
            _ => Callee {
                tool: &self.tool,
                kind: self.kind,
                template: &self.template,
                policy: &self.policy,
            },
        }
    }
}

impl StepKind {
    /// Returns the kind of a call of `tool`.
    pub fn of_tool(tool: &ToolName) -> Self {
        match tool.as_str() {
            "flow.sleep" => Self::Sleep,
            "flow.wait" => Self::Wait,
            _ => Self::Call,
        }
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Plan {
    pub fn info(&self) -> &PlanInfo {
        &self.about
    }

    /// Returns a plan with the same steps, for another version or request.
    #[must_use]
    pub fn with_info(self, about: PlanInfo) -> Self {
        Self { about, ..self }
    }

    /// Adds diagnostics for the plan's author.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<Diagnostic>) -> Self {
        self.diagnostics.extend(warnings);
        self
    }

    pub fn id(&self) -> PlanId {
        self.about.id
    }

    /// Returns the steps in topological order.
    pub fn steps(&self) -> &[ToolExecution] {
        &self.steps
    }

    pub fn step(&self, number: StepNumber) -> &ToolExecution {
        &self.steps[number.get()]
    }

    pub fn step_number(&self, id: &StepId) -> Option<StepNumber> {
        self.step_numbers.get(id).copied()
    }

    pub fn dependents(&self, number: StepNumber) -> &[StepNumber] {
        &self.dependents[number.get()]
    }

    /// Returns the tools that the plan calls, compensations included.
    pub fn called_tools(&self) -> impl Iterator<Item = &ToolName> {
        self.steps.iter().flat_map(|step| {
            step.called_tool().into_iter().chain(step.compensate.as_ref().map(|undo| &undo.tool))
        })
    }

    pub fn sub_plans(&self) -> impl Iterator<Item = PlanId> {
        self.steps.iter().filter_map(|step| match step.kind {
            StepKind::Plan(id) => Some(id),
            _ => None,
        })
    }

    /// Returns the variables and the steps that fill them, in plan order.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Vec<StepNumber>> {
        &self.variables
    }

    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the steps in the order of the draft.
    pub fn draft_order(&self) -> &[StepNumber] {
        &self.written
    }

    /// Groups the steps into layers that can run at the same time.
    ///
    /// A step's layer is one more than the highest layer of its dependencies. Steps of a layer are
    /// in the order of the draft.
    pub fn layers(&self) -> Vec<Vec<StepNumber>> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let depth = step.depends_on.iter().map(|number| depths[number.get()] + 1).max();
            depths.push(depth.unwrap_or(0));
        }
        let deepest = depths.iter().max().map_or(0, |depth| depth + 1);
        let mut layers = vec![Vec::new(); deepest];
        for number in &self.written {
            layers[depths[number.get()]].push(*number);
        }
        layers
    }

    /// Converts the plan to the form that stores keep.
    pub fn to_unchecked(&self) -> UncheckedPlan {
        let steps = self.steps.iter().map(|step| UncheckedStep {
            id: step.id.clone(),
            tool: step.tool.clone(),
            parameters: step.parameters.clone(),
            depends_on: step
                .depends_on
                .iter()
                .map(|number| self.step(*number).id.clone())
                .collect(),
            output_mapping: step
                .output_mapping
                .iter()
                .map(|mapping| (mapping.written.clone(), (*mapping.variable).to_owned()))
                .collect(),
            policy: step.policy.clone(),
            plan: match step.kind {
                StepKind::Plan(id) => Some(id),
                _ => None,
            },
            inputs: step.inputs.as_ref().map(|inputs| Arc::clone(inputs.schema())),
            when: step.when.as_ref().map(|condition| condition.source().to_owned()),
            for_each: step.for_each.as_ref().map(|for_each| for_each.written.clone()),
            compensate: step.compensate.as_ref().map(|undo| {
                Box::new(UncheckedCompensation {
                    tool: undo.tool.clone(),
                    parameters: Arc::clone(&undo.parameters),
                    policy: undo.policy.clone(),
                })
            }),
        });
        UncheckedPlan {
            about: self.about.clone(),
            steps: steps.collect(),
            written: if self.written.is_sorted() { Vec::new() } else { self.written.clone() },
            diagnostics: self.diagnostics.clone(),
        }
    }

    /// Serializes the plan to the JSON that stores keep.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.to_unchecked()).expect("plans are JSON")
    }

    /// Parses a plan from the JSON that stores keep.
    pub fn from_json(text: &str) -> Result<Self, StoredPlanError> {
        Ok(serde_json::from_str::<UncheckedPlan>(text)?.try_into()?)
    }
}

#[cfg(test)]
mod tests;
