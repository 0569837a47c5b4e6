#![expect(clippy::too_many_lines, reason = "the functions are tables")]

use super::{story::*, *};

pub(super) fn failure_cases() -> Vec<(&'static str, String)> {
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
            "cancelled by a token",
            one(read())
                .command_by(
                    Actor::token("alice"),
                    Command::Cancel { reason: Some("wrong list".to_owned()) },
                )
                .fail_step("a", ToolError::new(ErrorCode::CANCELLED, "told to stop"))
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

pub(super) fn wait_cases() -> Vec<(&'static str, String)> {
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
        [SentCommand {
            id,
            execution: "exec_1_aaaaaaaaa".parse().unwrap(),
            at: at_ms(0),
            by: None,
            command,
        }]
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
        (
            "paused",
            one(json!({})).command_by(Actor::user(Some("ada")), Command::Pause).finding_lines(),
        ),
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

pub(super) fn other_cases() -> Vec<(&'static str, String)> {
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
            story.execution.apply(&RecordedEvent { seq, at: at_ms(0), by: None, event }).unwrap();
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
        ("handover", {
            let mut story = Story::with_options(
                &[make_step("limited", &[], json!({}))],
                ExecutionOptions::default(),
            );
            let tools = ["shop.limited".parse().unwrap()].into();
            story.execution.set_limited_tools(Arc::new(tools));
            story.claim_by(1).advance_ms(5_000).claim_by(2).finding_lines_with(
                &[],
                &[worker_id(2)],
                None,
            )
        }),
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
