//! What people and programs ask for: start, cancel, pause, resume, approve, signal.
//!
//! Starting writes the log's first event, or lets a worker of this process do so together with
//! its claim. Everything else goes into the execution's inbox and is acknowledged when that is
//! durable; the owner, wherever it is, records it.

mod again;
mod dry;

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    clock::Clock,
    event::{Created, Event, Recorded},
    execution::{Execution, ExecutionOptions},
    id::{CommandId, ExecutionId, PlanId, Seq, StepId},
    limits,
    plan::Plan,
    store::{Append, AppendError, Command, Envelope, Head, Reservation, Store, StoreError},
};
use tokio::sync::oneshot;

pub use self::again::{AgainError, RetryScope, again, is_alike, kept_steps, onward, stay};
use crate::{machine, worker::Handle};

/// How often an identifier that is taken is drawn again. Once is already a wonder.
const DRAWS: usize = 8;

/// Starts executions and tells them things.
#[derive(Clone, Debug)]
pub struct Control {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    worker: Option<Handle>,
}

/// Why something that was asked for did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No execution has this identifier.
    #[error("there is no execution `{0}`")]
    NotFound(ExecutionId),
    /// It does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// It could not be right, whatever is there.
    #[error("{0}")]
    Invalid(String),
    /// It is more than there may be.
    #[error("{0}")]
    TooMuch(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A key under which something is asked for at most once, and what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct IdempotencyKey {
    /// The key.
    pub key: String,
    /// What was asked for, besides the options: the plan's identifier, or the query.
    pub subject: Value,
}

impl IdempotencyKey {
    /// Returns what is asked for where that is a plan.
    pub fn plan(id: PlanId) -> Value {
        Value::String(id.to_string())
    }
}

/// Where an execution is to begin.
enum Place {
    /// Under this identifier.
    Free(ExecutionId),
    /// It is this one, and has begun.
    Taken(ExecutionId),
}

impl Control {
    /// Makes a control over a store. With a worker of this process, executions begin there.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, worker: Option<Handle>) -> Self {
        Self { store, clock, worker }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the worker of this process, if there is one.
    pub fn worker(&self) -> Option<&Handle> {
        self.worker.as_ref()
    }

    /// Returns the execution that a key stands for, if the same was asked for before.
    pub async fn find(
        &self,
        key: &IdempotencyKey,
        options: &ExecutionOptions,
    ) -> Result<Option<ExecutionId>, ControlError> {
        let Some(found) = self.store.reservation(&key.key).await? else { return Ok(None) };
        self.recognise(&found, &fingerprint(key, options)).await
    }

    /// Returns which of `plans` a key stands for, if one of them was asked for under it before, with
    /// the same options.
    pub async fn chosen(
        &self,
        key: &str,
        plans: &[PlanId],
        options: &ExecutionOptions,
    ) -> Result<Option<PlanId>, ControlError> {
        let Some(found) = self.store.reservation(key).await? else { return Ok(None) };
        let is_it = |it: &&PlanId| {
            let (key, subject) = (key.to_owned(), IdempotencyKey::plan(**it));
            fingerprint(&IdempotencyKey { key, subject }, options) == found.fingerprint
        };
        Ok(plans.iter().find(is_it).copied())
    }

    /// Starts an execution of `plan`. It returns once that is durable.
    pub async fn start(
        &self,
        plan: &Arc<Plan>,
        options: ExecutionOptions,
        key: Option<&IdempotencyKey>,
    ) -> Result<ExecutionId, ControlError> {
        self.start_with(plan, options, key, None).await
    }

    /// Starts an execution that a worker of this process is to say the end of, once that is
    /// durable. Where another worker ends it, the sender is dropped.
    pub async fn start_and_tell(
        &self,
        plan: &Arc<Plan>,
        options: ExecutionOptions,
        key: Option<&IdempotencyKey>,
        over: oneshot::Sender<()>,
    ) -> Result<ExecutionId, ControlError> {
        self.start_with(plan, options, key, Some(over)).await
    }

    async fn start_with(
        &self,
        plan: &Arc<Plan>,
        options: ExecutionOptions,
        key: Option<&IdempotencyKey>,
        mut over: Option<oneshot::Sender<()>>,
    ) -> Result<ExecutionId, ControlError> {
        validate(&options, key)?;
        for _ in 0..DRAWS {
            let now = self.clock.now();
            let id = match self.place(key, &options, ExecutionId::draw(now)).await? {
                Place::Taken(id) => return Ok(id),
                Place::Free(id) => id,
            };
            let (execution, created) = machine::create(id, plan, options.clone(), now);
            let begun = self.begin(execution, created, over.take()).await;
            if self.has_begun(id, plan, key, begun).await? {
                return Ok(id);
            }
        }
        Err(StoreError::Taken.into())
    }

    /// Returns where an execution is to begin: under the identifier that its key stands for, or
    /// under a new one, which is `id`.
    async fn place(
        &self,
        key: Option<&IdempotencyKey>,
        options: &ExecutionOptions,
        id: ExecutionId,
    ) -> Result<Place, ControlError> {
        let Some(key) = key else { return Ok(Place::Free(id)) };
        let fingerprint = fingerprint(key, options);
        let wanted = Reservation { key: key.key.clone(), execution: id, fingerprint };
        let Some(found) = self.store.reserve(&wanted).await? else { return Ok(Place::Free(id)) };
        Ok(match self.recognise(&found, &wanted.fingerprint).await? {
            Some(id) => Place::Taken(id),
            // Reserved, but whoever did so was lost before it began.
            None => Place::Free(found.execution),
        })
    }

    /// Returns whether an execution has begun, here or, under its key, by whoever was faster.
    async fn has_begun(
        &self,
        id: ExecutionId,
        plan: &Arc<Plan>,
        key: Option<&IdempotencyKey>,
        begun: Result<(), AppendError>,
    ) -> Result<bool, ControlError> {
        match begun {
            Ok(()) => Ok(true),
            Err(AppendError::Conflict) => Ok(key.is_some() && self.mend(id, Some(plan)).await?),
            Err(AppendError::Store(err)) => Err(err.into()),
        }
    }

    /// Starts an execution that takes outputs over from another one.
    pub async fn start_as(
        &self,
        plan: &Arc<Plan>,
        created: Created,
    ) -> Result<ExecutionId, ControlError> {
        validate(&created.options, None)?;
        for _ in 0..DRAWS {
            let now = self.clock.now();
            let id = ExecutionId::draw(now);
            let (execution, created) = machine::create_as(id, plan, created.clone(), now)
                .map_err(|err| ControlError::Invalid(err.to_string()))?;
            match self.begin(execution, created, None).await {
                Ok(()) => return Ok(id),
                Err(AppendError::Conflict) => (),
                Err(AppendError::Store(err)) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }

    /// Starts an execution that takes outputs over from another one, under an identifier of the
    /// caller's. Returns whether it was not there already: then that one goes on.
    pub async fn start_under(
        &self,
        id: ExecutionId,
        plan: &Arc<Plan>,
        created: Created,
    ) -> Result<bool, ControlError> {
        validate(&created.options, None)?;
        let (execution, created) = machine::create_as(id, plan, created, self.clock.now())
            .map_err(|err| ControlError::Invalid(err.to_string()))?;
        match self.begin(execution, created, None).await {
            Ok(()) => Ok(true),
            Err(AppendError::Conflict) => Ok(!self.is_begun(id).await?),
            Err(AppendError::Store(err)) => Err(err.into()),
        }
    }

    /// Returns whether an execution has begun under an identifier of the caller's. If whoever began
    /// it was lost before anybody could find it, it is found from now on.
    pub async fn is_begun(&self, id: ExecutionId) -> Result<bool, ControlError> {
        Ok(self.mend(id, None).await?)
    }

    /// Starts an execution under an identifier of the caller's, unless it is there already.
    pub(crate) async fn bear(
        &self,
        id: ExecutionId,
        plan: &Arc<Plan>,
        created: Created,
    ) -> Result<(), StoreError> {
        let (execution, created) = machine::create_as(id, plan, created, self.clock.now())
            .map_err(|err| StoreError::corrupt(id, err))?;
        match self.begin(execution, created, None).await {
            Ok(()) => Ok(()),
            Err(AppendError::Conflict) => self.mend(id, Some(plan)).await.map(drop),
            Err(AppendError::Store(err)) => Err(err),
        }
    }

    /// Makes sure that an execution that has a log has a head too: whoever began it may have been
    /// lost in between, and nobody would ever find it. Returns whether there is a log. `at_hand` is
    /// what is probably its plan.
    async fn mend(&self, id: ExecutionId, at_hand: Option<&Arc<Plan>>) -> Result<bool, StoreError> {
        if self.store.head(id).await?.is_some() {
            return Ok(true);
        }
        let events = self.store.read(id, Seq::START).await?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(false) };
        let plan = match at_hand.filter(|it| is_of(first, it.id())) {
            Some(plan) => Arc::clone(plan),
            // Whoever was faster had another one: what it began goes on.
            None => self.plan_of(id, first).await?,
        };
        let replay = |known: &[Recorded]| {
            let replayed = Execution::replay(id, Arc::clone(&plan), known);
            replayed.map_err(|err| StoreError::corrupt(id, err))
        };
        let mut execution = replay(if last.event.is_last() { &events } else { &events[..1] })?;
        if last.event.is_last() && execution.leaves_something() {
            // A worker finds out that it is over, and does what is left to do.
            execution = replay(&events[..1])?;
        }
        let due = execution.options().start_at.unwrap_or(first.at);
        self.store.put_head(Head::of(&execution, None, Some(due))).await?;
        self.store.hints().poke_work();
        Ok(true)
    }

    /// Returns the plan of a log.
    async fn plan_of(&self, id: ExecutionId, first: &Recorded) -> Result<Arc<Plan>, StoreError> {
        let Event::Created(created) = &first.event else {
            return Err(StoreError::corrupt(id, "its log does not begin with `created`"));
        };
        let missing = || format!("its plan `{}` is not in the store", created.plan);
        let plan = self.store.plan(created.plan).await?;
        plan.ok_or_else(|| StoreError::corrupt(id, missing()))
    }

    async fn begin(
        &self,
        execution: Execution,
        created: Recorded,
        over: Option<oneshot::Sender<()>>,
    ) -> Result<(), AppendError> {
        let is_due = execution.options().start_at.is_none_or(|it| it <= self.clock.now());
        let (execution, created) = match &self.worker {
            Some(worker) if is_due => match worker.begin(execution, created, over).await {
                Ok(answer) => return answer,
                Err((execution, created)) => (*execution, *created),
            },
            _ => (execution, created),
        };
        let due = execution.options().start_at.unwrap_or(created.at);
        let head = Head::of(&execution, None, Some(due));
        let mut append = Append::new(execution.id(), Seq::START, &[created]);
        append.head = Some(head);
        self.store.append(append).await?;
        self.store.hints().poke_work();
        Ok(())
    }

    /// Returns the execution of a reservation, if it has begun and is of the same request.
    async fn recognise(
        &self,
        found: &Reservation,
        fingerprint: &str,
    ) -> Result<Option<ExecutionId>, ControlError> {
        if found.fingerprint != fingerprint {
            let why = format!(
                "the idempotency key `{}` stands for `{}`, which was asked for with another plan \
                 or other options: use another key",
                found.key, found.execution
            );
            return Err(ControlError::Conflict(why));
        }
        let has_begun = self.store.head(found.execution).await?.is_some();
        Ok(has_begun.then_some(found.execution))
    }

    /// Asks an execution to stop. One that is over stays as it is.
    pub async fn cancel(
        &self,
        id: ExecutionId,
        reason: Option<String>,
    ) -> Result<(), ControlError> {
        check_text("reason", reason.as_deref())?;
        if self.head(id).await?.state.is_over() {
            return Ok(());
        }
        self.send(id, Command::Cancel { reason }).await
    }

    /// Asks an execution to begin no further step.
    pub async fn pause(&self, id: ExecutionId) -> Result<(), ControlError> {
        self.open(id).await?;
        self.send(id, Command::Pause).await
    }

    /// Asks an execution to go on.
    pub async fn resume(&self, id: ExecutionId) -> Result<(), ControlError> {
        self.open(id).await?;
        self.send(id, Command::Resume).await
    }

    /// Lets a step that waits for a person go on, or not.
    pub async fn approve(
        &self,
        id: ExecutionId,
        (step, item): (StepId, Option<u32>),
        approved: bool,
        comment: Option<String>,
    ) -> Result<(), ControlError> {
        check_text("comment", comment.as_deref())?;
        self.open(id).await?;
        self.send(id, Command::Approve { step, item, approved, comment }).await
    }

    /// Tells an execution something that a step waits for, or may wait for later.
    pub async fn signal(
        &self,
        id: ExecutionId,
        name: String,
        payload: Value,
    ) -> Result<(), ControlError> {
        check_text("name", Some(&name))?;
        if name.is_empty() {
            return Err(ControlError::Invalid("a signal needs a `name`".to_owned()));
        }
        if shared::json::bytes(&payload) > limits::OUTPUT_BYTES {
            let most = limits::OUTPUT_BYTES;
            return Err(ControlError::TooMuch(format!("`payload` has more than {most} bytes")));
        }
        if shared::json::is_deeper_than(&payload, limits::JSON_DEPTH) {
            let most = limits::JSON_DEPTH;
            return Err(ControlError::Invalid(format!("`payload` is nested deeper than {most}")));
        }
        self.open(id).await?;
        self.send(id, Command::Signal { name, payload: Arc::new(payload) }).await
    }

    /// Asks an execution to do something, whatever state it is in.
    pub(crate) async fn tell(
        &self,
        execution: ExecutionId,
        command: Command,
    ) -> Result<(), StoreError> {
        let at = self.clock.now();
        let envelope = Envelope { id: CommandId::draw(at), execution, at, command };
        self.store.send(envelope).await?;
        self.store.hints().poke_inbox();
        Ok(())
    }

    async fn send(&self, execution: ExecutionId, command: Command) -> Result<(), ControlError> {
        Ok(self.tell(execution, command).await?)
    }

    async fn head(&self, id: ExecutionId) -> Result<Head, ControlError> {
        self.store.head(id).await?.ok_or(ControlError::NotFound(id))
    }

    async fn open(&self, id: ExecutionId) -> Result<Head, ControlError> {
        let head = self.head(id).await?;
        if head.state.is_over() {
            let why = format!("`{id}` is {}: it can no longer be changed", head.state.as_str());
            return Err(ControlError::Conflict(why));
        }
        Ok(head)
    }
}

fn is_of(first: &Recorded, plan: PlanId) -> bool {
    matches!(&first.event, Event::Created(it) if it.plan == plan)
}

fn fingerprint(key: &IdempotencyKey, options: &ExecutionOptions) -> String {
    let replans = options.replans.as_asked();
    let options = ExecutionOptions { replans, ..options.clone() };
    let mut options = serde_json::to_value(options).expect("options are JSON");
    // The same input is the same, however its fields are ordered.
    options.sort_all_objects();
    json!([key.subject, options]).to_string()
}

fn validate(options: &ExecutionOptions, key: Option<&IdempotencyKey>) -> Result<(), ControlError> {
    check_text("idempotencyKey", key.map(|it| it.key.as_str()))?;
    if key.is_some_and(|it| it.key.is_empty()) {
        return Err(ControlError::Invalid("`idempotencyKey` must not be empty".to_owned()));
    }
    if shared::json::bytes(&options.input) > limits::OUTPUT_BYTES {
        let most = limits::OUTPUT_BYTES;
        return Err(ControlError::TooMuch(format!("`input` has more than {most} bytes")));
    }
    if shared::json::is_deeper_than(&options.input, limits::JSON_DEPTH) {
        let most = limits::JSON_DEPTH;
        return Err(ControlError::Invalid(format!("`input` is nested deeper than {most}")));
    }
    if options.max_parallel == Some(0) {
        return Err(ControlError::Invalid("`maxParallel` must be at least 1".to_owned()));
    }
    Ok(())
}

fn check_text(what: &str, text: Option<&str>) -> Result<(), ControlError> {
    if text.is_some_and(|it| it.len() > limits::TEXT_BYTES) {
        let why = format!("`{what}` has more than {} bytes", limits::TEXT_BYTES);
        return Err(ControlError::Invalid(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shared::{
        clock::WallClock,
        store::{Documents, ExecutionLog, memory::Memory},
    };

    use super::*;

    fn plan(id: &str) -> Arc<Plan> {
        let plan = json!({
            "about": {
                "id": id, "request": "req_1_aaaaaaaaa", "version": 1, "query": "q",
                "planner": "explicit", "created_at": 0,
            },
            "steps": [{ "id": id, "tool": "flow.noop", "parameters": {}, "policy": {} }],
        });
        Arc::new(Plan::from_json(&plan.to_string()).unwrap())
    }

    /// Two plan anew at the same time, and the faster one is lost between the log and the head.
    #[tokio::test]
    async fn what_was_begun_under_an_identifier_goes_on_with_its_own_plan() {
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(WallClock));
        let (theirs, ours) = (plan("plan_1_aaaaaaaaa"), plan("plan_1_bbbbbbbbb"));
        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let created = |plan: &Arc<Plan>| {
            Created::new(plan.id(), plan.about().request, ExecutionOptions::default())
        };
        let (now, id) = (control.clock.now(), ExecutionId::draw(control.clock.now()));
        assert_eq!(control.is_begun(id).await, Ok(false));
        let (execution, first) = machine::create_as(id, &theirs, created(&theirs), now).unwrap();
        store.append(Append::new(id, Seq::START, &[first])).await.unwrap();
        let lost = control.start_under(id, &ours, created(&ours)).await.unwrap_err();
        assert!(lost.to_string().contains("its plan `plan_1_aaaaaaaaa`"), "{lost}");
        store.put_plan(&theirs).await.unwrap();
        assert_eq!(control.start_under(id, &ours, created(&ours)).await, Ok(false));
        let head = store.head(id).await.unwrap().expect("a worker finds it");
        assert_eq!((head.plan, head.due), (execution.plan().id(), Some(now)));
        assert_eq!(control.is_begun(id).await, Ok(true));
    }

    #[tokio::test]
    async fn what_is_too_large_is_said_to_be_whoever_sends_it() {
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(WallClock));
        let id = ExecutionId::draw(clock.now());
        let control = Control::new(store, clock, None);
        let large = Value::from("x".repeat(limits::OUTPUT_BYTES));
        let refused = control.signal(id, "s".to_owned(), large.clone()).await;
        assert!(matches!(refused, Err(ControlError::TooMuch(_))), "{refused:?}");
        let options = ExecutionOptions { input: Arc::new(large), ..ExecutionOptions::default() };
        let refused = validate(&options, None);
        assert!(matches!(refused, Err(ControlError::TooMuch(_))), "{refused:?}");
    }
}
