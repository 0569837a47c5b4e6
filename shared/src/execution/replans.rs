//! Automatic replans of finished executions. The execution's own log decides whether it needs a
//! replan, so every reader of the log comes to the same result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Execution, ExecutionState, StepState, options::is_default};
use crate::{
    glob::ToolPattern,
    id::{StepId, ToolSetName},
    limits,
};

/// The tool with which a plan asks for a replan when its steps have returned.
pub const REPLAN: &str = "flow.replan";

/// The automatic replans that an execution allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplanOptions {
    /// `true` replans after a failure, too, and not only if a step asks for it.
    #[serde(rename = "afterFailure", alias = "after_failure")]
    pub after_failure: bool,
    /// The number of replans that are left.
    pub left: u32,
    /// The number of replans before this execution.
    #[serde(skip_serializing_if = "is_default")]
    pub before: u32,
    /// The toolsets that the new plans can use, as for the first plan. Empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ToolSetName>,
    /// The permissions of the new plans, if the permissions of the caller are restricted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<ReplanPermissions>,
}

/// Permissions for plans that are made when no caller is present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplanPermissions {
    /// The name of the caller's token, for messages.
    pub token: String,
    /// Patterns of allowed tools. `None` means all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolPattern>>,
    /// `true` if the plans are allowed to switch toolsets on and off.
    #[serde(default)]
    pub switches: bool,
}

/// The reason for an automatic replan.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplanCause<'a> {
    /// The execution failed.
    Failed,
    /// This step asked for a replan, and returned this value.
    Asked(&'a StepId, &'a Value),
}

impl Default for ReplanOptions {
    fn default() -> Self {
        let left = limits::DEFAULT_REPLANS;
        Self { after_failure: false, left, before: 0, sets: Vec::new(), within: None }
    }
}

impl ReplanOptions {
    /// Allows `left` replans for any reason. Zero allows no replan.
    pub fn times(left: u32) -> Self {
        Self { after_failure: left > 0, left, ..Self::default() }
    }

    /// Returns the options for the execution that replaces this execution.
    #[must_use]
    pub fn after_replan(&self) -> Self {
        let (left, before) = (self.left.saturating_sub(1), self.before.saturating_add(1));
        Self { left, before, ..self.clone() }
    }

    /// Returns the options as the caller set them, without the parts that Faber derives.
    #[must_use]
    pub fn caller_options(&self) -> Self {
        Self { sets: Vec::new(), within: None, ..self.clone() }
    }

    /// Returns `true` if replans are left, or if a replan made this execution.
    fn is_wanted(&self) -> bool {
        self.left > 0 || self.before > 0
    }
}

impl Execution {
    /// Returns the reason for an automatic replan, if there is one. Does not check the number of
    /// replans that are left, because the caller reports if none is left.
    pub fn replan_cause(&self) -> Option<ReplanCause<'_>> {
        let options = self.options();
        let stands_alone = self.parent().is_none() && !options.dry_run;
        if !stands_alone || options.compensate_on_failure || !options.replans.is_wanted() {
            return None;
        }
        match self.state() {
            ExecutionState::Failed if options.replans.after_failure && !self.missed_deadline() => {
                Some(ReplanCause::Failed)
            }
            ExecutionState::Completed => {
                self.replan_request().map(|(step, request)| ReplanCause::Asked(step, request))
            }
            _ => None,
        }
    }

    /// Returns the last step that asked for a replan, and its output. Ignores reused steps, because
    /// they asked in another execution.
    pub fn replan_request(&self) -> Option<(&StepId, &Value)> {
        let steps = self.plan().steps().iter().zip(self.steps());
        let mut requests = steps.filter_map(|(planned, step)| match &step.state {
            StepState::Succeeded(output)
                if planned.tool.as_str() == REPLAN && step.finished_at.is_some() =>
            {
                Some((&planned.id, &**output))
            }
            _ => None,
        });
        requests.next_back()
    }

    /// Returns `true` if work is left after the execution has finished: a message to its parent, or
    /// a replan.
    pub fn has_follow_up(&self) -> bool {
        self.parent().is_some() || self.replan_cause().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        clock::Timestamp,
        event::{Created, Event, Outcome, Parent, RecordedEvent, StepStarted},
        execution::ExecutionOptions,
        id::{Attempt, Part, Seq},
        plan::Plan,
    };

    fn finished_execution(
        options: ExecutionOptions,
        outcome: Outcome,
        change: impl Fn(&mut Created),
    ) -> Execution {
        let plan = json!({
            "about": { "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "", "planner": "explicit", "created_at": 0 },
            "steps": [{ "id": "a", "tool": REPLAN, "parameters": {}, "policy": {} }],
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        let mut created = Created::new(plan.id(), plan.info().request, options);
        change(&mut created);
        let is_reused = !created.reused.is_empty();
        let (step, part, attempt) = ("a".parse::<StepId>().unwrap(), Part::WHOLE, Attempt::FIRST);
        let started = StepStarted {
            step: step.clone(),
            part,
            attempt,
            parameters: Arc::new(json!({})),
            warnings: Vec::new(),
            until: None,
            items: None,
            child: None,
            key: None,
            effect: None,
        };
        let output = Some(Arc::new(json!({ "goal": "g" })));
        let (cached, stderr) = (false, None);
        let mut events = vec![Event::Created(Box::new(created))];
        if !is_reused {
            events.push(Event::StepStarted(started));
            events.push(Event::StepSucceeded { step, part, attempt, output, cached, stderr });
        }
        events.push(Event::Finished { outcome });
        let log: Vec<RecordedEvent> = (1..)
            .zip(events)
            .map(|(seq, event)| RecordedEvent {
                seq: Seq(seq),
                at: Timestamp::UNIX_EPOCH,
                by: None,
                event,
            })
            .collect();
        Execution::replay("exec_1_aaaaaaaaa".parse().unwrap(), plan, &log).unwrap()
    }

    #[test]
    fn the_log_decides_on_a_replan() {
        let default = ExecutionOptions::default;
        let times = |left| ExecutionOptions { replans: ReplanOptions::times(left), ..default() };
        let used = |n: u32| {
            let replans = (0..n).fold(ReplanOptions::times(n), |replans, _| replans.after_replan());
            ExecutionOptions { replans, ..default() }
        };
        let dry = |options: ExecutionOptions| ExecutionOptions { dry_run: true, ..options };
        let undoing =
            |options: ExecutionOptions| ExecutionOptions { compensate_on_failure: true, ..options };
        let as_is = |_: &mut Created| ();
        for (options, failed, completed) in [
            (default(), false, true),
            (times(0), false, false),
            (times(1), true, true),
            // A cause exists even if no replan is left, because the planner reports that none is
            // left.
            (used(2), true, true),
            (dry(times(1)), false, false),
            (undoing(times(1)), false, false),
        ] {
            let end = |outcome| finished_execution(options.clone(), outcome, as_is);
            let (bad, good) = (end(Outcome::Failed), end(Outcome::Completed));
            assert_eq!(bad.replan_cause().is_some(), failed, "{options:?}");
            assert_eq!(good.replan_cause().is_some(), completed, "{options:?}");
            assert!(end(Outcome::Cancelled).replan_cause().is_none());
        }
        let request = finished_execution(default(), Outcome::Completed, as_is);
        let goal = json!({ "goal": "g" });
        assert_eq!(request.replan_cause(), Some(ReplanCause::Asked(&"a".parse().unwrap(), &goal)));
        let parent = |created: &mut Created| {
            let execution = "exec_2_aaaaaaaaa".parse().unwrap();
            let (step, attempt) = ("s".parse().unwrap(), Attempt::FIRST);
            created.parent = Some(Parent { execution, step, part: Part::WHOLE, attempt, depth: 1 });
        };
        let part = finished_execution(times(3), Outcome::Failed, parent);
        assert!(part.replan_cause().is_none() && part.has_follow_up());
    }

    /// If a reused step asked again, replans would never end.
    #[test]
    fn reused_steps_do_not_ask_for_a_replan_again() {
        let reused = |created: &mut Created| {
            created.reused.push(("a".parse().unwrap(), Arc::new(json!({ "goal": "g" }))));
        };
        let ended = finished_execution(ExecutionOptions::default(), Outcome::Completed, reused);
        assert!(matches!(ended.steps()[0].state, StepState::Succeeded(_)));
        assert_eq!(ended.replan_cause(), None);
    }

    #[test]
    fn replan_options_survive_storage_and_defaults_are_not_stored() {
        let options = ExecutionOptions::default();
        assert_eq!(json!(options).get("replans"), None);
        let within =
            ReplanPermissions { token: "t".to_owned(), tools: Some(Vec::new()), switches: false };
        for replans in [
            ReplanOptions::times(0),
            ReplanOptions::times(3).after_replan(),
            ReplanOptions { within: Some(within), ..ReplanOptions::default() },
        ] {
            let options = ExecutionOptions { replans, ..options.clone() };
            let back: ExecutionOptions = serde_json::from_value(json!(options)).unwrap();
            assert_eq!(back, options);
        }
    }
}
