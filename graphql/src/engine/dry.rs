//! Dry runs: a plan is compiled again with what it is given, and what is found is recorded.

use std::{collections::BTreeMap, sync::Arc};

use executor::{
    control::Start,
    machine::{Verdict, missing_input, unresolved},
};
use planner::{catalog::Catalog, compile::compile_with, draft::Draft, sub_plans::SubPlans};
use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    execution::ExecutionOptions,
    id::{ExecutionId, PlanId, ToolName},
    limits,
    plan::{Plan, StepKind, ToolExecution},
    template::{LookUpValues, Part, Reference, Target, Template},
    tool::{ErrorCode, ToolError},
};

use super::{Engine, EngineError};

impl Engine {
    /// Records what would become of every step of a plan; nothing is called.
    pub(super) async fn dry_run(&self, start: Start) -> Result<ExecutionId, EngineError> {
        let plan = &start.plan;
        let tools: Vec<ToolName> = self.tools_of(plan).await?.into_iter().collect();
        self.certain(&tools).await;
        let catalog = self.catalog_now().of_plans();
        let missing = self.missing_below(plan, &catalog).await?;
        let verdicts =
            Checking { plan, options: &start.created.options, catalog: &catalog, missing };
        let verdicts = verdicts.verdicts();
        Ok(self.control.record_dry_run(start, verdicts).await?)
    }

    /// Returns, of each plan that a plan executes, why it cannot run here.
    async fn missing_below(
        &self,
        plan: &Arc<Plan>,
        catalog: &Catalog,
    ) -> Result<BTreeMap<PlanId, ToolError>, EngineError> {
        let mut missing = BTreeMap::new();
        for id in plan.sub_plans() {
            let Some(plan) = self.plan(id).await? else {
                let why = format!("the plan `{id}` is not in the store");
                missing.insert(id, ToolError::new(ErrorCode::UNAVAILABLE, why));
                continue;
            };
            let below = self.below(&plan).await?;
            let plans = std::iter::once(&plan).chain(below.iter().flatten());
            let error = plans.flat_map(|it| it.called_tools().map(move |tool| (it.id(), tool)));
            let error = error.filter_map(|(of, tool)| {
                let error = lacking(tool.as_str(), catalog)?;
                let message = format!("in `{of}`: {}", error.message);
                Some(ToolError { message: message.as_str().into(), ..error })
            });
            missing.extend(error.take(1).map(|it| (id, it)));
        }
        Ok(missing)
    }
}

/// Says why a tool cannot be called, if it cannot.
fn lacking(tool: &str, catalog: &Catalog) -> Option<ToolError> {
    match catalog.find(tool) {
        None => {
            let why = format!("there is no tool `{tool}`: configure the toolset that has it");
            Some(ToolError::new(ErrorCode::UNAVAILABLE, why))
        }
        Some(it) if !it.is_active => {
            let why = format!("the toolset of `{tool}` is not active: activate it");
            Some(ToolError::new(ErrorCode::INACTIVE, why))
        }
        Some(_) => None,
    }
}

/// What a plan is given, and nothing that it would find out.
struct Given<'a>(&'a Value);

impl LookUpValues for Given<'_> {
    fn value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Input => Some(self.0),
            _ => None,
        }
    }
}

/// A plan that is checked with what it is given.
struct Checking<'a> {
    plan: &'a Plan,
    options: &'a ExecutionOptions,
    catalog: &'a Catalog,
    /// Why plans that it executes cannot run.
    missing: BTreeMap<PlanId, ToolError>,
}

impl Checking<'_> {
    /// Returns what was found of every step, in plan order.
    fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts: Vec<_> = self.plan.steps().iter().map(|it| self.alone(it)).collect();
        for found in self.compiled_again() {
            let at = step_of(&found.path).filter(|it| *it < verdicts.len()).unwrap_or(0);
            let policy = &self.plan.steps()[at].policy;
            let error = error_of(&found, self.options.is_strict(policy, policy.effect));
            match error {
                Some(error) => drop(verdicts[at].error.get_or_insert(error)),
                None => verdicts[at].warnings.push(with_help(found)),
            }
        }
        verdicts
    }

    /// Checks what can be seen of a step alone: what it is given.
    fn alone(&self, step: &ToolExecution) -> Verdict {
        let given = Given(&self.options.input);
        let mut error = match step.kind {
            StepKind::Plan(id) => self.missing.get(&id).cloned(),
            _ => None,
        };
        let parameters = match step.template.render(&given, limits::OUTPUT_BYTES) {
            Ok(rendered) => Arc::new(rendered.value),
            Err(err) => {
                let why = ToolError::new(ErrorCode::INVALID_PARAMETERS, err.to_string());
                error.get_or_insert(why);
                Arc::clone(&step.parameters)
            }
        };
        let empty = nothing_found(&step.template, &given);
        let warnings: Vec<String> = empty
            .iter()
            .map(|it| format!("`{it}` found nothing and stands as it was written"))
            .collect();
        let missing = missing_input(step, self.options);
        if !missing.is_empty() {
            error.get_or_insert(unresolved(&missing, "in the input"));
        }
        error = error.or_else(|| not_a_list(step, &given));
        Verdict { parameters, warnings, error }
    }

    /// Compiles the plan again with what it is given and the tools that there are now.
    fn compiled_again(&self) -> Vec<Diagnostic> {
        let given = Given(&self.options.input);
        let mut draft = Draft::from_plan(self.plan);
        for (written, step) in draft.tools.iter_mut().zip(self.plan.steps()) {
            written.parameters = Some(filled(&step.template, &given));
            let undo = written.compensate.as_mut().and_then(Value::as_object_mut);
            if let (Some(undo), Some(compensation)) = (undo, &step.compensate) {
                undo.insert("parameters".to_owned(), filled(&compensation.template, &given));
            }
        }
        let plans = SubPlans::of(self.plan);
        match compile_with(&draft, self.plan.info().clone(), self.catalog, &plans) {
            Ok(plan) => plan.diagnostics().to_vec(),
            Err(found) => found,
        }
    }
}

/// Returns the templates over the input that find nothing there.
fn nothing_found(template: &Template, given: &Given<'_>) -> Vec<Arc<str>> {
    let mut empty = Vec::new();
    template.visit_references(&mut |it: &Reference| {
        if it.target == Target::Input && it.path.find(given.0).is_none() {
            empty.push(Arc::clone(&it.text));
        }
    });
    empty
}

/// Says that `forEach` over the input has no list, where that is so.
fn not_a_list(step: &ToolExecution, given: &Given<'_>) -> Option<ToolError> {
    let list = &step.for_each.as_ref()?;
    if list.list.target != Target::Input {
        return None;
    }
    let found = list.list.path.find(given.0);
    match found {
        Some(Value::Array(_)) => None,
        found => {
            let found = found.map_or("nothing", kind);
            let why = format!("`forEach` needs a list; `{}` found {found}", list.written);
            Some(ToolError::new(ErrorCode::NOT_A_LIST, why))
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Writes a template down again with what is given in its place. That is data: braces in it are
/// literal.
fn filled(template: &Template, given: &Given<'_>) -> Value {
    match template {
        Template::Literal(value) => escaped(value),
        Template::Whole(reference) => match find(reference, given) {
            Some(found) => escaped(found),
            None => Value::String(left(reference)),
        },
        Template::Text(parts) => Value::String(parts.iter().map(|it| text(it, given)).collect()),
        Template::Array(items) => items.iter().map(|it| filled(it, given)).collect(),
        Template::Object(fields) => {
            let filled = fields.iter().map(|(key, it)| (key.clone(), filled(it, given)));
            Value::Object(filled.collect::<Map<_, _>>())
        }
    }
}

fn find<'a>(reference: &Reference, given: &Given<'a>) -> Option<&'a Value> {
    let is_given = reference.target == Target::Input;
    is_given.then(|| reference.path.find(given.0)).flatten()
}

fn text(part: &Part, given: &Given<'_>) -> String {
    match part {
        Part::Literal(text) => literal(text),
        Part::Reference(reference) => match find(reference, given) {
            Some(Value::String(text)) => literal(text),
            Some(other) => literal(&other.to_string()),
            None => left(reference),
        },
    }
}

/// Returns what stands where a template finds nothing: one over the input will find nothing later
/// either, so its text is what the tool gets.
fn left(reference: &Reference) -> String {
    match reference.target {
        Target::Input => literal(&reference.text),
        _ => (*reference.text).to_owned(),
    }
}

fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(literal(text)),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(fields) => {
            let escaped = fields.iter().map(|(key, it)| (key.clone(), escaped(it)));
            Value::Object(escaped.collect())
        }
        other => other.clone(),
    }
}

fn literal(text: &str) -> String {
    text.replace("{{", "{{{{")
}

/// Returns the number of the step that a path of a draft is in: `tools[1].parameters`.
fn step_of(path: &str) -> Option<usize> {
    path.strip_prefix("tools[")?.split_once(']')?.0.parse().ok()
}

/// Returns what a warning says, and what to do about it.
fn with_help(found: Diagnostic) -> String {
    match found.help {
        Some(help) => format!("{} ({help})", found.message),
        None => found.message,
    }
}

/// Returns the error that a diagnostic means for its step, if it means one.
fn error_of(found: &Diagnostic, is_strict: bool) -> Option<ToolError> {
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
    let help = found.help.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
    // What was left as it was written was escaped, so that it is not read again.
    Some(ToolError::new(code, format!("{}{help}", found.message).replace("{{{{", "{{")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::{id::StepNumber, template::ResolveNames};

    use super::*;

    struct One;

    impl ResolveNames for One {
        fn step(&self, name: &str) -> Option<StepNumber> {
            (name == "a").then(|| StepNumber::new(0))
        }

        fn tool(&self, _: &str) -> Option<StepNumber> {
            None
        }
    }

    #[test]
    fn what_is_given_is_filled_in_and_never_read_as_a_template() {
        let input = json!({ "n": 1, "braces": "{{a.b}} {{{", "list": ["{{x}}"] });
        for written in [
            json!("{{a.b}}"),
            json!("{{input.n}}"),
            json!("n is {{input.n}}, b is {{a.b}} {{{{literal}}"),
            json!({ "{{k}}": ["{{input.braces}}", "{{input.missing}}"], "l": "{{input.list}}" }),
            json!("in text: {{input.braces}} {{input.list}}"),
            json!("{{{{{{{{"),
        ] {
            let template = Template::parse(&written, &One).unwrap();
            let given = Given(&input);
            let direct = template.render(&given, 1_000).unwrap().value;
            let again = Template::parse(&filled(&template, &given), &One).unwrap();
            // Filling in and reading again gives what rendering gives at once.
            assert_eq!(again.render(&given, 1_000).unwrap().value, direct, "{written}");
        }
    }

    #[test]
    fn diagnostics_find_their_step() {
        for (path, expected) in [
            ("tools[1].parameters.x", Some(1)),
            ("tools[12]", Some(12)),
            ("tools", None),
            ("", None),
            ("executionOrder[1]", None),
        ] {
            assert_eq!(step_of(path), expected, "{path}");
        }
    }
}
