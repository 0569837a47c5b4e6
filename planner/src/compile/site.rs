use std::sync::Arc;

use serde_json::Value;

use super::{Step, UNDO_PARAMETERS, place};

#[derive(Clone, Copy)]
pub(super) struct TemplateSite<'a> {
    pub(super) step_index: usize,
    pub(super) field: &'static str,
    pub(super) value: &'a Arc<Value>,
}

pub(super) const PARAMETERS_FIELD: &str = "parameters";
pub(super) const FOR_EACH_FIELD: &str = "forEach";

impl<'a> TemplateSite<'a> {
    pub(super) fn list_sites(index: usize, step: &'a Step<'_>) -> impl Iterator<Item = Self> {
        let parameters = Some((PARAMETERS_FIELD, &step.checked_parameters.parameters));
        let list = step.for_each.as_ref().map(|list| (FOR_EACH_FIELD, list));
        let undo = step
            .undo
            .as_ref()
            .map(|compensation| (UNDO_PARAMETERS, &compensation.checked_parameters.parameters));
        let sites = [list, parameters, undo].into_iter().flatten();
        sites.map(move |(field, value)| Self { step_index: index, field, value })
    }

    pub(super) fn path_of(&self, text: &str) -> String {
        place::template_path(self.step_index, self.field, self.value, text)
    }

    /// Returns whether this is a value of a compensation, which may use the step's output.
    pub(super) fn is_compensation(&self) -> bool {
        self.field == UNDO_PARAMETERS
    }
}
