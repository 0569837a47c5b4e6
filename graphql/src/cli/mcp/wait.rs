//! Waits until an execution is over, or needs a person.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::json;
use shared::store::Store;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{
    super::{client::Client, failure::Failure, tree::Tree},
    reports::Reports,
};

/// How long to wait before a stream that ended is taken up again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often executions are looked at that are not followed, where all others wait.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for an execution.
pub(super) struct Wait<'a> {
    pub(super) client: &'a Client,
    pub(super) store: Option<&'a Arc<dyn Store>>,
    /// The longest.
    pub(super) most: Duration,
    /// Cancelled when nobody waits any more. The execution goes on.
    pub(super) left: &'a CancellationToken,
}

impl Wait<'_> {
    /// Returns when the execution is over or waits for a person, when the time is up, or when
    /// nobody waits any more.
    pub(super) async fn until_over(&self, id: &str, reports: &mut Reports) -> Result<(), Failure> {
        let waited = tokio::select! {
            followed = time::timeout(self.most, self.follow(id, reports)) => followed,
            () = self.left.cancelled() => return Ok(()),
        };
        reports.flush().await;
        waited.unwrap_or(Ok(()))
    }

    async fn follow(&self, id: &str, reports: &mut Reports) -> Result<(), Failure> {
        let mut tree = Tree::new(id.to_owned());
        let mut looks = time::interval(LOOK);
        looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            let mut events = tree.subscribe(self.client);
            loop {
                let waits = tree.waits_unseen();
                tokio::select! {
                    next = events.next() => {
                        let Some((of, event)) = next else { break };
                        if let Some(news) = tree.apply(self.client, &mut events, (&of, &event?)) {
                            reports.tell(&news, tree.root().n_over).await;
                        }
                    }
                    () = reports.tick() => continue,
                    _ = looks.tick(), if waits => (),
                }
                if tree.root().is_over() {
                    return Ok(());
                }
                if tree.waits_for_a_person() && self.is_left_waiting(&tree).await? {
                    return Ok(());
                }
            }
            if matches!(self.state(id).await?.as_str(), "COMPLETED" | "FAILED" | "CANCELLED") {
                return Ok(());
            }
            time::sleep(AGAIN).await;
        }
    }

    /// Returns whether nothing goes on until a person speaks, none having spoken already. (A
    /// command leaves the inbox together with what it makes happen, so the inbox is read first.)
    async fn is_left_waiting(&self, tree: &Tree) -> Result<bool, Failure> {
        for id in tree.queued() {
            if self.state(id).await? != "WAITING" {
                return Ok(false);
            }
        }
        let mut ids: Vec<String> = tree.persons().into_iter().map(|(id, _)| id).collect();
        ids.dedup();
        for id in ids {
            let has_mail = match (self.store, id.parse()) {
                (Some(store), Ok(id)) => !store.inbox(Some(id)).await?.is_empty(),
                _ => false,
            };
            if has_mail || self.state(&id).await? != "WAITING" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn state(&self, id: &str) -> Result<String, Failure> {
        let query = "query($id: ID!) { execution(executionId: $id) { state } }";
        let found = self.client.field(query, json!({ "id": id })).await?;
        Ok(found["state"].as_str().unwrap_or_default().to_owned())
    }
}
