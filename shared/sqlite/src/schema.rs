//! Creates the tables, and brings a file of an older schema version up to date.
//!
//! People can read the tables: ids and JSON are text, and times are microseconds since 1970. The
//! view `history` shows event logs with the ids of their executions.
//!
//! Each log also has a number, because numbers make appends fast. Logs that grow at the same time
//! have neighbouring numbers, so the appends of one commit change a few pages at the end of the
//! table and of its index. With ids as keys, each append would change another page.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use shared::{id::WorkerId, store::StoreError};

use super::connection::to_store_error;

/// The schema version that this program writes, and the newest that it reads.
const SCHEMA_VERSION: u32 = 5;

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

const UPGRADES: [&str; SCHEMA_VERSION as usize] =
    [CREATE_VERSION_1, UPGRADE_TO_2, UPGRADE_TO_3, UPGRADE_TO_4, UPGRADE_TO_5];

/// Finds the executions that need a person. A step, item or compensation waits if its last event is
/// `step_waiting`. Parses only logs that contain such an event, because parsing is slow.
///
/// The search only reads, so that other processes can write during it.
const FILL_NEEDS_PERSON: &str = "
CREATE TEMP TABLE needing AS SELECT number, seq FROM heads
WHERE state IN ('PAUSED', 'WAITING', 'IN_PROGRESS')
AND NOT EXISTS (SELECT 1 FROM needs_person AS need
    WHERE need.number = heads.number AND need.seq = heads.seq)
AND (state = 'PAUSED' OR EXISTS (
    SELECT 1 FROM (
        SELECT max(events.first + event.key), event.value ->> '$.type' AS last
        FROM events, json_each(CASE WHEN json_valid(events.json) THEN events.json ELSE '[]' END)
            AS event
        WHERE log = heads.number AND EXISTS (SELECT 1 FROM events
            WHERE log = heads.number AND instr(json, '\"type\":\"step_waiting\"'))
        AND event.value ->> '$.step' IS NOT NULL
        GROUP BY event.value ->> '$.step', event.value ->> '$.part'
    ) WHERE last = 'step_waiting'));
INSERT OR REPLACE INTO needs_person SELECT heads.number, heads.seq FROM needing CROSS JOIN heads
    ON heads.number = needing.number AND heads.seq = needing.seq;
DROP TABLE needing;
";

/// Creates or upgrades the tables, and rejects a newer version. `is_alive` returns `true` if a
/// worker's process runs.
pub(super) fn prepare_schema(
    connection: &Connection,
    path: &Path,
    is_alive: impl Fn(WorkerId) -> bool,
) -> Result<(), StoreError> {
    create_tables(connection, path)?;
    if let Err(err) = fill_after_upgrade(connection, is_alive) {
        let err = to_store_error(&err);
        tracing::warn!(%err, "lists of executions that need a person are incomplete until the next start");
    }
    Ok(())
}

fn create_tables(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = match find_version(connection).map_err(|err| to_store_error(&err))? {
        Some(found) if found == SCHEMA_VERSION.to_string() => return Ok(()),
        Some(found) => found,
        None => "0".to_owned(),
    };
    let why = |_| StoreError::corrupt(path.display(), format!("schema version `{found}`"));
    match found.parse::<u32>().map_err(why)? {
        0..SCHEMA_VERSION => upgrade(connection).map_err(|err| to_store_error(&err)),
        found => Err(StoreError::TooNew { found, known: SCHEMA_VERSION }),
    }
}

fn find_version(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let has_meta = "SELECT 1 FROM sqlite_master WHERE name = 'meta'";
    if !connection.prepare(has_meta)?.exists([])? {
        return Ok(None);
    }
    let version = "SELECT value FROM meta WHERE name = 'schema_version'";
    connection.query_row(version, [], |row| row.get(0)).optional()
}

/// Runs all missing upgrades in one transaction.
fn upgrade(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let upgraded = find_version(connection).and_then(|found| {
        let version = found.map_or(Some(0), |version| version.parse().ok());
        match version.and_then(|version: usize| UPGRADES.get(version..)) {
            // Another process did the upgrade at the same time.
            None | Some([]) => Ok(()),
            Some(missing) => run_upgrades(connection, missing),
        }
    });
    let ended = connection.execute_batch(if upgraded.is_ok() { "COMMIT" } else { "ROLLBACK" });
    upgraded.and(ended)
}

fn run_upgrades(connection: &Connection, upgrades: &[&str]) -> rusqlite::Result<()> {
    upgrades.iter().try_for_each(|sql| connection.execute_batch(sql))?;
    let version = "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?1)";
    connection.execute(version, [SCHEMA_VERSION.to_string()]).map(drop)
}

/// Finds executions that need a person after an upgrade. Runs at each start until no worker of the
/// older version is alive, because such workers write heads without this mark.
fn fill_after_upgrade(
    connection: &Connection,
    is_alive: impl Fn(WorkerId) -> bool,
) -> rusqlite::Result<()> {
    let sql = "SELECT value FROM meta WHERE name = 'old_workers'";
    let found = connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional()?;
    let Some(workers) = found else { return Ok(()) };
    let mut workers = workers.split(' ').filter_map(|worker| worker.parse().ok());
    // The workers are checked before the search, because a worker that ends during it may have
    // written a head that the search missed.
    let is_last_search = !workers.any(is_alive);
    connection.execute_batch(FILL_NEEDS_PERSON)?;
    if is_last_search {
        connection.execute("DELETE FROM meta WHERE name = 'old_workers'", [])?;
    }
    Ok(())
}
