//! Calls of the MCP tools. Each call executes operations of the API, and some calls wait for an
//! execution.

use std::{convert::Infallible, future, time::Duration};

use client::{
    Argument, Client,
    drive::await_stop_command,
    failure::Failure,
    operations::{self, create_plan, make_plan},
    plan_file::{WrittenPlan, parse},
    remove_nulls,
    request_report::load_request,
    types::{DIAGNOSTIC_FIELDS, ExecutionHead, Plan},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Backend,
    answer::{self, Answer, EXECUTION_FIELDS},
    arguments::{
        ApproveArguments, CancelArguments, DebugArguments, DraftArguments, ExecuteArguments, Guard,
        ListArguments, Mode, NoArguments, PlanArguments, RunArguments, SelectArguments,
        SettleArguments, SignalArguments, StatusArguments,
    },
    progress::ProgressReporter,
    wait::ExecutionWait,
};

/// Default time to wait for an execution, shorter than the minute after which most clients give up.
const DEFAULT_WAIT: Duration = Duration::from_secs(45);
const MAX_WAIT: Duration = Duration::from_hours(1);
const REPLAN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_LISTED_TOOLS: usize = 200;
const MAX_SAVED_PLANS: usize = 200;

pub(crate) struct Call<'a> {
    pub(crate) backend: &'a Backend,
    pub(crate) client: Client,
    pub(crate) progress_reporter: ProgressReporter,
    pub(crate) caller_gone: CancellationToken,
}

impl Call<'_> {
    pub(crate) async fn make_call(
        &mut self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Answer, Failure> {
        match name {
            "plan" => self.make_plan(parse_arguments(arguments)?).await,
            "validate" => self.validate_plan(parse_arguments(arguments)?).await,
            "create_plan" => self.create_plan(parse_arguments(arguments)?).await,
            "execute" => self.execute_plan(parse_arguments(arguments)?).await,
            "run" => self.run_query(parse_arguments(arguments)?).await,
            "status" => self.show_status(parse_arguments(arguments)?).await,
            "debug" => self.show_request(parse_arguments(arguments)?).await,
            "cancel" => self.cancel_execution(parse_arguments(arguments)?).await,
            "approve" => self.approve_step(parse_arguments(arguments)?).await,
            "settle" => self.settle_step(parse_arguments(arguments)?).await,
            "signal" => self.send_signal(parse_arguments(arguments)?).await,
            "list_tools" => self.list_tools(parse_arguments(arguments)?).await,
            "select_tools" => self.select_tools(parse_arguments(arguments)?).await,
            "saved_plans" => {
                let NoArguments {} = parse_arguments(arguments)?;
                self.list_saved_plans().await
            }
            other => Err(Failure::not_found("tool", other)),
        }
    }

    async fn make_plan(&mut self, arguments: PlanArguments) -> Result<Answer, Failure> {
        let PlanArguments { query, tool_sets, max_tools, planner, guard } = arguments;
        let options = planning_options(tool_sets.as_deref(), max_tools, planner.as_deref(), guard);
        let planned = make_plan(&self.client, &query, options, Plan::VIEW_FIELDS);
        Ok(answer::plan_answer(self.progress_reporter.report_during(planned).await?))
    }

    async fn validate_plan(&self, arguments: DraftArguments) -> Result<Answer, Failure> {
        let input = parse_draft(arguments.plan)?.check(&self.client).await?;
        let fields =
            format!("plan {{ executionOrder layers }} diagnostics {{ {DIAGNOSTIC_FIELDS} }}");
        let variables = [("input: PlanInput!", input)];
        let payload = self.client.query("validatePlan", &variables, &fields).await?;
        Ok(answer::validation_answer(payload))
    }

    async fn create_plan(&self, arguments: DraftArguments) -> Result<Answer, Failure> {
        Ok(answer::plan_answer(create_plan(&self.client, parse_draft(arguments.plan)?).await?))
    }

    async fn execute_plan(&mut self, arguments: ExecuteArguments) -> Result<Answer, Failure> {
        let options = remove_nulls(json!({
            "mode": arguments.mode.map(Mode::as_str),
            "dryRun": arguments.dry_run.then_some(true),
            "idempotencyKey": arguments.idempotency_key,
            "deadlineMs": arguments.deadline_ms,
            "replans": arguments.replans,
            "compensateOnFailure": arguments.compensate_on_failure,
            "input": arguments.input,
        }));
        let started = match arguments.id.split('_').next() {
            Some("plan") => {
                operations::execute_plan(&self.client, &arguments.id.as_str().into(), options).await
            }
            Some("req") => operations::execute_request(&self.client, &arguments.id, options).await,
            Some("exec") => operations::find_execution(&self.client, &arguments.id).await,
            _ => operations::run_saved(&self.client, &arguments.id, options).await,
        };
        self.drive_and_answer(&started?, arguments.wait.then(|| wait_timeout(arguments.timeout_ms)))
            .await
    }

    async fn run_query(&mut self, arguments: RunArguments) -> Result<Answer, Failure> {
        let planning = planning_options(
            arguments.tool_sets.as_deref(),
            arguments.max_tools,
            arguments.planner.as_deref(),
            arguments.guard,
        );
        let options = remove_nulls(json!({
            "mode": arguments.mode.map(Mode::as_str),
            "dryRun": arguments.dry_run.then_some(true),
            "idempotencyKey": arguments.idempotency_key,
            "deadlineMs": arguments.deadline_ms,
            "replans": arguments.replans,
            "compensateOnFailure": arguments.compensate_on_failure,
        }));
        let started = operations::run_query(&self.client, &arguments.query, planning, options);
        let started = self.progress_reporter.report_during(started).await?;
        self.drive_and_answer(&started, arguments.wait.then(|| wait_timeout(arguments.timeout_ms)))
            .await
    }

    async fn show_status(&mut self, arguments: StatusArguments) -> Result<Answer, Failure> {
        let found = operations::find_execution(&self.client, &arguments.id).await?;
        let id = found.execution_id.to_string();
        if arguments.wait {
            return self.wait_with_replans(id, wait_timeout(arguments.timeout_ms)).await;
        }
        self.load_answer(&id).await
    }

    async fn show_request(&self, arguments: DebugArguments) -> Result<Answer, Failure> {
        Ok(answer::request_answer(load_request(&self.client, &arguments.id).await?))
    }

    async fn cancel_execution(&mut self, arguments: CancelArguments) -> Result<Answer, Failure> {
        let found = operations::find_execution(&self.client, &arguments.id).await?;
        let id = found.execution_id.to_string();
        let variables =
            [("executionId: ID!", json!(id)), ("reason: String", json!(arguments.reason))];
        let sending = self.send_command("cancelExecution", &variables);
        let driving = async {
            if let (Some(store), Ok(execution)) = (&self.backend.store, id.parse()) {
                await_stop_command(&**store, execution).await;
                self.start_driving(&id);
            }
            future::pending::<Infallible>().await
        };
        tokio::select! {
            sent = sending => sent?,
            never = driving => match never {},
        }
        self.start_driving(&id);
        self.await_end(&id, wait_timeout(arguments.timeout_ms)).await?;
        self.load_answer(&id).await
    }

    async fn approve_step(&mut self, arguments: ApproveArguments) -> Result<Answer, Failure> {
        let found = operations::find_execution(&self.client, &arguments.id).await?;
        let id = found.execution_id.to_string();
        let ApproveArguments { step_id, approved, comment, .. } = arguments;
        let variables = [
            ("executionId: ID!", json!(id)),
            ("stepId: String!", json!(step_id)),
            ("approved: Boolean!", json!(approved)),
            ("comment: String", json!(comment)),
        ];
        self.start_driving(&id);
        self.send_command("approveStep", &variables).await?;
        self.load_answer(&id).await
    }

    async fn settle_step(&mut self, arguments: SettleArguments) -> Result<Answer, Failure> {
        let found = operations::find_execution(&self.client, &arguments.id).await?;
        let id = found.execution_id.to_string();
        let SettleArguments { step_id, item, outcome, output, comment, .. } = arguments;
        let variables = [
            ("executionId: ID!", json!(id)),
            ("stepId: String!", json!(step_id)),
            ("item: Int", json!(item)),
            ("outcome: SettledOutcome!", json!(outcome.as_str())),
            ("output: JSON", json!(output)),
            ("comment: String", json!(comment)),
        ];
        self.start_driving(&id);
        self.send_command("settleStep", &variables).await?;
        self.load_answer(&id).await
    }

    async fn send_signal(&mut self, arguments: SignalArguments) -> Result<Answer, Failure> {
        let found = operations::find_execution(&self.client, &arguments.id).await?;
        let id = found.execution_id.to_string();
        let variables = [
            ("executionId: ID!", json!(id)),
            ("name: String!", json!(arguments.name)),
            ("payload: JSON", json!(arguments.payload)),
        ];
        self.start_driving(&id);
        self.send_command("signalExecution", &variables).await?;
        self.load_answer(&id).await
    }

    async fn send_command(
        &self,
        mutation: &str,
        arguments: &[Argument<'_>],
    ) -> Result<(), Failure> {
        self.client.mutate::<Value>(mutation, arguments, "executionId").await.map(drop)
    }

    async fn list_tools(&self, arguments: ListArguments) -> Result<Answer, Failure> {
        let schema = if arguments.with_parameters { "parameters: inputSchema" } else { "" };
        let fields = format!("name description toolSet effect active {schema}");
        let variables = [
            ("toolSet: String", json!(arguments.tool_set)),
            ("search: String", json!(arguments.search)),
            ("activeOnly: Boolean", json!(arguments.active_only)),
        ];
        Ok(answer::tools_answer(
            self.client.query("tools", &variables, &fields).await?,
            MAX_LISTED_TOOLS,
        ))
    }

    async fn select_tools(&self, arguments: SelectArguments) -> Result<Answer, Failure> {
        let variables = [
            ("query: String!", json!(arguments.query)),
            ("by: SelectionCriterion", json!(arguments.by.as_str())),
            ("limit: Int", json!(arguments.limit)),
        ];
        let fields = "score hit tool { name description }";
        let found = self.client.query("selectTools", &variables, fields).await?;
        Ok(answer::matches_answer(&found))
    }

    async fn list_saved_plans(&self) -> Result<Answer, Failure> {
        let variables = [("first: Int", json!(MAX_SAVED_PLANS))];
        let found = self.client.query("savedPlans", &variables, "name planId inputs").await?;
        Ok(answer::saved_plans_answer(found))
    }

    async fn drive_and_answer(
        &mut self,
        started: &ExecutionHead,
        timeout: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let id = started.execution_id.to_string();
        self.start_driving(&id);
        match timeout {
            Some(timeout) => self.wait_with_replans(id, timeout).await,
            None => self.load_answer(&id).await,
        }
    }

    async fn wait_with_replans(
        &mut self,
        mut id: String,
        timeout: Duration,
    ) -> Result<Answer, Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            self.await_end(&id, deadline.saturating_duration_since(Instant::now())).await?;
            let wait = time::timeout_at(deadline, self.await_replan(&id));
            let went = tokio::select! {
                went = wait => went,
                () = self.caller_gone.cancelled() => return self.load_answer(&id).await,
            };
            match went {
                Ok(next) => match next? {
                    Some(next) => id = next,
                    None => return self.load_answer(&id).await,
                },
                Err(_) => return self.load_answer(&id).await,
            }
            self.start_driving(&id);
        }
    }

    /// Waits while a finished execution is replanned. Returns the id of the next execution.
    async fn await_replan(&self, id: &str) -> Result<Option<String>, Failure> {
        loop {
            let fields = "replanning { state } next { executionId }";
            let found = self.load_fields(id, fields).await?;
            match found["replanning"]["state"].as_str() {
                Some("BEGUN") => return Ok(Some(execution_id(&found["next"]))),
                Some("PENDING") => time::sleep(REPLAN_POLL_INTERVAL).await,
                _ => return Ok(None),
            }
        }
    }

    fn start_driving(&self, id: &str) {
        if let (Some(queue), Ok(id)) = (&self.backend.queue, id.parse()) {
            queue.push(id);
        }
    }

    async fn await_end(&mut self, id: &str, timeout: Duration) -> Result<(), Failure> {
        let found = self.load_fields(id, "total").await?;
        self.progress_reporter.set_total(found["total"].as_f64());
        let store = self.backend.store.as_ref();
        let wait =
            ExecutionWait { client: &self.client, store, timeout, caller_gone: &self.caller_gone };
        wait.wait_until_done(id, &mut self.progress_reporter).await
    }

    async fn load_answer(&self, id: &str) -> Result<Answer, Failure> {
        let found = self.load_fields(id, EXECUTION_FIELDS).await?;
        if found.is_null() {
            return Err(Failure::not_found("execution", id));
        }
        Ok(answer::execution_answer(found))
    }

    async fn load_fields(&self, id: &str, fields: &str) -> Result<Value, Failure> {
        self.client.query_execution(id, fields).await
    }
}

fn wait_timeout(timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(DEFAULT_WAIT, Duration::from_millis).min(MAX_WAIT)
}

fn execution_id(execution: &Value) -> String {
    execution["executionId"].as_str().unwrap_or_default().to_owned()
}

fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|err| Failure::usage(err.to_string()))
}

fn parse_draft(plan: Map<String, Value>) -> Result<WrittenPlan, Failure> {
    let text = Value::Object(plan).to_string();
    parse(&text).map_err(|found| Failure::invalid_plan(&found))
}

fn planning_options(
    tool_sets: Option<&[String]>,
    max_tools: Option<i32>,
    planner: Option<&str>,
    guard: Option<Guard>,
) -> Value {
    remove_nulls(json!({
        "toolSets": tool_sets,
        "maxTools": max_tools,
        "planner": planner,
        "guard": guard.map(Guard::as_str),
    }))
}
