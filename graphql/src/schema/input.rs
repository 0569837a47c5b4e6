use std::{collections::BTreeMap, sync::Arc};

use async_graphql::{Enum, ID, InputObject};
use engine::Order;
use planner::{
    draft::{Draft, DraftRetry, DraftStep, SubDraft},
    rounded::{self, LargeIntegers},
};
use serde_json::{Map, Value};
use shared::{
    diagnostic::Diagnostic,
    execution::{ExecutionOptions as Options, ReplanOptions},
    json,
    labels::{self, Labels},
    limits,
    store::{self, LabelFilter},
};

use super::{
    error::{ApiResult, invalid_argument, limit_exceeded},
    execution::{ExecutionMode, ExecutionState},
    scalar::DateTime,
};

const MAX_FILTER_IDS: usize = 1_000;

/// Draft of a plan, written by a person or a model.
#[derive(Clone, Debug, InputObject)]
pub(super) struct PlanInput {
    /// Purpose of the plan, in words. Default: the names of its tools.
    query: Option<String>,
    /// Id of an existing request, `req_…`. The plan becomes its next version. Default: a new
    /// request.
    request_id: Option<ID>,
    /// Steps, in any order. Faber computes the execution order from their dependencies.
    tools: Vec<ToolExecutionInput>,
    /// Expected execution order, as step ids. Faber computes its own order, and warns with
    /// `plan.order_differs` if the expected order differs.
    execution_order: Option<Vec<String>>,
}

/// Step of a draft. Exactly one of `name`, `toolName`, `plan` and `inlinePlan` is required.
#[derive(Clone, Debug, InputObject)]
pub(super) struct ToolExecutionInput {
    /// Id of the step within the plan, 1 to 128 characters. Default: the name of the tool, with a
    /// number if that id is taken.
    id: Option<String>,
    /// Tool to call, by its name or as `set.name`.
    name: Option<String>,
    /// Same as `name`.
    tool_name: Option<String>,
    /// Plan to run instead of a tool: a plan id, `plan_…`, or the name of a saved plan.
    plan: Option<String>,
    /// Plan to run instead of a tool, written inline.
    inline_plan: Option<Box<PlanInput>>,
    /// Parameters of the call, a JSON object. Strings can contain templates such as
    /// `{{step.path}}`. Default: `{}`.
    parameters: Option<Value>,
    /// Steps that must finish first: null, a step id, or a list of step ids. Faber adds the steps
    /// that templates and conditions name.
    depends_on: Option<Value>,
    /// Variables to set from the output, as `{"path in the output": "variable"}`. Templates read
    /// them as `{{vars.variable}}`.
    output_mapping: Option<Value>,
    /// Condition in CEL over step ids, `steps["id"]`, `vars` and `input`. If it is false, the step
    /// is skipped.
    when: Option<String>,
    /// Template of a list, such as `{{step.items}}`. The step runs once for each item, and its
    /// templates read `{{item}}` and `{{index}}`, from 0.
    for_each: Option<String>,
    /// Maximum number of items that run at the same time, from 1 to 10000. Default: 256.
    max_parallel: Option<i64>,
    /// Retry policy. Default: one attempt.
    retry: Option<RetryInput>,
    /// Time limit of one attempt in milliseconds, from 1 to 31536000000 (one year). Default: 300000
    /// (5 minutes).
    timeout_ms: Option<i64>,
    /// Time in milliseconds after which an attempt without a progress report is stopped, from 1 to
    /// 31536000000 (one year). Each report starts the time again. Default: no limit.
    idle_timeout_ms: Option<i64>,
    /// Time in milliseconds for which the output is cached, from 1 to 31536000000 (one year). Calls
    /// with the same parameters reuse the cached output. Allowed for `READ` tools only. Default: no
    /// caching.
    cache_ttl_ms: Option<i64>,
    /// True if a template that refers to a missing field fails the step. Default: the value of
    /// `ExecutionOptions.strictTemplates`. If that is not set either, true for tools that are not
    /// `READ`.
    strict_templates: Option<bool>,
    /// Rule for a failure of the step: `fail`, `continue`, `ignore` or `wait`. Default: `fail`.
    on_error: Option<String>,
    /// Call that undoes the step if the execution compensates: an object with `name` or `toolName`,
    /// and optionally `parameters`, `retry` and `timeoutMs`.
    compensate: Option<Value>,
    /// True if a person must approve the step before it starts. Default: false.
    requires_approval: Option<bool>,
}

/// Retry policy of a step. The delay grows from one attempt to the next.
#[derive(Clone, Copy, Debug, InputObject)]
pub(super) struct RetryInput {
    /// Maximum number of attempts, from 1 to 1000. Default: 1.
    max_attempts: Option<i64>,
    /// Delay before the second attempt in milliseconds, from 0 to 31536000000 (one year). Default:
    /// 100.
    backoff_ms: Option<i64>,
    /// Longest delay between attempts in milliseconds, from 0 to 31536000000 (one year). Default:
    /// 30000.
    max_backoff_ms: Option<i64>,
    /// Factor from one delay to the next, from 0 to 1000. Default: 2.
    multiplier: Option<f64>,
    /// True if each delay is shortened at random, by at most half of its length. Default: true.
    jitter: Option<bool>,
}

impl PlanInput {
    /// Converts the input to a draft. `written` contains the large numbers as the request wrote
    /// them, for warnings about digits that are lost.
    pub(super) fn into_draft(self, written: Option<&LargeIntegers>) -> Draft {
        let mut notices = Vec::new();
        let steps = self.tools.into_iter().enumerate();
        let tools = steps
            .map(|(step_index, step)| step.into_draft(step_index, written, &mut notices))
            .collect();
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
        step_index: usize,
        written: Option<&LargeIntegers>,
        notices: &mut Vec<Diagnostic>,
    ) -> DraftStep {
        if let Some(parameters) = &self.parameters {
            let path = format!("tools[{step_index}].parameters");
            rounded::warn_of_input(parameters, &path, written, notices);
        }
        let inline =
            self.inline_plan.map(|plan| SubDraft::Inline(Box::new(plan.into_draft(written))));
        if inline.is_some() && self.plan.is_some() {
            let message = "a step has `plan` or `inlinePlan`, not both";
            let notice =
                Diagnostic::error("plan.two_tools", format!("tools[{step_index}]"), message);
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
                .and_then(|mapping_json| parse_mapping(mapping_json, step_index, notices)),
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

fn parse_mapping(
    value: Value,
    step_index: usize,
    notices: &mut Vec<Diagnostic>,
) -> Option<Map<String, Value>> {
    match value {
        Value::Object(mapping) => Some(mapping),
        Value::Null => None,
        _ => {
            let path = format!("tools[{step_index}].outputMapping");
            let message = "an output mapping must be an object";
            let help = "write `{\"path in the output\": \"variable\"}`";
            notices.push(Diagnostic::error("plan.invalid_mapping", path, message).with_help(help));
            None
        }
    }
}

/// Options of planning.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct PlanningOptions {
    /// Planner: `offline`, or the configured model as `model`, by the name of the model or by the
    /// name of its provider. Default: the configured model if there is one, otherwise `offline`.
    planner: Option<String>,
    /// Toolsets whose tools the plan is allowed to use. Default: all active toolsets. Fails with
    /// `INVALID_ARGUMENT` if a name is unknown.
    tool_sets: Option<Vec<String>>,
    /// Actions of the toolkit. The plan can use only the tools that the toolkit recommends for
    /// these actions and for actions one `next` edge away. Default: all tools.
    actions: Option<Vec<String>>,
    /// Maximum number of tools that the planner sees, from 1 to 1000. The tools that fit the query
    /// best are kept. Default: 256. A model sees all if there are at most 24, otherwise the best 8.
    max_tools: Option<i32>,
    /// Use of the plan cache. Default: the configured value. Replans never use the cache.
    cache: Option<PlanCache>,
    /// Rule for calls of a model's plan that the query does not ask for, or whose values it does
    /// not contain. A rule that is less strict than the configured rule has no effect. Default: the
    /// configured rule.
    guard: Option<PlanGuard>,
    /// Labels of the new request: an object with at most 16 texts, such as `{"team": "shop"}`. A
    /// key has 1 to 63 of the characters `a-z0-9._/-`, a value at most 256 characters. Executions
    /// of the request's plans inherit them. `replanExecution` rejects labels, because it plans
    /// under an existing request.
    labels: Option<Value>,
}

/// Use of the plan cache, which stores the drafts of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::PlanCache")]
pub(super) enum PlanCache {
    /// Reads no cached draft, and caches no draft.
    Off,
    /// Reuses the draft of an identical query with the same tools.
    Exact,
}

/// Rule for calls with an effect in a model's plan. The query must ask for each of these calls, and
/// must contain its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::Guard")]
pub(super) enum PlanGuard {
    /// Refuses the plan with `INVALID_PLAN` if the query does not ask for a call. A step needs an
    /// approval if the query does not contain its values.
    Strict,
    /// A step needs an approval if the query does not ask for its call, or does not contain its
    /// values.
    Approve,
    /// The plan only gets a warning if the query does not ask for a call, or does not contain its
    /// values.
    Off,
}

impl PlanningOptions {
    pub(super) fn to_engine(options: Option<Self>) -> ApiResult<engine::PlanningOptions> {
        let Some(written) = options else { return Ok(engine::PlanningOptions::default()) };
        Ok(engine::PlanningOptions {
            planner: written.planner,
            tool_sets: written.tool_sets.unwrap_or_default(),
            actions: written.actions.unwrap_or_default(),
            max_tools: written.max_tools,
            is_last: false,
            cache: written.cache.map(Into::into),
            guard: written.guard.map(Into::into),
            labels: parse_labels(written.labels)?,
        })
    }
}

/// Options of an agent.
#[derive(Clone, Debug, InputObject)]
pub(super) struct AgentOptions {
    /// Name of the configured model, name of its provider, or `model`. All three mean the
    /// configured model. Default: the configured model.
    planner: Option<String>,
    /// Maximum number of turns in which the model can call tools, from 0 to 32.
    #[graphql(default_with = "Some(3)")]
    max_tool_turns: Option<i64>,
    /// Toolsets whose tools the agent is allowed to use. Default: all active toolsets. Fails with
    /// `INVALID_ARGUMENT` if a name is unknown.
    tool_sets: Option<Vec<String>>,
}

impl From<AgentOptions> for engine::AgentOptions {
    fn from(AgentOptions { planner, max_tool_turns, tool_sets }: AgentOptions) -> Self {
        Self { planner, max_tool_turns, tool_sets: tool_sets.unwrap_or_default() }
    }
}

/// Options of an execution.
#[derive(Clone, Debug, InputObject)]
pub(super) struct ExecutionOptions {
    /// Order in which steps run.
    #[graphql(default_with = "Some(ExecutionMode::Parallel)")]
    mode: Option<ExecutionMode>,
    /// Maximum number of steps that run at the same time, at least 1. Ignored in `SEQUENTIAL` mode.
    /// Default: 256.
    max_parallel: Option<i64>,
    /// Key that makes the start safe to repeat, at most 4096 bytes. A second start with the same
    /// key returns the first execution. Fails with `CONFLICT` if the key was used with another plan
    /// or other options.
    idempotency_key: Option<String>,
    /// Time in milliseconds from the start of the execution to its deadline, at least 1. The
    /// execution fails if it has not finished by then. Default: no deadline.
    deadline_ms: Option<i64>,
    /// True if a template that refers to a missing field fails its step. Default: true for tools
    /// that are not `READ`. A `READ` tool gets the text of the template. `strictTemplates` of a
    /// step takes precedence.
    strict_templates: Option<bool>,
    /// Input, at most 1 MiB of JSON. Templates read it as `{{input.x}}`.
    input: Option<Value>,
    /// True if Faber undoes successful steps in reverse order when the execution fails or is
    /// cancelled, with the calls in `compensate`. Default: true if a step of the plan or of a
    /// sub-plan has `compensate` and no automatic replan is possible, neither after a failure
    /// (`replans`) nor by a `flow.replan` step.
    compensate_on_failure: Option<bool>,
    /// True if Faber checks the plan with its input and calls no tool. The execution finishes at
    /// once.
    #[graphql(default_with = "Some(false)")]
    dry_run: Option<bool>,
    /// Time before which no step starts. Default: now.
    start_at: Option<DateTime>,
    /// Priority. Workers claim executions with a higher priority first.
    #[graphql(default_with = "Some(0)")]
    priority: Option<i32>,
    /// Maximum number of consecutive automatic replans, from 0 to 16: after a failure, or when a
    /// `flow.replan` step asks for it. Without a configured model, Faber replans only plans of the
    /// `offline` planner, and only after a failure. Default: at most 4 if a step asks for them, and
    /// none after a failure.
    replans: Option<i32>,
    /// Labels, by which executions can be found and counted: an object with at most 16 texts, such
    /// as `{"team": "shop"}`. A key has 1 to 63 of the characters `a-z0-9._/-`, a value at most 256
    /// characters. The execution also has the labels of its request whose keys are not given here.
    /// Fails with `INVALID_ARGUMENT` if these are more than 16 labels together. Children, retries
    /// and replans inherit them.
    labels: Option<Value>,
}

impl ExecutionOptions {
    pub(super) fn to_order(options: Option<Self>) -> ApiResult<Order> {
        let Some(written) = options else { return Ok(Order::default()) };
        let options = Options {
            mode: written.mode.unwrap_or(ExecutionMode::Parallel).into(),
            max_parallel: parse_positive("maxParallel", written.max_parallel)?,
            deadline_ms: parse_positive("deadlineMs", written.deadline_ms)?,
            strict_templates: written.strict_templates,
            start_at: written.start_at.map(|start_at| start_at.0),
            priority: written.priority.unwrap_or(0),
            input: Arc::new(check_input(written.input)?),
            compensate_on_failure: false,
            dry_run: written.dry_run.unwrap_or(false),
            replans: written.replans.map_or_else(|| Ok(ReplanOptions::default()), parse_replans)?,
            labels: parse_labels(written.labels)?,
        };
        let compensates = written.compensate_on_failure;
        Ok(Order { options, compensates, idempotency_key: written.idempotency_key })
    }
}

fn parse_replans(times: i32) -> ApiResult<ReplanOptions> {
    let within = u32::try_from(times).ok().filter(|times| *times <= limits::REPLANS);
    within.map(ReplanOptions::times).ok_or_else(|| {
        let maximum = limits::REPLANS;
        invalid_argument(format!("`replans` is {times}; write a number from 0 to {maximum}"))
    })
}

fn parse_labels(labels: Option<Value>) -> ApiResult<Labels> {
    let Some(labels) = labels.filter(|labels| !labels.is_null()) else {
        return Ok(Labels::new());
    };
    let labels: Labels = serde_json::from_value(labels).map_err(|_| {
        invalid_argument("`labels` must be an object of texts, such as `{\"team\": \"shop\"}`")
    })?;
    labels::check(&labels).map_err(invalid_argument)?;
    Ok(labels)
}

/// Parses the labels of a filter. A value `null` means any value.
fn parse_label_filters(labels: Option<Value>) -> ApiResult<Vec<LabelFilter>> {
    let Some(labels) = labels.filter(|labels| !labels.is_null()) else { return Ok(Vec::new()) };
    let labels: BTreeMap<String, Option<String>> = serde_json::from_value(labels).map_err(|_| {
        invalid_argument(
            "`labels` must be an object of texts, such as `{\"team\": \"shop\"}`; `null` means any \
             value",
        )
    })?;
    if labels.len() > labels::MAX_LABELS {
        let maximum = labels::MAX_LABELS;
        return Err(invalid_argument(format!("`labels` has more than {maximum} keys")));
    }
    let filters = labels.into_iter().map(|(key, value)| {
        labels::check_key(&key).map_err(invalid_argument)?;
        Ok(LabelFilter { key, value })
    });
    filters.collect()
}

pub(super) fn check_input(input: Option<Value>) -> ApiResult<Value> {
    let input = input.unwrap_or_default();
    if json::json_size(&input) > limits::OUTPUT_BYTES {
        let maximum = limits::OUTPUT_BYTES;
        return Err(limit_exceeded(format!("`input` has more than {maximum} bytes")));
    }
    if json::is_deeper_than(&input, limits::JSON_DEPTH) {
        let maximum = limits::JSON_DEPTH;
        return Err(invalid_argument(format!("`input` is nested deeper than {maximum} levels")));
    }
    Ok(input)
}

fn parse_positive<T: TryFrom<i64>>(name: &str, number: Option<i64>) -> ApiResult<Option<T>> {
    let Some(number) = number else { return Ok(None) };
    let within =
        Some(number).filter(|number| *number >= 1).and_then(|number| T::try_from(number).ok());
    within.map(Some).ok_or_else(|| invalid_argument(format!("`{name}` must not be {number}")))
}

/// Filter for requests. All given fields must match.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct RequestFilter {
    /// Words or parts of words that the query must contain, ignoring case. At most 64 different
    /// words.
    search: Option<String>,
    /// Requests created at or after this time.
    from: Option<DateTime>,
    /// Requests created before this time.
    to: Option<DateTime>,
    /// Requests with an execution in this state. `FAILED` also matches requests whose planning
    /// failed.
    state: Option<ExecutionState>,
    /// True: requests with an execution that waits for an approval, a decision or a signal, or is
    /// paused. Child executions count. False: all other requests.
    needs_person: Option<bool>,
}

impl RequestFilter {
    pub(super) fn into_store_filter(self) -> ApiResult<store::RequestFilter> {
        Ok(store::RequestFilter {
            search: parse_search("search", self.search)?,
            from: self.from.map(|from| from.0),
            to: self.to.map(|to| to.0),
            state: self.state.map(Into::into),
            needs_person: self.needs_person,
            token: None,
        })
    }
}

fn parse_search(name: &str, text: Option<String>) -> ApiResult<Option<String>> {
    let (words, maximum) = (store::search_words(text.as_deref()).len(), limits::SEARCH_WORDS);
    if words > maximum {
        let reason = format!("`{name}` has {words} different words; the limit is {maximum}");
        return Err(limit_exceeded(reason));
    }
    Ok(text)
}

/// Filter for plans. All given fields must match.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct PlanFilter {
    /// Plans of the request with this id, `req_…`.
    request_id: Option<ID>,
    /// Words or parts of words that the query must contain, ignoring case. At most 64 different
    /// words.
    search: Option<String>,
}

impl PlanFilter {
    /// Returns `None` if no plan can match.
    pub(super) fn into_store_filter(self) -> ApiResult<Option<store::PlanFilter>> {
        let search = parse_search("search", self.search)?;
        let request = self.request_id.map(|id| id.parse()).transpose().ok();
        Ok(request.map(|request| store::PlanFilter { request, search, token: None }))
    }
}

/// Filter for executions. All given fields must match.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct ExecutionFilter {
    /// Executions in one of these states. An empty list matches nothing.
    state: Option<Vec<ExecutionState>>,
    /// Executions of the request with this id, `req_…`.
    request_id: Option<ID>,
    /// Executions of the plan with this id, `plan_…`.
    plan_id: Option<ID>,
    /// Executions of plans that use this tool, by its name or as `set.name`.
    tool_name: Option<String>,
    /// False leaves out child executions. Default: true.
    parts: Option<bool>,
    /// Executions created at or after this time.
    from: Option<DateTime>,
    /// Executions created before this time.
    to: Option<DateTime>,
    /// True: executions that wait for an approval, a decision or a signal, or are paused. False:
    /// all other executions. With `parts: false`, an execution also counts as waiting if an
    /// execution below it waits or is paused.
    needs_person: Option<bool>,
    /// Executions with all of these labels: an object such as `{"team": "shop"}`. A label with
    /// `null` can have any value.
    labels: Option<Value>,
    /// Executions whose first error has this code, such as `tool.timeout`.
    error_code: Option<String>,
    /// Executions whose first error comes from a step that calls this tool, written as `set.name`.
    failed_tool: Option<String>,
    /// Words or parts of words that the first error of an execution must contain, each in the code
    /// or the message. Case is ignored. At most 64 different words.
    error_text: Option<String>,
    /// Executions with one of these ids, `exec_…`. At most 1000 ids. An empty list matches nothing.
    execution_ids: Option<Vec<ID>>,
}

impl ExecutionFilter {
    /// Returns `None` if no execution can match.
    pub(super) fn into_store_filter(self) -> ApiResult<Option<store::ExecutionFilter>> {
        let error_text = parse_search("errorText", self.error_text.clone())?;
        let labels = parse_label_filters(self.labels.clone())?;
        if self.execution_ids.as_ref().is_some_and(|ids| ids.len() > MAX_FILTER_IDS) {
            let reason = format!("`executionIds` has more than {MAX_FILTER_IDS} ids");
            return Err(limit_exceeded(reason));
        }
        let Some(filter) = self.into_filter_without_texts_and_labels() else { return Ok(None) };
        Ok(Some(store::ExecutionFilter { error_text, labels, ..filter }))
    }

    /// Returns `None` if no execution can match.
    fn into_filter_without_texts_and_labels(self) -> Option<store::ExecutionFilter> {
        let states = self.state.map(|states| states.into_iter().map(Into::into).collect());
        // For the store, an empty list means any state. In the API, it matches no execution.
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
            error_code: self.error_code,
            failed_tool: self.failed_tool.map(|name| name.parse()).transpose().ok()?,
            // Leaves out texts that are not valid ids, because no execution has such an id.
            ids: self
                .execution_ids
                .map(|ids| ids.iter().filter_map(|id| id.parse().ok()).collect()),
            ..store::ExecutionFilter::default()
        })
    }
}
