#![expect(clippy::too_many_lines, reason = "the functions are tables")]
#![expect(clippy::needless_pass_by_value, reason = "so that tables can write `json!` in place")]

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use executor::{
    call_limits::{CallLimits, LimitRule, LimitedCalls},
    machine::{self, CallOutput, Input},
};
use expect_test::expect;
use serde_json::{Value, json};
use shared::{
    actor::Actor,
    clock::Timestamp,
    event::{CallKey, CallPlace, Created, Event, RecordedEvent, SkipReason},
    execution::{ExecutionOptions, ReplanOptions},
    id::{Attempt, ExecutionId, Part, Task, WorkerId},
    plan::Plan,
    store::{Command, ExecutionHead, SentCommand},
    tool::{ErrorCode, ToolError},
};
use toolbox::Toolbox;

use super::*;

mod cases;
mod story;

use self::{
    cases::{failure_cases, other_cases, wait_cases},
    story::*,
};

#[test]
fn every_finding_has_its_message_and_remedies() {
    let mut table = String::new();
    for (name, lines) in failure_cases().into_iter().chain(wait_cases()).chain(other_cases()) {
        let _ = write!(table, "{name}\n{lines}");
    }
    expect![[r#"
        tool.failed
          ERROR FAILURE tool.failed @4: `a` failed: ValueError: unknown VAT code; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        not retryable
          ERROR FAILURE tool.failed @4: `a` failed: 409; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        all attempts
          ERROR FAILURE tool.failed @6: `a` failed after 2 attempts: 503; all of its 2 attempts were used
            -> retry E
          INFO SKIP skip.execution_failed @6: `b` did not run, because `a` failed first
        tool.timeout
          ERROR FAILURE tool.timeout @4: `a` failed: no answer in 5 s; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        tool.unavailable
          ERROR FAILURE tool.unavailable @4: `a` failed: refused; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E | doctor
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        tool.inactive
          ERROR FAILURE tool.inactive @4: `a` failed: its set is off; its plan allows one attempt (`retry.maxAttempts`)
            -> toolsets activate shop | retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        tool.invalid_parameters
          ERROR FAILURE tool.invalid_parameters @4: `a` failed: no id
            -> revise P FILE | replan E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        tool.output_too_large
          ERROR FAILURE tool.output_too_large @4: `a` failed: 9 MB; it was not tried again because it would fail again
            -> revise P FILE | replan E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        tool.outcome_unknown
          ERROR FAILURE tool.outcome_unknown @4: `a` failed: it broke off; it is unknown whether the call took effect, and it may still do so: check before you retry; a second call could repeat its effect, so a person must decide
            -> settle E a --succeeded | settle E a --failed | retry E!
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        custom code
          ERROR FAILURE payment.declined @4: `a` failed: declined; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        missing input
          ERROR FAILURE template.unresolved @4: `a` failed: `{{input.mail}}` has no value in the input
            -> execute P --input '{"mail":"…"}' | revise P FILE | replan E
        step.not_a_list
          ERROR FAILURE step.not_a_list @5: `a` failed: `forEach` needs a list, but `{{list}}` is a number
            -> revise P FILE | replan E
        step.rejected
          ERROR FAILURE step.rejected @4: `a` failed: a person rejected it
            -> retry E
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
        execution.deadline
          ERROR FAILURE execution.deadline @5: `a` failed: the deadline of the execution passed
            -> execute P --deadline-ms MS | retry E
        deadline of a wait
          ERROR FAILURE execution.deadline @5: `a` failed: the deadline of the execution passed
            -> execute P --deadline-ms MS | retry E
        cancelled by a token
          WARNING FAILURE execution.cancelled @4: the execution was cancelled by token `alice` at 1970-01-01 00:00:00 UTC: wrong list
            -> retry E
        cancelled
          WARNING FAILURE execution.cancelled @4: the execution was cancelled: wrong shop
            -> retry E
        on_error continue
          WARNING FAILURE tool.failed @4: `a` failed: no; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
          INFO SKIP skip.dependency @4: `b` did not run, because `a`, which it needs, failed
        item, fail
          ERROR FAILURE tool.failed @12: `a[1]` failed: item 1: no; of 3 items, 1 failed and 2 succeeded; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
        item, ignore
          WARNING FAILURE tool.failed @10: `a[1]` failed: no; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
        dry run
          ERROR FAILURE template.unresolved @4: `a` failed: `{{input.mail}}` has no value in the input
            -> execute P --input '{"mail":"…"}' | revise P FILE
        approval
          WARNING WAIT wait.approval @3: needs approval of `a`, which calls `shop.a`
            -> approve E a | approve E a --reject
        answered
          WARNING WAIT wait.worker @3: no worker runs it: the worker `work_1_aaaaaaaaa` on node1 has stopped
            -> execute E
          WARNING WAIT wait.worker @3: `a` was approved, but no worker has read this yet
            -> execute E
        decision
          ERROR WAIT wait.decision @4: `a` failed with tool.failed and needs a decision: 503
            -> approve E a | approve E a --reject
        decision, unknown
          ERROR WAIT wait.decision @4: `a` failed with tool.outcome_unknown and needs a decision: it broke off; it is unknown whether the call took effect, and it may still do so: check before you retry
            -> settle E a --succeeded | settle E a --failed | approve E a! | approve E a --reject
        signal
          WARNING WAIT wait.signal @3: `a` waits for the signal `paid`
            -> signal E paid
        retry
          WARNING WAIT wait.retry @4: `a`: attempt 2 of 50 begins in 18 s, after tool.failed: no stock
        sleep
          INFO WAIT wait.sleep @3: `a` sleeps for another 18 s
        child
          INFO WAIT wait.child @3: `a` waits for its execution `exec_0_xspx5f00s`
            -> debug exec_0_xspx5f00s
        child that waits
          WARNING WAIT wait.child @3: `a` waits for its execution `exec_0_xspx5f00s`: needs approval of `a`, which calls `shop.a`
            -> approve E a | approve E a --reject | debug exec_0_xspx5f00s
        child that calls
        call
          INFO WAIT wait.call @3: `a` is being called (`shop.a`), attempt 1
          INFO WAIT wait.call @4: `b` is being called (`shop.b`), attempt 1
        items
          INFO WAIT wait.items @5: `a`: 1 of 2 items are finished
          INFO WAIT wait.call @7: `a[1]` is being called (`shop.a`), attempt 1
        limit of calls
          INFO WAIT wait.limit : `limited` waits for the limit `tool:shop.limited`
        limit of steps
          INFO WAIT wait.call @3: `a` is being called (`shop.a`), attempt 1
          INFO WAIT wait.limit : `b` waits for a free slot: at most 1 run at once (`maxParallel`)
        paused
          WARNING WAIT wait.paused @4: it was paused by user `ada` at 1970-01-01 00:00:00 UTC
            -> resume E
          INFO WAIT wait.call @3: `a` is being called (`shop.a`), attempt 1
        start
          INFO WAIT wait.start : it starts in 2 min, as `startAt` requests
        no worker took it
          WARNING WAIT wait.worker @1: no worker runs it
            -> execute E
        busy workers
          WARNING WAIT wait.worker @1: no worker runs it yet: all workers lack its tools or are busy
            -> execute E
        its worker was lost
          WARNING WAIT wait.worker @4: no worker runs it: the worker `work_1_aaaaaaaaa` on node1 has stopped while `a` and `b` ran
            -> execute E
        a tool is missing
          WARNING WAIT wait.worker @4: no worker runs it: the worker `work_1_aaaaaaaaa` on node1 has stopped while `a` and `b` ran
            -> execute E | doctor
          WARNING WAIT wait.tool @4: it needs the tool `shop.a`, which this node lacks: no toolset of this node contains it
            -> doctor | execute E
          WARNING WAIT wait.tool @4: it needs the tool `shop.b`, which this node lacks: no toolset of this node contains it
            -> doctor | execute E
        skip by condition
          INFO SKIP skip.condition @5: `b` was skipped, because its condition `a.total > 50 && a.vip` does not hold: `a.total` is 12, `a.vip` is missing
        skip by dry run
          INFO SKIP skip.dry_run @2: `a` can run; a dry run calls nothing
        skip by dependency
          WARNING FAILURE tool.failed @4: `a` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO SKIP skip.dependency @4: `b` did not run, because `a`, which it needs, failed
          INFO SKIP skip.dependency @4: `c` did not run, because `a`, which it needs, failed
        template left standing
          WARNING WARNING warning.template @6: `b`: `{{a.foo}}` has no value and was passed on as written
            -> revise P FILE
        call with other parameters
          WARNING WARNING warning.idempotency_key @4: `a`: an earlier call of this step with other parameters has an unknown outcome, so this attempt sends a new idempotency key
        retried
          INFO WARNING retried @6: `a` succeeded at attempt 2; before, tool.failed: 503
        a clock was ahead
          WARNING WARNING waits_shortened @5: a clock was 2 h ahead, so the waits that it recorded and the deadline were started again with their full length
          INFO WAIT wait.sleep @3: `a` sleeps for another 5 s
        takeover
          ERROR FAILURE tool.outcome_unknown @7: `a` failed: the worker was lost while the tool was called; it is unknown whether the call took effect, and it may still do so: check before you retry; a second call could repeat its effect, so a person must decide
            -> settle E a --succeeded | settle E a --failed | retry E!
          ERROR FAILURE tool.unavailable @10: `b` failed: the worker was lost, and the execution failed before the step could run again
            -> retry E | doctor
          ERROR FAILURE tool.unavailable @11: `c` failed: the worker was lost, and the execution failed before the step could run again
            -> retry E | doctor
          INFO TAKEOVER takeover @6: the worker `work_1_aaaaaaaaa` on node1 was lost while `a`, `b` and `c` ran, and `work_2_aaaaaaaaa` on node2 took the execution over
        handover
          INFO TAKEOVER takeover @3: no step started for 5 s, until `work_2_aaaaaaaaa` on node2 took the execution over from `work_1_aaaaaaaaa` on node1
          INFO WAIT wait.limit : `limited` waits for the limit `tool:shop.limited`
        release
          INFO WAIT wait.call @6: `a` is being called (`shop.a`), attempt 1
        undone
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO WARNING compensation.undone @11: undone by `shop.refund`: `a`
          INFO WARNING compensation.none @6: `mail` is not undone, because the plan has no `compensate` for it
        undo failed
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          ERROR WARNING compensation.failed @11: `a` could not be undone by `shop.refund`: tool.failed: gone
            -> tools call shop.refund '{"id":7}'!
          INFO WARNING compensation.none @6: `mail` is not undone, because the plan has no `compensate` for it
        not undone
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          WARNING WARNING compensation.not_undone @4: `a` was not undone, because compensation was turned off
            -> tools call shop.refund '{"id":7}'!
        not undone, replans
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          WARNING WARNING compensation.not_undone @4: `a` was not undone, because `replans` requests a replan
            -> tools call shop.refund '{"id":7}'!
          INFO WARNING compensation.off : a failure undoes nothing, because `replans` requests a replan
        off while it runs
          INFO WAIT wait.call @3: `a` is being called (`shop.a`), attempt 1
          INFO WARNING compensation.off : a failure undoes nothing, because `replans` requests a replan
        loop, undone in part
          ERROR FAILURE tool.failed @10: `a[1]` failed: item 1: no; of 2 items, 1 failed and 1 succeeded; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO WARNING compensation.undone @13: undone by `shop.refund`: `a[0]`
        loop, not undone
          ERROR FAILURE tool.failed @10: `a[1]` failed: item 1: no; of 2 items, 1 failed and 1 succeeded; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          WARNING WARNING compensation.not_undone @8: `a[0]` was not undone, because compensation was turned off
            -> tools call shop.refund '{"id":1}'!
        unknown, not undone
          ERROR FAILURE tool.outcome_unknown @4: `a` failed: it broke off; it is unknown whether the call took effect, and it may still do so: check before you retry; a second call could repeat its effect, so a person must decide
            -> settle E a --succeeded | settle E a --failed | retry E!
          WARNING WARNING compensation.unknown @4: `a` may have taken effect and is not undone: `shop.refund` undoes it
          INFO SKIP skip.execution_failed @4: `mail` did not run, because `a` failed first
          INFO SKIP skip.execution_failed @4: `b` did not run, because `a` failed first
    "#]].assert_eq(&table);
}

#[test]
fn every_documented_code_has_a_test_case() {
    let documented = include_str!("../../../../../docs/errors.md");
    let (_, errors) = documented.split_once("## Step errors").unwrap();
    let (errors, _) = errors.split_once("## API errors").unwrap();
    let codes = errors.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let all = failure_cases().into_iter().chain(wait_cases()).chain(other_cases());
    let table: String = all.map(|(_, lines)| lines).collect();
    for (code, _) in codes {
        let is_tested = table.contains(&format!(" {code} "));
        // A step whose call was cancelled is `CANCELLED`, so no step fails with `tool.cancelled`.
        assert!(is_tested || code == "tool.cancelled", "{code} is missing:\n{table}");
    }
}

#[test]
fn the_most_severe_finding_comes_first() {
    let story = Story::from_steps(&[
        make_step("a", &[], make_policy(json!({ "effect": "read", "on_error": "wait" }))),
        make_step("b", &[], make_policy(json!({ "effect": "read", "requires_approval": true }))),
        make_step("c", &[], json!({})),
    ]);
    let story =
        story.advance_ms(10).fail_step("a", make_error("tool.failed", "no").without_retry());
    let all = find_findings(&story.execution, None, at_ms(10), MAX_FINDINGS);
    let codes: Vec<_> = all.iter().map(|finding| &*finding.code).collect();
    assert_eq!(codes, ["wait.decision", "wait.approval", "wait.call"]);
    assert_eq!(find_findings(&story.execution, None, at_ms(10), 1), all[..1]);
}

#[test]
fn findings_about_failed_items_are_limited() {
    let steps = [
        make_step("list", &[], json!({})),
        make_step(
            "a",
            &["list"],
            json!({ "for_each": "{{list}}",
            "policy": { "effect": "read", "on_error": "ignore" } }),
        ),
    ];
    let mut story = Story::from_steps(&steps).succeed_step("list", (0..1_000).collect());
    for n in 0..1_000 {
        story =
            story.fail_step(&format!("a[{n}]"), make_error("tool.failed", "no").without_retry());
    }
    let found = find_findings(&story.execution, None, at_ms(0), usize::MAX);
    assert_eq!(found.len(), MAX_FINDINGS);
    assert_eq!(found[99].index, Some(99));
}

#[test]
fn a_failed_planning_has_a_finding() {
    let id = "req_1_aaaaaaaaa".parse().unwrap();
    let request = shared::request::Request::new(id, "pay it's bill".to_owned(), at_ms(0));
    let found = |kind: &str, content: Value| {
        let entry =
            shared::request::TranscriptEntry { at: at_ms(1), kind: kind.to_owned(), content };
        draw_findings(&find_planning_findings(&request, &[entry], MAX_FINDINGS))
    };
    let refused = |code: &str| found("error", json!({ "code": code, "message": "no" }));
    let diagnostics = found(
        "diagnostics",
        json!([
            { "severity": "WARNING", "code": "plan.guessed_value", "path": "", "message": "guessed" },
            { "severity": "ERROR", "code": "plan.unknown_tool", "path": "tools[0].name",
              "message": "no tool is called `pay`", "help": "did you mean `shop.pay`?" },
        ]),
    );
    let all = [refused("NO_PLAN_FOUND"), refused("PLANNER_UNAVAILABLE"), diagnostics];
    expect![[r"
        planning
          ERROR FAILURE NO_PLAN_FOUND : no
            -> run --plan FILE
          ERROR FAILURE PLANNER_UNAVAILABLE : no
            -> doctor | run 'pay it'\''s bill'
          ERROR FAILURE plan.unknown_tool : no tool is called `pay` (tools[0].name) (help: did you mean `shop.pay`?)
          WARNING WARNING plan.guessed_value : guessed
    "]]
    .assert_eq(&format!("planning\n{}", all.concat()));
    assert_eq!(found("draft", json!({})), "", "planning still runs");
}

/// The lost worker reported its last progress after two seconds. The next worker claimed the
/// execution eight seconds later and worked for one second.
#[test]
fn time_without_a_worker_does_not_count_as_work() {
    let mut story = Story::from_steps(&[make_step("a", &[], json!({}))]);
    let task = story.find_task("a");
    story.now = 2_000;
    let progress = shared::tool::Progress { progress: 0.5, total: None, message: None };
    let attempt = Attempt::FIRST;
    story = story.with_input(Input::Progressed { task, attempt, progress });
    story.now = 10_000;
    story = story.claim_by(2).advance_ms(1_000).succeed_step("a", json!(1));
    let step = story.execution.task(task).unwrap();
    assert_eq!(step.spent.worked.num_milliseconds(), 3_000);
    assert_eq!(step.attempts, 2);
}
