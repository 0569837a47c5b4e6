//! Imports lines of JSON that an export wrote.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _},
    path::Path,
};

use serde::Serialize;
use shared::store::Store;

use crate::{
    entry::Entry,
    error::BackupError,
    replay::{Replay, ReplayError},
    report::{Counts, OnProgress, Progress, Stage},
    target::{Mode, Outcome, Target},
};

/// Maximum bytes of a line. A plan has 256 MiB at most.
const MAX_LINE_BYTES: u64 = 512 << 20;
/// Lines between two reports of the progress.
const LINES_PER_REPORT: u64 = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub new: Counts,
    /// Objects that the store already had, so that the import skipped them.
    pub known: Counts,
}

/// Imports a file. Objects that the store already has are skipped. Writes nothing if a line is
/// wrong or an object differs.
///
/// # Errors
///
/// If the file cannot be read, a line is wrong, or the store has another object of the same name.
pub async fn import(
    store: &dyn Store,
    path: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Imported, BackupError> {
    let compared = run_pass(store, path, Mode::Compare, on_progress).await?;
    if !compared.different_objects.is_empty() {
        return Err(BackupError::Different(compared.different_objects));
    }
    let Outcome { new_counts, known_counts, .. } =
        run_pass(store, path, Mode::Import, on_progress).await?;
    Ok(Imported { new: new_counts, known: known_counts })
}

async fn run_pass(
    store: &dyn Store,
    path: &Path,
    mode: Mode,
    on_progress: OnProgress<'_>,
) -> Result<Outcome, BackupError> {
    let unread = |err| BackupError::file(path, "read", err);
    let file = File::open(path).map_err(unread)?;
    let total = Some(file.metadata().map_err(unread)?.len());
    let stage = if mode == Mode::Compare { Stage::Comparing } else { Stage::Writing };
    let mut lines = BufReader::new(file);
    let (mut replay, mut target) = (Replay::new(Some(store)), Target::new(store, mode));
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        line.shrink_to(1 << 20);
        let read = lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
        if read.map_err(unread)? == 0 {
            break;
        }
        number += 1;
        let damaged = |why| BackupError::damaged(path, format_args!("line {number}: {why}"));
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let entry = Entry::decode(text).map_err(damaged)?;
        let item = replay.check(entry, text.len()).await.map_err(|err| match err {
            ReplayError::Wrong(why) => damaged(why),
            ReplayError::Store(err) => err.into(),
        })?;
        target.put(item).await?;
        if number % LINES_PER_REPORT == 0 {
            let done = lines.stream_position().map_err(unread)?;
            on_progress(Progress { stage, done, total });
        }
    }
    match replay.finish() {
        Err(ReplayError::Wrong(why)) => return Err(BackupError::damaged(path, why)),
        Err(ReplayError::Store(err)) => return Err(err.into()),
        Ok(()) => (),
    }
    target.finish().await
}
