use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tests::faulty::Dice;

#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) tools: Vec<Value>,
    /// The options, without an idempotency key.
    pub(super) options: Value,
    pub(super) steps: BTreeMap<String, Step>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) after: Vec<String>,
    pub(super) on_error: &'static str,
    /// The number that the tool must return.
    pub(super) n: u64,
    /// Behaviour of the tool: `ok`, `fail`, `flaky`, `hang` or `odd`.
    pub(super) behaviour: &'static str,
    pub(super) needs_approval: bool,
    pub(super) items: Option<Vec<u64>>,
    /// The step whose output must be even for this step to run.
    pub(super) when: Option<String>,
    pub(super) child: Option<Box<Draft>>,
    pub(super) is_compensated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Once,
    Idempotent,
    Read,
    Echo,
    Effect,
    Fail,
    Sleep,
    Wait,
    Plan,
}

impl StepKind {
    fn tool_name(self) -> &'static str {
        match self {
            Self::Once => "ledger.once",
            Self::Idempotent => "ledger.idempotent",
            Self::Read => "ledger.read",
            Self::Echo => "flow.echo",
            Self::Effect => "flow.effect",
            Self::Fail => "flow.fail",
            Self::Sleep => "flow.sleep",
            Self::Wait => "flow.wait",
            Self::Plan => "a.plan",
        }
    }

    pub(super) fn is_in_ledger(self) -> bool {
        matches!(self, Self::Once | Self::Idempotent | Self::Read)
    }

    pub(super) fn is_once(self) -> bool {
        matches!(self, Self::Once | Self::Effect)
    }

    /// Returns whether a step of this kind continues without a worker.
    pub(super) fn can_run_without_worker(self) -> bool {
        matches!(self, Self::Sleep | Self::Wait | Self::Plan)
    }
}

impl Step {
    fn has_number(&self) -> bool {
        (self.kind.is_in_ledger() || self.kind == StepKind::Echo) && self.items.is_none()
    }
}

/// Timeout of calls that never return.
const HANG_TIMEOUT_MS: u64 = 300;
/// A sleep that is longer than the test, in milliseconds.
const FOREVER_MS: u64 = 86_400_000;
/// Values of `onError`. `fail` is listed twice, so that it is drawn more often.
const ON_ERROR_VALUES: [&str; 5] = ["fail", "fail", "continue", "ignore", "wait"];
/// Maximum depth of inline plans.
const MAX_DEPTH: u64 = 2;

/// Draws a plan. `start_at` formats the time that is this many milliseconds from now.
pub(super) fn draw_plan(dice: &Dice, start_at: impl Fn(u64) -> String) -> Draft {
    let steps = 2 + dice.draw_below(8);
    Draft {
        options: draw_options(dice, start_at),
        ..PlanWriter { dice, depth: 0 }.write_plan(steps)
    }
}

fn draw_options(dice: &Dice, start_at: impl Fn(u64) -> String) -> Value {
    let mut options = json!({ "mode": "PARALLEL" });
    if dice.happens(250) {
        options["mode"] = json!("SEQUENTIAL");
    }
    if dice.happens(190) {
        options["maxParallel"] = json!(1 + dice.draw_below(3));
    }
    if dice.happens(50) {
        options["deadlineMs"] = json!(300 + dice.draw_below(3_000));
    }
    if dice.happens(80) {
        options["startAt"] = json!(start_at(100 + dice.draw_below(1_500)));
    }
    if dice.happens(200) {
        options["priority"] = json!(dice.draw_below(11));
    }
    if dice.happens(100) {
        options["strictTemplates"] = json!(true);
    }
    options["compensateOnFailure"] = json!(dice.happens(500));
    if dice.happens(30) {
        options["dryRun"] = json!(true);
    }
    options
}

struct PlanWriter<'a> {
    dice: &'a Dice,
    depth: u64,
}

impl PlanWriter<'_> {
    fn write_plan(&self, steps: u64) -> Draft {
        let (mut draft, mut names) = (Draft::default(), Vec::new());
        for index in 0..steps {
            let name = self.add_step(&mut draft, index, &names);
            names.push(name);
        }
        draft
    }

    fn add_step(&self, draft: &mut Draft, index: u64, names: &[String]) -> String {
        let dice = self.dice;
        let kind = self.draw_kind();
        let name = format!("{}-{index}", kind.tool_name().rsplit('.').next().unwrap());
        let mut after: Vec<String> =
            names.iter().rev().filter(|_| dice.happens(350)).take(4).cloned().collect();
        let takes_numbers = kind.is_in_ledger() || kind == StepKind::Echo;
        let numbers: Vec<String> =
            after.iter().filter(|name| draft.steps[*name].has_number()).cloned().collect();
        let given = if takes_numbers { numbers.clone() } else { Vec::new() };
        let others: Vec<&String> = after.iter().filter(|name| !given.contains(name)).collect();
        let mut tool = json!({ "id": name, "dependsOn": others });
        let mut step = Step {
            kind,
            after: Vec::new(),
            // No simulated person answers for steps of an inline plan, so such steps do not get the
            // last value, `wait`.
            on_error: self.pick_one(if self.depth == 0 {
                &ON_ERROR_VALUES
            } else {
                &ON_ERROR_VALUES[..4]
            }),
            n: dice.draw_below(1_000) * 100 + index,
            behaviour: self
                .pick_one(&["ok", "ok", "ok", "ok", "ok", "flaky", "flaky", "fail", "hang"]),
            needs_approval: self.depth == 0 && dice.happens(80),
            items: None,
            when: numbers.first().filter(|_| dice.happens(250)).cloned(),
            child: None,
            is_compensated: false,
        };
        if kind == StepKind::Plan {
            let child =
                PlanWriter { dice, depth: self.depth + 1 }.write_plan(1 + dice.draw_below(3));
            tool["inlinePlan"] = json!({ "tools": child.tools });
            step.child = Some(Box::new(child));
        } else {
            tool["name"] = json!(kind.tool_name());
        }
        if kind.is_in_ledger() && dice.happens(150) {
            after.push(self.make_loop(draft, index, &mut step, &mut tool));
        }
        self.add_settings(&name, &mut step, &mut tool);
        tool["parameters"] = self.draw_parameters(&step, &given);
        step.after = after;
        draft.tools.push(tool);
        draft.steps.insert(name.clone(), step);
        name
    }

    fn make_loop(
        &self,
        draft: &mut Draft,
        index: u64,
        step: &mut Step,
        tool: &mut Value,
    ) -> String {
        let count = if self.dice.happens(100) { 30 } else { self.dice.draw_below(6) };
        let items: Vec<u64> = (0..count).map(|_| self.dice.draw_below(100_000)).collect();
        let name = format!("list-{index}");
        let parameters = json!({ "items": items, "n": step.n });
        draft.tools.push(json!({ "id": name, "name": "flow.echo", "parameters": parameters }));
        let list = Step {
            kind: StepKind::Echo,
            after: Vec::new(),
            on_error: "fail",
            behaviour: "ok",
            needs_approval: false,
            when: None,
            ..step.clone()
        };
        draft.steps.insert(name.clone(), list);
        tool["forEach"] = json!(format!("{{{{{name}.items}}}}"));
        if self.dice.happens(500) {
            tool["maxParallel"] = json!(1 + self.dice.draw_below(3));
        }
        step.items = Some(items);
        step.needs_approval = false;
        step.on_error = self.pick_one(&["fail", "continue", "ignore"]);
        step.behaviour = self.pick_one(&["ok", "ok", "flaky", "odd"]);
        name
    }

    fn add_settings(&self, name: &str, step: &mut Step, tool: &mut Value) {
        let dice = self.dice;
        tool["onError"] = json!(step.on_error);
        if step.behaviour == "hang" && step.kind.is_in_ledger() {
            tool["timeoutMs"] = json!(HANG_TIMEOUT_MS);
        }
        if dice.happens(if step.behaviour == "flaky" { 800 } else { 300 }) {
            tool["retry"] = json!({ "maxAttempts": 2 + dice.draw_below(3), "backoffMs": 1 + dice.draw_below(400) });
        }
        if step.needs_approval {
            tool["requiresApproval"] = json!(true);
        }
        if let Some(parent) = &step.when {
            tool["when"] =
                json!(format!("steps[\"{parent}\"] != null && steps[\"{parent}\"].n % 2 == 0"));
        }
        if step.kind == StepKind::Read && dice.happens(200) {
            tool["cacheTtlMs"] = json!(60_000);
        }
        let has_effect = matches!(step.kind, StepKind::Once | StepKind::Idempotent);
        if has_effect && dice.happens(450) {
            step.is_compensated = true;
            let behaviour = self.pick_one(&["ok", "ok", "flaky", "fail"]);
            tool["compensate"] = json!({
                "name": "ledger.idempotent",
                "parameters": {
                    "n": format!("{{{{{name}.n}}}}"), "seconds": 0, "fate": behaviour, "until": 1,
                },
                "retry": { "maxAttempts": 3, "backoffMs": 20 },
            });
        }
    }

    fn draw_kind(&self) -> StepKind {
        match self.dice.draw_below(100) {
            0..26 => StepKind::Once,
            26..48 => StepKind::Idempotent,
            48..62 => StepKind::Read,
            62..70 => StepKind::Echo,
            70..75 => StepKind::Effect,
            75..78 => StepKind::Fail,
            78..87 => StepKind::Sleep,
            87..93 if self.depth < MAX_DEPTH => StepKind::Plan,
            _ if self.depth == 0 => StepKind::Wait,
            _ => StepKind::Read,
        }
    }

    fn draw_parameters(&self, step: &Step, given: &[String]) -> Value {
        let dice = self.dice;
        let from: Map<String, Value> =
            given.iter().map(|name| (name.clone(), json!(format!("{{{{{name}.n}}}}")))).collect();
        match step.kind {
            StepKind::Once | StepKind::Idempotent | StepKind::Read => {
                let behaviour = if step.behaviour == "hang" { "ok" } else { step.behaviour };
                let n = if step.items.is_some() { json!("{{item}}") } else { json!(step.n) };
                json!({
                    "n": n, "seconds": self.draw_seconds(step.behaviour), "fate": behaviour,
                    "until": 1 + dice.draw_below(2), "from": from,
                })
            }
            StepKind::Echo => json!({ "n": step.n, "from": from }),
            StepKind::Effect => json!({}),
            StepKind::Fail => json!({ "message": "on purpose", "times": 1 + dice.draw_below(3) }),
            StepKind::Sleep if dice.happens(40) && self.depth == 0 => json!({ "ms": FOREVER_MS }),
            StepKind::Sleep => json!({ "ms": dice.draw_below(900) }),
            StepKind::Wait => json!({ "name": format!("news-{}", step.n) }),
            StepKind::Plan => json!({ "x": step.n }),
        }
    }

    fn draw_seconds(&self, behaviour: &str) -> Value {
        if behaviour == "hang" {
            return json!(60);
        }
        if self.dice.happens(400) {
            return json!(0);
        }
        let maximum = if self.dice.happens(60) { 1_500 } else { 120 };
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let seconds = self.dice.draw_below(maximum) as f64 / 1_000.0;
        json!(seconds)
    }

    fn pick_one(&self, all: &[&'static str]) -> &'static str {
        all[self.dice.draw_index(all.len())]
    }
}
