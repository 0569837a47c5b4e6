//! Sources that are asked once which tools they offer: documents, and endpoints that describe
//! themselves.
//!
//! Unlike a server of ours they are not kept alive. One that cannot be asked is asked again: when
//! somebody wants it, though not too soon, and every now and then.

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
use toolbox::{ReadyTool, SetStatus, Tool, Toolbox, tool_names::is_word};

use super::CONNECT_TIMEOUT;

/// Delay after a failure. Doubles up to [`RETRY`].
const BACKOFF: Duration = Duration::from_millis(500);
/// Retry interval for a failed source that no call needs.
const RETRY: Duration = Duration::from_mins(1);
/// Tools that one source may offer.
pub(super) const TOOLS: usize = 20_000;
/// Bytes of a tool's name: room for a set's and a number.
const ID: usize = 180;
/// Bytes of a tool's description.
const DESCRIPTION: usize = 1_000;

/// Something that says which tools it has.
#[async_trait]
pub(super) trait Offers: fmt::Debug + Send + Sync {
    /// Returns the tools, or why they are not known and what to do.
    async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, String>;
}

/// Asks a source until it answers.
#[derive(Debug)]
pub(super) struct Asker {
    set: ToolSetName,
    offers: Box<dyn Offers>,
    toolbox: Toolbox,
    turn: Arc<Turn>,
}

/// When a source that has failed may be asked again.
#[derive(Debug, Default)]
pub(super) struct Turn {
    due: Mutex<Option<Instant>>,
    wanted: Notify,
}

impl Turn {
    /// Asks for the source where it has failed and its time has come; returns whether it will be.
    pub(super) fn wake(&self) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = due.is_some_and(|it| it <= Instant::now());
        if is_due {
            *due = None;
            self.wanted.notify_one();
        }
        is_due
    }

    fn put_off(&self, wait: Duration) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = Some(Instant::now() + wait);
    }
}

impl Asker {
    pub(super) fn new(set: ToolSetName, offers: Box<dyn Offers>, toolbox: Toolbox) -> Self {
        Self { set, offers, toolbox, turn: Arc::default() }
    }

    pub(super) fn turn(&self) -> Arc<Turn> {
        Arc::clone(&self.turn)
    }

    /// Asks until the tools are known, or until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.ask(&stop) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn ask(&self, stop: &CancellationToken) {
        let mut wait = Duration::ZERO;
        loop {
            let asked = timeout(CONNECT_TIMEOUT, self.offers.tools()).await;
            let seconds = CONNECT_TIMEOUT.as_secs();
            let error = match asked {
                Ok(Ok(tools)) => {
                    let tools = tools.into_iter().map(ReadyTool::new).collect();
                    self.toolbox.settle_unless(stop, &self.set, SetStatus::Ready, tools);
                    return;
                }
                Ok(Err(error)) => error,
                Err(_) => format!("it did not say within {seconds} s which tools it has"),
            };
            tracing::warn!(set = %self.set, %error, "the tools of a set are not known");
            self.turn.put_off(wait);
            self.toolbox.settle_unless(stop, &self.set, SetStatus::Failed { error }, Vec::new());
            wait = (wait * 2).clamp(BACKOFF, RETRY);
            tokio::select! {
                () = self.turn.wanted.notified() => {}
                () = sleep(RETRY) => {}
            }
        }
    }
}

/// The wanted tools of a source: those that match a glob, or all.
pub(super) fn included(globs: &[String]) -> Result<impl Fn(&str) -> bool + use<>, String> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = Glob::new(glob).map_err(|err| format!("`include`: {err}"))?;
        set.add(glob);
    }
    let set: GlobSet = set.build().map_err(|err| format!("`include`: {err}"))?;
    let is_all = globs.is_empty();
    Ok(move |name: &str| is_all || set.is_match(name))
}

/// Gives the tools of a set names that are theirs alone, also as `set.name`: the first keeps its
/// name, the next is `name_2`.
#[derive(Debug)]
pub(super) struct Names<'a> {
    set: &'a ToolSetName,
    /// Names within the set, and how often each was wanted.
    taken: BTreeMap<String, usize>,
}

impl<'a> Names<'a> {
    pub(super) fn of(set: &'a ToolSetName) -> Self {
        Self { set, taken: BTreeMap::new() }
    }

    /// Returns a name like `wanted` that nobody has.
    pub(super) fn take(&mut self, wanted: &str) -> String {
        let Some(mut count) = self.taken.get(self.within(wanted)).copied() else {
            self.taken.insert(self.within(wanted).to_owned(), 1);
            return wanted.to_owned();
        };
        loop {
            count += 1;
            let name = format!("{wanted}_{count}");
            if !self.taken.contains_key(self.within(&name)) {
                self.taken.insert(self.within(wanted).to_owned(), count);
                self.taken.insert(self.within(&name).to_owned(), 1);
                return name;
            }
        }
    }

    /// Returns a name without that of the set before it: `set.name` means both.
    fn within<'n>(&self, name: &'n str) -> &'n str {
        let rest = name.strip_prefix(self.set.as_str()).and_then(|it| it.strip_prefix('.'));
        rest.unwrap_or(name)
    }
}

/// Makes a tool's name of an identifier that a document gives it: the identifier itself, where it
/// can be a name.
pub(super) fn tool_id(called: &str) -> Option<ToolName> {
    let name = if called.len() <= ID && is_word(called) { called.parse().ok() } else { None };
    name.or_else(|| tool_name(called))
}

/// Makes a tool's name of what a source calls it: letters, digits, `_` and `-`.
pub(super) fn tool_name(called: &str) -> Option<ToolName> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let name: String = called.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let name = name.trim_matches('_');
    name[..name.floor_char_boundary(ID)].parse().ok()
}

/// Cuts a description to what a model should read of it.
pub(super) fn described(text: &str) -> String {
    cut(text.trim(), DESCRIPTION)
}

/// Cuts a text.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", text[..text.floor_char_boundary(most)].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_once() {
        let set = "pets".parse().unwrap();
        let mut names = Names::of(&set);
        let wanted = ["a", "a_2", "a", "a", "b", "a_2", "pets.a", "pets.c", "c", "pets.c"];
        let taken: Vec<_> = wanted.into_iter().map(|it| names.take(it)).collect();
        // `pets.a` and `a` of `pets` are both `pets.a`.
        assert_eq!(
            taken,
            ["a", "a_2", "a_3", "a_4", "b", "a_2_2", "pets.a_5", "pets.c", "c_2", "pets.c_3"]
        );
    }

    #[test]
    fn names_are_made_of_what_a_source_says() {
        let name = |it| tool_name(it).map(|it| it.to_string());
        assert_eq!(name("repos/get-content").as_deref(), Some("repos_get-content"));
        assert_eq!(name("get_/users/{id}").as_deref(), Some("get__users__id"));
        assert_eq!(name("{}"), None);
        assert_eq!(name(&"ä".repeat(200)).map(|it| it.len()), Some(180));
    }

    #[test]
    fn an_identifier_that_can_be_a_name_is_one() {
        for id in ["pets.list", "pets/create", "Über-uns"] {
            assert_eq!(tool_id(id).unwrap().as_str(), id);
        }
        assert_eq!(tool_id("list pets").unwrap().as_str(), "list_pets");
        assert_eq!(tool_id("../x").unwrap().as_str(), "x");
        assert_eq!(tool_id("a\nb").unwrap().as_str(), "a_b");
        assert_eq!(tool_id(&"x.".repeat(200)).map(|it| it.as_str().len()), Some(180));
    }

    #[test]
    fn globs_choose_tools() {
        let is_wanted = included(&["get*".to_owned(), "*_all".to_owned()]).unwrap();
        assert!(is_wanted("getUser") && is_wanted("list_all") && !is_wanted("putUser"));
        assert!(included(&[]).unwrap()("anything"));
        assert!(included(&["[".to_owned()]).err().unwrap().starts_with("`include`: "));
    }

    #[test]
    fn descriptions_are_cut() {
        assert_eq!(described(" x "), "x");
        let long = described(&"ä ".repeat(DESCRIPTION));
        assert!(long.ends_with("ä…") && long.len() <= DESCRIPTION + 3, "{long}");
    }
}
