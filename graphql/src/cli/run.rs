//! Executions: begun, carried on, watched, told things, and shown as they end.

use std::{path::Path, pin::pin, time::Duration};

use futures::StreamExt;
use planner::compile;
use serde_json::{Map, Value, json};
use shared::id::ExecutionId;
use tokio::time;

use super::{
    Ending, Session,
    args::{ApproveArgs, ExecuteArgs, Options, RunArgs, api_name},
    client::Client,
    drive::Drive,
    events::Board,
    failure::Failure,
    house::{House, Need},
    planning,
    progress::{Progress, duration},
    render,
    screen::pretty,
    shape::Shape,
    signals,
};

/// How often a broken stream is taken up again before the server counts as gone.
const RECONNECTS: usize = 5;
/// How long to wait before that.
const RECONNECT: Duration = Duration::from_secs(1);

const EXECUTION: &str = "executionId requestId planId state";
const EVENTS: &str = "subscription($id: ID!, $after: Int) { executionEvents(executionId: $id, \
     afterSeq: $after) { seq at type stepId attempt data } }";

/// Plans, executes, shows how it goes and prints the outputs.
pub(super) async fn run(session: &Session, args: RunArgs) -> Result<Ending, Failure> {
    let input = match &args.plan {
        Some(file) => Some(read_plan(session, file).await?),
        None => None,
    };
    let house = House::open(session, Need::Driving).await?;
    let ending = match begin(session, house.client(), &args, input).await {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    close(house).await;
    ending
}

/// Begins what `run` was asked for, and returns the execution.
async fn begin(
    session: &Session,
    client: &Client,
    args: &RunArgs,
    input: Option<Value>,
) -> Result<Value, Failure> {
    if let (Some(query), Some(_)) = (&args.query, &args.options.idempotency_key) {
        // A key that was used before plans nothing, so planning is the engine's to decide.
        let begin = format!(
            "mutation($query: String!, $planning: PlanningOptions, $execution: ExecutionOptions) \
             {{ run(query: $query, planning: $planning, execution: $execution) {{ {EXECUTION} }} }}"
        );
        let planning = planning::options(&args.planning);
        let variables =
            json!({ "query": query, "planning": planning, "execution": options(&args.options) });
        let execution = client.field(&begin, variables).await?;
        planning::show_known(session, client, &execution["planId"]).await?;
        return Ok(execution);
    }
    let plan = match (input, &args.query) {
        (Some(input), _) => {
            let file = args.plan.as_deref().unwrap_or(Path::new("-"));
            planning::create(client, input).await.map_err(|it| it.with("file", place(file)))?
        }
        (None, query) => {
            let query = query.as_deref().unwrap_or_default();
            planning::by_query(client, query, &args.planning).await?
        }
    };
    planning::show(session, &plan);
    execute_plan(client, &plan["planId"], &args.options).await
}

/// Reads a plan as a person wrote it. What is wrong with it is said all at once.
pub(super) async fn read_plan(session: &Session, file: &Path) -> Result<Value, Failure> {
    let unreadable = |err: std::io::Error| {
        let why = format!("the plan `{}` cannot be read: {err}", file.display());
        Failure::usage(why)
    };
    let text = if file == Path::new("-") {
        let read = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
        read.await.map_err(|err| Failure::new("INTERNAL", err.to_string()))?.map_err(unreadable)?
    } else {
        tokio::fs::read_to_string(file).await.map_err(unreadable)?
    };
    let draft = compile::parse(&text)
        .map_err(|it| Failure::invalid_draft(&it).with("file", place(file)))?;
    if !draft.notices.is_empty() {
        let notices = json!(draft.notices);
        let at = file.display().to_string();
        session.screen.say(&render::diagnostics(&notices, &at, session.screen.err));
    }
    let mut input: Value = serde_json::from_str(&text).expect("it was just read as a draft");
    // The API has two names for one field; everything else is the same.
    if let Some(fields) = input.as_object_mut() {
        fields.retain(|_, it| !it.is_null());
    }
    Ok(input)
}

fn place(file: &Path) -> Value {
    if file == Path::new("-") { json!("<stdin>") } else { json!(file) }
}

/// Executes a plan, the newest plan of a request, or carries an execution on.
pub(super) async fn execute(session: &Session, args: ExecuteArgs) -> Result<Ending, Failure> {
    let house = House::open(session, Need::Driving).await?;
    let client = house.client();
    let begun = match args.id.split('_').next() {
        Some("req") => execute_request(client, &args).await,
        Some("exec") => find(client, &args.id).await,
        _ => execute_plan(client, &json!(args.id), &args.options).await,
    };
    let ending = match begun {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    close(house).await;
    ending
}

async fn execute_plan(client: &Client, plan: &Value, how: &Options) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($id: ID!, $options: ExecutionOptions) \
         {{ executePlan(planId: $id, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "id": plan, "options": options(how) })).await
}

async fn execute_request(client: &Client, args: &ExecuteArgs) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($id: ID!, $options: ExecutionOptions) \
         {{ executeByRequestId(requestId: $id, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "id": args.id, "options": options(&args.options) })).await
}

fn options(how: &Options) -> Value {
    let mut options = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        options.extend(value.map(|it| (key.to_owned(), it)));
    };
    say("mode", how.mode.map(|it| json!(api_name(&it))));
    say("maxParallel", how.max_parallel.map(|it| json!(it)));
    say("idempotencyKey", how.idempotency_key.as_ref().map(|it| json!(it)));
    say("deadlineMs", how.deadline_ms.map(|it| json!(it)));
    say("strictTemplates", how.strict_templates.then(|| json!(true)));
    Value::Object(options)
}

/// Watches an execution until it ends.
pub(super) async fn watch(session: &Session, id: &str) -> Result<Ending, Failure> {
    let house = House::open(session, Need::Store).await?;
    let execution = find(house.client(), id).await?;
    let ending = follow(session, &house, &execution, Purpose::Watch).await;
    close(house).await;
    ending
}

/// Lets a paused execution go on, and carries it on.
pub(super) async fn resume(session: &Session, id: &str) -> Result<Ending, Failure> {
    let tell =
        format!("mutation($id: ID!) {{ resumeExecution(executionId: $id) {{ {EXECUTION} }} }}");
    let told = Told { tell: &tell, more: Map::new(), need: Need::Driving, purpose: Purpose::Drive };
    told.to(session, id).await
}

/// Stops an execution.
pub(super) async fn cancel(
    session: &Session,
    id: &str,
    reason: Option<String>,
) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $reason: String) \
         {{ cancelExecution(executionId: $id, reason: $reason) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([("reason".to_owned(), json!(reason))]);
    Told { tell: &tell, more, need: Need::Stopping, purpose: Purpose::Finish }.to(session, id).await
}

/// Lets an execution begin no further step.
pub(super) async fn pause(session: &Session, id: &str) -> Result<Ending, Failure> {
    let tell =
        format!("mutation($id: ID!) {{ pauseExecution(executionId: $id) {{ {EXECUTION} }} }}");
    let (more, need) = (Map::new(), Need::Stopping);
    Told { tell: &tell, more, need, purpose: Purpose::Tell }.to(session, id).await
}

/// Lets a step that waits for a person go on, or not.
pub(super) async fn approve(session: &Session, args: ApproveArgs) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $step: String!, $approved: Boolean!, $comment: String) \
         {{ approveStep(executionId: $id, stepId: $step, approved: $approved, comment: $comment) \
         {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([
        ("step".to_owned(), json!(args.step)),
        ("approved".to_owned(), json!(!args.reject)),
        ("comment".to_owned(), json!(args.comment)),
    ]);
    let (need, purpose) = (Need::Driving, Purpose::CarryOn);
    Told { tell: &tell, more, need, purpose }.to(session, &args.id).await
}

/// Tells an execution something that a step waits for.
pub(super) async fn signal(
    session: &Session,
    id: &str,
    name: String,
    payload: Option<String>,
) -> Result<Ending, Failure> {
    let payload: Option<Value> = match payload {
        Some(text) => Some(serde_json::from_str(&text).map_err(|err| {
            let hint = "a string needs quotes, as in '\"text\"'";
            Failure::usage(format!("`{text}` is not JSON: {err}; {hint}"))
        })?),
        None => None,
    };
    let tell = format!(
        "mutation($id: ID!, $name: String!, $payload: JSON) \
         {{ signalExecution(executionId: $id, name: $name, payload: $payload) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("payload".to_owned(), payload.unwrap_or_default()),
    ]);
    let (need, purpose) = (Need::Driving, Purpose::CarryOn);
    Told { tell: &tell, more, need, purpose }.to(session, id).await
}

/// What a command does with an execution besides telling it something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Only looks at it.
    Watch,
    /// Carries it on to its end, and ends as it does.
    Drive,
    /// Carries it on where nobody else does.
    CarryOn,
    /// Waits until it is over, and sees to it where nobody else does.
    Finish,
    /// Is done once it was told.
    Tell,
}

/// Something that an execution is told.
struct Told<'a> {
    tell: &'a str,
    more: Map<String, Value>,
    need: Need,
    purpose: Purpose,
}

impl Told<'_> {
    async fn to(self, session: &Session, id: &str) -> Result<Ending, Failure> {
        let house = House::open(session, self.need).await?;
        let ending = self.within(session, &house, id).await;
        close(house).await;
        ending
    }

    async fn within(self, session: &Session, house: &House, id: &str) -> Result<Ending, Failure> {
        let client = house.client();
        let found = find(client, id).await?;
        let mut variables = self.more;
        variables.insert("id".to_owned(), found["executionId"].clone());
        let telling = client.field(self.tell, Value::Object(variables));
        let told = match (house.drive(), execution_id(&found)) {
            (Some(drive), Some(id)) => tokio::select! {
                told = telling => told?,
                never = drive.told(id) => match never {},
            },
            _ => telling.await?,
        };
        let is_ours = match execution_id(&told) {
            Some(id) => is_ours(house, id).await?,
            None => false,
        };
        let follows = match self.purpose {
            Purpose::Drive | Purpose::Finish => true,
            Purpose::CarryOn => is_ours,
            Purpose::Watch | Purpose::Tell => false,
        };
        if !follows {
            return self.purpose.shown(session, client, &told).await;
        }
        let ending = follow(session, house, &told, self.purpose).await?;
        Ok(match (self.purpose, ending) {
            (Purpose::Drive, ending) | (_, ending @ Ending::Detached) => ending,
            _ => Ending::Done,
        })
    }
}

impl Purpose {
    /// Shows an execution that is not followed any further.
    async fn shown(
        self,
        session: &Session,
        client: &Client,
        told: &Value,
    ) -> Result<Ending, Failure> {
        if session.screen.json {
            print_document(session, client, &told["executionId"]).await?;
        } else {
            let text = |key: &str| told[key].as_str().unwrap_or_default();
            session.screen.print(&format!("{}  {}", text("executionId"), text("state")))?;
        }
        Ok(Ending::Done)
    }
}

/// Returns whether nobody but this process can carry an execution on.
async fn is_ours(house: &House, id: ExecutionId) -> Result<bool, Failure> {
    match house.drive() {
        Some(drive) => Ok(drive.is_ours(id).await?),
        None => Ok(false),
    }
}

/// Finds an execution by its own identifier, or as the newest of a plan or a request.
pub(super) async fn find(client: &Client, id: &str) -> Result<Value, Failure> {
    let (filter, owner, by_id) = match id.split('_').next() {
        Some("plan") => ("planId", "plan", "planId"),
        Some("req") => ("requestId", "request", "requestId"),
        _ => {
            let query =
                format!("query($id: ID!) {{ execution(executionId: $id) {{ {EXECUTION} }} }}");
            let found = client.field(&query, json!({ "id": id })).await?;
            return if found.is_null() {
                Err(Failure::not_found("execution", id))
            } else {
                Ok(found)
            };
        }
    };
    let query = format!("query($id: ID!) {{ {owner}({by_id}: $id) {{ {by_id} }} }}");
    if client.field(&query, json!({ "id": id })).await?.is_null() {
        return Err(Failure::not_found(owner, id));
    }
    let query = format!(
        "query($filter: ExecutionFilter) \
         {{ executions(filter: $filter, first: 1) {{ nodes {{ {EXECUTION} }} }} }}"
    );
    let newest = client.field(&query, json!({ "filter": { filter: id } })).await?;
    match newest["nodes"].get(0) {
        Some(found) => Ok(found.clone()),
        None => {
            let why = format!("`{id}` was never executed: run `faber execute {id}`");
            Err(Failure::new("NOT_FOUND", why))
        }
    }
}

fn execution_id(execution: &Value) -> Option<ExecutionId> {
    execution["executionId"].as_str()?.parse().ok()
}

/// Follows an execution to its end, or until it waits for a person or the user leaves; then shows
/// how it stands.
async fn follow(
    session: &Session,
    house: &House,
    execution: &Value,
    purpose: Purpose,
) -> Result<Ending, Failure> {
    let client = house.client();
    let id = &execution["executionId"];
    let steps = step_ids(client, id).await?;
    let mut follower = Follower {
        client,
        id: id.clone(),
        board: Board::default(),
        progress: Progress::new(&session.screen, &steps),
    };
    let drive = house.drive().filter(|_| purpose != Purpose::Watch);
    let stopped = {
        let following = follower.follow();
        let carrying = carry_on(drive, execution_id(execution));
        tokio::select! {
            stopped = following => Some(stopped?),
            () = signals::interrupted() => None,
            never = carrying => match never {},
        }
    };
    follower.progress.end();
    match stopped {
        Some(Stopped::Over) => over(session, client, id).await,
        Some(Stopped::Person) => waiting(session, client, id, &follower.board).await,
        None => detached(session, client, id),
    }
}

async fn carry_on(drive: Option<Drive>, id: Option<ExecutionId>) -> std::convert::Infallible {
    match (drive, id) {
        (Some(drive), Some(id)) => drive.on(id).await,
        _ => std::future::pending().await,
    }
}

async fn step_ids(client: &Client, id: &Value) -> Result<Vec<String>, Failure> {
    let query = "query($id: ID!) { execution(executionId: $id) { plan { executionOrder } } }";
    let found = client.field(query, json!({ "id": id })).await?;
    let order = render::list(&found["plan"]["executionOrder"]);
    Ok(order.filter_map(|it| it.as_str().map(str::to_owned)).collect())
}

/// Why nothing more is followed.
enum Stopped {
    Over,
    Person,
}

/// Reads the events of an execution and shows them.
struct Follower<'a> {
    client: &'a Client,
    id: Value,
    board: Board,
    progress: Progress,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Result<Stopped, Failure> {
        let mut reconnects = RECONNECTS;
        loop {
            let after = self.board.seq;
            match self.read().await {
                Ok(Some(stopped)) => return Ok(stopped),
                Ok(None) if self.state().await?.is_over() => return Ok(Stopped::Over),
                Ok(None) => (),
                Err(failure) if failure.code != "SERVER_UNAVAILABLE" => return Err(failure),
                Err(failure) if reconnects == 0 => return Err(failure),
                Err(_) => reconnects -= 1,
            }
            if self.board.seq > after {
                reconnects = RECONNECTS;
            }
            time::sleep(RECONNECT).await;
        }
    }

    /// Reads one stream of events to its end.
    async fn read(&mut self) -> Result<Option<Stopped>, Failure> {
        let variables = json!({ "id": self.id, "after": self.board.seq });
        let mut events = pin!(self.client.subscribe(EVENTS, variables));
        while let Some(event) = events.next().await {
            if let Some(news) = self.board.apply(&event?) {
                self.progress.tell(&news, self.board.n_over);
            }
            if self.board.is_over() {
                return Ok(Some(Stopped::Over));
            }
            if self.board.waits_for_a_person() && self.state().await?.is("WAITING") {
                return Ok(Some(Stopped::Person));
            }
        }
        Ok(None)
    }

    async fn state(&self) -> Result<State, Failure> {
        let query = "query($id: ID!) { execution(executionId: $id) { state } }";
        let found = self.client.field(query, json!({ "id": self.id })).await?;
        Ok(State(found["state"].as_str().unwrap_or_default().to_owned()))
    }
}

/// The state of an execution, as the API calls it.
struct State(String);

impl State {
    fn is(&self, name: &str) -> bool {
        self.0 == name
    }

    fn is_over(&self) -> bool {
        matches!(self.0.as_str(), "COMPLETED" | "FAILED" | "CANCELLED")
    }
}

/// Shows an execution that is over.
async fn over(session: &Session, client: &Client, id: &Value) -> Result<Ending, Failure> {
    let screen = &session.screen;
    let document = if screen.json {
        print_document(session, client, id).await?
    } else {
        let query = "query($id: ID!) { execution(executionId: $id) { requestId state startedAt \
             createdAt finishedAt total successful outputs executionResults { errors { stepId \
             code message } } steps { stepId warnings } } }";
        let document = client.field(query, json!({ "id": id })).await?;
        warn(session, &document);
        let paint = screen.err;
        screen.say(&summary(&document, paint));
        screen.print(&pretty(&document["outputs"]))?;
        let hint = document["requestId"].as_str().unwrap_or_default();
        screen.say(&paint.dim(format!("everything about it: faber debug {hint}")));
        document
    };
    Ok(if document["state"] == "COMPLETED" { Ending::Done } else { Ending::Failed })
}

/// Says what steps had to warn of.
fn warn(session: &Session, document: &Value) {
    let paint = session.screen.err;
    for step in render::list(&document["steps"]) {
        for warning in render::list(&step["warnings"]).filter_map(Value::as_str) {
            let name = step["stepId"].as_str().unwrap_or_default();
            session.screen.say(&format!("{} {name}: {warning}", paint.yellow("warning:")));
        }
    }
}

fn summary(document: &Value, paint: super::paint::Paint) -> String {
    let state = document["state"].as_str().unwrap_or_default();
    let shown = match state {
        "COMPLETED" => paint.green(state),
        "FAILED" => paint.red(state),
        _ => paint.yellow(state),
    };
    let (total, successful) = (&document["total"], &document["successful"]);
    let took = took_ms(document).map_or_else(String::new, |it| format!(" in {}", duration(it)));
    let mut text = format!("{shown}  {successful} of {total} steps{took}");
    for error in render::list(&document["executionResults"]["errors"]) {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        let head = paint.red(format!("error[{}]", part("code")));
        text.push_str(&format!("\n{head}: {}: {}", part("stepId"), part("message")));
    }
    text
}

fn took_ms(document: &Value) -> Option<f64> {
    let moment = |key: &str| document[key].as_str()?.parse::<shared::clock::Timestamp>().ok();
    let from = moment("startedAt").or_else(|| moment("createdAt"))?;
    let micros = (moment("finishedAt")? - from).num_microseconds()?;
    Some(Duration::from_micros(u64::try_from(micros).ok()?).as_secs_f64() * 1_000.0)
}

/// Shows an execution that waits for a person.
async fn waiting(
    session: &Session,
    client: &Client,
    id: &Value,
    board: &Board,
) -> Result<Ending, Failure> {
    let screen = &session.screen;
    if screen.json {
        print_document(session, client, id).await?;
        return Ok(Ending::Waiting);
    }
    let id = id.as_str().unwrap_or_default();
    screen.print(&format!("{id}  WAITING"))?;
    for step in board.persons() {
        screen.say(&format!("faber approve {id} {step}            lets it go on"));
        screen.say(&format!("faber approve {id} {step} --reject   refuses it"));
    }
    Ok(Ending::Waiting)
}

/// Says how to come back.
fn detached(session: &Session, client: &Client, id: &Value) -> Result<Ending, Failure> {
    let name = id.as_str().unwrap_or_default();
    let message = if client.is_remote() {
        format!("detached; `{name}` goes on: `faber watch {name}` watches it")
    } else {
        format!(
            "detached; `{name}` is in the store: `faber execute {name}` carries it on, \
             `faber watch {name}` watches it, `faber cancel {name}` stops it"
        )
    };
    if session.screen.json {
        return Err(Failure::new("DETACHED", message).with("executionId", id.clone()));
    }
    session.screen.say(&message);
    Ok(Ending::Detached)
}

/// Prints an execution as one document.
async fn print_document(session: &Session, client: &Client, id: &Value) -> Result<Value, Failure> {
    let shape = Shape::of(client).await?.execution();
    let query = format!("query($id: ID!) {{ execution(executionId: $id) {shape} }}");
    let document = client.field(&query, json!({ "id": id })).await?;
    session.screen.print_json(&document)?;
    Ok(document)
}

/// Closes everything; who is in a hurry says so again.
pub(super) async fn close(house: House) {
    tokio::select! {
        () = house.close() => (),
        () = signals::interrupted() => (),
    }
}
