//! What people do: they cancel, pause, go on, agree, refuse and send signals, and they are
//! promised that it will be heard once they were told so.

use std::collections::{BTreeMap, BTreeSet};

use executor::machine;
use planner::reuse::{RetryScope, create_retry};
use serde_json::json;
use shared::{
    clock::{Clock, Timestamp},
    event::{Event, Settled, Settlement, WaitReason},
    execution::{Execution, StepState},
    id::{ExecutionId, Seq, Task},
    store::{Append, Command, ExecutionHead, Log},
};

use super::Simulation;

/// How often a person wants a step tried, at most, once all is calm.
const PATIENCE: u32 = 12;

/// Something that was acknowledged.
pub(super) struct Told {
    execution: ExecutionId,
    command: Command,
}

impl Simulation {
    /// Lets somebody tell an execution something.
    pub(super) async fn tell_something(&mut self) {
        let all = self.all().await;
        if all.is_empty() {
            return;
        }
        let id = all[self.world.dice.index(all.len())];
        if self.world.dice.happens(200) {
            return self.do_again(id).await;
        }
        let command = match self.world.dice.below(100) {
            0..4 => Command::Cancel { reason: None },
            4..14 => Command::Pause,
            14..30 => Command::Resume,
            30..50 => self.signal(),
            50..75 => {
                let step = format!("s{}", self.world.dice.below(8)).parse().expect("well-formed");
                let approved = self.world.dice.happens(800);
                let item = self.world.dice.happens(300).then_some(1);
                Command::Approve { step, item, approved, comment: None }
            }
            75..85 => {
                let step = format!("s{}", self.world.dice.below(8)).parse().expect("well-formed");
                let item = self.world.dice.happens(300).then_some(1);
                Command::Settle { step, item, decision: self.decision() }
            }
            _ => return,
        };
        self.tell(id, command).await;
    }

    /// Does an ended execution again, from some step on or from the start.
    async fn do_again(&mut self, id: ExecutionId) {
        let Some(ended) = self.state(id).await else { return };
        let steps = ended.plan().steps();
        let from = steps.get(self.world.dice.index(1 + steps.len())).map(|step| step.id.as_str());
        if ended.parent().is_some() {
            return;
        }
        let scope = from.map_or(RetryScope::All, RetryScope::FromStep);
        let Ok(created) = create_retry(&ended, scope) else { return };
        self.again += 1;
        let id = format!("exec_{}_simulated", 100 + self.again).parse().expect("well-formed");
        let now = self.world.clock.now();
        let (execution, created) = machine::create_execution_from(id, ended.plan(), created, now)
            .expect("what is done again can begin");
        let mut append = Append::new(id, Seq::START, &[created]);
        append.head = Some(ExecutionHead::from_execution(&execution, None, Some(now)));
        self.world.truth.append(append).await.expect("the truth does not lie");
        self.begun(id);
    }

    /// Says what became of a call.
    fn decision(&mut self) -> Settlement {
        if self.world.dice.happens(500) {
            let output = Some(json!({ "settled": self.told.len() }).into());
            return Settlement { outcome: Settled::Succeeded, output, comment: None };
        }
        Settlement { outcome: Settled::Failed, output: None, comment: None }
    }

    fn signal(&self) -> Command {
        let name = format!("go{}", self.world.dice.below(2));
        let payload = json!(self.told.len()).into();
        Command::Signal { name, payload }
    }

    async fn tell(&mut self, id: ExecutionId, command: Command) {
        let control = self.control(&self.client, None);
        let answer = match command.clone() {
            Command::Cancel { reason } => control.cancel(id, reason).await,
            Command::Pause => control.pause(id).await,
            Command::Resume => control.resume(id).await,
            Command::Approve { step, item, approved, comment } => {
                control.approve(id, step, item, approved, comment).await
            }
            Command::Settle { step, item, decision } => {
                control.settle(id, step, item, decision).await
            }
            Command::ChildEnded { .. } => return,
            Command::Signal { name, payload } => control.signal(id, name, (*payload).clone()).await,
        };
        if answer.is_ok() {
            self.told.push(Told { execution: id, command });
        }
    }

    /// Does for an execution what a person would, and returns whether it is over.
    pub(super) async fn help(&mut self, id: ExecutionId) -> bool {
        let Some(execution) = self.state(id).await else { return false };
        if execution.state().is_finished() {
            return true;
        }
        if execution.is_paused() {
            self.tell(id, Command::Resume).await;
        }
        for command in wanted(&execution) {
            self.tell(id, command).await;
        }
        false
    }

    /// Checks that what was acknowledged before the calm was heard, unless the end came first.
    pub(super) async fn check_told(&mut self, calm: Timestamp) {
        let told = std::mem::take(&mut self.told);
        let mut traces: BTreeMap<ExecutionId, usize> = BTreeMap::new();
        for Told { execution: id, command } in told {
            let log = self.world.log(id).await;
            let last = log.last().filter(|recorded| recorded.event.is_last());
            // By the clock of whoever wrote it.
            let seconds = if self.world.is_skewed() { 60 } else { 5 };
            if last
                .is_some_and(|recorded| recorded.at <= calm + chrono::TimeDelta::seconds(seconds))
            {
                continue;
            }
            let is_heard = log.iter().any(|recorded| match (&recorded.event, &command) {
                (Event::CancelRequested { .. }, Command::Cancel { .. }) => true,
                (Event::SignalReceived { payload, .. }, Command::Signal { payload: sent, .. }) => {
                    payload == sent
                }
                _ => false,
            });
            // Also what changed nothing leaves a trace: else it might change something later.
            if !matches!(command, Command::Cancel { .. }) {
                let heard: BTreeSet<_> =
                    log.iter().filter_map(|recorded| recorded.event.command()).collect();
                let n = traces.entry(id).or_default();
                *n += 1;
                if heard.len() < *n {
                    self.wrongs.push(format!("{id}: no trace of {command:?}"));
                }
            }
            // What is being undone stops by itself.
            let is_undone = log.iter().any(|recorded| recorded.event == Event::CompensationStarted);
            let must = match command {
                Command::Cancel { .. } => !is_undone,
                Command::Signal { .. } => true,
                _ => false,
            };
            if must && !is_heard {
                let now = self.world.clock.now();
                self.wrongs.push(format!("at {now} nobody has heard {command:?}"));
            }
        }
    }
}

/// Returns what would let the waiting steps of an execution go on.
fn wanted(execution: &Execution) -> Vec<Command> {
    let approve = |task: &Task| {
        let (step, item) = (execution.plan().step(task.step).id.clone(), task.part.item);
        // Some things never work.
        let approved = execution.task(*task).is_some_and(|task| task.attempts < PATIENCE);
        Command::Approve { step, item, approved, comment: None }
    };
    let waiting = execution.agenda().waiting().iter();
    let wanted = waiting.filter_map(|task| match &execution.task(*task)?.state {
        StepState::Waiting(WaitReason::Signal { name, .. }) => {
            Some(Command::Signal { name: name.clone(), payload: json!("at last").into() })
        }
        StepState::Waiting(_) => Some(approve(task)),
        _ => None,
    });
    wanted.collect()
}
