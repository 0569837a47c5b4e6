//! Words, numbers, addresses and quotations: a query cut into pieces that nothing cuts further.

use rust_stemmers::{Algorithm, Stemmer};

/// What a piece of a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word.
    Word,
    /// A number, perhaps with a currency or thousands.
    Number,
    /// An e-mail address.
    Email,
    /// A web address.
    Url,
    /// 24 hexadecimal digits or a UUID.
    Id,
    /// An ISO date, perhaps with a time.
    Date,
    /// A time of day.
    Time,
    /// The path or name of a file.
    Path,
    /// A code such as `A-1001`, `m_55` or `MUG-BLUE`.
    Code,
    /// Two names with a slash between them, such as `owner/repo`.
    Slug,
    /// A pattern of file names.
    Glob,
    /// What stands between quotation marks.
    Quoted,
    /// One punctuation mark, or the end of a line.
    Mark,
}

/// A piece of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    /// What it is.
    pub(super) kind: Kind,
    /// Where it begins in the query, in bytes.
    pub(super) start: usize,
    /// Where it ends.
    pub(super) end: usize,
    /// What it says: without quotation marks.
    pub(super) value: String,
    /// The same in lower case.
    pub(super) lower: String,
    /// Its stem, for words.
    pub(super) stem: String,
}

impl Token {
    fn new(kind: Kind, (start, end): (usize, usize), value: &str) -> Self {
        let lower = value.to_lowercase().replace('’', "'");
        let stem = if kind == Kind::Word { stem(&lower) } else { lower.clone() };
        Self { kind, start, end, value: value.to_owned(), lower, stem }
    }

    /// Returns whether it is this word, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.lower == word
    }

    /// Returns whether it is one of these words or marks, in any case.
    pub(super) fn is_any(&self, words: &[&str]) -> bool {
        self.kind != Kind::Quoted && words.contains(&self.lower.as_str())
    }

    /// Returns whether it is this mark.
    pub(super) fn is_mark(&self, mark: &str) -> bool {
        self.kind == Kind::Mark && self.value == mark
    }

    /// Returns whether it separates the items of a list.
    pub(super) fn is_separator(&self) -> bool {
        self.is_mark(",") || self.is("and") || self.is_mark("&")
    }

    /// Returns whether it is a word that begins like a name.
    pub(super) fn is_capitalised(&self) -> bool {
        self.kind == Kind::Word && self.value.chars().next().is_some_and(char::is_uppercase)
    }

    /// Returns the word without `'s`.
    pub(super) fn without_possessive(&self) -> &str {
        ["'s", "’s"].iter().find_map(|it| self.value.strip_suffix(it)).unwrap_or(&self.value)
    }
}

/// Cuts a query into tokens.
pub(super) fn tokens(query: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    // What opens and never closes is looked for once.
    let mut unclosed: Vec<char> = Vec::new();
    while let Some(char) = query[at..].chars().next() {
        let next = at + char.len_utf8();
        if char == '\n' {
            tokens.push(Token::new(Kind::Mark, (at, next), "\n"));
        } else if let Some(end) = quotation(query, at, char, &mut unclosed) {
            let close = query[..end].chars().next_back().map_or(0, char::len_utf8);
            tokens.push(Token::new(Kind::Quoted, (at, end), &query[next..end - close]));
            at = end;
            continue;
        } else if !char.is_whitespace() {
            let end = chunk_end(query, at);
            if end > at {
                let text = &query[at..end];
                tokens.push(Token::new(classify(text), (at, end), text));
                at = end;
                continue;
            }
            tokens.push(Token::new(Kind::Mark, (at, next), &query[at..next]));
        }
        at = next;
    }
    tokens
}

/// Returns where the quotation that opens here ends, if one does; what opens and never closes is
/// remembered.
fn quotation(query: &str, at: usize, open: char, unclosed: &mut Vec<char>) -> Option<usize> {
    let close = match open {
        '"' => '"',
        '“' => '”',
        '«' => '»',
        '`' => '`',
        '\'' => '\'',
        '‘' => '’',
        _ => return None,
    };
    if unclosed.contains(&open) {
        return None;
    }
    let from = at + open.len_utf8();
    let is_single = matches!(open, '\'' | '‘');
    let mut before = open;
    for (offset, char) in query[from..].char_indices() {
        let end = from + offset + char.len_utf8();
        let is_apostrophe =
            is_single && query[end..].chars().next().is_some_and(char::is_alphanumeric);
        if char == close && before != '\\' && !is_apostrophe {
            return (offset > 0).then_some(end);
        }
        before = char;
    }
    unclosed.push(open);
    None
}

/// Returns where the chunk that begins at `at` ends; `at` itself where a mark stands.
fn chunk_end(query: &str, at: usize) -> usize {
    let rest = &query[at..];
    let is_url = is_url(rest);
    let bytes = query.as_bytes();
    let mut end = query.len();
    for (offset, char) in rest.char_indices() {
        let here = at + offset;
        let is_between_digits = here > at
            && bytes[here - 1].is_ascii_digit()
            && bytes.get(here + 1).is_some_and(u8::is_ascii_digit);
        let stops = match char {
            ',' => !(is_between_digits && is_thousands(&rest[offset + 1..])),
            ':' => !is_url && !is_between_digits && !rest[offset..].starts_with(":\\"),
            '=' | '&' | '?' | '!' | '(' | '[' => !is_url,
            ';' | ')' | ']' | '<' | '>' | '"' | '“' | '”' | '«' | '»' => true,
            _ => char.is_whitespace(),
        };
        if stops {
            end = here;
            break;
        }
    }
    let chunk = &query[at..end];
    let owner = ["'s", "’s"]
        .iter()
        .find_map(|it| chunk.strip_suffix(it))
        .filter(|it| is_id(it) || is_code(it));
    if let Some(owner) = owner {
        return at + owner.len();
    }
    at + chunk.trim_end_matches(['.', ':', '!', '?', ',', '\'', '…']).len()
}

fn is_thousands(rest: &str) -> bool {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits == 3
}

fn is_url(text: &str) -> bool {
    let head = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    ["http://", "https://", "ftp://", "file://", "www."].iter().any(|it| head.starts_with(it))
}

fn classify(text: &str) -> Kind {
    if is_url(text) {
        Kind::Url
    } else if is_email(text) {
        Kind::Email
    } else if is_id(text) {
        Kind::Id
    } else if is_date(text) {
        Kind::Date
    } else if is_time(text) {
        Kind::Time
    } else if number(text).is_some() {
        Kind::Number
    } else if text.contains('*') && text.len() > 1 {
        Kind::Glob
    } else if is_slug(text) {
        Kind::Slug
    } else if is_path(text) {
        Kind::Path
    } else if is_code(text) {
        Kind::Code
    } else if text.chars().any(char::is_alphanumeric) {
        Kind::Word
    } else {
        Kind::Mark
    }
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty()
            && !host.contains('@')
            && host.split_once('.').is_some_and(|(name, rest)| !name.is_empty() && !rest.is_empty())
    })
}

fn is_id(text: &str) -> bool {
    let is_hex = |it: &str| it.bytes().all(|it| it.is_ascii_hexdigit());
    let is_object_id = text.len() == 24 && is_hex(text);
    let groups: Vec<&str> = text.split('-').collect();
    let is_uuid =
        groups.iter().map(|it| it.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(|it| is_hex(it));
    is_object_id || is_uuid
}

fn is_date(text: &str) -> bool {
    text.get(..10).is_some_and(|it| it.parse::<chrono::NaiveDate>().is_ok())
        && text.as_bytes().get(10).is_none_or(|it| matches!(it, b'T' | b't'))
}

fn is_time(text: &str) -> bool {
    let clock = text.to_ascii_lowercase();
    let (clock, is_twelve) = match clock.strip_suffix("am").or_else(|| clock.strip_suffix("pm")) {
        Some(clock) => (clock.to_owned(), true),
        None => (clock, false),
    };
    let mut parts = clock.split(':');
    let fits =
        |part: &str, most: u8| part.len() <= 2 && part.parse::<u8>().is_ok_and(|it| it <= most);
    let is_hour = parts.next().is_some_and(|it| fits(it, 23));
    let minutes: Vec<&str> = parts.collect();
    is_hour
        && (is_twelve || !minutes.is_empty())
        && minutes.len() <= 2
        && minutes.iter().all(|it| it.len() == 2 && fits(it, 59))
}

fn is_path(text: &str) -> bool {
    let has_slash = text.len() > 1 && (text.starts_with(['/', '~']) || text.contains(['/', '\\']));
    let is_hidden = text
        .strip_prefix('.')
        .is_some_and(|rest| rest.len() > 1 && rest.bytes().all(|byte| byte.is_ascii_alphabetic()));
    has_slash || has_extension(text) || is_hidden
}

fn has_extension(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(name, extension)| {
        !name.is_empty()
            && !name.ends_with('.')
            && (1..=7).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
    })
}

/// Returns whether a text is two names with a slash between them: `owner/repo`, `feature/search`.
fn is_slug(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|char| char.is_alphanumeric() || matches!(char, '-' | '_' | '.'))
    };
    text.split_once('/').is_some_and(|(first, second)| {
        is_name(first) && is_name(second) && !first.starts_with('.') && !has_extension(second)
    })
}

/// Returns whether a word is a code and no word of a language: `A-1001`, `m_55`, `MUG-BLUE`.
pub(super) fn is_code(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let is_joined = text.contains(['-', '_']);
    let is_ordinal = ["st", "nd", "rd", "th"].iter().any(|ending| {
        text.strip_suffix(ending).is_some_and(|digits| digits.parse::<u32>().is_ok())
    });
    let is_upper = text.len() > 1 && !text.bytes().any(|byte| byte.is_ascii_lowercase());
    is_plain
        && has_letter
        && !is_ordinal
        && (has_digit && (is_joined || text.len() > 5 || is_upper) || is_joined && is_upper)
}

/// Reads a number as people write it: `1,000.5`, `$20`, `15%`, `#7`, `-3`.
pub(super) fn number(text: &str) -> Option<serde_json::Number> {
    let text = text.trim_start_matches(['$', '€', '£', '#']).trim_end_matches(['%', '€', '$', '£']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_plain = digits.starts_with(|it: char| it.is_ascii_digit())
        && digits
            .bytes()
            .all(|it| it.is_ascii_digit() || matches!(it, b'.' | b',' | b'e' | b'E' | b'-'));
    if !is_plain {
        return None;
    }
    // `1,000.5` as most write it, `1.000,5` as others do.
    let fraction = text.rsplit_once(',').filter(|it| !it.1.contains('.') && it.1.len() < 3);
    let plain = match fraction {
        Some((whole, rest)) if !whole.contains(',') => format!("{}.{rest}", whole.replace('.', "")),
        _ => text.replace(',', ""),
    };
    let plain = plain.strip_prefix('+').unwrap_or(&plain);
    if let Ok(whole) = plain.parse::<i64>() {
        return Some(whole.into());
    }
    plain.parse::<f64>().ok().and_then(serde_json::Number::from_f64)
}

/// Returns the stem of an English word in lower case.
pub(super) fn stem(word: &str) -> String {
    let word = ["'s", "'"].iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word);
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "`expect!` is written in place")]
    fn check(query: &str, expected: Expect) {
        let tokens: Vec<String> =
            tokens(query).iter().map(|it| format!("{:?}({})", it.kind, it.value)).collect();
        expected.assert_eq(&tokens.join(" "));
    }

    #[test]
    fn addresses_and_numbers_stay_whole() {
        check(
            "Add a.b@x.co.uk,then 1,000.5 at https://x.io/a?b=1,2.",
            expect![
                "Word(Add) Email(a.b@x.co.uk) Mark(,) Word(then) Number(1,000.5) Word(at) Url(https://x.io/a?b=1) Mark(,) Number(2) Mark(.)"
            ],
        );
    }

    #[test]
    fn quotations_keep_everything() {
        check(
            "titled \"A, B and C\" don't 'it's so' “x” \"open",
            expect![[
                r#"Word(titled) Quoted(A, B and C) Word(don't) Quoted(it's so) Quoted(x) Mark(") Word(open)"#
            ]],
        );
    }

    #[test]
    fn ids_dates_times_and_paths_are_known() {
        check(
            "507f1f77bcf86cd799439011 2026-03-01 2026-03-01T10:00:00Z 10:30 3pm notes.txt /tmp/a $20 #7 v1.2.3",
            expect![
                "Id(507f1f77bcf86cd799439011) Date(2026-03-01) Date(2026-03-01T10:00:00Z) Time(10:30) Time(3pm) Path(notes.txt) Path(/tmp/a) Number($20) Number(#7) Word(v1.2.3)"
            ],
        );
    }

    #[test]
    fn a_colon_ends_a_cue() {
        check(
            "content:hello name=Zed",
            expect!["Word(content) Mark(:) Word(hello) Word(name) Mark(=) Word(Zed)"],
        );
    }
}
