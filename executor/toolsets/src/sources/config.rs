use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use mcp::McpServer;
use sandbox::{Confinement, Support};
use secrets::{FileSecret, TextOrSecret};
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::{
    id::ToolSetName,
    placed_error::{PlacedError, join_paths, read_placed},
};
use toolbox::{SetStatus, ToolSet, effect_rules::EffectRules};

use super::{
    builtin::{BuiltinKind, BuiltinSet},
    documents::Documents,
    graphql_api::GraphQlConfig,
    openapi::OpenApiConfig,
};
use crate::command::{Action, CommandTool};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "SetFields")]
pub struct SetConfig {
    pub name: ToolSetName,
    pub description: String,
    pub active: bool,
    pub source: Source,
    /// Effects that replace the effects that the source declares. In YAML, this key is inside
    /// `source`.
    pub effects: EffectRules,
    /// The context whose fields are the variables of the condition. Without it, a variable is the
    /// field of the first context that has it. The API shows this name as the set's `source`.
    pub context: Option<String>,
    /// A condition in CEL over the data of contexts. The set exists while the condition holds.
    pub condition: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFields {
    name: ToolSetName,
    #[serde(default)]
    description: String,
    #[serde(default = "default_true")]
    active: bool,
    source: SourceFields,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    condition: Option<String>,
}

impl From<SetFields> for SetConfig {
    fn from(settings: SetFields) -> Self {
        let SetFields { name, description, active, source, context, condition } = settings;
        let SourceFields { source, effects } = source;
        Self { name, description, active, source, effects, context, condition }
    }
}

fn default_true() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Mcp(McpServer),
    Tools(Vec<CommandTool>),
    Builtin(Box<BuiltinSet>),
    OpenApi(Box<OpenApiConfig>),
    GraphQl(Box<GraphQlConfig>),
    Documents(Arc<Documents>),
}

const SOURCE_KINDS: [&str; 5] = ["mcp", "tools", "builtin", "openapi", "graphql"];

/// The key that sets effects. In `source`, it stands beside the key of the source's kind.
const EFFECTS_KEY: &str = "effects";

/// The value of `source` in YAML: a source, and the effects beside it.
#[derive(Deserialize)]
#[serde(try_from = "Map<String, Value>")]
struct SourceFields {
    source: Source,
    effects: EffectRules,
}

impl TryFrom<Map<String, Value>> for SourceFields {
    type Error = String;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, String> {
        let effects = settings.shift_remove(EFFECTS_KEY).unwrap_or_default();
        if !effects.is_null() && settings.contains_key("builtin") {
            return Err(format!(
                "`{EFFECTS_KEY}` is not allowed beside `builtin`: Faber sets the effects of \
                 built-in tools"
            ));
        }
        let effects = match effects {
            Value::Null => EffectRules::default(),
            Value::Object(rules) => rules.try_into()?,
            other => {
                return Err(format!(
                    "`{EFFECTS_KEY}` is {other}; write a map such as `{{ \"find_*\": read }}`"
                ));
            }
        };
        Ok(Self { source: settings.try_into()?, effects })
    }
}

/// In YAML, a source is a map with the key of exactly one kind. For an enum, serde would expect a
/// tag instead, so this conversion is written by hand.
impl TryFrom<Map<String, Value>> for Source {
    type Error = String;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, String> {
        let mut kinds = SOURCE_KINDS.into_iter().filter(|kind| settings.contains_key(*kind));
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            return Err(match settings.keys().find(|key| !SOURCE_KINDS.contains(&key.as_str())) {
                Some(unknown) => unknown_field(unknown),
                None => format!("a source is exactly one of {}", list_kinds("and")),
            });
        };
        if kind == "builtin" {
            return Ok(Self::Builtin(read_placed(Value::Object(settings))?));
        }
        let value = settings.swap_remove(kind).unwrap_or_default();
        if let Some(other) = settings.keys().next() {
            return Err(unknown_field(other));
        }
        let read = match kind {
            "mcp" => read_placed(value).map(Self::Mcp),
            "openapi" => read_placed(value).map(Self::OpenApi),
            "graphql" => read_placed(value).map(Self::GraphQl),
            _ => return read_tools(value).map(Self::Tools),
        };
        read.map_err(|err| err.inside(kind).to_string())
    }
}

/// Reads the tools of a source. The error names the first wrong tool.
fn read_tools(settings: Value) -> Result<Vec<CommandTool>, String> {
    let Value::Array(settings) = settings else {
        return Err("`tools` must be a list of tools, each with a `name` and a `run`".to_owned());
    };
    let read = |(index, tool): (usize, Value)| {
        let name = tool.get("name").and_then(Value::as_str).map(str::to_owned);
        let name = name.map(|name| format!(" (`{name}`)")).unwrap_or_default();
        read_placed(tool).map_err(|PlacedError { path, reason }| {
            let path = join_paths(&format!("tools[{index}]"), &path);
            format!("`{path}`{name}: {reason}")
        })
    };
    settings.into_iter().enumerate().map(read).collect()
}

fn unknown_field(field: &str) -> String {
    format!("unknown field `{field}`, expected {}", list_kinds("or"))
}

fn list_kinds(word: &str) -> String {
    let [first @ .., last] = SOURCE_KINDS.map(|kind| format!("`{kind}`"));
    format!("{} {word} {last}", first.join(", "))
}

impl SetConfig {
    #[must_use]
    pub fn rooted(mut self, base: &Path) -> Self {
        match &mut self.source {
            Source::Mcp(mcp) => {
                mcp.resolve_roots(base);
                if let McpServer::Command(mcp) = mcp {
                    mcp.command = resolve_program(base, &mcp.command);
                    mcp.cwd =
                        Some(mcp.cwd.take().map_or_else(|| base.to_owned(), |cwd| base.join(cwd)));
                }
            }
            Source::Builtin(set) => {
                let rooted = set.as_ref().clone().rooted(base);
                **set = rooted;
            }
            Source::OpenApi(api) => api.resolve_path(base),
            Source::GraphQl(_) | Source::Documents(_) => {}
            Source::Tools(tools) => {
                for tool in tools.iter_mut() {
                    resolve_tool_paths(tool, base);
                }
            }
        }
        self
    }

    pub fn secrets(&self) -> BTreeSet<&str> {
        self.texts().into_iter().filter_map(TextOrSecret::secret).collect()
    }

    pub fn secret_files(&self) -> Vec<&FileSecret> {
        self.texts().into_iter().filter_map(TextOrSecret::file).collect()
    }

    pub fn secret_paths(&self) -> Vec<&Path> {
        self.secret_files().into_iter().filter_map(FileSecret::path).collect()
    }

    /// Reads the files with secrets. Must not be called for sets of callers. A relative path starts
    /// at `base`.
    #[must_use]
    pub fn with_secret_files(mut self, base: &Path) -> Self {
        let texts = match &mut self.source {
            Source::Mcp(server) => server.texts_mut(),
            Source::Tools(tools) => tools.iter_mut().flat_map(CommandTool::texts_mut).collect(),
            Source::Builtin(_) | Source::Documents(_) => Vec::new(),
            Source::OpenApi(api) => api.texts_mut(),
            Source::GraphQl(api) => api.texts_mut(),
        };
        for text in texts {
            text.read_file(base);
        }
        self
    }

    fn texts(&self) -> Vec<&TextOrSecret> {
        match &self.source {
            Source::Mcp(server) => server.texts(),
            Source::Tools(tools) => tools.iter().flat_map(CommandTool::texts).collect(),
            Source::Builtin(_) | Source::Documents(_) => Vec::new(),
            Source::OpenApi(api) => api.texts(),
            Source::GraphQl(api) => api.texts(),
        }
    }

    /// Returns the programs of the set that are given as paths. The launcher makes them read-only
    /// for commands, because a changed program would run with all rights of Faber.
    pub fn programs(&self) -> Vec<PathBuf> {
        match &self.source {
            Source::Mcp(McpServer::Command(server)) if server.command.contains('/') => {
                vec![PathBuf::from(&server.command)]
            }
            Source::Tools(tools) => tools.iter().filter_map(CommandTool::program).collect(),
            _ => Vec::new(),
        }
    }

    pub fn missing_programs(&self) -> Vec<String> {
        let Source::Tools(tools) = &self.source else { return Vec::new() };
        tools.iter().filter_map(|tool| tool.check_program().err()).collect()
    }

    /// Returns the file that describes the tools, if there is one. The file decides which servers
    /// get the set's secrets.
    pub fn document(&self) -> Option<PathBuf> {
        match &self.source {
            Source::OpenApi(api) => api.file(),
            _ => None,
        }
    }

    /// Returns `true` if the set has commands that `support` cannot confine as required.
    pub fn is_refused(&self, support: Support) -> bool {
        let is_refused = |confinement: &Confinement| {
            confinement.required && support.missing_for(confinement).is_some()
        };
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

    /// Returns the variables of the environment that the set may use: secrets and variables that
    /// are passed to commands.
    pub fn variables(&self) -> BTreeSet<&str> {
        let mut names = self.secrets();
        match &self.source {
            Source::Mcp(McpServer::Command(server)) => {
                names.extend(server.pass.iter().map(String::as_str));
            }
            Source::Tools(tools) => {
                names.extend(tools.iter().flat_map(CommandTool::passed_variables));
            }
            Source::Builtin(set) => names.extend(passed_variables(&set.system.confine)),
            _ => {}
        }
        names
    }

    pub(crate) fn with_effects(&self, tools: &[CommandTool]) -> Vec<CommandTool> {
        let with_effect = |tool: &CommandTool| {
            let effect = self.effects.find_effect(&self.name, &tool.name);
            CommandTool { effect: effect.or(tool.effect), ..tool.clone() }
        };
        tools.iter().map(with_effect).collect()
    }

    pub(crate) fn empty_set(&self, status: SetStatus) -> ToolSet {
        ToolSet {
            name: self.name.clone(),
            description: self.default_description(),
            source: self.kind(),
            acts_on_this_machine: matches!(&self.source, Source::Builtin(set) if set.builtin.acts_on_this_machine()),
            is_active: self.active,
            status,
            tools: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Returns the description. A built-in set has a default description.
    fn default_description(&self) -> String {
        match &self.source {
            Source::Builtin(set) if self.description.trim().is_empty() => {
                set.builtin.description().to_owned()
            }
            _ => self.description.clone(),
        }
    }

    /// Describes the source for people. This is the name of the set's context, if it has one.
    fn kind(&self) -> String {
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
}

fn passed_variables(confinement: &Confinement) -> impl Iterator<Item = &str> {
    confinement.pass.iter().map(String::as_str)
}

pub(crate) fn resolve_tool_paths(tool: &mut CommandTool, base: &Path) {
    let Some(Action::Command(run)) = &mut tool.run else { return };
    let program = resolve_program(base, run.command.program());
    run.command = run.command.clone().with_program(program);
    run.cwd = run.cwd.take().map(|cwd| base.join(cwd));
    run.base = Some(base.to_owned());
    if let Some(confine) = &mut run.confine {
        let folders = confine.write.iter_mut().chain(&mut confine.read);
        folders.for_each(|folder| *folder = base.join(&*folder));
    }
}

/// Resolves a program with a slash as a path. A bare name is found through `PATH`.
fn resolve_program(base: &Path, program: &str) -> String {
    if program.contains('/') {
        // Removes the `.` of `./server`, because messages name the path.
        base.join(program).components().collect::<PathBuf>().display().to_string()
    } else {
        program.to_owned()
    }
}
