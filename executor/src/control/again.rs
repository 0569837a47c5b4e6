//! Executions done again: what is taken over from the first time.

use std::sync::Arc;

use shared::{
    event::{Created, SkipReason},
    execution::{Execution, ExecutionOptions, StepState},
    id::{StepId, StepIx},
    json, limits,
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
        from: StepId,
    },
}

/// Returns how an ended execution is done again: all of it, or from a step on. Then what succeeded
/// before that step, in execution order, and was not undone is not done again; unless something
/// that it depends on is, and may return something else.
pub fn again(ended: &Execution, from: Option<&str>) -> Result<Created, AgainError> {
    if !ended.state().is_over() {
        return Err(AgainError::Open(ended.id()));
    }
    let options = ExecutionOptions { start_at: None, ..ended.options().clone() };
    let mut created = Created::new(ended.plan().id(), ended.request(), options);
    created.retry_of = Some(ended.id());
    let Some(name) = from else { return Ok(created) };
    let missing = || AgainError::NoStep(name.chars().take(128).collect());
    let from: StepId = name.parse().map_err(|_| missing())?;
    let number = ended.plan().number(&from).ok_or_else(missing)?;
    let mut left = limits::REUSED_BYTES;
    // What comes to the same again: it is taken over, or skipped for the same reason.
    let mut stays = vec![false; number.get()];
    for (at, step) in ended.steps().iter().enumerate().take(number.get()) {
        let planned = ended.plan().step(StepIx::new(at));
        if step.has_undo() || !planned.depends_on.iter().all(|it| stays[it.get()]) {
            continue;
        }
        let output = match &step.state {
            StepState::Succeeded(output) => output,
            StepState::Skipped(SkipReason::Condition | SkipReason::Dependency) => {
                stays[at] = true;
                continue;
            }
            _ => continue,
        };
        stays[at] = true;
        let id = planned.id.clone();
        let bytes = json::bytes(output).saturating_add(id.as_str().len());
        left = left.checked_sub(bytes).ok_or(AgainError::TooMuch { from: from.clone() })?;
        created.reused.push((id, Arc::clone(output)));
    }
    Ok(created)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::{
        clock::Timestamp,
        event::{Event, Outcome, Recorded, StepStarted},
        id::{Attempt, Part, PlanId, RequestId},
        plan::{About, OnError, Plan, StepPolicy, UncheckedPlan, UncheckedStep},
        tool::ToolError,
    };

    use super::*;
    use crate::machine;

    fn plan() -> Arc<Plan> {
        plan_of(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[])])
    }

    fn plan_of(steps: &[(&str, &[&str])]) -> Arc<Plan> {
        let now = Timestamp::UNIX_EPOCH;
        let about = About {
            id: PlanId::draw(now),
            request: RequestId::draw(now),
            version: 1,
            query: "q".to_owned(),
            planner: "explicit".to_owned(),
            created_at: now,
        };
        let steps = steps.iter().map(|(id, after)| UncheckedStep {
            id: id.parse().unwrap(),
            tool: "flow.echo".parse().unwrap(),
            parameters: Arc::new(json!({})),
            depends_on: after.iter().map(|it| it.parse().unwrap()).collect(),
            output_mapping: Vec::new(),
            policy: StepPolicy { on_error: OnError::Ignore, ..StepPolicy::default() },
            plan: None,
            when: None,
            for_each: None,
            compensate: None,
        });
        let steps = steps.collect();
        Arc::new(UncheckedPlan { about, steps, diagnostics: Vec::new() }.try_into().unwrap())
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
        for (from, reused) in
            [(None, ""), (Some("a"), ""), (Some("b"), "a"), (Some("c"), "a"), (Some("d"), "a c")]
        {
            let created = again(&ended, from).unwrap();
            let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(names.join(" "), reused, "{from:?}");
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
        let created = again(&ended, Some("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a"], "`b` failed, and `c` follows from it");
        let ended = ended_of(&plan_of(&[("a", &[]), ("b", &[]), ("c", &["a"]), ("d", &["c"])]));
        let created = again(&ended, Some("d")).unwrap();
        let names: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_has_not_ended_or_is_too_much_is_not_done_again() {
        let large = json!("x".repeat(limits::REUSED_BYTES / 2 + 1));
        let ended = ended(&large);
        assert_eq!(again(&ended, Some("c")).unwrap().reused.len(), 1);
        let too_much = AgainError::TooMuch { from: "d".parse().unwrap() };
        assert_eq!(again(&ended, Some("d")), Err(too_much));
        assert_eq!(again(&ended, Some("e")), Err(AgainError::NoStep("e".to_owned())));
        assert_eq!(again(&ended, Some("")), Err(AgainError::NoStep(String::new())));
        let (now, id) = (Timestamp::UNIX_EPOCH, ended.id());
        let (open, _) = machine::create(id, ended.plan(), ExecutionOptions::default(), now);
        assert_eq!(again(&open, None), Err(AgainError::Open(id)));
    }
}
