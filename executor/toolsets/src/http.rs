//! Tools that are HTTP calls.

pub(crate) mod answer;
mod request;
mod traced;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http_client::{Http, HttpReply, OutgoingRequest, host};
use reqwest::{Method, header::HeaderValue};
use secrets::Redaction;
use serde::Deserialize;
use serde_json::Value;
use shared::tool::{Effect, ErrorCode, ToolDefinition, ToolError};
use tokio::time::timeout;
use toolbox::{Tool, ToolContext};

use self::answer::{call_error, read_output};
pub use self::request::HttpRun;
pub(crate) use self::request::{encode_form, invalid_parameters_error, resolve_headers};

/// The header by which a server recognizes a repeated call.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    #[default]
    Get,
    Head,
    Options,
    Put,
    Delete,
    Post,
    Patch,
}

impl HttpMethod {
    /// Returns the effect that RFC 9110 gives to the method.
    pub fn effect(self) -> Effect {
        match self {
            Self::Get | Self::Head | Self::Options => Effect::Read,
            Self::Put | Self::Delete => Effect::Idempotent,
            Self::Post | Self::Patch => Effect::Once,
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Head => Method::HEAD,
            Self::Options => Method::OPTIONS,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
            Self::Post => Method::POST,
            Self::Patch => Method::PATCH,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) http: Arc<Http>,
    pub(crate) max_bytes: usize,
    /// Time limit for a response. The step's timeout may be shorter.
    pub(crate) timeout: Option<Duration>,
}

impl Caller {
    pub(crate) fn new(max_bytes: usize, seconds: Option<u64>) -> Self {
        Self { http: Arc::default(), max_bytes, timeout: seconds.map(Duration::from_secs) }
    }

    /// Sends a request for a tool and waits for the response, the time limit or the cancellation.
    pub(crate) async fn call(
        &self,
        tool: &ToolDefinition,
        mut request: OutgoingRequest,
        cx: &ToolContext,
        redaction: &Redaction,
    ) -> Result<HttpReply, ToolError> {
        if tool.effect != Effect::Read
            && let Some(key) = cx.idempotency_key()
            && let Ok(key) = HeaderValue::from_str(&key)
        {
            request.headers.entry(IDEMPOTENCY_KEY).or_insert(key);
        }
        let host = host(&request.url);
        let sent = async {
            let sending = traced::send_request(&self.http, request, self.max_bytes);
            match self.timeout {
                Some(limit) => timeout(limit, sending).await,
                None => Ok(sending.await),
            }
        };
        tokio::select! {
            biased;
            sent = sent => match sent {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(broken)) => Err(call_error(&broken, tool.effect, redaction)),
                Err(_) => {
                    let seconds = self.timeout.unwrap_or_default().as_secs();
                    let message = format!("`{host}` did not answer within {seconds} s");
                    Err(ToolError::new(ErrorCode::TIMEOUT, message).with_unknown_outcome())
                }
            },
            () = cx.cancel.cancelled() => {
                let message = format!("the call of `{}` was cancelled", tool.qualified_name());
                Err(ToolError::new(ErrorCode::CANCELLED, message).with_unknown_outcome())
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct HttpTool {
    definition: Arc<ToolDefinition>,
    run: HttpRun,
    caller: Caller,
}

impl HttpTool {
    pub(crate) fn new(definition: ToolDefinition, run: HttpRun, max_bytes: usize) -> Self {
        let caller = Caller::new(max_bytes, run.timeout_seconds);
        Self { definition: Arc::new(definition), run, caller }
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let mut redaction = Redaction::default();
        let request = self.run.build_request(&parameters, &mut redaction)?;
        let reply = self.caller.call(&self.definition, request, &cx, &redaction).await?;
        read_output(reply, self.definition.effect, self.caller.max_bytes, &redaction)
    }
}

#[cfg(test)]
pub(crate) mod tests;
