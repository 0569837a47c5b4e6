//! Measures plans without a model, over queries whose right calls are known.
//!
//! ```sh
//! cargo run --release -p offline --example gold -- DIRECTORY [--errors SET] [--once]
//! ```
//!
//! Every `*.jsonl` in `DIRECTORY` is a set. Each of its lines contains a query, the tools that the
//! plan may use, and the right calls:
//!
//! ```json
//! {"id": 0, "query": "…", "tools": [{"name": "…", "description": "…", "inputSchema": {}}],
//!  "calls": [{"name": "…", "arguments": {"city": ["Paris", "Paris, France"], "unit": ["", "celsius"]}}]}
//! ```
//!
//! An argument is right if its value is in the list of that argument. It may be missing if the list
//! contains `""`. Texts are compared as the Berkeley Function-Calling Leaderboard (BFCL) does:
//! without case, spaces and `,./-_*^`. Calls may come in any order.
//!
//! Files of BFCL are converted line by line, from `question`, `function`, and the `ground_truth` of
//! `possible_answer`. Its types `dict`, `float` and `tuple` become JSON Schema's `object`, `number`
//! and `array`. Lines of Seal-Tools get the tools that the prompts of Seal-Tools list.
//!
//! The planner was developed with the queries that have even ids. The queries with odd ids test it.
//! `--errors SET` prints the errors in the even half of a set. With `--once`, all tools have
//! effects.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use offline::Offline;
use planner::{
    PlanningError, Proposal,
    catalog::{Catalog, CatalogTool},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::tool::{Effect, ToolDefinition};

#[derive(Deserialize)]
struct Case {
    id: u64,
    query: String,
    tools: Vec<Tool>,
    calls: Vec<Gold>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    description: String,
    input_schema: Value,
}

#[derive(Deserialize)]
struct Gold {
    name: String,
    arguments: Map<String, Value>,
}

#[derive(Default)]
struct Figures {
    queries: u32,
    plans: u32,
    names: u32,
    exact: u32,
    took: Vec<Duration>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().ok_or("which directory?")?);
    let (mut shown, planner, mut effect) = (None, Offline::default(), Effect::Read);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--errors" => shown = args.next(),
            "--once" => effect = Effect::Once,
            other => return Err(format!("`{other}` is not an option").into()),
        }
    }
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|found| found.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    println!("| set | half | queries | plans | names exact | calls exact | of plans | median ms |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for file in files {
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if shown.as_ref().is_some_and(|set| *set != name) {
            continue;
        }
        let mut halves = [Figures::default(), Figures::default()];
        for line in fs::read_to_string(&file)?.lines() {
            let case: Case = serde_json::from_str(line)?;
            let is_told = shown.is_some() && case.id.is_multiple_of(2);
            let half = &mut halves[usize::from(!case.id.is_multiple_of(2))];
            judge(&planner, &case, effect, half, is_told).await?;
        }
        for (half, figures) in ["developed", "held out"].into_iter().zip(halves) {
            figures.print(&name, half);
        }
    }
    Ok(())
}

async fn judge(
    planner: &Offline,
    case: &Case,
    effect: Effect,
    figures: &mut Figures,
    is_told: bool,
) -> Result<(), Box<dyn Error>> {
    let (catalog, names) = catalog(&case.tools, effect)?;
    let started = Instant::now();
    let outcome = planner.propose(&case.query, &catalog, &catalog).await;
    figures.took.push(started.elapsed());
    figures.queries += 1;
    figures.plans += u32::from(outcome.is_ok());
    let calls = outcome.as_ref().map(|proposal| calls(proposal, &names)).unwrap_or_default();
    let (mut has, mut wants): (Vec<&str>, Vec<&str>) = (
        calls.iter().map(|call| call.0.as_str()).collect(),
        case.calls.iter().map(|call| call.name.as_str()).collect(),
    );
    has.sort_unstable();
    wants.sort_unstable();
    let (names, exact) = (has == wants, is_exact(&calls, &case.calls));
    figures.names += u32::from(names);
    figures.exact += u32::from(exact);
    if is_told && !exact {
        tell(case, &outcome, &calls);
    }
    Ok(())
}

/// Makes a catalog. Also returns the names of its tools in the set, because not every name in a set
/// is a valid name of a tool.
fn catalog(
    tools: &[Tool],
    effect: Effect,
) -> Result<(Catalog, BTreeMap<String, String>), Box<dyn Error>> {
    let mut names = BTreeMap::new();
    let mut listed = Vec::new();
    for tool in tools {
        let is_fit = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
        let fit: String =
            tool.name.chars().map(|char| if is_fit(char) { char } else { '_' }).collect();
        names.insert(fit.clone(), tool.name.clone());
        let definition = Arc::new(ToolDefinition {
            name: fit.parse()?,
            set: "set".parse()?,
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: None,
            effect,
            examples: Vec::new(),
            is_callable: true,
        });
        listed.push(CatalogTool { definition, is_active: true });
    }
    Ok((Catalog::new(listed), names))
}

fn calls(proposal: &Proposal, names: &BTreeMap<String, String>) -> Vec<(String, Value)> {
    let steps = proposal.draft.tools.iter();
    steps
        .map(|step| {
            let name = step.name.clone().unwrap_or_default();
            let name = names.get(&name).cloned().unwrap_or(name);
            (name, step.parameters.clone().unwrap_or_default())
        })
        .collect()
}

fn is_exact(calls: &[(String, Value)], gold: &[Gold]) -> bool {
    let mut left: Vec<&(String, Value)> = calls.iter().collect();
    calls.len() == gold.len()
        && gold.iter().all(|wanted| {
            let found = left.iter().position(|(name, arguments)| {
                *name == wanted.name && fits_fields(arguments, &wanted.arguments)
            });
            found.map(|at| left.remove(at)).is_some()
        })
}

fn fits_fields(said: &Value, wanted: &Map<String, Value>) -> bool {
    let Some(said) = said.as_object() else { return false };
    let is_listed = said.iter().all(|(name, value)| {
        wanted.get(name).is_some_and(|alternatives| fits_any(value, alternatives))
    });
    let is_there = |(name, alternatives): (&String, &Value)| {
        said.contains_key(name)
            || alternatives
                .as_array()
                .is_some_and(|list| list.iter().any(|alternative| alternative == ""))
    };
    is_listed && wanted.iter().all(is_there)
}

fn fits_any(said: &Value, alternatives: &Value) -> bool {
    alternatives
        .as_array()
        .is_some_and(|list| list.iter().any(|alternative| fits(said, alternative)))
}

fn fits(said: &Value, wanted: &Value) -> bool {
    match (said, wanted) {
        // The output of an earlier call. Seal-Tools writes `API_call_0`, and a draft writes a
        // template.
        (Value::String(said), Value::String(wanted)) if wanted.starts_with("API_call_") => {
            said.starts_with("{{") && !said.starts_with("{{{{")
        }
        (Value::String(said), Value::String(wanted)) => plain(said) == plain(wanted),
        (Value::Number(said), Value::Number(wanted)) => said.as_f64() == wanted.as_f64(),
        (Value::Array(said), Value::Array(wanted)) => {
            said.len() == wanted.len() && said.iter().zip(wanted).all(|(a, b)| fits(a, b))
        }
        (Value::Object(_), Value::Object(wanted)) => fits_fields(said, wanted),
        (said, wanted) => said == wanted,
    }
}

fn plain(text: &str) -> String {
    let kept = text.replace("{{{{", "{{");
    let kept =
        kept.chars().filter(|char| !matches!(char, ' ' | ',' | '.' | '/' | '-' | '_' | '*' | '^'));
    kept.collect::<String>().to_lowercase().replace('\'', "\"")
}

fn tell(case: &Case, outcome: &Result<Proposal, PlanningError>, calls: &[(String, Value)]) {
    println!("\n## {} {}", case.id, case.query);
    for tool in &case.tools {
        if case.calls.iter().any(|call| call.name == tool.name) {
            println!("   {} | {} {}", tool.name, tool.description, tool.input_schema);
        } else {
            println!("   {} | {}", tool.name, tool.description);
        }
    }
    for call in &case.calls {
        println!("  wanted {} {}", call.name, json!(call.arguments));
    }
    for (name, arguments) in calls {
        println!("  said   {name} {arguments}");
    }
    if let Err(err) = outcome {
        println!("  said   {err}");
        if let PlanningError::NoPlan { notes, .. } = err {
            for note in notes.iter().filter(|note| note.kind == "evidence") {
                println!("  evidence {}", note.content);
            }
        }
    }
}

impl Figures {
    fn print(mut self, name: &str, half: &str) {
        self.took.sort_unstable();
        let median = self.took.get(self.took.len() / 2).copied().unwrap_or_default();
        let share = |part: u32, of: u32| f64::from(part) / f64::from(of.max(1));
        println!(
            "| {name} | {half} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {:.2} |",
            self.queries,
            share(self.plans, self.queries),
            share(self.names, self.queries),
            share(self.exact, self.queries),
            share(self.exact, self.plans),
            median.as_secs_f64() * 1e3,
        );
    }
}
