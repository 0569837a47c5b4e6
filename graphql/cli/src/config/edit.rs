//! Adds toolsets to the text of a configuration file, because a YAML library would write the file
//! without its comments.

use engine::yaml;
use serde_json::{Map, Value, json};

const KEY: &str = "toolsets";

/// Adds a toolset at the end of the list. The error names what the user can write instead.
pub(crate) fn add_toolset(text: &str, set: &Value) -> Result<String, String> {
    let refuse = || {
        format!(
            "the list `{KEY}` has a form in which Faber cannot insert: add `{set}` to it yourself"
        )
    };
    let mut expected = parse_fields(text)?;
    let edited = match expected.get(KEY) {
        None => append_list(text, set)?,
        Some(Value::Array(items)) if !items.is_empty() => {
            insert_item(text, items.len() - 1, set).ok_or_else(refuse)?
        }
        Some(_) => return Err(refuse()),
    };
    let items = expected.entry(KEY).or_insert_with(|| json!([]));
    items.as_array_mut().ok_or_else(refuse)?.push(set.clone());
    if yaml::parse(&edited) == Ok(Value::Object(expected)) { Ok(edited) } else { Err(refuse()) }
}

fn parse_fields(text: &str) -> Result<Map<String, Value>, String> {
    match yaml::parse(text) {
        _ if text.trim().is_empty() => Ok(Map::new()),
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("this is not a map of settings: write `key: value`".to_owned()),
        Err(error) => Err(error),
    }
}

fn append_list(text: &str, set: &Value) -> Result<String, String> {
    let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{text}{line_end}{KEY}:\n{}", format_item(set, "  ")?))
}

fn insert_item(text: &str, last: usize, set: &Value) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let line = yaml::find_line(text, &format!("{KEY}[{last}]"), None)?;
    let first = usize::try_from(line).ok()?.checked_sub(1)?;
    let indent = indentation(lines.get(first)?);
    if !lines[first][indent..].starts_with("- ") {
        return None;
    }
    let mut end = first + 1;
    for (index, line) in lines.iter().enumerate().skip(first + 1) {
        let is_inside = indentation(line) > indent;
        let content = line.trim();
        if is_inside && !content.is_empty() {
            end = index + 1;
        } else if !content.is_empty() && !content.starts_with('#') {
            break;
        }
    }
    let (before, after) = (lines[..end].concat(), lines[end..].concat());
    let line_end = if before.ends_with('\n') { "" } else { "\n" };
    let item = format_item(set, &lines[first][..indent]).ok()?;
    Some(format!("{before}{line_end}{item}{after}"))
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn format_item(set: &Value, indent: &str) -> Result<String, String> {
    let item = yaml::format(&json!([set]))?;
    Ok(item.lines().flat_map(|line| [indent, line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_set() -> Value {
        json!({ "name": "new", "source": { "mcp": { "command": "x", "args": ["-c", "a: #b"] } } })
    }

    #[test]
    fn a_toolset_is_added_and_comments_are_kept() {
        for text in [
            "",
            "# only a comment\n",
            "store: 'memory:' # here\n",
            "store: 'memory:'",
            "toolsets:\n  # the first\n  - name: a # one\n    source: { tools: [] }\n",
            "toolsets:\n- name: a\n  source: { tools: [] }\nlimits: {}\n",
            "toolsets:\n  - { name: a, source: { tools: [] } }\n\n# about limits\nlimits: {}\n",
            "toolsets:\n  - name: a\n    description: |\n      # text\n\n      more\n    source:\n      \
             tools: []\n    # the end of a\n\n  # nothing here\nstore: 'memory:'",
            "toolsets:\n    - name: a\n      source: { tools: [] }\n    - name: b\n      source:\n        \
             tools: []",
        ] {
            let edited = add_toolset(text, &make_set()).unwrap();
            let mut expected = parse_fields(text).unwrap();
            let items = expected.entry(KEY).or_insert_with(|| json!([]));
            items.as_array_mut().unwrap().push(make_set());
            assert_eq!(yaml::parse(&edited), Ok(Value::Object(expected)), "{edited}");
            let mut kept = edited.lines();
            let is_kept = |line: &str| kept.any(|other| other == line);
            assert!(text.lines().all(is_kept), "{text}\n---\n{edited}");
        }
        let text = "toolsets:\n  - name: a\n    source: { tools: [] }\n    # of a\n\n# of limits\nlimits: {}\n";
        let edited = add_toolset(text, &make_set()).unwrap();
        let places = ["# of a", "name: new", "# of limits"].map(|part| edited.find(part).unwrap());
        assert!(places.is_sorted(), "{edited}");
    }

    #[test]
    fn a_list_in_another_form_is_left_unchanged() {
        for text in [
            "toolsets: [{ name: a, source: { tools: [] } }]\n",
            "toolsets: []\n",
            "toolsets:\n",
            "{ store: 'memory:' }\n",
            r#"{"store": "memory:"}"#,
            "toolsets:\n  -\n    name: a\n    source: { tools: [] }\n",
            "[]",
        ] {
            let error = add_toolset(text, &make_set()).unwrap_err();
            let names_remedy = error.contains("yourself") || error.contains("write `key: value`");
            assert!(names_remedy, "{text}: {error}");
        }
    }
}
