//! Shared code of the integration tests.

pub mod binary;
pub mod conformance;
pub mod faulty;
pub mod installed;
pub mod kernel;
pub mod ledger;
pub mod request_retries;
pub mod toolset;
pub mod world;
