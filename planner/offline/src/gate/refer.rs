//! What identifiers and pronouns mean: one thing, or nothing is done.

use super::{
    super::{
        profile::Profile,
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        words::{self, Family},
    },
    Doubt, Found, Gate, Passage,
    claim::{Claim, Claims, Place},
};

impl<'a> Gate<'a> {
    /// Checks that what speaks of something said before can only mean one thing.
    pub(super) fn references(
        &self,
        nth: usize,
        place: &Place,
        claims: &Claims<'a>,
    ) -> Option<Found> {
        let passage = &self.passages[nth];
        if !self.is_linked(passage) {
            return None;
        }
        let earlier: Vec<&Passage<'_>> = self
            .passages
            .iter()
            .filter(|it| it.bytes.start < passage.bytes.start && !it.calls.is_empty())
            .collect();
        // What is said with one verb, `get the blog and the author`, is one list.
        let group = earlier.iter().rev().scan(false, |is_over, it| {
            let take = !*is_over;
            *is_over |= it.has_verb;
            take.then_some(it.calls.len())
        });
        let last: usize = group.sum();
        let all: usize = earlier.iter().map(|it| it.calls.len()).sum();
        let lists =
            |it: &super::Call<'_>| matches!(it.profile.family, Some(Family::List | Family::Search));
        let is_list = earlier.last().is_some_and(|it| it.calls.iter().any(lists));
        let found = (place.from..place.to).find(|at| {
            let token = &self.tokens[*at];
            if token.kind != Kind::Word || claims.has(*at) {
                return false;
            }
            let next = self.tokens.get(at + 1).filter(|_| at + 1 < place.to);
            let is_bare = next.is_none_or(|it| {
                it.kind != Kind::Word || words::is_preposition(&it.lower) || it.is_separator()
            });
            match token.lower.as_str() {
                "it" | "him" | "his" | "her" | "its" | "he" | "she"
                    if self.has_rival(nth, claims) =>
                {
                    true
                }
                "it" | "him" | "that" | "this" => is_bare && last > 1,
                "them" | "they" | "these" | "those" => is_bare && (all > 1 && !is_list),
                _ => words::is_result(&token.stem) && last > 1,
            }
        })?;
        Some((found..found + 1, Doubt::Reference))
    }

    /// Returns whether what a passage refers to was made twice in the query, and nothing was done yet
    /// with the other one.
    fn has_rival(&self, nth: usize, claims: &Claims<'a>) -> bool {
        let passage = &self.passages[nth];
        let is_before = |it: &&Passage<'_>| it.bytes.start < passage.bytes.start;
        let earlier: Vec<&Passage<'_>> = self.passages.iter().filter(is_before).collect();
        let used = |it: &super::Call<'_>, step: &str| {
            let link = [format!("{{{{{step}."), format!("{{{{{step}}}}}")];
            it.parameters.values().any(|at| {
                at.as_str().is_some_and(|at| link.iter().any(|it| at.starts_with(it.as_str())))
            })
        };
        let is_named = claims.all.iter().any(|it| it.is_name);
        !is_named
            && earlier.iter().flat_map(|it| &it.calls).any(|meant| {
                let is_meant = meant.acts() && passage.calls.iter().any(|it| used(it, meant.step));
                let is_other = |it: &super::Call<'_>| {
                    it.step != meant.step && it.profile.tool.name == meant.profile.tool.name
                };
                let is_done =
                    |step: &str| earlier.iter().flat_map(|it| &it.calls).any(|it| used(it, step));
                is_meant
                    && earlier
                        .iter()
                        .filter(|it| !it.calls.iter().any(|it| it.step == meant.step))
                        .flat_map(|it| &it.calls)
                        .any(|it| is_other(it) && !is_done(it.step))
            })
    }

    /// Checks that identifiers identify what they stand behind.
    pub(super) fn misidentified(
        &self,
        passage: &Passage<'_>,
        claims: &Claims<'a>,
    ) -> Option<Found> {
        for claim in claims.all.iter().filter(|it| !it.calls.is_empty()) {
            let Some(slot) = claim.slot.filter(|it| it.property.role == Role::Id) else { continue };
            let Some(profile) = claim.calls.first().and_then(|it| passage.calls.get(*it)) else {
                continue;
            };
            let profile = profile.profile;
            if self.tokens[claim.at.start].kind == Kind::Number
                && let Some(found) = self.counted(profile, slot, claim)
            {
                return Some(found);
            }
            let before = self.tokens[..claim.at.start].iter().rev().take(3).find(|it| {
                let is_link = it.stem == "id" || it.is("number") || it.is("with") || it.is("no");
                it.kind == Kind::Word && !is_link
            });
            let Some(noun) = before.filter(|it| self.vocabulary.nouns.contains(&it.stem)) else {
                continue;
            };
            let means = |it: &String| {
                *it == noun.stem
                    || self.vocabulary.kinds.get(&noun.stem).is_some_and(|at| at.contains(it))
            };
            let is_right = match &slot.property.noun {
                Some(it) => means(it) || slot.words.contains(&noun.stem),
                None => profile.is_about(&noun.stem) || profile.verbs.contains(&noun.stem),
            };
            if !is_right {
                return Some((claim.at.start - 1..claim.at.end, Doubt::Tie));
            }
        }
        None
    }

    /// Finds a number that says how many, or of which time, where an identifier is wanted: `cancel 5
    /// orders`, `cancel order at 5`.
    fn counted(&self, profile: &Profile, slot: &Slot, claim: &Claim<'_>) -> Option<Found> {
        let at = claim.at.clone();
        let is_thing =
            |it: &Token| self.vocabulary.nouns.contains(&it.stem) || Self::is_own(profile, it);
        // `comment 5 of blog 7` is one comment.
        let is_one = at.start.checked_sub(1).map(|it| &self.tokens[it]).is_some_and(|it| {
            let is_noun =
                is_thing(it) && !words::is_plural(&it.lower) && !profile.verbs.contains(&it.stem);
            it.is_mark("#") || it.kind == Kind::Word && is_noun
        });
        let is_many = self.tokens.get(at.end).is_some_and(|it| {
            it.is("of") && !is_one
                || it.kind == Kind::Word && words::is_plural(&it.lower) && is_thing(it)
        });
        if is_many {
            return Some((at.start..at.end + 1, Doubt::Reference));
        }
        let before = at.start.checked_sub(1)?;
        let tie = &self.tokens[before];
        let told = profile.tool.description.to_lowercase();
        let is_known = slot.words.contains(&tie.stem)
            || told.split(|it: char| !it.is_alphanumeric()).any(|it| it == tie.lower);
        let is_tie = tie.kind == Kind::Word && words::is_preposition(&tie.lower);
        (is_tie && !is_known).then_some((before..at.end, Doubt::Tie))
    }
}
