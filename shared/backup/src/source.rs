//! Reads a store and writes its entries, while other processes change the store.
//!
//! A store has no moment at which all of its logs could be read together. Instead, the order of the
//! reads makes the parts fit each other:
//!
//! 1. The ids of all executions. Younger executions are left out.
//! 2. Requests. By now the store has the request of each execution in the first list.
//! 3. Logs, the oldest execution first, each with its plan. A parent comes before its children.
//! 4. Plans without an execution, then records, and then audit entries.
//!
//! Of each execution, the inbox is read before the log, so that a command that leaves the inbox in
//! between is in the log. The log of a parent may lack the result of its child, which the next
//! owner of the parent reads as after a crash.

mod audit;
mod documents;
mod logs;
mod records;

use std::{path::Path, sync::Arc};

use chrono::TimeDelta;
use shared::{
    clock::Timestamp,
    plan::Plan,
    store::{ExecutionFilter, Page, Store, backend::count_unreadable},
};

use crate::{
    entry::Entry,
    error::BackupError,
    recent_plans::RecentPlans,
    report::{OnProgress, Progress, Report, Stage},
    spool::{Spool, SpoolReader, SpooledExecution},
};

const PAGE_LEN: usize = 256;
/// Maximum number of reads that wait for the store at the same time.
const CONCURRENT_READS: usize = 8;
/// Maximum difference between the clocks of nodes. An object that is younger than this time may be
/// missing in a list that was read while another node wrote the object.
const MAX_SKEW: TimeDelta = TimeDelta::minutes(1);

pub(crate) trait Sink: Send {
    fn write_line(&mut self, type_name: &str, line: &str) -> Result<(), BackupError>;
}

pub(crate) struct Source<'a> {
    store: &'a dyn Store,
    sink: &'a mut dyn Sink,
    on_progress: OnProgress<'a>,
    /// If set, settings are left out, and objects that are older than this time, unless younger
    /// objects need them.
    since: Option<Timestamp>,
    began_at: Timestamp,
    plans: RecentPlans,
    report: Report,
}

impl<'a> Source<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        sink: &'a mut dyn Sink,
        since: Option<Timestamp>,
        began_at: Timestamp,
        on_progress: OnProgress<'a>,
    ) -> Self {
        let (plans, report) = (RecentPlans::default(), Report::default());
        Self { store, sink, on_progress, since, began_at, plans, report }
    }

    pub(crate) async fn write_all(mut self, spool: &Path) -> Result<Report, BackupError> {
        let unreadable = count_unreadable();
        let executions = self.list_executions(spool).await?;
        self.write_requests().await?;
        self.write_logs(executions, spool).await?;
        self.write_plans().await?;
        self.write_records().await?;
        self.write_audit().await?;
        self.report.unreadable = count_unreadable() - unreadable;
        Ok(self.report)
    }

    async fn list_executions(&self, path: &Path) -> Result<SpoolReader, BackupError> {
        let failed = |err| BackupError::file(path, "written", err);
        let mut spool = Spool::create(path).map_err(failed)?;
        let filter = ExecutionFilter { from: self.since, ..ExecutionFilter::default() };
        let (mut after, mut done) = (None, 0);
        loop {
            let listing = self
                .store
                .list_heads(&filter, &Page { after, ..Page::first_items(PAGE_LEN) })
                .await?;
            done += listing.items.len() as u64;
            self.report_progress(Stage::Listing, done, None);
            after = listing.items.last().map(|(cursor, _)| cursor.clone());
            for (_, head) in &listing.items {
                spool.push(SpooledExecution::from(head)).map_err(failed)?;
            }
            if !listing.has_more || after.is_none() {
                return spool.into_reader().map_err(failed);
            }
        }
    }

    /// Writes an entry as a line. Returns the length of the line.
    fn write(&mut self, entry: &Entry) -> Result<usize, BackupError> {
        let line = entry.encode();
        self.sink.write_line(entry.type_name(), &line)?;
        Ok(line.len())
    }

    fn write_plan(&mut self, plan: &Arc<Plan>) -> Result<(), BackupError> {
        let bytes = self.write(&Entry::Plan(Arc::clone(plan)))?;
        self.plans.add(Arc::clone(plan), bytes);
        Ok(())
    }

    /// Returns `true` if the lists of requests and plans may lack an object with this time: it is
    /// too young, or older than `since`.
    fn is_outside_of_lists(&self, created_at: Timestamp) -> bool {
        self.is_young(created_at) || self.since.is_some_and(|since| created_at < since)
    }

    fn is_young(&self, created_at: Timestamp) -> bool {
        created_at >= self.began_at - MAX_SKEW
    }

    fn report_progress(&self, stage: Stage, done: u64, total: Option<u64>) {
        (self.on_progress)(Progress { stage, done, total });
    }
}
