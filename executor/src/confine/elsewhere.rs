//! Where there is no Landlock.

use std::io;

use super::{Confinement, Support};

pub(super) fn support() -> Support {
    Support { files: false, tcp: false, signals: false, sockets: false, privileges: false }
}

#[expect(clippy::unnecessary_wraps, reason = "it can fail where there is Landlock")]
pub(super) fn apply(_confinement: &Confinement) -> io::Result<()> {
    Ok(())
}
