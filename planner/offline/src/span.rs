//! The spans of words that may be values: numbers, days, quotations, names, codes, phrases, lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    amount::{self, Amount},
    describe::stems,
    phrase::is_name,
    property::Role,
    slot::Frame,
    token::{Kind, Token},
    unit::Unit,
    value,
    when::{self, When},
    words,
};

/// Spans of a text that are looked at: people do not say more at once.
const SPANS: usize = 160;

/// What a span says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    Number(Amount),
    Day(When),
    Time,
    Quoted,
    Email,
    Url,
    Path,
    /// Letters with digits, or an identifier.
    Code,
    /// Something to compute: `3x^2 + 2x - 1`.
    Formula,
    /// Capitalised words.
    Name,
    /// Other words; weak if all of them are the tool's own.
    Phrase {
        is_weak: bool,
    },
    /// A value that one slot may have.
    Choice {
        slot: usize,
        value: Value,
        is_close: bool,
    },
    /// Several values, written as a list.
    Values(Vec<Value>),
    /// An object, written as one.
    Object(Value),
    /// Several spans with nothing but commas and `and` between them.
    Several(Vec<usize>),
}

/// Words that may be a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// Its first token.
    pub(super) from: usize,
    /// Behind its last token.
    pub(super) to: usize,
    /// What it says.
    pub(super) said: Said,
    /// Its words, as they were written.
    pub(super) text: String,
    /// Whether it is a place together with the one around it: `Paris, France`.
    pub(super) is_wide: bool,
    /// Whether it is the second half of such a place.
    pub(super) is_tail: bool,
}

impl Span {
    /// Returns whether two spans share words.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.from < other.to && other.from < self.to
    }

    /// Returns whether two spans are of one kind, so that both may fill one slot.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_word = |it: &Said| matches!(it, Said::Name | Said::Phrase { .. });
        match (&self.said, &other.said) {
            (Said::Choice { slot: a, .. }, Said::Choice { slot: b, .. }) => a == b,
            (Said::Number(a), Said::Number(b)) => match (a.unit, b.unit) {
                (Some(a), Some(b)) => a.dimension == b.dimension,
                _ => a.is_ordinal == b.is_ordinal,
            },
            (a, b) if is_word(a) && is_word(b) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

/// Reads the spans of `tokens` for one tool.
pub(super) fn spans(query: &str, tokens: &[Token], frame: &Frame) -> Vec<Span> {
    let mut reader = Reader { query, tokens, frame, spans: Vec::new() };
    reader.choices();
    let mut at = 0;
    while at < tokens.len() && reader.spans.len() < SPANS {
        at = reader.step(at);
    }
    reader.widen();
    reader.spans.sort_by_key(|it| (it.from, it.to));
    reader.share_units();
    reader.gather();
    reader.spans
}

/// A text whose spans are being read.
pub(super) struct Reader<'a> {
    /// The whole query.
    pub(super) query: &'a str,
    /// The words that are read.
    pub(super) tokens: &'a [Token],
    /// The tool that they are read for.
    pub(super) frame: &'a Frame,
    spans: Vec<Span>,
}

impl Reader<'_> {
    /// Adds a span.
    pub(super) fn push(&mut self, from: usize, to: usize, said: Said) {
        if self.spans.len() >= SPANS {
            return;
        }
        let Some(text) = value::text(self.query, &self.tokens[from..to]) else { return };
        let text = match said {
            Said::Name | Said::Phrase { .. } => {
                let text = text.trim_end_matches([',', ';', ':']);
                ["'s", "’s"].iter().find_map(|it| text.strip_suffix(it)).unwrap_or(text).to_owned()
            }
            _ => text,
        };
        self.spans.push(Span { from, to, said, text, is_wide: false, is_tail: false });
    }

    /// Reads what begins at `at`, and returns where to go on.
    fn step(&mut self, at: usize) -> usize {
        let token = &self.tokens[at];
        if let Some(end) = self.bracket(at) {
            return end;
        }
        if let Some(end) = self.formula(at) {
            self.push(at, end, Said::Formula);
            return end;
        }
        if let Some((when, len)) = when::read(self.tokens, at) {
            self.push(at, at + len, Said::Day(when));
            return at + len;
        }
        if let Some((amount, len)) = amount::read(self.tokens, at) {
            self.push(at, at + len, Said::Number(amount));
            return at + len;
        }
        let said = match token.kind {
            Kind::Quoted => Said::Quoted,
            Kind::Email => Said::Email,
            Kind::Url => Said::Url,
            Kind::Id => Said::Code,
            Kind::Time => return self.time(at),
            Kind::Path if is_name(token) => return self.words(at),
            Kind::Path => Said::Path,
            Kind::Word if is_code(&token.value) => Said::Code,
            Kind::Word => return self.words(at),
            _ => return at + 1,
        };
        self.push(at, at + 1, said);
        at + 1
    }

    fn time(&mut self, at: usize) -> usize {
        let half = self.tokens.get(at + 1).is_some_and(|it| {
            matches!(it.lower.trim_end_matches('.'), "am" | "pm" | "a.m" | "p.m")
        });
        let end = at + 1 + usize::from(half);
        self.push(at, end, Said::Time);
        end
    }

    /// Finds the values that slots list, wherever they are said.
    fn choices(&mut self) {
        let places = self.places();
        for (slot, it) in self.frame.slots.iter().enumerate() {
            let listed: Vec<(Value, Vec<Vec<String>>)> = if it.role() == Role::Enum {
                let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
                let said = |value: &Value| {
                    let text = text(value);
                    let known =
                        it.said.choices.iter().find(|it| it.value.eq_ignore_ascii_case(&text));
                    known.map_or_else(|| vec![stems(&text)], |it| it.said.clone())
                };
                it.property.values.iter().map(|it| (it.clone(), said(it))).collect()
            } else if matches!(it.role(), Role::Text | Role::Name | Role::Title | Role::Content) {
                it.said
                    .choices
                    .iter()
                    .map(|it| (value::literal(&it.value), it.said.clone()))
                    .collect()
            } else {
                Vec::new()
            };
            for (value, said) in listed.into_iter().take(64) {
                self.choice(slot, &value, &said, &places);
            }
        }
    }

    /// Returns where the words stand that begin with some letters: all that can say a value.
    fn places(&self) -> BTreeMap<String, Vec<usize>> {
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let own = [token.stem.clone(), token.lower.clone()];
            let keys: BTreeSet<String> =
                own.iter().chain(stems(&token.value).first()).map(|it| beginning(it)).collect();
            for key in keys {
                places.entry(key).or_default().push(at);
            }
        }
        places
    }

    fn choice(
        &mut self,
        slot: usize,
        value: &Value,
        said: &[Vec<String>],
        places: &BTreeMap<String, Vec<usize>>,
    ) {
        let tokens = self.tokens;
        let firsts = said.iter().filter_map(|it| it.first()).map(|it| beginning(it));
        let near: BTreeSet<usize> =
            firsts.filter_map(|it| places.get(&it)).flatten().copied().collect();
        for at in near {
            for words in said {
                let is_tiny = words.iter().map(String::len).sum::<usize>() < 2;
                if words.is_empty() || is_tiny && tokens[at].kind != Kind::Quoted {
                    continue;
                }
                let Some((len, is_close)) = said_at(&tokens[at..], words) else { continue };
                if is_part_of_name(tokens, at, len, value) {
                    continue;
                }
                let said = Said::Choice { slot, value: value.clone(), is_close };
                self.push(at, at + len, said);
                break;
            }
        }
    }

    /// Adds `Paris, France` where `Paris` and `France` are.
    fn widen(&mut self) {
        self.spans.sort_by_key(|it| (it.from, it.to));
        let names: Vec<usize> =
            (0..self.spans.len()).filter(|it| self.spans[*it].said == Said::Name).collect();
        for pair in names.windows(2) {
            let (a, b) = (&self.spans[pair[0]], &self.spans[pair[1]]);
            let is_comma = b.from == a.to + 1 && self.tokens[a.to].is_mark(",");
            let is_listed = |at: usize| self.tokens.get(at).is_some_and(Token::is_separator);
            let is_state = b.text.len() == 2 && b.text.bytes().all(|it| it.is_ascii_uppercase())
                || matches!(b.text.as_str(), "USA" | "UK" | "UAE");
            let is_in_list = is_listed(b.to)
                && self
                    .spans
                    .iter()
                    .any(|it| it.from > b.to && it.from <= b.to + 2 && it.said == Said::Name)
                || a.from > 0
                    && is_listed(a.from - 1)
                    && self
                        .spans
                        .iter()
                        .any(|it| it.to + 1 == a.from && it.said == Said::Name && !it.is_tail);
            if is_comma && (is_state || !is_in_list) {
                let (from, to) = (a.from, b.to);
                self.spans[pair[1]].is_tail = true;
                self.push(from, to, Said::Name);
                if let Some(last) = self.spans.last_mut() {
                    last.is_wide = true;
                }
            }
        }
    }

    /// Gives the numbers of a list the unit that stands behind the last: `10, 20 and 30 years`.
    fn share_units(&mut self) {
        let mut behind: Option<(usize, &'static Unit)> = None;
        for at in (0..self.spans.len()).rev() {
            let (from, to) = (self.spans[at].from, self.spans[at].to);
            let is_tied = |next: usize| {
                let between = self.tokens.get(to..next).unwrap_or_default();
                let is_tie = |it: &Token| it.is_separator() || it.is("or") || it.is("to");
                !between.is_empty() && between.len() < 3 && between.iter().all(is_tie)
            };
            let shared = behind.filter(|it| is_tied(it.0)).map(|it| it.1);
            let Said::Number(amount) = &mut self.spans[at].said else { continue };
            if amount.unit.is_none() && !amount.is_ordinal && !amount.is_year() {
                amount.unit = shared;
            }
            // A currency or a share that is written at a number is that number's.
            let is_apart = self.tokens[from].kind == Kind::Number && to > from + 1;
            behind = amount.unit.filter(|_| is_apart || shared.is_some()).map(|unit| (from, unit));
        }
    }

    /// Adds what is listed as a span of its own: `red, small and new`.
    fn gather(&mut self) {
        let count = self.spans.len();
        for first in 0..count {
            if self.spans[first].is_tail
                || matches!(
                    self.spans[first].said,
                    Said::Several(_) | Said::Values(_) | Said::Object(_)
                )
            {
                continue;
            }
            let continues = (0..first).any(|it| self.is_next(it, first));
            if continues {
                continue;
            }
            let mut items = vec![first];
            while let Some(next) = (0..count).find(|it| {
                let last = items[items.len() - 1];
                *it > last && self.is_next(last, *it)
            }) {
                items.push(next);
            }
            if items.len() > 1 {
                let (from, to) = (self.spans[first].from, self.spans[items[items.len() - 1]].to);
                self.push(from, to, Said::Several(items));
            }
        }
    }

    /// Returns whether nothing but a comma or an `and` stands between two spans of a kind.
    fn is_next(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.spans[a], &self.spans[b]);
        if a.to >= b.from
            || b.from - a.to > 3
            || !a.is_like(b)
            || a.is_wide != b.is_wide
            || b.is_tail
        {
            return false;
        }
        let between = &self.tokens[a.to..b.from];
        // One or the other is no order for both.
        let is_joint = |it: &Token| it.is_separator() || it.is("or") && !self.frame.acts;
        let is_idle = |it: &Token| is_joint(it) || it.is("the") || it.is("a") || it.is("an");
        between.iter().all(is_idle) && between.iter().any(is_joint)
    }
}

/// Returns whether words that say a value in small letters are part of a name: `Natural History
/// Museum` says no `history`.
fn is_part_of_name(tokens: &[Token], at: usize, len: usize, value: &Value) -> bool {
    let is_small = value.as_str().is_some_and(|it| it.starts_with(char::is_lowercase));
    let is_named =
        |at: Option<usize>| at.and_then(|it| tokens.get(it)).is_some_and(Token::is_capitalised);
    is_small
        && at > 1
        && tokens[at].is_capitalised()
        && (is_named(at.checked_sub(1)) || is_named(Some(at + len)))
}

/// Returns the letters that a word shares with all that are nearly it.
fn beginning(word: &str) -> String {
    word.chars().take(3).collect()
}

/// Returns whether letters and digits stand together as in an identifier, or numbers as in the
/// address of a machine.
pub(super) fn is_code(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.bytes().any(|it| is(&it));
    let is_address =
        text.split('.').count() == 4 && text.split('.').all(|it| it.parse::<u8>().is_ok());
    is_address
        || has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
        || text.contains('_') && text.len() > 2
}

/// Returns how many tokens say the words, and whether they only nearly do.
fn said_at(tokens: &[Token], words: &[String]) -> Option<(usize, bool)> {
    let first = tokens.first()?;
    if first.kind == Kind::Quoted {
        return (stems(&first.value) == words).then_some((1, false));
    }
    // One token may be several words: `hip-hop`, `gluten-free`.
    let parts = stems(&first.value);
    if parts.len() > 1 && parts == words {
        return Some((1, false));
    }
    let stem_of = |it: &Token| match it.kind {
        Kind::Word => it.stem.clone(),
        _ => it.lower.clone(),
    };
    let is_same = tokens.len() >= words.len()
        && words.iter().zip(tokens).all(|(word, it)| *word == stem_of(it));
    if is_same {
        return Some((words.len(), false));
    }
    let [word] = words else { return None };
    let stem = &first.stem;
    let shorter = word.len().min(stem.len());
    let is_near = first.kind == Kind::Word
        && shorter >= 3
        && (stem.starts_with(word.as_str()) || word.starts_with(stem.as_str()))
        && word.len().abs_diff(stem.len()) <= 5
        && !words::is_idle(&first.lower)
        && !words::is_preposition(&first.lower);
    is_near.then_some((1, true))
}
