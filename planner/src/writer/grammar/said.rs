//! The values of a query that a plan may copy.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Hint;

/// Maximum number of words of a query. The parts of a longer query are not listed.
const MAX_LISTED_WORDS: usize = 60;
/// Maximum number of words of a listed part. A quoted part, and a part that reaches the end of the
/// query, may be longer.
const MAX_PART_WORDS: usize = 6;
const MAX_PARTS: usize = 500;
/// If the description of a parameter has one of these words, its value is a date or a time.
const MOMENT_WORDS: [&str; 3] = ["date", "time", "timestamp"];
const NUMBER_WORDS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve",
];

/// The values of a query and of its offline draft, as far as they decide the parameters of steps.
pub(super) struct SaidValues {
    words: BTreeSet<String>,
    pub(super) numbers: Vec<Value>,
    has_digit: bool,
    hinted_names: BTreeSet<String>,
    pub(super) hinted_texts: Vec<String>,
}

impl SaidValues {
    pub(super) fn read(query: &str, hint: Option<Hint<'_>>) -> Self {
        let mut said = Self {
            words: split_words(query),
            numbers: list_numbers(query),
            has_digit: query.contains(|c: char| c.is_ascii_digit()),
            hinted_names: BTreeSet::new(),
            hinted_texts: Vec::new(),
        };
        if let Some(Hint::Draft(draft)) = hint {
            let parameters = draft.tools.iter().filter_map(|step| step.parameters.as_ref());
            parameters.for_each(|value| said.add_hint(value));
        }
        said
    }

    fn add_hint(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.hinted_names.extend(fields.keys().cloned());
                fields.values().for_each(|value| self.add_hint(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.add_hint(value)),
            Value::Number(_) if !self.numbers.contains(value) => self.numbers.push(value.clone()),
            Value::String(text) => self.hinted_texts.push(text.clone()),
            _ => {}
        }
    }

    pub(super) fn may_give(&self, name: &str, schema: &Value) -> bool {
        let is_said = match schema["type"].as_str() {
            Some("boolean") => split_words(name).is_subset(&self.words),
            Some("string") => self.has_digit || !is_moment(schema),
            _ => true,
        };
        is_said || self.hinted_names.contains(name)
    }
}

/// Returns the words of a text in lower case. `reply_all` and `replyAll` have two words.
fn split_words(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    for c in text.chars() {
        let is_start = c.is_uppercase() && word.ends_with(char::is_lowercase);
        if is_start || !c.is_alphanumeric() {
            words.insert(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.push(c);
        }
    }
    words.insert(word);
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase()).collect()
}

fn is_moment(schema: &Value) -> bool {
    let format = schema["format"].as_str().unwrap_or_default();
    let description = split_words(schema["description"].as_str().unwrap_or_default());
    ["date", "date-time", "time"].contains(&format)
        || MOMENT_WORDS.iter().any(|word| description.contains(*word))
}

pub(super) fn list_parts(query: &str) -> Vec<String> {
    let words: Vec<&str> = query.split_whitespace().collect();
    if words.len() > MAX_LISTED_WORDS {
        return Vec::new();
    }
    let (mut parts, mut seen) = (Vec::new(), BTreeSet::new());
    let mut add = |text: &str| {
        let is_mark = |c: char| "\"'`“”‘’«».,;:!?()[]".contains(c);
        for text in [text, text.trim_matches(is_mark)] {
            if !text.is_empty() && parts.len() < MAX_PARTS && seen.insert(text.to_owned()) {
                parts.push(text.to_owned());
            }
        }
    };
    for mark in ['"', '\'', '`'] {
        query.split(mark).skip(1).step_by(2).for_each(&mut add);
    }
    for word in words.iter().copied() {
        add(word);
        add(word.trim_start_matches('#'));
        word.split('/').filter(|_| !word.contains("//")).for_each(&mut add);
        if let Some(owner) = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")) {
            add(owner);
        }
    }
    for length in 2..=MAX_PART_WORDS {
        words.windows(length).for_each(|words| add(&words.join(" ")));
    }
    for start in 0..words.len() {
        add(&words[start..].join(" "));
    }
    parts
}

/// Returns the numbers in the query. `1,234` is one number, but may also be two numbers.
fn list_numbers(query: &str) -> Vec<Value> {
    let lower = query.to_lowercase();
    let words = lower.split(|c: char| c.is_whitespace() || "/,;:#()".contains(c));
    let grouped = lower.split_whitespace().filter(|word| word.contains(','));
    let grouped: Vec<String> = grouped.map(|word| word.replace(',', "")).collect();
    let mut numbers: Vec<Value> = Vec::new();
    for word in words.chain(grouped.iter().map(String::as_str)) {
        let word =
            word.trim_matches(|c: char| !c.is_ascii_digit() && c != '-' && !c.is_alphabetic());
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit()).trim_start_matches('$');
        let spelt =
            NUMBER_WORDS.iter().position(|spelt| *spelt == word).map(|number| json!(number));
        let written = || serde_json::from_str::<Value>(digits).ok().filter(Value::is_number);
        numbers.extend(spelt.or_else(written).filter(|number| !numbers.contains(number)));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_part_of_the_query() {
        let parts = list_parts("Close issue #7 of acme/site, saying \"all done\" to Ann's team.");
        for expected in ["7", "acme", "site", "acme/site", "all done", "Ann", "Ann's team", "issue"]
        {
            assert!(parts.iter().any(|part| part == expected), "{expected}: {parts:?}");
        }
        assert!(!parts.iter().any(|part| part == "Bob"));
        assert!(list_parts(&"word ".repeat(MAX_LISTED_WORDS + 1)).is_empty());
        let long: Vec<String> = (0..MAX_LISTED_WORDS).map(|index| format!("w{index}")).collect();
        assert!(list_parts(&long.join(" ")).len() <= MAX_PARTS);
    }

    #[test]
    fn a_number_is_copied_from_the_query() {
        for (query, expected) in [
            ("reserve 2 of them, then three; price 1.5 or $9", json!([2, 3, 1.5, 9])),
            ("issue #42 at 7pm", json!([42, 7])),
            ("nothing", json!([])),
            ("pay 1,234, then 5", json!([1, 234, 5, 1234])),
        ] {
            assert_eq!(json!(list_numbers(query)), expected, "{query}");
        }
    }
}
