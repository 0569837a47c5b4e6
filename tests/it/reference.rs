//! The reference page of the built-in tools is generated from the tools. The page of errors lists
//! every code of the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use shared::{
    clock::{Clock, WallClock},
    limits,
    store::{Store, memory::Memory},
    tool::{Effect, ToolDefinition},
};
use toolbox::{ToolSet, Toolbox};
use toolsets::{
    registry::{self, Registry},
    sources::{Sources, with_builtin},
};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page_path() -> PathBuf {
    repository().join("docs/reference/built-in-tools.md")
}

pub(crate) async fn built_in_sets() -> Vec<ToolSet> {
    let toolbox = Toolbox::default();
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let registry = Registry::new(registry::Parts {
        sources: Sources::new(&toolbox, limits::OUTPUT_BYTES)
            .with_store(Arc::clone(&store), Arc::clone(&clock)),
        toolbox: toolbox.clone(),
        store,
        clock,
        configured: with_builtin(Vec::new()),
        contexts: BTreeMap::new(),
        base: PathBuf::from("."),
        secrets: Some(BTreeSet::new()),
    });
    registry.sync().await.unwrap();
    toolbox.sets()
}

fn render_page(sets: &[ToolSet]) -> String {
    let mut text = "# Built-in tools\n\n\
        This page is for authors of plans. It lists the tools that come with Faber, and their \
        parameters.\n\n\
        `flow` and `ToolSet` are always active. The other sets are active if they are in \
        `toolsets`, or after\n`faber toolsets activate NAME`. The word before a description is \
        the tool's [effect](executions.md#effects).\n\n\
        A test generates this page: `FABER_BLESS=1 cargo test -p tests --test it reference`.\n"
        .to_owned();
    for set in sets {
        let _ = write!(text, "\n## {}\n\n{}\n", set.name, set.description);
        for tool in &set.tools {
            render_tool(&mut text, tool.definition());
        }
    }
    text
}

fn render_tool(text: &mut String, tool: &ToolDefinition) {
    let effect = match tool.effect {
        Effect::Read => "read",
        Effect::Idempotent => "idempotent",
        Effect::Once => "once",
    };
    let summary = wrap_paragraph(&format!("*{effect}*. {}", tool.description));
    let _ = write!(text, "\n### `{}`\n\n{summary}\n", tool.name);
    let Some(Value::Object(properties)) = tool.input_schema.get("properties") else { return };
    if properties.is_empty() {
        return;
    }
    text.push_str("\n| parameter | default | meaning |\n| --- | --- | --- |\n");
    let required = tool.input_schema["required"].as_array();
    for (name, schema) in properties {
        let is_required = required.is_some_and(|names| names.iter().any(|entry| entry == name));
        let kind = match (is_required, &schema["default"]) {
            (true, _) => "required".to_owned(),
            (false, Value::Null) => String::new(),
            (false, default) => format!("`{default}`"),
        };
        let about = schema["description"].as_str().unwrap_or_default();
        let about = about.replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(text, "| `{name}` | {kind} | {about} |");
    }
}

fn wrap_paragraph(paragraph: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if width > 0 {
            let has_room = width + 1 + length <= 120;
            lines.push(if has_room { ' ' } else { '\n' });
            width = if has_room { width + 1 } else { 0 };
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

#[tokio::test]
async fn the_reference_page_of_built_in_tools_is_up_to_date() {
    let sets = built_in_sets().await;
    let written = render_page(&sets);
    for tool in sets.iter().flat_map(|set| &set.tools) {
        assert!(written.contains(&format!("\n### `{}`\n", tool.definition().name)));
    }
    assert!(sets.iter().all(|set| !set.tools.is_empty()), "{sets:?}");
    if std::env::var_os("FABER_BLESS").is_some() {
        fs::write(page_path(), &written).unwrap();
    }
    let there = fs::read_to_string(page_path()).unwrap_or_default();
    assert!(
        there == written,
        "`docs/reference/built-in-tools.md` is stale: `FABER_BLESS=1` writes it"
    );
}

/// Returns the codes with a dot, such as `plan.cycle`, in the tables of `docs/errors.md`.
fn documented_codes() -> BTreeSet<String> {
    let page = fs::read_to_string(repository().join("docs/errors.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(code, _)| code.to_owned()).filter(|code| code.contains('.')).collect()
}

/// Adds the path and the text of each source file below a folder, without its tests.
fn add_sources(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name.ends_with("tests") || name == "target" {
            continue;
        }
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let source = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            sources.push((path, source.to_owned()));
        }
    }
}

/// A string literal of the sources counts as a code if it starts with a family of the page, such as
/// `plan.`, and contains nothing else.
#[test]
fn the_page_of_errors_lists_every_code_of_the_sources() {
    let documented = documented_codes();
    let families: BTreeSet<&str> =
        documented.iter().filter_map(|code| Some(code.split_once('.')?.0)).collect();
    let is_code = |text: &str| {
        let is_word = |c: char| c == '_' || c.is_ascii_lowercase();
        text.split_once('.').is_some_and(|(family, rest)| {
            families.contains(family) && !rest.is_empty() && rest.chars().all(is_word)
        })
    };
    let mut sources = Vec::new();
    for part in ["shared", "planner", "executor", "graphql"] {
        add_sources(&repository().join(part), &mut sources);
    }
    let mut unused = documented.clone();
    for (path, source) in &sources {
        for code in source.split('"').filter(|text| is_code(text)) {
            let is_listed = documented.contains(code);
            assert!(is_listed, "add `{code}` of {} to `docs/errors.md`", path.display());
            unused.remove(code);
        }
    }
    assert!(unused.is_empty(), "no source has these codes of `docs/errors.md`: {unused:?}");
}
