//! Linux capabilities.

use std::io;

use caps::{CapSet, Capability, errors::CapsError};

/// Drops every capability. With `no_new_privs` none can come back, not even for `root`. `root`
/// keeps access to its own files, and can no longer read other processes.
pub(super) fn give_up() -> io::Result<()> {
    clear().map_err(io::Error::other)
}

fn clear() -> Result<(), CapsError> {
    // Changing the bounding set needs this capability.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    Ok(())
}
