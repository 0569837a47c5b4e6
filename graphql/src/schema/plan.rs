use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use engine::{Engine, Verdict};
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
    connection::{DEFAULT_LAST, MAX_PAGE_SIZE, check_count},
    drawing,
    execution::ApiExecution,
    layout::{self, DrawingOptions, Layout, LayoutDirection, NodeSizeInput},
    loaders::Loaders,
    planned_call::{PlannedCompensation, RetryPolicy},
    request::Request,
    scalar::{DateTime, to_int},
    text_enums,
};

/// Effect of a tool: what a second call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "tool::Effect")]
pub(super) enum Effect {
    /// A call only reads, so a second call changes nothing.
    Read,
    /// A second call leaves the same result as the first call.
    Idempotent,
    /// A second call can do harm. If the outcome of a call is unknown, Faber does not repeat the
    /// call by itself.
    Once,
}

/// Severity of a diagnostic or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "diagnostic::Severity")]
pub(super) enum Severity {
    /// Problem that prevents the plan. In a finding: a failure.
    Error,
    /// Problem that does not prevent the plan, but that the author of the draft should check. In a
    /// finding: an action can help.
    Warning,
    /// Information. No action is needed.
    Info,
}

/// Problem of a draft, or a warning about a plan.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Diagnostic {
    /// Severity. An `ERROR` prevents the plan.
    severity: Severity,
    /// Stable code such as `plan.cycle`.
    code: String,
    /// Position in the draft, such as `tools[1].parameters.authorId`.
    path: String,
    /// Description of the problem.
    message: String,
    /// How to correct the problem. Null if there is no advice.
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

fn to_api_diagnostics(all: &[diagnostic::Diagnostic]) -> Vec<Diagnostic> {
    all.iter().map(Diagnostic::from).collect()
}

pub(super) struct PlanPayload(pub(super) Verdict);

/// Result of compiling a draft.
#[Object]
impl PlanPayload {
    /// Compiled plan. Null if a diagnostic is an `ERROR`.
    async fn plan(&self) -> Option<Plan> {
        self.0.plan.clone().map(Plan)
    }

    /// Errors and warnings of the draft, at most 100 of each. If there are more, a diagnostic
    /// `plan.more` says how many.
    async fn diagnostics(&self) -> Vec<Diagnostic> {
        to_api_diagnostics(&self.0.diagnostics)
    }
}

#[derive(Clone)]
pub(super) struct Plan(pub(super) Arc<shared::plan::Plan>);

/// Compiled plan: steps in an order that respects their dependencies. A plan never changes. A
/// revision is a new version.
#[Object]
impl Plan {
    /// Same as `planId`. Identifies the object in the whole API.
    pub(super) async fn id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// Id of the plan, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// Id of the request that the plan belongs to, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.0.info().request.to_string())
    }

    /// Request that the plan belongs to.
    async fn request(&self, ctx: &Context<'_>) -> Result<Option<Request>> {
        let request = ctx.data::<Loaders>()?.request(self.0.info().request).await?;
        Ok(request.map(Request))
    }

    /// Version of the plan within its request, from 1.
    async fn version(&self) -> u32 {
        self.0.info().version
    }

    /// Purpose of the plan, in words.
    async fn query(&self) -> &str {
        &self.0.info().query
    }

    /// Time at which the plan was compiled.
    async fn created_at(&self) -> DateTime {
        self.0.info().created_at.into()
    }

    /// Author of the draft: `offline`, the name of a model, or `explicit` if a person or a program
    /// wrote the plan.
    async fn planner(&self) -> &str {
        &self.0.info().planner
    }

    /// Steps of the plan, in execution order.
    async fn tools(&self) -> Vec<ToolExecution> {
        let steps = 0..self.0.steps().len();
        steps
            .map(|index| ToolExecution {
                plan: Arc::clone(&self.0),
                number: StepNumber::new(index),
            })
            .collect()
    }

    /// Ids of the steps in execution order: each step comes after its dependencies. Of all steps
    /// that can come next, the first one in the draft comes next.
    async fn execution_order(&self) -> Vec<&str> {
        self.0.steps().iter().map(|step| step.id.as_str()).collect()
    }

    /// Groups of steps that can run at the same time, as step ids. Each step is in the first group
    /// after the groups of its dependencies.
    async fn layers(&self) -> Vec<Vec<&str>> {
        let name = |number: &StepNumber| self.0.step(*number).id.as_str();
        self.0.layers().iter().map(|layer| layer.iter().map(name).collect()).collect()
    }

    /// Warnings about the plan.
    async fn diagnostics(&self) -> Vec<Diagnostic> {
        to_api_diagnostics(self.0.diagnostics())
    }

    /// The newest `last` executions of the plan, oldest first.
    async fn executions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Number of executions, from 1 to 200.", default_with = "Some(50)")]
        last: Option<i32>,
    ) -> Result<Vec<ApiExecution>> {
        let maximum = check_count("last", last.unwrap_or(DEFAULT_LAST), MAX_PAGE_SIZE)?;
        let filter = ExecutionFilter { plan: Some(self.0.id()), ..ExecutionFilter::default() };
        let heads =
            ctx.data::<Engine>()?.executions.reader.newest_heads(&filter, maximum, |_| true).await;
        let heads = heads.map_err(super::error::ApiError::from)?;
        let ids: Vec<_> = heads.iter().map(|head| head.execution).collect();
        let executions = ctx.data::<Loaders>()?.executions(&ids).await?;
        Ok(executions.into_iter().map(ApiExecution).collect())
    }

    /// Drawing of the plan as a Mermaid flowchart. Arrows lead from a step to its dependents.
    async fn mermaid(&self) -> String {
        drawing::draw_mermaid(&self.0)
    }

    /// Drawing of the plan in Graphviz DOT. Arrows lead from a step to its dependents.
    async fn dot(&self) -> String {
        drawing::draw_dot(&self.0)
    }

    /// Positions for clients that draw the plan themselves. Edges lead from a step to its
    /// dependents.
    async fn layout(
        &self,
        #[graphql(desc = "Direction of the edges.", default_with = "Some(LayoutDirection::Right)")]
        direction: Option<LayoutDirection>,
        #[graphql(desc = "Step width in pixels, from 1 to 2000.", default_with = "Some(200.0)")]
        node_width: Option<f64>,
        #[graphql(desc = "Step height in pixels, from 1 to 2000.", default_with = "Some(52.0)")]
        node_height: Option<f64>,
        #[graphql(desc = "Sizes of single steps, which replace `nodeWidth` and `nodeHeight`.")]
        sizes: Option<Vec<NodeSizeInput>>,
    ) -> Result<Layout> {
        let sizes = sizes.unwrap_or_default();
        let wish = DrawingOptions { direction, width: node_width, height: node_height, sizes };
        Ok(layout::draw_graph(drawing::to_graph(&self.0), wish).await?)
    }
}

pub(super) struct ToolExecution {
    plan: Arc<shared::plan::Plan>,
    number: StepNumber,
}

impl ToolExecution {
    fn step(&self) -> &shared::plan::ToolExecution {
        self.plan.step(self.number)
    }
}

/// Step of a plan: one tool call, a loop of calls, or another plan.
#[Object]
impl ToolExecution {
    /// Id of the step within the plan.
    async fn step_id(&self) -> &str {
        self.step().id.as_str()
    }

    /// Tool, as `set.name`.
    async fn tool_name(&self) -> &str {
        self.step().tool.as_str()
    }

    /// Parameters as written, with templates.
    async fn parameters(&self) -> &Value {
        &self.step().parameters
    }

    /// Ids of the steps that must finish first, including steps named in templates and conditions.
    async fn depends_on(&self) -> Vec<&str> {
        let on = self.step().depends_on.iter();
        on.map(|number| self.plan.step(*number).id.as_str()).collect()
    }

    /// Variables that the step sets, as `{"path in the output": "variable"}`. Null if it sets none.
    async fn output_mapping(&self) -> Option<Value> {
        let mapped = &self.step().output_mapping;
        let pair = |mapping: &OutputMapping| {
            (mapping.written.clone(), Value::String((*mapping.variable).to_owned()))
        };
        let pairs: Map<String, Value> = mapped.iter().map(pair).collect();
        (!pairs.is_empty()).then_some(Value::Object(pairs))
    }

    /// Effect of the tool when the plan was compiled.
    async fn effect(&self) -> Effect {
        self.step().policy.effect.into()
    }

    /// Id of the plan that the step runs, `plan_…`. Null for a step that calls a tool.
    async fn plan(&self) -> Option<ID> {
        match self.step().kind {
            StepKind::Plan(id) => Some(ID(id.to_string())),
            _ => None,
        }
    }

    /// Condition in CEL. If it is false, the step is skipped. Null for a step without a condition.
    #[graphql(name = "when")]
    async fn condition(&self) -> Option<&str> {
        self.step().when.as_ref().map(Condition::source)
    }

    /// Template of a list. The step runs once for each item of this list. Null for a step without a
    /// list.
    async fn for_each(&self) -> Option<&str> {
        self.step().for_each.as_ref().map(|list| list.written.as_str())
    }

    /// Call that undoes the step if the execution compensates: `toolName`, `parameters`, `effect`,
    /// `timeoutMs` and `retry`. Null if nothing undoes the step.
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

    /// Call of `compensate`, with types. Null if nothing undoes the step.
    async fn compensation(&self) -> Option<PlannedCompensation> {
        self.step().compensate.as_deref().map(PlannedCompensation::from)
    }

    /// Time limit of one attempt in milliseconds. Null for a sleep, a wait or a plan without a time
    /// limit.
    async fn timeout_ms(&self) -> Option<i64> {
        let step = self.step();
        match step.kind {
            StepKind::Call => Some(to_int(step.policy.timeout_ms)),
            _ => step.policy.explicit_timeout_ms().map(to_int),
        }
    }

    /// Time in milliseconds after which an attempt without a progress report is stopped. Null
    /// without a limit.
    async fn idle_timeout_ms(&self) -> Option<i64> {
        self.step().policy.idle_timeout_ms.map(to_int)
    }

    /// Time in milliseconds for which the output is cached. Calls with the same parameters reuse
    /// the cached output. Null without caching.
    async fn cache_ttl_ms(&self) -> Option<i64> {
        self.step().policy.cache_ttl_ms.map(to_int)
    }

    /// True if a template that refers to a missing field fails the step. Null if the execution's
    /// options or the effect of the tool decide.
    async fn strict_templates(&self) -> Option<bool> {
        self.step().policy.strict_templates
    }

    /// Maximum number of items that run at the same time. Null means 256.
    async fn max_parallel(&self) -> Option<u32> {
        self.step().policy.max_parallel
    }

    /// Retry policy: `maxAttempts`, `backoffMs`, `multiplier`, `maxBackoffMs` and `jitter`.
    async fn retry(&self) -> Option<Value> {
        serde_json::to_value(self.step().policy.retry).ok()
    }

    /// Retry policy of `retry`, with types.
    async fn retry_policy(&self) -> RetryPolicy {
        self.step().policy.retry.into()
    }

    /// Rule for a failure of the step: `fail`, `continue`, `ignore` or `wait`.
    async fn on_error(&self) -> &'static str {
        OnError::as_str(self.step().policy.on_error)
    }

    /// `onError` as an enum.
    async fn on_error_enum(&self) -> text_enums::OnError {
        self.step().policy.on_error.into()
    }

    /// True if a person must approve the step before it starts.
    async fn requires_approval(&self) -> bool {
        self.step().policy.requires_approval
    }
}
