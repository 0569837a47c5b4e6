//! What the integration tests share: a store's promises as a suite, a store that lies, the real
//! binary, and toolsets.

pub mod binary;
pub mod conformance;
pub mod faulty;
pub mod kernel;
pub mod ledger;
pub mod toolset;
pub mod world;
