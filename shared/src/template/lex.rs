//! Finds the braces in a string.

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
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        if open > 0 {
            tokens.push(Token::Text(&rest[..open]));
        }
        let from = &rest[open..];
        if let Some(after) = from.strip_prefix("{{{{") {
            tokens.push(Token::Text("{{"));
            rest = after;
            continue;
        }
        let Some(end) = closing(from) else {
            tokens.push(Token::Text(from));
            return tokens;
        };
        tokens.push(Token::Braces { whole: &from[..end], inner: &from[2..end - 2] });
        rest = &from[end..];
    }
    if !rest.is_empty() {
        tokens.push(Token::Text(rest));
    }
    tokens
}

/// Returns where the braces that open `text` end. Braces inside a quoted key do not close.
fn closing(text: &str) -> Option<usize> {
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
    // A quote that never ends quotes nothing.
    quote.and_then(|_| text.find("}}")).map(|at| at + 2)
}
