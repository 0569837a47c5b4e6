//! The tools that Faber brings along: five sets, each made by one module from what it needs.

pub mod code;
pub mod file;
pub mod memory;
#[cfg(test)]
mod project;
pub mod root;
pub mod system;
pub mod web;
mod whole;

pub use root::{GitWrites, Root, RootError};
