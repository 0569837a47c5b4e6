//! Tests of effects that have changed since the plan was stored. A changed effect applies to calls
//! that begin afterwards.

use std::collections::BTreeMap;

use super::*;
use crate::machine::CurrentEffects;

#[derive(Debug)]
struct CurrentTools(BTreeMap<&'static str, Effect>);

impl CurrentEffects for CurrentTools {
    fn current_effect(&self, tool: &ToolName) -> Option<Effect> {
        self.0.get(tool.as_str()).copied()
    }
}

fn start_with_effect(planned: Effect, now: Effect) -> (Execution, Vec<RecordedEvent>) {
    let mut story = Story::new_unclaimed(
        vec![with_attempts(2, effect(planned, call("a", &[])))],
        ExecutionOptions::default(),
    );
    let effects = CurrentTools(BTreeMap::from([("set.tool", now)]));
    let moment =
        DecisionContext { now: time_at(0), is_start_allowed: true, effects: Some(&effects) };
    let events = decide(&mut story.execution, claim(), moment);
    (story.execution, events)
}

fn recorded_effects(events: &[RecordedEvent]) -> Vec<Option<Effect>> {
    let started = events.iter().filter_map(|recorded| match &recorded.event {
        Event::StepStarted(started) => Some(started.effect),
        _ => None,
    });
    started.collect()
}

#[test]
fn a_start_records_only_an_effect_that_differs_from_the_plan() {
    for (planned, now, expected) in [
        (Effect::Once, Effect::Once, None),
        (Effect::Once, Effect::Read, Some(Effect::Read)),
        (Effect::Read, Effect::Once, Some(Effect::Once)),
    ] {
        let (_, events) = start_with_effect(planned, now);
        assert_eq!(recorded_effects(&events), [expected], "{planned:?} {now:?}");
    }
}

#[test]
fn the_effect_at_the_start_decides_after_a_crash_and_a_timeout() {
    for (planned, now, is_repeated) in [
        (Effect::Once, Effect::Once, false),
        (Effect::Once, Effect::Idempotent, true),
        (Effect::Read, Effect::Once, false),
        (Effect::Read, Effect::Read, true),
    ] {
        let retries = |events: &[RecordedEvent]| {
            let is_retry = |event: &Event| {
                matches!(event, Event::StepInterrupted { .. } | Event::StepRetryScheduled { .. })
            };
            events.iter().any(|recorded| is_retry(&recorded.event))
        };
        let (mut execution, _) = start_with_effect(planned, now);
        // The next owner reads the effect of the call from the log, not from its own tools.
        let events = decide(&mut execution, claim(), time_at(1));
        assert_eq!(retries(&events), is_repeated, "crash: {planned:?} {now:?}");
        let (mut execution, _) = start_with_effect(planned, now);
        let task = Task::from(StepNumber::new(0));
        let ended = Input::Ended { task, attempt: Attempt::FIRST, result: Err(timeout_error()) };
        let events = decide(&mut execution, ended, time_at(1));
        assert_eq!(retries(&events), is_repeated, "timeout: {planned:?} {now:?}");
    }
}

#[test]
fn the_present_effect_decides_about_missing_fields() {
    let effects_after = |now: Effect| {
        let reader = with_parameters(json!({ "x": "{{a.missing}}" }), call("b", &["a"]));
        let mut story = Story::new_unclaimed(
            vec![call("a", &[]), effect(Effect::Once, reader)],
            ExecutionOptions::default(),
        );
        story.claim();
        let effects = CurrentTools(BTreeMap::from([("set.tool", now)]));
        let moment =
            DecisionContext { now: time_at(0), is_start_allowed: true, effects: Some(&effects) };
        let task = story.task("a");
        let result = Ok(CallOutput::from(json!({ "x": 1 })));
        let ended = Input::Ended { task, attempt: Attempt::FIRST, result };
        recorded_effects(&decide(&mut story.execution, ended, moment))
    };
    assert_eq!(effects_after(Effect::Read), [Some(Effect::Read)], "the step runs");
    assert_eq!(effects_after(Effect::Once), [], "the step fails before its start");
}
