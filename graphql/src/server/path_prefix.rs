//! The path below which a proxy shows this server. The server accepts paths with and without the
//! prefix, because a proxy may remove it or keep it.

use std::{fmt, str::FromStr};

use axum::http::{Uri, uri::PathAndQuery};

const MAX_BYTES: usize = 200;

/// The first segments of the server's own paths. A prefix that begins with one of them would be
/// ambiguous, because a proxy may remove it.
pub(crate) const OWN_SEGMENTS: [&str; 21] = [
    ".well-known",
    "approvals",
    "assets",
    "auth",
    "compare",
    "executions",
    "favicon.svg",
    "graphiql",
    "graphql",
    "health",
    "mcp",
    "metrics",
    "new",
    "nodes",
    "plans",
    "requests",
    "saved",
    "scheduled",
    "toolkit",
    "tools",
    "usage",
];

/// A path such as `/faber`, without a slash at the end. The default is the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathPrefix(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPathPrefix {
    #[error(
        "`{0}` is not a path prefix: write a path such as `/faber`, with letters, digits, `-`, `.`, \
         `_` and `~` between the slashes"
    )]
    Malformed(String),
    #[error(
        "the path prefix `{prefix}` begins with `/{segment}`, which is a path of Faber itself: use \
         another prefix, such as `/faber`"
    )]
    Own { prefix: String, segment: String },
}

impl FromStr for PathPrefix {
    type Err = InvalidPathPrefix;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let prefix = text.strip_suffix('/').unwrap_or(text);
        if prefix.is_empty() {
            return Ok(Self::default());
        }
        let malformed = || InvalidPathPrefix::Malformed(text.to_owned());
        let segments = prefix.strip_prefix('/').ok_or_else(malformed)?;
        if prefix.len() > MAX_BYTES || !segments.split('/').all(is_plain_segment) {
            return Err(malformed());
        }
        let first = segments.split('/').next().unwrap_or_default();
        if OWN_SEGMENTS.contains(&first) {
            let (prefix, segment) = (prefix.to_owned(), first.to_owned());
            return Err(InvalidPathPrefix::Own { prefix, segment });
        }
        Ok(Self(prefix.to_owned()))
    }
}

fn is_plain_segment(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain)
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PathPrefix {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn strip_from(&self, uri: &mut Uri) {
        let Some(path) = uri.path_and_query().and_then(|path| self.strip(path.as_str())) else {
            return;
        };
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(path);
        if let Ok(stripped) = Uri::from_parts(parts) {
            *uri = stripped;
        }
    }

    fn strip(&self, path: &str) -> Option<PathAndQuery> {
        if self.0.is_empty() {
            return None;
        }
        match path.strip_prefix(&self.0)? {
            "" => Some(PathAndQuery::from_static("/")),
            rest if rest.starts_with('/') => rest.parse().ok(),
            rest if rest.starts_with('?') => format!("/{rest}").parse().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_path_of_plain_segments() {
        for (text, expected) in [
            ("/faber", "/faber"),
            ("/faber/", "/faber"),
            ("/a/b-1/c.d_~", "/a/b-1/c.d_~"),
            ("/", ""),
            ("", ""),
        ] {
            assert_eq!(text.parse::<PathPrefix>().unwrap().as_str(), expected, "{text}");
        }
        for wrong in ["faber", "/a//b", "/..", "/a/./b", "/a b", "/a?b", "/%41", "//", "/ä"] {
            assert!(wrong.parse::<PathPrefix>().is_err(), "{wrong}");
        }
        assert!(format!("/{}", "a".repeat(MAX_BYTES)).parse::<PathPrefix>().is_err());
        assert_eq!(
            "/tools/x".parse::<PathPrefix>().unwrap_err().to_string(),
            "the path prefix `/tools/x` begins with `/tools`, which is a path of Faber itself: use \
             another prefix, such as `/faber`"
        );
    }

    #[test]
    fn the_prefix_is_removed_from_paths_that_begin_with_it() {
        let prefix: PathPrefix = "/faber".parse().unwrap();
        for (path, expected) in [
            ("/faber/graphql?query=a", "/graphql?query=a"),
            ("/faber", "/"),
            ("/faber/", "/"),
            ("/faber?at=1", "/?at=1"),
            ("/faber//evil.example/", "//evil.example/"),
            ("/graphql", "/graphql"),
            ("/fabergraphql", "/fabergraphql"),
            ("/a/faber/graphql", "/a/faber/graphql"),
        ] {
            let mut uri: Uri = path.parse().unwrap();
            prefix.strip_from(&mut uri);
            assert_eq!(uri.path_and_query().unwrap().as_str(), expected, "{path}");
        }
        let mut uri: Uri = "http://faber.example/faber/mcp".parse().unwrap();
        prefix.strip_from(&mut uri);
        assert_eq!(uri.to_string(), "http://faber.example/mcp");
    }
}
