//! Many nodes over one store: real processes of the binary share executions, limits, commands and
//! subscriptions; they are told to end, killed and replaced, and nobody notices.

mod alone;
mod cache;
mod clocks;
mod family;
mod home;
mod limits;
mod node;
mod rolling;
mod sharing;
mod steering;
mod world;

/// Reads a number of the environment.
fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "whoever wants more or others says so here")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is a number")))
}
