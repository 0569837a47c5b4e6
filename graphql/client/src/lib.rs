//! Operations of the API, in this process or on a running server.

pub mod drive;
pub mod event_tree;
pub mod failure;
pub mod operations;
pub mod page;
pub mod plan_file;
pub mod remote;
pub mod request_report;
mod secret;
pub mod types;
pub mod view;
pub mod watcher;

use async_graphql::{Request, Response, ServerError, Variables};
use engine::access::Grant;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use graphql::schema::Schema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use self::failure::Failure;
use self::remote::Remote;
pub use self::secret::Secret;

#[derive(Clone)]
pub enum Client {
    Local(Box<Schema>, Grant),
    Remote(Remote),
}

pub type Responses<T> = BoxStream<'static, Result<T, Failure>>;

pub type Argument<'a> = (&'a str, Value);

impl Client {
    pub fn local(schema: Schema) -> Self {
        Self::Local(Box::new(schema), Grant::default())
    }

    pub async fn query<T: DeserializeOwned>(
        &self,
        field: &str,
        arguments: &[Argument<'_>],
        fields: &str,
    ) -> Result<T, Failure> {
        let text = write_operation("query", field, arguments, fields);
        read_answer(self.execute_field(&text, make_variables(arguments)).await?)
    }

    pub async fn query_execution<T: DeserializeOwned>(
        &self,
        id: impl Serialize,
        fields: &str,
    ) -> Result<T, Failure> {
        self.query("execution", &[("executionId: ID!", json!(id))], fields).await
    }

    /// Queries a field of an execution that has arguments of its own.
    pub async fn query_in_execution<T: DeserializeOwned>(
        &self,
        id: impl Serialize,
        field: &str,
        arguments: &[Argument<'_>],
        fields: &str,
    ) -> Result<T, Failure> {
        let id = json!(id);
        let all = [&[("executionId: ID!", id.clone())], arguments].concat();
        let text = format!(
            "query({}) {{ execution(executionId: $executionId) {{ {} }} }}",
            declare_variables(&all),
            write_field(field, arguments, fields)
        );
        match self.execute_field(&text, make_variables(&all)).await? {
            Value::Null => Err(Failure::not_found("execution", id.as_str().unwrap_or_default())),
            execution => read_answer(take_only_field(execution)),
        }
    }

    pub async fn mutate<T: DeserializeOwned>(
        &self,
        field: &str,
        arguments: &[Argument<'_>],
        fields: &str,
    ) -> Result<T, Failure> {
        let text = write_operation("mutation", field, arguments, fields);
        read_answer(self.execute_field(&text, make_variables(arguments)).await?)
    }

    pub fn subscribe<T: DeserializeOwned + Send + 'static>(
        &self,
        field: &str,
        arguments: &[Argument<'_>],
        fields: &str,
    ) -> Responses<T> {
        let text = write_operation("subscription", field, arguments, fields);
        let variables = make_variables(arguments);
        let answers = match self {
            Self::Local(schema, grant) => {
                let answers = schema.execute_stream(make_request(&text, variables, grant));
                answers.map(take_data).boxed()
            }
            Self::Remote(server) => server.clone().subscribe(text, variables),
        };
        answers.map(|answer| answer.map(take_only_field).and_then(read_answer)).boxed()
    }

    /// Boxes the future, because the compiler would otherwise compile the future again for each
    /// caller.
    fn execute_field<'a>(
        &'a self,
        text: &'a str,
        variables: Value,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        self.execute_text(text, variables).boxed()
    }

    async fn execute_text(&self, text: &str, variables: Value) -> Result<Value, Failure> {
        let data = match self {
            Self::Local(schema, grant) => {
                take_data(schema.execute(make_request(text, variables, grant)).await)?
            }
            Self::Remote(server) => server.execute(text, &variables).await?,
        };
        Ok(take_only_field(data))
    }

    /// Returns a client with the access of `grant`. A remote server checks access itself.
    #[must_use]
    pub fn with_grant(&self, grant: &Grant) -> Self {
        match self {
            Self::Local(schema, _) => Self::Local(schema.clone(), grant.clone()),
            Self::Remote(server) => Self::Remote(server.clone()),
        }
    }

    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }
}

pub fn read_answer<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer)
        .map_err(|err| Failure::new("INTERNAL", format!("the answer cannot be read: {err}")))
}

fn write_operation(kind: &str, field: &str, arguments: &[Argument<'_>], fields: &str) -> String {
    let written = write_field(field, arguments, fields);
    if arguments.is_empty() {
        return format!("{kind} {{ {written} }}");
    }
    format!("{kind}({}) {{ {written} }}", declare_variables(arguments))
}

fn declare_variables(arguments: &[Argument<'_>]) -> String {
    let declared = arguments.iter().map(|(declaration, _)| format!("${declaration}"));
    declared.collect::<Vec<_>>().join(", ")
}

fn write_field(field: &str, arguments: &[Argument<'_>], fields: &str) -> String {
    let selected = if fields.is_empty() { String::new() } else { format!(" {{ {fields} }}") };
    if arguments.is_empty() {
        return format!("{field}{selected}");
    }
    let given = argument_names(arguments).map(|name| format!("{name}: ${name}"));
    format!("{field}({}){selected}", given.collect::<Vec<_>>().join(", "))
}

fn make_variables(arguments: &[Argument<'_>]) -> Value {
    let values = arguments.iter().map(|(_, value)| value.clone());
    argument_names(arguments).map(str::to_owned).zip(values).collect::<Map<_, _>>().into()
}

fn argument_names<'a>(arguments: &'a [Argument<'_>]) -> impl Iterator<Item = &'a str> {
    arguments.iter().map(|(declaration, _)| declaration.split(':').next().unwrap_or_default())
}

fn make_request(text: &str, variables: Value, grant: &Grant) -> Request {
    Request::new(text).variables(Variables::from_json(variables)).data(grant.clone())
}

fn take_data(response: Response) -> Result<Value, Failure> {
    if let Some(error) = response.errors.first() {
        return Err(convert_error(error));
    }
    let unreadable = |err| Failure::new("INTERNAL", format!("the answer is not JSON: {err}"));
    response.data.into_json().map_err(unreadable)
}

fn convert_error(error: &ServerError) -> Failure {
    let extensions = error.extensions.as_ref().and_then(|fields| serde_json::to_value(fields).ok());
    make_failure(&error.message, extensions.as_ref().and_then(Value::as_object))
}

fn make_failure(message: &str, extensions: Option<&Map<String, Value>>) -> Failure {
    let code = extensions.and_then(|fields| fields.get("code")).and_then(Value::as_str);
    // An error without a code comes from the GraphQL library, because the operation does not fit
    // the schema.
    let mut failure = Failure::new(code.unwrap_or("INVALID_ARGUMENT"), message);
    for (key, value) in extensions.into_iter().flatten().filter(|(key, _)| *key != "code") {
        failure.extra_fields.insert(key.clone(), value.clone());
    }
    failure
}

fn take_only_field(data: Value) -> Value {
    match data {
        Value::Object(fields) => fields.into_iter().next().map_or(Value::Null, |(_, value)| value),
        other => other,
    }
}

pub fn remove_nulls(mut object: serde_json::Value) -> serde_json::Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
