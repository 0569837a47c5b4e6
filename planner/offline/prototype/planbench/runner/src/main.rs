//! Runs PlanBench-XL through Faber's engine without a model. ARGS: cases.json out.jsonl [replans] [only]
use std::{collections::{BTreeMap, BTreeSet}, sync::Arc, time::{Duration, Instant}, io::Write};
use async_trait::async_trait;
use engine::{embedded::Embedded, Order, PlanningOptions, Stage};
use serde_json::{Value, json};
use shared::{execution::{Execution, ExecutionOptions, ReplanOptions, StepState}, tool::{Effect, ToolDefinition, ToolError}};
use toolbox::{Tool, ToolContext, ToolSet};

const D: &str = "WORK/w/planbench/src/data/retail/";
fn load(n: &str) -> Value { serde_json::from_str(&std::fs::read_to_string(format!("{D}{n}")).unwrap()).unwrap() }

struct Bench { spec: Value, rows: Arc<Vec<Value>>, definition: Arc<ToolDefinition> }
impl std::fmt::Debug for Bench { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("Bench") } }
fn text(v: &Value) -> String { match v { Value::String(s) => s.clone(), v => v.to_string() } }
impl Bench {
    fn new(spec: &Value, rows: &Arc<Vec<Value>>) -> Self {
        let out = &spec["surface_output"];
        let field = out["name"].as_str().unwrap();
        let output = json!({"type":"object","properties":{field:{"type":out["type"],"title":out["label"],"description":out["description"]}},"required":[field]});
        let definition = ToolDefinition { name: spec["name"].as_str().unwrap().parse().unwrap(), set: "retail".parse().unwrap(),
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
    let make = |n: &str| -> BTreeMap<String, Arc<Bench>> { load(n).as_array().unwrap().iter().map(|s| (s["name"].as_str().unwrap().to_owned(), Arc::new(Bench::new(s, &rows)))).collect() };
    let (base, noisy, block) = (make("baseline_tools.json"), make("noisy_tools.json"), make("blocker_tools.json"));
    let mut out = std::fs::File::create(&args[2]).unwrap();
    let (mut right, mut count) = (0, 0);
    let mut times: Vec<Duration> = Vec::new();
    let mut shared: Option<Embedded> = None;
    for case in cases.as_array().unwrap().iter().step_by(step) {
        let blocked = case["blocked"].as_object().unwrap();
        let faber = match &shared { Some(f) if blocked.is_empty() => f, _ => {
            if let Some(f) = shared.take() { f.close().await; }
            let mut tools: BTreeMap<String, Arc<Bench>> = noisy.clone();
            tools.extend(base.iter().filter(|(n, _)| !blocked.contains_key(*n)).map(|(a, b)| (a.clone(), b.clone())));
            let names: BTreeSet<&str> = blocked.values().flat_map(|b| b.as_array().unwrap()).map(|n| n.as_str().unwrap()).collect();
            tools.extend(names.iter().map(|n| ((*n).to_owned(), block[*n].clone())));
            let set = ToolSet::ready("retail".parse().unwrap(), "local", "", tools.into_values().map(|t| t as Arc<dyn Tool>));
            shared = Some(Embedded::open("memory:", [set]).await.unwrap());
            shared.as_ref().unwrap()
        }};
        let query = case["query"].as_str().unwrap();
        let options = ExecutionOptions { replans: ReplanOptions::times(replans), ..ExecutionOptions::default() };
        let order = Order { options, ..Order::default() };
        let engine = faber.engine();
        let start = Instant::now();
        let begun = engine.executions.plan_and_start(query, &PlanningOptions::default(), order).await;
        times.push(start.elapsed());
        let mut row = json!({"id": case["id"], "target": case["target"], "inputs": case["inputs"], "blocked": blocked.len()});
        match begun {
            Err(e) => { row["error"] = json!(format!("{}: {e}", e.code())); }
            Ok(id) => {
                let mut ended = faber.ended(id).await.unwrap();
                let mut versions = vec![summary(&ended)];
                while let Ok(Some(_)) = engine.executions.reader.replanning(&ended).await {
                    let stage = loop {
                        let r = engine.executions.reader.replanning(&ended).await.unwrap().unwrap();
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
    if let Some(f) = shared { f.close().await; }
}
fn summary(e: &Execution) -> Value {
    json!(e.plan().steps().iter().zip(e.steps()).map(|(p, s)| format!("{} {} {}", p.tool, s.state_name(), p.parameters)).collect::<Vec<_>>())
}
trait Name { fn state_name(&self) -> String; }
impl Name for shared::execution::Step { fn state_name(&self) -> String { match &self.state { StepState::Succeeded(o) => format!("-> {o}"), StepState::Failed(e) => format!("FAILED {}", e.message), _ => "…".into() } } }
