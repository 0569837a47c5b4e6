//! What must hold of a log, whoever wrote it: judged by the plan as the client wrote it, by what
//! clients were told, and by the ledger of what tools really did. Nothing here asks the engine.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    clients::{Known, Story},
    home::Line,
    people::Act,
    plans::{Kind, Step},
};

/// What came of an execution.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) steps: u64,
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
struct Reading<'a> {
    story: &'a Story,
    courses: BTreeMap<&'a str, Course>,
    outcome: Outcome,
    seq: u64,
    epoch: u64,
    is_paused: bool,
    is_cancelled: bool,
    is_expired: bool,
    has_failed: bool,
    state: Option<String>,
    marks: BTreeMap<String, u64>,
    wrongs: Vec<String>,
}

/// What a log says of one step.
#[derive(Clone, Debug, Default)]
struct Course {
    attempts: u64,
    /// Whether an attempt is under way.
    is_running: bool,
    /// Whether a worker was lost while it was.
    is_lost: bool,
    is_approved: bool,
    /// How the last attempt ended, with the code of its error.
    last: (String, String),
    /// How it ended.
    over: Option<String>,
    output: Value,
    /// The attempts after which it may be called again though that does something again.
    released: Vec<u64>,
    is_rejected: bool,
}

impl<'a> Reading<'a> {
    fn new(story: &'a Story) -> Self {
        let courses = story.draft.steps.keys().map(|it| (it.as_str(), Course::default()));
        Self {
            story,
            courses: courses.collect(),
            outcome: Outcome::default(),
            seq: 0,
            epoch: 0,
            is_paused: false,
            is_cancelled: false,
            is_expired: false,
            has_failed: false,
            state: None,
            marks: BTreeMap::new(),
            wrongs: Vec::new(),
        }
    }

    fn wrong(&mut self, what: &str, about: &impl std::fmt::Debug) {
        self.wrongs.push(format!("{}: {what}: {about:?}", self.story.execution));
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
            ("claimed", _) => self.claimed(event),
            ("cancel_requested", _) => self.is_cancelled = true,
            ("deadline_passed", _) => self.is_expired = true,
            ("paused", _) => self.is_paused = true,
            ("resumed", _) => self.is_paused = false,
            ("signal_received", _) => self.mark(&event["data"]["payload"]),
            ("finished", _) => self.state = event["data"]["state"].as_str().map(str::to_owned),
            _ => (),
        }
    }

    fn claimed(&mut self, event: &Value) {
        self.outcome.claims += 1;
        self.epoch += 1;
        if event["data"]["epoch"].as_u64() != Some(self.epoch) {
            self.wrong("claims are not counted", event);
        }
        for (name, course) in &mut self.courses {
            // What sleeps or waits needs no worker.
            let needs_worker = self.story.draft.steps[*name].kind != Kind::Sleep;
            course.is_lost |= course.is_running && needs_worker;
        }
    }

    fn mark(&mut self, mark: &Value) {
        if let Some(mark) = mark.as_str() {
            *self.marks.entry(mark.to_owned()).or_default() += 1;
        }
    }

    fn step_event(&mut self, kind: &str, name: &str, event: &Value) {
        let Some(step) = self.story.draft.steps.get(name) else {
            return self.wrong("no such step", event);
        };
        if kind == "step_started" {
            self.check_start(name, step, event);
        }
        self.mark(&event["data"]["comment"]);
        let course = self.courses.get_mut(name).expect("one for each step");
        if let Err(why) = course.event(kind, step, event) {
            return self.wrong(why, event);
        }
        match kind {
            "step_interrupted" => self.outcome.interrupted += 1,
            "step_failed" => {
                let is_unknown = event["data"]["error"]["code"] == "tool.outcome_unknown";
                self.outcome.unknown += u64::from(is_unknown);
                // Whoever was asked has said no: then it fails as if nobody were.
                self.has_failed |= matches!(step.on_error, "fail" | "wait");
            }
            _ => (),
        }
    }

    /// Checks that a step may begin: a join, too, only when all its parents are over.
    fn check_start(&mut self, name: &str, step: &Step, event: &Value) {
        if self.is_paused || self.is_cancelled || self.is_expired || self.has_failed {
            self.wrong("begun, and must not", event);
        }
        for parent in &step.after {
            if let Err(why) = self.check_parent(parent, event) {
                self.wrong(&why, event);
            }
        }
        let options = &self.story.options;
        let is_sequential = options["mode"] == "SEQUENTIAL";
        let width = options["maxParallel"].as_u64().filter(|_| !is_sequential);
        let width = width.unwrap_or(if is_sequential { 1 } else { u64::MAX });
        let running = self.courses.values().filter(|it| it.is_running).count() as u64;
        if running >= width {
            self.wrong("too many run at once", event);
        }
        let Course { is_approved, attempts, .. } = self.courses[name];
        if step.asks && !is_approved {
            self.wrong("begun before anybody agreed", event);
        }
        self.outcome.steps += u64::from(attempts == 0);
    }

    /// Checks that a step may begin by what became of one that it waits for.
    fn check_parent(&self, parent: &str, event: &Value) -> Result<(), String> {
        let course = &self.courses[parent];
        let is_ignored = self.story.draft.steps[parent].on_error == "ignore";
        match course.over.as_deref() {
            Some("step_succeeded") => (),
            Some("step_failed") if is_ignored => return Ok(()),
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
        let open: Vec<_> = self.courses.iter().filter(|(_, it)| it.over.is_none()).collect();
        if !open.is_empty() {
            let open = format!("{open:?}");
            self.wrong("ended, and steps are not over", &open);
        }
        let succeeded = |it: &Course| it.over.as_deref() == Some("step_succeeded");
        let expected: &[&str] = if self.is_cancelled {
            // What was over when it was told to stop is over.
            &["CANCELLED"]
        } else if self.is_expired {
            if self.courses.values().all(succeeded) { &["COMPLETED"] } else { &["FAILED"] }
        } else if self.has_failed {
            &["FAILED"]
        } else {
            &["COMPLETED"]
        };
        if !expected.contains(&state.as_str()) {
            self.wrong("ended otherwise than its steps", &(state, expected));
        }
    }

    /// Checks that what somebody was told is what the log says.
    fn compare(&mut self, who: &str, told: &[Value], log: &[Value]) {
        for event in told {
            let seq = usize::try_from(event["seq"].as_u64().unwrap_or_default()).unwrap();
            let kept = seq.checked_sub(1).and_then(|it| log.get(it));
            if kept != Some(event) {
                let why = format!("{who} was told what the log does not have, but {kept:?}");
                self.wrong(&why, event);
            }
        }
    }

    /// Checks that what people did counts once, and that what was acknowledged counts.
    fn check_acts(&mut self) {
        for act in self.story.acts.iter().filter(|it| !it.mark().is_empty()) {
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
        let stops = |it: &&Act| it.what == "cancel" && it.is_acknowledged;
        if let Some(act) = self.story.acts.iter().find(stops)
            && self.state.is_none()
        {
            self.wrong("was to stop and goes on", act);
        }
    }

    /// Checks what tools really did.
    fn check_calls(&mut self, calls: &[&Line]) {
        let mut by_step: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in calls {
            by_step.entry(&line.step).or_default().push(line);
        }
        let courses = std::mem::take(&mut self.courses);
        for (name, course) in &courses {
            let step = &self.story.draft.steps[*name];
            let lines = by_step.remove(name).unwrap_or_default();
            if step.kind.is_counted()
                && let Err(why) = check_calls(step, course, &lines)
            {
                self.wrong(why, &(name, course, lines));
            }
        }
        for (name, lines) in by_step {
            self.wrong("called, and is no step of it", &(name, lines));
        }
    }
}

impl Course {
    /// Moves past an event of the step, if it may come now.
    fn event(&mut self, kind: &str, step: &Step, event: &Value) -> Result<(), &'static str> {
        let attempt = event["attempt"].as_u64().unwrap_or_default();
        if self.over.is_some() {
            return Err("something happens to a step that is over");
        }
        let code = event["data"]["error"]["code"].as_str().unwrap_or_default();
        match kind {
            "step_started" => return self.started(step, attempt),
            "step_approved" => {
                self.is_approved = true;
                self.released.push(self.attempts);
            }
            "step_waiting" if event["data"]["for"] != "decision" => return Ok(()),
            _ => (),
        }
        let ends_attempt = matches!(
            kind,
            "step_succeeded" | "step_failed" | "step_retry_scheduled" | "step_interrupted"
        );
        let was_running = self.is_running;
        if ends_attempt && was_running && attempt != self.attempts {
            return Err("the end of another attempt");
        }
        if kind == "step_succeeded" {
            if self.is_lost {
                return Err("nobody can know how it ended");
            }
            if !was_running && step.kind != Kind::Wait {
                return Err("succeeded without an attempt");
            }
            self.output = event["data"]["output"].clone();
            if step.kind.is_counted() && self.output["n"].as_u64() != Some(step.n) {
                return Err("another output than the tool's");
            }
        }
        if kind == "step_interrupted" && (step.kind.is_once() || !self.is_lost) {
            return Err("interrupted, and must not be");
        }
        if kind == "step_retry_scheduled" {
            let is_definite = !matches!(code, "tool.outcome_unknown" | "tool.timeout");
            if is_definite {
                self.released.push(attempt);
            }
        }
        if kind != "step_approved" {
            self.is_running = false;
            self.is_lost = false;
        }
        self.is_rejected |= code == "step.rejected";
        self.last = (kind.to_owned(), code.to_owned());
        let is_end =
            matches!(kind, "step_succeeded" | "step_failed" | "step_skipped" | "step_cancelled");
        self.over = is_end.then(|| kind.to_owned());
        Ok(())
    }

    fn started(&mut self, step: &Step, attempt: u64) -> Result<(), &'static str> {
        if self.is_running {
            return Err("begun twice");
        }
        if attempt != self.attempts + 1 {
            return Err("attempts are not counted");
        }
        if step.kind.is_once() && self.attempts > 0 && !self.released.contains(&self.attempts) {
            return Err("begun again, and does something again");
        }
        self.attempts = attempt;
        self.is_running = true;
        Ok(())
    }
}

/// Checks a step by what its tool is: whether it was called as often as it may be, and whether the
/// log says what came of it.
fn check_calls(step: &Step, course: &Course, lines: &[&Line]) -> Result<(), &'static str> {
    let mut attempts = BTreeMap::new();
    for line in lines {
        *attempts.entry(line.attempt).or_insert(0) += 1;
        if line.key != lines[0].key || !line.key.starts_with(&line.execution) {
            return Err("called under another key");
        }
    }
    let is_read = step.kind == Kind::Read;
    if !is_read && attempts.values().any(|it| *it > 1) {
        return Err("one attempt, two calls");
    }
    if !is_read && attempts.keys().any(|it| *it > course.attempts) {
        return Err("called before the log said so");
    }
    let is_released = |it: &u64| course.released.iter().any(|released| released >= it);
    let last = attempts.keys().next_back();
    let earlier = attempts.keys().filter(|it| Some(*it) != last);
    if step.kind == Kind::Once && !earlier.into_iter().all(is_released) {
        return Err("called twice");
    }
    match course.over.as_deref() {
        Some("step_succeeded") if !attempts.contains_key(&course.attempts) => {
            Err("succeeded without a call")
        }
        Some("step_skipped") if !is_read && !lines.is_empty() && course.attempts == 0 => {
            Err("skipped, and called")
        }
        _ => Ok(()),
    }
}
