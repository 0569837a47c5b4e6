//! What a server may ask of us: which folders to work in, and nothing else.
#![expect(deprecated, reason = "newer drafts of MCP have no roots; the servers that there are do")]

use std::{path::PathBuf, sync::Arc};

use reqwest::Url;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, Implementation, ListRootsResult, Root, RootsCapabilities,
    },
    service::{NotificationContext, RequestContext, RoleClient},
};
use tokio::sync::Notify;

/// Answers a server, and hears that its tools have changed.
#[derive(Clone)]
pub(super) struct Handler {
    changed: Arc<Notify>,
    roots: Vec<Root>,
}

impl Handler {
    /// Makes a handler that tells of these folders and notifies `changed`.
    pub(super) fn new(changed: Arc<Notify>, roots: &[PathBuf]) -> Self {
        Self { changed, roots: roots.iter().filter_map(root).collect() }
    }
}

/// Returns a folder as MCP writes it: an address of the file system, with its own name.
fn root(folder: &PathBuf) -> Option<Root> {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder)).ok()?;
    let uri = Url::from_file_path(&whole).ok()?;
    let name = whole.file_name().map(|it| it.to_string_lossy().into_owned());
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
        ClientConfig::new(able, us)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        Ok(ListRootsResult::new(self.roots.clone()))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_told_as_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().canonicalize().unwrap().join("größe 1");
        std::fs::create_dir(&own).unwrap();
        let told = root(&own.join("../größe 1/.")).unwrap();
        assert!(told.uri.starts_with("file:///") && told.uri.ends_with("/gr%C3%B6%C3%9Fe%201"));
        assert_eq!(told.name.as_deref(), Some("größe 1"));
        let handler = Handler::new(Arc::default(), &[own]);
        assert!(handler.get_info().capabilities.roots.is_some());
        assert!(Handler::new(Arc::default(), &[]).get_info().capabilities.roots.is_none());
    }
}
