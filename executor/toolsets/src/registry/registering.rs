//! Tools that are registered one by one.

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    id::{ToolName, ToolSetName},
    limits,
    store::{RecordKind, StoreError, WriteCondition},
    tool::set_prefix,
};
use toolbox::{Found, ReadyTool, SetStatus, dispatch, tool_names::complaint};

use super::{Applied, Registry, RegistryError, merge::Registered};
use crate::{
    command::CommandTool,
    sources::{Source, root},
};

/// The set of tools that are registered without one.
const LOCAL: &str = "local";

/// A tool that is to be registered.
struct New {
    set: ToolSetName,
    /// `true` if the caller named the set.
    has_set: bool,
    tool: CommandTool,
    /// As it was given.
    written: Value,
    ready: ReadyTool,
}

impl Registry {
    /// Registers a tool, as it would be written in a set of the configuration, and returns the
    /// name that always means it.
    pub async fn register(
        &self,
        set: Option<&str>,
        written: Value,
    ) -> Result<ToolName, RegistryError> {
        let new = self.prepare(set, written)?;
        let name = new.ready.definition().qualified_name();
        let mut applied = self.latest().await?;
        self.check_free(&applied, &new)?;
        self.check_place(&applied, &new)?;
        let New { set, written, .. } = &new;
        if self.toolbox().set(set).is_none() {
            self.forget_switch(&applied, set.as_str()).await?;
        }
        let mut value = json!({ "set": set, "tool": written });
        let since = since(&applied, set);
        if let Some(since) = since {
            value["since"] = json!(since);
        }
        let at = self.put(RecordKind::Tool, name.as_str(), value, WriteCondition::Exists).await?;
        let Some(at) = at else {
            return Err(RegistryError::Exists { what: "a tool", name: name.to_string() });
        };
        self.registered(&mut applied, new, (at, since)).await?;
        Ok(name)
    }

    /// Removes a tool that was registered, by a name that is its own and not only short for it;
    /// returns whether there was one.
    pub async fn unregister(&self, name: &ToolName) -> Result<bool, RegistryError> {
        let mut applied = self.latest().await?;
        let registered = |name: &ToolName| {
            let mut tools = applied.known.tools.iter();
            tools.find(|it| it.qualified().as_ref() == Some(name))
        };
        // Its set need not be there now.
        let found = if let Some(found) = registered(name) {
            found
        } else {
            let Some(found) = self.toolbox().find_own(name) else { return Ok(false) };
            let found = found.definition();
            registered(&found.qualified_name()).ok_or_else(|| RegistryError::Elsewhere {
                name: name.to_string(),
                hint: format!("it comes with the toolset `{}`", found.set),
            })?
        };
        let (record, set) = (found.record.clone(), found.set.clone());
        self.0.parts.store.remove_record(RecordKind::Tool, &record).await?;
        self.renew(&mut applied).await?;
        let mut left = applied.wanted.iter().map(|it| &it.config).chain(&applied.hidden);
        if !left.any(|it| it.name.as_str() == set) {
            // It was the last of its set.
            self.forget_switch(&applied, &set).await?;
        }
        Ok(true)
    }

    fn prepare(&self, set: Option<&str>, written: Value) -> Result<New, RegistryError> {
        let parts = &self.0.parts;
        let mut tool: CommandTool = serde_json::from_value(written.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        self.check_secrets(tool.secrets().into_iter().chain(tool.passed()))?;
        root(&mut tool, &parts.base);
        let (has_set, set) = (set.is_some(), set.unwrap_or(LOCAL).parse::<ToolSetName>()?);
        let ready =
            tool.clone().into_tool(&set, parts.sources.output_bytes(), parts.sources.launcher());
        let ready = ready.map_err(|err| RegistryError::Invalid(err.to_string()))?;
        if let Some(why) = complaint(&set, &tool.name) {
            return Err(RegistryError::Invalid(why));
        }
        Ok(New { set, has_set, tool, written, ready: ReadyTool::new(ready) })
    }

    /// A name without a set must mean nothing yet, but for what is short for something; with one,
    /// only nothing in it.
    fn check_free(&self, applied: &Applied, new: &New) -> Result<(), RegistryError> {
        let qualified = new.ready.definition().qualified_name();
        let is_taken = |name: &ToolName| match self.toolbox().find(name) {
            Found::Tool(it) | Found::Inactive(it) => {
                let it = it.definition();
                let theirs = it.qualified_name();
                theirs == qualified || (!new.has_set && (it.name == *name || theirs == *name))
            }
            _ => false,
        };
        if is_taken(&qualified) || is_taken(&new.tool.name) {
            return Err(RegistryError::Exists { what: "a tool", name: new.tool.name.to_string() });
        }
        let of = set_prefix(new.tool.name.as_str());
        let of = of.filter(|it| !new.has_set && *it != new.set.as_str());
        if let Some(of) = of.and_then(|it| it.parse::<ToolSetName>().ok())
            && self.toolbox().set(&of).is_some()
        {
            let why = format!(
                "`{name}` is called like a tool of the set `{of}`: choose another name, or say \
                 which set it is to be in and plan it by its whole name",
                name = new.tool.name
            );
            return Err(RegistryError::Invalid(why));
        }
        if applied.known.tools.len() >= limits::REGISTERED_TOOLS {
            return Err(RegistryError::Full { what: "tools", most: limits::REGISTERED_TOOLS });
        }
        Ok(())
    }

    /// Only a set that is there, and whose tools are written down, can take one more.
    fn check_place(&self, applied: &Applied, new: &New) -> Result<(), RegistryError> {
        let New { set, tool, .. } = new;
        if applied.hidden.iter().any(|it| it.name == *set) {
            return Err(RegistryError::Hidden(set.to_string()));
        }
        let there = applied.wanted.iter().find(|it| it.config.name == *set);
        let is_open = match there {
            Some(it) => matches!(it.config.source, Source::Tools(_)),
            None => self.toolbox().set(set).is_none() && set.as_str() != dispatch::SET,
        };
        // One that has failed, too: what is bad in it is other tools.
        if is_open {
            return Ok(());
        }
        if let Some(SetStatus::Failed { error }) = self.toolbox().set(set).map(|it| it.status) {
            let why = format!(
                "the toolset `{set}` has failed, so nobody could call `{}` in it: {error}",
                tool.name
            );
            return Err(RegistryError::Invalid(why));
        }
        let why = format!(
            "the tools of `{set}` come from elsewhere, so `{}` cannot be in it: name another toolset",
            tool.name
        );
        Err(RegistryError::Invalid(why))
    }

    /// Takes note of a tool that was just registered. Where nothing else has changed since the
    /// toolbox was made, only this one is new: thousands may be registered one after another.
    async fn registered(
        &self,
        applied: &mut Applied,
        new: New,
        (at, since): (Timestamp, Option<Timestamp>),
    ) -> Result<(), StoreError> {
        let revision = self.0.parts.store.records_revision().await?;
        let place = applied.wanted.iter().position(|it| it.config.name == new.set);
        if let Some(place) = place
            && applied.revision.map(|it| it + 1) == Some(revision)
            // Clocks differ: one that is older than others has its place among them.
            && applied.known.tools.last().is_none_or(|it| it.at < at)
            && self.toolbox().set(&new.set).is_some_and(|it| it.status == SetStatus::Ready)
            && let Source::Tools(tools) = &mut applied.wanted[place].config.source
        {
            tools.push(new.tool);
            applied.known.tools.push(Registered {
                record: new.ready.definition().qualified_name().to_string(),
                set: new.set.to_string(),
                written: new.written,
                at,
                since,
            });
            self.note(applied, revision);
            self.toolbox().extend(&new.set, new.ready);
            return Ok(());
        }
        self.renew(applied).await
    }
}

/// Returns since when there is a set, where tools that were registered made it.
fn since(applied: &Applied, set: &ToolSetName) -> Option<Timestamp> {
    let tools = applied.known.tools.iter().filter(|it| it.set == set.as_str());
    tools.map(Registered::since).min()
}
