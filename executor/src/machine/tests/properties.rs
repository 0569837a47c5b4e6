//! Tests of properties that all plans have after all sequences of inputs.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A random input. Its numbers select among the inputs that are possible now.
#[derive(Clone, Debug)]
enum RandomInput {
    Claim,
    End { pick: usize, how: u8 },
    Stale { step: usize, attempt: u32 },
    Permit { pick: usize },
    Report { pick: usize },
    Wake { ms: i64 },
    Cancel,
    Pause,
    Resume,
    Approve { step: usize, item: Option<u32>, approved: bool },
    Signal { name: u8 },
}

fn random_inputs() -> impl Strategy<Value = Vec<RandomInput>> {
    let item = prop::option::weighted(0.3, 0..4_u32);
    let random_input = prop_oneof![
        1 => Just(RandomInput::Claim),
        16 => (any::<usize>(), 0..32_u8).prop_map(|(pick, how)| RandomInput::End { pick, how }),
        1 => (0..12_usize, 0..4_u32).prop_map(|(step, attempt)| RandomInput::Stale { step, attempt }),
        4 => any::<usize>().prop_map(|pick| RandomInput::Permit { pick }),
        1 => any::<usize>().prop_map(|pick| RandomInput::Report { pick }),
        4 => (0..3_000_i64).prop_map(|ms| RandomInput::Wake { ms }),
        1 => prop::bool::weighted(0.2).prop_map(|cancels| if cancels { RandomInput::Cancel } else { RandomInput::Claim }),
        1 => Just(RandomInput::Pause),
        2 => Just(RandomInput::Resume),
        2 => (0..12_usize, item, prop::bool::weighted(0.8))
            .prop_map(|(step, item, approved)| RandomInput::Approve { step, item, approved }),
        2 => (0..2_u8).prop_map(|name| RandomInput::Signal { name }),
    ];
    prop::collection::vec(random_input, 0..80)
}

#[derive(Clone, Debug)]
struct StepFeatures {
    after: Vec<bool>,
    kind: u8,
    effect: usize,
    on_error: usize,
    attempts: u32,
    asks: bool,
    is_loop: bool,
    width: Option<u32>,
    when: Option<u8>,
    undo: Option<(usize, u32, bool)>,
}

fn features(n: usize) -> impl Strategy<Value = StepFeatures> {
    let after = prop::collection::vec(prop::bool::weighted(0.3), n);
    let policy = (0..3_usize, 0..4_usize, 1..4_u32, prop::bool::weighted(0.1));
    let list = (prop::bool::weighted(0.3), prop::option::of(1..4_u32));
    let when = prop::option::weighted(0.2, 0..5_u8);
    let undo = prop::option::weighted(0.4, (0..3_usize, 1..3_u32, prop::bool::weighted(0.3)));
    (after, 0..14_u8, policy, list, when, undo).prop_map(
        |(after, kind, policy, list, when, undo)| {
            let (effect, on_error, attempts, asks) = policy;
            let (is_loop, width) = list;
            StepFeatures {
                after,
                kind,
                effect,
                on_error,
                attempts,
                asks,
                is_loop,
                width,
                when,
                undo,
            }
        },
    )
}

const EFFECTS: [Effect; 3] = [Effect::Read, Effect::Idempotent, Effect::Once];
const ON_ERROR: [OnError; 4] = [OnError::Fail, OnError::Continue, OnError::Ignore, OnError::Wait];

fn build_step(n: usize, features: &StepFeatures) -> UncheckedStep {
    let after: Vec<String> = (0..n)
        .filter(|number| features.after[*number])
        .map(|number| format!("s{number}"))
        .collect();
    let names: Vec<&str> = after.iter().map(String::as_str).collect();
    let id = format!("s{n}");
    let inputs: Vec<String> = names.iter().map(|name| format!("{{{{{name}.by}}}}")).collect();
    let inputs = json!({ "inputs": inputs });
    let mut step = match features.kind {
        0 => sleep(&id, 400, &names),
        1 => wait(&id, &format!("go{}", n % 2), &names),
        2 => with_parameters(inputs, sub_plan(&id, &names)),
        3..5 => with_parameters(inputs, step(&id, "set.limited", &names)),
        _ => with_parameters(inputs, call(&id, &names)),
    };
    step.policy.effect = EFFECTS[features.effect];
    step.policy.on_error = ON_ERROR[features.on_error];
    step.policy.requires_approval = features.asks;
    step.policy.max_parallel = features.width;
    let on = names.last();
    if features.is_loop {
        let list = on.map_or("{{input.list}}".to_owned(), |name| format!("{{{{{name}.list}}}}"));
        step.for_each = Some(list);
    }
    step.when = features.when.map(|kind| match (kind, on) {
        (0, _) => "false".to_owned(),
        (1, Some(on)) => format!("{on} == null"),
        (2, Some(on)) => format!("{on}.by > 2"),
        (3, Some(on)) => format!("has({on}.list) && {on}.list.size() > 3"),
        _ => "input.list.size() >= 0".to_owned(),
    });
    if let Some((effect, attempts, is_limited)) = features.undo {
        step = with_compensation(step);
        let undo = step.compensate.as_mut().unwrap();
        undo.policy.effect = EFFECTS[effect];
        (undo.policy.retry.max_attempts, undo.policy.retry.jitter) = (attempts, false);
        if is_limited {
            undo.tool = "set.limited".parse().unwrap();
        }
    }
    with_attempts(features.attempts, step)
}

fn steps() -> impl Strategy<Value = Vec<UncheckedStep>> {
    let features = (1..10_usize).prop_flat_map(|n| (0..n).map(features).collect::<Vec<_>>());
    features.prop_map(|all| {
        all.iter().enumerate().map(|(n, features)| build_step(n, features)).collect()
    })
}

fn options() -> impl Strategy<Value = ExecutionOptions> {
    let deadline = prop::option::weighted(0.2, 1..20_000_u64);
    let start = prop::option::weighted(0.1, 0..2_000_i64);
    (any::<bool>(), prop::option::of(1..5_u32), deadline, start, any::<bool>(), 0..20_usize)
        .prop_map(|(is_sequential, max_parallel, deadline_ms, start, compensates, items)| {
            let mode =
                if is_sequential { ExecutionMode::Sequential } else { ExecutionMode::Parallel };
            ExecutionOptions {
                mode,
                max_parallel,
                deadline_ms,
                start_at: start.map(time_at),
                compensate_on_failure: compensates,
                input: Arc::new(json!({ "list": vec![7; items] })),
                ..ExecutionOptions::default()
            }
        })
}

impl Story {
    fn running(&self) -> Vec<Task> {
        let agenda = self.execution.agenda();
        let sleeps = |task: &Task| agenda.sleeping().iter().any(|(_, number)| number == task);
        agenda.running().iter().copied().filter(|task| !sleeps(task)).collect()
    }

    fn input(&mut self, random_input: &RandomInput) -> Option<Input> {
        let count = self.execution.plan().steps().len();
        let running = self.running();
        let pick = |pick: &usize| running.get(pick % running.len().max(1)).copied();
        Some(match random_input {
            RandomInput::Claim => claim(),
            RandomInput::End { pick: which, how } => {
                let task = pick(which)?;
                let (attempt, result) = (self.attempt(task), random_result(*how, task));
                Input::Ended { task, attempt, result }
            }
            RandomInput::Stale { step, attempt } => {
                let step = StepNumber::new(step % count);
                // Uses only attempts that are not running, because `End` is for running attempts.
                let attempt = Attempt::nth_after(self.execution.step(step).attempts + attempt);
                let (task, result) = (step.into(), Ok(json!("stale").into()));
                Input::Ended { task, attempt, result }
            }
            RandomInput::Permit { pick } => {
                let held = self.execution.agenda().without_permit();
                Input::Permitted(*held.iter().nth(pick % held.len().max(1))?)
            }
            RandomInput::Report { pick: which } => {
                let task = pick(which)?;
                let progress = Progress { progress: 1.0, total: None, message: None };
                let (attempt, moment) = (self.attempt(task), DecisionContext::from(self.now));
                let input = Input::Progressed { task, attempt, progress };
                // Does not repeat progress reports, because each report adds an event.
                self.log.extend(decide(&mut self.execution, input, moment));
                return None;
            }
            RandomInput::Wake { ms } => {
                self.now += Duration::from_millis(ms.unsigned_abs());
                Input::Woken
            }
            RandomInput::Cancel => Input::Command(self.envelope(Command::Cancel { reason: None })),
            RandomInput::Pause => Input::Command(self.envelope(Command::Pause)),
            RandomInput::Resume => Input::Command(self.envelope(Command::Resume)),
            RandomInput::Approve { step, item, approved } => {
                let step = self.execution.plan().steps()[step % count].id.clone();
                let (item, approved, comment) = (*item, *approved, None);
                Input::Command(self.envelope(Command::Approve { step, item, approved, comment }))
            }
            RandomInput::Signal { name } => {
                let (name, payload) = (format!("go{name}"), Arc::new(json!(self.commands)));
                Input::Command(self.envelope(Command::Signal { name, payload }))
            }
        })
    }

    fn apply_random_input(&mut self, random_input: &RandomInput) {
        let before = self.log.len();
        let Some(input) = self.input(random_input) else { return };
        self.decide(&input);
        let plan = Arc::clone(self.execution.plan());
        let id = self.execution.id();
        let mut replayed = Execution::replay(id, plan, &self.log[..before]).unwrap();
        for recorded in &self.log[before..] {
            if let Event::StepStarted(started) = &recorded.event {
                self.assert_may_start(&replayed, started);
            }
            replayed.apply(recorded).unwrap();
            assert_invariants(&replayed);
        }
        replayed.set_limited_tools(Arc::clone(&self.limited_tools));
        assert_eq!(describe_logged_state(&replayed), describe_logged_state(&self.execution));
        self.assert_same_after_takeover(replayed);
        if self.execution.started_at().is_some() {
            let wakes = wake_at(&self.execution).is_none_or(|wake| wake > self.now);
            assert!(
                wakes,
                "the driver would wake up again and again: {:?}",
                self.execution.agenda()
            );
        }
    }

    fn assert_may_start(&self, before: &Execution, started: &StepStarted) {
        let plan = before.plan();
        let number = plan.step_number(&started.step).unwrap();
        let task = Task { step: number, part: started.part };
        if started.part.undo {
            assert!(
                matches!(before.phase(), Phase::Compensating(_)) && before.agenda().is_finished()
            );
            assert_eq!(before.undoable().last().unwrap().compensation(), task);
        } else {
            let is_over = |number: &StepNumber| before.step(*number).state.is_finished();
            assert!(plan.step(number).depends_on.iter().all(is_over), "{} early", started.step);
            assert_eq!(before.phase(), Phase::Open);
            assert!(!before.is_paused());
        }
        let is_once = plan.step(number).call_of_part(started.part).policy.effect == Effect::Once;
        let starts_of_step = |recorded: &&RecordedEvent| {
            recorded.event.step() == Some(&started.step) && recorded.event.part() == started.part
        };
        let last = self
            .log
            .iter()
            .take_while(|recorded| recorded.seq <= before.seq())
            .filter(starts_of_step)
            .last();
        if is_once && started.attempt > Attempt::FIRST {
            let may = match &last.unwrap().event {
                Event::StepRetryScheduled { error, .. } => error.is_definite,
                Event::StepApproved { .. } => true,
                _ => false,
            };
            assert!(may, "{} is called again although its outcome is unknown", started.step);
        }
    }

    fn assert_same_after_takeover(&self, mut replayed: Execution) {
        let mut here = self.execution.clone();
        let events = decide(&mut replayed, claim(), self.now);
        assert_eq!(events, decide(&mut here, claim(), self.now));
        assert_eq!(describe_logged_state(&replayed), describe_logged_state(&here));
        assert_eq!(wake_at(&replayed), wake_at(&here));
    }

    fn run_until_finished(&mut self, end: fn(&Self, Task) -> Result<CallOutput, ToolError>) {
        for _ in 0..1_000 {
            if self.state().is_finished() {
                return;
            }
            if let Some(at) = wake_at(&self.execution) {
                self.now = self.now.max(at);
            }
            self.claim_if_not_started();
            self.send_command(Command::Resume);
            for task in self.execution.agenda().without_permit().clone() {
                self.decide(&Input::Permitted(task));
            }
            for task in self.running() {
                let (attempt, result) = (self.attempt(task), end(self, task));
                self.decide(&Input::Ended { task, attempt, result });
            }
            for task in self.execution.agenda().waiting().clone() {
                let id = self.execution.plan().step(task.step).id.clone();
                self.approve(id.as_str(), true);
            }
            self.signal("go0", json!(0)).signal("go1", json!(1)).decide(&Input::Woken);
        }
        panic!("the execution never ends: {:?}", self.execution);
    }

    fn deterministic_output(&self, task: Task) -> Result<CallOutput, ToolError> {
        let got = self.execution.task(task).and_then(|task| task.parameters.clone());
        match task.step.get() + task.part.item.map_or(0, |item| item as usize) {
            n if n % 4 == 0 => Err(failed_error().without_retry()),
            n => Ok(json!({ "by": n, "got": got, "list": vec![n; n] }).into()),
        }
    }

    fn claim_if_not_started(&mut self) {
        if self.execution.started_at().is_none() {
            self.claim();
        }
    }

    /// Asserts that all steps that need a compensation are compensated, the latest step first, and
    /// that no other steps are compensated.
    fn assert_undone_in_order(&self) {
        let plan = self.execution.plan();
        let task = |event: &Event| {
            let step = event.step()?;
            Some(Task { step: plan.step_number(step).unwrap(), part: event.part() })
        };
        let (mut done, mut undone) = (Vec::new(), Vec::new());
        for RecordedEvent { event, .. } in &self.log {
            let Some(task) = task(event) else { continue };
            if task.part.undo {
                undone.push(task);
            } else if matches!(event, Event::StepSucceeded { output: Some(_), .. })
                && plan.step(task.step).compensate.is_some()
            {
                done.push(task.compensation());
            }
        }
        undone.dedup();
        let is_well = self.state() == ExecutionState::Completed;
        if is_well || !self.execution.options().compensate_on_failure {
            done.clear();
        }
        done.reverse();
        assert_eq!(undone, done);
    }
}

fn assert_invariants(execution: &Execution) {
    let agenda = execution.agenda();
    assert!(agenda.running().len() <= execution.options().width());
    for (number, step) in execution.plan().steps().iter().enumerate() {
        let is_item_of_step = |task: &&Task| task.step.get() == number && task.part.item.is_some();
        let items = agenda.running().iter().filter(is_item_of_step).count();
        assert!(items <= step.policy.max_parallel() as usize, "{items} items of `{}`", step.id);
    }
    let first = execution.steps().iter().position(|step| !step.state.is_finished());
    let is_next = |task: &Task| task.part.undo || Some(task.step.get()) == first;
    let is_sequential = execution.options().mode == ExecutionMode::Sequential;
    assert!(
        !is_sequential || begun_tasks(execution).all(|task| is_next(&task)),
        "out of turn: {agenda:?}"
    );
    let is_open = |task: &Task| execution.task(*task).is_none_or(|task| !task.state.is_finished());
    let listed = [agenda.ready(), agenda.without_permit(), agenda.to_wait(), agenda.running()];
    assert!(listed.into_iter().flatten().all(is_open), "{agenda:?}");
}

/// Returns every unfinished task that has events or is about to get one.
fn begun_tasks(execution: &Execution) -> impl Iterator<Item = Task> {
    let agenda = execution.agenda();
    let listed = [agenda.ready(), agenda.without_permit(), agenda.to_wait(), agenda.running()];
    let tasks = listed.into_iter().chain([agenda.waiting()]).flatten().copied();
    let steps = agenda.to_evaluate().iter().map(|number| Task::from(*number));
    tasks.chain(steps).chain(agenda.retrying().iter().map(|retry| retry.1))
}

fn random_result(how: u8, task: Task) -> Result<CallOutput, ToolError> {
    match how {
        0..3 => Err(failed_error()),
        3..6 => Err(failed_error().without_retry()),
        6..8 => Err(timeout_error()),
        8..10 => Err(cancelled_error()),
        n => Ok(json!({ "by": task.step.get(), "list": vec![n; usize::from(n - 10)] }).into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_executions_keep_the_invariants_and_finish(
        steps in steps(), options in options(), random_inputs in random_inputs(),
    ) {
        let mut story = Story::new_unclaimed(steps, options);
        story.limit_calls(&["set.limited"]);
        for random_input in &random_inputs {
            story.apply_random_input(random_input);
        }
        story.run_until_finished(|_, task| Ok(json!({ "by": task.step.get(), "list": [1, 2] }).into()));
        story.assert_undone_in_order();
        let state = story.state();
        story.assert_finished(state);
        for end in 1..=story.log.len() {
            let plan = Arc::clone(story.execution.plan());
            Execution::replay(story.execution.id(), plan, &story.log[..end]).unwrap();
        }
        let json = shared::event::encode_events(&story.log);
        prop_assert_eq!(shared::event::decode_events(Seq(1), &json).unwrap(), story.log);
    }

    #[test]
    fn sequential_and_parallel_give_the_same_outputs(
        steps in steps(), picks in prop::collection::vec(any::<usize>(), 60),
    ) {
        let outputs = |mode| {
            let input = Arc::new(json!({ "list": [1, 2, 3] }));
            let options = ExecutionOptions { mode, input, ..ExecutionOptions::default() };
            let steps = steps.iter().cloned().map(|mut step| {
                step.policy.on_error = OnError::Ignore;
                // Replaces waits by calls, because the order of the signals decides which of two
                // waits gets which signal.
                if step.tool.as_str() == "flow.wait" {
                    step.tool = "set.tool".parse().unwrap();
                }
                step
            });
            let mut story = Story::new_unclaimed(steps.collect(), options);
            story.limit_calls(&["set.limited"]).claim();
            for pick in &picks {
                let held = story.execution.agenda().without_permit();
                if let Some(task) = held.iter().nth(pick % held.len().max(1)).copied() {
                    story.decide(&Input::Permitted(task));
                }
                let running = story.running();
                let Some(task) = running.get(pick % running.len().max(1)).copied() else { break };
                let (attempt, result) = (story.attempt(task), story.deterministic_output(task));
                story.decide(&Input::Ended { task, attempt, result });
            }
            story.run_until_finished(Story::deterministic_output);
            let count = story.execution.steps().len();
            let outputs = (0..count).map(StepNumber::new);
            let outputs: Vec<Option<Value>> =
                outputs.map(|id| story.execution.output(id).cloned()).collect();
            (outputs, story.execution.count_steps())
        };
        prop_assert_eq!(outputs(ExecutionMode::Sequential), outputs(ExecutionMode::Parallel));
    }
}

/// The cost of a decision grows with the tasks that become ready. Each of these plans would take
/// minutes if each of the 50,000 decisions read 50,000 steps.
#[test]
fn the_cost_of_a_decision_grows_with_the_tasks_it_makes_ready() {
    const STEPS: usize = 50_000;
    let mut steps = vec![call("root", &[])];
    steps.extend((1..STEPS).map(|n| call(&format!("s{n}"), &["root"])));
    let mut story = Story::with_options(
        steps,
        ExecutionOptions { max_parallel: Some(3), ..Default::default() },
    );
    story.succeed("root");
    let mut events = story.log.len();
    for n in 1..STEPS {
        story.end_task(StepNumber::new(n).into(), Ok(Value::Null));
        let more = story.log.len() - events;
        assert!(more <= 2, "{more} events for the end of one step");
        events = story.log.len();
    }
    story.assert_finished(ExecutionState::Completed);
}
