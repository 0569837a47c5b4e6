//! Backups of stores, and exports of their history. This crate uses only the traits of
//! [`Store`](shared::store::Store), so a backup of one store can be restored into any other.
//!
//! Data that makes no sense in another store or can be computed again is left out.

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
