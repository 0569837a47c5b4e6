//! Texts about memories, as models read them.

use super::{Memory, scope::Key};

/// Characters that an excerpt shows.
const EXCERPT: usize = 120;
/// Characters of an excerpt before the match.
const BEFORE: usize = 40;
/// Most tags that a line of a list shows.
const TAGS: usize = 8;

pub(super) fn memories(n: usize) -> String {
    if n == 1 { "1 memory".to_owned() } else { format!("{n} memories") }
}

pub(super) fn snippet(name: &Key, memory: &Memory) -> String {
    let mut text = format!("Snippet '{name}'");
    if let Some(language) = memory.language.as_deref().filter(|it| !it.is_empty()) {
        text.extend([" (", language, ")"]);
    }
    if let Some(description) = memory.description.as_deref().filter(|it| !it.is_empty()) {
        text.extend([": ", description]);
    }
    if !memory.tags.is_empty() {
        text.extend(["\nTags: ", &memory.tags.join(", ")]);
    }
    text.extend(["\n\n", &memory.value]);
    text
}

/// Returns a line of a list. The excerpt is around the match if `wanted` is given.
pub(super) fn line(key: &Key, memory: &Memory, wanted: Option<&str>) -> String {
    let mut line = format!("- {key}");
    if let Some(language) = memory.language.as_deref().filter(|it| !it.is_empty()) {
        line.extend([" (", &one_line(language, 0), ")"]);
    }
    if !memory.tags.is_empty() {
        let more = if memory.tags.len() > TAGS { ", …" } else { "" };
        let shown = &memory.tags[..memory.tags.len().min(TAGS)];
        line.extend([" [", &one_line(&shown.join(", "), 0), more, "]"]);
    }
    let at = wanted.and_then(|it| place(&memory.value, it));
    let text = match (&memory.description, at) {
        (Some(description), None) if !description.is_empty() => one_line(description, 0),
        _ => one_line(&memory.value, at.unwrap_or_default()),
    };
    if !text.is_empty() {
        line.extend([": ", &text]);
    }
    line
}

/// Returns the approximate number of characters before the first match. `word` is in lower case.
fn place(text: &str, word: &str) -> Option<usize> {
    let folded = text.to_lowercase();
    folded.find(word).map(|it| folded[..it].chars().count())
}

/// Returns an excerpt on one line that contains the position `at`.
fn one_line(text: &str, at: usize) -> String {
    let from = if at > EXCERPT - BEFORE { at - BEFORE } else { 0 };
    let mut line = if from > 0 { "…".to_owned() } else { String::new() };
    let mut rest = text.chars().skip(from);
    let mut shown = 0;
    for it in rest.by_ref() {
        let it = if it.is_whitespace() || it.is_control() { ' ' } else { it };
        if it == ' ' && (line.is_empty() || line.ends_with([' ', '…'])) {
            continue;
        }
        line.push(it);
        shown += 1;
        if shown == EXCERPT {
            break;
        }
    }
    let is_cut = rest.next().is_some();
    line.truncate(line.trim_end().len());
    if is_cut {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_short_line_around_the_place() {
        for (text, at, line) in [("", 0, ""), ("  a \n\n\tb\u{0}c ", 0, "a b c"), ("…  a", 0, "…a")]
        {
            assert_eq!(one_line(text, at), line, "{text}");
        }
        let long = format!("{}NEEDLE{}", "ö ".repeat(500), "x".repeat(500));
        let line = one_line(&long, place(&long, "needle").unwrap());
        assert!(line.starts_with('…') && line.contains("NEEDLE") && line.ends_with('…'), "{line}");
        assert!(line.chars().count() <= EXCERPT + 2);
        assert!(one_line(&long, 0).starts_with("ö ö"));
        // Lower case changes the length of this text, so the position is not exact.
        let text = "İ".repeat(100);
        assert!(place(&text, "i").is_some());
        assert!(!one_line(&text, 199).is_empty());
    }

    #[test]
    fn a_snippet_says_what_is_known_of_it() {
        let name = "a b".to_owned().try_into().unwrap();
        let memory = Memory { value: "fn a() {}\n".to_owned(), ..Memory::default() };
        assert_eq!(snippet(&name, &memory), "Snippet 'a b'\n\nfn a() {}\n");
        let memory = Memory {
            tags: vec!["x".to_owned(), "y".to_owned()],
            language: Some("rust".to_owned()),
            description: Some("Does nothing.".to_owned()),
            ..memory
        };
        assert_eq!(
            snippet(&name, &memory),
            "Snippet 'a b' (rust): Does nothing.\nTags: x, y\n\nfn a() {}\n"
        );
        assert_eq!(line(&name, &memory, None), "- a b (rust) [x, y]: Does nothing.");
        assert_eq!(line(&name, &memory, Some("fn")), "- a b (rust) [x, y]: fn a() {}");
    }
}
