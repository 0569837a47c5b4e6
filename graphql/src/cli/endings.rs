//! How an execution stands when it is no longer followed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Value, json};
use shared::store::Command;

use super::{
    Ending, Session,
    account::{Account, named, quoted},
    client::Client,
    failure::Failure,
    house::House,
    paint::Paint,
    plain,
    render::{clip, list},
    shape::Shape,
};
use crate::agent;

/// The most steps that wait for a person and are told of.
const PERSONS: usize = 20;
/// The most errors that are told of.
const ERRORS: usize = 20;
/// The most characters of what a step was given that failed.
const GIVEN: usize = 200;
/// How many steps are named in one line.
const NAMES: usize = 6;

/// What is asked of an execution that is over.
const OVER: &str = "query($id: ID!) { execution(executionId: $id) { executionId requestId state \
     dryRun startedAt createdAt finishedAt total successful failed skipped cancelled outputs \
     plan { tools { stepId toolName dependsOn retry onError } } \
     executionResults { errors { stepId toolName index code message attempt retryable } } \
     steps { stepId state skipReason warnings resolvedParameters \
     items { index resolvedParameters } compensation { state error { code message } } } \
     retries { executionId state } } }";

/// Shows an execution that is over.
pub(super) async fn over(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Ending, Failure> {
    let screen = &session.screen;
    let document = if screen.json {
        print_document(session, client, id).await?
    } else {
        let document = client.field(OVER, json!({ "id": id })).await?;
        for line in told(&document, screen.err) {
            screen.say(&line);
        }
        match answer(&document) {
            Some(answer) => screen.print(&plain::block(answer))?,
            None => screen.print_json(&document["outputs"])?,
        }
        let hint = plain::said(&document["requestId"]);
        screen.say(&screen.err.dim(format!("everything about it: faber debug {hint}")));
        document
    };
    Ok(if document["state"] == "COMPLETED" { Ending::Done } else { Ending::Failed })
}

/// Returns what an agent answered: what it did on the way there is for `faber debug`.
fn answer(document: &Value) -> Option<&str> {
    let last = document["plan"]["tools"].as_array()?.last()?;
    let tool = last["toolName"].as_str()?.parse().ok()?;
    let step = last["stepId"].as_str()?;
    agent::is_own(&tool).then(|| document["outputs"][step]["answer"].as_str())?
}

/// Tells how an execution ended: what to know of, what went wrong and what can be done, then one
/// line that sums up.
fn told(document: &Value, paint: Paint) -> Vec<String> {
    let account = Account::of(document);
    let mut lines = warnings(document, paint);
    let mut blamed = BTreeSet::new();
    for it in account.errors().take(ERRORS) {
        lines.push(error(&account, it, paint));
        // Many items of one step may have failed.
        let step = it["stepId"].as_str().unwrap_or_default();
        if blamed.insert(step) {
            lines.extend(consequences(&account, step, paint));
        }
    }
    let left = account.errors().count().saturating_sub(ERRORS);
    if left > 0 {
        lines.push(format!("… and {}", plain::count(left, "more error")));
    }
    lines.extend(undone(document, paint));
    let state = document["state"].as_str().unwrap_or_default();
    if matches!(state, "FAILED" | "CANCELLED") && document["dryRun"] != true {
        let id = plain::said(&document["executionId"]);
        lines.push(format!("{} faber retry {id}", paint.cyan("again:")));
    }
    for retry in list(&document["retries"]) {
        let (id, state) = (plain::said(&retry["executionId"]), plain::said(&retry["state"]));
        lines.push(format!("{} {id}  {state}", paint.cyan("retried as:")));
    }
    let name = if document["dryRun"] == true { "DRY RUN" } else { state };
    let shown = match state {
        "COMPLETED" => paint.green(name),
        "FAILED" => paint.red(name),
        _ => paint.yellow(plain::line(name)),
    };
    lines.push(format!("{shown}  {}", account.summary()));
    lines
}

/// Says what steps had to warn of.
fn warnings(document: &Value, paint: Paint) -> Vec<String> {
    let of = |step: &Value| {
        let name = plain::said(&step["stepId"]);
        let all: Vec<String> = list(&step["warnings"])
            .map(|it| format!("{} {name}: {}", paint.yellow("warning:"), plain::said(it)))
            .collect();
        all
    };
    list(&document["steps"]).flat_map(of).collect()
}

/// Tells an error: its cause, what the step was given, why it was not tried again.
fn error(account: &Account<'_>, error: &Value, paint: Paint) -> String {
    let part = |key: &str| plain::said(&error[key]);
    let head = paint.red(format!("error[{}]", part("code")));
    let item = error["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
    let mut text = format!("{head}: {}{item}: {}", part("stepId"), part("message"));
    let mut say = |what: &str, said: &str| {
        let _ = write!(text, "\n   {} {what}: {said}", paint.cyan("="));
    };
    if let Some(given) = account.given(error) {
        let given = clip(&plain::line(&given.to_string()), GIVEN);
        say("given", &format!("{} {given}", part("toolName")));
    }
    if let Some(why) = account.why_not_again(error) {
        say("not tried again", &why);
    }
    text
}

/// Says what did not happen because a step failed.
fn consequences(account: &Account<'_>, step: &str, paint: Paint) -> Vec<String> {
    let (after, others) = account.left_out(step);
    let is_fatal = account.planned(step).is_some_and(|it| it["onError"] == "fail");
    let others = if is_fatal { others } else { Vec::new() };
    let told = [("did not run", after), ("never began", others)].into_iter();
    let told = told.filter(|(_, steps)| !steps.is_empty());
    told.map(|(what, steps)| format!("   {} {what}: {}", paint.cyan("="), named(&steps, NAMES)))
        .collect()
}

/// Says what was undone, and what could not be.
fn undone(document: &Value, paint: Paint) -> Vec<String> {
    let done = list(&document["steps"]).filter(|it| it["state"] == "COMPENSATED");
    let done: Vec<&str> = done.filter_map(|it| it["stepId"].as_str()).collect();
    let mut lines = Vec::new();
    if !done.is_empty() {
        lines.push(format!("{} {}", paint.yellow("undone:"), named(&done, NAMES)));
    }
    for step in list(&document["steps"]) {
        let error = &step["compensation"]["error"];
        if error.is_object() {
            let head = paint.red(format!("not undone[{}]", plain::said(&error["code"])));
            let (name, message) = (plain::said(&step["stepId"]), plain::said(&error["message"]));
            lines.push(format!("{head}: {name}: {message}"));
        }
    }
    lines
}

/// Shows an execution that waits for a person: at these steps of these executions.
pub(super) async fn waiting(
    session: &Session,
    client: &Client,
    id: &Value,
    persons: &Persons,
) -> Result<Ending, Failure> {
    let screen = &session.screen;
    if screen.json {
        print_document(session, client, id).await?;
        return Ok(Ending::Waiting);
    }
    let root = plain::said(id);
    screen.print(&format!("{root}  WAITING"))?;
    for (step, answer) in persons.answered.iter().take(PERSONS) {
        screen.say(&format!("`{}` was {answer}, and no process carries it on", plain::line(step)));
    }
    if !persons.answered.is_empty() {
        screen.say(&format!("faber execute {root}   carries it on"));
    }
    for (id, step) in persons.asked.iter().take(PERSONS) {
        // Shells read brackets as a pattern.
        let step = quoted(step);
        screen.say(&format!("faber approve {id} {step}            lets it go on"));
        screen.say(&format!("faber approve {id} {step} --reject   refuses it"));
    }
    if persons.asked.len() > PERSONS {
        screen.say(&format!("and {} more", persons.asked.len() - PERSONS));
    }
    Ok(Ending::Waiting)
}

/// The steps that wait for a person.
pub(super) struct Persons {
    /// Those that nobody answered yet, each with its execution.
    asked: Vec<(String, String)>,
    /// Those whose answer no process has read yet, each with the answer.
    answered: Vec<(String, &'static str)>,
}

impl Persons {
    /// Reads which of these steps were answered.
    pub(super) async fn of(house: &House, steps: Vec<(String, String)>) -> Result<Self, Failure> {
        let mut persons = Self { asked: Vec::new(), answered: Vec::new() };
        let mut mail: BTreeMap<String, Vec<Command>> = BTreeMap::new();
        for (id, step) in steps {
            if let (false, Ok(execution)) = (mail.contains_key(&id), id.parse()) {
                mail.insert(id.clone(), house.mail(execution).await?);
            }
            let commands = mail.get(&id).map(Vec::as_slice).unwrap_or_default();
            match commands.iter().find_map(|command| answer_to(command, &step)) {
                Some(answer) => persons.answered.push((step, answer)),
                None => persons.asked.push((id, step)),
            }
        }
        Ok(persons)
    }
}

/// Returns how a command answers a step, or an item of it such as `step[3]`.
fn answer_to(command: &Command, asked: &str) -> Option<&'static str> {
    let Command::Approve { step, item, approved, .. } = command else { return None };
    let is_meant = if let Some(item) = item {
        asked == format!("{step}[{item}]")
    } else {
        let rest = asked.strip_prefix(step.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    };
    is_meant.then_some(if *approved { "approved" } else { "refused" })
}

/// Shows an execution that is followed no further as it stands.
pub(super) async fn at_rest(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Ending, Failure> {
    if session.screen.json {
        print_document(session, client, id).await?;
        return Ok(Ending::Done);
    }
    let query = "query($id: ID!) { execution(executionId: $id) { executionId state } }";
    let found = client.field(query, json!({ "id": id })).await?;
    let text = |key: &str| plain::said(&found[key]);
    session.screen.print(&format!("{}  {}", text("executionId"), text("state")))?;
    Ok(Ending::Done)
}

/// Says how to come back.
pub(super) fn detached(session: &Session, client: &Client, id: &Value) -> Result<Ending, Failure> {
    let name = plain::said(id);
    let message = if client.is_remote() {
        format!("detached; `{name}` goes on: `faber watch {name}` watches it")
    } else {
        format!(
            "detached; `{name}` is in the store: `faber execute {name}` carries it on, \
             `faber watch {name}` watches it, `faber cancel {name}` stops it"
        )
    };
    if session.screen.json {
        return Err(Failure::new("DETACHED", message).with("executionId", id.clone()));
    }
    session.screen.say(&message);
    Ok(Ending::Detached)
}

/// Ends a command that whoever began it has left.
pub(super) fn left(session: &Session, message: &str) -> Result<Ending, Failure> {
    if session.screen.json {
        return Err(Failure::new("DETACHED", message));
    }
    session.screen.say(message);
    Ok(Ending::Detached)
}

/// Prints an execution as one document.
pub(super) async fn print_document(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Value, Failure> {
    let shape = Shape::of(client).await?.execution();
    let query = format!("query($id: ID!) {{ execution(executionId: $id) {shape} }}");
    let document = client.field(&query, json!({ "id": id })).await?;
    session.screen.print_json(&document)?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(document: Value, expected: Expect) {
        expected.assert_eq(&told(&document, Paint::new(false)).join("\n"));
    }

    #[test]
    fn an_end_is_told_once_and_whole() {
        let step = |id: &str, needs: &[&str]| {
            json!({ "stepId": id, "dependsOn": needs, "onError": "fail",
                "retry": { "maxAttempts": 3 } })
        };
        check(
            json!({
                "executionId": "exec_1_aaaaaaaaa", "state": "FAILED", "dryRun": false, "total": 5,
                "successful": 1, "failed": 1, "skipped": 3, "cancelled": 0,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01.25Z",
                "plan": { "tools": [step("a", &[]), step("pay[x]", &["a"]), step("b", &["pay[x]"]),
                    step("c", &["b"]), step("d", &["a"])] },
                "executionResults": { "errors": [{ "stepId": "pay[x]", "index": null,
                    "toolName": "shop.pay", "code": "tool.failed", "attempt": 3, "retryable": true,
                    "message": "declined\nfaber approve everything \u{1b}[2J" }] },
                "steps": [
                    { "stepId": "a", "state": "SUCCEEDED", "warnings": ["{{x}}\rleft"],
                      "compensation": { "state": "FAILED",
                        "error": { "code": "tool.failed", "message": "no" } } },
                    { "stepId": "pay[x]", "state": "FAILED", "warnings": [],
                      "resolvedParameters": { "amount": 42 } },
                    { "stepId": "b", "state": "SKIPPED", "skipReason": "execution_failed" },
                    { "stepId": "c", "state": "SKIPPED", "skipReason": "execution_failed" },
                    { "stepId": "d", "state": "SKIPPED", "skipReason": "execution_failed" },
                ],
            }),
            expect![[r#"
                warning: a: {{x}}␍left
                error[tool.failed]: pay[x]: declined⏎faber approve everything ␛[2J
                   = given: shop.pay {"amount":42}
                   = not tried again: all of its 3 attempts were used
                   = did not run: `b` and `c`
                   = never began: `d`
                not undone[tool.failed]: a: no
                again: faber retry exec_1_aaaaaaaaa
                FAILED  1 of 5 steps done, 1 failed, 3 skipped in 1.2 s  exec_1_aaaaaaaaa"#]],
        );
        let dry = |failed: u64| {
            json!({ "executionId": "exec_1_aaaaaaaaa", "dryRun": true, "total": 7,
                "state": if failed == 0 { "COMPLETED" } else { "FAILED" }, "failed": failed,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z" })
        };
        check(dry(0), expect!["DRY RUN  7 steps fit, nothing was called  exec_1_aaaaaaaaa"]);
        check(
            dry(2),
            expect!["DRY RUN  2 of 7 steps would fail, nothing was called  exec_1_aaaaaaaaa"],
        );
    }
}
