//! The filter `--failed-tool`, which also takes the name of a tool without its toolset.

use client::failure::Failure;
use serde::Deserialize;
use serde_json::json;

use crate::session::Session;

const MAX_TOOLS: usize = 1_000;
const MAX_LISTED_TOOLS: usize = 10;

/// Returns the name with its toolset. A name without toolset must fit one of the tools that failed.
/// Otherwise the filter would silently match nothing.
pub(super) async fn find_failed_tool(
    session: &Session<'_>,
    name: Option<String>,
) -> Result<Option<String>, Failure> {
    #[derive(Deserialize)]
    struct ToolCount {
        keys: Vec<String>,
    }
    let Some(name) = name else { return Ok(None) };
    if name.contains('.') {
        return Ok(Some(name));
    }
    let arguments =
        [("groupBy: [ExecutionGroup!]!", json!(["TOOL"])), ("first: Int", json!(MAX_TOOLS))];
    let counts: Vec<ToolCount> =
        session.client.query("executionCounts", &arguments, "keys").await?;
    let known: Vec<String> = counts.into_iter().flat_map(|count| count.keys).collect();
    choose_tool(&name, &known).map(Some)
}

fn choose_tool(name: &str, known: &[String]) -> Result<String, Failure> {
    let is_named =
        |tool: &&String| tool.rsplit_once('.').map_or(tool.as_str(), |(_, last)| last) == name;
    let found: Vec<&String> = known.iter().filter(is_named).collect();
    match found[..] {
        [only] => Ok(only.clone()),
        // Nothing has failed, so the list is empty with any name.
        [] if known.is_empty() => Ok(name.to_owned()),
        [] => Err(Failure::usage(format!(
            "no execution failed because of a tool `{name}`: {} failed; write `set.name` for tools \
             of sub-plans",
            list_tools(known)
        ))),
        _ => {
            let found: Vec<String> = found.into_iter().cloned().collect();
            Err(Failure::usage(format!("`{name}` means {}: write one of them", list_tools(&found))))
        }
    }
}

fn list_tools(tools: &[String]) -> String {
    let shown: Vec<String> =
        tools.iter().take(MAX_LISTED_TOOLS).map(|tool| format!("`{tool}`")).collect();
    match tools.len().saturating_sub(MAX_LISTED_TOOLS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_toolset_means_the_tool_that_failed() {
        let known = ["shop.charge", "bank.charge", "shop.render"].map(str::to_owned);
        assert_eq!(choose_tool("render", &known).unwrap(), "shop.render");
        assert_eq!(choose_tool("render", &[]).unwrap(), "render");
        for (name, expected) in [
            ("charge", "`charge` means `shop.charge`, `bank.charge`: write one of them"),
            (
                "chrge",
                "no execution failed because of a tool `chrge`: `shop.charge`, `bank.charge`, `shop.render` failed",
            ),
        ] {
            let failure = choose_tool(name, &known).unwrap_err();
            assert!(failure.message.starts_with(expected), "{failure:?}");
            assert_eq!(failure.status(), 2);
        }
    }
}
