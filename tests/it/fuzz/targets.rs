//! The targets. Each one panics if its property does not hold.

use std::sync::Arc;

use planner::calls::{KnownTool, Parameter, read_tool_calls};
use serde_json::{Map, Value, json};
use shared::{
    condition::{Condition, Expression},
    event,
    id::{Seq, StepNumber},
    json::json_size,
    limits,
    plan::Plan,
    template::{LookUpValues, Path, ResolveNames, Target, Template, has_braces},
};

/// The names of a plan with the steps `a` and `flow.echo`. The second one has no id.
struct Names;

impl ResolveNames for Names {
    fn find_step(&self, name: &str) -> Option<StepNumber> {
        ["a", "flow.echo"].iter().position(|step| *step == name).map(StepNumber::new)
    }

    fn find_tool_step(&self, name: &str) -> Option<StepNumber> {
        (name == "shop.order").then(|| StepNumber::new(1))
    }
}

struct Outputs(Vec<Value>);

impl Outputs {
    fn new() -> Self {
        let first = json!({ "ok": true, "x": [1, "y", null, 2.5], "0": "z", "text": "aaa" });
        Self(vec![first, json!([[], {}, "{{a}}", -1])])
    }
}

impl LookUpValues for Outputs {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(step) => self.0.get(step.get()),
            _ => None,
        }
    }
}

struct NoOutputs;

impl LookUpValues for NoOutputs {
    fn find_value(&self, _: &Target) -> Option<&Value> {
        None
    }
}

fn to_text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// A value without braces is its own template. A path that is printed and parsed again finds the
/// same value. Inserted values are within their limit, and are not read as templates.
pub(super) fn check_templates(data: &[u8]) {
    let text = to_text(data);
    let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
    let template = match Template::parse(&value, &Names) {
        Ok(template) => template,
        Err(errors) => {
            assert!(!errors.is_empty() && errors.iter().all(|error| !error.to_string().is_empty()));
            return;
        }
    };
    let unfilled = template.render(&NoOutputs, limits::OUTPUT_BYTES).unwrap();
    if !has_braces(&value) {
        assert_eq!(unfilled.value, value);
        assert_eq!(unfilled.unresolved.len(), 0);
    }
    let outputs = Outputs::new();
    template.visit_references(&mut |reference| {
        let printed = reference.path.to_string();
        let parsed = Path::parse(&printed).unwrap_or_else(|err| panic!("{printed}: {err}"));
        assert_eq!(parsed.to_string(), printed);
        for output in &outputs.0 {
            assert_eq!(parsed.find(output), reference.path.find(output), "{printed}");
        }
    });
    let most = 64;
    if let Ok(filled) = template.render(&outputs, most) {
        // Text in a string can need six bytes for each character, such as `\u0000`.
        assert!(json_size(&filled.value) <= json_size(&value) + 6 * most);
    }
}

/// A condition gives the same result or the same message each time. The result of an expression is
/// within its limit.
pub(super) fn check_expressions(data: &[u8]) {
    let text = to_text(data);
    match Condition::parse(&text, &Names) {
        Ok(condition) => {
            assert_eq!(condition.source(), text);
            let evaluate = || condition.evaluate(&Outputs::new(), &json!({ "n": 1 }));
            let result = evaluate();
            assert_eq!(result, evaluate());
            assert!(result.is_ok() || result.is_err_and(|message| !message.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let values = Map::from_iter([
        ("a".to_owned(), json!([1, 2, "x", { "b": null }])),
        ("vars".to_owned(), json!({ "x": "aaa" })),
    ]);
    match Expression::parse(&text, &|name| values.contains_key(name)) {
        Ok(expression) => match expression.evaluate(&values) {
            Ok(result) => assert!(json_size(&result) <= limits::OUTPUT_BYTES),
            Err(message) => assert!(!message.is_empty()),
        },
        Err(error) => assert!(!error.kind.to_string().is_empty()),
    }
}

/// A stored plan that can be read is written and read again without a change.
pub(super) fn check_plan_json(data: &[u8]) {
    let text = to_text(data);
    match Plan::from_json(&text) {
        Ok(plan) => {
            let written = plan.to_json();
            let again = Plan::from_json(&written).unwrap_or_else(|err| panic!("{err}: {written}"));
            assert_eq!(again.to_unchecked(), plan.to_unchecked());
            assert_eq!(again.to_json(), written);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A YAML document that can be read and written is read again without a change.
pub(super) fn check_plan_yaml(data: &[u8]) {
    match engine::yaml::parse(&to_text(data)) {
        Ok(value) => {
            if let Ok(written) = engine::yaml::format(&value) {
                assert_eq!(engine::yaml::parse(&written), Ok(value), "{written}");
            }
        }
        Err(message) => assert!(!message.is_empty()),
    }
}

/// Calls are within their limit, name known tools, and are read again from their JSON form.
pub(super) fn check_tool_calls(data: &[u8]) {
    let text = to_text(data);
    let parameters =
        ["name", "n"].map(|name| Parameter { name: name.to_owned(), is_text: name == "name" });
    let name = "shop.order".parse().unwrap();
    let tool = Arc::new(KnownTool { name, parameters: parameters.into() });
    let find_tool = |name: &str| (name == "shop.order").then(|| Arc::clone(&tool));
    let read = match read_tool_calls(&text, &find_tool) {
        Ok(read) => read,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(read.calls.len() <= limits::REPLY_CALLS);
    for call in read.calls {
        assert_eq!(call.tool, tool.name);
        let written = json!({ "tool": call.tool, "args": call.args }).to_string();
        let again = read_tool_calls(&written, &find_tool).unwrap();
        assert_eq!(again.calls.len(), 1, "{written}");
        assert_eq!(again.calls[0].args, call.args, "{written}");
    }
}

/// Events that can be read are written and read again without a change.
pub(super) fn check_event_decoding(data: &[u8]) {
    let text = to_text(data);
    match event::decode_events(Seq(1), &text) {
        Ok(events) => {
            let written = event::encode_events(&events);
            let again = event::decode_events(Seq(1), &written);
            let again = again.unwrap_or_else(|err| panic!("{err}: {written}"));
            assert_eq!(again, events, "{written}");
            assert_eq!(event::encode_events(&again), written);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A message of a server that was read twice is written and read again without a change. The second
/// reading can change the error of an invalid answer, because its code belongs to this client, and
/// no server may send it.
pub(super) fn check_mcp_frames(data: &[u8]) {
    let Some(first) = mcp::message_as_json(data) else { return };
    let Some(second) = mcp::message_as_json(first.to_string().as_bytes()) else { return };
    let written = second.to_string();
    assert_eq!(mcp::message_as_json(written.as_bytes()), Some(second), "{written}");
}
