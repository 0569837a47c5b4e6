use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    execution::{ExecutionMode, ExecutionOptions},
    id::PlanId,
    plan::{
        OnError, Plan, PlanInfo, RetryPolicy, StepPolicy, UncheckedCompensation, UncheckedPlan,
        UncheckedStep,
    },
    tool::Effect,
};
use tests::faulty::Dice;

pub(super) fn draw_plans(dice: &Dice, n: usize) -> Vec<Plan> {
    let leaf = draw_plan(dice, n, 1, dice.draw_below(3), &[]);
    let middle = draw_plan(dice, n, 2, dice.draw_below(3), &[leaf.id()]);
    let sub_plans = if dice.happens(400) { vec![leaf.id(), middle.id()] } else { Vec::new() };
    let top = draw_plan(dice, n, 3, dice.draw_below(8), &sub_plans);
    if sub_plans.is_empty() { vec![top] } else { vec![leaf, middle, top] }
}

fn draw_plan(dice: &Dice, n: usize, version: u32, max_steps: u64, sub_plans: &[PlanId]) -> Plan {
    let steps = (0..=max_steps).map(|number| draw_step(dice, number, sub_plans)).collect();
    let about = PlanInfo {
        id: format!("plan_{}_simulate{version}", n + 1).parse().expect("well-formed"),
        request: format!("req_{}_simulated", n + 1).parse().expect("well-formed"),
        version,
        query: "survive".to_owned(),
        planner: "explicit".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    let plan = UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() };
    plan.try_into().expect("steps depend on earlier steps")
}

fn draw_step(dice: &Dice, n: u64, sub_plans: &[PlanId]) -> UncheckedStep {
    let after: Vec<u64> = (0..n).filter(|_| dice.happens(300)).collect();
    let outputs: Vec<String> = after.iter().map(|number| format!("{{{{s{number}}}}}")).collect();
    let is_sub_plan = !sub_plans.is_empty() && dice.happens(300);
    let (tool, effect, parameters) = if is_sub_plan {
        ("sim.part", Effect::Once, json!({ "x": n }))
    } else {
        draw_call(dice, n, &outputs)
    };
    let policy = StepPolicy {
        effect,
        timeout_ms: draw_timeout(dice, tool, is_sub_plan),
        retry: draw_retry(dice),
        on_error: match dice.draw_below(20) {
            0..7 => OnError::Fail,
            7..12 => OnError::Continue,
            12..17 => OnError::Ignore,
            _ => OnError::Wait,
        },
        requires_approval: dice.happens(80),
        cache_ttl_ms: (effect == Effect::Read && dice.happens(200)).then_some(5_000),
        max_parallel: dice.happens(500).then(|| 1 + u32::try_from(dice.draw_below(3)).unwrap_or(0)),
        ..StepPolicy::default()
    };
    UncheckedStep {
        id: format!("s{n}").parse().expect("well-formed"),
        tool: tool.parse().expect("well-formed"),
        parameters: Arc::new(parameters),
        depends_on: after
            .iter()
            .map(|number| format!("s{number}").parse().expect("well-formed"))
            .collect(),
        output_mapping: Vec::new(),
        policy,
        plan: is_sub_plan.then(|| sub_plans[dice.draw_index(sub_plans.len())]),
        inputs: None,
        when: dice.happens(150).then(|| draw_condition(dice, after.last().copied())),
        for_each: dice.happens(200).then(|| match after.last() {
            Some(number) => format!("{{{{s{number}.list}}}}"),
            None => "{{input.list}}".to_owned(),
        }),
        compensate: dice.happens(300).then(|| Box::new(draw_compensation(dice, n))),
    }
}

/// Returns the timeout of a step. Most signal waits keep the default.
fn draw_timeout(dice: &Dice, tool: &str, is_sub_plan: bool) -> u64 {
    match tool {
        _ if is_sub_plan => 60_000,
        "flow.sleep" => 60_000,
        "flow.wait" if dice.happens(700) => StepPolicy::default().timeout_ms,
        _ => 800 + dice.draw_below(4_000),
    }
}

fn draw_retry(dice: &Dice) -> RetryPolicy {
    let max_attempts = 1 + u32::try_from(dice.draw_below(4)).unwrap_or(0);
    RetryPolicy { max_attempts, ..RetryPolicy::default() }
}

fn draw_condition(dice: &Dice, on: Option<u64>) -> String {
    match (dice.draw_below(5), on) {
        (0, _) => "false".to_owned(),
        (1, Some(on)) => format!("s{on} != null"),
        (2, Some(on)) => format!("s{on}.list.size() > 2"),
        (3, Some(on)) => format!("s{on} == null || s{on}.attempt > 1"),
        _ => "input.list.size() > 1".to_owned(),
    }
}

fn draw_compensation(dice: &Dice, n: u64) -> UncheckedCompensation {
    let of = json!({ "of": format!("{{{{s{n}}}}}") });
    let (tool, effect, parameters) = match dice.draw_below(10) {
        0 => ("flow.sleep", Effect::Read, json!({ "ms": dice.draw_below(1_000) })),
        1..3 => ("sim.read", Effect::Read, of),
        3..6 => ("sim.idempotent", Effect::Idempotent, of),
        6..8 => ("sim.limited", Effect::Idempotent, of),
        _ => ("sim.once", Effect::Once, of),
    };
    let policy = StepPolicy {
        effect,
        timeout_ms: 800 + dice.draw_below(4_000),
        retry: draw_retry(dice),
        ..StepPolicy::default()
    };
    let tool = tool.parse().expect("well-formed");
    UncheckedCompensation { tool, parameters: Arc::new(parameters), policy }
}

fn draw_call(dice: &Dice, n: u64, outputs: &[String]) -> (&'static str, Effect, Value) {
    let inputs = json!({ "inputs": outputs });
    match dice.draw_below(22) {
        0..2 => ("flow.sleep", Effect::Read, json!({ "ms": dice.draw_below(3_000) })),
        2..4 => ("flow.wait", Effect::Read, json!({ "name": format!("go{}", n % 2) })),
        4..9 => ("sim.read", Effect::Read, inputs),
        9..14 => ("sim.idempotent", Effect::Idempotent, inputs),
        14..17 => ("sim.limited", Effect::Idempotent, inputs),
        _ => ("sim.once", Effect::Once, inputs),
    }
}

pub(super) fn draw_options(dice: &Dice, now: Timestamp) -> ExecutionOptions {
    let is_sequential = dice.happens(300);
    ExecutionOptions {
        mode: if is_sequential { ExecutionMode::Sequential } else { ExecutionMode::Parallel },
        max_parallel: Some(1 + u32::try_from(dice.draw_below(4)).unwrap_or(0)),
        deadline_ms: dice.happens(120).then(|| 3_000 + dice.draw_below(30_000)),
        compensate_on_failure: dice.happens(500),
        input: Arc::new(json!({ "list": vec![7; dice.draw_index(6)] })),
        start_at: dice.happens(100).then(|| now + TimeDelta::milliseconds(4_000)),
        ..ExecutionOptions::default()
    }
}
