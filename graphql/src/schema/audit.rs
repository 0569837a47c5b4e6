use async_graphql::{Context, ID, InputObject, Object, Result, SimpleObject};
use engine::Engine;
use serde_json::Value;
use shared::{
    actor,
    id::AuditId,
    store::{self, AuditAction, AuditTarget},
};

use super::{
    actor::{Actor, ActorKind},
    connection::{ListPage, ListTotal, empty_page, make_page, parse_page},
    error::{ApiError, ApiResult, invalid_argument},
    scalar::DateTime,
};

/// Entry of the audit log: an action and the actor who did it. Entries never change.
#[derive(Clone, Debug, SimpleObject)]
#[graphql(complex)]
pub(super) struct AuditEntry {
    /// Id of the entry, `audit_…`.
    id: ID,
    /// Time of the action.
    at: DateTime,
    /// Actor who did the action.
    actor: Actor,
    /// Name of the action, such as `execute`, `approve`, `save_plan` or `set_context`.
    pub(super) action: String,
    /// Id of the request, `req_…`. Null if the action is not about a request.
    request_id: Option<ID>,
    /// Id of the plan, `plan_…`. Null if the action is not about a plan.
    plan_id: Option<ID>,
    /// Id of the execution, `exec_…`. Null if the action is not about an execution.
    execution_id: Option<ID>,
    /// Id of the step. Null if the action is not about a step.
    step_id: Option<String>,
    /// Name of the tool, toolset, saved plan, signal, context, or node of the toolkit that the
    /// action is about. Null if it is about none of these.
    name: Option<String>,
    /// Further facts about the action, as a JSON object. Null if there are none.
    detail: Option<Value>,
}

impl From<store::AuditEntry> for AuditEntry {
    fn from(entry: store::AuditEntry) -> Self {
        let store::AuditEntry { id, at, actor, action, target, detail } = entry;
        let AuditTarget { request, plan, execution, step, name } = target;
        Self {
            id: ID(id.to_string()),
            at: at.into(),
            actor: Actor::from(&*actor),
            action: action.to_string(),
            request_id: request.map(|id| ID(id.to_string())),
            plan_id: plan.map(|id| ID(id.to_string())),
            execution_id: execution.map(|id| ID(id.to_string())),
            step_id: step.map(|step| step.to_string()),
            name,
            detail: (!detail.is_empty()).then_some(Value::Object(detail)),
        }
    }
}

/// Filter for audit entries. All given fields must match.
#[derive(Clone, Debug, Default, InputObject)]
pub(super) struct AuditFilter {
    /// Actions of an actor of this kind.
    actor_kind: Option<ActorKind>,
    /// Actions of the access token, or of the user of the command line, with this name.
    actor_name: Option<String>,
    /// Name of the action, such as `approve`. Fails with `INVALID_ARGUMENT` if it is unknown.
    action: Option<String>,
    /// Actions about the execution with this id, `exec_…`.
    execution_id: Option<ID>,
    /// Actions at or after this time.
    from: Option<DateTime>,
    /// Actions before this time.
    to: Option<DateTime>,
}

impl AuditFilter {
    /// Returns `None` if no entry can match.
    fn into_store_filter(self) -> ApiResult<Option<store::AuditFilter>> {
        let action = self.action.as_deref().map(parse_action).transpose()?;
        let Ok(execution) = self.execution_id.map(|id| id.parse()).transpose() else {
            return Ok(None);
        };
        Ok(Some(store::AuditFilter {
            actor_kind: self.actor_kind.map(actor::ActorKind::from),
            actor_name: self.actor_name,
            action,
            execution,
            from: self.from.map(|from| from.0),
            to: self.to.map(|to| to.0),
        }))
    }
}

fn parse_action(name: &str) -> ApiResult<AuditAction> {
    AuditAction::find(name).ok_or_else(|| {
        let name: String = name.chars().take(64).collect();
        let known: Vec<&str> = AuditAction::ALL.iter().map(AuditAction::as_str).collect();
        let known = known.join("`, `");
        invalid_argument(format!("there is no action `{name}`; the actions are `{known}`"))
    })
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AuditQuery;

#[Object]
impl AuditQuery {
    /// Audit entries, newest first: who started and controlled executions, who called tools outside
    /// plans, and who changed plans, tools, toolsets, contexts, the toolkit and stored data. Needs
    /// the role `admin`.
    async fn audit(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Filter. Default: all entries.")] filter: Option<AuditFilter>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
    ) -> Result<ListPage<AuditEntry>> {
        let page = parse_page::<AuditId>(first, after.as_deref())?;
        let Some(filter) = filter.unwrap_or_default().into_store_filter()? else {
            return Ok(empty_page(&page));
        };
        let listing = ctx.data::<Engine>()?.store().list_audit_entries(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let items =
            listing.items.into_iter().map(|(cursor, entry)| (cursor, AuditEntry::from(entry)));
        Ok(make_page(&page, items, listing.has_more, ListTotal::Audit(filter)))
    }
}
