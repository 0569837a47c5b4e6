//! Dry runs recorded: their whole life is one append, and no worker ever has them.

use std::sync::Arc;

use shared::{
    event::Created,
    id::{ExecutionId, Seq},
    plan::Plan,
    store::{Append, AppendError, Head, Reservation, StoreError},
};

use super::{Control, ControlError, DRAWS, IdempotencyKey, fingerprint, validate};
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
            let mut id = ExecutionId::draw(now);
            if let Some(key) = key {
                let fingerprint = fingerprint(key, &created.options);
                let wanted = Reservation { key: key.key.clone(), execution: id, fingerprint };
                if let Some(found) = self.store.reserve(&wanted).await? {
                    if let Some(id) = self.recognise(&found, &wanted.fingerprint).await? {
                        return Ok(id);
                    }
                    id = found.execution;
                }
            }
            let (execution, events) =
                machine::dry_run(id, plan, created.clone(), now, verdicts.clone())
                    .map_err(|err| ControlError::Invalid(err.to_string()))?;
            let mut append = Append::new(id, Seq::START, &events);
            append.head = Some(Head::of(&execution, None, None));
            match self.store.append(append).await {
                Ok(()) => return Ok(id),
                Err(AppendError::Conflict) => (),
                Err(AppendError::Store(err)) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }
}
