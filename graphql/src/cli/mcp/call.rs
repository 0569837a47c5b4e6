//! One call of a tool: operations of the API, and waiting.

use std::{convert::Infallible, future, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        client::Client, drive::until_told_to_stop, failure::Failure, inspect, planning, run, steer,
        written_plan::WrittenPlan,
    },
    Office,
    answer::{self, Answer, EXECUTION},
    arguments::{
        ApproveArguments, CancelArguments, DebugArguments, DraftArguments, ExecuteArguments,
        ListArguments, NoArguments, PlanArguments, RunArguments, SelectArguments, SignalArguments,
        StatusArguments,
    },
    reports::Reports,
    wait::Wait,
};

/// How long a call waits where nothing is said: the usual clients give up after a minute.
const WAIT: Duration = Duration::from_secs(45);
/// The longest that a call may wait.
const LONGEST: Duration = Duration::from_hours(1);
/// How often is looked whether a model has planned how to go on.
const LOOK: Duration = Duration::from_millis(250);
/// The most tools that a list has.
const TOOLS: usize = 200;
/// The most saved plans that a list has.
const SAVED: usize = 200;

/// One call of a tool.
pub(super) struct Call<'a> {
    pub(super) office: &'a Office,
    /// Who carries operations out, for whoever calls.
    pub(super) client: Client,
    pub(super) reports: Reports,
    /// Cancelled when whoever called has left.
    pub(super) left: CancellationToken,
}

impl Call<'_> {
    /// Does what the tool of this name does.
    pub(super) async fn make(
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
        let options = planning_options(tool_sets, max_tools, planner);
        let planned = planning::query_plan(&self.client, &query, options, planning::PLAN);
        Ok(answer::plan(self.reports.during(planned).await?))
    }

    async fn validate(&self, asked: DraftArguments) -> Result<Answer, Failure> {
        let input = input(asked.plan)?.check(&self.client).await?;
        let query = "query($input: PlanInput!) { validatePlan(input: $input) { plan { \
             executionOrder layers } diagnostics { severity code path message help } } }";
        let payload = self.client.field(query, json!({ "input": input })).await?;
        Ok(answer::verdict(payload))
    }

    async fn create_plan(&self, asked: DraftArguments) -> Result<Answer, Failure> {
        Ok(answer::plan(planning::create(&self.client, input(asked.plan)?).await?))
    }

    async fn execute(&mut self, asked: ExecuteArguments) -> Result<Answer, Failure> {
        let mut options = Map::new();
        let mut say = |key: &str, value: Option<Value>| {
            options.extend(value.map(|it| (key.to_owned(), it)));
        };
        say("mode", asked.mode.map(|it| json!(it.as_str())));
        say("dryRun", asked.dry_run.then(|| json!(true)));
        say("idempotencyKey", asked.idempotency_key.map(|it| json!(it)));
        say("deadlineMs", asked.deadline_ms.map(|it| json!(it)));
        say("replans", asked.replans.map(|it| json!(it)));
        say("compensateOnFailure", asked.compensate_on_failure.then(|| json!(true)));
        say("input", asked.input);
        let options = Value::Object(options);
        let begun = match asked.id.split('_').next() {
            Some("plan") => run::execute_plan(&self.client, &json!(asked.id), options).await,
            Some("req") => run::execute_request(&self.client, &asked.id, options).await,
            Some("exec") => steer::find(&self.client, &asked.id).await,
            _ => run::run_saved(&self.client, &asked.id, options).await,
        };
        self.see_through(&begun?, asked.wait.then(|| patience(asked.timeout_ms))).await
    }

    async fn run(&mut self, asked: RunArguments) -> Result<Answer, Failure> {
        let planning = planning_options(asked.tool_sets, asked.max_tools, asked.planner);
        let mut options = Map::new();
        let mut say = |key: &str, value: Option<Value>| {
            options.extend(value.map(|it| (key.to_owned(), it)));
        };
        say("mode", asked.mode.map(|it| json!(it.as_str())));
        say("dryRun", asked.dry_run.then(|| json!(true)));
        say("idempotencyKey", asked.idempotency_key.map(|it| json!(it)));
        say("deadlineMs", asked.deadline_ms.map(|it| json!(it)));
        say("replans", asked.replans.map(|it| json!(it)));
        let variables = json!({ "query": asked.query, "planning": planning, "execution": options });
        let begun = run::run_query(&self.client, variables);
        let begun = self.reports.during(begun).await?;
        self.see_through(&begun, asked.wait.then(|| patience(asked.timeout_ms))).await
    }

    async fn status(&mut self, asked: StatusArguments) -> Result<Answer, Failure> {
        let found = steer::find(&self.client, &asked.id).await?;
        let id = id_of(&found);
        if asked.wait {
            return self.wait_on(id, patience(asked.timeout_ms)).await;
        }
        self.as_it_stands(&id).await
    }

    async fn debug(&self, asked: DebugArguments) -> Result<Answer, Failure> {
        Ok(answer::request(inspect::document(&self.client, &asked.id).await?))
    }

    async fn cancel(&mut self, asked: CancelArguments) -> Result<Answer, Failure> {
        let found = steer::find(&self.client, &asked.id).await?;
        let id = id_of(&found);
        let tell = format!(
            "mutation($id: ID!, $reason: String) \
             {{ cancelExecution(executionId: $id, reason: $reason) {{ {} }} }}",
            steer::EXECUTION
        );
        let telling = self.client.field(&tell, json!({ "id": id, "reason": asked.reason }));
        let carrying = async {
            if let (Some(store), Ok(told)) = (&self.office.store, id.parse()) {
                until_told_to_stop(&**store, told).await;
                self.carry_on(&id);
            }
            future::pending::<Infallible>().await
        };
        tokio::select! {
            told = telling => drop(told?),
            never = carrying => match never {},
        }
        self.carry_on(&id);
        self.wait(&id, patience(asked.timeout_ms)).await?;
        self.as_it_stands(&id).await
    }

    async fn approve(&mut self, asked: ApproveArguments) -> Result<Answer, Failure> {
        let found = steer::find(&self.client, &asked.id).await?;
        let id = id_of(&found);
        let ApproveArguments { step_id, approved, comment, .. } = asked;
        let tell = format!(
            "mutation($id: ID!, $step: String!, $approved: Boolean!, $comment: String) \
             {{ approveStep(executionId: $id, stepId: $step, approved: $approved, \
             comment: $comment) {{ {} }} }}",
            steer::EXECUTION
        );
        let said = json!({ "id": id, "step": step_id, "approved": approved, "comment": comment });
        self.carry_on(&id);
        self.client.field(&tell, said).await?;
        self.as_it_stands(&id).await
    }

    async fn signal(&mut self, asked: SignalArguments) -> Result<Answer, Failure> {
        let found = steer::find(&self.client, &asked.id).await?;
        let id = id_of(&found);
        let tell = format!(
            "mutation($id: ID!, $name: String!, $payload: JSON) \
             {{ signalExecution(executionId: $id, name: $name, payload: $payload) {{ {} }} }}",
            steer::EXECUTION
        );
        let said = json!({ "id": id, "name": asked.name, "payload": asked.payload });
        self.carry_on(&id);
        self.client.field(&tell, said).await?;
        self.as_it_stands(&id).await
    }

    async fn list_tools(&self, asked: ListArguments) -> Result<Answer, Failure> {
        let schema = if asked.with_parameters { "parameters: inputSchema" } else { "" };
        let query = format!(
            "query($set: String, $search: String, $active: Boolean) {{ tools(toolSet: $set, \
             search: $search, activeOnly: $active) {{ name description toolSet effect active \
             {schema} }} }}"
        );
        let variables = json!({
            "set": asked.tool_set, "search": asked.search, "active": asked.active_only,
        });
        Ok(answer::tools(self.client.field(&query, variables).await?, TOOLS))
    }

    async fn select_tools(&self, asked: SelectArguments) -> Result<Answer, Failure> {
        let query = "query($query: String!, $by: SelectionCriterion, $limit: Int) { selectTools(\
             query: $query, by: $by, limit: $limit) { score hit tool { name description } } }";
        let variables =
            json!({ "query": asked.query, "by": asked.by.as_str(), "limit": asked.limit });
        Ok(answer::matches(&self.client.field(query, variables).await?))
    }

    async fn saved_plans(&self) -> Result<Answer, Failure> {
        let query = "query($first: Int) { savedPlans(first: $first) { name planId inputs } }";
        Ok(answer::saved(self.client.field(query, json!({ "first": SAVED })).await?))
    }

    /// Carries on what has begun, and waits for it where that is wanted.
    async fn see_through(
        &mut self,
        begun: &Value,
        wait: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let id = id_of(begun);
        self.carry_on(&id);
        match wait {
            Some(most) => self.wait_on(id, most).await,
            None => self.as_it_stands(&id).await,
        }
    }

    /// Waits for an execution, and for what goes on by itself after it with the next version of its
    /// plan.
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

    /// Waits while a model plans by itself how to go on. Returns what goes on, if something does.
    async fn went_on(&self, id: &str) -> Result<Option<String>, Failure> {
        let query = "query($id: ID!) { execution(executionId: $id) { replanning { state } \
             next { executionId } } }";
        loop {
            let found = self.client.field(query, json!({ "id": id })).await?;
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
        let query = "query($id: ID!) { execution(executionId: $id) { total } }";
        let found = self.client.field(query, json!({ "id": id })).await?;
        self.reports.of(found["total"].as_f64());
        let store = self.office.store.as_ref();
        let wait = Wait { client: &self.client, store, most, left: &self.left };
        wait.until_over(id, &mut self.reports).await
    }

    async fn as_it_stands(&self, id: &str) -> Result<Answer, Failure> {
        let query = format!("query($id: ID!) {{ execution(executionId: $id) {{ {EXECUTION} }} }}");
        let found = self.client.field(&query, json!({ "id": id })).await?;
        if found.is_null() {
            return Err(Failure::not_found("execution", id));
        }
        Ok(answer::execution(found))
    }
}

/// Returns how long a call waits.
fn patience(wanted_ms: Option<u64>) -> Duration {
    wanted_ms.map_or(WAIT, Duration::from_millis).min(LONGEST)
}

fn id_of(execution: &Value) -> String {
    execution["executionId"].as_str().unwrap_or_default().to_owned()
}

/// Reads what a tool is given.
fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|err| Failure::usage(err.to_string()))
}

/// Reads a plan as a model wrote it.
fn input(plan: Map<String, Value>) -> Result<WrittenPlan, Failure> {
    let text = Value::Object(plan).to_string();
    run::draft(&text).map_err(|found| Failure::invalid_draft(&found))
}

fn planning_options(
    tool_sets: Option<Vec<String>>,
    max_tools: Option<i32>,
    planner: Option<String>,
) -> Value {
    let mut options = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        options.extend(value.map(|it| (key.to_owned(), it)));
    };
    say("toolSets", tool_sets.map(|it| json!(it)));
    say("maxTools", max_tools.map(|it| json!(it)));
    say("planner", planner.map(|it| json!(it)));
    Value::Object(options)
}
