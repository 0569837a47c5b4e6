//! Random plans of whatever a plan can say, each with what is needed to judge what came of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tests::faulty::Dice;

/// A plan as a client writes it, and how it is to be executed.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// `tools` of the input.
    pub(super) tools: Vec<Value>,
    /// The options, without a key.
    pub(super) options: Value,
    /// The steps by their names.
    pub(super) steps: BTreeMap<String, Step>,
}

/// What a step is, and what it may do.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    /// The steps that it waits for.
    pub(super) after: Vec<String>,
    pub(super) on_error: &'static str,
    /// What it must return.
    pub(super) n: u64,
    /// How the tool behaves.
    pub(super) fate: &'static str,
    /// Tries in all.
    pub(super) tries: u64,
    pub(super) asks: bool,
}

/// What carries a step out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Once,
    Idempotent,
    Read,
    Echo,
    Effect,
    Fail,
    Sleep,
    Wait,
}

impl Kind {
    fn tool(self) -> &'static str {
        match self {
            Self::Once => "ledger.once",
            Self::Idempotent => "ledger.idempotent",
            Self::Read => "ledger.read",
            Self::Echo => "flow.echo",
            Self::Effect => "flow.effect",
            Self::Fail => "flow.fail",
            Self::Sleep => "flow.sleep",
            Self::Wait => "flow.wait",
        }
    }

    /// Returns whether calls of it are in the ledger.
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Self::Once | Self::Idempotent | Self::Read)
    }

    /// Returns whether a second call does something again.
    pub(super) fn is_once(self) -> bool {
        matches!(self, Self::Once | Self::Effect)
    }

    /// Returns whether it has a number in its output.
    fn has_number(self) -> bool {
        self.is_counted() || self == Self::Echo
    }
}

/// How long a tool may take that never returns.
const HANGS_MS: u64 = 300;
/// A sleep that nobody waits for the end of.
const FOREVER_MS: u64 = 86_400_000;

/// Draws a plan. `start_at` writes the time that is so many milliseconds from now.
pub(super) fn draw(dice: &Dice, start_at: impl Fn(u64) -> String) -> Draft {
    let mut draft = Draft { options: options(dice, start_at), ..Draft::default() };
    let mut names = Vec::new();
    for at in 0..2 + dice.below(8) {
        let name = add(&mut draft, dice, at, &names);
        names.push(name);
    }
    draft
}

fn options(dice: &Dice, start_at: impl Fn(u64) -> String) -> Value {
    let mut options = json!({ "mode": "PARALLEL" });
    if dice.happens(250) {
        options["mode"] = json!("SEQUENTIAL");
    } else if dice.happens(250) {
        options["maxParallel"] = json!(1 + dice.below(3));
    }
    if dice.happens(50) {
        options["deadlineMs"] = json!(300 + dice.below(3_000));
    }
    if dice.happens(80) {
        options["startAt"] = json!(start_at(100 + dice.below(1_500)));
    }
    if dice.happens(200) {
        options["priority"] = json!(dice.below(11));
    }
    if dice.happens(100) {
        options["strictTemplates"] = json!(true);
    }
    options
}

/// Adds a step and returns its name.
fn add(draft: &mut Draft, dice: &Dice, at: u64, names: &[String]) -> String {
    let kind = kind(dice);
    let name = format!("{}-{at}", kind.tool().rsplit('.').next().unwrap());
    let after: Vec<String> =
        names.iter().rev().filter(|_| dice.happens(350)).take(4).cloned().collect();
    let has_number = |it: &&String| kind.has_number() && draft.steps[*it].kind.has_number();
    let (named, others): (Vec<&String>, Vec<&String>) = after.iter().partition(|it| has_number(it));
    let mut step = Step {
        kind,
        after: after.clone(),
        on_error: pick(dice, &["fail", "fail", "continue", "ignore", "wait"]),
        n: dice.below(1_000) * 100 + at,
        fate: pick(dice, &["ok", "ok", "ok", "ok", "ok", "ok", "flaky", "flaky", "fail", "hang"]),
        tries: 1,
        asks: dice.happens(80),
    };
    let mut tool = json!({
        "id": name, "name": kind.tool(), "dependsOn": others, "onError": step.on_error,
        "parameters": parameters(&step, dice, &named),
    });
    if step.fate == "hang" && kind.is_counted() {
        tool["timeoutMs"] = json!(HANGS_MS);
    }
    if dice.happens(if step.fate == "flaky" { 800 } else { 300 }) {
        step.tries = 2 + dice.below(3);
        tool["retry"] = json!({ "maxAttempts": step.tries, "backoffMs": 1 + dice.below(400) });
    }
    if step.asks {
        tool["requiresApproval"] = json!(true);
    }
    draft.tools.push(tool);
    draft.steps.insert(name.clone(), step);
    name
}

fn kind(dice: &Dice) -> Kind {
    match dice.below(100) {
        0..28 => Kind::Once,
        28..52 => Kind::Idempotent,
        52..68 => Kind::Read,
        68..76 => Kind::Echo,
        76..81 => Kind::Effect,
        81..84 => Kind::Fail,
        84..94 => Kind::Sleep,
        _ => Kind::Wait,
    }
}

fn parameters(step: &Step, dice: &Dice, named: &[&String]) -> Value {
    let from: serde_json::Map<String, Value> =
        named.iter().map(|it| ((*it).clone(), json!(format!("{{{{{it}.n}}}}")))).collect();
    match step.kind {
        Kind::Once | Kind::Idempotent | Kind::Read => {
            let fate = if step.fate == "hang" { "ok" } else { step.fate };
            json!({
                "n": step.n, "seconds": seconds(step.fate, dice), "fate": fate,
                "until": 1 + dice.below(2), "from": from,
            })
        }
        Kind::Echo => json!({ "n": step.n, "from": from }),
        Kind::Effect => json!({}),
        Kind::Fail => json!({ "message": "on purpose", "times": 1 + dice.below(3) }),
        Kind::Sleep if dice.happens(40) => json!({ "ms": FOREVER_MS }),
        Kind::Sleep => json!({ "ms": dice.below(900) }),
        Kind::Wait => json!({ "name": format!("news-{}", step.n) }),
    }
}

fn seconds(fate: &str, dice: &Dice) -> Value {
    if fate == "hang" {
        return json!(60);
    }
    if dice.happens(400) {
        return json!(0);
    }
    let most = if dice.happens(60) { 1_500 } else { 120 };
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let seconds = dice.below(most) as f64 / 1_000.0;
    json!(seconds)
}

fn pick(dice: &Dice, all: &[&'static str]) -> &'static str {
    all[dice.index(all.len())]
}
