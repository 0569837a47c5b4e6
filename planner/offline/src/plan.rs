//! Makes steps of clauses: finds the tool of each clause, loops, conditions and doubts.

mod chains;
mod checks;
mod conditions;
mod lookups;
mod loops;
mod split;
mod steps;
mod verbs;

use std::collections::BTreeSet;

use planner::{catalog::Catalog, draft::DraftStep};
use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

pub(super) use self::verbs::is_read;
use super::{
    clause::{Clause, ClauseReader, Mood, Verb},
    fill::{FillContext, Filling, Reading, fill},
    lexicon::Lexicon,
    memory::Memory,
    refusal::Refusal,
    token::{Token, TokenKind, words_of},
    tool::Tool,
    weights::Weights,
};

/// Maximum number of words and marks in a clause. A quotation counts as one word.
const MAX_CLAUSE_TOKENS: usize = 256;
const MAX_STEPS: usize = 64;
const MAX_NOTED_TOOLS: usize = 5;

#[derive(Debug, Default)]
pub(super) struct PlanningResult {
    pub(super) steps: Vec<DraftStep>,
    pub(super) doubts: Vec<Diagnostic>,
    pub(super) candidates: Vec<Value>,
    pub(super) clauses: Vec<String>,
}

pub(super) struct Planning<'a> {
    query: &'a str,
    lexicon: &'a Lexicon,
    tools: &'a [Tool],
    weights: &'a Weights,
    memory: Memory,
    pub(super) planned: PlanningResult,
    last: Vec<usize>,
    previous_clause: Option<Clause>,
    nouns: BTreeSet<String>,
    pub(super) chain_catalog: Option<&'a Catalog>,
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
            planned: PlanningResult::default(),
            last: Vec::new(),
            previous_clause: None,
            nouns: tools.iter().flat_map(|tool| tool.nouns.iter().cloned()).collect(),
            chain_catalog: None,
        }
    }

    /// Plans the clauses of a query one after another. If that fails, tries to answer the query by
    /// a chain of calls, and then by a lookup.
    pub(super) fn plan(&mut self, tokens: &[Token]) -> Result<(), Refusal> {
        let reader = ClauseReader { lexicon: self.lexicon, tools: self.tools };
        let clauses = self.rewrite_copies(reader.read(tokens));
        let planned = self.plan_clauses(clauses.clone());
        match planned {
            Err(_) if self.plan_answer(&clauses) || self.plan_lookup(tokens) => {}
            Ok(()) if self.is_plain_read() && self.plan_lookup(tokens) => {}
            planned => planned?,
        }
        self.settle_steps();
        Ok(())
    }

    fn plan_clauses(&mut self, clauses: Vec<Clause>) -> Result<(), Refusal> {
        let mut passed: Vec<Refusal> = Vec::new();
        let mut clauses = clauses.into_iter();
        while let Some(clause) = clauses.next() {
            match self.plan_part(&clause) {
                Ok(refusal) => passed.extend(refusal),
                Err(refusal) => {
                    clauses.for_each(|clause| self.note_clause(&clause, &[]));
                    return Err(refusal);
                }
            }
        }
        if self.planned.steps.is_empty() {
            let at = passed.iter().position(|refusal| !refusal.fits_nothing);
            let first = passed.into_iter().nth(at.unwrap_or_default());
            return Err(first.unwrap_or_else(|| Refusal::nothing_fits(self.query)));
        }
        Ok(())
    }

    fn plan_part(&mut self, clause: &Clause) -> Result<Option<Refusal>, Refusal> {
        let (steps, notes) = (self.memory.steps.len(), self.planned.candidates.len());
        let passed = self.plan_or_pass(clause);
        if self.planned.candidates.len() == notes && passed.is_err() {
            self.note_clause(clause, &[]);
        }
        let ids = self.memory.steps[steps..].iter().map(|step| json!({ "step": step.id }));
        if let Some(last) = self.planned.candidates[notes..].last_mut() {
            last["steps"] = ids.collect();
        }
        if self.planned.steps.len() > MAX_STEPS {
            return Err(Refusal::new("the plan has too many steps: split the query"));
        }
        passed
    }

    /// Plans a clause. If the clause asks for no action, but other clauses may ask for one, returns
    /// the reason as `Ok`.
    fn plan_or_pass(&mut self, clause: &Clause) -> Result<Option<Refusal>, Refusal> {
        let said = self.words(&clause.tokens);
        match clause.mood {
            Mood::Order | Mood::Question => {}
            Mood::Fragment if self.is_about_tools(clause) => {}
            Mood::Fragment | Mood::Reported if self.names_order(clause) => {
                return Err(Refusal::mood(clause.mood, &said));
            }
            Mood::Fragment => return Ok(Some(Refusal::nothing_fits(&said))),
            Mood::Condition => return Ok(Some(Refusal::condition(&said))),
            mood @ (Mood::Reported | Mood::Denied) => {
                return Ok(Some(Refusal::mood(mood, &said)));
            }
            mood => return Err(Refusal::mood(mood, &said)),
        }
        self.planned.clauses.push(said);
        let is_talk = clause.mood == Mood::Fragment && !clause.has_value();
        match self.plan_clause(clause) {
            Err(refusal) if refusal.fits_nothing && is_talk && !self.names_order(clause) => {
                Ok(Some(refusal))
            }
            planned => planned.map(|()| None),
        }
    }

    /// Returns whether a statement contains a request for an action: `before you create an issue,
    /// …`.
    fn names_order(&self, clause: &Clause) -> bool {
        let reader = ClauseReader { lexicon: self.lexicon, tools: self.tools };
        let acts = |token: &Token| {
            self.tools.iter().any(|tool| tool.has_effect && tool.verb == token.stem)
        };
        let tokens = &clause.tokens;
        (1..tokens.len()).any(|at| acts(&tokens[at]) && reader.begins_order(tokens, at, true))
    }

    fn words(&self, tokens: &[Token]) -> String {
        words_of(self.query, tokens)
    }

    fn has_tool_noun(&self, clause: &Clause) -> bool {
        clause.tokens.iter().any(|token| {
            token.kind == TokenKind::Word
                && self.tools.iter().any(|tool| tool.has_noun(&token.stem, self.lexicon))
        })
    }

    fn is_about_tools(&self, clause: &Clause) -> bool {
        self.has_tool_noun(clause) || clause.tokens.iter().any(Token::is_typed)
    }

    fn fill_context(&self) -> FillContext<'_> {
        FillContext {
            query: self.query,
            lexicon: self.lexicon,
            tools: self.tools,
            memory: &self.memory,
            nouns: &self.nouns,
            has_several_results: self.last.len() > 1,
            weights: self.weights,
        }
    }

    fn readings(&self, clause: &Clause, accept: &dyn Fn(&Tool) -> bool) -> Vec<Reading> {
        let fill_context = self.fill_context();
        let mut readings: Vec<Reading> = Vec::new();
        for (at, tool) in self.tools.iter().enumerate().filter(|(_, tool)| accept(tool)) {
            let verb = self.verb_fit(clause, tool);
            if verb.score > 0.0 {
                let mut reading = fill(&fill_context, clause, at, verb);
                self.inherit_values(&mut reading, None);
                readings.push(reading);
            }
        }
        readings.sort_by(|a, b| b.score.total_cmp(&a.score));
        readings
    }

    fn note_clause(&mut self, clause: &Clause, readings: &[Reading]) {
        let show = |reading: &Reading| {
            let score = f64::from((reading.score * 100.0).round()) / 100.0;
            json!({ "tool": self.tools[reading.tool].name, "score": score })
        };
        let tools: Vec<Value> = readings.iter().take(MAX_NOTED_TOOLS).map(show).collect();
        let said = self.words(&clause.tokens);
        self.planned.candidates.push(json!({ "clause": said, "tools": tools }));
    }

    fn plan_clause(&mut self, clause: &Clause) -> Result<(), Refusal> {
        // Refuses a long clause, because the number of candidates grows faster than the number of
        // words.
        if clause.tokens.len() > MAX_CLAUSE_TOKENS {
            let count = clause.tokens.len();
            return Err(Refusal::too_many_words(count, MAX_CLAUSE_TOKENS));
        }
        if let Some(condition) = &clause.condition {
            return self.plan_condition(clause, condition);
        }
        if let Some(each) = &clause.each {
            return self.plan_each(clause, each);
        }
        let has_verb = clause.verb.is_some();
        let mut clause = clause.clone();
        self.inherit_words(&mut clause);
        let is_inherited = !has_verb && clause.verb.is_some();
        let readings = self.readings(&clause, &|_| true);
        self.note_clause(&clause, &readings);
        let said = || self.words(&clause.tokens);
        let Some(best) = readings.into_iter().next() else {
            return Err(Refusal::nothing_fits(&said()));
        };
        if self.is_loop(&clause, &best) {
            return self.plan_loop(&clause, best);
        }
        // `every` means several items, and no step lists them.
        let is_each = |(at, token): (usize, &Token)| {
            token.is_any(&["every", "each"]) && !best.claimed_tokens[at]
        };
        if self.tools[best.tool].has_effect && clause.tokens.iter().enumerate().any(is_each) {
            return Err(Refusal::no_list(&self.tools[best.tool], &said()));
        }
        // `New year, new folder` asks for nothing, and no tool can `fry the author`.
        let is_fragment = clause.mood == Mood::Fragment && clause.verb.is_none();
        let is_about = best.has_noun || clause.has_value();
        let is_talk = is_fragment && (!is_about || best.fillings.is_empty());
        if is_talk || (is_inherited || is_fragment) && self.begins_unplaced(&clause, &best) {
            return Err(Refusal { fits_nothing: !is_inherited, ..Refusal::nothing_fits(&said()) });
        }
        match self.split(&clause, &best) {
            Some(parts) => parts
                .into_iter()
                .try_for_each(|(part, reading)| self.add_reading(&part, reading, None)),
            None => self.add_reading(&clause, best, None),
        }
    }

    fn begins_unplaced(&self, clause: &Clause, best: &Reading) -> bool {
        let is_content = |at: &usize| !self.lexicon.is_filler(&clause.tokens[*at]);
        let first = (clause.verb_places().len()..clause.tokens.len()).find(is_content);
        first.is_some_and(|at| {
            let token = &clause.tokens[at];
            let is_noun = self.nouns.contains(&token.stem) || self.lexicon.is_noun(&token.stem);
            let is_plain = token.kind == TokenKind::Word && !token.is_capitalised() && !is_noun;
            // A word before an object is a verb.
            let reader = ClauseReader { lexicon: self.lexicon, tools: self.tools };
            let is_verb = reader.begins_object(&clause.tokens, at + 1);
            is_plain && (is_verb || best.unplaced_tokens.contains(&at))
        })
    }

    /// Gives a clause without a verb the verb of the clause before it, and a clause without a noun
    /// the noun of the latest step: `and the tree of /data`.
    fn inherit_words(&self, clause: &mut Clause) {
        let has_noun = self.has_tool_noun(clause);
        if clause.mood == Mood::Fragment && clause.verb.is_none() {
            self.inherit_verb(clause);
        }
        // In `show me what is still open` and `create one`, the noun is the noun of the previous
        // step.
        let one = clause.tokens.iter().position(|token| token.is("one"));
        let has_pronoun = clause.tokens.iter().any(|token| self.lexicon.is_pronoun(token));
        if has_noun || one.is_none() && (has_pronoun || clause.has_value()) {
            return;
        }
        let last = self.memory.steps.last();
        let Some(noun) = last.and_then(|step| self.tools[step.tool].nouns.first()) else { return };
        let at = one.unwrap_or(clause.tokens.len());
        let near = clause.tokens.get(at).or(clause.tokens.last()).map_or(0, |token| token.end);
        let end = clause.tokens.len().min(at + 1);
        clause.tokens.splice(at..end, [Token::inserted(noun, near)]);
    }

    fn inherit_verb(&self, clause: &mut Clause) {
        let Some(previous) = &self.previous_clause else { return };
        let Some(verb) = &previous.verb else {
            clause.mood = previous.mood;
            return;
        };
        let near = clause.tokens.first().map_or(0, |token| token.start);
        let tokens = verb.places.iter().filter_map(|place| previous.tokens.get(*place));
        let words: Vec<Token> = tokens.map(|token| Token::inserted(&token.value, near)).collect();
        let places = (0..words.len()).collect();
        clause.tokens.splice(0..0, words);
        clause.verb = Some(Verb { stem: verb.stem.clone(), places });
        clause.mood = previous.mood;
    }

    /// Fills missing slots from `shared`, which are the parameters of a related call. Fills a
    /// missing repository from any earlier step.
    fn inherit_values(&self, reading: &mut Reading, shared: Option<&Map<String, Value>>) {
        let tool = &self.tools[reading.tool];
        for at in std::mem::take(&mut reading.missing_slots) {
            let slot = &tool.slots[at];
            let given = shared.and_then(|shared| shared.get(&slot.parameter));
            let mut steps = self.memory.steps.iter().rev().filter(|_| slot.is_slashed);
            let known = steps.find_map(|step| step.parameters.get(&slot.parameter));
            match given.or(known) {
                Some(value) => {
                    reading.score += self.weights.missing + self.weights.required;
                    reading.fillings.insert(at, Filling::One(value.clone()));
                }
                None => reading.missing_slots.push(at),
            }
        }
    }
}
