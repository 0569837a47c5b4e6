//! Random plans with known outputs: the name of a step ends with the number that it must return.

use serde_json::{Value, json};
use tests::faulty::Dice;

pub(super) fn draw_plan(dice: &Dice) -> Value {
    if dice.happens(600) { draw_chain(dice) } else { draw_fan(dice) }
}

fn draw_chain(dice: &Dice) -> Value {
    let (mut tools, mut previous, mut sleeps) = (Vec::new(), None, Vec::new());
    for index in 0..3 + dice.draw_below(4) {
        let step = draw_step(dice, index, index + 1, previous.as_deref(), &json!(sleeps));
        previous = Some(step["id"].as_str().unwrap().to_owned());
        tools.push(step);
        sleeps.clear();
        if dice.happens(250) {
            let id = format!("rest-{index}");
            let ms = 1 + dice.draw_below(300);
            let sleep = json!({ "id": id, "name": "flow.sleep", "parameters": { "ms": ms },
                "dependsOn": previous });
            tools.push(sleep);
            sleeps.push(id);
        }
    }
    json!(tools)
}

fn draw_fan(dice: &Dice) -> Value {
    let root = draw_step(dice, 0, 1, None, &Value::Null);
    let id = root["id"].as_str().unwrap().to_owned();
    let mut tools = vec![root];
    for index in 1..3 + dice.draw_below(5) {
        tools.push(draw_step(dice, index, 2, Some(&id), &Value::Null));
    }
    let leaves: Vec<Value> = tools[1..].iter().map(|tool| tool["id"].clone()).collect();
    tools.push(draw_step(dice, 100, 3, leaves[0].as_str(), &json!(leaves)));
    json!(tools)
}

/// Draws a step that must return `expected`, which is one more than the output of the step
/// `previous`.
fn draw_step(
    dice: &Dice,
    index: u64,
    expected: u64,
    previous: Option<&str>,
    depends_on: &Value,
) -> Value {
    let tool = ["once", "once", "idempotent", "read"][usize::try_from(dice.draw_below(4)).unwrap()];
    let n = previous.map_or(json!(0), |name| json!(format!("{{{{{name}.n}}}}")));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let seconds = dice.draw_below(60) as f64 / 1_000.0;
    let mut step = json!({
        "id": format!("{tool}-{index}-{expected}"),
        "name": format!("ledger.{tool}"),
        "parameters": { "n": n, "seconds": seconds },
        "dependsOn": depends_on,
        "onError": if dice.happens(700) { "continue" } else { "fail" },
    });
    if dice.happens(300) {
        // Retries must not repeat a step whose outcome is unknown.
        step["retry"] = json!({ "maxAttempts": 3, "backoffMs": 1 });
    }
    step
}
