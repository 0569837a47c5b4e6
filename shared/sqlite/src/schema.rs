//! Creates the tables, and upgrades the tables of an earlier layout. People can read the tables:
//! ids and JSON are text, and times are microseconds since 1970.
//!
//! Each log also has a number. Logs that grow at the same time have neighbouring numbers, so the
//! appends of one commit change only a few pages.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use shared::store::{
    StoreError,
    backend::{CONVERTED_LAYOUT, LAYOUT, OLDEST_LAYOUT, check_layout, store_in_use_error},
};

use super::{connection::to_store_error, due, migration};

/// Creates version 1. Do not change it: new files get version 1 and then all upgrades, as old files
/// do.
const CREATE_VERSION_1: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- Event logs. One row for each append. `json` has `len` events, the first at position `first`.
CREATE TABLE logs (number INTEGER PRIMARY KEY, execution TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, first INTEGER NOT NULL, len INTEGER NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_fence ON events (log, first);
CREATE VIEW history AS
    SELECT execution, first, len, json FROM events JOIN logs ON number = log ORDER BY id;

-- Heads: a cached summary of each log.
CREATE TABLE heads (
    number INTEGER PRIMARY KEY, execution TEXT NOT NULL, request TEXT NOT NULL, plan TEXT NOT NULL,
    state TEXT NOT NULL, created_at INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
    owner TEXT, due INTEGER, priority INTEGER NOT NULL
) STRICT;
CREATE INDEX heads_time ON heads (created_at, execution);
CREATE INDEX heads_state ON heads (state, created_at, execution);
CREATE INDEX heads_request ON heads (request, state);
CREATE INDEX heads_plan ON heads (plan);
CREATE INDEX heads_due ON heads (priority, due, execution) WHERE owner IS NULL AND due IS NOT NULL;
CREATE INDEX heads_owner ON heads (owner, execution) WHERE owner IS NOT NULL;

-- Leases of workers.
CREATE TABLE workers (worker TEXT PRIMARY KEY, node TEXT NOT NULL, until INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;

-- Inbox commands in order of arrival.
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution TEXT NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_execution ON inbox (execution);

-- Documents that never change. `folded` is the query as the search compares it.
CREATE TABLE requests (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, query TEXT NOT NULL, folded TEXT NOT NULL
) STRICT;
CREATE INDEX requests_time ON requests (created_at, id);
CREATE TABLE plans (
    id TEXT PRIMARY KEY, request TEXT NOT NULL, version INTEGER NOT NULL,
    created_at INTEGER NOT NULL, folded TEXT NOT NULL, json TEXT NOT NULL,
    UNIQUE (request, version)
) STRICT;
CREATE INDEX plans_time ON plans (created_at, id);
CREATE TABLE plan_tools (plan TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (plan, tool))
    STRICT, WITHOUT ROWID;
CREATE TABLE transcripts (n INTEGER PRIMARY KEY, request TEXT NOT NULL, json TEXT NOT NULL) STRICT;
CREATE INDEX transcripts_request ON transcripts (request);
CREATE TABLE keys (key TEXT PRIMARY KEY, execution TEXT NOT NULL, fingerprint TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
";

/// Executions that have finished get the time of their last event as `finished_at`.
const UPGRADE_TO_2: &str = "
ALTER TABLE heads ADD COLUMN finished_at INTEGER;
ALTER TABLE heads ADD COLUMN parent TEXT;
UPDATE heads SET finished_at = (SELECT json ->> '$[#-1].at' FROM events WHERE log = number
    AND json_valid(json) ORDER BY first DESC LIMIT 1)
    WHERE state IN ('COMPLETED', 'FAILED', 'CANCELLED');
DROP INDEX heads_due;
CREATE INDEX heads_due ON heads (priority, due, execution)
    WHERE owner IS NULL AND due IS NOT NULL AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX heads_queue ON heads (due, execution)
    WHERE owner IS NULL AND due IS NOT NULL AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX heads_finished ON heads (finished_at, execution) WHERE finished_at IS NOT NULL;
CREATE INDEX keys_execution ON keys (execution);

-- Holders of permits, and the time of the next call if calls came at an even rate.
CREATE TABLE permits (
    key TEXT NOT NULL, holder TEXT NOT NULL, worker TEXT NOT NULL, PRIMARY KEY (key, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX permits_worker ON permits (worker);
CREATE TABLE rates (key TEXT PRIMARY KEY, next INTEGER NOT NULL, last TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE INDEX rates_next ON rates (next);

-- The output cache.
CREATE TABLE outputs (key TEXT PRIMARY KEY, until INTEGER NOT NULL, json TEXT NOT NULL) STRICT;
CREATE INDEX outputs_until ON outputs (until);

-- Saved plans, and sub-plans.
CREATE TABLE saved (
    name TEXT PRIMARY KEY, plan TEXT NOT NULL, inputs TEXT, at INTEGER NOT NULL
) STRICT;
CREATE INDEX saved_plan ON saved (plan);
CREATE TABLE plan_parts (plan TEXT NOT NULL, part TEXT NOT NULL, PRIMARY KEY (plan, part))
    STRICT, WITHOUT ROWID;
CREATE INDEX plan_parts_part ON plan_parts (part);
";

const UPGRADE_TO_3: &str = "
-- Records. The revision counts changes of records that all processes read again after a change.
CREATE TABLE records (
    kind TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
CREATE INDEX records_calls ON records (at, name) WHERE kind = 'call';
INSERT INTO meta VALUES ('records_revision', '0');

-- Usage of tools: counts, and a histogram of durations.
CREATE TABLE usage (
    tool TEXT PRIMARY KEY, calls INTEGER NOT NULL, failures INTEGER NOT NULL, last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_times (
    tool TEXT NOT NULL, bucket INTEGER NOT NULL, calls INTEGER NOT NULL, PRIMARY KEY (tool, bucket)
) STRICT, WITHOUT ROWID;
";

const UPGRADE_TO_4: &str = "
-- Vectors of texts. `text` is the SHA-256 of the text. `numbers` has four bytes for each number.
CREATE TABLE models (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, text BLOB NOT NULL, numbers BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_text ON vectors (model, text);
";

/// Adds no column to `heads`, because a process of an older version may have the file open, and its
/// statement that writes a head names no columns.
const UPGRADE_TO_5: &str = "
-- Heads of executions that need a person. A row counts only while it has the `seq` of its head,
-- because processes of older versions write heads and leave this table alone.
CREATE TABLE needs_person (number INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
CREATE TRIGGER heads_removed AFTER DELETE ON heads
    BEGIN DELETE FROM needs_person WHERE number = OLD.number; END;
INSERT INTO meta SELECT 'old_workers', COALESCE(group_concat(worker, ' '), '') FROM workers
    HAVING EXISTS (SELECT 1 FROM heads);
";

/// Gives tables and columns the names of the API, and heads the columns for lists and counts. No
/// process of an earlier version has the file open, so columns can change.
const UPGRADE_TO_6: &str = "
DROP VIEW history;
DROP TRIGGER heads_removed;
ALTER TABLE logs RENAME COLUMN execution TO executionId;
CREATE VIEW history AS
    SELECT executionId, first, len, json FROM events JOIN logs ON number = log ORDER BY id;

ALTER TABLE heads RENAME TO executions;
ALTER TABLE executions RENAME COLUMN execution TO executionId;
ALTER TABLE executions RENAME COLUMN request TO requestId;
ALTER TABLE executions RENAME COLUMN plan TO planId;
ALTER TABLE executions RENAME COLUMN created_at TO createdAt;
ALTER TABLE executions RENAME COLUMN due TO dueAt;
ALTER TABLE executions RENAME COLUMN finished_at TO finishedAt;
ALTER TABLE executions RENAME COLUMN parent TO parentExecutionId;
ALTER TABLE executions ADD COLUMN needsPerson INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN startedAt INTEGER;
ALTER TABLE executions ADD COLUMN query TEXT NOT NULL DEFAULT '';
ALTER TABLE executions ADD COLUMN stepsDone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN stepsTotal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN errorCode TEXT;
ALTER TABLE executions ADD COLUMN failedTool TEXT;
ALTER TABLE executions ADD COLUMN errorMessage TEXT;
ALTER TABLE executions ADD COLUMN errorText TEXT;
ALTER TABLE executions ADD COLUMN dryRun INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN labels TEXT;
UPDATE executions SET needsPerson = 1 WHERE state = 'PAUSED' OR EXISTS (SELECT 1 FROM needs_person AS need
    WHERE need.number = executions.number AND need.seq = executions.seq);
DROP TABLE needs_person;
DELETE FROM meta WHERE name = 'old_workers';
CREATE INDEX executions_person ON executions (createdAt, executionId) WHERE needsPerson;
CREATE INDEX executions_error ON executions (errorCode, createdAt, executionId)
    WHERE errorCode IS NOT NULL;
CREATE INDEX executions_failed ON executions (createdAt, executionId) WHERE errorCode IS NOT NULL;
CREATE INDEX executions_failed_tool ON executions (failedTool, createdAt, executionId)
    WHERE failedTool IS NOT NULL;

-- Labels of executions, in the order of lists.
CREATE TABLE execution_labels (
    key TEXT NOT NULL, value TEXT NOT NULL, createdAt INTEGER NOT NULL, executionId TEXT NOT NULL,
    number INTEGER NOT NULL, PRIMARY KEY (key, value, createdAt, executionId)
) STRICT, WITHOUT ROWID;
CREATE INDEX execution_labels_number ON execution_labels (number);
CREATE INDEX execution_labels_key ON execution_labels (key, createdAt, executionId);

-- Three-letter parts of code and message of first errors, for the search in errors.
CREATE VIRTUAL TABLE error_texts USING fts5 (
    text, content='', contentless_delete=1, detail=none, tokenize='trigram'
);

ALTER TABLE workers ADD COLUMN layout INTEGER;
ALTER TABLE inbox RENAME COLUMN execution TO executionId;
ALTER TABLE requests RENAME COLUMN id TO requestId;
ALTER TABLE requests RENAME COLUMN created_at TO createdAt;
ALTER TABLE plans RENAME COLUMN id TO planId;
ALTER TABLE plans RENAME COLUMN request TO requestId;
ALTER TABLE plans RENAME COLUMN created_at TO createdAt;
ALTER TABLE plan_tools RENAME COLUMN plan TO planId;
ALTER TABLE plan_tools RENAME COLUMN tool TO toolName;
ALTER TABLE plan_parts RENAME COLUMN plan TO planId;
ALTER TABLE plan_parts RENAME COLUMN part TO subPlanId;
ALTER TABLE transcripts RENAME COLUMN request TO requestId;
ALTER TABLE keys RENAME COLUMN execution TO executionId;
ALTER TABLE saved RENAME COLUMN plan TO planId;
";

/// Processes of layout 6 may have the file open. They can continue to write, because their
/// statements name the columns and leave the new column empty.
const UPGRADE_TO_7: &str = "
-- JSON, or nothing if there are no labels.
ALTER TABLE requests ADD COLUMN labels TEXT;
";

const UPGRADES: [&str; LAYOUT as usize] = [
    CREATE_VERSION_1,
    UPGRADE_TO_2,
    UPGRADE_TO_3,
    UPGRADE_TO_4,
    UPGRADE_TO_5,
    UPGRADE_TO_6,
    UPGRADE_TO_7,
];

/// Creates or upgrades the tables, and refuses a file that only a newer version can use.
///
/// `has_live_worker` returns `true` if a worker's process runs. An upgrade is refused if a worker
/// of the earlier layout runs that cannot use the upgraded file.
pub(super) fn prepare_schema(
    connection: &Connection,
    path: &Path,
    layout: u32,
    has_live_worker: impl Fn() -> bool,
) -> Result<(), StoreError> {
    let found = find_version(connection, path)?;
    let is_empty = found.is_none();
    let version = found.unwrap_or_default();
    if version < layout {
        // Reads the version again, because the process of the live worker may have upgraded the
        // file since the first read.
        let must_be_alone = !is_empty && version < OLDEST_LAYOUT;
        let is_in_use = must_be_alone && has_live_worker();
        if is_in_use && find_version(connection, path)?.unwrap_or_default() < OLDEST_LAYOUT {
            return Err(store_in_use_error("a worker on this machine"));
        }
        upgrade(connection, path, layout)?;
    }
    // Comes before the migration, because the migration reads and writes heads.
    due::prepare_tokens(connection)?;
    migration::migrate(connection)
}

fn find_version(connection: &Connection, path: &Path) -> Result<Option<u32>, StoreError> {
    let has_meta =
        || connection.prepare("SELECT 1 FROM sqlite_master WHERE name = 'meta'")?.exists([]);
    if !has_meta().map_err(|err| to_store_error(&err))? {
        return Ok(None);
    }
    let find = |name: &str| -> Result<Option<u32>, StoreError> {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let found = connection.query_row(sql, [name], |row| row.get::<_, String>(0)).optional();
        let found = found.map_err(|err| to_store_error(&err))?;
        let damaged = |value: &String| {
            StoreError::corrupt(path.display(), format!("schema version `{value}`"))
        };
        found.map(|value| value.parse().map_err(|_| damaged(&value))).transpose()
    };
    let Some(version) = find("schema_version")? else { return Ok(None) };
    check_layout(version, find("oldest_version")?)?;
    Ok(Some(version))
}

/// Runs all missing upgrades in one transaction, and notes that rows must be converted.
fn upgrade(connection: &Connection, path: &Path, layout: u32) -> Result<(), StoreError> {
    let run = |sql: &str| connection.execute_batch(sql).map_err(|err| to_store_error(&err));
    run("BEGIN IMMEDIATE")?;
    let upgraded = find_version(connection, path).and_then(|found| {
        let missing = found.unwrap_or_default() as usize..layout as usize;
        let missing = UPGRADES.get(missing).unwrap_or_default();
        // Nothing is missing if another process did the upgrade at the same time.
        if missing.is_empty() {
            return Ok(());
        }
        missing.iter().try_for_each(|sql| run(sql))?;
        let set = |name: &str, value: &str| {
            let sql = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
            let written = connection.execute(sql, [name, value]);
            written.map_err(|err| to_store_error(&err)).map(drop)
        };
        set("schema_version", &layout.to_string())?;
        set("oldest_version", &OLDEST_LAYOUT.to_string())?;
        let has_old_rows = found.is_some_and(|found| found < CONVERTED_LAYOUT);
        if has_old_rows { set(migration::PROGRESS_KEY, migration::START_PROGRESS) } else { Ok(()) }
    });
    let ended = run(if upgraded.is_ok() { "COMMIT" } else { "ROLLBACK" });
    upgraded.and(ended)
}
