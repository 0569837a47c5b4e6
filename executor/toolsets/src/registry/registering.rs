use secrets::{FileSecret, TextOrSecret};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    id::{ToolName, ToolSetName},
    limits,
    store::{RecordKind, StoreError, WriteCondition},
    tool::set_prefix,
};
use toolbox::{ReadyTool, SetStatus, ToolLookup, dispatch, tool_names::complaint};

use super::{
    AppliedState, Registry, RegistryError,
    merge::{self, RegisteredTool},
};
use crate::{
    command::CommandTool,
    sources::{Source, resolve_tool_paths},
};

/// The set of tools that are registered without a set.
const DEFAULT_SET: &str = "local";

struct NewTool {
    set: ToolSetName,
    /// `true` if the caller named the set.
    has_set: bool,
    tool: CommandTool,
    settings: Value,
    ready: ReadyTool,
}

impl Registry {
    /// Rejects variables that callers may not use, because callers could send any secret to a
    /// server of their choice.
    pub(super) fn check_secrets<'a>(
        &self,
        variables: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), RegistryError> {
        match merge::find_forbidden_variable(variables, self.0.parts.secrets.as_ref()) {
            Some(name) => Err(RegistryError::Secret(name.to_owned())),
            None => Ok(()),
        }
    }

    pub async fn register_tool(
        &self,
        set: Option<&str>,
        settings: Value,
    ) -> Result<ToolName, RegistryError> {
        let new = self.prepare_tool(set, settings)?;
        let name = new.ready.definition().qualified_name();
        let mut applied = self.lock_latest().await?;
        self.check_name_is_free(&applied, &new)?;
        self.check_set_accepts_tools(&applied, &new)?;
        let NewTool { set, settings, .. } = &new;
        if self.toolbox().set(set).is_none() {
            self.remove_switch(&applied, set.as_str()).await?;
        }
        let mut value = json!({ "set": set, "tool": settings });
        let since = find_creation_time(&applied, set);
        if let Some(since) = since {
            value["since"] = json!(since);
        }
        let at =
            self.put_record(RecordKind::Tool, name.as_str(), value, WriteCondition::Exists).await?;
        let Some(at) = at else {
            return Err(RegistryError::Exists { kind: "a tool", name: name.to_string() });
        };
        self.apply_registration(&mut applied, new, at, since).await?;
        Ok(name)
    }

    /// Removes a registered tool, by its own or its qualified name. Returns `false` if no tool has
    /// the name.
    pub async fn unregister(&self, name: &ToolName) -> Result<bool, RegistryError> {
        let mut applied = self.lock_latest().await?;
        let registered = |name: &ToolName| {
            let mut tools = applied.known_records.tools.iter();
            tools.find(|tool| tool.qualified_name().as_ref() == Some(name))
        };
        // Searches the records first, because the set may be hidden now.
        let found = if let Some(found) = registered(name) {
            found
        } else {
            let Some(found) = self.toolbox().find_own(name) else { return Ok(false) };
            let found = found.definition();
            registered(&found.qualified_name()).ok_or_else(|| RegistryError::NotAdded {
                name: name.to_string(),
                hint: format!("it comes with the toolset `{}`", found.set),
            })?
        };
        let (record, set) = (found.record.clone(), found.set.clone());
        self.0.parts.store.remove_record(RecordKind::Tool, &record).await?;
        self.read_changes(&mut applied).await?;
        let mut left =
            applied.wanted_sets.iter().map(|set| &set.config).chain(&applied.hidden_sets);
        if !left.any(|config| config.name.as_str() == set) {
            // Removes the set's switch, because the last tool of a set removes the set.
            self.remove_switch(&applied, &set).await?;
        }
        Ok(true)
    }

    fn prepare_tool(&self, set: Option<&str>, settings: Value) -> Result<NewTool, RegistryError> {
        let parts = &self.0.parts;
        let mut tool: CommandTool = serde_json::from_value(settings.clone())
            .map_err(|err| RegistryError::Invalid(err.to_string()))?;
        self.check_secrets(tool.secrets().into_iter().chain(tool.passed_variables()))?;
        refuse_secret_files(tool.texts().into_iter().filter_map(TextOrSecret::file))?;
        resolve_tool_paths(&mut tool, &parts.base);
        let (has_set, set) = (set.is_some(), set.unwrap_or(DEFAULT_SET).parse::<ToolSetName>()?);
        let ready =
            tool.clone().into_tool(&set, parts.sources.output_bytes(), parts.sources.launcher());
        let ready = ready.map_err(RegistryError::Invalid)?;
        if let Some(reason) = complaint(&set, &tool.name) {
            return Err(RegistryError::Invalid(reason));
        }
        Ok(NewTool { set, has_set, tool, settings, ready: ReadyTool::new(ready) })
    }

    /// Checks that the name is free. With a set, the name must be free in the set. Without a set,
    /// no tool may have the name as its own or qualified name.
    fn check_name_is_free(
        &self,
        applied: &AppliedState,
        new: &NewTool,
    ) -> Result<(), RegistryError> {
        let qualified = new.ready.definition().qualified_name();
        let is_taken = |name: &ToolName| match self.toolbox().find(name) {
            ToolLookup::Tool(found) | ToolLookup::Inactive(found) => {
                let found = found.definition();
                let found_name = found.qualified_name();
                found_name == qualified
                    || (!new.has_set && (found.name == *name || found_name == *name))
            }
            _ => false,
        };
        if is_taken(&qualified) || is_taken(&new.tool.name) {
            return Err(RegistryError::Exists { kind: "a tool", name: new.tool.name.to_string() });
        }
        let prefix = set_prefix(new.tool.name.as_str());
        let prefix = prefix.filter(|prefix| !new.has_set && *prefix != new.set.as_str());
        if let Some(other_set) = prefix.and_then(|prefix| prefix.parse::<ToolSetName>().ok())
            && self.toolbox().set(&other_set).is_some()
        {
            let reason = format!(
                "`{name}` is also a tool of the toolset `{other_set}`: choose another name, or add \
                 the tool to a toolset and use its qualified name in plans",
                name = new.tool.name
            );
            return Err(RegistryError::Invalid(reason));
        }
        if applied.known_records.tools.len() >= limits::REGISTERED_TOOLS {
            return Err(RegistryError::Full { noun: "tools", limit: limits::REGISTERED_TOOLS });
        }
        Ok(())
    }

    /// Checks that the set can get another tool: either the set does not exist yet, or its tools
    /// are configured one by one.
    fn check_set_accepts_tools(
        &self,
        applied: &AppliedState,
        new: &NewTool,
    ) -> Result<(), RegistryError> {
        let NewTool { set, tool, .. } = new;
        if applied.hidden_sets.iter().any(|hidden| hidden.name == *set) {
            return Err(RegistryError::Hidden(set.to_string()));
        }
        let existing_set = applied.wanted_sets.iter().find(|wanted| wanted.config.name == *set);
        let is_open = match existing_set {
            Some(wanted) => matches!(wanted.config.source, Source::Tools(_)),
            None => self.toolbox().set(set).is_none() && set.as_str() != dispatch::SET,
        };
        // A failed set of configured tools accepts a new tool, because only other tools of the set
        // are wrong.
        if is_open {
            return Ok(());
        }
        if let Some(SetStatus::Failed { error }) = self.toolbox().set(set).map(|set| set.status) {
            let reason = format!(
                "the toolset `{set}` has failed, so its new tool `{}` could not be called: {error}",
                tool.name
            );
            return Err(RegistryError::Invalid(reason));
        }
        let reason = format!(
            "`{}` can only be added to a toolset with the source `tools`, and `{set}` has another \
             source: name another toolset",
            tool.name
        );
        Err(RegistryError::Invalid(reason))
    }

    /// Applies a registration. If no other record has changed, adds only this tool to the toolbox,
    /// because thousands of tools may be registered one after another.
    async fn apply_registration(
        &self,
        applied: &mut AppliedState,
        new: NewTool,
        at: Timestamp,
        since: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let revision = self.0.parts.store.records_revision().await?;
        let place = applied.wanted_sets.iter().position(|wanted| wanted.config.name == new.set);
        if let Some(place) = place
            && applied.revision.map(|revision| revision + 1) == Some(revision)
            // Requires that no registered tool is newer, because an older tool belongs before newer
            // tools. The new tool can be older, because the clocks of nodes differ.
            && applied.known_records.tools.last().is_none_or(|last| last.at < at)
            && self.toolbox().set(&new.set).is_some_and(|set| set.status == SetStatus::Ready)
            // Requires that no effect rule of the set applies to the tool, because the tool was
            // made without the rules.
            && applied.wanted_sets[place]
                .config
                .effects
                .find_effect(&new.set, &new.tool.name)
                .is_none()
            && let Source::Tools(tools) = &mut applied.wanted_sets[place].config.source
        {
            tools.push(new.tool);
            applied.known_records.tools.push(RegisteredTool {
                record: new.ready.definition().qualified_name().to_string(),
                set: new.set.to_string(),
                settings: new.settings,
                at,
                since,
            });
            self.set_revision(applied, revision);
            self.toolbox().add_tool(&new.set, new.ready);
            return Ok(());
        }
        self.read_changes(applied).await
    }
}

/// Rejects secrets in files, because a caller could send any file to a server of its choice.
pub(super) fn refuse_secret_files<'a>(
    files: impl IntoIterator<Item = &'a FileSecret>,
) -> Result<(), RegistryError> {
    let missing = files.into_iter().find_map(|file| file.text().err());
    missing.map_or(Ok(()), |missing| Err(RegistryError::Invalid(missing.to_string())))
}

fn find_creation_time(applied: &AppliedState, set: &ToolSetName) -> Option<Timestamp> {
    let tools = applied.known_records.tools.iter().filter(|tool| tool.set == set.as_str());
    tools.map(RegisteredTool::since).min()
}
