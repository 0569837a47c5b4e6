use std::time::Duration;

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    event::{Claimed, Created},
    execution::{ExecutionMode, ExecutionOptions, ExecutionState, StepState},
    id::{Attempt, Part, RequestId, StepNumber},
    plan::{Plan, StepPolicy, UncheckedCompensation, UncheckedStep},
    store::{Documents, Inbox, Lease, Log, Rate, memory::Memory},
};

use super::{children::ChildStatus, *};
use crate::{
    call::FinishedCall,
    call_limits::{LimitRule, LimitedCalls},
    worker::{
        Worker,
        tests::{plan, step, worker, worker_with_limits},
    },
};

struct DriverTest {
    driver: Driver,
    store: Arc<Memory>,
    context: Arc<WorkerContext>,
    commands: u32,
    /// The task that releases dropped permits.
    _returning: JoinSet<()>,
}

impl DriverTest {
    async fn new(plan: Arc<Plan>, options: ExecutionOptions) -> Self {
        let store = Arc::new(Memory::new());
        let (worker, _) = worker(&store);
        Self::with_store(store, &worker, plan, options).await
    }

    async fn with_rate_limit(rate: Rate, plan: Arc<Plan>, options: ExecutionOptions) -> Self {
        let of = LimitedCalls::Tool("set.limited".parse().unwrap());
        let key = Some("k".parse().unwrap());
        let rule = LimitRule { calls: of, key, concurrency: None, rate: Some(rate) };
        let store = Arc::new(Memory::new());
        let (worker, _) = worker_with_limits(&store, vec![rule]);
        Self::with_store(store, &worker, plan, options).await
    }

    async fn with_store(
        store: Arc<Memory>,
        worker: &Worker,
        plan: Arc<Plan>,
        options: ExecutionOptions,
    ) -> Self {
        let context = Arc::clone(worker.context());
        context.lease.extend(time::Instant::now(), context.options.lease);
        let now = context.clock.now();
        let until = Timestamp::MAX_UTC;
        let beat = Lease { worker: context.worker, node: "a".to_owned(), until };
        store.renew_lease(beat).await.unwrap();
        let (execution, created) =
            machine::create_execution(ExecutionId::draw(now), &plan, options, now);
        let (_, commands) = mpsc::channel(1);
        let (stored, _) = oneshot::channel();
        let place = Arc::clone(&context.slots).try_acquire_owned().unwrap();
        let new = NewExecution { execution, created, commands, stored, slot: place };
        let driver = Driver::start_new(Arc::clone(&context), new);
        let mut returning = JoinSet::new();
        let permits = Arc::clone(&context.permits);
        returning.spawn(async move { permits.release_returned().await });
        let mut test = Self { driver, store, context, commands: 0, _returning: returning };
        test.run_until_durable().await;
        test
    }

    async fn run_until_durable(&mut self) {
        self.driver.apply_results();
        while !self.driver.pending.is_empty() {
            let result = self.driver.pending.wait_for_append().await;
            self.driver.finish_append(result).await.unwrap();
            self.driver.apply_results();
        }
    }

    async fn send_command(&mut self, command: Command) {
        self.commands += 1;
        let (id, execution) = (numbered_command(self.commands), self.driver.execution.id());
        let envelope =
            SentCommand { id, execution, at: self.context.clock.now(), by: None, command };
        self.driver.apply_command(envelope, true);
        self.run_until_durable().await;
    }

    async fn event_kinds(&self) -> Vec<&'static str> {
        let log = self.store.read(self.driver.execution.id(), Seq::START).await.unwrap();
        log.iter().map(|recorded| recorded.event.kind()).collect()
    }
}

#[tokio::test]
async fn a_head_shows_that_a_person_is_needed_in_every_state() {
    let steps =
        [("s", "flow.sleep", json!({ "ms": 60_000 })), ("w", "flow.wait", json!({ "name": "go" }))];
    let plan = plan(steps.map(|(id, tool, parameters)| step(id, tool, parameters)).to_vec());
    let mut test = DriverTest::new(plan, ExecutionOptions::default()).await;
    let head = async |test: &DriverTest| {
        let head = test.store.head(test.driver.execution.id()).await.unwrap().unwrap();
        (head.state, head.needs_person)
    };
    assert_eq!(head(&test).await, (ExecutionState::InProgress, true));
    test.send_command(Command::Signal { name: "go".to_owned(), payload: Arc::default() }).await;
    assert_eq!(head(&test).await, (ExecutionState::InProgress, false));
}

fn plan_with_limited_steps(n: usize) -> Arc<Plan> {
    plan((0..n).map(|number| step(&format!("s{number}"), "set.limited", json!({}))).collect())
}

fn plan_with_child_steps(n: usize) -> Arc<Plan> {
    let part = "plan_2_aaaaaaaaa".parse().unwrap();
    let steps = (0..n).map(|number| UncheckedStep {
        plan: Some(part),
        ..step(&format!("s{number}"), "set.part", json!({}))
    });
    plan(steps.collect())
}

fn numbered_command(n: u32) -> CommandId {
    format!("cmd_{n}_aaaaaaaaa").parse().unwrap()
}

fn numbered_task(n: usize) -> Task {
    Task::from(StepNumber::new(n))
}

fn ended_call(task: Task, attempt: u32, bytes: usize) -> JobResult {
    let (attempt, result) = (Attempt::nth_after(attempt - 1), Ok(Value::Null.into()));
    JobResult::Ended(FinishedCall { task, attempt, result, bytes, is_tool_missing: false })
}

/// Regression: the ignored result counted as waiting bytes, and the driver took no more input.
#[tokio::test(start_paused = true)]
async fn an_ignored_result_does_not_count_as_waiting_bytes() {
    let plan = plan(vec![step("a", "set.endless", json!({}))]);
    let mut test = DriverTest::new(plan, ExecutionOptions::default()).await;
    for _ in 0..3 {
        test.driver.results.push_back(ended_call(numbered_task(0), 7, 9 << 20));
    }
    test.run_until_durable().await;
    assert!(test.driver.results.is_empty() && !test.driver.pending.is_full());
    test.driver.results.push_back(ended_call(numbered_task(0), 1, 4));
    test.run_until_durable().await;
    assert_eq!(test.event_kinds().await.last(), Some(&"finished"));
}

#[tokio::test(start_paused = true)]
async fn a_child_is_polled_by_one_job_at_a_time() {
    let mut test = DriverTest::new(plan_with_child_steps(2), ExecutionOptions::default()).await;
    let driver = &mut test.driver;
    assert_eq!(driver.jobs.len(), 2);
    driver.watch_children();
    driver.watch_children();
    assert_eq!(driver.jobs.len(), 2, "no watch is added");
    let child = driver.execution.step(StepNumber::new(0)).child.unwrap();
    driver.watch_finished_child(child, numbered_command(1));
    driver.watch_finished_child(child, numbered_command(1));
    driver.watch_finished_child(child, numbered_command(2));
    driver.watch_children();
    assert_eq!(driver.jobs.len(), 3, "a newer watch replaced an older one");
    // The plan of the children is missing, so each watch ends. One of the watches was replaced.
    let mut looked = Vec::new();
    while let Some(done) = driver.jobs.join_next().await {
        match done.unwrap() {
            JobResult::ChildChecked(task, number, seen) => {
                let words = driver.children.finish_watch(task, number, &seen);
                assert_eq!(
                    words.len(),
                    if task == self::numbered_task(0) { 2 } else { 0 },
                    "{task:?}"
                );
                looked.push(task);
            }
            JobResult::Cancelled => (),
            other => panic!("{other:?}"),
        }
    }
    looked.sort();
    assert_eq!(looked, [numbered_task(0), numbered_task(1)]);
}

/// Regression: the execution was parked without a due time, although the tool was back.
#[tokio::test(start_paused = true)]
async fn a_tool_that_returns_before_the_release_is_called() {
    let mut first = step("a", "set.endless", json!({}));
    first.policy.requires_approval = true;
    let mut test = DriverTest::new(plan(vec![first]), ExecutionOptions::default()).await;
    let (toolbox, name) = (test.context.toolbox.clone(), "set".parse().unwrap());
    let set = toolbox.set_with_tools(&name).unwrap();
    toolbox.remove_set(&name);
    let of = "a".parse().unwrap();
    test.send_command(Command::Approve { step: of, item: None, approved: true, comment: None })
        .await;
    assert_eq!(test.event_kinds().await.last(), Some(&"step_approved"));
    assert!(test.driver.can_park());
    toolbox.put_set(set);
    test.driver.refresh_tool_presence();
    assert!(!test.driver.can_park());
    assert!(
        test.driver.claim.needs_decision && test.driver.start_permission() == StartPermission::Now
    );
}

/// The tool may disappear between the append and the call. The log then records that no tool was
/// called.
#[tokio::test(start_paused = true)]
async fn a_tool_that_disappears_before_its_call_interrupts_the_attempt() {
    let mut first = step("a", "set.endless", json!({}));
    first.policy.requires_approval = true;
    let mut test = DriverTest::new(plan(vec![first]), ExecutionOptions::default()).await;
    let (id, execution) = (numbered_command(1), test.driver.execution.id());
    let of = "a".parse().unwrap();
    let command = Command::Approve { step: of, item: None, approved: true, comment: None };
    let at = test.context.clock.now();
    test.driver.apply_command(SentCommand { id, execution, at, by: None, command }, true);
    assert!(test.driver.is_held(numbered_task(0)), "the call waits until its start is durable");
    let (toolbox, name) = (test.context.toolbox.clone(), "set".parse().unwrap());
    let set = toolbox.set_with_tools(&name).unwrap();
    toolbox.remove_set(&name);
    test.run_until_durable().await;
    assert_eq!(test.event_kinds().await.last(), Some(&"step_interrupted"));
    assert!(
        test.driver.can_park() && test.driver.next_due_at() <= Some(at),
        "the execution is parked"
    );
    let StepState::Retrying { error: Some(error), .. } =
        &test.driver.execution.step(StepNumber::new(0)).state
    else {
        panic!("the step is retried")
    };
    assert!(error.message.contains("`set.endless`"), "{error}");
    toolbox.put_set(set);
    assert!(
        matches!(test.driver.next_input().await, DriverInput::Woken),
        "the driver wakes when the tool is back"
    );
    test.driver.decide(Input::Woken);
    test.run_until_durable().await;
    assert_eq!(test.event_kinds().await.last(), Some(&"step_started"));
    assert_eq!(test.driver.jobs.len(), 1, "the tool is called");
}

/// Regression: the command left the inbox immediately. A driver that crashed before it had read the
/// child's log lost the notification.
#[tokio::test(start_paused = true)]
async fn a_command_stays_in_the_inbox_until_the_childs_result_is_logged() {
    let mut test = DriverTest::new(plan_with_child_steps(1), ExecutionOptions::default()).await;
    let id = test.driver.execution.id();
    let child = test.driver.execution.step(StepNumber::new(0)).child.unwrap();
    test.context.control.send_command(id, Command::ChildEnded { child }).await.unwrap();
    for _ in 0..2 {
        for envelope in test.store.list_commands(Some(id)).await.unwrap() {
            test.driver.apply_command(envelope, true);
        }
        test.run_until_durable().await;
        assert_eq!(test.store.list_commands(Some(id)).await.unwrap().len(), 1);
    }
    while let Some(done) = test.driver.jobs.join_next().await {
        test.driver.collect_results(done.unwrap());
    }
    test.run_until_durable().await;
    assert!(test.driver.execution.agenda().is_finished());
    assert_eq!(test.store.list_commands(Some(id)).await.unwrap(), []);
    // A command leaves the inbox immediately if no task waits for the child.
    test.context.control.send_command(id, Command::ChildEnded { child }).await.unwrap();
    for envelope in test.store.list_commands(Some(id)).await.unwrap() {
        test.driver.apply_command(envelope, true);
    }
    test.run_until_durable().await;
    assert_eq!(test.store.list_commands(Some(id)).await.unwrap(), []);
}

/// Regression: the parent was parked until its deadline, or without a due time, before its child
/// existed.
#[tokio::test(start_paused = true)]
async fn a_draining_worker_leaves_its_unstarted_child_to_others() {
    for (seen, is_due) in [(ChildStatus::Running, false), (ChildStatus::Unknown, true)] {
        let mut test = DriverTest::new(plan_with_child_steps(1), ExecutionOptions::default()).await;
        test.driver.jobs.shutdown().await;
        test.context.drain.cancel();
        test.driver.inputs.is_draining = true;
        test.driver.collect_results(JobResult::ChildChecked(numbered_task(0), 1, seen));
        test.run_until_durable().await;
        assert!(test.driver.can_park());
        assert_eq!(test.driver.next_due_at().is_some(), is_due);
    }
}

/// Regression: a rate counted permits of steps without a slot.
#[tokio::test(start_paused = true)]
async fn a_driver_requests_only_permits_that_have_a_slot() {
    let options = ExecutionOptions { max_parallel: Some(2), ..ExecutionOptions::default() };
    let mut test = DriverTest::new(plan_with_limited_steps(5), options).await;
    assert_eq!(test.driver.permit_requests.open_requests(), 2);
    test.send_command(Command::Pause).await;
    assert_eq!(test.driver.permit_requests.open_requests(), 0, "no task may start");
    test.send_command(Command::Resume).await;
    assert_eq!(test.driver.permit_requests.open_requests(), 2);
    // One call holds the only permit, so one more call can wait for it.
    while test.driver.execution.agenda().running().is_empty() {
        let done = test.driver.jobs.join_next().await.unwrap().unwrap();
        test.driver.collect_results(done);
        test.run_until_durable().await;
    }
    assert_eq!(test.driver.execution.agenda().running().len(), 1);
    assert_eq!(test.driver.permit_requests.open_requests(), 1);
}

/// Regression: rates counted permits of steps without a slot, which then had to wait again.
#[tokio::test(start_paused = true)]
async fn a_permit_of_a_rate_is_kept_until_a_slot_is_free() {
    let started_at = time::Instant::now();
    let steps =
        (0..5).map(|number| step(&format!("s{number}"), "set.limited", json!({ "k": number })));
    let options = ExecutionOptions { max_parallel: Some(1), ..ExecutionOptions::default() };
    let rate = Rate { calls: 1, per_ms: 3_600_000 };
    let mut test = DriverTest::with_rate_limit(rate, plan(steps.collect()), options).await;
    for n in 0..5 {
        while test.driver.permit_requests.open_requests() > 0 {
            let done = test.driver.jobs.join_next().await.unwrap().unwrap();
            test.driver.collect_results(done);
            test.run_until_durable().await;
        }
        let running = test.driver.execution.agenda().running().iter().copied();
        let running: Vec<Task> = running.collect();
        assert_eq!(running.len(), 1, "{n} are over");
        test.driver.results.push_back(ended_call(running[0], 1, 4));
        test.run_until_durable().await;
    }
    assert!(test.driver.execution.agenda().is_finished());
    assert!(started_at.elapsed() < Duration::from_secs(1), "{:?}", started_at.elapsed());
}

/// Regression: a call that waited for the lease was never started if the lease was safe again
/// before the next wake-up was computed.
#[tokio::test(start_paused = true)]
async fn a_call_held_for_the_lease_starts_when_the_lease_is_safe() {
    let plan = plan(vec![step("a", "set.endless", json!({}))]);
    let mut test = DriverTest::new(plan, ExecutionOptions::default()).await;
    let call = test.driver.execution.agenda().running().first().copied().unwrap();
    test.driver.held_starts.push_back((test.driver.pending.durable_seq(), HeldStart::Child(call)));
    let lease = test.context.options.lease;
    time::advance(lease.checked_sub(lease / 100).unwrap()).await;
    test.driver.apply_results();
    assert!(test.driver.is_lease_doubtful() && !test.driver.held_starts.is_empty());
    test.context.lease.extend(time::Instant::now(), lease);
    assert!(!test.driver.is_lease_doubtful());
    assert!(test.driver.wake_delay().is_some() && !test.driver.can_park());
}

/// A permit of a cancelled request is released, even if another request is open.
#[tokio::test(start_paused = true)]
async fn a_permit_of_a_cancelled_request_starts_no_step() {
    let mut test = DriverTest::new(plan_with_limited_steps(1), ExecutionOptions::default()).await;
    let permit = test.driver.jobs.join_next().await.unwrap().unwrap();
    assert!(matches!(permit, JobResult::Permitted(..)));
    test.send_command(Command::Pause).await;
    test.send_command(Command::Resume).await;
    test.driver.collect_results(permit);
    test.run_until_durable().await;
    assert!(test.driver.execution.agenda().running().is_empty());
    assert_eq!(test.driver.permit_requests.open_requests(), 1, "the later request still runs");
}

/// Regression: a compensation waited for the permit of a step that would never start.
#[tokio::test(start_paused = true)]
async fn a_sequential_compensation_requests_its_own_permit() {
    let mut done = step("a", "set.endless", json!({}));
    done.compensate = Some(Box::new(UncheckedCompensation {
        tool: "set.limited".parse().unwrap(),
        parameters: Arc::new(json!({})),
        policy: StepPolicy::default(),
    }));
    let mut next = step("b", "set.limited", json!({}));
    next.depends_on = vec!["a".parse().unwrap()];
    let options = ExecutionOptions {
        mode: ExecutionMode::Sequential,
        compensate_on_failure: true,
        ..ExecutionOptions::default()
    };
    let mut test = DriverTest::new(plan(vec![done, next]), options).await;
    test.driver.results.push_back(ended_call(numbered_task(0), 1, 4));
    test.run_until_durable().await;
    assert_eq!(test.driver.execution.agenda().without_permit().first(), Some(&numbered_task(1)));
    assert_eq!(test.driver.permit_requests.open_requests(), 1);
    test.send_command(Command::Cancel { reason: None }).await;
    let undo = Task { part: Part { undo: true, ..Part::WHOLE }, ..numbered_task(0) };
    let held = test.driver.execution.agenda().without_permit();
    assert_eq!(held.iter().collect::<Vec<_>>(), [&undo]);
    assert_eq!(test.driver.permit_requests.open_requests(), 1, "for what undoes the first step");
}

/// Regression: after a short failure of the store, an execution did nothing until its longest call
/// ended.
#[tokio::test(start_paused = true)]
async fn a_new_lease_term_claims_the_execution_again_in_place() {
    let long = step("long", "set.endless", json!({}));
    let mut next = step("next", "set.endless", json!({}));
    next.depends_on = vec!["short".parse().unwrap()];
    let plan = plan(vec![long, step("short", "set.endless", json!({})), next]);
    let mut test = DriverTest::new(plan, ExecutionOptions::default()).await;
    let lease = test.context.options.lease;
    time::advance(lease * 2).await;
    test.driver.results.push_back(ended_call(numbered_task(1), 1, 4));
    test.run_until_durable().await;
    assert_eq!(test.driver.execution.agenda().running().len(), 1, "the lease is in doubt");
    test.context.lease.extend(time::Instant::now(), lease);
    test.run_until_durable().await;
    assert_eq!(test.driver.execution.agenda().running().len(), 2);
    assert_eq!(
        test.event_kinds().await,
        [
            "created",
            "claimed",
            "step_started",
            "step_started",
            "step_succeeded",
            "claimed",
            "step_started",
        ]
    );
    // No task is allowed to start if another worker has claimed the execution.
    time::advance(lease * 2).await;
    test.context.lease.extend(time::Instant::now(), lease);
    let id = test.driver.execution.id();
    let mut other = test.driver.execution.clone();
    let input = Input::Claimed {
        worker: "work_1_bbbbbbbbb".parse().unwrap(),
        node: "b".into(),
        commands_follow: false,
    };
    let events = machine::decide(&mut other, input, test.context.clock.now());
    let append = shared::store::Append::new(id, test.driver.execution.seq(), &events);
    test.store.append(append).await.unwrap();
    test.driver.apply_results();
    let result = test.driver.pending.wait_for_append().await;
    assert!(matches!(test.driver.finish_append(result).await, Err(DriveError::Fenced)));
}

#[test]
fn only_the_owner_renews_its_claim() {
    let plan = plan(vec![step("a", "set.endless", json!({}))]);
    let request = RequestId::draw(Timestamp::UNIX_EPOCH);
    let created = Created::new(plan.id(), request, ExecutionOptions::default());
    let [one, other] =
        [1, 2].map(|number| format!("work_{number}_aaaaaaaaa").parse::<WorkerId>().unwrap());
    let claim = |worker, epoch, renewed| {
        Event::Claimed(Claimed { worker, node: "n".into(), epoch: Epoch(epoch), renewed })
    };
    let replay = |events: Vec<Event>| {
        let log = (1..).zip(events).map(|(seq, event)| RecordedEvent {
            seq: Seq(seq),
            at: Timestamp::UNIX_EPOCH,
            by: None,
            event,
        });
        let id = ExecutionId::draw(Timestamp::UNIX_EPOCH);
        Execution::replay(id, Arc::clone(&plan), &log.collect::<Vec<_>>())
    };
    let created = Event::Created(Box::new(created));
    replay(vec![created.clone(), claim(one, 1, false), claim(one, 2, true)]).unwrap();
    replay(vec![created.clone(), claim(one, 1, false), claim(other, 2, true)]).unwrap_err();
    replay(vec![created, claim(one, 1, true)]).unwrap_err();
}

/// Regression: an event that no store can write was appended again and again.
#[tokio::test(start_paused = true)]
async fn an_event_that_no_store_can_write_is_not_appended_again() {
    let plan = plan(vec![step("a", "set.endless", json!({}))]);
    let mut test = DriverTest::new(plan, ExecutionOptions::default()).await;
    let started_at = time::Instant::now();
    let payload = Arc::new(json!("x".repeat(shared::limits::DOCUMENT_BYTES)));
    let signal = Command::Signal { name: "go".to_owned(), payload };
    let (id, execution) = (numbered_command(1), test.driver.execution.id());
    let at = test.context.clock.now();
    test.driver.apply_command(SentCommand { id, execution, at, by: None, command: signal }, true);
    test.driver.apply_results();
    let result = test.driver.pending.wait_for_append().await;
    let err = test.driver.finish_append(result).await.unwrap_err();
    assert!(err.is_damage(), "{err}");
    assert_eq!(started_at.elapsed(), Duration::ZERO);
}
