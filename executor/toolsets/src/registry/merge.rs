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
use toolbox::effect_rules::EffectRules;

use super::condition::{ConditionEvaluator, Contexts};
use crate::{
    command::CommandTool,
    sources::{Documents, SetConfig, Source, resolve_tool_paths},
};

#[derive(Clone, Debug, Default)]
pub(super) struct KnownRecords {
    pub(super) sets: Vec<AddedSet>,
    pub(super) tools: Vec<RegisteredTool>,
    /// `true` for sets that were activated, `false` for sets that were deactivated.
    pub(super) switches: BTreeMap<String, bool>,
    /// The data of each context, without its documents. Conditions read this data.
    pub(super) contexts: Contexts,
    /// The documents of each context. They become tools, and conditions do not read them.
    pub(super) documents: Contexts,
}

#[derive(Clone, Debug)]
pub(super) struct AddedSet {
    pub(super) name: String,
    pub(super) settings: Value,
    pub(super) at: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct RegisteredTool {
    /// The name of the record, which is the qualified name of the tool.
    pub(super) record: String,
    pub(super) set: String,
    pub(super) settings: Value,
    pub(super) at: Timestamp,
    /// When this tool's set was created. The tool that created it may have been removed.
    pub(super) since: Option<Timestamp>,
}

impl RegisteredTool {
    /// Returns when the tool's set was created, according to this tool.
    pub(super) fn since(&self) -> Timestamp {
        self.since.map_or(self.at, |since| since.min(self.at))
    }

    pub(super) fn qualified_name(&self) -> Option<ToolName> {
        let tool: ToolName = self.settings.get("name")?.as_str()?.parse().ok()?;
        Some(qualified_name(&self.set.parse().ok()?, &tool))
    }
}

pub(super) type ReadDocuments = BTreeMap<String, Arc<Documents>>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WantedSet {
    pub(super) config: SetConfig,
    /// `true` if the set is active now, even if its configuration makes it inactive. `false` if it
    /// is inactive now, even if its configuration makes it active.
    pub(super) is_active: bool,
}

#[derive(Debug, Default)]
pub(super) struct MergedSets {
    pub(super) wanted_sets: Vec<WantedSet>,
    pub(super) hidden_sets: Vec<SetConfig>,
    pub(super) complaints: Vec<Complaint>,
    pub(super) read_documents: ReadDocuments,
}

/// The name of a set or a context, and the reason why something in it cannot be used. Other sets
/// are not affected.
pub(super) type Complaint = (String, String);

/// A set, and when it was added. Configured sets have no time.
type DatedSet = (SetConfig, Option<Timestamp>);

#[derive(Clone, Copy, Debug)]
pub(super) struct SetMerger<'a> {
    pub(super) configured: &'a [SetConfig],
    pub(super) base: &'a Path,
    /// The environment variables that added sets and tools may use. `None` allows all.
    pub(super) secrets: Option<&'a BTreeSet<String>>,
    pub(super) records_before: &'a KnownRecords,
    /// The documents of the last merge. Unchanged documents are not parsed again.
    pub(super) documents_before: &'a ReadDocuments,
}

impl SetMerger<'_> {
    /// Returns the sets in their order: configured sets first, sets of documents last.
    pub(super) fn merge(&self, records: &KnownRecords) -> MergedSets {
        let mut merged = MergedSets::default();
        let sets = self.all_sets(records, &mut merged.complaints);
        Self::apply_conditions(sets, records, &mut merged);
        self.add_documents(records, &mut merged);
        merged
    }

    fn all_sets(&self, records: &KnownRecords, complaints: &mut Vec<Complaint>) -> Vec<DatedSet> {
        let mut sets: Vec<DatedSet> =
            self.configured.iter().map(|set| (set.clone(), None)).collect();
        for AddedSet { name, settings, at } in &records.sets {
            match serde_json::from_value::<SetConfig>(settings.clone()) {
                Ok(_) if sets.iter().any(|(set, _)| set.name.as_str() == name) => {
                    complaints.push((
                        name.clone(),
                        "the configuration already has a toolset of this name".to_owned(),
                    ));
                }
                Ok(set) => match find_forbidden_variable(set.variables(), self.secrets) {
                    Some(variable) => {
                        complaints.push((name.clone(), forbidden_variable_reason(variable)));
                    }
                    None => sets.push((set.rooted(self.base), Some(*at))),
                },
                Err(err) => complaints.push((name.clone(), err.to_string())),
            }
        }
        let mut names = qualified_tool_names(&sets);
        for tool in &records.tools {
            if let Err(error) = self.add_tool(&mut sets, &mut names, tool) {
                complaints.push((tool.set.clone(), error));
            }
        }
        // Sorts by time. Configured sets have no time, so they come first.
        sets.sort_by_key(|(_, at)| *at);
        sets
    }

    fn add_tool(
        &self,
        sets: &mut Vec<DatedSet>,
        names: &mut BTreeSet<ToolName>,
        registered: &RegisteredTool,
    ) -> Result<(), String> {
        let RegisteredTool { set, settings, .. } = registered;
        let mut tool: CommandTool =
            serde_json::from_value(settings.clone()).map_err(|err| err.to_string())?;
        let variables = tool.secrets().into_iter().chain(tool.passed_variables());
        if let Some(variable) = find_forbidden_variable(variables, self.secrets) {
            return Err(format!("`{}`: {}", tool.name, forbidden_variable_reason(variable)));
        }
        resolve_tool_paths(&mut tool, self.base);
        let name: ToolSetName = set.parse().map_err(|err| format!("{err}"))?;
        let Some((existing_set, _)) = sets.iter_mut().find(|(set, _)| set.name == name) else {
            names.insert(qualified_name(&name, &tool.name));
            sets.push((local_set(name, vec![tool]), Some(registered.since())));
            return Ok(());
        };
        let Source::Tools(tools) = &mut existing_set.source else {
            return Err(format!(
                "`{}` can only be added to a toolset with the source `tools`, and this toolset has \
                 another source",
                tool.name
            ));
        };
        if !names.insert(qualified_name(&name, &tool.name)) {
            return Err(format!("it has two tools called `{}`", tool.name));
        }
        tools.push(tool);
        Ok(())
    }

    fn apply_conditions(sets: Vec<DatedSet>, records: &KnownRecords, merged: &mut MergedSets) {
        let evaluator = ConditionEvaluator::new(&records.contexts);
        for (config, _) in sets {
            let name = config.name.as_str();
            let is_wanted = config.condition.as_ref().is_none_or(|condition| {
                evaluator.evaluate(condition, config.context.as_deref()).unwrap_or_else(|error| {
                    merged.complaints.push((name.to_owned(), format!("its condition: {error}")));
                    false
                })
            });
            if is_wanted {
                merged.wanted_sets.push(WantedSet::new(config, records));
            } else {
                merged.hidden_sets.push(config);
            }
        }
    }

    fn add_documents(&self, records: &KnownRecords, merged: &mut MergedSets) {
        for (context, settings) in &records.documents {
            let is_same = self.records_before.documents.get(context) == Some(settings);
            let documents = match self.documents_before.get(context).filter(|_| is_same) {
                Some(documents) => Ok(Arc::clone(documents)),
                None => Documents::read(context, settings).map(Arc::new),
            };
            let offered = documents.and_then(|documents| {
                merged.read_documents.insert(context.clone(), Arc::clone(&documents));
                document_set(context, documents, &merged.wanted_sets)
            });
            match offered {
                Ok(config) => {
                    merged.wanted_sets.extend(config.map(|config| WantedSet::new(config, records)));
                }
                Err(error) => merged.complaints.push((context.clone(), error)),
            }
        }
    }
}

impl WantedSet {
    fn new(config: SetConfig, records: &KnownRecords) -> Self {
        let is_active = records.switches.get(config.name.as_str()).copied();
        Self { is_active: is_active.unwrap_or(config.active), config }
    }
}

fn document_set(
    context: &str,
    documents: Arc<Documents>,
    wanted: &[WantedSet],
) -> Result<Option<SetConfig>, String> {
    if documents.is_empty() {
        return Ok(None);
    }
    let name = Documents::set_name_for_context(context)?;
    if wanted.iter().any(|set| set.config.name == name) {
        return Err(format!(
            "its documents would become the toolset `{name}`, but a toolset of this name exists \
             already"
        ));
    }
    Ok(Some(SetConfig {
        name,
        description: format!("Documents that the context `{context}` offers for retrieval."),
        active: true,
        source: Source::Documents(documents),
        effects: EffectRules::default(),
        context: Some(context.to_owned()),
        condition: None,
    }))
}

/// Returns the qualified names of the tools that sets list one by one. The result is a set, because
/// searching thousands of tools takes long.
fn qualified_tool_names(sets: &[DatedSet]) -> BTreeSet<ToolName> {
    let mut names = BTreeSet::new();
    for (set, _) in sets {
        if let Source::Tools(tools) = &set.source {
            names.extend(tools.iter().map(|tool| qualified_name(&set.name, &tool.name)));
        }
    }
    names
}

/// Returns the first variable that added sets and tools may not use.
pub(super) fn find_forbidden_variable<'a>(
    variables: impl IntoIterator<Item = &'a str>,
    secrets: Option<&BTreeSet<String>>,
) -> Option<&'a str> {
    let secrets = secrets?;
    variables.into_iter().find(|name| !secrets.contains(*name))
}

fn forbidden_variable_reason(variable: &str) -> String {
    format!("it uses the variable `{variable}`, which is not in `access.secrets`")
}

fn local_set(name: ToolSetName, tools: Vec<CommandTool>) -> SetConfig {
    SetConfig {
        name,
        description: "Tools that were registered one by one.".to_owned(),
        active: true,
        source: Source::Tools(tools),
        effects: EffectRules::default(),
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
        serde_json::from_value(settings(name, more)).unwrap()
    }

    fn added(name: &str, seconds: i64, settings: Value) -> AddedSet {
        let at = Timestamp::from_timestamp(seconds, 0).unwrap();
        AddedSet { name: name.to_owned(), settings, at }
    }

    fn registered(set: &str, seconds: i64, settings: Value) -> RegisteredTool {
        let at = Timestamp::from_timestamp(seconds, 0).unwrap();
        RegisteredTool { record: String::new(), set: set.to_owned(), settings, at, since: None }
    }

    fn settings(name: &str, more: &Value) -> Value {
        let mut set =
            json!({ "name": name, "source": { "tools": [{ "name": format!("{name}_1") }] } });
        for (key, value) in more.as_object().unwrap() {
            set[key] = value.clone();
        }
        set
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_merged_sets(records: KnownRecords, expected: Expect) {
        let configured = [
            set("a", &json!({})),
            set("b", &json!({ "active": false })),
            set("admin", &json!({ "context": "shop", "condition": "adminMode == true" })),
            serde_json::from_value(json!({ "name": "m", "source": { "mcp": { "command": "m" } } }))
                .unwrap(),
        ];
        let secrets = BTreeSet::from(["SHOWN".to_owned()]);
        let merge = SetMerger {
            configured: &configured,
            base: Path::new("/"),
            secrets: Some(&secrets),
            records_before: &KnownRecords::default(),
            documents_before: &ReadDocuments::new(),
        };
        let MergedSets { wanted_sets, complaints, .. } = merge.merge(&records);
        let mut lines: Vec<String> = Vec::new();
        for WantedSet { config, is_active } in wanted_sets {
            let tools = match config.source {
                Source::Tools(tools) => tools.iter().map(|tool| tool.name.to_string()).collect(),
                _ => vec!["…".to_owned()],
            };
            let on = if is_active { "on" } else { "off" };
            lines.push(format!("{} {on}: {}", config.name, tools.join(" ")));
        }
        lines.extend(complaints.into_iter().map(|(name, reason)| format!("{name}! {reason}")));
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn sets_keep_their_order_and_configured_state() {
        check_merged_sets(
            KnownRecords::default(),
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …"]],
        );
    }

    #[test]
    fn added_sets_follow_configured_ones_and_change_none() {
        let tool = |name: &str| json!({ "name": name, "run": { "command": ["date"] } });
        let telling = |name: &str, secret: &str| {
            let env = json!({ "A": { "secret": secret } });
            json!({ "name": name, "run": { "command": ["date"], "env": env } })
        };
        let records = KnownRecords {
            sets: vec![
                added("c", 1, settings("c", &json!({ "active": false }))),
                added("a", 2, settings("a", &json!({}))),
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
            ..KnownRecords::default()
        };
        check_merged_sets(
            records,
            expect![[r"
                a on: a_1 a_2
                b off: b_1
                m on: …
                c off: c_1
                local on: t u v
                a! the configuration already has a toolset of this name
                x! unknown field `later`, expected `mcp`, `tools`, `builtin`, `openapi` or `graphql`
                y! it uses the variable `HIDDEN`, which is not in `access.secrets`
                a! it has two tools called `a_1`
                m! `t` can only be added to a toolset with the source `tools`, and this toolset has another source
                local! `w`: it uses the variable `HIDDEN`, which is not in `access.secrets`
                local! it has two tools called `local.u`"]],
        );
    }

    /// The age of a set matters, because a short name means the tool of the earliest set that has
    /// it.
    #[test]
    fn a_set_is_as_old_as_its_oldest_registered_tool() {
        let tool = |name: &str| json!({ "name": name });
        let records = KnownRecords {
            sets: vec![
                added("c", 2, settings("c", &json!({}))),
                added("d", 4, settings("d", &json!({}))),
            ],
            tools: vec![
                registered("first", 1, tool("t")),
                registered("mid", 3, tool("t")),
                registered("first", 5, tool("u")),
            ],
            ..KnownRecords::default()
        };
        check_merged_sets(
            records,
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …
                first on: t u
                c on: c_1
                mid on: t
                d on: d_1"]],
        );
    }

    #[test]
    fn unchanged_documents_are_not_read_again() {
        fn merge_records(
            records: &KnownRecords,
            records_before: &KnownRecords,
            documents_before: &ReadDocuments,
        ) -> MergedSets {
            let base = Path::new("/");
            SetMerger { configured: &[], base, secrets: None, records_before, documents_before }
                .merge(records)
        }
        let records_of = |content: &str| {
            let rag = |text: &str| json!({ "r": [{ "content": text }] });
            let documents =
                Contexts::from([("f".to_owned(), rag(content)), ("g".to_owned(), rag("tea"))]);
            KnownRecords { documents, ..KnownRecords::default() }
        };
        let (old, new) = (records_of("one"), records_of("two"));
        let first = merge_records(&old, &KnownRecords::default(), &ReadDocuments::new());
        let second = merge_records(&new, &old, &first.read_documents);
        let is_same = |context: &str| {
            Arc::ptr_eq(&first.read_documents[context], &second.read_documents[context])
        };
        assert_eq!(["f", "g"].map(is_same), [false, true]);
        assert_eq!(second.wanted_sets.len(), 2);
    }

    #[test]
    fn switches_set_the_state_and_a_condition_the_existence_of_a_set() {
        let admin = |mode| Contexts::from([("shop".to_owned(), json!({ "adminMode": mode }))]);
        let switches = BTreeMap::from([("a".to_owned(), false), ("b".to_owned(), true)]);
        check_merged_sets(
            KnownRecords { switches, contexts: admin(json!(true)), ..KnownRecords::default() },
            expect![[r"
                a off: a_1
                b on: b_1
                admin on: admin_1
                m on: …"]],
        );
        check_merged_sets(
            KnownRecords { contexts: admin(json!(false)), ..KnownRecords::default() },
            expect![[r"
                a on: a_1
                b off: b_1
                m on: …"]],
        );
    }
}
