//! The toolsets of a node, and their activation.
//!
//! Changes by callers are [records](shared::store::KeyValue) in the store. The records alone
//! decide, so a node that missed a hint catches up at the next poll.

mod activation;
mod condition;
mod configured;
mod merge;
mod records;
mod registering;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, RwLock, Weak,
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
use toolbox::{LOG_TARGET, SetStatus, ToolSet, Toolbox, dispatch, flow, tool_names::TOOL_SET};

use self::merge::{Complaint, KnownRecords, MergedSets, ReadDocuments, SetMerger, WantedSet};
pub use self::{activation::SwitchResult, configured::ConfiguredSets, records::find_added_set};
use crate::sources::{Documents, SetConfig, Source, Sources, documents::DOCUMENTS_FIELD};

/// Poll interval for changes by other nodes. A hint makes a node read earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest pause between two reads of the records. Thousands of tools may be registered one after
/// another, so a slow read makes the pause longer.
const MIN_READ_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 10;
/// The revision before the first read.
const NO_REVISION: u64 = u64::MAX;
/// Maximum number of fields that a context's record may set to null although this node's
/// configuration lacks them.
const MAX_REMOVED_FIELDS: usize = 1_000;
/// Maximum number of attempts to change a context while other nodes change it.
const MAX_CONTEXT_ATTEMPTS: usize = 64;

/// The toolsets of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Registry(Arc<RegistryState>);

#[derive(Debug)]
pub struct Parts {
    pub sources: Sources,
    pub toolbox: Toolbox,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub configured: Vec<SetConfig>,
    pub contexts: BTreeMap<String, Value>,
    pub base: PathBuf,
    /// The variables of the environment that added sets and tools may use. `None` allows all.
    /// Configured sets may use any variable.
    pub secrets: Option<BTreeSet<String>>,
}

#[derive(Debug)]
struct RegistryState {
    parts: Parts,
    configured: RwLock<Arc<ConfiguredSets>>,
    /// Locked during a change until this node has applied it, so that in the meantime only other
    /// nodes can make changes.
    applied: Mutex<AppliedState>,
    /// The revision that was applied last, or [`NO_REVISION`].
    applied_revision: AtomicU64,
}

#[derive(Debug, Default)]
struct AppliedState {
    revision: Option<u64>,
    known_records: KnownRecords,
    wanted_sets: Vec<WantedSet>,
    hidden_sets: Vec<SetConfig>,
    read_documents: ReadDocuments,
    complaints: Vec<Complaint>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("{kind} called `{name}` exists already and was not changed: use another name")]
    Exists {
        /// The kind of the thing: a toolset or a tool.
        kind: &'static str,
        name: String,
    },
    #[error("{0}")]
    Invalid(String),
    /// The set or the tool uses a variable that is not in `access.secrets`.
    #[error(
        "added toolsets and tools may not use the variable `{0}` of Faber's environment: add it to `access.secrets` in the configuration"
    )]
    Secret(String),
    #[error("`{name}` cannot be removed: {hint}")]
    NotAdded {
        name: String,
        /// The origin of the set or tool, and what the caller can do instead.
        hint: String,
    },
    #[error("there are already {limit} {noun}, the maximum: remove some")]
    Full { noun: &'static str, limit: usize },
    #[error(
        "the toolset `{0}` does not exist now, because its `condition` is false: try again when \
         the condition is true"
    )]
    Hidden(String),
    #[error("{0}")]
    Busy(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ParseIdError> for RegistryError {
    fn from(err: ParseIdError) -> Self {
        Self::Invalid(err.to_string())
    }
}

impl Registry {
    /// Makes a registry. Until the first [`sync`](Self::sync), the toolbox has the sets `flow` and
    /// `ToolSet` only.
    pub fn new(mut parts: Parts) -> Self {
        let configured = ConfiguredSets::take_from(&mut parts);
        let inner = Arc::new_cyclic(|registry: &Weak<RegistryState>| {
            parts.toolbox.put_set(flow::flow());
            parts.toolbox.put_set(activation::tool_set(registry.clone()));
            RegistryState {
                parts,
                configured: RwLock::new(Arc::new(configured)),
                applied: Mutex::default(),
                applied_revision: AtomicU64::new(NO_REVISION),
            }
        });
        Self(inner)
    }

    pub fn toolbox(&self) -> &Toolbox {
        &self.0.parts.toolbox
    }

    pub fn sources(&self) -> &Sources {
        &self.0.parts.sources
    }

    pub async fn sync(&self) -> Result<(), StoreError> {
        let revision = self.0.parts.store.records_revision().await?;
        if self.0.applied_revision.load(Ordering::Acquire) == revision {
            return Ok(());
        }
        self.lock_latest().await.map(drop)
    }

    /// Updates the toolbox. Returns the toolsets that cannot have the requested state on this node,
    /// with the reasons.
    pub async fn complaints(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(self.lock_latest().await?.complaints.clone())
    }

    /// Returns the toolsets whose commands lack their programs on this machine, with the reasons.
    pub async fn missing_programs(&self) -> Result<Vec<(ToolSetName, Vec<String>)>, StoreError> {
        let applied = self.lock_latest().await?;
        let missing = applied
            .wanted_sets
            .iter()
            .filter(|wanted| wanted.is_active)
            .map(|wanted| (wanted.config.name.clone(), wanted.config.missing_programs()));
        Ok(missing.filter(|(_, reasons)| !reasons.is_empty()).collect())
    }

    /// Returns the patterns of `effects` that fit no tool, with their toolsets. Omits toolsets
    /// whose tools are unknown.
    pub async fn unmatched_effects(&self) -> Result<Vec<String>, StoreError> {
        let applied = self.lock_latest().await?;
        let mut unmatched = Vec::new();
        for WantedSet { config, .. } in &applied.wanted_sets {
            let set = self.toolbox().set_with_tools(&config.name);
            let Some(set) = set.filter(|set| set.status == SetStatus::Ready) else { continue };
            let patterns = config.effects.unmatched_patterns(&set).into_iter();
            unmatched.extend(patterns.map(|pattern| format!("`{pattern}` of `{}`", config.name)));
        }
        Ok(unmatched)
    }

    async fn lock_latest(&self) -> Result<MutexGuard<'_, AppliedState>, StoreError> {
        let mut applied = self.0.applied.lock().await;
        self.read_changes(&mut applied).await?;
        Ok(applied)
    }

    async fn read_changes(&self, applied: &mut AppliedState) -> Result<(), StoreError> {
        // Reads the revision before the records. If the records change between the two reads, the
        // next call reads them again.
        let revision = self.0.parts.store.records_revision().await?;
        if applied.revision == Some(revision) {
            return Ok(());
        }
        let contexts = &self.configured().contexts;
        let records = records::read_records(&*self.0.parts.store, contexts).await?;
        self.update_toolbox(applied, records);
        self.set_revision(applied, revision);
        Ok(())
    }

    fn set_revision(&self, applied: &mut AppliedState, revision: u64) {
        applied.revision = Some(revision);
        self.0.applied_revision.store(revision, Ordering::Release);
    }

    /// Applies changes of other nodes until `stop` is cancelled.
    pub async fn watch(self, stop: CancellationToken) {
        let mut hints = self.0.parts.store.hints().subscribe_records();
        loop {
            let started = Instant::now();
            if let Err(err) = self.sync().await {
                tracing::warn!(%err, "cannot see whether toolsets have changed");
            }
            let pause = (started.elapsed() * PAUSE_FACTOR).clamp(MIN_READ_PAUSE, POLL_INTERVAL);
            let next = async {
                time::sleep(pause).await;
                let _ = time::timeout(POLL_INTERVAL, hints.changed()).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = next => (),
            }
        }
    }

    /// Adds a set from its configuration, and returns its present state. If its condition does not
    /// hold, the set has no tools and is inactive.
    pub async fn add_set(&self, settings: Value) -> Result<ToolSet, RegistryError> {
        let set: SetConfig = serde_json::from_value(settings.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        self.check_secrets(set.variables())?;
        registering::refuse_secret_files(set.secret_files())?;
        if let Some(condition) = &set.condition {
            condition::check_syntax(condition)
                .map_err(|error| RegistryError::Invalid(format!("`condition`: {error}")))?;
        }
        if let Source::Tools(tools) = set.clone().rooted(&self.0.parts.base).source
            && let Some(reason) = self.sources().find_mistake(&set.name, tools)
        {
            return Err(RegistryError::Invalid(reason));
        }
        let name = set.name.to_string();
        let exists = || RegistryError::Exists { kind: "a toolset", name: name.clone() };
        let mut applied = self.lock_latest().await?;
        if applied.known_records.sets.len() >= limits::TOOL_SETS {
            return Err(RegistryError::Full { noun: "toolsets", limit: limits::TOOL_SETS });
        }
        let is_hidden = applied.hidden_sets.iter().any(|hidden| hidden.name == set.name);
        let is_known = self.is_configured(&set.name) || self.toolbox().set(&set.name).is_some();
        if is_hidden || is_known || set.name.as_str() == dispatch::SET {
            return Err(exists());
        }
        self.remove_switch(&applied, &name).await?;
        if self
            .put_record(RecordKind::ToolSet, &name, settings, WriteCondition::Exists)
            .await?
            .is_none()
        {
            return Err(exists());
        }
        self.read_changes(&mut applied).await?;
        let hidden = || ToolSet {
            description: set.description.clone(),
            is_active: false,
            ..set.empty_set(SetStatus::Hidden)
        };
        Ok(self.toolbox().set_with_tools(&set.name).unwrap_or_else(hidden))
    }

    /// Removes an added set and the tools that were registered into it. Returns `false` if no set
    /// has the name.
    pub async fn remove_set(&self, name: &ToolSetName) -> Result<bool, RegistryError> {
        let store = &self.0.parts.store;
        let mut applied = self.lock_latest().await?;
        let not_added_error =
            |hint: String| RegistryError::NotAdded { name: name.to_string(), hint };
        if self.is_configured(name) {
            let hint = "it is configured: remove it from the configuration, or deactivate it";
            return Err(not_added_error(hint.to_owned()));
        }
        let tools = applied.known_records.tools.iter().filter(|tool| tool.set == name.as_str());
        let tools: Vec<String> = tools.map(|tool| tool.record.clone()).collect();
        let mut is_removed = store.remove_record(RecordKind::ToolSet, name.as_str()).await?;
        for tool in tools {
            is_removed |= store.remove_record(RecordKind::Tool, &tool).await?;
        }
        if !is_removed {
            return match self.toolbox().set(name) {
                Some(_) => Err(not_added_error(describe_origin(&applied, name))),
                None => Ok(false),
            };
        }
        self.remove_switch(&applied, name.as_str()).await?;
        self.read_changes(&mut applied).await?;
        Ok(true)
    }

    fn is_configured(&self, name: &ToolSetName) -> bool {
        self.configured().sets.iter().any(|set| set.name == *name)
    }

    fn is_fixed(name: &ToolSetName) -> bool {
        [TOOL_SET, flow::SET].contains(&name.as_str())
    }

    /// Removes the stored activation of a set that is gone. A later set of the same name starts
    /// with its default.
    async fn remove_switch(&self, applied: &AppliedState, name: &str) -> Result<(), StoreError> {
        if applied.known_records.switches.contains_key(name) {
            self.0.parts.store.remove_record(RecordKind::Switch, name).await?;
        }
        Ok(())
    }

    /// Applies a JSON Merge Patch (RFC 7396) to the data of a context.
    pub async fn set_context(&self, name: &str, data: &Value) -> Result<(), RegistryError> {
        if !data.is_object() {
            let reason = "the data of a context is an object, such as `{\"adminMode\": true}`";
            return Err(RegistryError::Invalid(reason.to_owned()));
        }
        for _ in 0..MAX_CONTEXT_ATTEMPTS {
            let mut applied = self.lock_latest().await?;
            self.check_context(&applied, name, data)?;
            let before = self.0.parts.store.find_record(RecordKind::Context, name).await?;
            let (unless, at) =
                WriteCondition::unless_changed(before.as_ref(), self.0.parts.clock.now());
            let mut patch =
                before.map_or_else(|| json!({}), |record| Arc::unwrap_or_clone(record.value));
            let configured = self.configured();
            let configured = configured.contexts.get(name);
            patches::combine_patches(&mut patch, data, configured);
            // Keeps some removals of fields that this node's configuration lacks, because the
            // configurations of other nodes may have them.
            patches::prune_patch(&mut patch, configured, MAX_REMOVED_FIELDS);
            let (kind, name, value) = (RecordKind::Context, name.to_owned(), Arc::new(patch));
            let record = Record { kind, name, value, at };
            if self.0.parts.store.put_record(&record, unless).await? {
                let documents = Documents::set_name_for_context(&record.name).ok();
                let had = documents.filter(|set| has_documents(&applied, set));
                self.read_changes(&mut applied).await?;
                if let Some(set) = had.filter(|set| !has_documents(&applied, set)) {
                    self.remove_switch(&applied, set.as_str()).await?;
                }
                return Ok(());
            }
        }
        let reason = format!("other callers keep changing the context `{name}`: try again");
        Err(RegistryError::Busy(reason))
    }

    #[cfg(test)]
    async fn context(&self, name: &str) -> Option<Value> {
        self.0.applied.lock().await.known_records.contexts.get(name).cloned()
    }

    async fn put_record(
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

    /// Updates the toolbox. Does not touch unchanged sets.
    fn update_toolbox(&self, applied: &mut AppliedState, records: KnownRecords) {
        let Parts { sources, toolbox, base, secrets, .. } = &self.0.parts;
        let configured = self.configured();
        let merge = SetMerger {
            configured: &configured.sets,
            base,
            secrets: secrets.as_ref(),
            records_before: &applied.known_records,
            documents_before: &applied.read_documents,
        };
        let MergedSets { wanted_sets, hidden_sets, complaints, read_documents } =
            merge.merge(&records);
        for (name, reason) in
            complaints.iter().filter(|complaint| !applied.complaints.contains(complaint))
        {
            tracing::warn!(target: LOG_TARGET, %name, why = %reason, "a toolset does not have the requested state");
        }
        for gone in
            applied.wanted_sets.iter().filter(|set| !contains_set(&wanted_sets, &set.config.name))
        {
            sources.remove(&gone.config.name);
        }
        for WantedSet { config, is_active } in &wanted_sets {
            let before = applied.wanted_sets.iter().find(|set| set.config.name == config.name);
            // Adds the set with its final state, because an inactive set must not be active even
            // between two updates.
            let now = || SetConfig { active: *is_active, ..config.clone() };
            match before {
                Some(before) if before.config == *config => (),
                Some(before) => sources.change(now(), &before.config),
                None => sources.put(now()),
            }
        }
        // Includes switches of sets that are not configured, because an embedding program may have
        // registered them.
        let mut switches: BTreeMap<ToolSetName, bool> = records
            .switches
            .iter()
            .filter_map(|(name, on)| Some((name.parse().ok()?, *on)))
            .filter(|(name, _)| !Self::is_fixed(name))
            .collect();
        switches.extend(wanted_sets.iter().map(|set| (set.config.name.clone(), set.is_active)));
        toolbox.switch_sets(&switches);
        let faber_set = TOOL_SET.parse().expect("the name of the set is a literal");
        let order: Vec<_> =
            wanted_sets.iter().map(|set| set.config.name.clone()).chain([faber_set]).collect();
        toolbox.sort_sets(&order);
        applied.known_records = records;
        applied.wanted_sets = wanted_sets;
        applied.hidden_sets = hidden_sets;
        applied.read_documents = read_documents;
        applied.complaints = complaints;
    }

    fn check_context(
        &self,
        applied: &AppliedState,
        name: &str,
        data: &Value,
    ) -> Result<(), RegistryError> {
        let records = &applied.known_records;
        if records.contexts.len() >= limits::CONTEXTS && !records.contexts.contains_key(name) {
            return Err(RegistryError::Full { noun: "contexts", limit: limits::CONTEXTS });
        }
        let Some(change) = data.get(DOCUMENTS_FIELD).filter(|change| !change.is_null()) else {
            return Ok(());
        };
        let mut documents = records.documents.get(name).cloned().unwrap_or_default();
        patches::apply_merge_patch(&mut documents, change);
        let checked = Documents::read(name, &documents).map_err(RegistryError::Invalid)?;
        let set = Documents::set_name_for_context(name).map_err(RegistryError::Invalid)?;
        let is_hidden = applied.hidden_sets.iter().any(|hidden| hidden.name == set);
        let is_there = self.toolbox().set(&set).is_some() && !has_documents(applied, &set);
        if !checked.is_empty() && (is_hidden || is_there) {
            // Rejects the documents, because another toolset has the name that their toolset needs.
            return Err(RegistryError::Exists { kind: "a toolset", name: set.to_string() });
        }
        Ok(())
    }
}

fn has_documents(applied: &AppliedState, name: &ToolSetName) -> bool {
    let is_document_set = |set: &WantedSet| matches!(set.config.source, Source::Documents(_));
    applied.wanted_sets.iter().any(|set| set.config.name == *name && is_document_set(set))
}

/// Describes the origin of a set that was not configured or added, and what to do instead.
fn describe_origin(applied: &AppliedState, name: &ToolSetName) -> String {
    if Registry::is_fixed(name) {
        return "it is part of Faber".to_owned();
    }
    let wanted = applied.wanted_sets.iter().find(|set| set.config.name == *name);
    match wanted.and_then(|set| set.config.context.as_deref()) {
        Some(context) => format!(
            "it has the documents of the context `{context}`: set its `{DOCUMENTS_FIELD}` to null, or \
             deactivate the toolset"
        ),
        None => "this program added it: deactivate it".to_owned(),
    }
}

fn contains_set(wanted: &[WantedSet], name: &ToolSetName) -> bool {
    wanted.iter().any(|set| set.config.name == *name)
}

#[cfg(test)]
mod tests;
