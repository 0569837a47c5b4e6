//! Toolsets of GraphQL endpoints: each query and each mutation is a tool.
//!
//! The endpoint is asked for its schema. A tool takes the field's arguments and answers what is in
//! `data` under the field's name, selected as [`select`] says. Errors are a failure, whatever data
//! comes with them.

mod answer;
mod arguments;
mod introspection;
mod select;
mod tool;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use http_client::{Outgoing, Reach, ServerUrl, header_of};
use reqwest::{
    Method,
    header::{self, HeaderValue},
};
use secrets::{Redaction, Text};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolError},
};
use toolbox::Tool;

use self::{
    introspection::{QUERY, Types},
    tool::tools,
};
use super::offer::{Offers, included};
use crate::http::{Caller, fixed};

/// Bytes of a schema, as introspection answers it: the largest that are published have a third.
const SCHEMA: usize = 32 << 20;
/// The deepest selection that can be asked for: each level multiplies.
const DEPTH: usize = 6;

/// An endpoint, as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphQlConfig {
    /// Its address.
    url: ServerUrl,
    /// Headers of every request.
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    /// A token, which goes into `Authorization: Bearer …`.
    auth: Option<Text>,
    /// The depth to which objects are selected.
    #[serde(default = "two")]
    depth: usize,
    /// The tools that are wanted, as globs of their names.
    #[serde(default)]
    include: Vec<String>,
    /// Time limit for an answer.
    timeout_seconds: Option<u64>,
}

impl GraphQlConfig {
    /// Returns the secrets that the endpoint is told.
    pub(super) fn secrets(&self) -> Vec<&str> {
        self.headers.values().chain(&self.auth).filter_map(Text::secret).collect()
    }
}

fn two() -> usize {
    2
}

/// An endpoint that is asked for its schema.
#[derive(Debug)]
pub(super) struct GraphQlSource {
    set: ToolSetName,
    endpoint: Arc<Endpoint>,
}

/// State that all tools of an endpoint share.
#[derive(Debug)]
struct Endpoint {
    config: GraphQlConfig,
    caller: Caller,
}

impl Endpoint {
    /// Makes the request of a document and its variables.
    fn request(
        &self,
        query: &str,
        variables: &Value,
        seen: &mut Redaction,
    ) -> Result<Outgoing, ToolError> {
        let mut headers = fixed(&self.config.headers, seen)?;
        if let Some(auth) = &self.config.auth {
            let token = format!("Bearer {}", auth.resolve(seen)?);
            let (name, value) = header_of("authorization", &token)
                .map_err(|why| ToolError::failed(why).without_retry())?;
            headers.insert(name, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = "application/graphql-response+json, application/json;q=0.9";
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static(accept));
        let body = json!({ "query": query, "variables": variables }).to_string().into_bytes();
        let url = self.config.url.0.clone();
        Ok(Outgoing {
            method: Method::POST,
            url,
            headers,
            body: Some(body),
            reach: Reach::Anywhere,
        })
    }
}

impl GraphQlSource {
    pub(super) fn new(set: ToolSetName, config: GraphQlConfig, most: usize) -> Self {
        let caller = Caller::new(most, config.timeout_seconds);
        Self { set, endpoint: Arc::new(Endpoint { config, caller }) }
    }

    async fn schema(&self) -> Result<Value, ToolError> {
        let mut seen = Redaction::default();
        let asked = self.endpoint.request(QUERY, &json!({}), &mut seen)?;
        let sent = self.endpoint.caller.http.send(asked, SCHEMA).await;
        let failed = |broken| crate::http::answer::failure(&broken, Effect::Read, &seen);
        let reply = sent.map_err(failed)?;
        answer::data(reply, "__schema", Effect::Read, (SCHEMA, &seen))
    }
}

#[async_trait]
impl Offers for GraphQlSource {
    async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, String> {
        if self.endpoint.config.depth > DEPTH {
            return Err(format!("`depth` is at most {DEPTH}: each level multiplies what is asked"));
        }
        let is_wanted = included(&self.endpoint.config.include)?;
        let schema = self
            .schema()
            .await
            .map_err(|err| format!("the endpoint does not tell its schema: {}", err.message))?;
        let (set, endpoint) = (self.set.clone(), Arc::clone(&self.endpoint));
        // A schema may have thousands of types; nobody else should wait.
        let made = tokio::task::spawn_blocking(move || {
            let types = Types::read(schema)?;
            tools(&set, &endpoint, &types, &is_wanted)
        });
        made.await.map_err(|_| "the schema could not be read: this is a bug".to_owned())?
    }
}

#[cfg(test)]
mod tests;
