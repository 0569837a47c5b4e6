use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use sandbox::Launcher;
use serde::Deserialize;
use serde_json::Value;
use shared::{
    clock::Clock,
    id::{ToolName, ToolSetName},
    store::Store,
    tool::{ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext, effect_rules::EffectRules};

use super::{SetConfig, Source};
use builtin::{GitWrites, Root, code, file, memory, system, web};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuiltinKind {
    CodeTools,
    FileTools,
    SystemTools,
    WebTools,
    MemoryTools,
}

/// Folders that contain system folders. They must not become the root of file tools by accident.
const SYSTEM_FOLDERS: [&str; 5] = ["/", "/opt", "/usr", "/usr/local", "/var"];
/// Folders of the system. Neither they nor the folders inside them may become the root by accident.
const SYSTEM_TREES: [&str; 13] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/usr/local/etc",
    "/usr/sbin",
];

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltinSet {
    pub builtin: BuiltinKind,
    /// The folder that the tools see. By default the folder of the configuration.
    #[serde(default)]
    pub root: Option<PathBuf>,
    #[serde(skip)]
    base: Option<PathBuf>,
    #[serde(default)]
    pub git: GitWrites,
    #[serde(default)]
    pub system: system::SystemConfig,
    #[serde(default)]
    pub web: web::WebConfig,
}

#[derive(Clone, Debug)]
pub(super) struct Dependencies {
    pub(super) launcher: Launcher,
    pub(super) store: Option<(Arc<dyn Store>, Arc<dyn Clock>)>,
}

impl BuiltinKind {
    const ALL: [Self; 5] =
        [Self::CodeTools, Self::FileTools, Self::SystemTools, Self::WebTools, Self::MemoryTools];

    fn name(self) -> &'static str {
        match self {
            Self::CodeTools => code::SET,
            Self::FileTools => file::SET,
            Self::SystemTools => system::SET,
            Self::WebTools => web::SET,
            Self::MemoryTools => memory::SET,
        }
    }

    /// Returns `true` if the tools read or change the machine on which Faber runs.
    pub(super) fn acts_on_this_machine(self) -> bool {
        matches!(self, Self::CodeTools | Self::FileTools | Self::SystemTools)
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::CodeTools => "Reads, writes and edits files below one folder.",
            Self::FileTools => "Finds files below one folder, and searches their contents.",
            Self::SystemTools => {
                "Runs confined commands, and shows processes, logs and the state of the machine."
            }
            Self::WebTools => "Fetches pages and searches the web.",
            Self::MemoryTools => "Remembers texts and snippets of code.",
        }
    }
}

impl BuiltinSet {
    pub(super) fn rooted(mut self, base: &Path) -> Self {
        self.root = self.root.map(|root| base.join(root));
        self.base = Some(base.to_owned());
        let confine = &mut self.system.confine;
        for folder in confine.write.iter_mut().chain(&mut confine.read) {
            *folder = base.join(&*folder);
        }
        self
    }

    /// Builds the tools of the set. The error states why the set has no tools.
    pub(super) fn tools(
        self,
        set: &ToolSetName,
        dependencies: &Dependencies,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        let base = self.base.unwrap_or_else(|| PathBuf::from("."));
        if self.root.is_none() && self.builtin.acts_on_this_machine() && is_system_folder(&base) {
            let folder = base.display();
            return Err(format!(
                "its tools would see the system folder `{folder}`, which contains the \
                 configuration: set the folder for its tools, such as `root: /srv/work`"
            ));
        }
        let root = self.root.unwrap_or(base);
        let hidden = dependencies.launcher.protected_paths();
        let open = || {
            let root = Root::open_with(&root, self.git).map_err(|err| err.to_string());
            root.map(|root| root.with_protected(&hidden))
        };
        let tools = match self.builtin {
            BuiltinKind::CodeTools => code::tools(&open()?),
            BuiltinKind::FileTools => file::tools(&open()?),
            BuiltinKind::SystemTools => {
                system::tools(&root, self.system, dependencies.launcher.clone())
                    .map_err(|err| err.to_string())?
            }
            BuiltinKind::WebTools => web::tools(&self.web).map_err(|err| err.to_string())?,
            BuiltinKind::MemoryTools => match &dependencies.store {
                Some((store, clock)) => memory::tools(Arc::clone(store), Arc::clone(clock)),
                None => return Err("it needs a store, but this process has none".to_owned()),
            },
        };
        Ok(tools.iter().map(|tool| rename_tool(self.builtin, set, tool)).collect())
    }
}

/// Returns `true` for a folder of `SYSTEM_FOLDERS` or `SYSTEM_TREES`, and for each folder inside
/// `SYSTEM_TREES`.
fn is_system_folder(folder: &Path) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let is_inside = |system: &&str| folder.starts_with(system);
    SYSTEM_TREES.iter().any(is_inside)
        || SYSTEM_FOLDERS.iter().any(|system| folder == Path::new(system))
}

/// Adds the built-in sets that the configuration does not contain. They are inactive.
pub fn with_builtin(mut sets: Vec<SetConfig>) -> Vec<SetConfig> {
    for kind in BuiltinKind::ALL {
        let is_there = sets.iter().any(|other| {
            let is_its = matches!(&other.source, Source::Builtin(set) if set.builtin == kind);
            is_its || other.name.as_str() == kind.name()
        });
        if is_there {
            continue;
        }
        let set = BuiltinSet {
            builtin: kind,
            root: None,
            base: None,
            git: GitWrites::default(),
            system: system::SystemConfig::default(),
            web: web::WebConfig::default(),
        };
        sets.push(SetConfig {
            name: kind.name().parse().expect("names of sets are literals"),
            description: kind.description().to_owned(),
            active: false,
            source: Source::Builtin(Box::new(set)),
            effects: EffectRules::default(),
            context: None,
            condition: None,
        });
    }
    sets
}

/// Returns the first renamed set of each built-in kind, with the name of the kind.
pub fn find_renamed_sets(sets: &[SetConfig]) -> Vec<(&ToolSetName, &'static str)> {
    let find_renamed_set = |kind: BuiltinKind| {
        if sets.iter().any(|set| set.name.as_str() == kind.name()) {
            return None;
        }
        let has_kind =
            |set: &&SetConfig| matches!(&set.source, Source::Builtin(set) if set.builtin == kind);
        Some((&sets.iter().find(has_kind)?.name, kind.name()))
    };
    BuiltinKind::ALL.into_iter().filter_map(find_renamed_set).collect()
}

/// A tool of a set whose name is known only at run time.
#[derive(Debug)]
struct RenamedTool {
    definition: Arc<ToolDefinition>,
    tool: Arc<dyn Tool>,
}

fn rename_tool(kind: BuiltinKind, set: &ToolSetName, tool: &Arc<dyn Tool>) -> Arc<dyn Tool> {
    let mut definition = ToolDefinition::clone(tool.definition());
    let name: Result<ToolName, _> = format!("{}.{}", kind.name(), definition.name).parse();
    definition.name = name.expect("names of tools are literals");
    definition.set = set.clone();
    Arc::new(RenamedTool { definition: Arc::new(definition), tool: Arc::clone(tool) })
}

pub(super) fn with_set_name(set: &ToolSetName, tool: &Arc<dyn Tool>) -> Arc<dyn Tool> {
    let definition =
        ToolDefinition { set: set.clone(), ..ToolDefinition::clone(tool.definition()) };
    Arc::new(RenamedTool { definition: Arc::new(definition), tool: Arc::clone(tool) })
}

#[async_trait]
impl Tool for RenamedTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        self.tool.call(parameters, cx).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use shared::{clock::WallClock, store::memory::Memory};
    use toolbox::{SetStatus, ToolLookup, Toolbox};

    use super::*;
    use crate::sources::Sources;

    #[test]
    fn system_folders_are_recognised_and_service_folders_are_not() {
        for (folder, expected) in [
            ("/", true),
            ("/etc", true),
            ("/usr/bin", true),
            ("/usr", true),
            ("/opt/app", false),
            ("/usr/src/app", false),
            ("/srv", false),
        ] {
            assert_eq!(is_system_folder(Path::new(folder)), expected, "{folder}");
        }
        let dependencies = Dependencies { launcher: Launcher::unconfined(), store: None };
        let tools = |written: Value| {
            let set: BuiltinSet = serde_json::from_value(written).unwrap();
            set.rooted(Path::new("/etc")).tools(&"s".parse().unwrap(), &dependencies)
        };
        for kind in ["code_tools", "file_tools", "system_tools"] {
            let err = tools(json!({ "builtin": kind })).unwrap_err();
            assert!(err.contains("the system folder"), "{err}");
            assert!(
                tools(json!({ "builtin": kind, "root": "." })).is_ok(),
                "{kind}: an explicit root is accepted"
            );
        }
        assert!(tools(json!({ "builtin": "web_tools" })).is_ok());
    }

    fn toolbox(sets: Value) -> Toolbox {
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, usize::MAX)
            .with_store(Arc::new(Memory::new()), Arc::new(WallClock));
        for set in with_builtin(serde_json::from_value(sets).unwrap()) {
            sources.put(set);
        }
        toolbox
    }

    #[tokio::test]
    async fn the_built_in_sets_exist_with_their_tools_and_are_inactive() {
        let toolbox = toolbox(json!([]));
        let sets = toolbox.sets();
        let expected = BuiltinKind::ALL.map(BuiltinKind::name);
        assert!(sets.iter().map(|set| set.name.as_str()).eq(expected), "{sets:?}");
        for set in &sets {
            assert!(!set.tools.is_empty(), "{}", set.name);
            assert!(!set.is_active && set.status == SetStatus::Ready, "{}", set.name);
            assert_eq!(set.source, "builtin");
            assert!(!set.description.is_empty());
        }
        let names: BTreeSet<_> = sets
            .iter()
            .flat_map(|set| &set.tools)
            .map(|tool| tool.definition().qualified_name().to_string())
            .collect();
        assert_eq!(names.len(), sets.iter().map(|set| set.tools.len()).sum::<usize>());
        assert!(names.contains("file_tools.glob"), "{names:?}");
    }

    #[tokio::test]
    async fn a_renamed_built_in_set_keeps_the_names_of_its_tools() {
        let files =
            json!([{ "name": "files", "source": { "builtin": "file_tools", "root": "/" } }]);
        let toolbox = toolbox(files);
        assert_eq!(toolbox.sets().len(), BuiltinKind::ALL.len(), "the set replaces `file_tools`");
        let acting: Vec<_> = toolbox.sets().iter().map(|set| set.acts_on_this_machine).collect();
        assert_eq!(acting, [true, true, true, false, false], "the name of the set does not matter");
        let description = &toolbox.sets()[0].description;
        assert_eq!(
            description,
            BuiltinKind::FileTools.description(),
            "no other description is configured"
        );
        for name in ["file_tools.glob", "files.file_tools.glob", "files.glob", "glob"] {
            let ToolLookup::Tool(tool) = toolbox.find(&name.parse().unwrap()) else {
                panic!("{name}")
            };
            assert_eq!(tool.definition().name.as_str(), "file_tools.glob");
        }
        let bash = toolbox.find(&"bash".parse().unwrap());
        assert!(matches!(bash, ToolLookup::Inactive(_)), "{bash:?}");
    }

    #[test]
    fn the_earliest_set_of_a_built_in_kind_owns_its_short_names() {
        let sets = |written: &[(&str, Value)]| -> Vec<SetConfig> {
            let set = |(name, source)| json!({ "name": name, "source": source });
            let all = written.iter().map(|(name, source)| set((name, source)));
            serde_json::from_value(all.collect()).unwrap()
        };
        let builtin = |kind: &str| json!({ "builtin": kind });
        let found = |written: &[(&str, Value)]| {
            let sets = sets(written);
            let found = find_renamed_sets(&sets).into_iter();
            found.map(|(set, kind)| format!("{set}: {kind}")).collect::<Vec<_>>()
        };
        let (files, web) = (builtin("file_tools"), builtin("web_tools"));
        let named = [("files", files.clone()), ("web_tools", web.clone()), ("b", files.clone())];
        assert_eq!(found(&named), ["files: file_tools"]);
        let other = json!({ "tools": [] });
        assert_eq!(found(&[("files", files), ("file_tools", other)]), [""; 0]);
        assert_eq!(
            found(&[("w", web), ("m", builtin("memory_tools"))]),
            ["w: web_tools", "m: memory_tools"]
        );
    }

    #[tokio::test]
    async fn a_missing_root_folder_fails_its_set() {
        let files = json!([{
            "name": "files", "source": { "builtin": "file_tools", "root": "/there/is/none" },
        }]);
        let SetStatus::Failed { error } = toolbox(files).sets().remove(0).status else {
            panic!("the set has not failed")
        };
        assert!(error.contains("/there/is/none"), "{error}");
    }
}
