//! A ledger of the tool calls that really happened. When a tool is called, the ledger checks that
//! the log of the execution allows the call.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{
    event::{Event, RecordedEvent},
    id::{Attempt, ExecutionId, Part, StepId},
    tool::{Effect, ErrorCode, Progress, ToolDefinition, ToolError},
};
use tokio::time;
use toolbox::{StepCall, Tool, ToolContext, ToolSet, Toolbox, flow};

use crate::world::World;

/// Longest duration of a simulated call that ends by itself, in milliseconds.
const MAX_WORK_MS: u64 = 1_200;
/// The lists that a simulated tool returns are shorter than this.
const LIST_LEN_END: u64 = 7;

#[derive(Debug)]
pub struct Ledger {
    world: Arc<World>,
    calls: Mutex<BTreeMap<(ExecutionId, StepId, Part), StepCalls>>,
}

#[derive(Debug, Default)]
struct StepCalls {
    attempts: BTreeSet<Attempt>,
    key: Option<String>,
}

impl Ledger {
    pub fn new(world: Arc<World>) -> Arc<Self> {
        Arc::new(Self { world, calls: Mutex::default() })
    }

    pub fn make_toolbox(self: &Arc<Self>) -> Toolbox {
        let effects = [
            ("read", Effect::Read),
            ("idempotent", Effect::Idempotent),
            ("once", Effect::Once),
            ("limited", Effect::Idempotent),
        ];
        let tools = effects.map(|(name, effect)| self.make_tool(name, effect));
        let name = "sim".parse().expect("a literal");
        Toolbox::new([ToolSet::ready(name, "sim", "Simulated work.", tools), flow::flow()])
    }

    fn make_tool(self: &Arc<Self>, name: &str, effect: Effect) -> Arc<dyn Tool> {
        let definition = ToolDefinition {
            name: name.parse().expect("a literal"),
            set: "sim".parse().expect("a literal"),
            description: String::new(),
            input_schema: json!({}),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        };
        Arc::new(SimulatedTool { ledger: Arc::clone(self), definition: Arc::new(definition) })
    }

    async fn record_call(&self, call: &StepCall, effect: Effect, key: Option<String>) {
        let log = self.world.read_log(call.execution).await;
        let mut all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = all.entry((call.execution, call.step.clone(), call.part)).or_default();
        let attempts_without_call = attempts_without_call(&log, call);
        let is_first = calls.attempts.is_empty();
        let is_new = calls.attempts.insert(call.attempt);
        let wrong = |description: &str| {
            let StepCall { step, part, attempt, .. } = call;
            self.world.add_violation(format!(
                "`{step}` {part:?}, attempt {attempt} ({effect:?}): {description}"
            ));
        };
        if calls.key.get_or_insert_with(|| key.clone().unwrap_or_default())
            != &key.unwrap_or_default()
        {
            wrong("called under another key");
        }
        if !attempts_without_call.is_disjoint(&calls.attempts) {
            wrong("an attempt was called although the log says that it was not");
        }
        if effect == Effect::Read {
            return;
        }
        if !is_new {
            wrong("called twice");
        }
        let Some(index) = log.iter().position(|recorded| is_start(recorded, call)) else {
            return wrong("called before the log durably said so");
        };
        if effect == Effect::Once {
            use shared::clock::Clock as _;
            // With wrong clocks, a worker can seem lost although it lives. Its call then gets an
            // unknown outcome, but remains the only call.
            let is_takeover = |recorded: &RecordedEvent| matches!(&recorded.event, Event::Claimed(claim) if !claim.renewed);
            let is_taken = log[index..].iter().any(is_takeover);
            if is_taken && !self.world.is_skewed() {
                let now = self.world.clock.now();
                wrong(&format!("at {now} called by a worker that others had given up"));
            }
            if !is_first && !allows_another_call(&log[..index], call, &attempts_without_call) {
                wrong("called again on a guess");
            }
        }
    }
}

fn is_start(recorded: &RecordedEvent, call: &StepCall) -> bool {
    matches!(&recorded.event, Event::StepStarted(started)
        if started.step == call.step && started.part == call.part && started.attempt == call.attempt)
}

/// Returns the attempts that, according to the log, called no tool because the tool had
/// disappeared.
fn attempts_without_call(log: &[RecordedEvent], call: &StepCall) -> BTreeSet<Attempt> {
    let attempts_without_call = log.iter().filter_map(|recorded| match &recorded.event {
        Event::StepInterrupted { step, part, attempt, error: Some(_) } => {
            (*step == call.step && *part == call.part).then_some(*attempt)
        }
        _ => None,
    });
    attempts_without_call.collect()
}

/// Returns `true` if the last attempt that called the tool certainly failed, or if a person decided
/// to repeat the call. Only then is a `once` step called again.
fn allows_another_call(
    log: &[RecordedEvent],
    call: &StepCall,
    attempts_without_call: &BTreeSet<Attempt>,
) -> bool {
    let is_of = |event: &&Event| {
        event.step() == Some(&call.step)
            && event.part() == call.part
            && !event.attempt().is_some_and(|attempt| attempts_without_call.contains(&attempt))
    };
    let last = log.iter().rev().map(|recorded| &recorded.event).find(is_of);
    match last {
        Some(Event::StepRetryScheduled { error, .. }) => error.is_definite,
        Some(Event::StepApproved { .. }) => true,
        _ => false,
    }
}

/// A tool that takes a random time and sometimes fails.
#[derive(Debug)]
struct SimulatedTool {
    ledger: Arc<Ledger>,
    definition: Arc<ToolDefinition>,
}

#[async_trait]
impl Tool for SimulatedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, _parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let call = cx.call.clone().expect("only steps call the tool");
        let key = cx.idempotency_key();
        self.ledger.record_call(&call, self.definition.effect, key).await;
        let world = &self.ledger.world;
        let output = json!({ "step": call.step, "part": call.part, "attempt": call.attempt });
        if world.has_stopped_faults() {
            return Ok(with_list(output, 2));
        }
        let output = with_list(output, world.dice.draw_below(LIST_LEN_END));
        if world.dice.happens(100) {
            cx.progress(Progress { progress: 1.0, total: None, message: None });
        }
        let fate = world.dice.draw_below(100);
        if fate >= 30 {
            let work = Duration::from_millis(world.dice.draw_below(MAX_WORK_MS));
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return Err(cancelled_error()),
                () = time::sleep(work) => (),
            }
        }
        match fate {
            10..15 | 30..35 => Err(ToolError::failed("simulated")),
            15..18 | 35..38 => {
                Err(ToolError::new(ErrorCode::UNAVAILABLE, "simulated").with_unknown_outcome())
            }
            18..20 | 38..40 => Err(ToolError::failed("simulated").without_retry()),
            40..43 => {
                cx.cancel.cancelled().await;
                Err(cancelled_error())
            }
            43..45 => std::future::pending().await,
            _ => Ok(output),
        }
    }
}

/// Adds a list that later steps can loop over.
fn with_list(mut output: Value, len: u64) -> Value {
    output["list"] = (0..len).map(Value::from).collect();
    output
}

fn cancelled_error() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "stopped")
}
