//! What a plan makes nothing of: words that are left over, orders that no call answers.

use std::ops::Range;

use serde_json::Value;

use super::{
    super::{
        phrase,
        property::Role,
        slot::Slot,
        token::Kind,
        value,
        words::{self, Family},
    },
    Broad, Part, TOKENS, count,
};

/// Runs of words that a part left over and that are told.
const LEFT_OVER: usize = 8;

impl Broad<'_> {
    /// Returns the words of a part that nothing was made of, as they were written: at most a few.
    pub(crate) fn left_over(&self, part: &Part) -> Vec<String> {
        let profile = &self.profiles[part.tool];
        let frame = profile.frame();
        let tokens = &self.tokens[part.from..part.to];
        let is_used = |at: usize| {
            part.calls.iter().flat_map(|it| &it.used).any(|it| (it.0..it.1).contains(&at))
        };
        // `the subject is Hello` says a value, `the back door is open` tells something.
        let is_told = |at: usize| {
            let mut behind = (at + 1..tokens.len()).skip_while(|it| {
                tokens[*it].kind == Kind::Mark || words::is_determiner(&tokens[*it].lower)
            });
            matches!(tokens[at].lower.as_str(), "is" | "are" | "was" | "were" | "has" | "had")
                && !behind.next().is_some_and(is_used)
        };
        let is_known = |at: usize| {
            let token = &tokens[at];
            token.kind == Kind::Mark
                || is_used(at)
                || token.kind == Kind::Word
                    && (phrase::is_grammar(token) && !(profile.acts() && is_told(at))
                        || frame.is_own(&token.stem)
                        || frame.shown.contains(&token.stem)
                        || profile.owns_verb(&token.stem)
                        || words::is_result(&token.stem)
                        || !profile.acts() && !words::families(&token.stem).is_empty())
        };
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..tokens.len()).filter(|it| !is_known(*it)) {
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        let said = |(from, to): (usize, usize)| value::text(self.query, &tokens[from..to]);
        runs.into_iter().filter_map(said).take(LEFT_OVER).collect()
    }

    /// Returns the first order in the parts that no call answers: a verb that none of them has.
    pub(crate) fn unanswered(&self, parts: &[Part]) -> Option<String> {
        let tokens = &self.tokens[..self.tokens.len().min(TOKENS)];
        self.segments(tokens).into_iter().find_map(|(from, to)| {
            let head = (from..to).find(|it| {
                tokens[*it].kind != Kind::Mark && !words::is_filler(&tokens[*it].lower)
            })?;
            let stem = &tokens[head].stem;
            let acts = words::families(stem).iter().all(|it| {
                matches!(it, Family::Create | Family::Update | Family::Delete | Family::Send)
            });
            // `I plan to …` tells something.
            let is_told = head > 0
                && ["i", "we"].iter().any(|it| tokens[head - 1].is(it))
                && tokens.get(head + 1).is_some_and(|it| it.is("to"));
            let is_read = parts.iter().all(|it| !self.profiles[it.tool].acts());
            if !acts
                || is_told && is_read
                || !self.is_order(&tokens[head])
                || tokens[head].is_capitalised() && head > from
            {
                return None;
            }
            let has_owner =
                parts.iter().filter(|it| (it.from..it.to).contains(&head)).any(|part| {
                    let profile = &self.profiles[part.tool];
                    let at = head - part.from;
                    let is_value = part
                        .calls
                        .iter()
                        .flat_map(|it| &it.used)
                        .any(|it| (it.0..it.1).contains(&at));
                    is_value || profile.owns_verb(stem) || profile.frame().is_own(stem)
                });
            if has_owner {
                return None;
            }
            value::text(self.query, &tokens[head..to])
        })
    }

    /// Returns whether something between two bytes of the query became a value of some call, or names
    /// a flag of one.
    pub(crate) fn answers(&self, parts: &[Part], bytes: &Range<usize>) -> bool {
        parts.iter().any(|part| {
            let tokens = &self.tokens[part.from..part.to];
            let is_within = |at: usize| tokens.get(at).is_some_and(|it| bytes.contains(&it.start));
            let is_used = part.calls.iter().flat_map(|it| &it.used).any(|it| is_within(it.0));
            let frame = self.profiles[part.tool].frame();
            let is_flag = |it: &Slot| it.property.role == Role::Bool;
            let mut flags = frame.slots.iter().filter(|it| is_flag(it));
            is_used
                || flags.any(|it| {
                    (0..tokens.len()).any(|at| is_within(at) && it.is_named_by(&tokens[at].stem))
                })
        })
    }

    /// Returns how much of what the query says a plan has used or knows: one is all of it.
    pub(crate) fn explained(&self, parts: &[Part]) -> f32 {
        let mut told = 0_usize;
        let mut known = 0_usize;
        for part in parts {
            let frame = self.profiles[part.tool].frame();
            let said: String = part
                .calls
                .iter()
                .map(|it| Value::Object(it.parameters.clone()).to_string().to_lowercase())
                .collect();
            for (at, token) in self.tokens[part.from..part.to].iter().enumerate() {
                if token.kind == Kind::Mark
                    || words::is_idle(&token.lower)
                    || words::is_preposition(&token.lower)
                    || words::is_filler(&token.lower)
                {
                    continue;
                }
                told += 1;
                let is_asked = words::families(&token.stem).contains(&Family::Get);
                // What was converted is not there as it was said.
                let is_used =
                    part.calls.iter().flat_map(|it| &it.used).any(|it| (it.0..it.1).contains(&at));
                let is_own = frame.is_own(&token.stem);
                if is_asked || is_used || is_own || said.contains(&token.lower) {
                    known += 1;
                }
            }
        }
        if told == 0 { 0.0 } else { count(known) / count(told) }
    }
}
