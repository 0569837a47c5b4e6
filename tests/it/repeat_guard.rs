//! Tests of the repeat guard. The state machine runs the plans without a worker.

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
fn parse_draft(steps: Value) -> Draft {
    parse_value(json!({ "tools": steps })).unwrap()
}

fn compile_plan(draft: &Draft) -> Arc<Plan> {
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

fn run_to_end(mut execution: Execution) -> Execution {
    let now = Timestamp::UNIX_EPOCH;
    let claimed =
        Input::Claimed { worker: WorkerId::draw(now), node: "n".into(), commands_follow: false };
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

fn run_steps(steps: Value) -> Execution {
    let input = Arc::new(json!({ "names": ["x", "a"], "others": ["x"] }));
    let options = ExecutionOptions { input, ..ExecutionOptions::default() };
    let (plan, now) = (compile_plan(&parse_draft(steps)), Timestamp::UNIX_EPOCH);
    run_to_end(machine::create_execution(ExecutionId::draw(now), &plan, options, now).0)
}

/// Returns the repeated calls in a plan: `step: earlier step` if a repeat is certain, and `step?
/// earlier step` if it is possible.
fn find_repeats(repeat_guard: &RepeatGuard<'_>, steps: Value) -> Vec<String> {
    let draft = parse_draft(steps);
    let found = repeat_guard.find_repeats(&draft, &compile_plan(&draft));
    let lines = found.iter().map(|diagnostic| {
        assert_eq!(diagnostic.code, "plan.done_twice");
        let names: Vec<&str> = diagnostic.message.split('`').skip(1).step_by(2).collect();
        let mark = if diagnostic.message.contains("may repeat") { "?" } else { ":" };
        format!("{}{mark} {}", names[0], names.get(1).unwrap_or(&names[0]))
    });
    lines.collect()
}

fn list_step() -> Value {
    json!({ "id": "list", "name": "list" })
}

fn send_each(id: &str, list: &str, to: &str) -> Value {
    json!({ "id": id, "name": "send", "forEach": list, "maxParallel": 1,
        "parameters": { "to": to } })
}

fn send_one(id: &str, to: &str) -> Value {
    json!({ "id": id, "name": "send", "parameters": { "to": to } })
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn echo_items(items: Value) -> Value {
    json!({ "id": "rest", "name": "flow.echo", "parameters": { "items": items } })
}

/// In the earlier execution, the loop sent to `a`, failed at `b`, and did not send to `c`.
#[test]
fn a_replan_may_finish_a_loop_but_not_repeat_its_items() {
    let mails = || send_each("mails", "{{list.items}}", "{{item}}");
    let ended = run_steps(json!([list_step(), mails()]));
    let repeat_guard = RepeatGuard::new(&ended);
    for (steps, expected) in [
        (json!([list_step(), mails()]), "mails: mails"),
        (json!([list_step(), send_each("again", "{{list.items}}", "{{item}}")]), "again: mails"),
        // Spaces inside a template do not hide a repeat.
        (
            json!([list_step(), send_each("again", "{{ list.items }}", "{{ item }}")]),
            "again: mails",
        ),
        (json!([list_step(), send_each("other", "{{list.items}}", "{{item}}!")]), ""),
        (
            json!([echo_items(json!(["b", "c"])), send_each("left", "{{rest.items}}", "{{item}}")]),
            "",
        ),
        (
            json!([echo_items(json!(["c", "a"])), send_each("left", "{{rest.items}}", "{{item}}")]),
            "left: mails",
        ),
        (json!([send_each("all", "{{input.names}}", "{{item}}")]), "all: mails"),
        (json!([send_each("all", "{{input.others}}", "{{item}}")]), ""),
        (json!([list_step(), send_one("one", "{{list.items[0]}}")]), "one: mails"),
        (json!([list_step(), send_one("one", "{{list.items[1]}}"), send_one("two", "c")]), ""),
        (json!([send_one("one", "a")]), "one: mails"),
        // The new step `fresh` calls the tool again and can return other items, so a repeat is
        // possible, but not certain.
        (
            json!([{ "id": "fresh", "name": "list" },
                send_each("left", "{{fresh.items}}", "{{item}}")]),
            "left? mails",
        ),
        (
            json!([{ "id": "fresh", "name": "list" }, list_step(),
                send_each("left", "{{list.items}}", "{{fresh.items[2]}}")]),
            "left? mails",
        ),
        (json!([{ "id": "fresh", "name": "list" }, send_one("one", "{{fresh.items[0]}}")]), ""),
        (
            json!([{ "id": "fresh", "name": "list" },
                { "id": "n", "name": "note", "forEach": "{{fresh.items}}" }]),
            "",
        ),
    ] {
        assert_eq!(find_repeats(&repeat_guard, steps.clone()).join(", "), expected, "{steps}");
    }
}

/// The loop finished, and a later step failed.
#[test]
fn a_finished_loop_does_not_block_a_loop_over_another_list() {
    let names = || send_each("names", "{{input.others}}", "{{item}}");
    let bad = json!({ "id": "bad", "name": "send", "parameters": { "to": "b" } });
    let ended = run_steps(json!([names(), bad]));
    let repeat_guard = RepeatGuard::new(&ended);
    let fresh = || {
        [json!({ "id": "fresh", "name": "list" }), send_each("all", "{{fresh.items}}", "{{item}}")]
    };
    let [list, all] = fresh();
    assert_eq!(find_repeats(&repeat_guard, json!([names(), list, all])), Vec::<String>::new());
    let [list, all] = fresh();
    assert_eq!(find_repeats(&repeat_guard, json!([list, all])), ["all? names"]);
}

#[test]
fn calls_of_all_earlier_versions_are_remembered() {
    let first = run_steps(json!([send_one("first", "a"), send_one("bad", "b")]));
    let next = |ended: &Execution, steps: Value| {
        let plan = compile_plan(&parse_draft(steps));
        let created = create_replan(ended, &plan).unwrap();
        let (id, now) = (ExecutionId::draw(ended.created_at()), ended.created_at());
        run_to_end(machine::create_execution_from(id, &plan, created, None, now).unwrap().0)
    };
    // The step is reused, so the guard must take its parameters from the earlier execution.
    let second = next(&first, json!([send_one("first", "a"), send_one("worse", "b")]));
    assert!(second.step(StepNumber::new(0)).is_reused);
    let mut repeat_guard = RepeatGuard::new(&second);
    repeat_guard.add_earlier(&first, &second);
    assert_eq!(find_repeats(&repeat_guard, json!([send_one("other", "a")])), ["other: first"]);
    assert_eq!(
        find_repeats(&repeat_guard, json!([send_one("first", "a"), send_one("other", "c")])),
        Vec::<String>::new()
    );
    // The guard also knows the calls of the first version if the second version left their step
    // out.
    let second = next(&first, json!([send_one("worse", "b")]));
    let mut repeat_guard = RepeatGuard::new(&second);
    repeat_guard.add_earlier(&first, &second);
    assert_eq!(find_repeats(&repeat_guard, json!([send_one("other", "a")])), ["other: first"]);
    // A repeat that a person requested does not block later versions.
    let repeated = create_retry(&first, RetryScope::All).unwrap();
    let (id, now) = (ExecutionId::draw(first.created_at()), first.created_at());
    let (repeated, _) =
        machine::create_execution_from(id, first.plan(), repeated, None, now).unwrap();
    let mut repeat_guard = RepeatGuard::new(&repeated);
    repeat_guard.add_earlier(&first, &repeated);
    assert_eq!(find_repeats(&repeat_guard, json!([send_one("other", "a")])), Vec::<String>::new());
}

#[test]
fn equal_numbers_count_as_the_same_parameter() {
    let pay = |id: &str, sum: Value| {
        json!({ "id": id, "name": "note",
            "parameters": { "sum": sum, "to": "{{list.items[0]}}" } })
    };
    let bad =
        json!({ "id": "bad", "name": "send", "dependsOn": ["paid"], "parameters": { "to": "b" } });
    let ended = run_steps(json!([list_step(), pay("paid", json!(1)), bad]));
    let repeat_guard = RepeatGuard::new(&ended);
    for (sum, expected) in
        [(json!(1.0), "other: paid"), (json!(1), "other: paid"), (json!(1.5), "")]
    {
        let plan = json!([list_step(), pay("other", sum.clone())]);
        assert_eq!(find_repeats(&repeat_guard, plan).join(", "), expected, "{sum}");
        // The guard compares parameters of calls, not their spelling.
        let literal =
            json!({ "id": "other", "name": "note", "parameters": { "sum": sum, "to": "a" } });
        assert_eq!(find_repeats(&repeat_guard, json!([literal])).join(", "), expected, "{sum}");
    }
    assert_eq!(
        find_repeats(&repeat_guard, json!([list_step(), pay("paid", json!(1.0))])),
        [""; 0],
        "the step is reused"
    );
}

#[test]
fn a_loop_that_is_too_large_to_compare_counts_as_a_possible_repeat() {
    let ended = run_steps(json!([send_one("first", "a"), send_one("bad", "b")]));
    let repeat_guard = RepeatGuard::new(&ended);
    let items = |many: usize| echo_items((0..many).map(|number| json!(number)).collect());
    let text = |bytes: usize| json!({ "id": "doc", "name": "flow.echo", "parameters": { "text": "x".repeat(bytes) } });
    let each = || {
        json!({ "id": "left", "name": "send", "forEach": "{{rest.items}}",
            "parameters": { "to": "{{item}}", "text": "{{doc.text}}" } })
    };
    let plan = |many, bytes| json!([items(many), text(bytes), each()]);
    assert_eq!(find_repeats(&repeat_guard, plan(100, MAX_COMPARED_BYTES / 200)), [""; 0]);
    assert_eq!(find_repeats(&repeat_guard, plan(200, MAX_COMPARED_BYTES / 100)), ["left? left"]);
    let many = MAX_COMPARED_BYTES / CALL_BYTES + 1;
    assert!(many > limits::ITEMS, "one list alone is not too long");
}

#[test]
fn after_a_truncated_history_every_unknown_call_is_a_possible_repeat() {
    let ended = run_steps(json!([send_one("first", "a"), send_one("bad", "b")]));
    let mut repeat_guard = RepeatGuard::new(&ended);
    repeat_guard.set_truncated(true);
    let plan = json!([
        send_one("first", "a"),
        list_step(),
        send_one("bad", "b"),
        send_one("new", "{{list.items[1]}}")
    ]);
    assert_eq!(find_repeats(&repeat_guard, plan), ["new? new"]);
}
