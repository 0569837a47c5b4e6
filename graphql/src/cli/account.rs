//! What became of an execution: who failed, why that was not tried again, what did not happen
//! because of it. Screens tell it, each in its own way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;

use super::{plain, progress::duration, render::list};

/// An execution with the plan that it follows.
pub(super) struct Account<'a> {
    execution: &'a Value,
    plan: BTreeMap<&'a str, &'a Value>,
    steps: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Account<'a> {
    /// Reads an execution as the API tells it, with `plan { tools }`, `steps` and
    /// `executionResults`.
    pub(super) fn of(execution: &'a Value) -> Self {
        let by_id = |all: &'a Value| list(all).filter_map(|it| Some((it["stepId"].as_str()?, it)));
        Self {
            execution,
            plan: by_id(&execution["plan"]["tools"]).collect(),
            steps: by_id(&execution["steps"]).collect(),
        }
    }

    /// Returns what went wrong, in order.
    pub(super) fn errors(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        list(&self.execution["executionResults"]["errors"])
    }

    /// Returns what is written in the plan about a step.
    pub(super) fn planned(&self, step: &str) -> Option<&'a Value> {
        self.plan.get(step).copied()
    }

    /// Returns what became of a step.
    pub(super) fn step(&self, id: &str) -> Option<&'a Value> {
        self.steps.get(id).copied()
    }

    /// Returns what the step was given that an error is about.
    pub(super) fn given(&self, error: &Value) -> Option<&'a Value> {
        let step = self.step(error["stepId"].as_str()?)?;
        let of = match error["index"].as_u64() {
            Some(index) => list(&step["items"]).find(|it| it["index"].as_u64() == Some(index))?,
            None => step,
        };
        Some(&of["resolvedParameters"]).filter(|it| !it.is_null())
    }

    /// Says why a step that failed was not tried again.
    pub(super) fn why_not_again(&self, error: &Value) -> Option<String> {
        let step = self.planned(error["stepId"].as_str()?)?;
        let most = step["retry"]["maxAttempts"].as_u64().unwrap_or(1);
        let attempt = error["attempt"].as_u64().unwrap_or(1);
        Some(match error["code"].as_str()? {
            "step.rejected" | "execution.deadline" | "template.unresolved" | "step.not_a_list" => {
                return None;
            }
            _ if self.execution["dryRun"] == true => return None,
            "tool.outcome_unknown" => "it may have happened all the same, so that it is not for \
                 a machine to try again"
                .to_owned(),
            _ if error["retryable"] == false => "it would fail again".to_owned(),
            _ if most == 1 => "its plan allows one attempt (`retry.maxAttempts`)".to_owned(),
            _ if attempt >= most => format!("all of its {most} attempts were used"),
            _ => "the execution had failed already".to_owned(),
        })
    }

    /// Returns the steps that did not run because a step did not succeed: those that depend on it,
    /// then the others that never started.
    pub(super) fn left_out(&self, step: &str) -> (Vec<&'a str>, Vec<&'a str>) {
        let mut reached = BTreeSet::from([step]);
        let order = list(&self.execution["steps"]).filter_map(|it| it["stepId"].as_str());
        let order: Vec<&str> = order.collect();
        loop {
            let before = reached.len();
            for id in &order {
                let needs = self.plan.get(id).map(|it| list(&it["dependsOn"]));
                let mut needs = needs.into_iter().flatten().filter_map(Value::as_str);
                if needs.any(|it| reached.contains(it)) {
                    reached.insert(id);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        let is_left = |id: &&str| {
            let step = self.steps[id];
            step["state"] == "SKIPPED"
                && matches!(step["skipReason"].as_str(), Some("dependency" | "execution_failed"))
        };
        order.into_iter().filter(is_left).partition(|it| reached.contains(it))
    }

    /// Counts what became of the steps: `5 of 7 steps done, 1 failed, 1 skipped`.
    pub(super) fn counted(&self) -> String {
        let count = |key: &str| self.execution[key].as_u64().unwrap_or(0);
        let mut text = format!("{} of {} steps done", count("successful"), count("total"));
        for key in ["failed", "skipped", "cancelled"] {
            if count(key) > 0 {
                let _ = write!(text, ", {} {key}", count(key));
            }
        }
        text
    }

    /// Returns how long it took, if it is over.
    pub(super) fn took_ms(&self) -> Option<f64> {
        let from = moment(&self.execution["startedAt"])
            .or_else(|| moment(&self.execution["createdAt"]))?;
        milliseconds(from, moment(&self.execution["finishedAt"])?)
    }

    /// Says in one line how it stands: the same on a terminal and in a pipe.
    pub(super) fn summary(&self) -> String {
        let took = self.took_ms().map_or_else(String::new, |it| format!(" in {}", duration(it)));
        let id = plain::said(&self.execution["executionId"]);
        if self.execution["dryRun"] != true {
            return format!("{}{took}  {id}", self.counted());
        }
        let unfit = self.execution["failed"].as_u64().unwrap_or(0);
        let total = &self.execution["total"];
        match unfit {
            0 if *total == 1 => format!("1 step fits, nothing was called  {id}"),
            0 => format!("{total} steps fit, nothing was called  {id}"),
            _ => format!("{unfit} of {total} steps would fail, nothing was called  {id}"),
        }
    }
}

/// Reads a moment.
pub(super) fn moment(value: &Value) -> Option<shared::clock::Timestamp> {
    value.as_str()?.parse().ok()
}

/// Returns how many milliseconds lie between two moments.
pub(super) fn milliseconds(
    from: shared::clock::Timestamp,
    until: shared::clock::Timestamp,
) -> Option<f64> {
    let micros = u64::try_from((until - from).num_microseconds()?).ok()?;
    Some(std::time::Duration::from_micros(micros).as_secs_f64() * 1_000.0)
}

/// Names steps, the first few by their names: `` `a`, `b` and 7 more ``.
pub(super) fn named(steps: &[&str], most: usize) -> String {
    let mut names: Vec<String> =
        steps.iter().take(most).map(|it| format!("`{}`", plain::line(it))).collect();
    match (steps.len().saturating_sub(most), names.pop()) {
        (_, None) => String::new(),
        (0, Some(last)) if names.is_empty() => last,
        (0, Some(last)) => format!("{} and {last}", names.join(", ")),
        (more, Some(last)) => {
            names.push(last);
            format!("{} and {more} more", names.join(", "))
        }
    }
}

/// Writes a name as a shell reads it.
pub(super) fn quoted(name: &str) -> String {
    let name = plain::line(name);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-./:@=".contains(it);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name;
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_is_explained() {
        let step = |id: &str, needs: &[&str], most: u64| json!({ "stepId": id, "dependsOn": needs, "retry": { "maxAttempts": most } });
        let skipped = |id: &str| json!({ "stepId": id, "state": "SKIPPED", "skipReason": "execution_failed" });
        let execution = json!({
            "executionId": "exec_1", "total": 4, "successful": 0, "failed": 1, "skipped": 3, "cancelled": 0,
            "plan": { "tools": [step("a", &[], 3), step("b", &["a"], 1), step("c", &["b"], 1), step("d", &[], 1)] },
            "steps": [{ "stepId": "a", "state": "FAILED", "resolvedParameters": { "n": 1 } },
                skipped("b"), skipped("c"), skipped("d")],
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01.5Z",
        });
        let account = Account::of(&execution);
        assert_eq!(account.left_out("a"), (vec!["b", "c"], vec!["d"]));
        assert_eq!(account.summary(), "0 of 4 steps done, 1 failed, 3 skipped in 1.5 s  exec_1");
        for (step, code, attempt, retryable, expected) in [
            ("a", "tool.failed", 3, true, Some("all of its 3 attempts were used")),
            ("a", "tool.failed", 2, true, Some("the execution had failed already")),
            ("a", "tool.failed", 1, false, Some("it would fail again")),
            (
                "d",
                "tool.failed",
                1,
                true,
                Some("its plan allows one attempt (`retry.maxAttempts`)"),
            ),
            ("d", "step.rejected", 1, true, None),
        ] {
            let error =
                json!({ "stepId": step, "code": code, "attempt": attempt, "retryable": retryable });
            assert_eq!(account.why_not_again(&error).as_deref(), expected, "{step} {code}");
        }
        assert_eq!(account.given(&json!({ "stepId": "a" })), Some(&json!({ "n": 1 })));
    }

    #[test]
    fn names_are_few_and_safe() {
        assert_eq!(named(&["a", "b", "c"], 3), "`a`, `b` and `c`");
        assert_eq!(named(&["a", "b", "c"], 2), "`a`, `b` and 1 more");
        assert_eq!(named(&["a"], 2), "`a`");
        assert_eq!((quoted("a.b-1"), quoted("l[1]")), ("a.b-1".into(), "'l[1]'".into()));
        assert_eq!((quoted("it's"), quoted("-x")), (r"'it'\''s'".into(), "'-x'".into()));
    }
}
