//! Toolsets as the configuration and the API describe them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcp::McpServer;
use sandbox::{Confinement, Support};
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::id::ToolSetName;

use super::{
    builtin::{BuiltinKind, BuiltinSet},
    documents::Documents,
    graphql_api::GraphQlConfig,
    openapi::OpenApiConfig,
};
use crate::command::{Action, CommandTool};

/// A toolset as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetConfig {
    /// Its name.
    pub name: ToolSetName,
    /// Its purpose, in words.
    #[serde(default)]
    pub description: String,
    /// `true` if plans may use it.
    #[serde(default = "yes")]
    pub active: bool,
    /// The source of its tools.
    pub source: Source,
    /// The context whose data `condition` asks for, and which the set is said to come from.
    #[serde(default)]
    pub context: Option<String>,
    /// When the set is there: CEL over data of contexts. Always, where nothing is said.
    #[serde(default)]
    pub condition: Option<String>,
}

fn yes() -> bool {
    true
}

/// The source of a set's tools.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub enum Source {
    /// An MCP server over stdio or HTTP.
    Mcp(McpServer),
    /// Commands on this machine, and HTTP calls.
    Tools(Vec<CommandTool>),
    /// One of Faber's own sets.
    Builtin(Box<BuiltinSet>),
    /// An HTTP API that an OpenAPI document describes.
    OpenApi(Box<OpenApiConfig>),
    /// A GraphQL endpoint.
    GraphQl(Box<GraphQlConfig>),
    /// Documents that a context offers. They are its data; no set is written like this.
    Documents(Arc<Documents>),
}

/// The kinds of sources, each the key of its own map.
const KINDS: [&str; 5] = ["mcp", "tools", "builtin", "openapi", "graphql"];

/// A source is a map of exactly one kind. (An enum would be a tag in YAML.)
impl TryFrom<Map<String, Value>> for Source {
    type Error = String;

    fn try_from(mut written: Map<String, Value>) -> Result<Self, String> {
        let mut kinds = KINDS.into_iter().filter(|it| written.contains_key(*it));
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            return Err(match written.keys().find(|it| !KINDS.contains(&it.as_str())) {
                Some(unknown) => unknown_field(unknown),
                None => format!("a source is exactly one of {}", listed("and")),
            });
        };
        if kind == "builtin" {
            let set = serde_json::from_value(Value::Object(written));
            return set.map(Self::Builtin).map_err(|err| err.to_string());
        }
        let value = written.swap_remove(kind).unwrap_or_default();
        if let Some(other) = written.keys().next() {
            return Err(unknown_field(other));
        }
        let read = match kind {
            "mcp" => serde_json::from_value(value).map(Self::Mcp),
            "openapi" => serde_json::from_value(value).map(Self::OpenApi),
            "graphql" => serde_json::from_value(value).map(Self::GraphQl),
            _ => serde_json::from_value(value).map(Self::Tools),
        };
        read.map_err(|err| err.to_string())
    }
}

fn unknown_field(field: &str) -> String {
    format!("unknown field `{field}`, expected {}", listed("or"))
}

fn listed(word: &str) -> String {
    let [first @ .., last] = KINDS.map(|it| format!("`{it}`"));
    format!("{} {word} {last}", first.join(", "))
}

impl SetConfig {
    /// Resolves its relative paths against the directory of the file that describes it.
    #[must_use]
    pub fn rooted(mut self, base: &Path) -> Self {
        match &mut self.source {
            Source::Mcp(mcp) => {
                mcp.resolve_roots(base);
                if let McpServer::Command(mcp) = mcp {
                    mcp.command = rooted_program(base, &mcp.command);
                    mcp.cwd =
                        Some(mcp.cwd.take().map_or_else(|| base.to_owned(), |it| base.join(it)));
                }
            }
            Source::Builtin(set) => {
                let rooted = set.as_ref().clone().rooted(base);
                **set = rooted;
            }
            Source::OpenApi(api) => api.root(base),
            Source::GraphQl(_) | Source::Documents(_) => {}
            Source::Tools(tools) => {
                for tool in tools.iter_mut() {
                    root(tool, base);
                }
            }
        }
        self
    }

    /// Returns the secrets that it names: variables of Faber's environment that it cannot do
    /// without.
    pub fn secrets(&self) -> BTreeSet<&str> {
        let names = match &self.source {
            Source::Mcp(server) => server.secrets(),
            Source::Tools(tools) => tools.iter().flat_map(CommandTool::secrets).collect(),
            Source::Builtin(_) | Source::Documents(_) => Vec::new(),
            Source::OpenApi(api) => api.secrets(),
            Source::GraphQl(api) => api.secrets(),
        };
        names.into_iter().collect()
    }

    /// Returns the programs that it runs, where they are paths: nobody may change them who is not to
    /// do whatever Faber may.
    pub fn programs(&self) -> Vec<PathBuf> {
        match &self.source {
            Source::Mcp(McpServer::Command(server)) if server.command.contains('/') => {
                vec![PathBuf::from(&server.command)]
            }
            Source::Tools(tools) => tools.iter().filter_map(CommandTool::program).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the file that says what its tools are, where there is one: it also says who is told
    /// the set's secrets.
    pub fn document(&self) -> Option<PathBuf> {
        match &self.source {
            Source::OpenApi(api) => api.file(),
            _ => None,
        }
    }

    /// Returns whether it has commands that are refused where `support` cannot hold them.
    pub fn is_refused(&self, support: Support) -> bool {
        let is_refused = |it: &Confinement| it.required && support.missing_for(it).is_some();
        match &self.source {
            Source::Builtin(set) => {
                set.builtin == BuiltinKind::SystemTools && is_refused(&set.system.confine)
            }
            Source::Tools(tools) => {
                tools.iter().filter_map(CommandTool::confinement).any(is_refused)
            }
            _ => false,
        }
    }

    /// Returns the variables of Faber's environment that it uses: the secrets that it names, and
    /// what it passes on to commands where that is there.
    pub fn variables(&self) -> BTreeSet<&str> {
        let mut names = self.secrets();
        match &self.source {
            Source::Mcp(McpServer::Command(server)) => {
                names.extend(server.pass.iter().map(String::as_str));
            }
            Source::Tools(tools) => names.extend(tools.iter().flat_map(CommandTool::passed)),
            Source::Builtin(set) => names.extend(passed(&set.system.confine)),
            _ => {}
        }
        names
    }

    /// Returns what it is for, in words: a set of Faber's own knows that itself.
    pub(super) fn purpose(&self) -> String {
        match &self.source {
            Source::Builtin(set) if self.description.trim().is_empty() => {
                set.builtin.description().to_owned()
            }
            _ => self.description.clone(),
        }
    }

    /// Describes the source for people, with the context of documents.
    pub(crate) fn kind(&self) -> String {
        let kind = match self.source {
            Source::Mcp(_) => "mcp",
            Source::Tools(_) => "local",
            Source::Builtin(_) => "builtin",
            Source::OpenApi(_) => "openapi",
            Source::GraphQl(_) => "graphql",
            Source::Documents(_) => "context",
        };
        self.context.clone().unwrap_or_else(|| kind.to_owned())
    }

    /// Returns whether it is one of Faber's own sets that get at the machine it runs on.
    pub(crate) fn acts_here(&self) -> bool {
        matches!(&self.source, Source::Builtin(set) if set.builtin.acts_here())
    }
}

fn passed(confinement: &Confinement) -> impl Iterator<Item = &str> {
    confinement.pass.iter().map(String::as_str)
}

/// Resolves the relative paths of a tool.
pub(crate) fn root(tool: &mut CommandTool, base: &Path) {
    let Some(Action::Command(run)) = &mut tool.run else { return };
    let program = rooted_program(base, run.command.program());
    run.command = run.command.clone().with_program(program);
    run.cwd = run.cwd.take().map(|it| base.join(it));
    run.base = Some(base.to_owned());
    if let Some(confine) = &mut run.confine {
        let folders = confine.write.iter_mut().chain(&mut confine.read);
        folders.for_each(|it| *it = base.join(&*it));
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
