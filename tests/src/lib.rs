//! What the integration tests need: the promises of a store as a suite, and a store that lies.

pub mod conformance;
pub mod faulty;
