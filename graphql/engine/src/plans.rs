pub(super) mod changed_plan;
pub(super) mod drafts;
pub(super) mod export;
pub(super) mod guard;
mod inputs;
pub(super) mod library;
mod observed_planning;
mod offline_draft;
pub(super) mod planners;
pub(super) mod replan;
mod request_compiler;
#[cfg(test)]
mod tests;
pub(super) mod transcript;

use std::{collections::BTreeSet, sync::Arc};

use chrono::TimeDelta;
use planner::{
    PlanCompiler, Planner, PlanningError, ProposedPlan,
    candidates::{Candidates, DEFAULT_MAX_TOOLS, DEFAULT_OFFLINE_TOOLS},
    catalog::Catalog,
    compile::Compiled,
    plan_cache::{CachedDraft, PlanCache, entry_key},
};
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp},
    execution::REPLAN,
    id::{PlanId, RequestId, ToolName, ToolSetName},
    labels::{self, Labels},
    limits,
    plan::{Plan, PlanInfo},
    request::{Request, TranscriptEntry},
    store::{Store, StoreError},
};

pub(super) use self::inputs::fit_input;
use self::{
    guard::{Guard, GuardedQuery},
    library::PlanLibrary,
    offline_draft::{OfflineResult, replace_failed_plan},
    planners::Planners,
    request_compiler::RequestCompiler,
    transcript::Transcript,
};
use super::{error::EngineError, named_locks::NamedLocks, selection::Selection, tools::Tools};
use crate::agent;

const MAX_ID_ATTEMPTS: usize = 8;
/// Maximum number of attempts to store a new version of a plan. An attempt fails if another caller
/// stores a version at the same time.
const MAX_VERSION_ATTEMPTS: usize = 64;
/// Approximate maximum number of bytes of a query that is derived from a draft, and of the stored
/// beginning of a query that is too long.
const MAX_SHORT_QUERY_BYTES: usize = 200;
const MAX_PLANNER_TOOLS: usize = 1_000;
/// Lifetime of a draft in the plan cache. A draft usually becomes invalid much sooner, when the
/// tools change.
const CACHED_DRAFT_LIFETIME: TimeDelta = TimeDelta::days(30);

#[derive(Clone)]
pub struct Plans {
    pub library: Arc<PlanLibrary>,
    pub(super) tools: Arc<Tools>,
    pub(super) selection: Arc<Selection>,
    pub(super) planners: Planners,
    pub(super) plan_cache: PlanCache,
    /// The configured rule for calls that a query does not ask for, or whose values it does not
    /// contain. A caller can only choose a stricter rule.
    pub(super) guard: Guard,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// One lock for each request, so that callers in this process do not compete for a version. The
    /// store rejects a version that is taken.
    version_locks: Arc<NamedLocks>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanningOptions {
    pub planner: Option<String>,
    pub tool_sets: Vec<String>,
    /// Actions for which the toolkit recommends the tools. Empty means all tools.
    pub actions: Vec<String>,
    /// Maximum number of tools that the planner sees, from 1 to 1000.
    pub max_tools: Option<i32>,
    /// `true` if no replan is left, so that the plan must not contain `flow.replan`.
    pub is_last: bool,
    /// The rule of the plan cache. `None` means the rule of the configuration.
    pub cache: Option<PlanCache>,
    /// A stricter rule for calls that the query does not ask for, or whose values it does not
    /// contain. A rule that is less strict than the configured rule has no effect.
    pub guard: Option<Guard>,
    /// Labels of the new request. Executions of its plans inherit them.
    pub labels: Labels,
}

pub(super) struct PlanningScope<'a> {
    planner: Arc<dyn Planner>,
    max_tools: Option<usize>,
    sets: Vec<ToolSetName>,
    actions: &'a [String],
    guard: Guard,
}

struct PlannerInput {
    catalog: Catalog,
    offered: Catalog,
    candidates: Candidates,
}

impl Plans {
    pub(super) fn new(
        tools: Arc<Tools>,
        selection: Arc<Selection>,
        planner: Arc<dyn Planner>,
    ) -> Self {
        let (store, clock) = (Arc::clone(&tools.store), Arc::clone(&tools.clock));
        let library = PlanLibrary::new(Arc::clone(&store), Arc::clone(&clock));
        Self {
            library: Arc::new(library),
            tools,
            selection,
            planners: Planners::new(planner),
            plan_cache: PlanCache::default(),
            guard: Guard::default(),
            store,
            clock,
            version_locks: Arc::default(),
        }
    }

    pub(super) fn with_tools(&self, tools: &Arc<Tools>) -> Self {
        let mut selection = (*self.selection).clone();
        selection.tools = Arc::clone(tools);
        let (tools, selection) = (Arc::clone(tools), Arc::new(selection));
        Self { tools, selection, ..self.clone() }
    }

    pub(super) fn with_store(self, store: &Arc<dyn Store>) -> Self {
        let library = Arc::new(self.library.seen_through(Arc::clone(store)));
        Self { library, store: Arc::clone(store), ..self }
    }

    async fn plan_new_request(
        &self,
        query: &str,
        options: &PlanningOptions,
    ) -> Result<Arc<Plan>, EngineError> {
        // Rejects wrong labels first, because a request with wrong labels cannot be stored.
        labels::check(&options.labels).map_err(EngineError::InvalidArgument)?;
        let too_long = check_length(query);
        let stored = if too_long.is_err() { shorten_query(query) } else { query.to_owned() };
        let request = self.new_request(&stored, &options.labels).await?;
        let planned = match too_long {
            Ok(()) => self.plan_request(&request, options).await,
            Err(err) => Err(err),
        };
        match planned {
            Err(err) if err.request().is_none() => {
                // Ignores a failure of the store, because the caller must get the error of the
                // planning.
                let entry = self.new_entry("error", error_json(&err));
                if let Err(lost) = self.store.add_transcript(request.id, &[entry]).await {
                    tracing::warn!(request = %request.id, %lost, "cannot store the planning error");
                }
                Err(err.with_request(request.id))
            }
            planned => planned,
        }
    }

    async fn plan_request(
        &self,
        request: &Request,
        options: &PlanningOptions,
    ) -> Result<Arc<Plan>, EngineError> {
        let query = request.query.as_str();
        check_query(query)?;
        let scope = self.check_options(options).await?;
        let PlannerInput { catalog, offered, candidates } =
            self.collect_planner_input(query, &scope, options.is_last).await?;
        let compiler =
            RequestCompiler { plans: self, request: request.id, query, catalog: &catalog };
        let is_offline = self.planners.is_offline(&*scope.planner);
        let wide = candidates.catalog.clone();
        let (candidates, offline_result) = if is_offline {
            (candidates, OfflineResult::default())
        } else {
            self.draft_offline(query, candidates, &compiler, &scope).await
        };
        let Candidates { catalog: shown_catalog, report } = candidates;
        let (planner, guard) = (scope.planner, scope.guard);
        let mut transcript = Transcript::new(&self.clock);
        transcript.add("selection", report);
        let rule = options.cache.unwrap_or(self.plan_cache);
        let cache_key = entry_key(rule, planner.name(), query, &shown_catalog);
        let cache_key = cache_key.map(|key| self.scope_cache_key(key));
        let cached = match &cache_key {
            Some(key) => self.find_cached_plan(key, planner.name(), &compiler).await?,
            None => None,
        };
        let is_cached = cached.is_some();
        transcript.start_planner_request();
        let proposed = if let Some(proposed) = cached {
            Ok(proposed)
        } else if is_offline {
            // The offline planner can build chains with tools that selection left out, because a
            // tool in the middle of a chain matches no word of the query.
            let reach = if options.max_tools.is_some() { &shown_catalog } else { &offered };
            planner.plan_within(query, &shown_catalog, reach, &compiler).await
        } else {
            let hint = offline_result.as_hint();
            planner.plan_with_hint(query, hint, &shown_catalog, &compiler).await
        };
        let is_written = proposed.is_ok();
        let proposed = match (proposed, offline_result.draft) {
            (Err(err), Some(draft)) => replace_failed_plan(err, draft),
            (proposed, _) => proposed,
        };
        // The cache stores the draft before the guard changes it, because the guard can have
        // another rule when the draft is reused.
        let entry = proposed.as_ref().ok().filter(|_| is_written && !is_cached);
        let entry =
            entry.map(|proposed| CachedDraft::new(request.id, &proposed.proposal).to_value());
        let proposed = match proposed {
            // Only plans of models need the guard, because the offline planner itself plans only
            // clauses that ask for a call.
            Ok(proposed) if !is_offline && is_written => {
                GuardedQuery::new(guard, query, &wide, &catalog)
                    .check(proposed, planner.name(), &compiler)
                    .await
            }
            proposed => proposed,
        };
        let plan = self.store_proposed(request.id, 1, proposed, transcript).await?;
        if let Some((key, entry)) = cache_key.zip(entry)
            && let Err(err) = self
                .store
                .cache_output(&key, &entry, self.clock.now() + CACHED_DRAFT_LIFETIME)
                .await
        {
            tracing::warn!(%err, "cannot add a draft to the plan cache");
        }
        Ok(plan)
    }

    pub(super) async fn check_options<'a>(
        &self,
        options: &'a PlanningOptions,
    ) -> Result<PlanningScope<'a>, EngineError> {
        Ok(PlanningScope {
            max_tools: options.max_tools.map(check_max_tools).transpose()?,
            planner: self.planners.find_planner(options.planner.as_deref())?,
            sets: self.tools.check_sets(&options.tool_sets).await?,
            actions: &options.actions,
            guard: options.guard.unwrap_or(self.guard).max(self.guard),
        })
    }

    async fn collect_planner_input(
        &self,
        query: &str,
        scope: &PlanningScope<'_>,
        is_last: bool,
    ) -> Result<PlannerInput, EngineError> {
        let recommended = self.selection.recommended_tools(scope.actions).await?;
        self.tools.inventory.wait_for_plannable(&scope.sets).await;
        let mut catalog = self.tools.catalog_without_waiting().only_sets(&scope.sets);
        if let Some(tools) = recommended {
            catalog = catalog.only_tools(&tools);
        }
        let is_offered = |name: &ToolName| !is_last || name.as_str() != REPLAN;
        let offered = catalog.filter_tools(|tool| is_offered(&tool.definition.qualified_name()));
        let is_offline = self.planners.is_offline(&*scope.planner);
        let default = if is_offline { DEFAULT_OFFLINE_TOOLS } else { DEFAULT_MAX_TOOLS };
        let max_tools = scope.max_tools.unwrap_or(default);
        let candidates = self.selection.candidates(query, &offered, max_tools).await;
        Ok(PlannerInput { catalog, offered, candidates })
    }

    /// Returns the stored form of a key of the plan cache. An entry names the request that it comes
    /// from, so a caller that sees only its own requests has entries of its own.
    fn scope_cache_key(&self, key: String) -> String {
        match self.tools.grant.visible_token() {
            Some(token) => format!("{key} {token}"),
            None => key,
        }
    }

    /// Returns the plan of an entry of the plan cache, if the draft in the entry still compiles.
    async fn find_cached_plan(
        &self,
        key: &str,
        planner: &str,
        compiler: &dyn PlanCompiler,
    ) -> Result<Option<ProposedPlan>, EngineError> {
        let entry = match self.store.find_output(key, self.clock.now()).await {
            Ok(entry) => entry,
            // Ignores a damaged entry, because the query can be planned without the cache.
            Err(err @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%err, "cannot read a draft of the plan cache");
                None
            }
            Err(err) => return Err(err.into()),
        };
        let Some(found) = entry.and_then(|entry| CachedDraft::from_value(&entry)) else {
            return Ok(None);
        };
        match found.into_proposal().compile(planner, compiler).await {
            Ok(proposed) => Ok(Some(proposed)),
            Err(PlanningError::Store { error, .. }) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Stores the plan of a planner as a version of a request. Stores the transcript even if there
    /// is no plan.
    pub(super) async fn store_proposed(
        &self,
        request: RequestId,
        version: u32,
        proposed: Result<ProposedPlan, PlanningError>,
        mut transcript: Transcript,
    ) -> Result<Arc<Plan>, EngineError> {
        let ProposedPlan { compiled, mut proposal } = match proposed {
            Ok(proposed) => proposed,
            Err(err) => return Err(self.store_failure(request, transcript, err).await),
        };
        transcript.add_notes(std::mem::take(&mut proposal.notes));
        let draft_json = serde_json::to_value(&proposal.draft).unwrap_or_default();
        transcript.add("draft", draft_json);
        // A planner's draft is checked like the draft of a caller, because the caller's query can
        // make the planner use any tool.
        if let Err(err) = self.check_compiled(&compiled).await {
            transcript.add("error", error_json(&err));
            self.store.add_transcript(request, &transcript.take_entries()).await?;
            return Err(err.with_request(request));
        }
        let info = PlanInfo { version, ..compiled.plan.info().clone() };
        let plan = compiled.plan.with_info(info).with_warnings(proposal.warnings);
        self.store_compiled(Compiled { plan, ..compiled }, transcript).await
    }

    async fn store_compiled(
        &self,
        Compiled { plan, inner }: Compiled,
        mut transcript: Transcript,
    ) -> Result<Arc<Plan>, EngineError> {
        for plan in inner {
            let PlanInfo { request: id, query, created_at, .. } = plan.info().clone();
            let request = self.own_request(id, query, created_at, Labels::new());
            self.store.put_request(&request).await?;
            self.store.put_plan(&plan).await?;
        }
        let plan = self.store_plan(plan).await?;
        let summary = json!({ "planId": plan.id(), "version": plan.info().version });
        transcript.add("plan", summary);
        self.store.add_transcript(plan.info().request, &transcript.take_entries()).await?;
        Ok(plan)
    }

    async fn store_failure(
        &self,
        request: RequestId,
        mut transcript: Transcript,
        err: PlanningError,
    ) -> EngineError {
        let message = err.to_string();
        let request_id = Some(request);
        let (notes, error) = match err {
            PlanningError::NoPlan { nearest, notes, .. } => {
                (notes, EngineError::NoPlanFound { message, nearest, request: request_id })
            }
            PlanningError::Unavailable { notes, .. } => {
                (notes, EngineError::PlannerUnavailable { message, request: request_id })
            }
            PlanningError::Invalid { diagnostics, notes } => {
                (notes, EngineError::InvalidPlan { diagnostics, request: request_id })
            }
            PlanningError::Store { error, notes } => {
                (notes, EngineError::Store(error).with_request(request))
            }
        };
        transcript.add_notes(notes);
        transcript.add("error", error_json(&error));
        match self.store.add_transcript(request, &transcript.take_entries()).await {
            Ok(()) => error,
            Err(err) => err.into(),
        }
    }

    fn own_request(
        &self,
        id: RequestId,
        query: String,
        created_at: Timestamp,
        mut labels: Labels,
    ) -> Request {
        labels::set_token(&mut labels, self.tools.grant.token_name());
        Request { id, query, created_at, labels }
    }

    pub(super) async fn new_request(
        &self,
        query: &str,
        labels: &Labels,
    ) -> Result<Request, EngineError> {
        for _ in 0..MAX_ID_ATTEMPTS {
            let created_at = self.clock.now();
            let id = RequestId::draw(created_at);
            let request = self.own_request(id, query.to_owned(), created_at, labels.clone());
            match self.store.put_request(&request).await {
                Ok(()) => return Ok(request),
                Err(StoreError::Taken) => (),
                Err(err) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }

    /// Stores a plan. If another caller took its id or version first, the plan gets a new id and
    /// the next version.
    pub(super) async fn store_plan(&self, mut plan: Plan) -> Result<Arc<Plan>, EngineError> {
        let request = plan.info().request;
        let mut lock = None;
        for _ in 0..MAX_VERSION_ATTEMPTS {
            match self.store.put_plan(&plan).await {
                Ok(()) => return Ok(Arc::new(plan)),
                Err(StoreError::Taken) => {
                    if lock.is_none() {
                        lock =
                            Some(self.version_locks.lock(format!("versions of {request}")).await);
                    }
                    let version = self.library.next_version(request).await?;
                    let id = PlanId::draw(self.clock.now());
                    let info = PlanInfo { id, version, ..plan.info().clone() };
                    plan = plan.with_info(info);
                }
                Err(err) => return Err(err.into()),
            }
        }
        Err(EngineError::Conflict(format!(
            "other callers keep adding versions to `{request}`: try again"
        )))
    }

    pub(super) fn new_info(&self, request: RequestId, query: String, planner: &str) -> PlanInfo {
        let created_at = self.clock.now();
        let id = PlanId::draw(created_at);
        PlanInfo { id, request, version: 1, query, planner: planner.to_owned(), created_at }
    }

    pub(super) fn new_entry(&self, kind: &str, content: Value) -> TranscriptEntry {
        TranscriptEntry { at: self.clock.now(), kind: kind.to_owned(), content }
    }

    /// Rejects a plan that calls a tool which the caller is not allowed to use. Includes the tools
    /// of sub-plans.
    pub(super) async fn check_plan(&self, plan: &Arc<Plan>) -> Result<(), EngineError> {
        if self.tools.grant.allows_every_tool() {
            return Ok(());
        }
        self.allowed_tools(&self.library.list_with_sub_plans(plan).await?).map(drop)
    }

    /// Returns the tools of plans. An agent decides only later which tools it calls, so the caller
    /// must be allowed to use all tools that the agent may call.
    fn allowed_tools(&self, plans: &[Arc<Plan>]) -> Result<BTreeSet<ToolName>, EngineError> {
        let grant = &self.tools.grant;
        for reach in plans.iter().flat_map(|plan| agent::list_reaches(plan)) {
            grant.check_reach(&reach)?;
        }
        let toolbox = self.tools.inventory.toolbox();
        let is_internal = |tool: &&ToolName| {
            agent::is_agent_tool(tool) && toolbox.find_internal_tool(tool).is_some()
        };
        let tools = plans.iter().flat_map(|plan| plan.called_tools());
        let tools = tools.filter(|tool| !is_internal(tool)).cloned().collect();
        grant.check_tools(&tools)?;
        Ok(tools)
    }

    async fn check_compiled(&self, compiled: &Compiled) -> Result<(), EngineError> {
        if self.tools.grant.allows_every_tool() {
            return Ok(());
        }
        for plan in compiled.inner.iter().chain([&compiled.plan]) {
            self.check_plan(&Arc::new(plan.clone())).await?;
        }
        Ok(())
    }

    /// Checks a plan that is about to start. Returns its tools, whose uses the caller must count.
    pub(super) async fn check_start(
        &self,
        plan: &Arc<Plan>,
    ) -> Result<BTreeSet<ToolName>, EngineError> {
        let grant = &self.tools.grant;
        let plans = self.library.list_with_sub_plans(plan).await?;
        let tools = self.allowed_tools(&plans)?;
        if grant.has_limits() {
            for reach in plans.iter().flat_map(|plan| agent::list_reaches(plan)) {
                grant.check_reach_limits(&reach)?;
            }
        }
        Ok(tools)
    }
}

fn error_json(error: &EngineError) -> Value {
    json!({ "code": error.code(), "message": error.to_string() })
}

fn shorten_query(query: &str) -> String {
    let end = query.floor_char_boundary(MAX_SHORT_QUERY_BYTES);
    format!("{}…", &query[..end])
}

fn check_max_tools(requested: i32) -> Result<usize, EngineError> {
    match usize::try_from(requested) {
        Ok(max_tools) if (1..=MAX_PLANNER_TOOLS).contains(&max_tools) => Ok(max_tools),
        _ => Err(EngineError::InvalidArgument(format!(
            "`maxTools` must be from 1 to {MAX_PLANNER_TOOLS}, not {requested}"
        ))),
    }
}

pub(super) fn check_query(query: &str) -> Result<(), EngineError> {
    if query.trim().is_empty() {
        let reason = "`query` is empty: describe the task in words".to_owned();
        return Err(EngineError::InvalidArgument(reason));
    }
    check_length(query)
}

fn check_length(query: &str) -> Result<(), EngineError> {
    if query.len() > limits::QUERY_BYTES {
        let (has, limit) = (query.len(), limits::QUERY_BYTES);
        let reason = format!("`query` has {has} bytes; the limit is {limit}");
        return Err(EngineError::LimitExceeded(reason));
    }
    Ok(())
}
