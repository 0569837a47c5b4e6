//! Checks the size and nesting of a condition before the parser recurses into it. The parser limits
//! the nesting of brackets, but not chains such as `a + b + c`, each of whose operators adds a
//! level to its tree.

use super::ConditionError;
use crate::limits;

pub(super) fn check_source(source: &str) -> Result<(), ConditionError> {
    if source.len() > limits::CONDITION_BYTES {
        return Err(ConditionError::TooLong { bytes: source.len() });
    }
    let mut scan = TokenScanner { source, rest: source, depth: 0, operator_count: 0 };
    while let Some(first) = scan.rest.chars().next() {
        scan.read_token(first)?;
    }
    Ok(())
}

/// Returns the line and the column of a word in a text that [`check_source`] accepts. If
/// `is_method` is `false`, skips a word after a dot, because the word is then the name of a field.
pub(super) fn find_word(source: &str, word: &str, is_method: bool) -> Option<(usize, usize)> {
    let mut scan = TokenScanner { source, rest: source, depth: 0, operator_count: 0 };
    let mut is_behind_dot = false;
    while let Some(first) = scan.rest.chars().next() {
        let begins_word = first.is_ascii_alphabetic() || first == '_';
        let end = scan.rest.find(|char| !is_word_char(char)).unwrap_or(scan.rest.len());
        if begins_word && scan.rest[..end] == *word && (is_method || !is_behind_dot) {
            return Some(scan.position());
        }
        is_behind_dot = first == '.' || is_behind_dot && first.is_ascii_whitespace();
        scan.read_token(first).ok()?;
    }
    None
}

struct TokenScanner<'a> {
    source: &'a str,
    rest: &'a str,
    depth: usize,
    operator_count: usize,
}

impl TokenScanner<'_> {
    fn read_token(&mut self, first: char) -> Result<(), ConditionError> {
        match first {
            'a'..='z' | 'A'..='Z' | '_' => self.read_word()?,
            '0'..='9' => self.read_number()?,
            '"' | '\'' => self.read_text(first, false)?,
            '(' | '[' | '{' => {
                self.depth += 1;
                if self.depth > limits::CONDITION_DEPTH {
                    return Err(ConditionError::TooDeep);
                }
                self.read_operator()?;
            }
            ')' | ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                self.skip_bytes(1);
            }
            '/' if self.rest.starts_with("//") => {
                self.skip_bytes(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            // Does not count `&&` and `||`, because the parser makes a balanced tree of any number
            // of them.
            '&' if self.rest.starts_with("&&") => self.skip_bytes(2),
            '|' if self.rest.starts_with("||") => self.skip_bytes(2),
            '=' | '!' | '<' | '>' if self.rest[1..].starts_with('=') => {
                self.skip_bytes(1);
                self.read_operator()?;
            }
            ' ' | '\t' | '\r' | '\n' | '\u{c}' | ',' | ':' => self.skip_bytes(1),
            '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '!' | '?' => self.read_operator()?,
            '=' => return Err(self.syntax_error("`=` does not compare; write `==`")),
            '&' | '|' => {
                return Err(self.syntax_error(&format!(
                    "`{first}` is not an operator; write `{first}{first}`"
                )));
            }
            other => return Err(self.syntax_error(&format!("`{other}` is not allowed here"))),
        }
        Ok(())
    }

    fn skip_bytes(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn read_operator(&mut self) -> Result<(), ConditionError> {
        self.skip_bytes(1);
        self.count_operator()
    }

    fn count_operator(&mut self) -> Result<(), ConditionError> {
        self.operator_count += 1;
        if self.operator_count > limits::CONDITION_OPERATORS {
            return Err(ConditionError::TooManyOperators);
        }
        Ok(())
    }

    fn read_number(&mut self) -> Result<(), ConditionError> {
        self.rest = self.rest.trim_start_matches(is_word_char);
        if self.rest.starts_with(['"', '\'']) {
            return Err(self.syntax_error("a number and a string need an operator between them"));
        }
        Ok(())
    }

    /// Reads a name, or the prefix of a string: `r"…"`, `b"…"`, `br"…"`.
    fn read_word(&mut self) -> Result<(), ConditionError> {
        let end = self.rest.find(|char| !is_word_char(char)).unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at(end);
        let quote = after.chars().next().filter(|char| matches!(char, '"' | '\''));
        self.rest = after;
        match (word.to_ascii_lowercase().as_str(), quote) {
            ("r", Some(quote)) => self.read_text(quote, true),
            ("b" | "br" | "rb", Some(_)) => {
                Err(ConditionError::Unsupported { feature: "bytes".to_owned() })
            }
            ("in", _) => self.count_operator(),
            _ => Ok(()),
        }
    }

    fn read_text(&mut self, quote: char, is_raw: bool) -> Result<(), ConditionError> {
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let long = self.rest.starts_with(&triple);
        let close = if long { &triple[..] } else { &triple[..1] };
        self.skip_bytes(close.len());
        while !self.rest.starts_with(close) {
            match self.rest.chars().next() {
                None => return Err(self.syntax_error("a string is not closed")),
                Some('\n' | '\r') if !long => {
                    return Err(self.syntax_error("a string is not closed"));
                }
                Some('\\') if !is_raw => {
                    let length = escape_length(&self.rest[1..]);
                    let length =
                        length.ok_or_else(|| self.syntax_error("`\\` begins no known escape"))?;
                    self.skip_bytes(1 + length);
                }
                Some(other) => self.skip_bytes(other.len_utf8()),
            }
        }
        self.skip_bytes(close.len());
        Ok(())
    }

    fn syntax_error(&self, reason: &str) -> ConditionError {
        let (line, column) = self.position();
        ConditionError::Syntax { line, column, reason: reason.to_owned() }
    }

    fn position(&self) -> (usize, usize) {
        let before = &self.source[..self.source.len() - self.rest.len()];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

fn is_word_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns the length of the escape sequence at the start of `text`, without its backslash.
fn escape_length(text: &str) -> Option<usize> {
    let digits = |from: usize, count: usize, radix: u32| {
        let found = text.get(from..from + count)?;
        found.chars().all(|char| char.is_digit(radix)).then_some(from + count)
    };
    match text.chars().next()? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(1),
        'x' | 'X' => digits(1, 2, 16),
        'u' => digits(1, 4, 16),
        'U' => digits(1, 8, 16),
        '0'..='3' => digits(0, 3, 8),
        _ => None,
    }
}
