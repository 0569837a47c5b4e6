//! The plans that a plan may execute, as they are when it is made.
//!
//! Compiling asks nobody: whoever has the store looks up what [`names`] lists, and hands it in. So a
//! name means one plan for good, and no plan can ever execute itself.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    id::PlanId,
    limits,
    plan::{Plan, StepKind},
};

use crate::draft::{Draft, SubDraft};

/// What is known of the plans that a draft names.
#[derive(Clone, Debug, Default)]
pub struct SubPlans {
    plans: BTreeMap<String, SubPlan>,
    /// Names of other saved plans, for "did you mean".
    saved: Vec<String>,
}

/// A plan that a step may execute.
#[derive(Clone, Debug, PartialEq)]
pub struct SubPlan {
    /// Its identifier.
    pub id: PlanId,
    /// How many plans are below it, one inside the other: 0 if it executes none.
    pub depth: u32,
    /// The JSON Schema of what it is given, where it says.
    pub inputs: Option<Arc<Value>>,
}

impl SubPlans {
    /// Collects plans by the name that drafts use: an id, or a saved name.
    pub fn new(plans: impl IntoIterator<Item = (String, SubPlan)>) -> Self {
        Self { plans: plans.into_iter().collect(), saved: Vec::new() }
    }

    /// Says which other names there are, for "did you mean".
    #[must_use]
    pub fn with_saved(self, saved: Vec<String>) -> Self {
        Self { saved, ..self }
    }

    /// Returns what the steps of a plan execute, for compiling [`Draft::from_plan`]: the plans that
    /// it was made with, whatever their names mean by now.
    pub fn of(plan: &Plan) -> Self {
        let steps = plan.steps().iter();
        Self::new(steps.filter_map(|it| match it.kind {
            StepKind::Plan(id) => {
                let inputs = it.inputs.as_ref().map(|it| Arc::clone(it.schema()));
                Some((it.tool.to_string(), SubPlan { id, depth: 0, inputs }))
            }
            _ => None,
        }))
    }

    /// Returns the plan that a name means.
    pub fn find(&self, name: &str) -> Option<&SubPlan> {
        self.plans.get(name)
    }

    /// Returns every name that is known.
    pub(crate) fn known(&self) -> impl Iterator<Item = &str> {
        self.plans.keys().chain(&self.saved).map(String::as_str)
    }
}

impl SubPlan {
    /// Returns how deep plans are nested that execute this one: above [`limits::DEPTH`] there can
    /// be none.
    pub fn depth_around(&self) -> Option<u32> {
        self.depth.checked_add(1).filter(|it| *it <= limits::DEPTH)
    }
}

/// Returns the names of all the plans that a draft means to execute, drafts inside it included:
/// what to look up before it is compiled. Sorted, each once.
pub fn names(draft: &Draft) -> Vec<&str> {
    let mut names = Vec::new();
    collect(draft, 0, &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn collect<'a>(draft: &'a Draft, level: u32, names: &mut Vec<&'a str>) {
    // Whatever is deeper is refused without a look at its names.
    if level > limits::DEPTH {
        return;
    }
    for step in &draft.tools {
        match &step.plan {
            Some(SubDraft::Named(name)) => names.push(name),
            Some(SubDraft::Inline(draft)) => collect(draft, level + 1, names),
            None => (),
        }
    }
}
