mod document;
pub mod health;
pub mod schema;
pub mod server;
pub mod web;
