//! Looks for better weights on the development half of the yardstick, and tells whether they are
//! better on queries that they were not fitted on.
//!
//! ```sh
//! cargo run --release -p offline --example fit -- tests/data/queries/dev.jsonl
//! ```
//!
//! The queries are cut into two parts by their ids. The weights are fitted on each part and
//! measured on the other part.

#![expect(clippy::print_stdout, reason = "an example prints")]

mod common;

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use offline::{Offline, Weights};
use serde_json::Value;

use self::common::Case;

const ROUNDS: usize = 3;
const FACTORS: [f32; 2] = [1.25, 0.75];

struct Part {
    name: &'static str,
    has: fn(u64) -> bool,
}

const BOTH: Part = Part { name: "all", has: |_| true };
const PARTS: [Part; 2] = [
    Part { name: "ids of which 4 is a factor", has: |id| id.is_multiple_of(4) },
    Part { name: "the other ids", has: |id| !id.is_multiple_of(4) },
];

struct Judge {
    queries: PathBuf,
    cases: Vec<Case>,
    known: BTreeMap<Vec<u32>, BTreeMap<u64, Verdict>>,
}

type Verdict = String;

fn main() -> Result<(), Box<dyn Error>> {
    let queries = PathBuf::from(std::env::args().nth(1).ok_or("which queries?")?);
    let cases = common::read_cases(&queries)?;
    let mut judge = Judge { queries, cases, known: BTreeMap::new() };
    let start = Weights::default();
    for (part, other) in [(&PARTS[0], &PARTS[1]), (&PARTS[1], &PARTS[0])] {
        println!("fitted on {}:", part.name);
        let fitted = judge.fit(part)?;
        for (name, weights) in [("set by hand", &start), ("fitted", &fitted)] {
            println!(
                "  {name}: {} there; {} on {}",
                judge.show(weights, part)?,
                judge.show(weights, other)?,
                other.name
            );
        }
    }
    println!("fitted on all queries:");
    let mut fitted = judge.fit(&BOTH)?;
    println!("  set by hand: {}", judge.show(&start, &BOTH)?);
    println!("  fitted: {}", judge.show(&fitted, &BOTH)?);
    for (name, value) in Weights::NAMES.iter().zip(fitted.values_mut()) {
        println!("    {name}: {value:.3}");
    }
    Ok(())
}

impl Judge {
    fn fit(&mut self, part: &Part) -> Result<Weights, Box<dyn Error>> {
        let mut best = Weights::default();
        let mut most = self.points(&best, part)?;
        for _ in 0..ROUNDS {
            let before = most;
            for at in 0..Weights::NAMES.len() {
                for factor in FACTORS {
                    let mut weights = best.clone();
                    *weights.values_mut()[at] *= factor;
                    let points = self.points(&weights, part)?;
                    if points > most {
                        println!("  {} × {factor}: {points} points", Weights::NAMES[at]);
                        (best, most) = (weights, points);
                    }
                }
            }
            if most == before {
                break;
            }
        }
        Ok(best)
    }

    fn points(&mut self, weights: &Weights, part: &Part) -> Result<i32, Box<dyn Error>> {
        let mut points = 0;
        for (id, verdict) in self.verdicts(weights)? {
            let worth = match verdict.as_str() {
                "right" | "refused usefully" => 1,
                "wrong" => -1,
                "dangerous" => -10,
                _ => 0,
            };
            points += if (part.has)(*id) { worth } else { 0 };
        }
        Ok(points)
    }

    fn show(&mut self, weights: &Weights, part: &Part) -> Result<String, Box<dyn Error>> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for (id, verdict) in self.verdicts(weights)? {
            if (part.has)(*id) {
                *counts.entry(verdict).or_default() += 1;
            }
        }
        let shown: Vec<String> =
            counts.iter().map(|(class, count)| format!("{count} {class}")).collect();
        Ok(shown.join(", "))
    }

    fn verdicts(&mut self, weights: &Weights) -> Result<&BTreeMap<u64, Verdict>, Box<dyn Error>> {
        let mut weights = weights.clone();
        let key: Vec<u32> = weights.values_mut().iter().map(|value| value.to_bits()).collect();
        if !self.known.contains_key(&key) {
            let verdicts = judge(&self.queries, &self.cases, &weights)?;
            self.known.insert(key.clone(), verdicts);
        }
        Ok(&self.known[&key])
    }
}

fn judge(
    queries: &Path,
    cases: &[Case],
    weights: &Weights,
) -> Result<BTreeMap<u64, Verdict>, Box<dyn Error>> {
    let planner = Offline::default().with_weights(weights.clone());
    let mut lines = String::new();
    for case in cases {
        writeln!(lines, "{}", common::plan(&planner, case))?;
    }
    let folder = std::env::temp_dir().join(format!("fit-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (outcomes, verdicts) = (folder.join("outcomes.jsonl"), folder.join("verdicts.jsonl"));
    fs::write(&outcomes, lines)?;
    let mut scorer = Command::new("python3");
    scorer.arg(queries.with_file_name("score.py")).args([queries, &outcomes]);
    let status = scorer.arg("--json").arg(&verdicts).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err("`score.py` failed".into());
    }
    let text = fs::read_to_string(&verdicts)?;
    fs::remove_dir_all(&folder)?;
    let mut classes = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line)?;
        let class = row["class"].as_str().unwrap_or_default().to_owned();
        classes.insert(row["id"].as_u64().unwrap_or_default(), class);
    }
    Ok(classes)
}
