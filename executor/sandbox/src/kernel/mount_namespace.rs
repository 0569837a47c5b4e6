//! The mount namespace of a command. A read-only mount prevents changes that Landlock does not
//! restrict, such as changes of mode, owner and dates.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{
            ffi::OsStringExt as _,
            fs::{FileTypeExt as _, MetadataExt as _},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::stat::fstat,
    unistd::{dup2_stderr, dup2_stdin, dup2_stdout, getegid, geteuid},
};

/// `AppArmor`'s switch. If it is set, a new user namespace has no rights, and creating one would
/// make the command the user `nobody`.
const APPARMOR_RESTRICTION: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
const NULL_DEVICE: &str = "/dev/null";

pub(super) fn enter_namespace() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => (),
        Err(Errno::EPERM) => enter_user_namespace()?,
        Err(err) => return Err(err.into()),
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?)
}

fn enter_user_namespace() -> io::Result<()> {
    if fs::read_to_string(APPARMOR_RESTRICTION).is_ok_and(|text| text.trim() == "1") {
        return Err(Errno::EPERM.into());
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Makes all mounts read-only except `writable` with their contents. Returns `false` if a mount
/// could not be changed. A broken mount, such as a lost network file system, is an error only if it
/// overlaps `reachable`.
pub(super) fn make_read_only_except(
    writable: &[PathBuf],
    reachable: &[PathBuf],
) -> io::Result<bool> {
    if writable.iter().any(|place| place.parent().is_none()) {
        return Ok(true);
    }
    let is_within =
        |mount: &MountPoint| writable.iter().any(|place| mount.mount_point.starts_with(place));
    let mounted = list_mounts()?;
    // Mounts the writable folders on themselves first, because such a mount keeps the flags of its
    // source. After the next loop, it would be read-only.
    for place in writable {
        bind_mount(place, place, place)?;
    }
    let mut is_complete = true;
    for mount in mounted.iter().filter(|mount| !is_within(mount)) {
        is_complete &= mount.check_remount(mount.remount_read_only(), reachable)?;
    }
    reopen_null()?;
    Ok(is_complete)
}

pub(super) fn bind_mount(from: &Path, to: &Path, shown_path: &Path) -> io::Result<()> {
    let bound =
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
    bound.map_err(|err| io::Error::other(format!("`{}`: {err}", shown_path.display())))
}

#[derive(Debug, PartialEq)]
struct MountPoint {
    mount_point: PathBuf,
    /// Flags that a process without rights cannot remove, so a remount must repeat them.
    locked_flags: MsFlags,
}

impl MountPoint {
    fn remount_read_only(&self) -> nix::Result<()> {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        let flags = flags | MsFlags::MS_NOSUID | self.locked_flags;
        mount(None::<&str>, &self.mount_point, None::<&str>, flags, None::<&str>)
    }

    /// Returns whether the mount is read-only or out of the command's reach after a remount with
    /// this result.
    fn check_remount(&self, remounted: nix::Result<()>, reachable: &[PathBuf]) -> io::Result<bool> {
        let is_needed = || {
            reachable.iter().any(|path| {
                path.starts_with(&self.mount_point) || self.mount_point.starts_with(path)
            })
        };
        match remounted {
            // Ignores the error, because another mount hides this mount or the user cannot enter
            // it. The command cannot reach it either.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => {
                Ok(true)
            }
            Err(err) if is_needed() => {
                Err(io::Error::other(format!("`{}`: {err}", self.mount_point.display())))
            }
            Err(_) => Ok(false),
        }
    }
}

fn list_mounts() -> io::Result<Vec<MountPoint>> {
    Ok(fs::read("/proc/self/mountinfo")?
        .split(|byte| *byte == b'\n')
        .filter_map(parse_mount)
        .collect())
}

/// Parses a line of `/proc/self/mountinfo`. The fifth field is the path, the sixth has the flags.
fn parse_mount(line: &[u8]) -> Option<MountPoint> {
    let mut words = line.split(|byte| *byte == b' ');
    let mount_point = OsString::from_vec(unescape_octal(words.nth(4)?)).into();
    let locked_flags = words.next()?.split(|byte| *byte == b',').map(|flag| match flag {
        b"nodev" => MsFlags::MS_NODEV,
        b"noexec" => MsFlags::MS_NOEXEC,
        _ => MsFlags::empty(),
    });
    Some(MountPoint { mount_point, locked_flags: locked_flags.collect() })
}

/// Decodes spaces and other special characters, written as a backslash and three octal digits.
fn unescape_octal(word: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        text.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text
}

/// Reopens standard streams that are `/dev/null`, because the old descriptors still belong to the
/// writable mount.
fn reopen_null() -> io::Result<()> {
    let Ok(null) = File::options().read(true).write(true).open(NULL_DEVICE) else { return Ok(()) };
    let meta = null.metadata()?;
    if !meta.file_type().is_char_device() {
        return Ok(());
    }
    let is_null = |stream: BorrowedFd<'_>| fstat(stream).is_ok_and(|of| of.st_rdev == meta.rdev());
    let streams = (io::stdin(), io::stdout(), io::stderr());
    if is_null(streams.0.as_fd()) {
        dup2_stdin(&null)?;
    }
    if is_null(streams.1.as_fd()) {
        dup2_stdout(&null)?;
    }
    if is_null(streams.2.as_fd()) {
        dup2_stderr(&null)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a broken network mount made every command fail.
    #[test]
    fn a_broken_mount_is_an_error_only_where_the_command_needs_it() {
        let reachable = ["/srv/root", "/usr"].map(PathBuf::from);
        let became = |mount_point: &str, remounted| {
            let mount =
                MountPoint { mount_point: mount_point.into(), locked_flags: MsFlags::empty() };
            mount.check_remount(remounted, &reachable).map_err(|err| err.to_string())
        };
        assert_eq!(became("/mnt/nfs", Ok(())), Ok(true));
        assert_eq!(became("/mnt/nfs", Err(Errno::ESTALE)), Ok(false));
        assert_eq!(became("/usr/local", Err(Errno::EACCES)), Ok(true));
        for mount_point in ["/", "/srv", "/srv/root", "/srv/root/deep", "/usr/share"] {
            let error = became(mount_point, Err(Errno::ESTALE)).unwrap_err();
            assert!(error.starts_with(&format!("`{mount_point}`: ")), "{error}");
        }
        assert_eq!(became("/srv-other", Err(Errno::ENOTCONN)), Ok(false));
    }

    #[test]
    fn mountinfo_lines_are_parsed() {
        for (line, mount_point, locked_flags) in [
            (
                "21 98 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:5 - proc proc rw",
                "/proc",
                MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
            ),
            (r"36 35 98:0 /a /mnt/a\040b\134 ro - ext4 /dev/x rw", r"/mnt/a b\", MsFlags::empty()),
            (r"36 35 98:0 /a /mnt\04 rw - ext4 x rw", r"/mnt\04", MsFlags::empty()),
        ] {
            assert_eq!(
                parse_mount(line.as_bytes()),
                Some(MountPoint { mount_point: mount_point.into(), locked_flags }),
                "{line}"
            );
        }
        assert_eq!(parse_mount(b""), None);
        assert!(list_mounts().unwrap().iter().any(|mount| mount.mount_point == Path::new("/")));
    }
}
