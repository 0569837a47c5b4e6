//! `faber backup`, `faber restore`, `faber import` and `faber export --since`. They open the store
//! themselves and start no worker.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use backup::{BackupError, Counts, Progress, Report, Stage, VerifiedBackup};
use chrono::TimeDelta;
use client::{
    failure::Failure,
    view::{format::count_noun, plain},
};
use engine::{age, record_entry};
use serde_json::json;
use shared::{
    actor::Actor,
    clock::Timestamp,
    store::{AuditAction, AuditEntry, AuditTarget, Store},
};
use tempfile::TempDir;

use super::{progress_line::ProgressLine, serve::refuse_server_flag};
use crate::{
    App, ExitStatus,
    args::ExportArgs,
    local_engine::{missing_store, open_store_for_copies},
    signals,
};

pub(crate) async fn write_backup(app: &App, file: &Path) -> Result<ExitStatus, Failure> {
    let store = open_existing_store(app, "backup").await?;
    let line = ProgressLine::new(&app.screen);
    let show = |progress| line.show(|| describe_progress(progress));
    let written = tokio::select! {
        written = backup::write_backup(&*store, store_kind(app), file, &show) => Some(written),
        () = signals::await_interrupt() => None,
    };
    line.clear();
    let Some(written) = written else { return app.detach("stopped; no backup was written") };
    let report = written.map_err(to_failure)?;
    record_action(app, &*store, AuditAction::BACKUP, &report.counts).await?;
    print_report(app, &report, "backed up", Some(file))
}

pub(crate) async fn restore(app: &App, file: &Path) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "restore")?;
    refuse_memory(app, "restore")?;
    let line = ProgressLine::new(&app.screen);
    let show = |progress| line.show(|| describe_progress(progress));
    let work = async {
        // Checks the file before the store is opened, so that an invalid file creates no store.
        let mut backup = VerifiedBackup::open(file, &show).await.map_err(to_failure)?;
        let store = open_store_for_copies(app.setup()).await?;
        let counts = backup::restore(&*store, &mut backup, &show).await.map_err(to_failure)?;
        record_action(app, &*store, AuditAction::RESTORE, &counts).await?;
        Ok::<_, Failure>((counts, backup.header().clone()))
    };
    let restored = tokio::select! {
        restored = work => Some(restored),
        () = signals::await_interrupt() => None,
    };
    line.clear();
    let Some(restored) = restored else {
        return app.detach("stopped; if the restore had begun, the same command completes it");
    };
    let (counts, header) = restored?;
    let store = app.config.store_name();
    let document = json!({ "file": file, "store": store, "backup": header, "counts": counts });
    let text = format!(
        "restored {}\ninto {store}\nfrom a backup of {} ({})",
        describe_counts(&counts),
        header.created_at,
        header.store
    );
    app.screen.print_result(&document, &plain::safe_block(&text))
}

pub(crate) async fn import(app: &App, file: &Path) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "import")?;
    refuse_memory(app, "import")?;
    let store = open_store_for_copies(app.setup()).await?;
    store.check_restored().await?;
    let line = ProgressLine::new(&app.screen);
    let show = |progress| line.show(|| describe_progress(progress));
    let imported = tokio::select! {
        imported = backup::import(&*store, file, &show) => Some(imported),
        () = signals::await_interrupt() => None,
    };
    line.clear();
    let Some(imported) = imported else {
        return app.detach("stopped; the same command imports the rest");
    };
    let imported = imported.map_err(to_failure)?;
    record_action(app, &*store, AuditAction::IMPORT, &imported.new).await?;
    // Leaves out the requests and plans that the store had already, because the file can contain
    // one request or plan several times.
    let Counts { executions, events, records, blobs, .. } = imported.known;
    let mut text = format!("imported {}", describe_counts(&imported.new));
    if executions + records + blobs > 0 {
        let events = count_noun(events, "event");
        let executions = format!("{} ({events})", count_noun(executions, "execution"));
        let (records, blobs) = (count_noun(records, "record"), count_noun(blobs, "blob"));
        let _ = write!(text, "\nthe store had {executions}, {records} and {blobs} already");
    }
    let known = json!({
        "executions": executions, "events": events, "records": records, "blobs": blobs,
    });
    let document = json!({ "file": file, "new": imported.new, "known": known });
    app.screen.print_result(&document, &text)
}

pub(crate) async fn export_history(app: &App, args: ExportArgs) -> Result<ExitStatus, Failure> {
    let file = match (args.id, args.output) {
        (Some(_), Some(_)) => return Err(Failure::usage("name one file only")),
        (file, output) => file.map(PathBuf::from).or(output),
    };
    let store = open_existing_store(app, "export --since").await?;
    let since = parse_since(&*store, args.since.as_deref().unwrap_or_default()).await?;
    let line = ProgressLine::new(&app.screen);
    let show = |progress| line.show(|| describe_progress(progress));
    let export = async {
        if let Some(file) = &file {
            backup::export_to_file(&*store, since, file, &show).await
        } else {
            let folder = create_spool_folder()?;
            let spool = folder.path().join("executions.list");
            let mut out = io::stdout();
            backup::export_to_writer(&*store, since, &mut out, &spool, &show).await
        }
    };
    let exported = tokio::select! {
        exported = export => Some(exported),
        () = signals::await_interrupt() => None,
    };
    line.clear();
    match exported {
        None => app.detach("stopped; the export is incomplete"),
        // A program such as `head` has closed the pipe after it read enough, which is not a
        // failure.
        Some(Err(BackupError::File { err, .. }))
            if file.is_none() && err.kind() == io::ErrorKind::BrokenPipe =>
        {
            Ok(ExitStatus::Done)
        }
        Some(exported) => {
            let report = exported.map_err(to_failure)?;
            record_action(app, &*store, AuditAction::EXPORT, &report.counts).await?;
            print_report(app, &report, "exported", file.as_deref())
        }
    }
}

/// Creates a folder for the list of executions. Other users share the folder of temporary files, so
/// the new folder has a random name, and only this user can open it.
fn create_spool_folder() -> Result<TempDir, BackupError> {
    use std::os::unix::fs::PermissionsExt;
    let only_owner = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(only_owner).tempdir();
    folder.map_err(|err| BackupError::File {
        path: std::env::temp_dir().display().to_string(),
        action: "written",
        err,
    })
}

async fn record_action(
    app: &App,
    store: &dyn Store,
    action: AuditAction,
    counts: &Counts,
) -> Result<(), Failure> {
    let actor = Arc::new(Actor::user(app.environment.user.as_deref()));
    let Counts { executions, plans, requests, .. } = counts;
    let detail = json!({ "executions": executions, "plans": plans, "requests": requests });
    let (now, target) = (store.shared_time().await?, AuditTarget::default());
    record_entry(store, AuditEntry::new(now, actor, action, target, detail)).await;
    Ok(())
}

async fn parse_since(store: &dyn Store, text: &str) -> Result<Timestamp, Failure> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let age = age::parse(text).ok().and_then(|age| TimeDelta::from_std(age).ok());
    let age = age.ok_or_else(|| {
        Failure::usage(format!(
            "`--since {text}` is not a time: write one such as `2026-01-02T03:04:05Z`, or an age \
             such as `7d`"
        ))
    })?;
    let since = store.shared_time().await?.checked_sub_signed(age);
    Ok(since.unwrap_or(Timestamp::MIN_UTC))
}

async fn open_existing_store(app: &App, command: &str) -> Result<Arc<dyn Store>, Failure> {
    refuse_server_flag(app, command)?;
    if let Some(path) = missing_store(app.setup()) {
        let why = format!("there is no store at `{}`", path.display());
        return Err(Failure::new("NOT_FOUND", why));
    }
    let store = open_store_for_copies(app.setup()).await?;
    store.check_restored().await?;
    Ok(store)
}

/// Refuses the store in memory, because its content is lost when the command ends.
pub(super) fn refuse_memory(app: &App, command: &str) -> Result<(), Failure> {
    if store_kind(app) != "memory" {
        return Ok(());
    }
    let why = format!("`faber {command}` needs a store that stays: name one with `--store`");
    Err(Failure::usage(why))
}

fn store_kind(app: &App) -> &str {
    let url = &app.config.store.value;
    let scheme = url.split_once(':').map_or(url.as_str(), |(scheme, _)| scheme);
    scheme.trim_end_matches("+srv")
}

fn print_report(
    app: &App,
    report: &Report,
    verb: &str,
    file: Option<&Path>,
) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    if report.unreadable > 0 {
        let rows = count_noun(report.unreadable, "row");
        let text = format!("warning: {rows} could not be read and are left out");
        screen.say(&screen.err.yellow(text));
    }
    if !report.damaged.is_empty() {
        let text = format!("warning: left out because of damage: {}", report.damaged);
        screen.say(&screen.err.yellow(plain::safe_block(&text)));
    }
    let text = format!("{verb} {}", describe_counts(&report.counts));
    match file {
        // Standard output contains the entries, so the summary goes to standard error.
        None => screen.hint(&text),
        Some(file) => {
            let mut document = json!(report);
            document["file"] = json!(file);
            document["store"] = json!(app.config.store_name());
            let text = format!("{text}\nfrom {}\nto {}", app.config.store_name(), file.display());
            screen.print_result(&document, &plain::safe_block(&text))?;
        }
    }
    Ok(if report.is_incomplete() { ExitStatus::Failed } else { ExitStatus::Done })
}

fn describe_counts(counts: &Counts) -> String {
    let events = count_noun(counts.events, "event");
    let mut parts = vec![
        count_noun(counts.requests, "request"),
        count_noun(counts.plans, "plan"),
        format!("{} ({events})", count_noun(counts.executions, "execution")),
    ];
    for (n, name) in [
        (counts.commands, "command"),
        (counts.records, "record"),
        (counts.blobs, "blob"),
        (counts.audit_entries, "recorded action"),
    ] {
        if n > 0 {
            parts.push(count_noun(n, name));
        }
    }
    parts.join(", ")
}

fn to_failure(err: BackupError) -> Failure {
    let message = err.to_string();
    match err {
        BackupError::Store(err) => err.into(),
        BackupError::File { action: "written", .. } => Failure::new("INTERNAL", message),
        BackupError::File { .. }
        | BackupError::Occupied { .. }
        | BackupError::NotBackup { .. }
        | BackupError::Damaged { .. }
        | BackupError::TooNew { .. } => Failure::usage(message),
        BackupError::Different(list) => {
            Failure::new("CONFLICT", message).with("different", json!(list))
        }
        BackupError::NotEmpty { .. }
        | BackupError::OtherRestore { .. }
        | BackupError::Changed(_) => Failure::new("CONFLICT", message),
    }
}

fn describe_progress(Progress { stage, done, total }: Progress) -> String {
    let stage_name = stage.as_str();
    match (stage, total) {
        (Stage::Checking | Stage::Comparing | Stage::Writing, Some(total)) if total > 0 => {
            let percent = u128::from(done) * 100 / u128::from(total);
            format!("{stage_name}: {percent} %")
        }
        (_, Some(total)) => format!("{stage_name}: {done} of {total}"),
        (_, None) => format!("{stage_name}: {done}"),
    }
}

#[cfg(test)]
mod tests {
    use shared::store::{StoreError, memory::Memory};

    use super::*;

    #[test]
    fn only_this_user_opens_the_folder_of_an_export() {
        use std::os::unix::fs::PermissionsExt;
        let [one, other] = [(); 2].map(|()| create_spool_folder().unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn a_wrong_file_or_a_full_store_ends_with_status_2() {
        let path = || "f".to_owned();
        for (err, code, status) in [
            (BackupError::NotBackup { path: path() }, "INVALID_ARGUMENT", 2),
            (BackupError::Damaged { path: path(), why: path() }, "INVALID_ARGUMENT", 2),
            (
                BackupError::TooNew { path: path(), found: 2, newest_known: 1 },
                "INVALID_ARGUMENT",
                2,
            ),
            (BackupError::NotEmpty { what: "plans" }, "CONFLICT", 2),
            (BackupError::Changed(path()), "CONFLICT", 2),
            (StoreError::Incomplete { file: path() }.into(), "STORE_UNAVAILABLE", 3),
        ] {
            let failure = to_failure(err);
            assert_eq!((failure.code.as_str(), failure.status()), (code, status), "{failure:?}");
        }
    }

    #[test]
    fn progress_is_a_number_of_objects_or_a_share_of_the_file() {
        let line = |stage, done, total| describe_progress(Progress { stage, done, total });
        assert_eq!(line(Stage::Listing, 7, None), "listing executions: 7");
        assert_eq!(line(Stage::Executions, 7, Some(9)), "reading executions: 7 of 9");
        assert_eq!(line(Stage::Writing, u64::MAX, Some(u64::MAX)), "writing: 100 %");
        assert_eq!(line(Stage::Writing, 0, Some(0)), "writing: 0 of 0");
    }

    #[tokio::test]
    async fn an_export_begins_at_a_time_or_at_an_age() {
        let store = Memory::new();
        let time = parse_since(&store, "2026-01-02T03:04:05Z").await.unwrap();
        assert_eq!(time.to_rfc3339(), "2026-01-02T03:04:05+00:00");
        let age = store.shared_time().await.unwrap() - parse_since(&store, "2h").await.unwrap();
        assert!((age - TimeDelta::hours(2)).abs() < TimeDelta::minutes(1), "{age}");
        assert_eq!(parse_since(&store, "yesterday").await.unwrap_err().status(), 2);
    }
}
