//! Logs as stores keep them, cut at every position and carried on to the end.
//!
//! The files are the persisted format: a change of them is a change of what older stores hold.
//! `UPDATE_EXPECT=1` writes them anew.

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

/// Stands still unless tokio's time moves: then it moves with it.
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

async fn work(args: Inputs, cx: ToolContext) -> Result<Value, ToolError> {
    let call = cx.call.expect("steps call it");
    time::sleep(Duration::from_millis(20)).await;
    if call.attempt.get() <= args.fails {
        return Err(ToolError::failed("not yet"));
    }
    Ok(json!({ "by": call.step, "got": args.inputs }))
}

async fn fail(_args: Inputs, _cx: ToolContext) -> Result<Value, ToolError> {
    Err(ToolError::new(ErrorCode::custom("golden.no".to_owned()), "never"))
}

fn toolbox() -> Toolbox {
    let tools: [Arc<dyn Tool>; 3] = [
        function("gold", "work", "Works.", Effect::Idempotent, work),
        function("gold", "look", "Works, and reads only.", Effect::Read, work),
        function("gold", "fail", "Fails.", Effect::Idempotent, fail),
    ];
    let name = "gold".parse().expect("a literal");
    Toolbox::new([ToolSet::ready(name, "test", "Deterministic tools.", tools), flow::flow()])
}

/// Makes a plan of `(id, tool, dependencies, parameters, policy)`.
fn plan(steps: Value) -> Arc<Plan> {
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
fn step(id: &str, tool: &str, after: &[&str], parameters: Value, policy: Value) -> Value {
    let mut all = json!({ "effect": "idempotent", "retry": { "jitter": false } });
    let (all_fields, own) = (all.as_object_mut().expect("an object"), policy);
    all_fields.extend(own.as_object().expect("an object").clone());
    json!({ "id": id, "tool": tool, "parameters": parameters, "depends_on": after, "policy": all })
}

fn chain() -> Value {
    json!([
        step("a", "gold.work", &[], json!({}), json!({})),
        step("b", "gold.look", &["a"], json!({ "inputs": "{{a}}" }), json!({ "effect": "read" })),
        step("c", "gold.work", &["b"], json!({ "inputs": "by {{b.by}}" }), json!({})),
    ])
}

fn diamond() -> Value {
    let twice = json!({ "retry": { "maxAttempts": 3, "jitter": false } });
    json!([
        step("a", "gold.work", &[], json!({}), json!({})),
        step("b", "gold.work", &["a"], json!({ "inputs": "{{a}}", "fails": 1 }), twice),
        step("s", "flow.sleep", &["a"], json!({ "ms": 300 }), json!({})),
        step("j", "gold.work", &["b", "s"], json!({ "inputs": ["{{b.by}}", "{{s}}"] }), json!({})),
    ])
}

fn failures() -> Value {
    json!([
        step("a", "gold.fail", &[], json!({}), json!({ "on_error": "continue" })),
        step("b", "gold.work", &["a"], json!({}), json!({})),
        step("c", "gold.fail", &[], json!({}), json!({ "on_error": "ignore" })),
        step("d", "gold.work", &["c"], json!({ "inputs": "{{c}}" }), json!({})),
        step("e", "gold.fail", &["d"], json!({}), json!({})),
        step("f", "gold.work", &["e"], json!({}), json!({})),
    ])
}

fn people() -> Value {
    json!([
        step("a", "gold.work", &[], json!({}), json!({ "requires_approval": true })),
        step("w", "flow.wait", &["a"], json!({ "name": "go" }), json!({})),
        step("z", "gold.work", &["w"], json!({ "inputs": "{{w}}" }), json!({})),
    ])
}

/// Adds to a step what only some have.
fn and(mut step: Value, more: Value) -> Value {
    let (fields, more) = (step.as_object_mut().expect("an object"), more);
    fields.extend(more.as_object().expect("an object").clone());
    step
}

/// Lists: items are tried again, one is left out, one list is empty, some items wait.
fn loops() -> Value {
    let item = json!({ "inputs": ["{{item}}", "{{index}}"], "fails": "{{index}}" });
    let thrice = json!({ "max_parallel": 2, "retry": { "maxAttempts": 3, "jitter": false } });
    let fails = json!({ "inputs": "{{item}}", "fails": "{{item}}" });
    let left_out = json!({ "on_error": "continue", "max_parallel": 1 });
    let name = json!({ "name": "go {{item}}" });
    json!([
        and(
            step("a", "gold.work", &[], item.clone(), thrice),
            json!({ "for_each": "{{input.list}}" })
        ),
        and(step("b", "gold.work", &[], fails, left_out), json!({ "for_each": "{{input.fails}}" })),
        and(step("c", "gold.work", &[], item, json!({})), json!({ "for_each": "{{input.none}}" })),
        and(
            step("w", "flow.wait", &["a"], name, json!({})),
            json!({ "for_each": "{{input.list}}" })
        ),
        step(
            "z",
            "gold.work",
            &["a", "b", "c", "w"],
            json!({ "inputs": ["{{b}}", "{{c}}", "{{w}}"] }),
            json!({})
        ),
    ])
}

/// Conditions: one holds, one does not, one cannot be told.
fn conditions() -> Value {
    json!([
        step("a", "gold.work", &[], json!({}), json!({})),
        and(step("b", "gold.work", &["a"], json!({}), json!({})), json!({ "when": "a.by == 'a'" })),
        and(step("c", "gold.work", &["a"], json!({}), json!({})), json!({ "when": "a.by == 'b'" })),
        step("d", "gold.work", &["c"], json!({}), json!({})),
        and(
            step("e", "gold.work", &["a", "d"], json!({ "inputs": "{{d}}" }), json!({})),
            json!({ "when": "d == null" }),
        ),
        and(
            step("f", "gold.work", &["a"], json!({}), json!({ "on_error": "ignore" })),
            json!({ "when": "a.nothing > 1" }),
        ),
    ])
}

/// What was done is undone: a step, the items of a list, one whose compensation fails.
fn undone() -> Value {
    let undo = |tool: &str, fails: u32| {
        let parameters = json!({ "inputs": "undo {{index}}", "fails": fails });
        let policy =
            json!({ "effect": "idempotent", "retry": { "maxAttempts": 2, "jitter": false } });
        json!({ "compensate": { "tool": tool, "parameters": parameters, "policy": policy } })
    };
    let mut a = and(step("a", "gold.work", &[], json!({}), json!({})), undo("gold.work", 1));
    a["compensate"]["parameters"]["inputs"] = json!("undo {{a.by}}");
    let mut b = and(step("b", "gold.work", &["a"], json!({}), json!({})), undo("gold.fail", 0));
    b["compensate"]["parameters"] = json!({ "inputs": "{{b}}" });
    let item = json!({ "inputs": "{{item}}" });
    let each = step("e", "gold.work", &["b"], item, json!({ "max_parallel": 1 }));
    let each = and(each, undo("gold.work", 0));
    json!([
        a,
        b,
        and(each, json!({ "for_each": "{{input.list}}" })),
        step("x", "gold.fail", &["e"], json!({}), json!({})),
    ])
}

/// A world with one worker, whose time is tokio's.
struct Stage {
    store: Arc<Memory>,
    clock: Arc<GoldenClock>,
    id: ExecutionId,
    plan: Arc<Plan>,
}

impl Stage {
    async fn new(plan: &Arc<Plan>) -> Self {
        let id = "exec_1700000000_aaaaaaaaa".parse().expect("a literal");
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(GoldenClock(time::Instant::now())));
        store.put_plan(plan).await.expect("memory takes it");
        Self { store, clock, id, plan: Arc::clone(plan) }
    }

    /// Puts the beginning of a log into the store, as a worker that is gone left it.
    async fn begin(&self, log: &[RecordedEvent]) {
        let execution = Execution::replay(self.id, Arc::clone(&self.plan), log).expect("a log");
        let mut append = Append::new(self.id, Seq::START, log);
        let owner = execution.worker();
        append.head =
            Some(ExecutionHead::from_execution(&execution, owner, Some(self.clock.now())));
        self.store.append(append).await.expect("memory takes it");
    }

    /// Carries the execution on to its end, doing what a person would.
    async fn finish(&self, worker: &str) -> Vec<RecordedEvent> {
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
        while let Some(recorded) = tail.try_next().await.expect("memory does not fail") {
            log.push(recorded);
            let execution =
                Execution::replay(self.id, Arc::clone(&self.plan), &log).expect("a log");
            if let Some(recorded) = log.last() {
                self.answer(&control, &execution, &recorded.event).await;
            }
        }
        log
    }

    /// Agrees to what is asked, and signals what is waited for, also after a cut.
    async fn answer(&self, control: &Control, execution: &Execution, event: &Event) {
        if !matches!(event, Event::StepWaiting { .. } | Event::Claimed(_)) {
            return;
        }
        for task in execution.agenda().waiting() {
            let state = execution.task(*task).map(|task| &task.state);
            if let Some(StepState::Waiting(WaitReason::Signal { name, .. })) = state {
                let payload = json!({ "said": "yes" });
                control.signal(self.id, name.clone(), payload).await.expect("it is heard");
            } else {
                let step = self.plan.step(task.step).id.clone();
                control
                    .approve(self.id, step, task.part.item, true, None)
                    .await
                    .expect("it is heard");
            }
        }
    }
}

/// Everything that an execution came to, whoever carried it out and when.
fn results(plan: &Arc<Plan>, log: &[RecordedEvent]) -> String {
    let id = "exec_1700000000_aaaaaaaaa".parse().expect("a literal");
    let execution = Execution::replay(id, Arc::clone(plan), log).expect("a log");
    let Phase::Finished(outcome) = execution.phase() else { panic!("it has not ended") };
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

/// The file has one event a line, so that a change is easy to read.
fn lines(log: &[RecordedEvent]) -> String {
    event::encode_events(log).replace(",{\"at\":", ",\n{\"at\":") + "\n"
}

/// Replaces what is drawn at random: the identifiers of commands.
fn without_chance(mut log: Vec<RecordedEvent>) -> Vec<RecordedEvent> {
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

async fn check(name: &str, steps: Value) {
    let plan = plan(steps);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/");
    let path = format!("{path}{name}.json");
    let stage = Stage::new(&plan).await;
    let input = Arc::new(json!({ "list": ["x", "y", "z"], "fails": [0, 9, 0], "none": [] }));
    let options = match name {
        "loops" => ExecutionOptions { input, ..ExecutionOptions::default() },
        "undone" => {
            let compensate_on_failure = true;
            ExecutionOptions { input, compensate_on_failure, ..ExecutionOptions::default() }
        }
        _ => ExecutionOptions::default(),
    };
    let (_, created) =
        executor::machine::create_execution(stage.id, &plan, options, stage.clock.now());
    stage.begin(&[created]).await;
    let whole = without_chance(stage.finish("work_1700000000_aaaaaaaaa").await);
    expect_file![&path].assert_eq(&lines(&whole));
    let kept = std::fs::read_to_string(&path).expect("the golden file is there");
    let kept = event::decode_events(Seq(1), &kept).expect("the golden file can be read");
    assert_eq!(kept, whole, "{name}: what is read is what was written");
    let expected = results(&plan, &whole);
    for end in 1..=kept.len() {
        let stage = Stage::new(&plan).await;
        stage.begin(&kept[..end]).await;
        let log = if end == kept.len() {
            kept.clone()
        } else {
            stage.finish("work_1700000000_bbbbbbbbb").await
        };
        assert_eq!(log[..end], kept[..end], "{name}, cut after {end}: the past has changed");
        assert_eq!(results(&plan, &log), expected, "{name}, cut after {end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chain_survives_every_cut() {
    check("chain", chain()).await;
}

#[tokio::test(start_paused = true)]
async fn a_diamond_with_a_retry_and_a_sleep_survives_every_cut() {
    check("diamond", diamond()).await;
}

#[tokio::test(start_paused = true)]
async fn failures_survive_every_cut() {
    check("failures", failures()).await;
}

#[tokio::test(start_paused = true)]
async fn what_people_said_survives_every_cut() {
    check("people", people()).await;
}

#[tokio::test(start_paused = true)]
async fn lists_survive_every_cut() {
    check("loops", loops()).await;
}

#[tokio::test(start_paused = true)]
async fn conditions_survive_every_cut() {
    check("conditions", conditions()).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_undone_survives_every_cut() {
    check("undone", undone()).await;
}
