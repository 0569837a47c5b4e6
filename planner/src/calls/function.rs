use serde_json::Value;

use super::{
    CallFormat, KnownTool,
    argument::{self, Args, ArgumentValue},
    marker, pairs,
    source::{Attempt, CallReader, Comments, MissReason, Source},
    word,
};

/// After one of these words, a name is a definition and not a call.
const DEFINITION_WORDS: [&str; 3] = ["def", "fn", "func"];
/// After one of these words, a name is a definition only if a body follows, because people also
/// write the words before calls.
const POSSIBLE_DEFINITION_WORDS: [&str; 2] = ["function", "class"];

const CONTINUATION_WORDS: [&str; 6] = ["with", "using", "passing", "where", "given", "except"];

enum ArgumentsError {
    At(usize),
    Cut,
}

pub(super) fn read(reading: &CallReader<'_>, start: usize, open: usize) -> Attempt {
    let source = &reading.source;
    let Some(tool) = reading.resolve_tool(source.slice(start..open)) else {
        return Attempt::Passed(open + 1);
    };
    if is_after_word(source, start, &DEFINITION_WORDS) {
        return Attempt::Passed(open + 1);
    }
    let arguments = Arguments { source, tool: &tool, args: Args::new(), positional: Vec::new() };
    match arguments.read(open + 1) {
        Ok((_, end))
            if is_after_word(source, start, &POSSIBLE_DEFINITION_WORDS)
                && has_body(source, end) =>
        {
            Attempt::Passed(open + 1)
        }
        Ok((args, end)) if is_continued(source, end, &tool, args.is_empty()) => {
            reading.add_missed(tool.name.as_str(), MissReason::Unreadable);
            Attempt::Passed(end)
        }
        Ok((args, end)) => {
            let call = reading.make_call(&tool, args, CallFormat::FunctionCall, start..end);
            Attempt::Read { calls: vec![call], end }
        }
        Err(ArgumentsError::At(position)) => Attempt::Passed(position.max(open + 1)),
        Err(ArgumentsError::Cut) => Attempt::at_end_of_text(reading, &tool),
    }
}

/// Returns whether more arguments follow the brackets that end at `end`: `set.name() with
/// key=value`.
fn is_continued(source: &Source<'_>, end: usize, tool: &KnownTool, is_empty: bool) -> bool {
    if matches!(source.byte(end), Some(b'(' | b'[' | b'{')) {
        return true;
    }
    let position = source.skip_marks(source.skip(source.skip_marks(end), |byte| byte == b','));
    let is_object = |index: usize| source.byte(index) == Some(b'{');
    let with = CONTINUATION_WORDS.iter().find_map(|word| source.find_word_end(position, word));
    let is_with = with.is_some_and(|word| {
        let next = source.skip_markup(word);
        next > word
            && (is_empty || argument::has_parameter_at(source, next, tool) || is_object(next))
    });
    is_with
        || is_empty && is_object(position)
        || pairs::has_next_pair(source, source.skip_marks(end), tool)
        || marker::argument_marker_end(source, marker::skip_layout(source, end)).is_some()
}

fn has_body(source: &Source<'_>, end: usize) -> bool {
    matches!(source.byte(source.skip_space(end)), Some(b'{' | b':'))
}

fn is_after_word(source: &Source<'_>, start: usize, words: &[&str]) -> bool {
    words.iter().any(|word| {
        let Some(position) = start.checked_sub(word.len() + 1) else { return false };
        source.find_word_end(position, word).is_some()
            && source.byte(position + word.len()) == Some(b' ')
            && position
                .checked_sub(1)
                .and_then(|before| source.byte(before))
                .is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')
    })
}

struct Arguments<'s, 'a> {
    source: &'s Source<'a>,
    tool: &'s KnownTool,
    args: Args,
    positional: Vec<Value>,
}

impl<'a> Arguments<'_, 'a> {
    fn read(mut self, mut index: usize) -> Result<(Args, usize), ArgumentsError> {
        loop {
            index = self.skip_space(index)?;
            if self.source.byte(index) == Some(b')') {
                break;
            }
            index = self.read_argument(index)?;
        }
        let end = index + 1;
        self.place_positional().map(|args| (args, end)).ok_or(ArgumentsError::At(end))
    }

    fn read_argument(&mut self, index: usize) -> Result<usize, ArgumentsError> {
        let name = self.read_name(index)?;
        let value_at = name.map_or(index, |name| name.2);
        let (value, end, is_bare) = match argument::read_quoted(self.source, value_at) {
            Some(ArgumentValue::Value(value, end)) => (value, end, false),
            Some(ArgumentValue::None(position)) => return Err(ArgumentsError::At(position)),
            Some(ArgumentValue::Cut) => return Err(ArgumentsError::Cut),
            None => self.read_unquoted(value_at, name.map(|name| name.0))?,
        };
        // A value that begins with a quote may lack its closing quote, and would then include other
        // text.
        let quote = word::find_quote(self.source, value_at).filter(|_| !is_bare);
        let word = value.as_str().filter(|_| is_bare);
        match name {
            // The brackets contain a signature and no arguments, because a signature has `name:
            // type` and plain names.
            Some((_, b':', _)) if word.is_some() => return Err(ArgumentsError::At(end)),
            None if word.is_some_and(is_identifier) => return Err(ArgumentsError::At(end)),
            Some((key, ..)) => {
                self.args.insert(key.to_owned(), value);
            }
            None => self.positional.push(value),
        }
        let next = self.skip_space(end)?;
        match self.source.byte(next) {
            Some(b',') => Ok(next + 1),
            Some(b')') => Ok(next),
            Some(_) => Err(ArgumentsError::At(quote.map_or(next, |(quote, _)| quote + 1))),
            None => Err(ArgumentsError::Cut),
        }
    }

    fn read_name(&self, index: usize) -> Result<Option<(&'a str, u8, usize)>, ArgumentsError> {
        let Some(end) = self.source.find_key_end(index) else { return Ok(None) };
        let sign_at = self.source.skip_space(end);
        let Some(sign @ (b'=' | b':')) = self.source.byte(sign_at) else { return Ok(None) };
        if self.source.byte(sign_at + 1) == Some(b'=') {
            return Ok(None);
        }
        let blank = self.source.skip_space(sign_at + 1);
        let value = if self.source.begins_path(blank) {
            blank
        } else {
            self.source.skip_comments(blank, Comments::Slashes).map_err(ArgumentsError::At)?
        };
        Ok(Some((self.source.slice(index..end), sign, value)))
    }

    fn read_unquoted(
        &self,
        index: usize,
        key: Option<&str>,
    ) -> Result<(Value, usize, bool), ArgumentsError> {
        let end = word::find_word_end(self.source, index, b",)").map_err(ArgumentsError::At)?;
        let text = self.source.slice(index..end).trim();
        if text.is_empty() || text.starts_with("...") || text.starts_with('…') {
            return Err(ArgumentsError::At(end));
        }
        let key = key.or_else(|| {
            self.tool.parameters.get(self.positional.len()).map(|parameter| &*parameter.name)
        });
        let value = match key {
            Some(key) => argument::parse_word(self.tool, key, text),
            None => word::parse_word(text),
        };
        Ok((value, end, true))
    }

    /// Assigns positional values to the parameters, in the order of the schema. A single object
    /// with known names has the arguments themselves.
    fn place_positional(mut self) -> Option<Args> {
        let is_object =
            matches!(&*self.positional, [Value::Object(object)] if self.has_all_parameters(object));
        if is_object && self.args.is_empty() {
            return match self.positional.pop() {
                Some(Value::Object(args)) => Some(args),
                _ => None,
            };
        }
        if self.positional.len() > self.tool.parameters.len() {
            return None;
        }
        let mut args = Args::new();
        for (parameter, value) in self.tool.parameters.iter().zip(self.positional) {
            args.insert(parameter.name.clone(), value);
        }
        let is_given_twice = self.args.keys().any(|name| args.contains_key(name));
        args.extend(self.args);
        (!is_given_twice).then_some(args)
    }

    fn has_all_parameters(&self, object: &Args) -> bool {
        self.tool.parameters.is_empty() || object.keys().all(|name| self.tool.has_parameter(name))
    }

    fn skip_space(&self, index: usize) -> Result<usize, ArgumentsError> {
        self.source.skip_comments(index, Comments::All).map_err(ArgumentsError::At)
    }
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|character: char| character.is_alphabetic() || character == '_')
        && word
            .chars()
            .all(|character| character.is_alphanumeric() || matches!(character, '_' | ' ' | '='))
}
