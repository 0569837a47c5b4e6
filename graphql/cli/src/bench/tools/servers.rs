//! MCP servers: started together, and called, with and without Faber.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use toolbox::{SetStatus, Toolbox};
use toolsets::sources::{CONNECT_TIMEOUT, Sources};

use super::{
    super::{
        BenchArgs, BenchError,
        bare::{Bare, Start},
        report::{Report, percentile, round},
    },
    note, report_calls, through,
};

const SERVERS: usize = 9;
const STARTS: usize = 5;
const CALLS: usize = 2_000;
/// A *read* tool of the demo.
const TOOL: &str = "listAuthors";

/// A file of servers: `{"servers": [{"command", "args", "env"}]}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Servers {
    servers: Vec<Start>,
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Times starts and calls of servers. The default servers are copies of the demo.
pub(crate) async fn servers(args: &BenchArgs, report: &mut Report) -> Result<(), BenchError> {
    let place = std::env::temp_dir().join(format!("faber-bench-{}", std::process::id()));
    let unusable = |err: std::io::Error| {
        BenchError::Usage(format!("`{}` cannot be made: {err}", place.display()))
    };
    std::fs::create_dir_all(&place).map_err(unusable)?;
    let folder = Folder(place);
    let all = match &args.file {
        Some(file) => read(file)?,
        None => (0..args.concurrency.unwrap_or(SERVERS)).map(|n| demo(&folder.0, n)).collect(),
    };
    starts(&all, report).await?;
    calls(&demo(&folder.0, 0), args.runs.unwrap_or(CALLS).clamp(1, CALLS), report).await
}

fn read(file: &Path) -> Result<Vec<Start>, BenchError> {
    let usage = |why: String| BenchError::Usage(format!("`{}`: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|err| usage(err.to_string()))?;
    let servers: Servers = serde_json::from_str(&text).map_err(|err| usage(err.to_string()))?;
    Ok(servers.servers)
}

fn demo(folder: &Path, n: usize) -> Start {
    let file = folder.join(format!("blog-{n}.json")).display().to_string();
    let args = ["blog-mcp".to_owned(), "--file".to_owned(), file];
    Start { command: "faber".to_owned(), args: args.into(), env: std::collections::BTreeMap::new() }
}

/// Times the start of all servers until their tools are known, alternately with and without Faber.
async fn starts(all: &[Start], report: &mut Report) -> Result<(), BenchError> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for n in 0..=STARTS {
        let (without, with) = (start_bare(all).await?, start_ours(all).await?);
        // The first run reads files from the disk.
        note(&mut bare, n > 0, without);
        note(&mut ours, n > 0, with);
    }
    bare.sort_unstable();
    ours.sort_unstable();
    let (bare, ours) = (percentile(&bare, 50), percentile(&ours, 50));
    report.set("servers", all.len());
    report.set_ms("servers_bare_start_ms", bare);
    report.set_ms("servers_start_ms", ours);
    report.set("servers_ratio", round(ours.as_secs_f64() / bare.as_secs_f64().max(1e-9)));
    Ok(())
}

async fn start_bare(all: &[Start]) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for start in all {
        let start = start.clone();
        tasks.spawn(async move { Bare::start(&start).await });
    }
    let mut up = Vec::new();
    while let Some(started) = tasks.join_next().await {
        up.push(started.map_err(|err| BenchError::Engine(err.to_string()))??);
    }
    Ok(begun.elapsed())
}

async fn start_ours(all: &[Start]) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    let (toolbox, sources) = connect(all)?;
    toolbox.wait_for_sets(CONNECT_TIMEOUT).await;
    let took = begun.elapsed();
    for set in toolbox.sets() {
        if let SetStatus::Failed { error } = set.status {
            return Err(BenchError::Engine(format!("`{}`: {error}", set.name)));
        }
    }
    sources.close().await;
    Ok(took)
}

fn connect(all: &[Start]) -> Result<(Toolbox, Sources), BenchError> {
    let toolbox = Toolbox::default();
    let sources = Sources::new(&toolbox, shared::limits::OUTPUT_BYTES);
    for (n, start) in all.iter().enumerate() {
        let set = json!({ "name": format!("server{n}"), "source": start.source() });
        let set = serde_json::from_value(set);
        sources.put(set.map_err(|err| BenchError::Usage(err.to_string()))?);
    }
    Ok((toolbox, sources))
}

async fn calls(start: &Start, calls: usize, report: &mut Report) -> Result<(), BenchError> {
    let mut server = Bare::start(start).await?;
    let mut bare = Vec::with_capacity(calls);
    for n in 0..2 * calls {
        let begun = Instant::now();
        server.call(TOOL).await?;
        note(&mut bare, n >= calls, begun.elapsed());
    }
    drop(server);
    let (toolbox, sources) = connect(std::slice::from_ref(start))?;
    toolbox.wait_for_sets(CONNECT_TIMEOUT).await;
    let name = format!("server0.{TOOL}");
    let called = through(&toolbox, &name, &Arc::new(json!({})), calls).await?;
    sources.close().await;
    report_calls(report, "mcp", bare, called);
    Ok(())
}
