//! Tool definitions, names of tools, and errors of calls.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{ToolName, ToolSetName},
    limits,
};

/// The effect of a second call with the same parameters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// A second call has no effect, because the tool only reads.
    Read,
    /// A second call has no effect if it has the same idempotency key.
    Idempotent,
    /// A second call has a second effect. By itself, Faber repeats such a call only if the first
    /// call certainly had no effect, or the tool answered with an error.
    #[default]
    Once,
}

/// The name, schemas and effect of a tool, which planners and checks read without calling it.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub set: ToolSetName,
    pub description: String,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub effect: Effect,
    pub examples: Vec<String>,
    /// `false` for a tool that selection can find, but that no step can call.
    pub is_callable: bool,
}

impl ToolDefinition {
    /// Returns the name that always identifies this tool: `set.name`.
    ///
    /// A name that already starts with the set, such as `flow.echo`, is returned unchanged.
    pub fn qualified_name(&self) -> ToolName {
        qualified_name(&self.set, &self.name)
    }
}

/// Returns the name that always identifies a tool of a set.
pub fn qualified_name(set: &ToolSetName, name: &ToolName) -> ToolName {
    let is_qualified =
        name.as_str().strip_prefix(set.as_str()).is_some_and(|rest| rest.starts_with('.'));
    if is_qualified {
        return name.clone();
    }
    format!("{set}.{name}").parse().unwrap_or_else(|_| name.clone())
}

/// Resolves names of tools.
///
/// A name is looked up as `set.name` first, then as a name from a source, then as the part of a
/// source's name after its first dot (`echo`, `set.echo`). If several tools share a name, the name
/// identifies the earliest tool.
///
/// A name that starts with a set and a dot only identifies tools of that set. It never identifies
/// another set's tool, even if the set has no such tool.
#[derive(Clone, Debug)]
pub struct ToolNames<T> {
    /// All sets, including sets without tools.
    sets: BTreeSet<ToolSetName>,
    tools_by_name: BTreeMap<ToolName, (NameOrigin, T)>,
}

/// The origin of a name. If tools share a name, the earlier variant wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameOrigin {
    /// The name is `set.name`.
    Qualified,
    /// The name comes from the tool's source.
    Own,
    /// The name is the part of the source's name after its first dot.
    Short,
}

/// Returns the part of a name before its first dot, which can be a set.
pub fn set_prefix(name: &str) -> Option<&str> {
    name.split_once('.').map(|(set, _)| set)
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl<T: Copy + Ord> ToolNames<T> {
    pub fn for_sets(sets: impl IntoIterator<Item = ToolSetName>) -> Self {
        Self { sets: sets.into_iter().collect(), tools_by_name: BTreeMap::new() }
    }

    pub fn sets(&self) -> &BTreeSet<ToolSetName> {
        &self.sets
    }

    /// Adds all names of a tool. `value` is the position of the tool.
    ///
    /// Positions decide between tools with the same name. The order of calls does not matter.
    pub fn add_tool(&mut self, tool: &ToolDefinition, value: T) {
        self.add_qualified(tool, value);
        if !self.is_foreign(&tool.name, &tool.set) {
            self.add_name(tool.name.clone(), NameOrigin::Own, value);
        }
        let Some((_, short)) = tool.name.as_str().split_once('.') else { return };
        for name in [format!("{}.{short}", tool.set), short.to_owned()] {
            if let Ok(name) = name.parse::<ToolName>()
                && !self.is_foreign(&name, &tool.set)
            {
                self.add_name(name, NameOrigin::Short, value);
            }
        }
    }

    /// Adds only the qualified name of a tool.
    pub fn add_qualified(&mut self, tool: &ToolDefinition, value: T) {
        self.add_name(tool.qualified_name(), NameOrigin::Qualified, value);
    }

    /// Returns `true` if a name starts with a set other than `own_set`.
    fn is_foreign(&self, name: &ToolName, own_set: &ToolSetName) -> bool {
        let set = set_prefix(name.as_str()).filter(|set| *set != own_set.as_str());
        set.is_some_and(|set| self.sets.contains(set))
    }

    fn add_name(&mut self, name: ToolName, rank: NameOrigin, value: T) {
        let new = (rank, value);
        self.tools_by_name.entry(name).and_modify(|known| *known = new.min(*known)).or_insert(new);
    }

    pub fn get(&self, name: &str) -> Option<T> {
        self.find(name).map(|(_, value)| value)
    }

    /// Returns the display name of a tool: `set.name`, unless the name from the source contains a
    /// dot and identifies the same tool, such as `file_tools.glob`.
    pub fn display_name(&self, tool: &ToolDefinition) -> ToolName {
        let (own_name, qualified) = (&tool.name, tool.qualified_name());
        let is_whole = set_prefix(own_name.as_str()).is_some()
            && self
                .get(own_name.as_str())
                .is_some_and(|value| self.get(qualified.as_str()) == Some(value));
        if is_whole { own_name.clone() } else { qualified }
    }

    /// Returns the position of the tool with a name, and the origin of the name.
    pub fn find(&self, name: &str) -> Option<(NameOrigin, T)> {
        self.tools_by_name.get(name).copied()
    }
}

/// A stable error code of a step, such as `tool.failed`.
///
/// The constants are Faber's codes. `flow.fail` can use any code.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

/// Defines the constants of [`ErrorCode`] and the list of all of them.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        #[expect(missing_docs, reason = "the other names need no comment")]
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self(Cow::Borrowed($code));)*

            const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

error_codes! {
    FAILED = "tool.failed",
    TIMEOUT = "tool.timeout",
    CANCELLED = "tool.cancelled",
    UNAVAILABLE = "tool.unavailable",
    INACTIVE = "tool.inactive",
    INVALID_PARAMETERS = "tool.invalid_parameters",
    /// The output is larger than the configured limit, or than a store allows.
    OUTPUT_TOO_LARGE = "tool.output_too_large",
    /// It is unknown whether the call took effect.
    OUTCOME_UNKNOWN = "tool.outcome_unknown",
    /// A template had no value, and templates are strict.
    UNRESOLVED = "template.unresolved",
    REJECTED = "step.rejected",
    /// The value that a step should repeat for is not a list.
    NOT_A_LIST = "step.not_a_list",
    DEADLINE = "execution.deadline",
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl ErrorCode {
    pub fn custom(code: String) -> Self {
        Self(Cow::Owned(code))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the part before the first dot is a family of Faber's codes, such as
    /// `tool`.
    pub fn is_in_own_family(&self) -> bool {
        Self::ALL.iter().any(|code| code.family() == self.family())
    }

    fn family(&self) -> &str {
        self.as_str().split('.').next().unwrap_or_default()
    }

    /// Returns `true` if a retry can help. This is the only table of retryable codes.
    fn is_retryable(&self) -> bool {
        matches!(
            self.as_str(),
            "tool.failed" | "tool.timeout" | "tool.unavailable" | "tool.inactive"
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a call failed, for people and for the retry policy.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ToolError {
    pub code: ErrorCode,
    /// The message for people: the problem and the remedy.
    pub message: Arc<str>,
    /// `true` if a retry can help.
    pub retryable: bool,
    /// `true` if it is certain that the call had no effect, or that the tool answered.
    ///
    /// If it is `false` (after a timeout or a lost connection), a `Once` tool is not called again.
    #[serde(
        default = "default_definite",
        rename = "isDefinite",
        alias = "is_definite",
        skip_serializing_if = "is_true"
    )]
    pub is_definite: bool,
}

fn default_definite() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

impl ToolError {
    /// Makes a definite error whose code decides whether a retry can help.
    pub fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        let retryable = code.is_retryable();
        let message = clip_middle(message.as_ref(), limits::MESSAGE_BYTES);
        Self { code, message, retryable, is_definite: true }
    }

    /// Makes the error of a call with an unknown outcome. Adds a hint to `reason`, unless it ends
    /// with the hint already.
    pub fn outcome_unknown(reason: &str) -> Self {
        let hint = "it is unknown whether the call took effect, and it may still do so: check \
                    before you retry";
        if reason.ends_with(hint) {
            return Self::new(ErrorCode::OUTCOME_UNKNOWN, reason);
        }
        Self::new(ErrorCode::OUTCOME_UNKNOWN, format!("{reason}; {hint}"))
    }

    /// Makes the error of a tool that reported a failure.
    pub fn failed(message: impl AsRef<str>) -> Self {
        Self::new(ErrorCode::FAILED, message)
    }

    /// Marks an error after which the call may have taken effect, or may still do so.
    #[must_use]
    pub fn with_unknown_outcome(self) -> Self {
        Self { is_definite: false, ..self }
    }

    /// Returns `true` if it is unknown whether the call took effect.
    pub fn is_outcome_unknown(&self) -> bool {
        !self.is_definite || self.code == ErrorCode::OUTCOME_UNKNOWN
    }

    /// Marks an error that no retry can fix.
    #[must_use]
    pub fn without_retry(self) -> Self {
        Self { retryable: false, ..self }
    }
}

/// A report of a running call about its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The amount of finished work, in a unit of the tool. It should grow with each report.
    pub progress: f64,
    /// The total amount of work, if the tool knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// The current activity in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

impl Progress {
    /// Returns the report as logs keep it, or `None` if its amount is not finite. A long message
    /// loses its middle.
    pub fn shortened_for_log(self) -> Option<Self> {
        let message = match self.message {
            Some(text) if text.len() > limits::PROGRESS_BYTES => {
                Some(clip_middle(&text, limits::PROGRESS_BYTES))
            }
            short => short,
        };
        let total = self.total.filter(|total| total.is_finite());
        self.progress.is_finite().then_some(Self { progress: self.progress, total, message })
    }
}

/// Drops the middle of a text that is longer than `max_bytes` bytes.
fn clip_middle(text: &str, max_bytes: usize) -> Arc<str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let head = text.floor_char_boundary(max_bytes / 4);
    let tail = text.ceil_char_boundary(text.len() - max_bytes / 2);
    format!("{} … {}", &text[..head], &text[tail..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_keep_their_head_and_tail() {
        let text = format!("head{}tail", "ä".repeat(limits::MESSAGE_BYTES));
        let error = ToolError::failed(text);
        assert!(error.message.starts_with("head") && error.message.ends_with("tail"));
        assert!(error.message.len() <= limits::MESSAGE_BYTES);
    }

    /// If a step executes a plan, the error of the inner step already has the hint when the outer
    /// step adds the hint.
    #[test]
    fn the_hint_for_unknown_outcomes_is_added_once() {
        let once = ToolError::outcome_unknown("it broke off");
        let twice = ToolError::outcome_unknown(&once.message);
        assert_eq!(twice, once);
        let expected = "tool.outcome_unknown: it broke off; it is unknown whether the call took \
                        effect, and it may still do so: check before you retry";
        assert_eq!(once.to_string(), expected);
        let long = ToolError::outcome_unknown(&"x".repeat(2 * limits::MESSAGE_BYTES));
        assert_eq!(ToolError::outcome_unknown(&long.message), long);
    }

    #[test]
    fn a_progress_report_is_shortened_for_the_log() {
        let kept = |progress, total: Option<f64>, message: Option<&str>| {
            Progress { progress, total, message: message.map(Into::into) }.shortened_for_log()
        };
        let whole = kept(1.0, Some(2.0), Some("half")).unwrap();
        assert_eq!(
            serde_json::to_string(&whole).unwrap(),
            r#"{"progress":1.0,"total":2.0,"message":"half"}"#
        );
        assert_eq!(kept(0.5, Some(f64::INFINITY), None), kept(0.5, None, None));
        assert_eq!(kept(f64::NAN, None, Some("x")), None);
        let text = format!("head{}tail", "ä".repeat(limits::PROGRESS_BYTES));
        let message = kept(1.0, None, Some(&text)).unwrap().message.unwrap();
        assert!(message.starts_with("head") && message.ends_with("tail"));
        assert!(message.len() <= limits::PROGRESS_BYTES);
    }

    fn tool(set: &str, name: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.parse().unwrap(),
            set: set.parse().unwrap(),
            description: String::new(),
            input_schema: Value::Null,
            output_schema: None,
            effect: Effect::Read,
            examples: Vec::new(),
            is_callable: true,
        }
    }

    #[test]
    fn a_shared_name_means_the_tool_of_the_earliest_set() {
        let tools = [
            tool("files", "file_tools.glob"),
            tool("a", "glob"),
            tool("b", "glob"),
            tool("b", "a.glob"),
            tool("flow", "flow.echo"),
        ];
        let meanings = [
            ("files.file_tools.glob", 0),
            ("file_tools.glob", 0),
            ("files.glob", 0),
            ("a.glob", 1),
            ("glob", 1),
            ("b.glob", 2),
            ("b.a.glob", 3),
            ("flow.echo", 4),
            ("echo", 4),
        ];
        let forwards: Vec<usize> = (0..tools.len()).collect();
        let backwards: Vec<usize> = forwards.iter().rev().copied().collect();
        for order in [forwards, backwards, vec![2, 0, 4, 1, 3]] {
            let mut names = ToolNames::for_sets([]);
            for index in &order {
                names.add_tool(&tools[*index], *index);
            }
            for (name, index) in meanings {
                assert_eq!(names.get(name), Some(index), "{name} of {order:?}");
            }
            assert_eq!(names.get("nothing"), None);
        }
    }

    #[test]
    fn a_set_name_before_a_dot_means_only_tools_of_this_set() {
        let tools = [tool("m2", "m.b"), tool("m2", "x.m.c"), tool("m", "x.d"), tool("n", "m.d")];
        let meanings = |sets: &[&str]| {
            let mut names = ToolNames::for_sets(sets.iter().map(|set| set.parse().unwrap()));
            for (index, tool) in tools.iter().enumerate() {
                names.add_tool(tool, index);
            }
            ["m.b", "m2.m.b", "m.c", "m.d", "b"].map(|name| names.get(name))
        };
        assert_eq!(meanings(&["m2", "m", "n"]), [None, Some(0), None, Some(2), Some(0)]);
        // If no set is called `m`, the name `m.b` is a name like any other.
        assert_eq!(meanings(&["m2", "n"])[..3], [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_qualified_name_repeats_the_set_name_only_once() {
        let mut tool = tool("flow", "flow.echo");
        assert_eq!(tool.qualified_name().as_str(), "flow.echo");
        tool.name = "echo".parse().unwrap();
        assert_eq!(tool.qualified_name().as_str(), "flow.echo");
        tool.name = "flower".parse().unwrap();
        assert_eq!(tool.qualified_name().as_str(), "flow.flower");
    }
}
