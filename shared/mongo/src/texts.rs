//! Texts of any length, in parts that documents can hold.

/// The most bytes of text in one document: MongoDB refuses documents above 16 MB.
const PART: usize = 8 << 20;

/// Cuts a text into parts, between characters. There is always one.
pub(super) fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::with_capacity(1);
    let mut rest = text;
    while rest.len() > PART {
        let (part, behind) = rest.split_at(rest.floor_char_boundary(PART));
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole() {
        for text in [String::new(), "a".to_owned(), format!("a{}", "ö".repeat(PART))] {
            let parts = parts(&text);
            assert!(parts.iter().all(|it| it.len() <= PART) && !parts.is_empty());
            assert!(parts.concat() == text);
        }
    }
}
