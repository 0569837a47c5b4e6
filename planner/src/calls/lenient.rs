//! JSON as models write it: single quotes, bare words, trailing commas, comments, Python literals.

use std::ops::Range;

use serde_json::{Map, Value};
use shared::limits;

use super::{
    source::{Comments, Source},
    word,
};

#[derive(Debug)]
pub(super) enum Tree {
    Leaf(Value),
    List(Vec<Tree>),
    Object(Object),
}

#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) span: Range<usize>,
    pub(super) fields: Vec<(String, Tree)>,
}

#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) position: usize,
    pub(super) resume: usize,
    pub(super) is_cut: bool,
    pub(super) open: Vec<OpenValue>,
}

#[derive(Debug)]
pub(super) enum OpenValue {
    List(Vec<Tree>),
    Object { object: Object, key: Option<String> },
}

impl Tree {
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(object) => Value::Object(object.into_map()),
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Leaf(value) => value.as_str(),
            _ => None,
        }
    }
}

impl Object {
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.fields.into_iter().map(|(key, tree)| (key, tree.into_value())).collect()
    }

    pub(super) fn get(&self, names: &[&str]) -> Option<&Tree> {
        let is_meant = |key: &str| names.iter().any(|name| key.eq_ignore_ascii_case(name));
        self.fields.iter().rev().find(|(key, _)| is_meant(key)).map(|(_, tree)| tree)
    }
}

pub(super) fn read(source: &Source<'_>, index: usize) -> Result<(Tree, usize), SyntaxError> {
    let mut reader = Reader { source, position: index, open: Vec::new(), last_string: None };
    match reader.read() {
        Ok(tree) => Ok((tree, reader.position)),
        Err(error) => Err(reader.into_error(error)),
    }
}

pub(super) fn read_whole_object(text: &str) -> (Option<Object>, usize) {
    let source = Source::new(text);
    let start = source.skip_markup(0);
    let object = match source.byte(start).map(|_| read(&source, start)) {
        Some(Ok((Tree::Object(object), end))) => {
            (source.skip_markup(end) == text.len()).then_some(object)
        }
        _ => None,
    };
    (object, source.steps())
}

#[derive(Clone, Copy)]
enum ReadError {
    AtPosition,
    AtByte(usize),
    Endless(usize),
}

struct Reader<'s, 'a> {
    source: &'s Source<'a>,
    position: usize,
    open: Vec<OpenValue>,
    last_string: Option<usize>,
}

impl Reader<'_, '_> {
    fn read(&mut self) -> Result<Tree, ReadError> {
        self.begin_value()?;
        loop {
            self.skip_comments(Comments::All)?;
            let is_object = matches!(self.open.last(), Some(OpenValue::Object { .. }));
            let close = if is_object { b'}' } else { b']' };
            let next = self.source.byte(self.position);
            if next == Some(close) {
                if let Some(tree) = self.end_value()? {
                    return Ok(tree);
                }
                continue;
            }
            if is_object {
                self.read_key()?;
            }
            if matches!(self.source.byte(self.position), Some(b'{' | b'[')) {
                self.begin_value()?;
            } else {
                let leaf = self.read_leaf()?;
                self.push_value(leaf)?;
            }
        }
    }

    fn begin_value(&mut self) -> Result<(), ReadError> {
        if self.open.len() >= limits::JSON_DEPTH {
            return Err(ReadError::AtPosition);
        }
        self.open.push(match self.source.byte(self.position) {
            Some(b'{') => OpenValue::Object {
                object: Object { span: self.position..self.position, fields: Vec::new() },
                key: None,
            },
            Some(b'[') => OpenValue::List(Vec::new()),
            _ => return Err(ReadError::AtPosition),
        });
        self.skip_byte();
        Ok(())
    }

    /// Ends the innermost list or object. Returns the list or object if it is the outermost.
    fn end_value(&mut self) -> Result<Option<Tree>, ReadError> {
        self.skip_byte();
        let Some(ended) = self.open.pop() else { return Err(ReadError::AtPosition) };
        let tree = match ended {
            OpenValue::List(items) => Tree::List(items),
            OpenValue::Object { mut object, .. } => {
                object.span.end = self.position;
                Tree::Object(object)
            }
        };
        if self.open.is_empty() {
            return Ok(Some(tree));
        }
        self.push_value(tree)?;
        Ok(None)
    }

    fn push_value(&mut self, tree: Tree) -> Result<(), ReadError> {
        let close = match self.open.last_mut() {
            Some(OpenValue::List(items)) => {
                items.push(tree);
                b']'
            }
            Some(OpenValue::Object { object, key }) => {
                object.fields.push((key.take().unwrap_or_default(), tree));
                b'}'
            }
            None => return Err(ReadError::AtPosition),
        };
        self.skip_comments(Comments::All)?;
        match self.source.byte(self.position) {
            Some(b',') => self.skip_byte(),
            Some(byte) if byte == close => {}
            _ => return Err(ReadError::AtPosition),
        }
        Ok(())
    }

    fn read_key(&mut self) -> Result<(), ReadError> {
        let name = if let Some(name) = self.read_string()? {
            name
        } else {
            let end = self.source.find_key_end(self.position).ok_or(ReadError::AtPosition)?;
            let name = self.source.slice(self.position..end).to_owned();
            self.position = end;
            name
        };
        if let Some(OpenValue::Object { key, .. }) = self.open.last_mut() {
            *key = Some(name);
        }
        self.skip_comments(Comments::All)?;
        match (self.source.byte(self.position), self.source.byte(self.position + 1)) {
            (Some(b'='), Some(b'>')) => self.position += 1,
            (Some(b':'), _) => {}
            (Some(b'='), next) if next != Some(b'=') => {}
            _ => return Err(ReadError::AtPosition),
        }
        self.skip_byte();
        let blank = self.source.skip_space(self.position);
        if self.source.begins_path(blank) {
            self.position = blank;
            return Ok(());
        }
        self.skip_comments(Comments::Slashes)
    }

    fn read_leaf(&mut self) -> Result<Tree, ReadError> {
        if let Some(text) = self.read_string()? {
            return Ok(Tree::Leaf(Value::String(text)));
        }
        let end =
            word::find_word_end(self.source, self.position, b",}]").map_err(ReadError::AtByte)?;
        let text = self.source.slice(self.position..end).trim();
        if text.is_empty() {
            return Err(ReadError::AtPosition);
        }
        self.position = end;
        Ok(Tree::Leaf(word::parse_word(text)))
    }

    fn read_string(&mut self) -> Result<Option<String>, ReadError> {
        let Some((quote, is_raw)) = word::find_quote(self.source, self.position) else {
            return Ok(None);
        };
        let (text, end) =
            word::read_string(self.source, quote, is_raw).ok_or(ReadError::Endless(quote))?;
        if word::is_expression(self.source, self.position, &text) {
            return Err(ReadError::AtPosition);
        }
        self.last_string = Some(quote);
        self.position = end;
        Ok(Some(text))
    }

    fn skip_byte(&mut self) {
        self.position += 1;
        self.last_string = None;
    }

    fn skip_comments(&mut self, comments: Comments) -> Result<(), ReadError> {
        self.position =
            self.source.skip_comments(self.position, comments).map_err(ReadError::Endless)?;
        Ok(())
    }

    fn into_error(self, error: ReadError) -> SyntaxError {
        let (position, resume) = match error {
            ReadError::AtPosition => {
                (self.position, self.last_string.map_or(self.position, |start| start + 1))
            }
            ReadError::AtByte(position) => (position, position),
            ReadError::Endless(position) => (self.source.len(), position + 1),
        };
        SyntaxError { position, resume, is_cut: position >= self.source.len(), open: self.open }
    }
}

/// Returns the lists and objects in a text, in order, without lists and objects inside other ones.
/// The time is linear in the length of the text.
pub(crate) fn read_all(text: &str) -> Vec<Value> {
    let source = Source::new(text);
    let (mut found, mut position) = (Vec::new(), 0);
    while position < source.len() {
        position = source.skip(position, |byte| byte != b'{' && byte != b'[');
        if position >= source.len() {
            break;
        }
        position = match read(&source, position) {
            Ok((tree, end)) => {
                found.push(tree.into_value());
                end.max(position + 1)
            }
            Err(stuck) => stuck.resume.max(position + 1),
        };
    }
    found
}
