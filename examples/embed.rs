//! A program that embeds Faber, with two tools of its own: `cargo run --example embed`.
//!
//! A tool is an async function and what it takes. The schema that plans are checked against, and
//! that models are shown, comes from the type.

#![expect(clippy::print_stdout, reason = "it shows what came of it")]

use graphql::embedded::Embedded;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use shared::tool::{Effect, ToolError};
use toolbox::{ToolContext, ToolSet, function};

/// What `price` takes.
#[derive(Deserialize, JsonSchema)]
struct Article {
    /// The article: `tea` or `cup`.
    name: String,
}

/// Looks up what an article costs, in cents.
async fn price(Article { name }: Article, _: ToolContext) -> Result<u32, ToolError> {
    let prices = [("tea", 450), ("cup", 1_200)];
    let found = prices.iter().find(|(it, _)| *it == name);
    found.map(|(_, it)| *it).ok_or_else(|| ToolError::failed(format!("there is no `{name}`")))
}

/// What `total` takes.
#[derive(Deserialize, JsonSchema)]
struct Cents {
    /// What each article costs, in cents.
    prices: Vec<u32>,
}

/// Adds prices up.
async fn total(Cents { prices }: Cents, _: ToolContext) -> Result<u32, ToolError> {
    Ok(prices.iter().sum())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tools = [
        function("shop", "price", "Looks up what an article costs.", Effect::Read, price),
        function("shop", "total", "Adds prices up.", Effect::Read, total),
    ];
    let shop = ToolSet::ready("shop".parse()?, "local", "A small shop.", tools);
    let faber = Embedded::open("memory:", [shop]).await?;

    // As a model or a person writes it. The two look-ups run at the same time.
    let plan = json!({ "tools": [
        { "id": "tea", "name": "price", "parameters": { "name": "tea" } },
        { "id": "cup", "name": "price", "parameters": { "name": "cup" } },
        { "name": "total", "parameters": { "prices": ["{{tea}}", "{{cup}}"] } },
    ] });
    let ended = faber.run_plan(plan).await?;
    println!("{:?}: {}", ended.state(), ended.outputs());

    // What cannot run is not kept: every reason comes back, with the name that was meant.
    let wrong = json!({ "tools": [{ "name": "prise", "parameters": { "name": "tea" } }] });
    println!("{}", faber.run_plan(wrong).await.expect_err("there is no tool `prise`"));

    faber.close().await;
    Ok(())
}
