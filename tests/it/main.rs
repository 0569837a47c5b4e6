//! Integration tests.

mod mongod;
mod supervised;
