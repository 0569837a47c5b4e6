//! Which fields the objects of the API have, so that `--json` prints all of them, whatever the
//! version of the server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{client::Client, failure::Failure};

/// The types of an API and their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(BTreeMap<String, Vec<Field>>);

#[derive(Clone, Debug)]
struct Field {
    name: String,
    is_scalar: bool,
    needs_arguments: bool,
}

const INTROSPECTION: &str = "{ __schema { types { name fields { name args { defaultValue \
     type { kind } } type { kind ofType { kind ofType { kind ofType { kind ofType { kind ofType { \
     kind } } } } } } } } } }";

impl Shape {
    /// Asks an API what it has.
    pub(super) async fn of(client: &Client) -> Result<Self, Failure> {
        let schema = client.field(INTROSPECTION, json!({})).await?;
        let types = schema["types"].as_array().into_iter().flatten();
        let shape = types.filter_map(|it| {
            let fields = it["fields"].as_array()?.iter().filter_map(Field::read);
            Some((it["name"].as_str()?.to_owned(), fields.collect()))
        });
        Ok(Self(shape.collect()))
    }

    /// Selects every scalar field of a type, and what is asked for of the others that it has.
    fn select(&self, name: &str, others: &[(&str, String)]) -> String {
        let fields = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut selected = Vec::new();
        for field in fields.iter().filter(|it| !it.needs_arguments) {
            if field.is_scalar {
                selected.push(field.name.clone());
            } else if let Some((name, of)) = others.iter().find(|(it, _)| *it == field.name) {
                selected.push(format!("{name} {of}"));
            }
        }
        format!("{{ {} }}", selected.join(" "))
    }

    /// Selects a plan with its steps.
    pub(super) fn plan(&self) -> String {
        let tools = self.select("ToolExecution", &[]);
        let diagnostics = self.select("Diagnostic", &[]);
        self.select("Plan", &[("tools", tools), ("diagnostics", diagnostics)])
    }

    /// Selects an execution with its plan, steps and results.
    pub(super) fn execution(&self) -> String {
        let error = self.select("StepError", &[]);
        let own = [("error", error.clone()), ("progress", self.select("Progress", &[]))];
        let (item, undo) = (self.select("StepStatus", &own), self.select("StepStatus", &own));
        let [own_error, progress] = own;
        let tally = self.select("ItemTally", &[]);
        let more = [("items", item), ("itemTally", tally), ("compensation", undo)];
        let of_step: Vec<_> = [own_error, progress].into_iter().chain(more).collect();
        let steps = self.select("StepStatus", &of_step);
        let results = self.select("ExecutionResults", &[("errors", error)]);
        let waits = self.select("Wait", &[]);
        self.select(
            "Execution",
            &[
                ("plan", self.plan()),
                ("steps", steps),
                ("executionResults", results),
                ("waitsFor", waits),
                ("replanning", self.select("Replanning", &[])),
                ("next", "{ executionId }".to_owned()),
            ],
        )
    }

    /// Selects everything about a request, and its newest executions, so many of them.
    pub(super) fn request(&self, last: i32) -> String {
        self.select(
            "Request",
            &[
                ("plans", self.plan()),
                ("executions", format!("(last: {last}) {}", self.execution())),
                ("transcript", self.select("TranscriptEntry", &[])),
                ("timeline", self.timeline_entry()),
            ],
        )
    }

    /// Selects what a timeline has.
    pub(super) fn timeline_entry(&self) -> String {
        self.select("TimelineEntry", &[])
    }

    /// Selects what a list shows of a type.
    pub(super) fn scalars(&self, name: &str) -> String {
        self.select(name, &[])
    }

    /// Selects a tool that was chosen.
    pub(super) fn tool_match(&self) -> String {
        self.select("ToolMatch", &[("tool", self.scalars("Tool"))])
    }

    /// Selects a toolset with its tools.
    pub(super) fn tool_set(&self) -> String {
        self.select("ToolSet", &[("tools", self.scalars("Tool"))])
    }
}

impl Field {
    fn read(field: &Value) -> Option<Self> {
        let mut kind = &field["type"];
        while !kind["ofType"].is_null() {
            kind = &kind["ofType"];
        }
        let is_scalar = matches!(kind["kind"].as_str(), Some("SCALAR" | "ENUM"));
        let needs_arguments = field["args"].as_array().is_some_and(|args| {
            args.iter().any(|it| it["type"]["kind"] == "NON_NULL" && it["defaultValue"].is_null())
        });
        Some(Self { name: field["name"].as_str()?.to_owned(), is_scalar, needs_arguments })
    }
}
