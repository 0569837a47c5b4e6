//! The lines of a document's keys and items, for messages about values that are valid YAML but
//! wrong.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// Maximum depth of a document whose lines are found. It is small, because each level needs much
/// stack.
const MAX_DEPTH: usize = 64;

/// Returns the line of the value at a path such as `toolsets[0].source`, or of the first key `key`
/// inside the value. Parses the document again, so call this only for a message.
pub fn find_line(text: &str, path: &str, key: Option<&str>) -> Option<u64> {
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: MAX_DEPTH } };
    let document: Node = serde_saphyr::from_str_with_options(text, options).ok()?;
    let (mut line, mut node, mut rest) = (None, &document, path);
    while !rest.is_empty() {
        let (place, child, after) = node.follow_path(rest)?;
        (line, node, rest) = (Some(place), child, after);
    }
    match key {
        Some(key) => node.find_key(key),
        None => line,
    }
}

enum Node {
    Map(Vec<(String, u64, Node)>),
    List(Vec<(u64, Node)>),
    Leaf,
}

impl Node {
    /// Follows the first part of a path. Returns the line, the child and the rest of the path. If
    /// several keys fit, takes the longest key, because keys can contain dots.
    fn follow_path<'p>(&self, path: &'p str) -> Option<(u64, &Self, &'p str)> {
        match self {
            Self::Map(fields) => {
                let fits = |key: &str| {
                    let rest = path.strip_prefix(key)?;
                    let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                    is_whole.then(|| rest.strip_prefix('.').unwrap_or(rest))
                };
                let fields = fields.iter().filter_map(|(key, line, child)| {
                    fits(key).map(|rest| (key.len(), (*line, child, rest)))
                });
                fields.max_by_key(|(length, _)| *length).map(|(_, found)| found)
            }
            Self::List(items) => {
                let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
                let (line, child) = items.get(number.parse::<usize>().ok()?)?;
                Some((*line, child, rest.strip_prefix('.').unwrap_or(rest)))
            }
            Self::Leaf => None,
        }
    }

    fn find_key(&self, wanted_key: &str) -> Option<u64> {
        match self {
            Self::Map(fields) => fields.iter().find_map(|(key, line, child)| {
                if key == wanted_key { Some(*line) } else { child.find_key(wanted_key) }
            }),
            Self::List(items) => items.iter().find_map(|(_, child)| child.find_key(wanted_key)),
            Self::Leaf => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, child)) = map.next_entry::<Spanned<String>, Node>()? {
            fields.push((key.value, key.referenced.line(), child));
        }
        Ok(Node::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spanned<Node>>()? {
            items.push((item.referenced.line(), item.value));
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_keys_and_items_are_found() {
        let text = "# first\nlimits:\n  lease_ms: 1\n  a.b: { c: 2 }\ntoolsets:\n  - name: x\n    \
                    source:\n      tools:\n        - { name: t,\n            effekt: read }\n";
        for (path, key, line) in [
            ("limits", None, Some(2)),
            ("limits.lease_ms", None, Some(3)),
            ("limits.a.b.c", None, Some(4)),
            ("toolsets[0]", None, Some(6)),
            ("toolsets[0].source.tools[0]", None, Some(9)),
            ("toolsets[0].source.tools[0]", Some("effekt"), Some(10)),
            ("toolsets[0]", Some("effekt"), Some(10)),
            ("", Some("toolsets"), Some(5)),
            ("toolsets[1]", None, None),
            ("limits.lease_ms.x", None, None),
            ("nothing", None, None),
        ] {
            assert_eq!(find_line(text, path, key), line, "{path} {key:?}");
        }
    }

    #[test]
    fn a_deep_document_does_not_overflow_the_stack() {
        let text = format!("a: {}{}\nb: 1\n", "[".repeat(40), "]".repeat(40));
        assert_eq!(find_line(&text, "b", None), Some(2));
        let text = format!("a: {}{}\nb: 1\n", "[".repeat(400), "]".repeat(400));
        assert_eq!(find_line(&text, "b", None), None);
    }
}
