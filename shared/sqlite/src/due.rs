//! Finds due executions for claims. The partial indexes `heads_due` and `heads_token` have only
//! executions that a worker can claim.

use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    clock::Timestamp,
    limits,
    store::{
        ExecutionHead, HeadQuery, StoreError,
        backend::{PlaceShares, add_longest_due, aged_places, rotate_tokens},
    },
};

use super::{
    connection::to_store_error,
    log::{find_heads, list_heads_where, to_limit},
    rows,
};

/// The token of an execution. A damaged text has no token, because a write must not fail if its
/// value is indexed.
const TOKEN: &str = r#"CASE WHEN json_valid(labels) THEN labels ->> '$."@token"' END"#;
/// Selects unfinished executions that can have a token. The index has no others, so executions
/// without labels cost nothing.
const IS_ACTIVE: &str = "labels IS NOT NULL AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')";

/// Creates the indexes, the table and the trigger that a file of an earlier version lacks.
pub(super) fn prepare_tokens(connection: &Connection) -> Result<(), StoreError> {
    let claimable = rows::IS_CLAIMABLE;
    let sql = format!(
        "BEGIN IMMEDIATE;
         CREATE INDEX IF NOT EXISTS heads_token
             ON executions ({TOKEN}, priority, dueAt, executionId) WHERE {claimable};
         CREATE INDEX IF NOT EXISTS executions_active ON executions ({TOKEN}) WHERE {IS_ACTIVE};
         CREATE TABLE IF NOT EXISTS stored_bytes (
             number INTEGER PRIMARY KEY, token TEXT NOT NULL, bytes INTEGER NOT NULL
         ) STRICT;
         CREATE INDEX IF NOT EXISTS stored_bytes_token ON stored_bytes (token, bytes);
         CREATE TRIGGER IF NOT EXISTS stored_bytes_removed AFTER DELETE ON executions
             BEGIN DELETE FROM stored_bytes WHERE number = OLD.number; END;
         COMMIT;"
    );
    let prepare = || {
        let found = "SELECT 1 FROM sqlite_master WHERE name = 'stored_bytes_removed'";
        if connection.prepare(found)?.exists([])? {
            return Ok(());
        }
        let created = connection.execute_batch(&sql);
        if created.is_err() {
            // Ignores an error, because maybe no transaction is open.
            let _ = connection.execute_batch("ROLLBACK");
        }
        created
    };
    prepare().map_err(|err| to_store_error(&err))
}

/// Writes the bytes of an execution that belongs to a token.
pub(super) fn put_stored_bytes(
    connection: &Connection,
    log: i64,
    head: &ExecutionHead,
) -> rusqlite::Result<()> {
    let Some(token) = head.token() else { return Ok(()) };
    let sql = "INSERT INTO stored_bytes (number, token, bytes) VALUES (?1, ?2, ?3)
        ON CONFLICT (number) DO UPDATE SET bytes = excluded.bytes";
    let row = params![log, token, head.stored_bytes.cast_signed()];
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

#[derive(Clone, Copy)]
enum Queue<'a> {
    All,
    /// The executions of this token. `None` has the executions that belong to no token.
    Of(Option<&'a str>),
}

impl<'a> Queue<'a> {
    /// Selects the executions that a worker can claim. The parameter `?1` is the token.
    fn condition(self) -> String {
        let (index, token) = match self {
            Self::All => ("heads_due", String::new()),
            Self::Of(_) => ("heads_token", format!("AND ({TOKEN}) IS ?1")),
        };
        format!("INDEXED BY {index} WHERE {} {token}", rows::IS_CLAIMABLE)
    }

    fn token(self) -> Option<&'a str> {
        match self {
            Self::All => None,
            Self::Of(token) => token,
        }
    }
}

/// Finds due executions in the order of [`HeadQuery::Due`]. The last entries of the list are for
/// executions that have been due longest, so that a low priority does not wait forever.
pub(super) fn find_due(
    connection: &Connection,
    now: Timestamp,
    turn: u32,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    let places = most - aged_places(most, turn);
    let mut tokens = find_due_tokens(connection).map_err(|err| to_store_error(&err))?;
    let mut heads = if tokens.len() < 2 {
        find_by_priority(connection, Queue::All, now, places)?
    } else {
        rotate_tokens(&mut tokens, turn, most);
        let mut shares = PlaceShares::new(places, tokens.len());
        while let Some(read) = shares.next_read() {
            let queue = Queue::Of(tokens[read.token].as_deref());
            shares.add_found(read, find_by_priority(connection, queue, now, read.most)?);
        }
        shares.into_list()
    };
    if heads.len() < most {
        let longest = find_heads(connection, HeadQuery::DueAfter { now, after: None }, most)?;
        add_longest_due(&mut heads, longest, most);
    }
    Ok(heads)
}

/// Finds due executions, the highest priority first. One query for each priority is fast, because
/// it skips executions of higher priorities that are not due.
fn find_by_priority(
    connection: &Connection,
    queue: Queue<'_>,
    now: Timestamp,
    most: usize,
) -> Result<Vec<ExecutionHead>, StoreError> {
    let condition = format!(
        "{} AND priority = ?2 AND dueAt <= ?3 ORDER BY dueAt, executionId LIMIT ?4",
        queue.condition()
    );
    let (mut heads, mut priorities, mut last) = (Vec::new(), 0, i64::MAX);
    while heads.len() < most && priorities < limits::PRIORITIES {
        let next =
            find_next_priority(connection, queue, last).map_err(|err| to_store_error(&err))?;
        let Some(priority) = next else { break };
        let missing = to_limit(most - heads.len());
        let values = params![queue.token(), priority, now.timestamp_micros(), missing];
        heads.append(&mut list_heads_where(connection, &condition, values)?);
        (priorities, last) = (priorities + 1, priority);
    }
    Ok(heads)
}

/// Returns the highest priority of a claimable execution below `last`, with one access to the
/// index.
fn find_next_priority(
    connection: &Connection,
    queue: Queue<'_>,
    last: i64,
) -> rusqlite::Result<Option<i64>> {
    let sql = format!(
        "SELECT priority FROM executions {} AND priority < ?2 ORDER BY priority DESC LIMIT 1",
        queue.condition()
    );
    let values = params![queue.token(), last];
    connection.prepare_cached(&sql)?.query_row(values, |row| row.get(0)).optional()
}

/// Returns the tokens of claimable executions, at most [`limits::DUE_TOKENS`], with one access to
/// the index for each token.
fn find_due_tokens(connection: &Connection) -> rusqlite::Result<Vec<Option<String>>> {
    let claimable = rows::IS_CLAIMABLE;
    let sql = format!(
        "SELECT 1 FROM executions INDEXED BY heads_token WHERE {claimable} AND ({TOKEN}) IS NULL
         LIMIT 1"
    );
    let has_unowned = connection.prepare_cached(&sql)?.exists([])?;
    let mut tokens: Vec<Option<String>> = has_unowned.then_some(None).into_iter().collect();
    let sql = format!(
        "SELECT {TOKEN} FROM executions INDEXED BY heads_token WHERE {claimable}
         AND ({TOKEN}) > ?1 ORDER BY {TOKEN} LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    while tokens.len() < limits::DUE_TOKENS {
        let last = tokens.last().and_then(Option::as_deref).unwrap_or_default();
        let next = statement.query_row([last], |row| row.get(0)).optional()?;
        match next {
            Some(next) => tokens.push(Some(next)),
            None => break,
        }
    }
    Ok(tokens)
}

pub(super) fn count_active(connection: &Connection, token: &str) -> Result<u64, StoreError> {
    let sql = format!(
        "SELECT count(*) FROM executions INDEXED BY executions_active
         WHERE ({TOKEN}) = ?1 AND {IS_ACTIVE}"
    );
    read_number(connection, &sql, token)
}

/// Returns the stored bytes of all executions of a token. Reads the index only.
pub(super) fn sum_stored_bytes(connection: &Connection, token: &str) -> Result<u64, StoreError> {
    let sql = "SELECT COALESCE(sum(bytes), 0) FROM stored_bytes WHERE token = ?1";
    read_number(connection, sql, token)
}

fn read_number(connection: &Connection, sql: &str, token: &str) -> Result<u64, StoreError> {
    let read = || connection.prepare_cached(sql)?.query_row([token], |row| row.get::<_, i64>(0));
    read().map(i64::unsigned_abs).map_err(|err| to_store_error(&err))
}
