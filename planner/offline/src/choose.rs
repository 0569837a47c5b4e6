//! Which tool a clause asks for, by its words.

use super::{
    clause::{self, Clause},
    memory::Memory,
    profile::{Profile, Vocabulary},
    token::{Kind, Token},
    words::{self, Family},
};

/// Tools whose scores are closer than this are not told apart by words alone.
pub(super) const MARGIN: i32 = 5;
/// What a tool must reach.
const THRESHOLD: i32 = 20;
/// Unknown words that may stand before a noun.
const ADJECTIVES: usize = 4;

/// What a clause asks for, before anybody knows a tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// The stem of its verb.
    pub(super) verb: Option<String>,
    /// What the verb may mean, likeliest first.
    pub(super) families: Vec<Family>,
    /// What it is about, as stems.
    pub(super) object: Vec<String>,
    /// Where its verb ends.
    pub(super) after_verb: usize,
    /// Where its object ends.
    pub(super) after_object: usize,
    /// Words in the object's place that no tool knows.
    unknown: Vec<String>,
    count: Count,
    is_pronoun: bool,
    has_id: bool,
    mentions: Vec<String>,
}

/// How many things a clause is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Count {
    #[default]
    One,
    /// The noun is in the plural.
    Many,
    /// The clause says so.
    All,
}

impl Count {
    fn of_noun(self, lower: &str) -> Self {
        match self {
            Self::All => Self::All,
            _ if words::is_plural(lower) => Self::Many,
            _ => Self::One,
        }
    }
}

/// A tool and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Which profile.
    pub(super) at: usize,
    /// How well it fits; more is better.
    pub(super) score: i32,
}

impl Ask {
    /// Reads a clause; `before` is what the clause before asked for.
    pub(super) fn read(
        clause: &Clause,
        before: Option<&Self>,
        vocabulary: &Vocabulary,
        memory: &Memory,
    ) -> Self {
        let tokens = &clause.tokens;
        let mut ask = Self::default();
        if clause.has_verb {
            ask.verb = tokens.first().map(|it| it.stem.clone());
            ask.families =
                tokens.first().map(|it| words::families(&it.stem).to_vec()).unwrap_or_default();
            ask.after_verb = 1;
        }
        ask.read_object(tokens, vocabulary, memory);
        ask.read_rest(tokens, vocabulary);
        if !clause.has_verb {
            // A word that nobody knows, where the verb should be, is not to be guessed over.
            match tokens
                .first()
                .filter(|it| it.kind == Kind::Word && ask.unknown.first() == Some(&it.stem))
            {
                Some(strange) => ask.verb = Some(strange.stem.clone()),
                None => ask.inherit(tokens, before),
            }
        }
        ask
    }

    /// Gives a clause without a verb the one that its form or the clause before suggests.
    fn inherit(&mut self, tokens: &[Token], before: Option<&Self>) {
        let has_text =
            tokens.iter().any(|it| clause::is_content_cue(it) || clause::is_name_cue(it));
        let is_new = tokens
            .first()
            .is_some_and(|it| matches!(it.lower.as_str(), "a" | "an" | "new" | "another"));
        if let Some(before) = before.filter(|it| {
            !it.families.is_empty() && (!has_text || it.families.contains(&Family::Create))
        }) {
            self.families.clone_from(&before.families);
            self.verb.clone_from(&before.verb);
        } else if has_text || is_new {
            self.families = vec![Family::Create, Family::Send];
        } else if self.count != Count::One {
            self.families = vec![Family::List, Family::Search];
        }
    }

    fn read_object(&mut self, tokens: &[Token], vocabulary: &Vocabulary, memory: &Memory) {
        let mut at = self.after_verb;
        while let Some(token) = tokens.get(at) {
            let is_thing = token.kind == Kind::Word && vocabulary.things.contains(&token.stem);
            let is_searched = self.object.is_empty() && (token.is("for") || token.is("at"));
            if token.kind == Kind::Path
                && self.object.is_empty()
                && vocabulary.things.contains("fil")
            {
                self.object.push("fil".to_owned());
                break;
            } else if is_thing && token.is_possessive() {
                self.mentions.push(token.stem.clone());
            } else if is_thing {
                self.count = self.count.of_noun(&token.lower);
                self.object.push(token.stem.clone());
            } else if token.kind != Kind::Word || !self.object.is_empty() {
                break;
            } else if words::is_pronoun(&token.lower) {
                self.is_pronoun = true;
                if tokens
                    .get(at + 1)
                    .is_none_or(|it| it.kind != Kind::Word || words::is_preposition(&it.lower))
                {
                    break;
                }
            } else if words::is_determiner(&token.lower) {
                if matches!(token.lower.as_str(), "all" | "every") {
                    self.count = Count::All;
                }
            } else if let Some((name, _)) = memory.name_at(&tokens[at..]) {
                self.take_entity(memory.called(&name));
                if !token.is_possessive() {
                    break;
                }
            } else if (words::is_preposition(&token.lower) && !is_searched)
                || clause::is_name_cue(token)
                || clause::is_content_cue(token)
                || self.unknown.len() == ADJECTIVES
            {
                break;
            } else if !is_searched {
                self.unknown.push(token.stem.clone());
            }
            at += 1;
        }
        self.after_object = if self.object.is_empty() { self.after_verb } else { at };
        let is_indirect =
            self.unknown.iter().all(|it| vocabulary.cues.contains(it) || words::is_idle(it));
        if self.object.is_empty() && is_indirect {
            self.read_indirect(tokens, vocabulary, memory);
        }
    }

    /// Finds the object elsewhere: `set the name of author 5`, `rename it`, `write "x" to a.txt`.
    fn read_indirect(&mut self, tokens: &[Token], vocabulary: &Vocabulary, memory: &Memory) {
        if self.is_pronoun {
            self.take_entity(memory.latest());
            return;
        }
        let is_text = |it: &Token| {
            matches!(
                it.lower.as_str(),
                "titled" | "entitled" | "called" | "named" | "saying" | "about"
            )
        };
        let reach = tokens
            .iter()
            .skip(self.after_verb)
            .position(is_text)
            .map_or(tokens.len(), |it| it + self.after_verb);
        for at in self.after_verb..reach {
            let token = &tokens[at];
            if token.kind == Kind::Path && vocabulary.things.contains("fil") {
                self.object.push("fil".to_owned());
            } else if token.kind == Kind::Word && vocabulary.nouns.contains(&token.stem) {
                self.object.push(token.stem.clone());
            } else if token.kind == Kind::Word
                && let Some((name, _)) = memory.name_at(&tokens[at..])
            {
                self.take_entity(memory.called(&name));
            }
            if !self.object.is_empty() {
                return;
            }
        }
        if tokens.iter().any(|it| words::is_pronoun(&it.lower)) {
            self.is_pronoun = true;
            self.take_entity(memory.latest());
        }
    }

    fn take_entity(&mut self, entity: Option<&super::memory::Entity>) {
        self.object.extend(entity.and_then(|it| it.own_nouns.last().cloned()));
    }

    fn read_rest(&mut self, tokens: &[Token], vocabulary: &Vocabulary) {
        let reach = text_begins(tokens, self.after_object);
        let is_link = |it: &&Token| it.is("with") || it.is("id") || it.is("number");
        let next = tokens.iter().skip(self.after_object).find(|it| !is_link(it));
        self.has_id = next.is_some_and(|it| matches!(it.kind, Kind::Id | Kind::Number));
        for token in &tokens[self.after_object.min(reach)..reach] {
            if token.kind == Kind::Word && vocabulary.things.contains(&token.stem) {
                self.mentions.push(token.stem.clone());
            }
        }
    }

    /// Returns how well a tool fits, or nothing if it does not at all.
    fn score(&self, profile: &Profile) -> Option<i32> {
        let score =
            self.verb_score(profile)? + self.noun_score(profile)? + self.number_score(profile);
        let others = profile
            .others
            .iter()
            .map(|it| if self.mentions.contains(it) || self.object.contains(it) { 12 } else { -6 });
        let ids = profile
            .properties
            .iter()
            .filter_map(|it| it.noun.as_ref())
            .filter(|it| self.mentions.contains(it));
        let ids = i32::try_from(ids.count()).unwrap_or(0) * 4;
        Some(score + others.sum::<i32>() + ids)
    }

    fn verb_score(&self, profile: &Profile) -> Option<i32> {
        if profile.is_machinery() {
            let is_own = self.verb.as_ref().is_some_and(|it| profile.verbs.contains(it));
            return is_own.then_some(40);
        }
        let Some(verb) = &self.verb else {
            let place =
                profile.family.and_then(|it| self.families.iter().position(|said| *said == it));
            return match place {
                Some(place) => Some(30 - 6 * i32::try_from(place).unwrap_or(0)),
                None if self.families.is_empty() => Some(10),
                None => None,
            };
        };
        if let Some(place) = profile.verbs.iter().position(|it| it == verb) {
            return Some(if place == 0 { 40 } else { 34 });
        }
        let place = profile.family.and_then(|it| self.families.iter().position(|said| *said == it));
        if let Some(place) = place {
            return Some(30 - 6 * i32::try_from(place).unwrap_or(0));
        }
        if profile.examples.iter().any(|it| it.first() == Some(verb)) {
            return Some(30);
        }
        let is_asked = self.families.contains(&Family::Get)
            && (profile.only_looks() || profile.family.is_none() && !profile.acts());
        is_asked.then_some(15)
    }

    fn noun_score(&self, profile: &Profile) -> Option<i32> {
        let is_exact = self.verb.as_ref().is_some_and(|it| profile.verbs.first() == Some(it));
        let is_described = profile.family.is_none()
            && self.verb.as_ref().is_some_and(|it| profile.verbs.contains(it));
        let is_example = self.verb.is_some()
            && profile.examples.iter().any(|it| it.first() == self.verb.as_ref());
        let is_own_verb = is_exact || is_described || is_example;
        let takes_words = matches!(profile.family, Some(Family::Search | Family::Send) | None);
        let words: Vec<&String> = self.object.iter().chain(&self.unknown).collect();
        let mut score = 0;
        let mut is_matched = false;
        for word in &words {
            let is_solo = profile.nouns.is_empty() && profile.verbs.contains(word);
            let (points, matches) = if profile.nouns.contains(word) || is_solo {
                (40, true)
            } else if profile.head.contains(*word) {
                (25, true)
            } else if profile.others.contains(word) {
                (2, false)
            } else if profile.about.contains(*word)
                || profile.examples.iter().any(|it| it.contains(word))
            {
                (4, false)
            } else if profile.choices.contains(*word) {
                (20, true)
            } else if self.object.contains(word) {
                (-25, false)
            } else {
                (if is_own_verb && takes_words { 0 } else { -6 }, false)
            };
            score += points;
            is_matched |= matches;
        }
        // A verb that nothing else has says enough; `create` alone does not.
        let is_peculiar = is_own_verb
            && (profile.family.is_none()
                || self.object.is_empty() && self.unknown_is_a_value(profile));
        if !is_matched && !is_peculiar {
            return None;
        }
        let missing = profile.nouns.iter().filter(|it| !words.contains(it));
        let missed: i32 = missing.map(|it| if self.mentions.contains(it) { 10 } else { -12 }).sum();
        Some(score + missed)
    }

    /// Returns whether unknown words can be what the tool works on: `search for lamps`.
    fn unknown_is_a_value(&self, profile: &Profile) -> bool {
        self.unknown.is_empty() || matches!(profile.family, Some(Family::Search | Family::Send))
    }

    fn number_score(&self, profile: &Profile) -> i32 {
        let is_many = self.count == Count::All || (self.count == Count::Many && !self.has_id);
        match (profile.family, is_many) {
            (Some(Family::List), true) => 15,
            (Some(Family::Get | Family::Update | Family::Delete), true) => -10,
            (Some(Family::List), false) => -12,
            (Some(Family::Get), false) => 8,
            _ => 0,
        }
    }

    /// Returns whether a list of things was asked for.
    pub(super) fn is_plural(&self) -> bool {
        self.count != Count::One
    }
}

/// Returns where the first text of a clause begins: what follows is no evidence for a tool.
fn text_begins(tokens: &[Token], from: usize) -> usize {
    let cue = tokens
        .iter()
        .skip(from)
        .position(|it| clause::is_content_cue(it) || clause::is_name_cue(it));
    cue.map_or(tokens.len(), |it| it + from)
}

/// Returns the tools that fit, best first; ties in the catalog's order.
pub(super) fn candidates(ask: &Ask, profiles: &[Profile]) -> Vec<Candidate> {
    let scored = profiles
        .iter()
        .enumerate()
        .filter_map(|(at, it)| Some(Candidate { at, score: ask.score(it)? }));
    let mut candidates: Vec<Candidate> = scored.filter(|it| it.score >= THRESHOLD).collect();
    candidates.sort_by_key(|it| (std::cmp::Reverse(it.score), it.at));
    candidates
}

/// Returns the tools that share most words with a clause, for one that nothing fits.
pub(super) fn nearest(clause: &Clause, profiles: &[Profile], most: usize) -> Vec<usize> {
    let planned = profiles.iter().enumerate().filter(|(_, it)| !it.is_machinery());
    let mut scored: Vec<(i32, usize)> = planned
        .map(|(at, profile)| {
            let points = clause.tokens.iter().filter(|it| it.kind == Kind::Word).map(|it| {
                let stem = &it.stem;
                let is_family =
                    profile.family.is_some_and(|family| words::families(stem).contains(&family));
                4 * i32::from(profile.nouns.contains(stem))
                    + 3 * i32::from(profile.verbs.contains(stem))
                    + 2 * i32::from(is_family)
                    + 2 * i32::from(profile.head.contains(stem))
                    + i32::from(profile.about.contains(stem) && !words::is_idle(&it.lower))
            });
            (points.sum(), at)
        })
        .filter(|(points, _)| *points > 0)
        .collect();
    scored.sort_by_key(|(points, at)| (std::cmp::Reverse(*points), *at));
    scored.into_iter().take(most).map(|(_, at)| at).collect()
}
