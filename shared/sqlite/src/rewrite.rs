//! Reads and replaces rows that otherwise never change, for a change of the encryption key.

use rusqlite::{Connection, Row, params, params_from_iter, types::Value};
use shared::{
    id::ExecutionId,
    store::{
        EventDocument, ExecutionHead, HeadError, Rewrite, StoreError, StoredContent,
        StoredDocument, StoredKey, StoredPage, StoredPart,
        backend::{fold_case, skip_damaged},
    },
};

use super::{connection::to_store_error, lists, rows};

/// Maximum number of rows of one page, which one transaction replaces.
const PAGE_LEN: i64 = 256;
/// Bytes of text after which a page ends.
const PAGE_BYTES: usize = 8 << 20;

pub(super) fn count_rows(connection: &Connection, part: StoredPart) -> Result<u64, StoreError> {
    let sql = format!("SELECT count(*) FROM {}", part.as_str());
    let count = connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
    count.map(i64::unsigned_abs).map_err(|err| to_store_error(&err))
}

pub(super) fn list_stored(
    connection: &Connection,
    part: StoredPart,
    after: Option<&StoredKey>,
    layout: u32,
) -> Result<StoredPage, StoreError> {
    let after = match after {
        Some(StoredKey::Row(number)) => *number,
        _ => i64::MIN,
    };
    let sql = page_query(part, layout);
    let mut statement = connection.prepare_cached(&sql).map_err(|err| to_store_error(&err))?;
    let found = statement.query(params![after, PAGE_LEN]);
    let mut found = found.map_err(|err| to_store_error(&err))?;
    let (mut page, mut bytes) = (StoredPage::default(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = found.next().map_err(|err| to_store_error(&err))?
    {
        let number: i64 = row.get("number").map_err(|err| to_store_error(&err))?;
        let key = StoredKey::Row(number);
        page.next = Some(key.clone());
        match skip_damaged(read_content(row, part))? {
            Some(content) => {
                bytes += count_bytes(&content);
                page.documents.push(StoredDocument { key, parts: 0, content });
            }
            None => page.damaged += 1,
        }
    }
    Ok(page)
}

/// Selects the rows of a page. Each row has the columns that [`read_content`] expects, and its
/// number.
fn page_query(part: StoredPart, layout: u32) -> String {
    let (columns, table, number) = match part {
        StoredPart::Requests => (lists::request_columns(layout), "requests", "rowid"),
        StoredPart::Transcripts => ("requestId, json", "transcripts", "n"),
        StoredPart::Plans => ("planId, json", "plans", "rowid"),
        StoredPart::Events => {
            ("first, len, json, executionId", "events JOIN logs ON logs.number = log", "events.id")
        }
        StoredPart::Executions => (rows::HEAD_COLUMNS, "executions", "executions.number"),
        StoredPart::Inbox => ("id, json", "inbox", "arrival"),
    };
    format!(
        "SELECT {columns}, {number} AS number FROM {table} WHERE {number} > ?1
         ORDER BY {number} LIMIT ?2"
    )
}

fn read_content(row: &Row<'_>, part: StoredPart) -> Result<StoredContent, StoreError> {
    match part {
        StoredPart::Requests => lists::read_request(row).map(StoredContent::Request),
        StoredPart::Transcripts => {
            let (id, json) = read_texts(row, "an entry")?;
            let entry = serde_json::from_str(&json);
            let entry = entry.map_err(|err| StoreError::corrupt(&id, err))?;
            Ok(StoredContent::Entry { request: rows::parse(&id, &id)?, entry })
        }
        StoredPart::Plans => {
            let (id, json) = read_texts(row, "a plan")?;
            let plan = shared::plan::Plan::from_json(&json);
            let plan = plan.map_err(|err| StoreError::corrupt(&id, err))?;
            Ok(StoredContent::Plan(plan.into()))
        }
        StoredPart::Events => {
            let id: String = rows::read_column(row, 3, "an event")?;
            let execution: ExecutionId = rows::parse(&id, &id)?;
            let document = rows::read_document(row, execution)?;
            Ok(StoredContent::Events { execution, document })
        }
        StoredPart::Executions => {
            rows::read_head(row).map(|head| StoredContent::Head(Box::new(head)))
        }
        StoredPart::Inbox => {
            let (id, json) = read_texts(row, "a command")?;
            let command = serde_json::from_str(&json);
            Ok(StoredContent::Command(command.map_err(|err| StoreError::corrupt(&id, err))?))
        }
    }
}

fn read_texts(row: &Row<'_>, what: &str) -> Result<(String, String), StoreError> {
    let id: String = rows::read_column(row, 0, what)?;
    let json = rows::read_column(row, 1, &id)?;
    Ok((id, json))
}

/// Returns the approximate size of a document. Documents without large values count as empty.
fn count_bytes(content: &StoredContent) -> usize {
    match content {
        StoredContent::Events { document, .. } => document.json.len(),
        StoredContent::Entry { entry, .. } => shared::json::json_size(&entry.content),
        StoredContent::Plan(plan) => {
            plan.steps().iter().map(|step| shared::json::json_size(&step.parameters)).sum()
        }
        StoredContent::Request(_) | StoredContent::Head(_) | StoredContent::Command(_) => 0,
    }
}

#[derive(Debug)]
pub(super) enum RowRewrite {
    Update { sql: &'static str, values: Vec<Value> },
    Head { number: i64, before: Box<ExecutionHead>, after: Box<ExecutionHead> },
}

impl RowRewrite {
    /// Returns `None` if the key is not the key of a row. The number of a removed row can belong to
    /// a new row, so each statement also names ids that belong to no other document.
    pub(super) fn new(Rewrite { before, after }: Rewrite) -> Option<Self> {
        let StoredKey::Row(number) = before.key else { return None };
        let to_json = |value: serde_json::Result<String>| value.expect("documents are JSON");
        let (sql, values): (_, Vec<Value>) = match after {
            StoredContent::Request(request) => (
                "UPDATE requests SET query = ?2, folded = ?3 WHERE requestId = ?1",
                vec![
                    request.id.to_string().into(),
                    request.query.clone().into(),
                    fold_case(&request.query).into(),
                ],
            ),
            StoredContent::Entry { request, entry } => (
                "UPDATE transcripts SET json = ?3 WHERE n = ?1 AND requestId = ?2",
                vec![
                    number.into(),
                    request.to_string().into(),
                    to_json(serde_json::to_string(&entry)).into(),
                ],
            ),
            StoredContent::Plan(plan) => (
                "UPDATE plans SET json = ?2, folded = ?3 WHERE planId = ?1",
                vec![
                    plan.id().to_string().into(),
                    plan.to_json().into(),
                    fold_case(&plan.info().query).into(),
                ],
            ),
            StoredContent::Events { execution, document: EventDocument { first, len, json } } => (
                "UPDATE events SET json = ?5 WHERE id = ?1 AND first = ?3 AND len = ?4
                 AND log = (SELECT number FROM logs WHERE executionId = ?2)",
                vec![
                    number.into(),
                    execution.to_string().into(),
                    first.0.cast_signed().into(),
                    i64::try_from(len).unwrap_or(i64::MAX).into(),
                    json.into(),
                ],
            ),
            StoredContent::Command(command) => (
                "UPDATE inbox SET json = ?2 WHERE id = ?1",
                vec![
                    command.id.to_string().into(),
                    to_json(serde_json::to_string(&command)).into(),
                ],
            ),
            StoredContent::Head(after) => {
                let StoredContent::Head(before) = before.content else { return None };
                return Some(Self::Head { number, before, after });
            }
        };
        Some(Self::Update { sql, values })
    }

    pub(super) fn bytes(&self) -> usize {
        let Self::Update { values, .. } = self else { return 0 };
        let len = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        values.iter().map(len).sum()
    }

    /// Returns the number of changed rows: 1, or 0 if the row is gone or has other texts.
    fn apply(&self, connection: &Connection) -> rusqlite::Result<usize> {
        match self {
            Self::Update { sql, values } => {
                connection.prepare_cached(sql)?.execute(params_from_iter(values))
            }
            Self::Head { number, before, after } => {
                replace_head_texts(connection, *number, before, after)
            }
        }
    }
}

fn replace_head_texts(
    connection: &Connection,
    number: i64,
    before: &ExecutionHead,
    after: &ExecutionHead,
) -> rusqlite::Result<usize> {
    let message = |head: &ExecutionHead| {
        head.error.as_ref().map(|HeadError { message, .. }| message.to_string())
    };
    let sql = "UPDATE executions SET query = ?5, errorMessage = ?6
        WHERE number = ?1 AND executionId = ?2 AND query = ?3 AND errorMessage IS ?4";
    let row = params![
        number,
        before.execution.to_string(),
        &*before.query,
        message(before),
        &*after.query,
        message(after),
    ];
    let changed = connection.prepare_cached(sql)?.execute(row)?;
    if let Some(error) = after.error.as_ref().filter(|_| changed > 0) {
        rows::put_error_text(connection, number, error)?;
    }
    Ok(changed)
}

/// Replaces rows, and overwrites the bytes of the old values in the file. Returns how many rows
/// were replaced.
pub(super) fn apply_all(connection: &Connection, all: &[RowRewrite]) -> rusqlite::Result<usize> {
    connection.execute_batch("PRAGMA secure_delete = ON")?;
    all.iter().map(|rewrite| rewrite.apply(connection)).sum()
}
