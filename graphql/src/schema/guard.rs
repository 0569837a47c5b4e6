//! Stands before and behind every operation: gives it its loaders and the engine as its caller may
//! use it, refuses what nests too deep for the parser and what the caller's role is too little
//! for, and sees that every error has a code and its place in the answer.

use std::{any::TypeId, sync::Arc};

use async_graphql::{
    PathSegment, Request, Response, ServerError, ServerResult, Value, Variables,
    extensions::{
        Extension, ExtensionContext, ExtensionFactory, NextExecute, NextParseQuery,
        NextPrepareRequest, NextRequest, NextResolve, NextSubscribe, ResolveInfo,
    },
    parser::types::ExecutableDocument,
};
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};

use super::{loaders::Loaders, nulls::Nulls};
use crate::{
    access::{AccessError, Grant},
    engine::Engine,
};

/// Stands before and behind an operation.
pub(super) struct Guard {
    settings: Arc<Settings>,
    nulls: Nulls,
}

struct Settings {
    engine: Engine,
    nesting: usize,
}

impl Guard {
    pub(super) fn new(engine: Engine, nesting: usize) -> Self {
        Self { settings: Arc::new(Settings { engine, nesting }), nulls: Nulls::default() }
    }
}

impl ExtensionFactory for Guard {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self { settings: Arc::clone(&self.settings), nulls: Nulls::default() })
    }
}

#[async_trait]
impl Extension for Guard {
    async fn request(&self, ctx: &ExtensionContext<'_>, next: NextRequest<'_>) -> Response {
        with_codes(next.run(ctx).await)
    }

    fn subscribe<'s>(
        &self,
        ctx: &ExtensionContext<'_>,
        stream: BoxStream<'s, Response>,
        next: NextSubscribe<'_>,
    ) -> BoxStream<'s, Response> {
        next.run(ctx, stream).map(with_codes).boxed()
    }

    async fn prepare_request(
        &self,
        ctx: &ExtensionContext<'_>,
        request: Request,
        next: NextPrepareRequest<'_>,
    ) -> ServerResult<Request> {
        // What runs in this process without a server has no grant, and may do everything.
        let grant = request.data.get(&TypeId::of::<Grant>());
        let grant = grant.and_then(|it| it.downcast_ref::<Grant>()).cloned().unwrap_or_default();
        let engine = self.settings.engine.granted(grant);
        let request = request.data(Loaders::new(engine.clone())).data(engine);
        next.run(ctx, request).await
    }

    async fn execute(
        &self,
        ctx: &ExtensionContext<'_>,
        operation_name: Option<&str>,
        next: NextExecute<'_>,
    ) -> Response {
        self.nulls.finish(next.run(ctx, operation_name).await)
    }

    async fn resolve(
        &self,
        ctx: &ExtensionContext<'_>,
        info: ResolveInfo<'_>,
        next: NextResolve<'_>,
    ) -> ServerResult<Option<Value>> {
        let (of, at) = (info.return_type, info.path_node);
        let outcome = match check(ctx, &info) {
            Ok(()) => next.run(ctx, info).await,
            Err(error) => Err(error),
        };
        self.nulls.settle(of, at, outcome)
    }

    async fn parse_query(
        &self,
        ctx: &ExtensionContext<'_>,
        query: &str,
        variables: &Variables,
        next: NextParseQuery<'_>,
    ) -> ServerResult<ExecutableDocument> {
        let most = self.settings.nesting;
        if nesting(query) > most {
            let why = format!("the operation nests its brackets deeper than {most}");
            let mut error = ServerError::new(why, None);
            error.extensions.get_or_insert_default().set("code", "LIMIT_EXCEEDED");
            return Err(error);
        }
        next.run(ctx, query, variables).await
    }
}

/// Refuses a root field to a caller whose role is too little for it.
fn check(ctx: &ExtensionContext<'_>, info: &ResolveInfo<'_>) -> ServerResult<()> {
    if info.path_node.parent.is_some() {
        return Ok(());
    }
    let Ok(engine) = ctx.data::<Engine>() else { return Ok(()) };
    let allowed = engine.grant().check_field(info.parent_type, info.name);
    allowed.map_err(|err| forbidden(&err, info))
}

/// Says which field of an operation the caller has no right to.
fn forbidden(err: &AccessError, info: &ResolveInfo<'_>) -> ServerError {
    let mut error = ServerError::new(err.to_string(), Some(info.field.name.pos));
    error.path = vec![PathSegment::Field(info.alias.unwrap_or(info.name).to_owned())];
    error.extensions.get_or_insert_default().set("code", err.code());
    error
}

/// Returns how deep the brackets of an operation are nested, outside of strings and comments.
///
/// The parser descends once for every bracket, so this is asked before it begins.
fn nesting(query: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = query;
    while let Some(at) = rest.find(['(', '[', '{', ')', ']', '}', '"', '#']) {
        let found = rest.as_bytes()[at];
        rest = &rest[at..];
        rest = match found {
            b'"' => behind_string(rest),
            b'#' => rest.find(['\n', '\r']).map_or("", |end| &rest[end..]),
            _ => &rest[1..],
        };
        match found {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Returns what follows the string that a text begins with.
fn behind_string(text: &str) -> &str {
    let (quotes, escaped_quotes) =
        if text.starts_with("\"\"\"") { ("\"\"\"", "\\\"\"\"") } else { ("\"", "\\\"") };
    let mut rest = &text[quotes.len()..];
    while let Some(at) = rest.find(['"', '\\']) {
        rest = &rest[at..];
        if let Some(behind) = rest.strip_prefix(quotes) {
            return behind;
        }
        let skipped = [escaped_quotes, "\\\\"].into_iter().find(|it| {
            // In a block string a backslash alone means itself.
            rest.starts_with(it) && (quotes.len() == 1 || *it == escaped_quotes)
        });
        rest = &rest[skipped.map_or(1, str::len)..];
    }
    ""
}

/// Gives a code to errors that have none: those of reading and judging the operation itself.
fn with_codes(mut response: Response) -> Response {
    for error in &mut response.errors {
        let extensions = error.extensions.get_or_insert_default();
        if extensions.get("code").is_none() {
            let is_limit = LIMITS.iter().any(|it| error.message.starts_with(it));
            extensions.set("code", if is_limit { "LIMIT_EXCEEDED" } else { "INVALID_ARGUMENT" });
        }
    }
    response
}

/// How the errors of the schema's limits begin.
const LIMITS: [&str; 5] = [
    "Query is too complex",
    "Query is nested too deep",
    "The recursion depth of the query",
    "The number of directives",
    "Recursion limit exceeded",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_count_outside_of_strings_and_comments() {
        for (query, expected) in [
            ("", 0),
            ("{ a }", 1),
            ("{ a(x: [[1], {b: 2}]) { c } }", 4),
            (r#"{ a(x: "[[[[") }"#, 2),
            (r#"{ a(x: "\"[[[[") }"#, 2),
            (r#"{ a(x: "\\", y: [1]) }"#, 3),
            (r#"{ a(x: """ [[ " [[ \""" [[ \ """, y: [1]) }"#, 3),
            (r#"{ a(x: "", y: [[1]]) }"#, 4),
            ("# [[[[[\n{ a }", 1),
            ("]]]]{ a }", 1),
            (r#"{ a(x: "[["#, 2),
        ] {
            assert_eq!(nesting(query), expected, "{query}");
        }
    }
}
