//! Operations on records with a Rust type. They use only the traits of [`Store`], so they are
//! written once for all stores.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time;

use super::{
    HeadQuery, Page, PlanFilter, Record, RecordKind, RecordPage, Store, StoreError, Usage,
    WriteCondition, error::skip_damaged,
};
use crate::{
    clock::Timestamp,
    id::{ExecutionId, PlanId, RequestId},
    request::TranscriptEntry,
};

/// Time to wait before an unconfirmed record is read again.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of reads of an unconfirmed record. Their waits take ten seconds in total.
const MAX_CONFIRMATIONS: usize = 500;
/// Maximum number of heads that are read to find the next due time. One head is not enough, because
/// damaged heads are left out.
const MAX_NEXT_DUE_HEADS: usize = 16;
const PLANS_PER_PAGE: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The key, as the caller gave it.
    #[serde(skip)]
    pub key: String,
    #[serde(rename = "executionId", alias = "execution")]
    pub execution: ExecutionId,
    /// A fingerprint of the request. The same key with another request is refused.
    pub fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan {
    #[serde(skip)]
    pub name: String,
    #[serde(rename = "planId", alias = "plan")]
    pub plan: PlanId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Value>,
    #[serde(skip)]
    pub at: Timestamp,
}

impl Reservation {
    fn from_record(record: &Record) -> Result<Self, StoreError> {
        Ok(Self { key: record.name.clone(), ..record.parse_value()? })
    }
}

impl SavedPlan {
    fn from_record(record: &Record) -> Result<Self, StoreError> {
        Ok(Self { name: record.name.clone(), at: record.at, ..record.parse_value()? })
    }
}

fn parse_all<T>(items: impl Iterator<Item = Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
    items.filter_map(|item| skip_damaged(item).transpose()).collect()
}

impl dyn Store + '_ {
    /// Stores an idempotency key. Returns the stored reservation if the key exists already.
    pub async fn reserve_key(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError> {
        let record = Record::new(RecordKind::Key, &key.key, key, Timestamp::UNIX_EPOCH);
        for _ in 0..MAX_CONFIRMATIONS {
            if self.put_record(&record, WriteCondition::Exists).await? {
                return Ok(None);
            }
            if let Some(found) = self.find_reservation(&key.key).await? {
                return Ok(Some(found));
            }
            // Waits, because a replicated store may show a key that no majority has confirmed yet.
            // Such a key may still be lost.
            time::sleep(CONFIRM_INTERVAL).await;
        }
        let why = format!("no majority confirms the owner of the key `{}`: try again", key.key);
        Err(StoreError::Unavailable(why))
    }

    pub async fn find_reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        self.find_record(RecordKind::Key, key)
            .await?
            .as_ref()
            .map(Reservation::from_record)
            .transpose()
    }

    pub async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError> {
        let record = Record::new(RecordKind::SavedPlan, &saved.name, saved, saved.at);
        self.put_record(&record, WriteCondition::Never).await.map(drop)
    }

    pub async fn find_saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError> {
        self.find_record(RecordKind::SavedPlan, name)
            .await?
            .as_ref()
            .map(SavedPlan::from_record)
            .transpose()
    }

    pub async fn list_saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError> {
        let after = after.map(str::to_owned);
        let page = RecordPage { after, ..RecordPage::first_records(first) };
        let records = self.list_records(RecordKind::SavedPlan, page).await?;
        parse_all(records.iter().map(SavedPlan::from_record))
    }

    /// Removes the name of a saved plan. The plan stays. Returns `false` if there is no such name.
    pub async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError> {
        self.remove_record(RecordKind::SavedPlan, name).await
    }

    pub async fn find_output(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Value>>, StoreError> {
        let found = self.find_record(RecordKind::Output, key).await?;
        Ok(found.filter(|record| record.at > now).map(|record| record.value))
    }

    pub async fn cache_output(
        &self,
        key: &str,
        output: &Value,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let record = Record::new(RecordKind::Output, key, output, until);
        self.put_record(&record, WriteCondition::Never).await.map(drop)
    }

    pub async fn add_usage(&self, usage: &Usage) -> Result<(), StoreError> {
        loop {
            let name = usage.tool.as_str();
            let before = self.find_record(RecordKind::Usage, name).await?;
            let mut sum = usage.clone();
            if let Some(before) = &before {
                sum.add(&before.parse_value()?);
            }
            let unless = match &before {
                None => WriteCondition::Exists,
                Some(before) => WriteCondition::ChangedSince(before.at),
            };
            // The number of calls grows with each addition, so it identifies the version of the
            // record.
            let at = Timestamp::from_timestamp_micros(sum.calls.cast_signed()).unwrap_or_default();
            let record = Record::new(RecordKind::Usage, name, &sum, at);
            if self.put_record(&record, unless).await? {
                return Ok(());
            }
        }
    }

    pub async fn list_usage(&self) -> Result<Vec<Usage>, StoreError> {
        let all = RecordPage::first_records(usize::MAX);
        let records = self.list_records(RecordKind::Usage, all).await?;
        parse_all(records.iter().map(Record::parse_value))
    }

    /// Counts the records with a prefix, up to `most`, without their values.
    pub async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError> {
        let page = RecordPage::first_records(most).with_prefix(prefix).names_only();
        Ok(self.list_records(kind, page).await?.len())
    }

    pub async fn transcript(&self, id: RequestId) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.transcript_after(id, 0).await
    }

    pub async fn plan_versions(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError> {
        let filter = PlanFilter { request: Some(id), ..PlanFilter::default() };
        let (mut plans, mut after) = (Vec::new(), None);
        loop {
            let listing = self
                .list_plans(&filter, &Page { after, ..Page::first_items(PLANS_PER_PAGE) })
                .await?;
            after = listing.items.last().map(|(cursor, _)| cursor.clone());
            plans.extend(listing.items.into_iter().map(|(_, plan)| plan));
            if !listing.has_more || after.is_none() {
                break;
            }
        }
        plans.sort_by_key(|plan| plan.version);
        Ok(plans.into_iter().map(|plan| plan.id).collect())
    }

    pub async fn next_due_at(&self) -> Result<Option<Timestamp>, StoreError> {
        let all = HeadQuery::DueAfter { now: Timestamp::MAX_UTC, after: None };
        Ok(self.find_heads(all, MAX_NEXT_DUE_HEADS).await?.first().and_then(|head| head.due))
    }

    pub async fn check_writable(&self) -> Result<(), StoreError> {
        // Writes several pages that differ from the last check, because a full disk can have room
        // for one page but not for an append, and SQLite does not write a page without changes.
        let noise = nanoid::nanoid!(16_384);
        let record =
            Record::new(RecordKind::WriteCheck, "last", &json!(noise), Timestamp::UNIX_EPOCH);
        self.put_record(&record, WriteCondition::Never).await.map(drop)
    }
}
