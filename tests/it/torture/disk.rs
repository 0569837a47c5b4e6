//! A small disk for tests of full disks: a tmpfs that is unmounted when its owner ends.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Mounts a tmpfs of `$2` bytes at `$1`, and unmounts it when standard input closes. The kernel
/// closes standard input even if the test is killed.
const MOUNT_SCRIPT: &str = r#"
mount -t tmpfs -o "size=$2,mode=700" faber-torture "$1" || exit 1
echo mounted
while read -r line; do :; done
umount -l "$1"
rmdir "$1"
"#;

/// Set to 1 on machines that cannot mount a tmpfs.
const NO_TMPFS_VARIABLE: &str = "FABER_TORTURE_NO_TMPFS";

#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    mount_process: Child,
}

impl Disk {
    /// Mounts a disk. Returns `None` if the variable allows tests without it. Panics if mounting
    /// fails and the variable is not set, because no test may be skipped in silence.
    pub(super) fn mount(bytes: u64) -> Option<Self> {
        if std::env::var_os(NO_TMPFS_VARIABLE).is_some_and(|value| value == "1") {
            return None;
        }
        let path = tempfile::tempdir().unwrap().keep();
        let mut mount_process = Command::new("sh")
            .args(["-c", MOUNT_SCRIPT, "sh"])
            .arg(&path)
            .arg(bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(mount_process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() == "mounted" {
            return Some(Self { path, mount_process });
        }
        let mut reason = String::new();
        mount_process.stderr.take().unwrap().read_to_string(&mut reason).unwrap();
        let _ = mount_process.wait();
        let _ = fs::remove_dir(&path);
        panic!(
            "no small disk can be mounted here ({}), so a full disk CANNOT BE TESTED: run as \
             root with CAP_SYS_ADMIN, or set `{NO_TMPFS_VARIABLE}=1` to leave it out",
            reason.trim()
        );
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn fill(&self) {
        let mut filler = File::create(self.filler_path()).unwrap();
        let block = vec![0_u8; 1 << 20];
        for size in [1 << 20, 1 << 12, 1] {
            while filler.write_all(&block[..size]).is_ok() {}
        }
    }

    pub(super) fn free(&self) {
        let _ = fs::remove_file(self.filler_path());
    }

    pub(super) fn remount_read_only(&self) {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", "remount,ro"]).arg(&self.path).status();
        assert!(status.is_ok_and(|status| status.success()), "the disk cannot be protected");
    }

    fn filler_path(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.mount_process.stdin.take());
        let _ = self.mount_process.wait();
    }
}

#[test]
fn a_small_disk_rejects_writes_while_full_and_disappears_when_dropped() {
    let Some(disk) = Disk::mount(1 << 20) else { return };
    let path = disk.path().to_owned();
    disk.fill();
    assert!(fs::write(path.join("x"), "x").is_err());
    disk.free();
    fs::write(path.join("x"), "x").unwrap();
    drop(disk);
    assert!(!path.exists());
}
