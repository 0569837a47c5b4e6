//! The tables, and the version that says how they are to be understood.
//!
//! Identifiers, times (microseconds since 1970) and JSON are kept as a person expects them; the
//! view `history` is the log with its identifiers. A log has a number because numbers are what
//! makes the hot path short: the logs that grow at the same time have neighbouring numbers, so
//! the appends of one commit touch a few pages at the end of the table and of its index, where
//! textual keys would touch one page for each.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use shared::{id::WorkerId, store::StoreError};

use super::connection::failed;

/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 5;

/// The tables of version 1. Never changed: later versions add to them, in new files and old.
const TABLES: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- What happened. One row for one append; `json` has `len` events, the first at position `first`.
CREATE TABLE logs (number INTEGER PRIMARY KEY, execution TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, first INTEGER NOT NULL, len INTEGER NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_fence ON events (log, first);
CREATE VIEW history AS
    SELECT execution, first, len, json FROM events JOIN logs ON number = log ORDER BY id;

-- What the logs come to. A cache: the logs are right.
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

-- Who works, until when.
CREATE TABLE workers (worker TEXT PRIMARY KEY, node TEXT NOT NULL, until INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;

-- What outsiders ask, by arrival.
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution TEXT NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_execution ON inbox (execution);

-- What never changes. `folded` is the query as it is searched.
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

/// What makes version 2 of version 1. Executions that were over already get the time at which
/// their logs end.
const SECOND: &str = "
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

-- Who holds which limit, and when the next call would come if all came evenly.
CREATE TABLE permits (
    key TEXT NOT NULL, holder TEXT NOT NULL, worker TEXT NOT NULL, PRIMARY KEY (key, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX permits_worker ON permits (worker);
CREATE TABLE rates (key TEXT PRIMARY KEY, next INTEGER NOT NULL, last TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE INDEX rates_next ON rates (next);

-- What calls returned, for those that ask the same.
CREATE TABLE outputs (key TEXT PRIMARY KEY, until INTEGER NOT NULL, json TEXT NOT NULL) STRICT;
CREATE INDEX outputs_until ON outputs (until);

-- Plans with names, and plans that are steps of plans.
CREATE TABLE saved (
    name TEXT PRIMARY KEY, plan TEXT NOT NULL, inputs TEXT, at INTEGER NOT NULL
) STRICT;
CREATE INDEX saved_plan ON saved (plan);
CREATE TABLE plan_parts (plan TEXT NOT NULL, part TEXT NOT NULL, PRIMARY KEY (plan, part))
    STRICT, WITHOUT ROWID;
CREATE INDEX plan_parts_part ON plan_parts (part);
";

/// What makes version 3 of version 2.
const THIRD: &str = "
-- Small documents by kind and name; how often those changed on which all processes must agree.
CREATE TABLE records (
    kind TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
CREATE INDEX records_calls ON records (at, name) WHERE kind = 'call';
INSERT INTO meta VALUES ('records_revision', '0');

-- How often tools were called, and how many calls took how long.
CREATE TABLE usage (
    tool TEXT PRIMARY KEY, calls INTEGER NOT NULL, failures INTEGER NOT NULL, last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_times (
    tool TEXT NOT NULL, bucket INTEGER NOT NULL, calls INTEGER NOT NULL, PRIMARY KEY (tool, bucket)
) STRICT, WITHOUT ROWID;
";

/// What makes version 4 of version 3.
const FOURTH: &str = "
-- What models made of texts. A text is known by its SHA-256, a vector has four bytes a number.
CREATE TABLE models (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, text BLOB NOT NULL, numbers BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_text ON vectors (model, text);
";

/// What makes version 5 of version 4.
///
/// It leaves `heads` as it is: a process of an older version may have the file open, and its
/// statement that writes a head names no columns.
const FIFTH: &str = "
-- Heads of executions that need a person. A row counts only while it has the `seq` of its head:
-- processes of older versions write heads and leave this table alone.
CREATE TABLE needs_person (number INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
CREATE TRIGGER heads_removed AFTER DELETE ON heads
    BEGIN DELETE FROM needs_person WHERE number = OLD.number; END;
INSERT INTO meta SELECT 'old_workers', COALESCE(group_concat(worker, ' '), '') FROM workers
    HAVING EXISTS (SELECT 1 FROM heads);
";

/// What makes each version of the one before it.
const STEPS: [&str; VERSION as usize] = [TABLES, SECOND, THIRD, FOURTH, FIFTH];

/// Finds the executions that need a person in their logs. Only logs with a step that waited are
/// taken apart: in those, the last event of a waiting step, item or compensation says so.
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

/// Makes the tables if there are none, brings those of an older version up to date, and refuses
/// those of a newer one. `is_alive` tells whether a worker's process runs.
pub(super) fn prepare(
    connection: &Connection,
    path: &Path,
    is_alive: impl Fn(WorkerId) -> bool,
) -> Result<(), StoreError> {
    make_tables(connection, path)?;
    if let Err(err) = fill_after_upgrade(connection, is_alive) {
        let err = failed(&err);
        tracing::warn!(%err, "lists of what needs a person are incomplete until the next start");
    }
    Ok(())
}

fn make_tables(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = match found(connection).map_err(|err| failed(&err))? {
        Some(found) if found == VERSION.to_string() => return Ok(()),
        Some(found) => found,
        None => "0".to_owned(),
    };
    let why = |_| StoreError::corrupt(path.display(), format!("schema version `{found}`"));
    match found.parse::<u32>().map_err(why)? {
        0..VERSION => make(connection).map_err(|err| failed(&err)),
        found => Err(StoreError::TooNew { found, known: VERSION }),
    }
}

fn found(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let has_meta = "SELECT 1 FROM sqlite_master WHERE name = 'meta'";
    if !connection.prepare(has_meta)?.exists([])? {
        return Ok(None);
    }
    let version = "SELECT value FROM meta WHERE name = 'schema_version'";
    connection.query_row(version, [], |row| row.get(0)).optional()
}

/// Makes what is lacking, all of it or nothing, unless another process was faster.
fn make(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let made = found(connection).and_then(|found| {
        let version = found.map_or(Some(0), |it| it.parse().ok());
        match version.and_then(|it: usize| STEPS.get(it..)) {
            // Another process was faster.
            None | Some([]) => Ok(()),
            Some(steps) => bring_up_to_date(connection, steps),
        }
    });
    let ended = connection.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" });
    made.and(ended)
}

fn bring_up_to_date(connection: &Connection, steps: &[&str]) -> rusqlite::Result<()> {
    steps.iter().try_for_each(|it| connection.execute_batch(it))?;
    let version = "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?1)";
    connection.execute(version, [VERSION.to_string()]).map(drop)
}

/// Looks for executions that need a person after an upgrade, and again as long as workers of the
/// older version run, because they may have written heads since.
fn fill_after_upgrade(
    connection: &Connection,
    is_alive: impl Fn(WorkerId) -> bool,
) -> rusqlite::Result<()> {
    let sql = "SELECT value FROM meta WHERE name = 'old_workers'";
    let found = connection.query_row(sql, [], |row| row.get::<_, String>(0)).optional()?;
    let Some(workers) = found else { return Ok(()) };
    let mut workers = workers.split(' ').filter_map(|worker| worker.parse().ok());
    // First, because a worker that ends during the search may have written a head before.
    let is_over = !workers.any(is_alive);
    connection.execute_batch(FILL_NEEDS_PERSON)?;
    if is_over {
        connection.execute("DELETE FROM meta WHERE name = 'old_workers'", [])?;
    }
    Ok(())
}
