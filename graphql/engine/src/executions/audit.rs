//! Records actions in the audit log, except starts of executions and commands, which the stores
//! record.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    plan::Plan,
    store::{AuditAction, AuditEntry, AuditTarget, Store},
};

use super::Executions;
use crate::error::EngineError;

impl Executions {
    /// Records an action of the caller that belongs to no execution. Call it after the action: a
    /// failure is only logged, because the action has already happened.
    pub async fn record_action(&self, action: AuditAction, target: AuditTarget, detail: Value) {
        let Some(actor) = self.control.actor() else { return };
        let now = self.clock.now();
        let entry = AuditEntry::new(now, Arc::clone(actor), action, target, detail);
        record_entry(&*self.store, entry).await;
    }

    /// Records that the caller planned a query. If planning failed, records this only if the
    /// request is stored.
    pub async fn record_planning(&self, planned: &Result<Arc<Plan>, EngineError>) {
        match planned {
            Ok(plan) => self.record_plan(plan).await,
            Err(err) => {
                let Some(request) = err.request() else { return };
                let target = AuditTarget { request: Some(request), ..AuditTarget::default() };
                let detail = json!({ "error": err.code() });
                self.record_action(AuditAction::PLAN, target, detail).await;
            }
        }
    }

    pub async fn record_plan(&self, plan: &Plan) {
        let info = plan.info();
        let target = AuditTarget {
            request: Some(info.request),
            plan: Some(info.id),
            ..AuditTarget::default()
        };
        let detail = json!({ "version": info.version, "planner": info.planner });
        self.record_action(AuditAction::PLAN, target, detail).await;
    }
}

pub async fn record_entry(store: &dyn Store, entry: AuditEntry) {
    if let Err(err) = store.put_audit_entries(std::slice::from_ref(&entry)).await {
        let (actor, action) = (&entry.actor, &entry.action);
        tracing::warn!(%err, %actor, %action, "an action is missing in the audit log");
    }
}
