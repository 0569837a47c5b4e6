//! What a tool is, and how a call of one can fail.

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

/// What a second call of a tool does.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing: the tool only looks.
    Read,
    /// The same as the first, under the same key.
    Idempotent,
    /// Something new. Such a call is never made twice on a guess.
    #[default]
    Once,
}

/// What a tool says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name that its source gives it.
    pub name: ToolName,
    /// The toolset it belongs to.
    pub set: ToolSetName,
    /// What it does, in words.
    pub description: String,
    /// The JSON Schema of its parameters.
    pub input_schema: Value,
    /// The JSON Schema of its output, where it says.
    pub output_schema: Option<Value>,
    /// What a second call does.
    pub effect: Effect,
    /// Sentences that people would say when they want it.
    pub examples: Vec<String>,
    /// Whether it can be called; one that cannot is known for selection only.
    pub is_callable: bool,
}

impl ToolDefinition {
    /// Returns the name that always means this tool: `set.name`.
    ///
    /// A tool whose own name begins with its set's (`flow.echo`) is not named twice.
    pub fn qualified(&self) -> ToolName {
        qualified(&self.set, &self.name)
    }
}

/// Returns the name that always means a tool of a set.
pub fn qualified(set: &ToolSetName, name: &ToolName) -> ToolName {
    let is_qualified =
        name.as_str().strip_prefix(set.as_str()).is_some_and(|rest| rest.starts_with('.'));
    if is_qualified {
        return name.clone();
    }
    format!("{set}.{name}").parse().unwrap_or_else(|_| name.clone())
}

/// What every name means: `set.name` first, then the name that its source gives a tool, then what
/// is left of that behind its first dot (`echo`, `set.echo`). Where several have a name the
/// earliest does. What begins with the name of a set and a dot means a tool of that set or nothing:
/// `set.name` is never another set's, not even while `set` has no such tool.
#[derive(Clone, Debug)]
pub struct Names<T> {
    /// Every set that there is, also those without tools.
    sets: BTreeSet<ToolSetName>,
    meanings: BTreeMap<ToolName, (Rank, T)>,
}

/// How a tool comes by a name; what is less wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It is `set.name`, which always means it.
    Qualified,
    /// Its source gives it that name.
    Own,
    /// It is what is left of that behind its first dot.
    Short,
}

/// Returns the part of a name before its first dot, which may be that of a set.
pub fn prefix(name: &str) -> Option<&str> {
    name.split_once('.').map(|(set, _)| set)
}

impl<T: Copy + Ord> Names<T> {
    /// Makes the names of the tools of these sets; no tools yet.
    pub fn of(sets: impl IntoIterator<Item = ToolSetName>) -> Self {
        Self { sets: sets.into_iter().collect(), meanings: BTreeMap::new() }
    }

    /// Returns the sets.
    pub fn sets(&self) -> &BTreeSet<ToolSetName> {
        &self.sets
    }

    /// Adds the names of a tool that is `at` its place. The order in which tools are added does not
    /// matter; where they are does.
    pub fn add(&mut self, tool: &ToolDefinition, at: T) {
        self.add_qualified(tool, at);
        if !self.is_foreign(&tool.name, &tool.set) {
            self.put(tool.name.clone(), (Rank::Own, at));
        }
        let Some((_, short)) = tool.name.as_str().split_once('.') else { return };
        for name in [format!("{}.{short}", tool.set), short.to_owned()] {
            if let Ok(name) = name.parse::<ToolName>()
                && !self.is_foreign(&name, &tool.set)
            {
                self.put(name, (Rank::Short, at));
            }
        }
    }

    /// Adds only the name of a tool that always means it.
    pub fn add_qualified(&mut self, tool: &ToolDefinition, at: T) {
        self.put(tool.qualified(), (Rank::Qualified, at));
    }

    /// Returns whether a name begins with that of another set than `own`.
    fn is_foreign(&self, name: &ToolName, own: &ToolSetName) -> bool {
        let set = prefix(name.as_str()).filter(|it| *it != own.as_str());
        set.is_some_and(|it| self.sets.contains(it))
    }

    fn put(&mut self, name: ToolName, new: (Rank, T)) {
        self.meanings.entry(name).and_modify(|it| *it = new.min(*it)).or_insert(new);
    }

    /// Returns where the tool is that a name means.
    pub fn get(&self, name: &str) -> Option<T> {
        self.find(name).map(|(_, at)| at)
    }

    /// Returns the name that a tool is shown by: `set.name`; or the name that its source gives it
    /// where that has that of a set already and means this very tool, as `file_tools.glob` does in a
    /// set of whatever name.
    pub fn shown(&self, tool: &ToolDefinition) -> ToolName {
        let (own, qualified) = (&tool.name, tool.qualified());
        let is_whole = prefix(own.as_str()).is_some()
            && self.get(own.as_str()).is_some_and(|it| self.get(qualified.as_str()) == Some(it));
        if is_whole { own.clone() } else { qualified }
    }

    /// Returns where the tool is that a name means, and how it comes by the name.
    pub fn find(&self, name: &str) -> Option<(Rank, T)> {
        self.meanings.get(name).copied()
    }
}

/// A stable code that says how a step failed, such as `tool.failed`.
///
/// Faber's own are the constants here; `flow.fail` may carry any.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The tool said that it failed.
    pub const FAILED: Self = Self(Cow::Borrowed("tool.failed"));
    /// The tool took too long.
    pub const TIMEOUT: Self = Self(Cow::Borrowed("tool.timeout"));
    /// The tool was told to stop.
    pub const CANCELLED: Self = Self(Cow::Borrowed("tool.cancelled"));
    /// The tool could not be reached.
    pub const UNAVAILABLE: Self = Self(Cow::Borrowed("tool.unavailable"));
    /// The tool's set is switched off.
    pub const INACTIVE: Self = Self(Cow::Borrowed("tool.inactive"));
    /// The rendered parameters do not fit the tool's schema.
    pub const INVALID_PARAMETERS: Self = Self(Cow::Borrowed("tool.invalid_parameters"));
    /// The tool returned more than a log should keep.
    pub const OUTPUT_TOO_LARGE: Self = Self(Cow::Borrowed("tool.output_too_large"));
    /// Nobody knows whether the call happened.
    pub const OUTCOME_UNKNOWN: Self = Self(Cow::Borrowed("tool.outcome_unknown"));
    /// A template found nothing, and the execution is strict.
    pub const UNRESOLVED: Self = Self(Cow::Borrowed("template.unresolved"));
    /// A person said no.
    pub const REJECTED: Self = Self(Cow::Borrowed("step.rejected"));
    /// What a step is to be done for each item of is not a list.
    pub const NOT_A_LIST: Self = Self(Cow::Borrowed("step.not_a_list"));
    /// The execution's time was up.
    pub const DEADLINE: Self = Self(Cow::Borrowed("execution.deadline"));

    /// Makes a code that a user chose.
    pub fn custom(code: String) -> Self {
        Self(Cow::Owned(code))
    }

    /// Returns the code as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether another try can help, by the one table that says so.
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

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ToolError {
    /// What kind of failure.
    pub code: ErrorCode,
    /// What happened and what to do, for people.
    pub message: Arc<str>,
    /// Whether another try can help.
    pub retryable: bool,
    /// Whether the call certainly did not take effect, or certainly answered. Where it is not
    /// certain (a time-out, a lost connection) a `Once` tool is not called again.
    #[serde(default = "certain", skip_serializing_if = "is_certain")]
    pub is_definite: bool,
}

fn certain() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_certain(is_definite: &bool) -> bool {
    *is_definite
}

impl ToolError {
    /// Makes an error whose code says whether another try can help, and that is certain.
    pub fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        let retryable = code.is_retryable();
        let message = clip(message.as_ref(), limits::MESSAGE_BYTES);
        Self { code, message, retryable, is_definite: true }
    }

    /// Makes the error of a call of which nobody knows whether it took effect, and says so and what
    /// to do, unless `why` does.
    pub fn outcome_unknown(why: &str) -> Self {
        let hint =
            "whether the call took effect is unknown, it may yet happen: look before you retry";
        if why.ends_with(hint) {
            return Self::new(ErrorCode::OUTCOME_UNKNOWN, why);
        }
        Self::new(ErrorCode::OUTCOME_UNKNOWN, format!("{why}; {hint}"))
    }

    /// Makes the error of a tool that says it failed.
    pub fn failed(message: impl AsRef<str>) -> Self {
        Self::new(ErrorCode::FAILED, message)
    }

    /// Says that the call may have taken effect, or may yet.
    #[must_use]
    pub fn indefinite(self) -> Self {
        Self { is_definite: false, ..self }
    }

    /// Returns whether nobody knows if the call took effect.
    pub fn is_outcome_unknown(&self) -> bool {
        !self.is_definite || self.code == ErrorCode::OUTCOME_UNKNOWN
    }

    /// Says that no other try can help.
    #[must_use]
    pub fn terminal(self) -> Self {
        Self { retryable: false, ..self }
    }
}

/// How far a call is, by its own account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done. It grows, in a measure of the tool's own.
    pub progress: f64,
    /// How much there is to do, where the tool knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What it is doing, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

impl Progress {
    /// Returns the report as a log may keep it: a long message loses its middle, a total that is
    /// no number is left out, and a report that is no number is none.
    pub fn kept(self) -> Option<Self> {
        let message = match self.message {
            Some(text) if text.len() > limits::PROGRESS_BYTES => {
                Some(clip(&text, limits::PROGRESS_BYTES))
            }
            short => short,
        };
        let total = self.total.filter(|it| it.is_finite());
        self.progress.is_finite().then_some(Self { progress: self.progress, total, message })
    }
}

/// Keeps the first and the last part of a text that is longer than a log should keep.
fn clip(text: &str, most: usize) -> Arc<str> {
    if text.len() <= most {
        return text.into();
    }
    let head = text.floor_char_boundary(most / 4);
    let tail = text.ceil_char_boundary(text.len() - most / 2);
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

    /// A tool said it, and then the plan whose step called it.
    #[test]
    fn what_is_unknown_is_said_once() {
        let once = ToolError::outcome_unknown("it broke off");
        let twice = ToolError::outcome_unknown(&once.message);
        assert_eq!(twice, once);
        let told = "tool.outcome_unknown: it broke off; whether the call took effect is unknown, it \
                    may yet happen: look before you retry";
        assert_eq!(once.to_string(), told);
        let long = ToolError::outcome_unknown(&"x".repeat(2 * limits::MESSAGE_BYTES));
        assert_eq!(ToolError::outcome_unknown(&long.message), long);
    }

    #[test]
    fn a_report_is_kept_as_small_as_a_log_wants_it() {
        let kept = |progress, total: Option<f64>, message: Option<&str>| {
            Progress { progress, total, message: message.map(Into::into) }.kept()
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
    fn the_earliest_has_a_name_in_whatever_order_tools_are_added() {
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
            let mut names = Names::of([]);
            for at in &order {
                names.add(&tools[*at], *at);
            }
            for (name, at) in meanings {
                assert_eq!(names.get(name), Some(at), "{name} of {order:?}");
            }
            assert_eq!(names.get("nothing"), None);
        }
    }

    #[test]
    fn the_name_of_a_set_leads_to_its_own_tools_or_nowhere() {
        let tools = [tool("m2", "m.b"), tool("m2", "x.m.c"), tool("m", "x.d"), tool("n", "m.d")];
        let meanings = |sets: &[&str]| {
            let mut names = Names::of(sets.iter().map(|it| it.parse().unwrap()));
            for (at, tool) in tools.iter().enumerate() {
                names.add(tool, at);
            }
            ["m.b", "m2.m.b", "m.c", "m.d", "b"].map(|it| names.get(it))
        };
        assert_eq!(meanings(&["m2", "m", "n"]), [None, Some(0), None, Some(2), Some(0)]);
        // While nobody is called `m`, that is a name like any other.
        assert_eq!(meanings(&["m2", "n"])[..3], [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_tool_is_not_qualified_twice() {
        let mut tool = tool("flow", "flow.echo");
        assert_eq!(tool.qualified().as_str(), "flow.echo");
        tool.name = "echo".parse().unwrap();
        assert_eq!(tool.qualified().as_str(), "flow.echo");
        tool.name = "flower".parse().unwrap();
        assert_eq!(tool.qualified().as_str(), "flow.flower");
    }
}
