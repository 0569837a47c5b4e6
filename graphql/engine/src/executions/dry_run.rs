//! Dry runs: compile a plan again with its input, and record the diagnostics.

use std::{collections::BTreeMap, sync::Arc};

use executor::{
    control::Start,
    machine::{CheckedStep, missing_input, unresolved_error},
};
use planner::{catalog::Catalog, compile::compile_with, draft::Draft, sub_plans::SubPlans};
use serde_json::{Map, Value};
use shared::{
    condition::COMPUTE,
    diagnostic::Diagnostic,
    execution::ExecutionOptions,
    id::{ExecutionId, PlanId, ToolName},
    limits,
    plan::{Plan, StepKind, ToolExecution},
    template::{LookUpValues, Reference, Target, Template, TemplatePart},
    tool::{ErrorCode, ToolError},
};
use toolbox::flow;

use super::Executions;
use crate::error::EngineError;

impl Executions {
    /// Records for each step whether the plan and the input already make it fail. Calls no tool.
    pub(super) async fn dry_run(&self, start: Start) -> Result<ExecutionId, EngineError> {
        let plan = &start.plan;
        let tools: Vec<ToolName> = self.plans.library.list_tools(plan).await?.into_iter().collect();
        self.tools.inventory.wait_for_tools(&tools).await;
        let catalog = self.tools.catalog_without_waiting().for_stored_plans();
        let missing_plans = self.find_missing_plans(plan, &catalog).await?;
        let check =
            DryRun { plan, options: &start.created.options, catalog: &catalog, missing_plans };
        let verdicts = check.check_steps();
        Ok(self.control.record_dry_run(start, verdicts).await?)
    }

    async fn find_missing_plans(
        &self,
        plan: &Arc<Plan>,
        catalog: &Catalog,
    ) -> Result<BTreeMap<PlanId, ToolError>, EngineError> {
        let library = &self.plans.library;
        let mut missing_plans = BTreeMap::new();
        for id in plan.sub_plans() {
            let Some(plan) = library.load_any(id).await? else {
                let reason = format!("the plan `{id}` is not in the store");
                missing_plans.insert(id, ToolError::new(ErrorCode::UNAVAILABLE, reason));
                continue;
            };
            let below = library.list_sub_plan_levels(&plan).await?;
            let plans = std::iter::once(&plan).chain(below.iter().flatten());
            let tools = plans.flat_map(|plan| plan.called_tools().map(|tool| (plan.id(), tool)));
            let mut errors = tools.filter_map(|(plan, tool)| {
                let error = describe_missing_tool(tool.as_str(), catalog)?;
                let message = format!("in `{plan}`: {}", error.message);
                Some(ToolError { message: message.as_str().into(), ..error })
            });
            missing_plans.extend(errors.next().map(|error| (id, error)));
        }
        Ok(missing_plans)
    }
}

fn describe_missing_tool(tool: &str, catalog: &Catalog) -> Option<ToolError> {
    match catalog.find(tool) {
        None => {
            let reason = format!("there is no tool `{tool}`: add its toolset to the configuration");
            Some(ToolError::new(ErrorCode::UNAVAILABLE, reason))
        }
        Some(found) if !found.is_active => {
            let reason = format!("the toolset of `{tool}` is inactive: activate it");
            Some(ToolError::new(ErrorCode::INACTIVE, reason))
        }
        Some(_) => None,
    }
}

/// Looks up values in the input of a plan only. References to outputs have no value, because no
/// step has run.
struct InputOnly<'a>(&'a Value);

impl LookUpValues for InputOnly<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Input => Some(self.0),
            _ => None,
        }
    }
}

struct DryRun<'a> {
    plan: &'a Plan,
    options: &'a ExecutionOptions,
    catalog: &'a Catalog,
    missing_plans: BTreeMap<PlanId, ToolError>,
}

impl DryRun<'_> {
    fn check_steps(&self) -> Vec<CheckedStep> {
        let mut verdicts: Vec<_> =
            self.plan.steps().iter().map(|step| self.check_step(step)).collect();
        for found in self.compile_again() {
            let index =
                step_index(&found.path).filter(|index| *index < verdicts.len()).unwrap_or(0);
            let policy = &self.plan.steps()[index].policy;
            let error = step_error(&found, self.options.is_strict(policy, policy.effect));
            match error {
                Some(error) => drop(verdicts[index].error.get_or_insert(error)),
                None => verdicts[index].warnings.push(message_with_help(found)),
            }
        }
        verdicts
    }

    fn check_step(&self, step: &ToolExecution) -> CheckedStep {
        let input = InputOnly(&self.options.input);
        let mut error = match step.kind {
            StepKind::Plan(id) => self.missing_plans.get(&id).cloned(),
            _ => None,
        };
        let parameters = match step.template.render(&input, limits::OUTPUT_BYTES) {
            Ok(rendered) => Arc::new(rendered.value),
            Err(err) => {
                let reason = ToolError::new(ErrorCode::INVALID_PARAMETERS, err.to_string());
                error.get_or_insert(reason);
                Arc::clone(&step.parameters)
            }
        };
        let unresolved_texts = unresolved_references(&step.template, &input);
        let warnings: Vec<String> = unresolved_texts
            .iter()
            .map(|text| format!("`{text}` has no value and was passed on as written"))
            .collect();
        let missing_inputs = missing_input(step, self.options);
        if !missing_inputs.is_empty() {
            error.get_or_insert(unresolved_error(&missing_inputs, "in the input"));
        }
        error = error
            .or_else(|| check_for_each_list(step, &input))
            .or_else(|| check_computation(step, &parameters, &input));
        CheckedStep { parameters, warnings, error }
    }

    fn compile_again(&self) -> Vec<Diagnostic> {
        let input = InputOnly(&self.options.input);
        let mut draft = Draft::from_plan(self.plan);
        for (written, step) in draft.tools.iter_mut().zip(self.plan.steps()) {
            written.parameters = Some(fill_input(&step.template, &input));
            let call = written.compensate.as_mut().and_then(Value::as_object_mut);
            if let (Some(call), Some(compensation)) = (call, &step.compensate) {
                call.insert("parameters".to_owned(), fill_input(&compensation.template, &input));
            }
        }
        let plans = SubPlans::of_plan(self.plan);
        match compile_with(&draft, self.plan.info().clone(), self.catalog, &plans) {
            Ok(plan) => plan.diagnostics().to_vec(),
            Err(found) => found,
        }
    }
}

fn unresolved_references(template: &Template, input: &InputOnly<'_>) -> Vec<Arc<str>> {
    let mut texts = Vec::new();
    template.visit_references(&mut |reference: &Reference| {
        if reference.target == Target::Input && reference.path.find(input.0).is_none() {
            texts.push(Arc::clone(&reference.text));
        }
    });
    texts
}

fn check_for_each_list(step: &ToolExecution, input: &InputOnly<'_>) -> Option<ToolError> {
    let list = &step.for_each.as_ref()?;
    if list.list.target != Target::Input {
        return None;
    }
    let found = list.list.path.find(input.0);
    match found {
        Some(Value::Array(_)) => None,
        found => {
            let found = found.map_or("nothing", json_kind);
            let reason = format!("`forEach` needs a list, but `{}` is {found}", list.written);
            Some(ToolError::new(ErrorCode::NOT_A_LIST, reason))
        }
    }
}

/// Evaluates a `flow.compute` step that needs nothing but the input, and returns its error. Leaves
/// out a step with a condition, because it could be skipped, and a step with `forEach`.
fn check_computation(
    step: &ToolExecution,
    parameters: &Value,
    input: &InputOnly<'_>,
) -> Option<ToolError> {
    if step.tool.as_str() != COMPUTE || step.when.is_some() || step.for_each.is_some() {
        return None;
    }
    let mut is_complete = true;
    step.template.visit_references(&mut |reference: &Reference| {
        is_complete &= find_input(reference, input).is_some();
    });
    if is_complete { flow::evaluate_compute(parameters).err() } else { None }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Replaces the references to the input in a template by their values. Braces in the values are
/// escaped, so that they are not read as templates.
fn fill_input(template: &Template, input: &InputOnly<'_>) -> Value {
    match template {
        Template::Literal(value) => escape_value(value),
        Template::Whole(reference) => match find_input(reference, input) {
            Some(found) => escape_value(found),
            None => Value::String(keep_reference(reference)),
        },
        Template::Text(parts) => {
            Value::String(parts.iter().map(|part| format_part(part, input)).collect())
        }
        Template::Array(items) => items.iter().map(|item| fill_input(item, input)).collect(),
        Template::Object(fields) => {
            let filled = fields.iter().map(|(key, field)| (key.clone(), fill_input(field, input)));
            Value::Object(filled.collect::<Map<_, _>>())
        }
    }
}

fn find_input<'a>(reference: &Reference, input: &InputOnly<'a>) -> Option<&'a Value> {
    let is_input = reference.target == Target::Input;
    is_input.then(|| reference.path.find(input.0)).flatten()
}

fn format_part(part: &TemplatePart, input: &InputOnly<'_>) -> String {
    match part {
        TemplatePart::Literal(text) => escape_text(text),
        TemplatePart::Reference(reference) => match find_input(reference, input) {
            Some(Value::String(text)) => escape_text(text),
            Some(other) => escape_text(&other.to_string()),
            None => keep_reference(reference),
        },
    }
}

/// Returns the text of a reference without a value. A reference to the input is escaped, because it
/// gets no value later and the tool receives this text.
fn keep_reference(reference: &Reference) -> String {
    match reference.target {
        Target::Input => escape_text(&reference.text),
        _ => (*reference.text).to_owned(),
    }
}

fn escape_value(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape_text(text)),
        Value::Array(items) => items.iter().map(escape_value).collect(),
        Value::Object(fields) => {
            let escaped = fields.iter().map(|(key, field)| (key.clone(), escape_value(field)));
            Value::Object(escaped.collect())
        }
        other => other.clone(),
    }
}

fn escape_text(text: &str) -> String {
    text.replace("{{", "{{{{")
}

fn step_index(path: &str) -> Option<usize> {
    path.strip_prefix("tools[")?.split_once(']')?.0.parse().ok()
}

fn message_with_help(found: Diagnostic) -> String {
    match found.help {
        Some(help) => format!("{} ({help})", found.message),
        None => found.message,
    }
}

/// Converts a diagnostic about a step into the error of the step. Returns `None` for a warning,
/// unless it is about a path that is not in an output and the step is strict.
fn step_error(found: &Diagnostic, is_strict: bool) -> Option<ToolError> {
    let code = match &*found.code {
        "plan.path_not_in_output" if is_strict => ErrorCode::UNRESOLVED,
        _ if !found.is_error() => return None,
        "plan.unknown_tool" | "plan.not_callable" | "plan.unknown_plan" => ErrorCode::UNAVAILABLE,
        "plan.inactive_tool" => ErrorCode::INACTIVE,
        code if code.contains("template") || code == "plan.invalid_condition" => {
            ErrorCode::UNRESOLVED
        }
        _ => ErrorCode::INVALID_PARAMETERS,
    };
    let help = found.help.as_ref().map(|help| format!(": {help}")).unwrap_or_default();
    // References without a value were escaped before, so the message shows them with single braces
    // again.
    Some(ToolError::new(code, format!("{}{help}", found.message).replace("{{{{", "{{")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{id::StepNumber, template::ResolveNames};

    use super::*;

    struct OneStep;

    impl ResolveNames for OneStep {
        fn find_step(&self, name: &str) -> Option<StepNumber> {
            (name == "a").then(|| StepNumber::new(0))
        }

        fn find_tool_step(&self, _: &str) -> Option<StepNumber> {
            None
        }
    }

    #[test]
    fn input_values_are_inserted_and_not_parsed_as_templates() {
        let input = json!({ "n": 1, "braces": "{{a.b}} {{{", "list": ["{{x}}"] });
        for written in [
            json!("{{a.b}}"),
            json!("{{input.n}}"),
            json!("n is {{input.n}}, b is {{a.b}} {{{{literal}}"),
            json!({ "{{k}}": ["{{input.braces}}", "{{input.missing}}"], "l": "{{input.list}}" }),
            json!("in text: {{input.braces}} {{input.list}}"),
            json!("{{{{{{{{"),
        ] {
            let template = Template::parse(&written, &OneStep).unwrap();
            let input = InputOnly(&input);
            let direct = template.render(&input, 1_000).unwrap().value;
            let filled_template =
                Template::parse(&fill_input(&template, &input), &OneStep).unwrap();
            // A template whose input is filled in first and that is rendered later has the same
            // result as a template that is rendered once.
            assert_eq!(filled_template.render(&input, 1_000).unwrap().value, direct, "{written}");
        }
    }

    #[test]
    fn a_diagnostic_is_assigned_to_its_step() {
        for (path, expected) in [
            ("tools[1].parameters.x", Some(1)),
            ("tools[12]", Some(12)),
            ("tools", None),
            ("", None),
            ("executionOrder[1]", None),
        ] {
            assert_eq!(step_index(path), expected, "{path}");
        }
    }
}
