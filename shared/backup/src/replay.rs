use std::sync::Arc;

use shared::{
    event::{Event, RecordedEvent},
    execution::Execution,
    id::{ExecutionId, PlanId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{AuditEntry, ExecutionHead, Record, SentCommand, Store, StoreError},
};

use crate::{
    entry::{Entry, LogEnd},
    recent_plans::RecentPlans,
};

#[derive(Debug)]
pub(crate) enum Item {
    /// A request, and entries of its transcript. They begin after the first `known` entries.
    Transcript {
        request: Request,
        known: usize,
        transcript: Vec<TranscriptEntry>,
    },
    Plan(Arc<Plan>),
    /// Events of a log that is not complete yet, and the head at the last of these events.
    Events {
        head: Box<ExecutionHead>,
        events: Vec<RecordedEvent>,
    },
    LogEnd {
        head: Box<ExecutionHead>,
        commands: Vec<SentCommand>,
    },
    Record(Record),
    Audit(Box<AuditEntry>),
}

#[derive(Debug)]
pub(crate) enum ReplayError {
    Wrong(String),
    Store(StoreError),
}

impl From<String> for ReplayError {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

pub(crate) struct Replay<'a> {
    plans: RecentPlans,
    /// The store that can have the plan of an imported log. `None` for a backup, because a backup
    /// contains the plan of each log.
    store: Option<&'a dyn Store>,
    request: Option<Request>,
    log: Option<Execution>,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(store: Option<&'a dyn Store>) -> Self {
        Self { plans: RecentPlans::default(), store, request: None, log: None }
    }

    pub(crate) async fn check(&mut self, entry: Entry, bytes: usize) -> Result<Item, ReplayError> {
        if let Some(log) = &self.log
            && !matches!(entry, Entry::Events { .. } | Entry::Execution(_))
        {
            return Err(format!("the log of `{}` has no end", log.id()).into());
        }
        match entry {
            Entry::Request { request, transcript } => {
                self.request = Some(request.clone());
                Ok(Item::Transcript { request, known: 0, transcript })
            }
            Entry::Transcript { request: id, known, transcript } => {
                let request = self.request.clone().filter(|request| request.id == id);
                let request = request.ok_or_else(|| format!("the request `{id}` is missing"))?;
                Ok(Item::Transcript { request, known, transcript })
            }
            Entry::Plan(plan) => {
                self.plans.add(Arc::clone(&plan), bytes);
                Ok(Item::Plan(plan))
            }
            Entry::Events { execution, events } => self.check_events(execution, events).await,
            Entry::Execution(end) => Ok(self.check_end(*end)?),
            Entry::Record(record) => {
                record.encode().map_err(|err| err.to_string())?;
                Ok(Item::Record(record))
            }
            Entry::Audit(entry) => Ok(Item::Audit(entry)),
        }
    }

    pub(crate) fn finish(&self) -> Result<(), ReplayError> {
        match &self.log {
            Some(log) => Err(format!("the log of `{}` has no end", log.id()).into()),
            None => Ok(()),
        }
    }

    async fn check_events(
        &mut self,
        id: ExecutionId,
        events: Vec<RecordedEvent>,
    ) -> Result<Item, ReplayError> {
        let wrong = |err: shared::execution::ReplayError| format!("the log of `{id}`: {err}");
        let (mut execution, new) = match self.log.take() {
            Some(log) if log.id() == id => (log, events.as_slice()),
            Some(log) => return Err(format!("the log of `{}` has no end", log.id()).into()),
            None => {
                let plan = match events.first().map(|first| &first.event) {
                    Some(Event::Created(created)) => created.plan,
                    _ => return Err(format!("the log of `{id}` has no beginning").into()),
                };
                let plan = self.find_plan(plan).await?.ok_or_else(|| {
                    format!("the plan `{plan}` does not stand before its execution `{id}`")
                })?;
                let execution = Execution::create(id, plan, &events[0]).map_err(wrong)?;
                (execution, &events[1..])
            }
        };
        for event in new {
            execution.apply(event).map_err(wrong)?;
        }
        let head = Box::new(ExecutionHead::from_execution(&execution, None, None));
        self.log = Some(execution);
        Ok(Item::Events { head, events })
    }

    fn check_end(&mut self, end: LogEnd) -> Result<Item, String> {
        let id = end.execution;
        let execution = self.log.take().filter(|log| log.id() == id);
        let execution = execution.ok_or_else(|| format!("the log of `{id}` is missing"))?;
        let found = LogEnd {
            execution: execution.id(),
            plan: execution.plan().id(),
            request: execution.request(),
            state: execution.state(),
            seq: execution.seq(),
            ..end.clone()
        };
        if found != end {
            return Err(format!("the log of `{id}` does not end as its entry says"));
        }
        if end.commands.iter().any(|command| command.execution != id) {
            return Err(format!("`{id}` has a command to another execution"));
        }
        let head = Box::new(ExecutionHead::from_execution(&execution, end.owner, end.due));
        Ok(Item::LogEnd { head, commands: end.commands })
    }

    async fn find_plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, ReplayError> {
        match (self.plans.find(id), self.store) {
            (Some(plan), _) => Ok(Some(Arc::clone(plan))),
            (None, Some(store)) => store.plan(id).await.map_err(ReplayError::Store),
            (None, None) => Ok(None),
        }
    }
}
