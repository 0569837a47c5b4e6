//! Whether values go where the words before them say: `hello to general` is not a channel `hello`.

use serde_json::Value;

use super::{
    super::{
        clause,
        profile::Profile,
        slot::Slot,
        token::{Kind, Token},
        words,
    },
    Doubt, Found, Gate, Passage,
    claim::{Claim, Claims},
    tie,
};

/// Words before where something goes or is.
const INTO: &str = "to into onto in at on";

impl Gate<'_> {
    /// Finds a value that stands where another parameter's does by the tool's own description, while
    /// that one has what stands elsewhere; and a move from where it goes to.
    pub(super) fn misaimed(&self, passage: &Passage<'_>, claims: &Claims<'_>) -> Option<Found> {
        for claim in claims.all.iter().filter(|it| !it.is_name) {
            let Some(slot) = claim.slot else { continue };
            let Some(call) = claim.calls.first().and_then(|it| passage.calls.get(*it)) else {
                continue;
            };
            let is_tied = self.tie_before(claim).is_some_and(is_into);
            let target = aims(call.profile)
                .into_iter()
                .find(|it| call.acts() && is_tied && it.path != slot.path);
            let is_elsewhere = |target: &Slot| {
                claims.all.iter().any(|it| {
                    it.slot.is_some_and(|at| at.path == target.path)
                        && it.calls.iter().any(|at| claim.calls.contains(at))
                        && !self.is_aimed(it, target)
                })
            };
            let is_own = aims(call.profile).iter().any(|it| it.path == slot.path);
            if !is_own && target.is_some_and(is_elsewhere) {
                return Some((claim.at.clone(), Doubt::Tie));
            }
            let told = |slot: &Slot| slot.path.first().and_then(|it| call.parameters.get(it));
            let is_same = tie::is_start(slot)
                && call.acts()
                && told(slot).is_some_and(Value::is_string)
                && call.profile.frame().slots.iter().any(|it| {
                    it.path != slot.path
                        && tie::is_goal(it)
                        && !tie::is_start(it)
                        && told(it) == told(slot)
                });
            if is_same {
                return Some((claim.at.clone(), Doubt::Apart));
            }
        }
        None
    }

    /// Returns the word before a value and its article.
    fn tie_before(&self, claim: &Claim<'_>) -> Option<&Token> {
        let before = self.tokens[..claim.at.start].iter().rev();
        before
            .take(2)
            .find(|it| !["the", "a", "an"].iter().any(|word| it.is(word)))
            .filter(|it| it.kind == Kind::Word)
    }

    /// Returns whether words say that a value is what a parameter takes.
    fn is_aimed(&self, claim: &Claim<'_>, slot: &Slot) -> bool {
        let behind = self.tokens.get(claim.at.end);
        let is_named = |it: &Token| it.kind == Kind::Word && slot.words.contains(&it.stem);
        self.tie_before(claim).is_some_and(|it| words::is_preposition(&it.lower) || is_named(it))
            || behind.is_some_and(is_named)
            || self.is_announced(claim)
                && !self.tie_before(claim).is_some_and(clause::is_content_cue)
    }
}

fn is_into(token: &Token) -> bool {
    INTO.split(' ').any(|it| token.is(it))
}

/// Returns the parameters that a tool's description names behind a `to`: `channel` of `Post a
/// message to a channel`.
fn aims(profile: &Profile) -> Vec<&Slot> {
    let told = profile.tool.description.to_lowercase();
    let said: Vec<&str> =
        told.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty()).take(16).collect();
    let Some(at) = said.iter().position(|it| INTO.split(' ').any(|word| word == *it)) else {
        return Vec::new();
    };
    let stems: Vec<String> = said[at + 1..]
        .iter()
        .take_while(|it| !words::is_preposition(it))
        .map(|it| words::stem(it))
        .collect();
    let slots = profile.frame().slots.iter();
    slots.filter(|it| stems.iter().any(|at| it.words.contains(at))).collect()
}
