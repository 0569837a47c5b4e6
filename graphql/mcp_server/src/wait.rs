//! Waits until an execution is finished or needs a person.

use std::{sync::Arc, time::Duration};

use client::{Client, event_tree::EventTree, failure::Failure};
use futures::StreamExt;
use serde_json::Value;
use shared::store::Store;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::progress::ProgressReporter;

/// Delay before a broken subscription is resumed.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);
/// Poll interval for executions without a subscription.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Wait<'a> {
    pub(crate) client: &'a Client,
    pub(crate) store: Option<&'a Arc<dyn Store>>,
    pub(crate) timeout: Duration,
    /// Cancelled when the caller leaves. The execution continues.
    pub(crate) caller_left: &'a CancellationToken,
}

impl Wait<'_> {
    /// Waits until the execution is finished or needs a person, until the timeout, or until the
    /// caller leaves.
    pub(crate) async fn until_done(
        &self,
        id: &str,
        reports: &mut ProgressReporter,
    ) -> Result<(), Failure> {
        let waited = tokio::select! {
            followed = time::timeout(self.timeout, self.follow_events(id, reports)) => followed,
            () = self.caller_left.cancelled() => return Ok(()),
        };
        reports.flush().await;
        waited.unwrap_or(Ok(()))
    }

    async fn follow_events(&self, id: &str, reports: &mut ProgressReporter) -> Result<(), Failure> {
        let mut tree = EventTree::new(id.to_owned());
        let mut polls = time::interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let mut events = tree.subscribe(self.client);
            loop {
                let needs_polling = tree.needs_polling();
                tokio::select! {
                    next = events.next() => {
                        let Some((of, event)) = next else { break };
                        if let Some(news) = tree.apply(self.client, &mut events, &of, &event?) {
                            reports.report_news(&news, tree.root().steps_over).await;
                        }
                    }
                    () = reports.send_when_due() => continue,
                    _ = polls.tick(), if needs_polling => (),
                }
                if tree.root().is_over {
                    return Ok(());
                }
                if tree.waits_for_person() && self.is_left_waiting(&tree).await? {
                    return Ok(());
                }
            }
            if matches!(self.load_state(id).await?.as_str(), "COMPLETED" | "FAILED" | "CANCELLED") {
                return Ok(());
            }
            time::sleep(RESUBSCRIBE_DELAY).await;
        }
    }

    /// Returns `true` if a person must act and has not sent a command yet. A command leaves the
    /// inbox in the append that records its effect, so this function reads the inbox before the
    /// state.
    async fn is_left_waiting(&self, tree: &EventTree) -> Result<bool, Failure> {
        for id in tree.waiting_children() {
            if self.load_state(id).await? != "WAITING" {
                return Ok(false);
            }
        }
        for id in tree.asking_executions() {
            let has_command = match (self.store, id.parse()) {
                (Some(store), Ok(id)) => !store.list_commands(Some(id)).await?.is_empty(),
                _ => false,
            };
            if has_command || self.load_state(&id).await? != "WAITING" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn load_state(&self, id: &str) -> Result<String, Failure> {
        let found: Value = self.client.execution(id, "state").await?;
        Ok(found["state"].as_str().unwrap_or_default().to_owned())
    }
}
