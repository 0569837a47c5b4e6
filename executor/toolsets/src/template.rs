//! Texts of the configuration that name parameters of a call.
//!
//! `{{name}}` stands for a parameter: a string as it is, everything else as compact JSON.
//! `{{{{` writes a literal `{{`; an unclosed `{{` is literal.

use serde_json::Value;

/// A text with holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Parameter(String),
}

impl Template {
    /// Reads a text, which is always a template.
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
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Parameter(rest[..end].trim().to_owned()));
            text = &rest[end + 2..];
        }
        literal.push_str(text);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(Part::Text(literal));
        }
        Self(parts)
    }

    /// Returns the parameters that it names.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|it| match it {
            Part::Parameter(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Returns the parameter that it is, if it is one and nothing else.
    pub(crate) fn whole(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Parameter(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns the text before the first parameter.
    pub(crate) fn head(&self) -> &str {
        match self.0.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }

    /// Fills in the parameters. An absent one is empty; where it is the whole there is nothing.
    pub(crate) fn fill(&self, parameters: &Value) -> Option<String> {
        if let Some(name) = self.whole() {
            return parameters.get(name).map(text);
        }
        Some(self.fill_with(|name| parameters.get(name).map(text).unwrap_or_default()))
    }

    /// Fills in what `value` says of each parameter.
    pub(crate) fn fill_with(&self, mut value: impl FnMut(&str) -> String) -> String {
        let parts = self.0.iter().map(|it| match it {
            Part::Text(text) => text.clone(),
            Part::Parameter(name) => value(name),
        });
        parts.collect()
    }
}

/// Writes a value into text: a string as it is, everything else as compact JSON.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
