//! Where a text ends that somebody wants said: what follows it may be part of it.

use super::{
    super::{
        clause,
        property::Role,
        token::{Kind, Token},
    },
    Call, Doubt, Found, Gate,
    claim::{Claim, Claims},
};

/// Words of a text that goes on: `I'll first copy it, then delete it`.
const GOES_ON: &str = "first i i'll i'd i'm we we'll you you'll please it when once if before after never don't not \
                       always stop let let's must should to";

impl Gate<'_> {
    /// Finds a text without quotation marks behind which an order follows that may be part of it.
    pub(super) fn runs_on(&self, nth: usize, claims: &Claims<'_>) -> Option<Found> {
        let passage = &self.passages[nth];
        let last = claims.all.iter().filter(|it| !it.is_name).max_by_key(|it| it.at.end)?;
        if !self.is_spoken(last) {
            return None;
        }
        let next = self
            .passages
            .iter()
            .filter(|it| it.bytes.start >= passage.bytes.end && !it.calls.is_empty())
            .min_by_key(|it| it.bytes.start)
            .filter(|it| it.calls.iter().any(Call::acts))?;
        let begin = self.tokens.iter().position(|it| it.start >= next.bytes.start)?;
        let between = self.tokens.get(last.at.end..begin)?;
        let said: Vec<&Token> =
            self.tokens[last.at.clone()].iter().filter(|it| it.kind == Kind::Word).collect();
        let is_sentence =
            between.iter().any(|it| [".", "!", "?", "\n"].iter().any(|at| it.is_mark(at)));
        let is_sequel = ["then", "after", "afterwards", "next", "finally", "lastly", "also"]
            .iter()
            .any(|word| between.iter().any(|it| it.is(word)));
        // `… saying y after you create author Ann` tells what comes first.
        let is_event = between.iter().any(|it| it.is("after") || it.is("before"));
        let is_linked = next.calls.iter().all(Call::is_linked);
        let goes_on = |it: &&Token| GOES_ON.split_whitespace().any(|word| it.is(word));
        let is_whole = said.len() < 2 || !said.iter().any(goes_on);
        let is_clear = if is_sentence { is_linked || is_sequel } else { is_linked && is_whole };
        (!is_clear && !is_event).then(|| (last.at.start..begin + 1, Doubt::Said))
    }

    /// Returns whether a value is a text that words announce and nothing encloses.
    fn is_spoken(&self, claim: &Claim<'_>) -> bool {
        let Some(slot) = claim.slot else { return false };
        let tokens = &self.tokens[claim.at.clone()];
        let Some(first) = tokens.first() else { return false };
        let is_quoted = tokens.iter().all(|it| it.kind == Kind::Quoted);
        let before = claim.at.start.checked_sub(1).map(|it| &self.tokens[it]);
        let is_cued = clause::is_content_cue(first)
            || before.is_some_and(|it| clause::is_content_cue(it) || it.is_mark(":"));
        let is_text = slot.property.role == Role::Content
            || matches!(slot.property.role, Role::Text | Role::Title) && is_cued;
        is_text && !is_quoted
    }
}
