use std::{io, path::PathBuf};

use super::{LaunchOrder, Support};

pub(super) fn kernel_support() -> Support {
    Support { files: false, tcp: false, signals: false, calls: false, privileges: false }
}

pub(super) fn can_restrict_files() -> bool {
    false
}

pub(super) const SYSTEM_FOLDERS: [&str; 0] = [];

pub(super) fn apply(order: &LaunchOrder) -> io::Result<()> {
    match order.confinement.as_ref().and_then(|confinement| confinement.user.as_ref()) {
        Some(user) => home_folder(user).map(drop),
        None => Ok(()),
    }
}

pub(super) fn home_folder(_user: &str) -> io::Result<PathBuf> {
    Err(io::Error::other("`user` needs Linux: leave it out"))
}

#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(super) fn block_outside_signals() -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system.
///
/// # Errors
///
/// Never fails.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub fn hide_process_memory() -> io::Result<()> {
    Ok(())
}
