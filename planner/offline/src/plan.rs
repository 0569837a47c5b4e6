//! From clauses to steps: the tool of each clause, loops, conditions and doubts.

use std::collections::{BTreeMap, BTreeSet};

use planner::draft::DraftStep;
use serde_json::{Map, Value, json};
use shared::{
    diagnostic::Diagnostic,
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, is_step_id_char},
};

use super::{
    clause::{Clause, Condition, Mood, Reader, Verb},
    condition,
    fill::{Filling, Reading, Scene, fill},
    lexicon::Lexicon,
    memory::{Done, Memory},
    refusal::Refusal,
    token::{Kind, Token, stem},
    tool::{SlotKind, Tool},
    weights::Weights,
};

/// Tools whose slots are tried for a clause.
const TRIED: usize = 20;
/// The most words and marks of a clause. A quotation is one.
const CLAUSE_TOKENS: usize = 256;
/// The most steps of a plan.
const STEPS: usize = 64;
/// Letters that the number in a step id may take.
const SUFFIX_LEN: usize = 4;

/// Returns whether a concept only reads: a verb of one asks for tools of the others, too.
fn is_read(concept: &str) -> bool {
    matches!(concept, "get" | "list" | "search" | "tree")
}

/// The steps of a plan, and what is in doubt.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) steps: Vec<DraftStep>,
    pub(super) doubts: Vec<Diagnostic>,
    /// Scores of the tools that were considered, by clause.
    pub(super) candidates: Vec<Value>,
    pub(super) clauses: Vec<String>,
}

/// A query, and what it is planned with.
pub(super) struct Planning<'a> {
    pub(super) query: &'a str,
    pub(super) lexicon: &'a Lexicon,
    pub(super) tools: &'a [Tool],
    pub(super) weights: &'a Weights,
    pub(super) memory: Memory,
    pub(super) planned: Planned,
    /// The places, in the plan, of the steps of the last clause.
    last: Vec<usize>,
    /// The last reading, for clauses without a verb.
    previous: Option<(Clause, usize)>,
    numbers: BTreeMap<String, usize>,
    /// The nouns of all tools.
    nouns: BTreeSet<String>,
    /// The steps that give values to the next step.
    linked: Vec<usize>,
}

impl<'a> Planning<'a> {
    pub(super) fn new(
        query: &'a str,
        lexicon: &'a Lexicon,
        tools: &'a [Tool],
        weights: &'a Weights,
    ) -> Self {
        Self {
            query,
            lexicon,
            tools,
            weights,
            memory: Memory::default(),
            planned: Planned::default(),
            last: Vec::new(),
            previous: None,
            numbers: BTreeMap::new(),
            nouns: tools.iter().flat_map(|tool| tool.nouns.iter().cloned()).collect(),
            linked: Vec::new(),
        }
    }

    /// Plans all clauses of a query.
    pub(super) fn plan(mut self, tokens: &[Token]) -> Result<Planned, Refusal> {
        let is_tool_verb = |word: &str| self.tools.iter().any(|tool| tool.verb == word);
        let is_tool_noun = |word: &str| {
            self.tools.iter().any(|tool| {
                tool.has_noun(word, self.lexicon) || self.lexicon.is_compound_of(word, &tool.nouns)
            })
        };
        let reader = Reader {
            lexicon: self.lexicon,
            is_tool_verb: &is_tool_verb,
            is_tool_noun: &is_tool_noun,
        };
        let clauses = reader.read(tokens);
        let clauses = self.rewrite_copies(clauses);
        let mut refused: Option<Refusal> = None;
        let mut left: Vec<String> = Vec::new();
        for clause in clauses {
            let said = self.words(&clause.tokens);
            match clause.mood {
                Mood::Order | Mood::Question | Mood::Fragment => {}
                Mood::Condition => {
                    refused.get_or_insert(Refusal::Condition { said });
                    continue;
                }
                mood => {
                    let is_fatal = mood != Mood::Reported && mood != Mood::Denied;
                    let refusal = Refusal::Mood { mood, said };
                    if is_fatal {
                        return Err(refusal);
                    }
                    refused.get_or_insert(refusal);
                    continue;
                }
            }
            if clause.is_otherwise && clause.tokens.len() <= 3 {
                continue;
            }
            if clause.mood == Mood::Fragment && !self.is_about_tools(&clause) {
                left.push(said);
                continue;
            }
            self.planned.clauses.push(said.clone());
            let has_value =
                clause.tokens.iter().any(|token| !matches!(token.kind, Kind::Word | Kind::Mark));
            match self.plan_clause(&clause) {
                // `… and tell me its title`: the output has it.
                Err(Refusal::NothingFits { .. } | Refusal::Missing { .. })
                    if self.is_answered(&clause) => {}
                // Small talk before an order.
                Err(Refusal::NothingFits { .. }) if clause.mood == Mood::Fragment && !has_value => {
                    left.push(said)
                }
                planned => planned?,
            }
            if self.planned.steps.len() > STEPS {
                return Err(Refusal::TooMany);
            }
        }
        if self.planned.steps.is_empty() {
            let said = left.first().cloned().unwrap_or_else(|| self.query.to_owned());
            return Err(refused.unwrap_or(Refusal::NothingFits { said }));
        }
        self.settle_ids();
        Ok(self.planned)
    }

    /// Returns whether a clause only asks for a field of an earlier step.
    fn is_answered(&self, clause: &Clause) -> bool {
        let verb = clause.verb.as_ref();
        let is_read = clause.mood == Mood::Question
            || verb.is_some_and(|verb| {
                self.lexicon.concepts(&verb.stem).iter().any(|concept| concept == "get")
            });
        let has_value =
            clause.tokens.iter().any(|token| !matches!(token.kind, Kind::Word | Kind::Mark));
        let has_pronoun = clause.tokens.iter().any(|token| self.lexicon.pronouns.has(&token.lower));
        let mut content = clause.tokens.iter().enumerate().filter(|(at, token)| {
            token.kind == Kind::Word
                && !self.lexicon.fillers.has(&token.lower)
                && !verb.is_some_and(|verb| verb.places.contains(at))
        });
        is_read
            && has_pronoun
            && !has_value
            && content.all(|(_, token)| {
                token.is("number")
                    || self.memory.text(Some(&token.stem), self.tools, self.lexicon).is_some()
            })
    }

    /// Returns the words of tokens as the query has them.
    fn words(&self, tokens: &[Token]) -> String {
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) if first.start < last.end => {
                self.query[first.start..last.end].to_owned()
            }
            _ => tokens.iter().map(|token| token.value.as_str()).collect::<Vec<_>>().join(" "),
        }
    }

    fn is_about_tools(&self, clause: &Clause) -> bool {
        clause.tokens.iter().any(|token| {
            let is_noun = token.kind == Kind::Word
                && self.tools.iter().any(|tool| tool.has_noun(&token.stem, self.lexicon));
            is_noun
                || matches!(
                    token.kind,
                    Kind::Code | Kind::Path | Kind::Slug | Kind::Id | Kind::Glob | Kind::Email
                )
        })
    }

    /// Makes `copy A to B` into reading and writing, where no tool copies.
    fn rewrite_copies(&self, clauses: Vec<Clause>) -> Vec<Clause> {
        let has_copy = self
            .tools
            .iter()
            .any(|tool| self.lexicon.concepts(&tool.verb).iter().any(|concept| concept == "copi"));
        let mut rewritten = Vec::new();
        for clause in clauses {
            let concepts =
                clause.verb.as_ref().map_or(&[][..], |verb| self.lexicon.concepts(&verb.stem));
            let is_copy = concepts.iter().any(|concept| concept == "copi") && !has_copy
                || concepts.iter().any(|concept| concept == "write");
            let is_path = |token: &Token| token.kind == Kind::Path;
            let paths: Vec<usize> =
                (0..clause.tokens.len()).filter(|at| is_path(&clause.tokens[*at])).collect();
            let has_text = clause.tokens.iter().any(|token| token.kind == Kind::Quoted);
            let ([_, second], true, false) = (paths.as_slice(), is_copy, has_text) else {
                rewritten.push(clause);
                continue;
            };
            let at = (0..*second).rev().find(|at| clause.tokens[*at].is_any(&["to", "as", "into"]));
            let (Some(at), Some(verb)) = (at, &clause.verb) else {
                rewritten.push(clause);
                continue;
            };
            let word = |text: &str, near: &Token| Token {
                kind: Kind::Word,
                start: near.start,
                end: near.start,
                value: text.to_owned(),
                lower: text.to_owned(),
                stem: stem(text),
            };
            let head = |text: &str| Verb { stem: stem(text), places: vec![0] };
            let behind = verb.places.iter().max().map_or(0, |place| place + 1);
            let mut read = vec![word("read", &clause.tokens[0])];
            read.extend_from_slice(&clause.tokens[behind..at]);
            let mut write = vec![word("write", &clause.tokens[at]), word("it", &clause.tokens[at])];
            write.extend_from_slice(&clause.tokens[at..]);
            rewritten.push(Clause { tokens: read, verb: Some(head("read")), ..clause.clone() });
            rewritten.push(Clause {
                tokens: write,
                verb: Some(head("write")),
                condition: None,
                is_next: false,
                ..clause
            });
        }
        rewritten
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            query: self.query,
            lexicon: self.lexicon,
            tools: self.tools,
            memory: &self.memory,
            nouns: &self.nouns,
            is_several: self.last.len() > 1,
            weights: self.weights,
        }
    }

    /// Scores how well a clause's verb asks for a tool, and the choice that it sets.
    pub(super) fn verb_score<'b>(
        &'b self,
        clause: &'b Clause,
        tool: &Tool,
    ) -> (f32, Option<(&'b str, usize)>) {
        let weights = self.weights;
        let Some(verb) = &clause.verb else {
            if clause.mood == Mood::Question {
                let is_said = clause.tokens.iter().any(|token| token.stem == tool.verb);
                return (
                    if tool.acts {
                        0.0
                    } else {
                        weights.reads + if is_said { weights.about } else { 0.0 }
                    },
                    None,
                );
            }
            let particle = tool.verb.split(' ').nth(1);
            let is_said = particle
                .is_some_and(|particle| clause.tokens.iter().any(|token| token.is(particle)));
            let is_set = tool.verb == "set" && clause.tokens.iter().any(|token| token.is("to"));
            let score = if is_said {
                0.8 * weights.verb
            } else if is_set {
                0.5 * weights.verb
            } else if tool.acts {
                0.0
            } else {
                0.3 * weights.verb
            };
            return (score, None);
        };
        if clause.mood == Mood::Question && tool.acts {
            return (0.0, None);
        }
        let word = clause.tokens.get(verb.places[0]).map_or("", |token| token.lower.as_str());
        if verb.stem == tool.verb {
            return (weights.verb, None);
        }
        let mut best = (0.0_f32, None);
        if let Some(place) = tool.about.iter().position(|about| *about == verb.stem)
            && !verb.stem.contains(' ')
        {
            let is_first = place == 0
                || tool
                    .about
                    .get(place.wrapping_sub(1))
                    .is_some_and(|word| word == "or" || word == "and");
            let rest =
                if tool.acts || !self.lexicon.concepts(&verb.stem).is_empty() { 0.0 } else { 0.35 };
            best.0 = weights.verb * if is_first { 0.9 } else { rest };
        }
        let concepts = self.lexicon.concepts(&verb.stem);
        let own = self.lexicon.concepts(&tool.verb);
        if concepts.contains(&tool.verb) {
            best.0 = best.0.max(weights.verb * 0.8);
        } else if concepts.iter().any(|concept| is_read(concept))
            && (is_read(&tool.verb) || own.iter().any(|own| is_read(own)))
        {
            best.0 = best.0.max(weights.verb * 0.7);
        } else if own.iter().any(|own| concepts.contains(own)) {
            best.0 = best.0.max(weights.verb * 0.65);
        }
        // `read` by its description: `Get the contents …`.
        if tool.about.first().is_some_and(|about| concepts.contains(about)) {
            best.0 = best.0.max(weights.verb * 0.65);
        }
        if let Some(target) = self.lexicon.states.get(word) {
            let is_update =
                matches!(tool.verb.as_str(), "updat" | "set" | "edit" | "chang" | "merg");
            for slot in &tool.slots {
                if slot.choices.contains(target) && is_update {
                    best = (weights.verb * 0.85, Some((target.as_str(), verb.places[0])));
                } else if slot.parameter == *target
                    && (is_update || word == "invite" || word == "dim")
                {
                    best.0 = best.0.max(weights.verb * 0.8);
                }
            }
        }
        let makes = matches!(tool.verb.as_str(), "send" | "creat" | "add" | "post" | "write");
        let is_noun = tool.nouns.iter().any(|noun| {
            self.lexicon.is_same_noun(noun, &verb.stem)
                || verb.stem.len() >= 4 && noun.starts_with(&verb.stem)
        });
        if makes && is_noun && tool.acts {
            best.0 = best.0.max(weights.verb * 0.85);
        }
        best
    }

    /// Returns the readings of a clause, best first.
    pub(super) fn readings(&self, clause: &Clause, accept: &dyn Fn(&Tool) -> bool) -> Vec<Reading> {
        let scene = self.scene();
        let mut options: Vec<(usize, f32, f32, Option<(&str, usize)>)> = Vec::new();
        for (at, tool) in self.tools.iter().enumerate() {
            if !accept(tool) {
                continue;
            }
            let (verb, state) = self.verb_score(clause, tool);
            if verb <= 0.0 {
                continue;
            }
            let nouns = tool.nouns.iter().filter(|noun| {
                clause.tokens.iter().any(|token| {
                    self.lexicon.is_same_noun(noun, &token.stem)
                        || token.kind == Kind::Path && matches!(noun.as_str(), "file" | "directori")
                        || self.lexicon.is_compound_of(&token.stem, &tool.nouns)
                })
            });
            let found = u16::try_from(nouns.count()).map_or(0.0, f32::from);
            let absent = u16::try_from(tool.nouns.len()).map_or(0.0, f32::from) - found;
            options.push((at, verb, verb + self.weights.noun * found - 0.5 * absent, state));
        }
        options.sort_by(|a, b| b.2.total_cmp(&a.2));
        options.truncate(TRIED);
        let mut readings: Vec<Reading> = options
            .into_iter()
            .map(|(at, verb, _, state)| {
                let mut reading = fill(&scene, clause, at, &[], verb, state);
                if clause.verb.is_none() {
                    reading.has_verb = false;
                }
                self.inherit(&mut reading, None);
                reading
            })
            .collect();
        readings.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.tool.cmp(&b.tool)));
        readings
    }

    fn note(&mut self, clause: &Clause, readings: &[Reading]) {
        let scored: Vec<Value> = readings
            .iter()
            .take(5)
            .map(|reading| json!({ "tool": self.tools[reading.tool].name, "score": f64::from((reading.score * 100.0).round()) / 100.0 }))
            .collect();
        let said = self.words(&clause.tokens);
        self.planned.candidates.push(json!({ "clause": said, "tools": scored }));
    }

    fn plan_clause(&mut self, clause: &Clause) -> Result<(), Refusal> {
        // The candidates of a clause grow faster than its words.
        if clause.tokens.len() > CLAUSE_TOKENS {
            return Err(Refusal::TooLong { count: clause.tokens.len() });
        }
        if let Some(condition) = &clause.condition {
            return self.plan_condition(clause, condition);
        }
        if let Some(each) = &clause.each {
            return self.plan_each(clause, each);
        }
        let mut clause = clause.clone();
        self.inherit_verb(&mut clause);
        let readings = self.readings(&clause, &|_| true);
        self.note(&clause, &readings);
        let said = self.words(&clause.tokens);
        let is_noun = clause.verb.as_ref().is_some_and(|verb| {
            self.nouns.contains(&verb.stem) || self.lexicon.is_noun(&verb.stem)
        });
        let has_value =
            clause.tokens.iter().any(|token| !matches!(token.kind, Kind::Word | Kind::Mark));
        if readings.is_empty() && is_noun && has_value {
            // `order status of A-1`
            let question = Clause { verb: None, mood: Mood::Question, ..clause };
            return self.plan_clause(&question);
        }
        let Some(best) = readings.first().cloned() else {
            return Err(Refusal::NothingFits { said });
        };
        if let Some(action) = self.loop_action(&clause, &best) {
            return self.plan_loop(&clause, action);
        }
        // `every` names items that no list gives.
        let is_each = clause.tokens.iter().enumerate().any(|(at, token)| {
            let is_all = token.is_any(&["all", "everything"]) && !best.unplaced.is_empty();
            (is_all || token.is_any(&["every", "each"])) && !best.claimed[at]
        });
        if is_each && self.tools[best.tool].acts {
            return Err(Refusal::NoList { said, tool: self.tools[best.tool].order() });
        }
        // An unknown verb: `append X to Y`.
        let first = clause.tokens.iter().position(|token| !self.lexicon.fillers.has(&token.lower));
        let is_unknown = clause.mood == Mood::Fragment
            && clause.verb.is_none()
            && first.is_some_and(|at| {
                best.unplaced.contains(&at) && clause.tokens[at].kind == Kind::Word
            });
        if is_unknown && !clause.tokens[first.unwrap_or_default()].is_capitalised() {
            return Err(Refusal::NothingFits { said });
        }
        // Small talk: `New year, new folder`.
        if clause.verb.is_none() && clause.mood == Mood::Fragment && best.fillings.is_empty() {
            return Err(Refusal::NothingFits { said });
        }
        if let Some(parts) = self.split(&clause, &best) {
            for part in parts {
                self.accept(&part.0, part.1, None)?;
            }
            return Ok(());
        }
        self.accept(&clause, best, None)
    }

    /// Gives a clause without a verb or noun those of the clause before: `and the tree of /data`.
    fn inherit_verb(&self, clause: &mut Clause) {
        let has_noun = clause.tokens.iter().any(|token| {
            token.kind == Kind::Word
                && self.tools.iter().any(|tool| tool.has_noun(&token.stem, self.lexicon))
        });
        if let (Some((previous, _)), Mood::Fragment, None) =
            (&self.previous, clause.mood, &clause.verb)
        {
            if let Some(verb) = &previous.verb {
                let words: Vec<Token> = verb
                    .places
                    .iter()
                    .filter_map(|place| previous.tokens.get(*place).cloned())
                    .collect();
                let count = words.len();
                let is_particle = clause.tokens.iter().any(|token| {
                    self.tools
                        .iter()
                        .any(|tool| tool.verb.split(' ').nth(1) == Some(token.lower.as_str()))
                });
                let is_set = clause.tokens.iter().any(|token| token.is("to")) && has_noun;
                if !is_particle && !is_set {
                    clause.tokens.splice(0..0, words);
                    clause.verb =
                        Some(Verb { stem: verb.stem.clone(), places: (0..count).collect() });
                    clause.mood = previous.mood;
                }
            } else {
                clause.mood = previous.mood;
            }
        }
        // `show me what is still open`, `create one`: the noun is that of the step before.
        let one = clause.tokens.iter().position(|token| token.is("one"));
        let has_pronoun = clause
            .tokens
            .iter()
            .any(|token| self.lexicon.pronouns.has(&token.lower) && !token.is("one"));
        let has_value =
            clause.tokens.iter().any(|token| !matches!(token.kind, Kind::Word | Kind::Mark));
        if !has_noun && (one.is_some() || !has_pronoun && !has_value) {
            let noun =
                self.memory.steps.last().and_then(|step| self.tools[step.tool].nouns.first());
            let at = one.unwrap_or(clause.tokens.len());
            let near = clause.tokens.last().map_or(0, |token| token.end);
            if let Some(noun) = noun {
                let token = Token {
                    kind: Kind::Word,
                    start: near,
                    end: near,
                    value: noun.clone(),
                    lower: noun.clone(),
                    stem: noun.clone(),
                };
                match one {
                    Some(_) => {
                        clause.tokens[at] = Token {
                            start: clause.tokens[at].start,
                            end: clause.tokens[at].end,
                            ..token
                        }
                    }
                    None => clause.tokens.push(token),
                }
            }
        }
    }

    /// Splits `move A to B and C to D` into two calls, where one call leaves values over.
    fn split(&self, clause: &Clause, best: &Reading) -> Option<Vec<(Clause, Reading)>> {
        let is_word = |at: usize| {
            let token = &clause.tokens[at];
            token.kind == Kind::Word
                && !self.lexicon.fillers.has(&token.lower)
                && !self.tools[best.tool].has_noun(&token.stem, self.lexicon)
        };
        let verb = |at: &usize| clause.verb.as_ref().is_some_and(|verb| verb.places.contains(at));
        let is_used =
            (0..clause.tokens.len()).all(|at| best.claimed[at] || verb(&at) || !is_word(at));
        if is_used && best.unplaced.is_empty() && best.missing.is_empty() {
            return None;
        }
        // The second part repeats the verb, or the noun of a question.
        let noun = clause.tokens.iter().position(|token| {
            token.kind == Kind::Word && self.tools[best.tool].has_noun(&token.stem, self.lexicon)
        });
        let places = clause
            .verb
            .as_ref()
            .map_or_else(|| noun.into_iter().collect(), |verb| verb.places.clone());
        let start = places.iter().max()? + 1;
        let mut words: Vec<Token> =
            places.iter().map(|place| clause.tokens[*place].clone()).collect();
        let count = words.len();
        words.extend(noun.filter(|_| clause.verb.is_some()).map(|at| clause.tokens[at].clone()));
        for at in start + 1..clause.tokens.len().saturating_sub(1) {
            if !clause.tokens[at].is_separator() {
                continue;
            }
            let left = Clause { tokens: clause.tokens[..at].to_vec(), ..clause.clone() };
            let mut tokens = words.clone();
            tokens.extend_from_slice(&clause.tokens[at + 1..]);
            let verb = clause
                .verb
                .as_ref()
                .map(|verb| Verb { stem: verb.stem.clone(), places: (0..count).collect() });
            let right = Clause { tokens, verb, ..clause.clone() };
            let is_same = |tool: &Tool| tool.name == self.tools[best.tool].name;
            let mut first = self.readings(&left, &is_same).into_iter().next()?;
            let mut second = self.readings(&right, &is_same).into_iter().next()?;
            // Both parts say the same slot.
            let is_both = first.fillings.iter().any(|(slot, filling)| {
                self.tools[best.tool].slots[*slot].is_required
                    && second.fillings.get(slot).is_some_and(|other| other != filling)
            });
            if !is_both {
                continue;
            }
            let known = first.calls(&self.tools[best.tool]).into_iter().next().unwrap_or_default();
            let later = second.calls(&self.tools[best.tool]).into_iter().next().unwrap_or_default();
            self.inherit(&mut first, Some(&later));
            self.inherit(&mut second, Some(&known));
            let is_full =
                |reading: &Reading| reading.missing.is_empty() && reading.unplaced.is_empty();
            if is_full(&first) && is_full(&second) {
                return Some(vec![(left, first), (right, second)]);
            }
        }
        None
    }

    /// Fills what is missing from earlier steps, without any word for it.
    fn inherit(&self, reading: &mut Reading, shared: Option<&Map<String, Value>>) {
        let tool = &self.tools[reading.tool];
        let slashed = &self.lexicon.forms["slashed"];
        let missing = std::mem::take(&mut reading.missing);
        for slot in missing {
            let name = &tool.slots[slot].parameter;
            let given = shared.and_then(|shared| shared.get(name));
            let known = self
                .memory
                .steps
                .iter()
                .rev()
                .find_map(|step| step.parameters.get(name))
                .filter(|_| slashed.contains(name));
            match given.or(known) {
                Some(value) => {
                    reading.score += self.weights.missing + self.weights.required;
                    reading.fillings.insert(slot, Filling::One(value.clone()));
                }
                None => reading.missing.push(slot),
            }
        }
    }

    /// Takes a missing id from the step before, as a guess: `reopen issue 3 and add the comment X`.
    fn guess_ids(&self, reading: &mut Reading) {
        let tool = &self.tools[reading.tool];
        let ([last], [slot]) = (self.last.as_slice(), reading.missing.as_slice()) else { return };
        let own = &tool.slots[*slot];
        let value = self.memory.steps[*last].parameters.get(&own.parameter);
        if let Some(value) = value.filter(|_| own.kind == SlotKind::Id) {
            reading.fillings.insert(*slot, Filling::One(value.clone()));
            reading.guessed.push(*slot);
            reading.missing.clear();
        }
    }

    /// Adds the calls of a reading, or says why not.
    fn accept(
        &mut self,
        clause: &Clause,
        mut reading: Reading,
        when: Option<&str>,
    ) -> Result<(), Refusal> {
        self.inherit(&mut reading, None);
        self.guess_ids(&mut reading);
        let tool = &self.tools[reading.tool];
        let said = self.words(&clause.tokens);
        let is_clear =
            reading.has_noun && reading.has_verb && reading.words >= self.weights.verb * 0.6;
        if !(is_clear && !reading.missing.is_empty()) {
            self.check(clause, &reading, &said)?;
        }
        if !reading.missing.is_empty() {
            let slots = reading.missing.iter().map(|slot| {
                let slot = &tool.slots[*slot];
                (slot.path(), slot.description.clone())
            });
            return Err(Refusal::Missing { tool: tool.name.clone(), slots: slots.collect(), said });
        }
        // An update without anything to change.
        let is_update =
            tool.acts && self.lexicon.concepts(&tool.verb).iter().any(|concept| concept == "updat");
        let slashed = &self.lexicon.forms["slashed"];
        let is_change = |slot: usize| {
            let slot = &tool.slots[slot];
            slot.kind != SlotKind::Id && !slashed.contains(&slot.parameter)
        };
        if is_update
            && !reading.fillings.keys().any(|slot| is_change(*slot))
            && (0..tool.slots.len()).any(is_change)
        {
            let slots = (0..tool.slots.len()).filter(|slot| is_change(*slot)).take(1).map(|slot| {
                let slot = &tool.slots[slot];
                (slot.path(), slot.description.clone())
            });
            return Err(Refusal::Missing { tool: tool.name.clone(), slots: slots.collect(), said });
        }
        let calls = reading.calls(tool);
        let place = self.planned.steps.len();
        self.add_doubts(clause, &reading, place);
        let mut places = Vec::new();
        // `archive them`: each item of the list that the step before gives.
        let them = clause.tokens.iter().any(|token| token.is_any(&["them", "these", "those"]));
        if let (true, [only], [last]) = (them && tool.acts, calls.as_slice(), self.last.as_slice())
        {
            let step = &self.memory.steps[*last];
            if let Some(list) = self.tools[step.tool].list() {
                let (id, path) = (step.id.clone(), list.path.clone());
                let prefix = format!("{{{{{id}.{path}[0].");
                let text = Value::Object(only.clone()).to_string();
                if text.contains(&prefix) {
                    let text = text.replace(&prefix, "{{item.");
                    let parameters = serde_json::from_str(&text).unwrap_or_default();
                    let items = format!("{{{{{id}.{path}}}}}");
                    let place = self.add_step(reading.tool, parameters, false, Some(items), when);
                    self.last = vec![place];
                    self.previous = Some((clause.clone(), reading.tool));
                    return Ok(());
                }
            }
        }
        for parameters in calls {
            self.linked.clone_from(&reading.links);
            self.add_range_end(reading.tool, parameters, |planning, parameters| {
                places.push(planning.add_step(
                    reading.tool,
                    parameters,
                    clause.is_next,
                    None,
                    when,
                ));
            });
        }
        self.last = places;
        self.previous = Some((clause.clone(), reading.tool));
        Ok(())
    }

    /// A range that reads one day ends with that day.
    fn add_range_end(
        &mut self,
        tool: usize,
        mut parameters: Map<String, Value>,
        add: impl FnOnce(&mut Self, Map<String, Value>),
    ) {
        let own = &self.tools[tool];
        if !own.acts {
            let has = |name: &str| {
                own.slots.iter().any(|slot| slot.parameter == name && slot.kind == SlotKind::Moment)
            };
            if has("start")
                && has("end")
                && !parameters.contains_key("end")
                && !parameters.contains_key("query")
                && let Some(start) = parameters.get("start").cloned()
            {
                parameters.insert("end".to_owned(), start);
            }
        }
        add(self, parameters);
    }

    /// Refuses a reading that is not one: no noun, no verb, or too many words without a place.
    fn check(&self, clause: &Clause, reading: &Reading, said: &str) -> Result<(), Refusal> {
        let tool = &self.tools[reading.tool];
        let weights = self.weights;
        let has_typed = reading.fillings.iter().any(|(slot, _)| {
            let slot = &tool.slots[*slot];
            slot.is_required
                && !matches!(slot.kind, SlotKind::Query | SlotKind::Title | SlotKind::Text)
        });
        let has_id = reading.fillings.keys().any(|slot| {
            let slot = &tool.slots[*slot];
            slot.is_required && !slot.is_free()
        });
        let is_exact = (has_id || !tool.acts)
            && reading.words >= weights.verb * 0.6 - weights.noun_missing * 2.0
            && (has_typed || reading.has_noun);
        let is_verb_exact = clause.verb.as_ref().is_some_and(|verb| verb.stem == tool.verb)
            && (!tool.acts || !matches!(tool.verb.as_str(), "creat" | "add" | "set" | "updat"));
        let has_choice = !tool.acts
            && reading.fillings.keys().any(|slot| tool.slots[*slot].kind == SlotKind::Choice);
        let lost: f32 = reading
            .unplaced
            .iter()
            .map(|at| if clause.tokens[*at].kind == Kind::Word { 1.0 } else { 1.5 })
            .sum();
        let is_weak = !reading.has_noun
            && !has_choice
            && !is_verb_exact
            && !(is_exact
                && has_typed
                && reading.missing.is_empty()
                && lost < if tool.acts { 1.0 } else { 2.5 });
        // `delete the contact c_4`, where only events can be deleted.
        let is_other = tool.acts
            && !reading.has_noun
            && reading.unplaced.iter().any(|at| {
                let stem = &clause.tokens[*at].stem;
                self.nouns.contains(stem) || self.lexicon.is_noun(stem)
            });
        if is_other || is_weak || reading.score < weights.least - weights.missing {
            return Err(Refusal::NothingFits { said: said.to_owned() });
        }
        let has_lost = reading.unplaced.iter().any(|at| clause.tokens[*at].kind != Kind::Word);
        if has_lost
            || tool.acts && lost > weights.most_unplaced
            || lost > 2.0 * weights.most_unplaced
            || tool.acts && has_lost
        {
            let words = reading
                .unplaced
                .iter()
                .map(|at| clause.tokens[*at].value.clone())
                .collect::<Vec<_>>()
                .join(" ");
            return Err(Refusal::Unplaced { tool: tool.order(), words, said: said.to_owned() });
        }
        Ok(())
    }

    fn add_doubts(&mut self, clause: &Clause, reading: &Reading, place: usize) {
        let path = format!("tools[{place}]");
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for at in &reading.unplaced {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == *at => *end = *at,
                _ => ranges.push((*at, *at)),
            }
        }
        for (start, end) in ranges {
            let words = self.words(&clause.tokens[start..=end]);
            let message = format!("the plan does not use `{words}`");
            let help =
                "leave it out, or put it between quotation marks behind the name of its parameter";
            self.planned.doubts.push(
                Diagnostic::warning("plan.unplaced_words", path.clone(), message).with_help(help),
            );
        }
        let tool = &self.tools[reading.tool];
        for slot in &reading.guessed {
            let slot = &tool.slots[*slot];
            let value = match reading.fillings.get(
                &tool
                    .slots
                    .iter()
                    .position(|other| other.path() == slot.path())
                    .unwrap_or_default(),
            ) {
                Some(Filling::One(value)) => value.to_string(),
                _ => String::new(),
            };
            let message = format!("`{}` is a guess: {value}", slot.path());
            let help = format!("say it with its name, such as `with {} …`", slot.words.join(" "));
            self.planned.doubts.push(
                Diagnostic::warning(
                    "plan.guessed_value",
                    format!("{path}.parameters.{}", slot.parameter),
                    message,
                )
                .with_help(help),
            );
        }
    }

    fn add_step(
        &mut self,
        tool: usize,
        parameters: Map<String, Value>,
        is_next: bool,
        each: Option<String>,
        when: Option<&str>,
    ) -> usize {
        let own = &self.tools[tool];
        let linked = std::mem::take(&mut self.linked);
        let id = self.free_id(&own.name);
        let place = self.planned.steps.len();
        let text = Value::Object(parameters.clone()).to_string()
            + each.as_deref().unwrap_or_default()
            + when.unwrap_or_default();
        let acted = self.last.iter().any(|step| self.tools[self.memory.steps[*step].tool].acts);
        let waits: Vec<Value> = self
            .last
            .iter()
            .filter(|step| {
                **step != place && (is_next || acted && !own.acts || linked.contains(step))
            })
            .map(|step| self.memory.steps[*step].id.clone())
            .filter(|id| !text.contains(&format!("{{{{{id}")))
            .map(Value::String)
            .collect();
        let depends_on = match waits.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            _ => Some(Value::Array(waits)),
        };
        self.memory.steps.push(Done {
            id: id.clone(),
            tool,
            parameters: parameters.clone(),
            is_loop: each.is_some(),
        });
        self.planned.steps.push(DraftStep {
            id: Some(id),
            name: Some(own.name.clone()),
            parameters: Some(Value::Object(parameters)),
            depends_on,
            for_each: each,
            when: when.map(str::to_owned),
            ..DraftStep::default()
        });
        place
    }

    /// Reads the action of a clause that repeats it for each item of a list. Filters of the list are
    /// left to the list.
    fn loop_action(&self, clause: &Clause, best: &Reading) -> Option<Reading> {
        let tool = &self.tools[best.tool];
        let has_word = clause.tokens.iter().enumerate().any(|(at, token)| {
            token.kind == Kind::Word && self.lexicon.loops.has(&token.lower) && !best.claimed[at]
        });
        if !tool.acts || !has_word {
            return None;
        }
        let lists = || self.tools.iter().filter(|list| !list.acts && list.list().is_some());
        let is_filter = |name: &String| {
            lists().any(|list| list.slots.iter().any(|slot| slot.parameter == *name))
        };
        let is_field = |slot: &super::tool::Slot| {
            slot.kind == SlotKind::Word
                && lists().any(|list| {
                    list.list().is_some_and(|items| {
                        items.items.iter().any(|item| item.path == slot.parameter)
                    })
                })
        };
        let (verb, state) = self.verb_score(clause, tool);
        let blocked: Vec<usize> = (0..tool.slots.len())
            .filter(|at| {
                let slot = &tool.slots[*at];
                let is_set = state
                    .is_some_and(|(value, _)| slot.choices.iter().any(|choice| choice == value));
                let is_slashed = self.lexicon.forms["slashed"].contains(&slot.parameter);
                !is_set
                    && !is_slashed
                    && (!slot.is_required && is_filter(&slot.parameter)
                        || slot.is_required && is_field(slot) && is_filter(&slot.parameter))
            })
            .collect();
        let mut action = fill(&self.scene(), clause, best.tool, &blocked, verb, state);
        action.missing.extend(blocked.into_iter().filter(|at| tool.slots[*at].is_required));
        (!action.missing.is_empty()).then_some(action)
    }

    /// Plans `delete all emails from X`: a list of the words that the action does not use, then the
    /// action for each item.
    fn plan_loop(&mut self, clause: &Clause, action: Reading) -> Result<(), Refusal> {
        let tool = &self.tools[action.tool];
        let said = self.words(&clause.tokens);
        let verb: Vec<usize> =
            clause.verb.as_ref().map(|verb| verb.places.clone()).unwrap_or_default();
        let text_slots = action.missing.clone();
        let rest: Vec<Token> = clause
            .tokens
            .iter()
            .enumerate()
            .filter(|(at, token)| {
                !verb.contains(at) && !action.claimed[*at] && !self.lexicon.loops.has(&token.lower)
            })
            .map(|(_, token)| token.clone())
            .collect();
        let shared = action.calls(tool).into_iter().next().unwrap_or_default();
        let list = self
            .choose_list(&rest, &action, &shared)
            .ok_or(Refusal::NoList { said: said.clone(), tool: tool.order() })?;
        let rest_clause = Clause {
            tokens: rest,
            mood: Mood::Question,
            verb: None,
            condition: None,
            each: None,
            ..clause.clone()
        };
        let mut action = action;
        action.missing = text_slots;
        self.finish_loop(clause, &rest_clause, list, Some(action))
    }

    /// Plans `for each X do Y`.
    fn plan_each(&mut self, clause: &Clause, each: &[Token]) -> Result<(), Refusal> {
        let rest = Clause {
            tokens: each.to_vec(),
            mood: Mood::Question,
            verb: None,
            condition: None,
            each: None,
            ..clause.clone()
        };
        let mut main = clause.clone();
        main.each = None;
        let readings = self.readings(&main, &|tool| tool.acts);
        self.note(&main, &readings);
        let said = self.words(&clause.tokens);
        let best =
            readings.into_iter().next().ok_or(Refusal::NothingFits { said: said.clone() })?;
        let shared = best.calls(&self.tools[best.tool]).into_iter().next().unwrap_or_default();
        let list = self
            .choose_list(each, &best, &shared)
            .ok_or(Refusal::NoList { said, tool: self.tools[best.tool].order() })?;
        self.finish_loop(&main, &rest, list, None)
    }

    /// Chooses the tool that lists the items which an action needs.
    fn choose_list(
        &self,
        words: &[Token],
        action: &Reading,
        shared: &Map<String, Value>,
    ) -> Option<Reading> {
        let tool = &self.tools[action.tool];
        let clause = Clause {
            tokens: words.to_vec(),
            mood: Mood::Question,
            verb: None,
            condition: None,
            each: None,
            is_otherwise: false,
            is_next: false,
        };
        let gives = |list: &Tool| {
            list.list().is_some_and(|output| {
                action.missing.iter().all(|slot| {
                    let slot = &tool.slots[*slot];
                    let is_id =
                        matches!(slot.kind, SlotKind::Id | SlotKind::Email | SlotKind::Word);
                    !is_id
                        || super::memory::item_field(output, slot).is_some()
                        || shared.contains_key(&slot.parameter)
                        || self.lexicon.forms["slashed"].contains(&slot.parameter)
                })
            })
        };
        let mut readings = self.readings(&clause, &|list| !list.acts && gives(list));
        for reading in &mut readings {
            let before = reading.missing.len();
            self.inherit(reading, Some(shared));
            let filled = before - reading.missing.len();
            reading.score += self.weights.missing * u16::try_from(filled).map_or(0.0, f32::from);
            if self.tools[reading.tool].verb == "list" {
                reading.score += 0.3;
            }
            // Filters of a list would be the next best words.
            reading.score -= self.weights.unplaced
                * u16::try_from(reading.unplaced.len()).map_or(0.0, f32::from)
                * 0.5;
        }
        readings.retain(|reading| {
            let slots = &self.tools[reading.tool].slots;
            let has_choice =
                reading.fillings.keys().any(|slot| slots[*slot].kind == SlotKind::Choice);
            reading.missing.is_empty() && (reading.has_noun || has_choice)
        });
        readings.sort_by(|a, b| b.score.total_cmp(&a.score));
        readings.into_iter().next()
    }

    fn finish_loop(
        &mut self,
        clause: &Clause,
        rest: &Clause,
        list: Reading,
        action: Option<Reading>,
    ) -> Result<(), Refusal> {
        let source = &self.tools[list.tool];
        let output = source.list().expect("a list was chosen").clone();
        let parameters = list.calls(source).into_iter().next().unwrap_or_default();
        let place = self.planned.steps.len();
        self.add_doubts(rest, &list, place);
        let step = self.add_step(list.tool, parameters, clause.is_next, None, None);
        let id = self.memory.steps[step].id.clone();
        self.last = vec![step];
        // The action is read with the list in memory, so that its values are fields of an item.
        let mut action = match action {
            Some(action) => action,
            None => {
                let readings = self.readings(clause, &|tool| tool.acts);
                let said = self.words(&clause.tokens);
                readings.into_iter().next().ok_or(Refusal::NothingFits { said })?
            }
        };
        let tool = &self.tools[action.tool];
        for slot in std::mem::take(&mut action.missing) {
            let own = &tool.slots[slot];
            let field = super::memory::item_field(&output, own);
            let known = self.memory.steps[step].parameters.get(&own.parameter);
            match (field, known) {
                (None, Some(value)) if own.kind != SlotKind::Email => {
                    action.fillings.insert(slot, Filling::One(value.clone()));
                }
                (Some(field), _) => {
                    let value = super::memory::template("item", &field);
                    let value = if own.is_list { json!([value]) } else { value };
                    action.fillings.insert(slot, Filling::One(value));
                }
                _ => action.missing.push(slot),
            }
        }
        let said = self.words(&clause.tokens);
        if !action.missing.is_empty() {
            let slots = action
                .missing
                .iter()
                .map(|slot| (tool.slots[*slot].path(), tool.slots[*slot].description.clone()))
                .collect();
            return Err(Refusal::Missing { tool: tool.name.clone(), slots, said });
        }
        let mut shown = action.clone();
        shown
            .unplaced
            .retain(|at| !rest.tokens.iter().any(|token| token.start == clause.tokens[*at].start));
        shown.score = self.weights.least;
        self.check(clause, &shown, &said)?;
        self.add_doubts(clause, &shown, self.planned.steps.len());
        let prefix = format!("{{{{{id}.{}[0].", output.path);
        let items = format!("{{{{{id}.{}}}}}", output.path);
        for parameters in action.calls(tool) {
            let text = Value::Object(parameters).to_string().replace(&prefix, "{{item.");
            // The whole list is no value for one item.
            if text.contains(&items) || text.contains(&format!("{{{{{id}}}}}")) {
                return Err(Refusal::Condition { said });
            }
            let parameters: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            let place = self.add_step(action.tool, parameters, false, Some(items.clone()), None);
            self.last = vec![place];
        }
        self.previous = Some((clause.clone(), action.tool));
        Ok(())
    }

    /// Plans `if X, do Y`: a step that reads the fact, unless an earlier one has it, and the action
    /// with `when`.
    fn plan_condition(&mut self, clause: &Clause, condition: &Condition) -> Result<(), Refusal> {
        let said = self.words(&condition.tokens);
        let mut main = clause.clone();
        main.condition = None;
        let preview = self.readings(&main, &|_| true).into_iter().next();
        let shared = preview.as_ref().map(|reading| {
            reading.calls(&self.tools[reading.tool]).into_iter().next().unwrap_or_default()
        });
        // The nouns of the action, for a condition about `it`.
        let topic: Vec<Token> = main
            .tokens
            .iter()
            .filter(|token| token.kind == Kind::Word && self.nouns.contains(&token.stem))
            .cloned()
            .collect();
        let fact = condition::read(self, condition, shared.as_ref(), &topic)
            .ok_or(Refusal::Condition { said })?;
        let step = match fact.step {
            Some(step) => step,
            None => {
                let mut reading = fact.reading.expect("a fact has a step or a reading");
                self.inherit(&mut reading, shared.as_ref());
                let tool = &self.tools[reading.tool];
                if !reading.missing.is_empty() {
                    let slots = reading
                        .missing
                        .iter()
                        .map(|slot| {
                            (tool.slots[*slot].path(), tool.slots[*slot].description.clone())
                        })
                        .collect();
                    return Err(Refusal::Missing {
                        tool: tool.name.clone(),
                        slots,
                        said: self.words(&condition.tokens),
                    });
                }
                let parameters = reading.calls(tool).into_iter().next().unwrap_or_default();
                let mut place = 0;
                self.add_range_end(reading.tool, parameters, |planning, parameters| {
                    place = planning.add_step(reading.tool, parameters, clause.is_next, None, None);
                });
                self.last = vec![place];
                place
            }
        };
        self.inherit_verb(&mut main);
        let when = fact.expression.replace("{}", &self.memory.steps[step].id);
        let readings = self.readings(&main, &|_| true);
        self.note(&main, &readings);
        let said = self.words(&main.tokens);
        let mut best = readings.into_iter().next().ok_or(Refusal::NothingFits { said })?;
        let known = self.memory.steps[step].parameters.clone();
        self.inherit(&mut best, Some(&known));
        main.is_next = false;
        self.accept(&main, best, Some(&when))
    }

    /// Returns the id that a step of a tool gets: the tool's name, else `name_2`, `name_3`, ….
    fn free_id(&mut self, name: &str) -> String {
        let base: String = name
            .chars()
            .take(STEP_ID_LEN - SUFFIX_LEN)
            .map(|char| if is_step_id_char(char) { char } else { '_' })
            .collect();
        let number = self.numbers.entry(base.clone()).or_insert(1);
        loop {
            let id = if *number == 1 { base.clone() } else { format!("{base}_{number}") };
            *number += 1;
            let is_taken = self.memory.steps.iter().any(|step| step.id == id);
            if !is_taken && !RESERVED_STEP_IDS.contains(&id.as_str()) {
                return id;
            }
        }
    }

    /// Leaves out the ids that the compiler gives anyway: those of tools that are called once.
    fn settle_ids(&mut self) {
        let names: Vec<Option<String>> =
            self.planned.steps.iter().map(|step| step.name.clone()).collect();
        for step in &mut self.planned.steps {
            let count = names.iter().filter(|name| **name == step.name).count();
            if count == 1 && step.id == step.name {
                step.id = None;
            }
        }
        // An acting step of a plan in doubt waits for a person.
        if !self.planned.doubts.is_empty() {
            let acts: Vec<bool> =
                self.memory.steps.iter().map(|step| self.tools[step.tool].acts).collect();
            for (step, acts) in self.planned.steps.iter_mut().zip(acts) {
                if acts {
                    step.requires_approval = Some(true);
                }
            }
        }
    }
}
