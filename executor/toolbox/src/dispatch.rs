//! Steps of agents, which call the tool that their parameters name.
//!
//! There is one dispatch tool for each effect, so that a step that may only read cannot call a tool
//! with an effect.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::{
    glob::ToolPattern,
    id::{ToolName, ToolSetName},
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};

use super::{
    Tool, ToolContext, Toolbox,
    tool_names::{ACTIVATE, SET_NAMES, TOOL_SET},
};

/// The set name of the tools with which steps of an agent call other tools.
pub const SET: &str = "faber_agent";
/// Maximum bytes of a result that a model reads. It is low, because each turn sends the result to
/// the model again.
pub const RESULT_BYTES: usize = 32 << 10;

const DISPATCH_TOOLS: [DispatchTool; 3] = [
    DispatchTool {
        name: "faber_agent.read",
        effect: Effect::Read,
        description: "Calls a tool that changes nothing.",
    },
    DispatchTool {
        name: "faber_agent.repeat",
        effect: Effect::Idempotent,
        description: "Calls a tool that is safe to call again.",
    },
    DispatchTool { name: "faber_agent.call", effect: Effect::Once, description: "Calls a tool." },
];

struct DispatchTool {
    name: &'static str,
    /// The greatest effect of the tools that the dispatch tool may call.
    effect: Effect,
    description: &'static str,
}

/// The tools that an agent may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolReach {
    /// Patterns of the allowed tools. `None` allows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolPattern>>,
    /// Patterns of tools that are not allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<ToolPattern>,
    /// Toolsets of the allowed tools. An empty list allows all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ToolSetName>,
    /// The name of the access token whose limits the calls count against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The call that a dispatch tool makes for an agent.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub tool: ToolName,
    pub args: Arc<Value>,
    effect: Effect,
    reach: ToolReach,
    max_result_bytes: usize,
    /// Unknown toolset names that were removed from the parameters. Otherwise a set of that name
    /// could exist by the time of the call and act on this machine.
    unknown_sets: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DispatchParameters {
    tool: ToolName,
    args: Value,
    #[serde(default)]
    reach: ToolReach,
    /// Bytes of the result that the output may contain. The default and the maximum are
    /// [`RESULT_BYTES`].
    #[serde(default)]
    most: Value,
}

/// Returns the dispatch tool for an effect.
pub fn dispatch_tool_name(effect: Effect) -> ToolName {
    let tool =
        DISPATCH_TOOLS.iter().find(|tool| tool.effect == effect).expect("every effect has a tool");
    tool.name.parse().expect("tool names are literals")
}

/// Returns `true` if `tool` is the name of a dispatch tool that the toolbox has.
pub fn is_dispatch_tool(toolbox: &Toolbox, tool: &ToolName) -> bool {
    allowed_effect(tool).is_some() && toolbox.find_internal_tool(tool).is_some()
}

fn allowed_effect(tool: &ToolName) -> Option<Effect> {
    DISPATCH_TOOLS.iter().find(|known| known.name == tool.as_str()).map(|known| known.effect)
}

/// Returns the dispatch tools. Plans of agents are compiled with them.
pub fn dispatch_tools() -> Vec<Arc<dyn Tool>> {
    DISPATCH_TOOLS.iter().map(|tool| Arc::new(CatalogEntry::new(tool)) as Arc<dyn Tool>).collect()
}

impl ToolReach {
    /// Returns `true` if the agent may call a tool.
    pub fn includes(&self, tool: &ToolDefinition) -> bool {
        let name = tool.qualified_name();
        let name = name.as_str();
        let matches = |globs: &[ToolPattern]| globs.iter().any(|glob| glob.matches(name));
        self.tools.as_deref().is_none_or(matches)
            && !matches(&self.except)
            && (self.sets.is_empty() || self.sets.contains(&tool.set))
    }

    /// Returns the reason why a call may not activate a toolset. A text that an agent reads could
    /// tell the agent to activate a set that acts on this machine.
    pub fn complaint(
        &self,
        toolbox: &Toolbox,
        tool: &ToolDefinition,
        args: &Value,
    ) -> Option<String> {
        if (tool.set.as_str(), tool.name.as_str()) != (TOOL_SET, ACTIVATE) {
            return None;
        }
        let names = args.get(SET_NAMES)?.as_array()?;
        names.iter().filter_map(Value::as_str).find_map(|name| self.objection_to_set(toolbox, name))
    }

    fn objection_to_set(&self, toolbox: &Toolbox, name: &str) -> Option<String> {
        // Allows an unknown name, because it is removed before the call.
        let set = name.parse().ok().and_then(|name| toolbox.set(&name))?;
        if set.acts_on_this_machine && !self.sets.contains(&set.name) {
            return Some(format!("`{name}` acts on this machine: only a person can activate it"));
        }
        let all = format!("{name}.*");
        let is_kept = self.except.iter().any(|glob| glob.to_string() == all);
        is_kept.then(|| format!("`{name}` is not available: the agent may call none of its tools"))
    }
}

impl Dispatch {
    /// Parses the parameters of a dispatch tool. Returns `None` for any other tool.
    pub fn parse(
        toolbox: &Toolbox,
        tool: &ToolName,
        parameters: &Value,
    ) -> Option<Result<Self, ToolError>> {
        let effect = allowed_effect(tool).filter(|_| toolbox.find_internal_tool(tool).is_some())?;
        let given = DispatchParameters::deserialize(parameters);
        Some(match given {
            Ok(DispatchParameters { tool, args, reach, most: maximum }) => {
                let maximum = maximum.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
                let maximum = maximum.map_or(RESULT_BYTES, |bytes| bytes.min(RESULT_BYTES));
                let mut dispatch = Self {
                    tool,
                    args: Arc::new(args),
                    effect,
                    reach,
                    max_result_bytes: maximum,
                    unknown_sets: vec![],
                };
                dispatch.remove_unknown_sets(toolbox);
                Ok(dispatch)
            }
            Err(err) => Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, err.to_string())),
        })
    }

    /// Removes unknown toolset names from the parameters of an activation.
    fn remove_unknown_sets(&mut self, toolbox: &Toolbox) {
        let switches =
            self.tool.as_str().strip_prefix(TOOL_SET).and_then(|rest| rest.strip_prefix('.'));
        if switches != Some(ACTIVATE) {
            return;
        }
        let args = Arc::make_mut(&mut self.args);
        if let Some(Value::Array(names)) = args.get_mut(SET_NAMES) {
            let is_unknown = |value: &mut Value| {
                let name = value.as_str().map(str::parse);
                name.is_some_and(|parsed| parsed.ok().and_then(|set| toolbox.set(&set)).is_none())
            };
            self.unknown_sets = names.extract_if(.., is_unknown).collect();
        }
    }

    fn report_unknown_sets(&self, result: &mut Value) {
        if self.unknown_sets.is_empty() {
            return;
        }
        if let Some(Value::Array(names)) = result.get_mut("notFound") {
            names.extend(self.unknown_sets.iter().cloned());
            result["success"] = Value::Bool(false);
        }
    }

    /// Checks that the step may call the tool.
    pub fn check(&self, toolbox: &Toolbox, tool: &ToolDefinition) -> Result<(), ToolError> {
        if !self.reach.includes(tool) {
            let reason = format!("the agent may not call `{}`", self.tool);
            return Err(ToolError::failed(reason).without_retry());
        }
        if let Some(reason) = self.reach.complaint(toolbox, tool, &self.args) {
            return Err(ToolError::failed(reason).without_retry());
        }
        if tool.effect > self.effect {
            // The tool's effect has changed since the model asked for the call.
            let reason = format!(
                "the effect of `{}` has changed, and this step does not allow the new effect: call \
                 the tool again",
                self.tool
            );
            return Err(ToolError::failed(reason));
        }
        Ok(())
    }

    /// Makes the output of the step from the result of the call. A cancelled call has no output.
    pub fn report(&self, result: Result<Value, ToolError>) -> Result<Value, ToolError> {
        let tool = self.tool.as_str();
        let result = result.map(|mut output| {
            self.report_unknown_sets(&mut output);
            output
        });
        match result {
            Ok(result) => match clip_result(&result, self.max_result_bytes) {
                None => Ok(json!({ "tool": tool, "status": "success", "result": result })),
                Some(text) => Ok(json!({
                    "tool": tool, "status": "success", "result": text, "cut": true,
                })),
            },
            Err(err) if err.code == ErrorCode::CANCELLED => Err(err),
            Err(err) => {
                let unsure = if err.is_definite || self.effect == Effect::Read {
                    ""
                } else {
                    "; it may have taken effect, or may do so later"
                };
                let end = err.message.floor_char_boundary(self.max_result_bytes);
                let error = format!("{}{unsure}", &err.message[..end]);
                Ok(json!({
                    "tool": tool, "status": "error", "error": error, "code": err.code,
                }))
            }
        }
    }
}

fn clip_result(result: &Value, limit: usize) -> Option<String> {
    let text: Cow<'_, str> = match result {
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    };
    if text.len() <= limit {
        return None;
    }
    let end = text.floor_char_boundary(limit);
    Some(format!("{}… (cut: {} of {} bytes)", &text[..end], end, text.len()))
}

/// The definition of a dispatch tool for the compiler. It is never called.
#[derive(Debug)]
struct CatalogEntry(Arc<ToolDefinition>);

impl CatalogEntry {
    fn new(tool: &DispatchTool) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "tool": { "type": "string" },
                "args": { "type": "object" },
                "reach": { "type": "object" },
                "most": {},
            },
            "required": ["tool", "args"],
            "additionalProperties": false,
        });
        Self(Arc::new(ToolDefinition {
            name: tool.name.parse().expect("tool names are literals"),
            set: SET.parse().expect("the set's name is a literal"),
            description: tool.description.to_owned(),
            input_schema: schema,
            output_schema: None,
            effect: tool.effect,
            examples: Vec::new(),
            is_callable: true,
        }))
    }
}

#[async_trait]
impl Tool for CatalogEntry {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.0
    }

    async fn call(&self, _: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> {
        let reason = format!("`{}` is for plans of agents only: use `runAgent`", self.0.name);
        Err(ToolError::failed(reason).without_retry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolSet;

    fn toolbox() -> Toolbox {
        let toolbox = Toolbox::default();
        toolbox.add_internal_tools(dispatch_tools());
        toolbox
    }

    fn dispatch(step: &str, parameters: &Value) -> Dispatch {
        Dispatch::parse(&toolbox(), &step.parse().unwrap(), parameters).unwrap().unwrap()
    }

    fn tool(name: &str, effect: Effect) -> ToolDefinition {
        let (set, _) = name.split_once('.').unwrap();
        ToolDefinition {
            name: name.parse().unwrap(),
            set: set.parse().unwrap(),
            description: String::new(),
            input_schema: json!({}),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        }
    }

    #[test]
    fn only_agent_call_tools_dispatch_to_other_tools() {
        let parse =
            |toolbox: &Toolbox, tool: &ToolName, given| Dispatch::parse(toolbox, tool, &given);
        let once = dispatch_tool_name(Effect::Once);
        assert!(parse(&toolbox(), &"flow.echo".parse().unwrap(), json!({})).is_none());
        assert!(parse(&toolbox(), &once, json!({ "tool": 1 })).unwrap().is_err());
        // A toolbox without agents has no dispatch tools, so the name is unknown.
        assert!(parse(&Toolbox::default(), &once, json!({ "tool": "a.b", "args": {} })).is_none());
        let call = dispatch("faber_agent.read", &json!({ "tool": "a.b", "args": { "x": 1 } }));
        assert_eq!((call.tool.as_str(), &*call.args), ("a.b", &json!({ "x": 1 })));
    }

    #[test]
    fn a_dispatched_call_stays_within_its_reach() {
        let given = json!({ "tool": "blog.get", "args": {}, "reach": {
            "tools": ["blog.*", "ToolSet.*"], "except": ["*.delete*"], "sets": ["blog"],
        } });
        for (step, name, effect, expected) in [
            ("faber_agent.read", "blog.get", Effect::Read, true),
            ("faber_agent.read", "blog.set", Effect::Idempotent, false),
            ("faber_agent.read", "blog.create", Effect::Once, false),
            ("faber_agent.repeat", "blog.get", Effect::Read, true),
            ("faber_agent.repeat", "blog.create", Effect::Once, false),
            ("faber_agent.call", "blog.create", Effect::Once, true),
            ("faber_agent.call", "blog.deleteAll", Effect::Once, false),
            ("faber_agent.call", "ToolSet.activate_toolset", Effect::Idempotent, false),
            ("faber_agent.call", "files.read", Effect::Read, false),
        ] {
            let checked = dispatch(step, &given).check(&toolbox(), &tool(name, effect));
            assert_eq!(checked.is_ok(), expected, "{step} {name}: {checked:?}");
        }
        let anything = dispatch("faber_agent.call", &json!({ "tool": "x.y", "args": {} }));
        assert!(anything.check(&toolbox(), &tool("x.y", Effect::Once)).is_ok());
    }

    /// The rule does not depend on the name or the state of the set, because both can change.
    #[test]
    fn an_agent_cannot_activate_sets_that_act_on_this_machine() {
        let toolbox = toolbox();
        let set = |name: &str, acts_on_this_machine, is_active| {
            let set = ToolSet::ready(name.parse().unwrap(), "builtin", "", []);
            toolbox.put_set(ToolSet { acts_on_this_machine, is_active, ..set });
        };
        set("ops", true, false);
        set("files", true, true);
        set("web", false, false);
        set("crm", false, false);
        let help_for = |names: Value, reach: Value| {
            let args = json!({ "toolSetNames": names });
            let given = json!({ "tool": "ToolSet.activate_toolset", "args": args, "reach": reach });
            let activate = tool("ToolSet.activate_toolset", Effect::Idempotent);
            let activate = ToolDefinition { name: "activate_toolset".parse().unwrap(), ..activate };
            let step = "faber_agent.repeat".parse().unwrap();
            let call = Dispatch::parse(&toolbox, &step, &given).unwrap().unwrap();
            let checked = call.check(&toolbox, &activate);
            checked.err().map(|err| err.message.to_string())
        };
        let machine =
            |name| Some(format!("`{name}` acts on this machine: only a person can activate it"));
        assert_eq!(help_for(json!(["web", "ops"]), json!({})), machine("ops"));
        // A person may deactivate a set at any time.
        assert_eq!(help_for(json!(["files"]), json!({})), machine("files"));
        assert_eq!(help_for(json!(["ops"]), json!({ "sets": ["ops", "ToolSet"] })), None);
        assert_eq!(help_for(json!(["web", "crm"]), json!({})), None);
        let crm = "`crm` is not available: the agent may call none of its tools";
        let except = json!({ "except": ["crm.*"] });
        assert_eq!(help_for(json!(["crm"]), except.clone()).as_deref(), Some(crm));
        assert_eq!(help_for(json!(["ops"]), except), machine("ops"));
        assert_eq!(help_for(json!(["web", "later"]), json!({})), None);
        assert_eq!(help_for(json!(["later", "ops"]), json!({})), machine("ops"));
    }

    #[test]
    fn unknown_sets_are_reported_and_others_activated() {
        let toolbox = toolbox();
        toolbox.put_set(ToolSet::ready("web".parse().unwrap(), "builtin", "", []));
        let args = json!({ "toolSetNames": ["later", "web", "no name at all", 1] });
        let given = json!({ "tool": "ToolSet.activate_toolset", "args": args });
        let step = "faber_agent.repeat".parse().unwrap();
        let call = Dispatch::parse(&toolbox, &step, &given).unwrap().unwrap();
        // The name is removed, because a set of this name could exist at the time of the call.
        assert_eq!(*call.args, json!({ "toolSetNames": ["web", 1] }));
        let result = json!({ "success": true, "changed": ["web"], "notFound": [] });
        let report = call.report(Ok(result)).unwrap();
        let expected = json!({ "success": false, "changed": ["web"], "notFound": ["later", "no name at all"] });
        assert_eq!(report["result"], expected);
        let other = json!({ "tool": "ToolSet.list_toolset", "args": args });
        let call = Dispatch::parse(&toolbox, &step, &other).unwrap().unwrap();
        assert_eq!(*call.args, args);
    }

    #[test]
    fn a_dispatched_call_reports_its_result_or_error() {
        let call = dispatch("faber_agent.call", &json!({ "tool": "a.b", "args": {} }));
        let report = call.report(Ok(json!([1]))).unwrap();
        assert_eq!(report, json!({ "tool": "a.b", "status": "success", "result": [1] }));
        let failed = call.report(Err(ToolError::failed("no"))).unwrap();
        let expected =
            json!({ "tool": "a.b", "status": "error", "error": "no", "code": "tool.failed" });
        assert_eq!(failed, expected);
        let lost = ToolError::new(ErrorCode::TIMEOUT, "late").with_unknown_outcome();
        let report = call.report(Err(lost)).unwrap();
        assert_eq!(report["error"], "late; it may have taken effect, or may do so later");
        let stopped = ToolError::new(ErrorCode::CANCELLED, "stop");
        assert_eq!(call.report(Err(stopped.clone())), Err(stopped));
        let long = call.report(Ok(json!("ä".repeat(RESULT_BYTES)))).unwrap();
        let text = long["result"].as_str().unwrap();
        assert!(text.len() < RESULT_BYTES + 64 && text.ends_with(" bytes)"), "{}", text.len());
        // The length of the text decides, because limits of values count a number as one byte.
        let numbers = call.report(Ok(json!(vec![123_456_789; RESULT_BYTES / 8]))).unwrap();
        assert_eq!(numbers["cut"], true);
        for (maximum, expected) in [(json!(300), 300), (json!("{{item.most}}"), RESULT_BYTES)] {
            let given = json!({ "tool": "a.b", "args": {}, "most": maximum });
            let report = dispatch("faber_agent.read", &given).report(Ok(json!("x".repeat(40_000))));
            let text = report.unwrap()["result"].as_str().unwrap().to_owned();
            assert_eq!(text.matches('x').count(), expected, "{maximum}");
        }
    }
}
