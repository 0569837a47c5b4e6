//! Simulated people: they cancel, pause, resume, approve, reject, signal, settle and retry. Every
//! acknowledged command must appear in the log, unless the execution ends first.

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

/// Maximum number of attempts of a step that a person allows after the last fault.
const MAX_ATTEMPTS: u32 = 12;

pub(super) struct AcknowledgedCommand {
    execution: ExecutionId,
    command: Command,
}

impl Simulation {
    pub(super) async fn send_random_command(&mut self) {
        let all = self.all_executions().await;
        if all.is_empty() {
            return;
        }
        let id = all[self.world.dice.draw_index(all.len())];
        if self.world.dice.happens(200) {
            return self.retry_randomly(id).await;
        }
        let command = match self.world.dice.draw_below(100) {
            0..4 => Command::Cancel { reason: None },
            4..14 => Command::Pause,
            14..30 => Command::Resume,
            30..50 => self.draw_signal(),
            50..75 => {
                let step =
                    format!("s{}", self.world.dice.draw_below(8)).parse().expect("well-formed");
                let approved = self.world.dice.happens(800);
                let item = self.world.dice.happens(300).then_some(1);
                Command::Approve { step, item, approved, comment: None }
            }
            75..85 => {
                let step =
                    format!("s{}", self.world.dice.draw_below(8)).parse().expect("well-formed");
                let item = self.world.dice.happens(300).then_some(1);
                Command::Settle { step, item, decision: self.draw_settlement() }
            }
            _ => return,
        };
        self.send_command(id, command).await;
    }

    async fn retry_randomly(&mut self, id: ExecutionId) {
        let Some(ended) = self.replay_state(id).await else { return };
        let steps = ended.plan().steps();
        let from =
            steps.get(self.world.dice.draw_index(1 + steps.len())).map(|step| step.id.as_str());
        if ended.parent().is_some() {
            return;
        }
        let scope = from.map_or(RetryScope::All, RetryScope::FromStep);
        let Ok(created) = create_retry(&ended, scope) else { return };
        self.retry_count += 1;
        let id = format!("exec_{}_simulated", 100 + self.retry_count).parse().expect("well-formed");
        let now = self.world.clock.now();
        let (execution, created) =
            machine::create_execution_from(id, ended.plan(), created, None, now)
                .expect("a retry can start");
        let mut append = Append::new(id, Seq::START, &[created]);
        append.head = Some(ExecutionHead::from_execution(&execution, None, Some(now)));
        self.world.memory.append(append).await.expect("the memory store does not fail");
        self.register_started(id);
    }

    fn draw_settlement(&mut self) -> Settlement {
        if self.world.dice.happens(500) {
            let output = Some(json!({ "settled": self.acknowledged_commands.len() }).into());
            return Settlement { outcome: Settled::Succeeded, output, comment: None };
        }
        Settlement { outcome: Settled::Failed, output: None, comment: None }
    }

    fn draw_signal(&self) -> Command {
        let name = format!("go{}", self.world.dice.draw_below(2));
        let payload = json!(self.acknowledged_commands.len()).into();
        Command::Signal { name, payload }
    }

    async fn send_command(&mut self, id: ExecutionId, command: Command) {
        let control = self.control(&self.client_view, None);
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
            self.acknowledged_commands.push(AcknowledgedCommand { execution: id, command });
        }
    }

    pub(super) async fn act_as_helpful_person(&mut self, id: ExecutionId) -> bool {
        let Some(execution) = self.replay_state(id).await else { return false };
        if execution.state().is_finished() {
            return true;
        }
        if execution.is_paused() {
            self.send_command(id, Command::Resume).await;
        }
        for command in helpful_commands(&execution) {
            self.send_command(id, command).await;
        }
        false
    }

    /// Checks that every command that was acknowledged before the last fault is in its log, unless
    /// the execution ended first.
    pub(super) async fn check_acknowledged_commands(&mut self, last_fault_at: Timestamp) {
        let acknowledged_commands = std::mem::take(&mut self.acknowledged_commands);
        let mut traces: BTreeMap<ExecutionId, usize> = BTreeMap::new();
        for AcknowledgedCommand { execution: id, command } in acknowledged_commands {
            let log = self.world.read_log(id).await;
            let last = log.last().filter(|recorded| recorded.event.is_last());
            // The time comes from the clock of the worker that wrote the event, and this clock can
            // be wrong.
            let seconds = if self.world.is_skewed() { 60 } else { 5 };
            if last.is_some_and(|recorded| {
                recorded.at <= last_fault_at + chrono::TimeDelta::seconds(seconds)
            }) {
                continue;
            }
            let is_heard = log.iter().any(|recorded| match (&recorded.event, &command) {
                (Event::CancelRequested { .. }, Command::Cancel { .. }) => true,
                (Event::SignalReceived { payload, .. }, Command::Signal { payload: sent, .. }) => {
                    payload == sent
                }
                _ => false,
            });
            // Even a command without effect must leave an event, because a command without an event
            // is delivered again, and can take effect later.
            if !matches!(command, Command::Cancel { .. }) {
                let heard: BTreeSet<_> =
                    log.iter().filter_map(|recorded| recorded.event.command()).collect();
                let n = traces.entry(id).or_default();
                *n += 1;
                if heard.len() < *n {
                    self.violations.push(format!("{id}: no trace of {command:?}"));
                }
            }
            // A cancellation does not stop compensations that already run, so no event has to
            // record it.
            let is_undone = log.iter().any(|recorded| recorded.event == Event::CompensationStarted);
            let must = match command {
                Command::Cancel { .. } => !is_undone,
                Command::Signal { .. } => true,
                _ => false,
            };
            if must && !is_heard {
                let now = self.world.clock.now();
                self.violations.push(format!("at {now} no event records {command:?}"));
            }
        }
    }
}

fn helpful_commands(execution: &Execution) -> Vec<Command> {
    let approve = |task: &Task| {
        let (step, item) = (execution.plan().step(task.step).id.clone(), task.part.item);
        // Some steps never succeed, so the person approves only `MAX_ATTEMPTS` attempts.
        let approved = execution.task(*task).is_some_and(|task| task.attempts < MAX_ATTEMPTS);
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
