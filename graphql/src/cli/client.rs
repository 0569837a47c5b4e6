//! Operations of the API, carried out in this process or by a running server.

use async_graphql::{Request, Response, ServerError, Variables};
use futures::{StreamExt, stream::BoxStream};
use serde_json::{Map, Value};

use super::{failure::Failure, remote::Remote};
use crate::{access::Grant, schema::Schema};

/// Who carries operations out.
#[derive(Clone)]
pub(super) enum Client {
    /// This process, for somebody who may do this much.
    Local(Box<Schema>, Grant),
    /// A running server.
    Remote(Remote),
}

/// What a subscription brings, one after another.
pub(super) type Answers = BoxStream<'static, Result<Value, Failure>>;

impl Client {
    /// Carries operations out in this process, for whoever sits at this machine.
    pub(super) fn local(schema: Schema) -> Self {
        Self::Local(Box::new(schema), Grant::default())
    }

    /// Carries a query or mutation out and returns its data.
    pub(super) async fn execute(&self, query: &str, variables: Value) -> Result<Value, Failure> {
        match self {
            Self::Local(schema, grant) => {
                data(schema.execute(request(query, variables).data(grant.clone())).await)
            }
            Self::Remote(server) => server.execute(query, &variables).await,
        }
    }

    /// Carries out an operation that has one field, and returns that.
    pub(super) async fn field(&self, query: &str, variables: Value) -> Result<Value, Failure> {
        Ok(only(self.execute(query, variables).await?))
    }

    /// Subscribes to something that has one field.
    pub(super) fn subscribe(&self, query: &str, variables: Value) -> Answers {
        match self {
            Self::Local(schema, grant) => {
                let asked = request(query, variables).data(grant.clone());
                let answers = schema.execute_stream(asked);
                answers.map(|it| data(it).map(only)).boxed()
            }
            Self::Remote(server) => {
                server.subscribe(query.to_owned(), variables).map(|it| it.map(only)).boxed()
            }
        }
    }

    /// Returns the same for somebody else. A server knows its callers itself.
    #[must_use]
    pub(super) fn granted(&self, grant: &Grant) -> Self {
        match self {
            Self::Local(schema, _) => Self::Local(schema.clone(), grant.clone()),
            Self::Remote(server) => Self::Remote(server.clone()),
        }
    }

    /// Returns whether a running server does the work.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

fn request(query: &str, variables: Value) -> Request {
    Request::new(query).variables(Variables::from_json(variables))
}

fn data(response: Response) -> Result<Value, Failure> {
    if let Some(error) = response.errors.first() {
        return Err(refused(error));
    }
    let unreadable = |err| Failure::new("INTERNAL", format!("the answer is no JSON: {err}"));
    response.data.into_json().map_err(unreadable)
}

fn refused(error: &ServerError) -> Failure {
    let extensions = error.extensions.as_ref().and_then(|it| serde_json::to_value(it).ok());
    failure(&error.message, extensions.as_ref().and_then(Value::as_object))
}

/// Makes a failure of a GraphQL error.
pub(super) fn failure(message: &str, extensions: Option<&Map<String, Value>>) -> Failure {
    let code = extensions.and_then(|it| it.get("code")).and_then(Value::as_str);
    // An operation that does not fit the schema has no code of ours.
    let mut failure = Failure::new(code.unwrap_or("INVALID_ARGUMENT"), message);
    for (key, value) in extensions.into_iter().flatten().filter(|(key, _)| *key != "code") {
        failure.more.insert(key.clone(), value.clone());
    }
    failure
}

/// Returns the value of the only field.
fn only(data: Value) -> Value {
    match data {
        Value::Object(fields) => fields.into_iter().next().map_or(Value::Null, |(_, it)| it),
        other => other,
    }
}
