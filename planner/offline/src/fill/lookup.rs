//! Calls of a tool that only reads, from the values that a query mentions anywhere.
//!
//! No grammar tells the slot of a value. The form of the value and the words around it tell the
//! slot. A slot may get several values, which become several calls.

use std::collections::BTreeMap;

use serde_json::{Number, Value, json};

use super::{
    Candidate, FillContext, Filler, Filling, Reading, count_f32,
    mentions::{Mention, Said, round},
    reading::Repeat,
};
use crate::{
    clause::Clause,
    moment::{find_moments, write_moment},
    token::{Kind, Token, stem},
    tool::{Slot, SlotKind, is_alike},
};

/// The most words of a value in small letters.
const MAX_WORDS: usize = 2;
const MAX_CALLS: usize = 16;

/// The place where a value of a slot begins, and the value.
type Placed = (usize, Value);

/// Reads a query as calls of a tool that reads.
pub(crate) fn look_up(scene: &FillContext<'_>, clause: &Clause, tool: usize) -> Reading {
    let moments = find_moments(&clause.tokens);
    let reading = Filler::new(scene, clause, tool, &moments).look_up();
    Reading { tool, ..reading }
}

impl Filler<'_> {
    fn look_up(&self) -> Reading {
        let mentions = self.mentions();
        let mut candidates = Vec::new();
        for (at, slot) in self.tool.slots.iter().enumerate() {
            if slot.field.is_some() || slot.kind == SlotKind::Object {
                continue;
            }
            match slot.kind {
                SlotKind::Choice => {
                    let before = candidates.len();
                    self.add_choices(at, slot, None, &mut candidates);
                    for choice in &mut candidates[before..] {
                        choice.repeat = Repeat::Apart;
                        choice.score += self.weights.form;
                    }
                }
                SlotKind::Flag => self.add_named_flags(at, slot, &mut candidates),
                _ => self.add_mentioned(at, slot, &mentions, &mut candidates),
            }
        }
        let mut costs = vec![0.0; self.tokens.len()];
        for mention in &mentions {
            let factor = if mention.said == Said::Name { 1.0 } else { 1.5 };
            costs[mention.tokens.start] = factor * self.weights.unplaced;
        }
        let chosen = self.choose(&candidates, &costs);
        let mut reading = Reading { score: chosen.score, ..Reading::default() };
        let mut values: BTreeMap<usize, Vec<Placed>> = BTreeMap::new();
        let mut is_placed = vec![false; self.tokens.len()];
        let mut last = None;
        for candidate in chosen.candidates.iter().map(|at| &candidates[*at]) {
            candidate.tokens.clone().for_each(|at| is_placed[at] = true);
            let slot = candidate.slot();
            reading.guessed.extend(candidate.is_guess.then_some(slot));
            let Filling::One(value) = &candidate.fills[0].1 else { continue };
            let placed = values.entry(slot).or_default();
            let is_next =
                matches!(candidate.repeat, Repeat::After(end) if last == Some((slot, end)));
            match (placed.last_mut(), value) {
                (Some((_, Value::Array(items))), Value::Array(more)) if is_next => {
                    items.extend_from_slice(more);
                }
                _ => placed.push((candidate.tokens.start, value.clone())),
            }
            last = Some((slot, candidate.tokens.end));
        }
        self.join_lists(&mut values);
        let slots = self.tool.slots.iter().enumerate();
        let is_missing = |(at, slot): &(usize, &Slot)| slot.is_required && !values.contains_key(at);
        reading.missing = slots.filter(is_missing).map(|(at, _)| at).collect();
        let left = mentions.iter().filter(|mention| !is_placed[mention.tokens.start]);
        reading.unplaced = left.flat_map(|mention| mention.tokens.clone()).collect();
        let is_paired = self.tokens.iter().any(|token| token.is("respectively"));
        reading.fillings = spread(&values, is_paired);
        reading
    }

    /// Joins several lists of a slot into one list, unless another slot has several values.
    fn join_lists(&self, values: &mut BTreeMap<usize, Vec<Placed>>) {
        let several = values.values().filter(|values| values.len() > 1).count();
        for (slot, lists) in values.iter_mut().filter(|(_, lists)| lists.len() > 1) {
            if self.tool.slots[*slot].is_list && several == 1 {
                let start = lists[0].0;
                let items = lists.drain(..).filter_map(|(_, list)| list.as_array().cloned());
                let joined = items.flatten().collect();
                lists.push((start, joined));
            }
        }
    }

    /// Adds the values that a query mentions, for a slot that can take them.
    fn add_mentioned(
        &self,
        at: usize,
        slot: &Slot,
        mentions: &[Mention],
        candidates: &mut Vec<Candidate>,
    ) {
        let weights = self.weights;
        let fits: Vec<Option<(Value, f32)>> =
            mentions.iter().map(|mention| self.mention_fit(mention, slot)).collect();
        for (first, fit) in fits.iter().enumerate() {
            let Some((value, score)) = fit else { continue };
            let mention = &mentions[first];
            let minimum = match mention.said {
                Said::Figure { .. } => weights.unusual,
                Said::Day => 0.0,
                _ => weights.preposition,
            };
            if !slot.is_required && *score < weights.typed + minimum {
                continue;
            }
            let repeat = match first.checked_sub(1).filter(|_| mention.is_joined) {
                Some(last) => Repeat::After(mentions[last].tokens.end),
                None => Repeat::Apart,
            };
            let mut push = |value: Value, last: usize, score: f32| {
                let tokens = mention.tokens.start..mentions[last].tokens.end;
                let candidate = self.single_value_candidate(at, value, tokens, score);
                let is_guess = score <= weights.typed;
                candidates.push(Candidate { is_guess, repeat, ..candidate });
            };
            push(value.clone(), first, *score);
            // `Maroon 5`, `Yamaha P125` and `Miami, Florida`.
            let is_more = |next: &&Mention| {
                let is_number =
                    matches!(self.tokens[next.tokens.start].kind, Kind::Number | Kind::Code);
                mention.said == Said::Name
                    && (next.is_second || is_number && next.tokens.start == mention.tokens.end)
            };
            if let Some(next) = mentions.get(first + 1).filter(is_more) {
                let text = self.slice(mention.tokens.start..next.tokens.end);
                push(json!(text), first + 1, score + weights.near_form);
            }
        }
        if !slot.is_numeric {
            self.add_options(at, slot, candidates);
            if slot.is_required && !matches!(slot.kind, SlotKind::Moment | SlotKind::Id) {
                self.add_small_words(at, slot, mentions, candidates);
            }
        }
    }

    /// Returns the value that a mention gives a slot, with how well it fits.
    fn mention_fit(&self, mention: &Mention, slot: &Slot) -> Option<(Value, f32)> {
        let weights = self.weights;
        let score = weights.typed + self.evidence(mention, slot);
        let first = &self.tokens[mention.tokens.start];
        let is_address = matches!(slot.kind, SlotKind::Email | SlotKind::Url);
        let is_same = matches!(
            (slot.kind, first.kind),
            (SlotKind::Email, Kind::Email) | (SlotKind::Url, Kind::Url)
        );
        let text = || json!(self.owner_text(mention));
        let is_code = slot.kind == SlotKind::Id && matches!(first.kind, Kind::Code | Kind::Id);
        let form = if is_code || first.kind == Kind::Quoted { weights.form } else { 0.0 };
        match &mention.said {
            Said::Figure { value, is_share } if slot.is_numeric => {
                Some((figure_for(value, *is_share, slot)?, score))
            }
            _ if slot.is_numeric => None,
            Said::Figure { .. } if slot.kind == SlotKind::Id => {
                Some((json!(first.value.trim_start_matches('#')), score))
            }
            Said::Day if slot.kind == SlotKind::Moment => {
                let mut moments = self.moments.iter();
                let moment = moments.find(|moment| moment.tokens == mention.tokens);
                let day = moment.and_then(|moment| moment.day);
                let day = day.map_or_else(text, |day| json!(write_moment(day, None)));
                Some((day, score + weights.form))
            }
            Said::Figure { .. } | Said::Day => None,
            _ if slot.kind == SlotKind::Moment || is_address && !is_same => None,
            _ => Some((text(), score + form)),
        }
    }

    fn owner_text(&self, mention: &Mention) -> String {
        let text = self.slice(mention.tokens.clone());
        let is_quoted = self.tokens[mention.tokens.start].kind == Kind::Quoted;
        let owner = text.strip_suffix("'s").or(text.strip_suffix("’s")).filter(|_| !is_quoted);
        owner.unwrap_or(&text).to_owned()
    }

    /// Adds values that both the description and the query contain: `e.g. summary or detailed`.
    fn add_options(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let score = self.weights.choice + self.weights.form;
        for option in &slot.options {
            let words = option.split([' ', '_']).map(|word| stem(&word.to_lowercase()));
            let words: Vec<String> = words.collect();
            for place in 0..self.tokens.len() {
                let tokens = place..place + words.len();
                if self.is_said_at(place, &words) {
                    let value = json!(option);
                    let option = self.single_value_candidate(at, value, tokens, score);
                    candidates.push(Candidate { repeat: Repeat::Apart, ..option });
                }
            }
        }
    }

    /// Adds flags whose last word is in the query: `history` for `include_history`.
    fn add_named_flags(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let is_content = |word: &&String| {
            !self.lexicon.fillers.contains(*word) && self.lexicon.concepts(word).is_empty()
        };
        let Some(last) = slot.words.iter().rfind(is_content) else { return };
        for (place, token) in self.tokens.iter().enumerate() {
            if token.kind == Kind::Word && is_alike(&token.stem, last) {
                let (tokens, score) = (place..place + 1, self.weights.near_form);
                candidates.push(self.single_value_candidate(at, json!(true), tokens, score));
            }
        }
    }

    /// Adds words in small letters: `made of marble`, `a classical concert`.
    fn add_small_words(
        &self,
        at: usize,
        slot: &Slot,
        mentions: &[Mention],
        candidates: &mut Vec<Candidate>,
    ) {
        let weights = self.weights;
        let is_free = |place: usize| {
            let token = &self.tokens[place];
            let is_value = |mention: &Mention| mention.tokens.contains(&place);
            token.kind == Kind::Word
                && !self.lexicon.is_filler(token)
                && !mentions.iter().any(is_value)
        };
        let free: Vec<bool> = (0..self.tokens.len()).map(is_free).collect();
        let is_border = |at: &usize| !free[*at] && !self.is_at(*at, &["the", "a", "an"]);
        for start in 1..self.tokens.len() {
            let border = (0..start).rev().find(is_border).map_or(0, |at| at + 1);
            let count = free[start..].iter().take(MAX_WORDS).take_while(|is_free| **is_free);
            for end in start + 1..=start + count.count() {
                let behind = (end + 1).min(self.tokens.len());
                let mention = self.mention(start..end, Said::Words, border, behind);
                let evidence = self.evidence(&mention, slot);
                let is_own =
                    |token: &&Token| self.is_tool_word(&token.stem) || slot.mentions(&token.stem);
                let own = self.tokens[start..end].iter().filter(is_own).count();
                let before = mention.before.map(|place| &self.tokens[place]);
                let is_announced = before.is_some_and(|token| self.lexicon.is_preposition(token));
                let score = evidence + if is_announced { weights.near_form } else { 0.0 }
                    - weights.foreign * (count_f32(own) + 1.0);
                let value = json!(self.slice(start..end));
                let candidate = self.single_value_candidate(at, value, start..end, score);
                let is_item = slot.is_list && self.tokens[start - 1].is_separator();
                let repeat = if is_item { Repeat::After(start - 1) } else { Repeat::Never };
                candidates.push(Candidate { is_guess: true, repeat, ..candidate });
            }
        }
    }

    /// Returns how much the words around a mention indicate a slot.
    fn evidence(&self, mention: &Mention, slot: &Slot) -> f32 {
        let weights = self.weights;
        let near = mention.near.iter().map(|(word, weight)| weight * self.word_fit(word, slot));
        let mut tokens = self.tokens[mention.tokens.clone()].iter();
        let has_word = |token: &Token| slot.words.iter().any(|word| is_alike(&token.stem, word));
        // `Premier League` is a league.
        let is_named = mention.said == Said::Name && tokens.any(has_word);
        let is_announced = mention.before.is_some_and(|place| {
            !self.is_at(place, &["for", "of", "with"]) && self.is_announced(slot, place)
        });
        let count = count_f32(usize::from(is_named) + usize::from(is_announced));
        near.sum::<f32>() + weights.preposition * count
    }

    /// Returns how much a word indicates a slot: less if other slots of the tool have it, too.
    fn word_fit(&self, word: &str, slot: &Slot) -> f32 {
        let is_same = |own: &String| is_alike(own, word) || self.lexicon.is_same_noun(own, word);
        let in_name = |slot: &Slot| slot.words.iter().any(is_same);
        let in_text =
            |slot: &Slot| in_name(slot) || slot.gist.iter().any(|own| is_alike(own, word));
        let count = |is_in: &dyn Fn(&Slot) -> bool| {
            count_f32(self.tool.slots.iter().filter(|slot| is_in(slot)).count())
        };
        if in_name(slot) {
            self.weights.cue / count(&in_name)
        } else if in_text(slot) {
            self.weights.near_form / count(&in_text)
        } else {
            0.0
        }
    }
}

/// Returns a figure in the form that a slot takes: `5%` is 0.05 unless the slot asks for percent.
fn figure_for(value: &Number, is_share: bool, slot: &Slot) -> Option<Value> {
    let takes_percent = slot.about.iter().any(|word| word.starts_with("percent"));
    if is_share && !slot.is_whole && !takes_percent {
        return value.as_f64().map(|amount| json!(round(amount / 100.0)));
    }
    (!slot.is_whole || value.is_i64()).then(|| Value::Number(value.clone()))
}

/// Makes calls of the values. Values of several slots go together if they are paired or take turns
/// in the query. Otherwise each value goes with each value of the other slots: `Oslo and Rome for 3
/// and 5 days`.
fn spread(values: &BTreeMap<usize, Vec<Placed>>, is_paired: bool) -> BTreeMap<usize, Filling> {
    let many: Vec<&Vec<Placed>> = values.values().filter(|values| values.len() > 1).collect();
    let ends = |values: &[Placed]| (values[0].0, values[values.len() - 1].0);
    let take_turns = |one: &[Placed], other: &[Placed]| {
        let ((start, end), (from, to)) = (ends(one), ends(other));
        start < to && from < end
    };
    let has_turns = is_paired
        || (1..many.len()).any(|at| many[..at].iter().any(|one| take_turns(one, many[at])));
    let mut rows: Vec<BTreeMap<usize, Value>> = vec![BTreeMap::new()];
    if many.len() < 2 || has_turns {
        let leader = many.iter().max_by_key(|values| values.len()).copied();
        let count = leader.map_or(1, Vec::len);
        rows = (0..count)
            .map(|call| {
                let end = leader.and_then(|values| values.get(call + 1));
                let end = end.map_or(usize::MAX, |(start, _)| *start);
                let pick = |values: &Vec<Placed>| {
                    let before = values.iter().rev().find(|(start, _)| *start < end);
                    let same = if values.len() == count { values.get(call) } else { before };
                    same.or(values.first()).map(|(_, value)| value.clone())
                };
                values.iter().filter_map(|(slot, values)| Some((*slot, pick(values)?))).collect()
            })
            .collect();
    } else {
        for (slot, values) in values {
            let with = |row: &BTreeMap<usize, Value>| {
                let row = row.clone();
                values.iter().map(move |(_, value)| {
                    let mut row = row.clone();
                    row.insert(*slot, value.clone());
                    row
                })
            };
            rows = rows.iter().flat_map(with).take(MAX_CALLS).collect();
        }
    }
    let column = |slot: usize| {
        let rows = rows.iter().take(MAX_CALLS);
        rows.filter_map(|row| row.get(&slot).cloned()).collect::<Vec<Value>>()
    };
    values.keys().map(|slot| (*slot, Filling::of(column(*slot)))).collect()
}
