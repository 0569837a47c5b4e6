//! Landlock: access to files, TCP ports and signals.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use super::super::{Confinement, Support, resolved_path::canonical_paths};

/// The newest version whose rights are requested. Rights that an older kernel does not know are
/// left out.
const NEWEST_ABI: ABI = ABI::V9;
/// The first version that restricts truncation of files.
const FIRST_FILE_ABI: ABI = ABI::V3;
pub(crate) const SYSTEM_FOLDERS: [&str; 14] = [
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
/// The folder with the system's configuration, which includes secrets. A command reads only the
/// parts that every user may read.
const ETC_FOLDER: &str = "/etc";
/// Folders of the system in which people keep programs beside their secrets. A command reads only
/// the parts that every user may read.
const MIXED_FOLDERS: [&str; 2] = ["/opt", "/usr/local"];
const USR_FOLDER: &str = "/usr";
/// Maximum number of files and folders in each of the [`MIXED_FOLDERS`] that are checked for each
/// command. A command cannot read the rest.
const MAX_CHECKED_ENTRIES: usize = 200_000;
/// Home folders. A permission for `/` does not include them.
const HOME_FOLDERS: [&str; 2] = ["/root", "/home"];
/// Devices that any command may write, because they store nothing. A terminal is not included,
/// because a command could forge input.
const WRITABLE_DEVICES: [&str; 3] = ["/dev/full", "/dev/null", "/dev/zero"];

pub(super) fn landlock_support() -> Support {
    Support {
        files: can_restrict_files(),
        tcp: is_supported(|rules| rules.handle_access(AccessNet::from_all(ABI::V4))),
        signals: is_supported(|rules| rules.scope(Scope::Signal)),
        calls: false,
        privileges: false,
    }
}

/// Returns whether Landlock restricts files completely. Before version 3, a command could truncate
/// any file.
pub(crate) fn can_restrict_files() -> bool {
    is_supported(|rules| rules.handle_access(AccessFs::from_all(FIRST_FILE_ABI)))
}

fn is_supported(make: fn(Ruleset) -> Result<Ruleset, RulesetError>) -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    make(strict).and_then(Ruleset::create).is_ok()
}

pub(crate) fn block_outside_signals() -> io::Result<()> {
    let restrict = || {
        // Without this rule, Landlock forbids moving and linking files between folders.
        let rules = Ruleset::default().handle_access(AccessFs::Refer)?.scope(Scope::Signal)?;
        let anywhere = path_beneath_rules(["/"], AccessFs::Refer);
        rules.create()?.add_rules(anywhere)?.restrict_self().map(drop)
    };
    restrict().map_err(|err: RulesetError| io::Error::other(err))
}

pub(super) fn apply(confinement: &Confinement, system: ReadablePaths) -> Result<(), RulesetError> {
    let mut all = AccessFs::from_all(NEWEST_ABI);
    if confinement.sockets {
        all.remove(AccessFs::ResolveUnix);
    }
    let read = AccessFs::from_read(NEWEST_ABI) & all;
    let readable = system.add_configured(&confinement.read);
    let mut rules = Ruleset::default().handle_access(all)?.scope(Scope::from_all(NEWEST_ABI))?;
    if !confinement.network {
        rules = rules.handle_access(AccessNet::from_all(NEWEST_ABI))?;
    }
    rules
        .create()?
        .add_rules(path_beneath_rules(&readable.with_contents, read))?
        .add_rules(path_beneath_rules(&readable.listed, AccessFs::ReadDir))?
        .add_rules(path_beneath_rules(
            WRITABLE_DEVICES,
            read | AccessFs::WriteFile | AccessFs::Truncate,
        ))?
        .add_rules(path_beneath_rules(&confinement.write, all))?
        .restrict_self()
        .map(drop)
}

/// The paths that a command may read.
///
/// Landlock allows a folder only with all its contents. So a folder with secrets is split, and only
/// its public parts are allowed.
#[derive(Debug)]
pub(super) struct ReadablePaths {
    with_contents: Vec<PathBuf>,
    /// Folders that were split into entries. The names in these folders may be listed.
    listed: Vec<PathBuf>,
    /// Folders that not every user may list. Landlock still allows listing them, because a right to
    /// list applies to everything below a folder.
    pub(super) unlistable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    checks_left: usize,
}

impl Default for ReadablePaths {
    fn default() -> Self {
        let (with_contents, listed, unlistable, hidden) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { with_contents, listed, unlistable, hidden, checks_left: usize::MAX }
    }
}

impl ReadablePaths {
    pub(super) fn read_system(hidden: &[PathBuf]) -> Self {
        let mut readable = Self { hidden: canonical_paths(hidden), ..Self::default() };
        for folder in SYSTEM_FOLDERS {
            readable.add_system(Path::new(folder));
        }
        readable
    }

    fn add_configured(mut self, named: &[PathBuf]) -> Self {
        for path in named {
            match path.canonicalize() {
                Ok(real) if real == Path::new("/") => self.add_root(),
                Ok(real) if real == Path::new(ETC_FOLDER) => self.add_public(&real),
                _ => self.with_contents.push(path.to_owned()),
            }
        }
        self
    }

    fn add_system(&mut self, path: &Path) {
        if path == Path::new(ETC_FOLDER) {
            self.add_resolved(path);
        } else if MIXED_FOLDERS.iter().any(|mixed| path == Path::new(mixed)) {
            self.checks_left = MAX_CHECKED_ENTRIES;
            self.add_resolved(path);
            self.checks_left = usize::MAX;
        } else if path == Path::new(USR_FOLDER) {
            self.listed.push(path.to_owned());
            for entry in list_entries(path) {
                self.add_system(&entry);
            }
        } else {
            self.with_contents.push(path.to_owned());
        }
    }

    fn add_resolved(&mut self, path: &Path) {
        if let Ok(real) = path.canonicalize() {
            self.add_public(&real);
        }
    }

    /// Adds `/` without the secrets of the system and the home folders. Listing `/` is not allowed,
    /// because that would include the names in the homes.
    fn add_root(&mut self) {
        for path in list_entries(Path::new("/")) {
            if !HOME_FOLDERS.iter().any(|home| path == Path::new(home)) {
                self.add_system(&path);
            }
        }
    }

    fn add_public(&mut self, path: &Path) {
        if self.is_public(path) {
            self.with_contents.push(path.to_owned());
        }
    }

    /// Returns whether a command may read a path with all its contents. If not, adds the public
    /// parts of a folder.
    fn is_public(&mut self, path: &Path) -> bool {
        let Some(left) = self.checks_left.checked_sub(1) else { return false };
        self.checks_left = left;
        if self.hidden.iter().any(|hidden| hidden == path) {
            return false;
        }
        let Ok(meta) = path.symlink_metadata() else { return false };
        if !meta.is_dir() {
            return meta.mode() & 0o004 != 0;
        }
        if meta.mode() & 0o005 != 0o005 {
            self.unlistable.push(path.to_owned());
            return false;
        }
        let (public, secret): (Vec<_>, Vec<_>) =
            list_entries(path).into_iter().partition(|entry| self.is_public(entry));
        if secret.is_empty() {
            return true;
        }
        self.with_contents.extend(public);
        self.listed.push(path.to_owned());
        false
    }
}

/// Returns the entries of a folder without symlinks. A symlink needs no permission, and its target
/// needs its own permission.
fn list_entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_link = |path: &PathBuf| path.is_symlink();
    entries.map(|entry| entry.path()).filter(|path| !is_link(path)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_with_private_files_is_allowed_entry_by_entry() {
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
        let mut readable = ReadablePaths::default();
        readable.add_public(&top);
        readable.with_contents.sort();
        assert_eq!(readable.with_contents, [top.join("open"), top.join("ssl/certs")]);
        assert_eq!(readable.listed, [top.join("ssl"), top.clone()]);
        assert_eq!(readable.unlistable, [top.join("ssl/private")]);
        let mut certs = ReadablePaths::default();
        certs.add_public(&top.join("ssl/certs"));
        assert_eq!(certs.with_contents, [top.join("ssl/certs")]);
    }

    #[test]
    fn a_folder_with_a_file_of_faber_is_allowed_entry_by_entry() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["faber.yaml", "other"] {
            fs::write(top.join(name), "").unwrap();
            fs::set_permissions(top.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mut readable =
            ReadablePaths { hidden: vec![top.join("faber.yaml")], ..ReadablePaths::default() };
        readable.add_public(&top);
        assert_eq!((readable.with_contents, readable.listed), (vec![top.join("other")], vec![top]));
    }

    #[test]
    fn usr_is_allowed_entry_by_entry() {
        let mut readable = ReadablePaths::default();
        readable.add_system(Path::new(USR_FOLDER));
        // `/usr/local` has its own rules, and the other folders of `/usr` are allowed with all
        // their contents.
        assert!(readable.with_contents.contains(&PathBuf::from("/usr/bin")), "{readable:?}");
        assert!(!readable.with_contents.contains(&PathBuf::from(USR_FOLDER)), "{readable:?}");
        assert_eq!(readable.checks_left, usize::MAX);
    }

    #[test]
    fn a_folder_that_is_too_large_to_check_is_not_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(top.join(name), "").unwrap();
            fs::set_permissions(top.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mut readable = ReadablePaths { checks_left: 3, ..ReadablePaths::default() };
        readable.add_public(&top);
        assert_eq!((readable.with_contents.len(), readable.listed), (2, vec![top.clone()]));
        let mut readable = ReadablePaths { checks_left: 4, ..ReadablePaths::default() };
        readable.add_public(&top);
        assert_eq!(readable.with_contents, [top]);
    }

    #[test]
    fn truncating_a_file_needs_the_right_to_write() {
        assert!(AccessFs::from_all(FIRST_FILE_ABI).contains(AccessFs::Truncate));
    }
}
