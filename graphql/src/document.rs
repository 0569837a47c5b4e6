//! Limits on the text of an operation, and on its error messages. The parser recurses for each
//! bracket, and its messages quote the operation.

use std::fmt;

use async_graphql::ServerError;

const MAX_NESTING: usize = 128;

/// Maximum number of tokens: words, numbers, strings and signs. The introspection query of
/// `GraphiQL` has 400.
const MAX_TOKENS: usize = 30_000;

/// Maximum length of a name. It is limited because the executor compares an unknown name with all
/// known names.
const MAX_NAME_BYTES: usize = 128;

const MAX_ERRORS: usize = 20;

const MAX_MESSAGE_BYTES: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentTooLarge {
    Nesting,
    Tokens,
    Name,
}

impl fmt::Display for DocumentTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nesting => write!(
                f,
                "the document nests deeper than {MAX_NESTING} brackets: give deep values as variables"
            ),
            Self::Tokens => write!(
                f,
                "the document has more than {MAX_TOKENS} words and signs: give values as \
                 variables, and request less in one operation"
            ),
            Self::Name => {
                write!(
                    f,
                    "a name in the document has more than {MAX_NAME_BYTES} letters: shorten it"
                )
            }
        }
    }
}

/// Rejects a text that is expensive to parse. A string counts as one token, and a comment as none.
pub(crate) fn check_size(text: &str) -> Result<(), DocumentTooLarge> {
    let (mut depth, mut tokens) = (0_usize, 0_usize);
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match first {
            b' ' | b'\t' | b'\n' | b'\r' | b',' => {
                rest = tail;
                continue;
            }
            b'#' => {
                rest = skip_line(tail);
                continue;
            }
            b'"' if tail.starts_with(b"\"\"") => skip_block_string(&tail[2..]),
            b'"' => skip_string(tail),
            _ if is_in_name(*first) => {
                let end = tail.iter().position(|byte| !is_in_name(*byte)).unwrap_or(tail.len());
                if end >= MAX_NAME_BYTES {
                    return Err(DocumentTooLarge::Name);
                }
                &tail[end..]
            }
            _ => tail,
        };
        match first {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens += 1;
        if depth > MAX_NESTING {
            return Err(DocumentTooLarge::Nesting);
        }
        if tokens > MAX_TOKENS {
            return Err(DocumentTooLarge::Tokens);
        }
    }
    Ok(())
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn skip_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    end.map_or(&[], |end| &bytes[end + 1..])
}

/// Skips a string. An unclosed string ends at the end of the line, as in the parser.
fn skip_string(mut bytes: &[u8]) -> &[u8] {
    loop {
        match bytes {
            [] => return bytes,
            [b'"' | b'\n' | b'\r', rest @ ..] => return rest,
            [b'\\', _, rest @ ..] | [_, rest @ ..] => bytes = rest,
        }
    }
}

fn skip_block_string(mut bytes: &[u8]) -> &[u8] {
    loop {
        match bytes {
            [] => return bytes,
            [b'"', b'"', b'"', rest @ ..] => return rest,
            [b'\\', b'"', b'"', b'"', rest @ ..] | [_, rest @ ..] => bytes = rest,
        }
    }
}

/// Removes all but the first errors of an operation that cannot run, and shortens the messages of
/// these errors.
pub(crate) fn shorten_errors(mut errors: Vec<ServerError>) -> Vec<ServerError> {
    let all = errors.len();
    errors.truncate(MAX_ERRORS);
    for error in &mut errors {
        shorten_message(error);
    }
    if all > MAX_ERRORS {
        let more = format!("and {} more errors: correct these first", all - MAX_ERRORS);
        errors.push(ServerError::new(more, None));
    }
    errors
}

pub(crate) fn shorten_message(error: &mut ServerError) {
    if error.message.len() <= MAX_MESSAGE_BYTES {
        return;
    }
    // The parser's message quotes a whole line of the document. Only the last line of the message
    // is kept, because it names the expected token.
    let last = error.message.rsplit('\n').next().map(|line| line.trim_start_matches([' ', '=']));
    let position = error.locations.first();
    if let (Some(expected), Some(position), true) =
        (last, position, error.message.starts_with(" -->"))
    {
        error.message = format!("line {}, column {}: {expected}", position.line, position.column);
    }
    if error.message.len() > MAX_MESSAGE_BYTES {
        error.message.truncate(error.message.floor_char_boundary(MAX_MESSAGE_BYTES));
        error.message.push('…');
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::{Pos, parser::parse_query};

    use super::*;

    #[test]
    fn brackets_count_outside_of_strings_and_comments() {
        let deep = "[".repeat(MAX_NESTING);
        for (text, expected) in [
            (format!("{{ a(b: {deep}1) }}"), Err(DocumentTooLarge::Nesting)),
            (format!("{{ a(b: {}1) }}", "{a:".repeat(300_000)), Err(DocumentTooLarge::Nesting)),
            (
                format!("{{ a(b: \"\"\" \\\"\"\" \"\"\", c: {deep}1) }}"),
                Err(DocumentTooLarge::Nesting),
            ),
            (format!("{{ a(b: \"\\\"{deep}\") }}"), Ok(())),
            (format!("{{ a(b: \"\"\" \\\"\"\" {deep} \" \"\"\") }}"), Ok(())),
            (format!("# {deep}\n{{ a }}"), Ok(())),
            (format!("{{ a }} # {deep}"), Ok(())),
            ("]]]]{ a }".to_owned(), Ok(())),
        ] {
            let start: String = text.chars().take(40).collect();
            assert_eq!(check_size(&text), expected, "{start}");
        }
    }

    #[test]
    fn words_signs_and_strings_count_as_tokens() {
        assert_eq!(
            check_size(&format!("{{ {} }}", "a ".repeat(MAX_TOKENS))),
            Err(DocumentTooLarge::Tokens)
        );
        assert_eq!(check_size(&format!("{{ {} }}", "a ".repeat(MAX_TOKENS - 2))), Ok(()));
        assert_eq!(check_size(&format!("{{ a(b: \"{}\") }}", "x ".repeat(100_000))), Ok(()));
        assert_eq!(
            check_size(&format!("{{ {} }}", "x".repeat(MAX_NAME_BYTES + 1))),
            Err(DocumentTooLarge::Name)
        );
        assert_eq!(check_size(&format!("{{ {} }}", "x".repeat(MAX_NAME_BYTES))), Ok(()));
    }

    #[test]
    fn errors_are_limited_in_number_and_length() {
        let error = |message: String| ServerError::new(message, Some(Pos { line: 1, column: 2 }));
        let errors = (0..1_000).map(|n| error(format!("{n}{}", "é".repeat(1_000)))).collect();
        let shortened = shorten_errors(errors);
        assert_eq!(shortened.len(), MAX_ERRORS + 1);
        assert!(shortened.iter().all(|error| error.message.len() <= MAX_MESSAGE_BYTES + "…".len()));
        assert_eq!(shortened[MAX_ERRORS].message, "and 980 more errors: correct these first");
        let few = shorten_errors(vec![error("no".to_owned())]);
        assert_eq!((few.len(), few[0].message.as_str()), (1, "no"));
    }

    #[test]
    fn an_error_in_a_long_line_has_its_place_without_the_line() {
        let query = format!("{{ a(b: \"{}\") ", "x".repeat(100_000));
        let error = ServerError::from(parse_query(query).unwrap_err());
        let message = shorten_errors(vec![error]).remove(0).message;
        assert!(message.starts_with("line 1, column ") && message.len() < 200, "{message}");
        assert!(message.contains("expected"), "{message}");
    }
}
