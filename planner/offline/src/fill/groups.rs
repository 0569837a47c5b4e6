//! Values that belong together: the items of a list, and `owner/repo`.

use std::ops::Range;

use serde_json::{Value, json};

use super::{Candidate, Filler, Filling};
use crate::token::TokenKind;

const WORDS_BEFORE_ITEM: [&str; 9] =
    ["of", "in", "from", "for", "the", "my", "also", "those", "to"];

pub(super) struct FoundValue {
    pub(super) value: Value,
    pub(super) tokens: Range<usize>,
    pub(super) start: usize,
    pub(super) score: f32,
}

impl Filler<'_> {
    /// Adds a value, and the list that it begins if other values of its kind follow: `12, 13 and
    /// 14`. A slot that takes no list gives one call for each value.
    pub(super) fn add_values(
        &self,
        at: usize,
        found: FoundValue,
        read: impl Fn(usize) -> Option<(Value, usize)>,
        candidates: &mut Vec<Candidate>,
    ) {
        let FoundValue { value, tokens, start, score } = found;
        let one = self.propose(at, value.clone(), start..tokens.end, score);
        candidates.push(one.valued(tokens.clone()));
        let (mut values, last) = self.items(tokens.end, read);
        if !values.is_empty() {
            values.insert(0, value);
            let is_list = self.tool.slots[at].is_list;
            let filling =
                if is_list { Filling::One(Value::Array(values)) } else { Filling::Many(values) };
            let score = score + self.weights.unplaced;
            let many = Candidate::new(vec![(at, filling)], start..last, score);
            candidates.push(many.valued(tokens.start..last));
        }
    }

    /// Reads the other items of a list, after the first item, which ends at `end`: `12, 13 and 14`.
    /// Returns the items, and the place after the last item.
    fn items<T>(&self, end: usize, read: impl Fn(usize) -> Option<(T, usize)>) -> (Vec<T>, usize) {
        let mut items = Vec::new();
        let mut end = end;
        while let Some((item, next)) = self.next_item(end).and_then(&read) {
            items.push(item);
            end = next;
        }
        (items, end)
    }

    fn next_item(&self, end: usize) -> Option<usize> {
        let mut next = end;
        loop {
            let token = self.tokens.get(next)?;
            let is_small = next > end && (token.is_any(&WORDS_BEFORE_ITEM) || self.is_noun(token));
            if !token.is_separator() && !is_small {
                return (next > end).then_some(next);
            }
            next += 1;
        }
    }

    pub(super) fn add_slugs(&self, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        let slot_of =
            |name: &String| self.tool.slots.iter().position(|slot| slot.parameter == *name);
        let names = &self.lexicon.file.forms["slashed"];
        let slots: Option<Vec<usize>> = names.iter().map(slot_of).collect();
        let Some([owner, repo]) = slots.as_deref() else { return };
        let parts = |place: usize| {
            let token = &self.tokens[place];
            let (owner, repo) = token.value.split_once('/')?;
            (token.kind == TokenKind::Slug).then(|| ((json!(owner), json!(repo)), place + 1))
        };
        for place in 0..self.tokens.len() {
            let Some((pair, _)) = parts(place) else { continue };
            let before = place
                .checked_sub(1)
                .filter(|at| self.is_at(*at, &["in", "of", "on", "from", "for", "to", "at"]));
            let score =
                weights.typed + if before.is_some() { weights.form } else { weights.near_form };
            let start = before.unwrap_or(place);
            let fills = |pairs: &[(Value, Value)]| {
                let (owners, repos): (Vec<Value>, Vec<Value>) = pairs.iter().cloned().unzip();
                vec![(*owner, Filling::from_values(owners)), (*repo, Filling::from_values(repos))]
            };
            let (mut pairs, end) = self.items(place + 1, parts);
            pairs.insert(0, pair);
            candidates.push(Candidate::new(fills(&pairs[..1]), start..place + 1, score));
            if pairs.len() > 1 {
                let score = score + 2.0 * weights.unplaced;
                candidates.push(Candidate::new(fills(&pairs), start..end, score));
            }
        }
    }
}
