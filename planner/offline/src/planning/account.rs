//! What is told of a draft: how it came to be, how sure it is, or why there is none.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

use super::{
    super::{
        choose::Candidate,
        explain::{self, Problem},
        fill::Filled,
        profile::Profile,
    },
    CANDIDATES, NEAREST, Planning,
};
use planner::{
    Note, PlanningError, Proposal,
    draft::{Draft, DraftStep},
};

/// The most problems that a message tells.
const PROBLEMS: usize = 8;
/// How sure what was said with the tool's own words is.
const SAID: f32 = 0.9;
/// How sure what nobody said is.
const ASSUMED: f32 = 0.5;

impl Planning<'_> {
    pub(super) fn note(&mut self, text: &str, candidates: &[Candidate]) {
        let scored: Vec<Value> = candidates
            .iter()
            .take(CANDIDATES)
            .map(|it| json!({ "tool": self.profiles[it.at].name, "score": it.score }))
            .collect();
        self.clauses.push(json!(text));
        self.candidates.push(json!({ "clause": text, "tools": scored }));
    }

    /// Notes how sure each parameter of a step is, and what is missing.
    pub(super) fn note_step(&mut self, id: &str, filled: &Filled) {
        let is_assumed = |name: &str| filled.assumed.iter().any(|it| it.parameter == name);
        let said = |name: &String| {
            let sure = if is_assumed(name) { ASSUMED } else { SAID };
            (name.clone(), sure)
        };
        let mut sure: Vec<(String, f32)> = if filled.sure.is_empty() {
            filled.parameters.keys().map(said).collect()
        } else {
            filled.sure.clone()
        };
        sure.extend(
            filled
                .assumed
                .iter()
                .filter(|it| !sure.iter().any(|known| known.0 == it.parameter))
                .map(|it| (it.parameter.clone(), ASSUMED))
                .collect::<Vec<_>>(),
        );
        let least = sure.iter().map(|it| it.1).fold(SAID.max(0.98), f32::min);
        let missing: Vec<&String> = filled.problems.iter().filter_map(Problem::parameter).collect();
        let confidence = if missing.is_empty() { least } else { 0.0 };
        let parameters: Map<String, Value> =
            sure.into_iter().map(|(name, it)| (name, json!(hundredths(it)))).collect();
        let step = json!({ "step": id, "confidence": hundredths(confidence), "parameters": parameters, "missing": missing });
        if let Some(Value::Object(noted)) = self.candidates.last_mut()
            && let Value::Array(steps) = noted.entry("steps").or_insert_with(|| json!([]))
        {
            steps.push(step);
        }
    }

    /// Keeps what the evidence came to, and why that is not enough.
    pub(crate) fn decline(&mut self, other: &Self, why: &str) {
        let problems: Vec<Value> =
            other.problems.iter().take(PROBLEMS).map(|it| json!(it.1.explain(&it.0))).collect();
        self.declined = Some(json!({
            "candidates": other.candidates,
            "declined": why,
            "confidence": hundredths(other.confidence),
            "problems": problems,
        }));
    }

    /// Says that words which deny something were left out.
    pub(crate) fn leave_out(&mut self, said: &str) {
        let message = format!("`{said}` denies something and is left out");
        let help = "say only what is wanted, or put what is only text between quotation marks";
        self.warnings
            .push(Diagnostic::warning("plan.ignored_words", "tools", message).with_help(help));
    }

    /// Returns the draft, or why there is none.
    pub(crate) fn finish(self) -> Result<Proposal, PlanningError> {
        // Planning without a model takes milliseconds: its notes follow each other at once.
        let note = |kind, content| Note { kind, content, after: Duration::ZERO };
        let mut notes = vec![
            note("clauses", Value::Array(self.clauses)),
            note("candidates", Value::Array(self.candidates)),
        ];
        if !self.assumptions.is_empty() {
            notes.push(note("assumptions", Value::Array(self.assumptions)));
        }
        if let Some(content) = self.declined {
            notes.push(note("evidence", content));
        }
        if !self.problems.is_empty() {
            return Err(no_plan(&self.problems, &self.nearest, self.profiles, notes));
        }
        let mut names: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for (_, step) in &self.steps {
            *names.entry(step.name.clone()).or_default() += 1;
        }
        let tools = self.steps.into_iter().map(|(id, step)| {
            let is_repeated = names.get(&step.name).is_some_and(|it| *it > 1);
            let needs_id = is_repeated || step.name.as_ref() != Some(&id);
            DraftStep { id: needs_id.then_some(id), ..step }
        });
        let draft = Draft {
            query: Some(self.query.to_owned()),
            tools: tools.collect(),
            ..Draft::default()
        };
        Ok(Proposal { draft, notes, warnings: self.warnings, author: None })
    }
}

fn no_plan(
    problems: &[(String, Problem)],
    nearest: &[usize],
    profiles: &[Profile],
    notes: Vec<Note>,
) -> PlanningError {
    let mut names: Vec<String> = Vec::new();
    for at in nearest {
        let name = &profiles[*at].name;
        if !names.contains(name) && names.len() < NEAREST {
            names.push(name.clone());
        }
    }
    let mut told: Vec<String> = Vec::new();
    let mut quoted: Vec<&str> = Vec::new();
    for (clause, problem) in problems {
        let mut sentence = problem.explain(clause);
        // Where a clause is told of once, everybody knows which it is.
        let place = format!(" in `{}`", explain::shown(clause));
        if quoted.contains(&clause.as_str()) {
            sentence = sentence.replacen(&place, "", 1);
        } else if sentence.contains(&place) || *problem == Problem::NotUnderstood {
            quoted.push(clause);
        }
        if *problem == Problem::NotUnderstood {
            sentence.push_str(if names.is_empty() {
                " (`faber tools list` shows what there is)"
            } else {
                ", as in the nearest tools' names"
            });
        }
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    let more = told.len().saturating_sub(PROBLEMS);
    told.truncate(PROBLEMS);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    let mut message = told.join("; ");
    if problems.iter().any(|it| it.1 == Problem::NotUnderstood) && !names.is_empty() {
        message = format!(
            "{message} (nearest tools: {})",
            names.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
        );
    }
    PlanningError::NoPlan { message, nearest: names, notes }
}

pub(super) fn hundredths(number: f32) -> f64 {
    (f64::from(number) * 100.0).round() / 100.0
}
