//! Whether a value of several words is one phrase, or the sentence runs on into it.

use super::{
    super::{
        clause,
        profile::Profile,
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        words,
    },
    Gate, lists,
};

/// Marks that end or break a sentence.
const BREAKS: &str = ". ! ? ; : … — – , / & [ { ( - + * |";
/// Titles before a name, which a full stop shortens.
const SHORTENED: &str = "dr mr mrs ms st";

impl Gate<'_> {
    /// Returns the word of a value, counted from its first, with which it is no phrase any more.
    pub(super) fn broken(
        &self,
        profile: &Profile,
        slot: &Slot,
        role: Role,
        tokens: &[Token],
    ) -> Option<usize> {
        let [first, second, ..] = tokens else { return None };
        let traits = slot.traits;
        if traits.is_formula || traits.is_code || traits.is_day || traits.is_time {
            return None;
        }
        let is_open = first.kind == Kind::Mark && "<[{'\"".contains(first.value.as_str());
        if is_open {
            return Some(0);
        }
        if role == Role::Title {
            return (1..tokens.len()).find(|it| {
                let ends = tokens[*it].is_mark(".") && has_word(&tokens[it + 1..]);
                ends && !is_shortening(tokens, *it)
                    || lists::is_turn(&tokens[*it])
                        && is_small(&tokens[*it])
                        && !is_headline(&tokens[*it + 1..])
            });
        }
        let counts = first.kind == Kind::Number
            && words::is_plural(&second.lower)
            && (self.vocabulary.nouns.contains(&second.stem) || Self::is_own(profile, second));
        let is_led = is_small(first)
            && (lists::is_relative(first)
                || lists::is_auxiliary(first)
                || clause::is_name_cue(first)
                || matches!(first.lower.as_str(), "off" | "up" | "down" | "away"));
        // `an account` is any, `the highest bidder` is not known yet.
        let is_any = ["a", "an", "some", "any"].iter().any(|it| first.is(it))
            && slot.words.contains(&second.stem);
        let is_most = first.is("the") && second.lower.ends_with("est") && second.lower.len() > 5;
        if counts || is_led || is_any || is_most {
            return Some(0);
        }
        (1..tokens.len()).find(|it| self.breaks(profile, slot, role, tokens, *it))
    }

    fn breaks(
        &self,
        profile: &Profile,
        slot: &Slot,
        role: Role,
        tokens: &[Token],
        at: usize,
    ) -> bool {
        let (token, behind) = (&tokens[at], &tokens[at + 1..]);
        let is_apart = tokens[at - 1].end < token.start
            || behind.first().is_some_and(|it| token.end < it.start);
        if role == Role::Path {
            return is_apart;
        }
        let is_proper =
            |tokens: &[Token]| tokens.iter().all(|it| it.kind != Kind::Word || !is_small(it));
        match token.kind {
            Kind::Mark => {
                if !has_word(behind) {
                    return tokens[at - 1].kind == Kind::Mark && !is_apart;
                }
                let is_place = token.is_mark(",")
                    && (slot.traits.is_place || slot.traits.is_wide)
                    && behind.first().is_some_and(Token::is_capitalised);
                let is_break = BREAKS.split(' ').any(|it| token.is_mark(it)) || token.value == "\n";
                is_break && is_apart && !is_place && !is_shortening(tokens, at)
            }
            Kind::Number => is_apart && !(behind.is_empty() && is_proper(&tokens[..at])),
            Kind::Word if is_small(token) => {
                let stem = &token.stem;
                let mut slots = profile.frame().slots.iter();
                let is_other = !slot.words.contains(stem)
                    && slots.any(|it| it.words.contains(stem))
                    && !words::is_idle(&token.lower);
                let is_middle = slot.words.contains(stem) && !behind.is_empty();
                let is_order = self.vocabulary.is_verb(stem)
                    && behind.first().is_some_and(|it| self.vocabulary.nouns.contains(&it.stem));
                let is_tied = words::is_preposition(&token.lower) && token.lower != "of";
                // `my daily mix` has a daily mix; `apollo weekly` has no more to say.
                let is_inner = has_word(behind);
                let is_end = behind.is_empty() && words::is_participle(&token.lower);
                is_other
                    || is_middle
                    || is_order
                    || is_tied
                    || is_end
                    || lists::is_turn(token)
                    || lists::is_relative(token)
                    || lists::is_auxiliary(token) && !(behind.is_empty() && lists::is_thing(token))
                    || lists::is_aside(token)
                    || lists::is_manner(token) && !is_inner
            }
            Kind::Word => {
                let is_loud = token.value.chars().all(|it| !it.is_lowercase())
                    && token.value.len() > 1
                    && tokens.iter().any(|it| it.value.contains(char::is_lowercase));
                let is_beside = is_small(&tokens[0]) || is_loud;
                lists::is_turn(token) && !lists::is_tie(token)
                    || is_beside
                        && (lists::is_turn(token) || lists::is_tie(token) || lists::is_aside(token))
                    || is_loud && lists::is_manner(token)
            }
            _ => false,
        }
    }
}

fn is_small(token: &Token) -> bool {
    token.value.starts_with(char::is_lowercase)
}

fn has_word(tokens: &[Token]) -> bool {
    tokens.iter().any(|it| it.kind != Kind::Mark)
}

/// Returns whether words go on with a title in capitals: `How to Cook while Travelling`.
fn is_headline(tokens: &[Token]) -> bool {
    tokens.iter().any(Token::is_capitalised)
        && tokens.iter().all(|it| it.kind != Kind::Word || it.lower.len() < 4 || !is_small(it))
}

/// Returns whether a full stop only shortens a name: `J. Smith`, `Dr. No`.
fn is_shortening(tokens: &[Token], at: usize) -> bool {
    let before = &tokens[at - 1];
    tokens[at].is_mark(".")
        && before.is_capitalised()
        && (before.value.chars().count() == 1 || SHORTENED.split(' ').any(|it| before.lower == it))
        && tokens.get(at + 1).is_some_and(Token::is_capitalised)
}
