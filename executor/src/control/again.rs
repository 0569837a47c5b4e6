//! Executions done again: what is taken over from the first time.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    event::{Created, SkipReason},
    execution::{Execution, ExecutionOptions, StepState},
    id::{StepId, StepIx},
    json, limits,
    plan::{Plan, ToolExecution},
};

/// Why an execution is not done again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgainError {
    /// It may yet do everything by itself.
    #[error("`{0}` has not ended: cancel it first, or wait until it has")]
    Open(shared::id::ExecutionId),
    /// There is no such step to begin with.
    #[error("the plan has no step `{0}` to begin with")]
    NoStep(String),
    /// What would be taken over is too much for one event.
    #[error(
        "the outputs before `{from}` have more than {max} bytes: begin with an earlier step, or \
         do all of it again",
        max = limits::REUSED_BYTES
    )]
    TooMuch {
        /// The step to begin with.
        from: String,
    },
    /// The outputs of all steps that succeeded are too much for one event.
    #[error(
        "the outputs of the steps that succeeded have more than {max} bytes: retry from a step, \
         or retry all of it",
        max = limits::REUSED_BYTES
    )]
    TooMuchSucceeded,
    /// What another plan would take over is too much for one event.
    #[error(
        "the outputs that would be kept have more than {max} bytes: let tools write them into \
         files and return the names",
        max = limits::REUSED_BYTES
    )]
    TooMuchKept,
}

/// How much of an ended execution a retry does again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryScope<'a> {
    /// Every step that did not succeed, and every step that was compensated.
    Failed,
    /// This step, and everything behind it.
    FromStep(&'a str),
    /// Every step.
    All,
}

/// Returns how an ended execution is retried: the outputs of the steps that the scope
/// [keeps](kept_steps) are taken over.
pub fn again(ended: &Execution, scope: RetryScope<'_>) -> Result<Created, AgainError> {
    if !ended.state().is_over() {
        return Err(AgainError::Open(ended.id()));
    }
    let options = ExecutionOptions { start_at: None, ..ended.options().clone() };
    let mut created = Created::new(ended.plan().id(), ended.request(), options);
    created.retry_of = Some(ended.id());
    let mut left = limits::REUSED_BYTES;
    let kept = kept_steps(ended, scope)?;
    for (at, step) in ended.steps().iter().enumerate().filter(|(at, _)| kept[*at]) {
        let StepState::Succeeded(output) = &step.state else { continue };
        let id = ended.plan().step(StepIx::new(at)).id.clone();
        let bytes = json::bytes(output).saturating_add(id.as_str().len());
        left = left.checked_sub(bytes).ok_or_else(|| too_much(scope))?;
        created.reused.push((id, Arc::clone(output)));
    }
    Ok(created)
}

fn too_much(scope: RetryScope<'_>) -> AgainError {
    match scope {
        RetryScope::FromStep(from) => AgainError::TooMuch { from: from.to_owned() },
        RetryScope::Failed | RetryScope::All => AgainError::TooMuchSucceeded,
    }
}

/// Returns for each step, in plan order, whether a retry keeps it. A step that was compensated is
/// never kept.
pub fn kept_steps(ended: &Execution, scope: RetryScope<'_>) -> Result<Vec<bool>, AgainError> {
    let steps = ended.steps();
    match scope {
        RetryScope::All => Ok(vec![false; steps.len()]),
        RetryScope::Failed => {
            Ok(steps.iter().map(|step| step.output().is_some() && !step.has_undo()).collect())
        }
        RetryScope::FromStep(name) => {
            let missing = || AgainError::NoStep(name.chars().take(128).collect());
            let from: StepId = name.parse().map_err(|_| missing())?;
            Ok(kept_before(ended, ended.plan().number(&from).ok_or_else(missing)?))
        }
    }
}

/// Returns for each step whether a retry from the step `from` keeps it. A step before `from` is done
/// again if it depends on one that is: that one may return something else.
fn kept_before(ended: &Execution, from: StepIx) -> Vec<bool> {
    let mut kept = vec![false; ended.steps().len()];
    for (at, step) in ended.steps().iter().enumerate().take(from.get()) {
        let planned = ended.plan().step(StepIx::new(at));
        let is_settled = match &step.state {
            StepState::Succeeded(_) => !step.has_undo(),
            StepState::Skipped(SkipReason::Condition | SkipReason::Dependency) => true,
            _ => false,
        };
        kept[at] = is_settled && planned.depends_on.iter().all(|number| kept[number.get()]);
    }
    kept
}

/// Returns how another plan goes on with what an ended execution did: its steps that [`stay`] are
/// not done again. Each one that goes on may be planned anew by itself once less.
pub fn onward(ended: &Execution, plan: &Plan) -> Result<Created, AgainError> {
    if !ended.state().is_over() {
        return Err(AgainError::Open(ended.id()));
    }
    let replans = ended.options().replans.once_less();
    let options = ExecutionOptions { start_at: None, replans, ..ended.options().clone() };
    let mut created = Created::new(plan.id(), ended.request(), options);
    created.retry_of = Some(ended.id());
    let mut left = limits::REUSED_BYTES;
    for (step, _) in plan.steps().iter().zip(stay(ended, plan)).filter(|(_, stays)| *stays) {
        let came = ended.plan().number(&step.id).map(|it| &ended.step(it).state);
        let Some(StepState::Succeeded(output)) = came else { continue };
        let bytes = json::bytes(output).saturating_add(step.id.as_str().len());
        left = left.checked_sub(bytes).ok_or(AgainError::TooMuchKept)?;
        created.reused.push((step.id.clone(), Arc::clone(output)));
    }
    Ok(created)
}

/// Returns which steps of another plan come to what they came to in an ended execution: they stand
/// there as they did, what they depend on stays, too, and they succeeded and were not undone, or
/// were skipped for a reason that stays.
pub fn stay(ended: &Execution, plan: &Plan) -> Vec<bool> {
    let mut stays = Vec::with_capacity(plan.steps().len());
    for step in plan.steps() {
        let depends_on_them = step.depends_on.iter().all(|it| stays[it.get()]);
        stays.push(depends_on_them && is_over_for_good(ended, plan, step));
    }
    stays
}

fn is_over_for_good(ended: &Execution, plan: &Plan, step: &ToolExecution) -> bool {
    let Some(number) = ended.plan().number(&step.id) else { return false };
    let came = ended.step(number);
    let is_over = match &came.state {
        StepState::Succeeded(_) => !came.has_undo(),
        StepState::Skipped(SkipReason::Condition | SkipReason::Dependency) => true,
        _ => false,
    };
    is_over && comes_to_the_same((ended.plan(), ended.plan().step(number)), (plan, step))
}

/// Returns whether two steps of two plans come to the same: they call alike, after the same.
fn comes_to_the_same(one: (&Plan, &ToolExecution), other: (&Plan, &ToolExecution)) -> bool {
    let after = |(plan, step): (&Plan, &ToolExecution)| -> BTreeSet<StepId> {
        step.depends_on.iter().map(|it| plan.step(*it).id.clone()).collect()
    };
    let (a, b) = (one.1, other.1);
    is_alike(a, b)
        && (&a.output_mapping, &a.when) == (&b.output_mapping, &b.when)
        && after(one) == after(other)
}

/// Returns whether two steps are written so that they call the same with the same, for each item of
/// the same list. What a number is worth counts, and not how it is written.
pub fn is_alike(one: &ToolExecution, other: &ToolExecution) -> bool {
    fn list(step: &ToolExecution) -> Option<&str> {
        step.for_each.as_ref().map(|it| it.written.as_str())
    }
    (&one.tool, &one.kind, list(one)) == (&other.tool, &other.kind, list(other))
        && json::is_same_by_worth(&one.parameters, &other.parameters)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::{
        clock::Timestamp,
        event::{Event, Outcome, Recorded, StepStarted},
        id::{Attempt, Part, PlanId, RequestId},
        plan::{About, OnError, StepPolicy, UncheckedPlan, UncheckedStep},
        tool::ToolError,
    };

    use super::{RetryScope::FromStep, *};
    use crate::machine;

    fn plan() -> Arc<Plan> {
        plan_of(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])])
    }

    fn plan_of(steps: &[(&str, &[&str])]) -> Arc<Plan> {
        of(unchecked(steps))
    }

    fn of(steps: Vec<UncheckedStep>) -> Arc<Plan> {
        let now = Timestamp::UNIX_EPOCH;
        let about = About {
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

    fn unchecked(steps: &[(&str, &[&str])]) -> Vec<UncheckedStep> {
        let steps = steps.iter().map(|(id, after)| UncheckedStep {
            id: id.parse().unwrap(),
            tool: "flow.echo".parse().unwrap(),
            parameters: Arc::new(json!({})),
            depends_on: after.iter().map(|it| it.parse().unwrap()).collect(),
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

    /// Returns an execution in which `a` and `c` succeeded, `b` failed and `d` was skipped.
    fn ended(output: &Value) -> Execution {
        ended_with(&plan(), output)
    }

    fn ended_of(plan: &Arc<Plan>) -> Execution {
        ended_with(plan, &json!(1))
    }

    fn ended_with(plan: &Arc<Plan>, output: &Value) -> Execution {
        let now = Timestamp::UNIX_EPOCH;
        let options =
            ExecutionOptions { start_at: Some(now), priority: 7, ..ExecutionOptions::default() };
        let id = shared::id::ExecutionId::draw(now);
        let (mut execution, _) = machine::create(id, plan, options, now);
        let (part, attempt) = (Part::WHOLE, Attempt::FIRST);
        let step = |it: &str| it.parse::<StepId>().unwrap();
        let started = |it: &str| {
            Event::StepStarted(StepStarted {
                step: step(it),
                part,
                attempt,
                parameters: Arc::new(json!({})),
                warnings: Vec::new(),
                until: None,
                items: None,
                child: None,
            })
        };
        let succeeded = |it: &str| Event::StepSucceeded {
            step: step(it),
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
            execution.apply(&Recorded { seq: execution.seq().next(), at: now, event }).unwrap();
        }
        execution
    }

    #[test]
    fn what_succeeded_before_a_step_is_not_done_again() {
        let ended = ended(&json!(1));
        for (scope, reused) in [
            (RetryScope::All, ""),
            (RetryScope::Failed, "a c"),
            (FromStep("a"), ""),
            (FromStep("b"), "a"),
            (FromStep("c"), "a"),
            (FromStep("d"), "a c"),
        ] {
            let created = again(&ended, scope).unwrap();
            let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(names.join(" "), reused, "{scope:?}");
            assert_eq!(created.retry_of, Some(ended.id()));
            assert_eq!((created.options.priority, created.options.start_at), (7, None));
            let (now, id) =
                (Timestamp::UNIX_EPOCH, shared::id::ExecutionId::draw(Timestamp::UNIX_EPOCH));
            let (execution, _) =
                machine::create_as(id, ended.plan(), created.clone(), now).unwrap();
            assert_eq!(execution.tally().successful, names.len());
        }
    }

    /// A step that failed, and was ignored, returns something the second time; what was made of its
    /// nothing is made anew.
    #[test]
    fn what_follows_from_something_that_is_done_again_is_done_again() {
        let ended = ended_of(&plan_of(&[("a", &[]), ("b", &[]), ("c", &["b"]), ("d", &["c"])]));
        let created = again(&ended, FromStep("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a"], "`b` failed, and `c` follows from it");
        let created = again(&ended, RetryScope::Failed).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a", "c"], "a retry of what failed keeps every output");
        let ended = ended_of(&plan_of(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &["c"])]));
        let created = again(&ended, FromStep("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_has_not_ended_or_is_too_much_is_not_done_again() {
        let large = json!("x".repeat(limits::REUSED_BYTES / 2 + 1));
        let ended = ended(&large);
        assert_eq!(again(&ended, FromStep("c")).unwrap().reused.len(), 1);
        let too_much = AgainError::TooMuch { from: "d".to_owned() };
        assert_eq!(again(&ended, FromStep("d")), Err(too_much));
        assert_eq!(again(&ended, RetryScope::Failed), Err(AgainError::TooMuchSucceeded));
        assert_eq!(again(&ended, FromStep("e")), Err(AgainError::NoStep("e".to_owned())));
        assert_eq!(again(&ended, FromStep("")), Err(AgainError::NoStep(String::new())));
        let (now, id) = (Timestamp::UNIX_EPOCH, ended.id());
        let (open, _) = machine::create(id, ended.plan(), ExecutionOptions::default(), now);
        assert_eq!(again(&open, RetryScope::All), Err(AgainError::Open(id)));
        assert_eq!(onward(&open, ended.plan()), Err(AgainError::Open(id)));
        assert_eq!(onward(&ended, ended.plan()), Err(AgainError::TooMuchKept));
    }

    #[test]
    fn another_plan_keeps_what_stands_in_it_as_it_did() {
        // `a` and `c` succeeded, `b` failed, `d` was skipped.
        let ended = ended(&json!(1));
        let kept = |steps: &[(&str, &[&str])]| {
            let plan = plan_of(steps);
            let created = onward(&ended, &plan).unwrap();
            assert_eq!((created.plan, created.retry_of), (plan.id(), Some(ended.id())));
            assert_eq!((created.options.start_at, created.options.priority), (None, 7));
            let (id, now) =
                (shared::id::ExecutionId::draw(Timestamp::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
            machine::create_as(id, &plan, created.clone(), now).unwrap();
            let names: Vec<_> =
                created.reused.iter().map(|(id, _)| id.as_str().to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(kept(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]), "a c");
        assert_eq!(kept(&[("c", &[]), ("e", &["c"]), ("a", &[])]), "c a", "in its own order");
        assert_eq!(kept(&[("a", &[]), ("c", &["a"])]), "a", "it depends on something now");
        assert_eq!(kept(&[("x", &[]), ("a", &["x"]), ("c", &["a"])]), "");
        let mut steps = unchecked(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])]);
        steps[0].parameters = Arc::new(json!({ "text": "other" }));
        steps[2].policy.on_error = OnError::Fail;
        assert_eq!(stay(&ended, &of(steps)), [false, false, true, true], "how is not what");
    }
}
