//! Actions of simulated people: they approve, reject, decide, signal, pause, resume or cancel. Some
//! executions wait for a person who does nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tests::faulty::Dice;

use super::{
    plans::{Draft, StepKind},
    shared_run::SharedRun,
};

const APPROVE_MUTATION: &str =
    "mutation ($id: ID!, $step: String!, $yes: Boolean!, $mark: String) {
    approveStep(executionId: $id, stepId: $step, approved: $yes, comment: $mark) { state } }";
const SIGNAL_MUTATION: &str = "mutation ($id: ID!, $name: String!, $mark: String!) {
    signalExecution(executionId: $id, name: $name, payload: $mark) { state } }";
const CANCEL_MUTATION: &str = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
const PAUSE_MUTATION: &str = "mutation ($id: ID!) { pauseExecution(executionId: $id) { state } }";
const RESUME_MUTATION: &str = "mutation ($id: ID!) { resumeExecution(executionId: $id) { state } }";

/// Maximum number of times that a person lets a failed step try again.
const MAX_ATTEMPTS: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) mutation: &'static str,
    variables: Value,
    pub(super) is_acknowledged: bool,
    /// Number of times that the request was sent. Each request has perhaps reached a server, even
    /// if no answer arrived.
    pub(super) tries: u64,
}

impl Action {
    fn new(mutation: &'static str, variables: Value) -> Self {
        Self { mutation, variables, is_acknowledged: false, tries: 0 }
    }

    /// Returns the text that identifies this action in the log.
    pub(super) fn mark(&self) -> &str {
        self.variables["mark"].as_str().unwrap_or_default()
    }

    pub(super) async fn send_until_answered(mut self, run: &SharedRun, execution: &str) -> Self {
        let query = match self.mutation {
            "approve" => APPROVE_MUTATION,
            "signal" => SIGNAL_MUTATION,
            "cancel" => CANCEL_MUTATION,
            "pause" => PAUSE_MUTATION,
            _ => RESUME_MUTATION,
        };
        self.variables["id"] = json!(execution);
        run.count(self.mutation);
        match run.ask_counting_tries(query, &self.variables, &mut self.tries).await {
            Ok(_) => self.is_acknowledged = true,
            // The action is not needed any more: the execution has finished, or an earlier attempt
            // of the action has arrived.
            Err(err) if err.code() == "CONFLICT" => (),
            Err(err) => {
                run.add_violation(format!("{execution}: {} is refused: {err:?}", self.mutation));
            }
        }
        self
    }
}

#[derive(Debug)]
pub(super) struct Person {
    dice: Dice,
    signal_names: Vec<String>,
    action_count: u64,
    decisions: BTreeMap<String, u32>,
    cancels_after: Option<u64>,
    pauses_after: Option<u64>,
    /// The execution waits for an action that this person will not send, or for a time after the
    /// end of the test.
    is_abandoned: bool,
}

impl Person {
    pub(super) fn new(dice: Dice, draft: &Draft) -> Self {
        let waits = draft.steps.values().filter(|step| step.kind == StepKind::Wait);
        let signal_names = waits.map(|step| format!("news-{}", step.n)).collect();
        let (cancels, pauses) = (dice.happens(80), dice.happens(120));
        let cancels_after = cancels.then(|| 1 + dice.draw_below(12));
        let pauses_after = pauses.then(|| 1 + dice.draw_below(8));
        let decisions = BTreeMap::new();
        Self {
            dice,
            signal_names,
            action_count: 0,
            decisions,
            cancels_after,
            pauses_after,
            is_abandoned: false,
        }
    }

    /// Returns `true` if the execution cannot finish during the test.
    pub(super) fn has_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Returns signals that are sent before a step waits for them.
    pub(super) fn act_early(&mut self) -> Vec<Action> {
        let early: Vec<String> =
            self.signal_names.iter().filter(|_| self.dice.happens(300)).cloned().collect();
        early.into_iter().map(|name| self.make_signal(&name)).collect()
    }

    pub(super) fn react_to(&mut self, event: &Value) -> Vec<Action> {
        let seq = event["seq"].as_u64().unwrap_or_default();
        let mut actions = Vec::new();
        match event["type"].as_str().unwrap_or_default() {
            "finished" => return actions,
            "step_waiting" => actions.extend(self.answer_wait(event)),
            "step_started" => {
                let ms = event["data"]["parameters"]["ms"].as_u64().unwrap_or_default();
                self.is_abandoned |= ms > 60_000;
            }
            "paused" if self.dice.happens(850) => actions.push(Action::new("resume", json!({}))),
            "paused" => self.is_abandoned = true,
            _ => (),
        }
        if self.cancels_after == Some(seq) {
            actions.push(Action::new("cancel", json!({})));
        }
        if self.pauses_after == Some(seq) {
            actions.push(Action::new("pause", json!({})));
        }
        actions
    }

    fn answer_wait(&mut self, event: &Value) -> Option<Action> {
        let step = event["stepId"].as_str().unwrap_or_default().to_owned();
        if self.dice.happens(80) {
            self.is_abandoned = true;
            return None;
        }
        let is_agreed = match event["data"]["for"].as_str().unwrap_or_default() {
            "signal" => {
                let name = event["data"]["name"].as_str().unwrap_or_default();
                return Some(self.make_signal(name));
            }
            "approval" => self.dice.happens(850),
            _ => {
                let decisions = self.decisions.entry(step.clone()).or_default();
                *decisions += 1;
                *decisions <= MAX_ATTEMPTS && self.dice.happens(650)
            }
        };
        let mark = self.next_mark();
        Some(Action::new("approve", json!({ "step": step, "yes": is_agreed, "mark": mark })))
    }

    fn make_signal(&mut self, name: &str) -> Action {
        let mark = self.next_mark();
        Action::new("signal", json!({ "name": name, "mark": mark }))
    }

    fn next_mark(&mut self) -> String {
        self.action_count += 1;
        format!("act-{}", self.action_count)
    }
}
