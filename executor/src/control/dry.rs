//! Dry runs recorded: their whole life is one append, and no worker ever has them.

use std::sync::Arc;

use shared::{
    event::Created,
    id::{ExecutionId, Seq},
    plan::Plan,
    store::{Append, Head, StoreError},
};

use super::{Control, ControlError, DRAWS, IdempotencyKey, Place, validate};
use crate::machine::{self, Verdict};

impl Control {
    /// Records what was found of every step of a plan, in plan order, as a whole execution.
    pub async fn record_dry_run(
        &self,
        plan: &Arc<Plan>,
        created: Created,
        key: Option<&IdempotencyKey>,
        verdicts: Vec<Verdict>,
    ) -> Result<ExecutionId, ControlError> {
        validate(&created.options, key)?;
        for _ in 0..DRAWS {
            let now = self.clock.now();
            let id = match self.place(key, &created.options, ExecutionId::draw(now)).await? {
                Place::Taken(id) => return Ok(id),
                Place::Free(id) => id,
            };
            let (execution, events) =
                machine::dry_run(id, plan, created.clone(), now, verdicts.clone())
                    .map_err(|err| ControlError::Invalid(err.to_string()))?;
            let mut append = Append::new(id, Seq::START, &events);
            append.head = Some(Head::of(&execution, None, None));
            let begun = self.store.append(append).await;
            if self.has_begun(id, plan, key, begun).await? {
                return Ok(id);
            }
        }
        Err(StoreError::Taken.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::{
        clock::{Clock, WallClock},
        execution::{ExecutionOptions, ExecutionState},
        store::{Documents, ExecutionLog, Reservation, memory::Memory},
    };

    use super::*;
    use crate::control::fingerprint;

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
    async fn a_keyed_dry_run_that_lost_its_head_is_found_again() {
        let (store, clock, plan) = (Arc::new(Memory::new()), Arc::new(WallClock), plan());
        let options = ExecutionOptions { dry_run: true, ..ExecutionOptions::default() };
        let created = Created::new(plan.id(), plan.about().request, options.clone());
        let key = IdempotencyKey { key: "k".to_owned(), subject: Value::Null };
        let verdicts =
            || vec![Verdict { parameters: Arc::new(json!({})), warnings: Vec::new(), error: None }];
        let (now, id) = (clock.now(), ExecutionId::draw(clock.now()));
        // Whoever began it was lost between the log and the head.
        let fingerprint = fingerprint(&key, &options);
        let key_of = Reservation { key: "k".to_owned(), execution: id, fingerprint };
        store.reserve(&key_of).await.unwrap();
        let (_, events) = machine::dry_run(id, &plan, created.clone(), now, verdicts()).unwrap();
        store.append(Append::new(id, Seq::START, &events)).await.unwrap();

        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let found = control.record_dry_run(&plan, created, Some(&key), verdicts()).await;
        assert_eq!(found, Ok(id));
        let head = store.head(id).await.unwrap().unwrap();
        assert_eq!((head.state, head.due), (ExecutionState::Completed, None));
        assert_eq!(head.seq, events.last().unwrap().seq, "nobody need look at it again");
    }
}
