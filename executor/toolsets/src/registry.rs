//! The toolsets and their switches, the same on every node.
//!
//! The configuration says what a node begins with. What is added, registered, switched or told
//! afterwards is kept in the store as [records](shared::store::KeyValue); every node reads them
//! when it starts, when it hears that one has changed, and every now and then, and
//! makes its [`Toolbox`] what they say. Nothing here is a second truth: a node that missed a change
//! finds it the next time it looks.

mod condition;
mod merge;
mod records;
mod registering;
mod switching;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp},
    id::{ParseIdError, ToolSetName},
    json as patches, limits,
    store::{Record, RecordKind, Store, StoreError, WriteCondition},
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use toolbox::{SetStatus, ToolSet, Toolbox, dispatch, flow, tool_names::TOOL_SET};

use self::merge::{Complaint, Known, Merged, Read, Wanted, merge};
pub use self::{records::added_set as added, switching::Switched};
use crate::sources::{Documents, SetConfig, Source, Sources, documents::FIELD};

/// Poll interval for changes of other nodes. A hint comes earlier.
const LOOK: Duration = Duration::from_secs(2);
/// How long changes are gathered that follow each other, and at least so many times as long as it
/// takes to read them all: thousands of tools may be registered one after another.
const GATHER: Duration = Duration::from_millis(100);
const REST: u32 = 10;
/// No revision.
const NONE: u64 = u64::MAX;
/// Most removed fields that a context remembers although this node's file lacks them.
const REMOVED: usize = 1_000;
/// Attempts to change a context that other nodes change at the same time.
const TRIES: usize = 64;

/// The toolsets of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

/// The parts of a registry.
#[derive(Debug)]
pub struct Parts {
    /// The toolbox to fill.
    pub sources: Sources,
    /// The toolbox of those sources.
    pub toolbox: Toolbox,
    /// The store for changes.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The sets of the configuration, in their order.
    pub configured: Vec<SetConfig>,
    /// The contexts of the configuration.
    pub contexts: BTreeMap<String, Value>,
    /// The base of relative paths in added sets.
    pub base: PathBuf,
    /// The variables of the environment that added sets and tools may use. Those of the
    /// configuration may use any, and so may these where nothing is said.
    pub secrets: Option<BTreeSet<String>>,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    /// Whoever changes something has it until that is seen here: then nothing comes in between but
    /// what other nodes do.
    applied: Mutex<Applied>,
    /// The revision that the toolbox was last made of, [`NONE`] before the first.
    seen: AtomicU64,
}

/// The state from which the toolbox was filled last.
#[derive(Debug, Default)]
struct Applied {
    revision: Option<u64>,
    known: Known,
    wanted: Vec<Wanted>,
    /// Sets that are not there, because their condition does not hold.
    hidden: Vec<SetConfig>,
    /// The documents of contexts.
    read: Read,
    /// Complaints that were logged already.
    complaints: Vec<Complaint>,
}

/// Why a set or a tool is not as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// There is one of the name, which stays as it is.
    #[error("{what} called `{name}` exists already and was not changed: use another name")]
    Exists {
        /// The kind of the name.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// It is not what can be added.
    #[error("{0}")]
    Invalid(String),
    /// It asks for a secret that only the configuration may name.
    #[error(
        "added toolsets and tools may not use the variable `{0}` of Faber's environment: add it to `access.secrets` in the configuration"
    )]
    Secret(String),
    /// It does not come from here.
    #[error("`{name}` is not one that was added: {hint}")]
    Elsewhere {
        /// Its name.
        name: String,
        /// Its source, and what to do.
        hint: String,
    },
    /// There are too many.
    #[error("there are {most} {what}, which is the most: remove some")]
    Full {
        /// The things of which there are too many.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// It is there, and cannot be seen now.
    #[error("the toolset `{0}` is not there now, as its `condition` says: try again once it is")]
    Hidden(String),
    /// Others change it at the same time.
    #[error("{0}")]
    Busy(String),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ParseIdError> for RegistryError {
    fn from(err: ParseIdError) -> Self {
        Self::Invalid(err.to_string())
    }
}

impl Registry {
    /// Makes the registry of a toolbox, which is empty but for `flow` and the set that switches
    /// sets until the first [`sync`](Self::sync).
    pub fn new(parts: Parts) -> Self {
        let inner = Arc::new_cyclic(|registry: &Weak<Inner>| {
            parts.toolbox.put(flow::flow());
            parts.toolbox.put(tools::tool_set(registry.clone()));
            Inner { parts, applied: Mutex::default(), seen: AtomicU64::new(NONE) }
        });
        Self(inner)
    }

    /// Returns the toolbox that it fills.
    pub fn toolbox(&self) -> &Toolbox {
        &self.0.parts.toolbox
    }

    /// Returns the sources.
    pub fn sources(&self) -> &Sources {
        &self.0.parts.sources
    }

    /// Makes the toolbox what the configuration and the store say by now.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let revision = self.0.parts.store.records_revision().await?;
        if self.0.seen.load(Ordering::Acquire) == revision {
            return Ok(());
        }
        self.latest().await.map(drop)
    }

    /// Makes the toolbox what the store says by now, and keeps everybody else from doing so.
    /// Returns what cannot be as it was asked for here: names of toolsets, and why.
    pub async fn complaints(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(self.latest().await?.complaints.clone())
    }

    async fn latest(&self) -> Result<MutexGuard<'_, Applied>, StoreError> {
        let mut applied = self.0.applied.lock().await;
        self.renew(&mut applied).await?;
        Ok(applied)
    }

    async fn renew(&self, applied: &mut Applied) -> Result<(), StoreError> {
        // Asked before the records: what changes in between is only read again.
        let revision = self.0.parts.store.records_revision().await?;
        if applied.revision == Some(revision) {
            return Ok(());
        }
        let known = records::read(&*self.0.parts.store, &self.0.parts.contexts).await?;
        self.apply(applied, known);
        self.note(applied, revision);
        Ok(())
    }

    /// Remembers of which revision the toolbox is.
    fn note(&self, applied: &mut Applied, revision: u64) {
        applied.revision = Some(revision);
        self.0.seen.store(revision, Ordering::Release);
    }

    /// Looks after what other nodes change, until `stop`.
    pub async fn watch(self, stop: CancellationToken) {
        let mut hints = self.0.parts.store.hints().subscribe_records();
        loop {
            let begun = Instant::now();
            if let Err(err) = self.sync().await {
                tracing::warn!(%err, "cannot see whether toolsets have changed");
            }
            let gather = (begun.elapsed() * REST).clamp(GATHER, LOOK);
            let next = async {
                time::sleep(gather).await;
                let _ = time::timeout(LOOK, hints.changed()).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = next => (),
            }
        }
    }

    /// Adds a set, as it would be written in the configuration, and returns it as it is now: without
    /// tools, switched off and hidden where its condition does not hold yet.
    pub async fn add_set(&self, written: Value) -> Result<ToolSet, RegistryError> {
        let set: SetConfig = serde_json::from_value(written.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        self.check_secrets(set.variables())?;
        if let Some(condition) = &set.condition {
            condition::parse(condition)
                .map_err(|why| RegistryError::Invalid(format!("`condition`: {why}")))?;
        }
        if let Source::Tools(tools) = set.clone().rooted(&self.0.parts.base).source
            && let Some(why) = self.sources().complaint(&set.name, tools)
        {
            return Err(RegistryError::Invalid(why));
        }
        let name = set.name.to_string();
        let exists = || RegistryError::Exists { what: "a toolset", name: name.clone() };
        let mut applied = self.latest().await?;
        if applied.known.sets.len() >= limits::TOOL_SETS {
            return Err(RegistryError::Full { what: "toolsets", most: limits::TOOL_SETS });
        }
        let is_hidden = applied.hidden.iter().any(|it| it.name == set.name);
        let is_known = self.is_configured(&set.name) || self.toolbox().set(&set.name).is_some();
        if is_hidden || is_known || set.name.as_str() == dispatch::SET {
            return Err(exists());
        }
        self.forget_switch(&applied, &name).await?;
        if self.put(RecordKind::ToolSet, &name, written, WriteCondition::Exists).await?.is_none() {
            return Err(exists());
        }
        self.renew(&mut applied).await?;
        let hidden = || ToolSet {
            name: set.name.clone(),
            description: set.description.clone(),
            source: set.kind(),
            acts_here: set.acts_here(),
            is_active: false,
            status: SetStatus::Hidden,
            tools: Vec::new(),
            left_out: Vec::new(),
        };
        Ok(self.toolbox().whole_set(&set.name).unwrap_or_else(hidden))
    }

    /// Removes a set that was added, and the tools that were registered into it; returns whether
    /// there was one.
    pub async fn remove_set(&self, name: &ToolSetName) -> Result<bool, RegistryError> {
        let store = &self.0.parts.store;
        let mut applied = self.latest().await?;
        let elsewhere = |hint: String| RegistryError::Elsewhere { name: name.to_string(), hint };
        if self.is_configured(name) {
            let hint = "remove it from the configuration, or switch it off";
            return Err(elsewhere(hint.to_owned()));
        }
        let tools = applied.known.tools.iter().filter(|it| it.set == name.as_str());
        let tools: Vec<String> = tools.map(|it| it.record.clone()).collect();
        let mut is_removed = store.remove_record(RecordKind::ToolSet, name.as_str()).await?;
        for tool in tools {
            is_removed |= store.remove_record(RecordKind::Tool, &tool).await?;
        }
        if !is_removed {
            return match self.toolbox().set(name) {
                Some(_) => Err(elsewhere(whence(&applied, name))),
                None => Ok(false),
            };
        }
        self.forget_switch(&applied, name.as_str()).await?;
        self.renew(&mut applied).await?;
        Ok(true)
    }

    fn is_configured(&self, name: &ToolSetName) -> bool {
        self.0.parts.configured.iter().any(|it| it.name == *name)
    }

    /// Returns whether a set is one of those that are always there.
    fn is_fixed(name: &ToolSetName) -> bool {
        [TOOL_SET, flow::SET].contains(&name.as_str())
    }

    /// Removes what says that a set is switched on or off: that goes with the set.
    async fn forget_switch(&self, applied: &Applied, name: &str) -> Result<(), StoreError> {
        if applied.known.switches.contains_key(name) {
            self.0.parts.store.remove_record(RecordKind::Switch, name).await?;
        }
        Ok(())
    }

    /// Changes the data of a context as a JSON Merge Patch says (RFC 7396): fields are replaced,
    /// those that are null removed.
    pub async fn set_context(&self, name: &str, data: &Value) -> Result<(), RegistryError> {
        if !data.is_object() {
            let why = "the data of a context is an object, such as `{\"adminMode\": true}`";
            return Err(RegistryError::Invalid(why.to_owned()));
        }
        for _ in 0..TRIES {
            let mut applied = self.latest().await?;
            self.check_context(&applied, name, data)?;
            let before = self.0.parts.store.find_record(RecordKind::Context, name).await?;
            let (unless, at) =
                WriteCondition::unless_changed(before.as_ref(), self.0.parts.clock.now());
            let mut patch = before.map_or_else(|| json!({}), |it| Arc::unwrap_or_clone(it.value));
            let own = self.0.parts.contexts.get(name);
            patches::combine_patches(&mut patch, data, own);
            // The files of other nodes may have what this one's has not.
            patches::prune_patch(&mut patch, own, REMOVED);
            let (kind, name, value) = (RecordKind::Context, name.to_owned(), Arc::new(patch));
            let record = Record { kind, name, value, at };
            if self.0.parts.store.put_record(&record, unless).await? {
                let documents = Documents::set_of(&record.name).ok();
                let had = documents.filter(|it| offers_documents(&applied, it));
                self.renew(&mut applied).await?;
                if let Some(set) = had.filter(|it| !offers_documents(&applied, it)) {
                    self.forget_switch(&applied, set.as_str()).await?;
                }
                return Ok(());
            }
        }
        let why = format!("others change the context `{name}` all the time: try again");
        Err(RegistryError::Busy(why))
    }

    /// Returns the data of a context.
    #[cfg(test)]
    async fn context(&self, name: &str) -> Option<Value> {
        self.0.applied.lock().await.known.contexts.get(name).cloned()
    }

    /// Whoever adds something may not send any variable of the environment wherever he likes.
    fn check_secrets<'a>(
        &self,
        variables: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), RegistryError> {
        match merge::denied(variables, self.0.parts.secrets.as_ref()) {
            Some(name) => Err(RegistryError::Secret(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Writes a record; returns when, unless somebody was faster.
    async fn put(
        &self,
        kind: RecordKind,
        name: &str,
        value: Value,
        unless: WriteCondition,
    ) -> Result<Option<Timestamp>, StoreError> {
        let at = self.0.parts.clock.now();
        let record = Record { kind, name: name.to_owned(), value: Arc::new(value), at };
        Ok(self.0.parts.store.put_record(&record, unless).await?.then_some(at))
    }

    /// Makes the toolbox what is known. Sets that are as they were are not touched.
    fn apply(&self, applied: &mut Applied, known: Known) {
        let Parts { sources, toolbox, configured, base, secrets, .. } = &self.0.parts;
        let secrets = secrets.as_ref();
        let before = (&applied.known, &applied.read);
        let merged = merge(configured, &known, before, base, secrets);
        let Merged { wanted, hidden, complaints, read } = merged;
        for (name, why) in complaints.iter().filter(|it| !applied.complaints.contains(it)) {
            tracing::warn!(%name, %why, "a toolset is not as it was asked for");
        }
        for gone in applied.wanted.iter().filter(|it| !has(&wanted, &it.config.name)) {
            sources.remove(&gone.config.name);
        }
        for Wanted { config, is_active, .. } in &wanted {
            let before = applied.wanted.iter().find(|it| it.config.name == config.name);
            // What is switched off is never there switched on, not even for a moment.
            let now = || SetConfig { active: *is_active, ..config.clone() };
            match before {
                Some(before) if before.config == *config => (),
                Some(before) => sources.change(now(), &before.config),
                None => sources.put(now()),
            }
        }
        // Those that the program itself brings are switched like all others.
        let mut switches: BTreeMap<ToolSetName, bool> = known
            .switches
            .iter()
            .filter_map(|(name, on)| Some((name.parse().ok()?, *on)))
            .filter(|(name, _)| !Self::is_fixed(name))
            .collect();
        switches.extend(wanted.iter().map(|it| (it.config.name.clone(), it.is_active)));
        toolbox.switch(&switches);
        let own = TOOL_SET.parse().expect("the name of the set is a literal");
        let order: Vec<_> = wanted.iter().map(|it| it.config.name.clone()).chain([own]).collect();
        toolbox.arrange(&order);
        applied.known = known;
        applied.wanted = wanted;
        applied.hidden = hidden;
        applied.read = read;
        applied.complaints = complaints;
    }

    /// Returns why the data of a context cannot be changed so, if that is so.
    fn check_context(
        &self,
        applied: &Applied,
        name: &str,
        data: &Value,
    ) -> Result<(), RegistryError> {
        let known = &applied.known;
        if known.contexts.len() >= limits::CONTEXTS && !known.contexts.contains_key(name) {
            return Err(RegistryError::Full { what: "contexts", most: limits::CONTEXTS });
        }
        let Some(change) = data.get(FIELD).filter(|it| !it.is_null()) else { return Ok(()) };
        let mut documents = known.documents.get(name).cloned().unwrap_or_default();
        patches::apply_merge_patch(&mut documents, change);
        let checked = Documents::read(name, &documents).map_err(RegistryError::Invalid)?;
        let set = Documents::set_of(name).map_err(RegistryError::Invalid)?;
        let is_hidden = applied.hidden.iter().any(|it| it.name == set);
        let is_there = self.toolbox().set(&set).is_some() && !offers_documents(applied, &set);
        if !checked.is_empty() && (is_hidden || is_there) {
            // It would be theirs, and the documents would be nowhere.
            return Err(RegistryError::Exists { what: "a toolset", name: set.to_string() });
        }
        Ok(())
    }
}

/// Returns whether a set is that of a context's documents.
fn offers_documents(applied: &Applied, name: &ToolSetName) -> bool {
    let is_it = |it: &Wanted| matches!(it.config.source, Source::Documents(_));
    applied.wanted.iter().any(|it| it.config.name == *name && is_it(it))
}

/// Returns where a set comes from that is neither configured nor was added, and what to do.
fn whence(applied: &Applied, name: &ToolSetName) -> String {
    if Registry::is_fixed(name) {
        return "it is a part of Faber and always there".to_owned();
    }
    let wanted = applied.wanted.iter().find(|it| it.config.name == *name);
    match wanted.and_then(|it| it.config.context.as_deref()) {
        Some(context) => format!(
            "it has the documents of the context `{context}`: set its `{FIELD}` to null, or switch the set off"
        ),
        None => "this program brings it: switch it off".to_owned(),
    }
}

fn has(wanted: &[Wanted], name: &ToolSetName) -> bool {
    wanted.iter().any(|it| it.config.name == *name)
}

#[cfg(test)]
mod tests;
