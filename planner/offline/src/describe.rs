//! What the description of a parameter says: its words, examples, the values that it may have,
//! its default, its unit and the form of its days.

use std::collections::BTreeSet;

use super::{
    unit::{self, Unit},
    when::Form,
    words,
};

/// Bytes of a description that are read.
const BYTES: usize = 600;
/// Values that a description may quote.
const CHOICES: usize = 24;
/// What announces examples.
const EXAMPLES: &[&str] = &[
    "e.g.",
    "e.g",
    "eg.",
    "for example",
    "for instance",
    "such as",
    "like",
    "example:",
    "examples:",
    "examples include",
    "i.e.",
    "ex:",
    "example,",
    "example is",
];
/// What announces the values that it may have.
const OPTIONS: &[&str] = &[
    "options:",
    "options include",
    "options are",
    "possible values",
    "allowed values",
    "choices are",
    "available options",
    "can be",
    "either",
    "one of",
    "must be",
    "available modes",
    "include:",
    "valid values",
    "can be either",
];

/// A value that a description quotes, and the words that stand for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// As it is to be given.
    pub(super) value: String,
    /// What people say for it, as stems.
    pub(super) said: Vec<Vec<String>>,
}

/// What a description says.
#[derive(Clone, Debug, Default)]
pub(super) struct Described {
    /// The stems of its words, without examples and defaults.
    pub(super) words: BTreeSet<String>,
    /// Values that it shows, in lower case.
    pub(super) examples: Vec<String>,
    /// Values that it may have.
    pub(super) choices: Vec<Choice>,
    /// What it is where nobody says.
    pub(super) default: Option<String>,
    /// How days are written.
    pub(super) form: Option<Form>,
    /// In which unit it is.
    pub(super) unit: Option<&'static Unit>,
    /// Whether it is a share of one, not of a hundred.
    pub(super) is_decimal: bool,
}

impl Described {
    /// Reads a description.
    pub(super) fn read(description: &str) -> Self {
        let text = &description[..description.floor_char_boundary(BYTES)];
        let lower = text.to_lowercase();
        // Lower case may have other lengths; then the shapes of letters are given up.
        let text = if lower.len() == text.len() { text } else { &lower };
        let mut all = Self {
            form: Form::of(text),
            is_decimal: lower.contains("decimal") && !lower.contains("decimal place"),
            ..Self::default()
        };
        let mut prose = String::new();
        let mut rest = 0;
        while let Some((from, to, is_default)) = next_region(&lower, rest) {
            prose.push_str(&lower[rest..from]);
            prose.push(' ');
            let said = text.get(from..to).unwrap_or_default();
            if is_default {
                all.default = all.default.or_else(|| default_of(said));
            } else {
                all.examples.extend(listed(said));
            }
            rest = to;
        }
        prose.push_str(&lower[rest..]);
        all.choices = choices(text);
        all.read_prose(&prose);
        all
    }

    /// Returns whether it asks for a share of a hundred.
    pub(super) fn is_percentage(&self) -> bool {
        let says = |word: &str| self.words.contains(word);
        says("percentag") && !self.is_decimal && !says("sum") && !says("fraction")
    }

    /// Returns the stems of all that it says and shows.
    pub(super) fn stems(&self) -> impl Iterator<Item = &String> {
        let choices = self.choices.iter().flat_map(|it| it.said.iter().flatten());
        self.words.iter().chain(&self.examples).chain(choices)
    }

    fn read_prose(&mut self, prose: &str) {
        for word in
            prose.split(|it: char| it.is_whitespace() || matches!(it, '(' | ')' | ',' | ';'))
        {
            let word = word.trim_matches(['.', ':', '\'', '"', '?', '!']);
            if self.unit.is_none_or(unit::is_vague)
                && (word.len() > 1 && word != "in" || word == "m" || word == "%")
            {
                self.unit = unit::find(word).or(self.unit);
            }
            for part in word.split(|it: char| !it.is_alphanumeric()) {
                if part.len() > 1 && !words::is_idle(part) && !words::is_preposition(part) {
                    self.words.insert(words::stem(part));
                }
            }
        }
    }
}

/// Returns where the next default or example begins and ends.
fn next_region(lower: &str, from: usize) -> Option<(usize, usize, bool)> {
    let rest = &lower[from..];
    let example = EXAMPLES.iter().filter_map(|it| find_word(rest, it)).min();
    let default = find_word(rest, "default").or_else(|| find_word(rest, "defaults"));
    let (at, is_default) = match (example, default) {
        (Some(example), Some(default)) if default < example => (default, true),
        (Some(example), _) => (example, false),
        (None, Some(default)) => (default, true),
        (None, None) => return None,
    };
    let start = from + at;
    let end = region_end(&lower[start..]) + start;
    Some((start, end, is_default))
}

fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_edge = |it: Option<char>| it.is_none_or(|it| !it.is_alphanumeric());
    text.match_indices(word)
        .find(|(at, it)| {
            is_edge(text[..*at].chars().next_back())
                && is_edge(text[at + it.len()..].chars().next())
        })
        .map(|it| it.0)
}

/// Returns where a sentence or a parenthesis ends.
fn region_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_i32;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' | b';' if depth == 0 => return at,
            b')' | b']' => depth -= 1,
            b'.' if at > 5
                && depth == 0
                && bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace)
                && !bytes[..at].ends_with(b"e.g") =>
            {
                return at;
            }
            _ => (),
        }
    }
    text.len()
}

/// Returns the value of `defaults to 'km'`, `default is 2`, `default: all`.
fn default_of(said: &str) -> Option<String> {
    let mut rest = said;
    for word in ["defaults", "Defaults", "default", "Default"] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    loop {
        let trimmed =
            rest.trim_start_matches(|it: char| it.is_whitespace() || matches!(it, ':' | '=' | ','));
        let cut = ["value ", "values ", "is ", "to ", "setting ", "being ", "the "];
        rest = trimmed;
        let Some(shorter) = cut.iter().find_map(|it| trimmed.strip_prefix(it)) else { break };
        rest = shorter;
    }
    let quote = rest.chars().next().filter(|it| matches!(it, '\'' | '"' | '`'));
    let value = match quote {
        Some(quote) => rest[1..].split(quote).next().unwrap_or_default(),
        None => rest.split([',', ';', '(']).next().unwrap_or_default().trim_end_matches('.').trim(),
    };
    (!value.is_empty() && value.len() <= 60).then(|| value.to_owned())
}

/// Returns the items of `e.g. New York, NY or 'Paris'`.
fn listed(said: &str) -> Vec<String> {
    let mut rest = said;
    let lower = said.to_lowercase();
    if let Some(marker) =
        EXAMPLES.iter().filter(|it| lower.starts_with(**it)).max_by_key(|it| it.len())
    {
        rest = said.get(marker.len()..).unwrap_or_default();
    }
    let quoted = quotations(rest);
    if !quoted.is_empty() {
        return quoted.into_iter().map(|it| it.0.to_lowercase()).collect();
    }
    let rest = rest.to_lowercase();
    let whole = rest.trim_matches(|it: char| !it.is_alphanumeric()).to_owned();
    let parts = rest.replace(" or ", ",").replace(" and ", ",");
    let mut items: Vec<String> = parts
        .split(',')
        .map(|it| it.trim_matches(|it: char| !it.is_alphanumeric()).to_owned())
        .filter(|it| !it.is_empty() && it.len() <= 40 && it != "etc")
        .collect();
    if whole.len() <= 40 && !whole.is_empty() && !items.contains(&whole) {
        items.push(whole);
    }
    items
}

/// Returns what stands between quotation marks, and where it ends.
fn quotations(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find(['\'', '"', '`']) {
        let open = at + offset;
        let quote = text[open..].chars().next().unwrap_or('"');
        let is_apostrophe = text[..open].chars().next_back().is_some_and(char::is_alphanumeric);
        let close = text[open + 1..].find(quote).map(|it| open + 1 + it);
        let Some(close) = close.filter(|_| !is_apostrophe) else {
            at = open + 1;
            continue;
        };
        let inner = text[open + 1..close].trim();
        if !inner.is_empty() && inner.len() <= 40 {
            found.push((inner.to_owned(), close + 1));
        }
        at = close + 1;
    }
    found
}

/// Returns the values that a description quotes or lists as possible.
fn choices(text: &str) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for (value, end) in quotations(text).into_iter().take(CHOICES) {
        if choices.iter().any(|it| it.value == value) {
            continue;
        }
        let mut said = vec![stems(&value)];
        said.extend(alias(&text[end..]));
        choices.push(Choice { value, said });
    }
    let lower = text.to_lowercase();
    let listed_at =
        OPTIONS.iter().filter_map(|it| find_word(&lower, it).map(|at| at + it.len())).min();
    if let Some(from) = listed_at.filter(|_| choices.is_empty() && lower.len() == text.len()) {
        let end = from + region_end(&lower[from..]);
        for item in listed(text.get(from..end).unwrap_or_default())
            .into_iter()
            .filter(|it| !it.contains(','))
            .take(CHOICES)
        {
            if item.split_whitespace().count() <= 3 {
                choices.push(Choice { said: vec![stems(&item)], value: item });
            }
        }
    }
    choices
}

/// Returns what `'c' for Celsius`, `'asc': ascending` and `'EV' refers to electric vehicle` say.
fn alias(after: &str) -> Option<Vec<String>> {
    let rest = after.trim_start();
    let said = ["for ", "refers to ", "means ", "is ", "(", ": ", "= ", "- "]
        .iter()
        .find_map(|it| rest.strip_prefix(it))?;
    let end = said.find([',', ';', ')', '.', '\'', '"']).unwrap_or(said.len());
    let words: Vec<String> = stems(&said[..end])
        .into_iter()
        .filter(|it| !words::is_idle(it) && !words::is_preposition(it) && it != "or")
        .take(2)
        .collect();
    (!words.is_empty()).then_some(words)
}

/// Returns the stems of a text.
pub(super) fn stems(text: &str) -> Vec<String> {
    words::split_identifier(text).iter().map(|it| words::stem(it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_examples_are_no_words_of_their_own() {
        let read = Described::read(
            "The city and state, e.g. San Francisco, CA. The unit of distance (defaults to 'km').",
        );
        assert_eq!(read.default.as_deref(), Some("km"));
        assert!(read.examples.iter().any(|it| it == "san francisco, ca"), "{:?}", read.examples);
        assert!(read.words.contains("city") && !read.words.contains("francisco"));
    }

    #[test]
    fn defaults_are_read() {
        for (said, default) in [
            ("Optional, default to 0.00.", "0.00"),
            ("Default is 'Fahrenheit'.", "Fahrenheit"),
            ("If not specified, the default value is all", "all"),
            ("Default: 5", "5"),
        ] {
            assert_eq!(Described::read(said).default.as_deref(), Some(default), "{said}");
        }
    }

    #[test]
    fn quoted_values_are_choices_and_may_have_other_words() {
        let read = Described::read("The unit: 'c' for Celsius, 'f' for Fahrenheit.");
        let said: Vec<_> =
            read.choices.iter().map(|it| (it.value.as_str(), it.said.len())).collect();
        assert_eq!(said, [("c", 2), ("f", 2)]);
        assert_eq!(read.choices[1].said[1], ["fahrenheit"]);
    }

    #[test]
    fn units_are_found() {
        assert_eq!(Described::read("The height in centimeters.").unit, unit::find("cm"));
        assert_eq!(Described::read("The name of it.").unit, None);
    }
}
