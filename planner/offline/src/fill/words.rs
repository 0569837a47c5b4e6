//! Words that are not values: the nouns of the tool, and words that no slot takes.

use std::collections::BTreeSet;

use super::{Filler, to_f32};
use crate::token::{Token, TokenKind};

impl Filler<'_> {
    pub(super) fn score_nouns(&self, claimed: &[bool], values: &BTreeSet<usize>) -> (f32, bool) {
        let weights = self.weights;
        let nouns = &self.tool.nouns;
        if nouns.is_empty() {
            return (0.0, false);
        }
        let mut said: Vec<&str> = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let is_value = claimed[at] && values.contains(&at);
            if token.kind == TokenKind::Word && !self.verb.contains(&at) && !is_value {
                said.push(token.stem.as_str());
            }
            said.extend(token.path_noun());
        }
        let is_said = |noun: &String| {
            said.iter().any(|word| self.lexicon.is_same_noun(noun, word)) || self.has_compound(noun)
        };
        let found = nouns.iter().filter(|noun| is_said(noun)).count();
        let absent = nouns.len() - found;
        let score = weights.noun * to_f32(found.min(2) + found.min(1)) / 2.0
            - weights.noun_missing * to_f32(absent);
        (score, found > 0)
    }

    fn has_compound(&self, noun: &str) -> bool {
        self.tokens.windows(2).any(|pair| self.lexicon.is_same_noun(&pair_stem(pair), noun))
    }

    pub(super) fn unplaced_cost(&self, at: usize) -> f32 {
        let token = &self.tokens[at];
        let weights = self.weights;
        if token.kind == TokenKind::Mark || self.verb.contains(&at) {
            0.0
        } else if token.kind != TokenKind::Word {
            weights.unplaced_value
        } else if self.is_known_word(at) {
            0.0
        } else if self.fill_context.nouns.contains(&token.stem) {
            weights.unplaced_value
        } else {
            weights.unplaced
        }
    }

    fn is_known_word(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        self.lexicon.is_filler(token)
            || self.is_noun(token)
            || self.tool.about.contains(&token.stem)
            || self.tool.slots.iter().any(|slot| slot.mentions(&token.stem))
            || self.lexicon.loops.has(&token.lower)
            || self.lexicon.small_number(&token.lower).is_some()
            || self.lexicon.concepts(&token.stem).contains(&self.tool.verb)
            || token.stem == self.tool.verb
            || self.tool.verb.split(' ').any(|word| word == token.lower)
            || self.lexicon.is_compound_of(&token.stem, &self.tool.nouns)
    }

    pub(super) fn is_noun(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && self.tool.has_noun(&token.stem, self.lexicon)
    }
}

fn pair_stem(pair: &[Token]) -> String {
    format!("{} {}", pair[0].stem, pair[1].stem)
}
