//! Faber's built-in toolsets. Each module makes one set.

pub mod code;
pub mod file;
pub mod memory;
pub mod root;
pub mod system;
#[cfg(test)]
mod tests {
    pub(crate) mod project;
}
pub mod web;
mod whole;

pub use root::{GitWrites, Root, RootError};
