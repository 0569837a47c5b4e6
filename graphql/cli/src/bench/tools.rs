//! Overhead of Faber around tools: discovery, calls, and thousands of tools.

mod many;
mod servers;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use executor::{call, options::Options};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    execution::ExecutionOptions,
    id::{ParseIdError, ToolName, ToolSetName},
    store::{Store, memory::Memory},
    tool::{Effect, ToolError},
};
use toolbox::{Found, Tool, ToolContext, ToolSet, Toolbox, function};
use toolsets::sources::{Sources, with_builtin};

use super::{
    BenchArgs, BenchError, Rig, load,
    report::{Report, percentile, round},
    workload::{keep, step},
};

/// Timed calls. As many calls run before them.
const CALLS: usize = 20_000;
const SET: &str = "bench";
/// Duration of each of four slow tools.
const SLOW: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

async fn echo(echo: Echo, _: ToolContext) -> Result<Echo, ToolError> {
    Ok(echo)
}

async fn slow(_: Nothing, _: ToolContext) -> Result<(), ToolError> {
    tokio::time::sleep(SLOW).await;
    Ok(())
}

pub(crate) async fn tools(
    rig: &Rig,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    report.set("effect", "read");
    discovery(report);
    functions(args, report).await?;
    at_once(rig, report).await?;
    servers::servers(args, report).await?;
    many::many(args.steps.unwrap_or(10_000), report).await
}

/// Times the built-in toolsets, from nothing to known tools.
fn discovery(report: &mut Report) {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let begun = Instant::now();
    let toolbox = Toolbox::default();
    let sources = Sources::new(&toolbox, shared::limits::OUTPUT_BYTES).with_store(store, clock);
    let base = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    for set in with_builtin(Vec::new()) {
        sources.put(set.rooted(&base));
    }
    let count: usize = toolbox.sets().iter().map(|set| set.tools.len()).sum();
    report.set_ms("builtin_discovery_ms", begun.elapsed());
    report.set("builtin_tools", count);
}

/// Times a function alone, and as a tool.
async fn functions(args: &BenchArgs, report: &mut Report) -> Result<(), BenchError> {
    let calls = args.runs.unwrap_or(CALLS).max(1);
    let own = function(SET, "echo", "Returns what it is given.", Effect::Read, echo);
    let parameters = Arc::new(json!({ "text": "hello" }));
    let mut bare = Vec::with_capacity(calls);
    for n in 0..2 * calls {
        let (args, cx) = (Echo { text: "hello".to_owned() }, ToolContext::detached());
        let begun = Instant::now();
        echo(args, cx).await.map_err(failed)?;
        note(&mut bare, n >= calls, begun.elapsed());
    }
    let toolbox = Toolbox::new([own_set([own])?]);
    let called = through(&toolbox, "bench.echo", &parameters, calls).await?;
    report_calls(report, "function", bare, called);
    Ok(())
}

fn own_set(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<ToolSet, BenchError> {
    let name: ToolSetName =
        SET.parse().map_err(|err: ParseIdError| BenchError::Engine(err.to_string()))?;
    Ok(ToolSet::ready(name, "local", "What the bench calls.", tools))
}

async fn at_once(rig: &Rig, report: &mut Report) -> Result<(), BenchError> {
    let own = function(SET, "slow", "Takes its time.", Effect::Read, slow);
    let register = rig.toolbox.register_set(own_set([own])?);
    register.map_err(|err| BenchError::Engine(err.to_string()))?;
    let steps = (0..4).map(|n| step(&format!("s{n}"), "bench.slow", Some(json!({})), None));
    let plan = keep(rig, steps.collect()).await?;
    report.begin(&*rig.store);
    let begun = Instant::now();
    load::one(&rig.control, &plan, &ExecutionOptions::default()).await?;
    let wall = begun.elapsed();
    report.set("steps", 4);
    report.set("concurrency", 4);
    report.finish(&*rig.store, 4, wall, &mut [wall]);
    report.set_ms("four_slow_tools_ms", wall);
    report.set_ms("slowest_tool_ms", SLOW);
    Ok(())
}

/// Calls a tool like `callTool`, without history. Returns the durations.
async fn through(
    toolbox: &Toolbox,
    name: &str,
    parameters: &Arc<Value>,
    calls: usize,
) -> Result<Vec<Duration>, BenchError> {
    let name: ToolName =
        name.parse().map_err(|err: ParseIdError| BenchError::Engine(err.to_string()))?;
    let options = Arc::new(Options::default());
    let mut times = Vec::with_capacity(calls);
    for n in 0..2 * calls {
        let (parameters, cx) = (Arc::clone(parameters), ToolContext::detached());
        let begun = Instant::now();
        let Found::Tool(tool) = toolbox.find(&name) else {
            return Err(BenchError::Engine(format!("`{name}` cannot be called")));
        };
        call::call_outside_plan(tool, parameters, cx, toolbox, &options).await.map_err(failed)?;
        note(&mut times, n >= calls, begun.elapsed());
    }
    Ok(times)
}

fn note(times: &mut Vec<Duration>, is_warm: bool, time: Duration) {
    if is_warm {
        times.push(time);
    }
}

fn report_calls(
    report: &mut Report,
    what: &str,
    mut bare: Vec<Duration>,
    mut called: Vec<Duration>,
) {
    bare.sort_unstable();
    called.sort_unstable();
    let us = |times: &[Duration], percent| percentile(times, percent).as_secs_f64() * 1e6;
    for (percent, name) in [(50, "p50"), (99, "p99")] {
        let (bare, called) = (us(&bare, percent), us(&called, percent));
        report.set(&format!("{what}_bare_{name}_us"), round(bare));
        report.set(&format!("{what}_called_{name}_us"), round(called));
        report.set(&format!("{what}_overhead_{name}_us"), round(called - bare));
    }
    report.set(&format!("{what}_calls"), called.len());
}

#[expect(clippy::needless_pass_by_value, reason = "it is the `map_err` of many")]
fn failed(err: ToolError) -> BenchError {
    BenchError::Engine(err.to_string())
}
