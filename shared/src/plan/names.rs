//! What the names in a plan mean.

use indexmap::IndexMap;

use super::{PlanError, ToolExecution};
use crate::{
    id::{StepId, StepIx, ToolName},
    template::Names,
};

/// What the names in a plan's templates and dependencies mean.
///
/// A step's id goes first; failing that, a tool that exactly one step uses.
#[derive(Clone, Debug, Default)]
pub struct StepNames {
    pub(super) steps: IndexMap<StepId, StepIx>,
    /// The step that uses the tool, or nothing where several do.
    tools: IndexMap<ToolName, Option<StepIx>>,
}

impl StepNames {
    /// Numbers the steps in the order given.
    pub fn new<'a>(
        steps: impl IntoIterator<Item = (&'a StepId, &'a ToolName)>,
    ) -> Result<Self, PlanError> {
        let mut names = Self::default();
        for (at, (id, tool)) in steps.into_iter().enumerate() {
            let number = StepIx::new(at);
            if names.steps.insert(id.clone(), number).is_some() {
                return Err(PlanError::Duplicate(id.clone()));
            }
            names.tools.entry(tool.clone()).and_modify(|it| *it = None).or_insert(Some(number));
            if let Some(plain) = plain_name(tool) {
                names.tools.entry(plain).and_modify(|it| *it = None).or_insert(Some(number));
            }
        }
        Ok(names)
    }

    /// Returns the same names for steps that stand in another order: `places` says where each of
    /// them went.
    #[must_use]
    pub fn moved(mut self, places: &[StepIx]) -> Self {
        let moved = |it: &mut StepIx| *it = places[it.get()];
        self.steps.values_mut().for_each(moved);
        self.tools.values_mut().flatten().for_each(moved);
        self
    }

    /// Returns whether these are the names of `steps`, each by its number.
    pub(super) fn are_of(&self, steps: &[ToolExecution]) -> bool {
        let is_its =
            |(id, at): (&StepId, &StepIx)| steps.get(at.get()).is_some_and(|step| step.id == *id);
        self.steps.len() == steps.len() && self.steps.iter().all(is_its)
    }

    /// Returns the step that `name` means in a dependency.
    pub fn find(&self, name: &str) -> Option<StepIx> {
        self.step(name).or_else(|| self.tool(name))
    }
}

/// Returns a tool's name without its set.
fn plain_name(tool: &ToolName) -> Option<ToolName> {
    tool.as_str().split_once('.').and_then(|(_, plain)| plain.parse().ok())
}

impl Names for StepNames {
    fn step(&self, name: &str) -> Option<StepIx> {
        self.steps.get(name).copied()
    }

    fn tool(&self, name: &str) -> Option<StepIx> {
        self.tools.get(name).copied().flatten()
    }
}
