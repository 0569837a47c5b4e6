//! Folders, TCP and signals: what Landlock can hold a process to.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use super::super::{Confinement, Support};

/// The newest version of Landlock that is asked for; what an older kernel lacks is left out.
const NEWEST: ABI = ABI::V9;
/// The version without which a process is not held to where it writes.
const FILES: ABI = ABI::V3;
/// What programs need of the system to run at all.
pub(super) const SYSTEM: [&str; 14] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/opt",
    "/proc",
    "/run/systemd/resolve",
    "/sbin",
    "/sys/devices/system",
    "/usr",
    "/dev/random",
    "/dev/urandom",
];
/// Devices that anybody may write: they keep nothing. No terminal, whose input could be forged.
const DEVICES: [&str; 3] = ["/dev/full", "/dev/null", "/dev/zero"];

/// Says what this kernel has of it, by making rules that nobody is held to.
pub(super) fn support() -> Support {
    Support {
        files: sees_files(),
        tcp: has(|it| it.handle_access(AccessNet::from_all(ABI::V4))),
        signals: has(|it| it.scope(Scope::Signal)),
        calls: false,
        privileges: false,
    }
}

/// Returns whether this kernel can hold a process to where it reads and writes. Before the third
/// version any file could be cut off.
pub(super) fn sees_files() -> bool {
    has(|it| it.handle_access(AccessFs::from_all(FILES)))
}

fn has(make: fn(Ruleset) -> Result<Ruleset, RulesetError>) -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    make(strict).and_then(Ruleset::create).is_ok()
}

/// Confines this thread, and all that it starts, for ever.
pub(super) fn apply(confinement: &Confinement) -> io::Result<()> {
    restrict(confinement).map_err(io::Error::other)
}

/// Keeps this thread, and all that it starts, from signalling what is outside of it from now on.
pub(super) fn keep_apart() -> io::Result<()> {
    let restrict = || {
        // Rules that do not say so let nothing be moved or linked from one folder to another.
        let rules = Ruleset::default().handle_access(AccessFs::Refer)?.scope(Scope::Signal)?;
        let anywhere = path_beneath_rules(["/"], AccessFs::Refer);
        rules.create()?.add_rules(anywhere)?.restrict_self().map(drop)
    };
    restrict().map_err(|err: RulesetError| io::Error::other(err))
}

fn restrict(confinement: &Confinement) -> Result<(), RulesetError> {
    let mut all = AccessFs::from_all(NEWEST);
    if confinement.sockets {
        all.remove(AccessFs::ResolveUnix);
    }
    let read = AccessFs::from_read(NEWEST) & all;
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(NEWEST))?;
    if !confinement.network {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    rules
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(DEVICES, read | AccessFs::WriteFile | AccessFs::Truncate))?
        .add_rules(path_beneath_rules(&confinement.read, read))?
        .add_rules(path_beneath_rules(&confinement.write, all))?
        .restrict_self()
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_a_file_off_is_writing_it() {
        assert!(AccessFs::from_all(FILES).contains(AccessFs::Truncate));
    }
}
