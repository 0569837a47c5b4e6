//! Plans: tool executions in an order that provably can run.
//!
//! A [`Plan`] cannot be invalid. The compiler *finds* the order; [`Plan::prove`] *checks* it,
//! in one pass, for the compiler and for every load from a store: each step depends only on
//! earlier ones, and every template looks only at what its step depends on.

mod inputs;
mod names;
mod policy;
mod proof;
mod read;
mod unchecked;

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    inputs::Inputs,
    names::StepNames,
    policy::{OnError, RetryPolicy, StepPolicy},
    unchecked::{PlanError, StoredPlanError, UncheckedCompensation, UncheckedPlan, UncheckedStep},
};
use crate::{
    clock::Timestamp,
    condition::Condition,
    diagnostic::Diagnostic,
    id::{Part, PlanId, RequestId, StepId, StepIx, ToolName},
    template::{Path, Reference, Template},
};

/// A compiled plan.
#[derive(Clone, Debug)]
pub struct Plan {
    about: About,
    steps: Vec<ToolExecution>,
    /// The steps in the order in which they were written.
    written: Vec<StepIx>,
    numbers: IndexMap<StepId, StepIx>,
    dependents: Vec<Vec<StepIx>>,
    /// Who fills a variable, in plan order: the last that did wins.
    variables: BTreeMap<Arc<str>, Vec<StepIx>>,
    diagnostics: Vec<Diagnostic>,
}

/// What a plan is for and where it came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The plan's identifier.
    pub id: PlanId,
    /// The request that it belongs to.
    pub request: RequestId,
    /// Counts the plans of the request, from one.
    pub version: u32,
    /// What was asked for, in words.
    pub query: String,
    /// Who wrote the draft: `offline`, `explicit`, a model's name.
    pub planner: String,
    /// When it was compiled.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub created_at: Timestamp,
}

/// One tool call of a plan. In short, a step.
#[derive(Clone, Debug)]
pub struct ToolExecution {
    /// Its name within the plan.
    pub id: StepId,
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// Who carries it out.
    pub kind: StepKind,
    /// What the plan that it executes is given, where that says so.
    pub inputs: Option<Inputs>,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// The parameters with their holes known.
    pub template: Template,
    /// What must be over before it starts, in plan order.
    pub depends_on: Vec<StepIx>,
    /// Which part of its output fills which variable.
    pub output_mapping: Vec<Mapping>,
    /// How it is carried out.
    pub policy: StepPolicy,
    /// Whether it is done at all. One that has a condition does not care how others ended.
    pub when: Option<Condition>,
    /// The list for each item of which it is done.
    pub for_each: Option<ForEach>,
    /// What undoes it.
    pub compensate: Option<Box<Compensation>>,
}

/// A list for each item of which a step is done.
#[derive(Clone, Debug, PartialEq)]
pub struct ForEach {
    /// The template as it was written.
    pub written: String,
    /// Where the list is.
    pub list: Reference,
}

/// The call that undoes a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Compensation {
    /// The tool, as `set.name`.
    pub tool: ToolName,
    /// The parameters as they were written.
    pub parameters: Arc<Value>,
    /// The parameters with their holes known.
    pub template: Template,
    /// How it is carried out.
    pub policy: StepPolicy,
}

/// What is called for a step, or for a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Callee<'a> {
    /// The tool, as `set.name`.
    pub tool: &'a ToolName,
    /// Who carries it out.
    pub kind: StepKind,
    /// The parameters with their holes known.
    pub template: &'a Template,
    /// How it is carried out.
    pub policy: &'a StepPolicy,
}

/// A part of an output, and the variable that it fills.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The path as it was written.
    pub written: String,
    /// Where in the output.
    pub path: Path,
    /// The variable.
    pub variable: Arc<str>,
}

/// Who carries a step out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A tool is called.
    Call,
    /// `flow.sleep`: the machine itself waits for a time.
    Sleep,
    /// `flow.wait`: the machine itself waits for a signal.
    Wait,
    /// Another plan is executed.
    Plan(PlanId),
}

impl ToolExecution {
    /// Returns whether the step, once ready, waits for somebody before anything is called.
    pub fn asks_first(&self) -> bool {
        self.kind == StepKind::Wait || self.policy.requires_approval
    }

    /// Returns the tool that is called, unless another plan is executed.
    pub fn calls(&self) -> Option<&ToolName> {
        (!matches!(self.kind, StepKind::Plan(_))).then_some(&self.tool)
    }

    /// Returns what is called for a part of the step.
    pub fn callee(&self, part: Part) -> Callee<'_> {
        match &self.compensate {
            Some(undo) if part.undo => Callee {
                tool: &undo.tool,
                kind: StepKind::of(&undo.tool),
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
    /// Returns who carries out a call of `tool`.
    pub fn of(tool: &ToolName) -> Self {
        match tool.as_str() {
            "flow.sleep" => Self::Sleep,
            "flow.wait" => Self::Wait,
            _ => Self::Call,
        }
    }
}

impl Plan {
    /// Returns what the plan is for and where it came from.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Returns the same steps as another plan: another version, another request.
    #[must_use]
    pub fn with_about(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// Returns the plan with more for its author to know.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<Diagnostic>) -> Self {
        self.diagnostics.extend(warnings);
        self
    }

    /// Returns the plan's identifier.
    pub fn id(&self) -> PlanId {
        self.about.id
    }

    /// Returns the steps, in topological order.
    pub fn steps(&self) -> &[ToolExecution] {
        &self.steps
    }

    /// Returns a step by its number.
    pub fn step(&self, number: StepIx) -> &ToolExecution {
        &self.steps[number.get()]
    }

    /// Returns the number of the step called `id`.
    pub fn number(&self, id: &StepId) -> Option<StepIx> {
        self.numbers.get(id).copied()
    }

    /// Returns the steps that depend on a step.
    pub fn dependents(&self, number: StepIx) -> &[StepIx] {
        &self.dependents[number.get()]
    }

    /// Returns every tool that the plan calls, compensations included.
    pub fn tools(&self) -> impl Iterator<Item = &ToolName> {
        self.steps
            .iter()
            .flat_map(|it| it.calls().into_iter().chain(it.compensate.as_ref().map(|it| &it.tool)))
    }

    /// Returns every plan that the plan executes.
    pub fn sub_plans(&self) -> impl Iterator<Item = PlanId> {
        self.steps.iter().filter_map(|it| match it.kind {
            StepKind::Plan(id) => Some(id),
            _ => None,
        })
    }

    /// Returns every variable and the steps that fill it, in plan order.
    pub fn variables(&self) -> &BTreeMap<Arc<str>, Vec<StepIx>> {
        &self.variables
    }

    /// Returns what the author should know.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the steps in the order in which they were written.
    pub fn written(&self) -> &[StepIx] {
        &self.written
    }

    /// Returns what may run at the same time: each step's layer is one more than the highest
    /// among those it depends on. Inside a layer the steps stand as they were written.
    pub fn layers(&self) -> Vec<Vec<StepIx>> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let depth = step.depends_on.iter().map(|it| depths[it.get()] + 1).max();
            depths.push(depth.unwrap_or(0));
        }
        let deepest = depths.iter().max().map_or(0, |it| it + 1);
        let mut layers = vec![Vec::new(); deepest];
        for number in &self.written {
            layers[depths[number.get()]].push(*number);
        }
        layers
    }

    /// Returns the plan as a store keeps it.
    pub fn to_unchecked(&self) -> UncheckedPlan {
        let steps = self.steps.iter().map(|step| UncheckedStep {
            id: step.id.clone(),
            tool: step.tool.clone(),
            parameters: step.parameters.clone(),
            depends_on: step.depends_on.iter().map(|it| self.step(*it).id.clone()).collect(),
            output_mapping: step
                .output_mapping
                .iter()
                .map(|it| (it.written.clone(), (*it.variable).to_owned()))
                .collect(),
            policy: step.policy.clone(),
            plan: match step.kind {
                StepKind::Plan(id) => Some(id),
                _ => None,
            },
            inputs: step.inputs.as_ref().map(|it| Arc::clone(it.schema())),
            when: step.when.as_ref().map(|it| it.source().to_owned()),
            for_each: step.for_each.as_ref().map(|it| it.written.clone()),
            compensate: step.compensate.as_ref().map(|it| {
                Box::new(UncheckedCompensation {
                    tool: it.tool.clone(),
                    parameters: Arc::clone(&it.parameters),
                    policy: it.policy.clone(),
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

    /// Returns the plan as the JSON text that stores keep.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.to_unchecked()).expect("plans are JSON")
    }

    /// Reads a plan from the JSON text that stores keep.
    pub fn from_json(text: &str) -> Result<Self, StoredPlanError> {
        Ok(serde_json::from_str::<UncheckedPlan>(text)?.try_into()?)
    }
}

#[cfg(test)]
mod tests;
