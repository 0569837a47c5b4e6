//! Templates in the configuration of tools. `{{name}}` stands for a parameter of the call.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Parameter(String),
}

impl Template {
    pub(crate) fn parse(mut text: &str) -> Self {
        let mut parts = Vec::new();
        let mut literal = String::new();
        while let Some(start) = text.find("{{") {
            let (before, rest) = (&text[..start], &text[start + 2..]);
            literal.push_str(before);
            if let Some(rest) = rest.strip_prefix("{{") {
                literal.push_str("{{");
                text = rest;
                continue;
            }
            let Some(end) = rest.find("}}") else {
                text = &text[start..];
                break;
            };
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal)));
            }
            parts.push(TemplatePart::Parameter(rest[..end].trim().to_owned()));
            text = &rest[end + 2..];
        }
        literal.push_str(text);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(TemplatePart::Text(literal));
        }
        Self(parts)
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Parameter(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the name of the parameter, if the template consists only of this parameter.
    pub(crate) fn as_parameter(&self) -> Option<&str> {
        match self.0.as_slice() {
            [TemplatePart::Parameter(name)] => Some(name),
            _ => None,
        }
    }

    pub(crate) fn leading_text(&self) -> &str {
        match self.0.first() {
            Some(TemplatePart::Text(text)) => text,
            _ => "",
        }
    }

    /// Renders the template. An absent parameter is empty. Returns `None` if the template is only
    /// an absent parameter.
    pub(crate) fn render(&self, parameters: &Value) -> Option<String> {
        if let Some(name) = self.as_parameter() {
            return parameters.get(name).map(text);
        }
        Some(self.render_with(|name| parameters.get(name).map(text).unwrap_or_default()))
    }

    pub(crate) fn render_with(&self, mut value: impl FnMut(&str) -> String) -> String {
        let parts = self.0.iter().map(|part| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Parameter(name) => value(name),
        });
        parts.collect()
    }
}

/// Converts a value to text: a string without quotes, any other value as compact JSON.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
