//! The parts of a query: what each sentence, and each clause that asks for something, asks for.

use std::{collections::BTreeSet, sync::LazyLock};

/// The most parts of a query that are looked at one by one.
pub(super) const PARTS: usize = 16;
/// The fewest words of a part: one says nothing by itself.
const WORDS: usize = 2;

/// Words with which a clause begins that asks for something of its own.
const BEGINNINGS: &str = "\
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

/// Words between two clauses that part them.
const PARTING: [&str; 3] = ["and", "but", "then"];
/// Words between two clauses that say nothing.
const BETWEEN: [&str; 9] = ["also", "and", "but", "finally", "next", "please", "so", "then", "to"];
/// Words at the beginning of a part that only say that it is another one.
const JOINTS: [&str; 19] = [
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

static BEGINS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| BEGINNINGS.split_whitespace().collect());

/// Returns the parts of a query, in their order; none where the query is one part itself.
pub(super) fn parts(query: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for sentence in sentences(query) {
        clauses(sentence, &mut parts);
        if parts.len() >= PARTS {
            break;
        }
    }
    parts.truncate(PARTS);
    if parts.len() < 2 {
        parts.clear();
    }
    parts
}

/// Cuts behind what ends a sentence, outside of double quotation marks.
fn sentences(query: &str) -> Vec<&str> {
    let (mut sentences, mut start, mut is_quoted) = (Vec::new(), 0, false);
    let mut chars = query.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '“' => is_quoted = true,
            '”' => is_quoted = false,
            '.' | '!' | '?' | ';' | '\n' | '。' | '！' | '？' => {
                let after = chars.peek().map(|it| it.1);
                let is_end = after.is_none_or(|it| it.is_whitespace() || it == '"');
                if char == '\n' || (is_end && !is_quoted) || !char.is_ascii() {
                    sentences.push(&query[start..at]);
                    start = at + char.len_utf8();
                    is_quoted = false;
                }
            }
            _ => (),
        }
    }
    sentences.push(&query[start..]);
    sentences
}

/// Cuts a sentence before each clause that begins as one that asks for something.
fn clauses<'a>(sentence: &'a str, parts: &mut Vec<&'a str>) {
    let words = words(sentence);
    let (mut start, mut quotes) = (0, 0);
    for (at, word) in words.iter().enumerate() {
        let is_quoted = quotes % 2 == 1;
        quotes += word.text.matches('"').count();
        if is_quoted || at == 0 || !BEGINS.contains(word.lower.as_str()) {
            continue;
        }
        if let Some(end) = parting(&words[..at], start) {
            keep(&words[start..end], sentence, parts);
            start = at;
        }
    }
    keep(&words[start..], sentence, parts);
}

/// Returns where what stands before a clause ends, if it is parted from it.
fn parting(before: &[Word<'_>], start: usize) -> Option<usize> {
    let mut end = before.len();
    let mut is_parted = false;
    while end > start && BETWEEN.contains(&before[end - 1].lower.as_str()) {
        end -= 1;
        is_parted |= PARTING.contains(&before[end].lower.as_str());
    }
    let is_parted = is_parted || (end > start && before[end - 1].text.ends_with([',', '，']));
    (is_parted && end > start).then_some(end)
}

fn keep<'a>(words: &[Word<'_>], sentence: &'a str, parts: &mut Vec<&'a str>) {
    let said = words.iter().take_while(|it| JOINTS.contains(&it.lower.as_str())).count();
    let words = &words[said..];
    let count = words.iter().filter(|it| !it.lower.is_empty()).count();
    if let [first, .., last] = words
        && count >= WORDS
    {
        let part = &sentence[first.start..last.start + last.text.len()];
        parts.push(part.trim_matches(|it: char| it.is_whitespace() || ".,;:!?\"“”".contains(it)));
    }
}

/// A word of a sentence.
struct Word<'a> {
    start: usize,
    text: &'a str,
    /// In lower case, without what stands around it.
    lower: String,
}

fn words(sentence: &str) -> Vec<Word<'_>> {
    let start = |text: &str| text.as_ptr() as usize - sentence.as_ptr() as usize;
    let words = sentence.split_whitespace().map(|text| {
        let bare = text.trim_matches(|it: char| !it.is_alphanumeric());
        Word { start: start(text), text, lower: bare.to_lowercase().replace('’', "'") }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_something_is_a_part() {
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
            assert_eq!(parts(query), expected, "{query}");
        }
    }

    #[test]
    fn there_are_not_too_many() {
        let query = "list all pets. ".repeat(PARTS * 2);
        assert_eq!(parts(&query).len(), PARTS);
    }
}
