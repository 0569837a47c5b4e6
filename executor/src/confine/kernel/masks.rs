//! Hiding single files in a folder that a command may otherwise use.
//!
//! Landlock allows a folder with all that is in it, or does not. What a command must not touch
//! there (Faber's own configuration and store) is covered by something that nobody may open, in a
//! view of the file system that only the command has. The programs that Faber runs stay as they
//! are there.
//!
//! A cover goes with the file that it lies on: where somebody outside puts another in that one's
//! place, the command sees it. So what may live on for days is refused instead.

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
    super::{Confinement, Life, Order},
    landlock::SYSTEM,
    view::{self, bind},
};

/// Where what covers is made, whichever is there: for a moment, and seen by this process only.
const WORKSHOPS: [&str; 6] = ["/tmp", "/run", "/var", "/dev", "/etc", "/usr"];

/// What is to do so that a command leaves alone what is Faber's own.
struct Work {
    /// Where it may write.
    write: Vec<PathBuf>,
    /// Where it may read and write.
    reach: Vec<PathBuf>,
    /// What of Faber's own lies there, to be covered.
    hidden: Vec<PathBuf>,
    /// What it could write and must not.
    kept: Vec<PathBuf>,
}

impl Work {
    /// Returns whether nothing can be changed but where it may write.
    fn do_it(&self) -> io::Result<bool> {
        let is_whole = view::write_only(&self.write, &self.reach)?;
        cover(self)?;
        keep(self)?;
        Ok(is_whole)
    }
}

/// Lets the command change files where it may write, and nowhere else; covers what of Faber's own it
/// could reach, as far as it is there, and keeps the programs that it could change as they are.
/// Returns whether it has a view of its own in which that holds.
pub(super) fn put_on(order: &Order, confinement: &Confinement) -> io::Result<bool> {
    let (write, read) = (real(&confinement.write), real(&confinement.read));
    let named = [write.as_slice(), read.as_slice()].concat();
    let system = real(SYSTEM);
    let kept = order.kept.iter().flat_map(|it| ways(it));
    let mut kept = outermost(kept.filter(|it| is_within(it, &write)));
    let hidden = real(&order.hidden);
    let in_named = hidden.iter().chain(&kept).find(|it| is_within(it, &named));
    if let Some(path) = in_named.filter(|_| order.life == Life::Background && confinement.required)
    {
        let why = "cannot be hidden for as long as a command in the background may live";
        return Err(refused(path, why, &named));
    }
    let reach = [named.as_slice(), system.as_slice()].concat();
    let hidden = outermost(hidden.into_iter().filter(|it| is_within(it, &reach)));
    kept.retain(|it| !hidden.iter().any(|above| it.starts_with(above)));
    let first = hidden.first().or(kept.first()).cloned();
    let write = outermost(write.into_iter());
    let work = Work { write, reach, hidden, kept };
    let here = env::current_dir()?;
    let is_whole = match view::take().and_then(|()| work.do_it()) {
        Ok(is_whole) => is_whole,
        Err(err) => match first.filter(|_| confinement.required) {
            Some(first) => {
                let why = format!("cannot be hidden on this machine ({err})");
                return Err(refused(&first, &why, &named));
            }
            None => false,
        },
    };
    // It still stands in the folder as it was, where nothing is covered, and where nothing can be
    // written any more, however little of the view there is.
    env::set_current_dir(&here).map_err(|err| {
        let here = here.display();
        io::Error::other(format!(
            "it cannot run in `{here}`: {err} (what is Faber's own is hidden)"
        ))
    })?;
    Ok(is_whole)
}

fn refused(path: &Path, why: &str, named: &[PathBuf]) -> io::Error {
    let at = path.display();
    let (place, help) = if is_within(path, named) {
        ("where it may read or write", "let it work in a folder of its own, such as `root: ./work`")
    } else {
        ("in a folder of the system, which every command reads", "keep it elsewhere")
    };
    io::Error::other(format!("`{at}` is Faber's own, lies {place}, and {why}: {help}"))
}

/// Returns paths without symlinks, as far as they are there.
fn real(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|it| it.as_ref().canonicalize().ok()).collect()
}

/// Returns the files and folders that decide what a program is: itself, and the folder of a symlink
/// to it.
fn ways(program: &Path) -> Vec<PathBuf> {
    let link = program.symlink_metadata().is_ok_and(|it| it.is_symlink());
    real([Some(program), program.parent().filter(|_| link)].into_iter().flatten())
}

/// Returns whether a path lies in one of some folders. A folder that somebody names is meant.
fn is_within(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|it| path != *it && path.starts_with(it))
}

/// Leaves out what lies in another one of them.
fn outermost(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths.dedup_by(|later, earlier| later.starts_with(earlier));
    paths
}

fn cover(work: &Work) -> io::Result<()> {
    if work.hidden.is_empty() {
        return Ok(());
    }
    for path in &work.hidden {
        pin(path, &work.reach)?;
    }
    // Held open: what covers is made in a folder that they may lie in.
    let held: Vec<_> = work.hidden.iter().map(|it| hold(it)).collect::<io::Result<_>>()?;
    let shop = WORKSHOPS.iter().map(Path::new).find(|it| it.is_dir());
    let shop = shop.ok_or_else(|| io::Error::other("there is no folder such as `/tmp`"))?;
    mount(Some("tmpfs"), shop, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    let (file, folder) = (shop.join("file"), shop.join("folder"));
    fs::write(&file, [])?;
    fs::create_dir(&folder)?;
    for it in [&file, &folder] {
        fs::set_permissions(it, Permissions::from_mode(0o0))?;
    }
    for (path, held) in work.hidden.iter().zip(&held) {
        let cover = if held.metadata()?.is_dir() { &folder } else { &file };
        bind(cover, &by_number(held), path)?;
    }
    Ok(umount2(shop, MntFlags::MNT_DETACH)?)
}

/// Lets programs be read and run, and not be changed.
fn keep(work: &Work) -> io::Result<()> {
    for path in &work.kept {
        pin(path, &work.reach)?;
        bind(path, path, path)?;
        let only_read = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | held(path)?;
        mount(None::<&str>, path, None::<&str>, only_read, None::<&str>)?;
    }
    Ok(())
}

/// Returns what holds of a place already: it cannot be taken away, and must be said again.
fn held(path: &Path) -> io::Result<MsFlags> {
    let now = statvfs(path)?.flags();
    let flags = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    Ok(flags.into_iter().filter(|it| now.contains(it.0)).map(|it| it.1).collect())
}

/// Keeps the folders between what may be used and a path where they are: if one could be moved,
/// another could take its place.
fn pin(path: &Path, reach: &[PathBuf]) -> io::Result<()> {
    let is_between =
        |it: &&Path| reach.iter().any(|top| it.starts_with(top) && *it != top.as_path());
    let mut between: Vec<_> = path.ancestors().skip(1).filter(is_between).collect();
    between.reverse();
    for folder in between {
        bind(folder, folder, folder)?;
    }
    Ok(())
}

fn hold(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
