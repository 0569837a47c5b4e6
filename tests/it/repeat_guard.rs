//! The repeat guard after plans that the machine alone has run.

use std::sync::Arc;

use executor::machine::{self, Input, decide};
use planner::{
    catalog::{Catalog, CatalogTool},
    compile::{compile, parse_value},
    draft::Draft,
    replan::{
        RepeatGuard,
        repeat_guard::{CALL_BYTES, MAX_COMPARED_BYTES},
    },
    reuse::{RetryScope, create_replan, create_retry},
};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    execution::{Execution, ExecutionOptions, StepState},
    id::{ExecutionId, PlanId, RequestId, StepNumber, WorkerId},
    limits,
    plan::{Plan, PlanInfo},
    tool::{Effect, ToolDefinition, ToolError},
};

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn draft(steps: Value) -> Draft {
    parse_value(json!({ "tools": steps })).unwrap()
}

fn plan(draft: &Draft) -> Arc<Plan> {
    let tool = |set: &str, name: &str, effect| CatalogTool {
        definition: Arc::new(ToolDefinition {
            name: name.parse().unwrap(),
            set: set.parse().unwrap(),
            description: String::new(),
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        }),
        is_active: true,
    };
    let catalog = Catalog::new([
        tool("m", "list", Effect::Read),
        tool("m", "send", Effect::Once),
        tool("m", "note", Effect::Once),
        tool("flow", "echo", Effect::Read),
    ]);
    let now = Timestamp::UNIX_EPOCH;
    let (id, request) = (PlanId::draw(now), RequestId::draw(now));
    let (query, planner) = (String::new(), "test".to_owned());
    let about = PlanInfo { id, request, version: 1, query, planner, created_at: now };
    Arc::new(compile(draft, about, &catalog).unwrap())
}

/// Carries an execution out: `m.list` returns three names, and nothing is sent to `b`.
fn carried_out(mut execution: Execution) -> Execution {
    let now = Timestamp::UNIX_EPOCH;
    let claimed = Input::Claimed { worker: WorkerId::draw(now), node: "n".into() };
    decide(&mut execution, claimed, now);
    while let Some(task) = execution.agenda().running().first().copied() {
        let tool = execution.plan().step(task.step).tool.clone();
        let came = execution.task(task).unwrap();
        let StepState::Running { attempt, .. } = came.state else { panic!("{:?}", came.state) };
        let given = came.parameters.clone().unwrap_or_default();
        let result = match (tool.as_str(), given["to"].as_str()) {
            ("m.list", _) => Ok(json!({ "items": ["a", "b", "c"] }).into()),
            (_, Some("b")) => Err(ToolError::failed("no such address")),
            _ => Ok((*given).clone().into()),
        };
        decide(&mut execution, Input::Ended { task, attempt, result }, now);
    }
    assert!(execution.state().is_finished());
    execution
}

fn ended(steps: Value) -> Execution {
    let input = Arc::new(json!({ "names": ["x", "a"], "others": ["x"] }));
    let options = ExecutionOptions { input, ..ExecutionOptions::default() };
    let (plan, now) = (plan(&draft(steps)), Timestamp::UNIX_EPOCH);
    carried_out(machine::create_execution(ExecutionId::draw(now), &plan, options, now).0)
}

/// Says what would be done twice by a plan: `step: the one that did it`, or `step? the one`.
fn twice(done: &RepeatGuard<'_>, steps: Value) -> Vec<String> {
    let draft = draft(steps);
    let found = done.find_repeats(&draft, &plan(&draft));
    let told = found.iter().map(|diagnostic| {
        assert_eq!(diagnostic.code, "plan.done_twice");
        let names: Vec<&str> = diagnostic.message.split('`').skip(1).step_by(2).collect();
        let mark = if diagnostic.message.contains("may repeat") { "?" } else { ":" };
        format!("{}{mark} {}", names[0], names.get(1).unwrap_or(&names[0]))
    });
    told.collect()
}

fn list() -> Value {
    json!({ "id": "list", "name": "list" })
}

fn each(id: &str, list: &str, to: &str) -> Value {
    json!({ "id": id, "name": "send", "forEach": list, "maxParallel": 1,
        "parameters": { "to": to } })
}

fn one(id: &str, to: &str) -> Value {
    json!({ "id": id, "name": "send", "parameters": { "to": to } })
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn echo(items: Value) -> Value {
    json!({ "id": "rest", "name": "flow.echo", "parameters": { "items": items } })
}

/// The loop sent to `a`, failed with `b` and never came to `c`.
#[test]
fn what_is_left_of_a_list_is_done_and_nothing_of_it_twice() {
    let mails = || each("mails", "{{list.items}}", "{{item}}");
    let ended = ended(json!([list(), mails()]));
    let done = RepeatGuard::new(&ended);
    for (steps, expected) in [
        (json!([list(), mails()]), "mails: mails"),
        (json!([list(), each("again", "{{list.items}}", "{{item}}")]), "again: mails"),
        // What a template is written like is nothing to what it gives.
        (json!([list(), each("again", "{{ list.items }}", "{{ item }}")]), "again: mails"),
        (json!([list(), each("other", "{{list.items}}", "{{item}}!")]), ""),
        (json!([echo(json!(["b", "c"])), each("left", "{{rest.items}}", "{{item}}")]), ""),
        (
            json!([echo(json!(["c", "a"])), each("left", "{{rest.items}}", "{{item}}")]),
            "left: mails",
        ),
        (json!([each("all", "{{input.names}}", "{{item}}")]), "all: mails"),
        (json!([each("all", "{{input.others}}", "{{item}}")]), ""),
        (json!([list(), one("one", "{{list.items[0]}}")]), "one: mails"),
        (json!([list(), one("one", "{{list.items[1]}}"), one("two", "c")]), ""),
        (json!([one("one", "a")]), "one: mails"),
        // Nobody knows what it will be this time.
        (
            json!([{ "id": "fresh", "name": "list" },
                each("left", "{{fresh.items}}", "{{item}}")]),
            "left? mails",
        ),
        (
            json!([{ "id": "fresh", "name": "list" }, list(),
                each("left", "{{list.items}}", "{{fresh.items[2]}}")]),
            "left? mails",
        ),
        (json!([{ "id": "fresh", "name": "list" }, one("one", "{{fresh.items[0]}}")]), ""),
        (
            json!([{ "id": "fresh", "name": "list" },
                { "id": "n", "name": "note", "forEach": "{{fresh.items}}" }]),
            "",
        ),
    ] {
        assert_eq!(twice(&done, steps.clone()).join(", "), expected, "{steps}");
    }
}

/// The loop came to its end, and something after it failed.
#[test]
fn a_list_that_stays_keeps_no_other_from_being_gone_through() {
    let names = || each("names", "{{input.others}}", "{{item}}");
    let bad = json!({ "id": "bad", "name": "send", "parameters": { "to": "b" } });
    let ended = ended(json!([names(), bad]));
    let done = RepeatGuard::new(&ended);
    let fresh =
        || [json!({ "id": "fresh", "name": "list" }), each("all", "{{fresh.items}}", "{{item}}")];
    let [list, all] = fresh();
    assert_eq!(twice(&done, json!([names(), list, all])), Vec::<String>::new());
    let [list, all] = fresh();
    assert_eq!(twice(&done, json!([list, all])), ["all? names"]);
}

#[test]
fn what_was_done_before_is_remembered_however_often_a_plan_is_made_anew() {
    let first = ended(json!([one("first", "a"), one("bad", "b")]));
    let next = |ended: &Execution, steps: Value| {
        let plan = plan(&draft(steps));
        let created = create_replan(ended, &plan).unwrap();
        let (id, now) = (ExecutionId::draw(ended.created_at()), ended.created_at());
        carried_out(machine::create_execution_from(id, &plan, created, now).unwrap().0)
    };
    // It is taken over, and its parameters stand where it was done.
    let second = next(&first, json!([one("first", "a"), one("worse", "b")]));
    assert!(second.step(StepNumber::new(0)).is_reused);
    let mut done = RepeatGuard::new(&second);
    done.add_earlier(&first, &second);
    assert_eq!(twice(&done, json!([one("other", "a")])), ["other: first"]);
    assert_eq!(twice(&done, json!([one("first", "a"), one("other", "c")])), Vec::<String>::new());
    // Even if it was left out in between.
    let second = next(&first, json!([one("worse", "b")]));
    let mut done = RepeatGuard::new(&second);
    done.add_earlier(&first, &second);
    assert_eq!(twice(&done, json!([one("other", "a")])), ["other: first"]);
    // What somebody wanted to be done again did not stand in the way of that.
    let again = create_retry(&first, RetryScope::All).unwrap();
    let (id, now) = (ExecutionId::draw(first.created_at()), first.created_at());
    let (again, _) = machine::create_execution_from(id, first.plan(), again, now).unwrap();
    let mut done = RepeatGuard::new(&again);
    done.add_earlier(&first, &again);
    assert_eq!(twice(&done, json!([one("other", "a")])), Vec::<String>::new());
}

#[test]
fn a_number_is_the_same_however_it_is_written() {
    let pay = |id: &str, sum: Value| {
        json!({ "id": id, "name": "note",
            "parameters": { "sum": sum, "to": "{{list.items[0]}}" } })
    };
    let bad =
        json!({ "id": "bad", "name": "send", "dependsOn": ["paid"], "parameters": { "to": "b" } });
    let ended = ended(json!([list(), pay("paid", json!(1)), bad]));
    let done = RepeatGuard::new(&ended);
    for (sum, expected) in
        [(json!(1.0), "other: paid"), (json!(1), "other: paid"), (json!(1.5), "")]
    {
        let plan = json!([list(), pay("other", sum.clone())]);
        assert_eq!(twice(&done, plan).join(", "), expected, "{sum}");
        // Found by what it was called with, and not by how it is written.
        let literal =
            json!({ "id": "other", "name": "note", "parameters": { "sum": sum, "to": "a" } });
        assert_eq!(twice(&done, json!([literal])).join(", "), expected, "{sum}");
    }
    assert_eq!(twice(&done, json!([list(), pay("paid", json!(1.0))])), [""; 0], "it stays");
}

#[test]
fn what_is_too_much_to_compare_is_refused() {
    let ended = ended(json!([one("first", "a"), one("bad", "b")]));
    let done = RepeatGuard::new(&ended);
    let items = |many: usize| echo((0..many).map(|number| json!(number)).collect());
    let text = |bytes: usize| json!({ "id": "doc", "name": "flow.echo", "parameters": { "text": "x".repeat(bytes) } });
    let each = || {
        json!({ "id": "left", "name": "send", "forEach": "{{rest.items}}",
            "parameters": { "to": "{{item}}", "text": "{{doc.text}}" } })
    };
    let plan = |many, bytes| json!([items(many), text(bytes), each()]);
    assert_eq!(twice(&done, plan(100, MAX_COMPARED_BYTES / 200)), [""; 0]);
    assert_eq!(twice(&done, plan(200, MAX_COMPARED_BYTES / 100)), ["left? left"]);
    let many = MAX_COMPARED_BYTES / CALL_BYTES + 1;
    assert!(many > limits::ITEMS, "one list alone is not too long");
}

#[test]
fn what_nobody_looked_at_may_have_done_anything() {
    let ended = ended(json!([one("first", "a"), one("bad", "b")]));
    let mut done = RepeatGuard::new(&ended);
    done.set_truncated(true);
    let plan = json!([one("first", "a"), list(), one("bad", "b"), one("new", "{{list.items[1]}}")]);
    assert_eq!(twice(&done, plan), ["new? new"]);
}
