//! The saved plans that a draft may execute. The caller looks up their names, so the meaning of a
//! name never changes after the compilation, and no plan can execute itself.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    id::PlanId,
    limits,
    plan::{Plan, StepKind},
};

use crate::draft::{Draft, SubDraft};

#[derive(Clone, Debug, Default)]
pub struct SubPlans {
    plans: BTreeMap<String, SubPlan>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubPlan {
    pub id: PlanId,
    pub depth: u32,
    pub inputs: Option<Arc<Value>>,
}

impl SubPlans {
    pub fn new(plans: impl IntoIterator<Item = (String, SubPlan)>) -> Self {
        Self { plans: plans.into_iter().collect() }
    }

    /// Returns the plans that the plan was compiled with, even if their names mean other plans now,
    /// for compiling [`Draft::from_plan`].
    pub fn of_plan(plan: &Plan) -> Self {
        let steps = plan.steps().iter();
        Self::new(steps.filter_map(|step| match step.kind {
            StepKind::Plan(id) => {
                let inputs = step.inputs.as_ref().map(|inputs| Arc::clone(inputs.schema()));
                Some((step.tool.to_string(), SubPlan { id, depth: 0, inputs }))
            }
            _ => None,
        }))
    }

    pub fn find(&self, name: &str) -> Option<&SubPlan> {
        self.plans.get(name)
    }

    pub(crate) fn list_names(&self) -> impl Iterator<Item = &str> {
        self.plans.keys().map(String::as_str)
    }
}

impl SubPlan {
    pub fn depth_around(&self) -> Option<u32> {
        self.depth.checked_add(1).filter(|depth| *depth <= limits::ANCESTORS)
    }
}

/// Returns the names of all plans that a draft and its inline drafts execute, sorted and without
/// repetition. The caller looks them up.
pub fn list_sub_plan_names(draft: &Draft) -> Vec<&str> {
    let mut names = Vec::new();
    collect_names(draft, 0, &mut names);
    names.sort_unstable();
    names.dedup();
    names
}

fn collect_names<'a>(draft: &'a Draft, level: u32, names: &mut Vec<&'a str>) {
    // Deeper drafts are rejected, so their names are not needed.
    if level > limits::ANCESTORS {
        return;
    }
    for step in &draft.tools {
        match &step.plan {
            Some(SubDraft::Named(name)) => names.push(name),
            Some(SubDraft::Inline(draft)) => collect_names(draft, level + 1, names),
            None => (),
        }
    }
}
