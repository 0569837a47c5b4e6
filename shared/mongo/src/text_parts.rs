use futures::future::BoxFuture;
use shared::store::StoreError;

/// Maximum bytes of one part of a long text. MongoDB rejects documents above 16 MB.
pub(super) const MAX_PART_BYTES: usize = 8 << 20;

/// Maximum number of reads of a divided document until two reads agree. Each change between two
/// reads needs a run of `faber rekey` of its own.
const MAX_READS: usize = 4;

pub(super) fn split_text(text: &str) -> Vec<&str> {
    let mut parts = Vec::with_capacity(1);
    let mut rest = text;
    while rest.len() > MAX_PART_BYTES {
        let (part, remainder) = rest.split_at(rest.floor_char_boundary(MAX_PART_BYTES));
        parts.push(part);
        rest = remainder;
    }
    parts.push(rest);
    parts
}

/// Splits a text between characters into parts of about the same length.
pub(super) fn split_evenly(text: &str, count: usize) -> Vec<&str> {
    let len = text.len().div_ceil(count.max(1));
    let mut parts = Vec::with_capacity(count);
    let mut rest = text;
    for _ in 1..count {
        // The next character boundary keeps the last part from becoming longer than the others.
        let (part, remainder) = rest.split_at(rest.ceil_char_boundary(len.min(rest.len())));
        parts.push(part);
        rest = remainder;
    }
    parts.push(rest);
    parts
}

/// Reads a divided document until two reads give the same.
pub(super) async fn read_stable<'a, T: PartialEq>(
    read: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut last = read().await?;
    for _ in 0..MAX_READS {
        let again = read().await?;
        if again == last {
            return Ok(last);
        }
        last = again;
    }
    Err(StoreError::Unavailable("a document changed at each read: try again".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_small_and_joined_give_the_text() {
        for text in [String::new(), "a".to_owned(), format!("a{}", "ö".repeat(MAX_PART_BYTES))] {
            let parts = split_text(&text);
            assert!(parts.iter().all(|part| part.len() <= MAX_PART_BYTES) && !parts.is_empty());
            assert!(parts.concat() == text);
        }
    }

    #[test]
    fn a_text_is_split_into_the_wanted_number_of_parts() {
        for (text, count, lengths) in [
            ("", 2, &[0, 0][..]),
            ("abcde", 1, &[5]),
            ("abcde", 2, &[3, 2]),
            ("öööö", 3, &[4, 4, 0]),
            ("a", 3, &[1, 0, 0]),
        ] {
            let parts = split_evenly(text, count);
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), lengths, "{text}");
            assert_eq!(parts.concat(), text);
        }
    }
}
