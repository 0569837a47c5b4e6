use std::ops::Range;

use serde_json::{Number, Value};

use super::{Filler, to_f32};
use crate::{
    moment::Moment,
    token::{Token, TokenKind, number, stem},
    tool::{Slot, is_alike},
};

const MAX_TOKENS_BEFORE: usize = 8;
const MAX_TOKENS_AFTER: usize = 4;
const WEIGHT_DECAY: f32 = 0.85;
const MAX_UNIT_BYTES: usize = 6;
const MAX_VALUE_WORDS: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum MentionKind {
    /// A number. `is_share` is set if the query gives it in percent.
    Figure {
        value: Number,
        is_share: bool,
    },
    Name,
    /// A token that is neither a word nor a figure, such as a quotation, a code or an address.
    Text,
    Moment,
    List(Value),
    Words,
}

#[derive(Clone, Debug)]
pub(super) struct Mention {
    pub(super) tokens: Range<usize>,
    pub(super) kind: MentionKind,
    pub(super) near_words: Vec<(String, f32)>,
    pub(super) before: Option<usize>,
    /// `true` if the value continues a list of values of one kind: `Rome` in `Oslo and Rome`.
    pub(super) is_joined: bool,
}

impl Filler<'_> {
    pub(super) fn mentions(&self) -> Vec<Mention> {
        let mut mentions: Vec<Mention> = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let found = self.read_mention(at).or_else(|| self.read_words(at));
            let end = found.as_ref().map_or(at + 1, |(_, end)| *end);
            let is_value = |(kind, _): &(MentionKind, usize)| {
                !matches!(kind, MentionKind::Name | MentionKind::Text)
                    || !self.is_tool_or_slot_name(at..end)
            };
            if let Some((kind, _)) = found.filter(is_value) {
                mentions.push(self.mention(at..end, kind, 0, self.tokens.len()));
            }
            at = end;
        }
        for at in 0..mentions.len() {
            let Mention { tokens, kind, .. } = mentions[at].clone();
            let gap = at.checked_sub(1).map_or(0, |last| mentions[last].tokens.end);
            let gap = &self.tokens[gap..tokens.start];
            // Words in small letters may tell the slot of a value, so they do not end its context.
            let is_sure = |other: &&Mention| other.kind != MentionKind::Words;
            let start = mentions[..at].iter().rfind(is_sure).map_or(0, |last| last.tokens.end);
            let next = mentions[at + 1..].iter().find(is_sure);
            let end = next.map_or(self.tokens.len(), |next| next.tokens.start);
            // The items of a list may repeat the preposition: `of Oslo and of Rome`.
            let before = at.checked_sub(1).and_then(|last| mentions[last].before);
            let before = before.map_or("", |place| self.tokens[place].lower.as_str());
            let is_small =
                |token: &Token| token.is_separator() || token.is_any(&["the", "a", "an", before]);
            let is_same = |last: usize| {
                std::mem::discriminant(&mentions[last].kind) == std::mem::discriminant(&kind)
            };
            let is_list = matches!(kind, MentionKind::List(_));
            let is_joined = !is_list
                && gap.iter().any(Token::is_separator)
                && gap.iter().all(is_small)
                && at.checked_sub(1).is_some_and(is_same);
            mentions[at] = Mention { is_joined, ..self.mention(tokens, kind, start, end) };
        }
        self.share_contexts(&mut mentions);
        mentions
    }

    /// Gives the items of a list the words around its first item. `Miami, Florida` is not a list.
    fn share_contexts(&self, mentions: &mut [Mention]) {
        for at in 1..mentions.len() {
            let continues = mentions.get(at + 1).is_some_and(|next| next.is_joined);
            let (before, own) = mentions.split_at_mut(at);
            let (last, own) = (&before[at - 1], &mut own[0]);
            let has_comma = own.tokens.start > 0 && self.tokens[own.tokens.start - 1].is_mark(",");
            let is_pair =
                own.kind == MentionKind::Name && has_comma && !last.is_joined && !continues;
            own.is_joined &= !is_pair;
            if own.is_joined {
                own.before = last.before;
                own.near_words.extend_from_slice(&last.near_words);
            }
        }
    }

    pub(super) fn mention(
        &self,
        tokens: Range<usize>,
        kind: MentionKind,
        start: usize,
        end: usize,
    ) -> Mention {
        let is_content = |token: &&Token| self.lexicon.is_content(token);
        let before = self.tokens[start..tokens.start].iter().rev().take(MAX_TOKENS_BEFORE);
        let is_near = |token: &&Token| token.kind == TokenKind::Word && !token.is("and");
        let behind = self.tokens[tokens.end..end].iter().take(MAX_TOKENS_AFTER).take_while(is_near);
        let weigh =
            |(at, token): (usize, &Token)| (token.stem.clone(), WEIGHT_DECAY.powf(to_f32(at)));
        let near_words = before.filter(is_content).enumerate().map(weigh);
        // The unit counts twice. It is `minute` in `45-minute`, and `days` in `5 days`.
        let text = &self.tokens[tokens.start].lower;
        let unit = text.trim_start_matches(|char: char| !char.is_alphabetic());
        let next = self.tokens.get(tokens.end).filter(is_content).map_or("", |next| &next.lower);
        let unit = stem(if unit.is_empty() { next } else { unit });
        let has_unit = matches!(kind, MentionKind::Figure { .. }) && !unit.is_empty();
        let near_words = near_words.chain(behind.filter(is_content).enumerate().map(weigh));
        let near_words = near_words.chain(has_unit.then_some((unit, 1.0))).collect();
        let is_article = |at: &usize| self.is_at(*at, &["the", "a", "an", "my", "our"]);
        let before = (0..tokens.start).rev().find(|at| !is_article(at));
        Mention { tokens, kind, near_words, before, is_joined: false }
    }

    fn read_mention(&self, at: usize) -> Option<(MentionKind, usize)> {
        let token = &self.tokens[at];
        if let Some(list) = self.read_list(at) {
            return Some(list);
        }
        let begins = |moment: &&Moment| moment.tokens.start == at;
        if let Some(moment) = self.moments.iter().find(begins) {
            return Some((MentionKind::Moment, moment.tokens.end));
        }
        let name = || self.name_end(at).map(|end| (MentionKind::Name, end));
        match token.kind {
            TokenKind::Mark => None,
            TokenKind::Quoted => Some((MentionKind::Text, at + 1)),
            TokenKind::Word => self.read_figure(at).or_else(name),
            _ => self.read_figure(at).or(Some((MentionKind::Text, at + 1))),
        }
    }

    fn read_list(&self, at: usize) -> Option<(MentionKind, usize)> {
        let has_lists = self.tool.slots.iter().any(|slot| slot.is_list);
        let open = Some(&self.tokens[at]).filter(|token| has_lists && token.is_mark("["))?;
        let text = self.fill_context.query.get(open.start..)?.replace('\'', "\"");
        let mut values = serde_json::Deserializer::from_str(&text).into_iter();
        let list = values.next()?.ok()?;
        let end = open.start + values.byte_offset();
        let closing = self.tokens.iter().position(|token| token.end >= end)?;
        Some((MentionKind::List(list), closing + 1))
    }

    fn is_tool_or_slot_name(&self, range: Range<usize>) -> bool {
        let tokens = &self.tokens[range];
        let is_own = |token: &Token| {
            let mut slots = self.tool.slots.iter();
            // A unit such as `Celsius` is not a value.
            let is_unit = |slot: &Slot| slot.is_numeric && slot.about.contains(&token.stem);
            self.is_tool_word(&token.stem)
                || slots.any(|slot| slot.words.contains(&token.stem) || is_unit(slot))
        };
        tokens[0].kind != TokenKind::Quoted && tokens.iter().all(is_own)
    }

    /// Reads words in small letters that may be a value: `marble` in `made of marble`.
    fn read_words(&self, at: usize) -> Option<(MentionKind, usize)> {
        let is_value = |token: &&Token| {
            let stem = &token.stem;
            let is_chosen = |slot: &Slot| {
                let shown = slot.choices.iter().chain(&slot.options);
                slot.mentions(stem)
                    || shown.into_iter().any(|own| own.to_lowercase() == token.lower)
            };
            self.lexicon.is_content(token)
                && !token.is_capitalised()
                && self.lexicon.concepts(stem).is_empty()
                && !self.is_tool_word(stem)
                && !self.tool.slots.iter().any(is_chosen)
        };
        let count = self.tokens[at..].iter().take(MAX_VALUE_WORDS).take_while(is_value).count();
        (count > 0).then_some((MentionKind::Words, at + count))
    }

    /// Reads `5`, `$1.2`, `5 million`, `3%`, `20kg`, `7-day`, `2nd`, and `three` before the noun of
    /// a slot.
    fn read_figure(&self, at: usize) -> Option<(MentionKind, usize)> {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1);
        if let Some(small) = self.lexicon.small_number(&token.lower) {
            let slots = self.tool.slots.iter().filter(|slot| slot.is_numeric);
            // `two adults` fits the `Number of adults.`
            let counts = |slot: &&Slot| slot.about.first().is_some_and(|word| word == "number");
            let about = slots.clone().filter(counts).flat_map(|slot| &slot.about);
            let mut words = slots.flat_map(|slot| &slot.words).chain(about);
            // Other words may be between the number and the noun: `five tallest buildings`.
            let near = &self.tokens[at + 1..self.tokens.len().min(at + 3)];
            let is_counted = words.any(|word| near.iter().any(|next| is_alike(word, &next.stem)));
            let kind = MentionKind::Figure { value: small.into(), is_share: false };
            return (small > 1 && is_counted).then_some((kind, at + 1));
        }
        let text = token.lower.trim_end_matches('%');
        let is_digit = |char: char| char.is_ascii_digit() || "$€£#+-.,".contains(char);
        let (digits, unit) = text.split_at(text.find(|char| !is_digit(char)).unwrap_or(text.len()));
        let is_unit = unit.chars().all(|char| char.is_alphabetic() || "/^²³°".contains(char));
        let value = number(digits.trim_end_matches(['-', '.']))?;
        if unit.len() > MAX_UNIT_BYTES || !is_unit {
            return None;
        }
        let scale: f64 = match next.map_or("", |next| next.lower.as_str()) {
            "thousand" => 1e3,
            "million" => 1e6,
            "billion" => 1e9,
            _ => 1.0,
        };
        let end = at + 1 + usize::from(scale > 1.0);
        let scaled = value.as_f64().filter(|_| scale > 1.0);
        let scaled = scaled.and_then(|amount| number(&round(amount * scale).to_string()));
        let is_share =
            token.lower.ends_with('%') || next.is_some_and(|next| next.is_any(&["%", "percent"]));
        Some((MentionKind::Figure { value: scaled.unwrap_or(value), is_share }, end))
    }

    fn name_end(&self, at: usize) -> Option<usize> {
        // A capital letter at the start of a sentence does not make a name.
        let is_verb = || {
            let stem = &self.tokens[at].stem;
            !self.lexicon.concepts(stem).is_empty() || self.is_tool_word(stem)
        };
        let is_first = self.begins_sentence(at) && (!self.is_name_word(at + 1) || is_verb());
        if !self.is_name_word(at) || is_first {
            return None;
        }
        let mut end = at + 1;
        loop {
            let gap = usize::from(self.is_at(end, &["of", "the"]));
            if !self.is_name_word(end + gap) {
                return Some(end);
            }
            end += gap + 1;
        }
    }

    fn is_name_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| {
            let is_inner = || !self.begins_sentence(at) && self.is_name_word(at + 1);
            token.is_capitalised()
                && !token.is_any(&["i", "id", "no"])
                && (!self.lexicon.is_filler(token) || is_inner())
        })
    }

    fn begins_sentence(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| &self.tokens[before]);
        before.is_none_or(|before| before.is_any(&[".", "!", "?", "\n", ":"]))
    }

    pub(super) fn is_tool_word(&self, stem: &String) -> bool {
        self.tool.verb == *stem
            || self.tool.has_noun(stem, self.lexicon)
            || self.tool.about.contains(stem)
    }
}

/// Removes the rounding error of a product or a quotient: `1.2 * 1e6`.
pub(super) fn round(amount: f64) -> f64 {
    (amount * 1e9).round() / 1e9
}
