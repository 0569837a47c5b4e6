//! Checks the order of a plan: each step reads only steps that finish before it starts.

use std::{collections::BTreeMap, sync::Arc};

use super::{Plan, PlanError, PlanInfo, StepNames, ToolExecution, UncheckedPlan};
use crate::{
    diagnostic::Diagnostic,
    id::StepNumber,
    limits,
    template::{Target, Template},
};

type Variables = BTreeMap<Arc<str>, Vec<StepNumber>>;

impl TryFrom<UncheckedPlan> for Plan {
    type Error = PlanError;

    fn try_from(unchecked: UncheckedPlan) -> Result<Self, PlanError> {
        let UncheckedPlan { about, steps, written, diagnostics } = unchecked;
        check_len(steps.len())?;
        let names = StepNames::new(steps.iter().map(|step| (&step.id, &step.tool)))?;
        let steps: Result<_, _> = steps.into_iter().map(|step| step.resolve(&names)).collect();
        let plan = Self::from_resolved_steps(about, names, steps?, diagnostics)?;
        if written.is_empty() {
            return Ok(plan);
        }
        plan.with_draft_order(written)
    }
}

impl Plan {
    /// Makes a plan of resolved steps if they are in an order in which they can run.
    ///
    /// Every compiled plan and every plan from a store passes this check.
    pub fn from_resolved_steps(
        about: PlanInfo,
        names: StepNames,
        steps: Vec<ToolExecution>,
        diagnostics: Vec<Diagnostic>,
    ) -> Result<Self, PlanError> {
        check_len(steps.len())?;
        if !names.match_steps(&steps) {
            return Err(PlanError::Names);
        }
        let variables = collect_variables(&steps);
        let mut dependents = vec![Vec::new(); steps.len()];
        for (index, step) in steps.iter().enumerate() {
            let number = StepNumber::new(index);
            StepCheck { number, step, steps: &steps, variables: &variables }.check_step()?;
            for on in &step.depends_on {
                dependents[on.get()].push(number);
            }
        }
        let written = (0..steps.len()).map(StepNumber::new).collect();
        let numbers = names.steps;
        Ok(Self {
            about,
            steps,
            written,
            step_numbers: numbers,
            dependents,
            variables,
            diagnostics,
        })
    }

    /// Sets the order of the draft, if it differs from the plan's order.
    pub fn with_draft_order(self, written: Vec<StepNumber>) -> Result<Self, PlanError> {
        let mut is_listed = vec![false; self.steps.len()];
        let is_new = |number: &StepNumber| {
            is_listed.get_mut(number.get()).is_some_and(|listed| !std::mem::replace(listed, true))
        };
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

fn collect_variables(steps: &[ToolExecution]) -> Variables {
    let mut variables = Variables::new();
    for (index, step) in steps.iter().enumerate() {
        for mapping in &step.output_mapping {
            variables
                .entry(Arc::clone(&mapping.variable))
                .or_default()
                .push(StepNumber::new(index));
        }
    }
    variables
}

struct StepCheck<'a> {
    number: StepNumber,
    step: &'a ToolExecution,
    steps: &'a [ToolExecution],
    variables: &'a Variables,
}

impl StepCheck<'_> {
    fn check_step(&self) -> Result<(), PlanError> {
        let step = self.step;
        self.check_order()?;
        let is_loop = step.for_each.is_some();
        let is_of_item =
            |target: &Target| is_loop && matches!(target, Target::Item | Target::Index);
        self.check_template(&step.template, &is_of_item)?;
        if let Some(for_each) = &step.for_each
            && !self.is_known(&for_each.list.target)
        {
            return Err(self.order_error(&for_each.written));
        }
        if let Some(when) = &step.when
            && !when.targets().iter().all(|target| self.is_known(target))
        {
            return Err(self.order_error(when.source()));
        }
        if let Some(undo) = &step.compensate {
            let is_of_step =
                |target: &Target| is_of_item(target) || *target == Target::Step(self.number);
            self.check_template(&undo.template, &is_of_step)?;
        }
        Ok(())
    }

    /// Checks that the dependencies come before the step, sorted and without duplicates.
    fn check_order(&self) -> Result<(), PlanError> {
        let on = &self.step.depends_on;
        let late = on.iter().find(|number| **number >= self.number);
        let unsorted = || on.windows(2).find(|pair| pair[0] >= pair[1]).map(|pair| &pair[1]);
        late.or_else(unsorted).map_or(Ok(()), |number| {
            let id = self.steps.get(number.get()).map(|step| step.id.as_str());
            Err(self.order_error(id.unwrap_or("a step that does not exist")))
        })
    }

    fn order_error(&self, on: &str) -> PlanError {
        PlanError::Order { step: self.step.id.clone(), on: on.to_owned() }
    }

    /// Checks that the references read only values that are known when the step starts, or that
    /// `also_known` accepts.
    fn check_template(
        &self,
        template: &Template,
        also_known: &dyn Fn(&Target) -> bool,
    ) -> Result<(), PlanError> {
        let mut outside = None;
        template.visit_references(&mut |reference| {
            if !self.is_known(&reference.target) && !also_known(&reference.target) {
                outside = Some(Arc::clone(&reference.text));
            }
        });
        outside.map_or(Ok(()), |text| Err(self.order_error(&text)))
    }

    fn is_known(&self, target: &Target) -> bool {
        let is_before = |step: &StepNumber| self.step.depends_on.binary_search(step).is_ok();
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
