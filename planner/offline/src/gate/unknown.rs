//! Orders that no tool has a verb for: none of them is answered with a look.

use super::{
    super::{
        clause,
        profile::Profile,
        token::{Kind, Token},
        words,
    },
    Call, Doubt, Found, Gate,
    claim::{Claims, Place},
};

/// Words between a verb and the thing that it is about.
const REACH: usize = 3;
/// Verbs by which people ask to be told something, beside those that many tools do.
const ASKS: &str = "describe explain report provide supply identify name state present print output reveal pull bring \
                    obtain gather extract pick select choose consult dig track trace monitor watch verify confirm \
                    test validate examine study review research explore discover quote define spell translate \
                    summarize summarise classify detect rank sort filter group count average measure compare \
                    estimate predict forecast project analyze analyse assess evaluate recommend suggest propose \
                    solve simplify derive integrate differentiate factor multiply divide subtract sum convert \
                    simulate model plot draw locate map navigate investigate scan perform run do use apply \
                    ensure assume suppose imagine consider given using tell inform advise clarify answer \
                    demonstrate illustrate outline refresh recall remember preview know hear \
                    understand learn see guess";

impl<'a> Gate<'a> {
    /// Finds the word of a passage that only looks with which an order begins that no tool knows:
    /// `Archive blog 5`, `…, then email the result`.
    pub(super) fn unknown(&self, passage: usize) -> Option<(&'a Profile, Found)> {
        let calls = &self.passages[passage].calls;
        let place = Place::of(self.tokens, &self.passages[passage].bytes)?;
        let claims = Claims::read(self, passage, &place);
        let call = calls.iter().find(|it| !it.is_linked()).or(calls.first())?;
        let swallowed = || {
            let at =
                (place.from + 1..place.to).find(|it| self.is_swallowed(*it, &place, &claims))?;
            Some(at..at + 1)
        };
        let is_linked = calls.iter().any(Call::is_linked);
        let head = || {
            let at = self.verb_at(&place).filter(|_| !is_linked)?;
            self.is_unknown(call.profile, at, &place, &claims).then_some(at..at + 1)
        };
        let found = head().or_else(swallowed)?;
        Some((call.profile, (found, Doubt::Unknown)))
    }

    /// Returns whether the first word of an order is a verb that no tool has, and that asks for
    /// nothing: what it is about stands behind it.
    fn is_unknown(&self, profile: &Profile, at: usize, place: &Place, claims: &Claims<'_>) -> bool {
        let verb = &self.tokens[at];
        let ends = [".", "!", "?", ";", "\n"];
        let end =
            (at..self.tokens.len()).find(|it| ends.iter().any(|end| self.tokens[*it].is_mark(end)));
        let is_question = end.is_some_and(|it| self.tokens[it].is_mark("?") && !self.is_polite(it));
        // `I forgot the keys`, `I need to catch a cab`: what is told is no order.
        let is_told =
            self.tokens[place.from..at].iter().any(|it| it.is("i") || it.is("we") || it.is("i'd"))
                && !self.tokens[place.from..at].iter().any(|it| it.is("you"));
        let is_joint = ["if", "when", "while", "because", "since", "although", "once", "as"]
            .iter()
            .any(|it| verb.is(it));
        let is_known = verb.kind != Kind::Word
            || is_question
            || is_told
            || is_joint
            || verb.lower.ends_with("ing")
            || claims.has(at)
            || verb.is_possessive()
            || self.vocabulary.is_verb(&verb.stem)
            || profile.is_about(&verb.stem)
            || profile.about.contains(&verb.stem)
            || words::is_idle(&verb.lower)
            || words::is_filler(&verb.lower)
            || words::is_preposition(&verb.lower)
            || words::is_determiner(&verb.lower)
            || words::is_participle(&verb.lower)
            || clause::is_content_cue(verb)
            || asks(verb);
        if is_known {
            return false;
        }
        let is_thing = |it: &Token| it.kind == Kind::Word && profile.is_about(&it.stem);
        let is_id = |it: usize| {
            self.tokens.get(it).is_some_and(|it| matches!(it.kind, Kind::Id | Kind::Number))
        };
        let identified =
            (at + 1..place.to).take(REACH).any(|it| is_thing(&self.tokens[it]) && is_id(it + 1));
        // `Zip the files`, `Suspend user Bob`: without an article the word may describe the thing.
        let is_article =
            |it: &Token| ["the", "a", "an", "all", "my"].iter().any(|word| it.is(word));
        let articles = self.tokens[at + 1..place.to].iter().take_while(|it| is_article(it)).count();
        let thing = at + 1 + articles;
        let is_named = self.tokens.get(thing).filter(|_| thing < place.to).is_some_and(is_thing);
        identified || is_named && (articles > 0 || claims.has(thing + 1) && thing + 1 < place.to)
    }

    /// Returns whether a word that became a value begins an order of its own: `then email the result`.
    fn is_swallowed(&self, at: usize, place: &Place, claims: &Claims<'_>) -> bool {
        let token = &self.tokens[at];
        let is_small = token.kind == Kind::Word && token.value.starts_with(char::is_lowercase);
        let next = self.tokens.get(at + 1).filter(|_| at + 1 < place.to);
        let is_object = next.is_some_and(|it| {
            words::is_pronoun(&it.lower)
                || ["the", "that", "this", "those", "these"].iter().any(|word| it.is(word))
        });
        is_small
            && !asks(token)
            && self.tokens[at - 1].is("then")
            && is_object
            && claims.at(at).is_some_and(|it| it.at.start == at && !it.is_name)
    }
}

/// Returns whether a word is one by which people ask to be told something.
fn asks(token: &Token) -> bool {
    ASKS.split_whitespace().any(|it| token.is(it))
}
