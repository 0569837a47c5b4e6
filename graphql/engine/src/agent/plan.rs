use planner::draft::{Draft, DraftStep};
use serde_json::{Map, Value, json};
use shared::tool::Effect;
use toolbox::dispatch::{self, ToolReach};

use super::{ANSWER_TOOL, TURN_TOOL};
use crate::access::Limits;

/// For each effect, a name: the field of a turn's output that contains the calls with this effect,
/// and the prefix of the step that makes them.
pub(super) const NAMED_EFFECTS: [(&str, Effect); 3] =
    [("read", Effect::Read), ("repeat", Effect::Idempotent), ("call", Effect::Once)];
const TURN_TIMEOUT_MS: i64 = 30 * 60 * 1_000;

/// Returns the plan of an agent. `limits` are the limits of its caller's token.
pub(crate) fn draft_agent(query: &str, turns: u32, reach: &ToolReach, limits: Limits) -> Draft {
    let reach = serde_json::to_value(reach).unwrap_or_default();
    let mut tools = Vec::new();
    for turn in 1..=turns {
        let mut parameters = model_parameters(query, turns, turn - 1);
        parameters.insert("turn".to_owned(), json!(turn));
        parameters.insert("reach".to_owned(), reach.clone());
        if !limits.is_empty() {
            parameters.insert("limits".to_owned(), json!(limits));
        }
        tools.push(DraftStep {
            id: Some(format!("turn_{turn}")),
            name: Some(TURN_TOOL.to_owned()),
            parameters: Some(Value::Object(parameters)),
            when: (turn > 1).then(|| next_turn_condition(turn - 1)),
            timeout_ms: Some(TURN_TIMEOUT_MS),
            ..DraftStep::default()
        });
        tools
            .extend(NAMED_EFFECTS.map(|(name, effect)| make_call_step(turn, name, effect, &reach)));
    }
    tools.push(DraftStep {
        id: Some("answer".to_owned()),
        name: Some(ANSWER_TOOL.to_owned()),
        parameters: Some(Value::Object(model_parameters(query, turns, turns))),
        // Without a condition, the answer would be skipped if a turn was skipped.
        when: (turns > 0).then(|| "true".to_owned()),
        timeout_ms: Some(TURN_TIMEOUT_MS),
        ..DraftStep::default()
    });
    Draft { query: Some(query.to_owned()), tools, ..Draft::default() }
}

fn make_call_step(turn: u32, name: &str, effect: Effect, reach: &Value) -> DraftStep {
    DraftStep {
        id: Some(format!("{name}_{turn}")),
        name: Some(dispatch::dispatch_tool_name(effect).to_string()),
        parameters: Some(json!({
            "tool": "{{item.tool}}", "args": "{{item.args}}", "most": "{{item.most}}",
            "reach": reach,
        })),
        for_each: Some(format!("{{{{turn_{turn}.{name}}}}}")),
        when: Some(format!("turn_{turn} != null && size(turn_{turn}.{name}) > 0")),
        // A failure does not end the agent. The model sees a failed call, or a call with an unknown
        // outcome, as a result.
        on_error: Some("ignore".to_owned()),
        ..DraftStep::default()
    }
}

fn next_turn_condition(turn: u32) -> String {
    format!("turn_{turn} != null && turn_{turn}.more")
}

fn model_parameters(query: &str, of: u32, turns: u32) -> Map<String, Value> {
    let past = (1..=turns).map(|turn| {
        let mut past = Map::from_iter([("turn".to_owned(), json!(format!("{{{{turn_{turn}}}}}")))]);
        for (name, _) in NAMED_EFFECTS {
            past.insert(name.to_owned(), json!(format!("{{{{{name}_{turn}}}}}")));
        }
        Value::Object(past)
    });
    // Escapes braces of the query, so that they are not read as templates.
    let query = query.replace("{{", "{{{{");
    Map::from_iter([
        ("query".to_owned(), json!(query)),
        ("of".to_owned(), json!(of)),
        ("history".to_owned(), past.collect()),
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use planner::compile::compile;
    use shared::{
        clock::Timestamp,
        id::{PlanId, RequestId},
        plan::PlanInfo,
        store::Rate,
    };

    use super::*;
    use crate::agent::{self, tests::make_agent_context};

    #[test]
    fn an_agent_with_any_number_of_turns_compiles() {
        let tools = agent::tools(&make_agent_context(Vec::new()).0);
        let find = |name: &_| {
            tools.iter().find(|tool| tool.definition().qualified_name() == *name).map(Arc::clone)
        };
        let catalog = agent::catalog(find);
        for turns in [0, 1, 3, agent::MAX_TURNS] {
            let about = PlanInfo {
                id: PlanId::draw(Timestamp::UNIX_EPOCH),
                request: RequestId::draw(Timestamp::UNIX_EPOCH),
                version: 1,
                query: String::new(),
                planner: String::new(),
                created_at: Timestamp::UNIX_EPOCH,
            };
            let reach = ToolReach { sets: vec!["blog".parse().unwrap()], ..ToolReach::default() };
            let rate = Rate { calls: 7, per_ms: 60_000 };
            let limits = Limits { calls: Some(rate), per_tool: None };
            let draft = draft_agent("Say {{x}}", turns, &reach, limits);
            let plan = compile(&draft, about, &catalog).unwrap();
            assert_eq!(plan.steps().len(), turns as usize * 4 + 1);
            assert_eq!(plan.steps().last().unwrap().id.as_str(), "answer");
            let written = json!({ "calls": { "calls": 7, "perMs": 60_000 } });
            let limited = plan.steps().iter().filter(|step| step.tool.as_str() == TURN_TOOL);
            assert!(limited.clone().all(|step| step.parameters["limits"] == written));
            assert_eq!(limited.count(), turns as usize);
            assert!(agent::list_reaches(&plan).all(|found| found == reach));
            assert_eq!(agent::list_reaches(&plan).count(), turns as usize * 4);
        }
    }
}
