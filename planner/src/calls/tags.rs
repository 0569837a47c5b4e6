//! Tags in prose and their pairs, found in one pass.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use super::source::Source;

const THOUGHT_TAGS: [&str; 4] = ["think", "thinking", "thought", "reasoning"];
const RESULT_TAGS: [&str; 4] =
    ["tool_response", "tool_result", "function_results", "function_result"];
const CALL_TAGS: [&str; 4] = ["tool_call", "function_call", "invoke", "function"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagKind {
    Skipped,
    Call,
    Other,
}

#[derive(Debug)]
pub(super) struct Tag<'a> {
    /// The name without a prefix such as `antml:`.
    pub(super) name: &'a str,
    pub(super) full_name: &'a str,
    pub(super) attribute: Option<String>,
    pub(super) end: usize,
    pub(super) is_empty: bool,
    attributes_text: &'a str,
}

impl<'a> Tag<'a> {
    pub(super) fn read_at(source: &Source<'a>, index: usize) -> Option<Self> {
        if source.byte(index) != Some(b'<') {
            return None;
        }
        let (full_name, stop) = read_name(source, index + 1)?;
        let close = source.skip(stop, |byte| !matches!(byte, b'>' | b'<' | b'\n'));
        if source.byte(close) != Some(b'>') {
            return None;
        }
        let attributes_text = source.slice(stop..close);
        let is_empty = attributes_text.ends_with('/');
        let attribute = match attributes_text.strip_prefix('=') {
            Some(value) => Some(strip_quotes(value)),
            None => name_attribute(attributes_text),
        };
        Some(Self {
            name: local_name(full_name),
            full_name,
            attribute,
            end: close + 1,
            is_empty,
            attributes_text,
        })
    }

    pub(super) fn attributes(&self) -> Option<Vec<(&'a str, String)>> {
        let mut attributes_text =
            self.attributes_text.strip_suffix('/').unwrap_or(self.attributes_text).trim();
        let mut attributes = Vec::new();
        while !attributes_text.is_empty() {
            let (key, value) = attributes_text.split_once('=')?;
            let (key, value) = (key.trim(), value.trim_start());
            let quote = value.chars().next().filter(|character| matches!(character, '"' | '\''))?;
            let (value, behind) = value[1..].split_once(quote)?;
            if key.is_empty() || key.contains(char::is_whitespace) {
                return None;
            }
            attributes.push((key, decode_entities(value).into_owned()));
            attributes_text = behind.trim();
        }
        Some(attributes)
    }

    pub(super) fn kind(&self) -> TagKind {
        tag_kind(self.name)
    }
}

fn read_name<'a>(source: &Source<'a>, index: usize) -> Option<(&'a str, usize)> {
    let end = source.skip(index, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b':' | b'.')
    });
    (end > index).then(|| (source.slice(index..end), end))
}

fn local_name(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn strip_quotes(value: &str) -> String {
    decode_entities(value.trim().trim_matches(['"', '\''])).into_owned()
}

fn name_attribute(attributes: &str) -> Option<String> {
    let (before, value) = attributes.split_once("name=")?;
    if !before.ends_with(char::is_whitespace) {
        return None;
    }
    let quote = value.chars().next().filter(|character| matches!(character, '"' | '\''))?;
    let (value, _) = value[1..].split_once(quote)?;
    Some(strip_quotes(value))
}

fn tag_kind(name: &str) -> TagKind {
    let is_one_of = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_one_of(&CALL_TAGS) {
        TagKind::Call
    } else if is_one_of(&THOUGHT_TAGS) || is_one_of(&RESULT_TAGS) {
        TagKind::Skipped
    } else {
        TagKind::Other
    }
}

/// Returns whether the tag at a position ends a thought. A tag in backticks does not end one.
pub(super) fn is_thought_end(source: &Source<'_>, index: usize) -> bool {
    if source.byte(index + 1) != Some(b'/') || is_quoted(source, index) {
        return false;
    }
    let Some((name, end)) = read_name(source, index + 2) else { return false };
    let is_thought = THOUGHT_TAGS.iter().any(|known| known.eq_ignore_ascii_case(local_name(name)));
    is_thought && source.byte(end) == Some(b'>')
}

pub(super) fn is_quoted(source: &Source<'_>, index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|previous| source.byte(previous));
    let fence = index.checked_sub(2).and_then(|previous| source.byte(previous));
    before == Some(b'`') && fence != Some(b'`')
}

#[derive(Debug, Default)]
pub(super) struct Tags {
    closing: BTreeMap<usize, Range<usize>>,
    opening_positions: Vec<usize>,
    /// The ends of thoughts, by tag name. Thoughts do not nest, because models also write about
    /// tags.
    thoughts: BTreeMap<String, Vec<Range<usize>>>,
}

impl Tags {
    /// Finds the tags of all calls, results and thoughts. The content of CDATA is plain text.
    pub(super) fn find(source: &Source<'_>) -> Self {
        let mut tags = Self::default();
        let mut open: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut has_data = true;
        let mut position = 0;
        while let Some(start) = source.find(position..source.len(), "<") {
            position = start + 1;
            if has_data && source.find_word_end(start, CDATA).is_some() {
                match source.find(start..source.len(), "]]>") {
                    Some(end) => position = end,
                    None => has_data = false,
                }
                continue;
            }
            let is_close = source.byte(position) == Some(b'/');
            let Some((name, end)) = read_name(source, position + usize::from(is_close)) else {
                continue;
            };
            if tag_kind(local_name(name)) == TagKind::Other {
                continue;
            }
            let key = local_name(name).to_ascii_lowercase();
            if THOUGHT_TAGS.contains(&&*key) {
                if is_close && source.byte(end) == Some(b'>') {
                    tags.thoughts.entry(key).or_default().push(start..end + 1);
                }
            } else if !is_close {
                tags.opening_positions.push(start);
                open.entry(key).or_default().push(start);
            } else if source.byte(end) == Some(b'>')
                && let Some(opened) = open.get_mut(&key).and_then(Vec::pop)
            {
                tags.closing.insert(opened, start..end + 1);
            }
        }
        tags
    }

    pub(super) fn find_closing_tag(&self, index: usize, tag: &Tag<'_>) -> Option<Range<usize>> {
        match self.thoughts.get(&tag.name.to_ascii_lowercase()) {
            Some(ends) => ends.get(ends.partition_point(|end| end.start < index)).cloned(),
            None => self.closing.get(&index).cloned(),
        }
    }

    pub(super) fn has_thought_end(&self, range: Range<usize>) -> bool {
        self.thoughts.values().any(|ends| {
            let next = ends.get(ends.partition_point(|end| end.start < range.start));
            next.is_some_and(|end| end.start < range.end)
        })
    }

    pub(super) fn next_opening(&self, index: usize) -> Option<usize> {
        self.opening_positions
            .get(self.opening_positions.partition_point(|open| *open <= index))
            .copied()
    }
}

pub(super) const CDATA: &str = "<![CDATA[";

/// Replaces numeric entities and the five entities of XML. Keeps all other text.
pub(super) fn decode_entities(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split('&');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let entity = part.split_once(';').filter(|(name, _)| name.len() <= 8);
        let entity =
            entity.and_then(|(name, attributes_text)| Some((entity_char(name)?, attributes_text)));
        let (character, attributes_text) = entity.unwrap_or(('&', part));
        decoded.push(character);
        decoded.push_str(attributes_text);
    }
    Cow::Owned(decoded)
}

fn entity_char(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}
