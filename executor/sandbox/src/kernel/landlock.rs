//! Folders, TCP and signals: what Landlock can hold a process to.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use super::super::{Confinement, Support};

/// The newest version of Landlock that is asked for; what an older kernel lacks is left out.
const NEWEST: ABI = ABI::V9;
/// The version without which a process is not held to where it writes.
const FILES: ABI = ABI::V3;
/// Paths of the system that every program needs.
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
/// The folder of the system in which it keeps its secrets: of it a command reads only the parts that
/// every user may read.
const SETTINGS: &str = "/etc";
/// Folders of people, which a folder above them does not bring along.
const HOMES: [&str; 2] = ["/root", "/home"];
/// Devices that anybody may write: they keep nothing. No terminal, whose input could be forged.
const DEVICES: [&str; 3] = ["/dev/full", "/dev/null", "/dev/zero"];

/// Returns the support of this kernel. Builds rules without applying them.
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
    let readable = Readable::of(&confinement.read);
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(NEWEST))?;
    if !confinement.network {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    rules
        .create()?
        .add_rules(path_beneath_rules(&readable.whole, read))?
        .add_rules(path_beneath_rules(&readable.listed, AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(DEVICES, read | AccessFs::WriteFile | AccessFs::Truncate))?
        .add_rules(path_beneath_rules(&confinement.write, all))?
        .restrict_self()
        .map(drop)
}

/// The places that a command may read.
///
/// Landlock allows a folder with everything in it. So a folder that holds secrets is taken apart, and
/// only its other parts are allowed.
#[derive(Debug, Default)]
struct Readable {
    /// Files, and folders with everything in them.
    whole: Vec<PathBuf>,
    /// Folders that were taken apart: the names in them may be read.
    listed: Vec<PathBuf>,
}

impl Readable {
    /// Returns the system's places and the named ones.
    fn of(named: &[PathBuf]) -> Self {
        let mut readable = Self::default();
        for path in SYSTEM.iter().map(Path::new).chain(named.iter().map(PathBuf::as_path)) {
            match path.canonicalize() {
                Ok(real) if real == Path::new("/") => readable.add_root(),
                Ok(real) if real == Path::new(SETTINGS) => readable.add_public(&real),
                _ => readable.whole.push(path.to_owned()),
            }
        }
        readable
    }

    /// Adds everything but the system's secrets and the homes. The names in `/` cannot be allowed
    /// without those in the homes.
    fn add_root(&mut self) {
        for path in entries(Path::new("/")) {
            if path == Path::new(SETTINGS) {
                self.add_public(&path);
            } else if !HOMES.iter().any(|home| path == Path::new(home)) {
                self.whole.push(path);
            }
        }
    }

    fn add_public(&mut self, path: &Path) {
        if self.is_public(path) {
            self.whole.push(path.to_owned());
        }
    }

    /// Returns whether every user may read a path with everything in it. Of a folder that is not so,
    /// the parts that are so are added.
    fn is_public(&mut self, path: &Path) -> bool {
        let Ok(meta) = path.symlink_metadata() else { return false };
        if !meta.is_dir() {
            return meta.mode() & 0o004 != 0;
        }
        if meta.mode() & 0o005 != 0o005 {
            return false;
        }
        let (public, secret): (Vec<_>, Vec<_>) =
            entries(path).into_iter().partition(|entry| self.is_public(entry));
        if secret.is_empty() {
            return true;
        }
        self.whole.extend(public);
        self.listed.push(path.to_owned());
        false
    }
}

/// Returns what is in a folder, without symlinks: they need no permission, and what they lead to
/// needs its own.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_link = |path: &PathBuf| path.is_symlink();
    entries.map(|entry| entry.path()).filter(|path| !is_link(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_with_secrets_is_taken_apart() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for (name, mode) in
            [("open", 0o644), ("shadow", 0o640), ("ssl/certs/a", 0o644), ("ssl/private/key", 0o644)]
        {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("shadow", top.join("link")).unwrap();
        for (name, mode) in
            [("", 0o755), ("ssl", 0o755), ("ssl/certs", 0o755), ("ssl/private", 0o710)]
        {
            fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut readable = Readable::default();
        readable.add_public(&top);
        readable.whole.sort();
        assert_eq!(readable.whole, [top.join("open"), top.join("ssl/certs")]);
        assert_eq!(readable.listed, [top.join("ssl"), top.clone()]);
        let mut certs = Readable::default();
        certs.add_public(&top.join("ssl/certs"));
        assert_eq!(certs.whole, [top.join("ssl/certs")]);
    }

    #[test]
    fn cutting_a_file_off_is_writing_it() {
        assert!(AccessFs::from_all(FILES).contains(AccessFs::Truncate));
    }
}
