//! What must hold of a log, whoever wrote it: judged by the plan as the client wrote it, by what
//! clients were told, and by the ledger of what tools really did. Nothing here asks the engine.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    clients::{Known, Story},
    course::{Course, Manner, Task},
    home::Line,
    people::Act,
    plans::{Kind, Step},
};

/// What came of an execution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) steps: u64,
    pub(super) items: u64,
    pub(super) undone: u64,
    pub(super) claims: u64,
    pub(super) interrupted: u64,
    pub(super) unknown: u64,
}

/// Judges an execution. Returns what came of it, and everything that is wrong.
pub(super) fn check(story: &Story, known: &Known, calls: &[&Line]) -> (Outcome, Vec<String>) {
    let mut reading = Reading::new(story);
    for event in &known.log {
        reading.event(event);
    }
    reading.end(known);
    for (name, told) in [("it", &story.told), ("another", &story.other)] {
        reading.compare(name, told, &known.log);
    }
    reading.check_acts();
    reading.check_stop();
    reading.check_calls(calls);
    (reading.outcome, reading.wrongs)
}

/// A log on its way through the rules.
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the log")]
struct Reading<'a> {
    story: &'a Story,
    courses: BTreeMap<Task<'a>, Course>,
    outcome: Outcome,
    seq: u64,
    epoch: u64,
    /// Who claimed it last.
    worker: Option<String>,
    /// How it was created.
    options: Value,
    is_paused: bool,
    is_cancelled: bool,
    is_expired: bool,
    has_failed: bool,
    is_undoing: bool,
    /// What is done and can be undone, the latest last.
    undoable: Vec<Task<'a>>,
    state: Option<String>,
    marks: BTreeMap<String, u64>,
    wrongs: Vec<String>,
}

impl<'a> Reading<'a> {
    fn new(story: &'a Story) -> Self {
        let whole = story.draft.steps.keys().map(|name| ((name.as_str(), None, false), name));
        Self {
            story,
            courses: whole.map(|(task, _)| (task, Course::default())).collect(),
            outcome: Outcome::default(),
            seq: 0,
            epoch: 0,
            worker: None,
            options: Value::Null,
            is_paused: false,
            is_cancelled: false,
            is_expired: false,
            has_failed: false,
            is_undoing: false,
            undoable: Vec::new(),
            state: None,
            marks: BTreeMap::new(),
            wrongs: Vec::new(),
        }
    }

    fn wrong(&mut self, what: &str, about: &impl std::fmt::Debug) {
        self.wrongs.push(format!("{}: {what}: {about:?}", self.story.execution));
    }

    fn step(&self, name: &str) -> &'a Step {
        &self.story.draft.steps[name]
    }

    fn whole(&self, name: &'a str) -> &Course {
        &self.courses[&(name, None, false)]
    }

    fn event(&mut self, event: &Value) {
        self.seq += 1;
        if event["seq"].as_u64() != Some(self.seq) {
            self.wrong("the log has a gap", event);
        }
        if self.state.is_some() {
            self.wrong("something stands behind the end", event);
        }
        let kind = event["type"].as_str().unwrap_or_default();
        if (kind == "created") != (self.seq == 1) {
            self.wrong("a log begins once", event);
        }
        match (kind, event["stepId"].as_str()) {
            (_, Some(step)) => self.step_event(kind, step, event),
            ("created", _) => self.created(&event["data"]),
            ("claimed", _) => self.claimed(event),
            ("cancel_requested", _) => self.is_cancelled = true,
            ("deadline_passed", _) => self.is_expired = true,
            ("paused", _) => self.is_paused = true,
            ("resumed", _) => self.is_paused = false,
            ("signal_received", _) => self.mark(&event["data"]["payload"]),
            ("compensation_started", _) => self.undoing(event),
            ("finished", _) => self.state = event["data"]["state"].as_str().map(str::to_owned),
            _ => (),
        }
    }

    fn created(&mut self, data: &Value) {
        self.options = data.clone();
        for (name, output) in data["reused"].as_object().into_iter().flatten() {
            let Some((task, course)) = self.courses.iter_mut().find(|(task, _)| task.0 == name)
            else {
                return self.wrong("reuses what it does not have", data);
            };
            course.over = Some("step_succeeded".to_owned());
            course.output = output.clone();
            course.is_taken_over = true;
            debug_assert!(task.1.is_none());
        }
        for carried in data["callKeys"].as_array().into_iter().flatten() {
            let item = carried["index"].as_u64().map(|item| format!("[{item}]"));
            let place = format!(
                "{}{}",
                carried["stepId"].as_str().unwrap_or("?"),
                item.unwrap_or_default()
            );
            let key = carried["key"].as_str().and_then(|key| key.split_once('/'));
            let is_of_earlier =
                |(execution, at): (&str, &str)| at == place && execution != self.story.execution;
            if !key.is_some_and(is_of_earlier) || data["retryOf"].is_null() {
                self.wrong("carries a key of no earlier call", carried);
            }
        }
    }

    fn claimed(&mut self, event: &Value) {
        self.outcome.claims += 1;
        self.epoch += 1;
        if event["data"]["epoch"].as_u64() != Some(self.epoch) {
            self.wrong("claims are not counted", event);
        }
        let worker = event["data"]["worker"].as_str().map(str::to_owned);
        if event["data"]["renewed"] == true {
            // Who only says once more what it has, because its lease ran out, has its calls still.
            if worker.is_none() || self.worker != worker {
                self.wrong("renews what another has", event);
            }
            return;
        }
        self.worker = worker;
        for (task, course) in &mut self.courses {
            let step = &self.story.draft.steps[task.0];
            let gathers = step.items.is_some() && task.1.is_none();
            let needs_worker = task.2 || !step.kind.needs_no_worker() && !gathers;
            course.is_lost |= course.is_running && needs_worker;
        }
    }

    fn mark(&mut self, mark: &Value) {
        if let Some(mark) = mark.as_str() {
            *self.marks.entry(mark.to_owned()).or_default() += 1;
        }
    }

    fn undoing(&mut self, event: &Value) {
        let is_asked_for = self.options["compensateOnFailure"] == true;
        let is_over = self
            .courses
            .iter()
            .filter(|(task, _)| task.1.is_none())
            .all(|(_, course)| course.over.is_some());
        if self.is_undoing || !is_asked_for || !is_over {
            self.wrong("undone too early, twice, or unasked", event);
        }
        self.is_undoing = true;
    }

    fn step_event(&mut self, kind: &str, name: &str, event: &Value) {
        let Some((name, step)) = self.story.draft.steps.get_key_value(name) else {
            return self.wrong("no such step", event);
        };
        let (kind, is_undo) = match kind {
            "step_compensated" => ("step_succeeded".to_owned(), true),
            _ if kind.contains("compensation") => (kind.replace("compensation_", ""), true),
            _ => (kind.to_owned(), false),
        };
        let task: Task<'a> = (name, event["data"]["index"].as_u64(), is_undo);
        if kind == "step_started" {
            self.check_start(task, step, event);
        }
        self.mark(&event["data"]["comment"]);
        let manner = Manner::of(step, task);
        let course = self.courses.entry(task).or_default();
        if let Err(why) = course.event(&kind, manner, event) {
            let course = format!("{course:?}");
            return self.wrong(why, &(event, course));
        }
        self.note(task, step, &kind, event);
    }

    fn note(&mut self, task: Task<'a>, step: &Step, kind: &str, event: &Value) {
        match kind {
            "step_interrupted" => self.outcome.interrupted += 1,
            "step_failed" => {
                let is_unknown = event["data"]["error"]["code"] == "tool.outcome_unknown";
                self.outcome.unknown += u64::from(is_unknown);
                // Whoever was asked has said no: then it fails as if nobody were.
                let is_whole = task.1.is_none() && !task.2;
                self.has_failed |= is_whole && matches!(step.on_error, "fail" | "wait");
            }
            "step_succeeded" if task.2 => {
                self.outcome.undone += 1;
                self.undoable.retain(|done| (done.0, done.1) != (task.0, task.1));
            }
            "step_succeeded" => {
                let is_leaf = task.1.is_some() || step.items.is_none();
                self.outcome.items += u64::from(task.1.is_some());
                if step.is_undone && is_leaf {
                    self.undoable.push(task);
                }
            }
            _ => (),
        }
        if task.2 && kind == "step_failed" {
            self.undoable.retain(|done| (done.0, done.1) != (task.0, task.1));
        }
    }

    /// Checks that something may begin: a join, too, only when all its parents are over.
    fn check_start(&mut self, task: Task<'a>, step: &'a Step, event: &Value) {
        if self.options["dryRun"] == true {
            self.wrong("begun in a dry run", event);
        }
        if task.2 {
            let latest = self.undoable.last().map(|done| (done.0, done.1));
            if !self.is_undoing || latest != Some((task.0, task.1)) {
                self.wrong("undone out of turn", event);
            }
            return;
        }
        if self.is_paused || self.is_cancelled || self.is_expired || self.has_failed {
            self.wrong("begun, and must not", event);
        }
        for parent in &step.after {
            if let Err(why) = self.check_parent(parent, step, event) {
                self.wrong(&why, event);
            }
        }
        if let Some(parent) = &step.when {
            let course = self.whole(parent);
            let is_even = course.output["n"].as_u64().is_some_and(|n| n % 2 == 0);
            if !course.succeeded() || !is_even {
                self.wrong("begun, and its condition does not hold", event);
            }
        }
        let whole = self.whole(task.0).clone();
        if task.1.is_some() && !whole.is_running {
            self.wrong("an item begun before its list", event);
        }
        if step.asks && !whole.is_approved {
            self.wrong("begun before anybody agreed", event);
        }
        self.check_width(event);
        self.outcome.steps += u64::from(task.1.is_none() && whole.attempts == 0);
    }

    fn check_width(&mut self, event: &Value) {
        let is_sequential = self.options["mode"] == "SEQUENTIAL";
        let width = self.options["maxParallel"].as_u64().filter(|_| !is_sequential);
        let width = width.unwrap_or(if is_sequential { 1 } else { u64::MAX });
        let counts = |task: &Task<'_>| {
            let step = &self.story.draft.steps[task.0];
            task.1.is_none() && step.items.is_none() && step.child.is_none()
        };
        let running =
            self.courses.iter().filter(|(task, course)| counts(task) && course.is_running);
        if running.count() as u64 >= width {
            self.wrong("too many run at once", event);
        }
    }

    /// Checks that a step may begin by what became of one that it waits for.
    fn check_parent(&self, parent: &'a str, step: &Step, event: &Value) -> Result<(), String> {
        let course = self.whole(parent);
        let is_ignored = self.step(parent).on_error == "ignore";
        match course.over.as_deref() {
            Some("step_succeeded") => (),
            Some("step_failed") if is_ignored => return Ok(()),
            // Once they are over, its condition alone decides.
            Some(_) if step.when.is_some() => return Ok(()),
            _ => return Err(format!("begun before `{parent}` let it")),
        }
        let (given, output) = (&event["data"]["parameters"]["from"][parent], &course.output["n"]);
        if given.is_null() || given == output {
            return Ok(());
        }
        Err(format!("given another output of `{parent}` than {output}"))
    }

    fn end(&mut self, known: &Known) {
        let Some(state) = self.state.clone() else { return };
        if state != known.state {
            self.wrong("its state is not what the log says", &(&known.state, &state));
        }
        let open: Vec<_> =
            self.courses.iter().filter(|(_, course)| course.over.is_none()).collect();
        if !open.is_empty() {
            let open = format!("{open:?}");
            self.wrong("ended, and not everything is over", &open);
        }
        if self.options["dryRun"] == true {
            return;
        }
        let has_done_all = self.courses.iter().filter(|(task, _)| !task.2).all(|(task, course)| {
            if task.1.is_some() {
                // What became of the others is what became of the whole.
                return !course.was_cut;
            }
            let may_fail = ["ignore", "continue"].contains(&self.step(task.0).on_error);
            let has_failed = course.over.as_deref() == Some("step_failed");
            let has_ended_badly = has_failed && may_fail && !course.was_cut;
            course.succeeded() || course.is_passed_over || has_ended_badly
        });
        let expected = if self.is_cancelled {
            "CANCELLED"
        } else if self.is_expired && !has_done_all || !self.is_expired && self.has_failed {
            "FAILED"
        } else {
            "COMPLETED"
        };
        if expected != state {
            self.wrong("ended otherwise than its steps", &(&state, expected));
        }
        let is_undone = self.options["compensateOnFailure"] == true && state != "COMPLETED";
        if is_undone && !self.undoable.is_empty() {
            let left = self.undoable.clone();
            self.wrong("ended, and not everything is undone", &left);
        }
        self.check_lists(known);
    }

    /// Checks that the output of a list is what became of its items, in their order.
    fn check_lists(&mut self, known: &Known) {
        for (name, step) in &self.story.draft.steps {
            let course = self.whole(name);
            let (Some(items), true, false) =
                (&step.items, course.succeeded(), course.is_taken_over)
            else {
                continue;
            };
            let outputs = (0..items.len() as u64).filter_map(|at| {
                let item = self.courses.get(&(name.as_str(), Some(at), false))?;
                match step.on_error {
                    _ if item.succeeded() => Some(item.output.clone()),
                    "ignore" => Some(Value::Null),
                    _ => None,
                }
            });
            let expected: Value = outputs.collect();
            if known.outputs[name] != expected {
                let what = json!({ "is": known.outputs[name], "must be": expected });
                self.wrong("the list is not what its items returned", &(name, what));
            }
        }
    }

    /// Checks that what somebody was told is what the log says.
    fn compare(&mut self, who: &str, told: &[Value], log: &[Value]) {
        for event in told {
            let seq = usize::try_from(event["seq"].as_u64().unwrap_or_default()).unwrap();
            let kept = seq.checked_sub(1).and_then(|index| log.get(index));
            if kept != Some(event) {
                let why = format!("{who} was told what the log does not have, but {kept:?}");
                self.wrong(&why, event);
            }
        }
    }

    /// Checks that what people did counts once, and that what was acknowledged counts.
    fn check_acts(&mut self) {
        for act in self.story.acts.iter().filter(|act| !act.mark().is_empty()) {
            let count = self.marks.get(act.mark()).copied().unwrap_or_default();
            if act.what == "signal" && act.is_acknowledged && count == 0 && self.state.is_none() {
                self.wrong("a signal was acknowledged and is lost", act);
            }
            if count > act.tries {
                self.wrong("counts more often than it was asked for", act);
            }
        }
    }

    /// Checks that what is to stop has stopped.
    fn check_stop(&mut self) {
        let stops = |act: &&Act| act.what == "cancel" && act.is_acknowledged;
        if let Some(act) = self.story.acts.iter().find(stops)
            && self.state.is_none()
        {
            self.wrong("was to stop and goes on", act);
        }
    }

    /// Checks what tools really did.
    fn check_calls(&mut self, calls: &[&Line]) {
        let mut by_key: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in calls {
            by_key.entry(&line.key).or_default().push(line);
        }
        let courses = std::mem::take(&mut self.courses);
        for (task, course) in &courses {
            let step = self.step(task.0);
            let is_called = task.2 || task.1.is_some() || step.items.is_none();
            let kind = Manner::of(step, *task).kind;
            let lines = by_key.remove(self.key(*task).as_str()).unwrap_or_default();
            if (kind.is_counted() && is_called || !lines.is_empty())
                && let Err(why) = course.check_calls(kind, &lines)
            {
                self.wrong(why, &(task, course, lines));
            }
        }
        let ahead = self.reads_ahead();
        for (key, lines) in by_key.into_iter().filter(|(key, _)| !ahead.contains(*key)) {
            self.wrong("called under a key that nothing of it has", &(key, lines));
        }
    }

    /// Returns the keys of items that may be called although the log never says so: what only reads
    /// runs while its record is on its way, and whoever dies then leaves the call alone behind.
    fn reads_ahead(&self) -> BTreeSet<String> {
        let steps = self.story.draft.steps.iter();
        let lists =
            steps.filter_map(|(name, step)| Some((name.as_str(), step, step.items.as_ref()?)));
        lists
            .flat_map(|(name, step, items)| {
                let tasks = (0..items.len() as u64).map(move |at| (name, Some(at), false));
                tasks.filter(|task| Manner::of(step, *task).kind == Kind::Read)
            })
            .map(|task| self.key(task))
            .collect()
    }

    /// Returns the key that every call of a task must send.
    ///
    /// A retry sends the key of an earlier call whose outcome is unknown.
    fn key(&self, (name, item, is_undo): Task<'_>) -> String {
        let item_suffix = item.map(|item| format!("[{item}]")).unwrap_or_default();
        let undo = if is_undo { "/undo" } else { "" };
        let of_execution = format!("{}/{name}{item_suffix}{undo}", self.story.execution);
        if is_undo {
            return of_execution;
        }
        let mut carried = self.options["callKeys"].as_array().into_iter().flatten();
        let earlier = carried.find(|key| key["stepId"] == name && key["index"].as_u64() == item);
        earlier.and_then(|key| key["key"].as_str()).map_or(of_execution, str::to_owned)
    }
}
