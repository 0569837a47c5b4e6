//! Mounts that cover or protect single files in a folder of a command, because Landlock allows a
//! folder only with all its contents.

mod hard_links;

use std::{
    env,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statvfs::{FsFlags, statvfs},
};

use super::{
    super::{
        Confinement, LaunchOrder, Lifetime, OWN_FOLDER_ADVICE,
        resolved_path::{ResolvedPath, canonical_paths, is_within},
    },
    landlock::{ReadablePaths, SYSTEM_FOLDERS},
    mount_namespace::{self, bind_mount},
};

/// Folders in which covers can be created. The mount of a cover in such a folder is visible only to
/// this process, for a short time.
const COVER_FOLDERS: [&str; 6] = ["/tmp", "/run", "/var", "/dev", "/etc", "/usr"];

#[derive(Default)]
struct ProtectionMounts {
    writable: Vec<PathBuf>,
    reachable: Vec<PathBuf>,
    /// Faber's files inside `reachable` that are going to be covered.
    hidden: Vec<PathBuf>,
    unlistable: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    symlinks: Vec<PathBuf>,
    creatable: Vec<PathBuf>,
}

impl ProtectionMounts {
    /// Starts with the folders of a command. The configuration names the folders in `named`, and
    /// every command reads the folders in `system`.
    fn new(confinement: &Confinement, named: &[PathBuf], system: &ReadablePaths) -> Self {
        let reach = [named, canonical_paths(SYSTEM_FOLDERS).as_slice()].concat();
        let write = canonical_paths(&confinement.write);
        // Leaves these folders uncovered, because the command needs them or a path inside them.
        let is_needed = |folder: &PathBuf| {
            is_within(folder, &write) || named.iter().any(|path| path.starts_with(folder))
        };
        // If this user cannot list a folder, it needs no cover.
        let can_list = |folder: &PathBuf| fs::read_dir(folder).is_ok();
        let mut unlistable = system.unlistable.clone();
        unlistable.retain(|folder| !is_needed(folder) && can_list(folder));
        Self { writable: write, reachable: reach, unlistable, ..Self::default() }
    }

    /// Finds Faber's files that the command could reach by path, through symlinks, or by hard
    /// links.
    fn find_paths(mut self, order: &LaunchOrder, named: &[PathBuf]) -> io::Result<Self> {
        let (hidden, kept) = (self.resolve_paths(&order.hidden)?, self.resolve_paths(&order.kept)?);
        let others = hard_links::find_hard_links(&hidden, named)?;
        let near = hidden.into_iter().filter(|path| is_within(path, &self.reachable));
        self.hidden = near.chain(others).collect();
        let others = hard_links::find_hard_links(&kept, &self.writable)?;
        let near = kept.into_iter().filter(|path| is_within(path, &self.writable));
        self.kept = near.chain(others).collect();
        Ok(self)
    }

    fn resolve_paths(&mut self, paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
        let mut ends = Vec::new();
        for path in paths {
            let resolved = ResolvedPath::resolve(path)
                .map_err(|err| io::Error::other(format!("`{}`: {err}", path.display())))?;
            if resolved.can_be_created() && is_within(&resolved.end, &self.writable) {
                self.creatable.push(resolved.end.clone());
            }
            let links = resolved.links.into_iter().filter(|link| is_within(link, &self.writable));
            self.symlinks.extend(links);
            ends.extend(Some(resolved.end).filter(|_| resolved.exists));
        }
        Ok(ends)
    }

    fn remove_nested(self) -> Self {
        let hidden = outermost_paths(self.hidden);
        let is_covered = |path: &PathBuf| hidden.iter().any(|above| path.starts_with(above));
        let left = |paths: Vec<PathBuf>| {
            let mut left = outermost_paths(paths);
            left.retain(|path| !is_covered(path));
            left
        };
        let (kept, links, write) =
            (left(self.kept), left(self.symlinks), outermost_paths(self.writable));
        Self { writable: write, hidden, kept, symlinks: links, ..self }
    }

    fn mount_all(&self) -> io::Result<bool> {
        let is_complete = mount_namespace::make_read_only_except(&self.writable, &self.reachable)?;
        cover_hidden(self)?;
        mount_read_only(self)?;
        pin_links(self)?;
        Ok(is_complete)
    }
}

/// Makes everything read-only except the folders in `confinement.write`, and covers or protects
/// Faber's files.
///
/// Returns `false` if the mounts are incomplete. Fails if a required confinement cannot be met.
pub(super) fn protect_files(
    order: &LaunchOrder,
    confinement: &Confinement,
    system: &ReadablePaths,
) -> io::Result<bool> {
    let named = canonical_paths(confinement.write.iter().chain(&confinement.read));
    let start = || ProtectionMounts::new(confinement, &named, system);
    let mounts = match start().find_paths(order, &named) {
        Err(err) if confinement.required => return Err(err),
        found => found.unwrap_or_else(|_| start()).remove_nested(),
    };
    if confinement.required {
        let protected_paths =
            [mounts.hidden.as_slice(), &mounts.kept, &mounts.symlinks, &mounts.creatable].concat();
        let in_named = protected_paths.iter().find(|path| is_within(path, &named));
        if let Some(path) = in_named.filter(|_| order.life == Lifetime::Background) {
            let reason = "cannot be hidden for as long as a command in the background may live";
            return Err(refused_error(path, reason, &named));
        }
        if let Some(path) = mounts.creatable.first() {
            return Err(refused_error(path, "does not exist, so it cannot be hidden", &named));
        }
    }
    let here = env::current_dir()?;
    let is_complete = match mount_namespace::enter_namespace().and_then(|()| mounts.mount_all()) {
        Ok(is_complete) => is_complete,
        Err(err) => {
            let first = mounts.hidden.iter().chain(&mounts.kept).chain(&mounts.symlinks).next();
            if let Some(first) = first.filter(|_| confinement.required) {
                let reason = format!("cannot be hidden on this machine ({err})");
                return Err(refused_error(first, &reason, &named));
            }
            false
        }
    };
    // The working directory is still the uncovered folder. This call enters the folder again,
    // inside the namespace.
    env::set_current_dir(&here).map_err(|err| {
        let here = here.display();
        io::Error::other(format!("it cannot run in `{here}`: {err} (Faber's own files are hidden)"))
    })?;
    Ok(is_complete)
}

fn refused_error(path: &Path, reason: &str, named: &[PathBuf]) -> io::Error {
    let shown_path = path.display();
    let (place, help) = if is_within(path, named) {
        ("where it may read or write", OWN_FOLDER_ADVICE)
    } else {
        ("in a folder of the system, which every command reads", "keep it elsewhere")
    };
    io::Error::other(format!("`{shown_path}` is Faber's own, is {place}, and {reason}: {help}"))
}

fn outermost_paths(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    // In this order, the contents of a folder follow the folder directly.
    paths.sort();
    paths.dedup_by(|later, earlier| later.starts_with(earlier));
    paths
}

fn cover_hidden(mounts: &ProtectionMounts) -> io::Result<()> {
    if mounts.hidden.is_empty() && mounts.unlistable.is_empty() {
        return Ok(());
    }
    for path in &mounts.hidden {
        pin_parents(path, &mounts.reachable)?;
    }
    // Keeps the files open, because the covers are created in a folder that may contain these
    // files.
    let held: Vec<_> =
        mounts.hidden.iter().map(|path| open_path(path)).collect::<io::Result<_>>()?;
    // Skips folders that were removed during the walk.
    let unlistable = mounts.unlistable.iter().filter(|folder| !is_within(folder, &mounts.hidden));
    let unlistable: Vec<_> =
        unlistable.filter_map(|path| Some((path, open_path(path).ok()?))).collect();
    let cover_folder = COVER_FOLDERS.iter().map(Path::new).find(|folder| folder.is_dir());
    let cover_folder =
        cover_folder.ok_or_else(|| io::Error::other("there is no folder such as `/tmp`"))?;
    mount(Some("tmpfs"), cover_folder, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    let (file, folder) = (cover_folder.join("file"), cover_folder.join("folder"));
    fs::write(&file, [])?;
    fs::create_dir(&folder)?;
    for cover in [&file, &folder] {
        fs::set_permissions(cover, Permissions::from_mode(0o0))?;
    }
    for (path, held) in mounts.hidden.iter().zip(&held) {
        let cover = if held.metadata()?.is_dir() { &folder } else { &file };
        bind_mount(cover, &descriptor_path(held), path)?;
    }
    for (path, held) in &unlistable {
        bind_mount(&folder, &descriptor_path(held), path)?;
    }
    Ok(umount2(cover_folder, MntFlags::MNT_DETACH)?)
}

fn mount_read_only(mounts: &ProtectionMounts) -> io::Result<()> {
    for path in &mounts.kept {
        pin_parents(path, &mounts.reachable)?;
        bind_mount(path, path, path)?;
        let only_read =
            MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | locked_flags(path)?;
        mount(None::<&str>, path, None::<&str>, only_read, None::<&str>)?;
    }
    Ok(())
}

/// Mounts each symlink on itself, so it can be followed but not replaced.
fn pin_links(mounts: &ProtectionMounts) -> io::Result<()> {
    for path in &mounts.symlinks {
        pin_parents(path, &mounts.reachable)?;
        let held = open_path(path)?;
        bind_mount(&descriptor_path(&held), &descriptor_path(&held), path)?;
    }
    Ok(())
}

/// Returns the flags of a mount that a remount must repeat. They cannot be removed.
fn locked_flags(path: &Path) -> io::Result<MsFlags> {
    let now = statvfs(path)?.flags();
    let flags = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    Ok(flags.into_iter().filter(|flag| now.contains(flag.0)).map(|flag| flag.1).collect())
}

/// Mounts the folders between an allowed folder and `path` on themselves. Otherwise a command could
/// move such a folder and put another folder in its place.
fn pin_parents(path: &Path, reachable: &[PathBuf]) -> io::Result<()> {
    let is_between =
        |path: &&Path| reachable.iter().any(|top| path.starts_with(top) && *path != top.as_path());
    let mut between: Vec<_> = path.ancestors().skip(1).filter(is_between).collect();
    between.reverse();
    for folder in between {
        bind_mount(folder, folder, folder)?;
    }
    Ok(())
}

fn open_path(path: &Path) -> io::Result<File> {
    // Opens a symlink itself, not its target.
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn descriptor_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests;
