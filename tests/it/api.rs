//! The API over real stores with a real worker, in process.

mod again;
mod blobs;
mod bulk;
mod computing;
mod drafts;
mod dry;
mod errors;
mod findings;
mod json;
mod life;
mod limits;
mod lists;
mod loops;
mod people;
mod remembered;
mod removed;
mod saved;
mod selection;
mod sub_plans;
mod toolkit;
mod toolsets;
mod undo;
mod waiting;
mod watching;
mod world;
