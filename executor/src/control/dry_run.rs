//! Stores dry runs. A dry run is one append, and no worker claims it.

use shared::{
    id::{ExecutionId, Seq},
    store::{Append, AppendError, ExecutionHead, StoreError},
};

use super::{Control, ControlError, MAX_ID_ATTEMPTS, ReservedId, Start, validate_start};
use crate::machine::{self, CheckedStep};

impl Control {
    /// Stores a dry run as a finished execution. `verdicts` has one entry for each step of the
    /// plan.
    pub async fn record_dry_run(
        &self,
        start: Start,
        verdicts: Vec<CheckedStep>,
    ) -> Result<ExecutionId, ControlError> {
        let Start { plan, created, key, .. } = start;
        validate_start(&created.options, key.as_ref())?;
        for _ in 0..MAX_ID_ATTEMPTS {
            let now = self.clock.now();
            let id = match self.reserve_id(key.as_ref(), &created.options, now).await? {
                ReservedId::Taken(id) => return Ok(id),
                ReservedId::Free(id) => id,
            };
            let (execution, mut events) =
                machine::dry_run_events(id, &plan, created.clone(), now, verdicts.clone())
                    .map_err(|err| ControlError::Invalid(err.to_string()))?;
            if let Some(created) = events.first_mut() {
                created.by.clone_from(&self.actor);
            }
            let mut append = Append::new(id, Seq::START, &events);
            append.head = Some(ExecutionHead::from_execution(&execution, None, None));
            match self.store.append(append).await {
                Ok(()) => return Ok(id),
                Err(AppendError::Conflict) => {
                    if key.is_some() && self.repair_head(id, Some(&plan)).await? {
                        return Ok(id);
                    }
                }
                Err(AppendError::Store(err)) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use shared::{
        clock::{Clock, WallClock},
        event::Created,
        execution::{ExecutionOptions, ExecutionState},
        plan::Plan,
        store::{Documents, Log, Reservation, Store, memory::Memory},
    };

    use super::*;
    use crate::control::{IdempotencyKey, Labels, fingerprint};

    fn plan() -> Arc<Plan> {
        let plan = json!({
            "about": {
                "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "q", "planner": "explicit", "created_at": 0,
            },
            "steps": [{ "id": "a", "tool": "flow.noop", "parameters": {}, "policy": {} }],
        });
        Arc::new(Plan::from_json(&plan.to_string()).unwrap())
    }

    #[tokio::test]
    async fn a_dry_run_without_a_head_is_found_by_its_idempotency_key() {
        let (store, clock, plan) = (Arc::new(Memory::new()), Arc::new(WallClock), plan());
        let options = ExecutionOptions { dry_run: true, ..ExecutionOptions::default() };
        let created = Created::new(plan.id(), plan.info().request, options.clone());
        let key = IdempotencyKey {
            key: "k".to_owned(),
            subject: Value::Null,
            compensates: None,
            labels: Labels::new(),
        };
        let verdicts = || {
            vec![CheckedStep { parameters: Arc::new(json!({})), warnings: Vec::new(), error: None }]
        };
        let (now, id) = (clock.now(), ExecutionId::draw(clock.now()));
        // Simulates a start that crashed after it wrote the log and before it wrote the head.
        let fingerprint = fingerprint(&key, &options);
        let key_of = Reservation { key: "k".to_owned(), execution: id, fingerprint };
        (&*store as &dyn Store).reserve_key(&key_of).await.unwrap();
        let (_, events) =
            machine::dry_run_events(id, &plan, created.clone(), now, verdicts()).unwrap();
        store.append(Append::new(id, Seq::START, &events)).await.unwrap();

        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let start = Start { key: Some(key), ..Start::from_created(&plan, created) };
        let found = control.record_dry_run(start, verdicts()).await;
        assert_eq!(found, Ok(id));
        let head = store.head(id).await.unwrap().unwrap();
        assert_eq!((head.state, head.due), (ExecutionState::Completed, None));
        assert_eq!(head.seq, events.last().unwrap().seq, "no worker claims it again");
    }
}
