//! `<tool_call>…</tool_call>`, in all the ways in which models fill it.

use std::ops::Range;

use serde_json::Value;
use shared::{json, limits};

use super::{
    CallFormat, KnownTool,
    argument::{self, Args},
    lenient::{self, Tree},
    shape,
    source::{Attempt, Broken, Reading, Source},
    tags::{self, Kind, Tag, Tags},
    word,
};

/// Children that have the tool's name.
const NAMES: [&str; 5] = ["tool", "name", "tool_name", "function", "function_name"];
/// Children that have the arguments.
const ARGS: [&str; 6] = ["args", "arguments", "parameters", "params", "input", "tool_input"];

/// Reads the element that begins at `at`, if it is one that matters.
pub(super) fn read(reading: &Reading<'_>, tags: &Tags, at: usize) -> Attempt {
    let source = &reading.source;
    let Some(tag) = Tag::at(source, at) else { return Attempt::Passed(at + 1) };
    let close = tags.close(at);
    match (tag.kind(), close) {
        (Kind::PassedOver, Some(close)) => Attempt::Read { calls: Vec::new(), end: close.end },
        (Kind::PassedOver, None) => Attempt::Passed(tag.end),
        (Kind::Other, _) => Attempt::Passed(at + 1),
        (Kind::Call, _) if tag.is_empty => Attempt::Passed(tag.end),
        (Kind::Call, close) => {
            let open_end = tags.next(at).unwrap_or(source.len()).max(tag.end);
            let close = close.filter(|it| it.start >= tag.end);
            let is_closed = close.is_some();
            let close = close.unwrap_or(open_end..open_end);
            let body = tag.end..close.start;
            let end = close.end;
            Element {
                reading,
                start: at,
                name: tag.attribute,
                body,
                end,
                is_closed,
                is_whole: is_closed,
            }
            .read()
        }
    }
}

/// The text of an argument.
struct Text {
    text: String,
    /// Whether it is given as it is: it was CDATA.
    is_exact: bool,
}

/// Arguments, before it is known which tool they are for.
enum Given {
    Object(Args),
    Fields(Vec<(String, Text)>),
    Text(String),
}

/// The element has something in it that does not belong there.
struct Misfit;

struct Element<'r, 'a> {
    reading: &'r Reading<'a>,
    start: usize,
    name: Option<String>,
    body: Range<usize>,
    end: usize,
    is_closed: bool,
    /// Whether nothing of it can be missing: it is closed, or its arguments are.
    is_whole: bool,
}

impl<'a> Element<'_, 'a> {
    fn read(mut self) -> Attempt {
        let source = &self.reading.source;
        let mut at = source.skip_markup(self.body.start);
        let is_object = source.byte(at) == Some(b'{');
        if (is_object || source.byte(at) == Some(b'[')) && self.name.is_none() {
            return self.json(at);
        }
        let is_marked = self.name.is_some();
        let mut given = None;
        if is_object {
            match self.given_object(at) {
                Some((args, end)) => {
                    (given, at, self.is_whole) = (Some(Given::Object(args)), end, true);
                }
                None => return self.broken(),
            }
        }
        let mut is_first = true;
        loop {
            let next = source.skip_markup(at);
            if next >= self.body.end {
                break;
            }
            let child = Tag::at(source, next).filter(|it| it.end <= self.body.end);
            let Some(child) = child.filter(is_part) else {
                if is_first && !is_marked {
                    return Attempt::Passed(self.body.start);
                }
                if !self.is_closed && self.is_whole && self.name.is_some() {
                    break;
                }
                return self.broken();
            };
            match self.child(&child, &mut given) {
                Ok(end) => at = end,
                Err(Misfit) => return self.broken(),
            }
            is_first = false;
        }
        if !self.is_whole {
            return self.broken();
        }
        if !self.is_closed {
            self.end = at;
        }
        self.call(given)
    }

    /// Reads `{"name": …, "arguments": …}`, as Hermes and Qwen write it, or a list of those.
    fn json(self, at: usize) -> Attempt {
        let source = &self.reading.source;
        match lenient::read(source, at) {
            Ok((Tree::Object(object), end)) => {
                let close = source.skip_markup(end);
                let is_closed = close == self.body.end;
                let end = if is_closed { self.end.max(end) } else { end };
                let call = shape::in_tags(self.reading, object, self.start..end);
                Attempt::Read { calls: call.into_iter().collect(), end }
            }
            Ok((Tree::List(items), end)) => {
                let calls = items.into_iter().filter_map(|it| match it {
                    Tree::Object(object) => {
                        let span = object.span.clone();
                        shape::in_tags(self.reading, object, span)
                    }
                    _ => None,
                });
                Attempt::Read { calls: calls.collect(), end }
            }
            Ok((_, end)) => Attempt::Passed(end),
            Err(stuck) => {
                let is_known = shape::is_known_open(self.reading, stuck.open);
                let at = if self.is_closed { stuck.at.max(self.end) } else { stuck.at };
                Attempt::Broken(Broken { calls: Vec::new(), at, is_cut: stuck.is_cut, is_known })
            }
        }
    }

    /// Reads a child, and returns where it ends.
    fn child(&mut self, child: &Tag<'a>, given: &mut Option<Given>) -> Result<usize, Misfit> {
        if let Some(key) = &child.attribute {
            let (text, end) = self.text(child)?;
            let field = (key.clone(), text);
            match given {
                Some(Given::Fields(fields)) => fields.push(field),
                _ => *given = Some(Given::Fields(vec![field])),
            }
            return Ok(end);
        }
        if is_one_of(&NAMES, child.name) {
            let (text, end) = self.text(child)?;
            self.name = Some(text.text.trim().to_owned());
            return Ok(end);
        }
        let (args, end) = self.arguments(child)?;
        *given = Some(args);
        self.is_whole = true;
        Ok(end)
    }

    fn arguments(&self, child: &Tag<'a>) -> Result<(Given, usize), Misfit> {
        let source = &self.reading.source;
        if child.is_empty {
            return Ok((Given::Fields(Vec::new()), child.end));
        }
        let at = source.skip_markup(child.end);
        if source.byte(at) == Some(b'{')
            && let Some((args, end)) = self.given_object(at)
        {
            let close = format!("</{}>", child.full);
            let end = source.word_at(source.skip_markup(end), &close).ok_or(Misfit)?;
            return Ok((Given::Object(args), end));
        }
        let (content, end) = content(source, child, self.body.end).ok_or(Misfit)?;
        let first = source.skip_space(content.start);
        let is_data = source.word_at(first, tags::CDATA).is_some();
        if first < content.end && source.byte(first) == Some(b'<') && !is_data {
            return Ok((Given::Fields(fields(source, first..content.end)?), end));
        }
        Ok((Given::Text(text(source, content).text), end))
    }

    /// Reads the object at `at` as arguments; entities in it are decoded, for it is text in XML.
    fn given_object(&self, at: usize) -> Option<(Args, usize)> {
        let source = &self.reading.source;
        let Ok((Tree::Object(object), end)) = lenient::read(source, at) else { return None };
        let written = source.slice(at..end);
        if !written.contains('&') {
            return Some((object.into_map(), end));
        }
        let (decoded, steps) = lenient::whole_object(&tags::decoded(written));
        source.add_steps(steps);
        Some((decoded.unwrap_or(object).into_map(), end))
    }

    fn text(&self, child: &Tag<'a>) -> Result<(Text, usize), Misfit> {
        let source = &self.reading.source;
        if child.is_empty {
            return Ok((Text { text: String::new(), is_exact: true }, child.end));
        }
        let (range, end) = content(source, child, self.body.end).ok_or(Misfit)?;
        Ok((text(source, range), end))
    }

    fn call(self, given: Option<Given>) -> Attempt {
        let Some(name) = &self.name else { return Attempt::Passed(self.body.start.max(self.end)) };
        let end = self.end;
        let Some(tool) = self.reading.tool(name) else {
            return Attempt::Read { calls: Vec::new(), end };
        };
        let args = match given {
            None => Some(Args::new()),
            Some(Given::Object(args)) => Some(args),
            Some(Given::Fields(fields)) => Some(
                fields.into_iter().map(|(key, it)| (key.clone(), value(it, &key, &tool))).collect(),
            ),
            Some(Given::Text(text)) => {
                let (args, steps) = argument::whole(&text, &tool);
                self.reading.source.add_steps(steps);
                args
            }
        };
        let Some(args) = args else { return self.broken() };
        let call = self.reading.call(&tool, args, CallFormat::Xml, self.start..end);
        Attempt::Read { calls: vec![call], end }
    }

    fn broken(self) -> Attempt {
        let is_known = self.name.is_some_and(|it| self.reading.tool(&it).is_some());
        let at = self.end.max(self.body.end);
        let is_cut = is_known && !self.is_closed;
        Attempt::Broken(Broken { calls: Vec::new(), at, is_cut, is_known })
    }
}

fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Returns whether a child belongs to a call.
fn is_part(tag: &Tag<'_>) -> bool {
    match tag.attribute {
        Some(_) => tag.name.eq_ignore_ascii_case("parameter"),
        None => is_one_of(&NAMES, tag.name) || is_one_of(&ARGS, tag.name),
    }
}

/// Returns what is in an element, and where it ends: at the first closing tag outside CDATA.
fn content(source: &Source<'_>, tag: &Tag<'_>, limit: usize) -> Option<(Range<usize>, usize)> {
    let first = source.skip_space(tag.end);
    let from = match source.word_at(first, tags::CDATA) {
        Some(data) if data <= limit => source.find(data..limit, "]]>")? + 3,
        _ => tag.end,
    };
    let close = format!("</{}>", tag.full);
    let end = source.find(from..limit.max(from), &close)?;
    Some((tag.end..end, end + close.len()))
}

fn text(source: &Source<'_>, range: Range<usize>) -> Text {
    let written = source.slice(range);
    let data = written.trim().strip_prefix(tags::CDATA).and_then(|it| it.strip_suffix("]]>"));
    match data {
        Some(data) => Text { text: data.to_owned(), is_exact: true },
        None => Text { text: tags::decoded(written).into_owned(), is_exact: false },
    }
}

/// Reads `<key>value</key>` again and again.
fn fields(source: &Source<'_>, range: Range<usize>) -> Result<Vec<(String, Text)>, Misfit> {
    let mut fields = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let tag = Tag::at(source, at).filter(|it| it.end <= range.end).ok_or(Misfit)?;
        let key = tag.attribute.clone().unwrap_or_else(|| tag.name.to_owned());
        if tag.is_empty {
            fields.push((key, Text { text: String::new(), is_exact: true }));
            at = tag.end;
        } else {
            let (content, end) = content(source, &tag, range.end).ok_or(Misfit)?;
            fields.push((key, text(source, content)));
            at = end;
        }
        at = source.skip_space(at);
    }
    Ok(fields)
}

/// Returns what a text means as an argument of that name.
fn value(given: Text, key: &str, tool: &KnownTool) -> Value {
    if given.is_exact {
        return Value::String(given.text);
    }
    let text = given.text;
    let text = if text.contains('\n') {
        let text = text.strip_prefix('\n').or_else(|| text.strip_prefix("\r\n")).unwrap_or(&text);
        text.strip_suffix('\n').unwrap_or(text)
    } else {
        text.trim()
    };
    if tool.is_text(key) {
        return Value::from(text);
    }
    let is_json = text.trim_start().starts_with(['{', '[']);
    let json = serde_json::from_str(text).ok().filter(|_| is_json);
    json.filter(|it| !json::is_deeper_than(it, limits::JSON_DEPTH))
        .unwrap_or_else(|| word::meaning(text))
}
