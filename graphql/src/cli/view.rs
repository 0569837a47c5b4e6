//! Draws what commands show to people.

pub(crate) mod findings;
pub(crate) mod format;
pub(crate) mod live_view;
pub(crate) mod news;
pub(crate) mod outcome;
pub(crate) mod paint;
pub(crate) mod plain;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod step;
pub(crate) mod timeline;
pub(crate) mod transcript;
