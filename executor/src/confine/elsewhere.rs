//! Where there is no Linux.

use std::io;

use super::{Order, Support};

pub(super) fn support() -> Support {
    Support { files: false, tcp: false, signals: false, calls: false, privileges: false }
}

pub(super) fn sees_files() -> bool {
    false
}

pub(super) fn system() -> &'static [&'static str] {
    &[]
}

#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
pub(super) fn apply(_order: &Order) -> io::Result<()> {
    Ok(())
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
