//! Toolsets of OpenAPI 3.0 and 3.1 documents: each operation is a tool.
//!
//! What a document says is believed as far as it can be: an operation that cannot be read is left
//! out with a warning, one that cannot be called says so, and no document takes the others down.

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
use http_client::{Http, Outgoing, Reach, ServerUrl, host};
use nix::libc;
use reqwest::{Method, Url, header::HeaderMap};
use secrets::Text;
use serde::Deserialize;
use shared::id::ToolSetName;
use tokio::{fs::OpenOptions, io::AsyncReadExt as _};
use toolbox::Tool;

use self::{document::Document, operation::operations, security::Credential, tool::Api};
use super::offer::{Offers, included};
use crate::http::Caller;

/// Bytes of a document: the largest that are published have a third of it.
const DOCUMENT: usize = 32 << 20;

/// An API, as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenApiConfig {
    /// The document: a file, or an address.
    document: String,
    /// The address of the API. By default that of the document.
    base_url: Option<ServerUrl>,
    /// Headers of every call.
    #[serde(default)]
    headers: BTreeMap<String, Text>,
    /// Credentials for the document's security schemes, by name.
    #[serde(default)]
    auth: BTreeMap<String, Credential>,
    /// The tools that are wanted, as globs of their names.
    #[serde(default)]
    include: Vec<String>,
    /// The tags of which a tool must have one.
    #[serde(default)]
    tags: Vec<String>,
    /// Time limit for an answer.
    timeout_seconds: Option<u64>,
}

impl OpenApiConfig {
    /// Returns the secrets that the API is told.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let headers = self.headers.values().filter_map(Text::secret);
        headers.chain(self.auth.values().flat_map(Credential::secrets)).collect()
    }

    /// Resolves the document's path against a folder.
    pub(super) fn root(&mut self, base: &Path) {
        if !is_address(&self.document) {
            self.document = base.join(&self.document).display().to_string();
        }
    }

    /// Returns the document, where that is a file.
    pub(super) fn file(&self) -> Option<PathBuf> {
        (!is_address(&self.document)).then(|| PathBuf::from(&self.document))
    }
}

fn is_address(document: &str) -> bool {
    document.starts_with("http://") || document.starts_with("https://")
}

/// Reads a document on this machine. Nothing but a file: the rest may never end, or never begin.
async fn read_file(document: &str) -> Result<Vec<u8>, String> {
    let about = |err: io::Error| format!("the document `{document}` cannot be read: {err}");
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(document).await;
    let file = file.map_err(about)?;
    if !file.metadata().await.map_err(about)?.is_file() {
        return Err(format!("the document `{document}` is no file"));
    }
    let mut text = Vec::new();
    file.take(DOCUMENT as u64 + 1).read_to_end(&mut text).await.map_err(about)?;
    if text.len() > DOCUMENT {
        return Err(format!("the document `{document}` has more than {DOCUMENT} bytes"));
    }
    Ok(text)
}

/// An API whose document is asked for.
#[derive(Debug)]
pub(super) struct OpenApiSource {
    set: ToolSetName,
    config: OpenApiConfig,
    most: usize,
}

impl OpenApiSource {
    pub(super) fn new(set: ToolSetName, config: OpenApiConfig, most: usize) -> Self {
        Self { set, config, most }
    }

    /// Returns the document's text, and where it is if that is an address.
    async fn load(&self) -> Result<(Vec<u8>, Option<Url>), String> {
        let document = &self.config.document;
        if !is_address(document) {
            return Ok((read_file(document).await?, None));
        }
        let url: Url =
            document.parse().map_err(|err| format!("`{document}` is no address: {err}"))?;
        let asked = Outgoing {
            method: Method::GET,
            url: url.clone(),
            headers: HeaderMap::new(),
            body: None,
            reach: Reach::Anywhere,
        };
        let reply = Http::default().send(asked, DOCUMENT).await.map_err(|err| err.to_string())?;
        let host = host(&url);
        if !reply.status.is_success() {
            return Err(format!("`{host}` has no document there: it answered {}", reply.status));
        }
        if reply.is_cut {
            return Err(format!("the document of `{host}` has more than {DOCUMENT} bytes"));
        }
        Ok((reply.body, Some(url)))
    }
}

#[async_trait]
impl Offers for OpenApiSource {
    async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, String> {
        let (text, from) = self.load().await?;
        let (set, config, most) = (self.set.clone(), self.config.clone(), self.most);
        // Thousands of operations take a while; nobody else should wait.
        let read = tokio::task::spawn_blocking(move || read(&set, &config, most, &text, from));
        read.await.map_err(|_| "the document could not be read: this is a bug".to_owned())?
    }
}

/// Reads a document into tools.
fn read(
    set: &ToolSetName,
    config: &OpenApiConfig,
    most: usize,
    text: &[u8],
    from: Option<Url>,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let document = Document::parse(text)?;
    let is_wanted = included(&config.include)?;
    let schemes = security::schemes(&document, &config.auth)?;
    let api = Arc::new(Api {
        caller: Caller::new(most, config.timeout_seconds),
        headers: config.headers.clone(),
        auth: config.auth.clone(),
        schemes,
    });
    let servers = document::Servers { base: config.base_url.clone().map(|it| it.0), from };
    let tools = operations(set, &document, &servers, &api.auth, &config.tags)?
        .into_iter()
        .filter(|it| is_wanted(&it.name))
        .filter_map(|it| tool::make(set, &api, it));
    Ok(tools.collect())
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
