//! Automatic replans without a model: detours around tools that read and fail.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use executor::options::Options;
use serde_json::{Value, json};
use shared::{
    execution::{ExecutionOptions, ExecutionState, ReplanOptions},
    store::memory::Memory,
    tool::{Effect, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext, ToolSet};

use super::super::*;
use crate::{Order, embedded::Embedded};

/// Time limit of every wait, for busy machines.
const LONG: Duration = Duration::from_mins(1);
const QUERY: &str = "Refund the payment of order A-1020";

/// The names of the tools that were called, in order.
type Calls = Arc<Mutex<Vec<String>>>;

#[derive(Debug)]
struct Link {
    definition: Arc<ToolDefinition>,
    error: Option<ToolError>,
    calls: Calls,
}

#[async_trait]
impl Tool for Link {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, _: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> {
        self.calls.lock().unwrap().push(self.definition.name.to_string());
        match &self.error {
            Some(err) => Err(err.clone()),
            None => Ok(json!({ "payment_id": "P-7", "refund_id": "R-1", "payment_state": "paid" })),
        }
    }
}

struct Shop {
    faber: Embedded,
    calls: Calls,
}

impl Shop {
    /// Opens a shop in which these tools fail.
    async fn open(failing: &[(&str, ToolError)]) -> Self {
        let calls = Calls::default();
        let tool = |name: &str, effect, input: &str, output: &str| {
            let text = json!({ "type": "string" });
            let definition = ToolDefinition {
                name: name.parse().unwrap(),
                set: "shop".parse().unwrap(),
                description: name.replace('_', " "),
                input_schema: json!({ "type": "object", "properties": { input: text }, "required": [input] }),
                output_schema: Some(json!({ "type": "object", "properties": { output: text } })),
                effect,
                examples: Vec::new(),
                is_callable: true,
            };
            let error = failing.iter().find(|(own, _)| *own == name).map(|(_, err)| err.clone());
            let (definition, calls) = (Arc::new(definition), Arc::clone(&calls));
            Arc::new(Link { definition, error, calls }) as Arc<dyn Tool>
        };
        let set = ToolSet::ready(
            "shop".parse().unwrap(),
            "local",
            "",
            [
                tool("find_order", Effect::Read, "order_id", "payment_id"),
                tool("get_order", Effect::Read, "order_id", "payment_id"),
                tool("refund_payment", Effect::Once, "payment_id", "refund_id"),
                tool("check_refund", Effect::Read, "refund_id", "refund_state"),
            ],
        );
        let store = Arc::new(Memory::new());
        let faber = Embedded::open_over(store, [set], Options::default()).await.unwrap();
        Self { faber, calls }
    }

    /// Runs the query, approves its acting step, and follows the replans to the last execution.
    async fn run(&self, times: u32) -> Arc<Execution> {
        let options =
            ExecutionOptions { replans: ReplanOptions::times(times), ..ExecutionOptions::default() };
        let order = Order { options, ..Order::default() };
        let engine = self.faber.engine();
        let planning = PlanningOptions::default();
        let id = engine.executions.plan_and_start(QUERY, &planning, order).await.unwrap();
        tokio::time::timeout(LONG, self.last_of(id)).await.expect("it ends")
    }

    async fn last_of(&self, id: ExecutionId) -> Arc<Execution> {
        let executions = &self.faber.engine().executions;
        let mut id = id;
        loop {
            let now = self.faber_state(id).await;
            match executions.reader.replanning(&now).await.unwrap() {
                Some(Replanning { stage: Stage::Begun, .. }) => id = next_execution(&now),
                Some(Replanning { stage: Stage::Pending, .. }) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return now,
            }
        }
    }

    /// Waits until an execution is finished, or waits for a person.
    async fn faber_state(&self, id: ExecutionId) -> Arc<Execution> {
        loop {
            let now = self.faber.engine().executions.reader.load(id).await.unwrap().map(Arc::new);
            let is_still = |now: &Arc<Execution>| {
                now.state().is_finished() || now.state() == ExecutionState::Waiting
            };
            if let Some(now) = now.filter(is_still) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

fn gone() -> ToolError {
    ToolError::failed("410 Gone").without_retry()
}
