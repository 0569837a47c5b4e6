//! Resolves the names in a stored step: templates, conditions and dependencies.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Compensation, ForEach, OutputMapping, PlanError, PlanInputs, StepKind, StepNames,
    ToolExecution, UncheckedCompensation, UncheckedStep,
};
use crate::{
    condition::Condition,
    id::{StepId, StepNumber},
    template::Template,
};

impl UncheckedStep {
    pub(super) fn resolve(self, names: &StepNames) -> Result<ToolExecution, PlanError> {
        let id = self.id;
        let depends_on = resolve_dependencies(&id, &self.depends_on, names)?;
        let template = parse_template(&id, &self.parameters, names)?;
        let for_each =
            self.for_each.map(|written| ForEach::parse(&id, written, names)).transpose()?;
        let when = self.when.map(|written| parse_condition(&id, &written, names)).transpose()?;
        let compensate =
            self.compensate.map(|undo| undo.resolve(&id, names).map(Box::new)).transpose()?;
        let output_mapping = parse_mappings(&id, self.output_mapping)?;
        let kind = self.plan.map_or_else(|| StepKind::of_tool(&self.tool), StepKind::Plan);
        Ok(ToolExecution {
            id,
            tool: self.tool,
            kind,
            inputs: self.inputs.map(PlanInputs::new),
            parameters: self.parameters,
            template,
            depends_on,
            output_mapping,
            policy: self.policy,
            when,
            for_each,
            compensate,
        })
    }
}

impl UncheckedCompensation {
    fn resolve(self, id: &StepId, names: &StepNames) -> Result<Compensation, PlanError> {
        let Self { tool, parameters, policy } = self;
        let template = parse_template(id, &parameters, names)?;
        Ok(Compensation { tool, parameters, template, policy })
    }
}

impl ForEach {
    fn parse(id: &StepId, written: String, names: &StepNames) -> Result<Self, PlanError> {
        match parse_template(id, &Arc::new(Value::from(written.as_str())), names)? {
            Template::Whole(list) => Ok(Self { written, list }),
            _ => Err(PlanError::ForEach(id.clone())),
        }
    }
}

impl OutputMapping {
    /// Parses an output mapping. Returns the path if it is invalid.
    pub fn read(written: String, variable: &str) -> Result<Self, String> {
        match written.parse() {
            Ok(path) => Ok(Self { written, path, variable: variable.into() }),
            Err(_) => Err(written),
        }
    }
}

fn resolve_dependencies(
    id: &StepId,
    on: &[StepId],
    names: &StepNames,
) -> Result<Vec<StepNumber>, PlanError> {
    let on = on.iter().map(|on| {
        let number = names.steps.get(on).copied();
        number.ok_or_else(|| PlanError::Order { step: id.clone(), on: on.as_str().to_owned() })
    });
    let mut on = on.collect::<Result<Vec<_>, _>>()?;
    on.sort_unstable();
    on.dedup();
    Ok(on)
}

fn parse_template(
    id: &StepId,
    value: &Arc<Value>,
    names: &StepNames,
) -> Result<Template, PlanError> {
    Template::parse_shared(value, names).map_err(|mut errors| {
        let error = errors.swap_remove(0);
        PlanError::Template { step: id.clone(), error }
    })
}

fn parse_condition(id: &StepId, written: &str, names: &StepNames) -> Result<Condition, PlanError> {
    Condition::parse(written, names)
        .map_err(|error| PlanError::Condition { step: id.clone(), error })
}

fn parse_mappings(
    id: &StepId,
    written: Vec<(String, String)>,
) -> Result<Vec<OutputMapping>, PlanError> {
    let read = written.into_iter().map(|(path, variable)| {
        OutputMapping::read(path, &variable)
            .map_err(|path| PlanError::Mapping { step: id.clone(), path })
    });
    read.collect()
}
