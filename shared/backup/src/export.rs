use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use shared::{clock::Timestamp, store::Store};

use crate::{
    error::BackupError,
    part_file::PartFile,
    report::{OnProgress, Report},
    source::{Sink, Source},
};

struct LineSink<W> {
    path: PathBuf,
    out: W,
}

impl<W: Write + Send> Sink for LineSink<W> {
    fn write_line(&mut self, _type_name: &str, line: &str) -> Result<(), BackupError> {
        let written = self.out.write_all(line.as_bytes()).and_then(|()| self.out.write_all(b"\n"));
        written.map_err(|err| BackupError::file(&self.path, "written", err))
    }
}

/// Exports the history since a time into a file: no settings, and older objects only if younger
/// objects need them. Replaces an existing file.
///
/// # Errors
///
/// If the store does not answer, or the file cannot be written.
pub async fn export_to_file(
    store: &dyn Store,
    since: Timestamp,
    path: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Report, BackupError> {
    let began_at = store.shared_time().await?;
    let (part, out) = PartFile::create(path)?;
    let mut sink: LineSink<BufWriter<File>> = LineSink { path: path.to_owned(), out };
    let source = Source::new(store, &mut sink, Some(since), began_at, on_progress);
    let report = source.write_all(&part.spool_path()).await?;
    part.finish(sink.out)?;
    Ok(report)
}

/// Exports the history since a time, as [`export_to_file`] does. `spool` is a path for a temporary
/// file.
///
/// # Errors
///
/// If the store does not answer, or `out` cannot be written.
pub async fn export_to_writer(
    store: &dyn Store,
    since: Timestamp,
    out: &mut (dyn Write + Send),
    spool: &Path,
    on_progress: OnProgress<'_>,
) -> Result<Report, BackupError> {
    let began_at = store.shared_time().await?;
    let path = PathBuf::from("standard output");
    let mut sink = LineSink { path: path.clone(), out: BufWriter::new(out) };
    let source = Source::new(store, &mut sink, Some(since), began_at, on_progress);
    let report = source.write_all(spool).await?;
    sink.out.flush().map_err(|err| BackupError::file(&path, "written", err))?;
    Ok(report)
}
