//! Starts executions, and sends them commands: cancel, pause, resume, approve, settle, signal.
//!
//! A command goes into the execution's inbox, and the worker that owns the execution applies it.

mod dry_run;

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    actor::Actor,
    clock::{Clock, Timestamp},
    event::{Created, Event, RecordedEvent, Settlement},
    execution::{Execution, ExecutionOptions},
    id::{CommandId, ExecutionId, PlanId, Seq, StepId},
    labels::{self, Labels},
    limits,
    metrics::process_metrics,
    plan::Plan,
    store::{
        Append, AppendError, Command, ExecutionHead, Reservation, SentCommand, Store, StoreError,
    },
    trace::current_scope,
};
use tokio::sync::oneshot;

use crate::{machine, worker_handle::WorkerHandle};

const MAX_ID_ATTEMPTS: usize = 8;

#[derive(Clone, Debug)]
pub struct Control {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    worker: Option<WorkerHandle>,
    actor: Option<Arc<Actor>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("there is no execution `{0}`")]
    NotFound(ExecutionId),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Invalid(String),
    /// The input of an execution or the payload of a signal has too many bytes.
    #[error("{0}")]
    LimitExceeded(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdempotencyKey {
    pub key: String,
    /// The plan's identifier, or the query. Another subject or other options under the same key are
    /// a conflict.
    pub subject: Value,
    /// The caller's `compensateOnFailure`. The options of the execution contain the value that
    /// applies.
    pub compensates: Option<bool>,
    /// The caller's labels. The options of the execution also contain the labels of its request.
    pub labels: Labels,
}

/// Separates the name of a token from its idempotency key. Such names have no control characters.
const SCOPE_END: char = '\u{1f}';

impl IdempotencyKey {
    /// Returns a key that belongs to one token. The same key of another token is another key.
    pub fn scope(token: &str, key: &str) -> String {
        // An empty key stays empty, so that it is refused.
        if key.is_empty() { String::new() } else { format!("{token}{SCOPE_END}{key}") }
    }

    pub fn plan_subject(id: PlanId) -> Value {
        Value::String(id.to_string())
    }
}

#[derive(Debug)]
pub struct Start {
    pub plan: Arc<Plan>,
    /// The first event, with the options and the outputs that are reused from another execution.
    pub created: Created,
    /// The id of the execution. If it is not set, the id of the key's execution is used, or a new
    /// id is drawn.
    pub id: Option<ExecutionId>,
    pub key: Option<IdempotencyKey>,
    /// Gets a message if the worker of this process drives the execution to its end without a
    /// break. Otherwise, for example when the execution is parked, the sender is dropped.
    pub finished: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    pub id: ExecutionId,
    /// `false` if an execution with this id or idempotency key existed already.
    pub is_new: bool,
}

enum ReservedId {
    Free(ExecutionId),
    Taken(ExecutionId),
}

impl Start {
    pub fn new(plan: &Arc<Plan>, options: ExecutionOptions) -> Self {
        let about = plan.info();
        Self::from_created(plan, Created::new(about.id, about.request, options))
    }

    pub fn from_created(plan: &Arc<Plan>, created: Created) -> Self {
        Self { plan: Arc::clone(plan), created, id: None, key: None, finished: None }
    }
}

impl Control {
    /// Creates a control. Executions start at the worker of this process, if there is one and it
    /// has a free slot.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, worker: Option<WorkerHandle>) -> Self {
        Self { store, clock, worker, actor: None }
    }

    pub fn actor(&self) -> Option<&Arc<Actor>> {
        self.actor.as_ref()
    }

    /// Returns a copy of this control whose commands and events name `actor`.
    #[must_use]
    pub fn acting_as(&self, actor: Arc<Actor>) -> Self {
        Self { actor: Some(actor), ..self.clone() }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn worker(&self) -> Option<&WorkerHandle> {
        self.worker.as_ref()
    }

    /// Returns the execution that was started under a key. Fails with a conflict if the key belongs
    /// to another plan or other options.
    pub async fn find_by_key(
        &self,
        key: &IdempotencyKey,
        options: &ExecutionOptions,
    ) -> Result<Option<ExecutionId>, ControlError> {
        let Some(found) = self.store.find_reservation(&key.key).await? else { return Ok(None) };
        self.match_reservation(&found, key, options).await
    }

    /// Returns the plan among `plans` that was started under a key before, with the same options.
    /// `compensates` is the caller's `compensateOnFailure`.
    pub async fn find_plan(
        &self,
        key: &str,
        plans: &[PlanId],
        options: &ExecutionOptions,
        compensates: Option<bool>,
    ) -> Result<Option<PlanId>, ControlError> {
        let Some(found) = self.store.find_reservation(key).await? else { return Ok(None) };
        let is_started = |plan: &&PlanId| {
            let (key, subject) = (key.to_owned(), IdempotencyKey::plan_subject(**plan));
            let labels = options.labels.clone();
            let key = IdempotencyKey { key, subject, compensates, labels };
            is_same_fingerprint(&found.fingerprint, &fingerprint(&key, options))
        };
        Ok(plans.iter().find(is_started).copied())
    }

    pub async fn start(&self, start: Start) -> Result<Started, ControlError> {
        let Start { plan, mut created, id: fixed, key, mut finished } = start;
        if created.trace.is_none() {
            created.trace = current_scope().and_then(|scope| scope.origin).map(Box::new);
        }
        validate_start(&created.options, key.as_ref())?;
        for _ in 0..MAX_ID_ATTEMPTS {
            let now = self.clock.now();
            let id = match fixed {
                Some(id) => id,
                None => match self.reserve_id(key.as_ref(), &created.options, now).await? {
                    ReservedId::Taken(id) => return Ok(Started { id, is_new: false }),
                    ReservedId::Free(id) => id,
                },
            };
            let (execution, first) =
                machine::create_execution_from(id, &plan, created.clone(), self.actor.clone(), now)
                    .map_err(|err| ControlError::Invalid(err.to_string()))?;
            match self.store_new_execution(execution, first, finished.take()).await {
                Ok(()) => return Ok(Started { id, is_new: true }),
                Err(AppendError::Conflict) if fixed.is_some() => {
                    let is_new = !self.repair_head(id, Some(&plan)).await?;
                    return Ok(Started { id, is_new });
                }
                Err(AppendError::Conflict) => {
                    if key.is_some() && self.repair_head(id, Some(&plan)).await? {
                        return Ok(Started { id, is_new: false });
                    }
                }
                Err(AppendError::Store(err)) => return Err(err.into()),
            }
        }
        Err(StoreError::Taken.into())
    }

    async fn reserve_id(
        &self,
        key: Option<&IdempotencyKey>,
        options: &ExecutionOptions,
        now: Timestamp,
    ) -> Result<ReservedId, ControlError> {
        let id = ExecutionId::draw(now);
        let Some(key) = key else { return Ok(ReservedId::Free(id)) };
        let wanted = Reservation {
            key: key.key.clone(),
            execution: id,
            fingerprint: fingerprint(key, options),
        };
        let Some(found) = self.store.reserve_key(&wanted).await? else {
            return Ok(ReservedId::Free(id));
        };
        Ok(match self.match_reservation(&found, key, options).await? {
            Some(id) => ReservedId::Taken(id),
            // Continues with the reserved id, because the process that reserved the key may have
            // crashed before it started the execution.
            None => ReservedId::Free(found.execution),
        })
    }

    /// Returns whether an execution exists. Repairs a missing head, so that a worker finds it.
    pub async fn exists(&self, id: ExecutionId) -> Result<bool, ControlError> {
        Ok(self.repair_head(id, None).await?)
    }

    /// Starts a child execution, unless it exists already. Its options come from the parent and are
    /// not validated again.
    pub(crate) async fn start_child(
        &self,
        id: ExecutionId,
        plan: &Arc<Plan>,
        created: Created,
    ) -> Result<(), StoreError> {
        let (execution, created) =
            machine::create_execution_from(id, plan, created, None, self.clock.now())
                .map_err(|err| StoreError::corrupt(id, err))?;
        match self.store_new_execution(execution, created, None).await {
            Ok(()) => Ok(()),
            Err(AppendError::Conflict) => self.repair_head(id, Some(plan)).await.map(drop),
            Err(AppendError::Store(err)) => Err(err),
        }
    }

    /// Writes the head of an execution that has a log but no head, because the process that started
    /// it may have crashed before it wrote the head. Returns whether the execution has a log.
    async fn repair_head(
        &self,
        id: ExecutionId,
        plan: Option<&Arc<Plan>>,
    ) -> Result<bool, StoreError> {
        if self.store.head(id).await?.is_some() {
            return Ok(true);
        }
        let events = self.store.read(id, Seq::START).await?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(false) };
        let plan = match plan.filter(|plan| has_plan(first, plan.id())) {
            Some(plan) => Arc::clone(plan),
            // Reads the plan that the log names, because the caller gave no plan, or a concurrent
            // start with another plan was first.
            None => self.load_plan(id, first).await?,
        };
        let replay = |known: &[RecordedEvent]| {
            let replayed = Execution::replay(id, Arc::clone(&plan), known);
            replayed.map_err(|err| StoreError::corrupt(id, err))
        };
        let mut execution = replay(if last.event.is_last() { &events } else { &events[..1] })?;
        if last.event.is_last() && execution.has_follow_up() {
            // The execution has finished, but its parent was not notified, or its replan is
            // missing. An unfinished head lets a worker claim it and do that.
            execution = replay(&events[..1])?;
        }
        let due = execution.options().start_at.unwrap_or(first.at);
        self.store.put_head(ExecutionHead::from_execution(&execution, None, Some(due))).await?;
        self.store.hints().wake_work();
        Ok(true)
    }

    async fn load_plan(
        &self,
        id: ExecutionId,
        first: &RecordedEvent,
    ) -> Result<Arc<Plan>, StoreError> {
        let Event::Created(created) = &first.event else {
            return Err(StoreError::corrupt(id, "its log does not begin with `created`"));
        };
        let missing = || format!("its plan `{}` is not in the store", created.plan);
        let plan = self.store.plan(created.plan).await?;
        plan.ok_or_else(|| StoreError::corrupt(id, missing()))
    }

    async fn store_new_execution(
        &self,
        execution: Execution,
        created: RecordedEvent,
        finished: Option<oneshot::Sender<()>>,
    ) -> Result<(), AppendError> {
        let is_due =
            execution.options().start_at.is_none_or(|start_at| start_at <= self.clock.now());
        let (execution, created) = match &self.worker {
            Some(worker) if is_due => {
                match worker.start_execution(execution, created, finished).await {
                    Ok(answer) => return answer,
                    Err((execution, created)) => (*execution, *created),
                }
            }
            _ => (execution, created),
        };
        let due = execution.options().start_at.unwrap_or(created.at);
        let head = ExecutionHead::from_execution(&execution, None, Some(due));
        let mut append = Append::new(execution.id(), Seq::START, &[created]);
        append.head = Some(head);
        self.store.append(append).await?;
        process_metrics().count_start();
        self.store.hints().wake_work();
        Ok(())
    }

    /// Returns the execution of a reservation if it has started. Fails if the reservation was made
    /// for another request, which has another fingerprint.
    async fn match_reservation(
        &self,
        found: &Reservation,
        key: &IdempotencyKey,
        options: &ExecutionOptions,
    ) -> Result<Option<ExecutionId>, ControlError> {
        let id = found.execution;
        let is_same = is_same_fingerprint(&found.fingerprint, &fingerprint(key, options));
        let has_begun = self.store.head(id).await?.is_some();
        // The fingerprint does not distinguish `false` from a value that was left out, so that
        // fingerprints of earlier versions match.
        if !is_same
            || key.compensates == Some(false) && has_begun && self.is_compensating(id).await?
        {
            let shown = found.key.split_once(SCOPE_END).map_or(&*found.key, |(_, shown)| shown);
            let reason = format!(
                "the idempotency key `{shown}` belongs to `{id}`, which has another plan or other \
                 options: use another key"
            );
            return Err(ControlError::Conflict(reason));
        }
        Ok(has_begun.then_some(id))
    }

    async fn is_compensating(&self, id: ExecutionId) -> Result<bool, StoreError> {
        let events = self.store.read(id, Seq::START).await?;
        Ok(matches!(events.first().map(|first| &first.event),
            Some(Event::Created(created)) if created.options.compensate_on_failure))
    }

    /// Cancels an execution. Does nothing if it has ended.
    pub async fn cancel(
        &self,
        id: ExecutionId,
        reason: Option<String>,
    ) -> Result<(), ControlError> {
        check_text("reason", reason.as_deref())?;
        if self.require_head(id).await?.state.is_finished() {
            return Ok(());
        }
        self.send(id, Command::Cancel { reason }).await
    }

    pub async fn pause(&self, id: ExecutionId) -> Result<(), ControlError> {
        self.check_unfinished(id).await?;
        self.send(id, Command::Pause).await
    }

    pub async fn resume(&self, id: ExecutionId) -> Result<(), ControlError> {
        self.check_unfinished(id).await?;
        self.send(id, Command::Resume).await
    }

    pub async fn approve(
        &self,
        id: ExecutionId,
        step: StepId,
        item: Option<u32>,
        approved: bool,
        comment: Option<String>,
    ) -> Result<(), ControlError> {
        check_text("comment", comment.as_deref())?;
        self.check_unfinished(id).await?;
        self.send(id, Command::Approve { step, item, approved, comment }).await
    }

    /// Settles a step that waits because the outcome of its call is unknown, or an item of such a
    /// step.
    pub async fn settle(
        &self,
        id: ExecutionId,
        step: StepId,
        item: Option<u32>,
        decision: Settlement,
    ) -> Result<(), ControlError> {
        check_text("comment", decision.comment.as_deref())?;
        self.check_unfinished(id).await?;
        self.send(id, Command::Settle { step, item, decision }).await
    }

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
        if shared::json::json_size(&payload) > limits::OUTPUT_BYTES {
            let limit = limits::OUTPUT_BYTES;
            return Err(ControlError::LimitExceeded(format!(
                "`payload` has more than {limit} bytes"
            )));
        }
        if shared::json::is_deeper_than(&payload, limits::JSON_DEPTH) {
            let limit = limits::JSON_DEPTH;
            return Err(ControlError::Invalid(format!(
                "`payload` is nested deeper than {limit} levels"
            )));
        }
        self.check_unfinished(id).await?;
        self.send(id, Command::Signal { name, payload: Arc::new(payload) }).await
    }

    /// Sends a command without checking the state of the execution.
    pub(crate) async fn send_command(
        &self,
        execution: ExecutionId,
        command: Command,
    ) -> Result<(), StoreError> {
        let at = self.clock.now();
        let (id, by) = (CommandId::draw(at), self.actor.clone());
        let envelope = SentCommand { id, execution, at, by, command };
        self.store.send_command(envelope).await?;
        self.store.hints().wake_inbox();
        Ok(())
    }

    async fn send(&self, execution: ExecutionId, command: Command) -> Result<(), ControlError> {
        Ok(self.send_command(execution, command).await?)
    }

    async fn require_head(&self, id: ExecutionId) -> Result<ExecutionHead, ControlError> {
        self.store.head(id).await?.ok_or(ControlError::NotFound(id))
    }

    async fn check_unfinished(&self, id: ExecutionId) -> Result<(), ControlError> {
        let head = self.require_head(id).await?;
        if head.state.is_finished() {
            let reason = format!("`{id}` is {}: it can no longer be changed", head.state.as_str());
            return Err(ControlError::Conflict(reason));
        }
        Ok(())
    }
}

fn has_plan(first: &RecordedEvent, plan: PlanId) -> bool {
    matches!(&first.event, Event::Created(created) if created.plan == plan)
}

/// Returns the text that is stored with a key: the subject, and the options as the caller gave
/// them.
fn fingerprint(key: &IdempotencyKey, options: &ExecutionOptions) -> String {
    let replans = options.replans.caller_options();
    let compensate_on_failure = key.compensates.unwrap_or(false);
    let labels = key.labels.clone();
    let options = ExecutionOptions { replans, compensate_on_failure, labels, ..options.clone() };
    format_fingerprint(&key.subject, options)
}

fn format_fingerprint(subject: &Value, options: ExecutionOptions) -> String {
    let mut options = serde_json::to_value(options).expect("options are JSON");
    // Sorts the fields, because their order does not matter.
    options.sort_all_objects();
    json!([subject, options]).to_string()
}

/// Compares a stored fingerprint with a new fingerprint. A fingerprint of a layout before version 6
/// has other names of options, so this function converts it first.
fn is_same_fingerprint(stored: &str, new: &str) -> bool {
    let renew = || {
        let (subject, options) = serde_json::from_str::<(Value, ExecutionOptions)>(stored).ok()?;
        Some(format_fingerprint(&subject, options))
    };
    stored == new || renew().is_some_and(|renewed| renewed == new)
}

fn validate_start(
    options: &ExecutionOptions,
    key: Option<&IdempotencyKey>,
) -> Result<(), ControlError> {
    check_text("idempotencyKey", key.map(|key| key.key.as_str()))?;
    if key.is_some_and(|key| key.key.is_empty()) {
        return Err(ControlError::Invalid("`idempotencyKey` must not be empty".to_owned()));
    }
    if shared::json::json_size(&options.input) > limits::OUTPUT_BYTES {
        let limit = limits::OUTPUT_BYTES;
        return Err(ControlError::LimitExceeded(format!("`input` has more than {limit} bytes")));
    }
    if shared::json::is_deeper_than(&options.input, limits::JSON_DEPTH) {
        let limit = limits::JSON_DEPTH;
        return Err(ControlError::Invalid(format!("`input` is nested deeper than {limit} levels")));
    }
    if options.max_parallel == Some(0) {
        return Err(ControlError::Invalid("`maxParallel` must be at least 1".to_owned()));
    }
    labels::check_with_token(&options.labels).map_err(ControlError::Invalid)
}

fn check_text(field: &str, text: Option<&str>) -> Result<(), ControlError> {
    if text.is_some_and(|text| text.len() > limits::TEXT_BYTES) {
        let reason = format!("`{field}` has more than {} bytes", limits::TEXT_BYTES);
        return Err(ControlError::Invalid(reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shared::{
        clock::WallClock,
        execution::ReplanOptions,
        store::{Documents, Log, memory::Memory},
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

    /// Two replans start the same execution, and the first replan crashes after it wrote the log
    /// and before it wrote the head.
    #[tokio::test]
    async fn a_start_with_a_known_id_continues_with_the_plan_of_its_log() {
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(WallClock));
        let (theirs, ours) = (plan("plan_1_aaaaaaaaa"), plan("plan_1_bbbbbbbbb"));
        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let created = |plan: &Arc<Plan>| {
            Created::new(plan.id(), plan.info().request, ExecutionOptions::default())
        };
        let (now, id) = (control.clock.now(), ExecutionId::draw(control.clock.now()));
        assert_eq!(control.exists(id).await, Ok(false));
        let (execution, first) =
            machine::create_execution_from(id, &theirs, created(&theirs), None, now).unwrap();
        store.append(Append::new(id, Seq::START, &[first])).await.unwrap();
        let start = || Start { id: Some(id), ..Start::from_created(&ours, created(&ours)) };
        let lost = control.start(start()).await.unwrap_err();
        assert!(lost.to_string().contains("its plan `plan_1_aaaaaaaaa`"), "{lost}");
        store.put_plan(&theirs).await.unwrap();
        assert_eq!(control.start(start()).await, Ok(Started { id, is_new: false }));
        let head = store.head(id).await.unwrap().expect("a worker finds it");
        assert_eq!((head.plan, head.due), (execution.plan().id(), Some(now)));
        assert_eq!(control.exists(id).await, Ok(true));
    }

    /// Older versions stored the same text for `compensateOnFailure: false` and for a missing
    /// `compensateOnFailure`.
    #[tokio::test]
    async fn an_idempotency_key_of_an_older_version_matches_a_missing_value() {
        let (store, clock, plan) =
            (Arc::new(Memory::new()), Arc::new(WallClock), plan("plan_1_aaaaaaaaa"));
        let id = ExecutionId::draw(clock.now());
        let fingerprint = r#"["plan_1_aaaaaaaaa",{"deadline_ms":60000,"mode":"PARALLEL","replans":{"after_failure":false,"left":2}}]"#.to_owned();
        let stored = Reservation { key: "k".to_owned(), execution: id, fingerprint };
        (&*store as &dyn Store).reserve_key(&stored).await.unwrap();
        let control = Control::new(Arc::<Memory>::clone(&store), clock, None);
        let start = |compensates: Option<bool>, decided| {
            let subject = IdempotencyKey::plan_subject(plan.id());
            let (key, labels) = ("k".to_owned(), Labels::new());
            let key = IdempotencyKey { key, subject, compensates, labels };
            let replans = ReplanOptions { left: 2, ..ReplanOptions::default() };
            let options = ExecutionOptions {
                compensate_on_failure: decided,
                deadline_ms: Some(60_000),
                replans,
                ..ExecutionOptions::default()
            };
            control.start(Start { key: Some(key), ..Start::new(&plan, options) })
        };
        assert_eq!(start(None, true).await, Ok(Started { id, is_new: true }));
        for (compensates, decided, fits) in [
            (None, true, true),
            // Another version of Faber chose a different default for the same plan.
            (None, false, true),
            (Some(true), true, false),
            (Some(false), false, false),
        ] {
            let started = start(compensates, decided).await;
            if fits {
                assert_eq!(started, Ok(Started { id, is_new: false }));
            } else {
                assert!(
                    matches!(started, Err(ControlError::Conflict(_))),
                    "{compensates:?} {started:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_too_large_signal_or_input_is_rejected() {
        let (store, clock) = (Arc::new(Memory::new()), Arc::new(WallClock));
        let id = ExecutionId::draw(clock.now());
        let control = Control::new(store, clock, None);
        let large = Value::from("x".repeat(limits::OUTPUT_BYTES));
        let refused = control.signal(id, "s".to_owned(), large.clone()).await;
        assert!(matches!(refused, Err(ControlError::LimitExceeded(_))), "{refused:?}");
        let options = ExecutionOptions { input: Arc::new(large), ..ExecutionOptions::default() };
        let refused = validate_start(&options, None);
        assert!(matches!(refused, Err(ControlError::LimitExceeded(_))), "{refused:?}");
    }
}
