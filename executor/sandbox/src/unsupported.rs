//! The fallback for systems other than Linux. It restricts nothing.

use std::{io, path::PathBuf};

use super::{Order, Support};

pub(super) fn support() -> Support {
    Support { files: false, tcp: false, signals: false, calls: false, privileges: false }
}

pub(super) fn sees_files() -> bool {
    false
}

pub(super) const SYSTEM: [&str; 0] = [];

pub(super) fn apply(order: &Order) -> io::Result<()> {
    match order.confinement.as_ref().and_then(|confinement| confinement.user.as_ref()) {
        Some(user) => home_of(user).map(drop),
        None => Ok(()),
    }
}

pub(super) fn home_of(_user: &str) -> io::Result<PathBuf> {
    Err(io::Error::other("`user` takes Linux: leave it out"))
}

#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(super) fn keep_apart() -> io::Result<()> {
    Ok(())
}

/// Does nothing here.
///
/// # Errors
///
/// None.
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub fn keep_to_itself() -> io::Result<()> {
    Ok(())
}
