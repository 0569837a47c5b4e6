//! The trait of tools, and tools made from functions.
//!
//! A tool needs an argument type and an async function:
//!
//! ```
//! use toolbox::{ToolContext, function};
//! use shared::tool::{Effect, ToolError};
//!
//! /// The parameters of `add`.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add { a: f64, b: f64 }
//!
//! async fn add(args: Add, _cx: ToolContext) -> Result<f64, ToolError> {
//!     Ok(args.a + args.b)
//! }
//!
//! let tool = function("math", "add", "Adds two numbers.", Effect::Read, add);
//! # assert_eq!(tool.definition().qualified_name().as_str(), "math.add");
//! ```
//!
//! A resource that no model should choose, such as a database, is not a parameter. Instead, the
//! function is a closure that captures the resource. The tool's schema describes the argument type
//! only.
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
//!
//! use toolbox::{ToolContext, function};
//! use shared::tool::{Effect, ToolError};
//!
//! /// The parameters of `count`.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Count { step: u64 }
//!
//! let service = Arc::new(AtomicU64::new(0));
//! let count = move |Count { step }, _cx: ToolContext| {
//!     let service = Arc::clone(&service);
//!     async move { Ok::<_, ToolError>(service.fetch_add(step, Ordering::Relaxed)) }
//! };
//! let tool = function("demo", "count", "Counts.", Effect::Once, count);
//! # let schema = &tool.definition().input_schema["properties"];
//! # assert_eq!(schema.as_object().unwrap().keys().collect::<Vec<_>>(), ["step"]);
//! ```

use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use shared::{
    event::idempotency_key,
    id::{Attempt, ExecutionId, Part, StepId},
    tool::{Effect, ErrorCode, Progress, ToolDefinition, ToolError},
};
use tokio_util::sync::CancellationToken;

use super::{blobs::Blobs, progress::Reporter};

/// A function, command or remote tool that plans can call.
#[async_trait]
pub trait Tool: fmt::Debug + Send + Sync {
    /// Returns the name, the schemas and the effect of the tool.
    fn definition(&self) -> &Arc<ToolDefinition>;

    /// Calls the tool.
    ///
    /// When the context [cancels](ToolContext::cancel) the call, the tool stops its own process or
    /// request and returns [`ErrorCode::CANCELLED`] within [`shared::limits::CANCEL_GRACE`].
    /// Dropping the future aborts the call.
    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError>;
}

/// The context of one call.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The step that makes the call, if there is one.
    pub call: Option<StepCall>,
    /// Cancelled when the call should stop, for example after a timeout. Each call has its own
    /// token.
    pub cancel: CancellationToken,
    /// The sink for progress reports.
    pub reporter: Reporter,
    /// A note beside the output, such as standard error.
    pub aside: Aside,
    /// The store for large binaries. Without a store they stay in the output, which has a size
    /// limit.
    pub blobs: Option<Blobs>,
}

/// The step and attempt that make a call.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCall {
    pub execution: ExecutionId,
    pub step: StepId,
    pub part: Part,
    pub attempt: Attempt,
    /// The idempotency key of an earlier execution's call with an unknown outcome, which the call
    /// repeats.
    pub key: Option<Arc<str>>,
}

/// A text beside the output of a call. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Aside(Arc<Mutex<Option<String>>>);

impl Aside {
    /// Replaces the text. An empty text removes it.
    pub fn leave(&self, text: String) {
        let text = Some(text).filter(|text| !text.is_empty());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Removes and returns the text.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ToolContext {
    /// Makes the context of a call outside any execution. The progress reports of the call are
    /// dropped.
    pub fn detached() -> Self {
        Self {
            call: None,
            cancel: CancellationToken::new(),
            reporter: Reporter::default(),
            aside: Aside::default(),
            blobs: None,
        }
    }

    /// Reports progress. The report also restarts the idle timeout.
    ///
    /// This function never waits. A newer report replaces an unread one.
    pub fn progress(&self, progress: Progress) {
        self.reporter.report(progress);
    }

    /// Returns the idempotency key, which is the same for every attempt of a task, and for a retry
    /// of a call whose outcome is unknown.
    pub fn idempotency_key(&self) -> Option<String> {
        self.call.as_ref().map(|StepCall { execution, step, part, key, .. }| match key {
            Some(key) => key.to_string(),
            None => idempotency_key(*execution, step, *part),
        })
    }
}

/// Makes a tool from an async function.
///
/// # Panics
///
/// If `set` or `name` is not a valid name.
pub fn function<Args, Out, Fut, F>(
    set: &'static str,
    name: &'static str,
    description: &'static str,
    effect: Effect,
    run: F,
) -> Arc<dyn Tool>
where
    Args: DeserializeOwned + JsonSchema + Send + 'static,
    Out: Serialize + Send + 'static,
    Fut: Future<Output = Result<Out, ToolError>> + Send + 'static,
    F: Fn(Args, ToolContext) -> Fut + Send + Sync + 'static,
{
    let definition = ToolDefinition {
        name: name.parse().expect("tool names are literals"),
        set: set.parse().expect("set names are literals"),
        description: description.to_owned(),
        input_schema: schema_of::<Args>(),
        output_schema: None,
        effect,
        examples: Vec::new(),
        is_callable: true,
    };
    Arc::new(FunctionTool { definition: Arc::new(definition), run, types: PhantomData })
}

/// Returns the schema of the argument type. Leaves out the documentation of the type itself, which
/// is for readers of the code.
fn schema_of<Args: JsonSchema>() -> Value {
    let mut schema = schema_for!(Args).to_value();
    if let Value::Object(fields) = &mut schema {
        fields.retain(|name, _| !["$schema", "title", "description"].contains(&name.as_str()));
    }
    unwrap_lines(&mut schema);
    schema
}

/// Joins the lines of each paragraph in descriptions, because doc comments are wrapped.
fn unwrap_lines(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, inner) in fields {
                match inner {
                    Value::String(text) if name == "description" => {
                        let paragraphs =
                            text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
                        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
                    }
                    inner => unwrap_lines(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_lines),
        _ => (),
    }
}

struct FunctionTool<F, Args, Out> {
    definition: Arc<ToolDefinition>,
    run: F,
    types: PhantomData<fn(Args) -> Out>,
}

impl<F, Args, Out> fmt::Debug for FunctionTool<F, Args, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.definition.name).finish()
    }
}

#[async_trait]
impl<Args, Out, Fut, F> Tool for FunctionTool<F, Args, Out>
where
    Args: DeserializeOwned + Send + 'static,
    Out: Serialize + Send + 'static,
    Fut: Future<Output = Result<Out, ToolError>> + Send + 'static,
    F: Fn(Args, ToolContext) -> Fut + Send + Sync + 'static,
{
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let parameters = Arc::unwrap_or_clone(parameters);
        let args = serde_json::from_value(parameters)
            .map_err(|err| ToolError::new(ErrorCode::INVALID_PARAMETERS, err.to_string()))?;
        let out = (self.run)(args, cx).await?;
        serde_json::to_value(out).map_err(|err| ToolError::failed(err.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// This comment must not be in the schema, because only readers of the code need it.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Args {
        /// A description with
        /// two lines.
        ///
        /// And a second paragraph.
        description: String,
        inner: Inner,
    }

    /// A part
    /// of it.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        /// How
        /// much.
        much: i32,
    }

    #[test]
    fn a_tool_schema_describes_arguments_without_the_rust_type() {
        let inner = json!({
            "description": "A part of it.",
            "type": "object",
            "properties": {
                "much": { "description": "How much.", "type": "integer", "format": "int32" },
            },
            "required": ["much"],
        });
        let description = "A description with two lines.\n\nAnd a second paragraph.";
        let expected = json!({
            "type": "object",
            "properties": {
                "description": { "description": description, "type": "string" },
                "inner": inner,
            },
            "required": ["description", "inner"],
        });
        assert_eq!(schema_of::<Args>(), expected);
    }
}
