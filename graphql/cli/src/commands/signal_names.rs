//! A hint about a signal that no step of the plan waits for.

use client::failure::Failure;
use serde::Deserialize;
use serde_json::Value;
use shared::id::ExecutionId;

use crate::session::Session;

const WAIT_TOOL: &str = "flow.wait";

#[derive(Debug, Deserialize)]
struct WrittenPlan {
    tools: Vec<WrittenStep>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenStep {
    tool_name: String,
    parameters: Value,
}

/// Tells the user if no step of the plan waits for the signal. The signal is kept nevertheless,
/// because it may arrive before the step.
pub(super) async fn warn_of_unknown_name(
    session: &Session<'_>,
    id: ExecutionId,
    name: &str,
) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct WithPlan {
        plan: WrittenPlan,
    }
    let fields = "plan { tools { toolName parameters } }";
    let WithPlan { plan } = session.client.query_execution(id, fields).await?;
    if let Some(hint) = describe_unknown_name(&plan.tools, name) {
        session.screen.say(&session.screen.err.yellow(hint));
    }
    Ok(())
}

/// Returns `None` if a step waits for the signal, or if a template makes the name of a signal.
fn describe_unknown_name(steps: &[WrittenStep], name: &str) -> Option<String> {
    let waits = steps.iter().filter(|step| step.tool_name == WAIT_TOOL);
    let names: Option<Vec<&str>> = waits.map(|step| step.parameters["name"].as_str()).collect();
    let mut names = names.filter(|names| !names.iter().any(|name| name.contains("{{")))?;
    if names.contains(&name) {
        return None;
    }
    names.sort_unstable();
    names.dedup();
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    let known = match &names[..] {
        [] => "no step waits for a signal".to_owned(),
        names => format!("the steps wait for {}", names.join(", ")),
    };
    Some(format!("warning: no step waits for the signal `{name}`, so it has no effect: {known}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_name_lists_the_signals_of_the_plan() {
        let describe = |steps: Value| {
            let steps: Vec<WrittenStep> = serde_json::from_value(steps).unwrap();
            describe_unknown_name(&steps, "paymnt")
        };
        let wait = |name: &str| json!({ "toolName": "flow.wait", "parameters": { "name": name } });
        let noop = json!({ "toolName": "flow.noop", "parameters": {} });
        let unknown = "warning: no step waits for the signal `paymnt`, so it has no effect: ";
        assert_eq!(
            describe(json!([wait("payment"), noop, wait("payment"), wait("go")])),
            Some(format!("{unknown}the steps wait for `go`, `payment`"))
        );
        assert_eq!(describe(json!([noop])), Some(format!("{unknown}no step waits for a signal")));
        assert_eq!(describe(json!([wait("paymnt")])), None);
        assert_eq!(describe(json!([wait("{{input.name}}")])), None);
        let value = json!({ "toolName": "flow.wait", "parameters": { "name": { "$t": 1 } } });
        assert_eq!(describe(json!([value])), None);
    }
}
