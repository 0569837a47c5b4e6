//! Parts of an order that no call carries out: `read a.txt and email it to sam@x.com` needs both.

use super::{
    super::{
        explain::{self, Problem},
        profile::Profile,
        token::{Kind, Token},
        words::{self, Family},
    },
    Gate, Passage,
    claim::{Claims, Place},
};

/// Words with which an order is about something.
const OBJECTS: &str = "it them him her this that these those the a an my our all every each";
/// Words behind somebody whom an order gives something: `email sam@x.com its title`.
const GIVEN: &str = "the a an this that these those its his her their my our";
/// Verbs that tell or ask and order nothing.
const NO_ORDERS: &str = "is are what which who how where when";

/// Words that may stand before the verb of an order.
const LEAD: usize = 8;

/// A part of the query, with what its words are worth.
struct Inside<'a> {
    passage: &'a Passage<'a>,
    claims: Claims<'a>,
    place: Place,
    /// Whether there are as many calls as orders that are no looks.
    has_calls: bool,
}

impl Gate<'_> {
    /// Finds a part of an order whose verb no call answers.
    pub(super) fn dropped(&self) -> Option<Problem> {
        let orders = self.orders_given();
        let mut is_answered = vec![false; orders.len()];
        for (nth, passage) in self.passages.iter().enumerate() {
            let Some(place) = Place::of(self.tokens, &passage.bytes) else { continue };
            let from = orders.partition_point(|order| *order < place.from);
            let to = orders.partition_point(|order| *order < place.to);
            if from < to {
                let claims = Claims::read(self, nth, &place);
                let acts = |order: &&usize| {
                    !is_look(&self.tokens[**order].stem) && claims.at(**order).is_none()
                };
                let has_calls = orders[from..to].iter().filter(acts).count() <= passage.calls.len();
                let inside = Inside { passage, claims, place, has_calls };
                for (order, is_answered) in orders[from..to].iter().zip(&mut is_answered[from..to])
                {
                    *is_answered |= self.is_answered(*order, &inside);
                }
            }
        }
        let nth = is_answered.iter().position(|is_answered| !is_answered)?;
        let (dropped, next) = (orders[nth], orders.get(nth + 1).copied());
        let next = next.unwrap_or(self.tokens.len());
        let last = (dropped..next).rev().find(|at| !is_joint(&self.tokens[*at])).unwrap_or(dropped);
        let bytes = self.tokens[dropped].start..self.tokens[last].end;
        let words = explain::shown(self.query.get(bytes).unwrap_or_default());
        Some(Problem::Leftover { words })
    }

    /// Returns where the words are with which orders begin.
    fn orders_given(&self) -> Vec<usize> {
        let mut orders = Vec::new();
        let (mut begins, mut begins_sentence, mut is_first) = (true, true, true);
        for (at, token) in self.tokens.iter().enumerate() {
            if is_joint(token) {
                let is_end = token.kind == Kind::Mark && !token.is_mark(",") && !token.is_mark("&");
                (begins, begins_sentence) = (true, begins_sentence && begins || is_end);
                continue;
            }
            if begins && token.kind == Kind::Word && words::is_filler(&token.lower) {
                continue;
            }
            let is_written = token.value.starts_with(char::is_lowercase) || begins_sentence;
            if begins && is_written && self.is_order(at, is_first) {
                orders.push(at);
            }
            (begins, begins_sentence, is_first) = (false, false, false);
        }
        orders
    }

    /// Returns whether an order begins with a word: with the verb of a tool, or with another word
    /// that is about something as a verb is.
    fn is_order(&self, at: usize, is_first: bool) -> bool {
        let token = &self.tokens[at];
        let is_other = token.kind != Kind::Word
            || words::is_preposition(&token.lower)
            || words::is_idle(&token.lower) && words::families(&token.stem).is_empty()
            || words::is_participle(&token.lower)
            || token.lower.ends_with("ing")
            || token.is_possessive()
            || is_in(NO_ORDERS, token);
        let Some(next) = self.tokens.get(at + 1).filter(|_| !is_other) else { return false };
        let is_about = is_in(OBJECTS, next)
            || matches!(next.kind, Kind::Quoted | Kind::Path | Kind::Email | Kind::Url | Kind::Id)
            || next.kind == Kind::Word && self.vocabulary.things.contains(&next.stem);
        let is_giving = matches!(next.kind, Kind::Word | Kind::Email)
            && !words::is_preposition(&next.lower)
            && self.tokens.get(at + 2).is_some_and(|given| is_in(GIVEN, given));
        let is_tools_verb = self.vocabulary.verbs.contains(&token.stem);
        if is_first {
            return is_about && is_tools_verb && !is_look(&token.stem);
        }
        let is_strange = words::families(&token.stem).is_empty() && !is_tools_verb;
        let is_noun = self.vocabulary.nouns.contains(&token.stem);
        let is_verb_by_place =
            matches!(next.lower.as_str(), "it" | "them" | "him" | "the" | "a" | "an")
                && (words::is_pronoun(&next.lower) || is_noun)
                || is_noun && (is_giving || next.kind == Kind::Email);
        (is_about || is_giving && is_noun) && (!is_strange || is_verb_by_place)
    }

    /// Returns whether a call does what an order says, or the order is only text.
    fn is_answered(&self, at: usize, inside: &Inside<'_>) -> bool {
        let Inside { passage, claims, place, has_calls } = inside;
        if claims.at(at).is_some_and(|claim| claim.at.start < at && claim.slot.is_some()) {
            return true;
        }
        // `create author Al, email al@x.com` names a parameter.
        let named = claims.at(at + 1).and_then(|claim| claim.slot);
        if named.is_some_and(|slot| slot.words.contains(&self.tokens[at].stem)) {
            return true;
        }
        let is_idle = |token: &Token| is_joint(token) || words::is_filler(&token.lower);
        let is_first = at - place.from < LEAD && self.tokens[place.from..at].iter().all(is_idle);
        let stem = &self.tokens[at].stem;
        let is_owned = passage.calls.iter().any(|call| self.owns(call.profile, stem, is_first));
        is_owned && (is_look(stem) || *has_calls)
    }

    /// Returns whether a verb asks for a tool. A noun of the tool does so where no verb stands before
    /// it: `email the report`.
    fn owns(&self, profile: &Profile, stem: &str, is_first: bool) -> bool {
        let families = words::families(stem);
        let is_noun = families.is_empty()
            && !self.vocabulary.verbs.contains(stem)
            && is_first
            && profile.owns_verb(stem);
        profile.verbs.iter().any(|verb| verb == stem)
            || profile.family.is_some_and(|family| families.contains(&family))
            || profile.examples.iter().any(|words| words.first().is_some_and(|word| word == stem))
            || is_look(stem) && profile.only_looks()
            || is_noun
    }
}

/// Returns whether a verb asks for a look.
fn is_look(stem: &str) -> bool {
    let is_one = |family: &Family| matches!(family, Family::Get | Family::List | Family::Search);
    words::families(stem).iter().any(is_one)
}

/// Returns whether a word or mark stands between orders.
fn is_joint(token: &Token) -> bool {
    let is_mark = token.kind == Kind::Mark
        && [",", ";", ".", "!", "?", "&", "\n"].contains(&token.value.as_str());
    is_mark || ["and", "then", "plus"].iter().any(|word| token.is(word))
}

fn is_in(list: &str, token: &Token) -> bool {
    token.kind == Kind::Word && list.split(' ').any(|word| token.lower == word)
}
