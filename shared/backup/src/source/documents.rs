use std::{collections::BTreeSet, mem, sync::Arc};

use futures::{StreamExt as _, stream};
use shared::{
    clock::Timestamp,
    id::{PlanId, RequestId},
    json,
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{ExecutionFilter, Page, PlanFilter, RequestFilter, StoreError, sub_plans},
};

use super::{CONCURRENT_READS, MAX_SKEW, PAGE_LEN, Source};
use crate::{entry::Entry, error::BackupError, report::Stage};

/// Maximum bytes of a transcript in one line of the backup, unless a single item of the transcript
/// is larger.
const TRANSCRIPT_BYTES: usize = 4 << 20;

impl Source<'_> {
    pub(super) async fn write_requests(&mut self) -> Result<(), BackupError> {
        let filter = RequestFilter { from: self.since, ..RequestFilter::default() };
        let store = self.store;
        let mut after = None;
        loop {
            let listing = store
                .list_requests(&filter, &Page { after, ..Page::first_items(PAGE_LEN) })
                .await?;
            after = listing.items.last().map(|(cursor, _)| cursor.clone());
            let requests = stream::iter(listing.items).map(|(_, request)| async move {
                let transcript = store.transcript_after(request.id, 0).await;
                (request, transcript)
            });
            let mut requests = std::pin::pin!(requests.buffered(CONCURRENT_READS));
            while let Some((request, transcript)) = requests.next().await {
                self.report.counts.requests += 1;
                self.write_request(request, transcript)?;
            }
            self.report_progress(Stage::Requests, self.report.counts.requests, None);
            if !listing.has_more || after.is_none() {
                return Ok(());
            }
        }
    }

    fn write_request(
        &mut self,
        request: Request,
        transcript: Result<Vec<TranscriptEntry>, StoreError>,
    ) -> Result<(), BackupError> {
        let transcript = match transcript {
            Ok(transcript) => transcript,
            Err(err @ StoreError::Corrupt { .. }) => {
                self.report.damaged.add(format!("the transcript of `{}`: {err}", request.id));
                Vec::new()
            }
            Err(err) => return Err(err.into()),
        };
        let (id, mut known) = (request.id, 0);
        let mut parts = split_transcript(transcript).into_iter();
        let transcript = parts.next().unwrap_or_default();
        known += transcript.len();
        self.write(&Entry::Request { request, transcript })?;
        for transcript in parts {
            let n = transcript.len();
            self.write(&Entry::Transcript { request: id, known, transcript })?;
            known += n;
        }
        Ok(())
    }

    async fn write_request_outside_of_list(&mut self, id: RequestId) -> Result<(), BackupError> {
        let Some(request) = self.store.request(id).await? else { return Ok(()) };
        if !self.is_outside_of_lists(request.created_at) {
            return Ok(());
        }
        let transcript = self.store.transcript_after(id, 0).await;
        self.write_request(request, transcript)
    }

    pub(super) async fn write_plans(&mut self) -> Result<(), BackupError> {
        let mut after = None;
        loop {
            let page = Page { after, ..Page::first_items(PAGE_LEN) };
            let listing = self.store.list_plans(&PlanFilter::default(), &page).await?;
            after = listing.items.last().map(|(cursor, _)| cursor.clone());
            for (cursor, listed) in listing.items {
                if self.since.is_some_and(|since| cursor.at < since) {
                    return Ok(());
                }
                self.report.counts.plans += 1;
                if !self.is_written_with_log(listed.id).await? {
                    self.write_stored_plan(listed.id, cursor.at).await?;
                }
            }
            self.report_progress(Stage::Plans, self.report.counts.plans, None);
            if !listing.has_more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns `true` if the log of an execution of this plan was certainly written, because the
    /// plan was then written before that log.
    async fn is_written_with_log(&self, plan: PlanId) -> Result<bool, BackupError> {
        // If a damaged log was left out, the plan of that log may not have been written.
        if !self.report.damaged.is_empty() {
            return Ok(false);
        }
        let (from, to) = (self.since, Some(self.began_at - MAX_SKEW));
        let filter = ExecutionFilter { plan: Some(plan), from, to, ..ExecutionFilter::default() };
        let found = self.store.list_heads(&filter, &Page::first_items(1)).await?;
        Ok(!found.items.is_empty())
    }

    async fn write_stored_plan(
        &mut self,
        id: PlanId,
        created_at: Timestamp,
    ) -> Result<(), BackupError> {
        match self.store.plan(id).await {
            Ok(Some(plan)) if self.since.is_some() || self.is_young(created_at) => {
                self.write_plan_with_needs(plan).await
            }
            Ok(Some(plan)) => self.write_plan(&plan),
            // Skips the plan, because retention removed it.
            Ok(None) => Ok(()),
            Err(err @ StoreError::Corrupt { .. }) => {
                self.report.damaged.add(err.to_string());
                Ok(())
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Writes a plan. If the lists may lack its request or the plans that it refers to, writes
    /// them, too.
    pub(super) async fn write_plan_with_needs(
        &mut self,
        plan: Arc<Plan>,
    ) -> Result<(), BackupError> {
        let mut seen = BTreeSet::from([plan.id()]);
        let mut waiting = vec![plan];
        while let Some(plan) = waiting.pop() {
            self.write_plan(&plan)?;
            self.write_request_outside_of_list(plan.info().request).await?;
            for part in sub_plans(&plan) {
                if !seen.insert(part) {
                    continue;
                }
                let part = self.store.plan(part).await?;
                waiting
                    .extend(part.filter(|part| self.is_outside_of_lists(part.info().created_at)));
            }
        }
        Ok(())
    }
}

fn split_transcript(transcript: Vec<TranscriptEntry>) -> Vec<Vec<TranscriptEntry>> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for entry in transcript {
        let len = json::json_size(&entry.content);
        if bytes + len > TRANSCRIPT_BYTES && !part.is_empty() {
            parts.push(mem::take(&mut part));
            bytes = 0;
        }
        bytes += len;
        part.push(entry);
    }
    parts.push(part);
    parts
}
