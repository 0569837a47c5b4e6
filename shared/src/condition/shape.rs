//! What a condition looks like from outside, told before the parser recurses into it.
//!
//! The parser keeps its own limit on brackets, but none on chains such as `a + b + c`, which nest
//! as deep in its tree. So the tokens are counted first, by the very rules of CEL's grammar: what
//! this module takes for a string, the parser takes for one too, and nothing can hide in it.

use super::ConditionError;
use crate::limits;

/// Checks that the parser can read `source` with little stack.
pub(super) fn check(source: &str) -> Result<(), ConditionError> {
    if source.len() > limits::CONDITION_BYTES {
        return Err(ConditionError::TooLong { bytes: source.len() });
    }
    let mut scan = Scan { source, rest: source, depth: 0, operators: 0 };
    while let Some(first) = scan.rest.chars().next() {
        scan.token(first)?;
    }
    Ok(())
}

struct Scan<'a> {
    source: &'a str,
    rest: &'a str,
    depth: usize,
    operators: usize,
}

impl Scan<'_> {
    fn token(&mut self, first: char) -> Result<(), ConditionError> {
        match first {
            'a'..='z' | 'A'..='Z' | '_' => self.word()?,
            '0'..='9' => self.number()?,
            '"' | '\'' => self.text(first, false)?,
            '(' | '[' | '{' => {
                self.depth += 1;
                if self.depth > limits::CONDITION_DEPTH {
                    return Err(ConditionError::TooDeep);
                }
                self.operator()?;
            }
            ')' | ']' | '}' => {
                self.depth = self.depth.saturating_sub(1);
                self.skip(1);
            }
            '/' if self.rest.starts_with("//") => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            }
            // The parser makes a balanced tree of these, however many there are.
            '&' if self.rest.starts_with("&&") => self.skip(2),
            '|' if self.rest.starts_with("||") => self.skip(2),
            '=' | '!' | '<' | '>' if self.rest[1..].starts_with('=') => {
                self.skip(1);
                self.operator()?;
            }
            ' ' | '\t' | '\r' | '\n' | '\u{c}' | ',' | ':' => self.skip(1),
            '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '!' | '?' => self.operator()?,
            '=' => return Err(self.syntax("`=` does not compare; write `==`")),
            '&' | '|' => {
                return Err(
                    self.syntax(&format!("`{first}` is no operator; write `{first}{first}`"))
                );
            }
            other => return Err(self.syntax(&format!("`{other}` cannot stand here"))),
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn operator(&mut self) -> Result<(), ConditionError> {
        self.skip(1);
        self.count()
    }

    fn count(&mut self) -> Result<(), ConditionError> {
        self.operators += 1;
        if self.operators > limits::CONDITION_OPERATORS {
            return Err(ConditionError::TooManyOperators);
        }
        Ok(())
    }

    /// Reads a number and whatever letters cling to it.
    fn number(&mut self) -> Result<(), ConditionError> {
        self.rest = self.rest.trim_start_matches(is_word_char);
        if self.rest.starts_with(['"', '\'']) {
            return Err(self.syntax("a number and a string need an operator between them"));
        }
        Ok(())
    }

    /// Reads a name, or the prefix of a string: `r"…"`, `b"…"`, `br"…"`.
    fn word(&mut self) -> Result<(), ConditionError> {
        let end = self.rest.find(|it| !is_word_char(it)).unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at(end);
        let quote = after.chars().next().filter(|it| matches!(it, '"' | '\''));
        self.rest = after;
        match (word.to_ascii_lowercase().as_str(), quote) {
            ("r", Some(quote)) => self.text(quote, true),
            ("b" | "br" | "rb", Some(_)) => {
                Err(ConditionError::Unsupported { what: "bytes".to_owned() })
            }
            ("in", _) => self.count(),
            _ => Ok(()),
        }
    }

    /// Reads a string from its opening quote to its end.
    fn text(&mut self, quote: char, raw: bool) -> Result<(), ConditionError> {
        let triple: String = std::iter::repeat_n(quote, 3).collect();
        let long = self.rest.starts_with(&triple);
        let close = if long { &triple[..] } else { &triple[..1] };
        self.skip(close.len());
        while !self.rest.starts_with(close) {
            match self.rest.chars().next() {
                None => return Err(self.syntax("a string is not closed")),
                Some('\n' | '\r') if !long => return Err(self.syntax("a string is not closed")),
                Some('\\') if !raw => {
                    let length = escape(&self.rest[1..]);
                    let length =
                        length.ok_or_else(|| self.syntax("`\\` begins no known escape"))?;
                    self.skip(1 + length);
                }
                Some(other) => self.skip(other.len_utf8()),
            }
        }
        self.skip(close.len());
        Ok(())
    }

    fn syntax(&self, why: &str) -> ConditionError {
        let before = &self.source[..self.source.len() - self.rest.len()];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ConditionError::Syntax { line, column, why: why.to_owned() }
    }
}

fn is_word_char(it: char) -> bool {
    it.is_ascii_alphanumeric() || it == '_'
}

/// Returns how long the escape is that `text`, what follows a backslash, begins with.
fn escape(text: &str) -> Option<usize> {
    let digits = |from: usize, count: usize, radix: u32| {
        let found = text.get(from..from + count)?;
        found.chars().all(|it| it.is_digit(radix)).then_some(from + count)
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
