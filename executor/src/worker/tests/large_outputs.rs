use std::sync::atomic::{AtomicUsize, Ordering};

use shared::{
    event::{Event, RecordedEvent},
    limits,
};

use super::*;

/// A tool that returns more than fits into an event, and counts its calls.
#[derive(Debug)]
struct HugeTool {
    definition: Arc<ToolDefinition>,
    calls: AtomicUsize,
}

#[async_trait]
impl Tool for HugeTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, _: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // These three million bytes take eighteen million bytes in a log, because JSON writes
        // `\u0001` for each character.
        Ok(json!("\u{1}".repeat(3_000_000)))
    }
}

fn huge_tool(effect: Effect) -> Arc<HugeTool> {
    let definition = ToolDefinition {
        name: "huge".parse().unwrap(),
        set: "large".parse().unwrap(),
        description: String::new(),
        input_schema: json!({}),
        output_schema: None,
        effect,
        examples: Vec::new(),
        is_callable: true,
    };
    Arc::new(HugeTool { definition: Arc::new(definition), calls: AtomicUsize::new(0) })
}

async fn execute(tool: &Arc<HugeTool>, output_bytes: usize) -> Vec<RecordedEvent> {
    let store = Arc::new(Memory::new());
    let clock = Arc::new(PausedClock::new());
    let offered = Arc::<HugeTool>::clone(tool) as Arc<dyn Tool>;
    let set = ToolSet::ready("large".parse().unwrap(), "test", "", [offered]);
    let parts = WorkerParts {
        node: "a".to_owned(),
        store: Arc::<Memory>::clone(&store),
        toolbox: Toolbox::new([set, flow::flow()]),
        clock: Arc::<PausedClock>::clone(&clock),
        options: Options { output_bytes, ..Options::default() },
        scope: WorkerScope::Everything,
    };
    let (worker, _) = Worker::new(parts, WorkerId::draw(clock.now()), CancellationToken::new());
    let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
    let toolbox = worker.context.toolbox.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run());
    let test = WorkerTest { store, toolbox, control, tasks };
    let mut large = step("a", "large.huge", json!({}));
    large.policy.effect = tool.definition.effect;
    let next = with_dependencies(step("b", "flow.noop", json!({})), &["a"]);
    let options = ExecutionOptions { deadline_ms: Some(20_000), ..ExecutionOptions::default() };
    let id = test.start_with(vec![large, next], options).await;
    test.wait_for_state(id, ExecutionState::Failed, Duration::from_mins(1)).await;
    test.store.read(id, Seq::START).await.unwrap()
}

fn failure_code(log: &[RecordedEvent]) -> Option<&str> {
    log.iter().find_map(|recorded| match &recorded.event {
        Event::StepFailed { error, .. } => Some(error.code.as_str()),
        _ => None,
    })
}

/// Regression: the execution was postponed for ten minutes at a time, ignored its deadline, and
/// called the tool each time.
#[tokio::test(start_paused = true)]
async fn an_output_that_exceeds_the_limit_when_stored_fails_its_step() {
    for effect in [Effect::Read, Effect::Once] {
        let tool = huge_tool(effect);
        let log = execute(&tool, limits::APPEND_BYTES).await;
        assert_eq!(failure_code(&log), Some("tool.output_too_large"), "{log:#?}");
        assert_eq!(tool.calls.load(Ordering::Relaxed), 1);
    }
}

/// No configuration allows such outputs. If a tool returns such an output nevertheless, the
/// execution finishes.
#[tokio::test(start_paused = true)]
async fn an_event_that_can_never_be_stored_finishes_its_execution() {
    for effect in [Effect::Read, Effect::Once] {
        let tool = huge_tool(effect);
        let log = execute(&tool, usize::MAX).await;
        let expected =
            if effect == Effect::Read { "tool.output_too_large" } else { "tool.outcome_unknown" };
        assert_eq!(failure_code(&log), Some(expected), "{log:#?}");
        assert_eq!(tool.calls.load(Ordering::Relaxed), 1);
        assert_eq!(log.last().unwrap().event.kind(), "finished");
    }
}
