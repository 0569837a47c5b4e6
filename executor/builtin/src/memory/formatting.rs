use super::{Memory, scope::Key};

const EXCERPT_CHARACTERS: usize = 120;
const CHARACTERS_BEFORE_MATCH: usize = 40;
const MAX_SHOWN_TAGS: usize = 8;

pub(super) fn format_count(n: usize) -> String {
    if n == 1 { "1 memory".to_owned() } else { format!("{n} memories") }
}

pub(super) fn format_snippet(name: &Key, memory: &Memory) -> String {
    let mut text = format!("Snippet '{name}'");
    if let Some(language) = memory.language.as_deref().filter(|language| !language.is_empty()) {
        text.extend([" (", language, ")"]);
    }
    if let Some(description) =
        memory.description.as_deref().filter(|description| !description.is_empty())
    {
        text.extend([": ", description]);
    }
    if !memory.tags.is_empty() {
        text.extend(["\nTags: ", &memory.tags.join(", ")]);
    }
    text.extend(["\n\n", &memory.value]);
    text
}

/// Returns the line of one memory in a list. If `query` occurs in the text, the line shows the text
/// around it.
pub(super) fn format_line(key: &Key, memory: &Memory, query: Option<&str>) -> String {
    let mut line = format!("- {key}");
    if let Some(language) = memory.language.as_deref().filter(|language| !language.is_empty()) {
        line.extend([" (", &make_excerpt(language, 0), ")"]);
    }
    if !memory.tags.is_empty() {
        let more = if memory.tags.len() > MAX_SHOWN_TAGS { ", …" } else { "" };
        let shown_tags = &memory.tags[..memory.tags.len().min(MAX_SHOWN_TAGS)];
        line.extend([" [", &make_excerpt(&shown_tags.join(", "), 0), more, "]"]);
    }
    let position = query.and_then(|word| find_ignoring_case(&memory.value, word));
    let text = match (&memory.description, position) {
        (Some(description), None) if !description.is_empty() => make_excerpt(description, 0),
        _ => make_excerpt(&memory.value, position.unwrap_or_default()),
    };
    if !text.is_empty() {
        line.extend([": ", &text]);
    }
    line
}

/// Returns the approximate number of characters before the first match, because lower case can
/// change the length of a text. `word` must be in lower case.
fn find_ignoring_case(text: &str, word: &str) -> Option<usize> {
    let folded = text.to_lowercase();
    folded.find(word).map(|index| folded[..index].chars().count())
}

fn make_excerpt(text: &str, index: usize) -> String {
    let from = if index > EXCERPT_CHARACTERS - CHARACTERS_BEFORE_MATCH {
        index - CHARACTERS_BEFORE_MATCH
    } else {
        0
    };
    let mut line = if from > 0 { "…".to_owned() } else { String::new() };
    let mut rest = text.chars().skip(from);
    let mut shown_count = 0;
    for char in rest.by_ref() {
        let char = if char.is_whitespace() || char.is_control() { ' ' } else { char };
        if char == ' ' && (line.is_empty() || line.ends_with([' ', '…'])) {
            continue;
        }
        line.push(char);
        shown_count += 1;
        if shown_count == EXCERPT_CHARACTERS {
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
    fn an_excerpt_is_one_short_line_around_the_match() {
        for (text, position, line) in
            [("", 0, ""), ("  a \n\n\tb\u{0}c ", 0, "a b c"), ("…  a", 0, "…a")]
        {
            assert_eq!(make_excerpt(text, position), line, "{text}");
        }
        let long = format!("{}NEEDLE{}", "ö ".repeat(500), "x".repeat(500));
        let line = make_excerpt(&long, find_ignoring_case(&long, "needle").unwrap());
        assert!(line.starts_with('…') && line.contains("NEEDLE") && line.ends_with('…'), "{line}");
        assert!(line.chars().count() <= EXCERPT_CHARACTERS + 2);
        assert!(make_excerpt(&long, 0).starts_with("ö ö"));
        // Lower case changes the length of this text, so the position is not exact.
        let text = "İ".repeat(100);
        assert!(find_ignoring_case(&text, "i").is_some());
        assert!(!make_excerpt(&text, 199).is_empty());
    }

    #[test]
    fn a_snippet_is_shown_with_its_language_description_and_tags() {
        let name = "a b".to_owned().try_into().unwrap();
        let memory = Memory { value: "fn a() {}\n".to_owned(), ..Memory::default() };
        assert_eq!(format_snippet(&name, &memory), "Snippet 'a b'\n\nfn a() {}\n");
        let memory = Memory {
            tags: vec!["x".to_owned(), "y".to_owned()],
            language: Some("rust".to_owned()),
            description: Some("Does nothing.".to_owned()),
            ..memory
        };
        assert_eq!(
            format_snippet(&name, &memory),
            "Snippet 'a b' (rust): Does nothing.\nTags: x, y\n\nfn a() {}\n"
        );
        assert_eq!(format_line(&name, &memory, None), "- a b (rust) [x, y]: Does nothing.");
        assert_eq!(format_line(&name, &memory, Some("fn")), "- a b (rust) [x, y]: fn a() {}");
    }
}
