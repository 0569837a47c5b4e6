//! Tool calls in the text of a model's reply, and the descriptions of tools for models.
//! `docs/tool-calls.md` describes the formats and the exceptions.

mod argument;
mod function;
mod known;
pub(crate) mod lenient;
mod marker;
mod pairs;
pub mod prompt;
mod sample;
mod scan;
pub mod schemas;
mod sentence;
mod shape;
mod simple;
mod source;
mod tags;
#[cfg(test)]
mod tests;
mod word;
mod xml;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use shared::{id::ToolName, limits};

pub use self::known::{CatalogNames, KnownTool, Parameter};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolCall {
    pub tool: ToolName,
    /// The arguments that the text contains. They are not checked against the schema.
    pub args: Map<String, Value>,
    pub format: CallFormat,
    pub raw: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedCall {
    pub tool: String,
    pub reason: MissReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    Unknown,
    Unreadable,
    Cut,
}

impl MissReason {
    fn from_flags(is_known: bool, is_cut: bool) -> Self {
        match (is_known, is_cut) {
            (false, _) => Self::Unknown,
            (true, true) => Self::Cut,
            (true, false) => Self::Unreadable,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    pub calls: Vec<ToolCall>,
    /// Texts that look like a call that cannot be made: the tool is unknown, or the call is
    /// unreadable or cut off. Prose that names a tool and arguments is included.
    pub missed: Vec<MissedCall>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFormat {
    /// `{"tool": "set.name", "args": {…}}`
    Json,
    /// `set.name(key=value)`
    FunctionCall,
    /// `TOOL: set.name ARGS: {…}`
    Simple,
    /// `use set.name with key=value`
    NaturalLanguage,
    /// `<tool_call>…</tool_call>`
    Xml,
    /// The JSON of `OpenAI`'s interfaces.
    Openai,
    /// The JSON of Anthropic's interface.
    Anthropic,
}

impl CallFormat {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::FunctionCall => "function_call",
            Self::Simple => "simple",
            Self::NaturalLanguage => "natural_language",
            Self::Xml => "xml",
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    fn is_loose(self) -> bool {
        matches!(self, Self::FunctionCall | Self::NaturalLanguage)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    #[error(
        "the text has {bytes} bytes; the limit for tool calls is {}: pass only the model's last \
         reply",
        limits::REPLY_BYTES
    )]
    Text { bytes: usize },
    #[error(
        "the text has more than {} tool calls; ask the model for fewer calls at a time",
        limits::REPLY_CALLS
    )]
    Calls,
}

/// Returns the calls of registered tools in `text`, in the order of their positions. The time is
/// linear in the length of the text.
pub fn parse_tool_calls(
    text: &str,
    find_tool: &dyn Fn(&str) -> Option<Arc<KnownTool>>,
) -> Result<Vec<ToolCall>, LimitExceeded> {
    read_tool_calls(text, find_tool).map(|read| read.calls)
}

/// Returns the calls like [`parse_tool_calls`], and also the texts that only look like calls.
pub fn read_tool_calls(
    text: &str,
    find_tool: &dyn Fn(&str) -> Option<Arc<KnownTool>>,
) -> Result<Calls, LimitExceeded> {
    if text.len() > limits::REPLY_BYTES {
        return Err(LimitExceeded::Text { bytes: text.len() });
    }
    let reading = source::CallReader::new(text, find_tool);
    let calls = drop_announced_calls(scan::scan_calls(&reading)?);
    Ok(Calls { calls, missed: reading.into_missed() })
}

/// Drops a call in prose or in the form of a function if the text has the same call in another
/// format, too. The prose only introduces that call.
fn drop_announced_calls(calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let is_announced = |loose: &ToolCall| {
        calls.iter().any(|call| {
            !call.format.is_loose() && call.tool == loose.tool && call.args == loose.args
        })
    };
    let keep: Vec<bool> =
        calls.iter().map(|call| !call.format.is_loose() || !is_announced(call)).collect();
    calls.into_iter().zip(keep).filter_map(|(call, keep)| keep.then_some(call)).collect()
}
