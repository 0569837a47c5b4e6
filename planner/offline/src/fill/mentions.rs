//! Values that a query mentions anywhere: figures, names, days, quotations and codes.

use std::ops::Range;

use serde_json::Number;

use super::{Filler, count_f32};
use crate::{
    moment::Moment,
    token::{Kind, Token, number, stem},
    tool::is_alike,
};

/// The number of tokens before and after a value that can tell the slot of the value.
const NEAR_BEFORE: usize = 8;
const NEAR_AFTER: usize = 4;
/// A word counts less with each word between it and the value.
const DECAY: f32 = 0.85;
const UNIT_BYTES: usize = 6;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// A number. `is_share` is set if the query gives it in percent.
    Figure {
        value: Number,
        is_share: bool,
    },
    /// Words in capital letters.
    Name,
    /// A quotation, a code or an address.
    Text,
    Day,
    /// A word in small letters, which may be a value.
    Words,
}

#[derive(Clone, Debug)]
pub(super) struct Mention {
    pub(super) tokens: Range<usize>,
    pub(super) said: Said,
    /// Stems of the words around the value, with how much each counts.
    pub(super) near: Vec<(String, f32)>,
    /// The place of the word before the value and its article.
    pub(super) before: Option<usize>,
    /// Only `and` or a comma stands between the value and the value before it.
    pub(super) is_joined: bool,
    /// The value belongs to the name before it: `Miami, Florida`.
    pub(super) is_second: bool,
}

impl Filler<'_> {
    pub(super) fn mentions(&self) -> Vec<Mention> {
        let mut mentions: Vec<Mention> = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let found = self.read_mention(at);
            let end = found.as_ref().map_or(at + 1, |(_, end)| *end);
            if let Some((said, _)) = found.filter(|(said, _)| {
                let is_name = matches!(said, Said::Name | Said::Text);
                !(is_name && self.is_no_value(at..end, mentions.last()))
            }) {
                mentions.push(self.mention(at..end, said, 0, self.tokens.len()));
            }
            at = end;
        }
        for at in 0..mentions.len() {
            let start = at.checked_sub(1).map_or(0, |last| mentions[last].tokens.end);
            let end = mentions.get(at + 1).map_or(self.tokens.len(), |next| next.tokens.start);
            let Mention { tokens, said, .. } = mentions[at].clone();
            let gap = &self.tokens[start..tokens.start];
            let is_small =
                |token: &Token| token.is_separator() || token.is_any(&["the", "a", "an"]);
            let is_same = |last: usize| {
                std::mem::discriminant(&mentions[last].said) == std::mem::discriminant(&said)
            };
            let is_joined = gap.iter().any(Token::is_separator)
                && gap.iter().all(is_small)
                && at.checked_sub(1).is_some_and(is_same);
            mentions[at] = Mention { is_joined, ..self.mention(tokens, said, start, end) };
        }
        self.share_contexts(&mut mentions);
        mentions
    }

    /// Gives the items of a list the words around its first item. `Miami, Florida` is no list.
    fn share_contexts(&self, mentions: &mut [Mention]) {
        for at in 1..mentions.len() {
            let continues = mentions.get(at + 1).is_some_and(|next| next.is_joined);
            let (before, own) = mentions.split_at_mut(at);
            let (last, own) = (&before[at - 1], &mut own[0]);
            let has_comma = own.tokens.start > 0 && self.tokens[own.tokens.start - 1].is_mark(",");
            let is_pair = own.said == Said::Name && has_comma && !last.is_joined && !continues;
            own.is_second = own.is_joined && is_pair;
            own.is_joined &= !is_pair;
            if own.is_joined {
                own.before = last.before;
                own.near.extend_from_slice(&last.near);
            }
        }
    }

    /// Makes a mention with the words around it, from `start` to `end`.
    pub(super) fn mention(
        &self,
        tokens: Range<usize>,
        said: Said,
        start: usize,
        end: usize,
    ) -> Mention {
        let is_content =
            |token: &&Token| token.kind == Kind::Word && !self.lexicon.is_filler(token);
        let before = self.tokens[start..tokens.start].iter().rev().take(NEAR_BEFORE);
        let before = before.take_while(|token| !token.is_any(&[".", "?", "!", "\n"]));
        let behind = self.tokens[tokens.end..end].iter().take(NEAR_AFTER).take_while(|token| {
            let is_preposition = self.lexicon.is_preposition(token) && !token.is("of");
            token.kind == Kind::Word && !token.is_separator() && !is_preposition
        });
        let weigh = |(at, token): (usize, &Token)| (token.stem.clone(), DECAY.powf(count_f32(at)));
        let near = before.filter(is_content).enumerate().map(weigh);
        let near = near.chain(behind.filter(is_content).enumerate().map(weigh));
        let told = self.told_words(&tokens, &said).iter().map(|word| (stem(word), 1.0));
        let near = near.chain(told).collect();
        let is_article = |at: &usize| self.is_at(*at, &["the", "a", "an", "my", "our"]);
        let before = (0..tokens.start).rev().find(|at| !is_article(at));
        Mention { tokens, said, near, before, is_joined: false, is_second: false }
    }

    /// Returns words that follow from the form of a figure: `2020` is a year, `$5` an amount.
    fn told_words(&self, tokens: &Range<usize>, said: &Said) -> &'static [&'static str] {
        let Said::Figure { value, is_share } = said else { return &[] };
        let first = &self.tokens[tokens.start];
        let is_unit = |next: &Token| {
            next.kind == Kind::Word && !self.lexicon.is_filler(next) && !next.is_separator()
        };
        let has_unit = self.tokens.get(tokens.end).is_some_and(is_unit);
        let is_year = value.as_u64().is_some_and(|year| (1000..2200).contains(&year));
        if *is_share {
            &["rate", "percentage"]
        } else if first.value.starts_with('$') {
            &["amount", "dollar"]
        } else if is_year && first.value.len() == 4 && !has_unit {
            &["year"]
        } else {
            &[]
        }
    }

    fn read_mention(&self, at: usize) -> Option<(Said, usize)> {
        let token = &self.tokens[at];
        let is_day = |moment: &&Moment| moment.tokens.start == at && moment.time.is_none();
        if let Some(day) = self.moments.iter().find(is_day) {
            return Some((Said::Day, day.tokens.end));
        }
        // `2022/08/16`
        let parts: Vec<&str> = token.value.split(['/', '.', '-']).collect();
        if parts.len() == 3
            && parts.iter().all(|part| part.len() <= 4 && part.parse::<u16>().is_ok())
        {
            return Some((Said::Day, at + 1));
        }
        let name = || self.name_end(at).map(|end| (Said::Name, end));
        match token.kind {
            Kind::Mark => None,
            Kind::Quoted => Some((Said::Text, at + 1)),
            Kind::Word => self.read_figure(at).or_else(name),
            _ => self.read_figure(at).or(Some((Said::Text, at + 1))),
        }
    }

    /// Returns whether a name is no value, but words of the tool or the unit of the figure before
    /// it.
    fn is_no_value(&self, range: Range<usize>, last: Option<&Mention>) -> bool {
        let tokens = &self.tokens[range.clone()];
        let slots = || self.tool.slots.iter();
        let is_own = |token: &Token| {
            self.is_tool_word(&token.stem) || slots().any(|slot| slot.words.contains(&token.stem))
        };
        let is_figure = |last: &Mention| {
            last.tokens.end == range.start && matches!(last.said, Said::Figure { .. })
        };
        let is_unit = |token: &Token| {
            token.value.len() <= 2 || slots().any(|slot| slot.about.contains(&token.stem))
        };
        let letters = |text: &str| text.replace(|char: char| !char.is_alphanumeric(), "");
        let name = letters(&tokens[0].value);
        let own = [self.tool.name.as_str(), self.tool.name.rsplit('.').next().unwrap_or_default()];
        if own.iter().any(|own| letters(own).eq_ignore_ascii_case(&name)) {
            return true;
        }
        let is_enclosed =
            range.start > 0 && self.is_at(range.start - 1, &["("]) && self.is_at(range.end, &[")"]);
        tokens[0].kind != Kind::Quoted
            && (tokens.iter().all(is_own)
                || tokens.len() == 1
                    && (is_enclosed || last.is_some_and(is_figure) && is_unit(&tokens[0])))
    }

    /// Reads `5`, `$1.2`, `5 million`, `3%`, `20kg`, `7-day`, `2nd`, and `three` before the noun of a
    /// slot.
    fn read_figure(&self, at: usize) -> Option<(Said, usize)> {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1);
        if let Some(small) = self.lexicon.small_number(&token.lower) {
            let mut words = self.tool.slots.iter().flat_map(|slot| &slot.words);
            let is_counted = next.is_some_and(|next| words.any(|word| is_alike(word, &next.stem)));
            let said = Said::Figure { value: small.into(), is_share: false };
            return (small > 1 && is_counted).then_some((said, at + 1));
        }
        let text = token.lower.trim_end_matches('%');
        let is_digit = |char: char| char.is_ascii_digit() || "$€£#+-.,".contains(char);
        let (digits, unit) = text.split_at(text.find(|char| !is_digit(char)).unwrap_or(text.len()));
        let is_unit = unit.chars().all(|char| char.is_alphabetic() || "/^²³°".contains(char));
        let value = number(digits.trim_end_matches(['-', '.']))?;
        if unit.len() > UNIT_BYTES || !is_unit {
            return None;
        }
        let scale = match next.map_or("", |next| next.lower.as_str()) {
            "thousand" => 1e3,
            "million" => 1e6,
            "billion" => 1e9,
            _ => 1.0,
        };
        let is_money = token.value.starts_with('$') || token.value.ends_with(['M', 'B']);
        let by_unit = match unit {
            "k" if is_money => 1e3,
            "m" if is_money => 1e6,
            "b" if is_money => 1e9,
            _ => 1.0,
        };
        let end = at + 1 + usize::from(scale > 1.0);
        let scale = scale * by_unit;
        let scaled = value.as_f64().filter(|_| scale > 1.0);
        let scaled = scaled.and_then(|amount| number(&round(amount * scale).to_string()));
        let is_share =
            token.lower.ends_with('%') || next.is_some_and(|next| next.is_any(&["%", "percent"]));
        Some((Said::Figure { value: scaled.unwrap_or(value), is_share }, end))
    }

    /// Returns where a name ends that begins at a place: `Lebron James`, `Museum of Art`.
    fn name_end(&self, at: usize) -> Option<usize> {
        // A capital letter at the start of a sentence makes no name.
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
            let last = &self.tokens[end - 1];
            let is_owner = last.without_possessive().len() < last.value.len();
            let gap = usize::from(self.is_at(end, &["of", "the"]));
            let is_day = gap == 0 && self.moments.iter().any(|moment| moment.tokens.start == end);
            if is_owner || is_day || !self.is_name_word(end + gap) {
                return Some(end);
            }
            end += gap + 1;
        }
    }

    fn is_name_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| {
            let is_inner = || !self.begins_sentence(at) && self.is_name_word(at + 1);
            token.kind == Kind::Word
                && token.value.starts_with(char::is_uppercase)
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

/// Removes the rounding error of a product: `1.2 * 1e6`.
pub(super) fn round(amount: f64) -> f64 {
    (amount * 1e9).round() / 1e9
}
