//! Executions that are planned anew by themselves when they are over.
//!
//! Whether one is follows from its own log, so that whoever reads it knows that it is owed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Execution, ExecutionState, StepState, options::is_default};
use crate::{
    glob::Glob,
    id::{StepId, ToolSetName},
    limits,
};

/// The tool by which a plan says that what follows depends on what its steps return.
pub const REPLAN: &str = "flow.replan";

/// How often what an execution did not get done is planned anew by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Replans {
    /// Also after a failure, and not only where a step asks for it.
    pub after_failure: bool,
    /// How often yet.
    pub left: u32,
    /// How often it was done before.
    #[serde(skip_serializing_if = "is_default")]
    pub before: u32,
    /// Only tools of these sets, as the first plan; of any, where none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ToolSetName>,
    /// What the plans may use, where whoever asked for it may not use everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

/// What plans may use that are made when nobody asks any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// The name of the token that was shown, for messages.
    pub token: String,
    /// Only tools that one of these matches; any, where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Glob>>,
    /// Whether toolsets may be switched on and off.
    #[serde(default)]
    pub switches: bool,
}

/// Why a finished execution is replanned automatically.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplanCause<'a> {
    /// It did not end well.
    Failed,
    /// This step asked for it, and returned this.
    Asked(&'a StepId, &'a Value),
}

impl Default for Replans {
    fn default() -> Self {
        let left = limits::REPLANS_ASKED;
        Self { after_failure: false, left, before: 0, sets: Vec::new(), within: None }
    }
}

impl Replans {
    /// Returns so often, whatever it is for; zero means never.
    pub fn times(left: u32) -> Self {
        Self { after_failure: left > 0, left, ..Self::default() }
    }

    /// Returns what is left to whoever goes on.
    #[must_use]
    pub fn once_less(&self) -> Self {
        let (left, before) = (self.left.saturating_sub(1), self.before.saturating_add(1));
        Self { left, before, ..self.clone() }
    }

    /// Returns as much as whoever asks says: the rest follows from who asks, and for what.
    #[must_use]
    pub fn as_asked(&self) -> Self {
        Self { sets: Vec::new(), within: None, ..self.clone() }
    }

    /// Returns whether that was ever wanted.
    fn is_wanted(&self) -> bool {
        self.left > 0 || self.before > 0
    }
}

impl Execution {
    /// Returns why this needs an automatic replan, if it does. Also if no replans are left, which
    /// the replanner then reports.
    pub fn replan_cause(&self) -> Option<ReplanCause<'_>> {
        let options = self.options();
        let stands_alone = self.parent().is_none() && !options.dry_run;
        if !stands_alone || options.compensate_on_failure || !options.replans.is_wanted() {
            return None;
        }
        match self.state() {
            ExecutionState::Failed if options.replans.after_failure && !self.overran() => {
                Some(ReplanCause::Failed)
            }
            ExecutionState::Completed => {
                self.asked().map(|(step, what)| ReplanCause::Asked(step, what))
            }
            _ => None,
        }
    }

    /// Returns the last step in order that asked here to be planned anew, and what it returned. One
    /// that was taken over asked elsewhere.
    pub fn asked(&self) -> Option<(&StepId, &Value)> {
        let steps = self.plan().steps().iter().zip(self.steps());
        let mut asked = steps.filter_map(|(planned, step)| match &step.state {
            StepState::Succeeded(output)
                if planned.tool.as_str() == REPLAN && step.finished_at.is_some() =>
            {
                Some((&planned.id, &**output))
            }
            _ => None,
        });
        asked.next_back()
    }

    /// Returns whether something is still to be done about this when it is over: its parent is to
    /// be told, or it is to be planned anew.
    pub fn leaves_something(&self) -> bool {
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
        event::{Created, Event, Outcome, Parent, Recorded, StepStarted},
        execution::ExecutionOptions,
        id::{Attempt, Part, Seq},
        plan::Plan,
    };

    /// Returns an execution of a step that asks to be planned anew, as it ended.
    fn ended(
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
        let mut created = Created::new(plan.id(), plan.about().request, options);
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
        };
        let output = Some(Arc::new(json!({ "goal": "g" })));
        let (cached, stderr) = (false, None);
        let mut events = vec![Event::Created(created)];
        if !is_reused {
            events.push(Event::StepStarted(started));
            events.push(Event::StepSucceeded { step, part, attempt, output, cached, stderr });
        }
        events.push(Event::Finished { outcome });
        let log: Vec<Recorded> = (1..)
            .zip(events)
            .map(|(seq, event)| Recorded { seq: Seq(seq), at: Timestamp::UNIX_EPOCH, event })
            .collect();
        Execution::replay("exec_1_aaaaaaaaa".parse().unwrap(), plan, &log).unwrap()
    }

    #[test]
    fn who_is_planned_anew_follows_from_the_log() {
        let default = ExecutionOptions::default;
        let times = |it| ExecutionOptions { replans: Replans::times(it), ..default() };
        let used = |it: u32| {
            let replans = (0..it).fold(Replans::times(it), |it, _| it.once_less());
            ExecutionOptions { replans, ..default() }
        };
        let dry = |it: ExecutionOptions| ExecutionOptions { dry_run: true, ..it };
        let undoing = |it: ExecutionOptions| ExecutionOptions { compensate_on_failure: true, ..it };
        let as_is = |_: &mut Created| ();
        for (options, failed, completed) in [
            (default(), false, true),
            (times(0), false, false),
            (times(1), true, true),
            // Said to be used up, by whoever plans.
            (used(2), true, true),
            (dry(times(1)), false, false),
            (undoing(times(1)), false, false),
        ] {
            let end = |outcome| ended(options.clone(), outcome, as_is);
            let (bad, good) = (end(Outcome::Failed), end(Outcome::Completed));
            assert_eq!(bad.replan_cause().is_some(), failed, "{options:?}");
            assert_eq!(good.replan_cause().is_some(), completed, "{options:?}");
            assert!(end(Outcome::Cancelled).replan_cause().is_none());
        }
        let asked = ended(default(), Outcome::Completed, as_is);
        let goal = json!({ "goal": "g" });
        assert_eq!(asked.replan_cause(), Some(ReplanCause::Asked(&"a".parse().unwrap(), &goal)));
        let parent = |it: &mut Created| {
            let execution = "exec_2_aaaaaaaaa".parse().unwrap();
            let (step, attempt) = ("s".parse().unwrap(), Attempt::FIRST);
            it.parent = Some(Parent { execution, step, part: Part::WHOLE, attempt, depth: 1 });
        };
        let part = ended(times(3), Outcome::Failed, parent);
        assert!(part.replan_cause().is_none() && part.leaves_something());
    }

    /// A version that keeps the step that asked would ask again, for ever.
    #[test]
    fn what_was_asked_before_is_not_asked_again() {
        let reused = |it: &mut Created| {
            it.reused.push(("a".parse().unwrap(), Arc::new(json!({ "goal": "g" }))));
        };
        let ended = ended(ExecutionOptions::default(), Outcome::Completed, reused);
        assert!(matches!(ended.steps()[0].state, StepState::Succeeded(_)));
        assert_eq!(ended.replan_cause(), None);
    }

    #[test]
    fn what_is_left_is_kept_and_what_is_usual_is_not_written() {
        let options = ExecutionOptions::default();
        assert_eq!(json!(options).get("replans"), None);
        let within = Within { token: "t".to_owned(), tools: Some(Vec::new()), switches: false };
        for replans in [
            Replans::times(0),
            Replans::times(3).once_less(),
            Replans { within: Some(within), ..Replans::default() },
        ] {
            let options = ExecutionOptions { replans, ..options.clone() };
            let back: ExecutionOptions = serde_json::from_value(json!(options)).unwrap();
            assert_eq!(back, options);
        }
    }
}
