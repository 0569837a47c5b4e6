//! What is asked once nothing goes wrong any more, and what must hold of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use graphql::store::open_store;
use serde_json::Value;
use shared::{
    event::RecordedEvent,
    execution::Execution,
    id::{ExecutionId, Seq},
    store::{ExecutionFilter, ExecutionHead, Page, Store},
};
use tests::patient::insist;
use tokio::time::{Instant, interval};

use super::{
    Counts,
    check::check,
    clients::{Known, Story, ask_again, ask_for},
    home::{Home, Line},
    scene::Scene,
};

/// How long caches and inboxes may lag behind logs once nothing goes wrong any more.
const SETTLED: Duration = Duration::from_mins(2);
/// How many executions may go on behind the last question: they wait, but not all of them does.
const STIRRING: u64 = 5;

/// Why an execution may go on for ever: nobody came, or its time has not.
const REASONS: [&str; 7] = ["approval", "decision", "signal", "sleep", "child", "paused", "start"];

/// What happened, all told.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) slowest_drain: Duration,
    /// When the harm was over, when clients had come to their ends, and when all was judged.
    pub(super) took: [Duration; 3],
    pub(super) executions: u64,
    pub(super) states: Counts,
    pub(super) steps: u64,
    pub(super) items: u64,
    pub(super) undone: u64,
    pub(super) children: u64,
    pub(super) events: u64,
    pub(super) calls: usize,
    pub(super) claims: u64,
    pub(super) interrupted: u64,
    pub(super) unknown: u64,
    pub(super) counts: Counts,
    pub(super) violations: Vec<String>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "{faults} faults {:?}", self.faults)?;
        writeln!(f, "  {} executions {:?}", self.executions, self.states)?;
        writeln!(
            f,
            "  {} steps, {} items, {} undone, {} of them executions, {} calls, {} events",
            self.steps, self.items, self.undone, self.children, self.calls, self.events
        )?;
        writeln!(
            f,
            "  {} claims, {} attempts interrupted, {} outcomes unknown",
            self.claims, self.interrupted, self.unknown
        )?;
        writeln!(f, "  clients: {:?}", self.counts)?;
        writeln!(f, "  slowest rolling restart: {:?}; took {:.1?}", self.slowest_drain, self.took)?;
        write!(f, "  {} violations", self.violations.len())
    }
}

/// Asks everybody and judges.
pub(super) struct Audit<'a> {
    home: &'a Home,
    scene: &'a Scene,
    /// Every execution that there is: those of clients, and those that follow from them.
    stories: BTreeMap<String, Story>,
    known: BTreeMap<String, Known>,
    children: u64,
    wrongs: Vec<String>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(home: &'a Home, scene: &'a Scene, stories: Vec<Story>) -> Self {
        let stories = stories.into_iter().map(|story| (story.execution.clone(), story)).collect();
        let (known, wrongs) = (BTreeMap::new(), Vec::new());
        Self { home, scene, stories, known, children: 0, wrongs }
    }

    /// Asks the nodes that still work: for every execution, why those wait that are not over, and
    /// until caches and inboxes have caught up.
    pub(super) async fn ask_everybody(&mut self, server: &str) {
        self.await_settled().await;
        for story in self.stories.values() {
            ask_again(self.scene, story).await;
        }
        let mut open: Vec<String> = self.stories.keys().cloned().collect();
        open.extend(self.strangers().await);
        while let Some(id) = open.pop() {
            let Some(mut known) = ask_for(self.scene, &id).await else { continue };
            if !is_over(&known.state) {
                if let Err(why) = self.insists_why(server, &id).await {
                    self.wrongs.push(format!("{id} goes on for no reason: {why}"));
                }
                // What waits for nobody may have gone on meanwhile.
                let Some(later) = ask_for(self.scene, &id).await else { continue };
                known = later;
            }
            if self.adopt(&id, &known) {
                let children = self.children_of(&id, &known);
                self.children += children.len() as u64;
                open.extend(children);
            }
            self.known.insert(id, known);
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        insist(async || open_store(self.home.store()).await).await
    }

    /// Returns the executions of the store that stand for themselves, and that no client knows:
    /// who did one again and got no answer does not know.
    async fn strangers(&self) -> Vec<String> {
        let store = self.store().await;
        let heads = heads(&*store).await.into_iter().filter(|head| head.parent.is_none());
        let ids = heads.map(|head| head.execution.to_string());
        ids.filter(|id| !self.stories.contains_key(id)).collect()
    }

    /// Makes the story of an execution that nobody told, if it follows from one that is known.
    fn adopt(&mut self, id: &str, known: &Known) -> bool {
        if self.stories.contains_key(id) {
            return true;
        }
        let created = &known.log[0]["data"];
        let origin = created["retryOf"].as_str().and_then(|id| self.stories.get(id));
        let Some(origin) = origin else {
            self.wrongs.push(format!("nobody asked for {id}: {created}"));
            return false;
        };
        let story = Story::following(&origin.draft, id.to_owned());
        self.stories.insert(id.to_owned(), story);
        true
    }

    /// Returns the executions that steps of an execution are.
    fn children_of(&mut self, id: &str, known: &Known) -> Vec<String> {
        let draft = self.stories[id].draft.clone();
        let mut children = Vec::new();
        for event in known.log.iter().filter(|event| event["type"] == "step_started") {
            let child = event["data"]["childExecutionId"].as_str();
            let step = event["stepId"].as_str().and_then(|id| draft.steps.get(id));
            let draft = step.and_then(|step| step.child.as_deref());
            let (Some(child), Some(draft)) = (child, draft) else { continue };
            children.push(child.to_owned());
            let story = Story::following(draft, child.to_owned());
            if self.stories.insert(child.to_owned(), story).is_some() {
                self.wrongs.push(format!("{child} is the child of two steps, one of {id}"));
            }
        }
        children
    }

    /// Asks until there is a reason that does not go away by itself, or for too long.
    async fn insists_why(&self, server: &str, id: &str) -> Result<(), String> {
        let deadline = Instant::now() + SETTLED;
        loop {
            let why = self.asks_why(server, id).await;
            if why.is_ok() || Instant::now() > deadline {
                return why;
            }
        }
    }

    /// Waits until every head says what its log says, and nobody waits to be heard.
    async fn await_settled(&mut self) {
        let store = self.store().await;
        let deadline = Instant::now() + SETTLED;
        let mut look = interval(Duration::from_millis(100));
        loop {
            look.tick().await;
            let mut lags = Vec::new();
            for head in heads(&*store).await {
                let log = read(&*store, head.execution).await;
                let is_over = log.last().is_some_and(|recorded| recorded.event.is_last());
                if is_over != head.state.is_finished() {
                    lags.push(format!("the log is over: {is_over}, and its head is {head:?}"));
                }
            }
            let inbox = insist(async || store.list_commands(None).await).await;
            lags.extend(inbox.iter().map(|command| format!("nobody has heard {command:?}")));
            if lags.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                return self.wrongs.extend(lags);
            }
        }
    }

    /// Asks `faber debug` why an execution is not over, and judges whether that is a reason.
    async fn asks_why(&self, server: &str, id: &str) -> Result<(), String> {
        let url = format!("http://{server}");
        let json = self.debug(&["debug", id, "--json", "--server", &url]).await?;
        let document: Value = serde_json::from_str(&json).map_err(|err| err.to_string())?;
        let executions = document["executions"].as_array().cloned().unwrap_or_default();
        let execution = executions.iter().find(|execution| execution["executionId"] == id);
        let execution = execution.ok_or("`faber debug` does not know it")?;
        let waits = execution["waitsFor"].as_array().cloned().unwrap_or_default();
        let lasts =
            |reason: &&Value| reason["kind"].as_str().is_some_and(|kind| REASONS.contains(&kind));
        let wait = waits.iter().find(lasts).ok_or_else(|| execution.to_string())?;
        let reason = wait["message"].as_str().unwrap_or_default();
        let text = self.debug(&["debug", id, "--full", "--server", &url]).await?;
        if !reason.is_empty() && text.contains(reason) {
            return Ok(());
        }
        Err(format!("`faber debug` does not name `{reason}`, but says {text}"))
    }

    async fn debug(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.home.command(arguments).output().await.map_err(|err| err.to_string())?;
        if !output.status.success() {
            return Err(format!("`faber debug`: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Judges what the nodes, which have ended, leave behind.
    pub(super) async fn judge(mut self) -> Figures {
        let mut figures = Figures { counts: self.scene.counts(), ..Figures::default() };
        let ledger = self.home.ledger();
        figures.calls = ledger.len();
        let mut calls: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in &ledger {
            calls.entry(&line.execution).or_default().push(line);
        }
        figures.children = self.children;
        let store = self.store().await;
        let mut stirring = 0;
        for story in self.stories.values() {
            let lines = calls.remove(story.execution.as_str()).unwrap_or_default();
            let Some(known) = self.known.get(story.execution.as_str()) else { continue };
            if !is_over(&known.state) && kept(&*store, &story.execution).await > known.log.len() {
                // It was called for what nobody has been told.
                stirring += 1;
                continue;
            }
            let (outcome, wrongs) = check(story, known, &lines);
            figures.executions += 1;
            figures.events += known.log.len() as u64;
            figures.steps += outcome.steps;
            figures.items += outcome.items;
            figures.undone += outcome.undone;
            figures.claims += outcome.claims;
            figures.interrupted += outcome.interrupted;
            figures.unknown += outcome.unknown;
            *figures.states.entry(known.state.clone()).or_default() += 1;
            self.wrongs.extend(wrongs);
        }
        if stirring > STIRRING {
            self.wrongs.push(format!("{stirring} executions went on when all was said"));
        }
        // What only reads is called while the creation of its execution is on its way, too.
        for (id, lines) in
            calls.iter().filter(|entry| entry.1.iter().any(|line| line.tool != "read"))
        {
            self.wrongs.push(format!("`{id}` is no execution, and was called for: {lines:?}"));
        }
        self.check_store().await;
        self.check_sayings();
        figures.violations = self.scene.wrongs();
        figures.violations.append(&mut self.wrongs);
        figures
    }

    /// Checks that the store has what was acknowledged, that every log replays, and that heads
    /// agree with logs.
    async fn check_store(&mut self) {
        let store = self.store().await;
        let told: BTreeSet<String> = self.stories.keys().cloned().collect();
        let mut stored = BTreeSet::new();
        for head in heads(&*store).await {
            stored.insert(head.execution.to_string());
            if let Err(why) = self.check_head(&store, &head).await {
                self.wrongs.push(format!("{}: {why}", head.execution));
            }
        }
        for id in told.symmetric_difference(&stored) {
            self.wrongs.push(format!("`{id}` is acknowledged or stored, but not both"));
        }
    }

    async fn check_head(&self, store: &Arc<dyn Store>, head: &ExecutionHead) -> Result<(), String> {
        let id = head.execution;
        let log = read(&**store, id).await;
        let plan = insist(async || store.plan(head.plan).await).await;
        let plan = plan.ok_or("its plan is not there")?;
        let end = Execution::replay(id, plan, &log)
            .map_err(|err| format!("its log cannot be replayed: {err}"))?;
        let is_right = head.state == end.state() && head.epoch == end.epoch();
        if !is_right || head.seq > end.seq() {
            let (state, epoch, seq) = (end.state(), end.epoch(), end.seq());
            return Err(format!("{head:?} and the log says {state:?}, {epoch:?}, {seq}"));
        }
        let known = self.known.get(&id.to_string());
        if let Some(known) = known
            && (known.log.len() > log.len() || is_over(&known.state) && known.log.len() < log.len())
        {
            return Err(format!("the API told {} events, kept are {}", known.log.len(), log.len()));
        }
        Ok(())
    }

    /// Checks that no process has seen what must not happen.
    fn check_sayings(&mut self) {
        for (path, said) in self.home.said() {
            for line in said.lines().filter(|line| line.contains("panicked")) {
                self.wrongs.push(format!("{}: {line}", path.display()));
            }
        }
    }
}

/// Returns how long the log of an execution is.
async fn kept(store: &dyn Store, execution: &str) -> usize {
    read(store, execution.parse().unwrap()).await.len()
}

fn is_over(state: &str) -> bool {
    matches!(state, "COMPLETED" | "FAILED" | "CANCELLED")
}

/// Reads every head.
pub(super) async fn heads(store: &dyn Store) -> Vec<ExecutionHead> {
    let (mut all, mut page) = (Vec::new(), Page { first: 500, after: None });
    loop {
        let filter = ExecutionFilter::default();
        let heads = insist(async || store.list_heads(&filter, &page).await).await;
        all.extend(heads.items.iter().map(|(_, head)| head.clone()));
        match heads.items.last() {
            Some((cursor, _)) if heads.has_more => page.after = Some(cursor.clone()),
            _ => return all,
        }
    }
}

/// Reads a log.
pub(super) async fn read(store: &dyn Store, id: ExecutionId) -> Vec<RecordedEvent> {
    let mut log: Vec<RecordedEvent> = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |recorded| recorded.seq);
        let more = insist(async || store.read(id, after).await).await;
        if more.is_empty() {
            return log;
        }
        log.extend(more);
    }
}
