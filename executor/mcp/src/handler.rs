//! Answers the requests of a server: for its roots and, if the configuration allows it, for input.
#![expect(deprecated, reason = "newer drafts of MCP have no roots; the servers that there are do")]

use std::{path::PathBuf, sync::Arc};

use reqwest::Url;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, FormElicitationCapability, Implementation, ListRootsResult,
        ProtocolVersion, Root, RootsCapabilities,
    },
    service::{NotificationContext, RequestContext, RoleClient},
};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::{Elicitation, McpServer};

/// Answers a server's requests, and receives its notifications about changed tools.
#[derive(Clone)]
pub(super) struct Handler {
    changed: Arc<Notify>,
    roots: Vec<Root>,
    elicitation: Option<Elicitation>,
}

impl Handler {
    /// Creates a handler that notifies `changed` when the server's tools have changed.
    pub(super) fn new(changed: Arc<Notify>, spec: &McpServer) -> Self {
        let roots = spec.roots().iter().filter_map(to_root).collect();
        Self { changed, roots, elicitation: spec.elicitation() }
    }
}

/// Returns the defaults of a form, or `None` if a required field has no default.
fn form_defaults(form: &Value) -> Option<Map<String, Value>> {
    let fields = form.get("properties").and_then(Value::as_object)?;
    let filled: Map<String, Value> = fields
        .iter()
        .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
        .collect();
    let mut needed = form.get("required").and_then(Value::as_array).into_iter().flatten();
    needed.all(|name| name.as_str().is_some_and(|name| filled.contains_key(name))).then_some(filled)
}

/// Converts a folder to an MCP root: a `file` URL and a name.
fn to_root(folder: &PathBuf) -> Option<Root> {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder)).ok()?;
    let uri = Url::from_file_path(&whole).ok()?;
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    let root = Root::new(uri);
    Some(match name {
        Some(name) => root.with_name(name),
        None => root,
    })
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("faber", env!("CARGO_PKG_VERSION"));
        let mut able = ClientCapabilities::default();
        if !self.roots.is_empty() {
            able.roots = Some(RootsCapabilities::default());
        }
        if self.elicitation.is_some() {
            let form = FormElicitationCapability::default();
            able.elicitation = Some(ElicitationCapability::default().with_form(form));
        }
        // Later versions of the protocol have no `initialize` request.
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientConfig::new(able, us).with_protocol_version(version)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        Ok(ListRootsResult::new(self.roots.clone()))
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let Some(Elicitation::Defaults) = self.elicitation else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        // A URL needs a person who opens it, and there is none here.
        let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = asked else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let form = serde_json::to_value(requested_schema).unwrap_or_default();
        Ok(match form_defaults(&form) {
            Some(filled) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(filled))
            }
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roots_are_told_as_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().canonicalize().unwrap().join("größe 1");
        std::fs::create_dir(&own).unwrap();
        let told = to_root(&own.join("../größe 1/.")).unwrap();
        assert!(told.uri.starts_with("file:///") && told.uri.ends_with("/gr%C3%B6%C3%9Fe%201"));
        assert_eq!(told.name.as_deref(), Some("größe 1"));
        let able = able(json!({ "command": "x", "roots": [own] }));
        assert!(able.roots.is_some() && able.elicitation.is_none());
    }

    fn able(spec: Value) -> ClientCapabilities {
        let spec: McpServer = serde_json::from_value(spec).unwrap();
        Handler::new(Arc::default(), &spec).get_info().capabilities
    }

    #[test]
    fn nobody_may_ask_for_what_the_configuration_does_not_name() {
        let able = |spec| serde_json::to_value(able(spec)).unwrap();
        assert_eq!(able(json!({ "command": "x" })), json!({}));
        let input = json!({ "url": "http://a/mcp", "elicitation": "defaults" });
        assert_eq!(able(input), json!({ "elicitation": { "form": {} } }));
    }

    #[test]
    fn the_version_that_is_offered_has_a_greeting() {
        let spec = serde_json::from_value(json!({ "command": "x" })).unwrap();
        let info = Handler::new(Arc::default(), &spec).get_info();
        assert!(info.protocol_version.has_initialize());
    }

    #[test]
    fn defaults_are_all_that_a_form_may_need() {
        let form = |required: Value| {
            json!({
                "properties": { "a": { "type": "integer", "default": 0 }, "b": { "type": "string" } },
                "required": required,
            })
        };
        let filled = json!({ "a": 0 }).as_object().cloned();
        assert_eq!(form_defaults(&form(json!(["a"]))), filled);
        assert_eq!(form_defaults(&form(json!([]))), filled);
        assert_eq!(form_defaults(&form(json!(["b"]))), None);
        assert_eq!(form_defaults(&json!({ "required": ["c"] })), None);
    }
}
