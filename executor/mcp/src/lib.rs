//! The client of MCP servers, over stdio and over HTTP.

mod answer;
mod config;
mod http;
mod message;
pub mod oauth;
mod redaction;
mod server;
mod session;
mod stdio;
mod supervisor;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use rmcp::model::{CallToolRequestParams, MetaObject, Tool as Offer};
use serde_json::{Value, json};
use shared::{
    id::{ParseIdError, ToolName, ToolSetName},
    limits,
    schema::Schema,
    tool::{Effect, ErrorCode, ToolDefinition, ToolError},
};
use toolbox::{
    LOG_TARGET, ReadyTool, SourceTools, Tool, ToolContext, blobs, effect_rules::EffectRules,
    progress::Reporter,
};

#[doc(hidden)]
pub use self::message::message_as_json;
use self::{
    answer::Output,
    message::DEMANDS_TASK_FIELD,
    session::{LostCall, Session},
};
pub use self::{
    config::{Elicitation, McpCommand, McpHttp, McpServer},
    session::Availability,
    supervisor::{CONNECT_TIMEOUT, Supervisor},
};

#[derive(Debug)]
struct McpTool {
    definition: Arc<ToolDefinition>,
    /// The reason why the tool cannot be called. `None` if it can be called.
    obstacle: Option<&'static str>,
    output_schema: OnceLock<Option<Schema>>,
    availability: Arc<Availability>,
}

fn make_tools(
    set: &ToolSetName,
    effects: &EffectRules,
    availability: &Arc<Availability>,
    offers: Vec<Offer>,
) -> SourceTools {
    let mut names = BTreeSet::new();
    let mut made = SourceTools::ready(Vec::new());
    for (index, offer) in offers.into_iter().enumerate() {
        let obstacle = call_obstacle(&offer);
        let definition = match tool_definition(set, index, offer) {
            Ok(definition) => effects.apply(definition),
            Err(error) => {
                tracing::warn!(target: LOG_TARGET, %set, why = %error, "a tool is left out");
                made.left_out.push(error);
                continue;
            }
        };
        if !names.insert(definition.qualified_name()) {
            let name = &definition.name;
            tracing::warn!(target: LOG_TARGET, %set, %name, "the server has two tools of this name; the first one is used");
            continue;
        }
        let availability = Arc::clone(availability);
        let (definition, output_schema) = (Arc::new(definition), OnceLock::new());
        let tool = McpTool { definition, obstacle, output_schema, availability };
        made.tools.push(ReadyTool::new(Arc::new(tool)));
    }
    made
}

fn call_obstacle(offer: &Offer) -> Option<&'static str> {
    let mark = offer.meta.as_ref().and_then(|meta| meta.0.get(DEMANDS_TASK_FIELD));
    let is_marked = mark == Some(&Value::Bool(true));
    is_marked.then_some("it demands a task (`execution.taskSupport`), which is not supported")
}

/// Returns the definition of an offered tool, or the reason why it cannot be listed. `index` is its
/// position in the server's list.
fn tool_definition(
    set: &ToolSetName,
    index: usize,
    offer: Offer,
) -> Result<ToolDefinition, String> {
    let name: Result<ToolName, _> = offer.name.parse();
    let name = name.map_err(|err| name_complaint(index, &offer.name, &err))?;
    let obstacle = call_obstacle(&offer);
    let about: String = offer.description.map(Into::into).or(offer.title).unwrap_or_default();
    let description = match obstacle {
        Some(reason) => format!("{about}\n(It cannot be called: {reason}.)").trim().to_owned(),
        None => about,
    };
    let hints = offer.annotations.unwrap_or_default();
    let effect = match (hints.read_only_hint, hints.idempotent_hint) {
        (Some(true), _) => Effect::Read,
        (_, Some(true)) => Effect::Idempotent,
        _ => Effect::Once,
    };
    Ok(ToolDefinition {
        name,
        set: set.clone(),
        description,
        input_schema: Value::Object(Arc::unwrap_or_clone(offer.input_schema)),
        output_schema: offer
            .output_schema
            .map(|schema| Value::Object(Arc::unwrap_or_clone(schema))),
        effect,
        examples: read_examples(offer.meta.as_ref()),
        is_callable: obstacle.is_none(),
    })
}

/// Describes an invalid name of a tool. The message gives the position in the list, because the
/// name may be empty or huge.
fn name_complaint(index: usize, name: &str, err: &ParseIdError) -> String {
    let which = index + 1;
    if name.is_empty() {
        return format!("tool {which} of the server has an empty name: let the server name it");
    }
    format!("the name of tool {which} of the server cannot be used: {err}")
}

/// The field of a tool's `_meta` with example requests of users. MCP has no field of its own for
/// examples.
pub const EXAMPLES_FIELD: &str = "faber/examples";
const MAX_EXAMPLES: usize = 100;

fn read_examples(meta: Option<&MetaObject>) -> Vec<String> {
    let written =
        meta.and_then(|meta| meta.0.get(EXAMPLES_FIELD)?.as_array()).into_iter().flatten();
    let texts = written.filter_map(Value::as_str).filter(|text| text.len() <= limits::TEXT_BYTES);
    texts.take(MAX_EXAMPLES).map(str::to_owned).collect()
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        if let Some(reason) = self.obstacle {
            let message = format!("`{}` cannot be called: {reason}", self.definition.name);
            return Err(ToolError::new(ErrorCode::UNAVAILABLE, message).without_retry());
        }
        let request = self.build_request(Arc::unwrap_or_clone(parameters), &cx)?;
        // Dropping a running call sends a cancel notification to the server.
        let output = tokio::select! {
            biased;
            result = self.call_server(request, &cx.reporter) => result?,
            () = cx.cancel.cancelled() => {
                let message = format!("the call of `{}` was cancelled", self.definition.qualified_name());
                return Err(ToolError::new(ErrorCode::CANCELLED, message).with_unknown_outcome());
            }
        };
        let owner = cx.call.map(|call| call.execution);
        blobs::store_binaries(cx.blobs.as_ref(), owner, output.value, output.binaries).await
    }
}

impl McpTool {
    fn build_request(
        &self,
        parameters: Value,
        cx: &ToolContext,
    ) -> Result<CallToolRequestParams, ToolError> {
        let Value::Object(arguments) = parameters else {
            let message = "the parameters of an MCP tool must be a JSON object";
            return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, message));
        };
        let name = self.definition.name.as_str().to_owned();
        let mut request = CallToolRequestParams::new(name).with_arguments(arguments);
        if let Some(Value::Object(meta)) =
            cx.idempotency_key().map(|key| json!({ "faber/idempotencyKey": key }))
        {
            request.meta = Some(meta.into());
        }
        Ok(request)
    }

    /// Calls the server. If the session was lost, calls it again, unless a second call could have a
    /// second effect.
    async fn call_server(
        &self,
        request: CallToolRequestParams,
        reporter: &Reporter,
    ) -> Result<Output, ToolError> {
        let session = self.availability.wait_for_session().await?;
        let lost = match session
            .call_tool(request.clone(), self.output_schema(), reporter.clone())
            .await
        {
            Ok(answer) => return answer,
            Err(lost) => lost,
        };
        if lost == LostCall::Sent && self.definition.effect == Effect::Once {
            return Err(self
                .lost_error(&session, ErrorCode::OUTCOME_UNKNOWN)
                .with_unknown_outcome());
        }
        let session = self.availability.wait_for_session().await?;
        match session.call_tool(request, self.output_schema(), reporter.clone()).await {
            Ok(answer) => answer,
            Err(LostCall::Unsent) => Err(self.lost_error(&session, ErrorCode::UNAVAILABLE)),
            Err(LostCall::Sent) => {
                Err(self.lost_error(&session, self.lost_error_code()).with_unknown_outcome())
            }
        }
    }

    fn output_schema(&self) -> Option<&Schema> {
        let make = || {
            let made = Schema::new(self.definition.output_schema.as_ref()?);
            made.inspect_err(|error| {
                let name = self.definition.qualified_name();
                tracing::warn!(%name, %error, "ignored the invalid `outputSchema` of a tool");
            })
            .ok()
        };
        self.output_schema.get_or_init(make).as_ref()
    }

    fn lost_error_code(&self) -> ErrorCode {
        match self.definition.effect {
            Effect::Once => ErrorCode::OUTCOME_UNKNOWN,
            Effect::Read | Effect::Idempotent => ErrorCode::UNAVAILABLE,
        }
    }

    fn lost_error(&self, session: &Session, code: ErrorCode) -> ToolError {
        let (name, set) = (self.definition.qualified_name(), &self.definition.set);
        let ended = session.loss_verb();
        let reason = format!("the MCP server of `{set}` {ended} while `{name}` was called");
        if code == ErrorCode::OUTCOME_UNKNOWN {
            return ToolError::outcome_unknown(&reason);
        }
        ToolError::new(code, reason)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, ServerResult};

    use super::*;

    fn make_test_tools(offers: Vec<Offer>) -> SourceTools {
        let (set, rules) =
            ("s".parse().unwrap(), json!({ "find_*": "read", "s.pay": "idempotent" }));
        let rules = serde_json::from_value(rules).unwrap();
        make_tools(&set, &rules, &Arc::new(Availability::new()), offers)
    }

    fn offer(name: &str, annotations: &Value) -> Offer {
        let offer = json!({ "name": name, "inputSchema": {}, "annotations": annotations });
        serde_json::from_value(offer).unwrap()
    }

    #[test]
    fn configured_effects_override_annotations() {
        let says_once = json!({ "readOnlyHint": false, "idempotentHint": false });
        let made = make_test_tools(vec![
            offer("find_customer", &says_once),
            offer("pay", &Value::Null),
            offer("look", &json!({ "readOnlyHint": true })),
            offer("send", &Value::Null),
        ]);
        let effects = made.tools.iter().map(|tool| tool.definition().effect);
        let expected = [Effect::Read, Effect::Idempotent, Effect::Read, Effect::Once];
        assert_eq!(effects.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_tool_with_an_invalid_name_is_skipped_with_a_warning() {
        let made = make_test_tools(vec![
            offer("", &Value::Null),
            offer("good", &Value::Null),
            offer(&"x".repeat(100_000), &Value::Null),
        ]);
        assert_eq!(made.tools.len(), 1);
        let [empty, huge] = &made.left_out[..] else { panic!("{:?}", made.left_out) };
        assert_eq!(empty, "tool 1 of the server has an empty name: let the server name it");
        assert!(
            huge.starts_with("the name of tool 3 of the server cannot be used: `xxx"),
            "{huge}"
        );
        assert!(huge.len() < 400, "{huge}");
    }

    #[test]
    fn the_first_of_two_tools_with_one_name_is_kept() {
        let offers = [("dup", "one"), ("s.dup", "two"), ("dup", "three"), ("other", "four")];
        let offers = offers.map(|(name, description)| -> Offer {
            let offer = json!({ "name": name, "description": description, "inputSchema": {} });
            serde_json::from_value(offer).unwrap()
        });
        let kept = make_test_tools(offers.into()).tools;
        let kept: Vec<_> = kept.iter().map(|tool| tool.definition().description.as_str()).collect();
        assert_eq!(kept, ["one", "four"]);
    }

    #[test]
    fn a_tool_that_requires_tasks_is_listed_and_not_callable() {
        let tool = |name: &str, execution: Value| json!({ "name": name, "description": "Does.", "inputSchema": {}, "execution": execution });
        let listed = [
            tool("must", json!({ "taskSupport": "required" })),
            tool("may", json!({ "taskSupport": "optional" })),
            tool("odd", json!("taskSupport")),
        ];
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": listed } });
        let Some(JsonRpcMessage::Response(answer)) =
            message::parse_message(answer.to_string().as_bytes())
        else {
            panic!("no answer")
        };
        let ServerResult::ListToolsResult(listed) = answer.result else { panic!("no list") };
        let tools = make_test_tools(listed.tools).tools;
        let texts = tools.iter().map(|tool| {
            let about = tool.definition();
            (about.is_callable, about.description.as_str())
        });
        let reason = "Does.\n(It cannot be called: it demands a task (`execution.taskSupport`), which is not supported.)";
        let expected = [(false, reason), (true, "Does."), (true, "Does.")];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}
