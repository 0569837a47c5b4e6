//! Shows the events of an execution until it is finished, and drives the execution if the command
//! needs that.

use std::{
    pin::{Pin, pin},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use client::{
    failure::Failure,
    read_answer,
    types::{
        ExecutionHead, ExecutionStatus, Finding, FindingKind, Plan, Replanning, ReplanningState,
        Severity, ShownState, Text,
    },
    view::{
        findings::{draw_commands, draw_finding},
        news::News,
        outcome, plain,
        step::StepView,
    },
    watcher::{ExecutionPhase, Update, Watcher},
};
use engine::agent;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{execution::ExecutionState, id::ExecutionId, store::Command};
use tokio::time;

use super::standstill::{self, QuietTimer};
use crate::{ExitStatus, live_view::LiveView, session::Session};

const OWNER_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Number of successive polls that must find no owner before the command warns or stops. One poll
/// is not enough, because another worker needs time to claim the execution.
const MIN_POLLS_WITHOUT_OWNER: usize = 3;
const REPLAN_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Number of successive polls that must find no worker for the replan before the command warns.
const MIN_POLLS_WITHOUT_REPLANNER: usize = 20;
const QUESTIONS_PER_PAGE: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Watch,
    Drive,
    /// Wait until the execution is finished. Drive it if no other worker drives it. Stop if no
    /// worker can drive it.
    Finish,
}

/// Watches an execution, and the executions that replans start for it, until it is finished or
/// waits for a person, a signal arrives, or (with [`Purpose::Finish`]) no worker drives it.
pub(crate) async fn watch_to_end(
    session: &Session<'_>,
    id: ExecutionId,
    purpose: Purpose,
) -> Result<ExitStatus, Failure> {
    watch_with_approvals(session, id, purpose, Vec::new()).await
}

/// Like [`watch_to_end`], but also approves each step in `approved` once, when the step waits. The
/// user has approved these steps before the start.
pub(crate) async fn watch_with_approvals(
    session: &Session<'_>,
    id: ExecutionId,
    purpose: Purpose,
    approved: Vec<Text>,
) -> Result<ExitStatus, Failure> {
    let approved = Mutex::new(approved);
    let mut follower = Follower { session, id, purpose, approved_steps: &approved };
    loop {
        let stopped = follower.run_until_stopped().await?;
        let id = follower.id;
        match stopped {
            StopReason::Continued(next) => {
                // The approvals do not apply to the new plan, because the user has not seen it.
                follower.take_approved_steps(|_| true);
                follower.id = next;
            }
            // A person who cancels wants the state, and not the outputs.
            StopReason::Finished if purpose == Purpose::Finish => {
                return show_state(session, id).await;
            }
            StopReason::Finished => return show_ending(session, id).await,
            StopReason::GivenUp => {
                // The execution asked for a replan and got none. So the command fails, even if the
                // execution succeeded.
                let status = show_ending(session, id).await?;
                let is_done = status == ExitStatus::Done;
                return Ok(if is_done { ExitStatus::Failed } else { status });
            }
            StopReason::Asking(steps) => return show_waiting(session, id, steps).await,
            StopReason::Unattended => return Err(unattended_failure(session, id).await),
            StopReason::Detached => return print_detached(session, id).await,
        }
    }
}

enum StopReason {
    Finished,
    Asking(Vec<(String, String)>),
    Continued(ExecutionId),
    GivenUp,
    /// No worker drives the execution, and this process is not allowed or not able to drive it.
    Unattended,
    Detached,
}

#[derive(Clone, Copy)]
struct Follower<'a> {
    session: &'a Session<'a>,
    id: ExecutionId,
    purpose: Purpose,
    approved_steps: &'a Mutex<Vec<Text>>,
}

impl Follower<'_> {
    /// Watches the execution, and drives it if `purpose` requires that. Returns after a signal such
    /// as Ctrl-C at any time, because the execution can already be running.
    async fn run_until_stopped(&self) -> Result<StopReason, Failure> {
        tokio::select! {
            stopped = self.run_until_finished() => stopped,
            () = self.session.await_end_signal() => Ok(StopReason::Detached),
        }
    }

    async fn run_until_finished(&self) -> Result<StopReason, Failure> {
        let found: Value = self
            .session
            .client
            .query_execution(self.id, "plan { layers tools { stepId retry } }")
            .await?;
        let plan: Plan = read_answer(found["plan"].clone())?;
        let screen = self.session.screen;
        if self.purpose == Purpose::Drive && !screen.json {
            screen.hint(&format!("executing {}", self.id));
        }
        let (client, store) = (&self.session.client, self.session.store());
        let watcher = Watcher::new(client, store, self.id.to_string());
        let reader = EventReader { follower: *self, watcher, view: LiveView::new(screen, &plan) };
        let following = async {
            match reader.run_until_stopped().await? {
                StopReason::Finished if self.purpose != Purpose::Finish => {
                    self.await_replan().await
                }
                stopped => Ok(stopped),
            }
        };
        let driving = async {
            match self.purpose {
                Purpose::Watch => std::future::pending().await,
                _ => self.session.drive_forever(self.id).await,
            }
        };
        tokio::select! {
            stopped = following => stopped,
            never = driving => match never {},
        }
    }

    async fn await_replan(&self) -> Result<StopReason, Failure> {
        #[derive(Deserialize)]
        struct ReplanProgress {
            replanning: Option<Replanning>,
            next: Option<Next>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Next {
            execution_id: ExecutionId,
            plan: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let say = |line: String| {
            if !self.session.screen.json {
                self.session.screen.hint(&line);
            }
        };
        let fields = "replanning { state reason givenUp } next { executionId plan { version } }";
        let (mut is_user_told, mut unattended) = (false, 0);
        loop {
            let found: ReplanProgress =
                self.session.client.query_execution(self.id, fields).await?;
            let Some(replanning) = found.replanning else { return Ok(StopReason::Finished) };
            let reason = &replanning.reason;
            match (replanning.state, found.next) {
                (ReplanningState::Begun, Some(Next { execution_id: id, plan })) => {
                    let version = plan.version;
                    say(format!("replanned as version {version} because {reason}; {id} continues"));
                    return Ok(StopReason::Continued(id));
                }
                (ReplanningState::GivenUp, _) => {
                    let reason = replanning.given_up.as_ref().map(Text::to_string);
                    say(format!("the replan was given up: {}", reason.unwrap_or_default()));
                    return Ok(StopReason::GivenUp);
                }
                _ if !is_user_told => say(format!("Faber replans because {reason}")),
                _ => (),
            }
            is_user_told = true;
            let is_unattended = self.session.lacks_replanner(self.id).await.unwrap_or(false);
            unattended = if is_unattended { unattended + 1 } else { 0 };
            if unattended >= MIN_POLLS_WITHOUT_REPLANNER && self.purpose == Purpose::Watch {
                say(format!(
                    "no worker replans this execution: run `faber execute {}` to replan \
                    it",
                    self.id
                ));
                return Ok(StopReason::Finished);
            }
            time::sleep(REPLAN_POLL_INTERVAL).await;
        }
    }

    async fn await_loss_of_owner(&self) {
        let mut polls = 0;
        while polls < MIN_POLLS_WITHOUT_OWNER {
            time::sleep(OWNER_POLL_INTERVAL).await;
            // Ignores an error here, because the subscription reports an unavailable store.
            let is_stalled = self.is_stalled().await.unwrap_or(false);
            polls = if is_stalled { polls + 1 } else { 0 };
        }
    }

    async fn is_stalled(&self) -> Result<bool, Failure> {
        if self.purpose == Purpose::Finish && self.session.client.is_remote() {
            return standstill::lacks_worker(self.session, self.id).await;
        }
        self.session.is_stalled(self.id).await
    }

    /// Returns whether a worker will read the inbox. Unless the execution is only watched, this
    /// process reads it.
    async fn has_reader(&self, id: ExecutionId) -> Result<bool, Failure> {
        Ok(self.purpose != Purpose::Watch || self.session.has_reader(id).await?)
    }

    fn take_approved_steps(&self, is_taken: impl Fn(&str) -> bool) -> Vec<Text> {
        let mut approved = self.approved_steps.lock().unwrap_or_else(PoisonError::into_inner);
        approved.extract_if(.., |step| is_taken(step)).collect()
    }

    /// Approves the waiting steps that the user accepted before the start. Returns `false` if none
    /// of them waits.
    async fn approve_steps(&self) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CurrentWaits {
            waits_for: Vec<Wait>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wait {
            kind: Text,
            step_id: Option<Text>,
        }
        if self.approved_steps.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Ok(false);
        }
        let client = &self.session.client;
        let CurrentWaits { waits_for } =
            client.query_execution(self.id, "waitsFor { kind stepId }").await?;
        let waits = waits_for.iter().filter(|wait| &*wait.kind == "approval");
        let steps: Vec<&str> = waits.filter_map(|wait| wait.step_id.as_deref()).collect();
        let approved = self.take_approved_steps(|step| steps.contains(&step));
        for step in &approved {
            let arguments = [
                ("executionId: ID!", json!(self.id)),
                ("stepId: String!", json!(&**step)),
                ("approved: Boolean!", json!(true)),
                ("comment: String", json!("approved with the plan, before the start")),
            ];
            client.mutate::<Value>("approveStep", &arguments, "executionId").await?;
        }
        Ok(!approved.is_empty())
    }
}

struct EventReader<'a> {
    follower: Follower<'a>,
    watcher: Watcher<'a>,
    view: LiveView,
}

impl EventReader<'_> {
    async fn run_until_stopped(mut self) -> Result<StopReason, Failure> {
        let follower = self.follower;
        let mut unowned = pin!(follower.await_loss_of_owner());
        let mut is_user_told = self.follower.purpose == Purpose::Drive;
        loop {
            match self.show_until_stopped(unowned.as_mut(), &mut is_user_told).await {
                Ok(Some(stopped)) => return Ok(stopped),
                Ok(None) if self.watcher.is_finished().await? => return Ok(StopReason::Finished),
                Ok(None) => (),
                Err(failure) => self.watcher.reconnect_after(failure)?,
            }
        }
    }

    async fn show_until_stopped(
        &mut self,
        mut unowned: Pin<&mut impl Future<Output = ()>>,
        is_user_told: &mut bool,
    ) -> Result<Option<StopReason>, Failure> {
        let (drives, mut quiet) = (self.follower.purpose == Purpose::Drive, QuietTimer::new());
        loop {
            tokio::select! {
                update = self.watcher.next() => {
                    let update = update?;
                    if !matches!(update, Update::Poll) {
                        quiet = QuietTimer::new();
                    }
                    match update {
                        Update::News { execution, news } => {
                            let news = self.mark_answered(&execution, news).await?;
                            self.show_news(&news);
                        }
                        Update::Ended => return Ok(None),
                        Update::Event | Update::Poll => (),
                    }
                }
                () = time::sleep_until(quiet.next_check_at), if drives && !quiet.is_user_told => {
                    quiet = match standstill::find_reason(self.follower.session, self.follower.id).await? {
                        Some(reason) => {
                            self.show_news(&News::Note(format!("{reason} (Ctrl-C detaches)")));
                            quiet.mark_user_told()
                        }
                        None => quiet.begin_longer_pause(),
                    };
                }
                () = &mut unowned, if !*is_user_told => {
                    if self.follower.purpose == Purpose::Finish {
                        return Ok(Some(StopReason::Unattended));
                    }
                    let id = &self.follower.id;
                    let note = format!("no worker drives this execution: run `faber execute {id}`");
                    self.show_news(&News::Note(note));
                    *is_user_told = true;
                }
            }
            let follower = self.follower;
            match self.watcher.load_phase(async |id| follower.has_reader(id).await).await? {
                ExecutionPhase::Running => (),
                ExecutionPhase::Finished => return Ok(Some(StopReason::Finished)),
                ExecutionPhase::NeedsPerson if self.follower.approve_steps().await? => (),
                ExecutionPhase::NeedsPerson => {
                    return Ok(Some(StopReason::Asking(self.watcher.tree().waiting_steps())));
                }
            }
        }
    }

    fn show_news(&mut self, news: &News) {
        self.view.show_news(news, self.watcher.tree().root().finished_step_count);
    }

    /// Marks a waiting step as answered if the inbox contains its answer. Otherwise the output
    /// would show that the step waits, and then that it was approved.
    async fn mark_answered(&self, id: &str, news: News) -> Result<News, Failure> {
        let (News::Step { name, view }, Ok(execution)) = (&news, id.parse()) else {
            return Ok(news);
        };
        if view.state != ShownState::Waiting {
            return Ok(news);
        }
        let inbox = self.follower.session.load_inbox(execution).await?;
        let step = name.rsplit(" › ").next().unwrap_or(name);
        let Some(answer) = inbox.iter().find_map(|command| find_answer_in_command(command, step))
        else {
            return Ok(news);
        };
        let detail = Some(format!("{answer}, but no worker has read this yet"));
        let view = StepView { detail, next: None, ..view.clone() };
        Ok(News::Step { name: name.clone(), view })
    }
}

async fn unattended_failure(session: &Session<'_>, id: ExecutionId) -> Failure {
    let reason = standstill::find_reason(session, id).await.ok().flatten();
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let message = format!(
        "recorded, but no worker can finish `{id}` now{reason}; run `faber execute {id}` where its \
         tools are configured"
    );
    Failure::new("TOOL_UNAVAILABLE", message).with("executionId", json!(id))
}

async fn show_ending(session: &Session<'_>, id: ExecutionId) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    let state = if screen.json {
        print_document(session, id).await?
    } else {
        let execution: ExecutionStatus =
            session.client.query_execution(id, ExecutionStatus::SUMMARY_FIELDS).await?;
        for line in outcome::draw_ending(&execution, screen.err) {
            screen.say(&line);
        }
        match agent_answer(&execution) {
            Some(answer) => screen.print(&plain::safe_block(answer))?,
            None => screen.print_json(&execution.outputs)?,
        }
        screen.hint(&format!("everything about it: faber debug {}", execution.request_id));
        execution.state
    };
    let is_done = state == ExecutionState::Completed;
    Ok(if is_done { ExitStatus::Done } else { ExitStatus::Failed })
}

fn agent_answer(execution: &ExecutionStatus) -> Option<&str> {
    let last = execution.plan.tools.last()?;
    let is_agent = agent::is_agent_tool(&last.tool_name.parse().ok()?);
    is_agent.then(|| execution.outputs[&*last.step_id]["answer"].as_str())?
}

async fn show_waiting(
    session: &Session<'_>,
    id: ExecutionId,
    steps: Vec<(String, String)>,
) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    if screen.json {
        print_document(session, id).await?;
        return Ok(ExitStatus::Waiting);
    }
    screen.print(&format!("{id}  WAITING"))?;
    let mut executions = vec![id.to_string()];
    for (follower, _) in steps {
        if !executions.contains(&follower) && executions.len() < QUESTIONS_PER_PAGE {
            executions.push(follower);
        }
    }
    for follower in executions {
        let fields = format!("findings {{ {} }}", Finding::FIELDS);
        let found: ExecutionFindings = session.client.query_execution(&follower, &fields).await?;
        let waits = found.findings.iter().filter(|finding| is_question(finding));
        for finding in waits.take(QUESTIONS_PER_PAGE) {
            screen.say(&draw_finding(finding, screen.err));
            for line in draw_commands(finding, screen.err) {
                screen.say(&line);
            }
        }
    }
    Ok(ExitStatus::Waiting)
}

#[derive(Deserialize)]
struct ExecutionFindings {
    findings: Vec<Finding>,
}

fn find_answer_in_command(command: &Command, task_name: &str) -> Option<&'static str> {
    let Command::Approve { step, item, approved, .. } = command else { return None };
    let is_meant = if let Some(item) = item {
        task_name == format!("{step}[{item}]")
    } else {
        let rest = task_name.strip_prefix(step.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    };
    is_meant.then_some(if *approved { "was approved" } else { "was rejected" })
}

fn is_question(finding: &Finding) -> bool {
    finding.kind == FindingKind::Wait
        && finding.severity < Severity::Info
        && &*finding.code != "wait.child"
}

pub(crate) async fn show_state(
    session: &Session<'_>,
    id: ExecutionId,
) -> Result<ExitStatus, Failure> {
    if session.screen.json {
        print_document(session, id).await?;
    } else {
        let found: ExecutionHead =
            session.client.query_execution(id, ExecutionHead::FIELDS).await?;
        session.screen.print(&format!("{id}  {}", found.state.as_str()))?;
    }
    Ok(ExitStatus::Done)
}

async fn print_detached(session: &Session<'_>, id: ExecutionId) -> Result<ExitStatus, Failure> {
    // The state is unknown if this process has no worker, if Ctrl-C interrupted the stop of the
    // worker, or if the query fails.
    let head: Option<ExecutionHead> = if session.drain().await {
        session.client.query_execution(id, ExecutionHead::FIELDS).await.ok()
    } else {
        None
    };
    let ended = head.filter(|head| head.state.is_finished());
    let message = if session.client.is_remote() {
        format!("detached; `{id}` continues: `faber watch {id}` watches it")
    } else if let Some(head) = ended {
        let state = head.state.as_str();
        format!("detached; `{id}` ended as {state}: `faber debug {id}` shows it")
    } else {
        format!(
            "detached; `{id}` is in the store: `faber execute {id}` continues it, `faber watch \
             {id}` watches it, `faber cancel {id}` stops it"
        )
    };
    session.app.detach(&message).map_err(|failure| failure.with("executionId", json!(id)))
}

async fn print_document(session: &Session<'_>, id: ExecutionId) -> Result<ExecutionState, Failure> {
    let document: Value = session.client.query_execution(id, &ExecutionStatus::fields()).await?;
    session.screen.print_json(&document)?;
    read_answer(document["state"].clone())
}
