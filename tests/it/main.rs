//! Integration tests.

mod mongod;
mod protocol;
mod supervised;
