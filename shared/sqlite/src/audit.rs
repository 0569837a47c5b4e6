//! Audit entries in the file. The key begins with the time, so new entries are at the end of the
//! table.

use async_trait::async_trait;
use rusqlite::{Connection, params};
use shared::{
    clock::Timestamp,
    store::{AuditEntry, AuditFilter, AuditLog, Listing, Page, StoreError},
};

use super::{Answer, Change, Sqlite, connection::to_store_error, lists, removal::Removal};

/// Maximum number of entries that one transaction removes. The writer commits other operations
/// between two such transactions.
const BATCH_LEN: usize = 256;

/// A file that an earlier version wrote has no such table, and gets it when it is opened.
const CREATE_TABLE: &str = "
CREATE TABLE IF NOT EXISTS audit (
    createdAt INTEGER NOT NULL, auditId TEXT NOT NULL, action TEXT NOT NULL,
    actorKind TEXT NOT NULL, actorName TEXT, executionId TEXT, json TEXT NOT NULL,
    PRIMARY KEY (createdAt, auditId)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS audit_actor ON audit (actorName, createdAt, auditId)
    WHERE actorName IS NOT NULL;
CREATE INDEX IF NOT EXISTS audit_action ON audit (action, createdAt, auditId);
CREATE INDEX IF NOT EXISTS audit_execution ON audit (executionId, createdAt, auditId)
    WHERE executionId IS NOT NULL;
CREATE INDEX IF NOT EXISTS audit_faber ON audit (createdAt, auditId) WHERE actorKind = 'faber';
";

pub(super) fn prepare_audit(connection: &Connection) -> Result<(), StoreError> {
    let prepare = || {
        let sql = "SELECT 1 FROM sqlite_master WHERE name = 'audit_faber'";
        if connection.prepare(sql)?.exists([])? {
            return Ok(());
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let created = connection.execute_batch(CREATE_TABLE);
        let end = if created.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = connection.execute_batch(end);
        created.and(ended)
    };
    prepare().map_err(|err| to_store_error(&err))
}

/// Returns `false`, and writes nothing, if the entry is already stored.
pub(super) fn put_entry(connection: &Connection, entry: &AuditEntry) -> rusqlite::Result<bool> {
    let sql = "INSERT OR IGNORE INTO audit
        (createdAt, auditId, action, actorKind, actorName, executionId, json)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let json = serde_json::to_string(entry).expect("entries are JSON");
    let row = params![
        entry.at.timestamp_micros(),
        entry.id.to_string(),
        entry.action.as_str(),
        entry.actor.kind.as_str(),
        entry.actor.name,
        entry.target.execution.map(|id| id.to_string()),
        json,
    ];
    Ok(connection.prepare_cached(sql)?.execute(row)? == 1)
}

pub(super) fn put_entries(
    connection: &Connection,
    entries: &[AuditEntry],
) -> rusqlite::Result<usize> {
    entries.iter().try_fold(0, |new, entry| Ok(new + usize::from(put_entry(connection, entry)?)))
}

pub(super) fn remove_entries(
    connection: &Connection,
    before: Timestamp,
    most: usize,
) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM audit WHERE (createdAt, auditId) IN (SELECT createdAt, auditId
        FROM audit WHERE createdAt < ?1 ORDER BY createdAt, auditId LIMIT ?2)";
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    connection.prepare_cached(sql)?.execute(params![before.timestamp_micros(), most])
}

#[async_trait]
impl AuditLog for Sqlite {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        match self.write(Change::PutAudit(entries.to_vec())).await? {
            Answer::Added(new) => Ok(new),
            _ => Ok(0),
        }
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        self.readers.read(move |connection| lists::list_audit(connection, &filter, &page)).await
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.readers.read(move |connection| lists::count_audit(connection, &filter)).await
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        let mut removed = 0;
        // Removes the entries in several transactions, so that the writer can commit other
        // operations between them.
        while removed < most {
            let most = BATCH_LEN.min(most - removed);
            let change = Change::Prune(Removal::Audit { before, most });
            let Answer::Removed(removed_now) = self.write(change).await? else { break };
            removed += removed_now;
            if removed_now < most {
                break;
            }
        }
        Ok(removed)
    }
}
