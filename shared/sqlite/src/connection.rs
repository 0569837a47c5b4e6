use std::{fs, io, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use shared::{limits, store::StoreError};

/// Time for which a write waits for a transaction of another process.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of statements that a connection keeps prepared. There are fewer different
/// statements, so that a connection prepares each statement only once.
const MAX_PREPARED_STATEMENTS: usize = 192;
/// WAL size, in pages of 4 KiB, at which a commit itself does a checkpoint. The watcher checkpoints
/// earlier unless the disk is too slow.
const CHECKPOINT_PAGES: i64 = 16_384;

/// Creates the file if it does not exist. Only its owner can read it, because outputs of tools can
/// be private.
///
/// Does not open an existing file, because closing it again would drop the locks that SQLite holds
/// on it in this process.
pub(super) fn create_file(path: &Path) -> Result<(), StoreError> {
    let failed = |err: &io::Error| {
        StoreError::Unavailable(format!(
            "`{}` cannot be created ({err}): check the path and its permissions, or choose another \
             file with `--store sqlite:PATH`",
            path.display()
        ))
    };
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    if let Some(folder) = path.parent().filter(is_missing) {
        return Err(StoreError::Unavailable(format!(
            "there is no folder `{}` for `{}`: create it, or correct the path of the store",
            folder.display(),
            path.display()
        )));
    }
    match private_file().open(path) {
        Ok(_) => Ok(()),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(err) => Err(failed(&err)),
    }
}

/// Returns a builder of folders that only their owner can enter.
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

pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let connect = || {
        let connection = connect(path)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection
            .pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
        connection.pragma_update(None, "cache_size", -16_384)?;
        Ok(connection)
    };
    connect().map_err(|err| to_open_error(path, &err))
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connect = || {
        let connection = connect(path)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -4_096)?;
        Ok(connection)
    };
    connect().map_err(|err| to_open_error(path, &err))
}

/// Frees the page cache. The connection must not be in a transaction.
pub(super) fn free_cache(connection: &Connection) {
    if let Err(err) = connection.execute_batch("PRAGMA shrink_memory") {
        tracing::debug!(%err, "the page cache of a connection was not freed");
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(MAX_PREPARED_STATEMENTS);
    Ok(connection)
}

fn to_open_error(path: &Path, err: &rusqlite::Error) -> StoreError {
    match to_store_error(err) {
        StoreError::Unavailable(why) | StoreError::Corrupt { why, .. } => {
            StoreError::Unavailable(format!("`{}`: {why}", path.display()))
        }
        other => other,
    }
}

pub(super) fn to_store_error(err: &rusqlite::Error) -> StoreError {
    use rusqlite::Error;
    let advice = match err.sqlite_error_code() {
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
            let why = "the file is not a SQLite database: choose another with `--store \
                       sqlite:PATH`";
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
        Some(_) => "the SQLite operation failed",
        None => match err {
            Error::QueryReturnedNoRows
            | Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::Utf8Error(..)
            | Error::InvalidColumnType(..) => return StoreError::corrupt("a row", err),
            _ => "the SQLite operation failed",
        },
    };
    StoreError::Unavailable(format!("{advice} ({err})"))
}
