//! Encrypts old values with the active key. A second pass counts the values that are left, because
//! another process may have written values of an old key during the first pass.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use shared::{
    event,
    id::ExecutionId,
    limits,
    plan::Plan,
    store::{
        EventDocument, Record, RecordKind, RecordPage, Rewrite, SecretParts, StoreError,
        StoredContent, StoredDocument, StoredPart, WriteCondition, backend::skip_damaged,
    },
};

use super::{
    EncryptedStore,
    documents::{EntryPlace, PLANS, REQUESTS, TRANSCRIPTS},
    log::{CommandPlace, EVENTS, EventPlace, HEADS, INBOX},
    records::{RECORDS, RecordPlace},
};
use crate::{
    edit::{Edit, Tally, Task},
    leaves::{edit_command, edit_event, edit_head, edit_plan, edit_query, edit_record},
};

/// Maximum number of records of one page. A record of a large binary or of a cached output has up
/// to some megabytes.
const RECORD_PAGE_LEN: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct RekeyProgress {
    /// `true` in the second pass.
    pub is_check: bool,
    pub part: &'static str,
    pub done: u64,
    /// About how many documents the part has, if the store can tell.
    pub total: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RekeyReport {
    pub key: String,
    /// Number of replaced documents and records.
    pub documents: u64,
    /// Number of values that were clear before.
    pub clear: u64,
    /// Number of values by the id of the key that they had before.
    pub values: BTreeMap<String, u64>,
    pub left: LeftValues,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftValues {
    pub clear: u64,
    /// Number of values by the id of their key. They have a key that this process lacks, were
    /// written during the run, or do not fit when they are encrypted.
    pub values: BTreeMap<String, u64>,
    /// Number of values that cannot be decrypted although the key is there, and of documents that
    /// cannot be read.
    pub damaged: u64,
}

impl LeftValues {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Default)]
struct Pass {
    is_check: bool,
    documents: u64,
    tally: Tally,
    damaged_documents: u64,
}

impl EncryptedStore {
    pub(crate) async fn rekey_all(
        &self,
        show: &(dyn Fn(RekeyProgress) + Sync),
    ) -> Result<RekeyReport, StoreError> {
        let key = self.ring.active_id().ok_or(StoreError::KeyMissing)?.to_owned();
        let changes = self.run_pass(false, show).await?;
        let left = self.run_pass(true, show).await?;
        let Tally { clear, opened, .. } = changes.tally;
        let mut values = left.tally.opened;
        for (key, n) in left.tally.locked {
            *values.entry(key).or_default() += n;
        }
        let damaged = left.tally.damaged + left.damaged_documents;
        let left = LeftValues { clear: left.tally.clear, values, damaged };
        Ok(RekeyReport { key, documents: changes.documents, clear, values: opened, left })
    }

    async fn run_pass(
        &self,
        is_check: bool,
        show: &(dyn Fn(RekeyProgress) + Sync),
    ) -> Result<Pass, StoreError> {
        let mut pass = Pass { is_check, ..Pass::default() };
        for part in StoredPart::ALL {
            self.rekey_part(&mut pass, part, show).await?;
        }
        for kind in RecordKind::ALL {
            if kind.secret_parts() != SecretParts::None {
                self.rekey_records(&mut pass, kind, show).await?;
            }
        }
        Ok(pass)
    }

    async fn rekey_part(
        &self,
        pass: &mut Pass,
        part: StoredPart,
        show: &(dyn Fn(RekeyProgress) + Sync),
    ) -> Result<(), StoreError> {
        let total = Some(self.inner.count_stored(part).await?);
        let (mut after, mut done) = (None, 0);
        loop {
            let progress =
                RekeyProgress { is_check: pass.is_check, part: part.as_str(), done, total };
            show(progress);
            let page = self.inner.list_stored(part, after).await?;
            done += page.documents.len() as u64 + page.damaged;
            pass.damaged_documents += page.damaged;
            let mut rewrites = Vec::new();
            for before in page.documents {
                match skip_damaged(self.rekey_document(&before, &mut pass.tally))? {
                    Some(Some(after)) if !pass.is_check => rewrites.push(Rewrite { before, after }),
                    Some(_) => (),
                    None => pass.damaged_documents += 1,
                }
            }
            if !rewrites.is_empty() {
                pass.documents += self.inner.replace_stored(rewrites).await?;
            }
            if page.next.is_none() {
                return Ok(());
            }
            after = page.next;
        }
    }

    /// Returns the document with the active key in all values, or `None` if it stays as it is.
    fn rekey_document(
        &self,
        document: &StoredDocument,
        tally: &mut Tally,
    ) -> Result<Option<StoredContent>, StoreError> {
        let content = match &document.content {
            StoredContent::Request(request) => {
                let mut request = request.clone();
                let edit = self.edit(Task::Rekey, REQUESTS, &request.id);
                edit_query(&edit, &mut request.query)?;
                finish(edit, tally).then_some(StoredContent::Request(request))
            }
            StoredContent::Entry { request, entry } => {
                let (request, mut content) = (*request, entry.content.clone());
                let place = EntryPlace { request, entry };
                let edit = self.edit(Task::Rekey, TRANSCRIPTS, &place);
                edit.edit_value("content", &mut content)?;
                let is_changed = finish(edit, tally);
                let entry = shared::request::TranscriptEntry { content, ..entry.clone() };
                is_changed.then_some(StoredContent::Entry { request, entry })
            }
            StoredContent::Plan(plan) => {
                let (id, mut unchecked) = (plan.id(), plan.to_unchecked());
                let edit = self.edit(Task::Rekey, PLANS, &id);
                edit_plan(&edit, &mut unchecked)?;
                if !finish(edit, tally) {
                    return Ok(None);
                }
                let plan = Plan::try_from(unchecked);
                let plan = plan.map_err(|err| StoreError::corrupt(id, err))?;
                Some(StoredContent::Plan(Arc::new(plan)))
            }
            StoredContent::Events { execution, document } => {
                let document = self.rekey_events(*execution, document, tally)?;
                let execution = *execution;
                document.map(|document| StoredContent::Events { execution, document })
            }
            StoredContent::Head(head) => {
                let mut head = head.clone();
                let execution = head.execution;
                let edit = self.edit(Task::Rekey, HEADS, &execution);
                edit_head(&edit, &mut head);
                finish(edit, tally).then_some(StoredContent::Head(head))
            }
            StoredContent::Command(command) => {
                let mut command = command.clone();
                let place = CommandPlace { execution: command.execution, command: command.id };
                let edit = self.edit(Task::Rekey, INBOX, &place);
                edit_command(&edit, &mut command.command)?;
                finish(edit, tally).then_some(StoredContent::Command(command))
            }
        };
        Ok(content)
    }

    /// Changes the events of one document. A document that becomes too large for a store stays as
    /// it is, so its values are counted as left.
    fn rekey_events(
        &self,
        execution: ExecutionId,
        document: &EventDocument,
        tally: &mut Tally,
    ) -> Result<Option<EventDocument>, StoreError> {
        let (mut events, mut is_changed) = (document.decode(execution)?, false);
        for recorded in &mut events {
            let place = EventPlace { execution, seq: recorded.seq };
            let edit = self.edit(Task::Rekey, EVENTS, &place);
            edit_event(&edit, &mut recorded.event)?;
            is_changed |= finish(edit, tally);
        }
        if !is_changed {
            return Ok(None);
        }
        let json = event::encode_events(&events);
        let fits = json.len() <= limits::DOCUMENT_BYTES;
        Ok(fits.then_some(EventDocument { json, ..document.clone() }))
    }

    async fn rekey_records(
        &self,
        pass: &mut Pass,
        kind: RecordKind,
        show: &(dyn Fn(RekeyProgress) + Sync),
    ) -> Result<(), StoreError> {
        let (mut after, mut done) = (None, 0);
        loop {
            let (is_check, total) = (pass.is_check, None);
            show(RekeyProgress { is_check, part: kind.as_str(), done, total });
            let page = RecordPage { after, ..RecordPage::first_records(RECORD_PAGE_LEN) };
            let records = self.inner.list_records(kind, page).await?;
            let mut changes = Vec::new();
            for before in &records {
                let mut edited = before.clone();
                let place = RecordPlace { kind, name: &before.name };
                let edit = self.edit(Task::Rekey, RECORDS, &place);
                edit_record(&edit, &mut edited)?;
                let fits = edited.encode().is_ok();
                if finish(edit, &mut pass.tally) && fits && !pass.is_check {
                    changes.push((before, edited));
                }
            }
            // Stores write the records of one page in one transaction if they come together.
            let replaced = changes.iter().map(|(before, after)| self.replace_record(before, after));
            for is_replaced in join_all(replaced).await {
                pass.documents += u64::from(is_replaced?);
            }
            done += records.len() as u64;
            let Some(last) = records.last().filter(|_| records.len() == RECORD_PAGE_LEN) else {
                return Ok(());
            };
            after = Some(last.name.clone());
        }
    }

    /// Replaces a record unless another process has changed it. Keeps its time, because the time
    /// has a meaning, such as the time at which an output expires.
    async fn replace_record(&self, before: &Record, after: &Record) -> Result<bool, StoreError> {
        let unless = WriteCondition::ValueDiffers(Arc::clone(&before.value));
        self.inner.put_record(after, unless).await
    }
}

fn finish(edit: Edit<'_>, tally: &mut Tally) -> bool {
    let is_changed = edit.is_changed();
    tally.add(&edit.into_tally());
    is_changed
}
