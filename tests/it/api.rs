//! The API over real stores with a real worker, in process.

#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod drafts;
mod errors;
mod json;
mod life;
mod lists;
mod people;
mod watching;
mod world;
