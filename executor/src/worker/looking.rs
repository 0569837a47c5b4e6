//! Looking for executions to take, and for commands to deliver.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use shared::{
    id::ExecutionId,
    store::{Command, Envelope, Head, StoreError},
};
use tracing::warn;

use super::{Scope, Worker};

/// How many executions one look takes.
const LOOK: usize = 256;

impl Worker {
    /// Takes what is due and what workers that are gone left. Returns when to look again.
    pub(super) async fn look(&mut self) -> Duration {
        let poll = self.context.options.poll;
        if let Err(err) = self.look_again().await {
            warn!(%err, "cannot look who has the executions that were given up");
        }
        if self.scope == Scope::Given {
            return poll;
        }
        match self.try_look().await {
            Ok(wait) => wait,
            Err(err) => {
                warn!(%err, "cannot look for work");
                poll
            }
        }
    }

    /// Claims what drivers here gave up, unless another worker has it by now: claiming that would
    /// interrupt its steps. What is still this worker's by its head nobody else looks for.
    async fn look_again(&mut self) -> Result<(), StoreError> {
        for (id, known) in self.again.clone() {
            let head = self.context.store.head(id).await?;
            let free = head.filter(|it| !it.state.is_over() && self.is_free(it));
            if free.is_none_or(|it| self.claim(id, it.epoch.max(known))) {
                self.again.remove(&id);
            }
        }
        Ok(())
    }

    async fn try_look(&mut self) -> Result<Duration, StoreError> {
        let store = Arc::clone(&self.context.store);
        let poll = self.context.options.poll;
        let now = self.context.clock.now();
        let orphans = store.orphans(now, LOOK + self.lacking.len()).await?;
        let n_orphans = self.claim_all(orphans).await?;
        let room = self.room.available_permits().min(LOOK);
        if room == 0 {
            return Ok(poll);
        }
        let due = store.due(now, room + self.lacking.len()).await?;
        if self.claim_all(due).await? + n_orphans >= room {
            return Ok(Duration::ZERO);
        }
        let next = store.next_due().await?;
        let wait = next.and_then(|it| (it - self.context.clock.now()).to_std().ok());
        Ok(wait.filter(|it| !it.is_zero()).map_or(poll, |it| it.min(poll)))
    }

    /// Claims those whose tools are at hand, and returns how many.
    async fn claim_all(&mut self, heads: Vec<Head>) -> Result<usize, StoreError> {
        let mut claimed = 0;
        let mut lacking = BTreeSet::new();
        for head in heads {
            if self.has_tools(&head).await? {
                let is_new = !self.local.has(head.execution);
                claimed += usize::from(self.claim(head.execution, head.epoch) && is_new);
            } else {
                lacking.insert(head.execution);
            }
        }
        self.lacking = lacking;
        Ok(claimed)
    }

    async fn has_tools(&self, head: &Head) -> Result<bool, StoreError> {
        match self.context.plans.get(&*self.context.store, head.plan).await {
            Ok(Some(plan)) => Ok(self.context.toolbox.has_all(plan.tools())),
            Ok(None) | Err(StoreError::Corrupt { .. }) => {
                warn!(execution = %head.execution, plan = %head.plan, "its plan cannot be read");
                Ok(false)
            }
            Err(err) => Err(err),
        }
    }

    /// Gives commands to the drivers here, and takes executions that nobody has for those that
    /// are left.
    pub(super) async fn deliver(&mut self) {
        if let Err(err) = self.try_deliver().await {
            warn!(%err, "cannot look for commands");
        }
    }

    async fn try_deliver(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.context.store);
        let mut settled = Vec::new();
        for envelope in store.inbox(None).await? {
            if self.local.deliver(&envelope) || self.scope == Scope::Given {
                continue;
            }
            match store.head(envelope.execution).await? {
                Some(head) if head.state.is_over() => settled.push(envelope.id),
                Some(head) if self.is_free(&head) => self.claim_for(&head, &envelope).await?,
                Some(_) => (),
                None => settled.push(envelope.id),
            }
        }
        if !settled.is_empty() {
            store.discard(settled).await?;
        }
        Ok(())
    }

    fn is_free(&self, head: &Head) -> bool {
        head.owner.is_none_or(|it| it == self.context.worker)
    }

    /// Takes an execution for a command. To stop one, no tools are needed.
    async fn claim_for(&mut self, head: &Head, envelope: &Envelope) -> Result<(), StoreError> {
        let stops = matches!(envelope.command, Command::Cancel { .. } | Command::Pause);
        if stops || self.has_tools(head).await? {
            self.claim(head.execution, head.epoch);
        }
        Ok(())
    }

    /// Keeps an execution that a driver gave up, to be claimed again.
    pub(super) fn again(&mut self, id: ExecutionId) {
        self.again.entry(id).or_default();
    }
}
