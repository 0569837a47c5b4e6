//! The last gate before a tool is called that changes the world: every word of the query is
//! accounted for, and the words ask for exactly that.
//!
//! It does not know how a draft came to be. It reads the query once more against the calls: a word
//! is the value of a parameter, the tool's own, a reference to what an earlier call made, or one of
//! a closed list of words that say nothing ([`lists`]); anything else is in doubt, and what is in
//! doubt is refused. Whether a tool acts is its effect; its name says nothing here.

mod aim;
mod bound;
mod claim;
mod described;
mod dropped;
mod form;
mod lists;
mod measure;
mod order;
mod phrase;
mod refer;
mod said;
mod several;
mod spoken;
#[cfg(test)]
mod tests;
mod tie;
mod unknown;
mod worth;

use std::ops::Range;

use serde_json::{Map, Value};
use shared::tool::Effect;

use self::claim::{Claims, Place};
pub(super) use self::described::{Described, find_described};
use super::{
    effort::{Effort, Stop},
    explain::{self, Problem},
    mood::Taken,
    profile::{Profile, Vocabulary},
    token::{Kind, Token},
};

/// Words in doubt that a message shows.
const SHOWN: usize = 6;

/// A call of a draft.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    /// The step's id.
    pub(super) step: &'a str,
    /// The tool.
    pub(super) profile: &'a Profile,
    /// What it is told.
    pub(super) parameters: &'a Map<String, Value>,
    /// The parameters that nobody said.
    pub(super) assumed: &'a [String],
    /// The words that became values, where that was noted.
    pub(super) taken: &'a [Taken],
}

/// A part of the query, and the calls that were made of it.
#[derive(Clone, Debug)]
pub(super) struct Passage<'a> {
    /// Where it stands in the query.
    pub(super) bytes: Range<usize>,
    /// Whether it begins with what is to be done, instead of going on with what was said before.
    pub(super) has_verb: bool,
    /// The calls.
    pub(super) calls: Vec<Call<'a>>,
}

/// Why words leave in doubt what is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// They are no part of the order.
    Strange,
    /// The order does not begin with what the tool does.
    Verb,
    /// The tool is not named.
    Unnamed,
    /// They do not belong to the parameter that they stand before.
    Tie,
    /// They are in a value, and may be none of it.
    Inside,
    /// They may be one value, or several that do not go together.
    Apart,
    /// They measure something else than the parameter does.
    Unit,
    /// They are not in the form that the parameter wants, or may be read in two ways.
    Form,
    /// They may mean several things.
    Reference,
    /// They ask.
    Asked,
    /// No tool has them, where the verb of an order stands.
    Unknown,
    /// They are a text that may go on, or an order behind it.
    Said,
    /// They describe a value and are none: `the summary`.
    Described,
    /// They are too many to be checked.
    Long,
}

/// Words in doubt, as tokens of the query.
type Found = (Range<usize>, Doubt);

impl Call<'_> {
    /// Returns whether it changes the world, or what is done when.
    fn acts(&self) -> bool {
        self.profile.acts()
            || self.profile.is_machinery() && self.profile.tool.effect != Effect::Read
    }

    /// Returns whether it is told what an earlier call gives.
    fn is_linked(&self) -> bool {
        self.parameters.values().any(is_linked)
    }
}

fn is_linked(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("{{") && !text.starts_with("{{{{"),
        Value::Array(items) => items.iter().any(is_linked),
        Value::Object(fields) => fields.values().any(is_linked),
        _ => false,
    }
}

/// Returns what keeps the calls of passages, in the order of the query, from being carried out.
pub(super) fn check(
    query: &str,
    tokens: &[Token],
    vocabulary: &Vocabulary,
    passages: &[Passage<'_>],
    stop: &Stop,
) -> Option<Problem> {
    let gate = Gate { query, tokens, vocabulary, passages, effort: Effort::until(stop) };
    gate.check()
}

/// A query, and the calls that were made of it.
struct Gate<'a> {
    query: &'a str,
    tokens: &'a [Token],
    vocabulary: &'a Vocabulary,
    passages: &'a [Passage<'a>],
    effort: Effort,
}

impl Gate<'_> {
    fn check(&self) -> Option<Problem> {
        let acts = |it: &&Call<'_>| it.acts();
        let mut calls = self.passages.iter().flat_map(|it| &it.calls);
        let tool = calls.find(acts);
        let found = self.found().or_else(|| self.dropped());
        // What was not looked at to its end was not checked.
        let tool = tool.filter(|_| self.effort.is_over());
        tool.map(|it| self.problem(it.profile, (0..SHOWN, Doubt::Long))).or(found)
    }

    fn found(&self) -> Option<Problem> {
        let (gate, passages) = (self, self.passages);
        let mut looks =
            (0..passages.len()).filter(|it| !passages[*it].calls.iter().any(Call::acts));
        let unknown = looks.find_map(|it| gate.unknown(it));
        let mut calls = passages.iter().flat_map(|it| &it.calls);
        let tool = calls.find(|it| it.acts()).filter(|_| unknown.is_none());
        let Some(tool) = tool else {
            return unknown.map(|(profile, found)| gate.problem(profile, found));
        };
        for (at, passage) in passages.iter().enumerate() {
            let call = passage.calls.iter().find(|it| it.acts());
            if let Some(call) = call
                && let Some(found) = gate.passage(at)
            {
                return Some(gate.problem(call.profile, found));
            }
        }
        gate.between().map(|it| gate.problem(tool.profile, it))
    }

    /// Checks one passage.
    fn passage(&self, at: usize) -> Option<Found> {
        let passage = &self.passages[at];
        let place = Place::of(self.tokens, &passage.bytes)?;
        let claims = Claims::read(self, at, &place);
        // Several checks look from every value to every other, and from every word to the ends.
        let (values, words) = (claims.all.len(), place.to - place.from);
        let calls = passage.calls.len();
        if !self.effort.spend(values * values + calls * (values + words)) {
            return None;
        }
        self.asked(&place, &claims)
            .or_else(|| self.ordered(passage, &place, &claims))
            .or_else(|| self.named(passage, &place, &claims))
            .or_else(|| self.described(passage, &claims))
            .or_else(|| self.runs_on(at, &claims))
            .or_else(|| self.worths(passage, &claims))
            .or_else(|| self.misaimed(passage, &claims))
            .or_else(|| self.measured(&place, &claims))
            .or_else(|| self.formed(passage, &place, &claims))
            .or_else(|| self.shifted(passage, &claims))
            .or_else(|| self.several(passage, &claims))
            .or_else(|| self.cut_apart(&claims))
            .or_else(|| self.references(at, &place, &claims))
            .or_else(|| self.words(passage, &place, &claims))
    }

    /// Checks the words that belong to no passage: what they say is not carried out.
    fn between(&self) -> Option<Found> {
        let is_inside = |it: &Token| {
            self.passages.iter().any(|at| at.bytes.start <= it.start && it.end <= at.bytes.end)
        };
        let strange = (0..self.tokens.len())
            .find(|it| !is_inside(&self.tokens[*it]) && !self.is_idle_between(*it))?;
        Some((strange..strange + 1, Doubt::Strange))
    }

    fn is_idle_between(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        if at == 0 && token.kind == Kind::Mark {
            return ["-", "*", "•", "\n"].iter().any(|it| token.is_mark(it));
        }
        if token.is_mark("?") {
            return self.is_polite(at);
        }
        self.is_count_of_orders(at)
            || lists::is_joint(token)
            || lists::is_polite(token)
            || self.is_sequence(at)
    }

    /// Returns whether a number, or the mark behind it, only says which order comes: `1. …`, `2) …`.
    fn is_count_of_orders(&self, at: usize) -> bool {
        let number =
            if self.tokens[at].kind == Kind::Number { Some(at) } else { at.checked_sub(1) };
        let Some(number) = number.filter(|it| self.tokens[*it].kind == Kind::Number) else {
            return false;
        };
        let begins = number.checked_sub(1).is_none_or(|it| self.tokens[it].kind == Kind::Mark);
        let ends = self.tokens.get(number + 1).is_some_and(|it| it.is_mark(".") || it.is_mark(")"));
        begins && ends
    }

    /// Says what is in doubt, with the words around it that are in doubt, too.
    fn problem(&self, profile: &Profile, (at, doubt): Found) -> Problem {
        let from = at.start.min(self.tokens.len().saturating_sub(1));
        let to = at.end.min(from + SHOWN).clamp(from + 1, self.tokens.len().max(from + 1));
        let bytes = self.tokens.get(from).map_or(0, |it| it.start)
            ..self.tokens.get(to - 1).map_or(0, |it| it.end);
        let words = explain::shown(self.query.get(bytes).unwrap_or_default());
        let order = explain::order(profile);
        Problem::Doubtful { tool: profile.name.clone(), words, order, doubt }
    }
}
