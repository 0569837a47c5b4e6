//! `faber rekey` encrypts old values with the active key. It opens the store itself.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use client::{
    failure::Failure,
    view::{format::count_noun, plain},
};
use engine::{
    record_entry,
    store::{self, LeftValues, RekeyProgress, RekeyReport},
};
use serde_json::{Value, json};
use shared::{
    actor::Actor,
    store::{AuditAction, AuditEntry, AuditTarget, Store},
};

use super::{backup::refuse_memory, progress_line::ProgressLine, serve::refuse_server_flag};
use crate::{
    App, ExitStatus,
    local_engine::{missing_store, open_keys},
    screen::Screen,
    signals,
};

const REPORT_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn rekey(app: &App) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "rekey")?;
    refuse_memory(app, "rekey")?;
    if let Some(path) = missing_store(app.setup()) {
        let why = format!("there is no store at `{}`", path.display());
        return Err(Failure::new("NOT_FOUND", why));
    }
    let keys = open_keys(app.setup()).await?;
    let keys =
        keys.ok_or_else(|| Failure::usage("`faber rekey` needs the setting `encryption`"))?;
    let display = ProgressDisplay::new(&app.screen);
    let show = |progress| display.show(progress);
    let rekeyed = tokio::select! {
        rekeyed = store::rekey(&app.config.store.value, keys, &show) => Some(rekeyed),
        () = signals::await_interrupt() => None,
    };
    display.line.clear();
    let Some(rekeyed) = rekeyed else {
        return app.detach("stopped; the same command encrypts the rest");
    };
    let (store, report) = rekeyed?;
    record_action(app, &*store, &report).await?;
    print_report(&app.screen, &report)
}

async fn record_action(app: &App, store: &dyn Store, report: &RekeyReport) -> Result<(), Failure> {
    let actor = Arc::new(Actor::user(app.environment.user.as_deref()));
    let values = report.clear + count_all(&report.values);
    let detail = json!({ "key": report.key, "documents": report.documents, "values": values });
    let (now, target) = (store.shared_time().await?, AuditTarget::default());
    record_entry(store, AuditEntry::new(now, actor, AuditAction::REKEY, target, detail)).await;
    Ok(())
}

fn count_all(values: &BTreeMap<String, u64>) -> u64 {
    values.values().sum()
}

fn print_report(screen: &Screen, report: &RekeyReport) -> Result<ExitStatus, Failure> {
    if let Some(warning) = describe_left(&report.left) {
        screen.say(&screen.err.yellow(plain::safe_block(&warning)));
    }
    screen.print_result(&report_document(report), &plain::safe_block(&describe(report)))?;
    Ok(if report.left.is_empty() { ExitStatus::Done } else { ExitStatus::Failed })
}

fn report_document(report: &RekeyReport) -> Value {
    let RekeyReport { key, documents, clear, values, left } = report;
    json!({
        "key": key,
        "documents": documents,
        "encrypted": { "clear": clear, "values": values },
        "left": { "clear": left.clear, "values": left.values, "damaged": left.damaged },
    })
}

fn describe(report: &RekeyReport) -> String {
    let RekeyReport { key, documents, clear, values, left } = report;
    let count = count_noun(clear + count_all(values), "value");
    let places = count_noun(*documents, "document");
    let mut text = format!("encrypted {count} in {places} with the key `{key}`");
    for (old, n) in values {
        let _ = write!(text, "\n  {} had the key `{old}`", count_noun(*n, "value"));
    }
    if *clear > 0 {
        let _ = write!(text, "\n  {} had no key", count_noun(*clear, "value"));
    }
    if left.is_empty() {
        text.push_str("\nno value has another key: the other keys can be removed");
    }
    text
}

fn describe_left(left: &LeftValues) -> Option<String> {
    let mut lines = Vec::new();
    for (key, n) in &left.values {
        lines.push(format!(
            "warning: the key `{key}` is still needed by {}",
            count_noun(*n, "value")
        ));
    }
    if left.clear > 0 {
        lines.push(format!("warning: still clear: {}", count_noun(left.clear, "value")));
    }
    if left.damaged > 0 {
        let damaged = count_noun(left.damaged, "damaged value");
        lines.push(format!("warning: {damaged} cannot be decrypted"));
    }
    (!lines.is_empty()).then(|| {
        lines.push(
            "check that `encryption` has all keys and that every node has the same active key, and \
             run `faber rekey` again"
                .to_owned(),
        );
        lines.join("\n")
    })
}

struct ProgressDisplay<'a> {
    screen: &'a Screen,
    line: ProgressLine,
    reported_at: Mutex<Instant>,
}

impl<'a> ProgressDisplay<'a> {
    fn new(screen: &'a Screen) -> Self {
        let reported_at = Mutex::new(Instant::now());
        Self { screen, line: ProgressLine::new(screen), reported_at }
    }

    fn show(&self, progress: RekeyProgress) {
        self.line.show(|| describe_progress(progress));
        let mut reported_at = self.reported_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.screen.is_live && reported_at.elapsed() >= REPORT_INTERVAL {
            *reported_at = Instant::now();
            self.screen.hint(&describe_progress(progress));
        }
    }
}

fn describe_progress(RekeyProgress { is_check, part, done, total }: RekeyProgress) -> String {
    let stage = if is_check { "checking" } else { "encrypting" };
    match total {
        // The total is an estimate, and the store may grow.
        Some(total) => format!("{stage} {part}: {done} of {}", total.max(done)),
        None => format!("{stage} {part}: {done}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_the_old_keys_and_what_is_left() {
        let report = RekeyReport {
            key: "second".to_owned(),
            documents: 2,
            clear: 1,
            values: [("first".to_owned(), 3)].into(),
            left: LeftValues::default(),
        };
        let expected = "encrypted 4 values in 2 documents with the key `second`\n  3 values had the \
                        key `first`\n  1 value had no key\nno value has another key: the other keys \
                        can be removed";
        assert_eq!(describe(&report), expected);
        assert_eq!(describe_left(&report.left), None);
        let left = LeftValues { clear: 2, values: [("first".to_owned(), 1)].into(), damaged: 1 };
        let warning = describe_left(&left).unwrap();
        let lines: Vec<_> = warning.lines().collect();
        assert_eq!(lines[0], "warning: the key `first` is still needed by 1 value");
        assert_eq!(lines[1], "warning: still clear: 2 values");
        assert_eq!(lines[2], "warning: 1 damaged value cannot be decrypted");
        assert!(lines[3].contains("run `faber rekey` again"), "{warning}");
        let report = RekeyReport { left, ..report };
        assert!(!describe(&report).contains("can be removed"));
        assert_eq!(report_document(&report)["left"]["values"]["first"], 1);
    }

    #[test]
    fn progress_names_the_part_and_the_number_of_documents() {
        let progress = |is_check, total| RekeyProgress { is_check, part: "events", done: 7, total };
        assert_eq!(describe_progress(progress(false, Some(9))), "encrypting events: 7 of 9");
        assert_eq!(describe_progress(progress(true, Some(3))), "checking events: 7 of 7");
        assert_eq!(describe_progress(progress(true, None)), "checking events: 7");
    }
}
