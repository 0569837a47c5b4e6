//! Plans, their steps and what is wrong with drafts.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use serde_json::{Map, Value, json};
use shared::{
    condition::Condition,
    diagnostic,
    id::StepNumber,
    plan::{OnError, OutputMapping, StepKind},
    store::ExecutionFilter,
    tool,
};

use super::{
    connection::{LAST, MOST, count},
    drawing,
    execution::Execution,
    layout::{self, Layout, LayoutDirection, NodeSizeInput, Wish},
    loaders::Loaders,
    request::Request,
    scalar::{DateTime, int},
};
use crate::engine::{Engine, Verdict};

/// What a second call of a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "tool::Effect")]
pub(super) enum Effect {
    /// Nothing: the tool only looks.
    Read,
    /// The same as the first.
    Idempotent,
    /// Something new. Such a call is never made twice on a guess.
    Once,
}

/// How much a diagnostic or a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "diagnostic::Severity")]
pub(super) enum Severity {
    /// There is no plan.
    Error,
    /// There is a plan; its author should know.
    Warning,
    /// Worth knowing. Nothing needs to be done.
    Info,
}

/// Something wrong with a draft, or worth knowing about a plan.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Diagnostic {
    /// Whether there can be a plan all the same.
    severity: Severity,
    /// A stable code such as `plan.cycle`.
    code: String,
    /// Where in the draft, like `tools[1].parameters.authorId`.
    path: String,
    /// What is wrong.
    message: String,
    /// What to do about it.
    help: Option<String>,
}

impl From<&diagnostic::Diagnostic> for Diagnostic {
    fn from(diagnostic: &diagnostic::Diagnostic) -> Self {
        Self {
            severity: diagnostic.severity.into(),
            code: diagnostic.code.to_string(),
            path: diagnostic.path.clone(),
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
        }
    }
}

fn diagnostics(all: &[diagnostic::Diagnostic]) -> Vec<Diagnostic> {
    all.iter().map(Diagnostic::from).collect()
}

/// What became of a draft.
pub(super) struct PlanPayload(pub(super) Verdict);

/// What became of a draft.
#[Object]
impl PlanPayload {
    /// The plan. Null when a diagnostic is an ERROR.
    async fn plan(&self) -> Option<Plan> {
        self.0.plan.clone().map(Plan)
    }

    /// Everything worth knowing about the draft, all at once.
    async fn diagnostics(&self) -> Vec<Diagnostic> {
        diagnostics(&self.0.diagnostics)
    }
}

/// A compiled plan: tool executions in an order that provably can run.
#[derive(Clone)]
pub(super) struct Plan(pub(super) Arc<shared::plan::Plan>);

/// A compiled plan: tool executions in an order that provably can run. It never changes; revising
/// it makes another version.
#[Object]
impl Plan {
    /// The identifier, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// The request that it belongs to, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.0.info().request.to_string())
    }

    /// The request that it belongs to.
    async fn request(&self, ctx: &Context<'_>) -> Result<Option<Request>> {
        let request = ctx.data::<Loaders>()?.request(self.0.info().request).await?;
        Ok(request.map(Request))
    }

    /// Counts the plans of the request, from 1.
    async fn version(&self) -> u32 {
        self.0.info().version
    }

    /// What it is for, in words.
    async fn query(&self) -> &str {
        &self.0.info().query
    }

    /// When it was compiled.
    async fn created_at(&self) -> DateTime {
        self.0.info().created_at.into()
    }

    /// Who wrote the draft: `offline`, `explicit`, or a model.
    async fn planner(&self) -> &str {
        &self.0.info().planner
    }

    /// The steps, in the order in which they are executed one by one.
    async fn tools(&self) -> Vec<ToolExecution> {
        let steps = 0..self.0.steps().len();
        steps
            .map(|at| ToolExecution { plan: Arc::clone(&self.0), number: StepNumber::new(at) })
            .collect()
    }

    /// The steps' ids in that order: topological; ties keep the order in which they were written.
    async fn execution_order(&self) -> Vec<&str> {
        self.0.steps().iter().map(|step| step.id.as_str()).collect()
    }

    /// What may run at the same time: each step is one layer behind the last that it depends on.
    async fn layers(&self) -> Vec<Vec<&str>> {
        let name = |number: &StepNumber| self.0.step(*number).id.as_str();
        self.0.layers().iter().map(|layer| layer.iter().map(name).collect()).collect()
    }

    /// Warnings: what its author should know.
    async fn diagnostics(&self) -> Vec<Diagnostic> {
        diagnostics(self.0.diagnostics())
    }

    /// The newest executions of the plan, oldest first.
    async fn executions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "At most so many, 1 to 200.", default_with = "Some(50)")] last: Option<
            i32,
        >,
    ) -> Result<Vec<Execution>> {
        let most = count("last", last.unwrap_or(LAST), MOST)?;
        let filter = ExecutionFilter { plan: Some(self.0.id()), ..ExecutionFilter::default() };
        let heads = ctx.data::<Engine>()?.executions.reader.newest(&filter, most, |_| true).await;
        let heads = heads.map_err(super::error::ApiError::from)?;
        let ids: Vec<_> = heads.iter().map(|head| head.execution).collect();
        let executions = ctx.data::<Loaders>()?.executions(&ids).await?;
        Ok(executions.into_iter().map(Execution).collect())
    }

    /// A picture of it as a Mermaid flowchart; arrows lead from a step to what depends on it.
    async fn mermaid(&self) -> String {
        drawing::mermaid(&self.0)
    }

    /// A picture of it as a DOT graph; arrows lead from a step to what depends on it.
    async fn dot(&self) -> String {
        drawing::dot(&self.0)
    }

    /// Where its steps are drawn, for clients that draw it themselves; edges lead from a step to
    /// what depends on it.
    async fn layout(
        &self,
        #[graphql(desc = "Which way edges lead.", default_with = "Some(LayoutDirection::Right)")]
        direction: Option<LayoutDirection>,
        #[graphql(desc = "How wide a step is, 1 to 2000.", default_with = "Some(200.0)")]
        node_width: Option<f64>,
        #[graphql(desc = "How high a step is, 1 to 2000.", default_with = "Some(52.0)")]
        node_height: Option<f64>,
        #[graphql(desc = "The steps that are not as large as that: those that are opened.")]
        sizes: Option<Vec<NodeSizeInput>>,
    ) -> Result<Layout> {
        let sizes = sizes.unwrap_or_default();
        let wish = Wish { direction, width: node_width, height: node_height, sizes };
        Ok(layout::draw(drawing::graph(&self.0), wish).await?)
    }
}

/// One tool call of a plan; in short, a step.
pub(super) struct ToolExecution {
    plan: Arc<shared::plan::Plan>,
    number: StepNumber,
}

impl ToolExecution {
    fn step(&self) -> &shared::plan::ToolExecution {
        self.plan.step(self.number)
    }
}

/// One tool call of a plan; in short, a step.
#[Object]
impl ToolExecution {
    /// Its name within the plan.
    async fn step_id(&self) -> &str {
        self.step().id.as_str()
    }

    /// The tool, as `set.name`.
    async fn tool_name(&self) -> &str {
        self.step().tool.as_str()
    }

    /// The parameters as they were written, templates and all.
    async fn parameters(&self) -> &Value {
        &self.step().parameters
    }

    /// The steps that must be over before it starts, those that its templates name included.
    async fn depends_on(&self) -> Vec<&str> {
        let on = self.step().depends_on.iter();
        on.map(|number| self.plan.step(*number).id.as_str()).collect()
    }

    /// Which path of its output fills which variable. Null where none does.
    async fn output_mapping(&self) -> Option<Value> {
        let mapped = &self.step().output_mapping;
        let pair = |mapping: &OutputMapping| {
            (mapping.written.clone(), Value::String((*mapping.variable).to_owned()))
        };
        let pairs: Map<String, Value> = mapped.iter().map(pair).collect();
        (!pairs.is_empty()).then_some(Value::Object(pairs))
    }

    /// What a second call does.
    async fn effect(&self) -> Effect {
        self.step().policy.effect.into()
    }

    /// The plan that it executes instead of calling a tool, `plan_…`.
    async fn plan(&self) -> Option<ID> {
        match self.step().kind {
            StepKind::Plan(id) => Some(ID(id.to_string())),
            _ => None,
        }
    }

    /// Its condition, in CEL. Where it does not hold the step is skipped.
    #[graphql(name = "when")]
    async fn condition(&self) -> Option<&str> {
        self.step().when.as_ref().map(Condition::source)
    }

    /// The template of the list for each item of which it is done.
    async fn for_each(&self) -> Option<&str> {
        self.step().for_each.as_ref().map(|list| list.written.as_str())
    }

    /// The call that undoes it, where the execution does not end well and compensates: `toolName`,
    /// `parameters`, `effect`, `timeoutMs`, `retry`.
    async fn compensate(&self) -> Option<Value> {
        self.step().compensate.as_deref().map(|call| {
            json!({
                "toolName": call.tool,
                "parameters": call.parameters,
                "effect": call.policy.effect,
                "timeoutMs": call.policy.timeout_ms,
                "retry": call.policy.retry,
            })
        })
    }

    /// How long an attempt may take, in milliseconds. Null for one that takes as long as it takes:
    /// a sleep, or another plan.
    async fn timeout_ms(&self) -> Option<i64> {
        let step = self.step();
        match step.kind {
            StepKind::Call => Some(int(step.policy.timeout_ms)),
            _ => step.policy.explicit_timeout_ms().map(int),
        }
    }

    /// How long an attempt may take without reporting progress, in milliseconds.
    async fn idle_timeout_ms(&self) -> Option<i64> {
        self.step().policy.idle_timeout_ms.map(int)
    }

    /// How long what it returns may stand for what another call with the same parameters would
    /// return, in milliseconds.
    async fn cache_ttl_ms(&self) -> Option<i64> {
        self.step().policy.cache_ttl_ms.map(int)
    }

    /// Whether a template that finds nothing fails it. Null where the options or its effect decide.
    async fn strict_templates(&self) -> Option<bool> {
        self.step().policy.strict_templates
    }

    /// How many items of its `forEach` are done at once.
    async fn max_parallel(&self) -> Option<u32> {
        self.step().policy.max_parallel
    }

    /// How often and when it is tried again: `maxAttempts`, `backoffMs`, `multiplier`,
    /// `maxBackoffMs`, `jitter`.
    async fn retry(&self) -> Option<Value> {
        serde_json::to_value(self.step().policy.retry).ok()
    }

    /// What its failure means for the others: `fail`, `continue`, `ignore` or `wait`.
    async fn on_error(&self) -> &'static str {
        OnError::as_str(self.step().policy.on_error)
    }

    /// Whether a person must agree before it starts.
    async fn requires_approval(&self) -> bool {
        self.step().policy.requires_approval
    }
}
