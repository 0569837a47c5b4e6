//! Tests of the machine. Each test is a story: its inputs, and the events that they lead to.
//!
//! Every decision except a claim is made twice, and the second decision must return no events.
//! `Story::check` replays the log, which must lead to the same state.

mod compensation;
mod conditions;
mod dry_runs;
mod effects;
mod joins;
mod long_loops;
mod loops;
mod people;
mod permits;
mod properties;
mod reuse;
mod settling;
mod step_failures;
mod stopping;
mod subplans;
mod templates;
mod timing;

use std::{collections::BTreeSet, fmt::Write as _};

use expect_test::Expect;
use serde_json::json;
use shared::{
    event::StepStarted,
    execution::{ExecutionMode, ExecutionState, StepCounts},
    id::{CommandId, Part, ToolName},
    plan::{PlanInfo, UncheckedCompensation, UncheckedPlan, UncheckedStep},
    store::Command,
};

use super::*;

struct Story {
    execution: Execution,
    log: Vec<RecordedEvent>,
    now: Timestamp,
    commands: u32,
    checked_events: usize,
    decision_starts: BTreeSet<usize>,
    limited_tools: Arc<BTreeSet<ToolName>>,
}

fn claim() -> Input {
    Input::Claimed {
        worker: "work_1_aaaaaaaaa".parse().unwrap(),
        node: "n".into(),
        commands_follow: false,
    }
}

fn time_at(ms: i64) -> Timestamp {
    Timestamp::from_timestamp_millis(1_700_000_000_000 + ms).unwrap()
}

fn step(id: &str, tool: &str, after: &[&str]) -> UncheckedStep {
    UncheckedStep {
        id: id.parse().unwrap(),
        tool: tool.parse().unwrap(),
        parameters: Arc::new(json!({})),
        depends_on: after.iter().map(|name| name.parse().unwrap()).collect(),
        output_mapping: Vec::new(),
        policy: StepPolicy { effect: Effect::Idempotent, ..Default::default() },
        plan: None,
        inputs: None,
        when: None,
        for_each: None,
        compensate: None,
    }
}

fn call(id: &str, after: &[&str]) -> UncheckedStep {
    step(id, "set.tool", after)
}

fn on_error(on_error: OnError, mut step: UncheckedStep) -> UncheckedStep {
    step.policy.on_error = on_error;
    step
}

fn effect(effect: Effect, mut step: UncheckedStep) -> UncheckedStep {
    step.policy.effect = effect;
    step
}

fn with_attempts(max_attempts: u32, mut step: UncheckedStep) -> UncheckedStep {
    step.policy.retry.max_attempts = max_attempts;
    step.policy.retry.jitter = false;
    step
}

fn with_approval(mut step: UncheckedStep) -> UncheckedStep {
    step.policy.requires_approval = true;
    step
}

fn with_parameters(parameters: Value, mut step: UncheckedStep) -> UncheckedStep {
    step.parameters = Arc::new(parameters);
    step
}

fn sleep(id: &str, ms: u64, after: &[&str]) -> UncheckedStep {
    with_parameters(json!({ "ms": ms }), step(id, "flow.sleep", after))
}

fn wait(id: &str, name: &str, after: &[&str]) -> UncheckedStep {
    with_parameters(json!({ "name": name }), step(id, "flow.wait", after))
}

fn with_condition(condition: &str, mut step: UncheckedStep) -> UncheckedStep {
    step.when = Some(condition.to_owned());
    step
}

fn for_each(list: &str, mut step: UncheckedStep) -> UncheckedStep {
    step.for_each = Some(list.to_owned());
    step
}

fn with_max_parallel(max_parallel: u32, mut step: UncheckedStep) -> UncheckedStep {
    step.policy.max_parallel = Some(max_parallel);
    step
}

fn with_compensation(mut step: UncheckedStep) -> UncheckedStep {
    step.compensate = Some(Box::new(UncheckedCompensation {
        tool: "set.undo".parse().unwrap(),
        parameters: Arc::new(json!({ "of": format!("{{{{{}}}}}", step.id) })),
        policy: StepPolicy { effect: Effect::Idempotent, ..Default::default() },
    }));
    step
}

fn sub_plan(id: &str, after: &[&str]) -> UncheckedStep {
    let plan = Some("plan_2_aaaaaaaaa".parse().unwrap());
    UncheckedStep { plan, ..step(id, "set.flow", after) }
}

fn compensating_options() -> ExecutionOptions {
    ExecutionOptions { compensate_on_failure: true, ..Default::default() }
}

fn sequential_options() -> ExecutionOptions {
    ExecutionOptions { mode: ExecutionMode::Sequential, ..Default::default() }
}

fn plan(steps: Vec<UncheckedStep>) -> Arc<Plan> {
    let about = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: "q".to_owned(),
        planner: "explicit".to_owned(),
        created_at: time_at(0),
    };
    Arc::new(
        Plan::try_from(UncheckedPlan {
            about,
            steps,
            written: Vec::new(),
            diagnostics: Vec::new(),
        })
        .unwrap(),
    )
}

fn failed_error() -> ToolError {
    ToolError::failed("no")
}

fn timeout_error() -> ToolError {
    ToolError::new(ErrorCode::TIMEOUT, "slow").with_unknown_outcome()
}

fn cancelled_error() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "stopped").with_unknown_outcome()
}

impl Story {
    fn new(steps: Vec<UncheckedStep>) -> Self {
        Self::with_options(steps, ExecutionOptions::default())
    }

    fn with_options(steps: Vec<UncheckedStep>, options: ExecutionOptions) -> Self {
        let mut story = Self::new_unclaimed(steps, options);
        story.claim();
        story
    }

    fn new_unclaimed(steps: Vec<UncheckedStep>, options: ExecutionOptions) -> Self {
        let about = plan(steps);
        let created = Created::new(about.id(), about.info().request, options);
        Self::created(&about, created)
    }

    fn created(plan: &Arc<Plan>, created: Created) -> Self {
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let (execution, created) =
            create_execution_from(id, plan, created, None, time_at(0)).unwrap();
        let (starts, limited) = (BTreeSet::new(), Arc::default());
        Self {
            execution,
            log: vec![created],
            now: time_at(0),
            commands: 0,
            checked_events: 1,
            decision_starts: starts,
            limited_tools: limited,
        }
    }

    fn decide(&mut self, input: &Input) -> &mut Self {
        let moment = DecisionContext::from(self.now);
        self.decision_starts.insert(self.log.len());
        self.log.extend(decide(&mut self.execution, input.clone(), moment));
        if !matches!(input, Input::Claimed { .. }) {
            let again = decide(&mut self.execution, input.clone(), moment);
            assert_eq!(again, [], "a decision is made once");
        }
        assert_eq!(
            decide(&mut self.execution, Input::Woken, moment),
            [],
            "no further event is due"
        );
        self
    }

    fn claim(&mut self) -> &mut Self {
        self.decide(&claim())
    }

    fn step_number(&self, id: &str) -> StepNumber {
        self.execution.plan().step_number(&id.parse().unwrap()).unwrap()
    }

    fn end_step(&mut self, id: &str, result: Result<Value, ToolError>) -> &mut Self {
        self.end_task(self.task(id), result)
    }

    fn end_task(&mut self, task: Task, result: Result<Value, ToolError>) -> &mut Self {
        let attempt = self.attempt(task);
        self.decide(&Input::Ended { task, attempt, result: result.map(CallOutput::from) })
    }

    fn end_uncalled(&mut self, id: &str, error: ToolError) -> &mut Self {
        let task = self.task(id);
        let attempt = self.attempt(task);
        self.decide(&Input::NotCalled { task, attempt, error })
    }

    fn attempt(&self, task: Task) -> Attempt {
        Attempt::nth_after(self.execution.task(task).unwrap().attempts - 1)
    }

    /// Returns the task that `a`, `a[2]`, `a/undo` or `a[2]/undo` names.
    fn task(&self, name: &str) -> Task {
        let (name, undo) = name.strip_suffix("/undo").map_or((name, false), |name| (name, true));
        let (name, item) = match name.split_once('[') {
            Some((name, item)) => (name, Some(item.trim_end_matches(']').parse().unwrap())),
            None => (name, None),
        };
        Task { step: self.step_number(name), part: Part { item, undo } }
    }

    fn succeed(&mut self, id: &str) -> &mut Self {
        self.end_step(id, Ok(json!({ "by": id })))
    }

    fn envelope(&mut self, command: Command) -> SentCommand {
        self.commands += 1;
        let id: CommandId = format!("cmd_{}_aaaaaaaaa", self.commands).parse().unwrap();
        SentCommand { id, execution: self.execution.id(), at: self.now, by: None, command }
    }

    fn send_command(&mut self, command: Command) -> &mut Self {
        let envelope = self.envelope(command);
        self.decide(&Input::Command(envelope))
    }

    fn cancel(&mut self) -> &mut Self {
        self.send_command(Command::Cancel { reason: None })
    }

    fn approve(&mut self, id: &str, approved: bool) -> &mut Self {
        let task = self.task(id);
        let (step, item) = (self.execution.plan().step(task.step).id.clone(), task.part.item);
        self.send_command(Command::Approve { step, item, approved, comment: None })
    }

    fn signal(&mut self, name: &str, payload: Value) -> &mut Self {
        self.send_command(Command::Signal { name: name.to_owned(), payload: Arc::new(payload) })
    }

    fn wake_at(&mut self, ms: i64) -> &mut Self {
        self.now = time_at(ms);
        self.decide(&Input::Woken)
    }

    /// Compares the events since the last check with `expected`, one decision per line. Replays the
    /// log, and makes sure that no event follows the end.
    #[expect(clippy::needless_pass_by_value, reason = "`expect![…]` is written where it is used")]
    fn check(&mut self, expected: Expect) -> &mut Self {
        let mut lines: Vec<String> = Vec::new();
        for (n, recorded) in self.log.iter().enumerate().skip(self.checked_events) {
            let event = describe_event(&recorded.event);
            let is_start = self.decision_starts.contains(&n) || self.log[n - 1].at != recorded.at;
            match lines.last_mut().filter(|_| !is_start) {
                Some(line) if line.len() + event.len() <= 85 => write!(line, ", {event}").unwrap(),
                Some(line) => {
                    line.push(',');
                    lines.push(format!("  {event}"));
                }
                None => lines.push(format!("{} {event}", millis(recorded.at))),
            }
        }
        self.checked_events = self.log.len();
        expected
            .assert_eq(&lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>());
        self.assert_replays();
        if let Some(Event::Finished { outcome }) = self.log.last().map(|last| &last.event) {
            let state = match outcome {
                Outcome::Completed => ExecutionState::Completed,
                Outcome::Failed => ExecutionState::Failed,
                Outcome::Cancelled => ExecutionState::Cancelled,
            };
            self.assert_finished(state);
        }
        self
    }

    fn assert_replays(&self) {
        let plan = Arc::clone(self.execution.plan());
        let mut replayed = Execution::replay(self.execution.id(), plan, &self.log).unwrap();
        replayed.set_limited_tools(Arc::clone(&self.limited_tools));
        assert_eq!(describe_logged_state(&replayed), describe_logged_state(&self.execution));
    }

    fn state(&self) -> ExecutionState {
        self.execution.state()
    }

    fn limit_calls(&mut self, tools: &[&str]) -> &mut Self {
        let tools: BTreeSet<ToolName> = tools.iter().map(|name| name.parse().unwrap()).collect();
        self.limited_tools = Arc::new(tools);
        self.execution.set_limited_tools(Arc::clone(&self.limited_tools));
        self
    }

    fn grant_permit(&mut self, task: &str) -> &mut Self {
        self.decide(&Input::Permitted(self.task(task)))
    }

    fn output(&self, id: &str) -> Value {
        self.execution.step(self.step_number(id)).output().unwrap().clone()
    }

    fn called_with(&self, task: &str) -> Value {
        let task = self.execution.task(self.task(task)).unwrap();
        task.parameters.as_deref().unwrap().clone()
    }

    /// Ends running attempts, and attempts that start as a result, until no attempt is running.
    fn run(&mut self, end: impl Fn(Task) -> Result<Value, ToolError>) -> &mut Self {
        for _ in 0..100_000 {
            let Some(task) = self.execution.agenda().running().first().copied() else { break };
            self.end_task(task, end(task));
        }
        self
    }

    /// Continues every prefix of the log: another worker claims it, and all calls succeed. The
    /// execution must finish in each case.
    fn assert_survives_every_cut(&self) {
        let plan = self.execution.plan();
        for cut in 1..self.log.len() {
            let log = &self.log[..cut];
            let execution = Execution::replay(self.execution.id(), Arc::clone(plan), log).unwrap();
            let (starts, limited) = (BTreeSet::new(), Arc::default());
            let mut story = Self {
                execution,
                log: log.to_vec(),
                decision_starts: starts,
                limited_tools: limited,
                ..*self
            };
            story.claim();
            for _ in 0..100 {
                story.run(|_| Ok(json!("again")));
                let Some(at) = wake_at(&story.execution) else { break };
                story.now = story.now.max(at);
                story.decide(&Input::Woken);
            }
            let state = story.state();
            assert!(state.is_finished(), "cut after {cut}: {state:?}");
            story.assert_finished(state);
        }
    }

    fn next_wake_ms(&self) -> Option<i64> {
        wake_at(&self.execution).map(millis)
    }

    fn assert_finished(&mut self, state: ExecutionState) -> StepCounts {
        assert_eq!(self.state(), state);
        let finished = self.log.iter().filter(|recorded| recorded.event.is_last()).count();
        assert_eq!(finished, 1);
        assert!(self.log.last().is_some_and(|recorded| recorded.event.is_last()));
        let tally = self.execution.count_steps();
        let StepCounts { total, successful, failed, skipped, cancelled } = tally;
        assert_eq!(total, successful + failed + skipped + cancelled);
        let (events, now) = (self.log.len(), self.now);
        self.claim().cancel().send_command(Command::Pause).signal("go", json!(1)).wake_at(1 << 40);
        assert_eq!(self.log.len(), events, "no event follows the end");
        assert_eq!(self.next_wake_ms(), None);
        self.now = now;
        tally
    }
}

/// Describes the parts of an execution that its log determines. Tasks in the permit queue and
/// conditions that were true are not in the log. A replay finds them again.
fn describe_logged_state(execution: &Execution) -> String {
    let agenda = execution.agenda();
    let retrying: BTreeSet<Task> = agenda.retrying().iter().map(|retry| retry.1).collect();
    let due = [agenda.ready(), agenda.without_permit(), agenda.to_wait(), &retrying];
    let due: BTreeSet<Task> = due.into_iter().flatten().copied().collect();
    let conditions = agenda.to_evaluate().iter().map(|number| Task::from(*number));
    let open: BTreeSet<Task> = due.into_iter().chain(agenda.undoing()).chain(conditions).collect();
    let rest = [
        format!("{:?} {:?}", agenda.to_skip(), agenda.running()),
        format!("{:?} {:?}", agenda.sleeping(), agenda.in_children()),
        format!("{:?} {:?}", agenda.waiting(), agenda.items_finished()),
        format!("{:?} {:?}", agenda.is_finished(), agenda.has_waiting_tasks()),
        format!("{:?} {:?}", execution.undoable(), execution.signals()),
        format!("{:?} {:?}", execution.phase(), execution.is_paused()),
        format!("{:?} {:?}", execution.seq(), execution.owner()),
    ];
    format!("{open:#?}\n{}\n{:#?}", rest.join("\n"), execution.steps())
}

fn millis(moment: Timestamp) -> i64 {
    (moment - time_at(0)).num_milliseconds()
}

fn describe_event(event: &Event) -> String {
    let mut line = String::new();
    if let Some(step) = event.step() {
        write!(line, "{step}").unwrap();
    }
    if let Some(item) = event.part().item {
        write!(line, "[{item}]").unwrap();
    }
    if let Some(attempt) = event.attempt() {
        write!(line, "#{attempt}").unwrap();
    }
    match event.kind().strip_prefix("step_") {
        Some(kind) => write!(line, " {kind}").unwrap(),
        None => line.push_str(event.kind()),
    }
    match event {
        Event::StepStarted(StepStarted { until: Some(until), .. }) => {
            write!(line, " until {}", millis(*until)).unwrap();
        }
        Event::StepStarted(StepStarted { items: Some(n), .. }) => {
            write!(line, " of {n}").unwrap();
        }
        Event::StepStarted(StepStarted { child: Some(_), .. }) => {
            write!(line, " elsewhere").unwrap();
        }
        Event::StepSucceeded { output: Some(output), cached, .. } => {
            write!(line, " {output}{}", if *cached { " cached" } else { "" }).unwrap();
        }
        Event::StepProgress { progress, .. } => write!(line, " {}", progress.progress).unwrap(),
        Event::StepRetryScheduled { error, until, .. } => {
            write!(line, " {} until {}", error.code, millis(*until)).unwrap();
        }
        Event::StepSettled { outcome, output, .. } => {
            write!(line, " {outcome:?}").unwrap();
            if let Some(output) = output {
                write!(line, " {output}").unwrap();
            }
        }
        Event::StepFailed { error, .. } => write!(line, " {}", error.code).unwrap(),
        Event::StepSkipped { reason, .. } => write!(line, " {reason:?}").unwrap(),
        Event::StepWaiting { reason, .. } => {
            let reason = match reason {
                WaitReason::Approval => "approval".to_owned(),
                WaitReason::Signal { name, .. } => format!("signal {name}"),
                WaitReason::Decision { error } => format!("decision {}", error.code),
            };
            write!(line, " {reason}").unwrap();
        }
        Event::Finished { outcome } => write!(line, " {outcome:?}").unwrap(),
        _ => (),
    }
    line
}
