use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

use chrono::SecondsFormat;
use shared::store::Store;

use crate::{
    error::BackupError,
    format::{self, BackupHeader, FileWriter},
    part_file::PartFile,
    report::{OnProgress, Report},
    source::{Sink, Source},
};

struct BackupSink {
    path: PathBuf,
    file: FileWriter<BufWriter<File>>,
}

impl Sink for BackupSink {
    fn write_line(&mut self, type_name: &str, line: &str) -> Result<(), BackupError> {
        let written = self.file.write_line(type_name, line);
        written.map_err(|err| BackupError::file(&self.path, "written", err))
    }
}

/// Writes a backup of a store into a file, while other processes use the store.
///
/// Once the new backup is complete, it replaces an older backup with this name. `kind` names the
/// kind of the store in the file. Damaged objects are left out and reported.
///
/// # Errors
///
/// If the store does not answer, the file cannot be written, or a file with this name is not a
/// backup.
pub async fn write_backup(
    store: &dyn Store,
    kind: &str,
    path: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Report, BackupError> {
    refuse_other_file(path)?;
    let began_at = store.shared_time().await?;
    let (part, out) = PartFile::create(path)?;
    let header = BackupHeader {
        faber: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: began_at.to_rfc3339_opts(SecondsFormat::Micros, true),
        store: kind.to_owned(),
    };
    let failed = |err| BackupError::file(path, "written", err);
    let file = FileWriter::new(out, &header).map_err(failed)?;
    let mut sink = BackupSink { path: path.to_owned(), file };
    let source = Source::new(store, &mut sink, None, began_at, on_progress);
    let report = source.write_all(&part.spool_path()).await?;
    part.finish(sink.file.finish().map_err(failed)?)?;
    Ok(report)
}

/// Refuses to replace a file that is no backup, such as the file of the store itself.
fn refuse_other_file(path: &Path) -> Result<(), BackupError> {
    match File::open(path) {
        Ok(file) if format::has_magic(&file) => Ok(()),
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(BackupError::Occupied { path: path.display().to_string() }),
    }
}
