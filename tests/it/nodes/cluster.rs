use std::{collections::BTreeMap, sync::Arc, time::Duration};

use engine::store::open_store;
use serde_json::Value;
use shared::{
    event::{Event, RecordedEvent},
    execution::{Execution, ExecutionState},
    id::{ExecutionId, WorkerId},
    store::{ExecutionHead, Store},
};
use tests::request_retries::retry_until_answered;
use tokio::time::{interval, timeout};

use super::{
    node::{MAX_WAIT, POLL_INTERVAL},
    workspace::{LedgerEntry, Workspace},
};
use crate::{harness, mongod::Mongod};

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) workspace: Workspace,
    pub(super) store: Arc<dyn Store>,
}

impl Cluster {
    /// Creates a cluster on the shared MongoDB server. `limits` override the default limits of
    /// these tests.
    pub(super) async fn new(limits: &Value) -> Self {
        Self::open(Mongod::shared().await.new_database_url(), limits).await
    }

    pub(super) async fn open(url: String, limits: &Value) -> Self {
        let store = retry_until_answered(async || open_store(&url).await).await;
        Self { workspace: Workspace::new(url, limits), store }
    }

    pub(super) async fn read_heads(&self) -> Vec<ExecutionHead> {
        harness::read_heads(&*self.store).await
    }

    pub(super) async fn read_log(&self, id: ExecutionId) -> Vec<RecordedEvent> {
        harness::read_log(&*self.store, id).await
    }

    pub(super) async fn replay(&self, head: &ExecutionHead) -> Execution {
        let plan = retry_until_answered(async || self.store.plan(head.plan).await).await.unwrap();
        Execution::replay(head.execution, plan, &self.read_log(head.execution).await).unwrap()
    }

    /// Waits until a condition holds for the heads of all executions.
    pub(super) async fn wait_for_heads(
        &self,
        description: &str,
        is_expected: impl Fn(&[ExecutionHead]) -> bool,
    ) {
        self.wait_for_heads_within(MAX_WAIT, description, is_expected).await;
    }

    /// Like [`wait_for_heads`](Self::wait_for_heads), with a limit. At the limit, prints the
    /// unfinished executions.
    pub(super) async fn wait_for_heads_within(
        &self,
        limit: Duration,
        description: &str,
        is_expected: impl Fn(&[ExecutionHead]) -> bool,
    ) {
        let mut look = interval(POLL_INTERVAL);
        let looking = async {
            while !is_expected(&self.read_heads().await) {
                look.tick().await;
            }
        };
        if timeout(limit, looking).await.is_err() {
            self.print_unfinished().await;
            panic!("not within {limit:?}: {description}");
        }
    }

    #[expect(clippy::print_stderr, reason = "helps to debug a failed test")]
    async fn print_unfinished(&self) {
        for head in self.read_heads().await.iter().filter(|head| !head.state.is_finished()) {
            eprintln!("{head:?}");
            for recorded in self.read_log(head.execution).await {
                eprintln!("    {recorded:?}");
            }
            eprintln!("    inbox {:?}", self.store.list_commands(Some(head.execution)).await);
        }
    }

    /// Waits until there are at least `count` executions and all are finished.
    pub(super) async fn wait_for_all_finished(&self, count: usize) {
        let is_expected = |heads: &[ExecutionHead]| heads.len() >= count && are_finished(heads);
        self.wait_for_heads("all executions are finished", is_expected).await;
    }

    /// Waits until at least `count` executions exist and all are finished. Checks that there are no
    /// more, and that all completed.
    pub(super) async fn wait_for_all_completed(&self, count: usize) {
        self.wait_for_all_finished(count).await;
        let heads = self.read_heads().await;
        assert_eq!(heads.len(), count);
        for head in heads {
            let log = self.read_log(head.execution).await;
            assert_eq!(head.state, ExecutionState::Completed, "{log:#?}");
        }
    }

    pub(super) async fn wait_for_ledger(
        &self,
        description: &str,
        is_expected: impl Fn(&[LedgerEntry]) -> bool,
    ) {
        let mut look = interval(POLL_INTERVAL);
        let looking = async {
            while !is_expected(&self.workspace.complete_ledger_lines()) {
                look.tick().await;
            }
        };
        let result = timeout(MAX_WAIT, looking).await;
        result.unwrap_or_else(|_| {
            panic!(
                "the ledger never shows: {description}: {:#?}",
                self.workspace.complete_ledger_lines()
            )
        });
    }

    pub(super) fn assert_once_tools_called_once(&self) {
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for entry in self.workspace.complete_ledger_lines() {
            if entry.is_start && (entry.tool == "ledger.once" || entry.tool == "far.once") {
                *calls.entry(entry.key).or_default() += 1;
            }
        }
        let twice: Vec<_> = calls.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "called twice: {twice:?}");
    }
}

pub(super) fn are_finished(heads: &[ExecutionHead]) -> bool {
    heads.iter().all(|head| head.state.is_finished())
}

pub(super) fn list_claimers(log: &[RecordedEvent]) -> Vec<WorkerId> {
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) if !claimed.renewed => Some(claimed.worker),
        _ => None,
    });
    claims.collect()
}

pub(super) fn execution_id(text: &str) -> ExecutionId {
    text.parse().unwrap()
}
