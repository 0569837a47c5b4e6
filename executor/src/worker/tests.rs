//! Workers over a store in memory. Tokio's clock is paused.

mod large_outputs;
mod turns;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    execution::{ExecutionOptions, ExecutionState},
    id::{CommandId, PlanId, RequestId, Seq},
    plan::{Plan, PlanInfo, StepPolicy, UncheckedPlan, UncheckedStep},
    store::{Append, Command, Documents, Inbox, Log, memory::Memory},
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext, ToolSet, flow};

use super::*;
use crate::{
    call_limits::{CallLimits, LimitRule, LimitedCalls},
    control::Start,
    machine,
};

#[derive(Debug)]
pub(crate) struct PausedClock(Instant);

impl PausedClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_timestamp(1_700_000_000, 0).unwrap() + self.0.elapsed()
    }
}

#[derive(Debug)]
struct EndlessTool(Arc<ToolDefinition>);

#[async_trait]
impl Tool for EndlessTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.0
    }

    async fn call(&self, _: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        cx.cancel.cancelled().await;
        Err(ToolError::new(ErrorCode::CANCELLED, "cancelled"))
    }
}

/// Returns the `flow` tools and `set.endless`, `set.limited`, which answer only when they are
/// cancelled.
fn toolbox() -> Toolbox {
    let tools = [("endless", Effect::Once), ("limited", Effect::Once)].map(|(name, effect)| {
        let definition = ToolDefinition {
            name: name.parse().unwrap(),
            set: "set".parse().unwrap(),
            description: String::new(),
            input_schema: json!({}),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        };
        Arc::new(EndlessTool(Arc::new(definition))) as Arc<dyn Tool>
    });
    let set = ToolSet::ready("set".parse().unwrap(), "test", "", tools);
    Toolbox::new([set, flow::flow()])
}

pub(crate) fn worker(store: &Arc<Memory>) -> (Worker, WorkerHandle) {
    worker_with_limits(store, vec![limit_of_one_call("set.limited")])
}

fn limit_of_one_call(tool: &str) -> LimitRule {
    let of = LimitedCalls::Tool(tool.parse().unwrap());
    LimitRule { calls: of, key: None, concurrency: Some(1), rate: None }
}

pub(crate) fn worker_with_limits(
    store: &Arc<Memory>,
    rules: Vec<LimitRule>,
) -> (Worker, WorkerHandle) {
    let options = Options {
        executions: 3,
        poll: Duration::from_millis(100),
        calls: Arc::new(CallLimits::new(rules)).into(),
        ..Options::default()
    };
    let clock = Arc::new(PausedClock::new());
    let id = WorkerId::draw(clock.now());
    let parts = WorkerParts {
        node: "a".to_owned(),
        store: Arc::<Memory>::clone(store),
        toolbox: toolbox(),
        clock,
        options,
        scope: WorkerScope::Everything,
    };
    Worker::new(parts, id, CancellationToken::new())
}

pub(crate) fn step(id: &str, tool: &str, parameters: Value) -> UncheckedStep {
    UncheckedStep {
        id: id.parse().unwrap(),
        tool: tool.parse().unwrap(),
        parameters: Arc::new(parameters),
        depends_on: Vec::new(),
        output_mapping: Vec::new(),
        policy: StepPolicy { effect: Effect::Once, ..StepPolicy::default() },
        plan: None,
        inputs: None,
        when: None,
        for_each: None,
        compensate: None,
    }
}

pub(crate) fn plan(steps: Vec<UncheckedStep>) -> Arc<Plan> {
    let now = Timestamp::UNIX_EPOCH;
    let about = PlanInfo {
        id: PlanId::draw(now),
        request: RequestId::draw(now),
        version: 1,
        query: String::new(),
        planner: "explicit".to_owned(),
        created_at: now,
    };
    Arc::new(
        UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() }
            .try_into()
            .unwrap(),
    )
}

struct WorkerTest {
    store: Arc<Memory>,
    toolbox: Toolbox,
    control: Control,
    tasks: JoinSet<()>,
}

impl WorkerTest {
    fn new() -> Self {
        Self::with_limits(vec![limit_of_one_call("set.limited")])
    }

    fn with_limits(rules: Vec<LimitRule>) -> Self {
        let store = Arc::new(Memory::new());
        let (worker, _) = worker_with_limits(&store, rules);
        let clock = Arc::clone(&worker.context.clock);
        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let toolbox = worker.context.toolbox.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        Self { store, toolbox, control, tasks }
    }

    async fn start(&self, steps: Vec<UncheckedStep>) -> ExecutionId {
        self.start_with(steps, ExecutionOptions::default()).await
    }

    async fn start_with(
        &self,
        steps: Vec<UncheckedStep>,
        options: ExecutionOptions,
    ) -> ExecutionId {
        let plan = plan(steps);
        self.store.put_plan(&plan).await.unwrap();
        self.control.start(Start::new(&plan, options)).await.unwrap().id
    }

    async fn event_kinds(&self, id: ExecutionId) -> Vec<&'static str> {
        let log = self.store.read(id, Seq::START).await.unwrap();
        log.iter().map(|recorded| recorded.event.kind()).collect()
    }

    async fn wait_for_event(&self, id: ExecutionId, kind: &str, within: Duration) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            while !self.event_kinds(id).await.contains(&kind) {
                look.tick().await;
            }
        };
        let is_so = time::timeout(within, wait).await;
        assert!(is_so.is_ok(), "{:?}", self.event_kinds(id).await);
    }

    async fn state(&self, id: ExecutionId) -> ExecutionState {
        self.store.head(id).await.unwrap().unwrap().state
    }

    async fn wait_for_state(&self, id: ExecutionId, state: ExecutionState, within: Duration) {
        let mut look = time::interval(Duration::from_millis(10));
        let wait = async {
            while self.state(id).await != state {
                look.tick().await;
            }
        };
        let is_so = time::timeout(within, wait).await;
        assert!(is_so.is_ok(), "it is {:?}", self.state(id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn executions_that_wait_for_a_limit_block_no_others() {
    let test = WorkerTest::new();
    let mut waiting = Vec::new();
    // One execution holds the permit. More executions wait than there are slots and waiting slots.
    for _ in 0..8 {
        waiting.push(test.start(vec![step("a", "set.limited", json!({}))]).await);
        time::sleep(Duration::from_millis(300)).await;
    }
    let id = test.start(vec![step("a", "flow.noop", json!({}))]).await;
    test.wait_for_state(id, ExecutionState::Completed, Duration::from_secs(2)).await;
    // Each execution gets the permit in turn.
    for id in waiting {
        let log = async {
            loop {
                let log = test.store.read(id, Seq::START).await.unwrap();
                if log.iter().any(|recorded| recorded.event.kind() == "step_started") {
                    return log;
                }
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        let log = time::timeout(Duration::from_mins(3), log).await.expect("its turn comes");
        assert!(log.len() < 10, "{log:#?}");
        test.control.cancel(id, None).await.unwrap();
    }
}

/// Regression: the permit of a sleep was held for as long as its execution was in memory.
#[tokio::test(start_paused = true)]
async fn a_finished_sleep_releases_its_permit() {
    let test = WorkerTest::with_limits(vec![limit_of_one_call("flow.sleep")]);
    let sleeps = ["a", "b"].map(|id| step(id, "flow.sleep", json!({ "ms": 500 })));
    let id = test.start(sleeps.to_vec()).await;
    test.wait_for_state(id, ExecutionState::Completed, Duration::from_secs(10)).await;
}

/// Regression: commands of executions with missing tools hid all later commands.
#[tokio::test(start_paused = true)]
async fn commands_for_executions_without_tools_hide_no_others() {
    let test = WorkerTest::new();
    for _ in 0..=shared::limits::INBOX_POLL_COMMANDS / 900 {
        let id = test.start(vec![step("a", "other.tool", json!({}))]).await;
        for n in 0..900 {
            test.control.signal(id, "go".to_owned(), json!(n)).await.unwrap();
        }
    }
    let id = test.start(vec![step("a", "flow.wait", json!({ "name": "go" }))]).await;
    // Waits until the execution is parked and has no owner.
    time::sleep(Duration::from_secs(10)).await;
    test.control.signal(id, "go".to_owned(), json!(1)).await.unwrap();
    test.wait_for_state(id, ExecutionState::Completed, Duration::from_mins(1)).await;
}

/// A worker that lacks a tool records commands, and leaves the execution to other workers.
#[tokio::test(start_paused = true)]
async fn a_worker_without_the_tools_records_commands() {
    let mut test = WorkerTest::new();
    let id = test.start(vec![step("a", "other.tool", json!({}))]).await;
    test.control.signal(id, "go".to_owned(), json!(1)).await.unwrap();
    time::sleep(Duration::from_secs(5)).await;
    assert!(test.store.list_commands(Some(id)).await.unwrap().is_empty());
    let head = test.store.head(id).await.unwrap().unwrap();
    assert_eq!((head.owner, head.state.is_finished()), (None, false));
    assert!(head.due.is_some_and(|due| due <= head.created_at), "other workers find the execution");
    let log = test.store.read(id, Seq::START).await.unwrap();
    assert_eq!(log.len(), 3, "created, claimed, the signal: {log:#?}");
    test.tasks.shutdown().await;
}

#[derive(Debug)]
struct ShortTool(Arc<ToolDefinition>);

#[async_trait]
impl Tool for ShortTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.0
    }

    async fn call(&self, _: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> {
        Ok(json!("done"))
    }
}

fn door_tools() -> ToolSet {
    let definition = ToolDefinition {
        name: "open".parse().unwrap(),
        set: "door".parse().unwrap(),
        description: String::new(),
        input_schema: json!({}),
        output_schema: None,
        effect: Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    };
    let tool = Arc::new(ShortTool(Arc::new(definition))) as Arc<dyn Tool>;
    ToolSet::ready("door".parse().unwrap(), "test", "", [tool])
}

fn remove_door_tools(toolbox: &Toolbox) {
    assert!(toolbox.remove_set(&door_tools().name), "the set was registered");
}

fn with_dependencies(step: UncheckedStep, others: &[&str]) -> UncheckedStep {
    let depends_on = others.iter().map(|name| name.parse().unwrap()).collect();
    UncheckedStep { depends_on, ..step }
}

fn sleep(id: &str, ms: u64) -> UncheckedStep {
    step(id, "flow.sleep", json!({ "ms": ms }))
}

/// Regression: the execution failed, although the tool could come back.
#[tokio::test(start_paused = true)]
async fn an_execution_whose_tool_disappears_waits_for_it() {
    let test = WorkerTest::new();
    test.toolbox.put_set(door_tools());
    let open = with_dependencies(step("b", "door.open", json!({})), &["a"]);
    let id = test.start(vec![sleep("a", 500), open]).await;
    test.wait_for_event(id, "step_started", Duration::from_secs(5)).await;
    remove_door_tools(&test.toolbox);
    test.wait_for_event(id, "step_succeeded", Duration::from_secs(5)).await;
    time::sleep(Duration::from_secs(1)).await;
    let head = test.store.head(id).await.unwrap().unwrap();
    assert_eq!((head.owner, head.state), (None, ExecutionState::InProgress));
    assert!(head.due.is_some_and(|due| due <= head.created_at), "other workers find the execution");
    time::sleep(Duration::from_mins(1)).await;
    let expected = ["created", "claimed", "step_started", "step_succeeded"];
    assert_eq!(
        test.event_kinds(id).await,
        expected,
        "no worker claims the execution without a reason"
    );
    test.toolbox.put_set(door_tools());
    test.wait_for_state(id, ExecutionState::Completed, Duration::from_secs(5)).await;
    assert!(!test.event_kinds(id).await.contains(&"step_interrupted"));
}

/// A running call keeps the driver in this worker, and the driver must notice that the tool is
/// back.
#[tokio::test(start_paused = true)]
async fn a_returned_tool_is_called_while_other_steps_run() {
    let test = WorkerTest::new();
    test.toolbox.put_set(door_tools());
    let open = with_dependencies(step("c", "door.open", json!({})), &["b"]);
    let id = test.start(vec![step("a", "set.endless", json!({})), sleep("b", 500), open]).await;
    test.wait_for_event(id, "step_started", Duration::from_secs(5)).await;
    remove_door_tools(&test.toolbox);
    time::sleep(Duration::from_secs(10)).await;
    let kinds = test.event_kinds(id).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == "step_started").count(), 2, "{kinds:?}");
    test.toolbox.put_set(door_tools());
    let both = async {
        while test.event_kinds(id).await.iter().filter(|kind| **kind == "step_succeeded").count()
            < 2
        {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(Duration::from_secs(5), both).await.expect("the tool is called");
    assert_eq!(test.state(id).await, ExecutionState::InProgress);
    test.control.cancel(id, None).await.unwrap();
    test.wait_for_state(id, ExecutionState::Cancelled, Duration::from_secs(20)).await;
}

/// Regression: no worker claimed the execution.
#[tokio::test(start_paused = true)]
async fn an_execution_without_its_tool_fails_at_its_deadline() {
    let test = WorkerTest::new();
    test.toolbox.put_set(door_tools());
    let open = with_dependencies(step("b", "door.open", json!({})), &["a"]);
    let options = ExecutionOptions { deadline_ms: Some(20_000), ..ExecutionOptions::default() };
    let id = test.start_with(vec![sleep("a", 500), open], options).await;
    test.wait_for_event(id, "step_started", Duration::from_secs(5)).await;
    remove_door_tools(&test.toolbox);
    test.wait_for_event(id, "deadline_passed", Duration::from_secs(25)).await;
    test.wait_for_state(id, ExecutionState::Failed, Duration::from_secs(5)).await;
    assert_eq!(test.event_kinds(id).await.iter().filter(|kind| **kind == "claimed").count(), 2);
}

/// Some servers remove a tool after its use, such as a tool to log in.
#[tokio::test(start_paused = true)]
async fn a_tool_that_only_finished_steps_used_is_not_required() {
    let test = WorkerTest::new();
    test.toolbox.put_set(door_tools());
    let last = with_dependencies(step("c", "flow.noop", json!({})), &["b"]);
    let steps = vec![
        step("a", "door.open", json!({})),
        with_dependencies(sleep("b", 30_000), &["a"]),
        last,
    ];
    let id = test.start(steps).await;
    test.wait_for_event(id, "step_succeeded", Duration::from_secs(5)).await;
    remove_door_tools(&test.toolbox);
    time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        test.store.head(id).await.unwrap().unwrap().owner,
        None,
        "the worker released the execution"
    );
    test.wait_for_state(id, ExecutionState::Completed, Duration::from_secs(40)).await;
}

/// Regression: a worker whose executions ended all the time never scanned for other executions.
#[tokio::test(start_paused = true)]
async fn a_busy_worker_still_scans_for_work() {
    let store = Arc::new(Memory::new());
    let (worker, handle) = worker(&store);
    let clock = Arc::clone(&worker.context.clock);
    let near = Control::new(Arc::<Memory>::clone(&store), Arc::clone(&clock), Some(handle));
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run());
    let plan = plan(vec![step("a", "flow.noop", json!({}))]);
    store.put_plan(&plan).await.unwrap();
    let start_at = Some(clock.now() + TimeDelta::seconds(1));
    let later = ExecutionOptions { start_at, ..ExecutionOptions::default() };
    let id = near.start(Start::new(&plan, later)).await.unwrap().id;
    let started_at = Instant::now();
    while started_at.elapsed() < Duration::from_secs(3) {
        near.start(Start::new(&plan, ExecutionOptions::default())).await.unwrap();
        time::sleep(Duration::from_millis(20)).await;
    }
    let head = store.head(id).await.unwrap().unwrap();
    assert_eq!(head.state, ExecutionState::Completed);
}

async fn store_execution_without_plan(store: &Memory, clock: &dyn Clock) -> ExecutionId {
    let plan = plan(vec![step("a", "flow.noop", json!({}))]);
    let id = ExecutionId::draw(clock.now());
    let (execution, created) =
        machine::create_execution(id, &plan, ExecutionOptions::default(), clock.now());
    let mut append = Append::new(id, Seq::START, &[created]);
    append.head = Some(ExecutionHead::from_execution(&execution, None, None));
    store.append(append).await.unwrap();
    id
}

/// Regression: every node claimed the damaged execution at every poll.
#[tokio::test(start_paused = true)]
async fn a_damaged_execution_is_not_claimed_at_every_poll() {
    let store = Arc::new(Memory::new());
    let (mut worker, _) = worker(&store);
    let id = store_execution_without_plan(&store, &*worker.context.clock).await;
    let at = worker.context.clock.now();
    let command = Command::Pause;
    store
        .send_command(SentCommand { id: CommandId::draw(at), execution: id, at, by: None, command })
        .await
        .unwrap();
    worker.deliver_commands().await;
    let (_, result) = worker.drivers.join_next().await.unwrap().unwrap();
    assert!(result.as_ref().is_err_and(DriveError::is_damage));
    worker.record_driver_end(id, result);
    for _ in 0..3 {
        worker.deliver_commands().await;
        assert_eq!(worker.drivers.len(), 0);
    }
    time::advance(Duration::from_mins(11)).await;
    worker.deliver_commands().await;
    assert_eq!(worker.drivers.len(), 1, "the worker tries the damaged execution again");
    assert_eq!(
        store.list_commands(Some(id)).await.unwrap().len(),
        1,
        "the command stays in the inbox"
    );
}

/// Regression: a new primary of MongoDB did not return the newest plan yet, and the execution was
/// postponed for ten minutes.
#[tokio::test(start_paused = true)]
async fn an_execution_whose_plan_is_missing_for_a_moment_continues_soon() {
    let store = Arc::new(Memory::new());
    let (mut worker, _) = worker(&store);
    let id = store_execution_without_plan(&store, &*worker.context.clock).await;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let now = worker.context.clock.now();
        assert!(worker.claim_execution(id, Epoch(0)));
        let (_, result) = worker.drivers.join_next().await.unwrap().unwrap();
        worker.record_driver_end(id, result);
        let head = store.head(id).await.unwrap().unwrap();
        assert_eq!(head.owner, None);
        let pause = (head.due.unwrap() - now).to_std().unwrap();
        pauses.push(pause.as_secs());
        assert!(worker.backlog.damaged.contains(id));
        time::advance(pause).await;
        assert!(!worker.backlog.damaged.contains(id));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    time::advance(Duration::from_mins(11)).await;
    worker.note_damage(id);
    time::advance(Duration::from_secs(1)).await;
    assert!(!worker.backlog.damaged.contains(id), "the next pause is short again");
}

/// Regression: the child was claimed only when the worker next looked for executions that it owns
/// and does not drive.
#[tokio::test(start_paused = true)]
async fn a_child_notifies_its_parent_at_the_poll_after_a_failure() {
    let store = Arc::new(Memory::new());
    let (mut worker, _) = worker(&store);
    renew_lease(&worker.context).await;
    let id = store_execution_without_plan(&store, &*worker.context.clock).await;
    let head = store.head(id).await.unwrap().unwrap();
    let state = ExecutionState::Completed;
    let (me, parent) = (Some(worker.context.worker), Some(id));
    store.put_head(ExecutionHead { state, owner: me, parent, ..head.clone() }).await.unwrap();
    worker.backlog.give_up(id);
    worker.scan().await;
    assert_eq!(worker.drivers.len(), 1);
    // The execution has no owner, which means that no work is left.
    store.put_head(ExecutionHead { state, owner: None, parent, ..head }).await.unwrap();
    worker.drivers.shutdown().await;
    worker.local.remove(id);
    worker.backlog.give_up(id);
    worker.scan().await;
    assert_eq!((worker.drivers.len(), worker.backlog.given_up.len()), (0, 0));
}
