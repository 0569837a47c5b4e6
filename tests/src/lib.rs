//! What integration tests share.

pub mod binary;
pub mod toolset;
