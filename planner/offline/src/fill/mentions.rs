//! Values that a query mentions anywhere: figures, names, quotations and lists in brackets.

use std::ops::Range;

use serde_json::{Number, Value};

use super::Filler;
use crate::token::{Kind, Token, number, stem};

/// The number of words before and behind a value that can tell its slot.
const NEAR_BEFORE: usize = 8;
const NEAR_AFTER: usize = 4;
/// A word counts less with each word between it and the value.
const DECAY: f32 = 0.85;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Figure {
        value: Number,
        is_share: bool,
    },
    /// A name in capital letters.
    Name,
    /// A quotation, a code or an address.
    Text,
    Day,
    List(Value),
    /// Words in small letters.
    Words,
}

#[derive(Clone, Debug)]
pub(super) struct Mention {
    pub(super) tokens: Range<usize>,
    pub(super) said: Said,
    /// Stems of the words around the value, with what they count.
    pub(super) near: Vec<(String, f32)>,
    pub(super) unit: String,
    /// The place of the word before the value and its article.
    pub(super) before: Option<usize>,
    /// The value continues a list: only `and` or a comma stands between it and the one before.
    pub(super) is_joined: bool,
    /// The value belongs to the one before: `Miami, Florida`.
    pub(super) is_second: bool,
}

impl Mention {
    fn new(tokens: Range<usize>, said: Said) -> Self {
        let (near, unit) = (Vec::new(), String::new());
        Self { tokens, said, near, unit, before: None, is_joined: false, is_second: false }
    }

    fn is_like(&self, other: &Self) -> bool {
        let kind = |mention: &Self| match mention.said {
            Said::Figure { .. } => 0,
            Said::Name | Said::Text | Said::Words => 1,
            Said::Day => 2,
            Said::List(_) => 3,
        };
        kind(self) == kind(other)
    }
}

impl Filler<'_> {
    pub(super) fn mentions(&self) -> Vec<Mention> {
        let mut mentions: Vec<Mention> = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let found = self.read_mention(at);
            let end = found.as_ref().map_or(at + 1, |(_, end)| *end);
            let found =
                found.filter(|(said, end)| !self.is_no_value(&(at..*end), said, mentions.last()));
            mentions.extend(found.map(|(said, end)| Mention::new(at..end, said)));
            at = end;
        }
        for at in 0..mentions.len() {
            let before = at.checked_sub(1).map_or(0, |before| mentions[before].tokens.end);
            let after = mentions.get(at + 1).map_or(self.tokens.len(), |next| next.tokens.start);
            self.read_context(&mut mentions[at], before, after);
            let gap = &self.tokens[before..mentions[at].tokens.start];
            let is_small = |token: &Token| {
                token.is_separator() || token.is_any(&["the", "a", "an", "for", "in"])
            };
            mentions[at].is_joined = at > 0
                && gap.iter().all(is_small)
                && gap.iter().any(Token::is_separator)
                && mentions[at].is_like(&mentions[at - 1]);
        }
        for at in 1..mentions.len() {
            self.part_pairs(&mut mentions, at);
        }
        // What stands before or behind a list counts for all of its items.
        for at in 1..mentions.len() {
            if mentions[at].is_joined {
                mentions[at].before = mentions[at - 1].before;
                let near = mentions[at - 1].near.clone();
                mentions[at].near.splice(0..0, near);
            }
        }
        for at in (1..mentions.len()).rev() {
            if mentions[at].is_joined {
                mentions[at - 1].near = mentions[at].near.clone();
            }
        }
        mentions
    }

    /// Takes a value out of the list before if it is the first of another pair (`USD to AUD and USD to
    /// CAD`), or belongs to the name before it (`Miami, Florida`).
    fn part_pairs(&self, mentions: &mut [Mention], at: usize) {
        if !mentions[at].is_joined {
            return;
        }
        let (start, end) = (mentions[at].tokens.start, mentions[at].tokens.end);
        let behind = self.tokens.get(end).filter(|next| self.lexicon.is_preposition(next));
        let before = mentions[at - 1].before.map(|place| &self.tokens[place].lower);
        let begins_pair = behind.is_some_and(|next| Some(&next.lower) == before);
        let is_comma =
            start == mentions[at - 1].tokens.end + 1 && self.tokens[start - 1].is_mark(",");
        let continues = mentions
            .get(at + 1)
            .is_some_and(|next| next.is_joined && next.said == mentions[at].said);
        let is_second = is_comma
            && mentions[at].said == Said::Name
            && !mentions[at - 1].is_joined
            && !continues;
        mentions[at].is_second = is_second;
        mentions[at].is_joined = !begins_pair && !is_second;
    }

    /// Returns the place before a value and its article.
    pub(super) fn place_before(&self, start: usize) -> Option<usize> {
        (0..start).rev().find(|place| !self.is_at(*place, &["the", "a", "an", "my", "our"]))
    }

    /// Returns the words of a place with what is around them.
    pub(super) fn words_at(&self, tokens: Range<usize>, before: usize) -> Mention {
        let after = (tokens.end + 1).min(self.tokens.len());
        let mut mention = Mention::new(tokens, Said::Words);
        self.read_context(&mut mention, before, after);
        mention
    }

    fn read_mention(&self, at: usize) -> Option<(Said, usize)> {
        let token = &self.tokens[at];
        if let Some(moment) =
            self.moments.iter().find(|moment| moment.tokens.start == at && moment.is_day)
        {
            return Some((Said::Day, moment.tokens.end));
        }
        let is_dated = token.value.split('/').count() == 3
            && token.value.bytes().all(|byte| byte == b'/' || byte.is_ascii_digit());
        if is_dated {
            return Some((Said::Day, at + 1));
        }
        if token.kind == Kind::Mark && token.is_any(&["[", "("]) {
            return self.read_list(at);
        }
        if let Some((value, is_share, end)) = self.read_figure(at) {
            return Some((Said::Figure { value, is_share }, end));
        }
        let name = || self.read_name(at).map(|end| (Said::Name, end));
        match token.kind {
            Kind::Mark => None,
            Kind::Word => name(),
            Kind::Code => name().or(Some((Said::Text, at + 1))),
            _ => Some((Said::Text, at + 1)),
        }
    }

    /// Returns whether words are no value: the name of the tool, a unit, or an abbreviation in
    /// parentheses.
    fn is_no_value(&self, range: &Range<usize>, said: &Said, last: Option<&Mention>) -> bool {
        let tokens = &self.tokens[range.clone()];
        let first = &tokens[0];
        if !matches!(said, Said::Name | Said::Text) {
            return false;
        }
        let letters =
            |text: &str| text.to_lowercase().replace(|char: char| !char.is_alphanumeric(), "");
        let short = self.tool.name.rsplit('.').next().unwrap_or_default();
        if [self.tool.name.as_str(), short]
            .iter()
            .any(|name| letters(name) == letters(&first.value))
        {
            return true;
        }
        if first.kind == Kind::Quoted {
            return false;
        }
        let in_slots = |word: &String| self.tool.slots.iter().any(|slot| slot.words.contains(word));
        let is_single = tokens.len() == 1;
        let is_enclosed = range.start > 0
            && self.tokens[range.start - 1].is_mark("(")
            && self.tokens.get(range.end).is_some_and(|next| next.is_mark(")"));
        let is_figure = |last: &Mention| {
            last.tokens.end == range.start && matches!(last.said, Said::Figure { .. })
        };
        let is_unit = || {
            matches!(first.kind, Kind::Slug | Kind::Path)
                || first.value.len() <= 2
                || self.tool.slots.iter().any(|slot| slot.about.contains(&first.stem))
        };
        tokens.iter().all(|token| self.is_tool_word(&token.stem) || in_slots(&token.stem))
            || is_single && is_enclosed && *said == Said::Name
            || is_single && last.is_some_and(is_figure) && is_unit()
    }

    /// Reads `[1, 2]`, `(1, 2)` and lists of lists.
    fn read_list(&self, at: usize) -> Option<(Said, usize)> {
        if !self.tool.slots.iter().any(|slot| slot.is_list) {
            return None;
        }
        let mut depth = 0_usize;
        let mut end = at;
        for token in self.tokens[at..].iter() {
            end += 1;
            if token.kind == Kind::Mark {
                depth += usize::from(token.is_any(&["[", "("]));
                depth -= usize::from(token.is_any(&["]", ")"]));
            }
            if depth == 0 {
                break;
            }
        }
        let text = self.scene.query.get(self.tokens[at].start..self.tokens[end - 1].end)?;
        let json = text.replace('(', "[").replace(')', "]").replace('\'', "\"");
        let list: Value = serde_json::from_str(&json).ok()?;
        let count = list.as_array().map_or(0, Vec::len);
        (count > 1 || count == 1 && text.starts_with('[')).then_some((Said::List(list), end))
    }

    /// Reads `5`, `$1.2M`, `5 million`, `3%`, `20kg`, `7-day`, `2nd` and `three`. Returns the value,
    /// whether it is a share, and where it ends.
    fn read_figure(&self, at: usize) -> Option<(Number, bool, usize)> {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1);
        let is_counted = next.is_some_and(|next| next.is_any(&[".", ")"]))
            && at.checked_sub(1).is_none_or(|before| self.tokens[before].is_mark("\n"));
        if is_counted
            || !matches!(
                token.kind,
                Kind::Number | Kind::Word | Kind::Code | Kind::Slug | Kind::Path
            )
        {
            return None;
        }
        if let Some(small) = self.lexicon.small_number(&token.lower) {
            return (token.kind == Kind::Word && small > 1).then(|| (small.into(), false, at + 1));
        }
        let (digits, unit) = split_unit(&token.lower);
        let value = number(&token.lower).or_else(|| number(digits))?;
        let is_unit = unit.len() <= 6
            && unit.chars().all(|char| char.is_alphabetic() || "/^²³°23".contains(char))
            && !unit.starts_with(['x', '2', '3']);
        if token.kind != Kind::Number
            && !(is_unit && !unit.is_empty()
                || token.lower.contains('-') && unit.chars().all(char::is_alphabetic))
        {
            return None;
        }
        let is_money = token.lower.starts_with('$') || token.value.ends_with(['M', 'B']);
        let by_unit = if is_money { scale(unit) } else { 1.0 };
        let by_word =
            next.filter(|next| next.lower.len() > 1).map_or(1.0, |next| scale(&next.lower));
        let factor = by_word * by_unit;
        let is_share =
            token.lower.ends_with('%') || next.is_some_and(|next| next.is_any(&["%", "percent"]));
        let amount = value.as_f64().filter(|_| factor > 1.0);
        let scaled = amount.and_then(|amount| number(&round(amount * factor).to_string()));
        Some((scaled.unwrap_or(value), is_share, at + 1 + usize::from(by_word > 1.0)))
    }

    /// Returns where a name ends that begins at a place: `Lebron James`, `Museum of Art`.
    fn read_name(&self, at: usize) -> Option<usize> {
        let is_common = || {
            let stem = &self.tokens[at].stem;
            !self.lexicon.concepts(stem).is_empty() || self.is_tool_word(stem)
        };
        let is_order = || self.begins_sentence(at) && (!self.is_name_word(at + 1) || is_common());
        if !self.is_name_word(at) || is_order() {
            return None;
        }
        let mut end = at + 1;
        while end < self.tokens.len() {
            let last = &self.tokens[end - 1];
            if last.without_possessive().len() < last.value.len() {
                break;
            }
            let gap = usize::from(self.is_at(end, &["of", "the", "de", "von", "&", "-"]));
            let is_day = gap == 0 && self.moments.iter().any(|moment| moment.tokens.start == end);
            if is_day || !self.is_name_word(end + gap) {
                break;
            }
            end += gap + 1;
        }
        // `Id B1004`: the name of the slot is no part of the value.
        let in_slots = |word: &String| self.tool.slots.iter().any(|slot| slot.words.contains(word));
        let is_cue = end > at + 1
            && in_slots(&self.tokens[at].stem)
            && self.tokens[at + 1].kind == Kind::Code;
        (!is_cue).then_some(end)
    }

    fn is_name_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| {
            let is_upper = token.value.starts_with(char::is_uppercase);
            let is_name = || {
                !self.lexicon.is_filler(token)
                    || !self.begins_sentence(at) && self.is_name_word(at + 1)
            };
            matches!(token.kind, Kind::Word | Kind::Code)
                && is_upper
                && !token.is_any(&["no", "i", "id"])
                && is_name()
        })
    }

    /// Returns whether a place has an abbreviation such as `NY`.
    pub(super) fn is_region(&self, at: usize) -> bool {
        let is_short =
            |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase());
        self.tokens.get(at).is_some_and(|token| is_short(&token.value))
    }

    fn begins_sentence(&self, at: usize) -> bool {
        at.checked_sub(1)
            .is_none_or(|before| self.tokens[before].is_any(&[".", "!", "?", "\n", ":", "\""]))
    }

    pub(super) fn is_tool_word(&self, word: &String) -> bool {
        self.tool.verb == *word
            || self.tool.has_noun(word, self.lexicon)
            || self.tool.about.contains(word)
    }

    /// Reads the words around a value, up to the values before and behind, or the end of the sentence.
    fn read_context(&self, mention: &mut Mention, before: usize, after: usize) {
        let range = mention.tokens.clone();
        let mut near: Vec<(String, f32)> = Vec::new();
        let mut weight = 1.0;
        for token in self.tokens[before..range.start].iter().rev().take(NEAR_BEFORE) {
            if token.is_any(&[".", "?", "!", "\n"]) {
                break;
            }
            weight *= if token.is_mark(",") { DECAY * DECAY } else { 1.0 };
            if token.kind == Kind::Word && !self.lexicon.is_filler(token) {
                near.push((token.stem.clone(), weight));
                weight *= DECAY;
            }
        }
        weight = 1.0;
        for token in self.tokens[range.end..after].iter().take(NEAR_AFTER) {
            let is_end =
                token.is_separator() || self.lexicon.is_preposition(token) && !token.is("of");
            if token.kind != Kind::Word || is_end {
                break;
            }
            if !self.lexicon.is_filler(token) {
                near.push((token.stem.clone(), weight));
                weight *= DECAY;
            }
        }
        if let Said::Figure { is_share, .. } = &mention.said {
            let first = &self.tokens[range.start];
            let next = self.tokens.get(range.end).filter(|next| next.kind != Kind::Mark);
            let unit = split_unit(&first.lower).1;
            let is_money = first.value.starts_with('$');
            let words = [
                (self.is_year(mention), "year"),
                (*is_share, "rate"),
                (*is_share, "percentage"),
                (is_money, "dollar"),
                (is_money, "amount"),
                (first.lower.contains('-'), unit),
            ];
            near.extend(
                words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| (stem(word), 1.0)),
            );
            let unit = if unit.is_empty() { next.map_or("", |next| &next.lower) } else { unit };
            mention.unit = unit.to_owned();
        }
        mention.near = near;
        mention.before = self.place_before(range.start);
    }

    /// Returns whether a figure can be a year: four digits without a unit.
    pub(super) fn is_year(&self, mention: &Mention) -> bool {
        let Said::Figure { value, .. } = &mention.said else { return false };
        let is_unit = |next: &Token| {
            next.kind == Kind::Word && !self.lexicon.is_filler(next) && !next.is_separator()
        };
        self.tokens[mention.tokens.start].value.len() == 4
            && value.as_u64().is_some_and(|year| (1000..2200).contains(&year))
            && !self.tokens.get(mention.tokens.end).is_some_and(is_unit)
    }

    pub(super) fn text_of(&self, tokens: &Range<usize>) -> Value {
        let text = self.slice(tokens.clone());
        let is_quoted = self.tokens[tokens.end - 1].kind == Kind::Quoted;
        let owner = text.strip_suffix("'s").or(text.strip_suffix("’s")).filter(|_| !is_quoted);
        Value::String(owner.unwrap_or(&text).to_owned())
    }
}

/// Splits `20kg` and `7-day` into the digits and the unit.
fn split_unit(text: &str) -> (&str, &str) {
    let is_digit = |char: char| char.is_ascii_digit() || "$€£.,#+-".contains(char);
    let end = text.find(|char| !is_digit(char)).unwrap_or(text.len());
    (
        text[..end].trim_end_matches('-'),
        text[end..].trim_end_matches('%').trim_start_matches(['²', '³', '°']),
    )
}

fn scale(word: &str) -> f64 {
    match word {
        "k" | "thousand" => 1e3,
        "m" | "million" => 1e6,
        "b" | "billion" => 1e9,
        _ => 1.0,
    }
}

/// Removes the error of a product: `1.2 * 1e6`.
pub(super) fn round(amount: f64) -> f64 {
    (amount * 1e9).round() / 1e9
}
