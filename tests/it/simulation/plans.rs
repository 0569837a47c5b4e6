//! Random plans and options.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    execution::{ExecutionMode, ExecutionOptions},
    plan::{About, OnError, Plan, RetryPolicy, StepPolicy, UncheckedPlan, UncheckedStep},
    tool::Effect,
};
use tests::faulty::Dice;

/// Returns a plan of a few steps, the `n`th of its world.
pub(super) fn random(dice: &Dice, n: usize) -> Plan {
    let steps = (0..=dice.below(8)).map(|it| step(dice, it)).collect();
    let about = About {
        id: format!("plan_{}_simulated", n + 1).parse().expect("well-formed"),
        request: format!("req_{}_simulated", n + 1).parse().expect("well-formed"),
        version: 1,
        query: "survive".to_owned(),
        planner: "explicit".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    let plan = UncheckedPlan { about, steps, diagnostics: Vec::new() };
    plan.try_into().expect("steps depend on earlier ones")
}

fn step(dice: &Dice, n: u64) -> UncheckedStep {
    let after: Vec<u64> = (0..n).filter(|_| dice.happens(300)).collect();
    let outputs: Vec<String> = after.iter().map(|it| format!("{{{{s{it}}}}}")).collect();
    let (tool, effect, parameters) = call(dice, n, &outputs);
    let policy = StepPolicy {
        effect,
        timeout_ms: if tool == "flow.sleep" { 60_000 } else { 800 + dice.below(4_000) },
        retry: RetryPolicy {
            max_attempts: 1 + u32::try_from(dice.below(4)).unwrap_or(0),
            // Jitter is drawn from the execution's identifier, which the seed does not decide.
            jitter: false,
            ..RetryPolicy::default()
        },
        on_error: match dice.below(20) {
            0..7 => OnError::Fail,
            7..12 => OnError::Continue,
            12..17 => OnError::Ignore,
            _ => OnError::Wait,
        },
        requires_approval: dice.happens(80),
        ..StepPolicy::default()
    };
    UncheckedStep {
        id: format!("s{n}").parse().expect("well-formed"),
        tool: tool.parse().expect("well-formed"),
        parameters: Arc::new(parameters),
        depends_on: after.iter().map(|it| format!("s{it}").parse().expect("well-formed")).collect(),
        output_mapping: Vec::new(),
        policy,
        plan: None,
        when: None,
        for_each: None,
        compensate: None,
    }
}

fn call(dice: &Dice, n: u64, outputs: &[String]) -> (&'static str, Effect, Value) {
    let inputs = json!({ "inputs": outputs });
    match dice.below(20) {
        0..2 => ("flow.sleep", Effect::Read, json!({ "ms": dice.below(3_000) })),
        2..4 => ("flow.wait", Effect::Read, json!({ "name": format!("go{}", n % 2) })),
        4..9 => ("sim.read", Effect::Read, inputs),
        9..14 => ("sim.idempotent", Effect::Idempotent, inputs),
        _ => ("sim.once", Effect::Once, inputs),
    }
}

/// Returns how an execution is to be carried out.
pub(super) fn options(dice: &Dice, now: Timestamp) -> ExecutionOptions {
    let is_sequential = dice.happens(300);
    ExecutionOptions {
        mode: if is_sequential { ExecutionMode::Sequential } else { ExecutionMode::Parallel },
        max_parallel: Some(1 + u32::try_from(dice.below(4)).unwrap_or(0)),
        deadline_ms: dice.happens(120).then(|| 3_000 + dice.below(30_000)),
        start_at: dice.happens(100).then(|| now + TimeDelta::milliseconds(4_000)),
        ..ExecutionOptions::default()
    }
}
