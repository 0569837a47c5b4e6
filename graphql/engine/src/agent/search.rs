//! Searches for tools within a turn, if there are too many tools to offer all of them. A search is
//! not a step of the plan, because it reads only the catalog.

use std::sync::{Arc, LazyLock};

use planner::{
    calls::{CatalogNames, prompt::format_tool_result, read_tool_calls},
    catalog::{Catalog, CatalogTool},
    model::{CallResult, Message, OfferedTool, Reply},
    select::{Criterion, SelectionRequest, Selector, Tools},
};
use serde_json::{Value, json};
use shared::tool::{Effect, ToolDefinition};
use toolbox::Toolbox;

pub(super) const SEARCH_TOOL: &str = "search_tools";
/// Maximum number of replies in one turn that search, because Faber asks the model again after each
/// of them.
pub(super) const MAX_SEARCHES: usize = 3;
const MAX_FOUND_TOOLS: usize = 8;
const MAX_QUERY_BYTES: usize = 1 << 10;
const MAX_DESCRIPTION_CHARS: usize = 200;
const MAX_QUERIES: usize = 8;

static SEARCH_DEFINITION: LazyLock<Arc<ToolDefinition>> = LazyLock::new(|| {
    let query = json!({ "type": "string", "description": "The task in a few words." });
    let schema =
        json!({ "type": "object", "properties": { "query": query }, "required": ["query"] });
    Arc::new(ToolDefinition {
        name: SEARCH_TOOL.parse().expect("the name is a literal"),
        set: toolbox::dispatch::SET.parse().expect("the set's name is a literal"),
        description:
            "Finds further tools for a task and makes them available at once. You have only \
                      a part of the tools: search before you say that something is impossible. \
                      Call it without other calls beside it."
                .to_owned(),
        input_schema: schema,
        output_schema: None,
        effect: Effect::Read,
        examples: Vec::new(),
        is_callable: true,
    })
});

pub(super) fn search_definition() -> &'static Arc<ToolDefinition> {
    &SEARCH_DEFINITION
}

pub(super) fn offer_search_tool() -> OfferedTool {
    OfferedTool {
        name: SEARCH_DEFINITION.name.clone(),
        description: SEARCH_DEFINITION.description.clone(),
        schema: SEARCH_DEFINITION.input_schema.clone(),
    }
}

/// Returns the queries of a reply that only searches, in the order of its calls. Returns none for
/// any other reply, or if there are more than [`MAX_QUERIES`].
pub(super) fn read_queries(reply: &Reply, has_native_tools: bool) -> Vec<String> {
    let query = |args: &Value| args.get("query").and_then(Value::as_str).map(str::to_owned);
    let queries: Option<Vec<String>> = if has_native_tools {
        let search = |tool: &str, args: &Value| {
            (tool == SEARCH_TOOL).then(|| query(args).unwrap_or_default())
        };
        reply.calls.iter().map(|call| search(&call.tool, &call.arguments)).collect()
    } else {
        let own = CatalogTool { definition: Arc::clone(search_definition()), is_active: true };
        let catalog = Catalog::new([own]);
        let names = CatalogNames::new(&catalog);
        let read = read_tool_calls(&reply.text, &|name| names.find(name)).ok();
        let read = read.filter(|read| read.missed.is_empty());
        read.map(|read| {
            let queries =
                read.calls.into_iter().filter_map(|call| query(&Value::Object(call.args)));
            queries.collect()
        })
    };
    let mut queries = queries.unwrap_or_default();
    if queries.len() > MAX_QUERIES {
        queries.clear();
    }
    queries
}

pub(super) async fn find_tools(
    selector: &Selector,
    all: &Tools,
    offered: &[Arc<ToolDefinition>],
    query: &str,
) -> Vec<Arc<ToolDefinition>> {
    let ask = SelectionRequest {
        query: &query[..query.floor_char_boundary(MAX_QUERY_BYTES)],
        by: Criterion::Lexical,
        limit: MAX_FOUND_TOOLS,
        margin: 0.0,
        outcomes: None,
    };
    let is_new = |at: usize| !offered.iter().any(|known| Arc::ptr_eq(known, &all[at]));
    let found = selector.select(all, &ask, is_new).await.unwrap_or_default();
    found.matches.iter().map(|found| Arc::clone(&all[found.index])).collect()
}

pub(super) fn describe_found(found: &[Arc<ToolDefinition>], toolbox: &Toolbox) -> String {
    if found.is_empty() {
        return "no further tool fits: use other words, or the tools that you have".to_owned();
    }
    let lines = found.iter().map(|tool| {
        let about: String = tool.description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        json!({ "tool": toolbox.display_name(tool), "description": about })
    });
    let lines: Vec<Value> = lines.collect();
    json!({ "available now": lines }).to_string()
}

pub(super) fn show_searches(reply: &Reply, results: Vec<String>) -> Vec<Message> {
    let own_message = Message::Assistant { text: reply.text.clone(), calls: reply.calls.clone() };
    if reply.calls.is_empty() {
        let results = results.iter().map(|text| format_tool_result(SEARCH_TOOL, Ok(text.as_str())));
        return vec![own_message, Message::User(results.collect::<Vec<_>>().join("\n\n"))];
    }
    let results = reply.calls.iter().zip(results).map(|(call, text)| CallResult {
        id: call.id.clone(),
        tool: SEARCH_TOOL.to_owned(),
        text,
    });
    vec![own_message, Message::Results(results.collect())]
}
