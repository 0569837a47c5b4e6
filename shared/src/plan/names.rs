//! Resolves names in a plan.

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::{PlanError, ToolExecution};
use crate::{
    id::{StepId, StepNumber, ToolName},
    template::ResolveNames,
};

/// Resolves the names in a plan's templates, conditions and dependencies.
///
/// A name is first looked up among the ids of steps. If no step has this id, the name must be a
/// tool that exactly one step uses.
#[derive(Clone, Debug, Default)]
pub struct StepNames {
    pub(super) steps: IndexMap<StepId, StepNumber, RandomState>,
    /// The step that uses each tool, or `None` if several steps use it. By the tool's name with its
    /// set, and without its set.
    tools: IndexMap<ToolName, Option<StepNumber>>,
}

impl StepNames {
    /// Numbers the steps in the order of `steps`.
    pub fn new<'a>(
        steps: impl IntoIterator<Item = (&'a StepId, &'a ToolName)>,
    ) -> Result<Self, PlanError> {
        let mut names = Self::default();
        for (index, (id, tool)) in steps.into_iter().enumerate() {
            let number = StepNumber::new(index);
            if names.steps.insert(id.clone(), number).is_some() {
                return Err(PlanError::Duplicate(id.clone()));
            }
            names
                .tools
                .entry(tool.clone())
                .and_modify(|entry| *entry = None)
                .or_insert(Some(number));
            if let Some(plain) = name_without_set(tool) {
                names.tools.entry(plain).and_modify(|entry| *entry = None).or_insert(Some(number));
            }
        }
        Ok(names)
    }

    /// Renumbers the steps. `places` has the new number of each step, at the index of its old
    /// number.
    #[must_use]
    pub fn renumbered(mut self, places: &[StepNumber]) -> Self {
        let renumber = |number: &mut StepNumber| *number = places[number.get()];
        self.steps.values_mut().for_each(renumber);
        self.tools.values_mut().flatten().for_each(renumber);
        self
    }

    pub(super) fn match_steps(&self, steps: &[ToolExecution]) -> bool {
        let is_same = |(id, number): (&StepId, &StepNumber)| {
            steps.get(number.get()).is_some_and(|step| step.id == *id)
        };
        self.steps.len() == steps.len() && self.steps.iter().all(is_same)
    }

    /// Resolves a name in a dependency.
    pub fn find(&self, name: &str) -> Option<StepNumber> {
        self.find_step(name).or_else(|| self.find_tool_step(name))
    }
}

fn name_without_set(tool: &ToolName) -> Option<ToolName> {
    tool.as_str().split_once('.').and_then(|(_, plain)| plain.parse().ok())
}

impl ResolveNames for StepNames {
    fn find_step(&self, name: &str) -> Option<StepNumber> {
        self.steps.get(name).copied()
    }

    fn find_tool_step(&self, name: &str) -> Option<StepNumber> {
        self.tools.get(name).copied().flatten()
    }
}
