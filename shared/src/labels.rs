//! Labels: pairs of a key and a value that a caller attaches to a request or an execution, so that
//! people can find and count executions.

use std::collections::BTreeMap;

/// Labels of a request or an execution, by key. They never change.
pub type Labels = BTreeMap<String, String>;

/// The key of the label with the name of the token to which a request or an execution belongs. Only
/// Faber writes this label, because [`check_key`] refuses the key.
pub const TOKEN: &str = "@token";
/// The key of the label with the id of the execution that an execution forks, so that a store finds
/// the forks of an execution by its index of labels.
///
/// Only [heads](crate::store::ExecutionHead) have this label. It follows from the log, so the
/// options of an execution do not contain it, and its children and retries do not inherit it.
pub const FORKED_FROM: &str = "@forkedFrom";
/// Maximum number of labels.
pub const MAX_LABELS: usize = 16;
/// Maximum length of a key.
pub const MAX_KEY_LEN: usize = 63;
/// Maximum number of characters of a value.
pub const MAX_VALUE_CHARS: usize = 256;

/// Returns the name of the token to which a request or an execution with these labels belongs.
pub fn find_token(labels: &Labels) -> Option<&str> {
    labels.get(TOKEN).map(String::as_str)
}

/// Replaces the token. Its name fits into a label, because an actor's name has at most
/// 128 characters.
pub fn set_token(labels: &mut Labels, token: Option<&str>) {
    match token {
        Some(token) => drop(labels.insert(TOKEN.to_owned(), token.to_owned())),
        None => drop(labels.remove(TOKEN)),
    }
}

/// Returns the labels without the token, as callers see them.
pub fn without_token(labels: &Labels) -> Labels {
    let mut shown = labels.clone();
    shown.remove(TOKEN);
    shown
}

/// Checks labels that can contain the token, as stored labels can.
///
/// # Errors
///
/// As [`check`], for the other labels.
pub fn check_with_token(labels: &Labels) -> Result<(), String> {
    if labels.contains_key(TOKEN) { check(&without_token(labels)) } else { check(labels) }
}

/// Checks the number of labels, their keys and the lengths of their values.
///
/// # Errors
///
/// Describes the first problem.
pub fn check(labels: &Labels) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!("there are {} labels; the limit is {MAX_LABELS}", labels.len()));
    }
    for (key, value) in labels {
        check_key(key)?;
        let chars = value.chars().count();
        if chars > MAX_VALUE_CHARS {
            return Err(format!(
                "the label `{key}` has {chars} characters; the limit is {MAX_VALUE_CHARS}"
            ));
        }
    }
    Ok(())
}

/// Adds the labels of a request to the labels of an execution of its plan, which keeps its own
/// values. The token is not inherited, because an execution belongs to the token that started it.
///
/// # Errors
///
/// If the execution would have more than [`MAX_LABELS`] labels.
pub fn inherit(own: &mut Labels, of_request: &Labels) -> Result<(), String> {
    for (key, value) in of_request.iter().filter(|(key, _)| *key != TOKEN) {
        own.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let count = own.keys().filter(|key| *key != TOKEN).count();
    if count > MAX_LABELS {
        return Err(format!(
            "with the labels of its request, the execution has {count} labels; the limit is \
             {MAX_LABELS}"
        ));
    }
    Ok(())
}

/// Checks the key of a label: 1 to 63 of the characters `a-z 0-9 . _ / -`.
///
/// # Errors
///
/// Describes what is wrong with the key.
pub fn check_key(key: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'.' | b'_' | b'/' | b'-')
    };
    if (1..=MAX_KEY_LEN).contains(&key.len()) && key.bytes().all(is_allowed) {
        return Ok(());
    }
    let key: String = key.chars().take(MAX_KEY_LEN + 1).collect();
    Err(format!(
        "`{key}` cannot be the key of a label: use 1 to {MAX_KEY_LEN} of the characters a-z, 0-9, `.`, \
         `_`, `/` and `-`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_their_number_have_limits() {
        let one = |key: &str, value: String| check(&Labels::from([(key.to_owned(), value)]));
        assert_eq!(one("team/a.b_c-1", "x".repeat(256)), Ok(()));
        assert_eq!(one(&"k".repeat(63), String::new()), Ok(()));
        for key in ["", "Team", "a b", "ä", &"k".repeat(64)] {
            let reason = one(key, String::new()).unwrap_err();
            assert!(reason.contains("cannot be the key of a label"), "{reason}");
        }
        assert!(one("a", "ä".repeat(257)).unwrap_err().contains("257 characters"));
        let many: Labels = (0..17).map(|n| (format!("k{n}"), String::new())).collect();
        assert_eq!(check(&many), Err("there are 17 labels; the limit is 16".to_owned()));
    }

    #[test]
    fn an_execution_inherits_the_labels_that_it_does_not_set() {
        let labels = |keys: std::ops::Range<usize>, value: &str| -> Labels {
            keys.map(|n| (format!("k{n:02}"), value.to_owned())).collect()
        };
        let mut own = labels(0..9, "own");
        assert_eq!(inherit(&mut own, &labels(5..16, "request")), Ok(()));
        assert_eq!(own.len(), MAX_LABELS);
        assert_eq!((own["k08"].as_str(), own["k09"].as_str()), ("own", "request"));
        let refused = inherit(&mut own, &labels(16..17, "request")).unwrap_err();
        assert!(refused.contains("17 labels; the limit is 16"), "{refused}");
    }

    #[test]
    fn callers_cannot_write_the_token_and_it_counts_toward_no_limit() {
        let mut labels: Labels = (0..16).map(|n| (format!("k{n}"), String::new())).collect();
        let written = labels.clone();
        set_token(&mut labels, Some("ci"));
        assert_eq!(find_token(&labels), Some("ci"));
        assert_eq!(check_with_token(&labels), Ok(()));
        assert!(check(&labels).is_err() && check_key(TOKEN).is_err());
        let mut own = Labels::new();
        assert_eq!(inherit(&mut own, &labels), Ok(()));
        assert_eq!((&own, without_token(&labels)), (&written, written.clone()));
        set_token(&mut own, Some("ops"));
        assert_eq!(inherit(&mut own, &labels), Ok(()));
        assert_eq!(find_token(&own), Some("ops"));
        set_token(&mut own, None);
        assert_eq!(own, written);
    }
}
