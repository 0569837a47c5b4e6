//! What holds for every plan and everything that can happen to it.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// What may happen next; numbers pick among what is possible.
#[derive(Clone, Debug)]
enum Move {
    Claim,
    End { pick: usize, how: u8 },
    Stale { step: usize, attempt: u32 },
    Wake { ms: i64 },
    Cancel,
    Pause,
    Resume,
    Approve { step: usize, approved: bool },
    Signal { name: u8 },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let a_move = prop_oneof![
        1 => Just(Move::Claim),
        12 => (any::<usize>(), 0..8_u8).prop_map(|(pick, how)| Move::End { pick, how }),
        1 => (0..12_usize, 0..4_u32).prop_map(|(step, attempt)| Move::Stale { step, attempt }),
        4 => (0..3_000_i64).prop_map(|ms| Move::Wake { ms }),
        1 => prop::bool::weighted(0.2).prop_map(|it| if it { Move::Cancel } else { Move::Claim }),
        1 => Just(Move::Pause),
        2 => Just(Move::Resume),
        2 => (0..12_usize, prop::bool::weighted(0.8))
            .prop_map(|(step, approved)| Move::Approve { step, approved }),
        2 => (0..2_u8).prop_map(|name| Move::Signal { name }),
    ];
    prop::collection::vec(a_move, 0..60)
}

fn a_step(n: usize) -> impl Strategy<Value = UncheckedStep> {
    let after = prop::collection::vec(prop::bool::weighted(0.3), n);
    let kind = prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
    let policy = (0..3_u8, 0..4_u8, 1..4_u32, prop::bool::weighted(0.1));
    (after, kind, policy).prop_map(move |(after, kind, (effect, on_error, attempts, asks))| {
        let after: Vec<String> =
            (0..n).filter(|it| after[*it]).map(|it| format!("s{it}")).collect();
        let names: Vec<&str> = after.iter().map(String::as_str).collect();
        let id = format!("s{n}");
        let mut step = match kind {
            0 => call(&id, &names),
            1 => sleep(&id, 400, &names),
            _ => wait(&id, &format!("go{}", n % 2), &names),
        };
        if kind == 0 {
            let inputs: Vec<String> = names.iter().map(|it| format!("{{{{{it}}}}}")).collect();
            step.parameters = Arc::new(json!({ "inputs": inputs }));
        }
        step.policy.effect = [Effect::Read, Effect::Idempotent, Effect::Once][usize::from(effect)];
        step.policy.on_error = [OnError::Fail, OnError::Continue, OnError::Ignore, OnError::Wait]
            [usize::from(on_error)];
        step.policy.requires_approval = asks;
        tries(attempts, step)
    })
}

fn steps() -> impl Strategy<Value = Vec<UncheckedStep>> {
    (1..12_usize).prop_flat_map(|n| (0..n).map(a_step).collect::<Vec<_>>())
}

fn options() -> impl Strategy<Value = ExecutionOptions> {
    let deadline = prop::option::weighted(0.2, 1..20_000_u64);
    let start = prop::option::weighted(0.1, 0..2_000_i64);
    (any::<bool>(), prop::option::of(1..5_u32), deadline, start).prop_map(
        |(is_sequential, max_parallel, deadline_ms, start)| ExecutionOptions {
            mode: if is_sequential { ExecutionMode::Sequential } else { ExecutionMode::Parallel },
            max_parallel,
            deadline_ms,
            start_at: start.map(at),
            ..ExecutionOptions::default()
        },
    )
}

impl Story {
    fn running(&self) -> Vec<Task> {
        let agenda = self.execution.agenda();
        let sleeps = |it: &Task| agenda.sleeping().iter().any(|(_, number)| number == it);
        agenda.running().iter().copied().filter(|it| !sleeps(it)).collect()
    }

    fn input(&mut self, a_move: &Move) -> Option<Input> {
        let count = self.execution.plan().steps().len();
        Some(match a_move {
            Move::Claim => {
                let worker = "work_1_aaaaaaaaa".parse().unwrap();
                Input::Claimed { worker, node: "n".into() }
            }
            Move::End { pick, how } => {
                let running = self.running();
                let task = *running.get(pick % running.len().max(1))?;
                let (attempt, result) = (self.attempt(task), result(*how, task.step));
                Input::Ended { task, attempt, result }
            }
            Move::Stale { step, attempt } => {
                let step = StepIx::new(step % count);
                // Only attempts that are not under way: those are for `End`.
                let attempt = Attempt::after(self.execution.step(step).attempts + attempt);
                let (task, result) = (step.into(), Ok(json!("stale").into()));
                Input::Ended { task, attempt, result }
            }
            Move::Wake { ms } => {
                self.now += Duration::from_millis(ms.unsigned_abs());
                Input::Woken
            }
            Move::Cancel => Input::Command(self.envelope(Command::Cancel { reason: None })),
            Move::Pause => Input::Command(self.envelope(Command::Pause)),
            Move::Resume => Input::Command(self.envelope(Command::Resume)),
            Move::Approve { step, approved } => {
                let step = self.execution.plan().steps()[step % count].id.clone();
                let (item, approved, comment) = (None, *approved, None);
                Input::Command(self.envelope(Command::Approve { step, item, approved, comment }))
            }
            Move::Signal { name } => {
                let (name, payload) = (format!("go{name}"), Arc::new(json!(self.commands)));
                Input::Command(self.envelope(Command::Signal { name, payload }))
            }
        })
    }

    /// Makes a move and checks what must hold after every move.
    fn make(&mut self, a_move: &Move) {
        let Some(input) = self.input(a_move) else { return };
        let before = self.log.len();
        self.decide(&input);
        assert!(self.execution.agenda().running().len() <= self.execution.options().width());
        let plan = Arc::clone(self.execution.plan());
        let mut replayed =
            Execution::replay(self.execution.id(), Arc::clone(&plan), &self.log[..before]).unwrap();
        for recorded in &self.log[before..] {
            if let Event::StepStarted(started) = &recorded.event {
                let number = plan.number(&started.step).unwrap();
                let is_over = |it: &StepIx| replayed.step(*it).state.is_over();
                assert!(plan.step(number).depends_on.iter().all(is_over), "{} early", started.step);
                assert_eq!(replayed.phase(), Phase::Open);
                assert!(!replayed.is_paused());
            }
            replayed.apply(recorded).unwrap();
            assert!(replayed.agenda().running().len() <= replayed.options().width());
        }
        assert_eq!(format!("{replayed:?}"), format!("{:?}", self.execution));
    }

    /// Lets everything end: whoever is asked agrees, whatever runs ends as `end` says, time passes.
    fn calm_down(&mut self, end: fn(&Self, Task) -> Result<Answer, ToolError>) {
        for _ in 0..1_000 {
            if self.state().is_over() {
                return;
            }
            if let Some(at) = wake_at(&self.execution) {
                self.now = self.now.max(at);
            }
            self.claim_if_not_started();
            self.tell(Command::Resume);
            for task in self.running() {
                let (attempt, result) = (self.attempt(task), end(self, task));
                self.decide(&Input::Ended { task, attempt, result });
            }
            let waiting: Vec<Task> = self.execution.agenda().waiting().iter().copied().collect();
            for task in waiting {
                let id = self.execution.plan().step(task.step).id.clone();
                self.approve(id.as_str(), true);
            }
            self.signal("go0", json!(0)).signal("go1", json!(1)).decide(&Input::Woken);
        }
        panic!("it never ends: {:?}", self.execution);
    }

    /// Returns what a deterministic tool makes of a step's parameters.
    fn deterministic(&self, task: Task) -> Result<Answer, ToolError> {
        let got = self.execution.task(task).and_then(|it| it.parameters.clone());
        match task.step.get() % 4 {
            0 => Err(failed().terminal()),
            n => Ok(json!({ "n": n, "got": got }).into()),
        }
    }

    fn claim_if_not_started(&mut self) {
        if self.execution.started_at().is_none() {
            self.claim();
        }
    }
}

fn result(how: u8, step: StepIx) -> Result<Answer, ToolError> {
    match how {
        0 => Err(failed()),
        1 => Err(failed().terminal()),
        2 => Err(timed_out()),
        3 => Err(stopped()),
        _ => Ok(json!({ "by": step.get() }).into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_rules_hold_and_it_ends(
        steps in steps(), options in options(), moves in moves(),
    ) {
        let mut story = Story::unclaimed(steps, options);
        for a_move in &moves {
            story.make(a_move);
        }
        story.calm_down(|_, task| Ok(json!(task.step.get()).into()));
        let state = story.state();
        story.is_over(state);
        for end in 1..=story.log.len() {
            let plan = Arc::clone(story.execution.plan());
            Execution::replay(story.execution.id(), plan, &story.log[..end]).unwrap();
        }
        let json = shared::event::to_json(&story.log);
        prop_assert_eq!(shared::event::from_json(Seq(1), &json).unwrap(), story.log);
    }

    #[test]
    fn sequential_and_parallel_give_the_same_outputs(
        steps in steps(), picks in prop::collection::vec(any::<usize>(), 60),
    ) {
        let outputs = |mode| {
            let options = ExecutionOptions { mode, ..ExecutionOptions::default() };
            let steps = steps.iter().cloned().map(|mut it| {
                it.policy.on_error = OnError::Ignore;
                it
            });
            let mut story = Story::with(steps.collect(), options);
            for pick in &picks {
                let running = story.running();
                let Some(task) = running.get(pick % running.len().max(1)).copied() else { break };
                let (attempt, result) = (story.attempt(task), story.deterministic(task));
                story.decide(&Input::Ended { task, attempt, result });
            }
            story.calm_down(Story::deterministic);
            let plan = Arc::clone(story.execution.plan());
            let calls = (0..plan.steps().len()).map(StepIx::new);
            let calls = calls.filter(|it| plan.step(*it).kind != shared::plan::StepKind::Wait);
            let outputs: Vec<Option<Value>> =
                calls.map(|it| story.execution.output(it).cloned()).collect();
            outputs
        };
        // What waits for a signal may get either of two that differ only in when they came.
        let has_waits = steps.iter().any(|it| it.tool.as_str() == "flow.wait");
        prop_assume!(!has_waits);
        prop_assert_eq!(outputs(ExecutionMode::Sequential), outputs(ExecutionMode::Parallel));
    }
}

/// A decision costs what it makes ready. Each of these would take minutes if every one of the
/// 50,000 decisions looked at 50,000 steps.
#[test]
fn a_decision_touches_what_it_makes_ready() {
    const STEPS: usize = 50_000;
    let mut steps = vec![call("root", &[])];
    steps.extend((1..STEPS).map(|n| call(&format!("s{n}"), &["root"])));
    let mut story =
        Story::with(steps, ExecutionOptions { max_parallel: Some(3), ..Default::default() });
    story.ok("root");
    let mut events = story.log.len();
    for n in 1..STEPS {
        story.end_task(StepIx::new(n).into(), Ok(Value::Null));
        let more = story.log.len() - events;
        assert!(more <= 2, "{more} events for the end of one step");
        events = story.log.len();
    }
    story.is_over(ExecutionState::Completed);
}
