//! Audit entries. Each action of an actor has one entry, so that one index answers who did what.

use std::{borrow::Cow, fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Command, Listing, Page, SentCommand, StoreError};
use crate::{
    actor::{Actor, ActorKind},
    clock::Timestamp,
    event::{Created, Event, RecordedEvent},
    id::{AuditId, ExecutionId, PlanId, RequestId, StepId},
    json, limits,
};

/// The name of an action, in snake case. It is a text, because a node of a later version may write
/// actions that this node does not know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuditAction(Cow<'static, str>);

macro_rules! audit_actions {
    ($($name:ident = $text:literal;)*) => {
        impl AuditAction {
            $(pub const $name: Self = Self(Cow::Borrowed($text));)*
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

audit_actions! {
    PLAN = "plan";
    SAVE_PLAN = "save_plan";
    REMOVE_SAVED_PLAN = "remove_saved_plan";
    EXECUTE = "execute";
    RETRY = "retry";
    REPLAN = "replan";
    FORK = "fork";
    APPROVE = "approve";
    REJECT = "reject";
    SETTLE = "settle";
    SIGNAL = "signal";
    CANCEL = "cancel";
    PAUSE = "pause";
    RESUME = "resume";
    BULK_CONTROL = "bulk_control";
    PRUNE = "prune";
    SET_CONTEXT = "set_context";
    CALL_TOOL = "call_tool";
    REGISTER_TOOL = "register_tool";
    REMOVE_TOOL = "remove_tool";
    ADD_TOOL_SET = "add_tool_set";
    REMOVE_TOOL_SET = "remove_tool_set";
    ACTIVATE_TOOL_SET = "activate_tool_set";
    DEACTIVATE_TOOL_SET = "deactivate_tool_set";
    ADD_ACTION = "add_action";
    REMOVE_ACTION = "remove_action";
    CONNECT_TOOL = "connect_tool";
    DISCONNECT_TOOL = "disconnect_tool";
    SET_SCORE = "set_score";
    UPDATE_TOOLKIT = "update_toolkit";
    BACKUP = "backup";
    EXPORT = "export";
    RESTORE = "restore";
    IMPORT = "import";
    REKEY = "rekey";
}

impl AuditAction {
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|action| action.as_str() == name).cloned()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditTarget {
    #[serde(default, rename = "requestId", skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    #[serde(default, rename = "planId", skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanId>,
    #[serde(default, rename = "executionId", skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    #[serde(default, rename = "stepId", skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
    /// The name of a tool, toolset, saved plan, signal, context or node of the toolkit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AuditTarget {
    /// Returns a target that has a name only. Clips a long name.
    pub fn named(name: &str) -> Self {
        Self { name: Some(clip_name(name)), ..Self::default() }
    }

    pub fn of_execution(id: ExecutionId) -> Self {
        Self { execution: Some(id), ..Self::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: AuditId,
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    pub actor: Arc<Actor>,
    pub action: AuditAction,
    #[serde(flatten)]
    pub target: AuditTarget,
    /// Facts about the action, at most [`limits::AUDIT_DETAIL_BYTES`] of JSON. Comments, reasons
    /// and payloads are not among them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

impl AuditEntry {
    /// Makes an entry with a new id. Leaves out null fields of the detail. Leaves out the whole
    /// detail if it is too large or no object.
    pub fn new(
        at: Timestamp,
        actor: Arc<Actor>,
        action: AuditAction,
        target: AuditTarget,
        detail: Value,
    ) -> Self {
        Self { id: AuditId::draw(at), at, actor, action, target, detail: bound_detail(detail) }
    }

    /// Returns the entry about the start of an execution, or `None` if the event is not the first
    /// one or has no actor. Executions that the engine starts for a step have no actor.
    pub fn of_start(execution: ExecutionId, first: &RecordedEvent) -> Option<Box<Self>> {
        let (Event::Created(created), Some(by)) = (&first.event, &first.by) else { return None };
        let Created { plan, request, options, retry_of, is_replan, forked_from, .. } = &**created;
        let action = match (retry_of, is_replan) {
            (Some(_), true) => AuditAction::REPLAN,
            (Some(_), false) => AuditAction::RETRY,
            (None, _) if forked_from.is_some() => AuditAction::FORK,
            (None, _) => AuditAction::EXECUTE,
        };
        let target = AuditTarget {
            request: Some(*request),
            plan: Some(*plan),
            ..AuditTarget::of_execution(execution)
        };
        let detail = json!({
            "retryOf": retry_of,
            "forkedFrom": forked_from,
            "dryRun": options.dry_run.then_some(true),
        });
        Some(Box::new(Self {
            id: AuditId::of_start(execution),
            at: first.at,
            actor: Arc::clone(by),
            action,
            target,
            detail: bound_detail(detail),
        }))
    }

    /// Returns the entry about a command, or `None` if it has no actor, such as a command from one
    /// execution to another.
    pub fn of_command(sent: &SentCommand) -> Option<Self> {
        let actor = Arc::clone(sent.by.as_ref()?);
        let mut target = AuditTarget::of_execution(sent.execution);
        let (action, detail) = match &sent.command {
            Command::Cancel { .. } => (AuditAction::CANCEL, Value::Null),
            Command::Pause => (AuditAction::PAUSE, Value::Null),
            Command::Resume => (AuditAction::RESUME, Value::Null),
            Command::Approve { step, item, approved, .. } => {
                target.step = Some(step.clone());
                let action = if *approved { AuditAction::APPROVE } else { AuditAction::REJECT };
                (action, json!({ "index": item }))
            }
            Command::Settle { step, item, decision } => {
                target.step = Some(step.clone());
                let outcome = decision.outcome.as_str();
                (AuditAction::SETTLE, json!({ "index": item, "outcome": outcome }))
            }
            Command::Signal { name, .. } => {
                target.name = Some(clip_name(name));
                (AuditAction::SIGNAL, Value::Null)
            }
            Command::ChildEnded { .. } => return None,
        };
        let (id, detail) = (AuditId::of_command(sent.id), bound_detail(detail));
        Some(Self { id, at: sent.at, actor, action, target, detail })
    }
}

fn clip_name(name: &str) -> String {
    name.chars().take(limits::AUDIT_NAME_CHARS).collect()
}

fn bound_detail(detail: Value) -> Map<String, Value> {
    if json::json_size(&detail) > limits::AUDIT_DETAIL_BYTES {
        return Map::new();
    }
    let Value::Object(mut detail) = detail else { return Map::new() };
    detail.retain(|_, value| !value.is_null());
    detail
}

/// Selects the audit entries that meet all conditions. A field that is `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor_kind: Option<ActorKind>,
    /// The name of a token or a user.
    pub actor_name: Option<String>,
    pub action: Option<AuditAction>,
    pub execution: Option<ExecutionId>,
    /// Selects entries at or after this time.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

impl AuditFilter {
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        self.actor_kind.is_none_or(|kind| entry.actor.kind == kind)
            && self.actor_name.as_ref().is_none_or(|name| entry.actor.name.as_ref() == Some(name))
            && self.action.as_ref().is_none_or(|action| entry.action == *action)
            && self.execution.is_none_or(|id| entry.target.execution == Some(id))
            && self.from.is_none_or(|from| from <= entry.at)
            && self.to.is_none_or(|to| entry.at < to)
    }
}

/// Keeps audit entries. Entries never change, and retention removes the oldest entries.
///
/// A store itself writes the entries of [starts](super::Append::audit) and of
/// [commands](AuditEntry::of_command).
#[async_trait]
pub trait AuditLog: fmt::Debug + Send + Sync {
    /// Stores entries, and returns the number of new entries. Skips entries that are already
    /// stored, so a caller can repeat a failed call.
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError>;

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError>;

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError>;

    /// Removes the oldest entries before a time, at most `most`. Returns the number of removed
    /// entries.
    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{execution::ExecutionOptions, id::Seq};

    fn time_at(seconds: i64) -> Timestamp {
        Timestamp::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn an_entry_has_bounds_and_is_read_back_from_json() {
        let actor = Arc::new(Actor::token("ops"));
        let target = AuditTarget::named(&"ö".repeat(1_000));
        let detail = json!({ "removed": 3, "left": null });
        let action = AuditAction::PRUNE;
        let entry = AuditEntry::new(time_at(7), Arc::clone(&actor), action.clone(), target, detail);
        assert_eq!(entry.target.name.as_ref().unwrap().chars().count(), limits::AUDIT_NAME_CHARS);
        assert_eq!(json!(entry.detail), json!({ "removed": 3 }));
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<AuditEntry>(&text).unwrap(), entry);
        let large = json!({ "text": "x".repeat(limits::AUDIT_DETAIL_BYTES) });
        let entry = AuditEntry::new(time_at(7), actor, action, AuditTarget::default(), large);
        assert!(entry.detail.is_empty());
    }

    #[test]
    fn the_entry_about_a_start_names_its_kind() {
        let (plan, request) = ("plan_1_aaaaaaaaa".parse(), "req_1_aaaaaaaaa".parse());
        let id: ExecutionId = "exec_1_aaaaaaaaa".parse().unwrap();
        let before: ExecutionId = "exec_1_bbbbbbbbb".parse().unwrap();
        let created = Created::new(plan.unwrap(), request.unwrap(), ExecutionOptions::default());
        let first = |by: Option<Actor>, retry_of, is_replan| RecordedEvent {
            seq: Seq(1),
            at: time_at(1),
            by: by.map(Arc::new),
            event: Event::Created(Box::new(Created { retry_of, is_replan, ..created.clone() })),
        };
        let ops = || Some(Actor::token("ops"));
        let mut fork = first(ops(), None, false);
        if let Event::Created(created) = &mut fork.event {
            created.forked_from = Some(before);
        }
        for (first, action) in [
            (first(ops(), None, false), AuditAction::EXECUTE),
            (first(ops(), Some(before), false), AuditAction::RETRY),
            (first(Some(Actor::faber()), Some(before), true), AuditAction::REPLAN),
            (fork, AuditAction::FORK),
        ] {
            let entry = AuditEntry::of_start(id, &first).unwrap();
            assert_eq!((entry.action.clone(), entry.target.execution), (action, Some(id)));
            assert_eq!(entry.id.to_string(), "audit_1_aaaaaaaaa");
            assert_eq!(AuditEntry::of_start(id, &first), Some(entry), "it is always the same");
        }
        assert_eq!(AuditEntry::of_start(id, &first(None, None, false)), None);
    }

    #[test]
    fn the_entry_about_a_command_leaves_out_texts_of_people() {
        let sent = |by, command| SentCommand {
            id: "cmd_1_aaaaaaaaa".parse().unwrap(),
            execution: "exec_1_aaaaaaaaa".parse().unwrap(),
            at: time_at(1),
            by,
            command,
        };
        let approve = Command::Approve {
            step: "pay".parse().unwrap(),
            item: Some(3),
            approved: false,
            comment: Some("secret".to_owned()),
        };
        let by = Some(Arc::new(Actor::user(Some("ada"))));
        let entry = AuditEntry::of_command(&sent(by.clone(), approve)).unwrap();
        assert_eq!(
            serde_json::to_value(&entry).unwrap(),
            json!({
                "id": "audit_1_aaaaaaaaa", "at": 1_000_000,
                "actor": { "kind": "user", "name": "ada" }, "action": "reject",
                "executionId": "exec_1_aaaaaaaaa", "stepId": "pay", "detail": { "index": 3 },
            })
        );
        assert_eq!(AuditEntry::of_command(&sent(None, Command::Pause)), None);
        let child = Command::ChildEnded { child: "exec_1_bbbbbbbbb".parse().unwrap() };
        assert_eq!(AuditEntry::of_command(&sent(by, child)), None);
    }

    #[test]
    fn each_action_has_a_distinct_name() {
        let names: std::collections::BTreeSet<_> = AuditAction::ALL.iter().collect();
        assert_eq!(names.len(), AuditAction::ALL.len());
        for action in AuditAction::ALL {
            assert_eq!(AuditAction::find(action.as_str()).as_ref(), Some(action));
        }
        assert_eq!(AuditAction::find("dance"), None);
    }
}
