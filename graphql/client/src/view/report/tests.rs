use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

fn draw_recorded_report(request: Value) -> String {
    draw_report(&serde_json::from_value(request).unwrap(), None, false, Paint::new(false))
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn check(recorded: &str, expected: Expect) {
    expected.assert_eq(&draw_recorded_report(serde_json::from_str(recorded).unwrap()));
}

#[test]
fn a_report_of_a_completed_execution() {
    check(
        include_str!("cases/completed.json"),
        expect![[r#"
        COMPLETED  2 of 2 steps done in 126 ms  exec_1_aaaaaaaaa
          query    Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world
          time     2026-11-22 08:06:16.570 – 08:06:16.696 UTC
          node     vm
          plan     plan_1_aaaaaaaaa, version 1 by offline
          request  req_1_aaaaaaaaa

        What happened
          Both steps succeeded.

        Timeline
            +0.1 ms  ◆ ✓ createAuthor  61 ms
             +61 ms  ◆ ✓ createBlog    64 ms
          ◆ 2 steps determined the duration: 126 ms of work

        Values
          createAuthor  {"name":"Alice","email":"alice@test.com"} → {"_id":"6b02a278c61f80eb13dadb87","name":"Alice","email":"alice@test.…
          createBlog    {"title":"Hello","content":"about world","authorId":"6b02a278c61f80eb… → {"_id":"6b02a278c61f80eb13dadb88","title":"Hello","content":"about wo…

        How the plan was made
          by offline, 2 steps, 27 of 27 tools shown to the planner, 2 clauses

        Next
          faber debug exec_1_aaaaaaaaa --full  every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_a_failed_execution() {
    check(
        include_str!("cases/failed.json"),
        expect![[r#"
            FAILED  4 of 7 steps done, 1 failed, 2 skipped in 1.2 s  exec_1_aaaaaaaaa
              query    flow.echo, flow.sleep, flow.fail, flow.sleep, flow.noop, flow.fail, flow.noop
              time     2026-11-22 07:40:32.091 – 07:40:33.294 UTC
              node     vm
              plan     plan_1_aaaaaaaaa, version 1 by explicit
              request  req_1_aaaaaaaaa

            What happened
              error[payment.declined]: `boom` failed: the card was declined; its plan allows one attempt (`retry.maxAttempts`)
              note: `flaky` succeeded at attempt 3; before, tool.failed: upstream said 503
              note: `skipped` was skipped, because its condition `list.items.size() > 5` does not hold: `list.items` is [1,2,3]
              note: `after` did not run, because `boom` failed first

            Timeline
                +0.0 ms  ◆ ✓ list     flow.echo  1.0 ms
                +0.0 ms    ✓ flaky    flow.fail  352 ms  3 attempts
                +1.1 ms    ✓ each     flow.sleep  301 ms  3 items ✓
                +1.1 ms  ◆ ✓ slow     flow.sleep  1.2 s
                 +1.2 s  ◆ ✗ boom     flow.fail  0.5 ms  payment.declined
                           ○ skipped  flow.noop  skipped  condition
                           ○ after    flow.noop  skipped  execution failed
              ◆ 3 steps determined the duration: 1.2 s of work

            Values
              list     {"items":[1,2,3]} → {"items":[1,2,3]}
              flaky    {"message":"upstream said 503","times":2,"retryable":true} → null
              each     → [null,null,null]
              slow     {"ms":1200} → null
              boom     {"message":"the card was declined: insufficient funds on account 1234…

            Parameters of boom
              {
                "message": "the card was declined: insufficient funds on account 12345678901234567890 and this message goes on for quite a while so that it has to wrap",
                "code": "payment.declined"
              }

            How the plan was made
              written by hand, 7 steps

            Next
              faber retry exec_1_aaaaaaaaa         retry what failed, and keep the rest
              faber retry exec_1_aaaaaaaaa --all   runs every step again
              faber debug exec_1_aaaaaaaaa --full  every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_a_waiting_execution() {
    check(
        include_str!("cases/waiting.json"),
        expect![[r#"
            WAITING  1 of 4 steps done  exec_1_aaaaaaaaa
              query    flow.echo, flow.echo, flow.fail, flow.wait
              time     since 2026-11-22 07:42:33.744 UTC
              node     vm
              plan     plan_1_aaaaaaaaa, version 1 by explicit
              request  req_1_aaaaaaaaa

            What happened
              waits: `decide` failed with tool.failed and needs a decision: nope
              waits: needs approval of `pay`, which calls `flow.echo`
              waits: `gate` waits for the signal `go`

            Timeline
                +0.0 ms  ◆ ✓ draft   flow.echo  17 ms
                +0.0 ms    ? decide  flow.fail  waits for decision  tool.failed
                +0.0 ms    ? gate    flow.wait  waits for signal:go
                 +17 ms    ? pay     flow.echo  waits for approval

            Values
              draft   {"amount":4200} → {"amount":4200}
              decide  {"message":"nope"}

            How the plan was made
              written by hand, 4 steps

            Next
              faber approve exec_1_aaaaaaaaa decide           try it again
              faber approve exec_1_aaaaaaaaa decide --reject  let it fail
              faber approve exec_1_aaaaaaaaa pay              approve it
              faber approve exec_1_aaaaaaaaa pay --reject     reject it
              faber signal exec_1_aaaaaaaaa go                send the signal
              faber watch exec_1_aaaaaaaaa                    watches it
              faber cancel exec_1_aaaaaaaaa                   stops it
              faber debug exec_1_aaaaaaaaa --full             every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_loops() {
    check(
        include_str!("cases/loop.json"),
        expect![[r#"
            COMPLETED  3 of 3 steps done in 72 ms  exec_1_aaaaaaaaa
              query    flow.echo, flow.fail, flow.noop
              time     2026-11-22 08:06:18.502 – 08:06:18.575 UTC
              node     vm
              plan     plan_1_aaaaaaaaa, version 1 by explicit
              request  req_1_aaaaaaaaa

            What happened
              warning[tool.failed]: `each[5]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[6]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[7]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[8]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[9]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[10]` failed after 5 attempts: no luck; all of its 5 attempts were used
              warning[tool.failed]: `each[11]` failed after 5 attempts: no luck; all of its 5 attempts were used
              note: `each[1]` succeeded at attempt 2; before, tool.failed: no luck
              note: `each[2]` succeeded at attempt 3; before, tool.failed: no luck
              note: `each[3]` succeeded at attempt 4; before, tool.failed: no luck
              note: `each[4]` succeeded at attempt 5; before, tool.failed: no luck

            Timeline
                +0.1 ms  ◆ ✓ list   flow.echo  0.8 ms
                +0.9 ms  ◆ ✓ each   flow.fail  71 ms  5 of 12 items ✓, 7 failed
                              [5]  FAILED  tool.failed: no luck
                              [6]  FAILED  tool.failed: no luck
                              [7]  FAILED  tool.failed: no luck
                              [8]  FAILED  tool.failed: no luck
                              [9]  FAILED  tool.failed: no luck
                              … and 2 more items
                +0.9 ms    ✓ whole  flow.noop  1.2 ms  12 items ✓
              ◆ 2 steps determined the duration: 72 ms of work

            Values
              list   {"items":[0,1,2,3,4,5,6,7,8,9,10,11]} → {"items":[0,1,2,3,4,5,6,7,8,9,10,11]}
              each   → [null,null,null,null,null]
              whole  → [null,null,null,null,null,null,null,null,null,null,null,null]

            Parameters of each[5]
              {
                "message": "no luck",
                "times": 5
              }

            How the plan was made
              written by hand, 3 steps

            Next
              faber retry exec_1_aaaaaaaaa         retry what failed, and keep the rest
              faber debug exec_1_aaaaaaaaa --full  every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_compensations() {
    check(
        include_str!("cases/undone.json"),
        expect![[r#"
            FAILED  3 of 5 steps done, 1 failed, 1 skipped in 1.4 ms  exec_1_aaaaaaaaa
              query    flow.echo, flow.echo, flow.fail, flow.noop, flow.fail
              time     2026-11-22 07:42:33.151 – 07:42:33.152 UTC
              node     vm
              plan     plan_1_aaaaaaaaa, version 1 by explicit
              request  req_1_aaaaaaaaa
              input    [0,1,0]

            What happened
              error[tool.failed]: `end` failed: end; its plan allows one attempt (`retry.maxAttempts`)
              error[compensation.failed]: `bad` could not be undone by `flow.fail`: tool.failed: cannot undo
              note: undone by `flow.noop`: `done[0]`, `done[1]` and `done[2]`

            Timeline
                +0.0 ms  ◆ ↩ done  flow.echo  0.7 ms  3 items ✓  compensated
                +0.0 ms    ✓ bad   flow.echo  0.7 ms
                +0.8 ms  ◆ ✓ l     flow.fail  0.5 ms  2 of 3 items ✓, 1 failed
                              [1]  FAILED  tool.failed: item
                +1.3 ms  ◆ ✗ end   flow.fail  0.0 ms  tool.failed
                           ○ skip  flow.noop  skipped  condition
              ◆ 3 steps determined the duration: 1.3 ms of work

            Values
              done  → [{"n":0},{"n":1},{"n":0}]
              bad   {"n":1} → {"n":1}
              l     → [null,null,null]
              end   {"message":"end"}

            Parameters of l[1]
              {
                "message": "item",
                "times": 1
              }

            How the plan was made
              written by hand, 5 steps

            Next
              faber retry exec_1_aaaaaaaaa                            retry what failed, and keep the rest
              faber tools call flow.fail '{"message":"cannot undo"}'  undo it by hand
              faber retry exec_1_aaaaaaaaa --all                      runs every step again
              faber debug exec_1_aaaaaaaaa --full                     every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_a_long_plan() {
    check(
        include_str!("cases/long.json"),
        expect![[r#"
            FAILED  58 of 59 steps done, 1 failed in 7.1 ms  exec_1_aaaaaaaaa
              query    flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, flow.noop, …
              time     2026-11-22 08:06:20.639 – 08:06:20.647 UTC
              node     vm
              plan     plan_1_aaaaaaaaa, version 1 by explicit
              request  req_1_aaaaaaaaa

            What happened
              error[tool.failed]: `bad` failed: no; its plan allows one attempt (`retry.maxAttempts`)

            Timeline
                +0.1 ms    ✓ 52 steps succeeded: start … s50  7.0 ms
                +1.6 ms    ✗ bad    flow.fail  5.5 ms  tool.failed
                +6.7 ms    ✓ 6 steps succeeded: s51 … s56  0.5 ms
              ◆ 3 steps determined the duration: 7.1 ms of work

            Parameters of bad
              {
                "message": "no"
              }

            How the plan was made
              written by hand, 59 steps

            Next
              faber retry exec_1_aaaaaaaaa         retry what failed, and keep the rest
              faber retry exec_1_aaaaaaaaa --all   runs every step again
              faber debug exec_1_aaaaaaaaa --full  every value, and how the plan was made"#]],
    );
}

#[test]
fn a_report_of_a_plan_without_executions() {
    let mut request = json!({
        "requestId": "req_1_aaaaaaaaa", "query": "dance", "plans": [], "executions": [],
        "transcript": [{ "kind": "error",
            "content": { "code": "NO_PLAN_FOUND", "message": "no tool fits `dance`" } }],
        "findings": [{ "code": "NO_PLAN_FOUND", "severity": "ERROR", "kind": "FAILURE",
            "message": "no tool fits `dance`",
            "remedies": [{ "label": "write the plan by hand", "command": "faber run --plan FILE" }] }],
    });
    expect![[r"
        PLANNING_FAILED  req_1_aaaaaaaaa
          query    dance

        What happened
          error[NO_PLAN_FOUND]: no tool fits `dance`

        How far the planning got
          error

        Next
          faber run --plan FILE  write the plan by hand
          faber debug req_1_aaaaaaaaa --full"]]
    .assert_eq(&draw_recorded_report(request.clone()));
    request["transcript"] = json!([]);
    request["findings"] = json!([]);
    request["plans"] = json!([{ "planId": "plan_1_aaaaaaaaa", "version": 1, "planner": "offline", "tools": [{}] }]);
    expect![[r"
        NOT EXECUTED  req_1_aaaaaaaaa
          query    dance

        Plans
          plan_1_aaaaaaaaa  version 1 by offline, 1 step

        Next
          faber execute plan_1_aaaaaaaaa
          faber debug req_1_aaaaaaaaa --full"]]
    .assert_eq(&draw_recorded_report(request.clone()));
}

#[test]
fn a_full_report_does_not_recommend_itself() {
    let full = |request: Value| {
        draw_report(&serde_json::from_value(request).unwrap(), None, true, Paint::new(false))
    };
    let completed: Value = serde_json::from_str(include_str!("cases/completed.json")).unwrap();
    let mut long = completed.clone();
    let step = long["executions"][0]["steps"][0].clone();
    let steps = (0..100).map(|n| {
        let mut step = step.clone();
        step["stepId"] = format!("s{n}").into();
        step["attempts"] = 2.into();
        step
    });
    long["executions"][0]["steps"] = steps.collect();
    let never = json!({ "requestId": "req_1_aaaaaaaaa", "query": "dance", "plans": [],
        "executions": [], "transcript": [] });
    for request in [completed, long.clone(), never] {
        assert!(draw_recorded_report(request.clone()).contains("--full"));
        let full = full(request);
        assert!(!full.contains("--full"), "{full}");
    }
    assert!(full(long).matches("s99").count() > 1);
}

#[test]
fn a_report_of_a_wait_and_of_the_next_attempt() {
    let step = |id: &str, state: &str| {
        json!({ "stepId": id, "toolName": "shop.charge", "state": state, "attempts": 2,
            "startedAt": "2026-11-23T08:00:00Z" })
    };
    let mut charged = step("charge", "SUCCEEDED");
    charged["finishedAt"] = json!("2026-11-23T08:08:43Z");
    charged["workMs"] = json!(906.0);
    charged["waitedMs"] = json!(522_000.0);
    charged["durationMs"] = json!(524_406.0);
    let mut retrying = step("stock", "RETRYING");
    retrying["until"] = json!("2026-11-23T08:08:50.5Z");
    let text = draw_recorded_report(
        json!({ "requestId": "req_1_aaaaaaaaa", "query": "charge", "transcript": [], "plans": [],
        "executions": [{ "executionId": "exec_1_aaaaaaaaa", "planId": "plan_1_aaaaaaaaa",
            "state": "WAITING", "total": 2, "successful": 1,
            "createdAt": "2026-11-23T08:00:00Z", "startedAt": "2026-11-23T08:00:00Z",
            "steps": [charged, retrying] }] }),
    );
    assert!(text.contains("906 ms  waited 8 min 42 s  2 attempts with 1.5 s between"), "{text}");
    assert!(text.contains("attempt 3 at 08:08:50.500 UTC"), "{text}");
}
