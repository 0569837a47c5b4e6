//! Patterns of tool names, such as `file_tools.*` or `blog.get?`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

const MAX_PATTERN_BYTES: usize = 256;

/// A pattern of qualified tool names. `*` matches any text, dots included, and `?` matches one
/// character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolPattern(String);

/// A text that is too long for a pattern, has white space, or has neither a dot nor a star.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a pattern for tools: write `set.name`, `set.*` or `*`")]
pub struct GlobError(String);

impl FromStr for ToolPattern {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Rejects a pattern without a dot and without a star, because qualified names contain a
        // dot.
        let can_match = text.contains('.') || text.contains('*');
        if !can_match || text.len() > MAX_PATTERN_BYTES || text.chars().any(char::is_whitespace) {
            return Err(GlobError(text.chars().take(64).collect()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = GlobError;

    fn try_from(text: String) -> Result<Self, GlobError> {
        text.parse()
    }
}

impl From<ToolPattern> for String {
    fn from(glob: ToolPattern) -> Self {
        glob.0
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ToolPattern {
    /// Parses a pattern that can also match names without a set, such as `pay`.
    pub fn for_short_names(text: &str) -> Result<Self, GlobError> {
        if text.is_empty()
            || text.len() > MAX_PATTERN_BYTES
            || text.chars().any(char::is_whitespace)
        {
            return Err(GlobError(text.chars().take(64).collect()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns `true` if the pattern starts with the name `set` and a dot.
    pub fn names_set(&self, set: &str) -> bool {
        self.0.strip_prefix(set).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns `true` if the pattern can match a name that begins with this text.
    pub fn can_match_prefix(&self, beginning: &str) -> bool {
        let ends = self.0.char_indices().map(|(start, char)| start + char.len_utf8());
        let mut heads = ends.map(|end| Self(self.0[..end].to_owned()));
        heads.any(|head| head.matches(beginning))
    }

    /// Puts the name of a set in front of the pattern. Returns `None` if the result is too long.
    pub fn with_set_prefix(&self, set: &str) -> Option<Self> {
        format!("{set}.{self}").parse().ok()
    }

    /// Returns `true` if the name matches.
    ///
    /// After a mismatch, the search continues at the last star, and never at an earlier star. So
    /// its time is at most the product of the two lengths.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), name.chars().collect());
        let (mut position, mut read) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while read < name.len() {
            match pattern.get(position) {
                Some('*') => {
                    star = Some((position, read));
                    position += 1;
                }
                Some(char) if *char == '?' || *char == name[read] => {
                    position += 1;
                    read += 1;
                }
                _ => {
                    let Some((place, taken)) = star else { return false };
                    star = Some((place, taken + 1));
                    (position, read) = (place + 1, taken + 1);
                }
            }
        }
        pattern[position..].iter().all(|char| *char == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        for (pattern, name, expected) in [
            ("file_tools.*", "file_tools.glob", true),
            ("file_tools.*", "file_tools.", true),
            ("file_tools.*", "file_toolsx.glob", false),
            ("file_tools.*", "my.file_tools.glob", false),
            ("*", "a.b", true),
            ("*.get", "blog.get", true),
            ("*.get", "blog.getAll", false),
            ("blog.create*", "blog.createAuthor", true),
            ("blog.create*", "blog.deleteAuthor", false),
            ("blog.?et", "blog.get", true),
            ("blog.?et", "blog.et", false),
            ("blog.createAuthor", "blog.createAuthor", true),
            ("blog.createAuthor", "blog.createAuthors", false),
            ("blog.createAuthor", "blog.CreateAuthor", false),
            ("*a*b*.*", "xxaxxbxx.y", true),
            ("*a*b*.*", "xxbxxaxx.y", false),
            ("b[l]og.*", "blog.x", false),
        ] {
            let glob: ToolPattern = pattern.parse().unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_tells_whether_it_can_match_names_with_a_prefix() {
        for (pattern, beginning, expected) in [
            ("file_tools.*", "file_tools.", true),
            ("file_tools.glob", "file_tools.", true),
            ("f?le_*.glob", "file_tools.", true),
            ("f*", "file_tools.", true),
            ("*", "file_tools.", true),
            ("file.*", "file_tools.", false),
            ("files.*", "file_tools.", false),
            ("?.*", "file_tools.", false),
            ("ä.*", "ä.", true),
        ] {
            let glob: ToolPattern = pattern.parse().unwrap();
            assert_eq!(glob.can_match_prefix(beginning), expected, "{pattern} {beginning}");
        }
        let glob: ToolPattern = "file_tools.*".parse().unwrap();
        assert_eq!(glob.with_set_prefix("files").unwrap().to_string(), "files.file_tools.*");
        assert_eq!(glob.with_set_prefix(&"x".repeat(250)), None);
    }

    #[test]
    fn a_pattern_that_can_match_no_name_is_rejected() {
        for text in ["", "blog", "bl?g", "a b.*", &format!("{}.*", "x".repeat(300))] {
            assert!(text.parse::<ToolPattern>().is_err(), "{text}");
        }
        let glob: ToolPattern = format!("{}.b", "*a".repeat(100)).parse().unwrap();
        assert!(!glob.matches(&"a".repeat(10_000)), "it ends");
    }
}
