//! Restores a backup into an empty store. A restore may be interrupted, so a record marks the store
//! as incomplete until the last write.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use shared::store::{
    AuditFilter, ExecutionFilter, Page, PlanFilter, RecordPage, RequestFilter, RestoreMarker, Store,
};

use crate::{
    entry::backup_kinds,
    error::BackupError,
    format::{BackupHeader, FORMAT_VERSION, FileReader, FormatError},
    replay::{Item, Replay, ReplayError},
    report::{Counts, OnProgress, Progress, Stage},
    target::{Mode, Target},
};

/// A backup whose checksum and logs are correct.
pub struct VerifiedBackup {
    path: PathBuf,
    file: FileReader<BufReader<File>>,
}

impl VerifiedBackup {
    /// Opens a backup and checks all of it: its checksum, each entry, and each log.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no backup, is damaged, or has a newer format.
    pub async fn open(path: &Path, on_progress: OnProgress<'_>) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(|err| BackupError::file(path, "read", err))?;
        let file =
            FileReader::open(BufReader::new(file)).map_err(|err| to_backup_error(path, err))?;
        let mut backup = Self { path: path.to_owned(), file };
        let mut pass = BackupPass::new(&mut backup, Stage::Checking, on_progress);
        while pass.next().await?.is_some() {}
        Ok(backup)
    }

    pub fn header(&self) -> &BackupHeader {
        self.file.header()
    }

    fn marker(&self) -> RestoreMarker {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        RestoreMarker { file: path.display().to_string(), sha256: self.file.sha256().to_owned() }
    }
}

fn to_backup_error(path: &Path, err: FormatError) -> BackupError {
    let name = || path.display().to_string();
    match err {
        FormatError::Io(err) => BackupError::file(path, "read", err),
        FormatError::NotBackup => BackupError::NotBackup { path: name() },
        FormatError::TooNew { found } => {
            BackupError::TooNew { path: name(), found, newest_known: FORMAT_VERSION }
        }
        FormatError::Damaged(why) => BackupError::damaged(path, why),
    }
}

struct BackupPass<'a> {
    backup: &'a mut VerifiedBackup,
    replay: Replay<'static>,
    stage: Stage,
    on_progress: OnProgress<'a>,
    reported_position: u64,
}

impl<'a> BackupPass<'a> {
    fn new(backup: &'a mut VerifiedBackup, stage: Stage, on_progress: OnProgress<'a>) -> Self {
        Self { backup, replay: Replay::new(None), stage, on_progress, reported_position: 0 }
    }

    async fn next(&mut self) -> Result<Option<Item>, BackupError> {
        let VerifiedBackup { path, file } = &mut *self.backup;
        let path = &*path;
        let wrong = |err| match err {
            ReplayError::Wrong(why) => BackupError::damaged(path, why),
            ReplayError::Store(err) => err.into(),
        };
        let Some((entry, len)) = file.next_entry().map_err(|err| to_backup_error(path, err))?
        else {
            self.replay.finish().map_err(wrong)?;
            return Ok(None);
        };
        let (done, total) = file.progress();
        if done != self.reported_position {
            self.reported_position = done;
            (self.on_progress)(Progress { stage: self.stage, done, total: Some(total) });
        }
        self.replay.check(entry, len).await.map(Some).map_err(wrong)
    }
}

/// Writes a backup into an empty store, and returns the numbers of objects that it wrote.
///
/// If an earlier restore of the same file was interrupted, completes the store. No execution
/// continues before a worker opens the store.
///
/// # Errors
///
/// If the store is not empty, a restore of another file was interrupted, or the store does not
/// answer.
pub async fn restore(
    store: &dyn Store,
    backup: &mut VerifiedBackup,
    on_progress: OnProgress<'_>,
) -> Result<Counts, BackupError> {
    let marker = backup.marker();
    match store.find_restore().await? {
        Some(found) if found.sha256 == marker.sha256 => (),
        Some(found) => return Err(BackupError::OtherRestore { sha256: found.sha256 }),
        None => {
            if let Some(what) = find_content(store).await? {
                return Err(BackupError::NotEmpty { what });
            }
            store.begin_restore(&marker, store.shared_time().await?).await?;
        }
    }
    let path = backup.path.clone();
    backup.file.rewind().map_err(|err| to_backup_error(&path, err))?;
    let mut pass = BackupPass::new(backup, Stage::Writing, on_progress);
    let mut target = Target::new(store, Mode::Restore);
    while let Some(item) = pass.next().await? {
        target.put(item).await?;
    }
    let outcome = target.finish().await?;
    store.end_restore().await?;
    Ok(outcome.new_counts)
}

/// Returns the name of a kind of content that the store has, or `None` if the store is empty.
async fn find_content(store: &dyn Store) -> Result<Option<&'static str>, BackupError> {
    let first = Page::first_items(1);
    // A page without items may still have `has_more`, because a list leaves out damaged rows.
    let executions = store.list_heads(&ExecutionFilter::default(), &first).await?;
    if executions.has_more || !executions.items.is_empty() {
        return Ok(Some("executions"));
    }
    let plans = store.list_plans(&PlanFilter::default(), &first).await?;
    if plans.has_more || !plans.items.is_empty() {
        return Ok(Some("plans"));
    }
    let requests = store.list_requests(&RequestFilter::default(), &first).await?;
    if requests.has_more || !requests.items.is_empty() {
        return Ok(Some("requests"));
    }
    if !store.list_commands(None).await?.is_empty() {
        return Ok(Some("commands"));
    }
    if !store.list_workers(store.shared_time().await?).await?.is_empty() {
        return Ok(Some("a running worker"));
    }
    for kind in backup_kinds() {
        let page = RecordPage::first_records(1).names_only();
        if !store.list_records(kind, page).await?.is_empty() {
            return Ok(Some("settings or other records"));
        }
    }
    let audit = store.list_audit_entries(&AuditFilter::default(), &first).await?;
    if audit.has_more || !audit.items.is_empty() {
        return Ok(Some("audit entries"));
    }
    Ok(None)
}
