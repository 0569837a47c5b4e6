//! What a model says, at once or in pieces.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, StreamExt};
use genai::chat::{ChatResponse, ChatStreamEvent, StopReason, ToolCall, Usage};

use super::{Hearer, Tokens};

/// An answer in the language of its provider.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Its words.
    pub(super) text: String,
    pub(super) calls: Vec<ToolCall>,
    /// Why it stopped, if the provider says so.
    pub(super) stop: Option<StopReason>,
    pub(super) tokens: Tokens,
    /// Whether it came to its end.
    pub(super) is_whole: bool,
}

impl From<ChatResponse> for Said {
    fn from(response: ChatResponse) -> Self {
        let (text, tokens) = (response.texts().concat(), tokens(&response.usage));
        let stop = response.stop_reason.clone();
        Self { text, calls: response.into_tool_calls(), stop, tokens, is_whole: true }
    }
}

/// Hears an answer in pieces, and lets somebody hear its words. `begun` says whether any came.
pub(super) async fn heard(
    mut pieces: impl Stream<Item = genai::Result<ChatStreamEvent>> + Unpin,
    hearer: &dyn Hearer,
    begun: &AtomicBool,
) -> genai::Result<Said> {
    hearer.begin().await;
    let mut said = Said::default();
    while let Some(piece) = pieces.next().await {
        match piece.map_err(cause)? {
            ChatStreamEvent::Chunk(words) => {
                hearer.hear(&words.content).await;
                said.text.push_str(&words.content);
                begun.store(true, Ordering::Relaxed);
            }
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => (),
            ChatStreamEvent::ReasoningChunk(_)
            | ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::ToolCallChunk(_) => begun.store(true, Ordering::Relaxed),
            ChatStreamEvent::End(end) => {
                said.is_whole = true;
                said.tokens = end.captured_usage.as_ref().map(tokens).unwrap_or_default();
                said.stop.clone_from(&end.captured_stop_reason);
                said.calls = end.captured_into_tool_calls().unwrap_or_default();
            }
        }
    }
    Ok(said)
}

/// Returns the error inside one of a stream, which hides it.
fn cause(err: genai::Error) -> genai::Error {
    match err {
        genai::Error::WebStream { model_iden, cause, error } => match error.downcast() {
            Ok(inner) => *inner,
            Err(error) => genai::Error::WebStream { model_iden, cause, error },
        },
        err => err,
    }
}

fn tokens(usage: &Usage) -> Tokens {
    let count = |it: Option<i32>| it.and_then(|it| u64::try_from(it).ok()).unwrap_or_default();
    Tokens { input: count(usage.prompt_tokens), output: count(usage.completion_tokens) }
}
