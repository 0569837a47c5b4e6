#![allow(warnings, clippy::all, clippy::pedantic)]
//! Runs PlanBench-XL through Faber's engine without a model. ARGS: cases.json out.jsonl [replans] [only]
use std::{collections::{BTreeMap, BTreeSet}, sync::Arc, time::{Duration, Instant}, io::Write};
use async_trait::async_trait;
use engine::{embedded::Embedded, Order, PlanningOptions, Stage};
use serde_json::{Value, json};
use shared::{execution::{Execution, ExecutionOptions, ReplanOptions, StepState}, tool::{Effect, ToolDefinition, ToolError}};
use toolbox::{Tool, ToolContext, ToolSet};

const D: &str = "src/data/retail/";
fn load(n: &str) -> Value { serde_json::from_str(&std::fs::read_to_string(format!("{D}{n}")).unwrap()).unwrap() }

struct Bench { spec: Value, rows: Arc<Vec<Value>>, definition: Arc<ToolDefinition> }
impl std::fmt::Debug for Bench { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Bench") } }
fn text(v: &Value) -> String { match v { Value::String(s) => s.clone(), v => v.to_string() } }
impl Bench {
    fn new(spec: &Value, rows: &Arc<Vec<Value>>, set: &str) -> Self {
        let out = &spec["surface_output"];
        let field = out["name"].as_str().unwrap();
        let output = json!({"type":"object","properties":{field:{"type":out["type"],"title":out["label"],"description":out["description"]}},"required":[field]});
        let definition = ToolDefinition { name: spec["name"].as_str().unwrap().parse().unwrap(), set: set.parse().unwrap(),
            description: spec["description"].as_str().unwrap().into(), input_schema: spec["parameters"].clone(), output_schema: Some(output),
            effect: Effect::Read, examples: vec![], is_callable: true };
        Self { spec: spec.clone(), rows: Arc::clone(rows), definition: Arc::new(definition) }
    }
    fn run(&self, given: &Value) -> Result<Value, ToolError> {
        let s = &self.spec; let field = s["surface_output"]["name"].as_str().unwrap();
        let fail = |m: &str| Err(ToolError::failed(m).without_retry());
        if s.get("noise_type").is_some() {
            let v = s.get("return_value").filter(|v| !v.is_null()).cloned().unwrap_or_else(|| s["description"].clone());
            if ["explicit failures","deprecated","condition_limited"].contains(&s["noise_type"].as_str().unwrap()) { return fail(&text(&v)); }
            let v = match s["surface_output"]["type"].as_str() { Some("number"|"integer") => text(&v).parse::<f64>().map(|n| json!(n)).unwrap_or(v), _ => v };
            return Ok(json!({field: v}));
        }
        let out = s["output_datatype"].as_str().unwrap();
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        for row in self.rows.iter() {
            if row[out].is_null() { continue; }
            let ok = s["surface_argument_to_datatype"].as_object().unwrap().iter().all(|(arg, ty)| {
                let ty = ty.as_str().unwrap();
                let (a, b) = (&row[ty], &given[arg]);
                !a.is_null() && (text(a) == text(b) || a.as_f64().is_some() && a.as_f64() == b.as_f64())
            });
            if ok { found.insert(text(&row[out]), row[out].clone()); }
        }
        match found.len() { 0 => fail("no record"), 1 => Ok(json!({field: found.into_values().next().unwrap()})), _ => fail("ambiguous") }
    }
}
#[async_trait]
impl Tool for Bench {
    fn definition(&self) -> &Arc<ToolDefinition> { &self.definition }
    async fn call(&self, p: Arc<Value>, _: ToolContext) -> Result<Value, ToolError> { self.run(&p) }
}

fn main() {
    std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_stack_size(16 << 20).enable_all().build().unwrap().block_on(go());
    }).unwrap().join().unwrap();
}
async fn go() {
    let args: Vec<String> = std::env::args().collect();
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(&args[1]).unwrap()).unwrap();
    let replans: u32 = args.get(3).map_or(16, |n| n.parse().unwrap());
    let step: usize = args.get(4).map_or(1, |n| n.parse().unwrap());
    let rows = Arc::new(load("database.json")["order_cases"].as_object().unwrap().values().cloned().collect::<Vec<_>>());
    let all: Vec<&Value> = cases.as_array().unwrap().iter().collect();
    let ever: BTreeSet<String> = all.iter().flat_map(|c| c["blocked"].as_object().unwrap().keys().cloned()).collect();
    let kinds: BTreeSet<String> = all.iter().flat_map(|c| c["blocked"].as_object().unwrap().values().flat_map(|b| b.as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned()))).collect();
    let number = |of: &BTreeSet<String>, n: &str, p: &str| of.iter().position(|o| o == n).map(|at| format!("{p}{at}"));
    let mut sets: BTreeMap<String, Vec<Arc<dyn Tool>>> = BTreeMap::new();
    for file in ["baseline_tools.json", "noisy_tools.json", "blocker_tools.json"] {
        for s in load(file).as_array().unwrap() {
            let n = s["name"].as_str().unwrap();
            let set = match file { "baseline_tools.json" => number(&ever, n, "b").unwrap_or("retail".into()), "noisy_tools.json" => "retail".into(), _ => match number(&kinds, n, "k") { Some(k) => k, None => continue } };
            sets.entry(set.clone()).or_default().push(Arc::new(Bench::new(s, &rows, &set)));
        }
    }
    let opened = Instant::now();
    let faber = Embedded::open("memory:", sets.into_iter().map(|(n, t)| ToolSet::ready(n.parse().unwrap(), "local", "", t))).await.unwrap();
    println!("opened in {:?}", opened.elapsed());
    let mut out = std::fs::File::create(&args[2]).unwrap();
    let (mut right, mut count) = (0, 0);
    let mut times: Vec<Duration> = Vec::new();
    for case in cases.as_array().unwrap().iter().step_by(step) {
        let blocked = case["blocked"].as_object().unwrap();
        let mut names: Vec<String> = vec!["retail".into()];
        names.extend(ever.iter().filter(|n| !blocked.contains_key(*n)).filter_map(|n| number(&ever, n, "b")));
        names.extend(blocked.values().flat_map(|b| b.as_array().unwrap()).filter_map(|n| number(&kinds, n.as_str().unwrap(), "k")));
        let query = case["query"].as_str().unwrap();
        let options = ExecutionOptions { replans: ReplanOptions { sets: names.iter().map(|n| n.parse().unwrap()).collect(), ..ReplanOptions::times(replans) }, ..ExecutionOptions::default() };
        let order = Order { options, ..Order::default() };
        let engine = faber.engine();
        let start = Instant::now();
        let begun = engine.executions.plan_and_start(query, &PlanningOptions { tool_sets: names.clone(), ..PlanningOptions::default() }, order).await;
        times.push(start.elapsed());
        let mut row = json!({"id": case["id"], "target": case["target"], "inputs": case["inputs"], "blocked": blocked.len()});
        match begun {
            Err(e) => { row["error"] = json!(format!("{}: {e}", e.code())); }
            Ok(id) => {
                let mut ended = faber.ended(id).await.unwrap();
                let mut versions = vec![summary(&ended)];
                while let Ok(Some(_)) = engine.executions.reader.load_replanning(&ended).await {
                    let stage = loop {
                        let r = engine.executions.reader.load_replanning(&ended).await.unwrap().unwrap();
                        if r.stage != Stage::Pending { if let Some(g) = r.given_up { row["givenUp"] = json!(g); } break r.stage; }
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    };
                    if stage == Stage::GivenUp { break; }
                    let next = engine.executions.reader.next(&ended).await.unwrap().unwrap();
                    ended = faber.ended(next.id()).await.unwrap();
                    versions.push(summary(&ended));
                }
                let last = ended.steps().last().and_then(|s| match &s.state { StepState::Succeeded(o) => o.as_object().and_then(|o| o.values().next()).map(text), _ => None });
                let ok = last.as_deref().is_some_and(|l| text(&case["answer"]).to_lowercase() == l.to_lowercase() || l.parse::<f64>().is_ok_and(|n| case["answer"].as_f64() == Some(n)));
                row["state"] = json!(ended.state().as_str()); row["got"] = json!(last); row["want"] = case["answer"].clone(); row["right"] = json!(ok);
                row["versions"] = json!(versions);
                right += usize::from(ok);
            }
        }
        row["seconds"] = json!(start.elapsed().as_secs_f64());
        count += 1;
        writeln!(out, "{row}").unwrap();
    }
    times.sort();
    println!("{right} of {count} = {:.3}; planning p50 {:?}, p99 {:?}", right as f64 / count as f64, times[times.len()/2], times[times.len()*99/100]);
    faber.close().await;
}
fn summary(e: &Execution) -> Value {
    json!(e.plan().steps().iter().zip(e.steps()).map(|(p, s)| format!("{} {} {}", p.tool, s.state_name(), p.parameters)).collect::<Vec<_>>())
}
trait Name { fn state_name(&self) -> String; }
impl Name for shared::execution::Step { fn state_name(&self) -> String { match &self.state { StepState::Succeeded(o) => format!("-> {o}"), StepState::Failed(e) => format!("FAILED {}", e.message), _ => "…".into() } } }
