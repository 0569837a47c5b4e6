//! Calls of a tool that only reads, from the values that a query mentions anywhere.
//!
//! No grammar tells the slot of a value. The words around it do, and its form, and the order of the
//! slots. A slot may get several values, and then there are several calls.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Number, Value, json};

use super::{
    Candidate, FillContext, Filler, Filling, count_f32,
    mentions::{Mention, Said, round},
    reading::CandidateKind,
    repeats::Placed,
};
use crate::{
    clause::Clause,
    moment::{find_moments, write_moment},
    token::{Kind, Token, stem},
    tool::{Slot, SlotKind},
};

/// Maximum number of words of a value in small letters.
const MAX_WORDS: usize = 3;

/// The calls of a tool for a query, and how sure they are.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) calls: Vec<Map<String, Value>>,
    pub(crate) score: f32,
    pub(crate) missing: usize,
    /// Slots whose values no word of the query announces.
    pub(crate) guessed: Vec<usize>,
    /// Values without a place.
    pub(crate) unplaced: Vec<Range<usize>>,
}

/// Reads a query as calls of a tool that reads.
pub(crate) fn look_up(scene: &FillContext<'_>, clause: &Clause, tool: usize) -> Lookup {
    let filler = Filler {
        scene,
        lexicon: scene.lexicon,
        weights: scene.weights,
        tokens: &clause.tokens,
        tool: &scene.tools[tool],
        verb: &[],
        moments: &find_moments(&clause.tokens),
    };
    filler.look_up()
}

impl Filler<'_> {
    fn look_up(&self) -> Lookup {
        let mentions = self.mentions();
        let mut candidates = Vec::new();
        for (at, slot) in self.tool.slots.iter().enumerate() {
            match slot.kind {
                _ if slot.field.is_some() || slot.is_object => {}
                SlotKind::Choice => self.add_choices(at, slot, None, &mut candidates),
                SlotKind::Flag => self.add_said_flags(at, slot, &mut candidates),
                _ => {
                    self.add_mentions(at, slot, &mentions, &mut candidates);
                    if slot.kind == SlotKind::Moment {
                        self.add_said_options(at, slot, &mut candidates);
                        self.add_relative_days(at, &mut candidates);
                    }
                    if slot.is_free() || slot.kind == SlotKind::Id && !slot.is_numeric {
                        self.add_said_options(at, slot, &mut candidates);
                        self.add_words(at, slot, &mentions, &mut candidates);
                    }
                }
            }
        }
        let chosen = self.choose_repeated(&candidates, &mentions);
        let mut values: BTreeMap<usize, Vec<Placed>> = BTreeMap::new();
        let mut lookup = Lookup { score: chosen.score, ..Lookup::default() };
        let mut is_placed = vec![false; self.tokens.len()];
        for candidate in chosen.candidates.iter().map(|at| &candidates[*at]) {
            candidate.tokens.clone().for_each(|at| is_placed[at] = true);
            for (slot, filling) in &candidate.fills {
                lookup.guessed.extend(candidate.is_guess.then_some(*slot));
                let Filling::One(value) = filling else { continue };
                values.entry(*slot).or_default().push((candidate.tokens.clone(), value.clone()));
            }
        }
        let is_missing = |(at, slot): &(usize, &Slot)| slot.is_required && !values.contains_key(at);
        lookup.missing = self.tool.slots.iter().enumerate().filter(is_missing).count();
        let left = mentions.into_iter().map(|mention| mention.tokens);
        lookup.unplaced = left.filter(|tokens| !is_placed[tokens.start]).collect();
        lookup.calls = self.spread(&values);
        lookup
    }

    /// Adds the values that a query mentions, for a slot that can take them.
    fn add_mentions(
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
            let least =
                if mention.said == Said::Name { weights.preposition } else { weights.near_form };
            let is_known = first > 0
                && self.is_region(mention.tokens.start)
                && self.is_comma_between(&mentions[first - 1], mention);
            let takes_regions = slot.words.iter().chain(&slot.about).any(|word| word == "state");
            if !slot.is_required && *score < weights.typed + least || is_known && !takes_regions {
                continue;
            }
            let link = mention.is_joined.then(|| mentions[first - 1].tokens.end);
            let is_guess = *score <= weights.typed;
            let mut push = |value: Value, last: usize, score: f32| {
                let tokens = mention.tokens.start..mentions[last].tokens.end;
                let value = if slot.is_list && !value.is_array() { json!([value]) } else { value };
                let candidate = Candidate::new(vec![(at, Filling::One(value))], tokens, score);
                let kind = match mention.said {
                    Said::Name => CandidateKind::Name,
                    Said::Figure { .. } => CandidateKind::Figure,
                    _ => CandidateKind::Other,
                };
                candidates.push(Candidate { is_guess, link, kind, ..candidate });
            };
            push(value.clone(), first, *score);
            // `Maroon 5`, `Chicago, IL` and `Miami, Florida`.
            if let Some(next) = mentions.get(first + 1).filter(|_| mention.said == Said::Name) {
                let is_number = next.tokens.start == mention.tokens.end
                    && matches!(next.said, Said::Figure { .. });
                let is_region =
                    self.is_region(next.tokens.start) && self.is_comma_between(mention, next);
                let text = || self.text_of(&(mention.tokens.start..next.tokens.end));
                if is_number || is_region {
                    push(text(), first + 1, score + weights.preposition);
                } else if next.is_second {
                    push(text(), first + 1, score + weights.near_form);
                }
            }
            let mut items = vec![value.clone()];
            let mut total = *score;
            let mut last = first + 1;
            while slot.is_list
                && !value.is_array()
                && mentions.get(last).is_some_and(|next| next.is_joined)
            {
                let Some((value, score)) = &fits[last] else { break };
                items.push(value.clone());
                total += score + weights.required;
                push(json!(items), last, total);
                last += 1;
            }
        }
    }

    fn is_comma_between(&self, first: &Mention, second: &Mention) -> bool {
        second.tokens.start == first.tokens.end + 1 && self.tokens[first.tokens.end].is_mark(",")
    }

    /// Returns the value that a mention gives a slot, with how well it fits.
    fn mention_fit(&self, mention: &Mention, slot: &Slot) -> Option<(Value, f32)> {
        let weights = self.weights;
        let score = weights.typed + self.evidence(mention, slot);
        let is_dated = slot.kind == SlotKind::Moment
            || slot.words.iter().any(|word| self.lexicon.kinds["moment"].contains(word));
        let first = &self.tokens[mention.tokens.start];
        match &mention.said {
            Said::List(list) => slot.is_list.then(|| (list.clone(), score + weights.form)),
            Said::Figure { value, is_share } if slot.is_numeric => {
                let value = self.figure_for(value, *is_share, mention, slot)?;
                let is_year = is_alike("year", &slot.head);
                let is_foreign =
                    self.is_year(mention) && !is_year || first.value.starts_with('$') && is_year;
                Some((value, score - if is_foreign { weights.foreign } else { 0.0 }))
            }
            _ if slot.is_numeric => None,
            Said::Figure { .. } => {
                let is_id = slot.kind == SlotKind::Id || score > weights.typed + weights.cue;
                is_id.then(|| (json!(first.value.trim_start_matches('#')), score))
            }
            Said::Day => {
                let moment =
                    self.moments.iter().find(|moment| moment.tokens.start == mention.tokens.start);
                let day = moment.and_then(|moment| moment.day);
                let text = day.map_or_else(
                    || self.text_of(&mention.tokens),
                    |day| json!(write_moment(day, None)),
                );
                is_dated.then_some((text, score + weights.form))
            }
            _ if slot.kind == SlotKind::Moment => None,
            Said::Name | Said::Text | Said::Words => {
                let value = self.text_of(&mention.tokens);
                let text = value.as_str().unwrap_or_default();
                let chooses = |other: &Slot| {
                    other.choices.iter().any(|choice| choice.eq_ignore_ascii_case(text))
                };
                if self.tool.slots.iter().any(chooses) {
                    return None;
                }
                let fit = match (slot.kind, first.kind) {
                    (SlotKind::Email, Kind::Email) | (SlotKind::Url, Kind::Url) => weights.form,
                    (SlotKind::Email | SlotKind::Url, _) => return None,
                    (_, Kind::Quoted) => weights.quoted,
                    (SlotKind::Id, Kind::Code | Kind::Id) | (SlotKind::Path, Kind::Path) => {
                        weights.form
                    }
                    (_, Kind::Path | Kind::Url) => -weights.form,
                    _ => 0.0,
                };
                Some((value, score + fit))
            }
        }
    }

    /// Returns a figure in the form that a slot takes: `5%` is 0.05 for a rate that is no integer. A
    /// number in words counts only before the noun of the slot.
    fn figure_for(
        &self,
        value: &Number,
        is_share: bool,
        mention: &Mention,
        slot: &Slot,
    ) -> Option<Value> {
        let first = &self.tokens[mention.tokens.start];
        if first.kind == Kind::Word && self.lexicon.small_number(&first.lower).is_some() {
            let next = self.tokens.get(mention.tokens.end)?;
            if !slot.words.iter().any(|word| is_alike(word, &next.stem)) {
                return None;
            }
        }
        let is_percentage = slot.about.iter().any(|word| word.starts_with("percent"));
        if is_share && !slot.is_whole && !is_percentage {
            return value.as_f64().map(|amount| json!(round(amount / 100.0)));
        }
        let value = self.convert(Value::Number(value.clone()), mention.tokens.start, slot);
        (!slot.is_whole || value.is_i64() || value.is_u64()).then_some(value)
    }

    /// Adds values in the description of a slot that the query says: `e.g. 'summary' or 'detailed'`.
    fn add_said_options(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        for (option, is_exact) in &slot.options {
            let lower = option.to_lowercase();
            if self.lexicon.fillers.contains(&lower) || self.lexicon.loops.has(&lower) {
                continue;
            }
            let words: Vec<String> = lower.split([' ', '_']).map(stem).collect();
            for (place, token) in self.tokens.iter().enumerate() {
                let tokens = place..place + words.len();
                // `asc` is meant by `ascending`.
                let is_short = *is_exact
                    && words.len() == 1
                    && lower.len() >= 3
                    && token.lower.starts_with(&lower);
                if self.is_said_at(place, &words) {
                    let value = if *is_exact { json!(option) } else { self.text_of(&tokens) };
                    candidates.push(self.single_value_candidate(
                        at,
                        value,
                        tokens,
                        weights.choice + weights.form,
                    ));
                } else if is_short {
                    candidates.push(self.single_value_candidate(
                        at,
                        json!(option),
                        tokens,
                        weights.choice + weights.near_form,
                    ));
                }
            }
        }
    }

    /// Adds days relative to today in the words of the query: `next Friday`, `tomorrow`.
    fn add_relative_days(&self, at: usize, candidates: &mut Vec<Candidate>) {
        for (place, token) in self.tokens.iter().enumerate() {
            let is_weekday =
                token.lower.len() > 3 && token.lower.parse::<chrono::Weekday>().is_ok();
            if is_weekday || token.is_any(&["today", "tomorrow", "tonight", "yesterday", "weekend"])
            {
                let has_more = place > 0 && self.is_at(place - 1, &["next", "this", "last"]);
                let tokens = place - usize::from(has_more)..place + 1;
                let score = self.weights.typed + self.weights.form;
                candidates.push(self.single_value_candidate(
                    at,
                    self.text_of(&tokens),
                    tokens,
                    score,
                ));
            }
        }
    }

    /// Adds flags by the words of their names: `include_history` where the query says `history`.
    fn add_said_flags(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let is_own = |word: &&String| {
            !self.lexicon.fillers.contains(*word)
                && self.lexicon.concepts(word).is_empty()
                && !matches!(word.as_str(), "includ" | "option")
        };
        let words: Vec<&String> = slot.words.iter().filter(is_own).collect();
        let says =
            |token: &Token, word: &String| token.kind == Kind::Word && is_alike(&token.stem, word);
        let is_said = |word: &&String| self.tokens.iter().any(|token| says(token, word));
        let Some(last) = words.last().filter(|_| slot.is_required || words.iter().all(is_said))
        else {
            return;
        };
        for place in (0..self.tokens.len()).filter(|place| says(&self.tokens[*place], last)) {
            let is_not =
                |before: usize| self.is_at(before, &["not", "no", "without", "don't", "exclude"]);
            let value = !(place.saturating_sub(5)..place).any(is_not);
            candidates.push(self.single_value_candidate(
                at,
                json!(value),
                place..place + 1,
                self.weights.near_form,
            ));
        }
    }

    /// Adds words in small letters: `made of marble`, `the color magenta`, `a classical concert`.
    fn add_words(
        &self,
        at: usize,
        slot: &Slot,
        mentions: &[Mention],
        candidates: &mut Vec<Candidate>,
    ) {
        if !slot.is_required && !slot.is_list {
            return;
        }
        let weights = self.weights;
        let is_content = |token: &Token| {
            token.kind == Kind::Word
                && !self.lexicon.is_filler(token)
                && !token.is_separator()
                && !token.is_any(&["should", "next", "respectively", "least", "using", "such"])
        };
        let mut is_free: Vec<bool> = self.tokens.iter().map(is_content).collect();
        mentions
            .iter()
            .flat_map(|mention| mention.tokens.clone())
            .for_each(|place| is_free[place] = false);
        let end_of = |start: usize| {
            (start..self.tokens.len()).take(MAX_WORDS).take_while(|place| is_free[*place]).count()
                + start
        };
        for start in 1..self.tokens.len() {
            for end in start + 1..=end_of(start) {
                let before = (0..start)
                    .rev()
                    .find(|place| !is_free[*place] && !self.is_at(*place, &["the", "a", "an"]));
                let mention = self.words_at(start..end, before.map_or(0, |place| place + 1));
                let evidence = self.evidence(&mention, slot);
                if !slot.is_required && evidence < weights.preposition {
                    continue;
                }
                let is_own = |token: &&Token| {
                    self.is_tool_word(&token.stem)
                        || slot.mentions(&token.stem)
                        || !self.lexicon.concepts(&token.stem).is_empty()
                        || token.lower.ends_with("ing")
                        || token.lower.ends_with("ed")
                };
                let own = count_f32(self.tokens[start..end].iter().filter(is_own).count());
                let is_announced = mention
                    .before
                    .is_some_and(|place| self.lexicon.is_preposition(&self.tokens[place]));
                let score = evidence + if is_announced { weights.near_form } else { 0.0 }
                    - weights.foreign * (own + 1.0)
                    + weights.length * count_f32(end - start);
                let link = (start > 1 && self.tokens[start - 1].is_separator()).then(|| start - 1);
                let mut push = |value: Value, end: usize, score: f32, is_guess: bool| {
                    let candidate = self.single_value_candidate(at, value, start..end, score);
                    candidates.push(Candidate {
                        is_guess,
                        link,
                        kind: CandidateKind::Words,
                        ..candidate
                    });
                };
                push(self.text_of(&(start..end)), end, score, evidence < weights.preposition);
                if !slot.is_list || is_free[start - 1] || is_free.get(end) == Some(&true) {
                    continue;
                }
                let mut items = vec![self.text_of(&(start..end))];
                let mut last = end;
                loop {
                    let next = last
                        + self.tokens[last..]
                            .iter()
                            .take_while(|token| token.is_separator())
                            .count();
                    let end = end_of(next);
                    if next == last || end == next {
                        break;
                    }
                    items.push(self.text_of(&(next..end)));
                    last = end;
                    push(
                        json!(items),
                        last,
                        score + weights.near_form * count_f32(items.len() - 1),
                        false,
                    );
                }
            }
        }
    }

    /// Returns how much the words around a mention speak for a slot.
    fn evidence(&self, mention: &Mention, slot: &Slot) -> f32 {
        let weights = self.weights;
        let near = mention.near.iter().map(|(word, weight)| weight * self.word_fit(word, slot));
        let near = near.sum::<f32>().min(weights.cue + weights.preposition);
        let mut tokens =
            self.tokens[mention.tokens.clone()].iter().filter(|token| token.kind == Kind::Word);
        // `Premier League` is a league.
        let is_named = mention.said == Said::Name
            && tokens.any(|token| slot.words.iter().any(|word| is_alike(&token.stem, word)));
        let is_unit = |text: &str| {
            text.trim_end_matches(['.', ')', ',', ';'])
                .trim_start_matches('(')
                .eq_ignore_ascii_case(&mention.unit)
        };
        let has_unit = !mention.unit.is_empty() && slot.description.split_whitespace().any(is_unit);
        let announced = mention.before.map_or(0.0, |place| {
            let word = self.tokens[place].lower.as_str();
            if self.announces(word, slot) {
                weights.preposition
            } else if self.tool.slots.iter().any(|other| self.announces(word, other)) {
                -weights.foreign
            } else {
                0.0
            }
        });
        near + announced
            + if is_named { weights.preposition } else { 0.0 }
            + if has_unit { weights.near_form } else { 0.0 }
    }

    fn announces(&self, preposition: &str, slot: &Slot) -> bool {
        let Some(names) = self
            .lexicon
            .prepositions
            .get(preposition)
            .filter(|_| !matches!(preposition, "for" | "of" | "with"))
        else {
            return false;
        };
        let is_head = slot.words.last() == Some(&slot.head);
        let is_named = |name: &String| {
            let name = stem(name);
            name == slot.head
                || name == "moment" && slot.kind == SlotKind::Moment
                || !is_head && slot.words.first() == Some(&name)
        };
        slot.words.iter().any(|word| word == preposition) || names.iter().any(is_named)
    }

    /// Returns how much a word speaks for a slot: less if other slots of the tool have it, too.
    fn word_fit(&self, word: &str, slot: &Slot) -> f32 {
        let is_same = |own: &String| is_alike(own, word) || self.lexicon.is_same_noun(own, word);
        let in_name = |slot: &Slot| slot.words.iter().any(is_same);
        let in_text = |slot: &Slot| slot.gist.iter().any(|own| is_alike(own, word));
        let count = |is_in: &dyn Fn(&Slot) -> bool| {
            count_f32(self.tool.slots.iter().filter(|slot| is_in(slot)).count())
        };
        if in_name(slot) {
            let share =
                if is_same(&slot.head) { self.weights.cue } else { self.weights.preposition };
            share / count(&in_name)
        } else if in_text(slot) {
            self.weights.near_form / count(&|slot| in_name(slot) || in_text(slot))
        } else {
            0.0
        }
    }
}

/// Returns whether two stems are the same word in other forms: `weigh` and `weight`.
fn is_alike(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    short == long || short.len() >= 4 && long.starts_with(short) && long.len() <= short.len() + 4
}
