//! Draws what commands show to people.

pub mod findings;
pub mod format;
pub mod news;
pub mod outcome;
pub mod paint;
pub mod plain;
pub mod plan;
pub mod report;
pub mod step;
pub mod timeline;
pub mod transcript;
