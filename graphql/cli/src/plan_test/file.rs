//! The file of a test, as its author writes it.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::{
    execution::ExecutionState,
    id::{ExecutionId, PlanId},
    tool::{ErrorCode, ToolError},
};

const FILE_KEYS: [&str; 2] = ["plan", "tests"];
const TEST_KEYS: [&str; 7] = ["name", "input", "record", "tools", "signals", "approvals", "expect"];
const EXPECT_KEYS: [&str; 5] = ["state", "outputs", "calls", "order", "findings"];
const CALL_KEYS: [&str; 3] = ["tool", "parameters", "times"];
const ERROR_KEYS: [&str; 3] = ["code", "message", "retryable"];
const FINDING_KEYS: [&str; 5] = ["code", "severity", "stepId", "index", "message"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestFile {
    pub(crate) plan: PlanSource,
    pub(crate) tests: Vec<Test>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlanSource {
    /// A file, from the folder of the test file.
    File(PathBuf),
    Id(PlanId),
    Saved(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) input: Option<Value>,
    pub(crate) record: Option<ExecutionId>,
    /// Outcomes of calls by the name of the tool, as written.
    pub(crate) tools: BTreeMap<String, Script<Outcome>>,
    /// Payloads by the name of the signal.
    pub(crate) signals: BTreeMap<String, Script<Value>>,
    /// Decisions by step. `step[3]` is one item of a loop.
    pub(crate) approvals: BTreeMap<String, Script<bool>>,
    pub(crate) expect: Expectation,
}

/// Values that are used one after another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Script<T> {
    /// The same value each time.
    Always(T),
    InTurn(VecDeque<T>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Output(Value),
    Error(ToolError),
}

/// What a test expects. `None` and absent parts are not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) state: Option<ExecutionState>,
    pub(crate) outputs: Option<Map<String, Value>>,
    pub(crate) calls: Vec<ExpectedCall>,
    pub(crate) order: Vec<String>,
    pub(crate) findings: Vec<Map<String, Value>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpectedCall {
    pub(crate) tool: String,
    pub(crate) parameters: Option<Value>,
    /// The exact number of such calls. `None` means at least one for each entry.
    pub(crate) times: Option<u64>,
}

impl<T: Clone> Script<T> {
    /// Returns the next value. `None` if the list of values is used up.
    pub(crate) fn take_next(&mut self) -> Option<T> {
        match self {
            Self::Always(value) => Some(value.clone()),
            Self::InTurn(values) => values.pop_front(),
        }
    }

    /// Reads a value, or a list of values that are used in turn.
    fn read(
        written: &Value,
        place: &str,
        read: impl Fn(&Value, &str) -> Result<T, String>,
    ) -> Result<Self, String> {
        match written {
            Value::Array(values) => {
                let values = values.iter().enumerate();
                let values = values.map(|(n, value)| read(value, &format!("{place}[{n}]")));
                Ok(Self::InTurn(values.collect::<Result<_, _>>()?))
            }
            value => Ok(Self::Always(read(value, place)?)),
        }
    }
}

impl TestFile {
    /// Reads a parsed file. `folder` is the folder of the file. The error names the place.
    pub(crate) fn read(written: &Value, folder: &Path) -> Result<Self, String> {
        let fields = read_object(written, "the file", &FILE_KEYS)?;
        let missing = "`plan` is missing: write a file, an id or the name of a saved plan";
        let plan = read_text(fields, "plan", "plan")?.ok_or(missing)?;
        let tests = fields.get("tests").and_then(Value::as_array);
        let tests = tests.ok_or("`tests` is missing: write a list of tests")?;
        if tests.is_empty() {
            return Err("`tests` is empty: write at least one test".to_owned());
        }
        let tests = tests.iter().enumerate();
        let tests = tests.map(|(n, test)| Test::read(test, &format!("tests[{n}]")));
        let tests = tests.collect::<Result<Vec<_>, _>>()?;
        for (n, test) in tests.iter().enumerate() {
            if tests[..n].iter().any(|other| other.name == test.name) {
                return Err(format!("`tests[{n}].name`: two tests are called `{}`", test.name));
            }
        }
        Ok(Self { plan: PlanSource::read(plan, folder), tests })
    }
}

impl PlanSource {
    fn read(written: &str, folder: &Path) -> Self {
        if let Ok(id) = written.parse() {
            return Self::Id(id);
        }
        let path = folder.join(written);
        let is_file = [".json", ".yaml", ".yml"].iter().any(|ending| written.ends_with(ending));
        if is_file || path.is_file() { Self::File(path) } else { Self::Saved(written.to_owned()) }
    }
}

impl Test {
    fn read(written: &Value, place: &str) -> Result<Self, String> {
        let fields = read_object(written, place, &TEST_KEYS)?;
        let name = read_text(fields, "name", &format!("{place}.name"))?;
        let name = name.ok_or_else(|| format!("`{place}.name` is missing"))?.to_owned();
        let record = read_text(fields, "record", &format!("{place}.record"))?;
        let record = record.map(|id| {
            id.parse().map_err(|_| format!("`{place}.record`: `{id}` is no id of an execution"))
        });
        let read_approval = |value: &Value, place: &str| {
            value.as_bool().ok_or_else(|| format!("`{place}` must be `true` or `false`"))
        };
        let read_payload = |value: &Value, _: &str| Ok(value.clone());
        let expect_place = format!("{place}.expect");
        let expect = fields.get("expect");
        let expect = expect.map(|expect| Expectation::read(expect, &expect_place)).transpose()?;
        Ok(Self {
            name,
            input: fields.get("input").cloned(),
            record: record.transpose()?,
            tools: read_scripts(fields, "tools", place, Outcome::read)?,
            signals: read_scripts(fields, "signals", place, read_payload)?,
            approvals: read_scripts(fields, "approvals", place, read_approval)?,
            expect: expect.unwrap_or_default(),
        })
    }
}

impl Outcome {
    /// An object whose only key is `error` is an error, and `{ output: … }` is the output itself.
    fn read(written: &Value, place: &str) -> Result<Self, String> {
        let only = written.as_object().filter(|fields| fields.len() == 1);
        match only.and_then(|fields| fields.iter().next()) {
            Some((key, error)) if key == "error" => {
                read_error(error, &format!("{place}.error")).map(Self::Error)
            }
            Some((key, output)) if key == "output" => Ok(Self::Output(output.clone())),
            _ => Ok(Self::Output(written.clone())),
        }
    }
}

impl Expectation {
    fn read(written: &Value, place: &str) -> Result<Self, String> {
        let fields = read_object(written, place, &EXPECT_KEYS)?;
        let state = read_text(fields, "state", &format!("{place}.state"))?;
        let state = state.map(|name| read_state(name, &format!("{place}.state"))).transpose()?;
        let outputs = match fields.get("outputs") {
            None => None,
            Some(Value::Object(outputs)) => Some(outputs.clone()),
            Some(_) => return Err(format!("`{place}.outputs` must be a map of steps")),
        };
        let order = read_list(fields, "order", place, |value, place| match value {
            Value::String(step) => Ok(step.clone()),
            _ => Err(format!("`{place}` must be the id of a step")),
        })?;
        let calls = read_list(fields, "calls", place, ExpectedCall::read)?;
        let findings = read_list(fields, "findings", place, |value, place| match value {
            Value::String(code) => Ok(Map::from_iter([("code".to_owned(), json!(code))])),
            value => read_object(value, place, &FINDING_KEYS).cloned(),
        })?;
        Ok(Self { state, outputs, calls, order, findings })
    }
}

impl ExpectedCall {
    fn read(written: &Value, place: &str) -> Result<Self, String> {
        if let Value::String(tool) = written {
            return Ok(Self { tool: tool.clone(), parameters: None, times: None });
        }
        let fields = read_object(written, place, &CALL_KEYS)?;
        let tool = read_text(fields, "tool", &format!("{place}.tool"))?;
        let tool = tool.ok_or_else(|| format!("`{place}.tool` is missing"))?.to_owned();
        let times = match fields.get("times") {
            None => None,
            Some(times) => Some(
                times
                    .as_u64()
                    .ok_or_else(|| format!("`{place}.times` must be a whole number, 0 or more"))?,
            ),
        };
        Ok(Self { tool, parameters: fields.get("parameters").cloned(), times })
    }
}

fn read_error(written: &Value, place: &str) -> Result<ToolError, String> {
    if let Value::String(message) = written {
        return Ok(ToolError::failed(message));
    }
    let fields = read_object(written, place, &ERROR_KEYS)?;
    let code = read_text(fields, "code", &format!("{place}.code"))?;
    let message = read_text(fields, "message", &format!("{place}.message"))?;
    let code = ErrorCode::custom(code.unwrap_or("tool.failed").to_owned());
    let message = message.unwrap_or("the mock failed");
    let mut error = if code == ErrorCode::OUTCOME_UNKNOWN {
        ToolError::outcome_unknown(message)
    } else if code == ErrorCode::TIMEOUT {
        // A call that timed out may have taken effect.
        ToolError::new(code, message).with_unknown_outcome()
    } else {
        ToolError::new(code, message)
    };
    match fields.get("retryable") {
        None => (),
        Some(Value::Bool(retryable)) => error.retryable = *retryable,
        Some(_) => return Err(format!("`{place}.retryable` must be `true` or `false`")),
    }
    Ok(error)
}

fn read_state(name: &str, place: &str) -> Result<ExecutionState, String> {
    let state = serde_json::from_value(json!(name.to_uppercase()));
    state.map_err(|_| {
        let help = did_you_mean(&name.to_uppercase(), STATES);
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        format!("`{place}`: there is no state `{name}`{help}")
    })
}

pub(super) const STATES: [&str; 8] = [
    "PENDING",
    "IN_PROGRESS",
    "PAUSED",
    "WAITING",
    "COMPENSATING",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
];

fn read_scripts<T: Clone>(
    fields: &Map<String, Value>,
    key: &str,
    place: &str,
    read: impl Fn(&Value, &str) -> Result<T, String>,
) -> Result<BTreeMap<String, Script<T>>, String> {
    let Some(written) = fields.get(key) else { return Ok(BTreeMap::new()) };
    let place = format!("{place}.{key}");
    let Value::Object(written) = written else { return Err(format!("`{place}` must be a map")) };
    let scripts = written.iter().map(|(name, value)| {
        Ok((name.clone(), Script::read(value, &format!("{place}.{name}"), &read)?))
    });
    scripts.collect()
}

fn read_list<T>(
    fields: &Map<String, Value>,
    key: &str,
    place: &str,
    read: impl Fn(&Value, &str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let Some(written) = fields.get(key) else { return Ok(Vec::new()) };
    let place = format!("{place}.{key}");
    let Value::Array(values) = written else { return Err(format!("`{place}` must be a list")) };
    let values = values.iter().enumerate();
    values.map(|(n, value)| read(value, &format!("{place}[{n}]"))).collect()
}

fn read_object<'a>(
    written: &'a Value,
    place: &str,
    keys: &[&str],
) -> Result<&'a Map<String, Value>, String> {
    let place = if place == "the file" { place.to_owned() } else { format!("`{place}`") };
    let Value::Object(fields) = written else { return Err(format!("{place} must be a map")) };
    match fields.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(fields),
        Some(unknown) => {
            let help = did_you_mean(unknown, keys.iter().copied());
            let help = help.unwrap_or_else(|| format!("its keys are {}", keys.join(", ")));
            Err(format!("{place}: `{unknown}` is unknown: {help}"))
        }
    }
}

fn read_text<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
    place: &str,
) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{place}` must be a text")),
    }
}
