//! Which toolsets there are, and which are switched on: the same on every node.
//!
//! The configuration says what a node begins with. What is added, registered, switched or told
//! afterwards is kept in the store as [records](shared::store::Records); every node reads them
//! when it starts, when it hears that one has changed, and every now and then, and
//! makes its [`Toolbox`] what they say. Nothing here is a second truth: a node that missed a change
//! finds it the next time it looks.

mod condition;
mod merge;
mod records;
mod switching;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::{Value, json};
use shared::{
    clock::Clock,
    id::{ParseIdError, ToolName, ToolSetName},
    json as patches, limits,
    store::{Record, RecordKind, Store, StoreError, Unless},
};
use tokio::{sync::Mutex, time};
use tokio_util::sync::CancellationToken;

use self::merge::{Known, Wanted, merge};
pub use self::{switching::Switched, tools::TOOL_SET};
use crate::{
    sources::{Documents, SetConfig, Source, Sources, documents::FIELD},
    tool::{command::CommandTool, flow},
    toolbox::{Found, ReadyTool, Toolbox},
};

/// The set of tools that are registered without one.
const LOCAL: &str = "local";
/// How often a node looks whether another one changed something, where no hint came.
const LOOK: Duration = Duration::from_secs(2);

/// Which toolsets there are. Clones are one.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

/// What a registry works with.
#[derive(Debug)]
pub struct Parts {
    /// What it fills.
    pub sources: Sources,
    /// The toolbox of those sources.
    pub toolbox: Toolbox,
    /// Where changes are kept.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The sets of the configuration, in their order.
    pub configured: Vec<SetConfig>,
    /// The contexts of the configuration.
    pub contexts: BTreeMap<String, Value>,
    /// What relative paths of added sets are relative to.
    pub base: PathBuf,
    /// The variables of the environment that added sets and tools may use. Those of the
    /// configuration may use any.
    pub secrets: BTreeSet<String>,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    applied: Mutex<Applied>,
}

/// What the toolbox was last made of.
#[derive(Debug, Default)]
struct Applied {
    revision: Option<u64>,
    known: Known,
    wanted: Vec<Wanted>,
}

/// Why a set or a tool is not as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// There is one of the name, which stays as it is.
    #[error("{what} called `{name}` exists already and was not changed: use another name")]
    Exists {
        /// What it is.
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
        /// Where it comes from, and what to do.
        hint: String,
    },
    /// There are too many.
    #[error("there are {most} {what}, which is the most: remove some")]
    Full {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
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
            Inner { parts, applied: Mutex::default() }
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
        let mut applied = self.0.applied.lock().await;
        // Asked before the records: what changes in between is only read again.
        let revision = self.0.parts.store.records_revision().await?;
        if applied.revision == Some(revision) {
            return Ok(());
        }
        let known = records::read(&*self.0.parts.store, &self.0.parts.contexts).await?;
        self.apply(&mut applied, known);
        applied.revision = Some(revision);
        Ok(())
    }

    /// Looks after what other nodes change, until `stop`.
    pub async fn watch(self, stop: CancellationToken) {
        let mut hints = self.0.parts.store.hints().records();
        loop {
            if let Err(err) = self.sync().await {
                tracing::warn!(%err, "cannot see whether toolsets have changed");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                _ = hints.changed() => (),
                () = time::sleep(LOOK) => (),
            }
        }
    }

    /// Adds a set, as it would be written in the configuration.
    pub async fn add_set(&self, written: Value) -> Result<(), RegistryError> {
        let set: SetConfig = serde_json::from_value(written.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        self.check_secrets(set.variables())?;
        self.sync().await?;
        let name = set.name.to_string();
        let exists = || RegistryError::Exists { what: "a toolset", name: name.clone() };
        {
            let applied = self.0.applied.lock().await;
            if let Some(condition) = &set.condition {
                condition::holds(condition, set.context.as_deref(), &applied.known.contexts)
                    .map_err(|why| RegistryError::Invalid(format!("`condition`: {why}")))?;
            }
            if applied.known.sets.len() >= limits::TOOL_SETS {
                return Err(RegistryError::Full { what: "toolsets", most: limits::TOOL_SETS });
            }
        }
        let is_configured = self.0.parts.configured.iter().any(|it| it.name == set.name);
        if is_configured || self.0.parts.toolbox.set(&set.name).is_some() {
            return Err(exists());
        }
        if !self.put(RecordKind::ToolSet, &name, written, Unless::Exists).await? {
            return Err(exists());
        }
        Ok(self.sync().await?)
    }

    /// Removes a set that was added, and the tools that were registered into it; returns whether
    /// there was one.
    pub async fn remove_set(&self, name: &ToolSetName) -> Result<bool, RegistryError> {
        self.sync().await?;
        let store = &self.0.parts.store;
        let tools: Vec<String> = {
            let applied = self.0.applied.lock().await;
            let tools = applied.known.tools.iter().filter(|(set, _)| set == name.as_str());
            tools
                .filter_map(|(set, tool)| Some(format!("{set}.{}", tool["name"].as_str()?)))
                .collect()
        };
        let mut is_removed = store.remove_record(RecordKind::ToolSet, name.as_str()).await?;
        for tool in tools {
            is_removed |= store.remove_record(RecordKind::Tool, &tool).await?;
        }
        if !is_removed {
            if self.0.parts.toolbox.set(name).is_none() {
                return Ok(false);
            }
            return Err(RegistryError::Elsewhere {
                name: name.to_string(),
                hint: "remove it from the configuration, or switch it off".to_owned(),
            });
        }
        store.remove_record(RecordKind::Switch, name.as_str()).await?;
        self.sync().await?;
        Ok(true)
    }

    /// Registers a tool, as it would be written in a set of the configuration, and returns the
    /// name that always means it.
    pub async fn register(
        &self,
        set: Option<&str>,
        written: Value,
    ) -> Result<ToolName, RegistryError> {
        let tool: CommandTool = serde_json::from_value(written.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        let tool = tool.added();
        self.check_secrets(tool.secrets().into_iter().chain(tool.passed()))?;
        let name: ToolSetName = set.unwrap_or(LOCAL).parse()?;
        let known = tool.clone().into_tool(&name, usize::MAX, self.0.parts.sources.launcher());
        let known = known.map_err(|err| RegistryError::Invalid(err.to_string()))?;
        let qualified = known.definition().qualified();
        self.sync().await?;
        self.check_free(set.is_some(), &tool, &qualified).await?;
        self.check_place(&name, &tool).await?;
        let record = format!("{name}.{}", tool.name);
        let value = json!({ "set": name, "tool": written });
        if !self.put(RecordKind::Tool, &record, value, Unless::Exists).await? {
            return Err(RegistryError::Exists { what: "a tool", name: qualified.to_string() });
        }
        self.registered(&name, tool, written).await?;
        Ok(qualified)
    }

    /// Removes a tool that was registered; returns whether there was one.
    pub async fn unregister(&self, name: &ToolName) -> Result<bool, RegistryError> {
        self.sync().await?;
        let (Found::Tool(found) | Found::Inactive(found)) = self.0.parts.toolbox.find(name) else {
            return Ok(false);
        };
        let definition = found.definition();
        let record = format!("{}.{}", definition.set, definition.name);
        if !self.0.parts.store.remove_record(RecordKind::Tool, &record).await? {
            return Err(RegistryError::Elsewhere {
                name: definition.qualified().to_string(),
                hint: format!("it comes with the toolset `{}`", definition.set),
            });
        }
        self.sync().await?;
        Ok(true)
    }

    /// Changes the data of a context as a JSON Merge Patch says (RFC 7396): fields are replaced,
    /// those that are null removed.
    pub async fn set_context(&self, name: &str, data: &Value) -> Result<(), RegistryError> {
        if !data.is_object() {
            let why = "the data of a context is an object, such as `{\"adminMode\": true}`";
            return Err(RegistryError::Invalid(why.to_owned()));
        }
        self.sync().await?;
        {
            let known = &self.0.applied.lock().await.known;
            if known.contexts.len() >= limits::CONTEXTS && !known.contexts.contains_key(name) {
                return Err(RegistryError::Full { what: "contexts", most: limits::CONTEXTS });
            }
            if let Some(change) = data.get(FIELD).filter(|it| !it.is_null()) {
                let mut documents = known.documents.get(name).cloned().unwrap_or_default();
                patches::merge(&mut documents, change);
                let checked = Documents::read(name, &documents);
                checked.and_then(|_| Documents::set_of(name)).map_err(RegistryError::Invalid)?;
            }
        }
        let before = self.0.parts.store.record(RecordKind::Context, name).await?;
        let mut patch = before.map(|it| Arc::unwrap_or_clone(it.value)).unwrap_or_default();
        patches::compose(&mut patch, data);
        self.put(RecordKind::Context, name, patch, Unless::Never).await?;
        Ok(self.sync().await?)
    }

    /// Returns the data of a context.
    pub async fn context(&self, name: &str) -> Option<Value> {
        self.0.applied.lock().await.known.contexts.get(name).cloned()
    }

    /// Whoever adds something may not send any variable of the environment wherever he likes.
    fn check_secrets<'a>(
        &self,
        variables: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), RegistryError> {
        match merge::denied(variables, &self.0.parts.secrets) {
            Some(name) => Err(RegistryError::Secret(name.to_owned())),
            None => Ok(()),
        }
    }

    async fn put(
        &self,
        kind: RecordKind,
        name: &str,
        value: Value,
        unless: Unless,
    ) -> Result<bool, StoreError> {
        let at = self.0.parts.clock.now();
        let record = Record { kind, name: name.to_owned(), value: Arc::new(value), at };
        self.0.parts.store.put_record(&record, unless).await
    }

    /// A name without a set must mean nothing yet; with one, only nothing in it.
    async fn check_free(
        &self,
        has_set: bool,
        tool: &CommandTool,
        qualified: &ToolName,
    ) -> Result<(), RegistryError> {
        let toolbox = &self.0.parts.toolbox;
        let is_taken = |name: &ToolName| match toolbox.find(name) {
            Found::Tool(it) | Found::Inactive(it) => {
                let it = it.definition();
                it.qualified() == *qualified || (!has_set && it.name == *name)
            }
            _ => false,
        };
        if is_taken(qualified) || is_taken(&tool.name) {
            return Err(RegistryError::Exists { what: "a tool", name: tool.name.to_string() });
        }
        let tools = self.0.applied.lock().await.known.tools.len();
        if tools >= limits::REGISTERED_TOOLS {
            return Err(RegistryError::Full { what: "tools", most: limits::REGISTERED_TOOLS });
        }
        Ok(())
    }

    /// Only a set whose tools are written down can take one more.
    async fn check_place(
        &self,
        set: &ToolSetName,
        tool: &CommandTool,
    ) -> Result<(), RegistryError> {
        let applied = self.0.applied.lock().await;
        let there = applied.wanted.iter().find(|it| it.config.name == *set);
        let is_open = match there {
            Some(it) => matches!(it.config.source, Source::Tools(_)),
            None => self.0.parts.toolbox.set(set).is_none(),
        };
        if is_open {
            return Ok(());
        }
        let why = format!(
            "the tools of `{set}` come from elsewhere, so `{}` cannot be in it: name another toolset",
            tool.name
        );
        Err(RegistryError::Invalid(why))
    }

    /// Takes note of a tool that was just registered. Where nothing else has changed, only this
    /// one is new: thousands may be registered one after another.
    async fn registered(
        &self,
        set: &ToolSetName,
        tool: CommandTool,
        written: Value,
    ) -> Result<(), StoreError> {
        let mut applied = self.0.applied.lock().await;
        let revision = self.0.parts.store.records_revision().await?;
        let place = applied.wanted.iter().position(|it| it.config.name == *set);
        if let Some(place) = place
            && applied.revision.map(|it| it + 1) == Some(revision)
            && let Source::Tools(tools) = &mut applied.wanted[place].config.source
            && let Ok(ready) = tool.clone().into_tool(
                set,
                self.0.parts.sources.output_bytes(),
                self.0.parts.sources.launcher(),
            )
        {
            tools.push(tool);
            applied.known.tools.push((set.to_string(), written));
            applied.revision = Some(revision);
            self.0.parts.toolbox.extend(set, ReadyTool::new(ready));
            return Ok(());
        }
        drop(applied);
        self.sync().await
    }

    /// Makes the toolbox what is known. Sets that are as they were are not touched.
    fn apply(&self, applied: &mut Applied, known: Known) {
        let Parts { sources, toolbox, configured, base, secrets, .. } = &self.0.parts;
        let (wanted, complaints) = merge(configured, &known, base, secrets);
        for (name, why) in complaints {
            tracing::warn!(%name, %why, "a toolset is not as it was asked for");
        }
        for gone in applied.wanted.iter().filter(|it| !has(&wanted, &it.config.name)) {
            sources.remove(&gone.config.name);
        }
        for Wanted { config, .. } in &wanted {
            let before = applied.wanted.iter().find(|it| it.config.name == config.name);
            if before.is_none_or(|it| it.config != *config) {
                sources.put(config.clone());
            }
        }
        let switches = wanted.iter().map(|it| (it.config.name.clone(), it.is_active)).collect();
        toolbox.switch(&switches);
        let own = TOOL_SET.parse().expect("the name of the set is a literal");
        let order: Vec<_> = wanted.iter().map(|it| it.config.name.clone()).chain([own]).collect();
        toolbox.arrange(&order);
        applied.known = known;
        applied.wanted = wanted;
    }
}

fn has(wanted: &[Wanted], name: &ToolSetName) -> bool {
    wanted.iter().any(|it| it.config.name == *name)
}

#[cfg(test)]
mod tests;
