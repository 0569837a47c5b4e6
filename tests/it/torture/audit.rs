//! Queries the nodes after the last fault, then checks the store, the logs and the ledger.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use engine::store::open_store;
use serde_json::Value;
use shared::{
    execution::Execution,
    store::{ExecutionHead, Store},
};
use tests::request_retries::retry_until_answered;
use tokio::time::{Instant, interval};

use super::{
    Counts,
    clients::{ApiRecord, ClientRecord, fetch_record, repeat_start},
    log_checker::check_log,
    shared_run::SharedRun,
    workspace::{LedgerEntry, Workspace},
};
use crate::harness::{read_heads, read_log};

/// Time for heads and inboxes to catch up with the logs after the last fault.
const MAX_CATCH_UP_TIME: Duration = Duration::from_mins(2);
/// Maximum number of executions that append events after the audit read them. Most executions wait
/// for a person or a timer.
const MAX_STILL_RUNNING: u64 = 5;

/// Reasons for which an execution is allowed to stay unfinished: it is paused, or waits for a
/// child, or for an answer, a signal or a time that never comes.
const LASTING_REASONS: [&str; 7] =
    ["approval", "decision", "signal", "sleep", "child", "paused", "start"];

#[derive(Debug, Default)]
pub(super) struct AuditCounts {
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) slowest_drain: Duration,
    /// Durations until the faults ended, until the clients finished, and until all checks were
    /// done.
    pub(super) durations: [Duration; 3],
    pub(super) executions: u64,
    pub(super) states: Counts,
    pub(super) steps: u64,
    pub(super) items: u64,
    pub(super) compensations: u64,
    pub(super) children: u64,
    pub(super) events: u64,
    pub(super) calls: usize,
    pub(super) claims: u64,
    pub(super) interruptions: u64,
    pub(super) unknown_outcomes: u64,
    pub(super) counts: Counts,
    pub(super) violations: Vec<String>,
}

impl fmt::Display for AuditCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "{faults} faults {:?}", self.faults)?;
        writeln!(f, "  {} executions {:?}", self.executions, self.states)?;
        writeln!(
            f,
            "  {} steps, {} items, {} undone, {} of them executions, {} calls, {} events",
            self.steps, self.items, self.compensations, self.children, self.calls, self.events
        )?;
        writeln!(
            f,
            "  {} claims, {} attempts interrupted, {} outcomes unknown",
            self.claims, self.interruptions, self.unknown_outcomes
        )?;
        writeln!(f, "  clients: {:?}", self.counts)?;
        writeln!(
            f,
            "  slowest rolling restart: {:?}; took {:.1?}",
            self.slowest_drain, self.durations
        )?;
        write!(f, "  {} violations", self.violations.len())
    }
}

pub(super) struct Audit<'a> {
    workspace: &'a Workspace,
    run: &'a SharedRun,
    /// Every known execution: executions of clients, their children and their retries.
    records: BTreeMap<String, ClientRecord>,
    api_records: BTreeMap<String, ApiRecord>,
    children: u64,
    violations: Vec<String>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(
        workspace: &'a Workspace,
        run: &'a SharedRun,
        records: Vec<ClientRecord>,
    ) -> Self {
        let records =
            records.into_iter().map(|record| (record.execution.clone(), record)).collect();
        let (api_records, violations) = (BTreeMap::new(), Vec::new());
        Self { workspace, run, records, api_records, children: 0, violations }
    }

    /// Fetches every execution from the nodes. For each unfinished execution, `faber debug` must
    /// name a reason. Waits first until heads and inboxes agree with the logs.
    pub(super) async fn query_nodes(&mut self, server: &str) {
        self.wait_until_settled().await;
        for record in self.records.values() {
            repeat_start(self.run, record).await;
        }
        let mut open: Vec<String> = self.records.keys().cloned().collect();
        open.extend(self.unknown_executions().await);
        while let Some(id) = open.pop() {
            let Some(mut api_record) = fetch_record(self.run, &id).await else { continue };
            if !is_finished(&api_record.state) {
                if let Err(error) = self.wait_for_reason(server, &id).await {
                    self.violations.push(format!("{id} is unfinished without a reason: {error}"));
                }
                // A timer has perhaps continued the execution in the meantime, so the audit fetches
                // the execution again.
                let Some(later) = fetch_record(self.run, &id).await else { continue };
                api_record = later;
            }
            if self.add_retry(&id, &api_record) {
                let children = self.add_children(&id, &api_record);
                self.children += children.len() as u64;
                open.extend(children);
            }
            self.api_records.insert(id, api_record);
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        retry_until_answered(async || open_store(self.workspace.store()).await).await
    }

    /// Returns executions without a parent that no client knows. A client whose retry got no answer
    /// does not know the new execution.
    async fn unknown_executions(&self) -> Vec<String> {
        let store = self.store().await;
        let heads = read_heads(&*store).await.into_iter().filter(|head| head.parent.is_none());
        let ids = heads.map(|head| head.execution.to_string());
        ids.filter(|id| !self.records.contains_key(id)).collect()
    }

    /// Adds an execution that no client recorded. Returns `false` unless it is a retry of a known
    /// execution.
    fn add_retry(&mut self, id: &str, api_record: &ApiRecord) -> bool {
        if self.records.contains_key(id) {
            return true;
        }
        let created = &api_record.log[0]["data"];
        let origin = created["retryOf"].as_str().and_then(|id| self.records.get(id));
        let Some(origin) = origin else {
            self.violations.push(format!("no client asked for {id}: {created}"));
            return false;
        };
        let record = ClientRecord::for_child_or_retry(&origin.draft, id.to_owned());
        self.records.insert(id.to_owned(), record);
        true
    }

    fn add_children(&mut self, id: &str, api_record: &ApiRecord) -> Vec<String> {
        let draft = self.records[id].draft.clone();
        let mut children = Vec::new();
        for event in api_record.log.iter().filter(|event| event["type"] == "step_started") {
            let child = event["data"]["childExecutionId"].as_str();
            let step = event["stepId"].as_str().and_then(|id| draft.steps.get(id));
            let draft = step.and_then(|step| step.child.as_deref());
            let (Some(child), Some(draft)) = (child, draft) else { continue };
            children.push(child.to_owned());
            let record = ClientRecord::for_child_or_retry(draft, child.to_owned());
            if self.records.insert(child.to_owned(), record).is_some() {
                self.violations.push(format!("{child} is the child of two steps, one of {id}"));
            }
        }
        children
    }

    /// Repeats [`find_reason`](Self::find_reason) until it finds a lasting reason, or until the
    /// time limit.
    async fn wait_for_reason(&self, server: &str, id: &str) -> Result<(), String> {
        let deadline = Instant::now() + MAX_CATCH_UP_TIME;
        loop {
            let reason = self.find_reason(server, id).await;
            if reason.is_ok() || Instant::now() > deadline {
                return reason;
            }
        }
    }

    async fn wait_until_settled(&mut self) {
        let store = self.store().await;
        let deadline = Instant::now() + MAX_CATCH_UP_TIME;
        let mut look = interval(Duration::from_millis(100));
        loop {
            look.tick().await;
            let mut lags = Vec::new();
            for head in read_heads(&*store).await {
                let log = read_log(&*store, head.execution).await;
                let is_over = log.last().is_some_and(|recorded| recorded.event.is_last());
                if is_over != head.state.is_finished() {
                    lags.push(format!("finished by its log: {is_over}, but the head is {head:?}"));
                }
            }
            let inbox = retry_until_answered(async || store.list_commands(None).await).await;
            lags.extend(inbox.iter().map(|command| format!("still in the inbox: {command:?}")));
            if lags.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                return self.violations.extend(lags);
            }
        }
    }

    async fn find_reason(&self, server: &str, id: &str) -> Result<(), String> {
        let url = format!("http://{server}");
        let json = self.run_debug(&["debug", id, "--json", "--server", &url]).await?;
        let document: Value = serde_json::from_str(&json).map_err(|err| err.to_string())?;
        let executions = document["executions"].as_array().cloned().unwrap_or_default();
        let execution = executions.iter().find(|execution| execution["executionId"] == id);
        let execution = execution.ok_or("`faber debug` does not know it")?;
        let waits = execution["waitsFor"].as_array().cloned().unwrap_or_default();
        let lasts = |reason: &&Value| {
            reason["kind"].as_str().is_some_and(|kind| LASTING_REASONS.contains(&kind))
        };
        let wait = waits.iter().find(lasts).ok_or_else(|| execution.to_string())?;
        let reason = wait["message"].as_str().unwrap_or_default();
        let text = self.run_debug(&["debug", id, "--full", "--server", &url]).await?;
        if !reason.is_empty() && text.contains(reason) {
            return Ok(());
        }
        Err(format!("`faber debug` does not name `{reason}`, but prints {text}"))
    }

    async fn run_debug(&self, arguments: &[&str]) -> Result<String, String> {
        let output =
            self.workspace.command(arguments).output().await.map_err(|err| err.to_string())?;
        if !output.status.success() {
            return Err(format!("`faber debug`: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks the data that the nodes left. All nodes must have ended.
    pub(super) async fn check_all(mut self) -> AuditCounts {
        let mut figures = AuditCounts { counts: self.run.list_counts(), ..AuditCounts::default() };
        let ledger = self.workspace.ledger();
        figures.calls = ledger.len();
        let mut calls: BTreeMap<&str, Vec<&LedgerEntry>> = BTreeMap::new();
        for line in &ledger {
            calls.entry(&line.execution).or_default().push(line);
        }
        figures.children = self.children;
        let store = self.store().await;
        let mut still_running = 0;
        for record in self.records.values() {
            let lines = calls.remove(record.execution.as_str()).unwrap_or_default();
            let Some(api_record) = self.api_records.get(record.execution.as_str()) else {
                continue;
            };
            if !is_finished(&api_record.state)
                && log_length(&*store, &record.execution).await > api_record.log.len()
            {
                // The execution continued after the API returned its log, so the ledger can contain
                // calls that are not in this log.
                still_running += 1;
                continue;
            }
            let (outcome, violations) = check_log(record, api_record, &lines);
            figures.executions += 1;
            figures.events += api_record.log.len() as u64;
            figures.steps += outcome.steps;
            figures.items += outcome.items;
            figures.compensations += outcome.compensations;
            figures.claims += outcome.claims;
            figures.interruptions += outcome.interruptions;
            figures.unknown_outcomes += outcome.unknown_outcomes;
            *figures.states.entry(api_record.state.clone()).or_default() += 1;
            self.violations.extend(violations);
        }
        if still_running > MAX_STILL_RUNNING {
            self.violations.push(format!("{still_running} executions continued after the audit"));
        }
        // A tool that only reads can run before its execution is stored, so such calls are not a
        // violation.
        for (id, lines) in
            calls.iter().filter(|entry| entry.1.iter().any(|line| line.tool != "read"))
        {
            self.violations
                .push(format!("tools were called for `{id}`, which does not exist: {lines:?}"));
        }
        self.check_store().await;
        self.check_output_of_processes();
        figures.violations = self.run.violations();
        figures.violations.append(&mut self.violations);
        figures
    }

    async fn check_store(&mut self) {
        let store = self.store().await;
        let received: BTreeSet<String> = self.records.keys().cloned().collect();
        let mut stored = BTreeSet::new();
        for head in read_heads(&*store).await {
            stored.insert(head.execution.to_string());
            if let Err(error) = self.check_head(&store, &head).await {
                self.violations.push(format!("{}: {error}", head.execution));
            }
        }
        for id in received.symmetric_difference(&stored) {
            self.violations.push(format!("`{id}` is acknowledged or stored, but not both"));
        }
    }

    async fn check_head(&self, store: &Arc<dyn Store>, head: &ExecutionHead) -> Result<(), String> {
        let id = head.execution;
        let log = read_log(&**store, id).await;
        let plan = retry_until_answered(async || store.plan(head.plan).await).await;
        let plan = plan.ok_or("its plan is missing")?;
        let end = Execution::replay(id, plan, &log)
            .map_err(|err| format!("its log cannot be replayed: {err}"))?;
        let is_right = head.state == end.state() && head.epoch == end.epoch();
        if !is_right || head.seq > end.seq() {
            let (state, epoch, seq) = (end.state(), end.epoch(), end.seq());
            return Err(format!(
                "the head is {head:?}, but the log has {state:?}, {epoch:?}, {seq}"
            ));
        }
        let api_record = self.api_records.get(&id.to_string());
        if let Some(api_record) = api_record
            && (api_record.log.len() > log.len()
                || is_finished(&api_record.state) && api_record.log.len() < log.len())
        {
            return Err(format!(
                "the API returned {} events, the log has {}",
                api_record.log.len(),
                log.len()
            ));
        }
        Ok(())
    }

    fn check_output_of_processes(&mut self) {
        for (path, output) in self.workspace.outputs_of_processes() {
            for line in output.lines().filter(|line| line.contains("panicked")) {
                self.violations.push(format!("{}: {line}", path.display()));
            }
        }
    }
}

async fn log_length(store: &dyn Store, execution: &str) -> usize {
    read_log(store, execution.parse().unwrap()).await.len()
}

fn is_finished(state: &str) -> bool {
    matches!(state, "COMPLETED" | "FAILED" | "CANCELLED")
}
