//! The tools that Faber brings along.

pub mod memory;
