pub(super) mod agents;
pub(super) mod audit;
pub(super) mod bulk_control;
mod dry_run;
pub(super) mod findings;
pub(super) mod forks;
pub(super) mod pruning;
pub(super) mod reader;
pub(super) mod repeated_calls;
pub(super) mod replan;
pub(super) mod settling;
mod steering;
mod trace;
pub(super) mod undo_calls;

use std::{collections::BTreeMap, sync::Arc};

use executor::control::{Control, IdempotencyKey, Start};
use planner::reuse::{RetryScope, create_retry, find_kept_steps, take_over_children};
use serde_json::{Value, json};
use shared::{
    clock::Clock,
    event::Created,
    execution::{Execution, ExecutionOptions},
    id::{ExecutionId, PlanId, RequestId, Seq, StepNumber, WorkerId},
    labels,
    plan::Plan,
    store::{ChildPath, Store},
};
use toolbox::{Toolbox, flow, tool_names};

use self::{
    findings::{
        Finding, MAX_FINDINGS, NodeFacts, children_with_unknown_call, find_findings, find_reason,
        find_unknown_call,
    },
    reader::{ExecutionReader, load_execution_until},
};
use super::{
    error::EngineError,
    named_locks::NamedLocks,
    plans::{PlanningOptions, Plans, fit_input, library::reuse_error},
    tools::Tools,
};
use crate::{
    access::{Admission, Grant},
    visible_store::VisibleStore,
};

const MAX_CHILDREN: usize = 16;

#[derive(Clone)]
pub struct Executions {
    pub reader: Arc<ExecutionReader>,
    pub(super) tools: Arc<Tools>,
    pub(super) plans: Arc<Plans>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    control: Control,
    /// Locks of the idempotency keys of queries that are being planned, so that two requests to
    /// this process with the same key make only one plan.
    key_locks: Arc<NamedLocks>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// The options of the execution. `compensate_on_failure` is ignored, because `compensates`
    /// decides it.
    pub options: ExecutionOptions,
    /// `Some(true)` undoes successful steps if the execution does not succeed, and `Some(false)`
    /// undoes nothing. `None` undoes them if a step of the plan or of a sub-plan has `compensate`
    /// and no automatic replan is possible.
    pub compensates: Option<bool>,
    /// The idempotency key. A second start of the same plan or query with this key returns the
    /// first execution.
    pub idempotency_key: Option<String>,
}

impl Order {
    fn make_key(&self, key: String, subject: Value) -> IdempotencyKey {
        let (compensates, labels) = (self.compensates, self.options.labels.clone());
        IdempotencyKey { key, subject, compensates, labels }
    }
}

impl Executions {
    pub(super) fn new(
        control: Control,
        clock: Arc<dyn Clock>,
        tools: Arc<Tools>,
        plans: Arc<Plans>,
    ) -> Self {
        let store = Arc::clone(control.store());
        let reader = Arc::new(ExecutionReader::new(Arc::clone(&store)));
        Self { reader, tools, plans, store, clock, control, key_locks: Arc::default() }
    }

    pub(super) fn with_tools(&self, tools: Tools) -> Self {
        let tools = Arc::new(tools);
        let plans = Arc::new(self.plans.with_tools(&tools));
        Self { tools, plans, ..self.clone() }
    }

    pub(super) fn with_grant(&self, grant: Grant) -> Self {
        let control = match grant.actor(self.control.actor()) {
            Some(actor) => self.control.acting_as(actor),
            None => self.control.clone(),
        };
        let store = match grant.visible_token() {
            Some(token) => Arc::new(VisibleStore::new(Arc::clone(control.store()), token)),
            None => Arc::clone(control.store()),
        };
        let mut tools = (*self.tools).clone();
        (tools.grant, tools.store) = (grant, Arc::clone(&store));
        let tools = Arc::new(tools);
        let plans = Arc::new(self.plans.with_tools(&tools).with_store(&store));
        let reader = Arc::new(self.reader.with_store(Arc::clone(&store)));
        Self { reader, tools, plans, store, control, ..self.clone() }
    }

    /// The start is durable when this function returns an id.
    pub async fn start_plan(&self, id: PlanId, order: Order) -> Result<ExecutionId, EngineError> {
        let Some(plan) = self.plans.library.load(id).await? else {
            return Err(EngineError::not_found("plan", id));
        };
        self.find_or_start(&plan, order, IdempotencyKey::plan_subject(id)).await
    }

    pub async fn start_request(
        &self,
        id: RequestId,
        order: Order,
    ) -> Result<ExecutionId, EngineError> {
        if self.store.request(id).await?.is_none() {
            return Err(EngineError::not_found("request", id));
        }
        let plans = self.store.plan_versions(id).await?;
        let Some(newest) = plans.last() else {
            return Err(EngineError::Conflict(format!("the request `{id}` has no plan")));
        };
        // If the key was used before, returns the earlier execution, even if the request has a
        // newer plan by now.
        let earlier_execution = match &order.idempotency_key {
            Some(key) => {
                let (key, compensates) = (self.find_stored_key(key).await?, order.compensates);
                self.control.find_plan(&key, &plans, &order.options, compensates).await?
            }
            None => None,
        };
        self.start_plan(earlier_execution.unwrap_or(*newest), order).await
    }

    pub async fn start_saved_plan(
        &self,
        name: &str,
        input: Option<Value>,
        mut order: Order,
    ) -> Result<ExecutionId, EngineError> {
        let saved = self.plans.library.find_saved_plan_or_suggest(name).await?;
        if let Some(input) = input.filter(|input| !input.is_null()) {
            if !order.options.input.is_null() && *order.options.input != input {
                let reason = "`input` and `options.input` differ: leave one of them out";
                return Err(EngineError::InvalidArgument(reason.to_owned()));
            }
            order.options.input = Arc::new(input);
        }
        if let Some(schema) = &saved.inputs {
            let input = Arc::unwrap_or_clone(order.options.input);
            let fitted = fit_input(schema, input).map_err(|error| {
                EngineError::InvalidArgument(format!("the input of `{name}` does not fit: {error}"))
            })?;
            order.options.input = Arc::new(fitted);
        }
        self.start_plan(saved.plan, order).await
    }

    /// Plans a query and starts an execution of the plan. If the idempotency key was used before,
    /// plans nothing and returns the execution with this key.
    pub async fn plan_and_start(
        &self,
        query: &str,
        planning: &PlanningOptions,
        mut order: Order,
    ) -> Result<ExecutionId, EngineError> {
        // Checks the labels of request and execution together before planning, because planning
        // costs time.
        labels::check(&planning.labels).map_err(EngineError::InvalidArgument)?;
        let mut all_labels = order.options.labels.clone();
        labels::inherit(&mut all_labels, &planning.labels).map_err(EngineError::InvalidArgument)?;
        // Without labels, the subject is the query alone, so that keys of earlier versions of Faber
        // still match.
        let subject = if planning.labels.is_empty() {
            Value::String(query.to_owned())
        } else {
            json!({ "query": query, "labels": planning.labels })
        };
        let mut _lock = None;
        if let Some(key) = &order.idempotency_key {
            // A concurrent request to this process with the same key waits here until this request
            // has started its execution or has failed.
            _lock = Some(self.key_locks.lock(format!("key {}", self.scope_key(key))).await);
            let key = order.make_key(self.find_stored_key(key).await?, subject.clone());
            if let Some(id) = self.control.find_by_key(&key, &order.options).await? {
                return Ok(id);
            }
        }
        self.check_replans(None, &mut order, planning.planner.as_deref())?;
        // Ignores unknown toolsets here, because planning rejects them and stores the error with
        // the request.
        order.options.replans.sets = match self.tools.check_sets(&planning.tool_sets).await {
            Ok(sets) => sets,
            Err(EngineError::InvalidArgument(_)) => Vec::new(),
            Err(err) => return Err(err),
        };
        // Rejects a caller that has used up a limit or a quota before planning, because planning
        // costs time and stores data.
        let grant = &self.tools.grant;
        grant.check_start(&*self.store, grant.token_name()).await?;
        let is_last = order.options.replans.left == 0;
        let planning = &PlanningOptions { is_last, ..planning.clone() };
        let planned = Box::pin(self.plans.plan_query(query, planning)).await;
        self.record_planning(&planned).await;
        Box::pin(self.find_or_start(&planned?, order, subject)).await
    }

    /// Returns the form under which an idempotency key is stored. If the caller's token has used the
    /// key before its `see` changed, this is the former form, so that no second execution starts.
    async fn find_stored_key(&self, key: &str) -> Result<String, EngineError> {
        let grant = &self.tools.grant;
        let Some(token) = grant.token_name().filter(|_| !key.is_empty()) else {
            return Ok(self.scope_key(key));
        };
        let former = match grant.visible_token() {
            Some(_) => key.to_owned(),
            None => IdempotencyKey::scope(token, key),
        };
        // The caller perhaps does not see the execution of the key, so the whole store is read.
        let store = self.control.store();
        let is_own = match store.find_reservation(&former).await? {
            Some(found) => {
                let head = store.head(found.execution).await?;
                head.is_some_and(|head| head.token() == Some(token))
            }
            None => false,
        };
        Ok(if is_own { former } else { self.scope_key(key) })
    }

    /// Returns the form of a new idempotency key. A caller that sees only its own executions has
    /// keys of its own, because a key of another caller would reveal the execution of that caller.
    fn scope_key(&self, key: &str) -> String {
        match self.tools.grant.visible_token() {
            Some(token) => IdempotencyKey::scope(token, key),
            None => key.to_owned(),
        }
    }

    /// Starts an execution, or returns the id of the execution that was started with the same
    /// idempotency key before. Fails with a conflict if that execution has another `subject` (its
    /// plan or query) or other options.
    async fn find_or_start(
        &self,
        plan: &Arc<Plan>,
        mut order: Order,
        subject: Value,
    ) -> Result<ExecutionId, EngineError> {
        self.plans.check_plan(plan).await?;
        let key = match order.idempotency_key.take() {
            Some(key) => Some(order.make_key(self.find_stored_key(&key).await?, subject)),
            None => None,
        };
        if let Some(key) = &key
            && let Some(id) = self.control.find_by_key(key, &order.options).await?
        {
            // The request does not count toward the caller's limits, because no execution starts.
            return Ok(id);
        }
        let of_request = self.plans.library.request_labels(plan.info().request).await?;
        let inherited = labels::inherit(&mut order.options.labels, &of_request);
        inherited.map_err(EngineError::InvalidArgument)?;
        labels::set_token(&mut order.options.labels, self.tools.grant.token_name());
        let replans = self.check_replans(Some(plan), &mut order, None)?;
        let options = ExecutionOptions {
            compensate_on_failure: match order.compensates {
                Some(compensates) => compensates,
                None => !replans && self.plans.library.has_compensation(plan).await?,
            },
            ..order.options
        };
        self.start(Start { key, ..Start::new(plan, options) }).await
    }

    pub async fn retry(
        &self,
        id: ExecutionId,
        scope: RetryScope<'_>,
    ) -> Result<ExecutionId, EngineError> {
        let finished = self.reader.expect(id).await?;
        self.plans.check_plan(finished.plan()).await?;
        let created = self.create_retry(&finished, scope).await?;
        self.start_retry(finished.plan(), created).await
    }

    /// Returns the first event of a retry. It includes calls of child executions if their outcome
    /// is unknown or a person settled them.
    async fn create_retry(
        &self,
        finished: &Execution,
        scope: RetryScope<'_>,
    ) -> Result<Created, EngineError> {
        let refused = |err| reuse_error(finished, err);
        let mut created = create_retry(finished, scope).map_err(refused)?;
        let kept = find_kept_steps(finished, scope).map_err(refused)?;
        let repeated = (0..kept.len()).filter(|index| !kept[*index]).map(StepNumber::new);
        let children = ChildPath::of_steps(finished, &repeated.collect::<Vec<_>>());
        if !children.is_empty() {
            let calls = self.store.calls_of_children(children).await?;
            let (keys, settled) = calls;
            take_over_children(&mut created, keys, settled, scope).map_err(refused)?;
        }
        Ok(created)
    }

    async fn start_retry(
        &self,
        plan: &Arc<Plan>,
        mut created: Created,
    ) -> Result<ExecutionId, EngineError> {
        created.options.replans.within = self.tools.grant.replan_permissions();
        self.start(Start::from_created(plan, created)).await
    }

    /// Checks that the caller may start an execution, and counts the start toward its limits and
    /// quotas. Keep the result until the start is stored.
    async fn admit_start(&self, start: &Start) -> Result<Admission, EngineError> {
        let grant = &self.tools.grant;
        if grant.name().is_none() {
            return Ok(Admission::default());
        }
        let tools = self.plans.check_start(&start.plan).await?;
        let owner = labels::find_token(&start.created.options.labels);
        let admission = grant.admit_start(&*self.store, owner, self.clock.now()).await?;
        grant.count_uses(&tools)?;
        Ok(admission)
    }

    async fn start(&self, start: Start) -> Result<ExecutionId, EngineError> {
        let _admission = self.admit_start(&start).await?;
        if start.created.options.dry_run {
            return self.dry_run(start).await;
        }
        Ok(self.control.start(start).await?.id)
    }

    /// Returns the findings about an execution. `workers` are the live workers of the store.
    pub async fn findings(
        &self,
        execution: &Execution,
        workers: &[WorkerId],
        max_findings: usize,
    ) -> Result<Vec<Finding>, EngineError> {
        // A list shows one finding for each execution, so it reads at most `max_findings` children
        // of an execution.
        let mut children_left = max_findings.min(MAX_CHILDREN);
        self.findings_with_children(execution, workers, max_findings, &mut children_left).await
    }

    async fn findings_with_children(
        &self,
        execution: &Execution,
        workers: &[WorkerId],
        max_findings: usize,
        children_left: &mut usize,
    ) -> Result<Vec<Finding>, EngineError> {
        let now = self.clock.now();
        let id = execution.id();
        // A finished execution waits for nothing, so its head and inbox are not read.
        let is_finished = execution.state().is_finished();
        let head = if is_finished { None } else { self.store.head(id).await? };
        let inbox =
            if is_finished { Vec::new() } else { self.store.list_commands(Some(id)).await? };
        let mut children = self.find_child_reasons(execution, workers, children_left).await?;
        children.extend(self.find_unknown_child_calls(execution, workers, children_left).await?);
        let limits = self.tools.options().calls.get();
        let around = NodeFacts {
            head: head.as_ref(),
            inbox: &inbox,
            workers,
            limits: &limits,
            children: &children,
            toolbox: Some(self.tools.inventory.toolbox())
                .filter(|toolbox| has_opened_toolsets(toolbox)),
        };
        Ok(find_findings(execution, Some(&around), now, max_findings))
    }

    /// Returns the reasons why child executions wait, for the children that steps wait for. Reads
    /// at most `children_left` executions, including children of children.
    async fn find_child_reasons(
        &self,
        execution: &Execution,
        workers: &[WorkerId],
        children_left: &mut usize,
    ) -> Result<BTreeMap<ExecutionId, Finding>, EngineError> {
        let mut reasons = BTreeMap::new();
        for task in execution.agenda().in_children() {
            let Some(child) = execution.task(*task).and_then(|step| step.child) else { continue };
            let Some(left) = children_left.checked_sub(1) else { break };
            *children_left = left;
            // Skips a child that does not exist yet, because it waits for nothing.
            let Some(child) = self.reader.load(child).await? else { continue };
            let all = usize::MAX;
            let found = self.findings_with_children(&child, workers, all, children_left);
            let reason = find_reason(Box::pin(found).await?);
            reasons.extend(reason.map(|reason| (child.id(), reason)));
        }
        Ok(reasons)
    }

    /// Returns one finding about a call with an unknown outcome for each child that failed because
    /// of such a call. Reads at most `children_left` children.
    async fn find_unknown_child_calls(
        &self,
        execution: &Execution,
        workers: &[WorkerId],
        children_left: &mut usize,
    ) -> Result<BTreeMap<ExecutionId, Finding>, EngineError> {
        let mut unknown = BTreeMap::new();
        for child in children_with_unknown_call(execution) {
            let Some(left) = children_left.checked_sub(1) else { break };
            *children_left = left;
            let Some(child) = self.reader.load(child).await? else { continue };
            let found = self.findings_with_children(&child, workers, MAX_FINDINGS, children_left);
            let found = find_unknown_call(Box::pin(found).await?);
            unknown.extend(found.map(|found| (child.id(), found)));
        }
        Ok(unknown)
    }

    /// Returns the findings about an execution from its log up to the event `seq`, and from nothing
    /// else.
    pub async fn findings_at(
        &self,
        id: ExecutionId,
        seq: Seq,
        max_findings: usize,
    ) -> Result<Vec<Finding>, EngineError> {
        let Some(execution) = load_execution_until(&*self.store, id, seq).await? else {
            return Ok(Vec::new());
        };
        let now = execution.history().last.map_or(execution.created_at(), |last| last.at);
        Ok(find_findings(&execution, None, now, max_findings))
    }

    pub async fn live_workers(&self) -> Result<Vec<WorkerId>, EngineError> {
        Ok(self.store.list_workers(self.clock.now()).await?)
    }
}

/// Guesses whether this process opened its toolsets: a command that only reads opens none of them,
/// so it knows only Faber's own toolsets.
fn has_opened_toolsets(toolbox: &Toolbox) -> bool {
    let builtin_sets = [flow::SET, tool_names::TOOL_SET];
    toolbox.set_names().iter().any(|name| !builtin_sets.contains(&name.as_str()))
}
