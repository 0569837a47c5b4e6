//! Golden logs. A test cuts each log at every position and lets a worker continue from there. The
//! files have the stored format. If a change of the code changes a file, new logs differ from the
//! logs in existing stores.

use std::{sync::Arc, time::Duration};

use executor::{
    control::Control,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use expect_test::expect_file;
use futures::TryStreamExt;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp},
    event::{self, Event, RecordedEvent, WaitReason},
    execution::{Execution, ExecutionOptions, Phase, StepState},
    id::{ExecutionId, Seq},
    plan::{Plan, PlanInfo, UncheckedPlan, UncheckedStep},
    store::{self, Append, Documents, ExecutionHead, Log, Store, memory::Memory},
    tool::{Effect, ErrorCode, ToolError},
};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::{Tool, ToolContext, ToolSet, Toolbox, flow, function};

#[derive(Debug)]
struct GoldenClock(time::Instant);

impl Clock for GoldenClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(self.0.elapsed().as_millis()).expect("tests are short");
        Timestamp::from_timestamp_millis(1_700_000_000_000 + since).expect("a moment of our time")
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Inputs {
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    fails: u32,
}

async fn simulated_work(args: Inputs, cx: ToolContext) -> Result<Value, ToolError> {
    let call = cx.call.expect("only steps call the tool");
    time::sleep(Duration::from_millis(20)).await;
    if call.attempt.get() <= args.fails {
        return Err(ToolError::failed("not yet"));
    }
    Ok(json!({ "by": call.step, "got": args.inputs }))
}

async fn always_fail(_args: Inputs, _cx: ToolContext) -> Result<Value, ToolError> {
    Err(ToolError::new(ErrorCode::custom("golden.no".to_owned()), "never"))
}

fn toolbox() -> Toolbox {
    let tools: [Arc<dyn Tool>; 3] = [
        function("gold", "work", "Works.", Effect::Idempotent, simulated_work),
        function("gold", "look", "Works, and reads only.", Effect::Read, simulated_work),
        function("gold", "fail", "Fails.", Effect::Idempotent, always_fail),
    ];
    let name = "gold".parse().expect("a literal");
    Toolbox::new([ToolSet::ready(name, "test", "Deterministic tools.", tools), flow::flow()])
}

fn compile_plan(steps: Value) -> Arc<Plan> {
    let steps =
        serde_json::from_value::<Vec<UncheckedStep>>(steps).expect("steps are written well");
    let about = PlanInfo {
        id: "plan_1700000000_aaaaaaaaa".parse().expect("a literal"),
        request: "req_1700000000_aaaaaaaaa".parse().expect("a literal"),
        version: 1,
        query: "golden".to_owned(),
        planner: "explicit".to_owned(),
        created_at: Timestamp::from_timestamp(1_700_000_000, 0).expect("a moment of our time"),
    };
    let unchecked = UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() };
    Arc::new(unchecked.try_into().expect("the plan can run"))
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` is written where it is used")]
fn step_json(id: &str, tool: &str, after: &[&str], parameters: Value, policy: Value) -> Value {
    let mut all = json!({ "effect": "idempotent", "retry": { "jitter": false } });
    let (all_fields, own) = (all.as_object_mut().expect("an object"), policy);
    all_fields.extend(own.as_object().expect("an object").clone());
    json!({ "id": id, "tool": tool, "parameters": parameters, "depends_on": after, "policy": all })
}

fn chain_steps() -> Value {
    json!([
        step_json("a", "gold.work", &[], json!({}), json!({})),
        step_json(
            "b",
            "gold.look",
            &["a"],
            json!({ "inputs": "{{a}}" }),
            json!({ "effect": "read" })
        ),
        step_json("c", "gold.work", &["b"], json!({ "inputs": "by {{b.by}}" }), json!({})),
    ])
}

fn diamond_steps() -> Value {
    let twice = json!({ "retry": { "maxAttempts": 3, "jitter": false } });
    json!([
        step_json("a", "gold.work", &[], json!({}), json!({})),
        step_json("b", "gold.work", &["a"], json!({ "inputs": "{{a}}", "fails": 1 }), twice),
        step_json("s", "flow.sleep", &["a"], json!({ "ms": 300 }), json!({})),
        step_json(
            "j",
            "gold.work",
            &["b", "s"],
            json!({ "inputs": ["{{b.by}}", "{{s}}"] }),
            json!({})
        ),
    ])
}

fn failing_steps() -> Value {
    json!([
        step_json("a", "gold.fail", &[], json!({}), json!({ "on_error": "continue" })),
        step_json("b", "gold.work", &["a"], json!({}), json!({})),
        step_json("c", "gold.fail", &[], json!({}), json!({ "on_error": "ignore" })),
        step_json("d", "gold.work", &["c"], json!({ "inputs": "{{c}}" }), json!({})),
        step_json("e", "gold.fail", &["d"], json!({}), json!({})),
        step_json("f", "gold.work", &["e"], json!({}), json!({})),
    ])
}

fn steps_for_people() -> Value {
    json!([
        step_json("a", "gold.work", &[], json!({}), json!({ "requires_approval": true })),
        step_json("w", "flow.wait", &["a"], json!({ "name": "go" }), json!({})),
        step_json("z", "gold.work", &["w"], json!({ "inputs": "{{w}}" }), json!({})),
    ])
}

fn with_fields(mut step: Value, more: Value) -> Value {
    let (fields, more) = (step.as_object_mut().expect("an object"), more);
    fields.extend(more.as_object().expect("an object").clone());
    step
}

/// A plan with loops: items with retries, an item that is skipped, an empty list, and items that
/// wait.
fn loop_steps() -> Value {
    let item = json!({ "inputs": ["{{item}}", "{{index}}"], "fails": "{{index}}" });
    let thrice = json!({ "max_parallel": 2, "retry": { "maxAttempts": 3, "jitter": false } });
    let fails = json!({ "inputs": "{{item}}", "fails": "{{item}}" });
    let left_out = json!({ "on_error": "continue", "max_parallel": 1 });
    let name = json!({ "name": "go {{item}}" });
    json!([
        with_fields(
            step_json("a", "gold.work", &[], item.clone(), thrice),
            json!({ "for_each": "{{input.list}}" })
        ),
        with_fields(
            step_json("b", "gold.work", &[], fails, left_out),
            json!({ "for_each": "{{input.fails}}" })
        ),
        with_fields(
            step_json("c", "gold.work", &[], item, json!({})),
            json!({ "for_each": "{{input.none}}" })
        ),
        with_fields(
            step_json("w", "flow.wait", &["a"], name, json!({})),
            json!({ "for_each": "{{input.list}}" })
        ),
        step_json(
            "z",
            "gold.work",
            &["a", "b", "c", "w"],
            json!({ "inputs": ["{{b}}", "{{c}}", "{{w}}"] }),
            json!({})
        ),
    ])
}

/// A plan with conditions that are true, false, and impossible to evaluate.
fn conditional_steps() -> Value {
    json!([
        step_json("a", "gold.work", &[], json!({}), json!({})),
        with_fields(
            step_json("b", "gold.work", &["a"], json!({}), json!({})),
            json!({ "when": "a.by == 'a'" })
        ),
        with_fields(
            step_json("c", "gold.work", &["a"], json!({}), json!({})),
            json!({ "when": "a.by == 'b'" })
        ),
        step_json("d", "gold.work", &["c"], json!({}), json!({})),
        with_fields(
            step_json("e", "gold.work", &["a", "d"], json!({ "inputs": "{{d}}" }), json!({})),
            json!({ "when": "d == null" }),
        ),
        with_fields(
            step_json("f", "gold.work", &["a"], json!({}), json!({ "on_error": "ignore" })),
            json!({ "when": "a.nothing > 1" }),
        ),
    ])
}

/// A plan with compensations of a step and of items, and a compensation that fails.
fn compensated_steps() -> Value {
    let undo = |tool: &str, fails: u32| {
        let parameters = json!({ "inputs": "undo {{index}}", "fails": fails });
        let policy =
            json!({ "effect": "idempotent", "retry": { "maxAttempts": 2, "jitter": false } });
        json!({ "compensate": { "tool": tool, "parameters": parameters, "policy": policy } })
    };
    let mut a =
        with_fields(step_json("a", "gold.work", &[], json!({}), json!({})), undo("gold.work", 1));
    a["compensate"]["parameters"]["inputs"] = json!("undo {{a.by}}");
    let mut b = with_fields(
        step_json("b", "gold.work", &["a"], json!({}), json!({})),
        undo("gold.fail", 0),
    );
    b["compensate"]["parameters"] = json!({ "inputs": "{{b}}" });
    let item = json!({ "inputs": "{{item}}" });
    let each = step_json("e", "gold.work", &["b"], item, json!({ "max_parallel": 1 }));
    let each = with_fields(each, undo("gold.work", 0));
    json!([
        a,
        b,
        with_fields(each, json!({ "for_each": "{{input.list}}" })),
        step_json("x", "gold.fail", &["e"], json!({}), json!({})),
    ])
}

struct GoldenRun {
    store: Arc<Memory>,
    clock: Arc<GoldenClock>,
    id: ExecutionId,
    plan: Arc<Plan>,
}

impl GoldenRun {
    async fn new(plan: &Arc<Plan>) -> Self {
        let id = "exec_1700000000_aaaaaaaaa".parse().expect("a literal");
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(GoldenClock(time::Instant::now())));
        store.put_plan(plan).await.expect("the memory store does not fail");
        Self { store, clock, id, plan: Arc::clone(plan) }
    }

    async fn store_log(&self, log: &[RecordedEvent]) {
        let execution = Execution::replay(self.id, Arc::clone(&self.plan), log).expect("a log");
        let mut append = Append::new(self.id, Seq::START, log);
        let owner = execution.worker();
        append.head =
            Some(ExecutionHead::from_execution(&execution, owner, Some(self.clock.now())));
        self.store.append(append).await.expect("the memory store does not fail");
    }

    /// Runs the execution until it finishes, and simulates the people who approve and signal.
    async fn run_to_end(&self, worker: &str) -> Vec<RecordedEvent> {
        let store: Arc<dyn Store> = Arc::<Memory>::clone(&self.store);
        let parts = WorkerParts {
            node: "golden".to_owned(),
            store: Arc::clone(&store),
            toolbox: toolbox(),
            clock: Arc::<GoldenClock>::clone(&self.clock),
            options: Options::default(),
            scope: WorkerScope::Everything,
        };
        let id = worker.parse().expect("a literal");
        let (worker, _handle) = Worker::new(parts, id, CancellationToken::new());
        let mut workers = JoinSet::new();
        workers.spawn(worker.run());
        let control =
            Control::new(Arc::clone(&store), Arc::<GoldenClock>::clone(&self.clock), None);
        let poll = Duration::from_millis(250);
        let mut log = Vec::new();
        let mut tail = Box::pin(store::follow_log(Arc::clone(&store), self.id, Seq::START, poll));
        while let Some(recorded) = tail.try_next().await.expect("the memory store does not fail") {
            log.push(recorded);
            let execution =
                Execution::replay(self.id, Arc::clone(&self.plan), &log).expect("a log");
            if let Some(recorded) = log.last() {
                self.act_as_person(&control, &execution, &recorded.event).await;
            }
        }
        log
    }

    /// Sends each approval and signal that the execution waits for. If the log was cut after a wait
    /// began, sends them when the new worker claims the execution.
    async fn act_as_person(&self, control: &Control, execution: &Execution, event: &Event) {
        if !matches!(event, Event::StepWaiting { .. } | Event::Claimed(_)) {
            return;
        }
        for task in execution.agenda().waiting() {
            let state = execution.task(*task).map(|task| &task.state);
            if let Some(StepState::Waiting(WaitReason::Signal { name, .. })) = state {
                let payload = json!({ "said": "yes" });
                control
                    .signal(self.id, name.clone(), payload)
                    .await
                    .expect("the command is recorded");
            } else {
                let step = self.plan.step(task.step).id.clone();
                control
                    .approve(self.id, step, task.part.item, true, None)
                    .await
                    .expect("the command is recorded");
            }
        }
    }
}

/// Returns those results of an execution that must be the same for each worker and at each time.
fn comparable_results(plan: &Arc<Plan>, log: &[RecordedEvent]) -> String {
    let id = "exec_1700000000_aaaaaaaaa".parse().expect("a literal");
    let execution = Execution::replay(id, Arc::clone(plan), log).expect("a log");
    let Phase::Finished(outcome) = execution.phase() else {
        panic!("the execution has not finished")
    };
    let steps = plan.steps().iter().zip(execution.steps());
    let steps: Vec<String> = steps
        .map(|(step, run)| match &run.state {
            StepState::Succeeded(output) => format!("{}: {output}", step.id),
            StepState::Failed(error) => format!("{}: {error}", step.id),
            StepState::Skipped(reason) => format!("{}: {reason:?}", step.id),
            other => format!("{}: {}", step.id, other.name()),
        })
        .zip(execution.steps())
        .map(|(line, run)| if run.is_compensated() { format!("{line}, undone") } else { line })
        .collect();
    format!("{outcome:?}\n{}", steps.join("\n"))
}

/// Writes the log as JSON with one event on each line, so that changes are easy to read.
fn encode_lines(log: &[RecordedEvent]) -> String {
    event::encode_events(log).replace(",{\"at\":", ",\n{\"at\":") + "\n"
}

/// Replaces the ids of commands, which are random.
fn with_fixed_ids(mut log: Vec<RecordedEvent>) -> Vec<RecordedEvent> {
    let fixed = "cmd_1700000000_aaaaaaaaa".parse().expect("a literal");
    for recorded in &mut log {
        match &mut recorded.event {
            Event::StepApproved { command, .. }
            | Event::SignalReceived { command, .. }
            | Event::CommandIgnored { command, .. }
            | Event::StepFailed { command: Some(command), .. }
            | Event::StepSettled { command: Some(command), .. }
            | Event::Paused { command }
            | Event::Resumed { command } => *command = fixed,
            _ => (),
        }
    }
    log
}

async fn check_golden_log(name: &str, steps: Value) {
    let plan = compile_plan(steps);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/");
    let path = format!("{path}{name}.json");
    let run = GoldenRun::new(&plan).await;
    let input = Arc::new(json!({ "list": ["x", "y", "z"], "fails": [0, 9, 0], "none": [] }));
    let options = match name {
        "loops" => ExecutionOptions { input, ..ExecutionOptions::default() },
        "undone" => {
            let compensate_on_failure = true;
            ExecutionOptions { input, compensate_on_failure, ..ExecutionOptions::default() }
        }
        _ => ExecutionOptions::default(),
    };
    let (_, created) = executor::machine::create_execution(run.id, &plan, options, run.clock.now());
    run.store_log(&[created]).await;
    let whole = with_fixed_ids(run.run_to_end("work_1700000000_aaaaaaaaa").await);
    expect_file![&path].assert_eq(&encode_lines(&whole));
    let kept = std::fs::read_to_string(&path).expect("the golden file exists");
    let kept = event::decode_events(Seq(1), &kept).expect("the golden file can be read");
    assert_eq!(kept, whole, "{name}: the decoded log equals the original");
    let expected = comparable_results(&plan, &whole);
    for end in 1..=kept.len() {
        let run = GoldenRun::new(&plan).await;
        run.store_log(&kept[..end]).await;
        let log = if end == kept.len() {
            kept.clone()
        } else {
            run.run_to_end("work_1700000000_bbbbbbbbb").await
        };
        assert_eq!(log[..end], kept[..end], "{name}, cut after {end}: the past has changed");
        assert_eq!(comparable_results(&plan, &log), expected, "{name}, cut after {end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_resumes_from_every_cut() {
    check_golden_log("chain", chain_steps()).await;
}

#[tokio::test(start_paused = true)]
async fn a_diamond_with_a_retry_and_a_sleep_resumes_from_every_cut() {
    check_golden_log("diamond", diamond_steps()).await;
}

#[tokio::test(start_paused = true)]
async fn failures_resume_from_every_cut() {
    check_golden_log("failures", failing_steps()).await;
}

#[tokio::test(start_paused = true)]
async fn approvals_and_signals_resume_from_every_cut() {
    check_golden_log("people", steps_for_people()).await;
}

#[tokio::test(start_paused = true)]
async fn loops_resume_from_every_cut() {
    check_golden_log("loops", loop_steps()).await;
}

#[tokio::test(start_paused = true)]
async fn conditions_resume_from_every_cut() {
    check_golden_log("conditions", conditional_steps()).await;
}

#[tokio::test(start_paused = true)]
async fn compensations_resume_from_every_cut() {
    check_golden_log("undone", compensated_steps()).await;
}

/// Layout 6 gave fields the names of the API. Logs with the earlier names mean the same.
#[test]
fn logs_with_the_names_of_layout_5_mean_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/");
    for name in ["chain", "conditions", "diamond", "failures", "loops", "people", "undone"] {
        let [old, new] = ["layout-5/", ""].map(|layout| {
            let path = format!("{folder}{layout}{name}.json");
            std::fs::read_to_string(path).expect("the golden file exists")
        });
        assert_ne!(old, new, "{name}");
        let decode = |text: &str| event::decode_events(Seq(1), text).expect("it can be read");
        assert_eq!(decode(&old), decode(&new), "{name}");
    }
}
