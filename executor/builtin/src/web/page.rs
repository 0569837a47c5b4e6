use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use super::{
    WebServices,
    client::{WebResponse, refused_error},
    html,
};

pub(super) const DESCRIPTION: &str = "Fetch and extract content from a URL.";

const MAX_TEXT_BYTES: usize = 128 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchUrl {
    /// URL to fetch.
    url: String,
    /// If true, convert HTML to readable text. If false, return the page unchanged.
    #[serde(default = "default_extract")]
    extract_text: bool,
}

fn default_extract() -> bool {
    true
}

pub(super) async fn fetch_url(
    services: Arc<WebServices>,
    args: FetchUrl,
) -> Result<String, ToolError> {
    let url = services.web.parse_url(&args.url).map_err(|err| refused_error(&err))?;
    let answer = services.web.get(url, "text/html, text/*;q=0.9, */*;q=0.1").await?;
    // Converts the page on a blocking thread, because converting megabytes would block other tasks.
    let read = tokio::task::spawn_blocking(move || page_text(&answer, args.extract_text));
    read.await
        .unwrap_or_else(|err| Err(ToolError::failed(format!("the conversion ended early: {err}"))))
}

fn page_text(answer: &WebResponse, extract: bool) -> Result<String, ToolError> {
    let kind = answer.content_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    if !is_text(&kind, &answer.bytes) {
        let kind = if kind.is_empty() { "unknown" } else { &kind };
        let message = format!("`{}` is not text: its type is {kind}", answer.url);
        return Err(ToolError::failed(message).without_retry());
    }
    let decoded = decode_body(answer);
    let is_html = extract && (kind.contains("html") || kind.is_empty() && decoded.contains('<'));
    let text = if is_html {
        let page = html::read_page(&decoded, &answer.url, MAX_TEXT_BYTES);
        let title = if page.title.is_empty() { "No title" } else { &page.title };
        format!("{title}\n{}\n\n{}", answer.url, page.text)
    } else if extract {
        format!("{}\n\n{decoded}", answer.url)
    } else {
        decoded
    };
    Ok(limit_text(text, answer.is_cut))
}

fn limit_text(mut text: String, is_cut: bool) -> String {
    let end = text.floor_char_boundary(MAX_TEXT_BYTES);
    let is_cut = is_cut || end < text.len();
    text.truncate(end);
    if is_cut {
        text.push_str("\n\n… (cut off: the page is longer)");
    }
    text
}

/// Returns whether a response is text, by its content type. Without a content type, or with
/// `application/octet-stream`, its bytes decide.
fn is_text(kind: &str, bytes: &[u8]) -> bool {
    const TEXT_TYPES: [&str; 6] = ["json", "xml", "html", "javascript", "yaml", "urlencoded"];
    let is_binary = bytes.iter().take(1_024).any(|byte| *byte == 0);
    match kind {
        "" | "application/octet-stream" => !is_binary,
        _ => kind.starts_with("text/") || TEXT_TYPES.iter().any(|part| kind.contains(part)),
    }
}

/// Decodes the body by a byte order mark, by the charset of the header, or by the page's own
/// declaration.
fn decode_body(answer: &WebResponse) -> String {
    let label = find_charset(&answer.content_type).or_else(|| {
        let head = &answer.bytes[..answer.bytes.len().min(1_024)];
        find_charset(&String::from_utf8_lossy(head))
    });
    let encoding = label
        .and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()))
        .unwrap_or(encoding_rs::UTF_8);
    encoding.decode(&answer.bytes).0.into_owned()
}

fn find_charset(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("charset=")?;
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(|char: char| !(char.is_ascii_alphanumeric() || "-_:.".contains(char)));
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}
