//! Waits until an execution is finished or needs a person.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::Value;
use shared::store::Store;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::progress::Reports;
use crate::cli::{client::Client, event_tree::EventTree, failure::Failure};

/// Delay before a broken subscription is resumed.
const AGAIN: Duration = Duration::from_secs(1);
/// Poll interval for executions without a subscription.
const LOOK: Duration = Duration::from_secs(1);

/// A wait for an execution.
pub(crate) struct Wait<'a> {
    pub(crate) client: &'a Client,
    pub(crate) store: Option<&'a Arc<dyn Store>>,
    pub(crate) most: Duration,
    /// Cancelled when the caller leaves. The execution continues.
    pub(crate) left: &'a CancellationToken,
}

impl Wait<'_> {
    /// Waits until the execution is finished or needs a person, until the timeout, or until the
    /// caller leaves.
    pub(crate) async fn until_over(&self, id: &str, reports: &mut Reports) -> Result<(), Failure> {
        let waited = tokio::select! {
            followed = time::timeout(self.most, self.follow(id, reports)) => followed,
            () = self.left.cancelled() => return Ok(()),
        };
        reports.flush().await;
        waited.unwrap_or(Ok(()))
    }

    async fn follow(&self, id: &str, reports: &mut Reports) -> Result<(), Failure> {
        let mut tree = EventTree::new(id.to_owned());
        let mut looks = time::interval(LOOK);
        looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let mut events = tree.subscribe(self.client);
            loop {
                let waits = tree.needs_polling();
                tokio::select! {
                    next = events.next() => {
                        let Some((of, event)) = next else { break };
                        if let Some(news) = tree.apply(self.client, &mut events, &of, &event?) {
                            reports.tell(&news, tree.root().steps_over).await;
                        }
                    }
                    () = reports.tick() => continue,
                    _ = looks.tick(), if waits => (),
                }
                if tree.root().is_over {
                    return Ok(());
                }
                if tree.waits_for_person() && self.is_left_waiting(&tree).await? {
                    return Ok(());
                }
            }
            if matches!(self.state(id).await?.as_str(), "COMPLETED" | "FAILED" | "CANCELLED") {
                return Ok(());
            }
            time::sleep(AGAIN).await;
        }
    }

    /// Returns whether no command is pending. A command leaves the inbox in the append that records
    /// its effect, so this function reads the inbox before the state.
    async fn is_left_waiting(&self, tree: &EventTree) -> Result<bool, Failure> {
        for id in tree.queued() {
            if self.state(id).await? != "WAITING" {
                return Ok(false);
            }
        }
        for id in tree.asking_executions() {
            let has_mail = match (self.store, id.parse()) {
                (Some(store), Ok(id)) => !store.list_commands(Some(id)).await?.is_empty(),
                _ => false,
            };
            if has_mail || self.state(&id).await? != "WAITING" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn state(&self, id: &str) -> Result<String, Failure> {
        let found: Value = self.client.execution(id, "state").await?;
        Ok(found["state"].as_str().unwrap_or_default().to_owned())
    }
}
