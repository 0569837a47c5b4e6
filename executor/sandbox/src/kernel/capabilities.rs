//! The rights of an administrator, which no command needs.

use std::io;

use caps::{CapSet, Capability, errors::CapsError};

/// Gives up every capability. Without new privileges none comes back, for `root` neither: it keeps
/// what belongs to its files, and may no longer look into other processes.
pub(super) fn give_up() -> io::Result<()> {
    clear().map_err(io::Error::other)
}

fn clear() -> Result<(), CapsError> {
    // Only who may change the set can take something out of it, and only then is it of use.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    Ok(())
}
