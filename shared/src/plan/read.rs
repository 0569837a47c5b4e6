//! From names to numbers: what a stored step's templates, conditions and dependencies mean.
//!
//! Whether that is an order in which the steps can run is not asked here; [`super::proof`] does.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Compensation, ForEach, Inputs, Mapping, PlanError, StepKind, StepNames, ToolExecution,
    UncheckedCompensation, UncheckedStep,
};
use crate::{
    condition::Condition,
    id::{StepId, StepIx},
    template::Template,
};

impl UncheckedStep {
    /// Reads what is written in a step.
    pub(super) fn read(self, names: &StepNames) -> Result<ToolExecution, PlanError> {
        let id = self.id;
        let depends_on = dependencies(&id, &self.depends_on, names)?;
        let template = template(&id, &self.parameters, names)?;
        let for_each = self.for_each.map(|it| ForEach::read(&id, it, names)).transpose()?;
        let when = self.when.map(|it| condition(&id, &it, names)).transpose()?;
        let compensate = self.compensate.map(|it| it.read(&id, names).map(Box::new)).transpose()?;
        let output_mapping = mappings(&id, self.output_mapping)?;
        let kind = self.plan.map_or_else(|| StepKind::of(&self.tool), StepKind::Plan);
        Ok(ToolExecution {
            id,
            tool: self.tool,
            kind,
            inputs: self.inputs.map(Inputs::new),
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
    fn read(self, id: &StepId, names: &StepNames) -> Result<Compensation, PlanError> {
        let Self { tool, parameters, policy } = self;
        let template = template(id, &parameters, names)?;
        Ok(Compensation { tool, parameters, template, policy })
    }
}

impl ForEach {
    fn read(id: &StepId, written: String, names: &StepNames) -> Result<Self, PlanError> {
        match template(id, &Arc::new(Value::from(written.as_str())), names)? {
            Template::Whole(list) => Ok(Self { written, list }),
            _ => Err(PlanError::ForEach(id.clone())),
        }
    }
}

impl Mapping {
    /// Reads which path fills which variable, or gives the path back that is none.
    pub fn read(written: String, variable: &str) -> Result<Self, String> {
        match written.parse() {
            Ok(path) => Ok(Self { written, path, variable: variable.into() }),
            Err(_) => Err(written),
        }
    }
}

fn dependencies(id: &StepId, on: &[StepId], names: &StepNames) -> Result<Vec<StepIx>, PlanError> {
    let on = on.iter().map(|on| {
        let number = names.steps.get(on).copied();
        number.ok_or_else(|| PlanError::Order { step: id.clone(), on: on.as_str().to_owned() })
    });
    let mut on = on.collect::<Result<Vec<_>, _>>()?;
    on.sort_unstable();
    on.dedup();
    Ok(on)
}

fn template(id: &StepId, value: &Arc<Value>, names: &StepNames) -> Result<Template, PlanError> {
    Template::of(value, names).map_err(|mut errors| {
        let error = errors.swap_remove(0);
        PlanError::Template { step: id.clone(), error }
    })
}

fn condition(id: &StepId, written: &str, names: &StepNames) -> Result<Condition, PlanError> {
    Condition::parse(written, names)
        .map_err(|error| PlanError::Condition { step: id.clone(), error })
}

fn mappings(id: &StepId, written: Vec<(String, String)>) -> Result<Vec<Mapping>, PlanError> {
    let read = written.into_iter().map(|(path, variable)| {
        Mapping::read(path, &variable).map_err(|path| PlanError::Mapping { step: id.clone(), path })
    });
    read.collect()
}
