use chrono::TimeDelta;
use proptest::prelude::*;
use shared::{clock::Timestamp, id::ToolName};

use super::*;
use crate::toolkit::learned::{HALF_LIFE, Learned, MIN_SCORE};

const DAY: Timestamp = Timestamp::UNIX_EPOCH;

fn tools(of: &[&str]) -> Vec<ToolName> {
    of.iter().map(|name| name.parse().unwrap()).collect()
}

fn lesson(learned: &mut Learned, of: &[&str], at: Timestamp) {
    let after: Vec<(usize, usize)> = (1..of.len()).map(|n| (n - 1, n)).collect();
    learned.learn(&tools(of), &after, at);
}

fn tool(name: &NodeName) -> Option<ToolName> {
    name.as_str().parse().ok()
}

fn score(learned: &Learned, from: &str, to: &str, at: Timestamp) -> Option<f64> {
    learned.score(&seed(), &name(from), &name(to), tool, at)
}

#[test]
fn a_frequent_follower_gets_a_high_score() {
    let mut learned = Learned::default();
    assert!(learned.is_empty());
    assert_eq!(learned.followers(&tools(&["t1"])[0], 5, DAY), []);
    for _ in 0..8 {
        lesson(&mut learned, &["t1", "t2", "t4"], DAY);
    }
    lesson(&mut learned, &["t1", "t3", "t4"], DAY);
    let followers = |of: &str| -> Vec<String> {
        let found = learned.followers(&tools(&[of])[0], 2, DAY);
        found.iter().map(|follower| follower.tool.to_string()).collect()
    };
    assert_eq!(followers("t1"), ["t2", "t3"]);
    assert_eq!(followers("t2")[0], "t4");
    assert_eq!(followers("never seen").len(), 2, "the tools that are called most follow");
    let json = serde_json::to_value(&learned).unwrap();
    assert_eq!(serde_json::from_value::<Learned>(json).unwrap(), learned);
}

#[test]
fn learned_edge_scores_are_shares() {
    let mut learned = Learned::default();
    assert_eq!(score(&learned, "a1", "t1", DAY), None, "there was no observation");
    for _ in 0..30 {
        lesson(&mut learned, &["t1", "t2"], DAY);
    }
    lesson(&mut learned, &["t1", "t3"], DAY);
    let there = |from: &str, to: &str| score(&learned, from, to, DAY).unwrap();
    assert!(there("a1", "a2") > 0.9, "{}", there("a1", "a2"));
    assert!((MIN_SCORE..0.1).contains(&there("a1", "a3")), "{}", there("a1", "a3"));
    assert!((there("a1", "t1") - 1.0).abs() < 1e-9, "the action calls no other tool");
    assert_eq!(score(&learned, "a3", "a4", DAY), None, "no action followed it");
}

#[test]
fn older_transitions_count_less() {
    let mut learned = Learned::default();
    for _ in 0..8 {
        lesson(&mut learned, &["t1", "t2"], DAY);
    }
    let mut now = DAY;
    for _ in 0..64 {
        // Long enough that all weights are rescaled several times.
        now += HALF_LIFE * 2;
        lesson(&mut learned, &["t1", "t3"], now);
    }
    let found = learned.followers(&tools(&["t1"])[0], 1, now);
    assert_eq!(found[0].tool.as_str(), "t3");
    let before = score(&learned, "a1", "a3", now).unwrap();
    let later = score(&learned, "a1", "a3", now + HALF_LIFE * 20).unwrap();
    assert!(later < before && (later - 0.5).abs() < 0.01, "{before} {later}");
    // An observation may have an earlier time.
    lesson(&mut learned, &["t1", "t3"], DAY - TimeDelta::days(900));
}

proptest! {
    #[test]
    fn scores_are_probabilities(
        chains in prop::collection::vec(prop::collection::vec(1..5_usize, 0..6), 0..20),
        days in prop::collection::vec(0..400_i64, 20),
    ) {
        let mut learned = Learned::default();
        let mut last = DAY;
        for (chain, days) in chains.iter().zip(days) {
            let chain: Vec<String> = chain.iter().map(|n| format!("t{n}")).collect();
            let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
            last = last.max(DAY + TimeDelta::days(days));
            lesson(&mut learned, &chain, DAY + TimeDelta::days(days));
        }
        for of in ["t1", "t2", "never seen"] {
            let found = learned.followers(&tools(&[of])[0], 99, last);
            let sum: f64 = found.iter().map(|follower| follower.score).sum();
            prop_assert!(sum <= 1.0 + 1e-9, "{}", sum);
            prop_assert!(found.is_sorted_by(|a, b| a.score >= b.score));
            prop_assert!(found.iter().all(|follower| follower.score > 0.0));
        }
        for edge in seed().ordered_edges() {
            let score = learned.score(&seed(), edge.from, edge.to, tool, last);
            let is_in_range = score.is_none_or(|score| (MIN_SCORE..=1.0).contains(&score));
            prop_assert!(is_in_range, "{:?}", score);
        }
    }
}
