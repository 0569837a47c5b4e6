use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use http_client::ServerUrl;
use secrets::TextOrSecret;
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::placed_error::{PlacedError, read_placed};

use super::oauth::{self, OAuth};

/// An MCP server. With a `url` it is remote, otherwise a command starts it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub enum McpServer {
    Command(McpCommand),
    Http(McpHttp),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpCommand {
    /// The program. `faber` stands for the running binary.
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Names of additional variables of Faber's environment that the server gets.
    #[serde(default)]
    pub pass: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, TextOrSecret>,
    pub cwd: Option<PathBuf>,
    /// The MCP roots: folders that the server should work in.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// The answer to a request for input. By default, the server is not allowed to request input.
    pub elicitation: Option<Elicitation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpHttp {
    pub(crate) url: ServerUrl,
    /// The transport. By default Faber detects it.
    pub(crate) transport: Option<Transport>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, TextOrSecret>,
    pub(crate) auth: Option<Box<OAuth>>,
    #[serde(default)]
    pub(crate) roots: Vec<PathBuf>,
    /// The answer to a request for input. By default, the server is not allowed to request input.
    pub(crate) elicitation: Option<Elicitation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Transport {
    Http,
    /// HTTP and server-sent events, as before March 2025.
    Sse,
}

/// The automatic answer when a server requests input during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elicitation {
    /// Fills the form with its defaults. Declines if a required field has no default.
    Defaults,
}

impl TryFrom<Map<String, Value>> for McpServer {
    type Error = PlacedError;

    fn try_from(settings: Map<String, Value>) -> Result<Self, Self::Error> {
        let is_remote = settings.contains_key("url");
        let settings = Value::Object(settings);
        if is_remote {
            let server: McpHttp = read_placed(settings)?;
            server.check_auth().map_err(|reason| PlacedError::from_message(&reason))?;
            Ok(Self::Http(server))
        } else {
            read_placed(settings).map(Self::Command)
        }
    }
}

impl McpHttp {
    pub fn oauth(&self) -> Option<&OAuth> {
        self.auth.as_deref()
    }

    /// Rejects settings that conflict with `auth`: an unsafe URL, or a header `Authorization`.
    fn check_auth(&self) -> Result<(), String> {
        if self.auth.is_none() {
            return Ok(());
        }
        oauth::check_server(&self.url.0)?;
        match self.headers.keys().find(|name| name.eq_ignore_ascii_case("authorization")) {
            Some(name) => Err(format!("`auth` sets the header `{name}`: remove it from `headers`")),
            None => Ok(()),
        }
    }
}

impl McpServer {
    pub fn texts(&self) -> Vec<&TextOrSecret> {
        let (texts, auth) = match self {
            Self::Command(command) => (&command.env, None),
            Self::Http(http) => (&http.headers, http.auth.as_deref()),
        };
        texts.values().chain(auth.into_iter().flat_map(OAuth::texts)).collect()
    }

    pub fn texts_mut(&mut self) -> Vec<&mut TextOrSecret> {
        let (texts, auth) = match self {
            Self::Command(command) => (&mut command.env, None),
            Self::Http(http) => (&mut http.headers, http.auth.as_deref_mut()),
        };
        texts.values_mut().chain(auth.into_iter().flat_map(OAuth::texts_mut)).collect()
    }

    pub fn resolve_roots(&mut self, base: &Path) {
        let roots = match self {
            Self::Command(command) => &mut command.roots,
            Self::Http(http) => &mut http.roots,
        };
        for root in roots {
            *root = base.join(&*root);
        }
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        match self {
            Self::Command(command) => &command.roots,
            Self::Http(http) => &http.roots,
        }
    }

    pub(super) fn elicitation(&self) -> Option<Elicitation> {
        match self {
            Self::Command(command) => command.elicitation,
            Self::Http(http) => http.elicitation,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_config_error(settings: Value, expected: Expect) {
        let read = serde_json::from_value::<McpServer>(settings);
        expected.assert_eq(&read.unwrap_err().to_string());
    }

    #[test]
    fn a_server_with_a_url_is_configured_as_http() {
        let settings = json!({
            "url": "https://example.com/mcp",
            "headers": { "authorization": { "secret": "T", "prefix": "Bearer " } },
            "roots": ["./a", "/b"],
            "transport": "sse",
            "elicitation": "defaults",
        });
        let mut server: McpServer = serde_json::from_value(settings).unwrap();
        server.resolve_roots(Path::new("/etc"));
        assert_eq!(server.roots(), [Path::new("/etc/./a"), Path::new("/b")]);
        let McpServer::Http(http) = server else { panic!("the URL has an address") };
        assert_eq!(http.url.0.as_str(), "https://example.com/mcp");
        assert_eq!(http.headers.len(), 1);
        assert_eq!(http.transport, Some(Transport::Sse));
        assert_eq!(http.elicitation, Some(Elicitation::Defaults));
    }

    #[test]
    fn a_wrong_server_configuration_is_explained() {
        check_config_error(json!({}), expect!["missing field `command`"]);
        check_config_error(
            json!({ "url": "http://a/mcp", "command": "x" }),
            expect![
                "`command`: unknown field `command`, expected one of `url`, `transport`, `headers`, `auth`, `roots`, `elicitation`"
            ],
        );
        check_config_error(
            json!({ "url": "http://a/mcp", "transport": "ws" }),
            expect!["`transport`: unknown variant `ws`, expected `http` or `sse`"],
        );
        check_config_error(
            json!({ "url": "ws://a" }),
            expect!["`url`: `ws://a/` is neither `http` nor `https`"],
        );
        check_config_error(
            json!({ "url": "http://10.0.0.1/mcp", "auth": "oauth" }),
            expect![
                "`http://10.0.0.1` is not used: Faber requests tokens by https only, or on this machine"
            ],
        );
        check_config_error(
            json!({ "url": "https://a/mcp", "auth": "oauth", "headers": { "Authorization": "x" } }),
            expect!["`auth` sets the header `Authorization`: remove it from `headers`"],
        );
    }
}
