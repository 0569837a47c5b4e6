//! A draft in the making: steps, what they assume, and what stands in the way.

mod account;
mod doubt;
mod fields;
mod guard;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, is_step_id_char},
};

use self::{account::hundredths, guard::Origin};
use super::{
    amount,
    broad::{self, Broad, Part, Reading},
    choose::{self, Ask, Candidate},
    clause::Clause,
    explain::{self, Problem},
    fill::{self, Assumed, Filled},
    memory::Memory,
    mood::{Moods, Taken},
    profile::{Profile, Vocabulary},
    property::Role,
    scan::Scene,
    several,
    token::Token,
};
use planner::draft::DraftStep;

/// The most tools that an error names as nearest.
const NEAREST: usize = 5;
/// The most candidates of a clause that are noted, and filled to tell them apart.
const CANDIDATES: usize = 5;
/// The most steps that clauses may list: more is not something that people write.
const STEPS: usize = 1_024;
/// Words of an order that nobody can mistake for a story.
const ORDER: usize = 5;
/// Characters that a step id keeps for its number.
const SUFFIX_LEN: usize = 8;

/// Returns the words that were used, by where they stand in the query.
fn taken(tokens: &[Token], used: &[(usize, usize)]) -> Vec<Taken> {
    let one = |(from, to): (usize, usize)| {
        let bytes = tokens.get(from)?.start..tokens.get(to.checked_sub(1)?)?.end;
        let is_number = amount::read(tokens, from).is_some_and(|it| !it.0.is_word);
        Some(Taken { bytes, is_number })
    };
    used.iter().copied().filter_map(one).collect()
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
    strange: Vec<Range<usize>>,
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
    /// The parts of the query of which steps were made, and whether each begins with its verb.
    passages: Vec<(Range<usize>, bool)>,
    /// What each step was made of.
    origins: Vec<Origin>,
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
            passages: Vec::new(),
            origins: Vec::new(),
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
            strange: Vec::new(),
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
        self.strange.extend(clause.bytes().filter(|_| is_short && chosen.is_err()));
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
        self.passages.push((clause.bytes().unwrap_or_default(), clause.has_verb));
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
        let filled = self.with_fields(clause, profile, filled);
        let id = self.free_id(&profile.name);
        self.tools.push(tool);
        self.origins.push(Origin {
            passage: self.passages.len().saturating_sub(1),
            assumed: filled.assumed.iter().map(|it| it.parameter.clone()).collect(),
            taken: filled.taken.clone(),
        });
        let at = self.steps.len();
        let text = explain::shown(clause.text(self.query));
        if !filled.problems.is_empty() {
            self.nearest.push(tool);
        }
        let refused = clause.bytes().and_then(|it| self.moods.against(profile, &it, &filled.taken));
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
        self.passages.push((clause.bytes().unwrap_or_default(), true));
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
            let taken = taken(&clause.tokens, &reading.used);
            let filled = Filled { ignored, taken, ..self.filled(part.tool, reading) };
            self.step(&clause, part.tool, filled, &waits);
        }
    }

    /// Adds what no call of the parts answers.
    pub(super) fn unanswered(&mut self, words: String) {
        self.problems.push((words.clone(), Problem::Leftover { words }));
    }

    /// Returns the tools of the steps.
    pub(super) fn called(&self) -> Vec<&'a Profile> {
        self.tools.iter().map(|it| &self.profiles[*it]).collect()
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
            taken: Vec::new(),
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
}
