//! Automatic replans without a model. A detour replaces a failed call of a `READ` tool by calls of
//! other tools.

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
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext, ToolSet};

use super::super::*;
use crate::{
    Order,
    access::{Access, Role, Token},
    embedded::Embedded,
};

const WAIT_LIMIT: Duration = Duration::from_mins(1);
const REFUND: &str = "Find order A-1020, then refund its payment";
const READ: &str = "Get order A-1020";

type Calls = Arc<Mutex<Vec<String>>>;

#[derive(Debug)]
struct ShopTool {
    definition: Arc<ToolDefinition>,
    error: Option<ToolError>,
    calls: Calls,
}

#[async_trait]
impl Tool for ShopTool {
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
            Arc::new(ShopTool { definition, error, calls }) as Arc<dyn Tool>
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

    async fn run(&self, query: &str, times: u32) -> Arc<Execution> {
        let engine = self.faber.engine();
        let planning = PlanningOptions::default();
        let id = engine.executions.plan_and_start(query, &planning, order(times)).await.unwrap();
        tokio::time::timeout(WAIT_LIMIT, self.last_of(id)).await.expect("it ends")
    }

    async fn last_of(&self, id: ExecutionId) -> Arc<Execution> {
        let executions = &self.faber.engine().executions;
        let mut id = id;
        loop {
            let now = self.wait_until_settled(id).await;
            match executions.reader.load_replanning(&now).await.unwrap() {
                Some(Replanning { stage: Stage::Begun, .. }) => id = next_execution(&now),
                Some(Replanning { stage: Stage::Pending, .. }) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return now,
            }
        }
    }

    async fn wait_until_settled(&self, id: ExecutionId) -> Arc<Execution> {
        loop {
            let now = self.faber.engine().executions.reader.load(id).await.unwrap().map(Arc::new);
            let is_settled = |now: &Arc<Execution>| {
                now.state().is_finished() || now.state() == ExecutionState::Waiting
            };
            if let Some(now) = now.filter(is_settled) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

fn order(times: u32) -> Order {
    let options =
        ExecutionOptions { replans: ReplanOptions::times(times), ..ExecutionOptions::default() };
    Order { options, ..Order::default() }
}

fn gone_error() -> ToolError {
    ToolError::failed("410 Gone").without_retry()
}

#[tokio::test]
async fn a_tool_that_is_gone_is_replaced_without_a_model() {
    let shop = Shop::open(&[("get_order", gone_error())]).await;
    let last = shop.run(READ, 3).await;
    assert_eq!(last.state(), ExecutionState::Completed);
    assert_eq!(shop.calls(), ["get_order", "find_order"]);
    assert_eq!((last.plan().info().version, last.plan().info().planner.as_str()), (2, "offline"));
    shop.faber.close().await;
}

#[tokio::test]
async fn replans_without_a_model_are_used_up() {
    let shop = Shop::open(&[("get_order", gone_error()), ("find_order", gone_error())]).await;
    let last = shop.run(READ, 3).await;
    assert_eq!(last.state(), ExecutionState::Failed);
    assert_eq!(shop.calls(), ["get_order", "find_order"], "no tool is called twice");
    shop.faber.close().await;
}

#[tokio::test]
async fn a_failure_that_may_pass_causes_no_detour() {
    let timeout = ToolError::new(ErrorCode::TIMEOUT, "too slow");
    for err in [ToolError::failed("busy"), timeout] {
        let shop = Shop::open(&[("get_order", err)]).await;
        let last = shop.run(READ, 3).await;
        assert_eq!(last.state(), ExecutionState::Failed);
        let calls: BTreeSet<String> = shop.calls().into_iter().collect();
        assert_eq!(calls, BTreeSet::from(["get_order".to_owned()]));
        shop.faber.close().await;
    }
}

/// After the detour, only `get_order` returns the payment of an order, so the planner does not
/// guess the payment.
#[tokio::test]
async fn an_acting_call_after_a_detour_is_made_once() {
    let shop = Shop::open(&[("find_order", gone_error())]).await;
    let last = shop.run(REFUND, 3).await;
    assert_eq!(last.state(), ExecutionState::Completed);
    assert_eq!(last.plan().info().version, 2);
    assert_eq!(shop.calls(), ["find_order", "get_order", "refund_payment"]);
    shop.faber.close().await;
}

#[tokio::test]
async fn no_detour_leads_around_an_acting_call() {
    for err in [gone_error(), gone_error().with_unknown_outcome()] {
        let shop = Shop::open(&[("refund_payment", err)]).await;
        let last = shop.run(REFUND, 3).await;
        assert_ne!(last.state(), ExecutionState::Completed);
        assert_eq!(last.plan().info().version, 1);
        let acted = shop.calls().into_iter().filter(|name| name == "refund_payment").count();
        assert_eq!(acted, 1);
        shop.faber.close().await;
    }
}

#[tokio::test]
async fn a_detour_has_only_the_tools_of_the_caller() {
    let shop = Shop::open(&[("get_order", gone_error())]).await;
    let mut token = Token::new("ci", "a secret that is hard to guess", Role::Operator);
    token.tools = Some(vec!["shop.get_order".parse().unwrap()]);
    let access = Access::new([token]);
    let engine = shop.faber.engine().with_grant(access.find_grant_by_name("ci").unwrap());
    let planning = PlanningOptions::default();
    let id = engine.executions.plan_and_start(READ, &planning, order(3)).await.unwrap();
    let last = tokio::time::timeout(WAIT_LIMIT, shop.last_of(id)).await.unwrap();
    assert_eq!(last.state(), ExecutionState::Failed);
    assert_eq!(shop.calls(), ["get_order"]);
    shop.faber.close().await;
}

/// Without a model, Faber does not know the purpose of a plan that a person wrote, so it finds no
/// detour.
#[tokio::test]
async fn a_written_plan_has_no_detour() {
    let shop = Shop::open(&[]).await;
    let plan =
        json!({ "tools": [{ "name": "shop.get_order", "parameters": { "order_id": "A-1" } }] });
    let plan = shop.faber.plan(plan).await.unwrap().id();
    let refused = shop.faber.engine().executions.start_plan(plan, order(1)).await.unwrap_err();
    assert_eq!(refused.code(), "PLANNER_UNAVAILABLE");
    shop.faber.close().await;
}
