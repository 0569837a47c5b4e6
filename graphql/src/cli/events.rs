//! What the events of an execution mean to somebody who watches.

mod news;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shared::clock::Timestamp;

pub(super) use self::news::{Far, How, News, Next};
use super::{
    account::{milliseconds, quoted},
    plain,
};

/// The most items of one list that are told of one by one: failures, and what waits.
const TOLD: usize = 5;

/// The items of a list, counted.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    total: u64,
    over: u64,
    failed: u64,
    /// How many were told of one by one.
    told: usize,
}

/// An execution as somebody who watches sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    /// The execution.
    id: String,
    /// The position of the last event.
    pub(super) seq: u64,
    /// How many steps are over.
    pub(super) n_over: usize,
    running: BTreeMap<String, Option<Timestamp>>,
    retrying: BTreeSet<String>,
    /// The steps that wait for a person.
    persons: BTreeSet<String>,
    lists: BTreeMap<String, List>,
    /// The executions that steps have begun and wait for.
    children: BTreeMap<String, String>,
    is_over: bool,
}

impl Board {
    /// Makes one that has seen nothing of an execution.
    pub(super) fn of(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    /// Moves past an event. Returns what to tell, if that is anything.
    pub(super) fn apply(&mut self, event: &Value) -> Option<News> {
        self.seq = event["seq"].as_u64().unwrap_or(self.seq);
        let kind = event["type"].as_str().unwrap_or_default();
        match event["stepId"].as_str() {
            Some(step) => self.step(step, kind, event),
            None => self.whole(kind, &event["data"]),
        }
    }

    /// Returns whether nothing can happen any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether some step waits for a person and no other can go on by itself. Of the
    /// executions that steps have begun, `waits` says whether that is so.
    pub(super) fn waits_for_a_person(&self, waits: impl Fn(&str) -> bool) -> bool {
        let only_waits = |step: &String| {
            // A list goes on as its items do; they are here, too.
            self.lists.contains_key(step) || self.children.get(step).is_some_and(|it| waits(it))
        };
        let waits_below = self.running.keys().any(|it| self.children.contains_key(it));
        (!self.persons.is_empty() || waits_below)
            && self.retrying.is_empty()
            && self.running.keys().all(only_waits)
    }

    /// Returns the executions that steps have begun and wait for.
    pub(super) fn children(&self) -> impl Iterator<Item = &str> {
        self.children.values().map(String::as_str)
    }

    /// Returns the steps that wait for a person.
    pub(super) fn persons(&self) -> impl Iterator<Item = &str> {
        self.persons.iter().map(String::as_str)
    }

    fn step(&mut self, step: &str, kind: &str, event: &Value) -> Option<News> {
        let data = &event["data"];
        let name = match data["index"].as_u64() {
            Some(index) => format!("{step}[{index}]"),
            None => step.to_owned(),
        };
        if let Some(kind) = kind.strip_prefix("step_compensat") {
            return Some(self.undo(&name, kind, event));
        }
        let (how, detail) = match kind {
            "step_started" => return self.start(step, name, event),
            "step_progress" => return Some(News::Progress { step: name, far: far(data) }),
            "step_succeeded" => (How::Succeeded, self.gathered(step, data)),
            "step_failed" => (How::Failed, code(data)),
            "step_retry_scheduled" => (How::Retrying, error(data)),
            "step_interrupted" => (How::Retrying, interrupted(data)),
            "step_skipped" => (How::Skipped, skipped(data)),
            "step_cancelled" => (How::Cancelled, None),
            "step_waiting" => (How::Waiting, Some(waits(data))),
            _ => {
                // Approved, or something that a newer server knows.
                let was_asked = self.persons.remove(&name);
                return was_asked.then_some(News::Allowed { step: name });
            }
        };
        let took_ms = self.took(&name, moment(event));
        self.leave(&name);
        let next = self.next(&name, how, event);
        match how {
            How::Retrying => drop(self.retrying.insert(name.clone())),
            How::Waiting if data["for"] != "signal" => drop(self.persons.insert(name.clone())),
            How::Waiting => (),
            _ if name == step => self.n_over += 1,
            _ => (),
        }
        if name == step {
            self.lists.remove(step);
            return Some(News::Ended { step: name, how, took_ms, detail, next });
        }
        self.item(step, News::Ended { step: name, how, took_ms, detail, next })
    }

    fn start(&mut self, step: &str, name: String, event: &Value) -> Option<News> {
        let data = &event["data"];
        self.leave(&name);
        if let Some(total) = data["items"].as_u64() {
            self.lists.insert(name.clone(), List { total, ..List::default() });
        }
        if let Some(child) = data["childExecutionId"].as_str() {
            self.children.insert(name.clone(), child.to_owned());
        }
        self.running.insert(name.clone(), moment(event));
        // Items are counted when they are over; a list may have thousands.
        let attempt = event["attempt"].as_u64().unwrap_or(1);
        (name == step).then_some(News::Started { step: name, attempt, at: moment(event) })
    }

    /// Returns what makes a step go on that does not run now.
    fn next(&self, step: &str, how: How, event: &Value) -> Option<Next> {
        let data = &event["data"];
        match how {
            How::Retrying => {
                let attempt = event["attempt"].as_u64().unwrap_or(1) + 1;
                Some(Next::Attempt { attempt, at: data["until"].as_str()?.parse().ok() })
            }
            How::Waiting if data["for"] == "signal" => {
                let name = quoted(data["name"].as_str().unwrap_or_default());
                Some(Next::Command(format!("faber signal {} {name}", plain::line(&self.id))))
            }
            How::Waiting => {
                let step = quoted(step);
                Some(Next::Command(format!("faber approve {} {step}", plain::line(&self.id))))
            }
            _ => None,
        }
    }

    /// Counts an item, and tells of it where that is worth a line.
    fn item(&mut self, step: &str, news: News) -> Option<News> {
        let News::Ended { how, .. } = &news else { return Some(news) };
        let list = self.lists.entry(step.to_owned()).or_default();
        if matches!(how, How::Failed | How::Waiting) && list.told < TOLD {
            list.told += 1;
            let is_over = *how == How::Failed;
            list.over += u64::from(is_over);
            list.failed += u64::from(is_over);
            return Some(news);
        }
        if matches!(how, How::Retrying | How::Waiting) {
            return None;
        }
        list.over += 1;
        list.failed += u64::from(*how == How::Failed);
        #[expect(clippy::cast_precision_loss, reason = "a list has no more items than 2^52")]
        let (done, total) = (list.over as f64, Some(list.total as f64));
        Some(News::Progress { step: step.to_owned(), far: Far { done, total, message: None } })
    }

    /// Says what became of the items of a step that is over.
    fn gathered(&self, step: &str, data: &Value) -> Option<String> {
        match (self.lists.get(step), data["cached"] == true) {
            (Some(List { total, failed: 0, .. }), _) => Some(plain::count(*total, "item")),
            (Some(List { total, failed, .. }), _) => {
                Some(format!("{}, {failed} of them failed", plain::count(*total, "item")))
            }
            (None, true) => Some("from the cache".to_owned()),
            (None, false) => None,
        }
    }

    /// Reads an event of the call that undoes a step.
    fn undo(&mut self, step: &str, kind: &str, event: &Value) -> News {
        let data = &event["data"];
        let name = format!("{step} (undo)");
        let (how, detail) = match kind {
            "ion_started" => {
                self.leave(&name);
                self.running.insert(name.clone(), moment(event));
                let attempt = event["attempt"].as_u64().unwrap_or(1);
                return News::Started { step: name, attempt, at: moment(event) };
            }
            "ion_progress" => return News::Progress { step: name, far: far(data) },
            "ion_retry_scheduled" => (How::Retrying, error(data)),
            "ion_interrupted" => (How::Retrying, interrupted(data)),
            "ed" => (How::Compensated, None),
            _ => (How::Stuck, code(data)),
        };
        let took_ms = self.took(&name, moment(event));
        self.leave(&name);
        let next = self.next(&name, how, event);
        if how == How::Retrying {
            self.retrying.insert(name.clone());
        }
        News::Ended { step: name, how, took_ms, detail, next }
    }

    fn whole(&mut self, kind: &str, data: &Value) -> Option<News> {
        let note = match kind {
            "created" => {
                let kept = data["reused"].as_object().into_iter().flatten();
                let kept: Vec<String> = kept.map(|(step, _)| step.clone()).collect();
                self.n_over += kept.len();
                return (!kept.is_empty()).then_some(News::Kept(kept));
            }
            "finished" => {
                self.is_over = true;
                return None;
            }
            "claimed" if data["renewed"] == true => return None,
            "claimed" if data["epoch"].as_u64().is_some_and(|it| it > 1) => {
                format!("carried on by {}", data["node"].as_str().unwrap_or("a worker"))
            }
            "signal_received" => format!("signal {}", data["name"].as_str().unwrap_or("received")),
            "cancel_requested" => "cancelling".to_owned(),
            "execution_failed" => {
                let why = data["error"]["message"].as_str().unwrap_or_default();
                format!("it cannot go on: {why}")
            }
            "deadline_passed" => "its time is up".to_owned(),
            "paused" => format!("paused: `faber resume {}` lets it go on", self.id),
            "resumed" => kind.to_owned(),
            "compensation_started" => "undoing what was done".to_owned(),
            "signal_refused" => {
                format!("signal {} refused", data["name"].as_str().unwrap_or_default())
            }
            _ => return None,
        };
        Some(News::Note(note))
    }

    fn leave(&mut self, step: &str) {
        self.running.remove(step);
        self.retrying.remove(step);
        self.persons.remove(step);
        self.children.remove(step);
    }

    fn took(&self, step: &str, until: Option<Timestamp>) -> Option<f64> {
        let from = (*self.running.get(step)?)?;
        // The clocks of two machines may differ.
        milliseconds(from, until?.max(from))
    }
}

fn moment(event: &Value) -> Option<Timestamp> {
    event["at"].as_str()?.parse().ok()
}

/// Returns the code of an error; how it came to be is told when everything is over.
fn code(data: &Value) -> Option<String> {
    data["error"]["code"].as_str().map(str::to_owned)
}

fn interrupted(data: &Value) -> Option<String> {
    error(data).or_else(|| Some("its worker was lost".to_owned()))
}

fn error(data: &Value) -> Option<String> {
    let error = &data["error"];
    let message = error["message"].as_str()?;
    Some(match error["code"].as_str() {
        Some(code) => format!("{code}: {message}"),
        None => message.to_owned(),
    })
}

fn skipped(data: &Value) -> Option<String> {
    match data["reason"].as_str()? {
        "dependency" => Some("what it depends on did not succeed".to_owned()),
        "execution_failed" => None,
        "condition" => Some("its condition does not hold".to_owned()),
        "dry_run" => Some("fits; nothing is called in a dry run".to_owned()),
        other => Some(other.replace('_', " ")),
    }
}

fn far(data: &Value) -> Far {
    Far {
        done: data["progress"].as_f64().unwrap_or_default(),
        total: data["total"].as_f64().filter(|it| *it > 0.0),
        message: data["message"].as_str().map(str::to_owned),
    }
}

fn waits(data: &Value) -> String {
    match data["for"].as_str() {
        Some("approval") => "waits for approval".to_owned(),
        Some("signal") => format!("waits for signal {}", data["name"].as_str().unwrap_or_default()),
        Some("decision") => match error(data) {
            Some(error) => format!("waits for a decision: {error}"),
            None => "waits for a decision".to_owned(),
        },
        _ => "waits".to_owned(),
    }
}
