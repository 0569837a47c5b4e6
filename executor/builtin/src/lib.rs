//! Faber's built-in toolsets. Each module makes one set.

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
