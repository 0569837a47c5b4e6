//! Toolkit files in chat2graph's format: `tools`, `actions`, and chains of actions under `toolkit`.
//! Files may come from other programs, so the reader reports what it leaves out and ignores unknown
//! fields.

use std::collections::BTreeSet;

use indexmap::{IndexMap, IndexSet};
use serde_json::{Map, Value, json};
use shared::id::NodeName;

use super::{DEFAULT_SCORE, Edge, EdgeKind, Node, NodeKind, Origin, Toolkit, ToolkitError};
use crate::suggest::nearest;

const FILE_KEYS: [&str; 4] = ["tools", "actions", "toolkit", "order"];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadToolkit {
    pub toolkit: Toolkit,
    pub warnings: Vec<String>,
}

struct Action {
    node: Node,
    tools: Vec<(String, f64)>,
}

pub fn read(file: &Value) -> Result<ReadToolkit, String> {
    let Some(file) = file.as_object() else {
        return Err("a toolkit is a map with `tools`, `actions` and `toolkit`".to_owned());
    };
    check_keys(file)?;
    let mut warnings = Vec::new();
    let tools = parse_tools(file, &mut warnings)?;
    let actions = read_actions(file, &mut warnings)?;
    let mut toolkit = Toolkit::default();
    let mut seen = BTreeSet::new();
    for (index, chain) in list_field(file, "toolkit")?.iter().enumerate() {
        let place = format!("toolkit[{index}]");
        let Value::Array(links) = chain else {
            return Err(format!("`{place}` must be a list of actions"));
        };
        let refused = |err: ToolkitError| format!("`{place}`: {err}");
        let mut last: Option<&NodeName> = None;
        for (link, written) in links.iter().enumerate() {
            let place = format!("{place}[{link}]");
            let (name, score) = named_entry(written, &place)?;
            let Some((name, action)) = actions.get_key_value(name.as_str()) else {
                warnings
                    .push(format!("`{place}`: there is no action `{name}`; the name was left out"));
                continue;
            };
            seen.insert(name.clone());
            let before: Vec<_> = last.map(|last| (last.clone(), score)).into_iter().collect();
            // The graph has all names, so these calls return no warnings.
            toolkit.add_action(name, &action.node.description, &[], &before).map_err(refused)?;
            for (tool, node, score) in called_tools(name, action, &tools, &mut warnings) {
                toolkit.add_tool(tool, node, &[(name.clone(), score)]).map_err(refused)?;
            }
            last = Some(name);
        }
    }
    for name in actions.keys().filter(|name| !seen.contains(*name)) {
        warnings.push(format!("action `{name}` is in no chain of `toolkit` and was left out"));
    }
    arrange_nodes(&mut toolkit, list_field(file, "order")?, &mut warnings)?;
    // An action that is in two chains causes only one warning.
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok(ReadToolkit { toolkit, warnings })
}

/// Rejects a misspelt key. Ignores other unknown keys, which other programs may use.
fn check_keys(file: &Map<String, Value>) -> Result<(), String> {
    for key in file.keys().filter(|key| !FILE_KEYS.contains(&key.as_str())) {
        // A key that only contains a known key, such as `toolkit_version`, has another meaning.
        let meant = nearest(key, FILE_KEYS).filter(|meant| key.len().abs_diff(meant.len()) <= 2);
        if let Some(meant) = meant {
            return Err(format!("`{key}` is unknown: did you mean `{meant}`?"));
        }
    }
    Ok(())
}

fn arrange_nodes(
    toolkit: &mut Toolkit,
    order: &[Value],
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let mut names = Vec::new();
    for (index, name) in order.iter().enumerate() {
        let place = format!("order[{index}]");
        let name = name.as_str().ok_or_else(|| format!("`{place}` must be a name"))?;
        if toolkit.get(name).is_some() {
            names.push(name);
        } else {
            warnings.push(format!("`{place}`: there is no `{name}`; the name was left out"));
        }
    }
    toolkit.arrange(names);
    Ok(())
}

fn called_tools<'a>(
    name: &NodeName,
    action: &Action,
    tools: &'a IndexMap<NodeName, Node>,
    warnings: &mut Vec<String>,
) -> Vec<(&'a NodeName, &'a Node, f64)> {
    let mut called = Vec::new();
    for (tool, score) in &action.tools {
        match tools.get_key_value(tool.as_str()) {
            Some((tool, node)) => called.push((tool, node, *score)),
            None => {
                warnings.push(format!(
                    "action `{name}`: `tools` has no `{tool}`; the tool was left out"
                ));
            }
        }
    }
    called
}

fn parse_tools(
    file: &Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<IndexMap<NodeName, Node>, String> {
    let mut tools = IndexMap::new();
    for (index, tool) in list_field(file, "tools")?.iter().enumerate() {
        let place = format!("tools[{index}]");
        let (name, _) = named_entry(tool, &place)?;
        let name = parse_name(&name, &place)?;
        let origin = match tool.get("type") {
            None | Some(Value::Null) => tool_origin(tool),
            Some(Value::String(kind)) if kind == "LOCAL_TOOL" => tool_origin(tool),
            Some(Value::String(kind)) if kind == "MCP" || kind == "MCP_TOOL" => Some(Origin::Mcp),
            Some(other) => {
                let reason = "must be either LOCAL_TOOL or MCP";
                return Err(format!("`{place}.type` is `{}`; it {reason}", format_value(other)));
            }
        };
        let description = text_field(tool, &["desc", "description"]).unwrap_or_default();
        let node = Node { kind: NodeKind::Tool, description, origin };
        if tools.insert(name.clone(), node).is_some() {
            warnings.push(format!("`{place}`: tool `{name}` exists twice; the last one counts"));
        }
    }
    Ok(tools)
}

fn read_actions(
    file: &Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<IndexMap<NodeName, Action>, String> {
    let mut actions = IndexMap::new();
    for (index, action) in list_field(file, "actions")?.iter().enumerate() {
        let place = format!("actions[{index}]");
        let (name, _) = named_entry(action, &place)?;
        let name = parse_name(&name, &place)?;
        let node = Node::action(text_field(action, &["desc", "description"]).unwrap_or_default());
        let mut tools = Vec::new();
        if let Some(fields) = action.as_object() {
            for (tool, written) in list_field(fields, "tools")?.iter().enumerate() {
                tools.push(named_entry(written, &format!("{place}.tools[{tool}]"))?);
            }
        }
        if actions.insert(name.clone(), Action { node, tools }).is_some() {
            warnings.push(format!("`{place}`: action `{name}` exists twice; the last one counts"));
        }
    }
    Ok(actions)
}

fn list_field<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("`{key}` must be a list")),
    }
}

fn named_entry(entry: &Value, place: &str) -> Result<(String, f64), String> {
    let Some(fields) = entry.as_object() else {
        return Err(format!("`{place}` must be a map with a `name`"));
    };
    let name = match fields.get("name") {
        Some(Value::String(name)) => name.clone(),
        // Converts the name to text, because YAML reads `name: 7` and `name: yes` as other types.
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(name)) => name.to_string(),
        _ => return Err(format!("`{place}` has no `name`")),
    };
    let score = match fields.get("score") {
        None | Some(Value::Null) => DEFAULT_SCORE,
        Some(score) => {
            let score = score.as_f64().filter(|score| score.is_finite());
            score.ok_or_else(|| format!("`{place}.score` must be a number"))?
        }
    };
    Ok((name, score))
}

fn parse_name(name: &str, place: &str) -> Result<NodeName, String> {
    name.parse().map_err(|err| format!("`{place}.name`: {err}"))
}

fn tool_origin(tool: &Value) -> Option<Origin> {
    text_field(tool, &["module_path"]).map(Origin::Module)
}

fn format_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text_field(entry: &Value, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| entry.get(key)?.as_str()).map(str::to_owned)
}

/// Writes a graph. [`read`] returns the same graph without the tools that no action calls.
pub fn write(toolkit: &Toolkit) -> Value {
    let of = |kind| toolkit.nodes().filter(move |(_, node)| node.kind == kind);
    let tools: Vec<Value> = of(NodeKind::Tool).map(|(name, node)| tool_entry(name, node)).collect();
    let actions: Vec<Value> =
        of(NodeKind::Action).map(|(name, node)| action_entry(toolkit, name, node)).collect();
    let (chains, listed) = list_chains(toolkit);
    let mut file = json!({ "tools": tools, "actions": actions, "toolkit": chains });
    // Leaves out tools without an action, because `read` drops such tools.
    let order = || toolkit.nodes().map(|(name, _)| name).filter(|name| listed.contains(*name));
    if !order().eq(listed.iter().copied()) {
        file["order"] = order().map(|name| json!(name)).collect();
    }
    file
}

fn tool_entry(name: &NodeName, node: &Node) -> Value {
    let mut entry = node_entry(name, node);
    match &node.origin {
        Some(Origin::Mcp) => entry["type"] = json!("MCP"),
        Some(Origin::Module(tool_origin)) => entry["module_path"] = json!(tool_origin),
        None => (),
    }
    entry
}

fn action_entry(toolkit: &Toolkit, name: &NodeName, node: &Node) -> Value {
    let mut entry = node_entry(name, node);
    let calls = toolkit.successors(name.as_str()).filter(|edge| edge.kind == EdgeKind::Call);
    let tools: Vec<Value> = calls.map(|edge| link_entry(edge.to, edge.score)).collect();
    if !tools.is_empty() {
        entry["tools"] = Value::Array(tools);
    }
    entry
}

fn node_entry(name: &NodeName, node: &Node) -> Value {
    let mut entry = json!({ "name": name });
    if !node.description.is_empty() {
        entry["desc"] = json!(node.description);
    }
    entry
}

fn link_entry(name: &NodeName, score: f64) -> Value {
    if score == DEFAULT_SCORE {
        json!({ "name": name })
    } else {
        json!({ "name": name, "score": score })
    }
}

fn list_chains(toolkit: &Toolkit) -> (Vec<Value>, IndexSet<&NodeName>) {
    let edges = |name: &NodeName, kind: EdgeKind| {
        let edges = toolkit.successors(name.as_str()).filter(move |edge| edge.kind == kind);
        edges.collect::<Vec<Edge<'_>>>()
    };
    let actions = || toolkit.nodes().filter(|(_, node)| node.kind == NodeKind::Action);
    let mut left: IndexMap<&NodeName, std::vec::IntoIter<Edge<'_>>> =
        actions().map(|(name, _)| (name, edges(name, EdgeKind::Next).into_iter())).collect();
    let mut chains = Vec::new();
    let mut listed: IndexSet<&NodeName> = IndexSet::new();
    for (start, _) in actions() {
        loop {
            let is_listed = listed.contains(start);
            let mut chain = vec![json!({ "name": start })];
            let mut current = start;
            note_action(&mut listed, start, &edges(start, EdgeKind::Call));
            while let Some(edge) = left.get_mut(current).and_then(Iterator::next) {
                chain.push(link_entry(edge.to, edge.score));
                current = edge.to;
                note_action(&mut listed, current, &edges(current, EdgeKind::Call));
            }
            if chain.len() == 1 && is_listed {
                break;
            }
            chains.push(Value::Array(chain));
        }
    }
    (chains, listed)
}

fn note_action<'a>(listed: &mut IndexSet<&'a NodeName>, action: &'a NodeName, calls: &[Edge<'a>]) {
    if listed.insert(action) {
        listed.extend(calls.iter().map(|edge| edge.to));
    }
}
