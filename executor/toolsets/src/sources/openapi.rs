//! Toolsets of OpenAPI 3.0 and 3.1 documents: each operation is a tool. An operation that cannot be
//! read or called does not affect other operations.

mod body;
mod document;
mod operation;
mod parameter;
mod schema;
mod security;
mod tool;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use http_client::{AddressScope, Http, OutgoingRequest, ServerUrl, host};
use nix::libc;
use reqwest::{Method, Url, header::HeaderMap};
use secrets::TextOrSecret;
use serde::Deserialize;
use shared::id::ToolSetName;
use tokio::{fs::OpenOptions, io::AsyncReadExt as _};
use toolbox::{Tool, effect_rules::EffectRules};

use self::{document::Document, operation::operations, security::Credential, tool::Api};
use super::offer::{OfferSource, include_filter};
use crate::http::Caller;

/// Maximum bytes of a document. The largest published documents have a third of this size.
const MAX_DOCUMENT_BYTES: usize = 32 << 20;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenApiConfig {
    /// The document: a file, or an address.
    document: String,
    /// The address of the API. By default the document's own servers are used.
    base_url: Option<ServerUrl>,
    #[serde(default)]
    headers: BTreeMap<String, TextOrSecret>,
    #[serde(default)]
    auth: BTreeMap<String, Credential>,
    /// Globs of the names of the wanted tools. By default all tools are wanted.
    #[serde(default)]
    include: Vec<String>,
    /// If not empty, only operations with one of these tags become tools.
    #[serde(default)]
    tags: Vec<String>,
    timeout_seconds: Option<u64>,
}

impl OpenApiConfig {
    pub(super) fn texts(&self) -> Vec<&TextOrSecret> {
        self.headers.values().chain(self.auth.values().flat_map(Credential::texts)).collect()
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        let credentials = self.auth.values_mut().flat_map(Credential::texts_mut);
        self.headers.values_mut().chain(credentials).collect()
    }

    pub(super) fn resolve_path(&mut self, base: &Path) {
        if !is_address(&self.document) {
            self.document = base.join(&self.document).display().to_string();
        }
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        (!is_address(&self.document)).then(|| PathBuf::from(&self.document))
    }
}

fn is_address(document: &str) -> bool {
    document.starts_with("http://") || document.starts_with("https://")
}

/// Reads a document on this machine. Refuses everything except a regular file, because reading from
/// a pipe or a device may never end.
async fn read_file(document: &str) -> Result<Vec<u8>, String> {
    let about = |err: io::Error| format!("the document `{document}` cannot be read: {err}");
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(document).await;
    let file = file.map_err(about)?;
    if !file.metadata().await.map_err(about)?.is_file() {
        return Err(format!("the document `{document}` is not a file"));
    }
    let mut text = Vec::new();
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut text).await.map_err(about)?;
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(format!("the document `{document}` has more than {MAX_DOCUMENT_BYTES} bytes"));
    }
    Ok(text)
}

async fn load_document(document: &str) -> Result<(Vec<u8>, Option<Url>), String> {
    if !is_address(document) {
        return Ok((read_file(document).await?, None));
    }
    let url: Url =
        document.parse().map_err(|err| format!("`{document}` is not an address: {err}"))?;
    let request = OutgoingRequest {
        method: Method::GET,
        url: url.clone(),
        headers: HeaderMap::new(),
        body: None,
        reach: AddressScope::Anywhere,
    };
    let reply =
        Http::default().send(request, MAX_DOCUMENT_BYTES).await.map_err(|err| err.to_string())?;
    let host = host(&url);
    if !reply.status.is_success() {
        return Err(format!("`{host}` has no document at this URL: it answered {}", reply.status));
    }
    if reply.is_cut {
        return Err(format!("the document of `{host}` has more than {MAX_DOCUMENT_BYTES} bytes"));
    }
    Ok((reply.body, Some(url)))
}

#[async_trait]
impl OfferSource for OpenApiConfig {
    async fn tools(
        &self,
        set: &ToolSetName,
        effects: &EffectRules,
        max_bytes: usize,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        let (text, document_url) = load_document(&self.document).await?;
        let (set, effects, config) = (set.clone(), effects.clone(), self.clone());
        // Reads the document on a blocking thread, because thousands of operations would block the
        // runtime.
        let read = tokio::task::spawn_blocking(move || {
            read_tools(&set, effects, &config, max_bytes, &text, document_url)
        });
        read.await.map_err(|_| "the document could not be read: this is a bug".to_owned())?
    }
}

fn read_tools(
    set: &ToolSetName,
    effects: EffectRules,
    config: &OpenApiConfig,
    max_bytes: usize,
    text: &[u8],
    document_url: Option<Url>,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let document = Document::parse(text)?;
    let is_wanted = include_filter(&config.include)?;
    let schemes = security::find_schemes(&document, &config.auth)?;
    let api = Arc::new(Api {
        caller: Caller::new(max_bytes, config.timeout_seconds),
        headers: config.headers.clone(),
        auth: config.auth.clone(),
        schemes,
        effects,
    });
    let servers =
        document::Servers { base: config.base_url.clone().map(|url| url.0), document_url };
    let tools = operations(set, &document, &servers, &api.auth, &config.tags)?
        .into_iter()
        .filter(|operation| is_wanted(&operation.name))
        .filter_map(|operation| tool::make_tool(set, &api, operation));
    Ok(tools.collect())
}

#[cfg(test)]
mod tests;
