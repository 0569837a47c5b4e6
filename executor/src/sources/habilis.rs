//! Files that describe tools by what people say: `{"tools_list": [{"name", "description",
//! "examples", "arguments"}]}`, the format of Tool-Habilis.
//!
//! An argument has a description and no type, so anything fits it, and none can be left out. Such
//! a tool is known for selection; with `run`, as in the configuration, it can be called, too.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A file of tools.
#[derive(Deserialize)]
struct File {
    tools_list: Vec<Described>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    examples: Vec<String>,
    #[serde(default)]
    arguments: Map<String, Value>,
    effect: Option<Value>,
    run: Option<Value>,
}

/// Returns the tools of a file as the configuration would have them.
pub fn read(file: &Value) -> Result<Vec<Value>, String> {
    let file: File = File::deserialize(file).map_err(|err| {
        format!("no list of tools: {err}; write `{{\"tools_list\": [{{\"name\": …}}]}}`")
    })?;
    file.tools_list.into_iter().map(Described::written).collect()
}

impl Described {
    fn written(self) -> Result<Value, String> {
        let mut properties = Map::new();
        for (name, about) in self.arguments {
            let schema = match about {
                Value::String(about) => json!({ "description": about }),
                Value::Object(_) => about,
                _ => {
                    let tool = self.name;
                    return Err(format!("the argument `{name}` of `{tool}` needs a description"));
                }
            };
            properties.insert(name, schema);
        }
        let required: Vec<&String> = properties.keys().collect();
        let mut written = json!({
            "name": self.name,
            "description": self.description,
            "examples": self.examples,
            "parameters": { "type": "object", "required": required, "properties": properties },
        });
        for (key, value) in [("effect", self.effect), ("run", self.run)] {
            if let Some(value) = value {
                written[key] = value;
            }
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_say_becomes_a_tool() {
        let file = json!({ "tools_list": [
            { "name": "time", "description": "Says the time.", "examples": ["What time is it?"], "arguments": {} },
            { "name": "add", "arguments": { "a": "A number.", "b": "Another." }, "run": { "command": ["add"] } },
        ] });
        let tools = read(&file).unwrap();
        assert_eq!(tools[0]["examples"], json!(["What time is it?"]));
        assert!(tools[0].get("run").is_none());
        let schema = json!({
            "type": "object",
            "required": ["a", "b"],
            "properties": { "a": { "description": "A number." }, "b": { "description": "Another." } },
        });
        assert_eq!(tools[1]["parameters"], schema);
        assert_eq!(tools[1]["run"], json!({ "command": ["add"] }));
    }

    #[test]
    fn another_file_is_not_taken_for_one() {
        for file in [json!([]), json!({ "tools": [] }), json!({ "tools_list": [{}] })] {
            assert!(read(&file).unwrap_err().contains("no list of tools"), "{file}");
        }
        let odd = json!({ "tools_list": [{ "name": "t", "arguments": { "a": 1 } }] });
        assert_eq!(read(&odd).unwrap_err(), "the argument `a` of `t` needs a description");
    }
}
