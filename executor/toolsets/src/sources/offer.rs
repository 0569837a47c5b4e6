//! Discovery of the tools of OpenAPI and GraphQL services.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use globset::{Glob, GlobSet, GlobSetBuilder};
use shared::id::{ToolName, ToolSetName};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use toolbox::{
    LOG_TARGET, ReadyTool, SourceTools, Tool, Toolbox, effect_rules::EffectRules,
    tool_names::is_valid_name,
};

use super::CONNECT_TIMEOUT;

/// Delay after the second failure. The first failure has none, and each further delay doubles up to
/// [`RETRY_INTERVAL`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Retry interval for a failed source that no call needs.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
pub(super) const MAX_TOOLS: usize = 20_000;
/// Maximum number of bytes of a tool's name. It leaves space for the name of the set and a number.
const MAX_NAME_BYTES: usize = 180;
const MAX_DESCRIPTION_BYTES: usize = 1_000;

#[async_trait]
pub(super) trait OfferSource: fmt::Debug + Send + Sync {
    /// Returns the tools of the service for a set. `effects` replace the effects that the service
    /// declares. The error states why the tools are unknown, and what to do.
    async fn tools(
        &self,
        set: &ToolSetName,
        effects: &EffectRules,
        max_bytes: usize,
    ) -> Result<Vec<Arc<dyn Tool>>, String>;
}

#[derive(Debug)]
pub(super) struct OfferPoller {
    set: ToolSetName,
    source: Box<dyn OfferSource>,
    effects: EffectRules,
    toolbox: Toolbox,
    output_bytes: usize,
    retry_time: Arc<RetryTime>,
}

#[derive(Debug, Default)]
pub(super) struct RetryTime {
    due: Mutex<Option<Instant>>,
    retry_requested: Notify,
}

impl RetryTime {
    /// Starts the next attempt if it is due. Returns `false` if the set has not failed, or if its
    /// next attempt is not due yet.
    pub(super) fn wake(&self) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = due.is_some_and(|due| due <= Instant::now());
        if is_due {
            *due = None;
            self.retry_requested.notify_one();
        }
        is_due
    }

    fn postpone(&self, wait: Duration) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = Some(Instant::now() + wait);
    }
}

impl OfferPoller {
    pub(super) fn new(
        set: ToolSetName,
        source: Box<dyn OfferSource>,
        toolbox: Toolbox,
        output_bytes: usize,
    ) -> Self {
        let (effects, retry_time) = (EffectRules::default(), Arc::default());
        Self { set, source, effects, toolbox, output_bytes, retry_time }
    }

    pub(super) fn with_effects(self, effects: EffectRules) -> Self {
        Self { effects, ..self }
    }

    pub(super) fn retry_time(&self) -> Arc<RetryTime> {
        Arc::clone(&self.retry_time)
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.ask_source(&stop) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn ask_source(&self, stop: &CancellationToken) {
        let mut wait = Duration::ZERO;
        loop {
            let seconds = CONNECT_TIMEOUT.as_secs();
            let tools = self.source.tools(&self.set, &self.effects, self.output_bytes);
            let error = match timeout(CONNECT_TIMEOUT, tools).await {
                Ok(Ok(tools)) => {
                    let tools = tools.into_iter().map(ReadyTool::new).collect();
                    self.toolbox.update_set_unless(stop, &self.set, SourceTools::ready(tools));
                    return;
                }
                Ok(Err(error)) => error,
                Err(_) => format!("it did not list its tools within {seconds} s"),
            };
            tracing::warn!(target: LOG_TARGET, set = %self.set, %error, "the tools of a set are not known");
            self.retry_time.postpone(wait);
            self.toolbox.update_set_unless(stop, &self.set, SourceTools::failed(error));
            wait = (wait * 2).clamp(FIRST_RETRY_DELAY, RETRY_INTERVAL);
            tokio::select! {
                () = self.retry_time.retry_requested.notified() => {}
                () = sleep(RETRY_INTERVAL) => {}
            }
        }
    }
}

/// Returns a filter for the names that match one of `globs`. Without globs, every name matches.
pub(super) fn include_filter(globs: &[String]) -> Result<impl Fn(&str) -> bool + use<>, String> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = Glob::new(glob).map_err(|err| format!("`include`: {err}"))?;
        set.add(glob);
    }
    let set: GlobSet = set.build().map_err(|err| format!("`include`: {err}"))?;
    let is_all = globs.is_empty();
    Ok(move |name: &str| is_all || set.is_match(name))
}

/// Makes the names of a set's tools unique, with and without the set's prefix. The second `name`
/// becomes `name_2`.
#[derive(Debug)]
pub(super) struct UniqueNames<'a> {
    set: &'a ToolSetName,
    /// Names without the set's prefix, each with the number of tools that have the name.
    taken: BTreeMap<String, usize>,
}

impl<'a> UniqueNames<'a> {
    pub(super) fn new(set: &'a ToolSetName) -> Self {
        Self { set, taken: BTreeMap::new() }
    }

    /// Returns `wanted`, or `wanted` with the next free number.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let Some(mut count) = self.taken.get(self.short_name(wanted)).copied() else {
            self.taken.insert(self.short_name(wanted).to_owned(), 1);
            return wanted.to_owned();
        };
        loop {
            count += 1;
            let name = format!("{wanted}_{count}");
            if !self.taken.contains_key(self.short_name(&name)) {
                self.taken.insert(self.short_name(wanted).to_owned(), count);
                self.taken.insert(self.short_name(&name).to_owned(), 1);
                return name;
            }
        }
    }

    /// Removes the set's prefix, because `set.name` and `name` are the same tool.
    fn short_name<'n>(&self, name: &'n str) -> &'n str {
        let rest = name.strip_prefix(self.set.as_str()).and_then(|rest| rest.strip_prefix('.'));
        rest.unwrap_or(name)
    }
}

/// Makes a tool's name from an identifier of a document. Keeps the identifier if it is a valid
/// name.
pub(super) fn name_from_identifier(text: &str) -> Option<ToolName> {
    let name =
        if text.len() <= MAX_NAME_BYTES && is_valid_name(text) { text.parse().ok() } else { None };
    name.or_else(|| name_from_text(text))
}

/// Makes a tool's name from any text. Keeps letters, digits, `_` and `-`.
pub(super) fn name_from_text(text: &str) -> Option<ToolName> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let name: String = text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let name = name.trim_matches('_');
    name[..name.floor_char_boundary(MAX_NAME_BYTES)].parse().ok()
}

pub(super) fn clip_description(text: &str) -> String {
    clip_text(text.trim(), MAX_DESCRIPTION_BYTES)
}

pub(super) fn clip_text(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}…", text[..text.floor_char_boundary(max_bytes)].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_tool_names_get_a_number() {
        let set = "pets".parse().unwrap();
        let mut names = UniqueNames::new(&set);
        let wanted = ["a", "a_2", "a", "a", "b", "a_2", "pets.a", "pets.c", "c", "pets.c"];
        let taken: Vec<_> = wanted.into_iter().map(|name| names.take(name)).collect();
        // In the set `pets`, the names `pets.a` and `a` mean the same tool.
        assert_eq!(
            taken,
            ["a", "a_2", "a_3", "a_4", "b", "a_2_2", "pets.a_5", "pets.c", "c_2", "pets.c_3"]
        );
    }

    #[test]
    fn source_names_are_converted_to_tool_names() {
        let name = |text| name_from_text(text).map(|name| name.to_string());
        assert_eq!(name("repos/get-content").as_deref(), Some("repos_get-content"));
        assert_eq!(name("get_/users/{id}").as_deref(), Some("get__users__id"));
        assert_eq!(name("{}"), None);
        assert_eq!(name(&"ä".repeat(200)).map(|name| name.len()), Some(180));
    }

    #[test]
    fn a_valid_identifier_is_used_as_the_tool_name() {
        for id in ["pets.list", "pets/create", "Über-uns"] {
            assert_eq!(name_from_identifier(id).unwrap().as_str(), id);
        }
        assert_eq!(name_from_identifier("list pets").unwrap().as_str(), "list_pets");
        assert_eq!(name_from_identifier("../x").unwrap().as_str(), "x");
        assert_eq!(name_from_identifier("a\nb").unwrap().as_str(), "a_b");
        assert_eq!(
            name_from_identifier(&"x.".repeat(200)).map(|name| name.as_str().len()),
            Some(180)
        );
    }

    #[test]
    fn include_patterns_choose_tools() {
        let is_wanted = include_filter(&["get*".to_owned(), "*_all".to_owned()]).unwrap();
        assert!(is_wanted("getUser") && is_wanted("list_all") && !is_wanted("putUser"));
        assert!(include_filter(&[]).unwrap()("anything"));
        assert!(include_filter(&["[".to_owned()]).err().unwrap().starts_with("`include`: "));
    }

    #[test]
    fn long_descriptions_are_cut() {
        assert_eq!(clip_description(" x "), "x");
        let long = clip_description(&"ä ".repeat(MAX_DESCRIPTION_BYTES));
        assert!(long.ends_with("ä…") && long.len() <= MAX_DESCRIPTION_BYTES + 3, "{long}");
    }
}
