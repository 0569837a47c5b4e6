//! The reference page of the built-in tools is generated from the tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
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

fn page_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/built-in-tools.md")
}

async fn built_in_sets() -> Vec<ToolSet> {
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
    let summary = wrap(&format!("*{effect}*. {}", tool.description));
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

/// Breaks a paragraph into lines of at most 120 columns.
fn wrap(paragraph: &str) -> String {
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
    let written = render_page(&built_in_sets().await);
    assert_eq!(written.matches("\n### `").count(), 8 + 3 + 29);
    if std::env::var_os("FABER_BLESS").is_some() {
        fs::write(page_path(), &written).unwrap();
    }
    let there = fs::read_to_string(page_path()).unwrap_or_default();
    assert!(
        there == written,
        "`docs/reference/built-in-tools.md` is stale: `FABER_BLESS=1` writes it"
    );
}
