//! Merges configured and added sets into one list.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use shared::{
    clock::Timestamp,
    id::{ToolName, ToolSetName},
    tool::qualified_name,
};

use super::condition::{Asked, Contexts};
use crate::{
    command::CommandTool,
    sources::{Documents, SetConfig, Source, root},
};

/// Everything that says which sets there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Added sets and tools, oldest first.
    pub(super) sets: Vec<Added>,
    /// Tools that were registered one by one, oldest first.
    pub(super) tools: Vec<Registered>,
    /// Sets that were switched on or off.
    pub(super) switches: BTreeMap<String, bool>,
    /// The data of contexts, but for their documents: conditions do not ask for those.
    pub(super) contexts: Contexts,
    /// Documents of contexts, as configured.
    pub(super) documents: Contexts,
}

/// A set that was added.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub(super) name: String,
    /// Its configuration as it was written.
    pub(super) written: Value,
    pub(super) at: Timestamp,
}

/// A tool that was registered.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    /// The name of its record, which always means this tool.
    pub(super) record: String,
    pub(super) set: String,
    /// As it was written.
    pub(super) written: Value,
    pub(super) at: Timestamp,
    /// Since when there was its set by then: the tool that began it may be gone.
    pub(super) since: Option<Timestamp>,
}

impl Registered {
    /// Returns since when there is its set, as far as this one knows.
    pub(super) fn since(&self) -> Timestamp {
        self.since.map_or(self.at, |it| it.min(self.at))
    }

    /// Returns the name that always means the tool, if it is one that there can be.
    pub(super) fn qualified(&self) -> Option<ToolName> {
        let tool: ToolName = self.written.get("name")?.as_str()?.parse().ok()?;
        Some(qualified_name(&self.set.parse().ok()?, &tool))
    }
}

/// The documents of contexts as they were read, by the context.
pub(super) type Read = BTreeMap<String, Arc<Documents>>;

/// A set that there is to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) config: SetConfig,
    /// `true` if it is switched on now.
    pub(super) is_active: bool,
    /// `true` if it was added, so that it can be removed.
    pub(super) is_added: bool,
}

/// The merged sets.
#[derive(Debug)]
pub(super) struct Merged {
    /// The sets that there are to be, in their order.
    pub(super) wanted: Vec<Wanted>,
    /// Those whose condition does not hold.
    pub(super) hidden: Vec<SetConfig>,
    /// Requests that conflict with others.
    pub(super) complaints: Vec<Complaint>,
    /// The documents of contexts.
    pub(super) read: Read,
}

/// Something that cannot be a set, and why. The others are not touched by it.
pub(super) type Complaint = (String, String);

/// A set, and when it was added, if it was.
type Dated = (SetConfig, Option<Timestamp>);

/// Returns the sets in their order: those that are configured, then those that were added or that
/// tools were registered into, by when that first happened. `before` is what was known the last
/// time, with the documents that were read of it.
pub(super) fn merge(
    configured: &[SetConfig],
    known: &Known,
    before: (&Known, &Read),
    base: &Path,
    secrets: Option<&BTreeSet<String>>,
) -> Merged {
    let mut complaints = Vec::new();
    let mut sets: Vec<Dated> = configured.iter().map(|it| (it.clone(), None)).collect();
    for Added { name, written, at } in &known.sets {
        match serde_json::from_value::<SetConfig>(written.clone()) {
            Ok(_) if sets.iter().any(|(it, _)| it.name.as_str() == name) => {
                complaints.push((name.clone(), "the configuration has one, too".to_owned()));
            }
            Ok(set) => match denied(set.variables(), secrets) {
                Some(variable) => complaints.push((name.clone(), not_told(variable))),
                None => sets.push((set.rooted(base), Some(*at))),
            },
            Err(err) => complaints.push((name.clone(), err.to_string())),
        }
    }
    let mut names = names_of(&sets);
    for tool in &known.tools {
        if let Err(why) = add_tool(&mut sets, &mut names, (base, secrets), tool) {
            complaints.push((tool.set.clone(), why));
        }
    }
    // Those that are configured come before any time.
    sets.sort_by_key(|(_, at)| *at);
    let (mut wanted, mut hidden): (Vec<Wanted>, _) = (Vec::new(), Vec::new());
    let asked = Asked::new(&known.contexts);
    for (config, at) in sets {
        let is_added = at.is_some();
        let name = config.name.as_str();
        let is_there = match &config.condition {
            None => true,
            Some(condition) => {
                asked.holds(condition, config.context.as_deref()).unwrap_or_else(|why| {
                    complaints.push((name.to_owned(), format!("its condition: {why}")));
                    false
                })
            }
        };
        let is_active = known.switches.get(name).copied().unwrap_or(config.active);
        if is_there {
            wanted.push(Wanted { config, is_active, is_added });
        } else {
            hidden.push(config);
        }
    }
    let mut read = Read::new();
    for (context, written) in &known.documents {
        let is_same = before.0.documents.get(context) == Some(written);
        let documents = match before.1.get(context).filter(|_| is_same) {
            Some(documents) => Ok(Arc::clone(documents)),
            None => Documents::read(context, written).map(Arc::new),
        };
        let offered = documents.and_then(|documents| {
            read.insert(context.clone(), Arc::clone(&documents));
            offered(context, documents, &wanted)
        });
        match offered {
            Ok(None) => {}
            Ok(Some(config)) => {
                let name = config.name.as_str();
                let is_active = known.switches.get(name).copied().unwrap_or(config.active);
                wanted.push(Wanted { config, is_active, is_added: false });
            }
            Err(why) => complaints.push((context.clone(), why)),
        }
    }
    Merged { wanted, hidden, complaints, read }
}

/// Makes the set of the documents that a context offers, if it offers any.
fn offered(
    context: &str,
    documents: Arc<Documents>,
    wanted: &[Wanted],
) -> Result<Option<SetConfig>, String> {
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
        source: Source::Documents(documents),
        context: Some(context.to_owned()),
        condition: None,
    }))
}

/// The names that always mean a tool: there may be thousands.
type Names = BTreeSet<ToolName>;

fn names_of(sets: &[Dated]) -> Names {
    let tools = sets.iter().filter_map(|(set, _)| match &set.source {
        Source::Tools(tools) => Some((&set.name, tools)),
        _ => None,
    });
    let names = tools.flat_map(|(set, tools)| tools.iter().map(|it| qualified_name(set, &it.name)));
    names.collect()
}

fn add_tool(
    sets: &mut Vec<Dated>,
    names: &mut Names,
    (base, secrets): (&Path, Option<&BTreeSet<String>>),
    registered: &Registered,
) -> Result<(), String> {
    let Registered { set, written, .. } = registered;
    let mut tool: CommandTool =
        serde_json::from_value(written.clone()).map_err(|err| err.to_string())?;
    if let Some(variable) = denied(tool.secrets().into_iter().chain(tool.passed()), secrets) {
        return Err(format!("`{}`: {}", tool.name, not_told(variable)));
    }
    root(&mut tool, base);
    let name: ToolSetName = set.parse().map_err(|err| format!("{err}"))?;
    let Some((there, _)) = sets.iter_mut().find(|(it, _)| it.name == name) else {
        names.insert(qualified_name(&name, &tool.name));
        sets.push((local(name, vec![tool]), Some(registered.since())));
        return Ok(());
    };
    let Source::Tools(tools) = &mut there.source else {
        return Err(format!("its tools come from elsewhere, so `{}` cannot be in it", tool.name));
    };
    if !names.insert(qualified_name(&name, &tool.name)) {
        return Err(format!("it has two tools called `{}`", tool.name));
    }
    tools.push(tool);
    Ok(())
}

/// Returns a variable of the environment that is none of those that added sets may use.
pub(super) fn denied<'a>(
    variables: impl IntoIterator<Item = &'a str>,
    secrets: Option<&BTreeSet<String>>,
) -> Option<&'a str> {
    let secrets = secrets?;
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

    fn added(name: &str, at: i64, written: Value) -> Added {
        let at = Timestamp::from_timestamp(at, 0).unwrap();
        Added { name: name.to_owned(), written, at }
    }

    fn registered(set: &str, at: i64, written: Value) -> Registered {
        let at = Timestamp::from_timestamp(at, 0).unwrap();
        Registered { record: String::new(), set: set.to_owned(), written, at, since: None }
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
        let before = (&Known::default(), &Read::new());
        let Merged { wanted, complaints, .. } =
            merge(&configured, &known, before, Path::new("/"), Some(&secrets));
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
                added("c", 1, written("c", &json!({ "active": false }))),
                added("a", 2, written("a", &json!({}))),
                added("x", 3, json!({ "name": "x", "source": { "later": {} } })),
                added(
                    "y",
                    4,
                    json!({ "name": "y", "source": { "tools": [telling("t", "HIDDEN")] } }),
                ),
            ],
            tools: vec![
                registered("a", 5, tool("a_2")),
                registered("a", 6, tool("a_1")),
                registered("m", 7, tool("t")),
                registered("local", 8, tool("t")),
                registered("local", 9, tool("u")),
                registered("local", 10, telling("v", "SHOWN")),
                registered("local", 11, telling("w", "HIDDEN")),
                registered("local", 12, tool("local.u")),
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
                local! `w`: it uses the variable `HIDDEN`, which is not in `access.secrets`
                local! it has two tools called `local.u`"]],
        );
    }

    /// The plain name means the earliest set that has it, however that came to be.
    #[test]
    fn a_set_that_tools_were_registered_into_is_as_old_as_the_oldest_of_them() {
        let tool = |name: &str| json!({ "name": name });
        let known = Known {
            sets: vec![
                added("c", 2, written("c", &json!({}))),
                added("d", 4, written("d", &json!({}))),
            ],
            tools: vec![
                registered("first", 1, tool("t")),
                registered("mid", 3, tool("t")),
                registered("first", 5, tool("u")),
            ],
            ..Known::default()
        };
        check(
            known,
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …
                first on added: t u
                c on added: c_1
                mid on added: t
                d on added: d_1"]],
        );
    }

    #[test]
    fn documents_that_are_as_they_were_are_not_read_again() {
        fn merged(known: &Known, before: (&Known, &Read)) -> Merged {
            merge(&[], known, before, Path::new("/"), None)
        }
        let known = |content: &str| {
            let rag = |text: &str| json!({ "r": [{ "content": text }] });
            let documents =
                Contexts::from([("f".to_owned(), rag(content)), ("g".to_owned(), rag("tea"))]);
            Known { documents, ..Known::default() }
        };
        let (old, new) = (known("one"), known("two"));
        let first = merged(&old, (&Known::default(), &Read::new()));
        let then = merged(&new, (&old, &first.read));
        let is_same = |context: &str| Arc::ptr_eq(&first.read[context], &then.read[context]);
        assert_eq!(["f", "g"].map(is_same), [false, true]);
        assert_eq!(then.wanted.len(), 2);
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
