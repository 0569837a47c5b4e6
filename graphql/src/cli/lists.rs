//! Lists as tables, and as arrays.

use serde_json::{Map, Value, json};

use super::{
    Ending, Session,
    account::Account,
    args::{List, Part, Since, api_name},
    client::Client,
    failure::Failure,
    house::{House, Need},
    inspect::state,
    paint::Paint,
    plain,
    progress::duration,
    render, saved,
    screen::Screen,
    shape::Shape,
    table::table,
};

/// The most characters of a query or a description in a table, where the window has room.
const TEXT: usize = 300;

/// One kind of list: where it comes from and how it is shown.
struct Kind {
    field: &'static str,
    filter: &'static str,
    object: &'static str,
    /// Selects what `--json` prints of each.
    whole: fn(&Shape) -> String,
    headings: &'static [&'static str],
    /// What people are shown besides, of other objects.
    more: &'static str,
    row: fn(&Value, Paint) -> Vec<String>,
}

const REQUESTS: Kind = Kind {
    field: "requests",
    filter: "RequestFilter",
    object: "Request",
    whole: |shape| shape.scalars("Request"),
    headings: &["REQUEST", "STATE", "CREATED", "TOOK", "QUERY"],
    // Parts of what was asked for are newer, and there may be many.
    more: "executions(last: 1, parts: false) { state startedAt finishedAt }",
    row: |it, paint| {
        let newest = render::list(&it["executions"]).last().unwrap_or(&Value::Null);
        let state = state(&text(newest, "state"), paint);
        vec![text(it, "requestId"), state, moment(it), took(newest), query(it)]
    },
};

const PLANS: Kind = Kind {
    field: "plans",
    filter: "PlanFilter",
    object: "Plan",
    whole: Shape::plan,
    headings: &["PLAN", "VERSION", "STEPS", "CREATED", "QUERY"],
    more: "",
    row: |it, _| {
        let steps = it["executionOrder"].as_array().map_or(0, Vec::len);
        let version = it["version"].to_string();
        vec![text(it, "planId"), version, steps.to_string(), moment(it), query(it)]
    },
};

const EXECUTIONS: Kind = Kind {
    field: "executions",
    filter: "ExecutionFilter",
    object: "Execution",
    whole: Shape::execution,
    headings: &["EXECUTION", "STATE", "STEPS", "CREATED", "TOOK", "PLAN"],
    more: "",
    row: |it, paint| {
        let steps = format!("{}/{}", it["successful"], it["total"]);
        let state = state(&text(it, "state"), paint);
        vec![text(it, "executionId"), state, steps, moment(it), took(it), text(it, "planId")]
    },
};

/// Lists requests, plans, executions or saved plans.
pub(super) async fn list(session: &Session, what: List) -> Result<Ending, Failure> {
    let (kind, filter, part) = match what {
        List::Saved => return saved::list(session).await,
        List::Requests { search, state, since, part } => {
            let mut filter = filter([("search", search)], Some(&since));
            filter.extend(state.map(|it| ("state".to_owned(), json!(api_name(&it)))));
            (REQUESTS, filter, part)
        }
        List::Plans { search, request, part } => {
            (PLANS, filter([("search", search), ("requestId", request)], None), part)
        }
        List::Executions { state, request, plan, tool, since, part } => {
            let said = [("requestId", request), ("planId", plan), ("toolName", tool)];
            let mut filter = filter(said, Some(&since));
            if !state.is_empty() {
                let states: Vec<_> = state.iter().map(api_name).collect();
                filter.insert("state".to_owned(), json!(states));
            }
            (EXECUTIONS, filter, part)
        }
    };
    let house = House::open_existing(session, Need::Store).await?;
    let shown = kind.show(session, house.client(), filter, part).await;
    house.close().await;
    shown.map(|()| Ending::Done)
}

fn filter<const N: usize>(
    said: [(&str, Option<String>); N],
    since: Option<&Since>,
) -> Map<String, Value> {
    let since = since.map(|it| [("from", it.from.clone()), ("to", it.to.clone())]);
    let all = said.into_iter().chain(since.into_iter().flatten());
    all.filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect()
}

impl Kind {
    async fn show(
        &self,
        session: &Session,
        client: &Client,
        filter: Map<String, Value>,
        part: Part,
    ) -> Result<(), Failure> {
        let shape = Shape::of(client).await?;
        let screen = &session.screen;
        let mut fields =
            if screen.json { (self.whole)(&shape) } else { shape.scalars(self.object) };
        if !screen.json && !self.more.is_empty() {
            fields = format!("{} {} }}", fields.trim_end_matches([' ', '}']), self.more);
        }
        let (nodes, more) = self.read(client, &fields, filter, part).await?;
        print(screen, &Value::Array(nodes), self.headings, self.row)?;
        if let Some(cursor) = more {
            screen.say(&screen.err.dim(format!("there are more: --after {cursor}")));
        }
        Ok(())
    }

    /// Reads one page, in pieces that an answer has room for. Returns the cursor of its end if there
    /// is more behind that.
    async fn read(
        &self,
        client: &Client,
        fields: &str,
        filter: Map<String, Value>,
        Part { first, mut after }: Part,
    ) -> Result<(Vec<Value>, Option<String>), Failure> {
        let Self { field, filter: filter_type, .. } = self;
        let query = format!(
            "query($filter: {filter_type}, $first: Int, $after: String) \
             {{ {field}(filter: $filter, first: $first, after: $after) \
             {{ nodes {fields} pageInfo {{ hasNextPage endCursor }} }} }}"
        );
        let mut nodes: Vec<Value> = Vec::new();
        let mut piece = first;
        loop {
            let left = first.saturating_sub(i32::try_from(nodes.len()).unwrap_or(i32::MAX));
            let asked = piece.min(left);
            let variables = json!({ "filter": filter, "first": asked, "after": after });
            let found = match client.field(&query, variables).await {
                Err(err) if err.code == "LIMIT_EXCEEDED" && asked > 1 => {
                    piece = asked / 2;
                    continue;
                }
                found => found?,
            };
            nodes.extend(render::list(&found["nodes"]).cloned());
            let page = &found["pageInfo"];
            let more = page["endCursor"].as_str().filter(|_| page["hasNextPage"] == true);
            after = more.map(str::to_owned);
            if after.is_none() || usize::try_from(first).is_ok_and(|it| nodes.len() >= it) {
                return Ok((nodes, after));
            }
        }
    }
}

/// Returns the newest executions of a request, whole, oldest first.
pub(super) async fn executions_of(
    client: &Client,
    shape: &Shape,
    request: &Value,
    most: i32,
) -> Result<Vec<Value>, Failure> {
    let filter = Map::from_iter([("requestId".to_owned(), request.clone())]);
    let part = Part { first: most, after: None };
    let (mut found, _) = EXECUTIONS.read(client, &shape.execution(), filter, part).await?;
    found.reverse();
    Ok(found)
}

pub(super) fn print(
    screen: &Screen,
    items: &Value,
    headings: &[&str],
    row: impl Fn(&Value, Paint) -> Vec<String>,
) -> Result<(), Failure> {
    if screen.json {
        return screen.print_json(items);
    }
    let rows: Vec<_> = render::list(items).map(|it| row(it, screen.out)).collect();
    if rows.is_empty() {
        screen.say("nothing found");
        return Ok(());
    }
    screen.print(&table(headings, &rows, screen.columns(), screen.out))
}

/// Writes how long an execution took, if it is over.
fn took(execution: &Value) -> String {
    Account::of(execution)
        .took_ms()
        .filter(|_| !execution["finishedAt"].is_null())
        .map(duration)
        .unwrap_or_default()
}

/// Returns a text of an object, plain and in one line.
pub(super) fn text(value: &Value, key: &str) -> String {
    plain::said(&value[key])
}

fn query(value: &Value) -> String {
    first_line(value["query"].as_str().unwrap_or_default())
}

pub(super) fn first_line(text: &str) -> String {
    plain::line(&render::clip(text.lines().next().unwrap_or_default(), TEXT))
}

fn moment(value: &Value) -> String {
    second(&text(value, "createdAt"))
}

/// Writes a moment to the second.
pub(super) fn second(at: &str) -> String {
    at.split('.').next().unwrap_or_default().trim_end_matches('Z').replace('T', " ")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(kind: &Kind, items: Value, columns: usize, expected: Expect) {
        let paint = Paint::new(false);
        let rows: Vec<_> = render::list(&items).map(|it| (kind.row)(it, paint)).collect();
        expected.assert_eq(&table(kind.headings, &rows, Some(columns), paint));
    }

    #[test]
    fn lists_fit_into_the_window() {
        let times = json!({ "startedAt": "2026-01-01T00:00:00Z", "createdAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:02.5Z" });
        let mut failed = times.clone();
        failed["state"] = json!("FAILED");
        check(
            &REQUESTS,
            json!([
                { "requestId": "req_1_aaaaaaaaa", "createdAt": "2026-01-01T00:00:00.123456Z",
                  "query": "pay the \u{1b}[2J bill\nnow", "executions": [failed] },
                { "requestId": "req_1_bbbbbbbbb", "createdAt": "2026-01-02T00:00:00Z",
                  "query": "a query that is far too long for the window that it is in",
                  "executions": [] },
            ]),
            80,
            expect![[r"
                REQUEST          STATE   CREATED              TOOK   QUERY
                req_1_aaaaaaaaa  FAILED  2026-01-01 00:00:00  2.5 s  pay the ␛[2J bill
                req_1_bbbbbbbbb          2026-01-02 00:00:00         a query that is far too lo…"]],
        );
        let mut execution = times;
        execution["executionId"] = json!("exec_1_aaaaaaaaa");
        execution["state"] = json!("COMPLETED");
        (execution["successful"], execution["total"]) = (json!(3), json!(4));
        execution["planId"] = json!("plan_1_aaaaaaaaa");
        check(
            &EXECUTIONS,
            json!([execution]),
            120,
            expect![[r"
            EXECUTION         STATE      STEPS  CREATED              TOOK   PLAN
            exec_1_aaaaaaaaa  COMPLETED  3/4    2026-01-01 00:00:00  2.5 s  plan_1_aaaaaaaaa"]],
        );
        let plan = json!({ "planId": "plan_1_aaaaaaaaa", "version": 2, "executionOrder": ["a"],
            "createdAt": "2026-01-01T00:00:00Z", "query": "pay" });
        check(
            &PLANS,
            json!([plan]),
            120,
            expect![[r"
            PLAN              VERSION  STEPS  CREATED              QUERY
            plan_1_aaaaaaaaa  2        1      2026-01-01 00:00:00  pay"]],
        );
    }
}
