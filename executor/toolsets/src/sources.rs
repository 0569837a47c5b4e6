//! Sources of configured toolsets, and the tasks that keep them connected.

mod builtin;
mod config;
pub(crate) mod documents;
pub mod graphql_api;
pub mod habilis;
mod offer;
pub mod openapi;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mcp::{Supervisor, oauth::Logins};
use sandbox::Launcher;
use shared::{
    clock::Clock,
    id::{ToolName, ToolSetName},
    store::Store,
    tool::qualified_name,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolbox::{
    LOG_TARGET, ReadyTool, SetStatus, ToolSet, Toolbox, effect_rules::EffectRules,
    tool_names::complaint,
};

use self::builtin::Dependencies;
pub(crate) use self::config::resolve_tool_paths;
use self::offer::{OfferPoller, OfferSource};
pub use self::{
    builtin::{BuiltinKind, BuiltinSet, find_renamed_sets, with_builtin},
    config::{SetConfig, Source},
    documents::Documents,
};
use crate::command::CommandTool;

/// Time limit for one attempt to connect a set.
pub const CONNECT_TIMEOUT: Duration = mcp::CONNECT_TIMEOUT;

/// The sources of a toolbox. Dropping them kills their servers. [`close`](Self::close) ends the
/// servers properly.
#[derive(Debug)]
pub struct Sources {
    toolbox: Toolbox,
    output_bytes: usize,
    dependencies: Dependencies,
    logins: Option<Logins>,
    live: Arc<Mutex<LiveConnections>>,
    /// `true` leaves each server idle until something needs its tools.
    is_lazy: bool,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct LiveConnections {
    by_set: BTreeMap<ToolSetName, Connection>,
    tasks: JoinSet<()>,
}

struct Connection {
    /// Connects a failed source again, unless its next attempt is not due yet. Returns `true` if a
    /// new attempt starts.
    reconnect: Box<dyn Fn() -> bool + Send>,
    idle_task: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    stop: CancellationToken,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

#[derive(Debug, Default)]
struct BuiltTools {
    tools: Vec<ReadyTool>,
    left_out: Vec<String>,
}

impl BuiltTools {
    /// Puts the tools into a set. The set has failed if tools were configured and none is left.
    fn into_tool_set(self, set: ToolSet) -> ToolSet {
        let Self { tools, left_out } = self;
        for reason in &left_out {
            tracing::warn!(target: LOG_TARGET, set = %set.name, why = %reason, "a tool is left out");
        }
        let status = match left_out.first() {
            Some(reason) if tools.is_empty() => SetStatus::Failed { error: reason.clone() },
            _ => SetStatus::Ready,
        };
        ToolSet { status, tools, left_out, ..set }
    }
}

impl Sources {
    pub fn new(toolbox: &Toolbox, output_bytes: usize) -> Self {
        let live: Arc<Mutex<LiveConnections>> = Arc::default();
        let weak_live = Arc::downgrade(&live);
        toolbox.set_reconnect(move |name| {
            let Some(live) = weak_live.upgrade() else { return false };
            let live = live.lock().unwrap_or_else(PoisonError::into_inner);
            live.by_set.get(name).is_some_and(|connection| (connection.reconnect)())
        });
        Self {
            toolbox: toolbox.clone(),
            output_bytes,
            dependencies: Dependencies { launcher: Launcher::unconfined(), store: None },
            logins: None,
            live,
            is_lazy: false,
            stop: CancellationToken::new(),
        }
    }

    /// Starts each server only when something needs its tools. A short-lived command uses few of
    /// its servers, and some servers take seconds to start.
    #[must_use]
    pub fn with_lazy_start(mut self) -> Self {
        let weak_live = Arc::downgrade(&self.live);
        self.toolbox.set_start(move |name| {
            let Some(live) = weak_live.upgrade() else { return };
            let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
            let LiveConnections { by_set, tasks } = &mut *live;
            let idle_task = by_set.get_mut(name).and_then(|set| set.idle_task.take());
            if let Some(task) = idle_task {
                tasks.spawn(task);
            }
        });
        self.is_lazy = true;
        self
    }

    /// Sets the launcher of confined commands. The default launcher cannot confine commands.
    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.dependencies.launcher = launcher;
        self
    }

    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        self.dependencies.store = Some((store, clock));
        self
    }

    /// Sets the logins of MCP servers. Without logins, no server that requires a login connects.
    #[must_use]
    pub fn with_logins(mut self, logins: Logins) -> Self {
        self.logins = Some(logins);
        self
    }

    pub(crate) fn launcher(&self) -> &Launcher {
        &self.dependencies.launcher
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Registers a set, or replaces the set with its name. Connecting needs a Tokio runtime.
    pub fn put(&self, config: SetConfig) {
        self.stop_connection(&config.name);
        let mut set = config.empty_set(SetStatus::Connecting);
        if self.is_lazy {
            set.status = SetStatus::Idle;
        }
        if let Source::Tools(tools) = &config.source {
            let built =
                self.build_commands(&config.name, config.with_effects(tools), &BTreeMap::new());
            self.toolbox.put_set(built.into_tool_set(set));
            return;
        }
        let SetConfig { name, source, effects, .. } = config;
        match source {
            Source::Mcp(server) => {
                let toolbox = self.toolbox.clone();
                let supervisor = Supervisor::new(name.clone(), server, toolbox, self.output_bytes)
                    .finishing_calls_until(self.stop.clone())
                    .with_logins(self.logins.clone())
                    .with_effects(effects)
                    .with_launcher(self.dependencies.launcher.clone());
                let availability = supervisor.availability();
                let reconnect = move || availability.request_start();
                self.keep_connected(set, reconnect, |stop| supervisor.run(stop));
            }
            Source::OpenApi(api) => self.poll_offers(set, api, effects),
            Source::GraphQl(api) => self.poll_offers(set, api, effects),
            Source::Tools(_) => {}
            Source::Documents(documents) => {
                let tools = documents::tools(&name, &documents, self.output_bytes);
                set.status = SetStatus::Ready;
                set.tools = tools.into_iter().map(ReadyTool::new).collect();
                self.toolbox.put_set(set);
            }
            Source::Builtin(builtin) => {
                match builtin.tools(&name, &self.dependencies) {
                    Ok(tools) => {
                        set.status = SetStatus::Ready;
                        set.tools = tools.into_iter().map(ReadyTool::new).collect();
                    }
                    Err(error) => set.status = SetStatus::Failed { error },
                }
                self.toolbox.put_set(set);
            }
        }
    }

    /// Replaces the set `before` by `config`. Keeps unchanged tools, because a set may have
    /// thousands of tools and each has a compiled schema.
    pub(crate) fn change(&self, config: SetConfig, before: &SetConfig) {
        let (Source::Tools(tools), Source::Tools(old)) = (&config.source, &before.source) else {
            return self.put(config);
        };
        let ready = self.toolbox.tools(&config.name);
        let by_name: BTreeMap<_, _> =
            ready.iter().map(|tool| (&tool.definition().name, tool)).collect();
        // The first of two tools with the same name is registered, so the first tool must be
        // inserted last.
        let old = before.with_effects(old);
        let kept = old
            .iter()
            .rev()
            .filter_map(|tool| Some((&tool.name, (tool, *by_name.get(&tool.name)?))));
        let built = self.build_commands(&config.name, config.with_effects(tools), &kept.collect());
        self.toolbox.put_set(built.into_tool_set(config.empty_set(SetStatus::Ready)));
    }

    fn poll_offers(&self, set: ToolSet, source: Box<dyn OfferSource>, effects: EffectRules) {
        let name = set.name.clone();
        let poller = OfferPoller::new(name, source, self.toolbox.clone(), self.output_bytes)
            .with_effects(effects);
        let retry_time = poller.retry_time();
        self.keep_connected(set, move || retry_time.wake(), |stop| poller.run(stop));
    }

    /// Registers a set and the task that connects it. The task of an idle set waits until the set
    /// starts.
    fn keep_connected<F>(
        &self,
        set: ToolSet,
        reconnect: impl Fn() -> bool + Send + 'static,
        run: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.child_token();
        let (name, task) = (set.name.clone(), run(stop.clone()));
        let mut connection = Connection { reconnect: Box::new(reconnect), idle_task: None, stop };
        if self.is_lazy {
            connection.idle_task = Some(Box::pin(task));
            // Adds the task before the set, because the set can start as soon as it is registered.
            self.lock_live().by_set.insert(name, connection);
            self.toolbox.put_set(set);
            return;
        }
        self.toolbox.put_set(set);
        let mut live = self.lock_live();
        live.tasks.spawn(task);
        live.by_set.insert(name, connection);
        while live.tasks.try_join_next().is_some() {}
    }

    /// Removes a set and lets its server end in the background. Returns `false` if no set has the
    /// name.
    pub fn remove(&self, name: &ToolSetName) -> bool {
        self.stop_connection(name);
        self.toolbox.remove_set(name)
    }

    fn stop_connection(&self, name: &ToolSetName) {
        if let Some(connection) = self.lock_live().by_set.remove(name) {
            connection.stop.cancel();
        }
    }

    fn lock_live(&self) -> MutexGuard<'_, LiveConnections> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the servers: closes their input, waits, and kills the servers that do not end.
    pub async fn close(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut self.lock_live().tasks);
        while tasks.join_next().await.is_some() {}
    }

    pub(crate) fn find_mistake(
        &self,
        set: &ToolSetName,
        tools: Vec<CommandTool>,
    ) -> Option<String> {
        self.build_commands(set, tools, &BTreeMap::new()).left_out.into_iter().next()
    }

    /// Builds the tools of a set, except unchanged tools, which `kept` already has. Leaves out
    /// tools with mistakes and tools whose name is taken.
    fn build_commands(
        &self,
        set: &ToolSetName,
        tools: Vec<CommandTool>,
        kept: &BTreeMap<&ToolName, (&CommandTool, &ReadyTool)>,
    ) -> BuiltTools {
        let mut names = BTreeSet::new();
        let mut built = BuiltTools::default();
        for tool in tools {
            if let Some(reason) = complaint(set, &tool.name) {
                built.left_out.push(reason);
                continue;
            }
            if !names.insert(qualified_name(set, &tool.name)) {
                built.left_out.push(format!("two tools are called `{}`: rename one", tool.name));
                continue;
            }
            let ready = match kept.get(&tool.name) {
                Some((old, ready)) if **old == tool => Ok(ReadyTool::clone(ready)),
                _ => {
                    let launcher = &self.dependencies.launcher;
                    tool.into_tool(set, self.output_bytes, launcher).map(ReadyTool::new)
                }
            };
            match ready {
                Ok(ready) => built.tools.push(ready),
                Err(error) => built.left_out.push(error),
            }
        }
        built
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};
    use serde_json::{Value, json};
    use shared::limits;

    use super::*;
    use mcp::McpServer;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn parse(source: Value) -> Result<SetConfig, serde_json::Error> {
        serde_json::from_value(json!({ "name": "s", "source": source }))
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_config_error(source: Value, expected: Expect) {
        expected.assert_eq(&parse(source).unwrap_err().to_string());
    }

    #[test]
    fn toolset_configurations_are_parsed() {
        let set = parse(json!({ "mcp": { "command": "faber", "args": ["blog-mcp"] } })).unwrap();
        assert!(set.active);
        let Source::Mcp(McpServer::Command(mcp)) = set.source else { panic!("an MCP server") };
        assert_eq!(
            (mcp.command.as_str(), mcp.args.as_slice()),
            ("faber", &["blog-mcp".to_owned()][..])
        );

        let tool = json!({ "name": "t", "effect": "read", "run": { "command": ["date", "-u"] } });
        let set = parse(json!({ "tools": [tool] })).unwrap();
        let toolbox = Toolbox::default();
        Sources::new(&toolbox, limits::OUTPUT_BYTES).put(set);
        let tools = &toolbox.sets()[0].tools;
        assert_eq!(tools[0].definition().effect, shared::tool::Effect::Read);
    }

    #[test]
    fn a_wrong_toolset_configuration_is_explained() {
        check_config_error(
            json!({}),
            expect![
                "a source is exactly one of `mcp`, `tools`, `builtin`, `openapi` and `graphql`"
            ],
        );
        check_config_error(
            json!({ "mpc": {} }),
            expect![
                "unknown field `mpc`, expected `mcp`, `tools`, `builtin`, `openapi` or `graphql`"
            ],
        );
        check_config_error(
            json!({ "mcp": { "args": [] } }),
            expect!["`mcp`: missing field `command`"],
        );
        let tool = json!({ "name": "t", "run": { "foo": 1 } });
        let error = parse(json!({ "tools": [tool] })).unwrap_err().to_string();
        assert!(error.contains("`foo`") && error.ends_with("`{ http: { url: … } }`)"), "{error}");
        let tool = json!({ "name": "t", "run": { "command": [] } });
        check_config_error(
            json!({ "tools": [tool] }),
            expect!["`tools[0].run.command` (`t`): a command needs a program, as in `[date, -u]`"],
        );
        let with_command = |command: &str| {
            let tool = json!({ "name": "t", "run": { "command": command } });
            json!({ "tools": [{ "name": "first" }, tool] })
        };
        check_config_error(
            with_command("ls -l"),
            expect![
                "`tools[1].run` (`t`): `command` is the text `ls -l`: write it as a list, [ls, -l]"
            ],
        );
        for fine in ["ls", "/opt/my tools/run"] {
            assert!(parse(with_command(fine)).is_ok(), "{fine}");
        }
        let tool = json!({ "name": "t", "effekt": "read" });
        check_config_error(
            json!({ "tools": [tool] }),
            expect![
                "`tools[0].effekt` (`t`): unknown field `effekt`, expected one of `name`, `description`, `examples`, `parameters`, `outputSchema`, `effect`, `run`"
            ],
        );
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_failed(tools: Value, expected: Expect) {
        let toolbox = Toolbox::default();
        let set = parse(json!({ "tools": tools })).unwrap();
        Sources::new(&toolbox, limits::OUTPUT_BYTES).put(set);
        let SetStatus::Failed { error } = toolbox.sets().remove(0).status else { panic!("failed") };
        expected.assert_eq(&error);
    }

    #[test]
    fn an_invalid_tool_does_not_prevent_others_of_its_set() {
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, limits::OUTPUT_BYTES);
        let first = json!({ "name": "t", "description": "the first" });
        let odd = json!({ "name": "odd", "parameters": { "type": "strnig" } });
        let written = |tools: Value| parse(json!({ "tools": tools })).unwrap();
        let set = written(json!([first, odd, { "name": "s.t" }, { "name": "t" }, { "name": "u" }]));
        sources.put(set.clone());
        let set_tools = || {
            let set = toolbox.sets().remove(0);
            assert_eq!(set.status, SetStatus::Ready);
            let tools = set.tools.iter().map(ReadyTool::definition);
            let tools: Vec<_> = tools
                .map(|definition| {
                    format!("{}: {}", definition.qualified_name(), definition.description)
                })
                .collect();
            (tools, set.left_out)
        };
        let (tools, left_out) = set_tools();
        assert_eq!(tools, ["s.t: the first", "s.u: "]);
        assert!(left_out[0].contains("the `parameters` of `odd`"), "{left_out:?}");
        assert_eq!(
            left_out[1..],
            ["two tools are called `s.t`: rename one", "two tools are called `t`: rename one"]
        );
        // The second tool with the name was left out. It appears after the first tool is removed.
        sources.change(written(json!([{ "name": "t" }])), &set);
        assert_eq!(set_tools(), (vec!["s.t: ".to_owned()], Vec::new()));
    }

    #[test]
    fn a_set_without_a_valid_tool_fails() {
        check_failed(
            json!([{ "name": "t", "run": { "command": ["echo", "{{nmae}}"] } }]),
            expect![
                "the command of `t` contains `{{nmae}}`, but the tool has no such parameter: add \
                 it to the properties in `parameters`"
            ],
        );
        check_failed(
            json!([{ "name": "t", "parameters": { "type": "strnig" } }]),
            expect![[
                r#"the `parameters` of `t` are not a JSON Schema: "strnig" is not valid under any of the schemas listed in the 'anyOf' keyword"#
            ]],
        );
    }

    #[test]
    fn paths_are_relative_to_the_configuration_file() {
        let base = Path::new("/etc/faber");
        let set = parse(json!({ "mcp": { "command": "./server", "cwd": "data" } })).unwrap();
        let Source::Mcp(McpServer::Command(mcp)) = set.rooted(base).source else {
            panic!("an MCP server")
        };
        assert_eq!(mcp.command, "/etc/faber/server");
        assert_eq!(mcp.cwd.as_deref(), Some(Path::new("/etc/faber/data")));
        let set = parse(json!({ "mcp": { "command": "npx" } })).unwrap();
        let Source::Mcp(McpServer::Command(mcp)) = set.rooted(base).source else {
            panic!("an MCP server")
        };
        assert_eq!((mcp.command.as_str(), mcp.cwd.as_deref()), ("npx", Some(base)));
    }
}
