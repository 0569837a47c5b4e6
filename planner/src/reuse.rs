use std::{collections::BTreeSet, sync::Arc};

use shared::{
    event::{CallKey, CallPlace, Created, SettledCall, SkipReason},
    execution::{Execution, ExecutionOptions, Step, StepState},
    id::{StepId, StepNumber},
    json, limits,
    plan::{Plan, ToolExecution},
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReuseError {
    #[error("`{0}` has not ended: cancel it first, or wait until it has")]
    Open(shared::id::ExecutionId),
    #[error("the plan has no step `{0}` to begin with")]
    NoStep(String),
    #[error(
        "the outputs before `{from}` have more than {max} bytes: begin with an earlier step, or \
         run every step again",
        max = limits::REUSED_BYTES
    )]
    TooMuch { from: String },
    #[error(
        "the outputs of the steps that succeeded have more than {max} bytes: retry from a step, or \
         run every step again",
        max = limits::REUSED_BYTES
    )]
    TooMuchSucceeded,
    #[error(
        "the outputs that would be kept have more than {max} bytes: let tools write them into \
         files and return the names",
        max = limits::REUSED_BYTES
    )]
    TooMuchKept,
    #[error(
        "{0} calls have an unknown outcome, and a retry can repeat {max} at most: settle calls with \
         `faber settle` first",
        max = limits::CALL_KEYS
    )]
    TooManyUnknown(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryScope<'a> {
    Failed,
    /// The retry runs this step and all later steps, and earlier steps without a result to reuse.
    FromStep(&'a str),
    All,
}

/// Returns the first event of a retry. It reuses the outputs of the [kept](find_kept_steps) steps.
pub fn create_retry(ended: &Execution, scope: RetryScope<'_>) -> Result<Created, ReuseError> {
    if !ended.state().is_finished() {
        return Err(ReuseError::Open(ended.id()));
    }
    let options = ExecutionOptions { start_at: None, ..ended.options().clone() };
    let mut created = Created::new(ended.plan().id(), ended.request(), options);
    created.retry_of = Some(ended.id());
    let mut left = limits::REUSED_BYTES;
    let kept = find_kept_steps(ended, scope)?;
    for (index, step) in ended.steps().iter().enumerate().filter(|(index, _)| kept[*index]) {
        let Some(output) = step.known_output() else { continue };
        let id = ended.plan().step(StepNumber::new(index)).id.clone();
        let bytes = json::json_size(output).saturating_add(id.as_str().len());
        left = left.checked_sub(bytes).ok_or_else(|| too_much_error(scope))?;
        created.reused.push((id, Arc::clone(output)));
    }
    take_over_calls(&mut created, ended, &kept, scope)?;
    Ok(created)
}

/// Adds the keys of `once` calls whose outcome is unknown, and the calls that a person settled. The
/// output of a settled step is among the reused outputs.
fn take_over_calls(
    created: &mut Created,
    ended: &Execution,
    kept: &[bool],
    scope: RetryScope<'_>,
) -> Result<(), ReuseError> {
    created.call_keys = ended.open_call_keys();
    for call in ended.settled_calls() {
        let Some(number) = ended.plan().step_number(&call.place.step) else { continue };
        match call.place.item {
            None if kept[number.get()] => {
                created.settled.push(SettledCall { output: None, ..call });
            }
            Some(_) if scope == RetryScope::Failed && !kept[number.get()] => {
                created.settled.push(call);
            }
            _ => (),
        }
    }
    check_taken_over(created, scope)
}

/// Adds the calls of child executions to the first event of a retry. Settled calls are reused only
/// by a retry of the steps that failed.
pub fn take_over_children(
    created: &mut Created,
    keys: Vec<CallKey>,
    settled: Vec<SettledCall>,
    scope: RetryScope<'_>,
) -> Result<(), ReuseError> {
    created.call_keys.extend(keys);
    if scope == RetryScope::Failed {
        created.settled.extend(settled);
    }
    check_taken_over(created, scope)
}

fn check_taken_over(created: &Created, scope: RetryScope<'_>) -> Result<(), ReuseError> {
    if created.call_keys.len() > limits::CALL_KEYS {
        return Err(ReuseError::TooManyUnknown(created.call_keys.len()));
    }
    let reused = created.reused.iter().map(|(_, output)| json::json_size(output));
    let settled = created.settled.iter().filter_map(|call| call.output.as_deref());
    let bytes: usize = reused.chain(settled.map(json::json_size)).sum();
    if bytes > limits::REUSED_BYTES { Err(too_much_error(scope)) } else { Ok(()) }
}

fn too_much_error(scope: RetryScope<'_>) -> ReuseError {
    match scope {
        RetryScope::FromStep(from) => ReuseError::TooMuch { from: from.to_owned() },
        RetryScope::Failed | RetryScope::All => ReuseError::TooMuchSucceeded,
    }
}

/// Returns for each step whether a retry keeps it. A compensated step is never kept.
pub fn find_kept_steps(ended: &Execution, scope: RetryScope<'_>) -> Result<Vec<bool>, ReuseError> {
    let steps = ended.steps();
    match scope {
        RetryScope::All => Ok(vec![false; steps.len()]),
        RetryScope::Failed => Ok(steps.iter().map(Step::is_reusable).collect()),
        RetryScope::FromStep(name) => {
            let missing = || ReuseError::NoStep(name.chars().take(128).collect());
            let from: StepId = name.parse().map_err(|_| missing())?;
            Ok(steps_kept_before(ended, ended.plan().step_number(&from).ok_or_else(missing)?))
        }
    }
}

/// Returns for each step whether a retry from another step keeps it. An earlier step runs again if
/// one of its dependencies runs again, because the output may change.
fn steps_kept_before(ended: &Execution, from: StepNumber) -> Vec<bool> {
    let mut kept = vec![false; ended.steps().len()];
    for (index, step) in ended.steps().iter().enumerate().take(from.get()) {
        let planned = ended.plan().step(StepNumber::new(index));
        let is_over = match &step.state {
            StepState::Skipped(SkipReason::Condition | SkipReason::Dependency) => true,
            _ => step.is_reusable(),
        };
        kept[index] = is_over && planned.depends_on.iter().all(|number| kept[number.get()]);
    }
    kept
}

/// Returns the first event of an execution that continues a finished execution with a new plan.
pub fn create_replan(ended: &Execution, plan: &Plan) -> Result<Created, ReuseError> {
    if !ended.state().is_finished() {
        return Err(ReuseError::Open(ended.id()));
    }
    let replans = ended.options().replans.after_replan();
    let options = ExecutionOptions { start_at: None, replans, ..ended.options().clone() };
    let mut created = Created::new(plan.id(), ended.request(), options);
    created.retry_of = Some(ended.id());
    created.is_replan = true;
    let mut left = limits::REUSED_BYTES;
    for (step, _) in
        plan.steps().iter().zip(reusable_steps(ended, plan)).filter(|(_, is_reusable)| *is_reusable)
    {
        let came = ended.plan().step_number(&step.id).map(|number| ended.step(number));
        let Some(output) = came.and_then(Step::known_output) else { continue };
        let bytes = json::json_size(output).saturating_add(step.id.as_str().len());
        left = left.checked_sub(bytes).ok_or(ReuseError::TooMuchKept)?;
        created.reused.push((step.id.clone(), Arc::clone(output)));
    }
    take_over_same_calls(&mut created, ended, plan)?;
    Ok(created)
}

fn take_over_same_calls(
    created: &mut Created,
    ended: &Execution,
    plan: &Plan,
) -> Result<(), ReuseError> {
    let is_same = |place: &CallPlace| {
        let old_step =
            ended.plan().step_number(&place.step).map(|number| ended.plan().step(number));
        let is = plan.step_number(&place.step).map(|number| plan.step(number));
        old_step.zip(is).is_some_and(|(old_step, is)| is_same_call(old_step, is))
    };
    let open = ended.open_call_keys().into_iter();
    created.call_keys = open.filter(|key| is_same(&key.place)).collect();
    let is_reused = |place: &CallPlace| created.reused.iter().any(|(id, _)| *id == place.step);
    let settled = ended.settled_calls().into_iter();
    let settled = settled.filter(|call| call.place.item.is_none() && is_reused(&call.place));
    let settled = settled.map(|call| SettledCall { output: None, ..call }).collect();
    created.settled = settled;
    if created.call_keys.len() > limits::CALL_KEYS {
        return Err(ReuseError::TooManyUnknown(created.call_keys.len()));
    }
    Ok(())
}

/// Returns for each step of a new plan whether its output can be reused. Such a step is the same in
/// both plans and depends on reusable steps only.
pub fn reusable_steps(ended: &Execution, plan: &Plan) -> Vec<bool> {
    let mut reusable = Vec::with_capacity(plan.steps().len());
    for step in plan.steps() {
        let depends_on_them = step.depends_on.iter().all(|number| reusable[number.get()]);
        reusable.push(depends_on_them && is_reusable(ended, plan, step));
    }
    reusable
}

fn is_reusable(ended: &Execution, plan: &Plan, step: &ToolExecution) -> bool {
    let Some(number) = ended.plan().step_number(&step.id) else { return false };
    let came = ended.step(number);
    let is_over = match &came.state {
        StepState::Skipped(SkipReason::Condition | SkipReason::Dependency) => true,
        _ => came.is_reusable(),
    };
    is_over && is_same_step(ended.plan(), ended.plan().step(number), plan, step)
}

fn is_same_step(old: &Plan, old_step: &ToolExecution, new: &Plan, step: &ToolExecution) -> bool {
    is_same_call(old_step, step) && is_same_rule(old, old_step, new, step)
}

/// Returns whether two steps run after the same steps, under the same condition, and fill the same
/// variables.
pub(crate) fn is_same_rule(
    old: &Plan,
    old_step: &ToolExecution,
    new: &Plan,
    step: &ToolExecution,
) -> bool {
    fn dependency_ids(plan: &Plan, step: &ToolExecution) -> BTreeSet<StepId> {
        step.depends_on.iter().map(|number| plan.step(*number).id.clone()).collect()
    }
    (&old_step.output_mapping, &old_step.when) == (&step.output_mapping, &step.when)
        && dependency_ids(old, old_step) == dependency_ids(new, step)
}

/// Returns whether two steps call the same tool with the same written parameters, for the same
/// list. Compares numbers by value, so `1` equals `1.0`.
pub fn is_same_call(first: &ToolExecution, other: &ToolExecution) -> bool {
    fn written_list(step: &ToolExecution) -> Option<&str> {
        step.for_each.as_ref().map(|list| list.written.as_str())
    }
    (&first.tool, &first.kind, written_list(first))
        == (&other.tool, &other.kind, written_list(other))
        && json::equals_normalized(&first.parameters, &other.parameters)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::{
        clock::Timestamp,
        event::{Event, Outcome, RecordedEvent, StepStarted},
        id::{Attempt, ExecutionId, Part, PlanId, RequestId, Seq},
        plan::{OnError, PlanInfo, StepPolicy, UncheckedPlan, UncheckedStep},
        tool::ToolError,
    };

    use super::{RetryScope::FromStep, *};

    fn make_execution(plan: &Arc<Plan>, created: Created) -> Execution {
        let at = Timestamp::UNIX_EPOCH;
        let first = RecordedEvent {
            seq: Seq::START.next(),
            at,
            by: None,
            event: Event::Created(Box::new(created)),
        };
        Execution::create(ExecutionId::draw(at), Arc::clone(plan), &first).unwrap()
    }

    fn created_event(plan: &Arc<Plan>, options: ExecutionOptions) -> Created {
        Created::new(plan.id(), plan.info().request, options)
    }

    fn make_plan() -> Arc<Plan> {
        plan_of_steps(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])])
    }

    fn plan_of_steps(steps: &[(&str, &[&str])]) -> Arc<Plan> {
        plan_of_unchecked(unchecked_steps(steps))
    }

    fn plan_of_unchecked(steps: Vec<UncheckedStep>) -> Arc<Plan> {
        let now = Timestamp::UNIX_EPOCH;
        let about = PlanInfo {
            id: PlanId::draw(now),
            request: RequestId::draw(now),
            version: 1,
            query: "q".to_owned(),
            planner: "explicit".to_owned(),
            created_at: now,
        };
        Arc::new(
            UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() }
                .try_into()
                .unwrap(),
        )
    }

    fn unchecked_steps(steps: &[(&str, &[&str])]) -> Vec<UncheckedStep> {
        let steps = steps.iter().map(|(id, after)| UncheckedStep {
            id: id.parse().unwrap(),
            tool: "flow.echo".parse().unwrap(),
            parameters: Arc::new(json!({})),
            depends_on: after.iter().map(|earlier| earlier.parse().unwrap()).collect(),
            output_mapping: Vec::new(),
            policy: StepPolicy { on_error: OnError::Ignore, ..StepPolicy::default() },
            plan: None,
            inputs: None,
            when: None,
            for_each: None,
            compensate: None,
        });
        steps.collect()
    }

    fn ended_with_output(output: &Value) -> Execution {
        ended_with_plan_and_output(&make_plan(), output)
    }

    fn ended_execution_of(plan: &Arc<Plan>) -> Execution {
        ended_with_plan_and_output(plan, &json!(1))
    }

    fn ended_with_plan_and_output(plan: &Arc<Plan>, output: &Value) -> Execution {
        let now = Timestamp::UNIX_EPOCH;
        let options =
            ExecutionOptions { start_at: Some(now), priority: 7, ..ExecutionOptions::default() };
        let mut execution = make_execution(plan, created_event(plan, options));
        let (part, attempt) = (Part::WHOLE, Attempt::FIRST);
        let step = |id: &str| id.parse::<StepId>().unwrap();
        let started = |id: &str| {
            Event::StepStarted(StepStarted {
                step: step(id),
                part,
                attempt,
                parameters: Arc::new(json!({})),
                warnings: Vec::new(),
                until: None,
                items: None,
                child: None,
                key: None,
                effect: None,
            })
        };
        let succeeded = |id: &str| Event::StepSucceeded {
            step: step(id),
            part,
            attempt,
            output: Some(Arc::new(output.clone())),
            cached: false,
            stderr: None,
        };
        let error = ToolError::failed("no");
        let events = [
            started("a"),
            succeeded("a"),
            started("b"),
            Event::StepFailed { step: step("b"), part, attempt, error, command: None },
            started("c"),
            succeeded("c"),
            Event::StepSkipped { step: step("d"), part, reason: SkipReason::Condition },
            Event::Finished { outcome: Outcome::Completed },
        ];
        for event in events {
            execution
                .apply(&RecordedEvent { seq: execution.seq().next(), at: now, by: None, event })
                .unwrap();
        }
        execution
    }

    #[test]
    fn a_retry_from_a_step_reuses_earlier_successes() {
        let ended = ended_with_output(&json!(1));
        for (scope, reused) in [
            (RetryScope::All, ""),
            (RetryScope::Failed, "a c"),
            (FromStep("a"), ""),
            (FromStep("b"), "a"),
            (FromStep("c"), "a"),
            (FromStep("d"), "a c"),
        ] {
            let created = create_retry(&ended, scope).unwrap();
            let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(names.join(" "), reused, "{scope:?}");
            assert_eq!(created.retry_of, Some(ended.id()));
            assert_eq!((created.options.priority, created.options.start_at), (7, None));
            let execution = make_execution(ended.plan(), created.clone());
            assert_eq!(execution.count_steps().successful, names.len());
        }
    }

    /// A step whose failure was ignored may return an output in the retry, so its dependents run
    /// again. Only a retry of the steps that failed keeps them.
    #[test]
    fn dependents_of_a_step_that_runs_again_run_again() {
        let ended = ended_execution_of(&plan_of_steps(&[
            ("a", &[]),
            ("b", &[]),
            ("c", &["b"]),
            ("d", &["c"]),
        ]));
        let created = create_retry(&ended, FromStep("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a"], "`b` failed, and `c` follows from it");
        let created = create_retry(&ended, RetryScope::Failed).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a", "c"], "a retry of what failed keeps every output");
        let ended = ended_execution_of(&plan_of_steps(&[
            ("a", &[]),
            ("b", &[]),
            ("c", &["a"]),
            ("d", &["c"]),
        ]));
        let created = create_retry(&ended, FromStep("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn a_retry_of_an_unfinished_or_too_large_execution_is_rejected() {
        let large = json!("x".repeat(limits::REUSED_BYTES / 2 + 1));
        let ended = ended_with_output(&large);
        assert_eq!(create_retry(&ended, FromStep("c")).unwrap().reused.len(), 1);
        let too_much = ReuseError::TooMuch { from: "d".to_owned() };
        assert_eq!(create_retry(&ended, FromStep("d")), Err(too_much));
        assert_eq!(create_retry(&ended, RetryScope::Failed), Err(ReuseError::TooMuchSucceeded));
        assert_eq!(create_retry(&ended, FromStep("e")), Err(ReuseError::NoStep("e".to_owned())));
        assert_eq!(create_retry(&ended, FromStep("")), Err(ReuseError::NoStep(String::new())));
        let open =
            make_execution(ended.plan(), created_event(ended.plan(), ExecutionOptions::default()));
        assert_eq!(create_retry(&open, RetryScope::All), Err(ReuseError::Open(open.id())));
        assert_eq!(create_replan(&open, ended.plan()), Err(ReuseError::Open(open.id())));
        assert_eq!(create_replan(&ended, ended.plan()), Err(ReuseError::TooMuchKept));
    }

    #[test]
    fn a_new_plan_reuses_the_outputs_of_unchanged_steps() {
        let ended = ended_with_output(&json!(1));
        let kept = |steps: &[(&str, &[&str])]| {
            let plan = plan_of_steps(steps);
            let created = create_replan(&ended, &plan).unwrap();
            assert_eq!((created.plan, created.retry_of), (plan.id(), Some(ended.id())));
            assert_eq!((created.options.start_at, created.options.priority), (None, 7));
            make_execution(&plan, created.clone());
            let names: Vec<_> =
                created.reused.iter().map(|(id, _)| id.as_str().to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(kept(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]), "a c");
        assert_eq!(
            kept(&[("c", &[]), ("e", &["c"]), ("a", &[])]),
            "c a",
            "the new plan's order counts"
        );
        assert_eq!(kept(&[("a", &[]), ("c", &["a"])]), "a", "`c` has a new dependency");
        assert_eq!(kept(&[("x", &[]), ("a", &["x"]), ("c", &["a"])]), "");
        let mut steps = unchecked_steps(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]);
        steps[0].parameters = Arc::new(json!({ "text": "other" }));
        steps[2].policy.on_error = OnError::Fail;
        assert_eq!(
            reusable_steps(&ended, &plan_of_unchecked(steps)),
            [false, false, true, true],
            "how is not what"
        );
    }
}
