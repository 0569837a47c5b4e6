//! Measures how long it takes to draw a toolkit of 2,000 actions and tools with 6,000 edges.
//!
//! ```sh
//! cargo run --release -p planner --example layout > toolkit.svg
//! ```

use std::time::Instant;

use planner::toolkit::{Node, Toolkit, draw};
use shared::id::NodeName;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut seed = 1_u64;
    let mut below = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap_or(0) % most
    };
    let name = |kind: &str, at: usize| format!("{kind} {at}").parse::<NodeName>();
    let mut toolkit = Toolkit::default();
    for at in 0..1_000 {
        toolkit.add_action(&name("action", at)?, "", &[], &[])?;
    }
    for at in 0..1_000 {
        toolkit.add_tool(&name("tool", at)?, &Node::tool(""), &[(name("action", at)?, 1.0)])?;
    }
    while toolkit.edge_count() < 6_000 {
        let from = name("action", below(1_000))?;
        if toolkit.edge_count() % 2 == 0 {
            toolkit.add_action(&from, "", &[(name("action", below(1_000))?, 0.5)], &[])?;
        } else {
            toolkit.add_tool(&name("tool", below(1_000))?, &Node::tool(""), &[(from, 0.5)])?;
        }
    }
    let started = Instant::now();
    let svg = draw::svg(&toolkit, "A large toolkit");
    let took = started.elapsed();
    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]
    {
        eprintln!("{} vertices, {} edges: {took:?}", toolkit.len(), toolkit.edge_count());
        println!("{svg}");
    }
    Ok(())
}
