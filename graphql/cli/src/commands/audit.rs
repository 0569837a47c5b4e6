use client::{
    failure::Failure,
    page::PageRequest,
    types::AuditEntry,
    view::{
        format::{clip_text, format_second, format_step_name},
        paint::Paint,
        plain,
    },
};
use serde_json::{Value, json};

use super::{list::show_page, time_range};
use crate::{ExitStatus, args::AuditArgs, session::Session};

const HEADINGS: &[&str] = &["TIME", "ACTOR", "ACTION", "TARGET", "DETAIL"];
const MAX_DETAIL_COLUMNS: usize = 60;
const ACTOR_KINDS: [&str; 4] = ["token", "user", "local", "faber"];

pub(crate) async fn list_audit(
    session: &Session<'_>,
    args: AuditArgs,
) -> Result<ExitStatus, Failure> {
    let AuditArgs { actor, action, since, until, execution, part } = args;
    let (kind, name) = actor.as_deref().map_or((None, None), parse_actor);
    let filter = json!({
        "actorKind": kind, "actorName": name, "action": action, "executionId": execution,
        "from": time_range::parse_option("--since", since.as_deref())?,
        "to": time_range::parse_option("--until", until.as_deref())?,
    });
    let fields = AuditEntry::FIELDS.to_owned();
    let page = PageRequest { kind: "audit", filter, first: part.first, after: part.after, fields };
    show_page(session, page, HEADINGS, entry_row).await
}

/// Splits `token:ops`, `token` or `ops` into the kind, as the API writes it, and the name.
fn parse_actor(text: &str) -> (Option<String>, Option<String>) {
    let (kind, name) = match text.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (text, None),
    };
    if ACTOR_KINDS.contains(&kind) {
        return (Some(kind.to_uppercase()), name.map(str::to_owned));
    }
    (None, Some(text.to_owned()))
}

fn entry_row(entry: &AuditEntry, _: Paint) -> Vec<String> {
    vec![
        format_second(&entry.at),
        entry.actor.to_string(),
        entry.action.to_string(),
        describe_target(entry),
        clip_text(&describe_detail(&entry.detail), MAX_DETAIL_COLUMNS),
    ]
}

/// Returns the most specific id of an action, such as that of the execution and not that of the
/// plan, with the step and the name. `--json` prints all ids.
fn describe_target(entry: &AuditEntry) -> String {
    let ids = [&entry.execution_id, &entry.plan_id, &entry.request_id];
    let id = ids.into_iter().flatten().next().map(ToString::to_string);
    let index = entry.detail["index"].as_u64();
    let step = entry.step_id.as_ref().map(|step| format_step_name(&step.to_string(), index));
    let name = entry.name.as_ref().map(ToString::to_string);
    let parts: Vec<String> = [id, step, name].into_iter().flatten().collect();
    parts.join(" ")
}

fn describe_detail(detail: &Value) -> String {
    let fields = detail.as_object().into_iter().flatten().filter(|(name, _)| *name != "index");
    let describe = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {value}")
    };
    plain::safe_line(&fields.map(describe).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::screen::draw_table;

    #[test]
    fn a_row_names_the_actor_and_the_object() {
        let entries = json!([
            { "at": "2026-01-01T00:00:00.000001Z", "action": "reject",
              "actor": { "kind": "TOKEN", "name": "ops", "client": "Inspector" },
              "executionId": "exec_1_aaaaaaaaa", "stepId": "pay", "detail": { "index": 3 } },
            { "at": "2026-01-01T00:00:01Z", "action": "plan", "requestId": "req_1_aaaaaaaaa",
              "actor": { "kind": "USER", "name": "ada" }, "planId": "plan_1_aaaaaaaaa",
              "detail": { "version": 1, "planner": "offline" } },
            { "at": "2026-01-01T00:00:02Z", "action": "set_context", "name": "sh\u{1b}op",
              "actor": { "kind": "LOCAL" }, "detail": null },
            { "at": "2026-01-01T00:00:03Z", "action": "prune", "actor": { "kind": "FABER" },
              "detail": { "executions": 7, "plans": 2, "requests": 2 } },
        ]);
        let entries: Vec<AuditEntry> = serde_json::from_value(entries).unwrap();
        let paint = Paint::new(false);
        let rows: Vec<_> = entries.iter().map(|entry| entry_row(entry, paint)).collect();
        expect![[r"
            TIME                 ACTOR                        ACTION       TARGET                   DETAIL
            2026-01-01 00:00:00  token:ops through Inspector  reject       exec_1_aaaaaaaaa pay[3]
            2026-01-01 00:00:01  user:ada                     plan         plan_1_aaaaaaaaa         version 1, planner offline
            2026-01-01 00:00:02  local                        set_context  sh␛op
            2026-01-01 00:00:03  faber                        prune                                 executions 7, plans 2, requests 2"]].assert_eq(&draw_table(HEADINGS, &rows, Some(140), paint));
    }

    #[test]
    fn an_actor_is_a_kind_or_a_name_or_both() {
        for (text, kind, name) in [
            ("ops", None, Some("ops")),
            ("faber", Some("FABER"), None),
            ("token", Some("TOKEN"), None),
            ("user:faber", Some("USER"), Some("faber")),
            ("token:a:b", Some("TOKEN"), Some("a:b")),
            ("a:b", None, Some("a:b")),
        ] {
            let expected = (kind.map(str::to_owned), name.map(str::to_owned));
            assert_eq!(parse_actor(text), expected, "{text}");
        }
    }
}
