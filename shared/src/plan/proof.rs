//! The order is the proof: each step looks only at what is over before it begins.

use std::{collections::BTreeMap, sync::Arc};

use super::{About, Plan, PlanError, StepNames, ToolExecution, UncheckedPlan};
use crate::{
    diagnostic::Diagnostic,
    id::StepIx,
    limits,
    template::{Target, Template},
};

/// Who fills a variable, in plan order.
type Variables = BTreeMap<Arc<str>, Vec<StepIx>>;

impl TryFrom<UncheckedPlan> for Plan {
    type Error = PlanError;

    fn try_from(unchecked: UncheckedPlan) -> Result<Self, PlanError> {
        let UncheckedPlan { about, steps, written, diagnostics } = unchecked;
        check_len(steps.len())?;
        let names = StepNames::new(steps.iter().map(|it| (&it.id, &it.tool)))?;
        let steps: Result<_, _> = steps.into_iter().map(|it| it.read(&names)).collect();
        let plan = Self::prove(about, names, steps?, diagnostics)?;
        if written.is_empty() {
            return Ok(plan);
        }
        plan.written_as(written)
    }
}

impl Plan {
    /// Makes a plan of steps whose names have become numbers, if they stand in an order in which
    /// they can run. Every store's plan comes through here, and every compiled one.
    pub fn prove(
        about: About,
        names: StepNames,
        steps: Vec<ToolExecution>,
        diagnostics: Vec<Diagnostic>,
    ) -> Result<Self, PlanError> {
        check_len(steps.len())?;
        if !names.are_of(&steps) {
            return Err(PlanError::Names);
        }
        let variables = variables(&steps);
        let mut dependents = vec![Vec::new(); steps.len()];
        for (at, step) in steps.iter().enumerate() {
            let number = StepIx::new(at);
            Proof { number, step, steps: &steps, variables: &variables }.check()?;
            for on in &step.depends_on {
                dependents[on.get()].push(number);
            }
        }
        let written = (0..steps.len()).map(StepIx::new).collect();
        let numbers = names.steps;
        Ok(Self { about, steps, written, numbers, dependents, variables, diagnostics })
    }

    /// Says in which order the steps were written, where that is not the one in which they stand.
    pub fn written_as(self, written: Vec<StepIx>) -> Result<Self, PlanError> {
        let mut is_there = vec![false; self.steps.len()];
        let is_new =
            |it: &StepIx| is_there.get_mut(it.get()).is_some_and(|it| !std::mem::replace(it, true));
        if written.len() != self.steps.len() || !written.iter().all(is_new) {
            return Err(PlanError::Written);
        }
        Ok(Self { written, ..self })
    }
}

fn check_len(steps: usize) -> Result<(), PlanError> {
    match steps {
        0 => Err(PlanError::Empty),
        n if n > limits::PLAN_STEPS => Err(PlanError::TooLarge(n)),
        _ => Ok(()),
    }
}

fn variables(steps: &[ToolExecution]) -> Variables {
    let mut variables = Variables::new();
    for (at, step) in steps.iter().enumerate() {
        for mapping in &step.output_mapping {
            variables.entry(Arc::clone(&mapping.variable)).or_default().push(StepIx::new(at));
        }
    }
    variables
}

/// A step, and what must be true of it.
struct Proof<'a> {
    number: StepIx,
    step: &'a ToolExecution,
    steps: &'a [ToolExecution],
    variables: &'a Variables,
}

impl Proof<'_> {
    fn check(&self) -> Result<(), PlanError> {
        let step = self.step;
        self.order()?;
        let is_loop = step.for_each.is_some();
        let is_of_item = |it: &Target| is_loop && matches!(it, Target::Item | Target::Index);
        self.template(&step.template, &is_of_item)?;
        if let Some(for_each) = &step.for_each
            && !self.is_known(&for_each.list.target)
        {
            return Err(self.outside(&for_each.written));
        }
        if let Some(when) = &step.when
            && !when.targets().iter().all(|it| self.is_known(it))
        {
            return Err(self.outside(when.source()));
        }
        if let Some(undo) = &step.compensate {
            let is_of_step = |it: &Target| is_of_item(it) || *it == Target::Step(self.number);
            self.template(&undo.template, &is_of_step)?;
        }
        Ok(())
    }

    /// Checks that what it depends on comes before it, sorted and each once.
    fn order(&self) -> Result<(), PlanError> {
        let on = &self.step.depends_on;
        let late = on.iter().find(|it| **it >= self.number);
        let twice = || on.windows(2).find(|it| it[0] >= it[1]).map(|it| &it[1]);
        late.or_else(twice).map_or(Ok(()), |it| {
            let id = self.steps.get(it.get()).map(|it| it.id.as_str());
            Err(self.outside(id.unwrap_or("a step that there is not")))
        })
    }

    fn outside(&self, on: &str) -> PlanError {
        PlanError::Order { step: self.step.id.clone(), on: on.to_owned() }
    }

    /// Checks that the holes look at what is known, or at what is `besides`.
    fn template(
        &self,
        template: &Template,
        besides: &dyn Fn(&Target) -> bool,
    ) -> Result<(), PlanError> {
        let mut outside = None;
        template.references(&mut |reference| {
            if !self.is_known(&reference.target) && !besides(&reference.target) {
                outside = Some(Arc::clone(&reference.text));
            }
        });
        outside.map_or(Ok(()), |text| Err(self.outside(&text)))
    }

    /// Returns whether what a target stands for is known once the step begins.
    fn is_known(&self, target: &Target) -> bool {
        let is_before = |it: &StepIx| self.step.depends_on.binary_search(it).is_ok();
        match target {
            Target::Step(on) => is_before(on),
            Target::Variable(name) => {
                self.variables.get(name).is_some_and(|by| by.iter().all(is_before))
            }
            Target::Input => true,
            Target::Item | Target::Index => false,
        }
    }
}
