//! Decisions of people about calls of finished steps whose outcome is unknown. No event follows
//! `finished`, so a decision about an ended execution is a record beside the log.

use std::collections::BTreeSet;

use super::{Record, RecordKind, RecordPage, Store, StoreError, WriteCondition, load};
use crate::{
    clock::Timestamp,
    event::{CallKey, CallPlace, SettledCall, Settlement, idempotency_key},
    execution::Execution,
    id::{ExecutionId, Part, StepId, StepNumber, Task},
};

/// Maximum number of child executions that are read below one execution.
const MAX_CHILDREN: usize = 1_000;

pub fn settlement_prefix(execution: ExecutionId) -> String {
    format!("{execution}/")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCallId {
    pub execution: ExecutionId,
    pub step: StepId,
    pub item: Option<u32>,
}

impl FinishedCallId {
    fn record_name(&self) -> String {
        let part = Part { item: self.item, undo: false };
        idempotency_key(self.execution, &self.step, part)
    }

    fn from_record_name(execution: ExecutionId, name: &str) -> Option<Self> {
        let name = name.strip_prefix(&settlement_prefix(execution))?;
        let (step, item) = match name.strip_suffix(']').and_then(|open| open.rsplit_once('[')) {
            Some((step, index)) => (step, Some(index.parse().ok()?)),
            None => (name, None),
        };
        Some(Self { execution, step: step.parse().ok()?, item })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildPath {
    /// The steps that executed the plans, outermost first, each with its item if it repeats for a
    /// list.
    pub steps: Vec<(StepId, Option<u32>)>,
    pub execution: ExecutionId,
}

impl ChildPath {
    /// Returns the last child execution of each task of some steps. Children that did not succeed
    /// come first.
    pub fn of_steps(execution: &Execution, steps: &[StepNumber]) -> Vec<Self> {
        let mut found = Vec::new();
        for number in steps {
            let step = execution.step(*number);
            let items = step.items.as_deref().map_or(0, |items| items.as_slice().len());
            let items = (0..items).filter_map(|index| u32::try_from(index).ok());
            let tasks = items.map(|index| Task::from(*number).for_item(index));
            for task in tasks.chain([Task::from(*number)]) {
                let Some(state) = execution.task(task) else { continue };
                let Some(child) = state.child else { continue };
                let id = execution.plan().step(*number).id.clone();
                let path = Self { steps: vec![(id, task.part.item)], execution: child };
                found.push((state.output().is_some(), path));
            }
        }
        found.sort_by_key(|(has_succeeded, _)| *has_succeeded);
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Returns the place of a call of the child as the outermost execution sees it.
    fn place_of(&self, place: CallPlace) -> CallPlace {
        let steps = self.steps.iter().rev().cloned();
        steps.fold(place, |place, (step, item)| place.under(step, item))
    }
}

impl dyn Store + '_ {
    /// Returns the keys of `ONCE` calls with an unknown outcome, and the settled calls, of some
    /// child executions and of all executions below them. Reads at most a thousand executions and
    /// omits the others.
    pub async fn calls_of_children(
        &self,
        mut children: Vec<ChildPath>,
    ) -> Result<(Vec<CallKey>, Vec<SettledCall>), StoreError> {
        let (mut keys, mut settled) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        children.reverse();
        while let Some(path) = children.pop() {
            if seen.len() >= MAX_CHILDREN || !seen.insert(path.execution) {
                continue;
            }
            let Some(child) = self.load_settled(path.execution).await? else { continue };
            let open = child.open_call_keys().into_iter();
            keys.extend(open.map(|key| CallKey { place: path.place_of(key.place), ..key }));
            let calls = child.settled_calls().into_iter();
            settled
                .extend(calls.map(|call| SettledCall { place: path.place_of(call.place), ..call }));
            let steps: Vec<StepNumber> = (0..child.steps().len()).map(StepNumber::new).collect();
            for below in ChildPath::of_steps(&child, &steps) {
                let steps = [path.steps.clone(), below.steps].concat();
                children.push(ChildPath { steps, execution: below.execution });
            }
        }
        Ok((keys, settled))
    }

    /// Stores a decision. Returns the stored decision if the call has one already.
    pub async fn settle_call(
        &self,
        call: &FinishedCallId,
        settlement: &Settlement,
        at: Timestamp,
    ) -> Result<Option<Settlement>, StoreError> {
        let name = call.record_name();
        let record = Record::new(RecordKind::Settlement, &name, settlement, at);
        if self.put_record(&record, WriteCondition::Exists).await? {
            return Ok(None);
        }
        let found = self.find_record(RecordKind::Settlement, &name).await?;
        let found = found.as_ref().map(Record::parse_value).transpose()?;
        found.map(Some).ok_or_else(|| {
            StoreError::Unavailable(format!(
                "no majority confirms the decision `{name}`: try again"
            ))
        })
    }

    /// Adds the stored decisions to an execution. Reads nothing if no outcome is unknown.
    pub async fn add_settlements(&self, execution: &mut Execution) -> Result<(), StoreError> {
        if !execution.may_have_unknown_outcome() {
            return Ok(());
        }
        let id = execution.id();
        let page = RecordPage::first_records(usize::MAX).with_prefix(settlement_prefix(id));
        let mut settlements = Vec::new();
        for record in self.list_records(RecordKind::Settlement, page).await? {
            let Some(call) = FinishedCallId::from_record_name(id, &record.name) else { continue };
            settlements.push((call.step, call.item, record.parse_value()?));
        }
        execution.add_settlements(settlements);
        Ok(())
    }

    pub async fn load_settled(&self, id: ExecutionId) -> Result<Option<Execution>, StoreError> {
        let Some(mut execution) = load::load_execution(self, id).await? else { return Ok(None) };
        self.add_settlements(&mut execution).await?;
        Ok(Some(execution))
    }
}
