use std::ops::Range;

use rust_stemmers::{Algorithm, Stemmer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Number,
    Email,
    Url,
    Id,
    Date,
    Time,
    Path,
    Code,
    Slug,
    Glob,
    Quoted,
    /// Text without letters and digits, such as a punctuation mark or the end of a line.
    Mark,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) value: String,
    pub(super) lower: String,
    /// The stem of a word. For other tokens, the text in lower case.
    pub(super) stem: String,
}

impl Token {
    fn new(kind: TokenKind, start: usize, end: usize, value: &str) -> Self {
        let lower = value.to_lowercase().replace('’', "'");
        let stem = if kind == TokenKind::Word { stem(&lower) } else { lower.clone() };
        Self { kind, start, end, value: value.to_owned(), lower, stem }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.lower == word
    }

    pub(super) fn is_any(&self, words: &[&str]) -> bool {
        self.kind != TokenKind::Quoted && words.contains(&self.lower.as_str())
    }

    pub(super) fn is_mark(&self, mark: &str) -> bool {
        self.kind == TokenKind::Mark && self.value == mark
    }

    pub(super) fn is_separator(&self) -> bool {
        self.is_mark(",") || self.is("and") || self.is_mark("&")
    }

    /// Returns whether a word is capitalised. In `d'Orsay`, the part behind the mark counts.
    pub(super) fn is_capitalised(&self) -> bool {
        let mut parts = self.value.splitn(3, ['\'', '’']).take(2);
        self.kind == TokenKind::Word && parts.any(|part| part.starts_with(char::is_uppercase))
    }

    pub(super) fn is_value(&self) -> bool {
        !matches!(self.kind, TokenKind::Word | TokenKind::Mark)
    }

    pub(super) fn is_typed(&self) -> bool {
        matches!(
            self.kind,
            TokenKind::Email
                | TokenKind::Code
                | TokenKind::Path
                | TokenKind::Slug
                | TokenKind::Url
                | TokenKind::Glob
                | TokenKind::Id
        )
    }

    /// Returns the stem of the noun for a path: `file` if its last part has a dot, otherwise
    /// `directori`.
    pub(super) fn path_noun(&self) -> Option<&'static str> {
        let is_path = self.kind == TokenKind::Path && !self.value.starts_with('.');
        let name = self.value.rsplit('/').next().filter(|_| is_path)?;
        Some(if name.contains('.') { "file" } else { "directori" })
    }

    pub(super) fn inserted(word: &str, at: usize) -> Self {
        Self::new(TokenKind::Word, at, at, word)
    }

    /// Returns whether the word is not in the clause, but was taken over from another clause.
    pub(super) fn is_inserted(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn without_possessive(&self) -> &str {
        let owner = self.value.strip_suffix("'s").or_else(|| self.value.strip_suffix("’s"));
        owner.unwrap_or(&self.value)
    }
}

pub(super) fn tokens(query: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    // Opening marks without a closing mark. They are remembered, so that the search for each of
    // them runs only once.
    let mut unclosed: Vec<char> = Vec::new();
    while let Some(char) = query[at..].chars().next() {
        let next = at + char.len_utf8();
        let mut end = next;
        if let Some(close) = find_close(query, at, char, &mut unclosed) {
            end = close.end;
            tokens.push(Token::new(TokenKind::Quoted, at, end, &query[next..close.start]));
        } else if char == '\n' || !char.is_whitespace() {
            end = chunk_end(query, at).max(next);
            let text = &query[at..end];
            tokens.push(Token::new(classify(text), at, end, text));
        }
        at = end;
    }
    tokens
}

/// Cuts a query into tokens. Ignores quotation marks around the whole query.
pub(super) fn unquoted_tokens(query: &str) -> Vec<Token> {
    let whole = tokens(query);
    let [only] = whole.as_slice() else { return whole };
    if only.kind != TokenKind::Quoted || !only.value.contains(' ') {
        return whole;
    }
    let start = only.start + query[only.start..].chars().next().map_or(0, char::len_utf8);
    let moved =
        |token: Token| Token { start: token.start + start, end: token.end + start, ..token };
    tokens(&only.value).into_iter().map(moved).collect()
}

pub(super) fn words_of(query: &str, tokens: &[Token]) -> String {
    match tokens {
        [first, .., last] if tokens.windows(2).all(|pair| pair[0].end <= pair[1].start) => {
            query[first.start..last.end].to_owned()
        }
        _ => tokens.iter().map(|token| token.value.as_str()).collect::<Vec<_>>().join(" "),
    }
}

/// Returns the place of the mark that closes a quotation. Remembers the opening marks that nothing
/// closes.
fn find_close(
    query: &str,
    at: usize,
    open: char,
    unclosed: &mut Vec<char>,
) -> Option<Range<usize>> {
    let close = match open {
        '"' | '`' | '\'' => open,
        '“' => '”',
        '«' => '»',
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
            return (offset > 0).then_some(from + offset..end);
        }
        before = char;
    }
    unclosed.push(open);
    None
}

/// Returns the end of the chunk that begins at `at`. A mark is not a chunk, so the end is then `at`
/// itself.
fn chunk_end(query: &str, at: usize) -> usize {
    let rest = &query[at..];
    let is_url = is_url(rest);
    let bytes = query.as_bytes();
    let stops = |(offset, char): &(usize, char)| {
        let here = at + offset;
        let is_between_digits = here > at
            && bytes[here - 1].is_ascii_digit()
            && bytes.get(here + 1).is_some_and(u8::is_ascii_digit);
        match char {
            ',' => !(is_between_digits && has_three_digits(&rest[offset + 1..])),
            ':' => !is_url && !is_between_digits && !rest[*offset..].starts_with(":\\"),
            '=' | '&' | '?' | '!' | '(' | '[' => !is_url,
            ';' | ')' | ']' | '<' | '>' | '"' | '“' | '”' | '«' | '»' => true,
            _ => char.is_whitespace(),
        }
    };
    let end = rest.char_indices().find(stops).map_or(query.len(), |(offset, _)| at + offset);
    at + query[at..end].trim_end_matches(['.', ':', '!', '?', ',', '\'', '…']).len()
}

fn has_three_digits(text: &str) -> bool {
    text.bytes().take_while(u8::is_ascii_digit).count() == 3
}

fn is_url(text: &str) -> bool {
    let head = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    ["http://", "https://", "ftp://", "file://", "www."].iter().any(|start| head.starts_with(start))
}

fn classify(text: &str) -> TokenKind {
    let kinds = [
        (is_url(text), TokenKind::Url),
        (is_email(text), TokenKind::Email),
        (is_id(text), TokenKind::Id),
        (is_date(text), TokenKind::Date),
        (is_time(text), TokenKind::Time),
        (number(text).is_some(), TokenKind::Number),
        (text.contains('*') && text.len() > 1, TokenKind::Glob),
        (is_slug(text), TokenKind::Slug),
        (is_path(text), TokenKind::Path),
        (is_code(text), TokenKind::Code),
        (text.chars().any(char::is_alphanumeric), TokenKind::Word),
    ];
    kinds.into_iter().find(|(is_it, _)| *is_it).map_or(TokenKind::Mark, |(_, kind)| kind)
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(user, host)| {
        let has_dot = host.trim_matches('.').contains('.');
        !user.is_empty() && has_dot && !host.contains('@')
    })
}

fn is_id(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    matches!(lengths.as_slice(), [24] | [8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_date(text: &str) -> bool {
    text.get(..10).is_some_and(|day| day.replace('/', "-").parse::<chrono::NaiveDate>().is_ok())
        && text.as_bytes().get(10).is_none_or(|byte| matches!(byte, b'T' | b't'))
}

fn is_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let half = text.strip_suffix("am").or_else(|| text.strip_suffix("pm"));
    let (hour, minutes) = half.unwrap_or(&text).split_once(':').unzip();
    let hour = hour.or(half).unwrap_or_default();
    let is_below = |text: &str, most: u8| {
        (1..=2).contains(&text.len()) && text.parse::<u8>().is_ok_and(|number| number < most)
    };
    is_below(hour, 24)
        && minutes.is_none_or(|rest| {
            rest.split(':').count() <= 2
                && rest.split(':').all(|part| part.len() == 2 && is_below(part, 60))
        })
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
        // `D.C.` and `U.S.` are no files.
        let is_abbreviation = extension.len() == 1 && name.split('.').all(|part| part.len() == 1);
        !name.is_empty()
            && !is_abbreviation
            && !name.ends_with('.')
            && (1..=7).contains(&extension.len())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && extension.bytes().any(|byte| byte.is_ascii_alphabetic())
    })
}

fn is_slug(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|char| char.is_alphanumeric() || matches!(char, '-' | '_' | '.'))
    };
    text.split_once('/').is_some_and(|(first, second)| {
        is_name(first) && is_name(second) && !first.starts_with('.') && !has_extension(second)
    })
}

/// Returns whether a word is a code, and not a word of a language: `A-1001`, `m_55`, `MUG-BLUE`.
pub(super) fn is_code(text: &str) -> bool {
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let is_joined = text.contains(['-', '_']);
    let is_upper = text.len() > 1 && !text.bytes().any(|byte| byte.is_ascii_lowercase());
    is_plain
        && has_letter
        && (has_digit && (is_joined || text.len() > 5 || is_upper) || is_joined && is_upper)
}

/// Reads a number as people write it: `1,000.5`, `$20`, `15%`, `#7`, `-3`.
pub(super) fn number(text: &str) -> Option<serde_json::Number> {
    let text = text.trim_start_matches(['$', '€', '£', '#']).trim_end_matches(['%', '€', '$', '£']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_plain = digits.starts_with(|char: char| char.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || b".,eE-".contains(&byte));
    if !is_plain {
        return None;
    }
    let plain = text.strip_prefix('+').unwrap_or(text).replace(',', "");
    if let Ok(whole) = plain.parse::<i64>() {
        return Some(whole.into());
    }
    plain.parse::<f64>().ok().and_then(serde_json::Number::from_f64)
}

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
        let tokens: Vec<String> = tokens(query)
            .iter()
            .map(|token| format!("{:?}({})", token.kind, token.value))
            .collect();
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
    fn a_quotation_is_one_token_without_its_quotes() {
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
