//! Which sets there are: what the configuration says and what was added since, as one list.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use shared::id::{ToolName, ToolSetName};

use super::condition::{Contexts, holds};
use crate::{
    sources::{Documents, SetConfig, Source},
    tool::command::CommandTool,
};

/// Everything that says which sets there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What was added, oldest first: the configuration of a set as it was written.
    pub(super) sets: Vec<(String, Value)>,
    /// Tools that were registered one by one, oldest first: the set, and the tool.
    pub(super) tools: Vec<(String, Value)>,
    /// Sets that were switched on or off.
    pub(super) switches: BTreeMap<String, bool>,
    /// The data of contexts, but for their documents: conditions do not ask for those.
    pub(super) contexts: Contexts,
    /// What contexts offer for retrieval, as it is written.
    pub(super) documents: Contexts,
}

/// A set that there is to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) config: SetConfig,
    /// Whether it is switched on now.
    pub(super) is_active: bool,
    /// Whether it was added, so that it can be removed.
    pub(super) is_added: bool,
}

/// Something that cannot be a set, and why. The others are not touched by it.
pub(super) type Complaint = (String, String);

/// Returns the sets in their order: those that are configured, then those that were added, then
/// those that tools were registered into.
pub(super) fn merge(
    configured: &[SetConfig],
    known: &Known,
    base: &Path,
    secrets: &BTreeSet<String>,
) -> (Vec<Wanted>, Vec<Complaint>) {
    let mut complaints = Vec::new();
    let mut sets: Vec<(SetConfig, bool)> =
        configured.iter().map(|it| (it.clone(), false)).collect();
    for (name, written) in &known.sets {
        match serde_json::from_value::<SetConfig>(written.clone()) {
            Ok(_) if sets.iter().any(|(it, _)| it.name.as_str() == name) => {
                complaints.push((name.clone(), "the configuration has one, too".to_owned()));
            }
            Ok(set) => match denied(set.variables(), secrets) {
                Some(variable) => complaints.push((name.clone(), not_told(variable))),
                None => sets.push((set.added().rooted(base), true)),
            },
            Err(err) => complaints.push((name.clone(), err.to_string())),
        }
    }
    let mut names = names_of(&sets);
    for (set, written) in &known.tools {
        if let Err(why) = add_tool(&mut sets, &mut names, secrets, (set, written)) {
            complaints.push((set.clone(), why));
        }
    }
    let wanted = sets.into_iter().filter_map(|(config, is_added)| {
        let name = config.name.as_str();
        let is_there = match &config.condition {
            None => true,
            Some(condition) => holds(condition, config.context.as_deref(), &known.contexts)
                .unwrap_or_else(|why| {
                    complaints.push((name.to_owned(), format!("its condition: {why}")));
                    false
                }),
        };
        let is_active = known.switches.get(name).copied().unwrap_or(config.active);
        is_there.then_some(Wanted { config, is_active, is_added })
    });
    let mut wanted: Vec<Wanted> = wanted.collect();
    for (context, written) in &known.documents {
        match offered(context, written, &wanted) {
            Ok(None) => {}
            Ok(Some(config)) => {
                let name = config.name.as_str();
                let is_active = known.switches.get(name).copied().unwrap_or(config.active);
                wanted.push(Wanted { config, is_active, is_added: false });
            }
            Err(why) => complaints.push((context.clone(), why)),
        }
    }
    (wanted, complaints)
}

/// Makes the set of the documents that a context offers, if it offers any.
fn offered(context: &str, written: &Value, wanted: &[Wanted]) -> Result<Option<SetConfig>, String> {
    let documents = Documents::read(context, written)?;
    if documents.is_empty() {
        return Ok(None);
    }
    let name = Documents::set_of(context)?;
    if wanted.iter().any(|it| it.config.name == name) {
        return Err(format!("its documents are the toolset `{name}`, which there is already"));
    }
    Ok(Some(SetConfig {
        name,
        description: format!("Documents that the context `{context}` offers for retrieval."),
        active: true,
        source: Source::Documents(Arc::new(documents)),
        context: Some(context.to_owned()),
        condition: None,
    }))
}

/// Names of tools, each with its set: there may be thousands.
type Names = BTreeSet<(ToolSetName, ToolName)>;

fn names_of(sets: &[(SetConfig, bool)]) -> Names {
    let tools = sets.iter().filter_map(|(set, _)| match &set.source {
        Source::Tools(tools) => Some((&set.name, tools)),
        _ => None,
    });
    let names =
        tools.flat_map(|(set, tools)| tools.iter().map(|it| (set.clone(), it.name.clone())));
    names.collect()
}

fn add_tool(
    sets: &mut Vec<(SetConfig, bool)>,
    names: &mut Names,
    secrets: &BTreeSet<String>,
    (set, written): (&str, &Value),
) -> Result<(), String> {
    let tool: CommandTool =
        serde_json::from_value(written.clone()).map_err(|err| err.to_string())?;
    if let Some(variable) = denied(tool.secrets().into_iter().chain(tool.passed()), secrets) {
        return Err(format!("`{}`: {}", tool.name, not_told(variable)));
    }
    let tool = tool.added();
    let name: ToolSetName = set.parse().map_err(|err| format!("{err}"))?;
    let Some((there, _)) = sets.iter_mut().find(|(it, _)| it.name == name) else {
        names.insert((name.clone(), tool.name.clone()));
        sets.push((local(name, vec![tool]), true));
        return Ok(());
    };
    let Source::Tools(tools) = &mut there.source else {
        return Err(format!("its tools come from elsewhere, so `{}` cannot be in it", tool.name));
    };
    if !names.insert((name, tool.name.clone())) {
        return Err(format!("it has two tools called `{}`", tool.name));
    }
    tools.push(tool);
    Ok(())
}

/// Returns a variable of the environment that is none of those that added sets may use.
pub(super) fn denied<'a>(
    variables: impl IntoIterator<Item = &'a str>,
    secrets: &BTreeSet<String>,
) -> Option<&'a str> {
    variables.into_iter().find(|it| !secrets.contains(*it))
}

fn not_told(variable: &str) -> String {
    format!("it uses the variable `{variable}`, which is not in `access.secrets`")
}

/// Makes the set of tools that were registered one by one.
pub(super) fn local(name: ToolSetName, tools: Vec<CommandTool>) -> SetConfig {
    SetConfig {
        name,
        description: "Tools that were registered one by one.".to_owned(),
        active: true,
        source: Source::Tools(tools),
        context: None,
        condition: None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn set(name: &str, more: &Value) -> SetConfig {
        serde_json::from_value(written(name, more)).unwrap()
    }

    fn written(name: &str, more: &Value) -> Value {
        let mut set =
            json!({ "name": name, "source": { "tools": [{ "name": format!("{name}_1") }] } });
        for (key, value) in more.as_object().unwrap() {
            set[key] = value.clone();
        }
        set
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(known: Known, expected: Expect) {
        let configured = [
            set("a", &json!({})),
            set("b", &json!({ "active": false })),
            set("admin", &json!({ "context": "shop", "condition": "adminMode == true" })),
            serde_json::from_value(json!({ "name": "m", "source": { "mcp": { "command": "m" } } }))
                .unwrap(),
        ];
        let secrets = BTreeSet::from(["SHOWN".to_owned()]);
        let (wanted, complaints) = merge(&configured, &known, Path::new("/"), &secrets);
        let mut lines: Vec<String> = Vec::new();
        for Wanted { config, is_active, is_added } in wanted {
            let tools = match config.source {
                Source::Tools(tools) => tools.iter().map(|it| it.name.to_string()).collect(),
                _ => vec!["…".to_owned()],
            };
            let on = if is_active { "on" } else { "off" };
            let added = if is_added { " added" } else { "" };
            lines.push(format!("{} {on}{added}: {}", config.name, tools.join(" ")));
        }
        lines.extend(complaints.into_iter().map(|(name, why)| format!("{name}! {why}")));
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn sets_keep_their_order_and_their_first_state() {
        check(
            Known::default(),
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …"]],
        );
    }

    #[test]
    fn what_was_added_comes_behind_and_changes_nothing_that_is_configured() {
        let tool = |name: &str| json!({ "name": name, "run": { "command": ["date"] } });
        let telling = |name: &str, secret: &str| {
            let env = json!({ "A": { "secret": secret } });
            json!({ "name": name, "run": { "command": ["date"], "env": env } })
        };
        let known = Known {
            sets: vec![
                ("c".to_owned(), written("c", &json!({ "active": false }))),
                ("a".to_owned(), written("a", &json!({}))),
                ("x".to_owned(), json!({ "name": "x", "source": { "later": {} } })),
                (
                    "y".to_owned(),
                    json!({ "name": "y", "source": { "tools": [telling("t", "HIDDEN")] } }),
                ),
            ],
            tools: vec![
                ("a".to_owned(), tool("a_2")),
                ("a".to_owned(), tool("a_1")),
                ("m".to_owned(), tool("t")),
                ("local".to_owned(), tool("t")),
                ("local".to_owned(), tool("u")),
                ("local".to_owned(), telling("v", "SHOWN")),
                ("local".to_owned(), telling("w", "HIDDEN")),
            ],
            ..Known::default()
        };
        check(
            known,
            expect![[r"
                a on: a_1 a_2
                b off: b_1
                m on: …
                c off added: c_1
                local on added: t u v
                a! the configuration has one, too
                x! unknown field `later`, expected `mcp`, `tools`, `builtin`, `openapi` or `graphql`
                y! it uses the variable `HIDDEN`, which is not in `access.secrets`
                a! it has two tools called `a_1`
                m! its tools come from elsewhere, so `t` cannot be in it
                local! `w`: it uses the variable `HIDDEN`, which is not in `access.secrets`"]],
        );
    }

    #[test]
    fn switches_win_and_a_condition_decides_whether_a_set_is_there() {
        let admin = |mode| Contexts::from([("shop".to_owned(), json!({ "adminMode": mode }))]);
        let switches = BTreeMap::from([("a".to_owned(), false), ("b".to_owned(), true)]);
        check(
            Known { switches, contexts: admin(json!(true)), ..Known::default() },
            expect![[r"
                a off: a_1
                b on: b_1
                admin on: admin_1
                m on: …"]],
        );
        check(
            Known { contexts: admin(json!(false)), ..Known::default() },
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …"]],
        );
    }
}
