//! The tools that come with Faber, by set.

pub mod system;
pub mod web;
