//! The 29 tools of Faber's predecessor, and four tools with other names.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};
use shared::tool::{Effect, ToolDefinition};

use crate::catalog::{Catalog, CatalogTool};

/// Each tool with its parameters. `!` marks a required parameter, and the letter after it is the
/// type.
const TOOLS: [(&str, &str); 29] = [
    ("code_tools.append_file", "file_path:s! content:s!"),
    ("code_tools.edit_file", "file_path:s! old_string:s! new_string:s! replace_all:b"),
    ("code_tools.read_file", "file_path:s! offset:i limit:i"),
    ("code_tools.write_file", "file_path:s! content:s!"),
    ("file_tools.file_info", "file_path:s!"),
    ("file_tools.find_definition", "name:s! path:s"),
    ("file_tools.glob", "pattern:s! path:s"),
    ("file_tools.grep", "pattern:s! path:s output_mode:s context_lines:i case_insensitive:b"),
    ("file_tools.tree", "path:s depth:i"),
    ("system_tools.bash", "command:s! cwd:s timeout:i description:s"),
    ("system_tools.bash_background", "command:s! cwd:s description:s"),
    ("system_tools.process_kill", "pid_or_name:s! force:b"),
    ("system_tools.process_list", "filter_pattern:s"),
    ("system_tools.read_logs", "file_path:s! lines:i follow:b"),
    ("system_tools.system_info", ""),
    ("system_tools.todo_write", "todos:a!"),
    ("web_tools.docs_search", "library:s! query:s!"),
    ("web_tools.fetch_url", "url:s! extract_text:b"),
    ("web_tools.github_search", "query:s! max_results:i"),
    ("web_tools.stack_overflow_search", "query:s! max_results:i"),
    ("web_tools.web_search", "query:s! max_results:i"),
    ("web_tools.wiki_lookup", "topic:s!"),
    ("memory_tools.clear_memory", "key:s scope:s"),
    ("memory_tools.get_snippet", "name:s!"),
    ("memory_tools.list_memories", "scope:s"),
    ("memory_tools.recall_context", "key:s! scope:s"),
    ("memory_tools.save_context", "key:s! value:s! scope:s tags:a"),
    ("memory_tools.save_snippet", "name:s! code:s! language:s! description:s tags:a"),
    ("memory_tools.search_memory", "query:s! scope:s"),
];

/// Tools with digits, capitals and colliding names. Their parameters accept anything.
const OTHER_TOOLS: [(&str, &str); 4] = [
    ("rag2_tools.find", "what:?"),
    ("blog.createAuthor", "name:? email:?"),
    ("twins.Echo", ""),
    ("others.ECHO", ""),
];

pub(super) fn definitions() -> Vec<ToolDefinition> {
    TOOLS.iter().map(|(name, parameters)| parse_definition(name, parameters)).collect()
}

/// The catalog is made only once, because the property tests read thousands of texts.
static CATALOG: LazyLock<Catalog> = LazyLock::new(make_catalog);

pub(super) fn catalog() -> &'static Catalog {
    &CATALOG
}

fn make_catalog() -> Catalog {
    let others = OTHER_TOOLS.iter().map(|(name, parameters)| parse_definition(name, parameters));
    catalog_of(definitions().into_iter().chain(others))
}

pub(super) fn catalog_of(tools: impl IntoIterator<Item = ToolDefinition>) -> Catalog {
    let tools = tools.into_iter();
    Catalog::new(
        tools.map(|definition| CatalogTool { definition: Arc::new(definition), is_active: true }),
    )
}

pub(super) fn parse_definition(name: &str, parameters: &str) -> ToolDefinition {
    let (set, plain) = name.split_once('.').expect("the name has a set");
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in parameters.split_whitespace() {
        let (key, kind) = parameter.split_once(':').expect("the parameter has a type");
        let schema = match kind.trim_end_matches('!') {
            "s" if !kind.ends_with('!') => json!({ "type": ["string", "null"], "default": null }),
            "s" => json!({ "type": "string", "description": format!("What `{key}` is.") }),
            "i" => json!({ "type": "integer", "default": 5 }),
            "b" => json!({ "type": "boolean", "default": false }),
            "a" => json!({ "type": "array" }),
            _ => json!({}),
        };
        properties.insert(key.to_owned(), schema);
        if kind.ends_with('!') {
            required.push(Value::from(key));
        }
    }
    ToolDefinition {
        // The names of Faber's own tools start with the name of their set.
        name: if set.ends_with("_tools") { name } else { plain }.parse().expect("a tool's name"),
        set: set.parse().expect("a set's name"),
        description: format!("Does {plain}."),
        input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        output_schema: None,
        effect: Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    }
}
