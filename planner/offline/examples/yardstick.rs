//! Plans the queries of a yardstick in one process and writes the outcomes that `score.py` reads.
//! Prints how long a plan took.
//!
//! ```sh
//! cargo run --release -p offline --example yardstick -- tests/data/queries/dev.jsonl OUTCOMES.jsonl
//! python3 tests/data/queries/score.py tests/data/queries/dev.jsonl OUTCOMES.jsonl
//! ```

#![expect(clippy::print_stdout, reason = "an example prints")]

mod common;

use std::{
    error::Error,
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use offline::Offline;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let queries = args.next().ok_or("which queries?")?;
    let outcomes = args.next().ok_or("which file for the outcomes?")?;
    let planner = Offline::default();
    let mut lines = String::new();
    let mut times: Vec<Duration> = Vec::new();
    for case in common::read_cases(Path::new(&queries))? {
        let started = Instant::now();
        let mut row = common::plan(&planner, &case);
        times.push(started.elapsed());
        row["seconds"] = json!(started.elapsed().as_secs_f64());
        writeln!(lines, "{row}")?;
    }
    fs::write(outcomes, lines)?;
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    println!("p50 {:.1?}, p90 {:.1?}, p99 {:.1?}", at(50), at(90), at(99));
    Ok(())
}
