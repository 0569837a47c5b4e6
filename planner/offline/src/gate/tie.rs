//! The words between values: each is the tool's own, or says nothing, or stands where it fits.

use super::{
    super::{
        clause,
        profile::Profile,
        slot::Slot,
        token::{Kind, Token},
        unit, words,
        words::Family,
    },
    Doubt, Found, Gate, Passage,
    claim::{Claim, Claims, Place},
    lists,
};

/// Words that say where something comes from, in the name or the description of a parameter.
const SOURCES: &str =
    "from source origin start begin departure sender since old initial previous original";
/// The same, of where it goes to.
const TARGETS: &str = "to target destination end recipient arrival new";
/// Verbs that take something from somewhere.
const TAKES: &str = "subtract deduct take remove withdraw download extract read copy import fetch export move cut \
                     pull get load restore delete revoke unsubscribe disconnect detach collect clone \
                     buy order rent borrow receive convert translate";
/// How far behind a word its value begins.
const REACH: usize = 4;

impl<'a> Gate<'a> {
    /// Checks every word of a passage.
    pub(super) fn words(
        &self,
        passage: &Passage<'_>,
        place: &Place,
        claims: &Claims<'a>,
    ) -> Option<Found> {
        let profile = passage.calls.iter().find(|it| it.acts())?.profile;
        let verb = (place.from..place.to).find_map(|at| {
            (!claims.has(at))
                .then(|| self.orders(profile, at, place))
                .flatten()
                .map(|it| at..at + it)
        });
        let is_linked = self.is_linked(passage);
        let why = |at: usize| {
            let is_verb = verb.as_ref().is_some_and(|it| it.contains(&at) && passage.has_verb);
            let is_known = is_verb || claims.has(at);
            (!is_known).then(|| self.word(profile, at, place, claims, is_linked)).flatten()
        };
        let from = (place.from..place.to).find(|it| why(*it).is_some())?;
        let to = (from..place.to).take(super::SHOWN).take_while(|it| why(*it).is_some()).last()?;
        Some((from..to + 1, why(from)?))
    }

    /// Returns why a word leaves in doubt what is to be done, if it does.
    fn word(
        &self,
        profile: &Profile,
        at: usize,
        place: &Place,
        claims: &Claims<'a>,
        is_linked: bool,
    ) -> Option<Doubt> {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1).filter(|_| at + 1 < place.to);
        if token.kind == Kind::Mark {
            let closes = token.is_mark(")")
                && self.effort.spend(at - place.from)
                && !self.tokens[place.from..at].iter().any(|it| it.is_mark("("))
                && !at.checked_sub(1).is_some_and(|it| self.tokens[it].kind == Kind::Number);
            let is_lead = at == 0
                && !token.is_mark("\n")
                && !["-", "*", "•"].iter().any(|it| token.is_mark(it));
            let is_text_end = token.is_mark("?");
            let is_foot = ["'", "\""].iter().any(|it| token.is_mark(it));
            let is_around = Self::is_around(token, at, claims, self.tokens);
            let is_idle = lists::is_mark(token) && !closes && !is_lead && !is_foot
                || is_text_end
                || is_around;
            return (!is_idle).then_some(Doubt::Strange);
        }
        if token.kind != Kind::Word {
            let counts = token.kind == Kind::Number
                && next.is_some_and(|it| it.is_mark(".") || it.is_mark(")"))
                && at == place.from;
            return (!counts).then_some(Doubt::Strange);
        }
        if lists::is_hard(token) {
            return Some(Doubt::Strange);
        }
        if lists::is_from(token) {
            return (!self.comes_from(profile, at, place, claims)).then_some(Doubt::Tie);
        }
        let is_number = |at: usize| {
            self.tokens.get(at).is_some_and(|it| it.kind == Kind::Number) && claims.has(at)
        };
        let is_range = token.is("to")
            && is_number(at + 1)
            && at > place.from
            && claims.numbers.iter().any(|it| it.at.end == at)
            && !Self::are_two(at, claims);
        if is_range || token.is("to") && self.goes_to_source(at, place, claims) {
            return Some(Doubt::Tie);
        }
        if words::is_pronoun(&token.lower)
            || matches!(token.lower.as_str(), "this" | "that" | "these" | "those")
        {
            let is_owner = next.is_some_and(|it| Self::is_own(profile, it));
            let says = next.is_some_and(|it| {
                ["is", "says", "reads", "has", "say"].iter().any(|word| it.is(word))
            });
            return (!is_linked && !is_owner && !says).then_some(Doubt::Reference);
        }
        if self.is_clause(at, claims) || self.is_valueless(profile, at, place, claims) {
            return Some(Doubt::Strange);
        }
        let is_said = lists::is_idle(token)
            || ["and", "then", "also"].iter().any(|it| token.is(it))
            || lists::is_joint(token) && self.is_edge(at, place)
            || token.lower.ends_with("ing") && claims.has(at + 1)
            || lists::is_polite(token) && self.is_edge(at, place)
            || self.is_sequence(at)
            || clause::is_content_cue(token)
            || clause::is_name_cue(token)
            || is_linked && words::is_result(&token.stem)
            || self.is_link_noun(token, is_linked)
            || Self::is_own(profile, token)
            || self.is_unit(at, claims)
            || self.is_count(profile, at, place, claims)
            || self.is_fitting(profile, at, place, claims);
        (!is_said).then_some(Doubt::Strange)
    }

    /// Returns whether a mark is one of two around a value that is no number: `<a@b.io>`.
    fn is_around(token: &Token, at: usize, claims: &Claims<'a>, tokens: &[Token]) -> bool {
        let is_text = |it: &Claim<'_>| {
            !it.slot.is_some_and(|it| it.property.is_numeric())
                && tokens[it.at.start].kind != Kind::Number
        };
        if token.is_mark("<") {
            let claim = claims.at(at + 1).filter(|it| is_text(it));
            return claim.and_then(|it| tokens.get(it.at.end)).is_some_and(|it| it.is_mark(">"));
        }
        let claim = at.checked_sub(1).and_then(|it| claims.at(it)).filter(|it| is_text(it));
        let open = claim.and_then(|it| tokens.get(it.at.start.checked_sub(1)?));
        token.is_mark(">") && open.is_some_and(|it| it.is_mark("<"))
    }

    /// Returns whether a word asks for a parameter that nobody gives a value: `… and a bio`.
    fn is_valueless(
        &self,
        profile: &Profile,
        at: usize,
        place: &Place,
        claims: &Claims<'a>,
    ) -> bool {
        let token = &self.tokens[at];
        let is_last = self.tokens[at + 1..place.to].iter().all(|it| it.kind == Kind::Mark);
        let mut before = self.tokens[place.from..at].iter().rev();
        let led = before.find(|it| !["a", "an", "some"].iter().any(|word| it.is(word)));
        let is_added = led.is_some_and(|it| it.is("and") || it.is("with") || it.is_mark(","));
        let has =
            |it: &Slot| claims.all.iter().any(|at| at.slot.is_some_and(|at| at.path == it.path));
        let mut slots = profile.frame().slots.iter().filter(|it| it.words.contains(&token.stem));
        is_last
            && is_added
            && !profile.is_about(&token.stem)
            && slots.clone().next().is_some()
            && slots.all(|it| !has(it))
    }

    /// Returns whether a call of a passage is told what an earlier one gives, or was told.
    pub(super) fn is_linked(&self, passage: &Passage<'_>) -> bool {
        let before = self.passages.iter().filter(|it| it.bytes.start < passage.bytes.start);
        let known: Vec<_> =
            before.flat_map(|it| &it.calls).flat_map(|it| it.parameters.values()).collect();
        let is_again = |it: &super::Call<'_>| it.parameters.values().any(|at| known.contains(&at));
        passage.calls.iter().any(|it| it.is_linked() || is_again(it))
    }

    /// Returns whether a word stands where politeness does: before the verb, or at the end.
    fn is_edge(&self, at: usize, place: &Place) -> bool {
        let is_polite =
            |it: &Token| lists::is_polite(it) || it.kind == Kind::Mark || lists::is_joint(it);
        let polite = |tokens: &[Token]| {
            let led = tokens.iter().take_while(|it| is_polite(it)).count();
            self.effort.spend(4 * led) && led == tokens.len()
        };
        polite(&self.tokens[place.from..at])
            || polite(&self.tokens[at..place.to])
            || ["me", "us", "just", "now"].iter().any(|it| self.tokens[at].is(it))
    }

    /// Returns whether a word is one of the tool's.
    pub(super) fn is_own(profile: &Profile, token: &Token) -> bool {
        let stem = &token.stem;
        token.kind == Kind::Word
            && !lists::is_hard(token)
            && (profile.nouns.contains(stem)
                || profile.head.contains(stem)
                || profile.others.contains(stem)
                || profile.about.contains(stem)
                || profile.frame().slots.iter().any(|it| it.words.contains(stem)))
    }

    /// Returns whether a word says what kind of thing is meant that an earlier call made.
    fn is_link_noun(&self, token: &Token, is_linked: bool) -> bool {
        let mut calls = self.passages.iter().flat_map(|it| &it.calls);
        is_linked && calls.any(|it| it.profile.is_about(&token.stem))
    }

    /// Returns whether a word says what a number before it measures.
    fn is_unit(&self, at: usize, claims: &Claims<'a>) -> bool {
        let before = at.checked_sub(1).is_some_and(|it| claims.has(it));
        before && unit::find(&self.tokens[at].value).is_some()
            || claims.numbers.iter().any(|it| it.slot.is_some() && it.at.contains(&at))
    }

    /// Returns whether a number counts what is listed, of what stands before it: `2 boxes of`.
    fn is_count(&self, profile: &Profile, at: usize, place: &Place, claims: &Claims<'a>) -> bool {
        let is_counted = at.checked_sub(1).is_some_and(|it| {
            claims.at(it).and_then(|it| it.slot).is_some_and(|it| it.property.is_numeric())
        });
        let is_of = (at + 1 < place.to) && self.tokens[at + 1].is("of");
        is_counted
            && is_of
            && words::is_plural(&self.tokens[at].lower)
            && !profile.properties.is_empty()
    }

    /// Returns the value that a word stands before.
    fn claim_behind<'c>(
        &self,
        at: usize,
        place: &Place,
        claims: &'c Claims<'a>,
    ) -> Option<&'c Claim<'a>> {
        for at in (at + 1..place.to).take(REACH) {
            if let Some(claim) = claims.at(at) {
                return Some(claim);
            }
            let token = &self.tokens[at];
            if token.kind != Kind::Word || words::is_preposition(&token.lower) {
                return None;
            }
        }
        None
    }

    /// Returns whether something may come from where words say so.
    fn comes_from(&self, profile: &Profile, at: usize, place: &Place, claims: &Claims<'a>) -> bool {
        let token = &self.tokens[at];
        // `turn off`, `log out`: what turns the verb was looked at there.
        let name = words::split_identifier(profile.tool.name.as_str());
        if !token.is("from") {
            let told = profile.tool.description.to_lowercase();
            let is_told =
                told.split(|it: char| !it.is_alphanumeric()).take(8).any(|it| it == token.lower);
            return name.contains(&token.lower) || is_told;
        }
        let slots = &profile.frame().slots;
        let takes = profile.family == Some(Family::Delete)
            || profile
                .verbs
                .iter()
                .any(|verb| TAKES.split_whitespace().any(|it| words::stem(it) == *verb));
        let claim = self.claim_behind(at, place, claims);
        if claim.and_then(|it| it.also).is_some_and(|it| is_of(it, SOURCES)) {
            return true;
        }
        let slot = claim.and_then(|it| it.slot);
        let is_known = slots.iter().any(|it| is_of(it, SOURCES));
        match slot {
            Some(slot) if is_of(slot, SOURCES) => true,
            Some(slot) if is_known || is_of(slot, TARGETS) => false,
            _ => takes || name.iter().any(|it| it == "from") || is_said_from(profile),
        }
    }

    fn goes_to_source(&self, at: usize, place: &Place, claims: &Claims<'a>) -> bool {
        let claim = self.claim_behind(at, place, claims);
        let is_target = |it: &Slot| is_of(it, TARGETS);
        !claim.and_then(|it| it.also).is_some_and(is_target)
            && claim.and_then(|it| it.slot).is_some_and(|it| is_source(it) && !is_target(it))
    }
}

/// Returns whether a parameter is where something comes from.
pub(super) fn is_start(slot: &Slot) -> bool {
    is_source(slot)
}

/// Returns whether a parameter is where something goes to.
pub(super) fn is_goal(slot: &Slot) -> bool {
    is_of(slot, "to target destination recipient arrival")
}

fn is_of(slot: &Slot, list: &str) -> bool {
    let named = |it: &str| slot.words.contains(&words::stem(it));
    let told = slot.property.description.to_lowercase();
    let is_told = |it: &str| told.split(|at: char| !at.is_alphanumeric()).any(|at| at == it);
    list.split_whitespace()
        .any(|it| named(it) || !matches!(it, "to" | "new" | "first" | "end") && is_told(it))
}

fn is_source(slot: &Slot) -> bool {
    is_of(slot, "from source origin departure sender")
}

fn is_said_from(profile: &Profile) -> bool {
    let told = profile.tool.description.to_lowercase();
    told.split(|it: char| !it.is_alphanumeric()).any(|it| it == "from")
}
