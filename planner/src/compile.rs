//! From a draft to a plan, or to every reason why not.
//!
//! Each phase reads what it needs, says what is wrong and goes on with the next best thing: a step
//! with an unknown tool still has a name, takes part in the order and can be part of a cycle. The
//! order is found here; [`Plan::try_from`] checks it again.

mod cycle;
mod mapping;
mod names;
mod numbers;
mod order;
mod outputs;
mod parameters;
mod parse;
mod place;
mod policy;
mod references;
mod report;
mod tools;

use std::sync::Arc;

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    id::{StepId, StepIx},
    limits,
    plan::{About, Plan, StepPolicy, UncheckedPlan, UncheckedStep},
};

pub use self::parse::{parse, parse_value};
use self::{names::Naming, report::Report, tools::Choice};
use crate::{catalog::Catalog, draft::Draft, draft::DraftStep};

/// Compiles a draft, or says everything that is wrong with it.
///
/// Warnings, those of reading the draft included, become the plan's diagnostics; where there is an
/// error they are returned beside it, in the order of the draft.
pub fn compile(draft: &Draft, about: About, catalog: &Catalog) -> Result<Plan, Vec<Diagnostic>> {
    let mut report = Report::new(&draft.notices);
    if let Some(refusal) = refusal(draft) {
        report.error(report::WHOLE, || refusal);
        return Err(report.into_diagnostics());
    }
    let steps = read(draft, catalog, &mut report);
    let naming = Naming::new(&steps);
    let edges = references::dependencies(&steps, &naming, &mut report);
    parameters::check(&steps, &naming, &mut report);
    let order = order::written_first(&edges);
    if order.len() < steps.len() {
        cycle::find(&steps, &naming, &edges, &order, &mut report);
    }
    if let Some(given) = &draft.execution_order {
        order::check(given, &order, &steps, &naming, &mut report);
    }
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let steps = order.iter().map(|it| unchecked(*it, &steps, &edges)).collect();
    let diagnostics = report.into_diagnostics();
    Plan::try_from(UncheckedPlan { about, steps, diagnostics }).map_err(|err| {
        let help = "this is a mistake of the compiler; report it with the draft";
        vec![Diagnostic::error("plan.internal", "", err.to_string()).with_help(help)]
    })
}

/// A step of the draft, with all that is known of it alone.
struct Step<'a> {
    written: &'a DraftStep,
    id: StepId,
    choice: Choice<'a>,
    parameters: Arc<Value>,
    /// Whether the parameters are those of the author, so that it makes sense to judge them.
    is_sound: bool,
    mapping: Vec<(String, String)>,
    policy: StepPolicy,
}

/// Says why a draft is not even looked at.
fn refusal(draft: &Draft) -> Option<Diagnostic> {
    match draft.tools.len() {
        0 => Some(
            Diagnostic::error("plan.empty", "tools", "the plan has no steps")
                .with_help("write at least one step: `{\"name\": \"a tool\"}`"),
        ),
        n if n > limits::PLAN_STEPS => {
            let message =
                format!("the plan has {n} steps; the most is {max}", max = limits::PLAN_STEPS);
            let help = "write several plans";
            Some(Diagnostic::error("plan.too_large", "tools", message).with_help(help))
        }
        _ => None,
    }
}

fn read<'a>(draft: &'a Draft, catalog: &'a Catalog, report: &mut Report) -> Vec<Step<'a>> {
    let choices = tools::choose(draft, catalog, report);
    let ids = names::assign(draft, report);
    let parameters = parameters::read(draft, report);
    let steps = draft.tools.iter().zip(choices).zip(ids).zip(parameters).enumerate();
    steps
        .map(|(at, (((written, choice), id), (parameters, is_sound)))| {
            let mapping = mapping::read(at, written, report);
            let policy = policy::read(at, written, &choice, report);
            Step { written, id, choice, parameters, is_sound, mapping, policy }
        })
        .collect()
}

fn unchecked(at: StepIx, steps: &[Step<'_>], edges: &[Vec<StepIx>]) -> UncheckedStep {
    let step = &steps[at.get()];
    UncheckedStep {
        id: step.id.clone(),
        tool: step.choice.tool.clone(),
        parameters: Arc::clone(&step.parameters),
        depends_on: edges[at.get()].iter().map(|it| steps[it.get()].id.clone()).collect(),
        output_mapping: step.mapping.clone(),
        policy: step.policy.clone(),
        plan: None,
        when: None,
        for_each: None,
        compensate: None,
    }
}

#[cfg(test)]
mod tests;
