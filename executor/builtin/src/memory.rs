//! The toolset `memory_tools`: stores texts for later plans, in Faber's own store.

mod formatting;
mod memory_store;
mod scope;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use shared::{
    clock::Clock,
    store::Store,
    tool::{Effect, ToolError},
};
use toolbox::{Tool, ToolContext, function};

use self::{
    memory_store::{MAX_SEARCH_BYTES, MemoryStore},
    scope::{Key, Scope},
};

pub const SET: &str = "memory_tools";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    value: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

pub fn tools(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Vec<Arc<dyn Tool>> {
    let memory_store = Arc::new(MemoryStore::new(store, clock));
    vec![
        make_tool(
            &memory_store,
            "clear_memory",
            "Forget one memory. Without a key, forget all memories of the scope.",
            Effect::Idempotent,
            clear_memory,
        ),
        make_tool(
            &memory_store,
            "get_snippet",
            "Get a code snippet that was saved under a name, with its language and description.",
            Effect::Read,
            get_snippet,
        ),
        make_tool(
            &memory_store,
            "list_memories",
            "List the keys of all memories of a scope, each with the start of its text.",
            Effect::Read,
            list_memories,
        ),
        make_tool(
            &memory_store,
            "recall_context",
            "Get the text that was saved under a key, exactly as it was saved.",
            Effect::Read,
            recall_context,
        ),
        make_tool(
            &memory_store,
            "save_context",
            "Remember a text under a key, for later calls, plans and sessions. Replaces the old \
             text of the key.",
            Effect::Idempotent,
            save_context,
        ),
        make_tool(
            &memory_store,
            "save_snippet",
            "Remember a piece of code under a name, to use it again. Replaces the old snippet of \
             the name.",
            Effect::Idempotent,
            save_snippet,
        ),
        make_tool(
            &memory_store,
            "search_memory",
            "Find memories of a scope whose key, text or tags contain a text, ignoring case.",
            Effect::Read,
            search_memory,
        ),
    ]
}

fn make_tool<Args, Fut, F>(
    memory_store: &Arc<MemoryStore>,
    name: &'static str,
    description: &'static str,
    effect: Effect,
    run: F,
) -> Arc<dyn Tool>
where
    Args: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
    F: Fn(Arc<MemoryStore>, Args, ToolContext) -> Fut + Send + Sync + 'static,
{
    let memory_store = Arc::clone(memory_store);
    let run = move |args, cx| run(Arc::clone(&memory_store), args, cx);
    function(SET, name, description, effect, run)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClearMemory {
    /// Key of the memory to forget. Default: all memories of the scope.
    #[serde(default, deserialize_with = "read_required_key")]
    #[schemars(with = "Key")]
    key: Option<Key>,
    /// Scope of the memory.
    #[serde(default)]
    scope: Scope,
}

/// Reads a key. Rejects null: if an earlier step returned no key, the call must not remove all
/// memories of the scope.
fn read_required_key<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Key>, D::Error> {
    Key::deserialize(from).map(Some)
}

async fn clear_memory(
    memory_store: Arc<MemoryStore>,
    args: ClearMemory,
    cx: ToolContext,
) -> Result<String, ToolError> {
    let ClearMemory { key, scope } = args;
    let Some(key) = key else {
        let cleared = memory_store.clear(scope, &cx.cancel).await?;
        return Ok(format!("Cleared {} from {scope}", formatting::format_count(cleared)));
    };
    let was_there = memory_store.remove(scope, &key).await?;
    Ok(if was_there {
        format!("Cleared '{key}' from {scope}")
    } else {
        format!("Nothing to clear: there is no '{key}' in {scope}")
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetSnippet {
    /// Name of the snippet.
    name: Key,
}

async fn get_snippet(
    memory_store: Arc<MemoryStore>,
    args: GetSnippet,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let memory = memory_store.recall_memory(Scope::Snippets, &args.name).await?;
    Ok(formatting::format_snippet(&args.name, &memory))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListMemories {
    /// Scope to list.
    #[serde(default)]
    scope: Scope,
}

async fn list_memories(
    memory_store: Arc<MemoryStore>,
    args: ListMemories,
    cx: ToolContext,
) -> Result<String, ToolError> {
    memory_store.list_memories(args.scope, &cx.cancel).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecallContext {
    /// Key under which the text was saved.
    key: Key,
    /// Scope of the memory.
    #[serde(default)]
    scope: Scope,
}

async fn recall_context(
    memory_store: Arc<MemoryStore>,
    args: RecallContext,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    Ok(memory_store.recall_memory(args.scope, &args.key).await?.value)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SaveContext {
    /// Key under which the text is saved, at most 256 bytes.
    key: Key,
    /// Text to remember.
    value: String,
    /// Scope of the memory: `global` for everything, `project` for the current project,
    /// `snippets` for code.
    #[serde(default)]
    scope: Scope,
    /// Words to find the memory by, at most 32.
    #[serde(default)]
    tags: Option<Vec<String>>,
}

async fn save_context(
    memory_store: Arc<MemoryStore>,
    args: SaveContext,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let SaveContext { key, value, scope, tags } = args;
    let memory = Memory { value, tags: tags.unwrap_or_default(), ..Memory::default() };
    memory_store.save(scope, &key, memory).await?;
    Ok(format!("Saved '{key}' in {scope}"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SaveSnippet {
    /// Name of the snippet, at most 256 bytes.
    name: Key,
    /// Code to remember.
    code: String,
    /// Programming language of the code.
    language: String,
    /// Purpose of the code.
    #[serde(default)]
    description: Option<String>,
    /// Words to find the memory by, at most 32.
    #[serde(default)]
    tags: Option<Vec<String>>,
}

async fn save_snippet(
    memory_store: Arc<MemoryStore>,
    args: SaveSnippet,
    _cx: ToolContext,
) -> Result<String, ToolError> {
    let SaveSnippet { name, code, language, description, tags } = args;
    let (tags, language) = (tags.unwrap_or_default(), Some(language));
    let memory = Memory { value: code, tags, language, description };
    memory_store.save(Scope::Snippets, &name, memory).await?;
    Ok(format!("Saved snippet '{name}'"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchMemory {
    /// Text to find in keys, texts and tags, ignoring case.
    query: String,
    /// Scope to search.
    #[serde(default)]
    scope: Scope,
}

async fn search_memory(
    memory_store: Arc<MemoryStore>,
    args: SearchMemory,
    cx: ToolContext,
) -> Result<String, ToolError> {
    memory_store.search_memories(args.scope, &args.query, MAX_SEARCH_BYTES, &cx.cancel).await
}
