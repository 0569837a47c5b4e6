//! Plans without a model: by the words of a query and of the tools' names, descriptions and
//! schemas, the same way every time.
//!
//! A query is cut into clauses ([`clause`]); each clause's tool is chosen by words ([`choose`]);
//! the tool's parameters are filled from the clause ([`scan`], [`cue`], [`value`], [`fill`]), with
//! what earlier clauses made where it speaks of that ([`memory`]). Whatever is not understood is
//! said ([`explain`]); what is derived by a rule is said too, as a warning.

mod choose;
mod clause;
mod cue;
mod derive;
mod explain;
mod fill;
mod memory;
mod profile;
mod property;
mod reference;
mod scan;
mod several;
#[cfg(test)]
mod tests;
mod token;
mod value;
mod words;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, is_step_id_char},
    limits,
};

use self::{
    choose::{Ask, Candidate},
    clause::Clause,
    explain::Problem,
    fill::Filled,
    memory::Memory,
    profile::{Profile, Vocabulary},
    scan::Scene,
};
use crate::{
    Note, Planner, PlanningError, Proposal,
    catalog::Catalog,
    draft::{Draft, DraftStep},
};

/// The most tools that an error names as nearest.
const NEAREST: usize = 5;
/// The most candidates of a clause that are noted, and filled to tell them apart.
const CANDIDATES: usize = 5;
/// The most steps that clauses may list: more is not something that people write.
const STEPS: usize = 1_024;
/// Characters that a step id keeps for its number.
const SUFFIX_LEN: usize = 8;
/// The most problems that a message tells.
const PROBLEMS: usize = 8;

/// The planner that needs no model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offline;

#[async_trait]
impl Planner for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    async fn propose(&self, query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
        propose(query, catalog)
    }
}

/// Proposes a draft for `query` that uses tools of `catalog`, or says why not.
pub fn propose(query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
    if query.len() > limits::QUERY_BYTES {
        return refuse(format!(
            "the query has {} bytes, but {} is the most: say it in fewer words",
            query.len(),
            limits::QUERY_BYTES
        ));
    }
    let Read { profiles, vocabulary } = catalog.read(Read::of);
    if profiles.is_empty() {
        return refuse(
            "there are no tools to plan with: register a toolset, or switch one on".to_owned(),
        );
    }
    let clauses = clause::clauses(&token::tokens(query), vocabulary);
    if clauses.is_empty() {
        return refuse(
            "the query asks for nothing: say what to do, such as `list all …` or `create …`"
                .to_owned(),
        );
    }
    if clauses.len() > clause::CLAUSES {
        return refuse(format!(
            "the query has {} clauses, but {} is the most: split it",
            clauses.len(),
            clause::CLAUSES
        ));
    }
    let mut planning = Planning::new(query, profiles, vocabulary);
    for clause in clauses {
        planning.clause(clause);
    }
    planning.finish()
}

fn refuse(message: String) -> Result<Proposal, PlanningError> {
    Err(PlanningError::NoPlan { message, nearest: Vec::new(), notes: Vec::new() })
}

/// What this planner makes of the tools of a catalog: much work where they are thousands, and the
/// same for every query.
#[derive(Debug)]
pub(crate) struct Read {
    profiles: Vec<Profile>,
    vocabulary: Vocabulary,
}

impl Read {
    fn of(catalog: &Catalog) -> Self {
        let profiles = profiles(catalog);
        let vocabulary = Vocabulary::of(&profiles);
        Self { profiles, vocabulary }
    }
}

/// Reads every tool that can be planned; a plain name is used where it means that very tool.
fn profiles(catalog: &Catalog) -> Vec<Profile> {
    let is_plain = |tool: &shared::tool::ToolDefinition| {
        catalog.find(tool.name.as_str()).is_some_and(|it| it.definition.set == tool.set)
    };
    catalog
        .plannable()
        .map(|tool| {
            let name = if is_plain(tool) {
                tool.name.as_str().to_owned()
            } else {
                tool.qualified().as_str().to_owned()
            };
            Profile::read(tool, name)
        })
        .collect()
}

/// A draft in the making.
struct Planning<'a> {
    query: &'a str,
    profiles: &'a [Profile],
    vocabulary: &'a Vocabulary,
    memory: Memory,
    before: Option<Ask>,
    steps: Vec<(String, DraftStep)>,
    /// The steps of the clause before, for `then`.
    previous: Vec<String>,
    warnings: Vec<Diagnostic>,
    problems: Vec<(String, Problem)>,
    nearest: Vec<usize>,
    clauses: Vec<Value>,
    candidates: Vec<Value>,
    assumptions: Vec<Value>,
}

impl<'a> Planning<'a> {
    fn new(query: &'a str, profiles: &'a [Profile], vocabulary: &'a Vocabulary) -> Self {
        Self {
            query,
            profiles,
            vocabulary,
            memory: Memory::new(profiles),
            before: None,
            steps: Vec::new(),
            previous: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
            nearest: Vec::new(),
            clauses: Vec::new(),
            candidates: Vec::new(),
            assumptions: Vec::new(),
        }
    }

    fn clause(&mut self, clause: Clause) {
        let text = explain::shown(clause.text(self.query));
        let ask = Ask::read(&clause, self.before.as_ref(), self.vocabulary, &self.memory);
        let candidates = choose::candidates(&ask, self.profiles);
        self.note(&text, &candidates);
        let chosen = self.choose(&clause, &ask, &candidates);
        match chosen {
            Ok(tool) => self.steps_of(clause, &ask, tool),
            Err(problem) => {
                let nearest = candidates.iter().map(|it| it.at).chain(choose::nearest(
                    &clause,
                    self.profiles,
                    NEAREST,
                ));
                self.nearest.extend(nearest.chain(0..self.profiles.len()).take(NEAREST));
                self.problems.push((text, problem));
            }
        }
        self.before = Some(ask);
    }

    fn note(&mut self, text: &str, candidates: &[Candidate]) {
        let scored: Vec<Value> = candidates
            .iter()
            .take(CANDIDATES)
            .map(|it| json!({ "tool": self.profiles[it.at].name, "score": it.score }))
            .collect();
        self.clauses.push(json!(text));
        self.candidates.push(json!({ "clause": text, "tools": scored }));
    }

    /// Chooses among the tools that fit; those that words do not tell apart, by what can be filled.
    fn choose(
        &self,
        clause: &Clause,
        ask: &Ask,
        candidates: &[Candidate],
    ) -> Result<usize, Problem> {
        let Some(best) = candidates.first() else { return Err(Problem::NotUnderstood) };
        let close: Vec<&Candidate> = candidates
            .iter()
            .take(CANDIDATES)
            .filter(|it| best.score - it.score < choose::MARGIN)
            .collect();
        if close.len() < 2 {
            return Ok(best.at);
        }
        let rated: Vec<(usize, usize)> = close
            .iter()
            .map(|it| {
                let filled = self.fill(clause, ask, it.at);
                (
                    filled.problems.len() * 16 + filled.ignored.len() * 4 + filled.assumed.len(),
                    it.at,
                )
            })
            .collect();
        let least = rated.iter().map(|it| it.0).min().unwrap_or(0);
        let mut fitting = rated.iter().filter(|it| it.0 == least).map(|it| it.1);
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Ok(only),
            // The same tool in two sets: the earlier set's, as its plain name means.
            (Some(one), Some(other))
                if self.profiles[one].tool.name == self.profiles[other].tool.name =>
            {
                Ok(one)
            }
            _ => Err(Problem::Ambiguous {
                tools: close.iter().map(|it| self.profiles[it.at].name.clone()).collect(),
            }),
        }
    }

    fn fill(&self, clause: &Clause, ask: &Ask, tool: usize) -> Filled {
        let scene = Scene {
            query: self.query,
            tokens: &clause.tokens,
            profile: &self.profiles[tool],
            memory: &self.memory,
            vocabulary: self.vocabulary,
        };
        fill::fill(scene, ask)
    }

    fn steps_of(&mut self, clause: Clause, ask: &Ask, tool: usize) {
        let is_sequel = clause.is_sequel;
        let waits = if is_sequel { std::mem::take(&mut self.previous) } else { Vec::new() };
        let mut made = Vec::new();
        for clause in several::expand(clause, ask, &self.profiles[tool]) {
            if self.steps.len() >= STEPS {
                self.problems.push((explain::shown(clause.text(self.query)), Problem::TooMany));
                break;
            }
            let filled = self.fill(&clause, ask, tool);
            made.push(self.step(&clause, tool, filled, &waits));
        }
        self.previous = made;
    }

    /// Adds a step, and returns its id.
    fn step(&mut self, clause: &Clause, tool: usize, filled: Filled, waits: &[String]) -> String {
        let profile = &self.profiles[tool];
        let id = self.free_id(&profile.name);
        let at = self.steps.len();
        let text = explain::shown(clause.text(self.query));
        if !filled.problems.is_empty() {
            self.nearest.push(tool);
        }
        self.problems.extend(filled.problems.into_iter().map(|it| (text.clone(), it)));
        for it in filled.assumed {
            let path = format!("tools[{at}].parameters.{}", it.parameter);
            let value = it.value.as_str().unwrap_or_default();
            let message = format!("`{}` was not given; assumed `{value}`", it.parameter);
            self.assumptions.push(json!({ "path": path, "value": it.value, "clause": text }));
            self.warnings.push(
                Diagnostic::warning("plan.assumed_parameter", path, message).with_help(it.help),
            );
        }
        for words in filled.ignored {
            let message =
                format!("`{}` was not understood and is left out", explain::shown(&words));
            let help = "say it with the words of the tool's parameters, or leave it out";
            self.warnings.push(
                Diagnostic::warning("plan.ignored_words", format!("tools[{at}]"), message)
                    .with_help(help),
            );
        }
        let waits: Vec<&String> = waits.iter().filter(|_| filled.links.is_empty()).collect();
        let depends_on = match waits.as_slice() {
            [] => None,
            [one] => Some(json!(one)),
            many => Some(json!(many)),
        };
        self.memory.hear(&filled.parameters);
        self.memory.remember(profile, &id, filled.name, filled.links);
        let step = DraftStep {
            name: Some(profile.name.clone()),
            parameters: Some(Value::Object(filled.parameters)),
            depends_on,
            ..DraftStep::default()
        };
        self.steps.push((id.clone(), step));
        id
    }

    /// Returns the id that a step of a tool gets: the tool's name, else `name_2`, `name_3`, ….
    fn free_id(&self, name: &str) -> String {
        let base: String = name
            .chars()
            .take(STEP_ID_LEN - SUFFIX_LEN)
            .map(|it| if is_step_id_char(it) { it } else { '_' })
            .collect();
        let is_free = |id: &String| {
            !RESERVED_STEP_IDS.contains(&id.as_str()) && self.steps.iter().all(|it| it.0 != *id)
        };
        let numbered = (2..=self.steps.len() + 2).map(|it| format!("{base}_{it}"));
        std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base)
    }

    fn finish(self) -> Result<Proposal, PlanningError> {
        let mut notes = vec![
            Note { kind: "clauses", content: Value::Array(self.clauses) },
            Note { kind: "candidates", content: Value::Array(self.candidates) },
        ];
        if !self.assumptions.is_empty() {
            notes.push(Note { kind: "assumptions", content: Value::Array(self.assumptions) });
        }
        if !self.problems.is_empty() {
            return Err(no_plan(&self.problems, &self.nearest, self.profiles, notes));
        }
        let names: Vec<Option<String>> = self.steps.iter().map(|(_, it)| it.name.clone()).collect();
        let tools = self.steps.into_iter().map(|(id, step)| {
            let is_repeated = names.iter().filter(|it| **it == step.name).count() > 1;
            let needs_id = is_repeated || step.name.as_ref() != Some(&id);
            DraftStep { id: needs_id.then_some(id), ..step }
        });
        let draft = Draft {
            query: Some(self.query.to_owned()),
            tools: tools.collect(),
            ..Draft::default()
        };
        Ok(Proposal { draft, notes, warnings: self.warnings })
    }
}

fn no_plan(
    problems: &[(String, Problem)],
    nearest: &[usize],
    profiles: &[Profile],
    notes: Vec<Note>,
) -> PlanningError {
    let mut told: Vec<String> = Vec::new();
    for (clause, problem) in problems {
        let sentence = problem.explain(clause);
        if !told.contains(&sentence) {
            told.push(sentence);
        }
    }
    let more = told.len().saturating_sub(PROBLEMS);
    told.truncate(PROBLEMS);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    let mut names: Vec<String> = Vec::new();
    for at in nearest {
        let name = &profiles[*at].name;
        if !names.contains(name) && names.len() < NEAREST {
            names.push(name.clone());
        }
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
