//! What people do to executions: they agree, refuse, decide, signal, pause, cancel, or never come.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tests::faulty::Dice;

use super::{
    plans::{Draft, Kind},
    scene::Scene,
};

const APPROVE: &str = "mutation ($id: ID!, $step: String!, $yes: Boolean!, $mark: String) {
    approveStep(executionId: $id, stepId: $step, approved: $yes, comment: $mark) { state } }";
const SIGNAL: &str = "mutation ($id: ID!, $name: String!, $mark: String!) {
    signalExecution(executionId: $id, name: $name, payload: $mark) { state } }";
const CANCEL: &str = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
const PAUSE: &str = "mutation ($id: ID!) { pauseExecution(executionId: $id) { state } }";
const RESUME: &str = "mutation ($id: ID!) { resumeExecution(executionId: $id) { state } }";

/// Tries that a person agrees to before it is enough.
const TRIES: u32 = 3;

/// Something that a person does.
#[derive(Clone, Debug)]
pub(super) struct Act {
    pub(super) what: &'static str,
    variables: Value,
    /// Whether it was acknowledged.
    pub(super) is_acknowledged: bool,
    /// How often it may have been heard: whoever gets no answer asks again.
    pub(super) tries: u64,
}

impl Act {
    fn new(what: &'static str, variables: Value) -> Self {
        Self { what, variables, is_acknowledged: false, tries: 0 }
    }

    /// Returns what tells the act from others of its kind.
    pub(super) fn mark(&self) -> &str {
        self.variables["mark"].as_str().unwrap_or_default()
    }

    /// Does it, and insists.
    pub(super) async fn carry_out(mut self, scene: &Scene, execution: &str) -> Self {
        let query = match self.what {
            "approve" => APPROVE,
            "signal" => SIGNAL,
            "cancel" => CANCEL,
            "pause" => PAUSE,
            _ => RESUME,
        };
        self.variables["id"] = json!(execution);
        scene.count(self.what);
        match scene.insist_counting(query, &self.variables, &mut self.tries).await {
            Ok(_) => self.is_acknowledged = true,
            // It is over, or an earlier try has arrived.
            Err(err) if err.code() == "CONFLICT" => (),
            Err(err) => scene.wrong(format!("{execution}: {} is refused: {err:?}", self.what)),
        }
        self
    }
}

/// Whoever an execution waits for.
#[derive(Debug)]
pub(super) struct Person {
    dice: Dice,
    names: Vec<String>,
    acts: u64,
    decisions: BTreeMap<String, u32>,
    cancels_after: Option<u64>,
    pauses_after: Option<u64>,
    /// Whether something waits for a person that will not come, or for a time that is too far off.
    is_left: bool,
}

impl Person {
    pub(super) fn new(dice: Dice, draft: &Draft) -> Self {
        let waits = draft.steps.values().filter(|step| step.kind == Kind::Wait);
        let names = waits.map(|step| format!("news-{}", step.n)).collect();
        let (cancels, pauses) = (dice.happens(80), dice.happens(120));
        let cancels_after = cancels.then(|| 1 + dice.below(12));
        let pauses_after = pauses.then(|| 1 + dice.below(8));
        let decisions = BTreeMap::new();
        Self { dice, names, acts: 0, decisions, cancels_after, pauses_after, is_left: false }
    }

    /// Returns whether nobody goes on with what waits now.
    pub(super) fn has_left(&self) -> bool {
        self.is_left
    }

    /// Returns what is done before anybody waits for it.
    pub(super) fn hurry(&mut self) -> Vec<Act> {
        let early: Vec<String> =
            self.names.iter().filter(|_| self.dice.happens(300)).cloned().collect();
        early.into_iter().map(|name| self.signal(&name)).collect()
    }

    /// Returns what is done about an event.
    pub(super) fn hears(&mut self, event: &Value) -> Vec<Act> {
        let seq = event["seq"].as_u64().unwrap_or_default();
        let mut acts = Vec::new();
        match event["type"].as_str().unwrap_or_default() {
            "finished" => return acts,
            "step_waiting" => acts.extend(self.answers(event)),
            "step_started" => {
                let ms = event["data"]["parameters"]["ms"].as_u64().unwrap_or_default();
                self.is_left |= ms > 60_000;
            }
            "paused" if self.dice.happens(850) => acts.push(Act::new("resume", json!({}))),
            "paused" => self.is_left = true,
            _ => (),
        }
        if self.cancels_after == Some(seq) {
            acts.push(Act::new("cancel", json!({})));
        }
        if self.pauses_after == Some(seq) {
            acts.push(Act::new("pause", json!({})));
        }
        acts
    }

    fn answers(&mut self, event: &Value) -> Option<Act> {
        let step = event["stepId"].as_str().unwrap_or_default().to_owned();
        if self.dice.happens(80) {
            self.is_left = true;
            return None;
        }
        let is_agreed = match event["data"]["for"].as_str().unwrap_or_default() {
            "signal" => {
                let name = event["data"]["name"].as_str().unwrap_or_default();
                return Some(self.signal(name));
            }
            "approval" => self.dice.happens(850),
            _ => {
                let decisions = self.decisions.entry(step.clone()).or_default();
                *decisions += 1;
                *decisions <= TRIES && self.dice.happens(650)
            }
        };
        let mark = self.mark();
        Some(Act::new("approve", json!({ "step": step, "yes": is_agreed, "mark": mark })))
    }

    fn signal(&mut self, name: &str) -> Act {
        let mark = self.mark();
        Act::new("signal", json!({ "name": name, "mark": mark }))
    }

    fn mark(&mut self) -> String {
        self.acts += 1;
        format!("act-{}", self.acts)
    }
}
