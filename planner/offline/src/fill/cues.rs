//! Words that announce a value: `titled`, `with the subject`, `to`.

use super::Filler;
use crate::{
    token::{Token, TokenKind, stem},
    tool::{Slot, SlotKind},
};

const LINK_WORDS: [&str; 18] = [
    "the", "a", "an", ":", "=", "#", "(", "of", "is", "are", "be", "my", "our", "number", "called",
    "named", "id", "email",
];

#[derive(Clone, Copy, Debug)]
pub(super) struct CueContext {
    pub(super) score: f32,
    pub(super) start: usize,
}

impl Filler<'_> {
    pub(super) fn is_cue(&self, token: &Token, slot: &Slot) -> bool {
        if token.kind != TokenKind::Word {
            return false;
        }
        let name = slot.field.as_ref().unwrap_or(&slot.parameter).to_lowercase();
        let kind = match slot.kind {
            SlotKind::Title => "title",
            SlotKind::Text => "text",
            SlotKind::Query => "query",
            _ => name.as_str(),
        };
        let is_listed = self.lexicon.is_cue_of(token, kind);
        let is_named = slot.words.last().is_some_and(|word| *word == token.stem)
            && !self.lexicon.is_filler(token);
        let is_noun = || {
            let nouns = slot.nouns(self.tool, self.lexicon);
            nouns.iter().any(|noun| self.lexicon.is_same_noun(noun, &token.stem))
        };
        let is_whole = token.lower == name;
        is_listed || is_whole || is_named || slot.kind == SlotKind::Id && is_noun()
    }

    pub(super) fn is_cue_of_text(&self, token: &Token) -> bool {
        self.tool.slots.iter().any(|slot| slot.is_free() && self.is_cue(token, slot))
    }

    pub(super) fn context(&self, at: usize, slot: &Slot) -> CueContext {
        let weights = self.weights;
        let is_link = |token: &Token| token.is_any(&LINK_WORDS);
        let links = self.tokens[..at].iter().rev().take_while(|token| is_link(token)).count();
        let start = at - links;
        let Some(before) = start.checked_sub(1) else {
            return CueContext { score: 0.0, start: at };
        };
        let token = &self.tokens[before];
        let is_preposition = self.lexicon.is_preposition(token);
        if self.is_cue(token, slot) && !is_preposition {
            return CueContext { score: weights.cue, start: before };
        }
        if !is_preposition {
            return CueContext { score: 0.0, start: at };
        }
        let score = if self.is_announced(slot, before) { weights.preposition } else { 0.0 };
        CueContext { score, start: before }
    }

    pub(super) fn is_announced(&self, slot: &Slot, place: usize) -> bool {
        let preposition = &self.tokens[place];
        let Some(names) = self.lexicon.file.prepositions.get(&preposition.lower) else {
            return false;
        };
        if preposition.kind != TokenKind::Word {
            return false;
        }
        let states = &self.lexicon.file.states;
        if preposition.is_any(&["to", "as"]) {
            let mut near = self.tokens[place.saturating_sub(2)..place].iter();
            let near = near.find_map(|token| states.get(&token.lower));
            if self.target_parameter().or(near) == Some(&slot.parameter) {
                return true;
            }
        }
        slot.words.contains(&preposition.stem) || is_one_of(slot, names)
    }
}

fn is_one_of(slot: &Slot, names: &[String]) -> bool {
    let parameter = slot.parameter.to_lowercase();
    names.iter().any(|name| {
        name == "moment" && slot.kind == SlotKind::Moment
            || *name == parameter
            || slot.words.last().is_some_and(|word| *word == stem(name))
    })
}
