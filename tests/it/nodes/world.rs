//! A home over a database of its own, and what is in that.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use graphql::store::open_store;
use serde_json::Value;
use shared::{
    event::{Event, RecordedEvent},
    execution::{Execution, ExecutionState},
    id::{ExecutionId, Seq, WorkerId},
    store::{ExecutionFilter, ExecutionHead, Page, Store},
};
use tests::patient::insist;
use tokio::time::{interval, timeout};

use super::{
    home::{Home, Mark},
    node::{LOOK, PATIENCE},
};
use crate::mongod::Mongod;

/// A home over a database of its own.
#[derive(Debug)]
pub(super) struct World {
    pub(super) home: Home,
    pub(super) store: Arc<dyn Store>,
}

impl World {
    /// Makes one on the shared server, with other limits than usual.
    pub(super) async fn new(limits: &Value) -> Self {
        Self::over(Mongod::shared().await.fresh_url(), limits).await
    }

    /// Makes one over a store.
    pub(super) async fn over(url: String, limits: &Value) -> Self {
        let store = insist(async || open_store(&url).await).await;
        Self { home: Home::new(url, limits), store }
    }

    /// Returns the heads of all executions.
    pub(super) async fn heads(&self) -> Vec<ExecutionHead> {
        let (mut all, mut page) = (Vec::new(), Page { first: 500, after: None });
        loop {
            let filter = ExecutionFilter::default();
            let heads = insist(async || self.store.list_heads(&filter, &page).await).await;
            all.extend(heads.items.iter().map(|(_, head)| head.clone()));
            match heads.items.last() {
                Some((cursor, _)) if heads.has_more => page.after = Some(cursor.clone()),
                _ => return all,
            }
        }
    }

    /// Reads a log.
    pub(super) async fn log(&self, id: ExecutionId) -> Vec<RecordedEvent> {
        let mut log: Vec<RecordedEvent> = Vec::new();
        loop {
            let after = log.last().map_or(Seq::START, |recorded| recorded.seq);
            let more = insist(async || self.store.read(id, after).await).await;
            if more.is_empty() {
                return log;
            }
            log.extend(more);
        }
    }

    /// Finds out what an execution has come to, by its log alone.
    pub(super) async fn replay(&self, head: &ExecutionHead) -> Execution {
        let plan = insist(async || self.store.plan(head.plan).await).await.unwrap();
        Execution::replay(head.execution, plan, &self.log(head.execution).await).unwrap()
    }

    /// Waits until something holds of all heads.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&[ExecutionHead]) -> bool) {
        self.within(PATIENCE, what, holds).await;
    }

    /// Waits until something holds of all heads, for no longer than it may take. If it does not,
    /// shows what is not over.
    pub(super) async fn within(
        &self,
        limit: Duration,
        what: &str,
        holds: impl Fn(&[ExecutionHead]) -> bool,
    ) {
        let mut look = interval(LOOK);
        let looking = async {
            while !holds(&self.heads().await) {
                look.tick().await;
            }
        };
        if timeout(limit, looking).await.is_err() {
            self.show().await;
            panic!("not within {limit:?}: {what}");
        }
    }

    #[expect(clippy::print_stderr, reason = "whoever looks for what went wrong reads it")]
    async fn show(&self) {
        for head in self.heads().await.iter().filter(|head| !head.state.is_finished()) {
            eprintln!("{head:?}");
            for recorded in self.log(head.execution).await {
                eprintln!("    {recorded:?}");
            }
            eprintln!("    inbox {:?}", self.store.list_commands(Some(head.execution)).await);
        }
    }

    /// Waits until every execution is over, and there are so many.
    pub(super) async fn all_over(&self, count: usize) {
        let is_so = |heads: &[ExecutionHead]| heads.len() >= count && are_over(heads);
        self.until("everything is over", is_so).await;
    }

    /// Waits until everything is over, and everything went well.
    pub(super) async fn all_completed(&self, count: usize) {
        self.all_over(count).await;
        let heads = self.heads().await;
        assert_eq!(heads.len(), count);
        for head in heads {
            let log = self.log(head.execution).await;
            assert_eq!(head.state, ExecutionState::Completed, "{log:#?}");
        }
    }

    /// Waits until tools have said something.
    pub(super) async fn until_said(&self, what: &str, holds: impl Fn(&[Mark]) -> bool) {
        let mut look = interval(LOOK);
        let looking = async {
            while !holds(&self.home.ledger()) {
                look.tick().await;
            }
        };
        let said = timeout(PATIENCE, looking).await;
        said.unwrap_or_else(|_| panic!("never said: {what}: {:#?}", self.home.ledger()));
    }

    /// Checks that no call of a tool of which a second call does harm happened twice.
    pub(super) fn called_once(&self) {
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for mark in self.home.ledger() {
            if mark.begins && (mark.tool == "ledger.once" || mark.tool == "far.once") {
                *calls.entry(mark.key).or_default() += 1;
            }
        }
        let twice: Vec<_> = calls.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "called twice: {twice:?}");
    }
}

pub(super) fn are_over(heads: &[ExecutionHead]) -> bool {
    heads.iter().all(|head| head.state.is_finished())
}

/// Returns who claimed an execution, in the order of claims.
pub(super) fn claimers(log: &[RecordedEvent]) -> Vec<WorkerId> {
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) if !claimed.renewed => Some(claimed.worker),
        _ => None,
    });
    claims.collect()
}

/// Reads an identifier as the API writes it.
pub(super) fn id(text: &str) -> ExecutionId {
    text.parse().unwrap()
}
