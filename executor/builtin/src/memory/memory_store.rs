use std::sync::Arc;

use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::Value;
use shared::{
    clock::Clock,
    json, limits,
    store::{Record, RecordKind, RecordPage, Store, StoreError, WriteCondition},
    tool::{ErrorCode, ToolError},
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    Memory, formatting,
    scope::{Key, Scope},
};

/// Longest text of a memory. Together with a heading, it still fits into the output of a tool, unless
/// many characters need an escape in JSON.
pub(super) const MAX_VALUE_BYTES: usize = limits::OUTPUT_BYTES - (16 << 10);
pub(super) const MAX_MEMORIES: usize = 10_000;
pub(super) const MAX_TAGS: usize = 32;
const MAX_TAG_BYTES: usize = 128;
const MAX_QUERY_BYTES: usize = limits::TEXT_BYTES;
/// Number of records per page. It is low because a record may have a megabyte and the whole page is
/// in memory.
const RECORDS_PER_PAGE: usize = 32;
const MAX_SHOWN_MATCHES: usize = 10;
const MAX_LISTED_MEMORIES: usize = 200;
/// Bytes of text after which a search stops.
pub(super) const MAX_SEARCH_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct MemoryStore {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    pub(super) async fn save(
        &self,
        scope: Scope,
        key: &Key,
        mut memory: Memory,
    ) -> Result<(), ToolError> {
        memory.tags.retain(|tag| !tag.trim().is_empty());
        memory.check_sizes()?;
        let name = scope.record_name(key);
        self.check_capacity(scope, &name).await?;
        let value = serde_json::to_value(memory).expect("memories are JSON");
        let (kind, at) = (RecordKind::Memory, self.clock.now());
        let record = Record { kind, name, value: Arc::new(value), at };
        let write = self.store.put_record(&record, WriteCondition::Never);
        write.await.map_err(|err| store_error(&err)).map(drop)
    }

    async fn check_capacity(&self, scope: Scope, name: &str) -> Result<(), ToolError> {
        let count = self.count_memories(scope, MAX_MEMORIES).await?;
        if count < MAX_MEMORIES || self.find_record(name).await?.is_some() {
            return Ok(());
        }
        let reason = format!(
            "{scope} is full, with {MAX_MEMORIES} memories: remove some with `clear_memory`, or \
             combine several in one"
        );
        Err(ToolError::failed(reason).without_retry())
    }

    async fn count_memories(&self, scope: Scope, limit: usize) -> Result<usize, ToolError> {
        let count = self.store.count_records(RecordKind::Memory, &scope.name_prefix(), limit).await;
        count.map_err(|err| store_error(&err))
    }

    async fn find_record(&self, name: &str) -> Result<Option<Record>, ToolError> {
        self.store.find_record(RecordKind::Memory, name).await.map_err(|err| store_error(&err))
    }

    /// Returns the memory of a key. If only another scope has the key, the error names that scope.
    pub(super) async fn recall_memory(&self, scope: Scope, key: &Key) -> Result<Memory, ToolError> {
        if let Some(record) = self.find_record(&scope.record_name(key)).await? {
            return parse_memory(&record).map_err(|err| store_error(&err));
        }
        let reason = format!("nothing is saved as '{key}' in {scope}");
        for other in Scope::ALL.into_iter().filter(|other| *other != scope) {
            if self.find_record(&other.record_name(key)).await?.is_some() {
                let reason = format!("{reason}, but the key exists in {other}: use that scope");
                return Err(ToolError::failed(reason).without_retry());
            }
        }
        let reason = format!("{reason}: use `list_memories` or `search_memory`");
        Err(ToolError::failed(reason).without_retry())
    }

    pub(super) async fn remove(&self, scope: Scope, key: &Key) -> Result<bool, ToolError> {
        let removed = self.store.remove_record(RecordKind::Memory, &scope.record_name(key)).await;
        removed.map_err(|err| store_error(&err))
    }

    pub(super) async fn clear(
        &self,
        scope: Scope,
        cancel: &CancellationToken,
    ) -> Result<usize, ToolError> {
        let (mut pages, mut cleared) = (RecordPages::in_scope(self, scope), 0);
        while let Some(page) = pages.next(cancel).await? {
            // Starts the removals together, because a store can then commit several of them at
            // once.
            let removals = page
                .iter()
                .map(|record| self.store.remove_record(RecordKind::Memory, &record.name));
            let removed = try_join_all(removals).await.map_err(|err| store_error(&err))?;
            cleared += removed.into_iter().filter(|removed| *removed).count();
        }
        Ok(cleared)
    }

    pub(super) async fn list_memories(
        &self,
        scope: Scope,
        cancel: &CancellationToken,
    ) -> Result<String, ToolError> {
        let mut pages = RecordPages::in_scope(self, scope);
        let mut lines = Vec::new();
        while lines.len() < MAX_LISTED_MEMORIES
            && let Some(page) = pages.next(cancel).await?
        {
            for (key, memory) in page.iter().filter_map(|record| parse_record(scope, record)) {
                lines.push(formatting::format_line(&key, &memory, None));
            }
        }
        let mut count = lines.len();
        if !pages.is_finished {
            count = count.max(self.count_memories(scope, usize::MAX).await?);
        }
        lines.truncate(MAX_LISTED_MEMORIES);
        if lines.is_empty() {
            return Ok(format!("No memories in {scope}"));
        }
        let rest = count - lines.len();
        if rest > 0 {
            lines.push(format!("… and {rest} more: `search_memory` finds them"));
        }
        Ok(format!("{} in {scope}:\n{}", formatting::format_count(count), lines.join("\n")))
    }

    /// Returns the first matches as text: matches in keys first, then in tags, then in texts. Stops
    /// after about `limit` bytes of texts.
    pub(super) async fn search_memories(
        &self,
        scope: Scope,
        query: &str,
        limit: usize,
        cancel: &CancellationToken,
    ) -> Result<String, ToolError> {
        if query.trim().is_empty() {
            let reason = "`query` is empty: `list_memories` shows all memories";
            return Err(ToolError::failed(reason).without_retry());
        }
        check_bytes("`query`", query.len(), MAX_QUERY_BYTES)?;
        let wanted: Arc<str> = query.trim().to_lowercase().into();
        let (mut pages, mut matches, mut bytes) =
            (RecordPages::in_scope(self, scope), Matches::default(), 0);
        let mut searched_all = true;
        while let Some(page) = pages.next(cancel).await? {
            let wanted = Arc::clone(&wanted);
            // Searches the page on a blocking thread, because it has megabytes of text.
            let search = spawn_blocking(move || {
                for (key, memory) in page.iter().filter_map(|record| parse_record(scope, record)) {
                    bytes += memory.value.len();
                    matches.add_if_match(&key, &memory, &wanted);
                }
                (matches, bytes)
            });
            (matches, bytes) = search
                .await
                .map_err(|err| ToolError::failed(format!("the search ended early: {err}")))?;
            if bytes > limit {
                searched_all = false;
                break;
            }
        }
        Ok(matches.into_text(query.trim(), scope, searched_all))
    }
}

#[derive(Debug, Default)]
struct Matches {
    seen: usize,
    count: usize,
    /// Three lists of lines: memories with a match in the key, in a tag, and in the text.
    lines: [Vec<String>; 3],
}

impl Matches {
    fn add_if_match(&mut self, key: &Key, memory: &Memory, wanted: &str) {
        self.seen += 1;
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let description = memory.description.as_deref().unwrap_or_default();
        let rank = if has(key.as_str()) {
            0
        } else if memory.tags.iter().any(|tag| has(tag)) {
            1
        } else if has(&memory.value) || has(description) {
            2
        } else {
            return;
        };
        self.count += 1;
        if self.lines[rank].len() < MAX_SHOWN_MATCHES {
            self.lines[rank].push(formatting::format_line(key, memory, Some(wanted)));
        }
    }

    fn into_text(self, query: &str, scope: Scope, searched_all: bool) -> String {
        let Self { seen, count, lines } = self;
        let mut text = match count {
            0 => format!("No memories matching '{query}' in {scope}"),
            1..=MAX_SHOWN_MATCHES => {
                format!("Found {} matching '{query}' in {scope}:", formatting::format_count(count))
            }
            _ => format!(
                "Found {} matching '{query}' in {scope}, the first {MAX_SHOWN_MATCHES}:",
                formatting::format_count(count)
            ),
        };
        for line in lines.into_iter().flatten().take(MAX_SHOWN_MATCHES) {
            text.extend(["\n", &line]);
        }
        if !searched_all {
            let seen = formatting::format_count(seen);
            text.extend([
                "\n(only the first ",
                &seen,
                " were searched, because there is too much text)",
            ]);
        }
        text
    }
}

struct RecordPages<'a> {
    memory_store: &'a MemoryStore,
    prefix: String,
    after: Option<String>,
    is_finished: bool,
}

impl<'a> RecordPages<'a> {
    fn in_scope(memory_store: &'a MemoryStore, scope: Scope) -> Self {
        Self { memory_store, prefix: scope.name_prefix(), after: None, is_finished: false }
    }

    async fn next(&mut self, cancel: &CancellationToken) -> Result<Option<Vec<Record>>, ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::new(
                ErrorCode::CANCELLED,
                "stopped before everything was searched",
            ));
        }
        if self.is_finished {
            return Ok(None);
        }
        let page =
            RecordPage { after: self.after.take(), ..RecordPage::first_records(RECORDS_PER_PAGE) };
        let page = page.with_prefix(&self.prefix);
        let records = self.memory_store.store.list_records(RecordKind::Memory, page).await;
        let records = records.map_err(|err| store_error(&err))?;
        self.is_finished = records.len() < RECORDS_PER_PAGE;
        self.after = records.last().map(|record| record.name.clone());
        Ok(Some(records))
    }
}

impl Memory {
    fn check_sizes(&self) -> Result<(), ToolError> {
        let value = Value::String(self.value.clone());
        check_bytes("the text as JSON", json::json_size(&value), MAX_VALUE_BYTES)?;
        check_bytes("the language", self.language.as_ref().map_or(0, String::len), MAX_TAG_BYTES)?;
        let description = self.description.as_ref().map_or(0, String::len);
        check_bytes("the description", description, MAX_QUERY_BYTES)?;
        if self.tags.len() > MAX_TAGS {
            let reason = format!("{} tags are too many; the limit is {MAX_TAGS}", self.tags.len());
            return Err(ToolError::failed(reason).without_retry());
        }
        self.tags.iter().try_for_each(|tag| check_bytes("a tag", tag.len(), MAX_TAG_BYTES))
    }
}

fn check_bytes(subject: &str, bytes: usize, limit: usize) -> Result<(), ToolError> {
    if bytes <= limit {
        return Ok(());
    }
    let reason =
        format!("{subject} has {bytes} bytes; the limit is {limit}: shorten it, or split it");
    Err(ToolError::failed(reason).without_retry())
}

fn parse_memory(record: &Record) -> Result<Memory, StoreError> {
    Memory::deserialize(&*record.value).map_err(|err| StoreError::corrupt(&record.name, err))
}

fn parse_record(scope: Scope, record: &Record) -> Option<(Key, Memory)> {
    let key = scope.key_of_record(&record.name)?;
    match parse_memory(record) {
        Ok(memory) => Some((key, memory)),
        Err(err) => {
            tracing::warn!(%err, "left out of a list");
            None
        }
    }
}

fn store_error(err: &StoreError) -> ToolError {
    match err {
        StoreError::Unavailable(_) => {
            ToolError::new(ErrorCode::UNAVAILABLE, err.to_string()).with_unknown_outcome()
        }
        _ => ToolError::failed(err.to_string()).without_retry(),
    }
}
