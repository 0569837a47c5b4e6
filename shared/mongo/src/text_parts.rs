//! Splits texts that are too long for one document.

/// Maximum bytes of one part of a long text. MongoDB rejects documents above 16 MB.
pub(super) const MAX_PART_BYTES: usize = 8 << 20;

/// Splits a text between characters. An empty text has one empty part.
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
}
