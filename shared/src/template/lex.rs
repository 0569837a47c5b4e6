//! Finds the braces in a string, in a time that grows with its length and not faster.

/// A piece of a string, before anybody asks what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Text that stays.
    Text(&'a str),
    /// A pair of braces.
    Braces {
        /// With the braces.
        whole: &'a str,
        /// Without them.
        inner: &'a str,
    },
}

/// Cuts `text` into what stays and what is between braces.
///
/// `{{{{` is a literal `{{`; a `{{` that nothing closes is literal as well.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    Lexer::new(text).tokens()
}

/// Where a look for the braces that close is: what a byte means depends on it and on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Outside brackets, where quotes mean nothing.
    Plain,
    /// In brackets, where a quote begins a key.
    Brackets,
    /// In a key that began with this quote.
    Quoted(u8),
}

struct Lexer<'a> {
    text: &'a str,
    /// For each place the states in which a look from there ends in a quote that nothing closes,
    /// once there was such a look: looks that come to the same place in the same state end alike.
    doomed: Vec<u8>,
    /// How many bytes were looked at, to show that nothing is looked at again and again.
    #[cfg(test)]
    looked: usize,
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

    /// Returns how many bytes are behind the next one in `rest`, with it, and the state there.
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
            doomed: Vec::new(),
            #[cfg(test)]
            looked: 0,
        }
    }

    fn tokens(&mut self) -> Vec<Token<'a>> {
        let (mut tokens, text, mut at) = (Vec::new(), self.text, 0);
        while let Some(open) = text[at..].find("{{").map(|it| at + it) {
            if open > at {
                tokens.push(Token::Text(&text[at..open]));
            }
            if text[open..].starts_with("{{{{") {
                tokens.push(Token::Text("{{"));
                at = open + 4;
                continue;
            }
            let Some(end) = self.closing(open + 2) else {
                tokens.push(Token::Text(&text[open..]));
                return tokens;
            };
            tokens.push(Token::Braces { whole: &text[open..end], inner: &text[open + 2..end - 2] });
            at = end;
        }
        if at < text.len() {
            tokens.push(Token::Text(&text[at..]));
        }
        tokens
    }

    /// Returns where the braces end whose inside begins at `from`. Braces inside a quoted key do
    /// not close; but a quote that never ends quotes nothing.
    fn closing(&mut self, from: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let (mut at, mut state) = (from, State::Plain);
        while at < bytes.len() && !self.is_doomed(at, state) {
            self.count();
            let is_quoted = matches!(state, State::Quoted(_));
            if !is_quoted && bytes[at..].starts_with(b"}}") {
                return Some(at + 2);
            }
            let (len, next) = state.next(&bytes[at..]);
            (at, state) = (at + len, next);
        }
        if at >= bytes.len() && !matches!(state, State::Quoted(_)) {
            return None;
        }
        self.doom(from, at);
        self.text[from..].find("}}").map(|it| from + it + 2)
    }

    fn is_doomed(&self, at: usize, state: State) -> bool {
        self.doomed.get(at).is_some_and(|it| it & state.bit() != 0)
    }

    /// Notes the way of a look that ended in a quote that nothing closes.
    fn doom(&mut self, from: usize, to: usize) {
        let bytes = self.text.as_bytes();
        self.doomed.resize(bytes.len(), 0);
        let (mut at, mut state) = (from, State::Plain);
        while at < to.min(bytes.len()) {
            self.count();
            self.doomed[at] |= state.bit();
            let (len, next) = state.next(&bytes[at..]);
            (at, state) = (at + len, next);
        }
    }

    #[cfg(test)]
    fn count(&mut self) {
        self.looked += 1;
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests count")]
    fn count(&self) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Finds the end as a person would say it, however long that takes.
    fn plainly(text: &str) -> Option<usize> {
        let mut quote = None;
        let mut bytes = text.bytes().enumerate().skip(2).peekable();
        let mut in_brackets = false;
        while let Some((at, byte)) = bytes.next() {
            match (quote, byte) {
                (Some(_), b'\\') => drop(bytes.next()),
                (Some(open), _) if byte == open => quote = None,
                (None, b'"' | b'\'') if in_brackets => quote = Some(byte),
                (None, b'[' | b']') => in_brackets = byte == b'[',
                (None, b'}') if bytes.peek().is_some_and(|(_, next)| *next == b'}') => {
                    return Some(at + 2);
                }
                _ => (),
            }
        }
        quote.and_then(|_| text.find("}}")).map(|at| at + 2)
    }

    fn looked(text: &str) -> usize {
        let mut lexer = Lexer::new(text);
        lexer.tokens();
        lexer.looked
    }

    #[test]
    fn nothing_is_looked_at_again_and_again() {
        for piece in [r"{{[\'}}", "{{['}}'", r#"{{["\'}}"#, r#"{{[\"}}{{[\'}}"#, "{{[", "{{a}}"] {
            for tail in ["", "'", "\"", "}}"] {
                let text = piece.repeat(2_000) + tail;
                let n = looked(&text);
                assert!(n <= 8 * text.len(), "{piece}…{tail}: {n} for {} bytes", text.len());
            }
        }
    }

    proptest! {
        #[test]
        fn every_end_is_where_a_person_finds_it(text in r#"([{}]{2}|[\[\]'"\\a{}ä]){0,40}"#) {
            let (mut rest, mut lexer) = (text.as_str(), Lexer::new(&text));
            while let Some(open) = rest.find("{{") {
                let begin = text.len() - rest.len() + open;
                let end = lexer.closing(begin + 2);
                prop_assert_eq!(end, plainly(&text[begin..]).map(|it| begin + it));
                rest = &text[begin + 2..];
            }
        }
    }
}
