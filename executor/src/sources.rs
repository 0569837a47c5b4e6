//! Where configured toolsets come from, and what keeps them connected.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::Deserialize;
use shared::id::ToolSetName;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    confine::Launcher,
    tool::{
        command::CommandTool,
        mcp::{Keeper, Line, McpCommand},
    },
    toolbox::{ReadyTool, SetExists, SetStatus, ToolSet, Toolbox},
};

/// How long a set may take to connect: what needs it waits so long.
pub const CONNECT_TIMEOUT: Duration = crate::tool::mcp::CONNECT;

/// A toolset as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetConfig {
    /// Its name.
    pub name: ToolSetName,
    /// What it is for, in words.
    #[serde(default)]
    pub description: String,
    /// Whether plans may use it.
    #[serde(default = "yes")]
    pub active: bool,
    /// Where its tools come from.
    pub source: Source,
}

fn yes() -> bool {
    true
}

/// Where the tools of a set come from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawSource")]
pub enum Source {
    /// An MCP server over stdio.
    Mcp(McpCommand),
    /// Commands on this machine.
    Tools(Vec<CommandTool>),
}

/// A source as it is written: a map of exactly one kind. (An enum would be a tag in YAML.)
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    mcp: Option<McpCommand>,
    tools: Option<Vec<CommandTool>>,
}

impl TryFrom<RawSource> for Source {
    type Error = &'static str;

    fn try_from(raw: RawSource) -> Result<Self, &'static str> {
        match (raw.mcp, raw.tools) {
            (Some(mcp), None) => Ok(Self::Mcp(mcp)),
            (None, Some(tools)) => Ok(Self::Tools(tools)),
            _ => Err("a source is exactly one of `mcp` and `tools`"),
        }
    }
}

impl SetConfig {
    /// Resolves its relative paths against the directory of the file that describes it.
    #[must_use]
    pub fn rooted(mut self, base: &Path) -> Self {
        match &mut self.source {
            Source::Mcp(mcp) => {
                mcp.command = rooted_program(base, &mcp.command);
                mcp.cwd = Some(rooted_cwd(base, mcp.cwd.take()));
            }
            Source::Tools(tools) => {
                for run in tools.iter_mut().filter_map(|it| it.run.as_mut()) {
                    let program = rooted_program(base, run.command.program());
                    run.command = run.command.clone().with_program(program);
                    run.cwd = Some(rooted_cwd(base, run.cwd.take()));
                    if let Some(confine) = &mut run.confine {
                        let folders = confine.write.iter_mut().chain(&mut confine.read);
                        folders.for_each(|it| *it = base.join(&*it));
                    }
                }
            }
        }
        self
    }

    fn kind(&self) -> &'static str {
        match self.source {
            Source::Mcp(_) => "mcp",
            Source::Tools(_) => "local",
        }
    }
}

/// A bare name is looked up on the path; only what has a slash is a path.
fn rooted_program(base: &Path, program: &str) -> String {
    if program.contains('/') {
        base.join(program).display().to_string()
    } else {
        program.to_owned()
    }
}

fn rooted_cwd(base: &Path, cwd: Option<PathBuf>) -> PathBuf {
    cwd.map_or_else(|| base.to_owned(), |it| base.join(it))
}

/// The configured sources of a toolbox. Dropping it kills their servers;
/// [`close`](Self::close) ends them properly.
#[derive(Debug)]
pub struct Sources {
    toolbox: Toolbox,
    output_bytes: usize,
    launcher: Launcher,
    lines: BTreeMap<ToolSetName, Arc<Line>>,
    keepers: JoinSet<()>,
    stop: CancellationToken,
}

impl Sources {
    /// Makes the sources of a toolbox, none yet, whose outputs have at most `output_bytes` bytes.
    pub fn new(toolbox: &Toolbox, output_bytes: usize) -> Self {
        Self {
            toolbox: toolbox.clone(),
            output_bytes,
            launcher: Launcher::none(),
            lines: BTreeMap::new(),
            keepers: JoinSet::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts confined commands through this; without it none can be.
    #[must_use]
    pub fn with_launcher(self, launcher: Launcher) -> Self {
        Self { launcher, ..self }
    }

    /// Registers a set behind those that are there and begins to connect it: commands are ready
    /// at once, servers connect side by side. Needs a runtime.
    pub fn add(&mut self, config: SetConfig) -> Result<(), SetExists> {
        let mut set = ToolSet {
            name: config.name.clone(),
            source: config.kind().to_owned(),
            description: config.description,
            is_active: config.active,
            status: SetStatus::Connecting,
            tools: Vec::new(),
        };
        let mcp = match config.source {
            Source::Mcp(mcp) => Some(mcp),
            Source::Tools(tools) => {
                (set.status, set.tools) = self.commands(&set.name, tools);
                None
            }
        };
        self.toolbox.register(set)?;
        if let Some(mcp) = mcp {
            let keeper =
                Keeper::new(config.name.clone(), mcp, self.toolbox.clone(), self.output_bytes);
            self.lines.insert(config.name, keeper.line());
            self.keepers.spawn(keeper.run(self.stop.clone()));
        }
        Ok(())
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
        let is_retried = is_failed && self.lines.get(name).is_some_and(|it| it.wake());
        if is_retried && let Some(set) = self.set(name) {
            self.toolbox.settle(name, SetStatus::Connecting, set.tools);
        }
        is_retried
    }

    /// Ends the servers: closes their input, waits, and kills what does not end.
    pub async fn close(mut self) {
        self.stop.cancel();
        while self.keepers.join_next().await.is_some() {}
    }

    fn commands(&self, set: &ToolSetName, tools: Vec<CommandTool>) -> (SetStatus, Vec<ReadyTool>) {
        let mut names = BTreeSet::new();
        if let Some(twin) = tools.iter().find(|it| !names.insert(&it.name)) {
            let error = format!("two tools are called `{}`: rename one", twin.name);
            return (SetStatus::Failed { error }, Vec::new());
        }
        let make = |it: CommandTool| it.into_tool(set, self.output_bytes, &self.launcher);
        let tools: Result<Vec<_>, _> =
            tools.into_iter().map(|it| make(it).map(ReadyTool::new)).collect();
        match tools {
            Ok(tools) => (SetStatus::Ready, tools),
            Err(err) => (SetStatus::Failed { error: err.to_string() }, Vec::new()),
        }
    }

    fn set(&self, name: &ToolSetName) -> Option<ToolSet> {
        self.toolbox.sets().into_iter().find(|it| it.name == *name)
    }

    fn status(&self, name: &ToolSetName) -> Option<SetStatus> {
        self.set(name).map(|it| it.status)
    }

    fn is_connecting(&self) -> bool {
        self.toolbox.sets().iter().any(|it| it.status == SetStatus::Connecting)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};
    use shared::limits;

    use super::*;

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
        let Source::Mcp(mcp) = set.source else { panic!("an MCP server") };
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
        check(json!({}), expect!["a source is exactly one of `mcp` and `tools`"]);
        check(json!({ "mpc": {} }), expect!["unknown field `mpc`, expected `mcp` or `tools`"]);
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
        let Source::Mcp(mcp) = set.rooted(base).source else { panic!("an MCP server") };
        assert_eq!(mcp.command, "/etc/faber/./server");
        assert_eq!(mcp.cwd.as_deref(), Some(Path::new("/etc/faber/data")));
        let set = parse(json!({ "mcp": { "command": "npx" } })).unwrap();
        let Source::Mcp(mcp) = set.rooted(base).source else { panic!("an MCP server") };
        assert_eq!((mcp.command.as_str(), mcp.cwd.as_deref()), ("npx", Some(base)));
    }
}
