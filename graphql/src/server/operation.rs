//! Parses and executes operations. A panic fails only its own operation.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use async_graphql::{
    Request, Response, ServerError, Value,
    parser::types::{DocumentOperations, ExecutableDocument, OperationDefinition, OperationType},
};
use axum::http::StatusCode;
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};

use shared::trace::{SpanContext, current_scope, with_scope};

use super::{
    app::{App, Caller},
    metrics::RequestKind,
    refusal::Refusal,
};
use crate::{document, schema::ClientGone};

/// Number of characters of the reference in an internal error. The log entry about the error has
/// the same reference.
const REFERENCE_LENGTH: usize = 12;

/// The response of an operation. An error means that the operation panicked, or that the server is
/// shutting down.
pub(super) type OperationResult = Result<Response, Refusal>;

#[derive(Debug)]
pub(super) struct Operation {
    request: Request,
    kind: OperationType,
    /// `true` if the operation runs on the thread of large requests.
    pub(super) is_large: bool,
}

pub(super) fn parse_operation(mut request: Request) -> Result<Operation, Box<Response>> {
    let refuse = |errors| Box::new(Response::from_errors(document::shorten_errors(errors)));
    if let Err(too_much) = document::check_size(&request.query) {
        let refusal = Refusal::limit_exceeded(StatusCode::BAD_REQUEST, too_much.to_string());
        return Err(refuse(vec![refusal.into_server_error()]));
    }
    let name = request.operation_name.clone();
    let document = request.parsed_query().map_err(|error| refuse(vec![error]))?.clone();
    let Some(operation) = select_operation(&document, name.as_deref()) else {
        // No operation has the requested name. The executor reports this error and runs nothing.
        return Ok(Operation { request, kind: OperationType::Query, is_large: false });
    };
    let missing = find_missing_variables(operation, &request);
    if !missing.is_empty() {
        return Err(refuse(missing));
    }
    Ok(Operation { kind: operation.ty, request, is_large: false })
}

impl Operation {
    pub(super) fn kind(&self) -> OperationType {
        self.kind
    }

    /// Reads `traceparent` and `tracestate` from the extensions of the request. Browsers cannot add
    /// headers to the handshake of a WebSocket.
    pub(super) fn read_trace_context(&self) -> Option<SpanContext> {
        let extensions = &self.request.extensions.0;
        let read = |name: &str| match extensions.get(name) {
            Some(Value::String(text)) => Some(text.as_str()),
            _ => None,
        };
        SpanContext::parse(read("traceparent")?, read("tracestate"))
    }

    /// Executes a query or a mutation.
    ///
    /// A mutation runs until it finishes or the server stops, even if the client disconnects.
    pub(super) async fn execute(self, app: &Arc<App>, caller: &Arc<Caller>) -> OperationResult {
        let schema = Arc::clone(&app.schema);
        // The token is cancelled when this future is dropped. Then the client has disconnected, or
        // has its response.
        let client_gone = ClientGone::default();
        let _left = client_gone.0.clone().drop_guard();
        let request = add_caller(self.request, caller).data(client_gone);
        let run = async move {
            let answer = AssertUnwindSafe(schema.execute(request)).catch_unwind().await;
            answer.map_err(|panic| report_panic(panic.as_ref()))
        };
        match self.kind {
            OperationType::Mutation => {
                match app
                    .task_sender
                    .run_to_end(with_scope(current_scope(), run), self.is_large)
                    .await
                {
                    Some(outcome) => outcome,
                    None => Err(Refusal::server_stopping()),
                }
            }
            OperationType::Query | OperationType::Subscription => run.await,
        }
    }

    pub(super) fn execute_as_stream(
        self,
        app: &Arc<App>,
        caller: &Arc<Caller>,
    ) -> BoxStream<'static, OperationResult> {
        let (app, caller) = (Arc::clone(app), Arc::clone(caller));
        if self.kind != OperationType::Subscription {
            return stream::once(async move { self.execute(&app, &caller).await }).boxed();
        }
        let running = app.metrics.count_running_subscription();
        let answers = app.schema.execute_stream(add_caller(self.request, &caller));
        AssertUnwindSafe(answers)
            .catch_unwind()
            .map(move |answer| {
                let _counted_until_dropped = &running;
                answer.map_err(|panic| report_panic(panic.as_ref()))
            })
            .boxed()
    }
}

fn add_caller(request: Request, caller: &Arc<Caller>) -> Request {
    request.data(caller.grant.clone()).data(Arc::clone(caller))
}

pub(super) fn request_kind(kind: OperationType) -> RequestKind {
    match kind {
        OperationType::Query => RequestKind::Query,
        OperationType::Mutation => RequestKind::Mutation,
        OperationType::Subscription => RequestKind::Subscription,
    }
}

pub(super) fn report_panic(panic: &(dyn Any + Send)) -> Refusal {
    let reason = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message");
    let reference = nanoid::nanoid!(REFERENCE_LENGTH, &nanoid::alphabet::SAFE);
    tracing::error!(reference, reason, "an operation panicked");
    Refusal::internal(&reference)
}

fn select_operation<'a>(
    document: &'a ExecutableDocument,
    name: Option<&str>,
) -> Option<&'a OperationDefinition> {
    match (&document.operations, name) {
        (DocumentOperations::Single(operation), None) => Some(&operation.node),
        (DocumentOperations::Multiple(all), Some(name)) => {
            all.get(name).map(|operation| &operation.node)
        }
        (DocumentOperations::Multiple(all), None) if all.len() == 1 => {
            all.values().next().map(|operation| &operation.node)
        }
        (DocumentOperations::Single(_), Some(_)) | (DocumentOperations::Multiple(_), None) => None,
    }
}

/// Returns an error for each required variable that is missing or null. The executor would report
/// it only when a field reads it, perhaps after other fields had effects.
fn find_missing_variables(operation: &OperationDefinition, request: &Request) -> Vec<ServerError> {
    let mut errors = Vec::new();
    for definition in &operation.variable_definitions {
        let variable = &definition.node;
        let (name, kind) = (&variable.name.node, &variable.var_type.node);
        let given = request.variables.get(name);
        let problem = match given {
            None if variable.default_value.is_some() => continue,
            None => "was not given",
            Some(Value::Null) => "must not be null",
            Some(_) => continue,
        };
        if !kind.nullable {
            let message = format!("variable `${name}` of type `{kind}` {problem}");
            errors.push(ServerError::new(message, Some(definition.pos)));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use async_graphql::Variables;
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better without borrows")]
    fn check(query: &str, name: Option<&str>, expected: Expect) {
        let variables = Variables::from_json(json!({ "given": 1, "none": null }));
        let mut request = Request::new(query).variables(variables);
        request.operation_name = name.map(str::to_owned);
        expected.assert_eq(&match parse_operation(request) {
            Ok(operation) => operation.kind().to_string(),
            Err(response) => response.errors[0].message.clone(),
        });
    }

    #[test]
    fn the_selected_operation_is_found() {
        check("{ a }", None, expect!["query"]);
        check("mutation { a }", None, expect!["mutation"]);
        check("subscription S { a }", None, expect!["subscription"]);
        check("query A { a } mutation B { b }", Some("B"), expect!["mutation"]);
        check("query A { a } mutation B { b }", Some("C"), expect!["query"]);
        check("query A { a } mutation B { b }", None, expect!["query"]);
        check("mutation { b }", Some("B"), expect!["query"]);
    }

    #[test]
    fn the_trace_context_is_read_from_the_extensions() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = |extensions: serde_json::Value| {
            let mut request = Request::new("{ a }");
            request.extensions = serde_json::from_value(extensions).unwrap();
            parse_operation(request).unwrap().read_trace_context()
        };
        let found = read(json!({ "traceparent": parent, "tracestate": "vendor=1" })).unwrap();
        assert_eq!(found.traceparent(), parent);
        assert_eq!(found.state.as_deref(), Some("vendor=1"));
        for other in [json!({}), json!({ "traceparent": 7 }), json!({ "traceparent": "x" })] {
            assert_eq!(read(other), None);
        }
    }

    #[test]
    fn a_missing_required_variable_is_an_error() {
        check("query($given: ID!) { a }", None, expect!["query"]);
        check("query($x: ID) { a }", None, expect!["query"]);
        check("query($x: ID! = 7) { a }", None, expect!["query"]);
        check("query($x: ID!) { a }", None, expect!["variable `$x` of type `ID!` was not given"]);
        check(
            "query($none: [ID!]! = []) { a }",
            None,
            expect!["variable `$none` of type `[ID!]!` must not be null"],
        );
    }
}
