//! A draft in the making: steps, what they assume, and what stands in the way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use shared::{
    diagnostic::Diagnostic,
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, is_step_id_char},
};

use super::{
    broad::{self, Broad, Part, Reading},
    choose::{self, Ask, Candidate},
    clause::Clause,
    explain::{self, Problem},
    fill::{self, Assumed, Filled},
    memory::Memory,
    mood::Moods,
    profile::{Profile, Vocabulary},
    property::Role,
    scan::{self, Scene},
    several,
    token::Kind,
    words::{self, Family},
};
use crate::{
    Note, PlanningError, Proposal,
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
/// How sure what was said with the tool's own words is.
const SAID: f32 = 0.9;
/// How sure what nobody said is.
const ASSUMED: f32 = 0.5;

/// Words of an order that nobody can mistake for a story.
const ORDER: usize = 5;
/// How much of what a query says a plan must explain that only looks.
const EXPLAINED: f32 = 0.25;
/// The same, where the calls take nothing or do something.
const WHOLLY: f32 = 0.6;
/// How sure each call must be that does something.
const CAREFUL: f32 = 0.4;

/// Returns whether no text begins or ends with a word that belongs to the sentence around it.
fn is_clean(value: &Value) -> bool {
    match value {
        Value::String(text) if !text.starts_with("{{") => {
            let is_tie = |it: &str| {
                words::is_preposition(it)
                    || matches!(it, "and" | "or" | "which" | "," | "the" | "a")
            };
            let mut said = text.split_whitespace();
            let (first, last) = (said.next().unwrap_or_default(), said.next_back());
            (first == "about" || !is_tie(first)) && !last.is_some_and(is_tie)
        }
        Value::Array(items) => items.iter().all(is_clean),
        Value::Object(fields) => fields.values().all(is_clean),
        _ => true,
    }
}

fn hundredths(number: f32) -> f64 {
    (f64::from(number) * 100.0).round() / 100.0
}

/// A draft in the making.
pub(super) struct Planning<'a> {
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
    /// Short clauses that begin with a word that no tool has: orders that nobody understands.
    strange: usize,
    /// The verbs of the clauses.
    verbs: Vec<String>,
    /// How sure the least sure step is.
    confidence: f32,
    /// What the query says that is no order.
    moods: &'a Moods,
    /// The tools of the steps.
    tools: Vec<usize>,
    ids: BTreeSet<String>,
    /// The number that the next step of a name may have.
    numbers: BTreeMap<String, usize>,
    /// Whether a text that is one thing was filled with what reads like several.
    has_listed: bool,
    /// What the evidence came to, where it was not enough.
    declined: Option<Value>,
}

impl<'a> Planning<'a> {
    /// Begins a draft.
    pub(super) fn new(
        query: &'a str,
        profiles: &'a [Profile],
        vocabulary: &'a Vocabulary,
        moods: &'a Moods,
    ) -> Self {
        Self {
            moods,
            tools: Vec::new(),
            ids: BTreeSet::new(),
            numbers: BTreeMap::new(),
            has_listed: false,
            declined: None,
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
            strange: 0,
            verbs: Vec::new(),
            confidence: 1.0,
        }
    }

    /// Adds the steps that a clause asks for.
    pub(super) fn clause(&mut self, clause: Clause) {
        let text = explain::shown(clause.text(self.query));
        let ask = Ask::read(&clause, self.before.as_ref(), self.vocabulary, &self.memory);
        self.verbs.extend(ask.verb.clone().filter(|_| clause.has_verb));
        let candidates = choose::candidates(&ask, self.profiles);
        self.note(&text, &candidates);
        let chosen = self.choose(&clause, &ask, &candidates);
        let is_short = clause.tokens.len() <= ORDER && ask.verb.is_some() && !clause.has_verb;
        self.strange += usize::from(is_short && chosen.is_err());
        match chosen {
            Ok(tool) => self.steps_of(clause, &ask, tool),
            Err(problem) => {
                let nearest = candidates.iter().map(|it| it.at).chain(choose::nearest(
                    &clause,
                    self.profiles,
                    NEAREST,
                ));
                self.nearest.extend(nearest.take(NEAREST));
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
        let text = explain::shown(clause.text(self.query));
        let Some(clauses) = several::expand(clause, ask, &self.profiles[tool]) else {
            self.problems.push((text, Problem::TooMany));
            return;
        };
        for clause in clauses {
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
        self.tools.push(tool);
        let at = self.steps.len();
        let text = explain::shown(clause.text(self.query));
        if !filled.problems.is_empty() {
            self.nearest.push(tool);
        }
        let refused = clause.bytes().and_then(|it| self.moods.against(profile, &it));
        let problems = refused.into_iter().chain(filled.problems.iter().cloned());
        self.problems.extend(problems.map(|it| (text.clone(), it)));
        self.note_step(&id, &filled);
        self.has_listed |= self.is_listed(clause, tool, &filled);
        if let Some(words) = self.run_on(clause, tool, &filled) {
            self.problems.push((text.clone(), Problem::Leftover { words }));
        }
        for it in filled.assumed {
            let path = format!("tools[{at}].parameters.{}", it.parameter);
            let value = it.value.as_str().map_or_else(|| it.value.to_string(), str::to_owned);
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

    /// Returns a text for a tool that acts into which more ran than its value: a code and what comes
    /// behind it, a day, or what is to be done next.
    fn run_on(&self, clause: &Clause, tool: usize, filled: &Filled) -> Option<String> {
        let profile = &self.profiles[tool];
        if !profile.acts() {
            return None;
        }
        let texts = profile.properties.iter().filter(|it| it.role == Role::Text);
        let is_quoted =
            |text: &str| clause.tokens.iter().any(|it| it.kind == Kind::Quoted && it.value == text);
        let is_over = |text: &&str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let is_code = words.first().is_some_and(|it| {
                it.bytes().any(|it| it.is_ascii_digit())
                    && it.bytes().any(|it| it.is_ascii_alphabetic())
            });
            let is_more = |it: &&str| *it == "then" || scan::words_for_days(&it.to_lowercase());
            words.len() > 1 && (is_code || words.iter().any(is_more))
        };
        texts
            .filter_map(|it| filled.parameters.get(&it.name)?.as_str())
            .filter(|it| !it.starts_with("{{") && !is_quoted(it))
            .find(is_over)
            .map(str::to_owned)
    }

    /// Returns whether a text of one thing reads like several: `Paris, London and Berlin`.
    fn is_listed(&self, clause: &Clause, tool: usize, filled: &Filled) -> bool {
        let is_quoted =
            |text: &str| clause.tokens.iter().any(|it| it.kind == Kind::Quoted && it.value == text);
        let texts = self.profiles[tool].properties.iter().filter(|it| it.role == Role::Text);
        texts
            .filter_map(|it| filled.parameters.get(&it.name)?.as_str())
            .filter(|it| !it.starts_with("{{") && !is_quoted(it))
            .any(|text| {
                let items: Vec<&str> = text
                    .split([',', '&'])
                    .flat_map(|it| it.split(" and "))
                    .map(str::trim)
                    .collect();
                let is_name = |it: &&str| it.starts_with(char::is_uppercase);
                items.len() > 1
                    && items.iter().all(|it| !it.is_empty())
                    && (items.iter().all(is_name) || !items.iter().any(is_name))
            })
    }

    /// Notes how sure each parameter of a step is, and what is missing.
    fn note_step(&mut self, id: &str, filled: &Filled) {
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

    /// Returns whether grammar alone says what to do, or certainly says that it cannot be done.
    pub(super) fn is_certain(&self) -> bool {
        let is_plan = self.problems.is_empty()
            && !self.warnings.iter().any(|it| it.code == "plan.ignored_words")
            && self.steps.iter().all(|it| it.1.parameters.as_ref().is_none_or(is_clean))
            && !self.has_listed;
        is_plan || self.is_final()
    }

    /// Returns whether other ways of reading the query are of no use.
    pub(super) fn is_final(&self) -> bool {
        let changes =
            |it: &(String, DraftStep)| it.1.name.as_ref().is_some_and(|it| self.changes(it));
        self.problems.iter().any(|it| it.1.is_final()) || self.steps.iter().any(changes)
    }

    /// Returns whether a tool changes or ends what exists: nothing to do on a guess.
    fn changes(&self, name: &str) -> bool {
        let tool = self.profiles.iter().find(|it| it.name == name);
        tool.is_some_and(|it| {
            matches!(it.family, Some(Family::Update | Family::Delete)) && it.has_references()
        })
    }

    /// Adds the steps of a part that was read by what its words may be worth.
    pub(super) fn part(&mut self, broad: &Broad<'_>, part: &Part) {
        let clause =
            Clause { tokens: broad.tokens[part.from..part.to].to_vec(), ..Clause::default() };
        let text = explain::shown(clause.text(self.query));
        let scored: Vec<Value> = part
            .scores
            .iter()
            .take(CANDIDATES)
            .map(|(tool, score)| json!({ "tool": self.profiles[*tool].name, "score": hundredths(*score) }))
            .collect();
        self.clauses.push(json!(text));
        self.candidates.push(json!({ "clause": text, "tools": scored }));
        let waits = Vec::new();
        let mut left_over = broad.left_over(part);
        if self.profiles[part.tool].acts() {
            let problem = |words| (text.clone(), Problem::Leftover { words });
            self.problems.extend(std::mem::take(&mut left_over).into_iter().map(problem));
        }
        for reading in &part.calls {
            if self.steps.len() >= STEPS {
                self.problems.push((text, Problem::TooMany));
                return;
            }
            let mut reading = reading.clone();
            if !self.steps.is_empty() && broad.points_back(part.from, part.to) {
                broad::recall(&mut reading, &self.profiles[part.tool].frame().slots, &self.memory);
            }
            self.confidence = self.confidence.min(reading.confidence);
            let ignored = std::mem::take(&mut left_over);
            let filled = Filled { ignored, ..self.filled(part.tool, reading) };
            self.step(&clause, part.tool, filled, &waits);
        }
    }

    /// Returns why a plan that was made of what words may be worth is none to offer, if it is not.
    pub(super) fn doubt(
        &self,
        broad: &Broad<'_>,
        parts: &[Part],
        strict: &Self,
    ) -> Option<&'static str> {
        let acts = parts.iter().any(|it| self.profiles[it.tool].acts());
        let is_told = self.steps.iter().all(|it| {
            it.1.parameters.as_ref().and_then(Value::as_object).is_some_and(|it| !it.is_empty())
        });
        let sure = if acts { CAREFUL } else { broad::CONFIDENCE };
        let needed = if is_told && !acts { EXPLAINED } else { WHOLLY };
        let calls: usize = parts.iter().map(|it| it.calls.len()).sum();
        if self.steps.is_empty() {
            return Some("no tool has words of the query");
        }
        if !self.problems.is_empty() {
            return Some("something is missing or left over");
        }
        if strict.strange > 0 && calls <= strict.steps.len() {
            return Some("an order is not understood");
        }
        if !parts.iter().all(|it| self.is_safe(broad, it, parts, strict)) {
            return Some("a tool that makes or changes things is not ordered by its own verb");
        }
        if self.confidence < sure {
            return Some("a parameter is not sure enough");
        }
        (broad.explained(parts) < needed).then_some("too little of the query is explained")
    }

    /// Returns whether a part may be carried out on evidence.
    ///
    /// What makes or changes things that refer to each other is done by grammar or not at all, and
    /// an order that is given twice is no order for one call.
    fn is_safe(&self, broad: &Broad<'_>, part: &Part, parts: &[Part], strict: &Self) -> bool {
        let profile = &self.profiles[part.tool];
        let asked = strict.verbs.iter().filter(|it| profile.verbs.first() == Some(it)).count();
        let calls = parts.iter().filter(|it| it.tool == part.tool).map(|it| it.calls.len());
        let makes = matches!(
            profile.family,
            Some(Family::Create | Family::Update | Family::Delete | Family::Send)
        );
        // A call that takes nothing needs a word that asks for it.
        let is_asked = |verb: &String| {
            profile.verbs.contains(verb)
                || profile.family.is_some_and(|it| words::families(verb).contains(&it))
        };
        let is_told = part.calls.iter().all(|it| !it.parameters.is_empty());
        (is_told || strict.verbs.iter().any(is_asked))
            && !(makes && profile.has_references())
            && (!profile.acts() || broad.is_ordered(part))
            && asked <= calls.sum::<usize>().max(1)
    }

    /// Adds what no call of the parts answers.
    pub(super) fn unanswered(&mut self, words: String) {
        self.problems.push((words.clone(), Problem::Leftover { words }));
    }

    /// Returns whether what was said is no order for a tool that acts.
    pub(super) fn is_refused(&self) -> bool {
        self.problems.iter().any(|it| matches!(it.1, Problem::NoOrder { .. }))
    }

    /// Returns the tools of the steps.
    pub(super) fn called(&self) -> Vec<&'a Profile> {
        self.tools.iter().map(|it| &self.profiles[*it]).collect()
    }

    /// Keeps what the evidence came to, and why that is not enough.
    pub(super) fn decline(&mut self, other: &Self, why: &str) {
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
    pub(super) fn leave_out(&mut self, said: &str) {
        let message = format!("`{said}` denies something and is left out");
        let help = "say only what is wanted, or put what is only text between quotation marks";
        self.warnings
            .push(Diagnostic::warning("plan.ignored_words", "tools", message).with_help(help));
    }

    fn filled(&self, tool: usize, reading: Reading) -> Filled {
        let profile = &self.profiles[tool];
        let slots = &profile.frame().slots;
        let missing = reading.missing.iter().map(|at| {
            let property = &slots[*at].property;
            let hint = explain::hint(profile, property);
            let parameter = slots[*at].path.join(".");
            Problem::Missing { tool: profile.name.clone(), parameter, hint }
        });
        let problems = missing.collect();
        let assumed = reading.assumed.iter().map(|name| {
            let slot = slots.iter().find(|it| it.path.join(".") == *name);
            let help = slot.map(|it| explain::hint(profile, &it.property)).unwrap_or_default();
            let pointer = format!("/{}", name.replace('.', "/"));
            let parameters = Value::Object(reading.parameters.clone());
            let value = parameters.pointer(&pointer).cloned().unwrap_or_default();
            Assumed { parameter: name.clone(), value, help }
        });
        let assumed = assumed.collect();
        let links = self.memory.steps_in(reading.parameters.values());
        let named = slots.iter().find(|it| matches!(it.property.role, Role::Name | Role::Title));
        let name = named
            .and_then(|it| reading.parameters.get(it.path.first()?)?.as_str().map(str::to_owned));
        Filled {
            parameters: reading.parameters,
            links,
            name,
            problems,
            assumed,
            ignored: Vec::new(),
            sure: reading.sure,
        }
    }

    /// Returns the id that a step of a tool gets: the tool's name, else `name_2`, `name_3`, ….
    fn free_id(&mut self, name: &str) -> String {
        let base: String = name
            .chars()
            .take(STEP_ID_LEN - SUFFIX_LEN)
            .map(|it| if is_step_id_char(it) { it } else { '_' })
            .collect();
        let number = self.numbers.entry(base.clone()).or_insert(1);
        loop {
            let id = if *number == 1 { base.clone() } else { format!("{base}_{number}") };
            *number += 1;
            if !RESERVED_STEP_IDS.contains(&id.as_str()) && self.ids.insert(id.clone()) {
                return id;
            }
        }
    }

    /// Returns the draft, or why there is none.
    pub(super) fn finish(self) -> Result<Proposal, PlanningError> {
        let mut notes = vec![
            Note { kind: "clauses", content: Value::Array(self.clauses) },
            Note { kind: "candidates", content: Value::Array(self.candidates) },
        ];
        if !self.assumptions.is_empty() {
            notes.push(Note { kind: "assumptions", content: Value::Array(self.assumptions) });
        }
        if let Some(content) = self.declined {
            notes.push(Note { kind: "evidence", content });
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
        Ok(Proposal { draft, notes, warnings: self.warnings })
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
    for (clause, problem) in problems {
        let mut sentence = problem.explain(clause);
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
