//! `fetch_url`: fetches one page.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use super::{
    Services,
    client::{Answer, refused},
    html,
};

pub(super) const DESCRIPTION: &str = "Fetch and extract content from a URL.";

/// Most bytes of text that are returned.
const MOST: usize = 128 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchUrl {
    /// URL to fetch.
    url: String,
    /// If true, convert HTML to readable text; if false, return it as it is.
    #[serde(default = "yes")]
    extract_text: bool,
}

fn yes() -> bool {
    true
}

pub(super) async fn fetch(services: Arc<Services>, args: FetchUrl) -> Result<String, ToolError> {
    let url = services.web.url(&args.url).map_err(|err| refused(&err))?;
    let answer = services.web.get(url, "text/html, text/*;q=0.9, */*;q=0.1").await?;
    // Converting megabytes takes a while.
    let read = tokio::task::spawn_blocking(move || text(&answer, args.extract_text));
    read.await.unwrap_or_else(|err| Err(ToolError::failed(format!("it broke off: {err}"))))
}

fn text(answer: &Answer, extract: bool) -> Result<String, ToolError> {
    let kind = answer.content_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    if !is_text(&kind, &answer.bytes) {
        let kind = if kind.is_empty() { "unknown" } else { &kind };
        let message = format!("`{}` is no text: its type is {kind}", answer.url);
        return Err(ToolError::failed(message).without_retry());
    }
    let decoded = decode(answer);
    let is_html = extract && (kind.contains("html") || kind.is_empty() && decoded.contains('<'));
    let text = if is_html {
        let page = html::read(&decoded, &answer.url, MOST);
        let title = if page.title.is_empty() { "No title" } else { &page.title };
        format!("{title}\n{}\n\n{}", answer.url, page.text)
    } else if extract {
        format!("{}\n\n{decoded}", answer.url)
    } else {
        decoded
    };
    Ok(bounded(text, answer.is_cut))
}

fn bounded(mut text: String, is_cut: bool) -> String {
    let end = text.floor_char_boundary(MOST);
    let is_cut = is_cut || end < text.len();
    text.truncate(end);
    if is_cut {
        text.push_str("\n\n… (cut off: the page is longer)");
    }
    text
}

/// Returns whether a response is text, by its content type. Without a type, by its bytes.
fn is_text(kind: &str, bytes: &[u8]) -> bool {
    const TEXTS: [&str; 6] = ["json", "xml", "html", "javascript", "yaml", "urlencoded"];
    let is_binary = bytes.iter().take(1_024).any(|it| *it == 0);
    match kind {
        "" | "application/octet-stream" => !is_binary,
        _ => kind.starts_with("text/") || TEXTS.iter().any(|it| kind.contains(it)),
    }
}

/// Decodes by the header, a byte order mark, or the page's own declaration.
fn decode(answer: &Answer) -> String {
    let label = charset(&answer.content_type).or_else(|| {
        let head = &answer.bytes[..answer.bytes.len().min(1_024)];
        charset(&String::from_utf8_lossy(head))
    });
    let encoding = label
        .and_then(|it| encoding_rs::Encoding::for_label(it.as_bytes()))
        .unwrap_or(encoding_rs::UTF_8);
    encoding.decode(&answer.bytes).0.into_owned()
}

fn charset(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset=")?;
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(|it: char| !(it.is_ascii_alphanumeric() || "-_:.".contains(it)));
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}
