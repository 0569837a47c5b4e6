//! Integration tests.

mod mongod;
mod stores;
mod supervised;
