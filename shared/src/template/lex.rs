//! Finds the braces in a string, in linear time.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Text(&'a str),
    Braces { whole: &'a str, inner: &'a str },
}

/// Splits `text` into literal text and braces.
///
/// `{{{{` is a literal `{{`. A `{{` without a closing `}}` is literal, too.
pub(super) fn split_tokens(text: &str) -> Vec<Token<'_>> {
    Lexer::new(text).split_tokens()
}

/// The state of a search for closing braces. The meaning of a byte depends on this state only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Outside brackets, where a quote has no meaning.
    Plain,
    /// In brackets, where a quote starts a key.
    Brackets,
    /// In a key that started with this quote.
    Quoted(u8),
}

struct Lexer<'a> {
    text: &'a str,
    /// For each position, the states of searches that ended in an unclosed quote, as bits. A later
    /// search in the same state at the same position would end in the same way, so it is stopped.
    unclosed_states: Vec<u8>,
    /// The number of bytes read. A test checks that it grows linearly.
    #[cfg(test)]
    bytes_read: usize,
}

impl State {
    fn bit(self) -> u8 {
        match self {
            Self::Plain => 1,
            Self::Brackets => 2,
            Self::Quoted(b'"') => 4,
            Self::Quoted(_) => 8,
        }
    }

    /// Returns the number of bytes to advance, and the state after them.
    fn next(self, rest: &[u8]) -> (usize, Self) {
        match (self, rest[0]) {
            (Self::Quoted(_), b'\\') => (2, self),
            (Self::Quoted(open), byte) if byte == open => (1, Self::Brackets),
            (Self::Brackets, quote @ (b'"' | b'\'')) => (1, Self::Quoted(quote)),
            (Self::Plain | Self::Brackets, b'[') => (1, Self::Brackets),
            (Self::Plain | Self::Brackets, b']') => (1, Self::Plain),
            _ => (1, self),
        }
    }
}

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            unclosed_states: Vec::new(),
            #[cfg(test)]
            bytes_read: 0,
        }
    }

    fn split_tokens(&mut self) -> Vec<Token<'a>> {
        let (mut tokens, text, mut position) = (Vec::new(), self.text, 0);
        while let Some(open) = text[position..].find("{{").map(|offset| position + offset) {
            if open > position {
                tokens.push(Token::Text(&text[position..open]));
            }
            if text[open..].starts_with("{{{{") {
                tokens.push(Token::Text("{{"));
                position = open + 4;
                continue;
            }
            let Some(end) = self.find_end(open + 2) else {
                tokens.push(Token::Text(&text[open..]));
                return tokens;
            };
            tokens.push(Token::Braces { whole: &text[open..end], inner: &text[open + 2..end - 2] });
            position = end;
        }
        if position < text.len() {
            tokens.push(Token::Text(&text[position..]));
        }
        tokens
    }

    /// Finds the end of the braces whose content starts at `from`. Ignores closing braces inside a
    /// quoted key, unless the quote is never closed.
    fn find_end(&mut self, from: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let (mut position, mut state) = (from, State::Plain);
        while position < bytes.len() && !self.is_known_unclosed(position, state) {
            self.count_byte();
            let is_quoted = matches!(state, State::Quoted(_));
            if !is_quoted && bytes[position..].starts_with(b"}}") {
                return Some(position + 2);
            }
            let (len, next) = state.next(&bytes[position..]);
            (position, state) = (position + len, next);
        }
        if position >= bytes.len() && !matches!(state, State::Quoted(_)) {
            return None;
        }
        self.mark_unclosed(from, position);
        self.text[from..].find("}}").map(|offset| from + offset + 2)
    }

    fn is_known_unclosed(&self, index: usize, state: State) -> bool {
        self.unclosed_states.get(index).is_some_and(|states| states & state.bit() != 0)
    }

    fn mark_unclosed(&mut self, from: usize, to: usize) {
        let bytes = self.text.as_bytes();
        self.unclosed_states.resize(bytes.len(), 0);
        let (mut position, mut state) = (from, State::Plain);
        while position < to.min(bytes.len()) {
            self.count_byte();
            self.unclosed_states[position] |= state.bit();
            let (len, next) = state.next(&bytes[position..]);
            (position, state) = (position + len, next);
        }
    }

    #[cfg(test)]
    fn count_byte(&mut self) {
        self.bytes_read += 1;
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests count")]
    fn count_byte(&self) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches in quadratic time, as a reference for the test.
    fn find_end_plainly(text: &str) -> Option<usize> {
        let mut quote = None;
        let mut bytes = text.bytes().enumerate().skip(2).peekable();
        let mut in_brackets = false;
        while let Some((position, byte)) = bytes.next() {
            match (quote, byte) {
                (Some(_), b'\\') => drop(bytes.next()),
                (Some(open), _) if byte == open => quote = None,
                (None, b'"' | b'\'') if in_brackets => quote = Some(byte),
                (None, b'[' | b']') => in_brackets = byte == b'[',
                (None, b'}') if bytes.peek().is_some_and(|(_, next)| *next == b'}') => {
                    return Some(position + 2);
                }
                _ => (),
            }
        }
        quote.and_then(|_| text.find("}}")).map(|index| index + 2)
    }

    fn bytes_read(text: &str) -> usize {
        let mut lexer = Lexer::new(text);
        lexer.split_tokens();
        lexer.bytes_read
    }

    #[test]
    fn unclosed_braces_are_scanned_in_linear_time() {
        for piece in [r"{{[\'}}", "{{['}}'", r#"{{["\'}}"#, r#"{{[\"}}{{[\'}}"#, "{{[", "{{a}}"] {
            for tail in ["", "'", "\"", "}}"] {
                let text = piece.repeat(2_000) + tail;
                let n = bytes_read(&text);
                assert!(n <= 8 * text.len(), "{piece}…{tail}: {n} for {} bytes", text.len());
            }
        }
    }

    proptest! {
        #[test]
        fn the_lexer_finds_the_same_ends_as_a_naive_search(text in r#"([{}]{2}|[\[\]'"\\a{}ä]){0,40}"#) {
            let (mut rest, mut lexer) = (text.as_str(), Lexer::new(&text));
            while let Some(open) = rest.find("{{") {
                let begin = text.len() - rest.len() + open;
                let end = lexer.find_end(begin + 2);
                prop_assert_eq!(end, find_end_plainly(&text[begin..]).map(|offset| begin + offset));
                rest = &text[begin + 2..];
            }
        }
    }
}
