use http_client::AddressScope;
use reqwest::Url;
use serde_json::Value;

/// Maximum number of references that may follow each other. A longer chain counts as a cycle.
const MAX_REFERENCES: usize = 32;
const MAX_NODES: usize = 4_000_000;

/// A document. References to other documents are not supported.
#[derive(Debug)]
pub(super) struct Document {
    root: Value,
}

#[derive(Debug)]
pub(super) struct Servers {
    /// The configured address, which replaces the servers of the document.
    pub(super) base: Option<Url>,
    pub(super) document_url: Option<Url>,
}

impl Document {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "the document is not UTF-8".to_owned())?;
        let text = text.trim_start_matches('\u{feff}');
        let root: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|err| format!("the document is not JSON: {err}"))?
        } else {
            let options = serde_saphyr::options! {
                // Reads YAML 1.2 booleans only. Otherwise YAML would read the country `NO` and the
                // parameter `y` as booleans.
                strict_booleans: true,
                budget: serde_saphyr::budget! { max_nodes: MAX_NODES, max_events: 2 * MAX_NODES },
            };
            serde_saphyr::from_str_with_options(text, options).map_err(|err| {
                format!("the document is neither JSON nor YAML: {}", first_line(&err.to_string()))
            })?
        };
        let version = match &root["openapi"] {
            Value::Number(number) => number.to_string(),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        if root.get("swagger").is_some() {
            return Err("the document is Swagger 2.0: convert it to OpenAPI 3".to_owned());
        }
        if !version.starts_with("3.") {
            return Err("this is not an OpenAPI 3 document: it has no `openapi: 3.…`".to_owned());
        }
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    pub(super) fn resolve<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, String> {
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Ok(value);
            };
            value = self.find_target(reference)?;
        }
        Err("its references form a cycle".to_owned())
    }

    pub(super) fn resolve_reference(&self, reference: &str) -> Result<(String, &Value), String> {
        let mut reference = reference.to_owned();
        for _ in 0..MAX_REFERENCES {
            let value = self.find_target(&reference)?;
            match value.get("$ref").and_then(Value::as_str) {
                Some(next) => next.clone_into(&mut reference),
                None => return Ok((reference, value)),
            }
        }
        Err("its references form a cycle".to_owned())
    }

    fn find_target(&self, reference: &str) -> Result<&Value, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!(
                "`{reference}` is in another document, and Faber reads only one: bundle the \
                 documents"
            ));
        };
        let found = self.root.pointer(&percent_decoded(pointer));
        found.ok_or_else(|| format!("the document has no `{reference}`"))
    }
}

impl Servers {
    /// Returns the address of an operation, and where its requests may go. A document on another
    /// host must not direct requests into a private network.
    pub(super) fn url(&self, lists: [Option<&Value>; 3]) -> Result<(Url, AddressScope), String> {
        if let Some(base) = &self.base {
            return Ok((base.clone(), AddressScope::Anywhere));
        }
        let server = lists.into_iter().flatten().find_map(|list| list.get(0)).and_then(server_url);
        let written = server.unwrap_or_else(|| "/".to_owned());
        let url = match &self.document_url {
            Some(from) => from.join(&written),
            None => written.parse(),
        };
        let url = url.ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            return Err("the document names no server: set `base_url`".to_owned());
        };
        let is_trusted =
            self.document_url.as_ref().is_none_or(|from| from.host_str() == url.host_str());
        Ok((url, if is_trusted { AddressScope::Anywhere } else { AddressScope::Public }))
    }
}

/// Returns the address of a server, with the defaults of its variables.
fn server_url(server: &Value) -> Option<String> {
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten()
    {
        let value = variable.get("default").and_then(Value::as_str).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), value);
    }
    Some(url)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn percent_decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (b'%', Some(byte)) = (first, byte) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
