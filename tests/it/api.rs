//! The API over real stores with a real worker, in process.

mod drafts;
mod errors;
mod json;
mod life;
mod lists;
mod people;
mod watching;
mod world;
