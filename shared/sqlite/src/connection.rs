//! Connections to the file, and what SQLite's errors mean for a person.

use std::{fs, io, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use shared::{limits, store::StoreError};

/// How long a write waits for another process that writes.
const BUSY: Duration = Duration::from_secs(5);
/// Statements that a connection keeps prepared: more than there are.
const STATEMENTS: usize = 192;
/// The WAL grows to so many pages before a commit itself folds it into the file: 64 MiB, which the
/// watcher never lets happen unless the disk cannot keep up.
const CHECKPOINT_PAGES: i64 = 16_384;

/// Makes the file if there is none. Only its owner may read it: outputs of tools are nobody else's
/// business. A folder that is not there is more likely a typing error than a wish, so none is made.
///
/// A file that is there is not touched: closing it would drop the locks that SQLite has on it in
/// this process.
pub(super) fn make_file(path: &Path) -> Result<(), StoreError> {
    let refused = |err: &io::Error| {
        StoreError::Unavailable(format!(
            "`{}` cannot be made ({err}): check the path and its permissions, or choose another \
             file with `--store sqlite:PATH`",
            path.display()
        ))
    };
    if let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty() && !it.exists()) {
        return Err(StoreError::Unavailable(format!(
            "there is no folder `{}` for `{}`: create it, or correct the path of the store",
            folder.display(),
            path.display()
        )));
    }
    match private_file().open(path) {
        Ok(_) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(err) => Err(refused(&err)),
    }
}

/// Returns how folders are made that only their owner may enter.
pub(super) fn private_folder() -> fs::DirBuilder {
    let mut folder = fs::DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder
}

fn private_file() -> fs::OpenOptions {
    let mut file = fs::OpenOptions::new();
    file.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    file
}

/// Opens a connection that writes.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let connect = || {
        let connection = connect(path)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection
            .pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        Ok(connection)
    };
    connect().map_err(|err| open_failed(path, &err))
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connect = || {
        let connection = connect(path)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -16_384)?;
        Ok(connection)
    };
    connect().map_err(|err| open_failed(path, &err))
}

/// Frees the page cache of a connection that is in no transaction.
pub(super) fn free_cache(connection: &Connection) {
    if let Err(err) = connection.execute_batch("PRAGMA shrink_memory") {
        tracing::debug!(%err, "the page cache of a connection was not freed");
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn open_failed(path: &Path, err: &rusqlite::Error) -> StoreError {
    match failed(err) {
        StoreError::Unavailable(why) | StoreError::Corrupt { why, .. } => {
            StoreError::Unavailable(format!("`{}`: {why}", path.display()))
        }
        other => other,
    }
}

/// Says what an error of SQLite means, and what to do.
pub(super) fn failed(err: &rusqlite::Error) -> StoreError {
    use rusqlite::Error;
    let what_to_do = match err.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full: make room and try again",
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "the file or its folder cannot be written: check the permissions"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program has kept the file locked for seconds: end it, or use another file"
        }
        Some(ErrorCode::CannotOpen) => {
            "the file cannot be opened: check the path, and that the file and its folder can be \
             written"
        }
        Some(ErrorCode::SystemIoFailure) => "the disk reports an error: check it",
        Some(ErrorCode::NotADatabase) => {
            let why = "the file is no SQLite database: choose another with `--store sqlite:PATH`";
            return StoreError::corrupt("the store", why);
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let why =
                format!("{err}: restore the file from a backup, or try `sqlite3 FILE .recover`");
            return StoreError::corrupt("the store", why);
        }
        Some(ErrorCode::TooBig) => {
            return StoreError::TooLarge { bytes: limits::DOCUMENT_BYTES };
        }
        Some(_) => "SQLite could not do it",
        None => match err {
            Error::QueryReturnedNoRows
            | Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::Utf8Error(..)
            | Error::InvalidColumnType(..) => return StoreError::corrupt("a row", err),
            _ => "SQLite could not do it",
        },
    };
    StoreError::Unavailable(format!("{what_to_do} ({err})"))
}
