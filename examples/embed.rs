//! A program that embeds Faber, with three tools of its own: `cargo run --example embed`.
//!
//! The guides `docs/how-to/embed-in-rust.md` and `docs/how-to/rust-functions.md` show its parts.

#![expect(clippy::print_stdout, reason = "the program shows its result")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use faber::{Effect, Embedded, ToolContext, ToolError, ToolSet, function};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Parameters of `price`.
#[derive(Deserialize, JsonSchema)]
struct Article {
    /// The article: `tea` or `cup`.
    name: String,
}

/// Looks up the price of an article, in cents.
async fn price(Article { name }: Article, _: ToolContext) -> Result<u32, ToolError> {
    match name.as_str() {
        "tea" => Ok(450),
        "cup" => Ok(1_200),
        _ => Err(ToolError::failed(format!("there is no `{name}`"))),
    }
}

/// Parameters of `total`.
#[derive(Deserialize, JsonSchema)]
struct Prices {
    /// Prices in cents.
    prices: Vec<u32>,
}

/// Adds prices.
async fn total(Prices { prices }: Prices, _: ToolContext) -> Result<u32, ToolError> {
    Ok(prices.iter().sum())
}

/// Parameters of `order`.
#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The sum of the order, in cents.
    cents: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A real program captures a database pool or a client here.
    let orders = Arc::new(AtomicU32::new(0));
    let order = move |Order { cents }: Order, _: ToolContext| {
        let orders = Arc::clone(&orders);
        async move {
            let number = orders.fetch_add(1, Ordering::Relaxed) + 1;
            Ok::<Value, ToolError>(json!({ "number": number, "cents": cents }))
        }
    };

    let tools = [
        function("shop", "price", "Looks up the price of an article.", Effect::Read, price),
        function("shop", "total", "Adds prices.", Effect::Read, total),
        function("shop", "order", "Orders for a sum.", Effect::Once, order),
    ];
    let shop = ToolSet::ready("shop".parse()?, "local", "A small shop.", tools);

    let faber = Embedded::open("memory:", [shop]).await?;

    // The two look-ups run at the same time.
    let plan = json!({ "tools": [
        { "id": "tea", "name": "price", "parameters": { "name": "tea" } },
        { "id": "cup", "name": "price", "parameters": { "name": "cup" } },
        { "name": "total", "parameters": { "prices": ["{{tea}}", "{{cup}}"] } },
        { "name": "order", "parameters": { "cents": "{{total}}" } },
    ] });
    let execution = faber.run_plan(plan).await?;
    println!("{:?}: {}", execution.state(), execution.outputs());

    // A plan that cannot run is not stored. The error names every problem.
    let wrong = json!({ "tools": [{ "name": "prise", "parameters": { "name": "tea" } }] });
    if let Err(err) = faber.run_plan(wrong).await {
        println!("{err}");
    }

    faber.close().await;
    Ok(())
}
