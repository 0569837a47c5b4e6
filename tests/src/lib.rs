//! What the integration tests share: a store's promises as a suite, a store that lies, the real
//! binary, toolsets, and what is asked again.

pub mod binary;
pub mod conformance;
pub mod faulty;
pub mod kernel;
pub mod ledger;
pub mod patient;
pub mod toolset;
pub mod world;
