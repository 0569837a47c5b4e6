use secrets::percent_encode;
use serde_json::Value;

use super::document::Document;
use crate::{http::answer::is_json, template::text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Lists as `a,b`, and objects as `k,v`.
    Simple,
    Form,
    /// With spaces between items.
    Spaces,
    /// With `|` between items.
    Pipes,
    /// Objects as `name[key]=value`.
    Deep,
    Json,
}

#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) location: ParameterLocation,
    pub(super) is_required: bool,
    style: Style,
    /// `true` if each item is written as a parameter (`explode`).
    is_exploded: bool,
    /// `true` if reserved characters are not encoded (`allowReserved`).
    keeps_reserved_characters: bool,
}

#[derive(Debug, Default)]
pub(super) struct RequestParts {
    pub(super) path: Vec<(String, String)>,
    /// Pairs of the query, percent-encoded.
    pub(super) query: Vec<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) cookies: Vec<String>,
}

pub(super) struct DeclaredParameter<'a> {
    pub(super) parameter: Parameter,
    pub(super) schema: Option<&'a Value>,
    pub(super) description: &'a str,
}

/// Reads a parameter. Returns `None` for headers that OpenAPI ignores.
pub(super) fn read<'a>(
    document: &'a Document,
    declaration: &'a Value,
) -> Result<Option<DeclaredParameter<'a>>, String> {
    let declaration = document.resolve(declaration)?;
    let text = |key: &str| declaration.get(key).and_then(Value::as_str);
    let Some(name) = text("name") else { return Err("a parameter has no name".to_owned()) };
    let location = match text("in") {
        Some("path") => ParameterLocation::Path,
        Some("query") => ParameterLocation::Query,
        Some("header") => ParameterLocation::Header,
        Some("cookie") => ParameterLocation::Cookie,
        _ => return Err(format!("the parameter `{name}` has no valid `in`")),
    };
    let reserved = ["accept", "content-type", "authorization"];
    if location == ParameterLocation::Header
        && reserved.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
    {
        return Ok(None);
    }
    let content = declaration
        .get("content")
        .and_then(Value::as_object)
        .and_then(|content| content.iter().next());
    let style = match (content, text("style"), location) {
        (Some((kind, _)), ..) if is_json(kind) => Style::Json,
        (Some((kind, _)), ..) => {
            return Err(format!("`{name}` is `{kind}`, which is not supported"));
        }
        (None, None | Some("simple"), ParameterLocation::Path | ParameterLocation::Header) => {
            Style::Simple
        }
        (None, None | Some("form"), ParameterLocation::Query | ParameterLocation::Cookie) => {
            Style::Form
        }
        (None, Some("spaceDelimited"), ParameterLocation::Query) => Style::Spaces,
        (None, Some("pipeDelimited"), ParameterLocation::Query) => Style::Pipes,
        (None, Some("deepObject"), ParameterLocation::Query) => Style::Deep,
        (None, style, _) => {
            let style = style.unwrap_or_default();
            return Err(format!("`{name}` has the style `{style}`, which is not supported"));
        }
    };
    let is_marked = |key: &str| declaration.get(key) == Some(&Value::Bool(true));
    let is_exploded =
        declaration.get("explode").and_then(Value::as_bool).unwrap_or(style == Style::Form);
    let parameter = Parameter {
        name: name.to_owned(),
        location,
        is_required: location == ParameterLocation::Path || is_marked("required"),
        style,
        is_exploded,
        keeps_reserved_characters: location == ParameterLocation::Query
            && is_marked("allowReserved"),
    };
    let schema = match content {
        Some((_, media)) => media.get("schema"),
        None => declaration.get("schema"),
    };
    let description = text("description").unwrap_or_default();
    Ok(Some(DeclaredParameter { parameter, schema, description }))
}

impl Parameter {
    /// Writes a value into a request. The error states why that is impossible.
    pub(super) fn write(&self, value: &Value, parts: &mut RequestParts) -> Result<(), String> {
        let name = &self.name;
        if value.is_null() {
            return if self.location == ParameterLocation::Path {
                Err(format!("`{name}` is part of the address and cannot be empty"))
            } else {
                Ok(())
            };
        }
        match self.location {
            ParameterLocation::Path => {
                let part = self.join_items(value, ",", percent_encode);
                if part.is_empty() || matches!(part.as_str(), "." | "..") {
                    return Err(format!("`{name}` is part of the address and cannot be `{part}`"));
                }
                parts.path.push((name.clone(), part));
            }
            ParameterLocation::Header => {
                parts.headers.push((name.clone(), self.join_items(value, ",", str::to_owned)));
            }
            ParameterLocation::Query => {
                self.check_items(value)?;
                self.add_query(value, &mut parts.query);
            }
            ParameterLocation::Cookie => {
                let value = self.join_items(value, ",", percent_encode);
                parts.cookies.push(format!("{name}={value}"));
            }
        }
        Ok(())
    }

    /// Rejects items that contain the separator. Both would be encoded in the same way, so a server
    /// could not tell a separator in an item from a separator between items.
    fn check_items(&self, value: &Value) -> Result<(), String> {
        let (separator, called) = match self.style {
            Style::Spaces => (' ', "blanks"),
            Style::Pipes => ('|', "`|`"),
            _ => return Ok(()),
        };
        let has = |value: &Value| text(value).contains(separator);
        let is_clear = match value {
            Value::Array(items) => self.is_exploded || !items.iter().any(has),
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                !fields.into_iter().any(|(key, value)| key.contains(separator) || has(value))
            }
            _ => true,
        };
        let name = &self.name;
        let reason = || {
            format!(
                "the items of `{name}` are separated by {called}, so no item may contain that \
                 separator"
            )
        };
        if is_clear { Ok(()) } else { Err(reason()) }
    }

    fn add_query(&self, value: &Value, query: &mut Vec<String>) {
        let name = percent_encode(&self.name);
        let encode = if self.keeps_reserved_characters {
            percent_encode_keeping_reserved
        } else {
            percent_encode
        };
        let separator = match self.style {
            Style::Spaces => "%20",
            Style::Pipes => "%7C",
            _ => ",",
        };
        match value {
            Value::Array(_) | Value::Object(_) if self.style == Style::Deep => {
                add_deep_object(&name, value, query, encode);
            }
            Value::Array(items) if self.is_exploded && self.style != Style::Json => {
                query.extend(items.iter().map(|item| format!("{name}={}", encode(&text(item)))));
            }
            Value::Object(fields) if self.is_exploded && self.style == Style::Form => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                query.extend(fields.map(|(key, value)| {
                    format!("{}={}", percent_encode(key), encode(&text(value)))
                }));
            }
            Value::Array(_) | Value::Object(_) if self.style != Style::Json => {
                let item = if self.keeps_reserved_characters {
                    percent_encode_item
                } else {
                    percent_encode
                };
                query.push(format!("{name}={}", self.join_items(value, separator, item)));
            }
            value => query.push(format!("{name}={}", self.join_items(value, separator, encode))),
        }
    }

    /// Writes lists as `a,b`, and objects as `k,v`, or as `k=v` if they are exploded.
    fn join_items(&self, value: &Value, separator: &str, encode: fn(&str) -> String) -> String {
        match value {
            _ if self.style == Style::Json => encode(&value.to_string()),
            Value::Array(items) => {
                items.iter().map(|item| encode(&text(item))).collect::<Vec<_>>().join(separator)
            }
            Value::Object(fields) => {
                let equals = if self.is_exploded { "=" } else { separator };
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                let fields = fields
                    .map(|(key, value)| format!("{}{equals}{}", encode(key), encode(&text(value))));
                fields.collect::<Vec<_>>().join(separator)
            }
            value => encode(&text(value)),
        }
    }
}

/// Percent-encodes a value, except reserved characters and characters that are encoded already.
/// Always encodes `[`, `]`, and `&`, `#` and `+`, which have a meaning in a query.
fn percent_encode_keeping_reserved(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_hex = |digits: &str| digits.bytes().all(|digits| digits.is_ascii_hexdigit());
        let taken = match next {
            '%' if rest.get(1..3).is_some_and(is_hex) => 3,
            _ => next.len_utf8(),
        };
        let (part, after) = rest.split_at(taken);
        if taken == 3 && next == '%' || ":/?@!$'()*,;=".contains(next) {
            kept.push_str(part);
        } else {
            kept.push_str(&percent_encode(part));
        }
        rest = after;
    }
    kept
}

/// Percent-encodes a value, including its commas, because commas separate the items of a list.
fn percent_encode_item(text: &str) -> String {
    percent_encode_keeping_reserved(text).replace(',', "%2C")
}

fn add_deep_object(name: &str, value: &Value, query: &mut Vec<String>, encode: fn(&str) -> String) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, field) in fields {
                add_deep_object(
                    &format!("{name}%5B{}%5D", percent_encode(key)),
                    field,
                    query,
                    encode,
                );
            }
        }
        Value::Array(items) => {
            for item in items {
                add_deep_object(name, item, query, encode);
            }
        }
        value => query.push(format!("{name}={}", encode(&text(value)))),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_written_parameter(place: &str, style: Value, value: Value, expected: Expect) {
        expected.assert_eq(&write_parameter(place, style, &value));
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn write_parameter(place: &str, style: Value, value: &Value) -> String {
        let document = Document::parse(br#"{"openapi":"3.1.0"}"#).unwrap();
        let mut declaration = json!({ "name": "p q", "in": place });
        declaration.as_object_mut().unwrap().extend(style.as_object().cloned().unwrap_or_default());
        let mut parts = RequestParts::default();
        let declaration = read(&document, &declaration).map(|read| read.unwrap().parameter);
        let result = declaration.and_then(|parameter| parameter.write(value, &mut parts));
        let RequestParts { path, query, headers, cookies } = parts;
        let path = path.into_iter().map(|(_, text)| text);
        let headers = headers.into_iter().map(|(_, text)| text);
        let all: Vec<String> =
            path.chain(headers).chain(query).chain(cookies).chain(result.err()).collect();
        all.join("&")
    }

    fn values() -> (Value, Value) {
        (json!(["a b", 1]), json!({ "k": "v/w", "n": 2, "z": null }))
    }

    #[test]
    fn parameter_styles_match_the_openapi_specification() {
        let (list, object) = values();
        let exploded = |is_exploded: bool| json!({ "explode": is_exploded });
        check_written_parameter("query", json!({}), list.clone(), expect!["p%20q=a%20b&p%20q=1"]);
        check_written_parameter("query", exploded(false), list.clone(), expect!["p%20q=a%20b,1"]);
        check_written_parameter("query", json!({}), object.clone(), expect!["k=v%2Fw&n=2"]);
        check_written_parameter(
            "query",
            exploded(false),
            object.clone(),
            expect!["p%20q=k,v%2Fw,n,2"],
        );
        check_written_parameter(
            "query",
            json!({ "style": "spaceDelimited" }),
            json!(["a|b", 1]),
            expect!["p%20q=a%7Cb%201"],
        );
        check_written_parameter(
            "query",
            json!({ "style": "pipeDelimited" }),
            list.clone(),
            expect!["p%20q=a%20b%7C1"],
        );
        check_written_parameter(
            "query",
            json!({ "style": "deepObject" }),
            json!({ "a": { "b": 1 }, "c": [1, 2] }),
            expect!["p%20q%5Ba%5D%5Bb%5D=1&p%20q%5Bc%5D=1&p%20q%5Bc%5D=2"],
        );
        check_written_parameter(
            "query",
            json!({ "content": { "application/json": {} } }),
            object.clone(),
            expect!["p%20q=%7B%22k%22%3A%22v%2Fw%22%2C%22n%22%3A2%2C%22z%22%3Anull%7D"],
        );
        check_written_parameter("path", json!({}), list.clone(), expect!["a%20b,1"]);
        check_written_parameter("path", exploded(true), object.clone(), expect!["k=v%2Fw,n=2"]);
        check_written_parameter("header", json!({}), list, expect!["a b,1"]);
        check_written_parameter("cookie", json!({}), json!("a;b"), expect!["p q=a%3Bb"]);
        check_written_parameter("query", json!({}), json!(null), expect![""]);
    }

    /// `["a", "b|c"]` and `["a|b", "c"]` must not lead to the same request.
    #[test]
    fn a_separator_inside_an_item_is_rejected() {
        for (style, sign, called) in
            [("pipeDelimited", "|", "`|`"), ("spaceDelimited", " ", "blanks")]
        {
            let style = |is_exploded: bool| json!({ "style": style, "explode": is_exploded });
            let expected = format!(
                "the items of `p q` are separated by {called}, so no item may contain that \
                 separator"
            );
            for value in [
                json!(["a", format!("b{sign}c")]),
                json!({ "k": format!("b{sign}c") }),
                json!({ format!("b{sign}c"): 1 }),
            ] {
                assert_eq!(write_parameter("query", style(false), &value), expected, "{value}");
            }
            let apart = write_parameter("query", style(true), &json!([format!("b{sign}c")]));
            assert_eq!(apart, format!("p%20q={}", percent_encode(&format!("b{sign}c"))));
        }
    }

    #[test]
    fn allow_reserved_keeps_reserved_characters_where_allowed() {
        let kept = |more: Value| {
            let mut all = json!({ "allowReserved": true });
            all.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            all
        };
        let odd = json!("a/b?c=d&e#f+g ü%2F%zz");
        check_written_parameter(
            "query",
            kept(json!({})),
            odd.clone(),
            expect!["p%20q=a/b?c=d%26e%23f%2Bg%20%C3%BC%2F%25zz"],
        );
        check_written_parameter(
            "query",
            kept(json!({})),
            json!(["a,b", "@"]),
            expect!["p%20q=a,b&p%20q=@"],
        );
        check_written_parameter(
            "query",
            kept(json!({ "explode": false })),
            json!(["a,b", "@"]),
            expect!["p%20q=a%2Cb,@"],
        );
        check_written_parameter(
            "query",
            kept(json!({ "style": "deepObject" })),
            json!({ "k": "a/b" }),
            expect!["p%20q%5Bk%5D=a/b"],
        );
        check_written_parameter("path", kept(json!({})), json!("a/b"), expect!["a%2Fb"]);
        check_written_parameter("cookie", kept(json!({})), json!("a;b"), expect!["p q=a%3Bb"]);
    }

    #[test]
    fn a_path_parameter_cannot_leave_its_segment() {
        check_written_parameter(
            "path",
            json!({}),
            json!("../admin?x#y"),
            expect!["..%2Fadmin%3Fx%23y"],
        );
        check_written_parameter(
            "path",
            json!({}),
            json!(".."),
            expect!["`p q` is part of the address and cannot be `..`"],
        );
        check_written_parameter(
            "path",
            json!({}),
            json!(""),
            expect!["`p q` is part of the address and cannot be ``"],
        );
    }

    #[test]
    fn an_unsupported_parameter_is_reported() {
        let matrix = json!({ "style": "matrix" });
        check_written_parameter(
            "path",
            matrix,
            json!(1),
            expect!["`p q` has the style `matrix`, which is not supported"],
        );
        check_written_parameter(
            "body",
            json!({}),
            json!(1),
            expect!["the parameter `p q` has no valid `in`"],
        );
    }
}
