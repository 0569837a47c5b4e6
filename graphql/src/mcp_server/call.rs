//! A call of a tool: operations of the API, and waiting.

use std::{convert::Infallible, future, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Office,
    answer::{self, Answer, EXECUTION},
    arguments::{
        ApproveArguments, CancelArguments, DebugArguments, DraftArguments, ExecuteArguments,
        ListArguments, Mode, NoArguments, PlanArguments, RunArguments, SelectArguments,
        SettleArguments, SignalArguments, StatusArguments,
    },
    progress::Reports,
    wait::Wait,
};
use crate::cli::{
    client::{
        Argument, Client,
        types::{DIAGNOSTIC, ExecutionHead, Plan},
    },
    commands::{
        debug,
        plan::{create_plan, make_plan},
        run, steer,
    },
    drive::await_stop_command,
    failure::Failure,
    plan_file::{WrittenPlan, parse},
    without_nulls,
};

/// Default timeout of a call. Most clients give up after a minute.
const WAIT: Duration = Duration::from_secs(45);
/// The longest timeout of a call.
const LONGEST: Duration = Duration::from_hours(1);
/// Poll interval while a finished execution is replanned.
const LOOK: Duration = Duration::from_millis(250);
/// The most tools in a list.
const TOOLS: usize = 200;
/// The most saved plans in a list.
const SAVED: usize = 200;

/// One call of a tool.
pub(crate) struct Call<'a> {
    pub(crate) office: &'a Office,
    /// A client with the permissions of the caller.
    pub(crate) client: Client,
    pub(crate) reports: Reports,
    /// Cancelled when the caller leaves.
    pub(crate) left: CancellationToken,
}

impl Call<'_> {
    pub(crate) async fn make(
        &mut self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Answer, Failure> {
        match name {
            "plan" => self.plan(read(arguments)?).await,
            "validate" => self.validate(read(arguments)?).await,
            "create_plan" => self.create_plan(read(arguments)?).await,
            "execute" => self.execute(read(arguments)?).await,
            "run" => self.run(read(arguments)?).await,
            "status" => self.status(read(arguments)?).await,
            "debug" => self.debug(read(arguments)?).await,
            "cancel" => self.cancel(read(arguments)?).await,
            "approve" => self.approve(read(arguments)?).await,
            "settle" => self.settle(read(arguments)?).await,
            "signal" => self.signal(read(arguments)?).await,
            "list_tools" => self.list_tools(read(arguments)?).await,
            "select_tools" => self.select_tools(read(arguments)?).await,
            "saved_plans" => {
                let NoArguments {} = read(arguments)?;
                self.saved_plans().await
            }
            other => Err(Failure::not_found("tool", other)),
        }
    }

    async fn plan(&mut self, asked: PlanArguments) -> Result<Answer, Failure> {
        let PlanArguments { query, tool_sets, max_tools, planner } = asked;
        let options = planning_options(tool_sets.as_deref(), max_tools, planner.as_deref());
        let planned = make_plan(&self.client, &query, options, Plan::SHOWN);
        Ok(answer::plan(self.reports.during(planned).await?))
    }

    async fn validate(&self, asked: DraftArguments) -> Result<Answer, Failure> {
        let input = input(asked.plan)?.check(&self.client).await?;
        let fields = format!("plan {{ executionOrder layers }} diagnostics {{ {DIAGNOSTIC} }}");
        let arguments = [("input: PlanInput!", input)];
        let payload = self.client.query("validatePlan", &arguments, &fields).await?;
        Ok(answer::verdict(payload))
    }

    async fn create_plan(&self, asked: DraftArguments) -> Result<Answer, Failure> {
        Ok(answer::plan(create_plan(&self.client, input(asked.plan)?).await?))
    }

    async fn execute(&mut self, asked: ExecuteArguments) -> Result<Answer, Failure> {
        let options = without_nulls(json!({
            "mode": asked.mode.map(Mode::as_str),
            "dryRun": asked.dry_run.then_some(true),
            "idempotencyKey": asked.idempotency_key,
            "deadlineMs": asked.deadline_ms,
            "replans": asked.replans,
            "compensateOnFailure": asked.compensate_on_failure,
            "input": asked.input,
        }));
        let begun = match asked.id.split('_').next() {
            Some("plan") => {
                run::execute_plan(&self.client, &asked.id.as_str().into(), options).await
            }
            Some("req") => run::execute_request(&self.client, &asked.id, options).await,
            Some("exec") => steer::find_execution(&self.client, &asked.id).await,
            _ => run::run_saved(&self.client, &asked.id, options).await,
        };
        self.see_through(&begun?, asked.wait.then(|| patience(asked.timeout_ms))).await
    }

    async fn run(&mut self, asked: RunArguments) -> Result<Answer, Failure> {
        let planning =
            planning_options(asked.tool_sets.as_deref(), asked.max_tools, asked.planner.as_deref());
        let options = without_nulls(json!({
            "mode": asked.mode.map(Mode::as_str),
            "dryRun": asked.dry_run.then_some(true),
            "idempotencyKey": asked.idempotency_key,
            "deadlineMs": asked.deadline_ms,
            "replans": asked.replans,
            "compensateOnFailure": asked.compensate_on_failure,
        }));
        let begun = run::run_query(&self.client, &asked.query, planning, options);
        let begun = self.reports.during(begun).await?;
        self.see_through(&begun, asked.wait.then(|| patience(asked.timeout_ms))).await
    }

    async fn status(&mut self, asked: StatusArguments) -> Result<Answer, Failure> {
        let found = steer::find_execution(&self.client, &asked.id).await?;
        let id = found.execution_id.to_string();
        if asked.wait {
            return self.wait_on(id, patience(asked.timeout_ms)).await;
        }
        self.as_it_stands(&id).await
    }

    async fn debug(&self, asked: DebugArguments) -> Result<Answer, Failure> {
        Ok(answer::request(debug::load_request(&self.client, &asked.id).await?))
    }

    async fn cancel(&mut self, asked: CancelArguments) -> Result<Answer, Failure> {
        let found = steer::find_execution(&self.client, &asked.id).await?;
        let id = found.execution_id.to_string();
        let arguments = [("executionId: ID!", json!(id)), ("reason: String", json!(asked.reason))];
        let telling = self.tell("cancelExecution", &arguments);
        let carrying = async {
            if let (Some(store), Ok(told)) = (&self.office.store, id.parse()) {
                await_stop_command(&**store, told).await;
                self.carry_on(&id);
            }
            future::pending::<Infallible>().await
        };
        tokio::select! {
            told = telling => told?,
            never = carrying => match never {},
        }
        self.carry_on(&id);
        self.wait(&id, patience(asked.timeout_ms)).await?;
        self.as_it_stands(&id).await
    }

    async fn approve(&mut self, asked: ApproveArguments) -> Result<Answer, Failure> {
        let found = steer::find_execution(&self.client, &asked.id).await?;
        let id = found.execution_id.to_string();
        let ApproveArguments { step_id, approved, comment, .. } = asked;
        let arguments = [
            ("executionId: ID!", json!(id)),
            ("stepId: String!", json!(step_id)),
            ("approved: Boolean!", json!(approved)),
            ("comment: String", json!(comment)),
        ];
        self.carry_on(&id);
        self.tell("approveStep", &arguments).await?;
        self.as_it_stands(&id).await
    }

    async fn settle(&mut self, asked: SettleArguments) -> Result<Answer, Failure> {
        let found = steer::find_execution(&self.client, &asked.id).await?;
        let id = found.execution_id.to_string();
        let SettleArguments { step_id, item, outcome, output, comment, .. } = asked;
        let arguments = [
            ("executionId: ID!", json!(id)),
            ("stepId: String!", json!(step_id)),
            ("item: Int", json!(item)),
            ("outcome: SettledOutcome!", json!(outcome.as_str())),
            ("output: JSON", json!(output)),
            ("comment: String", json!(comment)),
        ];
        self.carry_on(&id);
        self.tell("settleStep", &arguments).await?;
        self.as_it_stands(&id).await
    }

    async fn signal(&mut self, asked: SignalArguments) -> Result<Answer, Failure> {
        let found = steer::find_execution(&self.client, &asked.id).await?;
        let id = found.execution_id.to_string();
        let arguments = [
            ("executionId: ID!", json!(id)),
            ("name: String!", json!(asked.name)),
            ("payload: JSON", json!(asked.payload)),
        ];
        self.carry_on(&id);
        self.tell("signalExecution", &arguments).await?;
        self.as_it_stands(&id).await
    }

    async fn tell(&self, mutation: &str, arguments: &[Argument<'_>]) -> Result<(), Failure> {
        self.client.mutate::<Value>(mutation, arguments, "executionId").await.map(drop)
    }

    async fn list_tools(&self, asked: ListArguments) -> Result<Answer, Failure> {
        let schema = if asked.with_parameters { "parameters: inputSchema" } else { "" };
        let fields = format!("name description toolSet effect active {schema}");
        let arguments = [
            ("toolSet: String", json!(asked.tool_set)),
            ("search: String", json!(asked.search)),
            ("activeOnly: Boolean", json!(asked.active_only)),
        ];
        Ok(answer::tools(self.client.query("tools", &arguments, &fields).await?, TOOLS))
    }

    async fn select_tools(&self, asked: SelectArguments) -> Result<Answer, Failure> {
        let arguments = [
            ("query: String!", json!(asked.query)),
            ("by: SelectionCriterion", json!(asked.by.as_str())),
            ("limit: Int", json!(asked.limit)),
        ];
        let fields = "score hit tool { name description }";
        let found = self.client.query("selectTools", &arguments, fields).await?;
        Ok(answer::matches(&found))
    }

    async fn saved_plans(&self) -> Result<Answer, Failure> {
        let arguments = [("first: Int", json!(SAVED))];
        let found = self.client.query("savedPlans", &arguments, "name planId inputs").await?;
        Ok(answer::saved(found))
    }

    /// Drives a started execution, and waits for it if the caller asks for that.
    async fn see_through(
        &mut self,
        begun: &ExecutionHead,
        wait: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let id = begun.execution_id.to_string();
        self.carry_on(&id);
        match wait {
            Some(most) => self.wait_on(id, most).await,
            None => self.as_it_stands(&id).await,
        }
    }

    /// Waits for an execution and for its replans.
    async fn wait_on(&mut self, mut id: String, most: Duration) -> Result<Answer, Failure> {
        let end = Instant::now() + most;
        loop {
            self.wait(&id, end.saturating_duration_since(Instant::now())).await?;
            let wait = time::timeout_at(end, self.went_on(&id));
            let went = tokio::select! {
                went = wait => went,
                () = self.left.cancelled() => return self.as_it_stands(&id).await,
            };
            match went {
                Ok(next) => match next? {
                    Some(next) => id = next,
                    None => return self.as_it_stands(&id).await,
                },
                Err(_) => return self.as_it_stands(&id).await,
            }
            self.carry_on(&id);
        }
    }

    /// Waits while a finished execution is replanned. Returns the id of the next execution.
    async fn went_on(&self, id: &str) -> Result<Option<String>, Failure> {
        loop {
            let fields = "replanning { state } next { executionId }";
            let found = self.execution(id, fields).await?;
            match found["replanning"]["state"].as_str() {
                Some("BEGUN") => return Ok(Some(id_of(&found["next"]))),
                Some("PENDING") => time::sleep(LOOK).await,
                _ => return Ok(None),
            }
        }
    }

    fn carry_on(&self, id: &str) {
        if let (Some(drivers), Ok(id)) = (&self.office.drivers, id.parse()) {
            drivers.carry_on(id);
        }
    }

    async fn wait(&mut self, id: &str, most: Duration) -> Result<(), Failure> {
        let found = self.execution(id, "total").await?;
        self.reports.of(found["total"].as_f64());
        let store = self.office.store.as_ref();
        let wait = Wait { client: &self.client, store, most, left: &self.left };
        wait.until_over(id, &mut self.reports).await
    }

    async fn as_it_stands(&self, id: &str) -> Result<Answer, Failure> {
        let found = self.execution(id, EXECUTION).await?;
        if found.is_null() {
            return Err(Failure::not_found("execution", id));
        }
        Ok(answer::execution(found))
    }

    async fn execution(&self, id: &str, fields: &str) -> Result<Value, Failure> {
        self.client.execution(id, fields).await
    }
}

fn patience(wanted_ms: Option<u64>) -> Duration {
    wanted_ms.map_or(WAIT, Duration::from_millis).min(LONGEST)
}

fn id_of(execution: &Value) -> String {
    execution["executionId"].as_str().unwrap_or_default().to_owned()
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|err| Failure::usage(err.to_string()))
}

/// Parses a draft.
fn input(plan: Map<String, Value>) -> Result<WrittenPlan, Failure> {
    let text = Value::Object(plan).to_string();
    parse(&text).map_err(|found| Failure::invalid_plan(&found))
}

fn planning_options(
    tool_sets: Option<&[String]>,
    max_tools: Option<i32>,
    planner: Option<&str>,
) -> Value {
    without_nulls(json!({ "toolSets": tool_sets, "maxTools": max_tools, "planner": planner }))
}
