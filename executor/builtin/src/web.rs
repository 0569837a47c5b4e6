//! The toolset `web_tools`: fetches pages and queries search services.

mod client;
mod html;
mod page;
mod search;

use std::{sync::Arc, time::Duration};

use http_client::net::RefusedUrl;
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use shared::tool::{Effect, ToolError};
use toolbox::{Tool, ToolContext, function};

use self::client::WebClient;

pub const SET: &str = "web_tools";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    pub allow_private: bool,
    pub timeout_seconds: u64,
    /// Maximum number of bytes that are read of a decompressed response.
    pub max_bytes: usize,
    /// URL for web searches. The page must have the format of `DuckDuckGo`'s version without
    /// scripts.
    pub duckduckgo: String,
    /// URL for searches in documentation, in the format of `duckduckgo`.
    pub docs: String,
    pub github: String,
    pub stack_overflow: String,
    /// A wiki that runs `MediaWiki`.
    pub wikipedia: String,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self {
            allow_private: false,
            timeout_seconds: 30,
            max_bytes: 4 << 20,
            duckduckgo: "https://html.duckduckgo.com/html/".to_owned(),
            docs: "https://html.duckduckgo.com/html/".to_owned(),
            github: "https://api.github.com".to_owned(),
            stack_overflow: "https://api.stackexchange.com/2.3".to_owned(),
            wikipedia: "https://en.wikipedia.org".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` of `{SET}`: {refused}")]
pub struct WebConfigError {
    pub name: &'static str,
    pub refused: RefusedUrl,
}

/// Returns the tools. Connects to nothing yet.
pub fn tools(config: &WebConfig) -> Result<Vec<Arc<dyn Tool>>, WebConfigError> {
    let web = Arc::new(WebClient::new(
        config.allow_private,
        Duration::from_secs(config.timeout_seconds),
        config.max_bytes,
    ));
    let services = Arc::new(WebServices::new(config, &web)?);
    let shared = &services;
    Ok(vec![
        make_tool(shared, "docs_search", search::DOCS_DESCRIPTION, search::search_docs),
        make_tool(shared, "fetch_url", page::DESCRIPTION, page::fetch_url),
        make_tool(shared, "github_search", search::GITHUB_DESCRIPTION, search::search_github),
        make_tool(
            shared,
            "stack_overflow_search",
            search::STACK_OVERFLOW_DESCRIPTION,
            search::search_stack_overflow,
        ),
        make_tool(shared, "web_search", search::WEB_DESCRIPTION, search::search_web),
        make_tool(shared, "wiki_lookup", search::WIKI_DESCRIPTION, search::look_up_topic),
    ])
}

fn make_tool<Args, Fut>(
    services: &Arc<WebServices>,
    name: &'static str,
    description: &'static str,
    run: fn(Arc<WebServices>, Args) -> Fut,
) -> Arc<dyn Tool>
where
    Args: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let services = Arc::clone(services);
    function(SET, name, description, Effect::Read, move |args, cx: ToolContext| {
        let request = run(Arc::clone(&services), args);
        async move {
            tokio::select! {
                answer = request => answer,
                () = cx.cancel.cancelled() => {
                    let code = shared::tool::ErrorCode::CANCELLED;
                    Err(ToolError::new(code, format!("`{name}` was cancelled")))
                }
            }
        }
    })
}

#[derive(Debug)]
struct WebServices {
    web: Arc<WebClient>,
    duckduckgo: Url,
    docs: Url,
    github: Url,
    stack_overflow: Url,
    wikipedia: Url,
}

impl WebServices {
    fn new(config: &WebConfig, web: &Arc<WebClient>) -> Result<Self, WebConfigError> {
        let url = |name, text: &str| {
            web.parse_url(text.trim_end_matches('/'))
                .map_err(|refused| WebConfigError { name, refused })
        };
        Ok(Self {
            web: Arc::clone(web),
            duckduckgo: url("duckduckgo", &config.duckduckgo)?,
            docs: url("docs", &config.docs)?,
            github: url("github", &config.github)?,
            stack_overflow: url("stack_overflow", &config.stack_overflow)?,
            wikipedia: url("wikipedia", &config.wikipedia)?,
        })
    }
}

#[cfg(test)]
mod tests;
