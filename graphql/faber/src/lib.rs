//! Faber as a library: plans of tool calls that survive crashes, in your own process.
//!
//! A **tool** is an async function with a description and an [`Effect`]. A **plan** is a list of
//! calls of tools, and each call can use the outputs of other calls. An **execution** runs a plan.
//! Faber writes each event of an execution to a **store**, and calls a tool with an effect only
//! after that. So after a crash the next process continues where the last one ended.
//!
//! [`Embedded`] opens a store and starts a worker, which drives executions in the background:
//!
//! ```
//! use faber::{Effect, Embedded, ToolContext, ToolError, ToolSet, function};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! /// Parameters of `price`.
//! #[derive(Deserialize, JsonSchema)]
//! struct Article {
//!     /// The article: `tea` or `cup`.
//!     name: String,
//! }
//!
//! /// Looks up the price of an article, in cents.
//! async fn price(article: Article, _: ToolContext) -> Result<u32, ToolError> {
//!     match article.name.as_str() {
//!         "tea" => Ok(450),
//!         "cup" => Ok(1_200),
//!         name => Err(ToolError::failed(format!("there is no `{name}`"))),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tools = [function("shop", "price", "Looks up the price of an article.", Effect::Read, price)];
//! let shop = ToolSet::ready("shop".parse()?, "local", "A small shop.", tools);
//! let faber = Embedded::open("memory:", [shop]).await?;
//!
//! // Both prices are looked up at the same time.
//! let plan = json!({ "tools": [
//!     { "id": "tea", "name": "price", "parameters": { "name": "tea" } },
//!     { "id": "cup", "name": "price", "parameters": { "name": "cup" } },
//!     { "id": "offer", "name": "flow.echo", "parameters": { "cents": ["{{tea}}", "{{cup}}"] } },
//! ] });
//! let execution = faber.run_plan(plan).await?;
//! assert_eq!(execution.outputs()["offer"], json!({ "cents": [450, 1_200] }));
//!
//! faber.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The parameter type of a function derives `Deserialize` of `serde` 1 and `JsonSchema` of
//! `schemars` 1. Its schema becomes the schema of the tool, and the comments of its fields become
//! descriptions for models.
//!
//! # Stores
//!
//! [`Embedded::open`] and [`open_store`] take an address:
//!
//! | address | store |
//! | --- | --- |
//! | `memory:` | the memory of this process, which a crash erases |
//! | `sqlite:PATH` | a file, which several processes of one machine can share |
//! | `mongodb://…` | a MongoDB replica set, which many machines can share |
//!
//! [`open_encrypted_store`] encrypts parameters, outputs and texts with your keys. Pass the store
//! that it returns to [`Embedded::open_over`].
//!
//! # Effects
//!
//! A crash can happen after a call and before Faber has recorded the result. The [`Effect`] of a
//! tool declares what a second call does, so it decides whether Faber calls the tool again. Faber
//! calls a [`Read`](Effect::Read) or [`Idempotent`](Effect::Idempotent) tool again. A step with a
//! [`Once`](Effect::Once) tool fails with `tool.outcome_unknown` instead, unless its plan lets a
//! person decide. If a tool declares a wrong effect, Faber can repeat an order or a payment.
//!
//! [`ToolContext::idempotency_key`] is the same for every attempt of a step. Pass it to services that
//! accept such a key.
//!
//! # More than plans
//!
//! [`Embedded::run`] plans a query in words and executes the plan. [`Embedded::engine`] returns the
//! [`Engine`], which has every operation of Faber's server: approvals, signals, retries, saved
//! plans, lists and reports. Implement [`Tool`] if a function with fixed parameters is not enough,
//! for example if a tool gets its schema at run time.

#![warn(missing_docs, reason = "programs that embed Faber import these items")]

pub use engine::{
    Engine, EngineError, Order, PlanningOptions,
    embedded::Embedded,
    store::{Key, KeyError, Keyring, open_encrypted_store, open_store},
};
pub use executor::options::Options;
pub use shared::{
    execution::{Execution, ExecutionState},
    id::{ExecutionId, PlanId, ToolName, ToolSetName},
    plan::Plan,
    store::{Store, StoreError},
    tool::{Effect, ErrorCode, Progress, ToolDefinition, ToolError},
};
pub use toolbox::{StepCall, Tool, ToolContext, ToolSet, function};
