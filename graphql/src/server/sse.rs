//! Operations as `text/event-stream`, in the distinct connections mode of the GraphQL over
//! server-sent events protocol.

use std::{sync::Arc, time::Duration};

use async_graphql::Response;
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response as HttpResponse},
};
use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;

use super::{
    app::{App, Caller},
    operation::{Operation, OperationResult},
    reply,
    traced_request::TracedOperation,
};

const COMPLETE_EVENT: &str = "event: complete\ndata:\n\n";

/// A comment that keeps a quiet connection open. If the client has closed the connection, writing
/// the comment fails.
const KEEP_ALIVE_COMMENT: &str = ":\n\n";

/// Streams the responses of `operation`. At shutdown, and when the access of the caller ends, the
/// stream ends without `complete`, so that the client reconnects.
pub(super) async fn stream_operation(
    app: &Arc<App>,
    operation: Operation,
    caller: &Arc<Caller>,
) -> HttpResponse {
    let traced = TracedOperation::start_in_request(operation.kind());
    let answers = traced.trace_answers(operation.execute_as_stream(app, caller));
    let events = format_events(answers);
    let lively = add_keep_alive(events, app.options.keep_alive);
    let stopping = app.stopping.clone();
    let caller = Arc::clone(caller);
    let end = async move {
        tokio::select! {
            () = stopping.cancelled() => (),
            () = caller.wait_until_access_ends() => (),
        }
    };
    let lively = lively.take_until(end).boxed();
    let (sender, mut receiver) = mpsc::channel(1);
    app.task_sender.send_subscription(Box::pin(send_events(lively, sender))).await;
    to_event_stream(stream::poll_fn(move |context| receiver.poll_recv(context)).boxed())
}

async fn send_events(mut events: BoxStream<'static, String>, sender: mpsc::Sender<String>) {
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = sender.closed() => None,
        };
        let Some(event) = event else { return };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

pub(super) fn stream_error(response: Response) -> HttpResponse {
    to_event_stream(format_events(stream::once(async { Ok(response) }).boxed()).boxed())
}

fn to_event_stream(events: BoxStream<'static, String>) -> HttpResponse {
    let chunks = events.map(|event| Ok::<_, std::convert::Infallible>(Bytes::from(event)));
    let mut answer = Body::from_stream(chunks).into_response();
    let headers = answer.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Tells proxies not to buffer the response, because otherwise events would arrive late.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

fn format_events(
    outcomes: BoxStream<'static, OperationResult>,
) -> impl Stream<Item = String> + Send + 'static {
    let next = outcomes.map(|outcome| {
        let response = outcome
            .unwrap_or_else(|refusal| Response::from_errors(vec![refusal.into_server_error()]));
        format!("event: next\ndata: {}\n\n", reply::to_json(response))
    });
    next.chain(stream::once(async { COMPLETE_EVENT.to_owned() }))
}

/// Sends a comment first, so that the client gets the headers immediately, and then a comment at
/// each quiet interval.
fn add_keep_alive(
    events: impl Stream<Item = String> + Send + 'static,
    every: Duration,
) -> impl Stream<Item = String> + Send + 'static {
    let rest = stream::unfold(Box::pin(events), move |mut events| async move {
        match tokio::time::timeout(every, events.next()).await {
            Ok(event) => event.map(|event| (event, events)),
            Err(_) => Some((KEEP_ALIVE_COMMENT.to_owned(), events)),
        }
    });
    stream::once(async { KEEP_ALIVE_COMMENT.to_owned() }).chain(rest)
}

#[cfg(test)]
mod tests {
    use async_graphql::value;
    use expect_test::expect;

    use super::{super::refusal::Refusal, *};

    #[tokio::test]
    async fn responses_become_server_sent_events() {
        let outcomes = [Ok(Response::new(value!({ "tick": 0 }))), Err(Refusal::internal("r1"))];
        let events = format_events(stream::iter(outcomes).boxed());
        let lively = add_keep_alive(events, Duration::from_mins(1));
        let text: Vec<String> = lively.collect().await;
        expect![[r#"
            :

            event: next
            data: {"data":{"tick":0}}

            event: next
            data: {"errors":[{"message":"internal error; see the log entry with the reference `r1`","extensions":{"code":"INTERNAL"}}]}

            event: complete
            data:

        "#]]
        .assert_eq(&text.concat());
    }

    #[tokio::test]
    async fn a_quiet_stream_sends_keep_alive_comments() {
        let lively = add_keep_alive(stream::pending(), Duration::from_millis(1));
        let text: Vec<String> = lively.take(3).collect().await;
        assert_eq!(text, [":\n\n", ":\n\n", ":\n\n"]);
    }
}
