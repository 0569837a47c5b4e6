//! Measures how well learned transitions predict the next tool, compared with popularity. Reads
//! chains of tools, one JSON array on each line.
//!
//! ```sh
//! cargo run --release -p planner --example transitions -- training.jsonl < test.jsonl
//! cargo run --release -p planner --example transitions < chains.jsonl   # five-fold cross-validation
//! ```

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs::File,
    io::{self, BufRead, BufReader},
};

use planner::toolkit::learned::Learned;
use shared::{clock::Timestamp, id::ToolName};

const FOLDS: usize = 5;
const RANKS: [usize; 3] = [1, 3, 5];

type Chain = Vec<ToolName>;

#[derive(Default)]
struct Hits {
    learned: [u32; 3],
    popular: [u32; 3],
    all: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let test = read(io::stdin().lock())?;
    let mut hits = Hits::default();
    if let Some(file) = env::args_os().nth(1) {
        let training = read(BufReader::new(File::open(file)?))?;
        hits.count(training.iter(), test.iter());
    } else {
        for fold in 0..FOLDS {
            let of = |is_test: bool| {
                let all = test.iter().enumerate();
                all.filter(move |(at, _)| (at % FOLDS == fold) == is_test).map(|(_, chain)| chain)
            };
            hits.count(of(false), of(true));
        }
    }
    let share = |of: [u32; 3]| of.map(|count| f64::from(count) / f64::from(hits.all.max(1)));
    #[expect(clippy::print_stdout, reason = "an example prints")]
    {
        println!("{} transitions; hit@1, @3, @5", hits.all);
        println!("learned    {:.3?}", share(hits.learned));
        println!("popularity {:.3?}", share(hits.popular));
    }
    Ok(())
}

fn read(lines: impl BufRead) -> Result<Vec<Chain>, Box<dyn Error>> {
    lines.lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

impl Hits {
    fn count<'a>(
        &mut self,
        training: impl Iterator<Item = &'a Chain>,
        test: impl Iterator<Item = &'a Chain>,
    ) {
        let (mut learned, mut popular) = (Learned::default(), BTreeMap::<&ToolName, u32>::new());
        for chain in training {
            let after: Vec<(usize, usize)> = (1..chain.len()).map(|n| (n - 1, n)).collect();
            learned.learn(chain, &after, Timestamp::UNIX_EPOCH);
            for tool in chain {
                *popular.entry(tool).or_default() += 1;
            }
        }
        let mut popular: Vec<(&ToolName, u32)> = popular.into_iter().collect();
        popular.sort_by(|(a, n), (b, m)| m.cmp(n).then(a.cmp(b)));
        for pair in test.flat_map(|chain| chain.windows(2)) {
            self.all += 1;
            let found = learned.followers(&pair[0], 5, Timestamp::UNIX_EPOCH);
            for (at, rank) in RANKS.into_iter().enumerate() {
                let is_hit = found.iter().take(rank).any(|follower| follower.tool == pair[1]);
                self.learned[at] += u32::from(is_hit);
                let is_hit = popular.iter().take(rank).any(|(tool, _)| **tool == pair[1]);
                self.popular[at] += u32::from(is_hit);
            }
        }
    }
}
