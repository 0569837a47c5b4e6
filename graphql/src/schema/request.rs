use async_graphql::{Context, ID, Object, Result, SimpleObject};
use engine::{Engine, MAX_FINDINGS, find_planning_findings};
use serde_json::{Value, json};
use shared::{labels, request};

use super::{
    connection::{DEFAULT_LAST, MAX_PAGE_SIZE, check_count},
    error::ApiError,
    execution::ApiExecution,
    finding::Finding,
    loaders::Loaders,
    plan::Plan,
    scalar::DateTime,
    timeline::{self, TimelineEntry},
};

const MAX_TIMELINE_ENTRIES: usize = 10_000;

pub(super) struct Request(pub(super) request::Request);

/// Query, with its plans, its executions, and the transcript of planning.
#[Object]
impl Request {
    /// Same as `requestId`. Identifies the object in the whole API.
    pub(super) async fn id(&self) -> ID {
        ID(self.0.id.to_string())
    }

    /// Id of the request, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.0.id.to_string())
    }

    /// Query in words, as the caller wrote it.
    async fn query(&self) -> &str {
        &self.0.query
    }

    /// Time of creation.
    async fn created_at(&self) -> DateTime {
        self.0.created_at.into()
    }

    /// Labels of the request: an object of texts. Executions of its plans inherit them.
    async fn labels(&self) -> Value {
        json!(labels::without_token(&self.0.labels))
    }

    /// All versions of the plan, oldest first.
    async fn plans(&self, ctx: &Context<'_>) -> Result<Vec<Plan>> {
        load_plans(ctx, self.0.id).await
    }

    /// The newest `last` executions of the request's plans, oldest first.
    async fn executions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Number of executions, from 1 to 200.", default_with = "Some(50)")]
        last: Option<i32>,
        #[graphql(desc = "False leaves out child executions.", default_with = "Some(true)")]
        parts: Option<bool>,
    ) -> Result<Vec<ApiExecution>> {
        let maximum = check_count("last", last.unwrap_or(DEFAULT_LAST), MAX_PAGE_SIZE)?;
        let engine = ctx.data::<Engine>()?;
        let is_root = parts == Some(false);
        let heads = engine.executions.reader.newest_of_request(self.0.id, is_root, maximum).await;
        let heads = heads.map_err(ApiError::from)?;
        let ids: Vec<_> = heads.iter().map(|head| head.execution).collect();
        let executions = ctx.data::<Loaders>()?.executions(&ids).await?;
        Ok(executions.into_iter().map(ApiExecution).collect())
    }

    /// Reason why planning failed. Null if the request has a plan, and while planning runs.
    async fn planning_error(&self, ctx: &Context<'_>) -> Result<Option<PlanningError>> {
        let store = ctx.data::<Engine>()?.store();
        if !store.plan_versions(self.0.id).await.map_err(ApiError::from)?.is_empty() {
            return Ok(None);
        }
        let transcript = store.transcript(self.0.id).await.map_err(ApiError::from)?;
        let failure = transcript.iter().rfind(|entry| entry.is_failure());
        Ok(failure.map(PlanningError::from_last_entry))
    }

    /// Findings about failed planning: why there is no plan, and what helps. Empty if the request
    /// has a plan, and while planning runs. Findings about the request's executions are in
    /// `Execution.findings`.
    async fn findings(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Maximum number of findings, from 1 to 100. Default: 100.")] first: Option<
            i32,
        >,
    ) -> Result<Vec<Finding>> {
        let maximum = check_count("first", first.unwrap_or(100), MAX_FINDINGS)?;
        let store = ctx.data::<Engine>()?.store();
        if !store.plan_versions(self.0.id).await.map_err(ApiError::from)?.is_empty() {
            return Ok(Vec::new());
        }
        let transcript = store.transcript(self.0.id).await.map_err(ApiError::from)?;
        let found = find_planning_findings(&self.0, &transcript, maximum);
        Ok(found.into_iter().map(Finding::from).collect())
    }

    /// Record of planning, oldest entry first: candidates, drafts, replies of the model, and
    /// diagnostics.
    async fn transcript(&self, ctx: &Context<'_>) -> Result<Vec<TranscriptEntry>> {
        let entries = ctx.data::<Engine>()?.store().transcript(self.0.id).await;
        let entries = entries.map_err(ApiError::from)?;
        Ok(entries.into_iter().map(TranscriptEntry::from).collect())
    }

    /// Everything that happened under the request, by time, across executions and machines. Covers
    /// the 1000 newest executions and at most 200000 events.
    async fn timeline(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Number of entries to skip at the beginning.", default_with = "Some(0)")]
        skip: Option<i32>,
        #[graphql(desc = "Page size, from 1 to 10000.", default_with = "Some(10_000)")]
        first: Option<i32>,
    ) -> Result<Vec<TimelineEntry>> {
        let maximum = check_count("first", first.unwrap_or(10_000), MAX_TIMELINE_ENTRIES)?;
        let skip = usize::try_from(skip.unwrap_or(0));
        let skip =
            skip.map_err(|_| super::error::invalid_argument("`skip` must not be negative"))?;
        let entries = timeline::load_timeline(ctx.data::<Engine>()?, &self.0).await?;
        Ok(entries.into_iter().skip(skip).take(maximum).collect())
    }
}

pub(super) async fn load_plans(ctx: &Context<'_>, id: shared::id::RequestId) -> Result<Vec<Plan>> {
    let ids = ctx.data::<Engine>()?.store().plan_versions(id).await.map_err(ApiError::from)?;
    let plans = ctx.data::<Loaders>()?.plans(&ids).await?;
    Ok(plans.into_iter().map(Plan).collect())
}

/// Reason why planning failed.
#[derive(Clone, Debug, PartialEq, Eq, SimpleObject)]
#[graphql(complex)]
pub(super) struct PlanningError {
    /// Error code of the failed mutation, such as `NO_PLAN_FOUND` or `INVALID_PLAN`.
    pub(super) code: String,
    /// Message: what happened, and what to do.
    message: String,
}

impl PlanningError {
    /// Makes the error from the last transcript entry of a failed planning, which contains an error
    /// or the diagnostics of the draft.
    fn from_last_entry(entry: &request::TranscriptEntry) -> Self {
        let content = &entry.content;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(diagnostics) = content.as_array() else {
            return Self { code: text(&content["code"]), message: text(&content["message"]) };
        };
        let mut errors = diagnostics.iter().filter(|found| found["severity"] == "ERROR");
        let first = errors.next().map(|found| text(&found["message"])).unwrap_or_default();
        let message = match errors.count() {
            0 => format!("the draft does not compile: {first}"),
            more => format!("the draft does not compile: {first}, and {more} more"),
        };
        Self { code: "INVALID_PLAN".to_owned(), message }
    }
}

/// Entry of the transcript of planning.
#[derive(Clone, Debug, SimpleObject)]
#[graphql(complex)]
pub(super) struct TranscriptEntry {
    /// Time at which the entry was recorded.
    at: DateTime,
    /// Kind of the entry, such as `selection`, `prompt`, `reply`, `draft`, `diagnostics`, `plan` or
    /// `error`.
    pub(super) kind: String,
    /// Content of the entry. Its form depends on the kind.
    content: Value,
}

impl From<request::TranscriptEntry> for TranscriptEntry {
    fn from(request::TranscriptEntry { at, kind, content }: request::TranscriptEntry) -> Self {
        Self { at: at.into(), kind, content }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::clock::Timestamp;

    use super::*;

    #[test]
    fn a_failed_planning_returns_its_reason() {
        let summarize = |kind: &str, content| {
            let at = Timestamp::UNIX_EPOCH;
            let kind = kind.to_owned();
            let PlanningError { code, message } =
                PlanningError::from_last_entry(&request::TranscriptEntry { at, kind, content });
            format!("{code}: {message}")
        };
        let error = json!({ "code": "NO_PLAN_FOUND", "message": "no tool fits" });
        assert_eq!(summarize("error", error), "NO_PLAN_FOUND: no tool fits");
        let wrong = |message: &str| json!({ "severity": "ERROR", "message": message });
        let mild = json!({ "severity": "WARNING", "message": "mind this" });
        let one = "INVALID_PLAN: the draft does not compile: no tool `x`";
        assert_eq!(summarize("diagnostics", json!([mild, wrong("no tool `x`")])), one);
        let several = json!([wrong("no tool `x`"), wrong("no tool `y`")]);
        assert_eq!(summarize("diagnostics", several), format!("{one}, and 1 more"));
    }
}
