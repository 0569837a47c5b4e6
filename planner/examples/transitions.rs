//! How well the tool that comes next is foretold from chains of tools, one JSON array a line on
//! standard input: five-fold cross-validation of the learned transitions, and of popularity.
//!
//! ```sh
//! cargo run --release -p planner --example transitions < chains.jsonl
//! ```

use std::{collections::BTreeMap, io};

use planner::toolkit::learned::Learned;
use shared::{clock::Timestamp, id::ToolName};

const FOLDS: usize = 5;
const RANKS: [usize; 3] = [1, 3, 5];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines: Result<Vec<String>, _> = io::stdin().lines().collect();
    let chains: Result<Vec<Vec<ToolName>>, _> =
        lines?.iter().map(|it| serde_json::from_str(it)).collect();
    let chains = chains?;
    let (mut learned_hits, mut popular_hits, mut all) = ([0_u32; 3], [0_u32; 3], 0_u32);
    for fold in 0..FOLDS {
        let is_test = |at: usize| at % FOLDS == fold;
        let training = chains.iter().enumerate().filter(|(at, _)| !is_test(*at)).map(|(_, it)| it);
        let (mut learned, mut popular) = (Learned::default(), BTreeMap::<&ToolName, u32>::new());
        for chain in training {
            let after: Vec<(usize, usize)> = (1..chain.len()).map(|it| (it - 1, it)).collect();
            learned.learn(chain, &after, Timestamp::UNIX_EPOCH);
            for tool in chain {
                *popular.entry(tool).or_default() += 1;
            }
        }
        let mut popular: Vec<(&ToolName, u32)> = popular.into_iter().collect();
        popular.sort_by(|(a, n), (b, m)| m.cmp(n).then(a.cmp(b)));
        let test = chains.iter().enumerate().filter(|(at, _)| is_test(*at));
        for pair in test.flat_map(|(_, chain)| chain.windows(2)) {
            all += 1;
            let found = learned.followers(&pair[0], 5, Timestamp::UNIX_EPOCH);
            for (at, rank) in RANKS.into_iter().enumerate() {
                let is_hit = found.iter().take(rank).any(|it| it.tool == pair[1]);
                learned_hits[at] += u32::from(is_hit);
                let is_hit = popular.iter().take(rank).any(|(it, _)| **it == pair[1]);
                popular_hits[at] += u32::from(is_hit);
            }
        }
    }
    let share = |hits: [u32; 3]| hits.map(|it| f64::from(it) / f64::from(all.max(1)));
    #[expect(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!("{all} transitions; hit@1, @3, @5");
        println!("learned    {:.3?}", share(learned_hits));
        println!("popularity {:.3?}", share(popular_hits));
    }
    Ok(())
}
