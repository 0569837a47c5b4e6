//! Values that describe a thing instead of saying it: `the summary`, `its title`. Such words are
//! never what a tool that acts is told; they mean what an earlier step gives, or nothing.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{
    super::{
        clause,
        effort::{Effort, Stop},
        profile::Profile,
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        words::{self, Family},
    },
    Doubt, Found, Gate, Passage,
    claim::{Claim, Claims, Place},
    lists,
    said::Text,
};

/// Words by which a phrase points at something that was spoken of.
const POINTING: &str = "this that these those its his her their";
/// Words by which a phrase speaks of something that the author has.
const OWNED: &str = "my our your";
/// Words that may stand between a determiner and a value that was cut out of the phrase.
const BETWEEN: usize = 3;
/// Words behind which `'s` is a verb: `it's fast`.
const SUBJECTS: &str = "it he she that this there here what who how where when let";
/// From this many words on, a text that was announced (`saying …`, `titled …`) is a sentence.
const SENTENCE: usize = 4;

/// A definite phrase, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phrase {
    /// All of it, with the word that makes it definite.
    pub(crate) at: Range<usize>,
    /// The words without that one.
    pub(crate) rest: Range<usize>,
}

/// A parameter whose value is a definite phrase.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The parameter's name.
    pub(crate) parameter: String,
    /// The phrase.
    pub(crate) phrase: Phrase,
}

impl Gate<'_> {
    /// Finds a value of a call that acts which only describes a thing.
    pub(super) fn described(&self, passage: &Passage<'_>, claims: &Claims<'_>) -> Option<Found> {
        let mut values = claims.all.iter().filter(|claim| !claim.is_name);
        values.find_map(|claim| self.description(passage, claim))
    }

    fn description(&self, passage: &Passage<'_>, claim: &Claim<'_>) -> Option<Found> {
        let call = claim.calls.first().and_then(|nth| passage.calls.get(*nth))?;
        let slots = claim.slot.into_iter().chain(claim.also);
        let mut slots = slots.filter(|slot| !call.assumed.contains(&slot.path.join(".")));
        if !call.acts() {
            return None;
        }
        let phrase = slots.find_map(|slot| {
            Speech { tokens: self.tokens, profile: call.profile, slot }.phrase(&claim.at)
        })?;
        Some((phrase.at, Doubt::Described))
    }
}

/// Returns the parameters of a call whose values are definite phrases.
pub(crate) fn find_described(
    query: &str,
    tokens: &[Token],
    profile: &Profile,
    parameters: &Map<String, Value>,
) -> Vec<Described> {
    let place = Place { from: 0, to: tokens.len() };
    let (said, effort) = (Text::read(query, tokens, &place), Effort::until(&Stop::default()));
    let mut found = Vec::new();
    for slot in profile.frame().slots.iter().filter(|slot| slot.path.len() == 1) {
        let name = &slot.property.name;
        let Some(value) = parameters.get(name).and_then(Value::as_str) else { continue };
        let speech = Speech { tokens, profile, slot };
        let phrase = said.find(value, &effort).iter().find_map(|at| speech.phrase(at));
        found.extend(phrase.map(|phrase| Described { parameter: name.clone(), phrase }));
    }
    found
}

/// An order, and the parameter for which a part of it is said.
struct Speech<'a> {
    tokens: &'a [Token],
    profile: &'a Profile,
    slot: &'a Slot,
}

impl Speech<'_> {
    /// Returns the definite phrase that a value is, or of which it is all but the beginning.
    fn phrase(&self, value: &Range<usize>) -> Option<Phrase> {
        let words = &self.tokens[value.clone()];
        if !words.iter().all(|token| token.kind == Kind::Word) {
            return None;
        }
        let determiner = self.determiner(value)?;
        let rest = value.start.max(determiner + 1)..value.end;
        let is_description = !rest.is_empty()
            && !self.is_name(determiner, &rest)
            && !self.is_sentence(determiner, &rest)
            && !self.is_modifier(value)
            && self.is_wanted(determiner, &rest);
        is_description.then_some(Phrase { at: determiner..value.end, rest })
    }

    /// Returns where the word is that makes a phrase definite: the value's first, or one before it.
    fn determiner(&self, value: &Range<usize>) -> Option<usize> {
        let is_definite = |token: &Token| {
            token.is("the") || is_in(POINTING, token) || is_in(OWNED, token) || is_owner(token)
        };
        if is_definite(&self.tokens[value.start]) {
            return Some(value.start);
        }
        if words::is_preposition(&self.tokens[value.start].lower) {
            // The word before it is a pronoun: `by her about rabbit holes`.
            return None;
        }
        let before = (0..value.start).rev().take(BETWEEN);
        let mut before = before.take_while(|at| {
            let token = &self.tokens[*at];
            is_definite(token) || token.kind == Kind::Word && words::is_determiner(&token.lower)
        });
        before.find(|at| is_definite(&self.tokens[*at]))
    }

    /// Returns whether a phrase is a name, as its capital letters say: `The Rock`.
    fn is_name(&self, determiner: usize, rest: &Range<usize>) -> bool {
        let is_title = self.tokens[determiner].is_capitalised() && determiner > 0;
        is_title && !is_owner(&self.tokens[determiner])
            || self.tokens[self.head(rest)].is_capitalised()
    }

    /// Returns where the noun of a phrase is: before what says which one.
    fn head(&self, rest: &Range<usize>) -> usize {
        let is_end = |at: &usize| words::is_preposition(&self.tokens[*at].lower);
        let end = (rest.start + 1..rest.end).find(is_end).unwrap_or(rest.end);
        end - 1
    }

    /// Returns whether words are a sentence, which says something: `the page is empty`.
    fn is_sentence(&self, determiner: usize, rest: &Range<usize>) -> bool {
        let has_verb = self.tokens[rest.clone()].iter().skip(1).any(|token| {
            let is_third = token.lower.ends_with('s') && !words::families(&token.stem).is_empty();
            lists::is_auxiliary(token)
                || token.lower.ends_with("n't")
                || words::is_participle(&token.lower)
                || is_third
        });
        let before = determiner.checked_sub(1).map(|at| &self.tokens[at]);
        let is_announced = before.is_some_and(|token| {
            clause::is_content_cue(token) && token.lower.ends_with("ing")
                || clause::is_name_cue(token)
        });
        let is_of = self.tokens[rest.clone()].iter().any(|token| token.is("of"));
        has_verb || is_announced && rest.len() >= SENTENCE && !is_of
    }

    /// Returns whether a value only says which thing the noun behind it means: `the general channel`.
    fn is_modifier(&self, value: &Range<usize>) -> bool {
        self.tokens.get(value.end).is_some_and(|next| {
            next.kind == Kind::Word
                && !words::is_preposition(&next.lower)
                && (self.profile.is_about(&next.stem) || self.slot.words.contains(&next.stem))
        })
    }

    /// Returns whether the parameter wants what the phrase describes. One that names an existing
    /// thing is also given by `the`: `the kitchen`.
    fn is_wanted(&self, determiner: usize, rest: &Range<usize>) -> bool {
        let token = &self.tokens[determiner];
        let before = determiner.checked_sub(1).map(|at| &self.tokens[at]);
        let is_topic = before.is_some_and(|token| token.is("about"));
        match self.slot.role() {
            Role::Content | Role::Path => true,
            Role::Title => !is_in(OWNED, token) && !is_topic,
            Role::Name | Role::Text | Role::Id if is_in(OWNED, token) => false,
            Role::Name | Role::Text | Role::Id if !token.is("the") => true,
            Role::Name => self.profile.family == Some(Family::Create) && !is_topic,
            Role::Text => {
                let is_placed = before.is_some_and(|token| words::is_preposition(&token.lower));
                let head = &self.tokens[self.head(rest)];
                let is_own = rest.len() > 1 && self.slot.words.contains(&head.stem);
                !is_placed && !is_own && !self.names_existing()
            }
            _ => false,
        }
    }

    /// Returns whether the parameter says which existing thing, place or person is meant.
    fn names_existing(&self) -> bool {
        let Slot { traits, property, .. } = self.slot;
        let told = property.description.to_lowercase();
        let mut told = told.split(|char: char| !char.is_alphanumeric());
        traits.is_place
            || traits.is_person
            || traits.is_code
            || told.any(|word| matches!(word, "name" | "which"))
    }
}

/// Returns whether a word says whose something is: `Ann's`.
fn is_owner(token: &Token) -> bool {
    let subject = token.without_possessive().to_lowercase();
    token.is_possessive() && !SUBJECTS.split(' ').any(|word| word == subject)
}

fn is_in(list: &str, token: &Token) -> bool {
    token.kind == Kind::Word && list.split(' ').any(|word| token.lower == word)
}
