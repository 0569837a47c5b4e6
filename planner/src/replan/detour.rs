//! Detours: new versions of a plan that no model writes, after a tool that only reads has failed.
//!
//! A detour replaces a step that failed permanently with other calls that only read and lead to a
//! value of the same type ([`crate::toolkit::chain`]). All other calls stay, so a detour neither
//! repeats nor adds a call with an effect.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    execution::{Execution, StepState},
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, ToolName, is_step_id_char},
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};

use super::EarlierPlan;
use crate::{
    catalog::Catalog,
    draft::{Draft, DraftStep},
    toolkit::chain::{ChainGraph, Field, Fit, Given, Goal, Route, value_of},
};

/// Cost of a value that one tool did not accept. The planner uses such a value only if every other
/// value costs more.
const SUSPECT_COST: u32 = 15;
/// Number of tools that must reject the values of a tool before that tool counts as the cause.
const MIN_REJECTIONS: usize = 2;
const SUFFIX_LEN: usize = 4;

/// A permanent failure of a call that only reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub tool: ToolName,
    pub before: Vec<ToolName>,
}

#[derive(Clone, Debug)]
pub struct Detour {
    pub draft: Draft,
    /// One warning for each step with an effect that a guessed value may reach. Such a step waits
    /// for an approval.
    pub warnings: Vec<Diagnostic>,
}

pub fn failures_of(ended: &Execution) -> Vec<Failure> {
    let plan = ended.plan();
    let steps = plan.steps().iter().zip(ended.steps());
    let failed = steps.filter(|(planned, step)| match &step.state {
        StepState::Failed(err) => planned.policy.effect == Effect::Read && is_permanent_error(err),
        _ => false,
    });
    failed
        .map(|(planned, _)| Failure {
            tool: planned.tool.clone(),
            before: planned
                .depends_on
                .iter()
                .map(|number| plan.step(*number).tool.clone())
                .collect(),
        })
        .collect()
}

/// Returns whether no further attempt can succeed after an error. An inactive tool is a permanent
/// failure, because the tool does not become active by itself.
fn is_permanent_error(err: &ToolError) -> bool {
    let excluded_codes = [
        ErrorCode::TIMEOUT,
        ErrorCode::CANCELLED,
        ErrorCode::DEADLINE,
        ErrorCode::REJECTED,
        ErrorCode::OUTCOME_UNKNOWN,
    ];
    let is_inactive = err.code == ErrorCode::INACTIVE;
    err.is_definite && !excluded_codes.contains(&err.code) && (is_inactive || !err.retryable)
}

/// Finds another way to the values of the steps that failed. The error states why there is no other
/// way.
pub fn find_detour(earlier: &EarlierPlan, catalog: &Catalog) -> Result<Detour, String> {
    let failed = failed_steps(earlier)?;
    let mut planner = DetourPlanner::new(earlier, catalog);
    for id in failed {
        planner.replace_step(&id)?;
    }
    Ok(planner.finish())
}

/// Returns the steps that a detour must replace, or why a detour would be wrong.
fn failed_steps(earlier: &EarlierPlan) -> Result<Vec<String>, String> {
    if earlier.is_requested {
        return Err("a step requests a new plan that depends on results".to_owned());
    }
    let mut failed = Vec::new();
    for result in &earlier.results {
        let id = &result.step;
        match (result.state, &result.failure) {
            ("succeeded" | "skipped" | "cancelled", _) => {}
            ("failed", Some((Effect::Read, err))) if is_permanent_error(err) => {
                failed.push(id.clone());
            }
            ("failed", Some((Effect::Read, _))) => {
                return Err(format!("another attempt of `{id}` may help: run `faber retry`"));
            }
            _ => return Err(format!("`{id}` has an effect, so no other call may replace it")),
        }
    }
    if failed.is_empty() { Err("no step failed".to_owned()) } else { Ok(failed) }
}

struct DetourPlanner<'a> {
    earlier: &'a EarlierPlan,
    graph: ChainGraph,
    effects: BTreeMap<String, Effect>,
    avoided_tools: BTreeSet<usize>,
    given_values: Vec<Given>,
    draft: Draft,
    /// The values that are guesses, each as the replaced step and the new step.
    guesses: Vec<(String, String)>,
}

impl<'a> DetourPlanner<'a> {
    fn new(earlier: &'a EarlierPlan, catalog: &Catalog) -> Self {
        let tools = catalog.tools().iter().map(|tool| &tool.definition);
        let named =
            |tool: &Arc<ToolDefinition>| (tool.qualified_name().to_string(), Arc::clone(tool));
        let effects = tools.clone().map(|tool| (tool.qualified_name().to_string(), tool.effect));
        let effects = effects.collect();
        let graph = ChainGraph::new(tools.map(named));
        let usable: BTreeSet<String> =
            catalog.list_plannable().map(|tool| tool.qualified_name().to_string()).collect();
        let mut rejections: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for failure in &earlier.failures {
            for before in &failure.before {
                rejections.entry(before.as_str()).or_default().insert(failure.tool.as_str());
            }
        }
        let has_failed = |name: &str| {
            let is_blamed = rejections.get(name).is_some_and(|by| by.len() >= MIN_REJECTIONS);
            is_blamed || earlier.failures.iter().any(|failure| failure.tool.as_str() == name)
        };
        let must_avoid = |name: &String| !usable.contains(name) || has_failed(name);
        let numbered = graph.tools().iter().enumerate();
        let avoided_tools =
            numbered.filter(|(_, tool)| must_avoid(&tool.name)).map(|(index, _)| index).collect();
        let draft = Draft { query: None, ..earlier.draft.clone() };
        let (given_values, guesses) = (Vec::new(), Vec::new());
        let mut planner =
            Self { earlier, graph, effects, avoided_tools, given_values, draft, guesses };
        let suspects: BTreeSet<&str> = rejections.into_keys().collect();
        planner.collect_values(&suspects);
        planner
    }

    fn collect_values(&mut self, suspects: &BTreeSet<&str>) {
        for (step, result) in self.earlier.draft.tools.iter().zip(&self.earlier.results) {
            let Some(index) = step.name.as_deref().and_then(|name| self.graph.find(name)) else {
                continue;
            };
            let tool = &self.graph.tools()[index];
            let parameters = step.parameters.as_ref().and_then(Value::as_object);
            for (name, value) in parameters.into_iter().flatten() {
                let is_literal = is_scalar(value) && !value.as_str().is_some_and(has_template);
                let field = tool.input(name).filter(|_| is_literal);
                self.given_values.extend(field.map(|field| Given::new(value.clone(), field)));
            }
            let output = result.output.as_ref().filter(|_| result.state == "succeeded");
            let Some(output) = output.filter(|_| step.for_each.is_none()) else { continue };
            if self.avoided_tools.contains(&index) {
                continue;
            }
            let cost = if suspects.contains(tool.name.as_str()) { SUSPECT_COST } else { 0 };
            for field in &tool.outputs {
                let value = field.path.split('.').try_fold(&**output, |value, key| value.get(key));
                if value.is_some_and(is_scalar) {
                    let template = format!("{{{{{}.{}}}}}", result.step, field.path);
                    self.given_values.push(Given::new(template.into(), field).with_cost(cost));
                }
            }
        }
    }

    /// Replaces a step by other calls. Later steps then refer to the outputs of these calls.
    fn replace_step(&mut self, id: &str) -> Result<(), String> {
        let has_id = |step: &DraftStep| step.id.as_deref() == Some(id);
        let place = self.draft.tools.iter().position(has_id);
        let place = place.ok_or_else(|| format!("the plan has no step `{id}`"))?;
        let failed = self.draft.tools[place].clone();
        if !is_plain(&failed) {
            return Err(format!(
                "`{id}` cannot be replaced, because it is not a single call without `when`, `forEach`, \
                 `compensate`, `plan`, `outputMapping` and approval"
            ));
        }
        let paths = self.used_paths(id)?;
        let name = failed.name.as_deref().unwrap_or_default();
        let tool = self.graph.find(name);
        let tool = tool.ok_or_else(|| format!("the outputs of `{id}` are not known"))?;
        let outputs = self.graph.tools()[tool].outputs.clone();
        let wanted: Vec<&Field> = match paths.len() {
            // No step uses the output, so the output is the answer of the plan.
            0 => outputs.iter().collect(),
            _ => paths
                .iter()
                .filter_map(|path| outputs.iter().find(|out| out.path == *path))
                .collect(),
        };
        if wanted.is_empty() || wanted.len() < paths.len() || paths.is_empty() && wanted.len() > 1 {
            return Err(format!(
                "Faber knows no other tool that returns the same values as `{id}`"
            ));
        }
        self.draft.tools.remove(place);
        let mut position = place;
        let mut last = None;
        for field in wanted {
            let route =
                self.graph.find_route(Goal::Like(field), &self.given_values, &self.avoided_tools);
            let is_new = |route: &Route| {
                route.fit < Fit::Near && !paths.is_empty() || !route.steps.is_empty()
            };
            let route = route.filter(is_new).filter(|route| route.worst_fit() < Fit::Near);
            let none = || format!("no calls of other tools return the `{}` of `{id}`", field.path);
            let route = route.ok_or_else(none)?;
            let value = self.add_route(&route, &failed, &mut position);
            let source = value.as_str().and_then(step_of).map(str::to_owned);
            last = source.clone().or(last);
            if route.worst_fit() != Fit::Exact || !route.is_only {
                self.guesses.push((id.to_owned(), source.unwrap_or_default()));
            }
            let old = format!("{{{{{id}.{}}}}}", field.path);
            for step in &mut self.draft.tools {
                step.parameters.iter_mut().for_each(|own| replace_value(own, &old, &value));
            }
        }
        for step in &mut self.draft.tools {
            replace_dependency(step, id, last.as_deref());
        }
        Ok(())
    }

    fn used_paths(&self, id: &str) -> Result<BTreeSet<String>, String> {
        let mut paths = BTreeSet::new();
        for step in self.draft.tools.iter().filter(|step| step.id.as_deref() != Some(id)) {
            let mut texts = Vec::new();
            step.parameters.iter().for_each(|value| collect_texts(value, &mut texts));
            for text in texts.into_iter().filter(|text| has_template(text) && has_word(text, id)) {
                let whole = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
                let path = whole.and_then(|whole| whole.trim().strip_prefix(id)?.strip_prefix('.'));
                let path = path.filter(|path| !path.contains(['{', '[', '}']));
                let path = path.ok_or_else(|| format!("`{id}` is a part of a larger value"))?;
                paths.insert(path.to_owned());
            }
            let undo = step.compensate.as_ref().map(Value::to_string);
            let others = [step.when.as_ref(), step.for_each.as_ref(), undo.as_ref()];
            if others.into_iter().flatten().any(|text| has_word(text, id)) {
                return Err(format!("a condition, a list or a compensation uses `{id}`"));
            }
        }
        Ok(paths)
    }

    fn add_route(&mut self, route: &Route, failed: &DraftStep, position: &mut usize) -> Value {
        let mut ids: Vec<String> = Vec::new();
        for step in &route.steps {
            let name = self.graph.tools()[step.tool].name.clone();
            let values = step.inputs.iter().filter_map(|input| {
                Some((input.parameter.clone(), value_of(&input.source, &self.given_values, &ids)?))
            });
            let parameters = Value::Object(values.collect());
            let is_same = |other: &&DraftStep| {
                other.name.as_ref() == Some(&name) && other.parameters.as_ref() == Some(&parameters)
            };
            if let Some(id) = self.draft.tools.iter().find(is_same).and_then(|same| same.id.clone())
            {
                ids.push(id);
                continue;
            }
            let id = self.free_id(&name);
            let new = DraftStep {
                id: Some(id.clone()),
                name: Some(name),
                parameters: Some(parameters),
                depends_on: failed.depends_on.clone(),
                on_error: failed.on_error.clone(),
                retry: failed.retry,
                timeout_ms: failed.timeout_ms,
                idle_timeout_ms: failed.idle_timeout_ms,
                ..DraftStep::default()
            };
            self.draft.tools.insert(*position, new);
            *position += 1;
            ids.push(id);
        }
        value_of(&route.source, &self.given_values, &ids).unwrap_or_default()
    }

    fn free_id(&self, name: &str) -> String {
        let plain = name.rsplit('.').next().unwrap_or_default().chars();
        let plain = plain.take(STEP_ID_LEN - SUFFIX_LEN);
        let base: String =
            plain.map(|char| if is_step_id_char(char) { char } else { '_' }).collect();
        let is_free = |id: &String| {
            // Does not use an id of the earlier plan, because the new step would look like the
            // earlier step.
            let steps = self.draft.tools.iter().chain(&self.earlier.draft.tools);
            !RESERVED_STEP_IDS.contains(&id.as_str())
                && steps.into_iter().all(|step| step.id.as_ref() != Some(id))
        };
        let mut numbered = (2..).map(|number| format!("{base}_{number}"));
        if is_free(&base) { base } else { numbered.find(is_free).unwrap_or_default() }
    }

    fn finish(self) -> Detour {
        let Self { mut draft, guesses, effects, earlier, .. } = self;
        draft.query.clone_from(&earlier.draft.query);
        let has_run = |id: Option<&String>| {
            let result = earlier.results.iter().find(|result| Some(&result.step) == id);
            result.is_some_and(|result| result.state == "succeeded")
        };
        let mut warnings = Vec::new();
        for (index, step) in draft.tools.iter_mut().enumerate() {
            let effect = step.name.as_ref().and_then(|name| effects.get(name));
            let acts = effect != Some(&Effect::Read);
            if guesses.is_empty() || !acts || has_run(step.id.as_ref()) {
                continue;
            }
            step.requires_approval = Some(true);
            let (old, new) = &guesses[0];
            let message = format!("a value of `{new}` replaces a value of `{old}`");
            let help = "approve the step only if the value is right";
            let path = format!("tools[{index}].parameters");
            warnings.push(Diagnostic::warning("plan.guessed_value", path, message).with_help(help));
        }
        Detour { draft, warnings }
    }
}

/// Returns whether a step only makes one call, so that other calls can take its place.
fn is_plain(step: &DraftStep) -> bool {
    step.when.is_none()
        && step.for_each.is_none()
        && step.compensate.is_none()
        && step.plan.is_none()
        && step.requires_approval != Some(true)
        && step.output_mapping.as_ref().is_none_or(serde_json::Map::is_empty)
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number()
}

fn has_template(text: &str) -> bool {
    text.contains("{{")
}

/// Returns whether a text contains an id, and not only as a part of a longer name. A path may
/// follow the id.
fn has_word(text: &str, id: &str) -> bool {
    let is_inside = |char: char| is_step_id_char(char) && char != '.';
    text.match_indices(id).any(|(start, _)| {
        let (before, after) =
            (text[..start].chars().next_back(), text[start + id.len()..].chars().next());
        !before.is_some_and(is_step_id_char) && !after.is_some_and(is_inside)
    })
}

fn step_of(template: &str) -> Option<&str> {
    template.strip_prefix("{{")?.split('.').next()
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, texts)),
        _ => {}
    }
}

fn replace_value(value: &mut Value, old: &str, new: &Value) {
    let is_old = value.as_str().is_some_and(|text| text.replace(' ', "") == old.replace(' ', ""));
    match value {
        _ if is_old => value.clone_from(new),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_value(item, old, new)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| replace_value(field, old, new));
        }
        _ => {}
    }
}

fn replace_dependency(step: &mut DraftStep, old: &str, new: Option<&str>) {
    let written = step.depends_on.take();
    let one = written.as_ref().and_then(Value::as_str).map(str::to_owned);
    let many = written.iter().filter_map(Value::as_array).flatten();
    let all = many.filter_map(|name| name.as_str().map(str::to_owned)).chain(one);
    let step_id = step.id.as_deref();
    let kept: BTreeSet<String> = all
        .filter_map(|name| if name == old { new.map(str::to_owned) } else { Some(name) })
        .filter(|name| step_id != Some(name))
        .collect();
    if !kept.is_empty() {
        step.depends_on = Some(kept.into_iter().collect());
    }
}
