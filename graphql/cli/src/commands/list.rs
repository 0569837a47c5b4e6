use std::fmt::Write as _;

use client::{
    failure::Failure,
    page::PageRequest,
    types::{ExecutionStatus, Finding, Plan, Pruned, Request, Severity},
    view::{
        format::{
            clip_text, count_noun, first_line, format_duration, format_labels, format_second,
        },
        outcome::{execution_duration_ms, paint_state},
        paint::Paint,
    },
};
use engine::age;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{failed_tool::find_failed_tool, plan::list_saved, time_range, workers::list_workers};
use crate::{
    ExitStatus,
    args::{CreatedRange, DetailFilters, List, api_name},
    session::Session,
};

pub(crate) async fn list(session: &Session<'_>, subcommand: List) -> Result<ExitStatus, Failure> {
    let is_json = session.screen.json;
    match subcommand {
        List::Saved => list_saved(session).await,
        List::Workers => list_workers(session).await,
        List::Requests { search, state, needs_person, since: CreatedRange { from, to }, part } => {
            let state = state.map(|state| api_name(&state));
            let filter = json!({
                "search": search, "state": state,
                "from": time_range::parse_option("--from", from.as_deref())?,
                "to": time_range::parse_option("--to", to.as_deref())?,
                "needsPerson": needs_person.then_some(true),
            });
            let mut fields = Request::VALUES.to_owned();
            if !is_json {
                // Without `parts: false`, `last: 1` could return a child execution instead of its
                // parent.
                let row = Finding::ROW_FIELDS;
                let _ = write!(
                    fields,
                    " executions(last: 1, parts: false) {{ state startedAt createdAt finishedAt \
                     findings(first: 1) {{ {row} }} }} findings(first: 1) {{ {row} }}"
                );
            }
            let page = PageRequest {
                kind: "requests",
                filter,
                first: part.first,
                after: part.after,
                fields,
            };
            show_page(session, page, REQUEST_HEADINGS, request_row).await
        }
        List::Plans { search, request, part } => {
            let filter = json!({ "search": search, "requestId": request });
            let fields = if is_json { Plan::fields() } else { Plan::VALUES.to_owned() };
            let page =
                PageRequest { kind: "plans", filter, first: part.first, after: part.after, fields };
            show_page(session, page, PLAN_HEADINGS, plan_row).await
        }
        List::Executions { state, request, plan, tool, needs_person, details, since, part } => {
            let DetailFilters { labels, error, failed_tool, error_text } = details;
            let CreatedRange { from, to } = since;
            let failed_tool = find_failed_tool(session, failed_tool).await?;
            let states: Vec<String> = state.iter().map(api_name).collect();
            let filter = json!({
                "state": (!states.is_empty()).then_some(states), "requestId": request,
                "planId": plan, "toolName": tool,
                "from": time_range::parse_option("--from", from.as_deref())?,
                "to": time_range::parse_option("--to", to.as_deref())?,
                "needsPerson": needs_person.then_some(true),
                "labels": (!labels.is_empty()).then(|| label_filter(&labels)),
                "errorCode": error, "failedTool": failed_tool, "errorText": error_text,
            });
            let row = Finding::ROW_FIELDS;
            let fields = if is_json {
                ExecutionStatus::fields()
            } else {
                format!("{EXECUTION_FIELDS} findings(first: 1) {{ {row} }}")
            };
            let page = PageRequest {
                kind: "executions",
                filter,
                first: part.first,
                after: part.after,
                fields,
            };
            show_page(session, page, EXECUTION_HEADINGS, execution_row).await
        }
    }
}

pub(super) fn label_filter(labels: &[String]) -> Value {
    let pairs = labels.iter().map(|label| match label.split_once('=') {
        Some((key, value)) => (key.to_owned(), json!(value)),
        None => (label.clone(), Value::Null),
    });
    Value::Object(pairs.collect())
}

/// The heading of a column that is left out if no object on the page has labels.
const LABELS_HEADING: &str = "LABELS";
const REQUEST_HEADINGS: &[&str] =
    &["REQUEST", "STATE", "CREATED", "TOOK", LABELS_HEADING, "WHY", "QUERY"];
const PLAN_HEADINGS: &[&str] = &["PLAN", "VERSION", "STEPS", "CREATED", "QUERY"];
const EXECUTION_HEADINGS: &[&str] =
    &["EXECUTION", "STATE", "STEPS", "CREATED", "TOOK", LABELS_HEADING, "WHY", "PLAN"];
const EXECUTION_FIELDS: &str =
    "executionId planId state createdAt startedAt finishedAt total successful labels";
const MAX_REASON_COLUMNS: usize = 72;
const MAX_LABELS_COLUMNS: usize = 40;

pub(super) async fn show_page<T: DeserializeOwned>(
    session: &Session<'_>,
    page: PageRequest,
    headings: &[&str],
    row: impl Fn(&T, Paint) -> Vec<String>,
) -> Result<ExitStatus, Failure> {
    let (nodes, next) = page.load(&session.client).await?;
    let has_labels = |node: &Value| node["labels"].as_object().is_some_and(|all| !all.is_empty());
    let unused = headings.iter().position(|heading| *heading == LABELS_HEADING);
    let unused = unused.filter(|_| !nodes.iter().any(has_labels));
    let headings = remove_column(headings.to_vec(), unused);
    let row = |item: &T, paint: Paint| remove_column(row(item, paint), unused);
    let status = session.screen.print_list(&Value::Array(nodes), &headings, row)?;
    if let Some(cursor) = next {
        session.screen.hint(&format!("there are more: --after {cursor}"));
    }
    Ok(status)
}

fn remove_column<T>(mut cells: Vec<T>, index: Option<usize>) -> Vec<T> {
    if let Some(index) = index {
        cells.remove(index);
    }
    cells
}

pub(crate) async fn prune(session: &Session<'_>, older_than: &str) -> Result<ExitStatus, Failure> {
    age::parse(older_than).map_err(Failure::usage)?;
    let arguments = [("olderThan: String!", json!(older_than))];
    let mut removed = Pruned::default();
    loop {
        let some: Pruned = session.client.mutate("prune", &arguments, Pruned::FIELDS).await?;
        removed.executions += some.executions;
        removed.plans += some.plans;
        removed.requests += some.requests;
        if !some.more {
            break;
        }
    }
    let executions = count_noun(removed.executions, "execution");
    let (plans, requests) =
        (count_noun(removed.plans, "plan"), count_noun(removed.requests, "request"));
    session
        .screen
        .print_result(&json!(removed), &format!("removed {executions}, {plans}, {requests}"))
}

fn request_row(request: &Request, paint: Paint) -> Vec<String> {
    let newest = request.executions.last();
    let state = match newest {
        Some(execution) => paint_state(execution.state.as_str(), paint),
        None if !request.findings.is_empty() => paint_state("PLANNING_FAILED", paint),
        None => String::new(),
    };
    let reason = match newest {
        Some(execution) => describe_reason(execution),
        None => request.findings.first().map(|finding| first_line(&finding.message)),
    };
    vec![
        request.request_id.to_string(),
        state,
        request.created_at.as_deref().map(format_second).unwrap_or_default(),
        newest.and_then(execution_duration_ms).map(format_duration).unwrap_or_default(),
        clip_text(&format_labels(&request.labels), MAX_LABELS_COLUMNS),
        clip_text(&reason.unwrap_or_default(), MAX_REASON_COLUMNS),
        first_line(&request.query),
    ]
}

/// Returns the message of the most severe finding about an execution. Leaves out notes about a
/// finished execution.
fn describe_reason(execution: &ExecutionStatus) -> Option<String> {
    let finding = execution.findings.first()?;
    let is_minor = finding.severity == Severity::Info && execution.state.is_finished();
    (!is_minor).then(|| first_line(&finding.message))
}

fn plan_row(plan: &Plan, _: Paint) -> Vec<String> {
    vec![
        plan.plan_id.to_string(),
        plan.version.to_string(),
        plan.execution_order.len().to_string(),
        plan.created_at.as_deref().map(format_second).unwrap_or_default(),
        first_line(&plan.query),
    ]
}

fn execution_row(execution: &ExecutionStatus, paint: Paint) -> Vec<String> {
    let created = execution.created_at.map(|at| at.format("%Y-%m-%d %H:%M:%S").to_string());
    vec![
        execution.execution_id.to_string(),
        paint_state(execution.state.as_str(), paint),
        format!("{}/{}", execution.successful, execution.total),
        created.unwrap_or_default(),
        execution_duration_ms(execution).map(format_duration).unwrap_or_default(),
        clip_text(&format_labels(&execution.labels), MAX_LABELS_COLUMNS),
        clip_text(&describe_reason(execution).unwrap_or_default(), MAX_REASON_COLUMNS),
        execution.plan_id.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::screen::draw_table;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check<T: DeserializeOwned>(
        items: Value,
        headings: &[&str],
        row: fn(&T, Paint) -> Vec<String>,
        expected: Expect,
    ) {
        let paint = Paint::new(false);
        let items: Vec<T> = serde_json::from_value(items).unwrap();
        let rows: Vec<_> = items.iter().map(|item| row(item, paint)).collect();
        assert!(rows.iter().all(|row| row.len() == headings.len()), "one cell for each heading");
        expected.assert_eq(&draw_table(headings, &rows, Some(120), paint));
    }

    #[test]
    fn a_list_fits_the_width_of_the_window() {
        let times = json!({ "startedAt": "2026-01-01T00:00:00Z", "createdAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:02.5Z" });
        let mut failed = times.clone();
        failed["state"] = json!("FAILED");
        failed["findings"] =
            json!([{ "severity": "ERROR", "message": "`export` failed: no code" }]);
        check(
            json!([
                { "requestId": "req_1_aaaaaaaaa", "createdAt": "2026-01-01T00:00:00.123456Z",
                  "labels": { "team": "shop" }, "query": "pay the \u{1b}[2J bill\nnow",
                  "executions": [failed] },
                { "requestId": "req_1_bbbbbbbbb", "createdAt": "2026-01-02T00:00:00Z",
                  "query": "a query that is far too long for the window that it is in",
                  "executions": [] },
                { "requestId": "req_1_ccccccccc", "createdAt": "2026-01-02T00:00:00Z",
                  "query": "paint the fence", "executions": [],
                  "findings": [{ "severity": "ERROR", "message": "no tool fits" }] },
            ]),
            REQUEST_HEADINGS,
            request_row,
            expect![[r"
                REQUEST          STATE            CREATED              TOOK   LABELS     WHY                       QUERY
                req_1_aaaaaaaaa  FAILED           2026-01-01 00:00:00  2.5 s  team=shop  `export` failed: no code  pay the ␛[2J bill
                req_1_bbbbbbbbb                   2026-01-02 00:00:00                                              a query that is far …
                req_1_ccccccccc  PLANNING_FAILED  2026-01-02 00:00:00                    no tool fits              paint the fence"]],
        );
        let mut execution = times;
        execution["executionId"] = json!("exec_1_aaaaaaaaa");
        execution["state"] = json!("COMPLETED");
        (execution["successful"], execution["total"]) = (json!(3), json!(4));
        execution["planId"] = json!("plan_1_aaaaaaaaa");
        execution["labels"] = json!({ "env": "test", "team": "shop" });
        for (name, _) in execution.as_object().unwrap() {
            assert!(
                EXECUTION_FIELDS.split(' ').any(|field| field == name),
                "`EXECUTION_FIELDS` lacks `{name}`"
            );
        }
        check(
            json!([execution]),
            EXECUTION_HEADINGS,
            execution_row,
            expect![[r"
                EXECUTION         STATE      STEPS  CREATED              TOOK   LABELS              WHY  PLAN
                exec_1_aaaaaaaaa  COMPLETED  3/4    2026-01-01 00:00:00  2.5 s  env=test team=shop       plan_1_aaaaaaaaa"]],
        );
        let plan = json!({ "planId": "plan_1_aaaaaaaaa", "version": 2, "executionOrder": ["a"],
            "createdAt": "2026-01-01T00:00:00Z", "query": "pay" });
        check(
            json!([plan]),
            PLAN_HEADINGS,
            plan_row,
            expect![[r"
            PLAN              VERSION  STEPS  CREATED              QUERY
            plan_1_aaaaaaaaa  2        1      2026-01-01 00:00:00  pay"]],
        );
    }
}
