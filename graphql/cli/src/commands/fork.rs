//! `faber fork`: repeats a finished execution with changes.

use std::io::{self, IsTerminal};

use client::{
    Argument,
    failure::Failure,
    operations::find_execution,
    plan_file::read_json,
    types::{ExecutionHead, ForkPreview, OnceCall, Plan, PlannedStep, RepeatedCall},
    view::{format::count_noun, plain},
};
use engine::{Change, ForkOrder, StepChange};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::{
    id::ExecutionId,
    template::{Path, Segment},
};

use super::{
    follow::{Purpose, watch_to_end},
    missing_tools,
    steer::{ask_person, refuse_unknown_calls, send_command},
};
use crate::{ExitStatus, args::ForkArgs, screen::align_rows, session::Session};

pub(crate) async fn fork(session: &Session<'_>, args: ForkArgs) -> Result<ExitStatus, Failure> {
    let ExecutionHead { execution_id: id, plan_id, .. } =
        find_execution(&session.client, &args.id).await?;
    let plan = args.plan.clone().unwrap_or_else(|| plan_id.to_string());
    let fields = "planId tools { stepId parameters }";
    let found: Option<Plan> =
        session.client.query("plan", &[("planId: ID!", json!(plan))], fields).await?;
    let found = found.ok_or_else(|| Failure::not_found("plan", &plan))?;
    let input = match &args.input {
        Some(text) => Some(read_json("--input", text).await?),
        None => None,
    };
    let order = ForkOrder {
        plan: args.plan.as_ref().and_then(|id| id.parse().ok()),
        input,
        set: read_changes(&found, &args).await?,
    };
    if !args.wait {
        missing_tools::check_fork(session, id, order.clone()).await?;
    }
    let arguments = order_arguments(&order);
    if !confirm_fork(session, id, &arguments, args.yes).await? {
        session.screen.say("nothing was forked");
        return Ok(ExitStatus::Failed);
    }
    let forked = send_command(&session.client, id, "forkExecution", &arguments).await?;
    watch_to_end(session, forked.execution_id, Purpose::Drive).await
}

/// Returns the arguments of `forkExecution` and `forkPreview`, except for the id of the execution.
fn order_arguments(order: &ForkOrder) -> [Argument<'static>; 3] {
    let set = order.set.iter().map(|StepChange { step, change }| match change {
        Change::Parameters(parameters) => json!({ "stepId": step, "parameters": parameters }),
        Change::Output(output) => json!({ "stepId": step, "output": output }),
    });
    [
        ("planId: ID", json!(order.plan)),
        ("input: JSON", json!(order.input)),
        ("set: [StepChangeInput!]", set.collect()),
    ]
}

/// Lists the `ONCE` calls that a fork would make, and asks the user on a terminal. Without a
/// terminal or with `--json`, fails if one of the calls has an unknown outcome.
async fn confirm_fork(
    session: &Session<'_>,
    id: ExecutionId,
    arguments: &[Argument<'_>],
    is_confirmed: bool,
) -> Result<bool, Failure> {
    let (field, fields) = ("forkPreview", ForkPreview::fields());
    let preview: ForkPreview =
        session.client.query_in_execution(id, field, arguments, &fields).await?;
    let screen = session.screen;
    if !preview.kept_steps.is_empty() {
        let count = count_noun(preview.kept_steps.len(), "step");
        screen.hint(&format!("the fork keeps the outputs of {count}"));
    }
    let calls = &preview.once_calls;
    if calls.is_empty() {
        return Ok(true);
    }
    screen.say("this fork makes calls of `once` tools:");
    screen.say(&draw_calls(calls));
    if is_confirmed {
        Ok(true)
    } else if io::stdin().is_terminal() && io::stderr().is_terminal() && !screen.json {
        ask_person("make them? (y/N) ").await
    } else {
        let repeated: Vec<RepeatedCall> = calls.iter().map(to_repeated).collect();
        refuse_unknown_calls(&repeated).map_or(Ok(true), Err)
    }
}

fn draw_calls(calls: &[OnceCall]) -> String {
    let rows = calls.iter().map(|call| {
        let count = call.calls.map_or("calls".to_owned(), |count| count_noun(count, "call"));
        let again = match (call.outcome_unknown, call.repeated) {
            (true, _) => ", with an unknown outcome",
            (false, true) => ", made before",
            (false, false) => "",
        };
        vec![format!("  {}", call.step_id), call.tool_name.to_string(), format!("{count}{again}")]
    });
    align_rows(&rows.collect::<Vec<_>>())
}

fn to_repeated(call: &OnceCall) -> RepeatedCall {
    RepeatedCall {
        step_id: call.step_id.clone(),
        tool_name: call.tool_name.clone(),
        calls: call.calls.unwrap_or(1),
        outcome_unknown: call.outcome_unknown,
        remedies: call.remedies.clone(),
    }
}

async fn read_changes(plan: &Plan, args: &ForkArgs) -> Result<Vec<StepChange>, Failure> {
    let mut set = Vec::new();
    for written in &args.set {
        change_parameter(plan, &mut set, written)?;
    }
    for written in &args.outputs {
        let (step, value) = split_assignment("--output", written)?;
        let output = read_json("--output", value).await?;
        set.push(StepChange { step: step.to_owned(), change: Change::Output(output) });
    }
    Ok(set)
}

/// Applies `STEP.PATH=VALUE` to the parameters of a step. Several changes of one step become one
/// entry.
fn change_parameter(plan: &Plan, set: &mut Vec<StepChange>, written: &str) -> Result<(), Failure> {
    let (place, value) = split_assignment("--set", written)?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    let (step, path) = find_place(plan, place)?;
    let index = set.iter().position(|change| *change.step == *step.step_id);
    let index = index.unwrap_or_else(|| {
        let change = Change::Parameters(step.parameters.clone());
        set.push(StepChange { step: step.step_id.to_string(), change });
        set.len() - 1
    });
    let Change::Parameters(parameters) = &mut set[index].change else { return Ok(()) };
    let missing = || Failure::usage(format!("`--set`: `{place}` is no place in the parameters"));
    let slot = path.segments().iter().try_fold(parameters, make_slot).ok_or_else(missing)?;
    *slot = value;
    Ok(())
}

fn split_assignment<'a>(option: &str, written: &'a str) -> Result<(&'a str, &'a str), Failure> {
    written.split_once('=').map(|(name, value)| (name.trim(), value)).ok_or_else(|| {
        let form = if option == "--set" { "STEP.PATH=VALUE" } else { "STEP=JSON" };
        Failure::usage(format!("`{option}`: `{}` is not `{form}`", plain::safe_line(written)))
    })
}

/// Splits a place into a step and a path. As in templates, the longest step id that fits counts.
fn find_place<'a>(plan: &'a Plan, place: &str) -> Result<(&'a PlannedStep, Path), Failure> {
    let fits = |id: &str| {
        let rest = place.strip_prefix(id);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let steps = plan.tools.iter().filter(|step| fits(&step.step_id));
    let Some(step) = steps.max_by_key(|step| step.step_id.len()) else {
        let name = place.split(['.', '[']).next().unwrap_or_default();
        let help = did_you_mean(name, plan.tools.iter().map(|step| &*step.step_id));
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        let name = plain::safe_line(place);
        let message = format!("`--set`: `{name}` names no step of `{}`{help}", plan.plan_id);
        return Err(Failure::usage(message));
    };
    let path = Path::parse(&place[step.step_id.len()..]);
    let path = path.map_err(|err| Failure::usage(format!("`--set`: `{place}`: {err}")))?;
    Ok((step, path))
}

/// Returns the place of a segment in a value. Adds a missing field of an object.
fn make_slot<'a>(value: &'a mut Value, segment: &Segment) -> Option<&'a mut Value> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    match (segment, value) {
        (Segment::Key(key) | Segment::Quoted(key), Value::Object(fields)) => {
            Some(fields.entry(key.clone()).or_insert(Value::Null))
        }
        (Segment::Key(key), Value::Array(items)) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let plan = json!({ "planId": "plan_1_aaaaaaaaa", "tools": [
            { "stepId": "pay", "parameters": { "sum": 1, "to": [{ "name": "a" }] } },
            { "stepId": "pay.again" },
        ] });
        serde_json::from_value(plan).unwrap()
    }

    fn change(written: &[&str]) -> Result<Vec<StepChange>, Failure> {
        let mut set = Vec::new();
        written.iter().try_for_each(|written| change_parameter(&plan(), &mut set, written))?;
        Ok(set)
    }

    #[test]
    fn assignments_change_the_written_parameters() {
        let changed = |step: &str, parameters| StepChange {
            step: step.to_owned(),
            change: Change::Parameters(parameters),
        };
        for (written, expected) in [
            (
                &["pay.sum=2", "pay.to[0].name=b c", "pay.new.field={{input.x}}"][..],
                changed(
                    "pay",
                    json!({
                        "sum": 2, "to": [{ "name": "b c" }], "new": { "field": "{{input.x}}" },
                    }),
                ),
            ),
            (&["pay.again.x=\"2\""], changed("pay.again", json!({ "x": "2" }))),
            (&["pay={\"a\":null}"], changed("pay", json!({ "a": null }))),
        ] {
            assert_eq!(change(written).unwrap(), [expected], "{written:?}");
        }
        for (written, expected) in [
            ("pay.sum", "is not `STEP.PATH=VALUE`"),
            ("pai.sum=1", "names no step of `plan_1_aaaaaaaaa`: did you mean `pay`"),
            ("pay.sum.x=1", "`pay.sum.x` is no place in the parameters"),
            ("pay.to[3]=1", "`pay.to[3]` is no place in the parameters"),
            ("pay[=1", "neither `[0]` nor"),
        ] {
            let failure = change(&[written]).unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
