//! A small disk that can be full: a tmpfs that is gone when its owner is.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Mounts a tmpfs of `$2` bytes at `$1` until standard input closes, which the kernel sees to
/// however the test ends.
const KEEPER: &str = r#"
mount -t tmpfs -o "size=$2,mode=700" faber-torture "$1" || exit 1
echo mounted
while read -r line; do :; done
umount -l "$1"
rmdir "$1"
"#;

/// The variable by which somebody says that a machine need not have a small disk.
const WITHOUT: &str = "FABER_TORTURE_NO_TMPFS";

/// A disk of its own.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    keeper: Child,
}

impl Disk {
    /// Makes a disk of so many bytes, or nothing where somebody said that it goes without.
    ///
    /// # Panics
    ///
    /// If the machine does not allow it and nobody said so: what is not tested must be known.
    pub(super) fn small(bytes: u64) -> Option<Self> {
        if std::env::var_os(WITHOUT).is_some_and(|value| value == "1") {
            return None;
        }
        let path = tempfile::tempdir().unwrap().keep();
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&path)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() == "mounted" {
            return Some(Self { path, keeper });
        }
        let mut why = String::new();
        keeper.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        let _ = keeper.wait();
        let _ = fs::remove_dir(&path);
        panic!(
            "no small disk can be mounted here ({}), so a full disk CANNOT BE TESTED: run as \
             root with CAP_SYS_ADMIN, or say with `{WITHOUT}=1` that this is to be left out",
            why.trim()
        );
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves no byte free.
    pub(super) fn fill(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        let block = vec![0_u8; 1 << 20];
        for size in [1 << 20, 1 << 12, 1] {
            while filler.write_all(&block[..size]).is_ok() {}
        }
    }

    /// Makes room again.
    pub(super) fn free(&self) {
        let _ = fs::remove_file(self.filler());
    }

    /// Lets nobody write any more.
    pub(super) fn protect(&self) {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(status.is_ok_and(|status| status.success()), "the disk cannot be protected");
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[test]
fn a_full_disk_is_full_until_there_is_room_and_gone_afterwards() {
    let Some(disk) = Disk::small(1 << 20) else { return };
    let path = disk.path().to_owned();
    disk.fill();
    assert!(fs::write(path.join("x"), "x").is_err());
    disk.free();
    fs::write(path.join("x"), "x").unwrap();
    drop(disk);
    assert!(!path.exists());
}
