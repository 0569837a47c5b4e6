//! Where configured toolsets come from, and what keeps them connected.

mod builtin;
mod config;
pub(crate) mod documents;
pub mod graphql_api;
pub mod habilis;
mod offer;
pub mod openapi;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shared::{clock::Clock, id::ToolSetName, store::Store};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use self::builtin::Needs;
pub use self::{
    builtin::{BuiltinKind, BuiltinSet, with_builtin},
    config::{SetConfig, Source},
    documents::Documents,
};
use self::{
    graphql_api::GraphQlSource,
    offer::{Asker, Offers, Turn},
    openapi::OpenApiSource,
};
use crate::{
    confine::Launcher,
    tool::{
        command::CommandTool,
        mcp::{Keeper, Line},
    },
    toolbox::{ReadyTool, SetExists, SetStatus, ToolSet, Toolbox},
};

/// How long a set may take to connect: what needs it waits so long.
pub const CONNECT_TIMEOUT: Duration = crate::tool::mcp::CONNECT;

/// The sources of a toolbox. Dropping them kills their servers; [`close`](Self::close) ends them
/// properly.
#[derive(Debug)]
pub struct Sources {
    toolbox: Toolbox,
    output_bytes: usize,
    needs: Needs,
    live: Mutex<Live>,
    stop: CancellationToken,
}

/// The servers that are kept, and the documents that are asked for.
#[derive(Debug, Default)]
struct Live {
    lines: BTreeMap<ToolSetName, (Kept, CancellationToken)>,
    keepers: JoinSet<()>,
}

/// How something that has failed is asked to begin again.
#[derive(Debug)]
enum Kept {
    Server(Arc<Line>),
    Offers(Arc<Turn>),
}

impl Kept {
    fn wake(&self) -> bool {
        match self {
            Self::Server(line) => line.wake(),
            Self::Offers(turn) => turn.wake(),
        }
    }
}

impl Sources {
    /// Makes the sources of a toolbox, none yet, whose outputs have at most `output_bytes` bytes.
    pub fn new(toolbox: &Toolbox, output_bytes: usize) -> Self {
        Self {
            toolbox: toolbox.clone(),
            output_bytes,
            needs: Needs { launcher: Launcher::none(), store: None },
            live: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts confined commands through this; without it none can be.
    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.needs.launcher = launcher;
        self
    }

    /// Gives tools that remember things a place to keep them.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        self.needs.store = Some((store, clock));
        self
    }

    /// Returns what starts confined commands.
    pub(crate) fn launcher(&self) -> &Launcher {
        &self.needs.launcher
    }

    /// Returns how many bytes an output may have.
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Registers a set behind those that are there and begins to connect it: commands are ready
    /// at once, servers connect side by side. Needs a runtime.
    pub fn add(&self, config: SetConfig) -> Result<(), SetExists> {
        if self.toolbox.set(&config.name).is_some() {
            return Err(SetExists(config.name));
        }
        self.put(config);
        Ok(())
    }

    /// Registers a set as [`add`](Self::add) does, in the place of the one that has its name.
    pub fn put(&self, config: SetConfig) {
        self.let_go(&config.name);
        let mut set = ToolSet {
            name: config.name.clone(),
            source: config.kind(),
            description: config.purpose(),
            is_active: config.active,
            status: SetStatus::Connecting,
            tools: Vec::new(),
        };
        match config.source {
            Source::Mcp(mcp) => {
                self.toolbox.put(set);
                let keeper =
                    Keeper::new(config.name.clone(), mcp, self.toolbox.clone(), self.output_bytes);
                let kept = Kept::Server(keeper.line());
                self.keep(config.name, kept, |stop| keeper.run(stop));
            }
            Source::OpenApi(api) => {
                self.toolbox.put(set);
                let offers = OpenApiSource::new(config.name.clone(), *api, self.output_bytes);
                self.ask(config.name, Box::new(offers));
            }
            Source::GraphQl(api) => {
                self.toolbox.put(set);
                let offers = GraphQlSource::new(config.name.clone(), *api, self.output_bytes);
                self.ask(config.name, Box::new(offers));
            }
            Source::Tools(tools) => {
                (set.status, set.tools) = self.commands(&set.name, tools);
                self.toolbox.put(set);
            }
            Source::Documents(documents) => {
                let tools = documents::tools(&set.name, &documents, self.output_bytes);
                set.status = SetStatus::Ready;
                set.tools = tools.into_iter().map(ReadyTool::new).collect();
                self.toolbox.put(set);
            }
            Source::Builtin(builtin) => {
                match builtin.tools(&set.name, &self.needs) {
                    Ok(tools) => {
                        set.status = SetStatus::Ready;
                        set.tools = tools.into_iter().map(ReadyTool::new).collect();
                    }
                    Err(error) => set.status = SetStatus::Failed { error },
                }
                self.toolbox.put(set);
            }
        }
    }

    /// Asks for the tools of a set until they are known.
    fn ask(&self, name: ToolSetName, offers: Box<dyn Offers>) {
        let asker = Asker::new(name.clone(), offers, self.toolbox.clone());
        let kept = Kept::Offers(asker.turn());
        self.keep(name, kept, |stop| asker.run(stop));
    }

    fn keep<F>(&self, name: ToolSetName, kept: Kept, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.child_token();
        let mut live = self.live();
        live.lines.insert(name, (kept, stop.clone()));
        live.keepers.spawn(run(stop));
        // Those that have ended since are forgotten.
        while live.keepers.try_join_next().is_some() {}
    }

    /// Removes a set, and ends its server in its own time; returns whether there was one.
    pub fn remove(&self, name: &ToolSetName) -> bool {
        self.let_go(name);
        self.toolbox.remove(name)
    }

    fn let_go(&self, name: &ToolSetName) {
        if let Some((_, stop)) = self.live().lines.remove(name) {
            stop.cancel();
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a set is no longer connecting, at most for `wait`, and returns its status. One
    /// that has failed is asked again first, though not too soon. Nothing if there is no such set.
    pub async fn ready(&self, name: &ToolSetName, wait: Duration) -> Option<SetStatus> {
        self.retry(name);
        let mut changes = self.toolbox.changes();
        let settled = async {
            while self.status(name) == Some(SetStatus::Connecting)
                && changes.changed().await.is_ok()
            {}
        };
        let _ = timeout(wait, settled).await;
        self.status(name)
    }

    /// Waits until no set is connecting, at most for `wait`; returns whether that is so.
    pub async fn all_settled(&self, wait: Duration) -> bool {
        let mut changes = self.toolbox.changes();
        let settled = async { while self.is_connecting() && changes.changed().await.is_ok() {} };
        let _ = timeout(wait, settled).await;
        !self.is_connecting()
    }

    /// Connects a set again that has failed, unless that was a moment ago; returns whether it does.
    pub fn retry(&self, name: &ToolSetName) -> bool {
        let is_failed = matches!(self.status(name), Some(SetStatus::Failed { .. }));
        let is_retried = is_failed && self.live().lines.get(name).is_some_and(|(it, _)| it.wake());
        if is_retried {
            self.toolbox.connecting(name);
        }
        is_retried
    }

    /// Ends the servers: closes their input, waits, and kills what does not end.
    pub async fn close(&self) {
        self.stop.cancel();
        let mut keepers = std::mem::take(&mut self.live().keepers);
        while keepers.join_next().await.is_some() {}
    }

    fn commands(&self, set: &ToolSetName, tools: Vec<CommandTool>) -> (SetStatus, Vec<ReadyTool>) {
        let mut names = BTreeSet::new();
        if let Some(twin) = tools.iter().find(|it| !names.insert(&it.name)) {
            let error = format!("two tools are called `{}`: rename one", twin.name);
            return (SetStatus::Failed { error }, Vec::new());
        }
        let make = |it: CommandTool| it.into_tool(set, self.output_bytes, &self.needs.launcher);
        let tools: Result<Vec<_>, _> =
            tools.into_iter().map(|it| make(it).map(ReadyTool::new)).collect();
        match tools {
            Ok(tools) => (SetStatus::Ready, tools),
            Err(err) => (SetStatus::Failed { error: err.to_string() }, Vec::new()),
        }
    }

    fn status(&self, name: &ToolSetName) -> Option<SetStatus> {
        self.toolbox.set(name).map(|it| it.status)
    }

    fn is_connecting(&self) -> bool {
        self.toolbox.is_connecting()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};
    use serde_json::{Value, json};
    use shared::limits;

    use super::*;
    use crate::tool::mcp::McpServer;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn parse(source: Value) -> Result<SetConfig, serde_json::Error> {
        serde_json::from_value(json!({ "name": "s", "source": source }))
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(source: Value, expected: Expect) {
        expected.assert_eq(&parse(source).unwrap_err().to_string());
    }

    #[test]
    fn sets_are_read_as_they_are_configured() {
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
        Sources::new(&toolbox, limits::OUTPUT_BYTES).add(set).unwrap();
        let tools = &toolbox.sets()[0].tools;
        assert_eq!(tools[0].definition().effect, shared::tool::Effect::Read);
    }

    #[test]
    fn mistakes_are_explained() {
        check(
            json!({}),
            expect![
                "a source is exactly one of `mcp`, `tools`, `builtin`, `openapi` and `graphql`"
            ],
        );
        check(
            json!({ "mpc": {} }),
            expect![
                "unknown field `mpc`, expected `mcp`, `tools`, `builtin`, `openapi` or `graphql`"
            ],
        );
        check(json!({ "mcp": { "args": [] } }), expect!["missing field `command`"]);
        let tool = json!({ "name": "t", "run": { "command": [] } });
        check(json!({ "tools": [tool] }), expect!["a command needs a program, as in `[date, -u]`"]);
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_failed(tools: Value, expected: Expect) {
        let toolbox = Toolbox::default();
        let set = parse(json!({ "tools": tools })).unwrap();
        Sources::new(&toolbox, limits::OUTPUT_BYTES).add(set).unwrap();
        let SetStatus::Failed { error } = toolbox.sets().remove(0).status else { panic!("failed") };
        expected.assert_eq(&error);
    }

    #[test]
    fn commands_that_cannot_be_called_fail_their_set() {
        check_failed(
            json!([{ "name": "t", "run": { "command": ["echo", "{{nmae}}"] } }]),
            expect![
                "the command of `t` names `{{nmae}}`, which is none of its parameters: add it to the properties in `parameters`"
            ],
        );
        check_failed(
            json!([{ "name": "t" }, { "name": "t" }]),
            expect!["two tools are called `t`: rename one"],
        );
        check_failed(
            json!([{ "name": "t", "parameters": { "type": "strnig" } }]),
            expect![[
                r#"the `parameters` of `t` are no JSON Schema: "strnig" is not valid under any of the schemas listed in the 'anyOf' keyword"#
            ]],
        );
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let base = Path::new("/etc/faber");
        let set = parse(json!({ "mcp": { "command": "./server", "cwd": "data" } })).unwrap();
        let Source::Mcp(McpServer::Command(mcp)) = set.rooted(base).source else {
            panic!("an MCP server")
        };
        assert_eq!(mcp.command, "/etc/faber/./server");
        assert_eq!(mcp.cwd.as_deref(), Some(Path::new("/etc/faber/data")));
        let set = parse(json!({ "mcp": { "command": "npx" } })).unwrap();
        let Source::Mcp(McpServer::Command(mcp)) = set.rooted(base).source else {
            panic!("an MCP server")
        };
        assert_eq!((mcp.command.as_str(), mcp.cwd.as_deref()), ("npx", Some(base)));
    }
}
