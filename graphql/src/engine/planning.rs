//! From a query, or from a draft, to a plan in the store.

use std::sync::Arc;

use planner::{
    EXPLICIT, PlanningError, Proposal, ProposedPlan,
    candidates::{Candidates, DEFAULT_MAX_TOOLS},
    catalog::Catalog,
    compile::Compiled,
    draft::{Draft, SubDraft},
    plan_cache::{PlanCache, entry_key},
    select::{Ask, Criterion, Tools},
    suggest::did_you_mean,
};
use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    execution::REPLAN,
    id::{PlanId, RequestId, ToolName, ToolSetName},
    limits,
    plan::{Plan, PlanInfo},
    request::{Request, TranscriptEntry},
    store::StoreError,
};

use super::{
    Engine, EngineError, SELECTED, planners::RequestCompiler, select::Among, transcript::Transcript,
};

/// How often an identifier or a version that is taken is drawn again.
const DRAWS: usize = 8;
/// How often a version is counted anew that somebody else has made meanwhile.
const VERSIONS: usize = 64;
/// How much is kept of a query that was derived, or is too long.
const DERIVED_QUERY: usize = 200;
/// The most tools that a planner can be shown.
const MOST_TOOLS: usize = 1_000;

/// How a plan is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanningOptions {
    /// Which planner.
    pub planner: Option<String>,
    /// Only tools of these sets; empty means all.
    pub tool_sets: Vec<String>,
    /// Only tools that the toolkit recommends for these actions; empty means all.
    pub actions: Vec<String>,
    /// The most tools that the planner is shown, 1 to 1000.
    pub max_tools: Option<i32>,
    /// Whether nothing is planned after it, whatever it asks for.
    pub is_last: bool,
    /// Whether a plan is taken again that was made before; as configured where it is left out.
    pub cache: Option<PlanCache>,
}

/// What compiling a draft gave: a plan unless a diagnostic is an error.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The plan.
    pub plan: Option<Arc<Plan>>,
    /// Everything worth knowing about the draft.
    pub diagnostics: Vec<Diagnostic>,
}

impl Engine {
    /// Plans a query. The request and its transcript are kept even when no plan comes of it.
    pub async fn plan_query(
        &self,
        query: &str,
        options: &PlanningOptions,
    ) -> Result<Arc<Plan>, EngineError> {
        let too_long = check_length(query);
        let kept = if too_long.is_err() { beginning(query) } else { query.to_owned() };
        let request = self.new_request(&kept).await?;
        let planned = match too_long {
            Ok(()) => self.plan_under(&request, options).await,
            Err(err) => Err(err),
        };
        match planned {
            Err(err) if err.request().is_none() => {
                // Whoever is refused learns why, also where the store cannot be told.
                let entry = self.entry("error", told(&err));
                if let Err(lost) = self.store.add_transcript(request.id, &[entry]).await {
                    tracing::warn!(request = %request.id, %lost, "cannot keep why there is no plan");
                }
                Err(err.under(request.id))
            }
            planned => planned,
        }
    }

    async fn plan_under(
        &self,
        request: &Request,
        options: &PlanningOptions,
    ) -> Result<Arc<Plan>, EngineError> {
        let query = request.query.as_str();
        check_query(query)?;
        let max_tools = max_tools(options.max_tools)?;
        let planner = self.planners.find(options.planner.as_deref())?;
        let sets = self.known_sets(&options.tool_sets).await?;
        let near = self.near(&options.actions).await?;
        let catalog = self.catalog().await.only(&sets);
        let catalog = near.map_or_else(|| catalog.clone(), |it| catalog.among(&it));
        let offered = offered(&catalog, options.is_last);
        let candidates = self.candidates(query, &offered, max_tools).await;
        let mut transcript = Transcript::new(&self.clock);
        transcript.add("selection", candidates.report);
        let rule = options.cache.unwrap_or(self.plan_cache);
        let cache_key = entry_key(rule, planner.name(), query, &candidates.catalog);
        let compiler =
            RequestCompiler { engine: self, request: request.id, query, catalog: &catalog };
        let cached = match &cache_key {
            Some(key) => self.cached_plan(key, planner.name(), &compiler).await?,
            None => None,
        };
        let is_new = cached.is_none();
        transcript.ask_planner();
        let proposed = match cached {
            Some(proposed) => Ok(proposed),
            None => planner.plan(query, &candidates.catalog, &compiler).await,
        };
        let (plan, proposal) = self.keep_proposed(request.id, 1, proposed, transcript).await?;
        if let Some(key) = cache_key.filter(|_| is_new) {
            self.cache_draft(&key, request.id, &proposal).await;
        }
        Ok(plan)
    }

    /// Chooses at most `max_tools` of the tools that may be planned. If all of them fit, all are
    /// kept, and only words are compared: no embedder is asked for nothing.
    pub(super) async fn candidates(
        &self,
        query: &str,
        catalog: &Catalog,
        max_tools: usize,
    ) -> Candidates {
        let tools: Tools = catalog.plannable().cloned().collect();
        let by = if tools.len() > max_tools { Criterion::Hybrid } else { Criterion::Lexical };
        let limit = tools.len().min(SELECTED);
        let lessons = if by == Criterion::Hybrid { self.taught().await } else { None };
        let taught = lessons.as_deref().map(|lessons| (&lessons.outcomes, self.clock.now()));
        let ask = Ask { query, by, limit, margin: 0.0, taught };
        let selected = self.selection.select(Among::Planning, &tools, &ask, |_| true).await;
        Candidates::new(catalog, &tools, &selected.unwrap_or_default(), by, max_tools)
    }

    /// Stores the plan that a planner proposed as a version of a request. The transcript is stored
    /// in any case.
    pub(super) async fn keep_proposed(
        &self,
        request: RequestId,
        version: u32,
        proposed: Result<ProposedPlan, PlanningError>,
        mut transcript: Transcript,
    ) -> Result<(Arc<Plan>, Proposal), EngineError> {
        let ProposedPlan { compiled, mut proposal } = match proposed {
            Ok(proposed) => proposed,
            Err(err) => return Err(self.no_proposal(request, transcript, err).await),
        };
        transcript.add_notes(std::mem::take(&mut proposal.notes));
        let draft_json = serde_json::to_value(&proposal.draft).unwrap_or_default();
        transcript.add("draft", draft_json);
        // What a planner made of a query is no more trusted than the query.
        if let Err(err) = self.check_compiled(&compiled).await {
            transcript.add("error", told(&err));
            self.store.add_transcript(request, &transcript.take()).await?;
            return Err(err.under(request));
        }
        let about = PlanInfo { version, ..compiled.plan.info().clone() };
        let plan = compiled.plan.with_info(about).with_warnings(proposal.warnings.clone());
        self.keep_inner(compiled.inner).await?;
        let plan = self.keep(plan).await?;
        let summary = json!({ "planId": plan.id(), "version": plan.info().version });
        transcript.add("plan", summary);
        self.store.add_transcript(request, &transcript.take()).await?;
        Ok((plan, proposal))
    }

    /// Compiles a draft and keeps nothing.
    pub async fn validate(&self, draft: &Draft) -> Result<Verdict, EngineError> {
        verdict(self.compile_alone(draft).await.map(|compiled| Arc::new(compiled.plan)))
    }

    /// Compiles a draft as a plan of a request that is not there yet.
    async fn compile_alone(&self, draft: &Draft) -> Result<Compiled, EngineError> {
        let request = RequestId::draw(self.clock.now());
        let about = self.about(request, 1, query_of(draft), EXPLICIT);
        self.certain(&names_of(draft)).await;
        let catalog = self.catalog_now();
        let compiled = self.compile(draft, about.clone(), &catalog).await;
        if matches!(compiled, Err(EngineError::InvalidPlan { .. }))
            && !self.grant.allows_every_tool()
        {
            // A tool that is there and may not be used is not unknown.
            let all = self.catalog_of(&self.toolbox.sets());
            self.check_named(draft, &all)?;
            match self.compile(draft, about, &all).await {
                Ok(compiled) => self.check_compiled(&compiled).await?,
                Err(EngineError::InvalidPlan { .. }) => (),
                Err(err) => return Err(err),
            }
        }
        let compiled = compiled?;
        self.check_compiled(&compiled).await?;
        Ok(compiled)
    }

    /// Refuses tools that whoever asks may not use, also where they are switched off or the draft
    /// is wrong otherwise.
    fn check_named(&self, draft: &Draft, all: &Catalog) -> Result<(), EngineError> {
        let names = names_of(draft);
        let found = names.iter().filter_map(|it| all.find(it.as_str()));
        let tools: Vec<ToolName> = found.map(|it| it.definition.qualified_name()).collect();
        Ok(self.grant.check_tools(&tools)?)
    }

    /// Compiles a draft and keeps the plan. A draft with an error leaves nothing behind.
    ///
    /// A draft that names a request makes its next version; any other begins a new one.
    pub async fn create_plan(&self, draft: &Draft) -> Result<Verdict, EngineError> {
        let request = match &draft.request_id {
            Some(id) => Some(self.known_request(id).await?),
            None => None,
        };
        let Compiled { plan, inner } = match self.compile_alone(draft).await {
            Ok(compiled) => compiled,
            Err(err) => return verdict(Err(err)),
        };
        let query = query_of(draft);
        check_length(&query)?;
        let (request, version) = match request {
            Some(id) => (id, self.next_version(id).await?),
            None => (self.new_request(&query).await?.id, 1),
        };
        let draft_json = serde_json::to_value(draft).unwrap_or_default();
        let mut transcript = Transcript::new(&self.clock);
        transcript.add("draft", draft_json);
        // It was compiled before there was a request; under that it is made now.
        let created_at = self.clock.now();
        let about = PlanInfo { request, version, created_at, ..plan.info().clone() };
        self.keep_inner(inner).await?;
        let plan = self.keep(plan.with_info(about)).await?;
        let summary = json!({ "planId": plan.id(), "version": plan.info().version });
        transcript.add("plan", summary);
        self.store.add_transcript(request, &transcript.take()).await?;
        verdict(Ok(plan))
    }

    /// Compiles a draft as the next version of a plan's request.
    pub async fn revise(&self, id: PlanId, draft: &Draft) -> Result<Verdict, EngineError> {
        let Some(plan) = self.plan(id).await? else {
            return Err(EngineError::not_found("plan", id));
        };
        let about = plan.info();
        if draft.request_id.as_ref().is_some_and(|it| *it != about.request.to_string()) {
            let why = format!("`requestId` is not `{}`, the request of `{id}`", about.request);
            return Err(EngineError::InvalidArgument(why));
        }
        let mut draft = draft.clone();
        draft.request_id = Some(about.request.to_string());
        draft.query.get_or_insert_with(|| about.query.clone());
        self.create_plan(&draft).await
    }

    /// Returns the sets of these names, once it is certain which there are.
    pub(super) async fn known_sets(
        &self,
        names: &[String],
    ) -> Result<Vec<ToolSetName>, EngineError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.catch_up().await;
        let known = self.sets();
        let known = || known.iter().map(|it| it.name.as_str());
        let missing = |name: &String| {
            let help = did_you_mean(name, known())
                .unwrap_or_else(|| "`faber toolsets list` lists them".to_owned());
            EngineError::InvalidArgument(format!("there is no toolset `{}`: {help}", clip(name)))
        };
        let found = |name: &String| {
            let name: ToolSetName = name.parse().ok()?;
            known().any(|it| it == name.as_str()).then_some(name)
        };
        names.iter().map(|name| found(name).ok_or_else(|| missing(name))).collect()
    }

    async fn known_request(&self, id: &str) -> Result<RequestId, EngineError> {
        let missing = || EngineError::not_found("request", id);
        let id: RequestId = id.parse().map_err(|_| missing())?;
        self.store.request(id).await?.map(|it| it.id).ok_or_else(missing)
    }

    pub(super) async fn new_request(&self, query: &str) -> Result<Request, EngineError> {
        for _ in 0..DRAWS {
            let created_at = self.clock.now();
            let id = RequestId::draw(created_at);
            let request = Request { id, query: query.to_owned(), created_at };
            match self.store.put_request(&request).await {
                Ok(()) => return Ok(request),
                Err(StoreError::Taken) => (),
                Err(err) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }

    /// Keeps a plan. If its identifier or version was taken meanwhile, it gets another.
    pub(super) async fn keep(&self, mut plan: Plan) -> Result<Arc<Plan>, EngineError> {
        let request = plan.info().request;
        let mut lock = None;
        for _ in 0..VERSIONS {
            match self.store.put_plan(&plan).await {
                Ok(()) => return Ok(Arc::new(plan)),
                Err(StoreError::Taken) => {
                    if lock.is_none() {
                        lock = Some(self.locks.lock(format!("versions of {request}")).await);
                    }
                    let version = self.next_version(request).await?;
                    let id = PlanId::draw(self.clock.now());
                    let about = PlanInfo { id, version, ..plan.info().clone() };
                    plan = plan.with_info(about);
                }
                Err(err) => return Err(err.into()),
            }
        }
        Err(EngineError::Conflict(format!(
            "others make versions of `{request}` all the time: try again"
        )))
    }

    pub(super) async fn next_version(&self, request: RequestId) -> Result<u32, EngineError> {
        // Older versions may have been removed, so they are not counted.
        for id in self.store.plans_of(request).await?.into_iter().rev() {
            if let Some(newest) = self.store.plan(id).await? {
                return Ok(newest.info().version.saturating_add(1));
            }
        }
        Ok(1)
    }

    pub(super) fn about(
        &self,
        request: RequestId,
        version: u32,
        query: String,
        planner: &str,
    ) -> PlanInfo {
        let created_at = self.clock.now();
        let id = PlanId::draw(created_at);
        PlanInfo { id, request, version, query, planner: planner.to_owned(), created_at }
    }

    pub(super) fn entry(&self, kind: &str, content: Value) -> TranscriptEntry {
        TranscriptEntry { at: self.clock.now(), kind: kind.to_owned(), content }
    }

    /// Keeps how a planner came to propose nothing, and says so.
    async fn no_proposal(
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
                (notes, EngineError::Store(error).under(request))
            }
        };
        transcript.add_notes(notes);
        transcript.add("error", told(&error));
        match self.store.add_transcript(request, &transcript.take()).await {
            Ok(()) => error,
            Err(err) => err.into(),
        }
    }
}

/// Returns the tools that a planner is offered: one that asks for a further plan only where there
/// may be one.
pub(super) fn offered(catalog: &Catalog, is_last: bool) -> Catalog {
    if !is_last {
        return catalog.clone();
    }
    catalog.filtered(|it| it.definition.qualified_name().as_str() != REPLAN)
}

/// Returns diagnostics as a verdict. Other errors stay errors.
fn verdict(compiled: Result<Arc<Plan>, EngineError>) -> Result<Verdict, EngineError> {
    match compiled {
        Ok(plan) => {
            let diagnostics = plan.diagnostics().to_vec();
            Ok(Verdict { plan: Some(plan), diagnostics })
        }
        Err(EngineError::InvalidPlan { diagnostics, .. }) => {
            Ok(Verdict { plan: None, diagnostics })
        }
        Err(err) => Err(err),
    }
}

/// Returns what a draft is for: what it says, else the names of its tools.
pub(super) fn query_of(draft: &Draft) -> String {
    if let Some(query) = draft.query.as_deref().filter(|it| !it.trim().is_empty()) {
        return query.to_owned();
    }
    let names = draft.tools.iter().filter_map(|it| it.name.as_deref().or(it.tool_name.as_deref()));
    let mut query = String::new();
    for name in names {
        let separator = if query.is_empty() { "" } else { ", " };
        if query.len() + name.len() > DERIVED_QUERY {
            query.push_str(", …");
            break;
        }
        query.push_str(separator);
        query.push_str(name);
    }
    query
}

/// Returns the names of all tools that a draft and those inside it call.
fn names_of(draft: &Draft) -> Vec<ToolName> {
    let mut names = Vec::new();
    for step in &draft.tools {
        let undo = step.compensate.as_ref();
        let undo = ["name", "toolName"].map(|it| undo.and_then(|undo| undo.get(it)?.as_str()));
        let written = [step.name.as_deref(), step.tool_name.as_deref()].into_iter().chain(undo);
        names.extend(written.flatten().filter_map(|it| it.parse::<ToolName>().ok()));
        if let Some(SubDraft::Inline(inner)) = &step.plan {
            names.extend(names_of(inner));
        }
    }
    names
}

/// Returns what the transcript has of an error.
fn told(error: &EngineError) -> Value {
    json!({ "code": error.code(), "message": error.to_string() })
}

/// Returns the start of a query that is too long to be kept.
fn beginning(query: &str) -> String {
    let end = query.floor_char_boundary(DERIVED_QUERY);
    format!("{}…", &query[..end])
}

/// Returns the start of a name that is nobody's.
fn clip(name: &str) -> String {
    name.chars().take(limits::NAME_BYTES).collect()
}

pub(super) fn max_tools(wanted: Option<i32>) -> Result<usize, EngineError> {
    let Some(wanted) = wanted else { return Ok(DEFAULT_MAX_TOOLS) };
    match usize::try_from(wanted) {
        Ok(most) if (1..=MOST_TOOLS).contains(&most) => Ok(most),
        _ => Err(EngineError::InvalidArgument(format!(
            "`maxTools` must be 1 to {MOST_TOOLS}, not {wanted}"
        ))),
    }
}

pub(super) fn check_query(query: &str) -> Result<(), EngineError> {
    if query.trim().is_empty() {
        let why = "`query` is empty: say in words what is to be done".to_owned();
        return Err(EngineError::InvalidArgument(why));
    }
    check_length(query)
}

fn check_length(query: &str) -> Result<(), EngineError> {
    if query.len() > limits::QUERY_BYTES {
        let (has, most) = (query.len(), limits::QUERY_BYTES);
        let why = format!("`query` has {has} bytes; the most is {most}");
        return Err(EngineError::LimitExceeded(why));
    }
    Ok(())
}
