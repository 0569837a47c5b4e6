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

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_timestamp_millis(ms).unwrap()
}

fn worker_id(n: u32) -> WorkerId {
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
fn make_step(id: &str, needs: &[&str], fields: Value) -> Value {
    let mut step = json!({ "id": id, "tool": format!("shop.{id}"), "parameters": {},
        "depends_on": needs, "policy": { "effect": "read" } });
    for (name, value) in fields.as_object().unwrap() {
        step[name] = value.clone();
    }
    step
}

fn make_policy(fields: Value) -> Value {
    json!({ "policy": fields })
}

impl Story {
    fn with_options(steps: &[Value], options: ExecutionOptions) -> Self {
        Self::retry_of_calls(steps, options, Vec::new())
    }

    /// Creates a retry of an execution that had calls with an unknown outcome.
    fn retry_of_calls(steps: &[Value], options: ExecutionOptions, call_keys: Vec<CallKey>) -> Self {
        let plan = json!({
            "about": { "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "", "planner": "explicit", "created_at": 0 },
            "steps": steps,
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        let created =
            Created { call_keys, ..Created::new(plan.id(), plan.info().request, options) };
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let (execution, _) = machine::create_execution_from(id, &plan, created, at_ms(0)).unwrap();
        Self { execution, now: 0, commands: 0, child: None }
    }

    fn from_steps(steps: &[Value]) -> Self {
        Self::with_options(steps, ExecutionOptions::default()).claim_by(1)
    }

    fn with_input(mut self, input: Input) -> Self {
        machine::decide(&mut self.execution, input, at_ms(self.now));
        self
    }

    fn claim_by(self, n: u32) -> Self {
        let node = format!("node{n}").into();
        self.with_input(Input::Claimed { worker: worker_id(n), node, commands_follow: false })
    }

    fn advance_ms(mut self, ms: i64) -> Self {
        self.now += ms;
        self.with_input(Input::Woken)
    }

    fn find_task(&self, name: &str) -> Task {
        let (name, item) = match name.strip_suffix(']').and_then(|name| name.split_once('[')) {
            Some((name, item)) => (name, Some(item.parse().unwrap())),
            None => (name, None),
        };
        let step = self.execution.plan().step_number(&name.parse().unwrap()).unwrap();
        Task { step, part: Part { item, undo: false } }
    }

    fn end_call(self, task: Task, result: Result<Value, ToolError>) -> Self {
        let attempts = self.execution.task(task).map_or(1, |step| step.attempts);
        let attempt = Attempt::nth_after(attempts - 1);
        let result = result.map(CallOutput::from);
        self.with_input(Input::Ended { task, attempt, result })
    }

    fn succeed_step(self, name: &str, output: Value) -> Self {
        let task = self.find_task(name);
        self.end_call(task, Ok(output))
    }

    fn fail_step(self, name: &str, error: ToolError) -> Self {
        let task = self.find_task(name);
        self.end_call(task, Err(error))
    }

    fn undo_step(self, name: &str, result: Result<Value, ToolError>) -> Self {
        let task = self.find_task(name).compensation();
        self.end_call(task, result)
    }

    fn command(mut self, command: Command) -> Self {
        self.commands += 1;
        let id = format!("cmd_{}_aaaaaaaaa", self.commands).parse().unwrap();
        let (execution, at) = (self.execution.id(), at_ms(self.now));
        self.with_input(Input::Command(SentCommand { id, execution, at, command }))
    }

    /// Writes the findings while worker 1 is alive.
    fn finding_lines(&self) -> String {
        self.finding_lines_with(&[], &[worker_id(1)], None)
    }

    fn finding_lines_with(
        &self,
        inbox: &[SentCommand],
        workers: &[WorkerId],
        toolbox: Option<&Toolbox>,
    ) -> String {
        let owner = self.execution.owner().map(|owner| owner.worker);
        let due = owner.is_none().then(|| at_ms(0));
        let head = ExecutionHead::from_execution(&self.execution, owner, due);
        let tool = LimitedCalls::Tool("shop.limited".parse().unwrap());
        let rule = LimitRule { calls: tool, key: None, concurrency: Some(1), rate: None };
        let limits = CallLimits::new(vec![rule]);
        let children = &BTreeMap::from_iter(self.child.clone());
        let head = Some(&head);
        let node_facts = NodeFacts { head, inbox, workers, limits: &limits, children, toolbox };
        draw_findings(&find_findings(
            &self.execution,
            Some(&node_facts),
            at_ms(self.now),
            MAX_FINDINGS,
        ))
    }
}

fn draw_findings(findings: &[Finding]) -> String {
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

fn make_error(code: &str, message: &str) -> ToolError {
    // Only codes of tools can be retried.
    let retryable_codes = [
        ErrorCode::FAILED,
        ErrorCode::TIMEOUT,
        ErrorCode::UNAVAILABLE,
        ErrorCode::INACTIVE,
        ErrorCode::OUTCOME_UNKNOWN,
        ErrorCode::INVALID_PARAMETERS,
        ErrorCode::OUTPUT_TOO_LARGE,
    ];
    let found =
        retryable_codes.into_iter().find(|retryable_codes| retryable_codes.as_str() == code);
    ToolError::new(found.unwrap_or_else(|| ErrorCode::custom(code.to_owned())), message)
}

fn approve_command(step: &str, approved: bool) -> Command {
    let step = step.parse().unwrap();
    Command::Approve { step, item: None, approved, comment: None }
}

fn once_tool() -> Value {
    make_policy(json!({ "effect": "once" }))
}

fn undoable_step(effect: &str) -> Value {
    json!({ "policy": { "effect": effect }, "compensate": { "tool": "shop.refund",
        "parameters": { "id": "{{a.id}}" }, "policy": { "effect": "idempotent" } } })
}

fn failure_cases() -> Vec<(&'static str, String)> {
    let one = |fields: Value| {
        Story::from_steps(&[make_step("a", &[], fields), make_step("b", &["a"], json!({}))])
    };
    let read = || make_policy(json!({ "effect": "read" }));
    let with_input = |options| {
        Story::with_options(
            &[make_step(
                "a",
                &[],
                json!({ "parameters": { "to": "{{input.mail}}" }, "policy": { "effect": "once" } }),
            )],
            options,
        )
        .claim_by(1)
    };
    let deadline = || ExecutionOptions { deadline_ms: Some(50), ..ExecutionOptions::default() };
    let retrying =
        make_policy(json!({ "effect": "read", "retry": { "maxAttempts": 2, "jitter": false } }));
    let trace = "`a` exited with status 1: Traceback (most recent call last):\n  File \"a.py\"\n\
                 ValueError: unknown VAT code";
    let each = |on_error: &str| {
        Story::from_steps(&[
            make_step("list", &[], json!({})),
            make_step(
                "a",
                &["list"],
                json!({ "for_each": "{{list}}",
            "policy": { "effect": "read", "on_error": on_error } }),
            ),
        ])
        .succeed_step("list", json!([1, 2, 3]))
        .succeed_step("a[0]", json!(1))
        .fail_step("a[1]", make_error("tool.failed", "no"))
        .succeed_step("a[2]", json!(3))
    };
    vec![
        (
            "tool.failed",
            one(read()).fail_step("a", make_error("tool.failed", trace)).finding_lines(),
        ),
        (
            "not retryable",
            one(read())
                .fail_step("a", make_error("tool.failed", "409").without_retry())
                .finding_lines(),
        ),
        (
            "all attempts",
            one(retrying)
                .fail_step("a", make_error("tool.failed", "503"))
                .advance_ms(200)
                .fail_step("a", make_error("tool.failed", "503"))
                .finding_lines(),
        ),
        (
            "tool.timeout",
            one(read())
                .fail_step("a", make_error("tool.timeout", "no answer in 5 s"))
                .finding_lines(),
        ),
        (
            "tool.unavailable",
            one(read()).fail_step("a", make_error("tool.unavailable", "refused")).finding_lines(),
        ),
        (
            "tool.inactive",
            one(read())
                .fail_step("a", make_error("tool.inactive", "its set is off"))
                .finding_lines(),
        ),
        (
            "tool.invalid_parameters",
            one(read())
                .fail_step("a", make_error("tool.invalid_parameters", "no id"))
                .finding_lines(),
        ),
        (
            "tool.output_too_large",
            one(read()).fail_step("a", make_error("tool.output_too_large", "9 MB")).finding_lines(),
        ),
        (
            "tool.outcome_unknown",
            one(once_tool())
                .fail_step("a", ToolError::outcome_unknown("it broke off"))
                .finding_lines(),
        ),
        (
            "custom code",
            one(read()).fail_step("a", make_error("payment.declined", "declined")).finding_lines(),
        ),
        ("missing input", with_input(ExecutionOptions::default()).finding_lines()),
        (
            "step.not_a_list",
            Story::from_steps(&[
                make_step("list", &[], json!({})),
                make_step("a", &["list"], json!({ "for_each": "{{list}}" })),
            ])
            .succeed_step("list", json!(5))
            .finding_lines(),
        ),
        (
            "step.rejected",
            one(make_policy(json!({ "effect": "once", "requires_approval": true })))
                .command(approve_command("a", false))
                .finding_lines(),
        ),
        (
            "execution.deadline",
            Story::with_options(&[make_step("a", &[], json!({}))], deadline())
                .claim_by(1)
                .advance_ms(60)
                .fail_step("a", ToolError::new(ErrorCode::CANCELLED, "told to stop"))
                .finding_lines(),
        ),
        (
            "deadline of a wait",
            Story::with_options(
                &[make_step("a", &[], make_policy(json!({ "requires_approval": true })))],
                deadline(),
            )
            .claim_by(1)
            .advance_ms(60)
            .finding_lines(),
        ),
        (
            "cancelled",
            one(read())
                .command(Command::Cancel { reason: Some("wrong shop".to_owned()) })
                .fail_step("a", ToolError::new(ErrorCode::CANCELLED, "told to stop"))
                .finding_lines(),
        ),
        (
            "on_error continue",
            one(make_policy(json!({ "effect": "read", "on_error": "continue" })))
                .fail_step("a", make_error("tool.failed", "no"))
                .finding_lines(),
        ),
        ("item, fail", each("fail").finding_lines()),
        ("item, ignore", each("ignore").finding_lines()),
        ("dry run", {
            let options = ExecutionOptions { dry_run: true, ..ExecutionOptions::default() };
            with_input(options).finding_lines()
        }),
    ]
}

fn wait_cases() -> Vec<(&'static str, String)> {
    let one = |fields: Value| Story::from_steps(&[make_step("a", &[], fields)]);
    let asks = || one(make_policy(json!({ "effect": "once", "requires_approval": true })));
    let decide = |effect: &str| one(make_policy(json!({ "effect": effect, "on_error": "wait" })));
    let wide = |options, steps: &[Value]| Story::with_options(steps, options).claim_by(1);
    let start = ExecutionOptions { start_at: Some(at_ms(90_000)), ..ExecutionOptions::default() };
    let narrow = ExecutionOptions { max_parallel: Some(1), ..ExecutionOptions::default() };
    let retry = make_policy(
        json!({ "effect": "read", "retry": { "maxAttempts": 50, "backoffMs": 18_000, "jitter": false } }),
    );
    let sent = |command| {
        let id = "cmd_9_aaaaaaaaa".parse().unwrap();
        [SentCommand { id, execution: "exec_1_aaaaaaaaa".parse().unwrap(), at: at_ms(0), command }]
    };
    let two =
        || Story::from_steps(&[make_step("a", &[], once_tool()), make_step("b", &[], json!({}))]);
    let toolbox = Toolbox::default();
    vec![
        ("approval", asks().finding_lines()),
        ("answered", asks().finding_lines_with(&sent(approve_command("a", true)), &[], None)),
        (
            "decision",
            decide("read").fail_step("a", make_error("tool.failed", "503")).finding_lines(),
        ),
        (
            "decision, unknown",
            decide("once")
                .fail_step("a", ToolError::outcome_unknown("it broke off"))
                .finding_lines(),
        ),
        (
            "signal",
            one(json!({ "tool": "flow.wait", "parameters": { "name": "paid" } })).finding_lines(),
        ),
        (
            "retry",
            one(retry)
                .fail_step("a", make_error("tool.failed", "Error: no stock\n  at x"))
                .finding_lines(),
        ),
        (
            "sleep",
            one(json!({ "tool": "flow.sleep", "parameters": { "ms": 18_000 } })).finding_lines(),
        ),
        ("child", one(json!({ "tool": "other", "plan": "plan_2_aaaaaaaaa" })).finding_lines()),
        ("child that waits", {
            let mut story = one(json!({ "tool": "other", "plan": "plan_2_aaaaaaaaa" }));
            let asks = asks();
            let found = find_reason(find_findings(&asks.execution, None, at_ms(0), MAX_FINDINGS));
            let child = story.execution.task(story.find_task("a")).unwrap().child.unwrap();
            story.child = found.map(|found| (child, found));
            story.finding_lines()
        }),
        ("child that calls", {
            let called = find_findings(&two().execution, None, at_ms(0), MAX_FINDINGS);
            assert_eq!(find_reason(called), None);
            String::new()
        }),
        ("call", two().finding_lines()),
        (
            "items",
            Story::from_steps(&[
                make_step("list", &[], json!({})),
                make_step("a", &["list"], json!({ "for_each": "{{list}}" })),
            ])
            .succeed_step("list", json!([1, 2]))
            .succeed_step("a[0]", json!(1))
            .finding_lines(),
        ),
        ("limit of calls", {
            let mut story = Story::with_options(
                &[make_step("limited", &[], json!({}))],
                ExecutionOptions::default(),
            );
            let tools = ["shop.limited".parse().unwrap()].into();
            story.execution.set_limited_tools(Arc::new(tools));
            story.claim_by(1).finding_lines()
        }),
        (
            "limit of steps",
            wide(narrow, &[make_step("a", &[], json!({})), make_step("b", &[], json!({}))])
                .finding_lines(),
        ),
        ("paused", one(json!({})).command(Command::Pause).finding_lines()),
        ("start", wide(start, &[make_step("a", &[], json!({}))]).finding_lines()),
        (
            "no worker took it",
            Story::with_options(&[make_step("a", &[], json!({}))], ExecutionOptions::default())
                .finding_lines_with(&[], &[], None),
        ),
        (
            "busy workers",
            Story::with_options(&[make_step("a", &[], json!({}))], ExecutionOptions::default())
                .finding_lines(),
        ),
        ("its worker was lost", two().finding_lines_with(&[], &[], None)),
        ("a tool is missing", two().finding_lines_with(&[], &[], Some(&toolbox))),
    ]
}

fn other_cases() -> Vec<(&'static str, String)> {
    let default = ExecutionOptions::default;
    let undoing = || ExecutionOptions { compensate_on_failure: true, ..default() };
    let replanning = || ExecutionOptions { replans: ReplanOptions::times(1), ..default() };
    let when = json!({ "when": "a.total > 50 && a.vip" });
    let shop = |options, effect| {
        let steps = [
            make_step("a", &[], undoable_step(effect)),
            make_step("mail", &["a"], once_tool()),
            make_step("b", &["mail"], json!({})),
        ];
        Story::with_options(&steps, options).claim_by(1)
    };
    let broken = |options| {
        shop(options, "once")
            .succeed_step("a", json!({ "id": 7 }))
            .succeed_step("mail", json!(1))
            .fail_step("b", make_error("tool.failed", "no").without_retry())
    };
    let loops = |options| {
        let mut looped = undoable_step("once");
        looped["for_each"] = json!("{{list}}");
        looped["compensate"]["parameters"] = json!({ "id": "{{item}}" });
        Story::with_options(
            &[make_step("list", &[], json!({})), make_step("a", &["list"], looped)],
            options,
        )
        .claim_by(1)
        .succeed_step("list", json!([1, 2]))
        .succeed_step("a[0]", json!(1))
        .fail_step("a[1]", make_error("tool.failed", "no").without_retry())
    };
    let two = || {
        Story::from_steps(&[
            make_step("a", &[], once_tool()),
            make_step("b", &[], json!({})),
            make_step("c", &[], json!({})),
        ])
    };
    let retry = make_policy(json!({ "effect": "read", "retry": { "maxAttempts": 3 } }));
    vec![
        (
            "skip by condition",
            Story::from_steps(&[make_step("a", &[], json!({})), make_step("b", &["a"], when)])
                .succeed_step("a", json!({ "total": 12 }))
                .finding_lines(),
        ),
        ("skip by dry run", {
            let mut story = Story::with_options(&[make_step("a", &[], json!({}))], default());
            let (step, part) = ("a".parse().unwrap(), Part::WHOLE);
            let event = Event::StepSkipped { step, part, reason: SkipReason::DryRun };
            let seq = story.execution.seq().next();
            story.execution.apply(&RecordedEvent { seq, at: at_ms(0), event }).unwrap();
            story.claim_by(1).finding_lines()
        }),
        (
            "skip by dependency",
            Story::from_steps(&[
                make_step(
                    "a",
                    &[],
                    make_policy(json!({ "effect": "read", "on_error": "continue" })),
                ),
                make_step("b", &["a"], json!({})),
                make_step("c", &["b"], json!({})),
            ])
            .fail_step("a", make_error("tool.failed", "no").without_retry())
            .finding_lines(),
        ),
        (
            "template left standing",
            Story::from_steps(&[
                make_step("a", &[], json!({})),
                make_step("b", &["a"], json!({ "parameters": { "text": "{{a.foo}}" } })),
            ])
            .succeed_step("a", json!({}))
            .succeed_step("b", json!(1))
            .finding_lines(),
        ),
        ("call with other parameters", {
            let once = make_step("a", &[], make_policy(json!({ "effect": "once" })));
            let place = CallPlace { step: "a".parse().unwrap(), item: None, child: None };
            let key =
                CallKey { place, key: "exec_2_aaaaaaaaa/a".into(), parameters: "other".into() };
            Story::retry_of_calls(&[once], default(), vec![key])
                .claim_by(1)
                .succeed_step("a", json!(1))
                .finding_lines()
        }),
        (
            "retried",
            Story::from_steps(&[make_step("a", &[], retry)])
                .fail_step("a", make_error("tool.failed", "503"))
                .advance_ms(40_000)
                .succeed_step("a", json!(1))
                .finding_lines(),
        ),
        ("a clock was ahead", {
            let sleep = json!({ "tool": "flow.sleep", "parameters": { "ms": 5_000 } });
            let mut story = Story::with_options(&[make_step("a", &[], sleep)], default());
            story.now = 7_300_000;
            story = story.claim_by(1);
            story.now = 1_000;
            story.claim_by(1).finding_lines()
        }),
        (
            "takeover",
            two().advance_ms(5_000).claim_by(2).finding_lines_with(&[], &[worker_id(2)], None),
        ),
        (
            "release",
            Story::from_steps(&[make_step(
                "a",
                &[],
                make_policy(json!({ "requires_approval": true })),
            )])
            .claim_by(2)
            .command(approve_command("a", true))
            .finding_lines_with(&[], &[worker_id(2)], None),
        ),
        ("undone", broken(undoing()).undo_step("a", Ok(json!(null))).finding_lines()),
        (
            "undo failed",
            broken(undoing())
                .undo_step("a", Err(make_error("tool.failed", "gone").without_retry()))
                .finding_lines(),
        ),
        ("not undone", broken(default()).finding_lines()),
        ("not undone, replans", broken(replanning()).finding_lines()),
        ("off while it runs", shop(replanning(), "once").finding_lines()),
        (
            "loop, undone in part",
            loops(undoing()).undo_step("a[0]", Ok(json!(null))).finding_lines(),
        ),
        ("loop, not undone", loops(default()).finding_lines()),
        (
            "unknown, not undone",
            shop(undoing(), "once")
                .fail_step("a", ToolError::outcome_unknown("it broke off"))
                .finding_lines(),
        ),
    ]
}

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
    let all = failure_cases().into_iter().chain(wait_cases()).chain(other_cases());
    let table: String = all.map(|(_, lines)| lines).collect();
    for (code, _) in codes {
        let is_tested = table.contains(&format!(" {code} "));
        // A cancelled call makes its step CANCELLED, so that no step fails with this code.
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
    let request = shared::request::Request {
        id: "req_1_aaaaaaaaa".parse().unwrap(),
        query: "pay it's bill".to_owned(),
        created_at: at_ms(0),
    };
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
