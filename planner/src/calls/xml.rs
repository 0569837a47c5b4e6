use std::ops::Range;

use serde_json::Value;
use shared::{json, limits};

use super::{
    CallFormat, KnownTool,
    argument::Args,
    lenient::{self, Tree},
    pairs, shape,
    source::{Attempt, BrokenCall, CallReader, MissReason, Source},
    tags::{self, Tag, TagKind, Tags},
    word,
};

const NAME_TAGS: [&str; 5] = ["tool", "name", "tool_name", "function", "function_name"];
const ARGUMENT_TAGS: [&str; 6] =
    ["args", "arguments", "parameters", "params", "input", "tool_input"];

const OTHER_ATTRIBUTES: [&str; 6] = ["name", "id", "type", "string", "format", "xmlns"];

pub(super) fn read(reading: &CallReader<'_>, tags: &Tags, index: usize) -> Attempt {
    let source = &reading.source;
    let Some(tag) = Tag::read_at(source, index) else { return Attempt::Passed(index + 1) };
    let close = tags.find_closing_tag(index, &tag);
    match (tag.kind(), close) {
        (TagKind::Skipped, Some(close)) => Attempt::Read { calls: Vec::new(), end: close.end },
        (TagKind::Skipped, None) if tag.is_empty || tags::is_quoted(source, index) => {
            Attempt::Passed(tag.end)
        }
        // The text ends inside the element, so the rest of the text is skipped.
        (TagKind::Skipped, None) => Attempt::Read { calls: Vec::new(), end: source.len() },
        (TagKind::Other, _) => Attempt::Passed(index + 1),
        (TagKind::Call, _) if tag.is_empty => Attempt::Passed(tag.end),
        (TagKind::Call, close) => {
            let open_end = tags.next_opening(index).unwrap_or(source.len()).max(tag.end);
            let close = close.filter(|close| close.start >= tag.end);
            let is_closed = close.is_some();
            let close = close.unwrap_or(open_end..open_end);
            let body = tag.end..close.start;
            let end = close.end;
            let has_more = tag.attribute.is_some() && has_other_attributes(&tag);
            let element = Element {
                reading,
                start: index,
                name: tag.attribute,
                body,
                end,
                is_closed,
                is_complete: is_closed,
            };
            if has_more { element.report_broken_call() } else { element.read() }
        }
    }
}

struct TagText {
    text: String,
    /// `true` for CDATA, whose text is used unchanged.
    is_exact: bool,
}

enum TagArguments {
    Object(Args),
    Fields(Vec<(String, TagText)>),
    Text(String),
}

struct NotACallError;

struct Element<'r, 'a> {
    reading: &'r CallReader<'a>,
    start: usize,
    name: Option<String>,
    body: Range<usize>,
    end: usize,
    is_closed: bool,
    is_complete: bool,
}

impl<'a> Element<'_, 'a> {
    fn read(mut self) -> Attempt {
        let source = &self.reading.source;
        if self.name.is_none()
            && let Some(name) = self.name_before_keys()
        {
            self.name = Some(name.to_owned());
            return self.report_broken_call();
        }
        let mut position = source.skip_markup(self.body.start);
        let is_object = source.byte(position) == Some(b'{');
        if (is_object || source.byte(position) == Some(b'[')) && self.name.is_none() {
            return self.read_json(position);
        }
        let is_marked = self.name.is_some();
        let mut written = None;
        if is_object {
            match self.read_object(position) {
                Some((args, end)) => {
                    (written, position, self.is_complete) =
                        (Some(TagArguments::Object(args)), end, true);
                }
                None => return self.report_broken_call(),
            }
        }
        let mut is_first = true;
        loop {
            let next = source.skip_markup(position);
            if next >= self.body.end {
                break;
            }
            let child = Tag::read_at(source, next).filter(|child| child.end <= self.body.end);
            let Some(child) = child.filter(is_argument_or_name) else {
                if is_first && !is_marked {
                    return Attempt::Passed(self.body.start);
                }
                if !self.is_closed && self.is_complete && self.name.is_some() {
                    break;
                }
                return self.report_broken_call();
            };
            match self.read_child(&child, &mut written) {
                Ok(end) => position = end,
                Err(NotACallError) => return self.report_broken_call(),
            }
            is_first = false;
        }
        if !self.is_complete {
            return self.report_broken_call();
        }
        if !self.is_closed {
            self.end = position;
        }
        self.into_tool_call(written)
    }

    /// Returns the name if GLM's format follows: a name and `<arg_key>`. Calls in this format are
    /// not read, but their values may contain text that looks like a call.
    fn name_before_keys(&self) -> Option<&'a str> {
        let source = &self.reading.source;
        let start = source.skip_space(self.body.start);
        let end = source.find_name_end(start);
        let tag = Tag::read_at(source, source.skip_space(end))?;
        (end > start && tag.name == "arg_key").then(|| source.slice(start..end))
    }

    /// Reads Hermes' and Qwen's format: `{"name": …, "arguments": …}`, or a list of such objects.
    fn read_json(self, index: usize) -> Attempt {
        let source = &self.reading.source;
        match lenient::read(source, index) {
            Ok((Tree::Object(object), end)) => {
                let close = source.skip_markup(end);
                let is_closed = close == self.body.end;
                let end = if is_closed { self.end.max(end) } else { end };
                let call = shape::read_tagged_call(self.reading, object, self.start..end);
                Attempt::Read { calls: call.into_iter().collect(), end }
            }
            Ok((Tree::List(items), end)) => {
                let calls = items.into_iter().filter_map(|tree| match tree {
                    Tree::Object(object) => {
                        let span = object.span.clone();
                        shape::read_tagged_call(self.reading, object, span)
                    }
                    _ => None,
                });
                Attempt::Read { calls: calls.collect(), end }
            }
            Ok((_, end)) => Attempt::Passed(end),
            Err(stuck) => {
                let is_known = shape::has_known_open_call(self.reading, stuck.open);
                let position =
                    if self.is_closed { stuck.position.max(self.end) } else { stuck.position };
                Attempt::Broken(BrokenCall {
                    calls: Vec::new(),
                    position,
                    is_cut: stuck.is_cut,
                    is_known,
                })
            }
        }
    }

    fn read_child(
        &mut self,
        child: &Tag<'a>,
        written: &mut Option<TagArguments>,
    ) -> Result<usize, NotACallError> {
        if let Some(key) = &child.attribute {
            let (text, end) = self.read_field(child)?;
            let field = (key.clone(), text);
            match written {
                Some(TagArguments::Fields(fields)) => fields.push(field),
                Some(_) => return Err(NotACallError),
                None => *written = Some(TagArguments::Fields(vec![field])),
            }
            return Ok(end);
        }
        if is_one_of(&NAME_TAGS, child.name) {
            if has_other_attributes(child) {
                return Err(NotACallError);
            }
            let (text, end) = self.read_text(child)?;
            self.name = Some(text.text.trim().to_owned());
            return Ok(end);
        }
        let (args, end) = self.read_arguments(child)?;
        if written.replace(args).is_some() {
            return Err(NotACallError);
        }
        self.is_complete = true;
        Ok(end)
    }

    fn read_arguments(&self, child: &Tag<'a>) -> Result<(TagArguments, usize), NotACallError> {
        let source = &self.reading.source;
        let attributes = child.attributes().ok_or(NotACallError)?;
        let attributes = attributes.into_iter().filter(|(key, _)| !OTHER_ATTRIBUTES.contains(key));
        let attributes: Vec<_> = attributes
            .map(|(key, text)| (key.to_owned(), TagText { text, is_exact: false }))
            .collect();
        if child.is_empty {
            return Ok((TagArguments::Fields(attributes), child.end));
        }
        if !attributes.is_empty() {
            let (content, end) =
                content_range(source, child, self.body.end).ok_or(NotACallError)?;
            let is_empty = source.skip_space(content.start) >= content.end;
            return if is_empty {
                Ok((TagArguments::Fields(attributes), end))
            } else {
                Err(NotACallError)
            };
        }
        let position = source.skip_markup(child.end);
        if source.byte(position) == Some(b'{')
            && let Some((args, end)) = self.read_object(position)
        {
            let close = format!("</{}>", child.full_name);
            let end = source.find_word_end(source.skip_markup(end), &close).ok_or(NotACallError)?;
            return Ok((TagArguments::Object(args), end));
        }
        let (content, end) = content_range(source, child, self.body.end).ok_or(NotACallError)?;
        let first = source.skip_space(content.start);
        let is_data = source.find_word_end(first, tags::CDATA).is_some();
        if first < content.end && source.byte(first) == Some(b'<') && !is_data {
            return Ok((TagArguments::Fields(read_fields(source, first..content.end)?), end));
        }
        Ok((TagArguments::Text(read_text(source, content).text), end))
    }

    fn read_object(&self, index: usize) -> Option<(Args, usize)> {
        let source = &self.reading.source;
        let Ok((Tree::Object(object), end)) = lenient::read(source, index) else { return None };
        let written = source.slice(index..end);
        if !written.contains('&') {
            return Some((object.into_map(), end));
        }
        let (decoded, steps) = lenient::read_whole_object(&tags::decode_entities(written));
        source.add_steps(steps);
        Some((decoded.unwrap_or(object).into_map(), end))
    }

    fn read_field(&self, child: &Tag<'a>) -> Result<(TagText, usize), NotACallError> {
        read_field(&self.reading.source, child, self.body.end)
    }

    fn read_text(&self, child: &Tag<'a>) -> Result<(TagText, usize), NotACallError> {
        let source = &self.reading.source;
        if child.is_empty {
            return Ok((TagText { text: String::new(), is_exact: true }, child.end));
        }
        let (range, end) = content_range(source, child, self.body.end).ok_or(NotACallError)?;
        Ok((read_text(source, range), end))
    }

    fn into_tool_call(self, written: Option<TagArguments>) -> Attempt {
        let Some(name) = &self.name else { return Attempt::Passed(self.body.start.max(self.end)) };
        let end = self.end;
        let Some(tool) = self.reading.resolve_tool(name) else {
            self.reading.add_missed(name, MissReason::Unknown);
            return Attempt::Read { calls: Vec::new(), end };
        };
        let args = match written {
            None => Some(Args::new()),
            Some(TagArguments::Object(args)) => Some(args),
            Some(TagArguments::Fields(fields)) => merge_fields(
                fields
                    .into_iter()
                    .map(|(key, text)| (key.clone(), to_parameter_type(text, &key, &tool))),
            ),
            Some(TagArguments::Text(text)) => {
                let (args, steps) = pairs::read_whole(&text, &tool);
                self.reading.source.add_steps(steps);
                args
            }
        };
        let Some(args) = args else { return self.report_broken_call() };
        let call = self.reading.make_call(&tool, args, CallFormat::Xml, self.start..end);
        Attempt::Read { calls: vec![call], end }
    }

    fn report_broken_call(self) -> Attempt {
        let name = self.name.unwrap_or_default();
        let is_known = self.reading.resolve_tool(&name).is_some();
        self.reading.add_missed(&name, MissReason::from_flags(is_known, !self.is_closed));
        let position = self.end.max(self.body.end);
        let is_cut = is_known && !self.is_closed;
        Attempt::Broken(BrokenCall { calls: Vec::new(), position, is_cut, is_known })
    }
}

fn has_other_attributes(tag: &Tag<'_>) -> bool {
    let attributes = tag.attributes().unwrap_or_default();
    attributes.iter().any(|(key, _)| !OTHER_ATTRIBUTES.contains(key))
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn is_argument_or_name(tag: &Tag<'_>) -> bool {
    match tag.attribute {
        Some(_) => tag.name.eq_ignore_ascii_case("parameter"),
        None => is_one_of(&NAME_TAGS, tag.name) || is_one_of(&ARGUMENT_TAGS, tag.name),
    }
}

/// Returns the range of an element's content, and the end of the element: the first closing tag,
/// after a CDATA section at the start of the content.
fn content_range(
    source: &Source<'_>,
    tag: &Tag<'_>,
    limit: usize,
) -> Option<(Range<usize>, usize)> {
    let first = source.skip_space(tag.end);
    let from = match source.find_word_end(first, tags::CDATA) {
        Some(data) if data <= limit => source.find(data..limit, "]]>")? + 3,
        _ => tag.end,
    };
    let close = format!("</{}>", tag.full_name);
    let end = source.find(from..limit.max(from), &close)?;
    Some((tag.end..end, end + close.len()))
}

fn read_text(source: &Source<'_>, range: Range<usize>) -> TagText {
    let written = source.slice(range);
    let data = written.trim().strip_prefix(tags::CDATA).and_then(|text| text.strip_suffix("]]>"));
    match data {
        Some(data) => TagText { text: data.to_owned(), is_exact: true },
        None => TagText { text: tags::decode_entities(written).into_owned(), is_exact: false },
    }
}

fn read_field(
    source: &Source<'_>,
    tag: &Tag<'_>,
    limit: usize,
) -> Result<(TagText, usize), NotACallError> {
    let attributes = tag.attributes().unwrap_or_default();
    let value = attributes.into_iter().find(|(key, _)| *key == "value").map(|(_, value)| value);
    let (written, end) = if tag.is_empty {
        (TagText { text: String::new(), is_exact: true }, tag.end)
    } else {
        let (content, end) = content_range(source, tag, limit).ok_or(NotACallError)?;
        (read_text(source, content), end)
    };
    match value {
        None => Ok((written, end)),
        Some(text) if written.text.trim().is_empty() => {
            Ok((TagText { text, is_exact: false }, end))
        }
        Some(_) => Err(NotACallError),
    }
}

fn read_fields(
    source: &Source<'_>,
    range: Range<usize>,
) -> Result<Vec<(String, TagText)>, NotACallError> {
    let mut fields = Vec::new();
    let mut position = range.start;
    while position < range.end {
        let tag = Tag::read_at(source, position)
            .filter(|tag| tag.end <= range.end)
            .ok_or(NotACallError)?;
        let key = tag.attribute.clone().unwrap_or_else(|| tag.name.to_owned());
        let (text, end) = read_field(source, &tag, range.end)?;
        fields.push((key, text));
        position = source.skip_space(end);
    }
    Ok(fields)
}

/// Returns the arguments, unless an argument has two different values.
fn merge_fields(fields: impl Iterator<Item = (String, Value)>) -> Option<Args> {
    let mut args = Args::new();
    for (key, value) in fields {
        match args.get(&key) {
            Some(written) if *written != value => return None,
            _ => args.insert(key, value),
        };
    }
    Some(args)
}

fn to_parameter_type(written: TagText, key: &str, tool: &KnownTool) -> Value {
    if written.is_exact {
        return Value::String(written.text);
    }
    let text = strip_line_breaks(&written.text);
    if tool.is_text(key) {
        return Value::from(text);
    }
    let word = text.trim();
    let is_json = word.starts_with(['{', '[']);
    let json = serde_json::from_str(word).ok().filter(|_| is_json);
    json.filter(|value| !json::is_deeper_than(value, limits::JSON_DEPTH))
        .or_else(|| word::parse_literal(word))
        .unwrap_or_else(|| Value::from(text))
}

/// Strips one line break after the opening tag and one line break before the closing tag if both
/// exist, because they belong to the layout of the tags.
fn strip_line_breaks(text: &str) -> &str {
    let inner = text.strip_prefix('\n').or_else(|| text.strip_prefix("\r\n"));
    let last = |text: &str| text.trim_end_matches([' ', '\t']).strip_suffix('\n').map(str::len);
    match inner.and_then(|inner| Some((inner, last(inner)?))) {
        Some((inner, len)) => inner[..len].strip_suffix('\r').unwrap_or(&inner[..len]),
        None => text,
    }
}
