//! Paths into JSON values: `.field`, `.0`, `[0]`, `["any key"]`.

use std::{fmt, str::FromStr};

use serde_json::Value;

use crate::id::is_step_id_char;

/// The maximum size of the name of a step or a tool.
const MAX_NAME_BYTES: usize = 1 << 10;

/// A path into a JSON value. The empty path is the value itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of an object, or an index of an array if it is a number.
    Key(String),
    /// A quoted key of an object. Never an index of an array.
    Quoted(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("there is nothing between the braces")]
    Empty,
    #[error("a name is missing beside `.` or `[`")]
    MissingName,
    /// A name or field has characters that need quotes.
    #[error("`{0}` is not a name; write other keys as `[\"any key\"]`")]
    NotAName(String),
    /// A bracket is not closed, or contains neither a number nor a quoted key.
    #[error("`{0}` is neither `[0]` nor `[\"any key\"]`")]
    Bracket(String),
}

impl Path {
    /// Parses a path: an empty text, or segments that start with `.` or `[`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut segments = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (segment, after) = match rest.strip_prefix('.') {
                Some(field) => parse_field(field)?,
                None => parse_bracket(rest)?,
            };
            segments.push(segment);
            rest = after.trim_start();
        }
        Ok(Self(segments))
    }

    pub fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, segment| segment.find(value))
    }

    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    pub(super) fn first_key(&self) -> Option<&str> {
        self.0.first().map(|segment| match segment {
            Segment::Key(key) | Segment::Quoted(key) => key.as_str(),
        })
    }

    pub(super) fn without_first(mut self) -> Self {
        self.0.remove(0);
        self
    }
}

impl FromStr for Path {
    type Err = PathError;

    /// Parses a path that can start with a field without a dot, such as `address.city`.
    fn from_str(text: &str) -> Result<Self, PathError> {
        let text = text.trim();
        if text.is_empty() || text.starts_with(['.', '[']) {
            return Self::parse(text);
        }
        Self::parse(&format!(".{text}"))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            // A number without quotes would also find an item of a list.
            Segment::Quoted(key) if is_index(key) => write!(f, "[{}]", Value::from(key.as_str())),
            Segment::Key(key) | Segment::Quoted(key) => f.write_str(&format_key(key)),
        })
    }
}

impl Segment {
    fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match (self, value) {
            (Self::Key(key) | Self::Quoted(key), Value::Object(fields)) => fields.get(key),
            (Self::Key(key), Value::Array(items)) if is_index(key) => {
                items.get(key.parse::<usize>().ok()?)
            }
            _ => None,
        }
    }
}

fn is_index(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn format_key(key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(is_field_char);
    if is_plain { format!(".{key}") } else { format!("[{}]", Value::from(key)) }
}

/// Returns all ways to split `text` into a name and a path, longest name first. Skips names that
/// are too long.
pub(super) fn split_names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let end = text.find('[').unwrap_or(text.len());
    let dots = text[..end].rmatch_indices('.').map(|(dot, _)| dot);
    let splits = std::iter::once(end).chain(dots).map(|dot| (text[..dot].trim_end(), &text[dot..]));
    splits.filter(|(name, _)| name.len() <= MAX_NAME_BYTES)
}

pub(super) fn split_first_name(text: &str) -> Result<(&str, &str), PathError> {
    if text.is_empty() {
        return Err(PathError::Empty);
    }
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let name = text[..end].trim_end();
    if name.is_empty() {
        return Err(PathError::MissingName);
    }
    if !name.chars().all(is_step_id_char) {
        return Err(PathError::NotAName(name.to_owned()));
    }
    Ok((name, &text[end..]))
}

fn is_field_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '@' | ':')
}

fn parse_field(text: &str) -> Result<(Segment, &str), PathError> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let field = text[..end].trim();
    if field.is_empty() {
        return Err(PathError::MissingName);
    }
    if !field.chars().all(is_field_char) {
        return Err(PathError::NotAName(field.to_owned()));
    }
    Ok((Segment::Key(field.to_owned()), &text[end..]))
}

fn parse_bracket(text: &str) -> Result<(Segment, &str), PathError> {
    let wrong = || PathError::Bracket(text.to_owned());
    let inside = text.strip_prefix('[').ok_or_else(|| PathError::NotAName(text.to_owned()))?;
    let inside = inside.trim_start();
    let Some(quote) = inside.chars().next().filter(|char| matches!(char, '"' | '\'')) else {
        let (index, rest) = inside.split_once(']').ok_or_else(wrong)?;
        let index = index.trim();
        if !is_index(index) {
            return Err(wrong());
        }
        return Ok((Segment::Key(index.to_owned()), rest));
    };
    let (key, rest) = parse_quoted(&inside[1..], quote).ok_or_else(wrong)?;
    let rest = rest.trim_start().strip_prefix(']').ok_or_else(wrong)?;
    Ok((Segment::Quoted(key), rest))
}

/// Reads a quoted key up to its closing `quote`. Decodes the escapes of JSON, and an escaped quote.
fn parse_quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut is_escaped = false;
    let end = text.char_indices().find_map(|(position, c)| match c {
        _ if is_escaped => {
            is_escaped = false;
            None
        }
        '\\' => {
            is_escaped = true;
            None
        }
        _ => (c == quote).then_some(position),
    })?;
    let raw = &text[..end];
    let rest = &text[end + quote.len_utf8()..];
    if !raw.contains('\\') {
        return Some((raw.to_owned(), rest));
    }
    let json = if quote == '"' { raw.to_owned() } else { to_double_quoted(raw) };
    let key = serde_json::from_str(&format!("\"{json}\"")).ok()?;
    Some((key, rest))
}

/// Converts the content of a single-quoted string to the content of a double-quoted string.
fn to_double_quoted(raw: &str) -> String {
    raw.replace("\\'", "'").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_name_is_reported() {
        for text in [".a", "[0]"] {
            assert_eq!(split_first_name(text), Err(PathError::MissingName), "{text}");
        }
        for text in [".a.", ".a..b"] {
            assert_eq!(Path::parse(text), Err(PathError::MissingName), "{text}");
        }
    }

    #[test]
    fn names_that_are_too_long_are_not_looked_up() {
        let text = "a.".repeat(100_000);
        let longest = split_names(&text).map(|(name, _)| name.len()).max();
        assert!(longest.is_some_and(|length| length <= MAX_NAME_BYTES), "{longest:?}");
        assert_eq!(
            split_names("a.b [0].c").collect::<Vec<_>>(),
            [("a.b", "[0].c"), ("a", ".b [0].c")]
        );
    }
}
