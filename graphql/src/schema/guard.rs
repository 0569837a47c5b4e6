//! An extension of the GraphQL library that Faber runs before, during and after every operation. It
//! enforces roles and limits, and gives every error a code and a path.

use std::{
    any::TypeId,
    sync::{Arc, OnceLock},
};

use async_graphql::{
    PathSegment, Request, Response, ServerError, ServerResult, ValidationResult, Value,
    extensions::{
        Extension, ExtensionContext, ExtensionFactory, NextExecute, NextPrepareRequest,
        NextRequest, NextResolve, NextSubscribe, NextValidation, ResolveInfo,
    },
};
use async_trait::async_trait;
use engine::{
    Engine,
    access::{AccessError, Grant},
};
use futures::{StreamExt, stream::BoxStream};

use super::{
    Limits,
    answer_size::{AnswerSize, CountedField},
    cost::Costs,
    loaders::Loaders,
    nulls::FieldErrors,
};
use crate::document;

pub(super) struct OperationGuard {
    settings: Arc<GuardSettings>,
    field_errors: FieldErrors,
    answer_size: AnswerSize,
}

struct GuardSettings {
    engine: Engine,
    limits: Limits,
    costs: OnceLock<Costs>,
}

impl OperationGuard {
    pub(super) fn new(engine: Engine, limits: Limits) -> Self {
        Self::from_settings(Arc::new(GuardSettings { engine, limits, costs: OnceLock::new() }))
    }

    fn from_settings(settings: Arc<GuardSettings>) -> Self {
        let answer_size = AnswerSize::new(settings.limits.answer_bytes);
        Self { settings, field_errors: FieldErrors::default(), answer_size }
    }
}

impl ExtensionFactory for OperationGuard {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self::from_settings(Arc::clone(&self.settings)))
    }
}

#[async_trait]
impl Extension for OperationGuard {
    async fn request(&self, ctx: &ExtensionContext<'_>, next: NextRequest<'_>) -> Response {
        add_missing_codes(next.run(ctx).await)
    }

    fn subscribe<'s>(
        &self,
        ctx: &ExtensionContext<'_>,
        stream: BoxStream<'s, Response>,
        next: NextSubscribe<'_>,
    ) -> BoxStream<'s, Response> {
        next.run(ctx, stream).map(add_missing_codes).boxed()
    }

    async fn prepare_request(
        &self,
        ctx: &ExtensionContext<'_>,
        mut request: Request,
        next: NextPrepareRequest<'_>,
    ) -> ServerResult<Request> {
        self.check_cost(&mut request)?;
        // An operation without a grant does not come through a server, so it has all rights.
        let grant = request.data.get(&TypeId::of::<Grant>());
        let grant =
            grant.and_then(|grant| grant.downcast_ref::<Grant>()).cloned().unwrap_or_default();
        let engine = self.settings.engine.with_grant(grant);
        let request = request.data(Loaders::new(engine.clone())).data(engine);
        next.run(ctx, request).await
    }

    async fn execute(
        &self,
        ctx: &ExtensionContext<'_>,
        operation_name: Option<&str>,
        next: NextExecute<'_>,
    ) -> Response {
        self.answer_size.start_answer();
        let answer = self.field_errors.complete_answer(next.run(ctx, operation_name).await);
        self.answer_size.complete_answer(answer)
    }

    async fn resolve(
        &self,
        ctx: &ExtensionContext<'_>,
        info: ResolveInfo<'_>,
        next: NextResolve<'_>,
    ) -> ServerResult<Option<Value>> {
        // If the answer is already too large, fails without `FieldErrors`, because the error about
        // the size replaces the whole answer.
        self.answer_size.check_limit()?;
        let (return_type, path, counted) =
            (info.return_type, info.path_node, CountedField::from_field(&info));
        let outcome = match check_role(ctx, &info) {
            Ok(()) => {
                if info.parent_type == "Mutation" {
                    self.answer_size.record_mutation();
                }
                next.run(ctx, info).await
            }
            Err(error) => Err(error),
        };
        if let Ok(value) = &outcome {
            self.answer_size.count_field(&counted, value.as_ref())?;
        }
        self.field_errors.resolve_null(return_type, path, outcome)
    }

    async fn validation(
        &self,
        ctx: &ExtensionContext<'_>,
        next: NextValidation<'_>,
    ) -> Result<ValidationResult, Vec<ServerError>> {
        next.run(ctx).await.map_err(document::shorten_errors)
    }
}

impl OperationGuard {
    /// Rejects an operation that costs too much, before validation spends time on the operation.
    fn check_cost(&self, request: &mut Request) -> ServerResult<()> {
        let limit = |reason: String| {
            let mut error = ServerError::new(reason, None);
            error.extensions.get_or_insert_default().set("code", "LIMIT_EXCEEDED");
            error
        };
        document::check_size(&request.query).map_err(|too_much| limit(too_much.to_string()))?;
        let maximum = self.settings.limits.complexity;
        if maximum == usize::MAX {
            return Ok(());
        }
        let (name, variables) = (request.operation_name.clone(), request.variables.clone());
        let document = request.parsed_query().map_err(|mut error| {
            document::shorten_message(&mut error);
            error
        })?;
        let costs = self.settings.costs.get_or_init(|| Costs::new(&super::schema_text()));
        let cost = costs.compute_cost(document, name.as_deref(), &variables);
        if cost.total <= maximum {
            return Ok(());
        }
        let dearest =
            cost.most_expensive.map(|(field, cost)| format!("; `{field}` alone costs {cost}"));
        Err(limit(format!(
            "the operation costs {}, and at most {maximum} is allowed{}: request fewer fields and \
             aliases, use a smaller `first`, or send several operations",
            cost.total,
            dearest.unwrap_or_default()
        )))
    }
}

fn check_role(ctx: &ExtensionContext<'_>, info: &ResolveInfo<'_>) -> ServerResult<()> {
    if info.path_node.parent.is_some() {
        return Ok(());
    }
    let Ok(engine) = ctx.data::<Engine>() else { return Ok(()) };
    let allowed = engine.grant().check_field(info.parent_type, info.name);
    allowed.map_err(|err| forbidden_error(&err, info))
}

fn forbidden_error(err: &AccessError, info: &ResolveInfo<'_>) -> ServerError {
    tracing::info!(target: "faber::refusal", code = err.code(), "operation refused: {err}");
    let mut error = ServerError::new(err.to_string(), Some(info.field.name.pos));
    error.path = vec![PathSegment::Field(info.alias.unwrap_or(info.name).to_owned())];
    error.extensions.get_or_insert_default().set("code", err.code());
    error
}

/// Adds a code to errors of the library, because these have no code.
fn add_missing_codes(mut response: Response) -> Response {
    for error in &mut response.errors {
        let extensions = error.extensions.get_or_insert_default();
        if extensions.get("code").is_none() {
            let is_limit =
                LIMIT_MESSAGE_PREFIXES.iter().any(|limit| error.message.starts_with(limit));
            extensions.set("code", if is_limit { "LIMIT_EXCEEDED" } else { "INVALID_ARGUMENT" });
        }
    }
    response
}

/// Beginnings of the library's messages about exceeded limits. Such an error gets the code
/// `LIMIT_EXCEEDED`.
const LIMIT_MESSAGE_PREFIXES: [&str; 4] = [
    "Query is nested too deep",
    "The recursion depth of the query",
    "The number of directives",
    "Recursion limit exceeded",
];
