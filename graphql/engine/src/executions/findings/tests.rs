//! The table of findings: every failure code, wait, skip, takeover, limit and missing tool.

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

fn at(ms: i64) -> Timestamp {
    Timestamp::from_timestamp_millis(ms).unwrap()
}

fn worker(n: u32) -> WorkerId {
    format!("work_{n}_aaaaaaaaa").parse().unwrap()
}

/// An execution that a test drives event by event.
struct Story {
    execution: Execution,
    now: i64,
    commands: u32,
    /// Why a child execution waits.
    child: Option<(ExecutionId, Finding)>,
}

/// Returns a step of a plan. `fields` override its defaults.
fn step(id: &str, needs: &[&str], fields: Value) -> Value {
    let mut step = json!({ "id": id, "tool": format!("shop.{id}"), "parameters": {},
        "depends_on": needs, "policy": { "effect": "read" } });
    for (name, value) in fields.as_object().unwrap() {
        step[name] = value.clone();
    }
    step
}

fn policy(fields: Value) -> Value {
    json!({ "policy": fields })
}

impl Story {
    fn with(steps: &[Value], options: ExecutionOptions) -> Self {
        Self::that_repeats(steps, options, Vec::new())
    }

    /// Creates a retry of an execution that had calls with an unknown outcome.
    fn that_repeats(steps: &[Value], options: ExecutionOptions, call_keys: Vec<CallKey>) -> Self {
        let plan = json!({
            "about": { "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "", "planner": "explicit", "created_at": 0 },
            "steps": steps,
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        let created =
            Created { call_keys, ..Created::new(plan.id(), plan.info().request, options) };
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let (execution, _) = machine::create_execution_from(id, &plan, created, at(0)).unwrap();
        Self { execution, now: 0, commands: 0, child: None }
    }

    fn of(steps: &[Value]) -> Self {
        Self::with(steps, ExecutionOptions::default()).claim(1)
    }

    fn input(mut self, input: Input) -> Self {
        machine::decide(&mut self.execution, input, at(self.now));
        self
    }

    fn claim(self, n: u32) -> Self {
        let node = format!("node{n}").into();
        self.input(Input::Claimed { worker: worker(n), node, commands_follow: false })
    }

    fn after(mut self, ms: i64) -> Self {
        self.now += ms;
        self.input(Input::Woken)
    }

    fn task(&self, name: &str) -> Task {
        let (name, item) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((name, item)) => (name, Some(item.parse().unwrap())),
            None => (name, None),
        };
        let step = self.execution.plan().step_number(&name.parse().unwrap()).unwrap();
        Task { step, part: Part { item, undo: false } }
    }

    fn end(self, task: Task, result: Result<Value, ToolError>) -> Self {
        let attempts = self.execution.task(task).map_or(1, |step| step.attempts);
        let attempt = Attempt::nth_after(attempts - 1);
        let result = result.map(CallOutput::from);
        self.input(Input::Ended { task, attempt, result })
    }

    fn succeed(self, name: &str, output: Value) -> Self {
        let task = self.task(name);
        self.end(task, Ok(output))
    }

    fn fail(self, name: &str, error: ToolError) -> Self {
        let task = self.task(name);
        self.end(task, Err(error))
    }

    fn undo(self, name: &str, result: Result<Value, ToolError>) -> Self {
        let task = self.task(name).compensation();
        self.end(task, result)
    }

    fn command(mut self, command: Command) -> Self {
        self.commands += 1;
        let id = format!("cmd_{}_aaaaaaaaa", self.commands).parse().unwrap();
        let (execution, at) = (self.execution.id(), at(self.now));
        self.input(Input::Command(SentCommand { id, execution, at, command }))
    }

    /// Writes the findings while worker 1 is alive.
    fn lines(&self) -> String {
        self.lines_with(&[], &[worker(1)], None)
    }

    fn lines_with(
        &self,
        inbox: &[SentCommand],
        workers: &[WorkerId],
        toolbox: Option<&Toolbox>,
    ) -> String {
        let owner = self.execution.owner().map(|owner| owner.worker);
        let due = owner.is_none().then(|| at(0));
        let head = ExecutionHead::from_execution(&self.execution, owner, due);
        let tool = LimitedCalls::Tool("shop.limited".parse().unwrap());
        let rule = LimitRule { calls: tool, key: None, concurrency: Some(1), rate: None };
        let limits = CallLimits::new(vec![rule]);
        let children = &BTreeMap::from_iter(self.child.clone());
        let head = Some(&head);
        let around = NodeFacts { head, inbox, workers, limits: &limits, children, toolbox };
        draw(&find_findings(&self.execution, Some(&around), at(self.now), MAX_FINDINGS))
    }
}

fn draw(findings: &[Finding]) -> String {
    let mut lines = String::new();
    for finding in findings {
        let Finding { code, message, remedies, cause, .. } = finding;
        let severity = format!("{:?}", finding.severity).to_uppercase();
        let kind = format!("{:?}", finding.kind).to_uppercase();
        let cause = cause.map(|seq| format!("@{seq}")).unwrap_or_default();
        let remedies: Vec<String> = remedies
            .iter()
            .map(|remedy| {
                let command = remedy.command.clone().unwrap_or_default();
                let command = command.replace("exec_1_aaaaaaaaa", "E").replace("faber ", "");
                let danger = if remedy.is_dangerous { "!" } else { "" };
                format!("{command}{danger}").replace("plan_1_aaaaaaaaa", "P")
            })
            .collect();
        let _ = writeln!(lines, "  {severity} {kind} {code} {cause}: {message}");
        if !remedies.is_empty() {
            let _ = writeln!(lines, "    -> {}", remedies.join(" | "));
        }
    }
    lines
}

fn error(code: &str, message: &str) -> ToolError {
    // Only codes of tools can be retried.
    let known = [
        ErrorCode::FAILED,
        ErrorCode::TIMEOUT,
        ErrorCode::UNAVAILABLE,
        ErrorCode::INACTIVE,
        ErrorCode::OUTCOME_UNKNOWN,
        ErrorCode::INVALID_PARAMETERS,
        ErrorCode::OUTPUT_TOO_LARGE,
    ];
    let found = known.into_iter().find(|known| known.as_str() == code);
    ToolError::new(found.unwrap_or_else(|| ErrorCode::custom(code.to_owned())), message)
}

fn approve(step: &str, approved: bool) -> Command {
    let step = step.parse().unwrap();
    Command::Approve { step, item: None, approved, comment: None }
}

fn once() -> Value {
    policy(json!({ "effect": "once" }))
}

fn undoable(effect: &str) -> Value {
    json!({ "policy": { "effect": effect }, "compensate": { "tool": "shop.refund",
        "parameters": { "id": "{{a.id}}" }, "policy": { "effect": "idempotent" } } })
}

fn failures() -> Vec<(&'static str, String)> {
    let one = |fields: Value| Story::of(&[step("a", &[], fields), step("b", &["a"], json!({}))]);
    let read = || policy(json!({ "effect": "read" }));
    let with_input = |options| {
        Story::with(
            &[step(
                "a",
                &[],
                json!({ "parameters": { "to": "{{input.mail}}" }, "policy": { "effect": "once" } }),
            )],
            options,
        )
        .claim(1)
    };
    let deadline = || ExecutionOptions { deadline_ms: Some(50), ..ExecutionOptions::default() };
    let retrying =
        policy(json!({ "effect": "read", "retry": { "maxAttempts": 2, "jitter": false } }));
    let trace = "`a` exited with status 1: Traceback (most recent call last):\n  File \"a.py\"\n\
                 ValueError: unknown VAT code";
    let each = |on_error: &str| {
        Story::of(&[
            step("list", &[], json!({})),
            step(
                "a",
                &["list"],
                json!({ "for_each": "{{list}}",
            "policy": { "effect": "read", "on_error": on_error } }),
            ),
        ])
        .succeed("list", json!([1, 2, 3]))
        .succeed("a[0]", json!(1))
        .fail("a[1]", error("tool.failed", "no"))
        .succeed("a[2]", json!(3))
    };
    vec![
        ("tool.failed", one(read()).fail("a", error("tool.failed", trace)).lines()),
        (
            "not retryable",
            one(read()).fail("a", error("tool.failed", "409").without_retry()).lines(),
        ),
        (
            "all attempts",
            one(retrying)
                .fail("a", error("tool.failed", "503"))
                .after(200)
                .fail("a", error("tool.failed", "503"))
                .lines(),
        ),
        ("tool.timeout", one(read()).fail("a", error("tool.timeout", "no answer in 5 s")).lines()),
        ("tool.unavailable", one(read()).fail("a", error("tool.unavailable", "refused")).lines()),
        ("tool.inactive", one(read()).fail("a", error("tool.inactive", "its set is off")).lines()),
        (
            "tool.invalid_parameters",
            one(read()).fail("a", error("tool.invalid_parameters", "no id")).lines(),
        ),
        (
            "tool.output_too_large",
            one(read()).fail("a", error("tool.output_too_large", "9 MB")).lines(),
        ),
        (
            "tool.outcome_unknown",
            one(once()).fail("a", ToolError::outcome_unknown("it broke off")).lines(),
        ),
        ("custom code", one(read()).fail("a", error("payment.declined", "declined")).lines()),
        ("missing input", with_input(ExecutionOptions::default()).lines()),
        (
            "step.not_a_list",
            Story::of(&[
                step("list", &[], json!({})),
                step("a", &["list"], json!({ "for_each": "{{list}}" })),
            ])
            .succeed("list", json!(5))
            .lines(),
        ),
        (
            "step.rejected",
            one(policy(json!({ "effect": "once", "requires_approval": true })))
                .command(approve("a", false))
                .lines(),
        ),
        (
            "execution.deadline",
            Story::with(&[step("a", &[], json!({}))], deadline())
                .claim(1)
                .after(60)
                .fail("a", ToolError::new(ErrorCode::CANCELLED, "told to stop"))
                .lines(),
        ),
        (
            "deadline of a wait",
            Story::with(
                &[step("a", &[], policy(json!({ "requires_approval": true })))],
                deadline(),
            )
            .claim(1)
            .after(60)
            .lines(),
        ),
        (
            "cancelled",
            one(read())
                .command(Command::Cancel { reason: Some("wrong shop".to_owned()) })
                .fail("a", ToolError::new(ErrorCode::CANCELLED, "told to stop"))
                .lines(),
        ),
        (
            "on_error continue",
            one(policy(json!({ "effect": "read", "on_error": "continue" })))
                .fail("a", error("tool.failed", "no"))
                .lines(),
        ),
        ("item, fail", each("fail").lines()),
        ("item, ignore", each("ignore").lines()),
        ("dry run", {
            let options = ExecutionOptions { dry_run: true, ..ExecutionOptions::default() };
            with_input(options).lines()
        }),
    ]
}

fn waits() -> Vec<(&'static str, String)> {
    let one = |fields: Value| Story::of(&[step("a", &[], fields)]);
    let asks = || one(policy(json!({ "effect": "once", "requires_approval": true })));
    let decide = |effect: &str| one(policy(json!({ "effect": effect, "on_error": "wait" })));
    let wide = |options, steps: &[Value]| Story::with(steps, options).claim(1);
    let start = ExecutionOptions { start_at: Some(at(90_000)), ..ExecutionOptions::default() };
    let narrow = ExecutionOptions { max_parallel: Some(1), ..ExecutionOptions::default() };
    let retry = policy(
        json!({ "effect": "read", "retry": { "maxAttempts": 50, "backoffMs": 18_000, "jitter": false } }),
    );
    let sent = |command| {
        let id = "cmd_9_aaaaaaaaa".parse().unwrap();
        [SentCommand { id, execution: "exec_1_aaaaaaaaa".parse().unwrap(), at: at(0), command }]
    };
    let two = || Story::of(&[step("a", &[], once()), step("b", &[], json!({}))]);
    let toolbox = Toolbox::default();
    vec![
        ("approval", asks().lines()),
        ("answered", asks().lines_with(&sent(approve("a", true)), &[], None)),
        ("decision", decide("read").fail("a", error("tool.failed", "503")).lines()),
        (
            "decision, unknown",
            decide("once").fail("a", ToolError::outcome_unknown("it broke off")).lines(),
        ),
        ("signal", one(json!({ "tool": "flow.wait", "parameters": { "name": "paid" } })).lines()),
        ("retry", one(retry).fail("a", error("tool.failed", "Error: no stock\n  at x")).lines()),
        ("sleep", one(json!({ "tool": "flow.sleep", "parameters": { "ms": 18_000 } })).lines()),
        ("child", one(json!({ "tool": "other", "plan": "plan_2_aaaaaaaaa" })).lines()),
        ("child that waits", {
            let mut story = one(json!({ "tool": "other", "plan": "plan_2_aaaaaaaaa" }));
            let asks = asks();
            let found = find_reason(find_findings(&asks.execution, None, at(0), MAX_FINDINGS));
            let child = story.execution.task(story.task("a")).unwrap().child.unwrap();
            story.child = found.map(|found| (child, found));
            story.lines()
        }),
        ("child that calls", {
            let called = find_findings(&two().execution, None, at(0), MAX_FINDINGS);
            assert_eq!(find_reason(called), None);
            String::new()
        }),
        ("call", two().lines()),
        (
            "items",
            Story::of(&[
                step("list", &[], json!({})),
                step("a", &["list"], json!({ "for_each": "{{list}}" })),
            ])
            .succeed("list", json!([1, 2]))
            .succeed("a[0]", json!(1))
            .lines(),
        ),
        ("limit of calls", {
            let mut story =
                Story::with(&[step("limited", &[], json!({}))], ExecutionOptions::default());
            let tools = ["shop.limited".parse().unwrap()].into();
            story.execution.set_limited_tools(Arc::new(tools));
            story.claim(1).lines()
        }),
        (
            "limit of steps",
            wide(narrow, &[step("a", &[], json!({})), step("b", &[], json!({}))]).lines(),
        ),
        ("paused", one(json!({})).command(Command::Pause).lines()),
        ("start", wide(start, &[step("a", &[], json!({}))]).lines()),
        (
            "no worker took it",
            Story::with(&[step("a", &[], json!({}))], ExecutionOptions::default()).lines_with(
                &[],
                &[],
                None,
            ),
        ),
        (
            "busy workers",
            Story::with(&[step("a", &[], json!({}))], ExecutionOptions::default()).lines(),
        ),
        ("its worker was lost", two().lines_with(&[], &[], None)),
        ("a tool is missing", two().lines_with(&[], &[], Some(&toolbox))),
    ]
}

fn others() -> Vec<(&'static str, String)> {
    let default = ExecutionOptions::default;
    let undoing = || ExecutionOptions { compensate_on_failure: true, ..default() };
    let replanning = || ExecutionOptions { replans: ReplanOptions::times(1), ..default() };
    let when = json!({ "when": "a.total > 50 && a.vip" });
    let shop = |options, effect| {
        let steps = [
            step("a", &[], undoable(effect)),
            step("mail", &["a"], once()),
            step("b", &["mail"], json!({})),
        ];
        Story::with(&steps, options).claim(1)
    };
    let broken = |options| {
        shop(options, "once")
            .succeed("a", json!({ "id": 7 }))
            .succeed("mail", json!(1))
            .fail("b", error("tool.failed", "no").without_retry())
    };
    let loops = |options| {
        let mut looped = undoable("once");
        looped["for_each"] = json!("{{list}}");
        looped["compensate"]["parameters"] = json!({ "id": "{{item}}" });
        Story::with(&[step("list", &[], json!({})), step("a", &["list"], looped)], options)
            .claim(1)
            .succeed("list", json!([1, 2]))
            .succeed("a[0]", json!(1))
            .fail("a[1]", error("tool.failed", "no").without_retry())
    };
    let two = || {
        Story::of(&[step("a", &[], once()), step("b", &[], json!({})), step("c", &[], json!({}))])
    };
    let retry = policy(json!({ "effect": "read", "retry": { "maxAttempts": 3 } }));
    vec![
        (
            "skip by condition",
            Story::of(&[step("a", &[], json!({})), step("b", &["a"], when)])
                .succeed("a", json!({ "total": 12 }))
                .lines(),
        ),
        ("skip by dry run", {
            let mut story = Story::with(&[step("a", &[], json!({}))], default());
            let (step, part) = ("a".parse().unwrap(), Part::WHOLE);
            let event = Event::StepSkipped { step, part, reason: SkipReason::DryRun };
            let seq = story.execution.seq().next();
            story.execution.apply(&RecordedEvent { seq, at: at(0), event }).unwrap();
            story.claim(1).lines()
        }),
        (
            "skip by dependency",
            Story::of(&[
                step("a", &[], policy(json!({ "effect": "read", "on_error": "continue" }))),
                step("b", &["a"], json!({})),
                step("c", &["b"], json!({})),
            ])
            .fail("a", error("tool.failed", "no").without_retry())
            .lines(),
        ),
        (
            "template left standing",
            Story::of(&[
                step("a", &[], json!({})),
                step("b", &["a"], json!({ "parameters": { "text": "{{a.foo}}" } })),
            ])
            .succeed("a", json!({}))
            .succeed("b", json!(1))
            .lines(),
        ),
        ("call with other parameters", {
            let once = step("a", &[], policy(json!({ "effect": "once" })));
            let place = CallPlace { step: "a".parse().unwrap(), item: None, child: None };
            let key =
                CallKey { place, key: "exec_2_aaaaaaaaa/a".into(), parameters: "other".into() };
            Story::that_repeats(&[once], default(), vec![key])
                .claim(1)
                .succeed("a", json!(1))
                .lines()
        }),
        (
            "retried",
            Story::of(&[step("a", &[], retry)])
                .fail("a", error("tool.failed", "503"))
                .after(40_000)
                .succeed("a", json!(1))
                .lines(),
        ),
        ("a clock was ahead", {
            let sleep = json!({ "tool": "flow.sleep", "parameters": { "ms": 5_000 } });
            let mut story = Story::with(&[step("a", &[], sleep)], default());
            story.now = 7_300_000;
            story = story.claim(1);
            story.now = 1_000;
            story.claim(1).lines()
        }),
        ("takeover", two().after(5_000).claim(2).lines_with(&[], &[worker(2)], None)),
        (
            "release",
            Story::of(&[step("a", &[], policy(json!({ "requires_approval": true })))])
                .claim(2)
                .command(approve("a", true))
                .lines_with(&[], &[worker(2)], None),
        ),
        ("undone", broken(undoing()).undo("a", Ok(json!(null))).lines()),
        (
            "undo failed",
            broken(undoing()).undo("a", Err(error("tool.failed", "gone").without_retry())).lines(),
        ),
        ("not undone", broken(default()).lines()),
        ("not undone, replans", broken(replanning()).lines()),
        ("off while it runs", shop(replanning(), "once").lines()),
        ("loop, undone in part", loops(undoing()).undo("a[0]", Ok(json!(null))).lines()),
        ("loop, not undone", loops(default()).lines()),
        (
            "unknown, not undone",
            shop(undoing(), "once").fail("a", ToolError::outcome_unknown("it broke off")).lines(),
        ),
    ]
}

#[test]
fn every_finding_has_its_message_and_remedies() {
    let mut table = String::new();
    for (name, lines) in failures().into_iter().chain(waits()).chain(others()) {
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
        cancelled
          WARNING FAILURE execution.cancelled @4: the execution was cancelled: wrong shop
            -> retry E
        on_error continue
          WARNING FAILURE tool.failed @4: `a` failed: no; its plan allows one attempt (`retry.maxAttempts`)
            -> retry E
          INFO SKIP skip.dependency @4: `b` did not run, because `a` failed, which it needs
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
          WARNING WAIT wait.worker @3: `a` was approved, and no worker has read that yet
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
          INFO WAIT wait.items @5: `a` is done with 1 of 2 items
          INFO WAIT wait.call @7: `a[1]` is being called (`shop.a`), attempt 1
        limit of calls
          INFO WAIT wait.limit : `limited` waits for the limit `tool:shop.limited`
        limit of steps
          INFO WAIT wait.call @3: `a` is being called (`shop.a`), attempt 1
          INFO WAIT wait.limit : `b` waits for a free slot: at most 1 run at once (`maxParallel`)
        paused
          WARNING WAIT wait.paused @4: it was paused
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
          INFO SKIP skip.dependency @4: `b` did not run, because `a` failed, which it needs
          INFO SKIP skip.dependency @4: `c` did not run, because `a` failed, which it needs
        template left standing
          WARNING WARNING warning.template @6: `b`: `{{a.foo}}` has no value and was passed on as written
            -> revise P FILE
        call with other parameters
          WARNING WARNING warning.idempotency_key @4: `a`: an earlier call of this step has an unknown outcome and had other parameters, so this call sends a new idempotency key
        retried
          INFO WARNING retried @6: `a` succeeded at attempt 2; before, tool.failed: 503
        a clock was ahead
          WARNING WARNING waits_shortened @5: a clock was 2 h ahead, so waits and the deadline were shortened to their own length
          INFO WAIT wait.sleep @3: `a` sleeps for another 5 s
        takeover
          ERROR FAILURE tool.outcome_unknown @7: `a` failed: the worker was lost while the tool was called; it is unknown whether the call took effect, and it may still do so: check before you retry; a second call could repeat its effect, so a person must decide
            -> settle E a --succeeded | settle E a --failed | retry E!
          ERROR FAILURE tool.unavailable @10: `b` failed: the worker was lost, and the execution has failed meanwhile
            -> retry E | doctor
          ERROR FAILURE tool.unavailable @11: `c` failed: the worker was lost, and the execution has failed meanwhile
            -> retry E | doctor
          INFO TAKEOVER takeover @6: the worker `work_1_aaaaaaaaa` on node1 was lost while `a`, `b` and `c` ran, and `work_2_aaaaaaaaa` on node2 took the execution over
        release
          INFO WAIT wait.call @6: `a` is being called (`shop.a`), attempt 1
        undone
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          INFO WARNING compensation.undone @11: undone by `shop.refund`: `a`
          INFO WARNING compensation.none @6: `mail` stays done, because the plan has no `compensate` for it
        undo failed
          ERROR FAILURE tool.failed @8: `b` failed: no; it was not tried again because it would fail again
            -> revise P FILE | replan E | retry E
          ERROR WARNING compensation.failed @11: `a` could not be undone by `shop.refund`: tool.failed: gone
            -> tools call shop.refund '{"id":7}'!
          INFO WARNING compensation.none @6: `mail` stays done, because the plan has no `compensate` for it
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
    let all = failures().into_iter().chain(waits()).chain(others());
    let table: String = all.map(|(_, lines)| lines).collect();
    for (code, _) in codes {
        let is_told = table.contains(&format!(" {code} "));
        // A cancelled call makes its step CANCELLED, so that no step fails with this code.
        assert!(is_told || code == "tool.cancelled", "{code} is missing:\n{table}");
    }
}

#[test]
fn the_most_severe_finding_comes_first() {
    let story = Story::of(&[
        step("a", &[], policy(json!({ "effect": "read", "on_error": "wait" }))),
        step("b", &[], policy(json!({ "effect": "read", "requires_approval": true }))),
        step("c", &[], json!({})),
    ]);
    let story = story.after(10).fail("a", error("tool.failed", "no").without_retry());
    let all = find_findings(&story.execution, None, at(10), MAX_FINDINGS);
    let codes: Vec<_> = all.iter().map(|finding| &*finding.code).collect();
    assert_eq!(codes, ["wait.decision", "wait.approval", "wait.call"]);
    assert_eq!(find_findings(&story.execution, None, at(10), 1), all[..1]);
}

#[test]
fn findings_about_failed_items_are_limited() {
    let steps = [
        step("list", &[], json!({})),
        step(
            "a",
            &["list"],
            json!({ "for_each": "{{list}}",
            "policy": { "effect": "read", "on_error": "ignore" } }),
        ),
    ];
    let mut story = Story::of(&steps).succeed("list", (0..1_000).collect());
    for n in 0..1_000 {
        story = story.fail(&format!("a[{n}]"), error("tool.failed", "no").without_retry());
    }
    let found = find_findings(&story.execution, None, at(0), usize::MAX);
    assert_eq!(found.len(), MAX_FINDINGS);
    assert_eq!(found[99].index, Some(99));
}

#[test]
fn a_failed_planning_has_a_finding() {
    let request = shared::request::Request {
        id: "req_1_aaaaaaaaa".parse().unwrap(),
        query: "pay it's bill".to_owned(),
        created_at: at(0),
    };
    let found = |kind: &str, content: Value| {
        let entry = shared::request::TranscriptEntry { at: at(1), kind: kind.to_owned(), content };
        draw(&find_planning_findings(&request, &[entry], MAX_FINDINGS))
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
    let mut story = Story::of(&[step("a", &[], json!({}))]);
    let task = story.task("a");
    story.now = 2_000;
    let progress = shared::tool::Progress { progress: 0.5, total: None, message: None };
    let attempt = Attempt::FIRST;
    story = story.input(Input::Progressed { task, attempt, progress });
    story.now = 10_000;
    story = story.claim(2).after(1_000).succeed("a", json!(1));
    let step = story.execution.task(task).unwrap();
    assert_eq!(step.spent.worked.num_milliseconds(), 3_000);
    assert_eq!(step.attempts, 2);
}
