//! The form of encrypted values, which every crate must recognize: `$encrypted:KEY:DATA`. A sealed
//! value is a text, so it fits into a field for a text and into a field for any JSON.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;
use serde_json::{Value, json};

pub const PREFIX: &str = "$encrypted:";
/// The only field of the value that readers see instead of a value whose key is missing.
pub const LOCKED_FIELD: &str = "$encrypted";
/// Maximum bytes of a key id.
pub const KEY_ID_BYTES: usize = 64;
/// Minimum length of the data of a sealed value: a nonce of 24 bytes and a tag of 16 bytes, in
/// base64.
const MIN_DATA_LETTERS: usize = 54;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedText<'a> {
    pub key: &'a str,
    /// Base64 with the alphabet for URLs and without padding.
    pub data: &'a str,
}

impl<'a> SealedText<'a> {
    /// Returns `None` for any other text.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (key, data) = text.strip_prefix(PREFIX)?.split_once(':')?;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_data = data.len() >= MIN_DATA_LETTERS && data.bytes().all(is_letter);
        (is_key_id(key) && is_data).then_some(Self { key, data })
    }
}

/// Returns `true` for 1 to 64 characters that are ASCII letters, digits, `.`, `_` or `-`.
pub fn is_key_id(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=KEY_ID_BYTES).contains(&text.len()) && text.bytes().all(is_letter)
}

pub fn is_sealed(text: &str) -> bool {
    SealedText::parse(text).is_some()
}

/// Returns the value that a reader without the key sees: `{"$encrypted": "KEY"}`.
pub fn locked_value(key: &str) -> Value {
    json!({ LOCKED_FIELD: key })
}

tokio::task_local! {
    static SHOWS_LOCKED: ();
}

/// Returns `true` if reads of this task replace values whose keys are missing by
/// [`locked_value`]. Otherwise such a read fails, so that no work continues with wrong values.
pub fn shows_locked_values() -> bool {
    SHOWS_LOCKED.try_with(|()| ()).is_ok()
}

/// Runs an operation that only shows values to a person.
pub async fn show_locked_values<F: Future>(operation: F) -> F::Output {
    SHOWS_LOCKED.scope((), operation).await
}

/// Returns a future for another task. Its reads show locked values if the reads of this task do.
pub fn inherit_locked_view<F: Future>(operation: F) -> impl Future<Output = F::Output> {
    let shows = shows_locked_values();
    async move { if shows { show_locked_values(operation).await } else { operation.await } }
}

/// A stream that only shows values to a person.
#[derive(Debug)]
pub struct LockedView<S>(pub S);

impl<S: Stream + Unpin> Stream for LockedView<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let stream = Pin::new(&mut self.0);
        SHOWS_LOCKED.sync_scope((), || stream.poll_next(context))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[test]
    fn only_texts_of_the_exact_form_are_sealed() {
        let data = "A".repeat(MIN_DATA_LETTERS);
        let text = format!("$encrypted:k-1.a_B:{data}");
        assert_eq!(SealedText::parse(&text), Some(SealedText { key: "k-1.a_B", data: &data }));
        for other in [
            "",
            "$encrypted:",
            "$encrypted:k1",
            &format!("$encrypted::{data}"),
            &format!("$encrypted:k1:{}", &data[1..]),
            &format!("$encrypted:k1:{data}="),
            &format!("$encrypted:k1:{data} "),
            &format!("$encrypted:k 1:{data}"),
            &format!("encrypted:k1:{data}"),
            &format!("$encrypted:{}:{data}", "k".repeat(KEY_ID_BYTES + 1)),
            r#"{"$encrypted":"k1"}"#,
        ] {
            assert!(!is_sealed(other), "{other}");
        }
    }

    #[tokio::test]
    async fn only_an_operation_for_a_person_shows_locked_values() {
        assert!(!shows_locked_values());
        assert!(show_locked_values(async { shows_locked_values() }).await);
        #[expect(clippy::async_yields_async, reason = "another task awaits the inner future")]
        let inherited =
            show_locked_values(async { inherit_locked_view(async { shows_locked_values() }) });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(inherited.await);
        assert!(tasks.join_next().await.unwrap().unwrap());
        let stream = futures::stream::iter([()]).map(|()| shows_locked_values());
        let seen: Vec<bool> = LockedView(stream).collect().await;
        assert_eq!(seen, [true]);
        assert!(!shows_locked_values());
    }
}
