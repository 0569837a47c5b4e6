//! One clause and one tool: which words fill which slots, chosen together.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde_json::{Map, Number, Value, json};

use super::{
    clause::Clause,
    lexicon::Lexicon,
    memory::Memory,
    moment::{Moment, find_moments, write_moment},
    token::{Kind, Token, number, stem},
    tool::{Slot, SlotKind, Tool, has_form},
    weights::Weights,
};

/// Partial assignments that are kept at each token.
const BEAM: usize = 24;
/// Ends that are tried for a text without quotation marks.
const EXTENTS: usize = 8;

/// The value of a slot.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filling {
    One(Value),
    /// One call for each of them.
    Many(Vec<Value>),
}

/// Words that may fill slots.
#[derive(Clone, Debug)]
struct Candidate {
    fills: Vec<(usize, Filling)>,
    tokens: Range<usize>,
    /// The tokens of the value alone, without cues.
    value: Range<usize>,
    score: f32,
    /// The step that the value comes from.
    link: Option<usize>,
    is_guess: bool,
}

impl Candidate {
    fn new(fills: Vec<(usize, Filling)>, tokens: Range<usize>, score: f32) -> Self {
        let value = tokens.clone();
        Self { fills, tokens, value, score, link: None, is_guess: false }
    }

    /// Tells which of the tokens are the value.
    fn valued(self, value: Range<usize>) -> Self {
        Self { value, ..self }
    }
}

/// How a tool understands a clause.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) tool: usize,
    pub(super) score: f32,
    /// The score of the verb and the nouns alone.
    pub(super) words: f32,
    pub(super) has_verb: bool,
    pub(super) has_noun: bool,
    pub(super) fillings: BTreeMap<usize, Filling>,
    pub(super) missing: Vec<usize>,
    /// Tokens that have no place.
    pub(super) unplaced: Vec<usize>,
    /// Tokens that are values or their cues.
    pub(super) claimed: Vec<bool>,
    pub(super) guessed: Vec<usize>,
    /// The earlier steps that give values.
    pub(super) links: Vec<usize>,
}

/// What a clause is filled with.
pub(super) struct Scene<'a> {
    pub(super) query: &'a str,
    pub(super) lexicon: &'a Lexicon,
    pub(super) tools: &'a [Tool],
    pub(super) memory: &'a Memory,
    /// The last clause made several calls, so that `it` is none of them.
    pub(super) is_several: bool,
    /// The nouns of all tools.
    pub(super) nouns: &'a BTreeSet<String>,
    pub(super) weights: &'a Weights,
}

/// A clause and a tool.
struct Filler<'a> {
    scene: &'a Scene<'a>,
    tokens: &'a [Token],
    tool: &'a Tool,
    verb: &'a [usize],
    moments: &'a [Moment],
    /// The loop's word and its noun: `every order`.
    skipped: &'a [usize],
}

/// Reads a clause as a call of a tool. Slots in `blocked` are filled elsewhere.
pub(super) fn fill(
    scene: &Scene<'_>,
    clause: &Clause,
    tool: usize,
    blocked: &[usize],
    verb_score: f32,
    state: Option<(&str, usize)>,
) -> Reading {
    let moments = find_moments(&clause.tokens);
    let places: Vec<usize> =
        clause.verb.as_ref().map(|verb| verb.places.clone()).unwrap_or_default();
    let filler = Filler {
        scene,
        tokens: &clause.tokens,
        tool: &scene.tools[tool],
        verb: &places,
        moments: &moments,
        skipped: &[],
    };
    filler.read(tool, blocked, verb_score, state)
}

impl Filler<'_> {
    fn read(
        &self,
        tool: usize,
        blocked: &[usize],
        verb_score: f32,
        state: Option<(&str, usize)>,
    ) -> Reading {
        let weights = self.scene.weights;
        let mut candidates = self.candidates(state);
        candidates
            .retain(|candidate| candidate.fills.iter().all(|(slot, _)| !blocked.contains(slot)));
        // `rename X to Y` sets the title.
        let target =
            self.verb.first().and_then(|at| self.scene.lexicon.states.get(&self.tokens[*at].lower));
        for candidate in &mut candidates {
            let is_target = candidate
                .fills
                .iter()
                .any(|(slot, _)| Some(&self.tool.slots[*slot].parameter) == target);
            candidate.score += if is_target { weights.cue } else { 0.0 };
        }
        let (chosen, fill_score) = self.choose(&candidates);
        let count = self.tokens.len();
        let mut claimed = vec![false; count];
        let mut fillings = BTreeMap::new();
        let mut guessed = Vec::new();
        let mut links = Vec::new();
        let mut values: Vec<usize> = Vec::new();
        for at in chosen {
            let candidate = &candidates[at];
            candidate.tokens.clone().for_each(|token| claimed[token] = true);
            links.extend(candidate.link);
            values.extend(candidate.value.clone());
            for (slot, filling) in &candidate.fills {
                fillings.insert(*slot, filling.clone());
                if candidate.is_guess {
                    guessed.push(*slot);
                }
            }
        }
        self.join_paths(&mut fillings);
        let missing: Vec<usize> = (0..self.tool.slots.len())
            .filter(|slot| {
                self.tool.slots[*slot].is_required
                    && !fillings.contains_key(slot)
                    && !blocked.contains(slot)
            })
            .collect();
        let unplaced: Vec<usize> =
            (0..count).filter(|at| !claimed[*at] && self.cost(*at) >= weights.unplaced).collect();
        values.sort_unstable();
        let (noun_score, has_noun) = self.noun_score(&claimed, &values);
        let words = verb_score + noun_score;
        let score = words + fill_score - weights.missing * count_f32(missing.len());
        Reading {
            tool,
            score,
            words,
            has_verb: verb_score > 0.0,
            has_noun,
            fillings,
            missing,
            unplaced,
            claimed,
            guessed,
            links,
        }
    }

    /// Puts a file that is moved into a directory below it.
    fn join_paths(&self, fillings: &mut BTreeMap<usize, Filling>) {
        let slots = self.tool.slots.iter().enumerate();
        let paths: Vec<usize> = slots
            .filter(|(_, slot)| slot.kind == SlotKind::Path && slot.is_required)
            .map(|(at, _)| at)
            .collect();
        let [from, to] = paths.as_slice() else { return };
        let text = |slot: &usize| match fillings.get(slot) {
            Some(Filling::One(Value::String(text))) => Some(text.clone()),
            _ => None,
        };
        let (Some(from), Some(path)) = (text(from), text(to)) else { return };
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let is_into = self.tokens.iter().any(|token| token.is("into")) || path.ends_with('/');
        if is_into
            && name(&from).contains('.')
            && !name(&path).contains('.')
            && !path.contains("{{")
        {
            let path = format!("{}/{}", path.trim_end_matches('/'), name(&from));
            fillings.insert(*to, Filling::One(json!(path)));
        }
    }

    /// Scores the nouns of the tool in the words that are no values.
    fn noun_score(&self, claimed: &[bool], values: &[usize]) -> (f32, bool) {
        let weights = self.scene.weights;
        let lexicon = self.scene.lexicon;
        let mut said: Vec<&str> = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            if token.kind == Kind::Word
                && !self.verb.contains(&at)
                && (!claimed[at] || values.binary_search(&at).is_err())
            {
                said.push(token.stem.as_str());
            }
            // A path with an ending is a file, and one without is a directory.
            if token.kind == Kind::Path && !token.value.starts_with('.') {
                let name = token.value.rsplit('/').next().unwrap_or_default();
                said.push(if name.contains('.') { "file" } else { "directori" });
            }
        }
        let is_said = |noun: &String| {
            said.iter().any(|word| lexicon.is_same_noun(noun, word)) || self.has_compound(noun)
        };
        let nouns = &self.tool.nouns;
        if nouns.is_empty() {
            return (0.0, false);
        }
        let found = nouns.iter().filter(|noun| is_said(noun)).count();
        let verb = self.verb.first().map_or("", |at| self.tokens[*at].stem.as_str());
        let is_verb = |noun: &&String| {
            !is_said(noun)
                && (lexicon.is_same_noun(noun, verb) || verb.len() >= 4 && noun.starts_with(verb))
        };
        let by_verb = nouns.iter().filter(is_verb).count();
        let absent = nouns.len() - found - by_verb;
        let about = said
            .iter()
            .filter(|word| {
                self.tool.about.iter().any(|own| own.as_str() == **word)
                    && !lexicon.fillers.has(word)
            })
            .count();
        let score = weights.noun * count_f32(found).min(1.0)
            + 0.5 * weights.noun * count_f32(found.saturating_sub(1)).min(1.0)
            - weights.noun_missing * count_f32(absent)
            + weights.about * count_f32(about.min(3));
        (score, found + by_verb > 0)
    }

    /// Returns whether a noun of two words is said: `pull request` is `pr`.
    fn has_compound(&self, noun: &str) -> bool {
        let lexicon = self.scene.lexicon;
        let is_pair = |pair: &[Token]| {
            lexicon.is_same_noun(&format!("{} {}", pair[0].stem, pair[1].stem), noun)
        };
        let is_short = |token: &Token| {
            token.kind == Kind::Word && lexicon.is_compound_of(&token.stem, &self.tool.nouns)
        };
        self.tokens.windows(2).any(is_pair)
            || self.tool.nouns.len() > 1 && self.tokens.iter().any(is_short)
    }

    /// Returns the cost of a token without a place.
    fn cost(&self, at: usize) -> f32 {
        let token = &self.tokens[at];
        let lexicon = self.scene.lexicon;
        let weights = self.scene.weights;
        if token.kind == Kind::Mark || self.verb.contains(&at) || self.skipped.contains(&at) {
            return 0.0;
        }
        if token.kind != Kind::Word {
            return weights.unplaced_value;
        }
        let is_known = lexicon.fillers.has(&token.lower)
            || lexicon.prepositions.contains_key(&token.lower)
            || self.tool.has_noun(&token.stem, lexicon)
            || lexicon.soft.has(&token.lower)
            || token.stem == self.tool.verb
            || self.tool.verb.split(' ').any(|word| word == token.lower)
            || lexicon.is_compound_of(&token.stem, &self.tool.nouns);
        if is_known {
            return 0.0;
        }
        let is_in_compound = |pair: Option<&[Token]>| {
            pair.is_some_and(|pair| {
                self.tool.has_noun(&format!("{} {}", pair[0].stem, pair[1].stem), lexicon)
            })
        };
        if is_in_compound(self.tokens.get(at..at + 2))
            || at > 0 && is_in_compound(self.tokens.get(at - 1..=at))
        {
            return 0.0;
        }
        let is_about = self.tool.about.contains(&token.stem)
            || self.tool.slots.iter().any(|slot| slot.about.contains(&token.stem))
            || self.tool.slots.iter().any(|slot| slot.words.contains(&token.stem))
            || lexicon.loops.has(&token.lower)
            || lexicon.ranks.has(&token.lower)
            || lexicon.small_number(&token.lower).is_some()
            || lexicon.concepts(&token.stem).iter().any(|concept| *concept == self.tool.verb);
        if is_about {
            weights.unplaced * 0.25
        } else if self.scene.nouns.contains(&token.stem) {
            // The noun of another tool.
            weights.unplaced * 3.0
        } else {
            weights.unplaced
        }
    }

    /// Chooses candidates that do not overlap and fill each slot at most once.
    fn choose(&self, candidates: &[Candidate]) -> (Vec<usize>, f32) {
        #[derive(Clone)]
        struct State {
            slots: u64,
            score: f32,
            chosen: Vec<usize>,
        }
        let count = self.tokens.len();
        let mut states: Vec<Vec<State>> = vec![Vec::new(); count + 1];
        let mut by_start: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
        for (at, candidate) in candidates.iter().enumerate() {
            by_start[candidate.tokens.start].push(at);
        }
        states[0].push(State { slots: 0, score: 0.0, chosen: Vec::new() });
        for at in 0..count {
            let mut here = std::mem::take(&mut states[at]);
            here.sort_by(|a, b| b.score.total_cmp(&a.score));
            let mut seen: Vec<u64> = Vec::new();
            here.retain(|state| {
                let is_new = !seen.contains(&state.slots);
                seen.push(state.slots);
                is_new
            });
            here.truncate(BEAM);
            let cost = self.cost(at);
            for state in here {
                for index in &by_start[at] {
                    let candidate = &candidates[*index];
                    let slots = candidate
                        .fills
                        .iter()
                        .fold(0_u64, |mask, (slot, _)| mask | 1 << (slot % 64));
                    if slots & state.slots != 0 {
                        continue;
                    }
                    let needed = candidate
                        .fills
                        .iter()
                        .filter(|(slot, _)| self.tool.slots[*slot].is_required)
                        .count();
                    let mut chosen = state.chosen.clone();
                    chosen.push(*index);
                    let score = state.score
                        + candidate.score
                        + self.scene.weights.required * count_f32(needed);
                    states[candidate.tokens.end].push(State {
                        slots: state.slots | slots,
                        score,
                        chosen,
                    });
                }
                states[at + 1].push(State { score: state.score - cost, ..state });
            }
        }
        let best = states[count].iter().max_by(|a, b| a.score.total_cmp(&b.score));
        best.map(|state| (state.chosen.clone(), state.score)).unwrap_or_default()
    }

    fn candidates(&self, state: Option<(&str, usize)>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (at, slot) in self.tool.slots.iter().enumerate() {
            match slot.kind {
                SlotKind::Choice => self.add_choices(at, slot, state, &mut candidates),
                SlotKind::Flag => self.add_flags(at, slot, &mut candidates),
                SlotKind::Moment => self.add_moments(at, slot, &mut candidates),
                _ => self.add_typed(at, slot, &mut candidates),
            }
            let is_slashed = self.scene.lexicon.forms["slashed"].contains(&slot.parameter);
            let is_pattern = slot.words.iter().any(|word| word == "pattern");
            if is_pattern {
                self.add_endings(at, &mut candidates);
            } else if !is_slashed
                && (slot.is_free() || slot.kind == SlotKind::Id && !slot.is_numeric)
            {
                self.add_cued(at, slot, &mut candidates);
                self.add_examples(at, slot, &mut candidates);
                self.add_bare(at, slot, &mut candidates);
            }
            self.add_references(at, slot, &mut candidates);
        }
        self.add_colon(&mut candidates);
        self.add_pairs(&mut candidates);
        self.add_slugs(&mut candidates);
        candidates
    }

    fn one(&self, slot: usize, value: Value, tokens: Range<usize>, score: f32) -> Candidate {
        let is_single = self.tool.slots[slot].is_list && !value.is_array();
        let filling = Filling::One(if is_single { json!([value]) } else { value });
        Candidate::new(vec![(slot, filling)], tokens, score)
    }

    /// Returns whether a word announces a value of a slot: its name, a synonym, or the noun of an id.
    fn is_cue(&self, token: &Token, slot: &Slot) -> bool {
        let lexicon = self.scene.lexicon;
        if token.kind != Kind::Word {
            return false;
        }
        let name = slot.field.as_ref().unwrap_or(&slot.parameter).to_lowercase();
        let kind = match slot.kind {
            SlotKind::Title => "title",
            SlotKind::Text => "text",
            SlotKind::Query => "query",
            _ => name.as_str(),
        };
        // A word that is the name of another parameter announces that one.
        let is_other = self.tool.slots.iter().any(|other| {
            other.words != slot.words && other.words.last().is_some_and(|word| *word == token.stem)
        });
        let is_listed =
            !is_other && lexicon.cues.get(kind).is_some_and(|cues| cues.contains(&token.lower));
        let is_named = slot
            .words
            .last()
            .is_some_and(|word| *word == token.stem && !lexicon.fillers.has(&token.lower));
        let is_noun = slot.kind == SlotKind::Id
            && slot
                .nouns(self.tool, lexicon)
                .iter()
                .any(|noun| lexicon.is_same_noun(noun, &token.stem));
        // `a branch called X`: the slot is what the tool makes.
        let is_made = slot.kind == SlotKind::Word
            && slot.is_required
            && slot.words.last().is_some_and(|word| self.tool.nouns.contains(word));
        let is_called =
            is_made && lexicon.cues["title"].contains(&token.lower) && token.lower.ends_with("ed");
        is_listed || is_named || is_noun || is_called
    }

    /// Returns what the words before a place say about a slot, and where they begin.
    fn context(&self, at: usize, slot: &Slot) -> (f32, usize) {
        let weights = self.scene.weights;
        let lexicon = self.scene.lexicon;
        let is_link = |token: &Token| {
            token.is_any(&[
                "the", "a", "an", ":", "=", "#", "(", "of", "is", "are", "be", "my", "our",
                "number", "called", "named", "id", "email",
            ]) && token.kind != Kind::Quoted
        };
        let mut start = at;
        let is_path_noun = |token: &Token| {
            slot.kind == SlotKind::Path
                && token.kind == Kind::Word
                && lexicon.kinds["path"].contains(&token.lower)
        };
        while start > 0
            && (is_link(&self.tokens[start - 1]) || is_path_noun(&self.tokens[start - 1]))
        {
            start -= 1;
        }
        let Some(before) = start.checked_sub(1) else { return (0.0, at) };
        let token = &self.tokens[before];
        let named = self.tokens[start..at].iter().position(|token| self.is_cue(token, slot));
        if self.is_cue(token, slot) && !lexicon.prepositions.contains_key(&token.lower) {
            let further = before
                .checked_sub(1)
                .filter(|place| self.tokens[*place].is_any(&["with", "as", "to", "the", "its"]));
            return (weights.cue, further.unwrap_or(before));
        }
        if named.is_some() {
            return (weights.cue, start);
        }
        // A preposition may stand before a noun of the slot: `to issue 13`.
        if lexicon.prepositions.contains_key(&token.lower) {
            let start = before;
            if self.is_announced(slot, before) {
                return (weights.preposition, start);
            }
            let is_elsewhere =
                self.tool.slots.iter().any(|other| {
                    other.parameter != slot.parameter && self.is_announced(other, before)
                });
            return (if is_elsewhere { -weights.foreign } else { 0.0 }, start);
        }
        (0.0, at)
    }

    /// Returns the parameter or the value that the verb names: `rename` the title.
    fn target(&self) -> Option<&String> {
        self.verb.first().and_then(|at| self.scene.lexicon.states.get(&self.tokens[*at].lower))
    }

    /// Returns whether a preposition announces a slot, or another slot instead.
    fn is_announced(&self, slot: &Slot, place: usize) -> bool {
        let preposition = &self.tokens[place];
        let lexicon = self.scene.lexicon;
        let Some(names) = lexicon.prepositions.get(&preposition.lower) else { return false };
        if preposition.kind != Kind::Word {
            return false;
        }
        // `assign it to X` names the assignees, wherever it stands.
        let mut near = self.tokens[place.saturating_sub(2)..place].iter();
        let near = near.find_map(|token| lexicon.states.get(&token.lower));
        let verb = self.verb.first().and_then(|at| lexicon.states.get(&self.tokens[*at].lower));
        if verb.or(near) == Some(&slot.parameter) && preposition.is_any(&["to", "as"]) {
            return true;
        }
        // `rename X to Y` does not name the assignees.
        let is_named = lexicon.states.values().any(|name| *name == slot.parameter);
        if slot.is_list && is_named && preposition.is_any(&["to", "as"]) {
            return false;
        }
        // `from_branch` is closer to `from` than `branch`.
        let is_exact = |slot: &Slot| slot.words.contains(&preposition.stem);
        if !is_exact(slot) && self.tool.slots.iter().any(is_exact) {
            return false;
        }
        is_exact(slot) || self.has_name(slot, names)
    }

    fn has_name(&self, slot: &Slot, names: &[String]) -> bool {
        let parameter = slot.parameter.to_lowercase();
        let is_set = |name: &String| {
            // `set X to 5`
            name == "base" && self.tool.acts && slot.kind == SlotKind::Number
        };
        names.iter().any(|name| {
            is_set(name)
                || name == "moment" && slot.kind == SlotKind::Moment
                || *name == parameter
                || slot.words.last().is_some_and(|word| *word == stem(name))
        })
    }

    fn add_typed(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let mut place = 0;
        while place < self.tokens.len() {
            let Some((value, fit)) = self.typed_value(place, slot) else {
                place += 1;
                continue;
            };
            let mut fit = fit;
            let mut end = place + 1;
            if slot.is_numeric {
                let unit = self.unit_after(place, slot);
                fit += unit.1;
                end += unit.0;
            }
            let (context, start) = self.context(place, slot);
            let is_word = slot.kind == SlotKind::Word && self.tokens[place].kind != Kind::Glob;
            let is_email = slot.kind == SlotKind::Email
                && slot.is_list
                && self.target() != Some(&slot.parameter);
            // `refund 20`: the number behind the verb.
            let is_object = place > 0
                && self.verb.contains(&(place - 1))
                && self.tokens[place].kind == Kind::Number;
            let needs_cue = !slot.is_required
                && (slot.kind == SlotKind::Number && !is_object || is_word || is_email);
            let evidence = if slot.kind == SlotKind::Number { fit + context } else { context };
            if needs_cue && evidence <= 0.0 {
                place += 1;
                continue;
            }
            let score = weights.typed + fit + context;
            let value = self.convert(value, place, slot);
            candidates.push(self.one(at, value.clone(), start..end, score).valued(place..end));
            // `12, 13 and 14`: more of the same kind.
            let (values, last) = self.run(place, slot, value);
            if values.len() > 1 {
                let filling = if slot.is_list {
                    Filling::One(Value::Array(values))
                } else {
                    Filling::Many(values)
                };
                let score = score + weights.unplaced;
                let many = Candidate::new(vec![(at, filling)], start..last, score);
                candidates.push(many.valued(place..last));
            }
            place += 1;
        }
    }

    /// Reads on behind a value: separators, and values of the same kind.
    fn run(&self, first: usize, slot: &Slot, value: Value) -> (Vec<Value>, usize) {
        let mut values = vec![value];
        let mut end = first + 1;
        loop {
            let mut next = end;
            while self.tokens.get(next).is_some_and(|token| {
                token.is_separator()
                    || next > end
                        && (token.is_any(&["of", "in", "the", "also", "for"])
                            || self.tool.has_noun(&token.stem, self.scene.lexicon))
            }) {
                next += 1;
            }
            let is_same =
                self.tokens.get(next).is_some_and(|token| token.kind == self.tokens[first].kind);
            if next == end || !is_same {
                return (values, end);
            }
            let Some((value, _)) = self.typed_value(next, slot) else { return (values, end) };
            values.push(value);
            end = next + 1;
        }
    }

    /// Returns the value that one token gives a slot, and how well it fits.
    fn typed_value(&self, at: usize, slot: &Slot) -> Option<(Value, f32)> {
        let weights = self.scene.weights;
        let token = &self.tokens[at];
        let text = || Value::String(token.value.clone());
        if self.moments.iter().any(|moment| {
            moment.tokens.contains(&at)
                && token.kind != Kind::Quoted
                && !(slot.is_numeric && moment.is_relative)
        }) && slot.kind != SlotKind::Word
        {
            return None;
        }
        match (slot.kind, token.kind) {
            (SlotKind::Email, Kind::Email) | (SlotKind::Url, Kind::Url) => {
                Some((text(), weights.form * 0.5))
            }
            (SlotKind::Word, _)
                if self.scene.lexicon.forms["slashed"].contains(&slot.parameter) =>
            {
                None
            }
            (SlotKind::Word, Kind::Email)
                if !slot
                    .about
                    .iter()
                    .any(|word| matches!(word.as_str(), "email" | "sender" | "author")) =>
            {
                None
            }
            (SlotKind::Word, Kind::Email) => Some((text(), -0.2)),
            (SlotKind::Query, Kind::Email | Kind::Code) => Some((text(), -0.2)),
            (SlotKind::Path, Kind::Path | Kind::Glob) => {
                Some((text(), if token.kind == Kind::Glob { -0.5 } else { 0.2 }))
            }
            (SlotKind::Path, Kind::Quoted) if !token.value.contains(' ') => Some((text(), -0.2)),
            (SlotKind::Word, Kind::Glob) => {
                let is_pattern = slot.words == ["pattern"];
                is_pattern.then(|| (text(), weights.form))
            }
            (SlotKind::Word, Kind::Path) => {
                let is_pattern =
                    slot.words.iter().any(|word| word == "pattern") && token.value.starts_with('.');
                is_pattern.then(|| (json!(format!("**/*{}", token.value)), weights.form))
            }
            (SlotKind::Word, Kind::Slug)
                if !self.scene.lexicon.forms["slashed"].contains(&slot.parameter) =>
            {
                Some((text(), -0.2))
            }
            (SlotKind::Word | SlotKind::Title, Kind::Code) => Some((text(), -0.3)),
            (SlotKind::Id, Kind::Number) if slot.is_numeric => Some((
                Value::Number(number(&token.value)?),
                if token.value.starts_with('#') { weights.form } else { 0.0 },
            )),
            (SlotKind::Id, Kind::Code | Kind::Id) if !slot.is_numeric => {
                self.id_fit(&token.value, slot).map(|fit| (text(), fit))
            }
            (SlotKind::Id, Kind::Number)
                if !slot.examples.is_empty()
                    && !slot
                        .examples
                        .iter()
                        .any(|example| example.bytes().any(|byte| byte.is_ascii_digit())) =>
            {
                None
            }
            (SlotKind::Id, Kind::Number) => {
                Some((text(), if token.value.len() > 5 { 0.2 } else { -0.4 }))
            }
            // `by 5` is a difference.
            (SlotKind::Number, Kind::Number)
                if self.tool.acts && at > 0 && self.tokens[at - 1].is("by") =>
            {
                None
            }
            (SlotKind::Number, Kind::Number) => Some((Value::Number(number(&token.value)?), 0.0)),
            (SlotKind::Number, Kind::Word) => {
                let small = self.scene.lexicon.small_number(&token.lower)?;
                // `one` is mostly no number.
                (small != 1).then(|| (json!(small), -0.3))
            }
            (SlotKind::Text | SlotKind::Title | SlotKind::Query, Kind::Quoted) => {
                Some((text(), weights.quoted))
            }
            (SlotKind::Word, Kind::Quoted) => Some((text(), weights.quoted * 0.5)),
            _ => None,
        }
    }

    /// Returns how well a code fits the examples and the nouns of an id.
    fn id_fit(&self, code: &str, slot: &Slot) -> Option<f32> {
        let weights = self.scene.weights;
        let fits = |slot: &Slot| slot.examples.iter().any(|example| has_form(code, example));
        if fits(slot) {
            return Some(weights.form);
        }
        // A code in the form of another id is never this one.
        let mut others = self.scene.tools.iter().flat_map(|tool| &tool.slots);
        let is_other = others.any(|other| other.kind == SlotKind::Id && fits(other));
        if is_other && !slot.examples.is_empty() {
            return None;
        }
        if is_other || !slot.examples.is_empty() {
            return Some(-weights.form);
        }
        let prefix: String =
            code.chars().take_while(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
        let nouns = slot.nouns(self.tool, self.scene.lexicon);
        let is_prefix = !prefix.is_empty()
            && nouns.iter().any(|noun| {
                noun.starts_with(&prefix)
                    || self
                        .scene
                        .lexicon
                        .synonyms(noun)
                        .iter()
                        .any(|other| other.starts_with(&prefix))
            });
        Some(if is_prefix { weights.form * 0.5 } else { 0.0 })
    }

    /// Returns how many words behind a number are its unit, and how well they fit.
    fn unit_after(&self, at: usize, slot: &Slot) -> (usize, f32) {
        let weights = self.scene.weights;
        let is_content = |token: &&Token| {
            token.kind == Kind::Word && !self.scene.lexicon.fillers.has(&token.lower)
        };
        let Some(next) = self.tokens.get(at + 1).filter(is_content) else { return (0, 0.0) };
        let lexicon = self.scene.lexicon;
        let is_unit = slot.words.contains(&next.stem)
            || slot.words.last().is_some_and(|word| lexicon.is_same_noun(word, &next.stem))
            || slot.about.contains(&next.stem)
            || lexicon.unit(&next.lower).is_some_and(|unit| {
                self.slot_unit(slot) == Some(unit) || self.slot_unit(slot).is_some()
            });
        let mut fit = if is_unit { weights.preposition } else { 0.0 };
        // `the first 20 lines`: words of the description on both sides.
        let before = at.checked_sub(1).map(|place| &self.tokens[place]);
        if before.is_some_and(|token| {
            token.kind == Kind::Word
                && slot.about.contains(&token.stem)
                && !self.scene.lexicon.prepositions.contains_key(&token.lower)
        }) {
            fit += weights.preposition;
        }
        (usize::from(is_unit), fit)
    }

    fn slot_unit(&self, slot: &Slot) -> Option<&'static str> {
        slot.parameter
            .rsplit('_')
            .next()
            .and_then(|word| self.scene.lexicon.unit(&word.to_lowercase()))
    }

    /// Converts `2 hours` to the unit of the slot.
    fn convert(&self, value: Value, at: usize, slot: &Slot) -> Value {
        let said = self.tokens.get(at + 1).and_then(|token| self.scene.lexicon.unit(&token.lower));
        let (Some(said), Some(wanted), Some(amount)) = (said, self.slot_unit(slot), value.as_f64())
        else {
            return value;
        };
        let factor = |unit: &str| match unit {
            "hours" => 3600.0,
            "minutes" => 60.0,
            _ => 1.0,
        };
        let amount = amount * factor(said) / factor(wanted);
        if amount.fract() == 0.0 {
            return json!(format!("{amount:.0}").parse::<i64>().unwrap_or_default());
        }
        Number::from_f64(amount).map_or(value, Value::Number)
    }

    fn add_choices(
        &self,
        at: usize,
        slot: &Slot,
        state: Option<(&str, usize)>,
        candidates: &mut Vec<Candidate>,
    ) {
        let weights = self.scene.weights;
        for choice in &slot.choices {
            let words: Vec<String> =
                choice.split(['_', '-', ' ']).map(|word| stem(&word.to_lowercase())).collect();
            if let Some((value, place)) = state
                && value == choice
            {
                candidates.push(self.one(
                    at,
                    json!(choice),
                    place..place + 1,
                    weights.choice * 2.0,
                ));
            }
            for place in 0..self.tokens.len() {
                let is_said = words.iter().enumerate().all(|(offset, word)| {
                    self.tokens.get(place + offset).is_some_and(|token| {
                        token.kind == Kind::Word && token.stem == *word
                            || matches!(token.kind, Kind::Code) && token.lower == *word
                    })
                });
                if !is_said || self.verb.contains(&place) && state.is_some() {
                    continue;
                }
                // The verb itself is no choice unless the choice is an action: `squash`.
                if self.verb.contains(&place) && self.tokens[place].stem == self.tool.verb {
                    continue;
                }
                let (context, start) = self.context(place, slot);
                candidates.push(self.one(
                    at,
                    json!(choice),
                    start..place + words.len(),
                    weights.choice + context.max(0.0),
                ));
            }
        }
    }

    fn add_flags(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let name: Vec<&String> = slot.words.iter().collect();
        for place in 0..self.tokens.len() {
            let is_said = name.iter().enumerate().all(|(offset, word)| {
                self.tokens
                    .get(place + offset)
                    .is_some_and(|token| token.kind == Kind::Word && token.stem == **word)
            });
            if is_said && !self.verb.contains(&place) {
                let is_negated = place > 0
                    && (self.tokens[place - 1].is("not") || self.tokens[place - 1].is("no"));
                let start = place - usize::from(is_negated);
                candidates.push(self.one(
                    at,
                    json!(!is_negated),
                    start..place + name.len(),
                    self.scene.weights.choice,
                ));
            }
        }
    }

    fn add_moments(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let is_end = slot.words.iter().any(|word| word == "end" || word == "until");
        let days: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.day.is_some()).collect();
        let times: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.time.is_some()).collect();
        let write = |day, time| json!(write_moment(day, time, &slot.description, slot.with_time));
        let place = if is_end { 1 } else { 0 };
        let recalled = || self.recalled_day();
        let day = days.get(place).or_else(|| days.first());
        let time = if slot.with_time { times.get(place) } else { None };
        let is_second = days.len() > 1 || time.is_some();
        if is_end && !is_second {
            return;
        }
        let Some(day_value) = day.and_then(|moment| moment.day).or_else(recalled) else { return };
        let value = write(day_value, time.and_then(|moment| moment.time));
        let own_day = days.get(place).copied();
        let first = own_day
            .map(|moment| moment.tokens.start)
            .into_iter()
            .chain(time.map(|moment| moment.tokens.start))
            .min();
        let last = own_day
            .map(|moment| moment.tokens.end)
            .into_iter()
            .chain(time.map(|moment| moment.tokens.end))
            .max();
        let (Some(first), Some(last)) = (first, last) else { return };
        // A time apart from its day claims only itself, because values may stand between them.
        let first =
            if last - first > 6 { time.map_or(first, |moment| moment.tokens.start) } else { first };
        let (mut context, start) = self.context(first, slot);
        if context < 0.0 && is_end {
            context = 0.0;
        }
        candidates.push(self.one(at, value, start..last, weights.typed + weights.form + context));
    }

    /// Returns the day of an earlier step: `at 11:00 that day`.
    fn recalled_day(&self) -> Option<chrono::NaiveDate> {
        self.scene
            .memory
            .steps
            .iter()
            .rev()
            .flat_map(|step| step.parameters.values())
            .find_map(|value| value.as_str()?.get(..10)?.parse().ok())
    }

    /// Adds texts behind cues: `titled X`, `saying X`.
    fn add_cued(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let lexicon = self.scene.lexicon;
        for place in 0..self.tokens.len() {
            let token = &self.tokens[place];
            let is_preposition = lexicon.prepositions.contains_key(&token.lower);
            // `about X` is a text only where one is needed.
            let is_about = slot.kind == SlotKind::Text && token.is("about");
            if is_about && !slot.is_required {
                continue;
            }
            let is_own = self.is_announced(slot, place);
            let is_cue = self.is_cue(token, slot);
            if !is_cue && !is_own
                || self.verb.contains(&place)
                    && place + 1 < self.tokens.len()
                    && !lexicon.states.contains_key(&token.lower)
                    && !is_state_cue(token, lexicon)
            {
                continue;
            }
            let mut value = place + 1;
            while self.tokens.get(value).is_some_and(|token| {
                token.is_mark(":")
                    || token.is_mark("=")
                    || token.is_any(&["is", "to", "the", "a", "an", "it"])
                        && token.kind == Kind::Word
                        && slot.kind != SlotKind::Text
                    || token.kind == Kind::Word && self.is_cue(token, slot) && value == place + 1
            }) {
                value += 1;
            }
            // `the title of issue 3 to X`
            let is_of =
                self.tokens.get(value).is_some_and(|token| token.is("of") || token.is("for"));
            if is_of && is_cue && self.tool.acts {
                self.add_set(at, slot, value, candidates);
            }
            let Some(first) = self.tokens.get(value) else { continue };
            let score = if is_cue && !is_preposition { weights.cue } else { weights.preposition };
            let start = place
                - usize::from(
                    place > 0
                        && self.tokens[place - 1].is_any(&["with", "the", "and", ",", "as", "("]),
                );
            if first.kind == Kind::Quoted {
                candidates.push(self.one(
                    at,
                    json!(first.value),
                    start..value + 1,
                    score + weights.typed + weights.quoted,
                ));
                continue;
            }
            // `with` announces a text only before quotation marks.
            if is_preposition && slot.kind == SlotKind::Text {
                continue;
            }
            if slot.kind == SlotKind::Id && !matches!(first.kind, Kind::Word) {
                continue;
            }
            if first.kind == Kind::Word && lexicon.prepositions.contains_key(&first.lower)
                || first.kind == Kind::Mark
                || slot.kind == SlotKind::Id
                || !is_cue
                    && !matches!(first.kind, Kind::Word | Kind::Slug | Kind::Email | Kind::Number)
                || first.kind == Kind::Number
                    && !self.tokens.get(value + 1).is_some_and(|next| next.kind == Kind::Word)
            {
                continue;
            }
            if slot.is_list && slot.kind == SlotKind::Word {
                let (values, end) = self.words_of_list(value);
                if end > value {
                    let score =
                        score + weights.typed + weights.unplaced * count_f32(values.len() - 1);
                    candidates
                        .push(self.one(at, json!(values), start..end, score).valued(value..end));
                }
                continue;
            }
            for end in self.extents(value, slot) {
                if !self.is_text(value..end, slot) {
                    continue;
                }
                // `about the sea` is a text as a whole.
                let mut text = self.slice(if is_about { place } else { value }..end);
                // The mark at the end of a sentence was cut off.
                let rest =
                    self.tokens.get(end - 1).and_then(|last| self.scene.query.get(last.end..));
                let mark = rest
                    .and_then(|rest| rest.chars().next())
                    .filter(|mark| matches!(mark, '!' | '?'));
                if slot.kind == SlotKind::Text && end == self.tokens.len() {
                    text.extend(mark);
                }
                let length = weights.length * count_f32(end - value);
                let bonus = if slot.kind == SlotKind::Text { length } else { -length };
                let penalty = if is_cue { 0.0 } else { 0.3 };
                let filling = self.as_value(text, slot);
                let score = score + weights.typed * 0.6 + bonus - penalty;
                // `the main branch`: the slot's own noun closes the value.
                let is_closed = self.tokens.get(end).is_some_and(|token| {
                    let is_own =
                        slot.words.contains(&token.stem) || slot.about.contains(&token.stem);
                    is_own && token.kind == Kind::Word && slot.kind == SlotKind::Word
                });
                let stop = end + usize::from(is_closed);
                let candidate = self.one(at, filling, start..stop, score);
                let mut candidate = candidate.valued(value..end);
                // Nobody sends `about lunch` as it stands.
                candidate.is_guess = is_about && self.tool.verb == "send";
                candidates.push(candidate);
            }
        }
    }

    /// Returns whether words without quotation marks can be the text of a slot: a short value has
    /// no e-mail address, code or path among other words, and no `and`.
    fn is_text(&self, range: Range<usize>, slot: &Slot) -> bool {
        let tokens = &self.tokens[range];
        let is_typed = |token: &Token| {
            matches!(
                token.kind,
                Kind::Email
                    | Kind::Code
                    | Kind::Path
                    | Kind::Slug
                    | Kind::Url
                    | Kind::Glob
                    | Kind::Id
            )
        };
        let has_own_cue = tokens.iter().skip(1).any(|token| {
            self.is_cue(token, slot) && !self.scene.lexicon.prepositions.contains_key(&token.lower)
        });
        let lexicon = self.scene.lexicon;
        let is_empty = tokens.iter().all(|token| {
            token.kind == Kind::Word
                && !token.is_capitalised()
                && (lexicon.fillers.has(&token.lower) || lexicon.loops.has(&token.lower))
        });
        if is_empty && slot.kind != SlotKind::Text {
            return false;
        }
        match slot.kind {
            SlotKind::Title | SlotKind::Word if has_own_cue => false,
            SlotKind::Text => !(tokens.len() == 1 && is_typed(&tokens[0])),
            SlotKind::Title => {
                tokens.len() < 2
                    || !tokens.iter().any(|token| is_typed(token) && token.kind != Kind::Code)
            }
            SlotKind::Query => !tokens.iter().any(|token| is_typed(token) || self.is_noun(token)),
            _ => {
                !tokens.iter().any(|token| {
                    tokens.len() > 1 && self.is_noun(token) && !slot.words.contains(&token.stem)
                }) && !(tokens.len() > 1 && tokens.iter().any(is_typed))
                    && !tokens.iter().any(|token| {
                        token.is("and")
                            || self.scene.lexicon.prepositions.contains_key(&token.lower)
                    })
            }
        }
    }

    /// Adds the value behind `to`: `change the phone of C-1 to X`.
    fn add_set(&self, at: usize, slot: &Slot, from: usize, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let Some(to) = (from + 2..self.tokens.len()).find(|place| self.tokens[*place].is("to"))
        else {
            return;
        };
        let first = to + 1;
        let Some(token) = self.tokens.get(first) else { return };
        let score = weights.cue + weights.typed + weights.preposition;
        if token.kind == Kind::Quoted {
            candidates.push(self.one(
                at,
                json!(token.value),
                to..first + 1,
                score + weights.quoted,
            ));
            return;
        }
        if slot.is_list {
            let (values, end) = self.words_of_list(first);
            candidates.push(self.one(at, json!(values), to..end, score));
        } else if slot.is_free() {
            for end in self.extents(first, slot) {
                let filling = json!(self.slice(first..end));
                let score = score + weights.length * count_f32(end - first);
                candidates.push(self.one(at, filling, to..end, score).valued(first..end));
            }
        }
    }

    /// Reads `docs, bug and help wanted` as a list.
    fn words_of_list(&self, first: usize) -> (Vec<String>, usize) {
        let lexicon = self.scene.lexicon;
        let mut values = Vec::new();
        let mut start = first;
        loop {
            let mut end = start;
            while self.tokens.get(end).is_some_and(|token| {
                matches!(token.kind, Kind::Word | Kind::Code | Kind::Quoted | Kind::Email)
                    && !token.is_separator()
                    && !lexicon.prepositions.contains_key(&token.lower)
                    && !lexicon.soft.has(&token.lower)
                    && !self
                        .tool
                        .slots
                        .iter()
                        .any(|slot| slot.is_free() && !slot.is_list && self.is_cue(token, slot))
            }) {
                end += 1;
            }
            if end == start {
                return (values, start.saturating_sub(usize::from(start > first)));
            }
            values.push(self.slice(start..end));
            let mut next = end;
            while self.tokens.get(next).is_some_and(Token::is_separator) {
                next += 1;
            }
            if next == end {
                return (values, end);
            }
            start = next;
        }
    }

    fn is_noun(&self, token: &Token) -> bool {
        token.kind == Kind::Word && self.tool.has_noun(&token.stem, self.scene.lexicon)
    }

    fn as_value(&self, text: String, slot: &Slot) -> Value {
        if slot.is_numeric {
            return number(&text).map_or(Value::Null, Value::Number);
        }
        Value::String(text)
    }

    /// Returns where a text that begins at a place may end: before marks, cues and prepositions.
    fn extents(&self, start: usize, slot: &Slot) -> Vec<usize> {
        let lexicon = self.scene.lexicon;
        let mut ends = Vec::new();
        for place in start + 1..self.tokens.len() {
            let token = &self.tokens[place];
            let is_stop = token.kind == Kind::Mark && !matches!(token.value.as_str(), "-" | "'")
                || lexicon.prepositions.contains_key(&token.lower) && token.kind == Kind::Word
                || token.is_separator()
                || lexicon.pronouns.has(&token.lower)
                || slot.words.contains(&token.stem)
                || slot.kind == SlotKind::Word && slot.about.contains(&token.stem)
                || lexicon.soft.has(&token.lower)
                || self.tool.slots.iter().any(|other| {
                    other.parameter != slot.parameter
                        && other.is_free()
                        && self.is_cue(token, other)
                })
                || !matches!(token.kind, Kind::Word | Kind::Mark | Kind::Quoted)
                || self.tool.has_noun(&token.stem, lexicon);
            if is_stop && ends.len() + 1 < EXTENTS {
                ends.push(place);
            }
        }
        ends.push(self.tokens.len());
        for end in &mut ends {
            while *end > start + 1
                && (lexicon.soft.has(&self.tokens[*end - 1].lower)
                    || self.tokens[*end - 1].kind == Kind::Mark
                    || self.tokens[*end - 1].is("and"))
            {
                *end -= 1;
            }
        }
        ends.dedup();
        ends
    }

    /// Returns the words of a range as the query has them.
    fn slice(&self, range: Range<usize>) -> String {
        let tokens = &self.tokens[range];
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return String::new();
        };
        if tokens.len() == 1 && first.kind == Kind::Quoted {
            return first.value.clone();
        }
        if first.start < last.end && tokens.windows(2).all(|pair| pair[0].end <= pair[1].start) {
            return self.scene.query[first.start..last.end].to_owned();
        }
        tokens.iter().map(|token| token.value.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Adds values that the description shows, and words before the slot's noun: `the front door`.
    fn add_examples(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        if slot.kind != SlotKind::Word {
            return;
        }
        let noun = slot.words.last().cloned().unwrap_or_default();
        let shown = self
            .tool
            .slots
            .iter()
            .chain(self.scene.tools.iter().flat_map(|tool| &tool.slots))
            .filter(|other| other.words == slot.words)
            .flat_map(|other| &other.examples);
        let shown: Vec<&String> = shown.collect();
        if shown.is_empty() && noun != "room" && noun != "door" {
            return;
        }
        let mut found: Vec<(Range<usize>, String, f32)> = Vec::new();
        for place in 0..self.tokens.len() {
            let token = &self.tokens[place];
            if token.kind != Kind::Word {
                continue;
            }
            for example in &shown {
                let words: Vec<&str> = example.split(' ').collect();
                let is_said = words.iter().enumerate().all(|(offset, word)| {
                    self.tokens.get(place + offset).is_some_and(|token| token.lower == *word)
                });
                if is_said {
                    found.push((place..place + words.len(), example.to_string(), weights.form));
                }
            }
            // `living room`, `hallway`: the noun closes the name, or a preposition opens it.
            let is_closed = self.tokens.get(place + 1).is_some_and(|next| next.stem == noun)
                && !self.scene.lexicon.fillers.has(&token.lower)
                && !self.scene.lexicon.loops.has(&token.lower)
                && !self.verb.contains(&place);
            if is_closed && self.tool.has_noun(&noun, self.scene.lexicon) {
                found.push((place..place + 1, token.value.clone(), weights.form * 0.5));
            }
        }
        found.sort_by_key(|(range, ..)| (range.start, std::cmp::Reverse(range.end)));
        found.dedup_by_key(|(range, ..)| range.start);
        let is_of_slot = |at: usize| self.context(at, slot);
        for (range, text, fit) in &found {
            let (context, start) = is_of_slot(range.start);
            candidates.push(self.one(
                at,
                json!(text),
                start..range.end,
                weights.typed + fit + context.max(0.0),
            ));
        }
        // `the kitchen, the bedroom and the hallway`
        for (range, text, fit) in &found {
            let mut values = vec![json!(text)];
            let mut end = range.end;
            loop {
                let mut next = end;
                while self.tokens.get(next).is_some_and(|token| {
                    token.is_separator() || next > end && token.is_any(&["the", "in", "my"])
                }) {
                    next += 1;
                }
                let Some(token) =
                    self.tokens.get(next).filter(|token| next > end && token.kind == Kind::Word)
                else {
                    break;
                };
                if self.scene.lexicon.fillers.has(&token.lower)
                    || self.scene.lexicon.is_noun(&token.stem)
                    || !self.scene.lexicon.concepts(&token.stem).is_empty()
                {
                    break;
                }
                let known = found.iter().find(|(range, ..)| range.start == next);
                let stop = known.map_or(next + 1, |(range, ..)| range.end);
                values.push(json!(self.slice(next..stop)));
                end = stop;
            }
            if values.len() > 1 && !slot.is_list {
                let (context, start) = is_of_slot(range.start);
                let fills = vec![(at, Filling::Many(values))];
                let score = weights.typed + fit + context + weights.unplaced;
                candidates.push(Candidate::new(fills, start..end, score).valued(range.start..end));
            }
        }
        let _ = &found;
    }

    /// Adds the words behind the verb and its noun: `play Miles Davis`, `search for red lamps`.
    fn add_bare(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let lexicon = self.scene.lexicon;
        let is_optional = !slot.is_required && !(slot.kind == SlotKind::Query && !self.tool.acts);
        if is_optional || slot.kind == SlotKind::Id || slot.is_list {
            return;
        }
        let worth = match slot.kind {
            SlotKind::Query => weights.bare * 2.0,
            SlotKind::Title => weights.bare * 1.5,
            _ => weights.bare,
        };
        let mut start = self.verb.iter().max().map_or(0, |place| place + 1).min(self.tokens.len());
        let is_passed = |token: &Token| {
            token.is_mark(":")
                || token.kind == Kind::Word
                    && !lexicon.soft.has(&token.lower)
                    && (lexicon.fillers.has(&token.lower)
                        || lexicon.small_number(&token.lower).is_some()
                        || self.tool.has_noun(&token.stem, lexicon)
                        || lexicon.is_compound_of(&token.stem, &self.tool.nouns))
        };
        while self.tokens.get(start).is_some_and(is_passed) {
            start += 1;
        }
        let is_loop = |token: &Token| lexicon.loops.has(&token.lower);
        let Some(first) =
            self.tokens.get(start).filter(|token| token.kind == Kind::Word && !is_loop(token))
        else {
            return;
        };
        let is_strange = self.tool.acts || slot.kind == SlotKind::Word;
        let is_verb = self.verb.is_empty() && !lexicon.concepts(&first.stem).is_empty();
        let is_noun = self.scene.nouns.contains(&first.stem)
            || lexicon.is_noun(&first.stem) && slot.kind == SlotKind::Word;
        let is_other = !first.is_capitalised() && (is_noun && is_strange || is_verb);
        let is_order = matches!(slot.kind, SlotKind::Title | SlotKind::Word)
            && self.tool.acts
            && !first.is_capitalised()
            && (!lexicon.concepts(&first.stem).is_empty()
                || lexicon.states.contains_key(&first.lower));
        let before = start.checked_sub(1).map(|place| &self.tokens[place]);
        let is_definite =
            before.is_some_and(|token| token.is("the") || lexicon.pronouns.has(&token.lower));
        if is_other
            || is_order
            || is_definite && slot.kind == SlotKind::Text
            || slot.kind == SlotKind::Word
                && slot.words.last().is_some_and(|word| word == "content")
                && is_definite
            || self.tool.slots.iter().any(|other| self.is_cue(first, other))
        {
            return;
        }
        let mut extents = self.extents(start, slot);
        if matches!(slot.kind, SlotKind::Word | SlotKind::Title) {
            extents.truncate(1);
        }
        for end in extents {
            if !self.is_text(start..end, slot) {
                continue;
            }
            // One of the tool's own words is no text: `comment its link`.
            let is_noun = lexicon.is_noun(&first.stem) || first.is("following");
            let is_reference =
                is_noun && slot.kind == SlotKind::Text && (is_definite || end == start + 1);
            if is_reference {
                continue;
            }
            let name = if first.is_capitalised() { weights.bare } else { 0.0 };
            let score = worth + name - weights.length * count_f32(end - start);
            let candidate = self.one(at, json!(self.slice(start..end)), start..end, score);
            candidates.push(Candidate {
                is_guess: slot.kind == SlotKind::Text && end - start > 3,
                ..candidate
            });
        }
    }

    /// Adds the pattern of `python files`.
    fn add_endings(&self, at: usize, candidates: &mut Vec<Candidate>) {
        for (place, token) in self.tokens.iter().enumerate() {
            let endings = self.scene.lexicon.forms["endings"].iter();
            let mut pairs = endings.filter_map(|pair| pair.split_once('='));
            let is_ending = self.tokens.get(place + 1).is_some_and(|next| next.stem == "file")
                && token.kind == Kind::Word
                && token.lower.len() <= 4
                && !self.scene.lexicon.fillers.has(&token.lower)
                && !self.scene.lexicon.loops.has(&token.lower)
                && !self.verb.contains(&place);
            if is_ending {
                let value = json!(format!("**/*.{}", token.lower));
                candidates.push(self.one(at, value, place..place + 1, self.scene.weights.choice));
            } else if let Some((ending, _)) = pairs.find(|(_, name)| *name == token.lower) {
                let value = json!(format!("**/*.{ending}"));
                candidates.push(self.one(at, value, place..place + 1, self.scene.weights.choice));
            }
        }
    }

    /// Adds words that mean a value of an earlier step.
    fn add_references(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let lexicon = self.scene.lexicon;
        let memory = self.scene.memory;
        if memory.steps.is_empty() {
            return;
        }
        for place in 0..self.tokens.len() {
            let token = &self.tokens[place];
            if token.kind != Kind::Word || self.verb.contains(&place) {
                continue;
            }
            // `by Alice`
            if slot.kind == SlotKind::Id
                && token.is_capitalised()
                && let Some(found) = memory.named(
                    token.without_possessive(),
                    slot,
                    self.tool,
                    self.scene.tools,
                    lexicon,
                )
            {
                let (_, start) = self.context(place, slot);
                candidates.push(self.linked(
                    at,
                    found.value,
                    start..place + 1,
                    weights.reference + weights.cue,
                    found.step,
                ));
                continue;
            }
            let is_definite = lexicon.pronouns.has(&token.lower) || token.is("the");
            if !is_definite {
                continue;
            }
            let mut head = place + 1;
            while self.tokens.get(head).is_some_and(|token| lexicon.ranks.has(&token.lower)) {
                head += 1;
            }
            let noun = self.tokens.get(head).filter(|token| {
                token.kind == Kind::Word
                    && !lexicon.prepositions.contains_key(&token.lower)
                    && !lexicon.fillers.has(&token.lower)
            });
            let is_alone = lexicon.pronouns.has(&token.lower);
            let (context, start) = self.context(place, slot);
            let mut options: Vec<(Option<&str>, usize)> = Vec::new();
            // `the order id`: a field of what the noun means.
            let field = noun.and(self.tokens.get(head + 1)).filter(|field| {
                field.kind == Kind::Word
                    && !lexicon.fillers.has(&field.lower)
                    && (!self.is_cue_here(field)
                        || self.tokens.get(head + 2).is_some_and(|next| next.is("as")))
            });
            if let Some(field) = field {
                options.push((Some(field.stem.as_str()), head + 2));
            }
            if let Some(noun) = noun {
                options.push((Some(noun.stem.as_str()), head + 1));
            }
            if is_alone {
                options.push((None, place + 1));
            } else if noun.is_none() && head > place + 1 {
                // `the newest`
                options.push((None, head));
            }
            for (word, end) in options {
                // `with the subject X`: the noun announces a value.
                let is_cue = end > place + 1
                    && self
                        .tool
                        .slots
                        .iter()
                        .any(|other| self.is_cue(&self.tokens[end - 1], other))
                    && self.tokens.get(end).is_some_and(|next| {
                        next.kind == Kind::Quoted
                            || next.kind == Kind::Word && !lexicon.fillers.has(&next.lower)
                    });
                let is_own =
                    |word: &str| slot.words.iter().any(|own| lexicon.is_same_noun(own, word));
                let is_foreign = slot.is_free()
                    && !slot.is_required
                    && !matches!(slot.kind, SlotKind::Text | SlotKind::Title)
                    && word.is_some_and(|word| !is_own(word));
                // A bare pronoun fills what is needed, and `there` a place.
                let is_person =
                    slot.kind == SlotKind::Email && token.is_any(&["him", "her", "them"]);
                let is_loose = word.is_none()
                    && !slot.is_required
                    && slot.kind != SlotKind::Id
                    && !token.is("there")
                    && !is_person;
                // `her` is no text, and `it` is none of several results.
                let is_text = slot.kind == SlotKind::Text && word.is_none();
                let is_wrong = is_text && token.is_any(&["him", "her", "his", "there"])
                    || self.scene.is_several && slot.kind != SlotKind::Path && word.is_none();
                if is_wrong
                    || is_loose
                    || is_cue
                    || is_foreign
                    || slot.kind == SlotKind::Text && !slot.is_required && word.is_none()
                {
                    continue;
                }
                if slot.is_free()
                    && slot.kind != SlotKind::Query
                    && !(slot.kind == SlotKind::Word && word.is_none())
                {
                    let Some(found) = memory.text(word, self.scene.tools, lexicon) else {
                        continue;
                    };
                    if slot.kind != SlotKind::Text && word.is_none() {
                        continue;
                    }
                    let (end, is_cued) = self.cue_after(end, slot);
                    let worth = if slot.kind == SlotKind::Text { 0.5 } else { 0.0 }
                        + if is_cued { weights.cue } else { 0.0 };
                    candidates.push(self.linked(
                        at,
                        found.value,
                        start..end,
                        weights.reference + worth + context.max(0.0),
                        found.step,
                    ));
                    continue;
                }
                let Some(found) =
                    memory.value_for(slot, self.tool, word, self.scene.tools, lexicon)
                else {
                    continue;
                };
                let value = match slot.kind {
                    SlotKind::Path => self.path_inside(&found.value),
                    _ => found.value,
                };
                candidates.push(self.linked(
                    at,
                    value,
                    start..end,
                    weights.reference + context,
                    found.step,
                ));
            }
        }
    }

    /// Returns whether a word announces a text of this tool.
    fn is_cue_here(&self, token: &Token) -> bool {
        self.tool.slots.iter().any(|slot| slot.is_free() && self.is_cue(token, slot))
    }

    fn linked(
        &self,
        slot: usize,
        value: Value,
        tokens: Range<usize>,
        score: f32,
        step: usize,
    ) -> Candidate {
        let start = tokens.start;
        let candidate = self.one(slot, value, tokens, score).valued(start..start);
        Candidate { link: Some(step), ..candidate }
    }

    /// Returns where `as the body` ends, if these words follow.
    fn cue_after(&self, end: usize, slot: &Slot) -> (usize, bool) {
        let is_as = self.tokens.get(end).is_some_and(|token| token.is("as") || token.is("in"));
        let mut at = end + 1;
        while self.tokens.get(at).is_some_and(|token| token.is_any(&["the", "its", "a"])) {
            at += 1;
        }
        let is_cue = self.tokens.get(at).is_some_and(|token| {
            self.is_cue(token, slot) || self.tool.has_noun(&token.stem, self.scene.lexicon)
        });
        if is_as && is_cue { (at + 1, true) } else { (end, false) }
    }

    /// Returns the path of a file that is moved into a directory: `move /a/x.csv into it`.
    fn path_inside(&self, directory: &Value) -> Value {
        let is_file = |path: &str| path.rsplit('/').next().is_some_and(|name| name.contains('.'));
        let file =
            self.tokens.iter().find(|token| token.kind == Kind::Path && is_file(&token.value));
        match (directory.as_str(), file) {
            (Some(path), Some(file)) if !is_file(path) && !path.contains("{{") => {
                let name = file.value.rsplit('/').next().unwrap_or_default();
                json!(format!("{}/{name}", path.trim_end_matches('/')))
            }
            _ => directory.clone(),
        }
    }

    /// Adds the text behind a colon: `comment on issue 3: looks good`.
    fn add_colon(&self, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let Some(colon) = self.tokens.iter().position(|token| token.is_mark(":")) else { return };
        let texts = self.tool.slots.iter().enumerate();
        for (at, _) in texts.filter(|(_, slot)| slot.kind == SlotKind::Text && slot.is_required) {
            let is_cue = colon > 0 && self.is_cue_here(&self.tokens[colon - 1]);
            if !is_cue && colon + 1 < self.tokens.len() {
                let range = colon + 1..self.tokens.len();
                candidates.push(self.one(at, json!(self.slice(range.clone())), range, weights.cue));
            }
        }
    }

    /// Adds `"a" to "b"` for two fields of one item: `change "a" to "b"`.
    fn add_pairs(&self, candidates: &mut Vec<Candidate>) {
        let fields: Vec<usize> = (0..self.tool.slots.len())
            .filter(|slot| self.tool.slots[*slot].field.is_some())
            .collect();
        let [old, new] = fields.as_slice() else { return };
        for place in 0..self.tokens.len().saturating_sub(2) {
            let is_pair = self.tokens[place].kind == Kind::Quoted
                && self.tokens[place + 2].kind == Kind::Quoted
                && self.tokens[place + 1].is_any(&["to", "with", "by", "into"]);
            if is_pair {
                let fills = vec![
                    (*old, Filling::One(json!(self.tokens[place].value))),
                    (*new, Filling::One(json!(self.tokens[place + 2].value))),
                ];
                candidates.push(Candidate::new(fills, place..place + 3, 3.0));
            }
        }
    }

    /// Adds `owner/repo` for the two parameters that a repository needs.
    fn add_slugs(&self, candidates: &mut Vec<Candidate>) {
        let weights = self.scene.weights;
        let names = &self.scene.lexicon.forms["slashed"];
        let slot_of =
            |name: &String| self.tool.slots.iter().position(|slot| slot.parameter == *name);
        let places: Option<Vec<usize>> = names.iter().map(slot_of).collect();
        let Some([owner, repo]) =
            places.as_deref().and_then(|places| <[usize; 2]>::try_from(places).ok())
        else {
            return;
        };
        let parts = |token: &Token| {
            let (owner, repo) = token.value.split_once('/')?;
            (token.kind == Kind::Slug).then(|| (json!(owner), json!(repo)))
        };
        let mut place = 0;
        while place < self.tokens.len() {
            let Some(pair) = parts(&self.tokens[place]) else {
                place += 1;
                continue;
            };
            let start = place
                .checked_sub(1)
                .filter(|before| {
                    self.tokens[*before].is_any(&["in", "of", "on", "from", "for", "to", "at"])
                })
                .unwrap_or(place);
            let worth = if start < place { weights.form } else { weights.form * 0.7 };
            let mut pairs = vec![pair];
            let mut end = place + 1;
            let one = |pairs: &[(Value, Value)]| {
                let (owners, repos): (Vec<Value>, Vec<Value>) = pairs.iter().cloned().unzip();
                match pairs {
                    [(o, r)] => {
                        vec![(owner, Filling::One(o.clone())), (repo, Filling::One(r.clone()))]
                    }
                    _ => vec![(owner, Filling::Many(owners)), (repo, Filling::Many(repos))],
                }
            };
            let is_wrong = start < place
                && self.tokens[start].is("from")
                && self.tool.slots.iter().any(|slot| slot.parameter == "head");
            let score = weights.typed + worth - if is_wrong { 1.5 } else { 0.0 };
            candidates.push(Candidate::new(one(&pairs), start..end, score));
            loop {
                let mut next = end;
                while self.tokens.get(next).is_some_and(|token| {
                    token.is_separator()
                        || next > end && token.is_any(&["of", "in", "from", "for", "also", "those"])
                }) {
                    next += 1;
                }
                let Some(pair) = self.tokens.get(next).filter(|_| next > end).and_then(parts)
                else {
                    break;
                };
                pairs.push(pair);
                end = next + 1;
            }
            if pairs.len() > 1 {
                candidates.push(Candidate::new(
                    one(&pairs),
                    start..end,
                    score + 2.0 * weights.unplaced,
                ));
            }
            place += 1;
        }
    }
}

fn is_state_cue(token: &Token, lexicon: &Lexicon) -> bool {
    lexicon.cues.values().any(|cues| cues.iter().any(|cue| *cue == token.lower))
}

fn count_f32(count: usize) -> f32 {
    u16::try_from(count).map_or(f32::MAX, f32::from)
}

impl Reading {
    /// Returns the parameters of each call.
    pub(super) fn calls(&self, tool: &Tool) -> Vec<Map<String, Value>> {
        let many = self.fillings.values().filter_map(|filling| match filling {
            Filling::Many(values) => Some(values.len()),
            Filling::One(_) => None,
        });
        let count = many.max().unwrap_or(1);
        (0..count).map(|call| self.call(tool, call)).collect()
    }

    fn call(&self, tool: &Tool, call: usize) -> Map<String, Value> {
        let mut parameters = Map::new();
        for (slot, filling) in &self.fillings {
            let value = match filling {
                Filling::One(value) => value.clone(),
                Filling::Many(values) => {
                    values.get(call).or(values.last()).cloned().unwrap_or_default()
                }
            };
            let slot = &tool.slots[*slot];
            match &slot.field {
                Some(field) => {
                    let items =
                        parameters.entry(slot.parameter.clone()).or_insert_with(|| json!([{}]));
                    items[0][field] = value;
                }
                None => {
                    parameters.insert(slot.parameter.clone(), value);
                }
            }
        }
        parameters
    }
}
