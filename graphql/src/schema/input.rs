//! What clients may say: drafts, options, filters.

use std::sync::Arc;

use async_graphql::{Enum, ID, InputObject};
use planner::draft::{Draft, DraftRetry, DraftStep, SubDraft};
use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    execution::{ExecutionOptions as Options, ReplanOptions},
    json, limits, store,
};

use super::{
    error::{ApiResult, exceeded, invalid},
    execution::{ExecutionMode, ExecutionState},
    rounded::{self, Written},
    scalar::DateTime,
};
use crate::engine::{self, Order};

/// A plan as a person or a model writes it.
#[derive(Clone, Debug, InputObject)]
pub(super) struct PlanInput {
    /// What it is for, in words. The names of its tools where it is left out.
    query: Option<String>,
    /// The request that it is to be the next version of. It must exist.
    request_id: Option<ID>,
    /// The steps, in any order.
    tools: Vec<ToolExecutionInput>,
    /// The order that the author thinks is right. It is only checked.
    execution_order: Option<Vec<String>>,
}

/// A step as a person or a model writes it. Exactly one of `name`, `toolName`, `plan` and
/// `inlinePlan` says what it does.
#[derive(Clone, Debug, InputObject)]
pub(super) struct ToolExecutionInput {
    /// A name for the step. Without one it is called like its tool.
    id: Option<String>,
    /// The tool: its name, or `set.name`.
    name: Option<String>,
    /// The same.
    tool_name: Option<String>,
    /// A plan that it executes instead of a tool: `plan_…`, or the name that one was saved under.
    plan: Option<String>,
    /// The same, written here.
    inline_plan: Option<Box<PlanInput>>,
    /// The parameters, an object. Text in it may hold `{{step.path}}`.
    parameters: Option<Value>,
    /// What to wait for, besides what templates name: null, a name, or a list of names.
    depends_on: Option<Value>,
    /// `{"path in the output": "variable"}`.
    output_mapping: Option<Value>,
    /// A condition in CEL, over `steps["id"]`, `vars` and `input`. Where it does not hold the step
    /// is skipped.
    when: Option<String>,
    /// One template of a list, `{{step.items}}`: the step is done for each `{{item}}`, with its
    /// `{{index}}` from 0.
    for_each: Option<String>,
    /// How many items are done at once. 256 where it is left out.
    max_parallel: Option<i64>,
    /// How often and when it is tried again.
    retry: Option<RetryInput>,
    /// How long an attempt may take, in milliseconds. Five minutes where it is left out.
    timeout_ms: Option<i64>,
    /// How long an attempt may take without reporting progress, in milliseconds.
    idle_timeout_ms: Option<i64>,
    /// How long what a READ tool returns may stand for what another call with the same parameters
    /// would return, in milliseconds.
    cache_ttl_ms: Option<i64>,
    /// Whether a template that finds nothing fails the step. Where it is left out, what the options
    /// say, and else the effect of the tool: one that is not READ fails.
    strict_templates: Option<bool>,
    /// What its failure means for the others: `fail`, `continue`, `ignore` or `wait`.
    on_error: Option<String>,
    /// The call that undoes it, where the execution does not end well and `compensateOnFailure` is
    /// set: `{"name" or "toolName", "parameters", "retry", "timeoutMs"}`.
    compensate: Option<Value>,
    /// Whether a person must agree before it starts.
    requires_approval: Option<bool>,
}

/// How often and when a step is tried again.
#[derive(Clone, Copy, Debug, InputObject)]
pub(super) struct RetryInput {
    /// Tries in all. 1 where it is left out.
    max_attempts: Option<i64>,
    /// The wait before the second try, in milliseconds. 100 where it is left out.
    backoff_ms: Option<i64>,
    /// The longest wait, in milliseconds. 30000 where it is left out.
    max_backoff_ms: Option<i64>,
    /// What the wait is multiplied by each time. 2 where it is left out.
    multiplier: Option<f64>,
    /// Whether each wait is drawn between half of it and all of it. True where it is left out.
    jitter: Option<bool>,
}

impl PlanInput {
    /// Returns the draft that it is. Of the request's text, where there is one, it is known which
    /// numbers were `written` in it.
    pub(super) fn into_draft(self, written: Option<&Written>) -> Draft {
        let mut notices = Vec::new();
        let steps = self.tools.into_iter().enumerate();
        let tools = steps.map(|(at, step)| step.into_draft(at, written, &mut notices)).collect();
        Draft {
            query: self.query,
            request_id: self.request_id.map(|id| id.0),
            tools,
            execution_order: self.execution_order,
            notices,
        }
    }
}

impl ToolExecutionInput {
    fn into_draft(
        self,
        at: usize,
        written: Option<&Written>,
        notices: &mut Vec<Diagnostic>,
    ) -> DraftStep {
        if let Some(parameters) = &self.parameters {
            let mut path = format!("tools[{at}].parameters");
            rounded::notice(parameters, &mut path, written, notices);
        }
        let inline =
            self.inline_plan.map(|plan| SubDraft::Inline(Box::new(plan.into_draft(written))));
        if inline.is_some() && self.plan.is_some() {
            let message = "a step has `plan` or `inlinePlan`, not both";
            let notice = Diagnostic::error("plan.two_tools", format!("tools[{at}]"), message);
            notices.push(notice.with_help("write exactly one of the two"));
        }
        DraftStep {
            id: self.id,
            name: self.name,
            tool_name: self.tool_name,
            plan: self.plan.map(SubDraft::Named).or(inline),
            parameters: self.parameters,
            depends_on: self.depends_on,
            output_mapping: self
                .output_mapping
                .and_then(|mapping_json| mapping(mapping_json, at, notices)),
            retry: self.retry.map(|retry| DraftRetry {
                max_attempts: retry.max_attempts,
                backoff_ms: retry.backoff_ms,
                max_backoff_ms: retry.max_backoff_ms,
                multiplier: retry.multiplier,
                jitter: retry.jitter,
            }),
            timeout_ms: self.timeout_ms,
            on_error: self.on_error,
            when: self.when,
            for_each: self.for_each,
            max_parallel: self.max_parallel,
            compensate: self.compensate,
            idle_timeout_ms: self.idle_timeout_ms,
            cache_ttl_ms: self.cache_ttl_ms,
            strict_templates: self.strict_templates,
            requires_approval: self.requires_approval,
        }
    }
}

fn mapping(value: Value, at: usize, notices: &mut Vec<Diagnostic>) -> Option<Map<String, Value>> {
    match value {
        Value::Object(mapping) => Some(mapping),
        Value::Null => None,
        _ => {
            let path = format!("tools[{at}].outputMapping");
            let message = "an output mapping must be an object";
            let help = "write `{\"path in the output\": \"variable\"}`";
            notices.push(Diagnostic::error("plan.invalid_mapping", path, message).with_help(help));
            None
        }
    }
}

/// How a plan is made.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct PlanningOptions {
    /// Which planner: `offline`, or `model` where one is configured. The configured one where it is
    /// left out.
    planner: Option<String>,
    /// Only tools of these sets.
    tool_sets: Option<Vec<String>>,
    /// Only tools that the toolkit recommends for these actions, and for those one `next` edge
    /// away.
    actions: Option<Vec<String>>,
    /// The most tools that the planner is shown, 1 to 1000: those that fit the query best; 64 where
    /// it is left out.
    max_tools: Option<i32>,
    /// Whether a plan is taken again that a model made before; as configured where it is left out.
    /// Plans that are made anew after a failure never are.
    cache: Option<PlanCache>,
}

/// Whether a plan is taken again that a model made before, with the same tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::PlanCache")]
pub(super) enum PlanCache {
    /// Never, and what is made now is not kept.
    Off,
    /// Of exactly the same query.
    Exact,
}

impl From<Option<PlanningOptions>> for engine::PlanningOptions {
    fn from(options: Option<PlanningOptions>) -> Self {
        let PlanningOptions { planner, tool_sets, actions, max_tools, cache } =
            options.unwrap_or_default();
        let (tool_sets, actions) = (tool_sets.unwrap_or_default(), actions.unwrap_or_default());
        let cache = cache.map(Into::into);
        Self { planner, tool_sets, actions, max_tools, is_last: false, cache }
    }
}

/// How an agent does what it is asked.
#[derive(Clone, Debug, InputObject)]
pub(super) struct AgentOptions {
    /// Which model: `model`, the name of its provider, or its own.
    planner: Option<String>,
    /// How often it may call tools and see what comes of that, 0 to 32.
    #[graphql(default_with = "Some(3)")]
    max_tool_turns: Option<i64>,
    /// Only tools of these sets.
    tool_sets: Option<Vec<String>>,
}

impl From<Option<AgentOptions>> for engine::AgentOptions {
    fn from(options: Option<AgentOptions>) -> Self {
        let Some(AgentOptions { planner, max_tool_turns, tool_sets }) = options else {
            return Self::default();
        };
        Self { planner, max_tool_turns, tool_sets: tool_sets.unwrap_or_default() }
    }
}

/// How a plan is carried out.
#[derive(Clone, Debug, InputObject)]
pub(super) struct ExecutionOptions {
    /// One step at a time, or whatever is ready.
    #[graphql(default_with = "Some(ExecutionMode::Parallel)")]
    mode: Option<ExecutionMode>,
    /// Steps that run at once, in parallel mode. 256 where it is left out.
    max_parallel: Option<i64>,
    /// Asks for it at most once: the same key gives the same execution.
    idempotency_key: Option<String>,
    /// Milliseconds after its start at which it fails.
    deadline_ms: Option<i64>,
    /// Whether a template that finds nothing fails its step. Where it is left out, the effect of the
    /// tool decides: a READ tool is given the text as it was written, every other one fails. What a
    /// step itself says comes first.
    strict_templates: Option<bool>,
    /// What the plan is given: `{{input.x}}`.
    input: Option<Value>,
    /// Whether what succeeded is undone, the latest first, if the execution fails or is cancelled: by
    /// the steps' `compensate`. If it is left out: yes, if a step of the plan, or of a plan that it
    /// executes, has `compensate`, and no replans are asked for.
    compensate_on_failure: Option<bool>,
    /// Whether everything is checked and nothing is called. The execution is over at once.
    #[graphql(default_with = "Some(false)")]
    dry_run: Option<bool>,
    /// The moment before which no step starts.
    start_at: Option<DateTime>,
    /// Higher goes first where workers have a choice.
    #[graphql(default_with = "Some(0)")]
    priority: Option<i32>,
    /// How often, 0 to 16, a model plans anew by itself how to go on: where the execution does not end
    /// well, or a `flow.replan` step asks for it. Where it is left out, never after a failure, and up to
    /// 4 times in a row where a step asks for it.
    replans: Option<i32>,
}

impl ExecutionOptions {
    /// Returns how an execution is asked for.
    pub(super) fn order(options: Option<Self>) -> ApiResult<Order> {
        let Some(written) = options else { return Ok(Order::default()) };
        let options = Options {
            mode: written.mode.unwrap_or(ExecutionMode::Parallel).into(),
            max_parallel: at_least_one("maxParallel", written.max_parallel)?,
            deadline_ms: at_least_one("deadlineMs", written.deadline_ms)?,
            strict_templates: written.strict_templates,
            start_at: written.start_at.map(|at| at.0),
            priority: written.priority.unwrap_or(0),
            input: Arc::new(given(written.input)?),
            compensate_on_failure: false,
            dry_run: written.dry_run.unwrap_or(false),
            replans: written.replans.map_or_else(|| Ok(ReplanOptions::default()), replans)?,
        };
        let compensates = written.compensate_on_failure;
        Ok(Order { options, compensates, idempotency_key: written.idempotency_key })
    }
}

fn replans(times: i32) -> ApiResult<ReplanOptions> {
    let within = u32::try_from(times).ok().filter(|times| *times <= limits::REPLANS);
    within.map(ReplanOptions::times).ok_or_else(|| {
        let most = limits::REPLANS;
        invalid(format!("`replans` is {times}; write a number from 0 to {most}"))
    })
}

/// Checks what a plan is given.
pub(super) fn given(input: Option<Value>) -> ApiResult<Value> {
    let input = input.unwrap_or_default();
    if json::json_size(&input) > limits::OUTPUT_BYTES {
        let most = limits::OUTPUT_BYTES;
        return Err(exceeded(format!("`input` has more than {most} bytes")));
    }
    if json::is_deeper_than(&input, limits::JSON_DEPTH) {
        let most = limits::JSON_DEPTH;
        return Err(invalid(format!("`input` is nested deeper than {most}")));
    }
    Ok(input)
}

fn at_least_one<T: TryFrom<i64>>(name: &str, number: Option<i64>) -> ApiResult<Option<T>> {
    let Some(number) = number else { return Ok(None) };
    let within =
        Some(number).filter(|number| *number >= 1).and_then(|number| T::try_from(number).ok());
    within.map(Some).ok_or_else(|| invalid(format!("`{name}` must not be {number}")))
}

/// Which requests to list.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct RequestFilter {
    /// Words of the query; case does not matter.
    search: Option<String>,
    /// Not before.
    from: Option<DateTime>,
    /// Before.
    to: Option<DateTime>,
    /// With an execution in this state. `FAILED` also finds requests of which no plan came.
    state: Option<ExecutionState>,
    /// With an execution, or a child of one, that waits for an approval, a decision about a failed
    /// step, or a signal, or that is paused. `false` finds all others.
    needs_person: Option<bool>,
}

impl RequestFilter {
    /// Returns the store's filter.
    pub(super) fn read(self) -> ApiResult<store::RequestFilter> {
        Ok(store::RequestFilter {
            search: search(self.search)?,
            from: self.from.map(|from| from.0),
            to: self.to.map(|to| to.0),
            state: self.state.map(Into::into),
            needs_person: self.needs_person,
        })
    }
}

fn search(text: Option<String>) -> ApiResult<Option<String>> {
    let (words, most) = (store::search_words(text.as_deref()).len(), limits::SEARCH_WORDS);
    if words > most {
        let why = format!("`search` has {words} different words; the most is {most}");
        return Err(exceeded(why));
    }
    Ok(text)
}

/// Which plans to list.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct PlanFilter {
    /// Of this request.
    request_id: Option<ID>,
    /// Words of the query; case does not matter.
    search: Option<String>,
}

impl PlanFilter {
    /// Returns the store's filter, or nothing where no plan can match.
    pub(super) fn read(self) -> ApiResult<Option<store::PlanFilter>> {
        let search = search(self.search)?;
        let request = self.request_id.map(|id| id.parse()).transpose().ok();
        Ok(request.map(|request| store::PlanFilter { request, search }))
    }
}

/// Which executions to list.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct ExecutionFilter {
    /// In one of these states.
    state: Option<Vec<ExecutionState>>,
    /// Of this request.
    request_id: Option<ID>,
    /// Of this plan.
    plan_id: Option<ID>,
    /// Whose plan uses this tool: its name, or `set.name`.
    tool_name: Option<String>,
    /// Whether those count that steps of others began. They do where nothing is said.
    parts: Option<bool>,
    /// Created not before.
    from: Option<DateTime>,
    /// Created before.
    to: Option<DateTime>,
    /// That wait for an approval, a decision about a failed step, or a signal, or that are paused.
    /// `false` finds all others. A child is listed itself; with `parts: false`, an execution counts
    /// if one of its children does.
    needs_person: Option<bool>,
}

impl ExecutionFilter {
    /// Returns the store's filter, or nothing where no execution can match.
    pub(super) fn read(self) -> Option<store::ExecutionFilter> {
        let states = self.state.map(|states| states.into_iter().map(Into::into).collect());
        // A list without a state matches none; the store reads it as any.
        if states.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        Some(store::ExecutionFilter {
            states: states.unwrap_or_default(),
            request: self.request_id.map(|id| id.parse()).transpose().ok()?,
            plan: self.plan_id.map(|id| id.parse()).transpose().ok()?,
            is_root: self.parts == Some(false),
            tool: self.tool_name.map(|name| name.parse()).transpose().ok()?,
            from: self.from.map(|from| from.0),
            to: self.to.map(|to| to.0),
            needs_person: self.needs_person,
        })
    }
}
