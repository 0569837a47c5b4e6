//! Backups of stores, and exports of their history.
//!
//! This crate uses only the traits of [`Store`](shared::store::Store). So a backup of one store can
//! be restored into any other, and no store knows this crate.
//!
//! A [`source`] reads a store into entries while other processes change it. [`format`](mod@format)
//! keeps entries in one compressed file with a checksum; an export keeps them as lines of JSON.
//! [`replay`] checks entries and folds every log. [`target`] writes the entries into a store, or
//! compares them with the store.
//!
//! Some data is left out because it makes no sense in another store or can be computed again:
//! leases of workers, permits and rates of calls, expired outputs, and vectors of texts.

mod entry;
mod error;
mod export;
mod format;
mod import;
mod part_file;
mod recent_plans;
mod replay;
mod report;
mod restore;
mod source;
mod spool;
mod target;
mod write;

pub use self::{
    error::{BackupError, ObjectList},
    export::{export_to_file, export_to_writer},
    format::BackupHeader,
    import::{Imported, import},
    report::{Counts, OnProgress, Progress, Report, Stage},
    restore::{VerifiedBackup, restore},
    write::write_backup,
};
