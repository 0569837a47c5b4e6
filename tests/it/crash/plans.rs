//! Plans that can be checked: a step's name ends with the number that it must return.

use serde_json::{Value, json};
use tests::faulty::Dice;

/// Draws a plan: a chain with sleeps between, or a fan.
pub(super) fn draw(dice: &Dice) -> Value {
    if dice.happens(600) { chain(dice) } else { fan(dice) }
}

fn chain(dice: &Dice) -> Value {
    let (mut tools, mut before, mut rests) = (Vec::new(), None, Vec::new());
    for at in 0..3 + dice.below(4) {
        let step = step(dice, at, at + 1, before.as_deref(), &json!(rests));
        before = Some(step["id"].as_str().unwrap().to_owned());
        tools.push(step);
        rests.clear();
        if dice.happens(250) {
            let id = format!("rest-{at}");
            let ms = 1 + dice.below(300);
            let sleep = json!({ "id": id, "name": "flow.sleep", "parameters": { "ms": ms },
                "dependsOn": before });
            tools.push(sleep);
            rests.push(id);
        }
    }
    json!(tools)
}

fn fan(dice: &Dice) -> Value {
    let root = step(dice, 0, 1, None, &Value::Null);
    let id = root["id"].as_str().unwrap().to_owned();
    let mut tools = vec![root];
    for at in 1..3 + dice.below(5) {
        tools.push(step(dice, at, 2, Some(&id), &Value::Null));
    }
    let leaves: Vec<Value> = tools[1..].iter().map(|tool| tool["id"].clone()).collect();
    tools.push(step(dice, 100, 3, leaves[0].as_str(), &json!(leaves)));
    json!(tools)
}

/// Draws a step that must return `expected`, which is one more than `before` does.
fn step(dice: &Dice, at: u64, expected: u64, before: Option<&str>, depends_on: &Value) -> Value {
    let tool = ["once", "once", "idempotent", "read"][usize::try_from(dice.below(4)).unwrap()];
    let n = before.map_or(json!(0), |name| json!(format!("{{{{{name}.n}}}}")));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let seconds = dice.below(60) as f64 / 1_000.0;
    let mut step = json!({
        "id": format!("{tool}-{at}-{expected}"),
        "name": format!("ledger.{tool}"),
        "parameters": { "n": n, "seconds": seconds },
        "dependsOn": depends_on,
        "onError": if dice.happens(700) { "continue" } else { "fail" },
    });
    if dice.happens(300) {
        // It must not help a step whose outcome nobody knows.
        step["retry"] = json!({ "maxAttempts": 3, "backoffMs": 1 });
    }
    step
}
