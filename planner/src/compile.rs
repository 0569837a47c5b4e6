//! Compiles a draft to a plan, or reports everything that is wrong with it. Each phase reports its
//! errors and continues with a substitute.

mod build;
mod compute;
mod cycle;
mod looping;
mod names;
mod order;
mod outputs;
mod parameters;
mod parse;
mod place;
mod policy;
mod references;
mod report;
mod schema;
mod site;
mod sub_plan;
mod tools;

use std::sync::Arc;

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    id::{STEP_ID_LEN, StepId, is_step_id_char},
    limits,
    plan::{OutputMapping, Plan, PlanInfo, StepPolicy},
    template::Path,
};

pub(crate) use self::place::key_path;
pub use self::schema::plan_file_schema;
use self::{
    names::{Naming, shorten_name},
    parameters::{ByteBudget, CheckedParameters},
    report::Report,
    sub_plan::{DraftTree, InlinePlans},
    tools::ToolChoice,
};
pub use self::{
    parse::{parse, parse_value},
    tools::may_be_in_failed_set,
};
use crate::{
    catalog::Catalog,
    draft::{Draft, DraftStep},
    sub_plans::SubPlans,
};

/// Compiles a draft without sub-plans.
///
/// Warnings become the plan's diagnostics. With an error, returns errors and warnings in the order
/// of the draft, at most 100 of each.
pub fn compile(draft: &Draft, about: PlanInfo, catalog: &Catalog) -> Result<Plan, Vec<Diagnostic>> {
    compile_with(draft, about, catalog, &SubPlans::default())
}

/// Compiles a draft without inline plans. Its steps may execute `plans`.
pub fn compile_with(
    draft: &Draft,
    about: PlanInfo,
    catalog: &Catalog,
    plans: &SubPlans,
) -> Result<Plan, Vec<Diagnostic>> {
    compile_single(draft, about, &CompileContext { catalog, plans, inline: &InlinePlans::new() })
}

#[derive(Clone, Debug)]
pub struct Compiled {
    pub plan: Plan,
    /// The inline plans, innermost first. Each plan comes after all plans that it names, so the
    /// caller must store them in this order, and [`Self::plan`] last.
    pub inner: Vec<Plan>,
}

/// Compiles a draft and its inline drafts.
///
/// `inner` returns the properties of an inline plan. The path of its diagnostics begins like
/// `tools[2].plan.`.
pub fn compile_all(
    draft: &Draft,
    about: PlanInfo,
    catalog: &Catalog,
    plans: &SubPlans,
    inner: &mut dyn FnMut(&Draft) -> PlanInfo,
) -> Result<Compiled, Vec<Diagnostic>> {
    let mut tree = DraftTree { catalog, plans, about: inner, inner_plans: Vec::new() };
    let (plan, _) = tree.compile(draft, about, 0)?;
    Ok(Compiled { plan, inner: tree.inner_plans })
}

struct CompileContext<'a> {
    catalog: &'a Catalog,
    plans: &'a SubPlans,
    inline: &'a InlinePlans,
}

fn compile_single(
    draft: &Draft,
    about: PlanInfo,
    context: &CompileContext<'_>,
) -> Result<Plan, Vec<Diagnostic>> {
    let mut report = Report::new(&draft.notices);
    if let Some(diagnostic) = check_size(draft) {
        report.error(report::WHOLE_DRAFT, || diagnostic);
        return Err(report.into_diagnostics());
    }
    let steps = read_steps(draft, context, &mut report);
    let naming = Naming::new(&steps);
    let links = references::collect_links(&steps, &naming, &mut report);
    parameters::check_all_calls(&steps, &naming, &mut report);
    let order = order::order_steps(&links.edges);
    if order.len() < steps.len() {
        cycle::report_cycles(&steps, &naming, &links.edges, &order, &mut report);
    }
    if let Some(given) = &draft.execution_order {
        order::check_order(given, &order, &steps, &naming, &mut report);
    }
    if report.has_errors() {
        return Err(report.into_diagnostics());
    }
    let names = naming.names;
    build::build_plan(about, names, steps, links, &order, report.into_diagnostics()).map_err(
        |err| {
            let help = "this is a mistake of the compiler; report it with the draft";
            vec![Diagnostic::error("plan.internal", "", err.to_string()).with_help(help)]
        },
    )
}

struct Step<'a> {
    written: &'a DraftStep,
    id: StepId,
    tool_choice: ToolChoice<'a>,
    checked_parameters: CheckedParameters,
    mapping: Vec<OutputMapping>,
    policy: StepPolicy,
    for_each: Option<Arc<Value>>,
    undo: Option<Box<UndoCall<'a>>>,
}

struct UndoCall<'a> {
    tool_choice: ToolChoice<'a>,
    checked_parameters: CheckedParameters,
    policy: StepPolicy,
}

const UNDO_PARAMETERS: &str = "compensate.parameters";

impl<'a> UndoCall<'a> {
    fn read_undo(
        index: usize,
        written: &Value,
        catalog: &'a Catalog,
        byte_budget: &mut ByteBudget,
        report: &mut Report,
    ) -> Option<Self> {
        if written.is_null() {
            return None;
        }
        let draft = parse::read_compensation(index, written, report)?;
        let tool_choice = tools::choose_undo(index, &draft, catalog, report);
        let checked_parameters =
            byte_budget.read(index, UNDO_PARAMETERS, draft.parameters.as_ref(), report);
        let policy = policy::read_undo(index, &draft, &tool_choice, report);
        Some(Self { tool_choice, checked_parameters, policy })
    }
}

fn check_size(draft: &Draft) -> Option<Diagnostic> {
    match draft.tools.len() {
        0 => Some(
            Diagnostic::error("plan.empty", "tools", "the plan has no steps")
                .with_help("write at least one step: `{\"name\": \"a tool\"}`"),
        ),
        n if n > limits::PLAN_STEPS => {
            let message =
                format!("the plan has {n} steps; the limit is {max}", max = limits::PLAN_STEPS);
            let help = "write several plans";
            Some(Diagnostic::error("plan.too_large", "tools", message).with_help(help))
        }
        _ => None,
    }
}

fn read_steps<'a>(
    draft: &'a Draft,
    context: &CompileContext<'a>,
    report: &mut Report,
) -> Vec<Step<'a>> {
    let choices = tools::choose_tools(draft, context, report);
    let ids = names::assign_ids(draft, report);
    let mut byte_budget = ByteBudget::default();
    let steps = draft.tools.iter().zip(choices).zip(ids).enumerate();
    let steps = steps.map(|(index, ((written, tool_choice), id))| {
        let checked_parameters =
            byte_budget.read(index, "parameters", written.parameters.as_ref(), report);
        let mapping = read_mapping(index, written, report);
        let policy = policy::read_policy(index, written, &tool_choice, report);
        let for_each = written.for_each.as_ref().map(|list| Arc::new(Value::from(list.as_str())));
        let undo = written.compensate.as_ref();
        let undo = undo.and_then(|compensation| {
            UndoCall::read_undo(index, compensation, context.catalog, &mut byte_budget, report)
        });
        let undo = undo.map(Box::new);
        Step { written, id, tool_choice, checked_parameters, mapping, policy, for_each, undo }
    });
    let steps = steps.collect();
    byte_budget.check(report);
    steps
}

fn read_mapping(index: usize, step: &DraftStep, report: &mut Report) -> Vec<OutputMapping> {
    let Some(mapping) = &step.output_mapping else { return Vec::new() };
    let mut read = Vec::with_capacity(mapping.len());
    for (path, variable) in mapping {
        match check_mapping(path, variable) {
            Ok(mapping) => read.push(mapping),
            Err(message) => report.error(index, || {
                let place = format!("tools[{index}].outputMapping{}", place::key_path(path));
                Diagnostic::error("plan.invalid_mapping", place, message)
                    .with_help("write `{\"path in the output\": \"variable\"}`")
            }),
        }
    }
    read
}

fn check_mapping(written: &str, variable: &Value) -> Result<OutputMapping, String> {
    let path = written.parse::<Path>();
    let path = path.map_err(|err| format!("`{}` is not a path: {err}", shorten_name(written)))?;
    let Value::String(variable) = variable else {
        return Err(format!(
            "a variable's name must be text, not {}",
            place::describe_kind(variable)
        ));
    };
    let is_name = (1..=STEP_ID_LEN).contains(&variable.chars().count())
        && variable.chars().all(is_step_id_char);
    if !is_name {
        let rule = "letters, digits, `_`, `-` and `.`, at most 128";
        return Err(format!("`{}` is not a variable's name: {rule}", shorten_name(variable)));
    }
    Ok(OutputMapping { written: written.to_owned(), path, variable: variable.as_str().into() })
}

#[cfg(test)]
mod tests;
