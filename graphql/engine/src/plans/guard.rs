//! The guard of plans that a model made from a query: the query must ask for each call with an
//! effect, and must contain its values.

#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;

use offline::{Standing, Wording};
use planner::{
    Note, PlanCompiler, PlanningError, ProposedPlan, catalog::Catalog, replan::EarlierPlan,
};
use serde_json::{Value, json};
use shared::{
    diagnostic::{Diagnostic, Severity},
    id::ToolName,
    plan::{Plan, StepKind, ToolExecution},
    tool::{Effect, ToolDefinition},
};

use self::values::{
    add_texts, contains_value, shorten, to_lowercase_words, words_outside_templates,
};

/// The rule for calls of a model's plan that the query does not ask for, or whose values it does
/// not contain. The strictest rule is the last value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// The plan only gets a warning for each such call.
    Off,
    #[default]
    Approve,
    /// The plan is refused if the query does not ask for a call. A step whose values the query does
    /// not contain waits for an approval.
    Strict,
}

impl Guard {
    pub const ALL: [Self; 3] = [Self::Strict, Self::Approve, Self::Off];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Approve => "approve",
            Self::Strict => "strict",
        }
    }
}

pub(super) struct GuardedQuery<'a> {
    guard: Guard,
    lowercase_query: String,
    wording: Wording<'a>,
    catalog: &'a Catalog,
    /// Tools of the earlier plan whose steps needed no approval.
    accepted_tools: BTreeSet<ToolName>,
    /// Values of those steps, and of all outputs of the earlier plan. A replan may use them
    /// although the query does not contain them.
    known_values: BTreeSet<String>,
}

struct Call<'a> {
    path: String,
    tool: &'a ToolName,
    parameters: &'a Value,
    /// `true` if the step has a condition or a loop, or if the call undoes another call.
    is_conditional: bool,
}

impl<'a> GuardedQuery<'a> {
    /// Reads a query. The planner saw the tools in `shown_tools`. The plan may use all tools in
    /// `catalog`.
    pub(super) fn new(
        guard: Guard,
        query: &'a str,
        shown_tools: &Catalog,
        catalog: &'a Catalog,
    ) -> Self {
        let (lowercase_query, wording) =
            (to_lowercase_words(query), Wording::read(query, shown_tools));
        let (accepted_tools, known_values) = (BTreeSet::new(), BTreeSet::new());
        Self { guard, lowercase_query, wording, catalog, accepted_tools, known_values }
    }

    /// Accepts the values and the tools of those steps of an earlier plan that need no approval,
    /// and the values that its steps returned.
    pub(super) fn accept_earlier_calls(mut self, earlier: &EarlierPlan) -> Self {
        for step in earlier.draft.tools.iter().filter(|step| step.requires_approval != Some(true)) {
            let undo = step.compensate.as_ref().and_then(|undo| undo["name"].as_str());
            let called = [step.name.as_deref(), step.tool_name.as_deref(), undo];
            let called = called.into_iter().flatten();
            let found = called.filter_map(|name| self.catalog.find(name));
            self.accepted_tools.extend(found.map(|tool| tool.definition.qualified_name()));
            for written in [&step.parameters, &step.compensate].into_iter().flatten() {
                add_texts(written, &mut self.known_values);
            }
        }
        for clause in earlier.results.iter().filter_map(|result| result.output.as_ref()) {
            add_texts(clause, &mut self.known_values);
        }
        self
    }

    pub(super) async fn check(
        &self,
        proposed: ProposedPlan,
        planner: &str,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let ProposedPlan { compiled, mut proposal } = proposed;
        let found = self.find_problems(&compiled.plan);
        if found.is_empty() {
            return Ok(ProposedPlan { compiled, proposal });
        }
        let diagnostics: Vec<Diagnostic> =
            found.iter().map(|(_, diagnostic)| diagnostic.clone()).collect();
        let after = proposal.notes.last().map(|note| note.after).unwrap_or_default();
        let content = json!({ "guard": self.guard.as_str(), "diagnostics": diagnostics });
        proposal.notes.push(Note { kind: "guard", content, after });
        if diagnostics.iter().any(Diagnostic::is_error) {
            let draft = Note { kind: "draft", content: json!(proposal.draft), after };
            proposal.notes.push(draft);
            return Err(PlanningError::Invalid { diagnostics, notes: proposal.notes });
        }
        proposal.warnings.extend(diagnostics);
        if self.guard == Guard::Off {
            return Ok(ProposedPlan { compiled, proposal });
        }
        for (step_index, _) in found {
            proposal.draft.tools[step_index].requires_approval = Some(true);
        }
        proposal.compile(planner, compiler).await
    }

    /// Returns the problems of calls. The number is the index of the step in the draft.
    fn find_problems(&self, plan: &Plan) -> Vec<(usize, Diagnostic)> {
        let mut found = Vec::new();
        for (step_index, number) in plan.draft_order().iter().enumerate() {
            for call in list_calls(step_index, plan.step(*number)) {
                let Some(tool) = self.catalog.find(call.tool.as_str()) else { continue };
                let problems = self.check_call(&call, &tool.definition);
                found.extend(problems.into_iter().map(|problem| (step_index, problem)));
            }
        }
        found
    }

    fn check_call(&self, call: &Call<'_>, tool: &ToolDefinition) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        if !self.accepted_tools.contains(&tool.qualified_name()) {
            let mut words = BTreeSet::new();
            add_texts(call.parameters, &mut words);
            let words: Vec<String> =
                words.iter().flat_map(|text| words_outside_templates(text)).collect();
            let (standing, clause) = self.wording.standing(tool, &words);
            found.extend(self.explain_clause(call, standing, &clause));
        }
        for (path, text) in self.find_invented_values(call.parameters, tool) {
            let (name, text) = (tool.name.as_str(), shorten(&text));
            let message = format!(
                "`{path}` of `{name}` is `{text}`, which neither the query nor an output contains"
            );
            let path = format!("{}.parameters.{path}", call.path);
            let found_value = Diagnostic::warning("plan.invented_value", path, message);
            found.push(found_value.with_help("say the value in the query"));
        }
        found
    }

    fn explain_clause(
        &self,
        call: &Call<'_>,
        standing: Standing,
        clause: &str,
    ) -> Option<Diagnostic> {
        let (tool, clause) = (call.tool, shorten(clause));
        let message = match standing {
            Standing::Ordered => return None,
            Standing::Conditional if call.is_conditional => return None,
            Standing::Denied => format!("`{clause}` denies a call of `{tool}`"),
            Standing::Asked => format!("`{clause}` only asks about a call of `{tool}`"),
            Standing::Supposed => format!("`{clause}` only supposes a call of `{tool}`"),
            Standing::Reported => format!("`{clause}` only reports a call of `{tool}`"),
            Standing::Conditional => {
                format!(
                    "`{clause}` asks for `{tool}` under a condition, and the step has no \
                    `when`"
                )
            }
            Standing::Unsaid => format!("no part of `{clause}` asks for a call of `{tool}`"),
        };
        let found = Diagnostic::error("plan.not_asked", call.path.clone(), message);
        let found = found.with_help("say it as an order in English, or write the plan as JSON");
        let is_strict = self.guard == Guard::Strict;
        let severity = if is_strict { Severity::Error } else { Severity::Warning };
        Some(Diagnostic { severity, ..found })
    }

    fn find_invented_values(
        &self,
        parameters: &Value,
        tool: &ToolDefinition,
    ) -> Vec<(String, String)> {
        let mut invented = Vec::new();
        for (name, value) in parameters.as_object().into_iter().flatten() {
            let schema = &tool.input_schema["properties"][name];
            let mut found = Vec::new();
            values::collect_values(value, schema, name.clone(), &mut found);
            found.retain(|(_, text)| {
                !self.known_values.contains(text)
                    && !contains_value(&self.lowercase_query, &self.wording, text, || {
                        self.wording.is_composed(tool, name)
                    })
            });
            invented.extend(found);
        }
        invented
    }
}

/// Returns the calls with an effect that a step makes. Omits the calls of a sub-plan, because a
/// person wrote the sub-plan or the guard checked it before.
fn list_calls(step_index: usize, step: &ToolExecution) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    let path = format!("tools[{step_index}]");
    if let Some(undo) = step.compensate.as_ref().filter(|undo| undo.policy.effect != Effect::Read) {
        let (tool, parameters) = (&undo.tool, &*undo.parameters);
        let path = format!("{path}.compensate");
        calls.push(Call { path, tool, parameters, is_conditional: true });
    }
    if step.policy.effect != Effect::Read && !matches!(step.kind, StepKind::Plan(_)) {
        let (tool, parameters) = (&step.tool, &*step.parameters);
        let is_conditional = step.when.is_some() || step.for_each.is_some();
        calls.insert(0, Call { path, tool, parameters, is_conditional });
    }
    calls
}
