//! JSON objects that are calls: in Faber's format, in the formats of `OpenAI` and Anthropic, and in
//! variants that models write.

use std::ops::Range;

use serde_json::Value;

use super::{
    CallFormat, KnownTool, ToolCall,
    argument::Args,
    lenient::{self, Object, OpenValue, Tree},
    pairs,
    source::{Attempt, BrokenCall, CallReader, MissReason},
};

const TOOL_FIELDS: [&str; 2] = ["tool", "tool_name"];
const NAME_FIELDS: [&str; 4] = ["name", "function", "action", "recipient_name"];
const ARGUMENT_FIELDS: [&str; 8] =
    ["args", "arguments", "parameters", "params", "input", "tool_input", "action_input", "kwargs"];
/// Fields that contain arguments if the object can only be a call.
const LOOSE_ARGUMENT_FIELDS: [&str; 8] =
    ["arg", "argument", "param", "parameter", "inputs", "data", "payload", "options"];
const OTHER_FIELDS: [&str; 24] = [
    "type",
    "id",
    "call_id",
    "index",
    "thought",
    "thoughts",
    "reason",
    "reasoning",
    "explanation",
    "rationale",
    "why",
    "comment",
    "comments",
    "note",
    "description",
    "goal",
    "purpose",
    "intent",
    "confidence",
    "step",
    "status",
    "role",
    "cache_control",
    "plan",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectPlace {
    Prose,
    ToolCalls,
    Tags,
}

struct Shape {
    name: String,
    format: CallFormat,
    args: Option<Tree>,
    sibling_fields: Vec<(String, Tree)>,
    span: Range<usize>,
    /// `true` if the object can only be a call.
    is_certain: bool,
}

pub(super) fn read(reading: &CallReader<'_>, index: usize) -> Attempt {
    match lenient::read(&reading.source, index) {
        Ok((tree, end)) => {
            let mut calls = Vec::new();
            collect_calls(reading, tree, ObjectPlace::Prose, &mut calls);
            Attempt::Read { calls, end }
        }
        Err(stuck) => {
            let mut calls = Vec::new();
            let Some(wanted) = collect_open(reading, stuck.open, &mut calls) else {
                return Attempt::Read { calls, end: stuck.resume };
            };
            let is_cut = stuck.is_cut && wanted.is_certain;
            if wanted.is_certain {
                reading.add_missed(
                    &wanted.name,
                    MissReason::from_flags(wanted.is_known, stuck.is_cut),
                );
            }
            let position = if stuck.is_cut { stuck.resume } else { stuck.position };
            Attempt::Broken(BrokenCall { calls, position, is_cut, is_known: wanted.is_known })
        }
    }
}

pub(super) fn is_call(reading: &CallReader<'_>, object: &Object) -> bool {
    let name = object.get(&TOOL_FIELDS).or_else(|| object.get(&NAME_FIELDS));
    let named =
        name.and_then(Tree::as_str).is_some_and(|name| reading.resolve_tool(name).is_some());
    named && (object.get(&TOOL_FIELDS).is_some() || object.get(&ARGUMENT_FIELDS).is_some())
}

pub(super) fn read_tagged_call(
    reading: &CallReader<'_>,
    object: Object,
    span: Range<usize>,
) -> Option<ToolCall> {
    let shape = take_shape(object, ObjectPlace::Tags).ok()?;
    to_tool_call(reading, Shape { format: CallFormat::Xml, span, ..shape })
}

pub(super) fn has_known_open_call(reading: &CallReader<'_>, open: Vec<OpenValue>) -> bool {
    collect_open(reading, open, &mut Vec::new()).is_some_and(|wanted| wanted.is_known)
}

/// Adds the calls in a value, outermost first. A call contains no other calls.
fn collect_calls(
    reading: &CallReader<'_>,
    tree: Tree,
    place: ObjectPlace,
    calls: &mut Vec<ToolCall>,
) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::List(items) => {
            for item in items {
                collect_calls(reading, item, place, calls);
            }
        }
        Tree::Object(object) if contains_no_calls(&object) => {}
        Tree::Object(object) => match take_shape(object, place) {
            Ok(shape) => calls.extend(to_tool_call(reading, shape)),
            Err(object) => {
                for (key, tree) in object.fields {
                    collect_calls(reading, tree, place_of_field(&key), calls);
                }
            }
        },
    }
}

fn place_of_field(key: &str) -> ObjectPlace {
    if matches!(key, "tool_calls" | "function_call" | "tool_uses") {
        ObjectPlace::ToolCalls
    } else {
        ObjectPlace::Prose
    }
}

struct UnfinishedCall {
    name: String,
    is_known: bool,
    is_certain: bool,
}

fn collect_open(
    reading: &CallReader<'_>,
    open: Vec<OpenValue>,
    calls: &mut Vec<ToolCall>,
) -> Option<UnfinishedCall> {
    let mut place = ObjectPlace::Prose;
    for open in open {
        match open {
            OpenValue::List(items) => {
                for item in items {
                    collect_calls(reading, item, place, calls);
                }
            }
            OpenValue::Object { object, key } => {
                if let Some(wanted) = find_unfinished_call(reading, &object, key.as_deref()) {
                    return Some(wanted);
                }
                for (key, tree) in object.fields {
                    collect_calls(reading, tree, place_of_field(&key), calls);
                }
                place = key.as_deref().map_or(ObjectPlace::Prose, place_of_field);
            }
        }
    }
    None
}

fn find_unfinished_call(
    reading: &CallReader<'_>,
    object: &Object,
    key: Option<&str>,
) -> Option<UnfinishedCall> {
    let is_there = |names: &[&str]| {
        object.get(names).is_some()
            || key.is_some_and(|key| names.iter().any(|name| name.eq_ignore_ascii_case(key)))
    };
    let names = [object.get(&TOOL_FIELDS), object.get(&NAME_FIELDS)].into_iter().flatten();
    let mut names = names.filter_map(|tree| match tree {
        Tree::Object(function) => function.get(&["name"]).and_then(Tree::as_str),
        other => other.as_str(),
    });
    let first = names.clone().next();
    let known_name = names.find(|name| reading.resolve_tool(name).is_some());
    let name = known_name.or(first).unwrap_or_default().to_owned();
    let is_certain = known_name.is_some() || object.get(&TOOL_FIELDS).is_some();
    let wanted = UnfinishedCall { name, is_known: known_name.is_some(), is_certain };
    (is_certain || is_there(&ARGUMENT_FIELDS)).then_some(wanted)
}

/// Returns whether an object contains no calls, because it is a result, a definition of a tool, or
/// a message of another role.
fn contains_no_calls(object: &Object) -> bool {
    let is = |field: &str, values: &[&str]| {
        object.get(&[field]).and_then(Tree::as_str).is_some_and(|value| values.contains(&value))
    };
    is("type", &["tool_result", "function_call_output"])
        || is("role", &["tool", "function", "user", "system"])
        || is_definition(object)
}

fn is_definition(object: &Object) -> bool {
    if let Some(Tree::Object(function)) = object.get(&["function"]) {
        return is_definition(function);
    }
    let has = |object: &Object, key: &str| object.get(&[key]).is_some();
    let is_described = has(object, "description") || has(object, "summary");
    // `tool` marks a call unless a description is next to it.
    if text_field(object, &TOOL_FIELDS).is_some() && !is_described {
        return false;
    }
    if has(object, "input_schema") || has(object, "inputSchema") {
        return true;
    }
    let Some(Tree::Object(parameters)) = object.get(&["parameters"]) else { return false };
    let fields = &parameters.fields;
    let is_schema = |tree: &Tree| matches!(tree, Tree::Object(object) if has(object, "type"));
    let has_properties = matches!(parameters.get(&["properties"]), Some(Tree::Object(_)));
    let is_object = text_field(parameters, &["type"]) == Some("object");
    // A `type` alone is not enough, because a value may look like a schema: `{"shape": {"type":
    // "circle"}}`.
    has_properties && is_object
        || is_described && (has_properties || fields.iter().all(|(_, tree)| is_schema(tree)))
}

fn take_shape(mut object: Object, place: ObjectPlace) -> Result<Shape, Object> {
    let span = object.span.clone();
    let kind = object.get(&["type"]).and_then(Tree::as_str).unwrap_or_default();
    let format = match (kind, place) {
        ("tool_use", _) => CallFormat::Anthropic,
        ("function" | "function_call", _) | (_, ObjectPlace::ToolCalls) => CallFormat::Openai,
        _ => CallFormat::Json,
    };
    if let Some(Tree::Object(function)) = object.get(&["function"])
        && function.get(&["name"]).and_then(Tree::as_str).is_some()
        && let Some(Tree::Object(mut function)) = take_field(&mut object, &["function"])
    {
        let name = take_text(&mut function, &["name"]).unwrap_or_default();
        let args = take_field(&mut function, &ARGUMENT_FIELDS);
        let format = CallFormat::Openai;
        let sibling_fields = function.fields;
        return Ok(Shape { name, format, args, sibling_fields, span, is_certain: true });
    }
    let is_certain = text_field(&object, &TOOL_FIELDS).is_some();
    let is_marked = format != CallFormat::Json || place == ObjectPlace::Tags;
    let is_named = text_field(&object, &NAME_FIELDS).is_some();
    if !is_certain && !(is_named && (is_marked || object.get(&ARGUMENT_FIELDS).is_some())) {
        return Err(object);
    }
    let names: &[&str] = if is_certain { &TOOL_FIELDS } else { &NAME_FIELDS };
    let name = take_text(&mut object, names).unwrap_or_default();
    let args = take_field(&mut object, &ARGUMENT_FIELDS);
    let is_certain = is_marked || is_certain && args.is_some();
    Ok(Shape { name, format, args, sibling_fields: object.fields, span, is_certain })
}

fn text_field<'o>(object: &'o Object, names: &[&str]) -> Option<&'o str> {
    names.iter().find_map(|name| object.get(&[name]).and_then(Tree::as_str))
}

fn take_field(object: &mut Object, names: &[&str]) -> Option<Tree> {
    let name_position = names.iter().find_map(|name| {
        object.fields.iter().rposition(|(key, _)| key.eq_ignore_ascii_case(name))
    })?;
    Some(object.fields.remove(name_position).1)
}

fn take_text(object: &mut Object, names: &[&str]) -> Option<String> {
    let name = names.iter().find(|name| text_field(object, &[name]).is_some())?;
    match take_field(object, &[name])? {
        Tree::Leaf(Value::String(text_field)) => Some(text_field),
        _ => None,
    }
}

fn to_tool_call(reading: &CallReader<'_>, shape: Shape) -> Option<ToolCall> {
    let Some(tool) = reading.resolve_tool(&shape.name) else {
        if shape.is_certain {
            reading.add_missed(&shape.name, MissReason::Unknown);
        }
        return None;
    };
    let is_own = shape.format == CallFormat::Json;
    let args = match shape.args {
        Some(args) => read_arguments(reading, args, &tool)
            .and_then(|arguments| merge_siblings(arguments, shape.sibling_fields, &tool, is_own)),
        None => read_sibling_arguments(shape.sibling_fields, &tool),
    };
    let Some(args) = args else {
        reading.add_missed(&shape.name, MissReason::Unreadable);
        return None;
    };
    Some(reading.make_call(&tool, args, shape.format, shape.span))
}

fn read_arguments(reading: &CallReader<'_>, args: Tree, tool: &KnownTool) -> Option<Args> {
    match args {
        Tree::Object(object) => Some(object.into_map()),
        Tree::Leaf(Value::Null) => Some(Args::new()),
        Tree::List(items) if items.is_empty() => Some(Args::new()),
        Tree::Leaf(Value::String(text_field)) => {
            let (args, steps) = pairs::read_whole(&text_field, tool);
            reading.source.add_steps(steps);
            args
        }
        _ => None,
    }
}

/// Merges arguments with the fields beside them. Returns `None` if these fields are ambiguous.
fn merge_siblings(
    mut args: Args,
    fields: Vec<(String, Tree)>,
    tool: &KnownTool,
    is_own: bool,
) -> Option<Args> {
    // Ignores the fields, because the JSON of providers has other fields next to the arguments.
    if !is_own {
        return Some(args);
    }
    let is_empty = args.is_empty();
    for (key, tree) in drop_nulls(fields, tool) {
        if tool.has_parameter(&key) && !args.contains_key(&key) {
            args.insert(key, tree.into_value());
        } else if is_empty || tool.has_parameter(&key) {
            return None;
        }
    }
    Some(args)
}

/// Reads the arguments beside a tool's name. Each of them must be a parameter, or the only field
/// must be an object with all arguments.
fn read_sibling_arguments(fields: Vec<(String, Tree)>, tool: &KnownTool) -> Option<Args> {
    let mut fields = drop_nulls(fields, tool);
    let is_all = |(key, tree): &(String, Tree)| {
        !tool.has_parameter(key)
            && is_one_of(&LOOSE_ARGUMENT_FIELDS, key)
            && matches!(tree, Tree::Object(_))
    };
    if fields.len() == 1
        && let Some((_, Tree::Object(object))) = fields.pop_if(|field| is_all(field))
    {
        return Some(object.into_map());
    }
    let all = fields.iter().all(|(key, _)| tool.has_parameter(key));
    all.then(|| fields.into_iter().map(|(key, tree)| (key, tree.into_value())).collect())
}

fn drop_nulls(fields: Vec<(String, Tree)>, tool: &KnownTool) -> Vec<(String, Tree)> {
    let is_nothing = |tree: &Tree| match tree {
        Tree::Leaf(value) => value.is_null(),
        Tree::List(items) => items.is_empty(),
        Tree::Object(object) => object.fields.is_empty(),
    };
    let is_meant = |(key, tree): &(String, Tree)| {
        tool.has_parameter(key) || !OTHER_FIELDS.contains(&&**key) && !is_nothing(tree)
    };
    fields.into_iter().filter(is_meant).collect()
}

fn is_one_of(names: &[&str], key: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(key))
}
