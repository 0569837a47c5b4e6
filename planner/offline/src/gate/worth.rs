//! Whether a value is what was said, and no more than that: what runs into a value of a few words
//! belongs to the sentence, unless it is quoted.

use super::{
    super::{
        clause,
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        words,
    },
    Doubt, Found, Gate, Passage,
    claim::{Claim, Claims},
    lists,
};

/// Words of a text that nothing announces and that an article may stand before.
const FEW: usize = 3;

impl Gate<'_> {
    /// Checks every value of a passage.
    pub(super) fn worths(&self, passage: &Passage<'_>, claims: &Claims<'_>) -> Option<Found> {
        if let Some(found) = self.misidentified(passage, claims) {
            return Some(found);
        }
        claims.all.iter().filter(|it| !it.is_name).find_map(|it| self.worth(passage, it))
    }

    fn worth(&self, passage: &Passage<'_>, claim: &Claim<'_>) -> Option<Found> {
        let slot = claim.slot?;
        let call = claim.calls.first().and_then(|it| passage.calls.get(*it))?;
        if !call.acts() || call.assumed.contains(&slot.path.join(".")) {
            return None;
        }
        let at = claim.at.clone();
        let tokens = &self.tokens[at.clone()];
        let [first, .., last] = tokens else {
            return self.single(claim, tokens.first()?);
        };
        let inside = |at: usize| Some((at..at + 1, Doubt::Inside));
        let role = if slot.is_list() { slot.property.item } else { slot.property.role };
        match role {
            Role::Content => return self.content(claim, tokens),
            Role::Text | Role::Name | Role::Title | Role::Path | Role::List => (),
            _ => return None,
        }
        let is_title = role == Role::Title;
        if tokens.iter().all(|it| it.kind == Kind::Mark) {
            return inside(at.start);
        }
        let is_small = |it: &Token| it.value.starts_with(char::is_lowercase);
        let is_wrong = |it: &Token| {
            let is_choice = |value: &serde_json::Value| {
                value.as_str().is_some_and(|at| at.eq_ignore_ascii_case(&it.value))
            };
            if slot.property.values.iter().any(is_choice) {
                return false;
            }
            if is_title { lists::is_hard(it) } else { lists::is_tie(it) && is_small(it) }
        };
        if let Some(wrong) = tokens.iter().position(is_wrong) {
            return inside(at.start + wrong);
        }
        if let Some(broken) = self.broken(call.profile, slot, role, tokens) {
            return inside(at.start + broken);
        }
        let moved = |it: &Token| is_title && is_small(it) && it.is("to");
        let is_changed = call.profile.family == Some(words::Family::Update)
            && !at.start.checked_sub(1).is_some_and(|it| self.tokens[it].is("to"));
        if let Some(moved) = tokens.iter().position(moved).filter(|_| is_changed) {
            return inside(at.start + moved);
        }
        let belongs = |it: &Token| {
            is_small(it)
                && (words::is_preposition(&it.lower)
                    || matches!(it.lower.as_str(), "please" | "and" | "back"))
        };
        // `about the sea` is a topic, `the kitchen` a place.
        if belongs(first) && !first.is("about") {
            return inside(at.start);
        }
        if belongs(last) {
            return inside(at.end - 1);
        }
        let mixed = tokens.iter().position(|it| matches!(it.kind, Kind::Quoted | Kind::Id));
        if let Some(mixed) = mixed {
            return inside(at.start + mixed);
        }
        // `Miller's Inn` is a name, `the kitchen's neighbor` another room.
        let owner = tokens.iter().position(|it| it.is_possessive() && is_small(it));
        if let Some(owner) = owner {
            return inside(at.start + owner);
        }
        if last.is_possessive() {
            return inside(at.end - 1);
        }
        Self::taken_back(claim, tokens)
    }

    /// Checks a value of one word.
    fn single(&self, claim: &Claim<'_>, token: &Token) -> Option<Found> {
        let slot = claim.slot?;
        let at = claim.at.clone();
        if token.kind == Kind::Quoted || !slot.property.values.is_empty() {
            return None;
        }
        let is_text = matches!(
            slot.property.role,
            Role::Text | Role::Name | Role::Title | Role::Content | Role::Path | Role::Email
        );
        let is_email_owner =
            slot.property.role == Role::Email || token.is_possessive() && !self.owns_next(at.end);
        let is_empty =
            token.kind == Kind::Mark || token.kind == Kind::Word && token.value.contains("..");
        let is_word = token.kind == Kind::Word && token.value.starts_with(char::is_lowercase);
        let is_reference = is_word
            && (lists::is_tie(token) || words::is_result(&token.stem))
            && !(token.is("back") && self.owns_next(at.end));
        let is_owned = is_email_owner && (token.is_possessive() || token.value.ends_with("'s"));
        let is_pointer = slot.property.role == Role::Content
            && matches!(token.kind, Kind::Path | Kind::Id | Kind::Url)
            && !self.is_announced(claim);
        let is_article = slot.property.role == Role::Content && self.is_described(claim);
        let nothing = lists::is_placeholder(token);
        if is_text && nothing {
            return Some((at, Doubt::Reference));
        }
        let is_loose = token.value.starts_with(['\'', '"', '“', '‘']);
        let is_wrong = is_loose
            || is_word && is_text && self.is_spoken_of(slot, at.start)
            || is_word && self.is_bare_verb(claim)
            || is_empty
            || is_reference
            || is_owned
            || is_pointer
            || is_article;
        (is_text && is_wrong).then_some((at, Doubt::Inside))
    }

    /// Returns whether words before one say what a text is to be like: `a short bio`, `bio in
    /// French`, `of your choice`.
    fn is_spoken_of(&self, slot: &Slot, at: usize) -> bool {
        let word = |back: usize| at.checked_sub(back).map(|it| &self.tokens[it]);
        let is_one = |it: Option<&Token>, list: &[&str]| {
            it.is_some_and(|it| list.iter().any(|word| it.is(word)))
        };
        let is_named = |it: Option<&Token>| {
            it.is_some_and(|it| it.kind == Kind::Word && slot.words.contains(&it.stem))
        };
        // `a single room` is of a `room_type`, and says it.
        let is_whole = slot.path.last().is_some_and(|it| {
            self.tokens.get(at + 1).is_some_and(|token| it.eq_ignore_ascii_case(&token.value))
        });
        let is_kind = is_one(word(1), &["a", "an", "some"]) && is_whole;
        let is_manner = is_one(word(1), &["in", "at"]) && is_named(word(2));
        let is_choice =
            is_one(word(1), &["your", "his", "her", "their"]) && is_one(word(2), &["of"]);
        is_kind && slot.property.role != Role::Path || is_manner || is_choice
    }

    /// Returns whether a word behind an `and` is a verb and no value: `restart apollo and wait`.
    fn is_bare_verb(&self, claim: &Claim<'_>) -> bool {
        let token = &self.tokens[claim.at.start];
        let before = claim.at.start.checked_sub(1).map(|it| &self.tokens[it]);
        before.is_some_and(|it| it.is_separator() || it.is("then"))
            && (self.vocabulary.is_verb(&token.stem)
                || ["wait", "stop", "cancel", "go", "help"].iter().any(|it| token.is(it)))
            && !self.vocabulary.nouns.contains(&token.stem)
    }

    /// Checks a text.
    fn content(&self, claim: &Claim<'_>, tokens: &[Token]) -> Option<Found> {
        let is_short = tokens.len() <= FEW && self.is_described(claim);
        // `bio to be decided` says nothing yet.
        let is_later = tokens.first().is_some_and(|it| it.is("be"))
            && claim.at.start.checked_sub(1).is_some_and(|it| self.tokens[it].is("to"));
        if is_short || is_later {
            return Some((claim.at.clone(), Doubt::Inside));
        }
        Self::taken_back(claim, tokens)
    }

    /// Returns whether an article says that a text is spoken of, not said: `write a poem`.
    fn is_described(&self, claim: &Claim<'_>) -> bool {
        let is_article = |it: &Token| ["a", "an", "some"].iter().any(|word| it.is(word));
        let first = &self.tokens[claim.at.start];
        let before = claim.at.start.checked_sub(1).map(|it| &self.tokens[it]);
        !self.is_announced(claim)
            && (is_article(first) && first.value.starts_with(char::is_lowercase)
                || before.is_some_and(is_article))
    }

    /// Returns whether the end of a text takes it back: `hi. Don't.`
    fn taken_back(claim: &Claim<'_>, tokens: &[Token]) -> Option<Found> {
        let is_end = |it: &Token| [".", "!", "?", ";", "\n"].iter().any(|at| it.is_mark(at));
        let trimmed = tokens.iter().rposition(|it| !is_end(it)).map_or(0, |it| it + 1);
        let begin = tokens[..trimmed].iter().rposition(is_end)? + 1;
        let from = claim.at.start + begin;
        lists::takes_back(&tokens[begin..trimmed])
            .then_some((from..claim.at.start + trimmed, Doubt::Inside))
    }

    /// Returns whether words before a value say that it is one: its parameter's, `saying`, `:`.
    pub(super) fn is_announced(&self, claim: &Claim<'_>) -> bool {
        let Some(before) = claim.at.start.checked_sub(1).map(|it| &self.tokens[it]) else {
            return false;
        };
        let first = &self.tokens[claim.at.start];
        let is_word = |it: &Token| {
            clause::is_content_cue(it)
                || clause::is_name_cue(it)
                || it.is_mark(":")
                || it.is_mark("=")
                || ["is", "stating", "reads", "as", "that"].iter().any(|word| it.is(word))
                || claim.slot.is_some_and(|at| it.kind == Kind::Word && at.words.contains(&it.stem))
        };
        is_word(before) || first.is("about")
    }

    /// Returns whether the word behind an owner is one of a tool's.
    fn owns_next(&self, at: usize) -> bool {
        let profiles = self.passages.iter().flat_map(|it| &it.calls).map(|it| it.profile);
        self.tokens.get(at).is_some_and(|it| profiles.clone().any(|at| Self::is_own(at, it)))
    }
}
