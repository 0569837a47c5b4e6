use std::time::Duration;

use client::{Client, failure::Failure, view::plain};
use shared::tool::set_prefix;
use tokio::time;

use crate::session::Session;

const STATE_FIELDS: &str = "name active status error";

/// Poll interval while a failed toolset connects again. Together, the intervals last at most five
/// seconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLLS: usize = 100;

#[derive(serde::Deserialize)]
pub(crate) struct SetState {
    pub(crate) name: String,
    active: bool,
    status: String,
    error: Option<String>,
}

impl SetState {
    fn has_failed(&self) -> bool {
        self.status == "failed"
    }

    fn is_connecting(&self) -> bool {
        self.status == "connecting"
    }

    fn failure_reason(&self) -> String {
        plain::safe_line(self.error.as_deref().unwrap_or("no reason is known"))
    }
}

/// Returns every toolset. If a failed toolset is connecting again, waits until it is ready or has
/// failed again, at most for `MAX_POLLS` intervals. The caller must have queried the tools before,
/// because a query of the tools connects the toolsets.
async fn load_states(client: &Client) -> Result<Vec<SetState>, Failure> {
    let mut polls_left = MAX_POLLS;
    loop {
        let states: Vec<SetState> = client.query("toolSets", &[], STATE_FIELDS).await?;
        if polls_left == 0 || !states.iter().any(SetState::is_connecting) {
            return Ok(states);
        }
        polls_left -= 1;
        time::sleep(POLL_INTERVAL).await;
    }
}

pub(crate) async fn warn_of_failed_sets(session: &Session<'_>) {
    // Ignores an error of this query, because the command already has its result. So a caller
    // without access to toolsets gets no warning.
    let states = load_states(&session.client).await.unwrap_or_default();
    let failed: Vec<&SetState> =
        states.iter().filter(|set| set.active && set.has_failed()).collect();
    let text = match failed.as_slice() {
        [] => return,
        [set] => format!("warning: the toolset `{}` failed: {}", set.name, set.failure_reason()),
        sets => {
            let reasons =
                sets.iter().map(|set| format!("`{}`: {}", set.name, set.failure_reason()));
            let reasons: Vec<String> = reasons.collect();
            format!("warning: {} toolsets failed: {}", sets.len(), reasons.join("; "))
        }
    };
    session.screen.say(&session.screen.err.yellow(text));
}

pub(crate) async fn check_named_set(client: &Client, name: &str) -> Result<(), Failure> {
    let states = load_states(client).await?;
    match states.iter().find(|set| set.name == name) {
        Some(set) if set.is_connecting() => Err(Failure::new(
            "TOOL_UNAVAILABLE",
            format!("the toolset `{name}` does not answer: run `faber doctor` to find the reason"),
        )),
        Some(set) if set.has_failed() => Err(Failure::new(
            "TOOL_UNAVAILABLE",
            format!("the toolset `{name}` failed: {}", set.failure_reason()),
        )),
        Some(_) => Ok(()),
        None => Err(unknown_set_failure(name, states.iter().map(|set| set.name.as_str()))),
    }
}

pub(crate) fn unknown_set_failure<'a>(
    name: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Failure {
    let failure = Failure::not_found("toolset", name);
    let help = suggest_set(name, known_names);
    Failure { message: format!("{}: {help}", failure.message), ..failure }
}

pub(crate) fn suggest_set<'a>(
    name: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> String {
    planner::suggest::did_you_mean(name, known_names)
        .unwrap_or_else(|| "`faber toolsets list` lists all toolsets".to_owned())
}

pub(crate) async fn names_failed_set(client: &Client, tool: &str) -> Result<bool, Failure> {
    let Some(prefix) = set_prefix(tool) else { return Ok(false) };
    let states = load_states(client).await?;
    Ok(states.iter().any(|set| set.name == prefix && set.has_failed()))
}

pub(crate) async fn failure_of_failed_set(
    client: &Client,
    tool: &str,
) -> Result<Option<Failure>, Failure> {
    let states = load_states(client).await?;
    let prefix = set_prefix(tool).filter(|prefix| states.iter().any(|set| set.name == *prefix));
    let may_have =
        |set: &&SetState| set.has_failed() && prefix.is_none_or(|prefix| set.name == prefix);
    Ok(states.iter().find(may_have).map(|set| {
        let (name, reason) = (&set.name, set.failure_reason());
        let message =
            format!("there is no tool `{tool}` now; perhaps in `{name}`, which failed: {reason}");
        Failure::new("TOOL_UNAVAILABLE", message)
    }))
}
