//! Toolsets of GraphQL endpoints: each query and each mutation is a tool.

mod answer;
mod arguments;
mod introspection;
mod select;
mod tool;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use http_client::{AddressScope, OutgoingRequest, ServerUrl, parse_header};
use reqwest::{
    Method,
    header::{self, HeaderValue},
};
use secrets::{Redaction, TextOrSecret};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolError},
};
use toolbox::{Tool, effect_rules::EffectRules};

use self::{
    introspection::{INTROSPECTION_QUERY, Types},
    tool::tools,
};
use super::offer::{OfferSource, include_filter};
use crate::http::{Caller, answer::call_error, resolve_headers};

/// Maximum bytes of a schema. The largest published schemas have a third of this size.
const MAX_SCHEMA_BYTES: usize = 32 << 20;
/// The greatest `depth`. Each level multiplies the size of the selection.
const MAX_DEPTH: usize = 6;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphQlConfig {
    url: ServerUrl,
    #[serde(default)]
    headers: BTreeMap<String, TextOrSecret>,
    /// A token for the header `Authorization: Bearer …`.
    auth: Option<TextOrSecret>,
    #[serde(default = "default_depth")]
    depth: usize,
    /// Globs of the names of the wanted tools. By default all tools are wanted.
    #[serde(default)]
    include: Vec<String>,
    timeout_seconds: Option<u64>,
}

impl GraphQlConfig {
    pub(super) fn texts(&self) -> Vec<&TextOrSecret> {
        self.headers.values().chain(&self.auth).collect()
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        self.headers.values_mut().chain(&mut self.auth).collect()
    }
}

fn default_depth() -> usize {
    2
}

#[derive(Debug)]
struct Endpoint {
    config: GraphQlConfig,
    caller: Caller,
    effects: EffectRules,
}

impl Endpoint {
    fn request(
        &self,
        query: &str,
        variables: &Value,
        redaction: &mut Redaction,
    ) -> Result<OutgoingRequest, ToolError> {
        let mut headers = resolve_headers(&self.config.headers, redaction)?;
        if let Some(auth) = &self.config.auth {
            let token = format!("Bearer {}", auth.resolve(redaction)?);
            let (name, value) = parse_header("authorization", &token)
                .map_err(|error| ToolError::failed(error).without_retry())?;
            headers.insert(name, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = "application/graphql-response+json, application/json;q=0.9";
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static(accept));
        let body = json!({ "query": query, "variables": variables }).to_string().into_bytes();
        let url = self.config.url.0.clone();
        Ok(OutgoingRequest {
            method: Method::POST,
            url,
            headers,
            body: Some(body),
            reach: AddressScope::Anywhere,
        })
    }

    async fn fetch_schema(&self) -> Result<Value, ToolError> {
        let mut redaction = Redaction::default();
        let request = self.request(INTROSPECTION_QUERY, &json!({}), &mut redaction)?;
        let sent = self.caller.http.send(request, MAX_SCHEMA_BYTES).await;
        let reply = sent.map_err(|broken| call_error(&broken, Effect::Read, &redaction))?;
        answer::read_data(reply, "__schema", Effect::Read, MAX_SCHEMA_BYTES, &redaction)
    }
}

#[async_trait]
impl OfferSource for GraphQlConfig {
    async fn tools(
        &self,
        set: &ToolSetName,
        effects: &EffectRules,
        max_bytes: usize,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        if self.depth > MAX_DEPTH {
            return Err(format!(
                "`depth` is at most {MAX_DEPTH}, because each level multiplies the size of the query"
            ));
        }
        let is_wanted = include_filter(&self.include)?;
        let caller = Caller::new(max_bytes, self.timeout_seconds);
        let endpoint =
            Arc::new(Endpoint { config: self.clone(), caller, effects: effects.clone() });
        let schema = endpoint
            .fetch_schema()
            .await
            .map_err(|err| format!("the endpoint does not return its schema: {}", err.message))?;
        let set = set.clone();
        // Reads the schema on a blocking thread, because thousands of types would block the
        // runtime.
        let reading = tokio::task::spawn_blocking(move || {
            let types = Types::read(schema)?;
            tools(&set, &endpoint, &types, &is_wanted)
        });
        reading.await.map_err(|_| "the schema could not be read: this is a bug".to_owned())?
    }
}

#[cfg(test)]
mod tests;
