//! The parts of a query: sentences, and clauses with a request of their own.

use std::{collections::BTreeSet, sync::LazyLock};

pub(super) const MAX_PARTS: usize = 16;
const MIN_WORDS: usize = 2;

const REQUEST_WORDS: &str = "\
    accept access activate add adjust allocate alter analyze apply are arrange ask assess assign \
    assist attach block book browse build buy calculate call can cancel change check collect \
    compare compose compress compute conduct confirm consult control convert copy correct could \
    count create deactivate decode decrease decrypt define delete deliver describe design detect \
    determine develop disable discard discover display do does download draft draw drop edit email \
    enable encode encrypt enter enumerate erase estimate evaluate execute explain explore export \
    extend extract fetch filter find fix follow forecast forward gather generate get give go help \
    how i i'd i'll i'm identify import increase inform insert inspect install invite is join learn \
    let list load lock log look lookup lower mail make manage mark measure merge message modify \
    monitor move need notify obtain open order organize parse pause pay perform place plan play \
    please plot post predict prepare produce provide publish purchase put raise rank rate read \
    recommend record reduce register remind remove rename renew rent repair replace report request \
    reserve reset resolve restart retrieve return review revise run save schedule search see send \
    set share show sign simulate solve sort split start stop store submit subscribe suggest \
    summarize take tell text track transfer translate trash turn unblock unlock unsubscribe update \
    upload use validate verify view visualize want what when where which who why will would write";

const SEPARATORS: [&str; 3] = ["and", "but", "then"];
const LINK_WORDS: [&str; 9] =
    ["also", "and", "but", "finally", "next", "please", "so", "then", "to"];
const CONNECTING_WORDS: [&str; 19] = [
    "additionally",
    "afterwards",
    "also",
    "and",
    "besides",
    "but",
    "finally",
    "first",
    "firstly",
    "furthermore",
    "lastly",
    "moreover",
    "next",
    "please",
    "second",
    "secondly",
    "so",
    "then",
    "third",
];

static REQUEST_WORD_SET: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| REQUEST_WORDS.split_whitespace().collect());

/// Returns the parts of a query, in order. Returns nothing if the query has only one part.
pub(super) fn split_parts(query: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for sentence in split_sentences(query) {
        split_clauses(sentence, &mut parts);
        if parts.len() >= MAX_PARTS {
            break;
        }
    }
    parts.truncate(MAX_PARTS);
    if parts.len() < 2 {
        parts.clear();
    }
    parts
}

fn split_sentences(query: &str) -> Vec<&str> {
    let (mut sentences, mut start, mut is_quoted) = (Vec::new(), 0, false);
    let mut chars = query.char_indices().peekable();
    while let Some((position, char)) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '“' => is_quoted = true,
            '”' => is_quoted = false,
            '.' | '!' | '?' | ';' | '\n' | '。' | '！' | '？' => {
                let after = chars.peek().map(|next| next.1);
                let is_end = after.is_none_or(|c| c.is_whitespace() || c == '"');
                if char == '\n' || (is_end && !is_quoted) || !char.is_ascii() {
                    sentences.push(&query[start..position]);
                    start = position + char.len_utf8();
                    is_quoted = false;
                }
            }
            _ => (),
        }
    }
    sentences.push(&query[start..]);
    sentences
}

fn split_clauses<'a>(sentence: &'a str, parts: &mut Vec<&'a str>) {
    let words = split_words(sentence);
    let (mut start, mut quotes) = (0, 0);
    for (index, word) in words.iter().enumerate() {
        let is_quoted = quotes % 2 == 1;
        quotes += word.text.matches('"').count();
        if is_quoted || index == 0 || !REQUEST_WORD_SET.contains(word.lower.as_str()) {
            continue;
        }
        if let Some(end) = clause_end(&words[..index], start) {
            keep_part(&words[start..end], sentence, parts);
            start = index;
        }
    }
    keep_part(&words[start..], sentence, parts);
}

fn clause_end(before: &[Word<'_>], start: usize) -> Option<usize> {
    let mut end = before.len();
    let mut is_parted = false;
    while end > start && LINK_WORDS.contains(&before[end - 1].lower.as_str()) {
        end -= 1;
        is_parted |= SEPARATORS.contains(&before[end].lower.as_str());
    }
    let is_parted = is_parted || (end > start && before[end - 1].text.ends_with([',', '，']));
    (is_parted && end > start).then_some(end)
}

fn keep_part<'a>(words: &[Word<'_>], sentence: &'a str, parts: &mut Vec<&'a str>) {
    let connecting_count =
        words.iter().take_while(|word| CONNECTING_WORDS.contains(&word.lower.as_str())).count();
    let words = &words[connecting_count..];
    let count = words.iter().filter(|word| !word.lower.is_empty()).count();
    if let [first, .., last] = words
        && count >= MIN_WORDS
    {
        let part = &sentence[first.start..last.start + last.text.len()];
        parts.push(part.trim_matches(|c: char| c.is_whitespace() || ".,;:!?\"“”".contains(c)));
    }
}

struct Word<'a> {
    start: usize,
    text: &'a str,
    lower: String,
}

fn split_words(sentence: &str) -> Vec<Word<'_>> {
    let start = |text: &str| text.as_ptr() as usize - sentence.as_ptr() as usize;
    let words = sentence.split_whitespace().map(|text| {
        let bare = text.trim_matches(|c: char| !c.is_alphanumeric());
        Word { start: start(text), text, lower: bare.to_lowercase().replace('’', "'") }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_in_a_query_is_a_part() {
        for (query, expected) in [
            ("What time is it?", &[][..]),
            ("", &[]),
            (
                "Create author Alice and then create a blog by Alice",
                &["Create author Alice", "create a blog by Alice"],
            ),
            ("Salt and pepper", &[]),
            (
                "Is there a storm? Also, could you suggest courses and book one, then tell me",
                &["Is there a storm", "could you suggest courses", "book one", "tell me"],
            ),
            (
                r#"Write "go home. and send it" and send a mail"#,
                &[r#"Write "go home. and send it"#, "send a mail"],
            ),
            ("Version 2.5 is out; list changes", &["Version 2.5 is out", "list changes"]),
            ("list a\nlist b", &["list a", "list b"]),
        ] {
            assert_eq!(split_parts(query), expected, "{query}");
        }
    }

    #[test]
    fn the_number_of_parts_is_limited() {
        let query = "list all pets. ".repeat(MAX_PARTS * 2);
        assert_eq!(split_parts(&query).len(), MAX_PARTS);
    }
}
